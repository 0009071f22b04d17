"""`whet study components`: the effect of each part with its interval, paid once, within limits, never on a sealed row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import whet
from tests.cli.test_compare import Whet, asked, paid, url
from tests.cli.test_compare import ledger as ledger
from tests.cli.test_compare import server as server
from tests.cli.test_compare import whet as command
from tests.cli.test_transfer import openings, state
from tests.crash.world import write_task
from whet.api.study import LAYOUTS, READY, Part, read_components
from whet.errors import UsageError

command, state = command, state
PARTS = """parts:
  - {name: form, text: Give only the number., kind: output_format}
  - {name: role, text: You are a mathematician.}
  - {name: mood, text: Be of good cheer., instead: Be serious.}
"""


def write_study(folder: Path) -> None:
    """A task with ten validation rows whose model obeys the word `only`, and a file of three parts."""
    write_task(folder / "task")
    rows = [{"id": f"v{n}", "input": f"number {n}", "target": str(n)} for n in range(20, 30)]
    (folder / "task" / "validation.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "parts.yaml").write_text(PARTS)


def test_a_part_that_counts_is_told_from_those_that_do_not_and_paid_once(
    tmp_path: Path, command: Whet, server: str, ledger: Path, state: Path
) -> None:
    write_study(tmp_path)
    words = ("study", "components", "task", "--components", "parts.yaml", "--base-url", url(server, "parts"))
    code, out, err = command(*words, "--json")
    assert code == 0, err
    assert "plan: 8 prompts on 10 validation rows, answered by openai/test: 80 task calls" in err
    assert "plan: design 2^3, full: A form, B role, C mood" in err
    found = json.loads(out)
    effects = {row["name"]: row for row in found["effects"]}
    assert effects["form"]["difference"] == 1.0 and effects["form"]["low"] > 0.2
    for name in ("role", "mood"):
        assert effects[name]["difference"] == 0.0 and effects[name]["low"] < 0 < effects[name]["high"]
    assert {row["name"] for row in found["interactions"]} == {"form × role", "form × mood", "role × mood"}
    assert paid(found) == asked(ledger, "parts")["test"] == 80 and openings(state) == 0
    answered = [json.loads(line) for line in ledger.read_text().splitlines()]
    assert not [row for row in answered if row["role"] == "parts" and "number 6" in json.dumps(row)]
    texts = [one["text"] for one in found["prompts"]]
    assert len(set(texts)) == 8 and all(("Be serious." in text) != ("good cheer" in text) for text in texts)
    assert all(text.startswith("You answer questions.\n") for text in texts), "the rest stays as it was"
    assert json.loads(command(*words, "--json")[1])["recorded"] and asked(ledger, "parts")["test"] == 80
    shown = command(*words)[1]
    assert "+1.000" in shown and "1 of 3 parts changes the mean reward: form" in shown
    assert "No sealed test row was answered" in shown
    page = (Path(found["run"]) / "report.html").read_text()
    assert "Parts that matter" in page and "Be of good cheer." in page
    assert command("report", found["run"])[1].strip() == f"{found['run']}/report.html"
    assert "study-components" in command("runs")[1]


def test_a_limit_is_said_before_it_is_paid_and_chooses_the_design(
    tmp_path: Path, command: Whet, server: str, ledger: Path
) -> None:
    write_study(tmp_path)
    words = ("study", "components", "task", "--components", "parts.yaml", "--base-url", url(server, "few"))
    code, _, err = command(*words, "--max-calls", "39")
    assert code == 2 and "--max-calls 39 does not pay for 4 prompts on 10 validation rows" in err
    assert "that takes 40 calls" in err and "--rows" in err
    code, _, err = command(*words, "--resolution", "full", "--max-calls", "50")
    assert code == 2 and "or --resolution 3, which takes 4 prompts" in err
    planned = json.loads(command(*words, "--max-calls", "50", "--dry-run", "--json")[1])
    assert planned["status"] == "planned" and planned["plan"]["calls"]["task"]["most"] == 40
    assert planned["design"] == {
        "name": "2^(3-1), resolution III",
        "prompts": 4,
        "resolution": 3,
        "generators": ["C = AB"],
        "aliases": ["A = BC", "B = AC", "C = AB"],
    }
    assert asked(ledger, "few")["test"] == 0 and not (tmp_path / "runs").exists()
    found = json.loads(command(*words, "--max-calls", "50", "--json")[1])
    assert found["effects"][0]["name"] == "form" and found["effects"][0]["aliases"] == ["role × mood"]
    assert "mean reward: form or role × mood +1.000" in command(*words, "--max-calls", "50")[1]
    assert paid(found) == 40


def test_what_a_limit_ended_goes_on_where_it_stopped(
    tmp_path: Path, command: Whet, server: str, ledger: Path
) -> None:
    write_study(tmp_path)
    bound = ("--lm-option", "max_tokens=20", "--base-url", url(server, "stopped"))
    words = ("study", "components", "task", "--components", "parts.yaml", *bound)
    code, _, err = command(*words, "--max-tokens", "600")
    assert code == 2 and "--max-tokens 600 ended" in err and "the same command with a larger limit" in err
    before = asked(ledger, "stopped")["test"]
    assert 0 < before < 80
    code, out, err = command(*words, "--max-tokens", "1000000", "--json")
    assert code == 0, err
    assert paid(json.loads(out)) == asked(ledger, "stopped")["test"] == 80


def test_what_cannot_be_studied_is_refused_with_file_and_line(
    tmp_path: Path, command: Whet, server: str
) -> None:
    write_study(tmp_path)
    words = ("study", "components", "task", "--base-url", url(server, "refused"))
    code, _, err = command(*words, "--split", "test")
    assert code == 2 and "the sealed test rows are only for a final prompt" in err
    assert "Did you mean" in command(*words, "--components", "folklor")[2]
    for text, message in {
        "parts: [{name: a}]": 'parts.yaml:1: The part "a" needs either `text` or `examples`',
        "parts:\n  - {name: a, text: x}\n  - {name: a, text: y}": 'parts.yaml:3: The name "a" of a part',
        "parts: [{name: a, text: x, kind: rol}]": 'role, steps; this is "rol"',
        "parts: [{name: a, text: x, instead: x}]": "has no effect",
        "layout: risn\nparts: [{name: a, text: x}]": "Did you mean",
        "parts: []": "takes 1 to 24 parts",
        "parts: [{name: a, text: 'See {{other}}.'}]": "The prompt refuses the parts a",
        "parts: [{name: a, txt: x}]": "txt",
        "parts: [{name: a, examples: 9}]": "shows 9 training rows, but only 3 may be shown",
    }.items():
        (tmp_path / "parts.yaml").write_text(text)
        code, _, err = command(*words, "--components", "parts.yaml")
        assert code == 2 and message in err, err
    assert not (tmp_path / "runs").exists(), "nothing was written"


def obeys(messages: Any) -> str:
    """Right where the prompt holds exactly one of two words."""
    text = " ".join(message.content for message in messages)
    return "yes" if ("alpha" in text) != ("beta" in text) else "no"


def make_task() -> Any:
    rows = [{"input": f"row {i}", "target": "yes"} for i in range(60)]
    return whet.Task.of("Answer.\n{{input}}", data=rows, reward="exact_match")


def test_an_interaction_without_main_effects_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    parts = [Part("alpha", "alpha"), Part("beta", "beta"), {"name": "idle", "text": "gamma"}]
    found = whet.study_components(make_task(), parts, lm=obeys, split="train")
    assert all(one.difference == 0.0 and not one.shown for one in found.effects)
    first = found.interactions[0]
    assert first.name == "alpha × beta" and first.difference == -1.0 and first.high < -0.5
    assert found.report.is_file() and "alpha: +0.000" in repr(found)


def test_layouts_place_parts_and_two_of_them_are_a_factor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def likes_headings(messages: Any) -> str:
        return "yes" if "## Role\nalpha" in messages[0].content else "no"

    (tmp_path / "p.yaml").write_text("layout: [plain, risen]\nparts: [{name: role, text: alpha}]\n")
    found = whet.study_components(make_task(), "p.yaml", lm=likes_headings)
    assert {one.name: one.difference for one in found.effects} == {"role": 0.5, "layout": 0.5}
    assert found["prompts"][0]["text"] == "Answer.\n{{input}}", "without parts the prompt is the start"
    assert found["prompts"][3]["text"].startswith("## Role\nalpha\n\n## Instructions\nAnswer.")
    read = read_components([Part(kind, kind.upper(), kind) for kind in ("role", "steps", "constraints")])
    for name in LAYOUTS:
        text = type(read)(read.parts, (name,)).assemble("TASK", [True] * 3)
        assert text.index("ROLE") < text.index("TASK") and {"STEPS", "CONSTRAINTS"} <= set(text.split())


@pytest.mark.parametrize("name", READY)
def test_the_shipped_files_are_read_and_fit_any_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    planned = whet.study_components(make_task(), name, lm=obeys, dry_run=True, resolution=3)
    assert planned["status"] == "planned" and len(planned["parts"]) >= 6
    shown = next(
        (part["text"] for part in planned["parts"] if part["name"] == "examples"), "Input: Answer: yes"
    )
    assert "Answer: yes" in shown and not (tmp_path / "runs").exists()


def test_rows_that_a_part_shows_are_not_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    task = make_task()
    parts = [{"name": "examples", "examples": 2}]
    found = whet.study_components(task, parts, lm=obeys, split="train", dry_run=True)
    assert found["rows"] == len(task.train) - 2
    with pytest.raises(UsageError, match="2 rows or more"):
        whet.study_components(task, parts, lm=obeys, rows=1)
