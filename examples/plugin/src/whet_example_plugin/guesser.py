"""guesser/plain: a simulated model that plays a guessing game, badly unless its prompt says how.

It counts upwards; where the prompt speaks of halving, it halves the range that is left. Its last guess is on the last line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from whet import Completion, Prompt, UsageError
from whet.types import Request, Scores, Usage


class Guesser:
    """The model at guesser/plain."""

    simulated = True
    local = True
    can_generate = True
    can_score = False

    def __init__(self, name: str) -> None:
        self.address = f"guesser/{name}"

    async def generate(self, request: Request) -> list[Completion]:
        """The next guess, `request.n` times: a simulator without chance gives the same answer each time."""
        text = str(next_guess([message.content for message in request.messages]))
        for stop in request.stop:
            text = text.partition(stop)[0]
        finish, error = "stop", None if text else "empty answer"
        if request.max_tokens is not None and self.count_tokens(text) > request.max_tokens:
            text, finish, error = text[: 4 * request.max_tokens], "length", "truncated at max_tokens"
        read, wrote = sum(self.count_tokens(m.content) for m in request.messages), self.count_tokens(text)
        bills = [Usage(read if number == 0 else 0, wrote) for number in range(request.n)]
        return [Completion(text, finish, usage, error) for usage in bills]

    async def score(
        self,
        prompts: Sequence[Prompt],
        inputs: Sequence[Mapping[str, str]],
        continuations: Sequence[Sequence[str]],
    ) -> Scores:
        """Refuse: this model only generates."""
        refuse(f"{self.address} cannot score continuations; it only generates.")

    def count_tokens(self, text: str) -> int:
        """A quarter of the characters, rounded up."""
        return -(-len(text) // 4)

    async def close(self) -> None:
        """Nothing is held open."""


def next_guess(contents: Sequence[str]) -> int:
    """What to guess after these messages: the prompt, then guesses and replies by turns."""
    bounds = re.search(r"from (\d{1,9}) to (\d{1,9})", contents[0])
    low, high = (int(bounds[1]), int(bounds[2])) if bounds else (1, 100)
    for guess, reply in zip(contents[1::2], contents[2::2], strict=False):
        if not re.fullmatch(r"[0-9]{1,9}", guess):
            continue
        if "higher" in reply:
            low = max(low, int(guess) + 1)
        elif "lower" in reply:
            high = min(high, int(guess) - 1)
    return (low + high) // 2 if "halve" in contents[0].lower() else low


def refuse(message: str) -> NoReturn:
    """Raise UsageError."""
    raise UsageError(message)


def load(name: str, base_url: str | None, options: Mapping[str, Any]) -> Guesser:
    """The model of a name: the entry point of the provider."""
    if name != "plain":
        refuse(f'There is no model "guesser/{name}". Write guesser/plain.')
    if options:
        refuse(f"guesser/plain takes no option; found {', '.join(options)}.")
    return Guesser(name)
