"""`whet serve backup`: a copy of a database that is in use."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from tests.command_line import whet_here

from whet.errors import StorageError, UsageError
from whet_client.records import Feedback
from whet_live import open_live


def test_the_copy_holds_every_row_that_was_acknowledged_while_the_database_is_in_use(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/whet.db"
    with open_live(url) as live:
        for i in range(300):
            live.traffic.add([], [Feedback("comment", f"answer-{i}", text=f"text {i}", id=f"f{i}")])
        done = whet_here(tmp_path, "serve", "backup", str(tmp_path / "copy.db"), "--database", url)
        assert done.returncode == 0 and "Wrote" in done.stdout
    with open_live(f"sqlite:///{tmp_path}/copy.db") as copy:
        assert [copy.traffic.feedback(f"f{i}") is not None for i in range(300)] == [True] * 300
    assert sqlite3.connect(tmp_path / "copy.db").execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert (tmp_path / "copy.db").stat().st_mode & 0o077 == 0


def test_a_copy_overwrites_nothing_and_leaves_nothing_half_written(tmp_path: Path) -> None:
    with open_live(f"sqlite:///{tmp_path}/whet.db") as live:
        (tmp_path / "there.db").write_text("mine")
        with pytest.raises(UsageError, match=r"there\.db exists"):
            live.database.back_up(tmp_path / "there.db")
        with pytest.raises(StorageError, match="the copy could not be written"):
            live.database.back_up(tmp_path / "there.db" / "copy.db")
        live.database.back_up(tmp_path / "backups" / "week" / "copy.db")
    assert (tmp_path / "backups" / "week" / "copy.db").stat().st_size > 0
    assert (tmp_path / "there.db").read_text() == "mine" and not list(tmp_path.glob("*.part"))


@pytest.mark.parametrize(
    "command",
    [
        ("serve", "backup", "copy.db"),
        ("prompts", "export", "copies"),
        ("prompts", "audit", "--verify"),
        ("feedback", "forget", "user-17", "--yes", "--as", "ann"),
        ("feedback", "expire", "2026-01-01", "--yes", "--as", "ann"),
        ("feedback", "list"),
        ("prompts", "list"),
        ("prompts", "quality", "shop/help"),
        ("access", "list"),
        ("tasks", "from-traffic", "shop/help", "--out", "task"),
    ],
)
def test_a_database_that_is_not_there_is_neither_read_nor_made(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    done = whet_here(tmp_path, *command, "--database", "sqlite:///typo.db")
    assert done.returncode == 2 and f"There is no database {tmp_path / 'typo.db'}." in done.stderr
    assert not list(tmp_path.iterdir())
