"""Credit per turn: by hand, in its limiting cases, and at the tokens of real conversations."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="writers need torch: pip install 'whet[train]'")
pytest.importorskip("transformers", reason="writers need transformers: pip install 'whet[train]'")
pytest.importorskip("peft", reason="writers need peft: pip install 'whet[train]'")

from tests.rl.tiny_llama import save  # noqa: E402 - after the checks for extras

from whet.environments import ActorAction, Trajectory, Turn  # noqa: E402
from whet.rl.advantages import dr_grpo, grpo, returns_to_go, rloo, turn_advantages  # noqa: E402
from whet.rl.policy_model import LoraSettings, PolicyModel, Sample  # noqa: E402
from whet.rl.training import (  # noqa: E402
    MultiTurnTraining,
    Trainer,
    group_advantages,
    rewards_by_turn,
    turn_lengths,
)
from whet.types import Message  # noqa: E402

ASK = [Message("user", "write in capitals the words a b c")]
MORE = [Message("user", "again")]

# by hand


def test_without_discount_every_turn_sees_all_that_follows() -> None:
    assert returns_to_go([0.0, -1.0, 20.0]) == [19.0, 19.0, 20.0]
    assert returns_to_go([]) == []


def test_advantages_of_turns_by_hand() -> None:
    # to go: [3, 2], [1, 1], [2]; means: 2 at the first turn, 1.5 at the second
    assert turn_advantages([[1.0, 2.0], [0.0, 1.0], [2.0]], dr_grpo) == [[1.0, 0.5], [-1.0, -0.5], [0.0]]


def test_leave_one_out_counts_those_that_reached_the_turn() -> None:
    # 3 - (1 + 2) / 2, 1 - (3 + 2) / 2, 2 - (3 + 1) / 2; then 2 - 1 and 1 - 2
    found = turn_advantages([[1.0, 2.0], [0.0, 1.0], [2.0]], rloo)
    assert found == [[pytest.approx(1.5), 1.0], [pytest.approx(-1.5), -1.0], [pytest.approx(0.0)]]


def test_the_deviation_is_that_of_the_turn() -> None:
    # to go 3, 1, 2: mean 2, sample deviation 1
    found = turn_advantages([[3.0], [1.0], [2.0]], grpo)
    assert found == [[pytest.approx(1 / (1 + 1e-6))], [pytest.approx(-1 / (1 + 1e-6))], [0.0]]


def test_a_turn_that_only_one_reached_keeps_its_last_comparison() -> None:
    # to go: [2, 2, 1], [0]: first turn +1 and -1, then nothing to compare with
    assert turn_advantages([[0.0, 1.0, 1.0], [0.0]], dr_grpo) == [[1.0, 1.0, 1.0], [-1.0]]
    assert turn_advantages([[1.0, 1.0]], dr_grpo) == [[0.0, 0.0]]


# limiting cases


@pytest.mark.parametrize("estimate", [grpo, dr_grpo, rloo])
def test_one_turn_is_credit_of_the_episode(estimate: Any) -> None:
    rewards = [0.2, 0.9, 0.4, 0.5]
    assert turn_advantages([[r] for r in rewards], estimate) == [[a] for a in estimate(rewards)]
    assert turn_advantages([[0.7]], estimate) == [estimate([0.7])]


@pytest.mark.parametrize("estimate", [grpo, dr_grpo, rloo])
def test_a_reward_at_the_end_without_discount_is_credit_of_the_episode(estimate: Any) -> None:
    rewards = [0.2, 0.9, 0.4, 0.5]
    found = turn_advantages([[0.0, 0.0, r] for r in rewards], estimate)
    assert found == [[a] * 3 for a in estimate(rewards)]


def test_equal_rewards_give_no_advantage() -> None:
    assert turn_advantages([[1.0, 0.5]] * 3, grpo) == [[0.0, 0.0]] * 3
    assert turn_advantages([], grpo) == []


def test_advantages_of_a_full_turn_sum_to_zero() -> None:
    group = [[0.3, 1.0], [0.1, -2.0], [0.7, 0.25]]
    for turn in zip(*turn_advantages(group, dr_grpo), strict=True):
        assert sum(turn) == pytest.approx(0.0, abs=1e-12)


# at the tokens of conversations


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> PolicyModel:
    folder: Path = save(tmp_path_factory.mktemp("base"), sharpness=1.0)
    return PolicyModel.open(f"hf/{folder}", LoraSettings(rank=2), seed=1)


@pytest.fixture(scope="module")
def talks(writer: PolicyModel) -> list[Sample]:
    """Three conversations: two of two turns, one of one turn."""
    (first,) = writer.sample([ASK], 3, max_tokens=4, seed=2)
    return [*writer.sample_turn(first[:2], [MORE] * 2, max_tokens=3, seed=4), first[2]]


def blocks(sample: Sample, row: list[float]) -> list[set[float]]:
    """The numbers that stand at the own tokens of each turn."""
    found: list[set[float]] = []
    for i, own in enumerate(sample.own):
        if own and (i == 0 or not sample.own[i - 1]):
            found.append(set())
        if own:
            found[-1].add(row[i])
    return found


def test_the_turns_of_a_conversation_are_found(talks: list[Sample]) -> None:
    assert [len(turn_lengths(s)) for s in talks] == [2, 2, 1]
    assert [sum(turn_lengths(s)) for s in talks] == [sum(s.own) for s in talks]


def test_a_turn_that_could_not_be_written_counts_for_the_last_one(talks: list[Sample]) -> None:
    (row,) = group_advantages(
        MultiTurnTraining(advantage="rloo", credit="turn"), [talks[2:]], [[[0.5, 0.25]]]
    )
    assert set(row) == {0.75}


def test_what_the_world_did_not_pay_is_the_reward_of_the_last_turn() -> None:
    turns = tuple(Turn("", ActorAction("a"), r) for r in (-1.0, -1.0, 0.0))
    assert rewards_by_turn(Trajectory((), turns, "done"), -2.0) == [-1.0, -1.0, 0.0]
    assert rewards_by_turn(Trajectory((), turns, "done"), 1.0) == [-1.0, -1.0, 3.0]


def paid(
    config: MultiTurnTraining, writer: PolicyModel, talks: list[Sample], turns: list[list[float]]
) -> list[list[float]]:
    rewards = Trainer(writer, config).assign_credit([math.fsum(row) for row in turns], turns)
    return group_advantages(config, [talks], [rewards])


@pytest.mark.parametrize("kind", ["grpo", "dr_grpo", "rloo"])
def test_tokens_have_the_advantage_of_their_turn(writer: PolicyModel, talks: list[Sample], kind: Any) -> None:
    turns = [[1.0, 2.0], [0.0, 1.0], [2.0]]
    estimate = {"grpo": grpo, "dr_grpo": dr_grpo, "rloo": rloo}[kind]
    first, second = estimate([3.0, 1.0, 2.0]), estimate([2.0, 1.0])
    wanted = [[{first[0]}, {second[0]}], [{first[1]}, {second[1]}], [{first[2]}]]
    rows = paid(MultiTurnTraining(advantage=kind, credit="turn"), writer, talks, turns)
    assert [blocks(s, row) for s, row in zip(talks, rows, strict=True)] == wanted
    rows = paid(MultiTurnTraining(advantage=kind), writer, talks, turns)
    assert [set().union(*blocks(s, row)) for s, row in zip(talks, rows, strict=True)] == [{a} for a in first]


@pytest.mark.parametrize("kind", ["grpo", "dr_grpo", "rloo"])
def test_a_reward_at_the_end_is_credit_of_the_episode_at_every_token(
    writer: PolicyModel, talks: list[Sample], kind: Any
) -> None:
    turns = [[0.0, 1.0], [0.0, 0.25]]
    by_turn = paid(MultiTurnTraining(advantage=kind, credit="turn"), writer, talks[:2], turns)
    whole = paid(MultiTurnTraining(advantage=kind), writer, talks[:2], turns)
    assert by_turn == whole


@pytest.mark.parametrize("kind", ["grpo", "dr_grpo", "rloo"])
def test_texts_of_one_turn_have_credit_of_the_episode(writer: PolicyModel, kind: Any) -> None:
    (single,) = writer.sample([ASK], 3, max_tokens=4, seed=2)
    turns = [[0.1], [0.9], [0.4]]
    by_turn = paid(MultiTurnTraining(advantage=kind, credit="turn"), writer, single, turns)
    whole = paid(MultiTurnTraining(advantage=kind), writer, single, turns)
    assert by_turn == whole
