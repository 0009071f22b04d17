"""A client of the OpenAI SDK that logs its answers: the app calls it as before, and feedback finds each answer.

Nothing here imports the SDK: a client of any version, and of any library with the same calls, is wrapped. What the SDK
returns and raises reaches the app as it is; a log that fails is said in the log of Python, and never raised.
"""

from __future__ import annotations

import inspect
import json
import logging
import time
import weakref
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, TypeVar, cast

from whet_client.client import Client
from whet_client.errors import UsageError, did_you_mean
from whet_client.ids import new_id
from whet_client.live_prompts import LivePrompt
from whet_client.records import checked_name

log = logging.getLogger("whet.client")
C = TypeVar("C")
_LOGGED = (
    ("chat", "completions", "create"),
    ("chat", "completions", "parse"),
    ("beta", "chat", "completions", "parse"),
    ("responses", "create"),
    ("responses", "parse"),
)
"""The calls whose answers are logged."""
_OTHER_CLIENTS = ("with_options", "copy")
"""Calls that give another client, which logs too."""
_TEXT_PARTS = (None, "text", "output_text", "refusal")
"""The types of parts of a message that are its text."""
_FIELDS = ("user", "session", "episode", "metadata")
_ids: dict[int, tuple[weakref.ref[Any], str]] = {}


def wrap(
    client: C,
    *,
    whet: Client,
    prompt: LivePrompt | str,
    inputs: Mapping[str, object] | None = None,
    **more: Any,
) -> C:
    """A client of OpenAI's SDK, sync or async, that logs the answers of `chat.completions` and `responses` with `whet`.

    `prompt` is the live prompt (or the name of one) that the messages were made of, `inputs` what filled its slots; without them,
    the messages are logged. `user`, `session`, `episode` and `metadata` are those of `Client.log`. To wrap is cheap: wrap once
    for each request. A stream is logged when it ends, and its tokens are known only if the request asks for them
    (`stream_options={"include_usage": True}`). Raises UsageError for an unknown keyword, and for a prompt, user, session or
    episode that cannot be.
    """
    for name in more:
        if name not in _FIELDS:
            raise UsageError(f'wrap has no keyword "{name}".{did_you_mean(name, _FIELDS)}')
        if name != "metadata":
            checked_name(more[name], name, "wrap")
    if not isinstance(prompt, LivePrompt | str):
        raise UsageError(f"prompt is a LivePrompt or the name of one; this is {type(prompt).__name__}.")
    return cast(C, _Wrapped(client, (), _Recorder(whet, prompt, inputs, more)))


def answer_id(answer: object) -> str:
    """The id of a logged answer, for `Client.feedback`: of a completion, response or stream that a wrapped client returned.

    Raises UsageError for anything else.
    """
    known = _ids.get(id(answer))
    if known is None or known[0]() is not answer:
        raise UsageError(
            f"This {type(answer).__name__} is no answer of a wrapped client, or was copied since."
        )
    return known[1]


def _remember(answer: object, name: str) -> None:
    """Note the id of an answer for as long as the answer lives."""
    key = id(answer)
    try:
        _ids[key] = (weakref.ref(answer, lambda _: _ids.pop(key, None)), name)
    except TypeError:
        log.warning("The id of a %s cannot be kept: answer_id does not know it.", type(answer).__name__)


@dataclass(slots=True)
class _Answer:
    """The state of one answer so far."""

    id: str
    start: float
    request: Mapping[str, Any]
    texts: list[str] = field(default_factory=list)
    calls: list[dict[str, str]] = field(default_factory=list)
    places: dict[object, dict[str, str]] = field(default_factory=dict)
    """The calls of tools by the index and by the id that the parts of a stream name them by."""
    more: dict[str, object] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)

    @property
    def output(self) -> str:
        """The text of the answer, and each call of a tool as JSON on a line of its own."""
        text = "".join(self.texts)
        calls = [json.dumps(call, ensure_ascii=False) for call in self.calls]
        return "\n".join([text, *calls] if text else calls)


@dataclass(frozen=True, slots=True)
class _Recorder:
    """Logs answers. None of its methods raises."""

    whet: Client
    prompt: LivePrompt | str
    inputs: Mapping[str, object] | None
    more: Mapping[str, Any]

    def call(self, function: Callable[..., Any], args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Log the return value of a call of the SDK, and return it."""
        answer = _Answer(new_id(), time.perf_counter(), keywords)
        try:
            returned = function(*args, **keywords)
        except BaseException as error:
            self.log_failure(answer, error)
            raise
        return (
            self._await(answer, returned)
            if inspect.isawaitable(returned)
            else self._log_answer(answer, returned)
        )

    async def _await(self, answer: _Answer, returned: Any) -> Any:
        try:
            value = await returned
        except BaseException as error:
            self.log_failure(answer, error)
            raise
        return self._log_answer(answer, value)

    def _log_answer(self, answer: _Answer, value: Any) -> Any:
        if answer.request.get("stream") and (hasattr(value, "__aiter__") or hasattr(value, "__next__")):
            stream = (_AsyncStream if hasattr(value, "__aiter__") else _Stream)(value, answer, self)
            _remember(stream, answer.id)
            return stream
        _remember(value, answer.id)
        self.record(answer, lambda: _read_whole(answer, value))
        return value

    def log_failure(self, answer: _Answer, error: BaseException) -> None:
        """Log a call that raised."""
        words = ": ".join(part for part in (type(error).__name__, str(error)) if part)
        self.record(answer, lambda: answer.more.update(error=words))

    def log_left(self, answer: _Answer) -> None:
        """Log a stream that the app left before its end."""
        answer.metadata["left"] = True
        self.record(answer)

    def read(self, answer: _Answer, part: Any) -> None:
        """Read a part of a stream."""
        try:
            _read_part(answer, part)
        except Exception:
            log.exception("A part of a stream could not be read.")

    def record(self, answer: _Answer, read: Callable[[], None] = lambda: None) -> None:
        """Log an answer after `read`."""
        try:
            answer.more["latency"] = time.perf_counter() - answer.start
            read()
            metadata = {**answer.metadata, **(self.more.get("metadata") or {})}
            fields = {"model": answer.request.get("model"), **answer.more, **self.more, "metadata": metadata}
            inputs = _inputs_of(answer.request) if self.inputs is None else self.inputs
            known = {name: value for name, value in fields.items() if value is not None}
            self.whet.log(self.prompt, answer.output, id=answer.id, inputs=inputs, **known)
        except Exception:
            log.exception("An answer could not be logged.")


class _Wrapped:
    """A client, or a part of one such as `client.chat`, whose answers are logged."""

    def __init__(self, target: Any, path: tuple[str, ...], recorder: _Recorder) -> None:
        self._target, self._path, self._recorder = target, path, recorder

    def __getattr__(self, name: str) -> Any:
        value, path, recorder = getattr(self._target, name), (*self._path, name), self._recorder
        if path in _LOGGED:

            @wraps(value)
            def call(*args: Any, **keywords: Any) -> Any:
                return recorder.call(value, args, keywords)

            return call
        if not self._path and name in _OTHER_CLIENTS:
            return lambda *args, **keywords: _Wrapped(value(*args, **keywords), (), recorder)
        leads = any(one[: len(path)] == path for one in _LOGGED)
        return _Wrapped(value, path, recorder) if leads else value

    def __repr__(self) -> str:
        return f"wrap({self._target!r})"

    def __enter__(self) -> _Wrapped:
        self._target.__enter__()
        return self

    def __exit__(self, *error: object) -> Any:
        return self._target.__exit__(*error)

    async def __aenter__(self) -> _Wrapped:
        await self._target.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> Any:
        return await self._target.__aexit__(*error)


class _AnyStream:
    """A stream of the SDK that is read along. It is logged once: at its end, at its failure, or when the app leaves it, be it by
    closing the stream or by dropping it, as a `break` does."""

    def __init__(self, stream: Any, answer: _Answer, recorder: _Recorder) -> None:
        self._stream, self._answer, self._recorder = stream, answer, recorder
        self._drop = weakref.finalize(self, recorder.log_left, answer)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _end(self, error: BaseException | None = None, *, whole: bool = False) -> None:
        if self._drop.detach() is None:
            return
        if error is not None:
            self._recorder.log_failure(self._answer, error)
        elif whole:
            self._recorder.record(self._answer)
        else:
            self._recorder.log_left(self._answer)


class _Stream(_AnyStream):
    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        try:
            part = next(self._stream)
        except StopIteration:
            self._end(whole=True)
            raise
        except Exception as error:
            self._end(error)
            raise
        except BaseException:
            self._end()
            raise
        self._recorder.read(self._answer, part)
        return part

    def __enter__(self) -> _Stream:
        self._stream.__enter__()
        return self

    def __exit__(self, *error: object) -> Any:
        self._end()
        return self._stream.__exit__(*error)

    def close(self) -> None:
        """Close the stream of the SDK."""
        self._end()
        self._stream.close()


class _AsyncStream(_AnyStream):
    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        try:
            part = await self._stream.__anext__()
        except StopAsyncIteration:
            self._end(whole=True)
            raise
        except Exception as error:
            self._end(error)
            raise
        except BaseException:
            self._end()
            raise
        self._recorder.read(self._answer, part)
        return part

    async def __aenter__(self) -> _AsyncStream:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> Any:
        self._end()
        return await self._stream.__aexit__(*error)

    async def close(self) -> None:
        """Close the stream of the SDK."""
        self._end()
        await self._stream.close()


def _get(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def _inputs_of(request: Mapping[str, Any]) -> dict[str, object]:
    """The messages of a request, in the form in which traces have them."""
    messages = request.get("messages", request.get("input"))
    listed = [{"role": "user", "content": messages}] if isinstance(messages, str) else list(messages or ())
    instructions = request.get("instructions")
    first = [{"role": "system", "content": instructions}] if isinstance(instructions, str) else []
    return {"messages": [*first, *listed]}


def _read_whole(answer: _Answer, value: Any) -> None:
    """Read a completion or a response."""
    _read_head(answer, value)
    choices = _get(value, "choices") or ()
    for choice in list(choices)[:1]:
        _read_message(answer, _get(choice, "message"))
        _read_finish(answer, choice)
    if len(choices) > 1:
        answer.metadata["choices"] = len(choices)  # the first one is logged
    for item in _get(value, "output") or ():
        _read_item(answer, item)


def _read_head(answer: _Answer, value: Any) -> None:
    """Model, ids and tokens, which a stream has in one of its parts."""
    usage = _get(value, "usage")
    heads = {
        "model": _get(value, "model"),
        "response": _get(value, "id"),
        "input_tokens": _first(_get(usage, "prompt_tokens"), _get(usage, "input_tokens")),
        "output_tokens": _first(_get(usage, "completion_tokens"), _get(usage, "output_tokens")),
    }
    answer.more.update({name: head for name, head in heads.items() if head not in (None, "")})
    for name in ("system_fingerprint", "status"):
        if isinstance(mark := _get(value, name), str):
            answer.metadata["finish_reason" if name == "status" else name] = mark
    if isinstance(reason := _get(_get(value, "incomplete_details"), "reason"), str):
        answer.metadata["finish_reason"] = reason
    if (error := _get(value, "error")) is not None:
        answer.more["error"] = str(_get(error, "message") or error)


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def _read_finish(answer: _Answer, choice: Any) -> None:
    if reason := _get(choice, "finish_reason"):
        answer.metadata["finish_reason"] = reason


def _read_message(answer: _Answer, message: Any, *, is_delta: bool = False) -> None:
    """A message, or what a part of a stream adds to it."""
    _read_content(answer, _get(message, "content"))
    _read_refusal(answer, _text_of(_get(message, "refusal")))
    for call in _get(message, "tool_calls") or ():
        function = _first(_get(call, "function"), _get(call, "custom"))
        name = _get(function, "name") or ""
        known = _call_of(answer, call, name) if is_delta else _add_call(answer)
        known["name"] += name
        known["arguments"] += _arguments_of(function)


def _read_content(answer: _Answer, content: Any) -> None:
    """The content of a message; a part of it may refuse."""
    parts = content if isinstance(content, list | tuple) else ()
    if any(_get(part, "refusal") for part in parts):
        answer.metadata["refusal"] = True
    answer.texts.append(_text_of(content))


def _read_refusal(answer: _Answer, text: str) -> None:
    """The refusal that a model gives in place of an answer, and that counts for quality."""
    if text:
        answer.metadata["refusal"] = True
    answer.texts.append(text)


def _text_of(content: Any) -> str:
    """The text of a message: a text, or its parts without thoughts and media."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list | tuple) else ()
    texts = (
        _first(_get(part, "text"), _get(part, "refusal"))
        for part in parts
        if _get(part, "type") in _TEXT_PARTS
    )
    return "".join(text for text in texts if isinstance(text, str))


def _add_call(answer: _Answer) -> dict[str, str]:
    answer.calls.append({"name": "", "arguments": ""})
    return answer.calls[-1]


def _call_of(answer: _Answer, part: Any, name: str) -> dict[str, str]:
    """The call that a part of a stream adds to.

    Parts of one call have one index, but some providers send none, or one for all calls; the id comes with the first part, with
    each part, or as another one with each part. So a part with a name begins a call if its id is new, or without id and index.
    """
    index, id = _get(part, "index"), _get(part, "id") or None
    if id is None:
        begins = index not in answer.places and (index is not None or bool(name))
    else:
        begins = ("id", id) not in answer.places and (bool(name) or index not in answer.places)
    if begins or not answer.calls:
        call = _add_call(answer)
    else:
        last = answer.places.get(index, answer.calls[-1])
        call = answer.places.get(("id", id), last)
    if index is not None:
        answer.places[index] = call
    if id is not None:
        answer.places["id", id] = call
    return call


def _arguments_of(function: Any) -> str:
    """The arguments of a call as a text; a few providers send an object."""
    arguments = _first(_get(function, "arguments"), _get(function, "input"), "")
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False, default=str)


def _read_item(answer: _Answer, item: Any) -> None:
    """An item of a response: a message, or the call of a function."""
    if _get(item, "type") == "message":
        _read_content(answer, _get(item, "content"))
    if _get(item, "type") in ("function_call", "custom_tool_call"):
        _add_call(answer).update(name=_get(item, "name") or "", arguments=_arguments_of(item))


def _read_part(answer: _Answer, part: Any) -> None:
    """A chunk of a completion, or an event of a response."""
    kind = _get(part, "type")
    if not isinstance(kind, str) or not kind.startswith(("response.", "error")):
        _read_head(answer, part)
        for choice in _get(part, "choices") or ():
            if index := _get(choice, "index"):
                answer.metadata["choices"] = max(index + 1, _first(answer.metadata.get("choices"), 0))
            else:
                _read_message(answer, _get(choice, "delta"), is_delta=True)
                _read_finish(answer, choice)
    elif kind == "response.output_text.delta":
        answer.texts.append(_get(part, "delta") or "")
    elif kind == "response.refusal.delta":
        _read_refusal(answer, _get(part, "delta") or "")
    elif kind in ("response.completed", "response.incomplete", "response.failed"):
        answer.texts.clear()
        _read_whole(answer, _get(part, "response"))
    elif kind == "response.created":
        _read_head(answer, _get(part, "response"))
    elif kind == "error":
        answer.more["error"] = str(_get(part, "message") or part)
