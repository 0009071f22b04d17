"""Words for labels: the classifier against a library's optimiser, what it says of words by hand, and sums of words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from scipy import optimize, special  # noqa: E402
from tests.rl.tinylm import word_task  # noqa: E402

from whet.environments.environment import Environment  # noqa: E402
from whet.prompt import Prompt  # noqa: E402
from whet.rl.label_words import LabelWords, fit_logistic, surest_words, with_label_words  # noqa: E402
from whet.types import Scores  # noqa: E402


def test_the_classifier_is_the_optimum_that_scipy_finds() -> None:
    rng = np.random.default_rng(0)
    states, classes, n = rng.normal(size=(40, 5)), rng.integers(0, 3, 40), 3

    def loss(flat: Any) -> Any:
        weights, biases = flat[:15].reshape(3, 5), flat[15:]
        logits = states @ weights.T + biases
        picked = logits[np.arange(40), classes] - special.logsumexp(logits, axis=1)
        return (weights**2).sum() / 2 - picked.sum()

    best = optimize.minimize(loss, np.zeros(18), method="BFGS", options={"gtol": 1e-7})
    weights, biases = fit_logistic(states, classes.tolist(), n)
    assert weights == pytest.approx(best.x[:15].reshape(3, 5), abs=1e-4)
    assert biases - biases.mean() == pytest.approx(best.x[15:] - best.x[15:].mean(), abs=1e-4)


def test_the_surest_words_by_hand() -> None:
    """Two classes, weights +1 and -1 on one number, no bias: the probability of the first is logistic(2 x)."""
    classifier = (np.array([[1.0], [-1.0]]), np.zeros(2))
    words = ["low", "high", "none", "higher", "lowest"]
    embeddings = np.array([[-1.0], [1.0], [0.0], [2.0], [-3.0]])
    assert surest_words(classifier, embeddings, words, 2) == [["higher", "high"], ["lowest", "low"]]


class Spread:
    """Probabilities of four words: .1, .3, .2, .1 of all words."""

    async def score(self, prompts: Any, inputs: Any, continuations: Any) -> Scores:
        assert list(continuations[0]) == ["sun", "day", "moon", "night"]
        logp = np.log(np.tile([0.1, 0.3, 0.2, 0.1], (len(prompts), len(inputs), 1)))
        return Scores(logp, np.ones((len(inputs), 4), dtype=np.int64))


async def test_a_label_has_the_summed_probability_of_its_words() -> None:
    plain: Environment = word_task(Spread())
    found = LabelWords({"good": ["sun", "day"], "poor": ["moon", "night"]})
    env = with_label_words(plain, LabelWords.restore(found.save()))
    probs = await env.label_probs([Prompt.parse("so")], env.train[:2])
    assert probs[0] == pytest.approx(np.array([[4 / 7, 3 / 7]] * 2))
    assert (env.train, env.labels, env.scores) == (plain.train, plain.labels, True)
