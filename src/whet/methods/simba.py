"""SIMBA: look where the same input is answered well and badly; keep the good answer, or a rule that tells the two apart.

Stochastic Introspective Mini-Batch Ascent, of DSPy (2025; no paper).

    pool <- {start}
    for step in 1..steps:
        draw a minibatch; for each example: `samples` rollouts at temperature 1, each by a prompt drawn from the best of the pool
        order the examples by the gap between best and worst reward, then by the best, then by best minus mean
        for the first few: draw a prompt; by a coin, add the best rollout as a demonstration,
            or a rule that a model writes from the best and the worst rollout
        score the new prompts on the rows of the minibatch that they do not show; they join the pool; the best wins the step
    return the best of evenly spaced winners

Differences from DSPy:
1. The winners are compared on validation examples with the start. DSPy takes the best on the training set.
2. Samples are numbered, so that a cache never makes one of two.
3. Demonstrations keep the rules of `whet.search.demonstrations`: no validation rows, no private data. A rule that
   copies 32 characters from a single input is dropped.
4. The rule's writer reads the reward's critiques (DSPy issue 8278), and rules stand behind the text of the region.
5. A prompt's mean counts all its rollouts; the temperature of the draw is a share of the reward's range.
6. Where the start earns nothing, prompts that earn something without the optimizer join the pool first
   (`whet.search.from_zero`).
7. Under a limit on calls, minibatches, then steps, samples and new prompts are reduced to fit (`whet.search.plan`).
8. No prompt answers a training row that it shows as a demonstration, neither as a sample nor for its score: the answer would be
   a copy. DSPy scores prompts on such rows too.

Run it:  whet optimize TASK --method simba --lm openai/NAME --optimizer-lm openai/NAME
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import fmean, quantiles

from whet._util.fields import NonNegativeFloat, NonNegativeInt, PositiveInt
from whet.environments.environment import Environment
from whet.environments.program import in_focus
from whet.errors import named_fields
from whet.instructions.guard import secrets
from whet.methods.method import MethodEntry
from whet.prompt import Prompt
from whet.rl import LanguagePolicy, in_tags, setting
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.copies import copied_input, normalize_wording
from whet.search.demonstrations import (
    Demonstration,
    demonstrations,
    instruction_regions,
    with_demonstrations,
)
from whet.search.edits import replace_region, text_in
from whet.search.from_zero import FirstPrompt, leave_zero
from whet.search.minibatch import answered_rollouts, infinite_batches, show_rollout
from whet.search.plan import (
    LEAST_EXAMPLES,
    SearchPlan,
    fit,
    payable_rollouts,
    rounds_of,
    validate_finalists,
    validate_leader,
)
from whet.types import Example, Rollout, mean_score

ENTRY = MethodEntry(
    "simba",
    "SIMBA: demonstrations and rules where answers differ most",
    version=6,
    rank=90,
    when="the model answers the same input correctly only some of the time",
    paper="DSPy, 2025",
    needs=("optimizer",),
    edits_all=True,
)


@named_fields
@dataclass(frozen=True)
class Config:
    """Settings of SIMBA."""

    steps: NonNegativeInt = 8
    """Minibatches."""
    minibatch: PositiveInt = 32
    """Training examples of a step."""
    samples: PositiveInt = 6
    """Rollouts of each example, by prompts drawn from the pool."""
    candidates: PositiveInt = 6
    """New prompts of a step."""
    k: NonNegativeInt = 4
    """Demonstrations in a prompt at most."""
    temperature: NonNegativeFloat = 1.0
    """Temperature of the samples."""
    draw: NonNegativeFloat = 0.2
    """Temperature at which a prompt is drawn, as a share of the reward's range."""
    finalists: PositiveInt = 7
    """Winners of steps that are validated at the end at most."""


@dataclass
class DemonstratedPrompt:
    """A prompt as its parts: the instruction with its rules, the demonstrations; and all rewards that it got."""

    prompt: Prompt
    instruction: Prompt
    demos: tuple[Demonstration, ...] = ()
    rewards: list[float] = field(default_factory=list)

    @cached_property
    def _shown(self) -> frozenset[str]:
        return frozenset(normalize_wording(demo.question) for demo in self.demos)

    def shows(self, row: Example) -> bool:
        """Whether one of the demonstrations is this row, or another one with the same input."""
        return bool(self._shown) and normalize_wording(row.user_text) in self._shown

    @classmethod
    def of(cls, start: Prompt, first: FirstPrompt) -> DemonstratedPrompt:
        """A prompt that was tried before any other: the start with demonstrations, or another instruction."""
        prompt = first.candidate.prompt
        return cls(prompt, start if first.demos else prompt, first.demos, [r.reward for r in first.rollouts])


@dataclass(frozen=True)
class Contrast:
    """All rollouts of one example in a step."""

    example: Example
    rollouts: Sequence[Rollout]

    @property
    def best(self) -> Rollout:
        """The rollout with the highest reward."""
        return max(self.rollouts, key=lambda r: r.reward)

    @property
    def worst(self) -> Rollout:
        """The rollout with the lowest reward."""
        return min(self.rollouts, key=lambda r: r.reward)

    @property
    def rank(self) -> tuple[float, float, float]:
        """The larger, the more there is to learn."""
        top, mean = self.best.reward, fmean(r.reward for r in self.rollouts)
        return top - self.worst.reward, top, top - mean


async def simba(
    run: Run, env: Environment, policy: LanguagePolicy, start: Prompt, config: Config
) -> Candidate:
    """Introspection on the examples with the largest spread; see the module."""
    plan, config = sizes(run, env, config)
    archive, pool, winners = Archive(), {start.id: DemonstratedPrompt(start, start)}, list[Candidate]()
    await archive.validate(run, plan.env, [Candidate(start)])
    plan, firsts = await leave_zero(run, plan, archive, start, secrets, k=config.k)
    pool |= {first.candidate.id: DemonstratedPrompt.of(start, first) for first in firsts}
    winners += [first.candidate for first in firsts[:1]]
    rows = infinite_batches(run.rng, env.train)
    async for step, _ in rounds_of(run, replace(plan, least=plan.width), archive):
        batch = [next(rows) for _ in range(plan.examples)]
        contrasts = await sample_contrasts(run, env, pool, start, batch, step, config)
        differing = sum(c.best.reward > c.worst.reward for c in contrasts)
        run.log("contrasts", {"at": f"step {step + 1}", "rows": len(contrasts), "differing": differing})
        changes = Changes(env, policy.adapt(), start, config, contrasts, batch)
        jobs = [(choose(run, env, pool, start, config.draw), c) for c in contrasts[: config.candidates]]
        made = await run.map(changes.change, jobs)
        new = {p.prompt.id: (p, parent.prompt.id) for p, (parent, _) in zip(made, jobs, strict=True) if p}
        fresh = [(p, parent) for p, parent in new.values() if p.prompt.id not in pool]
        scored = await run.map(changes.score, fresh)
        for (program, parent), rollouts in zip(fresh, scored, strict=True):
            program.rewards += [r.reward for r in rollouts]
            pool[program.prompt.id] = program
            score = mean_score(rollouts) if rollouts else None
            archive.add(run, Candidate(program.prompt, (parent,), f"step {step + 1}", score))
        leaders = sorted((archive.members[p.prompt.id] for p, _ in fresh), key=lambda c: -c.mean)
        if leaders:
            winners.append(await validate_leader(run, plan, archive, leaders[0]))
    last = winners[::-1]
    spaced = last[:: max(1, -(-len(last) // plan.finalists))]
    return await validate_finalists(run, plan, archive, [*spaced, *last])


def sizes(run: Run, env: Environment, config: Config) -> tuple[SearchPlan, Config]:
    """The plan, and the samples and new prompts that it pays for: half of a step's rollouts each."""
    width = config.samples + config.candidates
    size, asks = min(config.minibatch, len(env.train)), config.candidates / width
    payable = payable_rollouts(run, env, writes=True)
    if payable is not None:
        size = min(size, max(LEAST_EXAMPLES, payable * 3 // 5 // (1 + config.steps * width)))
    plan = fit(run, env, config.steps, width, size, finalists=config.finalists, asks=asks, least=3)
    samples = min(config.samples, max(2, plan.width // 2))
    return plan, replace(config, samples=samples, candidates=max(1, plan.width - samples))


def choose(
    run: Run,
    env: Environment,
    pool: dict[str, DemonstratedPrompt],
    start: Prompt,
    temperature: float,
) -> DemonstratedPrompt:
    """One of the best six by mean reward and the start, by softmax."""
    scale = (env.reward.high - env.reward.low or 1.0) * max(temperature, 1e-3)
    means = {name: fmean(p.rewards) if p.rewards else env.reward.low for name, p in pool.items()}
    best = sorted(pool, key=lambda name: -means[name])[:BEST]
    names = list(dict.fromkeys([*best, start.id]))
    top = max(means[name] for name in names)
    weights = [math.exp((means[name] - top) / scale) for name in names]
    return pool[run.rng.choices(names, weights)[0]]


async def sample_contrasts(
    run: Run,
    env: Environment,
    pool: dict[str, DemonstratedPrompt],
    start: Prompt,
    batch: Sequence[Example],
    step: int,
    config: Config,
) -> list[Contrast]:
    """Rollouts of the minibatch by prompts of the pool that do not show the row, by example, the largest spread first."""
    warm = replace(env, generation=replace(env.generation, temperature=config.temperature))
    jobs: list[tuple[DemonstratedPrompt, list[int], int]] = []
    for sample in range(config.samples):
        drawn: dict[str, list[int]] = {}
        for place, row in enumerate(batch):
            fair = {name: program for name, program in pool.items() if not program.shows(row)}
            drawn.setdefault(choose(run, env, fair, start, config.draw).prompt.id, []).append(place)
        jobs += [(pool[name], places, step * config.samples + sample) for name, places in drawn.items()]

    async def answer(branch: Run, job: tuple[DemonstratedPrompt, list[int], int]) -> list[Rollout]:
        return await warm.evaluate(branch, job[0].prompt, [batch[i] for i in job[1]], job[2])

    rollouts: dict[int, list[Rollout]] = {}
    for (program, places, _), outcome in zip(jobs, await run.map(answer, jobs), strict=True):
        program.rewards += [r.reward for r in outcome]
        for place, rollout in zip(places, outcome, strict=True):
            rollouts.setdefault(place, []).extend(answered_rollouts([rollout]))
    contrasts = [Contrast(batch[place], each) for place, each in rollouts.items() if each]
    return sorted(contrasts, key=lambda c: c.rank, reverse=True)


@dataclass(frozen=True)
class Changes:
    """The changes that the contrasts of a step make to a prompt."""

    env: Environment
    policy: LanguagePolicy
    start: Prompt
    config: Config
    contrasts: Sequence[Contrast]
    batch: Sequence[Example]

    async def score(self, run: Run, change: tuple[DemonstratedPrompt, str]) -> list[Rollout]:
        """The rollouts of a new prompt on the rows of the minibatch that it does not show; none where it shows them all."""
        rows = [row for row in self.batch if not change[0].shows(row)]
        return await self.env.evaluate(run, change[0].prompt, rows) if rows else []

    async def change(self, run: Run, job: tuple[DemonstratedPrompt, Contrast]) -> DemonstratedPrompt | None:
        """The prompt with a demonstration or a rule more, by a coin, and some demonstrations fewer; None where neither fits."""
        parent, contrast = job
        demos = self.drop_demonstrations(run, parent.demos)
        if run.rng.random() < 0.5 and self.config.k:
            demos += self.demonstration(contrast)
            instruction = parent.instruction
        else:
            instruction = await self.add_rule(run, parent.instruction, contrast) or parent.instruction
        prompt = with_demonstrations(self.start, demos, instruction)
        if prompt is None or (instruction == parent.instruction and set(demos) <= set(parent.demos)):
            return None
        return DemonstratedPrompt(prompt, instruction, demos)

    def drop_demonstrations(self, run: Run, demos: tuple[Demonstration, ...]) -> tuple[Demonstration, ...]:
        """Some demonstrations fewer: a Poisson number with their share of `k` as its mean, at least one where they are `k`."""
        number = max(poisson(run, len(demos) / max(1, self.config.k)), int(len(demos) >= self.config.k))
        kept = sorted(run.rng.sample(range(len(demos)), max(0, len(demos) - number)))
        return tuple(demos[i] for i in kept)

    def demonstration(self, contrast: Contrast) -> tuple[Demonstration, ...]:
        """The best rollout as a demonstration; nothing where it is among the worst tenth of the step."""
        if contrast.best.reward <= self.percentile(10) and contrast.best.reward < self.env.reward.high:
            return ()
        return tuple(demonstrations(self.env, self.start, [contrast.best], 0.0, secrets))

    async def add_rule(self, run: Run, instruction: Prompt, contrast: Contrast) -> Prompt | None:
        """The instruction with a rule that tells the best from the worst rollout; None where these say nothing."""
        best, worst, regions = contrast.best, contrast.worst, instruction_regions(self.start)
        if (
            not regions
            or best.reward <= worst.reward
            or best.reward <= self.percentile(10)
            or worst.reward >= self.percentile(90)
        ):
            return None
        region = run.rng.choice(regions)
        focused = self.start.with_focus(region)
        text = text_in(focused, instruction)
        about = setting(self.env.description, self.start, region)
        question = introspection(
            about, text, contrast.example, in_focus(best, focused), in_focus(worst, focused)
        )
        sample = run.rng.getrandbits(30)
        for rule in await self.policy.write(run, question, "RULE", sample=sample):
            if not copied_input(rule, self.env.train, self.start.source) and not secrets(rule):
                base = instruction.restore(region, self.start)
                return replace_region(base, f"{text.rstrip()}\n\n{rule}".lstrip(), region)
        return None

    def percentile(self, percent: int) -> float:
        """A percentile of the rewards of the step."""
        rewards = [r.reward for c in self.contrasts for r in c.rollouts]
        return quantiles(rewards, n=100, method="inclusive")[percent - 1] if len(rewards) > 1 else rewards[0]


def poisson(run: Run, mean: float) -> int:
    """A Poisson number, by Knuth's product of uniform ones."""
    number, product = 0, run.rng.random()
    while product > math.exp(-mean):
        number, product = number + 1, product * run.rng.random()
    return number


def introspection(about: str, text: str, example: Example, best: Rollout, worst: Rollout) -> str:
    """The question to the optimizer: the instruction, a good and a bad answer to one input, the request."""
    good, bad = (show_rollout(example, rollout) for rollout in (best, worst))
    shown = f"{GOOD}\n\n<ANSWER>\n{good}\n</ANSWER>\n\n{BAD}\n\n<ANSWER>\n{bad}\n</ANSWER>"
    return f"{about}{INSTRUCTION}\n\n{in_tags(text)}\n\n{shown}\n\n{REQUEST}"


BEST = 6
INSTRUCTION = "The instruction of a language model:"
GOOD = "The model answered one input several times. This answer was good:"
BAD = "This answer was worse:"
REQUEST = (
    "Write one short rule with which the model would answer as the good answer does. Say for which inputs the rule holds, and "
    "what to do with them. The rule must help with other inputs of this kind too. Do not copy the input."
)
