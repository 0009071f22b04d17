"""The playground: what a run costs before and after, its budget, who may run, and what stays of it."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.server.client import Answer, Client
from tests.server.conftest import Running, Start
from tests.server.playground_model import HOSTILE
from tests.serving import server_thread
from whet.errors import UsageError
from whet.prompt import Prompt
from whet_client.ids import now
from whet_client.records import Inference
from whet_live import playground as module
from whet_live.playground import Playground, PlaygroundConfig, read_playground
from whet_live.server.run import ServeOptions, serve

NAME = "shop/p"
PLACE = f"/playground/{NAME}"
MODEL = "openai/echo"
DAY = 86_400_000_000
SECRET = "my very own question"


@pytest.fixture(scope="module")
def model_url() -> Iterator[str]:
    with server_thread("--function", "tests.server.playground_model:answer") as url:
        yield url


def write_config(folder: Path, url: str, daily: float = 1.0, **more: Any) -> Path:
    price = {"input": 100, "output": 100}
    entry = {"address": MODEL, "base_url": url, "price": price, "max_tokens": 100, **more}
    path = folder / "playground.json"
    path.write_text(json.dumps({"models": [entry], "usd_per_day": daily}))
    return path


@pytest.fixture
def shop(start: Start, tmp_path: Path, model_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    """A server with a playground and a prompt of two versions. Its clock begins at noon: a budget of a day lasts to its end."""
    ahead = DAY // 2 - now() % DAY
    monkeypatch.setattr("whet_live.database.engine.now", lambda: now() + ahead)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    with start(playground=write_config(tmp_path, model_url)) as server:
        registry = server.state.live.registry
        registry.create(NAME, Prompt.parse("Answer: {{question}}\n"), author="ann", label="production")
        registry.create(NAME, Prompt.parse("Answer briefly: {{question}}\n"), author="ann", parent=1)
        yield server


def words(answer: Answer) -> str:
    """The text of a page without its marks."""
    return " ".join(re.sub(r"<[^>]+>", " ", answer.text).split())


def submit(browser: Client, answer: Answer, **fields: str) -> Answer:
    """Send the form of a page, as its Run button does."""
    key = re.search(r'name="do" value="(run [^"]+)"', answer.text) or re.search(
        r'value="(run [^"]+)"', answer.text
    )
    assert key is not None
    usual = {"version": "1", "other": "", "slot-question": SECRET, "model": MODEL, "do": key[1]}
    return browser.submit(PLACE, {**usual, **fields})


def test_the_cost_is_told_before_and_after_and_two_versions_answer_side_by_side(shop: Running) -> None:
    browser = shop.browser("editor")
    page = browser.page(f"{PLACE}?version=1&other=2")
    assert "Spent today (UTC): $0.00 of $1.00" in words(page)
    before = submit(browser, page, other="2", do="estimate")
    found = re.search(r"At most \$([\d.]+) for 2 answers\. Nothing was asked yet\.", words(before))
    assert found is not None and shop.state.playground is not None and shop.state.playground.spent() == 0.0
    assert SECRET in before.text, "what was typed stays"
    after = submit(browser, before, other="2")
    shown = words(after)
    cost = re.search(r"It cost \$([\d.]+)\.", shown)
    assert cost is not None and 0 < float(cost[1]) <= float(found[1])
    assert shop.state.playground.spent() == pytest.approx(float(cost[1]), rel=0.05)
    assert f"You said: Answer: {SECRET}" in shown and f"You said: Answer briefly: {SECRET}" in shown
    assert "<img" not in after.text and 'class="duel"' in after.text


def test_who_ran_what_is_logged_and_what_was_said_is_not(shop: Running, tmp_path: Path) -> None:
    browser = shop.browser("editor")
    submit(browser, browser.page(PLACE))
    entries = [one for one in shop.state.live.registry.audit().items if one.action.startswith("playground.")]
    cost, run = entries
    assert (run.action, run.actor, run.subject) == ("playground.run", "editor", NAME)
    assert run.details["versions"] == [1] and run.details["model"] == MODEL
    assert 0 < cost.details["usd"] <= run.details["most_usd"] and cost.details["failed"] == []
    files = b"".join(path.read_bytes() for path in tmp_path.glob("whet.db*"))
    assert SECRET.encode() not in files and HOSTILE.encode() not in files


def test_a_form_that_is_sent_twice_runs_once(shop: Running) -> None:
    browser = shop.browser("editor")
    page = browser.page(PLACE)
    assert submit(browser, page).status == 200
    spent = shop.state.playground.spent() if shop.state.playground else None
    again = submit(browser, page)
    assert again.status == 409 and "sent before" in words(again) and SECRET in again.text
    assert shop.state.playground is not None and shop.state.playground.spent() == spent
    assert submit(browser, again).status == 200, "the form that is shown again runs once more"


def test_only_editors_with_a_form_of_their_session_run_allowed_models(shop: Running) -> None:
    viewer, editor = shop.browser("viewer"), shop.browser("editor")
    assert viewer.page(PLACE).status == 403
    assert "Try it" not in viewer.page(f"/prompts/{NAME}").text
    assert PLACE in editor.page(f"/prompts/{NAME}").text
    page = editor.page(PLACE)
    assert submit(viewer, page).status == 403 and submit(editor, page, csrf="0" * 64).status == 403
    other = submit(editor, page, model="openai/dear")
    assert other.status == 400 and "models that this server allows" in words(other)
    long = submit(editor, page, **{"slot-question": "x" * 50_001})
    assert long.status == 400 and "50,000" in words(long)
    assert submit(editor, page, version="9").status == 404
    assert editor.page("/playground/no/such").status == 404
    assert shop.state.playground is not None and shop.state.playground.spent() == 0.0


def test_a_server_without_a_playground_says_how_to_get_one(server: Running) -> None:
    server.state.live.registry.create(NAME, Prompt.parse("Hi."), author="ann")
    browser = server.browser("admin")
    answer = browser.page(PLACE)
    assert answer.status == 404 and "--playground FILE" in words(answer)
    assert "Try it" not in browser.page(f"/prompts/{NAME}").text


def test_a_budget_that_does_not_last_asks_nothing(shop: Running, model_url: str, tmp_path: Path) -> None:
    path = write_config(tmp_path, model_url, 0.02)
    small = Playground(shop.state.live.database, read_playground(path))
    version = shop.state.live.registry.get(f"{NAME}/1")
    late = now() // DAY * DAY + DAY - 1
    first = small.plan("a", [version], {"question": "x"}, MODEL)
    assert first.most <= 0.02 < 2 * first.most
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_answers", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            small.run(first, "ann", late)
    assert small.spent(late) == first.most, "what is not known counts with the most"
    second = small.plan("b", [version], {"question": "x"}, MODEL)
    with pytest.raises(
        UsageError, match=r"Nothing was asked\. Shorten the input, or wait until midnight UTC"
    ):
        small.run(second, "ann", late)
    other_server = Playground(shop.state.live.database, read_playground(path))
    assert other_server.spent(late) == first.most
    assert other_server.run(second, "ann", late + 1)[0].cost is not None, (
        "after midnight there is a new budget"
    )
    lagging = small.plan("c", [version], {"question": "x"}, MODEL)
    with pytest.raises(UsageError):
        small.run(lagging, "ann", late)


async def _interrupt(*anything: object) -> list[Any]:
    raise KeyboardInterrupt


def test_a_model_that_cannot_be_reached_is_told_of_and_costs_nothing(shop: Running, tmp_path: Path) -> None:
    path = write_config(tmp_path, "http://127.0.0.1:9/v1")
    dead = Playground(shop.state.live.database, read_playground(path))
    version = shop.state.live.registry.get(f"{NAME}/1")
    (answer,) = dead.run(dead.plan("a", [version], {"question": "x"}, MODEL), "ann")
    assert answer.error and answer.cost == 0.0 and dead.spent() == 0.0
    entry = shop.state.live.registry.audit().items[0]
    assert entry.details["failed"] == [1]


@pytest.mark.parametrize(
    ("value", "part"),
    [
        ({}, "models"),
        ({"models": []}, "models"),
        ({"models": [{"address": MODEL}]}, "has no price"),
        ({"models": [{"address": "nowhere/x", "price": {"input": 1, "output": 1}}]}, "models\\[0\\]"),
        ({"models": [{"price": {"input": 1, "output": 1}}]}, "an address"),
        ({"models": [{"address": MODEL, "price": {"input": 1, "output": 1}}] * 2}, "twice"),
        ({"models": [{"address": MODEL, "price": {"input": 1, "output": 1}}], "usd_per_day": 0}, "above 0"),
        ({"models": [{"address": MODEL, "price": {"input": 1, "output": 1}}], "usd": 1}, "'usd' is no key"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused(
    tmp_path: Path, value: object, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    path = tmp_path / "playground.json"
    path.write_text(json.dumps(value))
    with pytest.raises(UsageError, match=part):
        read_playground(path)


def test_a_broken_file_is_refused_before_the_first_token_is_made(tmp_path: Path) -> None:
    lines: list[str] = []
    options = ServeOptions(
        port=0, database=f"sqlite:///{tmp_path}/whet.db", playground=tmp_path / "none.json"
    )
    with pytest.raises(UsageError, match="cannot be read as JSON"):
        serve(options, lines.append, lines.append)
    assert lines == [] and isinstance(PlaygroundConfig({}).usd_per_day, float)


def log_answer(shop: Running, key: str, version: int, inputs: dict[str, Any], prompt: str = NAME) -> None:
    shop.state.live.traffic.add([Inference(prompt, version, inputs, "A poor answer.", id=key)])


def test_the_input_of_an_answer_opens_in_the_playground(shop: Running) -> None:
    log_answer(shop, "a 1/&", 1, {"question": f"{SECRET} {HOSTILE}"})
    editor, viewer = shop.browser("editor"), shop.browser("viewer")
    answer = editor.page("/feedback/a%201/&")
    (place,) = re.findall(r'href="([^"]*)"[^>]*>Try this input', answer.text)
    assert "Try this input" not in viewer.page("/feedback/a%201/&").text
    place = html.unescape(place)
    assert place.startswith(f"{PLACE}?version=1&answer=a") and "question" not in place
    page = editor.page(place)
    assert f"{SECRET} &lt;img" in page.text and "<img" not in page.text
    shown = words(page)
    assert "The input is that of an answer ." in shown and "has no value" not in shown
    assert re.search(r'type="hidden" name="answer" value="a 1/&amp;"', page.text), "another version keeps it"
    ran = submit(editor, page, **{"slot-question": SECRET})
    assert f"You said: Answer: {SECRET}" in words(ran)


def test_what_of_an_input_does_not_fit_is_said(shop: Running) -> None:
    log_answer(shop, "a2", 9, {"topic": "tax", "page": {"n": 1}})
    editor = shop.browser("editor")
    answer = editor.page("/feedback/a2")
    assert f'href="{PLACE}?answer=a2"' in answer.text, "its version is unknown here: the newest"
    shown = words(editor.page(f"{PLACE}?answer=a2"))
    assert "It has no value for {{question}}. No slot takes its topic, page." in shown
    log_answer(shop, "a3", 1, {"question": {"n": [1, "ü"]}})
    assert "{&quot;n&quot;:[1,&quot;ü&quot;]}" in editor.page(f"{PLACE}?answer=a3").text


def test_the_answer_of_another_prompt_fills_nothing_in(shop: Running) -> None:
    log_answer(shop, "a4", 1, {"question": SECRET}, prompt="other")
    editor = shop.browser("editor")
    for key in ("a4", "none"):
        answer = editor.page(f"{PLACE}?answer={key}")
        assert answer.status == 404 and SECRET not in answer.text
    assert "Try this input" not in editor.page("/feedback/a4").text, "a prompt that is not in the registry"


def test_without_a_playground_no_answer_names_one(server: Running) -> None:
    server.state.live.registry.create(NAME, Prompt.parse("Hi."), author="ann")
    log_answer(server, "a5", 1, {"question": SECRET})
    assert "Try this input" not in server.browser("admin").page("/feedback/a5").text
