"""The journal under damage: torn tails, full disks, failing writes, two owners."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import apsw
import pytest

from tests.engine.world import Model, ask, close, open_core
from whet.engine import journal as module
from whet.engine.journal import Journal, read_journal_rows
from whet.engine.run_folder import OpenRun
from whet.errors import RunLocked, StorageError, UsageError

INSERT = "INSERT INTO effects(key, name, digest, value) VALUES (?, 'note', '', ?)"


async def append(journal: Journal, number: int) -> None:
    await journal.commit([(INSERT, (f"/{number}", b"x" * (number * 37 % 5000)))])


def keys(path: Path) -> list[int]:
    return sorted(int(k[1:]) for (k,) in read_journal_rows(path, "SELECT key FROM effects"))


async def test_a_torn_tail_leaves_a_prefix_of_what_was_acknowledged(tmp_path: Path) -> None:
    """Cut the write-ahead log at many lengths: every reopening shows a whole prefix, never a part of a record."""
    journal = Journal(tmp_path / "journal.sqlite")
    sizes = []
    for number in range(12):
        await append(journal, number)
        sizes.append((tmp_path / "journal.sqlite-wal").stat().st_size)
    wal = (tmp_path / "journal.sqlite-wal").read_bytes()
    main = (tmp_path / "journal.sqlite").read_bytes()
    journal.close()
    last = -1
    for length in sorted({*range(0, len(wal), 1733), *sizes, *(s - 1 for s in sizes)}):
        folder = tmp_path / f"cut-{length}"
        folder.mkdir()
        (folder / "journal.sqlite").write_bytes(main)
        (folder / "journal.sqlite-wal").write_bytes(wal[:length])
        try:
            again = Journal(folder / "journal.sqlite")
        except StorageError:
            assert length < sizes[0]
            continue
        found = sorted(int(k[1:]) for (k,) in again.rows("SELECT key FROM effects"))
        await append(again, 99)
        again.close()
        assert found == list(range(len(found)))
        assert len(found) >= sum(size <= length for size in sizes)
        assert len(found) - 1 >= last or length == 0
        last = len(found) - 1
    assert last == 11


class Faulty(apsw.VFS):
    """A file system whose N-th write or sync of the journal fails."""

    def __init__(self, kind: str) -> None:
        self.kind, self.left = kind, -1
        super().__init__(name=f"faulty-{kind}", base="")

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        return FaultyFile(self, name, flags)

    def hit(self, kind: str) -> bool:
        if kind != self.kind or self.left < 0:
            return False
        self.left -= 1
        return self.left < 0


class FaultyFile(apsw.VFSFile):
    def __init__(self, vfs: Faulty, name: Any, flags: list[int]) -> None:
        self.vfs = vfs
        super().__init__("", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        if self.vfs.hit("write"):
            raise apsw.FullError("disk full")
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:
        if self.vfs.hit("sync"):
            raise apsw.IOError("sync failed")
        super().xSync(flags)


@pytest.mark.parametrize("kind", ["write", "sync"])
async def test_every_failing_write_is_one_clear_error_and_loses_nothing(tmp_path: Path, kind: str) -> None:
    """Let the N-th write (full disk) or sync fail, N = 1, 2, ... until a run sees no fault."""
    vfs = Faulty(kind)
    for n in range(200):
        folder = tmp_path / f"{n}"
        folder.mkdir()
        vfs.left = -1
        journal = Journal(folder / "journal.sqlite", lambda path: apsw.Connection(path, vfs=f"faulty-{kind}"))
        vfs.left = n
        acknowledged = []
        failure = None
        for number in range(6):
            try:
                await append(journal, number)
                acknowledged.append(number)
            except StorageError as error:
                failure = error
                with pytest.raises(StorageError):
                    await append(journal, 50)
                break
        hit = vfs.left < 0
        vfs.left = -1
        journal.close()
        again = Journal(folder / "journal.sqlite")
        await append(again, 90)
        again.close()
        found = keys(folder / "journal.sqlite")
        assert found[: len(acknowledged)] == acknowledged
        assert set(found) <= {*range(6), 90}
        if not hit:
            assert failure is None and n > 5
            return
        assert failure is None or "could not be written" in str(failure)
    pytest.fail("no run without a fault")


async def test_a_full_disk_names_file_and_remedy(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.sqlite")
    await append(journal, 0)
    await journal.commit()
    journal._db.execute(f"PRAGMA max_page_count = {journal.rows('PRAGMA page_count')[0][0]}")
    with pytest.raises(StorageError, match="free some space and run the same command again"):
        await journal.commit([(INSERT, ("/1", b"x" * 100_000))])
    journal.close()
    assert keys(tmp_path / "journal.sqlite") == [0]


def test_the_second_process_is_told_so(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    code = f"from pathlib import Path; from whet.engine.journal import Journal; Journal(Path({str(path)!r}))"
    journal = Journal(path)
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    journal.close()
    assert "another process is working on this run." in found.stderr
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


async def test_a_second_user_in_the_same_process_is_told_so_in_words_that_can_be_printed(
    tmp_path: Path,
) -> None:
    journal = Journal(tmp_path / "journal.sqlite")
    with pytest.raises(RunLocked, match="this program is working on this run elsewhere already") as raised:
        Journal(tmp_path / "journal.sqlite")
    assert "\0" not in f"{raised.value} {raised.value!r}" and "choose another run." in repr(raised.value)
    journal.close()
    Journal(tmp_path / "journal.sqlite").close()


async def test_a_paused_owner_whose_run_was_taken_over_cannot_append(tmp_path: Path) -> None:
    """Fencing: even where the lock does not hold, every transaction checks the owner's number."""
    journal = Journal(tmp_path / "journal.sqlite")
    await append(journal, 0)
    other = sqlite3.connect(tmp_path / "journal.sqlite")
    other.execute("UPDATE meta SET value = '7', sum = NULL WHERE key = 'session'")
    other.commit()
    other.close()
    with pytest.raises(RunLocked, match="took over this run"):
        await append(journal, 1)
    journal.close()
    assert keys(tmp_path / "journal.sqlite") == [0]


async def test_group_commit_acknowledges_in_order(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.sqlite")
    await asyncio.gather(*(append(journal, n) for n in range(300)))
    journal.close()
    assert keys(tmp_path / "journal.sqlite") == list(range(300))


def test_the_journal_is_private(tmp_path: Path) -> None:
    Journal(tmp_path / "journal.sqlite").close()
    assert stat.S_IMODE(os.stat(tmp_path / "journal.sqlite").st_mode) == 0o600


def test_a_file_that_is_no_journal_is_refused_and_untouched(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    path.write_text("my precious notes")
    with pytest.raises(UsageError, match="is not a journal"):
        Journal(path)
    assert path.read_text() == "my precious notes"


def test_another_format_is_refused(tmp_path: Path) -> None:
    Journal(tmp_path / "journal.sqlite").close()
    shutil.copy(tmp_path / "journal.sqlite", tmp_path / "other.sqlite")
    db = sqlite3.connect(tmp_path / "other.sqlite")
    db.execute("UPDATE meta SET value = '99', sum = NULL WHERE key = 'format'")
    db.commit()
    db.close()
    with pytest.raises(UsageError, match="journal format 99"):
        Journal(tmp_path / "other.sqlite")


def test_who_comes_while_a_refused_run_is_tidied_up_keeps_its_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one takes the journal the moment it is free: by then everything of the refused run has gone."""
    path, unlock, came = tmp_path / "run" / "journal.sqlite", module._unlock, list[Journal]()

    def unlocked(file: Any) -> None:
        unlock(file)
        if not came:
            path.parent.mkdir(exist_ok=True)
            came.append(Journal(path))

    monkeypatch.setattr(module, "_unlock", unlocked)
    core = open_core(path.parent, Model())
    made = [path.with_name(path.name + end) for end in ("", "-wal", "-shm", ".lock")]
    with pytest.raises(UsageError), OpenRun(core, 0, 0.0, None, [*made, path.parent]).closing():
        raise UsageError("The method cannot do that.")
    assert path.exists()
    with pytest.raises(RunLocked):
        Journal(path)
    came[0].close()
    assert read_journal_rows(path, "SELECT value FROM meta WHERE key = 'closed'") == [("1",)]


def test_a_lock_that_its_holder_removed_is_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was opened before the holder removed it, and locked after that: the next one would make another."""
    path, lock = tmp_path / "journal.sqlite", tmp_path / "journal.sqlite.lock"

    def late(file: Any, how: int) -> None:
        lock.unlink()

    monkeypatch.setattr("fcntl.flock", late)
    with pytest.raises(RunLocked):
        Journal(path)
    assert not path.exists()


def test_a_folder_that_goes_away_is_told(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="the lock of the run cannot be opened"):
        Journal(tmp_path / "gone" / "journal.sqlite")


class Waiting(sqlite3.Connection):
    """A connection whose transactions wait until `free` is set."""

    free = threading.Event()

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        if threading.current_thread().name == "whet-journal" and sql.startswith("BEGIN"):
            self.free.wait(10)
        return super().execute(sql, *parameters)


async def test_a_call_that_is_given_up_while_its_intent_waits_for_the_disk_is_no_call(tmp_path: Path) -> None:
    """The end of such a call was written first and its intent over it: the next session counted it as lost in a kill."""

    def open_db(path: str) -> Any:
        return sqlite3.connect(path, isolation_level=None, check_same_thread=False, factory=Waiting)

    Waiting.free.clear()
    core = open_core(tmp_path / "run", Model(), open_db=open_db)
    core.journal.append([(INSERT, ("/0", b""))])
    await asyncio.sleep(0)
    request, digest = core.caller.prepare("task", ask("hello"))
    asked = asyncio.create_task(core.caller.ask("task", request, digest))
    for _ in range(20):
        await asyncio.sleep(0)
    assert core.caller.budget.spent.calls["task"] == 1
    asked.cancel()
    await asyncio.gather(asked, return_exceptions=True)
    for _ in range(20):
        await asyncio.sleep(0)
    assert core.caller.budget.spent.calls["task"] == 0
    Waiting.free.set()
    await close(core)
    states = read_journal_rows(tmp_path / "run" / "journal.sqlite", "SELECT state FROM calls")
    assert states == [("unsent",)]
