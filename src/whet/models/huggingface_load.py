"""From a path or a hub name to weights in memory, and from messages to the tokens that they see."""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import logging
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from whet.errors import ProviderError, UsageError
from whet.types import Message

if TYPE_CHECKING:
    from torch import Tensor

Kind = Literal["causal", "seq2seq", "masked"]

INSTALL = "pip install 'whet[hf]'"
_UNLIMITED = 10**9
_GGUF = ".gguf"
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")
_CLASSES = {
    "causal": "AutoModelForCausalLM",
    "seq2seq": "AutoModelForSeq2SeqLM",
    "masked": "AutoModelForMaskedLM",
}

_log = logging.getLogger("whet.models")

T = TypeVar("T")


@dataclass(frozen=True)
class BatchPart:
    """The batches of a call that this worker computes: the first of them after `skipped`, and then every `every`-th. So as many
    workers share a call, and each batch holds the rows that it holds in one process."""

    skipped: int = 0
    every: int = 1

    def of(self, batches: Iterable[T]) -> Iterable[T]:
        """Those of the batches.

        >>> list(BatchPart(1, 3).of("abcdefgh"))
        ['b', 'e', 'h']
        """
        return itertools.islice(batches, self.skipped, None, self.every)


WHOLE = BatchPart()


@dataclass
class Weights:
    """A model with its tokenizer."""

    torch: Any
    model: Any
    """None: only texts are read."""
    tokenizer: Any
    kind: Kind
    device: str
    lead: tuple[int, ...]
    """The special tokens that the tokenizer puts before a text."""
    tail: tuple[int, ...]
    """The special tokens that the tokenizer puts after a text."""
    start: int
    """The token that an empty text begins with."""
    pad: int
    limit: int
    """The longest sequence that the model takes, in tokens."""
    chat: bool
    warned: bool = False

    def encode(self, text: str) -> list[int]:
        """Tokens of a text; a special token spelled out in it stays ordinary text."""
        ids: list[int] = self.tokenizer(
            encodable(text), add_special_tokens=False, split_special_tokens=True, verbose=False
        )["input_ids"]
        return ids

    def text(self, messages: Sequence[Message]) -> str:
        """The model's input: the messages in the tokenizer's chat template, or joined by blank lines.

        A conversation that ends with an assistant message is continued in that message. A template that
        knows no system role gets its text at the head of the first user message. Raises ProviderError when
        the template refuses the conversation.
        """
        if not self.chat:
            return "\n\n".join(m.content for m in messages)
        turns = [m.as_object() for m in messages]
        try:
            return self._apply_template(turns)
        except Exception as error:  # a template is a program of the model's author and raises what it likes
            refusal = error
        try:
            return self._apply_template(_without_system(turns))
        except Exception:
            raise ProviderError(f"the model's chat template refuses the messages: {refusal}") from refusal

    def _apply_template(self, turns: list[dict[str, str]]) -> str:
        prefilled = turns[-1]["role"] == "assistant"
        text: str = self.tokenizer.apply_chat_template(
            turns, tokenize=False, add_generation_prompt=not prefilled, continue_final_message=prefilled
        )
        return text

    def read(self, messages: Sequence[Message]) -> tuple[str, list[int]]:
        """The text that the model reads and its tokens, special ones included; never empty."""
        return self.text(messages), self.read_all([messages])[0]

    def read_all(self, conversations: Sequence[Sequence[Message]]) -> list[list[int]]:
        """The tokens of `read` for each conversation; every distinct text is encoded once."""
        texts = [self.text(messages) for messages in conversations]
        distinct = list(dict.fromkeys(texts))
        if not distinct:
            return []
        options: dict[str, object] = {"add_special_tokens": False, "verbose": False}
        if not self.chat:
            options["split_special_tokens"] = True
        encoded = self.tokenizer([encodable(text) for text in distinct], **options)["input_ids"]
        ends = ((), ()) if self.chat else (self.lead, self.tail if self.kind == "seq2seq" else ())
        known = {
            text: [*ends[0], *ids, *ends[1]] or [self.start]
            for text, ids in zip(distinct, encoded, strict=True)
        }
        return [known[text] for text in texts]

    def pad_rows(self, rows: Sequence[Sequence[int]], *, left: bool = False) -> tuple[Any, Any]:
        """Rows of tokens filled up behind, or on the left, and their mask: int64 (B, T) each, T at least 1."""
        width = max(1, *map(len, rows))
        ids = self.torch.full((len(rows), width), self.pad)
        mask = self.torch.zeros_like(ids)
        for i, row in enumerate(rows):
            at = slice(width - len(row), None) if left else slice(0, len(row))
            ids[i, at] = self.torch.tensor(row, dtype=ids.dtype)
            mask[i, at] = 1
        return ids.to(self.device), mask.to(self.device)

    def fit(self, ids: list[int], room: int) -> list[int]:
        """`ids` cut to `room` tokens in the middle, where instructions and cue do not stand; warns once."""
        if len(ids) <= room:
            return ids
        if not self.warned:
            self.warned = True
            _log.warning("texts longer than the model's %d tokens are cut in the middle", self.limit)
        head = max(0, room) // 2
        return ids[:head] + ids[len(ids) - (max(0, room) - head) :]


def positions(mask: Tensor) -> Tensor:
    """Position of each token among those that `mask` (B, T) lets through; 0 for the others."""
    return (mask.cumsum(-1) - 1).clamp(min=0)


def encodable(text: str) -> str:
    """The text with a question mark for each lone surrogate, which no tokenizer reads."""
    return text.encode("utf-8", "replace").decode()


def _without_system(turns: list[dict[str, str]]) -> list[dict[str, str]]:
    """The conversation with its leading system message merged into the user message that follows."""
    if turns[0]["role"] != "system":
        return turns
    system, rest = turns[0]["content"], turns[1:]
    if rest and rest[0]["role"] == "user":
        return [{"role": "user", "content": f"{system}\n\n{rest[0]['content']}"}, *rest[1:]]
    return [{"role": "user", "content": system}, *rest]


def gguf_of(name: str) -> tuple[str, str | None]:
    """The folder of a model, and the GGUF file that holds it: the file that `name` ends with, or the only GGUF file of a folder
    without other weights. None for a model in transformers' own format.
    """
    if name.endswith(_GGUF):
        place, _, file = name.rpartition("/")
        return place or ".", file
    folder = Path(name)
    files = [] if (folder / "config.json").is_file() else sorted(folder.glob(f"*{_GGUF}"))
    return name, files[0].name if len(files) == 1 else None


def load_weights(name: str, device: str | None, *, reader: bool = False) -> Weights:
    """Weights of the model in a local folder, in a GGUF file or of a hub name, in evaluation mode; as a `reader` without them.

    float32 on a CPU, bfloat16 on a CUDA device; `device` None takes CUDA where there is one. Only
    safetensors and GGUF files are read and no code of the model's author is run. Raises UsageError.
    """
    torch, transformers = _checked_libraries(name)
    place, file = gguf_of(name)
    where: dict[str, object] = {} if file is None else {"gguf_file": file}
    from safetensors import SafetensorError

    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        with without_progress_bars():
            config = transformers.AutoConfig.from_pretrained(place, trust_remote_code=False, **where)
            kind = model_kind(config, transformers)
            tokenizer = transformers.AutoTokenizer.from_pretrained(
                place, config=config, trust_remote_code=False, **where
            )
            model = None
            if not reader:
                model = getattr(transformers, _CLASSES[kind]).from_pretrained(
                    place,
                    dtype=torch.bfloat16 if device.startswith("cuda") else torch.float32,
                    use_safetensors=True,
                    trust_remote_code=False,
                    config=config,
                    **where,
                    **({"quantization_config": transformers.GgufConfig(dequantize=True)} if file else {}),
                )
                model = model.to(device).eval()
    except (OSError, ValueError, ImportError, RuntimeError, SafetensorError) as error:
        raise UsageError(f"hf/{name} cannot be loaded on {device}: {describe_failure(error)}") from error
    lead, tail = _special_ends(tokenizer)
    bos, eos, pad = tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id
    start, pad = _first(bos, eos, pad), _first(pad, eos, bos)
    if model is not None and kind != "masked":
        model.generation_config = _plain_generation(model, tokenizer, pad, transformers)
    chat = kind == "causal" and bool(tokenizer.chat_template)
    limit = _limit(config, tokenizer)
    return Weights(torch, model, tokenizer, kind, device, lead, tail, start, pad, limit, chat)


@contextmanager
def without_progress_bars() -> Iterator[None]:
    """Keep transformers from drawing progress bars on the terminal inside the block."""
    bars: Any = importlib.import_module("transformers.utils.logging")
    shown = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            bars.enable_progress_bar()


def describe_failure(error: Exception) -> str:
    """The first line of an error of a library that says something, else the error's class."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def is_hub_name(name: str) -> bool:
    """Whether a name has the form of one on the hub: OWNER/NAME, or NAME."""
    return _HUB_NAME.fullmatch(name) is not None


def _checked_libraries(name: str) -> tuple[Any, Any]:
    """torch and transformers, once `name` is known to be a place and what its form needs is installed. Raises UsageError."""
    place, file = gguf_of(name)
    local = os.path.isfile(Path(place) / file) if file else os.path.isdir(place)
    if not local and not is_hub_name(place):
        what, hub = ("file", f"OWNER/NAME/FILE{_GGUF}") if file else ("folder", "OWNER/NAME")
        raise UsageError(f"hf/{name} cannot be loaded: there is no {what} {name}, and a hub name is {hub}.")
    torch, transformers = _libraries()
    if file and not (importlib.util.find_spec("gguf") and hasattr(transformers, "GgufConfig")):
        raise UsageError(
            f"hf/{name} is a GGUF file. Reading it needs: pip install --upgrade gguf accelerate transformers"
        )
    return torch, transformers


def _first(*tokens: int | None) -> int:
    return next((token for token in tokens if token is not None), 0)


def _libraries() -> tuple[object, object]:
    try:
        import torch
        import transformers
    except ImportError as error:
        raise UsageError(
            f"hf/... and embedded/tiny need torch and transformers. Install them with: {INSTALL}"
        ) from error
    return torch, transformers


def model_kind(config: Any, transformers: Any) -> Kind:
    """The kind of a model, from its configuration: the class that wrote it, then its type. Raises UsageError."""
    auto = transformers.models.auto.modeling_auto
    names = tuple(config.architectures or ())
    if config.is_encoder_decoder:
        return "seq2seq"
    if any(name.endswith("ForMaskedLM") for name in names):
        return "masked"
    if any(name.endswith(("ForCausalLM", "LMHeadModel")) for name in names):
        return "causal"
    if config.model_type in auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES:
        return "masked"
    if config.model_type in auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        return "causal"
    raise UsageError(f"a {config.model_type} model is neither causal, sequence-to-sequence nor masked.")


def _special_ends(tokenizer: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Special tokens before and after one text."""
    ids = tokenizer("a")["input_ids"]
    bare = tokenizer("a", add_special_tokens=False)["input_ids"]
    for start in range(len(ids) - len(bare) + 1):
        if ids[start : start + len(bare)] == bare:
            return tuple(ids[:start]), tuple(ids[start + len(bare) :])
    return (), ()


def _limit(config: Any, tokenizer: Any) -> int:
    text_config = config.get_text_config()
    positions = getattr(text_config, "max_position_embeddings", None)
    if positions and any(family in config.model_type for family in ("roberta", "camembert")):
        positions -= (text_config.pad_token_id or 0) + 1
    known = [n for n in (positions, tokenizer.model_max_length) if isinstance(n, int) and 0 < n < _UNLIMITED]
    return min(known, default=_UNLIMITED)


def _plain_generation(model: Any, tokenizer: Any, pad: int, transformers: Any) -> object:
    """Generation settings without the sampling habits that a model's author may have stored."""
    stored = model.generation_config
    eos = stored.eos_token_id if stored.eos_token_id is not None else tokenizer.eos_token_id
    return transformers.GenerationConfig(
        eos_token_id=eos,
        pad_token_id=pad,
        bos_token_id=stored.bos_token_id,
        decoder_start_token_id=stored.decoder_start_token_id,
        forced_bos_token_id=stored.forced_bos_token_id,
        do_sample=False,
        num_beams=1,
    )
