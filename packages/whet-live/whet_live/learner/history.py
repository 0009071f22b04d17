"""The evidence of traffic about instructions: how often people asked for each before and while it stood, by version.

The versions from which one was made are the rounds of `whet.instructions`: the same measures and the same rule for
contradictions hold for live prompts. A source counts once in a round, whatever it says.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from whet.instructions.contradictions import Contradictions
from whet.instructions.effects import Effects, Round
from whet.prompt.events import Resolve
from whet.prompt.instructions import Ledger
from whet_live.learner.context import LearnerContext
from whet_live.learner.feedback_state import Comment, PromptFeedback
from whet_live.learner.learner_store import PromptUpdate
from whet_live.learner.reading import Readings, RowReading
from whet_live.learner.upkeep import WITHOUT, as_list
from whet_live.registry import Version
from whet_live.registry.ledgers import events_added

MOST_VERSIONS = 50
_Hits = Mapping[str, set[str]]


def history_of(
    context: LearnerContext, base: Version, region: str, feedback: PromptFeedback, readings: Readings
) -> Contradictions:
    """The rounds of a version and of those that it was made from (`effects`), and what took the place of what in them."""
    known = Contradictions(Effects())
    counts = {
        count.version: count.n for count in context.traffic.counts([base.name]) if count.kind == "inference"
    }
    rows: dict[int, list[Comment]] = defaultdict(list)
    for row in feedback.rows.values():
        rows[row.version].append(row)
    before: Version | None = None
    for version in _lineage(context, base):
        events = version.ledgers.get(region, ())
        for event in events_added(before.ledgers.get(region, ()) if before else (), events):
            if isinstance(event, Resolve):
                known.note_resolution(event)
        known.effects.add(
            _round(version, region, base.ledger(region), rows[version.version], readings, counts)
        )
        before = version
    return known


def find_trials(
    context: LearnerContext, version: Version, region: str, updates: Iterable[PromptUpdate]
) -> dict[str, Mapping[str, Any]]:
    """The measurements of a version without one of its instructions, by id: the gate's verdict of the newest trial of the
    present text. `updates` are those of the prompt, the newest first."""
    texts = {version.version: _texts(version, region)}
    trials: dict[str, Mapping[str, Any]] = {}
    for update in updates:
        whole = (update.gate or {}).get("whole")
        if (update.plan or {}).get("step") != WITHOUT or not isinstance(whole, Mapping):
            continue
        for key in as_list(update.plan, "ids"):
            if update.base not in texts:
                texts[update.base] = _texts(context.registry.get(f"{version.name}/{update.base}"), region)
            tried, stands = (texts[number].get(str(key)) for number in (update.base, version.version))
            if tried is not None and tried == stands:
                trials.setdefault(str(key), {**(update.gate or {}), **whole})
    return trials


def _texts(version: Version, region: str) -> dict[str, str]:
    return {key: one.text for key, one in version.ledger(region).instructions.items()}


def _lineage(context: LearnerContext, base: Version) -> list[Version]:
    """A version and those that it was made from, the oldest first."""
    versions, one = [base], base
    while one.parent is not None and len(versions) < MOST_VERSIONS:
        one = context.registry.get(f"{base.name}/{one.parent}")
        versions.append(one)
    return versions[::-1]


def _round(
    version: Version,
    region: str,
    now: Ledger,
    rows: list[Comment],
    readings: Readings,
    counts: Mapping[int, float],
) -> Round:
    violated: _Hits = defaultdict(set)
    opposed: _Hits = defaultdict(set)
    for row in rows:
        for key in readings.rows.get(row.id, RowReading()).ids:
            violated[_instruction(key, readings, now)].add(row.who)
            one = readings.requirements.get(key)
            for other in () if one is None else one.contradicts:
                opposed[_instruction(other, readings, now)].add(row.who)
    sources = len({row.who for row in rows})
    return Round(
        answers=max(int(counts.get(version.version, 0)), sources),
        shown={instruction.id: instruction.text for instruction in version.ledger(region).active},
        violated={key: len(who) for key, who in violated.items() if key},
        opposed={key: len(who) for key, who in opposed.items() if key},
        criticised=sources,
    )


def _instruction(key: str, readings: Readings, now: Ledger) -> str:
    """The instruction that an id is, or that an update made of it, be it that it stands no more; empty for none."""
    one = readings.requirements.get(key)
    made = key if one is None else one.instruction
    return now.successor(made) if made in now.instructions else ""
