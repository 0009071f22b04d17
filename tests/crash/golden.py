"""Recorded journals, one per method, as text. Replaying one makes no call, or the method no longer does what it did.

python -m tests.crash.golden [METHOD ...]   records them anew, after a change that is meant to change what a method does
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import orjson

from tests.crash.world import write_task
from tests.methods.settings import settings_of_tests
from whet import api
from whet.engine.blobs import Blobs
from whet.engine.journal import Journal, read_journal_rows
from whet.engine.run_folder import version_of
from whet.methods import REGIONS, get_method
from whet.testing.server import server_process

FOLDER = Path(__file__).parent / "golden"
NOBODY = "http://127.0.0.1:9/v1"
ANSWER = ("baseline", "best", "improvement", "history")


def optimize(folder: Path, method: str, settings: dict[str, Any], base_url: str) -> dict[str, Any]:
    """One small run of a method in `folder/run` on the task in `folder/task`."""
    options: dict[str, Any] = {
        "method": method,
        "settings": settings,
        "base_url": base_url,
        "run": folder / "run",
    }
    return dict(api.optimize(folder / "task", seed=5, **options))


def fences_of(method: str) -> int:
    """How many regions the prompt of the task has that a method is recorded on."""
    return 1 + (REGIONS in get_method(method).entry.needs)


def record(method: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Run a method against the local server; its answer and journal as JSON values, without the end of its search,
    so that a replay runs the search."""
    with (
        tempfile.TemporaryDirectory() as name,
        server_process("--function", "tests.crash.answers:answer") as url,
    ):
        folder = Path(name)
        os.environ["WHET_STATE"] = str(
            folder / "state"
        )  # what this machine opened before is not part of a journal
        write_task(folder / "task", fences=fences_of(method))
        result = optimize(folder, method, settings, url)
        journal = folder / "run" / "journal.sqlite"
        query = "SELECT key, name, digest, value, role, calls FROM effects WHERE name != 'search_end' ORDER BY key"
        effects = read_journal_rows(journal, query)
        results = read_journal_rows(journal, "SELECT digest, value FROM results ORDER BY digest")
        system = result["best"].get("system")
        blobs = {system: Blobs(folder / "run" / "blobs").read(system).decode()} if system else {}
    return {
        "version": version_of(get_method(method)),
        "answer": {key: result[key] for key in ANSWER},
        "effects": [[*row[:3], None if row[3] is None else row[3].decode(), *row[4:]] for row in effects],
        "results": [[digest, value.decode()] for digest, value in results],
        **({"blobs": blobs} if blobs else {}),
    }


@contextmanager
def restore(folder: Path, golden: dict[str, Any]) -> Iterator[None]:
    """While a run is begun in `folder/run`, its journal gets what was recorded together with its header."""
    rows: list[Any] = [
        ("INSERT INTO effects(key, name, digest, value, role, calls) VALUES (?,?,?,?,?,?)",
         (*row[:3], None if row[3] is None else row[3].encode(), *row[4:]))
        for row in golden["effects"]
    ]  # fmt: skip
    rows += [
        ("INSERT INTO results(digest, value) VALUES (?,?)", (d, v.encode())) for d, v in golden["results"]
    ]
    (folder / "run").mkdir()
    for blob in golden.get("blobs", {}).values():
        Blobs(folder / "run" / "blobs").write(blob.encode())
    pin = Journal.pin
    with patch.object(Journal, "pin", lambda journal, header: pin(journal, [*header, *rows])):
        yield


def replay(folder: Path, method: str, settings: dict[str, Any]) -> None:
    """Restore a recorded journal and go through it: no call, and the recorded answer."""
    golden = json.loads((FOLDER / f"{method}.json").read_text())
    write_task(folder / "task", fences=fences_of(method))
    with restore(folder, golden):
        result = optimize(folder, method, settings, NOBODY)
    assert sum(result["usage"]["calls"].values()) == 0
    for key in ("baseline", "best", "improvement"):
        recorded = golden["answer"][key]
        assert {name: result[key][name] for name in recorded} == recorded, "keys may come, none may change"
    history = [point["validation"] for point in result["history"]]
    assert history == [point["validation"] for point in golden["answer"]["history"]]
    assert set(golden["answer"]) == set(ANSWER)


def main() -> None:
    """Record the methods that are named, or all."""
    settings = settings_of_tests("SWEEP")
    for method in sys.argv[1:] or settings:
        text = orjson.dumps(record(method, settings[method]), option=orjson.OPT_INDENT_2).decode()
        (FOLDER / f"{method}.json").write_text(
            json.dumps(json.loads(text), indent=1, ensure_ascii=False) + "\n"
        )


if __name__ == "__main__":
    main()
