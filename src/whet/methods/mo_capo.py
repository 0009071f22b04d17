"""MO-CAPO: CAPO for a front of reward and cost; a challenger gets more rows only while it may be on the front.

Büssing, Schlager, Heiß, Zehle, Feurer: MO-CAPO: Multi-Objective Cost-Aware Prompt Optimization. 2026. arXiv:2605.18869. Of the
paper the abstract could be read, and a development version of the program that names it in public. The loop follows the latter.

    P <- k instructions, each with 0 to `shots` random demonstrations; all answer one block of rows
    I <- those of P that no other dominates (incumbents)
    while the budget lasts:
        `crossovers` times: two parents, each the winner of a tournament; child <- CAPO's crossover and mutation
        each child answers block by block the blocks that all of I answered;
            it leaves as soon as the incumbent that is nearest in the objectives dominates it
        I <- those of I and of the children that answered all of them that no other dominates
        for each child one of I with the fewest blocks answers one more
        k prompts stay: of those beside I go the least measured, then of I those in a crowd
    return the best of I on validation rows; the others measured there are the front

Differences from the paper, as far as it is known:
1. The objectives are those of the task. A task without any has two: its reward, and the cost, which is input tokens plus
   `output_price` times output tokens. The paper's cost has both; its prices could not be read.
2. The children of a step race side by side, over the same blocks in the same order. The program sends one after the other.
3. Tournaments, first prompts and demonstrations are those of whet's `capo`: no row of a race is shown as a demonstration, and a
   start that earns nothing is left first (`whet.search.from_zero`).
4. A front of noisy means flatters itself. The result is chosen on validation rows, where up to `finalists` of I are measured
   anew, those first that stand furthest apart; of a task with objectives the result shows this front.
5. Within a limit on calls, population, children, rows and steps are cut to what it pays. The paper's limit is on tokens.

Run it:  whet optimize TASK --method mo_capo --lm openai/NAME --optimizer-lm openai/NAME
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from whet._util.fields import NonNegativeFloat, NonNegativeInt, PositiveInt
from whet.environments.environment import Environment
from whet.errors import named_fields
from whet.instructions.guard import secrets
from whet.methods.method import MethodEntry
from whet.prompt import Prompt
from whet.rewards import Objective, Objectives
from whet.rl import LanguagePolicy
from whet.rl.combinations import SMALLEST_BLOCK, Combination, Operator, Sizes, split_rows
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.from_zero import leave_zero
from whet.search.front import REWARD, Front, Vectors, vectors_of
from whet.search.front_race import FrontRace
from whet.search.plan import SearchPlan, share_out, validate_finalists, validate_leader
from whet.stats import Goal
from whet.types import Rollout, Score

ENTRY = MethodEntry(
    "mo_capo",
    "MO-CAPO: a front of reward and cost, by races",
    version=1,
    rank=97,
    when="a right answer and a cheap one are both wanted, and you want to choose between prompts",
    paper="Büssing et al., 2026",
    arxiv="2605.18869",
    needs=("optimizer", "objectives"),
    edits_all=True,
)


@named_fields
@dataclass(frozen=True)
class Config:
    """Settings of MO-CAPO."""

    population: PositiveInt = 10
    """Prompts that stay after a step, incumbents among them (k)."""
    crossovers: PositiveInt = 4
    """Children of a step."""
    steps: NonNegativeInt = 100
    """Steps at most."""
    block: PositiveInt = 30
    """Training examples of a block; fewer if there are not enough for all blocks."""
    blocks: PositiveInt = 10
    """Blocks that a prompt answers at most."""
    shots: NonNegativeInt = 5
    """Demonstrations in a prompt at most; 0 for instructions only."""
    drops: bool = True
    """Whether a child leaves the race when an incumbent dominates it; else it answers all rows that the incumbents answered."""
    output_price: NonNegativeFloat = 4.0
    """The cost of an output token in input tokens, if the task names no objectives."""
    finalists: PositiveInt = 6
    """Prompts of the front measured on validation examples at the end."""


async def mo_capo(
    run: Run, env: Environment, policy: LanguagePolicy, start: Prompt, config: Config
) -> Candidate:
    """Evolution of a front by races; see the module."""
    share, size = sizes(run, env, config)
    archive = Archive()
    await archive.validate(run, share.env, [Candidate(start)])
    share, firsts = await leave_zero(run, share, archive, start, secrets, k=config.shots)
    known = [Combination(start, start), *(Combination.of(start, first) for first in firsts)]
    used, most = [demo for first in firsts for demo in first.demos], size.block * size.blocks
    rows, pool, left = await split_rows(run, env, start, most, config.shots, used, share.rollouts)
    operator = Operator(env, policy, start, config.shots, pool)
    known += await operator.first(run, size.population - 1)
    items, measure = objectives_of(env, config.output_price)
    front, keep = Front(items, tested=False), size.population
    race = FrontRace(env, rows, size.block, left, front=front, measure=measure, keep=keep, drops=config.drops)
    await race.open(run, [one.prompt for one in known])
    for step in range(1, size.steps + 1):
        if not race.incumbents or not race.affords(size.crossovers):
            break
        operator = replace(operator, policy=policy.adapt(), sample=2 * step * size.crossovers)
        by_id = {one.prompt.id: one for one in reversed(known)}
        pairs = [race.parents(run.rng) for _ in range(size.crossovers)]
        children = await operator.children(run, [(by_id[one], by_id[other]) for one, other in pairs])
        known += children
        await race.challenge(run, [one.prompt for one in children])
        record(run, archive, race, known)
        leader = max(race.rank(), key=lambda candidate: score_of(race, candidate.id).mean)
        await validate_leader(run, share, archive, archive.members[leader.id])
    record(run, archive, race, known)
    return await validate_finalists(run, share, archive, [archive.members[c.id] for c in race.rank()])


def sizes(run: Run, env: Environment, config: Config) -> tuple[SearchPlan, Sizes]:
    """The limits of the search, and the sizes that they pay for. The first population takes a sixteenth of the rollouts, or
    more if blocks would be too small or if the optimizer's calls are the narrower limit."""
    share = share_out(run, env, config.steps, config.finalists)
    k, children, steps, block = config.population, config.crossovers, config.steps, config.block
    if share.asks is not None:
        k = min(k, 1 + share.asks // 3)
        children = min(children, max(1, (share.asks - k + 1) // 4))
        steps = min(steps, (share.asks - k + 1) // (2 * children))
    if share.rollouts is not None:
        k = min(k, max(1, share.rollouts // (2 * SMALLEST_BLOCK)))
        new = min(16 * k, k + 2 * steps * children)
        block = max(SMALLEST_BLOCK, min(block, share.rollouts // new))
    blocks = min(config.blocks, max(1, len(env.train) // block))
    if k < 2 and (steps < 1 or (share.rollouts is not None and share.rollouts < 2 * block)):
        steps = 0  # no race of two prompts is paid for
    run.note_rounds(int(k > 1 or steps > 0), 1)
    return share, Sizes(k, children, steps, block, blocks)


def objectives_of(
    env: Environment, output_price: float
) -> tuple[Sequence[Objective], Callable[[Sequence[Rollout]], Vectors]]:
    """The objectives of a task and their values of rollouts; of a task without any, its reward and the cost of the tokens."""
    if isinstance(env.reward, Objectives):
        return env.reward.items, partial(vectors_of, env)
    low, width = env.reward.low, env.reward.high - env.reward.low
    reward, cost = Goal(REWARD, maximise=True, width=width), Goal(COST, maximise=False)

    def measure(rollouts: Sequence[Rollout]) -> Vectors:
        return {
            r.example_id: {
                REWARD: r.reward,
                COST: r.usage.input_tokens + output_price * r.usage.output_tokens,
            }
            for r in rollouts
        }

    return (Objective(reward, part=0, low=low), Objective(cost, metric=COST)), measure


def score_of(race: FrontRace, prompt: str) -> Score:
    """The mean reward of a prompt and of each objective, over the rows that it answered in races."""
    rewards = race.rewards[prompt]
    parts = {item.name: race.front.mean(prompt, item.name) for item in race.front.objectives}
    return Score(sum(rewards.values()) / len(rewards), len(rewards), parts)


def record(run: Run, archive: Archive, race: FrontRace, known: Sequence[Combination]) -> None:
    """Take the incumbents in, and log the front: what each of them reached, and on how many rows."""
    for one in known:
        if one.prompt.id in race.incumbents:
            archive.add(run, one.candidate(score_of(race, one.prompt.id)))
    scores = {one: score_of(race, one) for one in race.incumbents}
    run.log("front", {one: {**score.parts, "rows": score.n} for one, score in scores.items()})


COST = "cost"
