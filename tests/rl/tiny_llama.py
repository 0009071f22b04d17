"""A random Llama of two layers over a few words, saved to a folder: what writers are tested on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

VOCABULARY = """
<pad> <unk> <s> </s> [ system user assistant ] : . ;
write in capitals reversed the words end with mark short long say it twice good bad
a b c d e f g h i j k l
"""
WORDS = VOCABULARY.split()
PAD, UNK, BOS, EOS = range(4)
TEMPLATE = (
    "{% for m in messages %}[ {{ m['role'] }} ] {{ m['content'] }} </s> {% endfor %}"
    "{% if add_generation_prompt %}[ assistant ] {% endif %}"
)


def save(
    folder: Path,
    seed: int = 7,
    template: str | None = TEMPLATE,
    sharpness: float = 6.0,
    more: tuple[str, ...] = (),
    length: int = 128,
) -> Path:
    """The model and its tokenizer in `folder`. A larger `sharpness` makes its distributions less uniform.

    `more` words are added to its vocabulary; it reads at most `length` tokens.
    """
    import torch
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers

    torch.manual_seed(seed)
    config = transformers.LlamaConfig(
        vocab_size=len(WORDS) + len(more), hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=length,
        bos_token_id=BOS, eos_token_id=EOS, pad_token_id=PAD, tie_word_embeddings=True,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.0 if parameter.dim() < 2 else sharpness)
    model.save_pretrained(folder)
    words = Tokenizer(
        models.WordLevel({word: i for i, word in enumerate([*WORDS, *more])}, unk_token="<unk>")
    )
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = {"pad_token": "<pad>", "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    made: Any = transformers.PreTrainedTokenizerFast(tokenizer_object=words, **special)
    made.chat_template = template
    made.save_pretrained(folder)
    return folder
