"""Attempts, reflections on them, and the next attempt with that in the prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from whet.environments.environment import Environment
from whet.environments.multiturn import attempts
from whet.prompt import Prompt
from whet.run import Run
from whet.search.edits import apply
from whet.types import Example, Message, Rollout

REQUEST = "What should be done differently next time?"


@dataclass(frozen=True)
class Tried:
    """An example, what could be read of the last attempt at it, its rollout, and the lessons it was made with."""

    example: Example
    shown: str
    rollout: Rollout
    lessons: tuple[str, ...] = ()


async def tries(
    run: Run, env: Environment, start: Prompt, items: Sequence[tuple[Example, tuple[str, ...]]]
) -> list[Tried]:
    """One attempt at each example, with lessons in the prompt."""
    pairs = [(taught(start, lessons), example) for example, lessons in items]
    outcomes = await attempts(run, env, pairs)
    return [Tried(item[0], *one, item[1]) for item, one in zip(items, outcomes, strict=True)]


def taught(start: Prompt, learned: Sequence[str]) -> Prompt:
    """The prompt with lessons after its editable text; the start where it refuses them."""
    text = "\n".join([start.region_text(), *(lesson for lesson in learned if lesson)])
    return apply(start, text) or start


def question(start: Prompt, tried: Tried) -> list[Message]:
    """What the reflecting model reads: the task, the attempt, its reward, and what was advised before."""
    task = "\n".join(message.content for message in start.render(tried.example))
    parts = [task, f"Attempt:\n{tried.shown}", f"Reward: {round(tried.rollout.reward, 2)}"]
    parts += [f"Advised before: {lesson}" for lesson in tried.lessons]
    return [Message("user", "\n\n".join([*parts, REQUEST]))]
