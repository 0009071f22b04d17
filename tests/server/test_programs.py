"""What the token of an application may know and use: its own prompts, the rows that it just sent, its own quota."""

from __future__ import annotations

import re
import resource
import time
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from tests.server.client import Answer, Client
from tests.server.conftest import Running, Start
from whet.errors import UsageError
from whet.prompt import Prompt
from whet.prompt.events import Add
from whet_client.assignment import version_for
from whet_client.records import Feedback, Inference
from whet_live import forget_user
from whet_live.database import engine
from whet_live.registry import Decision, PromptEdit
from whet_live.server import app_state
from whet_live.server.app import Server
from whet_live.server.endpoint import Endpoint
from whet_live.server.limits import ServerLimits, TokenBucket
from whet_live.server.roles import Role
from whet_live.traffic import EVERYTHING

CANARIES = ("ZEBRAFINCH", "OCELOT", "NARWHAL", "AXOLOTL", "MANDRILL", "PANGOLIN")
TEXT = "Help.\n<!-- whet:begin -->\n- Be kind.\n<!-- whet:end -->\n"
MINE, THEIRS = "mine/help", "theirs/ZEBRAFINCH"


def of_prompt(server: Running, name: str, prompt: str) -> Client:
    """A program whose token is for one prompt."""
    access = server.state.access
    return Client(server.port, token=access.add(name, Role.VIEWER, app=True, by="test", prompts=[prompt]))


def inference(id: str, prompt: str, **more: Any) -> dict[str, Any]:
    return {"id": id, "prompt": prompt, "version": 1, "output": "It costs 3 euros.", **more}


def thumb(id: str, target: str, **more: Any) -> dict[str, Any]:
    return {"id": id, "kind": "thumb", "target": target, "value": 1, **more}


def post(client: Client, kind: str, *rows: dict[str, Any]) -> Answer:
    return client.send(f"/v1/{kind}", {kind: list(rows)})


def span(id: str, prompt: str, **attributes: str) -> dict[str, Any]:
    named = {
        "gen_ai.operation.name": "chat",
        "whet.prompt.name": prompt,
        "whet.inference.id": id,
        **attributes,
    }
    pairs = [{"key": key, "value": {"stringValue": value}} for key, value in named.items()]
    return {"traceId": "5b8efff798038103d269b633813fc60c", "spanId": "eee19b7ec3c1b174", "name": "chat",
            "startTimeUnixNano": "1790000000000000000", "attributes": pairs}  # fmt: skip


def traces(client: Client, *spans: dict[str, Any]) -> Answer:
    return client.send("/v1/otlp/v1/traces", {"resourceSpans": [{"scopeSpans": [{"spans": list(spans)}]}]})


def live_secrets(server: Running) -> None:
    """A prompt of each application; theirs with everything that a prompt may rest on."""
    registry = server.state.live.registry
    for name in (MINE, THEIRS):
        registry.create(
            name,
            Prompt.parse(TEXT + f"\n{name}\n"),
            author="PANGOLIN",
            message="MANDRILL",
            label="production",
        )
        added = Add(id="i2", text="Say the price.", critiques=("OCELOT said so",), evidence=("NARWHAL-f",), sources=1,
                    author="learner", at="2026-11-20T10:00:00Z", tokens=4)  # fmt: skip
        edit = PromptEdit((added,), "instructions")
        proposal = registry.propose(
            f"{name}/1", edit, author="learner", evidence={"of": "AXOLOTL"}, label="production"
        )
        registry.decide(proposal.id, Decision("approve", "MANDRILL"), actor="PANGOLIN")
    asked = Inference(
        THEIRS, 1, {"q": "OCELOT"}, "AXOLOTL", id="NARWHAL-i", user="PANGOLIN", session="MANDRILL-s"
    )
    said = Feedback("comment", "NARWHAL-i", text="OCELOT", user="PANGOLIN", id="NARWHAL-f")
    server.state.live.traffic.add([asked], [said])


def test_every_answer_to_another_application_is_without_secrets(server: Running) -> None:
    live_secrets(server)
    client = of_prompt(server, "mine", MINE)
    ids = ("NARWHAL-i", "NARWHAL-f")
    answers = [client.get(f"/v1/prompts/{MINE}")]
    assert answers[0].status == 200 and set(answers[0].json) == {
        "name", "version", "address", "prompt_id", "labels", "messages", "config", "experiment"
    }  # fmt: skip
    for route in Server(server.state).routes:
        endpoint = getattr(route, "endpoint", None)
        if not isinstance(endpoint, Endpoint) or not endpoint.app:
            continue
        for value in (THEIRS, "theirs/ZEBRAFINCHES", MINE, *ids):
            path = re.sub(r"{[^}]*}", value, endpoint.path)
            if endpoint.method == "GET":
                answers += [client.get(f"{path}{query}") for query in ("", "?version=1", f"?prompt={value}")]
            else:
                rows = [inference(id, MINE) for id in ids] + [inference(id, value) for id in ids]
                said = [thumb(id, target) for id in ids for target in (*ids, "none")]
                answers += [post(client, "inferences", row) for row in rows]
                answers += [post(client, "feedback", row) for row in said]
                answers += [traces(client, *(span(id, value) for id in ids)), client.send(path, {})]
    sent = {*ids, THEIRS, "theirs/ZEBRAFINCHES"}
    for answer in answers:
        text = answer.text
        for own in sorted(sent, key=len, reverse=True):
            text = text.replace(own, "")
        assert not [word for word in CANARIES if word in text], answer.text
    reader = server.client("viewer").get(f"/v1/prompts/{MINE}").json
    assert "OCELOT" in str(reader) and reader["evidence"] == {"of": "AXOLOTL"}


def test_a_taken_id_is_taken_whoever_has_it_and_whatever_it_holds(server: Running) -> None:
    one, other = of_prompt(server, "one", MINE), of_prompt(server, "other", THEIRS)
    assert post(one, "inferences", inference("i", MINE)).status == 200
    assert post(one, "feedback", thumb("f", "i", text="OCELOT")).json["accepted"] == 1
    assert post(one, "feedback", thumb("f", "i", text="OCELOT")).json["duplicates"] == 1
    own = post(one, "feedback", thumb("f", "i", text="else"))
    same, else_ = (
        post(other, "feedback", thumb("f", "i", text="OCELOT")),
        post(other, "feedback", thumb("f", "x")),
    )
    assert own.status == same.status == else_.status == 409
    assert own.body == same.body == else_.body and same.json["conflicts"] == [{"id": "f"}]
    again = post(other, "inferences", inference("i", THEIRS))
    assert (
        again.status == 409
        and again.body.replace(b'\\"i\\"', b'\\"f\\"').replace(b':"i"', b':"f"') == own.body
    )
    server.state.live.traffic.add([Inference(MINE, 1, id="of-eve", user="eve")])
    forget_user(server.state.live.database, "eve", actor="admin")
    gone, left = (
        post(other, "inferences", inference("of-eve", THEIRS)),
        post(other, "feedback", thumb("g", "of-eve")),
    )
    assert gone.status == 409 and (left.json["accepted"], left.json["erased"]) == (1, 0)


def test_a_taken_id_takes_as_long_whoever_has_it(server: Running) -> None:
    one, other = of_prompt(server, "one", MINE), of_prompt(server, "other", THEIRS)
    post(one, "inferences", inference("i", MINE, output="x" * 200_000))
    post(other, "inferences", inference("j", THEIRS, output="x" * 200_000))

    def seconds(id: str) -> float:
        start = time.perf_counter()
        assert post(other, "inferences", inference(id, THEIRS)).status == 409
        return time.perf_counter() - start

    pairs: list[tuple[float, float]] = []
    for _ in range(
        10
    ):  # a busy machine only ever adds: what differs for good differs after any number of looks
        pairs += [(seconds("i"), seconds("j")) for _ in range(30)]
        theirs, own = (min(column) for column in zip(*pairs, strict=True))
        if 0.5 < theirs / own < 2.0:
            break
    assert 0.5 < theirs / own < 2.0


def test_a_token_reads_the_prompts_that_it_is_for(server: Running) -> None:
    live_secrets(server)
    client = of_prompt(server, "mine", MINE)
    assert client.get(f"/v1/prompts/{MINE}").json["labels"] == ["production"]
    refused, nowhere = client.get(f"/v1/prompts/{THEIRS}"), client.get("/v1/prompts/not/there")
    assert refused.status == nowhere.status == 403 and "whet access token mine --prompt" in refused.message
    assert client.ask("HEAD", f"/v1/prompts/{THEIRS}").status == 403
    assert client.get(f"/v1/assignments?prompt={THEIRS}").status == 403
    arms = [{"version": 1}, {"version": 2}]
    for name in (MINE, THEIRS):
        definition = {"prompt": name, "label": "production", "arms": arms, "control": 1, "goal": "thumb"}
        server.state.live.experiments.create(definition, author="approver")
    seen = [one["prompt"] for one in client.get("/v1/assignments").json["experiments"]]
    everything = [one["prompt"] for one in server.client("app").get("/v1/assignments").json["experiments"]]
    assert seen == [MINE] and sorted(everything) == [MINE, THEIRS]


def test_a_token_logs_answers_of_its_prompts_only(server: Running) -> None:
    client = of_prompt(server, "mine", MINE)
    answer = post(client, "inferences", inference("a", MINE), inference("b", THEIRS))
    assert answer.status == 403 and THEIRS in answer.message
    assert [(one["id"], THEIRS in one["message"]) for one in answer.json["refused"]] == [("b", True)]
    assert server.state.live.traffic.inferences(EVERYTHING).rows == []
    partial = traces(client, span("c", MINE), span("d", THEIRS))
    assert partial.status == 200 and partial.json["partialSuccess"]["rejectedSpans"] in ("1", 1)
    assert [row.inference.id for row in server.state.live.traffic.inferences(EVERYTHING).rows] == ["c"]


def test_answers_of_one_prompt_do_not_count_in_an_experiment_of_another(server: Running) -> None:
    """Neither from a token for the other prompt or for all prompts, nor by a road that refuses nothing."""
    live = server.state.live
    for name in (MINE, THEIRS):
        for text in ("One.", "Two."):
            live.registry.create(name, Prompt.parse(text), author="ann")
        live.registry.move_label(name, "production", 1, actor="ann")
    goal = {"name": "thumb", "window": 0}
    definition = {
        "prompt": THEIRS,
        "label": "production",
        "arms": [{"version": 1}, {"version": 2}],
        "goal": goal,
    }
    experiment = live.experiments.create(definition | {"unit": "user"}, author="ann").id
    (shown,) = live.experiments.assignments(THEIRS)

    def row(id: str, prompt: str) -> dict[str, Any]:
        return inference(id, prompt, user=id, experiment=experiment, variant="1") | {
            "version": version_for(shown, id)
        }

    for client in (of_prompt(server, "mine", MINE), server.client("app")):
        answer = post(client, "inferences", row("a", MINE), {**row("b", MINE), "experiment": "unknown"})
        assert answer.status == 403 and [one["id"] for one in answer.json["refused"]] == ["a"], answer.text
        assert f'"{experiment}" is not one of the prompt "{MINE}"' in answer.message
        more = {"whet.experiment": experiment, "user.id": "c"}
        assert traces(client, span("c", MINE, **more)).json["partialSuccess"]["rejectedSpans"] in ("1", 1)
    live.traffic.add(
        [Inference(MINE, version_for(shown, "d"), id="d", user="d", experiment=experiment, variant="1")]
    )
    assert post(server.client("app"), "inferences", row("e", THEIRS)).json["accepted"] == 1
    figures = live.experiments.status(experiment)["now"]
    assert sum(arm["assigned"] for arm in figures["arms"]) == 1 and not any(figures["left_out"].values())


def test_feedback_is_not_joined_to_answers_of_other_prompts(server: Running) -> None:
    mine, theirs, traffic = (
        of_prompt(server, "mine", MINE),
        of_prompt(server, "theirs", THEIRS),
        server.state.live.traffic,
    )
    post(theirs, "inferences", inference("first", THEIRS, session="s"))
    post(mine, "inferences", inference("mine", MINE, session="s"))
    post(theirs, "inferences", inference("last", THEIRS, session="s"))
    answers = [post(mine, "feedback", thumb("early", "later")), post(mine, "feedback", thumb("x", "first"))]
    answers.append(post(mine, "feedback", {**thumb("of-session", "s"), "target_kind": "session"}))
    post(theirs, "inferences", inference("later", THEIRS))
    assert {(one.status, one.json["accepted"]) for one in answers} == {(200, 1)}
    joined = {row.feedback.id: row.prompt for row in traffic.find().rows}
    assert joined == {"early": "", "x": "", "of-session": MINE}
    post(theirs, "feedback", thumb("own", "later"))
    assert traffic.feedback("own").prompt == THEIRS  # type: ignore[union-attr]


def test_a_program_gets_a_token_for_something_only(server: Running) -> None:
    access = server.state.access
    for more in ({}, {"prompts": [MINE], "all_prompts": True}):
        with pytest.raises(UsageError, match=r"--prompt NAME.*--all-prompts"):
            access.add("shop", Role.VIEWER, app=True, by="test", **more)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="is a person"):
        access.add("eve", Role.VIEWER, by="test", prompts=[MINE])
    with pytest.raises(UsageError, match="cannot be for the prompt"):
        access.add("shop", Role.VIEWER, app=True, by="test", prompts=["a|b"])
    with pytest.raises(UsageError, match="cannot be the name of a prompt"):
        access.add("shop", Role.VIEWER, app=True, by="test", prompts=["shop/*"])
    access.add("shop", Role.VIEWER, app=True, by="test", prompts=[MINE, THEIRS])
    with pytest.raises(UsageError, match=r"--prompt NAME"):
        access.new_token("shop", by="test")
    browser = server.browser("admin")
    assert browser.submit("/access", {"name": "web", "role": "app"}).status == 400
    assert (
        browser.submit("/access", {"name": "web", "role": "app", "prompts": f"{MINE}, {THEIRS}"}).status
        == 200
    )
    assert browser.submit("/access/web/token", {"prompts": "*"}).status == 200
    scopes = {token.prompts for user in access.users() if user.name == "web" for token in user.tokens}
    assert scopes == {(MINE, THEIRS), None}


def test_rows_and_bytes_have_a_rate_of_their_own_for_each_program(start: Start) -> None:
    limits = ServerLimits(rows=TokenBucket(1, 10), sent_bytes=TokenBucket(1, 100_000))
    with start(limits) as server:
        one, other = of_prompt(server, "one", MINE), of_prompt(server, "other", MINE)
        assert post(one, "inferences", *(inference(f"a{n}", MINE) for n in range(10))).status == 200
        refused = post(one, "inferences", inference("b", MINE))
        assert (
            refused.status == 429 and int(refused.headers["retry-after"]) >= 1 and "rows" in refused.message
        )
        assert post(other, "inferences", inference("c", MINE, output="x" * 90_000)).status == 200
        refused = post(other, "inferences", inference("d", MINE, output="x" * 90_000))
        assert (
            refused.status == 429 and "bytes" in refused.message and int(refused.headers["retry-after"]) > 60
        )


def test_what_is_kept_of_a_program_has_a_limit_that_survives_a_restart(start: Start) -> None:
    limits = ServerLimits(kept_bytes=100_000)
    with start(limits) as server:
        one = of_prompt(server, "one", MINE)
        assert post(one, "inferences", inference("a", MINE, output="x" * 60_000, user="eve")).status == 200
    with start(limits, roles=False) as server:
        one = Client(server.port, token=server.state.access.new_token("one", by="test", prompts=[MINE]))
        full = post(one, "inferences", inference("b", MINE, output="x" * 60_000))
        assert full.status == 507 and "100,000" in full.message and "retry-after" in full.headers
        assert traces(one, span("c", MINE, **{"output.value": "x" * 60_000})).status == 507
        other = of_prompt(server, "other", MINE)
        assert post(other, "inferences", inference("b", MINE, output="x" * 60_000)).status == 200
        assert (
            post(one, "inferences", inference("a", MINE, output="x" * 60_000, user="eve")).json["duplicates"]
            == 1
        )
        forget_user(server.state.live.database, "eve", actor="admin")
        assert post(one, "inferences", inference("d", MINE, output="x" * 60_000)).status == 200


def test_ready_means_that_a_row_can_be_written(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app_state, "PROBE_SECONDS", 0.0)
    with start() as server:
        assert server.client().get("/readyz").status == 200
        usual = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, ((tmp_path / "whet.db-wal").stat().st_size, usual[1]))
        try:
            answers = [server.client().get("/readyz") for _ in range(3)]
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, usual)
        assert answers[-1].status == 503 and "database" in answers[-1].message
        assert server.client().get("/healthz").status == server.client().get("/readyz").status == 200
        monkeypatch.setattr(engine, "_LEAST_FREE", 1 << 62)
        assert server.client().get("/readyz").status == 503


def test_ready_is_refused_where_the_database_may_only_be_read(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app_state, "PROBE_SECONDS", 0.0)
    with start() as server:
        read_only = event.listens_for(server.state.live.database._engine, "begin")
        read_only(lambda connection: connection.exec_driver_sql("PRAGMA query_only = ON"))
        assert server.client().get("/readyz").status == 503 and server.client().get("/healthz").status == 200
