"""Words to build token prompts from."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from whet.environments.environment import Environment

_WORD = re.compile(r"[^\W\d_]{2,}")


@runtime_checkable
class HasVocabulary(Protocol):
    """A model that names words which it knows as single tokens."""

    def vocabulary(self, n: int) -> Sequence[str]:
        """At most `n` words, the most useful first."""
        ...


def tokenize(text: str) -> list[str]:
    """Every run of two or more letters, in small letters."""
    return _WORD.findall(text.lower())


def vocabulary(env: Environment, n: int) -> list[str]:
    """At most `n` words: from the task model's `vocabulary` if it has one, else the inputs' commonest."""
    if isinstance(env.model, HasVocabulary):
        return list(env.model.vocabulary(n))
    counts = Counter(word for example in env.train for word in tokenize(example.user_text))
    return [word for word, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:n]]
