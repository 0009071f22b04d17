"""The value of KTO as the score of prompts: what judged answers say about a prompt that did not write them, without a new answer.

Ethayarajh, Xu, Muennighoff, Jurafsky, Kiela: KTO: Model Alignment as Prospect Theoretic Optimization. 2024. arXiv:2402.01306,
equations 7 and 8. There the weights change and the prompt stays; here it is the other way round.

    d_i  <- log P(y_i | p, x_i) - log P(y_i | p_0, x_i)                    p_0: the prompt that wrote the answers
    z    <- max(0, mean_i log P(y_{i+1} | p, x_i) - log P(y_{i+1} | p_0, x_i))        the answer of another row
    v_i  <- sigmoid(beta (d_i - z))  where people liked y_i,   sigmoid(beta (z - d_i))  where they did not
    value(p) <- the mean of the two means of v, of liked and of disliked answers

The value of p_0 is 1/2. A prompt that makes all answers likelier gains nothing, for z takes it off.

The score is off-policy: it knows what was logged, and nothing of answers that p would write and p_0 never did.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from whet.errors import UsageError
from whet.models.language_model import LanguageModel
from whet.prompt import Prompt

Array = NDArray[np.float64]


@dataclass(frozen=True)
class LoggedAnswer:
    """An answer, and whether people liked it."""

    values: Mapping[str, str]
    """The input: the values of the prompt's slots."""
    answer: str
    good: bool


@dataclass(frozen=True)
class PromptValue:
    """The evidence of judged answers about a prompt."""

    value: float
    """From 0 to 1; above 1/2: better than the prompt that wrote the answers."""
    error: float
    """The standard error of `value`."""


async def value_prompts(
    model: LanguageModel,
    first: Prompt,
    prompts: Sequence[Prompt],
    rows: Sequence[LoggedAnswer],
    beta: float = 0.1,
) -> list[PromptValue]:
    """The value of each prompt by answers that the model wrote under the prompt `first`: three scores an answer and prompt.

    Raises UsageError for fewer than two rows, for which no other row has an answer, and for a model that cannot score.
    """
    if len(rows) < 2:
        raise UsageError(f"there must be 2 judged answers or more; these are {len(rows)}.")
    answers = [row.answer for row in rows]
    pairs = list(zip(answers, [*answers[1:], answers[0]], strict=True))
    scores = await model.score([first, *prompts], [row.values for row in rows], pairs)
    ratios = scores.logprobs[1:] - scores.logprobs[:1]
    good = np.array([row.good for row in rows])
    return [kto_value(ratio[:, 0], ratio[:, 1], good, beta) for ratio in ratios]


def kto_value(ratios: Array, mismatched: Array, good: NDArray[np.bool_], beta: float = 0.1) -> PromptValue:
    """The value of a prompt from log-ratios (N,) of each answer and of another row's answer to the same input.

    >>> kto_value(np.array([9.0, -9.0]), np.array([0.0, 0.0]), np.array([True, False]), beta=1.0).value > 0.99
    True
    """
    z = max(0.0, float(np.mean(mismatched)))
    values = 1.0 / (1.0 + np.exp(-beta * np.where(good, ratios - z, z - ratios)))
    sides = [side for side in (values[good], values[~good]) if side.size]
    variances = [float(np.var(side)) / side.size for side in sides]
    return PromptValue(float(np.mean([side.mean() for side in sides])), sqrt(sum(variances)) / len(sides))
