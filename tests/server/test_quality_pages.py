"""Quality over time as pages and as JSON: what is drawn, what is said to those who do not see it, what is refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.live.conftest import copy_sqlite
from tests.live.quality.traffic import BEGIN, DAY, NAME, Weeks, fill_weeks, make_prompt
from tests.server.client import Answer
from tests.server.conftest import Running, running
from whet_live.database import iso
from whet_live.quality import QualityAlert
from whet_live.server import shared_reports
from whet_live.server.limits import ServerLimits
from whet_live.server.pages.quality import alert_row


@pytest.fixture(scope="module")
def watched(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, str]]:
    """A server whose prompt became worse when the model changed, and the query string of that time; no test here changes
    anything."""
    url = copy_sqlite(sqlite_template, tmp_path_factory.mktemp("watched"))
    with running(url, limits=ServerLimits()) as server:
        make_prompt(server.state.live)
        weeks = Weeks(changed=20, thumbs=(0.9, 0.4), fingerprints=("fp_a", "fp_b"))
        end = fill_weeks(server.state.live, weeks)
        server.state.live.quality.watch(end + 2 * DAY)
        yield server, f"since={iso(BEGIN)[:10]}&until={iso(end)[:10]}"


def words(answer: Answer) -> str:
    """The text of a page without its marks."""
    return " ".join(re.sub(r"<[^>]+>", " ", answer.text).split())


def test_every_measure_has_a_picture_with_words_for_it(watched: tuple[Running, str]) -> None:
    server, period = watched
    answer = server.browser("viewer").page(f"/quality/{NAME}?{period}")
    assert answer.status == 200
    titles = re.findall(r"<title id=[^>]*>([^<]+) over time</title>", answer.text)
    assert titles == [
        "Joined reward",
        "Thumbs up",
        "Corrected",
        "Errors",
        "Refused or empty",
        "Latency",
        "Tokens read",
        "Tokens written",
        "Cost",
    ]
    descriptions = re.findall(r"<desc[^>]*>([^<]+)</desc>", answer.text)
    assert len(descriptions) == len(titles)
    assert all(one.startswith("From 2026-01-05 to 2026-02-04. all answers: ") for one in descriptions[1:])
    assert re.search(r"95% of answers up to [\d.]+ s \([\d.]+ s to [\d.]+ s\)", words(answer))
    assert 'class="band band-0"' in answer.text and answer.text.count("The numbers of this picture") == len(
        titles
    )


def test_what_changed_is_drawn_and_listed(watched: tuple[Running, str]) -> None:
    server, period = watched
    answer = server.browser("viewer").page(f"/quality/{NAME}?{period}")
    assert (
        answer.text.count('class="change change-model"')
        == 9
        == answer.text.count('class="change change-drift"')
    )
    assert "gpt-x (fp_b) answers" in words(answer)
    assert (
        '<span class="tag bad">drift</span>' in answer.text
        and '<span class="tag good">drift' not in answer.text
    )
    assert re.search(
        r"shop/help: thumbs up fell from 9\d\.\d% to 4\d\.\d%|shop/help: thumbs up fell from", words(answer)
    )


def test_the_form_splits_and_keeps_what_was_chosen(watched: tuple[Running, str]) -> None:
    server, period = watched
    browser = server.browser("viewer")
    answer = browser.page(f"/quality/{NAME}?{period}&by=version&step=week")
    assert "version 1: " in words(answer) and "version 2: " in words(answer)
    assert (
        '<option value="version" selected>' in answer.text and '<option value="week" selected>' in answer.text
    )
    assert "country" in browser.page(f"/quality/{NAME}?{period}&by=key&key=country").text
    none = browser.page(f"/quality/{NAME}?since=2020-01-01&until=2020-02-01")
    assert 'class="nothing"' in none.text


def test_a_page_says_until_when_its_answers_were_read(
    watched: tuple[Running, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = watched[0].browser("viewer")

    def read() -> tuple[str, bool]:
        text = browser.page(f"/quality/{NAME}?days=1000").text
        (until,) = re.findall(r'answers until <time datetime="([^"]+)"', text)
        return until, "this page is kept for 30 seconds" in text

    (first, kept), (second, _) = read(), read()
    assert first < second and not kept, "few answers are read anew each time"
    monkeypatch.setattr(shared_reports, "LARGE", 1200)
    assert read() == (until := read()) and until[1], "a kept page keeps the time of its answers"
    closed = browser.page(f"/quality/{NAME}?{watched[1]}").text
    assert "answers until" not in closed and "is kept" not in closed


@pytest.mark.parametrize(
    ("query", "part"),
    [
        ("days=none", "The number of days"),
        ("since=tomorrow", "tomorrow"),
        ("step=year", "no step of time"),
        ("days=9999", "1098"),
    ],
)
def test_what_cannot_be_is_a_page_that_says_so(watched: tuple[Running, str], query: str, part: str) -> None:
    answer = watched[0].browser("viewer").page(f"/quality/{NAME}?{query}")
    assert answer.status == 400 and part in words(answer)


def test_a_prompt_that_is_not_there(server: Running) -> None:
    assert server.browser("viewer").page("/quality/no/such").status == 404
    answer = server.client("viewer").get("/v1/quality/no/such")
    assert answer.status == 404 and "no/such" in answer.message


def test_the_same_figures_as_json(watched: tuple[Running, str]) -> None:
    server, period = watched
    client = server.client("viewer")
    report = client.get(f"/v1/quality/{NAME}?{period}&by=version&step=week").json
    assert report["answers"] == 1200 and report["step_seconds"] == 604_800 and report["every"] == 1
    assert [group["name"] for group in report["groups"]] == ["version 1", "version 2"]
    thumbs = [
        one for group in report["groups"] for one in group["measures"] if one["measure"]["name"] == "thumb"
    ]
    before, after = (one["whole"] for one in thumbs)
    assert before["low"] > 0.8 > 0.6 > after["high"] and before["clusters"] == 25
    assert {mark["kind"] for mark in report["marks"]} == {"model", "drift"}
    alerts = client.get(f"/v1/alerts?prompt={NAME}").json["alerts"]
    assert {(one["kind"], one["worse"]) for one in alerts} == {("drift", True), ("model", True)}
    first = client.get("/v1/alerts?limit=1").json
    rest = client.get(f"/v1/alerts?before={first['before']}").json
    assert [one["id"] for one in first["alerts"] + rest["alerts"]] == [one["id"] for one in alerts]
    assert client.get("/v1/quality/shop/help?step=year").status == 400


def test_what_versions_are_worth_as_json(watched: tuple[Running, str]) -> None:
    client = watched[0].client("viewer")
    found = client.get(f"/v1/rewards/{NAME}").json
    assert [one["version"] for one in found["rewards"]] == [1, 2]
    assert {(one["state"], one["drawn"]) for one in found["rewards"]} == {("calibrated", False)}
    assert found["rewards"][0]["value"]["low"] > found["rewards"][1]["value"]["high"]
    assert client.get(f"/v1/rewards/{NAME}?by=plan").status == 400
    assert client.get("/v1/rewards/no/such").status == 404


def test_programs_see_no_quality(watched: tuple[Running, str]) -> None:
    assert watched[0].client("app").get(f"/v1/quality/{NAME}").status == 403


def test_the_joined_reward_is_drawn_for_each_version_where_enough_people_rated(
    watched: tuple[Running, str],
) -> None:
    server, period = watched
    browser = server.browser("viewer")
    answer = browser.page(f"/quality/{NAME}?{period}&step=week")
    (drawn,) = re.findall(r"<desc[^>]*>([^<]*version 2:[^<]*)</desc>", answer.text)
    assert re.search(
        r"version 1: \d+\.\d% \(|version 1: 0\.\d+ \(95%: 0\.\d+ to 0\.\d+\), \d+ rated answers of 25 raters",
        drawn,
    )
    shown = words(answer)
    assert f"whet feedback rewards {NAME}" in shown and "Version 2: no draw assigned this version" in shown
    assert "Rated answers" in shown and "Raters" in shown
    by_hour = words(browser.page(f"/quality/{NAME}?since=2026-01-05&until=2026-01-07&step=hour"))
    assert "Joined reward over time" not in by_hour and "Joined reward: " in by_hour
    one = browser.page(f"/quality/{NAME}?{period}&step=week&model=gpt-x")
    assert "it is not drawn for one of them" in words(one) and "Joined reward over time" not in one.text
    second = browser.page(f"/quality/{NAME}?{period}&step=week&version=2").text
    assert "version 2: " in second and "version 1: " not in second


def test_a_delivery_is_named_by_the_kind_of_its_channel_unless_there_are_several() -> None:
    """Pages showed the names by which the server tells channels apart, such as webhook-3d1f7bb3769e."""
    alert = QualityAlert("a1", "k", "drift", NAME, "thumb", True, 0, 0, "It fell.")
    one = replace(alert, deliveries={"mail-0a": "failed", "webhook-1b": "sent"})
    assert "mail: failed, webhook: sent" in str(alert_row(one))
    two = replace(alert, deliveries={"webhook-1b": "sent", "webhook-2c": "waiting"})
    assert "webhook-1b: sent, webhook-2c: waiting" in str(alert_row(two))
