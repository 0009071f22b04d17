"""The population of E-SPL in the notes of a writer, its validated systems, and what the mutating model is asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from whet.environments import play
from whet.environments.environment import Environment
from whet.environments.multiturn import multiturn
from whet.prompt import Prompt
from whet.rl.credit_assignment import Reward, earned
from whet.rl.language import LanguagePolicy
from whet.rl.policy_actor import PolicyActor, spoken
from whet.rl.policy_model import Sample
from whet.rl.programs import PrincipleList, crossed_rating, evicted, mutated_rating, operations_in, ranks
from whet.rl.trained_candidates import TrainedNotes
from whet.rl.trainer import Trainer
from whet.run import Run
from whet.search.archive import Archive, Candidate
from whet.types import Example, Message, Rollout

SHOWN = 4  # mistakes in one question
LETTERS = "BCDEFGHIJK"  # of the other programs in a question
CUT = 400  # characters of an input, an answer or a target


class Pool:
    """Programs by key, kept in `learner.notes` so that a resume finds them. `most` are kept."""

    def __init__(self, learner: TrainedNotes, start: Prompt, most: int) -> None:
        self.learner, self.start, self.most = learner, start, most
        learner.notes.update(pool=[PrincipleList().to_json()], born=1, validated=[])

    @property
    def members(self) -> list[PrincipleList]:
        """All programs, the oldest first."""
        return [PrincipleList.from_json(value) for value in self.learner.notes["pool"]]

    @property
    def best(self) -> PrincipleList:
        """The program that is almost surely best: by mu - 2 sigma, the newer of equals."""
        return max(self.members, key=lambda p: (p.low, p.key))

    def prompt(self, program: PrincipleList) -> Prompt:
        """The start with the principles behind its editable text; the start itself for an empty list."""
        if not program.principles:
            return self.start
        return self.start.edit(f"{self.start.region_text().rstrip()}\n{FIRST}\n{program.text}\n")

    def replace(self, programs: Sequence[PrincipleList]) -> None:
        """Store new ratings."""
        new = {program.key: program for program in programs}
        self._store([new.get(p.key, p) for p in self.members])

    def mutated(self, parent: PrincipleList, principles: Sequence[str], step: int) -> None:
        """Add a child of one program, unless it says the same as a program that is there."""
        self._add(principles, mutated_rating(parent), step, (parent.key,))

    def crossed(self, parents: Sequence[PrincipleList], principles: Sequence[str], step: int) -> None:
        """Add a child of several programs, unless it says the same as a program that is there."""
        self._add(principles, crossed_rating(parents), step, tuple(p.key for p in parents))

    def _add(
        self, principles: Sequence[str], rating: tuple[float, float], step: int, parents: tuple[int, ...]
    ) -> None:
        if any(p.principles == tuple(principles) for p in self.members):
            return
        key = int(self.learner.notes["born"])
        self.learner.notes["born"] = key + 1
        child = PrincipleList(tuple(principles), *rating, born=step, parents=parents, key=key)
        self._store(evicted([*self.members, child], self.most))

    def _store(self, programs: Sequence[PrincipleList]) -> None:
        self.learner.notes["pool"] = [program.to_json() for program in programs]

    def candidate(self, program: PrincipleList, digest: str) -> Candidate:
        """A program with trained weights as a candidate."""
        return Candidate(self.prompt(program), (self.start.id,), "espl", system=digest)

    def recall(self, archive: Archive) -> Candidate:
        """The best of all that was validated, before a resume too. The archive has an incumbent."""
        for value, digest, score in self.learner.notes["validated"]:
            candidate = self.candidate(PrincipleList.from_json(value), digest)
            archive.validated.setdefault(candidate.id, score)
            incumbent = archive.incumbent or candidate
            if score > archive.validated[incumbent.id]:
                archive.incumbent = candidate
        return archive.incumbent or Candidate(self.start)


async def validated(run: Run, archive: Archive, pool: Pool, env: Environment, digest: str) -> None:
    """Validate the best program with the weights called `digest`, which answer in `env`."""
    pool.recall(archive)
    program = pool.best
    candidate = pool.candidate(program, digest)
    await archive.validate(run, env, [candidate])
    notes: list[Any] = pool.learner.notes["validated"]
    notes.append([program.to_json(), digest, archive.validated[candidate.id]])


def mutation_question(
    program: PrincipleList, groups: Sequence[Sequence[Rollout]], problems: Sequence[Example], high: float
) -> str:
    """What the mutating model is asked: the principles and wrong answers to problems with mixed outcomes.

    Problems that always fail stand in where none is mixed; without a wrong answer the question is empty.
    """
    mixed = [i for i, group in enumerate(groups) if len({r.reward for r in group}) > 1]
    failed = [i for i, group in enumerate(groups) if i not in mixed and group[0].reward < high]
    shown = [_mistake(problems[i], min(groups[i], key=lambda r: r.reward)) for i in (mixed or failed)[:SHOWN]]
    if not shown:
        return ""
    return f"{PRINCIPLES}\n{program.text or NONE}\n\n{MISTAKES}\n" + "\n".join(shown) + f"\n\n{OPERATIONS}"


def crossover_question(
    programs: Sequence[PrincipleList],
    best: int,
    played: Sequence[Sequence[Sequence[Rollout]]],
    problems: Sequence[Example],
    span: float = 1.0,
) -> tuple[str, list[int]]:
    """What the mutating model is asked, and the positions of the winners that it shows, the best first: the best program,
    and the others with the problems that they alone won.

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
        named = replace(programs[i]).text.replace("\nG", f"\n{letter}.G")
        inputs = "\n".join(problem.user_text[:CUT] for problem in wins[i][:SHOWN])
        shown.append(f"{OTHER} {letter}:\n{letter}.{named or NONE}\n{WON}\n{inputs}")
    return "\n\n".join(shown) + f"\n\n{BORROW} {OPERATIONS}", [best, *others]


def _mistake(problem: Example, rollout: Rollout) -> str:
    lines = [f"Input: {problem.user_text[:CUT]}", f"Answer: {rollout.output[:CUT]}"]
    if problem.target is not None:
        lines.append(f"Expected: {str(problem.target)[:CUT]}")
    if rollout.critique:
        lines.append(f"Critique: {rollout.critique[:CUT]}")
    return "\n".join(lines)


FIRST = "First read the instructions and principles below."
PRINCIPLES = "Principles:"
NONE = "-"
MISTAKES = "Mistakes:"
OPERATIONS = "Write at most two operations as JSON."
SCHEMA = (
    'An operation is {"op": "add", "text": "..."}, {"op": "modify", "id": "G0", "text": "..."}, '
    '{"op": "merge", "ids": ["G0", "G1"], "text": "..."} or {"op": "remove", "id": "G0"}. A text is one general '
    "strategy of at most 32 words, in words that will help with other problems too, and says when it applies."
)
OTHER = "Other principles"
WON = "These did best on:"
BORROW = "Take over what made the others win."


@dataclass(frozen=True)
class Played:
    """The answers of a program to the problems of a step, a group for each problem: what became of them, what was
    written, and the reward that it is learned from (of the whole, or of each token)."""

    rollouts: list[list[Rollout]]
    samples: list[list[Sample]]
    rewards: list[list[Reward]]


async def answers(
    run: Run,
    env: Environment,
    mechanics: Trainer,
    prompts: Sequence[Prompt],
    problems: Sequence[Example],
) -> list[Played]:
    """`group` answers of the writer to each problem under each prompt, in the task's own world."""
    config, world, n = mechanics.config, multiturn(env), mechanics.config.group
    examples = [problem for problem in problems for _ in range(n)]
    heat = tuple(mechanics.temperature(problem.id) for problem in examples)
    speaker = PolicyActor(mechanics.writer, heat, config.max_tokens, (), config.top_p, calls=1)
    cuts = [slice(i, i + n) for i in range(0, len(examples), n)]
    results = []
    for prompt in prompts:
        played = await play(run, speaker, [world.episode(prompt, example) for example in examples])
        graded = await world.judge(run, prompt, examples, played)
        whole = [rollout.reward for rollout in graded]
        turns = [earned(one, reward) for one, reward in zip(played, whole, strict=True)]
        samples = spoken(played)
        paid = mechanics.credited(samples, whole, turns)
        results.append(Played([graded[c] for c in cuts], [samples[c] for c in cuts], [paid[c] for c in cuts]))
    return results


def training_groups(
    played: Sequence[Played], marginalize: bool
) -> tuple[list[list[Sample]], list[list[Reward]]]:
    """Samples and rewards in the groups whose mean is the baseline: by program and problem, or by problem."""
    pairs = [pair for one in played for pair in zip(one.samples, one.rewards, strict=True)]
    if not marginalize:
        return [s for s, _ in pairs], [r for _, r in pairs]
    count = len(played[0].samples)
    by_problem = [pairs[i::count] for i in range(count)]
    return (
        [[s for samples, _ in pile for s in samples] for pile in by_problem],
        [[r for _, rewards in pile for r in rewards] for pile in by_problem],
    )


def success(env: Environment, played: Sequence[Played]) -> list[float]:
    """Mean reward of the answers to each problem under all programs, brought to 0 to 1: what a curriculum learns from."""
    low, high = env.reward.low, env.reward.high
    by_problem = zip(*(one.rollouts for one in played), strict=True)
    rewards = [[rollout.reward for group in groups for rollout in group] for groups in by_problem]
    return [(sum(some) / len(some) - low) / (high - low) for some in rewards]


async def operate(
    run: Run, mechanics: Trainer, query: str, explain: bool, optimizer: bool
) -> list[dict[str, Any]]:
    """Operations on principles that the policy, or the `optimizer` model, writes; none without a question or a readable
    reply. `explain` puts the form of operations before the question."""
    if not query:
        return []
    query = f"{SCHEMA}\n\n{query}" if explain else query
    if optimizer:
        policy = LanguagePolicy(max_tokens=1024)
        replies = await policy.write(run, query, "OPERATIONS", sample=run.rng.getrandbits(30))
        return operations_in(replies[0]) if replies else []
    ((sample,),) = await mechanics.sample(run, [(Message("user", query),)], n=1)
    return operations_in(sample.text, whole=sample.ended)
