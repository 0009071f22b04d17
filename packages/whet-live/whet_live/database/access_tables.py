"""Tables of access: who there is, their tokens, who they are at an identity provider, and their sessions in browsers. No secret
is stored."""

from __future__ import annotations

from sqlalchemy import (
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    String,
    Table,
    UniqueConstraint,
)

from whet_live.database.columns import Json, When, metadata

users = Table(
    "access_users",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("role", String(16), nullable=False),
    Column("app", Boolean, nullable=False),
    Column("created", When, nullable=False),
    Column("created_by", String(64), nullable=False),
    Column("disabled", When),
)
"""People and programs. `app`: a program. `disabled`: since when it may do nothing."""

tokens = Table(
    "access_tokens",
    metadata,
    Column("id", String(36), primary_key=True),
    Column("user", String(64), ForeignKey("access_users.name"), nullable=False),
    Column("digest", String(64), nullable=False, unique=True),
    Column("hint", String(16), nullable=False),
    Column("created", When, nullable=False),
    Column("created_by", String(64), nullable=False),
    Column("expires", When),
    Column("revoked", When),
    Column("prompts", Json),
    Index("ix_access_tokens_user", "user"),
)
"""`digest`: SHA-256 of the token, hexadecimal. `hint`: its first characters, to tell tokens apart. `prompts`: the prompts that a
program's token is for, NULL for all."""

sessions = Table(
    "access_sessions",
    metadata,
    Column("digest", String(64), primary_key=True),
    Column("user", String(64), ForeignKey("access_users.name"), nullable=False),
    Column("token", String(36), ForeignKey("access_tokens.id")),
    Column("created", When, nullable=False),
    Column("expires", When, nullable=False),
    Index("ix_access_sessions_user", "user"),
    Index("ix_access_sessions_token", "token"),
    Index("ix_access_sessions_expires", "expires"),
)
"""A session lives as long as its token, at most until `expires`. `token` is NULL where an identity provider opened it. `digest`:
SHA-256 of the cookie, hexadecimal."""

identities = Table(
    "access_identities",
    metadata,
    Column("user", String(64), ForeignKey("access_users.name"), primary_key=True),
    Column("email", String(254), nullable=False),
    Column("issuer", String(500)),
    Column("subject", String(255)),
    Column("at", When, nullable=False),
    UniqueConstraint("issuer", "subject"),
    Index("ix_access_identities_email", "email"),
)
"""The identity of a user at an identity provider. `issuer` and `subject` are NULL until the first sign-in with the address,
which an admin linked to the user; `email` is the address of the last sign-in."""

finished_sign_ins = Table(
    "access_sign_ins",
    metadata,
    Column("state", String(64), primary_key=True),
    Column("at", When, nullable=False),
    Index("ix_access_sign_ins_at", "at"),
)
"""Sign-ins that opened a session, so that none opens a second one. `state`: SHA-256 of the state, hexadecimal."""

server_address = Table(
    "server_address",
    metadata,
    Column("one", Integer, primary_key=True, autoincrement=False),
    Column("url", String(500), nullable=False),
    Column("at", When, nullable=False),
    CheckConstraint("one = 1", name="one"),
)
"""The address of the server that was started last."""
