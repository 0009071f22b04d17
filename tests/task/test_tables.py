"""Tables as programs write them, and rows of Python: read as what they mean, or refused with row and column."""

from __future__ import annotations

import datetime
import decimal
import errno
import os
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import whet
from whet.engine.blobs import Blobs
from whet.errors import StorageError, UsageError
from whet.feedback.rows import read_feedback
from whet.task import read_material
from whet.task.delimited import read_delimited
from whet_client.ids import microseconds

PLAIN = [["text", "label"], ["one, two", "a"], ["drei\nvier", "b"]]


def records(path: Path) -> list[list[str]]:
    table = read_delimited(path)
    return [list(table.header), *(list(cells) for _, cells in table.records)]


@pytest.mark.parametrize(
    ("content", "note"),
    [
        (b'text,label\n"one, two",a\n"drei\nvier",b\n', ""),
        (b'sep=;\ntext;label\none, two;a\n"drei\nvier";b\n', ""),
        (b'text;label\none, two;a\n"drei\nvier";b\n;\n;\n\n', ""),
        ('text\tlabel\none, two\ta\n"drei\nvier"\tb\n'.encode("utf-16"), ""),
        (b'\xef\xbb\xbftext|label\none, two|a\n"drei\nvier"|b\n', ""),
        (
            b'Unnamed: 0,text,label\n0,"one, two",a\n1,"drei\nvier",b\n',
            "the column Unnamed: 0 numbers the rows",
        ),
        (b',text,label\n7,"one, two",a\n3,"drei\nvier",b\n', "the first column numbers the rows"),
        (b'text,label,,\n"one, two",a,,\n"drei\nvier",b,,\n', ""),
    ],
)
def test_a_table_is_read_as_programs_write_it(tmp_path: Path, content: bytes, note: str) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(content)
    assert records(path) == PLAIN
    assert [line for line in read_delimited(path).notes if note in line] == (
        [] if not note else [*read_delimited(path).notes]
    )


@pytest.mark.parametrize("header", ['"Name, first";Text', '"Name, first";"Text"'])
def test_a_comma_in_a_quoted_header_of_a_semicolon_file_divides_nothing(tmp_path: Path, header: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f"{header}\nAnn;a\nBen;no\n")
    assert read_delimited(path).header == ["Name, first", "Text"]


def test_a_comma_in_the_header_of_a_semicolon_file_divides_nothing(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("Name, first;Text;Label\nAnn;hello, you;a\nBen;no;b\n")
    assert records(path)[0] == ["Name, first", "Text", "Label"]


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        ('text, label\n"one, two", a\nthree, "b, c"\n', [["one, two", "a"], ["three", "b, c"]]),
        ('text,label\none, "b, c"\ntwo,"d"\n', [["one", "b, c"], ["two", "d"]]),
        ('text,label\n"say, ""hi""",a\nb, c\n', [['say, "hi"', "a"], ["b", " c"]]),
    ],
)
def test_blanks_behind_a_delimiter_open_no_cell(tmp_path: Path, content: str, rows: list[list[str]]) -> None:
    path = tmp_path / "a.csv"
    path.write_text(content)
    assert records(path) == [["text", "label"], *rows]


def test_windows_letters_are_read_and_said(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes("Größe;label\n“groß”;a\n".encode("cp1252"))
    assert records(path) == [["Größe", "label"], ["“groß”", "a"]]
    (note,) = read_delimited(path).notes
    assert "Windows-1252" in note and "ö, ß" in note


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("cp1251", "Верните деньги, пожалуйста"),
        ("gbk", "请退款给我，谢谢"),
        ("euc_kr", "환불해 주세요 감사합니다"),
        ("cp1253", "Θέλω επιστροφή χρημάτων"),
        ("cp1256", "أريد استرداد المال"),
    ],
)
def test_a_table_of_another_character_set_is_refused(tmp_path: Path, encoding: str, text: str) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(f"text,label\nHello,a\n{text},b\n".encode(encoding))
    with pytest.raises(
        UsageError, match=r"rows.csv(:3: the table is neither UTF-8 nor Windows-1252|.*UTF-8)"
    ):
        read_delimited(path)


@pytest.mark.parametrize(
    "text", ["Größe süß, groß und größer", "Ça été œuvré déjà à Noël", "Það er öðruvísi, æðislegt"]
)
def test_western_letters_beside_each_other_are_read(tmp_path: Path, text: str) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(b"text;label\n" + f"{text};a\n".encode("cp1252") * 9)
    assert records(path)[1] == [text, "a"]


def test_whole_numbers_of_a_column_with_gaps_are_whole_again(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("age,price,target\n18.0,1.50,3.0\n,2.0,4.0\n")
    assert records(path)[1:] == [["18", "1.50", "3"], ["", "2.0", "4"]]


def test_a_text_that_programs_write_for_no_value_is_said(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("text,label\none,yes\nNaN is here,NaN\ntwo,no\nthree,NaN\nfour,nano\n")
    (note,) = read_delimited(path).all_notes()
    assert note.startswith(f"{path}:3: 'label' is the text NaN here, in 2 rows")
    assert records(path)[2] == ["NaN is here", "NaN"], "a label may be spelt so"


def test_numbers_that_a_spreadsheet_has_rounded_are_said(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("order,mass,label\n12,6.02E+23,a\n1.23457E+11,5.5,b\n1.23457E+12,7,c\n")
    (note,) = read_delimited(path).notes
    assert note.startswith(
        f"{path}:3: 'order' is 1.23457E+11 here (2 rows), as spreadsheets show long numbers"
    )


@pytest.mark.parametrize(
    ("cells", "read"),
    [
        (['"=""007"""', '"=""010"""'], ["007", "010"]),
        (["'007", "'010"], ["007", "010"]),
        (["'-5", "3"], ["-5", "3"]),
        (["'007", "010"], ["'007", "010"]),
        (["'-5", "-3"], ["'-5", "-3"]),
        (["'90s rock", "1980s"], ["'90s rock", "1980s"]),
    ],
)
def test_marks_of_spreadsheets_around_texts_are_left_out_and_said(
    tmp_path: Path, cells: list[str], read: list[str]
) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("text,label\n" + "".join(f"t{n},{cell}\n" for n, cell in enumerate(cells)))
    assert [record[1] for record in records(path)[1:]] == read
    notes = [note for note in read_delimited(path).notes if "as spreadsheets mark them" in note]
    assert len(notes) == (read[0][:1] != "'")


def test_letters_that_were_encoded_twice_are_said(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("text,label\nCafé â là,a\nStra\u00c3\u0178e,b\n", encoding="utf-8")
    (note,) = read_delimited(path).notes
    assert note.startswith(f"{path}:3:") and "looks like 'Straße,b'" in note
    path.write_text("text,label\nCafé «Â» É,a\nnaïve façade,b\n", encoding="utf-8")
    assert not read_delimited(path).notes


@pytest.mark.parametrize("name", ["rows.ndjson", "rows.jl"])
def test_other_names_of_lines_of_json(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("".join(f'{{"input": "q{n}", "target": "a"}}\n' for n in range(9)))
    assert len(read_material(str(tmp_path / name)).all_rows()) == 9


def test_a_byte_order_mark_inside_lines_of_json_is_named(tmp_path: Path) -> None:
    path, part = tmp_path / "rows.jsonl", '\ufeff{"input": "q", "target": "a"}\n'
    path.write_text(part + part, encoding="utf-8")
    with pytest.raises(UsageError, match=r"rows\.jsonl:2: a byte order mark \(U\+FEFF\) .* Remove it"):
        read_material(str(path))


def test_feedback_is_read_by_the_same_reader(tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    path.write_bytes("sep=;\nQuestion;Comment\nq;Be brief, please.\n;\n".encode("utf-16"))
    (row,) = read_feedback([path])
    assert (row.input, row.comment) == ("q", "Be brief, please.")


def rows_of(make: Any) -> list[dict[str, Any]]:
    return [{"input": f"q{n}", "target": "a", "extra": make(n)} for n in range(9)]


class NAType:
    """What pandas writes for a missing cell."""


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (datetime.date(2024, 1, 31), "2024-01-31"),
        (datetime.datetime(2024, 1, 31, 12, 30), "2024-01-31T12:30:00"),
        (decimal.Decimal("18.00"), 18),
        (decimal.Decimal("1.10"), 1.1),
        (decimal.Decimal("0.1000000000000000000001"), "0.1000000000000000000001"),
        (datetime.timedelta(hours=1), "1:00:00"),
        (np.float32(0.1), 0.1),
        ([np.float16(0.1)], [0.1]),
        ({"deep": np.array([[0.1, 123456.7]], np.float32)}, {"deep": [[0.1, 123456.7]]}),
        (np.float64(0.1), 0.1),
        (np.float32(16777216), 16777216.0),
        ({"at": datetime.date(2024, 1, 31), "gone": NAType()}, {"at": "2024-01-31", "gone": None}),
    ],
)
def test_values_of_other_types_are_stored_as_what_they_are(value: Any, stored: Any) -> None:
    task = whet.Task.of("Say {{input}}", data=rows_of(lambda n: value), reward="exact_match")
    assert task.train[0].row["extra"] == stored


def test_a_missing_cell_is_absent() -> None:
    task = whet.Task.of("Say {{input}}", data=rows_of(lambda n: NAType()), reward="exact_match")
    assert "extra" not in task.train[0].row


class PandasFrame:
    """A data frame as pandas hands it over."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows, self.columns = rows, list(rows[0])

    def to_dict(self, orient: str) -> list[dict[str, Any]]:
        assert orient == "records"
        return self.rows


@pytest.mark.parametrize("gap", [None, float("nan"), NAType()])
def test_a_missing_cell_of_a_data_frame_fills_its_slot_with_nothing_as_in_a_csv_file(gap: object) -> None:
    rows = [{"q": f"q{n}", "note": gap if n == 3 else "n", "target": "a"} for n in range(9)]
    task = whet.Task.of("{{q}} ({{note}})", data=PandasFrame(rows), reward="exact_match")
    made = [*task.train, *task.validation, *task.test]
    assert {e.values["q"]: e.values["note"] for e in made} == {
        r["q"]: "" if r["note"] is gap else "n" for r in rows
    }
    assert "1 row has null for a slot, which is filled with nothing (first: data[3])." in task.warnings


def test_a_row_of_a_data_frame_without_its_input_gets_none_of_the_other_columns() -> None:
    rows = [{"input": None if n == 3 else f"q{n}", "source": "s", "target": "a"} for n in range(9)]
    with pytest.raises(UsageError, match=r'data\[3\]: the row has no "input"'):
        whet.Task.of("Answer.", data=PandasFrame(rows), reward="exact_match")


def test_rows_that_fill_some_slots_are_refused_with_the_slot_that_is_left() -> None:
    rows = [{"q": f"q{n}", "target": "a"} for n in range(9)]
    with pytest.raises(UsageError) as error:
        whet.Task.of("Dear {{first_name}}: {{q}}", data=rows, reward="exact_match")
    assert 'Its keys fill no slot {{first_name}}. The inputs have q. Add "first_name"' in str(error.value)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (b"\x89PNG", '"extra" holds bytes'),
        (float("nan"), '"extra" is nan, which is no number'),
        ({1, 2}, '"extra" is {1, 2}, of the type set'),
        ({"deep": [object]}, '"extra.deep" is'),
    ],
)
def test_what_no_row_can_hold_is_refused_with_row_and_column(value: Any, said: str) -> None:
    rows = rows_of(lambda n: value if n == 3 else "x")
    with pytest.raises(UsageError) as error:
        whet.Task.of("Say {{input}}", data=rows, reward="exact_match")
    assert "data[3]" in str(error.value) and said in str(error.value)


@pytest.mark.parametrize(
    "value",
    [
        {"chat": [{"role": "user", "content": "a"}]},
        {"film": "data:video/mp4;base64,AAAA"},
        "See data:image/jpeg;base64,/9j/4AAQ",
    ],
)
def test_inputs_that_are_no_text_are_refused(value: Any) -> None:
    rows = [{"input": value if n == 5 else {"chat": f"t{n}"}, "target": "a"} for n in range(9)]
    with pytest.raises(UsageError, match=r"data\[5\]: the input holds (messages|a film|an image)"):
        whet.Task.of("Answer.", data=rows, reward="exact_match")


def test_messages_as_text_in_a_cell_are_said() -> None:
    rows = [{"input": f'[{{"role": "user", "content": "t{n}"}}]', "target": "a"} for n in range(9)]
    task = whet.Task.of("Answer.", data=rows, reward="exact_match")
    assert any("9 rows hold messages as JSON text" in warning for warning in task.warnings)


def test_two_inputs_of_one_name_are_refused() -> None:
    rows = [{"input": {"Gr\u00f6sse": f"t{n}", "Gro\u0308sse": "x"}, "target": "a"} for n in range(9)]
    with pytest.raises(UsageError, match="the same name but for its writing"):
        whet.Task.of("Say {{Gr\u00f6sse}}", data=rows, reward="exact_match")


def test_a_name_that_no_slot_has_is_refused_where_a_row_has_it() -> None:
    rows = [{"input": {"Price ($)": f"t{n}"}, "target": "a"} for n in range(9)]
    with pytest.raises(UsageError, match=r'would go to the model as it stands.*Call the input "Price"'):
        whet.Task.of("Say {{Price ($)}}", data=rows, reward="exact_match")


@pytest.mark.parametrize(
    "text", ["%(input)s", "{{$input}}", "{input}", "${input}", "$input", "<input>", "[[input]]", "{input!r}"]
)
def test_a_placeholder_of_another_tool_is_warned_of(text: str) -> None:
    data = [{"input": f"q{n}", "target": "a"} for n in range(9)]
    (warning,) = whet.Task.of(f"Say {text} now.", data=data, reward="exact_match").warnings[:1]
    assert text in warning and "{{input}}" in warning


def test_tags_around_a_slot_are_ordinary_text() -> None:
    data = [{"input": f"q{n}", "target": "a"} for n in range(9)]
    for prompt in ("<input>\n{{input}}\n</input>", "Read <input>x</input>: {{input}}"):
        assert not [w for w in whet.Task.of(prompt, data=data, reward="exact_match").warnings if "slot" in w]


def test_an_input_that_is_the_target_is_warned_of_when_a_task_is_loaded() -> None:
    rows = [{"input": {"body": f"t{n}", "team": "AB"[n % 2]}, "target": "ab"[n % 2]} for n in range(20)]
    task = whet.Task.of("{{body}} {{team}}", data=rows, reward="exact_match")
    assert any(
        'The input "team" is equal to the target in 20 of 20 rows' in warning for warning in task.warnings
    )


class Kind(SimpleNamespace):
    """As a type of polars."""

    def __str__(self) -> str:
        return str(self.name)


class Frame(list[Any]):
    """As a data frame of polars: its rows hold plain numbers, and its schema says what they are."""

    columns = ("input", "target", "many", "deep")
    schema = {  # noqa: RUF012
        "input": Kind(name="String"),
        "target": Kind(name="Float32"),
        "many": Kind(name="List(Float32)", inner=Kind(name="Float32")),
        "deep": Kind(name="Struct", fields=[SimpleNamespace(name="a", dtype=Kind(name="Float32"))]),
    }

    def to_dicts(self) -> list[Any]:
        return list(self)


def test_the_schema_of_a_frame_says_how_many_bits_its_numbers_have() -> None:
    wide = float(np.float32(0.1))
    rows = [{"input": f"q{n}", "target": wide, "many": [wide], "deep": {"a": wide}} for n in range(9)]
    row = whet.Task.of("Say {{input}}", data=Frame(rows), reward="exact_match").train[0].row
    assert (row["target"], row["many"], row["deep"]) == (0.1, [0.1], {"a": 0.1})


@pytest.mark.parametrize(
    ("number", "kept"),
    [
        (2.0**53 - 1, "9007199254740991"),
        (2.0**53, "9007199254740992.0"),
        (6.02e23, "6.02e+23"),
        (-1e20, "-1e+20"),
    ],
)
def test_a_float_that_is_no_certain_whole_number_stays_one(number: float, kept: str) -> None:
    rows = [{"q": f"q{n}", "size": None if n == 3 else number, "target": number} for n in range(9)]
    task = whet.Task.of("Say {{q}} {{size}}", data=PandasFrame(rows), reward="number")
    assert {str(example.target) for example in task.test} == {kept}
    with pytest.warns(UserWarning, match="null"):
        score = whet.evaluate(task, lm=lambda messages: kept, progress=False).score
    assert score.mean == 1.0


class Table:
    """As a data frame."""

    columns = ("text", "label")

    def to_dict(self, orient: str) -> list[dict[str, Any]]:
        return [{"text": f"t{n}", "label": n % 2} for n in range(9)]


def test_columns_of_a_frame_that_look_like_the_target_are_no_input() -> None:
    with pytest.raises(UsageError, match='the column "label" would be an input'):
        whet.Task.of("Sort it.", data=Table(), reward=lambda example, output: 1.0)


class Image:
    """As that of `datasets`."""


class Pictures(list[Any]):
    """A data set with a column of images."""

    column_names = ("text", "picture")
    features = {"text": "string", "picture": Image()}  # noqa: RUF012


def test_a_column_of_images_is_refused_by_its_name() -> None:
    with pytest.raises(UsageError, match='the column "picture" holds images'):
        whet.Task.of("Say {{text}}", data=Pictures([{"text": "a"}]), reward="exact_match")


def test_a_number_of_milliseconds_is_no_year() -> None:
    for text in ("1732091400000", "1732091400", "1732091400.5"):
        with pytest.raises(UsageError, match="is no date"):
            microseconds(text)
    assert microseconds("20240131") == microseconds("2024-01-31")


def refuse_folders(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Let `fsync` fail for folders, as some file systems do."""
    real = os.fsync

    def fsync(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(number, os.strerror(number))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)


ROW = {"id": "1", "comment": "Be short.", "instruction": "Be short.", "user": "u"}


def test_a_folder_that_cannot_be_synced_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_folders(monkeypatch, errno.EINVAL)
    path = tmp_path / "p.md"
    path.write_text("Answer {{input}}")
    assert whet.learn(str(path), [ROW]).status == "written" and "Be short." in path.read_text()
    assert Blobs(tmp_path / "blobs").write(b"x")


def test_a_broken_disk_is_reported_as_what_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_folders(monkeypatch, errno.EIO)
    path = tmp_path / "p.md"
    path.write_text("Answer {{input}}")
    with pytest.raises(StorageError, match="the new text is in place, and the disk may not keep it"):
        whet.learn(str(path), [ROW])
    assert "Be short." in path.read_text()


def test_errors_name_a_setting_as_python_gives_it() -> None:
    data = [{"input": f"q{n}", "target": "a"} for n in range(9)]
    with pytest.raises(UsageError) as error:
        whet.Task.of("{{input}} is {{mask}}", data=data, reward="exact_match")
    assert str(error.value).endswith("Give labels=[...], or `labels:` in the task.yaml of a folder.")


def test_columns_without_a_target_say_how_they_are_mapped_and_which_slot_is_misspelt(tmp_path: Path) -> None:
    table = tmp_path / "tickets.csv"
    table.write_text("Nr,Customer text,Team\n" + "".join(f"{n},My screen {n},IT\n" for n in range(20)))
    call: dict[str, Any] = {"data": str(table), "reward": "exact_match"}
    with pytest.raises(whet.UsageError) as raised:
        whet.Task.of("Route: {{Customer txt}}", **call)
    words = str(raised.value)
    assert "All its columns are input: Nr, Customer text, Team." in words
    assert "`whet init FOLDER --from FILE --input COLUMN --target COLUMN` do so." in words
    assert 'No column fills the slot {{Customer txt}}. Did you mean "Customer text"?' in words
    assert "--input COLUMN --target COLUMN" in words
    with pytest.raises(
        whet.UsageError, match=r"input: Nr, Customer text, Team\. Call the column with the right"
    ):
        whet.Task.of("Route it.", **call)
