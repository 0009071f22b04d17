"""Whether an experiment may start: its label stands on one of its versions, and a protected label stays protected."""

from __future__ import annotations

from difflib import get_close_matches
from itertools import compress

from sqlalchemy import Connection, select

from whet.errors import UsageError
from whet_client.records import KINDS
from whet_live.experiments.definition import Definition, ramp_weights, refuse_tiny
from whet_live.experiments.metrics import BEHAVIOUR, MEASURED
from whet_live.registry.names import Address
from whet_live.registry.provenance import behind_version, may_approve, other_names
from whet_live.registry.registry_store import is_protected, moves_of, read_labels
from whet_live.traffic.traffic_tables import feedback

LEARNER = "learner"
"""The author of the always-on learner's experiments. It is no person, and no person may have its name; it tries what it wrote
where its mode `auto` was chosen for that."""

_ALIKE = 0.75


def admit(connection: Connection, definition: Definition, author: str) -> None:
    """Raises UsageError, with what to do, where an experiment must not start.

    Its label must stand on one of the arms: whoever is not assigned gets that version, and a winner replaces it. If the
    label is protected, nobody shows people a version that they shaped and nobody else approved (`provenance.may_approve`),
    but the one that stands there; the control is a version on which the label stood, for a broken guard-rail puts it there;
    and those on which it never stood start together with no more of the units than equal shares would give them.
    """
    refuse_tiny(definition)
    _refuse_misspelt(connection, definition)
    name, label = definition.prompt, definition.label
    standing = read_labels(connection, name).get(label)
    if standing is None:
        raise UsageError(
            f'{name} has no label "{label}". Put it on the control first: whet prompts promote {name} {definition.control} '
            f"--label {label}."
        )
    if standing not in definition.versions:
        raise UsageError(
            f"{label} of {name} stands on version {standing}, which is none of the arms {definition.versions}. Make version "
            f"{standing} one of them, usually the control."
        )
    if is_protected(connection, name, label):
        _admit_protected(connection, definition, author)


def stood_on(connection: Connection, name: str, label: str) -> set[int | None]:
    """The versions that a label ever stood on."""
    return {move.new for move in moves_of(connection, name, label)}


def _admit_protected(connection: Connection, definition: Definition, author: str) -> None:
    name, label = definition.prompt, definition.label
    stood = stood_on(connection, name, label)
    new = [version for version in definition.versions if version not in stood]
    names = other_names(connection, author)
    for version in definition.versions if author != LEARNER else ():
        provenance = behind_version(connection, Address(name, label), version, author)
        if reason := may_approve(author, provenance, names):
            raise UsageError(
                f"{reason}, and {label} of {name} is protected. Somebody else starts the experiment, "
                f"or approves the version first: request a move of another label to it, for instance whet prompts promote "
                f"{name} {version} --label staging --request."
            )
    if definition.control in new:
        raise UsageError(
            f"{label} of {name} is protected, and never stood on version {definition.control}, the control, where it goes when "
            "a guard-rail breaks: that would be a move that nobody approved. Make the version that stands there the control."
        )
    share, most = _largest_share(definition, new), len(new) / len(definition.versions)
    if share > most + 1e-9:
        raise UsageError(
            f"{label} of {name} is protected, and never stood on {_describe_versions(new)}: the most of the units to begin "
            f"with is {most:.0%}, and this gives {share:.0%}. Give less weight; thompson, top_two and track_and_stop give more "
            "to what does well."
        )


def _largest_share(definition: Definition, versions: list[int]) -> float:
    """The most that some versions get together without any evidence for them."""
    steps = len(definition.policy.shares) if definition.policy.kind == "ramp" else 0
    all_weights = [definition.starting_weights, *(ramp_weights(definition, step) for step in range(steps))]
    tested = [version in versions for version in definition.versions]
    return max(sum(compress(weights, tested)) for weights in all_weights)


def _describe_versions(versions: list[int]) -> str:
    return ("version " if len(versions) == 1 else "versions ") + ", ".join(map(str, versions))


def _refuse_misspelt(connection: Connection, definition: Definition) -> None:
    """Raises UsageError for a metric that is almost the name of another and that nobody sent as a score yet."""
    known = {*KINDS, *MEASURED, BEHAVIOUR}
    for name in definition.metrics.keys() - known:
        near = get_close_matches(name, sorted(known), n=1, cutoff=_ALIKE)
        sent = select(feedback.c.seq).filter_by(prompt=definition.prompt, kind="score", name=name).limit(1)
        if near and connection.execute(sent).first() is None:
            raise UsageError(
                f'Nobody sent a score named "{name}" about {definition.prompt} yet. Did you mean "{near[0]}"? If it is to be a '
                "score, send one first."
            )
