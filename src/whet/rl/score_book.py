"""Bookkeeping of a training run over prompts: what was scored and validated, kept where a resume finds it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from whet.environments.environment import Environment
from whet.prompt import Prompt
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.plan import SearchPlan, validate_leader
from whet.types import JSON, Example, Score


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

    async def check(self, run: Run, share: SearchPlan, archive: Archive) -> None:
        """Validate the leader, if the plan pays for it."""
        self.recall(archive)
        text = self.best(1)[0]
        leader = await validate_leader(run, share, archive, self.candidate(text))
        if leader.id in archive.validated:
            self.notes["validated"][text] = archive.validated[leader.id]

    def recall(self, archive: Archive) -> None:
        """Bring back to an archive with an incumbent what was validated before a resume."""
        for text, mean in self.notes["validated"].items():
            archive.restore(self.candidate(text), mean)

    def figures(self, rewards: Sequence[float], texts: Sequence[str]) -> dict[str, JSON]:
        """Figures of a batch for the run's log."""
        return {
            "reward": sum(rewards) / len(rewards),
            "best": self.notes["best"],
            "distinct": len(set(texts)),
        }
