"""EvoPrompt: a population of prompts evolves, and a language model crosses and mutates them.

Guo, Wang, Guo, Li, Song, Tan, Liu, Bian, Yang: Connecting Large Language Models with Evolutionary Algorithms Yields Powerful
Prompt Optimizers. ICLR 2024. arXiv:2309.08532. Algorithms 1 (GA) and 2 (DE).

    P <- N prompts: the start, prompts induced from examples, paraphrases; f <- their scores on a development set
    for t in 1..T:
        GA: N times: draw two parents by roulette; the model crosses them and mutates the result
            P <- the best N of P and the children
        DE: for each p_j of P: draw a and b; the model finds in what a and b differ, mutates these parts,
            combines them with the best prompt c, and crosses the result with p_j
            p_j <- the child, if its score is higher
    return the best of P

Differences from the paper:
1. The result is chosen on validation examples: the leader of each generation and the best few at the end are measured there.
2. Roulette weighs the fitness that survivors are chosen by, above the lowest reward. The reference code weighs another column,
   and stops with an error where all are 0; here such a draw is even.
3. The development set is drawn from the training rows, balanced over targets. No text is scored twice.
4. One text is asked for in a call, by a request in two or four steps without a worked example; the optimizer model is told the
   task and what surrounds the text. Its temperature is that of the run (the paper's is 0.5).
5. A text induced from examples that copies 32 characters in a row from the input of one of them is dropped.
6. If the start prompt has a reward of zero, two prompts more join the population (`whet.search.from_zero`).
7. Within a limit on calls the population shrinks to the root of what is paid for, then examples and generations
   (`whet.search.population`, `whet.search.plan`).

8. `diversity` chooses survivors by the determinant of DvD too (`whet.search.diversity`); the paper has no such choice.

Run it:  whet optimize TASK --method evoprompt --lm openai/NAME --optimizer-lm openai/NAME
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from whet._util.fields import NonNegativeInt, PositiveInt
from whet.environments.environment import Environment
from whet.errors import UsageError, named_fields
from whet.instructions.guard import secrets
from whet.methods.method import MethodEntry
from whet.prompt import Prompt
from whet.rl import LanguagePolicy, in_tags, setting
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.copies import copied_input
from whet.search.diversity import Diversity, Survival
from whet.search.edits import text_in
from whet.search.from_zero import leave_zero
from whet.search.minibatch import head_examples, minibatch, show_example, wanted_answers_known
from whet.search.plan import fit, rounds_of, validate_finalists, validate_leader
from whet.search.population import (
    Individual,
    Parents,
    draw_parents,
    fittest,
    grade_new,
    one_to_one,
    population_size,
)

ENTRY = MethodEntry(
    "evoprompt",
    "EvoPrompt: a model crosses and mutates prompts",
    version=2,
    rank=44,
    when="the reward is only a number, and several wordings each have good parts",
    paper="Guo et al., ICLR 2024",
    arxiv="2309.08532",
    needs=("optimizer",),
)


@named_fields
@dataclass(frozen=True)
class Config:
    """Settings of EvoPrompt."""

    algorithm: Literal["ga", "de"] = "ga"
    """ga: children of two parents, the best of all survive; de: each prompt has a child of its own to beat."""
    population: PositiveInt = 10
    """Prompts of a generation (N)."""
    steps: NonNegativeInt = 10
    """Generations after the first one (T)."""
    examples: PositiveInt = 100
    """Training examples that each prompt is scored on, the paper's development set."""
    parents: Parents = "roulette"
    """The selection of the two parents of a child in ga: roulette, tournament (of two) or random."""
    donor: Literal["best", "random"] = "best"
    """The prompt with which the mutated parts are combined in de (c)."""
    induced: NonNegativeInt = 5
    """Training examples from which every second prompt of the first generation is induced; with 0 all are paraphrases."""
    diversity: Diversity = "none"
    """The selection of survivors in ga: by fitness (none); with half of the weight on the determinant of the members' rewards
    by row (half); or with a weight of 0 or one half that a bandit chooses (DvD)."""
    finalists: PositiveInt = 3
    """Prompts measured on validation examples at the end."""


async def evoprompt(
    run: Run, env: Environment, policy: LanguagePolicy, start: Prompt, config: Config
) -> Candidate:
    """Evolution with a language model as the operator; see the module."""
    size = population_size(run, env, config.population)
    plan = fit(run, env, config.steps + 1, size, config.examples, finalists=config.finalists)
    archive = Archive()
    await archive.validate(run, plan.env, [Candidate(start)])
    rows = minibatch(run.rng, env.train, plan.examples, balanced=True)
    population = await grade_new(run, env, archive, [Individual(Candidate(start), None)], rows)
    plan, firsts = await leave_zero(run, plan, archive, start, secrets, rows)
    population += [Individual(first.candidate, None, first.candidate.mean) for first in firsts]
    operator = _Operator(env, policy, start, config)
    survival = Survival(config.diversity, env.reward.high - env.reward.low)
    async for step, width in rounds_of(run, plan, archive):
        if step == 0:
            written = await run.map(operator.first, range(width))
            population += await grade_new(run, env, archive, [one for one in written if one], rows)
            population = fittest(population, plan.width)
            continue
        operator = _Operator(env, policy.adapt(), start, config, step * plan.width)
        written = await operator.breed(run, population, width)
        children = await grade_new(run, env, archive, [one for one in written if one], rows)
        if config.algorithm == "de":
            new = {child.candidate.id: child for child in children}
            own = [new.pop(one.candidate.id, None) if one else None for one in written]
            population = one_to_one(population, [*own, *[None] * (len(population) - len(own))])
        else:
            population = survival.choose(run, population, children, plan.width)
        await validate_leader(run, plan, archive, fittest(population, 1)[0].candidate)
    return await validate_finalists(run, plan, archive, archive.top(config.finalists))


def check(env: Environment, config: Config) -> None:
    """Refuse diversity where each child has its own parent to beat."""
    if config.diversity != "none" and config.algorithm == "de":
        raise UsageError(
            f"diversity={config.diversity} chooses survivors out of all parents and children, and algorithm=de compares "
            "each child with its parent. Take algorithm=ga."
        )


@dataclass(frozen=True)
class _Operator:
    """The language model as the operator of one generation. `sample` numbers its requests, so that none repeats another's."""

    env: Environment
    policy: LanguagePolicy
    start: Prompt
    config: Config
    sample: int = 0

    async def breed(
        self, run: Run, population: Sequence[Individual[None]], width: int
    ) -> list[Individual[None] | None]:
        """The children of a generation in order, None where a reply was of no use; in de one for each of the population, up to
        the `width`."""
        places = range(min(len(population), width) if self.config.algorithm == "de" else width)
        return await run.map(self.child, [(place, self.team(run, population, place)) for place in places])

    def team(self, run: Run, population: Sequence[Individual[None]], place: int) -> list[Prompt]:
        """The prompts that a child is made of: two parents, or a, b, c and the one in that place of the population."""
        if self.config.algorithm == "ga":
            rule, low = self.config.parents, self.env.reward.low
            first = draw_parents(run.rng, population, 1, rule, low)
            others = [member for member in population if member not in first] or first
            members = [*first, *draw_parents(run.rng, others, 1, rule, low)]
        else:
            own = population[place]
            others = [member for member in population if member != own] or [own]
            a, b = (run.rng.sample(others, min(2, len(others))) * 2)[:2]
            donor = fittest(population, 1)[0] if self.config.donor == "best" else run.rng.choice(population)
            members = [a, b, donor, own]
        return [member.candidate.prompt for member in members]

    async def child(self, run: Run, job: tuple[int, Sequence[Prompt]]) -> Individual[None] | None:
        """The child that the model makes of a team; None where the reply is of no use."""
        place, team = job
        texts = [text_in(self.start, prompt) for prompt in team]
        shown = [f"Instruction {name}:\n{in_tags(text)}" for name, text in zip("ABCD", texts, strict=False)]
        request = CROSS if self.config.algorithm == "ga" else DIFFER
        made = tuple(dict.fromkeys(prompt.id for prompt in team)), self.config.algorithm
        return await self._write_child(run, shown, request, place, texts[-1], made)

    async def first(self, run: Run, place: int) -> Individual[None] | None:
        """A prompt of the first generation: a paraphrase of the start, or one induced from examples, by turns."""
        text, parents = text_in(self.start, self.start), (self.start.id,)
        if place % 2 == 0 or not self.config.induced:
            return await self._write_child(
                run, [in_tags(text)], PARAPHRASE, place, text, (parents, "paraphrase")
            )
        examples = minibatch(run.rng, self.env.train, self.config.induced, balanced=True)
        shown = [head_examples(examples), *map(show_example, examples)]
        request = INDUCE if wanted_answers_known(examples) else INDUCE_UNANSWERED
        child = await self._write_child(run, shown, request, place, text, (parents, "induced"))
        new = "" if child is None else text_in(self.start, child.candidate.prompt)
        return None if copied_input(new, self.env.train, self.start.source) else child

    async def _write_child(
        self,
        run: Run,
        shown: Sequence[str],
        request: str,
        place: int,
        text: str,
        made: tuple[tuple[str, ...], str],
    ) -> Individual[None] | None:
        about = f"{PURPOSE}\n\n{setting(self.env.description, self.start)}".strip()
        question = "\n\n".join([about, *shown, request])
        sample = self.sample + place
        prompts = await self.policy.rewrite(run, self.start, question, sample=sample, text=text)
        return next((Individual(Candidate(prompt, *made), None) for prompt in prompts), None)


PURPOSE = "You write instructions for a language model."
INDUCE = (
    "Write an instruction that makes the model give these answers. It must work for any input of this kind, not only for those "
    "above."
)
INDUCE_UNANSWERED = (
    "Write an instruction with which the model answers any input of this kind well, not only those above."
)
PARAPHRASE = "Write the same instruction in other words. Do not change what it asks for."
CROSS = (
    "Do this in two steps. Step 1: combine instructions A and B into one that takes parts of both. Step 2: change some words of "
    "the combined instruction, without changing what it is for."
)
DIFFER = (
    "Do this in four steps. Step 1: find the parts in which instructions A and B differ. Step 2: change the words of these "
    "parts. Step 3: put the changed parts into instruction C, in the place of what they correspond to. Step 4: combine the "
    "result with instruction D into one instruction that takes parts of both."
)
