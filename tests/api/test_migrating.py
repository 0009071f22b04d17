"""`whet.migrate`: a prompt of one model for another one, tested with both, and one verdict."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import whet
from tests.api.test_several import Model, rows, writes
from tests.api.test_several import state as state
from tests.cli.test_several import folder as folder
from tests.command_line import whet_here
from whet.errors import UsageError

state, folder = state, folder
OLD_PROMPT = whet.Prompt.parse("Say ALPHA. {{input}}")


def migrate(tmp_path: Path, to: Model, optimizer: Any, n: int = 200, **words: Any) -> Any:
    task = whet.Task.of("Answer. {{input}}", data=rows("apple", n), reward="exact_match", name="fruit")
    usual = {
        "from_lm": Model("old", "ALPHA"),
        "to_lm": to,
        "optimizer_lm": optimizer,
        "method": "opro",
        "settings": {"steps": 2, "samples": 2},
        "budget": whet.Budget(calls=2000),
        "root": tmp_path,
        "progress": False,
    }
    return whet.migrate(words.pop("prompt", OLD_PROMPT), task=task, **{**usual, **words})


def test_a_prompt_that_the_new_model_does_not_understand_is_replaced(tmp_path: Path) -> None:
    found = migrate(tmp_path, Model("new", "BETA"), writes("Say BETA.", "Say BETA now."))
    assert found.verdict == "new prompt" and "BETA" in found.prompt.source
    assert found.reason.startswith("Use the new prompt")
    scores = found["scores"]
    assert scores["old"]["from"]["mean"] == 1.0 > scores["old"]["to"]["mean"]
    assert scores["new"]["to"]["mean"] == 1.0 > scores["new"]["from"]["mean"]
    lost = found["moved"]["old"]
    assert lost["difference"] == pytest.approx(scores["old"]["to"]["mean"] - 1.0) and lost["high"] < 0
    assert found["moved"]["new"]["difference"] == 0.0 and found["gain"]["from"]["high"] < 0
    assert json.loads((Path(found["folder"]) / "result.json").read_text("utf-8")) == found.to_dict()


def test_a_prompt_that_the_new_model_understands_as_well_would_have_done(tmp_path: Path) -> None:
    found = migrate(tmp_path, Model("new", "ALPHA"), writes("Say ALPHA again."))
    assert found.verdict == "old prompt" and found.prompt == OLD_PROMPT
    assert "the search found no better prompt" in found.reason and found["equivalence"]["shown"]


@pytest.mark.parametrize(("n", "verdict"), [(400, "old prompt"), (30, "undecided")])
def test_equivalence_takes_rows(n: int, verdict: str) -> None:
    """Both prompts earn the same on every row of the sealed test: many rows show that, few do not."""
    from whet.api.migrating import judge_move
    from whet.stats import decide

    task = whet.Task.of("Answer. {{input}}", data=rows("apple", 200), reward="exact_match", name="fruit")
    gain = decide([1.0] * (n // 2) + [0.0] * (n - n // 2), [1.0] * (n // 2) + [0.0] * (n - n // 2), 0, 1)
    score = {"mean": 0.5, "low": 0.4, "high": 0.6, "n": n}
    difference = {"difference": 0.0, "low": -0.1, "high": 0.1, "n": n}
    usage = {"calls": {"task": 1}, "input_tokens": 1, "output_tokens": 1, "seconds": 1.0, "cost_usd": 0.0}
    sides = {name: {"id": name, "prompt": name, "test": score} for name in ("baseline", "best")}
    improvement = {
        key: getattr(gain, key) for key in ("difference", "low", "high", "p_value", "alpha", "promoted")
    }
    run = {
        **sides,
        "improvement": improvement,
        "models": {"task": "b"},
        "usage": usage,
        "simulated": False,
        "warnings": [],
    }
    old = {"model": "a", "baseline": score, "best": score, "gain": difference, "simulated": False}
    tried = {
        "models": [{**old, "home": {"baseline": difference, "best": difference}}],
        "usage": usage,
        "warnings": [],
    }
    assert judge_move(run, tried, task)["verdict"] == verdict


def test_a_finished_run_names_task_and_model_and_nothing_is_paid_twice(
    folder: Path, monkeypatch: Any
) -> None:
    models = "scripted/labels?words=evidence,tone", "scripted/labels?words=carefully"
    options = ("--optimizer-lm", "scripted/phrases", "--method", "opro", "--max-calls", "1200")
    done = whet_here(folder, "optimize", "dishes", *options, "--lm", models[0])
    assert done.returncode == 0, done.stderr
    words = ("migrate", "runs/dishes-opro-0", "--to", models[1], *options)
    planned = whet_here(folder, *words, "--dry-run", "--json")
    assert planned.returncode == 0, planned.stderr
    assert json.loads(planned.stdout)["status"] == "planned" and len(list((folder / "runs").iterdir())) == 1
    moved = whet_here(folder, *words, "--json")
    assert moved.returncode == 0, moved.stderr
    result = json.loads(moved.stdout)
    assert result["verdict"] in ("new prompt", "old prompt", "undecided")
    assert "evidence" in result["models"]["from"] and "carefully" in result["models"]["to"]
    assert sum(result["usage"]["calls"].values()) <= 1200
    again = json.loads(whet_here(folder, *words, "--json").stdout)
    assert (again["verdict"], again["scores"]) == (result["verdict"], result["scores"])
    shown = whet_here(folder, *words)
    assert "old prompt" in shown.stdout and result["reason"] in shown.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"from_lm": None}, "from_lm"),
        (
            {"budget": whet.Budget(calls=100)},
            "does not pay for a search and for the answers of the old model",
        ),
        ({"prompt": "no such run"}, "There is no run"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_paid(
    tmp_path: Path, words: dict[str, Any], said: str
) -> None:
    new = Model("new", "BETA")
    with pytest.raises(UsageError, match=said):
        migrate(tmp_path, new, writes("Say BETA."), **words)
    assert new.asked == 0
    with pytest.raises(UsageError, match="has no rows"):
        whet.migrate(OLD_PROMPT, from_lm=new, to_lm=new)
