"""Queries by what they return, and attacks by queries: each earns 0 and is message."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from tests.rewards.verifiers.grading import grade

from whet._util.confined import is_enforced
from whet.errors import UsageError

SETUP = "create table t (a int, b text); insert into t values (1, 'x'), (2, 'y'), (3, null);"
SPEC: dict[str, Any] = {"setup": SETUP, "timeout": 0.5, "memory": 128}
_ENDLESS = "with recursive c(x) as (select 1 union all select x + 1 from c)"


@pytest.mark.parametrize(
    ("query", "value"),
    [
        ("select * from t", 1.0),
        ("```sql\nSELECT a AS z, b FROM t ORDER BY a DESC;\n```", 1.0),
        ("select a * 1.0, b from t", 1.0),
        ("select a, b from t union all select 3, null", 0.0),
        ("select a from t", 0.0),
        ("select b, a from t", 0.0),
        ("select * from t where a < 3", 0.0),
    ],
)
async def test_the_rows_count(query: str, value: float) -> None:
    assert (await grade({"sql": SPEC}, query, {}, "select * from t")).value == value


@pytest.mark.parametrize(
    ("query", "target", "value"),
    [
        ("select round(-0.001, 1)", "select 0.0", 1.0),
        ("select -0.0", "select 0", 1.0),
        ("select 12345678901.0", "select 12345678901", 1.0),
        ("select 1234567.125 union all select 2.5", "select 2.5 union all select 1234567.1250000001", 1.0),
        ("select 0.333333333", "select 1 / 3.0", 1.0),
        ("select 12345678902", "select 12345678901", 0.0),
        ("select 9007199254740992", "select 9007199254740993", 0.0),
        ("select 999999999.0", "select 999999998", 0.0),
        ("select 1e308 * 10", "select 1e308 * 100", 1.0),
        ("select 1e308 * 10", "select 1e308", 0.0),
        ("select -1e308 * 10", "select 1e308 * 10", 0.0),
        ("select 0.0", "select null", 0.0),
        ("select '1'", "select 1.0", 0.0),
    ],
)
async def test_numbers_are_equal_to_nine_digits_and_whole_numbers_exactly(
    query: str, target: str, value: float
) -> None:
    assert (await grade({"sql": SPEC}, query, {}, target)).value == value


async def test_a_right_query_without_rows_is_marked() -> None:
    right = await grade({"sql": SPEC}, "select 1 where 0", {}, "select a from t where a > 99")
    assert (right.value, right.parts) == (1.0, {"empty_result": 1.0})
    assert (await grade({"sql": SPEC}, "select a from t", {}, "select a from t")).parts == {}
    assert (await grade({"sql": SPEC}, "select a from t", {}, "select a from t where a > 99")).parts == {}


async def test_order_counts_where_it_is_asked_for() -> None:
    spec = {"sql": {**SPEC, "ordered": True}}
    assert (await grade(spec, "select a from t order by a", {}, "select a from t order by a")).value == 1.0
    assert "order" in str(
        (await grade(spec, "select a from t order by -a", {}, "select a from t order by a")).critique
    )


ATTACKS = {
    "attach": ("attach '/etc/passwd' as p", "ATTACH"),
    "vacuum into": ("vacuum into '/tmp/whet-stolen.db'", "ATTACH"),
    "pragma": ("pragma writable_schema = 1", "PRAGMA"),
    "pragma as a table": ("select * from pragma_table_info('t')", "refused"),
    "insert": ("insert into t values (9, 'z')", "INSERT"),
    "drop": ("drop table t", "refused: it may only read"),
    "extension": ("select load_extension('libc.so.6')", "FUNCTION"),
    "files": ("select readfile('/etc/passwd')", "refused"),
    "two statements": ("select 1; drop table t", "one statement"),
    "endless": (f"{_ENDLESS} select count(*) from c", "had not ended"),
    "endless rows": (f"{_ENDLESS} select x from c", "larger than"),
    "huge value": ("select zeroblob(1000000000)", "too big"),
    "huge memory": (
        "with recursive c(x) as (select randomblob(900000) union select randomblob(900000) from c) select count(*) from c",
        "refused",
    ),
    "deep": ("select " + "(" * 5000 + "1" + ")" * 5000, "refused"),
    "empty": ("", "no query"),
}


@pytest.mark.parametrize("attack", ATTACKS)
async def test_attacks_earn_nothing(attack: str, tmp_path: Path) -> None:
    query, says = ATTACKS[attack]
    with sqlite3.connect(tmp_path / "d.db") as database:
        database.executescript(SETUP)
    database.close()
    before = (tmp_path / "d.db").read_bytes()
    options = {key: value for key, value in SPEC.items() if key != "setup"}
    graded = await grade({"sql": {**options, "database": "d.db"}}, query, {}, "select * from t", tmp_path)
    assert graded.value == 0.0 and says in str(graded.critique), graded.critique
    assert (tmp_path / "d.db").read_bytes() == before and [p.name for p in tmp_path.iterdir()] == ["d.db"]


@pytest.mark.skipif(not is_enforced(), reason="files cannot be denied here")
async def test_a_file_other_than_the_database_cannot_be_opened(tmp_path: Path) -> None:
    from whet._util.confined import Limits, run_confined
    from whet.rewards.verifiers import sql

    with sqlite3.connect(tmp_path / "d.db") as database:
        database.executescript(SETUP)
    database.close()
    question = {
        "database": str(tmp_path / "d.db"),
        "setup": "",
        "seconds": 1,
        "rows": 9,
        "query": "select 1",
        "target": "select a from t",
    }
    result = run_confined(sql._PROCESS, question, Limits(2))
    assert "fault" in result["target"] or "setup" in result["target"]
    assert "rows" in run_confined(sql._PROCESS, question, Limits(2), readable=[tmp_path / "d.db"])["target"]


async def test_what_cannot_be_compared_with_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="row7"):
        await grade({"sql": SPEC}, "select 1", {}, "select nothing from t")
    with pytest.raises(UsageError, match="database"):
        await grade("sql", "select 1", {}, "select 1")
    with pytest.raises(UsageError, match=r"no file .*none\.db"):
        await grade({"sql": {"database": "none.db"}}, "select 1", {}, "select 1", tmp_path)
    with pytest.raises(UsageError, match="cannot open"):
        await grade({"sql": {"setup": "create tabel t"}}, "select 1", {}, "select 1")
