"""The choice of the method that searches for a better prompt beside the feedback, of its rows, and of its budget a day."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from whet.engine.options import RoleModel
from whet.errors import UsageError
from whet.run import Budget
from whet_live.learner.evaluator_config import check_one_prompt
from whet_live.registry.names import check_name

OPEN, PROPOSED, REFUSED, FAILED, STALE = "open", "proposed", "refused", "failed", "stale"
UNCHANGED = "unchanged"
"""The states of a search."""
SEARCH = "search"
"""The key of a proposal's evidence that says which search it comes from."""
DAILY_CALLS = 500
"""Model calls that a search may make a day where nobody says more."""


@dataclass(frozen=True)
class SearchConfig:
    """A search for a prompt, at most once a day."""

    prompt: str
    task: Path | None = None
    """The task folder with the rows; None: rows from the prompt's traffic."""
    method: str | None = None
    """None: the method that fits the task."""
    calls: int = DAILY_CALLS
    """Model calls at most."""
    cost_usd: float | None = None
    """US dollars at most, if given."""
    lm: RoleModel = None
    """None: the model of the task folder."""
    optimizer_lm: RoleModel = None
    """None: the model of the task folder."""
    judge_lm: RoleModel = None
    """None: the model of the task folder."""
    base_url: str | None = None
    root: Path = Path("runs")
    """The folder of the runs."""

    @property
    def budget(self) -> Budget:
        """The limits of one day's search."""
        return Budget(calls=self.calls, cost_usd=self.cost_usd)


def check_searches(configs: Sequence[SearchConfig]) -> None:
    """Raise UsageError unless each search is for a prompt of its own."""
    names = set[str]()
    for config in configs:
        check_one_prompt(config.prompt, "a search looks for a better version")
        if check_name(config.prompt) in names:
            raise UsageError(
                f"Two searches are for {config.prompt}, and a prompt has one a day. Name it once."
            )
        names.add(config.prompt)
