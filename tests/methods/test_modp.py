"""MODP: the weakest objective is the direction, floors hold, a refusal turns to the next one, and the aim is worth something."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import Any

from whet.environments.environment import Environment
from whet.methods.modp import Config, modp
from whet.models.scripted import chance, choose_by_luck
from whet.prompt import Prompt
from whet.rewards import Objective, Objectives
from whet.rl import LanguagePolicy
from whet.run import Budget, Run
from whet.search.archive import Candidate
from whet.stats import Goal
from whet.testing.paired_benchmark import T_95
from whet.testing.runs import MeteredRun
from whet.testing.simulated_task import Answers
from whet.types import Completion, Example, Reward, Usage

CONFORMANCE = {"rounds": 4, "edits": 2, "examples": 12}
"""Settings of a run in the conformance suite."""

AIMS = ("polite", "short", "exact", "safe", "cited")
WORDS = {aim: [f"{aim}{i}" for i in range(4)] for aim in AIMS}
START = Prompt.parse(
    "<!-- whet:begin -->\n"
    + " ".join(word for aim in AIMS[:4] for word in WORDS[aim])
    + "\n<!-- whet:end -->\nQ: {{input}}"
)


@dataclass(frozen=True)
class Share:
    """The share of an aim's words that an answer has."""

    name: str
    low: float = 0.0
    high: float = 1.0
    needs: frozenset[str] = frozenset()

    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        return Reward(sum(word in completion.text.split() for word in WORDS[self.name]) / 4)


def words_in(text: str) -> set[str]:
    return {word for words in WORDS.values() for word in words} & set(re.findall(r"\w+", text))


def answers(question: str, sample: int) -> Completion:
    """Keeps nine of ten words of the prompt."""
    kept = [word for word in sorted(words_in(question)) if chance(question[-12:], word, sample) < 0.9]
    return Completion(" ".join(kept), usage=Usage(10, len(kept)))


def editor(seed: int, directed: bool) -> Answers:
    """Adds a missing word of the aim it is asked for, and swaps words in the dark where none is missing. Undirected it takes
    any aim."""

    def answer(question: str, sample: int) -> str:
        now = words_in(question.partition("<INSTRUCTION>")[2].partition("</INSTRUCTION>")[0])
        at_aim = next(aim for aim in AIMS if f"improves this aim: {aim}" in question)
        aim = at_aim if directed else choose_by_luck(AIMS, seed, "aim", question, sample)
        missing = [word for word in WORDS[aim] if word not in now]
        lost = set() if missing else {choose_by_luck(sorted(now), seed, "lost", question, sample)}
        return f"<PROMPT>{' '.join(sorted((now - lost) | set(missing[:1])))}</PROMPT>"

    return Answers(answer)


def task(**weights: float) -> Environment:
    goals = [Goal(aim, maximise=True, width=1.0, margin=0.3) for aim in AIMS]
    items = tuple(Objective(goal, part=i, weight=weights.get(goal.name, 1.0)) for i, goal in enumerate(goals))
    rows = [Example(f"r{i}", {"input": f"row {i}"}, None, {"input": f"row {i}"}) for i in range(30)]
    known = {**dict.fromkeys(AIMS, 0.9), "cited": 0.0}
    reward = Objectives([(1.0, Share(aim)) for aim in AIMS], items=items, baseline=known)
    return Environment(Answers(answers), reward, tuple(rows[:20]), tuple(rows[20:]))


async def search(
    env: Environment, optimizer: Answers, seed: int = 0, **more: Any
) -> tuple[Candidate, MeteredRun]:
    run = MeteredRun({"task": env.model, "optimizer": optimizer}, seed, **more)
    config = Config(rounds=8, edits=1, examples=10, finalists=2)
    return await modp(run, env, LanguagePolicy(), START, config), run


async def test_the_objective_that_lacks_most_is_the_direction_and_its_worst_rows_are_shown() -> None:
    optimizer = editor(0, directed=True)
    best, run = await search(task(), optimizer)
    first = optimizer.questions[0]
    assert (
        "improves this aim: cited (more is better)" in first
        and re.search(r"- polite: 0\.[89]\d*, more", first)
        and "- cited: 0, more" in first
    )
    assert first.count("\ncited: 0") == 4, (
        "as many rows as settings say, with what they score in the objective"
    )
    assert words_in(best.prompt.source) >= set(WORDS["cited"])
    operators = [
        value["operator"] for name, value in run.logged if name == "candidate" and isinstance(value, dict)
    ]
    assert operators[0] == "aimed at cited"


async def test_weights_decide_the_direction() -> None:
    optimizer = editor(0, directed=True)
    await search(task(cited=0.01, polite=20.0), optimizer)
    assert "improves this aim: polite" in optimizer.questions[0]


async def test_an_edit_that_lets_another_objective_fall_below_its_floor_is_refused() -> None:
    """It adds all that is missing and drops another aim: the whole gains, one objective loses more than its margin."""
    text = " ".join(word for aim in ("short", "exact", "safe", "cited") for word in WORDS[aim])
    best, _ = await search(task(cited=3.0), Answers(lambda question, sample: f"<PROMPT>{text}</PROMPT>"))
    assert best.prompt == START


async def test_floors_stand_below_what_the_start_reaches_on_the_same_rows() -> None:
    """Training rows on which every prompt is less polite than on validation are no reason to refuse edits."""

    def harder(question: str, sample: int) -> Completion:
        whole = answers(question, sample)
        row = int(re.findall(r"row (\d+)", question)[-1])
        kept = [word for word in whole.text.split() if row >= 20 or word not in WORDS["polite"][:2]]
        return replace(whole, text=" ".join(kept))

    best, _ = await search(replace(task(), model=Answers(harder)), editor(0, directed=True))
    assert words_in(best.prompt.source) >= set(WORDS["cited"])


async def test_a_refusal_turns_to_the_next_objective() -> None:
    useless = Answers(lambda question, sample: f"<PROMPT>Nothing {len(question)} {sample}.</PROMPT>")
    await search(task(), useless)
    aims = [
        next(aim for aim in AIMS if f"improves this aim: {aim}" in question) for question in useless.questions
    ]
    assert aims[0] == "cited" and len(set(aims[:3])) == 3


async def test_a_task_without_objectives_has_one() -> None:
    env = replace(task(), reward=Share("cited"))
    optimizer = Answers(lambda question, sample: f"<PROMPT>{' '.join(WORDS['cited'])} {sample}</PROMPT>")
    best, _ = await search(env, optimizer)
    assert (
        "improves this aim: reward (more is better)" in optimizer.questions[0]
        and "cited0" in best.prompt.source
    )


async def test_beats_itself_without_the_aim() -> None:
    """The same edits, aimed at any objective: four of five have nothing to gain. Equal calls, paired by seed."""
    gaps = []
    for seed in range(6):
        worth = []
        for directed in (True, False):
            limits = Budget(task_calls=300, optimizer_calls=30)
            best, run = await search(task(), editor(seed, directed), seed, limits=limits)
            assert run.spent["task"] <= 300
            worth.append(len(words_in(best.prompt.source)) / 20)
        gaps.append(worth[0] - worth[1])
    assert fmean(gaps) - T_95[6] * stdev(gaps) / 6**0.5 > 0.03, gaps
