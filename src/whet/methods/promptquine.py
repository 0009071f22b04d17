"""PromptQuine: a prompt with demonstrations loses words, by evolution; what is left may read badly and do better.

Wang, Hu, Bing: Evolving Prompts In-Context: An Open-ended, Self-replicating Perspective.
ICML 2025. arXiv:2506.17930. PromptQuine (generational) and TAPruning.

    base <- the start with `shots` demonstrations;  population <- {base};  archive <- {base}
    quine: while the mean length is above `shortest` and fewer than `explored` prompts were scored:
               `offspring` times: parent <- the best of a random fifth of the population; drop 1 to `drops` of its words
               population <- the best of the offspring alone;  archive gains the offspring
    tap:   for each word in order, again and again until a pass drops nothing:
               drop it if the score stays at `threshold` of the best so far or above
    the best of the archive are measured on held-out rows; return the best there

Differences from the paper:
1. Words stand for tokens: no tokenizer decides what can be dropped, and the text stays the text of any model. The space and the
   punctuation that would stand doubled go with a word; slots and what surrounds the editable regions stay.
2. The held-out rows are the validation rows, the start among the candidates. The paper holds out half of its training rows.
3. The score is the piecewise gap, or accuracy: `reward`. Ties of label probabilities are masked by index, so that a uniform
   distribution is not rewarded. For `tap` a score counts from the lowest one possible, because a gap may be negative.
4. The generation that survives is that of the offspring, as in the paper's generational variant; there is no steady state and no
   successive halving. No prompt is scored twice.
5. `algorithm=random` is the control in the same space: random numbers of words are dropped from the base.
6. Demonstrations keep the rules of `whet.search.demonstrations`, and no training row that is shown scores a prompt.
7. Within a limit on calls the offspring shrink to the root of what is paid for, then examples and generations.

Run it:  whet optimize TASK --method promptquine --lm embedded/encoder
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Literal

from whet._util.fields import NonNegativeInt, PositiveInt, Probability
from whet.environments.environment import Environment
from whet.errors import named_fields
from whet.instructions.guard import secrets
from whet.methods.method import MethodEntry
from whet.prompt import Prompt
from whet.rewards.scored import Gap
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.demonstrations import label_rows, with_demonstrations
from whet.search.label_signal import label_signal
from whet.search.labels import by_label, right_answers
from whet.search.minibatch import minibatch
from whet.search.plan import SearchPlan, fit, validate_finalists, validate_leader
from whet.search.population import Individual, fittest, grade_new, population_size, tournament
from whet.search.pruning import Kept, PrunableText, drop_words
from whet.types import Example

ENTRY = MethodEntry(
    "promptquine",
    "PromptQuine: words of a prompt with demonstrations are dropped",
    version=1,
    rank=126,
    when="a small model scores labels or writes, and the prompt need not be readable",
    paper="Wang et al., ICML 2025",
    arxiv="2506.17930",
    edits_all=True,
)


@named_fields
@dataclass(frozen=True)
class Config:
    """Settings of PromptQuine."""

    algorithm: Literal["quine", "tap", "random"] = "quine"
    """quine: evolution; tap: one word after another; random: the control in the same space."""
    shots: NonNegativeInt = 1
    """The number of demonstrations in the base, for each label if targets are labels; 0: only the start is pruned."""
    population: PositiveInt = 30
    """Prompts that survive a generation."""
    offspring: PositiveInt = 50
    """Prompts of a generation."""
    drops: PositiveInt = 4
    """The largest number of words that a prompt loses."""
    shortest: PositiveInt = 15
    """The number of words at which the search ends."""
    explored: PositiveInt = 10_000
    """Prompts to score at most."""
    threshold: Probability = 0.96
    """tap: share of the best score that a prompt must keep to lose a word (tau)."""
    reward: Literal["auto", "reward", "gap"] = "auto"
    """The score of a pruned prompt; auto: the gap if a model scores labels and the task counts right labels, else the task's
    reward."""
    examples: PositiveInt | None = None
    """Training examples that each prompt is scored on; none means all that the base does not show."""
    finalists: PositiveInt = 32
    """Prompts measured on validation examples at the end."""


async def promptquine(run: Run, env: Environment, policy: object, start: Prompt, config: Config) -> Candidate:
    """Pruning of a prompt's words; see the module. `policy` is not used."""
    width = population_size(run, env, config.offspring, asks=0)
    rounds, finalists = -(-config.explored // width), config.finalists
    plan = fit(run, env, rounds, width, config.examples, finalists=finalists, asks=0)
    archive = Archive()
    await archive.validate(run, plan.env, [Candidate(start)])
    order = minibatch(run.rng, env.train, len(env.train), balanced=True)
    shots = min(config.shots * max(1, len(right_answers(env).complete)), len(order) // 4)
    demos = [demo for demo in label_rows(env, start, by_label(order[:shots])) if not secrets(demo.text)]
    text = PrunableText.of(start, with_demonstrations(start, demos) or start)
    search = Pruning(env, archive, plan, text, config, order[shots:][: plan.examples])
    await search.grade(run, [text.whole])
    if config.algorithm == "tap":
        await search.scan(run)
    else:
        await search.evolve(run)
    best = fittest(search.explored, finalists)
    return await validate_finalists(run, plan, archive, [one.candidate for one in best])


@dataclass
class Pruning:
    """A search over the words of a text that are kept; what was scored so far."""

    env: Environment
    archive: Archive
    plan: SearchPlan
    text: PrunableText
    config: Config
    rows: Sequence[Example]
    explored: list[Individual[Kept]] = field(default_factory=list)

    async def grade(self, run: Run, made: Sequence[Kept]) -> list[Individual[Kept]]:
        """Score the prompts that are new; the leader of all is validated as far as the plan pays for it."""
        operator, parents = self.config.algorithm, (self.text.start.id,)
        prompts = [(self.text.prompt(kept), kept) for kept in made]
        new = [Individual(Candidate(p, parents, operator), kept) for p, kept in prompts if p is not None]
        signal = label_signal(self.env, self.config.reward, "gap")
        scored = await grade_new(run, self.env, self.archive, new, self.rows, signal)
        self.explored += scored
        if scored:
            await validate_leader(run, self.plan, self.archive, fittest(self.explored, 1)[0].candidate)
        return scored

    async def evolve(self, run: Run) -> None:
        """Generation after generation, each the best of the offspring of the one before; or random prunes of the base."""
        population, share = list(self.explored), self.config.population / self.config.offspring
        for _ in range(self.plan.rounds if population else 0):
            if fmean(len(one.genome) for one in population) <= self.config.shortest:
                break
            made = [self.child(run, population) for _ in range(self.plan.width)]
            scored = await self.grade(run, made)
            if not scored:
                break
            if self.config.algorithm == "quine":
                population = fittest(scored, max(1, round(share * self.plan.width)))

    def child(self, run: Run, population: Sequence[Individual[Kept]]) -> Kept:
        """A parent that lost some of its words, but not below the shortest length."""
        if self.config.algorithm == "random":
            parent, most = self.text.whole, len(self.text.words)
        else:
            parent = tournament(run.rng, population, max(1, round(TOURNAMENT * len(population)))).genome
            most = self.config.drops
        most = min(most, len(parent) - self.config.shortest)
        return drop_words(run.rng, parent, run.rng.randint(1, most)) if most > 0 else parent

    async def scan(self, run: Run) -> None:
        """Threshold accepting: each word in order is dropped where the score stays near the best so far."""
        gap = label_signal(self.env, self.config.reward, "gap")
        low, left = Gap().low if gap else self.env.reward.low, self.plan.rounds * self.plan.width
        for one in self.explored[:1]:
            kept, best, before = one.genome, one.fitness, 0
            while before != len(kept):
                before = len(kept)
                for number in kept:
                    if left < 1 or len(kept) <= self.config.shortest:
                        return
                    child = tuple(word for word in kept if word != number)
                    for scored in await self.grade(run, [child]):
                        left -= 1
                        if scored.fitness - low >= self.config.threshold * (best - low):
                            kept, best = child, max(best, scored.fitness)


def check(env: Environment, config: Config) -> None:
    """Raise UsageError for a signal that the task does not have."""
    label_signal(env, config.reward, "gap")


TOURNAMENT = 0.2
