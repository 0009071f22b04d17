"""The resources of a policy's training before its first step: memory by a formula, hours by the steps of an earlier run.

Nothing is trained or loaded. An unknown value is None, and `unknown` says why.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from whet.engine.durable import TRAINED_SECONDS
from whet.engine.journal import read_journal_rows, read_meta
from whet.engine.plan_json import MemoryJSON, TrainingCostJSON
from whet.engine.run_folder import RunPlan, newest_journals
from whet.engine.trained_policy import PolicyChoice
from whet.errors import StorageError, UsageError, quantity, show_duration
from whet.types import content_hash

_STEPS = "SELECT COUNT(*) FROM events WHERE name = 'step'"
_TRAINING_ONLY = ("steps",)  # settings that do not change what a step takes
_GIB = 2**30


def forecast_training(plan: RunPlan, root: Path) -> TrainingCostJSON | None:
    """The resources of a run's training on this machine; None for a method without a policy."""
    choice = plan.policy
    if choice is None:
        return None
    memory, why = _memory(choice, plan.config)
    steps = getattr(plan.config, "steps", None)
    each, run = _measured_step(plan, root)
    hours = None if each is None or steps is None else each * steps / 3600
    price = choice.price_per_hour
    cost: TrainingCostJSON = {
        "policy": choice.pinned,
        "processes": choice.processes,
        "memory": memory,
        "steps": steps,
        "step_seconds": each,
        "measured_in": run,
        "gpu_hours": hours,
        "cost_usd": None if hours is None or not price else hours * price,
        "unknown": {},
    }
    if memory is None:
        cost["unknown"]["memory"] = why
    if hours is None:
        cost["unknown"]["gpu_hours"] = "no run of this task in this folder has trained it with these settings"
    return cost


def _memory(choice: PolicyChoice, config: Any) -> tuple[MemoryJSON | None, str]:
    """Bytes of one process by the formula of a run, or why there are none."""
    try:
        from whet.rl.policy_model import checkpoint
        from whet.rl.policy_model.backbone import foresee_memory

        folder = Path(choice.address)
        address = str(checkpoint.read_checkpoint(folder)[0]["address"]) if choice.digest else choice.address
        memory = foresee_memory(address, config.lora, anchored=bool(choice.digest), sampler=choice.sampler)
    except ModuleNotFoundError as error:
        return None, f"the forecast needs {error.name}: pip install 'whet[train]'"
    except UsageError as error:
        return None, str(error)
    parts: MemoryJSON = {
        "weights": memory.weights,
        "learning": memory.learning,
        "passes": memory.passes,
        "sampler": memory.sampler,
        "total": memory.total,
    }
    return parts, ""


def _measured_step(plan: RunPlan, root: Path) -> tuple[float | None, str | None]:
    """Seconds that the policy worked for a step of the newest run with the same task, method, models and settings (all of its
    processes together), and the folder of that run."""
    wanted = _step_of(plan.header())
    for path, header in newest_journals(root, plan.task.fingerprint):
        try:
            if _step_of(header) != wanted:
                continue
            seconds = float(read_meta(path, TRAINED_SECONDS) or 0)
            ((steps,),) = read_journal_rows(path, _STEPS)
        except (UsageError, StorageError, OSError):
            continue
        if seconds and steps:
            return seconds / steps, str(path.parent)
    return None, None


def _step_of(header: Any) -> str:
    """A digest of all that decides what a step takes."""
    settings = {k: v for k, v in header.get("config", {}).items() if k not in _TRAINING_ONLY}
    return content_hash([header.get("method"), header.get("models"), settings])


def describe_training(cost: TrainingCostJSON, command: str = "") -> str:
    """The resources of a training in one line. `command` begins the run, which reports the unknown values."""
    each = f" in each of {cost['processes']} processes" if cost["processes"] > 1 else ""
    memory, unknown = cost["memory"], cost["unknown"]
    if memory is None:
        parts = [f"memory unknown ({unknown['memory']})"]
    else:
        total, weights, learning, passes = (
            f"{part / _GIB:.2g}"
            for part in (memory["total"], memory["weights"], memory["learning"], memory["passes"])
        )
        parts = [
            f"by a formula at most {total} GiB{each}: {weights} weights, {learning} gradients and Adam, {passes} the largest pass"
            + (f", {memory['sampler'] / _GIB:.2g} vLLM" if memory.get("sampler") else "")
        ]
    if cost["gpu_hours"] is None:
        begin = command and f": {command}"
        parts.append(
            f"hours unknown ({unknown['gpu_hours']}); the run says them before its first step{begin}"
        )
    else:
        dollars = "" if cost["cost_usd"] is None else f", ${cost['cost_usd']:,.2f}"
        parts.append(
            f"{show_duration(cost['gpu_hours'] * 3600)} of work for {quantity(cost['steps'] or 0, 'step')}{dollars}, at the pace "
            f"of {cost['measured_in']}"
        )
    return f"training {cost['policy']}: {'; '.join(parts)}"
