"""`whet transfer` with several runs: each prompt on each model, asked once; and what a home advantage is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import whet
from tests.cli.test_compare import Whet, asked, paid, url
from tests.cli.test_compare import ledger as ledger
from tests.cli.test_compare import server as server
from tests.cli.test_compare import whet as command
from tests.cli.test_transfer import openings
from tests.cli.test_transfer import state as state
from tests.crash.world import write_task
from whet.errors import UsageError
from whet.stats import evaluate_home

command = command
MODELS = ("a", "b")


def search(command: Whet, folder: Path, base: tuple[str, ...]) -> list[str]:
    """A run with each of two models; their folders."""
    write_task(folder / "task")
    options = ("--method", "opro", "--set", "steps=2", "--set", "samples=2", "--max-calls", "60", *base)
    for name in MODELS:
        words = ("optimize", "task", *options, "--lm", f"openai/{name}", "--optimizer-lm", "openai/writer")
        code, _, err = command(*words, "--out", f"runs/{name}")
        assert code == 0, err
    return [f"runs/{name}" for name in MODELS]


def test_each_model_answers_each_prompt_once_and_is_paid_once(
    tmp_path: Path, command: Whet, server: str, ledger: Path, state: Path
) -> None:
    base = ("--base-url", url(server, "matrix"))
    runs = search(command, tmp_path, base)
    before, opened = asked(ledger, "matrix"), openings(state)
    words = ("transfer", *runs, *base)
    code, out, err = command(*words, "--dry-run", "--json")
    assert code == 0, err
    planned = json.loads(out)
    assert planned["status"] == "planned" and asked(ledger, "matrix") == before
    most = [plan["calls"]["task"]["most"] for plan in planned["plans"]]
    code, out, err = command(*words, "--json")
    assert code == 0, err
    found = json.loads(out)
    now = asked(ledger, "matrix")
    assert [now[name] - before[name] for name in MODELS] == most == [4, 4], "both runs found the same prompt"
    assert paid(found) == 8 and openings(state) == opened
    assert {(cell["origin"], cell["model"]) for cell in found["cells"]} == {
        (f"openai/{a}", f"openai/{b}") for a in MODELS for b in MODELS
    }
    assert all((cell["start"]["mean"], cell["score"]["mean"]) == (0.0, 1.0) for cell in found["cells"])
    assert found["home"]["difference"] == 0.0 and "Lock-in is not shown" in found["verdict"]
    assert json.loads(command(*words, "--json")[1])["cells"] == found["cells"]
    assert asked(ledger, "matrix") == now
    table = command(*words)[1]
    assert "on openai/b" in table and "Lock-in is not shown" in table
    page = (tmp_path / found["folder"] / "matrix.html").read_text()
    assert found["verdict"] in page and "found for openai/a" in page
    assert json.loads((tmp_path / found["folder"] / "matrix.json").read_text())["verdict"] == found["verdict"]


def test_on_the_sealed_test_what_the_runs_answered_is_not_asked_again(
    tmp_path: Path, command: Whet, server: str, ledger: Path, state: Path
) -> None:
    base = ("--base-url", url(server, "sealed-matrix"))
    runs = search(command, tmp_path, base)
    before = asked(ledger, "sealed-matrix")
    found = json.loads(command("transfer", *runs, *base, "--split", "test", "--json")[1])
    assert asked(ledger, "sealed-matrix") == before and paid(found) == 0, "both runs hold all answers"
    assert [cell["score"]["mean"] for cell in found["cells"]] == [1.0] * 4


def test_limits_hold_before_anything_is_paid(
    tmp_path: Path, command: Whet, server: str, ledger: Path
) -> None:
    base = ("--base-url", url(server, "limited-matrix"))
    runs = search(command, tmp_path, base)
    before = asked(ledger, "limited-matrix")
    code, _, err = command("transfer", *runs, *base, "--max-calls", "5")
    assert code == 2 and "--max-calls 5 does not pay for 4 answers of 2 models" in err
    code, _, err = command("transfer", *runs, *base, "--lm", "openai/c", "--lm", "openai/a")
    assert code == 2 and "A matrix uses the models of its runs" in err
    code, _, err = command("transfer", runs[0], runs[0], *base)
    assert code == 2 and "same task model" in err
    assert asked(ledger, "limited-matrix") == before


def test_in_python_a_prompt_that_only_its_own_model_obeys_is_locked_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WHET_STATE", str(tmp_path / "state"))

    def first(messages: Any) -> str:
        return "yes" if "alpha" in messages[0].content else "no"

    def second(messages: Any) -> str:
        return "yes" if "beta" in messages[0].content else "no"

    rows = [{"input": f"row {i}", "target": "yes"} for i in range(60)]
    task = whet.Task.of("Answer.", data=rows, reward="exact_match")
    runs = [
        whet.optimize(
            task,
            lm=model,
            optimizer_lm=lambda messages, word=word: f"<PROMPT>Answer {word}.</PROMPT>",
            method=whet.methods.opro.Config(steps=1, samples=1),
            run=tmp_path / word,
            control=None,
        ).run
        for model, word in ((first, "alpha"), (second, "beta"))
    ]
    with pytest.raises(UsageError, match="needs two runs or more"):
        whet.transfer_matrix(runs[:1], lms=[first], task=task)
    found = whet.transfer_matrix(runs, lms=[second, first], task=task, split="test")
    means = [[one.mean for one in row.values()] for row in found.scores.values()]
    assert means == [[1.0, 0.0], [0.0, 1.0]]
    values = found.to_dict()
    assert values["home"]["difference"] == 1.0 and values["home"]["low"] > 0
    assert values["variance"]["share_of_home"] == pytest.approx(1.0) and found.verdict.startswith(
        "Locked in: "
    )
    assert any("opening 3" in warning for warning in values["warnings"])


def cells(rng: np.random.Generator, rows: int, home: float, n: int = 3) -> Any:
    """Right or wrong answers of n models under n prompts, with effects of both, and more at home."""
    chance = 0.4 + 0.1 * np.arange(n)[:, None] - 0.08 * np.arange(n)[None, :] + home * np.eye(n)
    hard = rng.normal(0, 0.15, (rows, 1, 1))
    return (rng.random((rows, n, n)) < chance + hard).astype(float)


def test_the_parts_are_those_that_were_put_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whet.stats.paired._DRAWN", 1)  # what is looked at needs no narrow intervals
    found = evaluate_home(cells(np.random.default_rng(0), 2_000, 0.2), 0, 1)
    assert found.home.difference == pytest.approx(0.2, abs=0.02)
    assert [one.difference for one in found.origins] == pytest.approx([-0.1, 0, 0.1], abs=0.01)
    assert [one.difference for one in found.models] == pytest.approx([0.08, 0, -0.08], abs=0.01)
    parts = found.variance
    assert parts is not None
    expected = [np.var([-0.08, 0, 0.08]), np.var([-0.1, 0, 0.1]), 0.2**2 * 2 / 9]
    assert [parts.model, parts.origin, parts.home] == pytest.approx(expected, rel=0.2)
    assert parts.rest < 1e-4 and parts.home_low < parts.home < parts.home_high


def test_without_lock_in_its_interval_excludes_zero_in_few_samples_only() -> None:
    rng = np.random.default_rng(1)
    found = [evaluate_home(cells(rng, 40, 0.0, n=2), 0, 1).home for _ in range(60)]
    wrong = sum(one.low > 0 or one.high < 0 for one in found)
    assert wrong <= 8, "5% of 60 are 3; more than 8 come in 1 of 300 series"


def test_answers_that_are_missing_count_at_their_worst() -> None:
    whole = cells(np.random.default_rng(2), 100, 0.3, n=2)
    missing = whole.copy()
    missing[:10, 0, 1] = np.nan
    known, less = (evaluate_home(values, 0, 1).home for values in (whole, missing))
    assert less.low < known.low and less.n == 90
