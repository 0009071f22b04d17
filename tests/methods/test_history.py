"""What an optimizer sees of earlier attempts (raw, summary, none): what is shown, and what it is worth to a simulated reader."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import pytest
from tests.methods.figures import on_seeds, won_over
from tests.methods.readers import SCORED, ScoreReader, gauss
from tests.methods.test_opro import PLAIN, numbered, search
from tests.methods.test_vista import search as search_vista

from whet.models.scripted import load, luck, request_text
from whet.run import Budget
from whet.search.edits import PHRASES
from whet.search.history import History, show_attempts, show_score
from whet.testing.paired_benchmark import KnownWorld, play_world
from whet.testing.simulated_task import review_world
from whet.types import Request, Score


async def test_opro_shows_scores_scores_with_intervals_or_the_best_text_alone() -> None:
    questions = {}
    for history in ("raw", "summary", "none"):
        _, model, run = await search(numbered(), steps=3, samples=4, history=history)
        questions[history] = model.questions[-1]
    assert re.findall(r"(?m)^Score: \d+$", questions["raw"])
    summary = re.findall(r"(?m)^Score: (\d+) \(95% interval (\d+) to (\d+), 50 rows\)$", questions["summary"])
    assert len(summary) == questions["summary"].count("</INSTRUCTION>\nScore: ") > 4
    assert all(int(low) <= int(mean) <= int(high) for mean, low, high in summary)
    none = questions["none"]
    assert "Score" not in none and none.count("<INSTRUCTION>\n") == 1 and "The instruction in use:" in none
    known: list[Any] = [value for name, value in run.logged if name == "candidate"]
    known = [value for value in known if value["operator"] != "step 3"]
    text = none.split("<INSTRUCTION>\n")[1].split("\n</INSTRUCTION>")[0]
    (shown,) = [value["train"] for value in known if f"\n{text}\n<!--" in value["messages"][0][1]]
    assert shown == max(value["train"] for value in known)


async def test_vista_shows_each_trial_counts_and_means_or_nothing() -> None:
    shown = {}
    for history in ("raw", "summary", "none"):
        _, model, _ = await search_vista(rounds=8, hypotheses=3, history=history)
        shown[history] = [q.split("followed:\n")[1] for q in model.questions if "followed:\n" in q]
    assert re.match(r"- .+: [+-]\d\.\d\d\n", shown["raw"][0]) and not shown["none"]
    assert re.match(r"- .+: \d attempts?, mean [+-]\d\.\d\d", shown["summary"][0])


def test_a_summary_has_a_line_for_each_label() -> None:
    tried = [("form", 0.5), ("order", -0.25), ("form", 0.1), ("form", 0.3)]
    assert show_attempts("raw", tried, 1.0).splitlines() == [
        "- form: +0.50", "- order: -0.25", "- form: +0.10", "- form: +0.30",
    ]  # fmt: skip
    form, order = show_attempts("summary", tried, 1.0).splitlines()
    assert form.startswith("- form: 3 attempts, mean +0.30 (95% interval -") and form.endswith(")")
    assert order == "- order: 1 attempt, mean -0.25"
    assert show_attempts("none", tried, 1.0) == show_attempts("summary", [], 1.0) == ""
    score = Score(0.5, 4, rewards={str(i): float(i % 2) for i in range(4)})
    percent = {"low": 0.0, "high": 1.0, "shown": lambda value: round(100 * value)}
    assert show_score("raw", score, **percent) == "50"  # type: ignore[arg-type]
    assert show_score("summary", score, **percent) == "50 (95% interval 15 to 85, 4 rows)"  # type: ignore[arg-type]
    assert show_score("summary", Score(0.5, 4), **percent) == "50 (4 rows)"  # type: ignore[arg-type]


# The study: a reader that compares the scores it is shown, in a world with many rows for each text and in one with few.


class HistoryReader(ScoreReader):
    """Compares scores where it sees some; of a text without a score it changes any phrases."""

    def answer(self, request: Request, sample: int) -> str:
        question = request_text(request)
        if SCORED.search(question):
            return super().answer(request, sample)
        base = question.split("<INSTRUCTION>\n")[1].split("\n</INSTRUCTION>")[0]
        draw = luck(request, sample)
        for phrase in sorted(PHRASES, key=lambda phrase: gauss(self.seed, draw, phrase))[:2]:
            base = base.replace(phrase, "") if phrase in base else f"{base} {phrase}"
        return f"<INSTRUCTION>{' '.join(base.split())}</INSTRUCTION>"


ROWS = {"many rows": 80, "few rows": 12}
SEEDS = 10


@cache
def reached(world: str, history: History, seeds: int) -> list[float]:
    """What OPRO finds in each of the worlds, by seed: eight phrases help, five hinder."""

    def climb(seed: int) -> KnownWorld:
        words = {
            "words": "carefully,evidence,tone,negations,irony,precise,literally,facts",
            "harmful": "expert,step,explain,brief,likely",
        }
        model: Any = load("labels", {**words, "harm": "0.08", "base": "0.4", "seed": str(seed)})
        reader: Any = HistoryReader("reader", {"seed": str(seed)})
        env = review_world(model, train=ROWS[world], validation=30)
        return KnownWorld(env, PLAIN, lambda p: model.accuracy(p.source), reader)

    settings = {"history": history, "examples": ROWS[world]}
    calls = Budget(task_calls=1500)
    return [play_world("opro", climb(seed), seed, calls, settings) for seed in range(seeds)]


@on_seeds(6, SEEDS)
@pytest.mark.parametrize("world", ["many rows", pytest.param("few rows", marks=pytest.mark.long)])
def test_what_a_history_is_worth(world: str, seeds: int) -> None:
    raw, summary, none = (reached(world, history, seeds) for history in ("raw", "summary", "none"))
    for name, values in (("raw", raw), ("summary", summary), ("none", none)):
        print(f"\n{world}: {name} {sum(values) / len(values):.3f}")
    against_none = won_over(f"{world}: none behind raw", raw, none)
    against_raw = won_over(f"{world}: raw behind summary", summary, raw)
    won_over(f"{world}: none behind summary", summary, none)
    assert against_none.low > 0
    assert abs(against_raw.mean) < against_none.mean, "the same means, read by the same reader"
