"""Bookkeeping of a training run: the prompts, or the states of weights, that were scored and validated, kept where a resume
finds them.

A method whose result is more than a text keeps the state of what it trains (`Run.keep`) and validates it as a candidate whose
`system` is that digest; the engine later asks the method's `deploy` for the environment in which it is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from whet.environments.environment import Environment
from whet.errors import EditRejected
from whet.prompt import Prompt
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.minibatch import minibatch
from whet.search.plan import SearchPlan, validate_finalists, validate_leader
from whet.types import JSON, Example, Score

CHECKS = 8  # times that the leader is validated on the way


class NoteKeeper(Protocol):
    """Whatever saves `notes` together with its weights, and replaces them when it is loaded."""

    notes: dict[str, Any]


@dataclass
class ScoreBook:
    """Scores of texts that replace the editable text of `start` (in `region`, or in the first), in the notes of a learner.

    `examples` are the training examples that every text is scored on. `signal` names the parts of a score whose
    sum is the reward; none means the task's own reward. Notes: `scores` (mean reward and named parts by text),
    `best` (the highest reward), `validated` (mean reward on validation examples by text).
    """

    learner: NoteKeeper
    start: Prompt
    signal: tuple[str, ...]
    examples: Sequence[Example]
    region: str | None = None

    def __post_init__(self) -> None:
        self.learner.notes.update({"scores": {}, "best": None, "validated": {}})

    @property
    def notes(self) -> dict[str, Any]:
        """The notes as they are now: a resume replaces them."""
        return self.learner.notes

    async def grade(self, run: Run, env: Environment, texts: Sequence[str]) -> list[float]:
        """Reward of each text on the training examples. Only new texts are scored."""
        scores = self.notes["scores"]
        new = [text for text in dict.fromkeys(texts) if text not in scores]
        results = await env.score(run, [self.start.edit(text, self.region) for text in new], self.examples)
        scores.update(
            {text: [score.mean, dict(score.parts)] for text, score in zip(new, results, strict=True)}
        )
        rewards = [self.reward(text) for text in texts]
        known = [] if self.notes["best"] is None else [self.notes["best"]]
        self.notes["best"] = max([*known, *rewards])
        return rewards

    def reward(self, text: str) -> float:
        """What the learner is trained for: the sum of the named parts, or the task's reward."""
        mean, parts = self.notes["scores"][text]
        return float(sum(parts[name] for name in self.signal) if self.signal else mean)

    def best(self, most: int) -> list[str]:
        """The texts with the highest reward; the older of equals first."""
        return sorted(self.notes["scores"], key=self.reward, reverse=True)[:most]

    def candidate(self, text: str) -> Candidate:
        """A scored text as a candidate."""
        mean, parts = self.notes["scores"][text]
        score = Score(mean, len(self.examples), parts)
        return Candidate(self.start.edit(text, self.region), (self.start.id,), "policy", score)

    async def check(self, run: Run, plan: SearchPlan, archive: Archive, step: int) -> None:
        """After some of the steps (from 0), `CHECKS` at even distances: validate the leader, if the plan pays for it."""
        if (step + 1) % max(1, plan.rounds // CHECKS):
            return
        self.recall(archive)
        text = self.best(1)[0]
        leader = await validate_leader(run, plan, archive, self.candidate(text))
        if leader.id in archive.validated:
            self.notes["validated"][text] = archive.validated[leader.id]

    def recall(self, archive: Archive) -> None:
        """Bring back to an archive with an incumbent what was validated before a resume."""
        for text, mean in self.notes["validated"].items():
            archive.restore(self.candidate(text), mean)

    async def finish(
        self, run: Run, env: Environment, plan: SearchPlan, archive: Archive, likeliest: str, most: int
    ) -> Candidate:
        """The best on validation examples of all that were validated: the likeliest text and the `most` - 1 best on training
        examples are, as far as the plan pays for it."""
        await self.grade(run, env, [likeliest])
        self.recall(archive)
        finalists = [self.candidate(text) for text in dict.fromkeys([likeliest, *self.best(most - 1)])]
        return await validate_finalists(run, plan, archive, finalists)

    def figures(self, rewards: Sequence[float], texts: Sequence[str]) -> dict[str, JSON]:
        """Figures of a batch for the run's log."""
        return {
            "reward": sum(rewards) / len(rewards),
            "best": self.notes["best"],
            "distinct": len(set(texts)),
        }


class TrainedNotes(NoteKeeper, Protocol):
    """A keeper of notes whose state is kept."""

    def save(self) -> bytes: ...
    def load(self, blob: bytes) -> None: ...


@dataclass
class TrainedCandidates:
    """States of a learner that were validated, by digest, in the notes of the learner: a resume brings them back.

    `operator` names what was done to the start. Of `steps` steps, `checks` at even distances are followed by a
    validation, the last one always.
    """

    learner: TrainedNotes
    start: Prompt
    operator: str
    steps: int
    checks: int

    def __post_init__(self) -> None:
        self.learner.notes["validated"] = {}

    def due(self, step: int) -> bool:
        """Whether a validation follows this step (from 0)."""
        if self.checks < 1:
            return False
        return (step + 1) * self.checks // self.steps > step * self.checks // self.steps

    async def check(self, run: Run, archive: Archive, validation: Environment, digest: str) -> None:
        """Validate the state called `digest` in `validation`, the environment that it makes."""
        self.recall(archive)
        candidate = self.candidate(digest)
        await archive.validate(run, validation, [candidate])
        self.learner.notes["validated"][digest] = archive.validated[candidate.id]

    def recall(self, archive: Archive) -> Candidate:
        """The best of all that was validated, before a resume too. The archive has an incumbent."""
        for digest, mean in self.learner.notes["validated"].items():
            archive.restore(self.candidate(digest), mean)
        return archive.incumbent or Candidate(self.start)

    def candidate(self, digest: str) -> Candidate:
        """A state as a candidate: the start's text with the trained weights."""
        return Candidate(self.start, (self.start.id,), self.operator, system=digest)


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

    learner: NoteKeeper
    start: Prompt
    operator: str

    def __post_init__(self) -> None:
        self.learner.notes["validated"] = {}

    async def check(self, run: Run, plan: SearchPlan, archive: Archive, rewrite: Prompt | None) -> None:
        """Validate a rewrite, if it can be used and the plan pays for it."""
        self.recall(archive)
        if rewrite is None:
            return
        leader = await validate_leader(run, plan, archive, self.candidate(rewrite.region_text()))
        if leader.id in archive.validated:
            self.learner.notes["validated"][rewrite.region_text()] = archive.validated[leader.id]

    def candidate(self, text: str) -> Candidate:
        """A rewrite as a candidate."""
        return Candidate(self.start.edit(text), (self.start.id,), self.operator)

    def recall(self, archive: Archive) -> None:
        """Bring back to an archive with an incumbent what was validated before a resume."""
        for text, mean in self.learner.notes["validated"].items():
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
