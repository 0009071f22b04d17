"""RLPrompt on the demonstration task: where its time goes, and whether it beats random search.

    python benchmarks/rlprompt.py [--seeds 5] [--steps 300] [--set KEY=VALUE ...] [--held-out] [--threads N]

For each seed RLPrompt runs once; random search then draws from the same words, scores as many prompts on the
same training rows, and validates at least as many. Printed for each seed: prompts scored, prompts a second, share
of the time inside the frozen model (scoring and the policy's body), and of both methods the best and the mean
reward among the 32 best prompts (what is trained for, on training rows) and the accuracy of the result on
validation rows. Then the means of the differences with paired 95% intervals (Student). `--signals` instead draws
random prompts and prints how well each training signal ranks their accuracy on validation rows. `--held-out` adds
the accuracy on the rows of the test split: for figures to publish, not for choosing settings.

Needs the extra `embedded` and scipy. A seed of 300 steps takes about a minute on one core, both methods together.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import random
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats

from whet.environments.environment import Environment
from whet.methods import configure, get_method
from whet.methods.random_search import Config as RandomConfig
from whet.methods.random_search import random_search
from whet.methods.rlprompt import Config, rlprompt
from whet.models.embedded import load
from whet.prompt import Prompt
from whet.rl.token_policy import TokenBackbone, TokenPolicy, TokenPolicySettings
from whet.run import MemoryRun
from whet.search.archive import Candidate
from whet.search.vocabulary import vocabulary
from whet.task import load_task
from whet.types import Scores

TASK = Path(__file__).parent.parent / "examples" / "python-docs"


class Watched:
    """A model that notes how long it scores; `vocabulary` gives both methods the same words."""

    def __init__(self, model: Any, words: Sequence[str] = ()) -> None:
        self.model, self.words, self.seconds = model, list(words), 0.0
        self.address, self.simulated, self.local = model.address, model.simulated, model.local

    def policy_body(self) -> TokenBackbone:
        body: TokenBackbone = self.model.policy_body()
        return body

    def vocabulary(self, n: int) -> list[str]:
        return self.words[:n]

    async def score(
        self,
        prompts: Sequence[Prompt],
        inputs: Sequence[Mapping[str, str]],
        continuations: Sequence[Sequence[str]],
    ) -> Scores:
        began = time.perf_counter()
        try:
            found: Scores = await self.model.score(prompts, inputs, continuations)
            return found
        finally:
            self.seconds += time.perf_counter() - began


@dataclasses.dataclass
class Outcome:
    """One search: prompts scored, seconds, share in the frozen model, training rewards of all prompts, the result."""

    scored: int
    seconds: float
    share: float
    rewards: list[float]
    figures: dict[str, float]


class Ledger(MemoryRun):
    """A run that remembers the training signal of every prompt that was scored on `rows` examples."""

    rows = 0
    signals: list[float]

    async def effect(self, name: str, fn: Any, args: Any = None, *, role: Any = None, calls: int = 0) -> Any:
        found: Any = await super().effect(name, fn, args, role=role, calls=calls)
        if name == "score" and calls == len(found["accuracy"]) * self.rows:
            self.signals += [a + b for a, b in zip(found["accuracy"], found["likelihood"], strict=True)]
        return found


def run_of(seed: int, env: Environment) -> Ledger:
    run = Ledger({"task": env.model}, seed)
    run.signals, run.rows = [], len(env.train)
    return run


async def judge(env: Environment, result: Candidate, test: Any) -> dict[str, float]:
    """Accuracy of the result on validation rows, and on test rows when they are given."""
    splits = {"validation": env.validation, **({"test": test} if test else {})}
    return {
        name: (await env.score(MemoryRun(), [result.prompt], rows))[0].parts["accuracy"]
        for name, rows in splits.items()
    }


async def learn(seed: int, env: Environment, start: Prompt, config: Config, test: Any) -> Outcome:
    run, model = run_of(seed, env), Watched(env.model)
    model.words = vocabulary(env, config.vocabulary)
    began = time.perf_counter()
    result = await rlprompt(run, dataclasses.replace(env, model=model), None, start, config)
    seconds = time.perf_counter() - began
    last: Any = [value for name, value in run.logged if name == "step"][-1]
    frozen = model.seconds + last["backbone_seconds"]
    figures = await judge(env, result, test)
    print(
        f"  update {last['update_seconds']:.1f} s, body {last['backbone_seconds']:.1f} s, {result.prompt.region_text()!r}"
    )
    return Outcome(len(run.signals), seconds, frozen / seconds, run.signals, figures)


async def draw(
    seed: int, env: Environment, start: Prompt, config: Config, words: Sequence[str], n: int, test: Any
) -> Outcome:
    run, model = run_of(seed, env), Watched(env.model, words)
    settings = RandomConfig(n, "tokens", config.length, len(words), finalists=config.finalists)
    began = time.perf_counter()
    result = await random_search(run, dataclasses.replace(env, model=model), None, start, settings)
    seconds = time.perf_counter() - began
    return Outcome(
        len(run.signals), seconds, model.seconds / seconds, run.signals, await judge(env, result, test)
    )


def row(name: str, outcome: Outcome) -> dict[str, float]:
    best = sorted(outcome.rewards, reverse=True)[:32]
    found = {"best": best[0], "best 32": float(np.mean(best)), **outcome.figures}
    shown = "  ".join(f"{key} {value:.4f}" for key, value in found.items())
    rate = outcome.scored / outcome.seconds
    print(
        f"  {name:14s} {outcome.scored} prompts, {rate:.0f}/s, {outcome.share:.1%} frozen:  {shown}",
        flush=True,
    )
    return found


def compare(pairs: Sequence[tuple[dict[str, float], dict[str, float]]]) -> None:
    for key in pairs[0][0]:
        differences = np.array([a[key] - b[key] for a, b in pairs])
        mean = differences.mean()
        half = stats.t.ppf(0.975, len(pairs) - 1) * stats.sem(differences) if len(pairs) > 1 else float("nan")
        means = " ".join(f"{np.mean([pair[i][key] for pair in pairs]):.4f}" for i in (0, 1))
        print(
            f"{key:12s} rlprompt, random: {means}   difference {mean:+.4f} [{mean - half:+.4f}, {mean + half:+.4f}]"
        )


async def signals(env: Environment, start: Prompt, length: int, words: Sequence[str], n: int = 600) -> None:
    """Rank correlation of training signals with validation accuracy over random prompts."""
    rng = random.Random(0)
    prompts = [start.edit(" ".join(rng.choices(words, k=length))) for _ in range(n)]
    found = [await env.score(MemoryRun(), prompts, rows) for rows in (env.train, env.validation)]
    train, wanted = [s.parts for s in found[0]], [s.parts["accuracy"] for s in found[1]]
    for names in (("accuracy",), ("likelihood",), ("gap",), ("accuracy", "likelihood")):
        column = [sum(parts[name] for name in names) for parts in train]
        print(f"{'+'.join(names):20s} Spearman {stats.spearmanr(column, wanted).statistic:.3f}")


async def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--held-out", action="store_true")
    parser.add_argument("--signals", action="store_true")
    parser.add_argument("--threads", type=int, default=0)
    given = parser.parse_args()
    if given.threads:
        torch.set_num_threads(given.threads)
    settings = {"steps": given.steps, **dict(text.split("=", 1) for text in given.set)}
    config: Config = configure(get_method("rlprompt"), settings)
    task = load_task(TASK)
    env = Environment(load("encoder"), task.reward, task.train, task.validation, task.labels, scores=True)
    shape = TokenPolicySettings(config.length, config.vocabulary)
    words = TokenPolicy(env.model.policy_body(), shape, 0, vocabulary(env, config.vocabulary)).words  # type: ignore[attr-defined]
    test = task.test if given.held_out else None
    print(
        f"{len(env.train)} training rows, {len(env.validation)} validation rows, {len(words)} words, {config}"
    )
    if given.signals:
        return await signals(env, task.prompt, config.length, words)
    pairs = []
    for seed in range(given.seeds):
        print(f"seed {seed}")
        learned = await learn(seed, env, task.prompt, config, test)
        left = row("rlprompt", learned)
        pairs.append(
            (
                left,
                row("random search", await draw(seed, env, task.prompt, config, words, learned.scored, test)),
            )
        )
    compare(pairs)


if __name__ == "__main__":
    asyncio.run(main())
