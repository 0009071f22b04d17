"""Adaptive prompting: the parts, the compositions, the clusters, deployment; the contest."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.methods.figures import on_seeds, won_over
from tests.methods.routing_worlds import HELPS, START, answer, kind_of, row, two_kinds

import whet
from whet.errors import UsageError
from whet.methods.adaptive import Config, adaptive, check, clusters, compositions, deploy
from whet.rl import LanguagePolicy
from whet.rl.prompt_router import Routed
from whet.run import Budget
from whet.search.archive import Candidate
from whet.search.demonstrations import label_rows
from whet.search.edits import PHRASES
from whet.testing.runs import MeteredRun
from whet.testing.simulated_task import Answers

CONFORMANCE = {"compositions": 4, "rows": 20}
"""Settings of a run in the conformance suite."""
SWEEP = {"compositions": 2, "rows": 4, "folds": 0}
"""Settings of a run that is killed at every boundary."""

PARTS = "|".join(PHRASES[:4])


def test_of_few_parts_all_compositions_are_measured_and_of_many_some() -> None:
    run = MeteredRun({})
    four = compositions(run, START, ["A.", "B."], [], 16)
    assert [p.region_text().split() for p in four] == [
        ["Do", "it."],
        ["Do", "it.", "B."],
        ["Do", "it.", "A."],
        ["Do", "it.", "A.", "B."],
    ]
    parts = [f"{letter}." for letter in "ABCDEF"]
    some = compositions(run, START, parts, [], 12)
    assert some[0] == START and len({p.id for p in some}) == 12
    assert [p.region_text().split()[2:] for p in some[1:7]] == [[part] for part in parts]
    assert len(compositions(run, START, parts, [], 3)) == 3


def test_demonstrations_are_a_part() -> None:
    env = two_kinds(0).env
    shown = label_rows(env, START, env.train[:2])
    found = compositions(MeteredRun({}), START, ["A."], shown, 16)
    held = [(("A." in p.source), (env.train[0].user_text in p.source)) for p in found]
    assert held == [(False, False), (False, True), (True, False), (True, True)]


def test_clusters_have_the_means_of_their_rows_drawn_to_those_of_all() -> None:
    x = np.array([[1.0, 0.0]] * 6 + [[0.0, 1.0]] * 6)
    table = np.array([[1.0, 0.0]] * 6 + [[0.0, 1.0]] * 6)
    table[0, 0] = np.nan
    model = clusters(x, table, 2.0)
    predicted = model.predict(np.array([[0.9, 0.2], [0.1, 0.7]]))
    assert predicted.argmax(axis=1).tolist() == [0, 1]
    mean = (5 + 2 * 11 / 23) / 13  # of the first composition, drawn to the mean of all
    assert predicted[0, 0] == pytest.approx((5 + 4 * mean) / (5 + 4))


async def test_a_model_writes_the_parts_and_copies_of_inputs_are_left_out() -> None:
    env = two_kinds(0).env
    long = replace(
        env.train[0], text=f"{env.train[0].user_text} And what do my sisters Ann and Ida say to that?"
    )
    env = replace(env, train=(long, *env.train[1:]))
    texts = [PHRASES[0], f"Answer this: {long.user_text}", PHRASES[1], PHRASES[0]]
    writer = Answers(lambda question, sample: "\n".join(f"<SENTENCE>{text}</SENTENCE>" for text in texts))
    run = MeteredRun({"task": env.model, "optimizer": writer})
    await adaptive(run, env, LanguagePolicy(), START, Config(rows=20, folds=0))
    assert run.spent["optimizer"] == 1
    asked = {question.partition("Question:")[0] for question in env.model.questions}  # type: ignore[attr-defined]
    assert any(PHRASES[0] in one and PHRASES[1] in one for one in asked) and len(asked) == 4


def test_through_the_public_face(tmp_path: Path) -> None:
    def say(messages: list[Any]) -> str:
        return answer(3, "\n".join(message.content for message in messages))

    def rows(first: int, n: int) -> list[dict[str, Any]]:
        drawn = [row(number, 3) for number in range(first, first + n)]
        return [{"input": one.user_text, "target": one.target} for one in drawn]

    result = whet.optimize(
        START.source,
        data={"train": rows(0, 160), "validation": rows(1000, 60), "test": rows(2000, 100)},
        reward="exact_match",
        lm=say,
        method="adaptive",
        settings={"parts": PARTS},
        run=tmp_path / "run",
        budget=whet.Budget(task_calls=3500),
    ).to_dict()
    assert result["best"]["test"]["mean"] > result["baseline"]["test"]["mean"] + 0.1
    assert result["improvement"]["promoted"]


def test_a_task_of_several_turns_and_an_unknown_embedding_are_refused() -> None:
    env = two_kinds(0).env
    with pytest.raises(UsageError, match='no embedding "nobody"'):
        check(env, Config(embedding="nobody"))
    with pytest.raises(UsageError, match="adaptive chooses a prompt for one question"):
        check(Routed(env.model, env.reward, env.train, env.validation), Config())


# The contest: rows of two kinds, each of which a phrase helps that harms the other.


@cache
def played(seed: int, method: str = "adaptive", **settings: Any) -> tuple[float, Candidate, MeteredRun]:
    own = {"parts": PARTS, **settings} if method == "adaptive" else settings
    return two_kinds(seed).play(method, Budget(task_calls=3000, optimizer_calls=40), own)


def worths(seeds: int, method: str = "adaptive", **settings: Any) -> list[float]:
    return [played(seed, method, **settings)[0] for seed in range(seeds)]


@on_seeds(3, 5)
def test_it_beats_itself_with_features_shuffled_random_search_and_the_best_single_prompt(seeds: int) -> None:
    own = worths(seeds)
    assert won_over("features shuffled", own, worths(seeds, features="shuffled")).low > 0.05
    assert won_over("random_search", own, worths(seeds, "random_search")).low > 0.05
    assert won_over("the best single prompt there is", own, [0.55] * seeds).low > 0.05


def test_each_kind_is_answered_under_the_phrase_that_helps_it() -> None:
    world = two_kinds(0)
    _, best, run = played(0)
    assert best.system is not None
    there = deploy(world.env, None, run.kept[best.system], Config())
    assert isinstance(there, Routed)
    fresh = [row(number) for number in range(5000, 5200)]
    texts = asyncio.run(there.texts(MeteredRun({}), best.prompt, fresh))
    helped = [HELPS[kind_of(number)] in text for number, text in zip(range(5000, 5200), texts, strict=True)]
    assert np.mean(helped) > 0.8
