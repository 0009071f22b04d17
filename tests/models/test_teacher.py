"""Teacher forcing and virtual tokens, against scoring, against plain arithmetic and against PEFT itself."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
peft = pytest.importorskip("peft")

from tests.rl.tinylm import EOS, KIND, WORDS, open_model, start  # noqa: E402

from whet.errors import UsageError  # noqa: E402
from whet.models.huggingface import HuggingFaceModel  # noqa: E402
from whet.models.huggingface_score import answer_items, build_forced_batch, log_likelihood  # noqa: E402
from whet.models.prefixed import Virtual, prefix_weights, states_of  # noqa: E402
from whet.rl.soft_prompt import SoftPrompt, SoftPromptConfig  # noqa: E402
from whet.types import Message, Request  # noqa: E402

Open = Callable[[str], HuggingFaceModel]
INPUTS = [
    {"input": "a film of two sisters"},
    {"input": "dull"},
    {"input": "the sun and the moon and the night"},
]
SKIPPED = {"[PAD]", "[UNK]", "<s>", "</s>"}
ANSWERS = ["good", "very poor", "poor"]


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Open:
    folder = tmp_path_factory.mktemp("models")
    return lambda family: open_model(family, folder / family)


def likelihoods(model: HuggingFaceModel, family: str, *, ends: bool = False) -> list[float]:
    items = answer_items(model.weights, start(family), INPUTS, ANSWERS, ends=ends)
    found: list[float] = log_likelihood(model.weights, build_forced_batch(model.weights, items)).tolist()
    return found


@pytest.mark.parametrize("family", KIND)
async def test_likelihoods_are_those_that_scoring_reports(opened: Open, family: str) -> None:
    model = opened(family)
    scored = await model.score([start(family)], INPUTS, [[answer] for answer in ANSWERS])
    assert likelihoods(model, family) == pytest.approx(scored.logprobs[0, :, 0].tolist(), abs=1e-4)


def test_the_end_token_counts_when_it_is_wanted(opened: Open) -> None:
    model = opened("llama")
    ids = [WORDS.index(w) for w in start().render_text(INPUTS[1]).split() if w in WORDS]
    row = torch.tensor([[*ids, WORDS.index("very"), WORDS.index("poor")]])
    after = model.weights.model(input_ids=row).logits[0, -1].log_softmax(-1)[EOS]
    with_end, without = likelihoods(model, "llama", ends=True), likelihoods(model, "llama")
    assert with_end[1] - without[1] == pytest.approx(float(after.detach()), abs=1e-4)


def test_an_answer_without_tokens_is_refused(opened: Open) -> None:
    with pytest.raises(UsageError, match="no token"):
        answer_items(opened("llama").weights, start(), INPUTS[:1], [""], ends=False)


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize(("family", "kind"), [("llama", "prefix"), ("gpt2", "prefix"), ("llama", "ptuning")])
def test_likelihoods_with_virtual_tokens_are_those_of_peft(opened: Open, family: str, kind: Any) -> None:
    """The same trained numbers in PEFT's own model give the same loss."""
    model = opened(family)
    soft = SoftPrompt(model, kind, SoftPromptConfig(tokens=3, hidden=16, lr=0.01), seed=1)
    common = {"task_type": "CAUSAL_LM", "num_virtual_tokens": 3, "encoder_hidden_size": 16}
    config = (
        peft.PrefixTuningConfig(prefix_projection=True, **common)
        if kind == "prefix"
        else peft.PromptEncoderConfig(**common)
    )
    other = peft.get_peft_model(opened(family).weights.model, config).eval()
    other.prompt_encoder["default"].load_state_dict(soft._encoder.state_dict())
    weights = prefix_weights(model.weights, soft._virtual())
    (item,) = answer_items(weights, start(family), INPUTS[:1], ANSWERS[1:2], ends=False)
    mine = float(log_likelihood(weights, build_forced_batch(weights, [item])).detach())
    row = torch.tensor([[*item.before, *item.choices[0]]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logits = other(input_ids=row, attention_mask=torch.ones_like(row)).logits[0]
    logp = logits.detach().log_softmax(-1)[-3:-1]
    theirs = sum(float(logp[k, token]) for k, token in enumerate(item.choices[0]))
    assert mine == pytest.approx(theirs, abs=1e-4)
    assert abs(mine - likelihoods(model, family)[0]) > 1e-3


def soft_model(model: HuggingFaceModel, kind: Any, seed: int = 1) -> tuple[SoftPrompt, HuggingFaceModel]:
    soft = SoftPrompt(model, kind, SoftPromptConfig(tokens=3, hidden=16, lr=0.01), seed)
    return soft, soft.system()


@pytest.mark.parametrize("kind", ["prefix", "ptuning"])
@pytest.mark.parametrize("family", ["llama", "gpt2", "t5"])
async def test_the_system_scores_as_it_was_trained_in_any_batch(opened: Open, family: str, kind: Any) -> None:
    model = opened(family)
    soft, system = soft_model(model, kind)
    weights = prefix_weights(model.weights, soft._virtual())
    items = answer_items(weights, start(family), INPUTS, ANSWERS, ends=False)
    alone = [float(log_likelihood(weights, build_forced_batch(weights, [item])).detach()) for item in items]
    together = log_likelihood(weights, build_forced_batch(weights, items)).tolist()
    scored = await system.score([start(family)], INPUTS, [[a, "two red film"] for a in ANSWERS])
    assert together == pytest.approx(alone, abs=1e-4)
    assert scored.logprobs[0, :, 0].tolist() == pytest.approx(alone, abs=1e-4)
    plain = await model.score([start(family)], INPUTS, [[a] for a in ANSWERS])
    assert abs(plain.logprobs[0, :, 0] - alone).max() > 1e-3, "the virtual tokens act"
    assert system.address == model.address
    assert system.weights.limit == model.weights.limit - 3


@pytest.mark.parametrize("kind", ["prefix", "ptuning"])
@pytest.mark.parametrize("family", ["llama", "gpt2", "t5"])
async def test_the_system_writes_what_it_finds_likeliest(opened: Open, family: str, kind: Any) -> None:
    """Greedy text, made in a padded batch, token by token against full passes."""
    _, system = soft_model(opened(family), kind)
    texts = ["a film of two sisters", "dull", "the sun and the moon and the night"]
    asked = [Request((Message("user", text),), max_tokens=4) for text in texts]
    made = [one[0] for one in await asyncio.gather(*(system.generate(request) for request in asked))]
    weights = system.weights
    for text, completion in zip(texts, made, strict=True):
        _, ids = weights.read((Message("user", text),))
        wanted = [WORDS[t] for t in greedy(weights, ids, 4)]
        assert completion.text.split() == [word for word in wanted if word not in SKIPPED]
        assert completion.usage.output_tokens <= 4


def greedy(weights: Any, ids: list[int], count: int) -> list[int]:
    made: list[int] = []
    for _ in range(count):
        with torch.no_grad():
            if weights.kind == "seq2seq":
                out = weights.model(
                    input_ids=torch.tensor([ids]),
                    attention_mask=torch.ones(1, len(ids), dtype=torch.long),
                    decoder_input_ids=torch.tensor([[0, *made]]),
                )
            else:
                row = torch.tensor([[*ids, *made]])
                places = torch.arange(row.shape[1])[None]
                out = weights.model(input_ids=row, attention_mask=torch.ones_like(row), position_ids=places)
        made.append(int(out.logits[0, -1].argmax()))
        if made[-1] == EOS:
            return made[:-1]
    return made


def test_states_of_embeddings_are_those_of_the_words_themselves(opened: Open) -> None:
    """Virtual tokens that equal the embeddings of words act as these words do."""
    weights = opened("llama").weights
    table = weights.model.get_input_embeddings().weight.detach()
    words = [WORDS.index(w) for w in ("very", "good", "film")]
    with torch.no_grad():
        virtual = Virtual(3, states_of(weights.model, table[words]))
        rest = torch.tensor([[WORDS.index("sun"), WORDS.index("moon")]])
        short = prefix_weights(weights, virtual).model(
            input_ids=rest, attention_mask=torch.ones_like(rest), position_ids=torch.arange(2)[None]
        )
        long = weights.model(input_ids=torch.cat([torch.tensor([words]), rest], 1))
    assert torch.allclose(short.logits, long.logits[:, 3:], atol=1e-4)


def test_virtual_tokens_are_refused_where_they_cannot_stand(opened: Open) -> None:
    with pytest.raises(UsageError, match="masked"):
        prefix_weights(opened("bert").weights, Virtual(2))
    with pytest.raises(UsageError, match="no room"):
        prefix_weights(opened("llama").weights, Virtual(64))
