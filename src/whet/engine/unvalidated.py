"""The best prompt of a search whose limit ended before any new prompt was validated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from whet.engine.durable import RunState
from whet.engine.journal import read_events
from whet.errors import quantity
from whet.prompt import Prompt
from whet.search.archive import Candidate, describe_candidate, preference
from whet.types import Rollout

UNVALIDATED = "unvalidated"
"""The event that names such a prompt, the number of its rows and the limit; also its mean gain over the start prompt on them if
it was chosen by that."""


@dataclass
class PartialRewards:
    """The reward of each prompt of a search on each row that it answered so far, and the prompts, by their ids."""

    rewards: dict[str, dict[str, float]] = field(default_factory=dict)
    prompts: dict[str, Prompt] = field(default_factory=dict)

    @classmethod
    def of(cls, rollouts: Sequence[Rollout]) -> PartialRewards:
        """The rewards that are known before the search: those of the start prompt's rollouts."""
        known = cls()
        for rollout in rollouts:
            known._take(rollout)
        return known

    def add(self, prompt: Prompt, rollout: Rollout) -> None:
        """Take in a graded rollout of the search."""
        self.prompts.setdefault(prompt.id, prompt)
        self._take(rollout)

    def _take(self, rollout: Rollout) -> None:
        if rollout.has_reward:
            self.rewards.setdefault(rollout.prompt_id, {})[rollout.example_id] = rollout.reward

    def best(self, start: str) -> tuple[Prompt, int, float] | None:
        """The prompt whose rows sum up to the largest gain over the start prompt, whose id is `start`; with the number of these
        rows and the mean gain. None where no sum is above zero.

        A row that the start prompt did not answer is compared with its mean reward. The sum, unlike the mean, does not prefer
        prompts with few rows. Of equal sums, the shorter prompt is better.
        """
        own = self.rewards.get(start)
        if not own:
            return None
        mean = fmean(own.values())
        gains = {
            name: sum(reward - own.get(row, mean) for row, reward in rewards.items())
            for name, rewards in self.rewards.items()
            if name in self.prompts and name != start
        }
        best = max(gains, key=lambda name: preference(gains[name], self.prompts[name].source), default=None)
        if best is None or gains[best] <= 0:
            return None
        rows = len(self.rewards[best])
        return self.prompts[best], rows, gains[best] / rows


def choose_unvalidated(core: RunState, start: str, known: PartialRewards, limit: str) -> dict[str, Any]:
    """Make the content of the event `unvalidated`, with the `candidate` that a search returns whose `limit` ended before any
    new prompt was validated: the best by its training rows, else the best by the rows that it answered.

    Empty where a new prompt was validated, or none is better than the start prompt, whose id is `start`.
    """
    if _validated_another(core, start):
        return {}
    if chosen := best_by_training(core, start):
        return {"candidate": chosen, "id": chosen["id"], "n": chosen["train_n"], "limit": limit}
    if partial := known.best(start):
        prompt, rows, gain = partial
        candidate = describe_candidate(Candidate(prompt, (start,), "partial"))
        return {"candidate": candidate, "id": prompt.id, "n": rows, "limit": limit, "gain": gain}
    return {}


def _validated_another(core: RunState, start: str) -> bool:
    return any(event.value["id"] != start for event in read_events(core.journal.path, ["validated"]))


def best_by_training(core: RunState, start: str) -> dict[str, Any] | None:
    """The candidate with the highest mean reward on training rows, as its event describes it; None where none is above the start
    prompt, whose id is `start`. Nothing but the start prompt may be validated.

    Only those with the most training rows count, because a mean of few rows is easily high by chance. Of equal means, the shorter
    prompt is better.
    """
    tried: dict[str, dict[str, Any]] = {}
    own = float("-inf")
    for event in read_events(core.journal.path, ["candidate", "validated"]):
        record = event.value
        if record["id"] == start:
            own = (
                max(own, record.get("validation") or 0.0) if record.get("train") is None else record["train"]
            )
        elif record.get("train") is not None:
            tried[record["id"]] = record
    most = max((record["train_n"] for record in tried.values()), default=0)
    full = [record for record in tried.values() if record["train_n"] == most]
    best = max(full, key=lambda record: preference(record["train"], str(record["messages"])), default=None)
    return best if best is not None and best["train"] > own else None


def unvalidated_warnings(core: RunState) -> list[str]:
    """A warning where the best prompt of the search was chosen without a validation."""
    return [_describe(event.value) for event in read_events(core.journal.path, [UNVALIDATED])[:1]]


def _describe(about: dict[str, Any]) -> str:
    limit, rows = str(about["limit"]).capitalize(), int(about["n"])
    if "gain" not in about:
        return (
            f"{limit} ended the search before a new prompt was validated. The best prompt is the one with the highest reward on "
            f"{quantity(rows, 'training row')}; a larger limit validates it."
        )
    return (
        f"{limit} ended the search before any new prompt was measured on all its rows. The best prompt is the one with the "
        f"largest gain over the start prompt on the rows that it answered: {about['gain']:+.3g} on average over "
        f"{quantity(rows, 'row')}. "
        "A larger limit measures and validates it."
    )
