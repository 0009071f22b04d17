"""How much of a known front do methods find at equal calls? Hypervolume of what they return, as a share of the true front's.

    python benchmarks/known_front.py [--seeds 20] [--calls 600 1800] [--evolved]

The task of `benchmarks/simulated/front.py`: sixteen words with known effects on accuracy and length. Every method may make the
same number of task calls, 40 for each prompt that it tries. It returns the prompts whose *measured* means nobody beats; they
are scored by their *true* means. `modp` asks a simulated optimizer that knows what a word is good for with the
probability `skill`; with skill 0 only its acceptance and its front are left. NSGA-II is that of the package pymoo
(binary variables, population 12), which only this benchmark needs; without it that row is left out, and the output says so.

With `--evolved`, `mo_capo` and `capo` ask a simulated optimizer that knows nothing: it joins two texts by coins and changes a
word or two. Both return what nobody beats among the prompts that they validated, as the front of a result does; two fifths of
their calls go into that. Beside them: `mo_capo` without its race (a child answers all rows that the incumbents answered). `capo`
climbs the one number of both objectives. The gap is the hypervolume by the measured means less that by the true ones, as a share
of the true front's.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
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
    crosser,
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


def measure(seed: int, words: frozenset[str]) -> Point:
    """Means of a prompt over the sample: accuracy and length."""
    env = world(seed).env
    run = MeteredRun({"task": env.model}, seed)
    parts = mean_score(asyncio.run(env.evaluate(run, with_words(words), env.train[:EXAMPLES]))).parts
    return parts[ACCURACY], parts[LENGTH]


def random_search(seed: int, calls: int) -> Tried:
    """Random sets of words."""
    rng = random.Random(f"random|{seed}")
    tried: Tried = {frozenset(): measure(seed, frozenset())}
    while (len(tried) + 1) * EXAMPLES <= calls:
        words = frozenset(word for word in WORDS if rng.random() < 0.5)
        if words not in tried:
            tried[words] = measure(seed, words)
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

    tried: Tried = {frozenset(): measure(seed, frozenset())}

    class Words(ElementwiseProblem):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(n_var=len(WORDS), n_obj=2, xl=0, xu=1, vtype=bool)

        def _evaluate(self, x: Any, out: Any, *args: Any, **kwargs: Any) -> None:
            words = frozenset(word for word, bit in zip(WORDS, np.asarray(x, dtype=bool), strict=True) if bit)
            if words not in tried and (len(tried) + 1) * EXAMPLES <= calls:
                tried[words] = measure(seed, words)
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
        tried: Tried = {frozenset(): measure(seed, frozenset())}
        for name, value in run.logged:
            if name == "candidate" and isinstance(value, dict):
                messages: Any = value["messages"]
                parts: Any = value["parts"]
                tried[frozenset(words_in(messages[0][1]))] = (parts[ACCURACY], parts[LENGTH])
        return tried

    return search


def evolution(method: str, **settings: Any) -> Callable[[int, int], Tried]:
    """A method with CAPO's operators: the prompts that it validated, which are those that its result shows."""

    def search(seed: int, calls: int) -> Tried:
        known, loaded = world(seed), get_method(method)
        models = {"task": known.env.model, "optimizer": crosser(seed)}
        run = MeteredRun(models, seed, limits=Budget(task_calls=calls))
        config = loaded.config(shots=0, **settings)
        asyncio.run(loaded.coroutine(run, known.env, LanguagePolicy(), known.start, config))
        if run.spent["task"] > calls:
            raise AssertionError(f"{method} made {run.spent['task']} task calls of {calls}")
        tried: Tried = {}
        for name, value in run.logged:
            if name == "validated" and isinstance(value, dict):
                messages: Any = value["messages"]
                rows: Any = value["objectives"]
                accuracy, length = (fmean(row[goal] for row in rows.values()) for goal in (ACCURACY, LENGTH))
                tried[frozenset(words_in(messages[0][1]))] = accuracy, length
        return tried

    return search


METHODS: dict[str, Callable[[int, int], Tried]] = {
    "random search": random_search,
    "NSGA-II (pymoo)": nsga2,
    "modp, skill 0": modp(0.0),
    "modp, skill 0.6, aim ignored": modp(0.6, directed=False),
    "modp, skill 0.6": modp(0.6),
}
EVOLVED: dict[str, Callable[[int, int], Tried]] = {
    "random search": random_search,
    "capo": evolution("capo"),
    "mo_capo, no race": evolution("mo_capo", drops=False),
    "mo_capo": evolution("mo_capo"),
}


def shares_of(seed: int, tried: Tried) -> tuple[float, float]:
    """The hypervolume of what a search returns, as a share of that of the true front; and how much more its means say."""
    law, sets = FrontLaw(seed), list(tried)
    returned = not_dominated([tried[words] for words in sets])
    whole, true = hypervolume(law.points()), hypervolume([law.truth(sets[i]) for i in returned])
    return true / whole, (hypervolume([tried[sets[i]] for i in returned]) - true) / whole


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Hypervolume on known fronts at equal calls.")
    parser.add_argument("--seeds", type=int, default=20, choices=sorted(T_95), help="worlds, one search each")
    parser.add_argument("--calls", type=int, nargs="+", default=[600, 1800], help="task calls of a search")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--evolved", action="store_true", help="mo_capo and what it is compared with")
    options = parser.parse_args()
    worlds = range(options.first_seed, options.first_seed + options.seeds)
    methods, last = (EVOLVED, "mo_capo") if options.evolved else (dict(METHODS), "modp, skill 0.6")
    if not options.evolved and importlib.util.find_spec("pymoo") is None:
        methods.pop("NSGA-II (pymoo)")
        print("NSGA-II is left out: pip install pymoo")
    print(
        f"| task calls | method | share of the hypervolume | gap | {last} is better by |\n|---|---|---|---|---|"
    )
    for calls in options.calls:
        figures = {
            name: [shares_of(seed, search(seed, calls)) for seed in worlds]
            for name, search in methods.items()
        }
        for name, values in figures.items():
            gaps = [a[0] - b[0] for a, b in zip(figures[last], values, strict=True)]
            mean, half = fmean(gaps), T_95[len(gaps)] * stdev(gaps) / len(gaps) ** 0.5
            ahead = "" if name == last else f"{mean:+.3f} [{mean - half:+.3f}, {mean + half:+.3f}]"
            share, gap = (fmean(column) for column in zip(*values, strict=True))
            print(f"| {calls:,} | {name} | {share:.3f} | {gap:+.3f} | {ahead} |", flush=True)


if __name__ == "__main__":
    main()
