"""MODP: one change at a time, aimed at the objective that lacks most, kept if the whole gains and none falls below its floor.

Nema, Gulati, Giakoumakis, Thapaliya: MODP: Multi Objective Directional Prompting. 2025. arXiv:2504.18722. A paper for
practitioners: it lists objectives of the task and habits of the model, weighs them, and changes a prompt one direction at a
time. It has no algorithm line by line, no settings and no code; this is the loop that it describes.

    v <- objectives of the start on a sample S
    for round in 1..rounds:
        j <- the objective with the largest weighted gap to its best value (the direction)
        edit the prompt: one change aimed at j, shown the rows that are worst on j
        u <- objectives of the edit on S
        accept it if the weighted sum of u is above that of v and no objective is below its floor
        after `patience` rounds without an acceptance: go on from another prompt of the front
    return the best on validation

Differences from the paper:
1. People accept its edits; here the rule does. The floors are our reading: what the task demands of each objective (its
   margin or bounds, next to the start), by means over S.
2. Objectives are weighed by what they are worth in [0, 1] (docs/objectives.md), so that tokens and shares can be added.
3. After a rejection the next weakest objective is the direction, so that one that cannot gain does not block the others.
4. The paper stops by people's judgement and names a Pareto front as future work. Here the front of all edits is kept, by
   paired differences with their noise, and a search that is stuck goes on from a member of it drawn at random.
5. `edits` edits are tried in a round, each the change of one reply, and the best accepted one is taken.
6. The result is chosen on validation examples among the leaders of the rounds and the best of the front.
7. A task without objectives has one, its reward. Within a limit on calls all sizes are cut to what it pays.

Run it:  whet optimize TASK --method modp --lm openai/NAME --optimizer-lm openai/NAME
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from whet._util.fields import NonNegativeInt, PositiveInt
from whet.environments.environment import Environment
from whet.errors import named_fields, show_size
from whet.methods.method import MethodEntry
from whet.prompt import Prompt
from whet.rewards import Objective, Objectives
from whet.rl import LanguagePolicy, show_instruction
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.edits import text_in
from whet.search.front import Front, aims_of, vectors_of
from whet.search.minibatch import answered_rollouts, minibatch, show_rollout
from whet.search.plan import fit, validate_finalists, validate_leader
from whet.types import Example, Rollout, mean_score

ENTRY = MethodEntry(
    "modp",
    "MODP: one directed change at a time, for several objectives",
    version=2,
    rank=50,
    when="several objectives count at once: right, short, cheap",
    paper="Nema et al., 2025",
    arxiv="2504.18722",
    needs=("optimizer", "objectives"),
)


@named_fields
@dataclass(frozen=True)
class Config:
    """Settings of MODP."""

    rounds: NonNegativeInt = 20
    """Rounds of one direction each (N)."""
    edits: PositiveInt = 2
    """Edits tried in a round."""
    examples: PositiveInt = 40
    """Training examples of the sample S, the same for all prompts."""
    exemplars: NonNegativeInt = 4
    """Rows shown with an edit, those that are worst on the objective it is aimed at."""
    patience: PositiveInt = 3
    """Rounds without an acceptance before the search continues from another prompt of the front (P)."""
    finalists: PositiveInt = 3
    """Prompts of the front measured on validation examples at the end."""


async def modp(
    run: Run, env: Environment, policy: LanguagePolicy, start: Prompt, config: Config
) -> Candidate:
    """Directional edits over several objectives; see the module."""
    plan = fit(run, env, config.rounds, config.edits, config.examples, finalists=config.finalists)
    archive = Archive()
    await archive.validate(run, plan.env, [Candidate(start)])
    rows = minibatch(run.rng, env.train, plan.examples, balanced=bool(env.labels))
    first = await env.evaluate(run, start, rows)
    aims = aims_of(env, first)
    floors = replace(aims, baseline=aims.means(first))
    points = {start.id: _Point(aims, Candidate(start, score=mean_score(first)), first)}
    front, parent, refused = Front(aims.items), points[start.id], 0
    front.add(parent.candidate, vectors_of(env, first))
    for number in range(plan.rounds):
        aim = direction(aims, parent, refused)
        question = meta_prompt(env, start, aims, parent, aim, rows, config.exemplars)
        text, sample = text_in(start, parent.candidate.prompt), number * plan.width
        written = await policy.adapt().rewrite(run, start, question, plan.width, sample=sample, text=text)
        edits = list({p.id: p for p in written if p.id not in points}.values())
        measured = await run.map(lambda branch, prompt: env.evaluate(branch, prompt, rows), edits)
        children = []
        for prompt, rollouts in zip(edits, measured, strict=True):
            operator, score = f"aimed at {aim.name}", mean_score(rollouts)
            child = Candidate(prompt, (parent.candidate.id,), operator, score)
            children.append(_Point(aims, child, rollouts))
            points[child.id] = children[-1]
            archive.add(run, child)
            front.add(child, vectors_of(env, rollouts))
        accepted = [c for c in children if c.worth > parent.worth and floors.meets(c.means)]
        parent, refused = (max(accepted, key=lambda c: c.worth), 0) if accepted else (parent, refused + 1)
        if refused >= config.patience:
            parent, refused = points[run.rng.choice(front.front()).id], 0
        await validate_leader(run, plan, archive, parent.candidate)
    ranked = sorted((points[c.id] for c in front.front()), key=lambda p: (floors.meets(p.means), p.worth))
    return await validate_finalists(run, plan, archive, [p.candidate for p in reversed(ranked)])


class _Point:
    """A prompt with its rollouts on the sample: the mean and the worth of each objective, and of the whole."""

    def __init__(self, aims: Objectives, candidate: Candidate, rollouts: Sequence[Rollout]) -> None:
        self.candidate, self.rollouts = candidate, answered_rollouts(rollouts)
        self.worths = aims.worths(rollouts)
        self.means = aims.means(rollouts)
        self.worth = sum(item.weight * self.worths[item.name] for item in aims.items)


def direction(aims: Objectives, parent: _Point, refused: int) -> Objective:
    """The objective with the largest weighted gap to its best; after each refusal the next one."""
    order = sorted(aims.items, key=lambda item: -item.weight * (1.0 - parent.worths[item.name]))
    return order[refused % len(order)]


def meta_prompt(
    env: Environment,
    start: Prompt,
    aims: Objectives,
    parent: _Point,
    aim: Objective,
    rows: Sequence[Example],
    shown: int,
) -> str:
    """The question to the optimizer: the instruction, where it stands on every objective, the worst rows, the change."""
    text = text_in(start, parent.candidate.prompt)
    means = [f"- {i.name}: {show_size(parent.means[i.name])}, {describe_direction(i)}" for i in aims.items]
    examples = {example.id: example for example in rows}
    worst = sorted(parent.rollouts, key=lambda r: aims.worths([r])[aim.name])[:shown]
    seen = [
        f"{show_rollout(examples[r.example_id], r)}\n{aim.name}: {show_size(aims.values(r)[aim.name])}"
        for r in worst
    ]
    parts = [
        f"{PURPOSE}\n\n{show_instruction(env.description, start, text, INSTRUCTION)}",
        "\n".join([STANDS, *means]),
        *([WORST, *seen] if seen else []),
        f"{CHANGE} {aim.name} ({describe_direction(aim)}). {KEEP}",
    ]
    return "\n\n".join(parts)


def describe_direction(item: Objective) -> str:
    """The direction of an objective in words."""
    return "more is better" if item.goal.maximise else "less is better"


PURPOSE = "You improve the instruction of a language model. Several aims count at once."
INSTRUCTION = "The instruction now:"
STANDS = "What it reaches on average, by aim:"
WORST = "Inputs on which it does worst in the aim that is to be improved:"
CHANGE = "Write the instruction again with one change that improves this aim:"
KEEP = "Keep what serves the other aims. The change must help with all inputs of this kind; do not copy the inputs above."
