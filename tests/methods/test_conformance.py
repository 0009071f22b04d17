"""The methods of the table obey the public conformance suite, and the suite notices methods that do not."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest
from tests.methods.settings import settings_of_tests

from whet.errors import BudgetExceeded, UsageError
from whet.methods import (
    METHODS,
    OBJECTIVES,
    OPTIMIZER,
    OPTIMIZER_OPTIONAL,
    REGIONS,
    Method,
    MethodEntry,
    get_method,
)
from whet.prompt import Prompt
from whet.search.archive import Archive, Candidate
from whet.testing.methods import MethodConformance


def suite_of(name: str) -> type[MethodConformance]:
    """The conformance suite of a method of the table, skipped where a package that the method needs is missing."""
    own = {
        "method": name,
        "settings": CONFORMANCE[name],
        "always": ALWAYS.get(name, {}),
        "limits": (60, 150, 300),
    }
    suite = type(f"Test_{name}", (MethodConformance,), own)
    try:
        get_method(name)
    except UsageError as missing:
        return pytest.mark.skip(reason=str(missing))(suite)
    return suite


CONFORMANCE = settings_of_tests("CONFORMANCE")
ALWAYS = settings_of_tests("ALWAYS")
globals().update({f"Test_{name}": suite_of(name) for name in CONFORMANCE})


@pytest.mark.long
@pytest.mark.parametrize("name", CONFORMANCE)
def test_a_large_limit_is_kept_too(name: str) -> None:
    try:
        get_method(name)
    except UsageError as missing:
        pytest.skip(str(missing))
    suite: Any = suite_of(name)()
    suite.limits = MethodConformance.limits[-1:]
    suite.test_keeps_within_the_limits_it_is_told()


def test_every_method_that_only_calls_models_is_judged_by_the_suite() -> None:
    assert set(CONFORMANCE) == {
        name
        for name, entry in METHODS.items()
        if {*entry.needs} <= {OPTIMIZER, OPTIMIZER_OPTIONAL, OBJECTIVES, REGIONS}
    } - {"prompt_learning"}


@dataclass(frozen=True)
class Config:
    """No settings of its own."""

    rounds: int = 3


@dataclass
class Thawed:
    """A config that can be changed."""

    rounds: int = 3


CHANCE = itertools.count()


async def search(run: Any, env: Any, policy: Any, start: Prompt, config: Any) -> Candidate:
    """A sound little method, for its flawed relatives below to go wrong."""
    archive = Archive()
    await archive.validate(run, env, [Candidate(start)])
    for i in range(config.rounds):
        found = await policy.rewrite(run, start, "Improve it.", sample=i)
        await archive.validate(run, env, [Candidate(p) for p in found])
    assert archive.incumbent is not None
    return archive.incumbent


async def rewrites_everything(run: Any, env: Any, policy: Any, start: Prompt, config: Any) -> Candidate:
    best = await search(run, env, policy, start, config)
    return Candidate(Prompt.parse("New. " + best.prompt.source))


async def crowns_the_unmeasured(run: Any, env: Any, policy: Any, start: Prompt, config: Any) -> Candidate:
    await search(run, env, policy, start, config)
    return Candidate(start.edit("Never measured."))


async def trusts_the_optimizer(run: Any, env: Any, policy: Any, start: Prompt, config: Any) -> Candidate:
    best = await search(run, env, policy, start, config)
    return Candidate((await policy.rewrite(run, start, "Improve it."))[0]) if best else best


async def divides_by_the_spread(run: Any, env: Any, policy: Any, start: Prompt, config: Any) -> Candidate:
    best = await search(run, env, policy, start, config)
    rewards = [r.reward for r in await env.evaluate(run, start, env.train)]
    assert 1 / (max(rewards) - min(rewards)) > 0
    return best


async def needs_much_data(run: Any, env: Any, policy: Any, start: Prompt, config: Any) -> Candidate:
    await env.evaluate(run, start, [env.train[i] for i in range(10)])
    return await search(run, env, policy, start, config)


async def rolls_its_own_dice(run: Any, env: Any, policy: Any, start: Prompt, config: Any) -> Candidate:
    best = await search(run, env, policy, start, config)
    return Candidate(best.prompt.edit(f"Number {next(CHANCE)}."))


async def takes_whoever_comes_last(run: Any, env: Any, policy: Any, start: Prompt, config: Any) -> Candidate:
    came: list[int] = []

    async def come(branch: Any, number: int) -> None:
        came.append(number)

    await run.map(come, range(9))
    return Candidate(start.edit(f"Number {came[-1]}."))


async def ignores_limits(run: Any, env: Any, policy: Any, start: Prompt, config: Any) -> Candidate:
    await env.evaluate(run, start, env.train)
    return await search(run, env, policy, start, config)


async def swallows_the_end(run: Any, env: Any, policy: Any, start: Prompt, config: Any) -> Candidate:
    try:
        return await search(run, env, policy, start, config)
    except BudgetExceeded:
        return Candidate(start)


async def trains_before_it_validates(
    run: Any, env: Any, policy: Any, start: Prompt, config: Any
) -> Candidate:
    await env.score(run, [start], env.train)
    return await search(run, env, policy, start, config)


def check(coroutine: Callable[..., Awaitable[Any]], test: str, config: type[Any] = Config) -> None:
    """Run one test of the suite on a method that is in no table."""

    class Suite(MethodConformance):
        method = "flawed"
        limits = (60,)

        def load(self) -> Method:
            return Method(MethodEntry("flawed", "", "", "", needs=(OPTIMIZER,)), coroutine, config)

    getattr(Suite(), test)()


@pytest.mark.parametrize(
    ("coroutine", "test"),
    [
        (rewrites_everything, "test_returns_a_prompt_that_differs_only_inside_the_fence"),
        (crowns_the_unmeasured, "test_returns_the_best_on_validation"),
        (trusts_the_optimizer, "test_survives_an_optimizer_that_writes_garbage"),
        (divides_by_the_spread, "test_survives_constant_rewards"),
        (needs_much_data, "test_survives_very_little_data"),
        (rolls_its_own_dice, "test_the_seed_decides"),
        (takes_whoever_comes_last, "test_the_order_of_branches_does_not_matter"),
        (ignores_limits, "test_keeps_within_the_limits_it_is_told"),
        (swallows_the_end, "test_does_not_catch_the_end_of_the_budget"),
        (trains_before_it_validates, "test_has_an_incumbent_before_the_budget_can_end"),
        (swallows_the_end, "test_source_leaves_effects_to_the_run"),
    ],
)
def test_the_suite_notices_a_flaw(coroutine: Callable[..., Awaitable[Any]], test: str) -> None:
    with pytest.raises((AssertionError, ArithmeticError, IndexError)):
        check(coroutine, test)


def test_the_suite_notices_a_config_that_can_change() -> None:
    with pytest.raises(AssertionError, match="frozen"):
        check(search, "test_config_is_frozen", Thawed)


SOUND = [
    name
    for name in vars(MethodConformance)
    if name.startswith("test_")
    and name not in ("test_source_leaves_effects_to_the_run", "test_keeps_within_the_limits_it_is_told")
]


@pytest.mark.parametrize("test", SOUND)
def test_the_suite_passes_a_sound_method_from_outside_the_table(test: str) -> None:
    check(search, test)
