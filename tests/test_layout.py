"""Imports point downwards: the layers of pyproject.toml hold, and nothing is left out of them."""

from __future__ import annotations

import ast
import importlib.util
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.distributions import PACKAGES, ROOT, SOURCES, tree_of
from whet.methods import METHODS

CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]


def contract(name: str) -> dict[str, Any]:
    """The contract whose name ends like that."""
    (one,) = (c for c in CONTRACTS if c["name"].endswith(name))
    return dict(one)


def layers(package: str) -> list[list[str]]:
    """Names of the layers of a package from top to bottom; those that share a layer together."""
    rows = contract(f" in {package.replace('_', '-')}")["layers"]
    return [[name.strip().removeprefix(f"{package}.") for name in row.split("|")] for row in rows]


def test_imports_point_downwards() -> None:
    beside = Path(sys.executable).with_name("lint-imports")
    program = str(beside) if beside.is_file() else shutil.which("lint-imports")
    if program is None:
        pytest.skip("import-linter is not installed; `make layers` installs and runs it")
    done = subprocess.run([program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


OPENED = ("_util", "api")
"""Packages whose modules stand in layers of their own."""


def parts_of(folder: Path) -> set[str]:
    """The modules and packages in a folder."""
    return {path.parent.name for path in folder.glob("*/__init__.py")} | (
        {path.stem for path in folder.glob("*.py")} - {"__init__", "__main__"}
    )


@pytest.mark.parametrize("package", PACKAGES)
def test_every_part_of_a_package_stands_in_a_layer(package: str) -> None:
    folder = PACKAGES[package]
    parts = parts_of(folder) - {name for name in OPENED if (folder / name).is_dir()}
    parts |= {f"{name}.{inner}" for name in OPENED for inner in parts_of(folder / name)}
    assert parts == {name for row in layers(package) for name in row}


def test_nothing_below_knows_what_is_above_but_for_the_other_names_of_whet_live() -> None:
    above = contract("whet-live above whet above whet-client")
    assert above["layers"] == ["whet_live", "whet", "whet_client"]
    importing = {pair.partition(" -> ")[0] for pair in above["ignore_imports"]}
    assert importing == {"whet.live.**", "whet.live", "whet.testing"}
    for name, path in SOURCES.items():
        if name.startswith("live/"):
            assert len(path.read_text("utf-8").splitlines()) < 40, f"{name} is more than another name"


def test_nothing_that_is_shipped_imports_the_checkout() -> None:
    """Not by name either: benchmarks are a project of their own, whose models whet finds as those of any package."""
    checkout = "(?:benchmarks|tests|tools|scripts)"
    named = re.compile(rf"""["']{checkout}\.\w|^\s*(?:from|import) {checkout}\b""", re.MULTILINE)
    for name, path in SOURCES.items():
        assert not named.search(path.read_text("utf-8")), f"{name} imports what is not shipped"


def test_every_method_is_independent_of_the_others() -> None:
    assert contract("Methods do not import each other")["modules"] == ["whet.methods.*"]
    files = {path.stem for path in (PACKAGES["whet"] / "methods").glob("*.py")}
    assert files == {*METHODS, "__init__", "method"}


@pytest.mark.parametrize("package", PACKAGES)
def test_the_page_on_architecture_shows_the_same_layers(package: str) -> None:
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    shown = page.partition(f"```layers {package}\n")[2].partition("```")[0].splitlines()
    assert [[name.strip() for name in row.partition("  ")[0].split("|")] for row in shown] == layers(package)


FACES = ("whet.cli", "whet_live.cli", "whet_live.server")
"""Parts that reach all others by the front of a package only: its `__init__`, and there the names of `__all__`."""
SHARED = "whet._util."
"""Helpers of every part: each module of this package is a front."""
HELPERS = ("whet.cli.check", "whet.cli.common")
"""The modules that the commands of whet-live share with those of whet."""


def public_names(front: Path) -> set[str]:
    """The names of a package's `__all__`, as its source has them."""
    for node in ast.parse(front.read_text("utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return set(ast.literal_eval(node.value))
    return set()


def past_the_front(face: str, source: str) -> Iterator[str]:
    """The imports of a file of `face` that go past a front: of a module inside another package, or of a private name."""
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
            top, *inner = module.split(".")
            if top not in PACKAGES or f"{module}.".startswith(f"{face}."):
                continue
            if module.startswith(SHARED) or (face.startswith("whet_live.") and module in HELPERS):
                continue
            folder = PACKAGES[top].joinpath(*inner)
            if not (folder / "__init__.py").is_file():
                if module.count(".") > 1:
                    yield f"{module} lies inside another package"
            elif name and name not in public_names(folder / "__init__.py") and not _is_module(folder, name):
                yield f"{module}.{name} is not in __all__"


def _is_module(folder: Path, name: str) -> bool:
    """Whether a name is a front itself: a module such as `whet.run`, or the package `whet.api`."""
    return folder in PACKAGES.values() and name in (*(path.stem for path in folder.glob("*.py")), "api")


@pytest.mark.parametrize("face", FACES)
def test_the_faces_import_fronts_only(face: str) -> None:
    top, _, inner = face.partition(".")
    paths = sorted((PACKAGES[top] / inner).rglob("*.py"))
    assert paths
    wrong = [f"{path.name}: {why}" for path in paths for why in past_the_front(face, path.read_text("utf-8"))]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "source",
    [
        "from whet_live.registry.audit import append",
        "def f():\n    from whet_live.learner.learner import Learner",
        "if TYPE_CHECKING:\n    from whet_live.traffic.search import Filter",
        "import whet.reporting.markup as markup",
        "from whet.reporting import markup",
        "from whet import engine",
        "from whet_live.registry import no_such_name",
        "from whet_live.server.roles import Role",
        "from ..live.registry import Registry",
    ],
)
def test_the_rule_on_fronts_finds_what_it_forbids(source: str) -> None:
    assert list(past_the_front("whet.cli", source))


@pytest.mark.parametrize(
    "source",
    [
        "import whet",
        "from whet import api, Budget",
        "from whet_live.registry import Registry",
        "from whet.errors import UsageError",
        "from whet.cli.common import line",
        "from click import echo",
    ],
)
def test_the_rule_on_fronts_forbids_nothing_else(source: str) -> None:
    assert not list(past_the_front("whet.cli", source))


@pytest.fixture(scope="module")
def house() -> Any:
    """scripts/house.py as a module."""
    spec = importlib.util.spec_from_file_location("house", ROOT / "scripts" / "house.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PARTICIPLES = {"scored"}
"""Functions called by a bare participle: a method of `ModelConformance`, whose name is public."""


def test_functions_are_not_called_by_a_participle(house: Any) -> None:
    named = [n.name for path in SOURCES.values() for n in house.functions(tree_of(path))]
    assert {name for name in named if house.is_bare_participle(name)} == PARTICIPLES
    assert house.is_bare_participle("_stored") and not house.is_bare_participle("store")


def test_names_that_a_router_or_another_program_prescribes_are_no_homonyms(house: Any) -> None:
    endpoint = '@router("GET", "/x", Role.VIEWER)\ndef show(call): ...'
    own = "def show(x): ...\ndef main(): ..."
    assert house.homonyms({Path("a.py"): ast.parse(own), Path("b.py"): ast.parse(endpoint)}) == set()
    assert house.homonyms({Path("a.py"): ast.parse(own), Path("b.py"): ast.parse(own)}) == {"show"}


def test_a_public_function_shares_its_name_with_no_other(house: Any) -> None:
    trees = {path: tree_of(path) for p in house.PACKAGES for path in p.rglob("*.py")}
    assert house.homonyms(trees) == set(), "rename one of them; one concept has one name (scripts/house.py)"


def test_a_keyword_of_the_public_functions_is_declared_once(house: Any) -> None:
    trees = {path: tree_of(path) for path in house.PACKAGES[0].rglob("*.py")}
    assert house.repeated_keywords(trees) == set()
    again = ast.parse("@check_arguments\ndef advise(task, *, pilot=False, seed=0): ...")
    assert house.repeated_keywords({**trees, Path("again.py"): again}) == {"pilot", "seed"}


def test_no_file_imports_itself_through_others_not_inside_functions_or_for_types_either(house: Any) -> None:
    trees = {path: tree_of(path) for p in house.PACKAGES for path in p.rglob("*.py")}
    assert house.circles(house.imports_of(trees)) == []
    two = {"a": {"b"}, "b": {"c"}, "c": {"b"}}
    assert house.circles(two) == [{"b", "c"}]
