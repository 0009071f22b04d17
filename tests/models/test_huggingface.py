"""hf/...: tiny random models of each kind, saved and loaded, against direct arithmetic with transformers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from whet.errors import ProviderError, UsageError
from whet.models.huggingface import HuggingFaceModel, load
from whet.models.huggingface_load import gguf_of
from whet.prompt import Prompt
from whet.types import Message, Request

torch = pytest.importorskip("torch", reason="hf/... needs torch: pip install 'whet[hf]'")
transformers = pytest.importorskip("transformers", reason="hf/... needs transformers: pip install 'whet[hf]'")

VOCABULARY = """
[PAD] [UNK] [CLS] [SEP] [MASK] <s> </s> [ system user assistant ] : . !
the film was great bad dull a story of two sisters who meet again
good poor very and sentiment is it text label review
"""
WORDS = VOCABULARY.split()
PAD, UNK, CLS, SEP, MASK, BOS, EOS = range(7)  # the first words
TEMPLATE = (
    "{% for m in messages %}[ {{ m['role'] }} ] {{ m['content'] }} {% endfor %}"
    "{% if add_generation_prompt %}[ assistant ] {% endif %}"
)
PROMPTS = [
    Prompt.parse("review : {{input}} sentiment is"),
    Prompt.parse("the text : {{input}} . very good film ! label :"),
]
INPUTS = [{"input": "the film was great"}, {"input": "a dull story of two sisters who meet again and again"}]
CHOICES = [["good", "very bad", "poor"], ["good", "very bad", "poor"]]


def tokenizer(kind: str, template: str | None = None) -> Any:
    """A word-level tokenizer with the special tokens of the kind."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    if kind == "masked":
        ends = [("[CLS]", CLS), ("[SEP]", SEP)]
        words.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    elif kind == "seq2seq":
        words.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", EOS)])
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "bos_token": "<s>", "eos_token": "</s>"}
    special |= {"mask_token": "[MASK]"} if kind == "masked" else {}
    made = transformers.PreTrainedTokenizerFast(tokenizer_object=words, **special)
    made.chat_template = template
    return made


def llama() -> Any:
    config = transformers.LlamaConfig(
        vocab_size=len(WORDS), hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
        bos_token_id=BOS, eos_token_id=EOS, pad_token_id=PAD,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config)


def gpt2() -> Any:
    config = transformers.GPT2Config(
        vocab_size=len(WORDS),
        n_embd=32,
        n_layer=2,
        n_head=4,
        n_positions=64,
        bos_token_id=BOS,
        eos_token_id=EOS,
    )
    return transformers.GPT2LMHeadModel(config)


def t5() -> Any:
    config = transformers.T5Config(
        vocab_size=len(WORDS), d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4,
        pad_token_id=PAD, eos_token_id=EOS, decoder_start_token_id=PAD,
    )  # fmt: skip
    return transformers.T5ForConditionalGeneration(config)


def bert() -> Any:
    config = transformers.BertConfig(
        vocab_size=len(WORDS), hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=48, max_position_embeddings=64, pad_token_id=PAD,
    )  # fmt: skip
    return transformers.BertForMaskedLM(config)


Saved = Callable[..., Path]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    """Folder of a saved random model; sharp weights, so that its answers differ."""

    def save(make: Callable[[], Any], kind: str, template: str | None = None) -> Path:
        torch.manual_seed(7)
        model = make()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(1.0 if parameter.dim() < 2 else 6.0)
        folder = tmp_path_factory.mktemp(make.__name__)
        model.save_pretrained(folder)
        tokenizer(kind, template).save_pretrained(folder)
        return folder

    return save


def ids_of(text: str) -> list[int]:
    return [WORDS.index(word) for word in text.split()]


def logp(logits: Any) -> np.ndarray[Any, Any]:
    found: np.ndarray[Any, Any] = logits.detach().double().log_softmax(-1).numpy()
    return found


def direct_causal(model: Any, prefix: list[int], choice: list[int]) -> float:
    rows = logp(model(input_ids=torch.tensor([prefix + choice])).logits[0])
    return float(sum(rows[len(prefix) + i - 1, token] for i, token in enumerate(choice)))


@pytest.mark.parametrize("make", [llama, gpt2])
async def test_causal_scores_are_the_sum_over_the_continuation(saved: Saved, make: Callable[[], Any]) -> None:
    folder = saved(make, "causal")
    direct = transformers.AutoModelForCausalLM.from_pretrained(folder)
    model = load(str(folder), device="cpu")
    found = await model.score(PROMPTS, INPUTS, CHOICES)
    for p, prompt in enumerate(PROMPTS):
        for e, values in enumerate(INPUTS):
            prefix = ids_of(prompt.render_text(values))
            wanted = [direct_causal(direct, prefix, ids_of(choice)) for choice in CHOICES[e]]
            assert found.logprobs[p, e] == pytest.approx(wanted, abs=1e-4)
    assert found.logprobs.shape == (2, 2, 3)
    assert found.tokens.tolist() == [[1, 2, 1], [1, 2, 1]]
    await model.close()


async def test_causal_scores_with_a_chat_template_stand_after_the_assistants_mark(saved: Saved) -> None:
    folder = saved(llama, "causal", TEMPLATE)
    direct = transformers.AutoModelForCausalLM.from_pretrained(folder)
    model = load(str(folder), device="cpu")
    prompt = Prompt.parse("sentiment of the review ?")
    found = await model.score([prompt], INPUTS[:1], [["very good"]])
    prefix = ids_of("[ system ] sentiment of the review [UNK] [ user ] the film was great [ assistant ]")
    assert found.logprobs[0, 0, 0] == pytest.approx(
        direct_causal(direct, prefix, ids_of("very good")), abs=1e-4
    )
    await model.close()


async def test_masked_scores_stand_at_the_mask(saved: Saved) -> None:
    folder = saved(bert, "masked")
    direct = transformers.AutoModelForMaskedLM.from_pretrained(folder)
    model = load(str(folder), device="cpu")
    prompt = Prompt.parse("{{input}} it was {{mask}} !")
    found = await model.score([prompt], INPUTS, CHOICES)
    for e, values in enumerate(INPUTS):
        for k, choice in enumerate(CHOICES[e]):
            before, targets = [CLS, *ids_of(values["input"] + " it was")], ids_of(choice)
            row = [*before, *[MASK] * len(targets), *ids_of("!"), SEP]
            rows = logp(direct(input_ids=torch.tensor([row])).logits[0])
            wanted = sum(rows[len(before) + i, token] for i, token in enumerate(targets))
            assert found.logprobs[0, e, k] == pytest.approx(wanted, abs=1e-4)
    await model.close()


async def test_a_mask_token_in_the_data_is_text_and_not_the_slot(saved: Saved) -> None:
    folder = saved(bert, "masked")
    direct = transformers.AutoModelForMaskedLM.from_pretrained(folder)
    model = load(str(folder), device="cpu")
    prompt = Prompt.parse("{{input}} it was {{mask}} !")
    found = await model.score([prompt], [{"input": "the [MASK] film"}, {"input": "{{mask}}"}], [["good"]] * 2)
    for e, data in enumerate(("the [ [UNK] ] film", "[UNK] [UNK] [UNK]")):
        before = [CLS, *ids_of(data + " it was")]
        rows = logp(direct(input_ids=torch.tensor([[*before, MASK, *ids_of("!"), SEP]])).logits[0])
        assert found.logprobs[0, e, 0] == pytest.approx(rows[len(before), WORDS.index("good")], abs=1e-4)
    await model.close()


async def test_masked_prompt_without_an_input_slot_still_carries_the_input(saved: Saved) -> None:
    model = load(str(saved(bert, "masked")), device="cpu")
    found = await model.score([Prompt.parse("it was {{mask}} !")], INPUTS, CHOICES)
    assert abs(found.logprobs[0, 0, 0] - found.logprobs[0, 1, 0]) > 1e-3
    with pytest.raises(UsageError, match="has 0 of them"):
        await model.score([Prompt.parse("it was {{input}}")], INPUTS, CHOICES)
    await model.close()


async def test_seq2seq_scores_come_from_the_decoder(saved: Saved) -> None:
    folder = saved(t5, "seq2seq")
    direct = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder)
    model = load(str(folder), device="cpu")
    found = await model.score(PROMPTS, INPUTS, CHOICES)
    for p, prompt in enumerate(PROMPTS):
        for e, values in enumerate(INPUTS):
            source = torch.tensor([[*ids_of(prompt.render_text(values)), EOS]])
            for k, choice in enumerate(CHOICES[e]):
                targets = ids_of(choice)
                decoder = torch.tensor([[PAD, *targets[:-1]]])
                rows = logp(direct(input_ids=source, decoder_input_ids=decoder).logits[0])
                wanted = sum(rows[i, token] for i, token in enumerate(targets))
                assert found.logprobs[p, e, k] == pytest.approx(wanted, abs=1e-4)
    await model.close()


KINDS = [(llama, "causal"), (t5, "seq2seq"), (bert, "masked")]


@pytest.mark.parametrize(("make", "kind"), KINDS)
async def test_scores_do_not_depend_on_the_batch(saved: Saved, make: Callable[[], Any], kind: str) -> None:
    model = load(str(saved(make, kind)), device="cpu")
    prompts = [Prompt.parse("{{input}} label : {{mask}}" if kind == "masked" else "{{input}} label :"), *[]]
    inputs = [{"input": " ".join(["good"] * n + ["film"])} for n in (1, 30, 7, 2)]
    together = await model.score(prompts, inputs, [["good", "very bad"]] * 4)
    for e, values in enumerate(inputs):
        alone = await model.score(prompts, [values], [["good", "very bad"]])
        assert alone.logprobs[0, 0] == pytest.approx(together.logprobs[0, e], abs=1e-4)
    await model.close()


async def test_texts_beyond_the_limit_are_cut_in_the_middle(saved: Saved) -> None:
    for make, kind in KINDS[::2]:
        model = load(str(saved(make, kind)), device="cpu")
        slot = " {{mask}}" if kind == "masked" else ""
        long = [{"input": "good " * 300}]
        found = await model.score(
            [Prompt.parse("the {{input}} label :" + slot)], long, [["good", "very bad"]]
        )
        assert np.isfinite(found.logprobs).all()
        await model.close()


def request(text: str, **more: Any) -> Request:
    return Request((Message("user", text),), **({"max_tokens": 8} | more))


async def direct_greedy(folder: Path, text: str, count: int) -> list[int]:
    direct = transformers.AutoModelForCausalLM.from_pretrained(folder)
    ids = ids_of(text)
    for _ in range(count):
        ids.append(int(direct(input_ids=torch.tensor([ids])).logits[0, -1].argmax()))
    return ids[len(ids_of(text)) :]


async def test_greedy_answers_are_the_argmax_in_any_batch(saved: Saved) -> None:
    folder = saved(llama, "causal")
    model = load(str(folder), device="cpu", batch_size=3)
    texts = ["the film was", "a story of two sisters who meet again and", "it is", "very", "review : dull"]
    together = await asyncio.gather(*(model.generate(request(text)) for text in texts))
    for text, (found,) in zip(texts, together, strict=True):
        wanted = await direct_greedy(folder, text, 8)
        wanted = wanted[: wanted.index(EOS)] if EOS in wanted else wanted
        special = {PAD, BOS, EOS, UNK}
        assert ids_of(found.text) == [token for token in wanted if token not in special]
        assert found.usage.input_tokens == len(ids_of(text))
        assert (await model.generate(request(text)))[0] == found
    await model.close()


async def test_samples_are_seeded_and_independent_of_the_batch(saved: Saved) -> None:
    model = load(str(saved(llama, "causal")), device="cpu")
    hot = [request("the film was", temperature=3.0, seed=seed, n=2) for seed in (1, 2, 3)]
    together = await asyncio.gather(*(model.generate(one) for one in hot), model.generate(request("it is")))
    for one, found in zip(hot, together, strict=False):
        assert await model.generate(one) == found
    texts = [completion.text for found in together[:3] for completion in found]
    assert len(set(texts)) > 3
    assert sum(c.usage.input_tokens for c in together[0]) == 3
    await model.close()


async def test_sampling_follows_the_softmax(saved: Saved) -> None:
    folder = saved(llama, "causal")
    model = load(str(folder), device="cpu", batch_size=64)
    asked = request("the film was", temperature=2.0, max_tokens=1, n=2000)
    made = await model.generate(asked)
    direct = transformers.AutoModelForCausalLM.from_pretrained(folder)
    probs = (
        (direct(input_ids=torch.tensor([ids_of("the film was")])).logits[0, -1] / 2.0).detach().softmax(-1)
    )
    for token in probs.topk(3).indices.tolist():
        share = sum(c.text.strip() == WORDS[token] for c in made) / len(made)
        if token > EOS:
            assert share == pytest.approx(float(probs[token]), abs=0.04)
    await model.close()


async def test_stop_length_and_first_token(saved: Saved) -> None:
    model = load(str(saved(llama, "causal")), device="cpu")
    (whole,) = await model.generate(request("the film was", top_logprobs=5, max_tokens=6))
    assert whole.finish == "length"
    assert whole.first_token is not None
    assert max(whole.first_token, key=lambda token: (whole.first_token or {})[token]) == whole.text.split()[0]
    second = whole.text.split()[1]
    (short,) = await model.generate(request("the film was", stop=(second,), max_tokens=6))
    assert short.finish == "stop"
    assert whole.text.startswith(short.text)
    assert short.usage.output_tokens <= 2
    await model.close()


async def test_seq2seq_writes_and_masked_refuses(saved: Saved) -> None:
    writer = load(str(saved(t5, "seq2seq")), device="cpu")
    (found,) = await writer.generate(request("the film was great", max_tokens=4))
    assert found.usage.output_tokens <= 4
    await writer.close()
    masked = load(str(saved(bert, "masked")), device="cpu")
    assert (masked.can_generate, masked.can_score) == (False, True)
    with pytest.raises(UsageError, match="masked model"):
        await masked.generate(request("the film"))
    await masked.close()
    await masked.close()


async def test_a_prompt_without_room_for_an_answer_is_a_failed_completion(saved: Saved) -> None:
    model = load(str(saved(llama, "causal")), device="cpu")
    (found,) = await model.generate(request("good " * 64))
    assert found.error is not None and found.error.startswith("model: the prompt's 64 tokens")
    (tight,) = await model.generate(request("good " * 62))
    assert tight.usage.output_tokens <= 2
    await model.close()


async def test_a_template_without_a_system_role_gets_its_text_in_the_user_message(saved: Saved) -> None:
    strict = (
        "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}" + TEMPLATE
    )
    model = load(str(saved(llama, "causal", strict)), device="cpu")
    asked = Request((Message("system", "very good"), Message("user", "film")), max_tokens=2)
    (found,) = await model.generate(asked)
    assert found.usage.input_tokens == len(ids_of("[ user ] very good film [ assistant ]"))
    await model.close()
    never = load(str(saved(llama, "causal", "{{ raise_exception('never') }}")), device="cpu")
    with pytest.raises(ProviderError, match="refuses the messages: never"):
        await never.generate(asked)
    await never.close()


async def test_lack_of_memory_says_what_to_do(saved: Saved, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise torch.cuda.OutOfMemoryError("no room")

    model = load(str(saved(gpt2, "causal")), device="cpu")
    monkeypatch.setattr("whet.models.huggingface.generate_batch", full)
    monkeypatch.setattr("whet.models.huggingface.score", full)
    with pytest.raises(ProviderError, match="batch_size") as caught:
        await model.generate(request("the film"))
    assert caught.value.fatal
    with pytest.raises(ProviderError, match="batch_size"):
        await model.score(PROMPTS, INPUTS, CHOICES)
    await model.close()


def test_the_kind_is_read_from_the_configuration() -> None:
    from whet.models.huggingface_load import model_kind

    def kind(model_type: str, *architectures: str, both: bool = False) -> str:
        config = transformers.PretrainedConfig(architectures=list(architectures), is_encoder_decoder=both)
        config.model_type = model_type
        return model_kind(config, transformers)

    assert kind("t5", "T5ForConditionalGeneration", both=True) == "seq2seq"
    assert kind("bert", "BertForMaskedLM") == kind("bert") == "masked"
    assert kind("bert", "BertLMHeadModel") == kind("qwen3") == "causal"
    with pytest.raises(UsageError, match="a vit model is neither"):
        kind("vit")


async def test_an_address_leads_to_the_model(saved: Saved) -> None:
    from whet.models.addresses import resolve

    folder = saved(llama, "causal", TEMPLATE)
    model = resolve(f"hf/{folder}", options={"device": "cpu", "batch_size": 2})
    assert model.address == f"hf/{folder}"
    asked = Request((Message("user", "the film"), Message("assistant", "was")), max_tokens=1)
    (found,) = await model.generate(asked)
    assert found.usage.input_tokens == len(ids_of("[ user ] the film [ assistant ] was"))
    await model.close()


def test_what_cannot_be_loaded_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="cannot be loaded: there is no folder"):
        load(str(tmp_path / "nothing"))
    with pytest.raises(UsageError, match=r"there is no folder \.\./gone, and a hub name is OWNER/NAME"):
        load("../gone")
    with pytest.raises(
        UsageError, match=r"there is no file \.\./gone\.gguf, and a hub name is OWNER/NAME/FILE\.gguf"
    ):
        load("../gone.gguf")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="cannot be loaded on"):
        load(str(tmp_path / "empty"))
    with pytest.raises(UsageError, match="batch_size"):
        load(str(tmp_path), batch_size=0)
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    with pytest.raises(UsageError, match=r"pip install 'whet\[hf\]'"):
        load(str(tmp_path))


def test_where_a_gguf_file_lies(tmp_path: Path) -> None:
    assert gguf_of("owner/name/small.gguf") == ("owner/name", "small.gguf")
    assert gguf_of("small.gguf") == (".", "small.gguf")
    (tmp_path / "small.gguf").touch()
    assert gguf_of(str(tmp_path)) == (str(tmp_path), "small.gguf")
    (tmp_path / "config.json").touch()
    assert gguf_of(str(tmp_path)) == (str(tmp_path), None), "weights in transformers' own form come first"


def test_what_a_gguf_file_needs_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "small.gguf").touch()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match="Reading it needs: pip install --upgrade gguf"):
        load(str(tmp_path / "small.gguf"))


@pytest.mark.parametrize(
    ("make", "kind", "before", "after"),
    [
        (llama, "causal", [BOS], []),
        (bert, "masked", [CLS], [MASK, SEP]),
        (t5, "seq2seq", [], [EOS]),
    ],
)
async def test_it_lends_its_states_to_a_policy_over_words(
    saved: Saved, make: Callable[[], Any], kind: str, before: list[int], after: list[int]
) -> None:
    """The states are those that its own output matrix reads (a masked model's head transforms them before)."""
    model = load(str(saved(make, kind)), device="cpu")
    body, direct = model.policy_body(), model.weights.model
    words = body.vocabulary(8)
    assert words == [word for word in WORDS if len(word) > 2 and word.isalpha()][:8]
    pieces = body.ids(["film", "great", "the", "story"]).view(2, 2)
    states = body.hidden(pieces)
    assert states.shape == (2, body.embeddings.shape[1]) and not states.requires_grad
    assert body.hidden(pieces[:1, :0]).shape == (1, body.embeddings.shape[1])
    ids = torch.tensor([[*before, *row, *after] for row in pieces.tolist()])
    more = {"decoder_input_ids": torch.full((2, 1), PAD)} if kind == "seq2seq" else {}
    with torch.no_grad():
        out = direct(input_ids=ids, **more, output_hidden_states=True)
    if kind == "masked":
        assert torch.allclose(states, out.hidden_states[-1][:, -2], atol=1e-5)
    else:
        scale = direct.config.d_model**-0.5 if kind == "seq2seq" else 1.0
        assert torch.allclose(scale * states @ body.embeddings.T, out.logits[:, -1], atol=1e-3)
    with pytest.raises(UsageError, match="not a single token"):
        body.ids(["unheard"])
    assert 8 < len(body.vocabulary(10_000)) < 10_000, "cut to what a small tokenizer has"
    with pytest.raises(UsageError, match="needs 2 words"):
        body.vocabulary(1)
    await model.close()


def test_it_is_a_language_model(saved: Saved) -> None:
    from whet.models.language_model import LanguageModel

    model = load(str(saved(gpt2, "causal")), device="cpu")
    assert isinstance(model, HuggingFaceModel) and isinstance(model, LanguageModel)
    assert (model.local, model.simulated) == (True, False)
    assert model.count_tokens("the film was") == 3
    asyncio.run(model.close())


@pytest.mark.parametrize("make", [llama, gpt2])
async def test_shared_beginnings_change_no_answer(saved: Saved, make: Callable[[], Any]) -> None:
    from whet.models.huggingface_generate import shared_beginnings

    model = load(str(saved(make, "causal")), device="cpu")
    heads = (
        "the film was great and the story of two sisters who meet again",
        "a dull text : very bad film ! it is",
    )
    asked = [
        request(f"{head} {tail}") for head in heads for tail in ("good", "poor label", "very good review :")
    ]
    asked += [request(f"{heads[0]} good", temperature=2.0, seed=3, n=4)]
    reads = [model.weights.read(one.messages)[1] for one in asked]
    assert min(shared_beginnings(reads) or [0]) >= 10
    together = await model.generate_batch(asked)
    assert [await model.generate(one) for one in asked] == together
    await model.close()


@pytest.mark.parametrize(
    ("sequences", "wanted"),
    [
        ([[7, 7, 7, 1], [8, 9, 8, 3], [7, 7, 7, 2], [8, 9, 8, 4]], [3, 3, 3, 3]),
        ([[7, 7, 7, 1], [7, 7, 7, 1], [7, 7, 7, 1]], [3, 3, 3]),
        ([[1, 2, 3], [4, 5, 6]], None),
        ([[5, 1, 2, 3, 4], [5, 6, 7, 8, 9]], None),
        ([[1, 2, 3]], None),
        ([], None),
    ],
)
def test_beginnings_are_shared_where_it_saves_a_quarter(
    sequences: list[list[int]], wanted: list[int] | None
) -> None:
    from whet.models.huggingface_generate import shared_beginnings

    assert shared_beginnings(sequences) == wanted


async def test_rows_that_are_over_leave_the_batch(saved: Saved) -> None:
    model = load(str(saved(llama, "causal")), device="cpu")
    asked = [request("the film was", max_tokens=n, temperature=1.0, seed=n) for n in (1, 2, 3, 4, 20, 21)]
    together = await model.generate_batch(asked)
    assert [await model.generate(one) for one in asked] == together
    assert [
        found[0].usage.output_tokens <= one.max_tokens for one, found in zip(asked, together, strict=True)
    ]
    await model.close()


async def test_equal_greedy_requests_are_computed_once(saved: Saved, monkeypatch: pytest.MonkeyPatch) -> None:
    from whet.models import huggingface_generate

    rows = []
    inner = huggingface_generate.generate_rows
    monkeypatch.setattr(
        huggingface_generate,
        "generate_rows",
        lambda weights, batch, *how: rows.extend(batch) or inner(weights, batch, *how),
    )
    model = load(str(saved(llama, "causal")), device="cpu")
    asked = [request("the film"), request("the film"), request("the film", max_tokens=3), request("it is")]
    first, second, *_ = await model.generate_batch(asked)
    assert first == second and len(rows) == 3
    await model.close()


async def test_a_model_without_positions_is_served_by_its_own_generate(saved: Saved) -> None:
    from whet.models.huggingface_generate import can_decode

    assert can_decode(load(str(saved(llama, "causal")), device="cpu").weights)
    assert not can_decode(load(str(saved(t5, "seq2seq")), device="cpu").weights)


def test_the_cache_grows_in_place_and_beyond_its_room() -> None:
    from transformers import DynamicCache

    from whet.models.huggingface_cache import RoomyLayer, give_room

    generator = torch.Generator().manual_seed(1)
    parts = [torch.randn(3, 2, n, 4, generator=generator) for n in (5, 1, 1, 1, 4)]
    cache, plain = DynamicCache(), DynamicCache()
    for at, part in enumerate(parts):
        seen, wanted = cache.update(part, -part, 0), plain.update(part, -part, 0)
        assert torch.equal(seen[0], wanted[0]) and torch.equal(seen[1], wanted[1])
        if at == 0:
            give_room(cache, 2)
            assert isinstance(cache.layers[0], RoomyLayer)
    rows = torch.tensor([2, 0, 0])
    cache.batch_select_indices(rows)
    assert torch.equal(cache.layers[0].keys, plain.layers[0].keys[rows])
    assert cache.get_seq_length() == 12
