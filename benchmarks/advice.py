"""How often `whet advise` names what is right, on worlds in which that is known. SIMULATED models.

    python benchmarks/advice.py [--tasks 40] [--seed 0]      # some minutes

Each world is a kind of task whose right answer holds by its construction, with sizes, difficulty and prices drawn anew for each
task. In the last three, chance hides it, or nothing that `advise` looks at shows it: they say what it does not see.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import whet
from whet.stats import interval

DEFAULT = 40
PART = "Give the answer alone"
"""How the usual part `output_format` begins (`whet.api.study`)."""


@dataclass(frozen=True)
class AdvisedTask:
    """A task, what `whet.advise` is told beside it, and what is right: a decision, or how it follows from what is true of the
    task and from the gain that its test shows with a power of 80%."""

    task: whet.Task
    words: dict[str, Any]
    right: str | Callable[[float], str]


def _rows(first: int, count: int) -> list[dict[str, str]]:
    return [{"input": f"row {n}", "target": f"answer number {n}"} for n in range(first, first + count)]


def _task(test: int, reward: Any = "exact_match", train: int = 40, **words: Any) -> whet.Task:
    splits = {"train": _rows(0, train), "validation": _rows(1000, 50), "test": _rows(2000, test)}
    return whet.Task.of("Answer.", data=splits, reward=reward, **words)


def _model(seed: int, share: float, with_part: float | None = None) -> Callable[[Any], str]:
    """Right on that share of the rows, and on another share where the prompt has the part."""

    def answer(messages: Any) -> str:
        text = "\n".join(message.content for message in messages)
        number = text.rpartition("row ")[2].split()[0]
        chance = with_part if with_part is not None and PART in text else share
        right = random.Random(f"{seed} {number}").random() < chance
        return f"answer number {number}" if right else "?"

    answer.simulated = True  # type: ignore[attr-defined]
    return answer


def _explains(example: dict[str, Any], output: str) -> dict[str, Any]:
    right = output == example["target"]
    return {"reward": float(right), "critique": None if right else "It must name the row by its number."}


def _same(example: dict[str, Any], output: str) -> float:
    return 0.5


def _fails(example: dict[str, Any], output: str) -> float:
    return float(example["missing"] == output)


def _with(model: Any, **words: Any) -> dict[str, Any]:
    return {"lm": model, "optimizer_lm": model, **words}


def blind_reward(rng: random.Random) -> AdvisedTask:
    """The reward is the same for all answers, or fails on all."""
    reward = rng.choice([_same, _fails])
    model = _model(rng.getrandbits(30), rng.random())
    return AdvisedTask(_task(rng.randint(20, 200), reward), _with(model), "mend")


def few_test_rows(rng: random.Random) -> AdvisedTask:
    """With so few rows no prompt can be promoted."""
    model = _model(rng.getrandbits(30), rng.uniform(0.2, 0.8))
    return AdvisedTask(_task(rng.randint(2, 5)), _with(model), "mend")


def little_room(rng: random.Random) -> AdvisedTask:
    """0.03 to 0.10 can be gained; 15 to 30 rows show 0.25 and more."""
    model = _model(rng.getrandbits(30), rng.uniform(0.90, 0.97))
    return AdvisedTask(_task(rng.randint(15, 30)), _with(model), "mend")


def perfect_start(rng: random.Random) -> AdvisedTask:
    """The start prompt is right on all rows."""
    return AdvisedTask(_task(rng.randint(30, 300)), _with(_model(rng.getrandbits(30), 1.0)), "nothing")


def little_value(rng: random.Random) -> AdvisedTask:
    """A thousand calls at more than $0.001 each; a perfect prompt is worth less than $0.05 a month."""
    model = {
        "address": "openai/test",
        "price": {"input": rng.uniform(10, 30), "output": rng.uniform(20, 60)},
        "max_tokens": 200,
    }
    volume = {"answers_per_month": rng.uniform(1, 10), "gain_value": rng.uniform(0.0001, 0.005)}
    return AdvisedTask(_task(rng.randint(30, 300)), _with(model, **volume), "nothing")


def sufficient_part(rng: random.Random) -> AdvisedTask:
    """A usual part makes the prompt right on 96 rows of 100 or more; the test does not show the rest."""
    model = _model(rng.getrandbits(30), rng.uniform(0.1, 0.5), rng.uniform(0.96, 1.0))
    return AdvisedTask(_task(rng.randint(20, 60), train=80), _with(model, pilot=True), "write")


def explained_errors(rng: random.Random) -> AdvisedTask:
    """What is wrong stands in critiques, a model can write, and there is room."""
    model = _model(rng.getrandbits(30), rng.uniform(0.2, 0.6))
    return AdvisedTask(_task(rng.randint(60, 300), _explains), _with(model), "learn")


def _labelled_task(train: int, prompt: str) -> whet.Task:
    def rows(first: int, size: int) -> list[dict[str, str]]:
        return [
            {"input": f"{('a warm', 'a bad')[n % 2]} day {n}", "target": ("good", "bad")[n % 2]}
            for n in range(first, first + size)
        ]

    splits = {"train": rows(0, train), "validation": rows(1000, 40), "test": rows(2000, 100)}
    return whet.Task.of(prompt, data=splits, labels=["good", "bad"], reward="gap")


def labels_without_a_writer(rng: random.Random) -> AdvisedTask:
    """Labels that an encoder compares: no model writes, and the rows are too few to train a policy."""
    task = _labelled_task(rng.randint(30, 55), "Say {{input}}")
    return AdvisedTask(task, {"lm": "embedded/encoder", "optimizer_lm": "none"}, "search")


def labels_with_a_policy(rng: random.Random) -> AdvisedTask:
    """Labels that a model in this process scores, no model that writes, rows and calls for the training of a policy."""
    task = _labelled_task(rng.randint(80, 200), "Say {{input}} {{mask}}")
    return AdvisedTask(task, {"lm": "embedded/mlm", "optimizer_lm": "none"}, "train")


def any_room(rng: random.Random) -> AdvisedTask:
    """Difficulty and test rows of any size. Right is to add rows where the test does not show all that can be gained, nothing
    where nothing can, and else to learn."""
    share, seed = rng.uniform(0.5, 1.0), rng.getrandbits(30)

    def right(shown: float) -> str:
        return "mend" if 1 - share < shown else "learn"

    return AdvisedTask(_task(rng.randint(15, 300)), _with(_model(seed, share)), right)


def any_part(rng: random.Random) -> AdvisedTask:
    """A usual part gains anything from nothing to all. Right is to write it by hand where it leaves less than the test shows."""
    share = rng.uniform(0.1, 0.6)
    with_part, seed = rng.uniform(share, 1.0), rng.getrandbits(30)

    def right(shown: float) -> str:
        return "write" if 1 - with_part < shown else "learn"

    words = _with(_model(seed, share, with_part), pilot=True)
    return AdvisedTask(_task(rng.randint(20, 100), train=80), words, right)


def deaf_model(rng: random.Random) -> AdvisedTask:
    """No prompt changes an answer. Right is to do nothing."""
    model = _model(rng.getrandbits(30), rng.uniform(0.2, 0.7))
    return AdvisedTask(_task(rng.randint(60, 300), train=80), _with(model, pilot=True), "nothing")


World = Callable[[random.Random], AdvisedTask]
WORLDS: tuple[World, ...] = (
    blind_reward,
    few_test_rows,
    little_room,
    perfect_start,
    little_value,
    sufficient_part,
    explained_errors,
    labels_without_a_writer,
    labels_with_a_policy,
)
"""Kinds of tasks whose right answer is in what `advise` reads or measures."""
DRAWN: tuple[World, ...] = (any_room, any_part, deaf_model)
"""Kinds in which chance hides it, or where nothing that `advise` looks at shows it."""


def advise_on(world: World, number: int) -> tuple[str, str]:
    """What `whet.advise` decides on a task of a world, and what is right."""
    made = world(random.Random(f"{world.__name__} {number}"))
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            advice = whet.advise(made.task, progress=False, **made.words)
        finally:
            os.chdir(before)
    shown = advice["test"]["gain"]["none_worse"]
    right = made.right if isinstance(made.right, str) else made.right(math.inf if shown is None else shown)
    return str(advice["decision"]["name"]), right


def describe(pairs: Sequence[tuple[str, str]]) -> str:
    """How often the decision was right, with Wilson's interval, and what was said in the place of what."""
    found = interval([float(one == right) for one, right in pairs], 0.0, 1.0)
    others = Counter(f"{one} for {right}" for one, right in pairs if one != right).most_common()
    instead = ", ".join(f"{words} ({count})" for words, count in others) or "–"
    return f"{found.mean:.2f} [{found.low:.2f}, {found.high:.2f}] | {instead}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="How often `whet advise` names what is right.")
    parser.add_argument("--tasks", type=int, default=DEFAULT, help="tasks of each world")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    os.environ.setdefault("OPENAI_API_KEY", "not-used")
    print("| world | right | advised | instead |\n|---|---|---|---|")
    for world in (*WORLDS, *DRAWN):
        numbers = range(options.seed * options.tasks, (options.seed + 1) * options.tasks)
        pairs = [advise_on(world, number) for number in numbers]
        rights = " or ".join(sorted({right for _, right in pairs}))
        print(f"| {world.__name__.replace('_', ' ')} | {rights} | {describe(pairs)} |", flush=True)


if __name__ == "__main__":
    main()
