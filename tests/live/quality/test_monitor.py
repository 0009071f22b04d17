"""The watch over traffic: drift and changed models are noticed once, whoever looks, and calm traffic is left in peace."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.live.quality.traffic import BEGIN, DAY, HOUR, NAME, Weeks, fill_weeks, make_prompt

from whet_client.records import Feedback, Inference
from whet_live import Live
from whet_live.database import Database, open_database
from whet_live.quality import QualityAlert
from whet_live.quality.monitor import LATE


@pytest.fixture
def live(sqlite_database: Database) -> Iterator[Live]:
    """An installation with the prompt and no traffic."""
    found = Live(sqlite_database)
    make_prompt(found)
    yield found


@pytest.fixture
def sqlite_database(sqlite_url: str) -> Iterator[Database]:
    found = open_database(sqlite_url)
    yield found
    found.close()


def look(live: Live, end: int) -> list[QualityAlert]:
    """What is noticed two days after the end."""
    return live.quality.watch(end + 2 * DAY)


def test_calm_traffic_is_left_in_peace(live: Live) -> None:
    assert look(live, fill_weeks(live, Weeks())) == []


def test_thumbs_that_fell_are_noticed_once_with_their_day(live: Live) -> None:
    end = fill_weeks(live, Weeks(changed=20, thumbs=(0.85, 0.45)))
    found = look(live, end)
    assert [(one.kind, one.measure, one.worse) for one in found] == [("drift", "thumb", True)]
    alarm = found[0]
    assert abs((alarm.began - BEGIN) // DAY - 20) <= 2 and alarm.began < alarm.at <= end
    assert alarm.text.startswith(f"{NAME}: thumbs up fell from 8")
    assert alarm.details["evidence"] >= alarm.details["threshold"] == 8766
    assert look(live, end) == [] == look(live, end + 5 * DAY)
    marks = live.quality.measure(NAME, since=BEGIN, until=end).marks
    assert [(mark.kind, mark.at) for mark in marks if mark.kind == "drift"] == [("drift", alarm.began)]


def test_what_got_better_is_marked_and_not_reported(live: Live) -> None:
    found = look(live, fill_weeks(live, Weeks(changed=20, seconds=(1.0, 0.5))))
    assert [(one.measure, one.worse) for one in found] == [("latency", False)]
    assert "latency fell from" in found[0].text


def test_slower_answers_are_noticed_whatever_the_unit_is(live: Live) -> None:
    found = look(live, fill_weeks(live, Weeks(changed=20, seconds=(0.001, 0.002))))
    assert [(one.measure, one.worse) for one in found] == [("latency", True)]


@pytest.mark.parametrize(("seconds", "words"), [((1.0, 10.0), "rose"), ((1.0, 0.5), "fell")])
def test_an_alarm_of_an_amount_names_the_means_of_its_days(
    live: Live, seconds: tuple[float, float], words: str
) -> None:
    """Not the largest or smallest value of the sample among which amounts are ranked."""
    alarm = look(live, fill_weeks(live, Weeks(changed=20, seconds=seconds)))[0]
    found = re.fullmatch(
        rf"{NAME}: latency {words} from ([\d.]+) s to ([\d.]+) s \(mean since 2026-01-25, UTC\)", alarm.text
    )
    assert found is not None, alarm.text
    assert [float(one) for one in found.groups()] == pytest.approx(seconds, rel=0.2)
    assert (alarm.details["before"], alarm.details["after"]) == tuple(f"{one} s" for one in found.groups())


def test_a_constant_amount_that_changed_is_named_by_both_its_values(live: Live) -> None:
    times = [BEGIN + n * HOUR for n in range(30 * 24)]
    rows = [
        Inference(NAME, 1, {}, "x", id=f"c{n}", user=f"u{n}", time=at, cost=0.001 if n < 20 * 24 else 0.002)
        for n, at in enumerate(times)
    ]
    live.traffic.add(rows, [])
    (alert,) = look(live, times[-1])
    assert alert.text == f"{NAME}: cost rose from $0.001 to $0.002 (mean since 2026-01-25, UTC)"


def _score_daily(live: Live, name: str, of: Callable[[int], float]) -> None:
    """A score of each of thirty users a day for sixty days, by the number of the day."""
    scores = [
        Feedback("score", f"{NAME}-{day}-{n}", of(day), name=name, user=f"user-{n}", source="model",
                 time=BEGIN + day * DAY + 12 * HOUR + n, id=f"{name}-{day}-{n}")
        for day in range(60) for n in range(30)
    ]  # fmt: skip
    live.traffic.add([], scores)


def test_every_score_of_a_prompt_is_watched(live: Live) -> None:
    """Also the fifth by name; their false alarms together are those of one measure, so that each has less of them."""
    end = fill_weeks(live, Weeks(days=60, per_day=30))
    for name in ("a", "b", "c", "d"):
        _score_daily(live, name, lambda day: 0.5)
    _score_daily(live, "e", lambda day: 0.5 if day < 40 else 0.0)
    (alarm,) = look(live, end)
    assert (alarm.measure, alarm.worse) == ("score:e", True)
    assert abs((alarm.began - BEGIN) // DAY - 40) <= 2
    assert alarm.details["threshold"] == 8766 * 5 * 6


def test_stars_of_a_judge_are_no_drift_of_what_people_say(live: Live) -> None:
    end = fill_weeks(live, Weeks(days=60, per_day=30))
    stars = [
        Feedback("rating", f"{NAME}-{day}-{n}", 5.0 if day < 40 else 1.0, user=f"user-{n}", source="model",
                 time=BEGIN + day * DAY + 12 * HOUR, id=f"stars-{day}-{n}")
        for day in range(60) for n in range(30)
    ]  # fmt: skip
    live.traffic.add([], stars)
    assert look(live, end) == []


def test_one_loud_user_is_no_drift(live: Live) -> None:
    """Eighty thumbs down of one user on each of two days are one vote in each hour."""
    end = fill_weeks(live, Weeks())
    loud, said = [], []
    for n in range(160):
        at = BEGIN + (28 + n // 80) * DAY + 12 * HOUR + n
        loud.append(Inference(NAME, 1, {}, "x", id=f"loud-{n}", user="loud", time=at, model="gpt-x",
                              metadata={"system_fingerprint": "fp_a"}))  # fmt: skip
        said.append(Feedback("thumb", f"loud-{n}", 0.0, user="loud", time=at, id=f"no-{n}"))
    live.traffic.add(loud, said)
    assert look(live, end) == []


def test_a_new_fingerprint_is_the_system_behind_the_model(live: Live) -> None:
    end = fill_weeks(live, Weeks(days=6, changed=3, fingerprints=("fp_a", "fp_b")))
    found = look(live, end)
    assert [(one.kind, one.text) for one in found] == [
        ("model", f"{NAME}: the system behind the model changed: gpt-x (fp_b), before gpt-x (fp_a)")
    ]
    assert BEGIN + 3 * DAY <= found[0].began < BEGIN + 4 * DAY
    marks = live.quality.measure(NAME, since=BEGIN, until=end).marks
    assert ("model", found[0].began) in [(mark.kind, mark.at) for mark in marks]


def test_another_model_and_its_return_are_noticed(live: Live) -> None:
    begin = BEGIN
    for n, model in enumerate(("one", "other", "one")):
        times = [begin + hour * HOUR for hour in range(72)]
        live.traffic.add(
            [Inference(NAME, 1, {}, "x", id=f"{n}-{at}", model=model, time=at) for at in times], []
        )
        begin += 3 * DAY
    texts = [one.text for one in look(live, begin)]
    assert texts == [
        f"{NAME}: another model answers: other, before one",
        f"{NAME}: another model answers: one, before other",
    ]


def test_an_answer_that_names_no_model_or_fingerprint_is_no_change(live: Live) -> None:
    rows = []
    for n in range(20 * 24):
        named: dict[str, Any] = {"model": "one", "metadata": {"system_fingerprint": "fp"}}
        if n % 40 == 7:
            named = {"model": "one"}
        elif n % 40 == 9:
            named = {"metadata": {"system_fingerprint": "fp"}}
        rows.append(Inference(NAME, 1, {}, "x", id=f"n{n}", time=BEGIN + n * HOUR, **named))
    live.traffic.add(rows, [])
    assert look(live, BEGIN + 20 * DAY) == []


def test_models_that_take_turns_are_noticed_once(live: Live) -> None:
    turns = [
        Inference(NAME, 1, {}, "x", id=f"turn-{n}", model=("one", "two")[n % 2], time=BEGIN + n * HOUR)
        for n in range(200)
    ]
    live.traffic.add(turns, [])
    assert [one.text for one in look(live, BEGIN + 200 * HOUR)] == [
        f"{NAME}: another model answers: two, before one"
    ]


def test_looking_often_finds_what_looking_once_finds(live: Live) -> None:
    end = fill_weeks(live, Weeks(changed=20, thumbs=(0.85, 0.45), fingerprints=("fp_a", "fp_b")))
    found = []
    for hour in range(0, (end - BEGIN) // HOUR + 49, 47):
        found += live.quality.watch(BEGIN + hour * HOUR + LATE)
    assert [(one.kind, one.measure) for one in found] == [("model", ""), ("drift", "thumb")]
    assert found[1].began // DAY - BEGIN // DAY in range(18, 23)


def test_days_of_models_are_told_apart_in_both_databases(database: Database) -> None:
    live = Live(database)
    make_prompt(live)
    times = [BEGIN + hour * HOUR for hour in range(8 * 24)]
    names = ["two" if 3 <= hour // 24 < 6 else "one" for hour in range(8 * 24)]
    rows = [
        Inference(NAME, 1, {}, "x", id=str(at), model=name, time=at)
        for at, name in zip(times, names, strict=True)
    ]
    live.traffic.add(rows, [])
    assert [one.began for one in look(live, times[-1])] == [BEGIN + 3 * DAY, BEGIN + 6 * DAY]


def test_two_servers_look_once(database: Database) -> None:
    live, other = Live(database), Live(database)
    make_prompt(live)
    end = fill_weeks(live, Weeks(days=6, changed=3, fingerprints=("fp_a", "fp_b")))
    assert len(look(live, end)) + len(look(other, end)) == 1
    assert len(live.quality.alerts(NAME).items) == 1


def test_an_hour_is_looked_at_when_it_is_over(live: Live) -> None:
    live.traffic.add([Inference(NAME, 1, {}, "x", id="a", model="one", time=BEGIN)], [])
    live.quality.watch(BEGIN + HOUR)
    live.traffic.add([Inference(NAME, 1, {}, "x", id="b", model="two", time=BEGIN + HOUR - 1)], [])
    assert [one.kind for one in live.quality.watch(BEGIN + HOUR + LATE)] == ["model"]


def test_the_data_of_a_user_are_in_no_watch(live: Live) -> None:
    fill_weeks(live, Weeks(days=3))
    look(live, BEGIN + 3 * DAY)
    with live.database.read() as connection:
        states = connection.exec_driver_sql("SELECT state || sample FROM quality_watches").scalars().all()
    assert states and not any("user-" in state for state in states)
