"""Requirements that a person states for a new task: lines of its prompt, and items of a checklist that a judge checks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from whet.prompt import Prompt

HEAD = "Requirements:"
_SHARE = 0.5


def prompt_with_requirements(prompt: Prompt, requirements: Sequence[str]) -> Prompt:
    """The prompt with the requirements as lines at the end of its editable text, below those that end it already; itself without
    any. Raises EditRejected."""
    if not requirements:
        return prompt
    text = prompt.region_text().rstrip()
    before, _, list_of_lines = text.rpartition(f"{HEAD}\n")
    goes_on = bool(before) and all(line.startswith("- ") for line in list_of_lines.splitlines())
    lines = "\n".join(f"- {requirement}" for requirement in requirements)
    return prompt.edit(f"{text}\n{lines}\n" if goes_on else f"{text}\n\n{HEAD}\n{lines}\n")


def reward_with_requirements(
    reward: object, labels: Sequence[str], requirements: Sequence[str]
) -> tuple[Any, str]:
    """The reward of task.yaml with the requirements as items of a checklist, and a sentence that says how they are checked.

    `reward` is None where nothing else grades: the checklist is then the whole reward. Beside a reward by its name it is half of
    it. Labels, and a reward with options or of the user's own, stay as they are.
    """
    items = [*requirements]
    if reward is None:
        return {
            "checklist": {"items": items}
        }, "requirements: in the prompt, and the reward is a checklist of them"
    if labels or not isinstance(reward, str) or reward.endswith(".py"):
        why = "an answer is a label" if labels else "the reward is your own"
        return reward, f"requirements: in the prompt; they are no part of the reward, because {why}"
    both = [{reward: _SHARE}, {"name": "checklist", "items": items, "weight": _SHARE}]
    return both, f"requirements: in the prompt, and as a checklist half of the reward, beside {reward}"
