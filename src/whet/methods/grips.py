"""GrIPS: gradient-free search by deleting, swapping, substituting and re-adding phrases.

Prasad, Hase, Zhou, Bansal: GrIPS: Gradient-free, Edit-based Instruction Search for Prompting Large
Language Models. EACL 2023. arXiv:2203.07281. Algorithm 1.

    base <- start; D <- nothing deleted yet
    for i in 1..iterations:
        make `candidates` texts, each by `chain` random edits of the base
            (delete, swap, substitute a phrase; add one of D, when there is any)
        best <- the candidate with the highest score
        if score(best) > score(base):  base <- best; D gains what best lost and loses what it added
        else stop after `patience` rounds without a gain; with annealing, accept a worse one
             with probability exp((score(best) - score(base)) / T), T = 10 exp(-i / 5)
    return the base

    score = 100 x balanced accuracy + `entropy` x entropy of the predicted labels (nats)   for label tasks
            mean reward on a scale from 0 to 100                                            for others

Differences from the paper:
1. Phrases are clauses cut to at most four words, found by punctuation (or words, or sentences): no parser.
2. A substitute comes from the optimizer model (five wordings, one is taken at random) instead of a paraphrasing
   model. Without an optimizer model nothing is substituted.
3. Edits work by position. The reference code replaces text by search, which changes every place
   that reads the same. Slots are never inside a phrase, so that no edit can lose one.
4. Balanced accuracy is not rounded. An answer without a label is wrong and does not enter the entropy.
5. Equal texts are scored once. The result is chosen on validation examples among the start and the bases.
6. From a start that earns nothing the first base is a prompt that earns something, had without a model
   (`whet.search.from_zero`).
7. Within a limit on calls all sizes are cut to what the limit pays (`whet.search.plan`).

Run it:  whet optimize TASK --method grips --lm openai/NAME
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from whet._util.fields import NonNegativeFloat, NonNegativeInt, PositiveInt
from whet.environments.environment import Environment
from whet.errors import named_fields
from whet.instructions.guard import secrets
from whet.methods.method import MethodEntry
from whet.prompt import Prompt
from whet.rl import LanguagePolicy
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.edits import Level, replace_region, text_in
from whet.search.from_zero import leave_zero
from whet.search.minibatch import minibatch
from whet.search.phrase_search import balanced_score, edit_chains, remember
from whet.search.plan import fit, validate_finalists, validate_leader
from whet.types import Example, mean_score

ENTRY = MethodEntry(
    "grips",
    "GrIPS: phrase edits without a model",
    version=2,
    rank=120,
    when="a long prompt has grown over time, and part of it does harm",
    paper="Prasad et al., EACL 2023",
    arxiv="2203.07281",
    needs=("optimizer_optional",),
)


@named_fields
@dataclass(frozen=True)
class Config:
    """Settings of GrIPS."""

    iterations: NonNegativeInt = 10
    """Rounds (n)."""
    candidates: PositiveInt = 5
    """Texts tried in a round (m)."""
    chain: PositiveInt = 1
    """Edits made one after another for each text (l)."""
    patience: PositiveInt = 2
    """The search stops when this many rounds in a row bring no gain (P)."""
    examples: PositiveInt = 100
    """Training examples that a text is scored on, balanced over targets (|S|)."""
    entropy: NonNegativeFloat = 10.0
    """Weight of the entropy of predicted labels."""
    level: Level = "phrase"
    """Unit of an edit: word, phrase or sentence."""
    annealing: bool = False
    """Accept a worse text now and then."""
    finalists: PositiveInt = 3
    """Texts measured on validation examples at the end."""


async def grips(
    run: Run, env: Environment, policy: LanguagePolicy | None, start: Prompt, config: Config
) -> Candidate:
    """Greedy search over phrase edits; see the module."""
    rephrase = None if policy is None else policy.rephrase
    asks = 0.0 if rephrase is None else config.chain / 3
    plan = fit(
        run, env, config.iterations, config.candidates, config.examples, finalists=config.finalists, asks=asks
    )
    archive, base = Archive(), Candidate(start)
    await archive.validate(run, plan.env, [base])
    examples = minibatch(run.rng, env.train, plan.examples, balanced=True)
    bases, objective = [base], await grade(run, env, archive, [base], examples, config.entropy)
    plan, firsts = await leave_zero(run, plan, archive, start, secrets, examples)
    for seed in firsts[:1]:
        base, rows = seed.candidate, {row.id: row for row in examples}
        tried_on = [rows[rollout.example_id] for rollout in seed.rollouts]
        objective[base.prompt.id] = balanced_score(env, tried_on, seed.rollouts, config.entropy)
        bases.append(base)
    deleted, waited = tuple[str, ...](), 0
    for i in range(1, plan.rounds + 1):
        text, first = text_in(start, base.prompt), i * plan.width
        numbers = range(first, first + plan.width)
        chains = await edit_chains(run, rephrase, text, deleted, numbers, config.chain, config.level)
        tried = {
            p.id: (p, chain) for chain in chains if chain and (p := replace_region(start, chain[-1].text))
        }
        tried.pop(base.prompt.id, None)
        new = [
            Candidate(p, (base.prompt.id,), chain[-1].kind) for p, chain in tried.values() if p not in archive
        ]
        objective |= await grade(run, env, archive, new, examples, config.entropy)
        best = max(tried, key=objective.__getitem__, default=base.prompt.id)
        gain = objective[best] - objective[base.prompt.id]
        waited = 0 if gain > 0 else waited + 1
        heat = 10 * math.exp(-i / 5) if config.annealing else 0.0
        accepted = gain > 0 or (heat > 0 and run.rng.random() < math.exp(gain / heat))
        if accepted and best in tried:
            base, deleted = archive.members[best], remember(deleted, tried[best][1])
            bases.append(base)
            await validate_leader(run, plan, archive, base)
        elif waited >= config.patience:
            break
    bases.sort(key=lambda c: -objective[c.prompt.id])
    return await validate_finalists(run, plan, archive, bases)


async def grade(
    run: Run,
    env: Environment,
    archive: Archive,
    new: Sequence[Candidate],
    examples: Sequence[Example],
    entropy: float,
) -> dict[str, float]:
    """The paper's score of each candidate, by prompt id; the candidates enter the archive."""
    evaluated = await run.map(lambda branch, c: env.evaluate(branch, c.prompt, examples), new)
    for candidate, rollouts in zip(new, evaluated, strict=True):
        archive.add(run, replace(candidate, score=mean_score(rollouts)))
    return {
        c.prompt.id: balanced_score(env, examples, r, entropy) for c, r in zip(new, evaluated, strict=True)
    }
