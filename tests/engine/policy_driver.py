"""A run that trains a policy, killed with SIGKILL at chosen places and finished; prints one JSON object.

    python -m tests.engine.policy_driver FOLDER METHOD SETTINGS PLACE...

Places are before and after a journal commit, an update that is done but not saved, and a checkpoint's bytes before they
are in the journal; half-way through those of each named PLACE. One process forks a child for each attempt.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
from pathlib import Path
from typing import Any

import orjson
import torch

from whet import api
from whet.api import running
from whet.engine.blobs import Blobs
from whet.engine.journal import Journal
from whet.models.huggingface import HuggingFaceModel
from whet.rl.policy_model import LoraSettings, PolicyModel

PLACES = ("before commit", "after commit", "update done", "blob written")


class Fuse:
    """Counts places and kills this process at one of them; counts updates and answers of the task model."""

    def __init__(self, kind: str = "", number: int = 0, ledger: Path | None = None) -> None:
        self.kind, self.number, self.ledger = kind, number, ledger
        self.seen = dict.fromkeys(PLACES, 0)
        self.blobs = 0

    def pass_(self, kind: str) -> None:
        self.seen[kind] += 1
        if kind == self.kind and self.seen[kind] == self.number:
            os.kill(os.getpid(), signal.SIGKILL)

    def note(self, what: str) -> None:
        if self.ledger is not None:
            with self.ledger.open("a") as file:
                file.write(what + "\n")


def install(fuse: Fuse) -> None:
    """Put the fuse around commits, updates, blobs and batches of answers. Every step is a segment."""
    transact, update, write = Journal._transact, PolicyModel.update, Blobs.write
    keep, batch = Blobs.keep_only, HuggingFaceModel.generate_batch
    open_run: Any = vars(running)["open_run"]

    def opened(*args: Any) -> Any:
        found = open_run(*args)
        found.core.segment_seconds = 0.0
        return found

    def killing_transact(self: Journal, statements: list[Any]) -> None:
        fuse.pass_("before commit")
        transact(self, statements)
        fuse.pass_("after commit")

    def counted_update(self: PolicyModel, *args: Any, **more: Any) -> dict[str, float]:
        found = update(self, *args, **more)
        fuse.note("update")
        fuse.pass_("update done")
        return found

    def counted_write(self: Blobs, data: bytes) -> str:
        digest = write(self, data)
        fuse.pass_("blob written")
        return digest

    def counted_keep(self: Blobs, digests: Any) -> None:
        keep(self, digests)
        fuse.blobs = max(fuse.blobs, len(list(self.folder.glob("*"))))

    async def counted_batch(self: HuggingFaceModel, requests: Any) -> Any:
        found = await batch(self, requests)
        fuse.note(f"answers {hashlib.sha256(repr(requests).encode()).hexdigest()}")
        return found

    vars(running)["open_run"] = opened
    Journal._transact = killing_transact  # type: ignore[method-assign]
    PolicyModel.update = counted_update  # type: ignore[method-assign]
    Blobs.write = counted_write  # type: ignore[method-assign]
    Blobs.keep_only = counted_keep  # type: ignore[method-assign]
    HuggingFaceModel.generate_batch = counted_batch  # type: ignore[method-assign]


def attempt(folder: Path, name: str, method: str, settings: dict[str, Any], fuse: Fuse) -> dict[str, Any]:
    """One run in this process: its answer, the hash of its checkpoint, what it passed."""
    torch.set_num_threads(1)
    install(fuse)
    os.environ["WHET_STATE"] = str(folder / f"{name}-state")
    found = api.optimize(
        folder / "task", method=method, settings=settings, policy="embedded/tiny", seed=3, run=folder / name
    )
    answer = {key: found[key] for key in ("baseline", "best", "improvement", "status")}
    weights = (folder / name / "checkpoint" / "adapter.safetensors").read_bytes()
    calls = found["usage"]["calls"]["task"]
    return {"answer": answer, "weights": hashlib.sha256(weights).hexdigest(), "calls": calls, "seen": fuse.seen,
            "blobs": fuse.blobs}  # fmt: skip


def child(report: Path, *arguments: Any) -> int:
    """Fork, run, write the report; the exit status as `os.waitpid` gives it."""
    pid = os.fork()
    if pid:
        return os.waitpid(pid, 0)[1]
    try:
        report.write_bytes(orjson.dumps(attempt(*arguments)))
        os._exit(0)
    except BaseException as error:
        report.with_suffix(".error").write_text(repr(error))
        os._exit(1)


def main() -> None:
    folder, method, settings = Path(sys.argv[1]), sys.argv[2], orjson.loads(sys.argv[3])
    places = sys.argv[4:]
    assert set(places) <= set(PLACES), places
    torch.set_num_threads(1)
    PolicyModel.open("embedded/tiny", LoraSettings(), 0)  # what it imports is there for all children
    whole = folder / "whole.json"
    status = child(whole, folder, "whole", method, settings, Fuse(ledger=folder / "whole.ledger"))
    assert status == 0, whole.with_suffix(".error").read_text()
    reference = orjson.loads(whole.read_bytes())
    kills = []
    for kind in places:
        number = 1 + reference["seen"][kind] // 2
        name = f"{kind.replace(' ', '-')}-{number}"
        report, ledger = folder / f"{name}.json", folder / f"{name}.ledger"
        killed = child(report, folder, name, method, settings, Fuse(kind, number, ledger))
        again = child(report, folder, name, method, settings, Fuse(ledger=ledger))
        error = report.with_suffix(".error")
        kills.append(
            {
                "name": name,
                "killed": os.WIFSIGNALED(killed),
                "finished": again == 0,
                "error": error.read_text() if error.exists() else None,
                "ledger": ledger.read_text().splitlines() if ledger.exists() else [],
                **(orjson.loads(report.read_bytes()) if again == 0 else {}),
            }
        )
    noted = (folder / "whole.ledger").read_text().splitlines()
    print(orjson.dumps({"reference": {**reference, "ledger": noted}, "kills": kills}).decode())


if __name__ == "__main__":
    main()
