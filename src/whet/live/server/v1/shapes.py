"""The shapes of what programs send and get, as msgspec structs: they check bodies and make the OpenAPI document."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, defstruct

Name = Annotated[str, Meta(min_length=1, max_length=255)]
Label = Annotated[str, Meta(min_length=1, max_length=36)]
Reason = Annotated[str, Meta(max_length=4000)]
Number = Annotated[int, Meta(ge=1, le=999_999_999)]
Limit = Annotated[int, Meta(ge=1, le=500)]
Key = Annotated[str, Meta(min_length=1, max_length=200)]


class RequestSchema(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Something that is sent: a name that is not known is refused."""


def page_of(name: str, rows: str, kind: type[Struct], cursor: str = "before") -> Any:
    """The struct of a page of a list: its `rows`, and under `cursor` where the next page begins."""
    more = {"__doc__": f"A page of {rows}."}
    return defstruct(name, [(rows, list[kind]), (cursor, str | None)], namespace=more)  # type: ignore[valid-type]


class MessageSchema(RequestSchema):
    """One message of a prompt."""

    role: Annotated[str, Meta(min_length=1, max_length=40)]
    content: str


class PromptsQuery(RequestSchema):
    """Which prompts to list. `after` is what the page before gave."""

    query: Annotated[str, Meta(max_length=255)] = ""
    label: Label | None = None
    after: Annotated[str, Meta(max_length=255)] | None = None
    limit: Limit = 50


class NewVersion(RequestSchema):
    """The next version of a prompt: a text, or messages. `parent` is the version that it was made from."""

    name: Name
    text: str | None = None
    messages: list[MessageSchema] | None = None
    message: Reason = ""
    config: dict[str, Any] | None = None
    label: Label | None = None
    parent: Number | None = None


class VersionQuery(RequestSchema):
    """Which version: `label` (default `production`) or `version`."""

    label: Label | None = None
    version: Number | None = None


class PageQuery(RequestSchema):
    """A page of a list; `before` is what the page before gave."""

    before: Number | None = None
    limit: Limit = 50


class MovesQuery(PageQuery):
    """Moves of one label, or of all."""

    label: Label | None = None


class DiffQuery(RequestSchema):
    """Two versions by number or label."""

    before: Label
    after: Label


class LabelMove(RequestSchema):
    """Where a label goes; None takes it away."""

    label: Label
    version: Number | None
    reason: Reason = ""


class LabelRollback(RequestSchema):
    """Which label goes back."""

    label: Label
    reason: Reason = ""


class Protection(RequestSchema):
    """Whether a label moves by approval only; the name `*` stands for every prompt."""

    name: Name
    label: Label
    protected: bool


class NewProposal(RequestSchema):
    """A whole new text (or messages) for the version at the address `base`; `label` moves when it is approved. What is
    sent as `evidence` is kept as `{"given": {"by": NAME, "evidence": ...}}`: it was not measured here."""

    base: Annotated[str, Meta(min_length=1, max_length=320)]
    text: str | None = None
    messages: list[MessageSchema] | None = None
    message: Reason = ""
    label: Label | None = None
    evidence: dict[str, Any] | None = None


class MoveRequest(RequestSchema):
    """A protected label that somebody else is to put on a version."""

    name: Name
    label: Label
    version: Number
    reason: Reason = ""


class ProposalsQuery(RequestSchema):
    """Proposals in a state, of a prompt."""

    state: Literal["open", "approved", "rejected", "edited", "withdrawn"] | None = None
    name: Name | None = None
    before: Key | None = None
    limit: Limit = 50


class DecisionSchema(RequestSchema):
    """What somebody decides about a proposal. `kept`: ids of instructions (default all); `texts`: other texts by id."""

    verdict: Literal["approve", "edit", "reject"]
    reason: Reason = ""
    kept: list[Key] | None = None
    texts: dict[str, str] | None = None
    text: str | None = None


class Withdrawal(RequestSchema):
    """Why an author takes a proposal back."""

    reason: Reason = ""


class AuditQuery(PageQuery):
    """Entries about a subject, by an actor."""

    subject: Annotated[str, Meta(max_length=255)] | None = None
    actor: Annotated[str, Meta(max_length=200)] | None = None


class SealQuery(RequestSchema):
    """An older seal that the log must still hold."""

    seal: Annotated[str, Meta(max_length=100)] | None = None


class SummarySchema(Struct):
    """A prompt in a list."""

    name: str
    newest: int
    labels: dict[str, int]
    created: str
    changed: str


Summaries = page_of("Summaries", "prompts", SummarySchema, "after")


class InstructionSchema(Struct):
    """A managed instruction with what it rests on."""

    id: str
    text: str
    status: str
    sources: int
    critiques: list[str]
    evidence: list[str]
    effect: dict[str, Any] | None


class TextSchema(Struct):
    """The text of a version with its settings."""

    name: str
    version: int
    address: str
    prompt_id: str
    labels: list[str]
    messages: list[MessageSchema]
    config: dict[str, Any]


class VersionSchema(TextSchema):
    """One version of a prompt."""

    parent: int | None
    author: str
    message: str
    created: str
    instructions: list[InstructionSchema]


VersionsSchema = page_of("VersionsSchema", "versions", VersionSchema)


class ServedSchema(TextSchema):
    """A version as an app gets it. `experiment`: what it needs to assign units by itself, where one runs on the label. People
    get the rest of the version as well."""

    experiment: dict[str, Any] | None = None


class DifferenceSchema(Struct):
    """Two versions beside each other."""

    name: str
    before: int
    after: int
    text: str
    changes: list[dict[str, Any]]


class MoveSchema(Struct):
    """A move of a label. `number` is 0 where it stood there already."""

    number: int
    name: str
    label: str
    kind: Literal["move", "rollback", "remove"]
    old: int | None
    new: int | None
    actor: str
    reason: str
    at: str


Moves = page_of("Moves", "moves", MoveSchema)


class Standing(Struct):
    """Where labels stand, and which move by approval only."""

    labels: dict[str, int]
    protected: list[str]


class ProposalSchema(Struct):
    """A change that waits, or that was decided."""

    id: str
    name: str
    state: str
    base: int
    label: str | None
    target: int | None
    messages: list[MessageSchema]
    instructions: list[dict[str, Any]]
    author: str
    message: str
    created: str
    decider: str | None
    reason: str | None
    version: int | None
    provenance: dict[str, list[str]]


Proposals = page_of("Proposals", "proposals", ProposalSchema)


class AuditEntrySchema(Struct):
    """One entry of the audit log."""

    seq: int
    at: str
    actor: str
    action: str
    subject: str
    details: dict[str, Any]
    hash: str


Entries = page_of("Entries", "entries", AuditEntrySchema)


class Verification(Struct):
    """Whether the audit log is whole."""

    whole: bool
    rows: int
    seal: str
    broken: int | None
    reason: str
