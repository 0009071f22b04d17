"""MIPRO: instructions and demonstrations are chosen together, by a surrogate that learns from noisy minibatches.

Opsahl-Ong, Ryan, Purtell, Broman, Potts, Zaharia, Khattab: Optimizing Instructions and Demonstrations for Multi-Stage Language
Model Programs. EMNLP 2024. arXiv:2406.11695. MIPROv2 as in DSPy.

    bootstrap sets of demonstrations: none, the first in order, targets as answers, random ones
    write `instructions` - 1 texts for each region, from a summary of the data, demonstrations, and a tip in turn
    observe the start on a minibatch
    for trial in 1..trials:
        choose a text for each region and a set by TPE; observe the prompt on a minibatch
        every `full` trials validate the prompt with the best mean that is not yet validated
    return the best that was validated

Differences from MIPROv2:
1. The surrogate sees each combination once, with the mean of all its rows, validation included, drawn towards the mean of all
   by a minibatch's weight. DSPy feeds a minibatch and a full evaluation as equally precise trials.
2. Minibatches are training rows that no set shows. DSPy takes them from the validation set and reports that set's maximum.
3. The first draws are 5 at random instead of 10, which would be all trials of a light run; a combination that was seen is drawn
   again only when 5 draws in a row bring no other.
4. All texts are written at once, so none sees earlier ones. One text of a region is always that of the start.
5. With `k` of 0 there are no demonstrations (DSPy issue 8508). They follow the rules of `whet.search.demonstrations`.
6. Where the start earns nothing, a text and a set that earn something without the optimizer are among the choices, and
   observed first (`whet.search.from_zero`).
7. Under a limit on calls, minibatches, trials and texts are reduced to fit (`whet.search.plan`). A limit that pays
   for the trials of 12 or 18 texts and sets, as MIPROv2 has them for more calls, gets these. Trials go on until the limit ends
   them: combinations that are known, or share the prompts of a program, cost nothing.

Run it:  whet optimize TASK --method mipro --lm openai/NAME --optimizer-lm openai/NAME
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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
from whet.search.demonstrations import (
    REGION,
    Demonstration,
    demonstrations,
    instruction_regions,
    label_rows,
    random_set,
    rows_not_shown,
    with_demonstrations,
)
from whet.search.edits import replace_region, text_in
from whet.search.from_zero import FirstPrompt, leave_zero
from whet.search.minibatch import UNANSWERED, minibatch, show_example, wanted_answers_known
from whet.search.plan import SearchPlan, count_purse, fit, payable_rollouts, payable_width, validate_finalists
from whet.search.regions import changed_regions, prompt_of_region
from whet.search.surrogate import Observed, check_optuna, suggest
from whet.types import Example, mean_score

ENTRY = MethodEntry(
    "mipro",
    "MIPRO: instructions and demonstrations chosen together",
    version=7,
    rank=100,
    when="instruction and demonstrations both matter",
    paper="Opsahl-Ong et al., EMNLP 2024",
    arxiv="2406.11695",
    needs=("optimizer",),
    extra="mipro",
    edits_all=True,
)


@named_fields
@dataclass(frozen=True)
class Config:
    """Settings of MIPRO."""

    instructions: PositiveInt | None = None
    """The number of texts of each region, including the start's; none means 6, or 12 or 18 if a limit on calls pays for the
    trials that they need."""
    sets: PositiveInt | None = None
    """The number of sets of demonstrations, including the empty set; none means as many as texts."""
    k: NonNegativeInt = 4
    """Demonstrations in a set at most; 0 for instructions only."""
    trials: PositiveInt | None = None
    """Combinations to observe; none means the paper's number, which grows with the choices and the texts, and under a limit on
    calls as many more as it pays for."""
    minibatch: PositiveInt = 35
    """Training examples of a trial."""
    full: PositiveInt = 5
    """Trials between two validations."""
    choice: Literal["tpe", "random"] = "tpe"
    """The choice of combinations: by the surrogate (tpe), or at random."""


def check(env: Environment, config: Config) -> None:
    """Raises UsageError where optuna is not installed."""
    if config.choice == "tpe":
        check_optuna("mipro")


async def mipro(
    run: Run, env: Environment, policy: LanguagePolicy, start: Prompt, config: Config
) -> Candidate:
    """Joint choice of instructions and demonstrations; see the module."""
    names = instruction_regions(start)
    plan, number, trials = plan_trials(run, env, config, len(names))
    archive = Archive()
    await archive.validate(run, plan.env, [Candidate(start)])
    plan, firsts = await leave_zero(run, plan, archive, start, secrets, k=config.k)
    if plan.rounds <= POOL:
        return await validate_finalists(run, plan, archive, [first.candidate for first in firsts])
    planned = plan.rounds - POOL
    rows = minibatch(run.rng, env.train, len(env.train), balanced=bool(env.labels))
    cut = min(POOL * plan.examples, len(rows) - plan.examples)
    used = [demo for first in firsts for demo in first.demos]
    shown, held = rows[:cut], rows_not_shown(rows[cut:], used) or rows[cut:]
    sets = await demonstration_sets(run, env, start, shown, config.k, config.sets or number)
    texts = wanted_texts(number, len(names))
    payable = texts if plan.asks is None else min(texts, plan.asks)
    written = min(planned, (payable - 1) // max(1, len(names)))
    options = await instruction_texts(run, env, policy, start, names, sets, written)
    seeds = [seed_choices(start, names, options, sets, first) for first in firsts]
    space = JointSpace(start, names, options, sets)
    search = JointSearch(plan, archive, space, held, config, {})
    for choices in [{}, *seeds][:planned]:
        await search.observe(run, dict.fromkeys(space.sizes, 0) | choices)
    trial, goes_on = 1 + len(seeds), plan.rollouts is not None and config.trials is None
    while trial < trials or goes_on:
        further, drawn = trial >= planned, search.choose(run)
        if drawn is None or (further and not (plan.limited and await search.affords(run, 1))):
            break
        await search.observe(run, drawn)
        more = await search.affords(run, 2) if further else len(archive.validated) < plan.validations - 1
        if trial % config.full == 0 and more:
            await search.validate(run)
        trial += 1
    return await search.decide(run)


def plan_trials(run: Run, env: Environment, config: Config, regions: int) -> tuple[SearchPlan, int, int]:
    """The plan of a search, with the number of texts to choose from and that of trials."""
    size = min(config.minibatch, max(1, len(env.train) // (1 + POOL)))
    limited = payable_rollouts(run, env, writes=True) is not None
    numbers = SIZES if limited else SIZES[-1:]
    for number in numbers if config.instructions is None else (config.instructions,):
        trials = config.trials or wanted_trials(number, regions, bool(config.k))
        asks = wanted_texts(number, regions) / (trials + POOL)
        plan = fit(run, env, trials + POOL, 1, size, finalists=2, asks=asks, least=1)
        if plan.rounds == trials + POOL and plan.examples == size:
            break
    return plan, number, trials


def wanted_texts(number: int, regions: int) -> int:
    """Calls of the optimizer model: a summary, and the texts of each region but for its own."""
    return (number - 1) * regions + 1


def seed_choices(
    start: Prompt,
    names: Sequence[str],
    options: dict[str, list[str]],
    sets: list[Sequence[Demonstration]],
    first: FirstPrompt,
) -> dict[str, int]:
    """Add the demonstrations or the text of a first prompt to what can be chosen. Returns the choice of it."""
    if first.demos:
        sets.append(first.demos)
        return {REGION: len(sets) - 1}
    name = changed_regions(start, first.candidate.prompt)[0]
    options[name].append(first.candidate.prompt.region_text(name))
    return {name: len(options[name]) - 1}


def wanted_trials(number: int, regions: int, demonstrations: bool) -> int:
    """Trials of MIPROv2 for so many texts of each of these regions."""
    return math.ceil(max(2 * (regions + demonstrations) * math.log2(max(2, number)), 1.5 * number))


@dataclass(frozen=True)
class JointSpace:
    """The texts of each region and the sets of demonstrations that can be combined."""

    start: Prompt
    names: Sequence[str]
    options: Mapping[str, Sequence[str]]
    sets: Sequence[Sequence[Demonstration]]

    @property
    def sizes(self) -> dict[str, int]:
        """The number of options of each region, and of sets of demonstrations."""
        return {**{name: len(self.options[name]) for name in self.names}, REGION: len(self.sets)}

    def prompt(self, choices: Mapping[str, int]) -> Prompt:
        """The prompt of a combination; the start's own text where the prompt refuses another one."""
        prompt = self.start
        for name in self.names:
            if choices[name]:
                prompt = replace_region(prompt, self.options[name][choices[name]], name) or prompt
        return with_demonstrations(self.start, self.sets[choices[REGION]], prompt) or prompt


@dataclass
class JointSearch:
    """The observations so far, by prompt."""

    plan: SearchPlan
    archive: Archive
    space: JointSpace
    held: Sequence[Example]
    config: Config
    seen: dict[str, Observed]

    async def affords(self, run: Run, validations: int) -> bool:
        """Whether the remaining limits pay for another trial and so many validations."""
        kept = validations * len(self.plan.env.validation)
        return await payable_width(run, replace(self.plan, width=1, asks_each=0.0), kept) > 0

    def choose(self, run: Run) -> Mapping[str, int] | None:
        """The combination of the next trial; None where one after the other has answered all rows."""
        for _ in range(REPEATS):
            choices = self._draw(run)
            seen = self.seen.get(self.space.prompt(choices).id)
            if seen is None or not self.plan.limited or any(row.id not in seen.rewards for row in self.held):
                return choices
        return None

    def _draw(self, run: Run) -> Mapping[str, int]:
        seed = run.rng.getrandbits(30)
        if self.config.choice == "random":
            return {name: run.rng.randrange(size) for name, size in self.space.sizes.items()}
        return suggest(self.space.sizes, list(self.seen.values()), self.plan.examples, seed)

    async def observe(self, run: Run, choices: Mapping[str, int]) -> None:
        """Roll a combination out on a minibatch."""
        prompt = self.space.prompt(choices)
        observed = self.seen.setdefault(prompt.id, Observed(choices))
        new = [row for row in self.held if row.id not in observed.rewards]
        rows = minibatch(run.rng, new or self.held, self.plan.examples)
        rollouts = await self.plan.env.evaluate(run, prompt, rows)
        observed.add(rollouts)
        parents = () if prompt == self.space.start else (self.space.start.id,)
        self.archive.add(run, Candidate(prompt, parents, "combination", mean_score(rollouts)))

    async def decide(self, run: Run) -> Candidate:
        """Validate the best combination, and the next one where the limit pays for that too. Returns the best of all."""
        best = await self.validate(run)
        rows = len(self.plan.env.validation)
        if self.plan.limited and rows <= (await count_purse(run, self.plan.env)).payable() < math.inf:
            best = await self.validate(run)
        return best

    async def validate(self, run: Run) -> Candidate:
        """Validate the combination with the best mean among those that are not validated; its rewards count like others."""
        prior = fmean(reward for o in self.seen.values() for reward in o.rewards.values())
        weight = float(self.plan.examples)
        new = {i: o.mean(prior, weight) for i, o in self.seen.items() if i not in self.archive.validated}
        if new:
            name = max(new, key=lambda i: new[i])
            rollouts = await self.plan.env.evaluate(
                run, self.archive.members[name].prompt, self.plan.env.validation
            )
            self.archive.add_rollouts(run, self.plan.env, self.archive.members[name], rollouts)
            self.seen[name].add(rollouts)
        return self.archive.incumbent or Candidate(self.space.start)


async def demonstration_sets(
    run: Run, env: Environment, start: Prompt, rows: Sequence[Example], k: int, number: int
) -> list[Sequence[Demonstration]]:
    """The empty set, the first good answers, the first targets, then random sets of good answers: `number` sets of `k`."""
    if not k:
        return [()]
    pool = demonstrations(env, start, await env.evaluate(run, start, rows), 1.0, secrets)
    targets = [demo for demo in label_rows(env, start, rows) if not secrets(demo.text)]
    sets: list[Sequence[Demonstration]] = [(), *(some[:k] for some in (pool, targets) if some)]
    sets += [random_set(run.rng, pool, k) for _ in range(number - len(sets)) if pool]
    return sets[:number]


async def instruction_texts(
    run: Run,
    env: Environment,
    policy: LanguagePolicy,
    start: Prompt,
    names: Sequence[str],
    sets: Sequence[Sequence[Demonstration]],
    number: int,
) -> dict[str, list[str]]:
    """For each region its text and up to `number` others, grounded in a summary of the data and in demonstrations: as many as a
    limit on calls of the optimizer model pays for if each reply must be asked for again."""
    rows = minibatch(run.rng, env.train, SUMMARISED)
    known = wanted_answers_known(rows)
    head, request = (SUMMARISED_ROWS, SUMMARY) if known else (UNANSWERED, SUMMARY_UNANSWERED)
    shown = [head, *map(show_example, rows), request]
    summary = await policy.write(run, "\n\n".join(shown), "SUMMARY") if number else []
    jobs = [(name, i) for name in names for i in range(number)]

    async def propose(branch: Run, job: tuple[str, int]) -> list[Prompt]:
        name, i = job
        demos = sets[1 + i % (len(sets) - 1)] if len(sets) > 1 else ()
        parts = [f"{PURPOSE}\n\n{setting(env.description, start, name)}{INSTRUCTION}"]
        parts += [f"<INSTRUCTION>\n{start.region_text(name)}\n</INSTRUCTION>", DATA, *summary]
        shown = [text for demo in demos if (text := demo.texts.get(prompt_of_region(start, name)))]
        question = "\n\n".join([*parts, *shown, f"{REQUEST} {TIPS[i % len(TIPS)]}"])
        return await policy.rewrite(branch, start, question.strip(), sample=i, region=name)

    texts = {name: [start.region_text(name)] for name in names}
    while jobs:
        limited = run.limits.optimizer_calls is not None
        wave = jobs[: int((await count_purse(run, env)).questions // ASKS)] if limited else jobs
        if not wave:
            break
        for (name, _), prompts in zip(wave, await run.map(propose, wave), strict=True):
            for prompt in prompts:
                text = text_in(start.with_focus(name), prompt)
                if text not in texts[name] and not copied_input(text, env.train, start.source):
                    texts[name].append(text)
        jobs = jobs[len(wave) :]
    return texts


POOL = 2
SIZES = 18, 12, 6
"""Texts and sets of MIPROv2: heavy, medium and light."""
REPEATS = 10
"""Draws in a row that bring nothing to observe, after which there is nothing left."""
ASKS = 2
"""Calls that a text may take."""
SUMMARISED = 10
SUMMARISED_ROWS = "Inputs of a task, with the answers that are wanted:"
SUMMARY = "Describe the task in two or three sentences: what the inputs have in common, and how an answer follows from an input."
SUMMARY_UNANSWERED = (
    "Describe the task in two or three sentences: what the inputs have in common, and what a good answer to one of them needs to "
    "hold."
)
PURPOSE = "You improve the instruction of a language model."
INSTRUCTION = "The instruction now:"
DATA = "The task, with some inputs and answers:"
REQUEST = "Write a new instruction with which the model does this task better. Do not copy the inputs."
TIPS = (
    "",
    "Be creative.",
    "Keep it clear and simple.",
    "Describe the task in full.",
    "Say that something important depends on the answer.",
    "Begin by saying who the model is in this task.",
)
