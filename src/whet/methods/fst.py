"""FST, fast and slow training: prompts are the fast weights of a policy and its weights the slow ones, and they take turns.

FST (blog of GEPA's authors, May 2026; there is no paper that could be read). T and the bound of the ratio are not given there.

    every `every` steps: F <- a light round of GEPA on prompts, under the weights as they are now       (whet.rl.prompt_front)
    for each x of a batch: y_1..y_G, each under a prompt drawn from F
        A <- (r - mean) / std over all answers to x, whatever their prompt
        update of pi by CISPO: - sg(min(rho, tau)) A log pi on each answer under its own prompt
    in use: pi under the best prompt of F

The advantage is taken once for a problem over all prompts, so that answers under a better prompt are made likelier as well.

Differences from the source:
1. tau is 2 (`clip_high=1`). With one pass over fresh samples, the default, rho is 1, and other losses (`loss`) have the same
   gradient.
2. The round of evolution is smaller than GEPA: one generation, measured on `measured` rows. The policy writes the prompts itself
   (`writer=optimizer`: the run's optimizer model).
3. Prompt and weights are chosen together on validation examples; the weights under the prompt as written are a candidate too, and
   the task model alone.
4. Low-rank adapters (`rank=0`: all weights).
5. Under a limit on calls, steps are reduced to fit; an answer of the policy counts as a task call.
6. `every=0` trains weights alone, `lr=0` prompts alone, `norm=prompt` compares answers under the same prompt only: the controls.

Run it:  whet optimize TASK --method fst --lm hf/PATH --policy hf/PATH
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Literal

from whet._util.fields import NonNegativeFloat, NonNegativeInt, PositiveInt, Probability
from whet.environments import play
from whet.environments.environment import Environment
from whet.environments.multiturn import MultiTurn, multiturn
from whet.errors import named_fields
from whet.methods.method import MethodEntry
from whet.prompt import Prompt
from whet.rl.policy_actor import PolicyActor, samples_of
from whet.rl.policy_model import PolicyModel, Sample
from whet.rl.prompt_front import PromptFront, Writer, evolve
from whet.rl.row_selection import CHOSEN, refuse_selectors
from whet.rl.score_book import ValidatedNotes, due
from whet.rl.training import Loss, MultiTurnTraining, Reward, Trainer, rewards_by_turn
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.minibatch import minibatch
from whet.search.plan import share_out
from whet.types import Example

ENTRY = MethodEntry(
    "fst",
    "FST: prompts and weights take turns",
    version=1,
    rank=231,
    when="the answering model may be trained, and both its weights and its prompt should improve with few training steps",
    paper="GEPA's authors, 2026",
    needs=("policy", "optimizer_optional"),
    trains="the model that answers (LoRA), and its prompt",
    extra="train",
    bound="its trained weights are what answers",
)


@named_fields
@dataclass(frozen=True)
class Config(MultiTurnTraining):
    """Settings of FST; the others are those of every training."""

    steps: NonNegativeInt = 60
    """Updates of the weights."""
    group: PositiveInt = 8
    """Answers to one problem, over all prompts (G)."""
    problems: PositiveInt = 8
    """Problems of a step."""
    every: NonNegativeInt = 10
    """Steps from one round of evolution to the next (T); 0 for none."""
    measured: PositiveInt = 12
    """Training rows that prompts are measured on in a round."""
    new: PositiveInt = 3
    """Prompts that a round writes."""
    kept: PositiveInt = 4
    """The number of prompts that stay, besides the start prompt."""
    norm: Literal["problem", "prompt"] = "problem"
    """The answers with which an answer is compared: all answers to the problem, or those under the same prompt."""
    writer: Writer = "policy"
    """The writer of prompts."""
    loss: Loss = "cispo"
    """Loss of a token."""
    clip_low: Probability = 1.0
    """The importance ratio is clipped below 1 minus this; 1 is no bound, as in CISPO."""
    clip_high: NonNegativeFloat = 1.0
    """The importance ratio is clipped above 1 plus this (tau = 2)."""
    checks: NonNegativeInt = 4
    """Times that weights and prompts are validated on the way."""


async def fst(run: Run, env: Environment, policy: PolicyModel, start: Prompt, config: Config) -> Candidate:
    """Rounds of evolution of prompts and policy gradient under them, in turn; see the module."""
    check(env, config)
    trainer, system = Trainer(policy, config), answering(env, policy, config)
    share = share_out(run, system, 2 * config.checks, 1, writes=False)
    problems = min(config.problems, len(env.train))
    round_cost = -(-(1 + config.kept + config.new) * config.measured // config.every) if config.every else 0
    steps = share.payable(config.steps, problems * config.group + round_cost)
    archive = Archive()
    await archive.validate(run, replace(env, validation=share.env.validation), [Candidate(start)])
    checks = min(steps, config.checks, (share.validations - 1) // 2 or 1)
    prompts = PromptFront(policy, start, config.kept)
    pairs = PromptsWithWeights(policy, start)

    async def step(run: Run, number: int) -> None:
        figures: dict[str, float] = {}
        if config.every and number % config.every == 0:
            rows = minibatch(run.rng, env.train, config.measured)
            figures["front"] = await evolve(run, system, trainer, prompts, rows, config.new, config.writer)
        batch = minibatch(run.rng, env.train, problems)
        texts = [prompts.draw(run.rng, config.group) for _ in batch]
        rolled = await roll(run, env, trainer, [[prompts.prompt(t) for t in row] for row in texts], batch)
        groups = [split(row, group, config.norm) for row, group in zip(texts, rolled, strict=True)]
        flat = [part for group in groups for part in group]
        figures |= trainer.learn(
            [[s for s, _, _ in part] for part in flat], [[p for _, p, _ in part] for part in flat]
        )
        answer = fmean(reward for group in rolled for _, _, reward in group)
        run.log("step", {"step": number, "answer": answer, "prompts": len(prompts.texts), **figures})
        if due(number, steps, checks):
            digest = await run.keep(policy)
            validation = answering(share.env, policy, config)
            for text in dict.fromkeys([prompts.best, start.region_text()]):
                await pairs.validate(run, archive, validation, json.dumps([text, digest]))

    await run.train(steps, step, policy)
    return pairs.recall(archive)


def check(env: Environment, config: Config) -> None:
    """Raises UsageError for a choice of rows: what is compared are answers under several prompts."""
    refuse_selectors(config.rows, CHOSEN, "fst compares answers to a row under several prompts.")


Answer = tuple[Sample, Reward, float]
"""The written text, its source, and the reward of the whole."""


async def roll(
    run: Run,
    env: Environment,
    trainer: Trainer,
    prompts: Sequence[Sequence[Prompt]],
    problems: Sequence[Example],
) -> list[list[Answer]]:
    """An answer to each problem under each of its prompts, a group for each problem."""
    config, world = trainer.config, multiturn(env)
    actor = PolicyActor(trainer.policy, config.temperature, config.max_tokens, (), config.top_p, calls=1)
    examples = [problem for problem, row in zip(problems, prompts, strict=True) for _ in row]
    under = [prompt for row in prompts for prompt in row]
    episodes = [world.episode(prompt, example) for prompt, example in zip(under, examples, strict=True)]
    played = await play(run, actor, episodes)
    graded = await world.judge(run, under[0], examples, played)
    whole = [rollout.reward for rollout in graded]
    turns = [rewards_by_turn(one, reward) for one, reward in zip(played, whole, strict=True)]
    answers = iter(zip(samples_of(played), trainer.assign_credit(whole, turns), whole, strict=True))
    return [[next(answers) for _ in row] for row in prompts]


def split(texts: Sequence[str], group: Sequence[Answer], norm: str) -> list[list[Answer]]:
    """The groups in which answers to one problem are compared: one, or one for each prompt."""
    if norm == "problem":
        return [list(group)]
    return [
        [answer for text, answer in zip(texts, group, strict=True) if text == own]
        for own in dict.fromkeys(texts)
    ]


@dataclass
class PromptsWithWeights(ValidatedNotes):
    """Pairs of a prompt and trained weights that were validated; their key is a JSON list of text and digest."""

    def candidate(self, key: str) -> Candidate:
        """A prompt with trained weights as a candidate."""
        text, digest = json.loads(key)
        prompt = self.start if text == self.start.region_text() else self.start.edit(text)
        return Candidate(prompt, (self.start.id,), "fst", system=digest)


def answering(env: Environment, policy: PolicyModel, config: Config) -> MultiTurn:
    """The system: the policy, greedy, answers the task."""
    return multiturn(env, actor=PolicyActor(policy, 0.0, config.max_tokens, calls=1))


def deploy(env: Environment, policy: PolicyModel, blob: bytes, config: Config) -> Environment:
    """The environment in which trained weights answer the task."""
    policy.load(blob)
    return answering(env, policy, config)
