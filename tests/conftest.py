"""What every test shares: properties are checked without clocks and in a fixed order, state is a test's own, and files are
written to memory where there is enough of it: a test that waits for a disk a thousand times waits for minutes."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

MEMORY = Path("/dev/shm")
if (
    os.access(MEMORY, os.W_OK)
    and shutil.disk_usage(MEMORY).free > 4 * 2**30
    and not os.statvfs(MEMORY).f_flag & os.ST_NOEXEC
):
    tempfile.tempdir = os.environ["TMPDIR"] = str(MEMORY)

os.environ["WHET_STATE"] = tempfile.mkdtemp(prefix="whet-state-")
"""What fixtures of a module and child processes write to; nothing of a test goes to the home of who runs it."""
atexit.register(shutil.rmtree, os.environ["WHET_STATE"], ignore_errors=True)

settings.register_profile(
    "steady",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("steady")


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ledger of openings of its own for each test: no test has seen the rows of another."""
    folder = tmp_path / "state-of-whet"
    monkeypatch.setenv("WHET_STATE", str(folder))
    return folder
