"""The data of a task: its rows are read, made into examples and divided into splits, or refused with their place.

Splits go by a seeded hash of the inputs, so that neither order nor file matters.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whet.errors import UsageError, quantity
from whet.stats import clusters_of
from whet.task.examples import PlacedExample, Rules, check_slots, input_hash, make_examples
from whet.task.marked_splits import (
    NO_SPLIT,
    describe_splits,
    divide_rows,
    find_column,
    read_mark,
    say_remedy,
)
from whet.task.rows import SourceRow, read_rows
from whet.task.sources import is_source, source_rows, split_nodes
from whet.task.spec import SPLITS, Fractions
from whet.task.table import Table
from whet.task.tree import Node
from whet.types import Example, content_hash
from whet_client.prompt.document import MASK
from whet_client.prompt.slots import canonical_name

DECLINE = f"splits: {{column: {NO_SPLIT}}}"
"""The user's remedy where a column called split marks no splits."""


@dataclass(frozen=True)
class DataReader:
    """Reads the data of a task and deals it into splits; `needs` are the splits that the command cannot do without."""

    folder: Path
    rules: Rules
    fractions: Fractions
    needs: Sequence[str] = SPLITS

    def load(self, node: Node) -> tuple[dict[str, tuple[Example, ...]], list[str]]:
        """Examples by split, and warnings."""
        if (splits := split_nodes(node)) is not None:
            return self._by_file(node, splits)
        rows, notes = self._rows(node)
        column = self._column(rows)
        if column is not None:
            reason = self._why_anew(rows, column)
            if not reason:
                return self._by_column(node, rows, column, notes)
            notes = [*notes, reason]
            rows = [drop_column(row, column) for row in rows]
        examples, warnings = make_examples(rows, self.rules, {})
        return self.deal((examples, [*notes, *warnings]), node)

    def _why_anew(self, rows: Sequence[SourceRow], column: str) -> str:
        """Why rows are divided anew although a column that the task does not name marks their splits; empty where it counts."""
        if self.fractions.column is not None:
            return ""
        marks = Counter(read_mark(columns_of_row(row).get(column)) for row in rows)
        if None in marks:
            return ""
        missing = self._missing([str(split) for split in marks])
        if not missing and not self.fractions.chosen:
            return ""
        because = f"it marks no row as {missing[0]}" if missing else "`splits` says how"
        counts = ", ".join(f"{marks[split]} {split}" for split in SPLITS if split in marks)
        return (
            f'the column "{column}" marks splits ({counts}), and the rows are divided anew, because {because}; to go by '
            f"the column: splits: {{column: {column}}}"
        )

    def _column(self, rows: Sequence[SourceRow]) -> str | None:
        """The column that marks the split of each row; None where there is none, where it is declined, and where it fills a slot
        of the prompt."""
        return find_marks(rows, self.rules.slots, self.fractions.column)

    def _by_column(
        self, node: Node, rows: Sequence[SourceRow], column: str, notes: Sequence[str]
    ) -> tuple[dict[str, tuple[Example, ...]], list[str]]:
        """Rows of one file in the splits that their column names. Raises UsageError."""
        places = [row.where for row in rows]
        try:
            numbers = divide_rows([columns_of_row(row) for row in rows], places, column, DECLINE)
        except UsageError as error:
            raise UsageError(_placed_message(node, str(error), places)) from None
        missing = next((split for split in self._missing(numbers)), None)
        if missing is not None:
            node.refuse(f'the column "{column}" marks no row as {missing}. {say_remedy(DECLINE)}')
        if len(numbers) == len(SPLITS) and self.fractions.chosen:
            node.refuse(
                f'the column "{column}" marks the rows of all three splits, so the shares in `splits` have no use. Remove them, '
                f"or let whet divide the rows: column: {NO_SPLIT} beside the shares."
            )
        placed, warnings, ids = dict[str, list[PlacedExample]](), list(notes), dict[str, tuple[str, bool]]()
        if self.fractions.column is None:
            warnings.append(describe_splits(column, numbers, DECLINE))
        for split, at in numbers.items():
            placed[split], more = make_examples([drop_column(rows[n], column) for n in at], self.rules, ids)
            warnings += more
        warnings += _leave_copies_out(placed)
        emptied = [split for split, examples in placed.items() if not examples]
        if lost := [split for split in emptied if split in self.needs]:
            node.refuse(
                f"each row that is marked as {lost[0]} stands in a later split too and counts there only, so {lost[0]} would "
                f"be empty. Give {lost[0]} rows of its own, or let whet divide the rows: {DECLINE}."
            )
        return self._order(node, {split: placed[split] for split in placed if split not in emptied}, warnings)

    def _missing(self, there: Collection[str]) -> list[str]:
        return [s for s in self.needs if s not in there and not (s == "validation" and "train" in there)]

    def deal(
        self, made: tuple[list[PlacedExample], list[str]], node: Node
    ) -> tuple[dict[str, tuple[Example, ...]], list[str]]:
        """Examples of one file, with their warnings, dealt into splits by their shares."""
        placed, warnings = made
        warnings += check_slots(placed, self.rules)
        f = self.fractions
        shares = (f.train, f.validation, f.test)
        parts = partition([p.example for p in placed], shares, f.seed)
        _refuse_empty(node, parts, SPLITS)
        return dict(zip(SPLITS, parts, strict=True)), warnings

    def _rows(self, node: Node) -> tuple[list[SourceRow], list[str]]:
        """The rows of a source, and notes on the decisions that reading them took."""
        slots = frozenset(self.rules.slots)
        filled = slots - ({MASK} if self.rules.labels else set())
        if isinstance(node.value, Table):
            return node.value.rows(filled), []
        if is_source(node):
            return source_rows(node, self.folder, filled), []
        path = self.folder / node.text("`data`", "data: data.jsonl, or a file for each split")
        notes: list[str] = []
        return read_rows(path, node.where, slots, notes=notes), notes

    def _by_file(
        self, node: Node, files: Mapping[str, Node]
    ) -> tuple[dict[str, tuple[Example, ...]], list[str]]:
        missing = self._missing(files)
        if "train" in missing:
            node.refuse("`data` names no train file. Add train: train.jsonl.")
        if "validation" in missing:
            node.refuse("`data` names no validation file. Add validation: validation.jsonl.")
        if "test" in missing:
            node.refuse(
                "`data` names no test file, and without one nothing can be proved. Add test: test.jsonl, "
                "or give one file (data: data.jsonl) that whet splits."
            )
        if len(files) == len(SPLITS) and self.fractions.chosen:
            node.refuse("`data` gives all three splits, so `splits` has no use. Remove `splits`.")
        placed: dict[str, list[PlacedExample]] = {}
        warnings, ids = [], dict[str, tuple[str, bool]]()
        for split in (s for s in SPLITS if s in files):
            rows, notes = self._rows(files[split])
            placed[split], more = make_examples(rows, self.rules, ids)
            warnings += [*notes, *more, *self._marked_otherwise(rows, split)]
        return self._order(files.get("train", node), placed, warnings)

    def _marked_otherwise(self, rows: Sequence[SourceRow], split: str) -> list[str]:
        """A warning about rows in the file of one split that their column says belong to another one."""
        column = self._column(rows)
        marks = (
            []
            if column is None
            else [(read_mark(columns_of_row(row).get(column)), row.where) for row in rows]
        )
        astray = [(mark, where) for mark, where in marks if mark not in (None, split)]
        if not astray:
            return []
        mark, where = astray[0]
        return [
            f"{quantity(len(astray), 'row')} of the {split} file {'says' if len(astray) == 1 else 'say'} otherwise in the column "
            f'"{column}" (first: {where}, {mark}). The file counts; {DECLINE} says that the column means something else.'
        ]

    def _order(
        self, train: Node, placed: dict[str, list[PlacedExample]], warnings: list[str]
    ) -> tuple[dict[str, tuple[Example, ...]], list[str]]:
        """Examples whose splits are given, each split in its order; a missing validation is cut from train."""
        warnings += check_slots([p for rows in placed.values() for p in rows], self.rules)
        warnings += _refuse_leaks(placed)
        seed = self.fractions.seed
        by_split_name = {split: [p.example for p in rows] for split, rows in placed.items()}
        ordered = {
            split: tuple(e for g in rank_groups(rows, seed) for e in g)
            for split, rows in by_split_name.items()
        }
        if "validation" not in ordered and "train" in ordered:
            shares = (self.fractions.train, self.fractions.validation)
            parts = partition(by_split_name["train"], shares, seed)
            _refuse_empty(train, parts, SPLITS[:2])
            ordered |= {"train": parts[0], "validation": parts[1]}
        ordered.setdefault(
            "train", ordered[self.needs[0]]
        )  # an evaluation looks at its own rows where there are no others
        return {split: ordered.get(split, ()) for split in SPLITS}, warnings


def find_marks(rows: Sequence[SourceRow], slots: Collection[str], named: str | None) -> str | None:
    """The column that marks the split of each row, `named` by the task or found; None where there is none, where the task
    declines it, and where it fills a slot of the prompt."""
    if named is not None:
        return None if named == NO_SPLIT else named
    column = find_column([columns_of_row(row) for row in rows])
    return None if column is None or canonical_name(column) in slots else column


def take_test_rows(rows: Sequence[SourceRow], slots: Collection[str], named: str | None) -> list[SourceRow]:
    """Fresh rows without the column that marks their split. Raises UsageError for one that is marked for something else than the
    test."""
    column = find_marks(rows, slots, named)
    if column is None:
        return list(rows)
    for row in rows:
        mark = read_mark(columns_of_row(row).get(column))
        if mark not in (None, SPLITS[-1]):
            raise UsageError(
                f'{row.where}: the column "{column}" marks this row as {mark}, and added rows are test rows. Remove the row, or '
                "take the column out."
            )
    return [drop_column(row, column) for row in rows]


def columns_of_row(row: SourceRow) -> Mapping[str, Any]:
    """The values of a row by column, those of its input included."""
    inputs = row.value.get("input")
    return {**inputs, **row.value} if isinstance(inputs, Mapping) else row.value


def drop_column(row: SourceRow, column: str) -> SourceRow:
    """The row without a column, in its input too."""
    value = {name: cell for name, cell in row.value.items() if name != column}
    inputs = value.get("input")
    if isinstance(inputs, Mapping):
        value["input"] = {name: cell for name, cell in inputs.items() if name != column}
    return SourceRow(value, row.where)


def _placed_message(node: Node, message: str, places: Sequence[str]) -> str:
    """A message with the place of the data, unless it names that of a row."""
    return message if any(message.startswith(place) for place in places) else f"{node.where}: {message}"


def _refuse_empty(node: Node, parts: Sequence[Sequence[Example]], names: Sequence[str]) -> None:
    empty = [name for name, part in zip(names, parts, strict=True) if not part]
    if not empty:
        return
    rows = [e for part in parts for e in part]
    distinct, what = (
        len(rank_groups(rows, 0)),
        "groups" if any(e.group is not None for e in rows) else "inputs",
    )
    there = (
        "there is 1 row" if len(rows) == 1 else f"there are {len(rows)} rows with {distinct} different {what}"
    )
    node.refuse(
        f"the split{'s' * (len(empty) > 1)} {' and '.join(empty)} would be empty: {there} for {', '.join(names)}. Give rows with "
        f"at least {len(names)} different {what}."
    )


def _leave_copies_out(placed: dict[str, list[PlacedExample]]) -> list[str]:
    """Leave a row (input and target) that stands in several splits in the most sealed of them only; a warning says so."""
    sealed = set[str]()
    warnings = []
    for split in [split for split in reversed(SPLITS) if split in placed]:
        keys = [content_hash([input_hash(p.example), p.example.target]) for p in placed[split]]
        copies = [p for p, key in zip(placed[split], keys, strict=True) if key in sealed]
        placed[split] = [p for p, key in zip(placed[split], keys, strict=True) if key not in sealed]
        sealed |= set(keys)
        if copies:
            warnings.append(
                f"{quantity(len(copies), 'row')} of {split} {'stands' if len(copies) == 1 else 'stand'} in a later split too and "
                f"{'counts' if len(copies) == 1 else 'count'} there only (first: {copies[0].where})"
            )
    return warnings


def _refuse_leaks(placed: Mapping[str, Sequence[PlacedExample]]) -> list[str]:
    """Refuse a row (input and target) or a group that two splits share; warn about inputs they share."""
    rows: dict[str, tuple[str, str]] = {}
    groups: dict[str, tuple[str, str]] = {}
    inputs: dict[str, str] = {}
    shared: list[str] = []
    for split, group in placed.items():
        for p in group:
            key = input_hash(p.example)
            both = content_hash([key, p.example.target])
            if both in rows and rows[both][0] != split:
                raise UsageError(
                    f"{p.where}: this {split} row stands also in {rows[both][0]} ({rows[both][1]}): what "
                    "a method has seen proves nothing. Remove it from one of them."
                )
            rows.setdefault(both, (split, p.where))
            if p.example.group is not None:
                first, place = groups.setdefault(p.example.group, (split, p.where))
                if first != split:
                    raise UsageError(
                        f'{p.where}: the group "{p.example.group}" of this {split} row stands also in {first} ({place}); '
                        "its rows are not independent. Keep all rows of a group in one of them."
                    )
            if inputs.setdefault(key, split) != split:
                shared.append(p.where)
    if not shared:
        return []
    return [f"{len(shared)} inputs of one split stand in another with another target (first: {shared[0]})."]


def rank_groups(examples: Sequence[Example], seed: int) -> list[list[Example]]:
    """Examples that stay together, those with the same input and those of one group, in the order of a seeded hash.

    The hash is that of the input, or of the first of the group's names. So the order depends on the seed, the inputs and the
    groups only: adding rows puts them between the others and moves none past another, unless they join two groups.
    """
    inputs = [input_hash(e) for e in examples]
    clusters = clusters_of(inputs, [e.group for e in examples])
    names: dict[int, str] = {}
    for cluster, text, example in zip(clusters, inputs, examples, strict=True):
        name = text if example.group is None else content_hash(["group", example.group])
        names[cluster] = min(names.get(cluster, name), name)
    keyed = sorted((content_hash([seed, names[c]]), e.id, e) for c, e in zip(clusters, examples, strict=True))
    return [[e for _, _, e in group] for _, group in itertools.groupby(keyed, key=lambda k: k[0])]


def partition(examples: Sequence[Example], shares: Sequence[float], seed: int) -> list[tuple[Example, ...]]:
    """Examples cut by rank into consecutive parts with the given shares (above 0, any sum).

    Without repeated inputs each part has its exact share, rounded. Every part gets at least one input when
    there are as many different inputs as parts; otherwise the last parts are empty.
    """
    groups, total = rank_groups(examples, seed), math.fsum(shares)
    ends = [math.floor(len(examples) * part / total + 0.5) for part in itertools.accumulate(shares)]
    parts: list[list[Example]] = [[] for _ in shares]
    placed, at, last = 0, 0, len(shares) - 1
    for number, group in enumerate(groups):
        scarce = len(groups) - number <= last - at
        if parts[at] and at < last and (placed >= ends[at] or scarce):
            at += 1
        parts[at].extend(group)
        placed += len(group)
    return [tuple(part) for part in parts]
