"""What arrives after its hour was looked at: it is in one look, it is noticed, and it rings no second alarm."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import select, text
from tests.live.quality.traffic import BEGIN, DAY, HOUR, NAME, make_prompt

from whet_client.records import Feedback, Inference
from whet_live import Live
from whet_live.database import Database, open_database
from whet_live.quality import QualityAlert
from whet_live.quality.monitor import LATE
from whet_live.quality.quality_tables import quality_watches


@pytest.fixture
def live(sqlite_url: str) -> Iterator[Live]:
    """An installation with the prompt and no traffic."""
    database = open_database(sqlite_url)
    installation = Live(database)
    make_prompt(installation)
    yield installation
    database.close()


def make_day(day: int, *, bad: bool = False, model: str = "one", mark: str = "a") -> list[Inference]:
    """Forty-eight answers of as many users between eight and twenty o'clock."""
    return [
        Inference(
            NAME, 1, {}, "x", id=f"{mark}-{day}-{n}", user=f"{mark}-{day}-{n}", model=model,
            time=BEGIN + day * DAY + 8 * HOUR + n * HOUR // 4, error="No answer." if bad else None,
        )
        for n in range(48)
    ]  # fmt: skip


def look(live: Live, day: int, hour: int) -> list[QualityAlert]:
    """What is noticed when that hour of the day is over."""
    return live.quality.watch(BEGIN + day * DAY + hour * HOUR + LATE)


def count_values(database: Database, measure: str) -> int:
    """How many values the watch of a measure has taken."""
    with database.read() as connection:
        query = select(quality_watches.c.state).where(quality_watches.c.measure == measure)
        states = connection.execute(query).scalars().all()
    return sum(n for state in states for _, counts in state["days"] for _, n in counts)


def test_days_that_arrive_in_the_night_after_are_watched(live: Live) -> None:
    alerts = []
    for day in range(16):
        for hour in (6, 14, 23):
            alerts += look(live, day, hour)
        live.traffic.add(make_day(day, bad=day >= 12, model="one" if day < 12 else "two"), [])
        alerts += look(live, day + 1, 2)
    # An answer with an error names no model: the new one is seen with the first answer without.
    assert [(one.kind, one.measure) for one in alerts] == [("drift", "error")]
    assert alerts[0].began == BEGIN + 12 * DAY and alerts[0].at > alerts[0].began
    assert alerts[0].text == f"{NAME}: errors rose from 0.0% to 100.0% (mean since 2026-01-17, UTC)"
    look(live, 16, 23)
    live.traffic.add(make_day(16, model="two"), [])
    models = [one.text for one in look(live, 17, 2) if one.kind == "model"]
    assert models == [f"{NAME}: another model answers: two, before one"]


def test_each_value_is_taken_once_whenever_it_arrives(database: Database) -> None:
    """Answers of a day arrive in time, hours and days late; a part of the feedback comes before its answer, a part after it."""
    live = Live(database)
    make_prompt(live)
    waiting: list[tuple[int, list[Inference], list[Feedback]]] = []
    for day in range(4):
        for n, one in enumerate(make_day(day)):
            assert one.time is not None
            arrival = (one.time - BEGIN) // HOUR + (1, 9, 40, 100)[n % 4]
            thumb = Feedback("thumb", one.id, 1.0, user=one.user, time=one.time + 1, id=f"t-{one.id}")
            fixed = Feedback(
                "correction", one.id, text="y", user=one.user, time=one.time + 1, id=f"c-{one.id}"
            )
            waiting.append((arrival, [one], []))
            waiting.append((arrival + (0, -5, 7)[n % 3], [], [thumb, fixed]))
    waiting.sort(key=lambda item: item[0])
    for hour in range(0, 10 * 24, 5):
        due = [item for item in waiting if hour <= item[0] < hour + 5]
        live.traffic.add([one for item in due for one in item[1]], [one for item in due for one in item[2]])
        assert look(live, 0, hour + 5) == []
    assert [count_values(database, name) for name in ("error", "thumb", "correction")] == [192, 192, 192]


def test_late_answers_from_before_an_alarm_ring_no_other(live: Live) -> None:
    alerts = []
    for day in range(20):
        live.traffic.add(make_day(day, bad=day >= 10), [])
        if day == 13:
            live.traffic.add([one for old in range(6, 10) for one in make_day(old, mark="late")], [])
        alerts += look(live, day, 23)
    assert [(one.measure, (one.began - BEGIN) // DAY) for one in alerts] == [("error", 10)]


def test_a_late_answer_of_an_earlier_model_is_no_change_and_one_of_a_new_model_is(live: Live) -> None:
    for day in range(5, 9):
        live.traffic.add(make_day(day, model="two"), [])
        assert look(live, day, 23) == []
    live.traffic.add(make_day(2, model="one", mark="old"), [])
    assert look(live, 9, 1) == []
    live.traffic.add(make_day(6, model="three", mark="new"), [])
    assert [one.text for one in look(live, 9, 2)] == [f"{NAME}: another model answers: three, before two"]
    live.traffic.add(make_day(4, model="one", mark="older"), [])
    assert look(live, 9, 3) == []


def test_a_database_of_before_goes_on_where_it_was(database: Database, database_url: str) -> None:
    live = Live(database)
    make_prompt(live)
    for day in range(3):
        live.traffic.add(make_day(day), [])
        look(live, day, 23)
    until, settled = BEGIN + 2 * DAY + 23 * HOUR, BEGIN + DAY + 23 * HOUR
    with database.begin() as connection:
        connection.execute(text("ALTER TABLE quality_prompts DROP COLUMN looks"))
        for name, value in (("until", until), ("settled", settled)):
            column = f"ALTER TABLE quality_prompts ADD COLUMN {name} BIGINT NOT NULL DEFAULT {value}"
            connection.execute(text(column))
        for later in ("access_identities", "access_sign_ins"):
            connection.execute(text(f"DROP TABLE {later}"))
        connection.execute(text("UPDATE alembic_version SET version_num = '0012_merged_patterns'"))
    migrated = open_database(database_url)
    live = Live(migrated)
    for day in range(3, 7):
        live.traffic.add(make_day(day) + make_day(day - 2, mark="late"), [])
        assert look(live, day, 23) == []
    look(live, 8, 23)
    assert [count_values(migrated, name) for name in ("error", "correction")] == [11 * 48, 11 * 48]
    migrated.close()
