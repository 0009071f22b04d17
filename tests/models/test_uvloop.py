"""whet in an app whose event loop is uvloop's, as servers start it: calls, workers for rewards, and what is said of failures."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.serving import server_thread

import whet

uvloop = pytest.importorskip("uvloop", reason="servers bring uvloop: pip install 'whet[live]'")

ROWS = [{"input": f"question {n}", "target": "ok"} for n in range(30)]
REWARD = """
def reward(example, output):
    return float(output == example["target"])
"""


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(coroutine)


@pytest.mark.filterwarnings("ignore:data.0")
def test_an_app_on_uvloop_evaluates_at_an_endpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    (tmp_path / "reward.py").write_text(REWARD)
    options: dict[str, Any] = {"data": ROWS, "split": "train", "lm": "openai/m", "progress": False}
    with server_thread("--text", "ok") as url:
        options["base_url"] = url
        here = run(whet.aevaluate("{{input}}", reward="exact_match", run=tmp_path / "a", **options))
        own: dict[str, Any] = {"reward": tmp_path / "reward.py", "workers": 1}
        workers = run(whet.aevaluate("{{input}}", run=tmp_path / "b", **own, **options))
    assert here["score"]["mean"] == workers["score"]["mean"] == 1.0
    assert here["score"]["answered"] > 10


@pytest.mark.filterwarnings("ignore:data.0")
def test_an_app_on_uvloop_is_told_that_a_server_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    with pytest.raises(whet.ProviderError, match="no connection"):
        run(
            whet.aevaluate(
                "{{input}}", data=ROWS, reward="exact_match", lm="openai/m", base_url="http://127.0.0.1:9/v1",
                run=tmp_path / "a", progress=False, max_wait=0.1,
            )
        )  # fmt: skip
