"""Several servers whose clocks differ by minutes, on one PostgreSQL: what they share goes by the clock of the database."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from whet.prompt import Prompt
from whet_client.assignment import version_for
from whet_client.records import Feedback, Inference
from whet_live import Live, open_live
from whet_live.learner.leases import acquire, release

NAME = "shop/help"
_real = time.time_ns


@contextmanager
def clock_ahead(minutes: float) -> Iterator[None]:
    """What is done in the block is done by a server whose clock is ahead by so many minutes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "time_ns", lambda: _real() + int(minutes * 60e9))
        yield


@pytest.fixture
def servers(postgresql_url: str) -> Iterator[tuple[Live, Live]]:
    """Two servers' own ways to one database."""
    with open_live(postgresql_url) as first, open_live(postgresql_url) as second:
        first.registry.create(NAME, Prompt.parse("Help."), author="ann", label="production")
        first.registry.create(NAME, Prompt.parse("Help in one line."), author="ann")
        yield first, second


@pytest.mark.parametrize("minutes", [-5, 5], ids=["behind", "ahead"])
def test_a_server_whose_clock_differs_takes_no_lease_of_another_one(
    servers: tuple[Live, Live], minutes: int
) -> None:
    """One that is ahead would take every lease at once, and both would pay for the same work; what one that is behind holds
    would be over before it began."""
    first, second = servers[0].database, servers[1].database
    mine = acquire(first, "learn desk")
    assert mine is not None
    with clock_ahead(minutes):
        assert acquire(second, "learn desk") is None
        release(first, mine)
        assert acquire(second, "learn desk") is not None
    assert acquire(first, "learn desk") is None


def test_rows_are_received_in_the_order_in_which_they_are_stored(servers: tuple[Live, Live]) -> None:
    for number, server in enumerate([*servers, *servers]):
        with clock_ahead(-5.0 * (number % 2)):
            server.traffic.add([Inference(NAME, 1, id=f"a{number}")])
    rows = sorted(servers[0].traffic.inferences().rows, key=lambda row: row.seq)
    assert [row.inference.id for row in rows] == ["a0", "a1", "a2", "a3"]
    assert [row.received for row in rows] == sorted(row.received for row in rows)


def start_experiment(live: Live, window: int) -> dict[str, object]:
    """An experiment of two versions whose thumbs count for some seconds after an answer; its assignment."""
    live.experiments.create(
        {
            "prompt": NAME, "label": "production", "arms": [{"version": 1}, {"version": 2}], "unit": "user",
            "cycles": 0, "goal": {"name": "thumb", "window": window},
        },
        author="ann",
    )  # fmt: skip
    (assigned,) = live.experiments.assignments(NAME)
    return dict(assigned)


def log_answer(live: Live, assigned: dict[str, object], user: str) -> str:
    """An answer of the version that a user is to see; its id."""
    shown = Inference(
        NAME, version_for(assigned, user), user=user, experiment=str(assigned["id"]), variant=str(assigned["revision"])
    )  # fmt: skip
    live.traffic.add([shown])
    return shown.id


def test_a_thumb_counts_whichever_server_takes_the_answer_and_which_the_thumb(
    servers: tuple[Live, Live],
) -> None:
    behind, right = servers
    assigned = start_experiment(right, window=60)
    for n in range(4):
        with clock_ahead(-5):
            key = log_answer(behind, assigned, f"u{n}")
        right.traffic.add([], [Feedback("thumb", key, 1.0, user=f"u{n}")])
    found = right.experiments.status(str(assigned["id"]))["now"]
    assert found["left_out"]["late"] == 0


def test_a_server_whose_clock_is_ahead_closes_no_window_early(servers: tuple[Live, Live]) -> None:
    right, ahead = servers
    assigned = start_experiment(right, window=120)
    for n in range(4):
        log_answer(right, assigned, f"u{n}")
    with clock_ahead(5):
        ahead.experiments.refresh()
        found = ahead.experiments.status(str(assigned["id"]))["now"]
    assert sum(arm["metrics"]["thumb"]["settled"] for arm in found["arms"]) == 0
