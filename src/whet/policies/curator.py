"""The curator of a fence: from complaints to events of its ledger, with what each instruction did since."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from whet.policies.critique import MOST_TEXTS, Outcome, Point, ask, fault
from whet.policies.distiller import Draft, distil
from whet.policies.tracks import Track, counted_texts, unclarity, without
from whet.prompt import Prompt
from whet.prompt.events import Add, Event, Expire, Rewrite, Rollback
from whet.prompt.instructions import Instruction, Ledger, apply, cost, fold
from whet.prompt.ledger import opened, surroundings, written
from whet.run import Run
from whet.search.clustering import Board, Group
from whet.search.contradictions import Clash, same
from whet.search.critiques import Complaint, split
from whet.search.lexicon import Token, tokens
from whet.search.packing import pack
from whet.search.rates import tail
from whet.search.wordings import Wording
from whet.types import Rollout

OPTIMIZER, DISTILLER = "optimizer", "distiller"
_FLOOR, _CEILING = 0.01, 0.2
_DOUBT = 0.05
_TRIES = 4
_MISSES = 2
_EVIDENCE = 8
_EXPECTED = 3.0
_LEDGER = "ledger "


@dataclass
class Curator:
    """All that is known about the instructions of `start`'s fence.

    `unanswered` are complaints that the last step found no usable text for.
    `points` is how many points one optimizer call is asked about; without a `writer` only the
    extractive distiller works. `budget` bounds the tokens of the fence, as `count` counts them. `held_out` are
    instructions that the next roll-out does without, to see whether they are needed.
    """

    start: Prompt
    writer: bool = True
    points: int = 10
    budget: int | None = None
    count: Callable[[str], int] = cost
    region: str | None = None
    board: Board = field(default_factory=Board)
    events: list[Event] = field(default_factory=list)
    tracks: dict[int, Track] = field(default_factory=dict)
    sizes: list[int] = field(default_factory=list)
    shown: list[dict[int, str]] = field(default_factory=list)
    held_out: frozenset[str] = frozenset()
    asked: int = 0
    unanswered: list[str] = field(default_factory=list)
    reported: set[Clash] = field(default_factory=set)
    _ledger: Ledger = field(default_factory=Ledger)
    _round_of: dict[str, int] = field(default_factory=dict)
    _noise: tuple[tuple[int, int], float] = ((-1, -1), _FLOOR)

    def __post_init__(self) -> None:
        if not self.events:
            self.events.append(opened(self.start, self.region))
        self._ledger = fold(self.events)
        self._adopt()

    def _adopt(self) -> None:
        """Groups of the complaints that the instructions of an older ledger rest on belong to these."""
        old = {text: i for i in self._ledger.active for text in i.critiques}
        self.hear([Complaint(text, f"{_LEDGER}{i.id}") for text, i in old.items()])
        for group in self.board.groups:
            owner = next((old[text] for text in group.texts() if text in old), None)
            if owner is not None:
                self.tracks[group.id] = Track(owner.id, [(owner.text, owner.author)])

    @property
    def ledger(self) -> Ledger:
        """The state after all events."""
        return self._ledger

    @property
    def prompt(self) -> Prompt:
        """The start prompt with the ledger in its fence, but for what is held out."""
        return written(self.start, without(self._ledger, self.held_out), self.region)

    def copy(self, asked: int) -> Curator:
        """All that is known, for a branch of its own, with the optimizer calls that were `asked` so far."""
        found = copy.deepcopy(self)
        found.asked = asked
        return found

    def history(self) -> tuple[Event, ...]:
        """The events that lead to `prompt`."""
        trial = (Expire(id=key, reason="left out on trial") for key in sorted(self.held_out))
        return (*self.events, *trial)

    def record(self, event: Event) -> None:
        """Append an event. Raises UsageError or EditRejected when it does not fit, and leaves all as it was."""
        if isinstance(event, Rollback):
            after = fold([*self.events, event])
            standing = {i.id for i in after.active}
            for track in self.tracks.values():
                track.instruction = track.instruction if track.instruction in standing else ""
        else:
            after = apply(self._ledger, event)
        self.events.append(event)
        self._ledger = after

    # What happened

    def hear(self, complaints: Sequence[Complaint]) -> None:
        """Take in complaints that come from people or from elsewhere, not from a roll-out of this run."""
        if complaints:
            self.board.add(complaints)
        for group in self.board.groups:
            self.tracks.setdefault(group.id, Track())

    def observe(self, rollouts: Sequence[Rollout], high: float) -> None:
        """Take in a roll-out of `prompt`: the critiques of answers below the full reward `high`."""
        number = len(self.sizes)
        self.sizes.append(sum(r.error is None for r in rollouts))
        self.shown.append(self.in_effect())
        complaints = []
        for place, rollout in enumerate(rollouts):
            if rollout.error is None and rollout.critique and rollout.reward < high:
                source = f"{rollout.example_id} ({number + 1}.{place + 1})"
                self._round_of[source] = number
                complaints += [Complaint(text, source) for text in split(rollout.critique)]
        self.hear(complaints)

    def in_effect(self) -> dict[int, str]:
        """The text that stands in the prompt for each group that has one."""
        standing = {i.id: i.text for i in self._ledger.active if i.id not in self.held_out}
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
        """How often an instruction that works is still violated: the mean of the better four fifths, 1 % to 20 %."""
        key = (len(self.sizes), len(self.events))
        if self._noise[0] != key:
            self._noise = key, self._measured_noise()
        return self._noise[1]

    def _measured_noise(self) -> float:
        standing = self.in_effect()
        covered = [(g, standing[g.id]) for g in self.board.groups if g.id in standing]
        rates = sorted(hits / n for g, text in covered for hits, n in [self.rate(g, text)] if n)
        kept = rates[: len(rates) * 4 // 5]
        return min(_CEILING, max(_FLOOR, sum(kept) / len(kept))) if kept else _FLOOR

    # What is to be done

    def open_groups(self) -> list[Group]:
        """Groups that need an instruction or another one, the most violated first."""
        noise, standing = self.noise(), self.in_effect()
        found: list[tuple[float, int, Group]] = []
        for group in self.board.groups:
            share = self._need(group, standing.get(group.id), noise)
            if share is not None:
                found.append((-share, group.id, group))
        return [group for _, _, group in sorted(found, key=lambda f: f[:2])]

    def _need(self, group: Group, text: str | None, noise: float) -> float | None:
        """The share of answers that complain, None when nothing is to be done about it."""
        track = self.tracks[group.id]
        if track.parked is not None:
            late = [k for k in range(len(self.sizes)) if k >= track.parked]
            counts = self.rounds(group)
            hits, n = sum(counts[k] for k in late), sum(self.sizes[k] for k in late)
            return hits / n if n and tail(hits, n, noise) < _DOUBT else None
        hits, n = self.rate(group, text)
        if text is None:
            return hits / n if n else 1.0
        if len(track.tried) > _TRIES:
            return None
        if not n:
            heard = any(not s.startswith(_LEDGER) and s not in self._round_of for s in group.sources)
            return 1.0 if heard else None
        return hits / n if self.is_violated(group) else None

    def is_violated(self, group: Group) -> bool:
        """Whether complaints go on under the instruction that stands: more than noise, or half as many as before it."""
        text = self.in_effect().get(group.id)
        hits, n = self.rate(group, text) if text is not None else (0, 0)
        before, answers = self.rate(group, None)
        useless = hits > 1 and before > 0 and hits * answers >= 0.5 * before * n
        return n > 0 and (useless or tail(hits, n, self.noise()) < _DOUBT)

    def separate(self) -> None:
        """Take apart groups in which an instruction silenced some wordings and not the others: they were two demands.

        So it is when the silence is telling (3 complaints were to be expected), or when the instruction cannot be
        meant for the wordings that are left.
        """
        standing = self.in_effect()
        for group in list(self.board.groups):
            text = standing.get(group.id)
            if text is None or len(group.wordings) < 2:
                continue
            since = {k for k in range(len(self.sizes)) if self.shown[k].get(group.id) == text}
            before = [self._spoken(w, since, False) for w in group.wordings]
            after = [self._spoken(w, since, True) for w in group.wordings]
            silent = sum(b for b, a in zip(before, after, strict=True) if not a)
            loud = [w for w, a in zip(group.wordings, after, strict=True) if a]
            if not loud or len(loud) == len(group.wordings):
                continue
            telling = silent * sum(after) >= _EXPECTED * sum(before)
            if telling or fault(text, replace(self.point(Group(group.id, loud)), current="")):
                self.tracks[self.board.split(group, loud).id] = Track()

    def _spoken(self, wording: Wording, since: set[int], after: bool) -> int:
        return sum((self._round_of.get(s, -1) in since) == after for s in wording.sources)

    def point(self, group: Group) -> Point:
        """A group as something to ask about, its clearest wordings first."""
        counted = counted_texts(group)
        constants = tuple(group.constants())
        texts = sorted((text for text, _ in counted), key=lambda text: unclarity(text, constants))
        known = frozenset(Token(t.kind, t.value) for text, _ in counted for t in tokens(text))
        tried = tuple(text for text, _ in self.tracks[group.id].tried)
        current = self.in_effect().get(group.id, "")
        return Point(group.id, tuple(texts[:MOST_TEXTS]), group.count, constants, known, current, tried)

    def draft(self, group: Group) -> Draft | None:
        """The distiller's next text for a group, one that was not tried yet."""
        return distil(
            counted_texts(group), group.constants(), [text for text, _ in self.tracks[group.id].tried]
        )

    # Doing it

    async def learn(self, run: Run, most: int | None, at: str = "") -> int:
        """One step: ask about open groups within `most` optimizer calls (None: as many as it takes) and record
        events. Returns how many groups got another text."""
        self.separate()
        groups = self.open_groups()
        texts = await self._ask(run, [g for g in groups if self._asks_model(g)], most if self.writer else 0)
        changed, self.unanswered = 0, []
        for group in groups:
            text, author = texts.get(group.id, ""), OPTIMIZER
            if not text:
                draft = self.draft(group)
                text, author = (draft.text, DISTILLER) if draft is not None else ("", "")
            if text:
                self._put(group, text, author, at)
                changed += 1
            else:
                self.unanswered.append(group.texts()[0])
        return changed

    def _asks_model(self, group: Group) -> bool:
        """The optimizer first; the distiller when that failed twice, or when its text did not help and a complaint is clear."""
        track = self.tracks[group.id]
        if not self.writer or track.misses >= _MISSES:
            return False
        return not (track.tried and track.tried[-1][1] == OPTIMIZER) or self._is_unclear(group)

    def _is_unclear(self, group: Group) -> bool:
        draft = self.draft(group)
        return draft is None or not draft.clear

    async def _ask(self, run: Run, groups: Sequence[Group], most: int | None) -> dict[int, str]:
        """Texts of the optimizer by group. All packs at once; what comes back wanting, and which no complaint puts clearly,
        is asked for a second time."""
        found: dict[int, str] = {}
        first = self._packs(groups, most)
        await self._ask_packs(run, first, found)
        unclear = [g for g in groups if g.id not in found and self._is_unclear(g)]
        await self._ask_packs(
            run, self._packs(unclear, None if most is None else most - len(first)), found, repeat=1
        )
        return found

    def _packs(self, groups: Sequence[Group], most: int | None) -> list[list[Point]]:
        """Packs of the usual size, up to a fifth larger when there are more points than calls."""
        size = self.points
        if most is not None:
            size = min(size + size // 5, max(size, -(-len(groups) // max(1, most))))
        return pack([self.point(g) for g in groups], size, most)

    async def _ask_packs(
        self, run: Run, packs: Sequence[list[Point]], found: dict[int, str], repeat: int = 0
    ) -> None:
        if not packs:
            return
        self.asked += len(packs)
        around = surroundings(self.start, self.region)

        async def one(branch: Run, points: list[Point]) -> list[Outcome]:
            return await ask(branch, points, around, sample=repeat)

        outcomes = [outcome for outcomes in await run.map(one, packs) for outcome in outcomes]
        for outcome in outcomes:
            if outcome.text:
                found[outcome.group] = outcome.text
            else:
                self.tracks[outcome.group].misses += 1
        failed = [o.fault.split(":")[0] for o in outcomes if not o.text]
        run.log(
            "asked",
            {
                "calls": len(packs),
                "points": len(outcomes),
                **{f: failed.count(f) for f in sorted(set(failed))},
            },
        )

    def _put(self, group: Group, text: str, author: str, at: str) -> None:
        """An event for a text: a new instruction, another text for an old one, or more evidence for one that exists."""
        track = self.tracks[group.id]
        track.tried.append((text, author))
        track.parked = None
        active = self._ledger.active
        shared = sum(t.instruction == track.instruction for t in self.tracks.values()) > 1
        old = None if shared else next((i for i in active if i.id == track.instruction), None)
        twin = (
            next((i for i in active if same(i.text, text) and i.id != track.instruction), None)
            if old is None
            else None
        )
        said, rests, sources = (
            tuple(group.texts()[:MOST_TEXTS]),
            tuple(group.sources)[:_EVIDENCE],
            len(group.sources),
        )
        if old is not None:
            self.record(
                Rewrite(
                    id=old.id, text=text, author=author, at=at, critiques=said, evidence=rests, sources=sources,
                    tokens=self.count(text), reason="still violated",
                )
            )  # fmt: skip
        elif twin is not None:
            self._support(twin, said, rests, sources, at)
            track.instruction = twin.id
        else:
            key = self._ledger.next_id
            self.record(
                Add(
                    id=key, text=text, author=author, at=at, critiques=said, evidence=rests, sources=sources,
                    tokens=self.count(text),
                )
            )  # fmt: skip
            track.instruction = key

    def _support(
        self, old: Instruction, said: tuple[str, ...], rests: tuple[str, ...], sources: int, at: str
    ) -> None:
        self.record(
            Rewrite(
                id=old.id, text=old.text, author=old.author, at=at, critiques=said, evidence=rests,
                sources=old.sources + sources, tokens=old.tokens, reason="the same demand in other words",
            )
        )  # fmt: skip

    def reassign(self, keys: Iterable[str], to: str, parked: float | None = None) -> None:
        """Groups of some instructions belong to another one now, or to none."""
        for track in self.tracks.values():
            if track.instruction in set(keys):
                track.instruction = to
                track.parked = parked
