"""The region of a prompt that a search edits: every region in its turn, each from the best prompt so far, or one of them.

A method sees the region in focus only (`Prompt.focused`); the budget is shared out here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields

from whet.prompt import Prompt
from whet.run import Budget
from whet.task.spec import ALL, BLAME, REGION_POLICIES
from whet.types import Rollout


@dataclass(frozen=True)
class RegionTurn:
    """One region's turn in a search, and the share (0 to 1) of the remaining budget that it may use."""

    region: str
    share: float


def turns(prompt: Prompt, policy: str, rollouts: Sequence[Rollout] = ()) -> list[RegionTurn]:
    """The turns of a prompt's regions under a policy, or the one turn of the region that the policy names.

    `rollouts`: those of the start prompt, whose addressed critiques say who is to blame.
    """
    names = [region.name for region in prompt.regions]
    if policy not in REGION_POLICIES:
        return [RegionTurn(prompt.region(policy).name, 1.0)]
    weights = dict.fromkeys(names, 1)
    if policy == BLAME:
        blamed = Counter(name for rollout in rollouts for name in rollout.addressed)
        weights = {name: 1 + blamed[prompt_of_region(prompt, name)] for name in names}
        names.sort(key=lambda name: -weights[name])
    left = [sum(weights[later] for later in names[at:]) for at in range(len(names))]
    whole = policy == ALL
    return [RegionTurn(n, 1.0 if whole else weights[n] / total) for n, total in zip(names, left, strict=True)]


def prompt_of_region(prompt: Prompt, region: str) -> str:
    """The name of the prompt of a program in which a region lies; empty for a prompt without parts."""
    return prompt.part_of(region)[0] if prompt.parts else ""


def blamed_regions(
    prompt: Prompt, regions: Sequence[str], turn: str, rollouts: Sequence[Rollout]
) -> list[str]:
    """The regions to edit: those to whose prompts critiques are addressed; `turn` alone where one is addressed to nobody, or
    none to a prompt of `regions`."""
    names = {name for rollout in rollouts for name in rollout.addressed}
    addressed = [] if "" in names else [r for r in regions if prompt_of_region(prompt, r) in names]
    return addressed or [turn]


def share_of(limits: Budget, share: float) -> Budget:
    """The given part of every limit, whole numbers rounded down."""
    amounts = {f.name: getattr(limits, f.name) for f in fields(limits)}
    parts = {n: a * share if isinstance(a, float) else int(a * share) for n, a in amounts.items() if a}
    return Budget(**{**amounts, **parts})


def changed_regions(before: Prompt, after: Prompt) -> list[str]:
    """The names of the regions whose texts differ, in order."""
    return [r.name for r in before.regions if before.region_text(r.name) != after.region_text(r.name)]
