"""PREFACE: a verifier's counterexample is the critique, and the prompt is repaired until the verifier accepts.

Jha, Wan, Chen: PREFACE: A Reinforcement Learning Framework for Code Verification via LLM Prompt Repair. GLSVLSI 2025; and
Proof2Silicon, 2025, arXiv:2509.06239.

    p <- start
    for round in 1..rounds:
        x <- a training row whose answer under p the verifier rejects;  q_0 <- p
        for attempt in 1..attempts, until the verifier accepts:
            the model repairs the q so far that came farthest on x: it reads x, the answer, what the verifier said of it, and
            what earlier repairs earned
            q <- the repaired prompt;  r <- the verifier's reward of the answer to x under q
        p <- the repair that came farthest, if it earns more than p on `examples` training rows
    return the p that validated best

The verifier is the reward of the task: unit tests, a compiler, a solver, a test bench (`docs/verifiers.md`). Its reward is dense
where it counts what is met, as the share of tests passed does, and its critique holds the counterexample.

Differences from the papers, whose reward and update were read in code:
1. There a small model is trained to write an instruction for each task; here an optimizer model that is not trained repairs one
   prompt for all rows. A repair must earn more on other rows too, where the papers know one task at a time.
2. Their reward is +5 for what is verified, else -5 less .2 for each error and .5 for each attempt. Here it is that of the task.
3. Their verifier is Dafny. Any verifier of whet, or a reward of the user's with a critique, stands in its place.
4. Their tree of errors keeps every attempt; here the next repair begins at the attempt that came farthest, the latest of equals.
5. A repair that copies the input of its row, or private data, is dropped.
6. `shown` is the control: `verdict` hides what the verifier said, `other` shows what it said of another row.
7. Within a limit on calls, rows of the comparison, rounds down to 2, attempts and rounds again are cut, in this order.

Run it:  whet optimize TASK --method preface --lm openai/NAME --optimizer-lm openai/NAME
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from whet._util.fields import NonNegativeInt, PositiveInt
from whet.environments.environment import Environment
from whet.errors import named_fields
from whet.methods.method import MethodEntry
from whet.prompt import Prompt
from whet.rl import LanguagePolicy
from whet.rl.prompt_repair import MeasuredPrompt, PromptRepair, Shown
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.minibatch import minibatch
from whet.search.plan import LEAST_EXAMPLES, SearchPlan, share_out, validate_finalists, validate_leader

ENTRY = MethodEntry(
    "preface",
    "PREFACE: prompts repaired from a verifier's counterexamples",
    version=1,
    rank=47,
    when="a verifier says what is wrong: unit tests, a compiler, a solver, a test bench",
    paper="Jha et al., 2025",
    arxiv="2509.06239",
    needs=("optimizer",),
)


@named_fields
@dataclass(frozen=True)
class Config:
    """Settings of PREFACE."""

    rounds: NonNegativeInt = 20
    """The number of rejected rows for which the prompt is repaired, one after the other."""
    attempts: PositiveInt = 7
    """The largest number of repairs for a row; they end when the verifier accepts the answer."""
    examples: PositiveInt = 30
    """Training rows on which a repaired prompt is compared with the previous prompt."""
    shown: Shown = "counterexample"
    """The verifier's output that the model reads: the message about the row, only the reward, or the message about another
    row."""
    finalists: PositiveInt = 2
    """Prompts measured on validation examples at the end, if they are not yet."""


async def preface(
    run: Run, env: Environment, policy: LanguagePolicy, start: Prompt, config: Config
) -> Candidate:
    """Repair a prompt from counterexamples; see the module."""
    plan, archive = share_out(run, env, config.rounds, config.finalists), Archive()
    rounds, attempts, examples = within(config, plan, len(env.train))
    run.note_rounds(rounds, config.rounds)
    await archive.validate(run, plan.env, [Candidate(start)])
    if not rounds:
        return await validate_finalists(run, plan, archive, [])
    rows = minibatch(run.rng, env.train, examples, balanced=bool(env.labels))
    leader = await MeasuredPrompt.measure(run, env, Candidate(start), rows)
    archive.add(run, leader.candidate)
    repair, tried, leaders = PromptRepair(env, start, attempts, config.shown), set[str](), [leader.candidate]
    for number in range(rounds):
        rejected = leader.find_rejected(env.reward.high, tried)
        if not rejected:
            break
        place = run.rng.choice(rejected)
        tried.add(rows[place].id)
        other = leader.rollouts[run.rng.choice([at for at in rejected if at != place] or [place])]
        repaired = await repair.search(run, policy.adapt(), leader, place, other, number * STRIDE)
        run.log("repaired", {"row": rows[place].id, "attempts": repaired.attempts, "reward": repaired.reward})
        if repaired.prompt in archive or repaired.reward <= leader.rollouts[place].reward:
            continue
        child = Candidate(repaired.prompt, (leader.candidate.id,), "repair")
        measured = await MeasuredPrompt.measure(run, env, child, rows)
        archive.add(run, measured.candidate)
        if measured.candidate.mean > leader.candidate.mean:
            leader, tried = measured, set()
            leaders.append(leader.candidate)
            await validate_leader(run, plan, archive, leader.candidate)
    return await validate_finalists(run, plan, archive, leaders[::-1][: config.finalists])


def within(config: Config, plan: SearchPlan, train: int) -> tuple[int, int, int]:
    """Rounds, attempts of a round, and rows of the comparison that the plan pays for."""
    rounds, attempts, examples = config.rounds, config.attempts, min(config.examples, train)
    few = min(LEAST_EXAMPLES, examples)
    asks, rollouts = (math.inf if limit is None else limit for limit in (plan.asks, plan.rollouts))
    while rounds and (rounds * attempts > asks or examples + rounds * (attempts + examples) > rollouts):
        if examples > few and rounds * attempts <= asks:
            examples -= 1
        elif rounds > 2 or attempts == 1:
            rounds -= 1
        else:
            attempts -= 1
    return rounds, attempts, examples


STRIDE = 1_000
"""Sample numbers of a round."""
