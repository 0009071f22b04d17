"""Directional Stimulus Prompting: a small trained model writes a hint for every input of a large frozen one.

Li, Peng, He, Galley, Gao, Yan: Guiding Large Language Models via Directional Stimulus Prompting. NeurIPS 2023.
arXiv:2302.11520. Sections 2.1 to 2.3; rewards as in the published code (Leezekun/Directional-Stimulus-Prompting).

    pi <- supervised: input -> keywords of the input that its target holds;  ref <- copy of pi
    for step in 1..steps:
        for each of `questions` inputs: G hints z ~ pi(. | x)
        r <- reward of the frozen model's answer to (x, z)  [- that without a hint]
             + keyword x sum over keywords of z of (+1 if the target holds it, else -0.2)
        PPO update of pi with - kl KL(pi || ref);  kl is adapted to keep the divergence at `target_kl`
    at inference: the greedy hint is attached to each input

The result is no text but a system: the start prompt with trained weights that hint at every input.

Differences from the paper:
1. The advantage is relative to the group of an input (`advantage=grpo`) instead of a learned critic's
   (`advantage=gae`); NLPO's learned action mask is nucleus sampling (`top_p=0.9`). See docs/training.md.
2. The reward is the task's, in [0, 1] instead of 10 x ROUGE; the weight of keywords is a tenth, to keep the ratio.
   Keywords are rewarded at the end of a hint instead of at each separator, with one sign for the penalty.
3. The supervised stage's keywords are words of the target, those of the input first, instead of TextRank's; rows may
   name their own in the column `column`. `warmup=0` leaves the stage out.
4. The weights are chosen on validation examples among some checks on the way and the frozen model alone.
5. Within a limit on calls, steps and inputs are cut to what the limit pays.

Run it:  whet optimize TASK --method dsp --lm openai/NAME --policy hf/PATH
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from whet.environments.environment import Environment
from whet.errors import UsageError
from whet.prompt import Prompt
from whet.rewards.text import targets_of
from whet.rl.policy_actor import PolicyActor
from whet.rl.policy_model import PolicyModel
from whet.rl.stimulus import SEPARATOR, attached, hinted, keyword_reward, keywords_of, question, unit
from whet.rl.trained_candidates import TrainedCandidates
from whet.rl.trainer import Groups, Trainer, Training
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.plan import share_out
from whet.types import Example

SOFT_STEP, HORIZON, KEYWORD = 0.2, 0.1, 0.1


@dataclass(frozen=True)
class Config(Training):
    """Settings of DSP; the others are those of every training."""

    steps: int = 60
    """Updates by reinforcement learning."""
    group: int = 8
    """Hints sampled for one input."""
    top_p: float = 0.9
    """Sampling is among the likeliest tokens that make up this share."""
    max_tokens: int = 32
    """Bound on a hint."""
    kl: float = 0.005
    """First weight of the divergence from the supervised model."""
    target_kl: float = 0.5
    """Divergence per token, in nats, that the weight is adapted to."""
    questions: int = 8
    """Inputs of a step."""
    warmup: int = 0
    """Supervised steps before; each on `questions` inputs."""
    column: str = "keywords"
    """Column of the rows that may hold the keywords of the supervised stage."""
    keyword: float | None = None
    """Weight of the reward for keywords; none: 0.1 where all rows have targets, else 0."""
    relative: bool = False
    """Whether the reward is the difference to the answer without a hint."""
    checks: int = 4
    """Times that the system is validated on the way."""


async def dsp(run: Run, env: Environment, policy: PolicyModel, start: Prompt, config: Config) -> Candidate:
    """Supervised warm-up, then policy gradient on hints; see the module."""
    config = check(env, config)
    mechanics = Trainer(policy, config, env.train)
    cost = config.group * config.passes + config.greedy + config.relative
    share = share_out(run, env, config.checks, 1, writes=False)
    paid = None if share.rollouts is None else share.rollouts // cost
    questions = min(config.questions, len(env.train), *([] if paid is None else [max(1, paid)]))
    steps = config.steps if paid is None else min(config.steps, paid // questions)
    archive = Archive()
    await archive.validate(run, share.env, [Candidate(start)])
    systems = TrainedCandidates(policy, start, "dsp", max(1, steps), min(steps, config.checks))
    policy.notes["kl"] = config.kl

    async def warm(run: Run, number: int) -> None:
        batch = run.rng.sample(env.train, questions)
        pairs = [(question(e), f"{SEPARATOR} ".join(keywords(e, config.column))) for e in batch]
        figures = policy.imitate([(query, text) for query, text in pairs if text], config.update())
        run.log("warmup", {"step": number, **figures})

    async def step(run: Run, number: int) -> None:
        batch = mechanics.choose(run.rng, questions)
        mechanics.config = replace(config, kl=policy.notes["kl"])
        groups = await mechanics.sample(run, [question(e) for e in batch], keys=[e.id for e in batch])
        alone = await env.evaluate(run, start, batch) if config.relative else []
        bases = [unit(env, rollout.reward) for rollout in alone] or [0.0] * len(batch)
        first: list[float] = []

        async def judge(run: Run, places: Sequence[int], groups: Groups) -> list[list[float]]:
            of = [(batch[i], bases[i]) for i in places]
            rewards, rates = await rewarded(run, env, start, config, of, groups)
            first.extend([] if first else rates)
            return rewards

        rewards = await judge(run, range(len(batch)), groups)
        hinted_questions = [(question(e), SEPARATOR.join(keywords(e, config.column))) for e in batch]
        kept, paid, guided = await mechanics.guide(run, hinted_questions, groups, rewards, judge)
        base = await mechanics.baseline(run, [query for query, _ in hinted_questions], judge)
        figures = mechanics.learn(kept, paid, keys=[e.id for e in batch], greedy=base, hinted=guided)
        mechanics.observe(batch, first, config.group)
        policy.notes["kl"] = weight = reweighted(policy.notes["kl"], config, figures)
        run.log("step", {"step": number, "answer": sum(first) / len(first), "weight": weight, **figures})
        if systems.due(number):
            await systems.check(run, archive, deployed(share.env, policy, config), await run.keep(policy))

    if config.warmup:
        await run.train(config.warmup, warm, policy)
        policy.anchor()
    await run.train(steps, step, policy)
    return systems.recall(archive)


async def rewarded(
    run: Run,
    env: Environment,
    start: Prompt,
    config: Config,
    examples: Sequence[tuple[Example, float]],
    groups: Groups,
) -> tuple[list[list[float]], list[float]]:
    """Rewards of the hints to each example (with what is taken off), and the mean reward of the answers, 0 to 1."""
    pairs = list(zip(examples, groups, strict=True))
    prompted = [attached(example, sample.text) for (example, _), group in pairs for sample in group]
    answers = iter([unit(env, rollout.reward) for rollout in await env.evaluate(run, start, prompted)])
    rewards, means = [], []
    for (example, base), group in pairs:
        mine, target = [next(answers) for _ in group], " ".join(targets_of(example))
        hits = [keyword_reward(sample.text, target) for sample in group]
        rewards.append([r - base + (config.keyword or 0.0) * h for r, h in zip(mine, hits, strict=True)])
        means.append(sum(mine) / len(mine))
    return rewards, means


def keywords(example: Example, column: str) -> list[str]:
    """The supervised stage's keywords: the row's own, or words of the target."""
    value = example.row.get(column)
    if isinstance(value, str):
        return [value]
    return [str(word) for word in value] if isinstance(value, Sequence) else keywords_of(example)


def check(env: Environment, config: Config) -> Config:
    """The settings with the weight of keywords. Raises UsageError where they need targets that rows lack."""
    bare = [e for e in env.train if e.target is None]
    lacking = [e for e in bare if not keywords(e, config.column)]
    if config.keyword and bare:
        raise UsageError(f"keyword={config.keyword:g} needs a target in every row; {len(bare)} have none.")
    if lacking and (config.warmup or config.hints != "none"):
        asks = f"warmup={config.warmup}" if config.warmup else f"hints={config.hints}"
        raise UsageError(
            f"{asks} needs a target or `{config.column}` in every row; {len(lacking)} have none."
        )
    return replace(config, keyword=(0.0 if bare else KEYWORD) if config.keyword is None else config.keyword)


def reweighted(weight: float, config: Config, figures: Mapping[str, float]) -> float:
    """The weight of the divergence after a step; tau (dro) and beta (dpo) stay as they are."""
    if config.loss in ("dro", "dpo"):
        return weight
    return adapted(weight, figures.get("kl", config.target_kl), config.target_kl)


def adapted(weight: float, divergence: float, target: float) -> float:
    """The weight of the divergence, raised or lowered by at most 2 % towards its target (Ziegler et al. 2019)."""
    error = max(-SOFT_STEP, min(SOFT_STEP, divergence / target - 1))
    return weight * (1 + HORIZON * error)


def deployed(env: Environment, policy: PolicyModel, config: Config) -> Environment:
    """The system: a greedy hint for every input."""
    return hinted(env, PolicyActor(policy, 0.0, config.max_tokens))


def deploy(env: Environment, policy: PolicyModel, blob: bytes, config: Config) -> Environment:
    """The environment in which trained weights hint at every input."""
    policy.load(blob)
    return deployed(env, policy, config)
