"""A simulated optimizer that turns complaints into instructions, imperfectly.

The law. It reads the points of a request (see `points`) and the prompt that it may change. Per reply it

- covers at most `capacity` points: the most frequent ones and those near the beginning and the end first;
- drops each of them with probability `drop`, rising to `drop + middle` for a point in the middle of a request
  of 8,000 tokens or more (in proportion below);
- garbles each with probability `garble`: a number is changed, or a named value is lost;
- adds with probability `repeat` an instruction that the prompt already has;
- shifts with probability `misnumber` the numbers of the critiques that it names for a demand by one;
- answers in another form than the one asked for with probability `off_format`;
- and, when a whole prompt is asked for, forgets every instruction that it copies with probability
  `forget * n / 100`, n being the number of instructions in the prompt.

A point about a hidden rule is phrased in one of the rule's wordings; any other complaint is turned into a
plain demand; a request without points gets a piece of general advice. The form of the reply is whatever
the request asks for (see `reply`). In the requests of instruction management (see `forms`) critiques of what
is known already do not count towards `capacity`, a garbled group of duplicates takes in a text that is none,
and a complaint about something unknown is vague.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import ClassVar

from benchmarks.simulated.forms import OptimizerAnswer, form_of, instructions_in
from benchmarks.simulated.language import Stance, understand
from benchmarks.simulated.points import Kept, ReadDemand, Wish, understand_request
from benchmarks.simulated.rules import BY_ID, stances

from whet.models.scripted import Scripted, chance, choose_by_luck, luck, shuffle, tokens
from whet.models.scripted_replies import ReplyItem, ScriptedProposal, request_text, write
from whet.types import Request

_LONG_REQUEST = 8000
_OFF_FORMAT = (
    "I looked at the complaints. Most of them come down to care; a few words on each would help:\n\n"
)
_ADVICE = ("Check every detail before you answer.", "Work with care.", "Follow the request to the letter.")
_VAGUE = ("the agreed value", "the usual form", "the right one")
_NUMBER = re.compile(r"(?<![\w.])\d+(?![\w.])|\b(?:two|three|four|five|six|eight|twelve)\b")
_VALUE = re.compile(r"`[^`]*[^\w`.][^`]*`|\"[^\"]+\"|(?<= to )`?\w[\w.-]*`?(?=\.$)")


class RulesOptimizer(Scripted):
    """Writes instructions for the complaints in a request; see the module for the law."""

    provider: ClassVar[str] = "simulated"
    OPTIONS: ClassVar[Mapping[str, str]] = {
        "capacity": "12",
        "drop": "0.08",
        "middle": "0.25",
        "garble": "0.06",
        "repeat": "0.1",
        "misnumber": "0.05",
        "off_format": "0.03",
        "forget": "0.3",
    }

    def __init__(self, name: str, options: Mapping[str, str]) -> None:
        super().__init__(name, options)
        self.capacity = self.option_int("capacity", 1, 1000)
        self._rates = {key: self.option_float(key) for key in self.OPTIONS if key != "capacity"}

    def answer(self, request: Request, sample: int) -> str:
        """Instructions in the form that the request asks for (or, at times, in none)."""
        text, draw = request_text(request), luck(request, sample)
        strays, form = self.happens("off_format", draw), form_of(request)
        if form is not None:
            entry = OptimizerAnswer(self, text, draw, tokens(text)).entry(form)
            return _stray(instructions_in(entry)) if strays else json.dumps(entry, ensure_ascii=False)
        wish = understand_request(text)

        def propose(k: int) -> ScriptedProposal:
            items = self._items(wish, tokens(text), f"{draw}\x1e{k}")
            return ScriptedProposal(items, self._whole(wish.prompt, items, f"{draw}\x1e{k}"))

        if strays:
            return _stray([item.text for item in propose(0).items])
        return write(request, propose)

    def happens(self, rate: str, *parts: object) -> bool:
        """Whether something with the probability of the option `rate` happens."""
        return chance(self.seed, rate, *parts) < self._rates[rate]

    def overlooks(self, point: ReadDemand, length: int, draw: str) -> bool:
        """Whether a point is overlooked: more often in the middle of a long request."""
        middle = 4 * point.place * (1 - point.place) * min(1.0, length / _LONG_REQUEST)
        rate = self._rates["drop"] + self._rates["middle"] * middle
        return chance(self.seed, "drop", draw, point.text) < rate

    def choose_points(self, points: Sequence[ReadDemand], draw: str) -> list[ReadDemand]:
        """The points that one reply covers, in their order."""

        def rank(point: ReadDemand) -> float:
            edge = 1 + abs(2 * point.place - 1)
            return -math.sqrt(point.count) * edge * (0.5 + chance(self.seed, "attention", draw, point.text))

        return sorted(sorted(points, key=rank)[: self.capacity], key=lambda point: point.place)

    def wording(self, rule: str, draw: str, without: Sequence[str] = ()) -> str:
        """A wording of a rule, at times a garbled one; one of `without` only where there is no other."""
        wordings = BY_ID[rule].wordings
        new = [text for text in wordings if text not in without] or wordings
        text = choose_by_luck(new, self.seed, "wording", draw, rule)
        return _garble(text, f"{self.seed}{draw}{rule}") if self.happens("garble", draw, rule) else text

    def _items(self, wish: Wish, length: int, draw: str) -> list[ReplyItem]:
        items = [
            ReplyItem(
                _demand(point.text) if point.rule is None else self.wording(point.rule, draw), point.text
            )
            for point in self.choose_points(wish.points, draw)
            if not self.overlooks(point, length, draw)
        ]
        if not wish.points:
            items.append(
                ReplyItem(
                    choose_by_luck(_ADVICE, self.seed, "advice", draw), "Nothing in particular was wrong."
                )
            )
        instructions = [kept.text for kept in wish.prompt if _is_instruction(kept)]
        if instructions and self.happens("repeat", draw):
            items.append(ReplyItem(choose_by_luck(instructions, self.seed, "repeated", draw), "It matters."))
        return items

    def _whole(self, prompt: Sequence[Kept], items: Sequence[ReplyItem], draw: str) -> str:
        instructions = sum(_is_instruction(kept) for kept in prompt)
        forgets = min(1.0, self._rates["forget"] * instructions / 100)
        lines = [
            kept.line
            for number, kept in enumerate(prompt)
            if not _is_instruction(kept) or chance(self.seed, "forget", draw, number) >= forgets
        ]
        present = {line.strip(" -*") for line in lines}
        return "\n".join([*lines, *(f"- {item.text}" for item in items if item.text not in present)])


def _stray(texts: Sequence[str]) -> str:
    """A reply in prose, in no form that was asked for."""
    return _OFF_FORMAT + "\n".join(texts)


def _is_instruction(kept: Kept) -> bool:
    bullet = re.match(r"\s*(?:[-*•]|\d+[.)]|\[)", kept.line)
    return bool(bullet) or any(stance is Stance.STATED for _, stance in stances(kept.text))


def _demand(complaint: str) -> str:
    """An instruction from a complaint about something unknown."""
    if understand(complaint).instructs:
        return complaint
    return f"Make sure that this is not said again: {complaint}"


def _garble(text: str, draw: str) -> str:
    """The text with one number changed, or with a value lost; as it was when it has neither."""
    numbers = [match.span() for match in _NUMBER.finditer(text)]
    if numbers and chance(draw, "number") < 0.5:
        start, stop = choose_by_luck(numbers, draw, "which")
        old = text[start:stop]
        other = shuffle([n for n in ("2", "3", "7", "9", "15", "20", "40", "75", "100") if n != old], draw)[0]
        return text[:start] + other + text[stop:]
    values = [*numbers, *(match.span() for match in _VALUE.finditer(text))]
    if not values:
        return text
    start, stop = choose_by_luck(values, draw, "value")
    return text[:start] + choose_by_luck(_VAGUE, draw, "vague") + text[stop:]
