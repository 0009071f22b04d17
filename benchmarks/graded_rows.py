"""Which mechanism of training helps where: choice of rows, groups of equal rewards, hints, imitation. Simulated, on a CPU.

    python benchmarks/graded_rows.py                     # all worlds and mechanisms, twelve seeds; about ten minutes on two cores
    python benchmarks/graded_rows.py --worlds ties --arms "uniform;mopps;pcl" --seeds 5

There is no language model. The policy is a table: for each of 24 skills a softmax over 8 actions. A row asks for some of the
skills, an answer is an action for each, and its reward is 1 if all are right, else 0. Rows share skills, so that what is
learned on easy rows helps with hard ones. A hint adds to the logits of the right actions of its row. Selectors, advantages,
losses and the weights of hinted tokens are whet's own. All mechanisms may ask for the same number of answers, the replaced
and hinted ones included, and have the same rate of Adam. Worlds, of 60 rows each:

    graded      rows of 1 to 4 skills, from about 1/8 to nearly never right
    ties        45% of the rows are always right, 45% nearly never, 10% in between
    sparse      nine of ten rows need three skills and are right one time in 500; the others need one of them
    confident   the policy is nearly sure of a wrong action for each skill; rows of one or two skills
    polished    rows that are right nine times of ten
    hints       one of the three skills of a row is right one time in 1,000 without the row's hint, and nearly always with it
    noisy       rows of one or two skills, and a verifier that reverses one verdict in ten

Printed is the probability that an answer to a row of the world is right after the training, computed from the table, and the
difference to uniform rows with its 95% interval, paired by seed (Student).
`equal steps`: as many updates as uniform rows have, whatever the answers cost. `four passes`: PPO's epochs, four updates on the
answers of a step. Expert iteration imitates the different answers to a row that earned 1, at most four of them, drawn at random;
`repeats`: each as often as it earned 1. The rate and the numbers of answers were chosen by looking at four other seeds (100 to
103).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from whet.rl import losses
from whet.rl.advantages import equal, grpo
from whet.rl.guidance import all_failed, shaping_weights
from whet.rl.row_selection import MoPPS, Rolled, RowSource, make_selector
from whet.rl.zero_variance import with_pseudo_negative, zvp
from whet.run import MemoryRun
from whet.types import Example

SKILLS, ACTIONS = 24, 8
GROUP, BATCH = 8, 8
ROWS = 60
HINT = 9.0
ZVP, PENALTY = 0.1, 0.1
KEPT = 4
"""Different right answers to a row that are imitated at most."""
IMITATIONS = 60
"""Gradient steps of one round of expert iteration."""


@dataclass
class World:
    """First logits (skills, actions), and the rows as tuples of skills. The right action is always 0; no mechanism knows that."""

    logits: Tensor
    rows: list[tuple[int, ...]]
    noise: float = 0.0
    """The probability that a verdict is reversed."""


def make_world(name: str, seed: int) -> World:
    """The world of a name for a seed."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0.0, 0.5, (SKILLS, ACTIONS))
    easy, hard = range(SKILLS // 2), range(SKILLS // 2, SKILLS)

    def draw(among: Sequence[int], k: int) -> tuple[int, ...]:
        return tuple(int(i) for i in rng.choice(list(among), k, replace=False))

    if name == "graded":
        rows = [draw(range(SKILLS), 1 + i % 4) for i in range(ROWS)]
    elif name == "ties":
        logits[: SKILLS // 2, 0] += 8.0
        rows = [
            draw(easy, 2) if i % 20 < 9 else draw(hard, 5) if i % 20 < 18 else draw(hard, 1)
            for i in range(ROWS)
        ]
    elif name == "sparse":
        rows = [draw(range(SKILLS), 1 if i % 10 == 0 else 3) for i in range(ROWS)]
    elif name == "confident":
        logits[np.arange(SKILLS), rng.integers(1, ACTIONS, SKILLS)] += 5.0
        rows = [draw(range(SKILLS), 1 + i % 2) for i in range(ROWS)]
    elif name == "polished":
        logits[:, 0] += 5.0
        rows = [draw(range(SKILLS), 2) for _ in range(ROWS)]
    elif name == "hints":
        logits[: SKILLS // 2, 0] += 5.0
        logits[SKILLS // 2 :, 0] -= 5.0
        rows = [(*draw(easy, 2), *draw(hard, 1)) for _ in range(ROWS)]
    elif name == "noisy":
        rows = [draw(range(SKILLS), 1 + i % 2) for i in range(ROWS)]
        return World(torch.tensor(logits, dtype=torch.float32), rows, 0.1)
    else:
        raise SystemExit(f"There is no world {name!r}; worlds: {', '.join(WORLDS)}.")
    return World(torch.tensor(logits, dtype=torch.float32), rows)


WORLDS = {
    "graded": 2400,
    "ties": 2400,
    "sparse": 2400,
    "confident": 4800,
    "polished": 2400,
    "hints": 4800,
    "noisy": 4800,
}
"""Worlds, and how many answers a training asks for there."""


@dataclass(frozen=True)
class Arm:
    """A mechanism: how rows are chosen, what equal groups teach, and whether hints are given. `times` the answers of others."""

    rows: Any = "uniform"
    resamples: int = 0
    zero_variance: str = "skip"
    hints: bool = False
    imitates: bool = False
    repeats: bool = False
    passes: int = 1
    steps_alike: bool = False
    decay: float = 1.0
    times: int = 1


ARMS: dict[str, Arm] = {
    "uniform": Arm(),
    "uniform, twice the answers": Arm(times=2),
    "uniform, four passes": Arm(passes=4),
    "dynamic": Arm("dynamic", 4),
    "dynamic, equal steps": Arm("dynamic", 4, steps_alike=True),
    "mopps": Arm("mopps"),
    "mopps, decay 0.5": Arm("mopps", decay=0.5),
    "pcl": Arm("pcl"),
    "easy-first": Arm("easy-first"),
    "erpo": Arm("erpo", zero_variance="erpo"),
    "erpo, no temperature": Arm(zero_variance="erpo"),
    "zvp": Arm(zero_variance="zvp"),
    "guide": Arm(hints=True),
    "guide, equal steps": Arm(hints=True, steps_alike=True),
    "expert iteration": Arm(imitates=True),
    "expert iteration, repeats": Arm(imitates=True, repeats=True),
    "expert iteration + hints": Arm(imitates=True, hints=True),
}


@dataclass
class Policy:
    """The table, its optimiser, and the notes of the selectors."""

    logits: Tensor
    lr: float = 0.2
    notes: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.logits = self.logits.clone().requires_grad_()
        self.adam = torch.optim.Adam([self.logits], self.lr)

    def chances(self, rows: Sequence[tuple[int, ...]]) -> list[float]:
        """The probability that an answer to each row is right."""
        right = self.logits.detach().log_softmax(-1)[:, 0].tolist()
        return [float(np.exp(sum(right[s] for s in row))) for row in rows]

    def step(self, loss: Tensor) -> None:
        """One step of Adam, the norm of the gradient at most 1, as in whet's training."""
        self.adam.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_([self.logits], 1.0)
        self.adam.step()


@dataclass
class Group:
    """Answers to a row: actions (n, skills of the row), their log-probabilities when drawn, rewards; weights of advantages."""

    row: tuple[int, ...]
    actions: Tensor
    old: Tensor
    rewards: list[float]
    heat: float = 1.0
    weights: Tensor | None = None


def draw_group(
    policy: Policy, row: tuple[int, ...], rng: torch.Generator, heat: float, hint: float, noise: float = 0.0
) -> Group:
    """A group of answers at a temperature, with or without the hint. `noise`: the probability that a verdict is reversed."""
    logits = policy.logits.detach()[list(row)].clone()
    logits[:, 0] += hint
    logs = (logits / heat).log_softmax(-1)
    actions = torch.multinomial(logs.exp(), GROUP, True, generator=rng).T
    old = logs[torch.arange(len(row)), actions]
    right = (actions == 0).all(1)
    if noise:
        right ^= torch.rand(GROUP, generator=rng) < noise
    return Group(row, actions, old, right.float().tolist(), heat)


def advantages_of(policy: Policy, group: Group, arm: Arm) -> Tensor:
    """Advantages of the tokens of a group: (n, skills of the row)."""
    width = len(group.row)
    if equal(group.rewards) and arm.zero_variance == "zvp":
        logs = (policy.logits.detach()[list(group.row)] / group.heat).log_softmax(-1)
        entropies = (-(logs.exp() * logs).sum(-1)).tolist()
        return torch.tensor(zvp(group.rewards[0], [entropies] * GROUP, ZVP, 0.5))
    rewards = group.rewards
    if arm.zero_variance == "erpo":
        rewards = with_pseudo_negative(rewards, PENALTY, 0.5)
    row = torch.tensor(grpo(rewards)[:GROUP])[:, None].expand(GROUP, width)
    return row if group.weights is None else row * group.weights


def learn(policy: Policy, groups: Sequence[Group], arm: Arm) -> None:
    """One update, or as many as the arm has passes: PPO's loss, the mean over all tokens."""
    advantages = [advantages_of(policy, group, arm) for group in groups]
    tokens = sum(group.actions.numel() for group in groups)
    for _ in range(arm.passes):
        parts = []
        for group, values in zip(groups, advantages, strict=True):
            logs = (policy.logits[list(group.row)] / group.heat).log_softmax(-1)
            logprobs = logs[torch.arange(len(group.row)), group.actions]
            parts.append(losses.ppo(logprobs, group.old, values).sum())
        policy.step(torch.stack(parts).sum() / tokens)


def guide(policy: Policy, groups: Sequence[Group], rng: torch.Generator) -> list[Group]:
    """Hinted answers to rows whose whole group failed, as answers without the hint; groups of equal rewards are left out."""
    hinted = [draw_group(policy, g.row, rng, 1.0, HINT) for g in groups]
    mixed = [g for g in hinted if not equal(g.rewards)]
    plain = []
    for group in mixed:
        logs = policy.logits.detach()[list(group.row)].log_softmax(-1)
        plain.append(logs[torch.arange(len(group.row)), group.actions])
    flat = [row for logprobs in plain for row in logprobs.tolist()]
    weights = iter(shaping_weights(flat, [row for group in mixed for row in group.old.tolist()]))
    return [
        Group(g.row, g.actions, p, g.rewards, 1.0, torch.tensor([next(weights) for _ in range(GROUP)]))
        for g, p in zip(mixed, plain, strict=True)
    ]


async def train(world: World, arm: Arm, seed: int, answers: int, lr: float) -> Policy:
    """Reinforcement learning until the answers are used up."""
    policy, rng = Policy(world.logits, lr), torch.Generator().manual_seed(seed)
    examples = [
        Example(str(i), {"input": str(i)}, None, {"difficulty": len(row)}) for i, row in enumerate(world.rows)
    ]

    def features(some: Sequence[Example]) -> list[list[float]]:
        needed = np.zeros((len(some), SKILLS))
        for i, example in enumerate(some):
            needed[i, list(world.rows[int(example.id)])] = 0.5
        return needed.tolist()

    most = arm.times * answers // GROUP
    steps = most // BATCH
    selector = make_selector(
        arm.rows, policy, examples, horizon=max(1, steps * BATCH // 2), features=features
    )
    if isinstance(selector, MoPPS):
        selector.decay = arm.decay
    source = RowSource(selector, arm.resamples, None if arm.steps_alike else most)

    async def roll(some: Sequence[Example], heat: float) -> list[Rolled[Group]]:
        groups = [draw_group(policy, world.rows[int(e.id)], rng, heat, 0.0, world.noise) for e in some]
        return [Rolled(e, g.rewards, g.rewards, g) for e, g in zip(some, groups, strict=True)]

    for step in range(steps):
        groups = [
            one.made for one in await source.collect(MemoryRun(seed=seed, path=str(step)), BATCH, 1.0, roll)
        ]
        if arm.hints:
            failed = [group for group in groups if all_failed(group.rewards)]
            groups += guide(policy, failed[: source.pay(len(failed))], rng)
        if not groups:
            break
        learn(policy, groups, arm)
    return policy


def imitate(world: World, arm: Arm, seed: int, answers: int, lr: float) -> Policy:
    """Expert iteration: rounds of answers to all rows; right ones so far are imitated, from the first table on."""
    policy, rng = Policy(world.logits, lr), torch.Generator().manual_seed(seed)
    shuffled, order = list(world.rows), random.Random(seed)
    order.shuffle(shuffled)
    left = answers // GROUP
    right: dict[tuple[int, ...], Counter[tuple[int, ...]]] = {}
    while left > 0:
        for row in shuffled:
            group = draw_group(policy, row, rng, 1.0, 0.0, world.noise)
            left -= 1
            if arm.hints and all_failed(group.rewards) and left > 0:
                group = draw_group(policy, row, rng, 1.0, HINT)
                left -= 1
            pairs = zip(group.actions.tolist(), group.rewards, strict=True)
            right.setdefault(row, Counter()).update(tuple(answer) for answer, reward in pairs if reward)
            if left <= 0:
                break
        kept = [(row, answer) for row, known in right.items() for answer in imitated(known, arm, order)]
        if not kept:
            continue
        policy = Policy(world.logits, lr)
        skills = torch.tensor([s for row, _ in kept for s in row])
        actions = torch.tensor([a for _, answer in kept for a in answer])
        for _ in range(IMITATIONS):
            logprobs = policy.logits[skills].log_softmax(-1)[torch.arange(len(skills)), actions]
            policy.step(losses.reinforce(logprobs, torch.ones(len(skills))).mean())
    return policy


def imitated(known: Counter[tuple[int, ...]], arm: Arm, order: random.Random) -> list[tuple[int, ...]]:
    """The answers to a row that are imitated, of those that earned 1 so many times."""
    if arm.repeats:
        return sorted(known.elements())
    return order.sample(sorted(known), min(KEPT, len(known)))


def run_seed(world: str, arm: str, answers: int, lr: float, seed: int) -> float:
    """The mean probability of a right answer over the rows of the world after the training of an arm."""
    torch.set_num_threads(1)
    made, how = make_world(world, seed), ARMS[arm]
    imitation = partial(imitate, made, how, seed, answers, lr)
    trained = imitation() if how.imitates else asyncio.run(train(made, how, seed, answers, lr))
    return float(np.mean(trained.chances(made.rows)))


def difference(mine: Sequence[float], other: Sequence[float]) -> str:
    """The mean difference, paired by seed, with its 95% interval."""
    gaps = np.subtract(mine, other)
    half = float(stats.t.ppf(0.975, len(gaps) - 1) * stats.sem(gaps)) if len(gaps) > 1 else float("nan")
    return f"{gaps.mean():+.3f} [{gaps.mean() - half:+.3f}, {gaps.mean() + half:+.3f}]"


def table(results: Mapping[str, Mapping[str, Sequence[float]]]) -> str:
    """Means by world, and differences to uniform rows by mechanism and world, as markdown."""
    worlds = list(results)
    lines = ["| world | answers | untrained | uniform |", "|---|---|---|---|"]
    for world, by_arm in results.items():
        means = [f"{np.mean(by_arm[arm]):.3f}" for arm in ("untrained", "uniform")]
        lines.append(f"| {world} | {WORLDS[world]:,} | {' | '.join(means)} |")
    lines += ["", f"| mechanism | {' | '.join(worlds)} |", "|---" * (len(worlds) + 1) + "|"]
    for arm in list(results[worlds[0]])[2:]:
        cells = [difference(results[world][arm], results[world]["uniform"]) for world in worlds]
        lines.append(f"| {arm} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Run everything and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--worlds", default=",".join(WORLDS), help="separated by commas")
    parser.add_argument("--arms", default=";".join(ARMS), help="separated by semicolons; uniform comes first")
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--answers", type=int, help="of one training; by default what the world has")
    parser.add_argument("--lr", type=float, default=0.2, help="Adam's rate")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path, help="write the results as JSON")
    options = parser.parse_args()
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    results: dict[str, dict[str, list[float]]] = {}
    with ProcessPoolExecutor(options.processes) as pool:
        for world in options.worlds.split(","):
            start = float(
                np.mean(
                    [np.mean(Policy(w.logits).chances(w.rows)) for w in (make_world(world, s) for s in seeds)]
                )
            )
            results[world] = {"untrained": [start] * len(seeds)}
            for arm in dict.fromkeys(["uniform", *options.arms.split(";")]):
                values = list(
                    pool.map(
                        partial(run_seed, world, arm, options.answers or WORLDS[world], options.lr), seeds
                    )
                )
                results[world][arm] = values
                print(f"{world}, {arm}: {np.mean(values):.3f}", flush=True)
            if options.out:
                options.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(table(results))
    for world, arm in (
        ("confident", "zvp"),
        ("confident", "guide, equal steps"),
        ("hints", "guide, equal steps"),
    ):
        for other in ("expert iteration", "uniform, twice the answers"):
            if {arm, other} <= results.get(world, {}).keys():
                print(
                    f"{world}: {arm} against {other}: {difference(results[world][arm], results[world][other])}"
                )


if __name__ == "__main__":
    main()
