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
   the return (the paper's supervised stage), and the weights after them become the reference. By default each reflection is
   tried, and the difference itself is the reward. With `untried` further ones are rewarded by a reward model alone, as in the
   paper; it is linear, learns beside the policy from pairs of what was tried, and counts while it is right above chance.
2. A group of reflections of the same episode is compared with itself (GRPO); a learned baseline is `advantage=gae`. The
   divergence has a fixed weight.
3. The reflection is appended to the editable text of the prompt; the actor has no other memory.
4. The result is by default a prompt: the start with the one reflection that serves the most examples, chosen on validation
   examples. With `in_use` it is the paper's: the trained model reflects on each failed episode, greedily, and the episode is
   tried again. That needs the return of an episode in use, which only a world brings (games); who uses a prompt for
   questions does not know it. What retries bring is logged at each step (`first`, `gain`).
5. Under a limit on calls, steps and examples are reduced to fit.
6. A reflection that the bound on tokens cut is not tried and counts as the lowest return. What the model thinks first, and what
   encloses all of its text, is no part of a reflection.

Run it:  whet optimize TASK --method retroformer --lm openai/NAME --policy hf/PATH
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

from whet._util.fields import NonNegativeFloat, NonNegativeInt, PositiveInt
from whet.environments.environment import Environment, as_environment_type
from whet.environments.episodes import Actor, ActorObservation, Return
from whet.environments.multiturn import MultiTurn, attempts
from whet.errors import UsageError, named_fields, parameter
from whet.methods.method import MethodEntry
from whet.prompt import Prompt
from whet.rl.gain_model import GainModel
from whet.rl.policy_actor import PolicyActor
from whet.rl.policy_model import PolicyModel, Sample
from whet.rl.row_selection import RowChoice, refuse_selectors
from whet.rl.score_book import ScoreBook, written_text
from whet.rl.training import Trainer, Training
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.edits import replace_region, text_in
from whet.search.minibatch import minibatch
from whet.search.plan import share_out, validate_finalists
from whet.types import Example, Message, Rollout, Usage

ENTRY = MethodEntry(
    "retroformer",
    "Retroformer: a model learns to write reflections",
    version=2,
    rank=250,
    when="the model gets a second attempt after a failure",
    paper="Yao et al., ICLR 2024",
    arxiv="2308.02151",
    needs=("policy",),
    trains="the reflecting model (LoRA)",
    extra="train",
)


@named_fields
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
    untried: NonNegativeInt = 0
    """Further reflections on each failed episode that cost no call: a model of the gains rewards them."""
    examples: PositiveInt | None = None
    """Training examples that a reflection is scored on at the end; none means all of them."""
    finalists: PositiveInt = 3
    """Reflections validated at the end; twice as many are scored."""
    in_use: bool = False
    """Whether the result is the model at work: in use it reflects on a failed episode, which is tried again `retries` times."""

    @property
    def deploys(self) -> bool:
        """Whether the result is more than a text."""
        return self.in_use


@dataclass(frozen=True)
class Attempt:
    """An example, what could be read of the last attempt at it, its rollout, and the reflections it was made with."""

    example: Example
    shown: str
    rollout: Rollout
    reflections: tuple[str, ...] = ()


@dataclass(frozen=True)
class Retries:
    """The results of the retries of a step: groups of reflections with their gains, and (question, text, gain) of each
    reflection."""

    groups: list[list[Sample]]
    gains: list[list[float]]
    reflections: list[tuple[list[Message], str, float]]


async def retroformer(
    run: Run, env: Environment, policy: PolicyModel, start: Prompt, config: Config
) -> Candidate:
    """Policy gradient on differences of returns; see the module."""
    refuse_selectors(
        config.rows,
        get_args(RowChoice)[1:],
        "retroformer tries each row first and learns from those it fails.",
    )
    trainer = Trainer(policy, config)
    share = share_out(run, env, 0, config.finalists, writes=False)
    kept = config.in_use * (1 + config.retries) * len(share.env.validation)
    payable = None if share.rollouts is None else max(0, share.rollouts - kept)
    steps, tasks, scored = sizes(payable, len(env.train), config)
    archive = Archive()
    await archive.validate(run, share.env, [Candidate(start)])
    book = ScoreBook(policy, start, (), minibatch(run.rng, env.train, scored))
    policy.notes["reflections"] = {}
    model = GainModel(policy)

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
            groups, gains = await imagine(run, trainer, config.untried, model, rounds)
            figures = trainer.learn([*rounds.groups, *groups], [*rounds.gains, *gains])
            figures |= (
                {"model": model.accuracy, "untried": float(sum(map(len, groups)))} if config.untried else {}
            )
        if number + 1 == config.warmup:
            policy.set_reference_policy()
        gain = mean([gain for _, _, gain in rounds.reflections])
        run.log("step", {"step": number, "first": mean(first), "gain": gain, **figures})

    await run.train(steps, step, policy)
    if config.in_use:
        system = Candidate(start, (start.id,), "retroformer", system=await run.keep(policy))
        return await archive.validate(run, retrying(share.env, policy, config), [system])
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
    groups = await trainer.draw_groups(run, questions)
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


async def imagine(
    run: Run, trainer: Trainer, n: int, model: GainModel, rounds: Retries
) -> tuple[list[list[Sample]], list[list[float]]]:
    """Teach the model of the gains from the tried reflections, then draw `n` more reflections on each episode, with the
    rewards that the model predicts. No reflection while the model predicts no better than chance."""
    if not n:
        return [], []
    by_question: dict[int, tuple[list[Message], list[str], list[float]]] = {}
    for query, text, gain in rounds.reflections:
        _, texts, gains = by_question.setdefault(id(query), (query, [], []))
        texts.append(text)
        gains.append(gain)
    for query, texts, gains in by_question.values():
        model.learn(query, texts, gains)
    if not model.is_believed:
        return [], []
    queries = [query for query, _, _ in by_question.values()]
    groups = await trainer.draw_groups(run, queries, n=n)
    rewards = []
    for query, group in zip(queries, groups, strict=True):
        drawn = [written_text(sample) for sample in group]
        scores = model.rewards(query, [text or "" for text in drawn])
        rewards.append([min(scores) if text is None else r for text, r in zip(drawn, scores, strict=True)])
    return groups, rewards


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
    scored = 0 if config.in_use else train if config.examples is None else min(train, config.examples)
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


def check(env: Environment, config: Config) -> None:
    """Raise UsageError where retries in use are asked for and nothing says there how an episode ended."""
    if config.in_use and not (isinstance(env, MultiTurn) and isinstance(env.reward, Return)):
        raise UsageError(
            f"in_use=true needs a world that brings the return of an episode, such as a game; this task's reward is "
            f"{env.reward.name}, which compares with what is known of its rows only. Use {parameter('config.in_use', 'false')}."
        )


def retrying(env: Environment, policy: PolicyModel, config: Config) -> Retrying:
    """The system: the frozen actor, and the trained model that reflects on what failed."""
    reflector = PolicyActor(policy, 0.0, config.max_tokens)
    return as_environment_type(env, Retrying, reflector=reflector, retries=config.retries)


def deploy(env: Environment, policy: PolicyModel, blob: bytes, config: Config) -> Environment:
    """The environment in which trained weights reflect on failed episodes."""
    policy.load(blob)
    return retrying(env, policy, config)


@dataclass(frozen=True)
class Retrying(MultiTurn):
    """Episodes that are tried again while their return can rise, each time with one more text of `reflector` in the prompt.

    The reward is that of the last attempt; its parts hold the return of the `first` one and the number of `retries`.
    """

    reflector: Actor | None = None
    retries: int = 0

    @property
    def calls(self) -> int:
        """Calls of the task model that one rollout makes at most."""
        return (1 + self.retries) * self._plain.calls

    @property
    def _plain(self) -> MultiTurn:
        """The same world without retries."""
        return as_environment_type(self, MultiTurn)

    async def rollout(self, run: Run, prompt: Prompt, example: Example, sample: int = 0) -> Rollout:
        """Play one example, with its retries."""
        return (await self.evaluate(run, prompt, [example], sample))[0]

    async def evaluate(
        self, run: Run, prompt: Prompt, examples: Sequence[Example], sample: int = 0
    ) -> list[Rollout]:
        """One rollout per example, in order; all reflections of a round are written in one batch."""
        tried = await tries(run, self._plain, prompt, [(example, ()) for example in examples], sample)
        trials = [[one] for one in tried]
        for _ in range(self.retries):
            left = [one for one in trials if one[-1].rollout.answered and not self._is_solved(one[-1])]
            texts = await self._reflections(run, [question(prompt, one[-1]) for one in left])
            going = [(one, text) for one, text in zip(left, texts, strict=True) if text is not None]
            items = [(one[-1].example, (*one[-1].reflections, text)) for one, text in going]
            for (one, _), attempt in zip(
                going, await tries(run, self._plain, prompt, items, sample), strict=True
            ):
                one.append(attempt)
        return [_sum_attempts(prompt, [attempt.rollout for attempt in one]) for one in trials]

    def _is_solved(self, attempt: Attempt) -> bool:
        return attempt.rollout.reward >= self.reward.high

    async def _reflections(self, run: Run, questions: Sequence[list[Message]]) -> list[str | None]:
        """The reflection on each attempt; None for one that the limit on tokens cut."""
        if self.reflector is None or not questions:
            return [None] * len(questions)
        written = await self.reflector.act(run, [ActorObservation.first(tuple(one)) for one in questions])
        records: list[Any] = [one.record for one in written]
        return [None if record is None else written_text(Sample.from_json(record)) for record in records]


def _sum_attempts(prompt: Prompt, trials: Sequence[Rollout]) -> Rollout:
    """The last of several attempts, with the tokens of all of them."""
    parts = {**trials[-1].parts, "first": trials[0].reward, "retries": float(len(trials) - 1)}
    usage = sum((one.usage for one in trials), Usage())
    return replace(trials[-1], prompt_id=prompt.id, parts=parts, usage=usage)


async def tries(
    run: Run,
    env: Environment,
    start: Prompt,
    items: Sequence[tuple[Example, tuple[str, ...]]],
    sample: int = 0,
) -> list[Attempt]:
    """One attempt at each example, with reflections in the prompt."""
    pairs = [(with_reflections(start, reflections), example) for example, reflections in items]
    outcomes = await attempts(run, env, pairs, sample)
    return [Attempt(item[0], *one, item[1]) for item, one in zip(items, outcomes, strict=True)]


def with_reflections(start: Prompt, reflections: Sequence[str]) -> Prompt:
    """The prompt with reflections after its editable text; the start where it refuses them."""
    text = "\n".join([start.region_text(), *(reflection for reflection in reflections if reflection)])
    return replace_region(start, text) or start


def question(start: Prompt, tried: Attempt) -> list[Message]:
    """The question to the reflecting model: the task, the attempt, its reward, and earlier advice."""
    task = "\n".join(message.content for message in start.render(tried.example))
    parts = [task, f"Attempt:\n{tried.shown}", f"Reward: {round(tried.rollout.reward, 2)}"]
    parts += [f"Advised before: {reflection}" for reflection in tried.reflections]
    return [Message("user", "\n\n".join([*parts, REQUEST]))]


REQUEST = "What should be done differently next time?"
