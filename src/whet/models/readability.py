"""How much a text reads like language: its perplexity under a model, one of the figures by which prompts are compared.

A causal or sequence-to-sequence model writes the whole text after nothing. A masked model guesses every word from the
others (pseudo-perplexity, Salazar et al. 2020, arXiv:1910.14659). Words that were found by a search have a high
perplexity, sentences that a person wrote a low one.
"""

from __future__ import annotations

import math

from whet.models.language_model import LanguageModel
from whet.prompt import Prompt
from whet.prompt.document import MASK
from whet.prompt.slots import SLOT

_INPUT = "text"


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
