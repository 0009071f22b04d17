"""The store of traffic: repeats and contradictions, late joins, counts, deletion, events; on both databases."""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from typing import Any

import pytest
from sqlalchemy import select, text

from whet.errors import UsageError
from whet_client.ids import now
from whet_client.records import KINDS, Feedback, Inference
from whet_live.database import Database
from whet_live.erasure import expire, forget_user
from whet_live.traffic.search import Filter
from whet_live.traffic.traffic_store import Traffic
from whet_live.traffic.traffic_tables import feedback, inferences, traffic_counts
from whet_live.traffic.write import IdConflict

DAY = 86_400_000_000
NOON = 1_750_000_000_000_000


@pytest.fixture
def traffic(database: Database) -> Traffic:
    """An empty store."""
    return Traffic(database)


def answer(**more: Any) -> Inference:
    """An inference of version 2 of the prompt `support`."""
    given = {"prompt": "support", "version": 2, "output": "Restart it.", "inputs": {"question": "It is off."}}
    return Inference(**{**given, **more})


def thumb(target: str, **more: Any) -> Feedback:
    """A thumb up."""
    return Feedback(**{"kind": "thumb", "target": target, "value": 1.0, **more})


def stored(database: Database) -> tuple[int, int]:
    """Number of rows of inferences and feedback."""
    with database.read() as connection:
        return len(connection.execute(select(inferences)).all()), len(
            connection.execute(select(feedback)).all()
        )


def test_every_field_comes_back(traffic: Traffic) -> None:
    asked = answer(
        id="i 1", model="m", cost=0.002, latency=1.5, input_tokens=7, output_tokens=3, session="s", user="u é",
        episode="e", experiment="x", variant="b", response="r-1", error="cut", time=NOON, metadata={"a": [1, None]},
    )  # fmt: skip
    said = Feedback(
        kind="label", target="i 1", label="wrong", text="The total is 漢.", name="correctness", source="annotator",
        user="ann", id="f 1", time=NOON + 1, metadata={"page": 2},
    )  # fmt: skip
    receipt = traffic.add([asked], [said])
    assert (receipt.accepted, receipt.duplicates, receipt.erased, receipt.ids) == (2, 0, 0, ("i 1", "f 1"))
    found = traffic.inference("i 1")
    assert found is not None and found.inference == asked
    about = traffic.about(found.seq)
    assert [one.feedback for one in about] == [said]
    assert (about[0].prompt, about[0].version, about[0].about) == ("support", 2, found.seq)
    assert traffic.inference("i 2") is None


def test_a_repeat_is_stored_once_and_told(traffic: Traffic) -> None:
    asked, said = answer(), thumb("x")
    traffic.add([asked], [said])
    again = traffic.add([asked, asked, answer(id="other")], [said])
    assert (again.accepted, again.duplicates, len(again.ids)) == (1, 3, 4)
    assert stored(traffic.database) == (2, 1)


def test_the_time_is_no_content(traffic: Traffic) -> None:
    traffic.add((), [thumb("x", id="f", time=NOON)])
    assert traffic.add((), [thumb("x", id="f", time=NOON + 5)]).duplicates == 1


def test_other_content_under_a_taken_id_is_refused_and_the_message_names_neither(traffic: Traffic) -> None:
    traffic.add([answer(id="i")], [thumb("i", id="f")])
    with pytest.raises(IdConflict) as refused:
        traffic.add([answer(id="new")], [thumb("i", id="f", value=0.0, text="no")])
    assert str(refused.value) == 'The id "f" is taken. Send new content under a new id.'
    (clash,) = refused.value.clashes
    assert clash.stored.startswith('thumb=1 about inference "i"') and clash.sent.startswith("thumb=0")
    with pytest.raises(IdConflict):
        traffic.add([answer(id="i", output="Replace it.")])
    with pytest.raises(IdConflict, match='"j" stands for two rows of one request'):
        traffic.add([answer(id="j"), answer(id="j", output="Another.")])
    assert stored(traffic.database) == (1, 1)


def test_the_same_rows_from_many_threads_are_stored_once(traffic: Traffic) -> None:
    asked = [answer(id=f"i{k}") for k in range(20)]
    said = [thumb(f"i{k}", id=f"f{k}") for k in range(20)]
    receipts = []

    def send(seed: int) -> None:
        shuffled = random.Random(seed).sample(range(20), 20)
        for k in shuffled:
            receipts.append(traffic.add([asked[k]], [said[k]]))

    threads = [threading.Thread(target=send, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(receipt.accepted for receipt in receipts) == 40
    assert sum(receipt.duplicates for receipt in receipts) == 5 * 40
    assert stored(traffic.database) == (20, 20)


@pytest.mark.parametrize("kind", ["inference", "response", "episode", "session"])
def test_feedback_is_joined_in_whichever_order_it_comes(traffic: Traffic, kind: str) -> None:
    name = {"inference": "id", "response": "response", "episode": "episode", "session": "session"}[kind]
    early, late = thumb("T", target_kind=kind, id="early"), thumb("T", target_kind=kind, id="late")
    traffic.add((), [early])
    waiting = traffic.find().rows[0]
    assert (waiting.about, waiting.joined, waiting.prompt, waiting.version) == (None, None, "", 0)
    assert [(c.prompt, c.kind, c.n) for c in traffic.counts()] == [("", "thumb", 1)]
    traffic.add([answer(**{"id": "T", name: "T"})])
    traffic.add((), [late])
    found = traffic.inference("T")
    assert found is not None
    rows = {row.feedback.id: row for row in traffic.find().rows}
    assert {row.about for row in rows.values()} == {found.seq}
    assert {(row.prompt, row.version) for row in rows.values()} == {("support", 2)}
    assert rows["early"].joined == found.seq + 1 and rows["late"].joined == rows["late"].seq
    assert [(c.prompt, c.kind, c.n) for c in traffic.counts()] == [
        ("support", "inference", 1),
        ("support", "thumb", 2),
    ]


def test_a_target_of_another_kind_is_not_joined(traffic: Traffic) -> None:
    traffic.add([answer(id="same", episode="e", session="s")], [thumb("same", target_kind="episode")])
    traffic.add([answer(id="e")], [thumb("s")])
    assert [row.about for row in traffic.find().rows] == [None, None]


def test_feedback_about_an_episode_belongs_to_its_last_inference(traffic: Traffic) -> None:
    traffic.add([answer(id="a", episode="e"), answer(id="b", episode="e", version=3)])
    traffic.add((), [thumb("e", target_kind="episode")])
    assert traffic.find().rows[0].version == 3


@pytest.mark.parametrize("kind", ["response", "episode", "session"])
@pytest.mark.parametrize("is_newest_first", [False, True])
@pytest.mark.parametrize("is_early", [False, True])
def test_feedback_about_a_session_belongs_to_the_last_answer_before_it(
    traffic: Traffic, kind: str, is_newest_first: bool, is_early: bool
) -> None:
    minute, start = 60_000_000, 1_790_000_000_000_000
    said = {
        -1: 3,
        2: 1,
        5: 2,
        9: 2,
        10: 3,
        12: 3,
    }  # minute of the feedback: version; before all answers, the last one
    rows = [thumb("T", target_kind=kind, id=f"at {at}", time=start + at * minute) for at in said]
    answers = [
        answer(**{"id": f"v{version}", kind: "T"}, version=version, time=start + at * minute)
        for version, at in ((1, 0), (2, 5), (3, 10))
    ]
    if is_early:
        traffic.add((), rows)
    traffic.add(answers[::-1] if is_newest_first else answers)
    if not is_early:
        traffic.add((), rows)
    joined = {row.feedback.id: row.version for row in traffic.find().rows}
    assert joined == {f"at {at}": version for at, version in said.items()}
    assert {(c.version, c.n) for c in traffic.counts() if c.kind == "thumb"} == {(1, 1), (2, 2), (3, 3)}


def test_an_old_answer_that_comes_late_takes_no_feedback_of_a_session(traffic: Traffic) -> None:
    traffic.add([answer(id="new", session="s", version=3, time=1_790_000_060_000_000)])
    traffic.add([answer(id="old", session="s", version=1, time=1_790_000_000_000_000)])
    traffic.add((), [thumb("s", target_kind="session")])
    assert traffic.find().rows[0].version == 3


def test_a_clock_that_runs_ahead_is_set_back_to_the_arrival(traffic: Traffic) -> None:
    traffic.add([answer(id="i", time=4_000_000_000_000_000)])
    found = traffic.inference("i")
    assert found is not None and found.inference.time == found.received


def test_a_bad_field_is_refused_before_anything_is_written(traffic: Traffic) -> None:
    with pytest.raises(UsageError, match=r"feedback 2: value must be a number from 0 to 1; this is 2\."):
        traffic.add([answer()], [thumb("x"), thumb("x", value=2)])
    assert stored(traffic.database) == (0, 0)


def recounted(database: Database) -> dict[tuple[str, int, str], tuple[int, float]]:
    """What the counts must be, from the rows themselves."""
    found: dict[tuple[str, int, str], list[float]] = defaultdict(lambda: [0, 0.0])
    with database.read() as connection:
        for row in connection.execute(select(feedback)):
            sums = found[row.prompt, row.version, row.kind]
            sums[0], sums[1] = sums[0] + 1, sums[1] + (row.value or 0.0)
        for row in connection.execute(select(inferences)):
            for kind, value in (("inference", 1.0), ("cost", row.cost), ("latency", row.latency)):
                if value is not None:
                    sums = found[row.prompt, row.version, kind]
                    sums[0], sums[1] = sums[0] + 1, sums[1] + value
    return {key: (int(n), round(total, 6)) for key, (n, total) in found.items()}


def counted(database: Database) -> dict[tuple[str, int, str], tuple[int, float]]:
    """The counts as they are kept."""
    with database.read() as connection:
        rows = connection.execute(select(traffic_counts)).all()
    return {(row.prompt, row.version, row.kind): (row.n, round(row.total, 6)) for row in rows}


def some_feedback(rng: random.Random, target: str, **more: Any) -> Feedback:
    """Feedback of a random kind with random words."""
    kind = KINDS[rng.choice(list(KINDS))]
    words = rng.choice(["too long", "wrong total", "wrong tone", "slow"])
    return Feedback(
        kind=kind.name,
        target=target,
        value=rng.choice([kind.low, kind.high]) if kind.needs == "value" else None,
        text=words if kind.needs == "text" else None,
        label="other" if kind.needs == "label" or kind.name == "choice" else None,
        **more,
    )


@pytest.mark.parametrize("seed", range(3))
def test_the_counts_are_those_of_the_rows_whatever_happens(traffic: Traffic, seed: int) -> None:
    rng = random.Random(seed)
    targets = [f"i{k}" for k in range(60)]
    arriving, middle = rng.sample(targets, 60), 0
    for step in range(30):
        asked = [
            answer(
                id=arriving.pop(), prompt=rng.choice("pq"), version=rng.randrange(3), cost=rng.choice([None, 0.25]),
                latency=rng.choice([None, 0.5]), user=rng.choice("uvw"), episode=rng.choice("ef"),
                time=NOON + rng.randrange(10) * DAY,
            )
            for _ in range(2)
        ]  # fmt: skip
        said = [
            some_feedback(
                rng, rng.choice(targets), user=rng.choice("uvw"), time=NOON + rng.randrange(10) * DAY
            )
            for _ in range(4)
        ]
        said.append(some_feedback(rng, rng.choice("ef"), target_kind="episode", time=NOON + 9 * DAY))
        traffic.add(asked, said)
        middle = middle or (now() if step == 12 else 0)
        if step == 15:
            forget_user(traffic.database, "v", actor="root")
        if step == 22:
            expire(traffic.database, middle, actor="root")
        assert counted(traffic.database) == recounted(traffic.database)
    expire(traffic.database, now() + DAY, actor="root")
    assert counted(traffic.database) == {}
    assert stored(traffic.database) == (0, 0)


def test_counts_have_means_and_deviations(traffic: Traffic) -> None:
    said = [Feedback(kind="rating", target="i", value=value) for value in (1, 5, 3)]
    traffic.add([answer(id="i", cost=0.5, latency=2.0, error="refused")], said)
    traffic.add([answer(id="j", prompt="other")])
    found = {count.kind: count for count in traffic.counts(["support"])}
    assert set(found) == {"inference", "cost", "latency", "error", "rating"}
    assert (found["rating"].n, found["rating"].mean) == (3, 3.0)
    assert found["rating"].deviation == pytest.approx((8 / 3) ** 0.5)
    assert traffic.counts(["support"], version=9) == []
    assert {count.prompt for count in traffic.counts()} == {"support", "other"}


def test_forgetting_a_user_takes_rows_words_counts_and_repeats(traffic: Traffic) -> None:
    gone = answer(id="gone", user="ann")
    kept = answer(id="kept", user="bob")
    said = [
        Feedback(kind="comment", target="kept", text="my secret words", user="ann", id="hers"),
        Feedback(kind="correction", target="gone", text="her secret total", user="bob", id="about hers"),
        Feedback(kind="comment", target="kept", text="nothing secret here", user="bob", id="his"),
        thumb("not here yet", user="ann", id="waiting"),
    ]
    traffic.add([gone, kept], said)
    before = traffic.head()
    erased = forget_user(traffic.database, "ann", actor="root")
    assert (erased.inferences, erased.feedback) == (1, 3)
    assert [row.feedback.id for row in traffic.find(Filter(text="secret")).rows] == ["his"]
    assert [row.inference.id for row in traffic.inferences().rows] == ["kept"]
    assert counted(traffic.database) == {
        ("support", 2, "inference"): (1, 1.0),
        ("support", 2, "comment"): (1, 0.0),
    }
    told = traffic.events(before)
    assert {event.id for event in told} == {"gone", "hers", "about hers", "waiting"}
    assert {event.kind for event in told} == {"erased"}
    again = traffic.add([gone], [*said, thumb("gone", id="later", user="cy")])
    assert (again.accepted, again.duplicates, again.erased) == (0, 1, 5)
    assert stored(traffic.database) == (1, 1)
    assert forget_user(traffic.database, "ann", actor="root") == forget_user(
        traffic.database, "nobody", actor="root"
    )
    if traffic.database.dialect == "sqlite":
        with traffic.database.read() as connection:
            left = connection.execute(
                text("SELECT count(*) FROM feedback_words WHERE feedback_words MATCH 'secret'")
            )
            assert left.scalar() == 1


def test_retention_deletes_what_arrived_earlier_whatever_the_senders_say(traffic: Traffic) -> None:
    traffic.add(
        [answer(id="old", time=NOON + 70 * 365 * DAY)], [thumb("old", time=NOON + 70 * 365 * DAY, id="a")]
    )
    middle = now()
    traffic.add([answer(id="new", time=NOON)], [thumb("new", time=NOON, id="b")])
    erased = expire(traffic.database, middle, actor="root")
    assert (erased.inferences, erased.feedback) == (1, 1)
    assert [row.feedback.id for row in traffic.find().rows] == ["b"]
    assert [row.inference.id for row in traffic.inferences().rows] == ["new"]
    assert [event.inference and event.inference.id for event in traffic.events() if event.id == "b"] == [
        "new"
    ]


def test_events_tell_every_fact_once_and_in_order(traffic: Traffic) -> None:
    traffic.add((), [thumb("i", id="early")])
    traffic.add([answer(id="i")], [thumb("i", id="late")])
    events = traffic.events()
    assert [(event.kind, event.id) for event in events] == [
        ("feedback", "early"), ("feedback", "late"), ("joined", "early"),
    ]  # fmt: skip
    assert [event.inference and event.inference.id for event in events] == [None, "i", "i"]
    assert [event.seq for event in events] == [1, 3, 4]
    assert traffic.head() == 4
    one_by_one: list[Any] = []
    while found := traffic.events(one_by_one[-1].seq if one_by_one else 0, 1):
        one_by_one += found
    assert one_by_one == events
    assert [event.id for event in traffic.events(1)] == ["late", "early"]


def test_a_reader_of_events_misses_nothing_while_many_write(traffic: Traffic) -> None:
    done = threading.Event()

    def write(name: str) -> None:
        for k in range(8):
            traffic.add((), [thumb(f"{name}{k}", id=f"f{name}{k}")])
            traffic.add([answer(id=f"{name}{k}")])

    threads = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
    seen: list[Any] = []

    def read() -> None:
        while True:
            last = done.is_set()
            while found := traffic.events(seen[-1].seq if seen else 0, 7):
                seen.extend(found)
            if last:
                return

    reader = threading.Thread(target=read)
    reader.start()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    done.set()
    reader.join()
    assert seen == traffic.events(0, 10_000)
    assert sorted(event.id for event in seen if event.kind == "joined") == sorted(
        f"f{name}{k}" for name in "abcd" for k in range(8)
    )


def test_rows_from_the_future_get_the_time_of_their_arrival_and_a_warning_says_so(
    traffic: Traffic, caplog: pytest.LogCaptureFixture
) -> None:
    traffic.add([answer(id="near", time=now() + 5_000_000)], [])
    assert not caplog.messages, "clocks differ by seconds"
    traffic.add(
        [answer(id="far", time=now() + DAY), answer(id="farther", time=now() + 2 * DAY)], [thumb("far")]
    )
    (said,) = caplog.messages
    assert said.startswith("2 rows came with a time in the future (first: far)")
    stored = traffic.inference("far")
    assert stored is not None and stored.inference.time <= now() + 60_000_000
