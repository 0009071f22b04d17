"""BARFI: how much a search is led by auxiliary rewards is itself searched for, by what the search then earns of the real one.

Gupta, Chandak, Jordan, Thomas, Castro da Silva: Behavior Alignment via Reward Function Optimization. NeurIPS 2023.
arXiv:2310.19007.

    outer: for each phi on a grid:
        inner: theta(phi) <- a search on training rows by  r_phi = (1 - sum of phi_i) primary + sum of phi_i auxiliary_i
    return the theta(phi) that earns most of the primary reward

Differences from the paper:
1. The outer loop is a grid; the paper differentiates through the inner learner. It holds few weights, and no term that depends
   on state and action.
2. The inner learner is another method of whet (`method`), which optimises a prompt. There is no learned discount.
3. Weights and primary reward are mixed so that the range stays; auxiliary rewards are parts that the reward names, or `short`.
4. Phi = 0, the primary reward alone, is on the grid: so an auxiliary reward that misleads ends with no weight.
5. The primary reward is measured on validation rows, which no auxiliary reward touches.
6. Each search has an equal share of what the limits on calls leave. Where these pay for fewer than the grid, the points with
   the smallest weights come first.

Run it:  whet optimize TASK --method barfi --set parts=NAME --lm openai/NAME --optimizer-lm openai/NAME
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from whet._util.fields import PositiveInt
from whet.environments import Return
from whet.environments.environment import Environment
from whet.errors import UsageError, did_you_mean, named_fields, parameter
from whet.methods.method import OPTIMIZER, OPTIMIZER_OPTIONAL, Method, MethodEntry, configure
from whet.prompt import Prompt
from whet.rewards import Objectives
from whet.rewards.mixed import SHORT, MixedReward
from whet.rewards.reward import part_names_of
from whet.rl import LanguagePolicy
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.plan import affordable_rows, cut_validation, payable_rollouts
from whet.search.stages import Stage, most_stages, record_stage, stage_limits

ENTRY = MethodEntry(
    "barfi",
    "BARFI: weights of auxiliary rewards, searched for by the real one",
    version=1,
    rank=96,
    when="the reward is rarely earned, and it has parts that may lead to it, or astray",
    paper="Gupta et al., NeurIPS 2023",
    arxiv="2310.19007",
    needs=("optimizer",),
    edits_all=True,
    combines=True,
)

LEAST = 60, 4
"""Calls of the task and of the optimizer model that a search has at least."""


@named_fields
@dataclass(frozen=True)
class Config:
    """Settings of BARFI."""

    parts: str = ""
    """The auxiliary rewards, separated by commas: parts that the reward names, or `short`."""
    weights: str = "0.3,0.7"
    """Weights that are tried of each, besides 0."""
    method: str = "opro"
    """The method that searches."""
    most: PositiveInt = 6
    """Points of the grid that are tried at most."""


def check(env: Environment, config: Config, methods: Callable[[str], Method]) -> None:
    """Raises UsageError where there is nothing to mix, for weights that are none, and for a method that searches for no text."""
    if not names_of(config):
        raise UsageError(
            f"barfi mixes parts of the reward, and none is named. Write {parameter('config.parts', 'NAME')}."
        )
    if isinstance(env.reward, Return | Objectives):
        raise UsageError(
            f"barfi mixes parts of a grade, and {env.reward.name} is none. Bonuses for turns are `shaping:`."
        )
    known = part_names_of(env.reward)
    if known is not None and (
        part := next((name for name in names_of(config) if name not in {*known, SHORT}), "")
    ):
        raise UsageError(f'the reward has no part "{part}".{did_you_mean(part, {*known, SHORT})}')
    grid(config)
    method = methods(config.method)
    if method.entry.combines or set(method.entry.needs) - {OPTIMIZER, OPTIMIZER_OPTIONAL} or method.deploys():
        raise UsageError(
            f"barfi: {config.method} is no method to run: it must search for a text, with models that write."
        )
    if method.check is not None:
        method.check(env, configure(method, {}))


async def barfi(
    run: Run,
    env: Environment,
    policy: LanguagePolicy,
    start: Prompt,
    config: Config,
    methods: Callable[[str], Method],
) -> Candidate:
    """A search for each point of the grid; see the module."""
    points = grid(config)[: max(1, int(min(config.most, most_stages(run.limits, *LEAST))))]
    payable = payable_rollouts(run, env, writes=True)
    if payable is not None:
        rows = min(affordable_rows(env, payable), payable * 2 // 5 // (1 + len(points)))
        env = cut_validation(run, env, max(1, rows))
    archive, spent, method = Archive(), Counter[str](), methods(config.method)
    best = await archive.validate(run, env, [Candidate(start)])
    each = len(env.validation) * int(getattr(env, "calls", 1))
    spent["task"] += each
    writes = {OPTIMIZER, OPTIMIZER_OPTIONAL} & set(method.entry.needs)
    train, earned = frozenset(row.id for row in env.train), dict[str, str]()

    async def search(branch: Run, job: tuple[int, dict[str, float]]) -> Candidate:
        number, weights = job
        left = len(points) - number
        stage = Stage(branch, stage_limits(run.limits, spent, left * each, left), leads=False, spent=spent)
        await record_stage(branch, config.method, method.entry.version)
        mixed = (
            replace(env, reward=MixedReward(env.reward, tuple(weights.items()), train))
            if any(weights.values())
            else env
        )
        result: Any = await method.coroutine(
            stage, mixed, policy if writes else None, start, configure(method, {})
        )
        return Candidate(result.prompt, (start.id,), config.method)

    for number, weights in enumerate(points):
        (result,) = await run.map(search, [(number, weights)])
        spent["task"] += 0 if result.id in archive.validated else each
        earned.setdefault(result.id, show(weights))
        archive.add(run, result)
        best = await archive.validate(run, env, [result])
        run.log("weights", {"weights": show(weights), "primary": archive.validated[result.id]})
    run.log("chosen_weights", {"weights": earned.get(best.id, "the start")})
    return best


def names_of(config: Config) -> list[str]:
    """The auxiliary rewards."""
    return list(dict.fromkeys(name.strip() for name in config.parts.split(",") if name.strip()))


def grid(config: Config) -> list[dict[str, float]]:
    """The weights that are tried, the smallest sum first; it is below 1. Raises UsageError for weights that are none."""
    values = [word.strip() for word in config.weights.split(",") if word.strip()]
    if not values or not all(word.replace(".", "", 1).isdigit() and 0 < float(word) < 1 for word in values):
        raise UsageError(
            f"barfi: weights must be numbers between 0 and 1, such as 0.3,0.7; this is {config.weights!r}."
        )
    options = [0.0, *map(float, dict.fromkeys(values))]
    names = names_of(config)
    points = [dict(zip(names, point, strict=True)) for point in itertools.product(options, repeat=len(names))]
    return sorted(
        (point for point in points if sum(point.values()) < 1), key=lambda point: sum(point.values())
    )


def show(weights: dict[str, float]) -> str:
    """Weights as text: `format 0.3, short 0.7`, or `none`."""
    return ", ".join(f"{name} {weight:g}" for name, weight in weights.items() if weight) or "none"
