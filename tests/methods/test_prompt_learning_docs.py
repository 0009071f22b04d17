"""The pages about prompt learning are true: their examples run, their settings and events are the real ones."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from pathlib import Path

import pytest

from whet.methods.prompt_learning import Config
from whet.prompt.events import EVENTS

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "prompt-learning.md").read_text("utf-8")
METHOD = (ROOT / "docs" / "methods" / "prompt_learning.md").read_text("utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("block", BLOCKS)
def test_the_examples_print_what_they_say(block: str) -> None:
    done = subprocess.run([sys.executable, "-c", block], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == re.findall(r"print\(.*\)  # (.*)", block)


def test_every_setting_is_explained_with_its_default() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (\S+) \|", METHOD, re.MULTILINE))
    defaults = {f.name: str(getattr(Config(), f.name)).lower() for f in dataclasses.fields(Config)}
    assert rows == defaults


def test_every_event_is_explained() -> None:
    assert set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)) == set(EVENTS)
