"""The optional parameters that an endpoint takes, if its refusals name none.

Most endpoints name the parameter that they refuse. One that answers a 400, 422 or 500 to a request with optional parameters that
were never answered may mean any of them: the next attempt of this request goes without them, and what is answered then is kept.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from whet.types import Request, content_hash

OPTIONAL: Mapping[str, str] = {"seed": "seed", "n": "n", "logprobs": "logprobs", "stop": "stop"}
"""Features that an answer can do without, and the key of a body that shows them."""
_WITHOUT_REASON = (400, 422, 500)


class OptionalParameters:
    """The answers of one endpoint so far, and the features that the next attempt of a failed request leaves out.

    A 500 may have any reason: it must be followed twice by an answer without the parameters. A parameter that was answered once
    is never dropped later.
    """

    def __init__(self) -> None:
        self._answered: set[str] = set()
        self._suspected: set[str] = set()
        self._trials: dict[Hashable, tuple[frozenset[str], int]] = {}

    def left_out(self, request: Request) -> frozenset[str]:
        """The parameters that the next attempt of a request leaves out."""
        return (
            self._trials[_key(request)][0] if self._trials and _key(request) in self._trials else frozenset()
        )

    def note_failure(self, request: Request, body: Mapping[str, object], status: int) -> bool:
        """Note a failure that names no parameter. True when the next attempt of this request goes without some."""
        tried = self._trials.pop(_key(request), None)
        doubted = frozenset(_optional_keys_of(body) - self._answered)
        if tried is not None or not doubted or status not in _WITHOUT_REASON:
            return False
        self._trials[_key(request)] = doubted, status
        return True

    def note_answer(self, request: Request, body: Mapping[str, object]) -> set[str]:
        """Note an answer. Returns what is refused from now on."""
        self._answered |= _optional_keys_of(body)
        if not self._trials:
            return set()
        left_out, status = self._trials.pop(_key(request), (frozenset(), 0))
        refused = set(left_out - self._answered)
        if status == 500:
            refused, self._suspected = refused & self._suspected, self._suspected | refused
        return refused


def _optional_keys_of(body: Mapping[str, object]) -> set[str]:
    return {name for name, key in OPTIONAL.items() if key in body}


def _key(request: Request) -> Hashable:
    schema = None if request.schema is None else content_hash([request.schema, request.schema_options])
    return (
        request.messages,
        request.n,
        request.seed,
        request.sample,
        request.stop,
        request.top_logprobs,
        schema,
    )
