"""Upkeep of a live prompt: instructions that say the same become one, long ones are shortened, and one that may do nothing is
tried without.

The stages are those of `whet.instructions`. Each step is made once for what stands, costs a few calls, and is measured: by the
gate where the prompt has a task, which lets pass what loses nothing; else a person decides, and nothing is shortened or left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from whet.errors import BudgetExceeded, quantity
from whet.instructions.changes import AUTHOR as OPTIMIZER
from whet.instructions.changes import known_of, merges, of_models
from whet.instructions.compact import compact
from whet.instructions.consolidate import compare
from whet.instructions.effects import Effects
from whet.instructions.guard import harmless
from whet.instructions.upkeep import over_budget
from whet.prompt.events import Event, Expire, Merge, Rewrite
from whet.prompt.instructions import Ledger, estimate_tokens, fold_events
from whet.run import Run
from whet_live.learner.learner_store import STALE, PromptUpdate
from whet_live.registry import Version

MERGE, COMPACT, WITHOUT = "merge", "compact", "without"
"""The steps, in their order: join, shorten, try without."""
SAME = "the same in fewer tokens"
UNNEEDED = "measured: nothing is lost without it"


@dataclass(frozen=True)
class UpkeepView:
    """The view of a step of upkeep: the ledger in which what a person wrote or locked is by hand (`as_stages_see`), what
    traffic showed of its instructions, and earlier updates of the prompt, the newest first."""

    ledger: Ledger
    effects: Effects
    updates: Sequence[PromptUpdate]

    def plan(self, upkeep: int, gated: bool, due: Sequence[str] = ()) -> dict[str, object] | None:
        """The next step, None where there is nothing to do. `upkeep` is how many instructions have to be new since the last step
        of the kind, 0 for never; `due` are those whose review is due."""
        own = of_models(self.ledger)
        if not upkeep:
            return None
        marks = {key: f"{key} {one.created}" for key, one in own.items()}
        for step in (MERGE, COMPACT) if gated else (MERGE,):
            seen = self._find_seen(step)
            if len(own) > 1 and len(set(marks.values()) - seen) >= upkeep:
                return {"step": step, "seen": sorted(marks.values())}
        if not gated:
            return None
        tried = self._find_seen(WITHOUT)
        fresh = [key for key in own if marks[key] not in tried or key in due]
        if len(fresh) < upkeep and not (
            due or tried
        ):  # once trials have begun, each instruction has its turn
            return None
        weakest = _weakest(self.ledger, self.effects, [key for key in due if key in fresh] or fresh)
        return None if weakest is None else {"step": WITHOUT, "seen": [marks[weakest]], "ids": [weakest]}

    def _find_seen(self, step: str) -> set[str]:
        """The instructions that a step has seen: its last one, or all trials since the last time that texts were shortened."""
        plans = [update.plan for update in self.updates if update.plan and update.outcome != STALE]
        if step == WITHOUT:
            since = takewhile(lambda plan: plan["step"] != COMPACT, plans)
            used = [plan for plan in since if plan["step"] == WITHOUT]
        else:
            used = [plan for plan in plans if plan["step"] == step][:1]
        return {str(text) for plan in used for text in as_list(plan, "seen")}


def _weakest(ledger: Ledger, effects: Effects, among: Sequence[str]) -> str | None:
    """The instruction that answered the fewest violations per token."""
    only = replace(
        ledger,
        instructions={
            key: one if key in among else replace(one, author="hand")
            for key, one in ledger.instructions.items()
        },
    )
    dear = over_budget(only, effects, ledger.tokens - 1)
    return dear[0].id if dear else None


def as_list(plan: Mapping[str, object] | None, key: str) -> list[object]:
    """A list of a plan, empty where there is none."""
    value = (plan or {}).get(key)
    return value if isinstance(value, list) else []


async def generate_upkeep(
    run: Run, update: PromptUpdate, base: Version, region: str, ledger: Ledger, *, calls: int, at: str
) -> list[Event]:
    """The events of a step of upkeep, in at most `calls` calls. `ledger` is as the stages see it. Raises ProviderError."""
    step = (update.plan or {}).get("step")
    own = of_models(ledger)
    if step == WITHOUT:
        ids = [str(key) for key in as_list(update.plan, "ids") if key in own]
        return [Expire(id=key, reason=UNNEEDED, author=OPTIMIZER, at=at) for key in ids]
    known = known_of(ledger)
    try:
        if step == COMPACT:
            texts = await compact(run, [one for one in known if one.id in own], most=calls)
            return [
                Rewrite(id=key, text=text, tokens=estimate_tokens(text), author=OPTIMIZER, at=at, reason=SAME)
                for key, text in texts.items()
            ]
        compared = await compare(run, known, (), most=calls)
    except BudgetExceeded:
        return []
    source = base.prompt.source
    merged = {ids: text for ids, text in compared.merged.items() if harmless(text, source, 1)}
    events = merges(ledger, compared.groups, at=at, merged=merged)
    return [_as_written(event, base.ledger(region)) for event in events]


def _as_written(event: Merge, ledger: Ledger) -> Merge:
    """The merge by the model that asked for it; a text that a person wrote or locked stays as it is."""
    kept = ledger[event.id]
    return replace(event, author=OPTIMIZER, tokens=event.tokens or kept.tokens)


def describe_step(before: Sequence[Event], new: Sequence[Event]) -> str:
    """A line about a step of upkeep."""
    old, after = fold_events(before), fold_events([*before, *new])
    parts = []
    if joined := sum(len(event.others) for event in new if isinstance(event, Merge)):
        parts.append(f"{quantity(joined, 'instruction')} joined to others that say the same")
    if shorter := sum(isinstance(event, Rewrite) for event in new):
        parts.append(f"{quantity(shorter, 'instruction')} in fewer words")
    if gone := [event.id for event in new if isinstance(event, Expire)]:
        parts.append(f"{', '.join(gone)} left out")
    return f"{'; '.join(parts)} ({old.tokens} to {after.tokens} tokens)"
