"""The shapes of what programs send and get, as msgspec structs: they check bodies and make the OpenAPI document."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_type_hints

from msgspec import Meta, Struct, defstruct

from whet.prompt import Instruction
from whet_live.registry import AuditEntry, AuditVerdict, Move, Proposal, Summary, Version

Name = Annotated[str, Meta(min_length=1, max_length=255)]
Label = Annotated[str, Meta(min_length=1, max_length=36)]
Reason = Annotated[str, Meta(max_length=4000)]
Number = Annotated[int, Meta(ge=1, le=999_999_999)]
Limit = Annotated[int, Meta(ge=1, le=500)]
Key = Annotated[str, Meta(min_length=1, max_length=200)]


class RequestSchema(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Something that is sent: a name that is not known is refused."""


def schema_of(value: type, what: str, **fields: Any) -> Any:
    """The struct of a value as JSON, which is `what`: the fields of its dataclass, and `fields` that are others there (None: left
    out)."""
    kinds = {**get_type_hints(value), **fields}
    shown = [(name, kind) for name, kind in kinds.items() if kind is not None]
    return defstruct(f"{value.__name__}Schema", shown, namespace={"__doc__": what})


def page_of(name: str, rows: str, kind: type[Struct], cursor: str = "before") -> Any:
    """The struct of a page of a list: its `rows`, and under `cursor` where the next page begins."""
    more = {"__doc__": f"A page of {rows}."}
    return defstruct(name, [(rows, list[kind]), (cursor, str | None)], namespace=more)  # type: ignore[valid-type]


def with_warnings(name: str, kind: Any, what: str) -> Any:
    """The struct of something that was stored, with what to know about its text."""
    what = f"{what} `warnings` say which slots the text lost or gained against the version in production, else the newest."
    return defstruct(name, [("warnings", list[str])], bases=(kind,), namespace={"__doc__": what})


class MessageSchema(RequestSchema):
    """One message of a prompt."""

    role: Annotated[str, Meta(min_length=1, max_length=40)]
    content: str
    name: Annotated[str, Meta(min_length=1, max_length=255)] | None = None


class PromptsQuery(RequestSchema):
    """The prompts to list. `after` is what the page before gave."""

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
    """The version: `label` (default `production`) or `version`."""

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


class WithReason(RequestSchema):
    """Why something is done."""

    reason: Reason = ""


class LabelRollback(WithReason, kw_only=True):
    """The label that goes back."""

    label: Label


class LabelMove(LabelRollback, kw_only=True):
    """The version to which a label moves; None removes the label."""

    version: Number | None


class Protection(RequestSchema):
    """Whether a label moves by approval only; the name `*` stands for every prompt."""

    name: Name
    label: Label
    protected: bool


class NewProposal(RequestSchema):
    """A whole new text (or messages) for the version at the address `base`; `label` moves when it is approved. The given
    `evidence` is kept as `{"given": {"by": NAME, "evidence": ...}}`: it was not measured here."""

    base: Annotated[str, Meta(min_length=1, max_length=320)]
    text: str | None = None
    messages: list[MessageSchema] | None = None
    message: Reason = ""
    label: Label | None = None
    evidence: dict[str, Any] | None = None


class MoveRequest(LabelRollback, kw_only=True):
    """A protected label that somebody else is to put on a version."""

    name: Name
    version: Number


class ProposalsQuery(RequestSchema):
    """Proposals in a state, of a prompt."""

    state: Literal["open", "approved", "rejected", "edited", "withdrawn"] | None = None
    name: Name | None = None
    before: Key | None = None
    limit: Limit = 50


class DecisionSchema(RequestSchema):
    """A decision about a proposal. `kept`: ids of instructions (default all); `texts`: other texts by id."""

    verdict: Literal["approve", "edit", "reject"]
    reason: Reason = ""
    kept: list[Key] | None = None
    texts: dict[str, str] | None = None
    text: str | None = None


class AuditQuery(PageQuery):
    """Entries about a subject, by an actor."""

    subject: Annotated[str, Meta(max_length=255)] | None = None
    actor: Annotated[str, Meta(max_length=200)] | None = None


class SealQuery(RequestSchema):
    """An older seal that the log must still hold."""

    seal: Annotated[str, Meta(max_length=100)] | None = None


SummarySchema = schema_of(Summary, "A prompt in a list.", created=str, changed=str)
Summaries = page_of("Summaries", "prompts", SummarySchema, "after")


class TextSchema(Struct):
    """The text of a version with its settings."""

    name: str
    version: int
    address: str
    prompt_id: str
    labels: list[str]
    messages: list[MessageSchema]
    config: dict[str, Any]


InstructionSchema = schema_of(Instruction, "A managed instruction with what it rests on.", region=str)
VersionSchema = schema_of(
    Version,
    "One version of a prompt.",
    **dict.fromkeys(("prompt", "ledgers", "provenance")),
    address=str,
    prompt_id=str,
    messages=list[MessageSchema],
    created=str,
    instructions=list[InstructionSchema],  # type: ignore[valid-type]
    ledger=dict[str, list[dict[str, Any]]],
)
AddedVersion = with_warnings("AddedVersion", VersionSchema, "A new version of a prompt.")
VersionsSchema = page_of("VersionsSchema", "versions", VersionSchema)


class ServedSchema(TextSchema):
    """A version as an app gets it. `experiment`: what it needs to assign units by itself, where one runs on the label. People
    get the rest of the version as well."""

    experiment: dict[str, Any] | None = None


class DifferenceSchema(Struct):
    """Two versions beside each other. `config`: the settings that differ, with their values `before` and `after`."""

    name: str
    before: int
    after: int
    text: str
    changes: list[dict[str, Any]]
    config: list[dict[str, Any]]


MoveSchema = schema_of(
    Move,
    "A move of a label. `number` is 0 where it stood there already.",
    kind=Literal["move", "rollback", "remove"],
    at=str,
)
Moves = page_of("Moves", "moves", MoveSchema)


class Standing(Struct):
    """The versions of the labels, and which labels move by approval only."""

    labels: dict[str, int]
    protected: list[str]


ProposalSchema = schema_of(
    Proposal,
    "A change that waits, or that was decided.",
    **dict.fromkeys(("prompt", "region", "events", "units")),
    messages=list[MessageSchema],
    instructions=list[dict[str, Any]],
    created=str,
    decided=str | None,
)
AddedProposal = with_warnings("AddedProposal", ProposalSchema, "A change that waits now.")
Proposals = page_of("Proposals", "proposals", ProposalSchema)


AuditEntrySchema = schema_of(AuditEntry, "One entry of the audit log.", at=str)
Entries = page_of("Entries", "entries", AuditEntrySchema)
Verification = schema_of(AuditVerdict, "Whether the audit log is whole.", whole=bool, seal=str)
