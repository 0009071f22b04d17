"""The curator of a fence: from complaints to events of its ledger, with what each instruction did since."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from whet.policies.critique import MOST_TEXTS, Outcome, Point, ask
from whet.policies.distiller import Draft, distil
from whet.prompt import Prompt
from whet.prompt.instructions import Add, Effect, Event, Expire, Ledger, Measure, Merge, Resolve, Rewrite, Rollback, cost, fold
from whet.prompt.ledger import opened, written
from whet.run import Run
from whet.search.clustering import Board, Group, Wording
from whet.search.contradictions import clash, clashes, same, statements
from whet.search.critiques import Complaint, Token, normative, split, tokens
from whet.search.packing import pack
from whet.search.rates import newcombe, tail
from whet.types import Rollout

OPTIMIZER, DISTILLER = "optimizer", "distiller"
_FLOOR = 0.01
_DOUBT = 0.05
_TRIES = 4
_EVIDENCE = 8


@dataclass
class Track:
    """What became of one group: its instruction's id, the texts that were tried with their authors, and how
    often the optimizer dropped or garbled it."""

    instruction: str = ""
    tried: list[tuple[str, str]] = field(default_factory=list)
    misses: int = 0
    parked: bool = False


@dataclass
class Curator:
    """All that is known about the prompt's instructions. `around` is the prompt's text outside its fence.

    `budget` bounds the tokens of the fence, as `count` counts them. `points` is how many points one
    optimizer call is asked about; without a `writer` only the extractive distiller works.
    """

    start: Prompt
    around: str = ""
    writer: bool = True
    points: int = 10
    budget: int | None = None
    count: Callable[[str], int] = cost
    board: Board = field(default_factory=Board)
    events: list[Event] = field(default_factory=list)
    tracks: dict[int, Track] = field(default_factory=dict)
    sizes: list[int] = field(default_factory=list)
    shown: list[dict[int, str]] = field(default_factory=list)
    asked: int = 0
    _round_of: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.events:
            self.events.append(opened(self.start))

    @property
    def ledger(self) -> Ledger:
        """The state after all events."""
        return fold(self.events)

    @property
    def prompt(self) -> Prompt:
        """The start prompt with the ledger in its fence."""
        return written(self.start, self.ledger)

    # What happened

    def hear(self, complaints: Sequence[Complaint]) -> None:
        """Take in complaints that come from people or from elsewhere, not from a roll-out of this run."""
        self._group(complaints)

    def observe(self, rollouts: Sequence[Rollout], high: float) -> None:
        """Take in a roll-out of the current prompt: the critiques of answers below the full reward `high`."""
        number = len(self.sizes)
        self.sizes.append(sum(r.error is None for r in rollouts))
        self.shown.append(self.in_effect())
        complaints = []
        for rollout in rollouts:
            if rollout.error is None and rollout.critique and rollout.reward < high:
                source = f"{number}/{rollout.example_id}/{rollout.sample}"
                self._round_of[source] = number
                complaints += [Complaint(text, source) for text in split(rollout.critique)]
        self._group(complaints)

    def _group(self, complaints: Sequence[Complaint]) -> None:
        if complaints:
            self.board.add(complaints)
        for group in self.board.groups:
            self.tracks.setdefault(group.id, Track())

    def in_effect(self) -> dict[int, str]:
        """The text that stands in the fence for each group that has one."""
        ledger = self.ledger
        standing = {i.id: i.text for i in ledger.active}
        return {g: standing[t.instruction] for g, t in self.tracks.items() if t.instruction in standing}

    def rounds(self, group: Group) -> list[int]:
        """Answers that complained about a group, for each roll-out."""
        found = [0] * len(self.sizes)
        for source in group.sources:
            if source in self._round_of:
                found[self._round_of[source]] += 1
        return found

    def rate(self, group: Group, text: str | None) -> tuple[int, int]:
        """(complaints, answers) over all roll-outs in which `text` stood for the group (None: nothing did)."""
        counts = self.rounds(group)
        rows = [k for k in range(len(self.sizes)) if self.shown[k].get(group.id) == text]
        return sum(counts[k] for k in rows), sum(self.sizes[k] for k in rows)

    def noise(self) -> float:
        """How often an instruction that works is still violated: the mean of the better four fifths, at least 1 %."""
        standing = self.in_effect()
        rates = sorted(
            hits / n for g in self.board.groups if g.id in standing for hits, n in [self.rate(g, standing[g.id])] if n
        )
        kept = rates[: len(rates) * 4 // 5]
        return max(_FLOOR, sum(kept) / len(kept)) if kept else _FLOOR

    # What is to be done

    def open_groups(self) -> list[Group]:
        """Groups that need an instruction or another one, the most violated first."""
        noise, standing = self.noise(), self.in_effect()
        found: list[tuple[float, int, Group]] = []
        for group in self.board.groups:
            track = self.tracks[group.id]
            text = standing.get(group.id)
            if track.parked:
                continue
            hits, n = self.rate(group, text)
            if text is None:
                found.append((-(max(hits, len(group.sources) if not n else 0) / max(1, n)), group.id, group))
            elif n and tail(hits, n, noise) < _DOUBT and len(track.tried) <= _TRIES:
                found.append((-hits / n, group.id, group))
        return [group for _, _, group in sorted(found, key=lambda f: f[:2])]

    def separate(self) -> None:
        """Take apart groups in which an instruction silenced some wordings and not the others: they were two demands."""
        standing = self.in_effect()
        for group in list(self.board.groups):
            text = standing.get(group.id)
            if text is None or len(group.wordings) < 2:
                continue
            since = {k for k in range(len(self.sizes)) if self.shown[k].get(group.id) == text}
            before = [self._spoken(w, since, False) for w in group.wordings]
            after = [self._spoken(w, since, True) for w in group.wordings]
            if not sum(before) or not sum(after):
                continue
            scale = sum(after) / sum(before)
            silent = sum(b for b, a in zip(before, after, strict=True) if not a)
            loud = [w for w, a in zip(group.wordings, after, strict=True) if a]
            if silent * scale >= 3.0 and len(loud) < len(group.wordings):
                new = self.board.split(group, loud)
                self.tracks[new.id] = Track()

    def _spoken(self, wording: Wording, since: set[int], after: bool) -> int:
        return sum((self._round_of.get(s, -1) in since) == after for s in wording.sources)

    def point(self, group: Group) -> Point:
        """A group as something to ask about: its clearest wordings first."""
        counted = [(w.text, w.count) for w in sorted(group.wordings, key=lambda w: -w.count)]
        constants = tuple(group.constants())
        texts = sorted((t for t, _ in counted), key=lambda t: self._clarity(t, constants))
        current = self.in_effect().get(group.id, "")
        known = frozenset(Token(t.kind, t.value) for text, _ in counted for t in tokens(text))
        tried = tuple(text for text, _ in self.tracks[group.id].tried)
        chosen = tuple(texts[:MOST_TEXTS])
        return Point(group.id, chosen, group.count, constants, known, current, tried)

    @staticmethod
    def _clarity(text: str, constants: Sequence[Token]) -> tuple[float, int]:
        stated = sum(value in {Token(t.kind, t.value) for t in tokens(text)} for value in constants)
        return -stated - 1.5 * normative(text), len(text)

    def draft(self, group: Group) -> Draft | None:
        """The distiller's next text for a group, one that was not tried yet."""
        texts = [(w.text, w.count) for w in sorted(group.wordings, key=lambda w: -w.count)]
        return distil(texts, group.constants(), [text for text, _ in self.tracks[group.id].tried])

    # Doing it

    async def learn(self, run: Run, most_asks: int | None, at: str = "") -> list[Event]:
        """One step: ask about open groups within `most_asks` calls (None: as many as it takes), and write events."""
        known = len(self.events)
        self.separate()
        groups = self.open_groups()
        to_ask = [g for g in groups if self._asks_model(g)]
        most = most_asks if self.writer else 0
        texts = await self._ask(run, to_ask, most)
        for group in groups:
            text = texts.get(group.id)
            author = OPTIMIZER
            if text is None:
                draft = self.draft(group)
                text, author = (draft.text, DISTILLER) if draft is not None else (None, "")
            if text is not None:
                self._put(run, group, text, author, at)
        self.tidy(run, at)
        return self.events[known:]

    def _asks_model(self, group: Group) -> bool:
        """The optimizer first; after it failed twice, or when its text did not help and a complaint is clear, the distiller."""
        track = self.tracks[group.id]
        if not self.writer or track.misses >= 2:
            return False
        if track.tried and track.tried[-1][1] == OPTIMIZER:
            draft = self.draft(group)
            return draft is None or not draft.clear
        return True

    async def _ask(self, run: Run, groups: Sequence[Group], most: int | None) -> dict[int, str]:
        """Texts of the optimizer by group. All packs at once; what comes back wanting goes to a second round if that is paid for."""
        found: dict[int, str] = {}
        first = self._packs(groups, most)
        for outcome in await self._ask_packs(run, first):
            self._take(outcome, found)
        left = None if most is None else most - len(first)
        unclear = [g for g in groups if g.id not in found and self._is_unclear(g)]
        second = self._packs(unclear, left)
        for outcome in await self._ask_packs(run, second, repeat=1):
            self._take(outcome, found)
        return found

    def _is_unclear(self, group: Group) -> bool:
        draft = self.draft(group)
        return draft is None or not draft.clear

    def _packs(self, groups: Sequence[Group], most: int | None) -> list[list[Point]]:
        size = self.points if most is None else min(self.points + 2, max(self.points, -(-len(groups) // max(1, most))))
        return pack([self.point(g) for g in groups], size, most)

    async def _ask_packs(self, run: Run, packs: Sequence[list[Point]], repeat: int = 0) -> list[Outcome]:
        if not packs:
            return []
        self.asked += len(packs)

        async def one(branch: Run, points: list[Point]) -> list[Outcome]:
            return await ask(branch, points, self.around, sample=repeat)

        return [outcome for outcomes in await run.map(one, packs) for outcome in outcomes]

    def _take(self, outcome: Outcome, found: dict[int, str]) -> None:
        if outcome.text:
            found[outcome.group] = outcome.text
        else:
            self.tracks[outcome.group].misses += 1

    def _put(self, run: Run, group: Group, text: str, author: str, at: str) -> None:
        """An event for a text: a new instruction, another text for an old one, or nothing new at all."""
        track, ledger = self.tracks[group.id], self.ledger
        track.tried.append((text, author))
        twin = next((i for i in ledger.active if i.id != track.instruction and same(i.text, text)), None)
        rests = {"critiques": tuple(group.texts()[:MOST_TEXTS]), "evidence": tuple(group.sources)[:_EVIDENCE]}
        if twin is not None and not track.instruction:
            self._attach(group, twin.id, rests, at)
        elif track.instruction in {i.id for i in ledger.active}:
            self.events.append(
                Rewrite(
                    id=track.instruction, text=text, sources=len(group.sources), tokens=self.count(text), author=author, at=at,
                    reason="still violated", **rests,
                )
            )  # fmt: skip
        else:
            key = ledger.next_id
            self.events.append(
                Add(id=key, text=text, sources=len(group.sources), tokens=self.count(text), author=author, at=at, **rests)
            )
            track.instruction = key

    def _attach(self, group: Group, key: str, rests: Mapping[str, tuple[str, ...]], at: str) -> None:
        """The instruction exists: the group's complaints are evidence for it too."""
        old = self.ledger[key]
        self.events.append(
            Rewrite(
                id=key, text=old.text, tokens=old.tokens, author=old.author, at=at, sources=old.sources + len(group.sources),
                critiques=rests["critiques"], evidence=rests["evidence"], reason="the same demand in other words",
            )
        )  # fmt: skip
        self.tracks[group.id].instruction = key

    # Keeping order

    def tidy(self, run: Run, at: str = "") -> None:
        """Merge duplicates, settle contradictions by evidence or report them, and keep the fence within its tokens."""
        self._merge_twins(at)
        self._settle_clashes(run, at)
        self._fit(run, at)

    def _merge_twins(self, at: str) -> None:
        active = self.ledger.active
        gone: set[str] = set()
        for n, first in enumerate(active):
            twins = [i for i in active[n + 1 :] if i.id not in gone and first.id not in gone and same(first.text, i.text)]
            if not twins:
                continue
            keep = first if first.author in ("author", "hand") else min((first, *twins), key=lambda i: (i.tokens, i.id))
            others = tuple(i.id for i in (first, *twins) if i.id != keep.id)
            gone |= set(others)
            self.events.append(Merge(id=keep.id, others=others, text=keep.text, tokens=keep.tokens, at=at))
            self._reassign(others, keep.id)

    def _reassign(self, keys: Sequence[str], to: str) -> None:
        for track in self.tracks.values():
            if track.instruction in keys:
                track.instruction = to

    def _settle_clashes(self, run: Run, at: str) -> None:
        """Between two instructions the one with three times the evidence of the other stays; else a person decides."""
        active = self.ledger.active
        gone: set[str] = set()
        for n, first in enumerate(active):
            for second in active[n + 1 :]:
                found = None if {first.id, second.id} & gone else clash(first.text, second.text)
                if found is None:
                    continue
                weak, strong = sorted((first, second), key=lambda i: i.sources)
                settled = weak.author not in ("author", "hand") and strong.sources >= 3 * max(1, weak.sources)
                run.log("conflict", {"first": first.text, "second": second.text, "why": found.why, "settled": settled})
                if settled:
                    gone.add(weak.id)
                    self.events.append(Resolve(keep=strong.id, drop=weak.id, reason=found.why, at=at))
                    self._reassign((weak.id,), "")
        for statement in statements(self.around):
            for found in clashes(statement, [i.text for i in active if i.id not in gone]):
                run.log("conflict", {"first": statement, "second": found.second, "why": found.why, "settled": False})

    def _fit(self, run: Run, at: str) -> None:
        """Leave out the instructions that earn least per token until the fence is within its budget."""
        if self.budget is None:
            return
        worth = {track.instruction: 0.0 for track in self.tracks.values()}
        for group in self.board.groups:
            hits, n = self.rate(group, None)
            worth[self.tracks[group.id].instruction] += (hits + 0.5) / (n + 1)
        own = [i for i in self.ledger.active if i.id in worth]
        total = self.ledger.tokens
        for instruction in sorted(own, key=lambda i: (worth[i.id] / max(1, i.tokens), i.id)):
            if total <= self.budget:
                return
            total -= instruction.tokens
            self.events.append(Expire(id=instruction.id, reason="token budget", at=at))
            for track in self.tracks.values():
                if track.instruction == instruction.id:
                    track.instruction, track.parked = "", True
            run.log("over_budget", {"left_out": instruction.text, "tokens": instruction.tokens})

    # Looking back

    def settle_texts(self, at: str = "") -> None:
        """Give every instruction the text that did best of those that were tried, where the evidence is clear."""
        for group in self.board.groups:
            track, text = self.tracks[group.id], self.in_effect().get(group.id)
            if text is None or len(track.tried) < 2:
                continue
            scored = [((x + 0.5) / (n + 1), t) for t, _ in track.tried for x, n in [self.rate(group, t)] if n]
            hits, n = self.rate(group, text)
            if scored and n and min(scored)[0] < (hits + 0.5) / (n + 1):
                best = min(scored)[1]
                self.events.append(
                    Rewrite(id=track.instruction, text=best, tokens=self.count(best), at=at, reason="did better before")
                )

    def measure(self, at: str = "") -> None:
        """Write down the effect of each instruction on its complaints: before and after, with a 95 % interval."""
        ledger = self.ledger
        counts: dict[str, list[int]] = {}
        for group in self.board.groups:
            text = self.in_effect().get(group.id)
            if text is None:
                continue
            row = counts.setdefault(self.tracks[group.id].instruction, [0, 0, 0, 0])
            for place, value in zip((0, 2), (self.rate(group, None), self.rate(group, text)), strict=True):
                row[place] += value[0]
                row[place + 1] = max(row[place + 1], value[1])
        for key, (x1, n1, x2, n2) in counts.items():
            if n1 and n2 and key in ledger.instructions:
                before, after = (min(x1, n1), n1), (min(x2, n2), n2)
                self.events.append(Measure(id=key, effect=Effect(before, after, *newcombe(before, after)), at=at))

    def back(self, to: int, reason: str, at: str = "") -> None:
        """Return to the state after `to` events; groups whose instruction is gone are open again."""
        self.events.append(Rollback(to=to, reason=reason, at=at))
        standing = {i.id for i in self.ledger.active}
        for track in self.tracks.values():
            if track.instruction and track.instruction not in standing:
                track.instruction = ""


