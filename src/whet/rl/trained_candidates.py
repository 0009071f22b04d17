"""Candidates that are more than a text: trained weights that act together with the frozen model.

A method keeps the state of what it trains (`Run.keep`), validates it as a candidate whose `system` is that digest, and the
engine later asks the method's `deploy` for the environment in which that candidate is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol

from whet.environments.environment import Environment
from whet.errors import UsageError
from whet.models.language_model import BatchModel, LanguageModel
from whet.prompt import Prompt
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.types import JSON, Completion, Example, Request, Usage, content_hash


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
            candidate = self.candidate(digest)
            archive.validated.setdefault(candidate.id, mean)
            incumbent = archive.incumbent or candidate
            if mean > archive.validated[incumbent.id]:
                archive.incumbent = candidate
        return archive.incumbent or Candidate(self.start)

    def candidate(self, digest: str) -> Candidate:
        """A state as a candidate: the start's text with the trained weights."""
        return Candidate(self.start, (self.start.id,), self.operator, system=digest)


async def charge(run: Run, name: str, examples: Sequence[Example]) -> None:
    """Charge one task call for each example that is about to be learned from.

    The arithmetic itself stays outside: a resume repeats it and pays for it no second time.
    """

    async def nothing() -> JSON:
        return None

    args = content_hash([e.id for e in examples])
    await run.effect(name, nothing, args, role="task", calls=len(examples))


@dataclass(frozen=True)
class Deployed(Environment):
    """An environment whose task model is not the run's own but a trained `system`, named by the digest of its weights.

    Its answers go through the run as effects that are charged to the task model.
    """

    system: str = ""

    @property
    def asks_together(self) -> bool:
        """Whether the system answers in batches."""
        return isinstance(self.model, BatchModel)

    async def ask(self, run: Run, request: Request) -> Completion:
        """One answer of the system."""

        async def answer() -> JSON:
            completion = (await self.model.generate(request))[0]
            usage: list[JSON] = [completion.usage.input_tokens, completion.usage.output_tokens]
            return {
                "text": completion.text,
                "finish": completion.finish,
                "error": completion.error,
                "usage": usage,
            }

        messages: list[JSON] = [[m.role, m.content] for m in request.messages]
        args: JSON = [self.system, content_hash(messages), request.sample]
        record: Any = await run.effect("system", answer, args, role="task", calls=1)
        return Completion(record["text"], record["finish"], Usage(*record["usage"]), record["error"])


def deployed(env: Environment, model: LanguageModel, digest: str) -> Environment:
    """The task answered by another model in this process; `digest` is that of its trained weights.

    Raises UsageError for a task that is more than one question and one answer.
    """
    if type(env) not in (Environment, Deployed):
        raise UsageError("virtual tokens answer one question at a time; this task is made of several turns.")
    kept = {f.name: getattr(env, f.name) for f in fields(Environment)}
    return Deployed(**{**kept, "model": model}, system=digest)
