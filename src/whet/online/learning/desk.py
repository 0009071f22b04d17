"""What a learner works with, and what it knows about a prompt beside what was heard."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whet.online.database import Database
from whet.online.learning import store
from whet.online.learning.demands import Facts
from whet.online.learning.gating import Bench
from whet.online.learning.memory import Memory
from whet.online.learning.store import Settings
from whet.online.registry import Registry, Version
from whet.online.registry.values import REJECTED
from whet.online.traffic import Traffic
from whet.prompt.events import REJECTED as REJECTED_RULE
from whet.prompt.fence import DEFAULT_REGION

if TYPE_CHECKING:
    from whet.online.experiments import Experiments

AUTHOR = "learner"
"""Who makes the learner's proposals and versions."""
_VERSIONS = 100


@dataclass(frozen=True)
class Teaching:
    """What a process teaches with: the optimizer model (None: instructions are distilled), at most `calls` of it for one
    lesson, a bench for each prompt that is gated offline (`*` for every other one), what an experiment measures (its
    definition without prompt, label and arms; None: no experiment is started), where journals go, and the model `lm` that
    answers a few recent inputs before and after a change of a prompt without a bench (None: nothing is shown)."""

    optimizer_lm: str | None = None
    base_url: str | None = None
    calls: int = 20
    benches: Mapping[str, Bench] = field(default_factory=dict)
    experiment: Mapping[str, Any] | None = None
    root: Path = Path("runs")
    lm: str | None = None

    def bench(self, name: str) -> Bench | None:
        """The bench of a prompt."""
        return self.benches.get(name, self.benches.get("*"))


@dataclass(frozen=True)
class Desk:
    """The parts that a learner works with. `experiments` is asked for only when one is to be started."""

    database: Database
    registry: Registry
    traffic: Traffic
    memory: Memory
    teaching: Teaching
    experiments: Callable[[], Experiments] | None = None

    def settings(self, name: str) -> Settings:
        """How a prompt learns."""
        with self.database.read() as connection:
            return store.read_settings(connection, name)

    def base(self, name: str, settings: Settings) -> Version | None:
        """The version that is taught, None while the label does not stand."""
        if not self.registry.exists(name) or settings.label not in self.registry.labels(name):
            return None
        return self.registry.get(f"{name}@{settings.label}")

    def facts(self, name: str, base: Version, settings: Settings) -> Facts:
        """What was learned, decided and rejected before."""
        with self.database.read() as connection:
            accepted, dismissed = store.read_verdicts(connection, name)
            known = store.read_lessons(connection, name)
        ledger = base.ledger(region_of(base, settings))
        done = {row for rule in ledger.instructions.values() for row in rule.evidence}
        for lesson in known:
            if lesson.outcome in (store.OPEN, store.PROPOSED, store.STAGED):
                done |= set(lesson.rows)
            elif lesson.outcome in (store.REFUSED, store.EMPTY):
                unwanted = [d for d in lesson.demands if not {f"demand {d.key}", *d.rows} & accepted]
                done |= {row for demand in unwanted for row in demand.rows}
        refused = [(i, i.reason) for i in ledger.instructions.values() if i.status == REJECTED_RULE]
        for proposal in self.registry.proposals(state=REJECTED, name=name).items:
            if proposal.author == AUTHOR:
                refused += [(unit.instruction, str(proposal.reason)) for unit in proposal.units]
        behind: dict[str, set[str]] = {}
        for rule, _ in refused:
            behind.setdefault(rule.text, set()).update(rule.evidence)
        shown = self.registry.versions(name, limit=_VERSIONS).items
        region = region_of(base, settings)
        standing = {v.version: frozenset(i.id for i in v.ledger(region).active) for v in shown}
        rejected = {rule.text: reason for rule, reason in refused}
        return Facts(settings.policy, done, accepted, dismissed, rejected, behind, standing)


def region_of(version: Version, settings: Settings) -> str:
    """The fence that is taught: the one that the settings name, else `instructions`, else the first."""
    if settings.region is not None:
        return settings.region
    names = [region.name for region in version.prompt.regions] if version.prompt.fenced else []
    return names[0] if names and DEFAULT_REGION not in names else DEFAULT_REGION
