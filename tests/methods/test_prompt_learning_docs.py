"""The page about prompt learning is true: its examples run, its events are the real ones."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from whet.prompt.events import EVENTS

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "prompt-learning.md").read_text("utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("block", BLOCKS)
def test_the_examples_print_what_they_say(block: str) -> None:
    done = subprocess.run([sys.executable, "-c", block], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == re.findall(r"print\(.*\)  # (.*)", block)


def test_every_event_is_explained() -> None:
    assert set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)) == set(EVENTS)
