"""A frozen transformers model that reads trained virtual tokens before every text.

It stands where the model itself stood (`Weights.model`), so that scoring and generation need not know of it. The
virtual tokens are given as what the model computes from them once and for all: for a causal model, and for the decoder
of a sequence-to-sequence one, the keys and values of every layer; for an encoder, embeddings.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from whet.errors import UsageError
from whet.models.huggingface_load import Weights

if TYPE_CHECKING:
    from torch import Tensor

KeysAndValues: TypeAlias = "Sequence[tuple[Tensor, Tensor]]"
"""For each layer keys and values of the virtual tokens, each (1, heads, tokens, width)."""


@dataclass(frozen=True)
class Virtual:
    """`count` virtual tokens: `states` of a causal model or a decoder, or `embeddings` (count, d) for an encoder."""

    count: int
    states: KeysAndValues = ()
    embeddings: Tensor | None = None


def prefix_weights(weights: Weights, virtual: Virtual) -> Weights:
    """The weights with virtual tokens before every text; these count against the model's limit.

    Raises UsageError for a masked model or when no room is left.
    """
    if weights.kind == "masked":
        raise UsageError("virtual tokens need a causal or a sequence-to-sequence model; this one is masked.")
    if weights.limit <= virtual.count:
        raise UsageError(
            f"{virtual.count} virtual tokens leave no room in the model's {weights.limit} tokens."
        )
    return replace(weights, model=Prefixed(weights, virtual), limit=weights.limit - virtual.count)


def states_of(model: Any, embeddings: Tensor) -> KeysAndValues:
    """Keys and values that a causal model computes from embeddings (tokens, d), with gradients."""
    cache = model(inputs_embeds=embeddings[None], use_cache=True).past_key_values
    return [(layer.keys, layer.values) for layer in cache.layers]


class Prefixed:
    """The calls of a transformers model that whet makes, each with the virtual tokens in front."""

    def __init__(self, weights: Weights, virtual: Virtual) -> None:
        self.base, self.virtual = weights.model, virtual
        self.config, self.generation_config = self.base.config, self.base.generation_config
        self._torch, self._causal = weights.torch, weights.kind == "causal"
        self._in_encoder = virtual.embeddings is not None
        inner = self._read if self._causal else self._translate

        @functools.wraps(self.base.forward)
        def forward(**inputs: Any) -> object:
            return inner(**inputs)

        self.forward = forward

    def __call__(self, **inputs: Any) -> object:
        return self.forward(**inputs)

    def get_encoder(self) -> object:
        """The encoder, virtual embeddings in front of what it reads."""
        return self._encode

    def generate(self, input_ids: Tensor, attention_mask: Tensor, **options: Any) -> Any:
        """Generate as the model's `generate` does; the virtual tokens are not in the answer or seen by the processors."""
        if self._in_encoder:
            states, mask = self._encode(input_ids, attention_mask), self._longer(attention_mask)
            return self.base.generate(encoder_outputs=states, attention_mask=mask, **options)
        count, rows = self.virtual.count, len(input_ids)
        for name in ("logits_processor", "stopping_criteria"):
            options[name] = [_Behind(one, count) for one in options.get(name, ())]
        options["past_key_values"] = self._cache(rows)
        blank = input_ids.new_full((rows, count), self.generation_config.pad_token_id or 0)
        if self._causal:
            ids, mask = self._torch.cat([blank, input_ids], 1), self._longer(attention_mask)
            return self.base.generate(input_ids=ids, attention_mask=mask, **options)[:, count:]
        start = input_ids.new_full((rows, 1), self.generation_config.decoder_start_token_id)
        options["decoder_input_ids"] = self._torch.cat([blank, start], 1)
        return self.base.generate(input_ids=input_ids, attention_mask=attention_mask, **options)[:, count:]

    def _read(
        self,
        *,
        attention_mask: Tensor,
        past_key_values: object = None,
        position_ids: Tensor | None = None,
        **inputs: Any,
    ) -> object:
        cache = self._cache(len(attention_mask)) if past_key_values is None else past_key_values
        if position_ids is not None:
            inputs["position_ids"] = position_ids + self.virtual.count
        return self.base(attention_mask=self._longer(attention_mask), past_key_values=cache, **inputs)

    def _translate(self, *, attention_mask: Tensor, **inputs: Any) -> object:
        if not self._in_encoder:
            inputs |= {"past_key_values": self._cache(len(attention_mask)), "use_cache": True}
            return self.base(attention_mask=attention_mask, **inputs)
        if "encoder_outputs" not in inputs:
            inputs["encoder_outputs"] = self._encode(inputs.pop("input_ids"), attention_mask)
        return self.base(attention_mask=self._longer(attention_mask), **inputs)

    def _encode(self, input_ids: Tensor, attention_mask: Tensor) -> Any:
        encoder = self.base.get_encoder()
        if self.virtual.embeddings is None:
            return encoder(input_ids=input_ids, attention_mask=attention_mask)
        words = self.base.get_input_embeddings()(input_ids)
        virtual = self.virtual.embeddings.to(words.dtype).expand(len(words), -1, -1)
        both = self._torch.cat([virtual, words], 1)
        return encoder(inputs_embeds=both, attention_mask=self._longer(attention_mask))

    def _longer(self, mask: Tensor) -> Tensor:
        longer: Tensor = self._torch.cat([mask.new_ones(len(mask), self.virtual.count), mask], 1)
        return longer

    def _cache(self, rows: int) -> object:
        from transformers import DynamicCache, EncoderDecoderCache

        states = [(k.expand(rows, -1, -1, -1), v.expand(rows, -1, -1, -1)) for k, v in self.virtual.states]
        cache = DynamicCache(states)
        return cache if self._causal else EncoderDecoderCache(cache, DynamicCache())


@dataclass(frozen=True)
class _Behind:
    """A logits processor or stopping criterion that sees the tokens behind the virtual ones."""

    inner: Any
    count: int

    def __call__(self, input_ids: Tensor, scores: Tensor) -> object:
        return self.inner(input_ids[:, self.count :], scores)
