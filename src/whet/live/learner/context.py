"""What a learner works with, and what it knows about a prompt beside the feedback."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whet.feedback.comments import Group, groups_of
from whet.feedback.model_session import NONE
from whet.instructions.neighbours import Embed
from whet.instructions.reader import Critique
from whet.live.database import Database
from whet.live.learner import learner_store
from whet.live.learner.feedback_state import PromptFeedback
from whet.live.learner.gating import GateConfig
from whet.live.learner.learner_store import LearnerSettings
from whet.live.learner.reading import RowReading
from whet.live.learner.requirements import Facts, LiveRequirement, readable
from whet.live.learner.snapshot import FeedbackSnapshot
from whet.live.registry import Registry, Version
from whet.live.registry.values import REJECTED
from whet.live.traffic import Traffic
from whet.prompt.events import REJECTED as REJECTED_RULE
from whet.prompt.fence import DEFAULT_REGION

if TYPE_CHECKING:
    from whet.live.experiments import Experiments

AUTHOR = "learner"
"""Who makes the learner's proposals and versions."""
_VERSIONS = 100


@dataclass(frozen=True)
class LearnerConfig:
    """What a process learns with: the optimizer model, which reads the feedback and writes (None: a person does both), at most
    `calls` of it for one step of reading and for one update, a gate for each prompt that is gated offline (`*` for every
    other one), what an experiment measures (its definition without prompt, label and arms; None: no experiment is started),
    where journals go, and the model `lm` that answers a few recent inputs before and after a change of a prompt without a gate
    (None: nothing is shown). `embed` puts likely neighbours before the optimizer together; with `group` the embedded encoder
    does so for a person."""

    optimizer_lm: str | None = None
    base_url: str | None = None
    calls: int = 20
    gates: Mapping[str, GateConfig] = field(default_factory=dict)
    experiment: Mapping[str, Any] | None = None
    root: Path = Path("runs")
    lm: str | None = None
    embed: Embed | None = None
    group: bool = False

    @property
    def reader(self) -> str:
        """The address of the model that reads feedback, empty where a person does."""
        return "" if self.optimizer_lm in (None, NONE) else str(self.optimizer_lm)

    def gate(self, name: str) -> GateConfig | None:
        """The gate of a prompt."""
        return self.gates.get(name, self.gates.get("*"))


@dataclass(frozen=True)
class LearnerContext:
    """The parts that a learner works with. `experiments` is called only when one is to be started."""

    database: Database
    registry: Registry
    traffic: Traffic
    snapshot: FeedbackSnapshot
    config: LearnerConfig
    experiments: Callable[[], Experiments] | None = None

    def settings(self, name: str) -> LearnerSettings:
        """How a prompt learns."""
        with self.database.read() as connection:
            return learner_store.read_settings(connection, name)

    def base(self, name: str, settings: LearnerSettings) -> Version | None:
        """The version that is updated, None while the label does not stand."""
        if not self.registry.exists(name) or settings.label not in self.registry.labels(name):
            return None
        return self.registry.get(f"{name}@{settings.label}")

    def facts(self, name: str, base: Version, settings: LearnerSettings) -> Facts:
        """What was learned, decided and rejected before."""
        with self.database.read() as connection:
            accepted, dismissed = learner_store.read_decisions(connection, name)
            known = learner_store.read_updates(connection, name)
            readings = learner_store.read_readings(connection, name)
        region = region_of(base, settings)
        ledger = base.ledger(region)
        done: set[tuple[str, str]] = set()
        for update in known:
            learned = update.requirements if update.outcome != learner_store.STALE else ()
            if update.outcome in (learner_store.REFUSED, learner_store.EMPTY):
                learned = tuple(d for d in learned if not {f"requirement {d.key}", *d.rows} & accepted)
            done |= {(row, key) for d in learned for row in d.rows for key in _names(d)}
        refused = [(i, i.reason) for i in ledger.instructions.values() if i.status == REJECTED_RULE]
        for proposal in self.registry.proposals(state=REJECTED, name=name).items:
            if proposal.author == AUTHOR:
                refused += [(unit.instruction, str(proposal.reason)) for unit in proposal.units]
        behind: dict[str, set[str]] = {}
        for rule, _ in refused:
            behind.setdefault(rule.text, set()).update(rule.evidence)
        shown = self.registry.versions(name, limit=_VERSIONS).items
        standing = {v.version: frozenset(i.id for i in v.ledger(region).active) for v in shown}
        rejected = {rule.text: reason for rule, reason in refused}
        grouping = not self.config.reader
        return Facts(
            settings.policy, readings, grouping, done=done, accepted=accepted, dismissed=dismissed, rejected=rejected,
            behind=behind, standing=standing,
        )  # fmt: skip

    def grouped(self, facts: Facts, feedback: PromptFeedback) -> Facts:
        """The facts with likely neighbours among the rows that nobody read, where the embedding is wanted and installed."""
        if not (facts.grouping and self.config.group):
            return facts
        rows = [
            row for row in readable(feedback, facts) if not facts.readings.rows.get(row.id, RowReading()).done
        ]
        groups = _groups(tuple((row.text, row.id) for row in rows))
        return replace(facts, alike={row: group.rows[0] for group in groups for row in group.rows})


@lru_cache(maxsize=64)
def _groups(rows: tuple[tuple[str, str], ...]) -> tuple[Group, ...]:
    return groups_of([Critique(text, key) for text, key in rows])


def _names(requirement: LiveRequirement) -> set[str]:
    """What a requirement is about; the empty name stands for all that its rows hold."""
    return {requirement.requirement_id, requirement.instruction} - {""} or {""}


def region_of(version: Version, settings: LearnerSettings) -> str:
    """The fence that is updated: the one that the settings name, else `instructions`, else the first."""
    if settings.region is not None:
        return settings.region
    names = [region.name for region in version.prompt.regions] if version.prompt.fenced else []
    return names[0] if names and DEFAULT_REGION not in names else DEFAULT_REGION
