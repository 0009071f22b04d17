"""The target of a row: its accepted answers, and how they are shown."""

from __future__ import annotations

import json

from whet.types import Example

_LONGEST = 200


def accepted_answers(example: Example) -> list[object]:
    """Accepted answers as they stand in the row, at least one: the target itself, or each of a list of them."""
    target = example.target
    return list(target) if isinstance(target, list) and target else [target]


def show_target(target: object) -> str:
    """A target as text: a text as it is, a whole number without a decimal point, other values as JSON.

    >>> show_target(18.0), show_target("18.0"), show_target({"a": 1})
    ('18', '18.0', '{"a": 1}')
    """
    if isinstance(target, str):
        return target
    if isinstance(target, float) and target.is_integer() and abs(target) < 1e15:
        return str(int(target))
    return json.dumps(target, ensure_ascii=False, default=str)


def targets_of(example: Example) -> list[str]:
    """Accepted answers as texts, at least one."""
    return [show_target(target) for target in accepted_answers(example)]


def state_correction(answer: str, wanted: str) -> str:
    """The critique of an answer that is wrong as a whole: the answer, and the right answer."""
    return f"The answer {quote_target(answer)} should be {quote_target(wanted)}."


def quote_target(text: str) -> str:
    """A text in quotes for a critique, cut after 200 characters."""
    text = text.strip()
    return json.dumps(text if len(text) <= _LONGEST else text[:_LONGEST] + "…", ensure_ascii=False)
