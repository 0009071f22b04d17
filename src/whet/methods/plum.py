"""Plum: six metaheuristics over phrase edits, without a model that writes.

Pan, Xing, Diao, Sun, Liu, Shum, Pi, Zhang, Zhang: Plum: Prompt Learning using Metaheuristic. Findings of ACL 2024.
arXiv:2311.08364.

    W <- {start}; best <- start
    for i in 1..iterations:
        make `candidates` texts, each by `chain` random edits (delete, swap, substitute a phrase; put a deleted one back) of
            hc, sa, ts: the current text                  ga_m: the winner of a tournament of all kept so far
            ga_c: a one-point crossover of two winners    hs: a text put together from segments of random texts of W
        b <- the best of them
        hc: move to b if it is better; sa: or with probability exp((s_b - s) / T_i), T_i = 10 exp(-i / 5)
        ts: move to the best that is not among the last texts moved to (those by a coin)
        ga_m: W <- W and b;  ga_c, hs: W <- the best of W and the new ones
        stop after `patience` rounds without a new best
    return the best

    score = 100 x balanced accuracy + `entropy` x entropy of the predicted labels (nats)   for label tasks
            mean reward on a scale from 0 to 100                                            for others

Differences from the paper and its code:
1. Phrases are clauses cut to at most four words, found by punctuation (or words, or sentences): no parser. Edits work by
   position. Substitutes come from the optimizer model instead of a paraphrasing model, and without one there are none.
2. Every text has its own list of deleted phrases; the code keeps one for the crossover only.
3. ts moves to the best text that is allowed, better or not, as tabu search does. Moving only to a better one, it would never
   meet a text of the list.
4. ga_c crosses, then mutates by chance, and scores the result once; the code scores before and after the mutation.
5. Equal texts are scored once. The result is chosen on validation examples among the start and the best texts on the way.
6. From a start that earns nothing the search begins at a prompt that earns something, had without a model
   (`whet.search.from_zero`).
7. Within a limit on calls all sizes are cut to what the limit pays (`whet.search.plan`).

Run it:  whet optimize TASK --method plum --lm openai/NAME --set strategy=ga_m
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from whet._util.fields import NonNegativeFloat, NonNegativeInt, PositiveInt, Probability
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
from whet.search.phrase_search import (
    Rephrase,
    balanced_score,
    crossed_texts,
    edit_chains,
    join_pieces,
    remember,
    segments,
)
from whet.search.plan import fit, validate_finalists, validate_leader
from whet.search.population import Individual, fittest, population_size, tournament
from whet.types import Example, Rollout, mean_score

ENTRY = MethodEntry(
    "plum",
    "Plum: metaheuristics over phrase edits",
    version=1,
    rank=122,
    when="as for grips, if a greedy search gets stuck",
    paper="Pan et al., ACL Findings 2024",
    arxiv="2311.08364",
    needs=("optimizer_optional",),
)

Edited = Individual[tuple[str, ...]]
"""A text with the phrases that were deleted on the way to it."""


@named_fields
@dataclass(frozen=True)
class Config:
    """Settings of Plum."""

    strategy: Literal["hc", "sa", "ga_m", "ga_c", "ts", "hs"] = "ga_m"
    """hill climbing, simulated annealing, genetic algorithm with mutation only or with crossover, tabu or harmony search."""
    iterations: NonNegativeInt = 50
    """Rounds."""
    candidates: PositiveInt = 10
    """Texts tried in a round (m)."""
    chain: PositiveInt = 1
    """Edits made one after another for each text (l)."""
    patience: PositiveInt = 7
    """The search stops when this many rounds in a row bring no new best (P)."""
    tournament: PositiveInt = 5
    """Texts of which the best is a parent in the genetic algorithms (rho)."""
    memory: PositiveInt = 10
    """Texts that survive a round in ga_c and hs (N_p)."""
    rate: Probability = 0.4
    """hs: the rate at which a segment is taken from memory (HMCR); ga_c: the rate at which a child is not mutated."""
    examples: PositiveInt = 100
    """Training examples that a text is scored on, balanced over targets (|S|)."""
    entropy: NonNegativeFloat = 10.0
    """Weight of the entropy of predicted labels."""
    level: Level = "phrase"
    """Unit of an edit: word, phrase or sentence."""
    finalists: PositiveInt = 3
    """Texts measured on validation examples at the end."""


async def plum(
    run: Run, env: Environment, policy: LanguagePolicy | None, start: Prompt, config: Config
) -> Candidate:
    """Metaheuristic search over phrase edits; see the module."""
    asks = 0.0 if policy is None else config.chain / 3 * (SEGMENTS if config.strategy == "hs" else 1)
    rephrase = None if policy is None else policy.rephrase
    width = population_size(run, env, config.candidates, asks)
    plan = fit(run, env, config.iterations, width, config.examples, finalists=config.finalists, asks=asks)
    search = Search(
        env, Archive(), start, config, minibatch(run.rng, env.train, plan.examples, balanced=True)
    )
    await search.archive.validate(run, plan.env, [Candidate(start)])
    pool = await search.grade(run, [Individual(Candidate(start), ())])
    plan, firsts = await leave_zero(run, plan, search.archive, start, secrets, search.rows)
    pool += [search.remember(Individual(first.candidate, ()), first.rollouts) for first in firsts]
    current = best = fittest(pool, 1)[0]
    waited, tabu = 0, list[str]()
    for i in range(1, plan.rounds + 1):
        made = await search.propose(run, rephrase, current, pool, range(i * plan.width, (i + 1) * plan.width))
        new = fittest(await search.grade(run, made), len(made))
        if config.strategy == "ts":
            allowed = [one for one in new if one.candidate.id not in tabu or run.rng.random() < TABU_ALLOWED]
            current = (allowed or [current])[0]
            tabu = [*tabu, current.candidate.id][-TABU:]
        elif new:
            heat = FIRST_HEAT * math.exp(-i / COOLING) if config.strategy == "sa" else 0.0
            gain = new[0].fitness - current.fitness
            if gain > 0 or (heat > 0 and run.rng.random() < math.exp(gain / heat)):
                current = new[0]
        pool = [*pool, *new[:1]] if config.strategy == "ga_m" else fittest([*pool, *new], config.memory)
        waited = 0 if new and new[0].fitness > best.fitness else waited + 1
        best = fittest([best, *new], 1)[0]
        await validate_leader(run, plan, search.archive, best.candidate)
        if waited >= config.patience:
            break
    return await validate_finalists(
        run,
        plan,
        search.archive,
        [one.candidate for one in fittest(list(search.scored.values()), config.finalists)],
    )


@dataclass
class Search:
    """The texts that were scored, with their fitness by prompt id."""

    env: Environment
    archive: Archive
    start: Prompt
    config: Config
    rows: Sequence[Example]
    scored: dict[str, Edited] = field(default_factory=dict)

    async def propose(
        self,
        run: Run,
        rephrase: Rephrase | None,
        current: Edited,
        pool: Sequence[Edited],
        numbers: Sequence[int],
    ) -> list[Edited]:
        """New texts by the strategy, without those that the prompt refuses. The numbers tell the requests apart."""
        make = self.play if self.config.strategy == "hs" else partial(self.vary, current)
        made = await run.map(lambda branch, number: make(branch, rephrase, pool, number), numbers)
        return list({one.candidate.id: one for one in made if one}.values())

    async def vary(
        self, current: Edited, run: Run, rephrase: Rephrase | None, pool: Sequence[Edited], number: int
    ) -> Edited | None:
        """A neighbour of the current text or of a parent, or a child of two parents."""
        config, rng, first, second = self.config, run.rng, current, current
        if config.strategy in ("ga_m", "ga_c"):
            first, second = (tournament(rng, pool, config.tournament) for _ in range(2))
        text, deleted, length = self.text(first), first.genome, config.chain
        if config.strategy == "ga_c":
            text = crossed_texts(rng, text, self.text(second), config.level)
            deleted = tuple(dict.fromkeys(first.genome + second.genome))
            if first != second and rng.random() < config.rate:
                length = 0
        chain = (await edit_chains(run, rephrase, text, deleted, [number], length, config.level))[0]
        text = chain[-1].text if chain else text
        return self.make_candidate(text, remember(deleted, chain), (first, second))

    async def play(
        self, run: Run, rephrase: Rephrase | None, pool: Sequence[Edited], number: int
    ) -> Edited | None:
        """A text of segments, each as a random text of the memory has it, or edited."""
        pieces, deleted, parents = list[str](), tuple[str, ...](), list[Edited]()
        for place in range(SEGMENTS):
            member = run.rng.choice(list(pool))
            remembered = segments(self.text(member), SEGMENTS, self.config.level)[place : place + 1]
            chance = ADJUSTED if run.rng.random() < self.config.rate else 1.0
            length = self.config.chain if run.rng.random() < chance else 0
            for piece in remembered:
                numbers = [number * SEGMENTS + place]
                chain = (
                    await edit_chains(run, rephrase, piece, member.genome, numbers, length, self.config.level)
                )[0]
                pieces.append(chain[-1].text if chain else piece)
                deleted = tuple(dict.fromkeys([*deleted, *remember(member.genome, chain)]))
                parents.append(member)
        return self.make_candidate(join_pieces(pieces), deleted, parents)

    def make_candidate(self, text: str, deleted: tuple[str, ...], parents: Sequence[Edited]) -> Edited | None:
        """A text as a candidate; None where the prompt refuses it."""
        prompt, ids = replace_region(self.start, text), (parent.candidate.id for parent in parents)
        candidate = prompt and Candidate(prompt, tuple(dict.fromkeys(ids)), self.config.strategy)
        return Individual(candidate, deleted) if candidate else None

    def text(self, one: Edited) -> str:
        """The editable text of a candidate."""
        return text_in(self.start, one.candidate.prompt)

    async def grade(self, run: Run, made: Sequence[Edited]) -> list[Edited]:
        """Texts with their fitness; those that were scored before are not scored again."""
        new = [one for one in made if one.candidate.id not in self.scored]
        prompts = [one.candidate.prompt for one in new]
        evaluated = await run.map(
            lambda branch, prompt: self.env.evaluate(branch, prompt, self.rows), prompts
        )
        for one, rollouts in zip(new, evaluated, strict=True):
            scored = self.remember(one, rollouts)
            self.archive.add(run, scored.candidate)
        return [self.scored[one.candidate.id] for one in made]

    def remember(self, one: Edited, rollouts: Sequence[Rollout]) -> Edited:
        """A text with the fitness that its rollouts give it, from now on known."""
        rows = {row.id: row for row in self.rows}
        answered = [rows[rollout.example_id] for rollout in rollouts]
        fitness = balanced_score(self.env, answered, rollouts, self.config.entropy)
        candidate = replace(one.candidate, score=mean_score(rollouts))
        self.scored[candidate.id] = Individual(candidate, one.genome, fitness)
        return self.scored[candidate.id]


TABU, TABU_ALLOWED = 5, 0.5
FIRST_HEAT, COOLING = 10.0, 5.0
SEGMENTS, ADJUSTED = 5, 0.5
