"""Episodes of edits: what each edit earns, by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

from tests.rl.editable import START, TwoKinds, two_kinds

from whet.methods.tempera import play
from whet.prompt import Prompt
from whet.rl.edit_space import Action, EditState, Space
from whet.rl.prompt_editor import Observer, SampledEdit
from whet.testing.runs import MeteredRun


class Undecided(TwoKinds):
    """Under the task's own words for the labels all labels are equally likely."""

    @staticmethod
    def _logprobs(text: str, shown: str, words: Sequence[str]) -> list[float]:
        return [0.0, 0.0] if words[0] == "yes" else TwoKinds._logprobs("", shown, words)


class Scripted:
    """In place of an editor: takes the given actions one after the other, for every input."""

    def __init__(self, actions: Sequence[int]) -> None:
        self.settings = SimpleNamespace(edits=len(actions))
        self._actions = iter(actions)

    def sample(self, observer: Observer, states: Sequence[EditState], texts: Sequence[str], seed: int) -> Any:
        return [SampledEdit(next(self._actions), -1.0, 0.5)] * len(states)


async def test_an_edit_earns_what_it_changes_and_a_tie_is_worth_nothing() -> None:
    """Other words make the night's answer right (gap tanh 1, counted twice) and the day's wrong (counted 1.8 times).

    From a tie, whose score is 0, and back to it; the stop earns nothing. Scores that mask a tie by its value would begin
    at 3.
    """
    model: Any = Undecided()
    env = two_kinds(model)
    space = Space.of(Prompt.parse(START), env, [], 0, [("true", "false")], [])
    others, own, stop = (
        space.actions.index(a) for a in (Action("words", 1), Action("words", 0), Action("stop"))
    )
    run = MeteredRun({"task": model})
    editor: Any = Scripted([others, own, stop])
    day, night = await play(run, env, editor, Observer(space, model.embed), env.train[:2], 10.0)
    assert day.text.startswith("day") and night.text.startswith("night")
    assert day.rewards == pytest.approx([-18 * math.tanh(1), 18 * math.tanh(1), 0.0])
    assert night.rewards == pytest.approx([20 * math.tanh(1), -20 * math.tanh(1), 0.0])
    assert [day.actions, night.actions] == [[others, own, stop]] * 2
    assert (day.logprobs, day.values) == ([-1.0] * 3, [0.5] * 3), "as they were when the edits were drawn"
    assert run.spent["task"] == 2 * 3, "the start and two edits; a stop is not scored"
