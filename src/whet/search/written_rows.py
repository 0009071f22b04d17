"""Rows that a model writes: examples without a target, to search on beside the user's own."""

from __future__ import annotations

import json
from collections.abc import Sequence

from whet.environments import Return
from whet.environments.environment import Environment
from whet.environments.multiturn import MultiTurn
from whet.replies import json_values
from whet.rewards import LABELS, TARGET, TARGET_SCORE
from whet.search.copies import copied_input, normalize_wording
from whet.types import Example, content_hash

LONGEST = 4000
"""Characters of a written row at most."""


def refusal_of_written_rows(env: Environment) -> str:
    """Why no row can be written for a task; '' where it can: the reward must grade an answer without a target."""
    if env.labels or env.reward.needs & {LABELS, TARGET, TARGET_SCORE}:
        return f"the reward {env.reward.name} compares with targets, and nobody knows those of new rows"
    if type(env) not in (Environment, MultiTurn):
        return "the task is a program or is made of several tasks"
    if isinstance(env.reward, Return):
        return "an episode of this world begins from a seed, not from a text"
    return ""


def show_row(row: Example) -> str:
    """The input of a row as a writer sees it and is to write another one: a text, or a JSON object of several."""
    return row.user_text if len(row.values) == 1 else json.dumps(dict(row.values), ensure_ascii=False)


def written_row(text: str, like: Example, env: Environment, known: str) -> Example | None:
    """A row of the same form as `like` from a text; from a JSON object with the same keys where there are several.

    None for a text of another form, too long, or that copies a validation row. `known`: the prompt, which it may copy.
    """
    values = {key: text.strip() for key in like.values} if len(like.values) == 1 else _object(text, like)
    body = "\n".join(values.values())
    if not body.strip() or len(body) > LONGEST or copied_input(body, env.validation, known):
        return None
    shown = next(iter(values.values())) if len(values) == 1 else None
    return Example(f"written-{content_hash(values)[:12]}", values, None, {"input": dict(values)}, shown)


def _object(text: str, like: Example) -> dict[str, str]:
    for value in json_values(text):
        if isinstance(value, dict) and value.keys() == like.values.keys():
            return {key: str(one) for key, one in value.items()}
    return {}


def without_duplicates(rows: Sequence[Example], known: Sequence[Example]) -> list[Example]:
    """Those of the rows whose text is that of no known row, and of no earlier one among them, letter case and blanks aside."""
    texts = {normalize_wording(row.user_text) for row in known}
    kept = []
    for row in rows:
        text = normalize_wording(row.user_text)
        if text not in texts:
            texts.add(text)
            kept.append(row)
    return kept
