"""The instructions of one editable region during a run: one step of read, consolidate, change, measure and upkeep."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from whet.instructions.changes import (
    AUTHOR,
    BY_HAND,
    OUTWEIGHS,
    QUOTED,
    Conflict,
    as_events,
    conflicts,
    known_of,
    merges,
)
from whet.instructions.consolidate import MOST, Comparison, compare, united
from whet.instructions.critiques import Judged
from whet.instructions.effects import Effects, Round
from whet.instructions.guard import secrets, strange_addresses, suspicions
from whet.instructions.neighbours import Embed
from whet.instructions.questions import mostly_rows
from whet.instructions.reader import (
    PACK_SHOWN,
    PLAIN_ROWS,
    Critique,
    Reading,
    Requirement,
    read,
)
from whet.instructions.rewrite import Failing, rewrite
from whet.instructions.upkeep import Trials, over_budget, suspects, worse
from whet.prompt import Prompt
from whet.prompt.events import Event, Expire, Resolve, Rewrite
from whet.prompt.instructions import Instruction, Ledger, apply, cost
from whet.prompt.ledger import opened, surroundings, written
from whet.run import Run
from whet.search.copies import Copies

TRIES = 3
"""Texts that are tried for one demand before it is left as it is."""
_SEVERAL, _CARRIED = 2, 24
_SPARE, _LAST = 6, 3
"""One call in so many compares instructions, where there are any to compare; in the last step one of so few."""


@dataclass
class InstructionManager:
    """All that is known about the instructions of `start`'s region.

    `left_out` are those that the next roll-out does without. `tokens` bounds all instructions together, as `count` counts them.
    `spent` counts optimizer calls. `fresh` are ids that were not compared with the others yet, `unread` critiques that no answer
    mentioned: they are shown once more. `dismissed` counts how often a text was said to demand nothing, `against` critiques that
    want the contrary of an instruction, `recent` are the last ones that it did not prevent. `opposed` are pairs of which no
    answer can follow both. `manages` says whether the model fills in forms, `slips` in how many steps it only answered a plain
    question. `consolidates` and `measures` can be turned off to see what they are worth.
    """

    start: Prompt
    tokens: int | None = None
    region: str | None = None
    count: Callable[[str], int] = cost
    embed: Embed | None = None
    consolidates: bool = True
    measures: bool = True
    events: list[Event] = field(default_factory=list)
    ledger: Ledger = field(default_factory=Ledger)
    effects: Effects = field(default_factory=Effects)
    trials: Trials = field(default_factory=Trials)
    left_out: frozenset[str] = frozenset()
    tried: dict[str, list[str]] = field(default_factory=dict)
    fresh: list[str] = field(default_factory=list)
    newest: list[str] = field(default_factory=list)
    named: dict[Conflict, None] = field(default_factory=dict)
    opposed: dict[tuple[str, str], None] = field(default_factory=dict)
    spent: int = 0
    numbers: int = 0
    dismissed: Counter[str] = field(default_factory=Counter)
    against: dict[str, int] = field(default_factory=dict)
    recent: dict[str, list[str]] = field(default_factory=dict)
    unread: list[Critique] = field(default_factory=list)
    manages: bool | None = None
    slips: int = 0
    closed: bool = False

    def __post_init__(self) -> None:
        self._record(opened(self.start, self.region))

    @property
    def prompt(self) -> Prompt:
        """The start prompt with the instructions in its region, but for what is left out on trial."""
        layout = tuple(entry for entry in self.ledger.layout if entry.id not in self.left_out)
        return written(self.start, replace(self.ledger, layout=layout), self.region)

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
    def numbered(self) -> bool:
        """Whether most readings name critiques by usable numbers."""
        return self.numbers >= 0

    def _record(self, *events: Event) -> None:
        for event in events:
            self.ledger = apply(self.ledger, event)
            self.events.append(event)

    async def step(self, run: Run, judged: Judged, most: int | None, at: str, *, last: bool = False) -> int:
        """Learn from a roll-out of `prompt` within `most` optimizer calls. Returns how many instructions changed.

        Reading, comparing what was added last (in the `last` step: all) and rewriting what is still violated are asked for at
        the same time.
        """
        judged = self._shown(run, judged, most, at)
        if last and (most is None or most >= _LAST) and len(self.ledger.active) <= MOST:
            self.fresh = [one.id for one in self.ledger.active]
            self.closed = True
        around = surroundings(self.start, self.region)
        reading, compared, texts = await self._ask(run, judged, around, most)
        calls = {"read": reading.calls, "consolidate": compared.calls, "rewrite": int(texts is not None)}
        self.spent += sum(calls.values())
        self.slips += reading.manages is None and bool(reading.requirements)
        self.manages = False if self.slips > 1 else reading.manages
        self.dismissed.update(judged.critiques[place].text for place in reading.dismissed)
        carried = (judged.critiques[n] for n in reading.unread if judged.answers[n])
        self.unread = [c for c in carried if self.manages is not False or not c.row][:_CARRIED]
        tried = sorted(self.left_out)
        unneeded = self._observe(run, judged, reading, at)
        changed = self._consolidate(run, compared, at, final=self.closed) + self._outvote(reading, at)
        changed += self._add(run, judged, reading, around, at)
        changed += self._rewrite({**self._better(reading), **(texts or {})}, at)
        self._fit(run, at)
        run.log(
            "learned",
            {
                "at": at, "critiques": len(judged.critiques), "requirements": len(reading.requirements),
                "changed": changed, "left_out": list(tried), "expired": list(unneeded), "calls": dict(calls),
            },
        )  # fmt: skip
        return changed + len(unneeded)

    def _shown(self, run: Run, judged: Judged, most: int | None, at: str) -> Judged:
        """What the reader is shown: not what holds a known attack or was dismissed twice, as much as the calls can hold. A model
        that manages no form makes something of everything: a single critique of a round, or few rows, are not shown to it."""
        hostile = {c.text for c in judged.critiques if suspicions(c.text)}
        if hostile:
            run.log("withheld", {"at": at, "critiques": len(hostile)})
        twice = {text for text, times in self.dismissed.items() if times > 1}
        judged = judged.but(twice | hostile, self.unread)
        several = PLAIN_ROWS if mostly_rows(judged.critiques) else _SEVERAL
        if self.manages is False and len(judged.critiques) < several:
            judged = judged.but([c.text for c in judged.critiques])
        return judged if most is None else judged.within(most * PACK_SHOWN)

    async def _ask(
        self, run: Run, judged: Judged, around: str, most: int | None
    ) -> tuple[Reading, Comparison, dict[str, str] | None]:
        """What the model reads, which of the newest instructions are doubles, and other texts for what is still violated, where
        there is any."""
        known, failing = known_of(self.ledger), self._failing() if self.measures else []
        comparing = len(self.fresh) if most is None else max(most // _SPARE, int(self.closed))
        comparing = comparing if self.consolidates and len(self.fresh) > 1 else 0
        rewriting = int(bool(failing) and (most is None or most > comparing + 1))
        fresh = [k for k in known if k.id in self.fresh]
        others = [k for k in known if k.id not in self.fresh]

        async def ask(branch: Run, part: str) -> Reading | Comparison | dict[str, str]:
            if part == "read":
                left = None if most is None else most - comparing - rewriting
                return await read(
                    branch, judged.critiques, known, around, most=left, embed=self.embed, manages=self.manages
                )
            if part == "compare":
                return await compare(branch, fresh, others, most=comparing, embed=self.embed)
            return await rewrite(branch, failing, around, most=1)

        reading, compared, texts = Reading(), Comparison(), None
        for answer in await run.map(ask, ["read", *["compare"] * bool(comparing), *["rewrite"] * rewriting]):
            if isinstance(answer, Reading):
                reading = answer
            elif isinstance(answer, Comparison):
                compared, self.fresh = answer, []
            else:
                texts = answer
        return reading, compared, texts

    # Measure

    def _observe(self, run: Run, judged: Judged, reading: Reading, at: str) -> list[str]:
        """Take in what was violated, and judge the trial that this roll-out was. Returns the ids that expired."""
        violated: dict[str, set[int]] = {}
        for one in reading.requirements:
            if one.violates:
                answers = {n for place in one.critiques for n in judged.answers[place]}
                violated.setdefault(one.violates, set()).update(answers)
                texts = [judged.critiques[place].text for place in one.critiques]
                self.recent[one.violates] = [*texts, *self.recent.get(one.violates, ())][:QUOTED]
        if reading.requirements:
            self.numbers += 1 if any(r.critiques for r in reading.requirements) else -1
        counts = {key: len(answers) for key, answers in violated.items()}
        before = self.effects.rounds[-1] if self.effects.rounds else None
        unread = {n for place in reading.unread for n in judged.answers[place]} if self.numbered else set()
        now = Round(judged.counted, self.standing(), counts, judged.rewards, judged.counted - len(unread))
        self.effects.add(now)
        if not self.left_out:
            if before is not None and self.newest and worse(now, before):
                run.log("regression", {"at": at, "instructions": list(self.newest)})
                self.trials.propose(self.newest, first=True)
            return []
        unneeded = self.trials.judge(self.left_out, self.effects, self.numbered)
        self.left_out = frozenset()
        for key in unneeded:
            self._record(Expire(id=key, reason=f"not missed in {now.answers} answers without it", at=at))
        return unneeded

    def _failing(self) -> list[Failing]:
        """Instructions of models that are still violated and have tries left."""
        texts = {i.id: i.text for i in self.ledger.active if i.author not in BY_HAND}
        opposed = {key for pair in self.opposed if set(pair) <= texts.keys() for key in pair}
        violated = [key for key in self.effects.still_violated(texts) if key not in opposed]
        keys = [k for k in violated if len(self.tried.get(k, [])) < TRIES]
        return [
            Failing(k, texts[k], tuple(self.tried.get(k, [])), tuple(self.recent.get(k, ()))) for k in keys
        ]

    # Change

    def _consolidate(self, run: Run, compared: Comparison, at: str, *, final: bool = False) -> int:
        """Merge what says the same; report what contradicts."""
        events = merges(self.ledger, compared.groups, at=at)
        self._record(*events)
        for event in events:
            self.effects.merged(event.id, event.others)
        self.opposed |= dict.fromkeys(compared.contradictions)
        for pair in self.opposed:
            if set(pair) <= {i.id for i in self.ledger.active}:
                self._settle(run, pair, at, final)
        self.trials.propose(compared.unclear)
        return len(events)

    def _settle(self, run: Run, pair: tuple[str, str], at: str, final: bool) -> None:
        """Of two instructions of which the model says that they contradict each other, and of which one is violated while both
        stand, the one stays that was demanded twice as often (at the end: more often) in the answers that treated both alike.
        Else both stand for a person to decide, and the weaker one is tried without."""
        wanted = {
            key: float(hits) if self.ledger[key].author not in BY_HAND else float("inf")
            for key, hits in zip(pair, self.effects.wanted(pair), strict=True)
        }
        weak, strong = sorted(reversed(pair), key=lambda key: wanted[key])
        clash = any(
            r.violated.get(k) for r in self.effects.rounds if set(pair) <= r.shown.keys() for k in pair
        )
        free = self.ledger[weak].author not in BY_HAND
        settled = free and clash and wanted[strong] > (1 if final else 2) * wanted[weak]
        first, second = self.ledger[strong].text, self.ledger[weak].text
        self._name(run, [Conflict(first, second, first if settled else "")])
        if settled:
            self._record(Resolve(keep=strong, drop=weak, reason="demanded less often", at=at))
        elif free:
            self.trials.propose([weak])

    def _outvote(self, reading: Reading, at: str) -> int:
        """Drop what contradicts another instruction that stands and is violated, where so many want that one instead."""
        changed = 0
        for one in reading.requirements:
            standing = {i.id: i for i in self.ledger.active}
            if one.violates in standing and one.contradicts in standing.keys() - {one.violates}:
                old = standing[one.contradicts]
                self.against[old.id] = self.against.get(old.id, 0) + len(one.critiques)
                if old.author not in BY_HAND and self._replaces(one, old):
                    self._record(
                        Resolve(keep=one.violates, drop=old.id, reason="more people want the contrary", at=at)
                    )
                    changed += 1
        return changed

    def _add(self, run: Run, judged: Judged, reading: Reading, around: str, at: str) -> int:
        """Add what is new. A text that repeats a critique or copies somebody's data does not enter."""
        active = {i.id for i in self.ledger.active}
        fit = united([r for r in reading.requirements if r.text and not r.violates and not r.copied])
        known = "\n".join(m.content for m in self.start.messages)
        copies = Copies(judged.private, known)
        fit = [r for r in fit if not copies.piece(r.text) and _harmless(r, known)]
        for one in fit:
            if one.contradicts:
                self.against[one.contradicts] = self.against.get(one.contradicts, 0) + len(one.critiques)
        self._name(run, conflicts(self.ledger, fit, around, self._replaces))
        events = as_events(
            self.ledger, fit, judged.critiques, at=at, count=self.count, replaces=self._replaces
        )
        self._record(*events)
        self.newest = [i.id for i in self.ledger.active if i.id not in active]
        self.fresh += self.newest
        by_text = {r.text: r for r in fit}
        for key in self.newest:
            places = by_text[self.ledger[key].text].critiques
            answers = {n for place in places for n in judged.answers[place]}
            self.effects.demanded(key, len(answers))
            self.tried[key] = [self.ledger[key].text]
        return len(events)

    def _replaces(self, one: Requirement, old: Instruction) -> bool:
        """Whether the contrary is demanded three times as often while an instruction stands as it was before it stood: those
        who wanted it have fallen silent, so that voices cannot be counted against each other."""
        hits, n = self.effects.before(old.id)
        answers = sum(r.answers for r in self.effects.rounds if old.id in r.shown)
        voices = self.against.get(old.id, 0)
        return voices >= OUTWEIGHS and voices * max(1, n) >= OUTWEIGHS * max(1, hits) * answers

    def _name(self, run: Run, new: Sequence[Conflict]) -> None:
        for one in new:
            if one not in self.named:
                self.named[one] = None
                run.log("conflict", {"first": one.first, "second": one.second, "settled": one.settled})

    def _better(self, reading: Reading) -> dict[str, str]:
        """Better wordings that the reader has for instructions of models that several answers violated."""
        last = self.effects.rounds[-1]
        return {
            r.violates: r.text
            for r in reading.requirements
            if r.text and r.violates and not r.copied and last.violated.get(r.violates, 0) >= _SEVERAL
            and r.violates in last.shown and self.ledger[r.violates].author not in BY_HAND
            and len(self.tried.get(r.violates, [])) < TRIES
        }  # fmt: skip

    def _rewrite(self, texts: Mapping[str, str], at: str) -> int:
        """Give instructions that are still violated another text."""
        active = {i.id for i in self.ledger.active}
        for key, text in texts.items():
            if key in active:
                self._put(key, text, "still violated", at)
                self.tried.setdefault(key, []).append(text)
        return len(texts)

    def _put(self, key: str, text: str, reason: str, at: str) -> None:
        tokens = self.count(text)
        self._record(Rewrite(id=key, text=text, author=AUTHOR, at=at, tokens=tokens, reason=reason))

    # Upkeep

    def plan_trial(self) -> None:
        """Choose what the next roll-out does without, if there is a reason to doubt it."""
        if not self.measures:
            return
        self.left_out = self.trials.next(self.ledger)
        if not self.left_out:
            settled = self.trials.settled | {one.id for one in self._failing()}
            self.trials.propose(suspects(self.ledger, self.effects, settled))
            self.left_out = self.trials.next(self.ledger)

    def _fit(self, run: Run, at: str) -> None:
        for one in over_budget(self.ledger, self.effects, self.tokens):
            self._record(Expire(id=one.id, reason="token budget", at=at))
            run.log("over_budget", {"left_out": one.text, "tokens": one.tokens})

    async def finish(self, run: Run, most: int | None, at: str = "end") -> None:
        """Read and compare what is left over, in at most `most` calls, return to the text that was violated least where several
        were tried, and write down what was measured."""
        self.left_out = frozenset()
        if self.unread and most != 0 and self.manages is not False:
            around, rest = surroundings(self.start, self.region), Judged((), (), ()).but((), self.unread)
            reading = await read(run, rest.critiques, known_of(self.ledger), around, most=1, embed=self.embed)
            most = None if most is None else most - reading.calls
            self._add(run, rest, reading, around, at)
        known = known_of(self.ledger)
        fresh = [one for one in known if one.id in self.fresh or not self.closed]
        if self.consolidates and fresh:
            others = [one for one in known if one not in fresh]
            compared = await compare(run, fresh, others, most=most, embed=self.embed)
            self._consolidate(run, compared, at, final=True)
        for one in self.ledger.active if self.measures else ():
            rates = {t: self.effects.after(one.id, t) for t in self.tried.get(one.id, [])}
            tested = {t: (hits + 0.5) / (n + 1) for t, (hits, n) in rates.items() if n}
            best = min(tested, key=lambda t: tested[t], default=one.text)
            if one.text in tested and tested[best] < tested[one.text]:
                self._put(one.id, best, "did better", at)
        self._record(*self.effects.measured(self.standing(), at))


def _harmless(one: Requirement, known: str) -> bool:
    """Whether an instruction holds no secret and no known attack, and brings an address only where several critiques do."""
    strange = strange_addresses(one.text, known) and len(one.critiques) <= _SEVERAL
    return not (strange or suspicions(one.text) or secrets(one.text))
