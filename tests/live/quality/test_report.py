"""Quality over time: figures by hand, users as clusters, splits, marks, and what is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from sqlalchemy import Text, cast, func, type_coerce, update
from tests.live.quality.traffic import BEGIN, DAY, HOUR, NAME, Weeks, fill_weeks, make_prompt

from whet.errors import UsageError
from whet.prompt import Prompt
from whet.stats import interval
from whet_client.ids import microseconds
from whet_client.records import Feedback, Inference
from whet_live import Live
from whet_live.database import Database
from whet_live.experiments.assigned_answers import assigned_answers
from whet_live.quality import rows
from whet_live.registry import EXPERIMENT
from whet_live.traffic.traffic_tables import inferences


@pytest.fixture
def live(database: Database) -> Iterator[Live]:
    """An installation with the prompt and no traffic."""
    found = Live(database)
    make_prompt(found)
    yield found


def answer(key: str, at: int, **more: object) -> Inference:
    return Inference(NAME, **{"version": 1, "output": "Yes.", **more}, id=key, time=BEGIN + at)  # type: ignore[arg-type]


@pytest.mark.parametrize("pause", [1, 2])
def test_a_sample_is_fair_where_answers_and_feedback_take_turns(
    live: Live, monkeypatch: pytest.MonkeyPatch, pause: int
) -> None:
    """Their numbers are of one sequence: all answers may have odd ones, and versions may take turns too."""
    monkeypatch.setattr(rows, "MOST_ANSWERS", 200)
    for n in range(400):
        live.traffic.add([answer(f"t{n}", n, version=1 + n % 2, latency=1.0 + 4 * (n % 2))], [])
        live.traffic.add(
            [], [Feedback("thumb", f"t{n}", 1.0, id=f"t{n}-{k}", time=BEGIN) for k in range(pause)]
        )
    report = live.quality.measure(NAME, since=BEGIN, until=BEGIN + DAY, step="day", by="version")
    assert report.every == 2
    counts = {group.name: sum(n for _, n in group.answers) for group in report.groups}
    assert counts == {f"version {n}": pytest.approx(200, abs=16) for n in (1, 2)}


def test_a_stream_that_the_app_left_unread_is_no_refusal(live: Live) -> None:
    asked = [
        answer("a", 0, output="", metadata={"left": True}),
        answer("b", 1, output="", metadata={"left": True, "refusal": True}),
        answer("c", 2, output="", metadata={"left": False}),
        answer("d", 3, output="x", metadata={"left": True}),
    ]
    live.traffic.add(asked, [])
    report = live.quality.measure(NAME, since=BEGIN, until=BEGIN + DAY, step="day")
    (share,) = [one.whole.mean for one in report.groups[0].series if one.measure.name == "refusal"]
    assert share == 0.5


def test_figures_by_hand(live: Live) -> None:
    asked = [
        answer("a", 0, user="u", latency=1.0, cost=0.1, input_tokens=10),
        answer("b", HOUR, user="v", latency=3.0, cost=0.3, error="down", output=""),
        answer("c", DAY, user="u", latency=2.0, output=""),
        answer("d", DAY + 1, user="w", metadata={"refusal": "I will not."}),
        answer("e", DAY + 2, user="w", metadata={"finish_reason": "content_filter"}),
        answer("f", DAY + 3, user="w", metadata={"finish_reason": "stop", "refusal": None}),
    ]
    said = [
        Feedback("thumb", "a", 1.0, id="1", time=BEGIN),
        Feedback("thumb", "a", 0.0, id="2", time=BEGIN, source="annotator", user="eva"),
        Feedback("thumb", "c", 0.0, id="3", time=BEGIN),
        Feedback("correction", "c", text="No.", id="4", time=BEGIN),
        Feedback("correction", "c", text="No!", id="5", time=BEGIN),
        Feedback("score", "d", 7.5, name="judge", source="model", id="6", time=BEGIN),
        Feedback("rating", "f", 4.0, id="7", time=BEGIN),
        Feedback("copy", "d", 0.0, id="8", time=BEGIN),
        Feedback("copy", "e", 1.0, id="9", time=BEGIN),
    ]
    live.traffic.add(asked, said)
    report = live.quality.measure(NAME, since=BEGIN, until=BEGIN + 2 * DAY, step="day")
    group = report.groups[0]
    assert report.answers == 6 and group.answers == ((BEGIN, 2), (BEGIN + DAY, 4))
    means = {one.measure.name: ([p.mean for p in one.points], one.whole.n) for one in group.series}
    assert means["thumb"] == ([0.5, 0.0], 2)  # two thumbs on one answer are one value
    assert means["correction"] == ([0.0, 0.25], 6)
    assert means["error"] == ([0.5, 0.0], 6)
    assert means["refusal"] == (
        [0.0, 0.75],
        6,
    )  # an empty answer, a refusal, a filter; not the one that failed
    assert means["score:judge"] == ([7.5], 1) and means["rating"] == ([4.0], 1)
    assert means["latency"] == ([2.0, 2.0], 3)
    assert means["cost"] == ([pytest.approx(0.2)], 2)
    assert "abandon" not in means  # nobody ever did
    assert means["copy"] == ([0.0, 0.25], 6)  # a 0 says that nobody did


def test_thumbs_and_ratings_are_those_of_people(live: Live) -> None:
    """A judge sends scores under a name; its thumbs and stars say nothing of what people say."""
    said = [
        Feedback("thumb", "a", 1.0, id="1"),
        Feedback("thumb", "b", 1.0, id="2", source="annotator"),
        *(
            Feedback("thumb", key, 0.0, id=f"{key}-{of}", source=of)
            for key in "abc"
            for of in ("model", "code")
        ),
        *(Feedback("rating", key, 1.0, id=f"{key}-stars", source="model") for key in "abc"),
        Feedback("external_check", "c", 1.0, id="3", source="code"),
    ]
    live.traffic.add([answer(key, n) for n, key in enumerate("abc")], said)
    (group,) = live.quality.measure(NAME, since=BEGIN, until=BEGIN + DAY, step="day").groups
    means = {one.measure.name: (one.whole.mean, one.whole.n) for one in group.series}
    assert means["thumb"] == (1.0, 2) and means["external_check"] == (1.0, 1) and "rating" not in means


def test_values_under_several_names_count_as_their_mean(live: Live) -> None:
    """A thumb of the app and one of an import have names of their own; scores under two names are two measures."""
    said = [
        Feedback("rating", "a", 1.0, name="stars", id="1"),
        Feedback("rating", "a", 5.0, name="rating", id="2"),
        Feedback("thumb", "a", 1.0, id="3"),
        Feedback("thumb", "a", 1.0, name="thumbs", id="4"),
        Feedback("thumb", "a", 0.0, name="user_feedback", id="5"),
        Feedback("copy", "a", 1.0, name="button", id="6"),
        Feedback("copy", "a", 0.0, name="keyboard", id="7"),
        Feedback("score", "a", 0.25, name="clear", id="8"),
        Feedback("score", "a", 0.75, name="kind", id="9"),
    ]
    live.traffic.add([answer("a", 0), answer("b", 1)], said)
    (group,) = live.quality.measure(NAME, since=BEGIN, until=BEGIN + DAY, step="day").groups
    means = {one.measure.name: (one.whole.mean, one.whole.n) for one in group.series}
    assert means["rating"] == (3.0, 1)
    assert means["thumb"] == (2 / 3, 1)
    assert means["copy"] == (0.5, 2)
    assert (means["score:clear"], means["score:kind"]) == ((0.25, 1), (0.75, 1))


def test_who_changes_a_vote_counts_with_the_last_one(live: Live) -> None:
    """However it arrives; two people, and annotators without a name, are counted both."""
    said = [
        *(Feedback("thumb", key, 1.0, id=f"{key}-2", time=BEGIN + 2, user="u") for key in "ab"),
        *(Feedback("thumb", key, 0.0, id=f"{key}-1", time=BEGIN + 1) for key in "ab"),
        Feedback("thumb", "b", 0.0, id="v", time=BEGIN + 3, user="v"),
        *(
            Feedback("rating", "a", value, id=f"r{value}", time=BEGIN + at, source="annotator", user="eva")
            for at, value in enumerate((1.0, 3.0, 5.0))
        ),
        *(
            Feedback("rating", "b", value, id=f"s{value}", time=BEGIN, source="annotator")
            for value in (1.0, 4.0)
        ),
        *(
            Feedback("score", "a", value, name="clear", id=f"c{value}", time=BEGIN, source=source)
            for source, value in (("user", 0.0), ("user", 1.0), ("model", 0.25), ("model", 0.75))
        ),
    ]
    live.traffic.add([answer("a", 0, user="u"), answer("b", 1, user="u")], said)
    (group,) = live.quality.measure(NAME, since=BEGIN, until=BEGIN + DAY, step="day").groups
    means = {one.measure.name: [one.whole.mean, one.whole.n] for one in group.series}
    assert means["thumb"] == [0.75, 2] and means["rating"] == [3.75, 2]
    assert means["score:clear"] == [pytest.approx(2 / 3), 1]


def test_a_user_with_many_answers_counts_once(live: Live) -> None:
    """The interval is that of `whet.stats.interval` with the users as clusters."""
    rng = np.random.default_rng(4)
    asked, said, values, users = [], [], [], []
    for n in range(120):
        user = int(rng.integers(6))
        up = float(rng.random() < (0.9 if user % 2 else 0.3))
        asked.append(answer(f"a{n}", n, user=f"user-{user}"))
        said.append(Feedback("thumb", f"a{n}", up, id=f"f{n}", time=BEGIN))
        values.append(up)
        users.append(user)
    live.traffic.add(asked, said)
    series = live.quality.measure(NAME, since=BEGIN, until=BEGIN + DAY, step="day").groups[0].of("thumb")
    assert series is not None
    expected, alone = interval(values, 0, 1, clusters=users), interval(values, 0, 1)
    assert (series.whole.mean, series.whole.low, series.whole.high) == pytest.approx(
        (expected.mean, expected.low, expected.high)
    )
    assert series.whole.clusters == 6 and expected.high - expected.low > 1.5 * (alone.high - alone.low)


def test_who_has_no_name_is_a_session_an_episode_or_one_answer(live: Live) -> None:
    asked = [
        answer("a", 0, session="s"),
        answer("b", 1, session="s"),
        answer("c", 2, episode="e"),
        answer("d", 3),
        answer("e", 4),
    ]
    live.traffic.add(asked, [])
    whole = live.quality.measure(NAME, since=BEGIN, until=BEGIN + DAY).groups[0].series[0].whole
    assert (whole.n, whole.clusters) == (5, 4)


def test_a_truth_value_and_the_number_1_are_two_groups(live: Live) -> None:
    values = (True, True, False, 1, "pro", None)
    live.traffic.add(
        [replace(answer(f"a{n}", n), metadata={"plan": value}) for n, value in enumerate(values)], []
    )
    report = live.quality.measure(NAME, since=BEGIN, until=BEGIN + DAY, by="metadata.plan")
    shown = {group.name: sum(n for _, n in group.answers) for group in report.groups}
    assert shown == {"true": 2, "false": 1, "1": 1, "pro": 1, "no value": 1}
    segments = [one.segment for one in assigned_answers(live.database, NAME, "plan")]
    assert Counter(segments) == shown, "the rewards of versions have the same segments"


def test_splits_and_filters_add_up(live: Live) -> None:
    end = fill_weeks(live, Weeks(days=4, changed=2, models=("one", "other")))
    period = {"since": BEGIN, "until": end}

    def sizes(**options: object) -> dict[str, int]:
        report = live.quality.measure(NAME, **period, **options)  # type: ignore[arg-type]
        return {group.name: sum(n for _, n in group.answers) for group in report.groups}

    assert sizes() == {"": 160}
    assert sizes(by="version") == {"version 1": 80, "version 2": 80}
    assert sizes(by="model") == {"one": 80, "other": 80}
    assert sizes(by="metadata.country") == {"de": 80, "fr": 80}
    assert sizes(by="metadata.nothing") == {"no value": 160}
    assert sizes(version=2) == {"": 80} == sizes(model="other")


def test_a_label_is_where_it_stood_when_the_answer_came(live: Live) -> None:
    moved = live.registry.moves(NAME).items[0].at
    before = Inference(NAME, 1, {}, "x", id="before", time=moved - 1)
    after = Inference(NAME, 1, {}, "x", id="after", time=moved + 1)
    other = Inference(NAME, 2, {}, "x", id="other", time=moved + 2)
    live.traffic.add([before, after, other], [])
    period = {"since": moved - DAY, "until": moved + DAY}
    report = live.quality.measure(NAME, **period, label="production")  # type: ignore[arg-type]
    assert report.answers == 1 and sum(n for _, n in report.groups[0].answers) == 1
    groups = live.quality.measure(NAME, **period, by="label").groups  # type: ignore[arg-type]
    assert {g.name: sum(n for _, n in g.answers) for g in groups} == {"no label": 2, "production": 1}
    assert {(mark.kind, mark.text) for mark in report.marks} == {
        ("version", "version 1 was made by eva"),
        ("label", "production moved to version 1, by eva"),
    }


def test_a_move_of_a_label_says_why_and_that_an_experiment_made_it(live: Live) -> None:
    why = "Version 2 is better on thumb than version 1."
    live.registry.create(NAME, Prompt.parse("Say {{question}}"), author="eva")
    live.registry.move_label(NAME, "production", 2, actor=f"{EXPERIMENT}01a2", reason=why)
    texts = [mark.text for mark in live.quality.measure(NAME).marks]
    assert f"production moved to version 2, by an experiment: {why}" in texts


def test_the_label_latest_is_the_newest_version_when_the_answer_came(live: Live) -> None:
    second = live.registry.create(NAME, Prompt.parse("Say {{question}}"), author="eva").created
    told = [("a", 1, second - 1), ("b", 1, second + 1), ("c", 2, second + 2), ("d", 2, second + 3)]
    live.traffic.add([Inference(NAME, v, {}, "x", id=id, time=at) for id, v, at in told], [])
    period = {"since": second - DAY, "until": second + DAY}
    report = live.quality.measure(NAME, **period, label="latest", by="version")  # type: ignore[arg-type]
    assert report.answers == 3
    assert {g.name: sum(n for _, n in g.answers) for g in report.groups} == {"version 1": 1, "version 2": 2}


def test_a_label_that_never_stood_on_the_prompt_is_refused(live: Live) -> None:
    live.traffic.add([answer("a", HOUR)], [])
    with pytest.raises(UsageError, match=r'never had the label "prodution"\. Did you mean "production"'):
        live.quality.measure(NAME, since=BEGIN, until=BEGIN + DAY, label="prodution")


def test_steps_begin_on_hours_days_and_mondays(live: Live) -> None:
    live.traffic.add([answer("a", 3 * DAY + HOUR + 5), answer("b", 8 * DAY)], [])
    found = {}
    for step in ("hour", "day", "week"):
        report = live.quality.measure(NAME, since=BEGIN, until=BEGIN + 14 * DAY, step=step)
        found[step] = [at - BEGIN for at, _ in report.groups[0].answers]
    assert found == {"hour": [3 * DAY + HOUR, 8 * DAY], "day": [3 * DAY, 8 * DAY], "week": [0, 7 * DAY]}


def test_of_very_many_answers_a_sample_is_read(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    end = fill_weeks(live, Weeks(days=5, per_day=40))
    whole = live.quality.measure(NAME, since=BEGIN, until=end)
    monkeypatch.setattr(rows, "MOST_ANSWERS", 50)
    part = live.quality.measure(NAME, since=BEGIN, until=end)
    assert whole.every == 1 and part.every == 4 and part.answers == whole.answers == 200
    latency, sampled = whole.groups[0].of("latency"), part.groups[0].of("latency")
    assert latency is not None and sampled is not None
    assert sampled.whole.n == 50 and sampled.whole.low <= latency.whole.mean <= sampled.whole.high


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"by": "colour"}, '"colour" splits nothing'),
        ({"step": "dya"}, 'Did you mean "day"'),
        ({"days": 0}, "between 1 and"),
        ({"since": BEGIN, "until": BEGIN}, "The period is empty"),
        ({"days": 365, "step": "hour"}, "more than 800 steps"),
        ({"until": microseconds("0001-01-01")}, "before the year 2000"),
    ],
)
def test_what_cannot_be_is_refused(live: Live, options: dict[str, object], part: str) -> None:
    with pytest.raises(UsageError, match=part):
        live.quality.measure(NAME, **options)  # type: ignore[arg-type]


def test_a_prompt_that_is_not_there_is_named(live: Live) -> None:
    with pytest.raises(UsageError, match='no prompt "shop/hlep"'):
        live.quality.measure("shop/hlep")


def test_a_nul_in_stored_metadata_ends_no_report(live: Live) -> None:
    kept = {"a": {"b": "NUL"}, "back": "\\NUL", "finish_reason": "content_filter", "zone": "x"}
    live.traffic.add([answer("a", 0, metadata=kept), answer("b", 1, metadata={"zone": "x"})], [])
    with live.database.begin() as connection:
        escaped = func.replace(cast(inferences.c.metadata, Text), "NUL", r"\u0000")
        connection.execute(update(inferences).values(metadata=type_coerce(escaped, Text)))
    report = live.quality.measure(NAME, since=BEGIN, until=BEGIN + DAY, by="metadata.zone")
    refused = report.groups[0].of("refusal")
    assert [group.name for group in report.groups] == ["x"] and refused is not None
    assert (refused.whole.n, refused.whole.mean) == (2, 0.5)


def test_a_model_and_a_version_that_are_not_there_are_refused_with_those_that_are(live: Live) -> None:
    live.traffic.add([answer("a", 0, model="openai/m"), answer("b", 1, version=7, model="local/n")], [])
    period = {"since": BEGIN, "until": BEGIN + DAY}
    with pytest.raises(UsageError, match=r'by the model "openai/k"\. Its models: local/n, openai/m\.'):
        live.quality.measure(NAME, model="openai/k", **period)
    with pytest.raises(UsageError, match=r"has no version 9\. Its versions: (?:\d+, )*1\."):
        live.quality.measure(NAME, version=9, **period)
    assert live.quality.measure(NAME, version=7, model="local/n", **period).answers == 1
    assert live.quality.measure(NAME, version=1, since=BEGIN + DAY, until=BEGIN + 2 * DAY).answers == 0


@pytest.mark.parametrize(
    ("reason", "share"),
    [
        *[("content_filter", 1), ("FinishReason.PROHIBITED_CONTENT", 1), ("guardrail-intervened", 1)],
        *[("Content Filtered", 1), ("stop", 0), ("unsafety", 0), ("a new reason", 0)],
    ],
)
def test_the_reasons_that_providers_document_for_a_filter_are_refusals(
    live: Live, reason: str, share: float
) -> None:
    live.traffic.add([answer("a", 0, metadata={"finish_reason": reason})], [])
    refused = live.quality.measure(NAME, since=BEGIN, until=BEGIN + DAY).groups[0].of("refusal")
    assert refused is not None and refused.whole.mean == share
