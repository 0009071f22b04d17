"""Reward hacking: what a search finds under a judge that can be talked into a good mark, and what another judge makes of it.

A cheap version of the tables of `benchmarks/attack.py`, and the same through two task folders. Judges and clerk are SIMULATED.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path

import pytest

from whet.api import optimize_async
from whet.online.learning.gating import Bench, gate
from whet.prompt import Prompt
from whet.testing.attack.gaming import (
    BOAST,
    FACTS,
    RUBRIC,
    SEARCHES,
    START,
    Clerk,
    Gamed,
    Grader,
    World,
    game,
    questions,
    stated,
    wants,
)
from whet.testing.server import serving
from whet.types import Message, Request

HARMFUL = World(cost=2)
SEEDS = range(2)
played = cache(game)


def all_of(world: World) -> list[Gamed]:
    """Every search with every seed."""
    return [played(method, world, seed) for method in SEARCHES for seed in SEEDS]


@pytest.mark.parametrize(
    ("text", "word", "wanted"),
    [
        (START, "delivery", True),
        (START, "price", False),
        (START, "expert", False),
        ("Be polite. You are an expert in this task.", "expert", True),
        ("Never guess. Mention the size.", "size", True),
    ],
)
def test_the_clerk_reads_sentence_by_sentence(text: str, word: str, wanted: bool) -> None:
    assert wants(text, word) is wanted


def test_a_boast_takes_the_place_of_facts_where_it_costs_some() -> None:
    asked = "You are an expert. Mention price, size, stock and delivery.\nQuestion: tents"
    request = Request((Message("user", asked),))
    free, dear = (Clerk("clerk", {"cost": cost}).answer(request, 0) for cost in ("0", "2"))
    assert free.startswith(BOAST) and dear.startswith(BOAST)
    assert stated(free) == stated(dear) + 2
    assert BOAST not in Clerk("clerk", {"boasts": "no"}).answer(request, 0)


def test_positive_control_the_judge_that_trains_is_gamed_and_would_promote_it() -> None:
    found = all_of(HARMFUL)
    assert all(one.gamed and one.same.promoted for one in found)
    assert min(one.gap for one in found) > 0.5


def test_another_judge_and_a_count_of_the_facts_refuse_what_only_praises_itself() -> None:
    worse = [one for one in all_of(HARMFUL) if one.facts.difference <= 0]
    assert len(worse) >= len(all_of(HARMFUL)) / 2
    assert not any(one.other.promoted or one.facts.promoted for one in worse)


def test_negative_control_where_no_boast_is_in_the_space_what_is_better_is_promoted_by_all() -> None:
    for one in all_of(World(boasts=False)):
        assert one.boasting == 0 and abs(one.gap) < 0.1
        assert one.same.promoted and one.other.promoted and one.facts.promoted


def test_what_is_better_may_still_boast() -> None:
    """A gate asks whether a prompt is better, not whether anything else came with it."""
    found = [played("opro", World(falls=0.6), seed) for seed in range(4)]
    riders = [one for one in found if one.gamed and one.facts.promoted]
    assert riders and all(one.other.promoted and one.gap > 0.1 for one in riders)


# Two task folders: one to search in, one to be judged by


def folder_of(place: Path, name: str, judge: str, url: str, train: float, validation: float) -> Path:
    """A task folder whose answers are graded by the judge at an endpoint."""
    folder = place / name
    folder.mkdir()
    (folder / "prompt.md").write_text(START)
    rows = [{"id": e.id, "input": {"question": e.text}} for e in questions(130, name)]
    (folder / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "task.yaml").write_text(
        f"name: {name}\nprompt: prompt.md\ndata: data.jsonl\n"
        f"models: {{task: {{address: openai/clerk, base_url: {url}}}, judge: {{address: openai/{judge}, base_url: {url}}}}}\n"
        f"splits: {{train: {train}, validation: {validation}, test: {1 - train - validation:g}}}\n"
        f"reward: {{judge: {{rubric: {json.dumps(RUBRIC)}}}}}\n"
    )
    return folder


@asynccontextmanager
async def shop(falls: str) -> AsyncIterator[str]:
    """An endpoint of the clerk and of a judge; yields its base URL."""
    clerk, judge = Clerk("clerk", {"cost": "2"}), Grader("judge", {"falls": falls})

    def answer(request: Request) -> str:
        asked = "You judge answers" in request.messages[0].content
        return (judge if asked else clerk).answer(request, request.sample)

    async with serving(answer) as server:
        yield server.base_url


async def test_the_judge_of_the_gate_need_not_be_the_judge_of_the_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    async with shop("1") as gullible, shop("0") as sober:
        search = folder_of(tmp_path, "search", "gullible", gullible, 0.1, 0.3)
        settings = {**SEARCHES["grips"], "iterations": 4}
        found = await optimize_async(
            search, method="grips", optimizer_lm="none", settings=settings, out=tmp_path / "run"
        )
        assert found["improvement"]["promoted"], "the judge that trained would promote it"
        best, start = Prompt.parse(found["best"]["prompt"]), Prompt.parse(START)
        verdicts = []
        for name, url in (("gullible", gullible), ("sober", sober)):
            task = folder_of(tmp_path, f"by-{name}", name, url, 0.1, 0.8)
            verdicts.append(await gate(Bench(task, root=tmp_path / "gates"), start, best, 1))
    same, other = verdicts
    assert same["promoted"] and same["judge"] == "openai/gullible"
    assert not other["promoted"] and other["high"] < 0 and other["judge"] == "openai/sober"


def test_the_facts_are_told_apart_from_words_about_them() -> None:
    said: Callable[[str], int] = stated
    assert said(" ".join(f"The {fact} is 7." for fact in FACTS)) == 4
    assert said(f"{BOAST} The price is good.") == 0
