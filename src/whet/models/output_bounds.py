"""Bounds on the tokens of an answer: the messages by which endpoints refuse a larger one, and the bound that is sent next.

Every server says it in other words. The numbers are what counts: the size of the context, the tokens of the input, the most
that an answer may have, and the bound that was sent.
"""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace

from whet.types import Request

LEAST = 16
"""Tokens of an answer below which nothing is worth asking for."""
_MARGIN = 1.1
_REMEMBERED = 4096

_SEPARATOR = re.compile(r"(?<=\d)[,_](?=\d{3}\b)")
_OUTPUT = re.compile(
    r"max(?:imum)?[_ ]?(?:completion_|new_|output[_ ]?)?tokens|(?:completion|output|generated|new) tokens"
    r"|in the (?:completion|output)|requested output",
    re.IGNORECASE,
)
_CONTEXT_WORDS = re.compile(
    r"context|prompt is too long|input is too long|input token count|input tokens exceed|too many (?:input )?tokens"
    r"|maximum (?:input|sequence|prompt) length|max_model_len|max_position",
    re.IGNORECASE,
)
_CONTEXT_SIZE = re.compile(r"context[_ ](?:length|size|window|limit)", re.IGNORECASE)
_TOO_MUCH = re.compile(
    r"too (?:large|big|high|long|many|great)|exceed|(?:greater|larger|longer|more) than|above|less than or equal|at most|<=|"
    r"overflow|maximum|supported range|valid range|range of|not enough",
    re.IGNORECASE,
)
_LEASTS = re.compile(
    r"(?:at least|>=|(?:no|not) less than|(?:greater|larger|more|higher) than or equal to|minimum)\D{0,40}?((?<!\d)\d{1,15})",
    re.IGNORECASE,
)
_MOST_LEAST = 4096
"""A larger number is no bound that a provider demands of an answer."""
_AT_LEAST = re.compile(r"\bat least \d", re.IGNORECASE)
_SUMS = (
    re.compile(r"(?P<sent>(?<!\d)\d{1,15}) > (?P<context>(?<!\d)\d{1,15}) - (?P<input>(?<!\d)\d{1,15})"),
    re.compile(r"(?P<input>(?<!\d)\d{1,15}) \+ (?P<sent>(?<!\d)\d{1,15}) > (?P<context>(?<!\d)\d{1,15})"),
)
_CONTEXTS = (
    re.compile(r"context (?:length|size|window|limit)\b[^\d.]{0,40}((?<!\d)\d{1,15})", re.IGNORECASE),
    re.compile(r"((?<!\d)\d{1,15})(?: tokens?)? (?:of )?(?:the )?(?:maximum )?context", re.IGNORECASE),
    re.compile(r"(?:max_model_len|n_ctx)\D{0,12}((?<!\d)\d{1,15})", re.IGNORECASE),
    re.compile(r"tokens? > ((?<!\d)\d{1,15}) maximum", re.IGNORECASE),
    re.compile(r"maximum number of tokens(?: allowed)?\D{0,10}((?<!\d)\d{1,15})", re.IGNORECASE),
    re.compile(r"(?:configured|token|input) limit\D{0,12}((?<!\d)\d{1,15})", re.IGNORECASE),
    re.compile(r"\+ `?max_new_tokens`? must be <= ((?<!\d)\d{1,15})", re.IGNORECASE),
    re.compile(r"context\b[^\d.]{0,40}((?<!\d)\d{1,15})", re.IGNORECASE),
)
_INPUTS = (
    re.compile(
        r"((?<!\d)\d{1,15})(?: tokens?)? (?:in|of|from) (?:the |your )?(?:text )?(?:input|messages?|prompt)",
        re.IGNORECASE,
    ),
    re.compile(r"((?<!\d)\d{1,15}) (?:`?inputs?`?|prompt|message) tokens?", re.IGNORECASE),
    re.compile(r"too long: ((?<!\d)\d{1,15}) tokens?", re.IGNORECASE),
    re.compile(r"input token count\D{0,10}((?<!\d)\d{1,15})", re.IGNORECASE),
    re.compile(
        r"(?:prompt|input|request|messages|inputs)\b[^.\d]{0,40}?((?<!\d)\d{1,15}) (?:\w+ )?tokens?",
        re.IGNORECASE,
    ),
    re.compile(r"first ((?<!\d)\d{1,15}) tokens", re.IGNORECASE),
)
_MOSTS = (
    re.compile(r"\bto (?P<beyond>(?<!\d)\d{1,15}) \(exclusive\)"),
    re.compile(r"[\[(]\s*(?<!\d)\d{1,15}\s*,\s*(?P<most>(?<!\d)\d{1,15})\s*\]"),
    re.compile(r"(?<!\d)\d{1,15} (?:>|exceeds) (?P<most>(?<!\d)\d{1,15})"),
    re.compile(
        r"(?:at most|up to|<=|no more than|(?:less|lower|smaller) than or equal to)\D{0,12}(?P<most>(?<!\d)\d{1,15})",
        re.IGNORECASE,
    ),
    re.compile(r"(?:less|lower|smaller) than\D{0,12}(?P<beyond>(?<!\d)\d{1,15})", re.IGNORECASE),
    re.compile(
        r"(?:maximum|limit|exceeds?|between (?<!\d)\d{1,15} and)\b[^\d.]{0,60}?(?P<most>(?<!\d)\d{1,15})",
        re.IGNORECASE,
    ),
)


@dataclass(frozen=True)
class TokenLimits:
    """The limits that a refusal names: tokens of the context, of the input (`at_least`: the input has that many or more),
    and the most and the `least` tokens of an answer; None for a limit that it does not name. `about_output`: the refusal
    concerns the answer, not of the input alone."""

    context: int | None = None
    input: int | None = None
    output: int | None = None
    at_least: bool = False
    about_output: bool = True
    least: int | None = field(default=None, repr=False)

    @property
    def room(self) -> int | None:
        """Tokens that the input leaves for an answer, below 0 where it does not fit; None where that is not known."""
        return None if self.context is None or self.input is None else self.context - self.input


def read_limits(message: str, details: Mapping[str, object], sent: int | None) -> TokenLimits | None:
    """The token limits that a refusal states for a request that asked for at most `sent`; `details` are the other fields of the
    error. None where the refusal has another cause.

    >>> read_limits("max_tokens is too large: 30000. This model supports at most 16384 completion tokens.", {}, 30000)
    TokenLimits(context=None, input=None, output=16384, at_least=False, about_output=True)
    """
    text = _SEPARATOR.sub("", message)
    about_output, about_context = _OUTPUT.search(text), _CONTEXT_WORDS.search(text)
    exact = _read_token_limits(details)
    if sent is not None and about_output and not (about_context or exact):
        numbers = [int(match[1]) for match in _LEASTS.finditer(text)]
        if numbers and sent < numbers[0] <= _MOST_LEAST:
            return TokenLimits(least=numbers[0])
    if not (about_output or about_context or exact) or not (_TOO_MUCH.search(text) or exact):
        return None
    for pattern in _SUMS:
        if (match := pattern.search(text)) is not None:
            return TokenLimits(int(match["context"]), int(match["input"]))
    context = exact.context if exact else _first(_CONTEXTS, text, (sent,))
    spent = exact.input if exact else _first(_INPUTS, text, (context,))
    if context is not None and (spent is not None or about_context):
        at_least = _AT_LEAST.search(text) is not None
        return TokenLimits(context, spent, at_least=at_least, about_output=about_output is not None)
    if sent is None or not about_output:
        certain = spent is not None or _CONTEXT_SIZE.search(text)
        return TokenLimits(input=spent, about_output=False) if certain and not about_output else None
    return _output_limit(text, sent)


def _output_limit(text: str, sent: int) -> TokenLimits | None:
    """The most that an answer may have, below what was asked for: as the words say it, else the largest smaller number."""
    for pattern in _MOSTS:
        for match in pattern.finditer(text):
            groups = match.groupdict()
            most = int(groups["most"]) if groups.get("most") else int(groups["beyond"]) - 1
            if 0 < most < sent:
                return TokenLimits(output=most)
    numbers = [int(number) for number in re.findall(r"(?<![\w.-])\d+(?![\w-])", text)]
    below = [number for number in numbers if LEAST <= number < sent]
    if below:
        return TokenLimits(output=max(below))
    return (
        None
        if any(number > sent for number in numbers) or sent < 2 * LEAST
        else TokenLimits(output=sent // 2)
    )


def _read_token_limits(details: Mapping[str, object]) -> TokenLimits | None:
    """The numbers where an error has fields for them, as llama.cpp's has."""
    context, spent = details.get("n_ctx"), details.get("n_prompt_tokens")
    if isinstance(context, int) and isinstance(spent, int):
        return TokenLimits(context, spent)
    return None


def _first(
    patterns: tuple[re.Pattern[str], ...], text: str, other_than: tuple[int | None, ...]
) -> int | None:
    numbers = (int(match[1]) for pattern in patterns for match in pattern.finditer(text))
    return next((number for number in numbers if number not in other_than), None)


class OutputBounds:
    """The known token limits of one model, from which the bound of the next request follows."""

    def __init__(self) -> None:
        self._most: int | None = None
        self._least = 0
        self._context: int | None = None
        self._tokens_per_byte: float | None = None
        self._rooms: dict[Hashable, int] = {}

    def fit(self, request: Request) -> Request:
        """The request, with a smaller bound where the model allows no more, and a larger one where it takes no smaller one."""
        bound = request.max_tokens
        if bound is None:
            return request
        bound = max(bound, self._least)
        if self._most is None and self._context is None:
            return request if bound == request.max_tokens else replace(request, max_tokens=bound)
        bounds = [bound, *([self._most] if self._most is not None else [])]
        room = self._rooms.get(request.messages)
        if room is None and self._context is not None:
            size = math.ceil(_bytes_of(request) * (self._tokens_per_byte or 1.0) * _MARGIN) + LEAST
            room = self._context - size if self._context - size >= LEAST else None
        return replace(request, max_tokens=min([*bounds, *([room] if room is not None else [])]))

    def learn(self, request: Request, limits: TokenLimits, sent: int | None) -> bool:
        """Note a refusal of a request that asked for `sent` tokens. True when another bound may do."""
        self._context = limits.context or self._context
        if limits.input is not None and not limits.at_least:
            share = limits.input / max(1, _bytes_of(request))
            self._tokens_per_byte = max(self._tokens_per_byte or 0.0, min(1.0, share))
        if sent is None:
            return False
        if limits.least is not None:
            self._least = max(self._least, limits.least)
            return True
        if limits.output is not None and limits.output < sent:
            self._most = limits.output if self._most is None else min(self._most, limits.output)
            return True
        room = limits.room
        if room is None and limits.input is None and limits.about_output:
            room = sent // 2
        if room is None:
            return False
        if limits.at_least or room >= sent:
            room = min(room, sent // 2)
        if room < min(LEAST, sent):
            return False
        if len(self._rooms) >= _REMEMBERED:
            self._rooms.clear()
        self._rooms[request.messages] = room
        return room < sent

    def note_answer(self, request: Request) -> None:
        """Forget what was known of a request that has its answer."""
        if self._rooms:
            self._rooms.pop(request.messages, None)


def _bytes_of(request: Request) -> int:
    return sum(
        len(str(message.content).encode("utf-8", "surrogatepass")) + LEAST for message in request.messages
    )
