"""A model that understands the comments it is told about, and answers the forms of `whet.instructions`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from whet.types import Request

Meaning = str | Mapping[str, Any]


@dataclass
class Reader:
    """`meanings` says for a piece of a comment which instruction it demands, `{"instruction": ..., "contradicts": ...}`, or
    one of `no_demand`, `vague` and `to_the_reader`. A comment without a meaning is left out of the answer. `requests` are the
    texts that it was sent. An instruction that stands already is named by its id."""

    meanings: Mapping[str, Meaning]
    numbers: bool = True
    requests: list[str] = field(default_factory=list)

    def __call__(self, request: Request) -> str:
        text = request.messages[-1].content
        self.requests.append(text)
        items = re.findall(r"(?m)^(\d+)\. (.*)$", text)
        if '{"texts"' in text:
            return json.dumps({"texts": [{"number": int(n), "text": t} for n, t in items]})
        if '{"duplicates"' in text:
            return json.dumps({"duplicates": [], "contradictions": []})
        known = {t: key for key, t in re.findall(r"(?m)^\[(i\d+)\] (.*)$", text)}
        answer: dict[str, Any] = {"requirements": [], "no_demand": [], "vague": [], "to_the_reader": []}
        demands: dict[str, dict[str, Any]] = {}
        for number, comment in items:
            for meaning in [m for piece, m in self.meanings.items() if piece in comment]:
                if isinstance(meaning, str) and meaning in answer:
                    answer[meaning].append(int(number))
                    continue
                entry = {"instruction": meaning} if isinstance(meaning, str) else dict(meaning)
                wanted = str(entry["instruction"])
                entry |= {"violates": known[wanted], "instruction": None} if wanted in known else {}
                demands.setdefault(wanted, {**entry, "critiques": []})["critiques"] += [int(number)]
        answer["requirements"] = list(demands.values())
        if not self.numbers:
            for entry in demands.values():
                entry["critiques"] = [9999]
        return json.dumps(answer, ensure_ascii=False)
