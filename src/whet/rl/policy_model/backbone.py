"""The model that a policy is: weights at an address, a few of them trainable, the others frozen."""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from whet.errors import UsageError
from whet.models.addresses import split_address
from whet.models.huggingface_generate import end_tokens
from whet.models.huggingface_load import Weights, gguf_of, load_weights

INSTALL = "pip install 'whet[train]'"
MEMORY = 2**31
"""Bytes that the activations of one training pass may take on a CPU; on CUDA a quarter of the device's memory."""
_KEPT = 17  # numbers that a layer keeps for the backward pass, per token and unit of width
_LEAST_TOKENS, _MOST_TOKENS = 1024, 32768
IDENTITY = ("config.json", "tokenizer.json")

Tensors = dict[str, Tensor]


@dataclass(frozen=True, slots=True)
class LoraSettings:
    """The weights that learn: low-rank adapters (LoRA, Hu et al. 2021, arXiv:2106.09685) of a frozen model.

    `rank` r and `alpha` scale an adapter's output by alpha / r; `rank=0` trains all weights of a small model.
    Adapted are all linear layers but the output.
    """

    rank: int = 8
    alpha: float = 16.0


@dataclass
class Backbone:
    """A causal model in this process."""

    address: str
    weights: Weights
    model: Any
    trainable: Tensors
    """The weights that learn, by name, in float32."""
    anchor: Tensors | None
    """The trainable weights of the reference policy; None: the reference policy is the model without adapters."""
    settings: LoraSettings
    ends: frozenset[int]
    """Its end tokens."""
    fingerprint: str
    """SHA-256 of its weight files, configuration and tokenizer."""
    precise: bool
    """Whether the forward pass runs in the weights' own precision; else in bfloat16 on float32 weights."""
    mask: Tensors | None = None
    """The trainable weights of NLPO's masking policy; None: there is none."""

    @property
    def device(self) -> str:
        """The device of the weights: cpu, cuda, ..."""
        return self.weights.device

    @property
    def vocabulary(self) -> int:
        """Number of tokens that a prediction chooses from."""
        return int(self.weights.model.config.get_text_config().vocab_size)

    @property
    def end(self) -> tuple[int, ...]:
        """The token that ends a given text: the tokenizer's, where it is one of the model's end tokens; none without
        any."""
        own = self.weights.tokenizer.eos_token_id
        return (own,) if own in self.ends else tuple(sorted(self.ends)[:1])

    def fix(self) -> None:
        """Make the present weights those of the reference policy."""
        self.anchor = self.copy_trainable()

    def copy_trainable(self) -> Tensors:
        """A copy of the present weights that learn."""
        return {name: weight.detach().clone() for name, weight in self.trainable.items()}

    @contextmanager
    def forward(self) -> Iterator[Any]:
        """The model to call, in the precision it computes with."""
        if self.precise:
            yield self.model
            return
        with torch.autocast(self.device.split(":")[0], torch.bfloat16):
            yield self.model


def tokens_at_once(body: Backbone) -> int:
    """Return the largest number of tokens in one training pass, padding included: 1,024 to 32,768, by the memory that they
    take."""
    return _tokens_of_a_pass(body.weights.model.config, body.device)


def _tokens_of_a_pass(config: Any, device: str) -> int:
    cuda = device.startswith("cuda")
    memory = torch.cuda.get_device_properties(device).total_memory // 4 if cuda else MEMORY
    return int(min(_MOST_TOKENS, max(_LEAST_TOKENS, memory // _activation_bytes(config, device))))


def _activation_bytes(config: Any, device: str) -> int:
    """Bytes that the layers keep of one token for the backward pass."""
    text = config.get_text_config()
    each = 2 if device.startswith("cuda") else 4
    return int(_KEPT * text.num_hidden_layers * text.hidden_size * each)


@dataclass(frozen=True, slots=True)
class MemoryForecast:
    """Bytes that a training takes by a formula.

    `weights`: the model. `learning`: 12 for each number that learns, its gradient and Adam's two moments in float32; 16 where a
    copy is the reference policy. `passes`, at most: for each token of the largest training pass 17 numbers a layer and unit of
    width, and one of float32 for each token of the vocabulary. `sampler`: what vLLM reserves of the GPU's memory, where it writes
    the texts.
    """

    weights: int
    learning: int
    passes: int
    sampler: int = 0

    @property
    def total(self) -> int:
        """All of it."""
        return self.weights + self.learning + self.passes + self.sampler


VLLM_SHARE = 0.3
"""The part of the GPU's memory that vLLM takes; the training has the rest."""


def forecast_memory(body: Backbone, tokens: int, *, sampler: str = "transformers") -> MemoryForecast:
    """The memory of a training whose passes hold at most this number of tokens; nothing is measured."""
    config = body.weights.model.config
    memory = _memory_of(body.model, config, body.device, tokens, anchored=body.anchor is not None)
    return replace(memory, sampler=_sampler_bytes(body.device, sampler))


def _sampler_bytes(device: str, sampler: str) -> int:
    """Bytes that vLLM reserves on a GPU in this process; without a GPU, or with another sampler, none."""
    if sampler != "vllm" or not device.startswith("cuda"):
        return 0
    return int(VLLM_SHARE * torch.cuda.get_device_properties(device).total_memory)


def _memory_of(model: Any, config: Any, device: str, tokens: int, *, anchored: bool) -> MemoryForecast:
    weights = sum(weight.numel() * weight.element_size() for weight in model.parameters())
    trained = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
    each = _activation_bytes(config, device) + 4 * int(config.get_text_config().vocab_size)
    return MemoryForecast(weights, (16 if anchored else 12) * trained, tokens * each)


def foresee_memory(
    address: str, settings: LoraSettings, *, anchored: bool = False, sampler: str = "transformers"
) -> MemoryForecast:
    """The memory of a model's training on this machine, by the same formula, from its local configuration: no weights are read
    and nothing is downloaded. `anchored`: the policy is a checkpoint, which is its own reference. `sampler`: what writes its
    texts.

    Raises UsageError for a model whose configuration is not on this machine, and for one that takes no adapters.
    """
    import transformers

    place, file = gguf_of(folder_of(address))
    if file is not None:
        raise UsageError(f"{address} is a GGUF file, whose sizes are known once it is read")
    device = device_for(address)
    kind = torch.bfloat16 if device == "cuda" else torch.float32
    try:
        config = transformers.AutoConfig.from_pretrained(
            place, trust_remote_code=False, local_files_only=True
        )
        with torch.device("meta"):
            model = transformers.AutoModelForCausalLM.from_config(config, dtype=kind)  # type: ignore[no-untyped-call]
            model.tie_weights()
            model.requires_grad_(False)
            if settings.rank:
                model = _add_adapters(address, model, settings)
    except (OSError, ValueError) as error:
        raise UsageError(f"the configuration of {address} cannot be read on this machine") from error
    if not settings.rank:
        model = model.float().requires_grad_(True)
    tokens = _tokens_of_a_pass(config, device)
    memory = _memory_of(model, config, device, tokens, anchored=anchored or not settings.rank)
    return replace(memory, sampler=_sampler_bytes(device, sampler))


def folder_of(address: str) -> str:
    """The place of the weights at `hf/PATH`, `hf/HUB-NAME` or `embedded/NAME`: a folder or the hub name.

    Raises UsageError for another provider or an embedded model that cannot be trained.
    """
    provider, name = split_address(address)
    if provider == "hf":
        return name
    if provider == "embedded":
        from whet.models import embedded

        folder = Path(embedded.__file__).parent / name
        if (folder / "config.json").is_file():
            return str(folder)
    raise UsageError(f'"{address}" has no weights to train. Give --policy hf/PATH or embedded/tiny.')


def device_for(address: str) -> str:
    """CUDA where there is one, else Apple's MPS, else the CPU; the embedded model stays there without CUDA."""
    if torch.cuda.is_available():
        return "cuda"
    apple = torch.backends.mps.is_available() and not address.startswith("embedded/")
    return "mps" if apple else "cpu"


def open_body(address: str, settings: LoraSettings, seed: int, device: str | None = None) -> Backbone:
    """The model at an address with fresh adapters; `seed` decides their first weights.

    `device` None takes `device_for(address)`.

    float32 on a CPU and on MPS; on CUDA bfloat16 with float32 adapters, and float32 weights computed in bfloat16 where all
    weights learn. Raises UsageError.
    """
    name = folder_of(address)
    weights = load_weights(name, device or device_for(address))
    if weights.kind != "causal":
        raise UsageError(f"{address} is a {weights.kind} model; a policy is a causal one.")
    cuda = weights.device.startswith("cuda")
    model = weights.model.requires_grad_(False)
    if settings.rank > 0:
        model = _with_adapters(address, model, settings, seed)
    elif settings.rank == 0:
        model = model.float().requires_grad_(True)
    else:
        raise UsageError(f"rank must be 0 (all weights) or more; this is {settings.rank}.")
    trainable = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    precise = settings.rank > 0 or not cuda
    body = Backbone(
        address, weights, model, trainable, None, settings, end_tokens(weights), fingerprint(name), precise
    )
    if settings.rank == 0:
        body.fix()
    return body


def _with_adapters(address: str, model: Any, settings: LoraSettings, seed: int) -> object:
    adapted = _add_adapters(address, model, settings)
    generator = torch.Generator().manual_seed(seed)
    for name, weight in adapted.named_parameters():
        if weight.requires_grad:
            _first_weights(name, weight, generator)
    return adapted


def _add_adapters(address: str, model: Any, settings: LoraSettings) -> Any:
    """The model with adapters, their weights as peft begins them."""
    try:
        import peft
    except ImportError as error:
        raise UsageError(f"Training adapters needs peft. Install it with: {INSTALL}") from error
    config = peft.LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,  # type: ignore[arg-type]
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", FutureWarning
            )  # peft asks transformers for names of its version 4
            warnings.filterwarnings(
                "ignore", message="fan_in_fan_out"
            )  # GPT-2's layers: peft sets it by itself
            return peft.get_peft_model(model, config).eval()
    except ValueError as error:
        raise UsageError(f"{address}: it takes no adapters: {error}") from error


@torch.no_grad()
def _first_weights(name: str, weight: Tensor, generator: torch.Generator) -> None:
    """A uniform in +-1 / sqrt(inputs), B zero: LoRA's start, drawn alike on every device."""
    if "lora_A" not in name:
        weight.zero_()
        return
    bound = 1 / math.sqrt(weight[0].numel())
    weight.copy_(torch.empty(weight.shape).uniform_(-bound, bound, generator=generator))


def divergence_error(what: str) -> UsageError:
    """The error of weights or gradients that are no numbers any more."""
    return UsageError(
        f"The training has diverged: {what} is not finite. Begin again with a smaller lr, a kl above 0, or fewer epochs."
    )


def fingerprint(name: str) -> str:
    """SHA-256 (64 hex digits) of the weights, configuration and tokenizer of a folder, a GGUF file or a downloaded hub
    model."""
    place, gguf = gguf_of(name)
    folder = Path(place)
    if not folder.is_dir():
        from transformers.utils.hub import cached_file

        folder = Path(str(cached_file(place, gguf or "config.json"))).parent
    files = (
        [folder / gguf]
        if gguf
        else sorted([*folder.glob("*.safetensors"), *(folder / one for one in IDENTITY)])
    )
    whole = hashlib.sha256()
    for file in files:
        if file.is_file():
            with file.open("rb") as stream:
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
            whole.update(f"{file.name} {digest}\n".encode())
    return whole.hexdigest()
