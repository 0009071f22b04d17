"""A trained policy as a folder of PEFT: `adapter_config.json` and `adapter_model.safetensors`, as others load it."""

from __future__ import annotations

from pathlib import Path

from safetensors.torch import save_file

from whet.errors import UsageError
from whet.rl.blob import read_blob
from whet.rl.policy_model.backbone import LoraSettings, Tensors, folder_of
from whet.rl.policy_model.checkpoint import check_settings, read_checkpoint

_ADAPTER, _LORA = ".default.", ".lora_"
WEIGHTS = "adapter_model.safetensors"


def write_peft_folder(checkpoint: Path, folder: Path) -> tuple[str, list[str]]:
    """Write the adapters of a checkpoint folder as PEFT does; the base model, and the names of the adapted layers, sorted.

    Raises UsageError for a checkpoint whose weights are all trained: those are no adapters.
    """
    card, blob = read_checkpoint(checkpoint)
    settings = check_settings(checkpoint, card, None)
    if settings.rank == 0:
        raise UsageError(
            f"{checkpoint} holds all weights of the model (rank=0), and PEFT holds adapters. Train with rank=8, for example."
        )
    base = folder_of(str(card["address"]))
    return base, write_adapters(read_blob(blob, "a policy")[1]["weights"], settings, base, folder)


def write_adapters(weights: Tensors, settings: LoraSettings, base: str, folder: Path) -> list[str]:
    """Write adapters of the model `base` as PEFT does; the names of the adapted layers, sorted."""
    import peft

    named = {name.replace(_ADAPTER, "."): tensor.contiguous() for name, tensor in weights.items()}
    layers = sorted({name.partition(_LORA)[0].rpartition(".")[2] for name in named})
    config = peft.LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,  # type: ignore[arg-type]
        target_modules=layers,
        task_type="CAUSAL_LM",
        base_model_name_or_path=base,
        inference_mode=True,
    )
    folder.mkdir(parents=True, exist_ok=True)
    save_file(named, folder / WEIGHTS, metadata={"format": "pt"})
    config.save_pretrained(str(folder))
    return layers
