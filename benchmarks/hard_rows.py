"""P2O and FST on simulated rows that the policy never solves by itself and a prompt opens.

    python benchmarks/hard_rows.py --seeds 10

Six kinds of rows: three that the bare policy never solves (6 in a million) and a hint solves in .6 of the cases, two at .2, one
at .8. The context with a hint has weights of its own. All arms may make as many answers of the policy. Prints the true
probability of a right answer of the bare policy (on all kinds and on the three), and under the best prompt of the front, with 95%
intervals of the mean (Student).
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Mapping
from statistics import fmean
from typing import Any

import numpy as np
from benchmarks.simulated.answer_policy import HINT, NEVER, START, AnswerPolicy, environment
from scipy import stats

from whet.methods import configure, get_method
from whet.run import Budget
from whet.testing.runs import MeteredRun

FIRST = (NEVER, NEVER, NEVER, -1.4, -1.4, 1.4)
CALLS = 8_000
BASE: dict[str, Any] = {"steps": 1000, "lr": 15.0, "problems": 8, "group": 8, "checks": 0}
ARMS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "p2o": ("p2o", {}),
    "p2o, gradient on the context with the prompt": ("p2o", {"distil": False}),
    "p2o, shaped ratio": ("p2o", {"ratio": "shaped"}),
    "p2o, prompts of any rows": ("p2o", {"among": "any"}),
    "GRPO": ("p2o", {"every": 0}),
    "GRPO, twice the group": ("p2o", {"every": 0, "group": 16}),
    "fst": ("fst", {}),
    "fst, compared under the same prompt": ("fst", {"norm": "prompt"}),
    "fst, weights alone": ("fst", {"every": 0}),
    "fst, prompts alone": ("fst", {"lr": 0.0}),
}


def arm(name: str, seed: int, calls: int = CALLS) -> tuple[float, float, float]:
    """The probability of a right answer, bare on all kinds and on those never solved, and under the front's best prompt."""
    method, settings = ARMS[name]
    env, policy = environment(FIRST), AnswerPolicy(FIRST)
    loaded = get_method(method)
    run = MeteredRun({"task": env.model}, seed, limits=Budget(task_calls=calls))
    asyncio.run(_finish(loaded.coroutine(run, env, policy, START, configure(loaded, {**BASE, **settings}))))
    front: dict[str, list[float]] = policy.notes["front"]
    best = max(front, key=lambda text: fmean(front[text] or [0.0]))
    kinds = range(len(FIRST))
    hinted = {int(k) for k in HINT.findall(best)}
    bare = [policy.chance(k, False) for k in kinds]
    return fmean(bare), fmean(bare[:3]), fmean(policy.chance(k, k in hinted) for k in kinds)


async def _finish(awaitable: Any) -> object:
    return await awaitable


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--calls", type=int, default=CALLS)
    options = parser.parse_args()
    for name in ARMS:
        seeds = range(options.first, options.first + options.seeds)
        figures = np.array([arm(name, seed, options.calls) for seed in seeds])
        half = stats.t.ppf(0.975, options.seeds - 1) * figures.std(axis=0, ddof=1) / options.seeds**0.5
        shown = [f"{m:.3f} ±{h:.3f}" for m, h in zip(figures.mean(axis=0), half, strict=True)]
        print(f"{name:46} {'   '.join(shown)}", flush=True)


if __name__ == "__main__":
    main()
