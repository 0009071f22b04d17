"""Stop texts belong to the role that they are set for, and a closing tag that they take is there when the reply is read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.models.test_gateway_replies import chat, endpoint, ok

import whet
from whet.task.roles import model_of
from whet.task.spec import ModelSpec

ROWS = [{"id": str(i), "input": f"q{i}"} for i in range(9)]
REWARD = {"judge": {"rubric": "Is it kind?", "scale": [0, 5], "reference": "ignore"}}


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")


def judged(root: Path, reply: str, task: Mapping[str, Any], judge: Any) -> tuple[float, list[Any], list[Any]]:
    """The mean, and the stop texts of the requests of the task model and of the judge at an endpoint."""

    def handler(number: int, body: Mapping[str, Any]) -> tuple[int, bytes]:
        return ok(chat(reply if "rubric" in str(body["messages"]) else "Hello."))

    with endpoint(handler) as one:
        found = whet.evaluate(
            "Q {{input}}", data=ROWS, reward=REWARD, lm={"address": "openai/m", **task}, judge_lm=judge,
            base_url=one.url, run=root / "run", progress=False,
        )  # fmt: skip
    sides: dict[bool, list[Any]] = {False: [], True: []}
    for body in one.received:
        sides["rubric" in str(body["messages"])].append(body.get("stop"))
    return float(found["score"]["mean"]), sides[False], sides[True]


@pytest.mark.parametrize("judge", [None, {"address": "openai/m"}, {"address": "openai/j"}])
def test_stop_texts_of_the_task_model_do_not_reach_the_judge(judge: Any, tmp_path: Path) -> None:
    mean, asked, graded = judged(tmp_path, "Kind. Score: 4", {"stop": ["END"]}, judge)
    assert (mean, set(map(str, asked)), set(graded)) == (0.8, {"['END']"}, {None})


@pytest.mark.parametrize("function", [False, True])
@pytest.mark.parametrize(
    ("reply", "stop"),
    [("Kind. Score: 4 ### Score: 1", "###"), ("It has 2 faults. <score>4</score> 1", "</score>")],
)
def test_a_judge_has_stop_texts_of_its_own(reply: str, stop: str, function: bool, tmp_path: Path) -> None:
    model = (lambda messages: reply) if function else "openai/j"
    mean, asked, graded = judged(tmp_path, reply, {}, {"address": model, "stop": [stop]})
    assert mean == 0.8 and set(asked) == {None}
    assert function or set(map(str, graded)) == {f"['{stop}']"}


def test_an_option_that_does_not_reach_a_judge_in_this_process_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model_of(ModelSpec(address="scripted/phrases", temperature=0.5, stop=("x",)), "judge")
    assert [record.getMessage() for record in caplog.records] == [
        f"scripted/phrases, the judge model, runs in this process and ignores the option {name}."
        for name in ("temperature", "stop")
    ]
