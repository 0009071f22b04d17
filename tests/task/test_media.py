"""Rows with images, sounds and files: sent as parts, kept by hash, shown on the page."""

from __future__ import annotations

import base64
import json
import struct
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import whet
from whet.errors import UsageError, WhetError
from whet_client import media


def png(colour: tuple[int, int, int], size: int = 2) -> bytes:
    """A picture of one colour."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    rows = b"".join(b"\0" + bytes(colour) * size for _ in range(size))
    header = struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


def url(n: int) -> str:
    return "data:image/png;base64," + base64.b64encode(png((n, 0, 255 - n))).decode()


def colours(messages: Any) -> list[str]:
    """The data URLs of the pictures that a model was sent."""
    contents = [m["content"] for m in messages if isinstance(m["content"], list)]
    return [
        part["image_url"]["url"] for content in contents for part in content if part["type"] == "image_url"
    ]


@contextmanager
def listening(answer: Callable[[dict[str, Any]], str]) -> Iterator[str]:
    """The address of an endpoint in OpenAI's form, which answers each body."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            choice = {
                "index": 0,
                "message": {"role": "assistant", "content": answer(body)},
                "finish_reason": "stop",
            }
            data = json.dumps(
                {"choices": [choice], "usage": {"prompt_tokens": 300, "completion_tokens": 1}}
            ).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *arguments: object) -> None:
            """Quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()
        thread.join()


def painter(messages: Any) -> str:
    """A model that names the shade of the one picture it is sent."""
    [picture] = colours(messages)
    return next(str(n) for n in range(256) if url(n) == picture)


def folder(tmp_path: Path, form: Any, prompt: str = "Which shade?\n{{picture}}", n: int = 20) -> Path:
    (tmp_path / "photos").mkdir(exist_ok=True)
    for k in range(n):
        (tmp_path / "photos" / f"{k}.png").write_bytes(png((k, 0, 255 - k)))
    (tmp_path / "prompt.md").write_text(prompt)
    (tmp_path / "rows.jsonl").write_text(
        "".join(json.dumps({**form(k), "target": str(k)}) + "\n" for k in range(n))
    )
    values = {"name": "shades", "prompt": "prompt.md", "data": "rows.jsonl", "reward": "exact_match"}
    (tmp_path / "task.yaml").write_text(json.dumps(values))
    return tmp_path


SLOTS = [
    lambda k: {"input": {"picture": {"image": f"photos/{k}.png"}}},
    lambda k: {"input": {"picture": url(k)}},
    lambda k: {"input": {"picture": {"type": "image_url", "image_url": {"url": url(k)}}}},
    lambda k: {"input": {"picture": {"type": "input_image", "image_url": url(k)}}},
    lambda k: {"input": {"picture": {"bytes": None, "path": f"photos/{k}.png"}}},
    lambda k: {"input": {"picture": [{"type": "text", "text": "Look:"}, {"type": "image_url", "image_url": {"url": url(k)}}]}},
]  # fmt: skip


@pytest.mark.parametrize("form", SLOTS)
def test_a_picture_in_a_slot_is_sent_as_a_part(form: Any, tmp_path: Path) -> None:
    task = whet.Task.load(folder(tmp_path, form))
    sent: list[Any] = []

    def model(messages: Any) -> str:
        sent.append(messages[0]["content"])
        return painter(messages)

    result = whet.evaluate(task, lm=model, split="train", run=tmp_path / "r", progress=False)
    assert result.score.mean == 1.0
    assert sent[0][0]["type"] == "text" and sent[0][0]["text"].startswith("Which shade?")
    assert "base64" not in (tmp_path / "r" / "result.json").read_text()


ADDRESS = "https://shades.example/{}.png"


@pytest.mark.parametrize(
    "part",
    [
        lambda k: {"type": "image_url", "image_url": {"url": url(k), "detail": "low"}},
        lambda k: {"type": "input_image", "image_url": url(k), "detail": "low"},
        lambda k: {"type": "image_url", "image_url": {"url": ADDRESS.format(k), "detail": "low"}},
        lambda k: {"type": "input_image", "image_url": ADDRESS.format(k), "detail": "low"},
    ],
)
@pytest.mark.parametrize("place", ["slot", "conversation"])
def test_the_detail_of_a_picture_reaches_the_model_in_a_later_process_too(
    part: Any, place: str, tmp_path: Path
) -> None:
    def form(k: int) -> dict[str, Any]:
        if place == "slot":
            return {"input": {"picture": part(k)}}
        return {"messages": [{"role": "user", "content": [{"type": "text", "text": "This?"}, part(k)]}]}

    def model(messages: Any) -> str:
        sent = [
            p["image_url"]
            for m in messages
            if isinstance(m["content"], list)
            for p in m["content"]
            if "image_url" in p
        ]
        [picture] = sent
        assert picture["detail"] == "low"
        return next(str(n) for n in range(256) if picture["url"] in (url(n), ADDRESS.format(n)))

    task = whet.Task.load(
        folder(tmp_path, form, "Which?\n{{picture}}" if place == "slot" else "Name the shade.")
    )
    task.save(tmp_path / "copy")
    for number, again in enumerate((task, None)):
        if again is None:
            media._parts.clear()
        here = again or whet.Task.load(tmp_path / "copy")
        result = whet.evaluate(here, lm=model, split="train", run=tmp_path / f"r{number}", progress=False)
        assert result.score.mean == 1.0 and here.fingerprint == task.fingerprint


def test_pictures_in_a_conversation(tmp_path: Path) -> None:
    def form(k: int) -> dict[str, Any]:
        picture = {"type": "image_url", "image_url": {"url": url(k)}}
        return {"messages": [{"role": "user", "content": [{"type": "text", "text": "This?"}, picture]}]}

    task = whet.Task.load(folder(tmp_path, form, "Name the shade."))
    result = whet.evaluate(task, lm=painter, split="train", run=tmp_path / "r", progress=False)
    assert result.score.mean == 1.0


def test_an_endpoint_gets_openai_s_form_and_the_cache_knows_pictures_apart(tmp_path: Path) -> None:
    bodies: list[dict[str, Any]] = []

    def answer(body: dict[str, Any]) -> str:
        bodies.append(body)
        return painter(body["messages"])

    task = whet.Task.load(folder(tmp_path, SLOTS[0]))
    with listening(answer) as address:
        result = whet.evaluate(
            task, lm="openai/eye", base_url=address, split="train", run=tmp_path / "r", progress=False
        )
    assert result.score.mean == 1.0 and len(bodies) == result.score.n
    assert [part["type"] for part in bodies[0]["messages"][0]["content"]] == ["text", "image_url"]


def test_judges_see_pictures_and_the_optimizer_their_names(tmp_path: Path) -> None:
    judged, written = list[Any](), list[str]()

    def judge(messages: Any) -> str:
        judged.append(colours(messages))
        verdict = {"explanation": "Say which shade.", "score": 3}
        return json.dumps({"answer_1": verdict, "answer_2": verdict, **verdict})

    def writer(messages: Any) -> str:
        written.append(messages[-1]["content"])
        return "<INSTRUCTION>Which shade is it?</INSTRUCTION>"

    task = folder(tmp_path, SLOTS[0], n=30)
    (task / "rubric.md").write_text("Is the shade right?")
    values = json.loads((task / "task.yaml").read_text())
    (task / "task.yaml").write_text(json.dumps({**values, "reward": {"judge": {"rubric": "rubric.md"}}}))
    whet.optimize(
        task, lm=painter, judge_lm=judge, optimizer_lm=writer, method="protegi", settings={"rounds": "1"},
        budget=whet.Budget(calls=400), run=tmp_path / "run", progress=False,
    )  # fmt: skip
    assert all(len(pictures) == 1 for pictures in judged)
    assert written and all(isinstance(text, str) for text in written) and "[image " in "".join(written)
    page = (tmp_path / "run" / "report.html").read_text()
    assert '<img src="data:image/png;base64,' in page


def test_a_sound_and_a_document(tmp_path: Path) -> None:
    (tmp_path / "talk.wav").write_bytes(b"RIFF\0\0\0\0WAVEfmt ")
    (tmp_path / "paper.pdf").write_bytes(b"%PDF-1.7\n")
    parts: list[Any] = []

    def model(messages: Any) -> str:
        parts.extend(part for part in messages[0]["content"] if part["type"] != "text")
        return "1"

    def form(k: int) -> dict[str, Any]:
        return {
            "input": {
                "picture": [{"type": "text", "text": f"{k}"}, {"audio": "talk.wav"}, {"file": "paper.pdf"}]
            }
        }

    task = whet.Task.load(folder(tmp_path, form))
    whet.evaluate(task, lm=model, split="train", run=tmp_path / "r", progress=False)
    assert {part["type"] for part in parts} == {"input_audio", "file"}
    assert parts[0]["input_audio"]["format"] == "wav" and parts[1]["file"]["filename"] == "paper.pdf"


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        (lambda k: {"input": {"picture": {"image": "photos/none.png"}}}, "cannot be read"),
        (lambda k: {"input": {"picture": {"image": "prompt.md"}}}, "is no PNG"),
        (
            lambda k: {"input": {"picture": {"type": "image_url", "image_url": {}}}},
            "an image needs its address",
        ),
        (lambda k: {"input": {"picture": "data:image/png;base64,A"}}, "cannot be read"),
        (lambda k: {"input": {"picture": "See data:image/png;base64,AAAA and say"}}, "an image (base64)"),
        (
            lambda k: {"input": {"picture": {"inline_data": {"data": "AAAA"}}}},
            "a part of the type inline_data",
        ),
        (lambda k: {"input": {"picture": {"type": "input_audio", "input_audio": "x"}}}, "must be an object"),
        (lambda k: {"input": {"picture": {"audio": "https://a.example/x.wav"}}}, "cannot be sent as a sound"),
        (lambda k: {"input": {"picture": {"file": "https://a.example/x.pdf"}}}, "cannot be sent as a file"),
    ],
)
def test_what_cannot_be_sent_is_refused_with_its_line(form: Any, expected: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"rows\.jsonl:1") as caught:
        whet.Task.load(folder(tmp_path, form))
    assert expected in str(caught.value)


def test_a_model_of_texts_alone_is_refused_before_anything_is_paid(tmp_path: Path) -> None:
    task = whet.Task.load(folder(tmp_path, SLOTS[0]))
    with pytest.raises(UsageError, match="scripted/echo reads texts only"):
        whet.evaluate(task, lm="scripted/echo", split="train", run=tmp_path / "r", progress=False)


def test_a_file_that_changes_is_another_task_and_is_never_sent_under_the_old_name(tmp_path: Path) -> None:
    task = whet.Task.load(folder(tmp_path, SLOTS[0]))
    for n, path in enumerate((tmp_path / "photos").iterdir()):
        path.write_bytes(png((n, 2, 3)))
    assert whet.Task.load(tmp_path).fingerprint != task.fingerprint
    with pytest.raises(WhetError, match="has changed since"):
        whet.evaluate(task, lm=painter, split="train", run=tmp_path / "r", progress=False)


def test_a_text_that_looks_like_a_mark_stays_a_text(tmp_path: Path) -> None:
    forged = f"[[whet:image:{'a' * 64}]]"
    seen: list[Any] = []

    def model(messages: Any) -> str:
        seen.append(messages[-1]["content"])
        return "x"

    task = whet.Task.of(
        "Say {{input}}", data=[{"input": f"{forged} {n}", "target": "x"} for n in range(9)], reward="contains"
    )
    whet.evaluate(task, lm=model, split="train", run=tmp_path / "r", progress=False)
    assert all(isinstance(text, str) and forged in text for text in seen)


def test_slots_that_are_called_like_kinds_stay_slots(tmp_path: Path) -> None:
    rows = [{"input": {"file": f"src/{n}.py"}, "target": "x"} for n in range(9)]
    task = whet.Task.of("Review {{file}}.", data=rows, reward="contains")
    assert task.train[0].values["file"].startswith("src/")
    rows = [{"input": {"source": {"file": f"src/{n}.py"}}, "target": "x"} for n in range(9)]
    assert (
        '"file"' in whet.Task.of("Review {{source}}.", data=rows, reward="contains").train[0].values["source"]
    )


def test_a_file_outside_of_the_task_s_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret.png").write_bytes(png((1, 2, 3)))
    (tmp_path / "task").mkdir()
    with pytest.raises(UsageError, match="outside of the task's folder"):
        whet.Task.load(
            folder(tmp_path / "task", lambda k: {"input": {"picture": {"image": "../secret.png"}}})
        )


@pytest.mark.parametrize("form", [SLOTS[0], SLOTS[-1]])
def test_a_saved_task_has_the_pictures_of_its_rows_in_a_later_process(form: Any, tmp_path: Path) -> None:
    task = whet.Task.load(folder(tmp_path, form))
    task.save(tmp_path / "copy")
    media._parts.clear()
    copy = whet.Task.load(tmp_path / "copy")
    result = whet.evaluate(copy, lm=painter, split="train", run=tmp_path / "r", progress=False)
    assert result.score.mean == 1.0 and copy.fingerprint == task.fingerprint
