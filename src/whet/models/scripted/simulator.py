"""What all simulators share: options, randomness without a generator, token count, form of an answer."""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import ClassVar, TypeVar
from urllib.parse import urlencode

from whet.errors import UsageError, did_you_mean
from whet.prompt import Prompt
from whet.types import Completion, Request, Scores, Usage

T = TypeVar("T")

COMMON = {"seed": "0", "latency": "0"}


def chance(*parts: object) -> float:
    """A number in [0, 1) that depends on its arguments only.

    It stands in for a random generator: the same question always meets the same luck, in any order,
    in any process.
    """
    digest = hashlib.blake2b(
        "\x1f".join(map(str, parts)).encode("utf-8", "surrogatepass"), digest_size=8
    ).digest()
    return (int.from_bytes(digest, "big") >> 11) / 2**53


def choose(items: Sequence[T], *parts: object) -> T:
    """One of the items, by the luck of the other arguments."""
    return items[int(chance(*parts) * len(items))]


def shuffled(items: Sequence[T], *parts: object) -> list[T]:
    """The items in an order that depends on the other arguments only."""
    return [items[i] for i in sorted(range(len(items)), key=lambda i: chance(*parts, i))]


def tokens(text: str) -> int:
    """Billed tokens of a text: a quarter of its characters, rounded up."""
    return -(-len(text) // 4)


class Scripted:
    """A simulator: its answer is a function of the request, of the sample number and of its options.

    A subclass lists its options with their defaults and writes `answer`. The luck of an answer
    depends on the messages, the schema and the sample number, so that samples differ and repeats do not.
    """

    OPTIONS: ClassVar[Mapping[str, str]] = {}
    simulated = True
    local = True
    can_generate = True
    can_score = False

    def __init__(self, name: str, options: Mapping[str, str]) -> None:
        known = {**COMMON, **self.OPTIONS}
        self.address = f"scripted/{name}" + (f"?{urlencode(options)}" if options else "")
        for key in options:
            if key not in known:
                raise UsageError(f'{self.address}: unknown option "{key}".{did_you_mean(key, known)}')
        self.options = {**known, **options}
        self.seed = self.option_int("seed")
        self.latency = self.option_float("latency", 0.0, 3600.0)

    def option_int(self, key: str, low: int | None = None, high: int | None = None) -> int:
        """An option as a whole number in [low, high]."""
        try:
            value = int(self.options[key])
        except ValueError:
            value = None
        if value is None or (low is not None and value < low) or (high is not None and value > high):
            raise UsageError(self._unreadable(key, f"a whole number{_bounds(low, high)}"))
        return value

    def option_float(self, key: str, low: float = 0.0, high: float = 1.0) -> float:
        """An option as a number in [low, high]."""
        try:
            value = float(self.options[key])
        except ValueError:
            value = math.nan
        if not low <= value <= high:
            raise UsageError(self._unreadable(key, f"a number{_bounds(low, high)}"))
        return value

    def option_list(self, key: str, separator: str = ",") -> tuple[str, ...]:
        """An option as a list of words, at least one."""
        words = tuple(word.strip() for word in self.options[key].split(separator) if word.strip())
        if not words:
            raise UsageError(self._unreadable(key, f"words separated by {separator!r}"))
        return words

    def _unreadable(self, key: str, wanted: str) -> str:
        return f"{self.address}: option {key}={self.options[key]} is not {wanted}."

    def answer(self, request: Request, sample: int) -> str:
        """The text of one sample. Raises UsageError when the simulator only scores."""
        raise UsageError(f"{self.address} cannot generate; it only scores given continuations.")

    async def generate(self, request: Request) -> list[Completion]:
        """Answer samples `request.sample` to `request.sample + n - 1`, cut at `stop` and `max_tokens`."""
        if self.latency:
            await asyncio.sleep(self.latency)
        prompt_tokens = sum(tokens(m.content) for m in request.messages)
        return [
            _completion(self.answer(request, request.sample + i), request, prompt_tokens if i == 0 else 0)
            for i in range(request.n)
        ]

    async def score(
        self,
        prompts: Sequence[Prompt],
        inputs: Sequence[Mapping[str, str]],
        continuations: Sequence[Sequence[str]],
    ) -> Scores:
        """Refuse: most simulators only generate."""
        raise UsageError(f"{self.address} cannot score continuations; it only generates.")

    def count_tokens(self, text: str) -> int:
        """Tokens of a text, as they are billed."""
        return tokens(text)

    async def close(self) -> None:
        """Nothing is held open."""


def _bounds(low: float | None, high: float | None) -> str:
    if low is None and high is None:
        return ""
    if high is None:
        return f" of at least {low}"
    return f" between {low} and {high}"


def _completion(text: str, request: Request, input_tokens: int) -> Completion:
    for stop in request.stop:
        text = text.split(stop, 1)[0]
    finish, error = "stop", None
    if request.max_tokens is not None and tokens(text) > request.max_tokens:
        text, finish, error = text[: 4 * request.max_tokens], "length", "truncated at max_tokens"
    elif not text.strip():
        error = "empty answer"
    return Completion(text, finish, Usage(input_tokens, tokens(text)), error)


def request_text(request: Request) -> str:
    """All messages as one text."""
    return "\n\n".join(m.content for m in request.messages)


def luck(request: Request, sample: int) -> str:
    """What the luck of an answer depends on: everything that a model is shown, and the sample number."""
    return "\x1e".join(
        [*(f"{m.role}:{m.content}" for m in request.messages), str(request.schema), str(sample)]
    )
