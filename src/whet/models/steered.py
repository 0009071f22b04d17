"""A frozen causal transformers model with a steering vector: numbers that are added to what a layer reads at the first positions.

It stands where the model itself stood (`Weights.model`), so that scoring and generation need not know of it. The module that
is hooked is shared with the model as it is; the hook acts only within a call of this wrapper, in the thread that made it.
"""

from __future__ import annotations

import functools
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from whet.errors import UsageError
from whet.models.huggingface_generate import can_decode
from whet.models.huggingface_load import Weights, positions
from whet.types import Message

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Steering:
    """`vector` (n, d) is added, times `coefficient`, to what layer `layer` (from 0) reads at positions 0 to n-1."""

    vector: Tensor
    layer: int
    coefficient: float


def layers_of(weights: Weights) -> Any:
    """The decoder layers of a causal model, in order. Raises UsageError where they cannot be found."""
    count = weights.model.config.get_text_config().num_hidden_layers
    for _, module in weights.model.named_modules():
        if isinstance(module, weights.torch.nn.ModuleList) and len(module) == count:
            return module
    raise UsageError("the layers of this model cannot be found, so nothing can be added before one of them.")


def head_of(weights: Weights) -> list[int]:
    """The tokens in front of the text of every user message: those of the chat template, or the leading special ones."""
    if not weights.chat:
        return list(weights.lead)
    first, second = (weights.read([Message("user", text)])[1] for text in ("a", "1"))
    same = next((i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), 0)
    return first[:same]


def residual_stream(weights: Weights, text: str, layer: int, length: int) -> Tensor:
    """The input of layer `layer` at each token of the head and a text, (length, d); a shorter text is padded with blanks.

    Behind the head, as in what the model reads later: the first position of a sequence has activations of its own kind.
    """
    blank = (weights.encode(" ") or [weights.pad])[0]
    ids = [*head_of(weights), *weights.encode(text)]
    ids = [*ids, *[blank] * (length - len(ids))][:length]
    with weights.torch.inference_mode():
        rows = weights.torch.tensor([ids], device=weights.device)
        out = weights.model(input_ids=rows, output_hidden_states=True, use_cache=False)
    states: Tensor = out.hidden_states[layer][0].float().clone()
    return states


def activation_difference(weights: Weights, plus: str, minus: str, layer: int) -> Tensor:
    """h(plus) - h(minus) before a layer, (n, d), both texts filled up to the same number of tokens (ActAdd, section 3).

    It is 0 in the head, which both share.
    """
    length = len(head_of(weights)) + max(len(weights.encode(text)) for text in (plus, minus))
    return residual_stream(weights, plus, layer, length) - residual_stream(weights, minus, layer, length)


def steered_weights(weights: Weights, steering: Steering) -> Weights:
    """The weights with a steering vector. Raises UsageError for a model that is not a causal one with explicit positions."""
    if not can_decode(weights):
        raise UsageError("a steering vector needs a causal model with explicit positions; this one has none.")
    return replace(weights, model=Steered(weights, steering))


class Steered:
    """The calls of a transformers model that whet makes, each with the steering vector added."""

    def __init__(self, weights: Weights, steering: Steering) -> None:
        self.base, self.steering = weights.model, steering
        self.config, self.generation_config = self.base.config, self.base.generation_config
        self._layer = layers_of(weights)[steering.layer]
        self._vector = (steering.vector * steering.coefficient).to(weights.device, self.base.dtype)

        @functools.wraps(self.base.forward)
        def forward(**inputs: Any) -> object:
            return self._run(**inputs)

        self.forward = forward

    def __call__(self, **inputs: Any) -> object:
        return self.forward(**inputs)

    def _run(self, *, input_ids: Tensor, attention_mask: Tensor, **inputs: Any) -> object:
        width = input_ids.shape[1]
        places, real = positions(attention_mask)[:, -width:], attention_mask[:, -width:]
        length = len(self._vector)
        within = ((places < length) & (real > 0))[..., None]
        if not bool(within.any()):
            return self.base(input_ids=input_ids, attention_mask=attention_mask, **inputs)
        added = self._vector[places.clamp(0, length - 1)] * within
        owner = threading.get_ident()

        def add(module: object, args: tuple[Tensor, ...], kwargs: dict[str, Tensor]) -> Any:
            if threading.get_ident() != owner:
                return None
            if args:
                return (args[0] + added, *args[1:]), kwargs
            return args, {**kwargs, "hidden_states": kwargs["hidden_states"] + added}

        handle = self._layer.register_forward_pre_hook(add, with_kwargs=True)
        try:
            return self.base(input_ids=input_ids, attention_mask=attention_mask, **inputs)
        finally:
            handle.remove()
