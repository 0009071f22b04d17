"""A Python function as a language model, and any choice of a model (address, object, function) as one."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from whet._util.sources import name_of, source_hash
from whet._util.storable import describe_exception
from whet._util.user_code import OutOfTime, await_result, call_beside, watch
from whet.errors import ProviderError, UsageError, quantity
from whet.models.addresses import resolve
from whet.models.chat_values import FORMS, ChatMessage, as_completion, as_mappings
from whet.models.language_model import AnswersOnly, LanguageModel, missing_members
from whet.models.openai_answers import cut_at_stop
from whet.models.request_options import RequestOptions
from whet.replies.thoughts import EMPTY, separate_thought
from whet.types import EXAMPLE, Completion, Request, content_hash
from whet_client.storable import show_value

Answer: TypeAlias = Callable[..., Any | Awaitable[Any]]
ModelChoice: TypeAlias = str | LanguageModel | Answer
"""The forms in which a caller names a model: an address, an object with the methods of `LanguageModel`, or a function."""

BROKEN_AFTER, DEAD_AFTER = 5, 100
"""Failed calls after which a function that never answered is broken, and those in a row, of one kind, after which one that has
answered is."""
LONGEST = 600.0
"""Seconds that a call may take where the user says nothing."""
FUNCTION = "callable/"
"""The prefix of a function's address."""
_log = logging.getLogger(__name__)
_OF_REQUESTS = ("temperature", "stop", "seed")
"""Options that reach a function in its requests."""


class BrokenFunction(ProviderError):
    """A function that has failed each time since it was given."""


class CallableModel(AnswersOnly):
    """A function `(messages) -> answer`, sync or async, as a model.

    `messages` is a list of mappings with `role` and `content`, which are attributes too. An answer is a text, a dict with
    `content` or `text`, a response of OpenAI's chat API (an object or a dict), or a Completion. A parameter named `request`
    receives the whole `Request` (temperature, sample number, schema). A function that is not a coroutine runs in a thread, so
    that many calls are in flight at once. Its answer is cut at the request's stop texts. An exception is a failed call:
    OSError and TimeoutError are tried again, a ProviderError does what it says, any other one is not tried again, and ends
    the run when nothing was ever answered, or when a hundred calls in a row failed with the same kind of exception. A call that
    takes longer than `timeout` seconds ends, as far as code in a thread can be ended, and is tried again.

    The address is `callable/NAME@HASH`. HASH identifies the function's code, so that no cache or journal returns the answers of
    other code as its own. Put anything that the hash cannot see, such as the model that a server has loaded, into the
    function's attribute `version`. Tokens are those that the answer reports, or a quarter of the characters where it reports
    none, and such counts are marked as estimates.
    """

    local = False
    reads_parts = True

    def __init__(
        self, function: Answer, timeout: float = LONGEST, options: RequestOptions | None = None
    ) -> None:
        self._function, self._timeout = function, timeout
        self._options = options or RequestOptions()
        self.identity = self._options.identity
        self.variant = content_hash(self.identity)[:12] if self.identity else ""
        self.address = _address_of(function)
        self.simulated = bool(getattr(function, "simulated", False))
        self._wants_request = takes_request(function)
        called = getattr(function, "__call__", function)  # noqa: B004 - the method of an object that is a function
        self._is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)
        self._answered, self._failed = 0, 0
        self._alike, self._last = 0, ""

    def __repr__(self) -> str:
        return f"CallableModel({self.address!r})"

    async def generate(self, request: Request) -> list[Completion]:
        """The function's answers, `request.n` of them. Raises ProviderError for an exception or another type."""
        settled = self._options.settle(request)
        return self._options.close_tags([await self._one(settled) for _ in range(request.n)])

    async def _one(self, request: Request) -> Completion:
        more = {"request": request} if self._wants_request else {}
        try:
            answer = await self._call(as_mappings(request.messages), more)
            made = as_completion(answer, request, self.address)
        except ProviderError:
            raise
        except OutOfTime:
            raise ProviderError(
                f"{self.address}: no answer within {self._timeout:g} s to {show_value(request.messages[-1].content)}{_of_row()}. "
                'To allow more, give {"address": FUNCTION, "timeout": SECONDS} in the place of the function.',
                retryable=True,
            ) from None
        except (OSError, TimeoutError) as error:
            words = f"{self.address}: {describe_exception(error)}{_of_row()}"
            unreached = isinstance(error, ConnectionRefusedError)
            raise ProviderError(words, retryable=True, refused=unreached) from error
        except Exception as error:
            raise self._count_failure(describe_exception(error)) from error
        if made is None:
            raise self._count_failure(f"it returned {_describe_answer(answer)}. {FORMS}")
        self._answered, self._alike = self._answered + 1, 0
        return _cut_at_stop(made, request.stop)

    def _count_failure(self, what: str) -> ProviderError:
        self._failed += 1
        kind = what.partition(":")[0]
        self._alike, self._last = (self._alike if kind == self._last else 0) + 1, kind
        words = f"{self.address}: {what.removesuffix('.')}{_of_row()}."
        if self._alike >= DEAD_AFTER and self._answered:
            return ProviderError(
                f"{words} The last {self._alike} calls all failed with {kind}, after {quantity(self._answered, 'answer')}. "
                "Everything learned so far is kept. Run the same command again when the function works.",
                fatal=True,
            )
        never = self._answered == 0 and self._failed >= BROKEN_AFTER
        return BrokenFunction(words, fatal=True) if never else ProviderError(words)

    async def _call(self, messages: list[ChatMessage], more: Mapping[str, object]) -> object:
        with watch(f"the model function {self.address}{_of_row()}", self._timeout):
            if self._is_async:
                return await await_result(self._function(messages, **more), self._timeout)
            return await call_beside(lambda: self._function(messages, **more), self._timeout)

    async def close(self) -> None:
        """Nothing to release; calls in flight end by themselves. Says that the function is another one now, if its calls changed
        a value that it uses."""
        if self._answered and _address_of(self._function) != self.address:
            _log.warning(
                "%s has changed a value that it uses, such as a list or a counter. By its content it is another function now: "
                "the same call in this process asks anew. Keep the value in an object with an attribute `version`.",
                self.address,
            )


def _address_of(function: Answer) -> str:
    return f"{FUNCTION}{name_of(function)}@{source_hash(function)[:12]}"


def as_model(
    choice: ModelChoice,
    *,
    base_url: str | Sequence[str] | None = None,
    options: Mapping[str, Any] | None = None,
) -> LanguageModel:
    """The model that a choice names. `base_url` and `options` go with an address, `timeout`, `temperature`, `stop`
    and `seed` of these with a function too.

    Raises UsageError for an address that cannot be used, and for an object that is neither a model nor a function.
    """
    if isinstance(choice, str):
        return resolve(choice, base_url=base_url, options=options)
    if hasattr(choice, "generate"):
        missing = [name for name in missing_members(choice) if name != "score"]
        if missing:
            raise UsageError(
                f"{choice!r} has no `{missing[0]}`, so it is not a whet.LanguageModel. Add it, or give a function "
                "(messages) -> text."
            )
        return choice  # type: ignore[return-value]
    if callable(choice):
        chosen = {name: value for name, value in (options or {}).items() if name in _OF_REQUESTS}
        return CallableModel(choice, (options or {}).get("timeout", LONGEST), RequestOptions(**chosen))
    raise UsageError(
        f"{choice!r} is no model. Give an address such as openai/gpt-4o-mini, a LanguageModel, or a function "
        "(messages) -> text."
    )


def _cut_at_stop(made: Completion, stops: tuple[str, ...]) -> Completion:
    """A completion with its answer, thoughts aside, up to the earliest stop text."""
    parted = separate_thought(made) if stops and isinstance(made.text, str) else made
    left = cut_at_stop(parted.text, stops) if stops and parted.text else parted.text
    if left == parted.text:
        return made
    return replace(parted, text=left, error=parted.error or (None if left.strip() else EMPTY))


def is_function(choice: object) -> bool:
    """Whether a choice of a model is a function and no object with the methods of one."""
    return callable(choice) and not hasattr(choice, "generate")


def takes_request(function: Answer) -> bool:
    """Whether a function learns temperature, seed and sample number. Raises UsageError for one that cannot be called."""
    return "request" in _parameters(function, f"{FUNCTION}{name_of(function)}")


def _of_row() -> str:
    """The row that the function was called for, if it answers a row."""
    example = EXAMPLE.get()
    return "" if example is None else f" ({example.place})"


def _describe_answer(answer: object) -> str:
    """The kind of a value that is no answer, in a word."""
    if isinstance(answer, Mapping):
        return f"a dict with the keys {show_value(', '.join(map(str, answer)))}"
    kind = type(answer).__name__
    return "None" if answer is None else f"{'an' if kind[:1].lower() in 'aeiou' else 'a'} {kind}"


def _parameters(function: Answer, address: str) -> Mapping[str, inspect.Parameter]:
    try:
        signature = inspect.signature(function)
        request = {"request": None} if "request" in signature.parameters else {}
        signature.bind([], **request)
    except ValueError:
        return {}
    except TypeError:
        raise UsageError(
            f"{address}: a model is called as function(messages), which it does not take. Give it one parameter."
        ) from None
    return signature.parameters
