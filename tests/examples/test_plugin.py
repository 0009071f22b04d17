"""examples/plugin: a package of somebody else, installed beside whet in an environment of its own, without a network."""

from __future__ import annotations

import ast
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

import whet.testing

ROOT = Path(__file__).resolve().parents[2]
PLUGIN = ROOT / "examples" / "plugin"
Python: TypeAlias = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Python:
    """The interpreter of a new environment that holds whet and the plugin; `python(*arguments)` runs it in a folder of
    its own. What whet depends on is taken from the environment of this test."""
    folder = tmp_path_factory.mktemp("plugin")
    venv.create(folder / "env", with_pip=False)
    executable = folder / "env" / ("Scripts" if os.name == "nt" else "bin") / "python"
    names = {"base": str(folder / "env"), "platbase": str(folder / "env")}
    site = Path(sysconfig.get_path("purelib", "venv", names))
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
    environment |= {"OMP_NUM_THREADS": "1", "PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    install = [sys.executable, "-m", "pip", "--python", str(executable), "install", "--quiet"]
    install += [
        "--no-deps",
        "--no-build-isolation",
        str(ROOT / "packages" / "whet-client"),
        str(ROOT),
        str(PLUGIN),
    ]
    done = subprocess.run(install, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    shutil.copytree(PLUGIN / "task", folder / "task")

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(executable), *arguments]
        return subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300
        )

    return call


def result(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The JSON that a command printed."""
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_whet_and_the_plugin_come_from_the_new_environment(python: Python) -> None:
    for module in ("whet", "whet_example_plugin"):
        done = python("-c", f"import {module}, sys; print({module}.__file__.startswith(sys.prefix))")
        assert done.stdout.strip() == "True", done.stdout + done.stderr


def test_the_method_is_listed_with_its_package(python: Python) -> None:
    listed = result(python("-m", "whet", "methods", "--json"))
    row = next(row for row in listed["methods"] if row["name"] == "sentences")
    assert row["package"] == "whet-example-plugin" and listed["unusable"] == []
    assert {row["package"] for row in listed["methods"] if row["name"] != "sentences"} == {"whet"}


def test_a_run_uses_method_provider_reward_and_environment(python: Python) -> None:
    command = ("-m", "whet", "optimize", "task", "--max-calls", "20000", "--json")
    first = result(python(*command))
    assert first["method"] == "sentences"
    assert "Halve the range with every guess." in first["best"]["prompt"]
    assert first["improvement"]["promoted"] and first["best"]["test"]["mean"] == 1.0
    assert first["baseline"]["test"]["mean"] < 0.7
    same = result(python(*command))
    assert same.pop("recorded") and same.pop("ended") and same == first
    other = result(python(*command, "--set", "sentences=Think first.|Be quick.", "--seed", "1"))
    assert not other["improvement"]["promoted"]


def test_a_built_in_method_works_with_the_parts_of_the_plugin(python: Python) -> None:
    options = ("--method", "random_search", "--set", "n=4", "--max-calls", "20000", "--json")
    assert result(python("-m", "whet", "optimize", "task", *options))["method"] == "random_search"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--method", "sentence"), 'Did you mean "sentences"?'),
        (("--set", "sentence=x"), 'sentences has no setting "sentence". Did you mean "sentences"?'),
        (("--lm", "guesser/loud"), 'There is no model "guesser/loud"'),
        (("--lm", "gueser/plain"), 'Did you mean "guesser"?'),
    ],
)
def test_names_of_the_plugin_are_offered_where_one_is_wrong(
    python: Python, arguments: tuple[str, ...], said: str
) -> None:
    done = python("-m", "whet", "optimize", "task", *arguments)
    assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr


def test_the_plugin_passes_the_public_conformance_suites(python: Python) -> None:
    done = python("-m", "pytest", "-q", "-p", "no:randomly", str(PLUGIN / "tests"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout and "skipped" not in done.stdout


def listed() -> dict[str, set[str]]:
    """The public names of each module, as docs/extending.md lists them."""
    page = (ROOT / "docs" / "extending.md").read_text("utf-8")
    rows = re.findall(r"^\| `(whet[\w.]*)` \| (.*) \|$", page, re.MULTILINE)
    names = {module: set(re.findall(r"`(\w+)`", cell)) for module, cell in rows}
    return {**names, "whet.testing": set(whet.testing.__all__)}


def test_every_listed_name_exists() -> None:
    assert len(listed()) == 8
    for module, names in listed().items():
        for name in names:
            assert hasattr(importlib.import_module(module), name), f"{module} has no {name}"


def test_the_plugin_imports_listed_names_only() -> None:
    public = listed()
    for path in [*PLUGIN.glob("src/**/*.py"), *PLUGIN.glob("tests/*.py")]:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                assert not any(alias.name.partition(".")[0] == "whet" for alias in node.names), path.name
            elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "whet":
                names = {alias.name for alias in node.names}
                assert names <= public.get(str(node.module), set()), f"{path.name}: {node.module} {names}"
