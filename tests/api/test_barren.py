"""What is said after a search that found nothing: what may help, and nothing that cannot."""

from __future__ import annotations

import html
import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest

import whet
from tests.api.world import PROMPT, Counted, right, rows, writer
from whet.cli import show
from whet.reporting.next_steps import next_steps
from whet.reporting.record import Record


def search(root: Path, optimizer: Any, **changes: Any) -> Any:
    words: dict[str, Any] = {"data": rows(), "reward": right, "lm": Counted(), "optimizer_lm": optimizer}
    words |= {
        "method": whet.methods.opro.Config(steps=3, samples=2, examples=20),
        "budget": whet.Budget(calls=900),
    }
    return whet.optimize(PROMPT, root=root, progress=False, **{**words, **changes})


def test_texts_that_earned_nothing_are_said_with_what_to_try(tmp_path: Path) -> None:
    numbers = itertools.count()
    done = search(tmp_path, lambda messages: f"<PROMPT>Say something {next(numbers)}.</PROMPT>")
    assert done.best.id == done.baseline.id
    (said,) = [text for text in done.warnings if "earned more than the start prompt" in text]
    assert said.startswith("None of the ") and "optimizer_lm" in said and "description" in said
    page = (done.run / "report.html").read_text("utf-8")
    assert "The search ended by itself, with " in page and "of 900 calls unspent" in page
    assert "A larger limit alone does not help" in page and "--optimizer-lm" in page
    assert "<code>--max-calls</code>" not in page


def test_a_search_that_a_limit_ended_is_told_to_raise_that_limit(tmp_path: Path) -> None:
    done = search(tmp_path, lambda messages: "<PROMPT>Say something.</PROMPT>")
    ended = {"status": "budget_exhausted", "ended_by": "the limit of optimizer calls"}
    section = next_steps(Record("run", {}, {**done.to_dict(), **ended}))
    assert section is not None
    assert "<code>--max-optimizer-calls</code>" in section.body and "does not help" not in section.body


@pytest.mark.parametrize(
    ("models", "option"),
    [
        ({"task": "a", "optimizer": "b"}, "Name a stronger optimizer model (--optimizer-lm), say in"),
        ({"task": "a", "policy": "b"}, "Name a stronger policy to train (--policy), say in"),
        ({"task": "a"}, "A larger limit alone does not help. Say in"),
    ],
)
def test_a_stronger_model_is_asked_for_in_the_role_that_wrote(
    tmp_path: Path, models: dict[str, str], option: str
) -> None:
    done = search(tmp_path, lambda messages: "<PROMPT>Say something.</PROMPT>")
    section = next_steps(Record("run", {"models": models}, done.to_dict()))
    assert section is not None
    assert option in html.unescape(re.sub("<[^>]*>", "", str(section.body)))


def test_calls_that_were_kept_for_the_test_of_another_prompt_are_said_not_to_be_needed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = search(tmp_path, lambda messages: "<PROMPT>Say something.</PROMPT>").to_dict()
    assert done["best"]["id"] == done["baseline"]["id"]
    made = sum(done["usage"]["calls"].values())
    for left, said in ((9, True), (0, False), (500, False)):
        plan = {**done["plan"], "limits": {"calls": made + left}}
        ended = {"status": "budget_exhausted", "ended_by": "the limit of calls", "plan": plan, "run": "run"}
        capsys.readouterr()
        show.result({**done, **ended})
        line = "ended by the limit of calls; 9 calls that were reserved for the sealed test were not needed"
        assert (line in capsys.readouterr().out) == said


def test_a_search_that_found_something_gets_no_such_warning(tmp_path: Path) -> None:
    done = search(tmp_path, writer)
    assert done.best.id != done.baseline.id
    assert not [text for text in done.warnings if "earned more than the start prompt" in text]


class Told(Counted):
    """A model that answers only where it is told which answers there are."""

    def __call__(self, messages: list[whet.Message]) -> str:
        return super().__call__(messages) if "positive" in messages[0].content else "no idea"


def test_what_was_tried_first_where_the_start_earned_nothing_is_said_with_what_it_earned(
    tmp_path: Path,
) -> None:
    silent = search(tmp_path, lambda messages: "I am sorry?", lm=Told(), reward="exact_match")
    (line,) = [text for text in silent.warnings if "tried first, without the optimizer model" in text]
    assert line.startswith("The start prompt earned nothing") and "on 20 training rows" in line
    assert "targets as demonstrations 0." in line and "right answers listed 0." in line
    assert "went on from there" in line and silent.best.id != silent.baseline.id
    assert html.escape(line, quote=False) in (silent.run / "report.html").read_text("utf-8")


class AlwaysRight(Counted):
    """A model that needs no care."""

    def __call__(self, messages: list[whet.Message]) -> str:
        return super().__call__([*messages[:-1], whet.Message("user", f"Careful: {messages[-1].content}")])


_VERSIONS = itertools.count()
ENDS: dict[str, tuple[Any, dict[str, Any], str]] = {
    "nothing usable": (
        lambda messages: "<PROMPT></PROMPT>",
        {},
        "the optimizer model wrote nothing usable (",
    ),
    "tried what it may": (writer, {}, "nothing more was left to try within its settings and limits"),
    "all that the limit pays for": (
        lambda messages: f"<PROMPT>Sort the review, as in version {next(_VERSIONS)}.</PROMPT>",
        {
            "method": whet.methods.opro.Config(steps=60, samples=2, examples=20),
            "budget": whet.Budget(calls=300),
        },
        " that --max-calls 300 pays for (a larger limit allows more)",
    ),
    "a perfect start": (
        writer,
        {"lm": AlwaysRight()},
        "the start prompt is right on every row, and there is nothing to learn from",
    ),
}


@pytest.mark.parametrize("case", ENDS)
def test_a_search_that_no_limit_ended_says_why_it_ended(case: str, tmp_path: Path) -> None:
    optimizer, changes, why = ENDS[case]
    done = search(tmp_path, optimizer, **changes)
    assert done.status == "completed"
    ended = done["ended_by"]
    assert ended.startswith("the method itself: ") and why in ended
    assert f"ended by {ended}" in html.unescape((done.run / "report.html").read_text("utf-8"))
    assert json.loads((done.run / "result.json").read_text())["ended_by"] == ended
