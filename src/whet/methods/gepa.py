"""GEPA: reflect on a few rollouts, keep every prompt that is best on something, and combine what they learned.

Agrawal, Tan, Soylu, Ziems, Khare, Opsahl-Ong, Singhvi, Shandilya, Ryan, Jiang, Potts, Sen, Dimakis, Stoica, Klein, Zaharia,
Khattab: GEPA: Reflective Prompt Evolution Can Outperform Reinforcement Learning. 2025. arXiv:2507.19457.

    pool <- {start}, with its score on each validation example
    while the budget lasts:
        now and then: merge two of the pool, each region from the one that changed it
        draw a parent by the number of validation examples on which it is best (superfluous candidates left out)
        roll it out on a minibatch; show inputs, answers and critiques to the optimizer, which writes one region anew
        if the child is better on the minibatch: score it on each validation example, add it to the pool
    return the best of the pool by mean validation score

Differences from the paper and its package (gepa 0.1.4):
1. A parent is reflected on `proposals` minibatches at once, all calls in flight together; the package waits for each. Under a
   limit on calls fewer, and twice as many after a round that accepted none; 12 minibatches in vain end the search.
2. What these reflections changed is merged by line, and tried as one child first, on the rows of all: a line stays where any
   of them kept it, so that what one forgot is not lost. Where they are no edits of the parent, each child is tried alone.
3. A child is accepted by a paired test (`whet.stats`) on the rows of the minibatch, not by a larger sum. While it is ahead
   and the test undecided, both answer further minibatches, up to `looks`. A row whose call failed counts for neither.
4. A minibatch has 8 rows instead of 3: on 3 no test shows anything.
5. No prompt answers a training row twice: the rollouts on which a child was accepted are those that it is first reflected on.
6. A text that copies 32 characters in a row from the input of a single example is dropped (gepa issue 261).
7. A merge takes what changed from both, by line where both changed a region, and is validated when on 5 validation examples,
   balanced over who is better, it is not below the better parent.
8. Within a limit on calls, minibatch and validation split shrink so that about 20 children can be tried; the package's budget
   may end after the first (gepa issue 375). A prompt with the full reward on all these examples tells nothing more: then
   more of the split are taken in, for all candidates. The search ends where it is right on the whole split and has answered at
   least 20 rows, and no training row of these wrong.
9. Where critiques are addressed to prompts of a program, all these are written anew at once, each from its own.
10. A parent of whose reflections none wrote a new text (a small model copies what it sees) gives way to the others.
11. What the test left undecided is validated at the end, with what is left. The result is the best by mean validation
    score, or its child, and so on, that is ahead of it on all rows that both answered: on few validation examples chance
    would choose between a prompt and one that has passed the test against it.

Run it:  whet optimize TASK --method gepa --lm openai/NAME --optimizer-lm openai/NAME
"""

from __future__ import annotations

import math
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
from whet.search.example_front import contested, front
from whet.search.minibatch import answered, better, endless, gains, show_rollout
from whet.search.plan import SMALLEST, cut_validation, payable_asks, payable_rollouts
from whet.search.regions import blamed
from whet.search.text_merge import merged_prompt
from whet.types import Example, Rollout, mean_score


@dataclass(frozen=True)
class Config:
    """Settings of GEPA."""

    rounds: int = 50
    """Rounds at most where no limit on calls is given."""
    proposals: int = 4
    """Reflections on a parent at the same time. Under a limit on calls at most as many as leave five rounds, and twice as
    many after a round that accepted none."""
    minibatch: int = 8
    """Training examples on which a parent is reflected on, and its child compared with it."""
    alpha: float = 0.2
    """A child is accepted at this p-value of the paired test."""
    looks: int = 3
    """Minibatches on which an undecided child is compared at most."""
    merges: int = 5
    """Merges of two candidates at most."""
    parent: Literal["front", "best", "random"] = "front"
    """Who is reflected on: by frequency on the front per example, the best mean, or anybody."""
    tokens: int = 2048
    """Tokens of the optimizer's reply at most; where the text is long, about twice its length."""


async def gepa(
    run: Run, env: Environment, policy: LanguagePolicy, start: Prompt, config: Config
) -> Candidate:
    """Reflective evolution; see the module."""
    pool = begin(run, env, replace(policy, max_tokens=config.tokens), start, config)
    pool.take(
        run,
        Outcome(Candidate(start), True, validation=await pool.env.evaluate(run, start, pool.env.validation)),
    )
    for _ in range(pool.rounds):
        await widen(run, pool)
        if pool.done:
            break
        await merge(run, pool)
        parent = pool.choose(run)
        batches = pool.batches(parent)
        if not batches:
            break
        children = await reflect(run, pool, parent, batches)
        together = union(pool, parent, children)
        accepted = together is not None and await compare(run, pool, parent, [together])
        accepted = accepted or await compare(run, pool, parent, children)
        pool.idle = 0 if accepted else pool.idle + len(batches)
    await decide(run, pool)
    return pool.best or Candidate(start)


@dataclass(frozen=True)
class Child:
    """A prompt made from a parent, how, and the rows on which it is compared with it; `sure`: and validated at the same time."""

    prompt: Prompt
    operator: str
    rows: Sequence[Example]
    sure: bool = False


@dataclass(frozen=True)
class Outcome:
    """What became of a candidate: its rollouts, and the rows on which it was compared, shown to nobody yet; `ahead`: by how much
    reward, where the test is undecided."""

    candidate: Candidate
    accepted: bool
    training: Sequence[Rollout] = ()
    validation: Sequence[Rollout] = ()
    rows: Sequence[Example] = ()
    ahead: float = 0.0


@dataclass
class CandidatePool:
    """The accepted candidates with their rewards on each validation example, and what may still be spent.

    A round has `width` reflections; under a limit as many more as there were (`idle`) since a child was accepted. Of `barren`
    parents the last reflections wrote nothing new.
    """

    env: Environment
    policy: LanguagePolicy
    start: Prompt
    config: Config
    draw: Iterator[Example]
    rollouts: float
    asks: float
    rounds: int
    width: int
    idle: int = 0
    reflections: int = 0
    archive: Archive = field(default_factory=Archive)
    scores: dict[str, list[float]] = field(default_factory=dict)
    known: dict[tuple[str, str], Rollout] = field(default_factory=dict)
    unseen: dict[str, Sequence[Example]] = field(default_factory=dict)
    turns: dict[str, int] = field(default_factory=dict)
    merged: set[tuple[str, str]] = field(default_factory=set)
    barren: set[str] = field(default_factory=set)
    grown: bool = False
    undecided: list[Outcome] = field(default_factory=list)
    unused: Sequence[Example] = ()

    @property
    def done(self) -> bool:
        """Whether nothing can become better, or nothing more can be asked for."""
        given_up = self.idle >= IDLE and math.isfinite(self.rollouts)
        return given_up or self.asks == 0 or any(map(self.perfect, self.scores))

    def saturated(self) -> bool:
        """Whether a candidate has the full reward on all validation rows that are used."""
        return any(min(scores) >= self.env.reward.high for scores in self.scores.values())

    def perfect(self, name: str) -> bool:
        """Whether a candidate has the full reward on the whole validation split and on every other row, 20 at least, that it
        answered."""
        rewards = [r.reward for (prompt, _), r in self.known.items() if prompt == name]
        enough = len(rewards) >= min(ENOUGH, len(self.env.validation) + len(self.env.train))
        return not self.unused and enough and min(rewards) >= self.env.reward.high

    @property
    def best(self) -> Candidate | None:
        """The best by mean validation score, or its child, and so on, that is ahead of it on all rows that both answered."""
        best, outside = self.archive.incumbent, self.archive.outside
        for name in self.scores:
            child = self.archive.members[name]
            if best is None or best.id not in child.parents or name in outside:
                continue
            rows = [row for prompt, row in self.known if prompt == name and (best.id, row) in self.known]
            olds, news = ([self.known[prompt, row] for row in rows] for prompt in (best.id, name))
            best = child if sum(gains(olds, news)) > 0 else best
        return best

    def take(self, run: Run, outcome: Outcome) -> None:
        """Take in what became of a candidate, and what that cost."""
        child = outcome.candidate
        self.learn([*outcome.training, *outcome.validation])
        if outcome.ahead > 0 and not outcome.accepted:
            self.undecided.append(outcome)
        if self.archive.add(run, child) and outcome.accepted:
            self.accept(run, outcome)

    def accept(self, run: Run, outcome: Outcome) -> None:
        """Make a candidate with its rollouts on validation rows one of the pool."""
        child = outcome.candidate
        turn = max((self.turns.get(parent, 0) for parent in child.parents), default=0)
        self.learn(outcome.validation)
        self.archive.measured(run, self.env, child, outcome.validation)
        self.scores[child.id] = [r.reward for r in outcome.validation]
        self.unseen[child.id], self.turns[child.id], self.grown = outcome.rows, turn, True

    def learn(self, rollouts: Sequence[Rollout]) -> None:
        """Take in rollouts; those that were not known have been paid for."""
        before = len(self.known)
        self.known |= {(r.prompt_id, r.example_id): r for r in rollouts}
        self.rollouts -= len(self.known) - before

    def batches(self, parent: Candidate) -> list[list[Example]]:
        """The minibatches for a round of reflections on a parent, as many as can be paid for: first what it was accepted on."""
        left, size = self.rollouts - len(self.env.validation), self.config.minibatch
        width = self.width + (self.idle if math.isfinite(left) else 0)
        rows, batches = list(self.unseen.pop(parent.id, ())), list[list[Example]]()
        while len(batches) < width:
            batch = rows[len(batches) * size :][:size] or self.batch([row for b in batches for row in b])
            left -= sum((parent.id, row.id) not in self.known for row in batch) + len(batch)
            if not batch or left < 0:
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
        scores = {name: s for name, s in self.scores.items() if name not in self.barren} or self.scores
        weights = front(scores) if self.config.parent == "front" else dict.fromkeys(scores, 1)
        name = run.rng.choices(list(weights), list(weights.values()))[0]
        return self.archive.members[name]

    async def answers(self, run: Run, prompt: Prompt, rows: Sequence[Example]) -> list[Rollout]:
        """Rollouts of a prompt on training examples; those that are known are not asked for again."""
        new = [row for row in rows if (prompt.id, row.id) not in self.known]
        fresh = {r.example_id: r for r in await self.env.evaluate(run, prompt, new)} if new else {}
        return [fresh.get(row.id) or self.known[prompt.id, row.id] for row in rows]


async def widen(run: Run, pool: CandidatePool) -> None:
    """Score all candidates on more rows of the validation split while one has the full reward on all that are used, as long as
    that takes no more than a quarter of what is left."""
    while pool.unused and pool.saturated():
        size = min(len(pool.unused), max(SMALLEST, len(pool.env.validation)))
        rows = run.rng.sample(list(pool.unused), size)
        members = [pool.archive.members[name] for name in pool.scores]
        if len(rows) * len(members) > pool.rollouts / 4:
            break
        prompts = [member.prompt for member in members]
        answers = await run.map(partial(pool.env.evaluate, examples=rows), prompts)
        pool.env = replace(pool.env, validation=(*pool.env.validation, *rows))
        pool.unused = [row for row in pool.unused if row not in rows]
        everything = []
        for member, rollouts in zip(members, answers, strict=True):
            pool.learn(rollouts)
            pool.scores[member.id] += [r.reward for r in rollouts]
            everything.append([pool.known[member.id, row.id] for row in pool.env.validation])
        pool.archive.measured_again(run, pool.env, members, everything)


async def reflect(
    run: Run, pool: CandidatePool, parent: Candidate, batches: Sequence[Sequence[Example]]
) -> list[Child]:
    """The new prompts that reflections on minibatches write, at once, none twice."""
    pool.learn(await pool.answers(run, parent.prompt, [row for batch in batches for row in batch]))
    jobs: list[tuple[int, Sequence[Example], list[str]]] = []
    names = editable(pool.start)
    for batch in batches:
        olds = [pool.known[parent.id, row.id] for row in batch]
        regions = blamed(pool.start, names, names[pool.turns[parent.id] % len(names)], olds)
        pool.turns[parent.id] += 1
        if pool.asks >= len(regions) and any(r.reward < pool.env.reward.high for r in answered(olds)):
            jobs.append((pool.reflections, batch, regions))
            pool.asks, pool.reflections = pool.asks - len(regions), pool.reflections + 1

    async def write(branch: Run, job: tuple[int, Sequence[Example], list[str]]) -> Child:
        sample, batch, regions = job
        prompt = parent.prompt
        question = partial(rewritten, pool=pool, parent=parent, rows=batch, sample=sample)
        for region, written in zip(regions, await branch.map(question, regions), strict=True):
            prompt = prompt if written is None else moved(pool.start, prompt, region, written)
        return Child(prompt, f"reflection on {', '.join(regions)}", batch)

    children = {child.prompt.id: child for child in await run.map(write, jobs)}
    new = [child for child in children.values() if child.prompt not in pool.archive]
    if len(jobs) > 1 and not new:
        pool.barren.add(parent.id)
    return new


async def rewritten(
    run: Run, region: str, pool: CandidatePool, parent: Candidate, rows: Sequence[Example], sample: int
) -> Prompt | None:
    """The parent with one region written anew; None without a usable reply."""
    base, focused = parent.prompt.restored(region, pool.start), pool.start.focused(region)
    text, pairs = text_in(focused, parent.prompt), [(row, pool.known[parent.id, row.id]) for row in rows]
    shown = [show_rollout(row, in_focus(old, focused)) for row, old in pairs if answered([old])]
    question = reflection(setting(pool.env.description, base, region), text, shown)
    written = await pool.policy.rewrite(run, base, question, sample=sample, text=text, region=region)
    fit = [p for p in written if not copied_input(p.source, pool.env.train, parent.prompt.source)]
    if len(fit) < len(written):
        run.log("copied", len(written) - len(fit))
    return fit[0] if fit else None


def union(pool: CandidatePool, parent: Candidate, children: Sequence[Child]) -> Child | None:
    """All that the children of a parent changed, as one child; None where nothing of two of them can be merged."""
    if not children:
        return None
    prompt, rows = children[0].prompt, [*children[0].rows]
    for child in children[1:]:
        merged = merged_prompt(pool.start, parent.prompt, prompt, child.prompt)
        if merged is not None:
            prompt, rows = merged, [*rows, *child.rows]
    known = prompt in pool.archive or len(rows) == len(children[0].rows)
    return None if known else Child(prompt, "union of reflections", rows, sure=True)


async def compare(run: Run, pool: CandidatePool, parent: Candidate, children: Sequence[Child]) -> bool:
    """Compare children with their parent, at once, as far as it can be paid for; validate the better ones. Whether any is."""
    left, size = pool.rollouts, 2 * pool.config.minibatch
    jobs: list[tuple[Child, list[list[Example]]]] = []
    taken = [row for child in children for row in child.rows]
    for n, child in enumerate(children):
        need, later = len(child.rows) + len(pool.env.validation), list[list[Example]]()
        share = left / (len(children) - n) - need
        while len(later) < pool.config.looks - 1 and share >= size * (len(later) + 1):
            later.append(pool.batch(taken))
            taken += later[-1]
        if left >= need:
            jobs.append((child, [rows for rows in later if rows]))
            left -= need + 2 * sum(map(len, later))

    async def outcome(branch: Run, job: tuple[Child, list[list[Example]]]) -> Outcome:
        child, later = job
        both, span = [parent.prompt, child.prompt], pool.env.reward.high - pool.env.reward.low
        rows = [*child.rows, *(pool.env.validation if child.sure else ())]
        olds = [pool.known[parent.id, row.id] for row in child.rows]
        every = await pool.answers(branch, child.prompt, rows)
        news, validated = every[: len(child.rows)], every[len(child.rows) :]
        verdict = better(olds, news, span, pool.config.alpha)
        for batch in later:
            if verdict is None:
                more = await branch.map(partial(pool.answers, rows=batch), both)
                olds, news = [*olds, *more[0]], [*news, *more[1]]
                verdict = better(olds, news, span, pool.config.alpha)
        candidate = Candidate(child.prompt, (parent.id,), child.operator, mean_score(news))
        if verdict and not validated:
            validated = await pool.env.evaluate(branch, child.prompt, pool.env.validation)
        ahead = sum(gains(olds, news)) if verdict is None else 0.0
        return Outcome(candidate, bool(verdict), [*olds, *news], validated, child.rows, ahead)

    outcomes = await run.map(outcome, jobs)
    for each in outcomes:
        pool.take(run, each)
    return any(each.accepted for each in outcomes)


async def decide(run: Run, pool: CandidatePool) -> None:
    """At the end, validate children that the test left undecided, the one that is furthest ahead first, with what is left."""
    for outcome in sorted(pool.undecided, key=lambda one: -one.ahead):
        rows = pool.env.validation
        if pool.rollouts < len(rows):
            break
        validated = await pool.answers(run, outcome.candidate.prompt, rows)
        pool.accept(run, replace(outcome, accepted=True, validation=validated))


async def merge(run: Run, pool: CandidatePool) -> None:
    """Merge two candidates of the front, the best pair first. Validate it where it is not below the better one on a few rows."""
    rows, best = pool.env.validation, sorted(front(pool.scores), key=lambda c: -sum(pool.scores[c]))
    pairs = list(combinations(best, 2)) if pool.grown and len(pool.merged) < pool.config.merges else []
    pool.grown = False
    for pair in pairs:
        prompt = None if pair in pool.merged else combined(pool, *pair)
        if prompt is None or prompt in pool.archive or pool.rollouts < len(rows):
            continue
        pool.merged.add(pair)
        few = contested(run.rng, *(pool.scores[name] for name in pair))
        rest = [i for i in range(len(rows)) if i not in few]
        tried = await pool.env.evaluate(run, prompt, [rows[i] for i in few])
        passed = sum(r.reward for r in tried) >= max(sum(pool.scores[name][i] for i in few) for name in pair)
        others = await pool.env.evaluate(run, prompt, [rows[i] for i in rest]) if passed else []
        by_row = {r.example_id: r for r in [*tried, *others]}
        validated = [by_row[row.id] for row in rows] if passed else []
        pool.take(run, Outcome(Candidate(prompt, pair, "merge"), passed, [*tried, *others], validated))
        break


def combined(pool: CandidatePool, better: str, other: str) -> Prompt | None:
    """What two candidates changed since their last common ancestor, unless that is one of them."""
    line, members = pool.archive.lineage(other), pool.archive.members
    common = [name for name in pool.archive.lineage(better) if name in line]
    if not common or common[-1] in (better, other):
        return None
    ancestor = members[common[-1]].prompt
    return merged_prompt(pool.start, ancestor, members[better].prompt, members[other].prompt)


def begin(run: Run, env: Environment, policy: LanguagePolicy, start: Prompt, config: Config) -> CandidatePool:
    """An empty pool with sizes that a limit pays for: about `CHILDREN` times a minibatch and the validation split."""
    payable, rounds = payable_rollouts(run, env, writes=True), config.rounds
    asks = payable_asks(run, env, payable)
    batch, width, unused = min(config.minibatch, len(env.train)), config.proposals, list[Example]()
    if payable is not None:
        each, rounds = max(6, payable // CHILDREN), payable
        batch = max(1, min(batch, each * 2 // 5))
        whole, env = (
            env.validation,
            cut_validation(run, env, max(1, min(each - batch, (payable - 2 * batch) // 2))),
        )
        unused = [row for row in whole if row not in env.validation]
        width = min(width, (payable // ROUNDS - len(env.validation)) // (2 * batch))
    width = max(1, width if asks is None else min(width, asks // ROUNDS))
    config, draw = replace(config, minibatch=batch), endless(run.rng, env.train)
    left, questions = (math.inf if limit is None else limit for limit in (payable, asks))
    return CandidatePool(env, policy, start, config, draw, left, questions, rounds, width, unused=unused)


def reflection(about: str, text: str, shown: Sequence[str]) -> str:
    """The question to the optimizer: the instructions, the rollouts under them, the request (the paper's words)."""
    examples = "\n".join(f"<example>\n{rollout}\n</example>" for rollout in shown)
    return f"{about}{INSTRUCTIONS}\n<instructions>\n{text}\n</instructions>\n\n{EXAMPLES}\n{examples}\n\n{REQUEST}"


CHILDREN, ROUNDS, IDLE, ENOUGH = 20, 5, 12, 20
INSTRUCTIONS = "I provided an assistant with the following instructions to perform a task for me:"
EXAMPLES = (
    "The following are examples of different task inputs provided to the assistant along with the assistant's response for "
    "each of them, and some feedback on how the assistant's response could be better:"
)
REQUEST = (
    "Your task is to improve the prompt of the assistant: write its whole instruction anew. Read the inputs carefully and "
    "identify the input format and infer detailed task description about the task I wish to solve with the assistant. Read "
    "all the assistant responses and the corresponding feedback. Identify all niche and domain specific factual information"
    " about the task and include it in the instruction, as a lot of it may not be available to the assistant in the future."
    " The assistant may have utilized a generalizable strategy to solve the task, if so, include that in the instruction as"
    " well. Keep what the instructions say already and is still needed. Do not copy the inputs."
)
