"""PRL: a model with trained weights reasons about a prompt and writes it anew, by group-relative policy optimisation.

Batorski, Kosmala, Swoboda: PRL: Prompts from Reinforcement Learning. arXiv:2505.14412. Section 3; rewards as in the
published code (Batorskq/prl).

    for step in 1..steps:
        c_1..c_G ~ pi(. | "refine this base prompt", t_0),   c = <think>..</think><answer>prompt</answer>
        D <- random training examples, shared by the group
        r_i <- mean over D of [ answer is a label ] + [ answer is the right label ], 0 to 2;  + format_i, 0 to 1.5
        A_i <- (r_i - mean) / std;  GRPO update of the adapters
        at each evaluation: sample n prompts, validate each, remember the best
    the best prompt of all evaluations

format: 0.1875 for each of the four tags that occurs exactly once, 0.75 for the whole pattern. Without reasoning
(`think=false`): 0.375 for each of the two answer tags, 0.75 for the pattern.

Differences from the paper:
1. Where the task has no labels, or its model scores them, the answer's part is twice the task's reward, brought to
   [0, 1] (the paper: twice the mean ROUGE, or SARI); the paper then gives no format reward, here `format` weighs it.
2. Label and right answer are read in one way, without case, with the words that the model is asked for, and in a
   sentence too, if it names one label only; in the paper an answer is a label when it is nothing else. The published
   data hold class numbers where the reward reads the gold label, so that it never fired.
3. A prompt that cannot be used (no answer tag after the reasoning, a lost slot) is rewarded for its format alone and costs no
   call.
4. Evaluations are few (`checks`) instead of every 100 steps of thousands; the start prompt is a candidate. The wording of
   the meta prompt is our own.
5. Under a limit on calls, steps and examples are reduced to fit (`whet.search.plan`).
6. `steps=0` is the control: the untrained policy's `prompts` samples, the best of them chosen.

Run it:  whet optimize TASK --method prl --lm openai/NAME --policy hf/PATH
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from whet._util.fields import NonNegativeFloat, NonNegativeInt, PositiveInt
from whet.environments.environment import Environment
from whet.errors import named_fields
from whet.methods.method import MethodEntry
from whet.prompt import Prompt
from whet.replies import between, unwrap, without_thought
from whet.rl.language import TAG
from whet.rl.policy_model import PolicyModel
from whet.rl.row_selection import refuse_selectors, score_on_rows
from whet.rl.score_book import Leaders, due, plan_without_training, rewrite_of
from whet.rl.training import Trainer, Training, rows_of_training
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.plan import fit
from whet.types import Message, Rollout

ENTRY = MethodEntry(
    "prl",
    "PRL: a trained model reasons and writes the prompt",
    version=1,
    rank=210,
    when="a trained writer that reasons first should write many prompts, now and later",
    paper="Batorski et al., 2025",
    arxiv="2505.14412",
    needs=("policy",),
    trains="a language model that writes the prompt (LoRA)",
    extra="train",
)


@named_fields
@dataclass(frozen=True)
class Config(Training):
    """Settings of PRL; the others are those of every training."""

    steps: NonNegativeInt = 60
    """Updates of the adapters; 0: the best of `prompts` prompts of the untrained policy."""
    group: PositiveInt = 8
    """Completions of a step (G; the paper: 4)."""
    temperature: NonNegativeFloat = 0.9
    """Of sampling."""
    max_tokens: PositiveInt = 256
    """Bound on a completion, its reasoning included."""
    examples: PositiveInt | None = 16
    """Training examples that the prompts of a step are scored on."""
    think: bool = True
    """Whether the model reasons before it answers."""
    format: NonNegativeFloat = 1.0
    """Weight of the format's part of the reward."""
    checks: NonNegativeInt = 4
    """Evaluations: each samples `prompts` prompts and validates them."""
    prompts: PositiveInt = 4
    """Prompts sampled at an evaluation (the paper: 10)."""


async def prl(run: Run, env: Environment, policy: PolicyModel, start: Prompt, config: Config) -> Candidate:
    """GRPO on the weights of a model that writes prompts; see the module."""
    refuse_selectors(config.rows, ("erpo",), "a prompt is about all rows, not about one.")
    width, least = (config.group, config.smallest_group) if config.steps else (config.prompts, 1)
    most = config.checks * config.prompts if config.steps else config.prompts
    plan = fit(run, env, config.steps or 1, width, config.examples, finalists=most, asks=0, least=least)
    archive = Archive()
    await archive.validate(run, plan.env, [Candidate(start)])
    trainer = Trainer(policy, config)
    leaders = Leaders(policy, start, "prl")
    share = replace(plan, finalists=0)
    checks = max(1, min(config.checks, (share.validations - 1) // config.prompts))
    question = conversation(env.description, start.region_text(), config.think)
    paid = plan.rounds * plan.examples if plan.rollouts is not None else None
    source = rows_of_training(config, policy, start, env.train, plan.rounds, plan.examples, paid)

    def grade(rollout: Rollout) -> float:
        return answer_reward(env, rollout)

    async def step(run: Run, number: int) -> None:
        (group,) = await trainer.draw_groups(run, [question], n=plan.width)
        prompts = [rewrite_of(start, answer_in(sample.text)) for sample in group]
        answers = await score_on_rows(run, env, source, prompts, plan.examples, grade, high=2.0)
        forms = [format_reward(sample.text, config.think) for sample in group]
        rewards = [
            answer + config.format * form for answer, form in zip(answers, forms, strict=bool(answers))
        ]
        if answers:
            figures = trainer.learn([group], [rewards])
            means = {"answer": sum(answers) / len(group), "format": sum(forms) / len(group)}
            run.log("step", {"step": number, **means, **figures})
        if due(number, plan.rounds, checks):
            (sampled,) = await trainer.sample(run, [question], n=config.prompts)
            for sample in sampled:
                await leaders.check(run, share, archive, rewrite_of(start, answer_in(sample.text)))

    if not config.steps:
        (group,) = await trainer.sample(run, [question], n=min(config.prompts, plan.width))
        prompts = [rewrite_of(start, answer_in(sample.text)) for sample in group]
        return await leaders.best_of(run, env, plan_without_training(plan), archive, prompts)
    await run.train(plan.rounds, step, policy)
    return leaders.recall(archive)


def conversation(description: str, text: str, think: bool) -> tuple[Message, ...]:
    """The policy's input."""
    query = REFINE.replace("[TASK]", description.strip() or UNKNOWN).replace("[TEXT]", text)
    return (Message("system", THINK if think else ANSWER), Message("user", query))


def answer_in(completion: str) -> str | None:
    """The prompt in a completion: what stands between the last pair of answer tags after the reasoning; None without one, as in a
    completion that the bound on tokens cut before."""
    answers = between(without_thought(completion), "<answer>", "</answer>")
    return unwrap(answers[-1], TAG) if answers else None


def format_reward(completion: str, think: bool = True) -> float:
    """Rate the form of a completion, from 0 to 1.5; see the module."""
    tags = ("<think>", "</think>", "<answer>", "</answer>") if think else ("<answer>", "</answer>")
    pattern = r"\s*<think>.*</think>\s*<answer>.*</answer>\s*" if think else r"\s*<answer>.*</answer>\s*"
    once = sum(completion.count(tag) == 1 for tag in tags)
    whole = once == len(tags) and re.fullmatch(pattern, completion, re.DOTALL) is not None
    return 0.75 * once / len(tags) + 0.75 * whole


def answer_reward(env: Environment, rollout: Rollout) -> float:
    """One answer, 0 to 2: legal and right where labels are written, else twice the reward brought to [0, 1]."""
    unit = (rollout.reward - env.reward.low) / (env.reward.high - env.reward.low)
    if env.labels and not env.scores:
        return float(rollout.error is None) + (unit if rollout.error is None else 0.0)
    return 2 * unit


THINK = "Think first, then answer. Write <think>your reasoning</think><answer>the new prompt</answer>."
ANSWER = "Write <answer>the new prompt</answer>."
REFINE = """Refine a base prompt for another model.

Task: [TASK]

Base prompt: [TEXT]"""
UNKNOWN = "see the base prompt"
