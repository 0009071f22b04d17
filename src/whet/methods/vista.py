"""VISTA: hypotheses about the cause of failures are made apart from the rewrite, labelled, tried on the same rows, and traced.

VISTA: hypotheses apart from rewrites, for reflective prompt optimisation. ACL SRW 2026. arXiv:2603.18388.

    pool <- {start, validated};  trace <- tree of (label, gain)
    while the budget lasts:
        parent <- drawn from the pool by the number of validation rows on which it is best
        roll it out on a minibatch
        with probability p a restart: write a prompt from nothing, from one input with the raw answer and how it was graded
        else write K labelled hypotheses on why it fails: each with probability 1 - eps of a class of the list, else free;
            rewrite the parent against each of them
        score the new prompts on the same minibatch;  the best one with a gain is validated and enters the pool with its label
    return the best of the pool on validation

Differences from the paper:
1. A class of the list is drawn for each hypothesis, the classes that were tried below this parent last; the paper lets the model
   pick from the list. So no class is left out because the model never thinks of it.
2. The order of the list is drawn for each run. In the paper the first class of the list is the defect that was planted.
3. Hypotheses are written in one call, and a restart in one. A text that the prompt refuses is asked for once more; the paper asks
   until it parses.
4. The trace shows labels and gains on the way to the parent and below it; `history` shows counts and means of the classes
   instead, or nothing. The paper also joins labels that alternate.
5. Of the new prompts of a round only the best with a gain is validated; a restart has to gain too.
6. A text that copies 32 characters in a row from the input of a single example is dropped.
7. If the start prompt has a reward of zero, two other prompts are tried first (`whet.search.from_zero`).
8. Under a limit on calls, rounds, hypotheses and minibatches are reduced to fit (`whet.search.plan`). Where the
   optimizer's calls are the narrower limit, minibatches grow.

Run it:  whet optimize TASK --method vista --lm openai/NAME --optimizer-lm openai/NAME
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from whet._util.fields import NonNegativeInt, PositiveInt, Probability
from whet.environments.environment import Environment
from whet.errors import named_fields
from whet.instructions.guard import secrets
from whet.methods.method import MethodEntry
from whet.prompt import Prompt
from whet.rl import LanguagePolicy, setting, show_instruction
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.copies import copied_input
from whet.search.edits import text_in
from whet.search.example_front import front
from whet.search.from_zero import leave_zero
from whet.search.history import History, show_attempts
from whet.search.minibatch import gains, minibatch, mistakes, show_rollout
from whet.search.plan import SearchPlan, fit, validate_finalists
from whet.types import Example, Rollout, mean_score

ENTRY = MethodEntry(
    "vista",
    "VISTA: labelled hypotheses, restarts, and a front per example",
    version=2,
    rank=28,
    when="the prompt may have a fault that its wrong answers do not show",
    paper="VISTA, ACL SRW 2026",
    arxiv="2603.18388",
    needs=("optimizer",),
)


@named_fields
@dataclass(frozen=True)
class Config:
    """Settings of VISTA."""

    rounds: NonNegativeInt = 30
    """Rounds."""
    minibatch: PositiveInt = 8
    """Training examples of a round, the same for the parent and all its children."""
    hypotheses: PositiveInt = 3
    """Hypotheses of a round, each leading to one rewrite (K)."""
    restart: Probability = 0.2
    """The probability that a prompt is written from scratch instead (p)."""
    free: Probability = 0.1
    """The probability that a hypothesis has no class of the list (epsilon)."""
    shown: PositiveInt = 5
    """Failures shown at once."""
    finalists: PositiveInt = 2
    """Prompts with a gain that are validated at the end, if they are not yet."""
    history: History = "raw"
    """The history that the optimizer sees: each earlier trial (raw); the count and mean gain of each class with its interval
    (summary); or none."""


async def vista(
    run: Run, env: Environment, policy: LanguagePolicy, start: Prompt, config: Config
) -> Candidate:
    """Hypotheses apart from rewrites; see the module."""
    width = 1 + config.hypotheses
    plan = fit(run, env, config.rounds, width, config.minibatch, finalists=config.finalists, least=2)
    plan = widen(plan)
    tree = TraceTree(plan, start, run.rng.sample(list(CLASSES), len(CLASSES)))
    await tree.archive.validate(run, plan.env, [Candidate(start)])
    plan, firsts = await leave_zero(run, plan, tree.archive, start, secrets)
    tree.pool += [Candidate(start), *(first.candidate for first in firsts)][-1:]
    for number in range(plan.rounds):
        parent, batch = tree.draw(run), minibatch(run.rng, env.train, plan.examples)
        asker = Asker(env, policy.adapt(), start, config, batch, number * 100)
        olds = await env.evaluate(run, parent.prompt, batch)
        wrong = mistakes(olds, env.reward.high)
        if not wrong:
            continue
        if run.rng.random() < config.restart:
            tried = [(RESTART, prompt) for prompt in await asker.restart(run, parent, wrong)]
        else:
            labels = tree.labels(run, parent, min(config.hypotheses, plan.width - 1), config.free)
            tried = await asker.hypothesise(run, parent, wrong, labels, tree.trace(parent, config.history))
        children = {p.id: (label, p) for label, p in tried if p not in tree.archive}
        prompts = [prompt for _, prompt in children.values()]
        answers = await asker.answers(run, prompts)
        for (label, prompt), news in zip(children.values(), answers, strict=True):
            tree.record(run, parent, label, prompt, sum(gains(olds, news)) / len(batch), news)
        await tree.grow(run, parent)
    return await validate_finalists(run, plan, tree.archive, tree.rank())


def widen(plan: SearchPlan) -> SearchPlan:
    """The plan with the minibatches that the rollouts pay for, where a limit on the optimizer's calls leaves some."""
    if plan.rollouts is None or not plan.rounds:
        return plan
    size = min(len(plan.env.train), plan.rollouts // (1 + plan.rounds * plan.width))
    return replace(plan, examples=max(plan.examples, size))


@dataclass(frozen=True)
class Edge:
    """A trial: from which prompt, under which label, to which candidate, with which gain on a minibatch."""

    parent: str
    label: str
    child: Candidate
    gain: float


@dataclass
class TraceTree:
    """All trials, and the pool of prompts that may be parents."""

    plan: SearchPlan
    start: Prompt
    classes: Sequence[str]
    archive: Archive = field(default_factory=Archive)
    pool: list[Candidate] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)

    def draw(self, run: Run) -> Candidate:
        """A parent, by the number of validation rows on which it is best; one that is not validated counts as its parent does."""
        rows = [row.id for row in self.plan.env.validation]
        low = self.plan.env.reward.low
        scores = {
            one.id: [self.archive.rewards[one.id].get(row, low) for row in rows]
            for one in self.pool
            if one.id in self.archive.rewards
        }
        wins = front(scores) if scores else {}
        weights = [
            wins.get(one.id, 0) if one.id in scores else max((wins.get(p, 0) for p in one.parents), default=1)
            for one in self.pool
        ]
        return run.rng.choices(self.pool, [weight or 0.1 for weight in weights])[0]

    def labels(self, run: Run, parent: Candidate, number: int, free: float) -> list[str]:
        """A label for each hypothesis, all different but the free ones: classes not yet tried from this parent first."""
        tried = [edge.label for edge in self.edges if edge.parent == parent.id]
        classes = sorted(run.rng.sample(self.classes, len(self.classes)), key=tried.count)
        return [FREE if run.rng.random() < free else label for label in classes[:number]]

    def trace(self, parent: Candidate, history: History = "raw") -> str:
        """The prompts that were tried on the way to a prompt and from it, with their gains."""
        line = set(self.archive.lineage(parent.id))
        seen = [
            (edge.label, edge.gain)
            for edge in self.edges
            if edge.child.id in line or edge.parent == parent.id
        ]
        return show_attempts(history, seen, self.plan.env.reward.high - self.plan.env.reward.low)

    def record(
        self, run: Run, parent: Candidate, label: str, prompt: Prompt, gain: float, news: Sequence[Rollout]
    ) -> None:
        """Take in a trial."""
        child = Candidate(prompt, (parent.id,), label, mean_score(news))
        self.archive.add(run, child)
        self.edges.append(Edge(parent.id, label, child, gain))

    async def grow(self, run: Run, parent: Candidate) -> None:
        """The best new child of a parent, if it gained, joins the pool, validated as far as the plan pays for it."""
        inside = {one.id for one in self.pool}
        new = [
            edge
            for edge in self.edges
            if edge.parent == parent.id and edge.child.id not in inside and edge.gain > 0
        ]
        if not new or (best := max(new, key=lambda edge: edge.gain)) not in self.edges[-len(CLASSES) :]:
            return
        self.pool.append(best.child)
        if len(self.archive.validated) < self.plan.validations - self.plan.finalists:
            await self.archive.validate(run, self.plan.env, [best.child])

    def rank(self) -> list[Candidate]:
        """The pool by the gains on the way to each prompt, the largest sum first."""
        gain = {edge.child.id: edge for edge in reversed(self.edges)}

        def total(name: str) -> float:
            return gain[name].gain + total(gain[name].parent) if name in gain else 0.0

        return sorted(self.pool, key=lambda one: -total(one.id))


@dataclass(frozen=True)
class Asker:
    """The questions of one round. `sample` numbers its requests, so that no round repeats another's."""

    env: Environment
    policy: LanguagePolicy
    start: Prompt
    config: Config
    batch: Sequence[Example]
    sample: int

    async def hypothesise(
        self, run: Run, parent: Candidate, wrong: Sequence[Rollout], labels: Sequence[str], trace: str
    ) -> list[tuple[str, Prompt]]:
        """Prompts, each rewritten against one hypothesis, with its label."""
        rows = {row.id: row for row in self.batch}
        text = text_in(self.start, parent.prompt)
        about = show_instruction(self.env.description, self.start, text)
        shown = [show_rollout(rows[r.example_id], r) for r in wrong[: self.config.shown]]
        wanted = "\n".join(f"{i}. {label}" for i, label in enumerate(labels, 1))
        known = [f"{TRACE}\n{trace}"] if trace else []
        question = "\n\n".join([about, FAILED, *shown, *known, f"{CAUSES}\n{wanted}", HYPOTHESES])
        causes = await self.policy.write(run, question, "HYPOTHESIS", sample=self.sample, many=True)

        async def rewrite(branch: Run, at: int) -> list[tuple[str, Prompt]]:
            cause = f"{CAUSE} {labels[at]}\n{causes[at]}"
            request = "\n\n".join([about, cause, EDIT])
            prompts = await self.policy.rewrite(
                branch, self.start, request, sample=self.sample + 1 + at, text=text
            )
            return [(labels[at], prompt) for prompt in prompts if self.admits(prompt)]

        rewritten = await run.map(rewrite, range(min(len(causes), len(labels))))
        return [one for made in rewritten for one in made]

    async def restart(self, run: Run, parent: Candidate, wrong: Sequence[Rollout]) -> list[Prompt]:
        """A prompt that is written without a look at the one before: from one input, its raw answer and how it was graded."""
        rows = {row.id: row for row in self.batch}
        shown = show_rollout(rows[wrong[0].example_id], wrong[0])
        question = "\n\n".join([f"{setting(self.env.description, self.start)}{BLANK}", shown, ANEW])
        text = text_in(self.start, parent.prompt)
        prompts = await self.policy.rewrite(run, self.start, question, sample=self.sample, text=text)
        return [prompt for prompt in prompts if self.admits(prompt)]

    async def answers(self, run: Run, prompts: Sequence[Prompt]) -> list[list[Rollout]]:
        """Rollouts of prompts on the minibatch."""
        return await run.map(lambda branch, prompt: self.env.evaluate(branch, prompt, self.batch), prompts)

    def admits(self, prompt: Prompt) -> bool:
        """Whether the new text copies no single input."""
        return not copied_input(text_in(self.start, prompt), self.env.train, self.start.source)


CLASSES = (
    "order: the answer is asked for before the work that leads to it, or parts stand in the wrong order",
    "form: the form of the answer is missing, wrong, or contradicts what is graded",
    "clarity: the task or a condition is vague or can be read in two ways",
    "strategy: the way to think about it, step by step, is missing or wrong",
    "knowledge: facts, rules or definitions of this field are missing",
    "edge cases: unusual inputs are not provided for",
    "unclassified: something that none of the usual causes explains",
)
FREE = "free: any cause, the less usual the better"
RESTART = "restart"
FAILED = "With this instruction the model failed on these inputs:"
TRACE = "Causes that were repaired so far, each with the change of the score that followed:"
CAUSES = "Causes to consider, one hypothesis for each, in this order:"
HYPOTHESES = (
    "For each of these causes write one hypothesis: what exactly in the instruction, or missing from it, makes the model fail "
    "here, and how to repair it. Write no new instruction."
)
CAUSE = "The instruction has this fault,"
EDIT = "Repair this fault in the instruction and change nothing else. Copy no input."
BLANK = "A language model got an input, answered, and was graded:"
ANEW = (
    "Write an instruction for the model from nothing, with which it does this task: what to do with any input of this kind, and "
    "in which form to answer, so that it can be graded. Do not copy the input."
)
