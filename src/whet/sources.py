"""The identity of Python functions: what a run pins of a reward, a model or a method that is a function.

A function that stands for itself (a `def` with a source, no closure, no decorator, and globals that are modules, plain
values or such functions) is known by the text of a program: its source with what it uses. Any other callable is known by
its code (as this version of Python compiles it), its defaults, and the plain values that it closes over or holds; an object
that is called has the code of its class and its attributes. An attribute `version` is part of the identity, and stands in the
place of an object's attributes: give one to an object that counts or remembers. What none of these shows (the state of an
object of another library, a file, a server) is not part of the identity; change `version` when it changes.
"""

from __future__ import annotations

import ast
import builtins
import functools
import hashlib
import inspect
import sys
import textwrap
import types
from collections.abc import Callable, Mapping
from typing import Any

_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_HEAD = "from __future__ import annotations\n"


def source_hash(function: Callable[..., Any]) -> str:
    """First 16 hex digits of the SHA-256 of what a callable does."""
    program = program_of(function)
    text = program if program is not None else repr(_parts(function, _home(function), frozenset()))
    version = getattr(function, "version", None)
    text += "" if version is None else f"\nversion {version!r}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def name_of(function: Callable[..., Any]) -> str:
    """A name for messages and addresses: that of the function, or of the object's class."""
    name = getattr(inspect.unwrap(function), "__name__", type(function).__name__)
    return "lambda" if name == "<lambda>" else str(name)


def place_of_definition(function: Callable[..., Any]) -> str:
    """The file that defines a callable, as its code names it."""
    inner = inspect.unwrap(function)
    called = inner if hasattr(inner, "__code__") else type(inner).__dict__.get("__call__")
    code = getattr(called, "__code__", None)
    return "<builtin>" if code is None else str(code.co_filename)


def program_of(function: Callable[..., Any]) -> str | None:
    """The text of a program that defines the function and all it uses; None where it cannot be written down."""
    needed: dict[str, str] = {}
    if not _write(function, needed):
        return None
    return _HEAD + "\n".join(needed.values())


def _write(function: Any, needed: dict[str, str]) -> bool:
    """Add what defines a function to `needed`, by name, what it uses before it."""
    if not isinstance(function, types.FunctionType) or inspect.iscoroutinefunction(function):
        return False
    if function.__code__.co_freevars or hasattr(function, "__wrapped__"):
        return False
    try:
        source = textwrap.dedent(inspect.getsource(function))
        (definition,) = ast.parse(source).body
    except (OSError, TypeError, SyntaxError, ValueError):
        return False
    if not isinstance(definition, ast.FunctionDef) or definition.decorator_list:
        return False
    if definition.name != function.__name__ or not source.startswith("def "):
        return False
    own = f"{source.rstrip()}\n"
    if needed.setdefault(function.__name__, own) != own:
        return False
    for name in sorted(_names(definition) - {function.__name__}):
        if name in function.__globals__:
            if not _write_global(function, name, needed):
                return False
        elif not hasattr(builtins, name) and name not in _bound(definition):
            return False
    needed[function.__name__] = needed.pop(function.__name__)
    return True


def _write_global(function: types.FunctionType, name: str, needed: dict[str, str]) -> bool:
    value = function.__globals__[name]
    home = getattr(value, "__module__", None)
    if isinstance(value, types.ModuleType):
        line = f"import {value.__name__} as {name}"
    elif _is_plain(value):
        line = f"{name} = {value!r}"
    elif isinstance(value, types.FunctionType) and home == function.__module__:
        return value.__name__ == name and (name in needed or _write(value, needed))
    elif isinstance(home, str) and home != "__main__" and home != function.__module__:
        own = str(getattr(value, "__name__", ""))
        if getattr(sys.modules.get(home), own, None) is not value:
            return False
        line = f"from {home} import {own} as {name}"
    else:
        return False
    return needed.setdefault(name, line) == line


def _names(definition: ast.FunctionDef) -> set[str]:
    """Names that the body and the defaults read; annotations are not evaluated."""
    nodes: list[ast.AST] = [*definition.body, *definition.args.defaults]
    nodes += [default for default in definition.args.kw_defaults if default is not None]
    return {
        node.id
        for top in nodes
        for node in ast.walk(top)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }


def _bound(definition: ast.FunctionDef) -> set[str]:
    """Names that the function binds itself: parameters, assignments, loops, imports, inner functions."""
    names = {node.arg for node in ast.walk(definition) if isinstance(node, ast.arg)}
    for node in ast.walk(definition):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            names.add(node.id)
        elif isinstance(node, ast.alias):
            names.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.FunctionDef | ast.ClassDef | ast.ExceptHandler):
            names.add(str(node.name))
    return names


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple | set | frozenset):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(_is_plain(key) and _is_plain(item) for key, item in value.items())
    return type(value) in _PLAIN


def _home(value: Any) -> str:
    """The module whose code is part of the identity; what comes from another one is known by its name."""
    if isinstance(value, functools.partial):
        return _home(value.func)
    owner = value.__self__ if isinstance(value, types.MethodType) else value
    return str(owner.__module__ if isinstance(owner, types.FunctionType) else type(owner).__module__)


def _parts(value: Any, home: str, seen: frozenset[int]) -> Any:
    """What a value does or is, as nested lists of plain values."""
    if _is_plain(value):
        return sorted(map(repr, value)) if isinstance(value, set | frozenset) else value
    if id(value) in seen:
        return "seen"
    seen = seen | {id(value)}
    if isinstance(value, list | tuple):
        return [_parts(item, home, seen) for item in value]
    if isinstance(value, Mapping):
        return [[repr(key), _parts(item, home, seen)] for key, item in value.items()]
    if isinstance(value, functools.partial):
        return [
            "partial",
            _parts(value.func, home, seen),
            _parts(value.args, home, seen),
            _parts(value.keywords, home, seen),
        ]
    if isinstance(value, types.MethodType):
        return ["method", _parts(value.__func__, home, seen), _parts(value.__self__, home, seen)]
    if isinstance(value, types.FunctionType):
        return _parts_of_function(value, home, seen)
    if isinstance(value, types.CodeType):
        return [value.co_code, value.co_names, [_parts(constant, home, seen) for constant in value.co_consts]]
    if isinstance(value, type | types.ModuleType | types.BuiltinFunctionType):
        return [getattr(value, "__module__", ""), getattr(value, "__qualname__", value.__name__)]
    kind = type(value)
    if not callable(value):
        return [kind.__module__, kind.__qualname__]
    own = vars(kind) if kind.__module__ == home else {}
    methods = {k: v for k, v in sorted(own.items()) if isinstance(v, types.FunctionType)}
    state = {} if hasattr(value, "version") else getattr(value, "__dict__", {})
    return [kind.__module__, kind.__qualname__, _parts(methods, home, seen), _parts(state, home, seen)]


def _parts_of_function(function: types.FunctionType, home: str, seen: frozenset[int]) -> Any:
    if function.__module__ != home:
        return [function.__module__, function.__qualname__]
    cells = [cell.cell_contents for cell in function.__closure__ or () if _is_filled(cell)]
    used = {name for code in _codes(function.__code__) for name in code.co_names}
    known = {name: function.__globals__[name] for name in sorted(used & function.__globals__.keys())}
    return [
        *("function", _parts(function.__code__, home, seen)),
        *(_parts(part, home, seen) for part in (function.__defaults__, function.__kwdefaults__, cells)),
        [[name, _parts(value, home, seen)] for name, value in known.items()],
    ]


def _codes(code: types.CodeType) -> list[types.CodeType]:
    inner = [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    return [code, *(each for part in inner for each in _codes(part))]


def _is_filled(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - an empty cell raises
    except ValueError:
        return False
    return True
