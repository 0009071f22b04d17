"""Imports point downwards: the layers of pyproject.toml hold, and nothing is left out of them."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from whet.methods import METHODS

ROOT = Path(__file__).resolve().parents[1]
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]


def contract(kind: str) -> dict[str, Any]:
    found: dict[str, Any] = next(c for c in CONTRACTS if c["type"] == kind)
    return found


def layers() -> list[list[str]]:
    """Names of the layers from top to bottom; those that share a layer together."""
    rows = contract("layers")["layers"]
    return [[name.strip().removeprefix("whet.") for name in row.split("|")] for row in rows]


def test_imports_point_downwards() -> None:
    beside = Path(sys.executable).with_name("lint-imports")
    program = str(beside) if beside.is_file() else shutil.which("lint-imports")
    if program is None:
        pytest.skip("import-linter is not installed; `make layers` installs and runs it")
    done = subprocess.run([program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_part_of_the_package_stands_in_a_layer() -> None:
    package = ROOT / "src" / "whet"
    parts = {path.parent.name for path in package.glob("*/__init__.py")}
    parts |= {path.stem for path in package.glob("*.py")} - {"__init__", "__main__"}
    assert parts == {name for row in layers() for name in row}


def test_every_method_is_independent_of_the_others() -> None:
    assert sorted(contract("independence")["modules"]) == sorted(f"whet.methods.{name}" for name in METHODS)


def test_the_page_on_architecture_shows_the_same_layers() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    shown = page.partition("```layers\n")[2].partition("```")[0].splitlines()
    assert [[name.strip() for name in row.partition("  ")[0].split("|")] for row in shown] == layers()
