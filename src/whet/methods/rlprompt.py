"""RLPrompt: a small network learns, word by word, which prompt to write, by soft Q-learning.

Deng, Wang, Hsieh, Wang, Guo, Shu, Song, Xing, Hu: RLPrompt: Optimizing Discrete Text Prompts with
Reinforcement Learning. EMNLP 2022. arXiv:2205.12548. Sections 2 and 3.

    policy <- MLP on a frozen language model; target <- copy
    for step in 1..steps:
        sample k prompts of T words from the policy (the 256 likeliest words at each place)
        r_i <- reward of prompt i on the training examples
        z_i <- (r_i - mean r) / (std r + 1e-4);  R_i <- 5 z_i
        A <- log-probabilities of the sampled words;  V <- log-sum-exp of the target's logits
        L <- mean_i 1/2 (sum_t (A_t - (V_{t+1} - V_t))^2 + sum_t (A_t + .. + A_T - (R - V_t))^2), V_{T+1} = R
        Adam step on the MLP, gradient clipped at 5;  target <- Polyak average
    greedy prompt and the best sampled prompts -> validation examples -> the best

Differences from the paper:
1. The target network covers the MLP alone: all else is frozen and the same. It follows at 0.05 a step instead
   of 0.001, and Adam's rate is 2e-3 instead of 5e-5, because there are hundreds of steps instead of 12,000.
2. The start state is encoded once; states of sampled words are computed once, for sampling, loss and target.
3. A prompt is scored once: rewards are remembered by prompt.
4. Ties of label probabilities are masked by index, so that a uniform distribution is not rewarded.
5. The reward is by default accuracy + mean log-probability of the right label, which foretells accuracy on
   unseen examples better than the piecewise gap (`reward=gap`); see docs/figures.md.
6. Values of the target are shifted by one number per place, so that the mean residual of a batch is zero. The
   level of the logits, a constant in the paper, then neither feeds a collapse nor has to be tuned. `update=sql` leaves
   the values as they are.
7. The entropy is steered: a temperature weighs it against the reward and follows, with damping, a line from
   the entropy of the uniform distribution to `entropy` times that. The paper's temperature is 1 throughout: `update=sql`.
8. Words are whole words, first those of the training inputs, then the body's commonest, instead of all word
   pieces. States and output matrix are brought to unit scale, because the initialisation presumes it.
9. The result is the best on validation examples among the greedy prompt, the best on training examples and
   the start; the paper takes the greedy prompt.
10. `replay` earlier prompts join each update (off-policy, as in Guo et al. 2021, arXiv:2106.07704); the published code of
   RLPrompt learns from the prompts just sampled alone, which is the default.
11. A task without labels is trained for its own reward on what the model writes, by default one answer an input. The paper's text
   style transfer is `samples=128`, `parts=4`, `compare=inputs`: the mean of the maxima of four parts of the samples, compared
   input by input (whet.rl.best_samples). The paper standardises the maxima of all parts together, here their mean is. Validation
   and use ask for one answer.
12. `condition=input`: the policy starts behind the input and writes a prompt for it, as in the paper's text style transfer:

        for step in 1..steps:  draw `inputs` rows;  k / inputs prompts for each, by the policy behind that row
            r_i <- reward of prompt i on its own row;  R_i <- 5 (r_i - mean) / (std + 1e-4) over the prompts of the row
            the same update
        the start prompt or the state of the policy (greedy) that validated best

   The result is a system. The reward is the task's own; the policy reads the first 128 tokens of a row. No replay.
13. Under a limit on calls, steps and examples are reduced to fit (`whet.search.plan`).

Run it:  whet optimize TASK --method rlprompt --lm embedded/encoder
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from whet._util.fields import NonNegativeFloat, NonNegativeInt, PositiveInt
from whet.environments.environment import Environment
from whet.errors import UsageError, named_fields, parameter
from whet.methods.method import MethodEntry
from whet.prompt import Prompt
from whet.rl.best_samples import NOTE, check_samples, compare_by_input, with_samples
from whet.rl.conditioned_prompts import PromptForInput, compare_within_inputs, reward_each, start_in
from whet.rl.prompt_router import routed_environment
from whet.rl.score_book import CHECKS, ScoreBook, TrainedCandidates
from whet.rl.token_policy import TokenBackbone, TokenPolicy, TokenPolicySettings
from whet.run import Run, convert_record
from whet.search.archive import Archive, Candidate
from whet.search.edits import replace_region
from whet.search.label_signal import Signal, label_signal
from whet.search.minibatch import minibatch
from whet.search.plan import fit, share_out
from whet.search.vocabulary import vocabulary
from whet.types import JSON

ENTRY = MethodEntry(
    "rlprompt",
    "RLPrompt: soft Q-learning over prompt tokens",
    version=2,
    rank=70,
    when="a model in this process scores labels or writes, and the prompt may be any words",
    paper="Deng et al., EMNLP 2022",
    arxiv="2205.12548",
    needs=("local",),
    trains="an MLP on a frozen encoder",
    extra="embedded",
)

SHAPE = 5.0  # rewards reach the loss as 5 z, the paper's affine map of [0, 1] to [0, 5]
GAIN, DAMPING = 1.0, 10.0  # of the temperature's controller
COLDEST, WARMEST = 0.1, 10.0


@named_fields
@dataclass(frozen=True)
class Config:
    """Settings of RLPrompt."""

    k: PositiveInt = 16
    """Prompts sampled in a step."""
    length: PositiveInt = 5
    """Words of a prompt (T)."""
    steps: NonNegativeInt = 300
    """Updates of the policy; steps x k prompts are sampled."""
    vocabulary: PositiveInt = 1000
    """Words to choose from: those of the training inputs first, then common ones."""
    top_k: PositiveInt = 256
    """Words that may be sampled at one place: the likeliest ones."""
    lr: NonNegativeFloat = 2e-3
    """Adam's rate."""
    entropy: NonNegativeFloat = 0.5
    """Entropy of a word at the end of training, as a share of that of the uniform distribution."""
    update: Literal["steered", "sql"] = "steered"
    """steered: centred values, a temperature that follows the entropy; sql: the paper's, values as they are, temperature 1."""
    replay: NonNegativeInt = 0
    """Earlier prompts that each update learns from as well."""
    samples: PositiveInt = 1
    """Answers to each input that a prompt is scored on, where the model writes (the paper's style transfer: 128)."""
    parts: PositiveInt = 1
    """Parts of the samples: the reward is the mean of the best of each (the paper's style transfer: 4)."""
    condition: Literal["none", "input"] = "none"
    """Whether one prompt serves all inputs, or the policy reads each input and writes a prompt for it."""
    inputs: PositiveInt = 2
    """Training rows of a step that share its k prompts (condition=input)."""
    compare: Literal["prompts", "inputs"] = "prompts"
    """The rewards that are standardised over the prompts of a step: their mean rewards, or their rewards on each input."""
    reward: Signal = "auto"
    """The training reward of a prompt; auto: accuracy+likelihood if the task counts right labels, else the task's reward."""
    examples: PositiveInt | None = None
    """Training examples that each prompt is scored on; none means all of them."""
    finalists: PositiveInt = 32
    """Prompts validated at the end."""

    @property
    def prompts_per_step(self) -> int:
        """The size of a run in its plan."""
        return self.k

    @property
    def deploys(self) -> bool:
        """Whether the result is more than a text."""
        return self.condition == "input"


async def rlprompt(run: Run, env: Environment, policy: object, start: Prompt, config: Config) -> Candidate:
    """Soft Q-learning over the words of the editable text; see the module. `policy` is not used."""
    learner = _policy_of(env, config, run.rng.getrandbits(63))
    if len(learner.words) < config.vocabulary:
        run.log("vocabulary", {"words": len(learner.words), "asked": config.vocabulary})
    if config.condition == "input":
        return await write_for_inputs(run, env, learner, start, config)
    signal = label_signal(env, config.reward, "accuracy+likelihood")
    sampled = config.samples > 1 or config.compare == "inputs"
    scoring = with_samples(env, config.samples, config.parts, learner) if sampled else env
    plan = fit(run, scoring, config.steps, config.k, config.examples, finalists=config.finalists, asks=0)
    plan = replace(plan, env=replace(env, validation=plan.env.validation))
    archive = Archive()
    await archive.validate(run, plan.env, [Candidate(start)])
    examples = minibatch(run.rng, env.train, plan.examples, balanced=bool(env.labels))
    book = ScoreBook(learner, start, signal, examples)
    learner.notes.update(temperature=1.0, entropy=math.log(len(learner.words)))

    async def step(run: Run, number: int) -> None:
        seed = run.rng.getrandbits(63)
        record = await run.effect("sample", lambda: _sample(learner, plan.width, seed))
        prompts = convert_record(record, list[list[int]])
        texts = [learner.text(words) for words in prompts]
        known = book.notes["scores"]
        earlier = run.rng.sample(list(known), min(config.replay, len(known))) if config.replay else []
        rewards = await book.grade(run, scoring, texts)
        temperature, before = learner.notes["temperature"], learner.notes["entropy"]
        if config.compare == "inputs":
            shaped = [
                SHAPE * z for z in compare_by_input(input_rewards(learner, env, start, [*texts, *earlier]))
            ]
        else:
            shaped = [SHAPE * z for z in z_scores([*rewards, *map(book.reward, earlier)])]
        entropy = learner.update([*prompts, *map(learner.places, earlier)], shaped, temperature)
        if config.update == "steered":
            goal = entropy_goal(number / plan.rounds, config.entropy, len(learner.words))
            temperature = warmer(temperature, entropy, before, goal, len(learner.words))
        learner.notes.update(temperature=temperature, entropy=entropy)
        seconds = {f"{part}_seconds": value for part, value in learner.seconds.items()}
        run.log("step", {"step": number, **book.figures(rewards, texts), "entropy": entropy, **seconds})
        await book.check(run, plan, archive, number)

    await run.train(plan.rounds, step, learner)
    words = convert_record(await run.effect("greedy", lambda: _greedy(learner)), list[int])
    return await book.finish(run, scoring, plan, archive, learner.text(words), config.finalists)


async def write_for_inputs(
    run: Run, env: Environment, learner: TokenPolicy, start: Prompt, config: Config
) -> Candidate:
    """Soft Q-learning of a policy that reads the input; see difference 12."""
    chooser, inputs = PromptForInput(learner, start), min(config.inputs, len(env.train))
    each = max(2, config.k // inputs)
    share = share_out(run, env, CHECKS, 1, writes=False)
    steps = share.payable(config.steps, inputs * each * config.samples)
    archive = Archive()
    await archive.validate(run, share.env, [Candidate(start)])
    systems = TrainedCandidates(
        chooser.policy, start, "rlprompt", max(1, steps), min(steps, share.validations - 1)
    )
    learner.notes.update(temperature=1.0, entropy=math.log(len(learner.words)))

    async def step(run: Run, number: int) -> None:
        rows = minibatch(run.rng, env.train, inputs)
        seeds = [run.rng.getrandbits(63) for _ in rows]

        async def draw() -> JSON:
            groups = [
                learner.sample(each, seed, row.user_text) for row, seed in zip(rows, seeds, strict=True)
            ]
            return [list[JSON](words) for group in groups for words in group]

        prompts = convert_record(await run.effect("sample", draw), list[list[int]])
        owners = [row for row in rows for _ in range(each)]
        texts, sources = [learner.text(words) for words in prompts], [row.user_text for row in owners]
        rewards = await reward_each(run, env, start, texts, owners, config.samples, config.parts)
        shaped = [SHAPE * z for z in compare_within_inputs(rewards, sources)]
        temperature, before = learner.notes["temperature"], learner.notes["entropy"]
        entropy = learner.update(prompts, shaped, temperature, sources)
        if config.update == "steered":
            goal = entropy_goal(number / steps, config.entropy, len(learner.words))
            temperature = warmer(temperature, entropy, before, goal, len(learner.words))
        learner.notes.update(temperature=temperature, entropy=entropy)
        run.log("step", {"step": number, "reward": sum(rewards) / len(rewards), "entropy": entropy})
        if systems.due(number):
            digest = await run.keep(chooser)
            await systems.validate(run, archive, routed_environment(share.env, chooser), digest)

    await run.train(steps, step, chooser)
    return systems.recall(archive)


def deploy(env: Environment, policy: object, blob: bytes, config: Config) -> Environment:
    """The task with a trained policy that writes a prompt for each input. Raises UsageError for another blob."""
    chooser = PromptForInput(_policy_of(env, config, 0), start_in(blob))
    chooser.load(blob)
    return routed_environment(env, chooser)


def _policy_of(env: Environment, config: Config, seed: int) -> TokenPolicy:
    settings = TokenPolicySettings(
        config.length, config.vocabulary, config.top_k, config.lr, centre=config.update == "steered"
    )
    return TokenPolicy(_body(env), settings, seed, vocabulary(env, config.vocabulary))


def input_rewards(
    learner: TokenPolicy, env: Environment, start: Prompt, texts: Sequence[str]
) -> list[list[float]]:
    """The rewards of texts on each input; the lowest for a text that the prompt refuses."""
    known: dict[str, list[float]] = learner.notes.get(NOTE, {})
    prompts = [replace_region(start, text) for text in texts]
    size = len(next(iter(known.values()), []))
    lowest = [env.reward.low] * size
    return [lowest if prompt is None else known[prompt.id] for prompt in prompts]


def z_scores(rewards: Sequence[float]) -> list[float]:
    """(r - mean) / (std + 1e-4), the population's std: all zero when the rewards are equal."""
    r = np.array(rewards)
    return [float(z) for z in (r - r.mean()) / (r.std() + 1e-4)]


def entropy_goal(progress: float, share: float, words: int) -> float:
    """Wanted entropy of a word in nats: log(words) at first, `share` of it from nine tenths of the steps on."""
    return math.log(words) * (1 + (share - 1) * min(1.0, progress / 0.9))


def warmer(temperature: float, entropy: float, before: float, goal: float, words: int) -> float:
    """The next temperature: moved by the distance to the goal, less what the entropy is doing anyway."""
    push = (goal - entropy) - DAMPING * (entropy - before)
    return min(WARMEST, max(COLDEST, temperature * math.exp(GAIN * push / math.log(words))))


def check(env: Environment, config: Config) -> None:
    """Raise UsageError for a model without layers to lend, and for a signal that the task does not have."""
    _lender(env)
    check_samples(env, config.samples, config.parts)
    if config.compare == "inputs" and (env.scores or type(env) is not Environment):
        raise UsageError("compare=inputs is for a model that writes one answer to one question.")
    if config.condition == "input" and (
        config.compare != "prompts" or config.replay or config.reward != "auto"
    ):
        raise UsageError(
            "condition=input compares the prompts of a row: leave compare, replay and reward as they are."
        )
    if config.condition == "input" and type(env) is not Environment:
        raise UsageError(
            "condition=input is for one question with one answer; this task is made of several turns."
        )
    label_signal(env, config.reward, "accuracy+likelihood")


def _body(env: Environment) -> TokenBackbone:
    return _lender(env)()


def _lender(env: Environment) -> Callable[[], TokenBackbone]:
    make: Callable[[], TokenBackbone] | None = getattr(env.model, "policy_body", None)
    if make is None:
        raise UsageError(
            f"rlprompt trains a network on a frozen model in this process; {env.model.address} has none to lend. "
            f"Use {parameter('lm', 'embedded/encoder')}, {parameter('lm', 'embedded/mlm')} or {parameter('lm', 'hf/PATH')}."
        )
    return make


async def _sample(learner: TokenPolicy, k: int, seed: int) -> JSON:
    return [list[JSON](words) for words in learner.sample(k, seed)]


async def _greedy(learner: TokenPolicy) -> JSON:
    return list[JSON](learner.greedy())
