"""Bootstrap: demonstrations only. The cheap control for everything that also writes instructions.

The demonstrations of DSPy (Khattab et al., ICLR 2024, arXiv:2310.03714), as in its BootstrapFewShotWithRandomSearch.

    roll out the start on training rows; a rollout at the full reward is a demonstration
    draw sets: the first few in order, targets as answers, then random ones of random size and order
    score all sets on training rows that are in none of them, all at once
    validate the best few, return the best of these

Differences from DSPy:
1. Sets are compared on training rows that no set shows, and the result is chosen on validation rows among the best few and
   the start. DSPy scores every set on the whole validation set and takes the luckiest.
2. A demonstration is refused if it shares its input, or 32 characters that no other training row has, with a validation
   row; if it holds a secret or a person's data; if it holds a slot or a fence marker.
3. With `k` of 0 nothing is shown (DSPy issue 8508 shows some).
4. Demonstrations are text in the region `demonstrations`, or behind the text of the first region; DSPy makes turns of a
   conversation of them.
5. Under a limit on calls, sets and rows are reduced to fit (`whet.search.plan`).

Run it:  whet optimize TASK --method bootstrap --lm openai/NAME
"""

from __future__ import annotations

from dataclasses import dataclass

from whet._util.fields import NonNegativeInt, PositiveInt, Probability
from whet.environments.environment import Environment
from whet.errors import named_fields
from whet.instructions.guard import secrets
from whet.methods.method import MethodEntry
from whet.prompt import Prompt
from whet.rl import LanguagePolicy
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.demonstrations import demonstrations, label_rows, random_set, with_demonstrations
from whet.search.minibatch import minibatch
from whet.search.plan import fit, validate_finalists
from whet.types import mean_score

ENTRY = MethodEntry(
    "bootstrap",
    "Bootstrap: demonstrations from good answers, the cheap control",
    version=1,
    rank=110,
    when="the form of an answer is easier to show than to describe; a cheap control",
    paper="Khattab et al., ICLR 2024",
    arxiv="2310.03714",
    edits_all=True,
)


@named_fields
@dataclass(frozen=True)
class Config:
    """Settings of bootstrap."""

    sets: PositiveInt = 16
    """Sets of demonstrations to score."""
    k: NonNegativeInt = 4
    """Demonstrations in a set at most."""
    threshold: Probability = 1.0
    """A rollout is a demonstration from this share of the reward's range on."""
    examples: PositiveInt = 50
    """Training examples that each set is scored on; as many again are rolled out twice over to find demonstrations."""
    finalists: PositiveInt = 3
    """Sets measured on validation examples at the end."""


async def bootstrap(
    run: Run, env: Environment, policy: LanguagePolicy | None, start: Prompt, config: Config
) -> Candidate:
    """The best of random sets of demonstrations; see the module."""
    scored = min(config.examples, max(1, len(env.train) // (1 + POOL)))
    width = config.sets + POOL
    plan = fit(run, env, 1, width, scored, finalists=config.finalists, asks=0, least=POOL + 1)
    archive = Archive()
    await archive.validate(run, plan.env, [Candidate(start)])
    rows = minibatch(run.rng, env.train, len(env.train), balanced=bool(env.labels))
    held, shown = rows[: plan.examples], rows[plan.examples : (1 + POOL) * plan.examples]
    if plan.rounds == 0 or config.k == 0 or not shown:
        return await validate_finalists(run, plan, archive, [])
    tried = await run.map(lambda branch, part: env.evaluate(branch, start, part), [held, shown])
    archive.add(run, Candidate(start, score=mean_score(tried[0])))
    pool = demonstrations(env, start, tried[1], config.threshold, secrets)
    targets = [demo for demo in label_rows(env, start, shown) if not secrets(demo.text)]
    drawn = [pool[: config.k], targets[: config.k]]
    drawn += [random_set(run.rng, pool, config.k) for _ in range(config.sets) if pool]
    prompts = {p.id: p for demos in drawn if (p := with_demonstrations(start, demos)) and p not in archive}
    new = list(prompts.values())[: min(config.sets, plan.width - POOL)]
    for prompt, score in zip(new, await env.score(run, new, held), strict=True):
        archive.add(run, Candidate(prompt, (start.id,), "demonstrations", score))
    return await validate_finalists(run, plan, archive, archive.top(config.finalists))


POOL = 2
