"""A classifier with a known optimum: the prompt decides how often it is right.

The law. Every label has cue words. The *input line* of a request is the last line that holds a cue
word, its true label the one whose cue comes first in it. Of the instruction words in the option
`words`, the k different ones that occur (as whole words, in any case) outside the input line raise the
probability of the true label from `base` to `base + (top - base) * k / len(words)`; each of the words
in `harmful` lowers it by `harm`. Whether one input is answered rightly is one draw per input (per sample
too, above temperature 0) that does not depend on the prompt: a better prompt loses nothing.
The optimum is any prompt with all of `words` and none of `harmful`; its accuracy is `top`.
`score` gives the answered label the probability 0.9 and shares the rest.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import ClassVar

from whet.errors import UsageError
from whet.models.scripted.simulator import Scripted, chance, choose, request_text
from whet.prompt import Prompt
from whet.types import Example, Request, Scores

CUES = "positive:great+good+lovely+excellent+fine,negative:bad+awful+poor+dull+terrible"
WORDS = "carefully,evidence,tone,single"
_ANSWERED = 0.9


def words_of(text: str) -> list[str]:
    """The words of a text in lower case."""
    return re.findall(r"[a-z0-9][a-z0-9'-]*", text.lower())


def read_cues(option: str) -> dict[str, tuple[str, ...]]:
    """Cue words of each label from `label:word+word,label:word`.

    >>> read_cues("yes:sun+warm,no:rain")
    {'yes': ('sun', 'warm'), 'no': ('rain',)}
    """
    cues: dict[str, tuple[str, ...]] = {}
    for part in option.split(","):
        label, _, words = part.partition(":")
        cues[label.strip()] = tuple(word.strip().lower() for word in words.split("+") if word.strip())
    if len(cues) < 2 or not all(cues.values()):
        raise UsageError(
            f"cues={option} does not read as label:word+word,label:word with two labels or more."
        )
    return cues


def split_input(text: str, cues: Mapping[str, Sequence[str]]) -> tuple[str, str, str]:
    """The input line, the rest of the text, and the line's true label (the first one without any cue)."""
    label_of = {word: label for label, words in cues.items() for word in words}
    lines = text.splitlines()
    for number in range(len(lines) - 1, -1, -1):
        for word in words_of(lines[number]):
            if word in label_of:
                return lines[number], "\n".join(lines[:number] + lines[number + 1 :]), label_of[word]
    return "", text, next(iter(cues))


class LabelSimulator(Scripted):
    """Answers with a label; see the module for the law."""

    OPTIONS: ClassVar[Mapping[str, str]] = {
        "words": WORDS,
        "harmful": "",
        "cues": CUES,
        "base": "0.5",
        "top": "1.0",
        "harm": "0.1",
    }

    can_score = True

    def __init__(self, name: str, options: Mapping[str, str]) -> None:
        super().__init__(name, options)
        self.cues = read_cues(self.options["cues"])
        self.labels = tuple(self.cues)
        self.words = frozenset(word.lower() for word in self.option_list("words"))
        self.harmful = frozenset(words_of(self.options["harmful"]))
        self.base, self.top, self.harm = (self.option_float(key) for key in ("base", "top", "harm"))

    def accuracy(self, prompt: str) -> float:
        """Expected accuracy of a prompt: the law itself, for tests that need the optimum."""
        words = set(words_of(prompt))
        helped = self.base + (self.top - self.base) * len(self.words & words) / len(self.words)
        return min(1.0, max(0.0, helped - self.harm * len(self.harmful & words)))

    def _label(self, text: str, draw: str) -> str:
        line, prompt, truth = split_input(text, self.cues)
        if chance(self.seed, "labels", line.strip(), draw) < self.accuracy(prompt):
            return truth
        return choose(
            [label for label in self.labels if label != truth], self.seed, "wrong", line.strip(), draw
        )

    def answer(self, request: Request, sample: int) -> str:
        """The true label, or another one, by the law."""
        return self._label(request_text(request), str(sample) if request.temperature > 0 else "")

    async def score(
        self,
        prompts: Sequence[Prompt],
        inputs: Sequence[Mapping[str, str]],
        continuations: Sequence[Sequence[str]],
    ) -> Scores:
        """Log-probabilities: 0.9 for the label that would be answered, the rest shared by the others."""
        import numpy as np

        width = max((len(row) for row in continuations), default=0)
        logprobs = np.full((len(prompts), len(inputs), width), -math.inf)
        for p, prompt in enumerate(prompts):
            for e, values in enumerate(inputs):
                rendered = prompt.render(Example("", values))
                label = self._label("\n".join(m.content for m in rendered), "")
                for c, continuation in enumerate(continuations[e]):
                    right = continuation.strip().lower() == label.lower()
                    logprobs[p, e, c] = math.log(_ANSWERED if right else (1 - _ANSWERED) / max(1, width - 1))
        lengths = np.array([[self.count_tokens(c) for c in row] for row in continuations], dtype=np.int64)
        return Scores(logprobs, lengths)
