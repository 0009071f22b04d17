"""Tables of texts as programs write them: delimiter and character set are recognised, empty rows and index columns left out."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from whet.errors import UsageError, quantity
from whet.task.files import decode_marked, decode_text, read_bytes
from whet_client.storable import show_value

DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
_SAMPLE = 500
"""Records by which the delimiter is found."""
_SEPARATOR_LINE = re.compile(r'\A"?sep=(.)"?[ \t]*(?:\r\n|\n|\r)', re.IGNORECASE)
_FLOAT = re.compile(r"-?[0-9]{1,15}\.0")
_FORMULA, _APOSTROPHE = re.compile(r'="(?:[^"]|"")*"'), re.compile(r"'[-+]?[0-9][0-9.,]*")
_GUARDED, _RISKY = re.compile(r"'[-+=@]"), ("-", "+", "=", "@")
_TWICE = re.compile(r"[\u00c2-\u00f4][\u0080-\u00bf\u0152-\u0192\u02c6\u02dc\u2013-\u203a\u20ac\u2122]")
"""The characters that one letter of UTF-8 becomes when it is read as Windows-1252."""
_RUN = re.compile(r"[^\x00-\x7f]{3,}")
_FEW_LETTERS = 8
"""So few letters beyond ASCII show no character set."""
_ROUNDED = re.compile(r"[0-9]\.[0-9]{1,5}E\+1[0-9]")
MISSING = (
    *("NaN", "nan", "<NA>", "NaT", "NULL", "#N/A"),
    *("#VALUE!", "#REF!", "#DIV/0!", "#NUM!", "#NAME?", "#NULL!"),
)
"""The texts that programs write into an empty cell. JSON has no such text, and a label may be spelt so."""
_OPENED = re.compile(r' +".*" *', re.DOTALL)
_RULE = re.compile(r":?-+:?")
_INDEX_NAME = re.compile(r"(?:Unnamed: [0-9]+)?")


@dataclass(frozen=True)
class DelimitedTable:
    """A header, records of as many cells, each with the line on which it begins, and notes on how the file was read."""

    header: Sequence[str]
    header_line: int
    records: Sequence[tuple[int, Sequence[str]]]
    delimiter: str
    notes: Sequence[str] = ()
    missing: Sequence[tuple[str, str]] = ()
    """Columns, each with a sentence that says where a cell of it holds one of `MISSING`."""
    doubts: Sequence[str] = ()
    """Why the header may be none."""

    def all_notes(self, empty: Callable[[str], bool] = lambda column: False) -> list[str]:
        """The notes, with those on cells that hold one of `MISSING`; in the columns that `empty` names, these are empty cells."""
        words = {True: "an empty cell", False: "a text"}
        return [
            *self.notes,
            *(
                f"{sentence} It is read as {words[empty(column)]}; leave the cell empty where there is no value"
                for column, sentence in self.missing
            ),
        ]


def read_delimited(path: Path, named_by: str = "", delimiter: str | None = None) -> DelimitedTable:
    """The table in a file. Raises UsageError with file and line for a text that is no table, or has records of another length.

    The delimiter is that of a first line `sep=;`, else the one that makes columns of all records. The file is UTF-8, UTF-16 with
    its mark, or else Windows-1252, which is noted. Left out are records without any text, columns without name and text, and the
    index that pandas writes. Whole numbers that pandas wrote as `18.0`, for the column has a gap, are whole numbers again.
    """
    text, notes = _decode(path, named_by)
    first, line = _SEPARATOR_LINE.match(text), 0
    if first is not None:
        text, line, delimiter = text[first.end() :], 1, delimiter or first[1]
    mark = delimiter or find_delimiter(text)
    records = [
        (number + line, cells)
        for number, cells in _split_spaced(path, text, mark, line)
        if any(map(str.strip, cells))
    ]
    if mark == "|":
        records = _without_rule(records)
    if not records:
        return DelimitedTable((), 1, (), mark, notes)
    (header_line, names), *rows = records
    header = [name.strip() for name in names]
    rows = [(number, _fit(cells, header, f"{path}:{number}", mark)) for number, cells in rows]
    index = {n for n, name in enumerate(header) if _is_index(name, [cells[n] for _, cells in rows])}
    keep = [n for n in range(len(header)) if n not in index]
    for number, name in enumerate(header):
        if number in index and any(cells[number].strip() for _, cells in rows):
            notes.append(
                f"{f'the column {name}' if name else 'the first column'} numbers the rows and is left out"
            )
    nameless = next((n for n in keep if not header[n]), None)
    if nameless is not None:
        number, cells = next((number, cells) for number, cells in rows if cells[nameless].strip())
        raise UsageError(
            f"{path}:{number}: the cell {show_value(cells[nameless])} stands in column {nameless + 1}, which has no name in the "
            "header. Name it there."
        )
    notes += [
        note
        for n in keep
        for note in _rounded_cells(f"{path}", header[n], [(at, cells[n]) for at, cells in rows])
    ]
    for n in keep:
        notes += _unquote_texts(header[n], [cells for _, cells in rows], n)
    columns = {n: _without_zeros([cells[n] for _, cells in rows], always=header[n] == "target") for n in keep}
    missing = [
        (
            header[n],
            f"{path}:{rows[places[0]][0]}: {show_value(header[n])} is the text {text} here, in {quantity(len(places), 'row')}.",
        )
        for n in keep
        for text in MISSING
        if (places := [at for at, cell in enumerate(columns[n]) if cell.strip() == text])
    ]
    doubts = _doubt_header(path, header_line, [(header[n], columns[n]) for n in keep])
    made = [(number, [columns[n][at] for n in keep]) for at, (number, _) in enumerate(rows)]
    return DelimitedTable([header[n] for n in keep], header_line, made, mark, notes, missing, doubts)


def _doubt_header(path: Path, line: int, columns: Sequence[tuple[str, Sequence[str]]]) -> list[str]:
    """A warning that the first line looks like a row, because a name in it is also a value of its own column."""
    for name, cells in columns:
        if count := sum(cell.strip() == name for cell in cells):
            return [
                f"{path}:{line}: this line was read as the header, but {show_value(name)} also stands in "
                f"{quantity(count, 'row')} of the same column. If this line is a row, write a "
                "line with the names of the columns above it, such as input,target."
            ]
    return []


def _unquote_texts(name: str, rows: Sequence[list[str]], column: int) -> list[str]:
    """Write texts of digits as they are where a spreadsheet marked them as such (`="007"`, `'007`), and say so. An apostrophe is
    such a mark where all cells of the column that have digits begin with it, or all that would begin as formulas do (`'-5`)."""
    formulas = [cells for cells in rows if _FORMULA.fullmatch(cells[column])]
    marked = [cells for cells in rows if _APOSTROPHE.fullmatch(cells[column])]
    if len(marked) < sum(any(c.isdecimal() for c in cells[column]) for cells in rows):
        marked = [cells for cells in rows if _GUARDED.match(cells[column])]
    if any(cells[column][:1] in _RISKY for cells in rows if cells[column] and cells not in formulas):
        marked = []
    if not formulas and not marked:
        return []
    shown = (formulas or marked)[0][column]
    for cells in formulas:
        cells[column] = cells[column][2:-1].replace('""', '"')
    for cells in marked:
        cells[column] = cells[column][1:]
    return [
        f"the column {name} holds texts as spreadsheets mark them, such as {shown}; the marks are left out"
    ]


def _rounded_cells(path: str, name: str, cells: Sequence[tuple[int, str]]) -> list[str]:
    """The warning that a column holds long numbers in a spreadsheet's short form, where all its other values are digits. Their
    last digits are lost."""
    rounded = [(line, cell) for line, cell in cells if _ROUNDED.fullmatch(cell)]
    if not rounded or not all(_ROUNDED.fullmatch(cell) or not cell or cell.isdecimal() for _, cell in cells):
        return []
    line, cell = rounded[0]
    return [
        f"{path}:{line}: {show_value(name)} is {cell} here ({quantity(len(rounded), 'row')}), as spreadsheets show long numbers: "
        "further digits are lost; show the column as text there, and save it again"
    ]


def _without_rule(records: Sequence[tuple[int, list[str]]]) -> list[tuple[int, list[str]]]:
    """The records of a Markdown table without the line of dashes below its header and without the blanks around its cells; of
    another table the records as they are."""
    rule = [cell.strip() for cell in records[1][1]] if len(records) > 1 else []
    if not any(rule) or not all(not cell or _RULE.fullmatch(cell) for cell in rule):
        return list(records)
    return [(number, [cell.strip() for cell in cells]) for number, cells in (records[0], *records[2:])]


def _split_spaced(path: Path, text: str, delimiter: str, before: int) -> list[tuple[int, list[str]]]:
    """The records, without the blanks that stand behind each delimiter of the header, or between a delimiter and a quote that
    opens a cell."""
    header = text.lstrip().partition("\n")[0].split(delimiter)[1:]
    spaced = bool(header) and all(cell.startswith(" ") for cell in header)
    if not spaced and f'{delimiter} "' not in text:
        return split_records(path, text, delimiter, before)
    try:
        records = split_records(path, text, delimiter, before, after_blanks=True)
    except UsageError:
        return split_records(path, text, delimiter, before)
    if not _fit_each_other(records):
        return split_records(path, text, delimiter, before)
    if spaced:
        return records
    try:
        plain = split_records(path, text, delimiter, before)
    except UsageError:
        return records
    opened = any(_OPENED.fullmatch(cell) for _, cells in plain for cell in cells)
    return records if opened or not _fit_each_other(plain) else plain


def _fit_each_other(records: Sequence[tuple[int, Sequence[str]]]) -> bool:
    return all(len(cells) == len(records[0][1]) for _, cells in records)


def split_records(
    path: Path, text: str, delimiter: str, before: int = 0, *, after_blanks: bool = False
) -> list[tuple[int, list[str]]]:
    """Records that are no empty lines, each with the line on which it begins; `before`: lines of the file above the text.
    `after_blanks`: a cell begins behind the blanks that follow its delimiter."""
    most = csv.field_size_limit(2**31 - 1)
    reader = csv.reader(
        io.StringIO(text, newline=""), delimiter=delimiter, strict=True, skipinitialspace=after_blanks
    )
    records, last = [], 0
    try:
        for record in reader:
            if record:
                records.append((last + 1, record))
            last = reader.line_num
    except csv.Error as error:
        raise UsageError(
            f"{path}:{last + 1 + before}: not valid CSV: {error}. Double a quote inside a quoted cell, and close the cell."
        ) from None
    finally:
        csv.field_size_limit(most)
    return records


def find_delimiter(text: str) -> str:
    """The delimiter that gives most records the columns of the header, at least two; a comma where none does. One by which the
    text is right comes before one by which it is broken.

    >>> find_delimiter('Name, first;Text\\nAnn;a, b, c\\n'), find_delimiter("one\\ntwo\\n")
    (';', ',')
    >>> find_delimiter('"Name, first";"Text"\\n"Ann, B";"a"\\n')
    ';'
    """
    sample = text[: _sample_end(text)]
    best, delimiter = (False, 0.0, 1), ","
    for mark in DELIMITERS:
        right = True
        try:
            records = [
                cells
                for _, cells in split_records(Path("sample"), sample, mark)
                if any(map(str.strip, cells))
            ]
        except UsageError:
            right = False
            records = [
                line.split(mark) for line in sample.splitlines()[:1]
            ]  # a broken cell further down is named there
        columns = len(records[0]) if records else 1
        share = sum(len(cells) == columns for cells in records) / max(1, len(records))
        if columns > 1 and (right, round(share, 2), columns) > best:
            best, delimiter = (right, round(share, 2), columns), mark
    return delimiter


def _sample_end(text: str) -> int:
    end = 0
    for _ in range(_SAMPLE):
        following = text.find("\n", end)
        if following < 0:
            return len(text)
        end = following + 1
    return len(text) if text.count('"', 0, end) % 2 else end


def _decode(path: Path, named_by: str) -> tuple[str, list[str]]:
    data = read_bytes(path, named_by)
    if (marked := decode_marked(path, data)) is not None:
        return marked, []
    try:
        text = data.decode("utf-8").removeprefix("\ufeff")
        return text, _encoded_twice(path, text)
    except UnicodeDecodeError:
        if re.search(rb"[\x00-\x08\x0e-\x1f\x7f]", data):
            return decode_text(path, data), []  # refused with its place: no text at all
    try:
        text = data.decode("cp1252")
    except UnicodeDecodeError:
        return decode_text(path, data), []
    if (run := _other_script(text)) is not None:
        raise UsageError(
            f"{path}:{text.count(chr(10), 0, run.start()) + 1}: the table is neither UTF-8 nor Windows-1252, which would make "
            f'{show_value(run.group()[:20])} of a word here. Save it as UTF-8; spreadsheets call this "CSV UTF-8".'
        )
    return text, [
        f"{path}: read as Windows-1252, because it is not UTF-8; look whether letters such as {_odd(text)} are right, and save "
        "the table as UTF-8 if they are not"
    ]


def _other_script(text: str) -> re.Match[str] | None:
    """The first run of letters beyond ASCII in a text that was read as Windows-1252 and is of another character set: in the
    languages of Windows-1252 such letters stand alone or in pairs, in other scripts they make whole words."""
    runs = list(_RUN.finditer(text))
    letters = sum(c.isalpha() and not c.isascii() for c in text)
    within = sum(c.isalpha() for run in runs for c in run.group())
    return runs[0] if letters >= _FEW_LETTERS and 2 * within > letters else None


def _encoded_twice(path: Path, text: str) -> list[str]:
    """The warning that letters of a text are UTF-8 which another program read as Windows-1252 (`StraÃŸe` for `Straße`)."""
    for number, line in enumerate(text.splitlines(), 1):
        if not _TWICE.search(line):
            continue
        try:
            meant = line.encode("cp1252").decode("utf-8")
        except UnicodeError:
            return []
        return [
            f"{path}:{number}: {show_value(line)} looks like {show_value(meant)}, read in another encoding by the program that "
            "wrote it. It is read as it stands; save the file anew"
        ]
    return []


def _odd(text: str) -> str:
    return ", ".join(dict.fromkeys(c for c in text if ord(c) > 127)).replace("\n", " ")[:20]


def _fit(cells: list[str], header: Sequence[str], where: str, delimiter: str) -> list[str]:
    """The cells of a record, without empty ones behind the last column."""
    if len(cells) > len(header) and not any(map(str.strip, cells[len(header) :])):
        return cells[: len(header)]
    if len(cells) != len(header):
        word = {"\t": "a tab", ",": "a comma"}.get(delimiter, f'"{delimiter}"')
        raise UsageError(
            f"{where}: {quantity(len(cells), 'cell')}, but the header has {quantity(len(header), 'column')} (divided by "
            f'{DELIMITERS.get(delimiter, word)}). Quote a cell that contains {word}, a quote or a line end: "...".'
        )
    return cells


def _is_index(name: str, cells: Sequence[str]) -> bool:
    """Whether a column has neither name nor text, or is the index that pandas writes, with the numbers of the rows."""
    if not name and not any(map(str.strip, cells)):
        return True
    if _INDEX_NAME.fullmatch(name) is None or not cells:
        return False
    return len(set(cells)) == len(cells) and all(cell.isascii() and cell.isdigit() for cell in cells)


def _without_zeros(cells: Sequence[str], *, always: bool) -> Sequence[str]:
    """The cells of a column, whole numbers without `.0` where all are written so and one is missing (or `always`)."""
    filled = [cell for cell in cells if cell.strip()]
    if not filled or not (always or len(filled) < len(cells)) or not all(map(_FLOAT.fullmatch, filled)):
        return cells
    return [cell.removesuffix(".0") for cell in cells]
