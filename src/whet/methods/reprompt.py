"""RePrompt: a model learns to reason about a picture that is asked for, and then to write the request for it.

Wu, Wang, Zhao, Yang, Zhang, Liu, Zhan, Han, Sun, Ji, Sun, Lin, Deng, Zhang, Sun, Zhang, Ji: RePrompt: Reasoning-Augmented
Reprompting for Text-to-Image Generation via Reinforcement Learning. ICLR 2026. arXiv:2505.17540. Code: microsoft/DKI_LLM.

    pi <- rewriter, taught by `warmup` steps on rows that hold a rewriting
    for step in 1..steps, for each request x of a batch:
        <think>t</think><answer>x'</answer> _1..G ~ pi(. | x);   y_g ~ frozen model(. | x'_g)
        picture_g <- r(x, y_g);  form_g <- 1 if the reply has this form;  length_g <- 1 if 15 < words of x'_g < 77
        R_g <- picture_g / std + form_g / std + length_g / std,   std over the G samples
        A_g <- (R_g - mean R) / std R;  policy gradient on pi
    in use: the likeliest x' for every x

The reward sees the picture beside the request as it was, x, and never x'.

Differences from the paper:
1. The reward of the picture is the task's; the paper's is a preference model and a vision-language judge, half each.
2. Components have unit variance in the group, as the paper says; its code adds them as they are (`normalise=false`).
3. A sample whose picture could not be judged is left out. In the code, it counts as a middling one.
4. Without an answer in its tags there is no picture, and its reward is the lowest. The code paints "a photo".
5. `reason=false` asks for the answer alone; with `form=0` and `length=0` as well, it is a rewriter in the manner of Promptist
   (Hao et al. 2023, arXiv:2212.09611), which learns from the reward of the picture only.
6. Words are parts between blanks; the paper's text counts tokens.
7. The weights are chosen on validation examples among some checks on the way and the frozen model alone. Low-rank adapters.
8. Under a limit on calls, steps and requests are reduced to fit.

Run it:  whet optimize TASK --method reprompt --lm images/openai/NAME --policy hf/PATH
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean, pstdev
from typing import ClassVar

from whet._util.fields import NonNegativeFloat, NonNegativeInt, PositiveInt
from whet.environments.environment import Environment
from whet.errors import UsageError, named_fields
from whet.methods.method import MethodEntry
from whet.prompt import Prompt
from whet.replies import between
from whet.rewards.cases import place_in_range
from whet.rl.policy_model import PolicyModel, Sample
from whet.rl.policy_model.model import Conversation
from whet.rl.rewordings import GreedyRewording, RewriterTraining, check_one_turn, request_of, try_rewordings
from whet.rl.row_selection import CHOSEN, refuse_selectors
from whet.rl.training import Trainer, Training
from whet.rl.written_prompts import WrittenPrompts, with_writer
from whet.run import Run
from whet.search.archive import Candidate
from whet.search.minibatch import minibatch
from whet.search.plan import share_out
from whet.types import Example, Message, Rollout

ENTRY = MethodEntry(
    "reprompt",
    "RePrompt: a trained rewriter that reasons before it rewrites",
    version=1,
    rank=226,
    when="requests for pictures are short, and a rewriter should first think about what the picture must hold",
    paper="Wu et al., ICLR 2026",
    arxiv="2505.17540",
    needs=("policy",),
    trains="a language model that rewords every input (LoRA)",
    extra="train",
)

ROUNDING = 1e-12  # standard deviation of equal components
THINK, ANSWER = ("<think>", "</think>"), ("<answer>", "</answer>")


@named_fields
@dataclass(frozen=True)
class Config(Training):
    """Settings of RePrompt; the others are those of every training."""

    DRAWS_GREEDY: ClassVar[bool] = False
    steps: NonNegativeInt = 60
    """Updates of the rewriter."""
    group: PositiveInt = 4
    """Rewritings of one request (G)."""
    requests: PositiveInt = 8
    """Requests of a step."""
    form: NonNegativeFloat = 1.0
    """Weight of the reward for the form of the reply."""
    length: NonNegativeFloat = 1.0
    """Weight of the reward for a request of fitting length."""
    shortest: NonNegativeInt = 15
    """A fitting request has more words than this."""
    longest: PositiveInt = 77
    """A fitting request has fewer words than this."""
    reason: bool = True
    """Whether the rewriter thinks first."""
    normalise: bool = True
    """Whether the three rewards are brought to unit variance in the group before they are added."""
    warmup: NonNegativeInt = 0
    """Supervised steps before; each on `requests` rows."""
    column: str = "rewriting"
    """Column of the rows with the whole reply that the supervised steps imitate."""
    max_tokens: PositiveInt = 256
    """Bound on a reply."""
    checks: NonNegativeInt = 4
    """Times that the system is validated on the way."""


async def reprompt(
    run: Run, env: Environment, policy: PolicyModel, start: Prompt, config: Config
) -> Candidate:
    """Supervised steps, then policy gradient on reasoned rewritings; see the module."""
    check(env, config)
    trainer, share = Trainer(policy, config), share_out(run, env, config.checks, 1, writes=False)
    requests = max(1, share.payable(min(config.requests, len(env.train)), config.group))
    steps = share.payable(config.steps, requests * config.group)
    training = await RewriterTraining.begin(run, policy, start, share, "reprompt", steps, config.checks)
    taught = [example for example in env.train if example.row.get(config.column)]

    async def warm(run: Run, number: int) -> None:
        rows = minibatch(run.rng, taught, requests)
        pairs = [(question(config, e), str(e.row[config.column])) for e in rows]
        run.log("warmup", {"step": number, **policy.imitate(pairs, config.update())})

    async def step(run: Run, number: int) -> dict[str, float]:
        batch = minibatch(run.rng, env.train, requests)
        groups = await trainer.sample(run, [question(config, example) for example in batch])
        texts = [[answer_in(config, sample) for sample in group] for group in groups]
        tried = await try_rewordings(run, env, start, batch, texts)
        judged, rewards = list[list[Sample]](), list[list[float]]()
        for group, own, rollouts in zip(groups, texts, tried, strict=True):
            kept = [i for i, r in enumerate(rollouts) if r is None or r.has_reward]
            parts = [components(env, config, own[i], rollouts[i]) for i in kept]
            judged.append([group[i] for i in kept])
            rewards.append(add_components(parts, config))
        flat = [r for rollouts in tried for r in rollouts]
        picture = fmean(env.reward.low if r is None else r.reward for r in flat)
        formed = fmean(text is not None for own in texts for text in own)
        figures = trainer.learn(judged, rewards)
        return {"answer": picture, "formed": formed, **figures}

    if config.warmup:
        await run.train(config.warmup, warm, policy)
        policy.set_reference_policy()
    return await training.train(run, step, lambda env: rewording(env, policy, config))


def answer_in(config: Config, sample: Sample) -> str | None:
    """The request in a reply of the right form; None in any other reply, and in one that the bound on tokens cut."""
    text = sample.text.strip()
    if config.reason:
        opened, thought, text = text.startswith(THINK[0]), *text.partition(THINK[1])[::2]
        if not opened or not thought.removeprefix(THINK[0]).strip():
            return None
    answers = between(text, *ANSWER)
    whole = text.strip().startswith(ANSWER[0]) and text.strip().endswith(ANSWER[1])
    return answers[0] if sample.ended and whole and len(answers) == 1 and answers[0] else None


def components(
    env: Environment, config: Config, text: str | None, rollout: Rollout | None
) -> tuple[float, float, float]:
    """The rewards of picture, form and length of a reply, each from 0 to 1."""
    if text is None or rollout is None:
        return 0.0, 0.0, 0.0
    picture = place_in_range(rollout.reward, env.reward)
    fits = config.shortest < len(text.split()) < config.longest
    return picture, 1.0, float(fits)


def add_components(parts: Sequence[tuple[float, float, float]], config: Config) -> list[float]:
    """The reward of each reply of a group: its components, each at unit variance in the group, by their weights."""
    weights = (1.0, config.form, config.length)
    columns = list(zip(*parts, strict=True)) or [(), (), ()]
    scales = [pstdev(column) if config.normalise and len(column) > 1 else 1.0 for column in columns]
    scaled = [w / s if s > ROUNDING else 0.0 for w, s in zip(weights, scales, strict=True)]
    return [sum(w * value for w, value in zip(scaled, row, strict=True)) for row in parts]


def question(config: Config, example: Example) -> Conversation:
    """The rewriter's input."""
    form = FORM if config.reason else FORM_WITHOUT
    return (Message("user", f"{REQUEST} {form}\n\n{request_of(example)}"),)


def check(env: Environment, config: Config) -> None:
    """Raises UsageError for a task of several turns, a choice of rows, bounds that exclude all, and a warm-up without rows."""
    refuse_selectors(config.rows, CHOSEN, "reprompt draws requests uniformly.")
    check_one_turn(env, "reprompt")
    if config.longest <= config.shortest + 1:
        raise UsageError(
            f"longest={config.longest} with shortest={config.shortest}: no request fits. Raise longest."
        )
    if config.warmup and not any(example.row.get(config.column) for example in env.train):
        raise UsageError(
            f"warmup={config.warmup}: no training row has the column {config.column!r} with a reply to imitate. Add it, or name "
            "it with column=."
        )


def rewording(env: Environment, policy: PolicyModel, config: Config) -> WrittenPrompts:
    """The system: every request is rewritten before the frozen model reads it."""

    def read(example: Example, sample: Sample) -> str | None:
        return answer_in(config, sample)

    writer = GreedyRewording(Trainer(policy, config), partial(question, config), read)
    return with_writer(env, writer, "reprompt")


def deploy(env: Environment, policy: PolicyModel, blob: bytes, config: Config) -> Environment:
    """The environment in which trained weights rewrite every request."""
    policy.load(blob)
    return rewording(env, policy, config)


REQUEST = "Rewrite this request for a picture so that a model that paints obeys it to the letter."
FORM = (
    "First think about what the picture must hold, how many of each, in which colours and where. Reply in this form: "
    "<think>your thoughts</think><answer>the request</answer>"
)
FORM_WITHOUT = "Reply in this form: <answer>the request</answer>"
