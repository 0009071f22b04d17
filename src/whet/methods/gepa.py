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
1. A parent is reflected on `proposals` times at once, on minibatches that overlap where a limit pays for few rows; the package
   waits for each reflection. `proposals` of 1 is the package's way.
2. What these reflections changed is merged by line, and tried as one child first, on the rows of all: a line stays where any
   of them kept it, so that what one forgot is not lost. Where they are no edits of the parent, or that child earns no more,
   each child is tried alone. `union` of false tries them alone always.
3. A child is accepted as in the package, where its sum on the minibatch is larger. With `alpha` a paired test (`whet.stats`)
   decides, on up to `looks` minibatches. A row whose call failed counts for neither.
4. A minibatch has 8 rows instead of 3. A reflection shows failures of all training rows that the parent has answered, their
   targets by turns, and one right row for each three of them; where targets are labels also all right answers, and
   which was given for which; the parent's own parent and children with what they earned, and which rows an ancestor had right.
   Where failures are few, each reflection of a round leaves out another quarter of them; of four or fewer one reflection
   shows all. The package shows its minibatch.
5. No prompt answers a training row twice: the rollouts on which a child was accepted are those that it is first reflected on.
6. A text that copies 32 characters in a row from the input of a single example is dropped (gepa issue 261).
7. A merge takes what changed from both, by line where both changed a region, and is validated when on 5 validation examples,
   balanced over who is better, it is not below the better parent.
8. Under a limit on calls the rows of a round are fewer, so that about four rounds can be validated, and of the accepted children
   of a round the best one is validated. The others wait, with those that are level with their parent; they are validated at the
   end with what is left. The search ends where a prompt is right on the whole validation split and on 20 rows at least.
9. Where critiques are addressed to prompts of a program, all these are written anew at once, each from its own.
10. A parent of whose reflections none wrote a new text (a small model copies what it sees) gives way to the others.
11. What is left at the end goes into the choice between the two best: both answer training rows that neither has answered.
12. If the start prompt has a reward of zero, other prompts are tried first: demonstrations, the list of right answers, and both
    (`whet.search.from_zero`).
13. `grouped` is ComBEE (2026, arXiv:2604.04247): all n known failures of the parent are dealt to floor(sqrt(n)) groups, each to
    two different ones (ComBEE may deal both copies to one). A reflection on each group writes a draft, and one more call makes
    one text of the drafts, the child. Fewer than 4 failures are reflected on as always.

Run it:  whet optimize TASK --method gepa --lm openai/NAME --optimizer-lm openai/NAME
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations
from typing import Literal

from whet._util.fields import NonNegativeInt, PositiveFloat, PositiveInt
from whet.environments.environment import Environment
from whet.environments.program import in_focus
from whet.errors import named_fields
from whet.instructions.critiques import frequent_answers
from whet.instructions.guard import secrets
from whet.methods.method import MethodEntry
from whet.prompt import Prompt
from whet.rewards.targets import targets_of
from whet.rl import LanguagePolicy, in_tags, setting
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.copies import copied_input
from whet.search.corrections import without_repeats
from whet.search.demonstrations import editable
from whet.search.edits import move_region, text_in
from whet.search.example_front import contested_examples, front
from whet.search.from_zero import TRIED, cost, from_zero
from whet.search.labels import by_label, count_confusions, right_answers, say_one_sided
from whet.search.minibatch import (
    answered_rollouts,
    better,
    deal_twice,
    gains,
    infinite_batches,
    minibatch,
    say_cut,
    shorten,
    show_rollout,
)
from whet.search.plan import Purse, affordable_rows, count_purse, cut_validation, open_purse, recorded_rows
from whet.search.regions import blamed_regions
from whet.search.text_merge import merged_prompt
from whet.search.versions import OtherVersion, compare_rewards, show_versions
from whet.types import Example, Rollout, mean_score

ENTRY = MethodEntry(
    "gepa",
    "GEPA: reflection, and a front of prompts per example",
    version=14,
    rank=20,
    when="the reward says what is wrong, and the instruction should stay one text",
    paper="Agrawal et al., 2025",
    arxiv="2507.19457",
    needs=("optimizer",),
    edits_all=True,
)


@named_fields
@dataclass(frozen=True)
class Config:
    """Settings of GEPA."""

    rounds: NonNegativeInt = 50
    """The largest number of rounds without a limit on calls."""
    proposals: PositiveInt = 4
    """Reflections on a parent at the same time. Under a limit on calls at most as many as leave five rounds."""
    minibatch: PositiveInt = 8
    """Training examples that a parent answers for a reflection, and on which its child is compared with it."""
    shown: PositiveInt = 8
    """Rollouts that a reflection shows at most: failures first."""
    grouped: bool = False
    """ComBEE: reflections on groups of all known failures (each failure is in two groups), whose drafts are combined into one
    text."""
    union: bool = True
    """Whether the changes of a round's reflections are first merged by line and tried as one child."""
    alpha: PositiveFloat | None = None
    """None: a child is accepted if it earns more on the minibatch. A number: a child is accepted at this p-value of the paired
    test."""
    looks: PositiveInt = 3
    """With `alpha`: minibatches on which an undecided child is compared at most."""
    merges: NonNegativeInt = 5
    """Merges of two candidates at most."""
    parent: Literal["front", "best", "random"] = "front"
    """The choice of the parent: by frequency on the front per example, by the best mean, or at random."""
    tokens: PositiveInt = 2048
    """The largest number of tokens of the optimizer's reply; for a long text, about twice its length."""


async def gepa(
    run: Run, env: Environment, policy: LanguagePolicy, start: Prompt, config: Config
) -> Candidate:
    """Reflective evolution; see the module."""
    pool = begin(run, env, replace(policy, max_tokens=config.tokens), start, config)
    first = await pool.env.evaluate(run, start, pool.env.validation)
    pool.take(run, Outcome(Candidate(start), True, validation=first))
    await leave_zero(run, pool)
    for _ in range(pool.rounds):
        await pool.count(run)
        if pool.done:
            break
        await merge(run, pool)
        parent = pool.choose(run)
        batches = pool.batches(parent)
        if not batches:
            break
        children = await reflect(run, pool, parent, batches)
        together = union(pool, parent, children) if config.union and len(children) > 1 else None
        accepted = together is not None and await compare(run, pool, parent, [together])
        if not accepted:
            await compare(run, pool, parent, children)
    await decide(run, pool)
    return pool.best or Candidate(start)


@dataclass(frozen=True)
class Child:
    """A prompt made from a parent, how, and the rows on which it is compared with it."""

    prompt: Prompt
    operator: str
    rows: Sequence[Example]


@dataclass(frozen=True)
class Outcome:
    """The outcome of a candidate: its rollouts, and the rows on which it was compared; `ahead` is the difference of the
    rewards."""

    candidate: Candidate
    accepted: bool
    training: Sequence[Rollout] = ()
    validation: Sequence[Rollout] = ()
    rows: Sequence[Example] = ()
    ahead: float = 0.0


@dataclass
class CandidatePool:
    """The accepted candidates with their rewards on each validation example, and what may still be spent.

    A round has `width` reflections. Of `barren` parents the last reflections wrote nothing new. `waiting` are children that
    are not behind their parent and not validated. `unseen` are the rows on which a candidate was accepted.
    """

    env: Environment
    policy: LanguagePolicy
    start: Prompt
    config: Config
    draw: Iterator[Example]
    purse: Purse
    rounds: int
    width: int
    fresh: int
    reflections: int = 0
    archive: Archive = field(default_factory=Archive)
    scores: dict[str, list[float]] = field(default_factory=dict)
    known: dict[tuple[str, str], Rollout] = field(default_factory=dict)
    unseen: dict[str, Sequence[Example]] = field(default_factory=dict)
    turns: dict[str, int] = field(default_factory=dict)
    merged: set[tuple[str, str]] = field(default_factory=set)
    barren: set[str] = field(default_factory=set)
    grown: bool = False
    waiting: list[Outcome] = field(default_factory=list)
    finalists: Sequence[str] = ()
    settled: frozenset[str] = frozenset()

    @property
    def left(self) -> float:
        """Rollouts that can be paid for beside one more call of the optimizer model."""
        return self.purse.payable(1)

    @property
    def done(self) -> bool:
        """Whether nothing can become better, or nothing more can be asked for."""
        return self.purse.questions < 1 or any(map(self.perfect, self.scores))

    async def count(self, run: Run) -> None:
        """Set the purse to what is left, where there is a limit."""
        if self.purse.questions < math.inf or self.purse.payable() < math.inf:
            self.purse = await count_purse(run, self.env)

    def perfect(self, name: str) -> bool:
        """Whether a candidate has the full reward on the whole validation split and on every other row, 20 at least, that it
        answered."""
        rewards = [r.reward for (prompt, _), r in self.known.items() if prompt == name]
        enough = len(rewards) >= min(ENOUGH, len(self.env.validation) + len(self.env.train))
        return enough and min(rewards) >= self.env.reward.high

    @property
    def best(self) -> Candidate | None:
        """The best by mean validation score, or the other finalist where that is ahead of it on validation and the rows that both
        answered at the end. With `alpha` its child, and so on, that is ahead of it on all rows that both answered."""
        best, outside = self.archive.incumbent, self.archive.outside
        for name in self.finalists:
            if best is not None and name not in outside and self.lead(best.id, name, self.settled) > 0:
                best = self.archive.members[name]
        for name in self.scores if self.config.alpha is not None else ():
            child = self.archive.members[name]
            if best is None or best.id not in child.parents or name in outside:
                continue
            best = child if self.lead(best.id, name) > 0 else best
        return best

    def lead(self, old: str, new: str, only: Collection[str] | None = None) -> float:
        """By how much reward one candidate is ahead of another on the rows that both answered, or on those named."""
        rows = [row for prompt, row in self.known if prompt == new and (old, row) in self.known]
        rows = rows if only is None else [row for row in rows if row in only]
        olds, news = ([self.known[prompt, row] for row in rows] for prompt in (old, new))
        return sum(gains(olds, news))

    def take(self, run: Run, outcome: Outcome) -> None:
        """Take in what became of a candidate, and what that cost."""
        child = outcome.candidate
        self.learn([*outcome.training, *outcome.validation])
        if not self.archive.add(run, child):
            return
        if outcome.accepted:
            self.accept(run, outcome)
        elif outcome.training and outcome.ahead >= 0:
            self.waiting.append(outcome)

    def accept(self, run: Run, outcome: Outcome) -> None:
        """Make a candidate with its rollouts on validation rows one of the pool."""
        child = outcome.candidate
        turn = max((self.turns.get(parent, 0) for parent in child.parents), default=0)
        self.learn(outcome.validation)
        self.archive.add_rollouts(run, self.env, child, outcome.validation)
        self.scores[child.id] = [r.reward for r in outcome.validation]
        self.unseen[child.id], self.turns[child.id], self.grown = outcome.rows, turn, True

    def learn(self, rollouts: Sequence[Rollout]) -> None:
        """Take in rollouts; those that were not known have been paid for."""
        before = len(self.known)
        self.known |= {(r.prompt_id, r.example_id): r for r in rollouts}
        self.purse.pay(rollouts=len(self.known) - before)

    def failures(self, parent: Candidate) -> list[Example]:
        """The training rows that a candidate is known to fail on, their targets by turns."""
        wrong = [
            row
            for row in self.env.train
            if (known := self.known.get((parent.id, row.id))) is not None
            and known.reward < self.env.reward.high
            and answered_rollouts([known])
        ]
        return by_label(wrong)

    def find_lost_rows(self, parent: Candidate) -> set[str]:
        """The rows that a candidate has wrong and one of its ancestors had right."""
        older = set(self.archive.lineage(parent.id)) - {parent.id}
        high = self.env.reward.high
        right = {row for (name, row), r in self.known.items() if name in older and r.reward >= high}
        return {row for row in right if (r := self.known.get((parent.id, row))) and r.reward < high}

    def batches(self, parent: Candidate) -> list[list[Example]]:
        """The minibatches of a round of reflections on a parent: of `fresh` rows, first those that it was accepted on. They
        overlap where these are too few. None where a comparison and a validation cannot be paid for."""
        left, size = self.left - len(self.env.validation), self.config.minibatch
        rows = list(self.unseen.pop(parent.id, ()))[: self.fresh]
        rows += self.draw_rows(self.fresh - len(rows), rows)
        while rows and left < len(rows) + sum((parent.id, row.id) not in self.known for row in rows):
            rows.pop()
        starts = dict.fromkeys(turn * len(rows) // self.width for turn in range(self.width))
        again = [*rows, *rows]
        return [again[at : at + min(size, len(rows))] for at in starts if rows]

    def draw_rows(self, number: int, but: Sequence[Example]) -> list[Example]:
        """The next training examples, none twice and none of those named."""
        taken = {row.id for row in but}
        number = min(number, len(self.env.train) - len(taken))
        rows: dict[str, Example] = {}
        while len(rows) < number:
            row = next(self.draw)
            if row.id not in taken:
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
        """Rollouts of a prompt on examples; those that are known are not asked for again."""
        new = list({row.id: row for row in rows if (prompt.id, row.id) not in self.known}.values())
        fresh = {r.example_id: r for r in await self.env.evaluate(run, prompt, new)} if new else {}
        return [fresh.get(row.id) or self.known[prompt.id, row.id] for row in rows]


async def leave_zero(run: Run, pool: CandidatePool) -> None:
    """Where the start earned nothing, validate the best of the prompts that need no optimizer call, if it earns."""
    size, validation = min(TRIED, len(pool.env.train)), pool.env.validation
    while size and cost(size, joined=True) + len(validation) > pool.left / 2:
        size -= 1
    rows = minibatch(run.rng, pool.env.train, size, balanced=True)
    tried = await from_zero(run, pool.env, pool.archive, pool.start, rows, secrets, joined=True)
    pool.purse.pay(rollouts=sum(len(first.rollouts) for first in tried))
    for candidate in [first.candidate for first in tried[:1]]:
        if candidate.mean > pool.env.reward.low:
            rollouts = await pool.env.evaluate(run, candidate.prompt, validation)
            pool.accept(run, Outcome(candidate, True, validation=rollouts))


async def reflect(
    run: Run, pool: CandidatePool, parent: Candidate, batches: Sequence[Sequence[Example]]
) -> list[Child]:
    """The new prompts that reflections on minibatches write, at once, none twice."""
    pool.learn(await pool.answers(run, parent.prompt, [row for batch in batches for row in batch]))
    jobs: list[tuple[int, Sequence[Example], Sequence[Example], list[str]]] = []
    names, failures, asks = editable(pool.start), pool.failures(parent), pool.purse.questions
    whole = list({row.id: row for batch in batches for row in batch}.values())
    most = min(math.isqrt(len(failures)), asks - len(names)) if pool.config.grouped else 0
    groups = deal_twice(run.rng, failures, int(most)) if most > 1 else []
    shown = [(whole, group) for group in groups] or once_each(
        [
            (batch, shown_rows(pool, parent, batch, failures, turn / len(batches)))
            for turn, batch in enumerate(batches)
        ]
    )
    for batch, rows in shown:
        olds = [pool.known[parent.id, row.id] for row in rows]
        regions = blamed_regions(pool.start, names, names[pool.turns[parent.id] % len(names)], olds)
        pool.turns[parent.id] += 1
        if asks >= len(regions) and any(row in failures for row in rows):
            jobs.append((pool.reflections, batch, rows, regions))
            asks, pool.reflections = asks - len(regions), pool.reflections + 1
    spare = asks >= sum(len(regions) for *_, regions in jobs)
    policy = replace(pool.policy.adapt(), attempts=2 if spare else 1, charge=lambda n: pool.purse.pay(asks=n))

    async def write(branch: Run, job: tuple[int, Sequence[Example], Sequence[Example], list[str]]) -> Child:
        sample, batch, rows, regions = job
        prompt = parent.prompt
        question = partial(rewritten, pool=pool, policy=policy, parent=parent, rows=rows, sample=sample)
        for region, written in zip(regions, await branch.map(question, regions), strict=True):
            prompt = prompt if written is None else move_region(pool.start, prompt, region, written)
        return Child(prompt, f"reflection on {', '.join(regions)}", batch)

    children = {child.prompt.id: child for child in await run.map(write, jobs)}
    if groups and len(children) > 1:
        one = await reduce_drafts(run, pool, policy, parent, list(children.values()), whole)
        children = {one.prompt.id: one}
    new = [child for child in children.values() if child.prompt not in pool.archive]
    if len(jobs) > 1 and not new:
        pool.barren.add(parent.id)
    return new


def once_each(
    reflections: Sequence[tuple[Sequence[Example], Sequence[Example]]],
) -> list[tuple[list[Example], Sequence[Example]]]:
    """Minibatches with the rows that a reflection on each shows: those that show the same rows are one reflection, and its child
    is compared on the rows of all of them."""
    joined: dict[frozenset[str], tuple[dict[str, Example], Sequence[Example]]] = {}
    for batch, rows in reflections:
        compared, _ = joined.setdefault(frozenset(row.id for row in rows), ({}, rows))
        compared |= {row.id: row for row in batch}
    return [(list(compared.values()), rows) for compared, rows in joined.values()]


async def reduce_drafts(
    run: Run,
    pool: CandidatePool,
    policy: LanguagePolicy,
    parent: Candidate,
    drafts: Sequence[Child],
    rows: Sequence[Example],
) -> Child:
    """One child of several drafts: of a region that several wrote anew, a text that a model makes of these; where it makes none,
    the first of them."""
    prompt = parent.prompt
    for region in editable(pool.start):
        focused = pool.start.with_focus(region)
        old = text_in(focused, parent.prompt)
        changed = {text_in(focused, draft.prompt): draft.prompt for draft in drafts}
        changed.pop(old, None)
        source = next(iter(changed.values()), None)
        if len(changed) > 1:
            base, sample = parent.prompt.restore(region, pool.start), pool.reflections
            pool.reflections += 1
            question = reduction(setting(pool.env.description, base, region), old, list(changed))
            written = await policy.rewrite(run, base, question, sample=sample, text=old, region=region)
            fit = [p for p in written if not copied_input(p.source, pool.env.train, parent.prompt.source)]
            source = fit[0] if fit else source
        prompt = prompt if source is None else move_region(pool.start, prompt, region, source)
    return Child(prompt, REDUCED, rows)


def reduction(about: str, text: str, drafts: Sequence[str]) -> str:
    """The question to the optimizer: the instructions, several rewrites of them, the request."""
    shown = "\n".join(map(in_tags, drafts))
    return f"{FIRST_OF_DRAFTS}\n\n{about}{INSTRUCTIONS}\n<instructions>\n{text}\n</instructions>\n\n{DRAFTS}\n{shown}\n\n{REDUCE}"


def shown_rows(
    pool: CandidatePool,
    parent: Candidate,
    batch: Sequence[Example],
    failures: Sequence[Example],
    turn: float = 0.0,
) -> list[Example]:
    """The training rows that a reflection shows: failures in the minibatch, then others, their targets by turns, then for each
    three of these one row of the minibatch that is right.

    Each reflection of a round begins its turn elsewhere in the failures (`turn`: at which share of them), and where these are few
    it leaves out a quarter, so that no two show the same rows; of `ALONE` failures or fewer each shows all.
    """
    first, few = int(turn * len(failures)), max(ALONE, -(-3 * len(failures) // 4))
    order = [*failures[first:], *failures[:first]]
    wrong = sorted(order, key=lambda row: row not in batch)[: min(pool.config.shown, few)]
    right = [
        row for row in batch if row not in failures and answered_rollouts([pool.known[parent.id, row.id]])
    ]
    return [*wrong, *right[: min(pool.config.shown - len(wrong), len(wrong) // 3)]]


async def rewritten(
    run: Run,
    region: str,
    pool: CandidatePool,
    policy: LanguagePolicy,
    parent: Candidate,
    rows: Sequence[Example],
    sample: int,
) -> Prompt | None:
    """The parent with one region written anew; None without a usable reply."""
    base, focused = parent.prompt.restore(region, pool.start), pool.start.with_focus(region)
    text, low = text_in(focused, parent.prompt), pool.env.reward.low
    pairs = without_repeats([(row, pool.known[parent.id, row.id]) for row in rows])
    lost = pool.find_lost_rows(parent)
    shown = [
        show_rollout(row, in_focus(old, focused), low=low)
        + (f"\n{WAS_RIGHT}" if row.id in lost else "")
        + (f"\n{STANDS}" if row.user_text.strip() and row.user_text.strip() in text else "")
        for row, old in pairs
    ]
    about = setting(pool.env.description, base, region)
    others = show_versions(text, versions(pool, parent, focused))
    mine = known_answers(pool, parent)
    full = sum(rollout.reward >= pool.env.reward.high for rollout in mine)
    nearly = FEW * (len(mine) - full) <= len(mine)
    facts = [
        "\n".join(part for part in (tally(mine, full), one_sided(pool, mine)) if part),
        LOST if any(row.id in lost for row in rows) else "",
        told_answers(pool, parent),
        f"{VERSIONS if nearly else VERSIONS_OR_SHORT}\n{others}" if others else "",
    ]
    question = reflection(about, text, shown, facts, REQUEST_LITTLE if nearly else REQUEST)
    written = await policy.rewrite(run, base, question, sample=sample, text=text, region=region)
    fit = [p for p in written if not copied_input(p.source, pool.env.train, parent.prompt.source)]
    if len(fit) < len(written):
        run.log("copied", len(written) - len(fit))
    return fit[0] if fit else None


def versions(pool: CandidatePool, parent: Candidate, focused: Prompt) -> list[OtherVersion]:
    """Other versions of the parent's text: those that it was made from and its children, the last ones and the one that is
    furthest ahead, each with what it earned on the rows that both answered, and its most frequent wrong answers."""
    text, members = text_in(focused, parent.prompt), pool.archive.members
    tried = [members[name] for name in parent.parents if name in members]
    tried += [one for one in members.values() if parent.id in one.parents]
    first = sorted(tried[:-TRIED_SHOWN], key=lambda one: -pool.lead(parent.id, one.id))[:1]
    others: dict[str, OtherVersion] = {}
    for one in [*first, *tried[-TRIED_SHOWN:]]:
        rows = [row for prompt, row in pool.known if prompt == one.id and (parent.id, row) in pool.known]
        olds, news = ([pool.known[name, row] for row in rows] for name in (parent.id, one.id))
        wrong = [r.output for r in answered_rollouts(news) if r.reward < pool.env.reward.high]
        often = ", ".join(
            frequent_answers((shorten(output, ANSWER_SHOWN) for output in wrong), most=WRONG_SHOWN)
        )
        other = text_in(focused, one.prompt)
        others.setdefault(other, OtherVersion(other, compare_rewards(olds, news), often))
    return [one for one in others.values() if one.earned and one.text != text]


def known_answers(pool: CandidatePool, parent: Candidate) -> list[Rollout]:
    """The answers of a candidate to training rows that are known."""
    mine = (pool.known.get((parent.id, row.id)) for row in pool.env.train)
    return answered_rollouts([rollout for rollout in mine if rollout is not None])


def tally(mine: Sequence[Rollout], full: int) -> str:
    """How many of these answers earned the full reward, and how many were cut off."""
    earned = f"Of {len(mine)} answers with these instructions, {full} earned the full reward." if mine else ""
    return "\n".join(part for part in (earned, say_cut(mine)) if part)


def one_sided(pool: CandidatePool, mine: Sequence[Rollout]) -> str:
    """A sentence about the label that most of these answers are, if it is wanted much less often; empty without labels."""
    labels = right_answers(pool.env).complete
    targets = {row.id: targets_of(row)[0].strip() for row in pool.env.train if row.target is not None}
    outputs = Counter(output for rollout in mine if (output := rollout.output.strip()) in labels)
    return say_one_sided(outputs, Counter(targets.get(rollout.example_id, "") for rollout in mine), len(mine))


def told_answers(pool: CandidatePool, parent: Candidate) -> str:
    """Where targets are labels: all right answers, and which was given for which, by all known rollouts of the parent. Where
    fresh rows may want others: those that are wanted again and again, as examples."""
    answers = right_answers(pool.env)
    if not (labels := answers.complete):
        return "\n".join([SOME_ANSWERS, *(f"- {one}" for one in answers.values)]) if answers.values else ""
    rows = {row.id: row for row in pool.env.train}
    mine = [rollout for (prompt, _), rollout in pool.known.items() if prompt == parent.id]
    mistaken = count_confusions(rows, mine, pool.env.reward.high)
    listed = "\n".join([ANSWERS, *(f"- {label}" for label in labels)])
    return listed if not mistaken else "\n".join([listed, "", CONFUSED, *mistaken])


def union(pool: CandidatePool, parent: Candidate, children: Sequence[Child]) -> Child | None:
    """All that the children of a parent changed, as one child; None where nothing of two of them can be merged."""
    if not children:
        return None
    prompt, parts = children[0].prompt, 1
    rows = {row.id: row for row in children[0].rows}
    for child in children[1:]:
        merged = merged_prompt(pool.start, parent.prompt, prompt, child.prompt)
        if merged is not None:
            prompt, parts = merged, parts + 1
            rows |= {row.id: row for row in child.rows}
    return None if parts < 2 or prompt in pool.archive else Child(prompt, UNION, list(rows.values()))


async def compare(run: Run, pool: CandidatePool, parent: Candidate, children: Sequence[Child]) -> bool:
    """Compare children with their parent, at once, as far as it can be paid for; validate the best of the accepted ones, and
    without a limit all. The others wait. Whether any is validated."""
    validation, left = pool.env.validation, pool.left
    jobs: list[tuple[Child, list[list[Example]]]] = []
    taken = [row for child in children for row in child.rows]
    for n, child in enumerate(children):
        later = list[list[Example]]()
        share = (left - len(validation)) / (len(children) - n) - len(child.rows)
        looks = pool.config.looks - 1 if pool.config.alpha is not None else 0
        while len(later) < looks and share >= 2 * pool.config.minibatch * (len(later) + 1):
            later.append(pool.draw_rows(pool.config.minibatch, taken))
            taken += later[-1]
        if left - len(validation) >= len(child.rows):
            jobs.append((child, [rows for rows in later if rows]))
            left -= len(child.rows) + 2 * sum(map(len, later))

    async def outcome(branch: Run, job: tuple[Child, list[list[Example]]]) -> Outcome:
        child, later = job
        both, span = [parent.prompt, child.prompt], pool.env.reward.high - pool.env.reward.low
        olds = [pool.known[parent.id, row.id] for row in child.rows]
        news = await pool.answers(branch, child.prompt, child.rows)
        verdict = accept_child(olds, news, span, pool.config.alpha)
        for batch in later:
            if verdict is None:
                more = await branch.map(partial(pool.answers, rows=batch), both)
                olds, news = [*olds, *more[0]], [*news, *more[1]]
                verdict = accept_child(olds, news, span, pool.config.alpha)
        candidate = Candidate(child.prompt, (parent.id,), child.operator, mean_score(news))
        return Outcome(candidate, bool(verdict), [*olds, *news], (), child.rows, sum(gains(olds, news)))

    outcomes = sorted(await run.map(outcome, jobs), key=lambda one: -one.ahead / max(1, len(one.rows)))
    accepted = [one for one in outcomes if one.accepted]
    chosen = [one.candidate.id for one in (accepted if pool.left == math.inf else accepted[:1])]
    for each in outcomes:
        pool.take(run, replace(each, accepted=False))
    await validate(run, pool, [one for one in pool.waiting if one.candidate.id in chosen])
    return bool(chosen)


def accept_child(
    olds: Sequence[Rollout], news: Sequence[Rollout], span: float, alpha: float | None
) -> bool | None:
    """Whether a child is accepted: it earns more than its parent on the same rows, or by the test; None while undecided."""
    return sum(gains(olds, news)) > 0 if alpha is None else better(olds, news, span, alpha)


async def validate(run: Run, pool: CandidatePool, outcomes: Sequence[Outcome]) -> None:
    """Validate children that wait, as far as it can be paid for, and make them a part of the pool."""
    most = min(pool.left / max(1, len(pool.env.validation)), len(outcomes))
    due = outcomes[: int(most)]
    ask = partial(pool.answers, rows=pool.env.validation)
    answers = await run.map(ask, [one.candidate.prompt for one in due])
    for one, rollouts in zip(due, answers, strict=True):
        pool.waiting.remove(one)
        pool.accept(run, replace(one, accepted=True, validation=rollouts))


async def decide(run: Run, pool: CandidatePool) -> None:
    """Spend what is left on the choice: validate children that wait, the one that is furthest ahead first; then the two best
    answer training rows that neither has answered."""
    await pool.count(run)
    await validate(run, pool, sorted(pool.waiting, key=lambda one: -one.ahead / max(1, len(one.rows))))
    ranked = sorted(pool.scores, key=lambda name: -sum(pool.scores[name]))[:2]
    if len(ranked) < 2 or math.isinf(pool.purse.payable()):
        return
    new = [row for row in pool.env.train if all((name, row.id) not in pool.known for name in ranked)]
    rows = run.rng.sample(new, min(len(new), int(pool.purse.payable() // 2)))
    prompts = [pool.archive.members[name].prompt for name in ranked]
    for rollouts in await run.map(partial(pool.answers, rows=rows), prompts):
        pool.learn(rollouts)
    pool.finalists = ranked
    pool.settled = frozenset(row.id for row in (*rows, *pool.env.validation))


async def merge(run: Run, pool: CandidatePool) -> None:
    """Merge two candidates of the front, the best pair first. Validate it where it is not below the better one on a few rows."""
    rows, best = pool.env.validation, sorted(front(pool.scores), key=lambda c: -sum(pool.scores[c]))
    pairs = list(combinations(best, 2)) if pool.grown and len(pool.merged) < pool.config.merges else []
    pool.grown = False
    for pair in pairs:
        prompt = None if pair in pool.merged else combine(pool, *pair)
        if prompt is None or prompt in pool.archive or pool.left < len(rows):
            continue
        pool.merged.add(pair)
        few = contested_examples(run.rng, *(pool.scores[name] for name in pair))
        rest = [i for i in range(len(rows)) if i not in few]
        tried = await pool.env.evaluate(run, prompt, [rows[i] for i in few])
        passed = sum(r.reward for r in tried) >= max(sum(pool.scores[name][i] for i in few) for name in pair)
        others = await pool.env.evaluate(run, prompt, [rows[i] for i in rest]) if passed else []
        by_row = {r.example_id: r for r in [*tried, *others]}
        validated = [by_row[row.id] for row in rows] if passed else []
        pool.learn([*tried, *others])
        pool.take(run, Outcome(Candidate(prompt, pair, "merge"), passed, (), validated))
        break


def combine(pool: CandidatePool, better: str, other: str) -> Prompt | None:
    """The changes of two candidates since their last common ancestor, unless one of them is that ancestor."""
    line, members = pool.archive.lineage(other), pool.archive.members
    common = [name for name in pool.archive.lineage(better) if name in line]
    if not common or common[-1] in (better, other):
        return None
    ancestor = members[common[-1]].prompt
    return merged_prompt(pool.start, ancestor, members[better].prompt, members[other].prompt)


def begin(run: Run, env: Environment, policy: LanguagePolicy, start: Prompt, config: Config) -> CandidatePool:
    """An empty pool, with a minibatch and a number of reflections at once that leave a limit room for several children."""
    purse, rounds = open_purse(run, env), config.rounds
    width, payable = config.proposals, purse.payable(1)
    if purse.questions < math.inf:
        width = max(1, min(width, int(purse.questions) // ROUNDS))
    fresh = min(len(env.train), width * config.minibatch)
    if payable < math.inf:
        size = affordable_rows(env, payable, int(payable) // 6)
        rounds, env = int(payable), cut_validation(run, env, size)
        purse.pay(rollouts=-recorded_rows(env))
        payable = purse.payable(1)
        least = min(config.minibatch, max(LEAST, int(payable) // 16))
        each = int((payable - size) / ROUNDS - size) // 2
        fresh = max(1, min(fresh, max(least, each), int(payable - size) // 3))
    least = 2 * len(env.validation) + 2  # start and child on validation, and both on a row of a minibatch
    run.note_rounds(int(rounds > 0 and purse.questions >= 1 and payable >= least), min(config.rounds, 1))
    draw = infinite_batches(run.rng, env.train)
    return CandidatePool(env, policy, start, config, draw, purse, rounds, width, fresh)


def reflection(
    about: str, text: str, shown: Sequence[str], facts: Sequence[str] = (), request: str | None = None
) -> str:
    """The question to the optimizer: what is to be done, the instructions, the rollouts under them, facts, the request."""
    examples = "\n".join(f"<example>\n{rollout}\n</example>" for rollout in shown)
    parts = [
        FIRST,
        f"{about}{INSTRUCTIONS}\n<instructions>\n{text}\n</instructions>",
        f"{EXAMPLES}\n{examples}",
        *facts,
        request or REQUEST,
    ]
    return "\n\n".join(part for part in parts if part)


UNION, REDUCED = "union of reflections", "drafts of groups as one"
ROUNDS, ENOUGH, LEAST, ALONE = 4, 20, 4, 4
TRIED_SHOWN, WRONG_SHOWN, ANSWER_SHOWN = 3, 2, 60
"""Versions that a reflection shows, the last ones, wrong answers of each, and characters of such an answer."""
FEW = 5
"""Where no more than one in so many answers is wrong, a reflection is asked to change little."""
FIRST = "Your task is to rewrite the instructions below, so that an assistant does its task better with them."
FIRST_OF_DRAFTS = "Your task is to make one text of several rewrites of the instructions below."
INSTRUCTIONS = "An assistant does a task for me with these instructions:"
EXAMPLES = "These are inputs with the assistant's responses and, where there is any, feedback on them:"
ANSWERS = "The right answers of the task are:"
SOME_ANSWERS = "Some of the right answers (other inputs may need others):"
WAS_RIGHT = "Before: right"
LOST = f'An input with the line "{WAS_RIGHT}" was answered rightly with an earlier version. Keep what made it right then.'
STANDS = "Stands in the instructions already"
VERSIONS = (
    "Other versions of these instructions, shortened where they are the same. Take in what helped, and leave out what did "
    "harm:"
)
VERSIONS_OR_SHORT = (
    "Other versions of these instructions, shortened where they are the same. Begin from the one that earned most, take in what "
    "helped, and leave out what did harm. Where longer versions earned no more, write a short one:"
)
DRAFTS = "Several people improved these instructions, each from other examples:"
REDUCE = (
    "Write one instruction that holds everything that these versions add. Say nothing twice. Where two of them contradict each "
    "other, keep the more specific one. Leave nothing out, and add nothing of your own."
)
CONFUSED = "What the assistant answered instead of what was wanted:"
GENERAL = "Do not add the inputs above as examples; you may make up others."
EVIDENCE = (
    "Include what feedback states, even if only one response shows it; take any other rule from more than one response: a single "
    "one may be odd or wrongly graded."
)
REQUEST = (
    "Rewrite the whole instruction so that the assistant does the task better, on inputs of this kind that it has not seen yet. "
    "Describe the input and what exactly is to be done with it. Include the facts and rules of the task or its domain that the "
    "responses and the feedback show: the assistant may not know them. Keep what is still needed of the current instruction. "
    "Where responses break a rule in it, word that rule more plainly; where they copy the form of its examples, change that "
    f"form. {GENERAL} {EVIDENCE}"
)
REQUEST_LITTLE = (
    "Nearly all responses are right. Write the whole instruction once more, keep its wording, its rules and its examples, and "
    f"change only what the wrong responses need. Leave out what one odd or wrongly graded response would need. {GENERAL}"
)
