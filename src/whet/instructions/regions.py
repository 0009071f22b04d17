"""Instructions of several regions at the same time: each critique goes to the region whose prompt it is about.

An address that the reward gave decides. Critiques without one are assigned by the optimizer model, which is shown what the
prompts brought; where it does not say, the prompt that was called last is taken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from whet.errors import EditRejected
from whet.instructions.critiques import CritiqueBatch, withhold_attacks
from whet.instructions.manager import InstructionManager
from whet.instructions.reader import ask_model, make_packs
from whet.prompt import Prompt
from whet.prompt.events import Event
from whet.replies import array, closed_object, json_values
from whet.run import Run
from whet.search.demonstrations import instruction_regions
from whet.search.minibatch import show_step
from whet.search.regions import prompt_of_region
from whet.types import TraceStep

SIZE, SHOWN, REGION_SHOWN = 12, 600, 1500
"""Critiques in a call, characters that are shown of each step, and of each region."""
_SHARE = 4
"""At most one call in so many assigns critiques."""
SCHEMA = closed_object(assigned=array(closed_object(critique={"type": "integer"}, prompt={"type": "string"})))


@dataclass
class RegionManagers:
    """The managers of a prompt's regions, which act as one; `calls` were spent to assign critiques."""

    start: Prompt
    managers: Mapping[str, InstructionManager]
    calls: int = 0

    @property
    def prompt(self) -> Prompt:
        """The start prompt with the instructions of every region, without those that a trial leaves out."""
        prompt = self.start
        for region, manager in self.managers.items():
            prompt = prompt.restore(region, manager.prompt)
        return prompt

    @property
    def spent(self) -> int:
        """Optimizer calls."""
        return self.calls + sum(manager.spent for manager in self.managers.values())

    @property
    def newest(self) -> list[str]:
        """Instructions that the last step added, of all regions."""
        return [key for manager in self.managers.values() for key in manager.newest]

    @property
    def left_out(self) -> frozenset[str]:
        """Instructions that the next roll-out does without."""
        return frozenset(chain.from_iterable(manager.left_out for manager in self.managers.values()))

    @property
    def drafting(self) -> bool:
        """Whether the optimizer model writes whole drafts, for some region."""
        return any(manager.drafting for manager in self.managers.values())

    @property
    def whole(self) -> bool:
        """Whether what stands is one text that is written as a whole, in every region."""
        return all(manager.whole for manager in self.managers.values())

    @property
    def settled(self) -> bool:
        """Whether the last step brought nothing that several answers demand, in any region, or a draft that waits to be tried."""
        managers = self.managers.values()
        return any(manager.drafts.waiting for manager in managers) or all(m.settled for m in managers)

    @property
    def ablated(self) -> list[str]:
        """The examples whose answers demanded the omitted instructions."""
        return list(dict.fromkeys(chain.from_iterable(manager.ablated for manager in self.managers.values())))

    @property
    def lost(self) -> bool:
        """Whether the critiques of the last step got no usable reading, in any region."""
        return any(manager.lost for manager in self.managers.values())

    @property
    def fell(self) -> bool:
        """Whether the last step returned to what had earned more, in any region."""
        return any(manager.fell for manager in self.managers.values())

    def falls_behind(self, rewards: Sequence[float]) -> bool:
        """Never: an answer of a program comes from several regions."""
        return False

    @property
    def repairs(self) -> int:
        """Calls that a round needs beside reading, of all regions."""
        return sum(manager.repairs for manager in self.managers.values())

    def histories(self) -> list[list[Event]]:
        """The events of each region."""
        return [history for manager in self.managers.values() for history in manager.histories()]

    async def step(
        self, run: Run, judged: CritiqueBatch, most: int | None, at: str, *, last: bool = False
    ) -> int:
        """Learn from a roll-out: assign the critiques, then one step of each region. Returns how many instructions changed."""
        judged, before = withhold_attacks(run, judged, at), self.calls
        regions = await self._assign_regions(run, judged, most)
        run.log("assigned", {"at": at, **Counter(regions)})
        places = {name: [n for n, r in enumerate(regions) if r == name] for name in self.managers}
        left = None if most is None else max(0, most - (self.calls - before))
        shares = split(left, [len(own) for own in places.values()])

        async def one(branch: Run, item: tuple[str, int | None]) -> int:
            name, share = item
            return await self.managers[name].step(branch, judged.only(places[name]), share, at, last=last)

        return sum(await run.map(one, list(zip(self.managers, shares, strict=True))))

    def plan_trial(self) -> None:
        """Choose what the next roll-out does without, in one region at a time."""
        for manager in self.managers.values():
            manager.plan_trial()
            if manager.left_out:
                return

    def end_trial(self) -> None:
        """Restore the omitted instructions in each region, and end their trial."""
        for manager in self.managers.values():
            manager.end_trial()

    async def finish(self, run: Run, most: int | None, at: str = "end") -> None:
        """Finish each region within its share of the calls."""
        shares = split(most, [1] * len(self.managers))

        async def one(branch: Run, item: tuple[InstructionManager, int | None]) -> None:
            await item[0].finish(branch, item[1], at)

        await run.map(one, list(zip(self.managers.values(), shares, strict=True)))

    async def _assign_regions(self, run: Run, judged: CritiqueBatch, most: int | None) -> list[str]:
        """The region of each critique."""
        regions = [self._first_region(critique.prompt) for critique in judged.critiques]
        open_places = [n for n, region in enumerate(regions) if region is None]
        packs = (
            make_packs(open_places, SIZE, None if most is None else max(1, most // _SHARE))
            if open_places and most != 0
            else []
        )
        answers = await run.map(lambda branch, pack: assign_regions(branch, judged, pack, self.prompt), packs)
        self.calls += len(packs)
        named = {place: region for answer in answers for place, region in answer.items()}
        return [r or named.get(n) or self._last_called(judged, n) for n, r in enumerate(regions)]

    def _first_region(self, prompt: str) -> str | None:
        """The first region of a prompt."""
        own = (name for name in self.managers if prompt and prompt_of_region(self.start, name) == prompt)
        return next(own, None)

    def _last_called(self, judged: CritiqueBatch, place: int) -> str:
        steps = judged.traces[judged.answers[place][0]] if judged.traces and judged.answers[place] else ()
        called = (self._first_region(step.prompt) for step in reversed(steps) if step.role != "tool")
        return next((region for region in called if region is not None), list(self.managers)[-1])


async def assign_regions(
    run: Run, judged: CritiqueBatch, pack: Sequence[int], prompt: Prompt
) -> dict[int, str]:
    """The region that the optimizer model names for critiques, by place; in one call."""
    names = [region.name for region in prompt.regions]
    shown = [
        f'<PROMPT name="{name}">\n{prompt.region_text(name)[:REGION_SHOWN]}\n</PROMPT>' for name in names
    ]
    critiques = [f"{number}. {_with_trace(judged, place)}" for number, place in enumerate(pack, 1)]
    text = "\n\n".join([ASSIGN, *shown, *critiques, FORM])
    values = json_values((await ask_model(run, "assign", text, SCHEMA)).text)
    entries: object = values[0].get("assigned", ()) if values and isinstance(values[0], dict) else ()
    rows = [row for row in entries if isinstance(row, dict)] if isinstance(entries, list) else []
    return {
        pack[row["critique"] - 1]: str(row.get("prompt"))
        for row in rows
        if isinstance(row.get("critique"), int)
        and 0 < row["critique"] <= len(pack)
        and str(row.get("prompt")) in names
    }


def _with_trace(judged: CritiqueBatch, place: int) -> str:
    steps: Sequence[TraceStep] = ()
    if judged.traces and judged.answers[place]:
        steps = judged.traces[judged.answers[place][0]]
    return "\n".join([judged.critiques[place].text, *(show_step(step, SHOWN) for step in steps)])


def split(most: int | None, weights: Sequence[int]) -> list[int | None]:
    """Calls shared out by weight; the remaining calls go to regions with a weight that got none.

    >>> split(5, [3, 1, 0]), split(None, [1, 1])
    ([4, 1, 0], [None, None])
    """
    if most is None:
        return [None] * len(weights)
    total = max(1, sum(weights))
    shares = [most * weight // total for weight in weights]
    for n in sorted(range(len(weights)), key=lambda n: (shares[n] > 0, -weights[n])):
        if weights[n] and sum(shares) < most:
            shares[n] += 1
    return list(shares)


def managers_of(first: InstructionManager) -> InstructionManager | RegionManagers:
    """The manager of a prompt's region, or one like it for each where there are several and none is in focus. Of these, the first
    one that holds instructions has the `first` text."""
    start = first.start
    if start.focus is not None or len(start.regions) == 1:
        return first
    names = ("embed", "consolidates", "measures", "description", "examples", "demonstrated")
    settings = {name: getattr(first, name) for name in names}
    tokens = None if first.tokens is None else first.tokens // len(start.regions)
    written = first.first and next(iter(instruction_regions(start)), "")
    return RegionManagers(
        start,
        {
            r.name: InstructionManager(
                start, tokens, r.name, first=first.first if r.name == written else "", **settings
            )
            for r in start.regions
        },
    )


def add_first(start: Prompt, text: str) -> Prompt | None:
    """A prompt with a text as its first instruction; None where the prompt refuses it."""
    try:
        return managers_of(InstructionManager(start, first=text)).prompt
    except EditRejected:
        return None


ASSIGN = (
    "An application asks a language model with several prompts, one after the other. Below are the instructions of each prompt, "
    "then numbered critiques of the application's answers, where known with the outputs of its prompts and tools. For each "
    "critique, name the prompt that must change so that the fault does not come again: the earliest prompt that went wrong."
)
FORM = 'Answer with JSON only: {"assigned": [{"critique": 1, "prompt": "NAME"}]}'
