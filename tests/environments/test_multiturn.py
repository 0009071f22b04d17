"""The environment of episodes: it answers what any environment answers, whatever a rollout is made of."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from tests.environments.worlds import Lines, Scripted, small

from whet.environments import (
    Actor,
    ActorAction,
    ActorObservation,
    Conversation,
    Return,
    TaskModel,
    WorldStep,
)
from whet.environments.advice import RULES, Consulting
from whet.environments.environment import Environment, Generation
from whet.environments.multiturn import MultiTurn, multiturn
from whet.environments.tools import Tool, ToolWorld
from whet.prompt import Prompt
from whet.run import MemoryRun
from whet.types import Completion, Example, Message, Request

START = Prompt.parse("Answer the question.")


def lookup(word: str) -> str:
    """What a word means."""
    return {"question 3": "yes"}.get(word, "no")


def looks_up(request: Request) -> str:
    """A model that looks up the user's text and repeats what it finds."""
    if len(request.messages) > 2:
        return request.messages[-1].content
    return '<tool>{"name": "lookup", "arguments": {"word": "' + request.messages[-1].content + '"}}</tool>'


class Hot:
    """A world in which the right answer to `Hot or cold?` is asked for twice; the second time counts double."""

    name, turns, graded = "hot", 2, False

    def observe(self, example: Example) -> Example:
        return dataclasses.replace(example, values={"input": "Hot or cold?"}, text="Hot or cold?")

    def reset(self, example: Example, opening: Conversation) -> Any:
        target = example.target

        class Play:
            turns = 2

            def __init__(self) -> None:
                self.opening, self.taken = opening, 0

            async def step(self, run: Any, text: str) -> WorldStep:
                self.taken += 1
                return WorldStep(
                    "Again?", (text == target) * self.taken, self.taken == 2, notes={"said": 1.0}
                )

        return Play()


def played(answer: str) -> tuple[MemoryRun, MultiTurn]:
    world = small(lambda request: answer)
    env = dataclasses.replace(world.env, reward=Return(0.0, 2.0))
    return MemoryRun({"task": world.model}), multiturn(env, Hot())


async def test_without_world_and_actor_it_is_the_plain_environment() -> None:
    world = small(lambda r: "yes" if r.messages[-1].content in ("question 3", "question 4") else "no")
    run = MemoryRun({"task": world.model})
    plain = await world.env.evaluate(run, START, world.env.validation)
    assert await multiturn(world.env).evaluate(run, START, world.env.validation) == plain
    assert await multiturn(world.env).score(run, [START], world.env.validation) == await world.env.score(
        run, [START], world.env.validation
    )
    assert multiturn(world.env).calls == 1


async def test_pairs_of_prompt_and_row_are_answered_by_the_actor_too() -> None:
    """A model in this process that answers in batches was asked instead."""

    class Batches(Scripted):
        async def generate_batch(self, requests: Any) -> list[list[Completion]]:
            return [[Completion("no")] for _ in requests]

    world = small(lambda request: "no")
    env = dataclasses.replace(world.env, model=Batches(lambda request: "no"))
    system = multiturn(env, actor=Lines(lambda conversation: "yes"))
    pairs = [(START, example) for example in env.train]
    assert [r.output for r in await system.rollouts(MemoryRun({}), pairs)] == ["yes"] * len(pairs)


async def test_a_game_is_rewarded_by_its_return_within_the_range() -> None:
    run, env = played("yes")
    rollouts = await env.evaluate(run, START, env.train)
    assert [r.reward for r in rollouts] == [2.0] * 3, "1 + 2, held within the range"
    assert rollouts[0].parts == {"turns": 2.0, "said": 2.0}
    assert rollouts[0].output == "Hot or cold?\n> yes\n(reward 1)\nAgain?\n> yes\n(reward 2)\nAgain?"
    assert (env.calls, env.reward.low) == (2, 0.0)


async def test_tools_are_graded_by_the_task() -> None:
    world = small(looks_up)
    env = multiturn(world.env, ToolWorld((Tool.of(lookup),), 3))
    rollouts = await env.evaluate(MemoryRun({"task": world.model}), START, env.validation)
    assert [r.output for r in rollouts] == ["yes", "no", "no"]
    assert [r.reward for r in rollouts] == [1.0, 0.0, 0.0]
    assert rollouts[0].parts == {"turns": 2.0, "tool_calls": 1.0, "tool_errors": 0.0}
    assert env.calls == 3 and world.model.asked == 6
    assert rollouts[0].usage.output_tokens == 4, "both calls are counted"


async def test_an_episode_without_an_answer_is_a_failed_rollout() -> None:
    world = small(lambda r: '<tool>{"name": "lookup", "arguments": {"word": "x"}}</tool>')
    env = multiturn(world.env, ToolWorld((Tool.of(lookup),), 2))
    rollouts = await env.evaluate(MemoryRun({"task": world.model}), START, env.validation)
    assert {r.error for r in rollouts} == {"parse: no answer within 2 turns"}
    assert {r.reward for r in rollouts} == {0.0}


async def test_it_survives_replace_and_keeps_world_and_actor() -> None:
    run, env = played("no")
    smaller = dataclasses.replace(env, validation=env.validation[:1])
    assert isinstance(smaller, MultiTurn) and smaller.world is env.world
    assert (await smaller.score(run, [START, START], smaller.validation))[1].mean == 0.0
    actor = Lines(lambda c: "yes")
    assert multiturn(smaller, actor=actor).world is env.world, "what is not given stays"


async def test_labels_are_read_from_the_answer() -> None:
    world = small(lambda r: "I would say yes.")
    env = multiturn(dataclasses.replace(world.env, labels={"yes": "yes", "no": "no"}, scores=True))
    rollouts = await env.evaluate(MemoryRun({"task": world.model}), START, env.train)
    assert not env.scores and {(r.output, r.reward) for r in rollouts} == {("yes", 1.0)}


async def test_a_system_answers_all_examples_in_one_batch() -> None:
    world = small(lambda r: "unused")
    actor = Lines(lambda c: "yes" if c[-1].content == "question 3" else "no")
    env = multiturn(world.env, actor=actor)
    rollouts = await env.evaluate(MemoryRun(), START, env.validation)
    assert actor.batches == [3] and [r.reward for r in rollouts] == [1.0, 0.0, 0.0]
    assert (await env.rollout(MemoryRun(), START, env.validation[0])).reward == 1.0
    assert world.model.asked == 0 and rollouts[0].parts == {}


def think(text: str) -> str:
    return f"<think>so</think>{text}"


def consults(conversation: Conversation) -> str:
    """A small model that asks the large one its question and repeats the reply."""
    if len(conversation) == 2:
        question = conversation[1].content.partition("\n\n")[2]
        return think(f"<interaction_prompt>Tell me: {question}</interaction_prompt>")
    reply = (
        conversation[-1]
        .content.removeprefix("<interaction_response>")
        .removesuffix("</interaction_response>")
    )
    return think(f"<answer>{reply}</answer>")


def consulting(
    answer: Any, script: Any = consults, turns: int = 5
) -> tuple[MemoryRun, MultiTurn, Scripted, Lines]:
    world = small(answer)
    writer = Lines(script)
    actor: Actor = Consulting(writer, TaskModel(), turns)
    return MemoryRun({"task": world.model}), multiturn(world.env, actor=actor), world.model, writer


async def test_a_consultation_ends_with_the_small_models_answer() -> None:
    run, env, model, writer = consulting(lambda r: "yes" if "question 4" in r.messages[-1].content else "no")
    rollouts = await env.evaluate(run, START, env.validation)
    assert [r.output for r in rollouts] == ["no", "yes", "no"] and model.asked == 3
    assert writer.heard[0].messages == (
        Message("system", RULES),
        Message("user", "Answer the question.\n\nquestion 3"),
    )
    assert env.calls == 4


async def test_the_large_model_remembers_what_it_was_asked() -> None:
    seen: list[list[str]] = []

    def answer(request: Request) -> str:
        seen.append([m.content for m in request.messages])
        return "so"

    def asks_twice(conversation: Conversation) -> str:
        turn = len(conversation) // 2
        return think(
            f"<interaction_prompt>q{turn}</interaction_prompt>" if turn < 3 else "<answer>yes</answer>"
        )

    run, env, _, _ = consulting(answer, asks_twice)
    await env.rollout(run, START, env.train[0])
    assert seen == [["q1"], ["q1", "so", "q2"]]


@pytest.mark.parametrize(
    ("text", "calls"), [("I just say yes.", 0), ("<think>hm</think>", 0), ("<answer>yes", 0), ("", 0)]
)
async def test_a_text_that_neither_asks_nor_answers_ends_without_answer(text: str, calls: int) -> None:
    run, env, model, _ = consulting(lambda r: "yes", lambda c: text)
    rollout = await env.rollout(run, START, env.train[0])
    assert (rollout.error, rollout.reward, model.asked) == ("parse: no answer within 1 turn", 0.0, calls)


async def test_the_last_turn_asks_nobody() -> None:
    run, env, model, _ = consulting(
        lambda r: "yes", lambda c: "<interaction_prompt>?</interaction_prompt>", turns=3
    )
    rollout = await env.rollout(run, START, env.train[0])
    assert (model.asked, rollout.error) == (2, "parse: no answer within 3 turns")


async def test_a_failure_of_the_large_model_fails_its_rollout() -> None:
    class Broken:
        calls = 1

        async def act(self, run: Any, heard: list[ActorObservation], sample: int = 0) -> list[ActorAction]:
            return [ActorAction("", error="provider: gone") for _ in heard]

    world = small(lambda r: "yes")
    env = multiturn(world.env, actor=Consulting(Lines(consults), Broken(), 5))
    assert {r.error for r in await env.evaluate(MemoryRun(), START, env.train)} == {"provider: gone"}


async def test_the_task_model_is_asked_as_the_task_says() -> None:
    asked: list[Request] = []

    def answer(request: Request) -> str:
        asked.append(request)
        return "yes"

    world = small(answer)
    env: Environment = dataclasses.replace(world.env, generation=Generation(0.7, 33, ("\n",)))
    await multiturn(env).rollout(MemoryRun({"task": world.model}), START, env.train[0], sample=5)
    assert (asked[0].temperature, asked[0].max_tokens, asked[0].stop, asked[0].sample) == (
        0.7,
        33,
        ("\n",),
        5,
    )
