"""Direct alignment and the alarm on the divergence: what people's judgements teach a policy, and when it goes too far.

    python benchmarks/direct_alignment.py [--seeds 10] [--steps 150]

Simulated. The world is that of `alarm` in benchmarks/preferences.py: people like an answer that is short (15 words are best)
and has up to three exclamation marks; they judged answers of 20 to 60 words with at most three marks. The policy is no language
model: its logits are linear in words and marks, over answers of 0 to 60 words and 0 to 9 marks. A policy of that kind goes on
where people do not: to no words and nine marks. There are two references: `bell` writes about 40 words (standard deviation 12)
and 1.5 marks (1); `flat` writes what was judged, and each other answer e^3 times less often, so that a small step along the
learned direction already finds them. A hidden scorer, the true taste, says how often an answer of the policy is preferred to one
of its reference.

Arms: `dpo` and `ipo` on 100 pairs, `kto` on 200 thumbs, and policy gradient (GRPO, 16 answers a step) on the reward model that
`whet learn preferences` fits to the thumbs. Each runs all its steps, or ends at the divergence that the held-out agreement of
the reward model supports (`HeldOut.supported_kl`). `online dpo` is DPO on the policy's own answers, as in that method:
people choose in 16 fresh pairs at each step, or in `online dpo, 100 pairs` in as many pairs as there are for `dpo`, 20 rounds of
5 pairs that are kept. The second table has their differences to `dpo` on the fixed pairs, paired by seed. `best step`: the win
rate at the step where it is highest, which nobody knows without the hidden scorer. About four minutes on one core.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

import numpy as np
import torch
from benchmarks.preferences import answer_of, taste, thumbs

from whet.errors import SearchStopped
from whet.feedback.preferences import read_preferences
from whet.rewards.preference import conservative_mean, fit_judgements, strengths_of
from whet.rl.credit import check_divergence, text_divergence
from whet.rl.judged_texts import DirectLoss, JudgedText, JudgedTexts, align
from whet.rl.network import Adam
from whet.rl.policy_model import Sample, Update
from whet.rl.training import Trainer, Training

ANSWERS = [(words, marks) for words in range(0, 61, 2) for marks in range(10)]
FEATURES = np.array([[words / 20, marks / 2] for words, marks in ANSWERS])
TASTES = np.array([taste(answer_of(words, marks, "question")) for words, marks in ANSWERS])
PAIRS, ROUNDS = 100, 20
KEPT = f"online dpo, {PAIRS} pairs"
REFERENCES = {
    "bell": np.array([-(((words - 40) / 12) ** 2) / 2 - (marks - 1.5) ** 2 / 2 for words, marks in ANSWERS]),
    "flat": np.array([0.0 if words >= 20 and marks <= 3 else -3.0 for words, marks in ANSWERS]),
}


@dataclass
class _Body:
    limit: int = 1_000

    @property
    def weights(self) -> _Body:
        return self


@dataclass
class LinearPolicy:
    """A softmax over `ANSWERS` whose logits are those of `reference` plus theta x features; an answer is one token."""

    reference: Any
    adam: Adam = field(
        default_factory=lambda: Adam({"theta": torch.zeros(FEATURES.shape[1], dtype=torch.float64)}, 0.0)
    )
    notes: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=lambda: {"sampling": 0.0, "update": 0.0})
    body: _Body = field(default_factory=_Body)

    def logs(self, *, reference: bool = False) -> Any:
        """Log-probabilities of the answers."""
        theta = 0.0 if reference else self.adam.weights["theta"].numpy()
        logits = self.reference + (FEATURES * theta).sum(axis=1)
        return logits - logits.max() - math.log(np.exp(logits - logits.max()).sum())

    def sample_of(self, number: int) -> Sample:
        """An answer as a sample."""
        words, marks = ANSWERS[number]
        text = answer_of(words, marks, "question")
        return Sample(text, (0,), (number,), (float(self.logs()[number]),), (True,), True)

    def draw(self, rng: Any, n: int) -> list[Sample]:
        """`n` answers of the policy."""
        return [self.sample_of(int(i)) for i in rng.choice(len(ANSWERS), n, p=np.exp(self.logs()))]

    def logprobs(self, samples: Sequence[Sample]) -> list[list[float]]:
        """Of each answer under the policy."""
        logs = self.logs()
        return [[float(logs[sample.tokens[0]])] for sample in samples]

    def reference_logprobs(self, samples: Sequence[Sample]) -> list[list[float]]:
        """Of each answer under the reference."""
        logs = self.logs(reference=True)
        return [[float(logs[sample.tokens[0]])] for sample in samples]

    def update(
        self, samples: Sequence[Sample], advantages: Sequence[Any], settings: Update
    ) -> dict[str, float]:
        """A step of Adam up the policy gradient at rate `lr`, as a policy with weights takes it."""
        mean = np.exp(self.logs()) @ FEATURES
        flat = [float(a[0]) if isinstance(a, Sequence) else float(a) for a in advantages]
        pairs = zip(samples, flat, strict=True)
        gradient = sum(a * (FEATURES[s.tokens[0]] - mean) for s, a in pairs) / len(samples)
        self.adam.rate = settings.lr
        self.adam.step([-torch.from_numpy(gradient)], 1.0)
        return {}

    def win_rate(self) -> float:
        """How often people prefer an answer of the policy to one of the reference, by the hidden scorer."""
        mine, theirs = np.exp(self.logs()), np.exp(self.logs(reference=True))
        return float(mine @ (1 / (1 + np.exp(TASTES[None, :] - TASTES[:, None]))) @ theirs)


def judge_texts(seed: int, policy: LinearPolicy) -> JudgedTexts:
    """200 thumbs of simulated people, and their choices in 100 pairs of the same answers."""
    rng, places = random.Random(f"pairs {seed}"), {answer: i for i, answer in enumerate(ANSWERS)}
    singles, pairs = [], []
    for number, row in enumerate(thumbs(seed)):
        words, marks = round(row["output"].count("word") / 2) * 2, row["output"].count("!")
        sample = policy.sample_of(places[min(60, words), marks])
        singles.append(JudgedText(number // 2, sample, row["thumb"]))
    for one, other in zip(singles[::2], singles[1::2], strict=True):
        first, second = (TASTES[text.sample.tokens[0]] for text in (one, other))
        better = rng.random() < 1 / (1 + math.exp(second - first))
        pairs.append((one, other) if better else (other, one))
    return JudgedTexts(pairs, singles)


def choices(rng: Any, policy: LinearPolicy, n: int) -> list[Any]:
    """DPO's units of `n` pairs of answers that the policy writes now, and which of two people choose; without pairs of equals."""
    pairs = []
    for one, other in zip(policy.draw(rng, n), policy.draw(rng, n), strict=True):
        first, second = (TASTES[text.tokens[0]] for text in (one, other))
        ordered = (one, other) if rng.random() < 1 / (1 + math.exp(second - first)) else (other, one)
        better, worse = (JudgedText(0, text, text is ordered[0]) for text in ordered)
        if one.tokens != other.tokens:
            pairs.append((better, worse))
    return JudgedTexts(pairs, []).units("dpo")


def reward_of_thumbs(seed: int) -> tuple[float, float, Callable[[Sequence[Sample]], list[float]]]:
    """The held-out agreement of the reward model of the thumbs, the divergence that it supports, and the model as a reward."""
    fitted = fit_judgements(read_preferences([*thumbs(seed)]).judged, "surface")

    def reward(samples: Sequence[Sample]) -> list[float]:
        texts = [sample.text for sample in samples]
        strengths = strengths_of(fitted.model, ["question"] * len(texts), texts)
        return [float(1 / (1 + math.exp(-one))) for one in conservative_mean(strengths, 1.0)]

    return fitted.held_out.accuracy, fitted.held_out.supported_kl, reward


def train(world: str, arm: str, seed: int, steps: int, limit: float, reward: Any) -> dict[str, float]:
    """One run; the hidden win rate at its end and at its best step, its divergence and its steps."""
    rng, policy = np.random.default_rng(seed), LinearPolicy(REFERENCES[world])
    anything: Any = policy
    fixed = arm in ("dpo", "ipo", "kto")
    units = judge_texts(seed, policy).units(_loss(arm)) if fixed else []
    trainer = Trainer(anything, Training(kl_limit=limit, lr=0.05))
    rates, done, divergence = [policy.win_rate()], 0, 0.0
    try:
        for step in range(steps):
            if arm == "online dpo":
                units = choices(rng, policy, 16)
            elif arm == KEPT and step * ROUNDS // steps > (step - 1) * ROUNDS // steps:
                units += choices(rng, policy, PAIRS // ROUNDS)
            if arm == "policy gradient":
                group = policy.draw(rng, 16)
                trainer.learn([group], [reward(group)])
            else:
                batch = [units[int(i)] for i in rng.choice(len(units), min(16, len(units)), replace=False)]
                align(anything, batch, _loss(arm), beta=0.1, lr=0.05)
                check_divergence(text_divergence(anything, policy.draw(rng, 32)), limit)
            rates.append(policy.win_rate())
            done += 1
    except SearchStopped:
        rates.append(policy.win_rate())
    logs, base = policy.logs(), policy.logs(reference=True)
    divergence = float(np.exp(logs) @ (logs - base))
    return {"rate": rates[-1], "best": max(rates), "kl": divergence, "steps": done}


def _loss(arm: str) -> DirectLoss:
    return "ipo" if arm == "ipo" else "kto" if arm == "kto" else "dpo"


def show(values: Sequence[float]) -> str:
    """Mean and 95% interval over seeds (Student's t with nine degrees of freedom for ten seeds)."""
    error = 2.26 * float(np.std(values, ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return f"{fmean(values):.3f} ± {error:.3f}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=150)
    args = parser.parse_args()
    known = [reward_of_thumbs(seed) for seed in range(args.seeds)]
    print(
        json.dumps(
            {"agreement": show([one[0] for one in known]), "supported": show([one[1] for one in known])}
        )
    )
    print("| arm | win rate by the hidden scorer | best step | divergence at the end | steps |")
    print("|---|---|---|---|---|")
    arms = ("dpo", "ipo", "kto", "policy gradient", "online dpo", KEPT)
    rates: dict[tuple[str, str, bool], list[float]] = {}
    for world, arm, limited in itertools.product(REFERENCES, arms, (False, True)):
        runs = [
            train(world, arm, seed, args.steps, known[seed][1] if limited else 0.0, known[seed][2])
            for seed in range(args.seeds)
        ]
        rates[world, arm, limited] = [run["rate"] for run in runs]
        rate, best, kl = (show([run[name] for run in runs]) for name in ("rate", "best", "kl"))
        print(
            f"| {world}, {arm}{', limited' if limited else ''} | {rate} | {best} | {kl} | "
            f"{fmean(run['steps'] for run in runs):.0f} |",
            flush=True,
        )
    print("\n| online DPO less DPO on fixed pairs | difference of win rates |\n|---|---|")
    for world, arm, limited in itertools.product(REFERENCES, ("online dpo", KEPT), (False, True)):
        pairs = zip(rates[world, arm, limited], rates[world, "dpo", limited], strict=True)
        print(f"| {world}, {arm}{', limited' if limited else ''} | {show([a - b for a, b in pairs])} |")


if __name__ == "__main__":
    main()
