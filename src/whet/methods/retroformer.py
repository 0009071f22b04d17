"""Retroformer: a model learns to write the reflection after which the next attempt is better.

Yao, Heinecke, Niebles, Liu, Feng, Xue, Murthy, Chen, Zhang, Arpit, Xu, Mui, Wang, Xiong, Savarese: Retroformer:
Retrospective Large Language Agents with Policy Gradient Optimization. ICLR 2024. arXiv:2308.02151. Sections 4 and 5.

    for each of `steps` batches of tasks:
        G_0 <- return of the frozen actor's episode under the prompt
        for k in 1..retries, for each task with G_{k-1} < best:
            x <- task, transcript of the episode, its return, earlier reflections
            y_1..y_g ~ pi(x);  G_i <- return of another episode with y_i in the prompt
            r_i <- G_i - G_{k-1}                  the difference of consecutive returns
            go on from the best of the group
        policy gradient on r, clipped, with a divergence from the reference

An episode is whatever the task is made of: a game, a question with tools, or a single question.

Differences from the paper:
1. One loop instead of three stages on stored data: the first `warmup` steps imitate the sampled reflections that raised
   the return (the paper's supervised stage), and the weights after them become the reference. There is no reward
   model: each reflection is tried, and the difference itself is the reward.
2. A group of reflections of the same episode is compared with itself (GRPO); a learned baseline is `advantage=gae`. The
   divergence has a fixed weight.
3. The reflection is appended to the editable text of the prompt; the actor has no other memory.
4. The result is a prompt: the start with the one reflection that serves the most examples, chosen on validation examples.
   In the paper every task gets its own retries, which needs its return; who uses a prompt does not know that.
   What retries bring is logged at each step (`first`, `gain`), and the trained weights can be used on another task.
5. Within a limit on calls, steps and examples are cut to what the limit pays.
6. A reflection that the bound on tokens cut is not tried and counts as the lowest return. What the model thinks first, and what
   encloses all of its text, is no part of a reflection.

Run it:  whet optimize TASK --method retroformer --lm openai/NAME --policy hf/PATH
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from whet.environments.environment import Environment
from whet.environments.multiturn import attempts
from whet.fields import NonNegativeFloat, NonNegativeInt, PositiveInt
from whet.methods.method import MethodEntry
from whet.prompt import Prompt
from whet.rl.policy_model import PolicyModel, Sample
from whet.rl.score_book import ScoreBook, written_text
from whet.rl.training import Trainer, Training
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.edits import apply, text_in
from whet.search.minibatch import minibatch
from whet.search.plan import share_out, validate_finalists
from whet.types import Example, Message, Rollout

ENTRY = MethodEntry(
    "retroformer",
    "Retroformer: a model learns to write reflections",
    version=1,
    rank=250,
    when="the model gets a second attempt after a failure",
    paper="Yao et al., ICLR 2024",
    arxiv="2308.02151",
    needs=("policy",),
    trains="the reflecting model (LoRA)",
    extra="train",
)


@dataclass(frozen=True)
class Config(Training):
    """Settings of Retroformer; the others are those of every training."""

    steps: NonNegativeInt = 60
    """Updates of the reflecting model, the warm-up included."""
    kl: NonNegativeFloat = 0.02
    """Weight of the divergence from the reference."""
    tasks: PositiveInt = 4
    """Training examples that are attempted in a step."""
    retries: PositiveInt = 1
    """Further attempts at an example that is not solved."""
    warmup: NonNegativeInt = 0
    """Steps at the beginning that imitate the reflections that helped."""
    examples: PositiveInt | None = None
    """Training examples that a reflection is scored on at the end; none means all of them."""
    finalists: PositiveInt = 3
    """Reflections validated at the end; twice as many are scored."""


@dataclass(frozen=True)
class Attempt:
    """An example, what could be read of the last attempt at it, its rollout, and the reflections it was made with."""

    example: Example
    shown: str
    rollout: Rollout
    reflections: tuple[str, ...] = ()


@dataclass(frozen=True)
class Retries:
    """What the retries of a step bring: groups of reflections with their gains, and (question, text, gain) of each
    reflection."""

    groups: list[list[Sample]]
    gains: list[list[float]]
    reflections: list[tuple[list[Message], str, float]]


async def retroformer(
    run: Run, env: Environment, policy: PolicyModel, start: Prompt, config: Config
) -> Candidate:
    """Policy gradient on differences of returns; see the module."""
    trainer = Trainer(policy, config)
    share = share_out(run, env, 0, config.finalists, writes=False)
    steps, tasks, scored = sizes(share.rollouts, len(env.train), config)
    archive = Archive()
    await archive.validate(run, share.env, [Candidate(start)])
    book = ScoreBook(policy, start, (), minibatch(run.rng, env.train, scored))
    policy.notes["reflections"] = {}

    async def step(run: Run, number: int) -> None:
        batch = minibatch(run.rng, env.train, tasks)
        tried = await tries(run, env, start, [(example, ()) for example in batch])
        first = [one.rollout.reward for one in tried]
        rounds = Retries([], [], [])
        for _ in range(config.retries):
            tried = await retry(run, env, start, trainer, tried, rounds)
        helped = [(query, text) for query, text, gain in rounds.reflections if gain > 0]
        if number < config.warmup:
            figures = policy.imitate(helped, config.update())
        else:
            figures = trainer.learn(rounds.groups, rounds.gains)
        if number + 1 == config.warmup:
            policy.set_reference_policy()
        gain = mean([gain for _, _, gain in rounds.reflections])
        run.log("step", {"step": number, "first": mean(first), "gain": gain, **figures})

    await run.train(steps, step, policy)
    if scored:
        await book.grade(run, env, await final_reflections(run, env, start, trainer, config.finalists))
    return await validate_finalists(
        run, share, archive, [book.candidate(t) for t in book.best(config.finalists)]
    )


async def retry(
    run: Run, env: Environment, start: Prompt, trainer: Trainer, tried: Sequence[Attempt], rounds: Retries
) -> list[Attempt]:
    """Reflect on what is not solved and try again; the best attempt of each group, what was learned into `rounds`."""
    left = [one for one in tried if one.rollout.reward < env.reward.high]
    if not left:
        return []
    questions = [question(start, one) for one in left]
    groups = await trainer.sample(run, questions)
    again = [
        (one.example, (*one.reflections, text))
        for one, group in zip(left, groups, strict=True)
        for sample in group
        if (text := written_text(sample)) is not None
    ]
    retried = iter(await tries(run, env, start, again))
    best = []
    for before, group, conversation in zip(left, groups, questions, strict=True):
        after = [None if written_text(sample) is None else next(retried) for sample in group]
        rewards = [env.reward.low if one is None else one.rollout.reward for one in after]
        rounds.groups.append(group)
        rounds.gains.append([reward - before.rollout.reward for reward in rewards])
        useful = [(one, gain) for one, gain in zip(after, rounds.gains[-1], strict=True) if one is not None]
        rounds.reflections.extend((conversation, one.reflections[-1], gain) for one, gain in useful)
        note(trainer.policy, useful)
        best.append(max((one for one, _ in useful), key=lambda one: one.rollout.reward, default=before))
    return best


def note(policy: PolicyModel, tried: Sequence[tuple[Attempt, float]]) -> None:
    """Keep the sum of gains and their number for each reflection that was tried."""
    known = policy.notes["reflections"]
    for one, gain in tried:
        total, times = known.get(one.reflections[-1], (0.0, 0))
        known[one.reflections[-1]] = [total + gain, times + 1]


async def final_reflections(
    run: Run, env: Environment, start: Prompt, trainer: Trainer, most: int
) -> list[str]:
    """Texts to score: the start with the reflections that gained most, shrunk by one trial, and with newly sampled ones."""
    known = trainer.policy.notes["reflections"]
    best = sorted(
        known, key=lambda reflection: (-known[reflection][0] / (known[reflection][1] + 1), reflection)
    )[:most]
    drawn = minibatch(run.rng, env.train, most)
    tried = await tries(run, env, start, [(example, ()) for example in drawn])
    sampled = await trainer.sample(run, [question(start, one) for one in tried], n=1)
    prompts = [
        with_reflections(start, [reflection])
        for reflection in [*best, *filter(None, map(written_text, (group[0] for group in sampled)))]
    ]
    return list(dict.fromkeys(text_in(start, prompt) for prompt in prompts if prompt != start))


def sizes(rollouts: int | None, train: int, config: Config) -> tuple[int, int, int]:
    """Steps, examples of a step, and examples that reflections are scored on, within so many rollouts (None: no limit)."""
    scored = train if config.examples is None else min(train, config.examples)
    tasks = min(config.tasks, train)
    if rollouts is None:
        return config.steps, tasks, scored
    scored = min(scored, rollouts // (8 * config.finalists))
    left = rollouts - (2 * scored + (scored > 0)) * config.finalists
    each = 1 + config.retries * config.group
    tasks = max(1, min(tasks, left // each))
    return min(config.steps, left // (each * tasks)), tasks, scored


def mean(values: Sequence[float]) -> float:
    """Mean; 0 of nothing."""
    return sum(values) / max(1, len(values))


async def tries(
    run: Run, env: Environment, start: Prompt, items: Sequence[tuple[Example, tuple[str, ...]]]
) -> list[Attempt]:
    """One attempt at each example, with reflections in the prompt."""
    pairs = [(with_reflections(start, reflections), example) for example, reflections in items]
    outcomes = await attempts(run, env, pairs)
    return [Attempt(item[0], *one, item[1]) for item, one in zip(items, outcomes, strict=True)]


def with_reflections(start: Prompt, reflections: Sequence[str]) -> Prompt:
    """The prompt with reflections after its editable text; the start where it refuses them."""
    text = "\n".join([start.region_text(), *(reflection for reflection in reflections if reflection)])
    return apply(start, text) or start


def question(start: Prompt, tried: Attempt) -> list[Message]:
    """What the reflecting model reads: the task, the attempt, its reward, and what was advised before."""
    task = "\n".join(message.content for message in start.render(tried.example))
    parts = [task, f"Attempt:\n{tried.shown}", f"Reward: {round(tried.rollout.reward, 2)}"]
    parts += [f"Advised before: {reflection}" for reflection in tried.reflections]
    return [Message("user", "\n\n".join([*parts, REQUEST]))]


REQUEST = "What should be done differently next time?"
