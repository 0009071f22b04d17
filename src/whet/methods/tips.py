"""Introspective Tips: short general tips from failures, beside what would have been right; a tip stays while it helps.

Chen, Wang, Xu, Xie, Zhao: Introspective Tips: Large Language Model for In-Context Decision Making. 2023. arXiv:2305.11598.

    tips <- empty
    for round in 1..rounds:
        answer a batch of training examples with the tips
        write up to `new` tips from the worst answers, each beside the expert's or the best answer
        measure one tip by leaving it out; a tip that helps nothing goes
        keep the new tips only where the mean reward does not fall
    return the best tips

Differences from the paper:
1. Which tips stay is decided by measured effects, the change of reward when a tip is left out of the prompt, one tip a round in
   turn. The paper leaves this to the model. `curation` of `random` lets chance choose, `none` keeps all.
2. The expert is the target of a row (`expert`); without one the model's own best answers stand beside the worst.
3. New tips are compared with the tips before them on the same batch. The result is chosen on validation examples.
4. A tip that reads the same as another, copies 32 characters in a row from a single input, or holds private data, is
   not taken in.
5. The world may have several turns; an episode is then shown by its last answer, its reward and the reward's critique.
6. If the start prompt has a reward of zero, two other prompts are tried first (`whet.search.from_zero`).
7. Under a limit on calls, batches and rounds are reduced to fit (`whet.search.plan`).

Run it:  whet optimize TASK --method tips --lm openai/NAME --optimizer-lm openai/NAME
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Literal

from whet._util.fields import NonNegativeInt, PositiveInt
from whet.environments.environment import Environment
from whet.errors import named_fields
from whet.instructions.guard import secrets
from whet.methods.method import MethodEntry
from whet.prompt import Prompt
from whet.rl import LanguagePolicy, show_instruction
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.lessons import LessonList, begin_lessons
from whet.search.minibatch import (
    answered_rollouts,
    gains,
    infinite_batches,
    mistakes,
    next_rows,
    show_rollout,
)
from whet.search.plan import fit, validate_finalists, validate_leader
from whet.types import Example, Rollout, mean_score

ENTRY = MethodEntry(
    "tips",
    "Introspective Tips: general tips from failures, each measured",
    version=1,
    rank=94,
    when="a few general tips should help, and each tip must have a measured effect",
    paper="Chen et al., 2023",
    arxiv="2305.11598",
    needs=("optimizer",),
)


@named_fields
@dataclass(frozen=True)
class Config:
    """Settings of Introspective Tips."""

    rounds: NonNegativeInt = 15
    """Rounds of answering and writing tips."""
    batch: PositiveInt = 30
    """Training examples of a round."""
    shown: PositiveInt = 6
    """Answers that the writer reads at most."""
    new: PositiveInt = 2
    """Tips written in a round at most."""
    most: PositiveInt = 10
    """Tips at most."""
    expert: bool = True
    """Whether the writer sees the targets."""
    curation: Literal["effect", "random", "none"] = "effect"
    """The tips that are removed: those without a measured effect, random tips, or none."""
    finalists: PositiveInt = 3
    """Lists measured on validation examples at the end."""


async def tips(
    run: Run, env: Environment, policy: LanguagePolicy, start: Prompt, config: Config
) -> Candidate:
    """Tips that stay while they help; see the module."""
    plan = fit(run, env, config.rounds, 3, config.batch, finalists=config.finalists, asks=1 / 3, least=3)
    archive, rows, effects = Archive(), infinite_batches(run.rng, env.train), dict[str, list[float]]()
    plan, current, known = await begin_lessons(run, plan, archive, start, config.most, secrets)
    for number in range(plan.rounds):
        policy = policy.adapt()
        batch = next_rows(rows, plan.examples)
        rollouts = await env.evaluate(run, current.prompt, batch)
        archive.add(run, replace(current, score=mean_score(rollouts)))
        await leave_one_out(run, env, known, number, batch, rollouts, effects)
        kept = known.without(useless(run, known, effects, config.curation))
        longer = kept
        for text in await write_tips(run, env, policy, kept, batch, rollouts, number, config):
            longer = longer.add(text)
        prompt = longer.prompt or current.prompt
        if prompt != current.prompt:
            news = await env.evaluate(run, prompt, batch)
            if sum(gains(rollouts, news)) >= 0:
                known = longer
                current = Candidate(prompt, (current.id,), f"round {number + 1}", mean_score(news))
                archive.add(run, current)
                await validate_leader(run, plan, archive, archive.top(1)[0])
    return await validate_finalists(run, plan, archive, [current, *archive.top(plan.finalists)])


async def leave_one_out(
    run: Run,
    env: Environment,
    known: LessonList,
    number: int,
    batch: Sequence[Example],
    rollouts: Sequence[Rollout],
    effects: dict[str, list[float]],
) -> None:
    """Measure one tip, that of the fewest rounds: how much reward the batch loses without it."""
    if not known.lessons:
        return
    least = min(known.lessons, key=lambda one: len(effects.get(one.key, ())))
    without = known.without([least.key]).prompt
    if without is not None:
        lost = gains(await env.evaluate(run, without, batch), rollouts)
        effects.setdefault(least.key, []).append(fmean(lost) if lost else 0.0)


def useless(run: Run, known: LessonList, effects: Mapping[str, Sequence[float]], curation: str) -> list[str]:
    """The keys of tips that go: those whose mean effect is negative, and of a full list the one with the least effect."""
    measured = [one.key for one in known.lessons if one.key in effects]
    harming = [key for key in measured if fmean(effects[key]) < 0]
    if curation == "random":
        keys = [one.key for one in known.lessons]
        number = max(len(harming), int(len(keys) >= known.most))
        return run.rng.sample(keys, min(number, len(keys)))
    if curation == "effect" and not harming and len(known.lessons) >= known.most and measured:
        return [min(measured, key=lambda key: fmean(effects[key]))]
    return harming if curation == "effect" else []


async def write_tips(
    run: Run,
    env: Environment,
    policy: LanguagePolicy,
    known: LessonList,
    batch: Sequence[Example],
    rollouts: Sequence[Rollout],
    number: int,
    config: Config,
) -> list[str]:
    """New tips from the worst answers of a batch beside the best; none where nothing went wrong."""
    rows = {row.id: row for row in batch}
    if not config.expert:
        rows = {name: replace(row, target=None) for name, row in rows.items()}
    wrong = mistakes(rollouts, env.reward.high)
    right = sorted((r for r in answered_rollouts(rollouts) if r not in wrong), key=lambda r: -r.reward)
    if not wrong:
        return []
    good = right[: config.shown // 3]
    bad = wrong[: config.shown - len(good)]
    blocks = [
        f"{heading}\n\n" + "\n\n".join(show_rollout(rows[r.example_id], r, whole=True) for r in some)
        for heading, some in ((BAD, bad), (GOOD, good))
        if some
    ]
    head = show_instruction(env.description, known.start, known.base)
    question = "\n\n".join([head, f"{TIPS}\n{known.shown or NONE}", *blocks, f"{REQUEST} {config.new}"])
    return (await policy.write(run, question, "TIP", sample=number, many=True))[: config.new]


TIPS = "The tips that stand below it:"
NONE = "(none yet)"
BAD = "With these the model did badly here:"
GOOD = "It did well here:"
REQUEST = (
    "Write new tips that make it do well on inputs like those above and on others of this kind. A tip is one general sentence "
    "that says what to do. Name no single input and repeat no tip. Tips at most:"
)
