"""A search in which every region of the prompt has its turn: the method runs once for each, within a share of the budget.

The end of a turn is an effect, so that a resume goes on in the turn that was cut off.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TypedDict

from whet.engine.durable import TURN_END, DurableRun, RunState
from whet.engine.run_folder import RunPlan
from whet.prompt import Prompt
from whet.run import Budget, Trainable, convert_record
from whet.search.archive import Candidate, candidate_of, describe_candidate
from whet.search.regions import RegionTurn, share_of, turns
from whet.task.spec import REGION_POLICIES
from whet.types import Rollout

RunMethod = Callable[[str, Budget, Prompt], Awaitable[tuple[str, Candidate | None]]]
"""Runs the method at a path, within limits, from a prompt: the limit that ended it (or nothing), and its candidate."""


class TurnEnd(TypedDict):
    """The result of a turn for the next turn: the limit that ended it (empty for none), the best prompt (`describe`), and the
    digest of the policy's state."""

    reason: str
    best: Mapping[str, object]
    policy: str | None


def planned_turns(plan: RunPlan, baseline: Sequence[Rollout]) -> list[RegionTurn]:
    """The turns of a run; none where the method is called once and the whole prompt is its own."""
    task, method = plan.task, plan.method
    named = task.region not in REGION_POLICIES
    whole = method.entry.edits_all or getattr(plan.config, "edits_all", False) or method.deploys(plan.config)
    if not named and (len(task.prompt.regions) == 1 or whole):
        return []
    return turns(task.prompt, task.region, baseline)


async def search_in_turns(
    plan: RunPlan,
    core: RunState,
    order: Sequence[RegionTurn],
    run_method: RunMethod,
    policy: Trainable,
    incumbent: list[dict[str, object]],
) -> tuple[str, Candidate | None]:
    """The last limit that ended a turn (or nothing), and the best prompt of all turns, each of which begins with that of the
    turn before. `incumbent` holds the newest validated one of the turn that goes on."""
    best, reason, held = Candidate(plan.task.prompt), "", core.budget.held
    policy_state: str | None = None
    for turn in order:
        root = DurableRun(core, f"/turn/{turn.region}", Budget())
        left = await searchable(root.branch("limits"), core)
        ended = root.branch("end")
        own = share_of(left, turn.share)
        if f"{ended.path}/1" not in core.effects:
            if policy_state is not None:
                policy.load(core.blobs.read(policy_state))
                policy_state = None
            incumbent.clear()
            core.budget.held = _held_for_later(held, left, own)
            reason, candidate = await run_method(
                f"{root.path}/search", own, best.prompt.with_focus(turn.region)
            )
            core.budget.held = held
            await core.caller.rest()
            if candidate is None and incumbent:
                candidate = candidate_of(incumbent[0])
            best = candidate or best
        ending = await _record_end(ended, reason, best, policy if plan.policy is not None else None)
        reason, best, policy_state = ending["reason"], candidate_of(ending["best"]), ending["policy"]
    return reason, best


async def searchable(run: DurableRun, core: RunState) -> Budget:
    """The limits that a method plans with. They are fixed once, so that a resumed run makes the same plan."""

    async def compute() -> object:
        return core.budget.plannable().as_json()

    limits = await run.effect("limits", compute, None)
    return Budget.from_json(convert_record(limits, dict[str, int | float | None]))


async def _record_end(run: DurableRun, reason: str, best: Candidate, policy: Trainable | None) -> TurnEnd:
    async def compute() -> object:
        state = None if policy is None else run.store(policy)
        return {"reason": reason, "best": describe_candidate(best), "policy": state}

    return convert_record(await run.effect(TURN_END, compute), TurnEnd)


def _held_for_later(held: Budget, left: Budget, own: Budget) -> Budget:
    """The reserve during a turn: for the sealed test and for the later turns."""
    kept = {
        name: (getattr(held, name) or 0) + amount - getattr(own, name)
        for name, amount in asdict(left).items()
        if amount is not None
    }
    return replace(held, **kept)
