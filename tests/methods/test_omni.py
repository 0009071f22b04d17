"""omni: who runs on which share, what is compared, what is returned; and that no fixed method serves three tasks as well."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from statistics import fmean
from typing import Any

import pytest
from tests.methods import test_opro, test_promptagent
from tests.methods.codes import codes_world
from tests.methods.figures import on_seeds, won_over

import whet
from whet.errors import UsageError
from whet.methods import METHODS, Method, MethodEntry, get_method
from whet.methods.method import configure
from whet.methods.omni import Config, check, omni
from whet.methods.promptagent import SAID
from whet.models.scripted import choose_by_luck, load
from whet.models.scripted_replies import request_text
from whet.prompt import Prompt
from whet.rl import LanguagePolicy
from whet.run import Budget, MemoryRun, Run
from whet.search.archive import Archive, Candidate
from whet.search.edits import PHRASES
from whet.search.stages import Stage, most_stages, stage_limits
from whet.testing.paired_benchmark import KnownWorld, play_world
from whet.testing.runs import MeteredRun
from whet.testing.simulated_task import SOURCE, review_world
from whet.types import Completion, Request

CONFORMANCE = {"methods": "bootstrap,meta_prompt"}
"""Settings of a run in the conformance suite."""
SWEEP = {"methods": "bootstrap", "last": "meta_prompt"}
"""Settings of a run that is killed at every boundary."""

START = Prompt.parse(SOURCE)


@dataclass(frozen=True)
class Plain:
    """No settings."""


def finding(name: str, words: str, seen: list[Any], calls: int = 0) -> Method:
    """A method that adds words to its start, after some calls, and notes what it was given."""

    async def coroutine(run: Any, env: Any, policy: Any, start: Prompt, config: Any) -> Candidate:
        archive = Archive()
        await archive.validate(run, env, [Candidate(start)])
        await env.score(run, [start], env.train[:calls]) if calls else None
        seen.append((name, start.region_text(), run.limits, [row.id for row in env.validation]))
        found = Candidate(start.edit(f"{start.region_text().strip()} {words}"), (start.id,))
        return await archive.validate(run, env, [found])

    return Method(MethodEntry(name, name), coroutine, Plain)


async def search(
    found: Mapping[str, str], limits: Budget | None = None, calls: int = 0, **settings: Any
) -> tuple[Candidate, list[Any], MeteredRun]:
    """A run of omni with methods that find these words."""
    seen: list[Any] = []
    table = {name: finding(name, words, seen, calls) for name, words in found.items()}
    env = review_world(train=40, validation=20)
    run = MeteredRun({"task": env.model, "optimizer": load("phrases")}, limits=limits)
    config = Config(methods=",".join(found), **settings)
    best = await omni(run, env, LanguagePolicy(), START, config, table.__getitem__)
    return best, seen, run


WORDS = {"one": "carefully", "two": "evidence tone", "three": "quick"}


async def test_all_begin_at_the_start_and_the_finder_of_the_best_goes_on_from_it() -> None:
    best, seen, _ = await search(WORDS)
    assert [name for name, *_ in seen] == ["one", "two", "three", "two"]
    texts = [text.strip() for _, text, *_ in seen]
    assert texts[:3] == [START.region_text().strip()] * 3
    assert texts[3].endswith("evidence tone")
    assert "evidence tone" in best.prompt.region_text()


async def test_the_last_method_can_be_named_and_left_out() -> None:
    _, seen, _ = await search(WORDS, last="one")
    assert [name for name, *_ in seen] == ["one", "two", "three", "one"]
    _, seen, _ = await search(WORDS, fresh=False)
    assert [name for name, *_ in seen] == ["one", "two", "three"]


async def test_the_best_is_returned_and_not_the_last() -> None:
    best, _, _ = await search({"good": "carefully evidence", "bad": "guess quick"}, last="bad")
    assert best.prompt.region_text().strip().endswith("carefully evidence")
    best, _, _ = await search({"bad": "guess brief quick", "worse": "quick"})
    assert best.prompt == START


async def test_all_stages_choose_on_the_same_rows() -> None:
    _, seen, run = await search(WORDS, Budget(task_calls=900, optimizer_calls=60))
    assert len({tuple(rows) for *_, rows in seen}) == 1
    assert run.spent["task"] <= 900


async def test_what_one_method_leaves_goes_to_the_next_ones() -> None:
    _, seen, _ = await search(WORDS, Budget(task_calls=900, optimizer_calls=60))
    shares = [limits.task_calls for _, _, limits, _ in seen]
    assert shares == sorted(shares) and shares[-1] > shares[0]
    assert [limits.optimizer_calls for _, _, limits, _ in seen] == [15, 20, 30, 60]


async def test_a_small_budget_has_fewer_stages() -> None:
    _, seen, _ = await search(WORDS, Budget(task_calls=160, optimizer_calls=60))
    assert [name for name, *_ in seen] == ["one", "one"]
    _, seen, _ = await search(WORDS, Budget(task_calls=100, optimizer_calls=60))
    assert [name for name, *_ in seen] == ["one"]


async def test_only_a_stage_from_the_best_so_far_names_incumbents() -> None:
    _, _, run = await search({"good": "carefully evidence", "bad": "tone"}, last="bad")
    logged: Any = [value for name, value in run.logged if name == "validated"]
    best = logged[0]["validation"]
    for value in logged:
        if value["incumbent"]:
            assert value["validation"] >= best
            best = value["validation"]


async def test_a_stage_counts_its_calls_in_all_branches() -> None:
    env = review_world(train=6, validation=2)
    stage = Stage(MemoryRun({"task": env.model}), Budget(task_calls=7), leads=False)
    await env.score(stage, [START, START.edit("Other.")], env.train)
    assert stage.spent == {"task": 12}


def test_a_stage_has_all_that_a_run_has() -> None:
    """A stage lacked `branch`, and `omni` could not improve a program."""
    wanted = {name for name in vars(Run) if not name.startswith("_")}
    plain = MemoryRun()
    for run in (plain, Stage(plain, Budget(), leads=True)):
        assert not [name for name in wanted if not hasattr(run, name)]


def test_shares_by_hand() -> None:
    limits = Budget(calls=100, task_calls=60, tokens=5)
    share = stage_limits(limits, {"task": 10, "optimizer": 6}, kept=20, stages=2)
    assert (share.calls, share.task_calls, share.optimizer_calls, share.tokens) == (32, 15, None, 5)
    assert stage_limits(limits, {"task": 90}, 0, 2).task_calls == 0
    assert most_stages(limits, 20, 5) == 3
    assert most_stages(Budget(), 20, 5) == float("inf")


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (Config(methods="oprp"), 'no method "oprp"'),
        (Config(methods=" , "), "names none"),
        (Config(methods="opro,omni"), "omni is no method for a stage"),
        (Config(methods="opro", last="bdpl"), "bdpl is no method for a stage"),
        (Config(methods="bdpl"), "bdpl is no method for a stage"),
    ],
)
def test_methods_that_cannot_be_a_stage_are_refused(config: Config, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        check(review_world(), config, get_method)


def test_the_registry_hands_over_its_table() -> None:
    assert {name for name, entry in METHODS.items() if entry.combines} >= {"omni", "reanchor"}
    assert get_method("omni") is get_method("omni")
    result = whet.optimize(
        "Sort.\n\n{{input}}",
        data=[
            {"input": f"plate {i} was {'good' if i % 2 else 'bad'}", "target": f"plate {i}"}
            for i in range(40)
        ],
        reward="exact_match",
        lm="scripted/echo",
        optimizer_lm="scripted/phrases",
        method=whet.methods.omni.Config(methods="bootstrap,random_search"),
        budget=whet.Budget(calls=400),
        run=None,
    )
    assert result.to_dict()["method"] == "omni"


def test_settings_are_checked_by_name() -> None:
    with pytest.raises(UsageError, match="metods"):
        configure(get_method("omni"), {"metods": "opro"})


# The contest: three tasks, each for another method. A fixed method is good at one of them; omni need not know which.

METHOD_OF = {"climb": "opro", "topics": "promptagent", "codes": "bootstrap"}
CALLS = Budget(task_calls=1200, optimizer_calls=120)


class Sometimes:
    """An optimizer that reads one kind of question; to another one it writes a stock phrase."""

    simulated, local, can_generate, can_score = True, True, True, False

    def __init__(self, inner: Any, *marks: str) -> None:
        self.address, self.inner, self.marks = inner.address, inner, marks

    async def generate(self, request: Request) -> list[Completion]:
        text = request_text(request)
        if any(mark in text for mark in self.marks):
            completions: list[Completion] = await self.inner.generate(request)
            return completions
        phrase = choose_by_luck(PHRASES, text, request.sample)
        return [Completion(f"<FEEDBACK>Unclear.</FEEDBACK><INSTRUCTION>Answer. {phrase}</INSTRUCTION>")]

    def count_tokens(self, text: str) -> int:
        return len(text) // 4

    async def close(self) -> None:
        return None


def task_of(name: str, seed: int) -> KnownWorld:
    """A task that scores, wrong answers or demonstrations teach."""
    if name == "climb":
        known = test_opro.climb(seed)
        return replace(known, optimizer=Sometimes(known.optimizer, "Score: "))
    if name == "topics":
        known = test_promptagent.topics(seed, str)
        return replace(known, optimizer=Sometimes(known.optimizer, "<FEEDBACK>", SAID))
    known = codes_world(seed)
    return replace(known, optimizer=Sometimes(known.optimizer, "<RULE>"))


@cache
def gained_on(name: str, seeds: int, method: str, **settings: Any) -> list[float]:
    """By how much a method betters the start of a task, by seed."""
    worlds = {seed: task_of(name, seed) for seed in range(5, 5 + seeds)}
    return [
        play_world(method, world, seed, CALLS, settings) - world.worth(world.start)
        for seed, world in worlds.items()
    ]


def gained(seeds: int, method: str, **settings: Any) -> list[float]:
    """The same, the mean over the three tasks."""
    return [
        fmean(tasks)
        for tasks in zip(*(gained_on(name, seeds, method, **settings) for name in METHOD_OF), strict=True)
    ]


PORTFOLIO = ",".join(METHOD_OF.values())


@pytest.mark.long
@pytest.mark.parametrize("seeds", [10])
def test_it_beats_any_fixed_method_over_three_tasks(seeds: int) -> None:
    mine = gained(seeds, "omni", methods=PORTFOLIO)
    for method in [*METHOD_OF.values(), "random_search"]:
        won = won_over(method, mine, gained(seeds, method))
        assert won.low > 0, (method, won)


@on_seeds(4, 10)
def test_no_single_task_shows_omni_ahead_of_the_method_that_suits_it(seeds: int) -> None:
    for task, method in METHOD_OF.items():
        alone, mine = gained_on(task, seeds, method), gained_on(task, seeds, "omni", methods=PORTFOLIO)
        print(f"\n{task}: {method} gains {fmean(alone):.3f}, omni {fmean(mine):.3f}")
        assert won_over(f"{method} on its own task", mine, alone).low < 0


@pytest.mark.long
def test_the_fresh_stage_pays() -> None:
    last, without = (gained(10, "omni", methods=PORTFOLIO, **more) for more in ({}, {"fresh": False}))
    assert won_over("without a fresh stage", last, without).low > 0
