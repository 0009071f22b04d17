"""Run in a confined process: the tests of a row, which call the answer's code in another process.

It imports nothing of whet. In (standard input): `code`, `tests`, `entry`, `to` and `from` (file descriptors to the other process
and from it), `codec` (the source of the module that writes and reads values). Out (standard output), one JSON value a line:
`{"tests": N}`, `{"fault"}` where the code does not run, else `{"passed", "test", "fault", "beyond"}` of each test.
"""

from __future__ import annotations

import ast
import builtins
import json
import os
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

_LONGEST = 1 << 20
_SHOWN = 160
_Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DEFINITIONS = (*_FUNCTIONS, ast.ClassDef)
_AROUND = {"setup_method", "teardown_method", "setup_class", "teardown_class"}
_WITHOUT_EFFECT = (*_DEFINITIONS, ast.Import, ast.ImportFrom)


class AnswerEnded(BaseException):
    """The process of the answer is gone."""


class AnswerError(Exception):
    """An exception of a class that the answer defines, named `name` there."""

    name = ""


class CannotDo(TypeError):
    """A test wants of an object of the answer what cannot be asked of another process."""


class Remote:
    """The other process: objects of the answer are `Proxy` here, plain values are themselves."""

    def __init__(self, question: dict[str, Any], codec: Any) -> None:
        self._to, self._from = os.fdopen(question["to"], "w"), os.fdopen(question["from"], "r")
        self._codec = codec
        self._gone = False
        self.last = ""
        self.beyond = ""
        """The operation that the test needs and the answer's object does not support."""

    def say(self, message: dict[str, Any]) -> dict[str, Any]:
        """Send a message and return what comes back. Raises AnswerEnded."""
        if self._gone:
            raise AnswerEnded
        try:
            self._to.write(json.dumps(message) + "\n")
            self._to.flush()
            line = self._from.readline(_LONGEST)
            reply = json.loads(line) if line.endswith("\n") else None
        except (OSError, ValueError, RecursionError):
            reply = None
        if not isinstance(reply, dict):
            self._gone = True
            raise AnswerEnded
        return reply

    def do(
        self,
        kind: str,
        proxy: Proxy,
        arguments: tuple[Any, ...] = (),
        named: dict[str, Any] | None = None,
        name: str = "",
    ) -> Any:
        """Do something with an object of the answer; lists, dicts and sets among the arguments change as they did there."""
        named = named or {}
        reply = self.say(
            {
                "do": kind, "of": ["o", _number(proxy)], "name": name,
                "arguments": [self.write(one) for one in arguments],
                "named": {key: self.write(one) for key, one in named.items()},
            }
        )  # fmt: skip
        if "raised" in reply:
            raise self.error(reply)
        after = reply.get("arguments")
        if not isinstance(after, list):
            self._gone = True
            raise AnswerEnded
        value = self.read(reply.get("value"))
        for one, written in zip((*arguments, *named.values()), after, strict=False):
            _update(one, written, self)
        if kind == "call":
            self.last = f"the last call returned {_short(value)}"
        return value

    def write(self, value: Any) -> Any:
        if isinstance(value, Proxy):
            return ["o", _number(value)]
        if isinstance(value, list | tuple | set | frozenset):
            name = next(n for n, kind in self._codec["_CONTAINERS"].items() if isinstance(value, kind))
            return [name, [self.write(one) for one in value]]
        if isinstance(value, dict):
            return ["d", [[self.write(k), self.write(v)] for k, v in value.items()]]
        codec = self._codec["Codec"]()
        written = codec.write(value)
        if codec.kept:
            raise self.cannot(f"pass a value of the type {type(value).__name__} to the answer")
        return written

    def would_equal(self, proxy: Proxy, value: Any) -> bool:
        """Whether an object of the answer says that it equals a plain value, which stays as it is."""
        try:
            message = {"do": "eq", "of": ["o", _number(proxy)], "arguments": [self.write(value)]}
        except CannotDo:
            return False
        return self.say(message).get("value") is True

    def cannot(self, what: str) -> CannotDo:
        """The error of a test that wants what cannot be done, which is noted."""
        self.beyond = what
        return CannotDo(f"a test cannot {what}")

    def read(self, written: Any) -> Any:
        """A value of the answer. Raises AnswerEnded for a message that is no value."""
        try:
            return self._read(written)
        except (TypeError, ValueError, KeyError, IndexError, AttributeError, RecursionError, ArithmeticError):
            self._gone = True
            raise AnswerEnded from None

    def _read(self, written: Any) -> Any:
        if written is None or isinstance(written, bool):
            return written
        name, content = written[:2]
        if name == "o":
            return Proxy(self, int(content), str(written[2]))
        if name == "d":
            return {self._read(key): self._read(value) for key, value in content}
        if name in self._codec["_CONTAINERS"]:
            return self._codec["_CONTAINERS"][name](self._read(one) for one in content)
        return self._codec["read_plain"](name, content)

    def error(self, reply: dict[str, Any]) -> BaseException:
        """The exception that the answer raised: the first of its classes that Python or a library of the tests defines."""
        text, name = str(reply.get("text", ""))[:500], str(reply.get("name"))[:100]
        if kind := _find_class(reply.get("raised")):
            made_of = self.read(reply["made_of"]) if "made_of" in reply else None
            if error := _make_error(kind, made_of, text):
                return error
        unknown = AnswerError(text)
        unknown.name = name
        return unknown


def _find_class(names: Any) -> type[BaseException] | None:
    """The first class of these pairs of module and name that a module of this process defines, if it is not just Exception."""
    for pair in names if isinstance(names, list) else ():
        module, name = map(str, pair) if isinstance(pair, list) and len(pair) == 2 else ("", "")
        kind = None if module == __name__ else getattr(sys.modules.get(module), name, None)
        if isinstance(kind, type) and issubclass(kind, BaseException):
            return None if kind in (Exception, BaseException) else kind
    return None


def _make_error(kind: type[BaseException], made_of: Any, text: str) -> BaseException | None:
    """An exception with this text, made of the values of the original one if it can be."""
    silent = {"__init__": lambda self: None, "__str__": lambda self: text, "__module__": kind.__module__}
    ways: tuple[Callable[[], BaseException], ...] = (
        lambda: kind(*made_of),
        lambda: kind(text),
        lambda: type(kind.__name__, (kind,), silent)(),
    )
    for make in ways:
        try:
            error = make()
            if str(error) == text:
                return error
        except Exception:
            continue
    return None


class Proxy:
    """An object of the answer. It equals other objects of the answer only, as they say; no plain value."""

    __slots__ = ("_number", "_remote", "_type")

    def __init__(self, remote: Remote, number: int, kind: str) -> None:
        for name, value in (("_remote", remote), ("_number", number), ("_type", kind)):
            object.__setattr__(self, name, value)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return _remote(self).do("call", self, arguments, named)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _remote(self).do("attribute", self, name=name)

    def __setattr__(self, name: str, value: Any) -> None:
        _remote(self).do("set", self, (value,), name=name)

    def __iter__(self) -> Iterator[Any]:
        return _remote(self).do("iter", self)  # type: ignore[no-any-return]

    def __instancecheck__(self, value: Any) -> bool:
        return isinstance(value, Proxy) and bool(_remote(self).do("isinstance", self, (value,)))

    def __format__(self, form: str) -> str:
        return format(str(self), form)

    def __hash__(self) -> int:
        return int(_remote(self).do("hash", self))


def _forward(kind: str, wanted: type | None) -> Callable[..., Any]:
    def method(self: Proxy, *arguments: Any) -> Any:
        value = _remote(self).do(kind, self, arguments)
        if wanted is not None and not isinstance(value, wanted):
            raise TypeError(f"{kind}() of the answer's object gave {_short(value)}")
        return value

    return method


def _operator(kind: str) -> Callable[..., Any]:
    def method(self: Proxy, *others: Any) -> Any:
        plain = [type(other).__name__ for other in others if not isinstance(other, Proxy)]
        if plain:
            what = f"apply {kind.rstrip('_')} to an object of the answer and a value of the type {plain[0]}"
            if kind not in ("eq", "ne"):
                raise _remote(self).cannot(what)
            if _remote(self).would_equal(self, others[0]):
                _remote(self).beyond = what
            return NotImplemented
        return _remote(self).do(kind, self, others)

    return method


def _beyond(kind: str) -> Callable[..., Any]:
    def method(self: Proxy, *arguments: Any) -> Any:
        raise _remote(self).cannot(f"apply {kind} to an object of the answer")

    return method


for _kind, _wanted in (
    ("len", int), ("next", None), ("str", str), ("repr", str), ("bool", bool), ("getitem", None), ("setitem", None),
    ("delitem", None), ("contains", bool),
):  # fmt: skip
    setattr(Proxy, f"__{_kind}__", _forward(_kind, _wanted))
for _kind in (
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "add",
    "sub",
    "mul",
    "truediv",
    "floordiv",
    "mod",
    "and_",
    "or_",
    "xor",
    "neg",
):
    setattr(Proxy, f"__{_kind.rstrip('_')}__", _operator(_kind))
for _kind in (
    "radd", "rsub", "rmul", "rtruediv", "rfloordiv", "rmod", "pow", "rpow", "matmul", "abs", "int", "float", "complex", "index",
    "round", "enter", "exit", "aenter", "await", "aiter", "reversed", "pos", "invert", "lshift", "rshift", "missing",
):  # fmt: skip
    setattr(Proxy, f"__{_kind}__", _beyond(_kind))


def _remote(proxy: Proxy) -> Remote:
    remote: Remote = object.__getattribute__(proxy, "_remote")
    return remote


def _number(proxy: Proxy) -> int:
    number: int = object.__getattribute__(proxy, "_number")
    return number


def _update(value: Any, written: Any, remote: Remote) -> None:
    """Change a list, dict or set as it was changed in the other process."""
    if not isinstance(value, list | dict | set | bytearray):
        return
    after: Any = remote.read(written)
    if type(after) is not type(value) or _is_same(after, value):
        return
    value.clear()
    extend: Any = value.update if isinstance(value, dict | set) else value.extend
    extend(after)


def _is_same(one: Any, other: Any) -> bool:
    """Whether two values are the same, with the same objects of the answer in them, which are not asked."""
    if isinstance(one, Proxy) and isinstance(other, Proxy):
        return _number(one) == _number(other)
    if type(one) is not type(other):
        return False
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_is_same, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_is_same(one[key], other[key]) for key in one)
    return bool(one == other)


def _short(value: object) -> str:
    text = f"an object {object.__getattribute__(value, '_type')}" if isinstance(value, Proxy) else repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def parse_tests(tests: str | list[str], entry: str) -> list[tuple[str, str]]:
    """The tests as (kind, source): `setup` is run and counts for nothing, `test` and `call` count.

    Each source of a list is one test, with the calls of its test functions, unless it only imports and defines.

    Raises SyntaxError for a source that is no Python, ValueError for a test function that cannot be called without arguments.
    """
    sources = tests if isinstance(tests, list) else [tests]
    trees = [ast.parse(source) for source in sources]
    calls = [_calls(tree, entry) for tree in trees]
    if len(sources) == 1:
        whole = [("setup", sources[0]), *(("call", call) for call in calls[0])]
        return whole if calls[0] else _asserts_of(trees[0])
    return [
        (
            "test" if called or not all(isinstance(n, _WITHOUT_EFFECT) for n in tree.body) else "setup",
            "\n".join((source, *called)),
        )
        for source, tree, called in zip(sources, trees, calls, strict=True)
    ]


def _calls(tree: ast.Module, entry: str) -> list[str]:
    """The calls of the test functions, of the test methods of classes, or of `check`."""
    calls = []
    for node in tree.body:
        if isinstance(node, _FUNCTIONS) and node.name.startswith("test"):
            calls.append(f"{_callable(node, node.name, 0)}()")
        elif isinstance(node, ast.ClassDef):
            calls += _calls_of_class(node)
    if not calls and entry and any(isinstance(n, ast.FunctionDef) and n.name == "check" for n in tree.body):
        return [f"check({entry})"]
    return calls


def _calls_of_class(node: ast.ClassDef) -> list[str]:
    """The calls of the test methods of a class of unittest, or of one named `Test...`; none for any other class."""
    bases = {base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "") for base in node.bases}
    of_unittest = "TestCase" in bases
    if not of_unittest and not node.name.startswith("Test"):
        return []
    methods = {one.name: one for one in node.body if isinstance(one, _FUNCTIONS)}
    if not of_unittest and (around := _AROUND & methods.keys()):
        raise ValueError(f"{node.name}.{min(around)} is not run; a unittest.TestCase has setUp, which is")
    prepared = f"{node.name}.setUpClass(); " if of_unittest and "setUpClass" in methods else ""
    calls = []
    for name, method in methods.items():
        if name.startswith("test"):
            _callable(method, f"{node.name}.{name}", 1)
            call = f"{node.name}({name!r}).debug()" if of_unittest else f"{node.name}().{name}()"
            calls.append(prepared + call)
    return calls


def _callable(node: _Function, name: str, own: int) -> str:
    """The name of a function that is called with the first `own` arguments. Raises ValueError for one that needs others."""
    needed = node.args.posonlyargs + node.args.args
    needed = needed[own : len(needed) - len(node.args.defaults)]
    named = [
        one
        for one, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
        if default is None
    ]
    if needed or named:
        words = ", ".join(one.arg for one in (*needed, *named))
        raise ValueError(f"{name} needs the arguments {words}, and neither fixtures nor parametrize are run")
    if isinstance(node, ast.AsyncFunctionDef):
        raise ValueError(f"{name} is a coroutine, which is not awaited")
    return name


def _asserts_of(tree: ast.Module) -> list[tuple[str, str]]:
    """Each statement with an assert as a test, the others as setup."""
    helpers = {node.name: node for node in tree.body if isinstance(node, _DEFINITIONS)}
    asserting = set[str]()
    while new := {
        name for name, node in helpers.items() if name not in asserting and _asserts(node, asserting)
    }:
        asserting |= new
    return [
        (
            "test" if not isinstance(node, _DEFINITIONS) and _asserts(node, asserting) else "setup",
            ast.unparse(node),
        )
        for node in tree.body
    ]


def _asserts(node: ast.AST, names: set[str]) -> bool:
    """Whether a statement has an assert, in a loop or a condition too, or calls one of these functions, which have some. What
    runs only in a program of its own (`if __name__ == ...`) has none."""
    if isinstance(node, ast.If) and any(
        isinstance(n, ast.Name) and n.id == "__name__" for n in ast.walk(node.test)
    ):
        return False
    return any(
        isinstance(inner, ast.Assert)
        or (isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name) and inner.func.id in names)
        for inner in ast.walk(node)
    )


def _why(error: BaseException, remote: Remote) -> str:
    if isinstance(error, AnswerEnded):
        return "the process of the answer ended: it took too long or too much memory, returned more than 1 MiB, or left"
    if isinstance(error, AssertionError):
        beyond = f"a test cannot {remote.beyond}" if remote.beyond else ""
        return "; ".join(part for part in (str(error)[:_SHOWN], remote.last, beyond) if part)
    name = error.name if isinstance(error, AnswerError) else type(error).__name__
    return str(error)[:_SHOWN] if isinstance(error, CannotDo) else f"{name}: {str(error)[:_SHOWN]}"


def _load(remote: Remote, code: str) -> tuple[dict[str, Any], str]:
    """The names that the answer defines, and its fault."""
    try:
        reply = remote.say({"code": code})
        if "raised" in reply:
            return {}, f"{reply.get('name')}: {str(reply.get('text'))[:_SHOWN]}"
        names = reply.get("names")
        if not isinstance(names, dict):
            raise AnswerEnded
        return {
            name: remote.read(value)
            for name, value in names.items()
            if not name.startswith("__") and not hasattr(builtins, name)
        }, ""
    except AnswerEnded as error:
        return {}, _why(error, remote)


def main() -> None:
    """Run the tests, write a line for each."""
    question = json.load(sys.stdin)
    out = os.fdopen(os.dup(1), "w")
    nothing = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(nothing, fd)

    def say(**line: Any) -> None:
        out.write(json.dumps(line) + "\n")
        out.flush()

    parts = parse_tests(question["tests"], question["entry"])
    codec = types.ModuleType("codec")
    exec(compile(question["codec"], "<codec>", "exec", dont_inherit=True), codec.__dict__)  # noqa: S102
    remote = Remote(question, vars(codec))
    count = sum(kind != "setup" for kind, _ in parts)
    say(tests=count)
    space, fault = _load(remote, question["code"])
    if fault:
        return say(fault=fault)
    space |= {"__name__": "tests"}
    for kind, source in parts:
        remote.last = remote.beyond = ""
        try:
            exec(compile(source, "<tests>", "exec", dont_inherit=True), space)  # noqa: S102
            fault = ""
        except BaseException as error:
            fault = _why(error, remote) or "it does not hold"
        if kind != "setup":
            say(passed=not fault, test=source[:_SHOWN], fault=fault, beyond=bool(fault and remote.beyond))
        elif fault:
            say(setup=source[:_SHOWN], fault=fault, beyond=bool(remote.beyond))


if __name__ == "__main__":
    main()
