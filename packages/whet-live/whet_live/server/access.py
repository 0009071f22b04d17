"""Access: users with a role, tokens of high entropy that are stored as digests only, sessions of browsers.

A token is 256 random bits, so that a plain SHA-256 is enough at rest: there is nothing to guess. It is shown once, when it
is made. A session is opened with a token and ends with it, or by an identity provider (`admit`).
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass
from hmac import compare_digest
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, delete, func, insert, or_, select, update

from whet.errors import UsageError, did_you_mean
from whet_client import LONGEST_NAME
from whet_client.records import SERVICE, prompt_name_fault
from whet_client.storable import show_value
from whet_live.database import (
    Database,
    finished_sign_ins,
    identities,
    insert_into,
    iso,
    new_id,
    put,
    server_address,
    sessions,
    time_of,
    tokens,
    users,
)
from whet_live.learner import AUTHOR
from whet_live.registry import append_entry, audited_transaction
from whet_live.server.responses import SignInRefused
from whet_live.server.roles import PAGE, Principal, ProviderIdentity, Role

PREFIX = "whet_"
PUBLIC_PREFIX = "whetp_"
"""The prefixes of secret tokens and public keys."""
FIRST = "admin"
SESSION_SECONDS = 12 * 3600
SIGN_IN_SECONDS = 600
"""The longest time of a sign-in at an identity provider."""
PROVIDER = "identity provider"
"""The actor who makes an account at its first sign-in, and changes its role; no user has a name with a blank."""
HINT = 10
LONGEST_EMAIL = 254
MOST_USERS = 10_000
MOST_PROMPTS = 100
MOST_DAYS = 36_500
_DAY = 86_400_000_000

RESERVED = frozenset({AUTHOR, "whet", "system"})
"""Names that nobody gets, in any case: what stands under them was measured here."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@+-]{0,63}")


@dataclass(frozen=True, slots=True)
class Token:
    """A token as it may be shown. Times in microseconds since 1970 UTC; None means never."""

    id: str
    hint: str
    """The first characters of the secret."""
    created: int
    created_by: str
    expires: int | None
    revoked: int | None
    prompts: tuple[str, ...] | None = None
    """The prompts that the token is for; None: all."""
    expired: bool = False
    """Whether its time is over, by the clock that ends it."""


@dataclass(frozen=True, slots=True)
class User:
    """A person or a program with its tokens."""

    name: str
    role: Role
    app: bool
    """Whether it is a program."""
    created: int
    created_by: str
    disabled: int | None
    tokens: tuple[Token, ...]
    """The newest first."""
    page: bool = False
    """Whether it is a program whose tokens are public keys."""
    email: str | None = None
    """The address with which a person signs in at the identity provider, if any."""

    @property
    def kind(self) -> str:
        """The role as people write it: `page` and `app` for programs."""
        return PAGE if self.page else "app" if self.app else self.role.word

    def as_json(self) -> dict[str, object]:
        """The user as JSON values."""
        return {**asdict(self), "role": self.kind}


def digest_secret(secret: bytes) -> bytes:
    """The stored form of a token or a cookie: its SHA-256 as 64 hexadecimal digits."""
    return hashlib.sha256(secret).hexdigest().encode()


class Access:
    """Users, tokens and sessions in the database.

    Every change of users and tokens is written into the audit log first, in the same transaction. That entry is also
    the lock behind which changes queue up, so that two admins cannot take each other's access at once. Tokens and sessions end
    by the clock of the database, or by another `clock` in microseconds.
    """

    def __init__(self, database: Database, clock: Callable[[], int] | None = None) -> None:
        self._database = database
        self._clock = clock

    def _time(self, connection: Connection) -> int:
        return time_of(connection) if self._clock is None else self._clock()

    def first(self) -> str | None:
        """If there is no person yet, make the user `admin` and return its token, else None. Programs sign in nowhere."""
        taken = or_(users.c.app.is_(False), users.c.name == FIRST)
        with audited_transaction(self._database) as connection:
            if connection.execute(select(users.c.name).where(taken).limit(1)).first() is not None:
                return None
            self._add_user(connection, FIRST, Role.ADMIN.word, False, FIRST)
            return self._add_token(connection, FIRST, PREFIX, FIRST, None, None)

    def note_address(self, url: str) -> None:
        """Remember where the server can be reached."""
        with self._database.begin() as connection:
            put(connection, server_address, {"one": 1, "url": url[:500], "at": self._time(connection)})

    def address(self) -> str:
        """The address of the server that was started last; empty before the first start."""
        with self._database.read() as connection:
            return str(connection.execute(select(server_address.c.url)).scalar() or "")

    def is_guarded(self) -> bool:
        """Whether at least one token works, so that a server may be reached from outside."""
        with self._database.read() as connection:
            return connection.execute(_working(self._time(connection)).limit(1)).first() is not None

    def add(
        self,
        name: str,
        role: Role,
        *,
        app: bool = False,
        page: bool = False,
        by: str,
        expires: int | None = None,
        prompts: Collection[str] = (),
        all_prompts: bool = False,
    ) -> str:
        """Add a user and return the token, which is never shown again. `expires` as in `Token`. A program's token is for
        `prompts` or, if that is said, for `all_prompts`; with `page` it is a public key, which is for `prompts`. Raises
        UsageError for a name that is taken, reserved or no name, and for a program's token that is for nothing."""
        if name.lower() in RESERVED:
            raise UsageError(
                f'"{name}" is the name under which the server itself writes. Choose another one.'
            )
        if not _NAME.fullmatch(name):
            raise UsageError(
                f'"{name[:64]}" is no user name. Use 1 to 64 letters, digits and . _ @ + -, a letter or digit first.'
            )
        scope = _scope(name, app or page, page, prompts, all_prompts)
        with audited_transaction(self._database) as connection:
            if self._user(connection, name) is not None:
                raise UsageError(
                    f'There is a user "{name}" already. Give it another token, or choose another name.'
                )
            self._add_user(connection, name, PAGE if page else role.word, app or page, by)
            return self._add_token(connection, name, _prefix(page), by, expires, scope)

    def new_token(
        self,
        name: str,
        *,
        by: str,
        expires: int | None = None,
        prompts: Collection[str] = (),
        all_prompts: bool = False,
    ) -> str:
        """Another token for a user, returned once; see `add`. Raises UsageError for a user that is unknown or disabled."""
        with self._database.begin() as connection:
            row = self._find_user(connection, name)
            if row.disabled is not None:
                raise UsageError(f"{name} is disabled. Give it a role first; that enables it again.")
            page = row.role == PAGE
            scope = _scope(name, row.app, page, prompts, all_prompts)
            return self._add_token(connection, name, _prefix(page), by, expires, scope)

    def revoke(self, token: str, *, by: str) -> None:
        """End a token and its sessions. Raises UsageError for an unknown id, and for the last way in of an admin."""
        with self._database.begin() as connection:
            row = connection.execute(select(tokens.c.user, tokens.c.hint).where(tokens.c.id == token)).first()
            if row is None:
                raise UsageError(f'There is no token "{token[:36]}".')
            self._note(connection, by, "access.revoke", row.user, {"token": row.hint})
            moment = self._time(connection)
            open_ones = tokens.c.id == token, tokens.c.revoked.is_(None)
            connection.execute(update(tokens).where(*open_ones).values(revoked=moment))
            connection.execute(delete(sessions).where(sessions.c.token == token))
            self._keep_an_admin(connection)

    def set_role(self, name: str, role: Role, *, by: str) -> None:
        """Give a user another role; a disabled one is enabled. What holds public keys is enabled and keeps its role, because
        anybody can read them. Raises UsageError for an unknown user and for the last admin."""
        with self._database.begin() as connection:
            word = PAGE if self._find_user(connection, name).role == PAGE else role.word
            self._note(connection, by, "access.role", name, {"role": word})
            connection.execute(update(users).where(users.c.name == name).values(role=word, disabled=None))
            self._keep_an_admin(connection)

    def disable(self, name: str, *, by: str) -> None:
        """Take every access from a user; its name stays in what it did. Raises UsageError for an unknown user and for
        the last admin."""
        with self._database.begin() as connection:
            self._note(connection, by, "access.disable", name, {})
            self._find_user(connection, name)
            moment = self._time(connection)
            connection.execute(update(users).where(users.c.name == name).values(disabled=moment))
            connection.execute(delete(sessions).where(sessions.c.user == name))
            self._keep_an_admin(connection)

    def users(self) -> list[User]:
        """Everybody, by name."""
        with self._database.read() as connection:
            moment = self._time(connection)
            rows = connection.execute(select(users).order_by(users.c.name).limit(MOST_USERS)).all()
            token_rows = connection.execute(select(tokens).order_by(tokens.c.id.desc())).all()
            linked = connection.execute(select(identities.c.user, identities.c.email)).all()
        emails = {row.user: row.email for row in linked}
        theirs: dict[str, list[Token]] = {}
        for t in token_rows:
            scope = None if t.prompts is None else tuple(t.prompts)
            over = t.expires is not None and t.expires <= moment
            shown = Token(t.id, t.hint, t.created, t.created_by, t.expires, t.revoked, scope, over)
            theirs.setdefault(t.user, []).append(shown)
        return [
            User(
                u.name,
                _role_of(u.role),
                u.app,
                u.created,
                u.created_by,
                u.disabled,
                tuple(theirs.get(u.name, ())),
                u.role == PAGE,
                emails.get(u.name),
            )
            for u in rows
        ]

    def by_token(self, key: bytes) -> Principal | None:
        """The caller whose token has this digest, if it still works."""
        with self._database.read() as connection:
            row = connection.execute(
                _working(self._time(connection)).where(tokens.c.digest == key.decode())
            ).first()
        return _principal(row, key)

    def by_session(self, key: bytes) -> Principal | None:
        """The caller whose session cookie has this digest, if neither session nor token ended and the user is not disabled."""
        with self._database.read() as connection:
            moment = self._time(connection)
            statement: Select[Any] = (
                select(
                    users.c.name,
                    users.c.role,
                    users.c.app,
                    tokens.c.id,
                    tokens.c.prompts,
                    sessions.c.digest.label("key"),
                )
                .join(sessions, sessions.c.user == users.c.name)
                .outerjoin(tokens, tokens.c.id == sessions.c.token)
                .where(sessions.c.digest == key.decode(), sessions.c.expires > moment)
                .where(users.c.disabled.is_(None), sessions.c.token.is_(None) | _works(moment))
            )
            return _principal(connection.execute(statement).first(), key)

    def open_session(self, secret: str) -> str | None:
        """The cookie of a new session for a token; None when the token does not work, or is a program's."""
        principal = self.by_token(digest_secret(secret.encode("utf-8", "replace")))
        if principal is None or principal.app:
            return None
        with self._database.begin() as connection:
            moment = self._time(connection)
            return _add_session(connection, principal.name, principal.token, moment, SESSION_SECONDS)

    def admit(self, identity: ProviderIdentity, state: str, seconds: int) -> tuple[str, str]:
        """Open a session of so many seconds for somebody whom the identity provider vouches for, once for each `state`: the name
        of the user, and the cookie. The first sign-in makes the user. Raises SignInRefused."""
        with audited_transaction(self._database) as connection:
            moment = self._time(connection)
            self._use_state(connection, state, moment)
            row = self._user_of(connection, identity, moment)
            if row.disabled is not None:
                raise SignInRefused("disabled", f"{row.name} is disabled here. An admin can enable it again.")
            if identity.ruled and row.role != identity.role.word:
                self._note(connection, PROVIDER, "access.role", row.name, {"role": identity.role.word})
                connection.execute(
                    update(users).where(users.c.name == row.name).values(role=identity.role.word)
                )
                self._check_demotion(connection, row.name, identity.role)
            who = {"email": identity.email, "issuer": identity.issuer, "subject": identity.subject}
            self._note(connection, row.name, "access.sign_in", row.name, who)
            return row.name, _add_session(connection, row.name, None, moment, seconds)

    def link(self, name: str, email: str, *, by: str) -> None:
        """Let the next sign-in with this e-mail address be this user, whoever it was before; the user's earlier sign-ins end.
        Raises UsageError for a user that is unknown or a program, and for an address that waits for another user."""
        email = email.strip().lower()
        if not is_email(email):
            raise UsageError(f'"{email[:100]}" is no e-mail address. Write it as the provider does.')
        with self._database.begin() as connection:
            self._note(connection, by, "access.link", name, {"email": email})
            if self._find_user(connection, name).app:
                raise UsageError(f"{name} is a program, which signs in with its token only.")
            waiting = connection.execute(_waiting_link(email)).scalar()
            if waiting not in (None, name):
                raise UsageError(
                    f"{email} is linked to {waiting} already. Link {waiting} to another address first."
                )
            row = {
                "user": name,
                "email": email,
                "issuer": None,
                "subject": None,
                "at": self._time(connection),
            }
            put(connection, identities, row)
            _end_provider_sessions(connection, name)

    def read_time(self) -> int:
        """The time by the clock that all servers share, in microseconds."""
        with self._database.read() as connection:
            return self._time(connection)

    def close_session(self, key: bytes) -> None:
        """End the session whose cookie has this digest."""
        with self._database.begin() as connection:
            connection.execute(delete(sessions).where(sessions.c.digest == key.decode()))

    def expiry(self, days: int | None) -> int | None:
        """The time at which a token ends that works for so many days (None: always). Raises UsageError for a number that is
        none."""
        if days is None:
            return None
        if not 1 <= days <= MOST_DAYS:
            raise UsageError(f"A token works for 1 to {MOST_DAYS:,} days; this is {days}.")
        return self.read_time() + days * _DAY

    def _user(self, connection: Connection, name: str) -> Row[Any] | None:
        return connection.execute(select(users).where(users.c.name == name)).first()

    def _use_state(self, connection: Connection, state: str, moment: int) -> None:
        """Raises SignInRefused for a sign-in that opened a session before."""
        over = finished_sign_ins.c.at <= moment - 2 * SIGN_IN_SECONDS * 1_000_000
        connection.execute(delete(finished_sign_ins).where(over))
        row = {"state": digest_secret(state.encode()).decode(), "at": moment}
        new = insert_into(connection, finished_sign_ins).values(**row).on_conflict_do_nothing()
        if connection.execute(new.returning(finished_sign_ins.c.at)).first() is None:
            raise SignInRefused("replayed", "This sign-in was used already. Sign in again.")

    def _user_of(self, connection: Connection, identity: ProviderIdentity, moment: int) -> Row[Any]:
        """The user who is this at the provider: linked to the address, known by the subject, or new. Raises SignInRefused where
        the name of a new user is taken or unusable."""
        subject = {"issuer": identity.issuer, "subject": identity.subject}
        same = identities.c.issuer == identity.issuer, identities.c.subject == identity.subject
        name = connection.execute(_waiting_link(identity.email)).scalar()
        before = connection.execute(select(identities.c.user).where(*same)).scalar()
        if name is None:
            name = before
        elif before is not None:
            connection.execute(delete(identities).where(*same))
            _end_provider_sessions(connection, before)
        if name is None:
            name = self._add_person(connection, identity)
        put(connection, identities, {"user": name, "email": identity.email, **subject, "at": moment})
        return self._find_user(connection, name)

    def _add_person(self, connection: Connection, identity: ProviderIdentity) -> str:
        name = identity.email
        if not _NAME.fullmatch(name) or name in RESERVED:
            raise SignInRefused(
                "name",
                f"{name} cannot be the name of an account: at most 64 letters, digits and . _ @ + -. An admin adds an account "
                f"and links the address: whet access link NAME {name}.",
            )
        taken = connection.execute(select(users.c.name).where(func.lower(users.c.name) == name)).scalar()
        if taken is not None:
            raise SignInRefused(
                "taken",
                f"There is an account {taken}, and the provider does not say that it is yours: it has another subject, or was "
                f"made by hand. If it is yours, an admin links it: whet access link {taken} {name}.",
            )
        self._add_user(connection, name, identity.role.word, False, PROVIDER)
        return name

    def _find_user(self, connection: Connection, name: str) -> Row[Any]:
        row = self._user(connection, name)
        if row is None:
            names = connection.execute(select(users.c.name).limit(MOST_USERS)).scalars().all()
            raise UsageError(f'There is no user "{name[:64]}".{did_you_mean(name[:64], names)}')
        return row

    def _add_user(self, connection: Connection, name: str, role: str, app: bool, by: str) -> None:
        row = {"name": name, "role": role, "app": app, "created": self._time(connection), "created_by": by}
        self._note(connection, by, "access.add", name, {"role": "app" if app and role != PAGE else role})
        connection.execute(insert(users).values(**row))

    def _add_token(
        self,
        connection: Connection,
        name: str,
        prefix: str,
        by: str,
        expires: int | None,
        scope: list[str] | None,
    ) -> str:
        secret = prefix + secrets.token_urlsafe(32)
        details: dict[str, object] = {"token": secret[:HINT]} | ({} if scope is None else {"prompts": scope})
        details |= {} if expires is None else {"expires": iso(expires)}
        self._note(connection, by, "access.token", name, details)
        connection.execute(
            insert(tokens).values(
                id=new_id(),
                user=name,
                digest=digest_secret(secret.encode()).decode(),
                hint=secret[:HINT],
                created=self._time(connection),
                created_by=by,
                expires=expires,
                prompts=scope,
            )
        )
        return secret

    def _note(self, connection: Connection, by: str, action: str, name: str, what: dict[str, Any]) -> None:
        append_entry(
            connection,
            actor=by,
            action=action,
            subject=f"user:{name[:64]}",
            details=what,
            at=self._time(connection),
        )

    def _check_demotion(self, connection: Connection, name: str, role: Role) -> None:
        """Raises SignInRefused where nobody could give access any more after this role."""
        try:
            self._keep_an_admin(connection)
        except UsageError:
            raise SignInRefused(
                "last-admin",
                f"The rules (--oidc-role) give {name} the role {role.word}, and {name} holds the last token of the last admin. "
                "Give a token to another admin first.",
            ) from None

    def _keep_an_admin(self, connection: Connection) -> None:
        """Raises UsageError, which undoes the transaction, when nobody could give access any more."""
        admins = _working(self._time(connection)).where(
            users.c.role == Role.ADMIN.word, users.c.app.is_(False)
        )
        if connection.execute(admins.limit(1)).first() is None:
            raise UsageError("This is the last token of the last admin. Make another admin first.")


def _working(moment: int, *more: object) -> Select[Any]:
    """Tokens that work now, with their users."""
    key = more or (tokens.c.digest.label("key"),)
    return (
        select(users.c.name, users.c.role, users.c.app, tokens.c.id, tokens.c.prompts, *key)
        .join(tokens, tokens.c.user == users.c.name)
        .where(users.c.disabled.is_(None), _works(moment))
    )


def _works(moment: int) -> ColumnElement[bool]:
    """Whether a token works now, whoever's it is."""
    return tokens.c.revoked.is_(None) & (tokens.c.expires.is_(None) | (tokens.c.expires > moment))


def _waiting_link(email: str) -> Select[Any]:
    """The user whom an admin linked to an address with which nobody signed in since."""
    return select(identities.c.user).where(identities.c.email == email, identities.c.issuer.is_(None))


def _end_provider_sessions(connection: Connection, name: str) -> None:
    """End the sessions that the identity provider opened for a user."""
    connection.execute(delete(sessions).where(sessions.c.user == name, sessions.c.token.is_(None)))


def _add_session(connection: Connection, name: str, token: str | None, moment: int, seconds: int) -> str:
    """A new session of a user, opened with a token or without; returns its cookie."""
    cookie = secrets.token_urlsafe(32)
    connection.execute(delete(sessions).where(sessions.c.expires <= moment))
    row = {"user": name, "token": token, "created": moment, "expires": moment + seconds * 1_000_000}
    connection.execute(insert(sessions).values(digest=digest_secret(cookie.encode()).decode(), **row))
    return cookie


def is_email(text: str) -> bool:
    """Whether a text can be an e-mail address, as providers write it."""
    name, _, domain = text.rpartition("@")
    plain = text.isascii() and text.isprintable() and " " not in text and len(text) <= LONGEST_EMAIL
    return plain and bool(name) and bool(domain)


def _principal(row: Row[Any] | None, key: bytes) -> Principal | None:
    if row is None or not compare_digest(row.key.encode(), key):
        return None
    scope = None if row.prompts is None else frozenset(row.prompts)
    return Principal(row.name, _role_of(row.role), row.app, row.role == PAGE, row.id or "", prompts=scope)


def _role_of(word: str) -> Role:
    """The role of a row; that of a public key counts as the lowest, and is never asked for."""
    return Role.VIEWER if word == PAGE else Role[word.upper()]


def _prefix(page: bool) -> str:
    return PUBLIC_PREFIX if page else PREFIX


def _scope(name: str, app: bool, page: bool, prompts: Collection[str], all_prompts: bool) -> list[str] | None:
    """The prompts that a token is for, None for all. Raises UsageError."""
    if not app:
        if prompts or all_prompts:
            raise UsageError(
                f"{name} is a person, whose role says what they may do. Leave --prompt and --all-prompts out."
            )
        return None
    if page and (all_prompts or not prompts):
        raise UsageError(
            f"Anybody can read the public key of {name[:64]}, so it is for prompts that are named: --prompt NAME, as often as "
            "needed."
        )
    if bool(prompts) == all_prompts:
        raise UsageError(
            f"Say which prompts the token of {name[:64]} is for: --prompt NAME, as often as needed, or else --all-prompts."
        )
    for prompt in prompts:
        fault = "" if prompt.startswith(SERVICE) else prompt_name_fault(prompt)
        if fault and "|" not in prompt:
            raise UsageError(f"{show_value(prompt)} cannot be the name of a prompt: {fault}")
        if not 0 < len(prompt) <= LONGEST_NAME or "|" in prompt or len(prompts) > MOST_PROMPTS:
            raise UsageError(
                f'A token cannot be for the prompt "{prompt[:60]}". A name has 1 to {LONGEST_NAME} characters and no |; a token '
                f"is for at most {MOST_PROMPTS} names."
            )
    return None if all_prompts else sorted(set(prompts))


def csrf_of(session: str) -> str:
    """The secret that the forms of a session carry: SHA-256 of the cookie under another name, 64 hex digits."""
    return hashlib.sha256(b"whet form " + session.encode()).hexdigest()
