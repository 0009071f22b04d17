"""APOHF: the preferences of a person choose the prompt; a neural dueling bandit chooses what the person compares.

Lin, Dai, Verma, Ng, Jaillet, Low: Prompt Optimization with Human Feedback. 2024. arXiv:2405.17346.

    P <- prompts that a model writes; X <- their embeddings
    D <- the choices of a person in `first` duels of random prompts
    until there are `duels`:
        fit the network h to D: P(i beats j) = sigmoid(h(x_i) - h(x_j))
        a <- argmax h;  b <- argmax h + the bonus for what is unknown beside a, among the others
        the person sees an answer of a and one of b to the same input, and says which is better; D grows
    return argmax h among the prompts that duelled

Differences from the paper and its code:
1. The person may call a duel a tie: half a win for each. Which of the two answers is a, at the left, is drawn at random.
2. A choice is recorded when it is made. A run that is stopped goes on with the duel that is open, and asks nothing twice.
   Answers that are the same are a tie, and nobody is asked.
3. `validated` prompts, the paper's choice first, are measured on validation rows by the reward of the task beside the start. Only
   there rewards are paid for, and targets read.
4. Embeddings are those of `embedding`; without one, hashed character trigrams, which know no language. They are centred, and
   projected on 32 random directions.
5. Which pair comes next is recorded in the run, so that a resume on another machine does not depend on its arithmetic.
6. A prompt that earns something where the start earns nothing on validation rows joins the pool (`whet.search.from_zero`).
7. Within a limit on calls the pool and the duels are cut to what it pays (`whet.search.plan`).
8. `selector` of random draws every pair: the control.

Run it:  whet optimize TASK --method apohf --lm openai/NAME --optimizer-lm openai/NAME
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from whet._util.fields import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from whet.environments.environment import Environment
from whet.errors import named_fields
from whet.instructions.guard import secrets
from whet.instructions.neighbours import trigrams
from whet.methods.method import MethodEntry
from whet.models.embeddings import NONE, embedder
from whet.prompt import Prompt
from whet.rl import LanguagePolicy
from whet.rl.answer_duels import without_reward
from whet.rl.people import TERMINAL
from whet.rl.person_duels import PersonDuel, ask_person, find_chooser
from whet.rl.prompt_pool import write_pool
from whet.run import Run, convert_record
from whet.search.archive import Archive, Candidate
from whet.search.edits import text_in
from whet.search.from_zero import leave_zero
from whet.search.minibatch import infinite_batches
from whet.search.plan import share_out, validate_finalists
from whet.stats.duels import Choice
from whet.stats.neural_duels import PreferenceNetwork, next_duel
from whet.stats.neural_kernel import Array, project
from whet.types import JSON

ENTRY = MethodEntry(
    "apohf",
    "APOHF: a person chooses between answers",
    version=1,
    rank=67,
    when="nobody can define a good answer, but a person recognises one",
    paper="Lin et al., 2024",
    arxiv="2405.17346",
    needs=("optimizer",),
)


@named_fields
@dataclass(frozen=True)
class Config:
    """Settings of APOHF."""

    duels: NonNegativeInt = 50
    """Questions to the person at most (T)."""
    first: PositiveInt = 5
    """Duels of random prompts before the bandit chooses."""
    pool: PositiveInt = 100
    """Prompts that are written."""
    per_call: PositiveInt = 10
    """Prompts written in one call."""
    ask: str | Callable[..., Any] = TERMINAL
    """The source of choices: the person at the terminal, or a Python file with `def ask(input, a, b)`, or such a function,
    which returns a, b or tie."""
    nu: NonNegativeFloat = 1.0
    """Weight of the bonus for uncertain prompts."""
    ridge: PositiveFloat = 0.1
    """Penalty on the weights of the network, which also is the precision of the prior before any duel (lambda)."""
    steps: PositiveInt = 1000
    """Steps of Adam after each duel."""
    selector: Literal["neural", "random"] = "neural"
    """The choice of the two prompts of a duel: by the bandit, or at random."""
    embedding: str = NONE
    """Vectors of prompts: none (character trigrams), embedded/encoder, or openai/NAME, ollama/NAME, ... at its endpoint."""
    validated: PositiveInt = 1
    """Prompts that the person likes best, measured on validation examples at the end."""

    @property
    def questions_at_most(self) -> int:
        """The largest number of requests to the optimizer model: those for the pool."""
        return -(-self.pool // self.per_call)


def check(env: Environment, config: Config) -> None:
    """Raises UsageError where nobody can be asked, and for an embedding that there is not."""
    find_chooser(config.ask)
    embedder(config.embedding)


async def apohf(
    run: Run, env: Environment, policy: LanguagePolicy, start: Prompt, config: Config
) -> Candidate:
    """A dueling bandit before a person; see the module."""
    chooser = find_chooser(config.ask)
    plan = share_out(run, env, 0, finalists=config.validated)
    archive = Archive()
    await archive.validate(run, plan.env, [Candidate(start)])
    plan, firsts = await leave_zero(run, plan, archive, start, secrets)
    calls = config.questions_at_most
    calls = calls if plan.asks is None else min(calls, plan.asks)
    written = await write_pool(run, env, policy, start, calls, config.per_call, config.pool)
    prompts = [start, *(first.candidate.prompt for first in firsts), *written]
    pool = [Candidate(prompt, (start.id,), "pool") for prompt in {p.id: p for p in prompts}.values()]
    for candidate in pool[1:]:
        archive.add(run, candidate)
    bandit = Duels(await vectors(run, [text_in(start, one.prompt) for one in pool], config.embedding), config)
    rows, silent = infinite_batches(run.rng, env.train), without_reward(env)
    for number in range(plan.payable(config.duels, 2) if len(pool) > 1 else 0):
        pair = tuple(run.rng.sample(range(len(pool)), 2))
        if number >= config.first and config.selector == "neural":
            chosen = convert_record(await run.effect("pair", bandit.next), list[int])
            pair = tuple(run.rng.sample(chosen, 2))
        row = next(rows)
        one, other = await silent.rollouts(run, [(pool[place].prompt, row) for place in pair])
        duel = PersonDuel(row.user_text, one.output, other.output, number + 1, config.duels)
        won = 0.5 if one.output == other.output else await ask_person(run, chooser, duel)
        bandit.choices.append((pair[0], pair[1], won))
        run.log("duel", {"first": pool[pair[0]].id, "second": pool[pair[1]].id, "won": won})
    best = [pool[place] for place in await bandit.rank(run)]
    return await validate_finalists(run, plan, archive, best[: config.validated])


@dataclass
class Duels:
    """The vectors of the prompts, and who was preferred to whom."""

    points: Array
    config: Config
    choices: list[Choice] = field(default_factory=list)

    def network(self) -> PreferenceNetwork:
        """The network that is fitted to all choices, each time from the same weights."""
        network = PreferenceNetwork.draw(self.points.shape[1], 0)
        return network.fit(self.points, self.choices, self.config.steps, self.config.ridge)

    async def next(self) -> JSON:
        """The next two duellists: the best prompt, and the prompt that may be better."""
        return list(next_duel(self.network(), self.points, self.choices, self.config.nu, self.config.ridge))

    async def rank(self, run: Run) -> list[int]:
        """The places of the prompts that duelled, the best first."""

        async def compute() -> JSON:
            seen = sorted({place for choice in self.choices for place in choice[:2]})
            scores = self.network().scores(self.points).tolist()
            return [*sorted(seen, key=lambda place: -scores[place])]

        return convert_record(await run.effect("ranking", compute), list[int]) if self.choices else []


async def vectors(run: Run, texts: Sequence[str], embedding: str) -> Array:
    """The vectors of texts, centred, of length 1 on average, in few directions: (texts, DIRECTIONS)."""
    embed = embedder(embedding)
    points = np.asarray(trigrams(texts) if embed is None else await embed(run, texts), float)
    points = points - points.mean(axis=0)
    return project(points / (np.linalg.norm(points, axis=1).mean() or 1.0), DIRECTIONS)


DIRECTIONS = 32
