"""A call whose spans come in several requests is one answer, and feedback by the id of any of its spans finds it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any

import pytest

from whet_client.records import Feedback
from whet_live.database import Database
from whet_live.erasure import expire, forget_user
from whet_live.traffic.otlp import parse_otlp
from whet_live.traffic.tallies import RowSender
from whet_live.traffic.traffic_store import Intake, Traffic
from whet_live.traffic.write import IdConflict, Receipt

TRACE = "5b8efff798038103d269b633813fc60c"
APP, HTTP, SERVED, GATE = "a" * 16, "b" * 16, "c" * 16, "d" * 16
START = 1_790_000_000_000_000_000
LLM = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "small"}
OUTER = {**LLM, "whet.prompt.name": "shop/help", "whet.prompt.version": 2, "user.id": "ada"}
INNER = {**LLM, "gen_ai.usage.cost": 0.5, "gen_ai.usage.input_tokens": 10, "gen_ai.response.id": "r-1"}


def span(
    id: str, parent: str, attributes: dict[str, Any], depth: int = 0, trace: str = TRACE
) -> dict[str, Any]:
    """A span that lies inside of those of lesser depth."""
    kinds = {str: "stringValue", float: "doubleValue", int: "intValue"}
    pairs = [{"key": key, "value": {kinds[type(value)]: value}} for key, value in attributes.items()]
    return {
        "traceId": trace,
        "spanId": id,
        "parentSpanId": parent,
        "name": "span",
        "startTimeUnixNano": str(START + depth * 1_000_000),
        "endTimeUnixNano": str(START + 1_000_000_000 - depth * 1_000_000),
        "attributes": pairs,
    }


SPANS = {
    "app": span(APP, "", OUTER),
    "http": span(HTTP, APP, {"http.method": "POST"}, 1),
    "served": span(SERVED, HTTP, {"http.method": "POST"}, 2),
    "gate": span(GATE, SERVED, INNER, 3),
}


@pytest.fixture
def traffic(database: Database) -> Traffic:
    """An empty store."""
    return Traffic(database)


def send(traffic: Traffic, *spans: dict[str, Any], sender: RowSender | None = None) -> Receipt:
    """One request of an exporter."""
    body = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": list(spans)}]}]}).encode()
    read = parse_otlp(body, "application/json")
    intake = Intake(traffic)
    future = intake.submit(read.inferences, read.feedback, sender, read.spans)
    intake.close()
    return future.result()


def thumb(target: str) -> Feedback:
    """A thumb up."""
    return Feedback("thumb", target, value=1.0)


def counted(traffic: Traffic) -> dict[tuple[str, int, str], tuple[int, float]]:
    """What the store counts: number and mean of each prompt, version and kind."""
    return {(one.prompt, one.version, one.kind): (one.n, one.mean) for one in traffic.counts()}


ORDERS = [
    *itertools.permutations(("app", "http", "served gate")),
    ("app http", "served gate"),
    ("served gate", "app http"),
]


@pytest.mark.parametrize("order", ORDERS, ids=" | ".join)
def test_a_call_over_several_requests_is_one_answer(traffic: Traffic, order: Sequence[str]) -> None:
    traffic.add([], [thumb(APP), thumb(GATE)])
    for request in order:
        send(traffic, *(SPANS[name] for name in request.split()))
        traffic.add([], [thumb(GATE)])
    traffic.add([], [thumb(APP)])
    (row,) = traffic.inferences().rows
    one = row.inference
    assert (one.prompt, one.version, one.user, one.response) == ("shop/help", 2, "ada", "r-1")
    assert (one.cost, one.input_tokens, one.metadata["inner_spans"]) == (0.5, 10, [GATE])
    assert traffic.inference(APP) == traffic.inference(GATE) == row
    given = traffic.find().rows
    assert len(given) == len(order) + 3
    assert {(rating.about, rating.prompt, rating.version) for rating in given} == {(row.seq, "shop/help", 2)}
    counts = counted(traffic)
    assert counts.pop(("shop/help", 2, "latency"))[0] == 1
    assert counts == {
        ("shop/help", 2, "inference"): (1, 1.0),
        ("shop/help", 2, "cost"): (1, 0.5),
        ("shop/help", 2, "thumb"): (len(given), 1.0),
    }


@pytest.mark.parametrize(
    "order", list(itertools.permutations(("app", "served gate", "http"))), ids=" | ".join
)
def test_repeated_requests_change_nothing(traffic: Traffic, order: Sequence[str]) -> None:
    requests = [[SPANS[name] for name in request.split()] for request in order]
    for request in requests:
        send(traffic, *request)
    before = traffic.inferences().rows
    assert [send(traffic, *request).accepted for request in requests] == [0, 0, 0]
    assert traffic.inferences().rows == before
    changed = {**SPANS["gate"], "attributes": SPANS["gate"]["attributes"][:-1]}
    with pytest.raises(IdConflict):
        send(traffic, SPANS["served"], changed)


def test_costs_of_two_calls_inside_of_one_are_added_up_over_requests(traffic: Traffic) -> None:
    first = span("1" * 16, APP, {**INNER, "gen_ai.response.id": "r-1"}, 1)
    again = span("2" * 16, APP, {**INNER, "gen_ai.response.id": "r-2", "gen_ai.usage.cost": 0.25}, 1)
    for one in (first, SPANS["app"], again):
        send(traffic, one)
    (row,) = traffic.inferences().rows
    assert (row.inference.cost, row.inference.input_tokens) == (0.75, 20)
    assert counted(traffic)[("shop/help", 2, "cost")] == (1, 0.75)


@pytest.mark.parametrize("apart", [True, False])
def test_a_cost_that_two_spans_of_one_call_state_counts_once(traffic: Traffic, apart: bool) -> None:
    spans = [SPANS["app"], span(HTTP, APP, INNER, 1), span(GATE, HTTP, INNER, 2)]
    for request in [[one] for one in spans] if apart else [spans]:
        send(traffic, *request)
    (row,) = traffic.inferences().rows
    assert (row.inference.cost, row.inference.input_tokens) == (0.5, 10)


def test_spans_of_one_response_are_one_answer_over_requests(traffic: Traffic) -> None:
    send(traffic, span(APP, "", {**OUTER, "gen_ai.response.id": "r-1"}))
    send(traffic, span(GATE, "e" * 16, INNER, 3))
    send(traffic, span("f" * 16, "e" * 16, {**INNER, "gen_ai.response.id": "r-2"}, 3))
    assert sorted(row.inference.id for row in traffic.inferences().rows) == [APP, "f" * 16]
    assert traffic.inference(GATE) == traffic.inference(APP)


def test_calls_of_other_traces_and_agents_stay_apart(traffic: Traffic) -> None:
    send(traffic, span(GATE, APP, INNER, 3, trace="1" * 32))
    send(traffic, SPANS["app"])
    send(
        traffic,
        span("1" * 16, HTTP, INNER, 2),
        span("2" * 16, HTTP, {**INNER, "gen_ai.response.id": "r-2"}, 2),
    )
    send(traffic, span(HTTP, "", {"gen_ai.operation.name": "invoke_agent"}, 0))
    assert len(traffic.inferences().rows) == 4


def test_feedback_about_a_span_that_is_no_answer_is_about_the_answer_of_its_trace(traffic: Traffic) -> None:
    agent = span(HTTP, "", {"gen_ai.operation.name": "invoke_agent"}, 0)
    send(traffic, span(GATE, HTTP, {**OUTER, **INNER}, 1), agent)
    traffic.add([], [thumb(HTTP), thumb(TRACE), thumb(SERVED)])
    (answer,) = traffic.inferences().rows
    about = {row.feedback.target: row.about for row in traffic.find().rows}
    assert about == {HTTP: answer.seq, TRACE: answer.seq, SERVED: None}


@pytest.mark.parametrize(
    "order", ["feedback all", "agent feedback gate", "gate feedback agent", "feedback gate agent"]
)
def test_feedback_about_a_span_that_is_no_answer_waits_for_the_span_and_its_answer(
    traffic: Traffic, order: str
) -> None:
    agent = span(HTTP, "", {"gen_ai.operation.name": "invoke_agent"}, 0)
    gate = span(GATE, HTTP, {**OUTER, **INNER}, 1)
    for what in order.split():
        if what == "feedback":
            traffic.add([], [thumb(HTTP), thumb(TRACE), thumb(SERVED)])
        else:
            send(traffic, *{"all": [gate, agent], "agent": [agent], "gate": [gate]}[what])
    (answer,) = traffic.inferences().rows
    about = {row.feedback.target: row.about for row in traffic.find().rows}
    assert about == {HTTP: answer.seq, TRACE: answer.seq, SERVED: None}
    assert counted(traffic)[("shop/help", 2, "thumb")] == (2, 1.0)


@pytest.mark.parametrize("first", [True, False])
def test_feedback_names_runs_of_langsmith_by_their_own_ids(traffic: Traffic, first: bool) -> None:
    root, run = "0b9c2b1d-1111-4222-8333-444455556667", "0a9c2b1d-1111-4222-8333-444455556666"
    names = {"langsmith.trace.id": root}
    spans = [
        span(HTTP, "", {"langsmith.span.kind": "chain", "langsmith.span.id": root, **names}),
        span(GATE, HTTP, {**OUTER, "langsmith.span.id": run, **names}, 1),
    ]
    given = [thumb(run), thumb(root), Feedback("thumb", root, value=1.0, target_kind="episode")]
    if first:
        send(traffic, *spans)
    traffic.add([], given)
    if not first:
        send(traffic, *spans)
    (answer,) = traffic.inferences().rows
    assert (answer.inference.id, answer.inference.episode) == (run, root)
    assert [row.about for row in traffic.find().rows] == [answer.seq] * 3


def test_an_id_of_the_apps_own_and_that_of_its_span_name_one_answer(traffic: Traffic) -> None:
    send(traffic, span(APP, "", {**OUTER, "whet.inference.id": "order-7"}))
    traffic.add([], [thumb(APP), thumb("order-7")])
    (row,) = traffic.inferences().rows
    assert {rating.about for rating in traffic.find().rows} == {row.seq}


@pytest.mark.parametrize(
    ("scope", "answers"), [(None, 1), (["otlp/unknown", "shop/help"], 1), (["otlp/unknown"], 2)]
)
@pytest.mark.parametrize("turned", [False, True])
def test_answers_join_only_where_both_tokens_are_for_the_prompt(
    traffic: Traffic, scope: list[str] | None, answers: int, turned: bool
) -> None:
    gateway = RowSender("gateway", None if scope is None else frozenset(scope))
    requests = [(["app", "http"], RowSender("app", frozenset(["shop/help"]))), (["served", "gate"], gateway)]
    for names, sender in reversed(requests) if turned else requests:
        send(traffic, *(SPANS[name] for name in names), sender=sender)
    assert len(traffic.inferences().rows) == answers


def test_a_span_that_comes_after_its_answer_was_erased_is_not_stored(traffic: Traffic) -> None:
    send(traffic, SPANS["app"], SPANS["http"])
    forget_user(traffic.database, "ada", actor="admin")
    traffic.add([], [thumb(GATE)])
    send(traffic, SPANS["served"], SPANS["gate"])
    assert not traffic.inferences().rows and not traffic.find().rows and not traffic.counts()


def test_spans_expire_with_their_answers(traffic: Traffic) -> None:
    send(traffic, SPANS["app"], SPANS["http"])
    (row,) = traffic.inferences().rows
    expire(traffic.database, row.received + 1, actor="admin")
    send(traffic, SPANS["served"], SPANS["gate"])
    (late,) = traffic.inferences().rows
    assert late.inference.id == GATE
