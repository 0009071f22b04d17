"""The settings of sign-in with OpenID Connect, and which role they give to whom."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from whet.errors import UsageError, did_you_mean
from whet_live.server.roles import Role

GROUPS = "groups"
SESSION_HOURS = 12
_KINDS = ("group", "domain", "email")
_NOBODY = "none"
_ROLES = tuple(role.word for role in Role)


@dataclass(frozen=True, slots=True)
class RoleRule:
    """A user with the value (of a group, an e-mail domain or an e-mail address, by `kind`) gets the role."""

    role: Role
    kind: str
    value: str

    def fits(self, email: str, groups: Sequence[str]) -> bool:
        """Whether it is about this person; `email` is in lower case."""
        if self.kind == "group":
            return self.value in groups
        return self.value == (email if self.kind == "email" else email.rpartition("@")[2])


@dataclass(frozen=True, slots=True)
class OidcSettings:
    """The settings of the sign-in at an identity provider.

    `default` is the role where no rule fits, None for no access. `groups` names the claim that holds the groups. `scopes` are
    asked for beside `openid email`. `trust_email`: an address counts although the provider does not say whether it verified it.
    """

    issuer: str
    client_id: str
    secret: str = field(default="", repr=False)
    rules: tuple[RoleRule, ...] = ()
    default: Role | None = Role.VIEWER
    groups: str = GROUPS
    scopes: tuple[str, ...] = ()
    trust_email: bool = False
    session_seconds: int = SESSION_HOURS * 3600

    @property
    def host(self) -> str:
        """The name under which people know the provider."""
        return urlsplit(self.issuer).netloc

    @property
    def needs_groups(self) -> bool:
        """Whether a rule is about groups."""
        return any(rule.kind == "group" for rule in self.rules)

    def choose_role(self, email: str, claims: Mapping[str, Any]) -> Role | None:
        """The highest role that a rule gives, else the default; None for no access."""
        groups = read_groups(claims, self.groups)
        roles = [rule.role for rule in self.rules if rule.fits(email, groups)]
        return max(roles) if roles else self.default


def read_groups(claims: Mapping[str, Any], name: str) -> list[str]:
    """The groups in a claim: a list of texts, or one text. `a.b` is the claim of that name, else `b` inside the object `a`."""
    value: object = claims.get(name)
    if value is None and "." in name:
        value = claims
        for part in name.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
    if isinstance(value, str):
        return [value]
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def read_oidc(values: Mapping[str, Any], secret: str) -> OidcSettings | None:
    """The settings in the options `oidc_...` of `whet serve`; None where no provider is named. Raises UsageError."""
    issuer, client_id = values["oidc_issuer"] or "", values["oidc_client_id"] or ""
    rules, word = tuple(values["oidc_roles"]), values["oidc_default_role"]
    if not issuer:
        if client_id or rules:
            raise UsageError(
                "--oidc-issuer is missing: the address of the provider, like https://id.example.org."
            )
        return None
    if not client_id:
        raise UsageError("--oidc-client-id is missing: the name of this server at the provider.")
    check_address(issuer, issuer, "--oidc-issuer")
    default = None if word == _NOBODY else _read_role(word, "--oidc-default-role")
    if default is None and not rules:
        raise UsageError("--oidc-default-role none lets nobody in without rules. Add --oidc-role ROLE=RULE.")
    return OidcSettings(
        issuer,
        client_id,
        secret,
        tuple(_read_rule(text) for text in rules),
        default,
        values["oidc_groups_claim"],
        tuple(values["oidc_scopes"]),
        values["oidc_trust_email"],
        values["oidc_session_hours"] * 3600,
    )


def check_address(address: str, issuer: str, name: str) -> None:
    """Raises UsageError for an address that is not https; with an issuer on loopback, http on loopback will do."""
    try:
        parts = urlsplit(address)
        fine = bool(parts.hostname) and parts.port != 0 and "@" not in parts.netloc and not parts.fragment
    except ValueError:
        parts, fine = urlsplit(""), False
    fine = fine and address.isascii() and address.isprintable() and " " not in address
    tests = parts.scheme == "http" and _on_loopback(address) and _on_loopback(issuer)
    if not fine or not (parts.scheme == "https" or tests):
        raise UsageError(
            f'{name} is "{address[:200]}". Write an address that begins with https://; http:// is for tests with a provider on '
            "this machine."
        )


def _on_loopback(address: str) -> bool:
    host = urlsplit(address).hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _read_role(word: str, name: str) -> Role:
    role = Role.of(word)
    if role is None:
        raise UsageError(f'{name} names the role "{word[:60]}".{did_you_mean(word[:60], _ROLES)}')
    return role


def _read_rule(text: str) -> RoleRule:
    word, _, rule = text.partition("=")
    kind, _, value = rule.partition(":")
    value = value.strip() if kind == "group" else value.strip().lower()
    fine = "@" in value if kind == "email" else "@" not in value or kind == "group"
    if kind not in _KINDS or not value or not fine:
        raise UsageError(
            f'--oidc-role is "{text[:200]}". Write ROLE=RULE; a rule is group:NAME, domain:example.org or '
            "email:maria@example.org."
        )
    return RoleRule(_read_role(word.strip(), "--oidc-role"), kind, value)
