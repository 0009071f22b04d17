"""The three distributions: which commands there are without whet-live, other names, and their wheels in empty environments."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import whet_client
import whet_client.assignment
import whet_client.records
import whet_live
from tests.distributions import ROOT
from tests.plugins.packages import install
from whet._util import plugins
from whet.cli.main import cli
from whet.errors import UsageError


@pytest.mark.parametrize(
    "arguments", [["serve"], ["prompts", "list"], ["learn", "--watch"], ["access", "add"]]
)
def test_without_whet_live_its_commands_say_what_to_install(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.setattr(plugins, "_entries", lambda group: [])
    done = CliRunner().invoke(cli, arguments)
    assert isinstance(done.exception, UsageError)
    name = "learn --watch" if "--watch" in arguments else arguments[0]
    assert str(done.exception) == (
        f"`whet {name}` is a command of whet-live, which is not installed. Install it with: pip install 'whet[live]'"
    )
    assert " serve " not in CliRunner().invoke(cli, ["--help"]).output


def test_a_package_brings_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = "import click\n@click.command()\ndef hello():\n    '''Say hello.'''\n    click.echo('Hello.')\nWRONG = 1\n"
    entries = {
        "hello": "more_commands:hello",
        "broken": "more_commands:WRONG",
        "optimize": "more_commands:hello",
    }
    install(tmp_path, "more-commands", {plugins.COMMANDS: entries}, source)
    monkeypatch.syspath_prepend(str(tmp_path))
    shown = CliRunner().invoke(cli, ["--help"]).output
    assert "hello     Say hello." in shown and "broken    Cannot be used; try it to see why." in shown
    assert CliRunner().invoke(cli, ["hello"]).output == "Hello.\n"
    broken = str(CliRunner().invoke(cli, ["broken"]).exception)
    assert "more-commands brings the command broken" in broken and "is no click.Command" in broken
    assert "Usage: cli optimize" in CliRunner().invoke(cli, ["optimize", "--help"]).output, (
        "what is built in stays"
    )


def test_watching_is_a_command_of_its_own() -> None:
    context = click.Context(cli)
    assert "learn-watch" not in cli.list_commands(context)
    assert "--gate" in CliRunner().invoke(cli, ["learn", "--watch", "--help"]).output
    assert "--gate " not in CliRunner().invoke(cli, ["learn", "--help"]).output.partition("Examples")[0]


def test_other_names_are_the_same_objects() -> None:
    from whet.client import Client, Feedback
    from whet.client.assignment import version_for
    from whet.client.records import Inference
    from whet.live import open_live
    from whet.live.choices import Choice
    from whet.live.registry import Decision
    from whet.live.traffic import Filter
    from whet.live.traffic.behaviour import RatedAnswer
    from whet.live.traffic.dataset import behaviour_of
    from whet.testing import DatabaseConformance
    from whet_live import choices, registry, testing, traffic

    assert (Client, Feedback) == (whet_client.Client, whet_client.Feedback)
    assert version_for is whet_client.assignment.version_for and Inference is whet_client.records.Inference
    assert (open_live, Choice, Decision) == (whet_live.open_live, choices.Choice, registry.Decision)
    assert (Filter, behaviour_of) == (traffic.Filter, traffic.behaviour_of)
    assert DatabaseConformance is testing.DatabaseConformance
    assert RatedAnswer.__module__ == "whet_live.traffic.behaviour"
    with pytest.raises(ImportError):
        from whet.live import no_such_name  # type: ignore[attr-defined]  # noqa: F401


ONLY_THE_STANDARD_LIBRARY = """
import sys
before = set(sys.modules)
from whet_client import Client, Feedback, Inference
print(sorted({"hashlib", "ssl", "random", "decimal", "whet_client.prompt"} & sys.modules.keys()))
from whet_client.assignment import version_for
prompt = Client(spool=False, fallbacks={"greet": "Greet {{name}}."}, send=lambda *request: 1 / 0)
extra = {name.partition(".")[0] for name in sys.modules.keys() - before}
print(sorted(extra - sys.stdlib_module_names))
"""


def test_the_client_imports_the_standard_library_only() -> None:
    """A bare interpreter, without other packages. The modules of the first list would take a third of the import's time."""
    done = subprocess.run(
        [sys.executable, "-S", "-c", ONLY_THE_STANDARD_LIBRARY], capture_output=True, text=True,
        env={"PYTHONPATH": str(ROOT / "packages" / "whet-client")}, cwd="/",
    )  # fmt: skip
    assert done.stdout.splitlines() == ["[]", "['whet_client']"], done.stderr


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheels of a release."""
    folder = tmp_path_factory.mktemp("wheels")
    for source in (ROOT, ROOT / "packages" / "whet-client", ROOT / "packages" / "whet-live"):
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
        subprocess.run(
            command, cwd=source, env={**os.environ, "WHET_RELEASE": "1"}, check=True, capture_output=True
        )
    return folder


def environment(folder: Path, wheels: Path, *packages: str, beside: bool = False) -> Path:
    """The Python of a new environment with these of our wheels; `beside`: libraries of others are those of this one."""
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    command = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(python),
        "install",
        "--quiet",
        "--no-index",
        "--no-deps",
    ]
    files = [str(wheel) for name in packages for wheel in wheels.glob(f"{name}-*.whl")]
    assert len(files) == len(packages)
    subprocess.run([*command, *files], check=True, capture_output=True)
    if beside:
        (site,) = folder.glob("lib/python*/site-packages")
        libraries = tmp_libraries(folder / "libraries")
        (site / "libraries.pth").write_text(f"{libraries}\n")
    return python


def tmp_libraries(folder: Path) -> Path:
    """A folder of links to the libraries of others that are installed here, without whet's own distributions."""
    folder.mkdir()
    for site in {Path(path) for path in sys.path if path.endswith("site-packages")}:
        for entry in site.iterdir():
            if "whet" not in entry.name and entry.suffix != ".pth" and not (folder / entry.name).exists():
                (folder / entry.name).symlink_to(entry)
    return folder


def run(python: Path, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A program in an environment, as a user of it runs it."""
    env = {"PATH": f"{python.parent}:/usr/bin:/bin", "HOME": str(folder), "WHET_STATE": str(folder / "state")}
    return subprocess.run([str(python), *arguments], capture_output=True, text=True, env=env, cwd=folder)


@pytest.mark.long
def test_an_app_installs_the_client_alone(wheels: Path, tmp_path: Path) -> None:
    python = environment(tmp_path / "app", wheels, "whet_client")
    done = run(python, "-c", ONLY_THE_STANDARD_LIBRARY, folder=tmp_path)
    assert done.stdout.splitlines() == ["[]", "['whet_client']"], done.stderr
    assert run(python, "-c", "import whet", folder=tmp_path).returncode == 1


@pytest.mark.long
def test_whet_works_without_whet_live_and_says_what_is_missing(wheels: Path, tmp_path: Path) -> None:
    python = environment(tmp_path / "search", wheels, "whet", "whet_client", beside=True)
    done = run(python, "-m", "whet", "init", "demo", "--from", "example", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    done = run(python, "-m", "whet", "evaluate", "demo", "--lm", "scripted/echo", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    done = run(python, "-m", "whet", "serve", folder=tmp_path)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "Install it with: pip install 'whet[live]'" in done.stderr
    done = run(python, "-c", "from whet.live import open_live", folder=tmp_path)
    assert "whet_live is a part of whet-live, which is not installed" in done.stderr
    assert " serve " not in run(python, "-m", "whet", "--help", folder=tmp_path).stdout


@pytest.mark.long
def test_whet_with_whet_live_has_its_commands(wheels: Path, tmp_path: Path) -> None:
    python = environment(tmp_path / "live", wheels, "whet", "whet_client", "whet_live", beside=True)
    text = tmp_path / "greeting.md"
    text.write_text("Greet {{name}}.\n")
    done = run(
        python,
        "-m",
        "whet",
        "prompts",
        "import",
        str(text),
        "--name",
        "greeting",
        "--as",
        "me",
        folder=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert "greeting" in run(python, "-m", "whet", "prompts", "list", folder=tmp_path).stdout
    page = "from whet_live.server.pages import assets; print(len(vars(assets)))"
    done = run(python, "-c", page, folder=tmp_path)
    assert done.returncode == 0, done.stderr
