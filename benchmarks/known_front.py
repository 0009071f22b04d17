"""How much of a known front do methods find at equal calls? Hypervolume of what they return, as a share of the true front's.

    python benchmarks/known_front.py [--seeds 20] [--calls 600 1800]

The task of `benchmarks/simulated/front.py`: sixteen words with known effects on accuracy and length. Every method may make the
same number of task calls, 40 for each prompt that it tries. It returns the prompts whose *measured* means nobody beats; they
are scored by their *true* means. `modp` asks a simulated optimizer that knows what a word is good for with the
probability `skill`; with skill 0 only its acceptance and its front are left. NSGA-II is that of the package pymoo
(binary variables, population 12), which only this benchmark needs; without it that row is left out, and the output says so.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.simulated.front import (
    ACCURACY,
    LENGTH,
    WORDS,
    FrontLaw,
    Point,
    hypervolume,
    not_dominated,
    with_words,
    words_in,
    world,
)

from whet.methods import get_method
from whet.rl import LanguagePolicy
from whet.run import Budget
from whet.testing.paired_benchmark import T_95
from whet.testing.runs import MeteredRun
from whet.types import mean_score

EXAMPLES, POPULATION = 40, 12
Tried = dict[frozenset[str], Point]


def measured(seed: int, words: frozenset[str]) -> Point:
    """Means of a prompt over the sample: accuracy and length."""
    env = world(seed).env
    run = MeteredRun({"task": env.model}, seed)
    parts = mean_score(asyncio.run(env.evaluate(run, with_words(words), env.train[:EXAMPLES]))).parts
    return parts[ACCURACY], parts[LENGTH]


def random_search(seed: int, calls: int) -> Tried:
    """Random sets of words."""
    rng = random.Random(f"random|{seed}")
    tried: Tried = {frozenset(): measured(seed, frozenset())}
    while (len(tried) + 1) * EXAMPLES <= calls:
        words = frozenset(word for word in WORDS if rng.random() < 0.5)
        if words not in tried:
            tried[words] = measured(seed, words)
    return tried


def nsga2(seed: int, calls: int) -> Tried:
    """pymoo's NSGA-II on the words as bits."""
    import numpy as np
    from pymoo.algorithms.moo.nsga2 import NSGA2
    from pymoo.core.problem import ElementwiseProblem
    from pymoo.operators.crossover.pntx import TwoPointCrossover
    from pymoo.operators.mutation.bitflip import BitflipMutation
    from pymoo.operators.sampling.rnd import BinaryRandomSampling
    from pymoo.optimize import minimize

    tried: Tried = {frozenset(): measured(seed, frozenset())}

    class Words(ElementwiseProblem):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(n_var=len(WORDS), n_obj=2, xl=0, xu=1, vtype=bool)

        def _evaluate(self, x: Any, out: Any, *args: Any, **kwargs: Any) -> None:
            words = frozenset(word for word, bit in zip(WORDS, np.asarray(x, dtype=bool), strict=True) if bit)
            if words not in tried and (len(tried) + 1) * EXAMPLES <= calls:
                tried[words] = measured(seed, words)
            accuracy, length = tried.get(words, (0.0, 1000.0))
            out["F"] = [-accuracy, length]

    algorithm = NSGA2(
        pop_size=POPULATION,
        sampling=BinaryRandomSampling(),
        crossover=TwoPointCrossover(),
        mutation=BitflipMutation(),
        eliminate_duplicates=True,
    )
    minimize(Words(), algorithm, ("n_eval", calls // EXAMPLES), seed=seed, verbose=False)
    return tried


def modp(skill: float, directed: bool = True) -> Callable[[int, int], Tried]:
    """MODP with a simulated optimizer of this skill."""

    def search(seed: int, calls: int) -> Tried:
        known, method = world(seed, skill, directed), get_method("modp")
        run = MeteredRun(
            {"task": known.env.model, "optimizer": known.optimizer}, seed, limits=Budget(task_calls=calls)
        )
        config = method.config(rounds=400, edits=1, examples=EXAMPLES)
        asyncio.run(method.coroutine(run, known.env, LanguagePolicy(), known.start, config))
        if run.spent["task"] > calls:
            raise AssertionError(f"modp made {run.spent['task']} task calls of {calls}")
        tried: Tried = {frozenset(): measured(seed, frozenset())}
        for name, value in run.logged:
            if name == "candidate" and isinstance(value, dict):
                messages: Any = value["messages"]
                parts: Any = value["parts"]
                tried[frozenset(words_in(messages[0][1]))] = (parts[ACCURACY], parts[LENGTH])
        return tried

    return search


METHODS: dict[str, Callable[[int, int], Tried]] = {
    "random search": random_search,
    "NSGA-II (pymoo)": nsga2,
    "modp, skill 0": modp(0.0),
    "modp, skill 0.6, aim ignored": modp(0.6, directed=False),
    "modp, skill 0.6": modp(0.6),
}


def share(seed: int, tried: Tried) -> float:
    """The hypervolume of what a search returns, as a share of that of the true front."""
    law = FrontLaw(seed)
    sets = list(tried)
    returned = [law.truth(sets[i]) for i in not_dominated([tried[words] for words in sets])]
    return hypervolume(returned) / hypervolume(law.points())


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Hypervolume on known fronts at equal calls.")
    parser.add_argument("--seeds", type=int, default=20, choices=sorted(T_95), help="worlds, one search each")
    parser.add_argument("--calls", type=int, nargs="+", default=[600, 1800], help="task calls of a search")
    options = parser.parse_args()
    methods = dict(METHODS)
    try:
        import pymoo  # noqa: F401
    except ImportError:
        methods.pop("NSGA-II (pymoo)")
        print("NSGA-II is left out: pip install pymoo")
    print(
        "| task calls | method | share of the hypervolume | modp, skill 0.6, is better by |\n|---|---|---|---|"
    )
    for calls in options.calls:
        shares = {
            name: [share(seed, search(seed, calls)) for seed in range(options.seeds)]
            for name, search in methods.items()
        }
        best = shares["modp, skill 0.6"]
        for name, values in shares.items():
            gaps = [a - b for a, b in zip(best, values, strict=True)]
            mean, half = fmean(gaps), T_95[len(gaps)] * stdev(gaps) / len(gaps) ** 0.5
            gap = "" if values is best else f"{mean:+.3f} [{mean - half:+.3f}, {mean + half:+.3f}]"
            print(f"| {calls:,} | {name} | {fmean(values):.3f} | {gap} |")


if __name__ == "__main__":
    main()
