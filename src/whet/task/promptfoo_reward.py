"""The share of a row's assertions that hold, by weight. `assert` holds them as promptfooconfig.yaml does."""

from __future__ import annotations

import csv
import json
import re

import regex

LITERAL_BRACE = re.compile(r"\\.|\{(?![0-9]+(?:,[0-9]*)?\})", re.DOTALL)
"""An escape, or a brace that is no repetition: `regex`, whose matches can be ended, would take it for approximate matching."""


def texts(value: object) -> list[str]:
    """Each of a list of values as text, or the parts of a text between commas that do not stand in quotes, without empty ones."""
    if isinstance(value, str):
        parts = [part for row in csv.reader(value.splitlines(True), skipinitialspace=True) for part in row]
        return [part.strip() for part in parts if part.strip()]
    return [str(one).strip() for one in (value if isinstance(value, list) else [value])]


def is_json(output: str) -> bool:
    """Whether the answer is one JSON value."""
    try:
        json.loads(output)
    except ValueError:
        return False
    return True


def holds(kind: str, value: object, output: str) -> bool:
    """Whether one assertion holds."""
    if kind.startswith("not-"):
        return not holds(kind[4:], value, output)
    if kind in ("is-json", "contains-json"):
        return is_json(output if kind == "is-json" else output[output.find("{") : output.rfind("}") + 1])
    if kind == "regex":
        pattern = LITERAL_BRACE.sub(lambda part: "\\{" if part[0] == "{" else part[0], str(value))
        return regex.search(pattern, output) is not None
    folds = kind.startswith(("icontains", "iequals"))
    name = kind.removeprefix("i") if folds else kind
    answer = output.casefold() if folds else output
    wanted = [str(value)] if name in ("equals", "contains", "starts-with") else texts(value)
    wanted = [one.casefold() for one in wanted] if folds else wanted
    if name == "equals":
        return answer == wanted[0]
    if name == "starts-with":
        return answer.startswith(wanted[0])
    matches = [one in answer for one in wanted]
    return all(matches) if name == "contains-all" else any(matches)


def reward(example: dict, output: str) -> dict:  # type: ignore[type-arg]
    """A number from 0 to 1, the same of the assertions of each `metric`, and what does not hold as the critique."""
    rows = example["assert"]
    weights = [float(row.get("weight", 1)) for row in rows]
    kept = [holds(row["type"], row.get("value"), output) for row in rows]
    failed = [f"{row['type']}: {row.get('value', '')}" for row, ok in zip(rows, kept, strict=True) if not ok]
    parts: dict[str, list[int]] = {"reward": list(range(len(rows)))}
    for place, row in enumerate(rows):
        if "metric" in row:
            parts.setdefault(row["metric"], []).append(place)
    values = {
        name: sum(weights[i] for i in places if kept[i]) / (sum(weights[i] for i in places) or 1.0)
        for name, places in parts.items()
    }
    return {**values, "critique": "This does not hold: " + "; ".join(failed) if failed else ""}
