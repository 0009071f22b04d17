"""Experiments in a database: from traffic to a moved label, an approval, or a way back."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sqlalchemy import text
from sqlalchemy.dialects import sqlite

from whet.errors import StorageError, UsageError
from whet.prompt import Prompt
from whet_client.assignment import version_for
from whet_client.ids import now
from whet_client.records import Feedback, Inference
from whet_live.database import Database, open_database
from whet_live.erasure import forget_user
from whet_live.experiments import Experiments, tracking
from whet_live.experiments.definition import read_definition
from whet_live.experiments.tracking import TrackedExperiment
from whet_live.quality import Quality
from whet_live.registry import Decision, Registry
from whet_live.traffic.traffic_store import Traffic

NAME = "support/reply"
SOON = 10**9 * 10**6
"""Far enough that every window has closed."""


class World:
    """A prompt with three versions, users who like them differently, and an app that assigns them by itself."""

    def __init__(self, database: Database, up: dict[int, float]) -> None:
        self.database, self.up = database, up
        self.registry, self.traffic = Registry(database), Traffic(database)
        self.experiments = Experiments(database, self.registry)
        for words in ("one", "two", "three"):
            self.registry.create(NAME, Prompt.parse(f"Answer {words}.\n{{{{question}}}}"), author="ann")
        self.registry.move_label(NAME, "production", 1, actor="ann")
        self.rng, self.users = np.random.default_rng(1), 0

    def start(self, **settings: Any) -> str:
        author = settings.pop("author", "ann")
        asked = {"prompt": NAME, "label": "production", "arms": [{"version": 1}, {"version": 2}],
                 "goal": "thumb", "unit": "user", "approval": False} | settings  # fmt: skip
        return self.experiments.create(asked, author=author).id

    def serve(self, users: int, latency: dict[int, float] | None = None, **more: Any) -> dict[int, int]:
        """New users ask once, and say what they think of it; how many saw which version."""
        (definition,) = self.experiments.assignments(NAME)
        asked, said, counts = [], [], dict.fromkeys((1, 2, 3), 0)
        for _ in range(users):
            self.users += 1
            user = f"user-{self.users}"
            version = version_for(json.loads(json.dumps(definition)), user)
            counts[version] += 1
            asked.append(
                Inference(NAME, version, user=user, experiment=definition["id"], variant=str(definition["revision"]),
                          latency=None if latency is None else float(self.rng.gamma(4, latency[version] / 4)), **more)
            )  # fmt: skip
            value = float(self.rng.random() < self.up[version])
            said.append(Feedback("thumb", asked[-1].id, value, user=user))
        self.traffic.add(asked, said)
        return counts

    def label(self) -> int:
        return self.registry.labels(NAME)["production"]


@pytest.fixture
def world(database: Database, monkeypatch: pytest.MonkeyPatch) -> Callable[..., World]:
    """Worlds whose salt is fixed, so that every run assigns alike."""
    monkeypatch.setattr("whet_live.experiments.experiment_store.secrets.token_hex", lambda n: "0" * 2 * n)

    def made(**up: float) -> World:
        return World(database, {int(name[1:]): value for name, value in up.items()})

    return made


Make = Callable[..., World]


@pytest.fixture(scope="module")
def without_experiments(database_to_read: Database) -> World:
    """A world in which no test starts an experiment."""
    return World(database_to_read, {1: 0.5, 2: 0.5})


def test_a_winner_takes_the_label(world: Make) -> None:
    live = world(v1=0.4, v2=0.8)
    key = live.start()
    live.serve(300)
    assert live.experiments.refresh(now=0)[0].state == "running", "no window has closed"
    (found,) = live.experiments.refresh(now=now() + SOON)
    assert (found.state, found.winner, live.label()) == ("winner", 2, 2)
    assert live.experiments.assignments(NAME) == []
    move = live.registry.moves(NAME, "production").items[0]
    assert (move.actor, move.old, move.new) == (f"experiment:{key}", 1, 2)
    assert "Version 2 is better on thumb" in move.reason
    actions = [entry.action for entry in live.registry.audit(subject=NAME).items]
    assert (
        actions[:3] == ["label.move", "experiment.winner", "version.create"] or "experiment.start" in actions
    )
    assert live.registry.verify_audit().whole
    assert live.experiments.refresh(now=now() + SOON) == []
    assert not Quality(live.database).alerts().items, "nobody has to do anything"


@pytest.mark.parametrize("together", [True, False])
def test_every_answer_of_a_unit_counts_for_its_errors(world: Make, together: bool) -> None:
    """Only the first one did where each was stored in a commit of its own, as those of live traffic are."""
    live = world(v1=0.5, v2=0.5)
    live.start(unit="session", guards=[{"metric": "error", "limit": 0.05}])
    (definition,) = live.experiments.assignments(NAME)
    turns: list[list[Inference]] = [[], [], []]
    for number in range(200):
        session = f"session-{number}"
        version = version_for(json.loads(json.dumps(definition)), session)
        for turn, rows in enumerate(turns):
            rows.append(
                Inference(
                    NAME, version, session=session, experiment=definition["id"], variant=str(definition["revision"]),
                    error="boom" if version == 2 and turn else None,
                )
            )  # fmt: skip
    for rows in [[row for turn in turns for row in turn]] if together else turns:
        live.traffic.add(rows)
    (found,) = live.experiments.refresh(now=now() + SOON)
    assert found.state == "rolled_back" and "error" in found.reason and live.label() == 1


def test_values_after_the_window_are_said(world: Make) -> None:
    live = world(v1=0.5, v2=0.5)
    key = live.start(goal={"name": "thumb", "window": 0})
    (definition,) = live.experiments.assignments(NAME)
    asked = [
        Inference(NAME, version_for(json.loads(json.dumps(definition)), f"u{n}"), user=f"u{n}", id=f"a{n}",
                  experiment=definition["id"], variant=str(definition["revision"]))
        for n in range(40)
    ]  # fmt: skip
    live.traffic.add(asked)
    live.traffic.add((), [Feedback("thumb", one.id, 1.0, user=one.user) for one in asked])
    warnings = live.experiments.status(key, now=now() + SOON)["now"]["verdict"]["warnings"]
    assert any("40 of 40 values came after the window" in warning for warning in warnings), warnings


def test_thumbs_and_ratings_are_those_of_people(world: Make) -> None:
    """A judge sends scores under a name; its thumbs are no votes."""
    live = world(v1=1.0, v2=1.0)
    guard = {"metric": {"name": "rating", "window": 0}, "limit": 1.0}
    key = live.start(
        goal={"name": "thumb", "window": 0}, guards=[guard, {"metric": "accuracy", "limit": 0.5}]
    )
    (definition,) = live.experiments.assignments(NAME)
    rows = [
        Inference(NAME, version_for(json.loads(json.dumps(definition)), f"u{n}"), user=f"u{n}", id=f"a{n}",
                  experiment=definition["id"], variant=str(definition["revision"]))
        for n in range(40)
    ]  # fmt: skip
    said = [Feedback("thumb", f"a{n}", 1.0, source=("user", "annotator")[n % 2]) for n in range(10)]
    for kind, value in (("thumb", 0.0), ("rating", 1.0)):
        said += [Feedback(kind, one.id, value, source="model") for one in rows]
        said += [Feedback(kind, one.id, value, source="code") for one in rows]
    said += [Feedback("score", one.id, 0.5, name="accuracy", source="model") for one in rows]
    live.traffic.add(rows, said)
    arms = live.experiments.status(key, now=now() + 7200 * 10**6)["now"]["arms"]
    counts = {name: sum(arm["metrics"][name]["with_outcome"] for arm in arms) for name in arms[0]["metrics"]}
    assert counts == {"thumb": 10, "rating": 0, "accuracy": 40}
    assert {arm["metrics"]["thumb"]["mean"] for arm in arms} == {1.0}


def test_the_end_of_a_cycle_is_noticed_without_further_traffic(world: Make) -> None:
    """A process that had looked within the cycle kept its judgement until traffic came."""
    live, hour = world(v1=0.3, v2=0.9), 3600 * 10**6
    live.start(goal={"name": "thumb", "window": 0}, cycle=3600, cycles=1)
    live.serve(300)
    assert live.experiments.refresh(now=now() + hour // 60)[0].state == "running"
    (found,) = live.experiments.refresh(now=now() + 2 * hour)
    assert (found.state, found.winner, live.label()) == ("winner", 2, 2)


def test_a_winner_waits_for_an_approval_by_somebody_else(world: Make) -> None:
    live = world(v1=0.4, v2=0.8)
    key = live.start(approval=True)
    live.serve(300)
    live.experiments.refresh(now=now() + SOON)
    found = live.experiments.get(key)
    assert (found.state, live.label()) == ("winner", 1)
    (proposal,) = live.registry.proposals(state="open").items
    assert (proposal.id, proposal.target, proposal.author) == (found.proposal, 2, "ann")
    assert proposal.evidence is not None and proposal.evidence["experiment"] == key
    live.experiments.refresh(now=now() + SOON)
    assert len(live.registry.proposals(state="open").items) == 1, "asked once"
    with pytest.raises(UsageError):
        live.registry.decide(proposal.id, Decision("approve"), actor="ann")
    live.registry.decide(proposal.id, Decision("approve"), actor="ben")
    assert live.label() == 2
    (alert,) = Quality(live.database).alerts().items
    assert (alert.kind, alert.worse, alert.place) == ("approval", True, f"/review/{proposal.id}")
    assert alert.text == f"{NAME}: version 2 won the experiment on production and waits for an approval"


def test_a_protected_label_waits_for_an_approval_in_any_case(world: Make) -> None:
    live = world(v1=0.4, v2=0.8)
    live.registry.protect(NAME, "production", actor="ann")
    live.start(approval=False, author="ben")
    live.serve(300)
    live.experiments.refresh(now=now() + SOON)
    assert live.label() == 1
    assert len(live.registry.proposals(state="open").items) == 1


def test_a_winner_whose_request_cannot_be_filed_is_found_again(
    world: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end and the request are one transaction."""
    live = world(v1=0.4, v2=0.8)
    key = live.start(approval=True)
    live.serve(300)
    with monkeypatch.context() as broken:
        broken.setattr("whet_live.experiments.manager.ask_for_move", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            live.experiments.refresh(now=now() + SOON)
    found = live.experiments.get(key)
    assert (found.state, found.proposal, live.registry.proposals().items) == ("running", None, [])
    Experiments(live.database, live.registry).refresh(now=now() + SOON)
    assert live.experiments.get(key).proposal == live.registry.proposals(state="open").items[0].id


def test_two_servers_ask_for_the_same_approval_once(world: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have judged before either writes."""
    live = world(v1=0.4, v2=0.8)
    key = live.start(approval=True)
    live.serve(300)
    other = Experiments(live.database, live.registry)
    judged = TrackedExperiment.judge

    def beaten(self: TrackedExperiment, *args: Any, **kwargs: Any) -> Any:
        found = judged(self, *args, **kwargs)
        monkeypatch.undo()
        other.refresh(now=now() + SOON)
        return found

    monkeypatch.setattr(TrackedExperiment, "judge", beaten)
    live.experiments.refresh(now=now() + SOON)
    (asked,) = live.registry.proposals().items
    assert live.experiments.get(key).proposal == asked.id
    actions = [entry.action for entry in live.registry.audit(subject=NAME).items]
    assert actions.count("move.request") == actions.count("experiment.winner") == 1


def test_the_control_that_wins_keeps_its_label(world: Make) -> None:
    live = world(v1=0.8, v2=0.4)
    key = live.start(approval=True)
    live.serve(300)
    live.experiments.refresh(now=now() + SOON)
    found = live.experiments.get(key)
    assert (found.state, found.winner, found.proposal, live.label()) == ("winner", 1, None, 1)


def test_a_broken_guard_rail_takes_the_label_back(world: Make) -> None:
    """A new version is out already; the experiment watches it, and the label returns to the control."""
    live = world(v1=0.6, v2=0.6)
    live.registry.move_label(NAME, "production", 2, actor="ben")
    live.registry.protect(NAME, "production", actor="ben")
    guard = {"metric": "latency", "direction": "min", "high": 20, "window": 0, "limit": 0.5}
    key = live.start(author="ben", control=1, guards=[guard])
    live.serve(400, latency={1: 2.0, 2: 6.0})
    (found,) = live.experiments.refresh(now=now() + 1)
    assert (found.state, found.winner, live.label()) == ("rolled_back", None, 1)
    move = live.registry.moves(NAME, "production").items[0]
    assert (move.kind, move.actor, move.new) == ("rollback", f"experiment:{key}", 1)
    assert "breaks the guard-rail on latency" in move.reason
    assert found.verdict is not None
    assert found.verdict["guards"][0]["broken"] is True
    assert found.verdict["state"] == "rolled_back"


def test_one_of_several_arms_is_taken_out_and_the_others_go_on(world: Make) -> None:
    live = world(v1=0.5, v2=0.5, v3=0.5)
    guard = {"metric": "latency", "direction": "min", "high": 20, "window": 0, "limit": 0.5}
    live.start(arms=[{"version": v} for v in (1, 2, 3)], guards=[guard])
    live.serve(500, latency={1: 2.0, 2: 6.0, 3: 2.0})
    (found,) = live.experiments.refresh(now=now() + 1)
    assert found.state == "running"
    assert found.weights == (0.5, 0.0, 0.5)
    counts = live.serve(100, latency={1: 2.0, 2: 6.0, 3: 2.0})
    assert counts[2] == 0
    assert live.experiments.refresh(now=now() + 1)[0].revisions[-1].number == 2, "an arm breaks it once"
    status = live.experiments.status(found.id)
    assert status["now"]["left_out"]["mismatched"] == 0


def test_a_bandit_changes_the_shares_and_counts_stay_whole(world: Make) -> None:
    live = world(v1=0.4, v2=0.6)
    key = live.start(goal={"name": "thumb", "window": 0}, policy={"kind": "thompson", "units": 60})
    live.serve(60)
    (found,) = live.experiments.refresh(now=now() + 1)
    assert len(found.revisions) == 2
    assert 0.05 <= min(found.weights) < 0.5
    assert found.revisions[-1].reason == "thompson after 60 settled units"
    assert len(live.experiments.refresh(now=now() + 1)[0].revisions) == 2, "nothing new was settled"
    live.serve(40)
    arms = live.experiments.status(key)["now"]["arms"]
    assert sum(arm["assigned"] for arm in arms) == 100


def test_a_ramp_goes_up_step_by_step(world: Make) -> None:
    live = world(v1=0.5, v2=0.5)
    policy = {"kind": "ramp", "shares": [0.1, 0.3, 0.6], "units": 40}
    live.start(goal={"name": "thumb", "window": 0}, policy=policy)
    shares = []
    for _ in range(4):
        shares.append(live.experiments.assignments(NAME)[0]["arms"][1]["weight"])
        live.serve(40)
        live.experiments.refresh(now=now() + 1)
    assert shares == pytest.approx([0.1, 0.3, 0.6, 0.6])


def test_counts_are_folded_again_by_every_process_with_the_same_result(world: Make) -> None:
    live = world(v1=0.5, v2=0.6)
    key = live.start()
    other = Experiments(live.database, live.registry)
    for _ in range(4):
        live.serve(25)
        other.status(key, now=now())
    moment = now() + SOON
    mine = Experiments(live.database, live.registry).status(key, now=moment)
    assert other.status(key, now=moment) == mine
    assert sum(arm["metrics"]["thumb"]["with_outcome"] for arm in mine["now"]["arms"]) == 100


def test_feedback_that_comes_before_its_inference_is_counted(world: Make) -> None:
    live = world(v1=0.5, v2=0.5)
    key = live.start(goal={"name": "thumb", "window": 3600})
    (definition,) = live.experiments.assignments(NAME)
    late = Inference(NAME, version_for(definition, "u"), user="u", experiment=key, variant="1")
    live.traffic.add((), [Feedback("thumb", late.id, 1.0)])
    live.experiments.refresh()
    live.traffic.add([late])
    for known in (live.experiments, Experiments(live.database, live.registry)):
        arms = known.status(key, now=now() + SOON)["now"]["arms"]
        assert sum(arm["metrics"]["thumb"]["with_outcome"] for arm in arms) == 1


def test_scores_and_measured_values_are_metrics_by_name(world: Make) -> None:
    live = world(v1=0.5, v2=0.5)
    guards = [{"metric": "cost", "high": 1, "limit": 0.5}, {"metric": "error", "limit": 0.5}]
    key = live.start(goal={"name": "solved", "window": 0}, guards=guards, stratum="language")
    (definition,) = live.experiments.assignments(NAME)
    asked = [
        Inference(NAME, version_for(definition, f"u{n}"), user=f"u{n}", experiment=key, cost=0.25, variant="1",
                  error="timeout" if n % 2 else None, metadata={"language": "de"})
        for n in range(4)
    ]  # fmt: skip
    said = [Feedback("score", one.id, 1.0, name="solved") for one in asked]
    said += [Feedback("score", one.id, 0.0, name="other") for one in asked]
    live.traffic.add(asked, said)
    arms = live.experiments.status(key, now=now() + 1)["now"]["arms"]
    found = {name: [arm["metrics"][name] for arm in arms] for name in ("solved", "cost", "error")}
    assert sum(one["with_outcome"] for one in found["solved"]) == 4
    assert {one["mean"] for one in found["cost"] if one["with_outcome"]} == {0.25}
    assert sum(one["mean"] * one["with_outcome"] for one in found["error"] if one["mean"] is not None) == 2


def test_what_was_erased_is_not_counted_any_more(world: Make) -> None:
    live = world(v1=0.5, v2=0.5)
    key = live.start()
    live.serve(10)
    assert sum(arm["assigned"] for arm in live.experiments.status(key)["now"]["arms"]) == 10
    forget_user(live.traffic.database, "user-3", actor="root")
    assert sum(arm["assigned"] for arm in live.experiments.status(key)["now"]["arms"]) == 9


def test_the_page_gets_json_with_everything_on_it(world: Make) -> None:
    live = world(v1=0.2, v2=0.9)
    key = live.start(guards=[{"metric": "latency", "direction": "min", "high": 20, "window": 0, "limit": 5}])
    live.serve(60, latency={1: 2.0, 2: 2.0})
    found = live.experiments.status(key, now=now() + SOON)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    shown = found["now"]
    assert len(shown["posterior"]["grid"]) == len(shown["posterior"]["arms"]["2"]) == 101
    step = shown["posterior"]["grid"][1] - shown["posterior"]["grid"][0]
    assert sum(shown["posterior"]["arms"]["1"]) * step == pytest.approx(1, abs=0.03)
    arm = shown["arms"][1]
    assert arm["best_chance"] > 0.9
    thumb = arm["metrics"]["thumb"]
    assert thumb["interval"][0] < thumb["mean"] < thumb["interval"][1]
    assert thumb["mean_if_missing"] == [thumb["mean"], thumb["mean"]], "nobody's thumb is missing"
    assert shown["verdict"]["guards"][0]["broken"] is False
    empty = Experiments(live.database, live.registry).status(key, now=0)
    assert empty["now"]["arms"][0]["metrics"]["thumb"]["mean"] is None
    assert empty["now"]["arms"][0]["metrics"]["thumb"]["not_settled"] == empty["now"]["arms"][0]["assigned"]


def test_a_look_reads_what_is_new_and_nothing_again(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the plan of the database: no table is scanned, and each question begins after the last row that was read."""
    database, asked = open_database(sqlite_url), []
    monkeypatch.setattr(tracking, "_stream", lambda connection, query: asked.append(query) or iter(()))
    definition = read_definition(
        {"prompt": NAME, "label": "production", "arms": [{"version": 1}, {"version": 2}], "goal": "thumb"}
    )
    with database.read() as connection:
        list(tracking.experiment_events(connection, "id", definition, after=77))
        plans = []
        for query in asked:
            said = str(query.compile(dialect=sqlite.dialect(), compile_kwargs={"literal_binds": True}))
            plans.append([row.detail for row in connection.execute(text("EXPLAIN QUERY PLAN " + said))])
    database.close()
    assert len(plans) == 3
    assert not [step for plan in plans for step in plan if "SCAN" in step or "TEMP B-TREE" in step]
    assert all(re.search(r"(rowid|seq|joined)>\?", plan[0]) for plan in plans), plans


def test_what_is_counted_anew_is_read_by_its_own_answers(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the plan of the database: no table is scanned, and the first step is always the index of the experiment."""
    database, asked = open_database(sqlite_url), []
    monkeypatch.setattr(tracking, "_stream", lambda connection, query: asked.append(query) or iter(()))
    definition = read_definition(
        {"prompt": NAME, "label": "production", "arms": [{"version": 1}, {"version": 2}], "goal": "thumb"}
    )
    with database.read() as connection:
        list(tracking.experiment_events(connection, "id", definition, after=77, whole=True))
        plans = []
        for query in asked:
            said = str(query.compile(dialect=sqlite.dialect(), compile_kwargs={"literal_binds": True}))
            plans.append([row.detail for row in connection.execute(text("EXPLAIN QUERY PLAN " + said))])
    database.close()
    assert len(plans) == 2
    assert not [step for plan in plans for step in plan if "SCAN" in step]
    assert all("(experiment=?" in plan[0] for plan in plans), plans


def test_a_page_does_not_wait_for_a_long_counting(world: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a start it has no figures for a moment, after a deletion those of before."""
    live = world(v1=0.5, v2=0.5)
    key = live.start()
    live.serve(20)
    monkeypatch.setattr(tracking, "FEW", 19)
    fresh = Experiments(live.database, live.registry)
    assert fresh.cached_state(key) == (None, True)
    counted = fresh.status(key)
    assert fresh.cached_state(key) == (counted, False)
    forget_user(live.traffic.database, "user-7", actor="root")
    assert fresh.cached_state(key) == (fresh.status(key), False), "19 are few"
    monkeypatch.setattr(tracking, "FEW", 17)
    before = fresh.cached_state(key)[0]
    forget_user(live.traffic.database, "user-8", actor="root")
    assert fresh.cached_state(key) == (before, True)
    assert sum(arm["assigned"] for arm in fresh.status(key)["now"]["arms"]) == 18


def test_an_experiment_is_stopped_by_hand(world: Make) -> None:
    live = world(v1=0.5, v2=0.5)
    key = live.start()
    live.serve(5)
    found = live.experiments.stop(key, actor="ben", reason="a campaign starts")
    assert (found.state, found.reason, live.label()) == ("stopped", "a campaign starts", 1)
    with pytest.raises(UsageError, match="ended as stopped"):
        live.experiments.stop(key, actor="ben")
    live.start()
    assert [one.state for one in live.experiments.list(NAME).items] == ["running", "stopped"]
    page = live.experiments.list(NAME, limit=1)
    assert [one.state for one in live.experiments.list(NAME, before=page.after).items] == ["stopped"]
    assert [one.id for one in live.experiments.list(state="stopped").items] == [key]


def test_a_label_has_one_running_experiment(world: Make) -> None:
    live = world(v1=0.5, v2=0.5)
    live.start()
    with pytest.raises(UsageError, match="running on support/reply@production already"):
        live.start()
    live.registry.move_label(NAME, "staging", 2, actor="ann")
    live.start(label="staging")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"arms": [{"version": 1}, {"version": 9}]}, "no version 9"),
        ({"prompt": "support/other"}, "no prompt"),
        ({"label": "Production"}, "label"),
        ({"label": "latest"}, "latest"),
        (
            {"label": "staging"},
            'no label "staging". Put it on the control first.*promote .* 1 --label staging',
        ),
        ({"arms": [{"version": 2}, {"version": 3}]}, "stands on version 1, which is none of the arms"),
        ({"arms": [{"version": 1, "weight": 1}, {"version": 2, "weight": 1e-9}]}, "the least is 0.001"),
    ],
)
def test_what_does_not_exist_cannot_be_tried(
    without_experiments: World, settings: dict[str, Any], said: str
) -> None:
    live = without_experiments
    with pytest.raises(UsageError, match=said):
        live.start(**settings)
    assert live.experiments.list().items == []


def test_an_unknown_experiment_is_told(database: Database) -> None:
    with pytest.raises(UsageError, match='no experiment "x"'):
        Experiments(database, Registry(database)).status("x")


def test_two_processes_carry_a_decision_out_once(world: Make) -> None:
    """Both have looked before either acts."""
    live = world(v1=0.4, v2=0.8)
    live.start()
    live.serve(300)
    moment = now() + SOON
    second = Experiments(live.database, live.registry)
    original = second._decide

    def first_comes_first(*given: Any) -> None:
        live.experiments.refresh(now=moment)
        original(*given)

    second._decide = first_comes_first  # type: ignore[method-assign]
    (found,) = second.refresh(now=moment)
    assert found.state == "winner"
    assert [entry.action for entry in live.registry.audit(subject=NAME).items].count("experiment.winner") == 1
    assert len([m for m in live.registry.moves(NAME, "production").items if m.new == 2]) == 1


def test_a_failing_version_is_taken_back_at_once_by_a_guard_rail_that_is_named_only(world: Make) -> None:
    live = world(v1=0.5, v2=0.5)
    live.start(guards=[{"metric": "error", "limit": 0.05}])
    (definition,) = live.experiments.assignments(NAME)
    asked = []
    for n in range(200):
        version = version_for(definition, f"u{n}")
        error = "boom" if version == 2 else None
        one = Inference(NAME, version, user=f"u{n}", experiment=definition["id"], variant="1", error=error)
        asked.append(one)
    live.traffic.add(asked)
    (found,) = live.experiments.refresh(now=now() + 1)
    assert found.state == "rolled_back"
    assert "breaks the guard-rail on error" in str(found.reason)


@pytest.mark.parametrize("how", ["move", "rollback", "remove", "there and back"])
def test_a_label_that_somebody_moves_ends_the_experiment_at_once(world: Make, how: str) -> None:
    live = world(v1=0.4, v2=0.8)
    if how == "rollback":
        live.registry.move_label(NAME, "production", 2, actor="ann")
    key = live.start()
    live.serve(300)
    if how == "rollback":
        live.registry.rollback(NAME, "production", actor="ben", reason="complaints")
    elif how == "remove":
        live.registry.remove_label(NAME, "production", actor="ben")
    else:
        live.registry.move_label(NAME, "production", 3, actor="ben", reason="hotfix")
    if how == "there and back":
        live.registry.rollback(NAME, "production", actor="ben")
    standing = live.registry.labels(NAME).get("production")
    assert live.experiments.assignments(NAME) == [], "before anybody has looked"
    assert live.experiments.get(key).state == "running"
    (found,) = live.experiments.refresh(now=now() + SOON)
    assert (found.state, found.winner) == ("stopped", None)
    assert "by ben while the experiment ran" in str(found.reason)
    assert live.registry.labels(NAME).get("production") == standing, (
        "the winner does not undo what somebody did"
    )
    assert live.registry.proposals(state="open").items == []
    assert live.registry.verify_audit().whole


def test_a_new_experiment_needs_no_look_at_the_one_that_a_move_ended(world: Make) -> None:
    live = world(v1=0.5, v2=0.5)
    first = live.start()
    live.registry.move_label(NAME, "production", 3, actor="ben")
    second = live.start(arms=[{"version": 3}, {"version": 2}])
    assert live.experiments.get(first).state == "stopped"
    assert [one["id"] for one in live.experiments.assignments(NAME)] == [second]


def test_a_label_that_moves_while_a_decision_is_taken_stays_where_it_is(world: Make) -> None:
    """The hotfix comes after the look and before the decision is written."""
    live = world(v1=0.4, v2=0.8)
    key = live.start()
    live.serve(300)
    decide = live.experiments._decide

    def hotfix(*given: Any) -> bool:
        live.registry.move_label(NAME, "production", 3, actor="ben", reason="hotfix")
        return decide(*given)

    live.experiments._decide = hotfix  # type: ignore[method-assign]
    live.experiments.refresh(now=now() + SOON)
    assert live.label() == 3
    live.experiments.refresh(now=now() + SOON)
    assert (live.experiments.get(key).state, live.label()) == ("stopped", 3)


def test_an_experiment_that_takes_the_label_back_goes_on(world: Make) -> None:
    """Its own move is none that ends it."""
    live = world(v1=0.5, v2=0.5, v3=0.5)
    live.registry.move_label(NAME, "production", 2, actor="ben")
    guard = {"metric": "latency", "high": 20, "limit": 0.5}
    live.start(arms=[{"version": v} for v in (1, 2, 3)], control=1, guards=[guard])
    live.serve(500, latency={1: 2.0, 2: 6.0, 3: 2.0})
    live.experiments.refresh(now=now() + 1)
    assert live.label() == 1
    assert live.serve(50, latency={1: 2.0, 2: 6.0, 3: 2.0})[2] == 0
    assert live.experiments.refresh(now=now() + 1)[0].state == "running"


def test_nobody_shows_people_a_version_that_is_theirs_alone(world: Make) -> None:
    """On a protected label: by an experiment as little as by a move."""
    live = world(v1=0.5, v2=0.5)
    live.registry.protect(NAME, "production", actor="root")
    with pytest.raises(UsageError, match="ann wrote version 2, and production of support/reply is protected"):
        live.start()
    asked = live.registry.request_move(NAME, "staging", 2, actor="ann")
    live.registry.decide(asked.id, Decision("approve"), actor="ben")
    live.start()


def test_a_guard_rail_puts_a_protected_label_on_no_version_that_never_stood_there(world: Make) -> None:
    """One approver named a draft of somebody else the control, with a limit that the version in production must break."""
    live = world(v1=0.5, v2=0.5)
    live.registry.protect(NAME, "production", actor="root")
    guard = {"metric": "latency", "high": 20, "limit": 0.001, "against": "value"}
    with pytest.raises(UsageError, match="never stood on version 2, the control, where it goes when a guard"):
        live.start(author="ben", control=2, guards=[guard])
    live.registry.decide(
        live.registry.request_move(NAME, "production", 2, actor="ann").id, Decision("approve"), actor="ben"
    )
    live.start(author="ben", control=1, arms=[{"version": 1}, {"version": 2}], guards=[guard])
    live.serve(100, latency={1: 2.0, 2: 2.0})
    assert live.experiments.refresh(now=now() + 1)[0].state == "rolled_back" and live.label() == 1


def test_nor_where_the_label_was_protected_since(world: Make) -> None:
    live = world(v1=0.5, v2=0.5)
    guard = {"metric": "latency", "high": 20, "limit": 0.001, "against": "value"}
    live.start(author="ben", control=2, guards=[guard])
    live.registry.protect(NAME, "production", actor="root")
    live.serve(100, latency={1: 2.0, 2: 2.0})
    assert live.experiments.refresh(now=now() + 1)[0].state == "rolled_back" and live.label() == 1


def test_a_version_that_never_stood_on_a_protected_label_starts_with_an_equal_share_at_most(
    world: Make,
) -> None:
    live = world(v1=0.5, v2=0.5)
    live.registry.protect(NAME, "production", actor="root")
    heavy = [{"version": 1, "weight": 1}, {"version": 2, "weight": 9}]
    ramp = {"kind": "ramp", "shares": [0.05, 0.9]}
    for settings in ({"arms": heavy}, {"policy": ramp}):
        with pytest.raises(
            UsageError, match=r"never stood on version 2: the most .* is 50%, and this gives 90%"
        ):
            live.start(author="ben", **settings)
    live.start(author="ben", policy={"kind": "ramp", "shares": [0.05, 0.5]})
    live.registry.move_label(NAME, "staging", 1, actor="ann")
    live.start(label="staging", arms=heavy)


def test_one_that_fails_keeps_nobody_else_from_being_looked_at(
    world: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = world(v1=0.5, v2=0.5)
    live.registry.move_label(NAME, "staging", 1, actor="ann")
    guards = [{"metric": "error", "limit": 0.05}]
    keys = [live.start(label=label, guards=guards) for label in ("production", "staging")]
    definitions = {one["id"]: one for one in live.experiments.assignments(NAME)}
    live.traffic.add(
        Inference(NAME, version, user=f"{key}{n}", experiment=key, variant="1", error="boom" if version == 2 else None)
        for key in keys for n in range(200) for version in [version_for(definitions[key], f"{key}{n}")]
    )  # fmt: skip
    read_all = TrackedExperiment.read

    def broken(track: TrackedExperiment, moment: int) -> Any:
        if track.experiment == keys[0]:
            raise StorageError("the disk is full")
        return read_all(track, moment)

    with monkeypatch.context() as patch:
        patch.setattr(TrackedExperiment, "read", broken)
        with pytest.raises(StorageError, match="the disk is full"):
            live.experiments.refresh(now=now() + 1)
    assert [live.experiments.get(key).state for key in keys] == ["running", "rolled_back"]
    live.experiments.refresh(now=now() + 1)
    assert live.experiments.get(keys[0]).state == "rolled_back"


def test_what_could_not_be_carried_out_is_tried_again_at_the_next_look(
    world: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = world(v1=0.4, v2=0.8)
    key = live.start()
    live.serve(300)
    with monkeypatch.context() as patch:
        patch.setattr("whet_live.experiments.manager.put_label", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            live.experiments.refresh(now=now() + SOON)
    assert (live.experiments.get(key).state, live.label()) == ("running", 1)
    live.experiments.refresh(now=now() + SOON)
    assert (live.experiments.get(key).state, live.label()) == ("winner", 2)


def test_a_page_is_not_judged_anew_where_hardly_anything_was_added(
    world: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = world(v1=0.5, v2=0.5)
    key, judged = live.start(goal={"name": "thumb", "window": 0}), []
    original = tracking.judge
    monkeypatch.setattr(tracking, "judge", lambda *given: judged.append(given) or original(*given))
    live.serve(2000)
    first = live.experiments.status(key, now=now() + 1)
    live.experiments.refresh(now=now() + 1)
    live.serve(1)
    second = live.experiments.status(key, now=now() + 1)
    assert len(judged) == 1
    assert sum(arm["assigned"] for arm in second["now"]["arms"]) == 2001
    assert second["now"]["verdict"] == first["now"]["verdict"]
    live.serve(50)
    live.experiments.status(key, now=now() + 1)
    assert len(judged) == 2


def test_a_page_judges_what_is_new_and_gets_what_a_fresh_process_gets(world: Make) -> None:
    """What was judged before is gone on with: blocks that are full are not looked at again, and nothing differs for it."""
    live = world(v1=0.5, v2=0.52)
    guards = [{"metric": "latency", "high": 20, "limit": 0.5}]
    key = live.start(goal={"name": "thumb", "window": 0}, guards=guards, margin=0.01)
    for users in (1500, 1000, 30, 2):
        live.serve(users, latency={1: 2.0, 2: 2.1})
        seen = live.experiments.status(key, now=now() + 1)
        live.experiments.refresh(now=now() + 1)
    moment = now() + 1
    live.serve(10, latency={1: 2.0, 2: 2.1})
    seen = live.experiments.status(key, now=moment)
    assert seen == Experiments(live.database, live.registry).status(key, now=moment)
    forget_user(live.traffic.database, "user-7", actor="root")
    seen = live.experiments.status(key, now=moment)
    assert sum(arm["assigned"] for arm in seen["now"]["arms"]) == 2541
    assert seen == Experiments(live.database, live.registry).status(key, now=moment)


def test_a_page_is_served_while_the_experiment_is_being_judged(
    world: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was known before is shown, also to somebody who asks from within the judgement."""
    live = world(v1=0.5, v2=0.5)
    key = live.start(goal={"name": "thumb", "window": 0})
    live.serve(20)
    before = live.experiments.status(key, now=now() + 1)
    live.serve(20)
    original, seen = tracking.judge, []

    def asking(*given: Any) -> Any:
        seen.append(live.experiments.status(key, now=now() + 1))
        return original(*given)

    monkeypatch.setattr(tracking, "judge", asking)
    live.experiments.refresh(now=now() + 1)
    (during,) = seen
    assert during["now"]["verdict"] == before["now"]["verdict"]
    assert sum(arm["assigned"] for arm in during["now"]["arms"]) == 40


def test_the_learner_tries_what_it_wrote_with_an_equal_share_at_most(world: Make) -> None:
    """Also on a protected label, whose winner waits for a person."""
    live = world(v1=0.4, v2=0.8)
    live.registry.create(NAME, Prompt.parse("Answer four.\n{{question}}"), author="learner")
    live.registry.protect(NAME, "production", actor="root")
    arms = [{"version": 1, "weight": 1}, {"version": 4, "weight": 3}]
    with pytest.raises(UsageError, match="gives 75%"):
        live.start(author="learner", arms=arms)
    live.start(author="learner", arms=[{"version": 1}, {"version": 4}])


def test_a_name_that_is_almost_another_is_refused_until_such_a_score_was_sent(world: Make) -> None:
    live = world(v1=0.5, v2=0.5)
    with pytest.raises(
        UsageError, match=r'a score named "thumbs" about support/reply yet\. Did you mean "thumb"\?'
    ):
        live.start(goal="thumbs")
    asked = Inference(NAME, 1)
    live.traffic.add([asked], [Feedback("score", asked.id, 1.0, name="thumbs")])
    live.start(goal="thumbs")
    live.experiments.stop(live.experiments.list(NAME).items[0].id, actor="ann")
    live.start(goal="politeness", guards=[{"metric": "error", "limit": 0.1}])
