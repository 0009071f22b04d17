"""APOHF: who duels, what the person sees and is never asked twice; and that choices and the bandit matter."""

from __future__ import annotations

import math
import os
import pty
import re
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.command_line import whet_here
from tests.methods import simulated_person
from tests.methods.figures import on_seeds, won_over
from tests.methods.judged import START, Quality
from tests.serving import server_thread

import whet
from whet.environments.environment import Environment
from whet.errors import UsageError
from whet.methods.apohf import Config, apohf, check, vectors
from whet.models.scripted import chance, shuffle
from whet.rl import LanguagePolicy
from whet.run import Budget, MemoryRun
from whet.search.archive import Candidate
from whet.search.edits import PHRASES
from whet.stats.neural_duels import PreferenceNetwork, next_duel
from whet.testing.paired_benchmark import KnownWorld, play_world
from whet.testing.runs import MeteredRun
from whet.testing.simulated_task import Answers, review_world, reviews
from whet.types import Reward

Ask = Callable[[str, str, str], Any]
FILE = simulated_person.__file__
ALWAYS = {"ask": FILE, "steps": 20}
"""Settings of every run in the conformance suite: who is asked, and few steps of the network, on which no call depends."""
CONFORMANCE = {"duels": 6, "pool": 6, "per_call": 3, "first": 2, "steps": 20, **ALWAYS}
"""Settings of a run in the conformance suite."""
SWEEP = {"duels": 4, "pool": 3, "per_call": 1, "first": 1, "steps": 20, **ALWAYS}
"""Settings of a run that is killed at every boundary."""
TEXT = re.compile(r"quality (-?[\d.]+) on (.*)")


def quality(prompt: str) -> float:
    """How good the answers under a prompt are: each of 24 phrases helps or hinders."""
    return sum(0.4 * chance(phrase) - 0.2 for phrase in PHRASES if phrase in prompt)


def person(seed: int, gain: float = 60.0) -> Ask:
    """A simulated person who sees how good answers are, with noise: P(a) = sigmoid(gain * (quality of a - quality of b))."""

    def ask(input: str, a: str, b: str) -> str:
        one, other = (float(TEXT.findall(text)[0][0]) for text in (a, b))
        return "a" if chance(seed, input, a, b) < 1 / (1 + math.exp(gain * (other - one))) else "b"

    return ask


def coin(seed: int) -> Ask:
    """Somebody who tosses a coin."""
    return lambda input, a, b: "a" if chance(seed, input, a, b) < 0.5 else "b"


def world(seed: int, phrases: int = 6) -> KnownWorld:
    """A model that writes prompts of phrases at random, and answers that tell how good they are."""

    def task(question: str, sample: int) -> str:
        row = question.splitlines()[-1]
        return f"quality {quality(question.split('<!--')[0]) + 0.2 * (chance(seed, row) - 0.5):.4f} on {row}"

    def optimizer(question: str, sample: int) -> str:
        number = int(re.findall(r"Write (\d+) different", question)[0])
        texts = (" ".join(shuffle(PHRASES, seed, sample, n)[:phrases]) for n in range(number))
        return "".join(f"<INSTRUCTION>Write a text. {text}</INSTRUCTION>" for text in texts)

    rows = tuple(replace(row, target=None) for row in reviews(40))
    env = Environment(Answers(task), Quality(), rows, reviews(8, 1000))
    return KnownWorld(env, START, lambda p: quality(p.source), Answers(optimizer))


async def search(known: KnownWorld, ask: Any, **settings: Any) -> tuple[Candidate, list[Any], MeteredRun]:
    run = MeteredRun({"task": known.env.model, "optimizer": known.optimizer}, 1)
    config = Config(ask=ask, **{"duels": 12, "pool": 20, "steps": 50, **settings})
    best = await apohf(run, known.env, LanguagePolicy(), START, config)
    return best, [value for name, value in run.logged if name == "duel"], run


async def test_the_person_sees_two_answers_to_one_input() -> None:
    seen = []

    def ask(input: str, a: str, b: str) -> str:
        seen.append((input, a, b))
        return "tie"

    _, duels, _ = await search(world(0), ask)
    assert len(seen) == len(duels) == 12 and {duel["won"] for duel in duels} == {0.5}
    for input, a, b in seen:
        assert a != b and all(TEXT.findall(text)[0][1] == input for text in (a, b))


async def test_which_answer_stands_at_the_left_is_drawn() -> None:
    """Of the two prompts that the bandit names, each is `a` in some duels: a liking for a place is noise, not a verdict."""
    _, duels, _ = await search(world(0), lambda input, a, b: "a", duels=40)
    sides = [(duel["first"], duel["second"]) for duel in duels]
    assert any((b, a) in sides for a, b in sides)
    assert len({first for first, _ in sides[5:]}) > 1


async def test_answers_that_are_the_same_are_a_tie_and_nobody_is_asked() -> None:
    known = world(0)
    known = replace(
        known, env=replace(known.env, model=Answers(lambda question, sample: "quality 0.5 on it"))
    )

    def nobody(input: str, a: str, b: str) -> str:
        raise AssertionError("asked")

    _, duels, _ = await search(known, nobody)
    assert len(duels) == 12 and {duel["won"] for duel in duels} == {0.5}


async def test_the_result_duelled_and_rewards_are_read_on_validation_rows_only() -> None:
    """`Quality` fails for a training row; the person's best prompt is one that the person saw."""
    best, duels, _ = await search(world(0), person(0), duels=30)
    assert best.id in {duel[side] for duel in duels for side in ("first", "second")}
    assert quality(best.prompt.source) > quality(START.source)


def test_a_network_learns_who_wins() -> None:
    points = np.random.default_rng(0).normal(size=(12, 4))
    worth = points[:, 0] - points[:, 1]
    choices = [(i, j, float(worth[i] > worth[j])) for i in range(12) for j in range(i)]
    network = PreferenceNetwork.draw(4, 0)
    learned = network.fit(points, choices, 1000, 0.1)
    assert np.corrcoef(learned.scores(points), worth)[0, 1] > 0.95
    assert abs(np.corrcoef(network.scores(points), worth)[0, 1]) < 0.8


def test_gradients_are_those_of_the_scores() -> None:
    network = PreferenceNetwork.draw(3, 1)
    points = np.random.default_rng(1).normal(size=(2, 3))
    for at in (0, 40, 500, len(network.weights) - 1):
        step = np.zeros_like(network.weights)
        step[at] = 1e-6
        up, down = (
            replace(network, weights=network.weights + sign * step).scores(points) for sign in (1, -1)
        )
        assert np.allclose(network.gradients(points)[:, at], (up - down) / 2e-6, atol=1e-6)


def test_the_second_is_never_the_first_and_is_one_of_which_little_is_known() -> None:
    points = np.array([[1.0, 0.0], [0.99, 0.0], [0.0, 1.0]])
    network = PreferenceNetwork.draw(2, 0)
    first, second = next_duel(network, points, [(0, 1, 1.0)] * 20, 0.0, 0.1)
    assert first != second  # without a bonus it is the runner-up
    assert first == network.scores(points).argmax()
    assert next_duel(network, points, [(0, 1, 1.0)] * 20, 1e6, 0.1)[1] == (2 if first < 2 else second)


async def test_the_answer_does_not_depend_on_how_long_vectors_are() -> None:
    points = await vectors(MemoryRun(), ["one text", "another text", "a third"], "none")
    assert np.allclose(points.mean(axis=0), 0) and points.shape == (3, 32)
    assert np.isfinite(await vectors(MemoryRun(), ["same", "same"], "none")).all()


@pytest.mark.parametrize("reply", ["c", None, 1, "A"])
async def test_what_is_no_choice_is_refused(reply: object) -> None:
    with pytest.raises(UsageError, match="It returns a, b or tie"):
        await search(world(0), lambda input, a, b: reply)


async def test_a_function_that_fails_is_named() -> None:
    with pytest.raises(UsageError, match="ask\\(\\) failed: ZeroDivisionError"):
        await search(world(0), lambda input, a, b: str(1 / 0))


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        ("terminal", "there is no terminal"),
        ("nobody", "Give a function, or a Python file"),
        ("absent.py", "there is no such file"),
        (lambda question: "a", "cannot be called"),
        (__file__, "there is no function `ask`"),
    ],
)
def test_without_somebody_to_ask_it_is_refused(ask: Any, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with open(os.devnull) as nobody, pytest.raises(UsageError, match=said):
        monkeypatch.setattr(sys, "stdin", nobody)
        check(review_world(), Config(ask=ask))


@pytest.mark.parametrize(
    ("most", "asks", "duels", "calls"), [(100, 3, 20, 3), (None, 100, 50, 10), (30, 1, 2, 1)]
)
async def test_sizes_within_limits(most: int | None, asks: int, duels: int, calls: int) -> None:
    known = world(0)
    limits = Budget(task_calls=most, optimizer_calls=asks + asks // 3)
    run = MeteredRun({"task": known.env.model, "optimizer": known.optimizer}, limits=limits)
    await apohf(run, known.env, LanguagePolicy(), START, Config(ask=person(0), steps=5))
    logged = [value for name, value in run.logged if name == "duel"]
    assert run.spent["optimizer"] == calls and len(logged) >= duels


# Through the public face: a function in Python, and a person at the terminal.


def repeat(messages: Any) -> str:
    """The task model repeats the instruction, so that prompts differ in what they answer."""
    return str(messages[-1]["content"])


def test_in_python_a_function_is_asked_and_what_it_said_is_not_asked_again(tmp_path: Path) -> None:
    rows = [{"input": f"Dish {n}", "target": "good"} for n in range(40)]
    asked: list[str] = []

    def ask(input: str, a: str, b: str) -> str:
        asked.append(input)
        return "a"

    def optimize(function: Ask) -> Any:
        return whet.optimize(
            "<!-- whet:begin -->\nWhat is it like?\n<!-- whet:end -->\n{{input}}",
            data=rows,
            reward=lambda example, output: float("Weigh" in output),
            lm=repeat,
            optimizer_lm=lambda question: "".join(
                f"<INSTRUCTION>Weigh it {n}.</INSTRUCTION>" for n in range(4)
            ),
            method=Config(duels=6, pool=4, per_call=4, steps=20, ask=function),
            run=tmp_path / "run",
            control=None,
        )

    result = optimize(ask)
    assert len(asked) == 6 and result.usage.calls["optimizer"] == 1
    optimize(ask)
    assert len(asked) == 6


def test_on_the_command_line_without_a_terminal_it_is_refused_before_anything_is_paid(tmp_path: Path) -> None:
    whet_here(tmp_path, "init", "demo", "--from", "example")
    done = whet_here(tmp_path, "optimize", "demo", "--method", "apohf")
    assert done.returncode == 2 and "--set ask=FILE.py" in done.stderr and not (tmp_path / "runs").exists()


def hear_interrupts() -> None:
    """A shell that runs the tests in the background makes their children deaf to Ctrl-C."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


class AtTerminal:
    """`whet optimize` at a terminal of its own; what it writes, and lines that are typed."""

    def __init__(self, folder: Path, url: str) -> None:
        self.screen, side = pty.openpty()
        command = [sys.executable, "-m", "whet", "optimize", "task", "--method", "apohf", "--base-url", url]
        for setting in ("duels=4", "pool=6", "per_call=1", "steps=20"):
            command += ["--set", setting]
        self.process = subprocess.Popen(
            command, cwd=folder, stdin=side, stderr=side, stdout=subprocess.PIPE, start_new_session=True,
            preexec_fn=hear_interrupts,
        )  # fmt: skip
        os.close(side)
        self.read = ""

    def until(self, pattern: str) -> list[Any]:
        """All matches in what was written since the last call, once there is one."""
        while not (found := re.findall(pattern, self.read)):
            assert select.select([self.screen], [], [], 60)[0], self.read
            try:
                self.read += os.read(self.screen, 4096).decode(errors="replace")
            except OSError:
                raise AssertionError(self.read) from None
        self.read = ""
        return found

    def type(self, line: str) -> None:
        os.write(self.screen, f"{line}\n".encode())

    def interrupt(self) -> None:
        """Ctrl-C."""
        os.kill(self.process.pid, signal.SIGINT)
        assert self.ended() == 130

    def ended(self) -> int:
        """The exit code. The screen is read until then: a terminal that nobody reads stops who writes to it."""
        while select.select([self.screen], [], [], 60)[0]:
            try:
                if not os.read(self.screen, 4096):
                    break
            except OSError:  # the other side is closed
                break
        self.process.communicate(timeout=60)
        os.close(self.screen)
        return self.process.returncode


def test_at_a_terminal_ctrl_c_keeps_the_choices_and_none_is_asked_again(tmp_path: Path) -> None:
    rows = "".join(f'{{"input": "Dish {n}", "target": "{n}"}}\n' for n in range(30))
    files = {"data.jsonl": rows, "prompt.md": "<!-- whet:begin -->\nSay it.\n<!-- whet:end -->\n{{input}}"}
    files["task.yaml"] = (
        "name: t\nprompt: prompt.md\nreward: exact_match\nmodels: {task: openai/t}\ndata: data.jsonl\n"
    )
    (tmp_path / "task").mkdir()
    for name, text in files.items():
        (tmp_path / "task" / name).write_text(text)
    question = r"Duel (\d) of 4[\s\S]*a, b or tie\?"
    with server_thread("--function", "tests.methods.simulated_person:answer") as url:
        first = AtTerminal(tmp_path, url)
        assert first.until(question) == ["1"]
        first.type("neither")
        first.until(r"a, b or tie\?")
        first.type("a")
        assert first.until(question) == ["2"]
        first.interrupt()
        again = AtTerminal(tmp_path, url)
        assert again.until(question) == ["2"]
        for number in "34":
            again.type("tie")
            assert again.until(question) == [number]
        again.type("B")
        assert again.ended() == 0


# The contests: a coin in the person's place, and pairs at random in the bandit's.

SEEDS = 8


@cache
def reached(who: str = "person", seeds: int = SEEDS, **settings: Any) -> list[float]:
    """What the method finds in the world of each seed."""
    limits, asks = Budget(task_calls=400), {"person": person, "coin": coin}
    given = {"duels": 30, "steps": 200, "pool": 150}
    return [
        play_world("apohf", world(s), s, limits, {**given, "ask": asks[who](s), **settings})
        for s in range(seeds)
    ]


@pytest.mark.long
def test_with_a_coin_in_the_place_of_the_person_it_loses_what_it_won() -> None:
    own, other = reached(), reached("coin")
    assert won_over("with a coin in the place of the person", own, other).low > 0


@on_seeds(4, SEEDS)
def test_with_the_bandit_it_wins_over_pairs_drawn_at_random(seeds: int) -> None:
    own, other = reached(seeds=seeds), reached(seeds=seeds, selector="random")
    assert won_over("pairs drawn at random", own, other).low > 0


class KnownQuality(Quality):
    """Grades training rows too: random search reads rewards, where the person reads answers."""

    async def grade(self, run: Any, example: Any, completion: Any) -> Any:
        return Reward(float(completion.text.split()[1]))


@pytest.mark.long
def test_beside_random_search_that_reads_the_reward() -> None:
    """Random search draws as many phrases as the writer, and sees the reward of training rows, which the person does not."""
    worlds = [world(s) for s in range(SEEDS)]
    graded = [replace(known, env=replace(known.env, reward=KnownQuality())) for known in worlds]
    other = [
        play_world("random_search", one, s, Budget(task_calls=400), {"edits": 6})
        for s, one in enumerate(graded)
    ]
    won = won_over("random search that reads the reward", reached(), other)
    assert -1 < won.low < won.high < 1
