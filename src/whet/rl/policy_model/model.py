"""Writer: a language model whose weights are the policy. It writes texts and learns from their rewards."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

import whet.rl.policy_model.checkpoint as checkpoint
from whet.errors import UsageError
from whet.rl.guided_rollouts import gamma_of
from whet.rl.policy_model.backbone import Backbone, open_body, tokens_at_once
from whet.rl.policy_model.learning import Figures, Rows, UpdateBatch, per_token
from whet.rl.policy_model.optimizer import Optimizer
from whet.rl.policy_model.passes import PolicyPasses
from whet.rl.policy_model.sample import Sample
from whet.rl.policy_model.sampling import Sampling, rows_for
from whet.rl.policy_model.scoring import widened
from whet.rl.policy_model.settings import LoraSettings, Update
from whet.rl.policy_model.turns import between, joined
from whet.types import JSON, Message

if TYPE_CHECKING:
    from whet.rl.policy_model.distributed import WorkerGroup

Conversation = Sequence[Message]


class PolicyModel:
    """A causal language model with trainable weights, its optimiser and a place for bookkeeping.

    `address`: of the frozen base. `notes`: JSON values that a method must find again after a resume. `seconds`: time
    spent in `sampling` and `update`, times the number of processes (not saved). `batch_tokens`: most tokens, padding
    included, that one training pass holds; None takes what fits the memory. The reference policy is the same network with its
    adapters off (of a checkpoint: as it was exported), or as it was at the last `anchor()`.
    """

    def __init__(self, body: Backbone, seed: int, batch_tokens: int | None = None) -> None:
        self.body, self.address = body, body.address
        self.notes: dict[str, Any] = {}
        self.seconds = {"sampling": 0.0, "update": 0.0}
        self._base, self._anchored = body.anchor, False
        self._optimizer = Optimizer(body, seed)
        self._here = PolicyPasses(body, self._optimizer.critic, batch_tokens or tokens_at_once(body))
        self._all: PolicyPasses | WorkerGroup = self._here

    @classmethod
    def open(
        cls,
        address: str,
        settings: LoraSettings | None = None,
        seed: int = 0,
        device: str | None = None,
        processes: int = 1,
    ) -> PolicyModel:
        """The writer at `hf/PATH` or `embedded/tiny` with fresh adapters, or that of a folder that `export` wrote.

        `settings` None takes the checkpoint's, or the defaults. `seed` decides the first weights and the order of
        minibatches. `device` None takes CUDA where there is one. With several `processes` the others are started here
        and share in all work on the weights until `close()`; see `whet.rl.policy_model.distributed`. Raises UsageError when
        the model cannot be loaded, is not causal, or is not the one that the checkpoint was trained on.
        """
        writer = cls._open(address, settings, seed, device)
        if processes > 1:
            from whet.rl.policy_model.distributed import WorkerGroup

            writer._all = WorkerGroup(writer._here, processes)
        return writer

    @classmethod
    def _open(cls, address: str, settings: LoraSettings | None, seed: int, device: str | None) -> PolicyModel:
        folder = Path(address)
        if not (folder / checkpoint.CARD_FILE).is_file():
            return cls(open_body(address, settings or LoraSettings(), seed, device), seed)
        card, blob = checkpoint.read_folder(folder)
        trained = checkpoint.check_settings(folder, card, settings)
        body = open_body(str(card["address"]), trained, seed, device)
        checkpoint.check_base(str(folder), card, body.address, body.fingerprint)
        checkpoint.fill(body.trainable, checkpoint.unpack(blob)[0], "weights")
        body.fix()
        return cls(body, seed)

    def close(self) -> None:
        """End the other processes, where there are some: this one does all the work from then on."""
        self._all.close()
        self._all = self._here

    @property
    def batch_tokens(self) -> int:
        """Most tokens, padding included, that one training pass holds."""
        return self._here.batch_tokens

    @property
    def updates(self) -> int:
        """Steps of the optimiser so far."""
        return self._optimizer.steps()["weights"]

    @property
    def settings(self) -> LoraSettings:
        """Which weights learn."""
        return self.body.settings

    def read(self, conversation: Conversation) -> tuple[int, ...]:
        """The tokens of a conversation as this model reads them, ready for its answer."""
        return tuple(self.body.weights.read(tuple(conversation))[1])

    def given(self, conversation: Conversation, text: str) -> Sample:
        """A text that somebody else wrote as if this writer had, end token included; its log-probabilities are 0."""
        ids = [*self.body.weights.encode(text), *self.body.end]
        return Sample(text, self.read(conversation), tuple(ids), (0.0,) * len(ids), (True,) * len(ids), True)

    def sample(
        self,
        conversations: Sequence[Conversation],
        n: int = 1,
        *,
        temperature: float | Sequence[float] = 1.0,
        max_tokens: int = 64,
        seed: int = 0,
        stop: Sequence[str] = (),
        top_p: float = 1.0,
    ) -> list[list[Sample]]:
        """`n` texts after each conversation, in order: (conversations, n).

        `temperature`: 0 is greedy; one for all, or one for each conversation. A text depends on the weights, its
        conversation and the seed, not on the batch, beyond rounding; the same conversation given
        twice gets different texts. A conversation too long for the model is cut in the middle.
        """
        heat = self._heat(temperature, len(conversations))
        with self._timed("sampling"):
            weights = self.body.weights
            prompts = [weights.fit(list(self.read(c)), weights.limit - max_tokens) for c in conversations]
            how = Sampling(max_tokens, seed, tuple(stop), top_p)
            samples = self._all.write(rows_for(prompts, n, heat, how), how)
        return [samples[i * n : (i + 1) * n] for i in range(len(conversations))]

    def converse(
        self,
        samples: Sequence[Sample],
        replies: Sequence[Conversation],
        *,
        temperature: float | Sequence[float] = 1.0,
        max_tokens: int = 64,
        seed: int = 0,
        stop: Sequence[str] = (),
        top_p: float = 1.0,
    ) -> list[Sample]:
        """The next turn of each sample after the messages in `replies`, as one sample of the whole conversation.

        The tokens of earlier turns stay what they were; those of the replies are marked as not the writer's own.
        Raises UsageError when a conversation leaves no room for the turn.
        """
        heat = self._heat(temperature, len(samples))
        with self._timed("sampling"):
            between_turns = [between(self.body, s, r) for s, r in zip(samples, replies, strict=True)]
            prompts = [(*s.prompt, *s.tokens, *more) for s, more in zip(samples, between_turns, strict=True)]
            longest = max(map(len, prompts), default=0)
            if longest + max_tokens > self.body.weights.limit:
                raise UsageError(
                    f"a conversation of {longest} tokens leaves no room for {max_tokens} more: {self.address} "
                    f"takes {self.body.weights.limit}."
                )
            how = Sampling(max_tokens, seed, tuple(stop), top_p)
            turns = self._all.write(rows_for(prompts, 1, heat, how), how)
        return [joined(s, more, turn) for s, more, turn in zip(samples, between_turns, turns, strict=True)]

    def rebased(self, samples: Sequence[Sample], conversations: Sequence[Conversation]) -> list[Sample]:
        """The same texts as answers to other conversations; their log-probabilities stay those of the first ones.

        What Guide trains on: written with a hint, learned without. `update` is told by `hinted`.
        """
        return [
            dataclasses.replace(sample, prompt=self.read(conversation))
            for sample, conversation in zip(samples, conversations, strict=True)
        ]

    def logprobs(
        self, samples: Sequence[Sample], *, temperature: float | None = None, reference: bool = False
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Log-probabilities of the samples' tokens, mask of own tokens, entropies in nats: float32 (B, T) each.

        `temperature` None takes each sample's own. Gradients reach the trainable weights unless `reference`, the frozen
        policy, is asked, or the caller turned them off.
        """
        with torch.set_grad_enabled(torch.is_grad_enabled() and not reference):
            readings = list(self._here.readings(samples, temperature, reference=reference))
        width = max((reading.own.shape[1] for reading in readings), default=0)
        columns = zip(*[(r.logprobs, r.own, r.entropy) for r in readings], strict=True)
        tensors = [torch.cat([widened(tensor, width) for tensor in column]) for column in columns]
        return tensors[0], tensors[1], tensors[2]

    def values(self, samples: Sequence[Sample]) -> Rows:
        """The critic's value of the state before each response token, for `gae`."""
        with self._timed("update"):
            return self._all.values(samples)

    def measured(
        self, samples: Sequence[Sample], *, temperature: float | None = None, reference: bool = False
    ) -> tuple[Rows, Rows]:
        """Log-probabilities and entropies of each sample's tokens as plain numbers, without gradients."""
        with self._timed("update"):
            return self._all.measured(samples, temperature, reference=reference)

    def update(
        self,
        samples: Sequence[Sample],
        advantages: Sequence[Sequence[float]] | Sequence[float],
        settings: Update,
        *,
        returns: Rows | None = None,
        hinted: Sequence[bool] = (),
    ) -> dict[str, float]:
        """One update by reinforcement learning. `advantages`: one for each sample, or for each of its tokens.

        `returns` (per token) train the critic; `hinted` marks samples that `rebased` made. For `loss="dro"` the
        advantages are r - V(x). Returns figures: `loss`, `entropy` (nats a token), `grad_norm` (before clipping),
        `clip_fraction`, `tokens`, `seconds`, `memory` (GiB at most so far, of all processes), and `kl` (k3 from the
        reference, a token) where `settings.kl` is not 0.
        """
        if len(samples) != len(advantages):
            raise UsageError(f"{len(samples)} samples but {len(advantages)} advantages.")
        if not samples:
            return {}
        with self._timed("update") as clock:
            rows = [per_token(advantages[i], sample) for i, sample in enumerate(samples)]
            ref = self._all.measured(samples, reference=True)[0] if settings.kl else None
            gamma = self._gamma(samples, hinted, settings.guide)
            batch = UpdateBatch(samples, rows, ref, returns, hinted, gamma)
            figures, norm, steps = Figures(), 0.0, 0
            for places in self._optimizer.minibatches(len(samples), settings):
                figures.add(self._all.gradients(batch.take(places), settings))
                norm += self._optimizer.step(settings)
                steps += 1
        means = figures.means(steps, ref=ref is not None, critic=returns is not None)
        return {**means, "grad_norm": norm / steps, "seconds": clock[0], "memory": self._all.memory()}

    def imitate(
        self, pairs: Sequence[tuple[Conversation, str]], settings: Update | None = None
    ) -> dict[str, float]:
        """Supervised learning of texts as answers to conversations: mean cross-entropy of their tokens (`loss`).

        `settings`: `lr`, `epochs`, `minibatch`, `max_norm`, `aggregation` are used.
        """
        samples = [self.given(conversation, text) for conversation, text in pairs]
        plain = dataclasses.replace(settings or Update(), loss="reinforce", kl=0.0, entropy=0.0)
        return self.update(samples, [1.0] * len(samples), plain)

    def prefer(
        self,
        pairs: Sequence[tuple[Sample, Sample]],
        beta: float = 0.1,
        settings: Update | None = None,
    ) -> dict[str, float]:
        """Direct Preference Optimization on pairs (chosen, rejected); see `whet.rl.losses.dpo`.

        Texts of somebody else become samples by `given`. `settings`: `lr`, `epochs`, `minibatch`, `max_norm` are
        used. Returns `loss`, `accuracy` (share of pairs in which the chosen text gained on the rejected one), `kl` (log
        pi - log ref, mean over the tokens of the pairs), `grad_norm`, `seconds`, `memory`.
        """
        settings = settings or Update()
        if not pairs:
            return {}
        loss = norm = gain = 0.0
        right = steps = 0
        with self._timed("update") as clock:
            for places in self._optimizer.minibatches(len(pairs), settings):
                part = [pairs[i] for i in places]
                step = self._all.preferences(part, beta, len(part))
                loss, right = loss + step.loss, right + step.right
                gain += step.gain / max(1, step.tokens)
                norm, steps = norm + self._optimizer.step(settings), steps + 1
        return {
            "loss": loss / steps,
            "accuracy": right / (len(pairs) * settings.epochs),
            "kl": gain / steps,
            "grad_norm": norm / steps,
            "seconds": clock[0],
            "memory": self._all.memory(),
        }

    def anchor(self) -> None:
        """Make the present weights the reference: what a divergence is measured from after a warm-up."""
        self.body.fix()
        self._anchored = True

    def save(self) -> bytes:
        """Trainable weights, optimiser state, critic, anchor, generator state and notes as safetensors bytes."""
        facts = {
            "address": self.address,
            "base": self.body.fingerprint,
            "lora": dataclasses.asdict(self.settings),
            "notes": self.notes,
            "steps": self._optimizer.steps(),
            "anchored": self._anchored,
        }
        parts = {
            **self._optimizer.tensors(),
            **({"anchor": self.body.anchor or {}} if self._anchored else {}),
        }
        tensors = {f"{part}.{name}": value for part, of in parts.items() for name, value in of.items()}
        return checkpoint.pack({**tensors, "rng": self._optimizer.generator.get_state()}, facts)

    def load(self, blob: bytes) -> None:
        """Restore what `save` returned: on a CPU the writer goes on bit for bit as the saved one would have.

        Raises UsageError for a blob of another base model, or of other trainable weights; nothing is changed then.
        """
        tensors, facts = checkpoint.unpack(blob)
        checkpoint.check_base("the saved state", facts, self.address, self.body.fingerprint)
        checkpoint.check_shapes(self.body.trainable, tensors, "weights")
        self._optimizer.load(tensors, facts["steps"])
        self.notes, self._anchored = facts["notes"], bool(facts["anchored"])
        self.body.anchor = self._base
        if self._anchored:
            self.anchor()
            checkpoint.fill(self.body.anchor or {}, tensors, "anchor")

    def export(self, folder: Path, *, method: str = "", facts: JSON = None) -> str:
        """Write a checkpoint folder for `open` and return the SHA-256 of its weights.

        `adapter.safetensors` holds the trainable weights, `writer.json` says of which base (address and hash), with
        which LoRA settings and by which method they were trained; `facts` is kept there as it is.
        """
        weights = {f"weights.{name}": weight for name, weight in self.body.trainable.items()}
        card: dict[str, JSON] = {
            "address": self.address,
            "base": self.body.fingerprint,
            "lora": dataclasses.asdict(self.settings),
            "method": method,
            "updates": self.updates,
            "facts": facts,
        }
        return checkpoint.write_folder(folder, checkpoint.pack(weights, {}), card)

    def _heat(self, temperature: float | Sequence[float], n: int) -> list[float]:
        heat = [temperature] * n if isinstance(temperature, int | float) else list(temperature)
        if len(heat) != n:
            raise UsageError(f"{len(heat)} temperatures for {n} conversations.")
        return [float(one) for one in heat]

    def _gamma(self, samples: Sequence[Sample], hinted: Sequence[bool], quantile: float) -> float:
        """The constant that shapes the ratios of hinted samples, from the present weights."""
        chosen = [sample for sample, one in zip(samples, hinted, strict=False) if one]
        if not chosen:
            return 0.0
        now = self._all.measured(chosen)[0]
        gaps = [
            new - old
            for row, s in zip(now, chosen, strict=True)
            for new, old in zip(row, s.logprobs, strict=True)
        ]
        return gamma_of(torch.tensor(gaps).exp(), quantile)

    @contextmanager
    def _timed(self, part: str) -> Iterator[list[float]]:
        """Add the time of a block to `seconds`, once for each process; the yielded list holds it when that is over."""
        began, clock = time.perf_counter(), [0.0]
        try:
            yield clock
        finally:
            if self.body.device.startswith("cuda"):
                torch.cuda.synchronize(self.body.device)
            clock[0] = time.perf_counter() - began
            self.seconds[part] += clock[0] * self._all.processes
