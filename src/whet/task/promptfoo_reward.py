"""The share of a row's assertions that hold, by weight. `assert` holds them as promptfooconfig.yaml does."""

from __future__ import annotations

import csv
import itertools
import json
import re

import regex

LITERAL_BRACE = re.compile(r"\\.|\{(?![0-9]+(?:,[0-9]*)?\})", re.DOTALL)
"""An escape, or a brace that is no repetition: `regex`, whose matches can be ended, would take it for approximate matching."""

MOST_BRACES = 1000


def texts(value: object) -> list[str]:
    """Each of a list of values as text, or the parts of a text between commas that do not stand in quotes, without empty ones."""
    if isinstance(value, str):
        parts = [part for row in csv.reader(value.splitlines(True), skipinitialspace=True) for part in row]
        return [part.strip() for part in parts if part.strip()]
    return [str(item).strip() for item in (value if isinstance(value, list) else [value])]


def refuse_constant(name: str) -> None:
    """NaN and Infinity are no JSON, which Python's reader takes all the same."""
    raise ValueError(name)


def load_json(text: str) -> list[object]:
    """The JSON value that a text is, in a list; an empty list where it is none."""
    try:
        return [json.loads(text, parse_constant=refuse_constant)]
    except (ValueError, RecursionError):
        return []


def contains_object(text: str) -> bool:
    """Whether a JSON object stands anywhere in a text. At most MOST_BRACES of its braces are tried."""
    decoder = json.JSONDecoder(parse_constant=refuse_constant)
    for brace in itertools.islice(re.finditer(r"\{", text), MOST_BRACES):
        try:
            decoder.raw_decode(text, brace.start())
        except (ValueError, RecursionError):
            continue
        return True
    return False


def is_same(one: object, other: object) -> bool:
    """Whether two JSON values are equal: a truth value is no number, and the order of keys does not count."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(is_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_same, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and one == other


def assertion_holds(kind: str, value: object, output: str) -> bool:
    """Whether one assertion holds."""
    if kind.startswith("not-"):
        return not assertion_holds(kind[4:], value, output)
    if kind == "is-json":
        return bool(load_json(output))
    if kind == "contains-json":
        return contains_object(output)
    if kind == "equals" and isinstance(value, dict | list):
        return any(is_same(one, value) for one in load_json(output))
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


def share(weights: list[float], kept: list[bool], places: list[int]) -> float:
    """The share of the assertions at these places that hold, by weight; where none has a weight, each counts the same."""
    weighed = weights if any(weights[place] for place in places) else [1.0] * len(weights)
    total = sum(weighed[place] for place in places)
    return sum(weighed[place] for place in places if kept[place]) / total if places else 1.0


def reward(example: dict, output: str) -> dict:  # type: ignore[type-arg]
    """A number from 0 to 1, the same of the assertions of each `metric`, and what does not hold as the critique. Assertions of
    weight 0 count in their metric alone."""
    rows = example["assert"]
    weights = [float(row.get("weight", 1)) for row in rows]
    kept = [assertion_holds(row["type"], row.get("value"), output) for row in rows]
    counted = [place for place, weight in enumerate(weights) if weight]
    failed = [
        f"{rows[place]['type']}: {rows[place].get('value', '')}" for place in counted if not kept[place]
    ]
    parts: dict[str, list[int]] = {"reward": counted}
    for place, row in enumerate(rows):
        if "metric" in row:
            parts.setdefault(row["metric"], []).append(place)
    values = {name: share(weights, kept, places) for name, places in parts.items()}
    return {**values, "critique": "This does not hold: " + "; ".join(failed) if failed else ""}
