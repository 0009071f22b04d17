"""Queries on DuckDB by what they return, and attacks by queries: each earns 0 and says why."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from tests.rewards.verifiers.grading import grade

from whet.errors import UsageError

duckdb = pytest.importorskip("duckdb")
SETUP = "create table t (a int, b text); insert into t values (1, 'x'), (2, 'y'), (3, null);"
SPEC: dict[str, Any] = {"setup": SETUP, "engine": "duckdb", "timeout": 2}


@pytest.mark.parametrize(
    ("query", "target", "value"),
    [
        ("from t", "select * from t", 1.0),
        ("```sql\nSELECT a AS z, b FROM t ORDER BY a DESC;\n```", "select * from t", 1.0),
        ("select a * 1.0, b from t", "select * from t", 1.0),
        ("select a from t", "select * from t", 0.0),
        ("select * from t where a < 3", "select * from t", 0.0),
        ("select 1 / 3", "select 0.3333333333", 1.0),
        ("select list(a order by a) from t", "select [1, 2, 3]", 1.0),
        ("select list(a order by -a) from t", "select [1, 2, 3]", 0.0),
        ("select {'a': 1, 'b': date '2024-02-29'}", "select {'a': 1, 'b': cast('2024-02-29' as date)}", 1.0),
        ("select sum(a) from t", "select 6.0::decimal(9, 2)", 1.0),
        (
            "from t pivot (count(*) for b in ('x', 'y'))",
            "select a, (b = 'x')::int, (b = 'y')::int from t",
            0.0,
        ),
        ("select a, count(*) over () from t qualify a > 1", "values (2, 3), (3, 3)", 1.0),
    ],
)
async def test_the_rows_count(query: str, target: str, value: float) -> None:
    assert (await grade({"sql": SPEC}, query, {}, target)).value == value


ATTACKS = {
    "file": ("select * from read_text('/etc/passwd')", "disabled by configuration"),
    "file by its name": ("select * from '/etc/passwd'", "refused"),
    "folder": ("select * from glob('/*')", "disabled by configuration"),
    "network": ("select * from 'https://example.com/t.csv'", "refused"),
    "copy": ("copy t to 'stolen.csv'", "asks for COPY"),
    "export": ("export database 'stolen'", "asks for EXPORT"),
    "attach": ("attach 'other.db' as y", "asks for ATTACH"),
    "extension": ("load httpfs", "asks for LOAD"),
    "setting": ("set enable_external_access = true", "asks for SET"),
    "pragma": ("pragma version", "asks for PRAGMA"),
    "insert": ("insert into t values (9, 'z') returning a", "asks for INSERT"),
    "drop": ("drop table t", "asks for DROP"),
    "two statements": ("select 1; drop table t", "not one query but 2"),
    "endless": ("select count(*) from range(100000000000) a, range(1000) b", "had not ended"),
    "endless rows": ("with recursive c(x) as (select 1 union all select x + 1 from c) from c", "larger than"),
    "huge value": ("select repeat('x', 4000000000)", "refused"),
    "huge memory": ("select list(range) from range(1000000000)", "refused"),
    "empty": ("", "not one query but 0"),
    "no query": ("selec", "syntax error"),
}


@pytest.mark.parametrize("attack", ATTACKS)
async def test_attacks_earn_nothing(attack: str, tmp_path: Path) -> None:
    query, says = ATTACKS[attack]
    with duckdb.connect(str(tmp_path / "d.db")) as database:
        database.execute(SETUP)
    before = (tmp_path / "d.db").read_bytes()
    options = {key: value for key, value in SPEC.items() if key != "setup"}
    graded = await grade({"sql": {**options, "database": "d.db"}}, query, {}, "from t", tmp_path)
    assert graded.value == 0.0 and says in str(graded.critique), graded.critique
    assert (tmp_path / "d.db").read_bytes() == before and [p.name for p in tmp_path.iterdir()] == ["d.db"]


async def test_little_memory_ends_no_process_before_its_time(tmp_path: Path) -> None:
    query, says = ATTACKS["endless"]
    graded = await grade({"sql": {**SPEC, "memory": 256, "timeout": 0.5}}, query, {}, "from t", tmp_path)
    assert says in str(graded.critique)


async def test_more_memory_than_allowed_is_refused_in_words_of_the_engine(tmp_path: Path) -> None:
    query = "select count(distinct random()) from range(50000000)"
    graded = await grade({"sql": {**SPEC, "memory": 64, "timeout": 60}}, query, {}, "from t", tmp_path)
    assert graded.value == 0.0 and "Out of Memory" in str(graded.critique), graded.critique


async def test_what_cannot_be_compared_with_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match="row7"):
        await grade({"sql": SPEC}, "select 1", {}, "select nothing from t")
    with pytest.raises(UsageError, match="DuckDB cannot open"):
        await grade({"sql": {**SPEC, "setup": "create tabel t"}}, "select 1", {}, "select 1")
    with pytest.raises(UsageError, match="sqlite or duckdb"):
        await grade({"sql": {**SPEC, "engine": "postgres"}}, "select 1", {}, "select 1")
    monkeypatch.setitem(sys.modules, "duckdb", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match="pip install duckdb"):
        await grade({"sql": SPEC}, "select 1", {}, "select 1")
