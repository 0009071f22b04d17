"""Runs in folders whose names mean something in an address."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

import whet
from tests.report import runs as recorded
from whet import api
from whet.errors import StorageError
from whet.types import Request


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


PROMPT = "<!-- whet:begin -->\nWhat is it like?\n<!-- whet:end -->\nReview: {{input}}"
ROWS = [
    {"input": f"Dish {i} was {word}.", "target": target}
    for i in range(30)
    for word, target in (("bad", "negative"), ("lovely", "positive"))
]


def answer(messages: list[whet.Message]) -> str:
    """Right on every third row."""
    text = str(messages[-1].content)
    return ("negative" if "bad" in text else "positive") if sum(text.encode()) % 3 == 0 else "unsure"


def write(messages: list[whet.Message], request: Request) -> str:
    return f"<INSTRUCTION>\nSay it in {len(str(messages))} ways, and {request.sample} more.\n</INSTRUCTION>"


def run_in(folder: Path) -> whet.RunResult:
    """A search that does all that its limit pays for."""
    return whet.optimize(
        PROMPT, data=ROWS, reward="exact_match", budget=whet.Budget(calls=200),
        method=whet.methods.opro.Config(steps=60, samples=2, examples=20),
        lm=answer, optimizer_lm=write, run=folder, progress=False,
    )  # fmt: skip


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("content", [None, b'{"task": "t", "met', b"", b"[]", b"null"])
def test_a_lost_or_damaged_result_is_made_anew_from_the_journal(
    tmp_path: Path, content: bytes | None
) -> None:
    before = run_in(tmp_path / "run").to_dict()
    assert "a larger limit allows more" in before["ended_by"]
    file = tmp_path / "run" / api.RESULT
    file.unlink() if content is None else file.write_bytes(content)
    (tmp_path / "run" / "report.html").unlink()
    assert whet.report(tmp_path / "run").is_file()
    after = run_in(tmp_path / "run").to_dict()
    for name in ("ended_by", "improvement", "best", "baseline"):
        assert after[name] == before[name], name
    assert after["usage"]["calls"] == before["usage"]["calls"]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", ["best.md", "report.html", "result.json"])
def test_a_file_that_the_disk_refuses_is_one_error_and_the_run_is_kept(tmp_path: Path, name: str) -> None:
    run_in(tmp_path / "run")
    for file in ("best.md", "report.html", "result.json"):
        (tmp_path / "run" / file).unlink()
    (tmp_path / "run" / name).mkdir()
    with pytest.raises(StorageError, match=f"{name}: the .* could not be written"):
        run_in(tmp_path / "run")
    (tmp_path / "run" / name).rmdir()
    assert run_in(tmp_path / "run").usage.calls


def test_a_report_on_a_disk_that_takes_no_file_is_one_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded.running(tmp_path / "run")

    def refuse(*args: object, **kwargs: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "touch", refuse)
    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(StorageError, match="Read-only file system"):
        whet.report(tmp_path / "run")
