"""Small random transformers models over whole words, and a task for them, for tests of what is trained on a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from whet.environments.environment import Environment
from whet.models.huggingface import HuggingFaceModel, load
from whet.prompt import Prompt
from whet.rewards.text import ExactMatch
from whet.types import Example

SPECIAL = "[PAD] [UNK] [CLS] [SEP] [MASK] <s> </s>"
PLAIN = """the film was great bad dull a story of two sisters who meet again good poor very and sentiment is it
review label : . ! please sort say what you think one red blue green Sort Please day night sun moon"""
WORDS = [*SPECIAL.split(), *PLAIN.split()]
PAD, UNK, CLS, SEP, MASK, BOS, EOS = range(7)
START = "Sort it .\n<!-- whet:begin -->\nplease sort\n<!-- whet:end -->\nreview : {{input}} sentiment is"
MASKED = START + " {{mask}} ."


def tokenizer(kind: str) -> Any:
    """A word-level tokenizer with the special tokens of the kind."""
    import transformers
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
    return transformers.PreTrainedTokenizerFast(tokenizer_object=words, **special)


def network(family: str) -> Any:
    """A random model of the family llama, gpt2, t5 or bert."""
    import transformers

    size, ends = len(WORDS), {"bos_token_id": BOS, "eos_token_id": EOS, "pad_token_id": PAD}
    if family == "llama":
        return transformers.LlamaForCausalLM(transformers.LlamaConfig(
            vocab_size=size, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=64, **ends))  # fmt: skip
    if family == "gpt2":
        return transformers.GPT2LMHeadModel(transformers.GPT2Config(
            vocab_size=size, n_embd=32, n_layer=2, n_head=4, n_positions=64, **ends))  # fmt: skip
    if family == "t5":
        return transformers.T5ForConditionalGeneration(transformers.T5Config(
            vocab_size=size, d_model=32, d_kv=6, d_ff=48, num_layers=2, num_heads=4,
            pad_token_id=PAD, eos_token_id=EOS, decoder_start_token_id=PAD))  # fmt: skip
    return transformers.BertForMaskedLM(transformers.BertConfig(
        vocab_size=size, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=48, max_position_embeddings=64, pad_token_id=PAD))  # fmt: skip


KIND = {"llama": "causal", "gpt2": "causal", "t5": "seq2seq", "bert": "masked"}


def open_model(family: str, folder: Path) -> HuggingFaceModel:
    """The model of a family, saved in a folder and loaded from there; sharp weights, so that its answers differ."""
    import torch

    if not (folder / "config.json").is_file():
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(7)
            model = network(family)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(1.0 if parameter.dim() < 2 else 4.0)
        model.save_pretrained(folder)
        tokenizer(KIND[family]).save_pretrained(folder)
    return load(str(folder), device="cpu")


CUES = {"good": ("great", "sun", "day", "green"), "poor": ("dull", "moon", "night", "red")}


def examples(n: int, first: int = 0) -> tuple[Example, ...]:
    """`n` rows, numbered from `first`; a cue word decides the label."""
    found = []
    for i in range(first, first + n):
        label = ("good", "poor")[i % 2]
        text = f"a {('film', 'story', 'label')[i // 8 % 3]} of {CUES[label][i // 2 % 4]} {('and', 'very')[i % 3 == 0]}"
        found.append(Example(f"row-{i}", {"input": text}, label, {"input": text, "target": label}, text))
    return tuple(found)


def word_task(model: Any, *, scores: bool = True, train: int = 32, validation: int = 16) -> Environment:
    """Sort made-up sentences by their cue word."""
    labels = {"good": "good", "poor": "poor"} if scores else {}
    rows = examples(train), examples(validation, 1000)
    return Environment(model, ExactMatch(), *rows, labels, scores=scores)


def start(family: str = "llama") -> Prompt:
    """The prompt to begin with."""
    return Prompt.parse(MASKED if KIND[family] == "masked" else START)
