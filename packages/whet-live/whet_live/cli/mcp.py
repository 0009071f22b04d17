"""`whet mcp`: registry, feedback and runs for agents."""

from __future__ import annotations

import click

from whet.cli.common import examples
from whet_live.cli.common import DATABASE_HELP, open_at

AGENT = "agent"


@click.command(
    "mcp",
    epilog="\b\nThe database is WHET_DATABASE_URL, by default sqlite:///whet.db in the working folder.\n\n"
    + examples("whet mcp", "whet mcp --database sqlite:///whet.db --as ann --runs experiments"),
)
@click.option("--database", metavar="URL", help=DATABASE_HELP)
@click.option(
    "--runs",
    default="runs",
    show_default=True,
    metavar="DIR",
    help="Folder of the runs that agents may read.",
)
@click.option(
    "--as",
    "actor",
    default=AGENT,
    show_default=True,
    metavar="NAME",
    help="Author of the proposals. The author cannot approve them.",
)
def mcp(database: str | None, runs: str, actor: str) -> None:
    """Serve prompts, feedback and runs to an agent by the Model Context Protocol, over stdin and stdout.

    The agent reads and proposes changes. A person decides about them.
    """
    from whet_live import mcp_server

    with open_at(database) as live:
        mcp_server(live.registry, live.traffic, live.learner, actor=actor, runs=runs).run()
