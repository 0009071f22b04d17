"""The watch on a winner's guard-rails: from the label's move to a way back, an end, or somebody's own move."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pytest
from sqlalchemy import select

from whet.errors import UsageError
from whet.prompt import Prompt
from whet_client.assignment import version_for
from whet_client.ids import now
from whet_client.records import Feedback, Inference
from whet_live.database import Database
from whet_live.experiments import Experiment, Experiments
from whet_live.experiments.definition import Watch, read_definition
from whet_live.experiments.experiment_tables import experiments
from whet_live.experiments.rollout_monitor import build_watch
from whet_live.registry import Decision, Registry
from whet_live.traffic.traffic_store import Traffic

NAME = "support/reply"
DAY = 86_400 * 10**6
GUARD = {"metric": "error", "limit": 0.05}
FIXED = {"metric": "latency", "high": 20, "against": "value", "limit": 4.0}
ASKED: dict[str, Any] = {
    "prompt": NAME,
    "label": "production",
    "arms": [{"version": 1}, {"version": 2}],
    "unit": "user",
    "goal": {"name": "thumb", "window": 0},
    "guards": [GUARD],
    "approval": False,
    "cycles": 0,
}


class World:
    """A prompt with three versions, and users of whom some come back."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.registry, self.traffic = Registry(database), Traffic(database)
        self.experiments = Experiments(database, self.registry)
        self.rng = np.random.default_rng(1)
        for words in ("one", "two", "three"):
            self.registry.create(NAME, Prompt.parse(f"Answer {words}."), author="ann")
        self.registry.move_label(NAME, "production", 1, actor="ann")

    def won(self, **settings: Any) -> Experiment:
        """An experiment that version 2 has won."""
        key = self.experiments.create(ASKED | settings, author="ann").id
        self.serve(range(200), {1: 0.0, 2: 0.0}, up={1: 0.2, 2: 0.9})
        self.experiments.refresh(now=now() + 1)
        found = self.experiments.get(key)
        assert (found.state, found.winner) == ("winner", 2)
        return found

    def serve(
        self,
        users: Iterable[int],
        failing: dict[int, float],
        latency: float | None = None,
        up: dict[int, float] | None = None,
    ) -> dict[int, int]:
        """One answer for each user, as the app assigns it; how many saw which version."""
        (definition,) = self.experiments.assignments(NAME)
        asked, said, counts = [], [], {1: 0, 2: 0, 3: 0}
        for n in users:
            version = version_for(definition, f"user-{n}")
            counts[version] += 1
            error = "boom" if self.rng.random() < failing[version] else None
            one = Inference(NAME, version, user=f"user-{n}", experiment=definition["id"], error=error,
                            latency=latency, variant=str(definition["revision"]))  # fmt: skip
            asked.append(one)
            said += [Feedback("thumb", one.id, float(self.rng.random() < up[version]))] if up else []
        self.traffic.add(asked, said)
        return counts

    def watch(self, found: Experiment) -> Experiment:
        """The watch on a winner."""
        return self.experiments.get(str(self.experiments.get(found.id).watch))

    def look(self, watch: Experiment, later: int = 1) -> Experiment:
        """The watch after a look."""
        self.experiments.refresh(now=now() + later)
        return self.experiments.get(watch.id)

    def label(self) -> int:
        return self.registry.labels(NAME)["production"]


@pytest.fixture
def live(database: Database) -> Iterator[World]:
    yield World(database)


def test_a_winner_is_watched_with_a_small_share_for_the_control(live: World) -> None:
    won = live.won()
    watch = live.watch(won)
    assert (watch.state, watch.watches, watch.weights, live.label()) == ("running", won.id, (0.1, 0.9), 2)
    assert watch.salt != won.salt, "whoever was in the experiment is drawn anew"
    counts = live.serve(range(200), {1: 0.0, 2: 0.0})
    assert 5 < counts[1] < 40 and counts[3] == 0
    told = live.experiments.status(watch.id, now=now() + 1)
    assert sum(arm["assigned"] for arm in told["now"]["arms"]) == 200, "also those who were there before"
    assert told["now"]["verdict"]["reason"].startswith("No guard-rail is shown to be broken.")
    (entry,) = [one for one in live.registry.audit(subject=NAME).items if one.action == "experiment.watch"]
    assert (entry.actor, entry.details["experiment"]) == (f"experiment:{won.id}", watch.id)


def test_harm_after_the_move_takes_the_label_back(live: World) -> None:
    watch = live.watch(live.won())
    live.serve(range(1000, 1600), {1: 0.0, 2: 0.5})
    found = live.look(watch)
    assert (found.state, live.label(), live.experiments.assignments(NAME)) == ("rolled_back", 1, [])
    assert found.verdict is not None
    assert (found.verdict["state"], found.verdict["guards"][0]["broken"]) == ("rolled_back", True)
    move = live.registry.moves(NAME, "production").items[0]
    assert (move.kind, move.actor, move.old, move.new) == ("rollback", f"experiment:{watch.id}", 2, 1)
    assert "Version 2 breaks the guard-rail on error" in move.reason
    assert "experiment.guard" in [one.action for one in live.registry.audit(subject=NAME).items]
    assert live.registry.verify_audit().whole


def test_a_watch_without_harm_ends_when_its_time_is_over_and_settled(live: World) -> None:
    guard = GUARD | {"window": 3600}
    watch = live.watch(live.won(guards=[guard]))
    live.serve(range(1000, 1100), {1: 0.0, 2: 0.0})
    hour = DAY // 24
    assert live.look(watch, later=DAY).state == "running", "the outcomes of the last hour are to come"
    found = live.look(watch, later=DAY + hour)
    assert (found.state, live.label(), live.experiments.assignments(NAME)) == ("passed", 2, [])
    assert str(found.reason).startswith("The watch is over. No guard-rail is shown to be broken.")
    assert (found.verdict or {})["state"] == "passed"
    assert live.experiments.refresh() == []


def test_a_watch_that_saw_nothing_to_compare_has_not_passed(live: World) -> None:
    watch = live.watch(live.won(guards=[GUARD, FIXED]))
    found = live.look(watch, later=2 * DAY)
    assert (found.state, live.label(), live.experiments.assignments(NAME)) == ("unmeasured", 2, [])
    assert str(found.reason).startswith("The watch is over, and nothing was measured")
    assert "error and latency" in str(found.reason)
    assert "experiment.unmeasured" in [one.action for one in live.registry.audit(subject=NAME).items]


def test_a_watch_names_the_guard_rails_that_it_could_not_measure(live: World) -> None:
    watch = live.watch(live.won(guards=[GUARD, FIXED]))
    live.serve(range(1000, 1100), {1: 0.0, 2: 0.0})
    found = live.look(watch, later=2 * DAY)
    assert found.state == "passed" and str(found.reason).endswith(
        "Not measured, for want of outcomes: latency."
    )


def test_a_watch_without_units_of_the_control_has_compared_nothing(live: World) -> None:
    watch = live.watch(live.won(watch={"holdout": 0.01}))
    (definition,) = live.experiments.assignments(NAME)
    users = [n for n in range(1000, 1100) if version_for(definition, f"user-{n}") == 2]
    assert live.serve(users[:2], {1: 0.0, 2: 0.0})[1] == 0
    assert live.look(watch, later=2 * DAY).state == "unmeasured"


def test_a_watch_ends_after_as_many_units_as_were_asked(live: World) -> None:
    watch = live.watch(live.won(watch={"units": 150, "holdout": 0.2}))
    assert watch.weights == (0.2, 0.8)
    live.serve(range(1000, 1140), {1: 0.0, 2: 0.0})
    assert live.look(watch).state == "running"
    live.serve(range(1140, 1150), {1: 0.0, 2: 0.0})
    assert live.look(watch).state == "passed"


@pytest.mark.parametrize("how", ["move", "rollback"])
def test_whoever_moves_the_label_ends_the_watch(live: World, how: str) -> None:
    watch = live.watch(live.won())
    live.serve(range(1000, 1600), {1: 0.0, 2: 0.5})
    if how == "move":
        live.registry.move_label(NAME, "production", 3, actor="ben", reason="hotfix")
    else:
        live.registry.rollback(NAME, "production", actor="ben")
    assert live.experiments.assignments(NAME) == [], "before anybody has looked"
    found = live.look(watch)
    assert (found.state, live.label()) == ("stopped", 3 if how == "move" else 1)
    assert "by ben while the watch ran" in str(found.reason)


def test_the_next_experiment_ends_the_watch(live: World) -> None:
    watch = live.watch(live.won())
    after = live.experiments.create(ASKED | {"arms": [{"version": 2}, {"version": 3}]}, author="ben")
    found = live.experiments.get(watch.id)
    assert (found.state, found.reason) == ("stopped", "ben started another experiment on production.")
    assert [one["id"] for one in live.experiments.assignments(NAME)] == [after.id]


def test_without_a_hold_out_only_fixed_limits_are_watched(live: World) -> None:
    watch = live.watch(live.won(guards=[GUARD, FIXED], watch={"holdout": 0}))
    assert [guard.metric.name for guard in watch.definition.guards] == ["latency"]
    assert live.serve(range(1000, 1200), {1: 0.0, 2: 0.0}, latency=9.0)[1] == 0
    assert (live.look(watch).state, live.label()) == ("rolled_back", 1)


def test_there_is_no_watch_where_there_is_nothing_to_watch() -> None:
    guards = {"guards": [GUARD]}
    assert build_watch(read_definition(ASKED | guards), 2) is not None
    for settings in (
        {"watch": None} | guards,
        {"watch": {"holdout": 0}} | guards,
        {"guards": []},
        {"control": 2, **guards},
    ):
        assert build_watch(read_definition(ASKED | settings), 2) is None, settings


def test_what_was_asked_before_there_were_watches_is_followed_by_none(live: World) -> None:
    key = live.experiments.create(ASKED, author="ann").id
    with live.database.begin() as connection:
        mine = experiments.c.id == key
        old = dict(connection.execute(select(experiments.c.definition).where(mine)).scalar_one())
        del old["watch"]
        connection.execute(experiments.update().where(mine).values(definition=old))
    assert live.experiments.get(key).definition.watch is None


def test_no_watch_is_begun_without_guard_rails(live: World) -> None:
    won = live.won(guards=[])
    assert (won.watch, live.experiments.assignments(NAME), live.label()) == (None, [], 2)


def test_a_winner_that_needs_an_approval_is_watched_from_then_on(live: World) -> None:
    won = live.won(approval=True)
    assert (won.watch, live.experiments.assignments(NAME), live.label()) == ("waiting", [], 1)
    assert live.experiments.refresh()[0].watch == "waiting"
    live.registry.decide(str(won.proposal), Decision("approve"), actor="ben")
    assert live.label() == 2
    live.experiments.refresh()
    watch = live.watch(won)
    assert (watch.state, watch.watches) == ("running", won.id)
    live.serve(range(1000, 1600), {1: 0.0, 2: 0.5})
    assert (live.look(watch).state, live.label()) == ("rolled_back", 1)


@pytest.mark.parametrize("how", ["rejected", "moved"])
def test_a_winner_that_is_not_approved_is_not_watched(live: World, how: str) -> None:
    won = live.won(approval=True)
    if how == "rejected":
        live.registry.decide(str(won.proposal), Decision("reject", reason="not now"), actor="ben")
    else:
        live.registry.move_label(NAME, "production", 2, actor="ben")
    live.experiments.refresh()
    assert live.experiments.get(won.id).watch is None
    assert live.experiments.assignments(NAME) == []
    assert live.experiments.refresh() == []


def test_two_servers_begin_one_watch(live: World) -> None:
    won = live.won(approval=True)
    live.registry.decide(str(won.proposal), Decision("approve"), actor="ben")
    other = Experiments(live.database, live.registry)
    change, calls = live.registry.change, []

    def beaten() -> Any:
        if not calls:
            calls.append(1)
            other.refresh()
        return change()

    live.registry.change = beaten  # type: ignore[method-assign]
    live.experiments.refresh()
    first, second = live.experiments.list(NAME).items
    assert (first.watches, second.watch, first.state) == (won.id, first.id, "running")


@pytest.mark.parametrize(
    ("watch", "told"),
    [
        ({"seconds": 0}, "watch: seconds is 0"),
        ({"holdout": 0.6}, "holdout must be at least 0 and at most 0.5; this is 0.6"),
        ({"units": 0}, "watch: units must be a whole number of 1 or more"),
        ({"hold": 0.1}, 'watch has no key "hold"'),
        ({"seconds": math.inf}, "watch: seconds must be a number"),
    ],
)
def test_a_watch_that_cannot_be_is_refused(watch: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        read_definition(ASKED | {"watch": watch})


def test_a_day_with_a_tenth_held_out_is_the_default() -> None:
    assert read_definition(ASKED).watch == Watch(86_400.0, 0.1, None)
    assert read_definition(ASKED | {"watch": None}).watch is None
    assert read_definition(read_definition(ASKED | {"watch": {"units": 9}}).to_json()).watch == Watch(
        86_400.0, 0.1, 9
    )
