"""Prompt-A-Video: a rewriter of requests learns from pairs of its own rewritings, of which one is better by a margin.

Ji, Zhang, Wu, Zhang, Chen, Ge, Sun, Chen, Shao, Xiao, Huang, Luo: Prompt-A-Video: Prompt Your Video Diffusion Model via
Preference-Aligned LLM. ICCV 2025. arXiv:2412.15156. Code: jiyt17/Prompt-A-Video.

    stage 1, for each of some requests x:                           (`evolutions` above 0)
        H <- {(x, scores)}
        each round: a large model reads H and writes 3 more; H gets them with their scores, and keeps x and the best 3
    imitate the best text of each H;   reference <- pi
    stage 2, for step in 1..steps, for each request x of a batch:
        x'_1..x'_G ~ pi(. | x);   s_g <- score of what the frozen model makes of x'_g
        chosen: among the `top` best, s_g >= `least`, each named part above its floor, at most `longest` words
        pairs: a chosen one with each that is more than `margin` worse
        `epochs` steps down the DPO loss of the pairs;   `renewals` times: reference <- pi
    in use: the likeliest x' for every x

The score sees the request as it was, x, and never x'.

Differences from the paper:
1. The score is the task's reward, brought to [0, 1], and its parts have the floors; the paper adds seven scores of a video. Its
   thresholds and its margin of 1.4 belong to them; those here are ours.
2. Stage 1 is left out by default, because it needs an optimizer model.
3. DPO's gradient is taken as that of a policy gradient whose advantages are the weights of the pairs; it is the same.
4. Low-rank adapters are not merged: the reference is renewed instead. Batches are fresh in each step.
5. `margin=0`, `least=0` and `top` as large as the group make pairs of all samples: the control.
6. The weights are chosen on validation examples among some checks on the way and the frozen model alone.
7. A rewriting that is empty or that the bound on tokens cut is in no pair and costs no call; nor is one that was not judged.
8. Under a limit on calls, steps and requests are reduced to fit.

Run it:  whet optimize TASK --method prompt_a_video --lm images/openai/NAME --policy hf/PATH
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import ClassVar, TypeAlias

from whet._util.fields import NonNegativeInt, PositiveFloat, PositiveInt, Probability
from whet.environments.environment import Environment
from whet.errors import UsageError, named_fields
from whet.methods.method import MethodEntry
from whet.prompt import Prompt
from whet.rewards.cases import place_in_range
from whet.rl.language import LanguagePolicy
from whet.rl.policy_model import PolicyModel, Sample
from whet.rl.policy_model.model import Conversation
from whet.rl.preference_pairs import Pair, choose_pairs, prefer
from whet.rl.rewordings import (
    GreedyRewording,
    RewriterTraining,
    check_one_turn,
    request_of,
    try_rewordings,
)
from whet.rl.row_selection import CHOSEN, refuse_selectors
from whet.rl.score_book import due, written_text
from whet.rl.training import Trainer, Training
from whet.rl.written_prompts import WrittenPrompts, with_writer
from whet.run import Run
from whet.search.archive import Candidate
from whet.search.minibatch import minibatch
from whet.search.plan import share_out
from whet.types import Example, Message, Rollout

ENTRY = MethodEntry(
    "prompt_a_video",
    "Prompt-A-Video: a rewriter trained on preference pairs",
    version=1,
    rank=227,
    when="rewards of rewritings are noisy, and a rewriter of requests should learn from clear differences only",
    paper="Ji et al., ICCV 2025",
    arxiv="2412.15156",
    needs=("policy", "optimizer_optional"),
    trains="a language model that rewords every input (LoRA)",
    extra="train",
)

KEPT = 3  # of the history of a request, beside the request itself, which stands first
ScoredText: TypeAlias = tuple[str, float]


@named_fields
@dataclass(frozen=True)
class Config(Training):
    """Settings of Prompt-A-Video; the others are those of every training, of which advantages and losses have no use here."""

    DRAWS_GREEDY: ClassVar[bool] = False
    steps: NonNegativeInt = 20
    """Rounds of sampling and DPO."""
    group: PositiveInt = 5
    """Rewritings of one request (G)."""
    requests: PositiveInt = 16
    """Requests of a step."""
    top: PositiveInt = 2
    """The number of best samples of a group that may be preferred."""
    least: Probability = 0.5
    """Least score of a chosen rewriting, 0 to 1."""
    floors: str = ""
    """Least values of parts of the reward of a chosen rewriting, such as met:0.9,beauty:3."""
    margin: Probability = 0.1
    """The difference in reward that a pair of rewritings must exceed."""
    longest: PositiveInt = 130
    """Most words of a chosen rewriting."""
    beta: PositiveFloat = 0.1
    """Strength of the reference in DPO."""
    epochs: PositiveInt = 3
    """Steps down the DPO loss of a batch."""
    renewals: NonNegativeInt = 1
    """Times that the policy becomes the reference."""
    evolutions: NonNegativeInt = 0
    """Rounds of stage 1, in which the optimizer model rewrites `requests` requests; 0 leaves it out."""
    proposals: PositiveInt = 3
    """Texts of a round of stage 1."""
    imitations: NonNegativeInt = 20
    """Steps that imitate the best texts of stage 1."""
    max_tokens: PositiveInt = 250
    """Bound on a rewriting."""
    checks: NonNegativeInt = 4
    """Times that the system is validated on the way."""


async def prompt_a_video(
    run: Run, env: Environment, policy: PolicyModel, start: Prompt, config: Config
) -> Candidate:
    """Reward-guided evolution, then preference optimisation; see the module."""
    floors = check(env, config)
    trainer = Trainer(policy, config)
    share = share_out(run, env, config.checks, 1, writes=config.evolutions > 0)
    requests = max(1, share.payable(min(config.requests, len(env.train)), config.group))
    share = share.without(requests * (1 + config.evolutions * config.proposals) if config.evolutions else 0)
    steps = share.payable(config.steps, requests * config.group)
    training = await RewriterTraining.begin(run, policy, start, share, "prompt_a_video", steps, config.checks)
    if config.evolutions:
        await imitate_evolved(run, env, policy, start, config, minibatch(run.rng, env.train, requests))

    async def step(run: Run, number: int) -> dict[str, float]:
        batch = minibatch(run.rng, env.train, requests)
        groups = await trainer.sample(run, [question(example) for example in batch])
        watched = trainer.watch_divergence([sample for group in groups for sample in group])
        texts = [[written_text(sample) for sample in group] for group in groups]
        tried = await try_rewordings(run, env, start, batch, texts)
        pairs = [
            pair
            for one in zip(groups, texts, tried, strict=True)
            for pair in pairs_of(env, config, floors, *one)
        ]
        figures = prefer(
            policy, pairs, beta=config.beta, lr=config.lr, epochs=config.epochs, length=config.max_tokens
        )
        if number + 1 < steps and due(number, steps, config.renewals + 1):
            policy.set_reference_policy()
        answer = fmean(env.reward.low if r is None else r.reward for group in tried for r in group)
        return {"answer": answer, "pairs": len(pairs), **watched, **figures}

    return await training.train(run, step, lambda env: rewording(env, policy, config))


def pairs_of(
    env: Environment,
    config: Config,
    floors: Mapping[str, float],
    group: Sequence[Sample],
    texts: Sequence[str | None],
    rollouts: Sequence[Rollout | None],
) -> list[Pair]:
    """The preference pairs among the rewritings of one request."""
    fit = [
        text is not None and len(text.split()) <= config.longest and is_good(rollout, floors)
        for text, rollout in zip(texts, rollouts, strict=True)
    ]
    scores = [score_of(env, rollout) for rollout in rollouts]
    places = choose_pairs(scores, fit, top=config.top, least=config.least, margin=config.margin)
    return [(group[i], group[j]) for i, j in places]


def score_of(env: Environment, rollout: Rollout | None) -> float | None:
    """The reward of a rollout from 0 to 1; None where there is none that counts."""
    return place_in_range(rollout.reward, env.reward) if rollout is not None and rollout.has_reward else None


def is_good(rollout: Rollout | None, floors: Mapping[str, float]) -> bool:
    """Whether each part that has a floor reaches it."""
    return rollout is not None and all(rollout.parts.get(name, 0.0) >= low for name, low in floors.items())


async def imitate_evolved(
    run: Run, env: Environment, policy: PolicyModel, start: Prompt, config: Config, rows: Sequence[Example]
) -> None:
    """Stage 1: the rewriter imitates the best text that the optimizer model found for each of the rows."""
    best = await evolve(run, env, start, config, rows)
    pairs = [(question(e), text) for e, text in zip(rows, best, strict=True) if text is not None]

    async def warm(run: Run, number: int) -> None:
        run.log("warmup", {"step": number, **policy.imitate(pairs, config.update())})

    await run.train(config.imitations if pairs else 0, warm, policy)
    policy.set_reference_policy()


async def evolve(
    run: Run, env: Environment, start: Prompt, config: Config, rows: Sequence[Example]
) -> list[str | None]:
    """The best text that the optimizer model found for each request; None where none is better than the request."""
    writer, histories = LanguagePolicy(), [list[ScoredText]() for _ in rows]
    for number in range(config.evolutions + 1):

        async def propose(branch: Run, history: list[ScoredText], turn: int = number - 1) -> list[str]:
            sample = turn * config.proposals
            new = await writer.write(branch, evolution(history), TAG, config.proposals, sample=sample)
            return [text for text in dict.fromkeys(new) if text not in dict(history)]

        texts = await run.map(propose, histories) if number else [[request_of(example)] for example in rows]
        tried = await try_rewordings(run, env, start, rows, texts)
        for history, own, rollouts in zip(histories, texts, tried, strict=True):
            new = [(text, score_of(env, r) or 0.0) for text, r in zip(own, rollouts, strict=True)]
            history[1:] = sorted([*history[1:], *new], key=lambda pair: -pair[1])[:KEPT]
    tops = [max(history, key=lambda pair: pair[1]) for history in histories]
    pairs = zip(tops, histories, strict=True)
    return [text if score > history[0][1] else None for (text, score), history in pairs]


def evolution(history: Sequence[ScoredText]) -> str:
    """The question to the optimizer model: what was tried for a request, with scores of 0 to 100."""
    lines = [f"<{TAG}>\n{text}\n</{TAG}>\nScore: {100 * score:.0f}" for text, score in history]
    return "\n\n".join([HISTORY, *lines, EVOLVE])


def question(example: Example) -> Conversation:
    """The rewriter's input."""
    return (Message("user", f"{REQUEST}\n\n{request_of(example)}"),)


def check(env: Environment, config: Config) -> dict[str, float]:
    """The floors of parts. Raises UsageError for a task of several turns, a choice of rows, and floors that cannot be read."""
    refuse_selectors(config.rows, CHOSEN, "prompt_a_video draws requests uniformly.")
    check_one_turn(env, "prompt_a_video")
    if config.group < 2:
        raise UsageError(f"group={config.group}: a pair needs two rewritings. Raise group.")
    floors = {}
    for part in filter(None, map(str.strip, config.floors.split(","))):
        name, _, value = part.rpartition(":")
        if not name.strip() or not value.strip().replace(".", "", 1).isdecimal():
            raise UsageError(
                f"floors={config.floors}: {part!r} is not of the form part:value, such as met:0.9."
            )
        floors[name.strip()] = float(value)
    return floors


def rewording(env: Environment, policy: PolicyModel, config: Config) -> WrittenPrompts:
    """The system: every request is rewritten before the frozen model reads it."""
    return with_writer(env, GreedyRewording(Trainer(policy, config), question), "prompt_a_video")


def deploy(env: Environment, policy: PolicyModel, blob: bytes, config: Config) -> Environment:
    """The environment in which trained weights rewrite every request."""
    policy.load(blob)
    return rewording(env, policy, config)


TAG = "REQUEST"
REQUEST = "Rewrite this request so that a model obeys it to the letter. Write the request only."
HISTORY = "A request, and rewritings of it that were tried, with the scores of what a model made of them (100 is best)."
EVOLVE = "Write one new rewriting of the first request that should score higher than all of these. It must ask for the same."
