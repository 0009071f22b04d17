"""`whet compare` takes a program with objectives: cost, verdicts on each objective, the same limits."""

from __future__ import annotations

from pathlib import Path

import pytest

import whet
from tests.programs.world import PROMPTS, ROWS, model, optimizer, program, reward
from whet.cli import show


def test_methods_are_compared_on_a_program_with_objectives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WHET_STATE", str(tmp_path / "state"))
    compared = whet.compare(
        PROMPTS,
        ["gepa", "random_search"],
        program={"function": program, "calls": 2},
        data=ROWS,
        reward=reward,
        objectives={"right": {"reward": "exact_match"}, "length": {"metric": "prompt_tokens"}},
        lm=model,
        optimizer_lm=optimizer,
        budget=whet.Budget(calls=400),
        reader="none",
        run=tmp_path / "runs",
    )
    gepa, control = (compared.methods[name] for name in ("gepa", "random_search"))
    assert gepa["objectives"]["right"]["best"] > control["objectives"]["right"]["best"]
    assert gepa["objectives"]["right"]["verdicts"] == {"better": 1}
    assert gepa["objectives"]["length"]["goal"] == "min"
    assert all(method["price_unknown"] for method in (gepa, control))
    show.comparison(compared.to_dict())
    table = capsys.readouterr().out
    assert "USD" in table and "unknown" in table and "0 -> 1 (1 better)" in table
