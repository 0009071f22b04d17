"""Prompts that define the labels of a task, one line each: `network: socket, url, server, http`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from whet.environments.environment import Environment
from whet.errors import UsageError
from whet.prompt import Prompt
from whet.search.edits import replace_region
from whet.search.vocabulary import tokenize
from whet_client.prompt.slots import SLOT

REGION = "definitions"
SUPPORT = 2  # training inputs of a label in which a word must stand to define it


def defining_words(env: Environment, most: int) -> dict[str, list[str]]:
    """For the word that stands for each label, at most `most` words that may define it, the most telling first.

    A word may define the label in whose training inputs it stands most often, if it stands in at least 2 of them; it tells the
    more, the larger n x pointwise mutual information is. A label without such words takes any of its inputs', and one whose
    training inputs have none is left out: it gets no line. Raises UsageError without labels, and where no label has a word.
    """
    if not env.labels:
        raise UsageError("Definitions need labels to define. Add `labels:` to the task.")
    texts = [(str(example.target), set(tokenize(example.user_text))) for example in env.train]
    sizes = Counter(target for target, _ in texts)
    counts = {
        label: Counter(w for target, words in texts if target == label for w in words) for label in env.labels
    }
    everywhere = Counter(word for _, words in texts for word in words)
    candidates = {}
    for label, name in env.labels.items():
        own = {word: n for word, n in counts[label].items() if word != name.strip().lower()}
        if not own:
            continue
        telling = {w: n * math.log(n * len(texts) / (everywhere[w] * sizes[label])) for w, n in own.items()}
        rivals = {
            w: max(
                (counts[rival][w] / max(1, sizes[rival]) for rival in env.labels if rival != label), default=0
            )
            for w in own
        }
        words = [w for w, n in own.items() if n >= SUPPORT and n / sizes[label] > rivals[w]] or list(own)
        candidates[name.strip()] = sorted(words, key=lambda word: (-telling[word], word))[:most]
    if not candidates:
        raise UsageError(
            f"No training input with one of the labels {', '.join(map(str, env.labels))} has a word that could define it. "
            "Add training rows with these labels."
        )
    return candidates


@dataclass(frozen=True)
class Definitions:
    """All prompts that define every label by words.

    `words`: what may define a label, by the word that stands for the label. The definitions replace the editable region
    called `definitions`, or the first region of a prompt that has none of that name.
    """

    start: Prompt
    words: Mapping[str, Sequence[str]]

    def prompt(self, chosen: Sequence[Sequence[str]]) -> Prompt | None:
        """The start with these words for each label, in the order of the labels; None when the prompt refuses the text."""
        return replace_region(self.start, self.text(chosen), self.region)

    def text(self, chosen: Sequence[Sequence[str]]) -> str:
        """The editable text: a line for each label, then the slots that stood in the region."""
        old = self.start.region_text(self.region)
        lines = [f"{name}: {', '.join(words)}" for name, words in zip(self.words, chosen, strict=True)]
        lines += [match.group(0) for match in SLOT.finditer(old)]
        return "\n".join(lines)

    @property
    def region(self) -> str | None:
        """The name of the region that holds the definitions; None for the first one."""
        return REGION if any(region.name == REGION for region in self.start.regions) else None
