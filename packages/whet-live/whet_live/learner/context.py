"""The data of a learner: the fold of traffic in memory, kept current and saved now and then, and its knowledge of a prompt
beside the feedback."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whet.engine.options import RoleModel
from whet.feedback.comments import Group, groups_of
from whet.feedback.model_session import NONE
from whet.instructions.changes import of_models
from whet.instructions.neighbours import Embed
from whet.instructions.questions import Critique
from whet.prompt.events import REJECTED as REJECTED_RULE
from whet.task import ModelSpec
from whet.task.roles import changed_spec, with_base_url
from whet_client.prompt.fence import DEFAULT_REGION
from whet_live.database import Database, iso
from whet_live.learner import learner_store
from whet_live.learner.evaluator_config import EvaluatorConfig
from whet_live.learner.feedback_state import ERASED, FeedbackState, PromptFeedback, fold_feedback
from whet_live.learner.gate_config import GateConfig
from whet_live.learner.learner_store import LearnerSettings, PromptUpdate
from whet_live.learner.reading import RowReading
from whet_live.learner.requirements import LiveRequirement, RequirementEvidence, readable
from whet_live.learner.search_config import SearchConfig
from whet_live.learner.terms import as_stages_see, locked_ids, read_terms
from whet_live.registry import Registry, Version
from whet_live.registry.registry_store import ROLLBACK
from whet_live.registry.values import REJECTED
from whet_live.traffic import Traffic
from whet_live.traffic.erase import erased_after

if TYPE_CHECKING:
    from whet_live.experiments import Experiments

AUTHOR = "learner"
"""The author of the learner's proposals and versions."""
_VERSIONS = 100
BATCH = 1000
FEW = 200
"""Events that somebody who looks can wait for."""
KEEP_EVERY = FEW
"""A snapshot is kept after so many events, for those who look from other processes, and at once after one that says to forget
somebody."""


class FeedbackSnapshot:
    """The feedback state in this process; any number of processes fold the same events to the same state."""

    def __init__(self, database: Database, traffic: Traffic) -> None:
        self.database = database
        self.traffic = traffic
        self._turn = threading.Lock()
        self._state: FeedbackState | None = None
        self._changed: set[str] | None = None
        self._kept = 0

    def advance(self) -> FeedbackState:
        """Take in what arrived since; the state after it. The first time, that may be all traffic there is."""
        with self._turn:
            return self._advance()

    def cached_state(self, name: str) -> tuple[FeedbackState, int]:
        """The cached feedback state, of one prompt at least, and the number of events that it lacks, without a long wait.

        It is what this process knows or, where that is less, the newest snapshot; a few events are read at once, more are
        left to whoever learns. What was erased meanwhile is not shown in any case.
        """
        with self.database.read() as connection:
            known = self._state
            if known is None or learner_store.kept_until(connection) > known.seq:
                known = learner_store.read_state(connection, name)
            gone = erased_after(connection, known.seq)
        seen, unread = self._few(known)
        return seen.without(gone), unread

    def cached_names(self) -> tuple[Container[str], bool, int]:
        """Prompts about which something is known already, whether those of the newest snapshot belong to them, and the same
        number as above."""
        with self.database.read() as connection:
            known, kept = self._state, learner_store.kept_until(connection)
        stored = known is None or kept > known.seq
        seen, unread = self._few(FeedbackState(kept) if known is None or stored else known)
        return seen.prompts, stored and kept > 0, unread

    def _few(self, state: FeedbackState) -> tuple[FeedbackState, int]:
        """The state after what came since, if that is little, and how many events are left."""
        left = max(0, self.traffic.head() - state.seq)
        if left > FEW:
            return state, left
        while events := self.traffic.events(state.seq, BATCH):
            state = fold_feedback(state, events)
        return state, 0

    def _advance(self) -> FeedbackState:
        state, forgot = self._open_state() if self._state is None else self._state, False
        while events := self.traffic.events(state.seq, BATCH):
            forgot |= any(event.kind == ERASED for event in events)
            after = fold_feedback(state, events)
            if self._changed is not None:
                names = {*state.prompts, *after.prompts}
                self._changed |= {n for n in names if state.prompts.get(n) is not after.prompts.get(n)}
            self._state = state = after
        self._state = state
        if forgot or state.seq >= self._kept + KEEP_EVERY:
            self._keep(state)
        return state

    def keep(self) -> None:
        """Save a snapshot now, unless a newer one is there."""
        with self._turn:
            if self._state is not None and self._state.seq > self._kept:
                self._keep(self._state)

    def _open_state(self) -> FeedbackState:
        with self.database.read() as connection:
            state = learner_store.read_state(connection)
        self._kept = state.seq
        self._changed = set() if state.seq else None
        return state

    def _keep(self, state: FeedbackState) -> None:
        with self.database.begin() as connection:
            if learner_store.write_state(connection, state, self._changed):
                self._changed = set()
        self._kept = state.seq


@dataclass(frozen=True)
class LearnerConfig:
    """The settings of a process that learns."""

    optimizer_lm: RoleModel = None
    """The model that reads the feedback and writes instructions; None: a person does both."""
    base_url: str | None = None
    calls: int = 20
    """Calls of the optimizer at most, for one step of reading and for one update."""
    gates: Mapping[str, GateConfig] = field(default_factory=dict)
    """The offline gate of each prompt that has one; `*` for every other prompt."""
    experiment: Mapping[str, Any] | None = None
    """The measurement of an experiment: its definition without prompt, label and arms. None: no experiment is started."""
    root: Path = Path("runs")
    """The folder of the journals."""
    lm: RoleModel = None
    """The model that answers a few recent inputs before and after a change of a prompt without a gate; None: no answers are
    shown."""
    embed: Embed | None = None
    """Puts likely neighbours before the optimizer together."""
    group: bool = False
    """Whether the embedded encoder puts likely neighbours together for a person."""
    today: Callable[[], date] | None = None
    """Gives the day by which dates of instructions are carried out; None: the day in UTC."""
    evaluators: tuple[EvaluatorConfig, ...] = ()
    """They grade a sample of live answers."""
    searches: tuple[SearchConfig, ...] = ()
    """They look for better prompts once a day."""
    pattern_calls: int = 0
    """Calls a day in which the optimizer sorts the critiques of a prompt into patterns of failures; 0: it never does."""

    @property
    def reader_url(self) -> str | None:
        """The base URL of the model that reads, where `base_url` moves it: not where the model `lm` is another provider's."""
        if not self.reader:
            return None
        reader, answerer = (changed_spec(ModelSpec(), lm, "task") for lm in (self.optimizer_lm, self.lm))
        return with_base_url(reader, self.base_url, answerer).base_url

    @property
    def reader(self) -> str:
        """The address of the model that reads feedback, empty where a person does."""
        lm: object = self.optimizer_lm
        address = lm.get("address", "") if isinstance(lm, Mapping) else lm
        return "" if address in (None, NONE) else str(address)

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
        """Return the settings by which a prompt learns."""
        with self.database.read() as connection:
            return learner_store.read_settings(connection, name)

    def today(self) -> str:
        """The day by which dates of instructions are carried out, an ISO date."""
        clock = self.config.today
        return iso(self.database.read_time())[:10] if clock is None else clock().isoformat()

    def feedback(self, name: str) -> PromptFeedback:
        """The feedback on a prompt that is learned from, with all rows that have arrived by now."""
        kept = self.snapshot.advance().prompts.get(name, PromptFeedback())
        return self.settings(name).select_rows(kept)

    def base(self, name: str, settings: LearnerSettings) -> Version | None:
        """The version that is updated, None while the label does not stand."""
        if not self.registry.exists(name) or settings.label not in self.registry.labels(name):
            return None
        return self.registry.get(f"{name}@{settings.label}")

    def locked_instructions(self, base: Version, region: str) -> set[str]:
        """The instructions of a version that a person locked."""
        with self.database.read() as connection:
            return locked_ids(read_terms(connection, base.name, region, base.ledger(region)))

    def facts(self, name: str, base: Version, settings: LearnerSettings) -> RequirementEvidence:
        """The earlier updates, decisions and rejections."""
        region = region_of(base, settings)
        ledger = base.ledger(region)
        with self.database.read() as connection:
            accepted, dismissed = learner_store.read_decisions(connection, name)
            known = learner_store.read_updates(connection, name)
            readings = learner_store.read_readings(connection, name)
            terms = read_terms(connection, name, region, ledger)
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
        rejected = {rule.text: reason for rule, reason in refused}
        behind: dict[str, set[str]] = {}
        for rule, _ in refused:
            behind.setdefault(rule.text, set()).update(rule.evidence)
        until = dict[str, int]()
        for text, (moment, reason, rows) in self._rolled_back(name, settings, known).items():
            if text not in {rule.text for rule in ledger.active}:
                until[text] = moment
                rejected[text] = reason
                behind.setdefault(text, set()).update(rows)
        shown = self.registry.versions(name, limit=_VERSIONS).items
        standing = {v.version: frozenset(i.id for i in v.ledger(region).active) for v in shown}
        grouping = not self.config.reader
        return RequirementEvidence(
            settings.policy, readings, grouping, done=done, accepted=accepted, dismissed=dismissed, rejected=rejected,
            behind=behind, until=until, standing=standing, in_context=settings.in_context,
            models_own=frozenset(of_models(as_stages_see(ledger, terms)) if settings.policy.upkeep else ()),
        )  # fmt: skip

    def _rolled_back(
        self, name: str, settings: LearnerSettings, updates: Sequence[PromptUpdate]
    ) -> dict[str, tuple[int, str, Collection[str]]]:
        """The texts of learned versions from which the label was rolled back: when, why, and the rows that they rested on."""
        moves = self.registry.moves(name, settings.label, limit=_VERSIONS).items
        undone = {
            move.old: move for move in reversed(moves) if move.kind == ROLLBACK and move.old is not None
        }
        texts: dict[str, tuple[int, str, Collection[str]]] = {}
        for update in updates if undone else ():
            version = update.version
            if version is None and update.proposal is not None:
                version = self.registry.proposal(update.proposal).version
            move = None if version is None else undone.get(version)
            if version is None or move is None:
                continue
            why = f"version {version} was rolled back by {move.actor}" + (
                f": {move.reason}" if move.reason else ""
            )
            learned = [(requirement.text, tuple(requirement.rows)) for requirement in update.requirements]
            for _, rule in self.registry.get(f"{name}/{version}").instructions:
                if set(rule.evidence) & set(update.rows):
                    learned.append((rule.text, rule.evidence))
            texts |= {text: (move.at, why, rows) for text, rows in learned}
        return texts

    def add_neighbours(self, facts: RequirementEvidence, feedback: PromptFeedback) -> RequirementEvidence:
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
    """The subject of a requirement; the empty name stands for everything that its rows hold."""
    return {requirement.requirement_id, requirement.instruction} - {""} or {""}


def region_of(version: Version, settings: LearnerSettings) -> str:
    """The fence that is updated: the one that the settings name, else `instructions`, else the first."""
    if settings.region is not None:
        return settings.region
    names = [region.name for region in version.prompt.regions] if version.prompt.fenced else []
    return names[0] if names and DEFAULT_REGION not in names else DEFAULT_REGION
