"""GrIPS: edits by position, the published score, patience, the delete list, and that greed beats luck."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from whet.methods.grips import Config, grips
from whet.models.scripted import load
from whet.prompt import Prompt
from whet.rl import LanguagePolicy
from whet.run import Budget, MemoryRun
from whet.search.archive import Candidate
from whet.search.edits import Edit
from whet.search.phrase_search import balanced_score, edit_chains, remember
from whet.testing.paired_benchmark import KnownWorld, advantage
from whet.testing.runs import MeteredRun
from whet.testing.simulated_task import Answers, ConstantReward, review_world
from whet.types import Example, Rollout

CONFORMANCE = {"iterations": 4, "candidates": 3, "examples": 12}
"""Settings of a run in the conformance suite."""
SWEEP = {"iterations": 1, "candidates": 2, "finalists": 1}
"""Settings of a run that is killed at every boundary."""

SOURCE = """\
You sort reviews.
<!-- whet:begin -->
Read it carefully. Be quick. Mind the tone. Guess freely. Look for evidence.
Hurry up a little. Give a single answer. Never look back. Make it witty, use slang.
<!-- whet:end -->
Review: {{input}}"""
START = Prompt.parse(SOURCE)
LAW = {
    "words": "carefully,evidence,tone,single",
    "harmful": "guess,quick,hurry,never,witty,slang",
    "harm": "0.08",
    "base": "0.4",
}
ENV = review_world()


def rollouts(answers: str, targets: str) -> tuple[list[Example], list[Rollout]]:
    """One letter is one answer: p positive, n negative, ? unreadable."""
    names = {"p": "positive", "n": "negative", "?": "hm"}
    examples = [Example(str(i), {}, names[t]) for i, t in enumerate(targets)]
    found = [
        Rollout("p", str(i), names[a], float(a == t), error="parse: no" if a == "?" else None)
        for i, (a, t) in enumerate(zip(answers, targets, strict=True))
    ]
    return examples, found


@pytest.mark.parametrize(
    ("answers", "targets", "balanced", "entropy"),
    [
        ("ppnn", "ppnn", 1.0, math.log(2)),
        ("pppp", "ppnn", 0.5, 0.0),
        ("ppppn", "ppppn", 1.0, -(0.8 * math.log(0.8) + 0.2 * math.log(0.2))),
        ("ppppp", "ppppn", 0.5, 0.0),
        ("pp??", "ppnn", 0.5, 0.0),
        ("????", "ppnn", 0.0, 0.0),
    ],
)
def test_the_published_score(answers: str, targets: str, balanced: float, entropy: float) -> None:
    assert balanced_score(ENV, *rollouts(answers, targets), 10.0) == pytest.approx(
        100 * balanced + 10 * entropy
    )


def test_without_labels_the_score_is_the_mean_reward_from_0_to_100() -> None:
    env = replace(ENV, labels={}, reward=ConstantReward(0.5, low=-1.0, high=3.0))
    examples, found = rollouts("pn", "pp")
    assert balanced_score(env, examples, found, 10.0) == pytest.approx(100 * (0.5 + 1) / 4)


async def search(
    env: Any = None, seed: int = 0, optimizer: Any = None, **settings: Any
) -> tuple[Candidate, MeteredRun]:
    env = env or review_world(load("labels", LAW))
    run = MeteredRun({"task": env.model, "optimizer": optimizer}, seed)
    policy = LanguagePolicy() if optimizer else None
    return await grips(run, env, policy, START, Config(**settings)), run


async def test_harmful_phrases_are_deleted_and_helpful_ones_kept() -> None:
    model: Any = load("labels", LAW)
    best, run = await search(review_world(model), iterations=40, patience=10, candidates=8)
    assert model.accuracy(best.prompt.source) > model.accuracy(SOURCE) + 0.3
    assert run.spent["optimizer"] == 0
    assert best.prompt.edit(START.region_text()) == START


async def test_patience_ends_a_search_without_gain() -> None:
    env = replace(review_world(train=20, validation=10), reward=ConstantReward(0.5), labels={})
    for patience in (1, 2, 4):
        _, run = await search(env, iterations=50, candidates=3, patience=patience)
        tried = sum(name == "candidate" for name, _ in run.logged) - 1
        assert 2 * patience <= tried <= 3 * patience
    _, run = await search(env, iterations=30, candidates=3, patience=1, annealing=True)
    assert sum(name == "candidate" for name, _ in run.logged) > 20


async def test_equal_texts_are_scored_once() -> None:
    env = review_world(train=20, validation=10)
    run = MeteredRun({"task": env.model})
    start = Prompt.parse("{{input}}\n<!-- whet:begin -->\nred, blue\n<!-- whet:end -->")
    await grips(run, env, None, start, Config(iterations=6, candidates=6, patience=6))
    candidates = [value for name, value in run.logged if name == "candidate"]
    validated = sum(name == "validated" for name, _ in run.logged)
    assert run.spent["task"] == 20 * len(candidates) + 10 * validated
    assert len({value["id"] for value in candidates}) == len(candidates)  # type: ignore[index, call-overload]


async def test_only_deleted_phrases_are_added() -> None:
    without = await edit_chains(MemoryRun(), None, START.region_text(), (), range(60))
    assert {edit.kind for chain in without for edit in chain} == {"delete", "swap"}
    given = await edit_chains(MemoryRun(), None, START.region_text(), ("stay calm",), range(60))
    added = [edit for chain in given for edit in chain if edit.kind == "insert"]
    assert added and {edit.added for edit in added} == {"stay calm"}


async def test_a_chain_edits_the_edited_text() -> None:
    chains = await edit_chains(MemoryRun(), None, START.region_text(), (), range(20), 3)
    assert {len(chain) for chain in chains} == {3}
    lost = [e.deleted for chain in chains if all(e.kind == "delete" for e in chain) for e in chain]
    assert all(phrase not in chains[0][-1].text for phrase in [e.deleted for e in chains[0] if e.deleted])
    assert len(lost) % 3 == 0


async def test_no_edit_is_possible_without_a_phrase() -> None:
    assert await edit_chains(MemoryRun(), None, "{{input}}", (), range(3)) == [[], [], []]
    policy = LanguagePolicy().rephrase
    assert (
        await edit_chains(MemoryRun({"optimizer": Answers(lambda q, s: "x")}), policy, "!", (), range(9))
        == [[]] * 9
    )


def test_the_delete_list_follows_what_was_accepted() -> None:
    chain = [Edit("", "insert", added="a"), Edit("", "delete", deleted="c"), Edit("", "swap")]
    assert remember(("a", "b", "a"), chain) == ("b", "a", "c")
    assert remember((), chain[2:]) == ()


async def test_substitutes_come_from_the_optimizer() -> None:
    model = Answers(lambda question, sample: "<WORDING>gently now</WORDING>\n<WORDING>softly now</WORDING>")
    chains = await edit_chains(
        MemoryRun({"optimizer": model}), LanguagePolicy().rephrase, START.region_text(), (), range(30)
    )
    substituted = [edit.text for chain in chains for edit in chain if edit.kind == "substitute"]
    assert len(substituted) == len(model.requests) > 3
    assert all("gently now" in text or "softly now" in text for text in substituted)
    assert any("gently now" in text for text in substituted) and any(
        "softly now" in text for text in substituted
    )


def clean_up(seed: int) -> KnownWorld:
    """The start holds four helpful and six harmful phrases."""
    model: Any = load("labels", {**LAW, "seed": str(seed)})
    return KnownWorld(review_world(model, train=80, validation=30), START, lambda p: model.accuracy(p.source))


@pytest.mark.long
def test_beats_random_search_at_equal_budget() -> None:
    settings = {"grips": {"iterations": 30, "patience": 5}}
    found = advantage("grips", "random_search", clean_up, Budget(task_calls=2000), range(10), settings)
    assert found.low > 0, found
