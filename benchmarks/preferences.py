"""Preferences to a prompt: what reward models are worth on unseen inputs, what to ask next, and the alarm. Prints the tables of
docs/figures.md.

    python benchmarks/preferences.py [--seeds 10] [--only held-out|asking|alarm]

`held-out` reads four sets of human preferences in place: folders preference_hhh, preference_llmbar, preference_pandalm and
preference_hh_harmless below WHET_DATA (default: ../shared/data beside the checkout); a set that is not there is left
out. `asking`
and `alarm` are simulated: people, task model and optimizer model are small programs. In `alarm` people like an answer that is
short and has up to three exclamation marks; they judged answers of 20 to 60 words with at most three marks. A reward
model that is
linear in counts goes on where people do not: fewer words than say anything, and more marks than anybody likes. A hidden scorer,
the true taste, says how often the found prompt's answers win against those of the start prompt. About four minutes on one core.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import random
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

import whet
from whet.rewards.preference import (
    JudgedAnswers,
    PreferencePair,
    fit_judgements,
    information_gain,
    strengths_of,
)
from whet.stats.logistic import sigmoid

DATA = Path(os.environ.get("WHET_DATA", Path(__file__).parents[2] / "shared" / "data"))
PROMPT = (
    "Answer in a helpful way.\n<!-- whet:begin -->\nWords: 40. Marks: 0.\n<!-- whet:end -->\n\n{{question}}\n"
)


# Human preferences


def rows_of(name: str) -> list[dict[str, Any]]:
    """The rows of a set; none where it is not there."""
    files = sorted((DATA / name).glob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text("utf-8").splitlines()]


def pandalm() -> list[PreferencePair]:
    """One pair for each vote of the three annotators that is no tie; rows with an answer that is no text are left out."""
    pairs = []
    for row in rows_of("preference_pandalm"):
        answers = row["response_1"], row["response_2"]
        if not all(isinstance(answer, str) for answer in answers):
            continue
        query = f"{row['instruction']}\n\n{row['input']}".strip()
        for number, vote in enumerate(row["votes"], 1):
            if vote in (1, 2):
                pairs.append(
                    PreferencePair(query, answers[vote - 1], answers[2 - vote], f"annotator {number}")
                )
    return pairs


def chosen_pairs(name: str, query: str) -> Callable[[], list[PreferencePair]]:
    """The pairs of a set with a chosen and a rejected answer."""
    return lambda: [PreferencePair(r[query], r["chosen"], r["rejected"]) for r in rows_of(name)]


def llmbar() -> list[PreferencePair]:
    """The pairs of LLMBar."""
    rows = rows_of("preference_llmbar")
    return [
        PreferencePair(r["input"], r[f"output_{r['preferred']}"], r[f"output_{3 - r['preferred']}"])
        for r in rows
    ]


SETS: Mapping[str, Callable[[], list[PreferencePair]]] = {
    "HHH": chosen_pairs("preference_hhh", "input"),
    "LLMBar": llmbar,
    "PandaLM": pandalm,
    "HH harmless": chosen_pairs("preference_hh_harmless", "context"),
}


def held_out() -> None:
    """The share of unseen judgements that reward models order as people did."""
    print(
        "| preferences | inputs | judgements | features | ordered as people did | Brier score | calibration error | a run |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for name, read in SETS.items():
        judged = JudgedAnswers(tuple(pair for pair in read() if pair.better != pair.worse))
        for features in ("surface", "words") if len(judged) else ():
            one = fit_judgements(judged, features).held_out
            print(
                f"| {name}, {features} | {one.inputs} | {len(judged)} | {features} | {one.accuracy:.3f} [{one.low:.3f}, "
                f"{one.high:.3f}] | {one.brier:.3f} (base {one.base_brier:.3f}) | {one.error:.3f} | "
                f"{'goes on' if one.beats_chance else 'is refused'} |"
            )


# What to ask next


def asking_world(
    seed: int, inputs: int = 60
) -> tuple[list[tuple[str, str, str]], list[float], list[tuple[str, str, str]]]:
    """Questions that may be asked with the true log-odds of the first answer, and as many pairs to test on.

    Of four in five questions the two answers differ in a place where all are alike for people; one in five tells of taste.
    """
    rng = random.Random(seed)

    def answer(words: int, marks: int) -> str:
        return " ".join(["word"] * words) + "!" * marks

    pairs = []
    for i in range(2 * inputs):
        plain = rng.random() < 0.8
        words, marks = rng.randint(5, 40), rng.randint(0, 4)
        other = (words + rng.choice((-1, 0, 1)), marks) if plain else (rng.randint(5, 40), rng.randint(0, 4))
        pairs.append((f"question {i}", answer(words, marks), answer(*other)))
    odds = [
        4 * (math.log1p(a.count("!")) - math.log1p(b.count("!")))
        - 2 * (math.log1p(a.count("word")) - math.log1p(b.count("word")))
        for _, a, b in pairs
    ]
    return pairs[:inputs], odds, pairs[inputs:]


def ask(by: str, seed: int, labels: Sequence[int], batch: int = 5) -> list[float]:
    """The accuracy on the test pairs that differ in taste, after each number of `labels`, asked in batches.

    Accuracy is the mean probability of agreeing with a person who prefers with the true odds."""
    pairs, odds, test = asking_world(seed, 200)
    rng = np.random.default_rng(seed)
    answered = rng.random(len(pairs)) < sigmoid(np.array(odds[: len(pairs)]))
    asked, left, accuracies = [], list(range(len(pairs))), []
    rng.shuffle(left)
    model = None
    while len(asked) < labels[-1]:
        if by == "information" and model is not None:
            first, second = (
                strengths_of(model, [""] * len(left), [pairs[i][side] for i in left]) for side in (1, 2)
            )
            left = [left[k] for k in np.argsort(-information_gain(first, second), kind="stable")]
        asked, left = [*asked, *left[:batch]], left[batch:]
        if len(asked) < 20:
            continue
        told = [
            PreferencePair(
                pairs[i][0], *((pairs[i][1], pairs[i][2]) if answered[i] else (pairs[i][2], pairs[i][1]))
            )
            for i in asked
        ]
        model = fit_judgements(JudgedAnswers(tuple(told)), "surface").model
        if len(asked) in labels:
            first, second = (
                strengths_of(model, [""] * len(test), [p[side] for p in test]).mean(axis=0) for side in (1, 2)
            )
            says, likely = first > second, sigmoid(np.array(odds[len(pairs) :]))
            told_apart = np.abs(likely - 0.5) > 0.1
            accuracies.append(float(np.where(says, likely, 1 - likely)[told_apart].mean()))
    return accuracies


def asking(seeds: int) -> None:
    """Accuracy after some labels, chosen by information or at random."""
    labels = (20, 40, 60, 80)
    print("| questions chosen | " + " | ".join(f"{n} labels" for n in labels) + " |")
    print("|---|" + "---|" * len(labels))
    for by in ("random", "information"):
        each = [ask(by, seed, labels) for seed in range(seeds)]
        print(f"| {by} | " + " | ".join(f"{fmean(column):.3f}" for column in zip(*each, strict=True)) + " |")


# The alarm


def words_and_marks(text: str) -> tuple[int, int]:
    """What a prompt or an answer of the simulated world says: words and marks that it wants."""
    words, marks = (re.findall(rf"{name}: (\d{{1,3}})", text) for name in ("Words", "Marks"))
    return int(words[-1]) if words else 40, int(marks[-1]) if marks else 0


def answer_of(words: int, marks: int, query: str) -> str:
    """An answer of about so many words with so many exclamation marks; the question decides how many exactly."""
    jitter = int(hashlib.sha256(query.encode()).hexdigest(), 16) % 5 - 2
    return " ".join(["word"] * max(0, words + jitter)) + "!" * marks


def task_model(messages: Sequence[Any]) -> str:
    """Does what the prompt says."""
    text = "\n".join(str(message.content) for message in messages)
    return answer_of(*words_and_marks(text), text.strip().splitlines()[-1])


def simulated_optimizer(seed: int) -> Callable[[Sequence[Any]], str]:
    """A model that changes the numbers of the last instruction that it was shown, the best one, at random."""
    _DRAWN[seed] = 0

    def optimizer(messages: Sequence[Any]) -> str:
        text = "\n".join(str(message.content) for message in messages)
        shown = [line for line in text.splitlines() if "Words:" in line]
        words, marks = words_and_marks(shown[-1] if shown else "")
        _DRAWN[seed] += 1
        rng = random.Random(f"{seed} {_DRAWN[seed]} {text}")
        words = max(0, words + rng.choice((-12, -8, -4, 0, 4)))
        marks = max(0, marks + rng.choice((-1, 0, 0, 1, 2, 3)))
        return f"<instruction>\nWords: {words}. Marks: {marks}.\n</instruction>"

    return optimizer


_DRAWN: dict[int, int] = {}
"""How often each optimizer was asked, so that it writes other texts to the same request."""


def taste(answer: str) -> float:
    """The hidden scorer: how good an answer is to people, in nats."""
    words, marks = answer.count("word"), answer.count("!")
    length = -0.08 * (words - 15) if words >= 15 else -0.4 * (15 - words)
    return length + 0.9 * min(marks, 3) - 1.2 * max(0, marks - 3)


def thumbs(seed: int, n: int = 200) -> list[dict[str, Any]]:
    """Thumbs of simulated people on answers of 20 to 60 words with 0 to 3 marks, two answers to an input."""
    rng, rows = random.Random(seed), []
    for i in range(n):
        query = f"question {seed}-{i // 2}"
        answer = answer_of(rng.randint(20, 60), rng.randint(0, 3), query)
        up = rng.random() < 1 / (1 + math.exp(-(taste(answer) + 0.8)))
        rows.append({"id": f"r{i}", "input": query, "output": answer, "thumb": up, "user": f"person {i % 9}"})
    return rows


def found(seed: int, folder: Path, *, brake: float, alarm: bool) -> dict[str, Any]:
    """One run from 200 thumbs to a proposal."""
    (folder / "prompt.md").write_text(PROMPT)
    result = whet.learn_preferences(
        folder / "prompt.md", thumbs(seed), lm=task_model, optimizer_lm=simulated_optimizer(seed), brake=brake, alarm=alarm,
        settings={"steps": 15, "samples": 4, "examples": 12}, root=folder, seed=seed, anyway=True, progress=False,
        confirm=lambda proposal: False,
    )  # fmt: skip
    return dict(result)


def win_rate(prompt: str, seed: int) -> float:
    """How often people prefer the answers of a prompt to those of the start prompt, by the hidden scorer, on 200 new inputs."""
    wins = []
    for i in range(200):
        query = f"new question {seed}-{i}"
        new, old = (taste(answer_of(*words_and_marks(text), query)) for text in (prompt, PROMPT))
        wins.append(1 / (1 + math.exp(old - new)))
    return fmean(wins)


def alarm(seeds: int) -> None:
    """The hidden scorer's verdict on what is found with and without the brake and the alarm."""
    print(
        "| arm | runs | the alarm rang | reward model, sealed | win rate by the hidden scorer | worst run |"
    )
    print("|---|---|---|---|---|---|")
    for name, brake, rings in (
        ("neither", 0.0, False),
        ("brake", 1.0, False),
        ("alarm", 0.0, True),
        ("both", 1.0, True),
    ):
        runs = []
        for seed in range(seeds):
            with tempfile.TemporaryDirectory() as folder:
                runs.append((seed, found(seed, Path(folder), brake=brake, alarm=rings)["run"]))
        rates = [win_rate(run["best"]["prompt"], seed) for seed, run in runs]
        error = 2.26 * float(np.std(rates, ddof=1)) / math.sqrt(len(rates)) if len(rates) > 1 else math.nan
        rang = sum(str(run["ended_by"]).startswith("the alarm") for _, run in runs)
        reward = fmean(run["best"]["test"]["mean"] for _, run in runs)
        print(
            f"| {name} | {len(runs)} | {rang} | {reward:.3f} | {fmean(rates):.3f} ± {error:.3f} | {min(rates):.3f} |",
            flush=True,
        )


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--only", choices=("held-out", "asking", "alarm"))
    args = parser.parse_args()
    for name, show in (
        ("held-out", held_out),
        ("asking", lambda: asking(args.seeds)),
        ("alarm", lambda: alarm(args.seeds)),
    ):
        if args.only in (None, name):
            print(f"\n{name}\n")
            show()


if __name__ == "__main__":
    main()
