"""Deterministic simulators of language models, for tests, examples and benchmarks; all they answer is simulated.

`scripted/NAME?option=value&...`; every simulator knows `seed` (which world is drawn) and `latency` (seconds slept per
call). The laws that they follow stand in their docstrings. Those of the benchmarks are a package of their own: `simulated/NAME`.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from typing import ClassVar, TypeVar
from urllib.parse import parse_qsl, quote, unquote, urlencode

from whet.errors import UsageError, did_you_mean
from whet.models.language_model import AnswersOnly
from whet.models.scripted_painter import PainterHabits, paint
from whet.models.scripted_replies import ReplyItem, ScriptedProposal, request_text, write
from whet.prompt import Prompt
from whet.types import Completion, Example, Request, Scores, Usage

T = TypeVar("T")

COMMON = {"seed": "0", "latency": "0"}
CUES = "positive:great+good+lovely+excellent+fine,negative:bad+awful+poor+dull+terrible"
WORDS = "carefully,evidence,tone,single"
PHRASES = (
    "Read the text carefully.|Look for evidence in the text.|Mind the tone.|Answer with a single word.|"
    "Be brief.|You are an expert.|Think step by step.|Take a deep breath."
)
_ANSWERED = 0.9
_CODING = ("utf-8", "surrogatepass")
_TOKEN = re.compile(r"[a-z0-9][a-z0-9'-]*")


def chance(*parts: object) -> float:
    """A number in [0, 1) that depends on its arguments only.

    It stands in for a random generator: the same question always meets the same luck, in any order,
    in any process.
    """
    digest = hashlib.blake2b("\x1f".join(map(str, parts)).encode(*_CODING), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 11) / 2**53


def choose_by_luck(items: Sequence[T], *parts: object) -> T:
    """One of the items, by the luck of the other arguments."""
    return items[int(chance(*parts) * len(items))]


def shuffle(items: Sequence[T], *parts: object) -> list[T]:
    """The items by their `chance(*parts, i)`, in an order that depends on the other arguments only."""
    start = hashlib.blake2b("\x1f".join([*map(str, parts), ""]).encode(*_CODING), digest_size=8)
    digests = []
    for i in range(len(items)):
        one = start.copy()  # what the arguments say is read once: a question may be long
        one.update(b"%d" % i)
        digests.append(int.from_bytes(one.digest(), "big") >> 11)
    return [items[i] for i in sorted(range(len(items)), key=digests.__getitem__)]


def tokens(text: str) -> int:
    """Billed tokens of a text: a quarter of its characters, rounded up."""
    return -(-len(text) // 4)


class Scripted(AnswersOnly):
    """A simulator: its answer is a function of the request, of the sample number and of its options.

    A subclass lists its options with their defaults and writes `answer`. The luck of an answer
    depends on the messages, the schema and the sample number, so that samples differ and repeats do not.
    """

    provider: ClassVar[str] = "scripted"
    """The provider in its address."""
    OPTIONS: ClassVar[Mapping[str, str]] = {}
    simulated = True
    local = True

    def __init__(self, name: str, options: Mapping[str, str]) -> None:
        known = {**COMMON, **self.OPTIONS}
        self.address = f"{self.provider}/{name}" + (f"?{urlencode(options)}" if options else "")
        for key in options:
            if key not in known:
                raise UsageError(
                    f'{readable_address(self.address)}: unknown option "{key}".{did_you_mean(key, known)}'
                )
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
        return f"{readable_address(self.address)}: option {key}={self.options[key]} is not {wanted}."

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

    def count_tokens(self, text: str) -> int:
        """Tokens of a text, as they are billed."""
        return tokens(text)

    async def close(self) -> None:
        """Do nothing: no connection is open."""


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


def luck(request: Request, sample: int) -> str:
    """The seed of an answer: everything that the model is shown, and the sample number."""
    return "\x1e".join(
        [*(f"{m.role}:{m.content}" for m in request.messages), str(request.schema), str(sample)]
    )


def lower_words(text: str) -> list[str]:
    """The words of a text in lower case."""
    return _TOKEN.findall(text.lower())


def read_cues(option: str) -> dict[str, tuple[str, ...]]:
    """Cue words of each label from `label:word+word,label:word`.

    >>> read_cues("yes:sun+warm,no:rain")
    {'yes': ('sun', 'warm'), 'no': ('rain',)}
    """
    cues: dict[str, tuple[str, ...]] = {}
    for part in option.split(","):
        label, _, words = part.partition(":")
        cues[label.strip()] = tuple(word.strip().lower() for word in words.split("+") if word.strip())
    if len(cues) < 2 or not all(cues.values()):
        raise UsageError(
            f"cues={option} does not read as label:word+word,label:word with two labels or more."
        )
    return cues


def split_input(text: str, cues: Mapping[str, Sequence[str]]) -> tuple[str, str, str]:
    """The input line, the rest of the text, and the line's true label (the first one without any cue)."""
    label_of = {word: label for label, words in cues.items() for word in words}
    lines = text.splitlines()
    for number in range(len(lines) - 1, -1, -1):
        for word in lower_words(lines[number]):
            if word in label_of:
                return lines[number], "\n".join(lines[:number] + lines[number + 1 :]), label_of[word]
    return "", text, next(iter(cues))


class LabelSimulator(Scripted):
    """A classifier with a known optimum: the prompt decides how often it is right.

    The law. Every label has cue words. The *input line* of a request is the last line that holds a cue
    word, its true label the one whose cue comes first in it. Of the instruction words in the option
    `words`, the k different ones that occur (as whole words, in any case) outside the input line raise the
    probability of the true label from `base` to `base + (top - base) * k / len(words)`; each of the words
    in `harmful` lowers it by `harm`. Whether one input is answered rightly is one draw per input (per sample
    too, above temperature 0) that does not depend on the prompt: a better prompt loses nothing.
    The optimum is any prompt with all of `words` and none of `harmful`; its accuracy is `top`.
    `score` gives the answered label the probability 0.9 and shares the rest.
    """

    OPTIONS: ClassVar[Mapping[str, str]] = {
        "words": WORDS,
        "harmful": "",
        "cues": CUES,
        "base": "0.5",
        "top": "1.0",
        "harm": "0.1",
    }

    can_score = True

    def __init__(self, name: str, options: Mapping[str, str]) -> None:
        super().__init__(name, options)
        self.cues = read_cues(self.options["cues"])
        self.labels = tuple(self.cues)
        self.words = frozenset(word.lower() for word in self.option_list("words"))
        self.harmful = frozenset(lower_words(self.options["harmful"]))
        self.base, self.top, self.harm = (self.option_float(key) for key in ("base", "top", "harm"))

    def accuracy(self, prompt: str) -> float:
        """Expected accuracy of a prompt: the law itself, for tests that need the optimum."""
        words = set(lower_words(prompt))
        helped = self.base + (self.top - self.base) * len(self.words & words) / len(self.words)
        return min(1.0, max(0.0, helped - self.harm * len(self.harmful & words)))

    def _label(self, text: str, draw: str) -> str:
        line, prompt, truth = split_input(text, self.cues)
        if chance(self.seed, "labels", line.strip(), draw) < self.accuracy(prompt):
            return truth
        return choose_by_luck(
            [label for label in self.labels if label != truth], self.seed, "wrong", line.strip(), draw
        )

    def answer(self, request: Request, sample: int) -> str:
        """The true label, or another one, by the law."""
        return self._label(request_text(request), str(sample) if request.temperature > 0 else "")

    async def score(
        self,
        prompts: Sequence[Prompt],
        inputs: Sequence[Mapping[str, str]],
        continuations: Sequence[Sequence[str]],
    ) -> Scores:
        """Log-probabilities: 0.9 for the label that would be answered, the rest shared by the others."""
        import numpy as np

        width = max((len(row) for row in continuations), default=0)
        logprobs = np.full((len(prompts), len(inputs), width), -math.inf)
        for p, prompt in enumerate(prompts):
            for e, values in enumerate(inputs):
                rendered = prompt.render(Example("", values))
                label = self._label("\n".join(m.content for m in rendered), "")
                for c, continuation in enumerate(continuations[e]):
                    right = continuation.strip().lower() == label.lower()
                    logprobs[p, e, c] = math.log(_ANSWERED if right else (1 - _ANSWERED) / max(1, width - 1))
        lengths = np.array([[self.count_tokens(c) for c in row] for row in continuations], dtype=np.int64)
        return Scores(logprobs, lengths)


class Echo(Scripted):
    """Answers with the last user message (the last message when there is none from a user)."""

    def answer(self, request: Request, sample: int) -> str:
        """The message, unchanged."""
        users = [m.content for m in request.messages if m.role == "user"]
        return users[-1] if users else request.messages[-1].content


class Constant(Scripted):
    """Answers with the option `text`, whatever it is asked."""

    OPTIONS: ClassVar[Mapping[str, str]] = {"text": "ok"}

    def answer(self, request: Request, sample: int) -> str:
        """The text."""
        return self.options["text"]


class Phrases(Scripted):
    """An optimizer that proposes prompts made of the option `phrases` (separated by `|`).

    The law: a phrase that occurs anywhere in the request is used with probability `keep`, any other
    with probability `try`, in an order drawn anew; a proposal that would be empty is one phrase. With
    the default phrases it climbs the default task of `scripted/labels`: four of the eight carry the
    words that help there.
    """

    OPTIONS: ClassVar[Mapping[str, str]] = {"phrases": PHRASES, "keep": "0.8", "try": "0.3"}

    def answer(self, request: Request, sample: int) -> str:
        """Proposals in the form that the request asks for."""
        phrases = self.option_list("phrases", "|")
        keep, fresh = self.option_float("keep"), self.option_float("try")
        text, draw = request_text(request), luck(request, sample)

        def propose(k: int) -> ScriptedProposal:
            ordered = shuffle(phrases, self.seed, draw, k)
            used = [
                p for p in ordered if chance(self.seed, draw, k, p) < (keep if p in text else fresh)
            ] or ordered[:1]
            return ScriptedProposal([ReplyItem(p) for p in used], " ".join(used))

        return write(request, propose)


class Painter(Scripted):
    """A text-to-image model whose pictures are SVG; the law stands in `whet.models.scripted_painter`.

    It reads all messages. At temperature 0, equal pictures meet equal luck; above, each sample has its own. The picture that it
    misreads least is that of short statements, each with one shape, its colour and its number in digits, and places after them.
    """

    OPTIONS: ClassVar[Mapping[str, str]] = {
        "miscount": "0.6",
        "bleed": "0.5",
        "misplace": "0.5",
        "care": "0.8",
        "span": "60",
        "counting": "exactly",
        "colouring": "own",
        "placing": "layout",
        "ornament": "beautiful,detailed,ornate,artistic",
    }

    def __init__(self, name: str, options: Mapping[str, str]) -> None:
        super().__init__(name, options)
        miscount, bleed, misplace, care = map(self.option_float, ("miscount", "bleed", "misplace", "care"))
        words = [
            frozenset(self.option_list(key)) if self.options[key] else frozenset[str]()
            for key in ("counting", "colouring", "placing", "ornament")
        ]
        self.habits = PainterHabits(miscount, bleed, misplace, care, self.option_int("span", 1), *words)

    def answer(self, request: Request, sample: int) -> str:
        """The picture."""
        draw = str(sample) if request.temperature > 0 else ""
        return paint(request_text(request), lambda *parts: chance(self.seed, draw, *parts), self.habits)


SIMULATORS: Mapping[str, type[Scripted]] = {
    "echo": Echo,
    "constant": Constant,
    "labels": LabelSimulator,
    "phrases": Phrases,
    "painter": Painter,
}


def load(name: str, options: Mapping[str, str] | None = None) -> Scripted:
    """The simulator `scripted/name` with its options.

    Raises UsageError for an unknown name, an unknown option or a value that cannot be read.
    """
    if name not in SIMULATORS:
        raise UsageError(
            f'There is no simulator "scripted/{name}".{did_you_mean(name, SIMULATORS)} '
            "Those of the benchmarks are at simulated/NAME."
        )
    return SIMULATORS[name](name, dict(options or {}))


def provide(name: str, base_url: str | None, options: Mapping[str, object]) -> Scripted:
    """The simulator at `scripted/NAME?key=value`; `options` add to those of the address. Raises UsageError."""
    return load(*split_options(Scripted.provider, name, options))


_ENCODED = re.compile(r"(?:%[0-9A-F]{2})+")


def readable_address(address: str) -> str:
    """An address with the options of a simulator as a person writes them; read again, it means the same.

    >>> readable_address("scripted/labels?cues=good%3Atr%C3%A8s+bon%2Cbad%3Apas%26mal")
    'scripted/labels?cues=good:très bon,bad:pas%26mal'
    """
    name, mark, query = address.partition("?")
    return name + mark + _ENCODED.sub(_decode, query.replace("+", " "))


def _decode(run: re.Match[str]) -> str:
    """The characters of a run of percent signs, but for those that mean something in an address or cannot be seen."""
    return "".join(c if c.isprintable() and c not in "%&+" else quote(c) for c in unquote(run[0]))


def split_options(provider: str, name: str, options: Mapping[str, object]) -> tuple[str, dict[str, str]]:
    """The name in an address of a simulator, and its options: those of the address, `NAME?key=value`, and `options`.

    Raises UsageError for options that cannot be read, and for one that is given twice.
    """
    name, _, query = name.partition("?")
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError:
        raise UsageError(f'{provider}/{name}: "{query}" is not of the form key=value&key=value.') from None
    texts = {key: str(value) for key, value in options.items()}
    for key, value in pairs:
        if key in texts:
            raise UsageError(f'{provider}/{name}: the option "{key}" is given twice.')
        texts[key] = value
    return name, texts
