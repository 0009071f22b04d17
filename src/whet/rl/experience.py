"""The earlier texts of a policy that writes prompts, with their rewards and a remark. Good and bad ones are kept for each
context."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal, NamedTuple

from whet.rl.score_book import NoteKeeper

Shown = Literal["both", "good", "shuffled", "none"]
MOST = 64


class Experience(NamedTuple):
    """A text, its mean reward over the `times` that it was scored, and a remark on it; may be ''."""

    text: str
    reward: float
    times: int
    remark: str


@dataclass
class ExperienceBuffer:
    """Experiences by context, in the notes of a learner, where a resume finds them. At most `MOST` of a context are kept: the
    best half and the worst half."""

    learner: NoteKeeper

    def __post_init__(self) -> None:
        self.clear()

    def of(self, context: str) -> list[Experience]:
        """The experiences of a context, the best first; of equals the shorter text first."""
        held: dict[str, dict[str, list[object]]] = self.learner.notes["experience"]  # type: ignore[assignment]
        known = [Experience(*entry) for entry in held.get(context, {}).values()]  # type: ignore[arg-type]
        return sorted(known, key=lambda one: (-one.reward, len(one.text), one.text))

    def add(self, context: str, text: str, reward: float, remark: str = "") -> None:
        """Remember a text. One that is known gets the mean of all its rewards and the newest remark."""
        known = {one.text: one for one in self.of(context)}
        old = known.get(text, Experience(text, 0.0, 0, ""))
        mean = (old.reward * old.times + reward) / (old.times + 1)
        known[text] = Experience(text, mean, old.times + 1, remark or old.remark)
        order = sorted(known.values(), key=lambda one: -one.reward)
        kept = order if len(order) <= MOST else [*order[: MOST // 2], *order[-MOST // 2 :]]
        held: dict[str, object] = self.learner.notes["experience"]  # type: ignore[assignment]
        held[context] = {one.text: list(one) for one in kept}

    def contrast(
        self, rng: random.Random, context: str, each: int, shown: Shown = "both"
    ) -> list[Experience]:
        """Up to `each` experiences of the better half and as many of the worse half, drawn at random, the best first.

        The rest are controls: `good` draws all from the better half, `shuffled` gives the drawn ones each other's rewards,
        `none` draws nothing.
        """
        known = self.of(context)
        if shown == "none" or not known:
            return []
        middle = (len(known) + 1) // 2
        better, worse = known[:middle], known[middle:]
        if shown == "good":
            drawn = rng.sample(better, min(2 * each, len(better)))
        else:
            drawn = rng.sample(better, min(each, len(better))) + rng.sample(worse, min(each, len(worse)))
        if shown == "shuffled":
            rewards = [one.reward for one in drawn]
            rng.shuffle(rewards)
            drawn = [one._replace(reward=r) for one, r in zip(drawn, rewards, strict=True)]
        return sorted(drawn, key=lambda one: -one.reward)

    def clear(self) -> None:
        """Forget everything."""
        self.learner.notes["experience"] = {}
