"""Episodes: what is played, by whom, when it ends, and what is left of it."""

from __future__ import annotations

import pytest
from tests.environments.worlds import Counting, Lines

from whet.environments import Conversation, SingleTurn, play
from whet.run import MemoryRun
from whet.types import Message, Usage


def counts(conversation: Conversation) -> str:
    """The next number."""
    return str(sum(m.role == "assistant" for m in conversation) + 1)


async def test_an_episode_ends_when_the_world_says_so() -> None:
    (played,) = await play(MemoryRun(), Lines(counts), [Counting(goal=3, turns=9)])
    assert [t.text for t in played.turns] == ["1", "2", "3"]
    assert [t.observation for t in played.turns] == ["Count from 1.", "You are at 1.", "You are at 2."]
    assert (played.rewards, played.value) == ((1.0, 1.0, 1.0), 3.0)
    assert (played.end, played.answer, played.last) == ("done", "3", "You are at 3.")
    assert played.usage == Usage(3, 3) and played.notes == {"right": 3}


async def test_an_episode_ends_when_its_turns_are_used_up() -> None:
    actor = Lines(lambda conversation: "7")
    (played,) = await play(MemoryRun(), actor, [Counting(goal=3, turns=2)])
    assert (len(played.turns), played.end, played.answer, played.value) == (2, "turns", None, 0.0)


async def test_episodes_move_together_and_leave_when_they_end() -> None:
    actor = Lines(counts)
    played = await play(MemoryRun(), actor, [Counting(1, 9), Counting(3, 9), Counting(9, 2)])
    assert actor.batches == [3, 2, 1]
    assert [len(p.turns) for p in played] == [1, 3, 2]
    assert [p.end for p in played] == ["done", "done", "turns"]


async def test_a_failure_of_the_actor_ends_its_episode_only() -> None:
    def fails_in_the_second(conversation: Conversation) -> str:
        return "!" if conversation[0].content == "fail" and len(conversation) > 2 else counts(conversation)

    broken, sound = Counting(3, 5), Counting(3, 5)
    broken.opening = (Message("user", "fail"),)
    played = await play(MemoryRun(), Lines(fails_in_the_second), [broken, sound])
    assert (played[0].end, played[0].error, len(played[0].turns)) == ("error", "provider: out of order", 2)
    assert (played[1].end, played[1].error) == ("done", None)


async def test_the_actor_hears_what_is_new_and_what_it_recorded() -> None:
    actor = Lines(counts)
    await play(MemoryRun(), actor, [Counting(2, 5)])
    first, second = actor.heard
    assert first.news == first.messages == (Message("user", "Count from 1."),) and first.record is None
    assert second.news == (Message("user", "You are at 1."),) and second.record == "1"
    assert [m.role for m in second.messages] == ["user", "assistant", "user"]


async def test_a_single_question_is_an_episode_of_one_turn() -> None:
    opening = (Message("user", "Why?"),)
    (played,) = await play(MemoryRun(), Lines(lambda c: "because"), [SingleTurn(opening)])
    assert (played.answer, played.end, len(played.turns), played.opening) == ("because", "done", 1, opening)


async def test_no_episodes_need_no_turn() -> None:
    actor = Lines(counts)
    assert await play(MemoryRun(), actor, []) == [] and actor.batches == []


async def test_a_transcript_shows_both_sides_and_the_rewards() -> None:
    (played,) = await play(MemoryRun(), Lines(counts), [Counting(1, 5)])
    assert played.transcript() == "Count from 1.\n> 1\n(reward 1)\nYou are at 1."


async def test_an_episode_without_turns_is_refused() -> None:
    with pytest.raises(ValueError, match="1 or more"):
        await play(MemoryRun(), Lines(counts), [Counting(1, 0)])
