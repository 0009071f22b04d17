"""From complaints to a proposed change of a prompt's instructions, without a task: what `whet learn` calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from whet.policies.curator import Curator
from whet.policies.upkeep import tidy
from whet.prompt import Prompt
from whet.prompt.events import Event
from whet.prompt.ledger import Change, changes, read_back
from whet.run import Run
from whet.search.critiques import Complaint


@dataclass(frozen=True)
class Proposal:
    """A change that somebody may accept: the prompt as it would be, the events that lead there (those known
    before and the new ones), the difference per instruction, and the complaints that gave no usable instruction."""

    prompt: Prompt
    events: tuple[Event, ...]
    new: tuple[Event, ...]
    changes: tuple[Change, ...]
    unanswered: tuple[str, ...]


async def propose(
    run: Run,
    prompt: Prompt,
    complaints: Sequence[Complaint],
    events: Sequence[Event] = (),
    *,
    writer: bool = True,
    region: str | None = None,
    at: str = "",
) -> Proposal:
    """What the complaints ask for, as events of the prompt's ledger.

    `events` is the ledger so far; edits made by hand since are read back first. Complaints about something that an
    instruction of the ledger rests on rewrite it, others add one; without a `writer` (a model with the role
    optimizer) the distiller writes. Nothing is stored. Raises EditRejected when the prompt refuses the edit.
    """
    known = read_back(prompt, events, region, at)
    curator = Curator(prompt, writer, events=list(known), region=region)
    before = curator.ledger
    curator.hear(complaints)
    await curator.learn(run, None, at)
    tidy(curator, run, at)
    found = tuple(curator.events)
    changed = tuple(changes(before, curator.ledger))
    return Proposal(curator.prompt, found, found[len(events) :], changed, tuple(curator.unanswered))
