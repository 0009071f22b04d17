"""How much of the time of scoring prompts is spent in the frozen model's forward passes.

    python benchmarks/frozen_forward.py [--lm embedded/tiny] [--prompts 16] [--examples 32] [--rounds 3] [--threads 1]

A clause task is written; as many prompts as asked are scored on its training rows by `Environment.score`, once to
warm up and then in rounds. Printed: prompts x examples a second, the share of the processor time that lies inside
the model's forward calls (1.0: scoring costs no more than the bare forward passes of the same tokens), and, for
comparison, the speed when every example is asked on its own, one after the other.

Needs the extra `hf`.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from benchmarks.simulated.clause_tasks import write_task
from tools.embedded.tinydata import instruction, pick_clauses

from whet.environments.environment import Environment, Generation
from whet.models.addresses import resolve
from whet.models.huggingface import HuggingFaceModel
from whet.prompt import Prompt
from whet.run import MemoryRun
from whet.task import load_task


class Watched:
    """A transformers model that notes the processor time of its forward calls and how many positions they compute."""

    def __init__(self, model: Any) -> None:
        self.model, self.forward = model, model.forward
        self.seconds, self.calls, self.positions = 0.0, 0, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def __call__(self, **given: Any) -> Any:
        began = time.process_time()
        found = self.model(**given)
        self.seconds += time.process_time() - began
        self.calls += 1
        self.positions += given["input_ids"].numel()
        return found


def prompts_like(prompt: Prompt, count: int, seed: int) -> list[Prompt]:
    """Edits of a prompt to random instructions of one to four clauses."""
    rng = random.Random(seed)
    return [prompt.edit(instruction(rng, pick_clauses(rng, rng.randint(1, 4)))) for _ in range(count)]


async def measure(arguments: argparse.Namespace) -> None:
    """Print a line for each round, then the means."""
    model = resolve(arguments.lm)
    if not isinstance(model, HuggingFaceModel):
        raise SystemExit(f"{arguments.lm} is no transformers model; give embedded/tiny or hf/PATH")
    watched = Watched(model.weights.model)
    model = model.around(replace(model.weights, model=watched))
    with tempfile.TemporaryDirectory() as folder:
        write_task(Path(folder) / "task", rows=int(arguments.examples / 0.4) + 5)
        task = load_task(Path(folder) / "task")
    rows = task.train[: arguments.examples]
    env = Environment(model, task.reward, rows, rows, generation=Generation(max_tokens=64))
    shares, rates = [], []
    for number in range(arguments.rounds + 1):
        prompts = prompts_like(task.prompt, arguments.prompts, number)
        watched.seconds, watched.calls, watched.positions = 0.0, 0, 0
        began = time.process_time()
        await env.score(MemoryRun({"task": model}), prompts, rows)
        spent = time.process_time() - began
        shares.append(watched.seconds / spent)
        rates.append(len(prompts) * len(rows) / spent)
        print(
            f"round {number}: {rates[-1]:.0f} prompts x examples a second, forward share {shares[-1]:.3f}, "
            f"{watched.calls} calls, {watched.positions} positions"
        )
    print(
        f"mean of {arguments.rounds} rounds: {sum(rates[1:]) / len(rates[1:]):.0f} prompts x examples a second"
    )
    print(f"share of the time in the forward passes: {sum(shares[1:]) / len(shares[1:]):.3f}")
    pairs = [(p, e) for p in prompts[:2] for e in rows]
    began = time.process_time()
    for prompt, example in pairs:
        await env.rollout(MemoryRun({"task": model}), prompt, example)
    print(f"one by one: {len(pairs) / (time.process_time() - began):.0f} prompts x examples a second")


def main() -> None:
    """Read the command line and measure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lm", default="embedded/tiny")
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--examples", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    asyncio.run(measure(arguments))


if __name__ == "__main__":
    main()
