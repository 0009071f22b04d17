"""Worlds in which a prompt teaches by lessons: types of questions, formats, a defective start, cards. SIMULATED models.

A lesson is a line of the prompt, `KEY: VALUE.`, and the task model follows the last line about a key. What it does without one
is drawn by the seed, and mostly wrong. A demonstration (`Input: ...`, `Answer: ...`) teaches what can be read off it. The worlds
know nothing of methods; :mod:`benchmarks.simulated.lesson_writer` is the optimizer that reads requests about them.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar

from whet.errors import UsageError, did_you_mean
from whet.models.scripted import Scripted, chance, choose_by_luck, shuffle
from whet.types import Request

Lessons = dict[str, str]
Row = dict[str, Any]
SWAY = 0.2
"""How often the task model answers otherwise than by habit where it is told nothing."""
LACKS = "It lacks this. "
_LINE = re.compile(rf"(?m)^\W*(?:{LACKS})?([A-Z][\w ]+): ([\w ]+?)\.?\s*$")
_SHOWN = re.compile(r"(?m)^Input: (.*)\n(?:Answer|Wanted): (.*)$")
_BLOCK = re.compile(r"(?m)^(?:\d+\. )?(?=Input: )")


@dataclass(frozen=True)
class LessonWorld(ABC):
    """One task, drawn by `seed`: what can be taught, how rows look, what the task model does, and what can be read off a row."""

    seed: int
    start: ClassVar[str]

    @property
    @abstractmethod
    def values(self) -> Mapping[str, Sequence[str]]:
        """The values that a lesson about a key may have."""

    @abstractmethod
    def rows(self, first: int, count: int) -> list[Row]:
        """Rows with the keys id, input and, where there is one, target."""

    @abstractmethod
    def answer(self, prompt: str, question: str, draw: int) -> str:
        """What the task model answers; `draw` numbers its samples above temperature 0."""

    @abstractmethod
    def read(self, block: str) -> Lessons:
        """What a block of a request about one row teaches."""


def lines(lessons: Mapping[str, str]) -> list[str]:
    """Lessons as lines."""
    return [f"{key}: {value}." for key, value in lessons.items()]


def stated_lessons(world: LessonWorld, text: str) -> Lessons:
    """The lessons that lines of a text state, the last one about a key."""
    return {key: value for key, value in _LINE.findall(text) if value in world.values.get(key, ())}


def taught_lessons(world: LessonWorld, prompt: str) -> Lessons:
    """The lessons of a prompt: those of its demonstrations, then those of its lines."""
    shown: Lessons = {}
    for question, answer in _SHOWN.findall(prompt):
        shown |= world.read(f"Input: {question}\nWanted: {answer}")
    return shown | stated_lessons(world, prompt)


def blocks(text: str) -> list[str]:
    """The parts of a request that are about one row each."""
    return _BLOCK.split(text)[1:]


@dataclass(frozen=True)
class Types(LessonWorld):
    """Questions about eighteen topics, each of one of six types; the model knows the types of a third of the topics. It says a
    type only where its prompt names that type."""

    start: ClassVar[str] = "Answer."
    TOPICS: ClassVar[tuple[str, ...]] = (
        "rivers", "kings", "letters", "recipes", "bridges", "prices", "islands", "actors", "insects", "wars", "rockets", "songs",
        "colours", "coins", "poets", "planets", "codes", "harbours",
    )  # fmt: skip
    NAMES: ClassVar[tuple[str, ...]] = (
        "abbreviation",
        "description",
        "entity",
        "human",
        "location",
        "number",
    )

    @property
    def values(self) -> Mapping[str, Sequence[str]]:
        return {f"About {topic}": self.NAMES for topic in self.TOPICS}

    def right(self, topic: str) -> str:
        """The type of a topic."""
        order = shuffle(self.TOPICS, self.seed, "types")
        return self.NAMES[order.index(topic) % len(self.NAMES)]

    def rows(self, first: int, count: int) -> list[Row]:
        made = []
        for n in range(first, first + count):
            topic = choose_by_luck(self.TOPICS, self.seed, "row", n)
            text = f"Question {n}: what would you tell a friend about {topic}?"
            made.append({"id": f"q{n}", "input": text, "target": self.right(topic)})
        return made

    def answer(self, prompt: str, question: str, draw: int) -> str:
        words = set(re.findall(r"\w+", prompt))
        named = [name for name in self.NAMES if name in words]
        topic = question.rpartition("about ")[2].rstrip("?\n ")
        if not named or topic not in self.TOPICS:
            return "A friend would like to hear a lot of things."
        knows = chance(self.seed, "knows", topic) < 1 / 3
        sways = chance(self.seed, "sways", question, draw) < SWAY
        thought = (
            self.right(topic)
            if knows
            else choose_by_luck(self.NAMES, self.seed, "thought", topic, *([question, draw] if sways else []))
        )
        thought = taught_lessons(self, prompt).get(f"About {topic}", thought)
        slips = chance(self.seed, prompt, question, draw) < 0.05
        return (
            choose_by_luck(named, self.seed, prompt, question, "slip")
            if slips or thought not in named
            else thought
        )

    def read(self, block: str) -> Lessons:
        topic, wanted = re.search(r"about (\w+)\?", block), re.search(r"(?m)^Wanted: (\w+)$", block)
        return {f"About {topic[1]}": wanted[1]} if topic and wanted and wanted[1] in self.NAMES else {}


@dataclass(frozen=True)
class Formats(LessonWorld):
    """Amounts, dates and times that must be written in a hidden form of eight choices; an answer must be exactly right."""

    start: ClassVar[str] = "Write the entry in our form."
    CHOICES: ClassVar[Mapping[str, Sequence[str]]] = {
        "Thousands": ("comma", "blank", "nothing"),
        "Decimals": ("0", "1", "2", "3"),
        "Currency": ("in front", "behind", "left out"),
        "Date order": ("day first", "month first", "year first"),
        "Date separator": ("dot", "slash", "hyphen"),
        "Leading zeros": ("kept", "dropped"),
        "Clock": ("24 hours", "12 hours"),
        "Time separator": ("colon", "dot"),
    }
    KINDS: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "amount": ("Thousands", "Decimals", "Currency"),
        "date": ("Date order", "Date separator", "Leading zeros"),
        "time": ("Clock", "Time separator"),
    }

    @property
    def values(self) -> Mapping[str, Sequence[str]]:
        return self.CHOICES

    @property
    def form(self) -> Lessons:
        """The hidden form."""
        return {key: choose_by_luck(values, self.seed, "form", key) for key, values in self.values.items()}

    @property
    def habits(self) -> Lessons:
        """What the model does untold: right for a quarter of the choices."""
        right = self.form
        return {
            key: right[key] if chance(self.seed, "habit", key) < 0.25 else choose_by_luck(
                [v for v in values if v != right[key]], self.seed, "habit", key, "which"
            )
            for key, values in self.values.items()
        }  # fmt: skip

    def rows(self, first: int, count: int) -> list[Row]:
        made = []
        for n in range(first, first + count):
            text = self._entry(n)
            made.append({"id": f"e{n}", "input": text, "target": self.write(text, self.form)})
        return made

    def _entry(self, n: int) -> str:
        def number(low: int, high: int, *what: object) -> int:
            return low + int((high - low) * chance(self.seed, "entry", n, *what))

        kind = ("amount", "date", "time")[n % 3]
        if kind == "amount":
            return f"Entry {n}: an amount of {number(1_000_000, 99_999_999) / 1000:.3f} euros"
        if kind == "date":
            return f"Entry {n}: the date year {number(1990, 2030)}, month {number(1, 13, 'm')}, day {number(1, 29, 'd')}"
        return f"Entry {n}: the time {number(0, 24)} hours and {number(0, 60, 'm')} minutes"

    def write(self, entry: str, form: Mapping[str, str]) -> str:
        """An entry in a form."""
        kind, figures = self._kind(entry), self._figures(entry)
        if kind == "amount":
            text = f"{figures[0]:,.{form['Decimals']}f}"
            text = text.replace(",", {"comma": ",", "blank": " ", "nothing": ""}[form["Thousands"]])
            return {"in front": f"EUR {text}", "behind": f"{text} EUR", "left out": text}[form["Currency"]]
        if kind == "date":
            year, month, day = (int(figure) for figure in figures[:3])
            width = 2 if form["Leading zeros"] == "kept" else 1
            parts = {"year": f"{year}", "month": f"{month:0{width}}", "day": f"{day:0{width}}"}
            first = form["Date order"].split()[0]
            order = {
                "day": ("day", "month", "year"),
                "month": ("month", "day", "year"),
                "year": ("year", "month", "day"),
            }[first]
            return {"dot": ".", "slash": "/", "hyphen": "-"}[form["Date separator"]].join(
                parts[name] for name in order
            )
        hours, minutes = (int(figure) for figure in figures[:2])
        mark = ":" if form["Time separator"] == "colon" else "."
        if form["Clock"] == "24 hours":
            return f"{hours:02}{mark}{minutes:02}"
        return f"{(hours - 1) % 12 + 1}{mark}{minutes:02} {'pm' if hours >= 12 else 'am'}"

    def _figures(self, entry: str) -> list[float]:
        return [float(text) for text in re.findall(r"\d+(?:\.\d+)?", entry.partition(":")[2])]

    def _kind(self, entry: str) -> str:
        """What an entry is; empty for one that lacks words or figures, such as one that a method has pruned."""
        kind = next(
            (
                kind
                for kind in self.KINDS
                if f": a {kind}" in entry or f": an {kind}" in entry or f": the {kind}" in entry
            ),
            "",
        )
        needed = {"amount": 1, "date": 3, "time": 2}
        return kind if kind and len(self._figures(entry)) >= needed[kind] else ""

    def answer(self, prompt: str, question: str, draw: int) -> str:
        if not self._kind(question):
            return "Which entry?"
        swayed = {
            key: choose_by_luck(values, self.seed, key, question, draw)
            for key, values in self.values.items()
            if chance(self.seed, "sways", key, question, draw) < SWAY
        }
        return self.write(question, self.habits | swayed | taught_lessons(self, prompt))

    def read(self, block: str) -> Lessons:
        entry, wanted = re.search(r"Entry \d+: .*", block), re.search(r"(?m)^Wanted: (.*)$", block)
        kind = self._kind(entry[0]) if entry else ""
        if not entry or not wanted or not kind:
            return {}
        keys, habits = self.KINDS[kind], self.habits
        fits = [
            combined for chosen in product(*(self.values[key] for key in keys))
            if self.write(entry[0], habits | (combined := dict(zip(keys, chosen, strict=True)))) == wanted[1].strip()
        ]  # fmt: skip
        return {key: fits[0][key] for key in keys if fits and len({fit[key] for fit in fits}) == 1}


@dataclass(frozen=True)
class Trap(LessonWorld):
    """Letters, and a start with a fault that no wrong answer shows: right on 15 % of them while it stands, else on 80 %. No
    lesson helps. After the defective seeds of VISTA (arXiv:2603.18388)."""

    FAULT: ClassVar[str] = "Give the answer field, then the work field."
    start: ClassVar[str] = f"Say yes or no. {FAULT}"

    @property
    def values(self) -> Mapping[str, Sequence[str]]:
        return {}

    def rows(self, first: int, count: int) -> list[Row]:
        made = []
        for n in range(first, first + count):
            label = ("yes", "no")[n // 12 % 2]
            made.append(
                {"id": f"l{n}", "input": f"Letter {n} about topic-{n % 12}: {label}", "target": label}
            )
        return made

    def answer(self, prompt: str, question: str, draw: int) -> str:
        share = 0.15 if self.FAULT in prompt else 0.8
        return question.split()[-1] if chance(self.seed, "letter", question) < share else "unsure"

    def read(self, block: str) -> Lessons:
        return {}


@dataclass(frozen=True)
class Cards(LessonWorld):
    """Blackjack: the model hits below a total that a lesson names, by whether the dealer shows a low card (2 to 6) or a high one.
    Untold it hits below 20. A lost episode tells whether it hit too long or stuck too early."""

    start: ClassVar[str] = "Play the cards."
    KEYS: ClassVar[tuple[str, str]] = ("Stick against a low card at", "Stick against a high card at")
    UNTOLD: ClassVar[int] = 20

    @property
    def values(self) -> Mapping[str, Sequence[str]]:
        return dict.fromkeys(self.KEYS, tuple(map(str, range(11, 21))))

    def rows(self, first: int, count: int) -> list[Row]:
        return [
            {"id": f"g{n}", "input": f"Game {n}", "seed": 100_000 * self.seed + n}
            for n in range(first, first + count)
        ]

    def answer(self, prompt: str, question: str, draw: int) -> str:
        total, dealer = re.findall(r"sum to (\d+)", question), re.findall(r"dealer shows (\w+)", question)
        if not total or not dealer:
            return "stick"
        limit = taught_lessons(self, prompt).get(self._key(dealer[-1]), self.UNTOLD)
        return "hit" if int(total[-1]) < int(limit) else "stick"

    def _key(self, dealer: str) -> str:
        return self.KEYS[not (dealer.isdigit() and int(dealer) <= 6)]

    def read(self, block: str) -> Lessons:
        total, dealer = re.findall(r"sum to (\d+)", block), re.findall(r"dealer shows (\w+)", block)
        reward = re.search(r"(?m)^Reward: (-?[\d.]+)", block)
        if not total or not dealer or not reward or float(reward[1]) > 0.4:
            return {}
        stuck = "stick" in re.sub(r"stick or hit", "", block)
        wanted = int(total[-1]) + 1 if stuck else int(total[-1])
        return {self._key(dealer[-1]): str(min(20, max(11, wanted)))}


WORLDS: Mapping[str, type[LessonWorld]] = {
    "types": Types, "formats": Formats, "trap": Trap, "cards": Cards,
}  # fmt: skip


def world_of(name: str, seed: int) -> LessonWorld:
    """The world of a name. Raises UsageError for an unknown one."""
    if name not in WORLDS:
        raise UsageError(f'There is no world "{name}".{did_you_mean(name, WORLDS)}')
    return WORLDS[name](seed)


class LessonTask(Scripted):
    """The task model of a world: `simulated/lesson-task?world=types&seed=3`."""

    provider: ClassVar[str] = "simulated"
    OPTIONS: ClassVar[Mapping[str, str]] = {"world": "types"}

    def __init__(self, name: str, options: Mapping[str, str]) -> None:
        super().__init__(name, options)
        self.world = world_of(self.options["world"], self.seed)

    def answer(self, request: Request, sample: int) -> str:
        """The answer to the last message; what stands before it is the prompt."""
        first, last = request.messages[0].content, request.messages[-1].content
        return self.world.answer(first, last, sample if request.temperature > 0 else 0)


def merge_lessons(texts: Iterable[Lessons]) -> Lessons:
    """Lessons of several places; the first about a key counts."""
    result: Lessons = {}
    for lessons in texts:
        result = lessons | result
    return result
