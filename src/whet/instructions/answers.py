"""What an answer of the reader says. An answer is data: whatever it counts wrongly costs the number, never the instruction."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from whet.instructions.neighbours import comparable, contained
from whet.prompt.instructions import refusal
from whet.replies import between, json_values, list_items, records, without_thought
from whet.types import Completion

NO_DEMAND, VAGUE, TO_READER = "no_demand", "vague", "to_the_reader"
CONTEXT = "context"
EXAMPLE = "Name the colour of the train."
"""The instruction of the example in the form; an answer that holds it has only copied the form."""
TAGS = "<INSTRUCTION>", "</INSTRUCTION>"
"""Around an instruction in an answer without a form."""
PLACEHOLDER = "one imperative sentence"
"""What stands in other forms for an instruction."""
LONGEST = 400
"""Characters of an instruction at most: a longer text is no single demand."""
_ALIKE, _ALIKE_WORDS = 0.5, 4


@dataclass(frozen=True, slots=True)
class Known:
    """Something that is demanded already: an instruction, or a requirement that waits. `id` is one letter and digits."""

    id: str
    text: str


@dataclass(frozen=True, slots=True)
class Requirement:
    """One demand. `critiques` are places in the list that was read, from 0; none: the model named none.

    `violates` is the id of what says it already, then `text` is empty or a better wording of that; else `text` is a proposed
    instruction. `contradicts` is
    the id of what wants the contrary, or `context` for the text around the editable region. `copied` says that the text
    repeats a critique, `confirmed` that the model calls it an instruction all the same.
    """

    text: str
    critiques: tuple[int, ...] = ()
    violates: str = ""
    contradicts: str = ""
    copied: bool = False
    confirmed: bool = False


def understood(
    completion: Completion, known: Sequence[Known], count: int
) -> tuple[list[Requirement], dict[int, str]]:
    """The requirements that an answer states and the critiques that it dismisses, both by place from 0.

    The answer may be the form, any JSON like it, or a list in prose; thought blocks and chatter are skipped. Two
    requirements for one critique are two requirements.
    """
    if EXAMPLE in completion.text:  # the form of the question, copied
        return [], {}
    whole = completion.error is None and completion.finish != "length"
    values = json_values(completion.text, whole=whole)
    requirements: list[Requirement] = []
    dismissed: dict[int, str] = {}
    for value in values[:1] if len(values) == 1 or is_form(values) else values:
        for entry in _entries(value, dismissed, count):
            requirements += _requirement(entry, known, count)
    if whole and not (requirements or dismissed or is_form(values)):
        lines = _NUMBERED.findall(without_thought(completion.text)) or list_items(completion.text)
        entries = _without_references(_unnumbered(lines))
        requirements = [r for entry in entries for r in _requirement(entry, known, count)]
    merged: dict[tuple[str, str], Requirement] = {}
    for one in requirements:
        key = (one.violates, comparable(one.text))
        old = merged.get(key, one)
        merged[key] = replace(old, critiques=tuple(dict.fromkeys((*old.critiques, *one.critiques))))
    stated = {place for one in merged.values() for place in one.critiques}
    return list(merged.values()), {n: why for n, why in dismissed.items() if n not in stated}


def listed(completion: Completion, known: Sequence[Known]) -> list[Requirement]:
    """The instructions of an answer in tags or as a list; one that holds another of them, or a known one, says nothing new."""
    reply = without_thought(completion.text)
    items = list_items(reply)
    if completion.finish == "length":
        items = items[:-1]
    items = between(reply, *TAGS) or items
    requirements = [r for item in items for r in _requirement({"text": item}, known, 0) if r.text]
    texts = {comparable(r.text): r for r in requirements or understood(completion, known, 0)[0] if r.text}
    shorter = [one for one in (*texts, *(comparable(k.text) for k in known)) if len(one) >= _TELLING]
    return [r for own, r in texts.items() if not any(one in own for one in shorter if one != own)]


def _unnumbered(lines: Sequence[str]) -> list[str]:
    """Lines without the numbers before them where these only count the lines: 1, 2, 3. Others name critiques."""
    matches = [_LEADING.match(line) for line in lines]
    counting = [int(match.group(1)) if match else 0 for match in matches] == [*range(1, len(lines) + 1)]
    return [
        match.group(2) if match and counting else line for match, line in zip(matches, lines, strict=True)
    ]


def _without_references(lines: Sequence[str]) -> list[Any]:
    """Entries of lines of which most name numbers in brackets at their end, after the same word: these name critiques."""
    matches = [_REFERENCES.match(line) for line in lines]
    words = [match.group(2).strip().casefold()[:_ALIKE_WORDS] if match else None for match in matches]
    word, times = Counter(words).most_common(1)[0] if words else (None, 0)
    if word is None or times < 2 or 2 * times <= len(lines):
        return list(lines)
    return [
        {"text": match.group(1), "numbers": match.group(3)} if match and own == word else line
        for match, own, line in zip(matches, words, lines, strict=True)
    ]


def is_form(values: Sequence[Any]) -> bool:
    """Whether the first value of an answer is the form of the reader, whatever it holds."""
    return bool(values) and isinstance(values[0], dict) and any(_key(k) == "requirements" for k in values[0])


def _key(name: object) -> str:
    return re.sub(r"\W+", "_", str(name).strip().casefold())


def _entries(value: Any, dismissed: dict[int, str], count: int, depth: int = 0) -> Iterator[Any]:
    """Entries that may be requirements, wherever they stand in an answer; dismissed critiques are noted on the way."""
    if depth > 6:
        return
    if isinstance(value, list):
        yield from _unnumbered([item for item in value if isinstance(item, str)])
        for item in value:
            if not isinstance(item, str):
                yield from _entries(item, dismissed, count, depth + 1)
    elif isinstance(value, dict):
        keys = {_key(key): item for key, item in value.items()}
        if any(isinstance(keys.get(key), str) for key in (*_TEXT, *_VIOLATES)) or any(
            key in keys and isinstance(keys.get(key), int | str) for key in _VIOLATES
        ):
            yield keys
            return
        for key, item in keys.items():
            if key in _DISMISSED:
                for number in _numbers(item):
                    if 1 <= number <= count:
                        dismissed[number - 1] = _DISMISSED[key]
            elif isinstance(item, dict | list):
                yield from _entries(item, dismissed, count, depth + 1)
            elif isinstance(item, str) and re.fullmatch(r"\D{0,2}\d{1,4}", key):
                yield {"text": item, "number": key}


def _requirement(entry: Any, known: Sequence[Known], count: int) -> list[Requirement]:
    """The requirement of one entry, or nothing where it says nothing that can be used."""
    if isinstance(entry, str):
        match = _LEADING.match(entry)
        entry = {"text": match.group(2), "number": match.group(1)} if match else {"text": entry}
    text = clean(next((entry[k] for k in _TEXT if isinstance(entry.get(k), str) and entry[k].strip()), ""))
    places = [n - 1 for key in _NUMBERS if key in entry for n in _numbers(entry[key]) if 1 <= n <= count]
    critiques = tuple(dict.fromkeys(places))
    violated = next((one for key in _VIOLATES if (one := resolved(entry.get(key), known))), None)
    against = [entry[key] for key in _CONTRADICTS if entry.get(key)]
    opposite = next((one.id for value in against if (one := resolved(value, known))), "")
    if not opposite and any(isinstance(value, str) and _key(value) == CONTEXT for value in against):
        opposite = CONTEXT
    usable = bool(text) and len(text) <= LONGEST and refusal(text) is None
    same = next((k for k in known if comparable(k.text) == comparable(text)), None) if usable else None
    if same is not None:
        return [Requirement("", critiques, same.id, opposite)]
    if violated is not None and not usable:
        return [Requirement("", critiques, violated.id, opposite)]
    if violated is not None and max(contained(violated.text, text), contained(text, violated.text)) >= _ALIKE:
        return [Requirement(text, critiques, violated.id, opposite)]
    return [Requirement(text, critiques, contradicts=opposite)] if usable else []


def clean(text: str) -> str:
    """A proposed instruction on one line, without list marks and wrapping quotes; empty where it stands for nothing."""
    text = re.sub(r"^(?:[-*•–]\s+|\[?\w?\d{1,4}[\].):]\s+)+", "", " ".join(text.split()))
    for mark in ("**", "__", "*", "_", '"', "'", "“", "`"):
        end, size = "”" if mark == "“" else mark, len(mark)
        wrapped = len(text) > 2 * size and text.startswith(mark) and text.endswith(end)
        if wrapped and mark not in text[size:-size]:
            text = text[size:-size].strip()
    return "" if comparable(text) in _NOTHING else text


def _numbers(value: Any) -> list[int]:
    """All whole numbers that a value names: `[1, "2"]`, `"1, 2"`, `"c7"`, 3."""
    if isinstance(value, bool) or value is None:
        return []
    if isinstance(value, list):
        return [n for item in value for n in _numbers(item)]
    return [int(n) for n in re.findall(r"(?<![\d.])\d{1,5}(?![\d.]\d)", str(value)[:400])]


def resolved(value: Any, known: Sequence[Known]) -> Known | None:
    """What is meant by an id, however it is written (`i3`, `[i3]`, `3`), or by the text itself; None for nothing known."""
    if isinstance(value, list):
        return next((one for item in value if (one := resolved(item, known)) is not None), None)
    if value is None or isinstance(value, bool | dict):
        return None
    text = str(value).strip()
    ids = {k.id: k for k in known}
    names = [ids[name] for name in re.findall(r"[a-z]\d+", text[:200].casefold()) if name in ids]
    if names:
        return names[0]
    same = [k for k in known if comparable(k.text) == comparable(text)]
    numbers = [k for k in known if re.fullmatch(r"\W*\d+\W*", text) and k.id[1:] == text.strip("[]() .#")]
    return same[0] if same else numbers[0] if len(numbers) == 1 else None


@dataclass(frozen=True, slots=True)
class Restated:
    """A text in new words. `standalone`: the model says that it is an instruction as it stands."""

    text: str
    standalone: bool = False


def restated_texts(completion: Completion, count: int) -> dict[int, Restated]:
    """Texts of an answer by the number of their item, from 0. Only the form that was asked for counts: a model that answers
    everything alike has restated nothing."""
    texts: dict[int, Restated] = {}
    values = json_values(completion.text, whole=completion.finish != "length")
    for entry in (entry for value in values for entry in records(value)):
        text = clean(str(entry.get("text") or ""))
        for number in _numbers(entry.get("number"))[:1] if text and "critiques" not in entry else []:
            if 1 <= number <= count and len(text) <= LONGEST and refusal(text) is None:
                texts.setdefault(number - 1, Restated(text, entry.get("standalone") is True))
    return texts


_TEXT = (
    "instruction",
    "text",
    "requirement",
    "rule",
    "proposed_instruction",
    "new_instruction",
    "wording",
    "demand",
)
_NUMBERS = (
    "critiques", "critique", "numbers", "number", "critique_ids", "points", "point", "evidence", "support", "ids", "id",
)  # fmt: skip
_VIOLATES = (
    "violates",
    "violated",
    "existing",
    "existing_instruction",
    "instruction_id",
    "covered_by",
    "same_as",
)
_CONTRADICTS = ("contradicts", "contradiction", "conflicts_with", "conflict", "opposes")
_DISMISSED = {
    NO_DEMAND: NO_DEMAND, "no_demands": NO_DEMAND, "nothing": NO_DEMAND, VAGUE: VAGUE, "unclear": VAGUE,
    TO_READER: TO_READER, "to_reader": TO_READER,
}  # fmt: skip
_TELLING = 16
"""Characters of an instruction from which on another one that holds it says the same; a shorter one may be part of a word."""
_NOTHING = ("", "null", "none", PLACEHOLDER)
_NUMBERED = re.compile(r"(?m)^[ \t]{0,8}((?:\[\d{1,3}\]|\d{1,3}[.):])[ \t]+\S.*)$")
_REFERENCES = re.compile(
    r"(.*\S)\s*[(\[]([^\d()\[\]]{0,20})(\d{1,3}(?:\s*[,;&]\s*\d{1,3})*)[)\]][.*_]*$", re.DOTALL
)
_LEADING = re.compile(r"\s*\[?(\d{1,4})[\].):]\s+(.*)", re.DOTALL)
