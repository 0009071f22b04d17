"""The content of an HTTP 200's body: completions, usage, log-probabilities, vectors, or an error after all.

Pure functions. The possible contents of an HTTP 200, and the handling of each:

    text                                   Completion
    an error and no text beside it         Failure: the provider's, no answer of the model
    text that reached the token limit      Completion, finish "length"
    empty content, no choice at all        Completion, error "model: empty answer"
    a content that is no text              Completion, error "model: content is a number (5)"
    a refusal, a content filter            Completion, error "model: refused ..."
    a whole web page (<!doctype html>)     ProviderError(fatal): the address is not the API
    not JSON, no object, no list of        ProviderError(retryable): the answer is lost, another attempt may
    choices, cut off in the middle         be whole. The engine turns its last attempt into a failed rollout.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import orjson

from whet.errors import ProviderError
from whet.models.event_stream import is_event_stream, read_event_stream
from whet.models.openai_usage import estimate_parts, read_usage, share_usage, with_cost
from whet.models.openai_wire import PAGE, WEB_PAGE, Failure, loads, unreadable_reply
from whet.models.provider_tools import count_provider_tools
from whet.replies import split_thought, without_thought
from whet.replies.thoughts import UNENDED
from whet.types import Completion, Request, Usage

_SHOWN, _PARTS = 300, 10_000
_THOUGHTS = (
    "reasoning_content",
    "reasoning",
    "reasoning_text",
    "thinking",
    "thinking_blocks",
    "reasoning_details",
    "thought",
)
_WORDS = ("text", "thinking", "reasoning", "summary", "content", "value")
_STATUSES = {str(status) for status in range(400, 600)}
_ROUNDING = 0.01  # by which a log-probability may exceed 0

_AT_LIMIT = {
    *("length", "maxtokens", "maxoutputtokens", "maxcompletiontokens", "modellength"),
    *("modelcontextwindowexceeded", "pauseturn", "incomplete"),
}
"""Words of providers for an answer that reached a limit on tokens, or on the work of a turn; these and the next ones as `_bare`
writes them."""
FILTER_REASONS = {
    *("contentfilter", "contentfiltered", "safety", "recitation", "blocklist"),
    *("prohibitedcontent", "spii", "sensitive", "refusal", "guardrailintervened"),
}
"""Words of providers (OpenAI, Anthropic, Google, Amazon, Zhipu) for an answer that a filter ended."""
FILTERED = "model: refused (stopped by a content filter)"
_BROKEN = {
    *("error", "networkerror", "insufficientsystemresource", "servererror", "internalerror", "timeout"),
    *("abort", "aborted", "cancelled", "canceled"),
}
"""Words of providers for an answer that their own fault ended: no answer of the model."""
_KINDS = (
    (bool, "a truth value"),
    (int | float, "a number"),
    (Mapping, "an object"),
    (list, "a list without a text"),
    (object, "no text"),
)
_COMPLAINTS = ("error", "message", "detail", "msg", "error_msg")
"""The places of a body that name the failure."""
OLLAMA = "the answer holds no choices but a message, as in Ollama's own API (its base URL for this one ends with /v1)"
_NO_CHOICE = "model: empty answer (no choice in it)"

NEGLECTS = {
    "n": "answers once where n answers are asked for; each call gives one",
    "more": "gives more answers than are asked for, and may bill all; the one with the smallest index counts",
    "stop": "leaves stop texts in its answers; they are cut off here",
    "logprobs": "gives no log-probabilities that can be used; answers are read instead",
    "json": "does not keep to response_format; JSON is looked for in its text",
    "limit": "writes more than max_tokens; calls may take longer and cost more than planned",
    "usage": "reports no usage; one token is counted for each byte",
    "odd usage": "reports a usage that cannot be right; one token is counted for each byte instead, unless it names more",
    "bytes": "sends bytes that are not UTF-8; a replacement character stands for each in its answers",
    "queue": "lets calls wait while it answers earlier ones; the time limit of a call counts from the last of these",
}
"""The requested features that servers ignore without refusing them, and whet's handling of each."""


def completions(
    data: Mapping[str, object],
    request: Request,
    count: Callable[[str], int],
    reported: Usage | None,
    cost: str = "",
    model: str = "",
) -> list[Completion] | Failure:
    """The completions in the decoded body of an HTTP 200; their usages add up to what the call was billed.

    `count` estimates tokens where the endpoint has `reported` none that can be right; `cost` are the US dollars that a header
    names; `model` is the model that has answered. A Failure when the body reports one,
    as some gateways do for an upstream error. Raises ProviderError (see the module's text).
    """
    choices = data.get("choices")
    if (error := _error_of_minimax(data)) is not None:
        data = {**data, "error": error}
    if not choices and _complains(data):
        return _failure_inside_200(data)
    if not isinstance(choices, list):
        raise unreadable_reply(OLLAMA if _is_answer(data.get("message")) else "the answer holds no choices")
    if choices and all(choice is None for choice in choices):
        raise unreadable_reply("the answer holds null in the place of a choice")
    if _is_error(data.get("error"), choices):
        return _failure_inside_200(data)
    errors = [_error_of(choice) for choice in choices]
    if errors and errors[0] is not None and None not in errors:
        return _failure_inside_200(errors[0])
    used = _in_order(choices)[: max(1, request.n)]
    if reported is not None:
        shares = share_usage(reported, max(1, len(used)))
        answers = [_completion(c, request, usage, model) for c, usage in zip(used, shares, strict=False)]
        return answers or [Completion("", usage=reported, error=_NO_CHOICE, model=model)]
    answers = [_completion(choice, request, Usage(), model) for choice in used]
    answers = answers or [Completion("", error=_NO_CHOICE, model=model)]
    read = sum(count(m.content) for m in request.messages)
    written = sum(count(c.thought + c.text) for c in answers)
    estimate = with_cost(estimate_parts(data.get("usage"), read, written), cost)
    estimate = replace(estimate, provider_tools=count_provider_tools(data))
    return [replace(c, usage=u) for c, u in zip(answers, share_usage(estimate, len(answers)), strict=True)]


def _in_order(choices: list[Any]) -> list[Any]:
    """The choices by their indices, where each has one of its own: the first choice is not always the first of the list.

    >>> [choice["index"] for choice in _in_order([{"index": 1}, {"index": 0}])]
    [0, 1]
    """
    if len(choices) < 2:
        return choices
    indices = [choice.get("index") if isinstance(choice, dict) else None for choice in choices]
    if len(set(indices)) < len(indices) or not all(type(index) is int for index in indices):
        return choices
    return sorted(choices, key=lambda choice: int(choice["index"]))


def filter_answer(status: int, words: str, request: Request, count: Callable[[str], int]) -> Completion:
    """The answer to a request that a content filter took with an HTTP `status` of its own: what an HTTP 200 says too.

    Some bill the input of such a request; a 403 is not billed.
    """
    read = 0 if status == 403 else sum(count(m.content) for m in request.messages)
    error = f"{FILTERED}: {words[:_SHOWN].rstrip()}"
    return Completion("", "content_filter", Usage(read, estimated=read > 0), error)


def find_neglected_options(body: Mapping[str, Any], data: Mapping[str, Any], usage: Usage | None) -> set[str]:
    """The features that `body` asked for and that the answer shows to be ignored: keys of `NEGLECTS`."""
    choices = [c for c in data["choices"] if isinstance(c, dict) and isinstance(c.get("message"), dict)]
    written = [(c, text) for c in choices if (text := _text(c["message"].get("content"))).strip()]
    limit = body.get("max_tokens", body.get("max_completion_tokens"))
    signs = {
        "n": 0 < len(choices) < body.get("n", 1),
        "more": len(choices) > body.get("n", 1),
        "stop": any(stop in text for stop in body.get("stop", ()) for _, text in written),
        "logprobs": "logprobs" in body and any(_first_token(c.get("logprobs")) is None for c, _ in written),
        "json": "response_format" in body and any(_lacks_json(c, text) for c, text in written),
        "limit": limit is not None and usage is not None and usage.output_tokens > (limit + 1) * len(choices),
        "usage": usage is None and bool(written) and not data.get("usage"),
        "odd usage": usage is None and bool(data.get("usage")),
    }
    return {name for name, shown in signs.items() if shown}


def _lacks_json(choice: Mapping[str, object], text: str) -> bool:
    """Whether the text of a choice was to be JSON and is none, although it was not cut."""
    if finish_of(choice.get("finish_reason")) == "length":
        return False
    try:
        orjson.loads(without_thought(text))
    except orjson.JSONDecodeError:
        return True
    return False


def decode_answer(raw: bytes) -> dict[str, object]:
    """The JSON object in the body of an HTTP 200, or what a stream of events adds up to. Raises ProviderError."""
    if is_event_stream(raw):
        return read_event_stream(raw)
    try:
        data = loads(raw)
    except ValueError:
        if PAGE.match(raw):
            whole = b"<!doctype" in raw[:100].lower()
            raise ProviderError(WEB_PAGE, retryable=not whole, fatal=whole, status=200) from None
        raise unreadable_reply(
            "the answer is not JSON" if raw.strip() else "the answer has no body"
        ) from None
    if not isinstance(data, dict):
        raise unreadable_reply("the answer is not a JSON object")
    return data


def _complains(data: Mapping[str, Any]) -> bool:
    """Whether a body without an answer says what went wrong, in one of the forms of providers and gateways."""
    return any(data.get(key) for key in _COMPLAINTS if not _is_answer(data.get(key)))


def _error_of_minimax(data: Mapping[str, Any]) -> dict[str, object] | None:
    """The error in `base_resp`, where MiniMax says in every body how the call went, with the status of HTTP that means the same;
    None for a call that went well."""
    went = data.get("base_resp")
    if not isinstance(went, dict) or not _says_something(went.get("status_code")):
        return None
    code: Any = went["status_code"]
    message = f"{went.get('status_msg') or 'an error'} ({code})"
    return {"message": message, "code": _MINIMAX.get(code, code)}


_MINIMAX: Mapping[Any, int | str] = {
    **{
        1001: 504,
        1002: 429,
        1004: 401,
        1008: 402,
        1013: 500,
        1033: 500,
        1039: 429,
        1041: 429,
        2013: 400,
        2049: 401,
    },
    **{1026: "content_filter", 1027: "content_filter"},
}


def _is_answer(message: object) -> bool:
    """Whether a field of a body is the message of a model, as in Ollama's own API."""
    return isinstance(message, dict) and isinstance(message.get("content"), str)


def _says_something(error: Any) -> bool:
    """Whether the field of an error holds more than zeros and empty texts."""
    if isinstance(error, dict):
        return any(map(_says_something, error.values()))
    return bool(error)


def _is_error(error: Any, choices: list[Any]) -> bool:
    """Whether the field of an error says that these choices are no answer. A text beside it may be half of one, whatever its
    `finish_reason` says; so only a code that names success speaks for a text that came to its end.

    >>> _is_error({"code": 502, "message": "upstream broke off"}, [{"text": "The ans", "finish_reason": "stop"}])
    True
    >>> _is_error({"code": 200, "message": "success"}, [{"text": "neg", "finish_reason": "stop"}])
    False
    """
    if not _says_something(error):
        return False
    fine = isinstance(error, dict) and str(error.get("code")) in ("0", "200")
    return not (fine and any(map(_is_ended, choices)))


def _is_ended(choice: Any) -> bool:
    """Whether a choice is a whole answer of the model: it has a text, and says why it ended."""
    message = _message_of(choice)
    return message is not None and bool(choice.get("finish_reason") and _text(message.get("content")).strip())


def _message_of(choice: Any) -> Mapping[str, Any] | None:
    """The message of a choice; some servers write it as the piece of a stream, or as the text of a completion without a chat."""
    if not isinstance(choice, dict):
        return None
    message = choice.get("message") or choice.get("delta")
    text = choice.get("text")
    return message if isinstance(message, dict) else {"content": text} if isinstance(text, str) else None


def _error_of(choice: object) -> dict[str, object] | None:
    """The error of a choice that is none, as a body reports one."""
    if not isinstance(choice, dict):
        return None
    reason = choice.get("finish_reason")
    broken = isinstance(reason, str) and _bare(reason) in _BROKEN
    if not broken and not _is_error(choice.get("error"), [choice]):
        return None
    return {"error": choice.get("error") or f"the choice ended with finish_reason {reason}"}


def _failure_inside_200(data: Mapping[str, object]) -> Failure:
    error = data.get("error") or data
    code = str(error.get("code") or error.get("status")) if isinstance(error, dict) else ""
    status = int(code) if code in _STATUSES else 200
    return Failure(status, json.dumps(data).encode(), {}, inside=True)


def _completion(choice: Any, request: Request, usage: Usage, model: str) -> Completion:
    message = _message_of(choice)
    if message is None:
        empty = "model: empty answer (a choice without a message)"
        return Completion("", usage=usage, error=empty, model=model)
    finish = finish_of(choice.get("finish_reason"))
    native = finish_of(
        choice.get("native_finish_reason")
    )  # a router's word may lose what the provider's says
    finish = native if finish == "stop" and native in ("length", "content_filter") else finish
    split = split_thought(_text(message.get("content")))
    text = cut_at_stop(split.answer, request.stop)
    thought = "\n".join(filter(None, (_read_thought(message), split.thought)))
    unended = split.cut and finish == "stop"
    if split.cut:
        finish = "length"
    elif not text and finish == "stop" and request.schema is not None and _is_object(thought):
        text, thought = thought, ""  # the server took the answer for a thought
    refusal, error = _refusal_of(message), None
    if refusal:
        finish, error = "refusal", f"model: refused: {refusal[:_SHOWN]}"
    elif finish == "content_filter":
        error = FILTERED
    elif (failed := _error_of(choice)) is not None:
        error = f"provider: {str(failed['error'])[:_SHOWN]}"
    elif not text.strip():
        error = UNENDED if unended else f"model: {_instead(message, finish)}"
    first = None if thought else _first_token(choice.get("logprobs"))
    return Completion(text, finish, usage, error, first, thought=thought, model=model)


def _refusal_of(message: Mapping[str, Any]) -> str:
    """The refusal that stands in the place of a text, in a field of its own or as a part of the content; empty for none."""
    content = message.get("content")
    parts = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    refusals = [message.get("refusal"), *(part.get("refusal") for part in parts)]
    return next((text for text in refusals if isinstance(text, str) and text), "")


def _is_object(text: str) -> bool:
    """Whether a text is a JSON object."""
    try:
        return isinstance(orjson.loads(text), dict)
    except orjson.JSONDecodeError:
        return False


def finish_of(reason: Any) -> str:
    """Why an answer ended: `length` for a limit on tokens and `content_filter` for a filter, in the words of any provider.

    >>> finish_of("MAX_TOKENS"), finish_of("max-tokens"), finish_of("Content-Filter"), finish_of("Stop"), finish_of(None)
    ('length', 'length', 'content_filter', 'stop', 'stop')
    >>> finish_of("pause_turn"), finish_of("incomplete")
    ('length', 'length')
    """
    if isinstance(reason, dict):  # of SGLang: {"type": "length", "length": 16}
        reason = reason.get("type")
    if not isinstance(reason, str) or not reason:
        return "stop"
    word = _bare(reason)
    if word in _AT_LIMIT:
        return "length"
    if word in FILTER_REASONS:
        return "content_filter"
    return "stop" if word == "stop" else reason


@lru_cache(maxsize=256)
def _bare(reason: str) -> str:
    """A provider's word without what providers, gateways and their libraries write differently: the case of its letters, its
    hyphens, underscores and blanks, and the name of an enumeration before it (`FinishReason.MAX_TOKENS`)."""
    return reason.rpartition(".")[2].casefold().translate(_SEPARATORS)


_SEPARATORS = str.maketrans("", "", "-_ ")


def _instead(message: Mapping[str, object], finish: str) -> str:
    """The content of a message without a text, in words."""
    content, empty = message.get("content"), "empty answer"
    if finish == "length":
        return f"{empty} (token limit reached before any text)"
    if message.get("tool_calls") or message.get("function_call"):
        return f"{empty} (it calls a tool, and none was offered)"
    if _read_thought(message):
        return f"{empty} (it holds a thought and no text)"
    if content is None or isinstance(content, str) or content == []:
        return empty
    kind = next(kind for types, kind in _KINDS if isinstance(content, types))
    return f"content is {kind} ({json.dumps(content, ensure_ascii=False, default=str)[:_SHOWN]})"


def _text(content: object) -> str:
    """Text of a message: a string, or a list of parts of which the textual ones count that are no thoughts."""
    if isinstance(content, str):
        return content
    parts = [content] if isinstance(content, dict) else content
    if isinstance(parts, list):
        return "".join(_words(part) for part in parts if not _is_thought(part))
    return ""


def _read_thought(message: Mapping[str, object]) -> str:
    """The thought that a message holds beside its text: in a field of its own, or in parts of its content."""
    content = message.get("content")
    if isinstance(content, str) and message.keys().isdisjoint(_THOUGHTS):
        return ""
    parts = [part for part in content if _is_thought(part)] if isinstance(content, list) else []
    fields = [message[key] for key in _THOUGHTS if message.get(key)][:1]
    return "\n".join(words for field in (*fields, *parts) if (words := _words(field).strip()))


def _is_thought(part: object) -> bool:
    """Whether a part of a content is a thought: by its type, or by Gemini's mark."""
    kind = part.get("type") if isinstance(part, dict) else None
    return isinstance(part, dict) and (
        part.get("thought") is True
        or (isinstance(kind, str) and any(k in kind for k in ("reason", "think", "thought")))
    )


def _words(value: Any) -> str:
    """The text of a part of a content or of a thought, however it is nested: under `text`, `thinking`, `summary`, ..."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(_words(item) for item in value[:_PARTS])
    if isinstance(value, dict):
        return next((words for key in _WORDS if (words := _words(value.get(key)))), "")
    return ""


def cut_at_stop(text: str, stops: tuple[str, ...]) -> str:
    """`text` up to the earliest stop sequence: endpoints take few of them, or none, or return them.

    >>> cut_at_stop("one. two! three.", ("!", "."))
    'one'
    """
    ends = [at for stop in stops if stop and (at := text.find(stop)) >= 0]
    return text[: min(ends)] if ends else text


def add_logprobs(values: Collection[float]) -> float:
    """The logarithm of the sum of probabilities that are given by their logarithms, one at least.

    >>> round(math.exp(add_logprobs([math.log(0.4), math.log(0.1)])), 12)
    0.5
    """
    most = max(values)
    return most + math.log(math.fsum(math.exp(value - most) for value in values))


def _first_token(logprobs: Any) -> dict[str, float] | None:
    content = logprobs.get("content") if isinstance(logprobs, dict) else None
    first = content[0] if isinstance(content, list) and content else None
    top = first.get("top_logprobs") if isinstance(first, dict) else None
    if not isinstance(top, list):
        return None
    values: dict[str, set[float]] = {}
    for entry in top:
        token, value = (entry.get("token"), entry.get("logprob")) if isinstance(entry, dict) else (None, None)
        if isinstance(token, str) and isinstance(value, (int, float)) and math.isfinite(value):
            values.setdefault(token, set()).add(float(value))
    # Equal entries are one token listed twice, as vLLM lists the one that it chose; others are tokens that are written alike.
    by_token = {token: add_logprobs(same) for token, same in values.items()}
    possible = all(value < _ROUNDING for value in by_token.values())
    return by_token if by_token and possible else None


def reported_usage(data: Mapping[str, object]) -> Usage | None:
    """The usage that an answer reports (`read_usage`); None too where it names no output, and there is a text."""
    usage = read_usage(data.get("usage"))
    if usage is None or (not usage.output_tokens and _writes(data.get("choices"))):
        return None
    tools = count_provider_tools(data)
    return replace(usage, provider_tools=tools) if tools else usage


def _writes(choices: Any) -> bool:
    messages = map(_message_of, choices) if isinstance(choices, list) else ()
    return any(_text(m.get("content")).strip() for m in messages if m is not None)


def pictures(raw: bytes) -> list[bytes] | None:
    """The files in an answer of `/images/generations`; None unless each of them, one at least, stands in it."""
    try:
        files = [base64.b64decode(row["b64_json"], validate=True) for row in loads(raw)["data"]]
    except (ValueError, TypeError, KeyError):
        return None
    return files or None


def embeddings(raw: bytes, count: int) -> list[list[float]] | None:
    """The vectors in an answer of `/embeddings`, by their index; None unless there are `count` of one length."""
    try:
        rows = sorted(loads(raw)["data"], key=lambda row: row["index"])
        vectors = [[float(value) for value in row["embedding"]] for row in rows]
    except (ValueError, TypeError, KeyError):
        return None
    fit = len(vectors) == count and len({len(vector) for vector in vectors}) <= 1
    return vectors if fit and all(math.isfinite(value) for row in vectors for value in row) else None
