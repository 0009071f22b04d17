"""The form that starts an experiment: what its fields mean, guard-rails and policy included."""

from __future__ import annotations

import json
import re
from html import unescape
from typing import Any

import pytest

from tests.server.conftest import Running, Start
from whet.errors import UsageError
from whet.prompt import Prompt
from whet_client.ids import now
from whet_client.records import Feedback, Inference
from whet_live.experiments import tracking
from whet_live.experiments.definition import read_definition
from whet_live.experiments.metrics import BEHAVIOUR
from whet_live.server.pages.trials import GOALS, GUARDS, POLICIES, definition_from
from whet_live.traffic.behaviour import RatedAnswer, fit_behaviour

NAME = "shop/help"
FORM = {
    "label": "production", "control": "1", "challenger": "2", "metric": "thumb", "share": "20", "hours": "2",
    "unit": "user", "policy": "fixed",
}  # fmt: skip

RATED = [RatedAnswer(f"a{n}", {"copy": 1.0} if n % 3 else {}, float(n % 3 > 0)) for n in range(60)]
REWARD = fit_behaviour(RATED).as_json()


def begin(server: Running, **fields: str) -> Any:
    """The experiment that the form starts, sent by an approver."""
    browser = server.browser("approver")
    answer = browser.submit(f"/new-experiment/{NAME}", {**FORM, **fields})
    assert answer.status == 303, answer.text
    return server.state.live.experiments.get(answer.headers["location"].rpartition("/")[2])


def prompt(server: Running) -> None:
    """Two versions, the first in production."""
    registry = server.state.live.registry
    registry.create(NAME, Prompt.parse("Help.\n{{question}}"), author="ann", label="production")
    registry.create(NAME, Prompt.parse("Help in one line.\n{{question}}"), author="ann")


@pytest.mark.parametrize("metric", GOALS)
@pytest.mark.parametrize("policy", POLICIES)
def test_every_choice_of_the_form_is_a_definition(metric: str, policy: str) -> None:
    limits = {f"guard-{one}": "1" for one in GUARDS if one not in ("cost", "latency")}
    meant = definition_from(NAME, {**FORM, "metric": metric, "policy": policy, **limits})
    if metric == BEHAVIOUR:
        meant["goal"]["reward"] = REWARD
    found = read_definition(meant)
    assert (found.goal.name, found.policy.kind, found.goal.window) == (metric, policy, 7200)
    assert [guard.limit for guard in found.guards] == [0.01, 1.0]


def test_what_people_do_counts_as_0_where_nobody_did_it() -> None:
    fixed = [name for name in GOALS if name != BEHAVIOUR]
    found = {name: read_definition(definition_from(NAME, {**FORM, "metric": name})).goal for name in fixed}
    assert {name for name, goal in found.items() if goal.missing == 0} == {"copy", "regenerate", "abandon"}
    assert {name for name, goal in found.items() if goal.direction == "min"} == {
        "regenerate", "abandon", "edit_distance",
    }  # fmt: skip
    assert (found["rating"].low, found["rating"].high) == (1, 5)


@pytest.mark.parametrize("wrong", ["-1", "much", "nan", "inf"])
def test_a_limit_that_is_no_number_is_refused(wrong: str) -> None:
    with pytest.raises(UsageError, match="leave it empty"):
        definition_from(NAME, {**FORM, "guard-error": wrong})


def test_guard_rails_and_policy_are_chosen_in_the_form(start: Start) -> None:
    """An answer takes 12 seconds so far: a range of 20 times the limit would not reach there."""
    with start() as server:
        prompt(server)
        server.state.live.traffic.add([Inference(NAME, 1, latency=12.0, id=f"a{n}") for n in range(3)])
        page = server.browser("approver").page(f"/new-experiment/{NAME}").text
        assert all(f'name="guard-{metric}"' in page for metric in GUARDS)
        assert all(f'value="{policy}"' in page for policy in POLICIES)
        fields = {"policy": "top_two", "guard-error": "3", "guard-latency": "0.5", "guard-cost": "0.001"}
        found = begin(server, **fields).definition
        assert found.policy.kind == "top_two"
        guards = {guard.metric.name: guard for guard in found.guards}
        assert {name: guard.limit for name, guard in guards.items()} == {
            "error": pytest.approx(0.03), "latency": 0.5, "cost": 0.001,
        }  # fmt: skip
        assert all((guard.metric.direction, guard.metric.window) == ("min", 0) for guard in guards.values())
        assert (guards["latency"].metric.high, guards["cost"].metric.high) == (48.0, pytest.approx(0.02))


def test_the_page_of_an_experiment_names_its_guard_rails_and_policy(start: Start) -> None:
    with start() as server:
        prompt(server)
        made = begin(server, **{"policy": "track_and_stop", "guard-error": "3"})
        text = server.browser("viewer").page(f"/experiments/{made.id}").text
        assert "track and stop" in text
        assert "error: at most 0.03 worse than version 1" in text


def test_a_policy_that_there_is_not_is_refused(start: Start) -> None:
    with start() as server:
        prompt(server)
        browser = server.browser("approver")
        for wrong in ({"policy": "luck"}, {"metric": "score"}, {"guard-error": "x"}, {"guard-cost": "0"}):
            assert browser.submit(f"/new-experiment/{NAME}", {**FORM, **wrong}).status == 400
        assert server.state.live.experiments.list().items == []


def test_an_experiment_on_behaviour_shows_its_weights_and_needs_ratings(start: Start) -> None:
    with start() as server:
        prompt(server)
        browser = server.browser("approver")
        refused = browser.submit(f"/new-experiment/{NAME}", {**FORM, "metric": BEHAVIOUR})
        assert refused.status == 400
        assert f'No answers of "{NAME}" are stored.' in unescape(refused.text)
        answers = [Inference(NAME, 1, id=one.id, user=one.id) for one in RATED]
        said = [Feedback("thumb", one.id, one.rating, user=one.id) for one in RATED]
        said += [Feedback("copy", one.id, 1.0) for one in RATED if one.signals]
        server.state.live.traffic.add(answers, said)
        made = begin(server, metric=BEHAVIOUR)
        text = server.browser("viewer").page(f"/experiments/{made.id}").text
        assert "Fitted to 60 ratings by 60 people among 60 answers" in text
        (weight,) = (made.definition.goal.reward or {})["weights"]
        assert f"{weight['weight']['value']:+.2f}" in text


def test_the_page_of_an_experiment_says_when_it_is_being_counted(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracking, "FEW", -1)
    with start() as server:
        prompt(server)
        made = begin(server)
        browser = server.browser("editor")
        text = browser.page(f"/experiments/{made.id}").text
        assert "Its traffic is being counted" in text
        assert "Stop without a decision" in text
        server.state.live.experiments.status(made.id)
        text = browser.page(f"/experiments/{made.id}").text
        assert "These figures are those of the last look." in text


def answers(server: Running, count: int = 3, **named: str) -> None:
    """Answers of the prompt that name these units and no others."""
    rows = [Inference(NAME, 1, {"question": "x"}, "y", **named) for _ in range(count)]
    server.state.live.traffic.add(rows, [])


def chosen(page: str) -> str:
    """The unit that the form begins with."""
    found = re.search(r'name="unit" value="(\w+)"[^>]*checked', page)
    assert found is not None
    return found[1]


def test_the_form_begins_with_the_unit_that_the_answers_name(server: Running) -> None:
    prompt(server)
    browser = server.browser("approver")
    assert chosen(browser.page(f"/new-experiment/{NAME}").text) == "session"
    answers(server, user="u")
    assert chosen(browser.page(f"/new-experiment/{NAME}").text) == "user"
    answers(server, 4, user="u", session="s")
    assert chosen(browser.page(f"/new-experiment/{NAME}").text) == "user"
    answers(server, 200, session="s")
    assert chosen(browser.page(f"/new-experiment/{NAME}").text) == "session"


def test_an_experiment_on_a_unit_that_no_answer_names_says_so(
    server: Running, caplog: pytest.LogCaptureFixture
) -> None:
    prompt(server)
    answers(server, user="u")
    experiment = begin(server, unit="session")
    expected = "Units so far: 0. This experiment counts sessions; the last 3 answers name users only."
    server.state.live.experiments.status(experiment.id)
    browser = server.browser("approver")
    assert expected in browser.page(f"/experiments/{experiment.id}").text
    status = server.client("approver").get(f"/v1/experiments/{experiment.id}").json
    assert status["now"]["verdict"]["warnings"][0] == f"{expected} Make it anew with unit: user."
    caplog.clear()
    for _ in range(2):
        server.state.live.experiments.refresh()
    assert caplog.text.count(expected) == 1
    server.state.live.experiments.stop(experiment.id, actor="ann")
    assert expected not in browser.page(f"/experiments/{experiment.id}").text
    definition = {
        "prompt": NAME,
        "label": "production",
        "arms": [{"version": 1}, {"version": 2}],
        "goal": "thumb",
    }
    made = server.client("approver").send("/v1/experiments", {"definition": definition}).json
    assert len(made["warnings"]) == 1 and made["warnings"][0].startswith(expected)
    server.state.live.experiments.stop(made["id"], actor="ann")
    good = (
        server.client("approver").send("/v1/experiments", {"definition": {**definition, "unit": "user"}}).json
    )
    assert good["warnings"] == []


@pytest.mark.parametrize("body", [{}, {"prompt": NAME}, {"definition": {"prompt": NAME}}])
def test_a_body_that_is_no_experiment_is_answered_with_one(server: Running, body: dict[str, Any]) -> None:
    """The example in the message is a body that the server takes."""
    prompt(server)
    approver = server.client("approver")
    refused = approver.send("/v1/experiments", body)
    assert refused.status == 400
    example, _ = json.JSONDecoder().raw_decode(refused.message[refused.message.index('{"definition"') :])
    example["definition"]["prompt"] = NAME
    assert approver.send("/v1/experiments", example).status == 201


def answer_daily(server: Running, **more: Any) -> None:
    """Ten users ask on each of the last ten days; each rates with 2 or 4 stars, and one in two copies."""
    day = 86_400_000_000
    asked = [
        Inference(NAME, 1, id=f"a{n}", user=f"user-{n}", time=now() - (n // 10) * day - 1, **more)
        for n in range(100)
    ]
    said = [Feedback("rating", one.id, float(2 + 2 * (n % 2)), time=one.time) for n, one in enumerate(asked)]
    said += [Feedback("copy", one.id, 1.0, time=one.time) for one in asked[::2]]
    server.state.live.traffic.add(asked, said)


def test_the_form_knows_the_traffic_and_says_how_long_it_takes(start: Start) -> None:
    """Stars that vary by 1 around 3: v = 1/16 of the range squared; 8.5 v (5 + 1.25) / 0.1^2 = 332 units at 20 per cent."""
    with start() as server:
        prompt(server)
        empty = server.browser("editor").get(f"/new-experiment/{NAME}").text
        assert "No answer came in the last 14 days" in empty
        answer_daily(server, metadata={"plan": "free"})
        seen = server.state.live.experiments.forecast(NAME, "user")
        assert (seen.answers, set(seen.metrics)) == (100, {"rating", "copy"})
        rating, copied = seen.metrics["rating"], seen.metrics["copy"]
        assert (rating.mean, rating.variance, copied.mean, copied.variance) == (3.0, 0.0625, 0.5, 0.25)
        assert rating.a_day == copied.a_day == seen.units_a_day == pytest.approx(100 / 9, rel=0.01)
        assert rating.days(0.4, 0.2) == 35 and rating.days(0.4, 0.5) == 21
        shown = server.browser("editor").get(f"/new-experiment/{NAME}").text
        assert "11 users a day" in shown and "about 35 days" in shown
        assert "would not end: thumb, regenerate, abandon, edit distance, external check" in shown


def test_scores_that_the_traffic_has_can_be_chosen(start: Start) -> None:
    with start() as server:
        prompt(server)
        answer_daily(server)
        said = [Feedback("score", f"a{n}", n % 4 / 4, name="tone", source="model") for n in range(40)]
        server.state.live.traffic.add([], said)
        shown = server.browser("editor").get(f"/new-experiment/{NAME}").text
        assert 'value="score tone"' in shown
        assert begin(server, metric="score tone").definition.goal.name == "tone"


def test_an_answer_without_a_unit_and_outcomes_that_never_vary_are_said(start: Start) -> None:
    with start() as server:
        prompt(server)
        server.state.live.traffic.add([Inference(NAME, 1, id="nobody")], [])
        assert (
            "name no user, session or episode" in server.browser("editor").get(f"/new-experiment/{NAME}").text
        )
        server.state.live.traffic.add(
            [Inference(NAME, 1, id="one", user="u")], [Feedback("thumb", "one", 1.0)]
        )
        seen = server.state.live.experiments.forecast(NAME, "user")
        assert seen.metrics["thumb"].days(0.1, 0.5) is None


def test_the_form_never_proposes_to_try_what_is_there_now(server: Running) -> None:
    """Where the newest version was in production, it stood in both fields."""
    prompt(server)
    registry, viewer = server.state.live.registry, server.browser("editor")

    def proposed() -> str:
        text = viewer.page(f"/new-experiment/{NAME}").text
        (field,) = re.findall(r'<input[^>]*name="challenger"[^>]*>', text)
        found = re.search(r'value="([^"]*)"', field)
        return "" if found is None else found[1]

    assert proposed() == "2"
    registry.move_label(NAME, "production", 2, actor="ann")
    assert proposed() == ""
    registry.move_label(NAME, "staging", 1, actor="ann")
    assert proposed() == "1"
