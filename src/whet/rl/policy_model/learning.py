"""The passes over a policy's weights that one process makes, alone or for its share of a larger whole: writing, reading, and
the gradient of a minibatch. A prompt that many samples share is read once."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor
from torch.func import functional_call

from whet.models.huggingface_load import positions
from whet.rl import losses
from whet.rl.advantages import Rows
from whet.rl.policy_model.backbone import Backbone
from whet.rl.policy_model.optimizer import WHOLE, Update
from whet.rl.policy_model.sampling import Sample, Sampling, SamplingRow, mask_logits, write_samples

T = TypeVar("T")
Whose = Literal["policy", "reference", "mask"]
"""The weights that read: the policy's, the reference policy's or those of NLPO's masking policy."""
SHARED = 2
"""From how many samples a prompt on average a prompt is read once for all of them."""
BATCH_LOGITS = 2**27
"""Most logits (rows x tokens x vocabulary) of one forward pass: 512 MiB in float32."""
KEYS_PER_STATE = 4
"""A token that is only sampled takes at most this fraction of the memory of one that is learned."""


@dataclass(frozen=True)
class TokenScores:
    """The policy's outputs for responses of at most T tokens: per token (B, T), padding last.

    `logprobs` of the written tokens and `entropy` of the whole distribution, in nats, at the samples' temperatures;
    `own` is 1 where the policy wrote the token and 0 elsewhere.
    """

    logprobs: Tensor
    own: Tensor
    entropy: Tensor


def batch_slices(samples: Sequence[Sample], batch_tokens: int, vocabulary: int) -> Iterator[slice]:
    """Slices of the samples, in order, whose padded batch stays within `batch_tokens` and `BATCH_LOGITS`."""
    start = prompt = response = 0
    for i, sample in enumerate(samples):
        prompt, response = max(prompt, len(sample.prompt)), max(response, len(sample.tokens))
        rows = i - start + 1
        if rows > 1 and (
            rows * (prompt + response) > batch_tokens or rows * response * vocabulary > BATCH_LOGITS
        ):
            yield slice(start, i)
            start, prompt, response = i, len(sample.prompt), len(sample.tokens)
    if samples:
        yield slice(start, len(samples))


def pad_rows(rows: Sequence[Sequence[float]], device: str) -> Tensor:
    """Rows of different lengths as float32 (B, T), zeros behind them."""
    width = max(map(len, rows))
    full = [[*map(float, row), *[0.0] * (width - len(row))] for row in rows]
    return torch.tensor(full, dtype=torch.float32, device=device)


def score_tokens(
    body: Backbone, samples: Sequence[Sample], *, reference: bool = False, mask: float = 0.0
) -> TokenScores:
    """One forward pass over all samples, prompts that they share once.

    With `reference` the adapters are off, or, where the body has an anchor, the trainable weights are the anchor's. With `mask`
    the policy is that of `mask_logits` with this share.
    Gradients flow to the trainable weights unless the caller has turned them off.
    """
    logits = _predictions(body, samples, "reference" if reference else "policy")
    tokens, _ = body.weights.pad_rows([sample.tokens for sample in samples])
    temperatures = torch.tensor([sample.temperature for sample in samples], device=body.device)[:, None, None]
    logits = logits.float() / temperatures
    if mask and body.mask is not None:
        with torch.no_grad():
            masking = _predictions(body, samples, "mask").float() / temperatures
        logits = mask_logits(logits, masking, mask, tokens)
    logprobs = logits.log_softmax(-1)
    return TokenScores(
        logprobs.gather(-1, tokens[..., None])[..., 0],
        pad_rows([sample.own for sample in samples], body.device),
        -(logprobs.exp() * logprobs).sum(-1),
    )


def _predictions(body: Backbone, samples: Sequence[Sample], whose: Whose) -> Tensor:
    """Logits (B, T, V) before each response token.

    Where samples share their prompts, each prompt is read once and gradients flow through its keys and values.
    """
    if len({sample.prompt for sample in samples}) * SHARED <= len(samples):
        shared = _predict_with_shared_prompts(body, samples, whose)
        if shared is not None:
            return shared
    longest = max(1, *(len(sample.tokens) for sample in samples))
    logits: Tensor = _read_whole(body, samples, whose, logits_to_keep=longest + 1)[0].logits[:, :-1]
    return logits


def _read_whole(body: Backbone, samples: Sequence[Sample], whose: Whose, **options: Any) -> tuple[Any, int]:
    """The network's output for prompts and tokens together, and the width of the prompts, which are padded on the left."""
    prompts, read = body.weights.pad_rows([sample.prompt for sample in samples], left=True)
    tokens, written = body.weights.pad_rows([sample.tokens for sample in samples])
    mask = torch.cat([read, written], 1)
    with _network(body, whose) as network:
        out = network(
            input_ids=torch.cat([prompts, tokens], 1),
            attention_mask=mask,
            position_ids=positions(mask),
            use_cache=False,
            **options,
        )
    return out, prompts.shape[1]


def _predict_with_shared_prompts(body: Backbone, samples: Sequence[Sample], whose: Whose) -> Tensor | None:
    """`_predictions` with each distinct prompt read once; None for a model whose memory is not plain keys and values."""
    from transformers.cache_utils import DynamicLayer

    distinct = sorted({sample.prompt for sample in samples})
    place = {prompt: i for i, prompt in enumerate(distinct)}
    spread = torch.tensor([place[sample.prompt] for sample in samples], device=body.device)
    prompts, read = body.weights.pad_rows(distinct, left=True)
    with _network(body, whose) as network:
        first = network(
            input_ids=prompts,
            attention_mask=read,
            position_ids=positions(read),
            logits_to_keep=1,
            use_cache=True,
        )
        cache = first.past_key_values
        if any(type(layer) is not DynamicLayer for layer in getattr(cache, "layers", [None])):
            return None
        logits: Tensor = first.logits[spread]
        if max(len(sample.tokens) for sample in samples) == 1:
            return logits
        cache.reorder_cache(spread)
        tokens, written = body.weights.pad_rows([sample.tokens[:-1] for sample in samples])
        mask = torch.cat([read[spread], written], 1)
        out = network(
            input_ids=tokens,
            attention_mask=mask,
            position_ids=positions(mask)[:, -tokens.shape[1] :],
            past_key_values=cache,
            use_cache=True,
        )
    return torch.cat([logits, out.logits], 1)


@torch.no_grad()
def last_hidden_states(body: Backbone, samples: Sequence[Sample]) -> list[Tensor]:
    """The reference policy's last hidden state before each response token of each sample: float32 (T, d), on the CPU."""
    out, width = _read_whole(body, samples, "reference", logits_to_keep=1, output_hidden_states=True)
    hidden = out.hidden_states[-1][:, width - 1 : -1].float().cpu()
    return [row[: len(sample.tokens)] for row, sample in zip(hidden, samples, strict=True)]


@contextmanager
def _network(body: Backbone, whose: Whose) -> Iterator[Any]:
    """The callable for a forward pass."""
    others = {"policy": None, "reference": body.anchor, "mask": body.mask}[whose]
    with body.forward() as model, _adapters_off(model, whose == "reference" and others is None):
        yield model if others is None else lambda **inputs: functional_call(model, others, (), inputs)


def _adapters_off(model: Any, off: bool) -> AbstractContextManager[object]:
    context: AbstractContextManager[object] = model.disable_adapter() if off else nullcontext()
    return context


@dataclass(frozen=True)
class UpdateBatch:
    """The statistics of an update's samples before it begins."""

    samples: Sequence[Sample]
    advantages: Rows
    """Per token of the response."""
    reference: Rows | None = None
    """Per token: the log-probability under the reference policy; None: nothing needs it."""
    whole: int = 0
    """Own tokens of the minibatch that this is a share of, whose loss is the sum of its shares' losses; 0: this is the whole."""
    kl_weights: Rows | None = None
    """Per token: the weight of its divergence; None: 1."""
    weights: Sequence[float] | None = None
    """Per sample: the weight of each of its own tokens (of the sample, for losses of whole texts); None: the mean over own
    tokens."""
    centres: Sequence[float] | None = None
    """Per sample: the mean log-ratio of its group, for losses of whole texts."""

    @property
    def tokens(self) -> int:
        """Number of own tokens."""
        return sum(sum(sample.own) for sample in self.samples)

    def take(self, places: Sequence[int], whole: int = 0) -> UpdateBatch:
        """The samples at these places, as a batch of their own or as a share of `whole` tokens."""
        return UpdateBatch(
            [self.samples[i] for i in places],
            [self.advantages[i] for i in places],
            _take(self.reference, places),
            whole,
            _take(self.kl_weights, places),
            _take(self.weights, places),
            _take(self.centres, places),
        )

    def weigh(self, settings: Update) -> UpdateBatch:
        """This minibatch with the weights of `settings.aggregation`."""
        n, own = len(self.samples), [max(1, sum(sample.own)) for sample in self.samples]
        if settings.loss in WHOLE:
            return replace(self, weights=[1 / n] * n)
        if settings.aggregation == "sequence":
            return replace(self, weights=[1 / (n * length) for length in own])
        if settings.aggregation == "constant":
            return replace(self, weights=[1 / (n * settings.length)] * n)
        return self

    def to_json(self) -> dict[str, object]:
        """The batch as JSON, for another process."""
        plain = {part.name: getattr(self, part.name) for part in fields(UpdateBatch)}
        return {**plain, "samples": [sample.to_json() for sample in self.samples]}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> UpdateBatch:
        """The batch that `to_json` wrote."""
        return cls(**{**value, "samples": [Sample.from_json(sample) for sample in value["samples"]]})


def _take(items: Sequence[T] | None, places: Sequence[int]) -> list[T] | None:
    return None if items is None else [items[i] for i in places]


@dataclass
class Figures:
    """Sums over the own tokens of an update: what is divided by `tokens` is a mean. `loss` is a mean already."""

    loss: float = 0.0
    tokens: float = 0.0
    kl: float = 0.0
    entropy: float = 0.0
    clipped: float = 0.0

    def add(self, other: Figures) -> None:
        """Add the sums of another share or minibatch."""
        for part in fields(Figures):
            setattr(self, part.name, getattr(self, part.name) + getattr(other, part.name))

    def means(self, steps: int, *, reference: bool) -> dict[str, float]:
        """`loss` as a mean over `steps`, the others over tokens; `kl` where it was computed."""
        tokens = max(1.0, self.tokens)
        means = {
            "loss": self.loss / max(1, steps),
            "entropy": self.entropy / tokens,
            "clip_fraction": self.clipped / tokens,
            "tokens": self.tokens,
        }
        return means | ({"kl": self.kl / tokens} if reference else {})


@dataclass(frozen=True)
class PolicyPasses:
    """Weights, and how many tokens, padding included, one training pass holds."""

    body: Backbone
    batch_tokens: int
    processes: int = 1

    def write(self, rows: Sequence[SamplingRow], how: Sampling) -> list[Sample]:
        """A sample for each row, in order."""
        return write_samples(self.body, rows, how, KEYS_PER_STATE * self.batch_tokens)

    @torch.no_grad()
    def logprobs(self, samples: Sequence[Sample], *, reference: bool = False) -> Rows:
        """Log-probabilities of each sample's tokens as plain numbers."""
        fitting = batch_slices(samples, self.batch_tokens, self.body.vocabulary)
        passes = (score_tokens(self.body, samples[part], reference=reference) for part in fitting)
        rows = [row for one in passes for row in one.logprobs.tolist()]
        return [row[: len(sample.tokens)] for row, sample in zip(rows, samples, strict=True)]

    @torch.no_grad()
    def entropies(self, samples: Sequence[Sample], *, reference: bool = False) -> Rows:
        """Entropy in nats of the whole distribution before each sample's tokens as plain numbers."""
        fitting = batch_slices(samples, self.batch_tokens, self.body.vocabulary)
        passes = (score_tokens(self.body, samples[part], reference=reference) for part in fitting)
        rows = [row for one in passes for row in one.entropy.tolist()]
        return [row[: len(sample.tokens)] for row, sample in zip(rows, samples, strict=True)]

    def states(self, samples: Sequence[Sample]) -> list[Tensor]:
        """The reference policy's states before each token of each sample; see `states`."""
        fitting = batch_slices(samples, self.batch_tokens, self.body.vocabulary)
        return [row for part in fitting for row in last_hidden_states(self.body, samples[part])]

    def gradients(self, batch: UpdateBatch, settings: Update) -> Figures:
        """Add the gradient of the loss of a batch, the mean over its own tokens, to `.grad` of the weights.

        The batch is read in parts that fit the memory; the parts' gradients add up to that of the whole.
        """
        figures = Figures()
        tokens = 1 if batch.weights is not None else max(1, batch.whole or batch.tokens)
        for part in batch_slices(batch.samples, self.batch_tokens, self.body.vocabulary):
            piece = batch.take(range(len(batch.samples))[part])
            scores = score_tokens(self.body, piece.samples, mask=settings.mask)
            loss = _policy_loss(scores, piece, settings, figures) / tokens
            figures.loss += float(loss.detach())
            loss.backward()  # type: ignore[no-untyped-call]
        return figures

    def memory(self) -> float:
        """Most memory so far, in GiB."""
        return memory(self.body.device)

    def close(self) -> None:
        """Nothing: the weights go with the object."""


def _policy_loss(scores: TokenScores, batch: UpdateBatch, settings: Update, figures: Figures) -> Tensor:
    """The policy's loss, summed over own tokens or weighted; what was seen on the way goes into the figures."""
    device, own, logprobs = str(scores.own.device), scores.own, scores.logprobs
    figures.tokens += float(own.sum())
    figures.entropy += float((scores.entropy.detach() * own).sum())
    advantages = pad_rows(batch.advantages, device)
    old = pad_rows([sample.logprobs for sample in batch.samples], device)
    clip = settings.clip_low, settings.clip_high
    reference = None if batch.reference is None else pad_rows(batch.reference, device)
    divergence = (
        torch.zeros_like(own) if reference is None else losses.kl(logprobs, reference, settings.kl_estimator)
    )
    figures.kl += float((divergence.detach() * own).sum())
    if settings.loss in WHOLE:
        weights = torch.tensor(batch.weights, device=device)
        start = old if reference is None or settings.loss == "rebel" else reference
        ratios = losses.sequence_logprobs(logprobs - start, own)
        earned = losses.sequence_logprobs(advantages, own, mean=True)
        return (
            _whole_loss(ratios, earned, torch.tensor(batch.centres, device=device), settings) * weights
        ).sum()
    if settings.loss == "ppo":
        loss = losses.ppo(logprobs, old, advantages, *clip)
        ratio = (logprobs.detach() - old).exp()
        figures.clipped += float((losses.is_clipped(ratio, advantages, *clip) * own).sum())
    elif settings.loss == "gspo":
        loss = losses.gspo(logprobs, old, advantages, own, *clip)
        ratio = losses.sequence_ratio(logprobs.detach(), old, own)
        figures.clipped += float((losses.is_clipped(ratio, advantages, *clip) * own).sum())
    elif settings.loss == "cispo":
        loss = losses.cispo(logprobs, old, advantages, *clip)
    elif settings.loss == "importance":
        loss = losses.importance(logprobs, old, advantages)
    else:
        loss = losses.reinforce(logprobs, advantages)
    if reference is not None:
        if batch.kl_weights is not None:
            divergence = divergence * pad_rows(batch.kl_weights, device)
        loss = loss + settings.kl * divergence
    if batch.weights is not None:
        own = own * torch.tensor(batch.weights, device=device)[:, None]
    return (loss * own).sum()


def _whole_loss(ratios: Tensor, earned: Tensor, centres: Tensor, settings: Update) -> Tensor:
    """The loss of each text (B,) from its log-ratio and what it earned more than its group; `centres`: mean log-ratio there."""
    if settings.loss == "dro":
        tau = settings.kl
        return losses.dro(ratios, torch.zeros_like(ratios), earned + tau * centres, tau)
    return losses.regression(ratios, centres + settings.eta * earned)


def memory(device: str) -> float:
    """Most memory of this process so far, in GiB: of the CUDA device, else resident; 0 on Windows, which does not say."""
    if device.startswith("cuda"):
        return torch.cuda.max_memory_allocated(device) / 2**30
    try:
        import resource
    except ImportError:
        return 0.0
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30
