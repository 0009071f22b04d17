"""Groups of calls of a program that a policy answers: the j-th call of a prompt, over all rollouts on one row.

As in mmGRPO (arXiv:2508.04660): rollouts of a program differ in what their calls read, so calls are compared by their place. A
task without a program makes one call.

A counterfactual group is one call of one rollout, answered anew with the same text before it: `held` holds all other calls to
their answers (COMA, Foerster et al. 2018, arXiv:1705.08926), `rerun` holds the earlier ones and makes the later ones anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

from whet.environments.environment import Environment
from whet.environments.multiturn import MultiTurn, multiturn
from whet.environments.program import ProgramEnvironment
from whet.prompt import Prompt
from whet.rl.answer_groups import answers
from whet.rl.policy_actor import PolicyActor
from whet.rl.policy_model import PolicyModel, Sample
from whet.rl.training import MultiTurnTraining, Reward, Trainer
from whet.run import Run
from whet.types import Example, Rollout

Baseline = Literal["place", "input", "held", "rerun"]
T = TypeVar("T")


@dataclass(frozen=True)
class CallGroups:
    """Groups of samples with their rewards, and the rollouts that they come from, row by row."""

    samples: list[list[Sample]] = field(default_factory=list)
    rewards: list[list[Reward]] = field(default_factory=list)
    rollouts: list[list[Rollout]] = field(default_factory=list)


def let_policy_answer(
    env: Environment, policy: PolicyModel, config: MultiTurnTraining, temperature: float = 0.0
) -> MultiTurn | ProgramEnvironment:
    """The task, or its program, answered by the policy; greedily by default."""
    top_p = config.top_p if temperature else 1.0
    actor = PolicyActor(policy, temperature, config.max_tokens, (), top_p, calls=1)
    if isinstance(env, ProgramEnvironment):
        return replace(env, actor=actor)
    return multiturn(env, actor=actor)


async def roll_groups(
    run: Run,
    env: Environment,
    trainer: Trainer,
    config: MultiTurnTraining,
    prompt: Prompt,
    rows: Sequence[Example],
    prompts: Collection[str] = (),
    baseline: Baseline = "place",
) -> CallGroups:
    """`group` rollouts on each row, as groups of calls: each call has the reward of its rollout. `prompts`: those whose calls are
    taken; none means all. A place that few rollouts came to has a small group; a group of one is left out. With `held` and
    `rerun` there is one rollout on each row, and each of its calls is made `group` times in all."""
    if not isinstance(env, ProgramEnvironment):
        (played,) = await answers(run, env, trainer, [prompt], rows)
        return CallGroups(played.samples, played.rewards, played.rollouts)
    system = let_policy_answer(env, trainer.policy, config, config.temperature)
    assert isinstance(system, ProgramEnvironment)
    if baseline in ("held", "rerun"):
        return await answer_anew(run, system, config.group, prompt, rows, prompts, baseline == "held")
    jobs = [row for row in rows for _ in range(config.group)]
    rollouts = await run.map(lambda branch, row: system.rollout(branch, prompt, row), jobs)
    groups = CallGroups()
    for at in range(0, len(jobs), config.group):
        own = rollouts[at : at + config.group]
        groups.rollouts.append(own)
        for place in texts_by_call(own, prompts).values():
            for part in by_input(place) if baseline == "input" else [place]:
                if len(part) > 1:
                    groups.samples.append([sample for sample, _ in part])
                    groups.rewards.append([reward for _, reward in part])
    return groups


async def answer_anew(
    run: Run,
    system: ProgramEnvironment,
    group: int,
    prompt: Prompt,
    rows: Sequence[Example],
    prompts: Collection[str],
    later_too: bool,
) -> CallGroups:
    """One rollout on each row; the group of each of its calls are this call and `group` - 1 others in its place, of runs in which
    the earlier calls, and the later ones too, answer as they did."""
    firsts = await run.map(lambda branch, row: system.rollout(branch, prompt, row), rows)
    jobs = [
        (row, first, place, replace(system, held=held_answers(first, place, later_too)))
        for row, first in zip(rows, firsts, strict=True)
        for place in texts_by_call([first], prompts)
        for _ in range(group - 1)
    ]
    again = await run.map(lambda branch, job: job[3].rollout(branch, prompt, job[0]), jobs)
    groups = CallGroups(rollouts=[[first] for first in firsts])
    calls: dict[tuple[int, tuple[str, int]], list[tuple[Sample, float]]] = {}
    for (_, first, place, _), rollout in zip(jobs, again, strict=True):
        made = calls.setdefault((id(first), place), [*texts_by_call([first], prompts)[place]])
        made += texts_by_call([rollout], prompts).get(place, [])
    for made in calls.values():
        if len(made) > 1:
            groups.samples.append([sample for sample, _ in made])
            groups.rewards.append([reward for _, reward in made])
    return groups


def held_answers(
    rollout: Rollout, place: tuple[str, int], later_too: bool = True
) -> dict[tuple[str, int], str]:
    """The answers of a rollout's calls before a place, and of those after it, by their places."""
    held, calls, passed = dict[tuple[str, int], str](), Counter[str](), False
    for step in rollout.steps:
        if step.role == "task":
            own = step.prompt, calls[step.prompt]
            calls[step.prompt] += 1
            passed = passed or own == place
            if own != place and step.record is not None and (later_too or not passed):
                held[own] = step.output
    return held


def texts_by_call(
    rollouts: Sequence[Rollout], prompts: Collection[str] = ()
) -> dict[tuple[str, int], list[tuple[Sample, float]]]:
    """The text of each call of each prompt, with the reward of its rollout, by the prompt and the number of the call."""
    places: dict[tuple[str, int], list[tuple[Sample, float]]] = {}
    for rollout in rollouts:
        calls: dict[str, int] = {}
        for step in rollout.steps:
            if step.role != "task" or (prompts and step.prompt not in prompts):
                continue
            number = calls[step.prompt] = calls.get(step.prompt, -1) + 1
            if step.record is None:
                continue
            record: Any = step.record
            sample = Sample.from_json(record)
            places.setdefault((step.prompt, number), []).append((sample, rollout.reward))
    return places


def by_input(place: Sequence[tuple[Sample, T]]) -> list[list[tuple[Sample, T]]]:
    """The calls of one place by what they read; those that read what no other one did are one group."""
    read: dict[tuple[int, ...], list[tuple[Sample, T]]] = {}
    for sample, reward in place:
        read.setdefault(tuple(sample.prompt), []).append((sample, reward))
    alone = [part[0] for part in read.values() if len(part) == 1]
    return [part for part in read.values() if len(part) > 1] + ([alone] if alone else [])
