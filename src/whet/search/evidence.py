"""Pooled evidence on prompts that follow one another: fresh training roll-outs and validation together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, pstdev

from whet.prompt import Prompt
from whet.search.archive import Archive, Candidate
from whet.types import Rollout, mean_score


@dataclass
class Evidence:
    """Rewards of each prompt on fresh training examples; the candidate that was added last is the newest."""

    rewards: dict[str, list[float]] = field(default_factory=dict)
    candidates: dict[str, Candidate] = field(default_factory=dict)

    def add(self, candidate: Candidate, rollouts: Sequence[Rollout] = ()) -> None:
        """Take in a prompt and what it earned; a call that failed at the provider says nothing about it."""
        rows = [r for r in rollouts if r.error is None or not r.error.startswith("provider")]
        self.rewards.setdefault(candidate.prompt.id, []).extend(r.reward for r in rows)
        score = mean_score(rows) if rows else None
        known = self.candidates.pop(candidate.prompt.id, candidate)
        self.candidates[candidate.prompt.id] = replace(known, score=score or known.score)

    def pooled(self, prompt: Prompt, archive: Archive, rows: int) -> tuple[float, float]:
        """Mean reward over training and validation (`rows` examples), and its standard error; infinite without evidence."""
        rewards = self.rewards.get(prompt.id, [])
        validated = archive.validated.get(prompt.id)
        n = len(rewards) + (rows if validated is not None else 0)
        if n == 0:
            return float("-inf"), float("inf")
        mean = (sum(rewards) + (validated or 0.0) * (n - len(rewards))) / n
        return mean, max(self._spread(), 1e-9) / math.sqrt(n)

    def _spread(self) -> float:
        """Standard deviation of a reward under one prompt: the mean over prompts with enough rewards, else 0.25."""
        found = [pstdev(r) for r in self.rewards.values() if len(r) >= 4]
        return fmean(found) if found else 0.25

    def best(self, archive: Archive, rows: int) -> Candidate:
        """The newest prompt, unless an older one is better by more than the standard error of their difference."""
        order = [c for c in self.candidates.values() if self.pooled(c.prompt, archive, rows)[1] < math.inf]
        best = order[-1]
        for older in reversed(order[:-1]):
            mean, error = self.pooled(older.prompt, archive, rows)
            newer_mean, newer_error = self.pooled(best.prompt, archive, rows)
            if mean - newer_mean > math.hypot(error, newer_error):
                best = older
        return best
