"""The arithmetic of one update: from samples and advantages to the gradient of a minibatch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import torch
from torch import Tensor

from whet.errors import UsageError
from whet.rl import losses
from whet.rl.guided_rollouts import shaped
from whet.rl.policy_model.backbone import Backbone, Tensors
from whet.rl.policy_model.sample import Sample
from whet.rl.policy_model.scoring import TokenScores, own_tokens, padded, parts, read
from whet.rl.policy_model.settings import Update

Rows = list[list[float]]


@dataclass(frozen=True)
class UpdateBatch:
    """What an update knows of its samples before it begins, all per response token.

    `advantages`; `ref`: log-probabilities of the reference, None where nothing needs them; `returns`: what the
    critic is to foretell, None without one; `hinted`: samples whose `logprobs` are those of another prompt
    with a hint, and `gamma` that shapes their ratios. `whole`: samples and own tokens of the minibatch that this is a
    share of, whose loss is the sum of the losses of its shares; None where this is the whole.
    """

    samples: Sequence[Sample]
    advantages: Rows
    ref: Rows | None = None
    returns: Rows | None = None
    hinted: Sequence[bool] = ()
    gamma: float = 0.0
    whole: tuple[int, int] | None = None

    @property
    def size(self) -> tuple[int, int]:
        """Number of samples and of own tokens."""
        return len(self.samples), sum(sum(sample.own) for sample in self.samples)

    def take(self, places: Sequence[int], whole: tuple[int, int] | None = None) -> UpdateBatch:
        """The samples at these places, as a batch of their own or as a share of `whole`."""
        return UpdateBatch(
            [self.samples[i] for i in places],
            [self.advantages[i] for i in places],
            None if self.ref is None else [self.ref[i] for i in places],
            None if self.returns is None else [self.returns[i] for i in places],
            [self.hinted[i] for i in places] if self.hinted else (),
            self.gamma,
            whole,
        )

    def to_json(self) -> dict[str, Any]:
        """The batch as JSON, for another process."""
        plain = {part.name: getattr(self, part.name) for part in fields(UpdateBatch)}
        return {**plain, "samples": [sample.to_json() for sample in self.samples]}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> UpdateBatch:
        """The batch that `to_json` wrote."""
        return cls(**{**value, "samples": [Sample.from_json(sample) for sample in value["samples"]]})


@dataclass
class Figures:
    """Sums over the own tokens of an update: what is divided by `tokens` is a mean."""

    loss: float = 0.0
    tokens: float = 0.0
    kl: float = 0.0
    entropy: float = 0.0
    clipped: float = 0.0
    critic: float = 0.0

    def add(self, other: Figures) -> None:
        """Add the sums of another share or minibatch."""
        for part in fields(Figures):
            setattr(self, part.name, getattr(self, part.name) + getattr(other, part.name))

    def means(self, passes: int, *, ref: bool, critic: bool) -> dict[str, float]:
        """`loss` as a mean over `passes`, the others over tokens; `kl` and `critic_loss` where they were computed."""
        tokens = max(1.0, self.tokens)
        means = {
            "loss": self.loss / max(1, passes),
            "entropy": self.entropy / tokens,
            "clip_fraction": self.clipped / tokens,
            "tokens": self.tokens,
        }
        means |= {"kl": self.kl / tokens} if ref else {}
        return means | ({"critic_loss": self.critic / tokens} if critic else {})


def add_gradients(
    body: Backbone, critic: Tensors, batch: UpdateBatch, settings: Update, batch_tokens: int, figures: Figures
) -> None:
    """Add the gradient of the batch's loss to `.grad` of the trainable weights and of the critic.

    The batch is read in parts that fit the memory; the parts' gradients add up to that of the whole.
    """
    own = own_tokens(batch.samples, body.device)
    here, (samples, tokens) = batch.size, batch.whole or batch.size
    share = here[1] / max(1, tokens) if settings.aggregation == "token" else here[0] / samples
    weights = losses.token_weights(own, settings.aggregation, settings.length) * share
    for part in parts(batch.samples, batch_tokens, body.vocabulary):
        piece = batch.take(range(len(batch.samples))[part])
        heat = [sample.temperature for sample in piece.samples]
        reading = read(body, piece.samples, heat, states=piece.returns is not None)
        width = reading.own.shape[1]
        loss = _loss(reading, piece, settings, weights[part, :width], samples, figures)
        if reading.hidden is not None and piece.returns is not None:
            loss = loss + _critic_loss(reading, critic, piece.returns, tokens, figures)
        loss.backward()  # type: ignore[no-untyped-call]


def _loss(
    reading: TokenScores, batch: UpdateBatch, settings: Update, weights: Tensor, whole: int, figures: Figures
) -> Tensor:
    """The part's share in the loss of its batch of `whole` samples."""
    device = str(reading.own.device)
    own, logprobs = reading.own, reading.logprobs
    advantages = padded(batch.advantages, device)
    old = padded([sample.logprobs for sample in batch.samples], device)
    ref = None if batch.ref is None else padded(batch.ref, device)
    if settings.loss == "dro" and ref is not None:
        each = losses.dro(
            (logprobs * own).sum(1), (ref * own).sum(1), _per_sample(advantages, own), settings.kl
        )
        loss = each.sum() / whole
    else:
        tokens = _token_loss(logprobs, old, advantages, batch, settings)
        if ref is not None:
            tokens = tokens + settings.kl * losses.kl(settings.kl_kind, logprobs, ref)
        loss = (tokens * weights).sum()
    if settings.entropy:
        loss = loss - settings.entropy * (reading.entropy * weights).sum()
    with torch.no_grad():
        figures.loss += float(loss)
        figures.tokens += float(own.sum())
        figures.entropy += float((reading.entropy * own).sum())
        bounds = (settings.clip_low, settings.clip_high)
        if settings.loss == "ppo":
            figures.clipped += float((losses.clipped(logprobs, old, advantages, *bounds) * own).sum())
        if ref is not None:
            figures.kl += float((losses.kl("k3", logprobs, ref) * own).sum())
    return loss


def _per_sample(advantages: Tensor, own: Tensor) -> Tensor:
    """Mean of the advantages (B, T) over own tokens: (B,)."""
    return (advantages * own).sum(1) / own.sum(1).clamp_min(1)


def _token_loss(
    logprobs: Tensor, old: Tensor, advantages: Tensor, batch: UpdateBatch, settings: Update
) -> Tensor:
    """The policy's loss per token (B, T), without the divergence."""
    if settings.loss == "ppo":
        plain = losses.ppo(logprobs, old, advantages, settings.clip_low, settings.clip_high)
    elif settings.loss == "cispo":
        plain = losses.cispo(logprobs, old, advantages, settings.clip_low, settings.clip_high)
    elif settings.loss == "importance":
        plain = losses.importance(logprobs, old, advantages)
    else:
        plain = losses.reinforce(logprobs, advantages)
    if not any(batch.hinted):
        return plain
    hinted = torch.tensor(batch.hinted, device=logprobs.device)[:, None]
    return torch.where(hinted, -shaped((logprobs - old).exp(), batch.gamma) * advantages, plain)


def _critic_loss(
    reading: TokenScores, critic: Tensors, returns: Rows, tokens: int, figures: Figures
) -> Tensor:
    """The part's share in half the squared error of the critic, mean over the `tokens` own tokens of its batch."""
    values = foretold(reading, critic)
    error = ((values - padded(returns, str(values.device))).square() * reading.own).sum() / 2
    figures.critic += float(error.detach())
    return error / max(1, tokens)


def foretold(reading: TokenScores, critic: Tensors) -> Tensor:
    """The critic's value of the state before each token, (B, T): a linear map of the last hidden state."""
    assert reading.hidden is not None
    return reading.hidden @ critic["weight"] + critic["bias"]


class Preferred(NamedTuple):
    """Sums over pairs: DPO loss as a share in the mean over the minibatch, pairs in the right order, and over their
    `tokens` own tokens log pi - log ref."""

    loss: float
    right: int
    gain: float
    tokens: int


def add_preference_gradients(
    body: Backbone, pairs: Sequence[tuple[Sample, Sample]], beta: float, batch_tokens: int, whole: int
) -> Preferred:
    """Add the gradient of the DPO loss of pairs (chosen, rejected), summed and divided by `whole`."""
    longer = [max(pair, key=lambda s: len(s.tokens)) for pair in pairs]
    total, right, gained, tokens = 0.0, 0, 0.0, 0
    for part in parts(longer, batch_tokens // 2, 2 * body.vocabulary):
        both = [chosen for chosen, _ in pairs[part]] + [rejected for _, rejected in pairs[part]]
        heat = [1.0] * len(both)
        with torch.no_grad():
            scores = read(body, both, heat, reference=True)
            ref = (scores.logprobs * scores.own).sum(1)
        reading = read(body, both, heat)
        now = (reading.logprobs * reading.own).sum(1)
        half = len(both) // 2
        each = losses.dpo(now[:half], now[half:], ref[:half], ref[half:], beta)
        (each.sum() / whole).backward()  # type: ignore[no-untyped-call]
        gain = (now - ref).detach()
        total, right = total + float(each.detach().sum()), right + int((gain[:half] > gain[half:]).sum())
        gained, tokens = gained + float(gain.sum()), tokens + int(reading.own.sum())
    return Preferred(total / whole, right, gained, tokens)


def per_token(advantage: Sequence[float] | float, sample: Sample) -> list[float]:
    """One number for each response token. Raises UsageError when there are more or fewer."""
    if isinstance(advantage, int | float):
        return [float(advantage)] * len(sample.tokens)
    if len(advantage) != len(sample.tokens):
        raise UsageError(f"{len(advantage)} advantages for a sample of {len(sample.tokens)} tokens.")
    return [float(one) for one in advantage]
