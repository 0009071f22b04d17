"""The largest length of a prompt: a bound in tokens that travels with a prompt through its edits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from whet_client.errors import EditRejected

LEAST, TIMES = 2000, 3
BYTES = 4
"""Bytes of a token where no tokenizer is known."""


def estimated_tokens(text: str) -> int:
    """Tokens of a text for a model whose tokenizer is not known: a quarter of its bytes in UTF-8, rounded up.

    >>> estimated_tokens("Be brief.")
    3
    """
    return -(-len(text.encode("utf-8", "surrogatepass")) // BYTES)


@dataclass(frozen=True)
class LengthLimit:
    """At most so many `tokens`, as `count` counts them."""

    tokens: int
    count: Callable[[str], int] = estimated_tokens

    @classmethod
    def of(
        cls, start: str, tokens: int | None, count: Callable[[str], int] = estimated_tokens
    ) -> LengthLimit:
        """The limit for what becomes of a start prompt: `tokens`, by default three times its length and at least 2,000."""
        return cls(max(LEAST, TIMES * count(start)) if tokens is None else tokens, count)

    def check(self, old: str, new: str) -> None:
        """Raise EditRejected for a text that is longer than the limit and than the old one."""
        if len(new.encode("utf-8", "surrogatepass")) <= self.tokens:  # no token is shorter than a byte
            return
        tokens = self.count(new)
        if tokens > self.tokens and tokens > self.count(old):
            raise EditRejected(
                f"The whole prompt would have {tokens:,} tokens; it may have at most {self.tokens:,}. Write a shorter text."
            )

    def describe(self, text: str) -> str:
        """A sentence for a writer about the limit; '' if the prompt is far below it."""
        return (
            f"The whole prompt may have at most {self.tokens:,} tokens (about {BYTES * self.tokens:,} characters); "
            f"it has {self.count(text):,} now."
        )
