"""PMPO: prompts are compared by the loss of the right answer, and a look at what each part is worth guides the rewrites.

Zhao et al.: PMPO: Probabilistic Metric Prompt Optimization for Small and Large Language Models. 2025. arXiv:2505.16307.

    p* <- start;  L(p) = mean over the rows of minus log P(target | p, input)
    for round in 1..rounds:
        hard <- the `hard` rows with the highest loss under p*
        the model marks at most `units` parts of p* that could be left out
        for each part u: delta(u) <- L(p* without u) - L(p*)          (above 0: the part helps)
        V <- for each hard row `variants` rewrites of p*, from the row and the deltas
        q <- the one of V with the lowest loss;  p* <- q if L(q) < L(p*)
    return p*

Differences from the paper:
1. The result is chosen on validation rows among the start and the p* of the rounds; the paper returns the last p*.
2. The loss is that of the label where a model scores labels (`reward` names another figure of the score). For free text take the
   reward `perplexity`, which is a mean over tokens: the paper's sum weighs rows with long targets more. Where the task has
   neither, the reward stands in for the loss.
3. A part of p* without which the loss is lower is itself a candidate for q. The paper only shows its delta.
4. A part that is not in the text word for word, or that holds a slot, is not measured.
5. A rewrite that copies private data from its hard row is dropped.
6. If the start prompt has a reward of zero, two other prompts are tried first (`whet.search.from_zero`).
7. Under a limit on calls, rounds, rewrites, parts and rows are reduced to fit (`whet.search.plan`).

Run it:  whet optimize TASK --method pmpo --lm hf/PATH --optimizer-lm openai/NAME
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from whet._util.fields import NonNegativeInt, PositiveInt
from whet.environments.environment import Environment
from whet.errors import named_fields
from whet.instructions.guard import secrets
from whet.methods.method import MethodEntry
from whet.prompt import Prompt
from whet.rl import LanguagePolicy
from whet.rl.language import show_instruction
from whet.run import Run
from whet.search.anchored_edits import DELETE, AnchoredEdit
from whet.search.archive import Archive, Candidate
from whet.search.copies import objectionable
from whet.search.demonstrations import rows_not_shown
from whet.search.edits import replace_region, text_in
from whet.search.from_zero import FirstPrompt, leave_zero
from whet.search.label_signal import Signal, label_signal
from whet.search.minibatch import minibatch, show_rollout
from whet.search.plan import SearchPlan, fit, validate_finalists, validate_leader
from whet.search.population import Individual, fittest, grade_new
from whet.types import Example, Score

ENTRY = MethodEntry(
    "pmpo",
    "PMPO: rewrites compared by loss, guided by what each part is worth",
    version=1,
    rank=46,
    when="a model scores labels or targets, and rows are few: a loss tells prompts apart that get equally many right",
    paper="Zhao et al., 2025",
    arxiv="2505.16307",
    needs=("optimizer",),
)


@named_fields
@dataclass(frozen=True)
class Config:
    """Settings of PMPO."""

    rounds: NonNegativeInt = 20
    """Rounds."""
    hard: PositiveInt = 3
    """Rows of the highest loss in a round, each the reason for rewrites of its own (k)."""
    variants: PositiveInt = 4
    """Rewrites for each hard row (n)."""
    units: NonNegativeInt = 5
    """The number of parts of the prompt that are left out in turn to measure their value; 0: no parts."""
    examples: PositiveInt = 50
    """Training rows that each prompt is measured on."""
    reward: Signal = "auto"
    """The figure by which prompts are compared; auto: likelihood if a model scores labels and the task counts right labels,
    else the task's reward."""
    finalists: PositiveInt = 2
    """Prompts measured on validation examples at the end, if they are not yet."""


async def pmpo(
    run: Run, env: Environment, policy: LanguagePolicy, start: Prompt, config: Config
) -> Candidate:
    """Search by loss with mask analysis; see the module."""
    written = config.hard * config.variants
    width = LOOK + config.units + written
    asks = (1 + written) / width
    plan = fit(
        run, env, config.rounds, width, config.examples, finalists=config.finalists, asks=asks, least=LOOK + 1
    )
    archive = Archive()
    await archive.validate(run, plan.env, [Candidate(start)])
    rows = minibatch(run.rng, env.train, plan.examples, balanced=bool(env.labels))
    search = LossSearch(env, archive, plan, start, rows, config)
    best = (await search.grade(run, [(start, "start")], ()))[0]
    search.plan, firsts = await leave_zero(run, plan, archive, start, secrets, rows)
    if firsts:
        best = await search.measure_first(run, firsts[0])
    search.leaders.append(best)
    for number in range(search.plan.rounds):
        policy = policy.adapt()
        graded = await search.step(run, policy, best, number * STRIDE)
        leader = fittest(graded, 1)
        if leader and leader[0].fitness > best.fitness:
            best = leader[0]
            search.leaders.append(best)
            await validate_leader(run, search.plan, archive, best.candidate)
    ranked = [one.candidate for one in fittest(search.leaders, config.finalists)]
    return await validate_finalists(run, search.plan, archive, ranked)


@dataclass
class LossSearch:
    """The state of a search by loss. A fitness is minus a loss: the larger, the better."""

    env: Environment
    archive: Archive
    plan: SearchPlan
    start: Prompt
    rows: Sequence[Example]
    config: Config
    leaders: list[Individual[str]] = field(default_factory=list)
    fitness: dict[str, float] = field(default_factory=dict)
    """Of each prompt that was measured, by its id."""
    hard: dict[str, list[int]] = field(default_factory=dict)
    """Of each leader, by its id, the rows from hard to easy."""

    @property
    def signal(self) -> tuple[str, ...]:
        """The parts of the score that make the fitness; none for the reward itself."""
        return label_signal(self.env, self.config.reward, "likelihood")

    async def hardest(self, run: Run, prompt: Prompt, most: int) -> list[Example]:
        """The rows with the lowest fitness under a prompt, the worst first."""

        async def measure(branch: Run, row: Example) -> float:
            (score,) = await self.env.score(branch, [prompt], [row])
            return self.value(score)

        if prompt.id not in self.hard:
            values = await run.map(measure, self.rows)
            self.hard[prompt.id] = sorted(range(len(values)), key=values.__getitem__)
        return [self.rows[at] for at in self.hard[prompt.id][:most]]

    async def grade(
        self, run: Run, prompts: Sequence[tuple[Prompt, str]], parents: tuple[str, ...]
    ) -> list[Individual[str]]:
        """Measure new prompts, each with the operator that made it."""
        new = [Individual(Candidate(prompt, parents, operator), "") for prompt, operator in prompts]
        graded = await grade_new(run, self.env, self.archive, new, self.rows, self.signal)
        self.fitness |= {one.candidate.id: one.fitness for one in graded}
        return graded

    async def measure_first(self, run: Run, first: FirstPrompt) -> Individual[str]:
        """A prompt that was tried because the start earns nothing, measured on the rows that it does not show."""
        rows = rows_not_shown(self.rows, first.demos) or self.rows
        (score,) = await self.env.score(run, [first.candidate.prompt], rows)
        return Individual(first.candidate, "", self.value(score))

    def value(self, score: Score) -> float:
        """Minus the loss."""
        return sum(score.parts[name] for name in self.signal) if self.signal else score.mean

    async def step(
        self, run: Run, policy: LanguagePolicy, best: Individual[str], sample: int
    ) -> list[Individual[str]]:
        """Mask analysis, then rewrites for the hardest rows: all prompts that were measured."""
        width = self.plan.width - LOOK
        units = min(self.config.units, width // 3)
        masked, hints = await self.mask(run, policy, best, units, sample) if units else ([], "")
        room = max(1, width - units)
        hard = await self.hardest(run, best.candidate.prompt, min(self.config.hard, room))
        rollouts = await self.env.evaluate(run, best.candidate.prompt, hard)
        text = text_in(self.start, best.candidate.prompt)
        head = show_instruction(self.env.description, self.start, text)

        async def rewrite(branch: Run, at: int) -> list[tuple[Prompt, str]]:
            shown = show_rollout(hard[at], rollouts[at])
            parts = [head, HARD, shown, *([hints] if hints else []), REQUEST]
            variants = min(self.config.variants, room // len(hard) + (at < room % len(hard)))
            first = sample + 1 + at * self.config.variants
            new = await policy.rewrite(
                branch, self.start, "\n\n".join(parts), variants, sample=first, text=text
            )
            return [
                (p, "rewrite")
                for p in new
                if not objectionable(secrets, [hard[at]], text, text_in(self.start, p))
            ]

        written = await run.map(rewrite, range(len(hard)))
        parents = (best.candidate.id,)
        return [*masked, *await self.grade(run, [one for group in written for one in group], parents)]

    async def mask(
        self, run: Run, policy: LanguagePolicy, best: Individual[str], most: int, sample: int
    ) -> tuple[list[Individual[str]], str]:
        """The prompts without one part each, and what a rewriter is told about the parts."""
        text = text_in(self.start, best.candidate.prompt)
        question = f"{show_instruction(self.env.description, self.start, text)}\n\n{mark_request(most)}"
        marked = await policy.write(run, question, "PART", sample=sample, many=True)
        without: dict[str, tuple[str, Prompt]] = {}
        for unit in dict.fromkeys(marked):
            shorter = AnchoredEdit(DELETE, anchor=unit).of(text)
            prompt = replace_region(self.start, shorter) if shorter and shorter.strip() else None
            if prompt is not None and len(without) < most:
                without[prompt.id] = unit, prompt
        parts = [(prompt, "mask") for _, prompt in without.values()]
        graded = await self.grade(run, parts, (best.candidate.id,))
        lines = [
            f"{best.fitness - self.fitness[name]:+.3f}: {unit}"
            for name, (unit, _) in without.items()
            if name in self.fitness
        ]
        return graded, "\n".join([WORTH, *lines]) if lines else ""


def mark_request(most: int) -> str:
    """The request for the parts that could be left out."""
    return (
        f"Mark at most {most} parts of this instruction (sentences, clauses, list items) that could be left out. Copy each part "
        "word for word, without any slot."
    )


LOOK = 2
"""The largest cost of the look at the rows of a leader, in prompts' worth of calls."""
STRIDE = 1000
"""Sample numbers of a round."""
HARD = "With this instruction the right answer to the following input is least likely:"
WORTH = "How much worse the instruction gets without each of these parts (below 0: it gets better):"
REQUEST = (
    "Say to yourself why the instruction fails on this input. Then write a better instruction: keep the parts that help, drop or "
    "rewrite those that do harm, and add what is missing. It must work for any input of this kind, not only for this one."
)
