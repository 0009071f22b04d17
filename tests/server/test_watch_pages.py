"""The page of an experiment after its end: what was known when it was decided, and the watch that follows."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.server.conftest import Running, Start
from tests.server.test_pages import said
from whet.prompt import Prompt
from whet_client.assignment import version_for
from whet_client.ids import now
from whet_client.records import Feedback, Inference

NAME = "shop/help"
ASKED: dict[str, Any] = {
    "prompt": NAME,
    "label": "production",
    "arms": [{"version": 1}, {"version": 2}],
    "unit": "user",
    "goal": {"name": "thumb", "window": 0},
    "guards": [{"metric": "error", "limit": 0.05}],
    "approval": False,
    "cycles": 0,
    "watch": {"seconds": 7200, "units": 5000, "holdout": 0.2},
}


def serve(server: Running, users: range, failing: float = 0.0) -> None:
    """One answer for each user; most people like version 2, which may fail."""
    live, rng = server.state.live, np.random.default_rng(2)
    (definition,) = live.experiments.assignments(NAME)
    shown, told = [], []
    for n in users:
        version = version_for(definition, f"user-{n}")
        error = "boom" if version == 2 and rng.random() < failing else None
        one = Inference(NAME, version, user=f"user-{n}", experiment=definition["id"], error=error,
                        variant=str(definition["revision"]))  # fmt: skip
        shown.append(one)
        told.append(Feedback("thumb", one.id, float(rng.random() < (0.2 if version == 1 else 0.9))))
    live.traffic.add(shown, told)
    live.experiments.refresh(now=now() + 1)


def test_a_winner_its_watch_and_the_way_back_are_shown(start: Start) -> None:
    with start() as server:
        live = server.state.live
        for words in ("one", "two"):
            live.registry.create(NAME, Prompt.parse(f"Answer {words}."), author="ann")
        live.registry.move_label(NAME, "production", 1, actor="ann")
        key = live.experiments.create(ASKED, author="ann").id
        viewer = server.browser("viewer")
        early = said(viewer.page(f"/experiments/{key}"))
        assert "its guard-rails are watched for 2 h 0 min or 5,000 settled units, 20% held out" in early
        serve(server, range(200))
        watch = str(live.experiments.get(key).watch)
        won = viewer.page(f"/experiments/{key}")
        assert f"/experiments/{watch}" in won.text
        reached = live.experiments.status(key)["now"]["verdict"]["effects"][1]["reached"]
        assert f"When the evidence was largest, after {reached['n']:,} units: version 2" in said(won)
        running = said(viewer.page(f"/experiments/{watch}"))
        for part in ("Watches the guard-rails of the version that won", "or 5,000 settled units",
                     "20% of the units still get version 1", "whether the winner breaks a guard-rail"):  # fmt: skip
            assert part in running, part
        assert "Chance of a wrong winner" not in running
        serve(server, range(1000, 1500), failing=0.5)
        broken = said(viewer.page(f"/experiments/{watch}"))
        for part in (
            "rolled back",
            "Version 2 breaks the guard-rail on error",
            "When it was largest, after",
            "20% of the units got version 1",
        ):
            assert part in broken, part
        assert live.registry.labels(NAME)["production"] == 1
        assert "watch" in said(viewer.page("/experiments"))
        assert "experiment.watch" in said(viewer.page("/audit"))


def test_a_watch_that_waits_for_an_approval_says_so(start: Start) -> None:
    with start() as server:
        live = server.state.live
        for words in ("one", "two"):
            live.registry.create(NAME, Prompt.parse(f"Answer {words}."), author="ann")
        live.registry.move_label(NAME, "production", 1, actor="ann")
        key = live.experiments.create(ASKED | {"approval": True}, author="ann").id
        serve(server, range(200))
        viewer = server.browser("viewer")
        page = said(viewer.page(f"/experiments/{key}"))
        assert "The move of the label waits for  an approval" in page
        assert "When the label has moved, its guard-rails are watched on." in page
        (alert,) = live.quality.alerts(NAME).items
        assert alert.kind == "approval" and "version 2 won the experiment" in alert.text
        first = said(viewer.page("/"))
        assert "Version 2 is better on thumb" in first and "Noticed" not in first, "it is said once"
