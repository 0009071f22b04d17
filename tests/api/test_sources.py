"""The identity of functions: what must change it, what must not, and programs that stand for themselves."""

from __future__ import annotations

import functools
import importlib.util
import math
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from whet._util.sources import name_of, program_text, source_hash

LIMIT = 3


def helper(text: str) -> int:
    return len(text) + LIMIT


def plain(example: dict[str, Any], output: str, scale: float = 2.0) -> float:
    """A reward."""
    return math.sqrt(helper(output)) * scale + len(Path("x").name)


async def slow(example: dict[str, Any], output: str) -> float:
    return 1.0


def closing(limit: int) -> Callable[[str], int]:
    def inner(text: str) -> int:
        return len(text) + limit

    return inner


class Held:
    """An object that is called."""

    def __init__(self, limit: int) -> None:
        self.limit = limit

    def __call__(self, text: str) -> int:
        return self.more(text)

    def more(self, text: str) -> int:
        return len(text) + self.limit


class Versioned(Held):
    """One whose attributes change as it works."""

    version = 1


def module(tmp_path: Path, text: str) -> ModuleType:
    """A module of that text, under a name of its own."""
    path = tmp_path / f"made_{abs(hash(text))}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = made
    spec.loader.exec_module(made)
    return made


TEXT = "SCALE = 2\n\n\ndef helper(x):\n    return x * SCALE\n\n\ndef f(x):\n    return helper(x) + 1\n"


@pytest.mark.parametrize(
    ("old", "new"),
    [("+ 1", "+ 2"), ("SCALE = 2", "SCALE = 3"), ("x * SCALE", "x - SCALE"), ("def f(x)", "def f(x=7)")],
)
def test_code_helpers_globals_and_defaults_are_part_of_the_identity(
    tmp_path: Path, old: str, new: str
) -> None:
    first, second = module(tmp_path, TEXT).f, module(tmp_path, TEXT.replace(old, new)).f
    assert source_hash(first) != source_hash(second)


def test_what_the_function_does_not_use_is_not(tmp_path: Path) -> None:
    other = "import os\nOTHER = 1\n\n\ndef unused():\n    return 0\n\n\n"
    assert source_hash(module(tmp_path, TEXT).f) == source_hash(module(tmp_path, other + TEXT).f)


def test_closures_lambdas_partials_and_objects_differ_by_what_they_hold() -> None:
    assert source_hash(closing(1)) == source_hash(closing(1)) != source_hash(closing(2))
    first, same, other = (lambda x: x + 1), (lambda x: x + 1), (lambda x: x + 2)
    assert source_hash(first) == source_hash(same) != source_hash(other)
    assert source_hash(functools.partial(plain, scale=1.0)) != source_hash(
        functools.partial(plain, scale=2.0)
    )
    assert source_hash(Held(1)) == source_hash(Held(1)) != source_hash(Held(2))
    assert source_hash(Held(1).more) != source_hash(Held(2).more)


def test_a_version_stands_in_the_place_of_attributes_that_change() -> None:
    one, two = Versioned(1), Versioned(2)
    assert source_hash(one) == source_hash(two)
    two.version = 2
    assert source_hash(one) != source_hash(two)


def test_a_version_stands_for_what_an_integration_of_whet_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """DSPy numbers its predictors at random: a run of a module could not be resumed."""
    monkeypatch.setattr(Versioned, "__module__", "whet.integrations.made")
    one, two = Versioned(1), Versioned(2)
    assert source_hash(one) == source_hash(two)
    two.version = 2
    assert source_hash(one) != source_hash(two)


def test_a_function_that_uses_itself_or_one_that_uses_it_has_an_identity(tmp_path: Path) -> None:
    made = module(
        tmp_path,
        "def odd(n):\n    return n and even(n - 1)\n\n\ndef even(n):\n    return not n or odd(n - 1)\n",
    )
    space: dict[str, Any] = {}
    exec(str(program_text(made.even)), space)  # noqa: S102 - the text of this test
    assert space["even"](4) is True and len(source_hash(made.odd)) == 16


def test_the_program_of_a_function_does_what_the_function_does() -> None:
    text = program_text(plain)
    assert text is not None
    space: dict[str, Any] = {}
    exec(text, space)  # noqa: S102 - the text of this test
    assert space["plain"]({}, "abc") == plain({}, "abc")


@pytest.mark.parametrize(
    "function",
    [lambda x: x, closing(1), slow, Held(1), Held(1).more, functools.partial(plain), len],
    ids=name_of,
)
def test_what_does_not_stand_for_itself_has_an_identity_but_no_program(function: Any) -> None:
    assert program_text(function) is None and len(source_hash(function)) == 16


def test_functions_of_other_libraries_are_known_by_their_names() -> None:
    from json import dumps

    def inner(text: str) -> str:
        return dumps(text)

    assert source_hash(inner) == source_hash(inner) != source_hash(dumps)
    assert source_hash(functools.partial(dumps, indent=1)) != source_hash(functools.partial(dumps, indent=2))
