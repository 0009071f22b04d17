"""Several servers whose clocks differ by minutes, on one PostgreSQL: what they share goes by the clock of the database."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import select
from tests.distributions import PACKAGES

from whet.prompt import Prompt
from whet.prompt.events import Add
from whet_client.assignment import version_for
from whet_client.records import Feedback, Inference
from whet_live import Live, open_live
from whet_live.database import iso, metadata, microseconds
from whet_live.learner import EvaluatorConfig, LearnerConfig
from whet_live.learner.evaluation import evaluate_answers
from whet_live.learner.learner_store import LearnerSettings
from whet_live.learner.leases import acquire, release
from whet_live.quality.delivery import deliver_due
from whet_live.registry import Decision, PromptEdit
from whet_live.server.access import Access, digest_secret
from whet_live.server.roles import Role

NAME = "shop/help"
_real = time.time_ns
HOUR, YEAR = 3_600_000_000, 366 * 24 * 3_600_000_000


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


def make_task(folder: Path) -> Path:
    """A task whose reward finds fault with every answer."""
    folder.mkdir()
    (folder / "data.jsonl").write_text(
        "\n".join(json.dumps({"id": f"r{n}", "input": f"q{n}"}) for n in range(12))
    )
    (folder / "prompt.md").write_text("Answer {{input}}.")
    (folder / "reward.py").write_text("def reward(example, output):\n    return 0.0\n")
    (folder / "task.yaml").write_text(
        "name: strict\nprompt: prompt.md\ndata: data.jsonl\nreward: reward.py\n"
    )
    return folder


def change_everything(live: Live, root: Path) -> None:
    """A day in the life of a prompt: a proposal and a decision, a label, settings, access, an evaluator, quality, alerts."""
    desk = Prompt.parse("Desk. {{input}}\n<!-- whet:begin -->\n- Be polite.\n<!-- whet:end -->\n")
    live.registry.create("desk", desk, author="ann", label="production")
    brief = Add(id="i2", text="Be brief.", author="ann")
    proposal = live.registry.propose(
        "desk@production", PromptEdit((brief,)), author="ann", label="production"
    )
    live.registry.decide(proposal.id, Decision("edit", texts={"i2": "Be short."}), actor="bob")
    live.learner.configure("desk", LearnerSettings(mode="off"), actor="ann")
    live.traffic.add([Inference("desk", 1, {"input": "q"}, "a", user="u1", id="a1")])
    live.traffic.add([], [Feedback("comment", "a1", text="Too long.", user="u1", id="c1")])
    live.learner.decide("desk", "c1", True, actor="ann")
    config = EvaluatorConfig("desk", make_task(root / "strict"), root=root / "runs")
    live.learner.context = replace(live.learner.context, config=LearnerConfig(evaluators=(config,)))
    assert asyncio.run(evaluate_answers(live.learner.context, config)) is not None
    live.learner.look()
    live.quality.watch()
    deliver_due(live.database, ())
    access = Access(live.database)
    access.note_address("http://127.0.0.1:1")
    access.open_session(access.add("carl", Role.EDITOR, by="ann", expires=access.expiry(1)))


def times_ahead(live: Live, days: int) -> set[str]:
    """Columns that hold a time between an hour and a year from now, or name the day in so many days."""
    now = _real() // 1000
    day = iso(now + days * 24 * HOUR)[:10]
    ahead = set()
    with live.database.read() as connection:
        for table in metadata.tables.values():
            for row in connection.execute(select(table)).mappings():
                for key, value in row.items():
                    later = isinstance(value, int) and HOUR < value - now < YEAR
                    if later or day in str(value):
                        ahead.add(f"{table.name}.{key}")
    return ahead


def test_what_a_server_writes_has_the_time_of_the_database(
    servers: tuple[Live, Live], tmp_path: Path
) -> None:
    with clock_ahead(30 * 24 * 60):
        change_everything(servers[0], tmp_path)
    assert times_ahead(servers[0], 30) == {"access_tokens.expires", "access_sessions.expires"}


@pytest.mark.parametrize("minutes", [-90, 90], ids=["behind", "ahead"])
def test_a_token_ends_by_the_clock_of_the_database(servers: tuple[Live, Live], minutes: int) -> None:
    right, wrong = Access(servers[0].database), Access(servers[1].database)
    hour = int(time.time() * 1e6) + HOUR
    lasting = right.add("carl", Role.EDITOR, by="ann", expires=hour)
    over = right.add("dora", Role.EDITOR, by="ann", expires=hour - 2 * HOUR)
    with clock_ahead(minutes):
        assert wrong.by_token(digest_secret(lasting.encode())) is not None
        assert wrong.by_token(digest_secret(over.encode())) is None
        shown = {user.name: user.tokens[0].expired for user in wrong.users()}
    assert (shown["carl"], shown["dora"]) == (False, True)


def test_the_day_of_an_instruction_and_the_end_of_a_chart_are_those_of_the_database(
    servers: tuple[Live, Live],
) -> None:
    """A chart may end with its day, whose name may be that of next year."""
    live, moment = servers[0], _real() // 1000
    with clock_ahead(400 * 24 * 60):
        day = microseconds(live.learner.context.today())
        ends = live.quality.measure(NAME).until, live.quality.glance([NAME])[NAME].span[1]
    assert all(abs(one - moment) < 48 * HOUR for one in (day, *ends))


OWN_CLOCK = {
    "database/engine.py": "SQLite has the clock of its machine",
    "traffic/adapters.py": "a row that names no time: when it was read",
    "traffic/otlp/records.py": "a span that names no time: when it was read",
    "quality/channels.py": "the date of a mail is that of its sender",
}
"""Modules that may read the clock of the process, with the reason."""


def test_nothing_else_reads_the_clock_of_its_process() -> None:
    folder = PACKAGES["whet_live"]
    imports = re.compile(
        r"^ *from whet_client.ids import .*\bnow\b|\b(datetime\.now|time\.time)\(", re.MULTILINE
    )
    paths = [path for path in folder.rglob("*.py") if imports.search(path.read_text("utf-8"))]
    assert {path.relative_to(folder).as_posix() for path in paths} == OWN_CLOCK.keys()
