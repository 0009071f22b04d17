"""The examples in docstrings give what they say."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

import whet

ROOT = Path(whet.__file__).parent
WITH_EXAMPLES = [file for file in sorted(ROOT.rglob("*.py")) if ">>> " in file.read_text(encoding="utf-8")]


@pytest.mark.parametrize("file", WITH_EXAMPLES, ids=lambda file: str(file.relative_to(ROOT)))
def test_every_example_in_a_docstring_gives_what_it_says(file: Path) -> None:
    name = ".".join(file.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__")
    module = pytest.importorskip(name) if "hf" in file.parts else importlib.import_module(name)
    examples = doctest.testmod(module)
    assert examples.attempted, f"{name} has examples that are not in a docstring of its own"
    assert not examples.failed, f"{examples.failed} examples of {name} give something else; see above"
