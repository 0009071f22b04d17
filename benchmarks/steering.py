"""ActAdd on the tiny model, beside the same words in the prompt and a random vector of the same norm.

    python benchmarks/steering.py

One task for each of some clauses that `embedded/tiny` understands; the prompt as written says nothing of them. `steered` adds
the activations of the clause's words, `random` a random direction of the same norm at each position, `words` has the words as its
prompt. Layer and strength are chosen on 12 training and 12 validation rows; the reward (exact match) is that on 30 other rows. In
brackets the share of answers that keep all letters: what is lost in fluency shows there.
"""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

import numpy as np
from benchmarks.simulated.clause_tasks import VAGUE, instruction_for, lines
from scipy import stats
from tools.embedded.clauses import transform

from whet.environments.environment import Environment, Generation
from whet.methods.actadd import Config, actadd, deploy
from whet.models.addresses import resolve
from whet.prompt import Prompt
from whet.rewards.text import ExactMatch
from whet.testing.runs import MeteredRun
from whet.types import Example

CLAUSES = ("capitals", "titled", "commas", "hyphens", "slashes", "brackets", "quotes", "stars")
START = Prompt.parse(f"<!-- whet:begin -->\n{VAGUE}\n<!-- whet:end -->\n")
STRICT = ExactMatch(strict=True)


def examples(name: str, rows: int) -> list[Example]:
    """Lines with the form that a clause demands."""
    return [
        Example(f"{i}", {"input": line}, transform(line, [name]), {}, line)
        for i, line in enumerate(lines(7, rows))
    ]


def measure(env: Environment, prompt: Prompt, rows: list[Example]) -> tuple[float, float]:
    """Exact match, and the share of answers whose letters are those of the line."""

    async def ask() -> Any:
        return await env.evaluate(MeteredRun({"task": env.model}), prompt, rows)

    rollouts = asyncio.run(ask())
    same = [letters(r.output) == letters(str(e.target)) for r, e in zip(rollouts, rows, strict=True)]
    return float(np.mean([r.reward for r in rollouts])), float(np.mean(same))


def letters(text: str) -> str:
    """The letters of a text, small."""
    return "".join(c for c in text.lower() if c.isalpha())


def arms(model: Any, name: str) -> dict[str, tuple[float, float]]:
    """Exact match and copies of each arm on one clause."""
    rows = examples(name, 54)
    env = Environment(model, STRICT, tuple(rows[:12]), tuple(rows[12:24]), generation=Generation(0.0, 40))
    words = instruction_for([name])
    found = {
        "as written": measure(env, START, rows[24:]),
        "words": measure(env, START.edit(words), rows[24:]),
    }
    for arm, vector in (("steered", "difference"), ("random", "random")):
        config = Config(plus=words, layers=6, examples=12, vector=vector)  # type: ignore[arg-type]
        run = MeteredRun({"task": model})
        best = asyncio.run(actadd(run, env, None, START, config))
        system = deploy(env, None, run.kept[best.system], config) if best.system else env
        found[arm] = measure(system, START, rows[24:])
    return found


def main() -> None:
    """Print the table."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    model, table = resolve("embedded/tiny"), {}
    for name in CLAUSES:
        table[name] = arms(model, name)
        print(
            f"{name:12}", "  ".join(f"{a} {e:.2f} ({c:.2f})" for a, (e, c) in table[name].items()), flush=True
        )
    for arm in ("as written", "words", "steered", "random"):
        exact = np.array([table[name][arm][0] for name in CLAUSES])
        gap = np.array([table[name]["steered"][0] for name in CLAUSES]) - exact
        half = stats.t.ppf(0.975, len(gap) - 1) * gap.std(ddof=1) / len(gap) ** 0.5
        low, high = gap.mean() - half, gap.mean() + half
        print(f"{arm:12} {exact.mean():.3f}   steered - it: {gap.mean():+.3f} [{low:+.3f}, {high:+.3f}]")


if __name__ == "__main__":
    main()
