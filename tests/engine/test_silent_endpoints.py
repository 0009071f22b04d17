"""Endpoints that answer nothing, nothing any more, or only empty texts: the run stops, keeps its test, and goes on later."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import whet
from tests.api.world import right
from tests.engine.odd import careful, failing, odd_server, optimize, said, sorter
from whet.cli.show import show_runs
from whet.engine import calls as calls_module
from whet.engine import model_client
from whet.engine.run_index import run_row
from whet.errors import ProviderError
from whet.models.callable import CallableModel


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(calls_module, "delay", lambda attempt, retry_after, rng: 0.0)
    monkeypatch.setattr(model_client, "OVERLOADED_WAIT", 0.2)
    yield


def varied(body: dict[str, Any], number: int) -> Any:
    """An optimizer model that helps, each time in other words."""
    return said(f"<PROMPT>Be careful and sort review {number}.</PROMPT>")


FEW = whet.Budget(calls=60, optimizer_calls=2)


def stored(folder: Path) -> dict[str, Any]:
    (path,) = folder.glob("runs/*/result.json")
    result: dict[str, Any] = json.loads(path.read_text())
    return result


@pytest.mark.parametrize(
    ("status", "attempts"), [(400, 4), (422, 4), (408, 2), (500, 12), (502, 12), (503, 0)]
)
async def test_an_optimizer_that_fails_less_often_than_a_storm_stops_the_run(
    status: int, attempts: int, tmp_path: Path
) -> None:
    async with odd_server(task=sorter, optimizer=failing(status)) as (url, calls):
        words = r"has not answered ([12] request\(s\)|12 attempts)|has answered nothing for"
        with pytest.raises(ProviderError, match=rf"({words}).*the model is gone"):
            await optimize(url, tmp_path, budget=FEW)
        assert calls["task"] == 9, "no row of the test was asked"
        assert calls["optimizer"] == attempts or status == 503
    assert stored(tmp_path)["status"] == "stopped"
    async with odd_server(task=sorter, optimizer=careful) as (url, calls):
        result = await optimize(url, tmp_path, budget=FEW)
    assert calls["optimizer"] == 1, "what was lost does not count against the limit"
    assert result.status in ("completed", "budget_exhausted")
    assert result.best.prompt.text.startswith("Be careful") and result["test_openings"] == 1


@pytest.mark.parametrize("after", [1, 3])
async def test_an_optimizer_that_dies_in_the_search_stops_the_run_and_the_rest_is_asked_again(
    after: int, tmp_path: Path
) -> None:
    words = {
        "method": whet.methods.opro.Config(steps=3, samples=2, examples=4, finalists=1),
        "budget": whet.Budget(calls=200, optimizer_calls=after + 9),
        "concurrency": 1,
    }

    def texts(body: dict[str, Any], number: int) -> Any:
        return said(f"<PROMPT>Sort the review, way {number}.</PROMPT>")

    async with odd_server(task=sorter, optimizer=failing(408, after, texts)) as (url, calls):
        with pytest.raises(ProviderError, match="the last 2 request"):
            await optimize(url, tmp_path, **words)
        assert calls["optimizer"] == after + 9
    async with odd_server(task=sorter, optimizer=careful) as (url, calls):
        result = await optimize(url, tmp_path, **words)
    assert calls["optimizer"] == 6 - after
    assert result.best.prompt.text.startswith("Be careful")


async def test_a_task_model_that_dies_stops_the_run_before_its_test(tmp_path: Path) -> None:
    words = {"budget": whet.Budget(calls=60, task_calls=30)}
    async with odd_server(task=failing(502, 6, sorter), optimizer=careful) as (url, _calls):
        with pytest.raises(ProviderError, match="has not answered"):
            await optimize(url, tmp_path, **words)
    assert stored(tmp_path)["status"] == "stopped"
    async with odd_server(task=sorter, optimizer=careful) as (url, _calls):
        result = await optimize(url, tmp_path, **words)
    assert result["test_openings"] == 1 and not result["warnings"]


async def test_an_account_without_credit_stops_the_run_before_its_test(tmp_path: Path) -> None:
    words = {
        "budget": whet.Budget(calls=200),
        "method": whet.methods.opro.Config(steps=3, samples=1, examples=4, finalists=1),
    }
    async with odd_server(task=failing(400, 12, sorter), optimizer=varied) as (url, _calls):
        with pytest.raises(ProviderError, match=r"has not answered the last \d\d request.*the model is gone"):
            await optimize(url, tmp_path, **words)
    assert stored(tmp_path)["status"] == "stopped"
    async with odd_server(task=sorter, optimizer=varied) as (url, _calls):
        result = await optimize(url, tmp_path, **words)
    assert result.best.prompt.text.startswith("Be careful") and result["test_openings"] == 1
    assert result.baseline.test is not None and result["baseline"]["test"]["n"] > 0


async def test_an_account_whose_credit_ends_in_the_test_keeps_its_answers_and_its_limit(
    tmp_path: Path,
) -> None:
    rows = [{"input": f"Dish {i} was bad.", "target": "negative"} for i in range(74)]
    words = {
        "data": {"train": rows[:12], "validation": rows[12:24], "test": rows[24:]},
        "method": whet.methods.opro.Config(steps=1, samples=1, examples=4, finalists=1),
        "budget": whet.Budget(calls=135),
    }
    last: list[str] = []

    def emptied(body: dict[str, Any], number: int) -> Any:
        text = str(body["messages"])
        sealed = any(row["input"] in text for row in rows[24:])
        last.extend([text] if sealed else [])
        return failing(400)(body, number) if len(last) > 40 else sorter(body, number)

    async with odd_server(task=emptied, optimizer=varied) as (url, _calls):
        with pytest.raises(ProviderError, match=r"has not answered the last 60 request.*the model is gone"):
            await optimize(url, tmp_path, **words)
    assert stored(tmp_path)["status"] == "stopped"
    async with odd_server(task=sorter, optimizer=varied) as (url, calls):
        result = await optimize(url, tmp_path, **words)
    assert calls["task"] == 60, "only the missing answers are asked for, within the same limit"
    assert result["test_openings"] == 1 and result.improvement.promoted
    assert result.best.test is not None and result.best.test.n == 50


@pytest.mark.parametrize("status", [400, 402, 404])
async def test_what_an_endpoint_refuses_for_good_is_refused_and_no_call(status: int, tmp_path: Path) -> None:
    words = {"budget": whet.Budget(calls=200), "method": "random_search"}
    async with odd_server(task=failing(status, 30, sorter), optimizer=varied) as (url, calls):
        with pytest.raises(ProviderError, match="the model is gone"):
            await optimize(url, tmp_path, **words)
    usage, refused = stored(tmp_path)["usage"], calls["task"] - 30
    assert usage["calls"]["task"] == 30 and usage["refused"]["task"] == refused > 0
    async with odd_server(task=sorter, optimizer=varied) as (url, calls):
        result = await optimize(url, tmp_path, **words)
    assert result["usage"]["calls"]["task"] == 30 + calls["task"] <= 200
    assert result["usage"]["refused"]["task"] == refused


async def test_rows_that_a_provider_always_refuses_keep_what_the_others_showed(tmp_path: Path) -> None:
    rows = [{"input": f"Dish {i} was bad.", "target": "negative"} for i in range(74)]
    words = {
        "data": {"train": rows[:12], "validation": rows[12:24], "test": rows[24:]},
        "method": whet.methods.opro.Config(steps=1, samples=1, examples=4, finalists=1),
        "budget": whet.Budget(calls=140),
    }

    def filtering(body: dict[str, Any], number: int) -> Any:
        refused = any(row["input"] in str(body["messages"]) for row in rows[24:49])
        return failing(400)(body, number) if refused else sorter(body, number)

    async with odd_server(task=filtering, optimizer=varied) as (url, _calls):
        first = await optimize(url, tmp_path, concurrency=1, **words)
        assert first["improvement"]["withheld"] and first.best.test is not None and first.best.test.n == 25
        for _ in range(2):
            again = await optimize(url, tmp_path, concurrency=1, **words)
            assert again["improvement"]["withheld"], "refused again, they count as refused"
            assert again.best.test == first.best.test and again.baseline.test == first.baseline.test
    assert "25 of 50 pairs have no answer" in again["improvement"]["reason"]


async def test_prompts_that_a_provider_refuses_stop_the_run_once(tmp_path: Path) -> None:
    def filtering(body: dict[str, Any], number: int) -> Any:
        careful_asked = "careful" in str(body["messages"])
        return failing(400)(body, number) if careful_asked else sorter(body, number)

    rows = [{"input": f"Dish {i} was bad.", "target": "negative"} for i in range(60)]
    words = {
        "data": {"train": rows[:12], "validation": rows[12:48], "test": rows[48:]},
        "budget": whet.Budget(calls=400),
        "method": whet.methods.opro.Config(steps=3, samples=1, examples=4, finalists=1),
    }
    async with odd_server(task=filtering, optimizer=varied) as (url, _calls):
        with pytest.raises(ProviderError, match="Requests that it refuses again then count as refused"):
            await optimize(url, tmp_path, **words)
        result = await optimize(url, tmp_path, **words)
    assert result.best.id == result.baseline.id and result.baseline.test is not None


async def test_a_test_without_any_answer_is_no_result(tmp_path: Path) -> None:
    rows = [{"input": f"Dish {i} was bad.", "target": "negative"} for i in range(6)]
    data = {"train": rows[:3], "validation": rows[3:5], "test": rows[5:]}
    words = {"data": data, "budget": whet.Budget(calls=12), "name": "tiny"}
    async with odd_server(task=failing(502, 3, sorter), optimizer=careful) as (url, _calls):
        with pytest.raises(ProviderError, match="has not answered"):
            await optimize(url, tmp_path, **words)
    async with odd_server(task=sorter, optimizer=careful) as (url, _calls):
        result = await optimize(url, tmp_path, **words)
    assert (
        result.baseline.test is not None and result.baseline.test.n == 1 and result["test_openings"] == 0
    ), "start and best are one prompt: nothing was compared"


@pytest.mark.parametrize(("status", "second"), [(408, "completed"), (503, "stopped")])
async def test_what_a_server_loses_again_is_the_fault_of_the_request_unless_it_is_gone(
    status: int, second: str, tmp_path: Path
) -> None:
    words = {"method": whet.methods.opro.Config(steps=1, samples=2, examples=4, finalists=1)}
    words["budget"] = whet.Budget(calls=100, optimizer_calls=8)
    async with odd_server(task=sorter, optimizer=failing(status, 1)) as (url, _calls):
        with pytest.raises(ProviderError, match=r"the last|refuses calls"):
            await optimize(url, tmp_path, **words)
    async with odd_server(task=sorter, optimizer=failing(status)) as (url, _calls):
        if second == "stopped":
            with pytest.raises(ProviderError, match=r"the last|refuses calls"):
                await optimize(url, tmp_path, **words)
        else:
            await optimize(url, tmp_path, **words)
    assert stored(tmp_path)["status"] == second


async def test_one_failure_at_the_end_of_the_budget_is_no_dead_endpoint(tmp_path: Path) -> None:
    words = {"method": whet.methods.opro.Config(steps=1, samples=2, examples=4, finalists=1)}
    words["budget"] = whet.Budget(calls=100, optimizer_calls=2)
    async with odd_server(task=sorter, optimizer=failing(408, 1)) as (url, _calls):
        result = await optimize(url, tmp_path, **words, concurrency=1)
    assert result.status != "stopped" and result["test_openings"] == 1


@pytest.mark.parametrize("finish", ["stop", "length", "content_filter"])
async def test_answers_without_any_text_stop_the_run_and_are_not_kept(finish: str, tmp_path: Path) -> None:
    empty = said("", finish_reason=finish)
    async with odd_server(task=lambda body, number: empty, optimizer=careful) as (url, calls):
        with pytest.raises(
            ProviderError, match=r"answered \d+ calls, but no answer contains text; the last: "
        ) as caught:
            await optimize(url, tmp_path, concurrency=1)
        assert ("token limit" in str(caught.value)) == (finish == "length")
        assert calls == {"task": 5, "optimizer": 0}
    async with odd_server(task=sorter, optimizer=careful) as (url, calls):
        result = await optimize(url, tmp_path, concurrency=1)
    assert calls["task"] >= 10 and not result["warnings"]


async def test_an_optimizer_without_any_text_stops_the_run(tmp_path: Path) -> None:
    async with odd_server(task=sorter, optimizer=lambda body, number: said(None)) as (url, calls):
        with pytest.raises(ProviderError, match="no answer contains text"):
            await optimize(url, tmp_path)
        assert calls["task"] == 9
    async with odd_server(task=sorter, optimizer=careful) as (url, calls):
        assert (await optimize(url, tmp_path)).best.prompt.text.startswith("Be careful")


@pytest.mark.parametrize("task", [failing(400), failing(502), lambda body, number: said("")])
async def test_an_evaluation_without_any_answer_is_no_result(task: Any, tmp_path: Path) -> None:
    rows = [{"input": f"Dish {i}1 was bad.", "target": "negative"} for i in range(3)]
    data = {"train": rows[:1], "validation": rows[1:2], "test": rows[2:]}
    words: dict[str, Any] = {"data": data, "reward": right, "lm": "openai/task"}
    async with odd_server(task=task) as (url, _calls):
        with pytest.raises(ProviderError, match=r"has not answered|refused all|no answer contains text"):
            await whet.aevaluate("Sort: {{input}}", **words, base_url=url, run=tmp_path / "run")
    async with odd_server(task=sorter) as (url, _calls):
        again = await whet.aevaluate("Sort: {{input}}", **words, base_url=url, run=tmp_path / "run")
    assert again.score.mean == 1.0 and again.failed == 0


def losing(*rows: str, status: int) -> Any:
    """The task model, which never answers some rows."""

    def handle(body: dict[str, Any], number: int) -> Any:
        lost = any(row in str(body["messages"]) for row in rows)
        return failing(status)(body, number) if lost else sorter(body, number)

    return handle


@pytest.mark.parametrize("status", [500, 502])
async def test_rows_that_a_server_never_answers_end_as_rows_without_an_answer(
    status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It answers the others in between, so it is there: these requests are the reason, not the server."""
    rows = [{"input": f"Dish 1{i:02} was bad.", "target": "negative"} for i in range(60)]
    data = {"train": rows[:1], "validation": rows[2:], "test": rows[1:2]}
    words: dict[str, Any] = {"data": data, "reward": right, "lm": "openai/task", "concurrency": 4}
    lost = [f"Dish 1{i:02} " for i in range(2, 40, 6)]
    async with odd_server(task=losing(*lost, status=status)) as (url, _calls):
        result = await whet.aevaluate("Sort: {{input}}", **words, base_url=url, run=tmp_path / "run")
    assert (result.score.n, result.score.of, result.score.mean) == (51, 58, 1.0)
    show_runs([run_row(tmp_path / "run")], "runs")
    assert " 51 of 58 " in capsys.readouterr().out, "the list of runs says on how many rows a mean stands"


async def test_rows_at_the_end_that_a_server_never_answers_are_rows_without_an_answer_too(
    tmp_path: Path,
) -> None:
    rows = [{"input": f"Dish 1{i:02} was bad.", "target": "negative"} for i in range(20)]
    data = {"train": rows[:1], "validation": rows[2:], "test": rows[1:2]}
    words: dict[str, Any] = {"data": data, "reward": right, "lm": "openai/task", "concurrency": 1}
    async with odd_server(task=losing("Dish 118 ", "Dish 119 ", status=500)) as (url, _calls):
        result = await whet.aevaluate("Sort: {{input}}", **words, base_url=url, run=tmp_path / "run")
    assert (result.score.n, result.score.of) == (16, 18)


async def test_rows_that_a_server_never_answers_under_one_prompt_end_no_search(tmp_path: Path) -> None:
    """The last one of them has no answer behind it, but the server said the same of the others and answered more."""

    def handle(body: dict[str, Any], number: int) -> Any:
        careful_prompt = "careful" in str(body["messages"])
        return (losing("Dish 204 ", "Dish 213 ", status=500) if careful_prompt else sorter)(body, number)

    rows = [{"input": f"Dish 2{i:02} was bad.", "target": "negative"} for i in range(22)]
    data = {"train": rows[:2], "validation": rows[2:14], "test": rows[14:]}
    words: dict[str, Any] = {"data": data, "concurrency": 1, "budget": whet.Budget(calls=300)}
    async with odd_server(task=handle, optimizer=careful) as (url, _calls):
        result = await optimize(url, tmp_path, **words)
    assert result.status in ("completed", "budget_exhausted") and result["test_openings"] == 1


async def test_a_fresh_evaluation_that_fails_leaves_the_finished_one_as_it_is(tmp_path: Path) -> None:
    rows = [{"input": f"Dish 1{i:02} was bad.", "target": "negative"} for i in range(8)]
    data = {"train": rows[:1], "validation": rows[2:], "test": rows[1:2]}
    words: dict[str, Any] = {"data": data, "reward": right, "lm": "openai/task", "run": tmp_path / "run"}
    async with odd_server(task=sorter) as (url, _calls):
        first = await whet.aevaluate("Sort: {{input}}", **words, base_url=url)
        stored = (tmp_path / "run" / "result.json").read_bytes()
    async with odd_server(task=failing(401)) as (url, _calls):
        with pytest.raises(ProviderError):
            await whet.aevaluate("Sort: {{input}}", **words, base_url=url, fresh=True)
    assert (tmp_path / "run" / "result.json").read_bytes() == stored
    assert first.score.mean == 1.0
    async with odd_server(task=lambda body, number: said("unclear")) as (url, calls):
        changed = await whet.aevaluate("Sort: {{input}}", **words, base_url=url, fresh=True)
        recorded = await whet.aevaluate("Sort: {{input}}", **words, base_url=url)
        other = await whet.aevaluate("Sort: {{input}}", **words, base_url=url, seed=1)
    assert other.score.mean == 0.0, "what was asked afresh is what the cache holds"
    assert changed.score.mean == recorded.score.mean == 0.0 and calls["task"] == 6
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


async def test_a_row_that_hangs_while_others_are_answered_has_no_answer(tmp_path: Path) -> None:
    """The endpoint took calls that began later and answered them: it is there, and nothing needs to be resumed."""
    rows = [{"input": f"Dish 1{i:02} was bad.", "target": "negative"} for i in range(20)]
    data = {"train": rows[:1], "validation": rows[2:], "test": rows[1:2]}
    answered, ready = 0, asyncio.Event()

    async def model(messages: Any) -> str:
        nonlocal answered
        if "Dish 103 " in str(messages):
            await ready.wait()
            raise TimeoutError("no answer within 60 s")
        answered += 1
        if answered == 17:
            asyncio.get_running_loop().call_soon(ready.set)
        return "negative"

    words: dict[str, Any] = {"data": data, "reward": right, "lm": model, "concurrency": 4}
    result = await whet.aevaluate("Sort: {{input}}", **words, run=tmp_path / "run")
    assert (result.score.n, result.score.of, result.score.mean) == (17, 18, 1.0)


class HangingRow:
    """A task model as a function, which answers so many rows and loses the next one at every attempt, as `error` says."""

    def __init__(self, answered: int, error: OSError) -> None:
        self.answered, self.error, self.row, self.hung = answered, error, "", 0
        self.rows: set[str] = set()

    def __call__(self, messages: Any) -> str:
        text = str(messages)
        row = text[text.index("Dish") :][:9]
        self.rows.add(row)
        if not self.row and len(self.rows) > self.answered:
            self.row = row
        if row == self.row:
            self.hung += 1
            raise self.error
        return str(sorter({"messages": messages}, 0)["choices"][0]["message"]["content"])


LATE = TimeoutError("no answer within 60 s")


async def test_a_last_row_that_always_hangs_stops_a_run_once(tmp_path: Path) -> None:
    """Nothing is asked after it, so it might be the endpoint. After a resume it is the row, also when it is asked alone."""
    rows = [{"input": f"Dish 1{i:02} was bad.", "target": "negative"} for i in range(20)]
    data = {"train": rows[:1], "validation": rows[2:], "test": rows[1:2]}
    model = HangingRow(17, LATE)
    words: dict[str, Any] = {"data": data, "reward": right, "lm": CallableModel(model), "concurrency": 1}
    words["run"] = tmp_path / "run"
    with pytest.raises(ProviderError, match="has not answered 6 attempts"):
        await whet.aevaluate("Sort: {{input}}", **words)
    first, model.hung = model.hung, 0
    for _ in range(2):
        result = await whet.aevaluate("Sort: {{input}}", **words)
        assert (result.score.n, result.score.of, result.score.mean) == (17, 18, 1.0)
    assert first == 6 and model.hung == 9, "three attempts and three at the end, then three"


async def test_a_hanging_row_stops_a_search_once(tmp_path: Path) -> None:
    """Each new prompt makes a request of its own of the row: these are lost as the first one was."""
    rows = [{"input": f"Dish 2{i:02} was bad.", "target": "negative"} for i in range(22)]
    data = {"train": rows[:2], "validation": rows[2:14], "test": rows[14:]}
    model = HangingRow(11, LATE)
    words: dict[str, Any] = {
        "data": data,
        "reward": right,
        "lm": CallableModel(model),
        "run": tmp_path / "run",
    }
    words |= {
        "optimizer_lm": lambda messages: "<PROMPT>Be careful and sort: {{input}}</PROMPT>",
        "concurrency": 1,
    }
    words |= {"method": "opro", "budget": whet.Budget(calls=300)}
    with pytest.raises(ProviderError, match="has not answered 6 attempts"):
        await whet.aoptimize("Sort: {{input}}", **words)
    result = await whet.aoptimize("Sort: {{input}}", **words)
    assert result["test_openings"] == 1 and result.best.prompt.text.startswith("Be careful")


async def test_a_function_that_reaches_no_server_is_a_dead_endpoint_at_each_resume(tmp_path: Path) -> None:
    rows = [{"input": f"Dish 1{i:02} was bad.", "target": "negative"} for i in range(8)]
    gone = ConnectionRefusedError(111, "Connection refused")
    data = {"train": rows[:1], "validation": rows[2:], "test": rows[1:2]}
    model = HangingRow(5, gone)
    words: dict[str, Any] = {"data": data, "reward": right, "lm": CallableModel(model), "concurrency": 1}
    for _ in range(3):
        with pytest.raises(ProviderError, match="has not answered 6 attempts"):
            await whet.aevaluate("Sort: {{input}}", **words, run=tmp_path / "run")


def dishes(folder: Path, **budget: int) -> dict[str, Any]:
    """The words of an evaluation of 24 rows, four at a time."""
    kinds = [("bad", "negative"), ("good", "positive"), ("nice", "positive")]
    rows = [{"input": f"Dish 1{i:02} was {kinds[i % 3][0]}.", "target": kinds[i % 3][1]} for i in range(26)]
    splits = {"train": rows[:1], "validation": rows[2:], "test": rows[1:2]}
    for name, split in splits.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in split))
    (folder / "prompt.md").write_text("Sort: {{input}}")
    values = {"name": "dishes", "prompt": "prompt.md", "data": {name: f"{name}.jsonl" for name in splits}}
    more = {"reward": "exact_match", **({"budget": budget} if budget else {})}
    (folder / "task.yaml").write_text(json.dumps({**values, **more}))
    return {"task": folder, "lm": "openai/task", "concurrency": 4, "run": folder / "run", "progress": False}


class Changing:
    """The task model of an endpoint whose behaviour a test changes."""

    def __init__(self, behave: Any) -> None:
        self.behave = behave

    def __call__(self, body: dict[str, Any], number: int) -> Any:
        return self.behave(body, number)


SEVENTH, ODD = ([f"Dish 1{i:02} " for i in range(first, 26, by)] for first, by in ((5, 7), (3, 2)))


@pytest.mark.parametrize("status", [500, 502, 504])
@pytest.mark.parametrize("lost", [["Dish 125 "], SEVENTH, ODD])
async def test_rows_that_fail_at_each_repetition_leave_the_figure_as_it_is(
    lost: list[str], status: int, tmp_path: Path
) -> None:
    """And every request that the server saw is either a call or a refused attempt."""
    words, model, rest = dishes(tmp_path), Changing(losing(*lost, status=status)), 24 - len(lost)
    async with odd_server(task=model) as (url, calls):
        for _ in range(3):
            result = await whet.aevaluate(**words, base_url=url)
            assert (result.score.n, result.score.of, result.score.mean) == (rest, 24, 1.0)
            assert result.json["usage"]["calls"]["task"] == rest
            assert result.json["usage"]["refused"]["task"] == calls["task"] - rest
        model.behave, before = sorter, calls["task"]
        whole = await whet.aevaluate(**words, base_url=url)
        assert whole.score.n == whole.json["usage"]["calls"]["task"] == 24
        assert calls["task"] == before + len(lost)


async def test_a_gateway_that_loses_its_server_ends_each_repetition(tmp_path: Path) -> None:
    """It failed one row before and gave it up, but the others were never lost while more were answered."""
    lost, gone = losing("Dish 103 ", status=502), failing(502)
    model = Changing(lambda body, number: (lost if number <= 14 else gone)(body, number))
    words = dishes(tmp_path)
    async with odd_server(task=model) as (url, calls):
        for _ in range(3):
            before = calls["task"]
            with pytest.raises(ProviderError, match=r"not answered \d+ attempts in a row.*the model is gone"):
                await whet.aevaluate(**words, base_url=url)
            assert calls["task"] >= before + 12
            model.behave = gone
        model.behave = lost
        result = await whet.aevaluate(**words, base_url=url)
    assert (result.score.n, result.score.of, result.json["usage"]["calls"]["task"]) == (23, 24, 23)


async def test_a_server_that_cannot_be_reached_ends_the_repetition_of_a_finished_evaluation(
    tmp_path: Path,
) -> None:
    words = dishes(tmp_path)
    async with odd_server(task=losing("Dish 103 ", "Dish 125 ", status=502)) as (url, _calls):
        assert (await whet.aevaluate(**words, base_url=url)).score.n == 22
    for _ in range(2):
        with pytest.raises(ProviderError, match="has not answered"):
            await whet.aevaluate(**words, base_url=url)


async def test_a_request_that_is_given_up_counts_against_a_limit_once(tmp_path: Path) -> None:
    """It is asked again at the end of an evaluation and at each repetition, and 24 calls pay for 24 rows."""
    words, model = dishes(tmp_path, max_calls=24), Changing(losing(*SEVENTH, status=502))
    async with odd_server(task=model) as (url, _calls):
        for _ in range(2):
            result = await whet.aevaluate(**words, base_url=url)
            assert (result.score.n, result.json["usage"]["calls"]["task"]) == (21, 21)
        model.behave = sorter
        result = await whet.aevaluate(**words, base_url=url)
    assert (result.score.n, result.json["usage"]["calls"]["task"]) == (24, 24)


async def test_a_row_that_is_turned_away_at_each_repetition_ends_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that says 503 to one row alone is waited for until the row is given up, and not for long after that."""
    monkeypatch.setattr("whet.engine.pace.Pace.note_refusal", lambda self, began, overloaded: None)
    monkeypatch.setattr(calls_module, "STARVED", 8)
    monkeypatch.setattr(model_client, "OVERLOADED_WAIT", 5.0)
    words = {**dishes(tmp_path), "concurrency": 1}
    async with odd_server(task=losing("Dish 103 ", status=503)) as (url, calls):
        for _ in range(2):
            before = calls["task"]
            result = await whet.aevaluate(**words, base_url=url)
            assert (result.score.n, result.score.of) == (23, 24)
        assert calls["task"] - before == model_client.MAX_ATTEMPTS + 1
