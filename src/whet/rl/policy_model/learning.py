"""The passes over a policy's weights that one process makes, alone or for its share of a larger whole: writing, reading,
and the gradient of a minibatch."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from whet.rl import losses
from whet.rl.policy_model.backbone import Backbone, Tensors
from whet.rl.policy_model.forward import TokenScores, padded, parts, read
from whet.rl.policy_model.sample import Sample
from whet.rl.policy_model.sampling import Sampling, SamplingRow, write
from whet.rl.policy_model.settings import Update

Rows = list[list[float]]
KEYS_PER_STATE = 4
"""A token that is only sampled takes at most this fraction of the memory of one that is learned."""


@dataclass(frozen=True)
class UpdateBatch:
    """What an update knows of its samples before it begins, all per response token.

    `advantages`; `reference`: log-probabilities of the reference policy, None where nothing needs them; `returns`: what the
    critic is to predict, None without one. `whole`: own tokens of the minibatch that this is a share of, whose loss is
    the sum of the losses of its shares; 0 where this is the whole.
    """

    samples: Sequence[Sample]
    advantages: Rows
    reference: Rows | None = None
    returns: Rows | None = None
    whole: int = 0

    @property
    def tokens(self) -> int:
        """Number of own tokens."""
        return sum(sum(sample.own) for sample in self.samples)

    def take(self, places: Sequence[int], whole: int = 0) -> UpdateBatch:
        """The samples at these places, as a batch of their own or as a share of `whole` tokens."""
        return UpdateBatch(
            [self.samples[i] for i in places],
            [self.advantages[i] for i in places],
            None if self.reference is None else [self.reference[i] for i in places],
            None if self.returns is None else [self.returns[i] for i in places],
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
    """Sums over the own tokens of an update: what is divided by `tokens` is a mean. `loss` is a mean already."""

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

    def means(self, steps: int, *, reference: bool, critic: bool) -> dict[str, float]:
        """`loss` as a mean over `steps`, the others over tokens; `kl` and `critic_loss` where they were computed."""
        tokens = max(1.0, self.tokens)
        means = {
            "loss": self.loss / max(1, steps),
            "entropy": self.entropy / tokens,
            "clip_fraction": self.clipped / tokens,
            "tokens": self.tokens,
        }
        means |= {"kl": self.kl / tokens} if reference else {}
        return means | ({"critic_loss": self.critic / tokens} if critic else {})


@dataclass(frozen=True)
class PolicyPasses:
    """Weights, critic, and how many tokens, padding included, one training pass holds.

    `critic`: `weight` (d,) and `bias` of a linear map from the last hidden state to the value of a state.
    """

    body: Backbone
    critic: Tensors
    batch_tokens: int
    processes: int = 1

    def write(self, rows: Sequence[SamplingRow], how: Sampling) -> list[Sample]:
        """A sample for each row, in order."""
        return write(self.body, rows, how, KEYS_PER_STATE * self.batch_tokens)

    def scores(
        self, samples: Sequence[Sample], *, reference: bool = False, states: bool = False
    ) -> Iterator[TokenScores]:
        """Forward passes over all samples, in parts that fit the memory."""
        for part in parts(samples, self.batch_tokens, self.body.vocabulary):
            yield read(self.body, samples[part], reference=reference, states=states)

    @torch.no_grad()
    def logprobs(self, samples: Sequence[Sample], *, reference: bool = False) -> Rows:
        """Log-probabilities of each sample's tokens as plain numbers."""
        rows = [row for one in self.scores(samples, reference=reference) for row in one.logprobs.tolist()]
        return [row[: len(sample.tokens)] for row, sample in zip(rows, samples, strict=True)]

    @torch.no_grad()
    def values(self, samples: Sequence[Sample]) -> Rows:
        """The critic's value of the state before each token of each sample."""
        rows = [row for one in self.scores(samples, states=True) for row in self._predicted(one).tolist()]
        return [row[: len(sample.tokens)] for row, sample in zip(rows, samples, strict=True)]

    def gradients(self, batch: UpdateBatch, settings: Update) -> Figures:
        """Add the gradient of the loss of a batch, the mean over its own tokens, to `.grad` of weights and critic.

        The batch is read in parts that fit the memory; the parts' gradients add up to that of the whole.
        """
        figures, tokens = Figures(), max(1, batch.whole or batch.tokens)
        for part in parts(batch.samples, self.batch_tokens, self.body.vocabulary):
            piece = batch.take(range(len(batch.samples))[part])
            scores = read(self.body, piece.samples, states=piece.returns is not None)
            loss = _policy_loss(scores, piece, settings, figures) / tokens
            figures.loss += float(loss.detach())
            if piece.returns is not None:
                error = self._predicted(scores) - padded(piece.returns, self.body.device)
                squares = (error.square() * scores.own).sum() / 2
                figures.critic += float(squares.detach())
                loss = loss + squares / tokens
            loss.backward()  # type: ignore[no-untyped-call]
        return figures

    def _predicted(self, scores: TokenScores) -> Tensor:
        """The critic's value of the state before each token, (B, T)."""
        assert scores.hidden is not None
        return scores.hidden @ self.critic["weight"] + self.critic["bias"]

    def memory(self) -> float:
        """Most memory so far, in GiB."""
        return memory(self.body.device)

    def close(self) -> None:
        """Nothing: the weights go with the object."""


def _policy_loss(scores: TokenScores, batch: UpdateBatch, settings: Update, figures: Figures) -> Tensor:
    """The sum of the policy's loss over own tokens; what was seen on the way goes into the figures."""
    device, own, logprobs = str(scores.own.device), scores.own, scores.logprobs
    advantages = padded(batch.advantages, device)
    old = padded([sample.logprobs for sample in batch.samples], device)
    clip = settings.clip_low, settings.clip_high
    if settings.loss == "ppo":
        loss = losses.ppo(logprobs, old, advantages, *clip)
        figures.clipped += float((losses.clipped(logprobs.detach(), old, advantages, *clip) * own).sum())
    elif settings.loss == "importance":
        loss = losses.importance(logprobs, old, advantages)
    else:
        loss = losses.reinforce(logprobs, advantages)
    if batch.reference is not None:
        divergence = losses.kl(logprobs, padded(batch.reference, device))
        loss = loss + settings.kl * divergence
        figures.kl += float((divergence.detach() * own).sum())
    figures.tokens += float(own.sum())
    figures.entropy += float((scores.entropy.detach() * own).sum())
    return (loss * own).sum()


def memory(device: str) -> float:
    """Most memory of this process so far, in GiB: of the CUDA device, else resident."""
    if device.startswith("cuda"):
        return torch.cuda.max_memory_allocated(device) / 2**30
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30
