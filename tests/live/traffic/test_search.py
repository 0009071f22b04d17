"""Pages of feedback and inferences: every filter against plain Python, cursors, words, and the use of indexes."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import event

from whet.errors import UsageError
from whet_client.records import Feedback, Inference
from whet_live.database import Database
from whet_live.traffic.search import Filter, StoredFeedback
from whet_live.traffic.traffic_store import Traffic

DAY = 86_400_000_000
NOON = 1_750_000_000_000_000
TEXTS = (
    "the total is wrong",
    "Wrong tone!",
    "too long, don't",
    "naïve 漢字 total",
    'say "total"',
    "a_b wrong",
)


def fill(database: Database) -> Traffic:
    """A store with 300 comments and thumbs about 40 inferences of 3 prompts."""
    rng = random.Random(7)
    store = Traffic(database)
    asked = [
        Inference(
            prompt=rng.choice(["a", "a/b", "c_d"]), version=rng.randrange(1, 4), id=f"i{k}", user=rng.choice("uv"),
            session=rng.choice("st"), episode=rng.choice("ef"), time=NOON + rng.randrange(5) * DAY,
        )
        for k in range(40)
    ]  # fmt: skip
    said = [
        Feedback(
            kind=rng.choice(["comment", "thumb", "follow_up"]), target=f"i{rng.randrange(44)}", value=1.0, id=f"f{k}",
            text=rng.choice(TEXTS), user=rng.choice("uvw"), source=rng.choice(["user", "annotator"]),
            time=NOON + rng.randrange(5) * DAY,
        )
        for k in range(300)
    ]  # fmt: skip
    store.add(asked, [replace(one, value=None) if one.kind == "comment" else one for one in said])
    return store


@pytest.fixture(scope="module")
def traffic(database_to_read: Database) -> Traffic:
    """A filled store that tests only read."""
    return fill(database_to_read)


def everything(traffic: Traffic, wanted: Filter, limit: int) -> list[StoredFeedback]:
    """All pages, one after the other."""
    found: list[StoredFeedback] = []
    cursor = None
    while True:
        page = traffic.find(wanted, limit, cursor)
        assert len(page.rows) <= limit
        found += page.rows
        cursor = page.next
        if cursor is None:
            return found


def holds(row: StoredFeedback, wanted: Filter) -> bool:
    """The filter, in plain Python."""
    said = row.feedback
    pairs = (
        (wanted.prompt, row.prompt), (wanted.version, row.version), (wanted.user, said.user), (wanted.kind, said.kind),
        (wanted.source, said.source),
    )  # fmt: skip
    return (
        all(value is None or value == found for value, found in pairs)
        and (wanted.since is None or said.time >= wanted.since)
        and (wanted.until is None or said.time < wanted.until)
        and (wanted.text is None or wanted.text in (said.text or "").casefold())
    )


@pytest.mark.parametrize("seed", range(12))
def test_every_filter_finds_what_plain_python_finds(traffic: Traffic, seed: int) -> None:
    rng = random.Random(seed)
    rows = everything(traffic, Filter(), 1000)
    assert len(rows) == 300
    wanted = Filter(
        prompt=rng.choice([None, "a", "a/b", "c_d", "", "none"]),
        version=rng.choice([None, None, 1, 2]),
        user=rng.choice([None, None, "u", "w"]),
        kind=rng.choice([None, "comment", "follow_up"]),
        source=rng.choice([None, None, "annotator"]),
        since=rng.choice([None, NOON + DAY]),
        until=rng.choice([None, NOON + 4 * DAY]),
        text=rng.choice([None, "total", "wrong"]),
    )
    found = everything(traffic, wanted, rng.choice([1, 7, 50]))
    expected = [row for row in rows if holds(row, wanted)]
    by_arrival = wanted.text is not None and traffic.database.dialect == "sqlite"
    newest_first = (lambda row: row.seq) if by_arrival else (lambda row: (row.feedback.time, row.seq))
    assert found == sorted(expected, key=newest_first, reverse=True)


def test_pages_stay_apart_while_rows_arrive(database: Database) -> None:
    traffic = fill(database)
    before = everything(traffic, Filter(), 1000)
    page = traffic.find(Filter(), 100)
    traffic.add((), [Feedback(kind="thumb", target="i1", value=1.0)])
    rest: list[StoredFeedback] = []
    cursor = page.next
    while cursor is not None:
        more = traffic.find(Filter(), 100, cursor)
        rest, cursor = rest + more.rows, more.next
    assert page.rows + rest == before


@pytest.mark.parametrize(
    ("said", "count"),
    [
        ("TOTAL", 3), ("total wrong", 1), ("don't", 1), ("漢字", 1), ("naïve", 1), ('"total"', 3), ("a_b", 1), ("!!", 0),
        ("", 0), ("total OR tone", 0), ("text:total NEAR(x)", 0), ("tot*", 0), ("'; DROP TABLE feedback; --", 0),
        ("-- wrong", 3), ("{a} ^wrong", 1),
    ],
)  # fmt: skip
def test_words_are_found_and_nothing_is_syntax(traffic: Traffic, said: str, count: int) -> None:
    rows = everything(traffic, Filter(text=said), 100)
    assert len({row.feedback.text for row in rows}) == count


def test_words_between_signs_are_found(database: Database) -> None:
    store = Traffic(database)
    text = (
        "It is wrong.Please and/or order-123 file.txt /usr/bin/env 12.50 2026-11-28 v1.2.3 me@example.org -5 a_b "
        "https://example.org/x?y=1 100% it's"
    )
    store.add(
        (), [Feedback("comment", "i", text=one, id=key) for key, one in (("signs", text), ("none", "Else"))]
    )
    words = [
        "wrong",
        "please",
        "WRONG.Please",
        "or",
        "and/or",
        "123",
        "order-123",
        "file",
        "txt",
        "usr",
        "12",
        "50",
        "12.50",
    ]
    words += [
        "28",
        "2026-11-28",
        "v1",
        "example",
        "me@example.org",
        "5",
        "-5",
        "a_b",
        "b",
        "https://example.org/x?y=1",
        "it's",
    ]
    for word in words:
        assert [row.feedback.id for row in store.find(Filter(text=word)).rows] == ["signs"], word


def test_an_accent_is_found_however_it_was_written(database: Database) -> None:
    store = Traffic(database)
    sent = {
        "composed": "Un caf\u00e9 na\u00efve",
        "decomposed": "un cafe\u0301 nai\u0308ve",
        "plain": "un cafe naive",
    }
    store.add((), (Feedback("comment", "i", text=text, id=key) for key, text in sent.items()))
    for asked in ("caf\u00e9", "cafe\u0301", "CAFE\u0301 nai\u0308ve", "na\u00efve cafe\u0301"):
        found = {row.feedback.id for row in store.find(Filter(text=asked)).rows}
        assert found == {"composed", "decomposed"}, asked


def test_a_word_inside_a_sentence_without_blanks_is_found(database: Database) -> None:
    store = Traffic(database)
    texts = {
        "greeting": "你好，今天天气很好",
        "weather": "明天的天气也好",
        "english": "today is fine",
        "both": "The refund 今天来了",
        "thai": "วันนี้อากาศดีมาก",
        "percent": "今%天",
    }
    store.add((), (Feedback("comment", "i", text=text, id=key) for key, text in texts.items()))
    wanted = {
        "你好": {"greeting"},
        "今天": {"greeting", "both"},
        "天气 今天": {"greeting"},
        "今天 REFUND": {"both"},
        "refund 今天": {"both"},
        "อากาศ": {"thai"},
        "今_天": set(),
        "昨天": set(),
    }
    for text, keys in wanted.items():
        assert {row.feedback.id for row in store.find(Filter(text=text)).rows} == keys, text
    pages, cursor = [], None
    while cursor is not None or not pages:
        pages.append(store.find(Filter(text="天气"), 1, cursor))
        cursor = pages[-1].next
    assert {row.feedback.id for page in pages for row in page.rows} == {"greeting", "weather"}


def test_a_text_that_no_database_keeps_is_refused(traffic: Traffic) -> None:
    for wanted in (Filter(text="a\x00b"), Filter(prompt="\ud800"), Filter(user="\x00")):
        with pytest.raises(UsageError, match="is no text"):
            traffic.find(wanted)


@pytest.mark.parametrize("cursor", ["", "1", "x.y", "1.2.3", f"{2**63}.1", "1.-1", "1;2"])
def test_a_cursor_that_is_none_is_refused(traffic: Traffic, cursor: str) -> None:
    with pytest.raises(UsageError, match="is no cursor"):
        traffic.find(Filter(), 10, cursor)
    with pytest.raises(UsageError, match="is no cursor"):
        traffic.inferences(Filter(), 10, cursor)


def test_inferences_are_found_by_their_fields(traffic: Traffic) -> None:
    rows = traffic.inferences(Filter(), 1000).rows
    assert len(rows) == 40
    assert rows == sorted(rows, key=lambda row: (row.inference.time, row.seq), reverse=True)
    for wanted in (
        Filter(prompt="a", version=2),
        Filter(user="u", session="s"),
        Filter(episode="e", since=NOON + DAY),
    ):
        found = traffic.inferences(wanted, 1000).rows
        assert found
        assert found == [
            row for row in rows
            if all(
                value is None or getattr(row.inference, name) == value
                for name in ("prompt", "version", "user", "session", "episode")
                for value in [getattr(wanted, name)]
            ) and row.inference.time >= (wanted.since or 0)
        ]  # fmt: skip


def test_the_unreviewed_are_those_that_no_annotator_saw(traffic: Traffic) -> None:
    seen = {row.about for row in everything(traffic, Filter(source="annotator"), 1000)}
    found = traffic.inferences(Filter(unreviewed=True), 1000).rows
    assert {row.seq for row in found} == {row.seq for row in traffic.inferences(Filter(), 1000).rows} - seen


@pytest.mark.parametrize(
    ("wanted", "index"),
    [
        (Filter(), "ix_feedback_time_seq"),
        (Filter(kind="comment"), "ix_feedback_kind_time_seq"),
        (Filter(prompt="a"), "ix_feedback_prompt_time_seq_version"),
        (Filter(prompt="a", version=1), "ix_feedback_prompt_time_seq_version"),
        (Filter(prompt="a", kind="comment", version=1), "ix_feedback_prompt_kind_time_seq_version"),
        (Filter(user="u"), "ix_feedback_user_time_seq_prompt_kind"),
        (Filter(since=NOON, until=NOON + DAY), "ix_feedback_time_seq"),
        (Filter(text="total", prompt="a"), "feedback_words"),
    ],
)
def test_every_filter_has_its_index(sqlite_url: str, wanted: Filter, index: str) -> None:
    from whet_live.database import open_database

    traffic = Traffic(open_database(sqlite_url))
    plans: list[str] = []

    def explain(connection: Any, cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if statement.startswith("SELECT") and "LIMIT" in statement:
            raw = connection.connection.cursor()
            plans.extend(row[3] for row in raw.execute(f"EXPLAIN QUERY PLAN {statement}", parameters))

    engine = traffic.database._engine
    event.listen(engine, "before_cursor_execute", explain)
    traffic.find(wanted, 50, "1750000000000000.5")
    event.remove(engine, "before_cursor_execute", explain)
    said = "\n".join(plans)
    assert index in said
    assert "SCAN feedback\n" not in f"{said}\n" and "TEMP B-TREE" not in said
    traffic.database.close()


def test_signs_are_found_and_letters_that_stand_for_several(database: Database) -> None:
    store = Traffic(database)
    texts = {
        "thumb": "👎 bad emoji",
        "percent": "100% wrong",
        "bigger": "viel größer",
        "street": "Straße",
        "STREET": "STRASSE",
        "fine": "a \ufb01ne ligature",
    }
    store.add((), (Feedback("comment", "i", text=text, id=key) for key, text in texts.items()))
    wanted = {
        "👎": {"thumb"},
        "👎 bad": {"thumb"},
        "👎 wrong": set(),
        "%": {"percent"},
        "_": set(),
        "GRÖSSER": {"bigger"},
        "strasse": {"street", "STREET"},
        "straße": {"street", "STREET"},
        "fine": {"fine"},
        " ": set(),
    }
    for text, keys in wanted.items():
        assert {row.feedback.id for row in store.find(Filter(text=text)).rows} == keys, text


def test_a_capital_i_with_a_dot_is_found_alike_in_every_database(database: Database) -> None:
    store = Traffic(database)
    texts = {
        "City": "\u0130stanbul is far",
        "CITY": "\u0130ZM\u0130R",
        "plain": "istanbul",
        "sign": "\u00c4PFEL\U0001f44e",
    }
    store.add((), (Feedback("comment", "i", text=text, id=key) for key, text in texts.items()))
    wanted = {
        "\u0130stanbul": {"City", "plain"},
        "istanbul": {"City", "plain"},
        "ISTANBUL": {"City", "plain"},
        "izmir": {"CITY"},
        "\u0131stanbul": set(),
        "\u00e4pfel\U0001f44e": {"sign"},
    }
    for text, keys in wanted.items():
        assert {row.feedback.id for row in store.find(Filter(text=text)).rows} == keys, text
