"""Prompting policies on simulated contexts of hidden rules: what experience in view and its distillation add.

    python benchmarks/prompting_contexts.py --seeds 20

The prompter trains on 40 contexts and then writes one greedy prompt for each of 20 contexts that it has never seen, without
experience. All arms make the same number of calls of the frozen model in training. `best of n` does not train: it spends as many
calls on labelled rows of the 20 contexts themselves. Prints true worth (what the prompt earns on average, from the world's law),
and differences to the full method paired by seed with Student's intervals.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Mapping
from statistics import fmean
from typing import Any

import numpy as np
from benchmarks.simulated.rule_prompter import START, RulePrompter, RuleWorld
from scipy import stats

from whet.methods.prompting_policies import Config, Prompter, prompting_policies
from whet.rl.training import Trainer
from whet.testing.runs import MeteredRun

TRAIN, UNSEEN, STEPS, ROWS = 40, 20, 40, 4
BASE: dict[str, Any] = {
    "steps": STEPS, "column": "context", "examples": ROWS, "lr": 4.0, "kl": 0.0, "remarks": "none", "checks": 1,
}  # fmt: skip
ARMS: Mapping[str, Mapping[str, Any]] = {
    "full": {},
    "no experience": {"shown": "none", "distil": 0},
    "experience with shuffled rewards": {"shown": "shuffled"},
    "good experience only": {"shown": "good"},
    "experience emptied by each distillation": {"forget": True},
    "no distillation": {"distil": 0},
    "distillation, no experience shown": {"shown": "none"},
    "untrained": {"steps": 0},
}


def arm(name: str, seed: int, steps: int = STEPS) -> float:
    """The mean true worth of the prompts that an arm writes for unseen contexts."""
    world = RuleWorld(seed)
    contexts = world.contexts(TRAIN + UNSEEN)
    train, unseen = contexts[:TRAIN], contexts[TRAIN:]
    env = world.environment(world.rows(train, 4), world.rows(train[:5], 1))
    policy: Any = RulePrompter(world.topics)
    run = MeteredRun({"task": env.model}, seed)
    if name == "best of n":
        calls = steps * 4 * 8 * ROWS
        return fmean(best_of_n(world, policy, run, context, calls // UNSEEN) for context in unseen)
    config = Config(**{**BASE, "steps": steps, **ARMS[name]})
    asyncio.run(prompting_policies(run, env, policy, START, config))
    writer = Prompter(Trainer(policy, config), "", "context")
    names = [" ".join(f"topic{topic}" for topic in context) for context in unseen]
    written = asyncio.run(writer.write_all(run, START, names))
    return fmean(world.worth((w or START).text, c) for w, c in zip(written, unseen, strict=True))


def best_of_n(world: RuleWorld, policy: Any, run: MeteredRun, context: tuple[int, ...], calls: int) -> float:
    """The true worth of the sampled prompt that scores best on labelled rows of a context."""
    rows = world.rows([context], 4)
    env = world.environment(rows, rows)
    writer = Prompter(Trainer(policy, Config(**BASE)), "", "context")
    name = " ".join(f"topic{topic}" for topic in context)

    async def search() -> float:
        ((*samples,),) = await writer.trainer.sample(
            run, [writer.question(START, name, [])], n=calls // len(rows)
        )
        prompts = list({s.text: START.edit(s.text) for s in samples}.values())
        scores = await env.score(run, prompts, rows)
        best = max(range(len(prompts)), key=lambda i: (scores[i].mean, -len(prompts[i].text)))
        return world.worth(prompts[best].text, context)

    return asyncio.run(search())


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--first", type=int, default=200, help="first seed")
    options = parser.parse_args()
    figures = {
        name: np.array(
            [arm(name, seed, options.steps) for seed in range(options.first, options.first + options.seeds)]
        )
        for name in (*ARMS, "best of n")
    }
    for name, values in figures.items():
        gap = figures["full"] - values
        half = stats.t.ppf(0.975, options.seeds - 1) * gap.std(ddof=1) / options.seeds**0.5
        low, high = gap.mean() - half, gap.mean() + half
        print(f"{name:40} {values.mean():.3f}   full - it: {gap.mean():+.3f} [{low:+.3f}, {high:+.3f}]")


if __name__ == "__main__":
    main()
