"""Models that paint: the request, refusals, prices; pictures kept by hash, shown to a judge and on the page, found again."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.command_line import whet_here
from tests.task.test_media import png

import whet
from whet._util.media import keep_images_in, keep_painted
from whet.engine.cache import decode_completions, encode_completions
from whet.errors import ProviderError, UsageError
from whet.models.addresses import check_base_url, resolve
from whet.models.prices import Price
from whet.rewards.program import load_grading, program_of_file
from whet.run import MemoryRun
from whet.types import Completion, Example, Message, Request, Usage
from whet_client import media


@contextmanager
def painting(answer: Callable[[str, dict[str, Any]], tuple[int, dict[str, Any]]]) -> Iterator[str]:
    """The address of an endpoint that answers each path and body with a status and a JSON value."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status, value = answer(self.path, body)
            data = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            return None

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()


def picture(n: int) -> dict[str, str]:
    return {"b64_json": base64.b64encode(png((n, 0, 0))).decode()}


def request(n: int = 1) -> Request:
    return Request((Message("system", "Paint."), Message("user", "a red boat")), n=n)


async def ask(base_url: str, n: int = 1, **options: Any) -> list[Completion]:
    model = resolve("images/openai/brush", base_url=base_url, options=options)
    try:
        return await model.generate(request(n))
    finally:
        await model.close()


async def test_the_texts_go_to_the_image_endpoint_and_marks_of_the_pictures_come_back() -> None:
    seen: list[Any] = []

    def answer(path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        seen.append((path, body))
        return 200, {"data": [picture(7), picture(8)], "usage": {"input_tokens": 9, "output_tokens": 1000}}

    with painting(answer) as url:
        first, second = await ask(url, 2, extra_body={"size": "512x512"})
    assert seen == [
        (
            "/v1/images/generations",
            {
                "model": "brush",
                "prompt": "Paint.\n\na red boat",
                "n": 2,
                "response_format": "b64_json",
                "size": "512x512",
            },
        )
    ]
    assert media.count_marks(first.text) == 1 and first.text != second.text
    content = media.content_of(second.text)
    assert isinstance(content, list)
    assert content[0]["image_url"]["url"].endswith(picture(8)["b64_json"])
    assert (first.usage, second.usage) == (Usage(9, 1000, pictures=1), Usage(pictures=1))


async def test_a_refused_response_format_is_left_out_and_an_endpoint_without_usage_is_estimated() -> None:
    bodies: list[dict[str, Any]] = []

    def answer(path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        bodies.append(body)
        if "response_format" in body:
            return 400, {"error": {"message": "Unknown parameter: 'response_format'."}}
        return 200, {"data": [picture(9)]}

    with painting(answer) as url:
        model = resolve("images/openai/brush", base_url=url)
        with pytest.raises(ProviderError) as refused:
            await model.generate(request())
        assert refused.value.retryable and refused.value.retry_after == 0
        (answered,) = await model.generate(request())
        await model.close()
    assert "response_format" not in bodies[1]
    assert answered.usage.estimated and answered.usage.pictures == 1


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"data": [{"url": "http://127.0.0.1:1/secret.png"}]}, "fetches none from an address"),
        ({"data": []}, "holds no pictures"),
        ({"data": [{"b64_json": base64.b64encode(b"plain text").decode()}]}, "no PNG"),
    ],
)
async def test_answers_without_a_picture_end_the_run(value: dict[str, Any], why: str) -> None:
    with painting(lambda path, body: (200, value)) as url, pytest.raises(ProviderError, match=why) as failed:
        await ask(url)
    assert failed.value.fatal


async def test_a_filter_is_an_answer_without_a_picture() -> None:
    error = {
        "error": {"message": "Your request was rejected by the safety system.", "code": "content_filter"}
    }
    with painting(lambda path, body: (400, error)) as url:
        (answered,) = await ask(url)
    assert answered.finish == "content_filter" and answered.answered and not answered.text


def test_addresses() -> None:
    with pytest.raises(UsageError, match="images/openai/gpt-image-1"):
        resolve("images/brush")
    with pytest.raises(UsageError, match="images/openai/gpt-image-1"):
        resolve("images/embedded/brush")
    check_base_url("images/ollama/brush", "http://localhost:1/v1")


def test_pictures_are_priced_and_recorded() -> None:
    assert Price(0.0, 0.0, picture=0.04).most(Usage(1, 1, pictures=3)) == pytest.approx(0.12)
    usage = Usage(3, 4, 1, pictures=1)
    assert decode_completions(encode_completions([Completion("x", usage=usage)])) == [
        Completion("x", usage=usage)
    ]


def test_a_run_pays_by_picture_the_judge_sees_pictures_and_a_later_process_finds_them(tmp_path: Path) -> None:
    """The judge likes red pictures, and the painter paints red when it is asked to."""
    paths: list[str] = []

    def answer(path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        paths.append(path)
        if path.endswith("/images/generations"):
            return 200, {"data": [{"b64_json": RED if "in red" in body["prompt"] else BLUE}]}
        parts = body["messages"][-1]["content"]
        urls = [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]
        score = {RED: 5, BLUE: 1}[urls[0].partition("base64,")[2]] if len(urls) == 1 else 3
        text = json.dumps({"explanation": "Too blue.", "score": score})
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
        return 200, {"choices": [choice], "usage": {"prompt_tokens": 9, "completion_tokens": 9}}

    rows = [{"id": f"r{i}", "input": f"boat number {i}"} for i in range(20)]
    one, other = (
        whet.Task.of("Paint it in red.", data=rows, reward={"judge": {"rubric": rubric}})
        for rubric in ("It must be red.", "It must be very red.")
    )
    with painting(answer) as url:
        painter = {"address": "images/openai/brush", "base_url": url}
        painter["price"] = {"input": 0, "output": 0, "picture": 0.5}  # type: ignore[assignment]
        judge = {"address": "openai/eye", "base_url": url, "price": {"input": 0, "output": 0}}
        how: Any = {"lm": painter, "judge_lm": judge, "root": tmp_path / "runs", "split": "test"}
        first = whet.evaluate(one, **how)
        media._parts.clear()  # as in a later process
        media._folders.clear()
        again = whet.evaluate(other, **how)
    assert first.score.mean == 1.0
    assert first.usage.cost_usd == pytest.approx(0.5 * 6)
    files = list(tmp_path.rglob("images/*"))
    assert [file.read_bytes() for file in files] == [base64.b64decode(RED)]
    assert again.score.mean == 1.0 and again.usage.cost_usd == 0.0
    assert sum(path.endswith("/images/generations") for path in paths) == 6


RED, BLUE = (base64.b64encode(png(c)).decode() for c in ((255, 0, 0), (0, 0, 255)))


def test_a_cached_answer_whose_picture_is_gone_is_asked_again(tmp_path: Path) -> None:
    keep_images_in(tmp_path)
    mark = keep_painted(png((1, 2, 3), size=3))
    assert mark is not None and not media.lacks_image(mark)
    digest = mark.rpartition(":")[2].strip("]")
    media._parts.pop(digest)
    assert media.count_marks(mark) == 1, "read again from the folder"
    media._parts.pop(digest)
    (tmp_path / digest).unlink()
    assert media.lacks_image(mark) and media.count_marks(mark) == 0


def test_the_example_runs_on_any_machine_and_shows_its_pictures(tmp_path: Path) -> None:
    example = Path(__file__).parents[2] / "examples" / "painting"
    arguments = ("--method", "opro", "--max-calls", "900", "--set", "steps=4", "--out", "run", "--json")
    done = whet_here(tmp_path, "optimize", str(example), *arguments)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["best"]["test"]["mean"] > result["baseline"]["test"]["mean"]
    page = (tmp_path / "run" / "report.html").read_text()
    assert 'src="data:image/svg+xml;base64,' in page and "simulated" in page.lower()


async def test_a_reward_with_a_parameter_pictures_gets_their_files_here_and_in_a_worker(
    tmp_path: Path,
) -> None:
    (tmp_path / "reward.py").write_text(
        "def reward(example, output, pictures):\n    return sum(map(len, pictures)) / 1000\n"
    )
    reward = program_of_file(tmp_path, "reward.py", "task.yaml:4", 0.0, 1.0)
    files = [png((1, 2, 3)), png((4, 5, 6))]
    marks = [keep_painted(file) for file in files]
    for output, expected in ((f"{marks[0]} {marks[1]}", sum(map(len, files)) / 1000), ("<svg/>", 0.0)):
        graded = await reward.grade(MemoryRun(), Example("1", {"input": "w"}), Completion(output))
        work = reward.job(Example("1", {"input": "w"}), output).make_work()
        apart: Any = load_grading(**json.loads(json.dumps(work.arguments)))()
        assert graded.value == apart["value"] == expected
