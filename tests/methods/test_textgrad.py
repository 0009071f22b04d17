"""TextGrad: whose answers have gradients, what a step sees and when it is taken back; and what that is worth."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, ClassVar

import pytest
from tests.methods.figures import won_over
from tests.methods.readers import FAILED_INPUT, SHOWN, Blinded, letters
from tests.methods.rule_worlds import HARMFUL, SORT, PoisonModel

import whet
from whet.environments.environment import Environment
from whet.methods.textgrad import CONSTRAINTS, KEPT, TAKEN_BACK, Config, TextOptimizer, textgrad
from whet.models.scripted import Scripted, chance, choose_by_luck, luck, request_text
from whet.rewards.text import ExactMatch
from whet.rl import LanguagePolicy
from whet.run import Budget, MemoryRun
from whet.search.archive import Candidate
from whet.search.edits import PHRASES
from whet.testing.paired_benchmark import KnownWorld, play_world
from whet.testing.runs import MeteredRun
from whet.testing.simulated_task import SOURCE, ConstantReward, review_world
from whet.types import Request, Rollout

CONFORMANCE = {"steps": 3, "held_out": 6}
"""Settings of a run in the conformance suite."""
SWEEP = {"steps": 2, "minibatch": 2, "held_out": 3, "finalists": 1, "memory": 1, "momentum": 1}
"""Settings of a run that is killed at every boundary."""

NAMED = re.compile(r"Nothing helps with topic-(\d+)\.")
TAKEN = re.compile(rf"<INSTRUCTION>\n(.*?)\n</INSTRUCTION>\n{re.escape(TAKEN_BACK)}", re.DOTALL)


class Differentiator(Scripted):
    """As a critic it reads one of the failed inputs that it is shown, and names its topic; of a right answer it says that nothing
    is missing. As an optimizer it knows a phrase for
    each topic that is named, with the probability `right` the one that helps, else a harmful one, and forgets some of the text.
    It takes in nothing of which it sees that it was taken back."""

    OPTIONS: ClassVar[dict[str, str]] = {"right": "0.5", "forgets": "0.05"}

    def answer(self, request: Request, sample: int) -> str:
        question, draw = request_text(request), luck(request, sample)
        if "<REASON>" in question:
            if "Reward: 0" not in question:
                return "<REASON>Nothing is missing here.</REASON>"
            topic = choose_by_luck(FAILED_INPUT.findall(question), self.seed, draw)
            return f"<REASON>Nothing helps with topic-{topic}.</REASON>"
        text, taken_back = SHOWN.findall(question)[0], " ".join(TAKEN.findall(question))
        held = [
            p for p in PHRASES if p in text and chance(self.seed, draw, p) >= self.option_float("forgets")
        ]
        for topic in map(int, dict.fromkeys(NAMED.findall(question))):
            right = chance(self.seed, draw, topic) < self.option_float("right")
            phrase = PHRASES[topic] if right else choose_by_luck(HARMFUL, self.seed, draw, topic)
            held += [phrase] if phrase in text or phrase not in taken_back else []
        return f"<INSTRUCTION>Say yes or no. {' '.join(dict.fromkeys(held))}</INSTRUCTION>"


def world(seed: int, change: Callable[[str], str] = str, **options: str) -> KnownWorld:
    """Half of twelve topics fail until the prompt holds their phrase; half of the phrases harm, and a step loses some."""
    model = PoisonModel("topics", {"seed": str(seed), "harm": "0.05"})
    env = Environment(model, ExactMatch(), letters(96), letters(48, 960))
    writer = Differentiator("writer", {"seed": str(seed), **options})
    reader: Any = Blinded(writer, change)
    return KnownWorld(env, SORT, lambda prompt: model.accuracy(prompt.source), reader)


async def search(
    known: KnownWorld, limits: Budget | None = None, **settings: Any
) -> tuple[Candidate, MeteredRun, list[str]]:
    """What is found, the run, and the questions to the optimizer model."""
    questions = list[str]()

    def note(question: str) -> str:
        questions.append(question)
        return question

    reader: Any = Blinded(known.optimizer, note)  # type: ignore[arg-type]
    run = MeteredRun({"task": known.env.model, "optimizer": reader}, 1, limits=limits)
    found = await textgrad(run, known.env, LanguagePolicy(), SORT, Config(**settings))
    return found, run, questions


def logged(run: MeteredRun, name: str) -> list[Any]:
    return [value for key, value in run.logged if key == name]


async def gradients_of(rewards: list[float], **settings: Any) -> list[str]:
    """The gradients of answers with these rewards, to letters about the topics by turns."""
    known = world(0)
    batch = known.env.train[: len(rewards)]
    rollouts = [
        Rollout(SORT.id, row.id, "unsure", reward) for row, reward in zip(batch, rewards, strict=True)
    ]
    run = MemoryRun({"optimizer": known.optimizer})  # type: ignore[dict-item]
    optimizer = TextOptimizer(known.env, SORT, Config(**settings))
    return await optimizer.backward(run, LanguagePolicy(), "Say yes or no.", batch, rollouts, 0)


async def test_each_answer_that_falls_short_has_a_gradient_in_the_order_of_the_batch() -> None:
    said = await gradients_of([0.0, 1.0, 0.0, 0.0])
    assert said == [f"Nothing helps with topic-{topic}." for topic in (0, 2, 3)]
    assert len(await gradients_of([0.0, 1.0, 0.0, 0.0], critic="batch")) == 1
    assert await gradients_of([1.0, 1.0]) == []


async def test_right_answers_are_criticised_too_where_all_are_wanted() -> None:
    said = await gradients_of([0.0, 1.0, 0.0], criticise="all")
    assert said == ["Nothing helps with topic-0.", "Nothing is missing here.", "Nothing helps with topic-2."]
    _, _, questions = await search(world(0), steps=2, criticise="all")
    critics = [q for q in questions if "<REASON>" in q]
    assert critics and not any("fell short" in q for q in critics)


async def test_equal_gradients_are_shown_once() -> None:
    known = world(0)
    batch = [row for row in known.env.train if "topic-5:" in row.user_text][:3]
    rollouts = [Rollout(SORT.id, row.id, "unsure", 0.0) for row in batch]
    run = MemoryRun({"optimizer": known.optimizer})  # type: ignore[dict-item]
    optimizer = TextOptimizer(known.env, SORT, Config())
    assert len(batch) == 3
    said = await optimizer.backward(run, LanguagePolicy(), "Say yes or no.", batch, rollouts, 0)
    assert said == ["Nothing helps with topic-5."]


async def test_a_step_that_earns_less_is_taken_back_and_a_tie_is_not() -> None:
    _, run, _ = await search(world(1), steps=12)
    made = {c["id"]: c for c in logged(run, "candidate")}
    steps = [c for c in made.values() if c["operator"].startswith("step")]
    taken_back = [one["reverted"] for one in logged(run, "step")]
    assert any(taken_back) and not all(taken_back)
    assert taken_back == [c["train"] < made[c["parents"][0]]["train"] for c in steps]
    later = {c["parents"][0] for c in steps}
    assert not any(c["id"] in later for c, back in zip(steps, taken_back, strict=True) if back)


async def test_without_reverting_every_step_is_followed() -> None:
    _, run, _ = await search(world(1), steps=8, revert=False)
    steps = [c for c in logged(run, "candidate") if c["operator"].startswith("step")]
    assert [c["parents"][0] for c in steps[1:]] == [c["id"] for c in steps[:-1]]
    assert not any(one["reverted"] for one in logged(run, "step"))


async def test_old_and_new_text_answer_the_same_rows_and_gradients_come_from_others() -> None:
    known = world(2)
    seen: dict[str, set[str]] = {}

    class Watched(Environment):
        async def score(self, run: Any, prompts: Any, examples: Any) -> Any:
            seen.setdefault("held out", set()).add(" ".join(row.id for row in examples))
            return await super().score(run, prompts, examples)

        async def evaluate(self, run: Any, prompt: Any, examples: Any, **how: Any) -> Any:
            if len(examples) == 3:
                seen.setdefault("batch", set()).update(row.id for row in examples)
            return await super().evaluate(run, prompt, examples, **how)

    env = Watched(known.env.model, known.env.reward, known.env.train, known.env.validation)
    await search(replace(known, env=env), steps=6, held_out=20)
    training = {row.id for row in env.train}
    held_out = [set(rows.split()) for rows in seen["held out"] if set(rows.split()) <= training]
    assert len(held_out) == 1 and len(held_out[0]) == 20
    assert seen["batch"] and not seen["batch"] & held_out[0]


async def test_earlier_gradients_and_texts_are_shown_when_they_are_wanted() -> None:
    _, _, bare = await search(world(1), steps=6)
    _, _, full = await search(
        world(1), steps=6, memory=2, momentum=1, constraints="Stay short.\n\n Be kind. "
    )
    steps = [q for q in full if CONSTRAINTS in q]
    assert all(f"{CONSTRAINTS}\n\n- Stay short.\n\n- Be kind." in q for q in steps) and len(steps) > 3
    assert not any(CONSTRAINTS in q or KEPT in q or TAKEN_BACK in q for q in bare)
    assert not any(KEPT in q or TAKEN_BACK in q for q in steps[:1])
    assert all((KEPT in q) + (TAKEN_BACK in q) == 1 for q in steps[1:]), (
        "the last text, with what became of it"
    )
    earlier = NAMED.findall(steps[0])
    assert earlier == NAMED.findall(steps[1])[-len(earlier) :], (
        "the gradients of the first step are in the second"
    )


async def test_rewards_that_are_all_full_leave_the_start() -> None:
    known = world(0)
    best, run, _ = await search(replace(known, env=replace(known.env, reward=ConstantReward(1.0))), steps=4)
    assert best.prompt == SORT and run.spent["optimizer"] == 0


@pytest.mark.parametrize("most", [150, 300])
async def test_a_small_limit_is_kept_and_used(most: int) -> None:
    _, run, _ = await search(world(1), Budget(task_calls=most, optimizer_calls=20))
    assert 0.5 * most < run.spent["task"] <= most and 8 <= run.spent["optimizer"] <= 20


def test_through_the_public_face(tmp_path: Any) -> None:
    rows = [{"input": row.user_text, "target": row.target} for row in review_world(train=60).train]
    result = whet.optimize(
        SOURCE,
        data=rows,
        labels=["positive", "negative"],
        reward="exact_match",
        lm="scripted/labels",
        optimizer_lm="scripted/phrases",
        method=whet.methods.textgrad.Config(minibatch=6),
        run=tmp_path / "run",
    ).to_dict()
    assert result["best"]["validation"]["mean"] > result["baseline"]["validation"]["mean"]


# The contest: steps that are taken back against steps that are followed, a critic of one answer against one of the batch.

LARGE = Budget(task_calls=1500, optimizer_calls=90)


@cache
def reached(method: str = "textgrad", seeds: int = 12, **settings: Any) -> list[float]:
    """What a method finds in the world of each seed."""
    return [play_world(method, world(seed), seed, LARGE, settings) for seed in range(seeds)]


def test_followed_without_reverting_it_loses() -> None:
    won = won_over("revert=false", reached(), reached(revert=False))
    assert won.low > 0, won


@pytest.mark.long
@pytest.mark.parametrize("steps", [12, 40])
def test_against_its_controls(steps: int) -> None:
    own = reached(seeds=30, steps=steps)
    for name, settings in {
        "revert=false": {"revert": False},
        "critic=batch": {"critic": "batch"},
        "PACE": {"revert": False, "criticise": "all"},
        "momentum=3": {"momentum": 3},
        "memory=3": {"memory": 3},
    }.items():
        won = won_over(f"{name}, steps={steps}", own, reached(seeds=30, steps=steps, **settings))
        assert won.low > 0 or name not in ("revert=false", "PACE"), won


@pytest.mark.long
def test_against_random_search() -> None:
    won = won_over("random_search", reached(seeds=30, steps=40), reached("random_search", seeds=30))
    assert won.low > 0, won
