"""Runs in folders whose names mean something in an address."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.report import runs as recorded
from whet import api


@pytest.mark.parametrize("name", ["50%", "a%20b", "what?mode=memory", "a#b", "a b é", "a&b;c"])
def test_a_run_is_found_whatever_its_folder_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    recorded.running(tmp_path / "runs" / "plain")
    recorded.running(tmp_path / "runs" / name)
    assert {Path(row["run"]).name for row in api.runs(tmp_path / "runs")} == {"plain", name}
    monkeypatch.chdir(tmp_path)
    assert {Path(row["run"]).name for row in api.runs(Path("runs"))} == {"plain", name}
    assert api.run_events(Path("runs", name), 0) == api.run_events(Path("runs", "plain"), 0) != []


@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff\xfe", b""])
def test_a_result_that_cannot_be_read_does_not_hide_the_other_runs(tmp_path: Path, content: bytes) -> None:
    for name in ("a", "b"):
        recorded.running(tmp_path / name)
    (tmp_path / "a" / api.RESULT).write_bytes(content)
    assert [row["status"] for row in api.runs(tmp_path)] == ["unreadable", "unfinished"]
