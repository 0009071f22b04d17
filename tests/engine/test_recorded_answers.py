"""Answers that were paid for are not paid for again by anybody's next command, and can be asked for again."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

import whet
from tests.api.world import right
from tests.engine.odd import ROWS, odd_server, said, sorter
from whet.engine.journal import read_journal_rows
from whet.errors import ProviderError, RunLocked


def evaluate(url: str, folder: Path, **more: Any) -> Any:
    words: dict[str, Any] = {"split": "train", "reward": right, "lm": "openai/task", "base_url": url, **more}
    return whet.aevaluate("Be careful: {{input}}", data=ROWS, root=folder / "runs", **words)


def gone(body: dict[str, Any], number: int) -> Any:
    return web.json_response({"error": {"message": "the key is wrong"}}, status=401)


async def test_a_finished_evaluation_is_printed_also_where_nothing_answers(tmp_path: Path) -> None:
    async with odd_server(task=sorter) as (url, calls):
        first = await evaluate(url, tmp_path)
        made = dict(calls)
        again = await evaluate(url, tmp_path)
        assert calls == made and again.score == first.score and again["recorded"]
    (path,) = (tmp_path / "runs").glob("*/result.json")
    before = path.read_bytes()
    assert (await evaluate(url, tmp_path)).score == first.score, "the server is gone"
    assert path.read_bytes() == before


async def test_fresh_asks_again_and_the_new_answers_take_the_place_of_the_old(tmp_path: Path) -> None:
    model = {"answer": "nothing"}

    def changing(body: dict[str, Any], number: int) -> Any:
        return sorter(body, number) if model["answer"] == "right" else said(model["answer"])

    async with odd_server(task=changing) as (url, calls):
        assert (await evaluate(url, tmp_path)).score.mean == 0.0
        model["answer"] = "right"
        assert (await evaluate(url, tmp_path)).score.mean == 0.0
        fresh = await evaluate(url, tmp_path, fresh=True)
        assert fresh.score.mean == 1.0
        asked = calls["task"]
        assert (await evaluate(url, tmp_path)).score.mean == 1.0
        assert (await evaluate(url, tmp_path, seed=1)).score.mean == 1.0, "from the cache"
        assert calls["task"] == asked


async def test_what_fresh_did_not_finish_leaves_the_old_result_and_goes_on(tmp_path: Path) -> None:
    async with odd_server(task=sorter) as (url, _calls):
        await evaluate(url, tmp_path)
    (path,) = (tmp_path / "runs").glob("*/result.json")
    async with odd_server(task=gone) as (other, _calls):
        with pytest.raises(ProviderError):
            await evaluate(other, tmp_path, fresh=True)
    assert json.loads(path.read_text())["score"]["mean"] == 1.0


async def test_two_models_are_evaluated_at_the_same_time(tmp_path: Path) -> None:
    async with odd_server(task=sorter, other=lambda body, number: said("nothing")) as (url, _calls):
        names = ("openai/task", "openai/other")
        found = await asyncio.gather(*(evaluate(url, tmp_path, lm=name) for name in names))
        assert [one.score.mean for one in found] == [1.0, 0.0]
        async with odd_server(task=lambda body, number: said("nothing")) as (elsewhere, _):
            both = await asyncio.gather(evaluate(url, tmp_path), evaluate(elsewhere, tmp_path))
    assert [one.score.mean for one in both] == [1.0, 0.0], "the same name at another address is another model"


async def test_two_models_are_optimized_at_the_same_time(tmp_path: Path) -> None:
    words: dict[str, Any] = {"data": ROWS, "reward": right, "optimizer_lm": "none", "root": tmp_path / "runs"}
    words |= {"method": "random_search", "budget": whet.Budget(calls=60), "progress": False}
    async with odd_server(task=sorter, other=lambda body, number: said("nothing")) as (url, _calls):
        names = ("openai/task", "openai/other")
        found = await asyncio.gather(
            *(whet.aoptimize("Be careful: {{input}}", lm=name, base_url=url, **words) for name in names)
        )
        assert [one.baseline.validation.mean for one in found] == [1.0, 0.0]
        assert found[0].run != found[1].run
        again = {"lm": names[0], "base_url": url, "seed": 3, **words}
        both = (whet.aoptimize("Be careful: {{input}}", **again) for _ in range(2))
        ended = await asyncio.gather(*both, return_exceptions=True)
        assert [type(one) for one in ended].count(RunLocked) == 1, "the same run is not worked on twice"


async def test_answers_are_in_the_cache_before_the_run_ends(tmp_path: Path) -> None:
    """What a killed process had recorded costs the next command nothing: nothing waits in memory for the end."""
    seen: list[int] = []

    def handle(body: dict[str, Any], number: int) -> Any:
        if number >= 4:  # one call at a time: the answers before are recorded
            db = sqlite3.connect(tmp_path / "runs" / "cache.sqlite")
            seen.append(db.execute("SELECT COUNT(*) FROM completions").fetchone()[0])
            db.close()
        return sorter(body, number)

    async with odd_server(task=handle) as (url, _calls):
        await evaluate(url, tmp_path, concurrency=1)
    assert len(seen) == 3 and seen[-1] > 0, "the writer may be at the last answers still"


async def test_the_text_says_how_old_answers_from_the_cache_are(tmp_path: Path) -> None:
    async with odd_server(task=sorter) as (url, _calls):
        await evaluate(url, tmp_path)
        cached = await evaluate(url, tmp_path, seed=1)
    assert sum(cached["usage"]["cached"].values()) > 0 and "cached_oldest" in cached["usage"]


def _in_a_process(folder: Path, url: str, root: Path, **process: Any) -> subprocess.Popen[bytes]:
    command = [
        sys.executable,
        "-m",
        "whet",
        "evaluate",
        str(folder),
        "--split",
        "train",
        "--concurrency",
        "4",
    ]
    command += ["--base-url", url, "--lm", "openai/task", "--json"]
    env = {**os.environ, "OPENAI_API_KEY": "k"}
    return subprocess.Popen(command, cwd=root, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


async def test_what_a_killed_evaluation_had_answered_is_paid_once_by_all(tmp_path: Path) -> None:
    """Killed in the middle of 40 rows and finished; another task with the same rows, below the same root, then pays nothing."""
    killed: list[subprocess.Popen[bytes]] = []

    def handle(body: dict[str, Any], number: int) -> Any:
        if number == 20:
            killed[0].kill()
        return sorter(body, number)

    rows = [{"input": f"Dish {i} was {'bad' if i % 2 else 'good'}.", "target": "positive"} for i in range(80)]
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "prompt.md").write_text("Sort the review: {{input}}")
        (folder / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (folder / "task.yaml").write_text(
            f"name: {name}\nprompt: prompt.md\ndata: data.jsonl\nreward: exact_match\n"
            "splits: {train: 0.5, validation: 0.25, test: 0.25}\n"
        )
    async with odd_server(task=handle) as (url, calls):
        killed.append(_in_a_process(tmp_path / "one", url, tmp_path))
        assert await asyncio.to_thread(killed[0].wait) == -9
        (journal,) = (tmp_path / "runs").glob("one-*/journal.sqlite")
        answered = {d for (d,) in read_journal_rows(journal, "SELECT digest FROM results")}
        cached = sqlite3.connect(tmp_path / "runs" / "cache.sqlite")
        if cached.execute(
            "SELECT 1 FROM sqlite_master WHERE name = 'completions'"
        ).fetchone():  # else none is cached yet
            cached.execute("DELETE FROM completions WHERE key IN (SELECT key FROM completions LIMIT 5)")
        cached.commit()
        cached.close()
        killed.append(_in_a_process(tmp_path / "one", url, tmp_path))
        assert await asyncio.to_thread(killed[1].wait) == 0
        (result,) = (tmp_path / "runs").glob("one-*/result.json")
        told = json.loads(result.read_text())
        rows_asked = told["score"]["n"]
        lost = told["usage"]["calls"]["task"] - rows_asked
        shared = told["usage"]["cached"]["task"]  # answers that had reached the cache and not yet the journal
        assert 0 <= lost <= 6, "counted as spent: four in flight, and two on their way to or from the disk"
        said = [int(w.split()[0]) for w in told["warnings"] if "call(s) were in flight" in w]
        assert len(said) == 1 and 0 < said[0] <= lost + shared, told["warnings"]
        paid = calls["task"]
        assert answered and rows_asked <= paid <= rows_asked + 6, (
            "four in flight at the kill, and two whose answer was on its way to the disk"
        )
        other = _in_a_process(tmp_path / "two", url, tmp_path)
        assert await asyncio.to_thread(other.wait) == 0
        assert calls["task"] == paid
