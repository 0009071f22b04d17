"""guess: a whole number is guessed; after each guess the world says whether it is higher or lower.

task.yaml:  environment: {guess: {highest: 31}, turns: 31}

The target of an example is the number. The answer of an episode is all guesses in their order, for the reward to grade.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from whet import Example, Run, UsageError
from whet.environments import Conversation, WorldStep


@dataclass(frozen=True)
class Guess:
    """Numbers from 1 to `highest`, with at most `turns` guesses."""

    turns: int
    highest: int = 31
    name: str = "guess"
    graded: bool = True

    def check(self, example: Example) -> None:
        """Refuse a row whose target is no number of the game."""
        target = example.target
        if isinstance(target, bool) or not isinstance(target, int) or not 1 <= target <= self.highest:
            raise UsageError(
                f'the row "{example.id}" has the target {target!r}. '
                f"Give every row a whole number from 1 to {self.highest}."
            )

    def observe(self, example: Example) -> Example:
        """The example with the question as its text."""
        text = f"Guess a whole number from 1 to {self.highest}."
        return replace(example, values={**example.values, "input": text}, text=text)

    def reset(self, example: Example, opening: Conversation) -> Game:
        """A new game for the example's number."""
        return Game(int(example.target), opening, self.turns)


class Game:
    """One game on its way."""

    def __init__(self, number: int, opening: Conversation, turns: int) -> None:
        self.opening, self.turns = opening, turns
        self._number = number
        self._guesses: list[str] = []

    async def step(self, run: Run, text: str) -> WorldStep:
        """What one guess brings. The same texts bring the same, so that nothing has to be recorded."""
        guess = text.strip()
        self._guesses.append(guess or "-")
        number = int(guess) if guess.isascii() and guess.isdigit() and len(guess) < 10 else None
        if number == self._number or len(self._guesses) == self.turns:
            return WorldStep(done=True, answer=" ".join(self._guesses))
        if number is None:
            return WorldStep("Write one whole number.", notes={"unreadable": 1.0})
        return WorldStep("The number is higher." if number < self._number else "The number is lower.")
