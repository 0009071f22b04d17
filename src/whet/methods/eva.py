"""eva: a creator writes new rows near those on which the solver's answers differ, and the solver learns from these differences.

Ye, Agarwal, Liu, Joshi, Velury, Le, Tan, Liu: Evolving Alignment via Asymmetric Self-Play. ICML 2025. arXiv:2411.00062.

    X <- training rows; solver <- start
    for each of `rounds` rounds:
        answers <- n answers of the solver to each x in X, with their rewards
        solver <- learns from the best and the worst answer to each x
        info(x) <- how far the best answer lies above the worst; parents <- drawn from X in proportion to info
        X <- rows that the creator writes near the parents, mixed with old ones

Differences from the paper:
1. The solver is the prompt: a model rewrites it from pairs of a good and a bad answer to the same row. The paper trains weights
   on such pairs (DPO, SimPO, RLOO and others).
2. A rewrite is taken only where it earns more than the prompt before, with as many answers to the same rows.
3. `select` chooses the informativeness: the best above the worst answer (`gap`), or above the mean (`advantage`). `uniform`,
   and the rows that earn least (`lowest`), are the controls. With rewards of 0 and 1 the expected gap is 1 - p^n - (1 - p)^n:
   the chance that answers differ, by which other methods leave out rows that teach nothing.
4. Written rows need a reward without a target. Rows that the reward cannot grade, duplicates, and copies of validation rows are
   dropped; a row that nobody solves has no gap, so that nothing is written near it. `evolve: 0` writes none.
5. The result is chosen on validation examples.
   If the start prompt has a reward of zero, two other prompts are tried first (`whet.search.from_zero`).
6. Under a limit on calls, rows and rounds are reduced to fit.

Run it:  whet optimize TASK --method eva --lm openai/NAME --optimizer-lm openai/NAME
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Literal

from whet._util.fields import NonNegativeFloat, NonNegativeInt, PositiveInt, Probability
from whet.environments.environment import Environment
from whet.errors import UsageError, named_fields, parameter
from whet.instructions.guard import secrets
from whet.methods.method import MethodEntry
from whet.prompt import Prompt
from whet.rl import LanguagePolicy, show_instruction
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.edits import text_in
from whet.search.from_zero import leave_zero
from whet.search.minibatch import answered_rollouts, infinite_batches, next_rows, shorten
from whet.search.plan import share_out, validate_finalists, validate_leader
from whet.search.written_rows import refusal_of_written_rows, show_row, without_duplicates, written_row
from whet.types import Example, Rollout, Score

ENTRY = MethodEntry(
    "eva",
    "eva: a creator writes rows on which answers differ, and the prompt learns from them",
    version=1,
    rank=56,
    when="rows are few or all of one difficulty, and the reward grades an answer without a target",
    paper="Ye et al., ICML 2025",
    arxiv="2411.00062",
    needs=("optimizer",),
)

LONGEST = 800
Select = Literal["gap", "advantage", "uniform", "lowest"]


@named_fields
@dataclass(frozen=True)
class Config:
    """Settings of eva."""

    rounds: NonNegativeInt = 8
    """Rounds of creator and solver."""
    rows: PositiveInt = 12
    """Rows of a round."""
    answers: PositiveInt = 4
    """Answers to each row (n)."""
    evolve: NonNegativeInt = 8
    """Rows that the creator writes in a round at most; 0 for none."""
    mix: Probability = 0.5
    """Share of old rows in a round."""
    select: Select = "gap"
    """The criterion for the rows from which the creator starts and the solver learns."""
    shown: PositiveInt = 4
    """Rows whose answers the solver learns from in a round at most."""
    temperature: NonNegativeFloat = 0.7
    """Of the answers."""
    finalists: PositiveInt = 3
    """Prompts measured on validation examples at the end."""


async def eva(run: Run, env: Environment, policy: LanguagePolicy, start: Prompt, config: Config) -> Candidate:
    """Creator against solver; see the module."""
    plan = share_out(run, env, config.rounds, config.finalists)
    archive, olds = Archive(), infinite_batches(run.rng, env.train)
    await archive.validate(run, plan.env, [Candidate(start)])
    plan, firsts = await leave_zero(run, plan, archive, start, secrets)
    solver = firsts[0].candidate if firsts else Candidate(start)
    evolve = 0 if refusal_of_written_rows(env) else config.evolve
    size = max(1, min(config.rows, plan.payable(2 * config.rows, 2 * config.answers) // 2))
    rounds = plan.payable(config.rounds, 2 * size * config.answers)
    rounds = rounds if plan.asks is None else min(rounds, plan.asks // (1 + evolve))
    run.note_rounds(rounds, config.rounds)
    rows, pool = next_rows(olds, size), list(env.train)
    for number in range(rounds):
        policy = policy.adapt()
        answers = await groups(run, env, solver.prompt, rows, config, number)
        chosen = draw(run, answers, config.shown, config.select)
        question = ask_solver(env, start, solver, [(rows[i], answers[i]) for i in chosen])
        written = await policy.rewrite(
            run, start, question, sample=number, text=text_in(start, solver.prompt)
        )
        for prompt in [one for one in written if one not in archive and not secrets(one.region_text())]:
            after = await groups(run, env, prompt, rows, config, number)
            if not (any(after) and any(answers)):
                continue
            child = Candidate(prompt, (solver.id,), f"round {number + 1}", mean(after))
            archive.add(run, child)
            if child.mean > mean(answers).mean:
                solver = await validate_leader(run, plan, archive, child)
        parents = [rows[i] for i in draw(run, answers, evolve, config.select)]
        new = without_duplicates(await create(run, env, policy, start, parents, evolve, number), pool)
        pool += new
        run.log("round", {"round": number, "rows": len(rows), "written": [row.user_text for row in new]})
        new = new[: size - round(config.mix * size)]
        rows = list({row.id: row for row in [*new, *next_rows(olds, size - len(new))]}.values())
    return await validate_finalists(run, plan, archive, [solver, *archive.top(config.finalists)])


async def groups(
    run: Run, env: Environment, prompt: Prompt, rows: Sequence[Example], config: Config, number: int
) -> list[list[Rollout]]:
    """`answers` answers to each row, those of no provider left out; none of a round comes from the cache of another."""
    warm = replace(env, generation=replace(env.generation, temperature=config.temperature))

    async def sample(branch: Run, k: int) -> list[Rollout]:
        return await warm.evaluate(branch, prompt, rows, number * config.answers + k)

    samples = await run.map(sample, range(config.answers))
    return [answered_rollouts(group) for group in zip(*samples, strict=True)]


def informativeness(rewards: Sequence[float], select: Select) -> float:
    """Rate how much the answers to a row can teach, 0 or more, by the measure that `select` names; 0 without answers."""
    if not rewards:
        return 0.0
    if select == "uniform":
        return 1.0
    return max(rewards) - (fmean(rewards) if select == "advantage" else min(rewards))


def draw(run: Run, answers: Sequence[Sequence[Rollout]], k: int, select: Select) -> list[int]:
    """The places of at most `k` rows, drawn in proportion to what they can teach, none twice; or those that earn least."""
    rewards = [[rollout.reward for rollout in group] for group in answers]
    if select == "lowest":
        return sorted((i for i, row in enumerate(rewards) if row), key=lambda i: fmean(rewards[i]))[:k]
    weights = {i: weight for i, row in enumerate(rewards) if (weight := informativeness(row, select)) > 0}
    keys = {i: run.rng.random() ** (1 / weight) for i, weight in weights.items()}
    return sorted(keys, key=lambda i: -keys[i])[:k]


def mean(answers: Sequence[Sequence[Rollout]]) -> Score:
    """The mean over rows of the mean reward of their answers; some row has one."""
    means = [fmean(rollout.reward for rollout in group) for group in answers if group]
    return Score(fmean(means), len(means))


def ask_solver(
    env: Environment, start: Prompt, solver: Candidate, shown: Sequence[tuple[Example, Sequence[Rollout]]]
) -> str:
    """The question to the solver's writer: rows with their best and their worst answer."""
    parts = [PURPOSE, show_instruction(env.description, start, text_in(start, solver.prompt), NOW), PAIRS]
    for row, group in shown:
        best, worst = (choose(group, key=lambda rollout: rollout.reward) for choose in (max, min))
        lines = [f"Input: {shorten(row.user_text, LONGEST)}"]
        for name, one in (("Better", best), ("Worse", worst)):
            critique = f"\nCritique: {shorten(one.critique, LONGEST)}" if one.critique else ""
            lines.append(f"{name} (reward {one.reward:.3g}): {shorten(one.output, LONGEST)}{critique}")
        parts.append("\n".join(lines))
    return "\n\n".join([*parts, REQUEST])


async def create(
    run: Run,
    env: Environment,
    policy: LanguagePolicy,
    start: Prompt,
    parents: Sequence[Example],
    most: int,
    number: int,
) -> list[Example]:
    """Rows that the creator writes near the parents, `most` at most, each parent as often as the others."""
    wanted = [parents[i % len(parents)] for i in range(most)] if parents else []

    async def one(branch: Run, item: tuple[int, Example]) -> list[Example]:
        place, parent = item
        body = shorten(show_row(parent), LONGEST)
        question = "\n\n".join([CREATE, f"<ROW>\n{body}\n</ROW>", WAYS[place % len(WAYS)]])
        texts = await policy.write(branch, question, "ROW", sample=number * most + place)
        rows = [written_row(text, parent, env, start.text) for text in texts if not secrets(text)]
        return [row for row in rows if row is not None]

    return [row for rows in await run.map(one, list(enumerate(wanted))) for row in rows]


def check(env: Environment, config: Config) -> None:
    """Raises UsageError where rows are to be written and the reward could not grade answers to them."""
    if config.evolve and (why := refusal_of_written_rows(env)):
        raise UsageError(
            f"eva writes new rows, and here it cannot: {why}. {parameter('config.evolve', '0')} goes without: rows are then only "
            "chosen by how far their answers differ."
        )


PURPOSE = "You improve the instruction of a language model."
NOW = "The instruction now:"
PAIRS = "Inputs, each with a better and a worse answer that the model gave under this instruction:"
REQUEST = (
    "What do the better answers do that the worse ones do not? Write the instruction anew, so that the model always answers like "
    "the better ones. Keep what works. It must hold for all inputs of this kind: quote none of these."
)
CREATE = "This is an input of a task for a language model:"
WAYS = (
    "Write a new input of the same kind that is a little harder: one more condition, or one more step.",
    "Write a new input of the same kind that is a little easier.",
    "Write a new input of the same kind and difficulty about something else.",
)
