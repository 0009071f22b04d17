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
1. The advantage is relative to the group of an input (`advantage=grpo`), and the divergence is a term of the loss; a learned
   critic, with the divergence in the reward, is `advantage=gae`. NLPO's learned action mask is nucleus sampling
   (`top_p=0.9`), unless `nlpo=0.9` with `top_p=1` asks for the mask.
2. The reward is the task's, in [0, 1] instead of 10 x ROUGE; the weight of keywords is a tenth, to keep the ratio.
   Keywords are rewarded at the end of a hint instead of at each separator, with one sign for the penalty; at most
   five of them are rewarded, and only as words of their own in the target: else letters would earn more than a right answer.
3. The supervised stage's keywords are words of the target, those of the input first, instead of TextRank's; rows may
   name their own in the column `column`. `warmup=0` leaves the stage out.
4. The weights are chosen on validation examples among some checks on the way and the frozen model alone.
5. Under a limit on calls, steps and inputs are reduced to fit.
6. A hint is what the policy wrote without a thought; of one that the bound on tokens cut, the keywords before the last
   separator.

Run it:  whet optimize TASK --method dsp --lm openai/NAME --policy hf/PATH
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from whet._util.fields import (
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    PositiveProbability,
)
from whet._util.words import fold, mentions
from whet.environments import Actor
from whet.environments.environment import Environment, as_environment_type
from whet.environments.episodes import ActorAction, ActorObservation, Conversation
from whet.errors import UsageError, named_fields
from whet.methods.method import MethodEntry
from whet.prompt import Prompt
from whet.replies import unwrap, without_thought
from whet.rewards.text import targets_of
from whet.rl.language import TAG
from whet.rl.policy_actor import PolicyActor
from whet.rl.policy_model import PolicyModel, Sample
from whet.rl.row_selection import Rolled
from whet.rl.score_book import TrainedCandidates
from whet.rl.training import Groups, Trainer, Training, rows_of_training
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.plan import share_out
from whet.types import Example, Message, Rollout, Score

ENTRY = MethodEntry(
    "dsp",
    "DSP: a trained hint for every input",
    version=1,
    rank=220,
    when="each input needs a different hint",
    paper="Li et al., NeurIPS 2023",
    arxiv="2302.11520",
    needs=("policy",),
    trains="a small language model that hints at every input (LoRA)",
    extra="train",
)

SOFT_STEP, HORIZON, KEYWORD = 0.2, 0.1, 0.1
SEPARATOR = ";"
MOST_KEYWORDS = 5
MISS = 0.2
_WORD = re.compile(r"[^\W_]{3,}", re.UNICODE)


@named_fields
@dataclass(frozen=True)
class Config(Training):
    """Settings of DSP; the others are those of every training."""

    steps: NonNegativeInt = 60
    """Updates by reinforcement learning."""
    group: PositiveInt = 8
    """Hints sampled for one input."""
    top_p: PositiveProbability = 0.9
    """Sampling is among the likeliest tokens that make up this share."""
    max_tokens: PositiveInt = 32
    """Bound on a hint."""
    kl: NonNegativeFloat = 0.005
    """First weight of the divergence from the supervised model."""
    target_kl: PositiveFloat = 0.5
    """Divergence per token, in nats, that the weight is adapted to."""
    questions: PositiveInt = 8
    """Inputs of a step."""
    warmup: NonNegativeInt = 0
    """Supervised steps before; each on `questions` inputs."""
    column: str = "keywords"
    """Column of the rows that may hold the keywords of the supervised stage."""
    keyword: NonNegativeFloat | None = None
    """Weight of the reward for keywords; none: 0.1 if all rows have targets, else 0."""
    relative: bool = False
    """Whether the reward is the difference to the answer without a hint."""
    checks: NonNegativeInt = 4
    """Times that the system is validated on the way."""


async def dsp(run: Run, env: Environment, policy: PolicyModel, start: Prompt, config: Config) -> Candidate:
    """Supervised warm-up, then policy gradient on hints; see the module."""
    config = check(env, config)
    trainer = Trainer(policy, config)
    share = share_out(run, env, config.checks, 1, writes=False)
    each = config.group + config.relative
    questions = max(1, share.payable(min(config.questions, len(env.train)), each))
    steps = share.payable(config.steps, questions * each)
    archive = Archive()
    await archive.validate(run, share.env, [Candidate(start)])
    systems = TrainedCandidates(policy, start, "dsp", max(1, steps), min(steps, config.checks))
    policy.notes["kl"] = config.kl
    common = common_words(env.train)
    source = rows_of_training(config, policy, start, env.train, steps, questions, share.payable_groups(each))

    async def warm(run: Run, number: int) -> None:
        batch = run.rng.sample(env.train, questions)
        pairs = [
            (question(e), f"{SEPARATOR} ".join(supervised_keywords(e, config.column, common))) for e in batch
        ]
        figures = policy.imitate([(query, text) for query, text in pairs if text], config.update())
        run.log("warmup", {"step": number, **figures})

    async def step(run: Run, number: int) -> None:
        trainer.config = replace(config, kl=policy.notes["kl"])

        async def roll(batch: Sequence[Example], heat: float) -> list[Rolled[list[Sample]]]:
            groups = await trainer.draw_groups(run, [question(e) for e in batch], temperature=heat)
            alone = await env.evaluate(run, start, batch) if config.relative else []
            bases = [unit(env, rollout.reward) for rollout in alone] or [0.0] * len(batch)
            rewards, answers = await reward_hints(run, env, start, config, batch, groups, bases, common)
            return [Rolled(*one) for one in zip(batch, answers, rewards, groups, strict=True)]

        rolled = await source.collect(run, questions, config.temperature, roll)
        answers = [answer for one in rolled for answer in one.rewards]
        figures = trainer.learn([one.made for one in rolled], [one.earned for one in rolled])
        weight = adapt_weight(policy.notes["kl"], figures.get("kl", config.target_kl), config.target_kl)
        policy.notes["kl"] = weight
        answer = sum(answers) / max(1, len(answers))
        run.log(
            "step", {"step": number, "answer": answer, "rows": source.rows_asked, "weight": weight, **figures}
        )
        if systems.due(number):
            await systems.validate(
                run, archive, hinted_environment(share.env, policy, config), await run.keep(policy)
            )

    if config.warmup:
        await run.train(config.warmup, warm, policy)
        policy.set_reference_policy()
    await run.train(steps, step, policy)
    return systems.recall(archive)


async def reward_hints(
    run: Run,
    env: Environment,
    start: Prompt,
    config: Config,
    examples: Sequence[Example],
    groups: Groups,
    bases: Sequence[float],
    common: frozenset[str],
) -> tuple[list[list[float]], list[list[float]]]:
    """Rewards of the hints to each example, less its base, and the rewards of the answers, 0 to 1."""
    hints = [[hint_in(sample.text, sample.ended) for sample in group] for group in groups]
    prompted = [attach_hint(e, hint) for e, group in zip(examples, hints, strict=True) for hint in group]
    answers = iter([unit(env, rollout.reward) for rollout in await env.evaluate(run, start, prompted)])
    rewards, answered = [], []
    for example, group, base in zip(examples, hints, bases, strict=True):
        mine, target = [next(answers) for _ in group], " ".join(targets_of(example))
        hits = [keyword_reward(hint, target, common) for hint in group]
        rewards.append([r - base + (config.keyword or 0.0) * h for r, h in zip(mine, hits, strict=True)])
        answered.append(mine)
    return rewards, answered


def supervised_keywords(example: Example, column: str, common: frozenset[str] = frozenset()) -> list[str]:
    """The supervised stage's keywords: the row's own, or words of the target."""
    value = example.row.get(column)
    if isinstance(value, str):
        return [value]
    return [str(word) for word in value] if isinstance(value, Sequence) else keywords_of(example, common)


def check(env: Environment, config: Config) -> Config:
    """The settings with the weight of keywords. Raises UsageError where they need targets that rows lack."""
    bare = [e for e in env.train if e.target is None]
    lacking = [e for e in bare if not supervised_keywords(e, config.column)]
    if config.keyword and bare:
        raise UsageError(f"keyword={config.keyword:g} needs a target in every row; {len(bare)} have none.")
    if lacking and config.warmup:
        raise UsageError(
            f"warmup={config.warmup} needs a target or `{config.column}` in every row; {len(lacking)} have none."
        )
    return replace(config, keyword=(0.0 if bare else KEYWORD) if config.keyword is None else config.keyword)


def adapt_weight(weight: float, divergence: float, target: float) -> float:
    """The weight of the divergence, raised or lowered by at most 2% towards its target (Ziegler et al. 2019, arXiv:1909.08593).

        weight <- weight (1 + 0.1 clip(divergence / target - 1, -0.2, 0.2))

    A weight of 0 stays 0.
    """
    error = max(-SOFT_STEP, min(SOFT_STEP, divergence / target - 1))
    return weight * (1 + HORIZON * error)


def hinted_environment(env: Environment, policy: PolicyModel, config: Config) -> Environment:
    """The system: a greedy hint for every input."""
    return with_hints(env, PolicyActor(policy, 0.0, config.max_tokens))


def deploy(env: Environment, policy: PolicyModel, blob: bytes, config: Config) -> Environment:
    """The environment in which trained weights hint at every input."""
    policy.load(blob)
    return hinted_environment(env, policy, config)


@dataclass(frozen=True)
class Hinted(Environment):
    """An environment in which `adviser` writes a hint for every example, which is attached to its input."""

    adviser: Actor | None = None

    async def evaluate(
        self, run: Run, prompt: Prompt, examples: Sequence[Example], sample: int = 0
    ) -> list[Rollout]:
        """One rollout per example, in order; all hints are written in one batch."""
        return await self._plain.evaluate(run, prompt, await self._add_hints(run, examples, sample), sample)

    async def score(self, run: Run, prompts: Sequence[Prompt], examples: Sequence[Example]) -> list[Score]:
        """Mean reward of each prompt over the hinted examples."""
        return await self._plain.score(run, prompts, await self._add_hints(run, examples, 0))

    async def rollouts(
        self, run: Run, pairs: Sequence[tuple[Prompt, Example]], sample: int = 0
    ) -> list[Rollout]:
        """One rollout for each pair of prompt and hinted example."""
        examples = await self._add_hints(run, [example for _, example in pairs], sample)
        plain = [(prompt, example) for (prompt, _), example in zip(pairs, examples, strict=True)]
        return await self._plain.rollouts(run, plain, sample)

    async def rollout(self, run: Run, prompt: Prompt, example: Example, sample: int = 0) -> Rollout:
        """Answer one hinted example and grade the answer."""
        (one,) = await self._add_hints(run, [example], sample)
        return await self._plain.rollout(run, prompt, one, sample)

    async def texts(self, run: Run, prompt: Prompt, examples: Sequence[Example]) -> list[str]:
        """The editable text with the hint that each example is given, in order."""
        if self.adviser is None:
            return [prompt.region_text()] * len(examples)
        hints = await self.adviser.act(run, [ActorObservation.first(question(e)) for e in examples], 0)
        return [f"{prompt.region_text()}\n{HINT} {written_hint(one)}" for one in hints]

    @property
    def _plain(self) -> Environment:
        """The same task without hints."""
        return as_environment_type(self, Environment)

    async def _add_hints(self, run: Run, examples: Sequence[Example], sample: int) -> list[Example]:
        if self.adviser is None:
            return list(examples)
        hints = await self.adviser.act(run, [ActorObservation.first(question(e)) for e in examples], sample)
        return [attach_hint(e, written_hint(one)) for e, one in zip(examples, hints, strict=True)]


def with_hints(env: Environment, adviser: Actor) -> Hinted:
    """The environment with a hint for every input. Raises UsageError for a task of several turns."""
    if type(env) is not Environment:
        raise UsageError("dsp hints at one question with one answer; this task is made of several turns.")
    return as_environment_type(env, Hinted, adviser=adviser)


def question(example: Example) -> Conversation:
    """The adviser's input."""
    return (Message("user", f"{KEYWORDS} {example.user_text}"),)


def attach_hint(example: Example, hint: str) -> Example:
    """The example with the hint on a line of its own after its input (after the last value of several)."""
    last = list(example.values)[-1]
    values = {**example.values, last: f"{example.values[last]}\n{HINT} {hint.strip()}"}
    text = None if example.text is None else f"{example.text}\n{HINT} {hint.strip()}"
    return replace(example, values=values, text=text)


def hint_in(text: str, ended: bool) -> str:
    """The hint in what the policy wrote, without its thought and what encloses it; of a text that the bound on tokens cut, the
    keywords before the last separator."""
    hint = unwrap(without_thought(text), TAG)
    return hint if ended else hint.rpartition(SEPARATOR)[0].strip()


def written_hint(action: ActorAction) -> str:
    """The hint in what an adviser wrote."""
    record = action.record
    return hint_in(action.text, not isinstance(record, dict) or bool(record["ended"]))


def keywords_in(hint: str) -> list[str]:
    """The keywords of a hint, in order, as they stand between the separators."""
    return [word.strip() for word in hint.split(SEPARATOR)]


def common_words(examples: Sequence[Example]) -> frozenset[str]:
    """Words that say nothing about one row: those of more than half of all targets that are longer than a hint, folded."""
    targets = [targets_of(e)[0] for e in examples if e.target is not None]
    texts = [{w.casefold() for w in _WORD.findall(text)} for text in targets]
    texts = [words for words in texts if len(words) > MOST_KEYWORDS]
    counts = Counter(word for words in texts for word in words)
    return frozenset(word for word, times in counts.items() if times > max(1, len(texts) / 2))


def keywords_of(example: Example, common: frozenset[str] = frozenset()) -> list[str]:
    """Up to five words of the target that are worth a hint: those that the input holds first, none that are common.

    The supervised stage's targets; the paper extracts them with TextRank. None where there is no target.
    """
    if example.target is None:
        return []
    held = {word.casefold() for word in _WORD.findall(example.user_text)}
    words = [w for w in dict.fromkeys(_WORD.findall(targets_of(example)[0])) if w.casefold() not in common]
    return sorted(words, key=lambda word: word.casefold() not in held)[:MOST_KEYWORDS]


def keyword_reward(hint: str, target: str, common: frozenset[str] = frozenset()) -> float:
    """+1 for each of the first five keywords that the target holds as words of its own, -0.2 for each other that is empty,
    common, repeated or not in it. Letters inside of words are no keywords, and what comes after the fifth earns nothing.

    The published code has two signs for the penalty; this is the one of its run configuration.
    """
    total, hits, seen, wanted = 0.0, 0, set[str](), fold(target)
    for word in map(fold, keywords_in(hint)):
        good = bool(word) and word not in common and word not in seen and bool(mentions(wanted, [word]))
        seen.add(word)
        hits += good
        total += (1.0 if hits <= MOST_KEYWORDS else 0.0) if good else -MISS
    return total


def unit(env: Environment, reward: float) -> float:
    """A reward brought to [0, 1]."""
    return (reward - env.reward.low) / (env.reward.high - env.reward.low)


KEYWORDS = "Extract the keywords:"
HINT = "Hint:"
