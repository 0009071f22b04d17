"""A second opinion in whole runs: what is refused at once, what it may cost, what becomes of one that does not come."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from whet.api import aoptimize
from whet.errors import UsageError
from whet.run import Budget
from whet.task import load_task
from whet.testing.faults import Faults, ServerBehaviour
from whet.testing.server import serving
from whet.types import Request

ROWS = 60
"""Of which 18 are the sealed test and 18 the validation rows."""
BY_JUDGE = "second_opinion: {judge: {rubric: Be short., reference: ignore}}\n"


def write(folder: Path, yaml: str, **files: str) -> Path:
    """A task whose prompt is better when its last sentence is gone, by its own reward and by the rubric."""
    folder.mkdir()
    (folder / "prompt.md").write_text("<!-- whet:begin -->\nAnswer. Be long.\n<!-- whet:end -->\n{{input}}\n")
    (folder / "data.jsonl").write_text("\n".join(json.dumps({"input": f"question {n}"}) for n in range(ROWS)))
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    (folder / "task.yaml").write_text(
        "name: t\nprompt: prompt.md\ndata: data.jsonl\nreward: {checklist: {items: [{check: {max_words: 3}}]}}\n"
        + yaml
    )
    return folder


def answer(request: Request) -> str:
    """The task model and the judge in one server, told apart by what they are asked."""
    if "by a rubric" in request.messages[0].content:
        long = "one two three four" in request.messages[1].content
        return json.dumps({"explanation": "So it is.", "score": 1 if long else 5})
    return "one two three four" if "Be long" in request.messages[0].content else "one"


def options(folder: Path, url: str, **more: Any) -> dict[str, Any]:
    search = {"method": "grips", "optimizer_lm": "none", "settings": {"iterations": 2, "candidates": 4}}
    return {**search, "lm": "openai/m", "base_url": url, "run": folder.parent / "run", **more}


MODELS = "models: {second: openai/j2}\n"


async def test_both_promote_and_both_are_told(tmp_path: Path) -> None:
    task = write(tmp_path / "t", BY_JUDGE + MODELS)
    async with serving(answer) as server:
        found = await aoptimize(task, **options(task, server.base_url))
    second = found["second_opinion"]
    assert found["improvement"]["promoted"] and second["promoted"]
    assert (second["baseline"]["mean"], second["best"]["mean"], second["n"]) == (0.0, 1.0, 18)
    assert found["models"]["second"] == "openai/j2"
    assert found["usage"]["calls"]["judge"] == 36
    assert found["improvement"]["reason"].count("better by 1 on average over 18 examples") == 2


async def test_the_budget_holds_the_second_opinion_and_the_number_that_is_named_suffices(
    tmp_path: Path,
) -> None:
    task = write(tmp_path / "t", BY_JUDGE + MODELS)
    async with serving(answer) as server:
        with pytest.raises(
            UsageError, match=r"budget.calls=60 is too small: .* Give at least (\d+)\."
        ) as caught:
            await aoptimize(task, **options(task, server.base_url, budget=Budget(calls=60)))
        assert not server.ledger.entries
        least = int(str(caught.value).split("Give at least ")[1].split(".")[0])
        smallest = await aoptimize(task, **options(task, server.base_url, budget=Budget(calls=least)))
        assert smallest["best"]["test"]["n"] == 18 and len(server.ledger.entries) <= least
        more: dict[str, Any] = {"budget": Budget(calls=least + 80), "run": tmp_path / "more"}
        found = await aoptimize(task, **options(task, server.base_url, **more))
        assert sum(found["usage"]["calls"].values()) <= least + 80
    assert found["second_opinion"]["promoted"] and found["improvement"]["promoted"]


async def test_a_limit_on_judge_calls_holds_it_too(tmp_path: Path) -> None:
    task = write(tmp_path / "t", BY_JUDGE + MODELS)
    async with serving(answer) as server:
        with pytest.raises(UsageError, match=r"budget\.judge_calls=35 is too small"):
            await aoptimize(task, **options(task, server.base_url, budget=Budget(judge_calls=35)))
        assert not server.ledger.entries


async def test_what_the_budget_does_not_pay_is_not_promoted(tmp_path: Path) -> None:
    """Retries of failing judge calls may take more than was set aside for them."""
    task = write(tmp_path / "t", BY_JUDGE + MODELS)

    def refused(request: Request) -> str:
        return "no verdict" if "by a rubric" in request.messages[0].content else answer(request)

    async with serving(refused) as server:
        found = await aoptimize(task, **options(task, server.base_url, budget=Budget(judge_calls=42)))
        judged = found["usage"]["calls"]["judge"]
    assert judged <= 42
    assert not found["improvement"]["promoted"] and "second_opinion" not in found
    assert "the budget ended before the second opinion was complete" in found["improvement"]["reason"]


async def test_answers_that_cannot_be_graded_have_the_lowest_reward_and_are_told(tmp_path: Path) -> None:
    task = write(tmp_path / "t", BY_JUDGE + MODELS)

    def moody(request: Request) -> str:
        if (
            "by a rubric" in request.messages[0].content
            and "question 7\n" in request.messages[1].content + "\n"
        ):
            return "no verdict"
        return answer(request)

    rows = load_task(task).test
    asked = sum(e.text == "question 7" for e in rows)
    async with serving(moody) as server:
        found = await aoptimize(task, **options(task, server.base_url))
    told = [said for said in found["warnings"] if "could not be graded for the second opinion" in said]
    assert len(told) == asked
    assert found["second_opinion"]["best"]["mean"] == pytest.approx(1 - asked / len(rows))


async def test_faults_are_retried_and_a_run_again_asks_nothing(tmp_path: Path, quick_retries: None) -> None:
    task = write(tmp_path / "t", BY_JUDGE + MODELS)
    async with serving(answer, faults=Faults(error_500=0.05), settings=ServerBehaviour(seed=3)) as server:
        found = await aoptimize(task, **options(task, server.base_url))
        sent = len(server.ledger.entries)
        (tmp_path / "run" / "result.json").unlink()
        again = await aoptimize(task, **options(task, server.base_url))
        usage = found["usage"]
        made = sum(usage["calls"].values()) + sum(usage["refused"].values())
        assert len(server.ledger.entries) == sent == made
    assert again["second_opinion"] == found["second_opinion"] and again["improvement"] == found["improvement"]


@pytest.mark.parametrize(
    ("yaml", "said"),
    [
        (BY_JUDGE, r"second opinion \(judge\) needs its own judge.*models: \{second: provider/name\}"),
        (
            "reward: {judge: {rubric: Be short., reference: ignore}}\n"
            + BY_JUDGE
            + "models: {second: openai/m}\n",
            "would repeat the question that openai/m already answers",
        ),
    ],
)
async def test_a_judge_that_is_no_second_one_is_refused(tmp_path: Path, yaml: str, said: str) -> None:
    task = write(tmp_path / "t", "")
    own = "reward: {checklist: {items: [{check: {max_words: 3}}]}}\n" if "reward:" in yaml else ""
    text = (task / "task.yaml").read_text().replace(own, "") + yaml
    (task / "task.yaml").write_text(text)
    async with serving(answer) as server:
        with pytest.raises(UsageError, match=said):
            await aoptimize(task, **options(task, server.base_url))
        assert not server.ledger.entries and not (tmp_path / "run").exists()


async def test_a_program_that_fails_on_every_answer_is_refused_before_the_search(tmp_path: Path) -> None:
    task = write(
        tmp_path / "t", "second_opinion: other.py\n", other="def reward(example, output):\n    return 1 / 0\n"
    )
    async with serving(answer) as server:
        with pytest.raises(UsageError, match=r"failed on every answer.*ZeroDivisionError"):
            await aoptimize(task, **options(task, server.base_url))
        assert len(server.ledger.entries) == 18, (
            "the start prompt's answers to the validation rows, and no search"
        )


def test_the_second_opinion_is_part_of_what_identifies_a_task(tmp_path: Path) -> None:
    plain, judged = write(tmp_path / "a", ""), write(tmp_path / "b", BY_JUDGE)
    short = write(tmp_path / "c", "second_opinion: other.py\n", other="def reward(e, o):\n    return 1.0\n")
    before = {load_task(folder).fingerprint for folder in (plain, judged, short)}
    (short / "other.py").write_text("def reward(e, o):\n    return 0.0\n")
    assert len(before) == 3 and load_task(short).fingerprint not in before
