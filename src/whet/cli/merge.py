"""`whet merge`: one table of the shards of a comparison."""

from __future__ import annotations

from pathlib import Path

import click

from whet.cli.common import examples, json_option, print_result
from whet.cli.show import comparison


@click.command(
    "merge",
    epilog=examples(
        "whet compare mytask --methods opro,gepa --seeds 5 --shard 1/2 --out runs/all",
        "whet compare mytask --methods opro,gepa --seeds 5 --shard 2/2 --out runs/all",
        "whet merge runs/all",
    ),
)
@click.argument("folders", nargs=-1, required=True)
@click.option("--out", metavar="DIR", help="Folder of the comparison (default: the first of FOLDERS).")
@json_option
def merge(folders: tuple[str, ...], out: str | None, as_json: bool) -> None:
    """Join the shards in FOLDERS into one comparison. `whet compare --shard` wrote them, on this or other machines."""
    from whet.api import merge as merge_shards

    place = None if out is None else Path(out)
    print_result(merge_shards([Path(folder) for folder in folders], out=place), as_json, comparison)
