"""The chat-completions wire format: requests to bodies, bodies to completions, failures to errors.

Pure functions; `whet.models.openai` does the talking.

What an HTTP 200 may turn out to be, and what becomes of it:

    text                                   Completion
    text that reached the token limit      Completion, finish "length"
    empty content, no choice at all        Completion, error "provider: empty answer"
    a refusal, a content filter            Completion, error "provider: refused ..."
    a whole web page (<!doctype html>)     ProviderError(fatal): the address is not the API
    not JSON, no object, no list of        ProviderError(retryable): the answer is lost, another attempt may
    choices, cut off in the middle         be whole. The engine turns its last attempt into a failed rollout.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

import orjson

from whet.errors import ProviderError
from whet.models.openai_forms import SCHEMA, response_format
from whet.types import Completion, Request, Usage

MAX_TOP_LOGPROBS = 20
MAX_STOPS = 4
_SHOWN = 300
_ROUNDING = 0.01  # by which a log-probability may exceed 0

_REFUSES = re.compile(
    r"unsupported|not support|n.t support|unknown|unrecogni[sz]ed|unexpected|extra (inputs|fields)"
    r"|not permitted|not allowed|not available|not implemented|only the default",
    re.IGNORECASE,
)
_ABOUT_SCHEMA = (404, 500, 501)
_RETRYABLE = (408, 409, 425, 429)
_FATAL_CODES = {"insufficient_quota", "model_not_found", "invalid_api_key"}
_REMEDIES = {
    401: "check the key",
    402: "check the credit of the account",
    403: "check what the key may do",
    404: "check the model's name and the base URL",
    405: "check the base URL",
}
_WANTS_COMPLETION_TOKENS = re.compile(r"max_completion_tokens")
_PAGE = re.compile(rb"\s*<(?:!doctype html|html|head|body)\b", re.IGNORECASE)
WEB_PAGE = (
    "the address answers with a web page, not with the API. Check the base URL: its path is usually /v1, as in "
    "http://localhost:8000/v1"
)
_MODERATED = re.compile(r"flagged|moderation", re.IGNORECASE)

# Feature of a body: (keys that carry it, how a message names it, must the message also say "unsupported").
_FEATURES: Mapping[str, tuple[tuple[str, ...], re.Pattern[str], bool]] = {
    "schema": (("response_format",), re.compile(r"response_?format|json_?schema", re.IGNORECASE), False),
    "seed": (("seed",), re.compile(r"\bseed\b"), False),
    "n": (
        ("n",),
        re.compile(r"\bn\b"),
        False,
    ),
    "logprobs": (("logprobs", "top_logprobs"), re.compile(r"log_?probs", re.IGNORECASE), False),
    "temperature": (("temperature",), re.compile(r"\btemperature\b"), True),
    "stop": (("stop",), re.compile(r"\bstop\b"), True),
    "max_tokens": (("max_tokens",), re.compile(r"\bmax_tokens\b"), True),
}

NEGLECTS = {
    "n": "answers once where n answers are asked for; each call gives one",
    "stop": "leaves stop texts in its answers; they are cut off here",
    "logprobs": "gives no log-probabilities that can be used; answers are read instead",
    "json": "does not keep to response_format; JSON is looked for in its text",
    "limit": "writes more than max_tokens; calls may take longer and cost more than planned",
    "usage": "reports no usage; one token is counted for each byte",
    "queue": "lets calls wait while it answers earlier ones; the time limit of a call counts from the last of these",
}
"""What servers do not do although they were asked and refused nothing, and what whet does about it."""


@dataclass(frozen=True, slots=True)
class Failure:
    """An HTTP answer that is not a 200: status, body, and headers with lower-case names."""

    status: int
    body: bytes
    headers: Mapping[str, str]


def request_body(
    model: str, request: Request, disabled: frozenset[str] | set[str], form: str = SCHEMA
) -> dict[str, Any]:
    """The JSON body of a request, without the features that this model has refused before, its schema in a form that
    this model takes.
    """
    body: dict[str, Any] = {
        "model": model,
        "messages": [{"role": m.role, "content": m.content} for m in request.messages],
    }
    if request.max_tokens is not None:
        body["max_completion_tokens" if "max_tokens" in disabled else "max_tokens"] = request.max_tokens
    if "temperature" not in disabled:
        body["temperature"] = request.temperature
    if request.n > 1 and "n" not in disabled:
        body["n"] = request.n
    if request.seed is not None and "seed" not in disabled:
        body["seed"] = request.seed
    if request.stop and "stop" not in disabled:
        body["stop"] = list(request.stop[:MAX_STOPS])
    if request.schema is not None and (field := response_format(form, request.schema)) is not None:
        body["response_format"] = field
    if request.top_logprobs > 0 and "logprobs" not in disabled:
        body["logprobs"] = True
        body["top_logprobs"] = min(request.top_logprobs, MAX_TOP_LOGPROBS)
    return body


def encode(body: Mapping[str, Any]) -> bytes:
    """UTF-8 JSON. A lone surrogate, which UTF-8 cannot carry, is sent as a question mark."""
    try:
        return orjson.dumps(body)
    except TypeError:
        return json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")


def completions(
    data: Mapping[str, Any], request: Request, count: Callable[[str], int]
) -> list[Completion] | Failure:
    """The completions in the decoded body of an HTTP 200; their usages add up to what the call was billed.

    `count` estimates tokens where the endpoint reports none. A Failure when the body reports one, as some
    gateways do for an upstream error. Raises ProviderError (see the module's text).
    """
    choices = data.get("choices")
    if not isinstance(choices, list):
        if isinstance(data.get("error"), dict):
            return _failure_inside_200(data["error"], orjson.dumps(data))
        raise garbled("the answer holds no choices")
    answers = [_completion(choice, request) for choice in choices[: max(1, request.n)]]
    answers = answers or [Completion("", error="provider: empty answer (no choice in it)")]
    usage = _usage(data.get("usage")) or Usage(
        sum(count(m.content) for m in request.messages), sum(count(c.text) for c in answers)
    )
    share, rest = divmod(usage.output_tokens, len(answers))
    return [
        Completion(
            c.text,
            c.finish,
            Usage(0 if i else usage.input_tokens, share if i else share + rest),
            c.error,
            c.first_token,
        )
        for i, c in enumerate(answers)
    ]


def neglected(body: Mapping[str, Any], data: Mapping[str, Any]) -> set[str]:
    """What an answer shows that the server does not do of what `body` asked for: keys of `NEGLECTS`."""
    choices = [c for c in data["choices"] if isinstance(c, dict) and isinstance(c.get("message"), dict)]
    written = [(c, text) for c in choices if (text := _text(c["message"].get("content"))).strip()]
    whole = [text for c, text in written if c.get("finish_reason") != "length"]
    usage = _usage(data.get("usage"))
    limit = body.get("max_tokens", body.get("max_completion_tokens"))
    signs = {
        "n": 0 < len(choices) < body.get("n", 1),
        "stop": any(stop in text for stop in body.get("stop", ()) for _, text in written),
        "logprobs": "logprobs" in body and any(_first_token(c.get("logprobs")) is None for c, _ in written),
        "json": "response_format" in body and not all(map(_is_json, whole)),
        "limit": limit is not None and usage is not None and usage.output_tokens > (limit + 1) * len(choices),
        "usage": usage is None and bool(written),
    }
    return {name for name, shown in signs.items() if shown}


def _is_json(text: str) -> bool:
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return True


def decode(raw: bytes) -> dict[str, Any]:
    """The JSON object in the body of an HTTP 200. Raises ProviderError."""
    try:
        data = orjson.loads(raw)
    except orjson.JSONDecodeError:
        if _PAGE.match(raw):
            whole = b"<!doctype" in raw[:100].lower()
            raise ProviderError(WEB_PAGE, retryable=not whole, fatal=whole, status=200) from None
        raise garbled("the answer is not JSON") from None
    if not isinstance(data, dict):
        raise garbled("the answer is not a JSON object")
    return data


def garbled(what: str) -> ProviderError:
    """A 200 whose body cannot be used (`status` is 200): retryable, in the end a failed rollout, likely
    billed.
    """
    return ProviderError(what, retryable=True, status=200)


def _failure_inside_200(error: Mapping[str, Any], raw: bytes) -> Failure:
    code = error.get("code")
    return Failure(code if isinstance(code, int) and 400 <= code < 600 else 502, raw, {})


def _completion(choice: Any, request: Request) -> Completion:
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(message, dict):
        return Completion("", error="provider: empty answer (a choice without a message)")
    finish = choice.get("finish_reason")
    finish = finish if isinstance(finish, str) and finish else "stop"
    text = cut_at_stop(_text(message.get("content")), request.stop)
    refusal = message.get("refusal")
    error = None
    if isinstance(refusal, str) and refusal:
        finish, error = "refusal", f"provider: refused: {refusal[:_SHOWN]}"
    elif finish == "content_filter":
        error = "provider: refused (stopped by a content filter)"
    elif not text.strip():
        error = "provider: empty answer" + (
            " (token limit reached before any text)" if finish == "length" else ""
        )
    return Completion(text, finish, error=error, first_token=_first_token(choice.get("logprobs")))


def _text(content: Any) -> str:
    """Text of a message: a string, or a list of parts of which the textual ones count."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        return "".join(part for part in parts if isinstance(part, str))
    return ""


def cut_at_stop(text: str, stops: tuple[str, ...]) -> str:
    """`text` up to the earliest stop sequence: endpoints take few of them, or none, or return them.

    >>> cut_at_stop("one. two! three.", ("!", "."))
    'one'
    """
    ends = [at for at in (text.find(stop) for stop in stops if stop) if at >= 0]
    return text[: min(ends)] if ends else text


def _first_token(logprobs: Any) -> dict[str, float] | None:
    content = logprobs.get("content") if isinstance(logprobs, dict) else None
    first = content[0] if isinstance(content, list) and content else None
    top = first.get("top_logprobs") if isinstance(first, dict) else None
    if not isinstance(top, list):
        return None
    by_token: dict[str, float] = {}
    for entry in top:
        token, value = (entry.get("token"), entry.get("logprob")) if isinstance(entry, dict) else (None, None)
        if isinstance(token, str) and isinstance(value, (int, float)) and math.isfinite(value):
            by_token[token] = max(float(value), by_token.get(token, -math.inf))
    possible = all(value < _ROUNDING for value in by_token.values())
    return by_token if by_token and possible else None


def _usage(value: Any) -> Usage | None:
    if not isinstance(value, dict):
        return None
    spent, written = _tokens(value.get("prompt_tokens")), _tokens(value.get("completion_tokens", 0))
    return None if spent is None or written is None else Usage(spent, written)


def _tokens(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def embeddings(raw: bytes, count: int) -> list[list[float]] | None:
    """The vectors in an answer of `/embeddings`, by their index; None unless there are `count` of one length."""
    try:
        rows = sorted(orjson.loads(raw)["data"], key=lambda row: row["index"])
        vectors = [[float(value) for value in row["embedding"]] for row in rows]
    except (ValueError, TypeError, KeyError):
        return None
    fit = len(vectors) == count and len({len(vector) for vector in vectors}) <= 1
    return vectors if fit and all(math.isfinite(value) for row in vectors for value in row) else None


def http_error(
    failure: Failure, who: str, scrub: Callable[[str], str], unauthorised: str = _REMEDIES[401]
) -> ProviderError:
    """What an HTTP status means for this request and for the others of `who`; `unauthorised` is the remedy for a 401.

    retryable: 408, 409, 425, 429, 5xx. fatal (it concerns every request): 3xx, 401, 402, 403, 404, 405, a
    used-up quota, an unknown model. Neither: any other 4xx, and a 403 that says the input was flagged by
    moderation.
    """
    status = failure.status
    message, codes = _message(failure.body)
    if status in (200, 404, 405) and _PAGE.match(failure.body):
        message = WEB_PAGE
    text = ": ".join(part for part in (f"{who}: HTTP {status}", scrub(message)[:_SHOWN].rstrip()) if part)
    if codes & _FATAL_CODES and status != 401:
        return ProviderError(text, fatal=True, status=status)
    if status in _RETRYABLE or status >= 500:
        return ProviderError(text, retryable=True, retry_after=retry_after(failure.headers), status=status)
    if status == 403 and _MODERATED.search(message):
        return ProviderError(text, status=status)
    if status < 400:
        return ProviderError(f"{text} (not an answer). Check the base URL.", fatal=True, status=status)
    words = unauthorised if status == 401 else _REMEDIES.get(status)
    remedy = f" ({words})" if words else ""
    return ProviderError(text + remedy, fatal=status in _REMEDIES, status=status)


def refused_features(failure: Failure, body: Mapping[str, Any]) -> set[str]:
    """Features that were sent in `body` and that a 400 or 422 complains about; of the schema, a 404, 500 or 501 too."""
    if failure.status not in (400, 422, *_ABOUT_SCHEMA):
        return set()
    message, codes = _message(failure.body)
    text = " ".join((message, *sorted(codes)))
    unsupported = _REFUSES.search(text) is not None
    return {
        name
        for name, (keys, pattern, must_say_so) in _FEATURES.items()
        if any(key in body for key in keys)
        and (name == "schema" or failure.status not in _ABOUT_SCHEMA)
        and pattern.search(text)
        and (
            unsupported or not must_say_so or (name == "max_tokens" and _WANTS_COMPLETION_TOKENS.search(text))
        )
    }


def _message(raw: bytes) -> tuple[str, set[str]]:
    """The server's words and codes: `{"error": {"message", "code", "type", "param"}}`, `{"detail": ...}` or bare text. What is
    neither stands as it came, however deep it is nested.
    """
    text = " ".join(raw[:4000].decode("utf-8", "replace").split())
    try:
        data = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return text, set()
    error = data.get("error", data) if isinstance(data, dict) else data
    if not isinstance(error, dict):
        return error[:4000] if isinstance(error, str) else text, set()
    codes = {
        str(error[key]) for key in ("code", "type") if error.get(key) and isinstance(error[key], str | int)
    }
    named = f"'{error['param']}': " if isinstance(error.get("param"), str) else ""
    words = error.get("message") or error.get("detail") or ""
    return (named + (words if isinstance(words, str) else text))[:4000], codes


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The server's wish in seconds (0 or more) from `retry-after-ms` or `Retry-After` (seconds or an HTTP
    date).

    >>> retry_after({"retry-after": "1.5"}), retry_after({"retry-after-ms": "250"})
    (1.5, 0.25)
    """
    millis, value = _number(headers.get("retry-after-ms")), headers.get("retry-after")
    if millis is not None:
        return millis / 1000
    seconds = _number(value)
    if seconds is not None or value is None:
        return seconds
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return None


def _number(text: str | None) -> float | None:
    try:
        value = float(text) if text is not None else math.nan
    except ValueError:
        return None
    return max(0.0, value) if math.isfinite(value) else None
