"""Which region of a prompt earned its gain: each changed one put back alone, measured on the validation rows."""

from __future__ import annotations

from typing import Any

from whet.engine.durable import DurableRun
from whet.engine.pairs import evaluate_within, unanswered
from whet.environments.environment import Environment
from whet.errors import BudgetExceeded
from whet.prompt import Prompt
from whet.search.archive import Candidate
from whet.search.regions import changed_regions
from whet.types import mean_score


async def ablate(run: DurableRun, env: Environment, start: Prompt, best: Candidate) -> dict[str, Any]:
    """What result.json says under `ablation`: the mean reward of the best prompt on validation, and without each changed region
    by name; empty where fewer than two changed or the budget does not pay for it. The result is an effect."""
    changed = [] if best.system is not None else changed_regions(start, best.prompt)
    if len(changed) < 2:
        return {}

    async def mean(name: str, prompt: Prompt) -> float | None:
        rollouts = await evaluate_within(env, run.branch(name), prompt, env.validation)
        return None if any(map(unanswered, rollouts)) else mean_score(rollouts).mean

    async def compute() -> Any:
        try:
            whole = await mean("whole", best.prompt)
            without = {
                name: await mean(f"without/{name}", best.prompt.restored(name, start)) for name in changed
            }
        except BudgetExceeded:
            return {}
        if whole is None or None in without.values():
            return {}
        rows = {
            name: {"validation": value, "gain": whole - value}
            for name, value in without.items()
            if value is not None
        }
        return {"ablation": {"whole": whole, "n": len(env.validation), "without": rows}}

    ablation: Any = await run.branch("result").effect("ablation", compute)
    return dict(ablation)
