"""`fresh` asks the models again, whatever a folder holds: what has failed, what was interrupted, and what has ended."""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

import whet
from tests.engine.odd import ROWS, odd_server, said, sorter
from whet.errors import ProviderError, UsageError

PROMPT = "Be careful: {{input}}"
MENDED = '{"explanation": "It is.", "score": 3}'


@dataclass
class World:
    """A server whose judge says `verdict`, and whose task model is turned away from call `lasts` on."""

    url: str = ""
    calls: dict[str, int] = field(default_factory=dict)
    verdict: str = "unreadable"
    lasts: int = 10_000

    def evaluate(self, folder: Path, **more: Any) -> Any:
        return whet.aevaluate(self.task(), split="train", **self._words(folder), **more)

    def optimize(self, folder: Path, **more: Any) -> Any:
        words = {
            "optimizer_lm": "none",
            "method": "random_search",
            "progress": False,
            **self._words(folder),
            **more,
        }
        return whet.aoptimize(self.task(), budget=whet.Budget(calls=90), **words)

    def task(self) -> whet.Task:
        """Rows without targets, which a judge scores by a rubric."""
        judge = {"judge": {"rubric": "Is it right?", "scale": [1, 5]}}
        return whet.Task.of(PROMPT, data=[{"input": row["input"]} for row in ROWS], reward=judge)

    def _words(self, folder: Path) -> dict[str, Any]:
        models = {"lm": "openai/task", "judge_lm": "openai/judge", "base_url": self.url}
        return {"root": folder / "runs", "concurrency": 1, **models}

    def taken(self) -> dict[str, int]:
        """The calls since the last look."""
        calls = {name: number for name, number in self.calls.items() if number}
        self.calls.update(dict.fromkeys(self.calls, 0))
        return calls


@asynccontextmanager
async def made_world() -> AsyncIterator[World]:
    world = World()

    def task(body: dict[str, Any], number: int) -> Any:
        if number >= world.lasts:
            return web.json_response({"error": {"message": "the key is wrong"}}, status=401)
        return sorter(body, number)

    def judge(body: dict[str, Any], number: int) -> Any:
        return said(world.verdict)

    def strict(body: dict[str, Any], number: int) -> Any:
        return said(MENDED.replace("3", "1"))

    async with odd_server(task=task, home=sorter, judge=judge, strict=strict) as (url, calls):
        world.url, world.calls = url, calls
        yield world


async def test_an_evaluation_that_failed_by_its_judge_says_how_it_is_asked_again(tmp_path: Path) -> None:
    async with made_world() as world:
        with pytest.raises(UsageError, match="this judge is mended now, ask it again with fresh=True"):
            await world.evaluate(tmp_path)
        asked = world.taken()
        world.verdict = MENDED
        with pytest.raises(UsageError, match="could not be read"):
            await world.evaluate(tmp_path)
        assert not world.taken(), "without fresh the recorded answers count"
        mended = await world.evaluate(tmp_path, fresh=True)
        assert mended.score.mean == 0.5
        assert world.taken() == {"task": asked["task"], "judge": asked["task"]}, "every model is asked again"
        assert (await world.evaluate(tmp_path)).score == mended.score and not world.taken()


async def test_a_fresh_evaluation_that_failed_is_asked_again_as_well(tmp_path: Path) -> None:
    async with made_world() as world:
        for _ in range(2):
            with pytest.raises(UsageError, match="could not be read"):
                await world.evaluate(tmp_path, fresh=True)
            assert world.taken()["judge"] > 0
        world.verdict = MENDED
        assert (await world.evaluate(tmp_path, fresh=True)).score.mean == 0.5


async def test_a_failed_fresh_evaluation_beside_a_finished_one_is_asked_again(tmp_path: Path) -> None:
    async with made_world() as world:
        world.verdict = MENDED
        first = await world.evaluate(tmp_path)
        world.verdict = "unreadable"
        with pytest.raises(UsageError, match="could not be read"):
            await world.evaluate(tmp_path, fresh=True)
        assert (await world.evaluate(tmp_path)).score == first.score
        world.verdict = MENDED.replace("3", "5")
        assert (await world.evaluate(tmp_path, fresh=True)).score.mean == 1.0


async def test_fresh_asks_again_what_was_interrupted_and_goes_on_with_its_own(tmp_path: Path) -> None:
    async with made_world() as world:
        world.verdict = MENDED
        world.lasts = 4
        with pytest.raises(ProviderError):
            await world.evaluate(tmp_path)
        world.taken()
        with pytest.raises(ProviderError):
            await world.evaluate(tmp_path, fresh=True)
        assert world.taken()["task"] >= 4, "from the first row on"
        world.lasts = 10_000
        done = await world.evaluate(tmp_path, fresh=True)
        assert world.taken()["task"] == done.score.n - 3, "what fresh was answered is not asked twice"


async def test_fresh_makes_another_run_where_one_failed_or_was_interrupted(tmp_path: Path) -> None:
    async with made_world() as world:
        for _ in range(2):
            with pytest.raises(UsageError, match="ask it again with fresh=True"):
                await world.optimize(tmp_path)
        world.taken()
        world.verdict, world.lasts = MENDED, 4
        with pytest.raises(ProviderError):
            await world.optimize(tmp_path, fresh=True)
        world.taken()
        world.lasts = 10_000
        done = await world.optimize(tmp_path, fresh=True)
        assert Path(done.run).name.endswith("-0-2") and done.baseline.validation.mean == 0.5
        world.taken()
        again = await world.optimize(tmp_path)
        assert again.run == done.run and not world.taken(), (
            "the run that has a result, not the one that failed"
        )


async def test_a_comparison_that_failed_begins_again_in_its_folder(tmp_path: Path) -> None:
    async with made_world() as world:

        def compare(**more: Any) -> Any:
            words: dict[str, Any] = {"lm": "openai/task", "judge_lm": "openai/judge", "base_url": world.url}
            words |= {
                "optimizer_lm": "none",
                "budget": whet.Budget(calls=90),
                "run": tmp_path / "all",
                **more,
            }
            return whet.acompare(world.task(), ["random_search"], progress=False, **words)

        with pytest.raises(UsageError, match="ask it again with fresh=True"):
            await compare()
        world.verdict = MENDED
        found = await compare(fresh=True)
        assert found.json["runs"][0]["baseline"]["validation"]["mean"] == 0.5
        with pytest.raises(UsageError, match="already holds this run, and fresh=True makes another run"):
            await compare(fresh=True)


async def test_a_run_of_its_own_beside_an_interrupted_one_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with made_world() as world:
        world.verdict, world.lasts = MENDED, 4
        with pytest.raises(ProviderError):
            await world.optimize(tmp_path)
        world.lasts = 10_000
        said_before = capsys.readouterr().err
        result = await world.optimize(tmp_path, fresh=True, progress=True)
    assert "calls the models again" not in said_before
    assert (
        f"is not finished. This is another run, in {result.run}, which calls the models again"
        in capsys.readouterr().err
    )


def test_a_command_that_reads_what_was_mended_elsewhere_runs_again(tmp_path: Path) -> None:
    words = tmp_path / "words.txt"
    task = tmp_path / "task"
    task.mkdir()
    (task / "agent.py").write_text(f"import sys; print(open({str(words)!r}).read())")
    (task / "p.md").write_text("Answer.\n")
    (task / "rows.jsonl").write_text(
        "".join(f'{{"input": "q{n}", "target": "{"yes" if n % 2 else "no"}"}}\n' for n in range(12))
    )
    (task / "task.yaml").write_text(
        "name: t\nprompts: {p: p.md}\nprogram: {command: [python, agent.py], seconds: 20}\ndata: rows.jsonl\n"
        "reward: exact_match\n"
    )
    call: dict[str, Any] = {
        "lm": lambda messages: "yes",
        "split": "train",
        "run": tmp_path / "run",
        "progress": False,
    }
    with pytest.raises(
        UsageError, match="outside the task was at fault and is mended now, ask again with fresh=True"
    ):
        whet.evaluate(task, **call)
    words.write_text("yes")
    assert 0 < whet.evaluate(task, **call, fresh=True).score.mean < 1


async def transfer(world: World, folder: Path, **more: Any) -> Any:
    """The means of the start prompt with the model `task`, and the warnings."""
    words: dict[str, Any] = {"judge_lm": "openai/judge", "base_url": world.url, "progress": False, **more}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = await whet.atransfer(folder / "run", ["openai/task"], task=world.task(), **words)
    return found.json["models"][0]["baseline"]["mean"], " ".join(found.json["warnings"])


async def make_run(world: World, folder: Path) -> None:
    """A finished run of another model."""
    verdict, world.verdict = world.verdict, MENDED
    await world.optimize(folder, lm="openai/home", run=folder / "run")
    world.verdict = verdict
    world.taken()


async def test_a_transfer_is_asked_again(tmp_path: Path) -> None:
    async with made_world() as world:
        await make_run(world, tmp_path)
        mean, said_of_it = await transfer(world, tmp_path)
        assert mean == 0.0 and "could not be read" in said_of_it and "ask again with --fresh" in said_of_it
        world.verdict = MENDED
        world.taken()
        assert (await transfer(world, tmp_path))[0] == 0.0 and not world.taken()
        world.lasts = 3
        with pytest.raises(ProviderError):
            await transfer(world, tmp_path, fresh=True)
        world.lasts = 10_000
        assert (await transfer(world, tmp_path))[0] == 0.0, "what fresh did not finish leaves the old figures"
        assert (await transfer(world, tmp_path, fresh=True))[0] == 0.5
        world.taken()
        assert (await transfer(world, tmp_path))[0] == 0.5 and not world.taken()


async def test_other_judges_and_endpoints_have_transfers_of_their_own(tmp_path: Path) -> None:
    async with made_world() as world, made_world() as elsewhere:
        world.verdict, elsewhere.verdict = MENDED, MENDED.replace("3", "5")
        await make_run(world, tmp_path)
        assert (await transfer(world, tmp_path))[0] == 0.5
        assert (await transfer(world, tmp_path, judge_lm="openai/strict"))[0] == 0.0
        assert (await transfer(world, tmp_path, base_url=elsewhere.url))[0] == 1.0
        world.taken()
        assert (await transfer(world, tmp_path))[0] == 0.5 and not world.taken(), "the first is still there"


async def test_comments_are_read_again(tmp_path: Path) -> None:
    rows = [{"comment": "Please name the colour in capitals."}]
    replies = {"text": "unreadable"}

    async def learn(url: str, **more: Any) -> Any:
        words: dict[str, Any] = {"optimizer_lm": "openai/reader", "base_url": url, "root": tmp_path / "runs"}
        return (
            await whet.alearn("Answer:\n\n{{input}}", rows, dry_run=True, progress=False, **words, **more)
        ).json

    async with odd_server(reader=lambda body, number: said(replies["text"])) as (url, calls):
        assert "asked the same again only with --fresh" in " ".join((await learn(url))["warnings"])
        first = calls["reader"]
        await learn(url)
        assert calls["reader"] == first, "recorded"
        await learn(url, fresh=True)
        assert calls["reader"] == 2 * first
        await learn(url, fresh=True)
        assert calls["reader"] == 3 * first
        await learn(url)
        assert calls["reader"] == 3 * first
