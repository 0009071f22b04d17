"""The place and settings of the learner's gate for a prompt."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from whet.engine.options import Options, RoleModel

METHOD = "random_search"
"""The method that a gate's run is pinned to; nothing is searched."""


@dataclass(frozen=True)
class GateConfig:
    """The place and settings of a prompt's gate: its task folder, and a task model and judge that replace the task's own.
    `calls` bounds the calls of one attempt, judgements included; `root` is where the journals go."""

    task: Path
    lm: RoleModel = None
    base_url: str | None = None
    calls: int | None = None
    root: Path = Path("runs")
    judge_lm: RoleModel = None

    @property
    def options(self) -> Options:
        """The options of a run that asks the task model and the judge only. It asks anew about the version that stands, too: the
        provider may have put another model behind the name since that was asked."""
        return Options(
            METHOD, self.lm, "none", self.judge_lm, base_url=self.base_url, root=self.root, fresh=True
        )
