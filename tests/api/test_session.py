"""Ask and tell: the caller answers, by hand or elsewhere; a killed session goes on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import whet
from tests.api.world import PROMPT, Counted, right, rows, writer
from whet.api.session import ANSWERS, Ask

ROOT = Path(__file__).parents[2]
MODEL = Counted()


def answer(ask: Ask) -> str:
    return MODEL(list(ask.messages)) if ask.role == "task" else writer(list(ask.messages))


def words(folder: Path, **more: Any) -> dict[str, Any]:
    method = whet.methods.opro.Config(steps=1, samples=1, examples=4, finalists=1)
    return {
        "data": rows(6),
        "method": method,
        "run": folder / "run",
        "budget": whet.Budget(calls=300),
        **more,
    }


def tell(session: whet.Session, ask: Ask) -> None:
    output = answer(ask)
    if ask.example is None:
        session.tell(ask.id, output)
    else:
        reward = np.float32(right(dict(ask.example.row), output))
        session.tell(ask.id, output, reward=reward, critique="As it is.")  # type: ignore[arg-type]


def drive(session: whet.Session, most: int | None = None) -> list[Ask]:
    """Answer until the end, or `most` calls; those that were answered."""
    told: list[Ask] = []
    while asks := session.ask():
        for ask in asks:
            if most is not None and len(told) == most:
                return told
            tell(session, ask)
            told.append(ask)
    return told


def test_a_session_is_the_run_that_a_model_would_have_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with whet.Session(PROMPT, **words(tmp_path)) as session:
        assert session.result is None
        first = session.ask()
        assert first == session.ask() and all(ask.example is not None for ask in first)
        assert first[0].messages[-1].content.endswith(first[0].example.user_text)  # type: ignore[union-attr]
        told = drive(session)
        assert session.ask() == [] and len({ask.id for ask in told}) == len(told)
    result = session.result
    assert result is not None and {ask.role for ask in told} == {"task", "optimizer"}
    monkeypatch.setenv("WHET_STATE", str(tmp_path / "another ledger"))
    alone = whet.optimize(
        PROMPT, **words(tmp_path / "alone", reward=right, lm=MODEL, optimizer_lm=lambda m: writer(m))
    )
    for name in ("best", "baseline", "improvement"):
        assert result[name] == alone[name]
    assert sum(result.usage.calls.values()) == len(told)


@pytest.mark.parametrize("most", [0, 1, 7, 20])
def test_a_closed_session_goes_on_and_asks_nothing_twice(tmp_path: Path, most: int) -> None:
    with whet.Session(PROMPT, **words(tmp_path / "whole")) as whole:
        every = drive(whole)
    with whet.Session(PROMPT, **words(tmp_path)) as session:
        before = drive(session, most)
    with pytest.raises(whet.UsageError, match="closed"):
        session.ask()
    with whet.Session(PROMPT, **words(tmp_path)) as session:
        after = drive(session)
    assert sorted(ask.id for ask in before + after) == sorted(ask.id for ask in every)
    assert session.result is not None and whole.result is not None
    assert (
        session.result["best"] == whole.result["best"]
        and session.result.usage.calls == whole.result.usage.calls
    )


KILLED = """
import os, sys
from pathlib import Path
from tests.api.test_session import PROMPT, tell, whet, words
session = whet.Session(PROMPT, **words(Path(sys.argv[1])))
left = int(sys.argv[2])
while asks := session.ask():
    for ask in asks:
        if not left:
            os.kill(os.getpid(), 9)
        tell(session, ask)
        print(ask.id, flush=True)
        left -= 1
"""


def test_what_was_told_survives_a_kill(tmp_path: Path) -> None:
    before: list[str] = []
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, "-c", KILLED, str(tmp_path), "9"], cwd=ROOT, capture_output=True, text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        )  # fmt: skip
        assert done.returncode == -9, done.stderr
        before += done.stdout.split()
    with (tmp_path / "run" / ANSWERS).open("ab") as file:
        file.write(b'{"id": "torn')
    with whet.Session(PROMPT, **words(tmp_path)) as session:
        after = [ask.id for ask in drive(session)]
    with whet.Session(PROMPT, **words(tmp_path / "whole")) as whole:
        assert sorted(before + after) == sorted(ask.id for ask in drive(whole))
    assert session.result is not None and whole.result is not None
    assert session.result["best"] == whole.result["best"]


def test_a_finished_session_has_its_result_at_once(tmp_path: Path) -> None:
    with whet.Session(PROMPT, **words(tmp_path)) as session:
        drive(session)
    again = whet.Session(PROMPT, **words(tmp_path))
    assert again.ask() == [] and again.result is not None and session.result is not None
    assert again.result.to_dict() == session.result.to_dict()


def test_a_task_with_a_reward_and_labels_needs_outputs_only(tmp_path: Path) -> None:
    task = whet.Task.of(PROMPT, data=rows(6), reward="exact_match", labels=["positive", "negative"])
    with whet.Session(task, method="random_search", settings={"n": 2}, run=tmp_path / "run") as session:
        (first, *_) = session.ask()
        with pytest.raises(whet.UsageError, match="takes no reward"):
            session.tell(first.id, "positive", reward=1.0)
        while asks := session.ask():
            for ask in asks:
                assert ask.role == "task"
                session.tell(ask.id, f"It is {answer(ask)}.")
    assert session.result is not None and session.result.status == "completed"


def test_rewards_of_labelled_answers_are_those_that_were_told(tmp_path: Path) -> None:
    with whet.Session(
        PROMPT, data=rows(6), labels=["positive", "negative"], method="random_search", settings={"n": 1}, run=tmp_path / "r"
    ) as session:  # fmt: skip
        while asks := session.ask():
            for ask in asks:
                session.tell(ask.id, "Positive, I think.", reward=0.25)
    assert session.result is not None and session.result.baseline.test is not None
    assert session.result.baseline.test.mean == pytest.approx(0.25)


def test_what_cannot_be_told_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    with whet.Session(PROMPT, **words(tmp_path)) as session:
        ask = session.ask()[0]
        for reward in (None, 1.5, float("nan"), "1"):
            with pytest.raises(whet.UsageError, match="needs a reward between 0 and 1"):
                session.tell(ask.id, "positive", reward=reward)  # type: ignore[arg-type]
        with pytest.raises(whet.UsageError, match='No call with the id "nobody"'):
            session.tell("nobody", "positive", reward=1.0)
        assert ask in session.ask() and not (tmp_path / "run" / ANSWERS).exists()
        session.tell(ask.id, "positive", reward=1.0)
        session.tell(ask.id, "positive", reward=1.0)
        with pytest.raises(
            whet.UsageError, match=r"was answered before, with 'positive'\. That answer counts\."
        ):
            session.tell(ask.id, "negative", reward=0.0)
        assert (tmp_path / "run" / ANSWERS).read_text().count("\n") == 1, "the first answer stays"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"method": "opr"}, "Did you mean"),
        ({"budget": whet.Budget(calls=5)}, "Give at least"),
        ({"data": []}, "no rows"),
    ],
)
def test_bad_input_is_refused_when_the_session_is_made(
    tmp_path: Path, more: dict[str, Any], said: str
) -> None:
    with pytest.raises(whet.UsageError, match=said):
        whet.Session(PROMPT, **words(tmp_path, **more))
    assert not list(tmp_path.iterdir())
