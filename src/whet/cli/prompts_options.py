"""What the commands of `whet prompts` have in common: who acts, on which database, examples, pages."""

from __future__ import annotations

import getpass
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from whet.errors import UsageError

if TYPE_CHECKING:
    from whet.live.installation import Live
    from whet.live.registry import ListPage


def examples(*lines: str) -> str:
    """An epilog that shows commands."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def json_option(command: Callable[..., None]) -> Callable[..., None]:
    """--json."""
    return click.option("--json", "as_json", is_flag=True, help="Print exactly one JSON object.")(command)


def by_options(command: Callable[..., None]) -> Callable[..., None]:
    """--as and --reason."""
    command = click.option("--reason", default="", metavar="TEXT", help="Why; it is kept with the change.")(
        command
    )
    return click.option("--as", "actor", metavar="NAME", help="Who does it (default: your login name).")(
        command
    )


def open_here() -> Live:
    """The database that the command names, and all around it."""
    from whet.live.installation import open_live

    return open_live(click.get_current_context().obj)


def actor_of(name: str | None) -> str:
    """Who acts: the given name, else the login name. Raises UsageError."""
    if name is not None:
        return name
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        raise UsageError("Your login name is unknown. Say who does it: --as NAME.") from None


def every_page(page: Callable[[str | None], ListPage[Any]]) -> list[Any]:
    """The items of every page."""
    current = page(None)
    items = list(current.items)
    while current.after is not None:
        current = page(current.after)
        items += current.items
    return items
