"""A Llama of two layers that has learned, in seconds, to speak in the forms that tests need, with random content.

`consulting`: it asks about one of eight letters, then answers with what it was told. `reflecting`: it advises one
of eight letters, whatever it has read. Which letter is good it has to learn by itself.
"""

from __future__ import annotations

import os
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

from whet.environments.advice import RULES
from whet.methods.retroformer import REQUEST
from whet.rl.policy_model import LoraSettings, PolicyModel, Update
from whet.types import Message

LETTERS = ["a", "b", "c", "d", "e", "f", "g", "h"]
TAGS = ["think", "interaction_prompt", "answer", "interaction_response"]
PIECES = ["<pad>", "<unk>", "<s>", "</s>", "[", "]", "system", "user", "assistant", "so", "yes", "no"]
FRAMES = [f"<{slash}{tag}>" for tag in TAGS for slash in ("", "/")]
TEMPLATE = (
    "{% for m in messages %}{% if m['role'] != 'system' %}[ {{ m['role'] }} ] {{ m['content'] }} </s> {% endif %}"
    "{% endfor %}{% if add_generation_prompt %}[ assistant ] {% endif %}"
)


def ask(letter: str) -> str:
    """A turn that asks about a letter."""
    return f"<think> so </think> <interaction_prompt> {letter} </interaction_prompt>"


def finish(word: str) -> str:
    """A turn that answers."""
    return f"<think> so </think> <answer> {word} </answer>"


def told(word: str) -> str:
    """What the large model says, as the small one reads it; words are set apart for the tokenizer."""
    return f"<interaction_response>{word}</interaction_response>"


def made(base: Path) -> Path:
    """The model in a folder of a test session's `base`, made when it is first asked for; the workers of a session share it."""
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "talker"
    if not folder.exists():
        new = save(base / "new-talker")
        with suppress(OSError):  # another worker was first
            new.rename(folder)
    return folder


def save(folder: Path, seed: int = 3) -> Path:
    """A random model over these words, trained by imitation on both forms."""
    import torch
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers

    torch.set_num_threads(1)
    torch.manual_seed(seed)
    words = [*PIECES, *FRAMES, *LETTERS]
    config = transformers.LlamaConfig(
        vocab_size=len(words), hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128,
        bos_token_id=2, eos_token_id=3, pad_token_id=0, tie_word_embeddings=True, initializer_range=0.1,
    )  # fmt: skip
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    level = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    level.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split(tag_pattern(), "isolated")]
    )
    special = {"pad_token": "<pad>", "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    made: Any = transformers.PreTrainedTokenizerFast(tokenizer_object=level, **special)
    made.chat_template = TEMPLATE
    made.save_pretrained(folder)
    writer = PolicyModel.open(f"hf/{folder}", LoraSettings(rank=0), seed)
    rng = random.Random(seed)
    for _ in range(200):
        writer.imitate([pair(rng) for _ in range(16)], Update(lr=5e-3))
    writer.body.model.save_pretrained(folder)
    return folder


def tag_pattern() -> Any:
    """A tag is one piece, wherever it stands."""
    from tokenizers import Regex

    return Regex(r"</?\w+>")


def pair(rng: random.Random) -> tuple[list[Message], str]:
    """A conversation and how it goes on."""
    asked = " ".join(["so", *["what"] * rng.choice((0, 2, 3, 20, 30))])
    opening = [Message("system", RULES), Message("user", asked)]
    kind = rng.choice((0, 1, 1, 2))
    if kind == 0:
        return opening, ask(rng.choice(LETTERS))
    if kind == 1:
        word = rng.choice(("yes", "no"))
        return [
            *opening,
            Message("assistant", ask(rng.choice(LETTERS))),
            Message("user", told(word)),
        ], finish(word)
    attempt = " ".join(rng.choices(("yes", "no", "what"), k=rng.randint(1, 20)))
    asked = f"so question\n\nAttempt:\n{attempt}\n\nReward: 0.0\n\n{REQUEST}"
    return [Message("user", asked)], rng.choice(LETTERS)
