"""`whet init --ask`: requirements that a person states become lines of the prompt and items of a checklist."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import whet
from tests.command_line import whet_here
from whet.cli import requirements, start
from whet.cli.main import cli
from whet.cli.start import ROWS_SHOWN
from whet.testing.simulated_task import Answers

STATED = ("It names the ticket.", "It is one sentence.")


@pytest.fixture(autouse=True)
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A person at a terminal, in an empty folder with a table."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(start, "_on_terminal", lambda: True)
    rows = [f"Ticket {n} is open.,Ticket {n} waits for an answer of {n} words" for n in range(20)]
    Path("answers.csv").write_text("\n".join(["text,reply", *rows]) + "\n")
    Path("inputs.csv").write_text("\n".join(["text", *(f"Ticket {n} is open." for n in range(20))]) + "\n")
    Path("labels.csv").write_text("text,team\n" + "".join(f"Ticket {n},{'ab'[n % 2]}\n" for n in range(20)))
    yield


def invoke(*arguments: str, typed: str) -> Result:
    options = ["--prompt", "Answer.", "--lm", "openai/m", "--ask"]
    return CliRunner().invoke(cli, ["init", "mytask", *options, *arguments], typed, catch_exceptions=False)


def document() -> dict[str, Any]:
    return dict(whet.Task.load("mytask").document)


def test_without_targets_the_checklist_is_the_reward() -> None:
    typed = f"\n{STATED[0]}\n\n{STATED[1]}\n{STATED[1]}\n\n\n\n\n"
    done = invoke("--from", "inputs.csv", "--input", "text", typed=typed)
    assert done.exit_code == 0, done.output
    assert document()["reward"] == {"checklist": {"items": list(STATED)}}
    text = whet.Task.load("mytask").prompt.text
    assert all(f"- {one}" in text for one in STATED)
    assert [question in done.output for question in requirements.FIXED] == [True] * 5


@pytest.mark.parametrize(
    "prompt", ["Reply to {{text}}", "Hi.\n<!-- whet:begin -->\nReply.\n<!-- whet:end -->\n{{text}}"]
)
def test_slots_and_the_rest_of_the_prompt_stay(prompt: str) -> None:
    done = invoke(
        *("--from", "answers.csv", "--target", "reply", "--prompt", prompt), typed="\nIt is kind.\n\n\n\n\n\n"
    )
    assert done.exit_code == 0, done.output
    new = whet.Task.load("mytask").prompt
    assert new.slots == {"text"} and "- It is kind." in new.region_text()
    assert new.source.startswith(prompt.partition("<!-- whet:begin -->")[0].removesuffix("{{text}}"))


def test_beside_a_reward_by_its_name_it_is_half_of_it() -> None:
    done = invoke(
        *("--from", "answers.csv", "--input", "text", "--target", "reply", "--reward", "f1"),
        typed=f"{STATED[0]}\n\n\n\n\n\n",
    )
    assert done.exit_code == 0, done.output
    first, second = document()["reward"]
    assert first == {"f1": 0.5} and second == {"name": "checklist", "items": [STATED[0]], "weight": 0.5}


def test_labels_stay_the_reward_and_the_requirements_are_in_the_prompt() -> None:
    done = invoke(
        *("--from", "labels.csv", "--input", "text", "--target", "team"), typed=f"{STATED[0]}\n\n\n\n\n\n"
    )
    assert done.exit_code == 0 and "because an answer is a label" in done.output
    assert "checklist" not in json.dumps(document()["reward"])
    assert f"- {STATED[0]}" in whet.Task.load("mytask").prompt.text


def test_nothing_stated_changes_nothing() -> None:
    done = invoke("--from", "labels.csv", "--input", "text", "--target", "team", typed="\n\n\n\n\n")
    assert done.exit_code == 0 and "equirements:" not in whet.Task.load("mytask").prompt.text


def asking(
    monkeypatch: pytest.MonkeyPatch, answer: Callable[[str, int], str], questions: int = 2
) -> tuple[Answers, Callable[..., Result]]:
    """A model that answers inputs so, and writes so many questions; and `whet init --ask` with it."""
    written = iter([*(f"What of {n}?" for n in range(questions)), "0"])
    model = Answers(
        lambda question, sample: (
            f"<QUESTION>{next(written)}</QUESTION>"
            if "<QUESTION>" in question
            else f"<ANSWER>{answer(question, sample)}</ANSWER>"
        )
    )
    monkeypatch.setattr("whet.api.requirements.resolve", lambda address: model)

    def ask(typed: str) -> Result:
        rows = ("--from", "labels.csv", "--input", "text", "--target", "team")
        return invoke(*rows, "--optimizer-lm", "openai/asker", typed=typed)

    return model, ask


def test_a_model_asks_about_the_input_to_which_its_answers_differ_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ticket 3 has two answers, until the person has stated what is required; then all answers are the same."""
    model, ask = asking(
        monkeypatch,
        lambda question, sample: (
            f"Team {'ab'[sample % 2]}" if "Ticket 3" in question and STATED[0] not in question else "Team a"
        ),
    )
    done = ask(f"{STATED[0]}\n\n\n")
    assert done.exit_code == 0, done.output
    assert not any(question in done.output for question in requirements.FIXED)
    assert "Input: Ticket 3\n[1] Team a\n[2] Team b\nWhat of 0?" in done.output
    first, second = [question for question in model.questions if "<QUESTION>" in question][:2]
    assert "Ticket 3" in first and "Team b" in first and "Ticket 2" not in first and STATED[0] not in first
    assert STATED[0] in second and "What of 0?" in second
    assert "Ticket 2" in second and "Team" not in second, (
        "where no answers differ, the inputs alone are shown"
    )
    answered = [question for question in model.questions if "<ANSWER>" in question]
    assert len(answered) == 3 * 2 * ROWS_SHOWN and all("Answer." in question for question in answered)


def test_six_questions_are_asked_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    model, ask = asking(monkeypatch, lambda question, sample: str(sample), questions=99)
    done = ask("\n" * 6)
    assert done.exit_code == 0 and sum("<QUESTION>" in question for question in model.questions) == 6


def test_a_text_that_cannot_be_an_instruction_is_asked_again() -> None:
    done = invoke(
        *("--from", "labels.csv", "--input", "text", "--target", "team"),
        typed=f"<!-- whet:end -->\n{STATED[0]}\n\n\n\n\n\n",
    )
    assert done.exit_code == 0 and "This text cannot be a requirement" in done.output
    assert f"- {STATED[0]}" in whet.Task.load("mytask").prompt.text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--ask",), "there is no terminal to ask on"),
        (("--ask", "--yes"), "--yes forbids questions"),
        (("--optimizer-lm", "openai/m", "--yes"), "Add --ask"),
    ],
)
def test_without_a_person_it_is_refused_and_nothing_is_written(
    tmp_path: Path, arguments: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    done = whet_here(tmp_path, "init", "mytask", "--from", str(tmp_path / "labels.csv"), *arguments)
    assert done.returncode == 2 and said in done.stderr and not (tmp_path / "mytask").exists()
