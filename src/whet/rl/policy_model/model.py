"""A language model whose weights are the policy: it writes texts and learns from their rewards."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

import whet.rl.policy_model.checkpoint as checkpoint
from whet.errors import UsageError
from whet.rl import blob as blobs
from whet.rl.advantages import Rows
from whet.rl.losses import critical_weights, partial_weights
from whet.rl.policy_model.backbone import (
    Backbone,
    LoraSettings,
    MemoryForecast,
    divergence_error,
    forecast_memory,
    open_body,
    tokens_at_once,
)
from whet.rl.policy_model.critic import Critic
from whet.rl.policy_model.learning import Figures, PolicyPasses, UpdateBatch
from whet.rl.policy_model.optimizer import WHOLE, Optimizer, Update
from whet.rl.policy_model.sampling import (
    Sample,
    Sampling,
    SamplingRow,
    join_turn,
    rows_for,
    tokens_between_turns,
)
from whet.rl.policy_model.token_reward import TokenReward
from whet.types import JSON, Message

if TYPE_CHECKING:
    from whet.rl.policy_model.distributed import WorkerGroup
    from whet.rl.policy_model.vllm_server import VllmServer
    from whet.rl.policy_model.vllm_writer import VllmWriter

Conversation = Sequence[Message]


class PolicyModel:
    """A causal language model with trainable weights, its optimiser and a place for bookkeeping.

    `address`: of the frozen base. `notes`: JSON values that a method must find again after a resume. `seconds`: time
    spent in `sampling` and `update`, times the number of processes (not saved). `batch_tokens`: most tokens, padding
    included, that one training pass holds; None takes what fits the memory. The reference policy is the same network with its
    adapters off (of a checkpoint: as it was exported), or as it was at the last `set_reference_policy()`. `critic`: None before
    `with_critic()`. `token_reward`: None before `with_token_reward()`.
    """

    def __init__(self, body: Backbone, seed: int, batch_tokens: int | None = None) -> None:
        self.body, self.address = body, body.address
        self.notes: dict[str, Any] = {}
        self.seconds = {"sampling": 0.0, "update": 0.0}
        self.critic: Critic | None = None
        self.token_reward: TokenReward | None = None
        self._base, self._anchored = body.anchor, False
        self._optimizer = Optimizer(body, seed)
        self._batch_tokens = batch_tokens or tokens_at_once(body)
        self._here = PolicyPasses(body, self._batch_tokens)
        self._all: PolicyPasses | WorkerGroup = self._here
        self._vllm: VllmWriter | VllmServer | None = None
        self._sampler = "transformers"

    @classmethod
    def open(
        cls,
        address: str,
        settings: LoraSettings | None = None,
        seed: int = 0,
        device: str | None = None,
        processes: int = 1,
        sampler: str = "transformers",
    ) -> PolicyModel:
        """The policy at `hf/PATH` or `embedded/tiny` with fresh adapters, or that of a folder that `export` wrote.

        `settings` None takes the checkpoint's, or the defaults. `seed` decides the first weights and the order of
        minibatches. `device` None takes CUDA or MPS where there is one. With `sampler` "vllm", vLLM writes the texts
        until `close()`; see `whet.rl.policy_model.vllm_writer`; with the address of a server of vLLM, that server does; see
        `whet.rl.policy_model.vllm_server`. With several `processes` the others are started here
        and share in all work on the weights until `close()`; see `whet.rl.policy_model.distributed`. Raises UsageError when
        the model cannot be loaded, is not causal, or is not the one that the checkpoint was trained on.
        """
        policy = cls._open(address, settings, seed, device)
        if processes > 1:
            from whet.rl.policy_model.distributed import WorkerGroup

            policy._all = WorkerGroup(policy._here, processes)
        if sampler == "vllm":
            from whet.rl.policy_model.vllm_writer import VllmWriter

            policy._vllm = VllmWriter(policy.body)
        elif sampler != "transformers":
            from whet.rl.policy_model.vllm_server import VllmServer

            policy._vllm = VllmServer(policy.body, sampler)
        policy._sampler = sampler
        return policy

    @classmethod
    def _open(cls, address: str, settings: LoraSettings | None, seed: int, device: str | None) -> PolicyModel:
        folder = Path(address)
        if not (folder / checkpoint.CARD_FILE).is_file():
            return cls(open_body(address, settings or LoraSettings(), seed, device), seed)
        card, blob = checkpoint.read_checkpoint(folder)
        trained = checkpoint.check_settings(folder, card, settings)
        body = open_body(str(card["address"]), trained, seed, device)
        checkpoint.check_base(str(folder), card, body.address, body.fingerprint)
        blobs.copy_tensors({"weights": body.trainable}, blobs.read_blob(blob, "a policy")[1], "policy")
        body.fix()
        return cls(body, seed)

    def close(self) -> None:
        """End the other processes and vLLM, where there are some: this process does all the work from then on."""
        self._all.close()
        self._all = self._here
        if self._vllm is not None:
            self._vllm.close()
            self._vllm = None

    @property
    def updates(self) -> int:
        """Steps of the optimiser so far."""
        return self._optimizer.steps

    @property
    def settings(self) -> LoraSettings:
        """The settings of the weights that learn."""
        return self.body.settings

    @property
    def memory(self) -> MemoryForecast:
        """The memory of a training in one process, by a formula, before anything is trained."""
        return forecast_memory(self.body, self._batch_tokens, sampler=self._sampler)

    def read(self, conversation: Conversation) -> tuple[int, ...]:
        """The tokens of a conversation as this model reads them, ready for its answer."""
        return tuple(self.body.weights.read(tuple(conversation))[1])

    def sample(
        self,
        conversations: Sequence[Conversation],
        n: int = 1,
        *,
        temperature: float = 1.0,
        max_tokens: int = 64,
        seed: int = 0,
        stop: Sequence[str] = (),
        top_p: float = 1.0,
        mask: float = 0.0,
    ) -> list[list[Sample]]:
        """`n` texts after each conversation, in order: (conversations, n). `temperature` 0 is greedy. `mask` is the share of
        NLPO's masking policy (`renew_mask`), among whose likeliest tokens the policy chooses.

        A text depends on the weights, its conversation and the seed, not on the batch, beyond rounding; the same
        conversation given twice gets different texts. A conversation too long for the model is cut in the middle.
        """
        how = Sampling(max_tokens, temperature, seed, tuple(stop), top_p, mask)
        with self._measure_time("sampling"):
            weights = self.body.weights
            prompts = [weights.fit(list(self.read(c)), weights.limit - max_tokens) for c in conversations]
            samples = self._write(rows_for(prompts, n, how), how)
        return [samples[i * n : (i + 1) * n] for i in range(len(conversations))]

    def sample_turn(
        self,
        samples: Sequence[Sample],
        replies: Sequence[Conversation],
        *,
        temperature: float = 1.0,
        max_tokens: int = 64,
        seed: int = 0,
        stop: Sequence[str] = (),
        top_p: float = 1.0,
    ) -> list[Sample]:
        """The next turn of each sample after the messages in `replies`, as one sample of the whole conversation.

        The tokens of earlier turns stay what they were; those of the replies are marked as not the policy's own.
        Raises UsageError when a conversation leaves no room for the turn.
        """
        how = Sampling(max_tokens, temperature, seed, tuple(stop), top_p)
        with self._measure_time("sampling"):
            between_turns = [
                tokens_between_turns(self.body, s, r) for s, r in zip(samples, replies, strict=True)
            ]
            prompts = [(*s.prompt, *s.tokens, *more) for s, more in zip(samples, between_turns, strict=True)]
            longest = max(map(len, prompts), default=0)
            if longest + max_tokens > self.body.weights.limit:
                raise UsageError(
                    f"a conversation of {longest} tokens leaves no room for {max_tokens} more: {self.address} "
                    f"takes {self.body.weights.limit}."
                )
            turns = self._write(rows_for(prompts, 1, how), how)
        return [join_turn(s, more, turn) for s, more, turn in zip(samples, between_turns, turns, strict=True)]

    def _write(self, rows: Sequence[SamplingRow], how: Sampling) -> list[Sample]:
        """A sample for each row, with log-probabilities that the weights of the update computed, whoever wrote it."""
        if self._vllm is None:
            return self._all.write(rows, how)
        samples = self._vllm.write(rows, how)
        logprobs = self._all.logprobs(samples)
        if not all(math.isfinite(one) for row in logprobs for one in row):
            raise divergence_error("the probability of a token")
        return [dataclasses.replace(s, logprobs=tuple(row)) for s, row in zip(samples, logprobs, strict=True)]

    def update(
        self,
        samples: Sequence[Sample],
        advantages: Sequence[Sequence[float]] | Sequence[float],
        settings: Update,
    ) -> dict[str, float]:
        """One update by reinforcement learning. `advantages`: one for each sample, or for each of its tokens.

        The losses dro and rebel compare samples that answer the same prompt, so all of those have to be in one minibatch; their
        advantage is the reward less the mean of the group. Returns figures: `loss`, `entropy` (nats a token), `grad_norm` (before
        clipping), `clip_fraction`, `tokens`, `seconds`, `memory` (GiB at most so far, of all processes), and `kl` (k3 from
        the reference policy, a token) where `settings.kl` is not 0.
        """
        if len(samples) != len(advantages):
            raise UsageError(f"{len(samples)} samples but {len(advantages)} advantages.")
        if not samples:
            return {}
        with self._measure_time("update") as clock:
            rows = [_per_token(advantages[i], sample) for i, sample in enumerate(samples)]
            reference = self._all.logprobs(samples, reference=True) if settings.kl else None
            weights = self._kl_weights(samples, settings.kl_power, settings.kl_tag) if settings.kl else None
            batch = UpdateBatch(samples, rows, reference, kl_weights=weights)
            figures, norm, steps = Figures(), 0.0, 0
            for places in self._optimizer.minibatches(len(samples), settings):
                part = batch.take(places).weigh(settings)
                if settings.loss in WHOLE:
                    part = dataclasses.replace(part, centres=self._mean_log_ratios(part, settings))
                figures.add(self._all.gradients(part, settings))
                norm += self._optimizer.step(settings.lr)
                steps += 1
        means = figures.means(steps, reference=reference is not None)
        return {**means, "grad_norm": norm / steps, "seconds": clock[0], "memory": self._all.memory()}

    def time_gradient(self, samples: Sequence[Sample], settings: Update) -> float:
        """Seconds of one gradient on all samples, which is forgotten; with `settings.kl` of a reading by the reference too."""
        began = time.perf_counter()
        if settings.kl:
            self._all.logprobs(samples, reference=True)
        rows = [[1.0] * len(sample.tokens) for sample in samples]
        self._all.gradients(UpdateBatch(samples, rows), dataclasses.replace(settings, loss="ppo", kl=0.0))
        for weight in self.body.trainable.values():
            weight.grad = None
        return time.perf_counter() - began

    def _mean_log_ratios(self, batch: UpdateBatch, settings: Update) -> list[float]:
        """For each sample, the mean over the samples with its prompt of log pi - log pi_old (rebel) or - log reference (dro)."""
        old = [sample.logprobs for sample in batch.samples]
        starts = (batch.reference or old) if settings.loss == "dro" else old
        rows = zip(self._all.logprobs(batch.samples), starts, batch.samples, strict=True)
        ratios = [
            sum(p - q for p, q, own in zip(now, start, s.own, strict=True) if own) for now, start, s in rows
        ]
        groups: dict[tuple[int, ...], list[float]] = {}
        for sample, ratio in zip(batch.samples, ratios, strict=True):
            groups.setdefault(sample.prompt, []).append(ratio)
        return [sum(groups[s.prompt]) / len(groups[s.prompt]) for s in batch.samples]

    def _kl_weights(self, samples: Sequence[Sample], power: float, tag: str = "") -> Rows | None:
        """`losses.critical_weights` times `losses.partial_weights` of each token; None for 1 everywhere."""
        rows = None
        if power:
            entropies = (torch.tensor(row) for row in self._here.entropies(samples, reference=True))
            rows = [critical_weights(row, self.body.vocabulary, power).tolist() for row in entropies]
        if tag:
            parts = [partial_weights(self._pieces(sample), tag) for sample in samples]
            rows = parts if rows is None else [_times(*pair) for pair in zip(rows, parts, strict=True)]
        return rows

    def _pieces(self, sample: Sample) -> list[str]:
        """The text that each token of a response adds to the one before."""
        decode, tokens = self.body.weights.tokenizer.decode, list(sample.tokens)
        texts = [decode(tokens[:n], skip_special_tokens=True) for n in range(1, len(tokens) + 1)]
        return [text[len(before) :] for before, text in zip(["", *texts], texts, strict=False)]

    def with_critic(self) -> Critic:
        """The critic that is trained, saved and loaded with this policy; a new one where there was none."""
        if self.critic is None:
            self.critic = Critic(self.body.weights.model.get_input_embeddings().weight.shape[1])
        return self.critic

    def with_token_reward(self) -> TokenReward:
        """The model of token rewards that is trained, saved and loaded with this policy; a new one where there was none."""
        if self.token_reward is None:
            self.token_reward = TokenReward(self.body)
        return self.token_reward

    def token_log_ratios(self, samples: Sequence[Sample]) -> Rows:
        """log pi_dpo - log reference of each token of each sample; 0 before the first `fit_token_reward`."""
        model = self.with_token_reward()
        if not model.steps:
            return [[0.0] * len(sample.tokens) for sample in samples]
        with self._measure_time("update"):
            return model.log_ratios(self.body, samples, self._here.logprobs(samples, reference=True))

    def fit_token_reward(self, pairs: Sequence[tuple[Sample, Sample]], lr: float) -> float | None:
        """One step of DPO on pairs (better, worse) for `token_log_ratios`; the loss before it, None without pairs."""
        if not pairs:
            return None
        with self._measure_time("update"):
            both = [(self._reference_of(better), self._reference_of(worse)) for better, worse in pairs]
            return self.with_token_reward().fit(self.body, pairs, both, lr)

    def _reference_of(self, sample: Sample) -> float:
        (row,) = self._here.logprobs([sample], reference=True)
        return sum(p for p, own in zip(row, sample.own, strict=True) if own)

    def states(self, samples: Sequence[Sample]) -> list[torch.Tensor]:
        """The input of a critic: the reference policy's last hidden state before each response token, (T, d) a sample."""
        with self._measure_time("update"):
            return self._here.states(samples)

    def read_states(self, conversations: Sequence[Conversation]) -> list[list[float]]:
        """The reference policy's last hidden state behind each conversation, ready for its answer: d numbers with a norm of 1."""
        weights = self.body.weights
        prompts = [weights.fit(list(self.read(c)), weights.limit - 1) for c in conversations]
        token = self.body.end[0] if self.body.end else 0
        samples = [Sample("", tuple(ids), (token,), (0.0,), (True,), True) for ids in prompts]
        return [torch.nn.functional.normalize(state[0], dim=0).tolist() for state in self.states(samples)]

    def entropies(self, samples: Sequence[Sample]) -> Rows:
        """Entropy in nats of the policy's whole distribution before each sample's tokens, at the sample's temperature."""
        with self._measure_time("update"):
            return self._here.entropies(samples)

    def logprobs(self, samples: Sequence[Sample]) -> Rows:
        """Log-probabilities of each sample's tokens under the policy as it is now, at the sample's temperature."""
        with self._measure_time("update"):
            return self._all.logprobs(samples)

    def reference_logprobs(self, samples: Sequence[Sample]) -> Rows:
        """Log-probabilities of each sample's tokens under the reference policy."""
        with self._measure_time("update"):
            return self._all.logprobs(samples, reference=True)

    def critical_gaps(self, samples: Sequence[Sample], power: float = 0.0, tag: str = "") -> Rows:
        """k1 = log pi_old - log reference of each token of each sample; with `power`, times `losses.critical_weights`, with `tag`
        times `losses.partial_weights`."""
        with self._measure_time("update"):
            rows = zip(samples, self._all.logprobs(samples, reference=True), strict=True)
            gaps = [[old - ref for old, ref in zip(s.logprobs, row, strict=True)] for s, row in rows]
            weights = self._kl_weights(samples, power, tag)
        if weights is None:
            return gaps
        return [_times(*pair) for pair in zip(gaps, weights, strict=True)]

    def imitate(self, pairs: Sequence[tuple[Conversation, str]], settings: Update) -> dict[str, float]:
        """Supervised learning of texts as answers to conversations: mean cross-entropy of their tokens (`loss`).

        `settings`: `lr`, `epochs` and `minibatch` are used.
        """
        samples = [self.demonstrate(conversation, text) for conversation, text in pairs]
        supervised = dataclasses.replace(settings, loss="reinforce", kl=0.0, mask=0.0)
        return self.update(samples, [1.0] * len(samples), supervised)

    def demonstrate(self, conversation: Conversation, text: str) -> Sample:
        """A text that somebody else wrote, end token included; its log-probabilities are 0."""
        ids = [*self.body.weights.encode(text), *self.body.end]
        return Sample(text, self.read(conversation), tuple(ids), (0.0,) * len(ids), (True,) * len(ids), True)

    def continue_with(self, sample: Sample, marker: str, text: str) -> Sample:
        """A text that somebody else wrote behind what a sample says up to and with its first `marker`; behind all of it and a
        marker, if it has none. As `demonstrate`."""
        thought, _, _ = sample.text.partition(marker)
        before = self.body.weights.encode(thought + marker)
        after = [*self.body.weights.encode(text), *self.body.end]
        prompt = (*sample.prompt, *before)
        return Sample(text, prompt, tuple(after), (0.0,) * len(after), (True,) * len(after), True)

    def set_reference_policy(self) -> None:
        """Make the present weights the reference policy: what a divergence is measured from after a warm-up. The model of token
        rewards, where there is one, begins from them as well."""
        self.body.fix()
        self._anchored = True
        if self.token_reward is not None:
            self.token_reward = TokenReward(self.body)
        if self.body.mask is not None:
            self.renew_mask()

    def renew_mask(self) -> None:
        """Make the present weights those of NLPO's masking policy (`sampling.mask_logits`).

        Raises UsageError where another process or vLLM writes texts: they do not know the mask.
        """
        if self._all is not self._here or self._vllm is not None:
            raise UsageError(
                "nlpo masks tokens in this process alone: leave out processes and the sampler vllm."
            )
        self.body.mask = self.body.copy_trainable()

    def save(self) -> bytes:
        """Trainable weights, optimiser state, anchor, mask, critic, generator state and notes as safetensors bytes."""
        facts = {
            "address": self.address,
            "base": self.body.fingerprint,
            "notes": self.notes,
            "steps": self._optimizer.steps,
            "anchored": self._anchored,
        }
        anchor = {"anchor": self.body.anchor or {}} if self._anchored else {}
        if self.body.mask is not None:
            anchor["mask"], facts["masked"] = self.body.mask, True
        critic: blobs.Parts = {}
        if self.critic is not None:
            facts["critic"], critic = self.critic.steps, self.critic.tensors()
        rto: blobs.Parts = {}
        if self.token_reward is not None:
            facts["token_reward"], rto = self.token_reward.steps, self.token_reward.tensors()
        return blobs.pack({**self._optimizer.tensors(), **anchor, **critic, **rto}, facts)

    def load(self, blob: bytes) -> None:
        """Restore what `save` returned: on a CPU training goes on bit for bit as it would have.

        Raises UsageError for a blob of another base model, or of other trainable weights; nothing is changed then.
        """
        facts, stored = blobs.read_blob(blob, "a policy")
        checkpoint.check_base("the saved state", facts, self.address, self.body.fingerprint)
        if self.critic is not None:
            blobs.copy_tensors({**self._optimizer.tensors(), **self.critic.tensors()}, stored, "policy")
            self.critic.steps = facts["critic"]
        if self.token_reward is not None:
            blobs.copy_tensors(self.token_reward.tensors(), stored, "policy")
            self.token_reward.steps = facts["token_reward"]
        self._optimizer.load(stored, facts["steps"])
        self.notes, self._anchored = facts["notes"], bool(facts["anchored"])
        self.body.anchor = self._base
        if self._anchored:
            self.body.fix()
            blobs.copy_tensors({"anchor": self.body.anchor or {}}, stored, "policy")
        self.body.mask = None
        if facts.get("masked"):
            self.renew_mask()
            blobs.copy_tensors({"mask": self.body.mask or {}}, stored, "policy")

    def export(self, folder: Path, *, method: str = "") -> str:
        """Write a checkpoint folder for `open` and return the SHA-256 of its weights.

        `adapter.safetensors` holds the trainable weights, `policy.json` says of which base (address and hash), with
        which LoRA settings and by which method they were trained.
        """
        card: dict[str, JSON] = {
            "address": self.address,
            "base": self.body.fingerprint,
            "lora": dataclasses.asdict(self.settings),
            "method": method,
            "updates": self.updates,
        }
        return checkpoint.write_checkpoint(folder, blobs.pack({"weights": self.body.trainable}, {}), card)

    @contextmanager
    def _measure_time(self, part: str) -> Iterator[list[float]]:
        """Add the time of a block to `seconds`, once for each process; the yielded list holds it when that is over."""
        began, clock = time.perf_counter(), [0.0]
        try:
            yield clock
        finally:
            if self.body.device.startswith("cuda"):
                torch.cuda.synchronize(self.body.device)
            clock[0] = time.perf_counter() - began
            self.seconds[part] += clock[0] * self._all.processes


def _times(values: Sequence[float], weights: Sequence[float]) -> list[float]:
    return [value * weight for value, weight in zip(values, weights, strict=True)]


def _per_token(advantage: Sequence[float] | float, sample: Sample) -> list[float]:
    """One number for each response token. Raises UsageError when there are more or fewer."""
    if isinstance(advantage, int | float):
        return [float(advantage)] * len(sample.tokens)
    if len(advantage) != len(sample.tokens):
        raise UsageError(f"{len(advantage)} advantages for a sample of {len(sample.tokens)} tokens.")
    return [float(one) for one in advantage]
