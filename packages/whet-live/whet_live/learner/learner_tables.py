"""Tables of the learner: settings, what people accepted, the snapshot of feedback, what was read in it, updates,
patterns of failures, and leases."""

from __future__ import annotations

from sqlalchemy import CheckConstraint, Column, ForeignKey, Index, Integer, String, Table, Text

from whet_client.records import LONGEST_ID
from whet_live.database import Json, RowNumber, When, metadata
from whet_live.registry.registry_tables import LONGEST_ACTOR, LONGEST_NAME

LONGEST_KEY = 220

learner_settings = Table(
    "learner_settings",
    metadata,
    Column("name", String(LONGEST_NAME), primary_key=True),
    Column("mode", String(10), nullable=False),
    Column("label", String(36), nullable=False),
    Column("region", String(LONGEST_NAME)),
    Column("policy", Json, nullable=False),
    Column("reads", String(20), nullable=False),
    Column("actor", String(LONGEST_ACTOR), nullable=False),
    Column("changed", When, nullable=False),
)
"""The settings by which each prompt learns; a prompt without a row has the default settings."""

learner_decisions = Table(
    "learner_decisions",
    metadata,
    Column("name", String(LONGEST_NAME), primary_key=True),
    Column("key", String(LONGEST_KEY), primary_key=True),
    Column("accepted", Integer, nullable=False),
    Column("actor", String(LONGEST_ACTOR), nullable=False),
    Column("reason", Text, nullable=False),
    Column("at", When, nullable=False),
)
"""A person's decision about a row in quarantine or about a requirement: 1 accepted, 0 dismissed."""

learner_feedback = Table(
    "learner_feedback",
    metadata,
    Column("name", String(LONGEST_NAME), primary_key=True),
    Column("state", Json, nullable=False),
)
"""The feedback that is kept about each prompt, up to the event of `learner_head`. It can be rebuilt from the events at any
time."""

learner_head = Table(
    "learner_head",
    metadata,
    Column("one", Integer, primary_key=True, autoincrement=False),
    Column("seq", RowNumber, nullable=False),
    Column("clock", When, nullable=False),
    Column("rules", String(64), nullable=False),
    CheckConstraint("one = 1", name="one"),
)
"""The newest event that is in the snapshot, the time of it, and the hash of the rules it was read by."""

learner_requirements = Table(
    "learner_requirements",
    metadata,
    Column("name", String(LONGEST_NAME), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("text", Text, nullable=False),
    Column("author", String(LONGEST_ACTOR), nullable=False),
    Column("contradicts", Json, nullable=False),
    Column("origin", Json, nullable=False),
    Column("instruction", String(36), nullable=False),
    Column("state", String(10), nullable=False),
    Column("at", When, nullable=False),
)
"""The requirement that rows of feedback state for a prompt: `open`, or `closed` and without text. `author` is the person who
wrote the text, empty for a model; `origin` are the rows that it was written from, `instruction` is what an update made of it.
The newest one is kept when it is closed, so that no number is used twice."""

learner_readings = Table(
    "learner_readings",
    metadata,
    Column("name", String(LONGEST_NAME), primary_key=True),
    Column("row", String(LONGEST_ID), primary_key=True),
    Column("requirements", Json, nullable=False),
    Column("verdict", String(20), nullable=False),
    Column("confirmed", Json, nullable=False),
    Column("tries", Integer, nullable=False),
)
"""The reading of a row of feedback: ids of requirements and instructions, or the `verdict` why there are none. `confirmed` says
by the mark of a text whether the row alone requires it, `tries` counts answers that could not be used."""

updates = Table(
    "learner_updates",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("name", String(LONGEST_NAME), ForeignKey("prompts.name"), nullable=False),
    Column("base", Integer, nullable=False),
    Column("mode", String(10), nullable=False),
    Column("outcome", String(10), nullable=False),
    Column("reason", Text, nullable=False),
    Column("requirements", Json, nullable=False),
    Column("flags", Json, nullable=False),
    Column("gate", Json),
    Column("proposal", String(36)),
    Column("version", Integer),
    Column("experiment", String(36)),
    Column("plan", Json),
    Column("at", When, nullable=False),
    Index(None, "name", "at"),
    Index(None, "proposal"),
)
"""Updates: `open` from before anything is paid, then `proposed`, `staged`, `refused` by the gate, `empty` when nothing came
of it, `moved` where the label moved at once, or `stale` when the version it was made for no longer stood. `flags` is what was
left out and why. `plan` says which step of upkeep an update is; NULL for one that meets requirements."""

instruction_terms = Table(
    "instruction_terms",
    metadata,
    Column("name", String(LONGEST_NAME), primary_key=True),
    Column("region", String(LONGEST_NAME), primary_key=True),
    Column("instruction", String(36), primary_key=True),
    Column("created", String(40), nullable=False),
    Column("locked", Integer, nullable=False),
    Column("first_day", String(10), nullable=False),
    Column("last_day", String(10), nullable=False),
    Column("review", String(10), nullable=False),
    Column("actor", String(LONGEST_ACTOR), nullable=False),
    Column("reason", Text, nullable=False),
    Column("at", When, nullable=False),
)
"""On which terms an instruction stands, as a person set them: locked or not, its first and last day (`2026-12-01`, or each year
`12-01`), and the day on which somebody reviews it; empty for none. `created` is that of the instruction: another one with the
same id, on another branch of versions, is not meant."""

learner_faults = Table(
    "learner_faults",
    metadata,
    Column("name", String(LONGEST_NAME), primary_key=True),
    Column("message", Text, nullable=False),
    Column("at", When, nullable=False),
)
"""The error of the learner's last step for a prompt, until a step works; the empty name is for the reader itself."""

evaluators = Table(
    "learner_evaluators",
    metadata,
    Column("prompt", String(LONGEST_NAME), primary_key=True),
    Column("evaluator", String(LONGEST_NAME), primary_key=True),
    Column("seq", RowNumber, nullable=False),
    Column("day", String(10), nullable=False),
    Column("answers", Integer, nullable=False),
    Column("low", Integer, nullable=False),
    Column("failed", Integer, nullable=False),
    Column("at", When, nullable=False),
)
"""The work of an evaluator of live answers: the row `seq` of traffic up to which it has chosen, and the number that it
graded on `day` (UTC)."""

searches = Table(
    "learner_searches",
    metadata,
    Column("prompt", String(LONGEST_NAME), primary_key=True),
    Column("day", String(10), primary_key=True),
    Column("state", String(10), nullable=False),
    Column("method", String(LONGEST_NAME), nullable=False),
    Column("base", Integer, nullable=False),
    Column("key", String(64), nullable=False),
    Column("run", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("proposal", String(36)),
    Column("at", When, nullable=False),
    Column("rests_on", Json),
)
"""Searches of a method for a better prompt, one a day (UTC): `open`, `proposed`, `refused` by the sealed test, `failed`,
`stale` or `unchanged`. `key` is the hash of all that a search rests on, `run` the folder of its run, `rests_on` the ids of
the answers and the feedback that its task was made of, NULL for a task folder."""

failure_patterns = Table(
    "learner_patterns",
    metadata,
    Column("prompt", String(LONGEST_NAME), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("name", Text, nullable=False),
    Column("description", Text, nullable=False),
    Column("origin", Json, nullable=False),
    Column("model", Text, nullable=False),
    Column("at", When, nullable=False),
    Column("merged_into", Integer, nullable=False, server_default="0"),
)
"""Patterns of failures of a prompt, as the reader or a person (`model`) named them; `origin` are the critiques that the name was
written from. One that was merged into another one keeps its name alone."""

pattern_rows = Table(
    "learner_pattern_rows",
    metadata,
    Column("row", String(LONGEST_ID), primary_key=True),
    Column("prompt", String(LONGEST_NAME), nullable=False),
    Column("number", Integer, nullable=False),
    Column("verdict", String(20), nullable=False),
    Column("tries", Integer, nullable=False),
    Column("answer", String(LONGEST_ID), nullable=False),
    Column("at", When, nullable=False),
    Index(None, "prompt", "number"),
    Index(None, "answer"),
)
"""The pattern (`number`) that each critique (`row`, about `answer`) was put into; 0 with the `verdict` why it is in none, or
without one while it is to be read again; `tries` counts answers of the reader that could not be used."""

pattern_days = Table(
    "learner_pattern_days",
    metadata,
    Column("prompt", String(LONGEST_NAME), primary_key=True),
    Column("day", String(10), nullable=False),
    Column("calls", Integer, nullable=False),
    Column("newest", Integer, nullable=False),
    Column("at", When, nullable=False),
)
"""The cost of naming the patterns of a prompt: `calls` on the `day` (UTC), and the `newest` number of a pattern, so that no
number is used twice."""

leases = Table(
    "leases",
    metadata,
    Column("name", String(LONGEST_KEY + LONGEST_NAME), primary_key=True),
    Column("holder", String(36), nullable=False),
    Column("token", RowNumber, nullable=False),
    Column("until", When, nullable=False),
)
"""The right to work on something until a time; `token` grows with every holder, so that a holder who lost the right notices."""
