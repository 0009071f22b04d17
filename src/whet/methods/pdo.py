"""PDO: duels of prompts before a judge, the pairs chosen by double Thompson sampling; no targets.

Wu et al.: LLM Prompt Duel Optimizer: Efficient Label-Free Prompt Optimization. 2025. arXiv:2510.13907.

    pool <- start and prompts that a model writes; W[i][j] = wins of i over j
    for t in 1..duels:
        U, L <- W / N +- sqrt(1.2 ln t / N); C <- the prompts with the most j such that U[i][j] > 1/2
        a <- the one of C that beats the most others under draws from Beta(W[i][j] + 1, W[j][i] + 1)
        b <- the largest draw against a among the prompts with L[b][a] <= 1/2
        a judge compares the answers of a and b; W[winner][loser] += 1
        every `every` duels: the worst ranked prompt leaves, a mutation of the best one comes
    return the Copeland winner (among equals the one with the larger share of wins, Borda)

Differences from the paper and its code:
1. A judgement is of `questions` rows at once, in both orders; where the orders disagree, each of the two gets half a win.
2. The rows of a duel are drawn anew. A prompt answers no row twice.
3. The result is chosen among the start and the best ranked prompts on validation rows, by the reward of the task. Only there
   rewards are paid for, and targets read.
4. The start never leaves the pool. The ranking is Copeland's, then Borda's; the code can fuse it with Elo and TrueSkill.
5. The model that writes judges too, in the role `optimizer`.
6. A prompt that earns something where the start earns nothing on validation rows joins the pool (`whet.search.from_zero`).
7. Within a limit on calls the pool is a quarter of what the optimizer may be asked, and the duels what the rest pays for.

Run it:  whet optimize TASK --method pdo --lm openai/NAME --optimizer-lm openai/NAME
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

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
from whet.search.minibatch import minibatch
from whet.search.plan import SearchPlan, share_out, validate_finalists
from whet.stats.duels import Choice, copeland, draw_pair, wins_of
from whet.types import Example, Rollout

ENTRY = MethodEntry(
    "pdo",
    "PDO: duels of prompts before a judge, no targets",
    version=1,
    rank=66,
    when="training rows have no targets, and you want to compare several wordings",
    paper="Wu et al., 2025",
    arxiv="2510.13907",
    needs=("optimizer",),
)


@named_fields
@dataclass(frozen=True)
class Config:
    """Settings of PDO."""

    duels: NonNegativeInt = 100
    """Duels (T)."""
    pool: PositiveInt = 10
    """Prompts that duel, the start among them."""
    every: PositiveInt = 10
    """Duels between two changes of the pool (m)."""
    questions: PositiveInt = 3
    """Rows of a duel."""
    pairs: Literal["thompson", "uniform"] = "thompson"
    """The choice of the two prompts of a duel: by double Thompson sampling, or at random."""
    requirements: str = ""
    """A description of a good answer, for writer and judge."""
    finalists: PositiveInt = 3
    """The best ranked prompts, measured on validation examples at the end."""

    @property
    def questions_at_most(self) -> int:
        """The largest number of requests to the optimizer model: for the pool, in duels, and for changes of the pool."""
        return self.pool - 1 + ASKS * self.duels + max(0, self.duels - 1) // self.every


async def pdo(run: Run, env: Environment, policy: LanguagePolicy, start: Prompt, config: Config) -> Candidate:
    """Dueling bandits over prompts; see the module."""
    plan = share_out(run, env, 0, finalists=config.finalists)
    archive = Archive()
    await archive.validate(run, plan.env, [Candidate(start)])
    plan, firsts = await leave_zero(run, plan, archive, start, secrets)
    config = within(config, plan)
    pool = DuelPool(env, policy, start, config, [Candidate(start), *(first.candidate for first in firsts)])
    await pool.write(run, archive, [pool.members[-1]] * (config.pool - 1))
    for number in range(config.duels if len(pool.members) > 1 else 0):
        first, second = pool.pair(run)
        won = await pool.compare(run, first, second, number)
        pool.choices.append((first, second, won))
        run.log("duel", {"first": pool.members[first].id, "second": pool.members[second].id, "won": won})
        if (number + 1) % config.every == 0 and number + 1 < config.duels:
            await pool.renew(run, archive)
    best = [pool.members[place] for place in pool.rank()]
    return await validate_finalists(run, plan, archive, best[: config.finalists])


@dataclass
class DuelPool:
    """The prompts that duel, and the outcomes of their duels by their places; who is `out` keeps its place."""

    env: Environment
    policy: LanguagePolicy
    start: Prompt
    config: Config
    members: list[Candidate]
    choices: list[Choice] = field(default_factory=list)
    out: set[int] = field(default_factory=set)
    answers: dict[tuple[str, str], Rollout] = field(default_factory=dict)
    questions: int = 0

    @property
    def places(self) -> list[int]:
        """The places of those who duel."""
        return [place for place in range(len(self.members)) if place not in self.out]

    def rank(self) -> list[int]:
        """The places of those who duel, the best first."""
        places = self.places
        return [places[at] for at in copeland(wins_of(places, self.choices))]

    def pair(self, run: Run) -> tuple[int, int]:
        """The next two duellists."""
        places = self.places
        if self.config.pairs == "uniform":
            first, second = run.rng.sample(places, 2)
            return first, second
        one, other = draw_pair(wins_of(places, self.choices), run.rng.getrandbits(63))
        return places[one], places[other]

    async def compare(self, run: Run, first: int, second: int, number: int) -> float:
        """Judge a duel on rows that are drawn anew: 1 if the first wins, 0 if the second wins, 0.5 for neither."""
        rows = minibatch(run.rng, self.env.train, self.config.questions)
        one, other = await run.map(lambda branch, place: self.answer(branch, place, rows), [first, second])
        for rollout in (*one, *other):
            self.answers[rollout.prompt_id, rollout.example_id] = rollout
        wanted = what_is_wanted(self.env, self.start, self.config.requirements)
        return await duel(run, (rows, one, other), self.policy, wanted, number)

    async def answer(self, run: Run, place: int, rows: Sequence[Example]) -> list[Rollout]:
        """The answers of a prompt to rows. A row that it has answered is not asked again."""
        prompt = self.members[place].prompt
        new = [row for row in rows if (prompt.id, row.id) not in self.answers]
        fresh = (
            {r.example_id: r for r in await without_reward(self.env).evaluate(run, prompt, new)}
            if new
            else {}
        )
        return [fresh.get(row.id) or self.answers[prompt.id, row.id] for row in rows]

    async def write(self, run: Run, archive: Archive, parents: Sequence[Candidate]) -> None:
        """A new prompt from each parent, as far as the model writes one that is new."""
        policy = self.policy.adapt()

        async def write_variants(branch: Run, job: tuple[int, Candidate]) -> list[Candidate]:
            number, parent = job
            text = text_in(self.start, parent.prompt)
            question = mutation(self.env, self.start, text, self.config.requirements, number)
            prompts = await policy.rewrite(branch, self.start, question, sample=number, text=text)
            return [Candidate(prompt, (parent.id,), "mutation") for prompt in prompts]

        numbered = list(enumerate(parents, self.questions))
        self.questions += len(parents)
        for family in await run.map(write_variants, numbered):
            self.members += [one for one in family if one.prompt != self.start and archive.add(run, one)]

    async def renew(self, run: Run, archive: Archive) -> None:
        """The worst ranked prompt but the start leaves, and a mutation of the best one comes."""
        ranked = self.rank()
        before = len(self.members)
        await self.write(run, archive, [self.members[ranked[0]]])
        if len(self.members) > before and len(ranked) > 2:
            self.out.add(next(place for place in reversed(ranked) if place != 0))


def within(config: Config, plan: SearchPlan) -> Config:
    """The sizes that the plan pays for."""
    duels, pool, every = plan.payable(config.duels, 2 * config.questions), config.pool, config.every
    if plan.asks is not None:
        pool = min(pool, 1 + plan.asks // 4)
        left = plan.asks - (pool - 1)
        every = min(every, max(3, left // (3 * ASKS)))
        duels = min(duels, left * every // (ASKS * every + 1))
    return replace(config, duels=duels, pool=pool, every=every)


def mutation(env: Environment, start: Prompt, text: str, requirements: str, number: int) -> str:
    """The question to the model: the task, the requirements, the prompt, the request of the number's turn."""
    required = [f"{REQUIRED}\n{requirements.strip()}"] if requirements.strip() else []
    shown = show_instruction(env.description, start, text, INSTRUCTION)
    return "\n\n".join([PURPOSE, shown, *required, REQUESTS[number % len(REQUESTS)]])


PURPOSE = "You improve the instruction of a language model. Nobody knows the right answers."
INSTRUCTION = "The instruction now:"
REQUIRED = "What a good answer is:"
REQUESTS = (
    "Write a better version of this instruction: more precise about what is asked and how to answer. Keep what works.",
    "Write another instruction for the same task that takes another approach. It must work for any input of this kind.",
    "Write this instruction anew with the steps that lead to a good answer, and with the mistakes to avoid.",
)
