"""Which hidden rules a page follows, and in English what is wrong with it.

`reward` is the share of rules that the page follows; `accuracy` is 1 when it follows all of them. The
critique names each broken rule once (at most CRITIQUES of them, 0: all), in one of several wordings, as
flowing text or as a list. Wording and order are drawn from the answer: the same answer, the same critique.
"""

from __future__ import annotations

import json
import re
from typing import Any

from benchmarks.simulated.rules import first

from whet.models.scripted import chance, choose_by_luck, shuffle

RULES = 50
CRITIQUES = 0


def read_page(output: str) -> Any:
    """The JSON value in an answer, with or without a code fence around it; None when there is none."""
    fenced = re.search(r"```(?:json)?\s*\n(.*?)```", output, re.DOTALL)
    try:
        return json.loads(fenced.group(1) if fenced else output)
    except (ValueError, RecursionError):
        return None


def reward(example: dict[str, Any], output: str) -> dict[str, Any]:
    """Share of rules followed, whether all are, and the critique."""
    page = read_page(output)
    if not isinstance(page, dict):
        complaint = "The answer is not one JSON object; it should be a JSON object and nothing else."
        return {"reward": 0.0, "accuracy": 0.0, "rules_followed": 0.0, "critique": complaint}
    broken = [rule for rule in first(RULES) if not rule.holds(page)]
    share = 1 - len(broken) / RULES
    result: dict[str, Any] = {"reward": share, "accuracy": float(not broken), "rules_followed": share}
    if broken:
        named = shuffle(broken, "order", output)[: CRITIQUES or None]
        complaints = [choose_by_luck(rule.critiques, "critique", rule.id, output) for rule in named]
        as_list = chance("layout", output) < 0.3
        result["critique"] = "\n".join(f"- {c}" for c in complaints) if as_list else " ".join(complaints)
    return result
