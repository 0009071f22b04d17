"""`whet prompts quality`, `whet prompts alerts` and `whet check PROMPT`: what they print and refuse."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner
from tests.live.quality.traffic import BEGIN, DAY, NAME, Weeks, fill_weeks, make_prompt

from whet.cli.main import cli
from whet.errors import UsageError
from whet.prompt import Prompt
from whet_client.ids import now
from whet_client.records import Feedback, Inference
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


def check(url: str, *arguments: str) -> tuple[int, str]:
    """The exit code and what `whet check` prints."""
    done = CliRunner().invoke(cli, ["check", *arguments, "--database", url])
    if isinstance(done.exception, UsageError):
        raise done.exception
    return done.exit_code, done.stdout


def test_a_build_fails_where_live_quality_misses_a_threshold(sqlite_url: str, tmp_path: Path) -> None:
    with open_live(sqlite_url) as live:
        make_prompt(live)
        live.registry.create("shop/other", Prompt.parse("Answer {{question}}"), author="ann")
        begin = now() - 6 * DAY
        asked = [
            Inference(NAME, 1, {}, "Yes.", id=f"a{n}", user=f"u{n}", latency=2.0, time=begin)
            for n in range(40)
        ]
        said = [Feedback("thumb", f"a{n}", float(n % 4 > 0), id=f"t{n}") for n in range(40)]
        unjudged = Inference("shop/other", 1, {}, "Yes.", id="b1", time=begin)
        live.traffic.add([*asked, unjudged], said)
    code, printed = check(sqlite_url, NAME, "--threshold", "0.75")
    assert code == 0 and re.fullmatch(
        rf"passed  {NAME}: thumbs up 0\.750 \[0\.\d+, 0\.\d+\], 40 answers to 40 users, is not below 0\.750\n",
        printed,
    )
    assert check(sqlite_url, NAME, "--threshold", "0.76")[0] == 1
    code, printed = check(sqlite_url, NAME, "--threshold", "0.75", "--sure")
    assert code == 1 and "the lower end of thumbs up" in printed
    assert check(sqlite_url, NAME, "--measure", "latency", "--threshold", "2.0")[0] == 0, "less is better"
    code, printed = check(sqlite_url, NAME, "--measure", "latency", "--threshold", "1.9")
    assert code == 1 and "is above 1.900" in printed
    file = tmp_path / "whet.xml"
    code, printed = check(
        sqlite_url, NAME, "shop/other", "--threshold", "0.5", "--junit", str(file), "--json"
    )
    assert code == 3 and [one["outcome"] for one in json.loads(printed)["checks"]] == ["passed", "undecided"]
    suite = ElementTree.parse(file).getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("2", "0", "1")
    assert check(sqlite_url, NAME, "--measure", "score:tone", "--threshold", "0.5")[0] == 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--measure", "thumbs", "--threshold", "0.5"), 'no measure "thumbs".*thumb'),
        (("--measure", "comment", "--threshold", "0.5"), "neither better nor worse"),
        (("--measure", "thumb", "--threshold", "80"), "80 is no value of thumb, which lies in 0 to 1"),
        (("--threshold", "0.5", "--junit", "nowhere/whet.xml"), "no folder nowhere"),
    ],
)
def test_a_check_of_live_quality_that_cannot_be_is_refused(
    sqlite_url: str, words: tuple[str, ...], said: str
) -> None:
    with open_live(sqlite_url) as live:
        make_prompt(live)
        live.traffic.add([Inference(NAME, 1, {}, "Yes.", id="a1")], [Feedback("thumb", "a1", 1.0, id="t1")])
    with pytest.raises(UsageError, match=said):
        check(sqlite_url, NAME, *words)


def make_task(folder: Path) -> Path:
    """A task that a scripted model answers, with a reward that is always 1."""
    folder.mkdir(parents=True)
    (folder / "task.yaml").write_text(
        "name: words\nprompt: prompt.md\ndata: rows.jsonl\nreward: contains\nmodels: {task: scripted/echo}\n"
    )
    (folder / "prompt.md").write_text("Say {{input}}")
    rows = [{"input": f"w{n}", "target": f"w{n}"} for n in range(80)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_one_check_takes_tasks_and_prompts(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make_task(tmp_path / "words")
    with open_live(sqlite_url) as live:
        make_prompt(live)
        live.traffic.add([Inference(NAME, 1, {}, "Yes.", id="a1")], [Feedback("thumb", "a1", 0.0, id="t1")])
    code, printed = check(sqlite_url, NAME, "words", "--threshold", "0.5", "--junit", "whet.xml", "--json")
    checks = json.loads(printed)["checks"]
    assert code == 1
    assert [(one["task"], one["outcome"]) for one in checks] == [(NAME, "failed"), ("words", "passed")]
    cases = ElementTree.parse(tmp_path / "whet.xml").getroot().findall("testcase")
    assert [case.get("name") for case in cases] == [NAME, "words"]
    with pytest.raises(UsageError, match="--days is an option for prompts"):
        check(sqlite_url, "words", "--threshold", "0.5", "--days", "3")
    with pytest.raises(UsageError, match="--split is an option for tasks"):
        check(sqlite_url, NAME, "--threshold", "0.5", "--split", "test")


def test_a_name_that_is_both_or_neither_is_refused(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make_task(tmp_path / NAME)
    with open_live(sqlite_url) as live:
        make_prompt(live)
    with pytest.raises(
        UsageError, match=rf"{NAME} is a task folder and a prompt of the registry. Write ./{NAME}"
    ):
        check(sqlite_url, NAME, "--threshold", "0.5")
    assert check(sqlite_url, f"./{NAME}", "--threshold", "0.5")[0] == 0
    (tmp_path / "whet.xml").write_text("an outcome of yesterday")
    with pytest.raises(UsageError, match=r'there is no such task folder.* There is no prompt "shop/hlep"'):
        check(sqlite_url, "shop/hlep", "--threshold", "0.5", "--junit", "whet.xml")
    assert not (tmp_path / "whet.xml").exists()
    with pytest.raises(UsageError, match=r"there is no such task folder.* There is no database"):
        check(f"sqlite:///{tmp_path}/none.db", "shop/hlep", "--threshold", "0.5")
    assert check(f"sqlite:///{tmp_path}/none.db", NAME, "--threshold", "0.5")[0] == 0, "no registry, a task"
    assert not (tmp_path / "none.db").exists()


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
