"""Rewrites of a prompt that a policy wrote: read from its samples, rewarded, and validated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from whet.environments.environment import Environment
from whet.errors import EditRejected
from whet.prompt import Prompt
from whet.rl.policy_model import PolicyModel
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.minibatch import minibatch
from whet.search.plan import SearchPlan, validate_finalists, validate_leader
from whet.types import Example


def rewrite_of(start: Prompt, text: str | None) -> Prompt | None:
    """`start` with its editable text replaced, or None for a text that the prompt refuses (empty, a lost slot)."""
    if text is None:
        return None
    try:
        return start.edit(text.strip())
    except EditRejected:
        return None


async def rewarded(
    run: Run,
    env: Environment,
    rewrites: Sequence[Prompt | None],
    examples: Sequence[Example],
) -> list[float]:
    """Mean reward of each rewrite over the examples; the lowest reward, at no cost, for one that cannot be used.

    Equal rewrites are scored once.
    """
    usable = list({rewrite.id: rewrite for rewrite in rewrites if rewrite is not None}.values())
    scores = await env.score(run, usable, examples) if usable else []
    means = {rewrite.id: score.mean for rewrite, score in zip(usable, scores, strict=True)}
    return [env.reward.low if rewrite is None else means[rewrite.id] for rewrite in rewrites]


def untrained(plan: SearchPlan) -> SearchPlan:
    """The plan of a search without steps: as there are no rounds, all validations but the start's are the finalists'."""
    return replace(plan, finalists=max(1, plan.validations - 1))


@dataclass
class Leaders:
    """Rewrites that were validated on the way, in the notes of the policy, where a resume finds them."""

    policy: PolicyModel
    start: Prompt
    operator: str

    def __post_init__(self) -> None:
        self.policy.notes["validated"] = {}

    async def check(self, run: Run, share: SearchPlan, archive: Archive, rewrite: Prompt | None) -> None:
        """Validate a rewrite, if it can be used and the plan pays for it."""
        self.recall(archive)
        if rewrite is None:
            return
        leader = await validate_leader(run, share, archive, self.candidate(rewrite.region_text()))
        if leader.id in archive.validated:
            self.policy.notes["validated"][rewrite.region_text()] = archive.validated[leader.id]

    def candidate(self, text: str) -> Candidate:
        """A rewrite as a candidate."""
        return Candidate(self.start.edit(text), (self.start.id,), self.operator)

    def recall(self, archive: Archive) -> None:
        """Bring back to an archive with an incumbent what was validated before a resume."""
        for text, mean in self.policy.notes["validated"].items():
            archive.restore(self.candidate(text), mean)

    async def best_of(
        self,
        run: Run,
        env: Environment,
        plan: SearchPlan,
        archive: Archive,
        rewrites: Sequence[Prompt | None],
        first: Prompt | None = None,
    ) -> Candidate:
        """The incumbent after `first` and the best of `rewrites` are validated, as many as the plan pays for.

        Where it does not pay for all of these, the best are those that score best on `plan.examples` training examples.
        """
        distinct = {rewrite.id: rewrite for rewrite in rewrites if rewrite is not None and rewrite != first}
        ranked = list(distinct.values())
        if len(ranked) > plan.finalists:
            scores = await env.score(run, ranked, minibatch(run.rng, env.train, plan.examples))
            by_score = sorted(zip(scores, ranked, strict=True), key=lambda pair: -pair[0].mean)
            ranked = [rewrite for _, rewrite in by_score]
        candidates = [
            Candidate(rewrite, (self.start.id,), self.operator)
            for rewrite in [first, *ranked]
            if rewrite is not None
        ]
        return await validate_finalists(run, plan, archive, candidates)
