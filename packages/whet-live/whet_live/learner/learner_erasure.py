"""The learner's copies of a user's words, removed when that user's data is deleted.

Feedback is kept and read, and becomes requirements; updates, proposals and versions quote them. Deleted rows leave the
snapshot, the readings, the patterns of failures and the quotes. An instruction stays only where it was written from none of the
deleted rows, or where it stands in the text of a version, which is in use. What nobody has approved yet is withdrawn and
learned anew from the rest.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import Connection, Row, select

from whet.prompt.events import event_to_json, from_json
from whet.prompt.instructions import fold_events
from whet_live.learner import learner_store, search_config
from whet_live.learner.context import AUTHOR
from whet_live.learner.feedback_state import PromptFeedback, rules
from whet_live.learner.learner_tables import learner_feedback, learner_head, searches, updates
from whet_live.learner.pattern_store import erase_pattern_rows
from whet_live.learner.reading import Readings
from whet_live.registry import Address, PromptEdit, Version
from whet_live.registry.proposals import PROBES, apply_edit, close, open_one
from whet_live.registry.registry_store import read_version
from whet_live.registry.registry_tables import proposals, versions
from whet_live.registry.values import APPROVED, OPEN, WITHDRAWN, messages_of

DELETED = "[deleted]"
"""Stands where somebody's words stood."""
WHY = "feedback behind it was deleted"

Json = Mapping[str, Any]
FeedbackByPrompt = Mapping[str, PromptFeedback]
"""The data that is kept about each prompt."""


def read_snapshot(connection: Connection) -> FeedbackByPrompt:
    """The snapshot of the feedback state. One made by other rules cannot be read; it is deleted, and will be made anew."""
    if connection.execute(select(learner_head.c.rules)).scalar() != rules():
        connection.execute(learner_feedback.delete())
        connection.execute(learner_head.delete())
    rows = connection.execute(select(learner_feedback))
    return {row.name: PromptFeedback.from_json(row.state) for row in rows}


def rows_of_user(kept: FeedbackByPrompt, user: str) -> set[str]:
    """Ids of the rows that are kept of a user; the feedback itself may have expired."""
    rows = (row for feedback in kept.values() for row in feedback.all_rows.values())
    return {row.id for row in rows if row.who.partition(":")[2] == user}


def erase_rows(
    connection: Connection, kept: FeedbackByPrompt, ids: Collection[str], names: Collection[str], actor: str
) -> None:
    """Take deleted rows, which are about the prompts `names` or `kept`, out of the snapshot, updates, proposals and versions.

    Call it in the transaction that deletes them, and that holds the audit log from its beginning.
    """
    gone = {*ids} | {
        row.id for feedback in kept.values() for row in feedback.all_rows.values() if row.about in ids
    }
    erase_pattern_rows(connection, gone)
    left = {name: feedback.without(ids) for name, feedback in kept.items()}
    changed = {name for name, feedback in left.items() if feedback is not kept[name]}
    for name in sorted((changed | {*names}) - {""}):
        before = learner_store.read_readings(connection, name)
        learner_store.write_readings(connection, name, before, _without(before, gone))
    for name in changed:
        here = learner_feedback.c.name == name
        if left[name].all_rows:
            connection.execute(learner_feedback.update().where(here).values(state=left[name].as_json()))
        else:
            connection.execute(learner_feedback.delete().where(here))
    for name in sorted((changed | {*names}) - {""}):
        _QuoteErasure(connection, name, frozenset(gone), actor).run()


def _without(readings: Readings, gone: Collection[str]) -> Readings:
    """Readings without deleted rows. A requirement whose text was written from one of them goes, and so does one that rests on
    no other row; the rows that are left of it are read anew."""
    rows = {key: one for key, one in readings.rows.items() if key not in gone}
    kept = {k: one for k, one in readings.requirements.items() if set(gone).isdisjoint(one.origin)}
    lost = readings.requirements.keys() - kept.keys()
    for key, one in list(rows.items()):
        left = tuple(name for name in one.ids if name not in lost)
        if left != one.ids:
            rows[key] = replace(one, ids=left)
    return replace(readings, rows=rows, requirements=kept).prune(rows.keys())


@dataclass
class _QuoteErasure:
    """The work for one prompt. `ids` are the deleted rows.

    `touched` are the deleted rows and all that stand behind a requirement with one of them, `kept` those of them whose
    requirements keep their wording.
    """

    connection: Connection
    name: str
    ids: frozenset[str]
    actor: str
    touched: set[str] = field(default_factory=set)
    kept: set[str] = field(default_factory=set)

    def run(self) -> None:
        """Change whatever quotes the deleted rows."""
        taken, filed, made = (self._rows(table) for table in (updates, proposals, versions))
        known = [row.requirements for row in taken]
        known += [
            (row.evidence or {}).get("requirements")
            for row in (*filed, *made)
            if isinstance(row.evidence, Mapping)
        ]
        self._sort([item for requirements in known for item in _items(requirements)])
        for row in made:
            self._version(row)
        for row in filed:
            self._proposal(row)
        for row in taken:
            self._update(row)
        self._end_searches()

    def _rows(self, table: Any) -> Sequence[Row[Any]]:
        return self.connection.execute(select(table).where(table.c.name == self.name)).all()

    def _sort(self, requirements: Iterable[Json]) -> None:
        """Sort out the rows that share a requirement with a deleted row, and those of them that keep their words."""
        lost: set[str] = set()
        self.touched |= self.ids
        for requirement in requirements:
            if not self.ids.isdisjoint(_behind(requirement)):
                left = self._requirement(requirement)
                self.touched.update(_keys(requirement))
                (lost if left["text"] == DELETED else self.kept).update(_keys(left))
        self.kept -= lost

    # The three kinds of rows

    def _version(self, row: Row[Any]) -> None:
        ledger = {region: self._events([], events, None) for region, events in row.ledger.items()}
        evidence = self._evidence(row.evidence)
        if (ledger, evidence) != (row.ledger, row.evidence):
            here = (versions.c.name == self.name, versions.c.version == row.version)
            changes = {"ledger": ledger, "evidence": evidence}
            self.connection.execute(versions.update().where(*here).values(changes))

    def _proposal(self, row: Row[Any]) -> None:
        changes = {"evidence": self._evidence(row.evidence)}
        if row.events:
            base = read_version(self.connection, Address(self.name, version=row.base))
            changes |= self._change(row, base)
        if all(value == row._mapping[key] for key, value in changes.items()):
            return
        if row.author == AUTHOR and row.state == OPEN and self._rests(row.evidence):
            close(self.connection, open_one(self.connection, row.id), WITHDRAWN, self.actor, {"reason": WHY})
            mine = (updates.c.proposal == row.id, updates.c.outcome == learner_store.PROPOSED)
            stale = {"outcome": learner_store.STALE, "reason": WHY}
            self.connection.execute(updates.update().where(*mine).values(stale))
        self.connection.execute(proposals.update().where(proposals.c.id == row.id).values(changes))

    def _change(self, row: Row[Any], base: Version) -> dict[str, object]:
        """The events of a proposal and the text that they lead to."""
        approved: Collection[str] | None = ()
        if row.state == APPROVED:
            approved = row.kept
        elif row.state == OPEN and row.author != AUTHOR:
            approved = None  # a person wrote it, or put their name to it
        before = [event_to_json(event) for event in base.ledgers.get(row.region, ())]
        events = self._events(before, row.events, approved)
        if events == row.events:
            return {}
        change = PromptEdit(tuple(from_json(event) for event in events), row.region)
        return {"events": events, "messages": messages_of(apply_edit(base, change))}

    def _update(self, row: Row[Any]) -> None:
        requirements, flags = self._requirements(row.requirements), self._flags(row.flags, row.requirements)
        if (requirements, flags) == (row.requirements, row.flags):
            return
        changes: dict[str, object] = {"requirements": requirements, "flags": flags}
        if row.outcome == learner_store.OPEN and self._rests({"requirements": row.requirements}):
            changes |= {"outcome": learner_store.STALE, "reason": WHY}
        self.connection.execute(updates.update().where(updates.c.id == row.id).values(changes))

    def _end_searches(self) -> None:
        """End searches whose task was made of deleted rows. Their proposals are withdrawn, and lose their text unless somebody
        has approved them."""
        s, states = searches.c, (search_config.OPEN, search_config.PROPOSED)
        query = select(searches).where(s.prompt == self.name, s.state.in_(states))
        for row in self.connection.execute(query).all():
            if self.ids.isdisjoint(row.rests_on or ()):
                continue
            ended = {"state": search_config.STALE, "reason": WHY, "rests_on": []}
            here = (s.prompt == self.name, s.day == row.day)
            self.connection.execute(searches.update().where(*here).values(ended))
            if row.proposal is not None:
                self._take_back(row.proposal)

    def _take_back(self, key: str) -> None:
        state, base = self.connection.execute(
            select(proposals.c.state, proposals.c.base).where(proposals.c.id == key)
        ).one()
        if state == OPEN:
            close(self.connection, open_one(self.connection, key), WITHDRAWN, self.actor, {"reason": WHY})
        if state != APPROVED:
            before = read_version(self.connection, Address(self.name, version=base)).prompt
            text = {"messages": messages_of(before)}
            self.connection.execute(proposals.update().where(proposals.c.id == key).values(text))

    # What they quote

    def _rests(self, evidence: object) -> bool:
        """Whether requirements rest on deleted rows."""
        requirements = _items(evidence.get("requirements")) if isinstance(evidence, Mapping) else []
        return any(not self.ids.isdisjoint(_behind(requirement)) for requirement in requirements)

    def _evidence(self, evidence: object) -> Any:
        """The evidence of the learner without what rests on deleted rows; any other stays as it is."""
        if not isinstance(evidence, Mapping):
            return evidence
        kept = dict(evidence)
        if isinstance(evidence.get("requirements"), list):
            kept["requirements"] = self._requirements(evidence["requirements"])
        if isinstance(evidence.get("left_out"), list):
            kept["left_out"] = self._flags(evidence["left_out"], evidence.get("requirements"))
        probes = evidence.get(PROBES)
        if isinstance(probes, Mapping) and isinstance(probes.get("rows"), list):
            rows = [
                row
                for row in probes["rows"]
                if not (isinstance(row, Mapping) and row.get("about") in self.ids)
            ]
            kept[PROBES] = {**probes, "rows": rows}
        return kept

    def _requirements(self, requirements: Sequence[object]) -> list[Any]:
        return [
            self._requirement(requirement) if isinstance(requirement, Mapping) else requirement
            for requirement in requirements
        ]

    def _requirement(self, requirement: Json) -> Json:
        """A requirement without words that were written from deleted rows."""
        updated = dict(requirement)
        if isinstance(requirement.get("opposing"), Mapping) and isinstance(
            requirement.get("against"), Mapping
        ):
            updated |= self._redact_contradictions(requirement["against"], requirement["opposing"])
        if self.ids.isdisjoint(_behind(requirement)):
            return updated
        rows = [row for row in _keys(requirement) if row not in self.ids]
        origin = requirement.get("origin", rows)
        stays = bool(rows) and self.ids.isdisjoint(_keys({"rows": origin}))
        text = str(requirement.get("text", "")) if stays else DELETED
        return {**updated, "text": text, "texts": [], "rows": rows, "origin": origin if stays else []}

    def _redact_contradictions(self, against: Json, opposing: Json) -> dict[str, Any]:
        """The contradictions of a requirement, without words that only deleted rows have."""
        counts: dict[str, float] = {}
        behind: dict[str, list[str]] = {}
        for text, count in against.items():
            keys = _keys({"rows": opposing.get(text)})
            rows = [row for row in keys if row not in self.ids]
            words = text if rows == keys else DELETED
            counts[words] = counts.get(words, 0.0) + count
            behind[words] = [*behind.get(words, []), *rows]
        return {"against": counts, "opposing": behind}

    def _flags(self, flags: Sequence[object], requirements: object) -> list[object]:
        """The omissions with their reasons, without words if they, or anything of the same update, rest on deleted rows."""
        all_of_them = self._rests({"requirements": requirements})
        cleaned = []
        for flag in flags:
            rows = _keys(flag) if isinstance(flag, Mapping) else []
            left = [row for row in rows if row not in self.ids]
            if isinstance(flag, Mapping) and (all_of_them or left != rows):
                flag = {**flag, "rows": left, "text": DELETED, "reasons": [DELETED]}
            cleaned.append(flag)
        return cleaned

    def _events(
        self, before: Sequence[Json], new: Sequence[Json], approved: Collection[str] | None
    ) -> list[Json]:
        """Events of a ledger without deleted evidence and the critiques beside it. A text stays where it is in use (of the
        instructions `approved`, None for all), where the fence was found to hold it, or where its requirement keeps it."""
        whole = [*before, *new]
        if all(self.touched.isdisjoint(event.get("evidence") or ()) for event in whole):
            return list(new)
        shown = {
            instruction.id: instruction.text
            for instruction in fold_events(from_json(event) for event in whole).active
        }
        held = [note for event in whole if event["kind"] == "read" for note in event["notes"]]
        cleaned, about, lost = list[Json](), set[str](), set[str]()
        for n, event in enumerate(whole):
            key, rows = event.get("id", ""), event.get("evidence") or []
            merged = event["kind"] == "merge" and not about.isdisjoint((key, *event["others"]))
            if merged or not self.touched.isdisjoint(rows):
                left = [row for row in rows if row not in self.ids]
                good = n < len(before) or approved is None or key in approved
                used = good and shown.get(key) == event["text"]
                ours = bool(left) and self.kept.issuperset(left)
                about.add(key)
                if not (used or ours or [True, event["text"]] in held):
                    lost.add(key)
                    event = {**event, "text": DELETED}
                event = event if merged else {**event, "evidence": left, "critiques": []}
            elif event["kind"] == "resolve" and not lost.isdisjoint((event["keep"], event["drop"])):
                event = {**event, "reason": DELETED}
            cleaned.append(event)
        return cleaned[len(before) :]


def _items(value: object) -> list[Json]:
    """The objects of a list; evidence may be anything."""
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def _keys(value: Json) -> list[str]:
    """The rows that something rests on."""
    rows = value.get("rows")
    return rows if isinstance(rows, list) and all(isinstance(row, str) for row in rows) else []


def _behind(requirement: Json) -> list[str]:
    """The rows that a requirement rests on, and those that its text was written from."""
    return [*_keys(requirement), *_keys({"rows": requirement.get("origin")})]
