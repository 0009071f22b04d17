"""The answers of the reader. An answer is data: a miscount in it changes a number, never an instruction."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from whet.instructions.neighbours import comparable, containment
from whet.prompt.instructions import reason_to_refuse
from whet.replies import between, json_values, list_items, records, without_thought
from whet.types import Completion

NO_DEMAND, VAGUE, TO_READER = "no_demand", "vague", "to_the_reader"
CONTEXT = "context"
EXAMPLE = "Name the colour of the train."
"""The instruction of the example in the form; an answer that holds it has only copied the form."""
EXAMPLE_NUMBERS, EXAMPLE_COUNT = [[1, 4], [3]], 4
"""The critiques of the entries of that example, and how many critiques it has."""
TAGS = "<INSTRUCTION>", "</INSTRUCTION>"
"""Around an instruction in an answer without a form."""
PLACEHOLDERS = "one imperative sentence", "the new wording"
"""The placeholder for a text in the forms."""
LONGEST, LONGEST_OF_ROWS = 400, 3000
"""Characters of an instruction at most: a longer text is no single demand. What is made of whole rows may list right answers and
tell them apart."""
_ALIKE, _ALIKE_WORDS = 0.5, 4
_DEEPEST, _NUMBERS_SHOWN = 7, 4000


@dataclass(frozen=True, slots=True)
class Known:
    """Something that is demanded already: an instruction, or a requirement that waits."""

    id: str
    """One letter and digits."""
    text: str
    in_force: bool = True
    """False if the answers were given without it."""
    managed: bool = True
    """False for a line of the prompt that is no instruction."""
    before: tuple[str, ...] = ()
    """The rewards of earlier wordings, a line each."""
    parts: tuple[str, ...] = ()
    """The examples of which the text consists, behind its first line."""
    of_rows: bool = False
    """Whether whole rows demanded it."""


K = TypeVar("K", bound=Known)


@dataclass(frozen=True, slots=True)
class Requirement:
    """One requirement that critiques state."""

    text: str
    """A proposed instruction; with `violates`, a better wording of that instruction, or empty."""
    critiques: tuple[int, ...] = ()
    """Positions in the list of critiques that was read, from 0; empty: the model named none."""
    violates: str = ""
    """The id of the instruction or requirement that demands it already."""
    contradicts: str = ""
    """The id of what demands the contrary; `context`: the text around the editable region does."""
    copied: bool = False
    """Whether the text repeats a critique."""
    confirmed: bool = False
    """Whether the model calls a copied text an instruction all the same."""
    improper: bool = False
    """Whether the model says that no honest provider of the answers would give this instruction."""


def understood(
    completion: Completion, known: Sequence[Known], count: int, longest: int = LONGEST
) -> tuple[list[Requirement], dict[int, str]]:
    """The requirements that an answer states and the critiques that it dismisses, both by place from 0.

    The answer may be the form, any JSON like it, or a list in prose; thought blocks and chatter are skipped. Two
    requirements for one critique are two requirements.
    """
    whole = completion.error is None and completion.finish != "length"
    values = json_values(completion.text, whole=whole)
    if copies_example(completion.text, values, count):
        return [], {}
    numbers: dict[int, str] = {}
    best = values[:1] if is_form(values) else values
    requirements = [
        r for entry in _entries(best, numbers) for r in _requirement(entry, known, count, longest)
    ]
    dismissed = {number - 1: why for number, why in numbers.items() if 1 <= number <= count}
    if whole and not (requirements or dismissed or is_form(values)):
        lines = _NUMBERED.findall(without_thought(completion.text)) or list_items(completion.text)
        requirements = [r for entry in _of_lines(lines) for r in _requirement(entry, known, count, longest)]
    texts = _references([requirement.text for requirement in requirements])
    requirements = join_equal(replace(r, text=text) for r, (text, _) in zip(requirements, texts, strict=True))
    stated = {place for requirement in requirements for place in requirement.critiques}
    return requirements, {place: why for place, why in dismissed.items() if place not in stated}


def misleading_parts(completion: Completion, known: Sequence[Known]) -> tuple[str, ...]:
    """The examples that an answer calls misleading: those texts of `parts` that it names by ids such as `t2.1`. None of a text
    more than half of whose examples it names: that is a slip, or the whole text is meant, which has an id of its own."""
    keys = (_MISLEADING, *_VIOLATES, *_CONTRADICTS)
    named = [key for text in _naming(json_values(completion.text), keys) for key in _PART.findall(text)]
    texts: list[str] = []
    for one in known:
        own = [text for number, text in enumerate(one.parts, 1) if f"{one.id}.{number}" in named]
        texts += own if 2 * len(own) <= len(one.parts) else []
    return tuple(texts)


def superfluous_lines(completion: Completion, known: Sequence[Known]) -> tuple[str, ...]:
    """The lines that are no instruction and that an answer calls superfluous, by their ids."""
    lines = {one.id: one.text for one in known if not (one.managed or one.parts)}
    answers = _naming(json_values(completion.text), (_SUPERFLUOUS,))
    named = [key for text in answers for key in _WHOLE.findall(text)]
    return tuple(lines[key] for key in dict.fromkeys(named) if key in lines)


def _naming(value: Any, keys: Collection[str], depth: int = 0) -> Iterator[str]:
    """The parts of an answer, at any depth, under these keys."""
    if isinstance(value, list) and depth < _DEEPEST:
        for item in value:
            yield from _naming(item, keys, depth + 1)
    elif isinstance(value, dict) and depth < _DEEPEST:
        for key, item in value.items():
            if _key(key) in keys:
                yield str(item)[:_NUMBERS_SHOWN]
            else:
                yield from _naming(item, keys, depth + 1)


def refused_texts(completion: Completion, longest: int = LONGEST) -> list[tuple[str, str]]:
    """The texts of an answer that are no instruction, each with the reason."""
    whole = completion.error is None and completion.finish != "length"
    entries = _entries(json_values(completion.text, whole=whole)[:1], {})
    stated = (entry[key] for entry in entries for key in _TEXT if isinstance(entry.get(key), str))
    texts = [
        " ".join(text.split()) for text in stated if text.strip() and not clean_instruction(text, longest)
    ]
    reasons = ((text, reason_to_refuse(text) or _too_long(text, longest)) for text in texts)
    return [(text, reason) for text, reason in reasons if reason]


def _too_long(text: str, longest: int) -> str | None:
    over = len(text) > longest
    return f"the text has {len(text)} characters; one demand has at most {longest}" if over else None


def join_equal(requirements: Iterable[Requirement]) -> list[Requirement]:
    """Requirements that say the same in equal texts made one, with the critiques of all."""
    by_text: dict[tuple[str, str], Requirement] = {}
    for requirement in requirements:
        key = (requirement.violates, comparable(requirement.text))
        by_text[key] = join_requirements(by_text[key], requirement) if key in by_text else requirement
    return list(by_text.values())


def join_requirements(one: Requirement, other: Requirement) -> Requirement:
    """The first of two requirements that say the same, with the critiques of both."""
    critiques = tuple(dict.fromkeys((*one.critiques, *other.critiques)))
    return replace(one, critiques=critiques, contradicts=one.contradicts or other.contradicts)


def read_listed(completion: Completion, known: Sequence[Known], longest: int = LONGEST) -> list[Requirement]:
    """The instructions of an answer in tags or as a list; one that holds another of them, or a known one, says nothing new."""
    reply = without_thought(completion.text)
    items = list_items(reply)
    if completion.finish == "length":
        items = items[:-1]
    items = between(reply, *TAGS) or items
    requirements = [r for item in items for r in _requirement({"text": item}, known, 0, longest) if r.text]
    texts = {
        comparable(r.text): r for r in requirements or understood(completion, known, 0, longest)[0] if r.text
    }
    shorter = [text for text in (*texts, *(comparable(k.text) for k in known)) if len(text) >= _TELLING]
    return [r for own, r in texts.items() if not any(one in own for one in shorter if one != own)]


def _of_lines(lines: Sequence[str]) -> list[dict[str, str]]:
    """The entries of a list of lines.

    A number before a line names a critique, unless these numbers only count the lines: 1, 2, 3. Where most lines end with numbers
    in brackets after the same word, these name critiques.
    """
    heads = [_LEADING.match(line) for line in lines]
    counting = [int(head[1]) if head else 0 for head in heads] == [*range(1, len(lines) + 1)]
    entries = [
        {"text": head[2], "number": "" if counting else head[1]} if head else {"text": line}
        for head, line in zip(heads, lines, strict=True)
    ]
    for entry, (text, numbers) in zip(entries, _references([e["text"] for e in entries]), strict=True):
        entry.update({"text": text, "number": numbers} if numbers else {})
    return entries


def _references(texts: Sequence[str]) -> list[tuple[str, str]]:
    """Texts without the numbers in brackets that most of them have at their end after the same word, and these numbers."""
    ends = [_REFERENCES.match(text) for text in texts]
    words = [end[2].strip().casefold()[:_ALIKE_WORDS] if end else None for end in ends]
    often = {word for word, times in Counter(words).items() if times > max(1, len(texts) / 2)}
    return [
        (end[1] + ("." if text[-1] == "." and end[1][-1].isalnum() else ""), end[3])
        if end and word in often
        else (text, "")
        for text, end, word in zip(texts, ends, words, strict=True)
    ]


def is_form(values: Sequence[Any]) -> bool:
    """Whether the first value of an answer is the form of the reader, whatever it holds."""
    return bool(values) and isinstance(values[0], dict) and any(_key(k) == "requirements" for k in values[0])


def copies_example(text: str, values: Sequence[Any], count: int) -> bool:
    """Whether an answer about `count` critiques only copies the example of the form: its text, or its numbers where the example
    has other critiques. `values` is the JSON of the answer."""
    if EXAMPLE in text or not is_form(values):
        return EXAMPLE in text
    entries = next(item for key, item in values[0].items() if _key(key) == "requirements")
    numbers = [_numbers(entry.get("critiques")) for entry in records(entries)]
    return count != EXAMPLE_COUNT and numbers == EXAMPLE_NUMBERS


def _key(name: object) -> str:
    return re.sub(r"\W+", "_", str(name).strip().casefold())


def _entries(value: Any, dismissed: dict[int, str], depth: int = 0) -> Iterator[dict[str, Any]]:
    """Entries that may be requirements, wherever they stand in an answer; numbers of dismissed critiques are noted on the way."""
    if depth > _DEEPEST:
        return
    if isinstance(value, list):
        yield from _of_lines([item for item in value if isinstance(item, str)])
        for item in value:
            yield from _entries(item, dismissed, depth + 1)
    elif isinstance(value, dict):
        keys = {_key(key): item for key, item in value.items()}
        if any(isinstance(keys.get(key), int | str) for key in (*_TEXT, *_VIOLATES)):
            yield keys
            return
        for key, item in keys.items():
            if key in _DISMISSED:
                dismissed |= dict.fromkeys(_numbers(item), _DISMISSED[key])
            elif isinstance(item, str) and re.fullmatch(r"\D{0,2}\d{1,4}", key):
                yield {"text": item, "number": key}
            elif key not in (_MISLEADING, _SUPERFLUOUS):
                yield from _entries(item, dismissed, depth + 1)


def _requirement(
    entry: Mapping[str, Any], known: Sequence[Known], count: int, longest: int
) -> list[Requirement]:
    """The requirement of one entry, or nothing where it says nothing that can be used."""

    def find_known(keys: Sequence[str], among: Sequence[Known]) -> Known | None:
        return next((one for key in keys if (one := resolve_id(entry.get(key), among))), None)

    texts = (entry[k] for k in _TEXT if isinstance(entry.get(k), str) and entry[k].strip())
    text = clean_instruction(next(texts, ""), longest)
    places = [n - 1 for key in _NUMBERS for n in _numbers(entry.get(key)) if 1 <= n <= count]
    contrary = find_known(_CONTRADICTS, [*known, Known(CONTEXT, CONTEXT)])
    same = next((k for k in known if text and comparable(k.text) == comparable(text)), None)
    violated = same or find_known(_VIOLATES, known)
    if same:
        text = ""
    elif violated and text and not _may_reword(violated, text, known):
        violated = None
    ids = [one.id if one else "" for one in (violated, contrary)]
    return [Requirement(text, tuple(dict.fromkeys(places)), ids[0], ids[1])] if text or violated else []


def _may_reword(old: Known, text: str, known: Sequence[Known]) -> bool:
    """Whether a text may be meant as another wording of what its entry names: an instruction that it is like, or, however little
    of it is left, a single line of the prompt that is no instruction, and the only instruction that whole rows demanded."""
    alone = [one.id for one in known if one.of_rows] == [old.id]
    return alone or (not old.managed and "\n" not in old.text) or is_like(old.text, text)


def is_like(old: str, new: str) -> bool:
    """Whether a text holds about half of another one, or the other way round."""
    return max(containment(old, new), containment(new, old)) >= _ALIKE


def clean_instruction(text: str, longest: int = LONGEST) -> str:
    """A proposed instruction without list marks and wrapping quotes, on the lines that it has; empty where it stands for nothing
    or for more than one demand (it is longer than `longest`), and where a prompt refuses it. One that may be as long as a wording
    of rows keeps single empty lines, which part its examples, and how its lines are indented."""
    if longest < LONGEST_OF_ROWS:
        lines = [line for line in (" ".join(line.split()) for line in text.splitlines()) if line]
    else:
        lines = re.sub(r"\n(?:[ \t]*\n)+", "\n\n", "\n".join(text.strip().splitlines())).split("\n")
        lines = [line.rstrip().replace("\t", "    ") for line in lines]
    listed = bool(lines) and all(_MARKS.match(line) for line in lines if line)
    text = "\n".join(_MARKS.sub("", line) if listed or n == 0 else line for n, line in enumerate(lines))
    for mark in ("**", "__", "*", "_", '"', "'", "“", "`"):
        end, size = "”" if mark == "“" else mark, len(mark)
        wrapped = len(text) > 2 * size and text.startswith(mark) and text.endswith(end)
        if wrapped and mark not in text[size:-size]:
            text = text[size:-size].strip()
    nothing = comparable(text) in _NOTHING or _ID.fullmatch(text)
    return "" if nothing or len(text) > longest or reason_to_refuse(text) else text


def _numbers(value: Any) -> list[int]:
    """All whole numbers that a value names: `[1, "2"]`, `"1, 2"`, `"c7"`, 3."""
    return [int(n) for n in re.findall(r"(?<![\d.])\d{1,5}(?![\d.]\d)", str(value)[:_NUMBERS_SHOWN])]


def resolve_id(value: Any, known: Sequence[K]) -> K | None:
    """The id that a text means, in any notation (`i3`, `[i3]`, `3`), or the id of an instruction with this text; None for an
    unknown one."""
    if isinstance(value, list) or not value:
        return next((one for item in value or () if (one := resolve_id(item, known))), None)
    text = str(value).strip()
    by_id = {k.id: k for k in known}
    named = [by_id[name] for name in _WHOLE.findall(text[:200].casefold()) if name in by_id]
    same = (k for k in known if comparable(k.text) == comparable(text))
    numbers = [k for k in known if k.id[1:] == text.strip("[]() .#")]
    return next(itertools.chain(named, same, numbers if len(numbers) == 1 else ()), None)


def restated_texts(completion: Completion, count: int) -> dict[int, Requirement]:
    """Texts in new words by the number of their item, from 0, confirmed where the model says that the old one was an instruction
    as it stands. Only the form that was asked for counts: a model that answers everything alike has restated nothing."""
    texts: dict[int, Requirement] = {}
    for entry in records(json_values(completion.text, whole=completion.finish != "length")):
        text = clean_instruction(str(entry.get("text") or ""))
        number = next(iter(_numbers(entry.get("number"))), 0)
        if text and "critiques" not in entry and 1 <= number <= count:
            texts.setdefault(number - 1, Requirement(text, confirmed=entry.get("standalone") is True))
    return texts


_TEXT = "instruction", "text", "requirement", "rule", "proposed_instruction", "new_instruction", "wording"
_NUMBERS = "critiques", "critique", "numbers", "number", "critique_ids", "points", "evidence", "ids", "id"
_VIOLATES = "existing", "existing_instruction", "violates", "violated", "instruction_id", "same_as"
_CONTRADICTS = "contradicts", "contradiction", "conflicts_with", "conflict", "opposes"
_DISMISSED = {name: name for name in (NO_DEMAND, VAGUE, TO_READER)} | {"nothing": NO_DEMAND, "unclear": VAGUE}
_MISLEADING, _SUPERFLUOUS = "misleading", "superfluous"
_PART, _WHOLE = re.compile(r"[a-z]\d+\.\d+"), re.compile(r"[a-z]\d+(?!\d|\.\d)")
"""The id of an example in a text, and that of a whole text."""
_TELLING = 16
"""Characters of an instruction from which on another one that holds it says the same; a shorter one may be part of a word."""
_NOTHING = ("", "null", "none", *PLACEHOLDERS)
_NUMBERED = re.compile(r"(?m)^[ \t]{0,8}((?:\[\d{1,3}\]|\d{1,3}[.):])[ \t]+\S.*)$")
_REFERENCES = re.compile(
    r"(.*\S)\s*[(\[]([^\d()\[\]]{0,20})(\d{1,3}(?:\s*[,;&]\s*\d{1,3})*)[)\]][.*_]*$", re.DOTALL
)
_ID = re.compile(r"\W*\w\d{1,4}\W*")
_MARKS = re.compile(r"^(?:[-*•–]\s+|\[?\w?\d{1,4}[\].):]\s+)+")
_LEADING = re.compile(r"\s*\[?(\d{1,4})[\].):]\s+(.*)", re.DOTALL)
