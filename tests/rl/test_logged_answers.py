"""KTO's value of prompts: against the loss of KTO, by hand, and on a model whose scores are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp
from typing import Any

import numpy as np
import pytest

from whet.errors import UsageError
from whet.prompt import Prompt
from whet.rl.logged_answers import LoggedAnswer, kto_value, value_prompts
from whet.types import Scores

torch = pytest.importorskip("torch")


def test_it_is_one_less_the_mean_loss_of_kto_where_both_kinds_are_as_many() -> None:
    from whet.rl import losses

    ratios, mismatched = np.array([1.5, -0.5, 2.0, -3.0]), np.array([0.5, -0.2, 0.9, 0.1])
    good = np.array([True, False, True, False])
    zero = torch.zeros(4)
    z = losses.kto_baseline(torch.tensor(mismatched), zero)
    loss = losses.kto(torch.tensor(ratios), zero, torch.tensor(good), z, beta=0.7)
    assert kto_value(ratios, mismatched, good, 0.7).value == pytest.approx(1 - float(loss.mean()))


def test_by_hand() -> None:
    value = kto_value(
        np.array([2.0, -1.0, -1.0]), np.array([0.5, 0.5, 0.5]), np.array([True, False, False]), 1.0
    )
    assert value.value == pytest.approx(0.5 / (1 + exp(-1.5)) + 0.5 / (1 + exp(-1.5)))
    assert value.error == 0.0


def test_a_prompt_that_makes_all_answers_likelier_gains_nothing() -> None:
    """Imitation of liked answers prefers it."""
    good, same = np.array([True, False] * 8), np.full(16, 4.0)
    assert kto_value(same, same, good).value == pytest.approx(0.5)
    assert kto_value(np.zeros(16), np.zeros(16), good).value == pytest.approx(0.5)


class Scorer:
    """Every text costs a nat a letter; a prompt that names a word gives texts with it three nats."""

    async def score(
        self,
        prompts: Sequence[Prompt],
        inputs: Sequence[Mapping[str, str]],
        continuations: Sequence[Sequence[str]],
    ) -> Scores:
        logprobs = [
            [[3.0 * (p.region_text() in text) - len(text) for text in texts] for texts in continuations]
            for p in prompts
        ]
        return Scores(np.array(logprobs), np.ones((len(inputs), 2), dtype=np.int64))


async def test_prompts_are_valued_by_the_log() -> None:
    rows = [
        LoggedAnswer({"input": str(i)}, f"{'please' if i % 4 < 2 else 'sir'} {i}", i % 4 < 2)
        for i in range(40)
    ]
    model: Any = Scorer()
    first, *prompts = map(Prompt.parse, ("none", "please", "sir", "other"))
    liked, disliked, other = await value_prompts(model, first, prompts, rows)
    assert liked.value > 0.5 > disliked.value and other.value == pytest.approx(0.5)
    with pytest.raises(UsageError, match="2 judged answers"):
        await value_prompts(model, first, prompts, rows[:1])
