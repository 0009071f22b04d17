"""Answers that a team shares in PostgreSQL: what the suite of caches asks for, and what only happens where machines share."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.postgres import state_url  # noqa: F401 - fixtures
from whet.engine import shared_cache
from whet.engine.cache import Cache
from whet.engine.shared_cache import SharedCache, open_cache
from whet.engine.state_place import StateDatabase
from whet.testing.storages import CacheConformance, Storage
from whet_client.ids import new_id


def database(address: str) -> StateDatabase:
    return StateDatabase(address, "the database")


def stored(address: str) -> bytes | None:
    """What another machine finds under `key`."""
    cache = SharedCache(database(address))
    try:
        return cache.get("key")
    finally:
        cache.close()


class TestSharedCache(CacheConformance):
    """The cache of a team in a real PostgreSQL."""

    @pytest.fixture(autouse=True)
    def server(self, postgres: Any, postgres_admin: Any) -> Iterator[None]:
        self.server, self.admin = postgres, postgres_admin
        self.made: list[str] = []
        yield
        for name in self.made:
            postgres_admin.execute(f"DROP DATABASE {name} WITH (FORCE)")

    def place(self) -> str:
        self.made.append(f"c{new_id().replace('-', '')}")
        self.admin.execute(f"CREATE DATABASE {self.made[-1]} STRATEGY file_copy")
        return str(self.server.get_uri(self.made[-1]))

    def open(self, place: Any) -> Storage:
        return SharedCache(database(place))

    def damage(self, place: Any) -> None:
        import psycopg

        with psycopg.connect(place, autocommit=True) as connection:
            connection.execute("CREATE SCHEMA whet_state; CREATE VIEW whet_state.answers AS SELECT 1 AS one")


async def test_what_is_asked_in_one_turn_is_one_question(
    state_url: str,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = SharedCache(database(state_url))
    for i in range(20):
        first.put(f"k{i}", str(i).encode())
    first.close()
    asked: list[list[str]] = []
    find = shared_cache._Line.find
    monkeypatch.setattr(
        shared_cache._Line, "find", lambda line, keys: asked.append(sorted(keys)) or find(line, keys)
    )
    second = SharedCache(database(state_url))
    found = await asyncio.gather(*[second.find(f"k{i}") for i in (*range(20), 3, 99)])
    assert [None if one is None else one[0] for one in found] == [
        *(str(i).encode() for i in range(20)),
        b"3",
        None,
    ]
    assert len(asked) == 1 and len(asked[0]) == 21
    made = found[0]
    assert made is not None and made[1] is not None and made[1] > 1e9
    second.close()


async def test_who_gives_up_waiting_takes_no_answer_from_others(state_url: str) -> None:  # noqa: F811
    cache = SharedCache(database(state_url))
    cache.put("key", b"1")
    cache.close()
    waiting = [asyncio.create_task(cache.find("key")) for _ in range(2)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    found = await waiting[1]
    assert found is not None and found[0] == b"1"
    cache.close()


async def test_fresh_answers_take_the_place_of_old_ones(state_url: str) -> None:  # noqa: F811
    for fresh, value in ((False, b"old"), (True, b"new"), (False, b"late")):
        cache = SharedCache(database(state_url), fresh)
        assert not fresh or await cache.find("key") is None
        cache.put("key", value)
        cache.close()
    assert stored(state_url) == b"new"


def test_a_database_that_comes_back_gets_what_it_missed(
    state_url: str,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cache, closed = SharedCache(database(state_url)), "postgresql://ann:secret@127.0.0.1:1/team"
    with monkeypatch.context() as patch:
        patch.setattr(
            StateDatabase, "check", lambda self: {"host": "127.0.0.1", "port": "1", "password": "s"}
        )
        assert cache.get("key") is None
        cache.put("key", b"1")
        cache.flush()
        assert cache._batch is not None
        cache._batch.result()
        assert "refused" in cache.problem and "secret" not in cache.problem
        cache.flush()
    cache.close()
    assert stored(state_url) == b"1"
    away = SharedCache(StateDatabase(closed, "postgresql://ann@127.0.0.1:1/team"))
    away.put("key", b"1")
    away.close()
    assert "refused" in away.problem and "secret" not in away.problem


def test_the_cache_lies_where_state_lies(
    state_url: str,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert isinstance(open_cache(tmp_path), Cache)
    monkeypatch.setenv("WHET_STATE", state_url)
    shared = open_cache(tmp_path)
    assert isinstance(shared, SharedCache)
    assert isinstance(open_cache(tmp_path, local=True), Cache), "local models share nothing"
    shared.close()
