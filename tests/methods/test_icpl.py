"""ICPL: what the person and the model see, who is asked and never twice; and what the worst prompt and the answers are worth."""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import pytest
from tests.methods import simulated_person
from tests.methods.figures import won_over
from tests.methods.readers import SHOWN

import whet
from whet.environments.environment import Environment
from whet.errors import UsageError
from whet.methods.icpl import ANSWERED, DISLIKED, EARLIER, LIKED, Config, check, icpl, within
from whet.models.scripted import Scripted, chance, choose_by_luck, luck, request_text, shuffle
from whet.prompt import Prompt
from whet.rl import LanguagePolicy, people
from whet.rl.person_picks import PersonPick, pick_at_terminal, pick_extremes
from whet.run import Budget, MemoryRun
from whet.search.archive import Candidate
from whet.search.edits import PHRASES
from whet.search.plan import SearchPlan
from whet.testing.paired_benchmark import KnownWorld, play_world
from whet.testing.runs import MeteredRun
from whet.testing.simulated_task import Answers, review_world, reviews
from whet.types import Request, Reward

Pick = Callable[[str, list[str]], Any]
FILE = simulated_person.__file__
ALWAYS = {"pick": FILE}
"""Settings of every run in the conformance suite: who is asked."""
CONFORMANCE = {"rounds": 3, "prompts": 4, **ALWAYS}
"""Settings of a run in the conformance suite."""
SWEEP = {"rounds": 2, "prompts": 3, **ALWAYS}
"""Settings of a run that is killed at every boundary."""

START = Prompt.parse("Write about it.\n<!-- whet:begin -->\nWrite a text.\n<!-- whet:end -->\n{{input}}")
OBEYED = 0.6
DID = re.compile(r"did ([\d ]*)on")


def effect(seed: int, phrase: int) -> float:
    """How much a person likes what an answer does because of a phrase."""
    return 0.4 * chance(seed, "effect", phrase) - 0.2


def liking(seed: int, answer: str) -> float:
    """How much a person likes an answer."""
    return sum(effect(seed, int(number)) for number in DID.findall(answer)[0].split())


class Liking:
    """The reward is how much the person likes an answer, on validation rows; training rows have none."""

    name, low, high, needs = "liking", -5.0, 5.0, frozenset[str]()

    def __init__(self, seed: int) -> None:
        self.seed = seed

    async def grade(self, run: Any, example: Any, completion: Any) -> Any:
        assert example.id.startswith("review-10"), "the reward of a training row was asked for"
        return Reward(liking(self.seed, completion.text))


def person(seed: int, gain: float = 20.0) -> Pick:
    """A simulated person with noise: best and worst by gain * liking plus a Gumbel draw."""

    def pick(input: str, answers: Sequence[str]) -> tuple[int, int]:
        def score(at: int, sign: int) -> float:
            draw = max(1e-9, chance(seed, input, *answers, at, sign))
            return sign * gain * liking(seed, answers[at]) - math.log(-math.log(draw))

        best = max(range(len(answers)), key=lambda at: score(at, 1))
        return best, max((at for at in range(len(answers)) if at != best), key=lambda at: score(at, -1))

    return pick


def ask(seed: int, gain: float = 20.0) -> Callable[[str, str, str], str]:
    """The same person before two answers, for `apohf`."""
    return lambda input, a, b: "ab"[person(seed, gain)(input, [a, b])[0]]


class InContextLearner(Scripted):
    """Takes a phrase out of the prompt that was liked, rather one that the other prompt has too, and takes two in that neither of
    them has. Where it sees what the prompts answered, it goes by the phrases that the answers obeyed."""

    OPTIONS: ClassVar[dict[str, str]] = {}

    def answer(self, request: Request, sample: int) -> str:
        question, draw = request_text(request), luck(request, sample)
        if (pool := re.findall(r"Write (\d+) different", question)) and LIKED not in question:
            texts = (shuffle(PHRASES, self.seed, draw, n)[:6] for n in range(int(pool[0])))
            return "".join(f"<INSTRUCTION>Write a text. {' '.join(text)}</INSTRUCTION>" for text in texts)
        liked, disliked = (self.evidence(question.partition(name)[2]) for name in (LIKED, DISLIKED))
        base = liked[0] or {i for i, p in enumerate(PHRASES) if p in SHOWN.findall(question)[0]}
        doubtful = sorted(base & disliked[1]) or sorted(base - liked[1]) or sorted(base)
        base = base - {choose_by_luck(doubtful, self.seed, draw)} if len(base) > 4 else base
        new = [i for i in shuffle(range(len(PHRASES)), self.seed, draw) if i not in base | disliked[1]]
        kept = sorted([*base, *new[: 2 if base else 6]])
        return f"<INSTRUCTION>Write a text. {' '.join(PHRASES[i] for i in kept)}</INSTRUCTION>"

    def evidence(self, part: str) -> tuple[set[int], set[int]]:
        """The phrases of the first prompt in a part of the question, and those that its answer obeyed; all of them where that
        is not shown."""
        texts = SHOWN.findall(part)
        held = {i for i, phrase in enumerate(PHRASES) if texts and phrase in texts[0]}
        block = part.partition(DISLIKED)[0].partition(ANSWERED)[2]
        obeyed = {int(number) for did in DID.findall(block) for number in did.split()}
        return held, obeyed if block else held


def world(seed: int) -> KnownWorld:
    """Phrases that please or displease a person where an answer obeys them, which it does six times in ten."""

    def task(question: str, sample: int) -> str:
        prompt, row = question.split("<!--")[0], question.splitlines()[-1]
        obeyed = (i for i, p in enumerate(PHRASES) if p in prompt and chance(seed, row, i) < OBEYED)
        return f"did {''.join(f'{i} ' for i in obeyed)}on {row}"

    def worth(prompt: Prompt) -> float:
        return OBEYED * sum(effect(seed, i) for i, phrase in enumerate(PHRASES) if phrase in prompt.source)

    rows = tuple(replace(row, target=None) for row in reviews(40))
    env = Environment(Answers(task), Liking(seed), rows, reviews(8, 1000))
    return KnownWorld(env, START, worth, InContextLearner("writer", {"seed": str(seed)}))


async def search(
    known: KnownWorld, pick: Any, limits: Budget | None = None, **settings: Any
) -> tuple[Candidate, list[Any], MeteredRun, list[str]]:
    """What is found, the picks, the run, and the questions to the model."""
    questions = list[str]()

    class Watched(InContextLearner):
        def answer(self, request: Request, sample: int) -> str:
            questions.append(request_text(request))
            return super().answer(request, sample)

    run = MeteredRun({"task": known.env.model, "optimizer": Watched("w", {"seed": "1"})}, 1, limits=limits)
    best = await icpl(run, known.env, LanguagePolicy(), START, Config(pick=pick, **settings))
    return best, [value for name, value in run.logged if name == "pick"], run, questions


async def test_the_person_sees_different_answers_to_the_same_inputs_in_any_order() -> None:
    seen, champions = [], []

    def pick(input: str, answers: list[str]) -> tuple[int, int]:
        seen.append((input, answers))
        return 0, len(answers) - 1

    _, picks, run, _ = await search(world(0), pick, rows=2, rounds=8)
    assert len(seen) == len(picks) == 8
    for input, answers in seen:
        assert len(set(answers)) == len(answers) >= 2
        rows = [line.partition(". ")[2] for line in input.split("\n\n")]
        assert len(rows) == 2 and all(a.count("did ") == 2 and all(r in a for r in rows) for a in answers)
    made = [c["id"] for name, c in run.logged if name == "candidate"]
    champions = [made.index(one["best"]) for one in picks]
    assert len(set(champions)) > 2, "the first answer is not always that of the first prompt"


async def test_the_model_sees_the_best_and_the_worst_with_their_answers() -> None:
    _, picks, run, questions = await search(world(0), person(0), prompts=4, rounds=3)
    texts = {c["id"]: c["messages"] for name, c in run.logged if name == "candidate"}
    second = questions[3]
    liked, disliked = second.partition(DISLIKED)[::2]
    for part, name in ((liked.partition(LIKED)[2], "best"), (disliked, "worst")):
        shown = SHOWN.findall(part)[0]
        assert shown in texts[picks[0][name]][0][1], "the text of the prompt that was picked"
        answer = part.partition(f"{ANSWERED}\n")[2]
        assert DID.findall(answer), "and what it answered"
    assert not any(name in question for name in (LIKED, DISLIKED) for question in questions[:3])
    _, _, _, bare = await search(world(0), person(0), prompts=4, rounds=3, traces=False, shown="best")
    assert LIKED in bare[-1] and not any(ANSWERED in q or DISLIKED in q for q in bare)


async def test_earlier_bests_are_shown_the_oldest_first_and_each_once() -> None:
    _, picks, run, questions = await search(world(3), lambda input, answers: (0, 1), rounds=8, history=2)
    made = {c["id"]: c["messages"][0][1] for name, c in run.logged if name == "candidate"}
    bests = [*dict.fromkeys(one["best"] for one in picks[-2::-1])][::-1]
    assert len(bests) > 2
    shown = SHOWN.findall(questions[-1].partition(EARLIER)[2].partition(LIKED)[0])
    assert len(shown) == 2
    assert all(text in made[key] for text, key in zip(shown, bests[-3:-1], strict=True))


async def test_where_all_answers_are_the_same_nobody_is_asked() -> None:
    known = world(0)
    env = replace(known.env, model=Answers(lambda question, sample: "did 1 on it"))

    def nobody(input: str, answers: list[str]) -> Any:
        raise AssertionError("asked")

    best, picks, _, questions = await search(replace(known, env=env), nobody)
    assert not picks and best.prompt == START and not any(LIKED in question for question in questions)


async def test_prompts_with_one_answer_are_one_answer_to_the_person() -> None:
    run, seen = MemoryRun({}), []

    async def picker(pick: PersonPick) -> Any:
        seen.append(pick)
        return 1, 0

    pick = PersonPick("x", ("a", "b"), 1, 1)
    assert await pick_extremes(run, picker, pick) == (1, 0)
    known = world(0)
    env = replace(
        known.env,
        model=Answers(
            lambda q, sample: f"did {int(PHRASES[0] in q)} on it" if PHRASES[1] in q else "did 3 on it"
        ),
    )
    counts = []

    def count(input: str, answers: list[str]) -> tuple[int, int]:
        counts.append(len(answers))
        return 0, 1

    await search(replace(known, env=env), count, prompts=10, rounds=6)
    assert counts and max(counts) <= 3


async def test_the_result_is_the_persons_and_rewards_are_read_on_validation_rows_only() -> None:
    known = world(0)
    best, picks, _, _ = await search(known, person(0), rounds=10)
    assert best.id == picks[-1]["best"] and known.worth(best.prompt) > known.worth(START)


@pytest.mark.parametrize("reply", [None, "01", 1, (0,), (1, 1), (0, 99), (True, 0), (0, 1, 2), (-1, 0)])
async def test_what_is_no_pick_is_refused(reply: object) -> None:
    with pytest.raises(UsageError, match="two different numbers from 0 to"):
        await search(world(0), lambda input, answers: reply)


async def test_a_function_that_fails_is_named() -> None:
    with pytest.raises(UsageError, match=r"pick\(\) failed: ZeroDivisionError"):
        await search(world(0), lambda input, answers: 1 / 0)


@pytest.mark.parametrize(
    ("pick", "message"),
    [
        ("terminal", "there is no terminal"),
        ("nobody", "Give a function, or a Python file"),
        (lambda question: "a", "cannot be called"),
        (__file__, "there is no function `pick`"),
    ],
)
def test_without_somebody_to_ask_it_is_refused(
    pick: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if pick == __file__:
        monkeypatch.delattr(f"{__name__}.pick", raising=False)
    with open(os.devnull) as nobody, pytest.raises(UsageError, match=message):
        monkeypatch.setattr(sys, "stdin", nobody)
        check(review_world(), Config(pick=pick))


async def test_at_a_terminal_two_different_numbers_are_waited_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = iter(["", "2", "best", "2 2", "4 1", "0 1", "3 and 1", None])

    async def read() -> str | None:
        return next(lines)

    monkeypatch.setattr(people, "read_line", read)
    pick = PersonPick("Dish 1", ("good", "bad", "\x1b[31mgreat"), 2, 5)
    assert await pick_at_terminal(pick) == (2, 0)
    written = capsys.readouterr().err
    assert "Pick 2 of 5. Input: Dish 1" in written and "[2] bad" in written and "\x1b[31m" not in written
    assert written.count("Which answer is best and which is worst?") == 7
    with pytest.raises(UsageError, match="The picks are kept"):
        await pick_at_terminal(pick)


@pytest.mark.parametrize(
    ("rollouts", "asks", "sizes"),
    [
        (None, None, (5, 6)),
        (18, None, (3, 6)),
        (6, None, (2, 3)),
        (3, None, (1, 2)),
        (1, None, (0, 2)),
        (None, 10, (2, 6)),
        (None, 2, (2, 2)),
        (None, 0, (0, 2)),
    ],
)
def test_sizes_within_limits(rollouts: int | None, asks: int | None, sizes: tuple[int, int]) -> None:
    assert within(Config(), SearchPlan(world(0).env, rollouts, asks, 2, 1)) == sizes


def test_in_python_a_function_is_asked_and_what_it_picked_is_not_asked_again(tmp_path: Path) -> None:
    asked: list[list[str]] = []

    def optimize() -> Any:
        def pick(input: str, answers: list[str]) -> tuple[int, int]:
            asked.append(answers)
            order = sorted(range(len(answers)), key=lambda at: len(answers[at]))
            return order[-1], order[0]

        calls = iter(range(100))
        return whet.optimize(
            "<!-- whet:begin -->\nWhat is it like?\n<!-- whet:end -->\n{{input}}",
            data=[{"input": f"Dish {n}", "target": "good"} for n in range(40)],
            reward=lambda example, output: float("Weigh" in output),
            lm=lambda messages: str(messages[-1].content),
            optimizer_lm=lambda messages: f"<INSTRUCTION>Weigh it {'well ' * next(calls)}.</INSTRUCTION>",
            method=whet.methods.icpl.Config(rounds=3, prompts=3, pick=pick),
            run=tmp_path / "run",
            control=None,
        ).to_dict()

    result = optimize()
    assert len(asked) == 3 and result["usage"]["calls"]["optimizer"] == 6
    assert "Weigh" in result["best"]["prompt"]
    optimize()
    assert len(asked) == 3


# The contest: the best and the worst, the best alone, or any two; with and without answers; and duels at as many answers read.

ROUNDS = 8


@cache
def reached(method: str = "icpl", seeds: int = 20, **settings: Any) -> list[float]:
    """How much the person likes what a method finds in the world of each seed."""
    who = {"icpl": {"rounds": ROUNDS}, "apohf": {"duels": 3 * ROUNDS, "validated": 1}}.get(method, {})
    found = []
    for seed in range(seeds):
        asked = {"icpl": {"pick": person(seed)}, "apohf": {"ask": ask(seed)}}.get(method, {})
        found.append(play_world(method, world(seed), seed, Budget(), {**who, **asked, **settings}))
    return found


def test_shown_any_two_prompts_it_loses() -> None:
    won = won_over("shown=random", reached(), reached(shown="random"))
    assert won.low > 0, won


@pytest.mark.long
def test_against_its_controls_and_duels() -> None:
    own = reached(seeds=30)
    print(f"reached: {sum(own) / 30:.3f}; start: 0")
    for name, settings in {
        "shown=random": {"shown": "random"},
        "shown=best": {"shown": "best"},
        "traces=false": {"traces": False},
    }.items():
        won = won_over(name, own, reached(seeds=30, **settings))
        assert won.low > 0 or name != "shown=random", won
    won_over("apohf", own, reached("apohf", seeds=30))
