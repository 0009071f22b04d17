"""Golden journals: today's code replays what an earlier version recorded, with zero calls."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.crash.golden import ANSWER, FOLDER, NOBODY, optimize
from tests.crash.test_every_boundary import ROOT, SETTINGS, write_task
from whet.engine.journal import Journal
from whet.engine.run_folder import version_of
from whet.errors import ReplayDiverged
from whet.methods import get_method


def restore(folder: Path, golden: dict[str, Any]) -> None:
    async def write() -> None:
        journal = Journal(folder / "run" / "journal.sqlite")
        rows = [
            ("INSERT INTO effects(key, name, digest, value, role, calls) VALUES (?,?,?,?,?,?)",
             (*row[:3], None if row[3] is None else row[3].encode(), *row[4:]))
            for row in golden["effects"]
        ]  # fmt: skip
        rows += [
            ("INSERT INTO results(digest, value) VALUES (?,?)", (d, v.encode())) for d, v in golden["results"]
        ]
        await journal.commit(rows)
        journal.close()

    (folder / "run").mkdir()
    asyncio.run(write())


def replay(folder: Path, method: str) -> None:
    """Restore a recorded journal and go through it: no call, and the recorded answer."""
    golden = json.loads((FOLDER / f"{method}.json").read_text())
    write_task(folder / "task")
    restore(folder, golden)
    result = optimize(folder, method, NOBODY)
    assert sum(result["usage"]["calls"].values()) == 0
    for key in ("baseline", "best", "improvement"):
        recorded = golden["answer"][key]
        assert {name: result[key][name] for name in recorded} == recorded, "keys may come, none may change"
    history = [point["validation"] for point in result["history"]]
    assert history == [point["validation"] for point in golden["answer"]["history"]]
    assert set(golden["answer"]) == set(ANSWER)


RAISE = """
{method} no longer does what it did in the journal that was recorded under its version {version}. If that is meant, raise
`version` in its ENTRY, or that of the block in whet.methods.method.BLOCKS, and record: python -m tests.crash.golden {method}
"""


@pytest.mark.parametrize("method", SETTINGS)
def test_a_recorded_journal_replays_without_a_call(tmp_path: Path, method: str) -> None:
    recorded = json.loads((FOLDER / f"{method}.json").read_text())["version"]
    assert recorded == version_of(get_method(method)), f"record: python -m tests.crash.golden {method}"
    try:
        replay(tmp_path, method)
    except Exception as error:
        error.add_note(RAISE.format(method=method, version=recorded))
        raise


REPLAYS = """
import sys
from pathlib import Path
from tests.crash.test_golden import SETTINGS, replay

for method in SETTINGS:
    (Path(sys.argv[1]) / method).mkdir()
    replay(Path(sys.argv[1]) / method, method)
    print(method)
"""


@pytest.mark.parametrize("hash_seed", [pytest.param("1", marks=pytest.mark.long), "2026"])
def test_replay_does_not_depend_on_the_order_of_sets(tmp_path: Path, hash_seed: str) -> None:
    """The same replays in a process whose strings hash otherwise."""
    command = [sys.executable, "-c", REPLAYS, str(tmp_path)]
    env = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [*SETTINGS]


def test_a_journal_of_other_behaviour_is_refused(tmp_path: Path) -> None:
    golden = json.loads((FOLDER / "opro.json").read_text())
    row = next(row for row in golden["effects"] if row[1] == "optimizer")
    row[2] = "0" * 64
    write_task(tmp_path / "task")
    restore(tmp_path, golden)
    with pytest.raises(ReplayDiverged, match=f"position {row[0]}"):
        optimize(tmp_path, "opro", NOBODY)
