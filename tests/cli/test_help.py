"""Every command explains itself with an example that can be typed."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from whet.cli.main import cli


def commands(command: click.Command, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield words
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below is not None and not below.hidden:
                yield from commands(below, (*words, name))


@pytest.mark.parametrize("words", list(commands(cli)), ids=" ".join)
def test_the_help_of_a_command_has_an_example(words: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(cli, [*words, "--help"], terminal_width=100).output
    _, _, end = shown.partition("Example")
    assert " ".join(("whet", *words)) in " ".join(end.split())
