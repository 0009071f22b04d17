"""Soft prompts: virtual tokens in front of a frozen transformers model, trained by gradient descent.

Two kinds, both with the reparameterisation that PEFT implements:

    prefix    keys and values of every layer (Li and Liang, ACL 2021, arXiv:2101.00190)
    ptuning   embeddings that a small network computes (Liu et al. 2021, arXiv:2103.10385)

The loss is the negative log-likelihood of the wanted answers. What comes out is not a text: it acts with the very model
that it was trained on and with no other one.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NotRequired, TypedDict

import torch
from torch import Tensor

from whet._util.fields import NonNegativeFloat, NonNegativeInt, PositiveInt
from whet.environments.environment import Environment, as_environment_type
from whet.errors import UsageError, parameter
from whet.models.huggingface import HuggingFaceModel
from whet.models.huggingface_load import Weights
from whet.models.huggingface_score import answer_items, build_forced_batch, log_likelihood
from whet.models.language_model import BatchModel, LanguageModel
from whet.models.prefixed import KeysAndValues, Virtual, prefix_weights, states_of
from whet.prompt import Prompt
from whet.replies import separate_thought
from whet.rewards.text import targets_of
from whet.rl.network import TrainedNetwork
from whet.rl.policy_model.learning import memory
from whet.rl.score_book import TrainedCandidates
from whet.run import Run, convert_record
from whet.search.archive import Archive, Candidate
from whet.search.minibatch import minibatch
from whet.search.plan import share_out
from whet.types import JSON, Completion, Example, Request, Usage, content_hash

Kind = Literal["prefix", "ptuning"]

INSTALL = "pip install 'whet[train]'"
CHECKS = 8  # times that the weights are validated on the way
CLIP = 1.0  # bound on the norm of the gradient


@dataclass(frozen=True)
class SoftPromptConfig:
    """The settings that both methods have. A network without units means free parameters; p-tuning always has one."""

    steps: NonNegativeInt = 200
    """Updates of the virtual tokens."""
    tokens: PositiveInt = 8
    """Virtual tokens (n)."""
    batch: PositiveInt = 16
    """Examples of an update."""
    lr: NonNegativeFloat = 5e-3
    """Adam's rate."""
    hidden: PositiveInt = 128
    """Units of the network that computes the virtual tokens."""


class SoftPrompt(TrainedNetwork):
    """Trained virtual tokens on a frozen model, with their optimiser and a place for bookkeeping.

    `seed` decides the first weights. Raises UsageError for a model that cannot carry a soft prompt.
    """

    def __init__(self, model: object, kind: Kind, config: SoftPromptConfig, seed: int) -> None:
        if not isinstance(model, HuggingFaceModel) or model.weights.kind == "masked":
            raise UsageError(
                f"{getattr(model, 'address', 'this model')} cannot carry a soft prompt: its weights must be in this "
                f"process and it must write. Use {parameter('lm', 'hf/PATH')} (causal or "
                f"sequence-to-sequence) or {parameter('lm', 'embedded/tiny')}."
            )
        least = 1 if kind == "ptuning" else 0
        if config.tokens < 1 or config.hidden < least or not config.lr > 0:
            raise UsageError(
                f"{kind}: tokens must be 1 or more, hidden {least} or more and lr above 0; these are "
                f"{config.tokens}, {config.hidden} and {config.lr}."
            )
        self.kind, self._tokens, self._model = kind, config.tokens, model
        self._encoder = _encoder(model.weights, kind, config, seed)
        super().__init__("soft prompt", dict(self._encoder.named_parameters()), config.lr)

    def update(self, env: Environment, prompt: Prompt, examples: Sequence[Example]) -> float:
        """One step of Adam on the mean loss of examples; the loss before it, in nats per answer.

        Raises UsageError for an example without a target.
        """
        began = time.perf_counter()
        loss = -self._log_likelihood(env, prompt, examples).mean()
        gradients = torch.autograd.grad(loss, list(self._weights.values()))
        self._adam.step(gradients, CLIP)
        self.seconds["update"] += time.perf_counter() - began
        return float(loss.detach())

    @property
    def figures(self) -> dict[str, float]:
        """Seconds of all updates of this process, and the most memory that it took so far, in GiB."""
        return {
            "update_seconds": self.seconds["update"],
            "memory": memory(str(self._model.weights.device)),
        }

    def _log_likelihood(self, env: Environment, prompt: Prompt, examples: Sequence[Example]) -> Tensor:
        weights = prefix_weights(self._model.weights, self._virtual())
        inputs, answers = [e.values for e in examples], [target_text(env, e) for e in examples]
        batch = answer_items(weights, prompt, inputs, answers, ends=not env.scores)
        likelihood: Tensor = log_likelihood(weights, build_forced_batch(weights, batch))
        return likelihood

    def _virtual(self) -> Virtual:
        """The virtual tokens as they are now, with gradients."""
        weights, count = self._model.weights, self._tokens
        made = self._encoder(torch.arange(count, device=weights.device)[None])[0].to(weights.model.dtype)
        if self.kind == "prefix":
            return Virtual(count, _layers(weights, made))
        if weights.kind == "causal":
            return Virtual(count, states_of(weights.model, made))
        return Virtual(count, embeddings=made)

    def system(self) -> HuggingFaceModel:
        """The frozen model with the virtual tokens as they are now in front of every text."""
        with torch.no_grad():
            return self._model.around(prefix_weights(self._model.weights, self._virtual()))


def target_text(env: Environment, example: Example) -> str:
    """The answer that the model should give: the label's word, or the first target. Raises UsageError without one."""
    if example.target is None:
        raise UsageError(f"{example.place} has no target to learn from.")
    return env.labels[str(example.target)] if env.labels else targets_of(example)[0]


def _encoder(weights: Weights, kind: Kind, config: SoftPromptConfig, seed: int) -> Any:
    """PEFT's network that computes the virtual tokens, in float32; its first weights come from the seed."""
    try:
        from peft import PrefixEncoder, PrefixTuningConfig, PromptEncoder, PromptEncoderConfig
    except ImportError as error:
        raise UsageError(f"Soft prompts need peft. Install it with: {INSTALL}") from error
    model = weights.model.config.get_text_config()
    heads, width = _heads(model)
    shape = {
        "num_virtual_tokens": config.tokens,
        "num_transformer_submodules": 1,
        "num_attention_heads": heads,
        "num_layers": getattr(model, "num_decoder_layers", None) or model.num_hidden_layers,
        "encoder_hidden_size": config.hidden,
    }
    make: Any = PrefixEncoder if kind == "prefix" else PromptEncoder
    if kind == "prefix":
        project = config.hidden > 0
        chosen: Any = PrefixTuningConfig(token_dim=heads * width, prefix_projection=project, **shape)
    else:
        chosen = PromptEncoderConfig(token_dim=model.hidden_size, **shape)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make(chosen).to(weights.device)


def _heads(config: Any) -> tuple[int, int]:
    """Number and width of the heads that keys and values have."""
    heads = config.num_attention_heads
    width = getattr(config, "d_kv", None) or getattr(config, "head_dim", None) or config.hidden_size // heads
    return getattr(config, "num_key_value_heads", None) or heads, width


def _layers(weights: Weights, made: Tensor) -> KeysAndValues:
    """Keys and values of each layer (1, heads, tokens, width) from the rows of a prefix (tokens, 2 x layers x d)."""
    heads, width = _heads(weights.model.config.get_text_config())
    each = made.view(len(made), -1, heads, width).permute(1, 2, 0, 3)[
        :, None
    ]  # (2 layers, 1, heads, tokens, width)
    return list(zip(each[0::2], each[1::2], strict=True))


async def train_soft_prompt(
    run: Run, env: Environment, start: Prompt, kind: Kind, config: SoftPromptConfig
) -> Candidate:
    """Gradient descent on a soft prompt, its state chosen on validation examples among some checks on the way."""
    soft = SoftPrompt(env.model, kind, config, run.rng.getrandbits(63))
    share = share_out(run, env, CHECKS - 1, 1, writes=False)
    batch = min(config.batch, len(env.train))
    steps = share.payable(config.steps, batch)
    archive = Archive()
    await archive.validate(run, share.env, [Candidate(start)])
    systems = TrainedCandidates(soft, start, kind, steps, min(steps, share.validations - 1))

    async def step(run: Run, number: int) -> None:
        examples = minibatch(run.rng, env.train, batch)
        await charge(run, "learn", examples)
        loss = soft.update(env, start, examples)
        run.log("step", {"step": number, "reward": -loss, **soft.figures})
        if systems.due(number):
            digest = await run.keep(soft)
            await systems.validate(run, archive, environment_with(share.env, soft.system(), digest), digest)

    await run.train(steps, step, soft)
    return systems.recall(archive)


def deploy_soft_prompt(env: Environment, kind: Kind, blob: bytes, config: SoftPromptConfig) -> Environment:
    """The task answered by its frozen model with the soft prompt of a blob. Raises UsageError when they do not fit."""
    soft = SoftPrompt(env.model, kind, config, 0)
    soft.load(blob)
    return environment_with(env, soft.system(), hashlib.sha256(blob).hexdigest())


async def charge(run: Run, name: str, examples: Sequence[Example]) -> None:
    """Charge one task call for each example that is about to be learned from.

    The arithmetic itself stays outside: a resume repeats it and pays for it no second time.
    """

    async def nothing() -> JSON:
        return None

    args = content_hash([e.id for e in examples])
    await run.effect(name, nothing, args, role="task", calls=len(examples))


class SystemAnswer(TypedDict):
    """A recorded answer of the system; `usage` is the tokens read and written."""

    text: str
    finish: str
    error: str | None
    usage: tuple[int, int]
    thought: NotRequired[str]


@dataclass(frozen=True)
class Deployed(Environment):
    """An environment whose task model is not the run's own but a trained `system`, named by the digest of its weights.

    Its answers go through the run as effects that are charged to the task model.
    """

    system: str = ""

    @property
    def supports_batching(self) -> bool:
        """Whether the system answers in batches."""
        return isinstance(self.model, BatchModel)

    async def ask(self, run: Run, request: Request) -> Completion:
        """One answer of the system."""

        async def answer() -> JSON:
            completion = separate_thought((await self.model.generate(request))[0])
            usage: list[JSON] = [completion.usage.input_tokens, completion.usage.output_tokens]
            return {
                "text": completion.text,
                "finish": completion.finish,
                "error": completion.error,
                "usage": usage,
                "thought": completion.thought,
            }

        messages: list[JSON] = [m.as_list() for m in request.messages]
        args: JSON = [self.system, content_hash(messages), request.sample]
        record = convert_record(await run.effect("system", answer, args, role="task", calls=1), SystemAnswer)
        usage, thought = Usage(*record["usage"]), record.get("thought", "")
        written = Completion(record["text"], record["finish"], usage, record["error"], thought=thought)
        return self.generation.answer(written)


def environment_with(env: Environment, model: LanguageModel, digest: str) -> Environment:
    """The task answered by another model in this process; `digest` is that of its trained weights.

    Raises UsageError for a task that is more than one question and one answer.
    """
    if type(env) not in (Environment, Deployed):
        raise UsageError("virtual tokens answer one question at a time; this task is made of several turns.")
    return as_environment_type(env, Deployed, model=model, system=digest)
