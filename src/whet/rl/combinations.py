"""Prompts as an instruction with demonstrations, crossed and mutated by a model: the operators of CAPO (arXiv:2504.16005).

A child joins the instructions of two parents and words them anew; its demonstrations are drawn from those of both, and one comes,
goes, or none does.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from whet.environments.environment import Environment
from whet.instructions.guard import secrets
from whet.prompt import Prompt
from whet.rl.language import LanguagePolicy, in_tags, setting
from whet.run import Run
from whet.search.archive import Candidate
from whet.search.copies import copied_input
from whet.search.demonstrations import (
    Demonstration,
    cross_demonstrations,
    demonstrations,
    instruction_regions,
    label_rows,
    mutate_demonstrations,
    rows_not_shown,
    with_demonstrations,
)
from whet.search.edits import move_region, text_in
from whet.search.from_zero import FirstPrompt
from whet.search.labels import right_answers
from whet.search.minibatch import head_examples, minibatch, show_example, wanted_answers_known
from whet.search.plan import LEAST_EXAMPLES, SearchPlan, share_out
from whet.search.population import population_size
from whet.types import Example, Score


@dataclass(frozen=True)
class Combination:
    """A prompt as its parts, an instruction (a prompt without demonstrations) and demonstrations, and where it comes from."""

    prompt: Prompt
    instruction: Prompt
    demos: tuple[Demonstration, ...] = ()
    parents: tuple[str, ...] = ()
    operator: str = "start"

    @classmethod
    def of(cls, start: Prompt, first: FirstPrompt) -> Combination:
        """A prompt that was tried before any other: the start with demonstrations, or another instruction."""
        prompt, operator = first.candidate.prompt, first.candidate.operator
        return cls(prompt, start if first.demos else prompt, first.demos, (start.id,), operator)

    def candidate(self, score: Score | None = None) -> Candidate:
        """The candidate of its prompt."""
        return Candidate(self.prompt, self.parents, self.operator, score)


@dataclass(frozen=True)
class Sizes:
    """The numbers of prompts that survive a step, of children in a step, and of steps; of rows in a block, and of blocks that a
    prompt answers at most."""

    population: int
    crossovers: int
    steps: int
    block: int
    blocks: int


def payable_sizes(run: Run, env: Environment, wanted: Sizes, finalists: int) -> tuple[SearchPlan, Sizes]:
    """The limit of a search, and the sizes that it pays for; -1 steps where it pays for no race of two prompts."""
    k = population_size(run, env, wanted.population, asks=2.0)
    children, steps = min(wanted.crossovers, max(1, k - 1)), wanted.steps
    share = share_out(run, env, steps, finalists)
    if share.asks is not None:
        k = min(k, 1 + share.asks)
        steps = min(steps, (share.asks - k + 1) // (2 * children))
    rows = min(len(env.train), wanted.block * wanted.blocks)
    if share.rollouts is not None:
        each = share.rollouts // (k + steps * children)
        rows = max(1, min(rows, max(math.isqrt(share.rollouts), each, LEAST_EXAMPLES), share.rollouts // 2))
    block = min(wanted.block, max(SMALLEST_BLOCK, -(-rows // wanted.blocks)))
    k, blocks = max(1, k), max(1, rows // block)
    asks = k > 1 or steps > 0
    if not asks or (share.rollouts is not None and share.rollouts < 2 * min(block, rows)):
        k, steps = 1, -1
    run.note_rounds(int(steps >= 0), 1)
    return share, replace(wanted, population=k, crossovers=children, steps=steps, block=block, blocks=blocks)


async def split_rows(
    run: Run,
    env: Environment,
    start: Prompt,
    rows: int,
    shots: int,
    used: Sequence[Demonstration],
    left: int | None,
) -> tuple[list[Example], list[Demonstration], int | None]:
    """At most `rows` rows of races, balanced over targets; demonstrations of other rows; and the rollouts that are left.

    A demonstration shows the model's own answer where that earned the full reward, and else the target. Where all targets are
    labels, or the limit does not pay for it, the model is not asked.
    """
    order = minibatch(run.rng, env.train, len(env.train), balanced=True)
    held = min(len(order) // 4, ROWS_PER_SHOT * shots)
    raced = (rows_not_shown(order[held:], used) or order[held:])[:rows]
    shown = order[:held]
    number = 0 if right_answers(env).complete else held if left is None else min(held, left // 10)
    good = demonstrations(env, start, await env.evaluate(run, start, shown[:number]), 1.0, secrets)
    targets = [demo for demo in label_rows(env, start, shown) if not secrets(demo.text)]
    pool = {demo.row: demo for demo in [*targets, *good]}
    return raced, list(pool.values()), None if left is None else left - number


def random_pairs(
    rng: random.Random, population: Sequence[Combination], n: int
) -> list[tuple[Combination, Combination]]:
    """`n` pairs of different parents; the only one twice."""
    pairs = [rng.sample(population, 2) if len(population) > 1 else [*population] * 2 for _ in range(n)]
    return [(first, second) for first, second in pairs]


@dataclass(frozen=True)
class Operator:
    """The generator of new prompts in one step, with `shots` demonstrations at most. `sample` numbers its requests, so that
    none repeats another's."""

    env: Environment
    policy: LanguagePolicy
    start: Prompt
    shots: int
    pool: Sequence[Demonstration]
    sample: int = 0

    async def first(self, run: Run, number: int) -> list[Combination]:
        """Instructions that the model writes from training examples, each with a random number of demonstrations."""

        async def one(branch: Run, place: int) -> Combination | None:
            region = self.region(branch)
            rows = minibatch(branch.rng, self.env.train, INDUCED_FROM, balanced=True)
            shown = [head_examples(rows), *map(show_example, rows)]
            request = INDUCE if wanted_answers_known(rows) else INDUCE_UNANSWERED
            text = await self.write(branch, shown, request, FIRST + place, self.start, region)
            shots = min(branch.rng.randint(0, self.shots), len(self.pool))
            return self.combination(
                text, branch.rng.sample(list(self.pool), shots), (self.start.id,), "induced"
            )

        made = await run.map(one, range(number))
        return [combination for combination in made if combination is not None]

    async def children(self, run: Run, pairs: Sequence[tuple[Combination, Combination]]) -> list[Combination]:
        """The children of a step, each of two parents."""
        made = await run.map(self.child, list(enumerate(pairs)))
        return [combination for combination in made if combination is not None]

    async def child(self, run: Run, job: tuple[int, tuple[Combination, Combination]]) -> Combination | None:
        """Instruction and demonstrations of two parents crossed, then mutated; None where the prompt refuses them."""
        place, (first, second) = job
        region = self.region(run)
        texts = [self.tag_region(one.instruction, region) for one in (first, second)]
        joined = await self.write(run, texts, CROSS, 2 * place, first.instruction, region)
        text = await self.write(run, [self.tag_region(joined, region)], REWORD, 2 * place + 1, joined, region)
        demos = cross_demonstrations(run.rng, first.demos, second.demos)
        demos = mutate_demonstrations(run.rng, demos, self.pool, self.shots)
        return self.combination(text, demos, (first.prompt.id, second.prompt.id), "crossover")

    def combination(
        self, instruction: Prompt, demos: Sequence[Demonstration], parents: tuple[str, ...], operator: str
    ) -> Combination | None:
        """The prompt of an instruction and demonstrations; None where the prompt refuses them."""
        prompt = with_demonstrations(self.start, demos, instruction)
        return None if prompt is None else Combination(prompt, instruction, tuple(demos), parents, operator)

    def region(self, run: Run) -> str | None:
        """One of the regions that hold instructions; None where there is none."""
        regions = instruction_regions(self.start)
        return run.rng.choice(regions) if regions else None

    def tag_region(self, instruction: Prompt, region: str | None) -> str:
        """The text of a region as a request shows it."""
        return in_tags(text_in(self.start.with_focus(region), instruction) if region else "")

    async def write(
        self, run: Run, shown: Sequence[str], request: str, place: int, base: Prompt, region: str | None
    ) -> Prompt:
        """`base` with a region that the model wrote; `base` itself where the reply is of no use, or copies an input."""
        if region is None:
            return base
        about = f"{PURPOSE}\n\n{setting(self.env.description, self.start, region)}".strip()
        question, focused = "\n\n".join([about, *shown, request]), self.start.with_focus(region)
        text, sample = text_in(focused, base), self.sample + place
        for prompt in await self.policy.rewrite(
            run, self.start, question, sample=sample, text=text, region=region
        ):
            if not copied_input(text_in(focused, prompt), self.env.train, self.start.source):
                return move_region(self.start, base, region, prompt)
        return base


SMALLEST_BLOCK, ROWS_PER_SHOT, INDUCED_FROM = 5, 3, 5
FIRST = 500_000
PURPOSE = "You write instructions for a language model."
INDUCE = (
    "Write an instruction that makes the model give these answers. It must work for any input of this kind, not only for those "
    "above."
)
INDUCE_UNANSWERED = (
    "Write an instruction with which the model answers any input of this kind well, not only those above."
)
CROSS = "Join these two instructions into a single one that asks for what both ask for. Do not say anything twice."
REWORD = "Write this instruction in other words, as short as it can be. Do not change what it asks for."
