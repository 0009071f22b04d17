"""How long a training takes, said before its first step: by a trial that leaves the policy as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="writers need torch: pip install 'whet[train]'")
pytest.importorskip("peft", reason="writers need peft: pip install 'whet[train]'")

import whet  # noqa: E402 - after the checks for extras
from whet.engine.progress import first_forecast  # noqa: E402
from whet.methods.dpo import Config as Dpo  # noqa: E402
from whet.methods.dsp import Config as Dsp  # noqa: E402
from whet.methods.prewrite import Config as PRewrite  # noqa: E402
from whet.rl.policy_model import LoraSettings, PolicyModel  # noqa: E402
from whet.rl.policy_model.step_time import foresee_step_seconds, texts_of_step  # noqa: E402
from whet.types import Message  # noqa: E402

ASK = [Message("user", "write in capitals the words a b c")]


def test_a_step_has_a_group_for_each_question() -> None:
    assert texts_of_step(PRewrite(group=6)) == 6, "one question: the instruction"
    assert texts_of_step(Dsp(group=6, questions=5)) == 30
    assert texts_of_step(Dpo()) is None, "it writes no groups"


def test_the_trial_changes_nothing_and_longer_texts_take_longer() -> None:
    policy = PolicyModel.open("embedded/tiny", LoraSettings(rank=4), seed=1)
    before = policy.save()
    short, long = (
        foresee_step_seconds(policy, PRewrite(group=4, max_tokens=n, kl=0.1), ASK) for n in (8, 800)
    )
    assert short is not None and long is not None and 0 < short < long
    assert foresee_step_seconds(policy, Dpo(), ASK) is None
    assert policy.save() == before and policy.seconds == {"sampling": 0.0, "update": 0.0}
    assert all(weight.grad is None for weight in policy.body.trainable.values())


def test_dollars_are_those_of_all_processes() -> None:
    said = first_forecast(60, 30.0, 2, 4.0, 128)
    assert "60 steps take about 30 min" in said and "$4 for the policy ($4 an hour)" in said
    assert "$" not in first_forecast(60, 30.0, 2, 0.0, 128)


def test_a_run_says_it_before_its_first_step_and_not_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = [{"input": f"row {i}", "target": f"answer number {i}"} for i in range(12)]
    task = whet.Task.of("Answer.", data=data, reward="exact_match")
    more: dict[str, Any] = {"lm": lambda messages: "?", "method": "prewrite", "policy": "embedded/tiny"}
    settings = {"steps": 2, "group": 2, "max_tokens": 4, "examples": 2}
    whet.optimize(task, **more, settings=settings, run=tmp_path / "run")
    said = capsys.readouterr().err
    first, later = said.index("by a trial of a few tokens, 2 steps"), said.index("by the first step")
    assert first < later and "4 tokens" in said[first:later]
