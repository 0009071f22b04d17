"""Between a version's text and its ledgers, and between a proposal and its parts. Everything here is pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from whet.errors import UsageError, did_you_mean
from whet.feedback.prompt_file import drawn_fence
from whet.prompt import Prompt
from whet.prompt.events import PROPOSED, Add, Decide, Event, Merge, Resolve, Rewrite
from whet.prompt.instructions import estimate_tokens, fold_events, without_list_mark
from whet.prompt.ledger import changes, newline_of, read_ledger, render_instructions
from whet_live.registry.values import Ledgers, ProposalUnit


def ledgers_of(prompt: Prompt, known: Ledgers, author: str, at: str) -> dict[str, tuple[Event, ...]]:
    """The known events of each fenced region, with one more by `author` where the text says something else."""
    ledgers: dict[str, tuple[Event, ...]] = {}
    for region in prompt.regions if prompt.fenced else ():
        text, events = prompt.region_text(region.name), known.get(region.name, ())
        if not events or render_instructions(fold_events(events)) != text:
            event = read_ledger(text, author, at)
            if "\n" not in text:
                event = replace(event, newline=newline_of(prompt.messages[region.message].content))
            events = (*events, event)
        ledgers[region.name] = events
    return ledgers


def events_added(before: Sequence[Event], events: Sequence[Event]) -> Sequence[Event]:
    """The events that come after those that were there; all of them where they do not go on from there."""
    return events[len(before) :] if tuple(events[: len(before)]) == tuple(before) else events


def check_ledgers(prompt: Prompt, ledgers: Ledgers) -> None:
    """Raise UsageError when events do not lead to the text of their region."""
    for region, events in ledgers.items():
        if not prompt.fenced or render_instructions(fold_events(events)) != prompt.region_text(region):
            raise UsageError(
                f'The events of the region "{region}" do not lead to its text. Give both from the same moment.'
            )


def manageable(prompt: Prompt) -> Prompt:
    """The prompt with a fence: itself, or with an empty one at its end. Raises UsageError for chat messages without."""
    if prompt.fenced:
        return prompt
    if len(prompt.messages) > 1:
        raise UsageError(
            "The messages have no fence. Put <!-- whet:begin --> and <!-- whet:end --> on lines of their own "
            "where instructions may stand."
        )
    message = prompt.messages[0]
    return Prompt((replace(message, content=message.content + drawn_fence(message.content)),))


def owner(event: Event) -> str:
    """The instruction whose part of a proposal an event is; empty for one that belongs to no single one."""
    if isinstance(event, Resolve):
        return event.keep
    return str(getattr(event, "id", ""))


def proposal_units(before: Sequence[Event], new: Sequence[Event]) -> tuple[ProposalUnit, ...]:
    """The parts of a proposal that can be kept or left out by themselves, in the order of their first event."""
    old, after = fold_events(before), fold_events([*before, *new])
    changed = {change.id: change for change in changes(old, after)}
    parts: dict[str, list[Event]] = {}
    for event in new:
        if owner(event):
            parts.setdefault(owner(event), []).append(event)
    result = []
    for key, events in parts.items():
        touched = [e.drop for e in events if isinstance(e, Resolve)]
        touched += [other for e in events if isinstance(e, Merge) for other in e.others]
        also = tuple(changed[k] for k in dict.fromkeys(touched) if k in changed and k not in parts)
        result.append(ProposalUnit(key, tuple(events), changed.get(key), also, after[key]))
    return tuple(result)


def kept_events(
    new: Sequence[Event], kept: Collection[str], actor: str, at: str, reason: str
) -> tuple[Event, ...]:
    """The events without the parts that are left out. A new instruction that is left out stays in the ledger, rejected.

    Raises UsageError for a part that is not there.
    """
    known = dict.fromkeys(owner(event) for event in new if owner(event))
    for key in kept:
        if key not in known:
            raise UsageError(f'The proposal has no instruction "{key}".{did_you_mean(key, known)}')
    events: list[Event] = []
    refused: set[str] = set()
    for event in new:
        key = owner(event)
        if not key or key in kept:
            events.append(event)
        elif isinstance(event, Add) and key not in refused:
            refused.add(key)
            events.append(replace(event, status=PROPOSED))
            events.append(Decide(id=key, approve=False, reason=reason, author=actor, at=at))
    return tuple(events)


def edited_events(new: Sequence[Event], texts: Mapping[str, str], actor: str, at: str) -> tuple[Event, ...]:
    """The events with other texts for some instructions of the proposal. Raises UsageError for one it does not have."""
    known = {owner(event) for event in new if owner(event)}
    for key in texts:
        if key not in known:
            raise UsageError(f'The proposal has no instruction "{key}".{did_you_mean(key, known)}')
    edits = [
        Rewrite(
            id=key, text=text, author=actor, at=at, tokens=estimate_tokens(text), reason=f"edited by {actor}"
        )
        for key, text in ((key, without_list_mark(text)) for key, text in texts.items())
    ]
    return (*new, *edits)
