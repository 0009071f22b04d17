"""`whet skill`: what a coding agent should know of whet, as a SKILL.md."""

from __future__ import annotations

from pathlib import Path

import click

from whet.cli.common import examples, print_exactly, say
from whet.errors import StorageError, UsageError

TEXT = Path(__file__).with_name("SKILL.md")


@click.command(
    "skill",
    epilog=examples("whet skill", "whet skill .agents/skills"),
)
@click.argument("folder", required=False)
@click.option("--force", is_flag=True, help="Overwrite a file that somebody changed.")
def skill(folder: str | None, force: bool) -> None:
    """Print whet's own SKILL.md for coding agents, or write it to FOLDER/whet/SKILL.md, where agents find skills."""
    text = TEXT.read_text("utf-8")
    if folder is None:
        print_exactly(text)
        return
    path = Path(folder) / "whet" / "SKILL.md"
    if path.exists() and path.read_text("utf-8", errors="replace") != text and not force:
        raise UsageError(
            f"{path} already exists with other content. Look at the file, then overwrite it with --force."
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8", newline="\n")
    except OSError as error:
        raise StorageError(
            f"{path} could not be written: {error.strerror}. Choose another folder."
        ) from error
    say(path)
