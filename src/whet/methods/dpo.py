"""Direct alignment: a model learns from people's judgements of answers themselves, by DPO, IPO, KTO or PMPO.

Direct Preference Optimization (Rafailov et al. 2023, arXiv:2305.18290, eq. 7); IPO (Azar et al. 2023, arXiv:2310.12036, eq. 17);
KTO (Ethayarajh et al. 2024, arXiv:2402.01306, eq. 8); PMPO (Abdolmaleki et al. 2024, arXiv:2410.04166, eq. 10), also called
PMPO-B, which has only its name in common with the method `pmpo`. The equations stand in `whet.rl.losses`, reading and gradient
in `whet.rl.judged_texts`.

    reference <- pi <- the policy model;  D <- the pairs or thumbs of the training rows
    for step in 1..steps:
        B <- `batch` of D;   one step of Adam down the mean loss of B
        sometimes: KL(pi || reference) of sampled answers, beyond `kl_limit`: end;  validate pi, greedy, under the start prompt
    the weights that validated best

No reward model and no answer of the policy is in the update. The task's reward only chooses among weights, and tests the result.

The result is a system: trained weights that answer with the start prompt, which stays as it was.

Differences from the papers:
1. Low-rank adapters, and no supervised learning of preferred answers before the update.
2. The state of the weights is chosen on validation examples, and must beat the start under the task model alone.
3. KTO: its two weights balance good and bad answers of each batch (ratio 1, the lower end of the paper's range). z comes from
   the batch, each answer behind the next one's question; it is 0 where a batch has no two questions.
4. PMPO: the divergence from the reference is estimated on the judged answers, as if the reference had written them, and good and
   bad ones count alike in it. So `beta` must be above 2 (1 - weight_good), or bad answers are pushed down without end.
5. Judgements of answers that are too long for the model are left out, and counted in the log.
6. A step calls no model; within a limit on calls, validations are cut.

Run it:  whet learn preferences PROMPT --from FILE --lm hf/PATH --policy hf/PATH --method dpo
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from whet._util.fields import (
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Probability,
    check_bounds,
)
from whet.environments.environment import Environment
from whet.environments.multiturn import MultiTurn, multiturn
from whet.errors import UsageError, named_fields
from whet.methods.method import MethodEntry
from whet.prompt import Prompt
from whet.rl.credit import check_divergence, text_divergence
from whet.rl.judged_texts import DirectLoss, align, check_judgements, direct_agreement, read_judged
from whet.rl.policy_actor import PolicyActor
from whet.rl.policy_model import LoraSettings, PolicyModel
from whet.rl.score_book import TrainedCandidates
from whet.rl.training import Trainer, Training
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.minibatch import minibatch
from whet.search.plan import share_out

ENTRY = MethodEntry(
    "dpo",
    "DPO, IPO, KTO or PMPO: a model learns from people's judgements themselves",
    version=2,
    rank=235,
    when="people judged answers, and the answering model may itself be trained",
    paper="Rafailov et al., 2023",
    arxiv="2305.18290",
    needs=("policy",),
    trains="the model that answers (LoRA)",
    extra="train",
    bound="its trained weights are what answers",
)

SAMPLED = 32
"""Validation inputs that the divergence is measured on, by an answer each."""


@named_fields
@dataclass(frozen=True)
class Config:
    """Settings of direct alignment."""

    loss: DirectLoss = "dpo"
    """dpo and ipo learn from pairs, kto from good and bad answers (pairs too), pmpo (PMPO-B) from the same, or from one kind."""
    beta: PositiveFloat | None = None
    """Strength of the reference; none: 0.1, with pmpo 2.4 (1 - weight_good) if that is more."""
    weight_good: Probability = 0.5
    """pmpo: the weight of good answers; the rest is the weight of bad answers (alpha)."""
    steps: NonNegativeInt = 60
    """Updates of the policy."""
    batch: PositiveInt = 16
    """Judgements of a step: pairs, or with kto answers."""
    lr: NonNegativeFloat = 3e-4
    """Adam's rate."""
    max_tokens: PositiveInt = 256
    """Bound on an answer of the policy."""
    rank: NonNegativeInt = 8
    """Of the adapters (LoRA); 0 trains all weights of a small model."""
    alpha: PositiveFloat = 16.0
    """The adapters' output is scaled by alpha / rank."""
    kl_limit: NonNegativeFloat = 0.0
    """Divergence from the reference policy, in nats an answer, beyond which the training ends by an alarm; 0: none."""
    checks: NonNegativeInt = 6
    """Times that divergence and reward are measured."""

    def __post_init__(self) -> None:
        """Refuse a number outside its bounds by a UsageError."""
        check_bounds(self)
        least = 2 * (1 - self.weight_good)
        if self.loss == "pmpo" and self.strength <= least:
            raise UsageError(
                f"with loss=pmpo and weight_good={self.weight_good:g}, beta must be above {least:g}, or bad answers are pushed "
                f"down without end; this is {self.strength:g}."
            )

    @property
    def strength(self) -> float:
        """Strength of the reference under the loss."""
        if self.beta is not None:
            return self.beta
        return max(0.1, 2.4 * (1 - self.weight_good)) if self.loss == "pmpo" else 0.1

    @property
    def lora(self) -> LoraSettings:
        """The settings of the weights that learn."""
        return LoraSettings(self.rank, self.alpha)


async def dpo(run: Run, env: Environment, policy: PolicyModel, start: Prompt, config: Config) -> Candidate:
    """Steps down a loss of judged answers; see the module."""
    check(env, config)
    trainer = Trainer(policy, Training(max_tokens=config.max_tokens))
    share = share_out(run, answering(env, policy, config), config.checks, 1, writes=False)
    archive = Archive()
    await archive.validate(run, replace(env, validation=share.env.validation), [Candidate(start)])
    checks = min(config.steps, config.checks, share.validations - 1)
    systems = TrainedCandidates(policy, start, "dpo", config.steps, checks)
    judged, unseen = read_judged(policy, start, env.train), read_judged(policy, start, env.validation)
    units = judged.units(config.loss)
    run.log("judged", {"units": len(units), "left_out": judged.left_out})
    questions = [start.render(row) for row in minibatch(run.rng, env.validation, SAMPLED)]

    async def step(run: Run, number: int) -> None:
        batch = run.rng.sample(units, min(config.batch, len(units)))
        figures = align(
            policy, batch, config.loss, beta=config.strength, lr=config.lr, weight_good=config.weight_good
        )
        if not systems.due(number):
            run.log("step", {"step": number, **figures})
            return
        samples = [sample for (sample,) in await trainer.sample(run, questions, n=1)]
        figures["divergence"] = text_divergence(policy, samples)
        if (agreement := direct_agreement(policy, unseen)) is not None:
            figures["agreement"] = agreement
        run.log("step", {"step": number, **figures})
        check_divergence(figures["divergence"], config.kl_limit)
        digest = await run.keep(policy)
        await systems.validate(run, archive, answering(share.env, policy, config), digest)

    await run.train(config.steps if units else 0, step, policy)
    return systems.recall(archive)


def check(env: Environment, config: Config) -> None:
    """Refuse rows without the judgements that the loss learns from."""
    check_judgements(env.train, config.loss)


def answering(env: Environment, policy: PolicyModel, config: Config) -> MultiTurn:
    """The system: the policy, greedy, answers the task."""
    return multiturn(env, actor=PolicyActor(policy, 0.0, config.max_tokens, calls=1))


def deploy(env: Environment, policy: PolicyModel, blob: bytes, config: Config) -> Environment:
    """The environment in which trained weights answer the task."""
    policy.load(blob)
    return answering(env, policy, config)
