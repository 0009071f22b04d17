"""Expert iteration: sample rewrites of the instruction, keep the best by reward, imitate them, and sample again.

The rule is that of expert iteration (Anthony, Tian, Barber, NeurIPS 2017, arXiv:1705.08439) as language models use it: ReST
(Gulcehre et al. 2023, arXiv:2308.08998), ReST-EM (Singh et al. 2023, arXiv:2312.06585), and Havrilla et al. 2024
(arXiv:2403.04642), where it is level with PPO. Here the texts are prompts, so it is what every trained writer has to beat.

    pi <- writer model
    for round in 1..rounds:
        t_1..t_n ~ pi(. | meta prompt, t_0);   r_i <- mean reward of the frozen task model with t_i on random training examples
        D <- the best share `keep` of the different t_i, those above the mean of all r alone
        pi <- argmax sum over D of log pi(t | meta prompt, t_0)    `imitations` steps, from pi (with `restart`, from the first)
    of the greedy rewrite and n others the best on validation examples: half of these earned most so far, half are sampled

Differences from the papers:
1. They imitate answers to many questions, at most 4 to 10 each; here there is one question, and its texts are prompts.
2. ReST keeps what is above a threshold that rises from round to round. Rewards of rewrites are means over different rows in each
   round, so a share is kept instead. Where all earn the same there is nothing to imitate, and the round teaches nothing.
3. ReST-EM starts from the first weights in each round, ReST from the last; with few rounds of one question that is the default.
4. Low-rank adapters. A rewrite that the prompt cannot take gets the lowest reward and costs no call.
5. Under a limit on calls, rounds and examples are reduced to fit.

Run it:  whet optimize TASK --method expert_iteration --lm openai/NAME --policy hf/PATH
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from whet._util.fields import (
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    PositiveProbability,
    check_bounds,
)
from whet.environments.environment import Environment
from whet.errors import named_fields
from whet.methods.method import MethodEntry
from whet.prompt import Prompt
from whet.rl.policy_model import LoraSettings, PolicyModel, Update
from whet.rl.score_book import Leaders, rewrite_of, score_rewrites, written_text
from whet.rl.training import Trainer, Training
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.minibatch import minibatch
from whet.search.plan import fit
from whet.types import Message

ENTRY = MethodEntry(
    "expert_iteration",
    "Expert iteration: the best rewrites of a writer are imitated",
    version=3,
    rank=207,
    when="a trained writer of prompts needs a simple rule to beat",
    paper="ReST, Gulcehre et al., 2023",
    arxiv="2308.08998",
    needs=("policy",),
    trains="a language model that rewrites the prompt (LoRA)",
    extra="train",
)


@named_fields
@dataclass(frozen=True)
class Config:
    """Settings of expert iteration."""

    rounds: PositiveInt = 4
    """Rounds of sampling and imitation."""
    samples: PositiveInt = 64
    """Rewrites sampled in a round."""
    examples: PositiveInt | None = 16
    """Training examples that the rewrites of a round are scored on."""
    keep: PositiveProbability = 0.25
    """Share of the different rewrites of a round that is imitated."""
    imitations: NonNegativeInt = 20
    """Steps of Adam on the kept rewrites of a round; 0 trains nothing."""
    restart: bool = False
    """Whether each round starts from the first weights (ReST-EM) instead of the latest weights (ReST)."""
    rewrites: PositiveInt = 10
    """Rewrites of which the best is chosen: half those that earned most so far, half samples of the last policy."""
    lr: NonNegativeFloat = 1e-3
    """Adam's rate."""
    temperature: NonNegativeFloat = 1.0
    """Of sampling."""
    top_p: PositiveProbability = 1.0
    """Sampling is among the likeliest tokens that make up this share."""
    max_tokens: PositiveInt = 128
    """Bound on a rewrite."""
    rank: NonNegativeInt = 8
    """Of the adapters (LoRA); 0 trains all weights of a small model."""
    alpha: PositiveFloat = 16.0
    """The adapters' output is scaled by alpha / rank."""

    def __post_init__(self) -> None:
        """Refuse a number outside its bounds by a UsageError."""
        check_bounds(self)

    @property
    def lora(self) -> LoraSettings:
        """The settings of the weights that learn."""
        return LoraSettings(self.rank, self.alpha)

    @property
    def sampling(self) -> Training:
        """The settings by which texts are sampled."""
        return Training(temperature=self.temperature, top_p=self.top_p, max_tokens=self.max_tokens)


async def expert_iteration(
    run: Run, env: Environment, policy: PolicyModel, start: Prompt, config: Config
) -> Candidate:
    """Imitation of the best samples; see the module."""
    n = config.rewrites
    plan = fit(run, env, config.rounds + 1, config.samples, config.examples, finalists=n, asks=0, least=2)
    archive = Archive()
    await archive.validate(run, plan.env, [Candidate(start)])
    trainer = Trainer(policy, config.sampling)
    leaders = Leaders(policy, start, "expert_iteration")
    question = (Message("user", META.replace("[TEXT]", start.region_text())),)
    first = policy.save()

    async def round_of(run: Run, number: int) -> None:
        (group,) = await trainer.sample(run, [question], n=plan.width)
        rewrites = [rewrite_of(start, written_text(sample)) for sample in group]
        rewards = await score_rewrites(run, env, rewrites, minibatch(run.rng, env.train, plan.examples))
        leaders.note_rewards(rewrites, rewards)
        texts = [None if one is None else one.region_text() for one in rewrites]
        kept = best_texts(texts, rewards, config.keep)
        figures: dict[str, float] = {}
        if kept and config.imitations:
            if config.restart:
                policy.load(first)
            pairs = [(question, text) for text in kept]
            figures = policy.imitate(pairs, Update(config.lr, config.imitations))
        reward = sum(rewards) / len(rewards)
        run.log(
            "round", {"round": number, "reward": reward, "best": max(rewards), "kept": len(kept), **figures}
        )

    await run.train(max(0, plan.rounds - 1), round_of, policy)  # the last round is that of the finalists
    leaders.recall(archive)
    ((sample,),) = await trainer.sample(run, [question], n=1, greedy=True)
    greedy = rewrite_of(start, written_text(sample))
    n = min(n, plan.width) if plan.rounds else plan.finalists
    earned = leaders.best_rewarded(n // 2)
    (group,) = await trainer.sample(run, [question], n=n - len(earned))
    rewrites = [*earned, *(rewrite_of(start, written_text(sample)) for sample in group)]
    return await leaders.best_of(run, env, plan, archive, rewrites, greedy)


def best_texts(texts: Sequence[str | None], rewards: Sequence[float], keep: float) -> list[str]:
    """The best share of the different texts, at least one, that earn more than the mean of all; the best first. None stands for a
    text that cannot be used: it is not among the best, and its reward counts in the mean.

    >>> best_texts(["a", "b", "b", "c", "d"], [0.0, 1.0, 1.0, 0.5, 0.25], 0.5), best_texts(["a", None], [0.5, 0.0], 0.5)
    (['b'], ['a'])
    """
    if not rewards:
        return []
    pairs = zip(texts, rewards, strict=True)
    mean, earned = sum(rewards) / len(rewards), {text: reward for text, reward in pairs if text is not None}
    order = sorted(earned, key=lambda text: (-earned[text], len(text), text))
    return [text for text in order[: ceil(keep * len(order))] if earned[text] > mean + 1e-12]


META = """Rewrite the following instruction by adding specific requirements.

Instruction: [TEXT]

Rewritten:"""
