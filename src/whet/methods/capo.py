"""CAPO: instruction and demonstrations evolve together, and prompts race over blocks of examples, short ones ahead.

Zehle, Schlager, Heiß, Feurer: CAPO: Cost-Aware Prompt Optimization. AutoML 2025. arXiv:2504.16005. Algorithm 1.

    P <- k instructions, each with 0 to `shots` random demonstrations
    while the budget lasts:
        `crossovers` times: draw two parents; the model joins their instructions;
            demonstrations: as many as both have on average, from those of both
            the model writes the child's instruction in other words; by turns of chance a demonstration comes, goes, or none does
        race parents and children over blocks of examples, a score being accuracy - gamma length / L0:
            after each block drop whoever is beaten by at least k others at alpha; stop when k are left
        P <- the best k
    return the best of P

Differences from the paper and its code:
1. The race is tested by whet's own test for repeated looks (`whet.search.racing`). The paper repeats a t-test at alpha after each
   block, which is no test at alpha, and drops nobody where all differences are equal.
2. The length penalty counts in the race and in the ranking after it. The blocks come in a new order in each race. Nobody answers
   a row twice, and no row of a race is shown as a demonstration.
3. The result is chosen on validation examples among the best of the population and the leaders on the way.
4. A demonstration is added in a third of the mutations; in the code of the paper a later branch undoes it. It shows the model's
   own answer where that earned the full reward, and else the target, under the rules of `whet.search.demonstrations`.
5. The first instructions are written by the optimizer model from training examples, beside the start; the paper is given them.
   Where the optimizer writes nothing of use, the first parent's instruction stays, and demonstrations evolve alone.
6. If the start prompt has a reward of zero, two prompts more join the population (`whet.search.from_zero`).
7. Within a limit on calls, population, children, rows and steps are cut to what it pays. The paper's limit is on tokens.

Run it:  whet optimize TASK --method capo --lm openai/NAME --optimizer-lm openai/NAME
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from whet._util.fields import NonNegativeFloat, NonNegativeInt, PositiveInt, Probability
from whet.environments.environment import Environment
from whet.errors import named_fields
from whet.instructions.guard import secrets
from whet.methods.method import MethodEntry
from whet.prompt import Prompt
from whet.rl import LanguagePolicy
from whet.rl.combinations import Combination, Operator, Sizes, payable_sizes, random_pairs, split_rows
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.from_zero import leave_zero
from whet.search.plan import SearchPlan, count_purse, validate_finalists, validate_leader
from whet.search.racing import Racer, RaceTrack
from whet.types import Score

ENTRY = MethodEntry(
    "capo",
    "CAPO: instructions and demonstrations race, short ones ahead",
    version=2,
    rank=96,
    when="instruction and demonstrations both matter, and a shorter prompt is useful",
    paper="Zehle et al., AutoML 2025",
    arxiv="2504.16005",
    needs=("optimizer",),
    edits_all=True,
)


@named_fields
@dataclass(frozen=True)
class Config:
    """Settings of CAPO."""

    population: PositiveInt = 10
    """Prompts that survive a step (k)."""
    crossovers: PositiveInt = 4
    """Children of a step."""
    steps: NonNegativeInt = 20
    """Steps at most; the paper has no such bound but its budget."""
    block: PositiveInt = 30
    """Training examples of a block; fewer if there are not enough for all blocks."""
    blocks: PositiveInt = 10
    """Blocks of a race at most."""
    alpha: Probability = 0.2
    """Level of the test by which a prompt is dropped from a race; 0: nobody is dropped."""
    gamma: NonNegativeFloat = 0.05
    """Reward, as a share of its range, that a prompt as long as the longest of the first population loses."""
    shots: NonNegativeInt = 5
    """Demonstrations in a prompt at most; 0 for instructions only."""
    finalists: PositiveInt = 3
    """Prompts measured on validation examples at the end."""


async def capo(
    run: Run, env: Environment, policy: LanguagePolicy, start: Prompt, config: Config
) -> Candidate:
    """Racing evolution of instructions with demonstrations; see the module."""
    wanted = Sizes(config.population, config.crossovers, config.steps, config.block, config.blocks)
    share, size = payable_sizes(run, env, wanted, config.finalists)
    archive = Archive()
    await archive.validate(run, share.env, [Candidate(start)])
    share, firsts = await leave_zero(run, share, archive, start, secrets, k=config.shots)
    seeds = [Combination(start, start), *(Combination.of(start, first) for first in firsts)]
    used = [demo for first in firsts for demo in first.demos]
    rows, pool, left = await split_rows(
        run, env, start, size.block * size.blocks, config.shots, used, share.rollouts
    )
    track = RaceTrack(env, rows, size.block, left, alpha=config.alpha)
    operator = Operator(env, policy, start, config.shots, pool)
    population = seeds + await operator.first(run, size.population - 1)
    longest = max(env.model.count_tokens(one.prompt.text) for one in population)
    for step in range(size.steps + 1):
        if track.left is not None:
            track.left = await payable_in_races(run, share, archive, size.crossovers)
        if not track.affords(size.crossovers if step else 1):
            break
        if step:
            operator = replace(operator, policy=policy.adapt(), sample=2 * step * size.crossovers)
            pairs = random_pairs(run.rng, population, size.crossovers)
            population += await operator.children(run, pairs)
        known = {one.prompt.id: one for one in reversed(population)}
        racers = [Racer(o.prompt, penalty(env, o.prompt, longest, config.gamma)) for o in known.values()]
        ranked = await track.race(run, racers, size.population)
        population = [known[one.racer.prompt.id] for one in ranked] or seeds[:1]
        for combination, one in zip(population, ranked, strict=False):
            archive.add(run, combination.candidate(Score(one.mean, one.rows)))
        await validate_leader(run, share, archive, population[0].candidate())
    return await validate_finalists(run, share, archive, [one.candidate() for one in population])


async def payable_in_races(run: Run, share: SearchPlan, archive: Archive, crossovers: int) -> int:
    """Rollouts that are left for races, beside the new prompts of a step and the validations of the best."""
    purse = await count_purse(run, share.env)
    finalists = sum(one.id not in archive.validated for one in archive.top(share.finalists))
    kept = max(1, finalists) * len(share.env.validation)
    return max(0, int(purse.payable(2 * crossovers)) - kept)


def penalty(env: Environment, prompt: Prompt, longest: int, gamma: float) -> float:
    """The length penalty of a prompt: gamma times its tokens over those of the longest first prompt."""
    return gamma * env.model.count_tokens(prompt.text) / max(1, longest)
