"""The method of the page "How to write a method", by the page alone: its files in an empty folder, tested by its command."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "writing-a-method.md"


def test_the_files_of_the_page_pass_the_suite_as_the_page_runs_it(tmp_path: Path) -> None:
    page = PAGE.read_text("utf-8")
    for name, text in re.findall(r"(?ms)^```python (\S+\.py)\n(.*?)^```$", page):
        (tmp_path / name).write_text(text, "utf-8")
    (command,) = re.findall(r"(?m)^\$ python (-m pytest .*)$", page)
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, *command.split()], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
