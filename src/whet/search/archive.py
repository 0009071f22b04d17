"""Candidates with lineage, and the population a method selects from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from whet.environments.environment import Environment
from whet.errors import SearchStopped, named_fields
from whet.prompt import Prompt
from whet.rewards import AlarmedReward, Objectives
from whet.run import Run, waiting_allowed
from whet.types import JSON, Message, Rollout, Score, mean_score

BEYOND = "start_beyond"
"""The event of a start prompt with which the reward does not hold already."""
INCUMBENTS = "validated", "best_so_far"
"""Events that name what a run falls back on when its budget ends."""


@named_fields
@dataclass(frozen=True)
class Candidate:
    """A prompt with its origin and the score that its method gave it on training examples.

    `system` is the digest of trained weights that act together with the prompt when it is used (`Run.keep`); None
    for a candidate that is a text alone.
    """

    prompt: Prompt
    parents: tuple[str, ...] = ()
    operator: str = "start"
    score: Score | None = None
    system: str | None = None

    @property
    def id(self) -> str:
        """The prompt's id; with the beginning of the digest for a prompt that needs trained weights."""
        return self.prompt.id if self.system is None else f"{self.prompt.id}+{self.system[:12]}"

    @property
    def names(self) -> tuple[str, ...]:
        """The ids under which the prompt alone is known; with trained weights, the prompt alone is another candidate."""
        return self.prompt.names if self.system is None else (self.id,)

    @property
    def mean(self) -> float:
        """Mean training reward; minus infinity before it is known."""
        return float("-inf") if self.score is None else self.score.mean


def preference(mean: float, text: str) -> tuple[float, int]:
    """The key by which candidates are compared, the larger the better: the mean reward, then the shorter text."""
    return mean, -len(text)


@dataclass
class Archive:
    """Distinct candidates by id; the first of equals stays. Remembers the incumbent on validation."""

    members: dict[str, Candidate] = field(default_factory=dict)
    incumbent: Candidate | None = None
    validated: dict[str, float] = field(default_factory=dict)
    rewards: dict[str, Mapping[str, float]] = field(default_factory=dict)
    """Of each validated candidate, the reward of each row that was answered, where rows are known."""
    low: float = 0.0
    """The lowest reward."""
    kept: str = ""
    outside: set[str] = field(default_factory=set)
    """Validated candidates whose means break what a task demands of its objectives: the incumbent only where all do."""

    prefers_shorter: bool = True
    """Whether of equal means the shorter prompt becomes the incumbent; else the earlier one stays."""
    start_parts: Mapping[str, float] | None = None
    """The mean parts of the first validated candidate, where the reward has an alarm."""

    def add(self, run: Run, candidate: Candidate) -> bool:
        """Admit a candidate and log its lineage; False when its prompt (with a score) is already there."""
        known = self.members.get(candidate.id)
        if known is not None and (known.score is not None or candidate.score is None):
            return False
        self.members[candidate.id] = candidate
        run.log("candidate", describe_candidate(candidate))
        return True

    def __contains__(self, prompt: Prompt) -> bool:
        return prompt.id in self.members

    def restore(self, candidate: Candidate, mean: float) -> None:
        """Take in a candidate that was validated before a resume, with its mean reward."""
        self.validated.setdefault(candidate.id, mean)
        if self._is_better(candidate):
            self.incumbent = candidate

    def lineage(self, name: str) -> list[str]:
        """The ids of a candidate and of all its ancestors, the oldest first."""
        ids = {name}
        for member in reversed(self.members.values()):
            if member.id in ids:
                ids.update(member.parents)
        return [member for member in self.members if member in ids]

    def top(self, k: int) -> list[Candidate]:
        """The k best by training score; ties go to the shorter prompt, then to the older one."""
        order = sorted(self.members.values(), key=lambda c: preference(c.mean, c.prompt.source), reverse=True)
        return order[:k]

    def keep(self, run: Run, candidate: Candidate) -> None:
        """Log the best candidate so far by training evidence: what a run falls back on when its budget ends."""
        if self.kept != candidate.id:
            self.kept = candidate.id
            run.log("best_so_far", {**describe_candidate(candidate), "incumbent": True})

    async def validate(self, run: Run, env: Environment, candidates: Iterable[Candidate]) -> Candidate:
        """Score candidates on the validation split and keep the best as the incumbent.

        The incumbent is what a run falls back on when its budget ends. On a tie the shorter prompt wins, but the start stays: a
        change must be worth something.
        """
        for candidate in candidates:
            if candidate.id in self.validated:
                continue
            with waiting_allowed():
                if isinstance(env.reward, Objectives):
                    rollouts = await env.evaluate(run, candidate.prompt, env.validation)
                    self.add_rollouts(run, env, candidate, rollouts)
                else:
                    score = (await env.score(run, [candidate.prompt], env.validation))[0]
                    self._settle(run, env, candidate, score, {})
        if self.incumbent is None:
            raise ValueError("validate() needs at least one candidate")
        return self.incumbent

    def add_rollouts(
        self, run: Run, env: Environment, candidate: Candidate, rollouts: Sequence[Rollout]
    ) -> None:
        """Take in a candidate's rollouts on the validation split; of a task with objectives, their values on each row."""
        vectors: dict[str, JSON] = {}
        if isinstance(env.reward, Objectives):
            reward = env.reward
            answered = [r for r in rollouts if r.answered]
            if not reward.meets(reward.means(answered or rollouts)):
                self.outside.add(candidate.id)
            vectors = {"objectives": {r.example_id: {**reward.values(r)} for r in answered}}
        self._settle(run, env, candidate, mean_score(rollouts), vectors)

    def measured_again(
        self,
        run: Run,
        env: Environment,
        candidates: Sequence[Candidate],
        rollouts: Sequence[Sequence[Rollout]],
    ) -> None:
        """Take in the rollouts of all validated candidates on a validation split that has grown; the incumbent is chosen anew."""
        self.incumbent, self.outside = None, set()
        for candidate, own in zip(candidates, rollouts, strict=True):
            self.add_rollouts(run, env, candidate, own)

    def _settle(
        self, run: Run, env: Environment, candidate: Candidate, score: Score, vectors: Mapping[str, JSON]
    ) -> None:
        """The best becomes the incumbent."""
        self.validated[candidate.id], self.low = score.mean, env.reward.low
        if score.rewards is not None:
            self.rewards[candidate.id] = score.rewards
        better = self._is_better(candidate)
        why = self._alarm(run, env, score) if better else ""
        better = better and not why
        if better:
            self.incumbent = candidate
        run.log(
            "validated",
            {
                **describe_candidate(candidate),
                "validation": score.mean,
                "n": score.n,
                "incumbent": better,
                **vectors,
            },
        )
        if why:
            run.log("alarm", {"id": candidate.id, "why": why, "validation": score.mean})
            raise SearchStopped(f"a prompt would be the best one by the reward ({score.mean:.3g}), and {why}")

    def _alarm(self, run: Run, env: Environment, score: Score) -> str:
        """Why the reward does not hold for a candidate that it calls the best; the first one, the start, sets what is usual."""
        if not isinstance(env.reward, AlarmedReward):
            return ""
        if self.start_parts is None:
            self.start_parts = score.parts
            if why := env.reward.alarm(score.parts, {}):
                run.log(BEYOND, {"why": why})
            return ""
        return env.reward.alarm(score.parts, self.start_parts)

    def _is_better(self, candidate: Candidate) -> bool:
        """Whether a validated candidate takes the place of the incumbent."""
        if self.incumbent is None:
            return True
        means = self._comparable_means(candidate.id, self.incumbent)
        new, old = (
            (one.id not in self.outside, *preference(mean, one.prompt.text if self.prefers_shorter else ""))
            for one, mean in zip((candidate, self.incumbent), means, strict=True)
        )
        return new > old and (new[:2] > old[:2] or bool(self.incumbent.parents))

    def _comparable_means(self, new: str, incumbent: Candidate) -> tuple[float, float]:
        """The means of a candidate and of the incumbent on the same rows.

        Where the provider failed, they are the rows that either has an answer to, and one that a prompt lacks counts as the
        lowest reward: nothing becomes or stays the incumbent by leaving out rows that the provider refuses under it. Against the
        start they are the rows that the start has an answer to, unless these are fewer than half.
        """
        means = self.validated[new], self.validated[incumbent.id]
        mine, other = self.rewards.get(new), self.rewards.get(incumbent.id)
        if mine is None or other is None or mine.keys() == other.keys():
            return means
        either = mine.keys() | other.keys()
        alone = not incumbent.parents and 2 * len(other) >= len(either)
        rows = other.keys() if alone else either
        return fmean(mine.get(row, self.low) for row in rows), fmean(other.get(row, self.low) for row in rows)


def candidate_of(described: Mapping[str, Any]) -> Candidate:
    """The inverse of `describe`, without the score."""
    prompt = Prompt(tuple(Message(*values) for values in described["messages"]))
    return Candidate(
        prompt, tuple(described["parents"]), described["operator"], system=described.get("system")
    )


def describe_candidate(candidate: Candidate) -> dict[str, JSON]:
    """A candidate as JSON for the journal and the report."""
    score = candidate.score
    return {
        "id": candidate.id,
        "messages": [m.as_list() for m in candidate.prompt.messages],
        "parents": list(candidate.parents),
        "operator": candidate.operator,
        "train": None if score is None else score.mean,
        "train_n": None if score is None else score.n,
        "parts": {} if score is None else dict(score.parts),
        **({} if candidate.system is None else {"system": candidate.system}),
    }
