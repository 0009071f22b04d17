"""BetterTogether on simulated rows: which stages, in which order, at an equal number of answers of the policy.

    python benchmarks/stage_orders.py --seeds 10

Six kinds of rows of unequal difficulty. Of three kinds the bare policy is never right, and is on a third of the rows under a
hint for the kind, which the writer of prompts adds to a prompt when it is shown a failure. The context with a hint has weights of
its own. In the second world the policy is never right on any kind without a hint. Prints which share of rows, of each kind one of
each difficulty, the policy answers rightly (greedily) with the weights under the prompt that are returned, with 95% intervals of
the mean (Student), and the difference to p -> w, in pairs.
"""

from __future__ import annotations

import argparse
import asyncio
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from benchmarks.simulated.answer_policy import CLASSES, HINT, KIND, NEVER, START, AnswerPolicy, environment
from numpy.typing import NDArray
from scipy import stats

from whet.methods import configure, get_method
from whet.models.scripted import choose_by_luck
from whet.run import Budget, MemoryRun
from whet.testing.runs import MeteredRun
from whet.types import Completion, Request

WORLDS: Mapping[str, tuple[float, ...]] = {
    "some": (NEVER, NEVER, NEVER, -1.4, -1.4, 1.4),
    "never": (NEVER,) * 6,
}
"""The logit of a right answer without a hint, by kind."""
SPREAD, OPENED = 2.0, -0.5
CALLS, WRITES = 2_000, 60
ORDERS = ("p", "w", "p -> w", "w -> p", "p -> w -> p")
BASE: dict[str, Any] = {"prompts": "gepa", "steps": 1000, "lr": 40.0}
TEXT = re.compile(r"<instructions?>\n(.*?)\n</instructions?>", re.DOTALL | re.IGNORECASE)


class HintWriter:
    """Adds the hint for a kind of rows that it is shown to the text that it is shown."""

    address, simulated, local, can_generate, can_score = "scripted/hints", True, True, True, False

    async def generate(self, request: Request) -> list[Completion]:
        question = request.messages[-1].content
        text = TEXT.search(question)
        hints = set(HINT.findall(text[1] if text else ""))
        new = sorted(set(KIND.findall(question)) - hints)
        if new:
            hints.add(choose_by_luck(new, question, request.sample))
        said = " ".join(["Answer.", *(f"Hint {kind}." for kind in sorted(hints))])
        return [Completion(f"<INSTRUCTION>{said}</INSTRUCTION>")]

    def count_tokens(self, text: str) -> int:
        return len(text)

    async def close(self) -> None:
        return None


def arm(order: str, seed: int, world: str = "some", calls: int = CALLS, **settings: Any) -> float:
    """The share of rows, of each kind one of each difficulty, that are answered rightly after the stages of an order."""
    first = WORLDS[world]
    env, method = environment(first), get_method("better_together")
    policy = AnswerPolicy(first, spread=SPREAD, with_hint=OPENED)
    config = configure(method, {**BASE, "strategy": order, **settings})
    limits = Budget(task_calls=calls, optimizer_calls=WRITES)
    run = MeteredRun({"task": env.model, "optimizer": HintWriter()}, seed, limits=limits)
    found: Any = asyncio.run(_finish(method.coroutine(run, env, policy, START, config)))
    assert run.spent["task"] <= calls
    rows = environment(first, rows=CLASSES).train
    used = env
    if found.system is not None:
        assert method.deploy is not None
        used = method.deploy(env, policy, run.kept[found.system], config)
    (score,) = asyncio.run(_finish(used.score(MemoryRun({"task": env.model}), [found.prompt], rows)))
    mean: float = score.mean
    return mean


async def _finish(awaitable: Any) -> Any:
    return await awaitable


def interval(figures: NDArray[np.float64]) -> tuple[float, float]:
    """Mean and half the width of its 95% interval."""
    half = stats.t.ppf(0.975, len(figures) - 1) * figures.std(ddof=1) / len(figures) ** 0.5
    return float(figures.mean()), float(half)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--calls", type=int, default=CALLS)
    parser.add_argument("--learn", choices=["imitate", "grpo"], default="imitate")
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.seeds)
    for world in WORLDS:
        rights = {
            order: np.array([arm(order, s, world, options.calls, learn=options.learn) for s in seeds])
            for order in ORDERS
        }
        for order, right in rights.items():
            (mean, half), (less, width) = interval(right), interval(right - rights["p -> w"])
            print(f"{world:6} {order:12} {mean:.3f} ±{half:.3f}   {less:+.3f} ±{width:.3f}", flush=True)


if __name__ == "__main__":
    main()
