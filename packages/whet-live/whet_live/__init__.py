"""Live prompts: database, registry, traffic, quality, experiments, the always-on learner, and the server around them.

`Live` is an installation in one value: registry, traffic, quality, experiments and learner on one database. The command line, the
server and the tests of both talk to it, and to `whet.api` for runs.
"""

from __future__ import annotations

from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Self

from whet_client.lazy import lazy

if TYPE_CHECKING:
    from whet.stats.duels import Choice
    from whet_live.choices import (
        bradley_terry_strengths,
        disconnected_groups,
        load_pairwise_votes,
        next_pair,
    )
    from whet_live.database import Database
    from whet_live.erasure import erased_completely, everything_is_older, expire, forget_user, retain
    from whet_live.experiments import Experiments
    from whet_live.learner.learner import Learner
    from whet_live.mcp_tools import mcp_server
    from whet_live.preferences import preference_rows
    from whet_live.quality import Quality
    from whet_live.registry import Registry
    from whet_live.tasks import RowChoices, task_from_traffic
    from whet_live.traffic import Traffic

__all__ = [
    "Choice",
    "Live",
    "RowChoices",
    "bradley_terry_strengths",
    "disconnected_groups",
    "erased_completely",
    "everything_is_older",
    "expire",
    "forget_user",
    "load_pairwise_votes",
    "mcp_server",
    "next_pair",
    "open_live",
    "preference_rows",
    "retain",
    "task_from_traffic",
]

__getattr__ = lazy(
    __name__,
    {
        "whet.stats.duels": "Choice",
        "whet_live.choices": "bradley_terry_strengths disconnected_groups load_pairwise_votes next_pair",
        "whet_live.erasure": "erased_completely everything_is_older expire forget_user retain",
        "whet_live.mcp_tools": "mcp_server",
        "whet_live.preferences": "preference_rows",
        "whet_live.tasks": "RowChoices task_from_traffic",
    },
)


class Live:
    """The parts around live prompts. Each is made when it is first used; threads may share them."""

    def __init__(self, database: Database) -> None:
        self.database = database

    @cached_property
    def registry(self) -> Registry:
        """Versions, labels, proposals and the audit log."""
        from whet_live.registry import Registry

        return Registry(self.database)

    @cached_property
    def traffic(self) -> Traffic:
        """Inferences and the feedback on them."""
        from whet_live.traffic import Traffic

        return Traffic(self.database)

    @cached_property
    def experiments(self) -> Experiments:
        """Versions that are tried on live traffic."""
        from whet_live.experiments import Experiments

        return Experiments(self.database, self.registry)

    @cached_property
    def quality(self) -> Quality:
        """Quality over time, and what was noticed in it."""
        from whet_live.quality import Quality

        return Quality(self.database)

    @cached_property
    def learner(self) -> Learner:
        """The learner, which learns from the traffic all the time."""
        from whet_live.learner.learner import Learner

        return Learner(self.database, self.registry, self.traffic, lambda: self.experiments)

    def close(self) -> None:
        """Give back the connections."""
        self.database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_live(url: str | None = None, *, make: bool = True) -> Live:
    """Open the database at `url`, by default WHET_DATABASE_URL, else `sqlite:///whet.db`, and all around it.

    An SQLite file that is not there is made, or with `make=False` refused. Raises UsageError when an extra is missing or the
    address cannot be used, StorageError when the database cannot be reached.
    """
    from whet_live.database import open_database

    return Live(open_database(url, make=make))
