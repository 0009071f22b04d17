"""Write `report.html` of a run folder."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from whet.prompt.diff import text_diff


def write_report(folder: Path, result: Mapping[str, Any] | None) -> Path:
    """Write the report of the run in `folder` and return its path. `result` is None while the run goes on."""
    shown = result or {"status": "in progress"}
    diff = text_diff(
        str((shown.get("baseline") or {}).get("prompt", "")), str((shown.get("best") or {}).get("prompt", ""))
    )
    body = f"<pre>{html.escape(diff)}</pre><pre>{html.escape(json.dumps(shown, indent=1))}</pre>"
    path = folder / "report.html"
    partial = folder / "report.html.partial"
    partial.write_text(f'<!doctype html><html lang="en"><meta charset="utf-8"><title>whet</title>{body}', "utf-8")
    partial.replace(path)
    return path
