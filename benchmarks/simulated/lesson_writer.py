"""The optimizer of the worlds of lessons: it reads what a request shows, and fills in the form that the request asks for.

The law, the same for all methods. From a request it reads the rows with what was wanted, failed ones first; the lessons that its
own earlier thoughts state, wherever a request quotes them; and the texts between the tags of an instruction. A reply takes up
`capacity` lessons at most, and gives each a wrong value with probability `garble`. Where a request shows nothing to learn from,
a reply holds one lesson that is a guess. A whole instruction is the text shown (the one with the highest score; of several
without scores each line with the share of the texts that have it), each line forgotten with probability `forget`, with the new
lessons in it. Asked which of two sets of answers is better it names the one with more right answers with probability `judge`.
In the trap it removes the fault in four of five rewrites that are told of its class, in one of thirty others; writing from
nothing it repeats the fault half of the time.

The forms: text between any tags, once or several times; edits, operations, reflections, faults and verdicts as JSON; moves by
number; the requirements of `prompt_learning` with the numbers of their critiques. The luck of a reply depends on the request.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from benchmarks.simulated.lessons import (
    LACKS,
    Lessons,
    LessonWorld,
    Trap,
    blocks,
    lines,
    merge_lessons,
    stated_lessons,
    world_of,
)

from whet.methods.vista import BLANK, CAUSE, CLASSES
from whet.models.scripted import Scripted, chance, choose_by_luck, luck, shuffle
from whet.models.scripted_replies import request_text
from whet.rl.language import WHICH
from whet.types import Request

_FORM = re.compile(r"<([A-Z_]+)>\.\.\.</\1>")
_TEXTS = re.compile(r"<INSTRUCTION>\n(.*?)\n</INSTRUCTION>(?:\nScore: (-?\d+))?", re.DOTALL)
_KNOWN = re.compile(r"(?m)^\[([a-zA-Z]\d+)\] (.+)$")
_MARKED = re.compile(r"\[\[(\w+)\]\]\n(.*?)\n\[\[/\1\]\]", re.DOTALL)
_LISTED = re.compile(r"(?m)^(\d+)\. (.+)$")
_MOST = 9
WHOLE = "INSTRUCTION", "PROMPT"
THOUGHTS = "REASON", "HYPOTHESIS", "CRITIQUE", "FEEDBACK", "NOTE", "NOTES", "GUIDANCE", "SUMMARY", "QUESTION"


class LessonWriter(Scripted):
    """Writes lessons; see the module for the law."""

    provider: ClassVar[str] = "simulated"
    OPTIONS: ClassVar[Mapping[str, str]] = {
        "world": "types",
        "capacity": "4",
        "garble": "0.15",
        "forget": "0.08",
        "judge": "0.7",
    }

    def __init__(self, name: str, options: Mapping[str, str]) -> None:
        super().__init__(name, options)
        self.world: LessonWorld = world_of(self.options["world"], self.seed)
        self.capacity = self.option_int("capacity", 1, 100)
        self.garble, self.forget, self.judge = map(self.option_float, ("garble", "forget", "judge"))

    def answer(self, request: Request, sample: int) -> str:
        """A reply in the form that the request asks for."""
        text, draw = request_text(request), luck(request, sample)
        asked = text if request.schema is None else text + json.dumps(request.schema)
        if '"requirements"' in asked and '"existing"' in asked:
            return json.dumps(self._requirements(text, draw))
        if '"duplicates"' in asked and '"contradictions"' in asked:
            return json.dumps(self._doubles(text))
        tags = _FORM.findall(text)
        tag = tags[-1] if tags else WHOLE[0]
        if tag in WHOLE:
            body = self._whole(text, draw)
            return f"<{tag}>\n{body}\n</{tag}>" if tags else body
        if tag == "BETTER":
            return f"<BETTER>{self._better(text, draw)}</BETTER>"
        if tag == "WORDING":
            part = text.rpartition("\n\n")[0].rpartition(WHICH)[2].strip()
            return "\n".join(
                f"<WORDING>{advice} {part}</WORDING>" for advice in shuffle(ADVICE, self.seed, draw)[:5]
            )
        new = lines(self._lessons(text, draw)) or [choose_by_luck(ADVICE, self.seed, draw)]
        many = new if "each one between" in text else ["\n".join(new)]
        if tag == "HYPOTHESIS":
            many = [new[k % len(new)] for k in range(_MOST)]
        if tag in THOUGHTS:
            many = [re.sub("(?m)^", LACKS, body) for body in many]
        if (filled := self._write_form(tag, text, new)) is not None:
            many = [filled]
        return "\n".join(f"<{tag}>{body}</{tag}>" for body in many)

    def _lessons(self, text: str, draw: str) -> Lessons:
        """The lessons that one reply takes up."""
        shown = blocks(text)
        failed = [block for block in shown if not re.search(r"(?m)^Reward: 1\b", block)]
        outside = _TEXTS.sub("", text)
        known = self._read_known(text)
        read = merge_lessons(
            map(self.world.read, [*failed, *(block for block in shown if block not in failed)])
        )
        found = {
            key: value
            for key, value in {**read, **stated_lessons(self.world, outside)}.items()
            if known.get(key) != value
        }
        if not found and self.world.values:
            key = choose_by_luck(list(self.world.values), self.seed, draw, "guessed")
            return {key: choose_by_luck(self.world.values[key], self.seed, draw, "guess")}
        taken = shuffle(list(found), self.seed, draw, "taken")[: self.capacity]
        return {key: self._garble(key, found[key], draw) for key in taken}

    def _garble(self, key: str, value: str, draw: str) -> str:
        if chance(self.seed, draw, key, "garbled") >= self.garble:
            return value
        return choose_by_luck(self.world.values[key], self.seed, draw, key, "instead")

    def _read_known(self, text: str) -> Lessons:
        """The lessons of the instruction that is to be improved."""
        return stated_lessons(self.world, self._base(text))

    def _base(self, text: str) -> str:
        texts = _TEXTS.findall(text)
        if not texts:
            return ""
        if any(score for _, score in texts):
            return str(max(texts, key=lambda pair: int(pair[1] or -1))[0])
        return str(texts[-1][0])

    def _whole(self, text: str, draw: str) -> str:
        if isinstance(self.world, Trap):
            return self._repair(self.world, text, draw)
        texts = [body for body, _ in _TEXTS.findall(text)]
        crossed = len(texts) > 1 and not blocks(text) and "\nScore: " not in text
        parts = [body.splitlines() for body in (texts if crossed else [self._base(text) or self.world.start])]
        every = list(dict.fromkeys(line for body in parts for line in body))
        kept = [
            line for line in every
            if chance(self.seed, draw, line, "kept") < sum(line in body for body in parts) / len(parts) * (1 - self.forget)
        ]  # fmt: skip
        new = self._lessons(text, draw)
        kept = [line for line in kept if not stated_lessons(self.world, line).keys() & new.keys()]
        return "\n".join([*kept, *lines(new)])

    def _repair(self, world: Trap, text: str, draw: str) -> str:
        lucky = chance(self.seed, draw, "repair")
        if BLANK in text:
            return "Answer yes or no." + (f" {world.FAULT}" if lucky < 0.5 else "")
        base = self._base(text) or world.start
        cause = text.partition(CAUSE)[2]
        if lucky < (0.8 if CLASSES[0] in cause else 0.03):
            return f"{base.replace(world.FAULT, '')} Work first."
        return f"{base} {choose_by_luck(ADVICE, self.seed, draw)}"

    def _better(self, text: str, draw: str) -> str:
        """Which set of answers is preferred: by how many are right, as far as the world tells."""
        shown = [body for _, body in _MARKED.findall(text)]
        gap = 0
        for question, first, second in zip(shown[::3], shown[1::3], shown[2::3], strict=False):
            right = self.right(question)
            gap += (first.strip() == right) - (second.strip() == right)
        clear = chance(self.seed, draw, "judged") < self.judge
        return (
            choose_by_luck("12", self.seed, draw, "coin") if not gap or not clear else "1" if gap > 0 else "2"
        )

    def right(self, question: str) -> str | None:
        """The right answer to an input, which a judge knows; None where there is none."""
        number = re.search(r"\d+", question)
        return (
            next((row.get("target") for row in self.world.rows(int(number[0]), 1)), None) if number else None
        )

    def _write_form(self, tag: str, text: str, new: Sequence[str]) -> str | None:
        """The body of a form that is no plain text; None for the others."""
        numbered = _LISTED.findall(text)
        held = {key: (number, line) for number, line in numbered for key in stated_lessons(self.world, line)}
        old = {
            key: line for line in self._base(text).splitlines() for key in stated_lessons(self.world, line)
        }
        listed = dict(_KNOWN.findall(text))
        if tag == "EDITS":
            edits = [
                {"op": "replace", "anchor": old[key], "text": line} if key in old else {"op": "append", "text": line}
                for line in new for key in stated_lessons(self.world, line)
            ]  # fmt: skip
            return json.dumps(edits)
        if tag == "OPERATIONS":
            by_key = {key: name for name, line in listed.items() for key in stated_lessons(self.world, line)}
            return json.dumps(
                [
                    {"op": "update", "id": by_key[key], "text": line} if key in by_key else {"op": "add", "text": line}
                    for line in new for key in stated_lessons(self.world, line)
                ]
            )  # fmt: skip
        if tag == "REFLECTION":
            harmed = [name for name, line in listed.items() if any(
                key in told and told[key] != value for told in [stated_lessons(self.world, "\n".join(new))]
                for key, value in stated_lessons(self.world, line).items()
            )]  # fmt: skip
            return json.dumps({"insights": list(new), "helped": [], "harmed": harmed})
        if tag == "MODULES":
            return '["constraints"]'
        if tag == "FAULTS":
            return json.dumps({"constraints": "\n".join(new)})
        if tag == "ERRORS":
            count = len(re.findall(r"(?m)^Answer \d+:$", text))
            return json.dumps([{"answer": k + 1, "step": 0, "kind": "missing"} for k in range(count)])
        if tag == "VERDICT":
            return '{"good": true}'
        if tag == "MOVE" and "its number" in text.rpartition("\n\n")[0][-400:]:
            line = new[0] if new else ""
            at = next(
                (held[key][0] for key in stated_lessons(self.world, line) if key in held),
                numbered[-1][0] if numbered else "1",
            )
            return f"{at}\n{line}"
        if tag == "MOVE" and "two numbers" in text[-400:]:
            return f"1, 2\n{numbered[0][1] if numbered else ''}"
        return new[0] if tag == "MOVE" and new else None

    def _requirements(self, text: str, draw: str) -> dict[str, Any]:
        """The form of `prompt_learning`: what its numbered rows demand, beside what is known."""
        known = {name: stated_lessons(self.world, line) for name, line in _KNOWN.findall(text)}
        parts = re.split(
            r"(?m)^(\d+)\. (?=Input: |Critique: |\S)",
            text.partition("\nRows:\n")[2] or text.partition("\nCritiques:\n")[2],
        )
        numbers: dict[tuple[str, str], list[int]] = {}
        for number, block in zip(parts[1::2], parts[2::2], strict=False):
            flat = re.sub(r" (?=(?:Wanted|Answered|Reward|Critique): )", "\n", re.sub(r"(?m)^ +", "", block))
            for pair in self.world.read(flat).items():
                numbers.setdefault(pair, []).append(int(number))
        entries = []
        for key, value in shuffle(list(numbers), self.seed, draw, "taken")[: self.capacity]:
            same = next((name for name, told in known.items() if told.get(key) == value), None)
            other = next((name for name, told in known.items() if key in told and told[key] != value), None)
            line = f"{key}: {self._garble(key, value, draw)}."
            entries.append(
                {"critiques": numbers[key, value], "existing": same, "instruction": None if same else line, "contradicts": other}
            )  # fmt: skip
        return {"requirements": entries, "no_demand": [], "vague": [], "to_the_reader": []}

    def _doubles(self, text: str) -> dict[str, Any]:
        """The form in which `prompt_learning` compares instructions: which say the same, which contradict each other."""
        by_lesson: dict[str, dict[str, list[str]]] = {}
        for name, line in _KNOWN.findall(text):
            for key, value in stated_lessons(self.world, line).items():
                by_lesson.setdefault(key, {}).setdefault(value, []).append(name)
        same = [ids for values in by_lesson.values() for ids in values.values() if len(ids) > 1]
        contrary = [
            [groups[0][0], other[0]] for values in by_lesson.values() if len(groups := list(values.values())) > 1
            for other in groups[1:]
        ]  # fmt: skip
        alike = [{"ids": ids, "best": ids[0], "merged": None} for ids in same]
        return {"duplicates": alike, "contradictions": contrary, "unclear": [], "improper": []}


ADVICE = (
    "Read with care.", "Be brief.", "Mind the details.", "Check your answer.", "Do not explain.", "Weigh both sides first.",
    "Use the form that is asked for.", "Judge only what is written.",
)  # fmt: skip
