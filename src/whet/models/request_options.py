"""The options that a user adds to every request of one model: parameters of its provider, sampling, a seed, streaming."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from whet.errors import UsageError, parameter
from whet.replies import close_tag
from whet.types import Completion, Request

_OWN = {
    "messages": "whet writes them",
    "model": "name it in the address",
    "n": "whet asks for as many answers as it needs",
    "stream": "write `stream: true` beside `extra_body`",
}


BOUNDS = MAX_COMPLETION_TOKENS, MAX_TOKENS = "max_completion_tokens", "max_tokens"
"""The field of a body with the largest number of tokens of an answer."""


def output_bound(extra_body: Mapping[str, Any], max_tokens: int | None) -> int | None:
    """The most tokens that an answer may have, as a user set it: in `extra_body`, which wins, or beside it."""
    return next((extra_body[name] for name in BOUNDS if _is_bound(extra_body.get(name))), max_tokens)


def _is_bound(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


@dataclass(frozen=True)
class RequestOptions:
    """Fields of a request's body that the user chose, and how it is asked.

    `temperature` and `stop` replace those of the request. `seed` is that of the first sample of a request; each further
    sample gets the next number. `stream`: None asks without a stream until the endpoint wants one. `extra_body` is
    merged into the body and wins over everything in it but the messages.
    """

    temperature: float | None = None
    stop: tuple[str, ...] = ()
    top_p: float | None = None
    reasoning_effort: str | None = None
    seed: int | None = None
    stream: bool | None = None
    extra_body: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises UsageError for a field of `extra_body` that whet writes itself."""
        for name, reason in _OWN.items():
            if name in self.extra_body:
                raise UsageError(f"{parameter('extra_body')}: {name} cannot be set there: {reason}.")
        for name in BOUNDS:
            if name in self.extra_body and not _is_bound(self.extra_body[name]):
                raise UsageError(
                    f"{parameter('extra_body')}: {name} is a whole number from 1 on; this is {self.extra_body[name]!r}. Leave it "
                    "out, and the model's own limit holds."
                )

    def settle(self, request: Request) -> Request:
        """The request with the temperature, the stop texts and the seed that the user chose."""
        if self.temperature is None and not self.stop and self.seed is None:
            return request
        return replace(
            request,
            temperature=request.temperature if self.temperature is None else self.temperature,
            stop=self.stop or request.stop,
            seed=request.seed if self.seed is None else self.seed + request.sample,
        )

    def close_tags(self, answers: Sequence[Completion]) -> list[Completion]:
        """The answers with the closing tags that the stop texts of the user took."""
        return [close_tag(answer, self.stop) for answer in answers]

    def extend(self, body: dict[str, object]) -> dict[str, object]:
        """The body with the fields that the user added."""
        if self.top_p is not None:
            body["top_p"] = self.top_p
        if self.reasoning_effort is not None:
            body["reasoning_effort"] = self.reasoning_effort
        if MAX_COMPLETION_TOKENS in self.extra_body:  # the user knows the name that this endpoint takes
            body.pop(MAX_TOKENS, None)
        body.update(self.extra_body)
        return body

    @property
    def identity(self) -> dict[str, object]:
        """The options that change answers, as JSON; empty if none is set."""
        values: dict[str, object] = {
            "temperature": self.temperature,
            "stop": list(self.stop),
            "top_p": self.top_p,
            "reasoning_effort": self.reasoning_effort,
            "seed": self.seed,
            "extra_body": dict(self.extra_body),
        }
        return {name: value for name, value in values.items() if value not in (None, [], {})}
