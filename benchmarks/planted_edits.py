"""May this edit replace the prompt? Edits of known worth before PACE's rule, whet's gate and two simpler ones. SIMULATED rewards.

    python benchmarks/planted_edits.py [--runs 200] [--rows 40,160] [--seed 0]

The testbed of PACE (arXiv:2606.08106), after its description: a prompt is right on half of the rows, and edits come in an
order that is drawn: 9 that change nothing, one that adds .2 and one that takes .2 away; or 20 that change nothing; or 9, one
of .2 and 20 that take .03. Each decision has `rows` fresh rows for both prompts; an accepted edit replaces the prompt. `flip`
is the share of rows on which an edit without effect is answered anew: 1 at temperature 1, .2 for nearly deterministic
answers. Policies:

- greedy: more rows won than lost;
- sign test: exact, one-sided, at .05;
- PACE: a won row multiplies by 1.5, a lost one by .5; accepted as soon as the product is 20;
- gate: `whet.stats.decide` on all rows of a decision, alpha .05;
- gate, looks: `whet.stats.decide_anytime` after each ten rows, accepted as soon as it promotes;
- gate, counted: `decide` with the share of alpha that whet gives to the k-th opening of a set of sealed rows.

All policies meet the same rewards of an edit on a prompt of the same accuracy (common random numbers).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from statistics import fmean

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from whet.stats import Improvement, decide, decide_anytime, interval, opening_alpha

Array = NDArray[np.float64]
Policy = Callable[[Array, Array, int], tuple[bool, int]]
"""Rewards of the prompt and of the edit on the same rows, and the number of the decision: accepted, and rows used."""
ALPHA, STEP = 0.05, 10


def greedy(old: Array, new: Array, number: int) -> tuple[bool, int]:
    """Accept more wins than losses."""
    return bool(new.sum() > old.sum()), len(old)


def sign_test(old: Array, new: Array, number: int) -> tuple[bool, int]:
    """The exact sign test."""
    wins, losses = int((new > old).sum()), int((new < old).sum())
    return bool(stats.binom.sf(wins - 1, wins + losses, 0.5) <= ALPHA), len(old)


def pace(old: Array, new: Array, number: int) -> tuple[bool, int]:
    """PACE with its stake of one half."""
    evidence = np.cumprod(1 + (new - old) / 2)
    reached = np.flatnonzero(evidence >= 1 / ALPHA)
    return (True, int(reached[0]) + 1) if len(reached) else (False, len(old))


@cache
def is_promoted(test: Callable[..., Improvement], wins: int, losses: int, n: int, alpha: float) -> bool:
    """What a test of whet decides on rows that were won, lost and neither; their order is nothing to it."""
    old = [0.0] * wins + [1.0] * losses + [0.0] * (n - wins - losses)
    new = [1.0] * wins + [0.0] * losses + [0.0] * (n - wins - losses)
    return test(old, new, 0.0, 1.0, alpha).promoted


def passes(test: Callable[..., Improvement], old: Array, new: Array, alpha: float = ALPHA) -> bool:
    """Whether a test of whet promotes the edit."""
    return is_promoted(test, int((new > old).sum()), int((new < old).sum()), len(old), alpha)


def gate(old: Array, new: Array, number: int) -> tuple[bool, int]:
    """whet's test of a decision."""
    return passes(decide, old, new), len(old)


def decide_opening(old: Array, new: Array, number: int) -> tuple[bool, int]:
    """whet's test with the level of the k-th opening."""
    return passes(decide, old, new, opening_alpha(ALPHA, number)), len(old)


def looks(old: Array, new: Array, number: int) -> tuple[bool, int]:
    """whet's test that may be looked at while rows come."""
    for n in range(STEP, len(old) + 1, STEP):
        if passes(decide_anytime, old[:n], new[:n]):
            return True, n
    return False, len(old)


POLICIES: dict[str, Policy] = {
    "greedy": greedy, "sign test": sign_test, "PACE": pace, "gate": gate, "gate, looks": looks, "gate, counted": decide_opening,
}  # fmt: skip
REGIMES: dict[str, tuple[float, ...]] = {
    "planted": (*[0.0] * 9, 0.2, -0.2),
    "no gain": (0.0,) * 20,
    "many harmful": (*[0.0] * 9, 0.2, *[-0.03] * 20),
}


@dataclass
class Outcome:
    """What a policy did, by run."""

    false: list[int] = field(default_factory=list)
    missed: list[float] = field(default_factory=list)
    rows: list[float] = field(default_factory=list)
    accuracy: list[float] = field(default_factory=list)


def answers(
    rng: np.random.Generator, n: int, accuracy: float, effect: float, flip: float
) -> tuple[Array, Array]:
    """Rewards of a prompt and of an edit of it on `n` rows. A share `flip` of the rows is answered anew; the edit is right on
    `accuracy + effect` of the rows."""
    old = (rng.random(n) < accuracy).astype(np.float64)
    anew = (rng.random(n) < accuracy).astype(np.float64)
    new = np.where(rng.random(n) < flip, anew, old)
    lucky = rng.random(n)
    if effect > 0:
        new = np.where((new == 0) & (lucky < effect / max(1e-9, 1 - accuracy)), 1.0, new)
    elif effect < 0:
        new = np.where((new == 1) & (lucky < -effect / max(1e-9, accuracy)), 0.0, new)
    return old, new


def run(
    policy: Policy, edits: Sequence[float], n: int, flip: float, seed: Sequence[int], outcome: Outcome
) -> None:
    """One run of a policy over the edits in an order of its own seed."""
    order = np.random.default_rng([*seed, 1]).permutation(len(edits))
    accuracy, false, used, missed = 0.5, 0, 0, 0
    for number, place in enumerate(order, 1):
        effect = edits[place]
        accepted, rows = policy(
            *answers(np.random.default_rng([*seed, 2, number]), n, accuracy, effect, flip), number
        )
        used += rows
        false += accepted and effect <= 0
        missed += not accepted and effect > 0
        accuracy = min(1.0, max(0.0, accuracy + effect)) if accepted else accuracy
    outcome.false.append(false)
    outcome.missed.append(missed / max(1, sum(effect > 0 for effect in edits)))
    outcome.rows.append(used / len(edits))
    outcome.accuracy.append(accuracy)


def main() -> None:
    """Print a table a regime."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--rows", default="40,160")
    parser.add_argument("--flips", default="1,0.2")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for regime, edits in REGIMES.items():
        print(f"\n{regime}: {len(edits)} edits a run, {options.runs} runs\n")
        print(
            "| flip, rows, policy | false edits a run | runs with one | real edit missed | rows a decision | last accuracy |"
        )
        print("|---|---|---|---|---|---|")
        for flip in map(float, options.flips.split(",")):
            for n in map(int, options.rows.split(",")):
                for name, policy in POLICIES.items():
                    outcome = Outcome()
                    for number in range(options.runs):
                        run(policy, edits, n, flip, (options.seed, number, n, int(10 * flip)), outcome)
                    wrong = interval([float(count > 0) for count in outcome.false], 0.0, 1.0)
                    missed = f"{fmean(outcome.missed):.2f}" if max(edits) > 0 else "-"
                    few = f"{wrong.mean:.3f} [{wrong.low:.3f}, {wrong.high:.3f}]"
                    print(
                        f"| {flip:g}, {n}, {name} | {fmean(outcome.false):.2f} | {few} | "
                        f"{missed} | {fmean(outcome.rows):.1f} | {fmean(outcome.accuracy):.3f} |",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
