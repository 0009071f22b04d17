"""The reward that reads the check of a program with a `command`: tests or another program that looked at the workspace."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import ClassVar

from whet.rewards.asking import RewardOptions
from whet.rewards.program import RewardFailed
from whet.run import Run
from whet.types import Completion, Example, Reward

_CHECK = "check"


@dataclass(frozen=True)
class CommandCheck:
    """1 where the check that ran after the command ended with exit code 0, else 0 with the end of its output as the critique."""

    name: str = "command_check"
    low: float = 0.0
    high: float = 1.0
    needs: frozenset[str] = frozenset()
    reads_steps: ClassVar[bool] = True

    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        outputs = [step.get("output") for step in completion.steps if step.get("name") == _CHECK]
        if not outputs:
            raise RewardFailed(
                "command_check found no check. Name one: program: {command: ..., check: [python, -m, pytest, -q]}."
            )
        try:
            result = json.loads(str(outputs[-1]))
            passed, output = result["exit_code"] == 0, str(result["output"])
        except (ValueError, KeyError, TypeError):
            passed, output = False, str(outputs[-1])
        return Reward(
            float(passed), critique=None if passed else output or "The check failed and printed nothing."
        )


def build_command_check(options: RewardOptions) -> CommandCheck:
    """`reward: command_check`. Raises UsageError with the place for an option."""
    options.only()
    return CommandCheck()
