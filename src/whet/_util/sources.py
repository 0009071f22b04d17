"""The identity of Python functions: what a run pins of a reward, a model or a method that is a function.

A function that stands for itself (a `def` with a source, no closure, no decorator, and globals that are modules, plain
values or such functions) is known by the text of a program: its source with what it uses. Any other callable is known by
its code (as this version of Python compiles it), its defaults, and the values that it closes over, holds, or uses of its
module: data by its content, functions and classes of the user by their code, modules of the user by the bytes of their files
and of those that they import, libraries by name and version. An attribute `version` is part of the identity, and stands in
the place of an object's attributes: give one to an object that counts or remembers.

A value that has no content to read (a client with open connections) makes the whole source file of the function part of the
identity. Where there is no file either, the function is another one in every process, which is said once. What none of these
shows (a file, a server) is not part of the identity; change `version` when it changes.
"""

from __future__ import annotations

import ast
import builtins
import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import hashlib
import importlib
import inspect
import logging
import pathlib
import re
import secrets
import sys
import textwrap
import types
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from whet._util.user_modules import (
    OWN,
    InnerImport,
    codes_in,
    digests_of,
    imported_files,
    imports_inside,
    is_library,
    library_version,
    module_digests,
)

_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_HEAD = "from __future__ import annotations\n"
_BY_REPR = (
    *(decimal.Decimal, fractions.Fraction, pathlib.PurePath, uuid.UUID, range, slice, bytearray),
    *(datetime.date, datetime.time, datetime.timedelta, datetime.timezone),
)
"""Types of Python whose `repr` is their content."""
_STATELESS = frozenset(
    [
        *(
            "_thread",
            "threading",
            "asyncio",
            "_asyncio",
            "concurrent",
            "queue",
            "_queue",
            "logging",
            "typing",
        ),
        *("_io", "io", "contextvars", "_contextvars", "weakref", "_weakref", "_weakrefset"),
    ]
)
"""Modules of Python whose objects decide nothing by their state: locks, queues, streams, loggers."""
_MOST_BYTES, _MOST_VALUES = 64 * 1024 * 1024, 100_000
"""The largest part of a library's object that is read; a larger object counts as one without content."""
_PROCESS = secrets.token_hex(8)
_NUMBERED: dict[str, list[object]] = {}
_SAID: set[str] = set()
_log = logging.getLogger(__name__)


def source_hash(function: Callable[..., object]) -> str:
    """First 16 hex digits of the SHA-256 of what a callable does."""
    program = program_text(function)
    text = _read(function) if program is None else program + used_outside(function)
    version = getattr(function, "version", None)
    text += "" if version is None else f"\nversion {version!r}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def name_of(function: Callable[..., object]) -> str:
    """A name for messages and addresses: that of the function, or of the object's class."""
    name = getattr(inspect.unwrap(function), "__name__", type(function).__name__)
    return "lambda" if name == "<lambda>" else str(name)


def place_of_definition(function: Callable[..., object]) -> str:
    """The file that defines a callable, as its code names it."""
    inner = inspect.unwrap(function)
    called = inner if hasattr(inner, "__code__") else type(inner).__dict__.get("__call__")
    code = getattr(called, "__code__", None)
    return "<builtin>" if code is None else str(code.co_filename)


def program_text(function: Callable[..., object]) -> str | None:
    """The text of a program that defines the function and all it uses; None where it cannot be written down."""
    needed: dict[str, str] = {}
    if not _write(function, needed, []):
        return None
    return _HEAD + "\n".join(needed.values())


def importable_name(function: Callable[..., object]) -> str | None:
    """`module:name` of a function that another process can import; None for one of a script, a notebook or another function."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    if not module or module == "__main__" or module not in sys.modules:
        return None
    return f"{module}:{name}" if getattr(sys.modules[module], name, None) is function else None


def import_function(named: str) -> Any:
    """The function of a name that `importable_name` made."""
    module, _, name = named.partition(":")
    return getattr(importlib.import_module(module), name)


def used_outside(function: Callable[..., object]) -> str:
    """The imports of a function's program that its text does not show: the content of the user's modules, the versions of
    installed packages. Empty if it needs Python only, or if the function has no program."""
    outside: list[object] = []
    _write(function, {}, outside)
    walk = _Walk(_home(function), name_of(function))
    parts = [part for part in map(walk.parts, outside) if not _is_python(part)]
    return "" if not parts else "\n" + repr(walk.add_source_files(parts))


def _is_python(part: object) -> bool:
    """Whether it names something of Python's own library, or of whet, whose versions are pinned elsewhere."""
    return isinstance(part, list) and part[0] == "library" and (part[-1] == "" or part[1].startswith("whet"))


def _write(function: object, needed: dict[str, str], outside: list[object]) -> bool:
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
    if not _defaults_stand(function, definition):
        return False
    outside += imports_inside(function.__code__, function.__globals__)
    own = f"{source.rstrip()}\n"
    if needed.setdefault(function.__name__, own) != own:
        return False
    for name in sorted(_names(definition) - {function.__name__}):
        if name in function.__globals__:
            if not _write_global(function, name, needed, outside):
                return False
        elif not hasattr(builtins, name) and name not in _local_names(definition):
            return False
    needed[function.__name__] = needed.pop(function.__name__)
    return True


def _write_global(
    function: types.FunctionType, name: str, needed: dict[str, str], outside: list[object]
) -> bool:
    value = function.__globals__[name]
    home = getattr(value, "__module__", None)
    if isinstance(value, types.ModuleType):
        line = f"import {value.__name__} as {name}"
        outside += _modules_of(value, function.__code__)
    elif _is_plain(value):
        line = f"{name} = {_literal(value)}"
    elif isinstance(value, types.FunctionType) and home == function.__module__:
        return value.__name__ == name and (name in needed or _write(value, needed, outside))
    elif isinstance(home, str) and home != "__main__" and home != function.__module__:
        own = str(getattr(value, "__name__", ""))
        if getattr(sys.modules.get(home), own, None) is not value:
            return False
        line = f"from {home} import {own} as {name}"
        outside.append(value)
    else:
        return False
    return needed.setdefault(name, line) == line


def _defaults_stand(function: types.FunctionType, definition: ast.FunctionDef) -> bool:
    """Whether each default is written as what it is: a literal, or a name of the module that still has its value."""
    arguments = definition.args
    written = [*arguments.defaults, *(node for node in arguments.kw_defaults if node is not None)]
    values = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    if len(written) != len(values):
        return False
    for node, value in zip(written, values, strict=True):
        if isinstance(node, ast.Name):
            if node.id not in function.__globals__ or function.__globals__[node.id] is not value:
                return False
        elif any(isinstance(part, ast.Name) for part in ast.walk(node)):
            return False
    return True


def _literal(value: Any) -> str:
    """A plain value as Python writes it, sets in an order that is the same in every process."""
    if isinstance(value, set | frozenset):
        items = ", ".join(sorted(map(_literal, value)))
        text = f"{{{items}}}" if items else "set()"
        return f"frozenset({text})" if isinstance(value, frozenset) else text
    if type(value) is list:
        return f"[{', '.join(map(_literal, value))}]"
    if type(value) is tuple:
        return f"({', '.join(map(_literal, value))}{',' if len(value) == 1 else ''})"
    if type(value) is dict:
        return f"{{{', '.join(f'{_literal(k)}: {_literal(v)}' for k, v in value.items())}}}"
    return repr(value)


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


def _local_names(definition: ast.FunctionDef) -> set[str]:
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
    if type(value) in (list, tuple, set, frozenset):
        return all(map(_is_plain, value))
    if type(value) is dict:
        return all(_is_plain(key) and _is_plain(item) for key, item in value.items())
    return type(value) in _PLAIN


def _home(value: Any) -> str:
    """The module that a callable is defined in; the script where it comes from a library."""
    if isinstance(value, functools.partial):
        return _home(value.func)
    owner = value.__self__ if isinstance(value, types.MethodType) else value
    if isinstance(owner, types.FunctionType):
        home = str(owner.__globals__.get("__name__", owner.__module__))
        inner = getattr(owner, "__wrapped__", None)
        return _home(inner) if is_library(home) and isinstance(inner, types.FunctionType) else home
    home = str(getattr(owner if isinstance(owner, type) else type(owner), "__module__", ""))
    return "__main__" if is_library(home) else home


def _read(function: Callable[..., object]) -> str:
    """The behaviour of a callable as a text, which is the same in every process while code and values stay."""
    walk = _Walk(_home(function), name_of(function))
    try:
        parts = walk.parts(function)
    except RecursionError:
        walk, parts = _Walk(_home(function), name_of(function)), ["too deep"]
        parts.append(walk.opaque(function))
    return repr(walk.add_source_files(parts))


class _Unreadable(Exception):
    """A value of a library has no content that can be read."""


class _Walk:
    """Reads what a callable does or is, as nested lists of plain values.

    `home` is the module of the callable; `strict` holds while an object of a library is read, whose content counts as a whole or
    not at all. Functions, classes and objects that were read before are named by their number.
    """

    def __init__(self, home: str, name: str) -> None:
        self.home, self.name = home, name
        self.strict = False
        self.left = _MOST_VALUES
        self.known: dict[int, int] = {}
        self.alive: list[object] = []
        self.open: set[int] = set()
        self.without: list[str] = []
        self.classes: set[str] = set()

    def add_source_files(self, parts: Any) -> Any:
        """The parts, with the source files that stand for values without content."""
        if not self.without:
            return parts
        files: list[object] = []
        for home in sorted({self.home, *self.classes}):
            module = sys.modules.get(home)
            digests = None if module is None else module_digests(module)
            if digests is not None:
                files.append(digests)
            elif home == self.home or not is_library(home):
                self._say()
                files.append(_PROCESS)
        return [parts, "files", files]

    def _say(self) -> None:
        if self.name not in _SAID:
            _SAID.add(self.name)
            _log.warning(
                "%s uses a value whose content cannot be read (%s), and has no source file: it counts as a new function in every "
                "process, and nothing that was recorded before is handed out. Give it an attribute `version`.",
                *(self.name, self.without[0]),
            )

    def opaque(self, value: object) -> Any:
        """A text for a value without content: its class, and its number among the values of this class in this process."""
        if self.strict:
            raise _Unreadable
        kind = type(value)
        label = f"{kind.__module__}.{kind.__qualname__}"
        self.without.append(label)
        self.classes.add(kind.__module__) if not is_library(kind.__module__) else None
        of_kind = _NUMBERED.setdefault(f"{self.home} {self.name} {label}", [])
        number = next((n for n, one in enumerate(of_kind) if one is value), len(of_kind))
        if number == len(of_kind):
            of_kind.append(value)
        return ["opaque", label, number, library_version(kind.__module__)]

    def parts(self, value: Any) -> Any:
        """The identity of a value: its content, or its behaviour."""
        if type(value) in _PLAIN:
            return value
        if self.strict:
            self.left -= 1
            if self.left < 0:
                raise _Unreadable
        if type(value) in (
            list,
            tuple,
            set,
            frozenset,
            dict,
            collections.OrderedDict,
            types.MappingProxyType,
        ):
            return self._container(value)
        if id(value) in self.known:
            return ["again", self.known[id(value)]]
        self.known[id(value)] = len(self.known)
        self.alive.append(value)
        return self._other(value)

    def _container(self, value: Any) -> object:
        if id(value) in self.open:
            return "seen"
        self.open.add(id(value))
        try:
            kind = type(value).__name__
            if isinstance(value, set | frozenset):
                return [kind, sorted(repr(self._apart(item)) for item in value)]
            if isinstance(value, Mapping):
                return [kind, [[self.parts(key), self.parts(item)] for key, item in value.items()]]
            return [kind, [self.parts(item) for item in value]]
        finally:
            self.open.discard(id(value))

    def _apart(self, value: Any) -> object:
        """The parts of an item of a set: sets have no order, so that numbers given there are forgotten."""
        known = dict(self.known)
        try:
            return self.parts(value)
        finally:
            self.known = known

    def _other(self, value: Any) -> object:
        if isinstance(value, InnerImport):
            return ["files", digests_of(imported_files(value.name, value.members))]
        if isinstance(value, enum.Enum):
            return ["enum", self.parts(type(value)), value.name, self.parts(value.value)]
        if isinstance(value, re.Pattern):
            return ["pattern", value.pattern, value.flags]
        if isinstance(value, _BY_REPR) and is_library(type(value).__module__):
            return [type(value).__qualname__, repr(value)]
        if isinstance(value, functools.partial):
            return ["partial", self.parts(value.func), self.parts(value.args), self.parts(value.keywords)]
        if isinstance(value, types.MethodType):
            return ["method", self.parts(value.__func__), self.parts(value.__self__)]
        if isinstance(value, staticmethod | classmethod):
            return [type(value).__name__, self.parts(value.__func__)]
        if isinstance(value, property):
            return ["property", *(self.parts(part) for part in (value.fget, value.fset, value.fdel))]
        if isinstance(value, types.FunctionType):
            return self._function(value)
        if isinstance(value, types.CodeType):
            return self._code(value)
        if isinstance(value, types.ModuleType):
            return self._module(value)
        if isinstance(value, type):
            return self._class(value)
        if isinstance(value, types.BuiltinFunctionType):
            owner = value.__self__
            held = [] if owner is None or isinstance(owner, types.ModuleType) else [self.parts(owner)]
            return ["builtin", str(value.__module__), value.__qualname__, *held]
        return self._object(value)

    def _code(self, code: types.CodeType) -> object:
        named = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        handlers = getattr(code, "co_exceptiontable", b"")
        return [
            *(code.co_code, code.co_names, named, code.co_freevars, handlers),
            [self.parts(c) for c in code.co_consts],
        ]

    def _function(self, function: types.FunctionType) -> object:
        module = str(function.__globals__.get("__name__", function.__module__))
        cells = [cell.cell_contents for cell in function.__closure__ or () if _is_filled(cell)]
        held = [self.parts(part) for part in (function.__defaults__, function.__kwdefaults__, cells)]
        if is_library(module) and module != self.home:
            held = held[2:] if cells else []
            return ["library", module, function.__qualname__, *held, library_version(module)]
        code = function.__code__
        used = {name for inner in codes_in(code) for name in inner.co_names}
        known = []
        for name in sorted(used & function.__globals__.keys()):
            value = function.__globals__[name]
            whole = _modules_of(value, code) if isinstance(value, types.ModuleType) else [value]
            known.append([name, [self.parts(each) for each in whole]])
        inside = [self.parts(each) for each in imports_inside(code, function.__globals__)]
        extra = {k: v for k, v in vars(function).items() if k not in ("__wrapped__", "version")}
        return ["function", self.parts(code), *held, known, inside, self.parts(extra) if extra else []]

    def _module(self, module: types.ModuleType) -> object:
        if is_library(module.__name__):
            return ["library", module.__name__, library_version(module.__name__)]
        digests = module_digests(module)
        return self.opaque(module) if digests is None else ["module", module.__name__, digests]

    def _class(self, kind: type, data: bool = True) -> object:
        """A class by its functions and, unless a `version` stands for them, its other attributes."""
        name = [kind.__module__, kind.__qualname__]
        self.known.setdefault(id(kind), len(self.known))
        if is_library(kind.__module__):
            return ["library", *name, library_version(kind.__module__)]
        own = {k: v for k, v in sorted(vars(kind).items()) if not _is_made(k, v) and (data or _is_code(v))}
        fields = getattr(kind, "__dataclass_fields__", None) or {}
        factories = [
            [n, self.parts(f.default_factory)]
            for n, f in fields.items()
            if f.default_factory is not dataclasses.MISSING
        ]
        bases = [self.parts(base) if data else self._class(base, data) for base in kind.__bases__]
        written = _class_text(kind)
        if written is None:
            factories.append(self.opaque(kind))
        return ["class", *name, written, bases, self.parts(own), factories]

    def _object(self, value: Any) -> object:
        kind = type(value)
        own = kind.__module__.partition(".")[0] in OWN  # an integration says by its version what it runs
        if hasattr(value, "version") and (own or not is_library(kind.__module__)):
            return ["object", self._class(kind, data=False), self.parts(value.version)]
        if not is_library(kind.__module__):
            return ["object", self.parts(kind), *self._state(value)]
        if kind.__module__.partition(".")[0] in _STATELESS or kind is type(...):
            return ["library", kind.__module__, kind.__qualname__]
        if kind.__module__ == "builtins" and not _is_iterator_over_content(value):
            return ["library", kind.__module__, kind.__qualname__, getattr(value, "__name__", "")]
        inner = getattr(value, "__wrapped__", None) if callable(value) else None
        if isinstance(inner, types.FunctionType):
            return ["wrapped", kind.__module__, kind.__qualname__, self.parts(inner)]
        return self._of_library(value)

    def _state(self, value: Any) -> list[object]:
        """The attributes of a user's object, and what it holds as a list, a dict, an array."""
        try:
            reduced = value.__reduce_ex__(4)
        except Exception:
            held = getattr(value, "__dict__", None)
            return [self.opaque(value)] if held is None else [self.parts(dict(held))]
        return self._describe_reduced(reduced, type(value))

    def _describe_reduced(self, reduced: Any, kind: type) -> list[Any]:
        if isinstance(reduced, str):
            return [reduced]
        _, arguments, *more = reduced
        held = [each for each in arguments if each is not kind]
        state, items, pairs = (*more, None, None, None)[:3]
        if items is not None:
            held.append(list(items))
        if pairs is not None:
            held.append(dict(pairs))
        return [self.parts(held), self.parts(state)]

    def _of_library(self, value: Any) -> object:
        kind = type(value)
        outermost, known = not self.strict, dict(self.known)
        if outermost:
            self.left = _MOST_VALUES
        self.strict = True
        try:
            content = self._content(value)
        except _Unreadable:
            if not outermost:
                raise
            content = None
        finally:
            self.strict = not outermost
        if content is None:
            self.known = known
            return self.opaque(value)
        return ["value", kind.__module__, kind.__qualname__, library_version(kind.__module__), content]

    def _content(self, value: Any) -> object:
        size = getattr(value, "nbytes", 0)
        if isinstance(size, int) and size > _MOST_BYTES:
            raise _Unreadable
        kind = getattr(getattr(value, "dtype", None), "kind", None)
        if isinstance(kind, str) and kind in "biufcmMSUV" and hasattr(value, "tobytes"):
            return [str(value.dtype), list(value.shape), hashlib.sha256(value.tobytes()).hexdigest()]
        if kind == "O" and hasattr(value, "tolist") and hasattr(value, "tobytes"):
            return [list(value.shape), self.parts(value.tolist())]
        try:
            reduced = value.__reduce_ex__(4)
        except Exception:
            raise _Unreadable from None
        return self._describe_reduced(reduced, type(value))


_KNOWN_KINDS = frozenset(["builtins", "abc", "enum", "typing"])
"""Modules whose metaclasses keep what a class says among its attributes."""


def _class_text(kind: type) -> str | None:
    """The source of a class that the metaclass of a package makes, which keeps what it says where it likes; None where there is
    none. Of other classes the attributes are read."""
    if type(kind).__module__ in _KNOWN_KINDS or not is_library(type(kind).__module__):
        return ""
    try:
        return inspect.getsource(kind)
    except (OSError, TypeError):
        return None


def _is_code(value: Any) -> bool:
    return isinstance(value, types.FunctionType | staticmethod | classmethod | property | type)


def _is_made(name: str, value: Any) -> bool:
    """Whether an attribute of a class is made by Python or a package from the others, or says nothing of what it does."""
    if isinstance(value, types.FunctionType):
        return value.__code__.co_filename == "<string>"
    if isinstance(value, staticmethod | classmethod | property):
        return False
    if isinstance(value, types.MemberDescriptorType | types.GetSetDescriptorType):
        return True
    return name.startswith("_abc_") or (name.startswith("__") and name.endswith("__"))


def _is_iterator_over_content(value: Any) -> bool:
    return isinstance(value, Mapping | list | tuple | set | frozenset)


def _modules_of(module: types.ModuleType, code: types.CodeType) -> list[object]:
    """A module that a function names, and modules in it that it reaches by their names."""
    used = {name for inner in codes_in(code) for name in inner.co_names}
    modules: list[Any] = [module]
    for one in modules:
        for name in sorted(used) if not is_library(one.__name__) else ():
            inner = vars(one).get(name)
            if isinstance(inner, types.ModuleType) and inner not in modules:
                modules.append(inner)
    return modules


def _is_filled(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - an empty cell raises
    except ValueError:
        return False
    return True
