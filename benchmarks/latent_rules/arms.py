"""What the benchmark compares: prompt learning, the one-call rewrite, and the prompt that states every rule.

Each arm is a method for the same engine, so that limits, validation, the sealed test and the counting of calls
are the same for all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.latent_rules.build import stating_all

from whet.environments.environment import Environment
from whet.methods import Method, MethodEntry, configure, get_method
from whet.prompt import Prompt
from whet.rl.language import LanguagePolicy
from whet.run import Run
from whet.search.archive import Candidate

CEILING, REWRITE, LEARN = "stated", "meta_prompt", "prompt_learning"


@dataclass(frozen=True)
class Arm:
    """One line of the tables: a method of the table of methods with its settings, or the ceiling."""

    title: str
    settings: Mapping[str, Any] = field(default_factory=dict)


ARMS: dict[str, Arm] = {
    CEILING: Arm("all rules stated (ceiling)"),
    REWRITE: Arm("one-call rewrite"),
    LEARN: Arm("prompt learning"),
}


@dataclass(frozen=True)
class Stated:
    """The prompt that states the first `rules` rules in wordings drawn by `seed`."""

    rules: int
    seed: int


def method_of(name: str, rules: int, seed: int, loops: int = 0) -> tuple[Method, Any]:
    """The method of an arm and its config for one run, with `loops` rounds at most (0: as its settings say)."""
    arm = ARMS[name]
    if name == CEILING:
        return Method(MethodEntry(name, arm.title, "-", "-"), state_rules, Stated), Stated(rules, seed)
    method = get_method(name)
    return method, configure(method, {**arm.settings, "rounds": loops} if loops else arm.settings)


async def state_rules(
    run: Run, env: Environment, policy: LanguagePolicy | None, start: Prompt, config: Stated
) -> Candidate:
    """Nothing is learned: the start prompt with every rule in its fence."""
    return Candidate(start.edit(stating_all(config.rules, config.seed)), (start.id,), CEILING)
