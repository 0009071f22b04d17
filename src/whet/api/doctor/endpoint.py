"""An OpenAI-compatible endpoint: does it answer, and which of the features that whet uses does it keep?"""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

from whet.api.doctor.checkup import DoctorReport
from whet.errors import ProviderError
from whet.models.openai import OpenAIModel
from whet.models.openai_answers import NEGLECTS, completions, find_neglected_options, reported_usage
from whet.models.openai_wire import SYSTEM, WEB_PAGE
from whet.types import Completion, Message, Request

MOST_CALLS = 11
"""Calls of one examination: two of chat (one more each where a feature is refused, a stream is wanted, or the model thinks),
one at temperature 0, one with a message of the system, one for several answers with a stop, one with logprobs, two with JSON. A
call that a busy server refuses is not counted."""
MOST_TOKENS = 16
THINKING_TOKENS = 2048
MOST_SECONDS = 30.0
"""The longest time of a call, unless another one is given."""
BUSY_SECONDS, BUSY_TIMES = 30.0, 4
"""The longest wait for a busy server, in seconds for all tries, and the number of further tries."""
NOTE_SECONDS = 3.0
"""A message every few seconds tells the user that the check still waits."""
SLOW = 20.0
_LONG = "Write a list of fifty random nouns, separated by commas."
_COLOURS, _STOP = "Repeat this line and write nothing else: red green blue", "green"
_SYSTEM = "Answer briefly."
_JSON = 'Answer with the JSON object {"word": "ok"} and nothing else.'
_SCHEMA = {
    "type": "object",
    "properties": {"word": {"type": "string"}},
    "required": ["word"],
    "additionalProperties": False,
}


class Busy(Exception):
    """The endpoint refuses calls because there are too many, for longer than is waited for here."""


class PatientModel:
    """A model that is asked in an examination: a busy endpoint is waited for as it asks, and every wait is said."""

    def __init__(self, checkup: DoctorReport, model: OpenAIModel, seconds: float) -> None:
        self.address, self.base_url, self.seconds = model.address, model.base_url, seconds
        self._checkup, self._model = checkup, model
        self._left = BUSY_SECONDS

    @property
    def streams(self) -> bool:
        """Whether the endpoint answers in streams only."""
        return self._model.streams

    async def probe(
        self, body: dict[str, Any]
    ) -> tuple[dict[str, object], ProviderError | None, frozenset[str]]:
        """Probe the model, with further tries while the endpoint is busy. Raises Busy when the endpoint stays busy."""
        for attempt in range(BUSY_TIMES + 1):
            answer, error, refused = await self._waited_for(body)
            if error is None or error.fatal or error.status not in (429, 503):
                break
            wait = 2.0**attempt if error.retry_after is None else error.retry_after
            if attempt == BUSY_TIMES or wait > self._left:
                if error.status == 429:
                    raise Busy(str(error)) from error
                break
            self._left -= wait
            whose = "" if error.retry_after is None else ", as it asks"
            self._checkup.begin(f"{self.address} is busy (HTTP {error.status}); waiting {wait:.3g} s{whose}")
            await asyncio.sleep(wait)
        return answer, error, refused

    async def _waited_for(
        self, body: dict[str, Any]
    ) -> tuple[dict[str, object], ProviderError | None, frozenset[str]]:
        """Make one attempt, and say the time that it takes while it lasts."""
        call = asyncio.ensure_future(self._model.probe(body))
        waited = 0.0
        try:
            while not (await asyncio.wait([call], timeout=NOTE_SECONDS))[0]:
                waited += NOTE_SECONDS
                self._checkup.begin(
                    f"{self.address}: no answer for {waited:.0f} s, of at most {self.seconds:g} s a call"
                )
            return call.result()
        finally:
            call.cancel()


async def examine_endpoint(checkup: DoctorReport, model: OpenAIModel, seconds: float = MOST_SECONDS) -> None:
    """Note what the endpoint does with a chat call, a seed, a token limit, logprobs and structured answers. `seconds` is the
    time limit of a call, which is that of the model.
    """
    try:
        await _examine(checkup, PatientModel(checkup, model, seconds))
    except Busy as error:
        checkup.warn(
            model.address,
            f"busy: {error}; its other features were not checked",
            (
                "no action needed: a run waits and tries again. Set the rate with requests_per_minute, "
                "and run doctor again later"
            ),
        )


async def _examine(checkup: DoctorReport, model: PatientModel) -> None:
    body: dict[str, Any] = {
        "messages": [{"role": "user", "content": _LONG}],
        "max_tokens": MOST_TOKENS,
        "temperature": 1.0,
        "seed": 7,
    }
    answer, error, seconds, body = await _first_answer(checkup, model, body)
    text = _text(answer) if error is None else None
    if error is not None or text is None:
        checkup.fail(model.address, _problem(model, error, answer), _remedy(model, error))
        return
    checkup.ok(model.address, f"answers at {model.base_url} in {seconds:.1f} s")
    if model.streams:
        checkup.ok(model.address, "answers only in streams; whet requests and reads streams")
    if seconds > SLOW:
        checkup.warn(
            model.address, f"slow: {seconds:.0f} s a call", "models: {task: {timeout: 600}} in task.yaml"
        )
    _usage(checkup, model, answer)
    _limit(
        checkup, model, answer, text, body.get("max_tokens", body.get("max_completion_tokens", MOST_TOKENS))
    )
    if "seed" in body:
        again, error, _ = await model.probe(body)
        if error is None and _text(again) == text:
            checkup.ok(model.address, "seed: two calls with the same seed gave the same answer")
        else:
            checkup.warn(
                model.address,
                "seed: two calls with the same seed gave different answers",
                "no action needed: whet records every paid answer",
            )
    await _greedy(checkup, model, body)
    await _roles(checkup, model, body)
    await _several(checkup, model, body)
    await _logprobs(checkup, model, body)
    await _check_structured_output(checkup, model, body)


_AGAIN = "`whet doctor` shows when the model answers"
_OTHER_MODEL = "name another model with --lm (--optimizer-lm, --judge-lm)"
_OTHER_PLACE = (
    "name the address of the API with --base-url (`base_url` in task.yaml), which usually ends in /v1"
)
_REMEDIES = {
    401: "export the variable of the key with a key that this endpoint takes, or read it from another variable: "
    "--lm-option key_variable=NAME",
    402: f"add credit at the provider, or {_OTHER_MODEL}",
    403: f"allow the key to use this model at the provider, or {_OTHER_MODEL}",
    404: f"{_OTHER_MODEL} (GET /models of the base URL lists those of this server); or {_OTHER_PLACE}",
    405: _OTHER_PLACE,
    429: f"raise the quota at the provider, or {_OTHER_MODEL}",
}
"""The remedy for a refusal, by its HTTP status."""
_NO_TEXT = (
    "send the model a question by hand. If it thinks without end or filters every answer, "
    f"{_OTHER_MODEL}. On your own server, check the chat template"
)
_REFUSED = (
    "remove the options that the server refuses: --lm-option KEY=VALUE and `models:` in task.yaml "
    "set options of requests (temperature, extra_body)"
)


def _remedy(model: PatientModel, error: ProviderError | None) -> str:
    """The remedy for an endpoint that does not answer."""
    if error is None:
        return _NO_TEXT
    words = str(error)
    if "no server is listening" in words:
        return f"start the server; {_AGAIN}"
    if "no answer within" in words:
        return (
            "check that the server works; if it is only slow, wait longer with --timeout "
            f"{4 * model.seconds:g}"
        )
    if WEB_PAGE in words or (error.status is not None and error.status < 400 and error.fatal):
        return _OTHER_PLACE
    if error.retryable and not error.fatal:
        return f"wait until it is ready; {_AGAIN}"
    if error.status is None:
        return (
            f"check that {model.base_url} (--base-url) is correct and can be reached from this "
            f"machine, also through its proxy; {_AGAIN}"
        )
    return _REMEDIES.get(error.status, _REFUSED)


async def _first_answer(
    checkup: DoctorReport, model: PatientModel, body: dict[str, object]
) -> tuple[dict[str, object], ProviderError | None, float, dict[str, Any]]:
    """The answer to the first question or the error instead, the seconds that it took, and the body that got it: without what the
    server refuses, and with more tokens for a model that thinks."""
    started = time.monotonic()
    answer, error, refused = await model.probe(body)
    if error is not None and refused:
        checkup.warn(
            model.address, f"refuses {', '.join(sorted(refused))}", "no action needed: whet omits it"
        )
        if "max_tokens" in refused:
            body["max_completion_tokens"] = body["max_tokens"]
        body = {key: value for key, value in body.items() if key not in refused}
        started = time.monotonic()
        answer, error, _ = await model.probe(body)
    seconds = time.monotonic() - started
    if error is None and _text(answer) is None and _thinks(answer):
        more = {key: THINKING_TOKENS for key in ("max_tokens", "max_completion_tokens") if key in body}
        started = time.monotonic()
        second, error, _ = await model.probe(body | more)
        seconds = time.monotonic() - started
        if error is not None or _text(second) is not None:
            answer, body = second, body | more
        if error is None and _text(second) is not None:
            remedy = (
                "allow more tokens for the reasoning: models: {task: {max_tokens: ...}} in "
                "task.yaml, and a price that counts it"
            )
            words = f"thinks before it answers: {MOST_TOKENS} tokens held no text, {THINKING_TOKENS} did"
            checkup.warn(model.address, words, remedy)
    return answer, error, seconds, body


def _thinks(answer: dict[str, object]) -> bool:
    """Whether an answer ended before its text began."""
    made = _first_completion(answer)
    thought = made is not None and not made.text.strip() and made.finish in ("length", "stop")
    return thought and "refused" not in str(made and made.error)


def _problem(model: PatientModel, error: ProviderError | None, answer: dict[str, object]) -> str:
    if error is None:
        made = _first_completion(answer)
        saw = "" if made is None or made.error is None else f": {made.error.partition(': ')[2]}"
        return f"at {model.base_url}: the answer contains no text{saw}"
    return str(error) if model.address in str(error) else f"{model.base_url}: {error}"


def _first_completion(answer: dict[str, object]) -> Completion | None:
    """The first completion, as a run reads it; None where there is none."""
    choices = answer.get("choices")
    if not isinstance(choices, list) or not choices:
        return None
    made = completions({**answer, "choices": choices[:1]}, Request((Message("user", ""),)), len, None)
    return made[0] if isinstance(made, list) else None


def _text(answer: dict[str, object]) -> str | None:
    """The text of an answer; None where there is none, or where a run would not use it."""
    made = _first_completion(answer)
    return None if made is None or made.error is not None else made.text.strip() or None


def _usage(checkup: DoctorReport, model: PatientModel, answer: dict[str, object]) -> None:
    if reported_usage(answer) is not None:
        checkup.ok(model.address, "usage: tokens are reported")
        return
    odd = f"{answer['usage']!r:.60} cannot be right" if answer.get("usage") else "tokens are not reported"
    checkup.warn(
        model.address,
        f"usage: {odd}",
        "limit calls, not tokens: whet counts bytes as tokens",
    )


def _limit(
    checkup: DoctorReport, model: PatientModel, answer: dict[str, object], text: str, limit: int
) -> None:
    usage = reported_usage(answer)
    written = None if usage is None else usage.output_tokens
    if (written is not None and written > limit + 1) or len(text.split()) > 2 * limit:
        checkup.warn(
            model.address,
            f"max_tokens: the limit was {limit}, and the answer had {written or len(text.split())}",
            "set the limit at the server; a run may cost more than its plan says",
        )
    else:
        checkup.ok(model.address, "max_tokens: kept")


async def _greedy(checkup: DoctorReport, model: PatientModel, body: dict[str, Any]) -> None:
    """Whether temperature 0 is taken, which a run sends where the task names none."""
    if "temperature" not in body:
        return
    _, error, refused = await model.probe({**body, "temperature": 0.0})
    if "temperature" in refused:
        checkup.warn(model.address, "refuses temperature 0", "no action needed: whet omits it")
    elif error is not None and error.status in (400, 422):
        remedy = (
            "set another temperature in task.yaml: models: {task: {temperature: 0.01}}, and likewise "
            "for optimizer and judge"
        )
        words = f"temperature 0, which a run sends unless the task sets a temperature: {error}"
        checkup.warn(model.address, words, remedy)


async def _roles(checkup: DoctorReport, model: PatientModel, body: dict[str, object]) -> None:
    """Whether a message of the system is taken, which most prompts begin with."""
    messages = [{"role": "system", "content": _SYSTEM}, {"role": "user", "content": _COLOURS}]
    _, error, refused = await model.probe({**body, "messages": messages})
    if SYSTEM in refused:
        remedy = (
            "no action needed: whet puts the text of the system message at the beginning of the "
            "first user message"
        )
        checkup.warn(model.address, "refuses the role system", remedy)
    elif error is not None:
        remedy = "write the instruction as a user message, or with {{input}} in it"
        checkup.warn(model.address, f"a system message: {error}", remedy)
    else:
        checkup.ok(model.address, "role system: accepted")


async def _several(checkup: DoctorReport, model: PatientModel, body: dict[str, object]) -> None:
    """Whether `n` gives so many answers, and whether an answer ends before a stop text."""
    both = {**body, "messages": [{"role": "user", "content": _COLOURS}], "n": 2, "stop": [_STOP]}
    answer, error, refused = await model.probe(both)
    if error is not None or _text(answer) is None:
        what = (
            f"refuses {', '.join(sorted(refused))}"
            if refused
            else f"n and stop together: {error or 'no text'}"
        )
        checkup.warn(model.address, what, "no action needed: whet omits it")
        return
    shown = find_neglected_options(both, answer, reported_usage(answer))
    for feature in ("n", "stop"):
        if feature in shown:
            checkup.warn(
                model.address,
                f"{feature}: {NEGLECTS[feature].partition(';')[0]}",
                "no action needed: whet handles this",
            )
        else:
            checkup.ok(model.address, f"{feature}: kept")


async def _logprobs(checkup: DoctorReport, model: PatientModel, body: dict[str, object]) -> None:
    answer, error, _ = await model.probe({**body, "logprobs": True, "top_logprobs": 2})
    request = Request((Message("user", ""),), top_logprobs=2)
    made = completions(answer, request, len, None) if _text(answer) else []
    if error is None and isinstance(made, list) and made and made[0].first_token:
        checkup.ok(model.address, "logprobs: given")
    else:
        why = f" ({error})" if error is not None else ""
        checkup.warn(
            model.address, f"logprobs: not given{why}", "no action needed, unless a judge uses them (yes_no)"
        )


async def _check_structured_output(checkup: DoctorReport, model: PatientModel, body: dict[str, Any]) -> None:
    structured = {**body, "messages": [{"role": "user", "content": _JSON}]}
    structured = {
        **structured,
        **{key: max(64, body[key]) for key in ("max_tokens", "max_completion_tokens") if key in body},
    }
    schema = {"type": "json_schema", "json_schema": {"name": "answer", "schema": _SCHEMA, "strict": True}}
    answer, error, _ = await model.probe({**structured, "response_format": schema})
    if error is None and _keeps_schema(_text(answer)):
        checkup.ok(model.address, "json_schema: kept")
        return
    first = f"answers with {_excerpt(answer)}" if error is None else str(error)
    answer, error, _ = await model.probe({**structured, "response_format": {"type": "json_object"}})
    if error is None and _keeps_schema(_text(answer)):
        checkup.warn(
            model.address,
            f"json_schema: {first}",
            "no action needed: whet uses json_object instead, which works",
        )
        return
    second = f"answers with {_excerpt(answer)}" if error is None else str(error)
    checkup.warn(
        model.address,
        f"json_schema: {first}; json_object: {second}",
        "whet reads JSON from plain text; if many replies are unusable, name a stronger --optimizer-lm",
    )


def _keeps_schema(text: str | None) -> bool:
    try:
        value = json.loads(text or "")
    except ValueError:
        return False
    return isinstance(value, dict) and isinstance(value.get("word"), str)


def _excerpt(answer: dict[str, object]) -> str:
    return repr((_text(answer) or "")[:60])
