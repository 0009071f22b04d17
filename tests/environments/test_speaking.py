"""A writer that speaks in episodes: one batch a turn, recorded, with what others said marked as theirs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("peft")

import torch
from tests.engine.world import Model, close, open_core, run_of
from tests.environments import talker

from whet.environments import Conversation, Trajectory, WorldStep, play
from whet.environments.advice import STOPS
from whet.rl.policy_actor import PolicyActor, samples_of
from whet.rl.policy_model import LoraSettings, PolicyModel
from whet.run import MemoryRun
from whet.types import Message


class Replies:
    """An episode that answers every text with the same words, three times."""

    turns = 3

    def __init__(self, reply: str, opening: str = "so") -> None:
        self.opening: Conversation = (Message("user", opening),)
        self.reply = reply

    async def step(self, run: object, text: str) -> WorldStep:
        return WorldStep(self.reply)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return talker.made(tmp_path_factory.getbasetemp())


@pytest.fixture
def writer(folder: Path) -> Callable[[], PolicyModel]:
    torch.set_num_threads(1)
    return lambda: PolicyModel.open(f"hf/{folder}", LoraSettings(), 0)


def speaker(writer: PolicyModel, **settings: Any) -> PolicyActor:
    return PolicyActor(writer, **{"temperature": 1.0, "max_tokens": 12, "stop": STOPS, **settings})


async def test_all_turns_of_a_conversation_are_one_sample(writer: Callable[[], PolicyModel]) -> None:
    policy = writer()
    played = await play(
        MemoryRun(seed=1), speaker(policy), [Replies(talker.told("yes")), Replies(talker.told("no"))]
    )
    first, second = samples_of(played)
    words = policy.body.weights.tokenizer
    for sample, trajectory, word in ((first, played[0], "yes"), (second, played[1], "no")):
        own = words.decode([t for t, mine in zip(sample.tokens, sample.own, strict=True) if mine])
        others = words.decode([t for t, mine in zip(sample.tokens, sample.own, strict=True) if not mine])
        assert own.replace("</s>", "").split() == " ".join(t.text for t in trajectory.turns).split()
        assert others.split().count(word) == 2 and "<interaction_prompt>" not in others
        assert sample.prompt == policy.read([Message("user", "so")])


async def test_each_turn_is_one_batch_and_one_effect(
    writer: Callable[[], PolicyModel], tmp_path: Path
) -> None:
    async def attempt() -> tuple[list[Trajectory], int, int]:
        policy = writer()
        drawn = 0
        sample, sample_turn = policy.sample, policy.sample_turn

        def count(*args: Any, **more: Any) -> Any:
            nonlocal drawn
            drawn += 1 if args[0] else 0
            return sample(*args, **more)

        def count_on(*args: Any, **more: Any) -> Any:
            nonlocal drawn
            drawn += 1 if args[0] else 0
            return sample_turn(*args, **more)

        policy.sample, policy.sample_turn = count, count_on  # type: ignore[method-assign]
        core = open_core(tmp_path / "run", Model())
        try:
            played = await play(run_of(core), speaker(policy), [Replies("yes") for _ in range(4)])
            return played, drawn, len(core.effects)
        finally:
            await close(core)

    first, drawn, effects = await attempt()
    assert (drawn, effects) == (3, 3)
    assert len({t.turns[0].text for t in first}) > 1, "the same opening is answered differently"
    again, drawn, effects = await attempt()
    assert again == first and (drawn, effects) == (0, 3), "recorded turns are not drawn again"


async def test_greedy_turns_do_not_depend_on_the_seed_and_sampled_ones_do(
    writer: Callable[[], PolicyModel],
) -> None:
    async def says(temperature: float, seed: int) -> list[str]:
        played = await play(
            MemoryRun(seed=seed), speaker(writer(), temperature=temperature), [Replies("yes")]
        )
        return [turn.text for turn in played[0].turns]

    assert await says(0.0, 1) == await says(0.0, 2)
    assert await says(1.0, 1) == await says(1.0, 1) != await says(1.0, 2)


async def test_a_conversation_without_room_ends_and_the_others_go_on(
    writer: Callable[[], PolicyModel],
) -> None:
    played = await play(MemoryRun(), speaker(writer()), [Replies("yes " * 100), Replies("yes")])
    assert (played[0].end, len(played[0].turns), played[0].error) == (
        "error",
        2,
        "policy: the conversation is too long",
    )
    assert (played[1].end, len(played[1].turns)) == ("turns", 3)
    assert len(samples_of(played)) == 2, "what it said before counts"
