"""The subsequences of a prompt's words: what is left when some are dropped, in their order."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from whet.prompt import Prompt
from whet.search.edits import PhraseSpan, delete, replace_region, spans, text_in

Kept = tuple[int, ...]
"""The numbers of the words that are kept, in order."""


@dataclass(frozen=True)
class PrunableText:
    """The editable texts of a prompt `base`, which descends from `start`, by region, and their words. No slot is a word."""

    start: Prompt
    texts: Mapping[str, str]
    words: Sequence[tuple[str, PhraseSpan]]

    @classmethod
    def of(cls, start: Prompt, base: Prompt) -> PrunableText:
        """The texts of all regions, or of the one in focus."""
        names = [start.focus] if start.focus is not None else [region.name for region in start.regions]
        texts = {name: text_in(start.with_focus(name), base) for name in names}
        return cls(
            start, texts, [(name, span) for name, text in texts.items() for span in spans(text, "word")]
        )

    @property
    def whole(self) -> Kept:
        """All words."""
        return tuple(range(len(self.words)))

    def prompt(self, kept: Collection[int]) -> Prompt | None:
        """The prompt with these words only; None where the prompt refuses that, as a region without a word."""
        prompt: Prompt | None = self.start
        texts = dict(self.texts)
        for number in reversed(self.whole):
            name, span = self.words[number]
            if number not in kept:
                texts[name] = delete(texts[name], span)
        for name, text in texts.items():
            prompt = prompt and replace_region(prompt, text, name)
        return prompt


def drop_words(rng: random.Random, kept: Kept, n: int) -> Kept:
    """The words that are kept, without n random ones; without all but one where there are not as many."""
    return tuple(sorted(rng.sample(kept, max(1, len(kept) - n))))
