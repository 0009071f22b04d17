"""Pooled evidence on prompts that follow one another: fresh training roll-outs and validation together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, pstdev

from whet.prompt import Prompt
from whet.search.archive import Archive, Candidate
from whet.types import Rollout, mean_score

_SURE, _BETTER = 2.0, 1.64
_DOUBT = 8
"""Rewards of the mean of all prompts that each wording is credited with, so that few rewards of its own prove little."""


@dataclass
class Evidence:
    """Rewards of each prompt on fresh training examples; the candidate that was added last is the newest. `wordings`: they are
    wordings of a whole instruction, of which the next one may be better or worse, and no small steps."""

    rewards: dict[str, list[float]] = field(default_factory=dict)
    candidates: dict[str, Candidate] = field(default_factory=dict)
    trials: set[str] = field(default_factory=set)
    wordings: bool = False

    def add(self, candidate: Candidate, rollouts: Sequence[Rollout] = (), *, trial: bool = False) -> None:
        """Take in a prompt and what it earned; a call that failed at the provider says nothing about it. Of a `trial` nobody
        expects that it is as good as those before and after it."""
        (self.trials.add if trial else self.trials.discard)(candidate.prompt.id)
        rows = [r for r in rollouts if r.answered]
        self.rewards.setdefault(candidate.prompt.id, []).extend(r.reward for r in rows)
        score = mean_score(rows) if rows else None
        known = self.candidates.pop(candidate.prompt.id, candidate)
        self.candidates[candidate.prompt.id] = replace(known, score=score or known.score)

    def pool_rewards(self, prompt: Prompt, archive: Archive, rows: int) -> tuple[float, float]:
        """Mean reward over training and validation (`rows` examples, or as many as were answered), and its standard error;
        infinite without evidence."""
        total, n = self._sum_rewards(prompt, archive, rows)
        if n == 0:
            return float("-inf"), float("inf")
        rewards = self.rewards.get(prompt.id, [])
        return total / n, max(self._spread(), pstdev(rewards) if rewards else 0.0, 1e-9) / math.sqrt(n)

    def _sum_rewards(self, prompt: Prompt, archive: Archive, rows: int) -> tuple[float, int]:
        """The mean reward of a prompt in training and validation together, and the number of examples."""
        rewards = self.rewards.get(prompt.id, [])
        validated, answered = archive.validated.get(prompt.id), archive.rewards.get(prompt.id)
        rows = rows if answered is None else len(answered)
        rows = rows if validated is not None else 0
        return sum(rewards) + (validated or 0.0) * rows, len(rewards) + rows

    def _spread(self) -> float:
        """Standard deviation of a reward under one prompt: the mean over prompts with enough rewards that differ, else 0.25. That
        all rewards of one are alike, at the bottom say, tells nothing about the next one."""
        deviations = [pstdev(r) for r in self.rewards.values() if len(r) >= 4 and len(set(r)) > 1]
        return fmean(deviations) if deviations else 0.25

    def best(self, archive: Archive, rows: int, *, validated: bool = False) -> Candidate:
        """The newest prompt, unless an older one is better by more than 1.64 standard errors of their difference (one-sided,
        5%), or a stretch of prompts by more than two better than all that came after it: then the last one of the stretch.

        With `validated`, among those that were validated, and of those with the same mean the shortest. A prompt without any
        evidence counts as good as its parent; one on trial does not count. Of `wordings` the one that earned most is best, as far
        as its rewards are many.
        """
        order = [c for c in self.candidates.values() if c.prompt.id not in self.trials]
        order = [c for c in order if not validated or c.prompt.id in archive.validated]
        if self.wordings:
            return self._best_wording(order, archive, rows)
        order = order if validated else order[: self._peak(order)]
        best = order[-1]
        for older in reversed(order[:-1]):
            newer = self._judge(best, archive, rows)
            mean, error = self._judge(older, archive, rows)
            if mean - newer[0] > _BETTER * math.hypot(error, newer[1]):
                best = older
        mean = self._judge(best, archive, rows)[0]
        equals = [c for c in order if self._judge(c, archive, rows)[0] == mean] if validated else [best]
        return min(equals, key=lambda c: (len(c.prompt.text), c is not best))

    def _best_wording(self, order: Sequence[Candidate], archive: Archive, rows: int) -> Candidate:
        """The prompt with the highest mean, drawn towards that of all prompts; of equals the shortest."""
        earned = [self._sum_rewards(c.prompt, archive, rows) for c in order]
        usual = sum(total for total, _ in earned) / max(1, sum(n for _, n in earned))
        means = [(total + _DOUBT * usual) / (n + _DOUBT) for total, n in earned]
        places = range(len(order))
        return order[max(places, key=lambda n: (round(means[n], 9), -len(order[n].prompt.text), n))]

    def _peak(self, order: Sequence[Candidate]) -> int:
        """Return the number of prompts up to the one after which the rewards fell most surely; all if they did not fall.
        Prompts follow one another by small steps, so that each has too few rewards of its own to show a slow fall."""
        rows = [self.rewards.get(c.prompt.id, []) for c in order]
        surest, peak = _SURE, len(order)
        for cut in range(1, len(order)):
            later = [reward for rewards in rows[cut:] for reward in rewards]
            before: list[float] = []
            for rewards in reversed(rows[:cut]):
                before += rewards
                if rewards and later and rows[cut - 1]:
                    error = self._spread() * math.sqrt(1 / len(before) + 1 / len(later))
                    sure = (fmean(before) - fmean(later)) / max(error, 1e-9)
                    surest, peak = max((surest, peak), (sure, cut))
        return peak

    def _judge(self, candidate: Candidate, archive: Archive, rows: int) -> tuple[float, float]:
        mean, error = self.pool_rewards(candidate.prompt, archive, rows)
        parent = next((self.candidates[p] for p in candidate.parents if p in self.candidates), None)
        if error == math.inf and parent is not None:
            return self.pool_rewards(parent.prompt, archive, rows)
        return mean, error
