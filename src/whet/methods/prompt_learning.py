"""Prompt learning: critiques in words become managed instructions in the editable region of a prompt.

A method of this tool's own. That the error term of a prompt can be language instead of a number is the idea of prompt
learning as published by Arize AI (2025), whose method rewrites the whole prompt in one call per loop (`meta_prompt`). Here,
per round:

1. roll out the current prompt on fresh training examples;
2. *read*: the optimizer model is shown the critiques in small packs, all at once, beside the instructions that stand, and says
   which requirements they hold, which instruction already demands them, and what demands nothing;
3. *consolidate*: instructions that say the same become one, contradictions are named;
4. *change*: typed events on a ledger; the text around the region stays as it is, byte for byte;
5. *measure*: each instruction's rate of violation before and after it stands; what is still violated gets another text, what may
   do nothing is left out of a roll-out, in groups that are halved until the culprit is known.

Where eight rows prove that a start with known targets earns nothing, those of validation or else of the first roll-out too, the
prompts of `from_zero` are tried, demonstrations and the list of right answers together too, and learning begins from the one that
earns most.

The result is the prompt that is best on all evidence, fresh roll-outs and validation together: the newest one unless an older one
did better, but of wordings that whole rows demanded the one that earned most. A limit that strikes meanwhile
leaves the one that was best so far. `docs/prompt-learning.md` tells
the rest. Run it with

    whet optimize TASK --method prompt_learning --optimizer-lm openai/NAME
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from whet._util.fields import NonNegativeInt, PositiveInt
from whet.environments.environment import Environment
from whet.errors import named_fields
from whet.instructions.budget import LEAST, LearningBudget, budget_of
from whet.instructions.critiques import collect_critiques, of_people
from whet.instructions.guard import secrets
from whet.instructions.manager import InstructionManager
from whet.instructions.questions import mostly_rows
from whet.instructions.reader import close_packs
from whet.instructions.regions import RegionManagers, add_first, managers_of
from whet.instructions.rollouts import Hopeless, RoundBatch, RoundExamples
from whet.methods.method import MethodEntry
from whet.models.embeddings import NONE, embedder
from whet.prompt import Prompt
from whet.prompt.events import event_to_json
from whet.rl.language import LanguagePolicy
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.demonstrations import Demonstration, with_demonstrations
from whet.search.evidence import Evidence
from whet.search.from_zero import (
    JOINED,
    LIST,
    LISTED,
    TRIED,
    FirstPrompt,
    cost,
    earns_nothing,
    from_zero,
    targets_are_answers,
)
from whet.search.labels import right_answers
from whet.search.minibatch import infinite_batches, minibatch
from whet.search.plan import count_purse
from whet.types import Rollout

ENTRY = MethodEntry(
    "prompt_learning",
    "Prompt learning: critiques become managed instructions",
    version=22,
    rank=10,
    when="the reward says in words what is wrong, or people comment",
    paper="this tool's own; the idea: Arize AI, 2025",
    needs=("optimizer",),
    edits_all=True,
)


STALE = 4
"""Rounds in a row without a new answer, in which the optimizer model reads once more what it made nothing of."""


@named_fields
@dataclass(frozen=True)
class Config:
    """Settings of prompt learning."""

    rollouts: PositiveInt = 40
    """Training examples a round at most; under a limit on calls as many as show each missing requirement about four times."""
    rounds: NonNegativeInt = 12
    """The largest number of rounds without a limit on task calls."""
    clean: PositiveInt = 2
    """The number of consecutive rounds without a change after which a search without limits ends."""
    tokens: PositiveInt | None = None
    """Tokens that all instructions together may cost in every call; none means no bound."""
    consolidate: bool = True
    """Whether instructions are compared with each other."""
    measure: bool = True
    """Whether instructions are rewritten, omitted on trial and rolled back by their measured effects."""
    embedding: str = NONE
    """The embedding by which similar critiques share a request: none (character trigrams), embedded/encoder, or openai/NAME,
    ollama/NAME, ... at its endpoint."""


def check(env: Environment, config: Config) -> None:
    """Raises UsageError for an embedding that there is not, or that is not installed."""
    embedder(config.embedding)


async def prompt_learning(
    run: Run, env: Environment, policy: LanguagePolicy, start: Prompt, config: Config
) -> Candidate:
    """See the module. The optimizer model is asked through the run; `policy` only says that there is one."""
    budget = budget_of(run, env, config.rollouts, config.rounds)
    run.note_rounds(int(budget.asks != 0), 1)
    archive, evidence = Archive(), Evidence()
    examples, stale = RoundExamples(env, infinite_batches(run.rng, env.train)), 0

    manager = manage(start, env, config)
    current = whole = Candidate(start)
    histories, quiet, validation = {start.id: manager.histories()}, 0, len(budget.env.validation)
    people = of_people(env.train)

    def begin_with(earning: FirstPrompt) -> None:
        nonlocal manager, current, whole
        current = earning.candidate
        manager = manage_first(start, earning, env, config)
        whole, histories[current.prompt.id] = current, manager.histories()
        evidence.add(current, earning.rollouts)

    clear, earning = await leave_zero(run, budget, archive, current)
    if earning:
        begin_with(earning)

    while (size := budget.next_round(manager.spent, len(env.train))) > 0:
        at = f"round {budget.round}"
        trial = budget.trial and not manager.drafting
        batch = examples.next_batch(
            current.prompt,
            size,
            manager.ablated[: size // 3],
            trial=trial,
            known=manager.fell and manager.whole,
        )
        stale = 0 if batch.new or batch.known else stale + 1
        if stale > STALE:
            break
        rollouts = await roll_out(run, budget, archive, current, examples, batch, manager.falls_behind)
        budget.give_back(size - sum(r.example_id in batch.new for r in rollouts))
        evidence.add(current, [r for r in rollouts if r.example_id in batch.fair], trial=budget.trial)
        if not clear:
            clear, earning = True, (await leave_zero(run, budget, archive, current, rollouts))[1]
            if earning:
                begin_with(earning)
                budget.round = 0
                continue
        answers = collect_critiques(
            rollouts, env.train, env.reward.high, people, env.reward.low, again=batch.known
        )
        calls = budget.calls(manager.spent, manager.repairs, close_packs(answers.critiques))
        changed = await manager.step(run, answers, calls, at, last=budget.last)
        reworded = changed if mostly_rows(answers.critiques) else 0
        evidence.wordings |= reworded > 0
        budget.note_round(answers, len(manager.newest) or reworded)
        whole = Candidate(manager.prompt, (whole.prompt.id,), at)
        histories[whole.prompt.id] = manager.histories()
        evidence.add(whole)
        archive.keep(run, evidence.best(archive, validation))
        people = []
        quiet = 0 if changed else quiet + 1
        done = budget.may_stop(quiet >= config.clean)
        if not (manager.repairs or manager.lost) and (quiet or (manager.settled and budget.tries)):
            plan_trial(manager, examples)
        budget.trial, budget.whole = bool(manager.left_out), manager.whole
        if done and not manager.left_out:
            break
        current = Candidate(manager.prompt, (whole.prompt.id,), at)
        archive.add(run, current)

    await manager.finish(run, budget.asks_left(manager.spent))
    whole = Candidate(manager.prompt, (whole.prompt.id,), "end")
    histories[whole.prompt.id] = manager.histories()
    evidence.add(whole)
    best = await prove(run, budget, archive, evidence, whole)
    for history in histories[best.prompt.id]:
        run.log("ledger", [event_to_json(event) for event in history])
    return best


def manage(
    prompt: Prompt, env: Environment, config: Config, shown: Sequence[Demonstration] = (), first: str = ""
) -> InstructionManager | RegionManagers:
    """The instructions of a prompt that shows these demonstrations, of all its regions; `first` is the text of one that stands
    already."""
    own = InstructionManager(
        prompt,
        config.tokens,
        embed=embedder(config.embedding),
        consolidates=config.consolidate,
        measures=config.measure,
        description=env.description,
        examples=tuple(demo.text for demo in shown),
        demonstrated={demo.text: demo.row for demo in shown},
        first=first,
    )
    return managers_of(own)


def manage_first(
    start: Prompt, earning: FirstPrompt, env: Environment, config: Config
) -> InstructionManager | RegionManagers:
    """The instructions of a prompt that `from_zero` made: its demonstrations stay as they are, its list is an instruction."""
    shown = with_demonstrations(start, earning.demos) or start
    listed = earning.candidate.operator in (LISTED, JOINED)
    first = list_answers(right_answers(env).complete) if listed else ""
    return manage(shown, env, config, earning.demos, first)


def add_list(start: Prompt, answers: Sequence[str]) -> Prompt | None:
    """A prompt with the list of right answers as an instruction; None where the prompt refuses it."""
    return add_first(start, list_answers(answers))


def list_answers(answers: Sequence[str]) -> str:
    """The instruction that lists the right answers, one a line. No line has a list mark, by which it would be read as an
    instruction of its own."""
    return "\n".join([LIST, *answers])


def plan_trial(manager: InstructionManager | RegionManagers, examples: RoundExamples) -> None:
    """Choose what the next roll-out does without; not what all examples were answered without."""
    manager.plan_trial()
    while manager.left_out and not manager.drafting and not examples.list_unanswered(manager.prompt):
        manager.end_trial()
        manager.plan_trial()


async def leave_zero(
    run: Run, budget: LearningBudget, archive: Archive, start: Candidate, rollouts: Sequence[Rollout] = ()
) -> tuple[bool, FirstPrompt | None]:
    """Whether it is clear by the validation rows and `rollouts` that the start earns nothing, or something; and where it earns
    nothing the better of the prompts that `from_zero` tries, to learn from that, if that earns anything."""
    if not await targets_are_answers(run, budget.env):
        return True, None
    await archive.validate(run, budget.env, [start])
    proof = earns_nothing(budget.env, archive, start.prompt, rollouts)
    if proof < LEAST:
        return not proof, None
    rows = minibatch(run.rng, budget.env.train, TRIED, balanced=True)
    rows = rows if budget.rollouts is None else rows[: budget.rollouts // cost(2, joined=True)]
    tried = await from_zero(
        run, budget.env, archive, start.prompt, rows, secrets, listed=add_list, joined=True
    )
    earning = next((first for first in tried if first.candidate.mean > budget.env.reward.low), None)
    budget.pay(sum(len(first.rollouts) for first in tried), again=earning is not None)
    return True, earning


async def prove(
    run: Run, budget: LearningBudget, archive: Archive, evidence: Evidence, newest: Candidate
) -> Candidate:
    """The best prompt on all evidence, after it was validated; the newest one in its place where that was done before, and beside
    it where what is left pays for that too."""
    rows = len(budget.env.validation)
    best = evidence.best(archive, rows)
    await archive.validate(run, budget.env, [newest if best.id in archive.validated else best])
    if budget.affords and newest.id not in archive.validated:
        left = (await count_purse(run, budget.env)).payable()
        await archive.validate(run, budget.env, [newest] if rows <= left < math.inf else [])
    return evidence.best(archive, rows, validated=True)


async def roll_out(
    run: Run,
    budget: LearningBudget,
    archive: Archive,
    current: Candidate,
    examples: RoundExamples,
    batch: RoundBatch,
    hopeless: Hopeless,
) -> list[Rollout]:
    """Roll-outs of the current prompt, only a few where these are `hopeless`; its validation, where one is planned, runs at the
    same time."""

    async def work(branch: Run, task: str) -> list[Rollout]:
        if task == "validate":
            await archive.validate(branch, budget.env, [current])
            return []
        return await examples.answer(branch, current.prompt, batch, budget.round, hopeless)

    tasks = ["validate", "roll out"] if budget.validates else ["roll out"]
    return (await run.map(work, tasks))[-1]
