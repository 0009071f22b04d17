"""benchmarks/programs.py: each prompt is judged by its own part of the page; without the world there is nothing to measure."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from benchmarks import programs


def test_without_the_world_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(programs, "WORLDS", tmp_path)
    programs.main([])
    assert "WHET_SHARED_WORLDS" in capsys.readouterr().err


@pytest.mark.skipif(
    not (programs.WORLDS / "rulesworld").is_dir(), reason="the world lies outside the project"
)
def test_each_prompt_hears_of_its_own_part_of_the_page() -> None:
    trial = programs.Trial("whet gepa", "", "key", 30, 0, 1, 1, "", time.time())
    request = trial.rows("test")[0]
    world = trial.world
    pages = [
        json.dumps(world.make_page(world.find_request(request), [p] * 30, 30, 0, "")) for p in (0.0, 1.0)
    ]
    share, whole, critiques = trial.judge(request, {"frame": pages[1], "body": pages[1]})
    assert (share, whole, critiques) == (1.0, True, {})
    assert trial.judge(request, {"frame": pages[0], "body": pages[1]})[2].keys() == {"frame"}
    assert trial.judge(request, {"frame": pages[1], "body": pages[0]})[2].keys() == {"body"}
    assert trial.judge(request, {"frame": "no page", "body": pages[1]})[0] < 1.0
