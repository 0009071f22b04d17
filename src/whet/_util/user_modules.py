"""Modules of a user: which they are, the files that they import, and a digest of a file together with these.

A module of the standard library, of an installed package or of whet is a library: it is known by its name and version. Any
other file is the user's, and known by its bytes.
"""

from __future__ import annotations

import ast
import dis
import hashlib
import importlib.metadata
import os
import site
import sys
import sysconfig
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

OWN = ("whet", "whet_client", "whet_live")
"""The packages of the three distributions."""


def is_library(name: str) -> bool:
    """Whether a module is none of the user's, by its name: of Python, of an installed package, of whet."""
    top = name.partition(".")[0]
    if top in sys.stdlib_module_names and top != "__main__":
        return True
    if top in OWN:
        return True
    file = getattr(sys.modules.get(name), "__file__", None)
    return file is not None and is_installed(str(file))


def library_version(name: str) -> str:
    """The version of a library, by the name of one of its modules; empty for Python's own and where none is stated."""
    top = name.partition(".")[0]
    if top in sys.stdlib_module_names:
        return ""
    stated = getattr(sys.modules.get(top), "__version__", None)
    if isinstance(stated, str):
        return stated
    return _installed_version(top)


@cache
def _installed_version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return ""


@cache
def _library_folders() -> tuple[str, ...]:
    known = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    known += [*site.getsitepackages(), site.getusersitepackages()]
    return tuple(f"{Path(folder).resolve()}/" for folder in known if folder)


def is_installed(file: str) -> bool:
    """Whether a file lies in a folder of libraries, or would lie there. An environment inside the user's project is one; the
    project is not."""
    return not file.startswith("<") and _is_in_libraries(os.path.abspath(file))


@cache
def _is_in_libraries(file: str) -> bool:
    path = str(Path(file).resolve())
    return path.startswith(_library_folders()) or any(
        part in ("site-packages", "dist-packages") for part in Path(path).parts
    )


def file_of(module: object) -> Path | None:
    """The source file of a user's module; None for a library and for what has no file."""
    name, file = getattr(module, "__name__", ""), getattr(module, "__file__", None)
    if not isinstance(file, str) or is_library(str(name)):
        return None
    path = Path(file)
    return path if path.is_file() and not is_installed(file) else None


def local_files(start: Path, package: str = "") -> list[Path]:
    """A user's file, the user's files that it imports, at the top or inside of functions, and those that these import.
    `package` is the package of the file, for relative imports."""
    files: dict[Path, None] = {}
    waiting = [(start, package)]
    while waiting:
        path, inside = waiting.pop()
        if path in files:
            continue
        files[path] = None
        for name in imported_names(path, inside):
            waiting += _locate(name, start.parent)
    return sorted(files)


def imported_files(name: str, members: Sequence[str] = (), beside: Path | None = None) -> list[Path]:
    """The user's files behind an import of a module and of members of it that are modules."""
    located = [
        place
        for each in (name, *(f"{name}.{member}" for member in members))
        for place in _locate(each, beside)
    ]
    return sorted({path for file, package in located for path in local_files(file, package)})


def digest_of_file(path: Path, imported: Sequence[Path] = ()) -> str:
    """SHA-256 of a file; where it imports files of the user, or was seen to import those, of all of them by their names."""
    own = hashlib.sha256(path.read_bytes()).hexdigest()
    others = {file.resolve() for file in (*local_files(path), *imported)} - {path.resolve()}
    named = [f"{_name_beside(file, path)} {hashlib.sha256(file.read_bytes()).hexdigest()}" for file in others]
    return hashlib.sha256("\n".join([own, *sorted(named)]).encode()).hexdigest() if named else own


def _name_beside(file: Path, path: Path) -> str:
    """The name of a file as seen from another one's folder, so that a folder that moves keeps its digest."""
    folder = path.resolve().parent
    return file.relative_to(folder).as_posix() if file.is_relative_to(folder) else file.name


def imported_names(path: Path, package: str) -> Iterator[str]:
    """Full names of what a file imports: modules, their parents, and members that may be modules."""
    try:
        content = path.read_bytes()
    except OSError:
        return
    for module, level, members in _imports_of(content):
        base = absolute_name(module, level, package)
        if base:
            yield base
        yield from (f"{base}.{member}".strip(".") for member in members)


@lru_cache(maxsize=1024)
def _imports_of(content: bytes) -> tuple[tuple[str, int, tuple[str, ...]], ...]:
    """Module, level and members of each import in a source; of no import where it cannot be read."""
    try:
        nodes = list(ast.walk(ast.parse(content)))
    except (SyntaxError, ValueError, RecursionError):
        return ()
    imports: list[tuple[str, int, tuple[str, ...]]] = []
    for node in nodes:
        if isinstance(node, ast.Import):
            imports += [(alias.name, 0, ()) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            imports.append((node.module or "", node.level, tuple(alias.name for alias in node.names)))
    return tuple(imports)


def absolute_name(name: str, level: int, package: str) -> str:
    """The full name of a module that is imported from inside `package`, `level` dots up."""
    if level == 0:
        return name
    base = package.split(".")[: len(package.split(".")) - level + 1]
    return ".".join([*base, name] if name else base).strip(".")


def _locate(name: str, beside: Path | None) -> list[tuple[Path, str]]:
    """The user's files of a module and of the packages around it, each with its package; nothing is imported."""
    top = name.partition(".")[0]
    if not top or top == "__main__":
        return []
    places: list[str] | None = None if beside is None else [str(beside), *sys.path]
    if top in sys.stdlib_module_names or top in OWN:
        return []
    located: list[tuple[Path, str]] = []
    parts = name.split(".")
    for length in range(1, len(parts) + 1):
        full = ".".join(parts[:length])
        loaded = sys.modules.get(full)
        if length == 1 and is_installed(str(getattr(loaded, "__file__", None) or "<none>")):
            return []
        spec = _found_spec(full, places)
        if spec is None:
            file = None if loaded is None else file_of(loaded)
            return [*located, *([] if file is None else [(file, _package(loaded))])]
        if spec.origin is not None and spec.origin.endswith(".py"):
            if is_installed(spec.origin):
                return located
            inside = full if spec.submodule_search_locations is not None else full.rpartition(".")[0]
            located.append((Path(spec.origin), inside))
        if spec.submodule_search_locations is None:
            return located
        places = list(spec.submodule_search_locations)
    return located


def _found_spec(name: str, places: list[str] | None) -> Any:
    try:
        return PathFinder.find_spec(name, places)
    except (ImportError, ValueError, AttributeError, OSError):
        return None


def _package(module: types.ModuleType | None) -> str:
    return str(getattr(module, "__package__", None) or "")


def module_digests(module: types.ModuleType) -> list[list[str]] | None:
    """Names and SHA-256 of a user's module and of the user's files that it imports; None where there is no file."""
    file = file_of(module)
    if file is None:
        return None
    return digests_of(local_files(file, _package(module)))


def digests_of(files: Sequence[Path]) -> list[list[str]]:
    """Names and SHA-256 of files, sorted."""
    return sorted([file.name, hashlib.sha256(file.read_bytes()).hexdigest()] for file in files)


@dataclass(frozen=True)
class InnerImport:
    """A module that is imported inside of a function, with the members that may be modules."""

    name: str
    members: tuple[str, ...] = ()


def imports_inside(code: types.CodeType, space: Mapping[str, object]) -> list[InnerImport]:
    """The user's modules that a function imports when it runs; `space` are its globals."""
    package = str(space.get("__package__") or "")
    imports = []
    for inner in codes_in(code):
        before: list[object] = [0, None]
        for step in dis.get_instructions(inner):
            if step.opname == "IMPORT_NAME":
                level, members = before[-2:]
                name = absolute_name(str(step.argval), level if isinstance(level, int) else 0, package)
                imports.append(InnerImport(name, members if isinstance(members, tuple) else ()))
            before.append(step.argval)
    return [each for each in imports if imported_files(each.name, each.members)]


def codes_in(code: types.CodeType) -> list[types.CodeType]:
    """The code of a function and of the functions in it."""
    inner = [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    return [code, *(each for part in inner for each in codes_in(part))]
