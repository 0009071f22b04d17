"""E-SPL: principle lists evolve while the weights of the model that follows them learn.

Evolutionary System Prompt Learning for Reinforcement Learning in LLMs. arXiv:2602.14697. Algorithm and sizes as in
the published code (LunjunZhang/E-SPL).

    pool <- [empty list of principles]
    for step in 1..steps:
        P <- K programs of the pool (the newest always in)
        each program answers a batch of problems, `group` answers each:  y ~ pi(. | program, problem)
        A <- r - mean r of the answers of the same program to the same problem;  update of pi (modes rl, both)
        rank the programs by accuracy -> TrueSkill
        best <- the most accurate;  (modes evolution, both:)
        with probability pc: pool += crossover(best, the other winners), rating fused
        pool += mutation(best, problems with mixed outcomes), rating inflated
        evict;  validate
    the program and weights that validated best

The result is a system: trained weights that answer with the program in their prompt. In mode `evolution` the weights
stay what they were.

Differences from the paper:
1. Programs and weights are chosen on validation examples, and must beat the start under the task model alone; the
   published code chooses checkpoints on the test set.
2. The best rated program is never evicted (there: the oldest, whatever its rating), and what is validated is the
   program that is almost surely best (mu - 2 sigma), not the newest.
3. Summary, critique and plan are one request with right and wrong answers to each problem of mixed outcomes, marked as such
   (there: three, and the critique carried the rollouts of the last problem for all). embedded/tiny knows a request with the
   wrong ones alone (`explain=False`). The mutating model is the policy itself as it is now, or
   `mutator=optimizer`, the run's optimizer model.
4. Low-rank adapters; the paper's importance-weighted loss, mean baseline and no divergence are the defaults. Groups of equal
   rewards have no advantage and teach nothing. In a world of several turns `credit=turn` credits each turn with what
   followed it.
5. Under a limit on calls, steps are reduced to fit; an answer of the policy counts as a task call.
6. pass@k comes from the groups of the training step; the published code draws 10 answers to each test problem. For easy to hard
   (there: AIME, then BeyondAIME) `easy` learns from the easiest rows, and the reward of harder validation rows is logged apart.

Run it:  whet optimize TASK --method espl --lm hf/PATH --policy hf/PATH
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Literal

from whet._util.fields import NonNegativeFloat, NonNegativeInt, PositiveInt, PositiveProbability, Probability
from whet.environments.environment import Environment
from whet.environments.multiturn import MultiTurn, multiturn
from whet.errors import UsageError, named_fields
from whet.methods.method import MethodEntry
from whet.prompt import Prompt
from whet.rl.answer_groups import ask_problems, learn_answers, pass_figures
from whet.rl.language import LanguagePolicy
from whet.rl.policy_actor import PolicyActor
from whet.rl.policy_model import PolicyModel
from whet.rl.principles import (
    PrincipleList,
    apply_operations,
    crossed_rating,
    evict,
    mutated_rating,
    operations_in,
    ranks,
    select_programs,
    update_ratings,
)
from whet.rl.score_book import ValidatedNotes, due
from whet.rl.training import Advantage, Loss, MultiTurnTraining, Trainer, rows_of_training
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.search.edits import replace_region
from whet.search.plan import share_out
from whet.types import Example, Message, Rollout
from whet_client.storable import show_value

ENTRY = MethodEntry(
    "espl",
    "E-SPL: principle lists and weights, learned together",
    version=1,
    rank=230,
    when="the answering model may itself be trained",
    paper="E-SPL, 2026",
    arxiv="2602.14697",
    needs=("policy", "optimizer_optional"),
    trains="the model that answers (LoRA), and principles in its prompt",
    extra="train",
    bound="its trained weights are what answers",
)

DIFFICULTY = "difficulty"  # the column, as for rows=easy-first
SHOWN = 4  # problems in one question
EACH = 2  # right answers, and wrong ones, to each of them
LETTERS = "BCDEFGHIJK"  # of the other programs in a question
CUT = 400  # characters of an input, an answer or a target


@named_fields
@dataclass(frozen=True)
class Config(MultiTurnTraining):
    """Settings of E-SPL; the others are those of every training."""

    mode: Literal["both", "rl", "evolution"] = "both"
    """The parts that learn: the principles, the weights, or both."""
    steps: NonNegativeInt = 40
    """Steps; each updates the weights and may add two programs."""
    group: PositiveInt = 5
    """Answers to one problem under one program."""
    problems: PositiveInt = 8
    """Problems of a step."""
    programs: PositiveInt = 3
    """Programs that answer in a step (K)."""
    recent: PositiveInt = 5
    """The number of newest lists from which the lists are chosen."""
    pool: PositiveInt = 100
    """Programs kept."""
    crossover: Probability = 0.2
    """Probability of a crossover in a step (pc)."""
    principles: PositiveInt = 8
    """Principles of a program at most."""
    mutator: Literal["policy", "optimizer"] = "policy"
    """The writer of the operations."""
    explain: bool = True
    """Whether the request explains the operations; embedded/tiny knows them and must not be told."""
    advantage: Advantage = "dr_grpo"
    """The estimator of the advantages; the default subtracts the mean and does not divide."""
    loss: Loss = "importance"
    """Loss of a token."""
    temperature: NonNegativeFloat = 0.7
    """Of sampling."""
    checks: NonNegativeInt = 4
    """Times that a program with the present weights is validated."""
    easy: PositiveProbability = 1.0
    """Share of the training rows, the easiest by their column difficulty, that are learned from (easy to hard); 1: all."""
    hint: str = ""
    """The column of the rows with hints: problems that no answer solves get new answers with their hints (Guide-GRPO); none by
    default."""


async def espl(run: Run, env: Environment, policy: PolicyModel, start: Prompt, config: Config) -> Candidate:
    """Evolution of principle lists and policy gradient under each of them; see the module."""
    check(env, config)
    low, high = env.reward.low, env.reward.high
    trainer = Trainer(policy, config)
    system = answering(env, policy, config)
    share = share_out(run, system, config.checks, 1, writes=False)
    programs = 1 if config.mode == "rl" else config.programs
    steps = share.payable(config.steps, min(config.problems, len(env.train)) * config.group * programs)
    checks = min(steps, config.checks, share.validations - 1)
    archive = Archive()
    alone = replace(env, validation=share.env.validation)
    await archive.validate(run, alone, [Candidate(start)])
    pool = Pool(policy, start, config.pool)
    most = share.payable_groups(config.group * programs)
    split = Difficulties(env, config.easy)
    source = rows_of_training(config, policy, start, split.learned, steps, config.problems, most)

    async def step(run: Run, number: int) -> None:
        programs = select_programs(pool.members, config.programs, config.recent)
        prompts = [pool.prompt(program) for program in programs]

        problems, played = await ask_problems(run, env, trainer, source, prompts, config.problems)
        if not problems:
            return
        accuracy = [fmean(r.reward for group in one.rollouts for r in group) for one in played]
        figures: dict[str, float] = {}
        if config.mode != "evolution":
            figures |= await learn_answers(run, env, trainer, config.hint, source, prompts, played, problems)
        else:
            figures |= pass_figures(env, played)
        after = update_ratings(programs, [(value - low) / (high - low) for value in accuracy])
        pool.replace(after)
        if config.mode != "rl":
            best = max(range(len(programs)), key=lambda i: accuracy[i])
            if run.rng.random() < config.crossover and len(programs) > 1:
                groups = [one.rollouts for one in played]
                query, winners = crossover_question(programs, best, groups, problems, high - low)
                written = await operate(run, trainer, config, query)
                parents = [after[i] for i in winners] or [after[best]]
                pool.add_crossover(
                    parents, apply_operations(programs[best].principles, written, config.principles), number
                )
            own = played[best].rollouts
            query = mutation_question(programs[best], own, problems, high, contrast=config.explain)
            written = await operate(run, trainer, config, query)
            pool.add_mutation(
                after[best], apply_operations(programs[best].principles, written, config.principles), number
            )
        run.log(
            "step",
            {
                "step": number,
                "answer": max(accuracy),
                "programs": len(pool.members),
                "rows": source.rows_asked,
                **figures,
            },
        )
        if due(number, steps, checks):
            key = pool.key(await run.keep(policy))
            await pool.validate(run, archive, answering(share.env, policy, config), key)
            split.log(run, number, archive.rewards.get(pool.candidate(key).id))

    await run.train(steps, step, policy)
    return pool.recall(archive)


def check(env: Environment, config: Config) -> None:
    """Refuse what this method cannot do."""
    if config.by_turn and getattr(env, "world", None) is None:
        raise UsageError("credit=turn needs episodes of several turns; this task has no `environment:`.")
    if config.easy < 1:
        for row in (*env.train, *env.validation):
            if not math.isfinite(difficulty_of(row)):
                raise UsageError(
                    f"easy={config.easy:g} needs a number in the column {DIFFICULTY} of every row (higher is harder); "
                    f"{row.place} has {show_value(row.row.get(DIFFICULTY))}."
                )


def answering(env: Environment, policy: PolicyModel, config: Config) -> MultiTurn:
    """The system: the policy, greedy, answers the task."""
    return multiturn(env, actor=PolicyActor(policy, 0.0, config.max_tokens, calls=1))


def deploy(env: Environment, policy: PolicyModel, blob: bytes, config: Config) -> Environment:
    """The environment in which trained weights answer the task."""
    policy.load(blob)
    return answering(env, policy, config)


class Difficulties:
    """Learning from easy rows, and how the hard ones do (easy to hard): `learned` is the share `easy` of the training rows, the
    easiest; a validation row counts as hard if it is harder than all of these."""

    def __init__(self, env: Environment, easy: float) -> None:
        self.learned: Sequence[Example] = env.train
        self.hard: dict[str, bool] = {}
        if easy < 1:
            ordered = sorted(env.train, key=difficulty_of)
            self.learned = ordered[: max(1, round(easy * len(ordered)))]
            limit = difficulty_of(self.learned[-1])
            self.hard = {row.id: difficulty_of(row) > limit for row in env.validation}

    def log(self, run: Run, step: int, rewards: Mapping[str, float] | None) -> None:
        """Log the mean rewards of easy and of hard validation rows; nothing where all training rows are learned from."""
        kinds = {
            name: [value for row, value in (rewards or {}).items() if self.hard.get(row) is hard]
            for name, hard in (("easy", False), ("hard", True))
        }
        figures = {name: fmean(values) for name, values in kinds.items() if values}
        if figures:
            sizes = {f"{name}_rows": len(values) for name, values in kinds.items()}
            run.log("easy_to_hard", {"step": step, **figures, **sizes})


def difficulty_of(row: Example) -> float:
    """The number in a row's column of difficulty; not a number where there is none."""
    value = row.row.get(DIFFICULTY)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan


@dataclass
class Pool(ValidatedNotes):
    """Programs, at most `most`, kept in the notes of the learner so that a resume finds them."""

    most: int

    def __post_init__(self) -> None:
        super().__post_init__()
        self.notes.update(pool=[PrincipleList().to_json()], born=1)

    @property
    def members(self) -> list[PrincipleList]:
        """All programs, the oldest first."""
        return [PrincipleList.from_json(value) for value in self.notes["pool"]]

    @property
    def best(self) -> PrincipleList:
        """The program that is almost surely best: by mu - 2 sigma, the newer of equals."""
        return max(self.members, key=lambda p: (p.low, p.key))

    def prompt(self, program: PrincipleList) -> Prompt:
        """The start with the principles behind its editable text; itself for an empty list and for one that it refuses."""
        if not program.principles:
            return self.start
        text = f"{self.start.region_text().rstrip()}\n{FIRST}\n{program.text}\n"
        return replace_region(self.start, text) or self.start

    def replace(self, programs: Sequence[PrincipleList]) -> None:
        """Store new ratings."""
        new = {program.key: program for program in programs}
        self._store([new.get(p.key, p) for p in self.members])

    def add_mutation(self, parent: PrincipleList, principles: Sequence[str], step: int) -> None:
        """Add a child of one program, unless it says the same as a program that is there."""
        self._add(principles, mutated_rating(parent), step, (parent.key,))

    def add_crossover(self, parents: Sequence[PrincipleList], principles: Sequence[str], step: int) -> None:
        """Add a child of several programs, unless it says the same as a program that is there."""
        self._add(principles, crossed_rating(parents), step, tuple(p.key for p in parents))

    def _add(
        self, principles: Sequence[str], rating: tuple[float, float], step: int, parents: tuple[int, ...]
    ) -> None:
        if any(p.principles == tuple(principles) for p in self.members):
            return
        key = int(self.notes["born"])
        self.notes["born"] = key + 1
        child = PrincipleList(tuple(principles), *rating, born=step, parents=parents, key=key)
        self._store(evict([*self.members, child], self.most))

    def _store(self, programs: Sequence[PrincipleList]) -> None:
        self.notes["pool"] = [program.to_json() for program in programs]

    def key(self, digest: str) -> str:
        """The key of the best program with the weights called `digest`."""
        return json.dumps([self.best.to_json(), digest])

    def candidate(self, key: str) -> Candidate:
        """A program with trained weights as a candidate."""
        program, digest = json.loads(key)
        return Candidate(
            self.prompt(PrincipleList.from_json(program)), (self.start.id,), "espl", system=digest
        )


def mutation_question(
    program: PrincipleList,
    groups: Sequence[Sequence[Rollout]],
    problems: Sequence[Example],
    high: float,
    *,
    contrast: bool = True,
) -> str:
    """The question to the mutating model: the principles, and right and wrong answers to problems with mixed outcomes.

    Problems that always fail stand in where none is mixed; without a wrong answer the question is empty. Without `contrast` one
    wrong answer to each problem is shown.
    """
    mixed = [i for i, group in enumerate(groups) if len({r.reward for r in group}) > 1]
    failed = [i for i, group in enumerate(groups) if i not in mixed and group[0].reward < high]
    chosen = (mixed or failed)[:SHOWN]
    if not chosen:
        return ""
    if contrast:
        heading, shown = CONTRASTS, [_contrast(problems[i], groups[i]) for i in chosen]
    else:
        worst = [min(groups[i], key=lambda r: r.reward) for i in chosen]
        heading, shown = MISTAKES, [_mistake(problems[i], r) for i, r in zip(chosen, worst, strict=True)]
    return f"{PRINCIPLES}\n{program.text or NONE}\n\n{heading}\n" + "\n".join(shown) + f"\n\n{OPERATIONS}"


def crossover_question(
    programs: Sequence[PrincipleList],
    best: int,
    played: Sequence[Sequence[Sequence[Rollout]]],
    problems: Sequence[Example],
    span: float = 1.0,
) -> tuple[str, list[int]]:
    """The question to the mutating model, and the positions of the winners in it, the best first: the best program, and the
    others with the problems that only they solved.

    Both are empty when the best or every other program won no problem. `span`: between the lowest and highest reward.
    """
    wins: dict[int, list[Example]] = {}
    for number, problem in enumerate(problems):
        means = [sum(r.reward for r in groups[number]) / len(groups[number]) / span for groups in played]
        order = ranks(means)
        if order.count(0) == 1:
            wins.setdefault(order.index(0), []).append(problem)
    others = [i for i in wins if i != best]
    others = others[: len(LETTERS)]
    if best not in wins or not others:
        return "", []
    shown = [f"{PRINCIPLES}\n{programs[best].text or NONE}"]
    for letter, i in zip(LETTERS, others, strict=False):
        named = programs[i].text.replace("\nG", f"\n{letter}.G")
        inputs = "\n".join(problem.user_text[:CUT] for problem in wins[i][:SHOWN])
        shown.append(f"{OTHER} {letter}:\n{letter}.{named or NONE}\n{WON}\n{inputs}")
    return "\n\n".join(shown) + f"\n\n{BORROW} {OPERATIONS}", [best, *others]


def _contrast(problem: Example, group: Sequence[Rollout]) -> str:
    """A problem with different answers of the policy: the best of them, and those below the best, the worst first."""
    best = max(r.reward for r in group)
    answers = list({r.output: r for r in reversed(group)}.values())
    worse = sorted((r for r in answers if r.reward < best), key=lambda r: r.reward)[:EACH]
    right = [r for r in answers if r.reward == best][:EACH] if worse else []
    lines = [f"Input: {problem.user_text[:CUT]}"]
    if problem.target is not None:
        lines.append(f"Expected: {str(problem.target)[:CUT]}")
    for rollout in [*right, *(worse or answers[:EACH])]:
        lines.append(f"{RIGHT if rollout in right else WRONG} {rollout.output[:CUT]}")
        if rollout.critique:
            lines.append(f"Critique: {rollout.critique[:CUT]}")
    return "\n".join(lines)


def _mistake(problem: Example, rollout: Rollout) -> str:
    lines = [f"Input: {problem.user_text[:CUT]}", f"Answer: {rollout.output[:CUT]}"]
    if problem.target is not None:
        lines.append(f"Expected: {str(problem.target)[:CUT]}")
    if rollout.critique:
        lines.append(f"Critique: {rollout.critique[:CUT]}")
    return "\n".join(lines)


async def operate(run: Run, trainer: Trainer, config: Config, query: str) -> list[dict[str, object]]:
    """Operations on principles that the policy, or the optimizer model, writes; none without a question or a readable reply."""
    if not query:
        return []
    query = f"{SCHEMA}\n\n{query}" if config.explain else query
    if config.mutator == "optimizer":
        policy = LanguagePolicy(max_tokens=1024)
        replies = await policy.write(run, query, "OPERATIONS", sample=run.rng.getrandbits(30))
        return operations_in(replies[0]) if replies else []
    ((sample,),) = await trainer.sample(run, [(Message("user", query),)], n=1)
    return operations_in(sample.text, whole=sample.ended)


FIRST = "First read the instructions and principles below."
PRINCIPLES = "Principles:"
NONE = "-"
MISTAKES = "Mistakes:"
CONTRASTS = (
    "The same model answered each of these problems several times, better and worse. Compare: what do its good answers do "
    "that the bad ones do not?"
)
RIGHT, WRONG = "Good answer:", "Bad answer:"
OPERATIONS = "Write at most two operations as JSON."
SCHEMA = (
    'An operation is {"op": "add", "text": "..."}, {"op": "modify", "id": "G0", "text": "..."}, '
    '{"op": "merge", "ids": ["G0", "G1"], "text": "..."} or {"op": "remove", "id": "G0"}. A text is one general '
    "strategy of at most 32 words, in words that will help with other problems too, and says when it applies."
)
OTHER = "Other principles"
WON = "These did best on:"
BORROW = "Take over what made the others win."
