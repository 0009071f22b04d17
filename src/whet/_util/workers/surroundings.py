"""The surroundings of a user's code in a process: Python, whet, and the packages that it imports.

`compare_surroundings` names what differs in another process. Whether the code itself is the same is checked where it is loaded.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
from collections.abc import Callable, Collection
from types import ModuleType
from typing import Any, TypedDict

from whet._util.user_modules import OWN, file_of, imported_names, local_files
from whet._util.workers import Work
from whet._util.workers.process import load_work
from whet_client.version import __version__

_SHOWN = 5
"""Differences that a message names."""


class Surroundings(TypedDict):
    """`python`: major and minor version. `packages`: the version of each distribution that the user's code imports, by name.
    `missing`: names that it imports somewhere and that cannot be found."""

    python: str
    whet: str
    packages: dict[str, str]
    missing: list[str]


def make_inspection(works: Collection[dict[str, Any]]) -> Work:
    """Work that loads those, as JSON objects with the fields of `Work`, computes none of them, and describes the surroundings."""
    return Work(f"{__name__}:load_inspection", {"works": list(works)})


def load_inspection(works: list[dict[str, Any]]) -> Callable[[], Surroundings]:
    """See `make_inspection`. Raises what loading raises."""
    for work in works:
        importlib.import_module(work["loader"].partition(":")[0])
    before = set(sys.modules)
    for work in works:
        load_work(work)
    brought = [sys.modules[name] for name in sorted(set(sys.modules) - before)]
    return lambda: _describe(brought)


def _describe(brought: Collection[ModuleType]) -> Surroundings:
    """The surroundings of code that brought these modules into the process."""
    distributions = importlib.metadata.packages_distributions()
    own = {path for module in brought if (path := file_of(module)) is not None}
    files = {path for start in own for path in local_files(start)}
    named = {_top(module.__name__) for module in brought}
    named |= {_top(name) for path in files for name in imported_names(path, "")}
    versions = {
        name: importlib.metadata.version(name) for top in named for name in distributions.get(top, ())
    }
    known = {*distributions, *sys.stdlib_module_names, *OWN, *(path.stem for path in files)}
    return {
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
        "whet": __version__,
        "packages": dict(sorted(versions.items())),
        "missing": sorted(name for name in named - known if not _is_found(name)),
    }


def find_version(package: str) -> str | None:
    """The installed version of a package, without the mark of its build (`+cpu`); None where it is missing."""
    try:
        return importlib.metadata.version(package).partition("+")[0]
    except importlib.metadata.PackageNotFoundError:
        return None


def _top(name: str) -> str:
    return name.partition(".")[0]


def _is_found(name: str) -> bool:
    try:
        return name in sys.modules or importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def compare_surroundings(here: Surroundings, there: Surroundings) -> list[str]:
    """The differences between two surroundings, in words: "numpy 1.26 (here 2.1)"; a few of them, and the number of the
    others."""
    differences = [
        f"{name} {theirs} (here {ours})"
        for name, theirs, ours in (
            ("Python", there["python"], here["python"]),
            ("whet", there["whet"], here["whet"]),
        )
        if theirs != ours
    ]
    for name, version in here["packages"].items():
        other = there["packages"].get(name)
        if other is None:
            differences.append(f"no package {name} (here {version})")
        elif other != version:
            differences.append(f"{name} {other} (here {version})")
    differences += [f"no module {name}" for name in there["missing"] if name not in here["missing"]]
    more = len(differences) - _SHOWN
    return [*differences[:_SHOWN], f"{more} more"] if more > 0 else differences
