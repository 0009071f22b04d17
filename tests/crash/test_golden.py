"""Golden journals: today's code replays what an earlier version recorded, with zero calls."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.golden import FOLDER, NOBODY, optimize, replay, restore
from tests.crash.test_every_boundary import SETTINGS
from tests.crash.world import ROOT, write_task
from whet.engine.run_folder import version_of
from whet.errors import ReplayDiverged
from whet.methods import get_method

RAISE = """
{method} no longer does what it did in the journal that was recorded under its version {version}. If that is meant, raise
`version` in its ENTRY, or that of the block in whet.methods.method.BLOCKS, and record: python -m tests.crash.golden {method}
"""


@pytest.mark.parametrize("method", SETTINGS)
def test_a_recorded_journal_replays_without_a_call(tmp_path: Path, method: str) -> None:
    recorded = json.loads((FOLDER / f"{method}.json").read_text())["version"]
    assert recorded == version_of(get_method(method)), f"record: python -m tests.crash.golden {method}"
    try:
        replay(tmp_path, method, SETTINGS[method])
    except Exception as error:
        error.add_note(RAISE.format(method=method, version=recorded))
        raise


REPLAYS = """
import json, sys
from pathlib import Path
from tests.crash.golden import replay

for method, settings in json.load(sys.stdin).items():
    (Path(sys.argv[1]) / method).mkdir()
    replay(Path(sys.argv[1]) / method, method, settings)
    print(method)
"""


@pytest.mark.parametrize("hash_seed", [pytest.param("1", marks=pytest.mark.long), "2026"])
def test_replay_does_not_depend_on_the_order_of_sets(tmp_path: Path, hash_seed: str) -> None:
    """The same replays in a process whose strings hash otherwise."""
    command = [sys.executable, "-c", REPLAYS, str(tmp_path)]
    env = {**os.environ, "PYTHONHASHSEED": hash_seed}
    settings = json.dumps(SETTINGS)  # not read again there: whole test files would be imported
    done = subprocess.run(command, cwd=ROOT, env=env, input=settings, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [*SETTINGS]


def test_a_journal_of_other_behaviour_is_refused(tmp_path: Path) -> None:
    golden = json.loads((FOLDER / "opro.json").read_text())
    row = next(row for row in golden["effects"] if row[1] == "optimizer")
    row[2] = "0" * 64
    write_task(tmp_path / "task")
    with restore(tmp_path, golden), pytest.raises(ReplayDiverged, match=f"position {row[0]}"):
        optimize(tmp_path, "opro", SETTINGS["opro"], NOBODY)
