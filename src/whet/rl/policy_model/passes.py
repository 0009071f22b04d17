"""The passes over a writer's weights: what one process computes, for itself or as its share of a larger whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from whet.rl.policy_model.backbone import Backbone, Tensors
from whet.rl.policy_model.learning import (
    Figures,
    Preferred,
    Rows,
    UpdateBatch,
    add_gradients,
    add_preference_gradients,
    foretold,
)
from whet.rl.policy_model.optimizer import memory
from whet.rl.policy_model.sample import Sample
from whet.rl.policy_model.sampling import Sampling, SamplingRow, write
from whet.rl.policy_model.scoring import TokenScores, parts, read
from whet.rl.policy_model.settings import Update

KEYS_PER_STATE = (
    4  # a token that is only sampled takes at most this fraction of the memory of one that is learned
)
Pairs = Sequence[tuple[Sample, Sample]]


@dataclass(frozen=True)
class PolicyPasses:
    """Weights, critic, and how many tokens, padding included, one training pass holds."""

    body: Backbone
    critic: Tensors
    batch_tokens: int
    processes: int = 1

    def write(self, rows: Sequence[SamplingRow], how: Sampling) -> list[Sample]:
        """A sample for each row, in order."""
        return write(self.body, rows, how, KEYS_PER_STATE * self.batch_tokens)

    def readings(
        self,
        samples: Sequence[Sample],
        temperature: float | None = None,
        *,
        reference: bool = False,
        states: bool = False,
    ) -> Iterator[TokenScores]:
        """Forward passes over all samples, in parts that fit the memory. `temperature` None: each sample's own."""
        heat = [s.temperature if temperature is None else temperature for s in samples]
        for part in parts(samples, self.batch_tokens, self.body.vocabulary):
            yield read(self.body, samples[part], heat[part], reference=reference, states=states)

    @torch.no_grad()
    def measured(
        self, samples: Sequence[Sample], temperature: float | None = None, *, reference: bool = False
    ) -> tuple[Rows, Rows]:
        """Log-probabilities and entropies of each sample's tokens as plain numbers."""
        logprobs: Rows = []
        entropies: Rows = []
        for reading in self.readings(samples, temperature, reference=reference):
            logprobs += reading.logprobs.tolist()
            entropies += reading.entropy.tolist()
        return _cut(logprobs, samples), _cut(entropies, samples)

    @torch.no_grad()
    def values(self, samples: Sequence[Sample]) -> Rows:
        """The critic's value of the state before each token of each sample."""
        values: Rows = []
        for reading in self.readings(samples, states=True):
            values += foretold(reading, self.critic).tolist()
        return _cut(values, samples)

    def gradients(self, batch: UpdateBatch, settings: Update) -> Figures:
        """Add the gradient of the loss of a batch, or of its share in a larger one, to `.grad`."""
        figures = Figures()
        add_gradients(self.body, self.critic, batch, settings, self.batch_tokens, figures)
        return figures

    def preferences(self, pairs: Pairs, beta: float, whole: int) -> Preferred:
        """Add the gradient of the DPO loss of some of `whole` pairs (chosen, rejected) to `.grad`."""
        return add_preference_gradients(self.body, pairs, beta, self.batch_tokens, whole)

    def memory(self) -> float:
        """Most memory so far, in GiB."""
        return memory(self.body.device)

    def close(self) -> None:
        """Nothing: the weights go with the object."""


def _cut(rows: Rows, samples: Sequence[Sample]) -> Rows:
    return [row[: len(sample.tokens)] for row, sample in zip(rows, samples, strict=True)]
