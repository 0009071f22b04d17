"""`whet policy`: what a run has trained, for other programs."""

from __future__ import annotations

from pathlib import Path

import click

from whet.api import export_policy
from whet.cli.common import examples, output, say


@click.group(epilog=examples("whet policy export runs/mytask-prewrite-0 adapter"))
def policy() -> None:
    """Export the policy that a run trained, for use in other programs."""


@policy.command("export", epilog=examples("whet policy export runs/mytask-prewrite-0 adapter"))
@click.argument("run")
@click.argument("folder", type=click.Path(path_type=Path))
@output(
    lambda result: say(f"{result['folder']} fits {result['base']}: peft.PeftModel.from_pretrained loads it.")
)
def export(run: str, folder: Path) -> dict[str, object]:
    """Write the adapters of a run or checkpoint folder as a PEFT (LoRA) folder, which transformers and vLLM load."""
    return export_policy(run, folder)
