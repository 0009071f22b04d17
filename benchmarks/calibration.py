"""Weights of labels for prompts of random words: none, by contextual calibration, or fitted to labelled rows.

    python benchmarks/calibration.py [--seeds 5] [--prompts 12] [--rows 400] [--model encoder]

examples/python-docs. A seed draws rows and prompts of five words (the space of `random_search`); the rows are scored with each
of them, and so are the inputs that say nothing. Probabilities are kept below --root, so an interrupted benchmark goes on.
`calibrated` are the weights of `reanchor --set fit=content-free`, which need no label; `20 rows` and `100 rows` those that
`reanchor` fits to so many labelled rows, drawn once a prompt. Accuracy is measured on the rows that no arm was fitted to, the
same ones for all. Means over the prompts of a seed, and the spread (standard deviation) of the accuracy over them; differences
are paired by seed, with a 95% interval (Student).
"""

from __future__ import annotations

import argparse
import asyncio
import random
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
from numpy.typing import NDArray

from whet.environments.environment import Environment
from whet.models.embedded import load
from whet.rewards.text import ExactMatch
from whet.search.edits import with_words
from whet.search.label_weights import WeightFit, content_free_rows, contextual_weights, deal, weigh
from whet.search.vocabulary import vocabulary
from whet.stats.rates import student_quantile
from whet.task import load_task

TASK = Path(__file__).parent.parent / "examples" / "python-docs"
FITTED, WORDS, FOLDS, PASSES = (20, 100), 5, 5, 2
ARMS = ("no weights", "calibrated", *(f"{n} rows" for n in FITTED))


def accuracies(seed: int, prompts: int, most: int, model: str, root: Path) -> dict[str, NDArray[np.float64]]:
    """The accuracy of each prompt by arm, on the rows behind the first 100 of an order drawn for the prompt."""
    task, rng = load_task(TASK), random.Random(seed)
    env = Environment(load(model), ExactMatch(), task.train, task.validation, task.labels, scores=True)
    words = vocabulary(env, 1000)
    made = {p.id: p for _ in range(prompts) if (p := with_words(task.prompt, rng.choices(words, k=WORDS)))}
    rows = rng.sample([*task.train, *task.validation, *task.test], most)
    places = {label: place for place, label in enumerate(task.labels)}
    right = np.array([places[str(row.target)] for row in rows])
    blank = content_free_rows(rows[0])
    kept = root / f"{model}-{seed}-{prompts}-{most}.npy"
    if not kept.is_file():
        root.mkdir(parents=True, exist_ok=True)
        np.save(kept, asyncio.run(env.label_probs(list(made.values()), [*rows, *blank])))
    probs = np.load(kept)
    found: dict[str, list[float]] = {arm: [] for arm in ARMS}

    def score(shares: NDArray[np.float64], labels: NDArray[np.int64]) -> NDArray[np.float64]:
        rewards: NDArray[np.float64] = ExactMatch().from_labels(shares[None], labels)[0]
        return rewards

    for seen in probs:
        order = rng.sample(range(len(rows)), len(rows))
        left = np.array(order[max(FITTED) :])
        weights = {"no weights": np.ones(len(places)), "calibrated": contextual_weights(seen[len(rows) :])}
        for n in FITTED:
            drawn = np.array(order[:n])
            folds = deal([rows[i] for i in drawn], FOLDS)
            weights[f"{n} rows"] = WeightFit(seen[drawn], right[drawn], score, folds).fit(PASSES)
        for arm, values in weights.items():
            found[arm].append(float(score(weigh(seen[left], values), right[left]).mean()))
    return {arm: np.array(values) for arm, values in found.items()}


def shown(gaps: list[float]) -> str:
    """The mean of differences with its 95% interval."""
    half = student_quantile(0.975, len(gaps) - 1) * stdev(gaps) / len(gaps) ** 0.5
    return f"{fmean(gaps):+.3f} [{fmean(gaps) - half:+.3f}, {fmean(gaps) + half:+.3f}]"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--prompts", type=int, default=12)
    parser.add_argument("--rows", type=int, default=400, help="rows of a seed, 100 of them to fit to")
    parser.add_argument("--root", type=Path, default=Path("runs/calibration"))
    parser.add_argument("--model", default="encoder", help="an embedded model that scores labels")
    given = parser.parse_args()
    seeds = [
        accuracies(seed, given.prompts, given.rows, given.model, given.root) for seed in range(given.seeds)
    ]
    print(
        "| weights | accuracy | worst prompt | spread over prompts | more than without weights | worse prompts |"
    )
    print("|---|---|---|---|---|---|")
    for arm in ARMS:
        means, bare = [one[arm].mean() for one in seeds], [one["no weights"] for one in seeds]
        worse = fmean(float((one[arm] < plain).mean()) for one, plain in zip(seeds, bare, strict=True))
        gaps = [float(mean - plain.mean()) for mean, plain in zip(means, bare, strict=True)]
        spread, least = fmean(one[arm].std(ddof=1) for one in seeds), fmean(one[arm].min() for one in seeds)
        ahead = "" if arm == "no weights" else shown(gaps)
        print(
            f"| {arm} | {fmean(means):.3f} | {least:.3f} | {spread:.3f} | {ahead} | {worse:.0%} |", flush=True
        )


if __name__ == "__main__":
    main()
