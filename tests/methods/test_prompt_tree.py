"""The prompt tree: what each move makes of a set, what is refused, and that taking away matters as adding does."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, ClassVar

import pytest
from tests.methods.figures import won_over
from tests.methods.readers import TOPICS, Blinded, TopicModel, letters

from whet.environments.environment import Environment
from whet.methods.prompt_tree import (
    ADD,
    DROP,
    MERGE,
    REQUESTS,
    REWRITE,
    Config,
    apply,
    prompt_tree,
)
from whet.models.scripted import Scripted, chance, choose_by_luck, luck, shuffle
from whet.models.scripted_replies import request_text
from whet.prompt import Prompt
from whet.rewards.text import ExactMatch
from whet.rl import LanguagePolicy
from whet.run import Budget
from whet.search.edits import PHRASES
from whet.testing.paired_benchmark import KnownWorld, play_world
from whet.testing.runs import MeteredRun
from whet.testing.simulated_task import Answers, review_world
from whet.types import Request

CONFORMANCE = {"iterations": 2, "width": 2, "depth": 2, "examples": 12}
"""Settings of a run in the conformance suite."""
SWEEP = {"iterations": 1, "width": 2, "depth": 2, "finalists": 1}
"""Settings of a run that is killed at every boundary."""

LINES = ("Be brief.", "The text: {{input}}", "Answer in English.", "Use few words.")
LISTED = tuple(line for line in LINES if "{{" not in line)
KEPT = LINES[1]


@pytest.mark.parametrize(
    ("kind", "reply", "lines"),
    [
        (ADD, "Mind\nthe tone.", [*LINES, "Mind the tone."]),
        (ADD, "Be brief.", []),
        (ADD, " ", []),
        (REWRITE, "2\nAnswer in French.", ["Be brief.", KEPT, "Answer in French.", "Use few words."]),
        (REWRITE, "Number 2:\nAnswer in French.", ["Be brief.", KEPT, "Answer in French.", "Use few words."]),
        (REWRITE, "2", []),
        (REWRITE, "4\nAnswer in French.", []),
        (REWRITE, "0\nAnswer in French.", []),
        (REWRITE, "Answer in French.", []),
        (DROP, "1", [KEPT, "Answer in English.", "Use few words."]),
        (DROP, "1 or 2", []),
        (DROP, "9", []),
        (MERGE, "1, 3\nBe brief.", ["Be brief.", KEPT, "Answer in English."]),
        (MERGE, "3 and 1\nFew words.", [KEPT, "Answer in English.", "Few words."]),
        (MERGE, "1\nFew words.", []),
        (MERGE, "1 1\nFew words.", []),
    ],
)
def test_what_a_move_makes_of_a_set(kind: str, reply: str, lines: list[str]) -> None:
    assert apply(kind, reply, LINES, LISTED) == lines


START = Prompt.parse(
    "You sort letters.\n<!-- whet:begin -->\nSay yes or no.\nBe polite.\n<!-- whet:end -->\n{{input}}"
)


def replying(replies: Mapping[str, str]) -> Answers:
    """An optimizer with one reply to each kind of move."""
    by_request = {REQUESTS[kind]: reply for kind, reply in replies.items()}
    return Answers(lambda q, s: f"<MOVE>{next((r for k, r in by_request.items() if k in q), '')}</MOVE>")


async def texts(model: Answers, start: Prompt = START, **settings: Any) -> list[str]:
    """The editable texts of all candidates after the start."""
    env = review_world(train=12, validation=6)
    run = MeteredRun({"task": env.model, "optimizer": model})
    await prompt_tree(run, env, LanguagePolicy(), start, Config(iterations=1, depth=1, **settings))
    logged: Any = [value for name, value in run.logged if name == "candidate"]
    prompts = [start.edit(Prompt.parse(v["messages"][0][1]).region_text()) for v in logged[1:]]
    return [prompt.region_text().strip() for prompt in prompts]


async def test_each_kind_of_move_has_its_turn() -> None:
    replies = {ADD: "Mind the tone.", REWRITE: "2\nBe kind.", DROP: "2", MERGE: "1 2\nSay it politely."}
    assert await texts(replying(replies)) == [
        "Say yes or no.\nBe polite.\nMind the tone.",
        "Say yes or no.\nBe kind.",
        "Say yes or no.",
        "Say it politely.",
    ]
    assert await texts(replying(replies), moves="add") == ["Say yes or no.\nBe polite.\nMind the tone."]


async def test_the_last_instruction_is_neither_dropped_nor_merged() -> None:
    model = replying({ADD: "Mind the tone.", REWRITE: "1\nBe kind.", DROP: "1", MERGE: "1 1\nBe kind."})
    only = START.edit("Say yes or no.")
    assert await texts(model, only) == ["Say yes or no.\nMind the tone.", "Be kind."]


async def test_what_copies_an_input_is_no_instruction() -> None:
    text = "Visit 0: the soup was good. Of this visit say positive."
    assert await texts(replying({ADD: f"If the text is {text}"}), moves="add") != []
    row = review_world(train=12).train[3].user_text
    long = replying({ADD: f"If it says {row} Visit 3 is positive."})
    kept = await texts(long, moves="add")
    assert all(len(row) < 32 or row not in one for one in kept)


# The contest: half of what is wrong stands in the prompt already, and must be taken out.

SEEDS, CALLS = range(8), Budget(task_calls=300)
BAD = 4
WRONG = "Of topic-{} say that you cannot tell."


class Misled(TopicModel):
    """A classifier that fails on inputs of a topic, too, where an instruction says that it cannot tell."""

    FAILING = 3

    def right(self, topic: int, prompt: str) -> float:
        return 0.1 if f"topic-{topic} " in prompt else super().right(topic, prompt)


class MoveReader(Scripted):
    """Reads of which topic most wrong answers are. It adds the phrase of that topic; it drops, rewrites or merges instructions
    that name it, or else any."""

    OPTIONS: ClassVar[Mapping[str, str]] = {}

    def answer(self, request: Request, sample: int) -> str:
        question, draw = request_text(request), luck(request, sample)
        topics = re.findall(r"(?m)^Input: .*topic-(\d+)", question) or ["0"]
        most = max(sorted(set(topics)), key=lambda t: (topics.count(t), chance(self.seed, draw, t)))
        listed = re.findall(r"(?m)^(\d+)\. (.*)$", question)
        bad = [number for number, line in listed if f"topic-{most} " in line]
        numbers = bad or [choose_by_luck(listed, self.seed, draw, "any")[0]]
        if REQUESTS[ADD] in question:
            move = PHRASES[int(most)]
        elif REQUESTS[DROP] in question:
            move = numbers[0]
        elif REQUESTS[REWRITE] in question:
            move = f"{numbers[0]}\n{PHRASES[int(most)]}"
        else:
            both = shuffle([number for number, _ in listed], self.seed, draw)[:2]
            move = f"{' '.join(both)}\n{' '.join(line for n, line in listed if n in both)}"
        return f"<MOVE>{move}</MOVE>"


def misled(seed: int, change: Callable[[str], str] = str) -> KnownWorld:
    """Three of twelve topics lack their phrase; of three others an instruction says that the model cannot tell."""
    model = Misled("topics", {"seed": str(seed)})
    told = [WRONG.format(topic) for topic in shuffle(range(TOPICS), seed, "hard")[BAD : BAD + 3]]
    start = START.edit("\n".join(["Say yes or no.", *told]))
    env = Environment(model, ExactMatch(), letters(96), letters(48, 960))
    reader: Any = Blinded(MoveReader("reader", {"seed": str(seed)}), change)
    return KnownWorld(env, start, lambda p: model.accuracy(p.source), reader)


@cache
def reached(method: str, **settings: Any) -> list[float]:
    """What a method finds in the world of each seed."""
    return [play_world(method, misled(seed), seed, CALLS, settings) for seed in SEEDS]


@pytest.mark.long
@pytest.mark.parametrize("settings", [{"moves": "add"}, {"tree": False}], ids=["add", "flat"])
def test_a_tree_that_may_only_add_and_a_flat_one_lose(settings: dict[str, Any]) -> None:
    lost = won_over(f"with {settings}", reached("prompt_tree"), reached("prompt_tree", **settings))
    assert lost.low > 0.02, lost


def test_it_beats_random_search() -> None:
    won = won_over("random_search", reached("prompt_tree"), reached("random_search", edits=16))
    assert won.low > 0.02, won
