"""`whet check`: outcomes, exit codes, the JUnit file, and the action that runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.command_line import whet_here
from tests.distributions import ROOT
from whet.engine.result_json import MeanJSON
from whet.reporting.thresholds import ThresholdCheck, check_score, junit
from whet.task import load_task


def score(mean: float | None, low: float, high: float, answered: int = 20) -> Any:
    return {"mean": mean, "low": low, "high": high, "n": answered, "answered": answered, "of": 20}


def partly(low: float, high: float, sure: tuple[float, float] = (0.0, 1.0)) -> Any:
    """A score of 18 answered rows of 20: its mean and its lower end with the others at their worst and at their best."""
    ends = {"mean_at_worst": low, "mean_at_best": high, "low_at_worst": sure[0], "low_at_best": sure[1]}
    return score(0.9, 0.85, 0.95, 18) | ends


@pytest.mark.parametrize(
    ("given_score", "sure", "outcome", "words"),
    [
        (score(0.85, 0.7, 0.93), False, "passed", "with other rows, the result might differ"),
        (score(0.85, 0.82, 0.9), False, "passed", "is not below 0.8"),
        (score(0.8, 0.6, 0.9), False, "passed", "not below"),
        (score(0.79996, 0.6, 0.9), False, "failed", "the mean 0.799960"),
        (score(sum([0.1] * 8), 0.6, 0.9), False, "passed", "not below"),
        (score(0.9, sum([0.1] * 8), 0.97), True, "passed", "the lower end"),
        (partly(sum([0.1] * 8), 0.9), False, "passed", "18 of 20"),
        (partly(0.5, sum([0.1] * 8)), False, "undecided", "18 of 20"),
        (score(0.79, 0.6, 0.9), False, "failed", "is below 0.800; with other rows, the result might differ"),
        (score(0.85, 0.7, 0.93), True, "failed", "the lower end of 0.85"),
        (score(0.9, 0.81, 0.97), True, "passed", "the lower end"),
        (partly(0.7, 0.9), False, "undecided", "18 of 20 rows were answered; the other rows decide"),
        (partly(0.82, 0.95), False, "passed", "18 of 20"),
        (partly(0.5, 0.7), False, "failed", "below 0.8"),
        (partly(0.82, 0.95, (0.7, 0.85)), True, "undecided", "the lower end of the 95% interval lies in"),
        (partly(0.82, 0.95, (0.6, 0.75)), True, "failed", "below 0.8"),
        (partly(0.82, 0.95, (0.8, 0.85)), True, "passed", "not below"),
        (score(0.9, 0.85, 0.95, 18), False, "undecided", "18 of 20"),
    ],
)
def test_the_outcome_of_a_mean(given_score: Any, sure: bool, outcome: str, words: str) -> None:
    check = check_score("t", given_score, 0.8, sure=sure)
    assert check.outcome == outcome and words in check.sentence


@given(
    st.lists(
        st.builds(ThresholdCheck, st.text(), st.sampled_from(["passed", "failed", "undecided"]), st.text())
    )
)
def test_the_file_is_xml_for_any_text(checks: list[ThresholdCheck]) -> None:
    suite = ElementTree.fromstring(junit(checks))
    assert suite.attrib["tests"] == str(len(checks)) == str(len(suite.findall("testcase")))
    assert suite.attrib["failures"] == str(len(suite.findall(".//failure")))
    assert suite.attrib["errors"] == str(len(suite.findall(".//error")))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A task that a scripted model answers rightly on most rows."""
    task = tmp_path / "words"
    task.mkdir()
    (task / "task.yaml").write_text(
        "name: words\nprompt: prompt.md\ndata: rows.jsonl\nreward: reward.py\nmodels: {task: scripted/echo}\n"
    )
    (task / "prompt.md").write_text("Say {{input}}")
    (task / "reward.py").write_text("def reward(example, output):\n    return float(example['good'])\n")
    rows = [{"input": f"w{i}", "target": "x", "good": i % 4 != 0} for i in range(80)]
    (task / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return task


def test_the_exit_code_says_what_came_out(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "whet.xml"
    for threshold, code, kind in (("0.2", 0, "system-out"), ("0.95", 1, "failure")):
        done = whet_here(tmp_path, "check", str(folder), "--threshold", threshold, "--junit", str(file))
        assert done.returncode == code, done.stderr
        assert done.stdout.startswith("passed" if code == 0 else "failed")
        assert "SIMULATED: a scripted model answered" in done.stdout
        (case,) = ElementTree.parse(file).getroot()
        assert case.attrib["name"] == "words" and case[0].tag == kind


def test_an_opening_of_the_sealed_rows_is_said_before_and_in_every_form_of_the_outcome(
    folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "other.md").write_text("Tell {{input}}")
    command = ("check", str(folder), "--threshold", "0.2", "--split", "test")
    first = whet_here(tmp_path, *command)
    assert "is opening" not in first.stderr and "opening 1" not in first.stdout, (
        "one prompt alone compares nothing"
    )
    file = tmp_path / "whet.xml"
    second = whet_here(tmp_path, *command, "--prompt", "other.md", "--json", "--junit", str(file))
    assert "this measurement is opening 1 of them; a later run tests at alpha" in second.stderr
    (check,) = json.loads(second.stdout)["checks"]
    assert any("opening 1 of them" in warning for warning in check["warnings"])
    assert "opening 1 of them" in str(ElementTree.parse(file).findtext(".//system-out"))


def test_the_outcomes_as_json(folder: Path, tmp_path: Path) -> None:
    done = whet_here(tmp_path, "check", str(folder), str(folder), "--threshold", "0.2", "--json")
    printed = json.loads(done.stdout)
    assert [one["outcome"] for one in printed["checks"]] == ["passed", "passed"]


def test_a_file_that_has_no_folder_is_refused_before_anything_is_asked(folder: Path, tmp_path: Path) -> None:
    done = whet_here(tmp_path, "check", str(folder), "--threshold", "0.2", "--junit", "no/x.xml")
    assert done.returncode == 2 and "there is no folder no" in done.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("threshold", ["80", "-1", "nan"])
def test_a_threshold_that_no_reward_reaches_is_refused(folder: Path, tmp_path: Path, threshold: str) -> None:
    done = whet_here(tmp_path, "check", str(folder), "--threshold", threshold)
    assert done.returncode == 2 and "lies between 0 and 1" in done.stderr


def test_a_threshold_may_be_the_best_value_of_a_sum_of_weights(folder: Path, tmp_path: Path) -> None:
    file = folder / "task.yaml"
    file.write_text(file.read_text().replace("reward: reward.py", "reward: [{f1: 0.7}, {contains: 0.1}]"))
    done = whet_here(tmp_path, "check", str(folder), "--threshold", "0.8")
    assert done.returncode in (0, 1), done.stderr  # 0.7 + 0.1 is a little less than 0.8


def test_all_tasks_are_read_before_one_is_asked_and_an_old_outcome_goes(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "whet.xml"
    file.write_text("an outcome of yesterday")
    done = whet_here(tmp_path, "check", str(folder), "nowhere", "--threshold", "0.2", "--junit", str(file))
    assert done.returncode == 2 and not done.stdout and not file.exists()
    assert not (tmp_path / "runs").exists()


def test_a_dead_endpoint_is_an_error_of_the_file(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "whet.xml"
    endpoint = ("--lm", "openai/gone", "--base-url", "http://127.0.0.1:9/v1", "--max-wait", "0.1")
    done = whet_here(
        tmp_path,
        "check",
        str(folder),
        "--threshold",
        "0.2",
        "--junit",
        str(file),
        *endpoint,
        OPENAI_API_KEY="x",
    )
    assert done.returncode == 3, done.stderr
    (case,) = ElementTree.parse(file).getroot()
    assert [child.tag for child in case] == ["error"] and case.get("name") == load_task(folder).name


def test_failed_rollouts_are_part_of_the_sentence() -> None:
    check = check_score("t", score(0.7, 0.6, 0.8), 0.5, failed=3)
    assert check.sentence.endswith("; 3 rollouts failed, which counts as the lowest reward")


def test_the_action_runs_the_command_as_it_is(folder: Path, tmp_path: Path) -> None:
    """The step of the action, in a shell, with this environment's command."""
    steps = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))["runs"]["steps"]
    given_values = {
        "WHET_NAMES": str(folder),
        "WHET_THRESHOLD": "0.95",
        "WHET_OPTIONS": "--sure",
        "WHET_JUNIT": str(tmp_path / "whet.xml"),
    }
    assert steps[1]["env"].keys() == given_values.keys()
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    environment = {"PATH": path, "HOME": str(tmp_path), "WHET_STATE": str(tmp_path / "state"), **given_values}
    done = subprocess.run(
        ["bash", "-c", steps[1]["run"]], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 1 and "failed  words: the lower end" in done.stdout, done.stderr


def test_a_tiny_threshold_is_not_reached_by_nothing() -> None:
    none: MeanJSON = {"mean": 0.0, "low": 0.0, "high": 0.3, "n": 9, "answered": 9, "of": 9}
    assert check_score("t", none, 1e-9).outcome == "failed"
    assert check_score("t", {**none, "mean": 1e-9}, 1e-9).outcome == "passed"
    assert check_score("t", none, 0.0).outcome == "passed"
