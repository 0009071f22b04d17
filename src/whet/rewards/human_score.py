"""The reward of a task whose prompt is the rubric of a judge: the closeness of the judge's score to a person's."""

from __future__ import annotations

from dataclasses import dataclass

from whet.errors import UsageError
from whet.rewards.asking import RewardOptions
from whet.rewards.judge import IGNORE, Judge, read_scale
from whet.rewards.reward import TARGET
from whet.rewards.score_reading import score_number
from whet.run import Run
from whet.types import Completion, Example, Reward
from whet_client.storable import show_value

UNREAD = 'The reply must hold a score as JSON: {"explanation": "...", "score": ...}.'


@dataclass(frozen=True)
class HumanScore:
    """1 less the distance of the score in a judge's reply and the target, a person's score, as a share of `scale`; in [0, 1].

    0 for a reply without a score on the scale. The critique names both scores.
    """

    scale: tuple[float, float] = (1.0, 5.0)
    name: str = "human_score"
    low: float = 0.0
    high: float = 1.0
    needs: frozenset[str] = frozenset({TARGET})

    def check(self, example: Example) -> None:
        """Raises UsageError for a target that is no score on the scale."""
        self._score(example)

    def _score(self, example: Example) -> float:
        score, (low, high) = score_number(example.target, self.scale), self.scale
        if score is None or not low <= score <= high:
            raise UsageError(
                f"The reward {self.name} needs a person's score from {low:g} to {high:g} as the target; in {example.place} it is "
                f"{show_value(example.target)}."
            )
        return score

    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        human, (low, high) = self._score(example), self.scale
        verdict = Judge("", self.scale, reference=IGNORE).read(
            completion.text, whole=completion.finish != "length"
        )
        if verdict is None:
            return Reward(0.0, critique=UNREAD)
        value = 1.0 - abs(verdict.score - human) / (high - low)
        if value >= 1.0:
            return Reward(1.0)
        return Reward(
            value, critique=f"The score must be {human:g}, as a person gave; it was {verdict.score:g}."
        )


def build_human_score(options: RewardOptions) -> HumanScore:
    """The reward from its options in a task file. Raises UsageError with file and line."""
    options.only("scale")
    return HumanScore(read_scale(options))
