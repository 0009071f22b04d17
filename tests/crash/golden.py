"""Recorded journals, one per method, as text. Replaying one makes no call, or the method no longer does what it did.

python -m tests.crash.golden [METHOD ...]   records them anew, after a change that is meant to change what a method does
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import orjson

from tests.crash.test_every_boundary import SETTINGS, write_task
from whet import api
from whet.engine.journal import read_rows
from whet.engine.run_folder import version_of
from whet.methods import get_method
from whet.testing.server import server_process

FOLDER = Path(__file__).parent / "golden"
NOBODY = "http://127.0.0.1:9/v1"
ANSWER = ("baseline", "best", "improvement", "history")


def optimize(folder: Path, method: str, base_url: str) -> dict[str, Any]:
    """One small run of a method in `folder/run` on the task in `folder/task`."""
    options = {"method": method, "settings": SETTINGS[method], "base_url": base_url, "run": folder / "run"}
    return api.optimize(folder / "task", seed=5, **options)


def record(method: str) -> dict[str, Any]:
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
        write_task(folder / "task")
        result = optimize(folder, method, url)
        journal = folder / "run" / "journal.sqlite"
        query = "SELECT key, name, digest, value, role, calls FROM effects WHERE name != 'search_end' ORDER BY key"
        effects = read_rows(journal, query)
        results = read_rows(journal, "SELECT digest, value FROM results ORDER BY digest")
    return {
        "version": version_of(get_method(method)),
        "answer": {key: result[key] for key in ANSWER},
        "effects": [[*row[:3], None if row[3] is None else row[3].decode(), *row[4:]] for row in effects],
        "results": [[digest, value.decode()] for digest, value in results],
    }


def main() -> None:
    """Record the methods that are named, or all."""
    for method in sys.argv[1:] or SETTINGS:
        text = orjson.dumps(record(method), option=orjson.OPT_INDENT_2).decode()
        (FOLDER / f"{method}.json").write_text(
            json.dumps(json.loads(text), indent=1, ensure_ascii=False) + "\n"
        )


if __name__ == "__main__":
    main()
