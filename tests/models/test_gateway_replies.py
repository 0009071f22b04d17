"""What gateways and providers answer, and the figures that a user gets: answers, calls, tokens, dollars, recorded results."""

from __future__ import annotations

import json
import math
import re
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any, cast

import pytest

import whet
from whet.cli.show import show_interval
from whet.engine.journal import call_sum
from whet.errors import ProviderError
from whet.models.openai_answers import completions
from whet.reporting.thresholds import check_score
from whet.types import Request, Usage

WORDS = {"bad": "negative", "lovely": "positive"}
ROWS = [{"input": f"Dish {i} was {w}.", "target": t} for i in range(20) for w, t in WORDS.items()]
PROMPT = "What is it like? {{input}}"
USAGE = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
PAGE = b"<!doctype html><html><body>Just a moment</body></html>"

Handler = Callable[[int, Mapping[str, Any]], tuple[int, bytes]]
HEADERS: dict[str, str] = {}
"""Headers of every answer, for the time of a test."""


class Endpoint:
    """A server whose `handler` gets the number of the request and its body; `received` are the bodies."""

    def __init__(self, handler: Handler) -> None:
        numbers, self.received = count(), list[dict[str, Any]]()
        endpoint = self

        class Reply(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                endpoint.received.append(body)
                status, data = handler(next(numbers), body)
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                for name, value in HEADERS.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None:
                """Print nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Reply)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"


@contextmanager
def endpoint(handler: Handler) -> Iterator[Endpoint]:
    one = Endpoint(handler)
    thread = threading.Thread(target=one.server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield one
    finally:
        one.server.shutdown()
        one.server.server_close()
        thread.join()


def right(body: Mapping[str, Any]) -> str:
    text = body["messages"][-1]["content"]
    return next(target for word, target in WORDS.items() if word in text)


def chat(text: Any, usage: Any = USAGE, finish: str | None = "stop", **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish}
    return {"choices": [choice], "usage": usage, **more}


def ok(body: Mapping[str, Any]) -> tuple[int, bytes]:
    return 200, json.dumps(body).encode()


def stream(*events: Mapping[str, Any]) -> tuple[int, bytes]:
    lines = [json.dumps(event) for event in events]
    return 200, "".join(f"data: {line}\n\n" for line in [*lines, "[DONE]"]).encode()


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    monkeypatch.setattr("whet.engine.calls.delay", lambda attempt, wish, rng: 0.0)


def evaluate(url: str, root: Path, **lm: Any) -> Any:
    return whet.evaluate(
        PROMPT, data=ROWS, reward="exact_match", root=root, progress=False,
        lm={"address": "openai/m", "base_url": url, "concurrency": 1, **lm},
    ).to_dict()  # fmt: skip


def evaluate_at(handler: Handler, root: Path, **lm: Any) -> Any:
    with endpoint(handler) as one:
        return evaluate(one.url, root, **lm)


@pytest.mark.parametrize(
    "trouble",
    [
        ok({**chat(""), "error": {"message": "upstream overloaded", "code": 502}}),
        ok({**chat(None, finish=None), "error": "upstream overloaded"}),
        ok({**chat("neg", finish=None), "error": {"message": "upstream broke off"}}),
        ok({**chat("The ans"), "error": {"message": "upstream broke off", "code": 502}}),
        ok({**chat("The ans"), "error": "upstream broke off"}),
        ok({"choices": [{**chat("The ans")["choices"][0], "error": {"code": None, "message": "broke off"}}]}),
        ok({**chat("The ans"), "base_resp": {"status_code": 1002, "status_msg": "rate limit"}}),
        ok({"code": 429, "msg": "rate limit", "data": None}),
        ok({"id": "", "choices": None, "base_resp": {"status_code": 1002, "status_msg": "rate limit"}}),
        (200, PAGE),
        (403, PAGE),
        (202, b""),
        (302, b""),
        (424, b'{"error": "model failed"}'),
        (499, b"client closed request"),
    ],
)
def test_an_error_of_a_gateway_is_no_answer_and_takes_no_tokens(
    trouble: tuple[int, bytes], tmp_path: Path
) -> None:
    found = evaluate_at(lambda i, body: trouble if i % 4 == 1 else ok(chat(right(body))), tmp_path)
    score, usage = found["score"], found["usage"]
    assert (score["mean"], score["answered"], score["of"], found["failed"]) == (1.0, 12, 12, 0)
    assert (usage["input_tokens"], usage["output_tokens"]) == (1200, 120)


def minimax(code: int, words: str, body: Mapping[str, Any]) -> tuple[int, bytes]:
    return ok({**body, "base_resp": {"status_code": code, "status_msg": words}})


@pytest.mark.parametrize("body", [{"choices": None}, chat("")])
def test_what_minimax_says_of_a_call_means_what_a_status_means(body: dict[str, Any], tmp_path: Path) -> None:
    def handler(code: int, words: str, often: int) -> Handler:
        numbers = count()

        def answer(i: int, asked: Mapping[str, Any]) -> tuple[int, bytes]:
            fails = "Dish 3 was" in str(asked) and next(numbers) < often
            return minimax(code, words, body) if fails else ok(chat(right(asked)))

        return answer

    waited = evaluate_at(handler(1002, "rate limit exceeded(RPM)", 1), tmp_path / "rate")
    assert (waited["score"]["mean"], waited["score"]["answered"], waited["failed"]) == (1.0, 12, 0)
    assert waited["usage"]["calls"]["task"] == 12
    filtered = evaluate_at(handler(1027, "output new_sensitive", 99), tmp_path / "filter")
    assert (filtered["score"]["answered"], filtered["score"]["mean"]) == (12, pytest.approx(11 / 12))
    assert filtered["usage"]["input_tokens"] == (
        1200 if body["choices"] else 1100 + len("What is it like? Dish 3 was bad.")
    )
    for code, status in ((1004, 401), (1008, 402)):
        with pytest.raises(ProviderError, match=rf"status {status}\): no \({code}\)"):
            evaluate_at(lambda i, asked, code=code: minimax(code, "no", body), tmp_path / str(code))  # type: ignore[misc]


@pytest.mark.parametrize(
    "quiet", [{"error": {"code": 0, "message": ""}}, {"base_resp": {"status_code": 0, "status_msg": ""}}]
)
def test_an_error_of_zeros_is_none(quiet: dict[str, Any], tmp_path: Path) -> None:
    found = evaluate_at(
        lambda i, body: ok(chat("", **quiet) if i == 0 else chat(right(body), **quiet)), tmp_path
    )
    assert found["failed"] == 1 and found["score"]["answered"] == 12, (
        "an empty text is an answer of the model"
    )
    assert found["usage"]["calls"]["task"] == 12


@pytest.mark.parametrize("place", ["body", "choice"])
@pytest.mark.parametrize("error", [{"code": 0, "message": ""}, {"code": 200, "message": "success"}, None, ""])
def test_an_error_that_names_success_is_none(place: str, error: Any, tmp_path: Path) -> None:
    def answer(index: int, body: dict[str, Any]) -> tuple[int, bytes]:
        whole = chat(right(body))
        (whole if place == "body" else whole["choices"][0])["error"] = error
        return ok(whole)

    found = evaluate_at(answer, tmp_path)
    assert (found["score"]["mean"], found["usage"]["calls"]["task"]) == (1.0, 12)


def test_a_row_with_an_error_beside_every_text_is_not_answered(tmp_path: Path) -> None:
    """Half a text is not graded, although it says that it came to its end."""

    def answer(index: int, body: dict[str, Any]) -> tuple[int, bytes]:
        broken = "Dish 3 was" in str(body)
        return ok({**chat("The ans"), "error": {"message": "broke off"}} if broken else chat(right(body)))

    found = evaluate_at(answer, tmp_path)
    assert (found["score"]["answered"], found["score"]["of"]) == (11, 12)
    assert "provider: " in json.dumps(found["warnings"]) and "broke off" in json.dumps(found["warnings"])


@pytest.mark.parametrize(
    ("native", "said"),
    [
        ({"type": "length", "length": 16}, "12 of 12 answers were cut"),
        ("MAX_TOKENS", "12 of 12 answers were cut at the token limit"),
        ("Max-Tokens", "12 of 12 answers were cut at the token limit"),
        ("FinishReason.MAX_TOKENS", "12 of 12 answers were cut at the token limit"),
        ("stop", ""),
        (None, ""),
    ],
)
def test_a_router_names_the_end_of_an_answer_in_the_words_of_its_provider_too(
    native: Any, said: str, tmp_path: Path
) -> None:
    def answer(index: int, body: dict[str, Any]) -> tuple[int, bytes]:
        whole = chat(right(body))
        whole["choices"][0]["native_finish_reason"] = native
        return ok(whole)

    found = evaluate_at(answer, tmp_path)
    assert any(said in text for text in found["warnings"]) if said else not found["warnings"]


UPSTREAM = {
    "error": {
        "message": "This model's maximum context length is 4096 tokens. However, your messages resulted in 5000."
    }
}


@pytest.mark.parametrize("raw", [UPSTREAM, json.dumps(UPSTREAM)], ids=["object", "text"])
def test_what_a_router_relays_of_its_provider_is_read_and_shown(raw: Any, tmp_path: Path) -> None:
    """OpenRouter's own words are "Provider returned error" for every failure."""
    error = {
        "message": "Provider returned error",
        "code": 400,
        "metadata": {"raw": raw, "provider_name": "Together"},
    }

    def answer(index: int, body: dict[str, Any]) -> tuple[int, bytes]:
        return (
            (400, json.dumps({"error": error}).encode())
            if "Dish 3 was" in str(body)
            else ok(chat(right(body)))
        )

    found = evaluate_at(answer, tmp_path)
    assert (found["score"]["answered"], found["score"]["mean"]) == (11, 1.0)
    (warning,) = [text for text in found["warnings"] if "no answer" in text]
    assert "Provider returned error: Together: This model's maximum context length" in warning
    assert "the model holds 4,096 tokens" in warning


AZURE = "The response was filtered due to the prompt triggering Azure OpenAI's content management policy."
INNER = {
    "code": "ResponsibleAIPolicyViolation",
    "content_filter_result": {"hate": {"filtered": True, "severity": "high"}},
}
RELAYED = {
    "provider_name": "Azure",
    "raw": json.dumps({"error": {"inner": INNER, "pad": "x" * 5000, "message": "filtered"}}),
}


@pytest.mark.parametrize(
    ("status", "error", "billed"),
    [
        (400, {"message": AZURE, "code": "content_filter", "param": "prompt"}, True),
        (400, {"message": "Gemini blocked the request: PROHIBITED_CONTENT", "code": 400}, True),
        (400, {"message": "<400> Input data may be unsafe.", "code": "data_inspection_failed"}, True),
        (400, {"message": "Content Exists Risk", "type": "invalid_request_error"}, True),
        (
            403,
            {"message": 'x requires moderation. Your input was flagged for "hate". No credits were charged.'},
            False,
        ),
        (400, {"message": f"Rejected: {'too long to read ' * 700}. {AZURE}", "code": "400"}, True),
        (
            400,
            {"message": "被过滤", "type": None, "param": "prompt", "code": "400", "innererror": INNER},
            True,
        ),
        (400, {"message": "Provider returned error", "code": 400, "metadata": RELAYED}, True),
        (400, {"message": "litellm.ContentPolicyViolationError: AzureException", "code": "400"}, True),
        (
            400,
            {"type": "invalid_request_error", "message": "Output blocked by content filtering policy"},
            True,
        ),
        (400, {"message": "抱歉", "code": "InputTextSensitiveContentDetected"}, True),
        (403, "Content violates usage guidelines. Team: t, Failed check: SAFETY_CHECK_TYPE_BIO", False),
        (200, {"message": AZURE, "code": "content_filter", "innererror": INNER}, True),
    ],
)
def test_a_content_filter_is_the_same_answer_in_a_refusal_as_in_a_200(
    status: int, error: Any, billed: bool, tmp_path: Path
) -> None:
    """Azure refuses with a 400 what others answer with `finish_reason: content_filter`; no prompt must gain by that."""

    def answer(index: int, body: dict[str, Any]) -> tuple[int, bytes]:
        if "Dish 3 was" in str(body):
            return status, json.dumps({"error": error}).encode()
        return ok(chat(right(body)))

    def filtered(index: int, body: dict[str, Any]) -> tuple[int, bytes]:
        return ok(chat("", finish="content_filter") if "Dish 3 was" in str(body) else chat(right(body)))

    found, other = evaluate_at(answer, tmp_path / "a"), evaluate_at(filtered, tmp_path / "b")
    assert found["score"]["answered"] == other["score"]["answered"] == 12
    assert found["score"]["mean"] == other["score"]["mean"] == pytest.approx(11 / 12)
    assert found["usage"]["calls"]["task"] == 12
    assert found["usage"].get("estimated", {}) == ({"task": 1} if billed else {})
    assert any("stopped by a content filter" in text for text in found["warnings"])


@pytest.mark.parametrize(
    "message",
    [
        "Unsupported parameter: 'content_filter_level'.",
        "Unknown field safety_settings.",
        "messages: the text is too long.",
    ],
)
def test_a_refusal_that_no_filter_made_is_no_answer(message: str, tmp_path: Path) -> None:
    def answer(index: int, body: dict[str, Any]) -> tuple[int, bytes]:
        if "Dish 3 was" in str(body):
            return 400, json.dumps({"error": {"message": message}}).encode()
        return ok(chat(right(body)))

    found = evaluate_at(answer, tmp_path)
    assert (found["score"]["answered"], found["score"]["mean"]) == (11, 1.0)


@pytest.mark.parametrize(
    "error",
    [
        {"object": "error", "message": "Cannot request more than 5 logprobs.", "code": 400},
        {"error": {"message": "20 is greater than the maximum of 5 - 'logprobs'", "param": "logprobs"}},
        {"message": "Requested sample logprobs of 20, which is greater than max allowed: 5"},
        {"error": {"message": "Invalid value for 'top_logprobs': must be less than or equal to 5."}},
        {"error": {"message": "Invalid top_logprobs value, the valid range of top_logprobs is [0, 5]"}},
        {"detail": [{"loc": ["body", "top_logprobs"], "msg": "Input should be less than or equal to 5"}]},
    ],
)
def test_a_judge_is_asked_for_as_many_candidates_as_its_model_names(
    error: Mapping[str, Any], tmp_path: Path
) -> None:
    """Without probabilities the grades of `yes_no` would be 0 and 1."""
    asked = []

    def answer(index: int, body: dict[str, Any]) -> tuple[int, bytes]:
        if "top_logprobs" not in body:
            return ok(chat("yes"))
        asked.append(body["top_logprobs"])
        if body["top_logprobs"] > 5:
            return 400, json.dumps(error).encode()
        top = [{"token": "yes", "logprob": math.log(0.6)}, {"token": "no", "logprob": math.log(0.4)}]
        whole = chat("yes")
        whole["choices"][0]["logprobs"] = {"content": [{**top[0], "top_logprobs": top}]}
        return ok(whole)

    with endpoint(answer) as one:
        model = {"address": "openai/m", "base_url": one.url, "concurrency": 1}
        found = whet.evaluate(
            PROMPT, data=ROWS, reward={"yes_no": {"question": "Is it polite?"}}, lm=model, root=tmp_path, progress=False,
            judge_lm={**model, "address": "openai/judge"},
        ).to_dict()  # fmt: skip
    assert found["score"]["mean"] == pytest.approx(0.6)
    assert asked[0] == 20 and set(asked[1:]) == {5}


def test_a_request_that_never_fits_a_limit_a_minute_is_not_waited_for(tmp_path: Path) -> None:
    """A 429 that says so stood in the way of its run for as long as an endpoint may turn a call away, an hour."""
    words = "Request too large for m on tokens per min (TPM): Limit {}, Requested 40546."
    asked = count()

    def answer(index: int, body: dict[str, Any]) -> tuple[int, bytes]:
        if "Dish 3 was" in str(body):
            return 429, json.dumps({"error": {"message": words.format("30,000"), "type": "tokens"}}).encode()
        if next(asked) == 0:  # this one would fit a minute that is less full
            return 429, json.dumps({"error": {"message": words.format(250000), "type": "tokens"}}).encode()
        return ok(chat(right(body)))

    found = evaluate_at(answer, tmp_path)
    assert (found["score"]["answered"], found["score"]["mean"]) == (11, 1.0)
    assert any("Requested 40546" in text and "shorten" in text for text in found["warnings"])


def test_the_same_evaluation_asks_rows_again_that_had_no_answer_and_no_other(tmp_path: Path) -> None:
    """Before, such a result was printed as it was recorded, and to ask for the rest all had to be paid anew."""
    broken = [True]

    def answer(index: int, body: dict[str, Any]) -> tuple[int, bytes]:
        if broken[0] and index > 1 and "Dish 3 was" in str(body):
            return 400, b'{"error": {"message": "no capacity for this one"}}'
        return ok(chat(right(body)))

    with endpoint(answer) as one:
        first = evaluate(one.url, tmp_path)
        missing, asked = 12 - first["score"]["answered"], len(one.received)
        again = evaluate(one.url, tmp_path)
        assert missing and again["score"]["answered"] == first["score"]["answered"]
        assert asked < len(one.received) <= asked + 2 * missing, "only what is missing"
        broken[0], asked = False, len(one.received)
        whole = evaluate(one.url, tmp_path)
        assert (whole["score"]["answered"], whole["failed"], whole["warnings"]) == (12, 0, [])
        assert len(one.received) == asked + missing
        assert evaluate(one.url, tmp_path)["score"] == whole["score"] and len(one.received) == asked + missing
    usage = whole["usage"]
    assert (usage["calls"]["task"], usage["input_tokens"]) == (12, 1200)
    assert usage["refused"]["task"] == len(one.received) - 12


def test_a_call_that_times_out_counts_as_what_it_may_have_taken(tmp_path: Path) -> None:
    """A provider bills what it computes for a client that has gone: an estimate, at its most."""
    late = threading.Event()

    def answer(index: int, body: dict[str, Any]) -> tuple[int, bytes]:
        if "Dish 3 was" in str(body) and index < 9:
            late.wait(1.0)
        return ok(chat(right(body)))

    found = evaluate_at(answer, tmp_path, timeout=0.3, max_tokens=10)
    usage, missed = found["usage"], found["usage"]["estimated"]["task"]
    assert found["score"]["answered"] == 12 and missed
    assert usage["calls"]["task"] == 12 + missed
    assert usage["output_tokens"] == 120 + 10 * missed and usage["input_tokens"] >= 1200 + 100 * missed


def test_messages_of_one_role_are_joined_where_roles_must_alternate(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """In the words of Perplexity. Before, every such prompt was refused, and the system role was blamed."""
    words = "After the (optional) system message(s), user and assistant roles should be alternating."

    def answer(index: int, body: dict[str, Any]) -> tuple[int, bytes]:
        roles = [message["role"] for message in body["messages"]]
        if roles != ["system", "user"]:
            return 400, json.dumps(
                {"error": {"message": words, "type": "invalid_message", "code": 400}}
            ).encode()
        return ok(chat(right(body)))

    prompt: Any = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What is it like?"},
    ]
    with endpoint(answer) as one:
        found = whet.evaluate(
            prompt, data=ROWS, reward="exact_match", root=tmp_path, progress=False,
            lm={"address": "openai/m", "base_url": one.url, "concurrency": 1},
        )  # fmt: skip
    assert found.score is not None and found.score.mean == 1.0 and found["failed"] == 0
    assert one.received[-1]["messages"][0] == {"role": "system", "content": "Be brief."}
    assert one.received[-1]["messages"][1]["content"].startswith("What is it like?\n\nDish")
    assert [r.getMessage() for r in caplog.records if "joined from now on" in r.getMessage()]
    assert len(one.received) == 13


SCHEMA: dict[str, Any] = {"type": "object", "properties": {"score": {"type": "number"}}}


@pytest.mark.parametrize(
    ("thought", "schema", "text"),
    [
        ('{"score": 5}', SCHEMA, '{"score": 5}'),
        ('{"score": 5}', None, ""),
        ("5 may be right.", SCHEMA, ""),
    ],
)
def test_json_that_a_server_took_for_a_thought_is_the_answer(
    thought: str, schema: dict[str, Any] | None, text: str
) -> None:
    """Where a template opens a thought and the schema allows nothing but JSON, no mark can close it (KoboldCpp)."""
    data = chat("")
    data["choices"][0]["message"] = {"content": "", "reasoning_content": thought}
    (found,) = cast(Any, completions(data, Request((), schema=schema), len, Usage(9, 5)))
    assert (found.text, found.thought) == (text, "" if text else thought)
    assert (found.error is None) is bool(text)


def test_a_web_page_before_any_answer_says_that_the_address_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(whet.ProviderError, match="Check the base URL"):
        evaluate_at(lambda i, body: (200, PAGE), tmp_path)


@pytest.mark.parametrize(
    "choice",
    [
        lambda text: {"text": text},
        lambda text: {"delta": {"role": "assistant", "content": text}},
        lambda text: {"message": {"content": {"type": "text", "text": text}}},
        lambda text: {"message": {"content": [{"type": "text", "text": {"value": text, "annotations": []}}]}},
    ],
)
def test_the_text_of_an_answer_is_found_where_servers_put_it(
    choice: Callable[[str], dict[str, Any]], tmp_path: Path
) -> None:
    found = evaluate_at(
        lambda i, body: ok({"choices": [{**choice(right(body)), "finish_reason": "stop"}], "usage": USAGE}),
        tmp_path,
    )
    assert found["score"]["mean"] == 1.0 and found["usage"]["output_tokens"] == 120


def test_an_answer_that_cannot_be_read_makes_the_tokens_estimates(tmp_path: Path) -> None:
    found = evaluate_at(
        lambda i, body: (200, b'{"choices": [{"mess') if i == 4 else ok(chat(right(body))),
        tmp_path,
        max_tokens=50,
    )
    usage = found["usage"]
    assert usage["output_tokens"] > 120 and usage["estimated"] == {"task": 1}
    (warning,) = found["warnings"]
    assert (
        "for 1 call of the role task" in warning and "an unreadable answer counts with its maximum" in warning
    )


@pytest.mark.parametrize(
    ("usages", "tokens"),
    [
        (({"prompt_tokens": 100}, None, {"completion_tokens": 10}), (1200, 120)),
        (({"prompt_tokens": 100, "completion_tokens": 0}, None, {"prompt_tokens": 0, "completion_tokens": 10}), (1200, 120)),
        ((None, USAGE, {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}), (1200, 120)),
        ((USAGE, USAGE, USAGE), (1200, 120)),
    ],
)  # fmt: skip
def test_the_usage_of_a_stream_is_what_its_events_say_together(
    usages: tuple[Any, ...], tokens: tuple[int, int], tmp_path: Path
) -> None:
    def handler(i: int, body: Mapping[str, Any]) -> tuple[int, bytes]:
        text = right(body)
        deltas = [{"content": text[:3]}, {"content": text[3:]}]
        events: list[dict[str, Any]] = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
        events[1]["choices"][0]["finish_reason"] = "stop"
        return stream(*(e | {"usage": u} for e, u in zip([*events, {"choices": []}], usages, strict=True)))

    found = evaluate_at(handler, tmp_path, stream=True)
    usage = found["usage"]
    assert (usage["input_tokens"], usage["output_tokens"]) == tokens
    assert "estimated" not in usage and found["score"]["mean"] == 1.0


def test_the_usage_of_a_stream_may_stand_in_its_choice(tmp_path: Path) -> None:
    def handler(i: int, body: Mapping[str, Any]) -> tuple[int, bytes]:
        first = {"choices": [{"index": 0, "delta": {"content": right(body)}}]}
        return stream(
            first, {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "usage": USAGE}]}
        )

    usage = evaluate_at(handler, tmp_path, stream=True)["usage"]
    assert (usage["input_tokens"], usage["output_tokens"]) == (1200, 120) and "estimated" not in usage


def test_what_may_lead_to_another_model_is_part_of_what_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with endpoint(lambda i, body: ok(chat(right(body)))) as one:

        def asked(query: str = "", **lm: Any) -> int:
            before = len(one.received)
            evaluate(one.url + query, tmp_path, **lm)
            return len(one.received) - before

        assert [asked("?deployment=a"), asked("?deployment=b"), asked("?deployment=b")] == [12, 12, 0]
        for tenant, calls in (("a", 12), ("b", 12), ("a", 0)):
            monkeypatch.setenv("TENANT", tenant)
            assert asked(headers={"X-Tenant": "$TENANT"}) == calls
        monkeypatch.setenv("TEAM_TOKEN", "one")
        assert asked(headers={"X-Team-Token": "$TEAM_TOKEN"}) == 12
        monkeypatch.setenv("TEAM_TOKEN", "two")
        assert asked(headers={"X-Team-Token": "$TEAM_TOKEN"}) == 0, (
            "a secret is changed often and chooses no model"
        )
    assert not any(b"deployment=b" in file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())


@pytest.mark.filterwarnings("ignore:.*may say the same")
@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_a_limit_on_tokens_reserves_what_extra_body_allows(name: str, tmp_path: Path) -> None:
    billed = 0

    def handler(i: int, body: Mapping[str, Any]) -> tuple[int, bytes]:
        nonlocal billed
        late = "variant" in body["messages"][0]["content"]
        written = min(2000 if late else 20, body.get("max_completion_tokens", body.get("max_tokens", 2000)))
        billed += 30 + written
        text = (
            right(body)
            if body["model"] == "m" and i % 3
            else f"<INSTRUCTION>Say it, variant {i}.</INSTRUCTION>"
        )
        return ok(
            chat(text, {"prompt_tokens": 30, "completion_tokens": written, "total_tokens": 30 + written})
        )

    with endpoint(handler) as one:
        whet.optimize(
            PROMPT, data=[{**row, "input": f"{row['input']} {k}"} for k in range(5) for row in ROWS],
            reward="exact_match", method="opro", run=tmp_path / "run", progress=False,
            budget=whet.Budget(tokens=40_000), optimizer_lm={"address": "openai/o", "base_url": one.url},
            lm={"address": "openai/m", "base_url": one.url, "max_tokens": 64, "extra_body": {name: 2000}},
        )  # fmt: skip
        bodies = [body for body in one.received if body["model"] == "m"]
    assert billed <= 40_000
    assert all(
        body[name] == 2000 and len(body.keys() & {"max_tokens", "max_completion_tokens"}) == 1
        for body in bodies
    )


@pytest.mark.parametrize("bound", [None, 0, "2000", True])
def test_extra_body_takes_no_bound_that_is_none(bound: Any, tmp_path: Path) -> None:
    with pytest.raises(whet.UsageError, match="max_tokens is a whole number from 1 on"):
        evaluate("http://127.0.0.1:9/v1", tmp_path, extra_body={"max_tokens": bound})


def test_a_limit_that_ends_a_run_early_says_what_it_is_kept_for_and_what_a_kill_took(tmp_path: Path) -> None:
    def handler(i: int, body: Mapping[str, Any]) -> tuple[int, bytes]:
        usage = {"prompt_tokens": 17, "completion_tokens": 3, "total_tokens": 20, "cost": 1.2e-4}
        return ok(chat(right(body), usage))

    rows = [{**row, "input": f"{row['input']} {k}"} for k in range(6) for row in ROWS]

    def search(url: str) -> whet.RunResult:
        with pytest.warns(UserWarning):
            return whet.optimize(
                PROMPT, data=rows, reward="exact_match", method="random_search", run=tmp_path / "run", progress=False,
                budget=whet.Budget(cost_usd=0.026),
                lm={"address": "openai/m", "base_url": url, "price": {"input": 1, "output": 2}},
            )  # fmt: skip

    with endpoint(handler) as one:
        result = search(one.url)
        reason = result.improvement.reason
        assert not result.to_dict()["tested"] and not result.warnings
        assert "The limit of 0.026 cost is reached: $0.0004 used, " in reason
        assert re.search(r"\$0\.0\d+ kept for what follows the search, \$0\.01\d+ for the next call", reason)
        (tmp_path / "run" / "result.json").unlink()
        opened = (999, "task", "digest", 1, "open", 20, 1024, 0.01)
        row = (*opened, call_sum(*opened[:5], opened[5:7], opened[7]))
        with closing(sqlite3.connect(tmp_path / "run" / "journal.sqlite", isolation_level=None)) as journal:
            journal.execute("INSERT INTO calls VALUES (?,?,?,?,?,?,?,?,?)", row)
        after_kill = search(one.url)
    assert after_kill.warnings == (
        "1 call(s) were in flight when earlier sessions were killed and may have been billed twice, at most $0.0100.",
    )
    assert after_kill.usage.calls["task"] == result.usage.calls["task"] + 1


def test_what_a_provider_writes_into_its_cache_is_billed_at_its_price(tmp_path: Path) -> None:
    """Anthropic's names: 1,000 tokens of each prompt are written, 4 are not; a write costs 1.25 times the input, and twice the
    input where it is for an hour."""

    def answer(index: int, body: dict[str, Any]) -> tuple[int, bytes]:
        whole = chat(right(body))
        times = {"ephemeral_5m_input_tokens": 400, "ephemeral_1h_input_tokens": 600}
        whole["usage"] = {"input_tokens": 4, "output_tokens": 10, "cache_creation_input_tokens": 1000}
        whole["usage"]["cache_creation"] = times
        return ok(whole)

    price = {"input": 3.0, "output": 15.0, "cache_write": 3.75, "cache_write_1h": 6.0}
    found = evaluate_at(answer, tmp_path, price=price)
    each = (4 * 3.0 + 400 * 3.75 + 600 * 6.0 + 10 * 15.0) / 1e6
    assert found["usage"]["cost_usd"] == pytest.approx(12 * each)
    assert found["usage"]["input_tokens"] == 12 * 1004


HITS = [
    {"cf-aig-cache-status": "HIT"},
    {"Helicone-Cache": "HIT"},
    {"x-portkey-cache-status": "SEMANTIC HIT"},
    {"X-OpenRouter-Cache-Status": "HIT"},
    {"x-litellm-cache-key": "586bf3f3c1bf5aecb55bd9996494d3bb", "x-litellm-response-cost": "0.0"},
]
MISSES = [
    {"cf-aig-cache-status": "MISS"},
    {"x-portkey-cache-status": "DISABLED"},
    {"x-litellm-cache-key": "586b", "x-litellm-response-cost": "None"},
    {"x-litellm-response-cost": "0.0"},
]
PRICE = {"input": 3.0, "output": 15.0}


@pytest.mark.parametrize("headers", [*HITS, *MISSES])
def test_what_a_gateways_cache_answers_costs_nothing(
    headers: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in headers.items():
        monkeypatch.setitem(HEADERS, name, value)
    found = evaluate_at(lambda index, body: ok(chat(right(body))), tmp_path, price=PRICE)
    used, hit = found["usage"], headers in HITS
    assert (used["calls"]["task"], used["input_tokens"]) == (12, 1200)
    assert used["cost_usd"] == (0 if hit else pytest.approx(12 * (100 * 3.0 + 10 * 15.0) / 1e6))
    assert used.get("gateway_cached") == ({"task": 12} if hit else None)
    said = [text for text in found["warnings"] if "gateway" in text]
    assert len(said) == hit and not any("new sample" in text for text in said)


def test_a_gateways_cache_without_tokens_is_no_estimate_and_is_no_new_draw(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OpenRouter reports its counters as 0 then."""
    monkeypatch.setitem(HEADERS, *next(iter(HITS[3].items())))
    none = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0, "cost": 0}
    found = evaluate_at(lambda index, body: ok(chat(right(body), none)), tmp_path, temperature=1.0)
    assert (found["usage"]["input_tokens"], found["usage"]["cost_usd"]) == (0, 0)
    assert "estimated" not in found["usage"] and "price_unknown" not in found["usage"]
    (said,) = [text for text in found["warnings"] if "gateway" in text]
    assert said.startswith("12 of 12 calls of the role task") and "not a new sample (12 of them)" in said
    assert not any("reports no usage" in text or "has cut the prompt" in text for text in found["warnings"])


def test_a_check_counts_the_rows_that_a_provider_refused(tmp_path: Path) -> None:
    """All answers are right, and half of the rows have none: the mean of all rows may be as low as 0.5."""

    def answer(index: int, body: Mapping[str, Any]) -> tuple[int, bytes]:
        if int(re.findall(r"Dish (\d+)", str(body["messages"]))[-1]) % 2:
            return (
                400,
                b'{"error": {"message": "this text cannot be processed", "type": "invalid_request_error"}}',
            )
        return ok(chat(right(body)))

    score = evaluate_at(answer, tmp_path)["score"]
    share = score["answered"] / score["of"]
    assert score["mean"] == 1.0 and 0 < share < 1
    assert (score["mean_at_worst"], score["mean_at_best"]) == (pytest.approx(share), 1.0)
    above, below = (check_score("t", score, share + change) for change in (0.05, -0.05))
    assert (above.outcome, below.outcome) == ("undecided", "passed")
    assert f"[{share:.3f}, 1.000]" in above.sentence
    assert show_interval(score).endswith(f"{score['answered']} of {score['of']} answered")


@pytest.mark.parametrize("streams", [False, True])
def test_answers_of_another_model_are_said(tmp_path: Path, streams: bool) -> None:
    """A gateway handed a few calls on, and said so in the answers alone."""

    def answer(index: int, body: Mapping[str, Any]) -> tuple[int, bytes]:
        data = {**chat(right(body)), "model": "small-2" if index % 5 == 4 else "large-2026-01-01"}
        if not streams:
            return ok(data)
        choice = data["choices"][0]
        piece = {**data, "choices": [{"index": 0, "delta": choice["message"], "finish_reason": "stop"}]}
        return 200, f"data: {json.dumps(piece)}\n\ndata: [DONE]\n\n".encode()

    found = evaluate_at(answer, tmp_path)
    (said,) = [text for text in found["warnings"] if "name 2 models" in text]
    assert "large-2026-01-01, small-2" in said and "mix them" in said


def test_one_model_under_another_name_is_no_mixture(tmp_path: Path) -> None:
    found = evaluate_at(lambda index, body: ok({**chat(right(body)), "model": "m-2026-01-01"}), tmp_path)
    assert not any(" models: " in text for text in found["warnings"])


@pytest.mark.parametrize("encoding", ["iso-8859-1", "utf-16", "utf-8"])
def test_an_answer_is_read_in_the_encoding_that_it_names(
    encoding: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A graded answer with an accent is the same answer in every encoding."""
    monkeypatch.setitem(HEADERS, "Content-Type", f"application/json; charset={encoding}")
    rows = [{"input": f"Dish {i}", "target": "très bon", "split": "validation"} for i in range(6)]

    def answer(index: int, body: Mapping[str, Any]) -> tuple[int, bytes]:
        return 200, json.dumps(chat("très bon"), ensure_ascii=False).encode(encoding)

    with endpoint(answer) as one:
        found = whet.evaluate(
            PROMPT, data={"validation": rows}, reward="exact_match", lm={"address": "openai/m"},
            base_url=one.url, root=tmp_path, progress=False,
        )  # fmt: skip
    assert found.score.mean == 1.0 and "not UTF-8" not in caplog.text


def test_bytes_of_no_encoding_are_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    broken = json.dumps(chat("tr?s")).encode().replace(b"?", b"\xe8")
    evaluate_at(lambda index, body: (200, broken), tmp_path)
    assert caplog.text.count("sends bytes that are not UTF-8") == 1


def test_the_choice_with_the_first_index_counts_and_more_than_were_asked_for_are_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    choices = [
        {"index": 1, "message": {"content": "negative"}, "finish_reason": "stop"},
        {"index": 0, "message": {"content": "positive"}, "finish_reason": "stop"},
    ]
    data = {"test": [{"input": "Lovely.", "target": "positive"}]}
    with endpoint(
        lambda number, body: (200, json.dumps({"choices": choices, "usage": USAGE}).encode())
    ) as at:
        result = whet.evaluate(
            PROMPT,
            data=data,
            reward="exact_match",
            lm="openai/m",
            base_url=at.url,
            root=tmp_path,
            split="test",
        )
    assert result.score.mean == 1.0
    assert "gives more answers than are asked for" in caplog.text


def test_a_message_of_another_api_and_a_refusal_in_a_part_are_named() -> None:
    request = Request((whet.Message("user", "x"),))
    with pytest.raises(ProviderError, match="no choices but a message, as in Ollama's own API"):
        completions({"message": {"role": "assistant", "content": "yes"}, "done": True}, request, len, None)
    parts = [{"type": "refusal", "refusal": "I can't"}]
    choice = {"index": 0, "message": {"content": parts}, "finish_reason": "stop"}
    (refused,) = cast(list[Any], completions({"choices": [choice]}, request, len, None))
    assert (refused.finish, refused.error) == ("refusal", "model: refused: I can't")
