"""`whet serve`, and `whet access`: who may use the server."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from whet.cli.common import (
    Command,
    emit,
    examples,
    json_option,
    optimizer_options,
    options,
    role_choices,
    trust_option,
)
from whet_live.cli.common import DatabaseGroup, open_at, open_here
from whet_live.cli.learner_options import NAMES, learner_config, learner_options
from whet_live.cli.sign_in_options import oidc_options, read_oidc_options

if TYPE_CHECKING:
    from whet_live.server import Access, User

_READER = ("optimizer_lm", "optimizer_base_url", "optimizer_options", "base_url", "most_calls")
_LEARNER = tuple(name for name in NAMES if name != "every")
_DATABASE = click.option(
    "--database",
    metavar="URL",
    help="sqlite:///FILE or postgresql://... (default WHET_DATABASE_URL, else sqlite:///whet.db).",
)
_ROLES = ("viewer", "annotator", "editor", "approver", "admin", "app", "page")
_BY = "command line"


@click.group(
    invoke_without_command=True,
    epilog="\b\nExamples:\n  whet serve\n  whet serve --port 9000 --database "
    "postgresql://whet@localhost/whet\n  whet serve --host 0.0.0.0 --url "
    "https://whet.example.org\n  whet serve --alerts alerts.json\n  whet serve --gate "
    "shop/greeting=tasks/greeting --lm openai/gpt-4o-mini --experiment goal.json\n\nThe first "
    "start prints a link with the token of the user admin on stdout, only once. All other "
    "output goes to stderr. The server always requires tokens. Before it listens at a public "
    "address, somebody must have a token: whet access add.",
)
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDR", help="Address to listen at.")
@click.option("--port", type=click.IntRange(0, 65535), default=8321, show_default=True)
@click.option("--url", default="", metavar="URL", help="Public address, if it differs (a proxy, a name).")
@click.option(
    "--allow-host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="Additional host name that the server accepts.",
)
@click.option(
    "--proxy",
    "proxies",
    multiple=True,
    metavar="ADDR",
    help="Address of a proxy whose X-Forwarded-For header the server trusts.",
)
@click.option(
    "--max-connections",
    "connections",
    type=click.IntRange(1, 1000),
    default=64,
    show_default=True,
    metavar="N",
    help="Largest number of simultaneous connections of one address (behind --proxy: requests).",
)
@click.option("--runs", default="runs", show_default=True, metavar="DIR", help="Folder of the runs to show.")
@click.option(
    "--tls-cert",
    "certificate",
    metavar="FILE",
    help="Certificate chain in PEM format, for TLS without a proxy.",
)
@click.option("--tls-key", "key", metavar="FILE", help="Private key of the certificate.")
@click.option(
    "--learn/--no-learn",
    default=True,
    show_default=True,
    help="Learn from the feedback in the server process.",
)
@optimizer_options(
    "Model that reads feedback and writes instructions (default: none; people write the instructions)."
)
@click.option("--base-url", metavar="URL", help="URL of the OpenAI-compatible endpoint of the models.")
@trust_option
@click.option(
    "--max-optimizer-calls",
    "most_calls",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    metavar="N",
    help="Limit on optimizer model calls, for each reading step and for each update.",
)
@click.option(
    "--retention-days",
    "retention",
    type=click.IntRange(1, 36_500),
    envvar="WHET_RETENTION_DAYS",
    show_envvar=True,
    metavar="N",
    help="Delete answers and feedback N days after their arrival (default: never). The server checks "
    "once an hour.",
)
@click.option(
    "--alerts",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="JSON file with the webhooks, Slack addresses and mail addresses that receive quality alerts.",
)
@click.option(
    "--playground",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="JSON file with the models that may be tried on the pages of prompts, their prices, and dollars a day.",
)
@click.option(
    "--snippet-origin",
    "snippet_origins",
    multiple=True,
    metavar="ORIGIN",
    help="Origin whose pages may send feedback with a public key, such as https://shop.example (repeatable).",
)
@click.option(
    "--rows-per-second",
    "rows",
    type=click.IntRange(min=1),
    metavar="N",
    help="Rows a second that the user of a token may send, on average (default 10,000).",
)
@click.option(
    "--bytes-per-second",
    "sent_bytes",
    type=click.IntRange(min=1),
    metavar="N",
    help="Bytes a second that the user of a token may send, on average (default 4 MiB).",
)
@click.option(
    "--disk-per-app",
    "kept_bytes",
    type=click.IntRange(min=1),
    metavar="N",
    help="Bytes of stored rows that the user of a token may have (default 10 GiB).",
)
@oidc_options()
@learner_options()
@_DATABASE
def serve(
    learn: bool,
    every: float,
    connections: int,
    rows: int | None,
    sent_bytes: int | None,
    kept_bytes: int | None,
    **values: Any,
) -> None:
    """Serve the pages and the HTTP interface of live prompts until Ctrl-C."""
    context = click.get_current_context()
    if context.invoked_subcommand is not None:
        context.obj = values["database"]
        return
    from whet_live.server import ServeOptions, quotas
    from whet_live.server import serve as run

    chosen = {name: values.pop(name) for name in (*_READER, *_LEARNER)}
    config = learner_config(role_choices(chosen), Path(values["runs"])) if learn else None
    limits = replace(quotas(rows, sent_bytes, kept_bytes), address_connections=connections)
    oidc = read_oidc_options(values)
    options = ServeOptions(learner=config, every=every, limits=limits, oidc=oidc, **values)
    run(options, partial(click.echo, err=True), click.echo)


@serve.command(epilog=examples("whet serve backup backups/monday.db"))
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@_DATABASE
def backup(file: Path, database: str | None) -> None:
    """Copy the SQLite database to FILE, even while servers use it.

    The copy holds every row that was acknowledged before. A copy of whet.db by other tools lacks rows that are still in its log.
    whet makes folders of FILE that are missing. For PostgreSQL, use pg_dump.
    """
    with open_at(database or click.get_current_context().obj) as live:
        live.database.back_up(file)
    click.echo(f"Wrote {file}.")


@click.group(
    cls=DatabaseGroup,
    epilog="\b\nExamples:\n  whet access add maria --role approver\n  whet access add shop --role app --prompt shop/help\n"
    "  whet access list\n  whet access revoke TOKEN_ID",
)
def access() -> None:
    """Manage access to the server: users, roles, tokens."""


_EXAMPLES = {
    "add": "maria --role approver",
    "token": "maria",
    "role": "maria --role editor",
    "disable": "maria",
    "link": "maria maria@example.org",
    "revoke": "TOKEN_ID",
    "list": "",
}


def _user_command(name: str, help_: str, *more: Callable[..., object]) -> Callable[[Command], Command]:
    def declare(command: Command) -> Command:
        example = examples(f"whet access {name} {_EXAMPLES[name]}".rstrip())
        return access.command(name, help=help_, epilog=example)(options(*more)(command))

    return declare


@contextmanager
def _users(*, make: bool = False) -> Iterator[Access]:
    """The users of a database, which is made for the first one."""
    from whet_live.server import Access

    with open_here(make=make) as live:
        yield Access(live.database)


_NAME = click.argument("name")
_ROLE = click.option(
    "--role",
    type=click.Choice(_ROLES),
    required=True,
    help="Rights of the user. app is for programs, page for public keys.",
)


_PROMPTS = click.option(
    "--prompt",
    "prompts",
    multiple=True,
    metavar="PROMPT",
    help="Prompt that the token of a program may use (repeatable).",
)
_ALL_PROMPTS = click.option(
    "--all-prompts", is_flag=True, help="Let the token of a program use every prompt."
)


_DAYS = click.option(
    "--days",
    type=click.IntRange(1, 36_500),
    metavar="N",
    help="Let the token expire after N days (default: valid until it is revoked).",
)


def _show_link(users: Access, person: bool, secret: str) -> None:
    """Say the link that signs a person in, where the server's address is known; on stderr, so that stdout is the token."""
    from whet_live.server import link_with

    if person and (address := users.address()):
        click.echo(f"Sign in: {link_with(address, secret)}", err=True)


@_user_command(
    "add",
    "Add a person or a program, and print a token. The token is not shown again.",
    _NAME,
    _ROLE,
    _PROMPTS,
    _ALL_PROMPTS,
    _DAYS,
)
def add(name: str, role: str, prompts: tuple[str, ...], all_prompts: bool, days: int | None) -> None:
    """Print the token on stdout."""
    from whet_live.server import Role

    with _users(make=True) as users:
        kind = Role.of(role) or Role.VIEWER
        if unscoped := role == "app" and not prompts and not all_prompts:
            click.echo(
                "Warning: this token may use every prompt. Limit the token with `--prompt NAME`, or "
                "confirm its scope with `--all-prompts`.",
                err=True,
            )
        all_prompts = all_prompts or unscoped
        secret = users.add(
            name,
            kind,
            app=role == "app",
            page=role == "page",
            by=_BY,
            prompts=prompts,
            all_prompts=all_prompts,
            expires=users.expiry(days),
        )
        click.echo(secret)
        _show_link(users, role not in ("app", "page"), secret)


@_user_command(
    "token",
    "Print another token for a user. The token is not shown again.",
    _NAME,
    _PROMPTS,
    _ALL_PROMPTS,
    _DAYS,
)
def token(name: str, prompts: tuple[str, ...], all_prompts: bool, days: int | None) -> None:
    """Print the token on stdout."""
    with _users() as users:
        secret = users.new_token(
            name, by=_BY, prompts=prompts, all_prompts=all_prompts, expires=users.expiry(days)
        )
        click.echo(secret)
        _show_link(users, not any(user.app for user in users.users() if user.name == name), secret)


@_user_command("role", "Change the role of a user.", _NAME, _ROLE)
def role(name: str, role: str) -> None:
    """The role of a program cannot become a person's role, or the reverse."""
    from whet.errors import UsageError
    from whet_live.server import Role

    new_role = Role.of(role)
    if new_role is None:
        raise UsageError("A person cannot become a program. Add the program under another name.")
    with _users() as users:
        users.set_role(name, new_role, by=_BY)


@_user_command("disable", "Remove all access of a user.", _NAME)
def disable(name: str) -> None:
    """The actions of the user stay in the audit log."""
    with _users() as users:
        users.disable(name, by=_BY)


@_user_command(
    "link",
    "Let the next sign-in with an e-mail address at the identity provider be this user.",
    _NAME,
    click.argument("email"),
)
def link(name: str, email: str) -> None:
    """Earlier sign-ins of the user at the provider end."""
    with _users() as users:
        users.link(name, email, by=_BY)


@_user_command("revoke", "Revoke the token with this id (see `whet access list`).", click.argument("token"))
def revoke(token: str) -> None:
    """Sessions that were opened with the token end as well."""
    with _users() as users:
        users.revoke(token, by=_BY)


def _show_users(users: Sequence[User]) -> None:
    from whet_live.database import iso

    for user in users:
        state = "disabled" if user.disabled else user.kind
        there = f"  signs in as {user.email}" if user.email else ""
        click.echo(f"{user.name}  {state}{there}")
        for one in user.tokens:
            scope = (
                ""
                if not user.app
                else "  all prompts"
                if one.prompts is None
                else f"  {', '.join(one.prompts)}"
            )
            until = (
                f"  {'expired' if one.expired else 'until'} {iso(one.expires)[:16]}Z" if one.expires else ""
            )
            click.echo(f"  {one.id}  {one.hint}…{scope}{'  ended' if one.revoked else until}")


@_user_command("list", "List users with their tokens.", json_option)
def list_users(as_json: bool) -> None:
    """Only the id and the first characters of a token are shown."""
    with _users() as users:
        listed = users.users()
    if as_json:
        emit([user.as_json() for user in listed])
    else:
        _show_users(listed)
