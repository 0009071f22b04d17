"""The chat-completions wire format: requests to bodies, bodies to completions, failures to errors.

Pure functions; `whet.models.openai` does the talking.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import orjson
from yarl import URL

from whet.errors import ProviderError
from whet.models.openai_forms import SCHEMA, response_format
from whet.models.output_bounds import TokenLimits, read_limits
from whet.models.waits import find_wait
from whet.types import Request
from whet_client.media import content_of

MAX_TOP_LOGPROBS = 20
MAX_STOPS = 4
_SHOWN = 300

_REFUSES = re.compile(
    r"unsupported|not support|n.t support|unknown|unrecogni[sz]ed|unexpected|extra (inputs|fields)"
    r"|not permitted|not allowed|not available|not implemented|only the default|deprecated|no longer|cannot both",
    re.IGNORECASE,
)
_INSISTS = re.compile(
    r"\b(?:only|must be|set to) 1(?:\.0{1,9})?(?![\d.]{0,20}\d)",
    re.IGNORECASE,
)
"""Matches the error of a model that takes only its own temperature. A model that refuses 0 is another matter: `whet doctor`
names 0.01."""
_ABOUT_SCHEMA = (404, 500, 501)
_ABOUT_ROLES = (400, 422, 500)
_RETRYABLE = (408, 409, 424, 425, 429, 499)
_FATAL_CODES = {
    *(
        "insufficient_quota",
        "billing_hard_limit_reached",
        "billing_not_active",
        "model_not_found",
        "invalid_api_key",
    ),
    *("Arrearage", "AllocationQuota.FreeTierOnly"),  # DashScope
    *("blocked_api_access", "organization_restricted"),  # Groq
    *("budget_exceeded", "exceeded_current_quota_error", "1113"),  # LiteLLM, Moonshot, Z.ai
}
"""Codes and types of errors that concern the account, the key or the model: each further request would get them too."""
_REMEDIES = {
    401: "check the key",
    402: "check the credit of the account",
    403: "check what the key may do",
    404: "check the model's name and the base URL",
    405: "check the base URL",
}
_ABOUT_BOUNDS = (400, 413, 422, 500)
_NEVER_ABOUT_STREAMS = (401, 402, 403, 407, 408, 429)
_STREAM = re.compile(r"\b(?:non[- ]?)?stream(?:ing|ed|s)?\b|流式", re.IGNORECASE)
_DEMAND = r"\b(?:only|must|require[ds]?|enable|support(?:ed|s)?|need(?:ed|s)?|true)\b"
_STREAM_DEMANDED = re.compile(rf"\bnon[- ]?stream|{_DEMAND}.*\bstream|\bstream.*{_DEMAND}", re.IGNORECASE)
_ABOUT_LOGPROBS = re.compile(r"log_?probs", re.IGNORECASE)
_MOST_LOGPROBS = re.compile(
    r"(?:more than|maximum (?:of|is)|max(?:imum)? allowed(?: is)?|less than or equal to|at most|<="
    r"|between \d+ and|\[\d+, ?)[: ]*(\d+)",
    re.IGNORECASE,
)
"""Matches the largest number of candidates of a token in the errors of servers (vLLM, OpenAI, Together, DeepSeek)."""
_WANTS_COMPLETION_TOKENS = re.compile(r"max_completion_tokens")
PAGE = re.compile(rb"\s*<(?:!doctype html|html|head|body)\b", re.IGNORECASE)
WEB_PAGE = (
    "the address answers with a web page, not with the API. Check the base URL: its path is usually /v1, as in "
    "http://localhost:8000/v1"
)
_MODERATED = re.compile(r"flagged|moderation", re.IGNORECASE)
_FILTER_CODES = {
    *("content_filter", "content_policy_violation", "moderation_blocked", "prohibited_content"),
    *("data_inspection_failed", "DataInspectionFailed", "ResponsibleAIPolicyViolation"),
    *("SensitiveContentDetected", "InputTextSensitiveContentDetected", "OutputTextSensitiveContentDetected"),
}
_FILTER_WORDS = re.compile(
    r"content management policy|PROHIBITED_CONTENT|content policy|content exists risk|data_inspection_failed"
    r"|(?:prompt|input|content) (?:was|has been|is) (?:flagged|blocked)|rejected by (?:the|our|a) safety system"
    r"|blocked by (?:the |our |a )?content filter|violates usage guidelines|ContentPolicyViolation",
    re.IGNORECASE,
)
"""Matches the errors by which providers (OpenAI, Azure, Google and OpenRouter, Alibaba, DeepSeek, Anthropic, Amazon, xAI,
LiteLLM) report that a filter stopped a request."""
_LONGEST_WORDS, _DEEPEST_CODE = 100_000, 6
"""The characters of an error, and the levels of its nesting, that are searched for the report of a filter."""
_FILTER_STATUSES = (400, 403, 422, 451)
_TOO_LARGE = re.compile(r"\blimit:? (\d[\d,]*)\b.*?\brequested:? (\d[\d,]*)", re.IGNORECASE | re.DOTALL)
"""The allowance of a limit a minute, and the part of it that one request takes."""
_SMALLER = "one request takes more than the endpoint allows in a minute: shorten the prompt or the row, or lower max_tokens"

_MESSAGES = ("message", "detail", "msg", "error_msg")
"""The fields of an error that name the failure."""

# Feature of a body: (keys that carry it, how a message names it, must the message also say "unsupported").
_FEATURES: Mapping[str, tuple[tuple[str, ...], re.Pattern[str], bool]] = {
    "schema": (("response_format",), re.compile(r"response_?format|json_?schema", re.IGNORECASE), False),
    "seed": (("seed",), re.compile(r"\bseed\b"), False),
    "n": (
        ("n",),
        re.compile(r"\bn\b"),
        False,
    ),
    "logprobs": (("logprobs", "top_logprobs"), _ABOUT_LOGPROBS, False),
    "temperature": (("temperature",), re.compile(r"\btemperature\b"), True),
    "stop": (("stop",), re.compile(r"\bstop\b"), True),
    "max_tokens": (("max_tokens",), re.compile(r"\bmax_tokens\b"), True),
    "stream_options": (("stream_options",), re.compile(r"\bstream_options\b|include_usage"), False),
}
_OWN_WORDS = {"max_tokens": _WANTS_COMPLETION_TOKENS, "temperature": _INSISTS}
"""The words that refuse a feature without saying that it is unsupported."""

SYSTEM = "system"
"""The feature of messages that speak for the system or the developer."""
ALTERNATE = "neighbours"
"""The feature of two messages of one role that follow each other."""
_ABOUT_TURNS = re.compile(r"\balternat", re.IGNORECASE)
_SYSTEM_ROLES = ("system", "developer")
_ABOUT_SYSTEM = re.compile(
    r"developer (?:instruction|message|role)|system (?:role|message|prompt|instruction)"
    r"|\bsystem\b.{0,200}\brole|\brole.{0,200}\bsystem\b"
    r"|roles must alternate|user and assistant roles|messages\W+\d+\W+role",
    re.IGNORECASE,
)
_REFUSES_SYSTEM = re.compile(
    r"not enabled|not accept|invalid|must alternate|\bonly\b|should be|(?:does|do) not|(?:does|do)n't",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Failure:
    """An HTTP answer that is not a 200: status, body, and headers with lower-case names; or, `inside` an HTTP 200, an error with
    the status that it names, 200 for none. `place`: which of several base URLs answered."""

    status: int
    body: bytes
    headers: Mapping[str, str]
    inside: bool = False
    place: str = ""


def request_body(
    model: str, request: Request, disabled: frozenset[str] | set[str], form: str = SCHEMA
) -> dict[str, Any]:
    """The JSON body of a request, without the features that this model has refused before, its schema in a form that
    this model takes.
    """
    messages: list[dict[str, object]] = [m.as_object() for m in request.messages]
    if SYSTEM in disabled:
        messages = without_system(messages)
    if ALTERNATE in disabled:
        messages = join_neighbours(messages)
    for message in messages:
        message["content"] = content_of(str(message["content"]))
    body: dict[str, object] = {"model": model, "messages": messages}
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
    if request.schema is not None:
        field = response_format(form, request.schema, request.schema_options)
        if field is not None:
            body["response_format"] = field
    if request.top_logprobs > 0 and "logprobs" not in disabled:
        body["logprobs"] = True
        body["top_logprobs"] = min(request.top_logprobs, MAX_TOP_LOGPROBS)
    return body


def without_system(messages: Sequence[Mapping[str, object]]) -> list[dict[str, object]]:
    """The messages with what the system says at the head of the first message of the user.

    >>> without_system([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}])
    [{'role': 'user', 'content': 'Be brief.\\n\\nHello'}]
    """
    system_texts = [str(m["content"]) for m in messages if m["role"] in _SYSTEM_ROLES]
    others = [dict(m) for m in messages if m["role"] not in _SYSTEM_ROLES]
    if not system_texts:
        return others
    if not others or others[0]["role"] != "user":
        others.insert(0, {"role": "user", "content": ""})
    texts = [*system_texts, str(others[0]["content"])]
    others[0]["content"] = "\n\n".join(text for text in texts if text)
    return others


def join_neighbours(messages: Sequence[Mapping[str, object]]) -> list[dict[str, object]]:
    """The messages with those of one role that follow each other as one.

    >>> join_neighbours([{"role": "user", "content": "Be brief."}, {"role": "user", "content": "Hello"}])
    [{'role': 'user', 'content': 'Be brief.\\n\\nHello'}]
    """
    joined: list[dict[str, object]] = []
    for message in messages:
        if joined and joined[-1]["role"] == message["role"]:
            joined[-1]["content"] = f"{joined[-1]['content']}\n\n{message['content']}"
        else:
            joined.append(dict(message))
    return joined


def encode_body(body: Mapping[str, object]) -> bytes:
    """UTF-8 JSON. A lone surrogate, which UTF-8 cannot carry, is sent as a question mark."""
    try:
        return orjson.dumps(body)
    except TypeError:
        return json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")


def unreadable_reply(what: str) -> ProviderError:
    """A 200 whose body cannot be used (`status` is 200): retryable, in the end a failed rollout, likely
    billed.
    """
    return ProviderError(what, retryable=True, status=200)


def loads(raw: bytes) -> Any:
    """JSON as servers write it: also behind a byte order mark, with NaN, with bytes that are no UTF-8 or with half a surrogate
    pair, which become replacement characters. Raises ValueError.
    """
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        pass
    try:
        return _whole(json.loads(raw.decode("utf-8-sig", "replace")))
    except RecursionError:
        raise ValueError("nested too deeply") from None


_CHARSET = re.compile(r"charset\s{0,9}=\s{0,9}[\"']?([\w.:-]{1,40})", re.IGNORECASE)


def as_utf8(body: bytes, content_type: str) -> bytes:
    """A body in UTF-8, where a header names another encoding and the bytes are none of UTF-8.

    >>> as_utf8("très".encode("latin-1"), "application/json; charset=ISO-8859-1").decode()
    'très'
    """
    named = _CHARSET.search(content_type)
    if named is None or is_utf8(body):
        return body
    try:
        return body.decode(named[1]).encode()
    except (LookupError, UnicodeError):
        return body


def is_utf8(body: bytes) -> bool:
    """Whether all bytes are characters in UTF-8."""
    if body.isascii():
        return True
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


def _whole(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_whole(item) for item in value]
    return {_whole(k): _whole(v) for k, v in value.items()} if isinstance(value, dict) else value


def http_error(
    failure: Failure,
    who: str,
    scrub: Callable[[str], str],
    unauthorised: str = _REMEDIES[401],
    not_found: str = "",
) -> ProviderError:
    """The meaning of an HTTP status for this request and for the others of `who`. `unauthorised` is the remedy for a 401, and
    `not_found` an additional remedy for a 404.

    retryable: 408, 409, 424, 425, 429, 499, 5xx. fatal (it concerns every request): 3xx, 401, 402, 403, 404, 405, a
    used-up quota, an unknown model. Neither: any other 4xx, and a 403 that says the input was flagged by
    moderation.
    """
    status = failure.status
    message, codes = _message(failure.body)
    if status < 300 and not failure.inside:
        message = message or "an answer without a body"
    elif status < 400 and not message and (target := _target(failure.headers)):
        message = f"it points to {target}"
    if status in (200, 404, 405) and PAGE.match(failure.body):
        message = WEB_PAGE
    place = f"HTTP {status}"
    if failure.inside:
        place = f"HTTP 200 with an error in it{'' if status == 200 else f' (status {status})'}"
    text = ": ".join(part for part in (f"{who}: {place}", scrub(message)[:_SHOWN].rstrip()) if part)
    if codes & _FATAL_CODES and status != 401:
        return ProviderError(text, fatal=True, status=status)
    if failure.inside and status == 200:
        return ProviderError(text, retryable=True, status=status, billed=False)
    if status == 429 and _never_fits(message):
        return ProviderError(f"{text} ({_SMALLER})", status=status)
    if status in _RETRYABLE or status >= 500:
        return ProviderError(text, retryable=True, retry_after=_wait(failure, message), status=status)
    if status == 403 and filter_words(failure) is not None:
        return ProviderError(text, status=status)
    if status < 400:
        return ProviderError(f"{text} (not an answer). Check the base URL.", fatal=True, status=status)
    words = unauthorised if status == 401 else _REMEDIES.get(status)
    words = "; ".join(part for part in (words, not_found) if part)
    remedy = f" ({words})" if words else ""
    return ProviderError(text + remedy, fatal=status in _REMEDIES, status=status)


def _never_fits(message: str) -> bool:
    """Whether a refusal says that one request takes more than the endpoint allows at all, however long it waits.

    >>> _never_fits("Rate limit reached on tokens per min (TPM): Limit 30000, Used 29000, Requested 1546.")
    False
    >>> _never_fits("Request too large on tokens per min (TPM): Limit 30,000, Requested 40,546.")
    True
    """
    limits = _TOO_LARGE.search(message)
    if limits is None:
        return False
    limit, requested = (int(number.replace(",", "")) for number in limits.groups())
    return requested > limit


def filter_words(failure: Failure) -> str | None:
    """The message of a content filter that took the request; None if the failure has another cause."""
    if failure.status not in _FILTER_STATUSES and not failure.inside:
        return None
    message, _ = _message(failure.body, _LONGEST_WORDS)
    text = _without_quote(message)
    moderated = failure.status == 403 and _MODERATED.search(text)
    return (
        message
        if moderated or _FILTER_WORDS.search(text) or _codes_in(failure.body) & _FILTER_CODES
        else None
    )


def words_of_filter(failure: Failure, error: ProviderError) -> str | None:
    """The message of a content filter that refused the request. None where the failure `error` has another cause, concerns
    every request, or may pass."""
    passing = error.retryable or error.fatal
    return filter_words(failure) if failure.inside or not passing else None


def _codes_in(raw: bytes) -> set[str]:
    """The codes and the types of an error and of the errors inside it, which a router may relay as a text (OpenRouter)."""
    codes, level = set[str](), [_read_mapping(raw)]
    for _ in range(_DEEPEST_CODE):
        codes |= {
            code for node in level for key in ("code", "type") if isinstance(code := node.get(key), str)
        }
        inner = [value for node in level for value in node.values() if isinstance(value, dict | str)]
        level = [
            value if isinstance(value, dict) else _read_mapping(value.encode("utf-8", "replace"))
            for value in inner
        ]
    return codes


def _read_mapping(raw: bytes) -> dict[str, object]:
    """The JSON object in a body, or in the list of one that is a body of Google's; empty for anything else."""
    if raw.lstrip()[:1] not in (b"{", b"["):
        return {}
    try:
        data = loads(raw[:_LONGEST_WORDS])
    except ValueError:
        return {}
    data = data[0] if isinstance(data, list) and len(data) == 1 else data
    return data if isinstance(data, dict) else {}


def _wait(failure: Failure, message: str) -> float | None:
    """The seconds that a refusal asks to wait, if it names any."""
    try:
        data = loads(failure.body)
    except ValueError:
        data = None
    return find_wait(failure.headers, data, message)


def _without_quote(message: str) -> str:
    """A message without the request that it quotes: no word of that complains."""
    start = message.find("{")
    quoted = message[start:] if start >= 0 else ""
    if not re.search(r"[\"']messages\\?[\"']\s*:", quoted):
        return message
    return message[:start] + message[message.rfind("}") + 1 :] if "}" in quoted else message[:start]


def _target(headers: Mapping[str, str]) -> str:
    """The target of a redirect, without parts that may be secret."""
    try:
        url = URL(headers.get("location", ""))
        return str(url.with_user(None).with_query(None).with_fragment(None)) if url.host else url.path
    except ValueError:
        return ""


def _has_system(body: Mapping[str, object]) -> bool:
    """Whether a body, which may be that of a diagnosis, has a message in a system role."""
    messages = body.get("messages")
    return isinstance(messages, list) and any(message["role"] in _SYSTEM_ROLES for message in messages)


def _has_neighbours(body: Mapping[str, object]) -> bool:
    """Whether two messages of one role follow each other in a body."""
    messages = body.get("messages")
    roles = [message["role"] for message in messages] if isinstance(messages, list) else []
    return any(one == other for one, other in pairwise(roles))


def refused_features(failure: Failure, body: Mapping[str, object]) -> set[str]:
    """Features that were sent in `body` and that a 400 or 422 complains about; of the schema, a 404, 500 or 501 too."""
    if failure.status not in (400, 422, *_ABOUT_SCHEMA):
        return set()
    message, codes = _message(failure.body)
    text = " ".join((_without_quote(message), *sorted(codes)))
    unsupported = _REFUSES.search(text) is not None
    if failure.status in _ABOUT_ROLES and _has_neighbours(body) and _ABOUT_TURNS.search(text):
        return {ALTERNATE}
    if (
        failure.status in _ABOUT_ROLES
        and _has_system(body)
        and _ABOUT_SYSTEM.search(text)
        and (unsupported or _REFUSES_SYSTEM.search(text))
    ):
        return {SYSTEM}
    return {
        name
        for name, (keys, pattern, must_say_so) in _FEATURES.items()
        if any(key in body for key in keys)
        and (name == "schema" or failure.status not in _ABOUT_SCHEMA)
        and pattern.search(text)
        and (unsupported or not must_say_so or (name in _OWN_WORDS and _OWN_WORDS[name].search(text)))
    }


def logprobs_allowed(failure: Failure, body: Mapping[str, object]) -> int | None:
    """Return the largest number of candidates of a token that the model names, if a failure says that `body` asks for more."""
    sent = body.get("top_logprobs")
    if failure.status not in (400, 422) or not isinstance(sent, int):
        return None
    message, codes = _message(failure.body)
    text = " ".join((_without_quote(message), *sorted(codes)))
    stated = _MOST_LOGPROBS.search(text) if _ABOUT_LOGPROBS.search(text) else None
    most = int(stated[1]) if stated is not None else 0
    return most if 0 < most < sent else None


def wants_stream(failure: Failure, body: Mapping[str, object]) -> bool:
    """Whether a failure is about streams: there must be one, or there must be none."""
    if failure.status in _NEVER_ABOUT_STREAMS:
        return False
    message, codes = _message(failure.body)
    text = " ".join((_without_quote(message), *sorted(codes)))
    if "stream_options" in body and re.search(r"stream_options|include_usage", text):
        return False
    certain = failure.status < 500 and not failure.inside
    return (_STREAM if certain else _STREAM_DEMANDED).search(text) is not None


def limits_of(failure: Failure, body: Mapping[str, object]) -> tuple[TokenLimits | None, int | None]:
    """The failure's statement about the model's token limits (None where it has another cause), and the bound that was sent."""
    sent = body.get("max_tokens", body.get("max_completion_tokens"))
    sent = sent if isinstance(sent, int) else None
    if failure.status not in _ABOUT_BOUNDS and not failure.inside:
        return None, sent
    message, _ = _message(failure.body)
    return read_limits(_without_quote(message), _details(failure.body), sent), sent


def _details(raw: bytes) -> Mapping[str, object]:
    """The fields of an error."""
    try:
        data = loads(raw)
    except ValueError:
        return {}
    data = data[0] if isinstance(data, list) and data else data
    error = data.get("error", data) if isinstance(data, dict) else None
    return error if isinstance(error, dict) else {}


def _message(raw: bytes, most: int = 4000) -> tuple[str, set[str]]:
    """The server's words and codes: `{"error": {"message", "code", "type", "param"}}`, `{"detail": ...}` or bare text. Any
    other content is kept as it came, however deeply it is nested. `most`: characters of the words that are read.
    """
    text = " ".join(raw[:most].decode("utf-8", "replace").split())
    try:
        data = loads(raw)
    except ValueError:
        return text, set()
    if isinstance(data, list) and len(data) == 1:  # Google's form
        data = data[0]
    error = data.get("error", data) if isinstance(data, dict) else data
    if not isinstance(error, dict):
        return error[:most] if isinstance(error, str) else text, set()
    codes = {
        str(error[key]) for key in ("code", "type") if error.get(key) and isinstance(error[key], str | int)
    }
    named = f"'{error['param']}': " if isinstance(error.get("param"), str) else ""
    words = next((error[key] for key in _MESSAGES if error.get(key)), text)
    words = words if isinstance(words, str) else _places(words) or text
    return (named + words + _upstream(error.get("metadata"), words, most))[:most], codes


def _upstream(metadata: object, words: str, most: int) -> str:
    """A router's message about the provider behind it, which it sends beside its own message (OpenRouter)."""
    raw = metadata.get("raw") if isinstance(metadata, dict) else None
    if isinstance(raw, dict):
        raw = json.dumps(raw)
    if not isinstance(raw, str) or not raw.strip() or raw in words:
        return ""
    name = metadata.get("provider_name") if isinstance(metadata, dict) else None
    theirs, _ = _message(raw[:_LONGEST_WORDS].encode("utf-8", "replace"), most)
    return f": {name}: {theirs}" if isinstance(name, str) and name else f": {theirs}"


def _places(details: object) -> str:
    """The messages of a list of details, with the places of the request that they name. Quotations of the request are left
    out."""
    rows = details if isinstance(details, list) else []
    texts = [row["msg"] for row in rows if isinstance(row, dict) and isinstance(row.get("msg"), str)]
    if not texts or len(texts) < len(rows):
        return ""
    places = [".".join(map(str, loc)) if isinstance(loc := row.get("loc"), list) else "" for row in rows]
    return "; ".join(f"{place}: {text}" for place, text in zip(places, texts, strict=True))
