"""Prompt-R1: a small model learns to ask a large frozen one, in as many turns as it needs, and then answers.

Prompt-R1: Collaborative Automatic Prompting Framework via End-to-end Reinforcement Learning. arXiv:2511.01016.
Reward and turn format as in the published code (QwenQKing/Prompt-R1).

    for each of `steps` batches of questions, `group` conversations for each question:
        h <- rules + question
        for turn in 1..turns:
            o <- pi(h) until </interaction_prompt> or </answer>
            stop at an answer;  else h <- h + o + reply of the large model (no loss on the reply)
        R <- S if F = 1 else F - 1      S: how good the answer is, F: how well-formed the conversation
        A <- (R - mean) / std of the question's group
        policy gradient on the small model's own tokens, clipped; + kl x k3 divergence from its first weights

F counts, up to 1: 0.4 for each well-formed turn that asks, 0.25 for an answer tag, 0.25 for an answer that is not
empty, 0.1 for a well-formed last turn. So whoever never asks does not reach 1, and S never counts.

The result is no text but a system: the start prompt with trained weights. The sealed test asks the small model, which
asks the large one.

Differences from the paper:
1. F = 1 is tested with a tolerance: 0.4 + 0.25 + 0.25 + 0.1 need not be 1 in floating point.
2. S is the task's reward, brought to [0, 1]; `reward=f1` takes the paper's token F1.
3. The large model sees the earlier questions and replies of the conversation, not the small model's thoughts; what is
   asked in the last turn is not sent. A turn that neither asks nor answers ends the conversation.
   Questions of which a conversation broke off because a model could not be reached are left out of the update.
4. The weights are chosen on validation examples, among some checks on the way and the large model alone; the paper
   takes the last ones. LoRA instead of all weights; smaller batches.
5. With `credit=turn` R is divided: a turn that asks earns what it adds to F, the last one the rest.
6. Under a limit on calls, steps and questions are reduced to fit.

Run it:  whet optimize TASK --method prompt_r1 --lm openai/NAME --policy hf/PATH
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from whet._util.fields import NonNegativeFloat, NonNegativeInt, PositiveInt
from whet.environments import Trajectory, Turn, play
from whet.environments.advice import STOPS, Consulting
from whet.environments.environment import Environment
from whet.environments.multiturn import MultiTurn, multiturn, task_model
from whet.errors import UsageError, named_fields, parameter
from whet.methods.method import MethodEntry
from whet.prompt import Prompt
from whet.replies import between
from whet.rewards.text import f1_score, targets_of
from whet.rl.policy_actor import PolicyActor, samples_of
from whet.rl.policy_model import PolicyModel, Sample
from whet.rl.row_selection import Rolled
from whet.rl.score_book import TrainedCandidates
from whet.rl.training import MultiTurnTraining, Reward, Trainer, rows_of_training, total_reward
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.plan import share_out
from whet.types import Example, Rollout

ENTRY = MethodEntry(
    "prompt_r1",
    "Prompt-R1: a small model consults a large frozen one",
    version=1,
    rank=240,
    when="a small model should learn to use a large frozen model well",
    paper="2025",
    arxiv="2511.01016",
    needs=("policy",),
    trains="the small model (LoRA)",
    extra="train",
)

TOLERANCE = 1e-6
ASK, ANSWER = "interaction_prompt", "answer"


@named_fields
@dataclass(frozen=True)
class Config(MultiTurnTraining):
    """Settings of Prompt-R1; the others are those of every training."""

    steps: NonNegativeInt = 60
    """Updates of the small model."""
    group: PositiveInt = 5
    """Conversations about one question (n)."""
    kl: NonNegativeFloat = 0.001
    """Weight of the divergence from the first weights."""
    max_tokens: PositiveInt = 256
    """Bound on one turn of the small model."""
    questions: PositiveInt = 8
    """Questions of a step."""
    turns: PositiveInt = 5
    """Turns of a conversation at most, the answer included."""
    reward: Literal["reward", "f1"] = "reward"
    """The reward of an answer: that of the task, or token F1 with the target."""
    checks: NonNegativeInt = 4
    """Times that the system is validated on the way."""

    @property
    def calls_per_answer(self) -> int:
        """Task calls of one answer at most: the last turn asks nothing."""
        return max(1, self.turns - 1)


async def prompt_r1(
    run: Run, env: Environment, policy: PolicyModel, start: Prompt, config: Config
) -> Candidate:
    """GRPO on conversations of two models; see the module."""
    check(env, config)
    trainer = Trainer(policy, config)
    system = consulting(env, policy, config)
    share = share_out(run, system, config.checks - 1, 1, writes=False)
    questions = share.payable(min(config.questions, len(env.train)), config.group)
    steps = share.payable(config.steps, max(1, questions) * config.group)
    archive = Archive()
    await archive.validate(run, replace(env, validation=share.env.validation), [Candidate(start)])
    checks = min(steps, config.checks, share.validations - 1)
    systems = TrainedCandidates(policy, start, "prompt_r1", steps, checks)
    most = share.payable_groups(config.group)
    source = rows_of_training(config, policy, start, env.train, steps, questions, most)

    async def step(run: Run, number: int) -> None:
        async def roll(batch: Sequence[Example], heat: float) -> list[Rolled[Talks]]:
            examples = [example for example in batch for _ in range(config.group)]
            speaker = PolicyActor(policy, heat, config.max_tokens, STOPS, config.top_p)
            talk = Consulting(speaker, task_model(env), config.turns)
            played = await play(run, speaker, [talk.episode(start.render(example)) for example in examples])
            graded = await system.judge(run, start, examples, played)
            answers = [answer_reward(env, config, *one) for one in zip(examples, played, graded, strict=True)]
            forms = [format_reward([turn.text for turn in one.turns]) for one in played]
            rewards = [dual_reward(s, f) for s, f in zip(answers, forms, strict=True)]
            samples = samples_of(played)
            by_turn = [turn_rewards(one.turns, r) for one, r in zip(played, rewards, strict=True)]
            paid = trainer.assign_credit(rewards, by_turn)
            groups = []
            for i, row in enumerate(batch):
                cut = slice(i * config.group, (i + 1) * config.group)
                reached = not any(map(failed_to_reach_model, graded[cut]))
                turns = [len(one.turns) for one in played[cut]]
                talks = Talks(samples[cut], paid[cut], forms[cut], turns, reached)
                groups.append(Rolled(row, answers[cut], [total_reward(r) for r in paid[cut]], talks))
            return groups

        rolled = await source.collect(run, questions, config.temperature, roll)
        reached = [one.made for one in rolled if one.made.reached]
        figures = trainer.learn([one.samples for one in reached], [one.rewards for one in reached])
        means = {
            "answer": mean([s for one in rolled for s in one.rewards]),
            "format": mean([f for one in rolled for f in one.made.forms]),
            "turns": mean([n for one in rolled for n in one.made.turns]),
        }
        run.log("step", {"step": number, **means, "rows": source.rows_asked, **figures})
        if systems.due(number):
            await systems.validate(run, archive, share.env, await run.keep(policy))

    await run.train(steps, step, policy)
    return systems.recall(archive)


@dataclass(frozen=True)
class Talks:
    """The conversations about one row: their texts, what each earned, how well-formed it is, its number of turns, and whether
    the large model could be reached in all of them."""

    samples: list[Sample]
    rewards: list[Reward]
    forms: list[float]
    turns: list[int]
    reached: bool


def mean(values: Sequence[float]) -> float:
    """Mean; 0 of nothing."""
    return sum(values) / max(1, len(values))


def format_reward(turns: Sequence[str]) -> float:
    """F of a conversation, 0 to 1: its turns in order, the last one being the answer's; see the module."""
    *questions, last = turns
    answers = between(last, "<answer>", "</answer>")
    reward = 0.4 * sum(well_formed(turn, ASK) for turn in questions) + 0.1 * well_formed(last, ANSWER)
    if answers:
        reward += 0.25 + 0.25 * bool(answers[0])
    return min(1.0, reward)


def well_formed(turn: str, tag: str) -> bool:
    """Whether a turn is `<think>...</think><TAG>...</TAG>`, each tag once and nothing around them but space."""
    marks = ("<think>", "</think>", f"<{tag}>", f"</{tag}>")
    shape = r"\s*<think>.*</think>\s*" + f"<{tag}>.*</{tag}>" + r"\s*"
    return all(turn.count(mark) == 1 for mark in marks) and re.fullmatch(shape, turn, re.DOTALL) is not None


def failed_to_reach_model(rollout: Rollout) -> bool:
    """Whether it failed because a model could not be reached, which is not the small model's doing."""
    return (rollout.error or "").startswith("provider:")


def dual_reward(answer: float, form: float) -> float:
    """R in [-1, 1]: the answer's reward (0 to 1) when the form is complete, else what the form lacks, negative."""
    return answer if form >= 1 - TOLERANCE else form - 1


def turn_rewards(turns: Sequence[Turn], reward: float) -> list[float]:
    """R by turn: a turn that asks earns what its form adds to F, the last turn the rest of R."""
    rewards: list[float] = []
    for turn in turns[:-1]:
        rewards.append(min(0.4 * well_formed(turn.text, ASK), 1 - sum(rewards)))
    return [*rewards, reward - sum(rewards)]


def answer_reward(
    env: Environment, config: Config, example: Example, played: Trajectory, graded: Rollout
) -> float:
    """S of an answer, 0 to 1; 0 without one."""
    if config.reward == "f1":
        return max(f1_score(played.answer or "", target) for target in targets_of(example))
    return (graded.reward - env.reward.low) / (env.reward.high - env.reward.low)


def consulting(env: Environment, policy: PolicyModel, config: Config) -> MultiTurn:
    """The system: the small model, greedy, with the large one at its side."""
    speaker = PolicyActor(policy, 0.0, config.max_tokens, STOPS)
    return multiturn(env, actor=Consulting(speaker, task_model(env), config.turns))


def deploy(env: Environment, policy: PolicyModel, blob: bytes, config: Config) -> Environment:
    """The environment in which trained weights answer with the large model's help."""
    policy.load(blob)
    return consulting(env, policy, config)


def check(env: Environment, config: Config) -> None:
    """Refuse what this method cannot do."""
    if getattr(env, "world", None) is not None:
        raise UsageError(
            "prompt_r1 talks about single questions; this task has an `environment:` of its own."
        )
    if config.reward == "f1" and any(e.target is None for e in env.train):
        raise UsageError(
            f"reward=f1 compares answers with targets, and some rows have none. Use {parameter('config.reward', 'reward')}."
        )
