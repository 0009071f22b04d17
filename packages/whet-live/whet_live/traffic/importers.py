"""Files of other tools and plain tables, read as inferences and feedback, and stored.

The columns of a row show which tool wrote it, row by row. Ids follow the rows, so that the same file may be imported
twice. Text in a row is data from strangers: it is bounded, and nothing in it is ever executed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import NamedTuple

import orjson
from sqlalchemy import select

from whet._util.verdicts import Verdicts
from whet.errors import UsageError
from whet.feedback.rows import (
    LONGEST,
    FeedbackRow,
    SaysNothing,
    further_verdicts,
    order_ratings,
    read_row,
    snake_case,
    table_rows,
)
from whet.instructions.guard import visible
from whet.task.files import kind_of, read_text
from whet.task.rows import TABLES, SourceRow
from whet.types import content_hash
from whet_client.records import (
    LONGEST_NAME,
    LONGEST_TEXT,
    SERVICE,
    Feedback,
    Inference,
    checked_feedback,
    checked_inference,
    prompt_name_fault,
    read_moment,
)
from whet_client.storable import show_value
from whet_live.traffic import traffic_tables as tables
from whet_live.traffic.adapters import SOURCE_OF, convert_content, fit_id, microseconds_of, target_of
from whet_live.traffic.columns import other_columns, read_amounts, unusable_cells, version_of_cell
from whet_live.traffic.exports import (
    UNNAMED,
    ExportedRow,
    as_inputs,
    as_output,
    braintrust,
    id_of,
    langfuse,
    langfuse_trace,
    nested_scores,
    openai_item,
    phoenix_span,
    row_id_of,
    run_id_of,
    short,
    with_observation_columns,
)
from whet_live.traffic.long_numbers import clean_inference, read_json
from whet_live.traffic.rows import chunks
from whet_live.traffic.scales import RawFeedback, parse_scale, settle_scales
from whet_live.traffic.traffic_store import Traffic
from whet_live.traffic.write import Clash, IdConflict

_READERS = (openai_item, phoenix_span, langfuse, langfuse_trace, braintrust)
_TIMES = frozenset(("time", "timestamp", "created_at", "start_time", "end_time"))
_BEGINS = ("time", "timestamp", "created_at", "created", "start_time")
_NO_TIME = ("", "none", "null", "nan", "nat")
_OWN_IDS = ("import-", "imported-")
"""The prefixes of ids that are made here, by the content of the row."""
_EMPTY = "whet: nothing was said"


@dataclass(frozen=True, slots=True)
class ParsedFiles:
    """The content of files: inferences, feedback, and rows that were unusable or repeated another row, as (file:line,
    reason). `notes` say how tables were read."""

    inferences: list[Inference]
    feedback: list[Feedback]
    skipped: list[tuple[str, str]]
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ImportOutcome:
    """The result of an import: new rows, rows that were there already, ids that are taken by other content. `waiting`: what
    feedback is about that is not stored, once for each such row."""

    accepted: int
    duplicates: int
    erased: int
    conflicts: list[Clash]
    waiting: list[str]


EarlierIds = Mapping[str, tuple[str, int] | None]
"""The ids of answers that were imported when an id said nothing of the prompt: prompt and version of each, None where the answer
was erased."""


class _Naming(NamedTuple):
    """Prompt and version of rows that name none, and the ids that stay as they are."""

    prompt: str | None
    version: int
    earlier: EarlierIds
    verdicts: Verdicts


def earlier_ids(traffic: Traffic) -> EarlierIds:
    """Such ids in a database. The same file again brings neither a second answer nor one that was erased."""
    mine, gone = tables.inferences.c, tables.erased.c.id
    with traffic.database.read() as connection:
        stored = connection.execute(
            select(mine.id, mine.prompt, mine.version).where(mine.id.startswith("import-"))
        )
        earlier: dict[str, tuple[str, int] | None] = {id: (prompt, version) for id, prompt, version in stored}
        earlier.update(
            dict.fromkeys(connection.execute(select(gone).where(gone.startswith("import-"))).scalars())
        )
    return earlier


def read_files(
    paths: Iterable[str | Path],
    prompt: str | None = None,
    version: int = 0,
    earlier: EarlierIds | None = None,
    scales: Mapping[str, str] | None = None,
    good: Sequence[str] = (),
    bad: Sequence[str] = (),
) -> ParsedFiles:
    """Rows of .jsonl, .json and .csv files. `prompt` and `version` are for rows that name no prompt, `earlier` are the
    `earlier_ids` of the database that the rows are for, `scales` say what the numbers of a column or metric are:
    `{"rating": "1..10"}`, `thumbs`, `stars` or `score`. Of thumbs and stars without one, all numbers decide it, and `notes` say
    what was read. `good` and `bad` order values of ratings that are words, as in `whet.learn`.

    A .json file may also be a page as the interfaces of other tools answer it, with the rows under `data`, or one trace of
    Langfuse. Raises UsageError with file and line for a file that cannot be read, for a time that is none, when a row with an
    answer names no prompt and none is given, when the numbers of a column leave their scale open, when nothing orders the two
    words of one, and when no row of any
    file can be used. A row that says nothing is skipped with its reason.
    """
    paths = list(paths)
    stated = {snake_case(name): parse_scale(text, f"--scale {name}") for name, text in (scales or {}).items()}
    notes: list[str] = []
    rows = [row for path in paths for row in _rows(Path(path), notes)]
    naming = _Naming(prompt, version, earlier or {}, _order(rows, good, bad))
    read = _ReadRows(notes=notes)
    for row in rows:
        read.add(row, naming)
    columns = next(
        (names for row in rows if (names := ", ".join(f'"{key}"' for key in [*row.value][:20]))), ""
    )
    if read.skipped and not read.inferences and not read.feedback:
        where, reason = read.skipped[0]
        raise UsageError(
            f"{where}: {reason}, and no other row can be used either. The first has {columns[:500]}."
        )
    feedback = read.finish()
    if read.inferences and not feedback and all(kind_of(Path(path)) in TABLES for path in paths):
        notes.append(f"No column says anything about the answers. The first row has {columns[:500]}.")
    settled, more = settle_scales(feedback, stated)
    return ParsedFiles(list(read.inferences.values()), settled, read.skipped, notes + more)


@dataclass
class _ReadRows:
    """The content of some files, taken in row by row. Places are file:line."""

    notes: list[str]
    inferences: dict[str, Inference] = field(default_factory=dict)
    """Answers by their ids."""
    feedback: list[tuple[str, RawFeedback]] = field(default_factory=list)
    """Feedback, each with its place."""
    skipped: list[tuple[str, str]] = field(default_factory=list)
    """Places of rows that are not stored, each with the reason."""
    backwards: list[tuple[str, str]] = field(default_factory=list)
    """Places and ids of answers that end before they start."""
    unusable: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    """By the name of a column: places and values that are no number."""
    known_as: dict[str, set[tuple[str, str]]] = field(default_factory=dict)
    """By another id of an answer: what feedback with this id is about, as (kind, id)."""
    repeated: list[str] = field(default_factory=list)
    """Places of rows with an answer that an earlier row holds."""

    def add(self, row: SourceRow, naming: _Naming) -> None:
        """Take in a row, or note why it is skipped. Raises UsageError for a row that must be corrected."""
        where = row.where
        try:
            exported = _read(row.value, where, naming)
            for id, known in exported.known_as.items():
                self.known_as.setdefault(id, set()).add(known)
            if not exported.inferences and not exported.feedback:
                raise _Unusable("it is neither an answer of a model nor feedback")
            named = [_name_inference(inference, naming, where) for inference in exported.inferences]
            kept = [checked_inference(clean_inference(inference), where) for inference in named]
            for raw in exported.feedback:
                checked_feedback(raw.feedback, where)
        except _Unusable as error:
            self.skipped.append((where, str(error)))
            return
        for inference in kept:
            earlier = self.inferences.get(inference.id)
            if earlier is not None and inference.id.startswith(_OWN_IDS) and not exported.feedback:
                self.repeated.append(where)
            self.inferences[inference.id] = inference if earlier is None else _merge_rows(earlier, inference)
        self.feedback += [(where, raw) for raw in exported.feedback]
        self.backwards += [(where, id) for id in exported.backwards]
        for name, value in exported.unusable:
            self.unusable.setdefault(name, []).append((where, value))

    def finish(self) -> list[tuple[str, RawFeedback]]:
        """The feedback that counts, about the answers that it means, once all rows are taken in. Fills `skipped` and `notes`."""
        if self.repeated:
            reason = f"an earlier row holds the same answer; {len(self.repeated)} such rows are stored once"
            self._skip(self.repeated, f"{reason}. Rows with a user or an inference_id are told apart")
        feedback, moved = _find_targets(self.feedback, self.inferences, self.known_as)
        feedback, again, replaced = _apart(feedback)
        if again:
            reason = f"an earlier row said the same; of {len(again)} such rows nothing is stored"
            self._skip(again, f"{reason}. Rows with a user or an id of their own are told apart")
        if replaced:
            reason = "a later row with the same id changes it, and that one counts"
            self._skip(replaced, f"{reason}; of {len(replaced)} such rows nothing is stored")
        if moved:
            self.notes.append(
                f"{moved[0]}: what is said about a span that is no answer of a model counts for the answer in its trace, as "
                f"feedback about the trace does; {len(moved)} row(s) of feedback."
            )
        if self.backwards:
            where, id = self.backwards[0]
            count = len(self.backwards)
            self.notes.append(
                f'{where}: "{visible(id)}" ends before it starts, so its latency is unknown; '
                f"there {'is 1 such answer' if count == 1 else f'are {count} such answers'}."
            )
        self.notes += [_note_unusable(name, cells) for name, cells in self.unusable.items()]
        return feedback

    def _skip(self, places: Sequence[str], reason: str) -> None:
        """Note several rows under the first of their places."""
        self.skipped.append((places[0], reason))


def _find_targets(
    feedback: Sequence[tuple[str, RawFeedback]],
    inferences: Mapping[str, Inference],
    known_as: Mapping[str, set[tuple[str, str]]],
) -> tuple[list[tuple[str, RawFeedback]], list[str]]:
    """Feedback with its place, about the answers that it names by other ids; and the places of what is about a trace now. An id
    by which several answers are known names none."""
    settled, moved = [], []
    for where, raw in feedback:
        one = raw.feedback
        targets = known_as.get(one.target, ())
        if one.target_kind == "inference" and one.target not in inferences and len(targets) == 1:
            ((kind, target),) = targets
            raw = replace(raw, feedback=replace(one, target_kind=kind, target=target))
            moved += [where] if kind == "episode" else []
        settled.append((where, raw))
    return settled, moved


def _note_unusable(name: str, cells: Sequence[tuple[str, str]]) -> str:
    where, value = cells[0]
    there = "is 1 such value" if len(cells) == 1 else f"are {len(cells)} such values"
    return (
        f'{where}: "{visible(name[:60])}" is {value}, which is no number that can be used; there {there}. The answers are stored '
        "without it, and the metadata keep it. Write plain numbers: dollars (0.002), seconds (0.8), whole tokens (12), whole "
        "versions (3)."
    )


def _rows(path: Path, notes: list[str]) -> list[SourceRow]:
    """The rows of a file, or of the page that it holds."""
    if kind_of(path) == ".json":
        text = read_text(path, "").removeprefix("\ufeff").lstrip()
        try:
            page = read_json(text) if text.startswith("{") else None
        except orjson.JSONDecodeError as error:
            raise UsageError(f"{path}:1: not valid JSON: {error}.") from None
        data = (page.get("data") or page.get("events")) if isinstance(page, dict) else None
        if isinstance(data, list) and data and all(isinstance(row, dict) for row in data):
            return [SourceRow(row, f"{path}:1: data[{number}]") for number, row in enumerate(data)]
        if isinstance(page, dict) and isinstance(page.get("observations"), list):
            return [SourceRow(page, f"{path}:1")]
    rows = table_rows(path, notes)
    if kind_of(path) not in TABLES:
        return rows
    values = with_observation_columns([row.value for row in rows])
    return [replace(row, value=dict(value)) for row, value in zip(rows, values, strict=True)]


class _Unusable(Exception):
    """A row that holds nothing."""


def _read(row: Mapping[str, object], where: str, naming: _Naming) -> ExportedRow:
    for key, value in row.items():
        if snake_case(key) in _TIMES and str(value).casefold() not in _NO_TIME and read_moment(value) is None:
            raise UsageError(
                f'{where}: "{key}" is {visible(str(value))[:40]!r}, which is no time. Write 2026-01-31T09:00:00Z, or seconds '
                "since 1970."
            )
    for reader in _READERS:
        exported = reader(row)
        if exported is not None:
            return _read_others(exported, where, naming) if exported.others else exported
    return _plain_row(row, where, naming)


def _read_others(exported: ExportedRow, where: str, naming: _Naming) -> ExportedRow:
    """An answer with what further columns of its row say about it, such as a rating; the others are its metadata."""
    (inference,) = exported.inferences
    content = _read_content(exported.others, where, naming)
    rows = _verdicts(exported.others, content, ("inference", inference.id), where, naming)
    metadata = {**other_columns(exported.others, content.metadata), **inference.metadata}
    beside = []
    for row in rows:
        user = row.feedback.user or (inference.user if row.feedback.source == "user" else None)
        time = row.feedback.time if content.time else inference.time
        beside.append(replace(row, feedback=replace(row.feedback, user=user, time=time)))
    return replace(
        exported,
        inferences=[replace(inference, metadata=metadata)],
        feedback=[*exported.feedback, *beside],
    )


def _order(rows: Sequence[SourceRow], good: Sequence[str], bad: Sequence[str]) -> Verdicts:
    """The meaning of the words in the ratings of plain tables."""
    contents = []
    for row in rows:
        with contextlib.suppress(UsageError):
            exported = next(
                (one for one in (reader(row.value) for reader in _READERS) if one is not None), None
            )
            contents.append(read_row(row.value if exported is None else exported.others, row.where))
    return order_ratings(contents, good, bad)


def _name_inference(one: Inference, naming: _Naming, where: str) -> Inference:
    fault = "" if one.prompt == UNNAMED or one.prompt.startswith(SERVICE) else prompt_name_fault(one.prompt)
    if one.prompt != UNNAMED and not fault:
        return one
    if naming.prompt is None:
        nameless = (
            f"{show_value(one.prompt)} cannot be the name of a prompt: {fault}"
            if fault
            else "the row names no prompt."
        )
        raise UsageError(f"{where}: {nameless} Say which one answered: --prompt NAME.")
    before = {"prompt_name": one.prompt[:LONGEST_NAME]} if fault else {}
    return replace(one, prompt=naming.prompt, version=naming.version, metadata={**one.metadata, **before})


def _plain_row(row: Mapping[str, object], where: str, naming: _Naming) -> ExportedRow:
    """A row of a plain table, or of feedback in another tool's words."""
    target = target_of(row)
    content = _read_content(row, where, naming)
    nothing = content.comment == _EMPTY
    if nothing and content.input is None and content.output is None:
        raise _Unusable("it holds no answer and says nothing about one")
    inference = None
    if content.output is not None or target is None:
        if content.input is None and content.output is None:
            raise _Unusable("it does not say which answer it is about")
        inference = _name_inference(_answer(row, content, target), naming, where)
        inference = replace(inference, id=inference.id or _row_id(row, inference, content, naming.earlier))
        inference = _with_asker(inference)
        target = target if target is not None and target[0] != "inference" else ("inference", inference.id)
    assert target is not None
    parts = _verdicts(row, content, target, where, naming)
    if inference is None:
        left = other_columns(row, content.metadata)
        parts = [
            replace(part, feedback=replace(part.feedback, metadata={**left, **part.feedback.metadata}))
            for part in parts
        ]
        return ExportedRow(feedback=parts)
    parts += nested_scores(row, ("inference", inference.id), inference.time)
    own = id_of(row_id_of(row), "id", [])
    known_as = {own: ("inference", inference.id)} if own else {}
    return ExportedRow([inference], parts, unusable=unusable_cells(row), known_as=known_as)


def _with_asker(inference: Inference) -> Inference:
    """The answer with the user and the session that its metadata name, where no column does."""
    cut = list(inference.metadata.get("cut", []))
    user, session = (
        getattr(inference, name) or id_of(inference.metadata.get(f"{name}_id"), name, cut)
        for name in ("user", "session")
    )
    metadata = {**inference.metadata, "cut": cut} if cut else inference.metadata
    return replace(inference, user=user, session=session, metadata=metadata)


def _read_content(row: Mapping[str, object], where: str, naming: _Naming) -> FeedbackRow:
    """The feedback of a row; if it says nothing about an answer, the comment is _EMPTY."""
    try:
        return read_row(row, where, verdicts=naming.verdicts)
    except SaysNothing:
        return read_row({**row, "comment": _EMPTY}, where, verdicts=naming.verdicts)


def _verdicts(
    row: Mapping[str, object], content: FeedbackRow, target: tuple[str, str], where: str, naming: _Naming
) -> list[RawFeedback]:
    """The feedback of a row, each column of verdicts by itself."""
    own = f"{content.key}:{content_hash(target)[:6]}"
    parts = [] if content.comment == _EMPTY else convert_content(content, row, target, own)
    for further in further_verdicts(row):
        verdict = read_row(further, where, verdicts=naming.verdicts)
        parts += convert_content(verdict, further, target, f"{own}:{verdict.column}")
    return parts


def _answer(row: Mapping[str, object], content: FeedbackRow, target: tuple[str, str] | None) -> Inference:
    """The answer that a row holds. Its user is the one who rates it, unless an annotator, a model or a program does."""
    inputs, output = content.input, content.output
    by_user = SOURCE_OF.get(snake_case(content.source or ""), "user") == "user"
    named = {snake_case(key): value for key, value in row.items()}
    own = target[1] if target is not None and target[0] == "inference" else run_id_of(row)
    time = microseconds_of(next((named[name] for name in _BEGINS if named.get(name)), None))
    metadata = other_columns(row, content.metadata)
    cut = _cut(inputs, output) + metadata.pop("cut", [])
    inference = Inference(
        prompt=short(named.get("prompt_name"), LONGEST_TEXT) or UNNAMED,
        version=version_of_cell(named.get("prompt_version")) or 0,
        id=fit_id(own, "id", cut),
        inputs=as_inputs(inputs),
        output=as_output(output),
        model=id_of(named.get("model"), "model", cut),
        session=id_of(named.get("session_id") or named.get("session"), "session", cut),
        episode=fit_id(target[1], "episode", cut) if target is not None and target[0] == "episode" else None,
        response=fit_id(target[1], "response", cut)
        if target is not None and target[0] == "response"
        else None,
        user=id_of(named.get("user_id") or (named.get("user") if by_user else None), "user", cut),
        time=time,
        **read_amounts(named),
    )
    return replace(inference, metadata=metadata | ({"cut": cut} if cut else {}))


def _cut(inputs: str | None, output: str | None) -> list[str]:
    """The texts that were too long to be kept whole."""
    texts = {"inputs": inputs, "output": output}
    return [name for name, text in texts.items() if text is not None and len(text) == LONGEST]


def _row_id(row: Mapping[str, object], one: Inference, content: FeedbackRow, earlier: EarlierIds) -> str:
    """An id for an answer whose row gives none: of its texts, of who asked, and of what it belongs to.

    Two versions of a prompt may give one answer.
    """
    named = {snake_case(key): value for key, value in row.items()}
    whole = [dict(row)] if _cut(content.input, content.output) else [content.input, content.output]
    before = f"import-{content_hash([*whole, named.get('user_id'), named.get('session_id')])[:32]}"
    alone = one.episode is None and one.response is None
    if alone and before in earlier and earlier[before] in (None, (one.prompt, one.version)):
        return before
    parts = [*whole, one.user, one.session]
    return f"imported-{content_hash([*parts, one.prompt, one.version, one.episode, one.response])[:32]}"


def _merge_rows(one: Inference, other: Inference) -> Inference:
    """Two rows about one answer joined; where they differ, the first one counts."""
    empty = [f.name for f in fields(one) if getattr(one, f.name) in (None, "", {}, 0)]
    both = {"metadata": {**other.metadata, **one.metadata}}
    return replace(one, **{name: getattr(other, name) for name in empty} | both)


def _apart(
    rows: Sequence[tuple[str, RawFeedback]],
) -> tuple[list[tuple[str, RawFeedback]], list[str], list[str]]:
    """Feedback with its place: equal feedback once, of a changed one the latest; other feedback with the same id under an id of
    its own. And the places of what was said again, and of what was changed later."""
    kept: dict[str, tuple[str, RawFeedback]] = {}
    again, replaced = [], []
    for where, raw in rows:
        one = raw.feedback
        place, other = kept.get(one.id, (where, raw))
        again_there = where != place or one.kind != "comment"
        if again_there and _subject(other.feedback) == _subject(one) and not _same(other, raw):
            late = raw.changed >= other.changed
            replaced.append(place if late else where)
            kept[one.id] = (where, raw) if late else (place, other)
            continue
        if not _same(other, raw):
            mark = content_hash([one.kind, one.value, one.text, one.label, one.target])[:8]
            one = replace(one, id=fit_id(f"{one.id}#{mark}", "id", []))
        if one.id in kept:
            again.append(where)
        kept.setdefault(one.id, (where, replace(raw, feedback=one)))
    return list(kept.values()), list(dict.fromkeys(again)), list(dict.fromkeys(replaced))


def _subject(one: Feedback) -> tuple[str | None, ...]:
    """The subject of feedback, its name and its author: the parts that an update of it does not change."""
    return one.target_kind, one.target, one.name, one.source, one.user


def _same(one: RawFeedback, other: RawFeedback) -> bool:
    return replace(one.feedback, time=other.feedback.time) == other.feedback


def store_imported(traffic: Traffic, imported: ParsedFiles) -> ImportOutcome:
    """Store the rows that were read, 500 at a time; count those that are stored already, and list contradictions."""
    accepted = duplicates = erased = 0
    conflicts: list[Clash] = []
    parts: list[tuple[list[Inference], list[Feedback]]] = [(part, []) for part in chunks(imported.inferences)]
    parts += [([], part) for part in chunks(imported.feedback)]
    for inferences, feedback in parts:
        try:
            receipt = traffic.add(inferences, feedback)
        except IdConflict as conflict:
            conflicts += conflict.clashes
            taken = {clash.id for clash in conflict.clashes}
            rest = (
                [inference for inference in inferences if inference.id not in taken],
                [row for row in feedback if row.id not in taken],
            )
            receipt = traffic.add(*rest)
        accepted, duplicates = accepted + receipt.accepted, duplicates + receipt.duplicates
        erased += receipt.erased
    waiting = _find_waiting(traffic, imported.feedback)
    return ImportOutcome(accepted, duplicates, erased, conflicts, waiting)


def _find_waiting(traffic: Traffic, rows: Sequence[Feedback]) -> list[str]:
    """The subjects of such rows that are not stored."""
    stored, waiting = tables.feedback.c, list[str]()
    with traffic.database.read() as connection:
        for part in chunks(row.id for row in rows):
            query = select(stored.target).where(stored.id.in_(part), stored.about.is_(None))
            waiting += connection.execute(query.order_by(stored.seq)).scalars()
    return waiting
