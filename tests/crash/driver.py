"""Kill a run with SIGKILL at every boundary, finish it, and compare with a run that was never killed.

    python -m tests.crash.driver METHOD BASE_URL FOLDER EVERY SETTINGS

A boundary is one of: before a journal commit, after it, an answer in hand that is not recorded yet. One process
forks a child for each, so that an exhaustive sweep costs little. Prints one JSON object.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

import orjson

from whet import api
from whet.engine.journal import Journal
from whet.methods import get_method
from whet.models.openai import OpenAIModel
from whet.run import Budget

BOUNDARIES = ("before commit", "after commit", "answer in hand")


class Fuse:
    """Counts boundaries of each kind and kills this process at one of them."""

    def __init__(self, kind: str | None = None, number: int = 0) -> None:
        self.kind, self.number = kind, number
        self.seen = dict.fromkeys(BOUNDARIES, 0)

    def pass_(self, kind: str) -> None:
        self.seen[kind] += 1
        if kind == self.kind and self.seen[kind] == self.number:
            os.kill(os.getpid(), signal.SIGKILL)


def install(fuse: Fuse) -> None:
    """Put the fuse around the journal's transaction and around the model's answer."""
    transact, generate = Journal._transact, OpenAIModel.generate

    def killing_transact(self: Journal, statements: list[Any]) -> None:
        fuse.pass_("before commit")
        transact(self, statements)
        fuse.pass_("after commit")

    async def killing_generate(self: OpenAIModel, request: Any) -> Any:
        answer = await generate(self, request)
        fuse.pass_("answer in hand")
        return answer

    Journal._transact = killing_transact  # type: ignore[method-assign]
    OpenAIModel.generate = killing_generate  # type: ignore[method-assign]


def run(
    task: Path, method: str, settings: dict[str, Any], base_url: str, out: Path, fuse: Fuse
) -> dict[str, Any]:
    """One run in this process; its result and the boundaries it passed."""
    install(fuse)
    os.environ["WHET_STATE"] = str(out.with_name(f"{out.name}-state"))
    settings = dict(settings)
    budget = Budget(calls=settings.pop("calls", None))
    places = {"engine": settings.pop("engine", "local"), "workers": settings.pop("workers", None)}
    options = {"method": method, "settings": settings, "base_url": base_url, "run": out, "budget": budget}
    result = api.optimize(task, concurrency=3, seed=5, **places, **options)
    return {"result": dict(result), "seen": fuse.seen}


def child(report: Path, *arguments: Any) -> int:
    """Fork, run, write the report; the exit status as `os.waitpid` gives it."""
    pid = os.fork()
    if pid:
        return os.waitpid(pid, 0)[1]
    try:
        report.write_bytes(orjson.dumps(run(*arguments)))
        os._exit(0)
    except BaseException:
        report.with_suffix(".error").write_text(traceback.format_exc())
        os._exit(1)


def answer_of(report: Path) -> dict[str, Any]:
    """What must not depend on kills, out of a report."""
    found = orjson.loads(report.read_bytes())["result"]
    answer = {k: found[k] for k in ("baseline", "best", "improvement", "status")}
    history = [point["validation"] for point in found["history"]]
    lost = [int(w.split()[0]) for w in found["warnings"] if "in flight" in w]
    return {"answer": {**answer, "history": history}, "lost": sum(lost)}


def main() -> None:
    method, base_url, folder, every = sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4])
    settings = orjson.loads(sys.argv[5])
    task = folder / "task"
    get_method(method)  # what it imports is there for all children

    def url(name: str) -> str:
        return base_url.replace("/v1", f"/{name}/v1")

    reference = folder / "reference.json"
    plain = {name: value for name, value in settings.items() if name not in ("engine", "workers")}
    assert child(reference, task, method, plain, url("reference"), folder / "reference", Fuse()) == 0, (
        reference.with_suffix(".error").read_text()
    )
    seen = orjson.loads(reference.read_bytes())["seen"]
    kills = []
    for kind in BOUNDARIES:
        for number in range(1, seen[kind] + 1, every):
            name = f"{kind.replace(' ', '-')}-{number}"
            report = folder / f"{name}.json"
            killed = child(report, task, method, settings, url(name), folder / name, Fuse(kind, number))
            again = child(report, task, method, settings, url(name), folder / name, Fuse())
            error = report.with_suffix(".error")
            kills.append(
                {
                    "name": name,
                    "killed": os.WIFSIGNALED(killed),
                    "finished": again == 0,
                    "error": error.read_text() if error.exists() else None,
                    **(answer_of(report) if again == 0 else {}),
                }
            )
    print(orjson.dumps({"reference": answer_of(reference)["answer"], "seen": seen, "kills": kills}).decode())


if __name__ == "__main__":
    main()
