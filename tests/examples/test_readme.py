"""The first run in README.md, as its commands make it."""

from __future__ import annotations

import re
from pathlib import Path

from tests.command_line import whet_here

README = Path(__file__).parents[2] / "README.md"


def test_the_first_run_prints_what_the_readme_shows(tmp_path: Path) -> None:
    commands, shown = re.findall(
        r"(?ms)^```console\n(.*?)^```\n+```text\n(.*?)^```", README.read_text("utf-8")
    )[0]
    lines = re.findall(r"whet ((?:(?! && | +#).)+)", commands)
    assert lines == ["init demo --from example", "optimize demo"]
    done = [whet_here(tmp_path, *line.split()) for line in lines]
    assert [one.returncode for one in done] == [0, 0], done[-1].stderr

    printed = iter(done[-1].stdout.splitlines())
    assert [line for line in shown.splitlines() if line and line not in printed] == []
