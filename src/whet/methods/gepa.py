"""GEPA: reflect on a few rollouts, keep every prompt that is best on something, and combine what they learned.

Agrawal, Tan, Soylu, Ziems, Khare, Opsahl-Ong, Singhvi, Shandilya, Ryan, Jiang, Potts, Sen, Dimakis, Stoica, Klein, Zaharia,
Khattab: GEPA: Reflective Prompt Evolution Can Outperform Reinforcement Learning. 2025. arXiv:2507.19457.

    pool <- {start}, with its score on each validation example
    while the budget lasts:
        draw a parent by the number of validation examples on which it is best (superfluous candidates left out)
        roll it out on a minibatch; show inputs, answers and critiques to the optimizer, which writes one region anew
        if the child is better on the minibatch: score it on each validation example, add it to the pool
        now and then: merge two of the pool, each region from the one that changed it
    return the best of the pool by mean validation score

Differences from the paper and its package (gepa 0.1.4):
1. A child is accepted by a paired test (`whet.stats`) on the rows of the minibatch, not by a larger sum. While it is ahead
   and the test undecided, both answer further minibatches, up to `looks`. A row whose call failed counts for neither.
2. A minibatch has 8 rows instead of 3: on 3 no test shows anything.
3. No prompt answers a training row twice: the rollouts on which a child was accepted are those that it is first reflected on.
4. Up to `proposals` parents are drawn at once and all their calls are in flight together; under a limit fewer, and twice
   as many after a round that accepted none. The package waits for each.
5. A text that copies 32 characters in a row from the input of a single example is dropped (gepa issue 261).
6. A merge takes what changed from both, and is validated when on 5 validation examples, balanced over who is better, it is
   not below the better parent. With one region there is nothing to merge.
7. Within a limit on calls, minibatch and validation split shrink so that about 20 children can be tried; the package's budget
   may end after the first (gepa issue 375). A prompt with the full reward on all validation examples ends the search.
8. Where critiques are addressed to prompts of a program, all these are written anew at once, each from its own.

Run it:  whet optimize TASK --method gepa --lm openai/NAME --optimizer-lm openai/NAME
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations
from typing import Literal

from whet.environments.environment import Environment
from whet.environments.program import in_focus
from whet.prompt import Prompt
from whet.rl import LanguagePolicy, setting
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.copies import copied_input
from whet.search.demonstrations import editable
from whet.search.edits import moved, text_in
from whet.search.example_front import front
from whet.search.minibatch import answered, endless, show_rollout
from whet.search.plan import cut_validation, payable_asks, payable_rollouts
from whet.search.regions import blamed
from whet.stats.paired import p_value
from whet.types import Example, Rollout, mean_score


@dataclass(frozen=True)
class Config:
    """Settings of GEPA."""

    rounds: int = 50
    """Rounds at most where no limit on calls is given."""
    proposals: int = 4
    """Children written at the same time at most. Under a limit on calls as many as leave ten rounds, and twice as
    many after a round that accepted none."""
    minibatch: int = 8
    """Training examples on which a parent is reflected on, and its child compared with it."""
    alpha: float = 0.2
    """A child is accepted at this p-value of the paired test."""
    looks: int = 3
    """Minibatches on which an undecided child is compared at most."""
    merges: int = 5
    """Merges at most, where the prompt has several regions."""
    parent: Literal["front", "best", "random"] = "front"
    """Who is reflected on: by frequency on the front per example, the best mean, or anybody."""
    tokens: int = 8192
    """Tokens of the optimizer's reply at most: the whole text has to fit."""


async def gepa(
    run: Run, env: Environment, policy: LanguagePolicy, start: Prompt, config: Config
) -> Candidate:
    """Reflective evolution; see the module."""
    pool = begin(run, env, replace(policy, max_tokens=config.tokens), start, config)
    rollouts = await pool.env.evaluate(run, start, pool.env.validation)
    pool.take(run, Outcome(Candidate(start), rollouts, cost=len(rollouts)))
    for number in range(pool.rounds):
        jobs = pool.jobs(run, number)
        if not jobs:
            break
        for outcome in await run.map(lambda branch, job: job.work(branch, pool), jobs):
            pool.take(run, outcome)
    return pool.archive.incumbent or Candidate(start)


@dataclass(frozen=True)
class Outcome:
    """What became of a child: its validation rollouts where it was accepted, and all rollouts on training examples.

    `rows` are those on which it was compared, shown to nobody yet; `cost` counts the rollouts that were not known, `asks` the
    requests to the optimizer.
    """

    child: Candidate | None = None
    validation: Sequence[Rollout] = ()
    training: Sequence[Rollout] = ()
    rows: Sequence[Example] = ()
    cost: int = 0
    asks: int = 0


@dataclass
class CandidatePool:
    """The accepted candidates with their rewards on each validation example, and what may still be spent.

    A round has `least` children; after one that accepted none (of a pool of `size`) twice as many (`width`) as that had.
    """

    env: Environment
    policy: LanguagePolicy
    start: Prompt
    config: Config
    draw: Iterator[Example]
    rollouts: int | None
    asks: int | None
    rounds: int
    least: int
    width: int = 0
    size: int = 0
    archive: Archive = field(default_factory=Archive)
    scores: dict[str, list[float]] = field(default_factory=dict)
    known: dict[tuple[str, str], Rollout] = field(default_factory=dict)
    unseen: dict[str, Sequence[Example]] = field(default_factory=dict)
    turns: dict[str, int] = field(default_factory=dict)
    merged: set[tuple[str, str]] = field(default_factory=set)
    grown: bool = False

    @property
    def regions(self) -> list[str]:
        """The regions that take their turns."""
        return editable(self.start)

    def take(self, run: Run, outcome: Outcome) -> None:
        """Take in what a job brought."""
        child = outcome.child
        self.rollouts = None if self.rollouts is None else self.rollouts - outcome.cost
        self.asks = None if self.asks is None else self.asks - outcome.asks
        self.known |= {(r.prompt_id, r.example_id): r for r in outcome.training}
        if child is None:
            return
        parents = [self.turns.get(parent, 0) for parent in child.parents]
        fresh = self.archive.add(run, child)
        if fresh and outcome.validation:
            self.archive.measured(run, self.env, child, outcome.validation)
            self.scores[child.id] = [r.reward for r in outcome.validation]
            self.unseen[child.id], self.grown = outcome.rows, True
            self.turns[child.id] = max(parents, default=0)

    def jobs(self, run: Run, number: int) -> list[RegionMerge | Reflection]:
        """What is done at once in a round: a merge, and reflections, as many as can be paid for."""
        config, rows, left = self.config, len(self.env.validation), self.rollouts
        if any(min(scores) >= self.env.reward.high for scores in self.scores.values()):
            return []
        jobs: list[RegionMerge | Reflection] = list(self.merge(run))
        left = None if left is None else left - rows * len(jobs)
        progress, self.size = len(self.scores) > self.size, len(self.scores)
        self.width = self.least if progress else min(config.proposals, 2 * self.width)
        width = self.width if self.asks is None else min(self.width, self.asks)
        if left is not None:
            width = min(width, max(1, left // (2 * config.minibatch + rows)))
        for k in range(width):
            parent = self.choose(run)
            batch = list(self.unseen.pop(parent.id, ()))[: config.minibatch] or self.batch(())
            need = sum((parent.id, row.id) not in self.known for row in batch) + len(batch) + rows
            if left is not None and left < need:
                continue
            spare = config.looks if left is None else (left // (width - k) - need) // (2 * config.minibatch)
            later: list[list[Example]] = []
            while len(later) < min(config.looks - 1, spare):
                later.append(self.batch([*batch, *(row for more in later for row in more)]))
            left = None if left is None else left - need - 2 * sum(map(len, later))
            turn = self.turns[parent.id]
            self.turns[parent.id] = turn + 1
            region = self.regions[turn % len(self.regions)]
            sample = number * config.proposals + k
            jobs.append(Reflection(parent, region, batch, [more for more in later if more], sample))
        return jobs

    def batch(self, but: Sequence[Example]) -> list[Example]:
        """The next training examples, none twice and none of those named."""
        size = min(self.config.minibatch, len(self.env.train) - len(but))
        rows: dict[str, Example] = {}
        while len(rows) < size:
            row = next(self.draw)
            if row.id not in {other.id for other in but}:
                rows[row.id] = row
        return list(rows.values())

    def choose(self, run: Run) -> Candidate:
        """The candidate that is to be reflected on."""
        if self.config.parent == "best" and self.archive.incumbent is not None:
            return self.archive.incumbent
        weights = front(self.scores) if self.config.parent == "front" else dict.fromkeys(self.scores, 1)
        name = run.rng.choices(list(weights), list(weights.values()))[0]
        return self.archive.members[name]

    def merge(self, run: Run) -> list[RegionMerge]:
        """Two candidates of the front that changed different regions since their last common ancestor, best pair first."""
        rows = len(self.env.validation)
        payable = self.rollouts is None or self.rollouts >= rows
        if len(self.regions) < 2 or len(self.merged) >= self.config.merges or not self.grown:
            return []
        self.grown = False
        best = sorted(front(self.scores), key=lambda c: -sum(self.scores[c]))
        for pair in combinations([self.archive.members[name] for name in best], 2):
            key = (pair[0].id, pair[1].id)
            prompt = None if key in self.merged else self.combined(*pair)
            if prompt is not None and prompt not in self.archive and payable:
                self.merged.add(key)
                return [RegionMerge(Candidate(prompt, key, "merge"), self.contested(run, *key))]
        return []

    def combined(self, better: Candidate, other: Candidate) -> Prompt | None:
        """The better candidate with the regions that only the other one has changed; None where there are none."""
        common = [a for a in self.lineage(better) if a in self.lineage(other)]
        if not common or common[-1] in (better.id, other.id):
            return None
        ancestor, prompt = self.archive.members[common[-1]].prompt, better.prompt
        for region in self.regions:
            focused = self.start.focused(region)
            text, before = text_in(focused, other.prompt), text_in(focused, ancestor)
            if text_in(focused, better.prompt) == before != text:
                prompt = moved(self.start, prompt, region, other.prompt)
        return prompt

    def lineage(self, candidate: Candidate) -> list[str]:
        """The candidate and all its ancestors, the oldest first."""
        ids = {candidate.id}
        for member in reversed(self.archive.members.values()):
            if member.id in ids:
                ids.update(member.parents)
        return [name for name in self.archive.members if name in ids]

    def contested(self, run: Run, first: str, second: str) -> list[int]:
        """Up to five validation examples: two on which each is better, then ties."""
        order = run.rng.sample(range(len(self.env.validation)), len(self.env.validation))
        gaps = {i: self.scores[first][i] - self.scores[second][i] for i in order}
        ahead, behind = [i for i in order if gaps[i] > 0], [i for i in order if gaps[i] < 0]
        even = [i for i in order if gaps[i] == 0]
        return [*ahead[:2], *behind[:2], *even, *ahead[2:], *behind[2:]][:5]

    async def answers(self, run: Run, prompt: Prompt, rows: Sequence[Example]) -> list[Rollout]:
        """Rollouts of a prompt on training examples; those that are known are not asked for again."""
        new = [row for row in rows if (prompt.id, row.id) not in self.known]
        fresh = {r.example_id: r for r in await self.env.evaluate(run, prompt, new)} if new else {}
        return [fresh.get(row.id) or self.known[prompt.id, row.id] for row in rows]

    def outcome(
        self,
        child: Candidate | None = None,
        validation: Sequence[Rollout] = (),
        training: Sequence[Rollout] = (),
        rows: Sequence[Example] = (),
        asks: int = 0,
    ) -> Outcome:
        """What became of a child, with what it cost."""
        new = sum((r.prompt_id, r.example_id) not in self.known for r in training)
        return Outcome(child, validation, training, rows, new + len(validation), asks)


@dataclass(frozen=True)
class Reflection:
    """One reflection on a parent, and the test of its child: on the region whose turn it is, or on those that are to blame.
    `sample` numbers its requests."""

    parent: Candidate
    region: str
    batch: Sequence[Example]
    later: Sequence[Sequence[Example]]
    sample: int

    async def work(self, run: Run, pool: CandidatePool) -> Outcome:
        """Roll out, reflect, compare, validate what is accepted."""
        env, parent = pool.env, self.parent.prompt
        olds = await pool.answers(run, parent, self.batch)
        if all(r.reward >= env.reward.high for r in answered(olds)):
            return pool.outcome(training=olds)
        regions = blamed(pool.start, pool.regions, self.region, olds)
        prompt = await self.reflect(run, pool, olds, regions)
        if prompt in pool.archive:
            return pool.outcome(training=olds, asks=len(regions))
        span, alpha = env.reward.high - env.reward.low, pool.config.alpha
        news = await pool.answers(run, prompt, self.batch)
        verdict = better(olds, news, span, alpha)
        for rows in self.later:
            if verdict is None:
                more = await run.map(partial(pool.answers, rows=rows), [parent, prompt])
                olds, news = [*olds, *more[0]], [*news, *more[1]]
                verdict = better(olds, news, span, alpha)
        child = Candidate(prompt, (self.parent.id,), f"reflection on {', '.join(regions)}", mean_score(news))
        if not verdict:
            return pool.outcome(child, training=[*olds, *news], asks=len(regions))
        validation = await env.evaluate(run, prompt, env.validation)
        return pool.outcome(child, validation, [*olds, *news], self.batch, len(regions))

    async def reflect(
        self, run: Run, pool: CandidatePool, rollouts: Sequence[Rollout], regions: Sequence[str]
    ) -> Prompt:
        """The parent with regions written anew, as far as there are usable replies."""

        prompt = self.parent.prompt
        write = partial(self.write, pool=pool, rollouts=rollouts)
        for region, written in zip(regions, await run.map(write, regions), strict=True):
            if written is not None:
                prompt = moved(pool.start, prompt, region, written)
        return prompt

    async def write(
        self, run: Run, region: str, pool: CandidatePool, rollouts: Sequence[Rollout]
    ) -> Prompt | None:
        """The parent with one region written anew; None without a usable reply."""
        base = self.parent.prompt.restored(region, pool.start)
        focused = pool.start.focused(region)
        text, rows = text_in(focused, self.parent.prompt), {row.id: row for row in self.batch}
        shown = [show_rollout(rows[r.example_id], in_focus(r, focused)) for r in answered(rollouts)]
        question = reflection(setting(pool.env.description, base, region), text, shown)
        written = await pool.policy.rewrite(run, base, question, sample=self.sample, text=text, region=region)
        fit = [p for p in written if not copied_input(p.source, pool.env.train, self.parent.prompt.source)]
        if len(fit) < len(written):
            run.log("copied", len(written) - len(fit))
        return fit[0] if fit else None


@dataclass(frozen=True)
class RegionMerge:
    """Two candidates as one, compared with the better of them on the validation examples with the numbers `contested`."""

    child: Candidate
    contested: Sequence[int]

    async def work(self, run: Run, pool: CandidatePool) -> Outcome:
        """Compare on a few examples, validate on the rest what is not worse."""
        rows, prompt = pool.env.validation, self.child.prompt
        tried = await pool.env.evaluate(run, prompt, [rows[i] for i in self.contested])
        best = max(sum(pool.scores[parent][i] for i in self.contested) for parent in self.child.parents)
        if sum(r.reward for r in tried) < best:
            return Outcome(self.child, cost=len(tried))
        rest = [i for i in range(len(rows)) if i not in self.contested]
        others = await pool.env.evaluate(run, prompt, [rows[i] for i in rest])
        by_row = dict(zip([*self.contested, *rest], [*tried, *others], strict=True))
        return Outcome(self.child, [by_row[i] for i in range(len(rows))], cost=len(rows))


def better(olds: Sequence[Rollout], news: Sequence[Rollout], span: float, alpha: float) -> bool | None:
    """Whether new rollouts are better than old ones on the same examples; None while they are ahead and it may be chance."""
    both = [(a, b) for a, b in zip(olds, news, strict=True) if len(answered([a, b])) == 2]
    gaps = [(b.reward - a.reward) / (span or 1.0) for a, b in both]
    if sum(gaps) <= 0:
        return False
    return True if p_value(gaps, draws=9_999) <= alpha else None


def begin(run: Run, env: Environment, policy: LanguagePolicy, start: Prompt, config: Config) -> CandidatePool:
    """An empty pool with sizes that a limit pays for: about `CHILDREN` times a minibatch and the validation split."""
    payable, rounds = payable_rollouts(run, env, writes=True), config.rounds
    asks = payable_asks(run, env, payable)
    batch, least = min(config.minibatch, len(env.train)), config.proposals
    if payable is not None:
        each = max(6, payable // CHILDREN)
        batch = max(1, min(batch, each * 2 // 5))
        env = cut_validation(run, env, max(1, min(each - batch, (payable - 2 * batch) // 2)))
        rounds = payable
        deep = payable // (2 * batch + len(env.validation)) // DEEP
        least = max(1, min(config.proposals, deep))
    config = replace(config, minibatch=batch)
    return CandidatePool(
        env, policy, start, config, endless(run.rng, env.train), payable, asks, rounds, least
    )


def reflection(about: str, text: str, shown: Sequence[str]) -> str:
    """The question to the optimizer: the instructions, the rollouts under them, the request (the paper's words)."""
    examples = "\n".join(f"<example>\n{rollout}\n</example>" for rollout in shown)
    return f"{about}{INSTRUCTIONS}\n<instructions>\n{text}\n</instructions>\n\n{EXAMPLES}\n{examples}\n\n{REQUEST}"


CHILDREN, DEEP = 20, 10
INSTRUCTIONS = "I provided an assistant with the following instructions to perform a task for me:"
EXAMPLES = (
    "The following are examples of different task inputs provided to the assistant along with the assistant's response for "
    "each of them, and some feedback on how the assistant's response could be better:"
)
REQUEST = (
    "Your task is to improve the prompt of the assistant: write its whole instruction anew. Read the inputs carefully and "
    "identify the input format and "
    "infer detailed task description about the task I wish to solve with the assistant. Read all the assistant responses "
    "and the corresponding feedback. Identify all niche and domain specific factual information about the task and include "
    "it in the instruction, as a lot of it may not be available to the assistant in the future. The assistant may have "
    "utilized a generalizable strategy to solve the task, if so, include that in the instruction as well. Keep what the "
    "instructions say already and is still needed. Do not copy the inputs."
)
