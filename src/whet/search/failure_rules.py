"""Rules that say how an episode of several steps failed: three that hold for every task, or a function of the user.

Chen et al., EMNLP 2024 (PROMST, arXiv:2402.08702), section 3 and the rules of its code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from whet._util.storable import describe_exception
from whet._util.user_code import call_within
from whet.environments.episodes import Trajectory
from whet.errors import UsageError
from whet.rewards.functions import function_of_setting
from whet.run import Run
from whet.search.minibatch import answered_rollouts, shorten
from whet.types import Rollout
from whet_client.storable import show_value

BUILT_IN = "built-in"
UNREADABLE = "a step could not be read as one that the task knows"
REPEATED = "the same step was taken in the same situation again and again"
UNFINISHED = "the attempt had not come to its end when its turns were over"
LOW = "the attempt ended, and earned less than it could"
REPEATS = 4
"""So often the same step in the same situation is no loop yet."""
_LONGEST, _SECONDS = 1500, 60.0


@dataclass(frozen=True)
class EpisodeFailure:
    """A kind of failure, and the last turns of an episode that failed so."""

    kind: str
    evidence: str


def check_rules(rules: object) -> None:
    """Raises UsageError for rules that are neither `built-in` nor a function, nor a file with one."""
    if rules != BUILT_IN:
        function_of_setting(rules, "failure", ("steps", "reward"))


async def failures_of(
    run: Run, episodes: Sequence[tuple[Trajectory, Rollout]], rules: object, high: float
) -> list[EpisodeFailure]:
    """The episodes that failed by the rules, in their order; `high` is the highest reward.

    What a function of the user says is recorded in the run. Raises UsageError for one that fails, or returns anything but a text
    or None.
    """
    known = [(played, rollout) for played, rollout in episodes if answered_rollouts([rollout])]
    if rules == BUILT_IN:
        kinds = [kind_of_failure(played, rollout, high) for played, rollout in known]
    else:
        function = function_of_setting(rules, "failure", ("steps", "reward"))

        async def compute(played: Trajectory, rollout: Rollout) -> str | None:
            try:
                named = await call_within(
                    lambda: function(list(played.steps()), rollout.reward), _SECONDS, "failure()"
                )
            except Exception as error:
                raise UsageError(f"failure() failed: {describe_exception(error)}. Correct it.") from error
            if named is not None and not isinstance(named, str):
                raise UsageError(
                    f"failure() returned {show_value(named)}. It returns a text that names the kind of failure, or None."
                )
            return named

        kinds = []
        for played, rollout in known:
            named = await run.effect("failure", partial(compute, played, rollout), rollout.example_id)
            kinds.append(None if named is None else str(named))
    pairs = zip(known, kinds, strict=True)
    return [EpisodeFailure(kind, show_end(played, rollout)) for (played, rollout), kind in pairs if kind]


def kind_of_failure(played: Trajectory, rollout: Rollout, high: float) -> str | None:
    """The kind of an episode's failure, by the first rule that holds; None for an episode with the highest reward."""
    if rollout.reward >= high:
        return None
    if played.notes.get("wasted") or (rollout.error or "").startswith("parse:"):
        return UNREADABLE
    steps = Counter((turn.observation, turn.text.strip()) for turn in played.turns)
    if max(steps.values(), default=0) > REPEATS:
        return REPEATED
    return UNFINISHED if played.end == "turns" else LOW


def show_end(played: Trajectory, rollout: Rollout, most: int = 2) -> str:
    """The last turns of an episode, `most` of them, and its reward, as a model reads them."""
    turns = [
        f"Seen: {shorten(turn.observation, _LONGEST)}\nDone: {shorten(turn.text, _LONGEST)}"
        for turn in played.turns[-most:]
    ]
    last = [f"Seen: {shorten(played.last, _LONGEST)}"] if played.last.strip() else []
    critique = [f"Critique: {shorten(rollout.critique, _LONGEST)}"] if rollout.critique else []
    return "\n".join([*turns, *last, f"Reward: {rollout.reward:.3g}", *critique])
