"""The end of every run: the sealed test of baseline and best, the gate's verdict, the result as JSON."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from whet.engine.durable import Core, DurableRun
from whet.engine.journal import read_events
from whet.engine.sealed import count_opening, test_hash
from whet.engine.store import Opened, Plan
from whet.env import Environment
from whet.errors import BudgetExceeded, UsageError
from whet.gate import decide, interval
from whet.prompt import Prompt
from whet.run import Limits
from whet.search.archive import Candidate
from whet.types import Example, Message, Rollout, mean_score


async def prove(
    plan: Plan,
    env: Environment,
    opened: Opened,
    baseline: list[Rollout],
    best: Candidate,
    reason: str,
    openings: Path,
) -> dict[str, Any]:
    core, task = opened.core, plan.task
    core.budget.release()
    final = DurableRun(core, "/final", Limits())
    same = best.prompt.id == task.prompt.id
    warnings = list(task.warnings)
    test = await env.evaluate(final.branch("baseline"), task.prompt, task.test)
    validated, tested = baseline, test
    if not same:
        try:
            validated = await env.evaluate(final.branch("validation"), best.prompt, env.validation)
            tested = await env.evaluate(final.branch("best"), best.prompt, task.test)
        except BudgetExceeded as error:
            warnings.append(
                f"The best prompt found ({best.prompt.id}) could not be tested within the budget: {error}"
            )
            best, same, validated, tested = Candidate(task.prompt), True, baseline, test

    async def opening() -> Any:
        return await asyncio.to_thread(
            count_opening, openings, test_hash(task.test), str(core.journal.path.parent.resolve())
        )

    count: Any = await final.branch("opening").effect("opening", opening, None)
    low, high = env.reward.low, env.reward.high
    improvement = decide([r.reward for r in test], [r.reward for r in tested], low, high, same=same)
    if count > 1:
        warnings.append(
            f"The sealed test split was opened by {count} runs by now; choosing among them is selection on the test."
        )
    warnings += _failure_warnings({"baseline": test, "best": tested})
    if opened.lost_calls:
        warnings.append(
            f"{opened.lost_calls} call(s) were in flight when an earlier session was killed "
            f"and may have been billed twice, at most ${opened.lost_cost:.4f}."
        )
    report = final.branch("report")
    report.log(
        "final",
        {"baseline": [_row(r) for r in test], "best": [_row(r) for r in tested], "low": low, "high": high},
    )
    await core.journal.commit([elapsed_row(core)])
    history = [
        {"calls": e.calls, "validation": e.value["validation"]}
        for e in read_events(core.journal.path, ["validated"])
        if e.value["incumbent"]
    ]
    return {
        "task": task.name,
        "method": plan.method.entry.name,
        "seed": plan.seed,
        "status": "budget_exhausted" if reason else "completed",
        "ended_by": reason or "the method itself",
        "models": dict(plan.addresses),
        "simulated": any(d.model.simulated for d in core.caller.desks.values()),
        "baseline": {
            "prompt": task.prompt.source,
            "id": task.prompt.id,
            "validation": _summary(baseline, low, high),
            "test": _summary(test, low, high),
        },
        "best": {
            "prompt": best.prompt.source,
            "id": best.prompt.id,
            "operator": best.operator,
            "validation": _summary(validated, low, high),
            "test": _summary(tested, low, high),
        },
        "improvement": asdict(improvement),
        "usage": _usage(core),
        "history": history,
        "test_openings": count,
        "warnings": warnings,
    }


def candidate_of(described: Mapping[str, Any]) -> Candidate:
    prompt = Prompt(tuple(Message(role, content) for role, content in described["messages"]))
    return Candidate(prompt, tuple(described["parents"]), described["operator"])


def _row(r: Rollout) -> dict[str, Any]:
    return {
        "id": r.example_id,
        "output": r.output,
        "reward": r.reward,
        "parts": dict(r.parts),
        "critique": r.critique,
        "error": r.error,
    }


def _summary(rollouts: Sequence[Rollout], low: float, high: float) -> dict[str, Any]:
    found = interval([r.reward for r in rollouts], low, high)
    return {"mean": found.mean, "low": found.low, "high": found.high, "n": found.n}


def refuse_broken_reward(rollouts: Sequence[Rollout]) -> None:
    errors = [r.error for r in rollouts if r.error is not None and r.error.startswith("reward:")]
    if errors and len(errors) == len(rollouts):
        raise UsageError(f"The reward failed on every answer. The first error: {errors[0]}")


def _failure_warnings(evaluated: Mapping[str, Sequence[Rollout]]) -> list[str]:
    warnings = []
    for name, rollouts in evaluated.items():
        failed = [r.error for r in rollouts if r.error is not None]
        if failed:
            warnings.append(
                f"{len(failed)} of {len(rollouts)} rollouts of the {name} prompt failed and count as the lowest reward; "
                f"the first: {failed[0]}"
            )
    return warnings


def elapsed_row(core: Core) -> tuple[str, tuple[Any, ...]]:
    return "INSERT OR REPLACE INTO meta VALUES ('elapsed', ?)", (f"{core.budget.seconds:.3f}",)


async def execute_evaluation(
    plan: Plan, env: Environment, opened: Opened, examples: Sequence[Example], split: str, openings: Path
) -> dict[str, Any]:
    """Evaluate the plan's prompt on given examples; opening the test split is counted."""
    core, task = opened.core, plan.task
    try:
        run = DurableRun(core, "/evaluate", Limits())
        rollouts = await env.evaluate(run, task.prompt, examples)
    finally:
        await core.caller.drain()
        core.journal.append([elapsed_row(core)])
    refuse_broken_reward(rollouts)
    warnings = [*task.warnings, *_failure_warnings({split: rollouts})]
    if split == "test":
        count = count_opening(openings, test_hash(examples), str(core.journal.path.parent.resolve()))
        warnings.append(f"The sealed test split has now been opened by {count} runs.")
    return {
        "task": task.name,
        "prompt": task.prompt.source,
        "id": task.prompt.id,
        "split": split,
        "models": dict(plan.addresses),
        "simulated": any(d.model.simulated for d in core.caller.desks.values()),
        "score": _summary(rollouts, env.reward.low, env.reward.high),
        "parts": dict(mean_score(rollouts).parts),
        "failed": sum(r.error is not None for r in rollouts),
        "usage": _usage(core),
        "warnings": warnings,
    }


def _usage(core: Core) -> dict[str, Any]:
    spent = core.budget.spent
    return {
        "calls": {role: spent.calls[role] - spent.cached[role] for role in spent.calls},
        "cached": dict(spent.cached),
        "input_tokens": spent.input_tokens,
        "output_tokens": spent.output_tokens,
        "cost_usd": round(spent.cost, 6),
        "seconds": round(core.budget.seconds, 2),
    }
