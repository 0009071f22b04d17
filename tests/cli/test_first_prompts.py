"""A prompt of one's own: slots in a single brace, a mask without labels, places in the user's own file, labels that are none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import whet
from whet.cli.main import main

Command = Callable[..., tuple[int, str]]
MEANT = "{text} goes to the model as it stands: it is no slot of whet. Did you mean {{text}}?"


def table(path: Path, targets: int, rows: int = 40) -> None:
    lines = [f"Say the word {n} now,team {'abcdefghijklmnopqrstuvwxyz'[n % targets]}" for n in range(rows)]
    path.write_text("\n".join(["text,team", *lines]) + "\n")


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    monkeypatch.chdir(tmp_path)
    table(tmp_path / "few.csv", 2)
    table(tmp_path / "many.csv", 16)
    prompts = {
        "single": "Sort: {text}",
        "other": "Sort.\n\n{{nope}}",
        "mask": "{{text}} is {{mask}}",
        "slot": "{{text}}",
    }
    for name, text in prompts.items():
        (tmp_path / f"{name}.md").write_text(f"{text}\n")
    (tmp_path / "broken.md").write_text("Sort.\n<!-- whet:begin -->\n{{text}}\n")

    def run(line: str) -> tuple[int, str]:
        monkeypatch.setattr("sys.argv", ["whet", *line.split()])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out + said.err

    return run


def test_a_single_brace_is_told_by_every_command_before_anything_is_paid(command: Command) -> None:
    assert command("init made --from few.csv --prompt slot.md")[0] == 0
    evaluated = command("evaluate made --prompt single.md --lm scripted/labels --dry-run")
    Path("made/prompt.md").write_text("Sort: { text }\n")
    planned = command("optimize made --method random_search --lm scripted/labels --dry-run")
    assert f"single.md:1: {MEANT}" in evaluated[1]
    assert f"made/prompt.md:1: {MEANT.replace('{text} goes', '{ text } goes')}" in planned[1]
    assert "Did you mean {{input}}?" in command("init other --from few.csv --prompt single.md")[1]


def test_of_three_braces_the_slot_is_filled_and_one_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def model(messages: Any) -> str:
        asked.append(messages[-1]["content"])
        return "x"

    rows = [{"input": {"text": f"q{n}"}, "target": "x"} for n in range(3)]
    words: dict[str, Any] = {"data": {"test": rows}, "split": "test", "reward": "exact_match", "lm": model}
    whet.evaluate("Sort {{{text}}}", root=tmp_path, **words)
    assert sorted(asked) == ["Sort {q0}", "Sort {q1}", "Sort {q2}"]
    assert (
        "of {{{text}}}, the slot {{text}} is filled, and the rest goes to the model"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize("brace", ["{text}", "{Text}", "{TEXT}"])
def test_a_single_brace_is_told_in_python_too(brace: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"input": {"text": f"q{n}", "other": "x"}, "target": str(n)} for n in range(12)]
    whet.evaluate(f"Sort: {brace}", data=rows, reward="exact_match", lm="scripted/labels", dry_run=True)
    assert f"prompt: {MEANT.replace('{text} goes', f'{brace} goes')}" in capsys.readouterr().err


def test_a_refusal_of_init_names_the_file_of_the_user(command: Command) -> None:
    code, said = command("init made --from few.csv --prompt other.md")
    assert code == 2 and "other.md:3: no row fills the slot {{nope}}. The inputs have text." in said
    assert 'fill it with itself: "nope": "{{nope}}".' in said
    assert "prompt.md" not in said and not Path("made").exists()
    assert (
        "broken.md:2: the fence is never closed" in command("init made --from few.csv --prompt broken.md")[1]
    )


def test_a_mask_without_labels_says_why_there_are_none_and_how_each_face_names_them(command: Command) -> None:
    code, said = command("init made --from many.csv --prompt mask.md")
    assert code == 2 and "16 different targets in 40 rows are too many" in said and "--labels A,B" in said
    assert command("init made --from many.csv --prompt slot.md")[0] == 0
    Path("made/prompt.md").write_text("{{text}} is {{mask}}\n")
    said = command("evaluate made --lm scripted/labels")[1]
    assert "no row fills the slot {{mask}}. Add `labels:` to task.yaml." in said and "labels=" not in said
    Path("made/prompt.md").write_text("{{text}}\n")
    said = command("evaluate made --prompt mask.md --lm scripted/labels")[1]
    assert (
        "mask.md: {{mask}} is the place of a label, but made has no labels. Add `labels:` to task.yaml."
        in said
    )
    words: dict[str, Any] = {"reward": "exact_match", "lm": "scripted/labels"}
    data = [{"input": {"text": f"q{n}"}, "target": str(n)} for n in range(12)]
    for call in ({"task": Path("mask.md")}, {"task": Path("slot.md"), "prompt": Path("mask.md")}):
        with pytest.raises(whet.UsageError, match=r"labels=\[\.\.\.\]"):
            whet.evaluate(**call, data=data, **words)


LEFT_OUT = {
    "too many for the rows": (
        "many.csv",
        "16 different targets in 40 rows are too many: targets become labels",
    ),
    "more than are taken": (
        "most.csv",
        "24 different targets in 120 rows are more than the 20 that become labels",
    ),
    "in two spellings": ("case.csv", "some of 5 different targets in 60 rows differ in case only"),
}


@pytest.mark.parametrize("name", LEFT_OUT)
def test_init_and_the_plan_say_why_labels_are_left_out(name: str, command: Command) -> None:
    file, why = LEFT_OUT[name]
    table(Path("most.csv"), 24, 120)
    table(Path("case.csv"), 4, 60)
    made = Path("case.csv").read_text().splitlines()
    Path("case.csv").write_text("\n".join([*made[:-1], made[-1].replace("team", "Team")]))
    said = command(f"init made --from {file}{' --labels none' if 'case' in file else ''}")[1]
    planned = command("optimize made --method random_search --lm scripted/labels --dry-run")[1]
    assert "case" in file or f"labels: none ({why}" in said
    assert f"plan: no labels: {why}" in planned and "`labels:` in task.yaml" in planned
