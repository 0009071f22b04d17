"""The policy that a run trained, written for other programs."""

from __future__ import annotations

from pathlib import Path

from whet.api.running import find_run
from whet.engine.trained_policy import CHECKPOINT, WEIGHTS
from whet.errors import UsageError


def export_policy(run: str | Path, folder: str | Path) -> dict[str, object]:
    """Write the adapters that a run trained into a new folder of PEFT (`adapter_config.json`, `adapter_model.safetensors`).

    `run`: a run's folder or name, or the folder of a checkpoint. Returns `folder`, `base` (the model that the adapters are for)
    and `layers` (the adapted ones). Raises UsageError where the run trained no policy, all weights of one, or the folder is not
    empty.
    """
    source = Path(run)
    if not (source / WEIGHTS).is_file():
        source = find_run(run) / CHECKPOINT
    if not (source / WEIGHTS).is_file():
        raise UsageError(
            f"{source.parent} has no {CHECKPOINT}/{WEIGHTS}: a run has one when its method trains a policy and its search is "
            "over."
        )
    target = Path(folder)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"{target} exists and is not an empty folder. Name a new one.")
    try:
        from whet.rl.policy_model.peft_folder import write_peft_folder
    except ModuleNotFoundError as error:
        raise UsageError(
            f"Writing adapters needs {error.name}. Install it with: pip install 'whet[train]'"
        ) from error
    base, layers = write_peft_folder(source, target)
    return {"folder": str(target), "base": base, "layers": layers}
