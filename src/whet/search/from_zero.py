"""What a search tries first where its start prompt earns nothing: two prompts that take no call of the optimizer model.

One shows training rows with their targets as answers, one row for each right answer where these are few. The other lists the
right answers. Where a search knows nothing but failures it learns little; from a prompt that earns something it can go on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from whet.environments.environment import Environment
from whet.prompt import Prompt
from whet.rewards import JUDGE, LABELS, TARGET_SCORE, RewardFailed
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.demonstrations import instructed, labelled, with_demonstrations
from whet.search.edits import apply, text_in
from whet.search.labels import by_label, right_answers
from whet.types import Completion, Example

EVENT = "from_zero"
DEMONSTRATED, LISTED = "targets as demonstrations", "right answers listed"
"""The operators of the two candidates."""
MOST_SHOWN, FREE_SHOWN, TRIED = 12, 4, 12
"""Demonstrations at most: of labels, of other targets; training rows at most on which the two prompts are tried."""
LIST = "Answer with exactly one of these and with nothing else:"


async def from_zero(
    run: Run,
    env: Environment,
    archive: Archive,
    start: Prompt,
    rows: Sequence[Example],
    objections: Callable[[str], Sequence[str]],
) -> list[Candidate]:
    """The prompts that earn something on training `rows` where `start`, validated in the archive, earned nothing, the best first.

    They enter the archive with their scores. Nothing is tried where the start earns something, where targets are no exact
    answers, and for a program, whose targets are the answers of none of its prompts. `objections` (such as
    `guard.secrets`) says what must not stand in a prompt.
    """
    if not rows or archive.validated.get(start.id, env.reward.high) > env.reward.low or start.parts:
        return []
    if not await targets_are_answers(run, env):
        return []
    made = {
        p.id: (p, operator) for operator, p in proposals(env, start, rows, objections) if p not in archive
    }
    scores = await env.score(run, [prompt for prompt, _ in made.values()], rows)
    tried = [
        Candidate(prompt, (start.id,), operator, score)
        for (prompt, operator), score in zip(made.values(), scores, strict=True)
    ]
    for candidate in tried:
        archive.add(run, candidate)
    if tried:
        run.log(EVENT, {"rows": len(rows), "tried": [[c.operator, c.mean] for c in tried]})
    return sorted((c for c in tried if c.mean > env.reward.low), key=lambda c: -c.mean)


def cost(rows: int) -> int:
    """Rollouts that the two prompts take at most on so many rows."""
    return 2 * rows


def proposals(
    env: Environment,
    start: Prompt,
    rows: Sequence[Example],
    objections: Callable[[str], Sequence[str]],
) -> list[tuple[str, Prompt]]:
    """The prompts with their operators; none that the prompt refuses, because of a slot, a marker or its length."""
    held, answers = {row.id for row in rows}, right_answers(env)
    free = [row for row in env.train if row.id not in held] or env.train
    demos = [demo for demo in labelled(env, start, by_label(free)) if not objections(demo.text)]
    shown = demos[: min(len(answers), MOST_SHOWN) or FREE_SHOWN]
    made = [(DEMONSTRATED, with_demonstrations(start, shown) if shown else None)]
    region = next(iter(instructed(start)), None)
    if answers and region is not None and not objections("\n".join(answers)):
        text = text_in(start.focused(region), start).rstrip()
        listed = "\n".join(f"- {answer}" for answer in answers)
        made.append((LISTED, apply(start, f"{text}\n\n{LIST}\n{listed}\n".lstrip(), region)))
    return [(operator, prompt) for operator, prompt in made if prompt is not None and prompt != start]


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
