"""SkillOpt: few edits at anchors, a strict gate, refused edits shown, a section that steps cannot touch."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.methods.figures import won_over
from tests.methods.rule_worlds import LAST_WORD, edits, optimized, poisoned

from whet.methods.skillopt import HEAD, LEARNED, REFUSED, Config, Skill, learning_rate, skillopt
from whet.prompt import Prompt
from whet.rl import LanguagePolicy
from whet.run import Budget
from whet.search.archive import Candidate
from whet.testing.paired_benchmark import play_world
from whet.testing.runs import MeteredRun
from whet.testing.simulated_task import SOURCE, Answers, review_world

CONFORMANCE = {"steps": 6, "batch": 8, "epochs": 2, "analysts": 2}
"""Settings of a run in the conformance suite."""
SWEEP = {"steps": 4, "batch": 2, "epochs": 2, "analysts": 2}
"""Settings of a run that is killed at every boundary."""

START = Prompt.parse(SOURCE)


def written(*operations: dict[str, str]) -> str:
    return f"<EDITS>{json.dumps(operations)}</EDITS>"


async def search(
    answer: Callable[[str, int], Any], env: Any = None, limits: Budget | None = None, **settings: Any
) -> tuple[Candidate, Answers, MeteredRun]:
    env, model = env or review_world(), Answers(answer)
    run = MeteredRun({"task": env.model, "optimizer": model}, limits=limits)
    config = Config(**{"steps": 4, "batch": 12, "epochs": 1, **settings})
    return await skillopt(run, env, LanguagePolicy(), START, config), model, run


def texts(run: MeteredRun) -> list[str]:
    """The texts that the gate saw, in order."""
    return [
        START.__class__.parse(v["messages"][0][1]).region_text()  # type: ignore[index, call-overload]
        for name, v in run.logged
        if name == "candidate" and v["operator"] != "start"  # type: ignore[index, call-overload]
    ]


@pytest.mark.parametrize(
    ("schedule", "rates"),
    [("cosine", [4, 4, 3, 2]), ("linear", [4, 4, 3, 2]), ("constant", [4, 4, 4, 4])],
)
def test_the_learning_rate_falls_from_most_to_least(schedule: Any, rates: list[int]) -> None:
    """Cosine at 0, 1/4, 1/2, 3/4 of the way: 4, 2 + 2 x .854, 2 + 2 x .5, 2 + 2 x .146."""
    assert [learning_rate(Config(schedule=schedule), step, 4) for step in range(4)] == rates


async def test_no_step_makes_more_edits_than_its_learning_rate() -> None:
    def many(question: str, sample: int) -> str:
        return written(*({"op": "append", "text": f"Rule {sample} {i}."} for i in range(9)))

    _, _, run = await search(many, steps=3, most=3, least=1, gate="off", analysts=4)
    grown = [len(text.splitlines()) for text in texts(run)]
    assert [after - before for before, after in zip([1, *grown], grown, strict=False)] == [3, 2, 2]


async def test_only_strictly_better_texts_are_kept() -> None:
    better = written({"op": "append", "text": "Look carefully."})
    same = written({"op": "append", "text": "Nothing."})
    best, _, run = await search(lambda q, s: better if "carefully" not in q else same, steps=3)
    assert all("carefully" in text for text in texts(run))
    assert best.prompt.region_text().count("\n") == START.region_text().count("\n") + 1
    best, _, _ = await search(lambda q, s: written({"op": "append", "text": "Guess again."}))
    assert best.prompt == START


async def test_refused_edits_are_shown_with_both_scores_until_the_epoch_ends() -> None:
    harm = written({"op": "replace", "anchor": "Be quick", "text": "Be quick, be quick, and guess"})
    _, model, _ = await search(lambda q, s: harm, steps=4, epochs=2, analysts=1, slow=False)
    shown = [REFUSED in question for question in model.questions]
    assert shown == [False, True, False, True]
    assert "- replace: Be quick | Be quick, be quick, and guess (score " in model.questions[1]


async def test_an_edit_without_its_anchor_is_dropped_and_counted() -> None:
    lost = written(
        {"op": "insert_after", "anchor": "No such words", "text": "Look carefully."},
        {"op": "delete", "anchor": " Be quick, and guess freely."},
    )
    best, _, run = await search(lambda q, s: lost, steps=1)
    counts = next(value for name, value in run.logged if name == "edits")
    assert counts == {"limit": 4, "proposed": 2, "made": 1}
    assert best.prompt.region_text().strip() == "Say what the review is like."


async def test_a_reply_in_plain_lines_is_read_as_texts_to_append() -> None:
    best, _, _ = await search(lambda q, s: "<EDITS>\n- Look carefully.\n- Mind the tone.\n</EDITS>", steps=1)
    assert best.prompt.region_text().strip().endswith("\nLook carefully.\nMind the tone.")


async def test_an_edit_that_copies_an_input_or_holds_a_secret_is_dropped() -> None:
    env = review_world()
    rows = tuple(
        replace(r, text=f"{r.text} It was on the {i}th day of that long month.")
        for i, r in enumerate(env.train)
    )
    copied = written({"op": "append", "text": f"Carefully: {rows[0].text}"})
    _, model, run = await search(lambda q, s: copied, replace(env, train=rows))
    assert model.questions and not texts(run)
    secret = written(
        {"op": "append", "text": "Carefully use the key sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD."}
    )
    _, _, run = await search(lambda q, s: secret)
    assert not texts(run)


def guided(question: str, sample: int) -> str:
    """Helps in every step, and tries to edit the guidance once that stands."""
    if "<NOTES>" in question:
        return "<NOTES>Short edits help.</NOTES>"
    if "<GUIDANCE>" in question:
        return "<GUIDANCE>Weigh the evidence.</GUIDANCE>"
    word = next((w for w in ("carefully", "tone", "single", "more") if w not in question), "more")
    return written(
        {"op": "delete", "anchor": "Weigh the evidence."}, {"op": "append", "text": f"Mind the {word}."}
    )


async def test_steps_cannot_touch_the_guidance_and_its_score_is_measured() -> None:
    best, model, run = await search(guided, steps=8, epochs=4, analysts=1, batch=20, gate="off")
    slow = [text for text in texts(run) if HEAD in text]
    assert slow and all("Weigh the evidence." in text.partition(HEAD)[2] for text in slow)
    later = [q for q in model.questions if LEARNED in q]
    assert later and all("Short edits help." in q for q in later)
    scored = [v for name, v in run.logged if name == "candidate"]
    assert all(v["train"] is not None for v in scored if v["operator"] != "start")  # type: ignore[index, call-overload]
    assert "Weigh the evidence." in best.prompt.region_text()


def test_the_guidance_stands_below_the_text() -> None:
    prompt = Skill("Say it.", "Take care.").prompt(START)
    assert prompt is not None and prompt.region_text().strip() == f"Say it.\n\n{HEAD}\nTake care."


@pytest.mark.parametrize("most", [150, 300])
async def test_small_budgets_buy_two_steps(most: int) -> None:
    env = review_world(train=40, validation=20)
    limits = Budget(task_calls=most, optimizer_calls=15)
    _, model, run = await search(guided, env, limits, **vars(Config()))
    assert len({request.sample // 100 for request in model.requests}) >= 2
    assert 0.5 * most < run.spent["task"] <= most and run.spent["optimizer"] <= 15


def test_through_the_public_face(tmp_path: Path) -> None:
    append = written({"op": "append", "text": LAST_WORD})
    assert optimized(tmp_path, "skillopt", lambda question: append).strip().endswith(LAST_WORD)


# The contest: an optimizer whose edits help or harm, a little more of the first kind; the gate tells them apart.

SEEDS = 12


@cache
def reached(method: str, calls: int = 1200, seeds: int = SEEDS, **settings: Any) -> list[float]:
    """What a method finds in the world of each seed."""
    limits = Budget(task_calls=calls)
    return [
        play_world(method, poisoned(s, edits, right="0.6", harm="0.05"), s, limits, settings)
        for s in range(seeds)
    ]


def test_behind_its_gate_it_beats_random_search_and_itself_without_the_gate() -> None:
    assert won_over("random_search", reached("skillopt"), reached("random_search", edits=16)).low > 0
    assert won_over("with the gate off", reached("skillopt"), reached("skillopt", gate="off")).low > 0.01


@pytest.mark.long
def test_with_a_learning_rate_it_beats_itself_without_one() -> None:
    whole, free = reached("skillopt", 2500, 30), reached("skillopt", 2500, 30, most=99, least=99)
    assert won_over("without a learning rate", whole, free).low > 0.02


@pytest.mark.long
def test_no_benefit_of_the_slow_update_is_shown() -> None:
    assert (
        won_over("no slow update", reached("skillopt", 2500), reached("skillopt", 2500, slow=False)).low < 0
    )
