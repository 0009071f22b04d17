"""Entry points: the methods, model providers, rewards, environments and commands that other packages bring.

Entry points are read for a name that is not built in, and for a list. A name belongs to one package: what is built in
stays what it is, and a second package with the same name is refused.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from whet.errors import UsageError, WhetError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

OWN = "whet"
METHODS = "whet.methods"
MODELS = "whet.models"
REWARDS = "whet.rewards"
ENVIRONMENTS = "whet.environments"
COMMANDS = "whet.commands"
KINDS = {
    METHODS: "method",
    MODELS: "model provider",
    REWARDS: "reward",
    ENVIRONMENTS: "environment",
    COMMANDS: "command",
}
"""The groups of entry points, and what one entry of each is."""


@dataclass(frozen=True)
class Plugin:
    """One name that an installed package adds. `conflict` says why nobody can use it; empty when it is free."""

    group: str
    name: str
    package: str
    conflict: str = ""
    entry: EntryPoint | None = field(default=None, repr=False, compare=False)

    def load(self, check: Callable[[object], str | None]) -> Any:
        """The object that the entry point names. `check` returns what is wrong with it, or None.

        Raises UsageError, naming the package, for a conflict, an import that fails and an object that is refused.
        """
        if self.conflict:
            raise UsageError(self.conflict)
        assert self.entry is not None, "a plugin without a conflict has its entry point"
        loaded = self.call(self.entry.load)
        wrong: str | None = self.call(check, loaded)
        if wrong is not None:
            self.refuse(f"{self.entry.value} {wrong}")
        return loaded

    def call(self, function: Callable[..., object], *arguments: object) -> Any:
        """Call code of the package and return its result. An error that whet does not know becomes a UsageError of one line."""
        try:
            return function(*arguments)
        except WhetError:
            raise
        except (Exception, SystemExit) as error:
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            self.refuse(reason.rstrip(":. "), error)

    def refuse(self, reason: str, cause: BaseException | None = None) -> NoReturn:
        """Raise UsageError naming the package."""
        raise UsageError(
            f"The package {self.package} brings the {KINDS[self.group]} {self.name}, which cannot be used: {reason}. "
            f"Update the package, or remove it with: pip uninstall {self.package}"
        ) from cause


def plugins(group: str, built_in: Iterable[str]) -> list[Plugin]:
    """The parts that installed packages add to a group, sorted by name; a name that is taken has a `conflict`."""
    own = set(built_in)
    by_name: dict[str, dict[str, EntryPoint]] = {}
    for package, entry in _entries(group):
        by_name.setdefault(entry.name, {}).setdefault(package, entry)
    rows = []
    for name, packages in sorted(by_name.items()):
        holders = [OWN] * (name in own) + sorted(packages)
        clash = _conflict(group, name, holders) if len(holders) > 1 else ""
        rows += [Plugin(group, name, package, clash, packages[package]) for package in sorted(packages)]
    return rows


def find_plugin(group: str, name: str, built_in: Iterable[str]) -> Plugin | None:
    """The plugin of that name; None when no package brings it."""
    return next((plugin for plugin in plugins(group, built_in) if plugin.name == name), None)


def plugin_names(group: str, built_in: Iterable[str]) -> list[str]:
    """All names of a group, the built-in ones first: what a message offers for a name that does not exist."""
    own = list(built_in)
    return [*own, *dict.fromkeys(plugin.name for plugin in plugins(group, own) if plugin.name not in own)]


def source_files(value: object) -> tuple[Path, ...]:
    """The file that defines the class of `value`, so that a run can pin it; none for whet's own, pinned by its version."""
    module = type(value).__module__
    file = getattr(sys.modules.get(module), "__file__", None)
    return () if file is None or module.partition(".")[0] == OWN else (Path(file),)


def _entries(group: str) -> Iterable[tuple[str, EntryPoint]]:
    """Package and entry point of everything in a group. Metadata that cannot be read hides its own package only."""
    from importlib.metadata import distributions

    for distribution in distributions():
        try:
            for entry in distribution.entry_points.select(group=group):
                yield distribution.name, entry
        except (TypeError, ValueError, OSError):
            continue


def _conflict(group: str, name: str, holders: list[str]) -> str:
    kind = KINDS[group]
    if holders[0] == OWN:
        rest = " and ".join(holders[1:])
        return (
            f'The package {rest} brings a {kind} "{name}", a name that is built into {OWN}, which keeps it. '
            f"Rename it in that package, or remove it with: pip uninstall {holders[1]}"
        )
    return f'The packages {" and ".join(holders)} both bring a {kind} "{name}". Uninstall one of them.'
