"""The first prompts of a search whose start prompt earns nothing: two prompts that need no call of the optimizer model.

One shows training rows with their targets as answers, one row for each right answer where these are a closed set. The other
lists the right answers, where these are one (`whet.search.labels`). Where a search knows nothing but failures it learns little;
from a prompt that earns something it can go on. A search may try both together as well, with one row and with two for each right
answer (`joined`): some models continue examples, and write no more than the answer only where the list says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from whet.environments.environment import Environment
from whet.prompt import Prompt
from whet.rewards import JUDGE, LABELS, TARGET_SCORE, RewardFailed
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.demonstrations import (
    Demonstration,
    instruction_regions,
    label_rows,
    rows_not_shown,
    with_demonstrations,
)
from whet.search.edits import replace_region, text_in
from whet.search.labels import by_label, right_answers
from whet.search.minibatch import answered_rollouts, minibatch
from whet.search.plan import SearchPlan, validate_leader
from whet.types import JSON, Completion, Example, Rollout, mean_score

EVENT = "from_zero"
DEMONSTRATED, LISTED = "targets as demonstrations", "right answers listed"
JOINED = "targets as demonstrations, right answers listed"
"""The operators of the candidates."""
MOST_SHOWN, FREE_SHOWN, TRIED = 12, 4, 12
"""Demonstrations at most: of labels, of other targets; training rows on which the two prompts are tried where none are named."""
LIST = "Answer with exactly one of these and with nothing else:"

Objections = Callable[[str], Sequence[str]]
"""Says what must not stand in a prompt, such as `guard.secrets`."""


ListAnswers = Callable[[Prompt, Sequence[str]], Prompt | None]
"""Writes a list of the right answers into a prompt; None where the prompt refuses it."""


Proposal = tuple[str, Prompt | None, Sequence[Demonstration]]


def append_list(start: Prompt, answers: Sequence[str]) -> Prompt | None:
    """A prompt with the list of right answers below the text of its first region that holds instructions."""
    region = instruction_regions(start)[0]
    text = text_in(start.with_focus(region), start).rstrip()
    listed = "\n".join([LIST, *(f"- {answer}" for answer in answers)])
    return replace_region(start, f"{text}\n\n{listed}\n".lstrip(), region)


@dataclass(frozen=True)
class FirstPrompt:
    """A prompt that is tried before any other: its candidate with the score, the demonstrations in it, and its rollouts."""

    candidate: Candidate
    demos: tuple[Demonstration, ...]
    rollouts: tuple[Rollout, ...]


async def leave_zero(
    run: Run,
    plan: SearchPlan,
    archive: Archive,
    start: Prompt,
    objections: Objections,
    rows: Sequence[Example] = (),
    k: int | None = None,
) -> tuple[SearchPlan, list[FirstPrompt]]:
    """`from_zero` within the plan of a search: the plan less what that took, and the prompts that earn something, the best first.

    `rows`: the training rows on which the search scores its prompts; without, a few are drawn. A limit on calls pays for no more
    than half of its rollouts. The best prompt is validated where the plan has a validation for it.
    """
    env = plan.env
    if not earns_nothing(env, archive, start):
        return plan, []
    rows = rows or minibatch(run.rng, env.train, TRIED, balanced=True)
    if plan.rollouts is not None:
        rows = rows[: plan.rollouts // cost(2)]
    tried = await from_zero(run, env, archive, start, rows, objections, k)
    earning = [first for first in tried if first.candidate.mean > env.reward.low]
    if earning:
        await validate_leader(run, plan, archive, earning[0].candidate)
    return plan.without(sum(len(first.rollouts) for first in tried)), earning


async def from_zero(
    run: Run,
    env: Environment,
    archive: Archive,
    start: Prompt,
    rows: Sequence[Example],
    objections: Objections,
    k: int | None = None,
    listed: ListAnswers = append_list,
    *,
    joined: bool = False,
) -> list[FirstPrompt]:
    """The prompts, tried on those of the training `rows` that they do not show, the best first; they enter the archive.

    None where `start`, validated in the archive, earns something, where targets are no exact answers, and for a program, whose
    targets are the answers of none of its prompts. `k`: demonstrations at most, where the search has a number for it.
    `listed` writes the list of right answers into a prompt; `joined` tries it together with demonstrations too.
    """
    if not rows or not earns_nothing(env, archive, start) or not await targets_are_answers(run, env):
        return []
    made = [
        proposal
        for proposal in proposals(env, start, rows, objections, k, listed, joined=joined)
        if proposal[1] not in archive
    ]

    async def answers(branch: Run, one: tuple[str, Prompt, Sequence[Demonstration]]) -> list[Rollout]:
        return await env.evaluate(branch, one[1], rows_not_shown(rows, one[2]) or rows)

    outcomes = await run.map(answers, made)
    tried = [
        FirstPrompt(
            Candidate(prompt, (start.id,), operator, mean_score(rollouts)), tuple(demos), tuple(rollouts)
        )
        for (operator, prompt, demos), rollouts in zip(made, outcomes, strict=True)
    ]
    for first in tried:
        archive.add(run, first.candidate)
    if tried:
        means: list[JSON] = [[first.candidate.operator, first.candidate.mean] for first in tried]
        run.log(EVENT, {"rows": len(rows), "low": env.reward.low, "tried": means})
    return sorted(tried, key=lambda first: -first.candidate.mean)


def earns_nothing(env: Environment, archive: Archive, start: Prompt, rollouts: Sequence[Rollout] = ()) -> int:
    """Count the rows that prove that a start prompt of a single text earns nothing: all rows that it has answered, if each has
    the lowest reward. They are those of validation, the training rows that the search has scored it on, and those of further
    `rollouts`. 0 where it earns something, where it was not validated, and for a program."""
    scored = archive.members[start.id].score if start in archive else None
    rewards = [rollout.reward for rollout in answered_rollouts(rollouts)]
    means = [archive.validated.get(start.id, env.reward.high), *([scored.mean] if scored else []), *rewards]
    if start.parts or max(means) > env.reward.low:
        return 0
    validated = len(archive.rewards.get(start.id) or env.validation)
    return validated + (scored.n if scored else 0) + len(rewards)


def cost(rows: int, *, joined: bool = False) -> int:
    """Rollouts that the prompts take at most on so many rows."""
    return (4 if joined else 2) * rows


def proposals(
    env: Environment,
    start: Prompt,
    rows: Sequence[Example],
    objections: Objections,
    k: int | None = None,
    listed: ListAnswers = append_list,
    *,
    joined: bool = False,
) -> list[tuple[str, Prompt, Sequence[Demonstration]]]:
    """The prompts with their operators and what they show: rows that are not among `rows`, as far as there are some of each
    target. None that the prompt refuses, because of a slot, a marker or its length."""
    held, answers = {row.id for row in rows}, right_answers(env).complete
    order = sorted(env.train, key=lambda row: row.id in held)
    demos = [demo for demo in label_rows(env, start, by_label(order)) if not objections(demo.text)]
    shown = demos[: min(len(answers), MOST_SHOWN) or FREE_SHOWN][:k]
    made: list[Proposal] = [(DEMONSTRATED, with_demonstrations(start, shown) if shown else None, shown)]
    if answers and instruction_regions(start) and not objections("\n".join(answers)):
        made.append((LISTED, listed(start, answers), []))
        numbers = {min(len(demos), turns * len(answers), MOST_SHOWN) for turns in (1, 2)} if joined else set()
        for number in sorted(numbers - {0}):
            both = with_demonstrations(start, demos[:number])
            made.append((JOINED, both and listed(both, answers), demos[:number]))
    return [
        (operator, prompt, demos)
        for operator, prompt, demos in made
        if prompt is not None and prompt != start
    ]


async def targets_are_answers(run: Run, env: Environment) -> bool:
    """Whether the reward takes the target of a row as the right answer to it, and that of another row as a wrong one."""
    paid = bool(env.reward.needs & {JUDGE, LABELS, TARGET_SCORE}) or getattr(env.reward, "judge_calls", 0) > 0
    first = next((row for row in env.train if isinstance(row.target, str)), None)
    other = next((row for row in env.train if first and row.target != first.target), None)
    if paid or env.scores or first is None or other is None or not isinstance(other.target, str):
        return False
    answers = [Completion(str(row.target)) for row in (first, other)]
    try:
        right, wrong = [(await env.reward.grade(run, first, answer)).value for answer in answers]
    except RewardFailed:
        return False
    return right >= env.reward.high > wrong
