"""Words in answers: every script, any case, composed or not; filters; pages that go on; nobody who is forgotten."""

from __future__ import annotations

import unicodedata

import pytest

from whet.errors import UsageError
from whet_client.records import Inference
from whet_live.database import Database
from whet_live.traffic import EVERYTHING, Filter, Traffic, answer_search

NOON = 1_750_000_000_000_000
TEXTS = {
    "de": "Die Straße ist gesperrt.",
    "ru": "Доставка завтра",
    "ja": "明日届きます。",
    "ar": "سيصل غدا",
    "th": "พรุ่งนี้มาถึง",
    "vi": unicodedata.normalize("NFD", "Giao hàng ngày mai"),
}


def fill(database: Database) -> Traffic:
    """A store with an answer in each of six languages."""
    found = Traffic(database)
    found.add([Inference("p", 1, {"q": [key]}, text, id=key, time=NOON) for key, text in TEXTS.items()])
    return found


@pytest.fixture(scope="module")
def traffic(database_to_read: Database) -> Traffic:
    """A filled store that tests only read."""
    return fill(database_to_read)


@pytest.mark.parametrize(
    ("words", "expected"),
    [("STRASSE", "de"), ("gesperrt straße", "de"), ("ДОСТАВКА", "ru"), ("届き", "ja"), ("غدا", "ar"), ("มาถึง", "th"),
     ("HÀNG", "vi"), ("vi", "vi")],
)  # fmt: skip
def test_words_of_every_script_are_found(traffic: Traffic, words: str, expected: str) -> None:
    assert [row.inference.id for row in traffic.search_answers(EVERYTHING, words).rows] == [expected]


def test_all_words_must_be_there(traffic: Traffic) -> None:
    assert traffic.search_answers(EVERYTHING, "straße доставка").rows == []
    assert len(traffic.search_answers(EVERYTHING, "").rows) == len(TEXTS)


def test_pages_go_on_behind_what_was_looked_at(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    traffic = fill(database)
    monkeypatch.setattr(answer_search, "LOOKED_AT", 4)
    monkeypatch.setattr(answer_search, "_BATCH", 2)
    many = [
        Inference("many", 1, {}, "even" if n % 2 else "odd", id=f"m{n}", time=NOON + n) for n in range(11)
    ]
    traffic.add(many)
    seen, looked, cursor = [], [], None
    while True:
        page = traffic.search_answers(Filter(prompt="many"), "even", 50, cursor)
        seen += [row.inference.id for row in page.rows]
        looked.append(page.looked)
        if (cursor := page.next) is None:
            break
    assert seen == ["m9", "m7", "m5", "m3", "m1"] and sum(looked) == 11 and max(looked) == 4


def test_filters_choose_before_words_do(database: Database) -> None:
    traffic = fill(database)
    traffic.add(
        [
            Inference("p", 2, {}, "x", id="one", model="m", user="u", session="s", time=NOON + 5),
            Inference("p", 2, {}, "x", id="two", model="n", error="down", episode="e", time=NOON + 6),
        ]
    )

    def ids(**wanted: object) -> list[str]:
        return [row.inference.id for row in traffic.search_answers(Filter(**wanted), "x").rows]  # type: ignore[arg-type]

    assert ids() == ["two", "one"]
    assert (
        ids(model="m")
        == ids(user="u")
        == ids(session="s")
        == ids(failed=False)
        == ids(until=NOON + 6)
        == ["one"]
    )
    assert ids(failed=True) == ids(episode="e") == ids(since=NOON + 6) == ["two"]
    assert ids(version=1) == []


def test_a_cursor_that_is_none_is_refused(traffic: Traffic) -> None:
    with pytest.raises(UsageError, match="no cursor"):
        traffic.search_answers(EVERYTHING, "x", 5, "yesterday")
