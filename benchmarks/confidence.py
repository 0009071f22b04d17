"""Which figure chooses the better prompt where rows are few: right answers, the reward `confidence`, or the likelihood?

    python benchmarks/confidence.py [--seeds 10] [--prompts 200] [--draws 20] [--model encoder]

examples/python-docs. A seed draws prompts of five words (the space of `random_search`); all rows are scored with each of them.
Then 16, 32, 64 or 400 rows are drawn, and each figure chooses the prompt that is best on them, the first of equals. What counts
is the accuracy of the prompt on the rows that are left. Means over draws within a seed; differences are paired by seed, with a
95% interval (Student). The control `random` chooses any prompt. `ties` counts the prompts that share the first place by right
answers.
"""

from __future__ import annotations

import argparse
import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
from numpy.typing import NDArray

from whet.environments.environment import Environment
from whet.models.embedded import load
from whet.rewards.scored import Confidence, Likelihood
from whet.rewards.text import ExactMatch
from whet.search.edits import with_words
from whet.search.vocabulary import vocabulary
from whet.stats.rates import student_quantile
from whet.task import load_task

TASK = Path(__file__).parent.parent / "examples" / "python-docs"
ROWS, WORDS = (16, 32, 64, 400), 5
Table = NDArray[np.float64]
FIGURES: dict[str, Callable[[Table, NDArray[np.int64]], Table]] = {
    "right answers": ExactMatch().from_labels,
    "confidence": Confidence().from_labels,
    "likelihood": Likelihood().from_labels,
}


def score_prompts(seed: int, prompts: int, model: str) -> tuple[dict[str, Table], Table]:
    """Each figure of random prompts on all rows, shape (prompts, rows), and whether the answers are right."""
    task, rng = load_task(TASK), random.Random(seed)
    env = Environment(load(model), ExactMatch(), task.train, task.validation, task.labels, scores=True)
    words = vocabulary(env, 1000)
    made = {p.id: p for _ in range(prompts) if (p := with_words(task.prompt, rng.choices(words, k=WORDS)))}
    rows = [*task.train, *task.validation, *task.test]
    order = {label: place for place, label in enumerate(task.labels)}
    targets = np.array([order[str(row.target)] for row in rows])
    probs = asyncio.run(env.label_probs(list(made.values()), rows))
    return {name: figure(probs, targets) for name, figure in FIGURES.items()}, ExactMatch().from_labels(
        probs, targets
    )


def choices(seed: int, prompts: int, draws: int, model: str) -> dict[tuple[int, str], float]:
    """The mean accuracy, on rows that were not drawn, of the prompt that each figure chooses; by number of rows and figure."""
    tables, right = score_prompts(seed, prompts, model)
    rng = np.random.default_rng(seed)
    outcomes: dict[tuple[int, str], list[float]] = {}
    for rows in ROWS:
        for _ in range(draws):
            order = rng.permutation(right.shape[1])
            drawn, left = order[:rows], order[rows:]
            for name, table in tables.items():
                best = int(table[:, drawn].mean(1).argmax())
                outcomes.setdefault((rows, name), []).append(float(right[best][left].mean()))
            any_prompt = int(rng.integers(len(right)))
            outcomes.setdefault((rows, "random"), []).append(float(right[any_prompt][left].mean()))
            means = right[:, drawn].mean(1)
            outcomes.setdefault((rows, "ties"), []).append(float((means == means.max()).sum()))
    return {key: fmean(values) for key, values in outcomes.items()}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--prompts", type=int, default=200)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--model", default="encoder", help="an embedded model that scores labels")
    options = parser.parse_args()
    seeds = [choices(seed, options.prompts, options.draws, options.model) for seed in range(options.seeds)]
    print("| rows and figure | accuracy | more than by right answers | ties |\n|---|---|---|---|")
    for rows in ROWS:
        for name in ("random", *FIGURES):
            gaps = [one[rows, name] - one[rows, "right answers"] for one in seeds]
            half = student_quantile(0.975, len(gaps) - 1) * stdev(gaps) / len(gaps) ** 0.5
            ahead = f"{fmean(gaps):+.4f} [{fmean(gaps) - half:+.4f}, {fmean(gaps) + half:+.4f}]"
            plain = name == "right answers"
            ties = f"{fmean(one[rows, 'ties'] for one in seeds):.1f}" if plain else ""
            mean = fmean(one[rows, name] for one in seeds)
            print(f"| {rows} rows, {name} | {mean:.3f} | {'' if plain else ahead} | {ties} |", flush=True)


if __name__ == "__main__":
    main()
