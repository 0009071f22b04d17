"""Bonuses for turns: what they can change, EAGER's questions, a person who watches; and what each is worth."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.environments.corridor import ACTIONS, CELLS, ROW, TURNS, Corridor, cell_of, learn
from tests.methods.figures import won_over

import whet
from whet.environments import Return, WorldStep
from whet.environments.environment import Environment
from whet.environments.multiturn import multiturn
from whet.environments.shaping import (
    EpisodeBonus,
    Potential,
    ShapedWorld,
    Shaping,
    TurnBonus,
    TurnTaken,
    check_shaping,
    shaped_for_search,
)
from whet.environments.turn_bonuses import FeedbackFile, GoalQuestions, HumanSignal, read_confidence
from whet.errors import UsageError
from whet.run import MemoryRun
from whet.testing.simulated_task import Answers
from whet.types import Example, Message

ROWS = frozenset({ROW.id})


@dataclass
class Bonuses:
    """Any bonuses, one after the other: a function of the turn."""

    of_turn: Callable[[TurnTaken], float]
    name: str = "test"

    def check(self, example: Example) -> None:
        """Every row will do."""

    def begin(self, example: Example) -> EpisodeBonus:
        return self

    async def of(self, run: Any, turn: TurnTaken) -> float:
        return self.of_turn(turn)

    def most(self, turns: int) -> float:
        return 10.0 * turns

    def calls(self, turns: int) -> int:
        return 0


async def rewards(world: Any, actions: list[str], row: Example = ROW) -> list[float]:
    """What an episode pays for these actions, turn by turn."""
    episode, paid = world.reset(row, (Message("user", "cell 0"),)), []
    for action in actions:
        step = await episode.step(MemoryRun(), action)
        paid.append(step.reward)
        if step.done:
            break
    return paid


walks = st.lists(st.sampled_from(ACTIONS), min_size=TURNS, max_size=TURNS)


@given(walks, st.integers(0, 10**6), st.floats(0.01, 5))
def test_repaid_bonuses_leave_every_return_as_it_is(actions: list[str], seed: int, weight: float) -> None:
    """The proof in the module, of any bonuses: even those that depend on the whole past. Exactly, not nearly."""
    rng = random.Random(seed)
    bonus: Any = Bonuses(lambda turn: rng.uniform(-10, 10))
    plain = asyncio.run(rewards(Corridor(), actions))
    shaped = asyncio.run(rewards(ShapedWorld(Corridor(), Shaping(bonus, weight), ROWS), actions))
    assert len(plain) == len(shaped) and sum(shaped) == sum(plain)


@given(walks, walks, st.integers(1, TURNS - 1))
def test_what_can_still_be_earned_changes_by_the_same_for_every_way_to_go_on(
    first: list[str], second: list[str], at: int
) -> None:
    """From any history on: so the best next action stays the best one."""
    bonus: Any = Bonuses(lambda turn: cell_of(turn.after) ** 2 / 7)
    head, losses = first[:at], []
    for rest in (first[at:], second[at:]):
        plain = asyncio.run(rewards(Corridor(), head + rest))
        shaped = asyncio.run(rewards(ShapedWorld(Corridor(), Shaping(bonus), ROWS), head + rest))
        losses.append(sum(plain[at:]) - sum(shaped[at:]))
    if len(plain) > at:
        assert losses[0] == losses[1]


@given(walks)
def test_a_potential_pays_the_difference_and_leaves_every_return_as_it_is(actions: list[str]) -> None:
    potential = Potential(lambda seen, row: cell_of(seen) / (CELLS - 1))
    plain = asyncio.run(rewards(Corridor(), actions))
    shaped = asyncio.run(rewards(ShapedWorld(Corridor(), Shaping(potential), ROWS), actions))
    assert sum(shaped) == sum(plain)
    if len(shaped) > 1:
        assert shaped[0] == pytest.approx(1 / (CELLS - 1) if actions[0] == "right" else 0, abs=1e-5)


def test_without_repayment_a_loop_pays() -> None:
    """The trap that repayment closes: who stays where the bonus is earns more than who arrives."""
    bonus: Any = Bonuses(lambda turn: float(cell_of(turn.after) == 0))
    stays, arrives = ["left"] * TURNS, ["right"] * TURNS
    kept = ShapedWorld(Corridor(), Shaping(bonus, repay=False), ROWS)
    assert sum(asyncio.run(rewards(kept, stays))) > sum(asyncio.run(rewards(kept, arrives)))
    repaid = ShapedWorld(Corridor(), Shaping(bonus), ROWS)
    assert sum(asyncio.run(rewards(repaid, stays))) < sum(asyncio.run(rewards(repaid, arrives)))
    assert not Shaping(bonus, repay=False).keeps_optimum and Shaping(bonus).keeps_optimum


async def test_only_training_rows_have_bonuses() -> None:
    bonus: Any = Bonuses(lambda turn: 1.0)
    train, validation = (Example(name, {"input": "0"}, text="0") for name in ("t", "v"))
    plain = multiturn(
        Environment(Answers(lambda q, s: "left"), Return(0.0, 1.0), (train,), (validation,)), Corridor()
    )
    env = shaped_for_search(plain, Shaping(bonus, repay=False))
    run = MemoryRun({"task": env.model})
    prompt = whet.Prompt.parse("Walk. {{input}}")
    first, second = await env.evaluate(run, prompt, [train, validation])
    assert first.reward == TURNS == first.parts["shaped"] and second.reward == 0.0
    assert (env.reward.low, env.reward.high) == (-10.0 * TURNS, 1 + 10.0 * TURNS)
    assert (plain.reward.low, plain.reward.high) == (0.0, 1.0)
    assert shaped_for_search(plain, None) is plain


def test_bonuses_that_change_the_grade_of_an_answer_are_refused() -> None:
    graded: Any = Corridor(graded=True)
    bonus: Any = Bonuses(lambda turn: 1.0)
    with pytest.raises(UsageError, match="repay"):
        check_shaping(Shaping(bonus, repay=False), graded, ())
    check_shaping(Shaping(bonus), graded, ())


@pytest.mark.parametrize("value", [1.5, -0.1, True, "0.5", None])
def test_a_potential_that_is_none_is_refused(value: object) -> None:
    with pytest.raises(UsageError, match="from 0 to 1"):
        Potential(lambda seen, row: value).value("cell 0", {})
    with pytest.raises(UsageError, match="ZeroDivisionError"):
        Potential(lambda seen, row: 1 / 0).value("cell 0", {})


def test_the_search_of_a_task_sees_bonuses_and_its_test_does_not(tmp_path: Path) -> None:
    """Through task.yaml: one more turn of Blackjack is rewarded; the result shows the return of the game."""
    pytest.importorskip("gymnasium")
    (tmp_path / "task").mkdir()
    files = {
        "task.yaml": "name: cards\nprompt: prompt.md\nenvironment:\n  gymnasium: Blackjack-v1\n  turns: 4\n"
        "  episodes: 60\n  shaping: {potential: potential.py, repay: false, weight: 0.5}\n",
        "prompt.md": "Play.\n",
        "potential.py": "def potential(seen, row):\n    return 1.0 if 'over' in seen else 0.0\n",
    }
    for name, text in files.items():
        (tmp_path / "task" / name).write_text(text)
    seen: list[str] = []

    def writer(messages: Any) -> str:
        seen.append(messages[-1]["content"])
        return "<INSTRUCTION>Play on.</INSTRUCTION>"

    result = whet.optimize(
        tmp_path / "task",
        lm=lambda messages: "stick",
        optimizer_lm=writer,
        method="rpo",
        settings={"epochs": 1, "feedback": "none"},
        run=tmp_path / "run",
        progress=False,
    )
    shown = [float(line.split()[1]) for text in seen for line in text.splitlines() if line[:8] == "Reward: "]
    assert shown and set(shown) <= {-0.5, 0.5, 1.5}
    assert result.best.test is not None and -1 <= result.best.test.mean <= 1


@pytest.mark.parametrize(
    ("shaping", "message"),
    [
        ("{}", "no source of bonuses"),
        ("{potential: p.py, questions: goal}", "potential and questions"),
        ("{questions: goal, delay: 2}", "belongs to `human`"),
        ("{questions: goal}", "no text in the column 'goal'"),
        ("{potential: p.py}", "p.py"),
        ("{potental: p.py}", "potential"),
    ],
)
def test_settings_that_cannot_hold_are_refused(tmp_path: Path, shaping: str, message: str) -> None:
    pytest.importorskip("gymnasium")
    (tmp_path / "task.yaml").write_text(
        "name: cards\nprompt: prompt.md\nenvironment: {gymnasium: Blackjack-v1, turns: 4, episodes: 30, "
        f"shaping: {shaping}}}\n"
    )
    (tmp_path / "prompt.md").write_text("Play.\n")
    with pytest.raises(UsageError, match=message):
        whet.Task.load(tmp_path)


def test_what_a_person_says_is_repaid_where_the_reward_grades_an_answer(tmp_path: Path) -> None:
    (tmp_path / "task.yaml").write_text(
        "name: prices\nprompt: prompt.md\ndata: data.jsonl\nreward: exact_match\n"
        "environment: {tools: tools.py, turns: 3, shaping: {human: feedback.jsonl, delay: 1}}\n"
    )
    (tmp_path / "tools.py").write_text('def price(thing: str) -> str:\n    """A price."""\n    return "1"\n')
    rows = [{"input": f"row {n}", "target": "1"} for n in range(12)]
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "prompt.md").write_text("Answer.\n")
    shaping = whet.Task.load(tmp_path).shaping
    assert shaping is not None and shaping.keeps_optimum and isinstance(shaping.bonus, HumanSignal)
    assert shaping.bonus.delay == 1


# EAGER


def answering(question: str, sample: int) -> str:
    """Fills the gap by a word of the same place in what was done, and knows nothing of what did not happen yet."""
    goal = question.split("The goal: ")[1].split("\n")[0].split()
    happened = question.split("What happened so far:\n")[1]
    words = re.findall(r"Seen: you took (\w+);", happened)
    place = goal.index("____") - 1
    word = words[place] if 0 <= place < len(words) else ""
    return json.dumps({"answer": word or "nothing", "confidence": 0.9 if word else 0.2})


@dataclass(frozen=True)
class Shop:
    """Things are taken one after the other; the right ones in the right order pay 1. A wrong one ends the episode."""

    name: str = "shop"
    turns: int = 4
    graded: bool = False
    range: tuple[float, float] = (0.0, 1.0)
    actions: tuple[str, ...] = ("red", "ball", "blue", "key", "old", "box")

    def check(self, example: Example) -> None:
        """Every row will do."""

    def observe(self, example: Example) -> Example:
        return Example(example.id, {"input": "you took nothing"}, row=example.row)

    def reset(self, example: Example, opening: Any) -> Any:
        return ShopEpisode(opening, example.row["wanted"].split())


@dataclass
class ShopEpisode:
    opening: Any
    wanted: list[str]
    turns: int = 4
    taken: list[str] = field(default_factory=list)

    async def step(self, run: Any, text: str) -> Any:
        self.taken.append(text)
        right = self.taken == self.wanted[: len(self.taken)]
        whole = right and len(self.taken) == len(self.wanted)
        seen = f"you took {text}; all of it: {' '.join(self.taken)}"
        return WorldStep(seen, float(whole), done=whole or not right)


def shop(seed: int, goal: str = "") -> Example:
    """A row with what is wanted, and a goal that says it (or another one)."""
    wanted = " ".join(random.Random(seed).sample(Shop().actions, 4))
    return Example("walk", {"input": "x"}, row={"wanted": wanted, "goal": f"bring {goal or wanted}"})


def judged() -> MemoryRun:
    return MemoryRun({"judge": Answers(answering)})


async def test_each_question_pays_once_by_its_confidence() -> None:
    row = Example("walk", {"input": "x"}, row={"wanted": "red ball blue key", "goal": "bring red ball"})
    bonus = GoalQuestions("goal").begin(row)
    turns = [TurnTaken(n, "", word, f"you took {word};") for n, word in enumerate(["red", "ball", "ball"], 1)]
    run = judged()
    assert [await bonus.of(run, turn) for turn in turns] == [0.9, 0.9, 0.0]
    other = GoalQuestions("goal", confident=False).begin(row)
    assert [await other.of(run, turn) for turn in turns] == [1.0, 1.0, 0.0]


async def test_what_can_be_guessed_before_anything_happened_pays_nothing() -> None:
    run = MemoryRun({"judge": Answers(lambda question, sample: '{"answer": "red", "confidence": 1}')})
    row = Example("walk", {"input": "x"}, row={"goal": "red"})
    assert await GoalQuestions("goal").begin(row).of(run, TurnTaken(1, "", "x", "y")) == 0.0


async def test_no_more_judge_calls_than_it_says() -> None:
    model = Answers(lambda question, sample: "Hm.")
    run = MemoryRun({"judge": model})
    row = Example("walk", {"input": "x"}, row={"goal": "one two three four five six seven eight nine ten"})
    kind = GoalQuestions("goal")
    bonus = kind.begin(row)
    for number in range(1, 4):
        await bonus.of(run, TurnTaken(number, "a", "b", "c"))
    assert len(model.questions) == kind.calls(3) == 8 * 4


@pytest.mark.parametrize(
    ("reply", "sure"),
    [
        ('{"answer": "Red.", "confidence": 0.4}', 0.4),
        ('So: {"answer": "red", "confidence": 7}', 1.0),
        ('{"answer": "blue", "confidence": 1}', 0.0),
        ('{"answer": "red", "confidence": true}', 0.0),
        ('{"answer": "red"}', 0.0),
        ("red", 0.0),
        ('{"answer": "", "confidence": 1}', 0.0),
    ],
)
def test_a_confidence_is_read(reply: str, sure: float) -> None:
    assert read_confidence(reply, "red") == sure


# A person who watches


def moments(values: dict[str, float | None]) -> Callable[[str, TurnTaken], float | None]:
    return lambda row, turn: values.get(turn.text)


async def test_a_value_is_about_the_turn_that_the_person_saw() -> None:
    signal = HumanSignal(moments({"b": 1.0, "c": -3.0}), delay=1)
    episode = signal.begin(ROW)
    values = [await episode.of(MemoryRun(), TurnTaken(n, "s", text, "")) for n, text in enumerate("abc", 1)]
    assert values == [0.0, 1.0, -1.0], "nothing, and what lies beyond 1 is cut"
    assert signal.pairs == [("s\na", 1.0), ("s\nb", -1.0)]


async def test_the_model_of_the_person_goes_on_when_they_stop() -> None:
    gone = False
    signal = HumanSignal(lambda row, turn: None if gone else (1.0 if turn.text == "up" else -1.0))
    episode = signal.begin(ROW)
    for n, text in enumerate(["up", "down"] * 4, 1):
        await episode.of(MemoryRun(), TurnTaken(n, "floor", text, ""))
    gone = True
    assert await episode.of(MemoryRun(), TurnTaken(9, "floor", "up", "")) == 1.0
    assert await episode.of(MemoryRun(), TurnTaken(10, "floor", "down", "")) == -1.0
    assert abs(await episode.of(MemoryRun(), TurnTaken(11, "a floor", "up", ""))) > 0.2
    silent = HumanSignal(lambda row, turn: None, imitate=False, pairs=signal.pairs)
    assert await silent.begin(ROW).of(MemoryRun(), TurnTaken(1, "floor", "up", "")) == 0.0


def test_a_file_is_read_while_it_grows(tmp_path: Path) -> None:
    path, watch = tmp_path / "feedback.jsonl", tmp_path / "watch.jsonl"
    path.write_text('{"value": 1}\n')
    stream = FeedbackFile(path, watch)
    turn = TurnTaken(1, "floor", "up", "roof")
    assert stream("walk", turn) is None, "what was there before"
    with path.open("a") as file:
        file.write('{"value": 0.5}\n{"value": -1, "example": "other"}\nnonsense\n{"value": 0.1}\n{"value": 0')
    assert stream("walk", turn) == pytest.approx(0.3), (
        "not the line of another row, nor the one that is not whole"
    )
    assert stream("walk", turn) is None
    assert stream("other", turn) == pytest.approx((0.5 - 1 + 0.1) / 3)
    shown = [json.loads(line) for line in watch.read_text().splitlines()]
    assert shown[0] == {"example": "walk", "turn": 1, "seen": "floor", "done": "up", "then": "roof"}


def test_a_file_that_does_not_exist_yet_is_no_error(tmp_path: Path) -> None:
    stream = FeedbackFile(tmp_path / "later.jsonl")
    assert stream("walk", TurnTaken(1, "", "", "")) is None


# The contests: a table of values that learns turn by turn.

SEEDS = range(100, 112)


def gained(
    world: Callable[[int], Any], episodes: int, row: Callable[[int], Example] = lambda seed: ROW
) -> list[float]:
    """The mean plain return of the last half of the episodes, for each seed."""
    half = episodes // 2
    return [sum(asyncio.run(learn(world(s), s, episodes, row(s), judged()))[-half:]) / half for s in SEEDS]


def shaped(bonus: TurnBonus, world: Any = None, **settings: Any) -> Any:
    return ShapedWorld(world or Corridor(), Shaping(bonus, **settings), ROWS)


@pytest.mark.long
def test_a_right_potential_makes_learning_faster() -> None:
    right = Potential(lambda seen, row: cell_of(seen) / (CELLS - 1))
    first = gained(lambda s: shaped(right), 12)
    assert won_over("without a potential", first, gained(lambda s: Corridor(), 12)).low > 0


@pytest.mark.long
def test_a_misleading_potential_makes_it_slower() -> None:
    wrong = Potential(lambda seen, row: 1 - cell_of(seen) / (CELLS - 1))
    plain = gained(lambda s: Corridor(), 12)
    assert won_over("with a misleading potential", plain, gained(lambda s: shaped(wrong), 12)).low > 0


@pytest.mark.long
def test_questions_about_the_goal_help_and_those_about_another_goal_do_not() -> None:
    eager = GoalQuestions("goal")

    def other(seed: int) -> Example:
        return shop(seed, shop(seed + 1000).row["wanted"])

    first = gained(lambda s: shaped(eager, Shop(), repay=False), 120, shop)
    assert won_over("without questions", first, gained(lambda s: Shop(), 120, shop)).low > 0
    assert (
        won_over(
            "questions about another goal",
            first,
            gained(lambda s: shaped(eager, Shop(), repay=False), 120, other),
        ).low
        > 0
    )


def person(seed: int, delay: int, leaves: int) -> Callable[[str, TurnTaken], float | None]:
    """Says, some turns later and with noise, whether a step led to the goal; leaves after so many turns."""
    rng, late = random.Random(seed), list[float]()

    def watcher(row: str, turn: TurnTaken) -> float | None:
        right = cell_of(turn.after) > cell_of(turn.before)
        late.append((0.5 if right else -0.5) + rng.gauss(0, 0.3))
        return None if len(late) <= delay or len(late) > leaves else late[-1 - delay]

    return watcher


@pytest.mark.long
def test_the_model_of_the_person_is_what_it_wins_by_once_they_left() -> None:
    def world(imitate: bool, delay: int) -> Callable[[int], Any]:
        return lambda s: shaped(HumanSignal(person(s, 2, 60), delay, imitate), weight=0.3, repay=False)

    first = gained(world(True, 2), 14)
    assert won_over("without a model of the person", first, gained(world(False, 2), 14)).low > 0
    assert won_over("without correction of the delay", first, gained(world(True, 0), 14)).low > 0
