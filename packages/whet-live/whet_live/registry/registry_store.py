"""Rows of the registry's tables as values, and the only statements that write them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Row, func, or_, select

import whet_live.registry.audit as audit
from whet.errors import UsageError, did_you_mean
from whet.prompt import Prompt
from whet.prompt.events import from_json
from whet_live.database import insert_into, put, time_of
from whet_live.registry.names import ANY_PROMPT, NEWEST, Address
from whet_live.registry.registry_tables import label_moves, labels, prompts, protections, versions
from whet_live.registry.values import (
    Ledgers,
    Move,
    Summary,
    Version,
    ledgers_json,
    messages_of,
    prompt_from_messages,
)

MOVE, ROLLBACK, REMOVE = "move", "rollback", "remove"


def newest(connection: Connection, name: str, *, lock: bool = False) -> int | None:
    """The number of the newest version, None for an unknown prompt."""
    query = select(prompts.c.newest).where(prompts.c.name == name)
    number: int | None = connection.execute(query.with_for_update() if lock else query).scalar()
    return number


def known_prompt(connection: Connection, name: str) -> int:
    """The number of the newest version. Raises UsageError with the nearest known name."""
    number = newest(connection, name)
    if number is None:
        start = name[: max(1, len(name) // 2)]
        near = select(prompts.c.name).where(prompts.c.name.startswith(start, autoescape=True)).limit(200)
        names = list(connection.execute(near).scalars())
        hint = did_you_mean(name, names) if names else " List them with: whet prompts list."
        raise UsageError(f'There is no prompt "{name}".{hint}')
    return number


def prompt_names(connection: Connection, after: str = "", limit: int | None = None) -> list[str]:
    """The names of prompts in order, those that come after `after`, `limit` at most."""
    query = select(prompts.c.name).where(prompts.c.name > after).order_by(prompts.c.name)
    return list(connection.execute(query.limit(limit)).scalars())


def version_with(connection: Connection, name: str, prompt_id: str) -> int | None:
    """The newest version that has the text of that id, None when there is none."""
    query = select(func.max(versions.c.version)).where(
        versions.c.name == name, versions.c.prompt_id == prompt_id
    )
    number: int | None = connection.execute(query).scalar()
    return number


def read_labels(connection: Connection, name: str) -> dict[str, int]:
    """The version that each label of a prompt names, `latest` included."""
    rows = connection.execute(select(labels.c.label, labels.c.version).where(labels.c.name == name))
    return {row.label: row.version for row in rows} | {NEWEST: known_prompt(connection, name)}


def version_number_of(connection: Connection, address: Address) -> int:
    """The version that an address means. Raises UsageError when there is none."""
    last = known_prompt(connection, address.name)
    if address.version is not None:
        if address.version > last:
            raise UsageError(f"{address.name} has no version {address.version}; its newest is {last}.")
        return address.version
    standing = read_labels(connection, address.name)
    if address.label not in standing:
        raise UsageError(
            f'{address.name} has no label "{address.label}".{did_you_mean(str(address.label), standing)} '
            f"Read {address.name}@{NEWEST}, or put the label on a version: "
            f"whet prompts promote {address.name} {last} --label {address.label}."
        )
    return standing[str(address.label)]


def read_version(connection: Connection, address: Address) -> Version:
    """The version that an address means. Raises UsageError when there is none."""
    number = version_number_of(connection, address)
    query = select(versions).where(versions.c.name == address.name, versions.c.version == number)
    row = connection.execute(query).one()
    return version_from_row(row, read_labels(connection, address.name))


def version_from_row(row: Row[Any], standing: Mapping[str, int]) -> Version:
    """A row of `versions` as a value."""
    ledgers = {region: tuple(from_json(event) for event in events) for region, events in row.ledger.items()}
    on_it = tuple(sorted(label for label, number in standing.items() if number == row.version))
    return Version(
        row.name, row.version, prompt_from_messages(row.messages), ledgers, row.config, row.parent, row.author, row.message,
        row.created, row.run, row.evidence, row.proposal, on_it,
        row.provenance or {},
    )  # fmt: skip


def write_version(
    connection: Connection, name: str, prompt: Prompt, ledgers: Ledgers, columns: Mapping[str, Any]
) -> int:
    """Add the next version of a prompt, the first one if it is new; `columns` are the other columns. Returns its number."""
    moment = columns["created"]
    first = insert_into(connection, prompts).values(name=name, newest=1, created=moment, changed=moment)
    new = connection.execute(first.on_conflict_do_nothing().returning(prompts.c.newest)).scalar()
    number = 1 if new is not None else (newest(connection, name, lock=True) or 0) + 1
    if number > 1:
        grown = prompts.update().where(prompts.c.name == name).values(newest=number, changed=moment)
        connection.execute(grown)
    connection.execute(
        versions.insert().values(
            name=name,
            version=number,
            prompt_id=prompt.id,
            messages=messages_of(prompt),
            ledger=ledgers_json(ledgers),
            **columns,
        )
    )
    return number


def set_label(connection: Connection, move: Mapping[str, Any]) -> Move:
    """Put a label where `move` says (columns of `label_moves` but number, old and at), write the move down, and audit it."""
    name, label, new = move["name"], move["label"], move["new"]
    old = connection.execute(
        select(labels.c.version).where(labels.c.name == name, labels.c.label == label).with_for_update()
    ).scalar()
    moment = time_of(connection)
    if new is None:
        connection.execute(labels.delete().where(labels.c.name == name, labels.c.label == label))
    else:
        put(connection, labels, {"name": name, "label": label, "version": new, "changed": moment})
    row = {**move, "old": old, "at": moment}
    number = connection.execute(label_moves.insert().values(row).returning(label_moves.c.number)).scalar_one()
    connection.execute(prompts.update().where(prompts.c.name == name).values(changed=moment))
    stored = Move(number=number, **row)
    details = {k: row[k] for k in ("label", "old", "new", "reason", "proposal")}
    audit.append_entry(
        connection,
        actor=stored.actor,
        action=f"label.{stored.kind}",
        subject=name,
        details=details,
        at=moment,
    )
    return stored


def moves_of(connection: Connection, name: str, label: str, limit: int | None = None) -> list[Move]:
    """Moves of a label, the newest first, all of them or `limit` at most."""
    query = select(label_moves).filter_by(name=name, label=label).order_by(label_moves.c.number.desc())
    return [Move(**row._mapping) for row in connection.execute(query.limit(limit))]


def version_before(connection: Connection, name: str, label: str) -> int:
    """The target of a rollback: the version on which the label stood before the move that is not taken back yet.

    Raises UsageError when there is none.
    """
    stack: list[int | None] = []
    for move in reversed(moves_of(connection, name, label)):
        if move.kind == ROLLBACK:
            stack.pop()
            while stack and stack[-1] != move.new:
                stack.pop()
        if move.kind != ROLLBACK or not stack:
            stack.append(move.new)
    earlier = [version for version in stack[:-1] if version is not None]
    if not stack or stack[-1] is None:
        raise UsageError(
            f'{name} has no label "{label}" that could be rolled back. See its moves with: whet prompts history {name}.'
        )
    if stack[:-1] and stack[-2] is not None:
        return stack[-2]
    request = " --request" if is_protected(connection, name, label) else ""
    raise UsageError(
        f"{label} of {name} stands on version {stack[-1]} and stood on no other one before"
        + (", but for the time before it was removed. " if earlier else ". ")
        + f"See the versions with: whet prompts history {name}. "
        f"Move it with: whet prompts promote {name} VERSION --label {label}{request}."
    )


def is_protected(connection: Connection, name: str, label: str) -> bool:
    """Whether a label moves only by approval."""
    query = select(func.count()).where(
        protections.c.label == label, protections.c.name.in_([name, ANY_PROMPT])
    )
    return bool(connection.execute(query).scalar())


def summaries(
    connection: Connection, query: str, label: str | None, after: str | None, limit: int
) -> list[Summary]:
    """Prompts in the order of their names, those whose name contains `query` in any case, with their labels."""
    statement = select(prompts).order_by(prompts.c.name).limit(limit)
    if query:
        cased = dict.fromkeys((query, query.lower(), query.upper(), query.title()))  # SQLite folds ASCII only
        statement = statement.where(or_(*(prompts.c.name.icontains(one, autoescape=True) for one in cased)))
    if label not in (None, NEWEST):
        statement = statement.join(labels, labels.c.name == prompts.c.name).where(labels.c.label == label)
    if after is not None:
        statement = statement.where(prompts.c.name > after)
    rows = connection.execute(statement).all()
    names = [row.name for row in rows]
    standing: dict[str, dict[str, int]] = {name: {} for name in names}
    for row in connection.execute(select(labels).where(labels.c.name.in_(names)).order_by(labels.c.label)):
        standing[row.name][row.label] = row.version
    return [Summary(row.name, row.newest, standing[row.name], row.created, row.changed) for row in rows]
