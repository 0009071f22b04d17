"""The skill for coding agents says what is true: its commands and options are there, and so are the pages that llms.txt names."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest
import yaml

from tests.command_line import whet_here
from tests.distributions import ROOT
from whet.cli.main import cli
from whet.cli.skill import TEXT


def test_every_command_of_the_skill_is_one_with_these_options() -> None:
    text = TEXT.read_text("utf-8")
    commands = re.findall(r"`(whet [^`]+)`", text) + re.findall(r"```sh\n(whet .+)\n", text)
    assert len(commands) > 12
    for line in commands:
        _, name, *words = shlex.split(line)
        command = cli.get_command(click.Context(cli), name)
        assert command is not None, name
        known = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= known, line


def test_the_front_matter_is_what_agents_read() -> None:
    _, front, _ = TEXT.read_text("utf-8").split("---\n", 2)
    values = yaml.safe_load(front)
    assert values["name"] == "whet" and 50 < len(values["description"]) <= 1024


def test_the_skill_is_printed_and_installed(tmp_path: Path) -> None:
    assert whet_here(tmp_path, "skill").stdout == TEXT.read_text("utf-8")
    path = tmp_path / "skills" / "whet" / "SKILL.md"
    for _ in range(2):
        assert whet_here(tmp_path, "skill", "skills").returncode == 0
        assert path.read_bytes() == TEXT.read_bytes()
    path.write_text("mine")
    refused = whet_here(tmp_path, "skill", "skills")
    assert refused.returncode == 2 and "--force" in refused.stderr and path.read_text() == "mine"
    assert whet_here(tmp_path, "skill", "skills", "--force").returncode == 0
    assert path.read_bytes() == TEXT.read_bytes()


@pytest.mark.parametrize("name", ["llms.txt", "AGENTS.md"])
def test_the_files_that_are_named_are_there(name: str) -> None:
    links = re.findall(r"\]\(([^)#]+)", (ROOT / name).read_text("utf-8"))
    assert links and all((ROOT / link).is_file() for link in links)
