"""The options of `whet serve` about signing in at an identity provider."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

from whet.cli.common import Command, options

if TYPE_CHECKING:
    from whet_live.server import OidcSettings

SECRET = "WHET_OIDC_CLIENT_SECRET"
_ROLES = ("viewer", "annotator", "editor", "approver", "admin", "none")
_PREFIX = "oidc_"


def oidc_options() -> Callable[[Command], Command]:
    """The options of the sign-in: the provider, the client, and the roles."""
    return options(*_declare())


def _declare() -> Iterator[Callable[[Command], Command]]:
    def option(name: str, help_: str, **more: Any) -> Callable[[Command], Command]:
        variable = more.pop("variable", name.removeprefix("--").replace("-", "_").upper())
        return click.option(
            name, *more.pop("names", ()), help=help_, envvar=f"WHET_{variable}", show_envvar=True, **more
        )

    yield option(
        "--oidc-issuer",
        f"Provider of OpenID Connect at which people sign in beside tokens. The client's secret is in {SECRET}.",
        metavar="URL",
    )
    yield option("--oidc-client-id", "The name of this server at the provider.", metavar="ID")
    yield option(
        "--oidc-role",
        "Who gets which role: group:NAME, domain:example.org or email:maria@example.org (repeatable; the highest role counts).",
        names=("oidc_roles",),
        variable="OIDC_ROLES",
        multiple=True,
        metavar="ROLE=RULE",
    )
    yield option(
        "--oidc-default-role",
        "Role where no rule fits; none: no access.",
        type=click.Choice(_ROLES),
        default="viewer",
        show_default=True,
    )
    yield option(
        "--oidc-groups-claim",
        "Claim with the groups; a.b is b inside the object a.",
        default="groups",
        show_default=True,
        metavar="NAME",
    )
    yield option(
        "--oidc-scope",
        "Scope to ask for beside openid and email (repeatable).",
        names=("oidc_scopes",),
        variable="OIDC_SCOPES",
        multiple=True,
        metavar="NAME",
    )
    yield option(
        "--oidc-trust-email",
        "Take e-mail addresses of a provider that never says whether it verified them.",
        is_flag=True,
    )
    yield option(
        "--oidc-session-hours",
        "Hours until people must sign in again.",
        type=click.IntRange(1, 720),
        default=12,
        show_default=True,
        metavar="N",
    )


def read_oidc_options(values: dict[str, Any]) -> OidcSettings | None:
    """Take these options out of `values`, and the secret out of the environment, which programs that the server starts inherit.
    None where no provider is named. Raises UsageError."""
    from whet_live.server import read_oidc

    chosen = {name: values.pop(name) for name in list(values) if name.startswith(_PREFIX)}
    return read_oidc(chosen, os.environ.pop(SECRET, ""))
