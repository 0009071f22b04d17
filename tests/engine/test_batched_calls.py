"""`--batch`: calls in batches of the provider, against the protocol itself; what is paid is what the server's ledger says."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import whet
from tests.command_line import whet_here
from whet.engine import batched_calls
from whet.engine.batched_calls import BatchedCalls
from whet.errors import ProviderError, UsageError
from whet.models.batch_jobs import read_lines
from whet.testing.batches import BatchBehaviour
from whet.testing.faults import ServerBehaviour
from whet.testing.server import LocalServer, serving
from whet.types import Request

ROWS = 40


@pytest.fixture(autouse=True)
def in_haste(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No waits between looks, and a short one for further calls: longer than a busy disk takes to note them one by one."""
    for name, seconds in (("QUIET", 0.2), ("FIRST_LOOK", 0.0), ("LONGEST_LOOK", 0.0)):
        monkeypatch.setattr(batched_calls, name, seconds)
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    yield


def folder_of(folder: Path, more: str = "") -> str:
    folder.mkdir()
    (folder / "prompt.md").write_text("Answer yes or no.\n{{input}}\n")
    targets = ["yes" if n % 4 else "no" for n in range(ROWS)]
    rows = [json.dumps({"input": f"question {n}", "target": t}) for n, t in enumerate(targets)]
    (folder / "data.jsonl").write_text("\n".join(rows))
    (folder / "task.yaml").write_text(
        f"name: t\nprompt: prompt.md\ndata: data.jsonl\nreward: exact_match\n"
        f"splits: {{train: 0.2, validation: 0.4, test: 0.4}}\n{more}"
    )
    return str(folder)


def say_yes(request: Request) -> str:
    return "yes"


def by_batch(server: LocalServer) -> Counter[str]:
    """How many requests of each batch were answered; the empty name is that of single calls."""
    return Counter(str(entry.get("batch", "")) for entry in server.ledger.entries)


def times_asked(server: LocalServer) -> set[int]:
    """How often the same request was answered."""
    return set(Counter(entry["digest"] for entry in server.ledger.entries).values())


def lm_of(server: LocalServer, name: str = "openai/m", **more: Any) -> dict[str, object]:
    return {"address": name, "base_url": server.base_url, "price": {"input": 1.0, "output": 10.0}, **more}


async def test_an_evaluation_goes_out_as_one_batch_at_half_the_price(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "task")
    async with serving(say_yes) as server:
        batched = await whet.aevaluate(folder, lm=lm_of(server), batch=True, run=str(tmp_path / "a"))
        assert by_batch(server) == {"": 1, "batch_1": 15}  # the first call shows what the endpoint takes
        single = await whet.aevaluate(folder, lm=lm_of(server), run=str(tmp_path / "b"), fresh=True)
    assert batched.score == single.score
    assert batched.usage.calls == single.usage.calls
    assert single.usage.cost_usd is not None
    assert batched.usage.cost_usd == pytest.approx(single.usage.cost_usd * (1 + 15 / 2) / 16, rel=0.05)


@pytest.mark.parametrize("words", ["openai", "mistral", "together"])
async def test_the_words_of_several_providers(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"{words.upper()}_API_KEY", "k")
    folder = folder_of(tmp_path / "task")
    async with serving(say_yes, batches=BatchBehaviour(words=words)) as server:
        lm = lm_of(server, f"{words}/m")
        result = await whet.aevaluate(folder, lm=lm, batch=True, run=str(tmp_path / "a"))
        assert by_batch(server) == {"": 1, "batch_1": 15}
    assert result.score.n == 16


async def test_a_run_has_its_baseline_and_its_sealed_test_in_batches(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "task")

    def answer(request: Request) -> str:
        return "Say yes or no." if "{{input}}" in request.messages[-1].content else "yes"

    async with serving(answer) as server:
        result = await whet.aoptimize(
            folder,
            method="random_search",
            lm=lm_of(server),
            budget=whet.Budget(calls=400),
            batch=True,
            run=str(tmp_path / "a"),
        )
        plan = result.to_dict()["plan"]
        counts = by_batch(server)
    assert counts["batch_1"] == 15  # the baseline
    assert len(counts) > 2
    assert plan["batch"]["calls"] == 48
    assert plan["batch"]["share"] == 0.5


async def test_lines_without_an_answer_are_asked_again_and_never_graded(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "task")
    behaviour = BatchBehaviour(unanswered=0.3, refused=0.2, ends="expired", seed=3)
    async with serving(say_yes, batches=behaviour) as server:
        result = await whet.aevaluate(folder, lm=lm_of(server), batch=True, run=str(tmp_path / "a"))
        assert 0 < by_batch(server)["batch_1"] < 15
        assert times_asked(server) == {1}
    assert result.score.n == 16
    assert result.failed == 0
    assert result.usage.refused["task"] == 16 - 1 - by_batch(server)["batch_1"]
    assert result.usage.calls["task"] == 16


async def test_many_lines_without_an_answer_go_into_another_batch(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "task")
    behaviour = BatchBehaviour(unanswered=0.9, ends="expired")
    async with serving(say_yes, batches=behaviour) as server:
        result = await whet.aevaluate(folder, lm=lm_of(server), batch=True, run=str(tmp_path / "a"))
        assert len(server.batches.batches) == batched_calls.ROUNDS
        assert times_asked(server) == {1}
    assert result.score.n == 16


@pytest.mark.parametrize("when", ["begun", "answered", "lost"])
async def test_a_run_that_ends_while_it_waits_finds_its_batch_again(
    when: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Cancelled as by Ctrl-C while the batch goes on, after it ended, and where its beginning had no answer."""
    folder = folder_of(tmp_path / "task")
    behaviour = BatchBehaviour(looks=1 if when == "answered" else 3, lost=1 if when == "lost" else 0)
    async with serving(say_yes, batches=behaviour) as server:
        looked = asyncio.Event()
        call = whet.aevaluate(folder, lm=lm_of(server), batch=True, run=str(tmp_path / "a"))
        if when == "lost":
            assert (await call).score.n == 16
        else:

            async def hang(*arguments: Any) -> None:
                looked.set()
                await asyncio.Event().wait()

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(BatchedCalls, "_settle" if when == "answered" else "_wait", hang)
                task = asyncio.ensure_future(call)
                await looked.wait()
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            assert capsys.readouterr().err.count("continues at openai/m") == 1
            # without batch=True: a batch that is under way is taken all the same
            result = await whet.aevaluate(folder, lm=lm_of(server), run=str(tmp_path / "a"))
            assert result.score.n == 16
            assert result.usage.calls["task"] == 16
            assert not [w for w in result.warnings if "billed twice" in w]
        assert len(server.batches.batches) == 1
        assert by_batch(server) == {"": 1, "batch_1": 15}


async def test_a_batch_whose_beginning_cannot_be_looked_up_is_not_begun_again(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "task")
    async with serving(say_yes, batches=BatchBehaviour(lost=9, listed=False)) as server:
        for _ in range(2):
            with pytest.raises(ProviderError, match="could not be started or found") as caught:
                await whet.aevaluate(folder, lm=lm_of(server), batch=True, run=str(tmp_path / "a"))
            assert caught.value.fatal
        assert len(server.batches.batches) == 1


@pytest.mark.parametrize("words", ["together", "mistral"])
async def test_an_endpoint_without_batches_is_said_and_can_be_asked_one_by_one(
    words: str, tmp_path: Path
) -> None:
    """These servers have no `/files` and no `/batches`."""
    folder = folder_of(tmp_path / "task")
    async with serving(say_yes, batches=BatchBehaviour(words=words)) as server:
        run: dict[str, Any] = {"lm": lm_of(server), "run": str(tmp_path / "a")}
        with pytest.raises(ProviderError, match="the calls are made one by one"):
            await whet.aevaluate(folder, batch=True, **run)
        result = await whet.aevaluate(folder, **run)
        assert times_asked(server) == {1}
    assert result.score.n == 16


async def test_a_batch_is_taken_only_where_it_was_begun(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "task")
    behaviour = BatchBehaviour(lost=9, listed=False)
    async with serving(say_yes, batches=behaviour) as server, serving(say_yes) as other:
        run: dict[str, Any] = {"lm": "openai/m", "run": str(tmp_path / "a"), "method": "random_search"}
        limits = whet.Budget(calls=400)
        with pytest.raises(ProviderError):
            await whet.aoptimize(folder, base_url=server.base_url, budget=limits, batch=True, **run)
        with pytest.raises(UsageError, match="Name the former base URL again"):
            await whet.aoptimize(folder, base_url=other.base_url, budget=limits, batch=True, **run)
        assert not other.batches.batches


async def test_a_batch_that_failed_ends_the_run_with_the_words_of_the_provider(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "task")
    behaviour = BatchBehaviour(ends="failed", reason="Enqueued token limit reached for m.")
    async with serving(say_yes, batches=behaviour) as server:
        with pytest.raises(ProviderError, match="Enqueued token limit reached"):
            await whet.aevaluate(folder, lm=lm_of(server), batch=True, run=str(tmp_path / "a"))
        result = await whet.aevaluate(folder, lm=lm_of(server), run=str(tmp_path / "a"))
        assert times_asked(server) == {1}
    assert result.usage.calls["task"] == 16


async def test_what_the_endpoint_refuses_is_learned_before_a_batch_goes_out(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "task", "models: {task: {temperature: 0.7}}\n")
    async with serving(say_yes, settings=ServerBehaviour(reject=("seed",))) as server:
        result = await whet.aevaluate(folder, lm=lm_of(server), batch=True, run=str(tmp_path / "a"))
        statuses = [e["status"] for e in server.ledger.entries if e.get("batch")]
    assert statuses == [200] * 15
    assert result.score.n == 16


async def test_calls_that_a_limit_has_no_room_for_are_made_one_by_one(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "task", "models: {task: {max_tokens: 16}}\n")
    async with serving(say_yes) as server:
        result = await whet.aoptimize(
            folder,
            method="random_search",
            lm=lm_of(server),
            budget=whet.Budget(tokens=1500),
            batch=True,
            run=str(tmp_path / "a"),
        )
        assert result.usage.input_tokens + result.usage.output_tokens <= 1500
        assert times_asked(server) == {1}


@pytest.mark.parametrize(
    ("words", "more"),
    [
        ("no provider of scripted/echo accepts batches", {"lm": "scripted/echo"}),
        ("a batch goes to one provider", {"lm": "openai/m", "base_url": ["http://a/v1", "http://b/v1"]}),
        ("ends the run earlier", {"lm": "openai/m", "budget": whet.Budget(seconds=60)}),
    ],
)
async def test_what_cannot_go_together_is_refused(words: str, more: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=words):
        await whet.aoptimize(
            folder_of(tmp_path / "task"), method="random_search", batch=True, dry_run=True, **more
        )


async def test_the_command_says_the_plan_and_how_far_the_batch_is(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "task")
    async with serving(say_yes) as server:
        shown = await asyncio.to_thread(
            whet_here, tmp_path, "evaluate", folder, "--lm", "openai/m", "--base-url", server.base_url, "--batch",
            "--lm-option", "price.input=1", "--lm-option", "price.output=2",
        )  # fmt: skip
    assert shown.returncode == 0, shown.stderr
    assert "16 calls of baseline and test are sent in batches at 50% of the price" in shown.stderr
    assert "15 calls went to openai/m as the batch batch_1" in shown.stderr


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ('{"custom_id": "a", "response": {"id": "x", "choices": []}}', 200),
        ('{"custom_id": "a", "response": {"status_code": 400, "body": {"error": {"message": "no"}}}}', 400),
        ('{"custom_id": "a", "response": null, "error": {"code": 500, "message": "no"}}', 500),
        ('{"custom_id": "a", "error": "no"}', 0),
    ],
)
def test_lines_in_the_forms_of_several_providers(line: str, status: int) -> None:
    assert read_lines(f"{line}\n\nno json\n[]".encode())["a"].status == status


async def test_the_runs_of_a_comparison_have_theirs_in_batches_and_the_plan_counts_those_of_all(
    tmp_path: Path,
) -> None:
    folder, plans = folder_of(tmp_path / "task"), list[Any]()
    progress = whet.Progress(planned=plans.append)
    answers = iter(range(10**6))

    def answer(request: Request) -> str:
        return f"Say yes {next(answers)}." if "{{input}}" in request.messages[-1].content else "yes"

    async with serving(answer) as server:
        compared = await whet.acompare(
            folder,
            ["random_search"],
            seeds=2,
            lm=lm_of(server),
            budget=whet.Budget(calls=150),
            batch=True,
            reader="none",
            run=str(tmp_path / "a"),
            progress=progress,
        )
        counts = by_batch(server)
    runs = compared.to_dict()["runs"]
    assert len(runs) == 2 and len(counts) > 1 + len(runs), (
        "a batch of the first baseline, and one of each test"
    )
    assert plans[0]["batch"] == {
        "calls": sum(run["plan"]["batch"]["calls"] for run in runs),
        "share": 0.5,
    }
