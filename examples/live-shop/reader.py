"""The simulated reader of the demo: a model that understands what the simulated customers say, in whichever form it is asked.

A real one is any model behind an OpenAI-compatible address. This one answers the four questions of the learner: what do these
comments demand, which of these texts say the same, does this comment alone demand that, and how else could it be said.
"""

from __future__ import annotations

import json
import re
from typing import Any

from whet.types import Request

SHORT = "Keep the answer short and to the point."
TAX = "Give the price with tax."
LONGER = "Give a longer, more detailed answer."
WANTED = {
    SHORT: (
        "Way too long.",
        "Viel zu lang, das liest doch keiner!",
        "Wonderful, another novel.",
        "C'est interminable.",
        "Too verbose.",
    ),
    TAX: (
        "Give the price with tax.",
        "Ist das mit oder ohne Steuer?",
        "Cheap! Until the tax comes on top, that is.",
        "prise with tacks pls",
    ),
    LONGER: ("The answer is too brief.",),
}
_CONTRARY = {SHORT: LONGER, LONGER: SHORT}
_OF = {comment: text for text, comments in WANTED.items() for comment in comments}


def answer(request: Request) -> str:
    """The answer to a question of the learner, as JSON."""
    schema: Any = request.schema or {}
    text = request.messages[-1].content
    for key, reply in _FORMS.items():
        if key in schema.get("properties", {}):
            return json.dumps(reply(text))
    return "{}"


def _lines(text: str) -> dict[str, str]:
    """Texts of lines `[i3] text` by their ids."""
    return dict(re.findall(r"^\[(\w+)\] (.*)$", text, re.MULTILINE))


def _read(text: str) -> dict[str, Any]:
    ids = {line: key for key, line in _lines(text).items()}
    comments = re.findall(r"^(\d+)\. (.*)$", text.rpartition("Critiques:\n")[2], re.MULTILINE)
    numbers: dict[str, list[int]] = {}
    for number, comment in comments:
        numbers.setdefault(_OF.get(comment, ""), []).append(int(number))
    vague = numbers.pop("", [])
    requirements = [
        {
            "critiques": places,
            "violates": ids.get(wanted),
            "instruction": None if wanted in ids else wanted,
            "contradicts": ids.get(_CONTRARY.get(wanted, "")),
        }
        for wanted, places in numbers.items()
    ]
    return {"requirements": requirements, "no_demand": [], "vague": vague, "to_the_reader": []}


def _unite(text: str) -> dict[str, Any]:
    ids = {line: key for key, line in _lines(text).items()}
    pairs = [[ids[SHORT], ids[LONGER]]] if {SHORT, LONGER} <= ids.keys() else []
    return {"duplicates": [], "contradictions": pairs}


def _confirm(text: str) -> dict[str, Any]:
    wanted, comment = (
        re.findall(rf"^{name}: (.*)$", text, re.MULTILINE)[-1] for name in ("Instruction", "Comment")
    )
    return {"demands": _OF.get(comment) == wanted}


def _rewrite(text: str) -> dict[str, Any]:
    return {
        "rewrites": [
            {"instruction_id": key, "text": f"In every answer: {line}"} for key, line in _lines(text).items()
        ]
    }


def _restate(text: str) -> dict[str, Any]:
    lines = re.findall(r"^(\d+)\. (.*)$", text, re.MULTILINE)
    return {"texts": [{"number": int(number), "text": line} for number, line in lines]}


_FORMS = {
    "requirements": _read,
    "duplicates": _unite,
    "demands": _confirm,
    "rewrites": _rewrite,
    "texts": _restate,
}
