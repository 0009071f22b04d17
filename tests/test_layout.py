"""Imports point downwards: the layers of pyproject.toml hold, and nothing is left out of them."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
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
    assert contract("independence")["modules"] == ["whet.methods.*"]
    assert {path.stem for path in (ROOT / "src" / "whet" / "methods").glob("*.py")} == {
        *METHODS,
        "__init__",
        "method",
    }


def test_the_page_on_architecture_shows_the_same_layers() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    shown = page.partition("```layers\n")[2].partition("```")[0].splitlines()
    assert [[name.strip() for name in row.partition("  ")[0].split("|")] for row in shown] == layers()


PACKAGE = ROOT / "src" / "whet"
FACES = ("cli", "live/server")
"""Parts that reach all others by the front of a package only: its `__init__`, and there the names of `__all__`."""


def public_names(front: Path) -> set[str]:
    """The names of a package's `__all__`, as its source has them."""
    for node in ast.parse(front.read_text("utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return set(ast.literal_eval(node.value))
    return set()


def past_the_front(face: str, source: str) -> Iterator[str]:
    """The imports of a file of `face` that go past a front: of a module inside another package, or of a private name."""
    own = f"whet.{face.replace('/', '.')}"
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            imports = [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            imports = [("." * node.level + (node.module or ""), alias.name) for alias in node.names]
        else:
            continue
        for module, name in imports:
            if module.startswith("."):
                yield f"{module} is relative, so that nobody sees where it leads"
            if module.partition(".")[0] != "whet" or f"{module}.".startswith(f"{own}."):
                continue
            folder = PACKAGE.joinpath(*module.split(".")[1:])
            if not (folder / "__init__.py").is_file():
                if module.count(".") > 1:
                    yield f"{module} lies inside another package"
            elif name and name not in public_names(folder / "__init__.py") and not _is_module(folder, name):
                yield f"{module}.{name} is not in __all__"


def _is_module(folder: Path, name: str) -> bool:
    """Whether a name is one of the modules beside `whet.api`, which are fronts themselves."""
    return folder == PACKAGE and (folder / f"{name}.py").is_file()


@pytest.mark.parametrize("face", FACES)
def test_the_faces_import_fronts_only(face: str) -> None:
    paths = sorted((PACKAGE / face).rglob("*.py"))
    assert paths
    wrong = [f"{path.name}: {why}" for path in paths for why in past_the_front(face, path.read_text("utf-8"))]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "source",
    [
        "from whet.live.registry.audit import append",
        "def f():\n    from whet.live.learner.learner import Learner",
        "if TYPE_CHECKING:\n    from whet.live.traffic.search import Filter",
        "import whet.reporting.markup as markup",
        "from whet.reporting import markup",
        "from whet.live.registry import no_such_name",
        "from whet.live.server.roles import Role",
        "from ..live.registry import Registry",
    ],
)
def test_the_rule_on_fronts_finds_what_it_forbids(source: str) -> None:
    assert list(past_the_front("cli", source))


@pytest.mark.parametrize(
    "source",
    [
        "import whet",
        "from whet import api, Budget",
        "from whet.live.registry import Registry",
        "from whet.errors import UsageError",
        "from whet.cli.common import line",
        "from click import echo",
    ],
)
def test_the_rule_on_fronts_forbids_nothing_else(source: str) -> None:
    assert not list(past_the_front("cli", source))
