"""What papers call a setting, a reward or an environment is found by that name, and what is then shown can be used."""

from __future__ import annotations

import importlib
import inspect
import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from whet.cli.main import cli
from whet.errors import UsageError
from whet.methods import METHODS, configure, get_method
from whet.rl.mechanisms import MECHANISMS, Mechanism, find_mechanism
from whet.task import load_task

ROOT = Path(__file__).parents[2]
ALL = [pytest.param(one, id=one.names[0]) for one in MECHANISMS]
FILES = {
    "prompt.md": "{{input}}",
    "principles.md": "Short answers are better.",
    "potential.py": "def potential(seen, row):\n    return 0.0\n",
    "feedback.jsonl": "",
}


def test_every_name_is_of_one_mechanism_and_of_no_method() -> None:
    names = [name for one in MECHANISMS for name in one.names]
    assert [find_mechanism(name.upper().replace("-", " ")).names for name in names] == [  # type: ignore[union-attr]
        one.names for one in MECHANISMS for _ in one.names
    ]
    assert not {*names} & {*METHODS} and find_mechanism("no such idea") is None


@pytest.mark.parametrize("one", ALL)
def test_it_is_shown_with_its_code_and_an_equation_or_sentence(one: Mechanism) -> None:
    shown = CliRunner().invoke(cli, ["methods", one.names[-1]])
    assert shown.exit_code == 0 and one.use in shown.output and one.page in shown.output
    said = json.loads(CliRunner().invoke(cli, ["methods", one.names[0], "--json"]).stdout)
    assert said["summary"] and said["summary"] == one.summary()
    with pytest.raises(UsageError, match=re.escape(one.use)):
        get_method(one.names[0])


@pytest.mark.parametrize("one", ALL)
def test_its_page_has_the_part_that_is_named(one: Mechanism) -> None:
    page, _, part = one.page.partition("#")
    text = (ROOT / page).read_text(encoding="utf-8")
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    slugs = [re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-") for title in titles]
    assert not part or part in slugs


@pytest.mark.parametrize("one", [p for p in ALL if p.values[0].use.startswith("--")])  # type: ignore[union-attr]
def test_its_options_are_settings_of_the_method(one: Mechanism) -> None:
    words = shlex.split(one.use)
    assert words[0] == "--method" and {*words[2::2]} <= {"--set"}
    settings = dict(word.split("=", 1) for word in words[3::2])
    try:
        method = get_method(words[1])
    except UsageError as missing:
        pytest.skip(str(missing))
    config = configure(method, dict(settings))
    for key, value in settings.items():
        known = getattr(config, key)
        assert known == float(value) if isinstance(known, float) else str(known).lower() == value.lower()


@pytest.mark.parametrize("one", [p for p in ALL if p.values[0].use.startswith("whet ")])  # type: ignore[union-attr]
def test_its_command_takes_these_options(one: Mechanism) -> None:
    words = shlex.split(one.use)[1:]
    shown = CliRunner().invoke(cli, [*words, "--help"])
    assert shown.exit_code == 0 and all(word in shown.output for word in words if word.startswith("--"))


@pytest.mark.parametrize("name", ["E-SPL", "Prompt-R1", "prompt a video", "MO-CAPO"])
def test_a_method_is_shown_by_the_spelling_of_its_paper(name: str) -> None:
    shown = CliRunner().invoke(cli, ["methods", name])
    assert shown.exit_code == 0 and re.search(r"^[a-z0-9_]+: |^  page|code:", shown.output, re.MULTILINE), (
        shown.output
    )


@pytest.mark.parametrize("one", [p for p in ALL if not p.values[0].use.startswith(("--", "await ", "whet "))])  # type: ignore[union-attr]
def test_its_lines_are_read_in_a_task_file(one: Mechanism, tmp_path: Path) -> None:
    for package in ("gymnasium", "scipy", "sympy") if "gymnasium" in one.use or "sympy" in one.use else ():
        pytest.importorskip(package)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    if "verilog" in one.use and not (shutil.which("iverilog") and shutil.which("yosys")):
        pytest.skip("Icarus Verilog and Yosys are not installed")
    if "taste.safetensors" in one.use:
        from whet.rewards.preference import PreferencePair, fit_preferences

        pairs = [PreferencePair(f"Row {i}?", f"Row {i}.", "no " * (i + 1)) for i in range(40)]
        (tmp_path / "taste.safetensors").write_bytes(fit_preferences(pairs, "surface")[0].save())
    yaml = f"name: t\nprompt: prompt.md\n{one.use}\n"
    if one.use.startswith("reward") or "questions" in one.use:
        yaml = yaml.replace("episodes: 90, ", "")
        rows = [
            {"input": f"row {i}", "target": str(i), "calls": [], "goal": "a b", "seed": i} for i in range(12)
        ]
        (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        yaml += "data: data.jsonl\n"
    if "gap" in one.names or "confidence" in one.use:
        yaml += f"labels: {[str(i) for i in range(12)]}\n"
    (tmp_path / "task.yaml").write_text(yaml)
    assert load_task(tmp_path).name == "t"


@pytest.mark.parametrize("one", [p for p in ALL if p.values[0].use.startswith("await ")])  # type: ignore[union-attr]
def test_its_function_takes_the_arguments_that_are_named(one: Mechanism) -> None:
    path, _, arguments = one.use.removeprefix("await ").removesuffix(")").partition("(")
    module, _, name = path.rpartition(".")
    function = getattr(importlib.import_module(module), name)
    inspect.signature(function).bind(*arguments.split(", "))
