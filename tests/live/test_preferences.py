"""What people preferred among live answers: thumbs, ratings, corrections and choices as rows, and the command that reads them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.command_line import whet_here

from whet.errors import UsageError
from whet.feedback.preferences import read_preferences
from whet_client.ids import microseconds
from whet_client.records import Feedback, Inference
from whet_live import open_live, preference_rows


def fill(url: str, n: int = 40) -> None:
    """Two answers to each question: people like the one with marks, and say so in four ways."""
    with open_live(url) as live:
        for i in range(n):
            loud, quiet = (
                Inference(
                    "shop/help", 1, {"question": f"q{i}"}, f"word {i % 5}{end}", id=f"{name}{i}", user="bob"
                )
                for name, end in (("a", "!!!"), ("b", ""))
            )
            said = [
                [Feedback("thumb", loud.id, 1.0), Feedback("thumb", quiet.id, 0.0)],
                [Feedback("rating", loud.id, 5.0), Feedback("rating", quiet.id, 2.0)],
                [Feedback("choice", loud.id, 1.0, label=quiet.id, user="ann")],
                [Feedback("correction", quiet.id, text=f"word {i % 5}!!!")],
            ][i % 4]
            live.traffic.add([loud, quiet], said)
        live.traffic.add(
            [Inference("shop/other", 1, {"question": "q"}, "x", id="c")],
            [
                Feedback("thumb", "c", 1.0),
                Feedback("thumb", "a1", 0.0, source="code"),
                Feedback("comment", "a2", text="Hm."),
            ],
        )


def test_every_kind_of_judgement_becomes_a_pair(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/w.db"
    fill(url)
    with open_live(url) as live:
        rows = preference_rows(live.traffic, "shop/help")
        with pytest.raises(UsageError, match="No answer of shop/nothing was judged"):
            preference_rows(live.traffic, "shop/nothing")
    read = read_preferences(rows)
    assert not read.dropped and not read.judged.labels
    assert len(read.judged.pairs) == 40
    assert all(pair.better.endswith("!!!") and not pair.worse.endswith("!") for pair in read.judged.pairs)
    assert {pair.person for pair in read.judged.pairs} == {"ann", "bob"}


def test_of_the_thumbs_of_one_person_the_last_is_a_row(tmp_path: Path) -> None:
    with open_live(f"sqlite:///{tmp_path}/w.db") as live:
        thumbs = (("ann", 0.0), ("bob", 0.0), ("ann", 1.0))
        said = [
            Feedback("thumb", "a", value, user=user, time=microseconds("2026-01-05") + n, id=f"t{n}")
            for n, (user, value) in enumerate(thumbs)
        ]
        live.traffic.add([Inference("shop/help", 1, {"question": "q"}, "x", id="a")], said)
        rows = preference_rows(live.traffic, "shop/help")
    assert [(row["user"], row["value"]) for row in rows] == [("bob", 0.0), ("ann", 1.0)]


def test_the_command_reads_a_live_database(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    fill(f"sqlite:///{tmp_path}/w.db")
    (tmp_path / "prompt.md").write_text("Answer.\n\n{{question}}\n")
    done = whet_here(
        tmp_path, "learn", "preferences", "prompt.md", "--from", f"sqlite:///{tmp_path}/w.db", "--live-prompt",
        "shop/help", "--lm", "scripted/echo", "--dry-run", "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["pairs"], said["inputs"], said["people"], said["accuracy"]["value"]) == (40, 40, 2, 1.0)
