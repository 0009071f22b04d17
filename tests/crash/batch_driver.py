"""Kill an evaluation with `batch=True` by SIGKILL at every boundary, finish it, and compare with one that was never killed.

    python -m tests.crash.batch_driver BASE_URL FOLDER EVERY

A boundary is one of: before a commit of the journal, after it, before a request about a batch, after its answer, an answer to a
single call in hand. Prints one JSON object.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

import orjson

import whet
from whet.api import functions, running
from whet.engine import batched_calls
from whet.engine.journal import Journal
from whet.models.http import HttpClient
from whet.models.openai import OpenAIModel


class Boundaries:
    """Counts boundaries, and kills this process at one of them."""

    def __init__(self, number: int = 0) -> None:
        self.number, self.seen = number, list[str]()

    def pass_(self, name: str) -> None:
        self.seen.append(name)
        if len(self.seen) == self.number:
            os.kill(os.getpid(), signal.SIGKILL)


def install(boundaries: Boundaries) -> None:
    """Put the boundaries around commits, requests about batches and answers."""
    transact, generate, post, get = Journal._transact, OpenAIModel.generate, HttpClient.post, HttpClient.get

    def killing_transact(self: Journal, statements: list[Any]) -> None:
        boundaries.pass_("before commit")
        transact(self, statements)
        boundaries.pass_("after commit")

    async def killing_generate(self: OpenAIModel, request: Any) -> Any:
        answer = await generate(self, request)
        boundaries.pass_("answer in hand")
        return answer

    async def killing_post(self: HttpClient, url: str, *arguments: Any) -> Any:
        about_batches = not url.endswith("/chat/completions")
        if about_batches:
            boundaries.pass_(f"before POST {url.rpartition('/')[2]}")
        answer = await post(self, url, *arguments)
        if about_batches:
            boundaries.pass_(f"after POST {url.rpartition('/')[2]}")
        return answer

    async def killing_get(self: HttpClient, *arguments: Any) -> Any:
        answer = await get(self, *arguments)
        boundaries.pass_("after GET")
        return answer

    Journal._transact = killing_transact  # type: ignore[method-assign]
    OpenAIModel.generate = killing_generate  # type: ignore[method-assign]
    HttpClient.post = killing_post  # type: ignore[assignment,method-assign]
    HttpClient.get = killing_get  # type: ignore[assignment,method-assign]


def evaluate_once(task: Path, base_url: str, out: Path, boundaries: Boundaries) -> dict[str, Any]:
    """One evaluation in this process; its result and the boundaries that it passed."""
    install(boundaries)
    batched_calls.QUIET, batched_calls.FIRST_LOOK, batched_calls.LONGEST_LOOK = 0.2, 0.0, 0.0
    os.environ["WHET_STATE"] = str(out.with_name(f"{out.name}-state"))
    os.environ["OPENAI_API_KEY"] = "k"
    result = whet.evaluate(
        task, lm="openai/m", base_url=base_url, batch=True, run=str(out), progress=False
    ).to_dict()
    kept = {name: result[name] for name in ("score", "failed", "warnings")}
    kept["calls"] = result["usage"]["calls"]["task"]
    return {"result": kept, "seen": boundaries.seen}


def fork_once(report: Path, *arguments: Any) -> int:
    """Fork, evaluate, write the report; the exit status as `os.waitpid` gives it."""
    pid = os.fork()
    if pid:
        return os.waitpid(pid, 0)[1]
    try:
        report.write_bytes(orjson.dumps(evaluate_once(*arguments)))
        os._exit(0)
    except BaseException:
        report.with_suffix(".error").write_text(traceback.format_exc())
        os._exit(1)


def main() -> None:
    assert functions and running  # what they import is there for all children
    base_url, folder, every = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    task = folder / "task"
    reports: list[dict[str, Any]] = []
    seen: list[str] = []
    complete = 0  # sessions in a row that passed fewer boundaries than the number of their kill
    for number in range(0, 1000, every):
        if complete == 2:
            break
        name = f"kill-{number}"
        url, report = base_url.replace("/v1", f"/{name}/v1"), folder / f"{name}.json"
        killed = fork_once(report, task, url, folder / name, Boundaries(number))
        again = fork_once(report, task, url, folder / name, Boundaries()) if number else killed
        error = report.with_suffix(".error")
        found: dict[str, Any] = (
            orjson.loads(report.read_bytes()) if again == 0 else {"error": error.read_text()}
        )
        seen = seen or list(found["seen"])
        place = seen[number - 1] if 0 < number <= len(seen) else ""
        complete = complete + 1 if number and not os.WIFSIGNALED(killed) else 0
        reports.append({"name": name, "place": place, "killed": os.WIFSIGNALED(killed), **found})
    print(orjson.dumps(reports).decode())


if __name__ == "__main__":
    main()
