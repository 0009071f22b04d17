"""How a simulated optimizer answers the structured requests of instruction management.

- Read: lines `[i3] text` are known, lines `12. text` are critiques. Every demand in a critique becomes an
  entry: of a known text that says it, or with an instruction of its own. What only complains about something
  unknown is vague, what does not even complain is no demand.
- Consolidate: lines `[n1] text`. Texts about one rule are duplicates; texts that state and contradict a rule
  contradict each other.
- Rewrite: lines `[i3] text`, each followed by what was tried and by critiques. Each gets another wording.
- Restate: lines `1. text`, instructions that copy a critique. Each gets a wording of its rule; of the others
  those that instruct come back unchanged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias

from benchmarks.simulated.language import Stance, understand
from benchmarks.simulated.points import ReadDemand, demands, flat_sentences, normal
from benchmarks.simulated.rules import read, stances

from whet.models.scripted import choose_by_luck
from whet.models.scripted_replies import request_text
from whet.types import Request

# Words that only the form of such a request holds; the first one names the answer.
_FORMS = {
    "read": ("requirements", "existing"),
    "consolidate": ("duplicates", "contradictions"),
    "rewrite": ("rewrites", "instruction_id"),
    "restate": ("texts", "number"),
}
_KNOWN = re.compile(r"^\[([a-z]\d+)\] (.+)$", re.MULTILINE)
_NUMBERED = re.compile(r"^(\d+)\. (.+)$", re.MULTILINE)

Entry: TypeAlias = dict[str, Any]


class Law(Protocol):
    """What the forms share with every other answer of the simulated optimizer."""

    capacity: int

    def happens(self, rate: str, *parts: object) -> bool:
        """Whether something with the probability `rate` happens."""
        ...

    def overlooks(self, point: ReadDemand, length: int, draw: str) -> bool:
        """Whether a point is overlooked in a request of `length` tokens."""
        ...

    def choose_points(self, points: Sequence[ReadDemand], draw: str) -> list[ReadDemand]:
        """The points that one answer covers, in their order."""
        ...

    def wording(self, rule: str, draw: str, without: Sequence[str] = ()) -> str:
        """A wording of a rule, at times a garbled one; `without` are those not to repeat."""
        ...


def form_of(request: Request) -> str | None:
    """Which form a request asks for, by its schema, else by what its text shows; None for another."""
    shown = request_text(request) if request.schema is None else json.dumps(request.schema)
    return next((form for form, keys in _FORMS.items() if all(f'"{key}"' in shown for key in keys)), None)


@dataclass(frozen=True, slots=True)
class OptimizerAnswer:
    """The answer to one request, whose luck is `draw` and whose length in tokens is `length`."""

    law: Law
    text: str
    draw: str
    length: int

    def entry(self, form: str) -> Entry:
        """The answer in the form, for JSON."""
        fill = {
            "read": self._read,
            "consolidate": self._consolidate,
            "rewrite": self._rewrite,
            "restate": self._restate,
        }
        return fill[form]()

    def _read(self) -> Entry:
        known, critiques = labelled_lines(self.text), numbered_lines(self.text)
        points: dict[str, ReadDemand] = {}
        numbers: dict[str, list[int]] = {}
        idle: dict[str, list[int]] = {"no_demand": [], "vague": []}
        for number, critique in enumerate(critiques, 1):
            place = (number - 1) / max(1, len(critiques) - 1)
            parts = flat_sentences(critique)
            own = {p.key: p for p in (ReadDemand(s, read(s), place, 1) for s in parts if demands(s))}
            for key, point in own.items():
                old = points.get(key)
                points[key] = replace(old, count=old.count + 1) if old else point
                numbers.setdefault(key, []).append(number)
            if not own:
                complains = any(understand(sentence).complains for sentence in parts)
                idle["vague" if complains else "no_demand"].append(number)
        standing = {key: _standing(point, known) for key, point in points.items()}
        new = self.law.choose_points([p for key, p in points.items() if not standing[key][0]], self.draw)
        entries = []
        for key, point in points.items():
            violated, contrary = standing[key]
            if (violated or point in new) and not self.law.overlooks(point, self.length, self.draw):
                instruction = None if violated else self._instruction(point)
                entries.append(
                    self._entry(
                        numbers[key], violates=violated, instruction=instruction, contradicts=contrary
                    )
                )
        if known and self.law.happens("repeat", self.draw):
            repeated = choose_by_luck(list(known.values()), "repeated", self.draw)
            entries.append(self._entry([len(critiques)], instruction=repeated))
        return {"requirements": entries, **idle, "to_the_reader": []}

    def _instruction(self, point: ReadDemand) -> str:
        return point.text if point.rule is None else self.law.wording(point.rule, self.draw)

    def _entry(
        self,
        critiques: Sequence[int],
        *,
        violates: str = "",
        instruction: str | None = None,
        contradicts: str = "",
    ) -> Entry:
        wrong = self.law.happens("misnumber", self.draw, violates, instruction)
        return {
            "critiques": [number + wrong for number in critiques],
            "existing": violates or None,
            "instruction": instruction,
            "contradicts": contradicts or None,
        }

    def _consolidate(self) -> Entry:
        shown = labelled_lines(self.text)
        same: dict[str, list[str]] = {}
        contrary: dict[str, list[str]] = {}
        for key, text in shown.items():
            rule, stance = _about(text)
            if stance is Stance.CONTRARY:
                contrary.setdefault(rule, []).append(key)
            else:
                same.setdefault(rule or normal(text), []).append(key)
        groups = [(name, keys) for name, keys in same.items() if len(keys) > 1]
        places = {name: number / max(1, len(groups) - 1) for number, (name, _) in enumerate(groups)}
        points = {ReadDemand(name, None, places[name], len(keys)): keys for name, keys in groups}
        duplicates = []
        for point in self.law.choose_points(list(points), self.draw):
            if not self.law.overlooks(point, self.length, self.draw):
                ids = points[point]
                clear = [key for key in ids if _about(shown[key])[1] is Stance.STATED] or ids
                others = [key for key in shown if key not in ids]
                if others and self.law.happens("garble", self.draw, point.text):
                    ids = [*ids, choose_by_luck(others, "stranger", self.draw, point.text)]
                duplicates.append({"ids": ids, "best": choose_by_luck(clear, "best", self.draw, point.text)})
        pairs = [[same[rule][0], key] for rule, keys in contrary.items() if rule in same for key in keys]
        return {"duplicates": duplicates, "contradictions": pairs}

    def _rewrite(self) -> Entry:
        rewrites: list[Entry] = []
        for key, (text, below) in blocks(self.text).items():
            rule = next((r for r in (read(sentence) for sentence in (text, *below)) if r is not None), None)
            point = ReadDemand(text, rule, 0.0, 1)
            if len(rewrites) < self.law.capacity and not self.law.overlooks(point, self.length, self.draw):
                new = (
                    f"In every answer, without exception: {text}"
                    if rule is None
                    else self.law.wording(rule, self.draw, (text, *below))
                )
                rewrites.append({"instruction_id": key, "text": new})
        return {"rewrites": rewrites}

    def _restate(self) -> Entry:
        texts: list[Entry] = []
        for number, text in enumerate(numbered_lines(self.text), 1):
            rule = read(text)
            if rule is not None or understand(text).instructs:
                texts.append(
                    {"number": number, "text": text if rule is None else self.law.wording(rule, self.draw)}
                )
        return {"texts": texts}


def instructions_in(entry: Entry) -> list[str]:
    """The texts that an answer proposes, in whatever form it is."""
    texts = [
        item.get("instruction") or item.get("text")
        for items in entry.values()
        for item in items
        if isinstance(item, dict)
    ]
    return [text for text in texts if text]


def labelled_lines(text: str) -> dict[str, str]:
    """The lines `[i3] text` of a request, by id."""
    return dict(_KNOWN.findall(text))


def numbered_lines(text: str) -> list[str]:
    """The texts of the last list of a request whose lines are numbered 1, 2, 3 and so on."""
    texts: list[str] = []
    for number, line in _NUMBERED.findall(text):
        texts = [] if number == "1" else texts
        if int(number) == len(texts) + 1:
            texts.append(line)
    return texts


def blocks(text: str) -> dict[str, tuple[str, list[str]]]:
    """The lines `[i3] text` of a request with the indented lines below each, without their labels."""
    parts = re.split(r"^\[([a-z]\d+)\] ", text, flags=re.MULTILINE)[1:]
    cut: dict[str, tuple[str, list[str]]] = {}
    for key, body in zip(parts[::2], parts[1::2], strict=True):
        first, *lines = body.splitlines()
        below = [line.split(": ", 1)[-1].strip() for line in lines if line[:1].isspace() and line.strip()]
        cut[key] = (first, below)
    return cut


def _about(text: str) -> tuple[str, Stance]:
    """The rule that an instruction is about and what it does to it; no rule: an empty name."""
    pairs = [pair for sentence in flat_sentences(text) for pair in stances(sentence)]
    return max(pairs, key=lambda pair: pair[1].value, default=("", Stance.NONE))


def _standing(point: ReadDemand, known: Mapping[str, str]) -> tuple[str, str]:
    """Ids of what is known already: of a text that demands the same, and of one that wants the contrary."""
    same = contrary = ""
    for key, text in known.items():
        rule, stance = _about(text)
        if point.rule is None:
            same = same or (key if normal(text) == point.key else "")
        elif rule == point.rule and stance is Stance.CONTRARY:
            contrary = key
        elif rule == point.rule:
            same = same or key
    return same, "" if same else contrary
