"""Rows of a data file (JSON, a table or a program), each with the place it was read from."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import decimal
import enum
import io
import json
import math
import re
import sys
import types
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from whet._util.storable import describe_exception
from whet._util.user_code import OutOfTime, run_file
from whet.errors import UsageError
from whet.replies import read_json_float
from whet.rewards.program import importing, line_of_error, load_module
from whet.task.delimited import read_delimited
from whet.task.files import kind_of, read_text
from whet_client.prompt.slots import canonical_name
from whet_client.storable import show_value

TABLES, LINES = (".csv", ".tsv"), (".jsonl", ".ndjson", ".jl")
KINDS = (*LINES, ".json", *TABLES, ".py")
INPUT_NAMES = (
    *("inputs", "question", "text", "query", "prompt", "sentence", "problem", "instruction", "source"),
    *("user_input", "content", "message", "document", "x"),
)
BESIDE_NAMES = (
    *("context", "contexts", "retrieved_contexts", "retrieval_context", "passage", "premise", "instruction"),
    *("choices", "options", "choice", "option", "endings"),
)
"""Columns without which a question cannot be answered."""
TARGET_NAMES = (
    *(
        "targets",
        "expected_output",
        "expected",
        "expected_response",
        "ground_truth",
        "ground_truths",
        "ideal",
    ),
    *("gold", "reference", "answer", "answers", "label", "output"),
    *("solution", "completion", "response", "expectations", "y"),
)
"""The names that tools give to the right answer, the unambiguous names first: beside a `ground_truth` or a `reference`, as
Ragas has them, an `answer` is what a model said."""
_FEW_BITS = {
    **{"float16": "f2", "Float16": "f2", "halffloat": "f2"},
    **{"float32": "f4", "Float32": "f4", "float": "f4"},
}
"""The names of numbers of 16 and 32 bits in numpy, torch and datasets, pandas and polars, and Arrow, with numpy's type for
each."""
_FIXED = "Seed its random numbers and fix what it reads: rows of a run must be the same at every start."
_EXAMPLE = '{"input": "...", "target": "..."}'


@dataclass(frozen=True, slots=True)
class SourceRow:
    """One row as it was read. `where` is file:line, with `: row N` for a row that a program made."""

    value: dict[str, Any]
    where: str


def read_rows(
    path: Path,
    named_by: str,
    slots: frozenset[str] = frozenset(),
    example: str = _EXAMPLE,
    delimiter: str | None = None,
    notes: list[str] | None = None,
) -> list[SourceRow]:
    """All rows of a data file in the order of the file; at least one.

    `named_by` (file:line) says which entry named the file; `slots` are those of the prompt, `example` is a good row; a
    `delimiter` makes it a table, whatever its name ends in. Decisions made while reading are added to `notes`. Raises
    UsageError with file and line for anything that is no row.
    """
    remarks: list[str] = [] if notes is None else notes
    suffix = kind_of(path) if delimiter is None else ".csv"
    if suffix in TABLES:
        rows = list(_csv(path, named_by, slots, delimiter, remarks))
    elif suffix in LINES:
        rows = list(_jsonl(path, named_by))
    elif suffix in (".json", ".py"):
        rows = list((_json if suffix == ".json" else _program)(path, named_by))
    else:
        raise UsageError(
            f"{named_by}: data files end in {', '.join(KINDS)}; this is {path.name}. "
            f"{conversion_of(path) or 'Convert it, or write a data.py with `def rows()`.'}"
        )
    if not rows:
        raise UsageError(f"{path}:1: there are no rows in the file. Write rows such as {example}.")
    return rows


class _BadJSON(ValueError):
    """JSON that is well-formed but cannot be used."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, object]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        names = [key for key, _ in pairs]
        twice = next(key for key in names if names.count(key) > 1)
        raise _BadJSON(f'the key "{twice}" appears twice in one object. Keep one.')
    return mapping


def _no_constant(name: str) -> NoReturn:
    raise _BadJSON(f"{name} is not JSON. Write null, or a text.")


def _finite(text: str) -> int | float:
    if math.isinf(float(text)):
        raise _BadJSON(f"the number {text} is too large. Write it as a text.")
    return read_json_float(text)


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite)


def _decode(text: str, start: int, where: str) -> tuple[object, int]:
    """One JSON value at `start` and the offset after it. `where` is its file:line."""
    try:
        value, stop = _DECODER.raw_decode(text, start)
    except json.JSONDecodeError as error:
        path, _, line = where.rpartition(":")
        at = int(line) + text.count("\n", start, error.pos)
        column = error.pos - text.rfind("\n", 0, error.pos)
        raise UsageError(
            f"{path}:{at}: not valid JSON (column {column}): {error.msg}. "
            "Keys and texts stand in double quotes; no comma follows the last entry."
        ) from None
    except _BadJSON as error:
        raise UsageError(f"{where}: {error}") from None
    except ValueError as error:
        raise UsageError(f"{where}: a number is too long: {error}. Write it as a text.") from None
    except RecursionError:
        raise UsageError(f"{where}: the JSON is nested too deeply. Write it with fewer levels.") from None
    return value, stop


def _row(value: object, where: str, raw: str) -> SourceRow:
    if not isinstance(value, dict):
        raise UsageError(f"{where}: a row must be an object; this is {show_value(value)}. Write {_EXAMPLE}.")
    if "\\ud" in raw or "\\uD" in raw:
        try:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError:
            raise UsageError(
                f"{where}: half of a surrogate pair (\\ud800 to \\udfff) stands alone; it is no character. "
                "Remove it."
            ) from None
    return SourceRow(value, where)


def _skip_space(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at


def _jsonl(path: Path, named_by: str) -> Iterator[SourceRow]:
    text = read_text(path, named_by).removeprefix("\ufeff")
    for number, line in enumerate(text.split("\n"), 1):
        start = _skip_space(line, 0)
        if start == len(line):
            continue
        where = f"{path}:{number}"
        if line[start] == "\ufeff":
            raise UsageError(
                f"{where}: a byte order mark (U+FEFF) stands before the object, as where two files were joined. Remove it."
            )
        if line[start] == "[":
            raise UsageError(
                f"{where}: a line must be one object, this is a list. Name a file with a JSON list .json."
            )
        if line[start:].strip() == "{":
            raise UsageError(
                f"{where}: an object must stand on one line. Join its lines, or write a .json list."
            )
        value, stop = _decode(line, start, where)
        stop = _skip_space(line, stop)
        if stop < len(line):
            raise UsageError(
                f"{where}: text follows the object (column {stop + 1}): {show_value(line[stop:], 30)}. "
                "Write one object on each line."
            )
        yield _row(value, where, line)


class _Lines:
    """Line numbers (from 1) of offsets that never go back."""

    def __init__(self, text: str) -> None:
        self.text, self.offset, self.number = text, 0, 1

    def at(self, offset: int) -> int:
        self.number += self.text.count("\n", self.offset, offset)
        self.offset = offset
        return self.number


def _find_wrapped_list(text: str, at: int) -> int:
    """Find the begin of the list of rows in the valid object at `at`, such as {"examples": [{...}, ...]}: the only value that
    is a list of objects; `at` itself if there is none, or several."""
    read, places, here = json.JSONDecoder().raw_decode, list[int](), _skip_space(text, at + 1)
    while text[here] != "}":
        here = _skip_space(text, _skip_space(text, read(text, here)[1]) + 1)
        value, stop = read(text, here)
        if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
            places.append(here)
        here = _skip_space(text, stop)
        here = _skip_space(text, here + 1) if text[here] == "," else here
    return places[0] if len(places) == 1 else at


def _json(path: Path, named_by: str) -> Iterator[SourceRow]:
    text = read_text(path, named_by).removeprefix("\ufeff")
    lines, at = _Lines(text), _skip_space(text, 0)
    if at == len(text):
        return
    end: int | None = None
    if text[at] == "{":
        end = _skip_space(text, _decode(text, at, f"{path}:{lines.at(at)}")[1])
        at = _find_wrapped_list(text, at)
    if text[at] != "[" or (end is not None and end < len(text)):
        raise UsageError(
            f"{path}:{lines.at(at)}: the file must hold a list of rows: [{_EXAMPLE}, ...], or an object with one such list. "
            "A file with one object on each line is named .jsonl."
        )
    at = _skip_space(text, at + 1)
    while text[at : at + 1] != "]":
        where = f"{path}:{lines.at(at)}"
        value, stop = _decode(text, at, where)
        yield _row(value, where, text[at:stop])
        at = _skip_space(text, stop)
        if text[at : at + 1] == ",":
            at = _skip_space(text, at + 1)
            if text[at : at + 1] == "]":
                raise UsageError(f"{path}:{lines.at(at)}: a comma follows the last row. Remove it.")
        elif text[at : at + 1] != "]":
            raise UsageError(
                f"{path}:{lines.at(at)}: a comma or the closing bracket is missing after a row. Add it."
            )
    if end is None and _skip_space(text, at + 1) < len(text):
        raise UsageError(
            f"{path}:{lines.at(at)}: text follows the list. Remove everything after its bracket."
        )


def _csv(
    path: Path, named_by: str, slots: frozenset[str], delimiter: str | None, notes: list[str]
) -> Iterator[SourceRow]:
    table = read_delimited(path, named_by, delimiter)
    notes += table.all_notes()
    _check_header(path, table.header_line, table.header, slots)
    for line, record in table.records:
        yield SourceRow(csv_row(dict(zip(table.header, record, strict=True))), f"{path}:{line}")


def _check_header(path: Path, line: int, header: Sequence[str], slots: frozenset[str]) -> None:
    where = f"{path}:{line}"
    if not header:
        raise UsageError(
            f"{where}: the file is empty. Write a header such as input,target and one row a line."
        )
    check_columns(header, where)
    if "target" not in header and "input" not in header:
        for name in header:
            if name.strip().casefold() in ("target", *TARGET_NAMES) and canonical_name(name) not in slots:
                raise UsageError(f'{where}: no column "target". Did you mean "{name}"? Rename it to target.')
    if not [name for name in header if name not in ("id", "target")]:
        raise UsageError(
            f'{where}: no column "input". Add one, or columns that are named like the slots of the prompt.'
        )


def check_columns(header: Sequence[str], where: str) -> None:
    """Raise UsageError for a header that names a column twice."""
    twice = [name for name, count in Counter(header).items() if count > 1]
    if twice:
        raise UsageError(f'{where}: the column "{twice[0]}" appears twice. Rename one.')


def csv_row(cells: dict[str, object]) -> dict[str, object]:
    """A row from cells: `input` and metadata, or every other column as a key of the input."""
    row: dict[str, object] = {k: cells.pop(k) for k in ("id", "target") if k in cells}
    row = {key: value for key, value in row.items() if value != ""}
    return row | (cells if "input" in cells else {"input": cells})


_PANDAS_READERS = {
    ".xlsx": ("read_excel", "openpyxl"),
    ".xls": ("read_excel", "xlrd"),
    ".ods": ("read_excel", "odfpy"),
    ".parquet": ("read_parquet", "pyarrow"),
    ".feather": ("read_feather", "pyarrow"),
}
"""Functions of pandas that read files of other programs, with the package that each needs."""


_IN_SHELL, _ESCAPED = re.compile(r'[\\"$`]'), r"\\\g<0>"
"""The characters that have a meaning between double quotes in a shell."""


def conversion_of(path: Path) -> str:
    """The command that makes JSON Lines of a file that pandas can read; empty for any other file."""
    if kind_of(path) not in _PANDAS_READERS:
        return ""
    reader, package = _PANDAS_READERS[kind_of(path)]
    code = (
        "import sys, pandas; "
        f"pandas.{reader}(sys.argv[1]).to_json(sys.argv[2], orient='records', lines=True, date_format='iso')"
    )
    names = " ".join(f'"{_IN_SHELL.sub(_ESCAPED, str(one))}"' for one in (path, path.with_suffix(".jsonl")))
    return f'Convert it: pip install pandas {package} && python -c "{code}" {names}'


def _program(path: Path, named_by: str) -> Iterator[SourceRow]:
    """Rows of `def rows()` in a Python file. Its output goes to stderr."""
    where, values = _make_rows(path, named_by)
    with contextlib.redirect_stderr(io.StringIO()):
        again = _make_rows(path, named_by)[1]
    if len(values) != len(again):
        raise UsageError(
            f"{where}: rows() makes {len(values)} rows, and {len(again)} when it is run again. {_FIXED}"
        )
    for number, (value, other) in enumerate(zip(values, again, strict=True), 1):
        row = row_of(value, f"{where}: row {number}", " of rows()")
        if row.value != row_of(other, f"{where}: row {number}", " of rows()").value:
            raise UsageError(f"{where}: row {number} of rows() is another one when it is run again. {_FIXED}")
        yield row


def _make_rows(path: Path, named_by: str) -> tuple[str, list[object]]:
    """The place of `def rows()` and what it makes, in a module that is loaded anew."""
    module = load_module(path, named_by, "Write `def rows()` in it that yields objects such as " + _EXAMPLE)
    function = getattr(module, "rows", None)
    if not callable(function):
        raise UsageError(
            f"{path}:1: there is no function `rows()` in it. Write `def rows()` that yields {_EXAMPLE}."
        )
    code = getattr(function, "__code__", None)
    where = f"{path}:{code.co_firstlineno if code is not None else 1}"
    try:
        with importing(path.parent), contextlib.redirect_stdout(sys.stderr):
            return where, run_file(lambda: list(function()), path)
    except KeyboardInterrupt:
        raise
    except OutOfTime:
        raise UsageError(
            f"{where}: rows() does not end. Look for a loop without end, or a call that waits."
        ) from None
    except BaseException as error:
        raise UsageError(
            f"{line_of_error(error, path)}: rows() failed: {describe_exception(error)}. Correct the program."
        ) from error


def row_of(value: Any, where: str, maker: str = "") -> SourceRow:
    """A row that a program made, as JSON would hold it: dates as ISO 8601, numbers of other libraries as plain ones, objects by
    their fields, without the cells that pandas marks as missing. Raises UsageError naming `where`, the key and the `maker`."""
    value = _fields_of(value)
    if not isinstance(value, Mapping):
        raise UsageError(f"{where}{maker} is {show_value(value)}. Yield objects such as {_EXAMPLE}.")
    try:
        plain = {str(key): _storable(cell, str(key)) for key, cell in value.items() if not is_missing(cell)}
        raw = json.dumps(plain, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(
            f"{where}{maker} cannot be stored as JSON: {error}. Rows hold texts, numbers, lists and objects; leave it out."
        ) from None
    return _row(_decode(raw, 0, where)[0], where, raw)


def _fields_of(value: Any) -> Any:
    """The contents of an object by name: a dataclass, a named tuple, an object of pydantic, attrs or DSPy, a row of a data
    frame. Any other object is returned unchanged."""
    if isinstance(value, Mapping | type):
        return value
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if (fields := getattr(value, "__attrs_attrs__", None)) is not None:
        return {field.name: getattr(value, field.name) for field in fields}
    names = ("model_dump", "_asdict", "to_dict", "toDict")
    dump = next((one for name in names if callable(one := getattr(value, name, None))), None)
    held = vars(value) if isinstance(value, types.SimpleNamespace) else value if dump is None else dump()
    return held if isinstance(held, Mapping) else value


def is_missing(value: object) -> bool:
    """Whether a value is what pandas writes where there is none (NA, NaT)."""
    return type(value).__name__ in ("NAType", "NaTType")


def shortest(value: object, kind: str) -> object:
    """A value of the type that a library calls `kind`: a number of 16 or 32 bits, in lists too, becomes the shortest decimal that
    stands for it there, which is what people wrote.

    >>> shortest([0.10000000149011612], "float32"), shortest(0.10000000149011612, "float64")
    ([0.1], 0.10000000149011612)
    """
    bits = _FEW_BITS.get(kind.rpartition(".")[2])
    if bits is None:
        return value
    if isinstance(value, list | tuple):
        return [shortest(inner, kind) for inner in value]
    return float(str(np.dtype(bits).type(value))) if isinstance(value, float) else value


def _storable(value: Any, key: str) -> object:
    """A value as JSON can hold it. Raises TypeError, or ValueError for a number that is none, naming its key."""
    if value is None or is_missing(value):
        return None
    if isinstance(value, str | bool | int) and type(value).__module__ == "builtins":
        return value
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f'"{key}" is {float(value)}, which is no number')
    if isinstance(value, Mapping):
        return {str(name): _storable(inner, f"{key}.{name}") for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_storable(inner, key) for inner in value]
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return _number_of(value, key)
    if isinstance(value, uuid.UUID | Path | datetime.timedelta):
        return str(value)
    if callable(getattr(value, "tolist", None)):  # numbers and arrays of numpy and its kin
        inner = value.tolist()
        if type(inner) is not type(value):
            return _storable(shortest(inner, str(getattr(value, "dtype", ""))), key)
    if isinstance(value, enum.Enum):
        return _storable(value.value, key)
    if isinstance(value, str | int | float):
        return value
    if isinstance(fields := _fields_of(value), Mapping):
        return _storable(fields, key)
    if isinstance(value, bytes | bytearray | memoryview) or type(value).__module__.startswith("PIL."):
        what = "an image" if type(value).__module__.startswith("PIL.") else "bytes"
        raise TypeError(f'"{key}" holds {what}')
    raise TypeError(f'"{key}" is {show_value(value)}, of the type {type(value).__name__}')


def _number_of(value: decimal.Decimal, key: str) -> int | float | str:
    """A decimal number as the plain number that is equal to it, else as text."""
    if not value.is_finite():
        raise ValueError(f'"{key}" is {value}, which is no number')
    number = float(value)
    if decimal.Decimal(repr(number)) != value:
        return str(value)
    return int(number) if number.is_integer() else number
