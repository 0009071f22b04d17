"""The instructions of one editable region during a run: one step of read, consolidate, change, measure and upkeep."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any

from whet.errors import EditRejected
from whet.instructions.answers import Known, Requirement
from whet.instructions.changes import (
    AUTHOR,
    EVIDENCE,
    OUTWEIGHS,
    QUOTED,
    Conflict,
    as_events,
    conflicts,
    first_instruction,
    known_of,
    merges,
    of_models,
)
from whet.instructions.consolidate import WIDEST, Comparison, compare, merge_equal, near_doubles
from whet.instructions.contradictions import Contradictions
from whet.instructions.critiques import CritiqueBatch, withhold_attacks
from whet.instructions.drafts import UNTRIED, Drafts
from whet.instructions.effects import Effects, Round
from whet.instructions.falls import FELL, RETURNED, find_better, find_fall
from whet.instructions.guard import harmless
from whet.instructions.history import History
from whet.instructions.neighbours import Embed, comparable
from whet.instructions.questions import Critique, mostly_rows, nearly_all_right
from whet.instructions.reader import PACK_SHOWN, PLAIN_ROWS, Reading, read_critiques
from whet.instructions.recheck import MISREAD, Rechecks
from whet.instructions.rewrite import Failing, find_hindered, rewrite
from whet.instructions.unmanaged import giving_way, lines_of
from whet.instructions.upkeep import SHARE, Trials, over_budget, suspects, worse
from whet.prompt import Prompt
from whet.prompt.events import EXPIRED, Event, Expire, Resolve, Restore, Rewrite
from whet.prompt.instructions import Instruction, LayoutEntry, Ledger, apply_event, estimate_tokens
from whet.prompt.ledger import first_event, surroundings, with_layout, without_line, write_ledger
from whet.run import Run
from whet.search.copies import Copies

TOKENS = "token budget"
UNCLEAR = "nobody could say whether an answer follows it"
TRIES = 3
"""Texts that are tried for one demand before it is left as it is; for what whole rows demand there is no bound."""
_SEVERAL, _CARRIED, _AGAIN = 2, 24, 32
_REMEMBERED = 6
"""Instructions that were tried and taken out, of which the reader is told."""
_DOUBLES = 4
"""Likely doubles for which the last call compares instructions instead of reading the remaining critiques."""
_LONG = 60
"""Tokens of a wording from which on a short one is asked for as well, once."""
_SPARE, _LAST = 6, 3
"""One call in so many compares instructions, where there are any to compare; in the last step one of so few."""


@dataclass
class InstructionManager:
    """The instructions of one region of `start`, and all that is known about them."""

    start: Prompt
    tokens: int | None = None
    """The most tokens that all instructions together may have; None: no bound."""
    region: str | None = None
    embed: Embed | None = None
    consolidates: bool = True
    """Whether requirements are consolidated; with False, the difference shows the worth of this step."""
    measures: bool = True
    """Whether effects are measured; with False, the difference shows the worth of this step."""
    description: str = ""
    """The description of the task."""
    examples: tuple[str, ...] = ()
    """Demonstrations that stand in the region, each as one text."""
    demonstrated: Mapping[str, str] = field(default_factory=dict)
    """The ids of the rows that these demonstrations show, by text."""
    first: str = ""
    """A text that stands as the first instruction, as if rows had demanded it."""
    events: list[Event] = field(default_factory=list)
    ledger: Ledger = field(default_factory=Ledger)
    effects: Effects = field(default_factory=Effects)
    trials: Trials = field(default_factory=Trials)
    drafts: Drafts = field(default_factory=Drafts)
    """Drafts of the whole instruction; each takes the place of the current one for a roll-out."""
    left_out: frozenset[str] = frozenset()
    """Ids of the instructions that the next roll-out omits."""
    tried: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """The texts that each instruction has had, by id."""
    fresh: list[str] = field(default_factory=list)
    """Ids of instructions that were not compared with the others yet."""
    newest: list[str] = field(default_factory=list)
    """Ids of the instructions that the last step added."""
    spent: int = 0
    """Calls of the optimizer model."""
    numbers: int = 0
    dismissed: Counter[str] = field(default_factory=Counter)
    """The number of times that the reader said of a text that it demands nothing."""
    recent: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """The latest critiques that each instruction did not prevent, by its id."""
    unread: list[Critique] = field(default_factory=list)
    """Critiques that no answer of the reader mentioned; they are shown once more."""
    manages: bool | None = None
    """Whether the model fills in forms; None: unknown."""
    slips: int = 0
    """Steps in which the model answered only a plain question."""
    closed: bool = False
    """Whether the last step has begun."""
    settled: bool = False
    """Whether the last step brought nothing that several answers demand."""
    lost: bool = False
    """Whether no critique of the last step got a usable reading."""
    fell: bool = False
    """Whether the last step returned to instructions that had earned more."""
    origins: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Ids of the examples whose answers demanded each instruction, by its id."""
    late: list[str] = field(default_factory=list)
    """Ids of instructions that came from a single answer when nothing could be tried any more."""
    rechecks: Rechecks = field(default_factory=Rechecks)
    lines: dict[str, str] = field(default_factory=dict)
    """The unmanaged lines of the region as the reader saw them, by id."""
    of_rows: set[str] = field(default_factory=set)
    """Ids of the instructions that whole rows demanded."""
    past: History = field(default_factory=History)
    """The wordings that were tried, with their rewards."""

    def __post_init__(self) -> None:
        self.contradictions = Contradictions(self.effects)
        self._record(first_event(self.start, self.region))
        if self.first:
            add = first_instruction(self.ledger, self.first)
            self._record(add)
            self.of_rows, self.tried[add.id], self.trials.settled = {add.id}, [self.first], {add.id}

    @property
    def prompt(self) -> Prompt:
        """The start prompt with the instructions in its region, without those that a trial leaves out."""
        return write_ledger(self.start, replace(self.ledger, layout=self._layout), self.region)

    @property
    def _layout(self) -> tuple[LayoutEntry, ...]:
        return tuple(entry for entry in self.ledger.layout if entry.id not in self.left_out)

    @property
    def around(self) -> str:
        """The task, and the text around the instructions, without lines of the region that may give way."""
        fixed = lines_of(self.ledger, self.examples)[1]
        texts = (self.description, surroundings(self.start, self.region, unmanaged=False), *fixed)
        return "\n".join(text.strip() for text in texts if text.strip())

    def list_known(self) -> list[Known]:
        """The known texts that the reader sees: the lines that may give way, and the instructions with their earlier
        wordings."""
        rows = self.of_rows
        instructions = (
            replace(k, in_force=k.id not in self.left_out, before=self._wordings(k), of_rows=k.id in rows)
            for k in known_of(self.ledger)
        )
        return [*lines_of(self.ledger, self.examples)[0], *instructions]

    def _mark_demonstrated(self, judged: CritiqueBatch) -> CritiqueBatch:
        """The roll-out with a mark on each row that an example of the prompt shows."""
        shown = {
            self.demonstrated[text]: f"{line.id}.{number}"
            for line in lines_of(self.ledger, self.examples)[0]
            for number, text in enumerate(line.parts, 1)
            if text in self.demonstrated
        }
        marked = (replace(c, demonstrated=shown.get(c.example, "")) for c in judged.critiques)
        return replace(judged, critiques=tuple(marked))

    def _wordings(self, known: Known) -> tuple[str, ...]:
        """Describe the success of earlier wordings: by right answers if rows demanded the instruction, else by violations."""
        by = self.past if known.id in self.of_rows else self.effects
        tried = () if self.drafting else self.tried.get(known.id, ())
        return tuple(by.compare_wordings(known.id, known.text, tried))

    def list_dropped(self) -> list[str]:
        """The texts that were tried and taken out, the newest ones, each with the reason: what the reader remembers."""
        gone = [e.id for e in self.events if isinstance(e, Expire) and e.reason not in (UNTRIED, TOKENS)]
        left = [self.ledger[key] for key in dict.fromkeys(gone) if self.ledger[key].status == EXPIRED]
        return [f"{one.text} ({self._why(one)})" for one in left[-_REMEMBERED:]]

    def _why(self, gone: Instruction) -> str:
        """The reason why an instruction left; where rows demanded it, with what was answered where it stood."""
        rows = gone.id in self.of_rows
        return self.past.describe(gone.id, gone.text, gone.reason) if rows else gone.reason

    def history(self) -> list[Event]:
        """The events that lead to `prompt`."""
        return [*self.events, *(Expire(id=k, reason="left out on trial") for k in sorted(self.left_out))]

    def histories(self) -> list[list[Event]]:
        """The history of each region: of this one."""
        return [self.history()]

    def standing(self) -> dict[str, str]:
        """The texts that stand in `prompt`, by id."""
        return {i.id: i.text for i in self.ledger.active if i.id not in self.left_out}

    @property
    def ablated(self) -> list[str]:
        """The examples whose answers demanded the omitted instructions."""
        return list(dict.fromkeys(row for key in sorted(self.left_out) for row in self.origins.get(key, ())))

    @property
    def drafting(self) -> bool:
        """Whether what stands is a draft of the whole instruction."""
        return bool(self.drafts.standing)

    @property
    def whole(self) -> bool:
        """Whether one text is written as a whole: a draft, or the only instruction that rows demand, most of them."""
        alone = len(self.of_rows & self.standing().keys()) <= 1
        return self.drafting or (alone and not self.of_rows.isdisjoint(self.effects.mainstays()))

    @property
    def numbered(self) -> bool:
        """Whether most readings name critiques by usable numbers."""
        return self.numbers >= 0

    def _record(self, *events: Event) -> None:
        for event in events:
            self.ledger = apply_event(self.ledger, event)
            self.events.append(event)

    async def step(
        self, run: Run, judged: CritiqueBatch, most: int | None, at: str, *, last: bool = False
    ) -> int:
        """Learn from a roll-out of `prompt` within `most` optimizer calls. Returns how many instructions changed.

        Reading, comparing what was added last (in the `last` step: all) and rewriting what is still violated are asked for at
        the same time. A roll-out that did without instructions is measured and teaches nothing else.
        """
        trial = bool(self.left_out) and not self.drafts.waiting
        self.past.add(self.standing(), judged)
        judged = self._mark_demonstrated(self.past.mark_lost(judged, self.tried))
        judged, self.contradictions.ending = self._choose_critiques(run, judged, most, at, trial), last
        if last and (most is None or most >= _LAST) and len(self.ledger.active) <= WIDEST:
            self.fresh, self.closed = [instruction.id for instruction in self.ledger.active], True
        watched = self.measures and not (self.left_out or self.drafting)
        rewards = () if judged.again else judged.rewards
        now = Round(judged.counted, self.standing(), {}, rewards, layout=self._layout)
        fall = find_fall(self.effects.rounds, now, judged, self.of_rows) if watched else None
        self.fell = fall is not None
        reading, compared, texts = await self._ask(run, judged.only(()) if fall else judged, most)
        reading = replace(fall.reading, manages=self.manages) if fall else reading
        calls = {"read": reading.calls, "consolidate": compared.calls, "rewrite": int(texts is not None)}
        self.spent += sum(calls.values())
        self.lost = bool(judged.critiques) and not (fall or reading.requirements or reading.dismissed)
        self._remember(judged, reading, trial)
        left_out = sorted(self.left_out)
        expired = self._observe(run, now, judged, reading, at)
        changed = self._consolidate(run, compared, at, final=self.closed)
        reading = replace(reading, requirements=() if trial else reading.requirements)
        outvoted = self.contradictions.resolve_contradictions(reading.requirements, self.ledger, at)
        self._record(*outvoted)
        changed += self._drop_misread(judged, reading, at)
        changed += 0 if trial else self._drop_examples(run, reading.misleading, at)
        changed += len(outvoted) + self._add(run, judged, reading, at)
        changed += self._reword(reading, texts or {}, at)
        changed += 0 if trial else self._drop_superfluous(run, reading, at)
        changed += self._return_to(fall.best, at) if fall else 0
        self._fit(run, at)
        hits = [self.effects.rounds[-1].violated.get(key, 0) for key in self.newest]
        few = max(hits, default=0) <= 1 and len(hits) <= SHARE * len(self.ledger.active)
        self.settled = bool(self.drafts.waiting) or (self.numbered and few and not texts)
        run.log(
            "learned",
            {
                "at": at, "critiques": len(judged.critiques), "requirements": len(reading.requirements),
                "changed": changed, "left_out": list(left_out), "expired": list(expired), "calls": dict(calls),
            },
        )  # fmt: skip
        return changed + len(expired)

    def falls_behind(self, rewards: Sequence[float]) -> bool:
        """Whether these rewards of `prompt` are below those of an earlier roll-out by more than chance, so that the next step
        returns to that, where one text is written as a whole."""
        now = Round(len(rewards), self.standing(), {}, rewards, layout=self._layout)
        watched = self.measures and self.whole and not (self.left_out or self.drafting)
        return watched and find_better([*self.effects.rounds, now], self.of_rows).texts != now.texts

    def _choose_critiques(
        self, run: Run, judged: CritiqueBatch, most: int | None, at: str, trial: bool
    ) -> CritiqueBatch:
        """The critiques that the reader sees, at most as many as the calls can hold. Critiques with a known attack and
        critiques that were dismissed twice are left out. Outside a trial, critiques that were left over, or that must be
        read again, are included. A model that cannot fill in the form finds something in every critique, so it sees neither
        the only critique of a round nor very few rows."""
        judged = withhold_attacks(run, judged, at)
        judged = judged.but({text for text, times in self.dismissed.items() if times > 1})
        if not trial:
            again = self.rechecks.ask(self._doubtful(), judged.critiques) if judged.critiques else []
            judged = judged.but((), [*self.unread, *again])
        several = PLAIN_ROWS if mostly_rows(judged.critiques) else _SEVERAL
        if self.manages is False and len(judged.critiques) < several:
            judged = judged.only(())
        return judged if most is None else judged.within(most * PACK_SHOWN)

    async def _ask(
        self, run: Run, judged: CritiqueBatch, most: int | None
    ) -> tuple[Reading, Comparison, dict[str, str] | None]:
        """Ask the model for requirements, for duplicates among the newest instructions, and for other wordings of
        instructions that are still violated, if there are any."""
        known, failing, wrong = self.list_known(), self._failing(), judged.full.count(False)
        self.lines = {k.id: k.text for k in known if not k.managed}
        hindered = find_hindered(failing) if most is None or most > 1 else set()
        due = bool(hindered) or (self.settled and self._uncompared and most != 1)
        anew = hindered.union(self.fresh)
        fresh, others = [k for k in known if k.id in anew], [k for k in known if k.id not in anew]
        comparing = len(fresh) if most is None else max(most // _SPARE, int(self.closed or due))
        several = len(fresh) > 1 or (bool(hindered) and self._several)
        comparing = comparing if self.consolidates and several and not self.drafts.waiting else 0
        rewriting = int(bool(failing) and (most is None or most > comparing + 1))
        left = None if most is None else most - comparing - rewriting
        asks: dict[str, Any] = {
            "read": partial(
                read_critiques, critiques=judged.critiques, known=known, around=self.around, most=left, embed=self.embed,
                manages=self.manages, dropped=self.list_dropped(), tally=judged.tally, wrong=wrong, answered=len(judged.full),
                brief=self._wants_brief() and not nearly_all_right(wrong, len(judged.full)),
            )
        }  # fmt: skip
        if comparing:
            asks["compare"] = partial(compare, fresh=fresh, known=others, most=comparing, embed=self.embed)
        if rewriting:
            asks["rewrite"] = partial(rewrite, failing=failing, around=self.around, most=1)
        answers = await run.map(lambda branch, part: asks[part](branch), list(asks))
        self.fresh = [] if comparing else self.fresh
        by_part = dict(zip(asks, answers, strict=True))
        compared = by_part.get("compare", Comparison())
        return by_part["read"], compared, by_part.get("rewrite")

    def _wants_brief(self) -> bool:
        """Whether all that rows demanded is one long text, in its first wording by a model: some models follow a short one
        better, and a roll-out finds out which."""
        own = [key for key in self.of_rows & self.standing().keys() if self.measures]
        tried = [text for text in self.tried[own[0]] if text != self.first] if len(own) == 1 else []
        return len(tried) == 1 and estimate_tokens(tried[0]) > _LONG

    def _remember(self, judged: CritiqueBatch, reading: Reading, trial: bool) -> None:
        """Whether the model manages the form, what demands nothing, and what is to be shown once more: no row, for the next
        roll-out brings fresh ones."""
        self.slips += reading.manages is None and bool(reading.requirements)
        self.manages = False if self.slips > 1 else reading.manages
        self.dismissed.update(judged.critiques[place].text for place in reading.dismissed)
        if not trial:
            carried = (judged.critiques[n] for n in reading.unread if judged.answers[n])
            kept = (c for c in carried if not c.row)
            self.unread = list(kept)[:_CARRIED]
        if reading.requirements:
            self.numbers += 1 if any(r.critiques for r in reading.requirements) else -1

    # Measure

    def _observe(self, run: Run, now: Round, judged: CritiqueBatch, reading: Reading, at: str) -> list[str]:
        """Take the roll-out in with what was violated, and judge the trial that it was. Returns the ids that expired."""
        violated, opposed = defaultdict[str, set[int]](set), defaultdict[str, set[int]](set)
        for requirement in reading.requirements:
            answers = judged.answer_indices(requirement.critiques)
            opposed[requirement.contradicts] |= answers
            violated[requirement.violates] |= answers
            texts = [judged.critiques[place].text for place in requirement.critiques]
            self.recent[requirement.violates] = [*texts, *self.recent[requirement.violates]][:QUOTED]
        unread = judged.answer_indices(reading.unread) if self.numbered else ()
        known = self.ledger.instructions
        hits, against = ({k: len(own) for k, own in of.items() if k in known} for of in (violated, opposed))
        read_of, criticised = judged.counted - len(unread), len(set(chain.from_iterable(judged.answers)))
        now = replace(now, violated=hits, read=read_of, opposed=against, criticised=criticised)
        self.effects.add(now)
        if self.drafts.waiting:
            self.left_out = frozenset()
            leaving, reason = self.drafts.judge(self.effects.rounds)
            return self._expire(leaving, reason, at)
        if not self.left_out:
            if self.newest and worse(now, self.effects.rounds[-2]):
                run.log("regression", {"at": at, "instructions": list(self.newest)})
                self.trials.propose(self.newest, first=True)
            return []
        unneeded = self.trials.judge(self.left_out, self.effects, self.numbered)
        self.left_out = frozenset()
        return self._expire(unneeded, f"not missed in {now.answers} answers without it", at)

    def _expire(self, ids: Sequence[str], reason: str, at: str) -> list[str]:
        """Take out those that still stand, and return them."""
        leaving = [key for key in ids if key in {instruction.id for instruction in self.ledger.active}]
        self._record(*(Expire(id=key, reason=reason, at=at) for key in leaving))
        return leaving

    @property
    def repairs(self) -> int:
        """Calls that a round needs beside reading: one to reword what is still violated, and one to compare, where an instruction
        is violated in other words as well, so that another one may hinder it, or where reading brings little new and most
        instructions were never compared. A draft is repaired by the next one."""
        failing = [] if self.drafting else self._failing()
        comparing = (bool(find_hindered(failing)) and self._several) or (self.settled and self._uncompared)
        return bool(failing) + (self.consolidates and comparing)

    @property
    def _several(self) -> bool:
        """Whether there is more than one instruction to compare."""
        return len(self.ledger.active) > 1

    @property
    def _uncompared(self) -> bool:
        """Whether most of what stands was never compared with the rest."""
        return not self.drafting and 2 * len(self.fresh) > max(_DOUBLES, len(self.ledger.active))

    def _failing(self) -> list[Failing]:
        """Instructions of models that are still violated and have tries left."""
        if not self.measures:
            return []
        own = of_models(self.ledger)
        opposed = set[str]().union(*self.contradictions.standing(self.ledger))
        violated = self.effects.still_violated({key: one.text for key, one in own.items()})
        return [
            Failing(key, own[key].text, tried=tuple(self.tried[key]), critiques=tuple(self.recent[key]))
            for key in violated
            if key not in opposed and len(self.tried[key]) < TRIES
        ]

    # Change

    def _consolidate(self, run: Run, compared: Comparison, at: str, *, final: bool = False) -> int:
        """Merge what says the same, report what contradicts, try without what is unclear or improper; what is improper and was
        demanded once leaves at once."""
        texts = {ids: text for ids, text in compared.merged.items() if harmless(text, self.start.source, 1)}
        events = merges(self.ledger, compared.groups, at=at, merged=texts)
        for event in events:
            old = self.ledger[event.id].text
            self.tried[event.id] += [event.text] if event.text != old else []
            self.effects.merge(event.id, event.others)
            self.contradictions.merge(event.id, event.others)
            self.rechecks.merge(event.id, event.others)
            self._record(event)
        self._give_way(run, self._contrary_lines(run, compared) | self._repeated_lines(compared), at)
        self.contradictions.add(compared.contradictions)
        settled, weaker = self.contradictions.settle(run, self.ledger, at, final=final)
        self._record(*settled)
        for key in weaker:
            self.trials.propose([key])
        self.trials.propose([*compared.unclear, *compared.improper])
        unclear = self._drop_unclear(compared.unclear, at) if final else 0
        own = of_models(self.ledger)
        once = [key for key in compared.improper if key in own and own[key].sources <= 1]
        for key in once:
            self._leave_out(run, key, "improper to the model, and demanded once", at)
        return len(events) + len(once) + unclear

    def _contrary_lines(self, run: Run, compared: Comparison) -> dict[str, str]:
        """The unmanaged lines that contradict an instruction of a model which several answers demand, and that one's text; others
        are named for a person."""
        own, gone = of_models(self.ledger), dict[str, str]()
        for pair in compared.contradictions:
            line = next((self.lines[key] for key in pair if key in self.lines), "")
            other = next((own[key] for key in pair if key in own), None)
            if line and other:
                settled = other.sources >= OUTWEIGHS
                gone |= {line: other.text} if settled else {}
                self.contradictions.name(run, [Conflict(other.text, line, other.text if settled else "")])
        return gone

    def _repeated_lines(self, compared: Comparison) -> dict[str, str]:
        """The unmanaged lines that say no more than an instruction of a model that several answers demand, and its text."""
        own = of_models(self.ledger)
        return {
            self.lines[key]: own[group[0]].text
            for group in compared.groups
            for key in group[1:]
            if key in self.lines and group[0] in own and own[group[0]].sources >= OUTWEIGHS
        }

    def _give_way(self, run: Run, lines: Mapping[str, str], at: str) -> None:
        """Take unmanaged lines out, and name what stands in their place."""
        for line, instead in lines.items():
            self._record(without_line(self.ledger, line, at))
            run.log("given_way", {"at": at, "text": line, "instead": instead})

    def _drop_examples(self, run: Run, texts: Sequence[str], at: str) -> int:
        """Take examples that mislead out of the fence."""
        self._give_way(run, dict.fromkeys(texts, ""), at)
        self.examples = tuple(text for text in self.examples if text not in texts)
        return len(texts)

    def _drop_superfluous(self, run: Run, reading: Reading, at: str) -> int:
        """Take unmanaged lines out that the reader calls superfluous, where what rows demand stands in their place."""
        own = [text for key, text in self.standing().items() if key in self.of_rows]
        gone = dict.fromkeys(reading.superfluous, own[0]) if own else {}
        self._give_way(run, gone, at)
        return len(gone)

    def _doubtful(self) -> list[Instruction]:
        """Instructions of models that stand, whose own critiques may be read once more: not those of whole rows, of which nobody
        says what is wrong."""
        if not self.numbered:
            return []
        passed = self.left_out | self.of_rows
        return [one for key, one in of_models(self.ledger).items() if key not in passed]

    def _drop_misread(self, judged: CritiqueBatch, reading: Reading, at: str) -> int:
        """Take out instructions whose own critiques demand something else."""
        own = of_models(self.ledger)
        return len(
            self._expire(self.rechecks.misread(reading.requirements, judged.critiques, own), MISREAD, at)
        )

    def _drop_unclear(self, vague: Sequence[str], at: str) -> int:
        """Take out instructions that nobody could act on, unless the reader has seen answers that violate them: what they were
        made of is read once more."""
        own, rounds = of_models(self.ledger), self.effects.rounds
        violated = {key for r in rounds for key, hits in r.violated.items() if hits and key in r.shown}
        leaving = [key for key in vague if key in own and key not in violated]
        for key in leaving:
            rows = key in self.of_rows
            again = (Critique(text, f"again {key}", row=rows) for text in own[key].critiques)
            self.unread = [*again, *self.unread][:_CARRIED]
        return len(self._expire(leaving, UNCLEAR, at))

    def _leave_out(self, run: Run, key: str, reason: str, at: str) -> None:
        """Take an instruction out and name it, so that a person may decide."""
        self._record(Expire(id=key, reason=reason, at=at))
        run.log("untested", {"at": at, "text": self.ledger[key].text, "reason": reason})

    def _add(self, run: Run, judged: CritiqueBatch, reading: Reading, at: str) -> int:
        """Add what is new. A text that repeats a critique, copies somebody's data, names one row or was found to be misread does
        not enter; nor does one that came from one answer when nothing can be tried any more, and more would have said so."""
        active = {i.id for i in self.ledger.active}
        prompt = "\n".join(m.content for m in self.start.messages)
        copies = Copies(judged.private, prompt)
        requirements = self._beside_lines(run, judged, reading, at)
        fit = merge_equal(r for r in requirements if r.text and not r.violates and not r.copied)
        fit = [r for r in fit if not copies.piece(r.text) and harmless(r.text, prompt, len(r.critiques))]
        # a long text of several rows shares words with one of them by chance
        several = _SEVERAL if mostly_rows(judged.critiques) else len(judged.critiques)
        fit = [
            r
            for r in fit
            if len(r.critiques) > several or not judged.quotes_single_input(r.text, r.critiques)
        ]
        misread = {comparable(i.text) for i in self.ledger.instructions.values() if i.reason == MISREAD}
        fit = [r for r in fit if comparable(r.text) not in misread]
        replaces = self.contradictions.replaces
        self.contradictions.name(run, conflicts(self.ledger, fit, self.around, replaces))
        self._record(*(events := as_events(self.ledger, fit, judged.critiques, at=at, replaces=replaces)))
        for event in (event for event in events if isinstance(event, Resolve)):
            self.contradictions.note_resolution(event)
        self.newest = [i.id for i in self.ledger.active if i.id not in active]
        if reading.drafted and self.measures:
            self.drafts.standing = self.drafts.standing or self._first_alone(active)
            self.left_out = self.drafts.add(self.newest)
        else:
            self.fresh += self.newest
        places_of = {r.text: r.critiques for r in fit}
        ending = self.contradictions.ending and self.measures and self.numbered
        for key in self.newest:
            text = self.ledger[key].text
            answers = len(judged.answer_indices(places_of[text]))
            self.effects.note_demand(key, answers)
            self.of_rows |= {key} if mostly_rows([judged.critiques[p] for p in places_of[text]]) else set()
            self.tried[key] = [text]
            rows = dict.fromkeys(judged.critiques[place].example for place in places_of[text])
            self.origins[key] = tuple(filter(None, rows))[:EVIDENCE]
            if ending and answers <= 1 and self.effects.overdue(key):
                self.late.append(key)
        return len(events)

    def _first_alone(self, active: Collection[str]) -> tuple[str, ...]:
        """The instruction that stood first, where it is the only one of those `active`: a draft takes its place."""
        own = tuple(key for key in active if self.ledger[key].text == self.first)
        return own if len(active) == len(own) else ()

    def _beside_lines(
        self, run: Run, judged: CritiqueBatch, reading: Reading, at: str
    ) -> tuple[Requirement, ...]:
        """The requirements, after the unmanaged lines that they reword or contradict gave way."""
        giving = giving_way(
            self.lines,
            [r for r in reading.requirements if not r.copied],
            lambda r: max(len(r.critiques), len(judged.answer_indices(r.critiques))),
        )
        self.contradictions.name(run, giving.conflicts)
        self._give_way(run, giving.lines, at)
        return giving.requirements

    def _reword(self, reading: Reading, texts: Mapping[str, str], at: str) -> int:
        """Give instructions of models another text: that of the reader where several answers violated them, or the one that was
        asked for."""
        last, own = self.effects.rounds[-1], of_models(self.ledger)
        better = {
            r.violates: r.text for r in reading.requirements
            if r.text and not r.copied and r.violates in last.shown.keys() & own.keys()
            and last.violated.get(r.violates, 0) >= _SEVERAL
            and (r.violates in self.of_rows or len(self.tried[r.violates]) < TRIES)
        }  # fmt: skip
        better.update(texts)
        for key, text in better.items():
            if key in own:
                self._put(key, text, "still violated", at)
                self.tried[key].append(text)
        return len(better)

    def _return_to(self, best: Round, at: str) -> int:
        """Let stand what earned more: what whole rows demanded since leaves, and what left or gave way since comes back."""
        standing, texts = self.standing(), best.shown
        later = [key for key in standing if key in self.of_rows and key not in texts]
        back = [key for key in texts if key not in standing and self.ledger[key].status == EXPIRED]
        self._record(*(Restore(id=key, reason=RETURNED, at=at) for key in back))
        for key in back:
            if self.ledger[key].text != texts[key]:
                self._put(key, texts[key], RETURNED, at)
        gone = self._expire(later, FELL, at)
        if any(not entry.id for entry in {*best.layout} ^ {*self.ledger.layout}):
            self._record(with_layout(self.ledger, best.layout, at))
        return len(gone) + len(back)

    def _put(self, key: str, text: str, reason: str, at: str) -> None:
        self._record(
            Rewrite(id=key, text=text, author=AUTHOR, at=at, tokens=estimate_tokens(text), reason=reason)
        )

    # Upkeep

    def plan_trial(self) -> None:
        """Choose what the next roll-out does without, if there is a reason to doubt it."""
        if not self.measures:
            return
        if self.drafts.waiting:
            self.left_out = frozenset(self.drafts.standing)
            return
        settled = self.trials.settled | {one.id for one in self._failing()} | set(self.newest)
        mainstays = self.effects.mainstays()
        doubted = suspects(self.ledger, self.effects, settled | mainstays)
        self.left_out = self.trials.next(self.ledger, doubted, mainstays)

    def end_trial(self) -> None:
        """Restore the omitted instructions, and end their trial."""
        self.trials.settled, self.left_out = self.trials.settled | self.left_out, frozenset()

    def _fit(self, run: Run, at: str) -> None:
        """Leave out what is beyond the bound on instructions, and what makes the prompt longer than it may be."""
        dear = over_budget(self.ledger, self.effects, self.tokens)
        while dear or not self._fits():
            dear = dear or over_budget(self.ledger, self.effects, self.ledger.tokens - 1)
            if not dear:
                return
            for one in dear:
                self._record(Expire(id=one.id, reason=TOKENS, at=at))
                run.log("over_budget", {"left_out": one.text, "tokens": one.tokens})
            dear = []

    def _fits(self) -> bool:
        """Whether the prompt takes all instructions that stand."""
        try:
            write_ledger(self.start, self.ledger, self.region)
        except EditRejected:
            return False
        return True

    async def finish(self, run: Run, most: int | None, at: str = "end") -> None:
        """Read and compare what is left over, in at most `most` calls, return to the text that was violated least where several
        were tried, and write down what was measured. Where no call is left, what one answer demanded too late to be tried is left
        to a person."""
        self.left_out, self.contradictions.ending = frozenset(), True
        self._expire(self.drafts.waiting, UNTRIED, at)
        left = math.inf if most is None else most
        due = self._uncompared or len(near_doubles(known_of(self.ledger))) >= _DOUBLES
        joins = int(self.consolidates and due)
        own = of_models(self.ledger)
        for key in (key for key in self.late if key in own and not left):
            self._leave_out(run, key, "demanded once, too late to be tried without", at)
        again = self.rechecks.ask(self._doubtful(), (), self.newest, _AGAIN - len(self.unread))
        if (shown := [*self.unread, *again]) and left > joins and self.manages is not False:
            rest = CritiqueBatch(tuple(shown), ((),) * len(shown), ())
            reading = await read_critiques(
                run, rest.critiques, self.list_known(), self.around, most=1, embed=self.embed
            )
            left -= reading.calls
            self._drop_misread(rest, reading, at)
            self._add(run, rest, reading, at)
        known = self.list_known()
        self.lines = {k.id: k.text for k in known if not k.managed}
        fresh = [one for one in known if one.managed and (one.id in self.fresh or not self.closed)]
        if self.consolidates and fresh and self._several:
            others = [one for one in known if one not in fresh]
            most = None if math.isinf(left) else int(left)
            compared = await compare(run, fresh, others, most=most, embed=self.embed)
            self._consolidate(run, compared, at, final=True)
        for one in self.ledger.active if self.measures else ():
            best = self.effects.least_violated(one.id, one.text, self.tried[one.id])
            if best != one.text:
                self._put(one.id, best, "did better", at)
        self._record(*self.effects.measure(self.standing(), at))
        self._fit(run, at)
