"""E-SPL's claim on simulated rows: weights alone, evolution alone, reflective evolution alone, and both together.

    python benchmarks/espl_modes.py --seeds 5

Rows and policy are those of `benchmarks/stage_orders.py`: of three of six kinds of rows the bare policy is never right, and is on
a third of the rows under a hint for the kind. A writer adds a hint to a list of principles: of a kind whose failures it is shown
(reflective), or of any kind out of twenty-four (blind). All arms may make as many answers of the policy. Prints which share of
rows, of each kind one of each difficulty, is answered rightly (greedily) by what is returned, with 95% intervals of the mean
(Student), and the difference to both, in pairs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from benchmarks.simulated.answer_policy import CLASSES, KIND, START, AnswerPolicy, environment
from benchmarks.stage_orders import OPENED, SPREAD, WORLDS, HintWriter, interval

from whet.methods import configure, get_method
from whet.models.scripted import choose_by_luck
from whet.run import Budget, MemoryRun
from whet.testing.runs import MeteredRun
from whet.types import Completion, Request

CALLS, WRITES, HINTS = 3_000, 120, 24
BASE: dict[str, Any] = {"steps": 1000, "lr": 40.0, "mutator": "optimizer", "temperature": 1.0, "recent": 20}
EVOLUTION: dict[str, Any] = {"mode": "evolution", "group": 2}
ARMS: Mapping[str, tuple[bool, Mapping[str, Any]]] = {
    "both": (True, {}),
    "weights alone": (True, {"mode": "rl"}),
    "evolution alone": (False, EVOLUTION),
    "reflective evolution alone": (True, EVOLUTION),
    "both, evolution blind": (False, {}),
}


class Mutator(HintWriter):
    """Adds a principle with a hint; blind, that of any kind."""

    def __init__(self, reads: bool) -> None:
        self.reads = reads

    async def generate(self, request: Request) -> list[Completion]:
        question = request.messages[-1].content
        kinds = sorted(set(KIND.findall(question))) if self.reads else []
        kind = choose_by_luck(kinds or [str(n) for n in range(HINTS)], question, request.sample)
        operations = [{"op": "add", "text": f"Hint {kind}."}]
        return [Completion(f"<OPERATIONS>{json.dumps(operations)}</OPERATIONS>")]


def arm(name: str, seed: int, calls: int = CALLS) -> float:
    """The share of rows, of each kind one of each difficulty, that are answered rightly by what an arm returns."""
    first, (reads, settings) = WORLDS["some"], ARMS[name]
    env, method = environment(first), get_method("espl")
    policy = AnswerPolicy(first, spread=SPREAD, with_hint=OPENED)
    config = configure(method, {**BASE, **settings})
    limits = Budget(task_calls=calls, optimizer_calls=WRITES)
    run = MeteredRun({"task": env.model, "optimizer": Mutator(reads)}, seed, limits=limits)
    found: Any = asyncio.run(_finish(method.coroutine(run, env, policy, START, config)))
    assert run.spent["task"] <= calls
    used = env
    if found.system is not None:
        assert method.deploy is not None
        used = method.deploy(env, policy, run.kept[found.system], config)
    rows = environment(first, rows=CLASSES).train
    (score,) = asyncio.run(_finish(used.score(MemoryRun({"task": env.model}), [found.prompt], rows)))
    mean: float = score.mean
    return mean


async def _finish(awaitable: Any) -> Any:
    return await awaitable


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--calls", type=int, default=CALLS)
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.seeds)
    both = np.array([arm("both", seed, options.calls) for seed in seeds])
    for name in ARMS:
        right = both if name == "both" else np.array([arm(name, seed, options.calls) for seed in seeds])
        (mean, half), (less, width) = interval(right), interval(right - both)
        print(f"{name:28} {mean:.3f} ±{half:.3f}   {less:+.3f} ±{width:.3f}", flush=True)


if __name__ == "__main__":
    main()
