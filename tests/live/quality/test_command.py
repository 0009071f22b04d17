"""`whet prompts quality` and `whet prompts alerts`: what they print and refuse."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner
from tests.live.quality.traffic import BEGIN, DAY, NAME, Weeks, fill_weeks, make_prompt

from whet.errors import UsageError
from whet_live import open_live
from whet_live.cli.prompts import prompts

PERIOD = ("--since", "2026-01-05", "--until", "2026-02-04")


@pytest.fixture
def run(sqlite_url: str) -> Any:
    """Run a command on a database with a prompt that became worse: its standard output."""
    with open_live(sqlite_url) as live:
        make_prompt(live)
        fill_weeks(live, Weeks(days=30, changed=20, thumbs=(0.9, 0.4), fingerprints=("fp_a", "fp_b")))
        live.quality.watch(BEGIN + 32 * DAY)

    def command(*arguments: str) -> str:
        done = CliRunner().invoke(prompts, ["--database", sqlite_url, *arguments])
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        assert done.exit_code == 0, done.output
        return done.stdout

    return command


def test_quality_is_printed_with_intervals_and_marks(run: Any) -> None:
    lines = run("quality", NAME, *PERIOD, "--by", "version", "--step", "week").splitlines()
    assert lines[0] == f"{NAME}  2026-01-05T00:00Z to 2026-02-04T00:00Z  1,200 answers"
    thumbs = [line for line in lines if line.startswith("Thumbs up  ")]
    assert len(thumbs) == 2 and all("%  [" in line and "users 25" in line for line in thumbs)
    assert any(line.startswith("95% of answers up to ") for line in lines)
    assert any("  drift  thumbs up fell from 9" in line for line in lines)
    assert any("  model  gpt-x (fp_b) answers" in line for line in lines)


def test_the_same_as_json(run: Any) -> None:
    report = json.loads(run("quality", NAME, *PERIOD, "--step", "week", "--json"))
    assert report["answers"] == 1200 and len(report["groups"]) == 1
    assert report["since"].startswith("2026-01-05")


def test_alerts_are_listed_the_newest_first(run: Any) -> None:
    lines = run("alerts").splitlines()
    assert len(lines) == 2 and "  drift  " in lines[0] and "  model  " in lines[1]
    assert [one["kind"] for one in json.loads(run("alerts", NAME, "--json"))["alerts"]] == ["drift", "model"]
    assert run("alerts", "another/prompt") == ""


def test_what_cannot_be_is_refused(run: Any) -> None:
    with pytest.raises(UsageError, match="no prompt"):
        run("quality", "shop/hlep")
    with pytest.raises(UsageError, match="splits nothing"):
        run("quality", NAME, "--by", "colour")
