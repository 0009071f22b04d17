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

from collections.abc import Iterator, Mapping, Sequence
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
from whet.search.text_merge import merged_prompt
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
    pool.take(run, Outcome(Candidate(start), True, (), await pool.validate(run, start)))
    for number in range(pool.rounds):
        if pool.done:
            break
        await merge(run, pool)
        parent = pool.choose(run)
        batches = pool.batches(parent)
        if not batches:
            break
        children = await reflect(run, pool, parent, batches, number)
        together = union(pool, parent, children)
        accepted = together is not None and await compare(run, pool, parent, [together])
        accepted = accepted or await compare(run, pool, parent, children)
        pool.barren = 0 if accepted else pool.barren + 1
    return pool.best or Candidate(start)


@dataclass(frozen=True)
class Child:
    """A prompt made from a parent, how, and the rows on which it is compared with it."""

    prompt: Prompt
    operator: str
    rows: Sequence[Example]


@dataclass(frozen=True)
class Outcome:
    """What became of a candidate: its rollouts on validation examples where it was accepted, and all others.

    `rows` are those on which it was compared, shown to nobody yet.
    """

    candidate: Candidate
    accepted: bool
    training: Sequence[Rollout] = ()
    validation: Sequence[Rollout] = ()
    rows: Sequence[Example] = ()


@dataclass
class CandidatePool:
    """The accepted candidates with their rewards on each validation example, and what may still be spent.

    A round has `least` reflections, under a limit twice as many (`width`) as the one before where that accepted nothing.
    """

    env: Environment
    policy: LanguagePolicy
    start: Prompt
    config: Config
    draw: Iterator[Example]
    rollouts: int | None
    asks: int | None
    rounds: int
    width: int
    barren: int = 0
    archive: Archive = field(default_factory=Archive)
    scores: dict[str, list[float]] = field(default_factory=dict)
    known: dict[tuple[str, str], Rollout] = field(default_factory=dict)
    unseen: dict[str, Sequence[Example]] = field(default_factory=dict)
    turns: dict[str, int] = field(default_factory=dict)
    merged: set[tuple[str, str]] = field(default_factory=set)
    grown: bool = False

    @property
    def done(self) -> bool:
        """Whether nothing can become better, or nothing more can be asked for."""
        if self.rollouts is not None and self.barren >= BARREN:
            return True
        return self.asks == 0 or any(min(s) >= self.env.reward.high for s in self.scores.values())

    @property
    def best(self) -> Candidate | None:
        """The best by mean validation score, or a descendant that is ahead of it, step by step, on all rows that both answered."""
        best = self.archive.incumbent
        for name in self.scores:
            candidate = self.archive.members[name]
            if best and best.id in candidate.parents and name not in self.archive.outside:
                rows = [row for prompt, row in self.known if prompt == best.prompt.id]
                pairs = [
                    (self.known[best.id, row], self.known[name, row])
                    for row in rows
                    if (name, row) in self.known
                ]
                best = candidate if sum(new.reward - old.reward for old, new in pairs) > 0 else best
        return best

    def take(self, run: Run, outcome: Outcome) -> None:
        """Take in what became of a candidate, and what that cost."""
        child = outcome.candidate
        self.learn([*outcome.training, *outcome.validation])
        turn = max((self.turns.get(parent, 0) for parent in child.parents), default=0)
        if self.archive.add(run, child) and outcome.accepted:
            self.archive.measured(run, self.env, child, outcome.validation)
            self.scores[child.id] = [r.reward for r in outcome.validation]
            self.unseen[child.id], self.turns[child.id], self.grown = outcome.rows, turn, True

    def learn(self, rollouts: Sequence[Rollout]) -> None:
        """Take in rollouts; those that were not known have been paid for."""
        before = len(self.known)
        self.known |= {(r.prompt_id, r.example_id): r for r in rollouts}
        if self.rollouts is not None:
            self.rollouts -= len(self.known) - before

    def batches(self, parent: Candidate) -> list[list[Example]]:
        """The minibatches on which a parent is reflected on at once, as many as can be paid for: what it was accepted on first."""
        left, size, batches = self.rollouts, self.config.minibatch, list[list[Example]]()
        width = self.width if left is None else self.width * 2**self.barren
        rows = list(self.unseen.pop(parent.id, ()))
        while len(batches) < width:
            batch = rows[len(batches) * size :][:size] or self.batch([row for b in batches for row in b])
            need = sum((parent.id, row.id) not in self.known for row in batch) + len(batch)
            if left is not None:
                left -= need
            if not batch or (left is not None and left < len(self.env.validation)):
                break
            batches.append(batch)
        return batches

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

    def turn(self, parent: Candidate) -> str:
        """The region of a parent whose turn it is."""
        turn, regions = self.turns[parent.id], editable(self.start)
        self.turns[parent.id] = turn + 1
        return regions[turn % len(regions)]

    async def validate(self, run: Run, prompt: Prompt) -> list[Rollout]:
        """The rollouts of a prompt on the validation examples."""
        return await self.env.evaluate(run, prompt, self.env.validation)

    async def answers(self, run: Run, prompt: Prompt, rows: Sequence[Example]) -> list[Rollout]:
        """Rollouts of a prompt on training examples; those that are known are not asked for again."""
        new = [row for row in rows if (prompt.id, row.id) not in self.known]
        fresh = {r.example_id: r for r in await self.env.evaluate(run, prompt, new)} if new else {}
        return [fresh.get(row.id) or self.known[prompt.id, row.id] for row in rows]


async def reflect(
    run: Run, pool: CandidatePool, parent: Candidate, batches: Sequence[Sequence[Example]], number: int
) -> list[Child]:
    """The new prompts that reflections on minibatches write, at once, none twice."""
    pool.learn(await pool.answers(run, parent.prompt, [row for batch in batches for row in batch]))
    jobs: list[tuple[int, Sequence[Example], list[Rollout], list[str]]] = []
    for k, batch in enumerate(batches):
        olds = [pool.known[parent.id, row.id] for row in batch]
        regions = blamed(pool.start, editable(pool.start), pool.turn(parent), olds)
        wrong = any(r.reward < pool.env.reward.high for r in answered(olds))
        if wrong and (pool.asks is None or pool.asks >= len(regions)):
            pool.asks = None if pool.asks is None else pool.asks - len(regions)
            jobs.append((number * pool.config.proposals + k, batch, olds, regions))

    async def write(branch: Run, job: tuple[int, Sequence[Example], list[Rollout], list[str]]) -> Child:
        sample, batch, olds, regions = job
        prompt, rows = parent.prompt, {row.id: row for row in batch}
        asked = await branch.map(
            lambda twig, region: rewritten(twig, pool, parent, region, rows, olds, sample), regions
        )
        for region, written in zip(regions, asked, strict=True):
            prompt = prompt if written is None else moved(pool.start, prompt, region, written)
        return Child(prompt, f"reflection on {', '.join(regions)}", batch)

    children = {child.prompt.id: child for child in await run.map(write, jobs)}
    return [child for child in children.values() if child.prompt not in pool.archive]


async def rewritten(
    run: Run,
    pool: CandidatePool,
    parent: Candidate,
    region: str,
    rows: Mapping[str, Example],
    rollouts: Sequence[Rollout],
    sample: int,
) -> Prompt | None:
    """The parent with one region written anew; None without a usable reply."""
    base, focused = parent.prompt.restored(region, pool.start), pool.start.focused(region)
    text = text_in(focused, parent.prompt)
    shown = [show_rollout(rows[r.example_id], in_focus(r, focused)) for r in answered(rollouts)]
    question = reflection(setting(pool.env.description, base, region), text, shown)
    written = await pool.policy.rewrite(run, base, question, sample=sample, text=text, region=region)
    fit = [p for p in written if not copied_input(p.source, pool.env.train, parent.prompt.source)]
    if len(fit) < len(written):
        run.log("copied", len(written) - len(fit))
    return fit[0] if fit else None


def union(pool: CandidatePool, parent: Candidate, children: Sequence[Child]) -> Child | None:
    """All that the children of a parent changed, as one child; None where that is none of them alone."""
    prompt, rows = None, list[Example]()
    for child in children:
        more = (
            child.prompt if prompt is None else merged_prompt(pool.start, parent.prompt, prompt, child.prompt)
        )
        if more is not None:
            prompt, rows = more, [*rows, *child.rows]
    if prompt is None or prompt in pool.archive or len(rows) == len(children[0].rows):
        return None
    return Child(prompt, "union of reflections", rows)


async def compare(run: Run, pool: CandidatePool, parent: Candidate, children: Sequence[Child]) -> bool:
    """Compare children with their parent, at once, as far as it can be paid for; validate the better ones. Whether any is."""
    validation, size, left = len(pool.env.validation), pool.config.minibatch, pool.rollouts
    jobs: list[tuple[Child, list[list[Example]]]] = []
    taken = [row for child in children for row in child.rows]
    for n, child in enumerate(children):
        need, later = len(child.rows) + validation, list[list[Example]]()
        if left is not None and left < need:
            break
        share = None if left is None else left // (len(children) - n) - need
        while len(later) < pool.config.looks - 1 and (share is None or share >= 2 * size * (len(later) + 1)):
            later.append(pool.batch(taken))
            taken += later[-1]
        left = None if left is None else left - need - 2 * sum(map(len, later))
        jobs.append((child, [rows for rows in later if rows]))

    async def outcome(branch: Run, job: tuple[Child, list[list[Example]]]) -> Outcome:
        child, later = job
        span, alpha = pool.env.reward.high - pool.env.reward.low, pool.config.alpha
        olds = await pool.answers(branch, parent.prompt, child.rows)
        news = await pool.answers(branch, child.prompt, child.rows)
        verdict = better(olds, news, span, alpha)
        for rows in later:
            if verdict is None:
                more = await branch.map(partial(pool.answers, rows=rows), [parent.prompt, child.prompt])
                olds, news = [*olds, *more[0]], [*news, *more[1]]
                verdict = better(olds, news, span, alpha)
        candidate = Candidate(child.prompt, (parent.id,), child.operator, mean_score(news))
        validated = await pool.validate(branch, child.prompt) if verdict else []
        return Outcome(candidate, bool(verdict), [*olds, *news], validated, child.rows)

    outcomes = await run.map(outcome, jobs)
    for each in outcomes:
        pool.take(run, each)
    return any(each.accepted for each in outcomes)


def better(olds: Sequence[Rollout], news: Sequence[Rollout], span: float, alpha: float) -> bool | None:
    """Whether new rollouts are better than old ones on the same examples; None while they are ahead and it may be chance."""
    both = [(a, b) for a, b in zip(olds, news, strict=True) if len(answered([a, b])) == 2]
    gaps = [(b.reward - a.reward) / (span or 1.0) for a, b in both]
    if sum(gaps) <= 0:
        return False
    return True if p_value(gaps, draws=9_999) <= alpha else None


async def merge(run: Run, pool: CandidatePool) -> None:
    """Merge two candidates of the front, the best pair first; validate that where it is not below the better one on a few rows."""
    rows, best = pool.env.validation, sorted(front(pool.scores), key=lambda c: -sum(pool.scores[c]))
    grown, pool.grown = pool.grown, False
    if not grown or len(pool.merged) >= pool.config.merges:
        return
    for pair in combinations(best, 2):
        prompt = None if pair in pool.merged else combined(pool, *pair)
        if (
            prompt is None
            or prompt in pool.archive
            or (pool.rollouts is not None and pool.rollouts < len(rows))
        ):
            continue
        pool.merged.add(pair)
        few = contested(run, *(pool.scores[name] for name in pair))
        tried = await pool.env.evaluate(run, prompt, [rows[i] for i in few])
        rest = [i for i in range(len(rows)) if i not in few]
        passed = sum(r.reward for r in tried) >= max(sum(pool.scores[name][i] for i in few) for name in pair)
        others = await pool.env.evaluate(run, prompt, [rows[i] for i in rest]) if passed else []
        by_row = dict(zip([*few, *rest], [*tried, *others], strict=False))
        validated = [by_row[i] for i in range(len(rows))] if passed else []
        return pool.take(
            run, Outcome(Candidate(prompt, pair, "merge"), passed, [] if passed else tried, validated)
        )


def combined(pool: CandidatePool, better: str, other: str) -> Prompt | None:
    """What two candidates changed since their last common ancestor, the better one's where they are at odds; None where that
    is one of them."""
    line, members = lineage(pool, other), pool.archive.members
    common = [name for name in lineage(pool, better) if name in line]
    if not common or common[-1] in (better, other):
        return None
    ancestor = members[common[-1]].prompt
    return merged_prompt(pool.start, ancestor, members[better].prompt, members[other].prompt)


def lineage(pool: CandidatePool, name: str) -> list[str]:
    """A candidate and all its ancestors, the oldest first."""
    ids = {name}
    for member in reversed(pool.archive.members.values()):
        if member.id in ids:
            ids.update(member.parents)
    return [name for name in pool.archive.members if name in ids]


def contested(run: Run, first: Sequence[float], second: Sequence[float]) -> list[int]:
    """Numbers of up to five validation examples: two on which each is better, then ties."""
    order = run.rng.sample(range(len(first)), len(first))
    ahead, behind = [i for i in order if first[i] > second[i]], [i for i in order if first[i] < second[i]]
    even = [i for i in order if first[i] == second[i]]
    return [*ahead[:2], *behind[:2], *even, *ahead[2:], *behind[2:]][:5]


def begin(run: Run, env: Environment, policy: LanguagePolicy, start: Prompt, config: Config) -> CandidatePool:
    """An empty pool with sizes that a limit pays for: about `CHILDREN` times a minibatch and the validation split."""
    payable, rounds = payable_rollouts(run, env, writes=True), config.rounds
    asks = payable_asks(run, env, payable)
    batch, width = min(config.minibatch, len(env.train)), config.proposals
    if payable is not None:
        each = max(6, payable // CHILDREN)
        batch = max(1, min(batch, each * 2 // 5))
        env = cut_validation(run, env, max(1, min(each - batch, (payable - 2 * batch) // 2)))
        rounds = payable
        width = min(width, (payable // ROUNDS - len(env.validation)) // (2 * batch))
    if asks is not None:
        width = min(width, asks // ROUNDS)
    config = replace(config, minibatch=batch)
    width = max(1, width)
    draw = endless(run.rng, env.train)
    return CandidatePool(env, policy, start, config, draw, payable, asks, rounds, width)


def reflection(about: str, text: str, shown: Sequence[str]) -> str:
    """The question to the optimizer: the instructions, the rollouts under them, the request (the paper's words)."""
    examples = "\n".join(f"<example>\n{rollout}\n</example>" for rollout in shown)
    return f"{about}{INSTRUCTIONS}\n<instructions>\n{text}\n</instructions>\n\n{EXAMPLES}\n{examples}\n\n{REQUEST}"


CHILDREN, ROUNDS, BARREN = 20, 5, 3
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
