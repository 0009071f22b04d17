"""What programs use: ingest, prompts by label, proposals, traffic, runs as a stream; and the OpenAPI document."""

from __future__ import annotations

import gzip
import http.client
import json
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import pytest

from tests.report import runs as recorded
from tests.server.client import Answer
from tests.server.conftest import Running, Start, running
from tests.server.test_matrix import WIDE
from tests.server.world import NAME, SOURCE, World, fill
from whet.prompt import Prompt
from whet_client.records import Feedback, Inference
from whet_live.server import openapi
from whet_live.server.app import ROUTERS
from whet_live.server.limits import ServerLimits
from whet_live.server.v1 import experiments, runs, shapes, traffic
from whet_live.traffic import Filter


@pytest.fixture
def filled(start: Start) -> Iterator[tuple[Running, World]]:
    """A server on an installation with something of everything."""
    with start(WIDE) as server:
        yield server, fill(server.state.live)


def feedback(**more: Any) -> dict[str, Any]:
    return {"feedback": [{"kind": "rating", "target": "a1", "value": 4, **more}]}


def test_rows_are_stored_once_and_answered_with_a_receipt(server: Running) -> None:
    app, traffic = server.client("app"), server.state.live.traffic
    asked = {"inferences": [{"id": "a1", "prompt": "p", "version": 1, "inputs": {"q": "?"}, "output": "!"}]}
    answer = app.send("/v1/inferences", asked)
    assert (answer.status, answer.json) == (200, {"accepted": 1, "duplicates": 0, "erased": 0, "ids": ["a1"]})
    assert app.send("/v1/inferences", asked).json["duplicates"] == 1
    assert app.send("/v1/feedback", feedback(id="f1")).json["ids"] == ["f1"]
    found = traffic.inference("a1")
    assert found is not None and [row.feedback.value for row in traffic.about(found.seq)] == [4.0]
    text = server.client("viewer").get("/metrics").text
    assert (
        'whet_ingest_rows_total{kind="inference"} 1.0' in text
        and 'whet_ingest_duplicates_total{kind="inference"} 1.0' in text
    )


def test_feedback_may_come_first(server: Running) -> None:
    app, viewer = server.client("app"), server.client("viewer")
    app.send("/v1/feedback", feedback(id="early"))
    assert viewer.get("/v1/feedback").json["feedback"][0]["version"] == 0
    app.send("/v1/inferences", {"inferences": [{"id": "a1", "prompt": "p", "version": 7}]})
    assert viewer.get("/v1/feedback").json["feedback"][0]["version"] == 7
    assert [row["id"] for row in viewer.get("/v1/inferences/a1").json["feedback"]] == ["early"]


def test_an_id_with_other_content_is_a_conflict(server: Running) -> None:
    app = server.client("app")
    app.send("/v1/feedback", feedback(id="f1"))
    answer = app.send("/v1/feedback", feedback(id="f1", value=2))
    assert answer.status == 409 and answer.json["conflicts"][0]["id"] == "f1" and "taken" in answer.message


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"feedback": [{"kind": "ratng", "target": "a", "value": 1}]}, "feedback[0]"),
        ({"feedback": [{"kind": "rating", "target": "a", "value": 6}]}, "from 1 to 5"),
        ({"feedback": "x"}, "object"),
        ([], "object"),
        ({"feedback": [{"kind": "comment", "target": "a", "text": "\x00"}]}, "NUL"),
    ],
)
def test_rows_that_cannot_be_are_refused_with_their_place(server: Running, body: Any, said: str) -> None:
    answer = server.client("app").send("/v1/feedback", body)
    assert answer.status == 400 and said in answer.message
    assert server.state.live.traffic.head() == 0


@pytest.mark.parametrize("field", ["inputs", "metadata"])
@pytest.mark.parametrize("value", [{"a": {"b": "\x00"}}, {"a\x00": 1}])
def test_a_nul_inside_of_a_json_value_is_refused(server: Running, field: str, value: Any) -> None:
    rows = [{"id": "bad", "prompt": "p", field: value}, {"id": "fine", "prompt": "p"}]
    answer = server.client("app").send("/v1/inferences", {"inferences": rows})
    assert answer.status == 400 and f"inferences[0]: {field}" in answer.message and "NUL" in answer.message
    assert [row["id"] for row in answer.json["refused"]] == ["bad"]


def test_half_a_surrogate_pair_is_replaced(server: Running) -> None:
    answer = server.client("app").send(
        "/v1/inferences", {"inferences": [{"id": "a", "prompt": "p", "output": "x\ud83d"}]}
    )
    assert answer.status == 200
    assert server.client("viewer").get("/v1/inferences/a").json["inference"]["output"] == "x\ufffd"


def test_every_row_that_cannot_be_stored_is_named(server: Running) -> None:
    """One row too large, one without a prompt, one that is none: none is stored, each is named with its reason."""
    app = server.client("app")
    large, good = (
        {"id": "big", "prompt": "p", "output": "x" * 300_000},
        {"id": "fine", "prompt": "p", "output": "y"},
    )
    answer = app.send("/v1/inferences", {"inferences": [large, good, {"id": "blank", "output": "z"}, 7]})
    assert answer.status == 400 and "inferences[0]" in answer.message and "2 more" in answer.message
    assert [(row["index"], row["id"]) for row in answer.json["refused"]] == [
        (0, "big"),
        (2, "blank"),
        (3, None),
    ]
    assert [
        "256000" in answer.json["refused"][0]["message"],
        "prompt" in answer.json["refused"][1]["message"],
    ] == [True] * 2
    assert server.state.live.traffic.head() == 0
    rows = [feedback(id="a"), feedback(id="b", source="annotator"), feedback(id="c", source="annotator")]
    answer = app.send("/v1/feedback", {"feedback": [row["feedback"][0] for row in rows]})
    assert answer.status == 400 and [row["id"] for row in answer.json["refused"]] == ["b", "c"]


@pytest.mark.parametrize(
    ("given", "value"),
    [("up", 1), ("thumbs-down", 0), (True, 1), (0, 0), ("1", 1), ("-1", 0), ("Like", 1), ("👎", 0), (1.0, 1)],
)
def test_a_thumb_is_what_other_tools_call_it(server: Running, given: Any, value: float) -> None:
    row = {"kind": "thumb", "target": "a", "value": given}
    assert server.client("app").send("/v1/feedback", {"feedback": [row]}).status == 200
    (stored,) = server.state.live.traffic.find().rows
    assert stored.feedback.value == value


@pytest.mark.parametrize("given", ["sideways", 2, "", 0.5, [1]])
def test_what_is_no_thumb_is_told_what_one_is(server: Running, given: Any) -> None:
    row = {"kind": "thumb", "target": "a", "value": given}
    answer = server.client("app").send("/v1/feedback", {"feedback": [row]})
    assert answer.status == 400 and '"up" or "down", true or false, 1 or 0' in answer.message


def test_programs_do_not_speak_for_annotators(server: Running) -> None:
    assert server.client("app").send("/v1/feedback", feedback(source="annotator")).status == 400
    annotator = server.client("annotator")
    assert annotator.send("/v1/feedback", feedback(source="annotator", user="editor")).status == 400
    assert annotator.send("/v1/feedback", feedback(source="annotator")).status == 200
    (row,) = server.state.live.traffic.find().rows
    assert row.feedback.user == "annotator"


def test_a_program_is_told_in_the_words_of_its_row_why_it_is_no_annotator(server: Running) -> None:
    app, row = server.client("app"), {"span_id": "a", "name": "good", "result": {"score": 1}}
    refused = app.send("/v1/feedback", {"feedback": [{**row, "annotator_kind": "HUMAN"}]})
    assert refused.status == 400 and "annotator_kind HUMAN" in refused.message
    for kind, source in (("USER", "user"), ("LLM", "model"), ("CODE", "code")):
        assert f"{kind}" in refused.message
        assert app.send("/v1/feedback", {"feedback": [{**row, "annotator_kind": kind}]}).status == 200
        assert server.state.live.traffic.find().rows[0].feedback.source == source


def test_no_person_is_a_crowd(server: Running) -> None:
    live = server.state.live
    live.registry.create(NAME, Prompt.parse(SOURCE), author="editor", label="production")
    asked = [{"id": f"a{n}", "prompt": NAME, "version": 1, "output": "!", "user": f"u{n}"} for n in range(8)]
    for role in ("annotator", "editor", "approver", "admin"):
        person = server.client(role)
        refused = person.send("/v1/inferences", {"inferences": asked})
        assert refused.status == 403 and "--role app" in refused.message
        assert person.send("/v1/otlp/v1/traces", {"resourceSpans": []}).status == 403
        for more in ({"user": "u1"}, {"source": "model"}, {"source": "code"}):
            refused = person.send("/v1/feedback", feedback(**more))
            assert refused.status == 400 and "what they say themselves" in refused.message
    assert server.client("app").send("/v1/inferences", {"inferences": asked}).status == 200
    words = [
        {"kind": "comment", "target": f"a{n}", "text": "Always name the price in euros."} for n in range(8)
    ]
    assert server.client("annotator").send("/v1/feedback", {"feedback": words}).status == 200
    rows = live.traffic.find().rows
    assert {(row.feedback.source, row.feedback.user) for row in rows} == {("annotator", "annotator")}
    (demand,) = live.learner.status(NAME)["requirements"]
    assert demand["sources"] == 1 and demand["state"] == "unwritten"


def span(key: str, **more: Any) -> dict[str, Any]:
    """A call of a model as an exporter sends it."""
    given = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "small", **more}
    return {
        "traceId": key * 32,
        "spanId": key * 16,
        "name": "chat small",
        "startTimeUnixNano": "1790000000000000000",
        "endTimeUnixNano": "1790000001000000000",
        "attributes": [{"key": name, "value": {"stringValue": value}} for name, value in given.items()],
        "events": [
            {
                "name": "gen_ai.evaluation.result",
                "timeUnixNano": "1790000001000000000",
                "attributes": [
                    {"key": "gen_ai.evaluation.name", "value": {"stringValue": "correctness"}},
                    {"key": "gen_ai.evaluation.score.value", "value": {"doubleValue": 0.5}},
                    {"key": "gen_ai.evaluation.explanation", "value": {"stringValue": "No tax named."}},
                ],
            }
        ],
    }


def test_traces_become_inferences_and_feedback(server: Running) -> None:
    app, viewer = server.client("app"), server.client("viewer")
    spans = [span("a"), span("b"), {"traceId": "c" * 32, "spanId": "c" * 16, "name": "GET /"}]
    body = {"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}
    for _ in range(2):
        answer = app.send("/v1/otlp/v1/traces", body)
        assert (answer.status, answer.json) == (200, {})
    assert len(viewer.get("/v1/inferences").json["inferences"]) == 2
    assert {row["text"] for row in viewer.get("/v1/feedback").json["feedback"]} == {"No tax named."}
    assert app.ask("POST", "/v1/otlp/v1/traces", b"x", Content_Type="text/plain").status == 415
    assert app.ask("POST", "/v1/otlp/v1/traces", b"x", Content_Type="application/json").status == 400
    packed = gzip.compress(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span("d")]}]}]}).encode())
    given = {"Content_Type": "application/json", "Content_Encoding": "gzip"}
    assert app.ask("POST", "/v1/otlp/v1/traces", packed, **given).status == 200
    assert len(viewer.get("/v1/inferences").json["inferences"]) == 3
    plain, raw = gzip.decompress(packed), zlib.compressobj(wbits=-15)
    given["Content_Encoding"] = "deflate"
    for body in (
        zlib.compress(plain.replace(b"dddd", b"eeee")),
        raw.compress(plain.replace(b"dddd", b"ffff")) + raw.flush(),
    ):
        assert app.ask("POST", "/v1/otlp/v1/traces", body, **given).status == 200
    assert len(viewer.get("/v1/inferences").json["inferences"]) == 5


def test_a_call_in_two_requests_is_one_answer_by_any_id_of_its_spans(server: Running) -> None:
    app, viewer = server.client("app"), server.client("viewer")
    inner = {**span("a", **{"gen_ai.response.id": "r"}), "spanId": "b" * 16, "parentSpanId": "a" * 16}
    for one in (inner, span("a")):
        body = {"resourceSpans": [{"scopeSpans": [{"spans": [{**one, "events": []}]}]}]}
        assert app.send("/v1/otlp/v1/traces", body).status == 200
    for target in ("a" * 16, "b" * 16):
        assert (
            app.send("/v1/feedback", {"feedback": [{"kind": "thumb", "value": 1, "target": target}]}).status
            == 200
        )
        assert viewer.get(f"/v1/inferences/{target}").json["inference"]["response"] == "r"
    assert len(viewer.get("/v1/inferences").json["inferences"]) == 1
    assert len(viewer.get(f"/v1/inferences/{'b' * 16}").json["feedback"]) == 2


def test_a_trace_with_an_annotators_word_from_a_program_is_a_partial_success(server: Running) -> None:
    one = span("e")
    one["events"][0]["attributes"].append({"key": "whet.source", "value": {"stringValue": "annotator"}})
    body = {"resourceSpans": [{"scopeSpans": [{"spans": [one]}]}]}
    answer = server.client("app").send("/v1/otlp/v1/traces", body)
    assert answer.status == 200 and answer.json["partialSuccess"]["rejectedSpans"] == "1"
    traffic = server.state.live.traffic
    assert not traffic.find().rows and len(traffic.inferences().rows) == 1


def test_requests_of_many_programs_are_all_stored(server: Running) -> None:
    def send(first: int) -> None:
        client = server.client("app")
        for n in range(10):
            answers.append(client.send("/v1/feedback", feedback(id=f"f{first}-{n}")))

    answers: list[Answer] = []
    threads = [threading.Thread(target=send, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {answer.status for answer in answers} == {200} and len(answers) == 80
    assert sum(c.n for c in server.state.live.traffic.counts() if c.kind == "rating") == 80


def test_a_stopping_server_stores_what_it_accepted(sqlite_url: str, tmp_path: Path) -> None:
    with running(sqlite_url, runs=str(tmp_path)) as server:
        waiting = [server.state.intake.submit([Inference("p", 1, id=f"a{n}")]) for n in range(500)]
    assert all(future.result().accepted == 1 for future in waiting)
    with running_again(sqlite_url, tmp_path) as again:
        assert again.state.live.traffic.counts()[0].n == 500


def running_again(url: str, folder: Path) -> Any:
    """A server without new users, on a database that has them."""
    from contextlib import contextmanager

    from whet_live import open_live
    from whet_live.server.access import Access
    from whet_live.server.app_state import AppState, ServerSettings

    @contextmanager
    def begin() -> Iterator[Running]:
        live = open_live(url)
        state = AppState(live, Access(live.database), ServerSettings(runs=str(folder)))
        try:
            yield Running(state, 0, {})
        finally:
            state.close()

    return begin()


def test_a_prompt_is_fetched_by_label_and_not_sent_twice(filled: tuple[Running, World]) -> None:
    server, world = filled
    app = server.client("app")
    first = app.get(f"/v1/prompts/{NAME}?label=production")
    assert first.json["version"] == 2 and first.json["messages"][0]["role"] == "auto"
    assert first.json["experiment"]["id"] == world.experiment
    assert app.get(f"/v1/prompts/{NAME}").body == first.body
    tag = first.headers["etag"]
    for known in (tag, f'"x", W/{tag}', "*"):
        again = app.get(f"/v1/prompts/{NAME}?label=production", If_None_Match=known)
        assert (again.status, again.body, again.headers["etag"]) == (304, b"", tag)
    server.state.live.registry.rollback(NAME, "production", actor="x")
    moved = app.get(f"/v1/prompts/{NAME}?label=production", If_None_Match=tag)
    assert moved.status == 200 and moved.json["version"] == 1
    assert app.get(f"/v1/prompts/{NAME}?version=2").json["version"] == 2
    assert app.get(f"/v1/prompts/{NAME}?version=2").json["experiment"] is None
    assert app.get(f"/v1/prompts/{NAME}?label=latest").json["experiment"] is None
    assert app.get(f"/v1/prompts/{NAME}?label=nope").status == 404
    assert app.get("/v1/prompts/nope").status == 404
    assert app.get(f"/v1/prompts/{NAME}?label=a&version=1").status == 400
    assert app.get(f"/v1/prompts/{NAME}?lable=production").status == 400


def test_assignments_are_what_an_app_needs(filled: tuple[Running, World]) -> None:
    server, world = filled
    app = server.client("app")
    answer = app.get(f"/v1/assignments?prompt={NAME}")
    (found,) = answer.json["experiments"]
    assert found["id"] == world.experiment and {"salt", "unit", "arms", "revision"} <= found.keys()
    assert app.get(f"/v1/assignments?prompt={NAME}", If_None_Match=answer.headers["etag"]).status == 304


@pytest.mark.parametrize(
    ("path", "good", "wrong"),
    [
        ("/v1/prompts", {"name": "a/c", "text": SOURCE}, {"name": "a/7"}),
        ("/v1/prompts", {"name": "a/c", "text": SOURCE}, {"config": {"n": 2**70}}),
        ("/v1/prompts", {"name": "a/c", "text": SOURCE}, {"text": "x" * 1_000_001}),
        ("/v1/prompts", {"name": "a/c", "text": SOURCE}, {"label": "latest"}),
        ("/v1/labels/shop/support", {"label": "staging", "version": 1}, {"label": "Production"}),
        ("/v1/rollback/shop/support", {"label": "production"}, {"label": "7"}),
        ("/v1/protections", {"name": "shop/support", "label": "x", "protected": True}, {"name": "**"}),
        ("/v1/proposals", {"base": "shop/support", "text": SOURCE}, {"base": "shop/support@"}),
        ("/v1/proposals", {"base": "shop/support", "text": SOURCE}, {"evidence": {"n": 2**70}}),
        ("/v1/moves", {"name": "shop/support", "label": "y", "version": 1}, {"label": "latest"}),
    ],
)
def test_what_can_never_be_right_is_no_conflict(
    filled: tuple[Running, World], path: str, good: dict[str, Any], wrong: dict[str, Any]
) -> None:
    server, _ = filled
    admin = server.client("admin")
    refused = admin.send(path, {**good, **wrong})
    assert refused.status == 400 and refused.message
    assert admin.send(path, good).status in (200, 201)


@pytest.mark.parametrize(
    "wrong",
    [
        {"alhpa": 0.1},
        {"alpha": 2},
        {"arms": [{"version": 1}, {"version": 1}]},
        {"goal": {"name": "thumb", "direction": "up"}},
        {"arms": [{"version": 1, "weight": 1e9}, {"version": 2, "weight": 1}]},
        {"prompt": "shop/"},
        {"label": "latest"},
        {"most_units": 2**70},
    ],
)
def test_a_definition_that_can_never_be_right_is_no_conflict(
    filled: tuple[Running, World], wrong: dict[str, Any]
) -> None:
    server, _ = filled
    approver = server.client("approver")
    arms = [{"version": 1}, {"version": 2}]
    good = {"prompt": NAME, "label": "production", "arms": arms, "control": 1, "goal": "rating"}
    again = approver.send("/v1/experiments", {"definition": good})
    assert again.status == 409, again.message
    refused = approver.send("/v1/experiments", {"definition": {**good, **wrong}})
    assert refused.status == 400, refused.message


def test_a_decision_that_can_never_be_right_is_no_conflict(filled: tuple[Running, World]) -> None:
    server, world = filled
    approver, path = server.client("approver"), f"/v1/proposals/{world.proposal}/decision"
    for wrong in ({"verdict": "reject", "reason": " "}, {"verdict": "edit", "texts": {}}):
        assert approver.send(path, wrong).status == 400
    assert approver.send(path, {"verdict": "reject", "reason": "No."}).status == 200
    assert approver.send(path, {"verdict": "reject", "reason": "No."}).status == 409


def test_a_prompts_life_as_json(server: Running) -> None:
    editor, approver, admin = (server.client(role) for role in ("editor", "approver", "admin"))
    made = editor.send(
        "/v1/prompts", {"name": "a/b", "text": SOURCE, "label": "production", "message": "First."}
    )
    assert made.status == 201 and made.json["author"] == "editor"
    assert editor.send("/v1/prompts", {"name": "a/b", "text": SOURCE}).status == 409
    assert editor.send("/v1/prompts", {"name": "a/b", "text": "x", "messages": []}).status == 400
    assert editor.send("/v1/prompts", {"name": "a/b", "txt": "x"}).status == 400
    assert (
        admin.send("/v1/protections", {"name": "*", "label": "production", "protected": True}).status == 200
    )
    longer = SOURCE + "Thanks.\n"
    asked = editor.send("/v1/proposals", {"base": "a/b@production", "text": longer, "label": "production"})
    key = asked.json["id"]
    assert asked.status == 201
    assert editor.send("/v1/labels/a/b", {"label": "production", "version": 1}).status == 409
    assert editor.send(f"/v1/proposals/{key}/decision", {"verdict": "approve"}).status == 403
    decided = approver.send(f"/v1/proposals/{key}/decision", {"verdict": "approve", "reason": "Polite."})
    assert (decided.status, decided.json["state"], decided.json["version"]) == (200, "approved", 2)
    assert approver.send(f"/v1/proposals/{key}/decision", {"verdict": "approve"}).status == 409
    assert approver.send("/v1/proposals/none/decision", {"verdict": "approve"}).status == 404
    assert editor.get("/v1/labels/a/b").json == {
        "labels": {"production": 2, "latest": 2},
        "protected": ["production"],
    }
    assert editor.get("/v1/diff/a/b?before=1&after=production").json["text"].endswith("+Thanks.")
    assert [v["version"] for v in editor.get("/v1/versions/a/b").json["versions"]] == [2, 1]
    assert editor.send("/v1/rollback/a/b", {"label": "production"}).status == 403
    assert approver.send("/v1/rollback/a/b", {"label": "production", "reason": "Too long."}).json["new"] == 1
    assert [m["kind"] for m in editor.get("/v1/history/a/b").json["moves"]] == ["rollback", "move", "move"]
    moved = editor.send("/v1/moves", {"name": "a/b", "label": "production", "version": 2})
    assert editor.send(f"/v1/proposals/{moved.json['id']}/withdrawal", {}).json["state"] == "withdrawn"
    log = editor.get("/v1/audit?subject=a/b&limit=2").json
    assert [entry["action"] for entry in log["entries"]] == ["proposal.withdrawn", "move.request"]
    seal = editor.get("/v1/audit/verification").json
    assert seal["whole"] and editor.get(f"/v1/audit/verification?seal={seal['seal']}").json["whole"]


def test_lists_go_on_where_the_page_before_ended(filled: tuple[Running, World]) -> None:
    server, _ = filled
    viewer = server.client("viewer")
    for path, name, cursor in (
        ("/v1/inferences", "inferences", "after"),
        ("/v1/feedback", "feedback", "after"),
        ("/v1/audit", "entries", "before"),
        ("/v1/prompts", "prompts", "after"),
        ("/v1/proposals", "proposals", "before"),
    ):
        whole = viewer.get(f"{path}?limit=500").json[name]
        found: list[Any] = []
        more = ""
        while True:
            page = viewer.get(f"{path}?limit=1{more}" if name == "prompts" else f"{path}?limit=7{more}").json
            found += page[name]
            if page[cursor] is None:
                break
            more = f"&{cursor}={page[cursor]}"
        assert found == whole and len(found) > 1, path


def test_a_users_data_is_deleted_by_an_admin(filled: tuple[Running, World]) -> None:
    server, _ = filled
    assert server.client("approver").ask("DELETE", "/v1/users/user-1").status == 403
    gone = server.client("admin").ask("DELETE", "/v1/users/user-1").json
    assert gone["inferences"] == 4 and not server.state.live.traffic.inferences(Filter(user="user-1")).rows


@pytest.mark.parametrize("given", ["tenant/42", "a//b", "/", "../x", "\u00fc %2F?#", "."])
def test_whatever_an_id_holds_its_answer_is_found_and_its_users_data_deleted(
    filled: tuple[Running, World], given: str
) -> None:
    server, _ = filled
    asked = {"inferences": [{"prompt": "shop/help", "version": 1, "id": given, "user": given, "output": "x"}]}
    assert server.client("app").send("/v1/inferences", asked).status == 200
    place = quote(given, safe="")
    viewer = server.client("viewer")
    assert viewer.get(f"/v1/inferences/{place}").json["inference"]["id"] == given
    browser = server.browser("admin")
    for path in (f"/feedback/{place}", f"/annotate/{place}"):
        assert browser.page(path).status == 200, path
    assert server.client("admin").ask("DELETE", f"/v1/users/{place}").json["inferences"] == 1
    assert viewer.get(f"/v1/inferences/{place}").status == 404


def read_events(server: Running, path: str, until: bytes, **headers: str) -> bytes:
    """What a stream says until it has said something."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    given = {
        "Authorization": f"Bearer {server.tokens['viewer']}",
        **{k.replace("_", "-"): v for k, v in headers.items()},
    }
    connection.request("GET", path, headers=given)
    answer = connection.getresponse()
    assert answer.status == 200 and answer.headers["content-type"].startswith("text/event-stream")
    found = b""
    while until not in found:
        piece = answer.read1(65_536)
        if not piece:
            break
        found += piece
    connection.close()
    return found


def test_a_stream_goes_on_after_the_last_event_that_was_seen(start: Start, tmp_path: Path) -> None:
    folder, _ = recorded.finished(tmp_path / "runs" / "one")
    with start() as server:
        viewer = server.client("viewer")
        assert viewer.get("/v1/runs").json["runs"][0]["id"] == "one"
        (folder / "result.json").write_text('{"status": "completed"}')
        whole = read_events(server, "/v1/runs/one/events", b"event: end")
        ids = [int(line[4:]) for line in whole.decode().splitlines() if line.startswith("id: ")]
        assert ids == list(range(1, ids[-1] + 1)) and len(ids) > 20
        rest = read_events(server, "/v1/runs/one/events", b"event: end", Last_Event_ID=str(ids[-3])).decode()
        assert [int(line[4:]) for line in rest.splitlines() if line.startswith("id: ")] == ids[-2:]
        values = [json.loads(line[6:]) for line in rest.splitlines() if line.startswith("data: ")]
        assert all({"calls", "value"} <= value.keys() for value in values[:-1])
        assert viewer.get("/v1/runs/one/events", Last_Event_ID="x").status == 400
        assert viewer.get("/v1/runs/two/events").status == 404


def test_streams_are_counted_and_end_with_the_server(start: Start, tmp_path: Path) -> None:
    recorded.running(tmp_path / "runs" / "going")
    with start(ServerLimits(streams=1)) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        connection.request(
            "GET", "/v1/runs/going/events", headers={"Authorization": f"Bearer {server.tokens['viewer']}"}
        )
        answer = connection.getresponse()
        assert answer.read1(100).startswith(b"retry: ")
        assert server.client("viewer").get("/v1/runs/going/events").status == 429
        assert "whet_http_streams 1.0" in server.client("viewer").get("/metrics").text
    while answer.read1(65_536):
        pass
    connection.close()


def test_a_stream_ends_with_the_access_of_who_reads_it(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "CHECK_SECONDS", 0.0, raising=False)
    recorded.running(tmp_path / "runs" / "going")
    with start() as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
        connection.request(
            "GET", "/v1/runs/going/events", headers={"Authorization": f"Bearer {server.tokens['viewer']}"}
        )
        answer = connection.getresponse()
        assert answer.read1(100).startswith(b"retry: ")
        server.state.access.disable("viewer", by="admin")
        said = b""
        while b": still here" not in said and (piece := answer.read1(65_536)):
            said += piece
        assert b": still here" not in said
        assert "whet_http_streams 0.0" in server.client("admin").get("/metrics").text
        connection.close()


def test_the_document_shows_every_route_for_programs(server: Running) -> None:
    document = server.client("viewer").get("/openapi.json").json
    shown = {(m.upper(), path) for path, methods in document["paths"].items() for m in methods}
    routes = {
        (e.method, e.path.replace(":path", ""))
        for router in ROUTERS
        for e in router.endpoints
        if e.path.startswith("/v1/")
    }
    assert routes <= shown and shown - routes == {
        ("GET", "/healthz"),
        ("GET", "/readyz"),
        ("GET", "/metrics"),
    }
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            public = path in ("/healthz", "/readyz")
            assert operation["summary"] and operation["security"] == ([] if public else [{"token": []}]), (
                method,
                path,
            )
            assert public or {"401", "403", "429"} <= operation["responses"].keys()
    names = [
        operation["operationId"] for methods in document["paths"].values() for operation in methods.values()
    ]
    assert len(set(names)) == len(names)


def test_answers_have_the_shapes_of_the_document(filled: tuple[Running, World]) -> None:
    server, world = filled
    viewer = server.client("viewer")
    for path, shape in (
        ("/v1/prompts", shapes.Summaries),
        (f"/v1/prompts/{NAME}", shapes.ServedSchema),
        (f"/v1/versions/{NAME}", shapes.VersionsSchema),
        (f"/v1/diff/{NAME}?before=1&after=2", shapes.DifferenceSchema),
        (f"/v1/labels/{NAME}", shapes.Standing),
        (f"/v1/history/{NAME}", shapes.Moves),
        ("/v1/proposals", shapes.Proposals),
        (f"/v1/proposals/{world.proposal}", shapes.ProposalSchema),
        ("/v1/audit", shapes.Entries),
        ("/v1/audit/verification", shapes.Verification),
        ("/v1/inferences", traffic.InferencePage),
        ("/v1/inferences/odd", traffic.About),
        ("/v1/feedback", traffic.FeedbackPage),
        ("/v1/counts", traffic.CountsSchema),
        ("/v1/experiments", experiments.ExperimentsSchema),
        (f"/v1/experiments/{world.experiment}", experiments.ExperimentSchema),
        ("/v1/assignments", experiments.Assignments),
        ("/v1/runs", runs.Runs),
    ):
        answer = viewer.get(path)
        assert answer.status == 200, path
        msgspec.json.decode(answer.body, type=shape)


def test_the_schemas_take_what_the_parser_takes() -> None:
    """Every field of a record is described, and the scale that a rating may state; nothing else."""
    inference = traffic.Inferences["properties"]["inferences"]["items"]["properties"]
    feedback_row = traffic.FeedbackRows["properties"]["feedback"]["items"]["properties"]
    assert set(inference) == set(Inference.__dataclass_fields__)
    assert set(feedback_row) == {*Feedback.__dataclass_fields__, "scale"}
    assert openapi.build_openapi(e for router in ROUTERS for e in router.endpoints)["openapi"] == "3.1.0"
