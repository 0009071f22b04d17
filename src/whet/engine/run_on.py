"""Answers that go on with the prompt's own lines: the model writes further rows behind its answer."""

from __future__ import annotations

from collections.abc import Sequence

from whet.prompt import Prompt
from whet.types import Rollout
from whet_client.prompt.slots import SLOT

_LEAST = 0.05
"""The share of such answers from which on they are said."""
_SHOWN = 100


def run_on_warnings(prompt: Prompt, rollouts: Sequence[Rollout]) -> list[str]:
    """A warning when answers hold, below their first line, a line that begins as a line of the prompt begins before its slot.

    So does a model that continues texts: it writes the next question behind its answer, and another answer behind this one.
    """
    openings = _openings(prompt)
    answers = [r.sentence or r.output for r in rollouts if r.answered]
    run_on = [(text, line) for text in answers if (line := _line_of_prompt(text, openings))]
    if not run_on or len(run_on) < _LEAST * len(answers):
        return []
    text, line = run_on[0]
    return [
        f'{len(run_on)} of {len(answers)} answers go on with a line of the prompt, "{line}", such as '
        f'"{" ".join(text.split())[-_SHOWN:]}". The model writes further rows behind its answer, and a reward may read the '
        f'result of the last one. End answers there: models: {{task: {{stop: ["\\n{line}"]}}}} in task.yaml.'
    ]


def _openings(prompt: Prompt) -> list[str]:
    """The names of slots on their lines, such as `Question:`, the longest first: they end with a sign that is no letter."""
    before = [
        line[: slot.start()].strip()
        for message in prompt.clean
        for line in message.content.splitlines()
        if (slot := SLOT.search(line)) is not None
    ]
    names = {text for text in before if any(c.isalpha() for c in text) and not text[-1].isalnum()}
    return sorted(names, key=lambda text: (-len(text), text))


def _line_of_prompt(text: str, openings: Sequence[str]) -> str:
    """The beginning of the first line below the first one that is also that of a line of the prompt; '' if there is none."""
    for line in text.strip().splitlines()[1:]:
        for opening in openings:
            if line.strip().startswith(opening):
                return opening
    return ""
