"""The values that the registry returns: immutable, each with its form as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from whet.prompt import Prompt
from whet.prompt.events import Event, event_to_json
from whet.prompt.instructions import Instruction, Ledger, fold_events
from whet.prompt.ledger import Change
from whet.types import Message
from whet_client.media import read_contents
from whet_live.database import iso

Ledgers = Mapping[str, tuple[Event, ...]]
"""The events of each managed region, by its name."""

OPEN, APPROVED, REJECTED, EDITED, WITHDRAWN = "open", "approved", "rejected", "edited", "withdrawn"
STATES = (OPEN, APPROVED, REJECTED, EDITED, WITHDRAWN)
EXPERIMENT = "experiment:"
"""With what the name of an actor begins that is an experiment; its id follows."""


@dataclass(frozen=True)
class Version:
    """One version of a prompt. Only its `labels` ever change."""

    name: str
    version: int
    prompt: Prompt
    ledgers: Ledgers
    config: Mapping[str, Any]
    parent: int | None
    """The version that it was made from."""
    author: str
    message: str
    created: int
    """Microseconds (UTC)."""
    run: Mapping[str, Any] | None = None
    """The origin of the version: a run folder, a ledger, a file."""
    evidence: Mapping[str, Any] | None = None
    """The measurements."""
    proposal: str | None = None
    """The id of the proposal that brought it."""
    labels: tuple[str, ...] = ()
    """The labels that stood on it when it was read."""
    provenance: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The people who shaped the version, by role."""

    @property
    def address(self) -> str:
        """`prompts:/NAME/VERSION`."""
        return f"prompts:/{self.name}/{self.version}"

    def ledger(self, region: str) -> Ledger:
        """The instructions of a region, empty for one that has no ledger."""
        return fold_events(self.ledgers.get(region, ()))

    @property
    def instructions(self) -> list[tuple[str, Instruction]]:
        """The active instructions of all regions with the region's name, in order."""
        return [(region, i) for region in self.ledgers for i in self.ledger(region).active]

    def as_json(self) -> dict[str, Any]:
        """The version as JSON values, its instructions and its ledgers included."""
        return {
            "name": self.name, "version": self.version, "address": self.address, "prompt_id": self.prompt.id,
            "labels": list(self.labels), "messages": messages_json(self.prompt), "config": dict(self.config),
            "parent": self.parent, "author": self.author, "message": self.message, "created": iso(self.created),
            "run": self.run, "evidence": self.evidence, "proposal": self.proposal,
            "instructions": [{"region": region, **asdict(one)} for region, one in self.instructions],
            "ledger": ledgers_json(self.ledgers),
        }  # fmt: skip


def prompt_from_messages(messages: Iterable[Iterable[str]]) -> Prompt:
    """A prompt from stored messages."""
    return Prompt(tuple(Message(role, read_contents(content), *name) for role, content, *name in messages))


def messages_of(prompt: Prompt) -> list[list[str]]:
    """A prompt's messages as they are stored: with the contents of its images, sounds and files."""
    return [m.as_list() for m in prompt.portable.messages]


def messages_json(prompt: Prompt) -> list[dict[str, str]]:
    """The messages as JSON values, with the contents of images, sounds and files."""
    return [m.as_object() for m in prompt.portable.messages]


def ledgers_json(ledgers: Ledgers) -> dict[str, list[dict[str, object]]]:
    """The events of each region as JSON values."""
    return {region: [event_to_json(event) for event in events] for region, events in ledgers.items()}


def slot_warnings(current: Version | None, prompt: Prompt) -> list[str]:
    """The changes of slots, for the application, between a version and the text that follows it: lost slots and new slots.
    Empty for a new prompt."""
    if current is None:
        return []
    here = f"version {current.version}" + (f" ({', '.join(current.labels)})" if current.labels else "")
    lost, gained = (
        ", ".join(f"{{{{{slot}}}}}" for slot in sorted(slots))
        for slots in (current.prompt.slots - prompt.slots, prompt.slots - current.prompt.slots)
    )
    warnings = []
    if lost:
        warnings.append(
            f"The text has no {lost}, which {here} has: what an application gives for it does not reach the model."
        )
    if gained:
        warnings.append(f"The text has {gained}, which {here} has not: where an application gives nothing for it, the model "
                        "reads the slot as it stands.")  # fmt: skip
    return warnings


@dataclass(frozen=True, slots=True)
class Summary:
    """A prompt in a list: its newest version and where its labels stand. Times are in microseconds (UTC)."""

    name: str
    newest: int
    labels: Mapping[str, int]
    created: int
    changed: int

    def as_json(self) -> dict[str, Any]:
        """The row as JSON values."""
        return {**asdict(self), "created": iso(self.created), "changed": iso(self.changed)}


@dataclass(frozen=True, slots=True)
class Move:
    """A label was set (`old` is None), moved, rolled back or removed (`new` is None); `kind` says which."""

    number: int
    name: str
    label: str
    kind: str
    old: int | None
    new: int | None
    actor: str
    reason: str
    at: int
    proposal: str | None = None

    def as_json(self) -> dict[str, Any]:
        """The move as JSON values."""
        return {**asdict(self), "at": iso(self.at)}


@dataclass(frozen=True, slots=True)
class ProposalUnit:
    """The effect of a proposal on one instruction: the part that can be kept or left out by itself.

    `events` are those of the proposal that belong to it, in order; `change` what they do to the fence (None where only
    the evidence grows), `also` what they do to other instructions; `instruction` is its state after them.
    """

    id: str
    events: tuple[Event, ...]
    change: Change | None
    also: tuple[Change, ...]
    instruction: Instruction


@dataclass(frozen=True)
class Proposal:
    """A change that waits for a decision, or that was decided."""

    id: str
    name: str
    state: str
    base: int
    """The version that the change was made on."""
    label: str | None
    """The label that moves on approval; None: only a version is made."""
    target: int | None
    """For a request that moves the label and changes nothing else: the version that the label moves to."""
    prompt: Prompt
    """The whole text as proposed."""
    region: str
    """The region whose ledger `events` add to."""
    events: tuple[Event, ...]
    """The addition of the change to the ledger of `region`; empty for a text that somebody wrote."""
    author: str
    message: str
    created: int
    units: tuple[ProposalUnit, ...] = ()
    evidence: Mapping[str, Any] | None = None
    """The measurements."""
    gate: Mapping[str, Any] | None = None
    """The verdict of the gate."""
    config: Mapping[str, Any] | None = None
    run: Mapping[str, Any] | None = None
    """The origin of the change."""
    decided: int | None = None
    decider: str | None = None
    reason: str | None = None
    kept: tuple[str, ...] | None = None
    """The instructions that the decision kept; None: all."""
    version: int | None = None
    successor: str | None = None
    provenance: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The people who shaped the change, by role (`provenance.may_approve`)."""

    def as_json(self) -> dict[str, Any]:
        """The proposal as JSON values, with its change of each instruction."""
        shown = {name: value for name, value in vars(self).items() if name not in _PARTS}
        return {
            **shown,
            "created": iso(self.created),
            "decided": None if self.decided is None else iso(self.decided),
            "messages": messages_json(self.prompt),
            "instructions": [_unit_json(unit) for unit in self.units],
        }


_PARTS = ("prompt", "region", "events", "units")
"""The parts of a proposal, as its instructions and messages state them in JSON."""


def _unit_json(unit: ProposalUnit) -> dict[str, object]:
    change = unit.change
    return {
        "before": None if change is None else change.before,
        "after": None if change is None else change.after,
        "also": [asdict(change) for change in unit.also],
        **asdict(unit.instruction),
    }


@dataclass(frozen=True, slots=True)
class ChangedSetting:
    """A key of the config whose value differs: whether it stood there (`set`) before and after, and its JSON values."""

    key: str
    set_before: bool
    before: Any
    set_after: bool
    after: Any

    def as_json(self) -> dict[str, Any]:
        """The key with the values that it has; where it was not set, there is none."""
        old = {"before": self.before} if self.set_before else {}
        return {"key": self.key, **old, **({"after": self.after} if self.set_after else {})}


@dataclass(frozen=True, slots=True)
class Difference:
    """Two versions beside each other: a unified diff of the text, the instructions that differ by region, and the settings of
    the config that differ."""

    before: Version
    after: Version
    text: str
    changes: Mapping[str, Sequence[Change]] = field(default_factory=dict)
    config: Sequence[ChangedSetting] = ()

    def as_json(self) -> dict[str, Any]:
        """The difference as JSON values."""
        rows = [{"region": region, **asdict(c)} for region, changes in self.changes.items() for c in changes]
        return {
            "name": self.after.name, "before": self.before.version, "after": self.after.version, "text": self.text,
            "changes": rows, "config": [one.as_json() for one in self.config],
        }  # fmt: skip
