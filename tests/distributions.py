"""Where the source of the three distributions lies, and what it says."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = {
    "whet": ROOT / "src" / "whet",
    "whet_client": ROOT / "packages" / "whet-client" / "whet_client",
    "whet_live": ROOT / "packages" / "whet-live" / "whet_live",
}
"""The folder of each package."""
SOURCES = {
    path.relative_to(folder if package == "whet" else folder.parent).as_posix(): path
    for package, folder in PACKAGES.items()
    for path in sorted(folder.rglob("*.py"))
}
"""Every module by its name: `engine/journal.py` of whet, `whet_live/server/app.py` of another package."""


@cache
def tree_of(path: Path) -> ast.Module:
    """The syntax tree of a module, which is parsed once for all tests that read it."""
    return ast.parse(path.read_text("utf-8"))
