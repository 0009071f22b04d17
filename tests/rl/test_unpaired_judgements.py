"""What good and bad answers of a log teach under each loss that learns from single answers: PMPO, KTO, and their controls."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="losses need torch: pip install 'whet[train]'")

import torch
from tests.methods.figures import won_over

from whet.methods.dpo import Config
from whet.rl.judged_texts import DirectLoss, JudgedText, align
from whet.rl.network import Adam
from whet.rl.policy_model import Sample, Update

QUESTIONS, ANSWERS, TRAITS, LOGGED = 4, 40, 12, 60
LIMIT, STEPS = 0.5, 400
"""Divergence from the reference, in nats, at which policies are compared, and steps at most on the way there."""


@dataclass
class TraitPolicy:
    """A softmax over the answers to each question whose logits are linear in their traits; the reference is uniform."""

    traits: Any
    adam: Adam = field(default_factory=lambda: Adam({"theta": torch.zeros(TRAITS, dtype=torch.float64)}, 0.0))
    body: Any = None

    def logs(self) -> Any:
        """Log-probabilities of the answers, a row for each question."""
        logits = self.traits @ self.adam.weights["theta"].numpy()
        logits = logits - logits.max(axis=1, keepdims=True)
        return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))

    def logprobs(self, samples: Sequence[Sample]) -> list[list[float]]:
        logs = self.logs()
        return [[float(logs[s.prompt[0], s.tokens[0]])] for s in samples]

    def reference_logprobs(self, samples: Sequence[Sample]) -> list[list[float]]:
        return [[-math.log(ANSWERS)] for _ in samples]

    def update(
        self, samples: Sequence[Sample], advantages: Sequence[float], settings: Update
    ) -> dict[str, float]:
        chances = np.exp(self.logs())
        means = np.einsum("qa,qat->qt", chances, self.traits)
        pairs = zip(samples, advantages, strict=True)
        steps = [a * (self.traits[s.prompt[0], s.tokens[0]] - means[s.prompt[0]]) for s, a in pairs]
        self.adam.rate = settings.lr
        self.adam.step([-torch.from_numpy(sum(steps) / len(samples))], 1.0)
        return {}

    def divergence(self) -> float:
        """KL(policy || reference), a mean over questions."""
        logs = self.logs()
        return float((np.exp(logs) * (logs + math.log(ANSWERS))).sum(axis=1).mean())


class _Weights:
    limit = 100


class _Body:
    weights = _Weights()


def learned(loss: DirectLoss, share: float, seed: int, kept: str = "both", **settings: float) -> float:
    """The probability of a good answer when the policy has gone `LIMIT` nats away, or at the end. `share` of the answers are
    good; `LOGGED` answers of the reference were judged, of which those of one kind may be left out."""
    rng = np.random.default_rng([seed, 7])
    traits = rng.normal(size=(QUESTIONS, ANSWERS, TRAITS))
    worth = traits @ rng.normal(size=TRAITS) + rng.normal(size=(QUESTIONS, ANSWERS)) * 2
    good = worth > np.quantile(worth, 1 - share)
    policy: Any = TraitPolicy(traits, body=_Body())
    log = [(int(rng.integers(QUESTIONS)), int(rng.integers(ANSWERS))) for _ in range(LOGGED)]
    units = [
        (JudgedText(q, Sample("x", (q,), (a,), (0.0,), (True,), True), bool(good[q, a])),)
        for q, a in log
        if kept == "both" or bool(good[q, a]) is (kept == "good")
    ]
    for _ in range(STEPS if units else 0):
        align(policy, units, loss, lr=0.02, **settings)
        if policy.divergence() >= LIMIT:
            break
    return float((np.exp(policy.logs()) * good).sum(axis=1).mean())


ARMS: dict[str, tuple[Any, str]] = {
    "pmpo": (Config(loss="pmpo"), "both"),
    "pmpo, weight_good=1": (Config(loss="pmpo", weight_good=1.0), "both"),
    "pmpo, weight_good=0": (Config(loss="pmpo", weight_good=0.0), "both"),
    "kto": (Config(loss="kto"), "both"),
    "kto, good answers alone": (Config(loss="kto"), "good"),
    "kto, bad answers alone": (Config(loss="kto"), "bad"),
}


@cache
def reached(arm: str, share: float, seeds: int = 5) -> list[float]:
    """The probability of a good answer that an arm comes to, by seed."""
    config, kept = ARMS[arm]
    how = {"beta": config.strength, "weight_good": config.weight_good}
    return [learned(config.loss, share, seed, kept, **how) for seed in range(seeds)]


@pytest.mark.long
def test_where_most_answers_are_good_pmpo_without_the_bad_ones_loses() -> None:
    won = won_over("weight_good=1", reached("pmpo", 0.9), reached("pmpo, weight_good=1", 0.9))
    assert won.low > 0, won


@pytest.mark.long
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_figures(share: float) -> None:
    print(f"\n{share:.0%} of the answers are good")
    for arm in ARMS:
        print(f"{arm}: {np.mean(reached(arm, share, 30)):.3f}")
    for arm in ARMS:
        if arm != "pmpo":
            won_over(arm, reached("pmpo", share, 30), reached(arm, share, 30))
