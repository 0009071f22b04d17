"""Candidates that are more than a text: trained weights that act together with the frozen model.

A method keeps the state of what it trains (`Run.keep`), validates it as a candidate whose `system` is that digest, and the
engine later asks the method's `deploy` for the environment in which that candidate is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from whet.environments.environment import Environment
from whet.prompt import Prompt
from whet.run import Run
from whet.search.archive import Archive, Candidate


class TrainedNotes(Protocol):
    """Whatever is trained: it saves `notes` together with its weights, and replaces them when it is loaded."""

    notes: dict[str, Any]

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
