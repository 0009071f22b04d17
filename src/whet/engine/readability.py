"""The readability of a method's result: the perplexity of the deployed text, where the result is a text."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from statistics import median
from typing import Protocol, runtime_checkable

from whet.engine.result_json import ReadabilityJSON
from whet.environments.environment import Environment
from whet.errors import UsageError
from whet.models.language_model import LanguageModel
from whet.prompt import Prompt
from whet.run import MemoryRun, Run
from whet.types import Example
from whet_client.prompt.document import MASK
from whet_client.prompt.slots import SLOT

_INPUT = "text"
PASSAGE = 64
PASSAGES = 100
READER = "embedded/mlm"


async def perplexity(model: LanguageModel, text: str) -> float | None:
    """Perplexity per token of a text, 1 or more; None where the model can score no language, or there are no words.

    Slots in the text are left out.
    """
    words = SLOT.sub(" ", text).split()
    if not words or not model.can_score or model.address == "embedded/encoder":
        return None
    if model.can_generate:
        empty = Prompt.parse(f"{{{{{_INPUT}}}}}")
        scores = await model.score([empty], [{_INPUT: ""}], [[" ".join(words)]])
        return _perplexity(float(scores.logprobs.sum()), int(scores.tokens.sum()))
    hidden = Prompt.parse(f"{{{{before}}}} {{{{{MASK}}}}} {{{{after}}}}")
    inputs = [{"before": " ".join(words[:i]), "after": " ".join(words[i + 1 :])} for i in range(len(words))]
    scores = await model.score([hidden], inputs, [[word] for word in words])
    return _perplexity(float(scores.logprobs.sum()), int(scores.tokens.sum()))


def _perplexity(logprob: float, tokens: int) -> float:
    return math.exp(min(700.0, -logprob / max(1, tokens)))


@runtime_checkable
class PerInput(Protocol):
    """An environment in which every input is given a text of its own."""

    async def texts(self, run: Run, prompt: Prompt, examples: Sequence[Example]) -> list[str]:
        """The editable text that each example is given, in order."""
        ...


async def texts_of(
    env: Environment, prompt: Prompt, start: Prompt, system: str | None, examples: Sequence[Example]
) -> list[str]:
    """Editable texts with which the examples are answered, one for all of them or one for each.

    Raises UsageError with the reason where what was found is no text: weights or vectors beside the prompt as written.
    """
    if isinstance(env, PerInput):
        return await env.texts(MemoryRun({"task": env.model}), prompt, examples)
    text = "\n".join(prompt.region_text(region.name) for region in prompt.regions)
    if system is not None and prompt.id == start.id:
        raise UsageError("the method found weights, not a text; the prompt is unchanged")
    return [text]


async def readability(reader: LanguageModel, texts: Sequence[str]) -> ReadabilityJSON:
    """Median perplexity of texts under a model: `{"perplexity", "reader", "texts"}`; `texts` counts different ones.

    Texts are read in passages of at most 64 words, each with the weight of the rows that it was written for; of more than
    100 passages every n-th is read. `perplexity` is None, with a `reason`, where there is nothing to read.
    """
    counted = Counter(texts)
    passages = [(p, count) for text, count in sorted(counted.items()) for p in _passages(text)]
    step = -(-len(passages) // PASSAGES) if passages else 1
    values: list[float] = []
    for passage, count in passages[::step]:
        value = await perplexity(reader, passage)
        values += [] if value is None else [value] * count
    read: ReadabilityJSON = {
        "perplexity": median(values) if values else None,
        "reader": reader.address,
        "texts": len(counted),
    }
    if not values:
        read["reason"] = f"{reader.address} finds no words to read"
    return read


def _passages(text: str) -> list[str]:
    words = text.split()
    return [" ".join(words[at : at + PASSAGE]) for at in range(0, len(words), PASSAGE)]
