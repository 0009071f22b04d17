"""Files in the folder of a task that no fingerprint knows: what a reward reads at its own hand, as `words.json` beside it.

A run notes what they hold. Where one of them changed since, a recorded result may be another one now, and says so.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

import orjson

from whet.engine.journal import Journal
from whet.engine.progress import Progress
from whet.engine.run_folder import note_in, noted_in

MOST_BYTES, MOST_FILES = 10_000_000, 1000
"""Larger files, and files beyond so many, are not looked at."""
_NOTED = "files"
_SHOWN = 5


def note_files(journal: Journal, task: Path, progress: Progress) -> None:
    """Write down what the files in a task's folder hold, or say which of them changed since an earlier session did."""
    if changed := changed_since(journal.path.parent, task):
        progress.warn(
            f"In the task folder, {changed} changed after this run began. Earlier grades stay "
            "unchanged. If the reward reads such a file, begin a new run (--out, run= in Python)."
        )
    if journal.meta(_NOTED) is None:
        note_in(journal, _NOTED, orjson.dumps(_digests(task)).decode())


def changed_since(run: Path, task: Path) -> str:
    """The names of the files in a task's folder that changed since a run began, or are gone; empty without any."""
    noted: Mapping[str, str] = orjson.loads(noted_in(run, _NOTED) or "{}")
    now = _digests(task) if noted else {}
    changed = [name for name, digest in noted.items() if now.get(name) != digest]
    more = f" and {len(changed) - _SHOWN} more" if len(changed) > _SHOWN else ""
    return f"{', '.join(changed[:_SHOWN])}{more}"


def _digests(task: Path) -> dict[str, str]:
    """The digest of each file by its place in the folder; of none where the task has no code that could read it. Hidden files,
    notes for people, and folders of runs do not count."""
    digests: dict[str, str] = {}
    if not (task / "task.yaml").is_file():
        return digests
    for place, folders, names in os.walk(task):
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith(".") and name != "__pycache__" and not _holds_runs(Path(place, name))
        )
        for name in sorted(names):
            path = Path(place, name)
            if name.startswith(".") or name.casefold().startswith("readme") or len(digests) == MOST_FILES:
                continue
            if path.is_file() and os.access(path, os.R_OK) and path.stat().st_size <= MOST_BYTES:
                digests[path.relative_to(task).as_posix()] = hashlib.sha256(path.read_bytes()).hexdigest()
    return digests if any(name.endswith(".py") for name in digests) else {}


def _holds_runs(folder: Path) -> bool:
    return any((*folder.glob("journal.sqlite"), *folder.glob("*/journal.sqlite")))
