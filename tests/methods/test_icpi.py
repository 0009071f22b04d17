"""ICPI: the model predicts returns from balanced transitions; and that predicting, and balance, matter."""

from __future__ import annotations

import asyncio
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.methods.chain_world import ACTIONS, START, chain
from tests.methods.figures import won_over

import whet
from whet.errors import UsageError
from whet.methods.icpi import Config, actions_of, check, deploy, icpi
from whet.run import MemoryRun
from whet.search.transitions import Transition, TransitionMemory, planner
from whet.testing.runs import MeteredRun
from whet.testing.simulated_task import Answers, review_world

CONFORMANCE = {"episodes": 12}
"""Settings of a run in the conformance suite."""
SWEEP = {"episodes": 4, "actions": "1 | 2"}
"""Settings of a run that is killed at every boundary."""


async def search(seed: int = 0, **settings: Any) -> tuple[MeteredRun, float]:
    """A run in the world of a seed, and what its last candidate earned on validation examples."""
    env = chain(seed)
    run = MeteredRun({"task": env.model}, seed)
    await icpi(run, env, None, START, Config(**settings))
    validated: list[Any] = [value for name, value in run.logged if name == "validated"]
    return run, validated[-1]["validation"]


def claimed(place: int, reward: float) -> Transition:
    return Transition(f"place {place}", "claim", reward, True, "the end")


def test_each_outcome_is_shown_as_often_as_the_others() -> None:
    memory = TransitionMemory(list(ACTIONS))
    memory.store([claimed(n, 0.0) for n in range(40)] + [claimed(40, 1.0), claimed(41, 1.0)], False)
    shown = memory.recall(MemoryRun(), "claim", "reward", Config(shown=4))
    assert sorted(one.reward for one in shown) == [0.0, 0.0, 1.0, 1.0]
    plain = Config(shown=4, balanced=False)
    drawn = [memory.recall(MemoryRun(seed=n), "claim", "reward", plain) for n in range(20)]
    assert sum(one.reward for shown in drawn for one in shown) < 20
    assert memory.recall(MemoryRun(), "left", "reward", Config()) == []


def test_only_the_last_successes_are_imitated() -> None:
    memory = TransitionMemory(list(ACTIONS))
    for place in range(5):
        memory.store([claimed(place, 1.0)], place != 4)
    shown = memory.imitate(MemoryRun(), Config(successes=2))
    assert sorted(one.seen for one in shown) == ["place 2", "place 3"]


async def test_a_question_shows_transitions_of_the_same_action_only() -> None:
    run, _ = await search(episodes=30)
    model: Any = run.models["task"]
    asked = [question for question in model.questions if question.endswith("Reward:")]
    assert asked
    for question in asked[:200]:
        done = {line for line in question.splitlines() if line.startswith("Action:")}
        assert len(done) == 1


async def test_the_agent_that_is_deployed_is_the_one_that_was_validated() -> None:
    run, worth = await search(episodes=30)
    env, (blob,) = chain(0), run.kept.values()
    deployed = deploy(env, None, blob, Config())
    rollouts = await deployed.evaluate(MeteredRun({"task": env.model}, 7), START, env.validation)
    assert abs(sum(rollout.reward for rollout in rollouts) / len(rollouts) - worth) < 0.2
    with pytest.raises(UsageError, match="not a memory"):
        TransitionMemory([]).load(b'{"weights": []}')


async def test_a_prediction_that_cannot_be_read_ends_the_rollout() -> None:
    env = chain(0)
    env.model.answer = lambda question, sample: "Hm."  # type: ignore[attr-defined]
    run = MeteredRun({"task": env.model}, 0)
    best = await icpi(run, env, None, START, Config(episodes=4, threshold=-1.0))
    assert best.prompt == START


async def test_a_predicted_reward_lies_within_the_recorded_ones() -> None:
    """One invented number does not outweigh what every action was seen to bring."""
    env = chain(0)
    memory = TransitionMemory(list(ACTIONS))
    memory.store([claimed(0, 0.0), claimed(1, 1.0)], True)
    run = MeteredRun({"task": Answers(lambda question, sample: "1000000")}, 0)
    value, _ = await planner(env, memory, Config(horizon=1)).imagine(run, "", "place 0", "claim")
    assert value == 1.0


def test_no_more_calls_than_it_says() -> None:
    env = chain(0)
    config = Config(horizon=3)
    assert config.calls_per_answer(env) == 3 * (4 * 3 - 3)
    assert config.calls_per_answer(review_world()) == 2
    assert Config(argmax=False).calls_per_answer(env) == 1


def test_a_task_without_actions_is_refused() -> None:
    env = review_world()
    assert actions_of(env, Config()) == ("positive", "negative")
    assert actions_of(env, Config(actions="yes | no")) == ("yes", "no")
    rows = [{"input": f"row {n}", "target": f"answer {n}"} for n in range(30)]
    task = whet.Task.of("Say it.", data=rows, reward="exact_match")
    with pytest.raises(UsageError, match="names none"):
        whet.optimize(task, lm=lambda messages: "x", method="icpi", progress=False)
    with pytest.raises(UsageError, match="only scores labels"):
        check(review_world(scores=True), Config())


def test_it_plays_a_game_of_gymnasium(tmp_path: Path) -> None:
    """Through the public face: a model that continues what it is shown learns when to stick."""
    pytest.importorskip("gymnasium")
    (tmp_path / "task.yaml").write_text(
        "name: cards\nprompt: prompt.md\nenvironment: {gymnasium: Blackjack-v1, turns: 3, episodes: 30}\n"
    )
    (tmp_path / "prompt.md").write_text("Play.")

    def reader(messages: Any) -> str:
        text = messages[-1]["content"]
        return "0" if text.endswith("Reward:") else "no" if text.endswith("Over:") else "hit"

    result = whet.optimize(
        tmp_path, lm=reader, method=Config(episodes=3, horizon=2), run=tmp_path / "run", progress=False
    )
    assert result.method == "icpi" and result.best.prompt.text.strip() == "Play."


# The contests: rollouts, and balance where few transitions are shown.

SEEDS = range(100, 108)


@cache
def reached(**settings: Any) -> list[float]:
    """What the agent earns on validation examples in the world of each seed."""
    return [asyncio.run(search(seed, episodes=60, **settings))[1] for seed in SEEDS]


@pytest.mark.long
def test_predicted_returns_win_over_imitating_successes() -> None:
    assert won_over("without argmax", reached(), reached(argmax=False)).low > 0


@pytest.mark.long
def test_balance_wins_where_few_transitions_are_shown() -> None:
    assert won_over("without balance, 3 shown", reached(shown=3), reached(shown=3, balanced=False)).low > 0


@pytest.mark.long
def test_an_agent_that_has_seen_nothing_is_worse() -> None:
    """The floor: it acts at random."""
    untrained = [asyncio.run(search(seed, episodes=1))[1] for seed in SEEDS]
    assert won_over("after one episode", reached(), untrained).low > 0
