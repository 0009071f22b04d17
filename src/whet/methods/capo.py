"""CAPO: instruction and demonstrations evolve together, and prompts race over blocks of examples, short ones ahead.

Zehle, Schlager, Heiß, Feurer: CAPO: Cost-Aware Prompt Optimization. AutoML 2025. arXiv:2504.16005. Algorithm 1.

    P <- k instructions, each with 0 to `shots` random demonstrations
    while the budget lasts:
        `crossovers` times: draw two parents; the model joins their instructions;
            demonstrations: as many as both have on average, from those of both
            the model writes the child's instruction in other words; by turns of chance a demonstration comes, goes, or none does
        race parents and children over blocks of examples, a score being accuracy - gamma length / L0:
            after each block drop whoever is beaten by at least k others at alpha; stop when k are left
        P <- the best k
    return the best of P

Differences from the paper and its code:
1. The race is tested by whet's own test for repeated looks (`whet.search.racing`). The paper repeats a t-test at alpha after each
   block, which is no test at alpha, and drops nobody where all differences are equal.
2. The length penalty counts in the race and in the ranking after it. The blocks come in a new order in each race. Nobody answers
   a row twice, and no row of a race is shown as a demonstration.
3. The result is chosen on validation examples among the best of the population and the leaders on the way.
4. A demonstration is added in a third of the mutations; in the code of the paper a later branch undoes it. It shows the model's
   own answer where that earned the full reward, and else the target, under the rules of `whet.search.demonstrations`.
5. The first instructions are written by the optimizer model from training examples, beside the start; the paper is given them.
   Where the optimizer writes nothing of use, the first parent's instruction stays, and demonstrations evolve alone.
6. A start that earns nothing is left first without the optimizer: the population gets two prompts more (`whet.search.from_zero`).
7. Within a limit on calls, population, children, rows and steps are cut to what it pays. The paper's limit is on tokens.

Run it:  whet optimize TASK --method capo --lm openai/NAME --optimizer-lm openai/NAME
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from whet._util.fields import NonNegativeFloat, NonNegativeInt, PositiveInt, Probability
from whet.environments.environment import Environment
from whet.errors import named_fields
from whet.instructions.guard import secrets
from whet.methods.method import MethodEntry
from whet.prompt import Prompt
from whet.rl import LanguagePolicy, in_tags, setting
from whet.run import Run
from whet.search.archive import Archive, Candidate
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
from whet.search.from_zero import FirstPrompt, leave_zero
from whet.search.labels import right_answers
from whet.search.minibatch import head_examples, minibatch, show_example, wanted_answers_known
from whet.search.plan import (
    LEAST_EXAMPLES,
    SearchPlan,
    count_purse,
    share_out,
    validate_finalists,
    validate_leader,
)
from whet.search.population import population_size
from whet.search.racing import Racer, RaceTrack
from whet.types import Example, Score

ENTRY = MethodEntry(
    "capo",
    "CAPO: instructions and demonstrations race, short ones ahead",
    version=2,
    rank=96,
    when="instruction and demonstrations both matter, and a shorter prompt is useful",
    paper="Zehle et al., AutoML 2025",
    arxiv="2504.16005",
    needs=("optimizer",),
    edits_all=True,
)


@named_fields
@dataclass(frozen=True)
class Config:
    """Settings of CAPO."""

    population: PositiveInt = 10
    """Prompts that survive a step (k)."""
    crossovers: PositiveInt = 4
    """Children of a step."""
    steps: NonNegativeInt = 20
    """Steps at most; the paper has no such bound but its budget."""
    block: PositiveInt = 30
    """Training examples of a block; fewer where there are not enough for all blocks."""
    blocks: PositiveInt = 10
    """Blocks of a race at most."""
    alpha: Probability = 0.2
    """Level of the test by which a prompt is dropped from a race; 0: nobody is dropped."""
    gamma: NonNegativeFloat = 0.05
    """Reward, as a share of its range, that a prompt as long as the longest of the first population loses."""
    shots: NonNegativeInt = 5
    """Demonstrations in a prompt at most; 0 for instructions only."""
    finalists: PositiveInt = 3
    """Prompts measured on validation examples at the end."""


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


async def capo(
    run: Run, env: Environment, policy: LanguagePolicy, start: Prompt, config: Config
) -> Candidate:
    """Racing evolution of instructions with demonstrations; see the module."""
    share, config = sizes(run, env, config)
    archive = Archive()
    await archive.validate(run, share.env, [Candidate(start)])
    share, firsts = await leave_zero(run, share, archive, start, secrets, k=config.shots)
    seeds = [Combination(start, start), *(Combination.of(start, first) for first in firsts)]
    used = [demo for first in firsts for demo in first.demos]
    rows, pool, left = await split_rows(run, env, start, config, used, share.rollouts)
    track = RaceTrack(env, rows, config.block, config.alpha, left)
    operator = Operator(env, policy, start, config, pool)
    population = seeds + await operator.first(run, config.population - 1)
    longest = max(env.model.count_tokens(one.prompt.text) for one in population)
    for step in range(config.steps + 1):
        if track.left is not None:
            track.left = await payable_in_races(run, share, archive, config)
        if not track.affords(config.crossovers if step else 1):
            break
        if step:
            operator = replace(operator, policy=policy.adapt(), sample=2 * step * config.crossovers)
            population += await operator.children(run, population)
        known = {one.prompt.id: one for one in reversed(population)}
        racers = [Racer(o.prompt, penalty(env, o.prompt, longest, config.gamma)) for o in known.values()]
        ranked = await track.race(run, racers, config.population)
        population = [known[one.racer.prompt.id] for one in ranked] or seeds[:1]
        for combination, one in zip(population, ranked, strict=False):
            archive.add(run, combination.candidate(Score(one.mean, one.rows)))
        await validate_leader(run, share, archive, population[0].candidate())
    return await validate_finalists(run, share, archive, [one.candidate() for one in population])


def sizes(run: Run, env: Environment, config: Config) -> tuple[SearchPlan, Config]:
    """What the search may spend, and the population, children, steps and blocks that this pays for."""
    k = population_size(run, env, config.population, asks=2.0)
    children, steps = min(config.crossovers, max(1, k - 1)), config.steps
    share = share_out(run, env, steps, config.finalists)
    if share.asks is not None:
        k = min(k, 1 + share.asks)
        steps = min(steps, (share.asks - k + 1) // (2 * children))
    rows = min(len(env.train), config.block * config.blocks)
    if share.rollouts is not None:
        each = share.rollouts // (k + steps * children)
        rows = max(1, min(rows, max(math.isqrt(share.rollouts), each, LEAST_EXAMPLES), share.rollouts // 2))
    block = min(config.block, max(SMALLEST_BLOCK, -(-rows // config.blocks)))
    k, blocks = max(1, k), max(1, rows // block)
    asks = k > 1 or steps > 0
    if not asks or (share.rollouts is not None and share.rollouts < 2 * min(block, rows)):
        k, steps = 1, -1  # no race of two prompts is paid for
    run.note_rounds(int(steps >= 0), 1)
    return share, replace(config, population=k, crossovers=children, steps=steps, block=block, blocks=blocks)


async def payable_in_races(run: Run, share: SearchPlan, archive: Archive, config: Config) -> int:
    """Rollouts that are left for races, beside the new prompts of a step and the validations of the best."""
    purse = await count_purse(run, share.env)
    finalists = sum(one.id not in archive.validated for one in archive.top(share.finalists))
    kept = max(1, finalists) * len(share.env.validation)
    return max(0, int(purse.payable(2 * config.crossovers)) - kept)


async def split_rows(
    run: Run, env: Environment, start: Prompt, config: Config, used: Sequence[Demonstration], left: int | None
) -> tuple[list[Example], list[Demonstration], int | None]:
    """The rows of races, balanced over targets; demonstrations of other rows; and the rollouts that are left.

    A demonstration shows the model's own answer where that earned the full reward, and else the target. Where all targets are
    labels, or the limit does not pay for it, the model is not asked.
    """
    order = minibatch(run.rng, env.train, len(env.train), balanced=True)
    held = min(len(order) // 4, ROWS_PER_SHOT * config.shots)
    rows = (rows_not_shown(order[held:], used) or order[held:])[: config.block * config.blocks]
    shown = order[:held]
    number = 0 if right_answers(env).complete else held if left is None else min(held, left // 10)
    good = demonstrations(env, start, await env.evaluate(run, start, shown[:number]), 1.0, secrets)
    targets = [demo for demo in label_rows(env, start, shown) if not secrets(demo.text)]
    pool = {demo.row: demo for demo in [*targets, *good]}
    return rows, list(pool.values()), None if left is None else left - number


def penalty(env: Environment, prompt: Prompt, longest: int, gamma: float) -> float:
    """What a prompt loses by its length: gamma times its tokens over those of the longest first prompt."""
    return gamma * env.model.count_tokens(prompt.text) / max(1, longest)


@dataclass(frozen=True)
class Operator:
    """What makes new prompts in one step. `sample` numbers its requests, so that none repeats another's."""

    env: Environment
    policy: LanguagePolicy
    start: Prompt
    config: Config
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
            shots = min(branch.rng.randint(0, self.config.shots), len(self.pool))
            return self.combination(
                text, branch.rng.sample(list(self.pool), shots), (self.start.id,), "induced"
            )

        made = await run.map(one, range(number))
        return [combination for combination in made if combination is not None]

    async def children(self, run: Run, population: Sequence[Combination]) -> list[Combination]:
        """The children of a step, each of two parents."""
        pairs = [
            (run.rng.sample(population, 2) if len(population) > 1 else [*population] * 2)
            for _ in range(self.config.crossovers)
        ]
        made = await run.map(self.child, list(enumerate(pairs)))
        return [combination for combination in made if combination is not None]

    async def child(self, run: Run, job: tuple[int, Sequence[Combination]]) -> Combination | None:
        """Instruction and demonstrations of two parents crossed, then mutated; None where the prompt refuses them."""
        place, (first, second) = job
        region = self.region(run)
        texts = [self.tag_region(one.instruction, region) for one in (first, second)]
        joined = await self.write(run, texts, CROSS, 2 * place, first.instruction, region)
        text = await self.write(run, [self.tag_region(joined, region)], REWORD, 2 * place + 1, joined, region)
        demos = cross_demonstrations(run.rng, first.demos, second.demos)
        demos = mutate_demonstrations(run.rng, demos, self.pool, self.config.shots)
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
        return in_tags(text_in(self.start.focused(region), instruction) if region else "")

    async def write(
        self, run: Run, shown: Sequence[str], request: str, place: int, base: Prompt, region: str | None
    ) -> Prompt:
        """`base` with a region that the model wrote; `base` itself where the reply is of no use, or copies an input."""
        if region is None:
            return base
        about = f"{PURPOSE}\n\n{setting(self.env.description, self.start, region)}".strip()
        question, focused = "\n\n".join([about, *shown, request]), self.start.focused(region)
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
