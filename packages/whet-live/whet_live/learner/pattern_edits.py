"""The edits of people to patterns of failures: their names, and which of them are the same.

The audit log says who did it, to which pattern and why. It holds no name of a pattern, because a name may be written from words
that are erased later.
"""

from __future__ import annotations

from sqlalchemy import Connection, update

from whet.errors import UsageError
from whet.instructions.neighbours import comparable
from whet_live.database import time_of
from whet_live.learner.learner_tables import failure_patterns, pattern_rows
from whet_live.learner.pattern_reading import (
    LONGEST_DESCRIPTION,
    LONGEST_PATTERN_NAME,
    PatternName,
    clean_description,
    clean_pattern_name,
)
from whet_live.learner.pattern_store import StoredPattern, read_patterns
from whet_live.registry import audit
from whet_live.registry.labels import ChangeActor
from whet_live.registry.names import check_actor, check_text

_p, _r = failure_patterns.c, pattern_rows.c


def rename_pattern(
    connection: Connection, prompt: str, key: str, name: str, description: str | None, by: ChangeActor
) -> PatternName:
    """Give a pattern another name and, where one is given, another description. With a description of a person's own, nothing
    of it was written from critiques, so that it outlasts their erasure. Raises UsageError for an unknown or merged pattern, for
    a name that another one has, and for texts that no reader may be shown."""
    check_actor(by.actor)
    check_text(by.reason, "reason")
    known = read_patterns(connection, prompt)
    one = _standing(known, prompt, key)
    title = clean_pattern_name(name)
    if not title:
        raise UsageError(
            f'"{name[:LONGEST_PATTERN_NAME]}" cannot name a pattern. Write 1 to {LONGEST_PATTERN_NAME} characters, a letter or '
            "digit among them, that neither order a model to do something nor hold a secret."
        )
    for other in known.values():
        if comparable(other.name) == comparable(title) and other.final != one.number:
            raise UsageError(_say_taken(other, title, key))
    values = {"name": title, "model": by.actor, "at": time_of(connection)}
    words = one.description
    if description is not None:
        words = clean_description(description)
        if description.strip() and not words:
            raise UsageError(
                f"This cannot describe a pattern. Write at most {LONGEST_DESCRIPTION} characters that neither order a model to "
                "do something nor hold a secret."
            )
        values |= {"description": words, "origin": []}
    connection.execute(
        update(failure_patterns).where(_p.prompt == prompt, _p.number == one.number).values(values)
    )
    details = {"pattern": one.id, "reason": by.reason}
    audit.append_entry(connection, actor=by.actor, action="pattern.rename", subject=prompt, details=details)
    return PatternName(one.number, title, words)


def merge_patterns(connection: Connection, prompt: str, key: str, into: str, by: ChangeActor) -> int:
    """Put the critiques of a pattern into another one; how many they are. What the reader puts under the name of the first one
    from now on belongs to the other one as well. Raises UsageError for patterns that are unknown, merged or the same."""
    check_actor(by.actor)
    check_text(by.reason, "reason")
    known = read_patterns(connection, prompt)
    one, other = _standing(known, prompt, key), _standing(known, prompt, into)
    if one is other:
        raise UsageError(f"{one.id} is one pattern. Name the two that are to become one.")
    here = (_r.prompt == prompt, _r.number == one.number)
    moved = connection.execute(
        update(pattern_rows).where(*here).values(number=other.number).returning(_r.row)
    ).all()
    connection.execute(
        update(failure_patterns)
        .where(_p.prompt == prompt, (_p.number == one.number) | (_p.merged_into == one.number))
        .values(merged_into=other.number, description="")
    )
    details = {"pattern": one.id, "into": other.id, "critiques": len(moved), "reason": by.reason}
    audit.append_entry(connection, actor=by.actor, action="pattern.merge", subject=prompt, details=details)
    return len(moved)


def _standing(known: dict[int, StoredPattern], prompt: str, key: str) -> StoredPattern:
    """A pattern that was not merged into another one."""
    one = next((one for one in known.values() if one.id == key.strip()), None)
    if one is None:
        raise UsageError(
            f'{prompt} has no pattern "{key[:40]}". See their ids with: whet feedback patterns {prompt}'
        )
    if one.merged_into:
        raise UsageError(f"{one.id} was merged into k{one.merged_into}. Name that one.")
    return one


def _say_taken(other: StoredPattern, title: str, key: str) -> str:
    if other.merged_into:
        return f'"{title}" is the name of {other.id}, which was merged into k{other.merged_into}. Choose another name.'
    return f'"{title}" is the name of {other.id}. Choose another name, or merge {key} into {other.id}.'
