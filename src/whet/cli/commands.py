"""The list of commands: whet's own, imported when they are used, and those of installed packages."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping

import click

from whet._util.plugins import COMMANDS, Plugin, find_plugin, plugins
from whet.errors import UsageError

WATCH, PREFERENCES = "learn-watch", "learn-preferences"
LIVE = ("access", "feedback", WATCH, "prompts", "serve", "tasks")
"""The commands that whet-live brings."""
_LATER: Mapping[str, tuple[str, str]] = {
    "init": (
        "whet.cli.start",
        "Create a task folder from rows: CSV, JSONL, promptfoo, Hugging Face, DSPy.",
    ),
    "align": (
        "whet.cli.align",
        "Turn a judge's rubric into the prompt of a task, with people's scores as targets.",
    ),
    "doctor": ("whet.cli.doctor", "Check packages, keys, endpoints, local servers and a task's reward."),
    "show": ("whet.cli.use", "Print the best prompt of a run, to read or to copy."),
    "advise": ("whet.cli.advise", ("Estimate whether a search is worth its cost, and list the first steps.")),
    "policy": ("whet.cli.policy", "Export the policy that a run trained, for use in other programs."),
    "study": ("whet.cli.study", "Measure how much each part or sentence of a prompt contributes."),
    "migrate": ("whet.cli.migrate", "Adapt a prompt from one task model to another."),
    "skill": ("whet.cli.skill", "Print or write instructions for coding agents, as a SKILL.md."),
    "check": ("whet.cli.check", "Fail a build if a prompt or a live prompt misses a threshold."),
    "merge": ("whet.cli.merge", "Join the shards of a comparison into one table."),
    "transfer": ("whet.cli.transfer", "Measure the prompts of a finished run with other task models."),
}
_BEHIND: Mapping[str, tuple[str, str]] = {PREFERENCES: ("whet.cli.preferences", "learn_preferences")}
"""Commands that are reached by words of another one and not listed: module and name."""
_UNUSABLE = "Cannot be used; try it to see why."


class Commands(click.Group):
    """The commands of whet and of installed packages (entry points in the group `whet.commands`, each a `click.Command`)."""

    def list_commands(self, context: click.Context) -> list[str]:
        """Names of all commands, sorted."""
        return sorted({*self._own(), *dict(self._of_packages())})

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """The command of that name; None when there is none.

        Raises UsageError for a command that a package brings and that cannot be used, and for one of whet-live without it.
        """
        if name in self.commands:
            return self.commands[name]
        if name in _BEHIND:
            behind: click.Command = getattr(importlib.import_module(_BEHIND[name][0]), _BEHIND[name][1])
            return behind
        if name in _LATER:
            command: click.Command = getattr(importlib.import_module(_LATER[name][0]), name)
            return command
        if (plugin := find_plugin(COMMANDS, name, self._own())) is not None:
            return _load(plugin)
        if name in LIVE:
            raise UsageError(
                f"`whet {'learn --watch' if name == WATCH else name}` is a command of whet-live, which is not installed. "
                "Install it with: pip install 'whet[live]'"
            )
        return None

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """One line per command."""
        rows = {name: command.get_short_help_str(200) for name, command in self.commands.items()}
        rows |= {name: line for name, (_, line) in _LATER.items()}
        rows |= dict(self._of_packages())
        with formatter.section("Commands"):
            formatter.write_dl(sorted(rows.items()))

    def _own(self) -> set[str]:
        return {*self.commands, *_LATER}

    def _of_packages(self) -> Iterator[tuple[str, str]]:
        """Name and line of each command of a package."""
        own = self._own()
        for plugin in plugins(COMMANDS, own):
            if plugin.name in own:
                continue
            try:
                command = _load(plugin)
            except UsageError:
                yield plugin.name, _UNUSABLE
            else:
                if not command.hidden:
                    yield plugin.name, command.get_short_help_str(200)


def find_command(name: str) -> click.Command | None:
    """The command of that name that an installed package brings. Raises UsageError for one that cannot be used."""
    plugin = find_plugin(COMMANDS, name, ())
    return None if plugin is None else _load(plugin)


def _load(plugin: Plugin) -> click.Command:
    """The command that a package brings. Raises UsageError for one that cannot be used."""
    command: click.Command = plugin.load(
        lambda loaded: None if isinstance(loaded, click.Command) else "is no click.Command"
    )
    return command


class Learn(click.Command):
    """`whet learn`, of which the word `preferences` makes another command, and `--watch` that of whet-live."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: object
    ) -> click.Context:
        """The context of the command that the arguments mean."""
        word = "--watch" if "--watch" in args else "preferences" if args[:1] == ["preferences"] else ""
        if not word or parent is None or not isinstance(parent.command, click.Group):
            return super().make_context(info_name, args, parent, **extra)
        command = parent.command.get_command(parent, WATCH if word == "--watch" else PREFERENCES)
        assert command is not None, "it is there, or the group says how to install it"
        rest = [argument for argument in args if argument != word] if word == "--watch" else args[1:]
        return command.make_context(f"{info_name} {word}", rest, parent, **extra)
