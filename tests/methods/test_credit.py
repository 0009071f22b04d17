"""credit=turn through the public face: on a game that pays by the turn, every turn learns from what followed it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="writers need torch: pip install 'whet[train]'")
pytest.importorskip("transformers", reason="writers need transformers: pip install 'whet[train]'")
pytest.importorskip("peft", reason="writers need peft: pip install 'whet[train]'")
pytest.importorskip("trueskill", reason="ratings need trueskill: pip install 'whet[train]'")
pytest.importorskip("gymnasium", reason="games need gymnasium: pip install 'whet[games]'")

import torch
from benchmarks.simulated.clause_tasks import write_task
from tests.rl.tiny_llama import WORDS, save

from whet import api
from whet.errors import UsageError
from whet.rl.policy_model import PolicyModel

MOVES = tuple(
    move + mark for move in ("left", "down", "right", "up") for mark in ("", ".", "!", "?", ",", ";")
)
FIRST_MOVE = len(WORDS)
TASK = """\
name: lake
prompt: prompt.md
environment: {gymnasium: FrozenLake-v1, turns: 3, episodes: 6, penalty: 1, options: {is_slippery: false}}
"""
SETTINGS = {
    "mode": "rl",
    "steps": 1,
    "problems": 1,
    "group": 8,
    "max_tokens": 1,
    "checks": 0,
    "temperature": 1.0,
}


def lake(folder: Path) -> Path:
    """Three turns on the ice; a text that names no move costs 1, a move nothing."""
    folder.mkdir()
    (folder / "task.yaml").write_text(TASK)
    (folder / "prompt.md").write_text("Cross the lake.\n")
    return folder


def learned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> list[tuple[Any, Any]]:
    """(sample, advantages of its tokens) of the only update of a run of espl, whose writer says one word a turn."""
    torch.set_num_threads(1)
    seen: list[tuple[Any, Any]] = []
    update = PolicyModel.update

    def spy(self: PolicyModel, samples: Any, advantages: Any, *rest: Any, **more: Any) -> Any:
        seen.extend(zip(samples, advantages, strict=True))
        return update(self, samples, advantages, *rest, **more)

    monkeypatch.setattr(PolicyModel, "update", spy)
    model = f"hf/{save(tmp_path / 'model', sharpness=1.0, more=MOVES, length=512)}"
    api.optimize(
        lake(tmp_path / "task"), method="espl", lm=model, policy=model,
        settings={**SETTINGS, **settings}, seed=1, run=tmp_path / "run",
    )  # fmt: skip
    return seen


def test_every_turn_learns_from_what_followed_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Return-to-go less its mean over the episodes that got so far, computed here from the words themselves."""
    seen = learned(tmp_path, monkeypatch, credit="turn")
    assert len(seen) == 8
    rows, to_go = [], []
    for sample, advantages in seen:
        words = [a for a, own in zip(advantages, sample.own, strict=True) if own]
        said = [t for t, own in zip(sample.tokens, sample.own, strict=True) if own]
        paid = [0.0 if token >= FIRST_MOVE else -1.0 for token in said]
        rows.append(words)
        to_go.append([sum(paid[i:]) for i in range(len(paid))])
    assert {len(row) for row in rows} <= {2, 3} and max(map(len, rows)) == 3, "a hole ends it early"
    for turn in range(3):
        reached = [i for i, row in enumerate(to_go) if len(row) > turn]
        mean = sum(to_go[i][turn] for i in reached) / len(reached)
        assert [rows[i][turn] for i in reached] == pytest.approx([to_go[i][turn] - mean for i in reached])
    assert any(len({round(a, 9) for a in row}) > 1 for row in rows), "turns of one episode differ"


def test_without_it_the_whole_episode_has_one_advantage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = learned(tmp_path, monkeypatch)
    for sample, advantages in seen:
        assert len({a for a, own in zip(advantages, sample.own, strict=True) if own}) == 1
    assert len({max(a, key=abs) for _, a in seen}) > 1


def test_a_task_of_single_questions_has_no_turns(tmp_path: Path) -> None:
    write_task(tmp_path / "task", 0, clauses=2, rows=12)
    with pytest.raises(UsageError, match="no `environment:`"):
        api.optimize(
            tmp_path / "task", method="espl", lm="embedded/tiny", policy="embedded/tiny",
            settings={**SETTINGS, "credit": "turn"}, run=tmp_path / "run",
        )  # fmt: skip
