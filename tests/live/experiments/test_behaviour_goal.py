"""What people do, as the goal of an experiment: fitted once to ratings, then decided without any."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from whet.errors import UsageError
from whet.prompt import Prompt
from whet_client.assignment import assign, version_for
from whet_client.ids import now
from whet_client.records import Feedback, Inference
from whet_live.database import Database
from whet_live.experiments import Experiments
from whet_live.experiments.definition import read_definition
from whet_live.experiments.metrics import read_reward
from whet_live.experiments.reducer import (
    MICROSECONDS,
    Event,
    ExperimentReducer,
    Exposure,
    MetricOutcome,
    Revision,
)
from whet_live.registry import Registry
from whet_live.traffic.dataset import behaviour_of
from whet_live.traffic.traffic_store import Traffic

NAME = "support/reply"
SOON = 10**9 * MICROSECONDS
ONE = {"value": 0.0, "low": 0.0, "high": 0.0}
REWARD = {
    "weights": [
        {"feature": "copy", "mean": 0.0, "scale": 1.0, "weight": ONE | {"value": math.log(3)}, "naive": ONE, "rates": 0.0}
    ],
    "intercept": 0.0, "answers": 2, "rated": 2, "sources": 2, "naive": ONE, "corrected": ONE, "hidden": [0.0, 1.0],
    "explained": 1.0, "effective": 2.0, "warnings": [],
}  # fmt: skip
"""Nothing done: odds of 1, a reward of 1/2. Copied as a whole: odds of 3, a reward of 3/4."""


def fold_of(*events: Event) -> ExperimentReducer:
    goal = {"name": "behaviour", "window": 60, "reward": REWARD}
    asked = {"prompt": "p", "label": "production", "arms": [{"version": 1}, {"version": 2}], "goal": goal}
    found = ExperimentReducer(read_definition(asked), "salt", (Revision(1, 0, (0.5, 0.5)),))
    for event in events:
        found.apply(event)
    return found


def answer(at: int, unit: str) -> tuple[Event, Event]:
    """An exposure and the answer that comes with it, as the store tells of them."""
    version, key = assign("salt", unit, [(1, 0.5), (2, 0.5)]), f"{unit}-{at}"
    return Exposure(at * MICROSECONDS, key, unit, version, 1), MetricOutcome(
        at * MICROSECONDS, key, "behaviour", 0.0
    )


def copied(at: int, inference: str) -> MetricOutcome:
    return MetricOutcome(at * MICROSECONDS, inference, "behaviour", 1.0, "copy")


def test_a_unit_is_worth_the_mean_of_its_answers() -> None:
    fold = fold_of(
        *answer(0, "a"),
        *answer(1, "a"),
        copied(5, "a-1"),
        *answer(2, "b"),
        *answer(3, "c"),
        copied(70, "c-3"),
    )
    found = fold.sample("behaviour", 100 * MICROSECONDS).values
    assert found.tolist() == pytest.approx([(0.5 + 0.75) / 2, 0.5, 0.5])
    assert fold.counts.late == 1, "c was copied after its window"


def test_what_is_heard_late_of_an_early_signal_is_put_right() -> None:
    fold = fold_of(*answer(0, "a"))
    assert fold.sample("behaviour", 60 * MICROSECONDS).values.tolist() == [0.5]
    fold.apply(copied(59, "a-0"))
    assert fold.sample("behaviour", 60 * MICROSECONDS).values.tolist() == pytest.approx([0.75])


class World:
    """A prompt with two versions; who likes an answer copies it, and few people rate."""

    def __init__(self, database: Database) -> None:
        self.registry, self.traffic = Registry(database), Traffic(database)
        self.experiments = Experiments(database, self.registry)
        self.rng = np.random.default_rng(3)
        for words in ("one", "two"):
            self.registry.create(NAME, Prompt.parse(f"Answer {words}."), author="ann")
        self.registry.move_label(NAME, "production", 1, actor="ann")

    def history(self, rated: int) -> None:
        """Answers before the experiment, that many of them rated."""
        asked = [Inference(NAME, 1, user=f"old-{n}") for n in range(rated + 40)]
        said = []
        for n, one in enumerate(asked):
            liked = bool(self.rng.random() < 0.5)
            said += [Feedback("copy", one.id, 1.0, user=one.user)] if liked else []
            said += [Feedback("thumb", one.id, float(liked), user=one.user)] if n < rated else []
        self.traffic.add(asked, said)

    def create(self, **more: Any) -> Any:
        arms = [{"version": 1}, {"version": 2}]
        asked = {"prompt": NAME, "label": "production", "arms": arms, "unit": "user", "approval": False}
        return self.experiments.create(asked | {"goal": "behaviour"} | more, author="ann")

    def serve(self, users: int, copies: dict[int, float]) -> None:
        """New users, who never rate."""
        (definition,) = self.experiments.assignments(NAME)
        asked, said = [], []
        for n in range(users):
            version = version_for(definition, f"new-{n}")
            one = Inference(NAME, version, user=f"new-{n}", experiment=definition["id"], variant="1")
            asked.append(one)
            if self.rng.random() < copies[version]:
                said.append(Feedback("copy", one.id, 1.0, user=one.user))
        self.traffic.add(asked, said)


def test_a_version_wins_by_what_people_do_when_nobody_rates(database: Database) -> None:
    live = World(database)
    live.history(rated=80)
    found = live.create()
    fitted = behaviour_of(database, NAME)
    assert found.definition.goal.reward == json.loads(json.dumps(fitted.as_json())), "kept as it was fitted"
    live.serve(400, {1: 0.3, 2: 0.7})
    told = live.experiments.status(found.id, now=now() + SOON)
    first, second = (arm["metrics"]["behaviour"] for arm in told["now"]["arms"])
    assert first["without_outcome"] == second["without_outcome"] == 0, "no signal is a signal"
    low, high = fitted.reward({}), fitted.reward({"copy": 1.0})
    assert low < first["mean"] < second["mean"] < high
    (ended,) = live.experiments.refresh(now=now() + SOON)
    assert (ended.state, ended.winner, live.registry.labels(NAME)["production"]) == ("winner", 2, 2)


def test_a_score_of_that_name_is_no_signal(database: Database) -> None:
    live = World(database)
    live.history(rated=80)
    found = live.create()
    (definition,) = live.experiments.assignments(NAME)
    one = Inference(NAME, version_for(definition, "u"), user="u", experiment=found.id, variant="1")
    said = [Feedback("score", one.id, 1.0, name=name) for name in ("behaviour", "copy")]
    live.traffic.add([one], said)
    arms = live.experiments.status(found.id, now=now() + SOON)["now"]["arms"]
    (mean,) = [
        arm["metrics"]["behaviour"]["mean"] for arm in arms if arm["metrics"]["behaviour"]["with_outcome"]
    ]
    model = read_reward(found.definition.goal.reward or {})
    assert mean == pytest.approx(model.reward({}))
    assert model.reward({}) < 0.5 < model.reward({"copy": 1.0})


def test_later_ratings_do_not_change_a_running_experiment(database: Database) -> None:
    live = World(database)
    live.history(rated=80)
    found = live.create(guards=[{"metric": "behaviour", "limit": 0.1}])
    live.history(rated=200)
    assert behaviour_of(database, NAME).rated == 280
    assert (found.definition.goal.reward or {})["rated"] == 80
    again = live.experiments.get(found.id).definition
    assert again == found.definition and again.guards[0].metric == again.goal


def test_a_reward_that_cannot_be_had_is_refused(database: Database) -> None:
    live = World(database)
    live.history(rated=10)
    with pytest.raises(UsageError, match=r'"behaviour" cannot be used yet\. 10 of 50 answers are rated'):
        live.create()
    weight = REWARD["weights"][0]  # type: ignore[index]
    broken: list[dict[str, Any]] = [
        {"weights": []},
        REWARD | {"intercept": math.nan},
        REWARD | {"hidden": ["a", "b"]},
        REWARD | {"weights": [weight, weight]},
        REWARD | {"weights": [weight | {"feature": "luck"}]},
        REWARD | {"weights": [weight | {"scale": 0.0}]},
        REWARD | {"warnings": [1]},
    ]
    for reward in broken:
        with pytest.raises(UsageError, match=r"cannot be read\. Leave it out"):
            live.create(goal={"name": "behaviour", "reward": reward})
    for more, told in (({"window": 0}, "nobody has done anything"), ({"missing": 0.5}, "no missing"),
                       ({"direction": "min"}, "more of it is better")):  # fmt: skip
        with pytest.raises(UsageError, match=told):
            live.create(goal={"name": "behaviour", "reward": REWARD} | more)
    with pytest.raises(UsageError, match='"thumb" takes no reward'):
        live.create(goal={"name": "thumb", "reward": REWARD})
    assert live.experiments.list(NAME).items == []
