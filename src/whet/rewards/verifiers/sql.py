"""The reward that compares what SQL queries return."""

from __future__ import annotations

import importlib.util
import math
import sqlite3
import urllib.parse
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, get_args

from whet._util.confined import Limits, OutOfBounds, run_confined
from whet._util.storable import read_file
from whet.errors import UsageError, quantity
from whet.rewards.asking import RewardOptions
from whet.rewards.reward import TARGET
from whet.rewards.targets import targets_of
from whet.rewards.verifiers.measured import Measured
from whet.rewards.verifiers.reading import (
    LONGEST_ANSWER,
    SQL,
    code_in,
    cut,
    flag_option,
    number_option,
    path_option,
)
from whet.run import Run
from whet.types import JSON, Completion, Example, Reward

_PROCESS = Path(__file__).with_name("sql_process.py")
_DUCKDB_PROCESS = Path(__file__).with_name("duckdb_process.py")
_READ_BY_DUCKDB = (Path("/proc/self/cgroup"), Path("/sys/fs/cgroup"))
"""The place where DuckDB looks up the amount of memory. Without it DuckDB opens no database."""
_MOST_NAMED = 3
_NEAR = 5e-10
"""Numbers that differ by this share are equal: half a unit of the ninth digit at most."""
_RESERVED_BY_DUCKDB = 1024
"""MiB of address space that DuckDB reserves and does not use. Without these, it died in the middle of an allocation."""
Row = tuple[tuple[str, str], ...]
Engine = Literal["sqlite", "duckdb"]


EMPTY_RESULT = "empty_result"
"""The part of a rollout that is 1 where a right query and its target both return no rows."""


@dataclass(frozen=True)
class Sql(Measured):
    """1 when the query of the answer returns the rows of the target query on the same database, else 0.

    The `engine` is SQLite, or DuckDB where it is installed.

    The query is the last fenced block, else the whole answer. Names of columns do not count, their order does; the order of
    rows only where `ordered`. Numbers are equal to nine significant digits. Both queries run in a confined process that may only
    read, for `timeout` seconds each, in `memory` MiB, with at most `rows` rows.
    """

    database: str = ""
    setup: str = ""
    ordered: bool = False
    timeout: float = 5.0
    memory: int = 512
    rows: int = 10_000
    files: tuple[Path, ...] = ()
    engine: Engine = "sqlite"
    name: str = "sql"
    low: float = 0.0
    high: float = 1.0
    needs: frozenset[str] = frozenset({TARGET})

    packages = ("duckdb",)

    @property
    def places(self) -> list[str]:
        """See `Measured`."""
        return [self.database] if self.database else []

    def check(self, example: Example) -> None:
        """Raise UsageError for a target that cannot be prepared on this database."""
        for target in targets_of(example):
            try:
                _connect(self.engine, self.database, self.setup, self.memory).execute(f"EXPLAIN {target}")
            except _errors(self.engine) as error:
                raise UsageError(
                    f"the target {cut(target)!r} of {example.place} is no query on this database: {error}. Correct the row."
                ) from None

    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        query = code_in(completion.text, SQL)
        if len(query) > LONGEST_ANSWER or "\0" in query:
            return Reward(0.0, critique="The query was refused: it is too long or holds a null character.")
        targets = targets_of(example)
        values: list[JSON] = [query, list(targets), example.place]
        graded = await self.compute(run, "compare_all", values, example.place, [example.id, completion.text])
        parts = {EMPTY_RESULT: 1.0} if graded.get("empty") else {}
        return Reward(graded["value"], parts, graded["critique"])

    def compare_all(self, query: str, targets: list[str], place: str) -> dict[str, object]:
        """Whether a query returns what one of the targets returns."""
        critique = ""
        for target in targets:
            critique, empty = self._compare(query, target, place)
            if not critique:
                return {"value": 1.0, "critique": None, "empty": empty}
        return {"value": 0.0, "critique": critique}

    def _compare(self, query: str, target: str, place: str) -> tuple[str, bool]:
        """The fault of a query compared with the target, or '', and whether the target has no rows."""
        question: dict[str, JSON] = {
            "database": self.database, "setup": self.setup, "query": query, "target": target,
            "seconds": self.timeout, "rows": self.rows,
        }  # fmt: skip
        memory, process = self.memory, _PROCESS
        readable = [Path(self.database)] if self.database else []
        if self.engine == "duckdb":
            question["memory"] = self.memory
            memory, process, readable = (
                self.memory + _RESERVED_BY_DUCKDB,
                _DUCKDB_PROCESS,
                [*readable, *_READ_BY_DUCKDB],
            )
        limits = Limits(2 * self.timeout + 2, memory, 16 << 20)
        try:
            result = run_confined(process, question, limits, readable=readable)
        except OutOfBounds as error:
            return f"The query was refused: {error}.", False
        for part in ("target", "query"):
            if "setup" in result[part]:
                raise UsageError(f"the database of the reward sql cannot be opened: {result[part]['setup']}.")
        if "fault" in result["target"]:
            raise UsageError(
                f"the target of {place} has no result: {result['target']['fault']}. Correct the row, or allow more with the "
                "options timeout, memory and rows of the reward sql."
            )
        if "fault" in result["query"]:
            return f"The query was refused: {cut(result['query']['fault'])}.", False
        columns, right = (result[part]["columns"] for part in ("query", "target"))
        if columns != right:
            return f"The query returns {quantity(columns, 'column')}; it should return {right}.", False
        rows = result["target"]["rows"]
        return self._difference(*_comparable(result["query"]["rows"], rows)), not rows

    def _difference(self, rows: list[Row], wanted: list[Row]) -> str:
        missing, extra = Counter(wanted) - Counter(rows), Counter(rows) - Counter(wanted)
        if not missing and not extra:
            return "" if not self.ordered or rows == wanted else "The rows are right, and their order is not."
        sentences = [f"The query returns {quantity(len(rows), 'row')}; it should return {len(wanted)}."]
        for what, some in (("missing", missing), ("too many", extra)):
            if some:
                shown = "; ".join(_show_row(row) for row in list(some)[:_MOST_NAMED])
                sentences.append(f"{some.total()} {what}, such as {cut(shown)}.")
        return " ".join(sentences)


def _comparable(rows: list[list[Any]], wanted: list[list[Any]]) -> tuple[list[Row], list[Row]]:
    """The rows of two results, with texts that are the same for equal values. Whole numbers are compared exactly in a column
    without other numbers."""
    columns = [list(column) for column in zip(*rows, *wanted, strict=True)]
    texts = [_texts_of(column) for column in columns]

    def as_row(row: list[Any]) -> Row:
        return tuple(_as_value(value, known) for value, known in zip(row, texts, strict=True))

    return [as_row(row) for row in rows], [as_row(row) for row in wanted]


def _texts_of(column: list[Any]) -> dict[float, str]:
    """A text for each number of a column: the same for numbers that agree in nine digits, or nearly do where a digit turns."""
    numbers = {value for value in column if isinstance(value, int | float)}
    if not any(isinstance(value, float) for value in numbers):
        return {number: str(number) for number in numbers}
    texts: dict[float, str] = {}
    last, text = math.nan, ""
    for number in sorted(numbers):
        value = float(number) + 0.0  # a negative zero is zero
        near = math.isfinite(value - last) and value - last <= _NEAR * max(abs(value), abs(last))
        if not near and f"{value:.9g}" != f"{last:.9g}":
            text = f"{value:.15g}"
        texts[number], last = text, value
    return texts


def _as_value(value: Any, numbers: dict[float, str]) -> tuple[str, str]:
    """A value as its kind and a text that is the same for equal values."""
    if isinstance(value, int | float):
        return "number", numbers[value]
    return (
        ("null", "NULL")
        if value is None
        else ("text", value)
        if isinstance(value, str)
        else ("bytes", str(value))
    )


def _show_row(row: Row) -> str:
    return "(" + ", ".join(repr(text) if kind == "text" else text for kind, text in row) + ")"


@lru_cache(maxsize=4)
def _connect(engine: Engine, database: str, setup: str, memory: int) -> Any:
    """The task's own database, to prepare its own queries on."""
    if engine == "duckdb":
        from whet.rewards.verifiers.duckdb_process import open_duckdb

        return open_duckdb(database, setup, memory)
    if database:
        path = urllib.parse.quote(database)
        return sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True, check_same_thread=False)
    connection = sqlite3.connect(":memory:", check_same_thread=False)
    connection.executescript(setup)
    return connection


def _errors(engine: Engine) -> tuple[type[Exception], ...]:
    if engine == "duckdb":
        import duckdb

        return (duckdb.Error,)
    return sqlite3.Error, sqlite3.Warning


def build_sql(options: RewardOptions) -> Sql:
    """`reward: {sql: {database: FILE or setup: SQL or FILE.sql, engine: sqlite or duckdb, ordered: false, timeout: 5,
    memory: 512, rows: 10000}}`; with DuckDB `memory` is 1024.

    Raises UsageError with the place.
    """
    options.only("database", "setup", "engine", "ordered", "timeout", "memory", "rows")
    engine: Any = options.values.get("engine", "sqlite")
    if engine not in get_args(Engine):
        options.refuse(f"the option engine must be sqlite or duckdb; this is {engine!r}.")
    if engine == "duckdb" and importlib.util.find_spec("duckdb") is None:
        options.refuse("engine: duckdb needs DuckDB. Install it with: pip install duckdb")
    if ("database" in options.values) == ("setup" in options.values):
        options.refuse("give either `database: FILE` or `setup: SQL`, the statements that make it in memory.")
    database, setup, files = "", "", tuple[Path, ...]()
    if "database" in options.values:
        path = path_option(options, "database")
        database, files = str(path), (path,)
    else:
        setup = options.text("setup")
        if setup.strip().endswith(".sql"):
            path = path_option(options, "setup")
            setup, files = read_file(path).decode("utf-8", "replace"), (path,)
    reward = Sql(
        database,
        setup,
        flag_option(options, "ordered", False),
        number_option(options, "timeout", 5.0, 600),
        int(number_option(options, "memory", 512 if engine == "sqlite" else 1024, 1 << 20)),
        int(number_option(options, "rows", 10_000, 1e6)),
        files,
        engine,
    )
    try:
        _connect(engine, database, setup, reward.memory).execute("SELECT count(*) FROM sqlite_master")
    except _errors(engine) as error:
        name = "SQLite" if engine == "sqlite" else "DuckDB"
        options.refuse(f"{name} cannot open this database: {error}.")
    return reward
