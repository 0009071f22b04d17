"""Messages of a call that come as log records, in every form, before the span or after it, in one request or in several."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from tests.live.traffic.test_otlp import any_value, both, logs, pairs
from tests.live.traffic.test_spans import APP, GATE, HTTP, INNER, OUTER, START, TRACE, counted, span, thumb

from whet_client.records import Inference
from whet_live.database import Database
from whet_live.erasure import forget_user
from whet_live.traffic.otlp import Parsed, parse_otlp
from whet_live.traffic.tallies import RowSender
from whet_live.traffic.traffic_store import Intake, Traffic

QUESTION = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Is it dear?"}]
ANSWER = "No, it is cheap."
DETAILS = "gen_ai.client.inference.operation.details"


def record(name: str, body: Any = None, at: int = 1, spanId: str = APP, **attributes: Any) -> dict[str, Any]:
    """A log record of a span, some microseconds after its start."""
    found = {
        "traceId": TRACE, "spanId": spanId, "timeUnixNano": str(START + at * 1000), "eventName": name,
        "attributes": pairs({"gen_ai.system": "openai", **attributes}),
    }  # fmt: skip
    return found | ({} if body is None else {"body": any_value(body)})


SYSTEM = record("gen_ai.system.message", {"content": "Be brief."}, 1)
USER = record("gen_ai.user.message", {"content": "Is it dear?"}, 2)
CHOICE = record(
    "gen_ai.choice",
    {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": ANSWER}},
    9,
)
WHOLE = record(
    DETAILS,
    **{
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "small",
        "gen_ai.system_instructions": [{"type": "text", "content": "Be brief."}],
        "gen_ai.input.messages": [{"role": "user", "parts": [{"type": "text", "content": "Is it dear?"}]}],
        "gen_ai.output.messages": [{"role": "assistant", "parts": [{"type": "text", "content": ANSWER}]}],
    },
)
FORMS = {
    "messages": [CHOICE, SYSTEM, USER],
    "details": [WHOLE],
    "attributes": [
        record("gen_ai.system.message", None, 1, content="Be brief."),
        record("gen_ai.user.message", None, 2, **{"gen_ai.event.content": "Is it dear?"}),
        record("gen_ai.choice", None, 9, message=json.dumps({"role": "assistant", "content": ANSWER})),
    ],
    "texts": [
        record("gen_ai.system.message", "Be brief.", 1),
        record("gen_ai.user.message", "Is it dear?", 2),
        record("gen_ai.choice", ANSWER, 9),
    ],
}


def content_of(one: Inference) -> tuple[object, str]:
    return one.inputs.get("messages"), one.output


@pytest.mark.parametrize("form", FORMS)
def test_the_records_of_a_span_are_one_answer(form: str) -> None:
    parsed = both(logs(*FORMS[form], {"body": {"stringValue": "just a line"}}), "logs")
    (one,) = parsed.inferences
    assert content_of(one) == (QUESTION, ANSWER) and parsed.rejected == 0
    assert (one.episode, one.latency, one.time) == (TRACE, None, (START + 1000) // 1000)
    reason = {"finish_reason": "stop"} if form == "messages" else {}
    assert one.metadata == {"span": "log records", "span_id": APP, "trace_id": TRACE, **reason}
    assert both(logs(*reversed(FORMS[form])), "logs").inferences == parsed.inferences, "a repeated request"


def test_calls_of_tools_are_kept_and_records_without_content_are_passed_over() -> None:
    calls = [{"id": "c1", "type": "function", "function": {"name": "price", "arguments": "{}"}}]
    (one,) = both(
        logs(
            record("gen_ai.assistant.message", {"tool_calls": calls}, 1),
            record("gen_ai.tool.message", {"content": "3 euros", "id": "c1"}, 2),
            record("gen_ai.choice", {"message": {"role": "assistant", "tool_calls": calls}}, 3),
        ),
        "logs",
    ).inferences
    messages: Any = one.inputs["messages"]
    assert '"price"' in messages[0]["content"] and messages[1] == {"role": "tool", "content": "3 euros"}
    assert '"price"' in one.output
    empty = both(logs(record("gen_ai.user.message", {}), record("gen_ai.choice", {"index": 0})), "logs")
    assert (empty.inferences, empty.rejected) == ((), 0)


def test_records_that_name_no_span_are_rejected_but_for_one_that_says_all_of_a_call() -> None:
    lost = both(logs({**USER, "spanId": ""}, CHOICE), "logs")
    assert lost.rejected == 1 and "gen_ai.user.message names no span" in lost.message
    assert content_of(lost.inferences[0]) == (None, ANSWER)
    alone = {key: value for key, value in WHOLE.items() if key not in ("spanId", "traceId")}
    other = {**alone, "timeUnixNano": str(START + 5000)}
    first, second = both(logs(alone, other), "logs").inferences
    assert content_of(first) == content_of(second) == (QUESTION, ANSWER) and first.id != second.id
    assert both(logs(alone), "logs").spans == ()


def read(kind: str, *rows: Mapping[str, Any]) -> Parsed:
    if kind == "logs":
        return parse_otlp(json.dumps(logs(*rows)).encode(), "application/json", "logs")
    body = {"resourceSpans": [{"scopeSpans": [{"spans": list(rows)}]}]}
    return parse_otlp(json.dumps(body).encode(), "application/json")


def send(traffic: Traffic, kind: str, *rows: Mapping[str, Any], sender: RowSender | None = None) -> None:
    """One request of an exporter."""
    found = read(kind, *rows)
    assert not found.rejected, found.message
    intake = Intake(traffic)
    future = intake.submit(found.inferences, found.feedback, sender, found.spans)
    intake.close()
    future.result()


@pytest.fixture
def traffic(database: Database) -> Traffic:
    """An empty store."""
    return Traffic(database)


REQUESTS = {"app": ("traces", span(APP, "", OUTER)), "in": ("logs", SYSTEM, USER), "out": ("logs", CHOICE)}


@pytest.mark.parametrize("order", list(itertools.permutations(REQUESTS)), ids=" | ".join)
def test_the_span_and_its_records_are_one_answer_in_any_order(traffic: Traffic, order: Sequence[str]) -> None:
    traffic.add([], [thumb(APP)])
    for name in (*order, order[0]):
        send(traffic, *REQUESTS[name])  # type: ignore[arg-type]
    (row,) = traffic.inferences().rows
    one = row.inference
    assert content_of(one) == (QUESTION, ANSWER)
    assert (one.prompt, one.version, one.user, one.latency) == ("shop/help", 2, "ada", 1.0)
    assert one.metadata["span_id"] == APP and traffic.inference(APP) == row
    (given,) = traffic.find().rows
    assert (given.about, given.prompt) == (row.seq, "shop/help")
    counts = counted(traffic)
    assert {key for key in counts if key[2] == "inference"} == {("shop/help", 2, "inference")}


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
def test_messages_in_several_requests_are_put_together(traffic: Traffic, late: bool) -> None:
    outer = ("traces", span(APP, "", OUTER))
    parts = [("logs", SYSTEM), ("logs", USER), ("logs", CHOICE)]
    for kind, *rows in [outer, *parts] if late else [*parts, outer]:
        send(traffic, str(kind), *rows)  # type: ignore[arg-type]
    (row,) = traffic.inferences().rows
    assert content_of(row.inference) == (QUESTION, ANSWER)


def test_what_the_span_says_itself_comes_first_and_nothing_is_there_twice(traffic: Traffic) -> None:
    own = {**OUTER, "gen_ai.input.messages": json.dumps(QUESTION), "gen_ai.completion": "Said by the span."}
    send(traffic, "logs", SYSTEM, USER, CHOICE)
    send(traffic, "traces", span(APP, "", own))
    (row,) = traffic.inferences().rows
    assert content_of(row.inference) == (QUESTION, "Said by the span.")


def test_records_written_after_the_end_of_their_span_and_below_a_gateway_belong_to_the_call(
    traffic: Traffic,
) -> None:
    send(
        traffic,
        "logs",
        record(DETAILS, None, 5_000_000, GATE, **{"gen_ai.output.messages": json.dumps([ANSWER])}),
    )
    send(
        traffic,
        "traces",
        span(APP, "", OUTER),
        span(HTTP, APP, {"http.method": "POST"}, 1),
        span(GATE, HTTP, INNER, 3),
    )
    (row,) = traffic.inferences().rows
    assert (row.inference.prompt, row.inference.output, row.inference.cost) == ("shop/help", ANSWER, 0.5)


def test_records_of_another_call_stay_apart_and_those_of_an_erased_one_are_not_stored(
    traffic: Traffic,
) -> None:
    send(traffic, "traces", span(APP, "", OUTER))
    send(traffic, "logs", record("gen_ai.choice", {"message": {"content": "Other."}}, spanId=GATE))
    assert len(traffic.inferences().rows) == 2
    forget_user(traffic.database, "ada", actor="admin")
    send(traffic, "logs", USER, CHOICE)
    assert [row.inference.output for row in traffic.inferences().rows] == ["Other."]


def test_records_join_only_where_their_token_is_for_the_prompt(traffic: Traffic) -> None:
    send(traffic, "logs", CHOICE, sender=RowSender("other", frozenset({"otlp/unknown"})))
    send(traffic, "traces", span(APP, "", OUTER), sender=RowSender("shop", frozenset({"shop/help"})))
    assert len(traffic.inferences().rows) == 2
