"""Prompts ranked by answers that they did not write: KTO's value of a prompt beside simpler readings of the same log.

    python benchmarks/logged_answers.py [--seeds 5] [--rows 60]

The model is `embedded/tiny`. Five clauses of a form are known, three of them are wanted. Twelve prompts name none to three of
the five. The log holds answers of all of them (temperature 1), each with a thumb: up where the answer keeps two of the three
wanted clauses or more, and one thumb in ten is wrong. A tenth, a half or nine tenths of the thumbs are up, of 60 or as many as
there are. `kto` is `whet.rl.logged_answers`, relative to the prompt that names nothing; `kto, z = 0` leaves the mismatched
answers out; `liked only` is the mean log-ratio of liked answers (imitation); `difference` subtracts that of disliked ones;
`thumbs of its own` is the share of thumbs up among the few answers that the prompt wrote itself.

What a prompt is truly worth is the mean reward of its greedy answers to 15 new lines. Rank correlation with that, and the worth
of the prompt that a rule puts first, less the mean worth: means over seeds with 95% intervals (Student).
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from benchmarks.learning import CHECKED, REWARD
from benchmarks.simulated.clause_tasks import combination, instruction_for, lines
from scipy import stats
from tools.embedded.clauses import transform

from whet.models.addresses import resolve
from whet.prompt import Prompt
from whet.rl.logged_answers import LoggedAnswer, kto_value
from whet.types import Example, Request

PROMPTS, EACH, NEW = 12, 10, 15
SHARES = (0.1, 0.5, 0.9)
VAGUE = "Rewrite the line in the right form."


def reward_of(line: str, wanted: Sequence[str], answer: str) -> float:
    """The share of the wanted clauses that an answer keeps."""
    space: dict[str, Any] = {}
    exec(REWARD, space)  # noqa: S102
    row = {"input": line, "clauses": list(wanted), "target": transform(line, wanted)}
    return float(space["reward"](row, answer)["reward"])


async def answer(
    model: Any, prompts: Sequence[Prompt], asked: Sequence[str], temperature: float
) -> list[list[str]]:
    """The answers of each prompt to each line."""
    requests = [
        Request(
            tuple(prompt.render(Example(line, {"input": line}, text=line))),
            temperature=temperature,
            max_tokens=30,
            sample=at,
        )
        for at, prompt in enumerate(prompts)
        for line in asked
    ]
    texts = [completions[0].text for completions in await model.generate_batch(requests)]
    return [texts[i * len(asked) : (i + 1) * len(asked)] for i in range(len(prompts))]


async def run_seed(model: Any, seed: int, rows: int) -> dict[tuple[float, str], tuple[float, float]]:
    """For each share of thumbs up and rule: rank correlation, and the gain of the prompt that is put first."""
    rng = random.Random(f"logged|{seed}")
    known = combination(seed, 5, CHECKED)
    wanted = rng.sample(known, 3)
    forms: dict[tuple[str, ...], None] = {}
    while len(forms) < PROMPTS:
        forms[tuple(sorted(rng.sample(known, rng.randint(0, 3))))] = None
    texts = [instruction_for(form) if form else VAGUE for form in forms]
    first, *prompts = (
        Prompt.parse(f"<!-- whet:begin -->\n{text}\n<!-- whet:end -->\n") for text in [VAGUE, *texts]
    )
    new = lines(1000 + seed, NEW)
    greedy = await answer(model, prompts, new, 0.0)
    worth = np.array(
        [np.mean([reward_of(x, wanted, y) for x, y in zip(new, own, strict=True)]) for own in greedy]
    )
    old = lines(seed, EACH)
    pool = []
    for writer, own in enumerate(await answer(model, prompts, old, 1.0)):
        for line, text in zip(old, own, strict=True):
            up = (reward_of(line, wanted, text) > 0.6) != (rng.random() < 0.1)
            pool.append((writer, LoggedAnswer({"input": line}, text, up)))
    rng.shuffle(pool)
    judged = [row for _, row in pool]
    pairs = [(row.answer, judged[i - 1].answer) for i, row in enumerate(judged)]
    scores = await model.score([first, *prompts], [row.values for row in judged], pairs)
    all_ratios = scores.logprobs[1:] - scores.logprobs[:1]
    results: dict[tuple[float, str], tuple[float, float]] = {}
    for share in SHARES:
        ups = [i for i, row in enumerate(judged) if row.good]
        downs = [i for i, row in enumerate(judged) if not row.good]
        most = min(rows, len(ups) / share, len(downs) / (1 - share))
        ups, downs = ups[: round(most * share)], downs[: round(most * (1 - share))]
        ratios, good = all_ratios[:, [*ups, *downs]], np.array([True] * len(ups) + [False] * len(downs))
        thumbs_of = np.full(PROMPTS, 0.5)
        for number in range(PROMPTS):
            thumbs = [judged[i].good for i in (*ups, *downs) if pool[i][0] == number]
            thumbs_of[number] = (sum(thumbs) + 1) / (len(thumbs) + 2)
        rules = {
            "kto": np.array([kto_value(r[:, 0], r[:, 1], good).value for r in ratios]),
            "kto, z = 0": np.array([kto_value(r[:, 0], 0 * r[:, 1], good).value for r in ratios]),
            "liked only": ratios[:, good, 0].mean(axis=1),
            "difference": ratios[:, good, 0].mean(axis=1) - ratios[:, ~good, 0].mean(axis=1),
            "thumbs of its own": thumbs_of,
        }
        for name, values in rules.items():
            ranked = float(stats.spearmanr(values, worth).statistic)
            results[share, name] = (ranked, float(worth[int(values.argmax())] - worth.mean()))
        print(f"seed {seed}, {len(ups)} of {len(good)} up: {results}", file=sys.stderr, flush=True)
    return results


def interval(values: Sequence[float]) -> str:
    """Mean and 95% interval (Student)."""
    mean, n = float(np.mean(values)), len(values)
    half = float(stats.t.ppf(0.975, n - 1) * np.std(values, ddof=1) / n**0.5) if n > 1 else float("nan")
    return f"{mean:+.3f} [{mean - half:+.3f}, {mean + half:+.3f}]"


async def main(options: argparse.Namespace) -> None:
    """Print the table."""
    model = resolve("embedded/tiny")
    seeds = [await run_seed(model, seed, options.rows) for seed in range(options.seeds)]
    print(
        "| thumbs up, rule | rank correlation | less kto's | worth of the first, above the mean |\n|---|---|---|---|"
    )
    for share, name in seeds[0]:
        ranks, gains = zip(*(seed[share, name] for seed in seeds), strict=True)
        less = [seed[share, name][0] - seed[share, "kto"][0] for seed in seeds]
        beside = "" if name == "kto" else interval(less)
        print(f"| {share:.0%}, {name} | {interval(ranks)} | {beside} | {interval(gains)} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=60)
    asyncio.run(main(parser.parse_args()))
