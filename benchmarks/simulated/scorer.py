"""A scoring model with a known optimum over tokens, for policies that write prompts token by token.

The law. The vocabulary is the option `vocabulary` (words separated by commas); by the luck of `seed`
its V words are ordered, and word number i (from 0) weighs `(1 - 2 i / (V - 1)) ** 3`: few words are
good, few are bad, most matter little. The quality q of a prompt is the sum of the weights of the
different vocabulary words in its text outside the slots, in any case and any order; every other word
weighs 0. An input x has an ease e(x), drawn once from a normal distribution with mean `ease` and
deviation `spread`. The log-odds of its true label are `q + e(x)`; the other labels share the rest
evenly. The true label is the one whose cue word occurs first in the input (see `labels`).
With K words the optimum is the K words of the largest weight (as many as are positive).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING, ClassVar

from whet.models.scripted import CUES, Scripted, chance, lower_words, read_cues, shuffle, split_input
from whet.prompt import Prompt
from whet.types import Scores

if TYPE_CHECKING:
    from numpy.typing import NDArray

VOCABULARY = (
    "absolutely,answer,calm,careful,choose,clear,cold,compare,consider,decide,detail,emotion,exact,feeling,final,focus,"
    "green,guess,honest,judge,label,letter,list,maybe,mood,never,opinion,overall,person,plain,quick,rate,review,river,"
    "sentiment,stone,summary,think,verdict,weigh"
)


class Scorer(Scripted):
    """Scores labels; see the module for the law. It cannot generate."""

    provider: ClassVar[str] = "simulated"
    OPTIONS: ClassVar[Mapping[str, str]] = {
        "vocabulary": VOCABULARY,
        "cues": CUES,
        "ease": "-0.5",
        "spread": "1.5",
    }

    can_generate = False
    can_score = True

    def __init__(self, name: str, options: Mapping[str, str]) -> None:
        super().__init__(name, options)
        self.cues = read_cues(self.options["cues"])
        ordered = shuffle(self.option_list("vocabulary"), self.seed, "vocabulary")
        last = max(1, len(ordered) - 1)
        self.weights = {word.lower(): (1 - 2 * i / last) ** 3 for i, word in enumerate(ordered)}
        self.ease = self.option_float("ease", -100.0, 100.0)
        self.spread = self.option_float("spread", 0.0, 100.0)

    def quality(self, prompt: str) -> float:
        """Sum of the weights of the different vocabulary words in a text."""
        return sum(self.weights.get(word, 0.0) for word in sorted(set(lower_words(prompt))))

    def optimum(self, words: int) -> tuple[tuple[str, ...], float]:
        """The best choice of at most `words` vocabulary words, and its quality."""
        ranked = sorted(self.weights, key=lambda word: -self.weights[word])
        best = tuple(word for word in ranked[:words] if self.weights[word] > 0)
        return best, sum(self.weights[word] for word in best)

    def accuracy(self, quality: float) -> float:
        """Expected accuracy on two labels at a quality: the probability that `q + e(x)` is positive."""
        return 1 - NormalDist(quality + self.ease, self.spread or 1e-9).cdf(0)

    def _odds(self, values: Mapping[str, str]) -> tuple[str, float]:
        line, _, truth = split_input("\n".join(values.values()), self.cues)
        drawn = min(max(chance(self.seed, "ease", line.strip()), 1e-12), 1 - 1e-12)
        return truth, self.ease + self.spread * NormalDist().inv_cdf(drawn)

    async def score(
        self,
        prompts: Sequence[Prompt],
        inputs: Sequence[Mapping[str, str]],
        continuations: Sequence[Sequence[str]],
    ) -> Scores:
        """Log-probabilities of the labels, by the law, for all prompts and inputs at once."""
        import numpy as np

        width = max((len(row) for row in continuations), default=0)
        q = np.array([self.quality(prompt.render_text({})) for prompt in prompts], dtype=np.float64)
        odds = [self._odds(values) for values in inputs]
        margin: NDArray[np.float64] = (
            q[:, None] + np.array([ease for _, ease in odds], dtype=np.float64)[None, :]
        )
        right = np.zeros((len(inputs), width), dtype=np.bool_)
        for e, (truth, _) in enumerate(odds):
            right[e, : len(continuations[e])] = [c.strip().lower() == truth.lower() for c in continuations[e]]
        true_label = -np.logaddexp(0.0, -margin)[:, :, None]
        other = (-np.logaddexp(0.0, margin) - math.log(max(1, width - 1)))[:, :, None]
        lengths = np.zeros((len(inputs), width), dtype=np.int64)
        for e, row in enumerate(continuations):
            lengths[e, : len(row)] = [self.count_tokens(c) for c in row]
        return Scores(np.where(right[None, :, :], true_label, other), lengths)
