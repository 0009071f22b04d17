"""Users, tokens and sessions: what is stored, what works, what ends; on SQLite and PostgreSQL."""

from __future__ import annotations

import threading

import pytest
from sqlalchemy import select

from whet.errors import UsageError
from whet_live.database import Database
from whet_live.database.access_tables import sessions, tokens
from whet_live.registry.audit import entries, verify
from whet_live.registry.registry_tables import audit
from whet_live.server.access import PREFIX, SESSION_SECONDS, Access, digest_secret
from whet_live.server.roles import Principal, Role


@pytest.fixture
def access(database: Database) -> Access:
    return Access(database)


def key(secret: str | None) -> bytes:
    assert secret is not None
    return digest_secret(secret.encode())


def test_the_first_token_is_an_admins_and_there_is_no_second_first(access: Access) -> None:
    assert not access.is_guarded()
    found = access.by_token(key(access.first()))
    assert found is not None and (found.name, found.role, found.app) == ("admin", Role.ADMIN, False)
    assert access.first() is None
    assert access.is_guarded()


def test_a_program_that_got_its_token_before_the_first_start_is_no_person(access: Access) -> None:
    """Whoever made the key of a page first, as the page on the snippet says, could sign in nowhere."""
    access.add("shop-pages", Role.VIEWER, page=True, by="root", prompts=["shop/help"])
    found = access.by_token(key(access.first()))
    assert found is not None and (found.name, found.role) == ("admin", Role.ADMIN)
    assert access.first() is None


def test_a_program_called_admin_stays_one(access: Access) -> None:
    access.add("admin", Role.VIEWER, app=True, by="root", prompts=["shop/help"])
    assert access.first() is None


def test_processes_that_start_together_make_one_first_token(access: Access) -> None:
    made: list[str | None] = []
    threads = [threading.Thread(target=lambda: made.append(access.first())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len([token for token in made if token]) == 1


def test_no_secret_is_stored(access: Access, database: Database) -> None:
    secret = access.add("ada", Role.EDITOR, by="test")
    cookie = access.open_session(secret)
    assert secret.startswith(PREFIX) and cookie is not None
    with database.read() as connection:
        stored = repr([connection.execute(select(t)).all() for t in (tokens, sessions)])
        log = repr(entries(connection, select(audit)))
    assert secret[5:] not in stored + log and cookie not in stored + log
    assert digest_secret(secret.encode()).decode() in stored


def test_a_token_has_256_random_bits(access: Access) -> None:
    found = {access.add(f"u{n}", Role.VIEWER, by="test") for n in range(20)}
    assert len(found) == 20 and {len(token) for token in found} == {len(PREFIX) + 43}


def test_a_revoked_token_ends_with_its_sessions(access: Access) -> None:
    access.first()
    secret = access.add("ada", Role.VIEWER, by="test")
    cookie = access.open_session(secret)
    assert access.by_session(key(cookie)) is not None
    (ada,) = [user for user in access.users() if user.name == "ada"]
    access.revoke(ada.tokens[0].id, by="test")
    assert access.by_token(key(secret)) is None
    assert access.by_session(key(cookie)) is None
    assert access.open_session(secret) is None


def test_times_end_tokens_and_sessions(database: Database) -> None:
    moment = [1_000_000]
    access = Access(database, clock=lambda: moment[0])
    short = access.add("short", Role.VIEWER, by="test", expires=2_000_000)
    long = access.add("long", Role.VIEWER, by="test")
    cookie = access.open_session(long)
    assert access.by_token(key(short)) and access.by_session(key(cookie))
    moment[0] = 2_000_000
    assert access.by_token(key(short)) is None
    moment[0] = 1_000_000 + SESSION_SECONDS * 1_000_000
    assert access.by_session(key(cookie)) is None
    assert access.by_token(key(long)) is not None


def test_a_session_can_be_closed(access: Access) -> None:
    cookie = access.open_session(access.add("ada", Role.VIEWER, by="test"))
    access.close_session(key(cookie))
    assert access.by_session(key(cookie)) is None


def test_a_program_opens_no_session(access: Access) -> None:
    assert access.open_session(access.add("shop", Role.VIEWER, app=True, by="test", all_prompts=True)) is None


def test_roles_change_and_a_disabled_user_is_nobody(access: Access) -> None:
    access.first()
    secret = access.add("ada", Role.VIEWER, by="test")
    access.set_role("ada", Role.APPROVER, by="admin")
    found = access.by_token(key(secret))
    assert found is not None and found.role is Role.APPROVER
    access.disable("ada", by="admin")
    assert access.by_token(key(secret)) is None
    with pytest.raises(UsageError, match="disabled"):
        access.new_token("ada", by="admin")
    access.set_role("ada", Role.VIEWER, by="admin")
    assert access.by_token(key(secret)) is not None
    assert access.by_token(key(access.new_token("ada", by="admin"))) is not None


def test_the_last_admin_stays(access: Access) -> None:
    access.first()
    (admin,) = access.users()
    with pytest.raises(UsageError, match="last admin"):
        access.disable("admin", by="admin")
    with pytest.raises(UsageError, match="last admin"):
        access.set_role("admin", Role.EDITOR, by="admin")
    with pytest.raises(UsageError, match="last admin"):
        access.revoke(admin.tokens[0].id, by="admin")
    assert access.is_guarded()
    access.add("second", Role.ADMIN, by="admin")
    access.disable("admin", by="second")
    assert access.users()[0].disabled is not None


@pytest.mark.parametrize("name", ["", "a b", "a/b", "-a", "é", "a" * 65, "a\n", "<b>"])
def test_names_that_are_no_names_are_refused(database_to_read: Database, name: str) -> None:
    access = Access(database_to_read)
    with pytest.raises(UsageError, match="user name"):
        access.add(name, Role.VIEWER, by="test")
    assert access.users() == []


def test_unknown_and_taken_names_are_told(access: Access) -> None:
    access.add("ada", Role.VIEWER, by="test")
    with pytest.raises(UsageError, match="already"):
        access.add("ada", Role.ADMIN, by="test")
    with pytest.raises(UsageError, match='Did you mean "ada"'):
        access.set_role("adaa", Role.VIEWER, by="test")
    with pytest.raises(UsageError, match="no token"):
        access.revoke("0190", by="test")


def test_every_change_is_in_the_audit_log(access: Access, database: Database) -> None:
    access.first()
    access.add("ada", Role.VIEWER, by="admin")
    access.set_role("ada", Role.EDITOR, by="admin")
    access.disable("ada", by="admin")
    with database.read() as connection:
        found = [
            (e.actor, e.action, e.subject) for e in entries(connection, select(audit).order_by(audit.c.seq))
        ]
        assert verify(connection).whole
    assert found == [
        ("admin", "access.add", "user:admin"),
        ("admin", "access.token", "user:admin"),
        ("admin", "access.add", "user:ada"),
        ("admin", "access.token", "user:ada"),
        ("admin", "access.role", "user:ada"),
        ("admin", "access.disable", "user:ada"),
    ]


def test_a_role_may_do_what_those_below_it_may() -> None:
    for role in Role:
        found = [needed.word for needed in Role if Principal("x", role).may(needed, False)]
        assert found == [needed.word for needed in Role if needed <= role]
    assert not Principal("x", Role.ADMIN, app=True).may(Role.VIEWER, False)
    assert Principal("x", Role.VIEWER, app=True).may(Role.ANNOTATOR, True)
