"""CANTANTE: every prompt of a program has its own population, and its own share in what the whole program earned.

CANTANTE: credit attribution for the joint optimisation of the prompts of several agents. 2026. arXiv:2605.13295.

    every region has a population;  T <- []
    for step in 1..steps:
        for each region: the model writes `children` texts, each of two of its population
        configurations <- the texts of all regions, combined;  run them on a block of rows
        T <- T + (row, configuration, credit of each region)
        every region keeps the `population` texts of the highest mean credit
    return the best text of each region, together

Differences from the paper and its code:
1. `credit=latin`, the default, is ours. Configurations are the rows of a Latin square, so that each text meets each text of the
   other regions in turn, and credit is the main effect of a text in an additive model (`whet.search.latin`). It needs no call.
2. `credit=identity` is the paper's control: texts are combined by their position, and each earns what its configurations earned.
   Text i of one region always meets text i of the others, so a good text is blamed for its partner.
3. `credit=attributed` is the paper's way: the optimizer model sees what each prompt of a program answered in up to `group`
   configurations on a row, in random order, with the rewards, and gives each a number from -1 to 1. A reply that cannot be read
   leaves the rollouts out; in the paper's code they count as 0, which draws all texts together. Numbers are shifted so that those
   of a rollout add up to its reward less the mean of its group, which the paper says and its code does not do. Up to 3,000
   characters of an answer are shown; the code cuts at 128 tokens.
4. A child is written by one call, as in EvoPrompt; the paper's local optimiser is CAPO without its demonstrations, or EvoPrompt.
5. Blocks are drawn anew in each step, and credit is that of all steps together, rows of unequal difficulty allowed for.
6. The best texts of all regions were never run together when the paper returns them. Here they are validated as a whole, among
   the start and the combinations of earlier steps.
7. Within a limit on calls population, children, rows and steps are cut to what it pays.

Run it:  whet optimize TASK --method cantante --lm openai/NAME --optimizer-lm openai/NAME
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Literal

from whet._util.fields import NonNegativeInt, PositiveInt
from whet.environments.environment import Environment
from whet.errors import UsageError, named_fields, show_size
from whet.methods.method import MethodEntry
from whet.prompt import Prompt
from whet.replies import json_values
from whet.rl import LanguagePolicy, in_tags, setting
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.copies import copied_input
from whet.search.demonstrations import instruction_regions
from whet.search.edits import replace_region, text_in
from whet.search.latin import Pairing, main_effects, pair_by_position, pair_by_square
from whet.search.minibatch import answered_rollouts, minibatch, shorten, show_example
from whet.search.plan import SearchPlan, share_out, validate_finalists, validate_leader
from whet.search.regions import prompt_of_region
from whet.types import Example, Rollout

ENTRY = MethodEntry(
    "cantante",
    "CANTANTE: a population and a credit for each prompt of a program",
    version=1,
    rank=97,
    when="a program has several prompts, and all of them should be improved at once",
    paper="CANTANTE, 2026",
    arxiv="2605.13295",
    needs=("optimizer", "regions"),
    edits_all=True,
)


@named_fields
@dataclass(frozen=True)
class Config:
    """Settings of CANTANTE."""

    population: PositiveInt = 6
    """Texts of a region that survive a step."""
    children: PositiveInt = 3
    """New texts of a region in a step."""
    steps: NonNegativeInt = 10
    """Steps; the paper has no such bound but its budget."""
    block: PositiveInt = 10
    """Rows of a step, each answered by as many configurations as a region has texts."""
    credit: Literal["latin", "identity", "attributed"] = "latin"
    """The credit of a text: its main effect in a Latin square, the reward of its combinations, or the number that a model
    attributes to it."""
    group: PositiveInt = 3
    """With `attributed`: configurations on a row that are compared in one question (g)."""
    finalists: PositiveInt = 3
    """Combinations measured on validation rows at the end."""


async def cantante(
    run: Run, env: Environment, policy: LanguagePolicy, start: Prompt, config: Config
) -> Candidate:
    """Populations of the prompts of a program; see the module."""
    regions = instruction_regions(start)
    if len(regions) < 2:
        raise UsageError(ONE_REGION)
    plan, config = sizes(run, env, config, len(regions))
    archive, pool, leaders = Archive(), TextPools(env, policy, start, config, regions), [Candidate(start)]
    await archive.validate(run, plan.env, leaders)
    await pool.grow(run, config.population - 1, PARAPHRASE)
    for step in range(config.steps):
        if step:
            await pool.grow(run, config.children, CROSS)
        await pool.try_out(run, minibatch(run.rng, env.train, config.block))
        leader = Candidate(pool.join(pool.select()), (start.id,), f"step {step + 1}")
        archive.add(run, leader)
        leaders.append(await validate_leader(run, plan, archive, leader))
    return await validate_finalists(run, plan, archive, list({one.id: one for one in leaders[::-1]}.values()))


def sizes(run: Run, env: Environment, config: Config, regions: int) -> tuple[SearchPlan, Config]:
    """The limits of the search, and the sizes that they pay for: rows are reduced first, then the population, then steps; at
    least two steps if the limits pay for two."""
    plan = share_out(run, env, config.steps, config.finalists)
    k, children, steps = config.population, config.children, config.steps
    block = min(config.block, len(env.train))

    def asks(k: int, children: int, steps: int) -> int:
        texts = k - 1 + max(0, steps - 1) * children
        groups = -(-(k + children) // config.group) if config.credit == "attributed" else 0
        return regions * texts + groups * block * steps

    def rollouts(k: int, children: int, steps: int) -> int:
        return block * (k + max(0, steps - 1) * (k + children)) if steps else 0

    while steps and (
        asks(k, children, steps) > (math.inf if plan.asks is None else plan.asks)
        or rollouts(k, children, steps) > (math.inf if plan.rollouts is None else plan.rollouts)
    ):
        if steps > LEAST_STEPS:
            steps -= 1
        elif block > SMALLEST_BLOCK:
            block -= 1
        elif k > SMALLEST_POPULATION:
            k -= 1
        elif children > 1:
            children -= 1
        else:
            steps -= 1
    run.note_rounds(steps, config.steps)
    return plan, replace(config, population=k if steps else 1, children=children, steps=steps, block=block)


@dataclass
class TextPools:
    """A population of texts for each region, and every rollout with the texts that it ran under. `requests` were made so far."""

    env: Environment
    policy: LanguagePolicy
    start: Prompt
    config: Config
    regions: Sequence[str]
    texts: dict[str, list[str]] = field(default_factory=dict)
    credited: list[tuple[PlayedRow, tuple[float, ...]]] = field(default_factory=list)
    requests: int = 0

    def __post_init__(self) -> None:
        for region in self.regions:
            self.texts[region] = [text_in(self.start.with_focus(region), self.start)]

    def join(self, texts: Sequence[str]) -> Prompt:
        """The prompt with these texts in its regions."""
        prompt = self.start
        for region, text in zip(self.regions, texts, strict=True):
            prompt = replace_region(prompt, text, region) or prompt
        return prompt

    async def grow(self, run: Run, number: int, request: str) -> None:
        """So many new texts for each region, each written from one or two of its population."""
        policy = self.policy.adapt()
        parents = 2 if request == CROSS else 1
        jobs = [
            (sample, region, run.rng.sample(self.texts[region], min(parents, len(self.texts[region]))))
            for sample, region in enumerate([*self.regions] * number, self.requests)
        ]
        self.requests += len(jobs)

        async def write(branch: Run, job: tuple[int, str, list[str]]) -> list[str]:
            sample, region, shown = job
            about = f"{PURPOSE}\n\n{setting(self.env.description, self.start, region)}".strip()
            question = "\n\n".join([about, *map(in_tags, shown), request])
            prompts = await policy.rewrite(
                branch, self.start, question, sample=sample, text=shown[0], region=region
            )
            texts = [text_in(self.start.with_focus(region), prompt) for prompt in prompts]
            return [text for text in texts if not copied_input(text, self.env.train, self.start.source)]

        for (_, region, _), written in zip(jobs, await run.map(write, jobs), strict=True):
            self.texts[region] = list(dict.fromkeys([*self.texts[region], *written]))

    async def try_out(self, run: Run, rows: Sequence[Example]) -> None:
        """Run configurations of all texts on each row, and note what each region earned."""
        lists = [run.rng.sample(self.texts[region], len(self.texts[region])) for region in self.regions]
        lengths, jobs = [len(texts) for texts in lists], list[tuple[Example, tuple[str, ...]]]()
        for turn, row in enumerate(rows):
            square = self.config.credit == "latin"
            places = pair_by_square(lengths, turn) if square else pair_by_position(lengths)
            for place in run.rng.sample(places, len(places)):
                jobs.append((row, tuple(texts[at] for texts, at in zip(lists, place, strict=True))))

        async def answer(branch: Run, job: tuple[Example, tuple[str, ...]]) -> Rollout:
            return (await self.env.evaluate(branch, self.join(job[1]), [job[0]]))[0]

        played = [
            PlayedRow(row, texts, rollout)
            for (row, texts), rollout in zip(jobs, await run.map(answer, jobs), strict=True)
            if answered_rollouts([rollout])
        ]
        if self.config.credit != "attributed":
            self.credited += [(one, (one.rollout.reward,) * len(self.regions)) for one in played]
            return
        size = self.config.group
        own = [[one for one in played if one.row == row] for row in rows]
        groups = [runs[at : at + size] for runs in own for at in range(0, len(runs), size)]
        replies = await run.map(self.attribute, list(enumerate(groups, self.requests)))
        self.requests += len(groups)
        for group, credits in zip(groups, replies, strict=True):
            self.credited += list(zip(group, credits, strict=False))

    async def attribute(self, run: Run, job: tuple[int, list[PlayedRow]]) -> list[tuple[float, ...]]:
        """The credit of each region in each of a group of rollouts, by the model; none where its reply cannot be read."""
        sample, group = job
        about = f"{ATTRIBUTOR}\n\n{self.env.description}".strip()
        shown = [self.show(number, one) for number, one in enumerate(group, 1)]
        request = f"{ATTRIBUTE} {', '.join(self.regions)}.\n{FORM}"
        question = "\n\n".join([about, show_example(group[0].row), *shown, request])
        replies = await self.policy.write(run, question, "CREDITS", sample=sample)
        return read_credits(
            "\n".join(replies), self.regions, [self.share(one.rollout.reward) for one in group]
        )

    def share(self, reward: float) -> float:
        """A reward as a share of its range."""
        return (reward - self.env.reward.low) / ((self.env.reward.high - self.env.reward.low) or 1.0)

    def show(self, number: int, one: PlayedRow) -> str:
        """The answers of each prompt in a rollout, and the reward of the whole."""
        lines = [f"Run {number}:"]
        for region in self.regions:
            name = prompt_of_region(self.start, region)
            answers = [step.output for step in one.rollout.steps if step.prompt == name and name]
            lines += [f"{region} answered: {shorten(answer, LONGEST)}" for answer in answers]
        whole = f"The whole answered: {shorten(one.rollout.output, LONGEST)}"
        return "\n".join([*lines, whole, f"Reward: {show_size(one.rollout.reward, 3)}"])

    def select(self) -> list[str]:
        """The best text of each region; those of the highest credit survive, others leave."""
        if self.config.credit == "latin":
            effects = main_effects([Pairing(one.row.id, one.texts, c[0]) for one, c in self.credited])
        else:
            effects = [
                main_effects([Pairing(one.row.id, (one.texts[at],), c[at]) for one, c in self.credited])[0]
                for at in range(len(self.regions))
                if self.credited
            ]
        for region, worth in zip(self.regions, effects, strict=False):
            ranked = sorted(self.texts[region], key=lambda text: -worth.get(text, -math.inf))
            self.texts[region] = ranked[: self.config.population]
        return [self.texts[region][0] for region in self.regions]


@dataclass(frozen=True)
class PlayedRow:
    """A rollout of a configuration on a row: the text of each region."""

    row: Example
    texts: tuple[str, ...]
    rollout: Rollout


def read_credits(reply: str, regions: Sequence[str], shares: Sequence[float]) -> list[tuple[float, ...]]:
    """The credits that a reply gives to the regions in each run, between -1 and 1, then shifted so that those of a run add up to
    its share of the reward less the mean of all; none at all where a number is missing.

    >>> read_credits('[{"a": 1, "b": 0}, {"a": 0, "b": 0}]', ["a", "b"], [1.0, 0.0])
    [(0.75, -0.25), (-0.25, -0.25)]
    """
    lists = [value for value in json_values(reply) if isinstance(value, list) and len(value) == len(shares)]
    entries = lists[0] if lists else []
    credits = []
    for entry, share in zip(entries, shares, strict=False):
        numbers = [entry.get(region) for region in regions] if isinstance(entry, Mapping) else [None]
        if not all(isinstance(n, int | float) and math.isfinite(n) for n in numbers):
            return []
        clipped = [max(-1.0, min(1.0, float(number or 0.0))) for number in numbers]
        shift = (share - fmean(shares) - sum(clipped)) / len(clipped)
        credits.append(tuple(number + shift for number in clipped))
    return credits


LEAST_STEPS, SMALLEST_BLOCK, SMALLEST_POPULATION, LONGEST = 2, 5, 3, 3000
ONE_REGION = (
    "cantante shares the credit among several prompts, and here only one text may be edited. Choose a method for a single "
    "prompt, such as evoprompt or capo."
)
PURPOSE = "You write instructions for a language model."
PARAPHRASE = (
    "Write another instruction for the same purpose. Take another approach, or say what this one leaves open."
)
CROSS = (
    "Do this in two steps. Step 1: combine these instructions into one that takes parts of each. Step 2: change something in it "
    "that may make the answers better."
)
ATTRIBUTOR = "Several prompts work together in a program. You judge how much each contributed to what the whole earned."
ATTRIBUTE = (
    "These runs differ in the prompts. Compare them, and give each prompt in each run a number from -1 (it spoiled the result) "
    "to 1 (it made the result), 0 where it made no difference. The prompts are:"
)
FORM = "Write a JSON list with one object for each run, in their order: the names of the prompts, each with its number."
