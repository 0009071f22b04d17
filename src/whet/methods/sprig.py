"""SPRIG: a system prompt is put together from components, and what each component earns is remembered.

Zhang, Ergen, Logeswaran, Lee, Jurgens: SPRIG: Improving Large Language Model Performance by System Prompt Optimization. 2024.
arXiv:2410.14826.

    beam <- {start};  pool <- components of several kinds
    for round in 1..rounds:
        draw questions of each task
        for each prompt of the beam: add a component (those with the highest upper confidence bound of their gain, anywhere),
            delete one, swap two, put a paraphrase in the place of one
        score all on these questions, the mean over tasks of the mean reward
        of each add and delete: note the component's gain (a paraphrase's for the component that it came from)
        beam <- the best `beam`
    return the best of the beam

Differences from the paper and its code:
1. The components are written by the optimizer model, kind by kind, for the task at hand; the paper has 306 that others wrote. The
   sentences of the start are components too.
2. The prompts of the beam are scored with the new ones and stay if they are better; the code keeps the new ones only. A gain is
   that of two prompts on the same rows; the code compares rounds with different questions.
3. Of the edits `candidates` are tried in a round, drawn by kind: half add, a quarter delete or swap, a quarter paraphrase.
4. Several tasks are rows of one task folder: `task` names the column that tells them apart, and each counts alike.
5. The result is chosen on validation examples among the start, the leaders of rounds and the last beam.
6. If the start prompt has a reward of zero, two prompts more join the beam (`whet.search.from_zero`).
7. Within a limit on calls rounds, candidates and examples are cut to what the limit pays (`whet.search.plan`).

Run it:  whet optimize TASK --method sprig --lm openai/NAME --optimizer-lm openai/NAME --set task=COLUMN
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Literal

from whet._util.fields import NonNegativeInt, PositiveInt
from whet.environments.environment import Environment
from whet.errors import named_fields
from whet.instructions.guard import secrets
from whet.methods.method import MethodEntry
from whet.prompt import Prompt
from whet.rl import LanguagePolicy, setting
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.copies import copied_input
from whet.search.edits import replace_region, text_in
from whet.search.from_zero import leave_zero
from whet.search.minibatch import minibatch
from whet.search.phrase_search import join_pieces, segments
from whet.search.plan import fit, validate_finalists, validate_leader
from whet.search.population import Individual, fittest, population_size
from whet.types import Example, Rollout, mean_score

ENTRY = MethodEntry(
    "sprig",
    "SPRIG: a system prompt from components",
    version=1,
    rank=124,
    when="one system prompt serves several tasks",
    paper="Zhang et al., 2024",
    arxiv="2410.14826",
    needs=("optimizer",),
)

Components = tuple[str, ...]


@named_fields
@dataclass(frozen=True)
class Config:
    """Settings of SPRIG."""

    rounds: NonNegativeInt = 25
    """Rounds of edits."""
    beam: PositiveInt = 10
    """Prompts that survive a round."""
    candidates: PositiveInt = 40
    """Edited prompts of a round."""
    examples: PositiveInt = 25
    """Training examples of a round, drawn again in each round and balanced over targets."""
    task: str = ""
    """The column that names the task of a row; each task has the same weight. Empty: all rows are one task."""
    choice: Literal["ucb", "random"] = "ucb"
    """The choice of added components: by the upper confidence bound of their gain, or at random."""
    finalists: PositiveInt = 3
    """Prompts measured on validation examples at the end."""


async def sprig(
    run: Run, env: Environment, policy: LanguagePolicy, start: Prompt, config: Config
) -> Candidate:
    """Search over components of a system prompt; see the module."""
    width = population_size(run, env, config.beam + config.candidates, ASKS, least=4)
    plan = fit(
        run, env, config.rounds, width, config.examples, finalists=config.finalists, asks=ASKS, least=3
    )
    beam_width = max(1, min(config.beam, plan.width // 3))
    archive = Archive()
    await archive.validate(run, plan.env, [Candidate(start)])
    plan, firsts = await leave_zero(run, plan, archive, start, secrets)
    requests = len(KINDS) if plan.asks is None else min(len(KINDS), plan.asks // 2)
    search = ComponentPool(env, policy, start, config)
    await search.write(run, requests if plan.rounds else 0)
    text = text_in(start, start)
    beam = [Individual(Candidate(start), tuple(segments(text, len(text), "sentence")))]
    beam += [Individual(first.candidate, (text_in(start, first.candidate.prompt),)) for first in firsts]
    for number in range(plan.rounds):
        rows = minibatch(run.rng, env.train, plan.examples, balanced=True)
        search.policy, search.sample = policy.adapt(), (number + 1) * plan.width
        edits = await search.edits(run, beam, plan.width - beam_width)
        prompts = {one.candidate.id: one for one in [*beam, *(edit.child for edit in edits)]}
        scored = await search.score(run, archive, list(prompts.values()), rows)
        search.learn(edits, {one.candidate.id: one.fitness for one in scored})
        beam = fittest(scored, beam_width)
        await validate_leader(run, plan, archive, beam[0].candidate)
    return await validate_finalists(run, plan, archive, [one.candidate for one in beam])


@dataclass(frozen=True)
class ComponentEdit:
    """An edited prompt. `source`: the component that was added (`sign` 1), deleted (-1) or replaced by `wording`."""

    child: Individual[Components]
    parent: str
    source: str = ""
    sign: int = 0
    wording: str = ""


@dataclass
class ComponentPool:
    """The components, with their gains, and of each paraphrase the component that it came from. `sample` numbers requests."""

    env: Environment
    policy: LanguagePolicy
    start: Prompt
    config: Config
    sample: int = 0
    gains: dict[str, list[float]] = field(default_factory=dict)
    origin: dict[str, str] = field(default_factory=dict)

    async def write(self, run: Run, requests: int) -> None:
        """Have the model write components of as many kinds."""
        about = f"{PURPOSE}\n\n{setting(self.env.description, self.start)}".strip()

        async def some(branch: Run, place: int) -> list[str]:
            question = f"{about}\n\n{REQUEST} {KINDS[place]}"
            return await self.policy.write(branch, question, "SENTENCE", sample=place, many=True)

        for texts in await run.map(some, range(requests)):
            for text in texts:
                if not copied_input(text, self.env.train, self.start.source) and not secrets(text):
                    self.gains.setdefault(text, [])

    def promising(self, run: Run) -> list[str]:
        """The components by upper confidence bound: mean gain + sqrt(2 ln N / n); those never tried first, in random order."""
        order = run.rng.sample(list(self.gains), len(self.gains))
        if self.config.choice == "random":
            return order
        tries = max(1, sum(map(len, self.gains.values())))

        def upper_bound(component: str) -> float:
            known = self.gains[component]
            return fmean(known) + math.sqrt(2 * math.log(tries) / len(known)) if known else math.inf

        return sorted(order, key=upper_bound, reverse=True)

    async def edits(
        self, run: Run, beam: Sequence[Individual[Components]], number: int
    ) -> list[ComponentEdit]:
        """Edits of the prompts of the beam by turns; those that the prompt refuses are left out."""
        order = self.promising(run)
        jobs = [
            (place, beam[place % len(beam)], order[place % len(order)] if order else "")
            for place in range(number)
        ]
        made = await run.map(self.edit, jobs)
        return [edit for edit in made if edit is not None]

    async def edit(self, run: Run, job: tuple[int, Individual[Components], str]) -> ComponentEdit | None:
        """One edit: by its place in the round an addition (half), a deletion or a swap, a paraphrase."""
        place, parent, component = job
        parts, rng, kind = list(parent.genome), run.rng, place % 4
        if component and (kind in (0, 1) or len(parts) < 2):
            parts.insert(rng.randint(0, len(parts)), component)
            return self.make_edit(parent, parts, "add", self.origin.get(component, component), 1)
        if kind == 2 and len(parts) > 1:
            first, second = rng.sample(range(len(parts)), 2)
            if rng.random() < 0.5:
                parts[first], parts[second] = parts[second], parts[first]
                return self.make_edit(parent, parts, "swap")
            gone = parts.pop(first)
            return self.make_edit(parent, parts, "delete", self.origin.get(gone, gone), -1)
        chosen = rng.randrange(len(parts))
        wordings = await self.policy.rephrase(
            run, join_pieces(parts), parts[chosen], sample=self.sample + place
        )
        if not wordings:
            return None
        old, parts[chosen] = parts[chosen], wordings[0]
        edit = self.make_edit(parent, parts, "substitute", self.origin.get(old, old))
        return None if edit is None else replace(edit, wording=wordings[0])

    def make_edit(
        self,
        parent: Individual[Components],
        parts: Sequence[str],
        operator: str,
        source: str = "",
        sign: int = 0,
    ) -> ComponentEdit | None:
        """An edit as a candidate; None where the prompt refuses it."""
        prompt = replace_region(self.start, join_pieces(parts))
        if prompt is None:
            return None
        candidate = Candidate(prompt, (parent.candidate.id,), operator)
        return ComponentEdit(Individual(candidate, tuple(parts)), parent.candidate.id, source, sign)

    async def score(
        self,
        run: Run,
        archive: Archive,
        members: Sequence[Individual[Components]],
        rows: Sequence[Example],
    ) -> list[Individual[Components]]:
        """Prompts with their fitness on the rows of a round; they enter the archive."""
        prompts = [one.candidate.prompt for one in members]
        evaluated = await run.map(lambda branch, prompt: self.env.evaluate(branch, prompt, rows), prompts)
        scored = []
        for one, rollouts in zip(members, evaluated, strict=True):
            candidate = replace(one.candidate, score=mean_score(rollouts))
            archive.add(run, candidate)
            scored.append(Individual(candidate, one.genome, over_tasks(rows, rollouts, self.config.task)))
        return scored

    def learn(self, edits: Sequence[ComponentEdit], fitness: Mapping[str, float]) -> None:
        """Note what adding and deleting components earned; a wording's gains are those of the component it came from."""
        for edit in edits:
            if edit.wording:
                self.origin.setdefault(edit.wording, edit.source)
            if edit.sign:
                gain = edit.sign * (fitness[edit.child.candidate.id] - fitness[edit.parent])
                self.gains.setdefault(edit.source, []).append(gain)


def over_tasks(rows: Sequence[Example], rollouts: Sequence[Rollout], column: str) -> float:
    """The mean over tasks of the mean reward; `column` says to which task a row belongs."""
    tasks: dict[str, list[Rollout]] = {}
    for row, rollout in zip(rows, rollouts, strict=True):
        tasks.setdefault(str(row.row.get(column, "")) if column else "", []).append(rollout)
    return fmean(mean_score(own).mean for own in tasks.values())


ASKS = 0.5
PURPOSE = "You write sentences for the system prompt of a language model."
REQUEST = "Write six different sentences that could stand in it, each useful for many inputs. They should"
KINDS = (
    "say what a good answer is like.",
    "give the model a role.",
    "say in which style it answers.",
    "tell it how to work towards an answer.",
    "say what depends on the answer.",
    "say how it behaves where it is not sure.",
    "describe the situation in which it is asked.",
    "say what an answer must not contain.",
    "say in which form the answer stands.",
)
