"""The policy with weights: which one a run trains, opened when the run needs it, exported when the search ends."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from whet.engine.options import Options
from whet.errors import UsageError, parameter
from whet.methods import POLICY, Method
from whet.rl.launcher import place_among_processes
from whet.task import Task
from whet.task.spec import POLICY as POLICY_MODEL

DEFAULT = "embedded/tiny"
CHECKPOINT = "checkpoint"
WEIGHTS = "adapter.safetensors"


@dataclass(frozen=True)
class PolicyChoice:
    """Address or checkpoint folder of a policy, its content hash where it is a folder, dollars per hour of training in
    one process, how many processes train it, whether nobody named it, and what writes its texts in the training."""

    address: str
    digest: str = ""
    price_per_hour: float = 0.0
    processes: int = 1
    default: bool = False
    sampler: str = "transformers"

    @property
    def pinned(self) -> str:
        """The policy as the header of the run describes it."""
        address = f"{self.address} ({self.digest[:16]})" if self.digest else self.address
        return (
            address
            if self.sampler == "transformers"
            else f"{address} sampled by {self.sampler if self.sampler == 'vllm' else 'a server of vLLM'}"
        )


def choose_policy(task: Task, options: Options, method: Method, task_address: str) -> PolicyChoice | None:
    """The policy that a method trains: the option, the task file, the task model when its weights are here, or the
    embedded one. None for a method that trains none.

    Raises UsageError for a policy that the method does not use, or a folder that holds no checkpoint.
    """
    spec = task.models[POLICY_MODEL]
    if options.processes < 1:
        raise UsageError(f"{parameter('processes')} must be 1 or more; this is {options.processes}.")
    if POLICY not in method.entry.needs:
        if options.processes > 1:
            raise UsageError(
                f"{parameter('processes')} shares the training of a policy, but the method "
                f"{method.entry.name} trains no policy."
            )
        if options.policy is not None:
            raise UsageError(
                f"{parameter('policy')} names a model to train, but the method {method.entry.name} "
                "trains no model. `whet methods` lists methods that do."
            )
        return None
    fallback = task_address if task_address.startswith("hf/") else DEFAULT
    processes = max(options.processes, place_among_processes()[1])
    named = options.policy or spec.address
    address = named or fallback
    folder = Path(address)
    if not folder.is_dir():
        if "/" not in address or address.startswith((".", "/", "~")):
            raise UsageError(
                f'"{address}" is neither the folder of a checkpoint nor the address of a model. Give '
                "RUN/checkpoint, hf/PATH or embedded/tiny."
            )
        return PolicyChoice(
            address, "", spec.price_per_hour, processes, default=not named, sampler=spec.sampler
        )
    weights = folder / WEIGHTS
    if not weights.is_file():
        raise UsageError(
            f"{folder} holds no {WEIGHTS}: it is not a checkpoint. A finished run that trained weights has one in "
            f"RUN/{CHECKPOINT}; a model's own folder is addressed as hf/{address}."
        )
    digest = hashlib.sha256(weights.read_bytes()).hexdigest()
    return PolicyChoice(address, digest, spec.price_per_hour, processes, sampler=spec.sampler)


def check_policy(choice: PolicyChoice | None, config: Any) -> None:
    """Raise UsageError for settings that contradict each other, for a checkpoint that is damaged or was trained with
    other settings, for more processes than GPUs, and for a sampler that is not installed; reads no model."""
    if choice is None:
        return
    if choice == replace(choice, processes=1, digest="", sampler="transformers"):
        return
    try:
        from whet.rl.policy_model import checkpoint, distributed
        from whet.rl.policy_model.vllm_server import check_server
        from whet.rl.policy_model.vllm_writer import check_vllm
    except ModuleNotFoundError as error:
        raise _missing(error) from error
    if choice.sampler == "vllm":
        check_vllm(config.lora.rank)
    elif choice.sampler != "transformers":
        check_server(choice.sampler, config.lora.rank)
    distributed.check_processes(choice.processes)
    if not choice.digest:
        return
    folder = Path(choice.address)
    checkpoint.check_settings(folder, checkpoint.read_checkpoint(folder)[0], config.lora)


def open_policy(choice: PolicyChoice, config: Any, seed: int, *, to_train: bool = False) -> object:
    """The policy with its weights in memory; `to_train` with the processes and the sampler of its choice, until it is closed.
    Raises UsageError when it cannot be loaded."""
    try:
        from whet.rl.policy_model import PolicyModel
    except ModuleNotFoundError as error:
        raise _missing(error) from error
    more: Any = {"processes": choice.processes, "sampler": choice.sampler} if to_train else {}
    return PolicyModel.open(choice.address, config.lora, seed, **more)


def _missing(error: ModuleNotFoundError) -> UsageError:
    return UsageError(f"A policy with weights needs {error.name}. Install it with: pip install 'whet[train]'")
