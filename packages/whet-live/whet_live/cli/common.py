"""The parts that commands around live prompts share: the database, and the name of the acting user."""

from __future__ import annotations

import getpass
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

from whet.cli.common import options, show_hidden
from whet.errors import UsageError
from whet_client.storable import repair_surrogates

if TYPE_CHECKING:
    from whet_live import Live
    from whet_live.registry import ListPage

DATABASE_HELP = "sqlite:///FILE or postgresql://USER:PASSWORD@HOST/NAME."

_AS = click.option(
    "--as", "actor", metavar="NAME", help="Name of the person who does this (default: your login name)."
)
_REASON = click.option(
    "--reason", default="", metavar="TEXT", help="Reason, which is stored with the change."
)
by_options = options(_AS, _REASON)
deletion_options = options(_AS, click.option("--yes", is_flag=True, help="Do not ask."))
actor_option = _AS

_FILES = ("DIR", "FILE", "PATH", "files")


class DatabaseGroup(click.Group):
    """A group of commands around one database: `--database` stands before or behind the name of the command."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.append(_database_option())

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        """Add a command, which takes the option too, and only values that a database can store."""
        for parameter in cmd.params:
            if isinstance(parameter.type, click.types.StringParamType) and parameter.callback is None:
                parameter.callback = _check_text
        cmd.params.append(_database_option())
        super().add_command(cmd, name)


def _check_text(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """A text, or several, as given. Raises UsageError for one that is no text, which no database stores."""
    for text in () if parameter.name in _FILES or parameter.metavar in _FILES else _texts_of(value):
        if repair_surrogates(text) != text:
            raise UsageError(
                f'The locale of this terminal cannot decode "{show_hidden(text[:80])}". Set PYTHONUTF8=1, '
                "or a locale with UTF-8 such as LC_ALL=C.UTF-8."
            )
    return value


def _texts_of(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for inner in value if isinstance(value, list | tuple) else ():
        yield from _texts_of(inner)


def _database_option() -> click.Option:
    names = ["--database"]
    return click.Option(names, metavar="URL", help=DATABASE_HELP, expose_value=False, callback=_name_database)


def _name_database(context: click.Context, parameter: click.Parameter, url: str | None) -> None:
    """Remember the database for `open_here`; what stands behind the command wins."""
    if url is not None:
        context.obj = url


def open_here(*, make: bool = False) -> Live:
    """The database that the command's group names, and all around it."""
    return open_at(click.get_current_context().obj, make=make)


def open_at(url: str | None, *, make: bool = False) -> Live:
    """A database and all around it. Commands that write the first rows of a database say `make`: one that was not there is made,
    and named. Of another one, an empty database would hide that its name is wrong. Raises UsageError.
    """
    from whet_live import open_live

    live = open_live(url, make=make)
    if live.database.made is not None:
        click.echo(f"made the database {live.database.made}", err=True)
    return live


def actor_of(name: str | None) -> str:
    """The name of the acting user: the given name, else the login name. Raises UsageError."""
    actor = name or login()
    if actor is None:
        raise UsageError("Your login name is unknown. Name yourself with --as NAME.")
    return actor


def login() -> str | None:
    """The login name, where the system knows it."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return None


def every_page(page: Callable[[str | None], ListPage[Any]]) -> list[Any]:
    """The items of every page."""
    current = page(None)
    items = list(current.items)
    while current.after is not None:
        current = page(current.after)
        items += current.items
    return items
