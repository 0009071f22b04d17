"""SPO: self-supervised prompt optimisation; a model compares the answers of two prompts, and no target is read.

Xiang et al.: Self-Supervised Prompt Optimization. 2025. arXiv:2502.06855.

    best <- start
    for round in 1..rounds:
        draw `questions` rows; answer them with the best prompt
        the optimizer sees the best prompt and its answers, and writes one modification of it
        answer the rows with the new prompt
        a model compares the two sets of answers `comparisons` times
        best <- the new prompt if it won more often than it lost
    return best

Differences from the paper and its code:
1. Both prompts answer the same rows. The code draws anew each time it reads its file: it compares answers to different questions.
2. The judge sees answers only. The code shows the prompts, the number of the round and who is in place.
3. A comparison is made in both orders and counts where both agree, and each comparison has rows of its own: four verdicts about
   the same texts are not independent, and by them a prompt that is no better wins 31 % of the rounds.
4. The result is chosen among the start and the winners on validation rows, by the reward of the task. Only there rewards are
   paid for, and targets read.
5. Optimizer and judge are one model, that of the role `optimizer`.
6. A start that earns nothing on validation rows gives way to a prompt that earns something, had without the optimizer, where rows
   have targets (`whet.search.from_zero`).
7. Within a limit on calls there are fewer comparisons, then fewer rounds.

Run it:  whet optimize TASK --method spo --lm openai/NAME --optimizer-lm openai/NAME
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from statistics import fmean

from whet._util.fields import NonNegativeInt, PositiveInt
from whet.environments.environment import Environment
from whet.errors import named_fields
from whet.instructions.guard import secrets
from whet.methods.method import MethodEntry
from whet.prompt import Prompt
from whet.rl import LanguagePolicy, show_instruction
from whet.rl.answer_duels import ASKS, duel, what_is_wanted, without_reward
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.edits import text_in
from whet.search.from_zero import leave_zero
from whet.search.minibatch import infinite_batches, shorten
from whet.search.plan import SearchPlan, share_out, validate_finalists, validate_leader
from whet.types import Example, Rollout

ENTRY = MethodEntry(
    "spo",
    "SPO: answers compared by a model, no targets",
    version=1,
    rank=64,
    when="training rows have no targets, and a model can tell which answer is better",
    paper="Xiang et al., 2025",
    arxiv="2502.06855",
    needs=("optimizer",),
)


@named_fields
@dataclass(frozen=True)
class Config:
    """Settings of SPO."""

    rounds: NonNegativeInt = 10
    """Rounds of writing and comparing."""
    questions: PositiveInt = 3
    """Rows of one comparison."""
    comparisons: PositiveInt = 4
    """Comparisons of a round, each on rows of its own and in both orders."""
    requirements: str = ""
    """A description of a good answer, for optimizer and judge."""
    finalists: PositiveInt = 3
    """Winners measured on validation examples at the end."""


async def spo(run: Run, env: Environment, policy: LanguagePolicy, start: Prompt, config: Config) -> Candidate:
    """Optimisation by comparisons of answers; see the module."""
    plan = share_out(run, env, config.rounds, finalists=config.finalists)
    archive, winners = Archive(), [Candidate(start)]
    run.note_rounds(within(config, plan)[0], config.rounds)
    await archive.validate(run, plan.env, winners)
    plan, firsts = await leave_zero(run, plan, archive, start, secrets)
    winners += [first.candidate for first in firsts[:1]]
    rounds, comparisons = within(config, plan)
    unseen, silent = infinite_batches(run.rng, env.train), without_reward(env)
    wanted = what_is_wanted(env, start, config.requirements)
    for number in range(rounds):
        best = winners[-1].prompt
        groups = [[next(unseen) for _ in range(config.questions)] for _ in range(comparisons)]
        rows = [row for group in groups for row in group]
        answers = await silent.evaluate(run, best, rows)
        question = modification(env, start, best, config, groups[0], answers[: config.questions])
        text = text_in(start, best)
        written = await policy.adapt().rewrite(run, start, question, sample=number, text=text)
        for prompt in [one for one in written if one != best]:
            others = await silent.evaluate(run, prompt, rows)
            spans = [slice(at, at + config.questions) for at in range(0, len(rows), config.questions)]
            pairs = [(rows[span], others[span], answers[span]) for span in spans]
            judge = partial(duel, policy=policy, about=wanted, sample=number)
            won = fmean(await run.map(judge, pairs))
            candidate = Candidate(prompt, (best.id,), f"round {number + 1}")
            archive.add(run, candidate)
            run.log(
                "duel",
                {"round": number + 1, "prompt": prompt.id, "won": won, "rows": [row.id for row in rows]},
            )
            if won > 0.5:
                winners.append(await validate_leader(run, plan, archive, candidate))
    return await validate_finalists(run, plan, archive, winners[::-1])


def within(config: Config, plan: SearchPlan) -> tuple[int, int]:
    """Rounds, and comparisons of a round, that the plan pays for: comparisons go first, until five rounds can be had."""
    for comparisons in range(config.comparisons, 0, -1):
        rounds = plan.payable(config.rounds, 2 * config.questions * comparisons)
        rounds = rounds if plan.asks is None else min(rounds, plan.asks // (1 + ASKS * comparisons))
        if rounds >= min(config.rounds, ENOUGH):
            break
    return rounds, comparisons


def modification(
    env: Environment, start: Prompt, best: Prompt, config: Config, rows: list[Example], answers: list[Rollout]
) -> str:
    """The question to the optimizer: the task, the requirements, the best prompt, its answers, the request."""
    shown = [
        f"Input: {shorten(row.user_text, LONGEST)}\nAnswered: {shorten(answer.output, LONGEST)}"
        for row, answer in zip(rows, answers, strict=True)
    ]
    required = [f"{REQUIRED}\n{config.requirements.strip()}"] if config.requirements.strip() else []
    instruction = show_instruction(env.description, start, text_in(start, best), INSTRUCTION)
    return "\n\n".join([PURPOSE, instruction, ANSWERS, *shown, *required, REQUEST])


ENOUGH, LONGEST = 5, 1500
PURPOSE = "You improve the instruction of a language model. Nobody knows the right answers."
INSTRUCTION = "The instruction now:"
ANSWERS = "Answers of the model under this instruction:"
REQUIRED = "What a good answer is:"
REQUEST = (
    "Find what is weakest in these answers, and change one thing in the instruction so that answers to any input of this kind "
    "become better. Write the whole instruction with this change. Do not copy the inputs."
)
