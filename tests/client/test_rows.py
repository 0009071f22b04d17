"""Answers and feedback on their way: batches, a server that is down or refuses, the spool, exits and forks."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import threading
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.client.conftest import TOKEN, Server, World

from whet.errors import UsageError
from whet_client import Client, new_id
from whet_client.client import feedback_of
from whet_client.http import HttpReply, Unavailable
from whet_client.sender import MOST_ROWS, Sender
from whet_client.spool import Spool, claim

NOWHERE = "http://127.0.0.1:9"


class Line:
    """Requests to a world, which may be down."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.down = False
        self.asked = threading.Semaphore(0)

    def __call__(self, method: str, path: str, headers: Any, body: bytes | None) -> HttpReply:
        try:
            if self.down:
                raise Unavailable("The server is down.")
            given = {"Authorization": f"Bearer {TOKEN}", **headers}
            status, found, content = self.world.answer(method, path, given, body or b"")
            return HttpReply(status, {key.lower(): value for key, value in found.items()}, content)
        finally:
            self.asked.release()


def row(number: int, **more: Any) -> dict[str, Any]:
    """A row of feedback."""
    return {"kind": "copy", "target": "i", "value": 1.0, "id": f"f{number}", **more}


def test_rows_go_out_in_batches_and_arrive_whole(server: Server, world: World) -> None:
    world.put("p", "Hi {{x}}", 2)
    with Client(server.url, TOKEN, timeout=60, spool=None) as client:
        prompt = client.prompt("p", user="u", session="s")
        ids = [client.log(prompt, f"out {n}", inputs={"x": n}, cost=0.1, latency=0.5) for n in range(1200)]
        said = [client.feedback(id, rating=4, comment="Nice.", copy=True) for id in ids[:100]]
        assert client.flush(60)
    assert list(world.inferences) == ids
    first = world.inferences[ids[0]]
    assert (first.prompt, first.version, first.user, first.session, first.inputs) == (
        "p",
        2,
        "u",
        "s",
        {"x": 0},
    )
    assert (first.experiment, first.cost, first.latency) == (None, 0.1, 0.5)
    assert set(world.feedback) == {id for row in said for id in row}
    assert {(one.kind, one.value, one.text) for one in world.feedback.values()} == {
        ("rating", 4.0, "Nice."), ("copy", 1.0, None),
    }  # fmt: skip
    assert len([path for method, path, _ in world.requests if method == "POST"]) <= 12
    assert client.tally.sent == 1400


def test_answers_and_feedback_in_turns_are_two_requests(server: Server, world: World) -> None:
    with Client(server.url, TOKEN, timeout=60, spool=None) as client:
        for number in range(100):
            client.feedback(client.log("p", f"out {number}"), thumb="up")
        assert client.flush(60)
    assert list(world.inferences) == [one.target for one in world.feedback.values()]
    assert client.tally.sent == 200 and len(world.requests) <= 4


def test_rows_of_the_other_kind_do_not_wait_again(world: World) -> None:
    line = Line(world)
    sender = Sender(line, NOWHERE, None, 1 << 30, 3600.0)
    for number in range(MOST_ROWS // 2):
        sender.put("inferences", {"id": f"i{number}", "prompt": "p"})
        sender.put("feedback", row(number))
    assert line.asked.acquire(timeout=60) and line.asked.acquire(timeout=60)
    assert len(world.inferences) == len(world.feedback) == MOST_ROWS // 2
    sender.close(30)


def test_an_assignment_is_logged_with_the_answer(server: Server, world: World) -> None:
    arms = [{"version": 1, "weight": 1.0}]
    world.put("p", "x", 1)
    world.experiments = [
        {"id": "x1", "salt": "s", "unit": "episode", "revision": 3, "label": "production", "arms": arms}
    ]
    with Client(server.url, TOKEN, timeout=60, spool=None) as client:
        id = client.log(client.prompt("p", episode="e"), "out")
        client.log("p", "by name", version=9, id="mine")
    assert (world.inferences[id].experiment, world.inferences[id].variant) == ("x1", "3")
    assert (world.inferences[id].episode, world.inferences["mine"].version) == ("e", 9)


@pytest.mark.parametrize(
    ("said", "rows"),
    [
        ({"thumb": "down", "comment": "Odd."}, [("thumb", 0.0, "Odd.", None, None)]),
        ({"thumb": True}, [("thumb", 1.0, None, None, None)]),
        ({"comment": "Odd."}, [("comment", None, "Odd.", None, None)]),
        ({"correction": "So.", "comment": "Odd."},
         [("correction", None, "So.", None, None), ("comment", None, "Odd.", None, None)]),
        ({"label": "wrong", "explanation": "Why", "name": "m"}, [("label", None, "Why", "wrong", "m")]),
        ({"score": 0.5, "name": "tone"}, [("score", 0.5, None, None, "tone")]),
        ({"choice": 1, "over": "j"}, [("choice", 1.0, None, "j", None)]),
        ({"dwell": 12.5, "regenerate": 2, "abandon": None},
         [("dwell", 12.5, None, None, None), ("regenerate", 2.0, None, None, None)]),
    ],
)  # fmt: skip
def test_feedback_by_keywords(world: World, said: dict[str, Any], rows: list[tuple[Any, ...]]) -> None:
    with Client(NOWHERE, spool=None, send=Line(world)) as client:
        ids = client.feedback("i", user="u", source="annotator", metadata={"k": 1}, **said)
    assert [(f.kind, f.value, f.text, f.label, f.name) for f in world.feedback.values()] == rows
    assert list(world.feedback) == ids
    assert {(f.target, f.user, f.source, f.metadata["k"]) for f in world.feedback.values()} == {
        ("i", "u", "annotator", 1)
    }


def test_feedback_is_about_exactly_one_thing(world: World) -> None:
    with Client(NOWHERE, spool=None, send=Line(world)) as client:
        client.feedback(episode="e", thumb=1, id="key")
        client.feedback(session="s", rating=2, correction="x", id="other")
        for wrong in ({}, {"inference": "i", "episode": "e"}):
            with pytest.raises(UsageError, match="Name exactly one"):
                client.feedback(**wrong, thumb=1)
    assert {(id, one.target_kind) for id, one in world.feedback.items()} == {
        ("key", "episode"), ("other", "session"), ("other#1", "session"),
    }  # fmt: skip


def test_what_cannot_be_is_refused_at_the_call(world: World) -> None:
    client = Client(NOWHERE, spool=None, send=Line(world))
    for said, reason in (
        ({"rating": 6}, "value must be a number from 1 to 5"), ({"thumbs": 1}, 'Did you mean "thumb"'),
        ({}, "says nothing"), ({"rating": 3, "source": "boss"}, "source"), ({"label": ""}, "label"),
        ({"choice": 1, "label": "j"}, "choice=1, over="), ({"thumb": 1, "over": "j"}, "choice and over go together"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=reason):
            client.feedback("i", **said)
    for more, reason in (
        ({"modle": "m"}, 'Did you mean "model"'),
        ({"cost": -1}, "cost"),
        ({"version": "x"}, "version"),
    ):
        with pytest.raises(UsageError, match=reason):
            client.log("p", "out", **more)
    client.close()
    assert not world.inferences and not world.feedback


def test_inputs_and_metadata_that_are_too_long_are_cut_and_said(world: World) -> None:
    with Client(NOWHERE, spool=None, send=Line(world)) as client:
        pages = {"question": "Why?", "pages": ["\n" * 200_000, "b" * 300_000]}
        cut = client.log("p", "", inputs=pages, metadata={"trace": "t" * 20_000, "step": 3})
        numbers = client.log("p", "", inputs={"ids": list(range(100_000))})
    row = world.inferences[cut]
    assert len(json.dumps(row.inputs)) <= 256_000 and row.inputs["question"] == "Why?"
    assert [len(set(page)) for page in row.inputs["pages"]] == [1, 1]
    assert row.metadata["cut"] == ["inputs", "metadata"] and row.metadata["step"] == 3
    assert world.inferences[numbers].inputs["json"].startswith('{"ids": [0, 1, 2,')
    assert world.inferences[numbers].metadata == {"cut": ["inputs"]}


def test_a_blank_user_session_or_episode_is_none(world: World) -> None:
    """An app passes `user=""` for somebody who has not signed in: all of them are not one user."""
    with Client(NOWHERE, spool=None, send=Line(world)) as client:
        id = client.log("p", "out", user="", session=" ", episode="e", model="")
        (thumb,) = client.feedback(id, thumb="up", user="")
    row = world.inferences[id]
    assert (row.user, row.session, row.episode, row.model) == (None, None, "e", None)
    assert world.feedback[thumb].user is None


def test_long_texts_are_cut_and_said(world: World) -> None:
    with Client(NOWHERE, spool=None, send=Line(world)) as client:
        id = client.log("p", "a\x00" * 300_000, metadata={"k": 1})
        client.feedback(id, comment="b" * 40_000)
    assert len(world.inferences[id].output) == 256_000
    assert world.inferences[id].metadata == {"k": 1, "cut": ["output"], "cleaned": ["output"]}
    assert [(len(one.text), one.metadata) for one in world.feedback.values()] == [(32_000, {"cut": ["text"]})]


@pytest.mark.parametrize(
    ("text", "kept", "marks"),
    [
        ("a\x00b", "ab", {"cleaned": ["output"]}),
        ("a\ud800b", "a\ufffdb", {"cleaned": ["output"]}),
        ("\ud83d\ude00", "😀", {"cleaned": ["output"]}),
        ("é?", "é?", {}),
    ],
)
def test_what_no_database_keeps_is_taken_out_and_said(
    world: World, text: str, kept: str, marks: dict[str, list[str]]
) -> None:
    with Client(NOWHERE, spool=None, send=Line(world)) as client:
        id = client.log("p", text)
        client.feedback(id, comment=text)
    assert (world.inferences[id].output, world.inferences[id].metadata) == (kept, marks)
    (said,) = world.feedback.values()
    assert (said.text, said.metadata) == (kept, {mark: ["text"] for mark in marks})


def test_rows_that_the_server_refuses_do_not_hold_up_the_others(world: World) -> None:
    sender = Sender(Line(world), NOWHERE, None, 1_000_000, 10.0)
    world.taken, world.beyond = {"f7", "f70"}, {"f9"}
    for number in range(100):
        sender.put("feedback", row(number, kind="shrug") if number == 50 else row(number))
    assert sender.flush(60)
    sender.close(1)
    assert set(world.feedback) == {f"f{n}" for n in range(100)} - {"f7", "f70", "f50", "f9"}
    assert (sender.tally.sent, sender.tally.refused, sender.tally.lost) == (96, 4, 0)


def test_of_two_rows_with_one_id_in_a_batch_the_first_is_stored(world: World) -> None:
    sender = Sender(Line(world), NOWHERE, None, 1_000_000, 10.0)
    world.taken = {"f3"}
    for number, value in [(1, 1.0), (2, 1.0), (1, 0.0), (3, 1.0), (3, 0.0), (1, 1.0)]:
        sender.put("feedback", row(number, value=value))
    assert sender.flush(60)
    sender.close(1)
    assert {key: one.value for key, one in world.feedback.items()} == {"f1": 1.0, "f2": 1.0}
    assert (sender.tally.sent, sender.tally.refused) == (3, 3), "the same row again is no other row"


def test_of_a_malformed_row_and_a_good_one_with_its_id_the_good_one_is_stored(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.names_rows = True
    sender = Sender(Line(world), NOWHERE, None, 1_000_000, 10.0)
    for one in (row(1, kind="shrug"), row(1), row(2), row(2, kind="shrug"), row(3)):
        sender.put("feedback", one)
    assert sender.flush(60)
    sender.close(1)
    assert set(world.feedback) == {"f1", "f2", "f3"}
    assert (sender.tally.sent, sender.tally.refused) == (3, 2)
    assert "shrug" in caplog.text and [status for _, _, status in world.requests] == [400, 200]


def test_rows_that_the_server_names_are_left_out_at_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """One more request, not a search by halves; each reason stands in the log."""
    world.names_rows = True
    sender = Sender(Line(world), NOWHERE, None, 1_000_000, 10.0)
    for number in range(100):
        sender.put("feedback", row(number, kind="shrug") if number in (3, 50) else row(number))
    assert sender.flush(60)
    sender.close(1)
    assert set(world.feedback) == {f"f{n}" for n in range(100)} - {"f3", "f50"}
    assert (sender.tally.sent, sender.tally.refused) == (98, 2)
    assert [status for _, _, status in world.requests] == [400, 200]
    assert "feedback[3]" in caplog.text and "feedback[50]" in caplog.text


@pytest.mark.parametrize(("value", "number"), [("up", 1.0), ("thumbs_down", 0.0), (False, 0.0), (1, 1.0)])
def test_a_thumb_is_a_word_or_a_number(value: Any, number: float) -> None:
    assert feedback_of({"thumb": value}, "inference", "x")[0].value == number


def test_what_is_no_thumb_is_refused_with_what_one_is() -> None:
    with pytest.raises(UsageError, match='"up" or "down", true or false, 1 or 0'):
        feedback_of({"thumb": "sideways"}, "inference", "x")


@pytest.mark.parametrize("status", [401, 403, 404, 429, 500, 503, 302])
def test_rows_wait_while_the_server_cannot_take_them(world: World, status: int) -> None:
    line = Line(world)
    sender = Sender(line, NOWHERE, None, 1_000_000, 0.0)
    world.broken = status
    sender.put("feedback", row(1))
    assert line.asked.acquire(timeout=60)
    assert not sender.flush(0.0)
    world.broken = 0
    sender.put("feedback", row(2))
    assert sender.flush(60)
    assert set(world.feedback) == {"f1", "f2"} and sender.tally.refused == 0
    sender.close(1)


def test_memory_is_bounded_and_what_is_beyond_it_goes_to_the_spool(world: World, tmp_path: Path) -> None:
    line = Line(world)
    line.down = True
    sender = Sender(line, NOWHERE, Spool(tmp_path, NOWHERE, 10**7), 20_000, 0.0)
    for number in range(2000):
        sender.put("feedback", row(number))
    assert sender._bytes <= 20_000
    assert sender.tally.spooled > 1000 and sender.tally.lost == 0
    line.down = False
    assert sender.flush(60)
    sender.close(1)
    later = Sender(line, NOWHERE, Spool(tmp_path, NOWHERE, 10**7), 20_000, 0.0)
    later.put("feedback", row(5000))
    later.close(30)
    later._thread.join(30) if later._thread else None
    assert set(world.feedback) == {f"f{n}" for n in (*range(2000), 5000)}
    assert Spool(tmp_path, NOWHERE, 1).waiting() == []


def test_without_a_spool_what_is_lost_is_counted(world: World) -> None:
    line = Line(world)
    line.down = True
    sender = Sender(line, NOWHERE, None, 10_000, 0.0)
    for number in range(1000):
        sender.put("feedback", row(number))
    sender.close(0.0)
    assert sender.tally.lost == 1000 and sender.tally.sent == 0


def test_rows_that_come_back_while_the_sender_ends_are_counted_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server is found to be down, and in that moment, before the next attempt, the app ends."""
    line = Line(world)
    line.down = True
    sender = Sender(line, NOWHERE, None, 10_000, 0.0)
    monkeypatch.setattr("whet_client.sender.log.warning", lambda *_: sender.close(0.0))
    sender.put("feedback", row(1))
    assert sender._thread is not None
    sender._thread.join(60)
    assert sender.tally.lost == 1


def test_rows_that_come_back_find_memory_full_and_go_to_the_spool(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were under way while others filled the memory."""
    line, begun, filled, told = Line(world), threading.Event(), threading.Event(), threading.Event()
    line.down = True

    def slow(*given: Any) -> HttpReply:
        begun.set()
        assert filled.wait(60)
        return line(*given)

    sender = Sender(slow, NOWHERE, Spool(tmp_path, NOWHERE, 10**7), 2_000, 0.0)
    monkeypatch.setattr("whet_client.sender.log.warning", lambda *_: told.set())
    sender.put("feedback", row(0, text="x" * 1_000))
    assert begun.wait(60)
    number = 0
    while sender._bytes < 1_900:
        number += 1
        sender.put("feedback", row(number))
    filled.set()
    assert told.wait(60)
    assert sender._bytes <= 2_000 and sender.tally.spooled > 0 and sender.tally.lost == 0
    line.down = False
    assert sender.flush(60)
    sender.close(1)
    assert set(world.feedback) == {f"f{n}" for n in range(number + 1)}


def test_the_spool_is_private_bounded_and_says_what_had_no_room(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "a" / "spool", NOWHERE, 100)
    lines = [("feedback", json.dumps(row(n)).encode()) for n in range(3)]
    assert spool.write(lines) == 2
    (path,) = spool.waiting()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    with claim(path) as first, claim(path) as second:
        assert first is not None and [json.loads(line[1]) for line in first if line] == [row(0)]
        assert second is None
    assert spool.write(lines) == 3
    with path.open("ab") as file:
        file.write(b'{"kind": "feedback", "row": {"cut o')
    with claim(path) as found:
        assert found is not None and len(found) == 1
    path.unlink()
    with claim(path) as gone:
        assert gone is None
    assert Spool(tmp_path, "http://other", 100).waiting() == []


def test_damaged_rows_of_the_spool_are_counted_and_said(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spool = Spool(tmp_path, NOWHERE, 10**7)
    spool.write([("feedback", json.dumps(row(n)).encode()) for n in range(3)])
    (path,) = spool.waiting()
    whole = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(whole[0] + b"\x00\x00\n" + whole[2] + whole[1][:20])
    sender = Sender(Line(world), NOWHERE, spool, 1_000_000, 3600.0)
    sender.put("feedback", row(3))
    assert sender.flush(60)
    sender.close(60)
    assert set(world.feedback) == {"f0", "f2", "f3"}
    assert sender.tally.lost == 1 and "1 rows for" in caplog.text and "damaged" in caplog.text


def test_the_name_of_a_file_in_the_spool_is_as_durable_as_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool, synced, sync = Spool(tmp_path / "spool", NOWHERE, 1000), [], os.fsync

    def watched(descriptor: int) -> None:
        names = [path.name for path in spool.waiting()]
        synced.append((os.fstat(descriptor).st_ino, names))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    spool.write([("feedback", b"{}")])
    (path,) = spool.waiting()
    assert synced[0] == (path.stat().st_ino, [])
    assert synced[1:] == [
        (folder.stat().st_ino, [path.name]) for folder in (spool.folder, spool.folder.parent)
    ]


def test_a_spool_that_cannot_be_written_loses_rows_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    client = Client(NOWHERE, spool=tmp_path / "file")
    client.feedback("i", thumb=1)
    client.close(0.2)
    assert client.tally.lost == 1 and "1 rows for" in caplog.text


def test_a_row_that_another_thread_reports_during_the_end_is_kept(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything is sent, and in the next moment, before the sender is closed, there is one more."""
    spool = Spool(tmp_path, NOWHERE, 10**7)
    sender = Sender(Line(world), NOWHERE, spool, 1_000_000, 3600.0)
    drain = sender._drain

    def drained(timeout: float, patient: bool) -> bool:
        done = drain(timeout, patient)
        sender.put("feedback", row(2))
        return done

    monkeypatch.setattr(sender, "_drain", drained)
    sender.put("feedback", row(1))
    sender.close(60)
    assert set(world.feedback) == {"f1"} and sender.tally.spooled == 1
    with claim(spool.waiting()[0]) as lines:
        assert lines is not None and [json.loads(line[1])["id"] for line in lines if line] == ["f2"]


def test_what_earlier_processes_left_is_sent_again_after_a_failure_and_a_flush_waits_for_it(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A request with their rows is lost. They lay there until this process had another row; `flush` said that all was sent."""
    line, asked = Line(world), list[bytes]()

    def lossy(method: str, path: str, headers: Any, body: bytes | None) -> HttpReply:
        asked.append(body or b"")
        if len(asked) in (2, 3):
            raise Unavailable("The request was lost.")
        return line(method, path, headers, body)

    earlier = Spool(tmp_path, NOWHERE, 10**7)
    assert earlier.write([("feedback", json.dumps(row(1)).encode())]) == 0
    sender = Sender(lossy, NOWHERE, Spool(tmp_path, NOWHERE, 10**7), 1_000_000, 0.0)
    sender.put("feedback", row(2))
    assert sender.flush(60)
    assert list(world.feedback) == ["f2", "f1"] and len(asked) == 4
    assert "The request was lost. 0 rows and those of earlier processes wait." in caplog.text
    sender.close(60)
    assert earlier.waiting() == [] and sender.tally.sent == 2


def test_a_file_that_another_process_sends_meanwhile_does_not_spoil_the_spool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = Spool(tmp_path, NOWHERE, 1000)
    gone = spool.folder / "0.jsonl"
    monkeypatch.setattr(spool, "waiting", lambda: [gone])
    assert spool.write([("feedback", b"{}")]) == 0
    assert len(list(spool.folder.glob("*.jsonl"))) == 1


def test_rows_that_come_after_the_end_go_to_the_spool(world: World, tmp_path: Path) -> None:
    client = Client(NOWHERE, spool=tmp_path, send=Line(world))
    client.close()
    client.feedback("i", thumb=1)
    assert client.tally.spooled == 1


def run(program: str, *arguments: str, **environment: str) -> str:
    """What a program prints in a process of its own that ends normally."""
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=600,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


LOGS = """
import sys
from whet_client import Client
client = Client(sys.argv[1], "secret", timeout=60)
ids = [client.log("p", f"out {n}") for n in range(int(sys.argv[2]))]
print("\\n".join(ids))
"""


def test_nothing_is_lost_on_a_normal_exit(server: Server, world: World, tmp_path: Path) -> None:
    ids = run(LOGS, server.url, "700", XDG_STATE_HOME=str(tmp_path)).split()
    assert set(world.inferences) == set(ids) and len(ids) == 700
    assert not list(tmp_path.rglob("*.jsonl"))


def test_nothing_is_lost_on_a_normal_exit_while_the_server_is_down(world: World, tmp_path: Path) -> None:
    server = Server(world)
    server.stop()
    ids = run(LOGS, server.url, "30", XDG_STATE_HOME=str(tmp_path)).split()
    assert len(list(tmp_path.rglob("*.jsonl"))) == 1 and not world.inferences
    again = Server(world, server.server_address[1])
    ids += run(LOGS, again.url, "1", XDG_STATE_HOME=str(tmp_path)).split()
    again.stop()
    assert set(world.inferences) == set(ids) and len(ids) == 31
    assert not list(tmp_path.rglob("*.jsonl"))


FORKS = """
import os, sys
from whet_client import Client
client = Client(sys.argv[1], "secret", timeout=60, spool=None)
client.prompt("p")
client.log("p", "parent before", id="before")
child = os.fork()
client.prompt("p", fallback="x")
client.log("p", "after", id="child" if child == 0 else "parent")
client.close()
if child == 0:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""


def test_a_fork_has_a_client_of_its_own(server: Server, world: World) -> None:
    world.put("p", "x")
    run(FORKS, server.url)
    assert set(world.inferences) == {"before", "child", "parent"}
    sent = [path for method, path, _ in world.requests if method == "POST"]
    assert len(sent) in (2, 3)


CHILDREN = """
import multiprocessing, sys
from whet_client import Client

def report(url, name):
    made = Client(url, "secret", timeout=60, spool=None)
    for client in (clients + [made]):
        for n in range(3):
            client.log("p", "out", id=f"{name} {client is made} {n}")

def nest(url, name):
    report(url, name)
    child = multiprocessing.get_context("fork").Process(target=report, args=(url, name + " nested"))
    child.start(); child.join()

if sys.argv[2] == "before":
    clients = [Client(sys.argv[1], "secret", timeout=60, spool=None)]
else:
    clients = []
children = [multiprocessing.get_context("fork").Process(target=nest, args=(sys.argv[1], str(n))) for n in range(2)]
for child in children: child.start()
for child in children: child.join()
assert [child.exitcode for child in children] == [0, 0]
"""


@pytest.mark.parametrize("made", ["before", "in the child"])
def test_children_of_multiprocessing_send_what_they_reported_when_they_end(
    server: Server, world: World, made: str
) -> None:
    run(CHILDREN, server.url, made)
    kinds = (True, False) if made == "before" else (True,)
    names = [f"{name}{nested}" for name in "01" for nested in ("", " nested")]
    assert set(world.inferences) == {
        f"{name} {kind} {n}" for name in names for kind in kinds for n in range(3)
    }


DROPPED = """
import sys
from whet_client import Client

def report():
    Client(sys.argv[1], "secret", timeout=60, spool=None).log("p", "out", id="i")

report()
"""


def test_a_client_that_the_app_dropped_sends_its_rows_at_the_end(server: Server, world: World) -> None:
    run(DROPPED, server.url)
    assert set(world.inferences) == {"i"}


def test_a_connection_that_the_server_closed_is_made_anew(world: World) -> None:
    server = Server(world)
    world.put("p", "x")
    client = Client(server.url, TOKEN, timeout=60, spool=None)
    client.prompt("p")
    port = server.server_address[1]
    server.stop()
    again = Server(world, port)
    assert client.prompt("p", "production").version == 1
    client.log("p", "out", id="i")
    assert client.flush(60) and "i" in world.inferences
    client.close()
    again.stop()


def test_the_client_needs_the_standard_library_only() -> None:
    program = """
import sys
import whet_client
loaded = {name.split(".")[0] for name in sys.modules}
print(*sorted(loaded & {"numpy", "sqlalchemy", "orjson", "aiohttp", "yaml", "click", "torch"}))
print(*sorted(name for name in sys.modules if name.startswith("whet.") and name.split(".")[1] not in
              ("client", "prompt", "types", "errors", "storable", "version", "lazy")))
"""
    assert run(program).split() == []


def test_ids_sort_in_the_order_they_were_made() -> None:
    ids = [new_id() for _ in range(2000)]
    assert ids == sorted(set(ids)) and {id[14] for id in ids} == {"7"}


def test_numbers_of_other_libraries_are_numbers_and_one_that_no_float_holds_is_refused(
    server: Server, world: World
) -> None:
    world.put("p", "Hi", 2)
    with Client(server.url, TOKEN, timeout=60, spool=None) as client:
        answer = client.log(client.prompt("p"), "out", cost=Decimal("0.002"), input_tokens=np.int64(5))
        client.feedback(answer, rating=np.int64(4))
        client.feedback(answer, score=np.bool_(True), name="right")
        with pytest.raises(UsageError, match="must be a number from 1 to 5"):
            client.feedback(answer, rating=10**400)
        assert client.flush(60)
    kept = world.inferences[answer]
    assert (kept.cost, kept.input_tokens) == (0.002, 5)
    assert sorted((one.kind, one.value) for one in world.feedback.values()) == [
        ("rating", 4.0),
        ("score", 1.0),
    ]


def test_whatever_a_program_has_at_hand_is_logged_as_json(server: Server, world: World) -> None:
    @dataclass
    class Order:
        number: int
        placed: date

    world.put("p", "Hi", 2)
    around: dict[str, Any] = {
        "order": Order(10**30, date(2026, 1, 31)),
        "scores": (np.float32(0.5), float("nan")),
    }
    around |= {"self": around, "set": {2, 1}, "array": np.arange(2), "nul": "a\x00b", 7: "whole"}
    with Client(server.url, TOKEN, timeout=60, spool=None) as client:
        answer = client.log("p", "out", inputs=around, version=2)
        plain = client.log("p", "out", inputs={"a": [1, "b", None, 0.5, {"c": True}]}, version=2)
        assert client.flush(60)
    assert world.inferences[answer].inputs == {
        "order": {"number": str(10**30), "placed": "2026-01-31"}, "scores": [0.5, "nan"], "self": "…", "set": [1, 2],
        "array": [0, 1], "nul": "ab", "7": "whole",
    }  # fmt: skip
    assert world.inferences[answer].metadata == {"cleaned": ["inputs"]}
    assert world.inferences[plain].metadata == {}


def test_a_truth_value_is_no_number_of_stars(server: Server) -> None:
    with Client(server.url, TOKEN, timeout=60, spool=None) as client:
        for value in (True, False):
            with pytest.raises(UsageError, match=f"must be a number from 1 to 5; this is {value}"):
                client.feedback("i", rating=value)
