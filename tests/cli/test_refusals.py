"""What cannot be used is refused before anything is paid or written; what a dead endpoint leaves keeps the contract."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import whet
from tests.crash.world import write_task
from whet.engine.journal import read_journal_rows
from whet.errors import ProviderError, UsageError
from whet.run import Budget
from whet.types import Completion, Request, Usage

SCORE = {"mean", "low", "high", "n"}


@pytest.fixture
def task(tmp_path: Path) -> Path:
    write_task(tmp_path / "task")
    return tmp_path / "task"


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ({"budget": Budget(cost_usd=math.nan)}, "budget.cost_usd must"),
        ({"budget": Budget(seconds=math.nan)}, "budget.seconds must"),
        ({"budget": Budget(seconds=math.inf)}, "budget.seconds must"),
        ({"seed": 2**63}, "seed"),
    ],
)
def test_numbers_that_mean_no_limit_or_fit_no_journal_are_refused(
    task: Path, option: dict[str, Any], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        whet.optimize(task, method="random_search", lm="scripted/echo", run=task / "run", **option)
    assert not (task / "run").exists()


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ({"policy": "embedded/tinny"}, "no weights to train"),
        ({"policy": "openai/gpt"}, "no weights to train"),
        ({"settings": {"loss": "cispoo"}}, "loss is one of ppo, cispo, importance"),
        ({"settings": {"kl": "-0.1"}}, "kl must be 0 or more"),
    ],
)
def test_a_policy_that_cannot_be_trained_leaves_no_folder(
    task: Path, option: dict[str, Any], said: str
) -> None:
    pytest.importorskip("torch", reason="policies need torch: pip install 'whet[train]'")
    asked = {"policy": "embedded/tiny", **option}
    with pytest.raises(UsageError, match=said):
        whet.optimize(task, method="prewrite", lm="scripted/echo", run=task / "run", **asked)
    assert not (task / "run").exists()


@pytest.mark.parametrize(
    ("method", "options", "said"),
    [
        ("espl", {"credit": "turn"}, "credit=turn needs episodes"),
        ("prompt_r1", {"advantage": "remax"}, "needs a greedy text beside each group"),
        ("retroformer", {"credit": "turn"}, "has no setting"),
    ],
)
def test_what_a_method_does_not_know_is_refused_before_the_first_call(
    task: Path, method: str, options: dict[str, str], said: str
) -> None:
    pytest.importorskip("torch", reason="policies need torch: pip install 'whet[train]'")
    asked: dict[str, Any] = {
        "policy": "embedded/tiny",
        "lm": "scripted/echo",
        "optimizer_lm": "scripted/echo",
    }
    with pytest.raises(UsageError, match=said):
        whet.optimize(task, method=method, run=task / "run", settings=options, **asked)
    assert not (task / "run").exists()


def test_a_refusal_leaves_the_run_that_a_folder_held(task: Path) -> None:
    asked: dict[str, Any] = {"method": "random_search", "lm": "scripted/echo", "run": task / "run"}
    whet.optimize(task, **asked, budget=Budget(calls=40))
    before = read_journal_rows(task / "run" / "journal.sqlite", "SELECT * FROM effects")
    assert before
    with pytest.raises(UsageError, match=r"differs in limits\.calls: 40 -> 41\. Choose another") as refused:
        whet.optimize(task, **asked, budget=Budget(calls=41))
    assert refused.value.__context__ is None, "no other exception stands before it"
    assert read_journal_rows(task / "run" / "journal.sqlite", "SELECT * FROM effects") == before
    assert (task / "run" / "result.json").is_file()


class Dying:
    """Answers `alive` requests, then has lost its key."""

    can_generate, can_score, local, simulated, address = True, False, False, True, "openai/dying"

    def __init__(self, alive: int) -> None:
        self.left = alive

    async def generate(self, request: Request) -> Sequence[Completion]:
        self.left -= 1
        if self.left < 0:
            raise ProviderError("HTTP 401", fatal=True, status=401)
        return [Completion("4", usage=Usage(3, 1))]

    def count_tokens(self, text: str) -> int:
        return len(text)

    async def close(self) -> None:
        return None


@pytest.mark.parametrize("alive", [0, 9])
def test_the_result_of_a_stopped_run_has_every_key_of_the_contract(
    task: Path, monkeypatch: pytest.MonkeyPatch, alive: int
) -> None:
    monkeypatch.setattr("whet.models.callable.resolve", lambda *given, **named: Dying(alive))
    with pytest.raises(ProviderError) as raised:
        whet.optimize(
            task,
            method="random_search",
            lm="openai/dying",
            optimizer_lm="none",
            run=task / "run",
            budget=Budget(calls=60),
            concurrency=1,
        )
    result = json.loads((task / "run" / "result.json").read_text())
    assert raised.value.result == result
    assert result["status"] == "stopped" and result["warnings"] == []
    assert result["usage"]["calls"] == {"task": alive, "optimizer": 0, "judge": 0}
    assert result["usage"]["refused"] == {"task": 1, "optimizer": 0, "judge": 0}
    assert result["usage"]["input_tokens"] == 3 * alive and result["usage"]["seconds"] >= 0
    assert {"difference", "low", "high", "promoted", "reason"} <= result["improvement"].keys()
    assert result["improvement"]["promoted"] is False and result["improvement"]["difference"] is None
    for side in ("baseline", "best"):
        assert result[side]["prompt"] == (task / "prompt.md").read_text()
        assert result[side]["test"] is None and "id" in result[side]
        assert result[side]["validation"] is None or result[side]["validation"].keys() == SCORE
    assert [entry["validation"] for entry in result["history"]] == ([0.5] if alive else [])
    assert (result["best"]["validation"] is None) == (alive == 0)


class Babbling(Dying):
    """Never dies, and never answers in the form it is asked for."""

    async def generate(self, request: Request) -> Sequence[Completion]:
        return [Completion("<other>4</other>", usage=Usage(3, 1))]


def test_an_optimizer_whose_replies_are_of_no_use_is_named_in_the_warnings(
    task: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("whet.models.callable.resolve", lambda *given, **named: Babbling(0))
    result = whet.optimize(task, method="opro", lm="openai/any", run=task / "run", budget=Budget(calls=60))
    (warning,) = [text for text in result["warnings"] if "from the optimizer model" in text]
    assert "did not understand" in warning and "None of the 12 texts" in warning
    assert result["best"]["id"] == result["baseline"]["id"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("there is no file Answer.. Files there: a.txt.", "there is no file Answer. Files there: a.txt."),
        ("There is no row Is it right?. Name one.", "There is no row Is it right? Name one."),
        ("The last words are and so on... Go on.", "The last words are and so on... Go on."),
        ("The folder is ../... It must be below a/..", "The folder is ../... It must be below a/.."),
        ('The answer "yes.." has no end..', 'The answer "yes.." has no end.'),
    ],
)
def test_no_sentence_of_an_error_ends_twice(text: str, shown: str) -> None:
    assert str(UsageError(text)) == UsageError(text).spell(lambda name, value: name) == shown
