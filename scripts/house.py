#!/usr/bin/env python3
"""Print how the package reads, in numbers: names, types, imports. `docs/architecture.md` has them beside those of before.

    scripts/house.py

The numbers show where to look. They are no target: a name that a reader understands at once may end in -ed.
"""

from __future__ import annotations

import ast
import collections
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = (
    ROOT / "src" / "whet",
    ROOT / "packages" / "whet-live" / "whet_live",
    ROOT / "packages" / "whet-client" / "whet_client",
)
IRREGULAR = {
    "known",
    "kept",
    "held",
    "made",
    "written",
    "told",
    "said",
    "found",
    "heard",
    "given",
    "taken",
    "shown",
    "drawn",
}
NO_PARTICIPLE = {"breed", "embed", "seed", "need", "speed", "feed", "deed"}
CALLED_BY_NAME = {
    "main": "the entry of a file that is run",
    "upgrade": "Alembic calls it in each migration",
    "load": "gives the model of an address, in the module of each family of models",
    "log": "writes a run into another tool, in the integration of each",
    "optimize": "searches with another library's own objects, in the integration of each",
    "dro": "the name of a loss in its paper; its advantages have the same name",
}
"""Names that somebody else prescribes: several functions of such a name are one concept."""
CHECKED = "check_arguments"
"""The decorator of every public function."""
MODULE_LINES, FUNCTION_LINES = 600, 80
"""More is a warning: a reviewer decides."""
WALKS = {
    "budget": {"Budget"},
    "critique": {"critique", "critiques"},
    "comment": {"comment", "comments", "Feedback"},
}
"""By which identifiers a file knows a budget, a critique and a comment."""
Tree = ast.Module


def main() -> int:
    """Print the table."""
    trees = {path: ast.parse(path.read_text("utf-8")) for p in PACKAGES for path in sorted(p.rglob("*.py"))}
    lines = sum(path.read_text("utf-8").count("\n") for path in trees)
    named = [node for tree in trees.values() for node in functions(tree)]
    bare = [node.name for node in named if is_bare_participle(node.name)]
    for name, value in {
        "files": len(trees),
        "lines": f"{lines:,}",
        "functions, properties aside": f"{len(named):,}",
        "functions called by a bare participle": f"{len(bare)} ({len(bare) / len(named):.1%})",
        "public functions of one name in two modules": len(homonyms(trees)),
        "keywords of the public functions declared more than once": len(repeated_keywords(trees)),
        f"files over {MODULE_LINES} lines": len(long_files(trees)),
        f"functions over {FUNCTION_LINES} lines": len(long_functions(trees)),
        "lines with Any, of 1,000": f"{1000 * lines_with_any(trees) / lines:.1f}",
        "circles of files, lazy and typing imports included": len(circles(imports_of(trees))),
        "entries at the top of src/whet": len(
            [path for path in PACKAGES[0].iterdir() if path.name != "__pycache__"]
        ),
        "files of src/whet that name a method, its own aside": f"{files_per_method(trees):.1f}",
        **{f"files that name a {thing}": share_of_files(trees, names) for thing, names in WALKS.items()},
    }.items():
        print(f"{name}: {value}")
    for place in [*long_files(trees), *long_functions(trees)]:
        print("  long:", place)
    for circle in circles(imports_of(trees)):
        print("  circle:", ", ".join(sorted(circle)))
    return 0


def functions(tree: Tree) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """The functions and methods of a file without properties and special methods."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.name.startswith("__"):
            continue
        if not any("property" in ast.unparse(decorator) for decorator in node.decorator_list):
            yield node


def is_bare_participle(name: str) -> bool:
    """Whether a name is a single word that ends like a past participle."""
    word = name.strip("_")
    return "_" not in word and word not in NO_PARTICIPLE and (word.endswith("ed") or word in IRREGULAR)


def homonyms(trees: Mapping[Path, Tree]) -> set[str]:
    """Names of public functions at the top of two modules or more, methods' files aside.

    Endpoints and commands do not count: their decorator hands them to the router or to click, an address or a word of the
    command line names them, and no code calls them.
    """
    homes = collections.Counter[str]()
    for path, tree in trees.items():
        defined = [n for n in tree.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
        own = {n.name for n in defined if not is_registered(n)} - CALLED_BY_NAME.keys()
        homes.update(name for name in own if not name.startswith("_") and path.parent.name != "methods")
    return {name for name, count in homes.items() if count > 1}


def is_registered(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a decorator makes an endpoint or a command of a function."""
    named = [ast.unparse(decorator).partition("(")[0] for decorator in function.decorator_list]
    return any(name == "router" or name.endswith(("command", ".group")) for name in named)


def is_checked(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a function is public: its arguments are checked."""
    return any(ast.unparse(decorator) == CHECKED for decorator in function.decorator_list)


def repeated_keywords(trees: Mapping[Path, Tree]) -> set[str]:
    """Keywords that are declared more than once among the public functions and the TypedDicts of their keywords."""
    declared = collections.Counter[str]()
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if path.stem == "keywords" and isinstance(node, ast.ClassDef):
                fields = [n.target for n in node.body if isinstance(n, ast.AnnAssign)]
                declared.update(target.id for target in fields if isinstance(target, ast.Name))
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and is_checked(node):
                declared.update(argument.arg for argument in node.args.kwonlyargs)
    return {name for name, count in declared.items() if count > 1}


def long_files(trees: Mapping[Path, Tree]) -> list[str]:
    """Files with more than MODULE_LINES lines."""
    sizes = {path: path.read_text("utf-8").count("\n") for path in trees}
    return [
        f"{path.relative_to(ROOT)} ({lines} lines)" for path, lines in sizes.items() if lines > MODULE_LINES
    ]


def long_functions(trees: Mapping[Path, Tree]) -> list[str]:
    """Functions with more than FUNCTION_LINES lines, docstrings included."""
    return [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name} ({lines} lines)"
        for path, tree in trees.items()
        for node in functions(tree)
        if (lines := (node.end_lineno or node.lineno) - node.lineno + 1) > FUNCTION_LINES
    ]


def lines_with_any(trees: Mapping[Path, Tree]) -> int:
    """Lines in which the type `Any` stands, imports aside."""
    return sum(
        len({n.lineno for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id == "Any"})
        for tree in trees.values()
    )


def imports_of(trees: Mapping[Path, Tree]) -> dict[str, set[str]]:
    """The modules that each module imports anywhere: at its top, inside functions, for types."""
    names = {module_of(path): tree for path, tree in trees.items()}
    graph = {}
    for name, tree in names.items():
        wanted = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                wanted |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                inner = {f"{node.module}.{alias.name}" for alias in node.names}
                wanted |= {one for one in inner if one in names} or {str(node.module)}
        graph[name] = {one for one in wanted if one in names and one != name}
    return graph


def module_of(path: Path) -> str:
    """The dotted name of a file."""
    package = next(package for package in PACKAGES if path.is_relative_to(package))
    return ".".join(path.relative_to(package.parent).with_suffix("").parts).removesuffix(".__init__")


def circles(graph: Mapping[str, set[str]]) -> list[set[str]]:
    """Groups of files that import each other, directly or through others (strongly connected components)."""
    reached = {name: reachable(graph, name) for name in graph}
    groups = {frozenset({other for other in reached[name] if name in reached[other]}) for name in graph}
    return [set(group) for group in groups if group]


def reachable(graph: Mapping[str, set[str]], start: str) -> set[str]:
    """Everything that a file imports, directly or through others."""
    seen: set[str] = set()
    waiting = [*graph[start]]
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += graph[name]
    return seen


def files_per_method(trees: Mapping[Path, Tree]) -> float:
    """In how many other files of the package a method is named in code, on average."""
    methods = [
        path.stem
        for path in trees
        if path.parent.name == "methods" and path.stem not in ("__init__", "method")
    ]
    named = 0
    for method in methods:
        quoted = re.compile(rf'["\']{method}["\']|whet\.methods\.{method}\b')
        named += sum(1 for path in trees if path.stem != method and quoted.search(path.read_text("utf-8")))
    return named / len(methods)


def share_of_files(trees: Mapping[Path, Tree], names: set[str]) -> str:
    """How many files use one of some identifiers: as a variable, an attribute, an argument or an import."""
    count = sum(1 for tree in trees.values() if not names.isdisjoint(identifiers(tree)))
    return f"{count} ({count / len(trees):.1%})"


def identifiers(tree: Tree) -> Iterator[str]:
    """Every identifier of a file, with repetitions."""
    for node in ast.walk(tree):
        for field in ("id", "attr", "arg", "name"):
            if isinstance(name := getattr(node, field, None), str):
                yield name


if __name__ == "__main__":
    sys.exit(main())
