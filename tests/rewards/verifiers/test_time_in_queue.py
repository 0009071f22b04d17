"""The time of a confined process by the clock, on a machine that has more to do than it can."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from whet._util import confined
from whet._util.confined import Limits, OutOfBounds, run_confined, seconds_in_queue

SLOW = "import json, sys, time\njson.load(sys.stdin)\ntime.sleep(1.5)\njson.dump('done', sys.stdout)\n"


@pytest.mark.parametrize("queued", [0.0, 1000.0])
def test_a_process_is_not_ended_for_the_time_in_which_it_had_no_processor(
    queued: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sleeps longer than the clock allows; that it stood in a queue meanwhile is what the machine is made to say."""
    program = tmp_path / "slow.py"
    program.write_text(SLOW)
    monkeypatch.setattr(confined, "seconds_in_queue", lambda pid: queued)
    if queued:
        assert run_confined(program, {}, Limits(0.3), readable=[tmp_path]) == "done"
    else:
        with pytest.raises(OutOfBounds, match=r"it had not ended after 0\.9 s"):
            run_confined(program, {}, Limits(0.3), readable=[tmp_path])


def test_what_the_machine_says_of_the_queue_is_read() -> None:
    assert seconds_in_queue(os.getpid()) >= 0.0 and seconds_in_queue(2**30) == 0.0
