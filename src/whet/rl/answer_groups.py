"""A policy that answers the rows of a task itself: groups of answers under several prompts, and with hints where all failed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean

from whet.environments import play
from whet.environments.environment import Environment
from whet.environments.multiturn import multiturn
from whet.prompt import Prompt
from whet.rl.advantages import Rows, equal
from whet.rl.guidance import all_failed, hint_of, with_hint, without_hints
from whet.rl.policy_actor import PolicyActor, samples_of
from whet.rl.policy_model import PolicyModel, Sample
from whet.rl.row_selection import Rolled, RowSource
from whet.rl.training import Groups, Reward, Trainer, rewards_by_turn, total_reward
from whet.run import Run
from whet.stats.rates import pass_at_k
from whet.types import Example, Rollout


@dataclass
class GuidedGroups:
    """Groups that were written with hints, as groups of the questions without them: see `whet.rl.guidance`.

    `samples` and `rewards` by group; `weights` of the tokens' advantages by sample.
    """

    samples: list[list[Sample]] = field(default_factory=list)
    rewards: list[list[Reward]] = field(default_factory=list)
    weights: Rows = field(default_factory=list)

    def add(
        self,
        policy: PolicyModel,
        groups: Groups,
        rewards: Sequence[Sequence[Reward]],
        plain: Groups,
    ) -> None:
        """Take in the groups whose rewards differ. `plain`: the groups of the same questions that were written without hints."""
        mixed = [i for i, group in enumerate(rewards) if not equal([total_reward(r) for r in group])]
        hinted = [sample for i in mixed for sample in groups[i]]
        if hinted:
            heads = [plain[i][0] for i in mixed for _ in groups[i]]
            moved, weights = without_hints(policy, hinted, heads)
            queue = iter(moved)
            self.samples += [[next(queue) for _ in groups[i]] for i in mixed]
            self.rewards += [list(rewards[i]) for i in mixed]
            self.weights += weights

    def weigh(self, plain: Groups) -> Rows | None:
        """The weights of the tokens of plain groups (1) and of these; None where there are none of these."""
        if not self.samples:
            return None
        return [*([1.0] * len(sample.tokens) for group in plain for sample in group), *self.weights]


@dataclass(frozen=True)
class Played:
    """The answers of a program to the problems of a step, a group for each problem: what became of them, what was
    written, and the reward that it is learned from (of the whole, or of each token)."""

    rollouts: list[list[Rollout]]
    samples: list[list[Sample]]
    rewards: list[list[Reward]]


async def answers(
    run: Run,
    env: Environment,
    trainer: Trainer,
    prompts: Sequence[Prompt],
    problems: Sequence[Example],
    temperature: float | None = None,
) -> list[Played]:
    """`group` answers of the policy to each problem under each prompt, in the task's own world. `temperature` None is that
    of the settings."""
    config, world, n = trainer.config, multiturn(env), trainer.config.group
    examples = [problem for problem in problems for _ in range(n)]
    heat = config.temperature if temperature is None else temperature
    actor = PolicyActor(trainer.policy, heat, config.max_tokens, (), config.top_p, calls=1)
    cuts = [slice(i, i + n) for i in range(0, len(examples), n)]
    results = []
    for prompt in prompts:
        played = await play(run, actor, [world.episode(prompt, example) for example in examples])
        graded = await world.judge(run, prompt, examples, played)
        whole = [rollout.reward for rollout in graded]
        turns = [rewards_by_turn(one, reward) for one, reward in zip(played, whole, strict=True)]
        samples = samples_of(played)
        paid = trainer.assign_credit(whole, turns)
        results.append(Played([graded[c] for c in cuts], [samples[c] for c in cuts], [paid[c] for c in cuts]))
    return results


def by_problem(
    env: Environment, problems: Sequence[Example], played: Sequence[Played]
) -> list[Rolled[list[Played]]]:
    """The answers of programs, problem by problem. A problem teaches something if the answers under one program differ."""
    low, high = env.reward.low, env.reward.high
    groups = []
    for i, problem in enumerate(problems):
        parts = [Played([one.rollouts[i]], [one.samples[i]], [one.rewards[i]]) for one in played]
        rewards = [(r.reward - low) / (high - low) for one in played for r in one.rollouts[i]]
        totals = [[total_reward(r) for r in one.rewards[i]] for one in played]
        gaps = [total - group[0] for group in totals for total in group]
        groups.append(Rolled(problem, rewards, gaps, parts))
    return groups


def join_played(parts: Sequence[Played]) -> Played:
    """The answers of one program to several problems, in order."""
    return Played(
        [group for part in parts for group in part.rollouts],
        [group for part in parts for group in part.samples],
        [group for part in parts for group in part.rewards],
    )


async def guide(
    run: Run,
    env: Environment,
    trainer: Trainer,
    column: str,
    source: RowSource,
    prompts: Sequence[Prompt],
    played: Sequence[Played],
    problems: Sequence[Example],
) -> GuidedGroups:
    """Answers that were written with the hints in `column` to the problems whose whole group failed, as answers without them.

    Groups whose rewards are equal are left out. Each problem counts once more among the rows that are paid for.
    """
    guided, low, high = GuidedGroups(), env.reward.low, env.reward.high
    for prompt, one in zip(prompts, played, strict=True):
        groups = [[(r.reward - low) / (high - low) for r in group] for group in one.rollouts]
        failed = [i for i, group in enumerate(groups) if all_failed(group) and hint_of(problems[i], column)]
        failed = failed[: source.pay(len(failed))]
        if failed:
            hinted = [with_hint(problems[i], hint_of(problems[i], column)) for i in failed]
            (again,) = await answers(run, env, trainer, [prompt], hinted)
            plain = [one.samples[i] for i in failed]
            guided.add(trainer.policy, again.samples, again.rewards, plain)
    return guided


async def ask_problems(
    run: Run, env: Environment, trainer: Trainer, source: RowSource, prompts: Sequence[Prompt], k: int
) -> tuple[list[Example], list[Played]]:
    """At most `k` problems of the source, and what the policy answered to them under each prompt; none once the source is used
    up."""

    async def roll(problems: Sequence[Example], heat: float) -> list[Rolled[list[Played]]]:
        return by_problem(env, problems, await answers(run, env, trainer, prompts, problems, heat))

    rolled = await source.collect(run, k, trainer.config.temperature, roll)
    return [one.row for one in rolled], [
        join_played([one.made[i] for one in rolled]) for i in range(len(prompts))
    ]


async def learn_answers(
    run: Run,
    env: Environment,
    trainer: Trainer,
    column: str,
    source: RowSource,
    prompts: Sequence[Prompt],
    played: Sequence[Played],
    problems: Sequence[Example],
) -> dict[str, float]:
    """One update from the answers under all prompts, with hints from `column` where all failed; figures of `Trainer.learn`, those
    of `pass_figures`, and with a column the groups that hints added (`guided`)."""
    samples = [group for one in played for group in one.samples]
    rewards = [group for one in played for group in one.rewards]
    hinted = await guide(run, env, trainer, column, source, prompts, played, problems)
    figures = trainer.learn([*samples, *hinted.samples], [*rewards, *hinted.rewards], hinted.weigh(samples))
    figures |= pass_figures(env, played)
    return figures | ({"guided": float(len(hinted.samples))} if column else {})


def pass_figures(env: Environment, played: Sequence[Played]) -> dict[str, float]:
    """pass@k of the answers (`whet.stats.rates.pass_at_k`), the mean over groups: `pass_at_1`, `pass_at_2`, `pass_at_4` and so on
    below the size of a group, and `pass_at_group` for all of it. An answer of the highest reward is right.

    Training that makes pass@1 rise may make pass@k fall: then answers lose their variety.
    """
    groups = [group for one in played for group in one.rollouts]
    right = [sum(r.reward >= env.reward.high for r in group) for group in groups]
    size = min(map(len, groups))
    powers = [2**i for i in range(size.bit_length()) if 2**i < size]
    sizes = {f"pass_at_{k}": k for k in powers} | {"pass_at_group": size}
    return {
        name: fmean(pass_at_k(len(group), n, k) for group, n in zip(groups, right, strict=True))
        for name, k in sizes.items()
    }
