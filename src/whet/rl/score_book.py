"""Bookkeeping of a training run: the prompts, or the states of weights, that were scored and validated, kept where a resume
finds them.

A method whose result is more than a text keeps the state of what it trains (`Run.keep`) and validates it as a candidate whose
`system` is that digest; the engine later asks the method's `deploy` for the environment in which it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from whet.environments.environment import Environment
from whet.prompt import Prompt
from whet.replies import unwrap, without_thought
from whet.rl.language import TAG
from whet.run import Run
from whet.search.archive import Archive, Candidate, preference
from whet.search.edits import replace_region
from whet.search.minibatch import minibatch
from whet.search.plan import SearchPlan, validate_finalists, validate_leader
from whet.types import JSON, Example, Rollout, Score

if TYPE_CHECKING:
    from whet.rl.policy_model import Sample

CHECKS = 8  # times that the leader is validated on the way
MOST_NOTED = 256
"""Rewrites whose rewards are noted one by one."""
_OTHERS = ""
"""Stands for all other rewrites in the notes: those that earned less, and those that cannot be used."""


class NoteKeeper(Protocol):
    """Whatever saves `notes` together with its weights, and replaces them when it is loaded."""

    notes: dict[str, object]


def due(step: int, steps: int, checks: int) -> bool:
    """Whether a validation follows this step (from 0): `checks` of `steps` steps at even distances do, the last one always."""
    return checks > 0 and (step + 1) * checks // steps > step * checks // steps


@dataclass
class ValidatedNotes:
    """The validated candidates so far, in the notes of a learner, where a resume finds them: `validated` holds the mean
    reward on validation examples by the key of a candidate (a text, a digest of weights). Base of the books below."""

    learner: NoteKeeper
    start: Prompt

    def __post_init__(self) -> None:
        self.learner.notes["validated"] = {}

    @property
    def notes(self) -> dict[str, Any]:
        """The notes as they are now: a resume replaces them."""
        return self.learner.notes

    def candidate(self, key: str) -> Candidate:
        """The candidate of a key."""
        raise NotImplementedError

    async def validate(self, run: Run, archive: Archive, validation: Environment, key: str) -> None:
        """Validate the candidate of a key in the environment `validation`."""
        self.recall(archive)
        candidate = self.candidate(key)
        await archive.validate(run, validation, [candidate])
        self.notes["validated"][key] = archive.validated[candidate.id]

    async def validate_leader(self, run: Run, plan: SearchPlan, archive: Archive, key: str) -> None:
        """Validate the candidate of a key, if the plan pays for it."""
        self.recall(archive)
        leader = await validate_leader(run, plan, archive, self.candidate(key))
        if leader.id in archive.validated:
            self.notes["validated"][key] = archive.validated[leader.id]

    def recall(self, archive: Archive) -> Candidate:
        """The best of all that was validated, before a resume too. The archive has an incumbent."""
        for key, mean in self.notes["validated"].items():
            archive.restore(self.candidate(key), mean)
        return archive.incumbent or Candidate(self.start)


@dataclass
class ScoreBook(ValidatedNotes):
    """Scores of texts that replace the editable text of `start` (in `region`, or in the first), in the notes of a learner.

    `examples` are the training examples that every text is scored on. `signal` names the parts of a score whose
    sum is the reward; none means the task's own reward. Notes: `scores` (mean reward and named parts by text),
    `best` (the highest reward).
    """

    signal: tuple[str, ...]
    examples: Sequence[Example]
    region: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.notes.update({"scores": {}, "best": None})

    async def grade(self, run: Run, env: Environment, texts: Sequence[str]) -> list[float]:
        """Reward of each text on the training examples. Only new texts are scored. One that the prompt refuses gets the lowest
        reward; where parts of a score are summed, the lowest sum of any text so far, because theirs has a range of its own."""
        scores = self.notes["scores"]
        made = {
            t: replace_region(self.start, t, self.region) for t in dict.fromkeys(texts) if t not in scores
        }
        new = {text: prompt for text, prompt in made.items() if prompt is not None}
        results = await env.score(run, list(new.values()), self.examples)
        scores.update(
            {text: [score.mean, dict(score.parts)] for text, score in zip(new, results, strict=True)}
        )
        lowest = min(map(self.reward, scores), default=env.reward.low) if self.signal else env.reward.low
        rewards = [self.reward(text) if text in scores else lowest for text in texts]
        known = [] if self.notes["best"] is None else [self.notes["best"]]
        self.notes["best"] = max([*known, *rewards])
        return rewards

    def reward(self, text: str) -> float:
        """The reward that the learner is trained for: the sum of the named parts, or the task's reward."""
        mean, parts = self.notes["scores"][text]
        return float(sum(parts[name] for name in self.signal) if self.signal else mean)

    def best(self, most: int) -> list[str]:
        """The texts with the highest reward; of equals the shorter, then the older first."""
        scores = self.notes["scores"]
        return sorted(scores, key=lambda text: preference(self.reward(text), text), reverse=True)[:most]

    def candidate(self, key: str) -> Candidate:
        """A scored text as a candidate."""
        mean, parts = self.notes["scores"][key]
        score = Score(mean, len(self.examples), parts)
        return Candidate(self.start.edit(key, self.region), (self.start.id,), "policy", score)

    async def check(self, run: Run, plan: SearchPlan, archive: Archive, step: int) -> None:
        """After some of the steps (from 0), `CHECKS` at even distances: validate the leader, if the plan pays for it."""
        if self.notes["scores"] and due(step, plan.rounds, CHECKS):
            await self.validate_leader(run, plan, archive, self.best(1)[0])

    async def finish(
        self, run: Run, env: Environment, plan: SearchPlan, archive: Archive, likeliest: str, most: int
    ) -> Candidate:
        """The best on validation examples of all that were validated: the likeliest text and the `most` - 1 best on training
        examples are, as far as the plan pays for it."""
        await self.grade(run, env, [likeliest])
        self.recall(archive)
        texts = [text for text in (likeliest, *self.best(most - 1)) if text in self.notes["scores"]]
        finalists = [self.candidate(text) for text in dict.fromkeys(texts)]
        return await validate_finalists(run, plan, archive, finalists)

    def figures(self, rewards: Sequence[float], texts: Sequence[str]) -> dict[str, JSON]:
        """Figures of a batch for the run's log."""
        return {
            "reward": sum(rewards) / len(rewards),
            "best": self.notes["best"],
            "distinct": len(set(texts)),
            **({"signal": " + ".join(self.signal)} if self.signal else {}),
        }


@dataclass
class TrainedCandidates(ValidatedNotes):
    """States of a learner that were validated, by digest. `operator` names what was done to the start. `checks` of `steps` steps
    are followed by a validation."""

    operator: str
    steps: int
    checks: int

    def due(self, step: int) -> bool:
        """Whether a validation follows this step (from 0)."""
        return due(step, self.steps, self.checks)

    def candidate(self, key: str) -> Candidate:
        """A state as a candidate: the start's text with the trained weights."""
        return Candidate(self.start, (self.start.id,), self.operator, system=key)


def written_text(sample: Sample, tag: str = TAG) -> str | None:
    """The text that a policy wrote, as any other model's: without its thought and without a fence, tags or quotation marks around
    all of it. None where there is none: the bound on tokens cut it, in the thought or after it."""
    text = unwrap(without_thought(sample.text), tag)
    return text if sample.ended and text else None


def rewrite_of(start: Prompt, text: str | None) -> Prompt | None:
    """`start` with its editable text replaced, or None for a text that the prompt refuses (empty, a lost slot, too long)."""
    return None if text is None else replace_region(start, text.strip())


async def score_rewrites(
    run: Run,
    env: Environment,
    rewrites: Sequence[Prompt | None],
    examples: Sequence[Example],
) -> list[float]:
    """Mean reward of each rewrite over the examples; the lowest reward, at no cost, for one that cannot be used.

    Equal rewrites are scored once.
    """
    usable = list({rewrite.id: rewrite for rewrite in rewrites if rewrite is not None}.values())
    scores = await env.score(run, usable, examples) if usable else []
    means = {rewrite.id: score.mean for rewrite, score in zip(usable, scores, strict=True)}
    return [env.reward.low if rewrite is None else means[rewrite.id] for rewrite in rewrites]


async def row_rewards(
    run: Run,
    env: Environment,
    rewrites: Sequence[Prompt | None],
    examples: Sequence[Example],
    grade: Callable[[Rollout], float],
    lowest: float,
) -> list[list[float]]:
    """The grades of the rewrites row by row: (examples, rewrites); an unusable rewrite gets `lowest`, without a call.

    Equal rewrites are asked once.
    """
    usable = list({rewrite.id: rewrite for rewrite in rewrites if rewrite is not None}.values())
    rollouts = await run.map(lambda branch, prompt: env.evaluate(branch, prompt, examples), usable)
    graded = {prompt.id: [grade(r) for r in row] for prompt, row in zip(usable, rollouts, strict=True)}
    return [
        [lowest if rewrite is None else graded[rewrite.id][i] for rewrite in rewrites]
        for i in range(len(examples))
    ]


def plan_without_training(plan: SearchPlan) -> SearchPlan:
    """The plan of a search without steps: as there are no rounds, all validations but the start's are the finalists'."""
    return replace(plan, finalists=max(1, plan.validations - 1))


@dataclass
class Leaders(ValidatedNotes):
    """Rewrites that were validated on the way, by text. `operator` names what was done to the start."""

    operator: str

    async def check(self, run: Run, plan: SearchPlan, archive: Archive, rewrite: Prompt | None) -> None:
        """Validate a rewrite, if it can be used and the plan pays for it."""
        if rewrite is not None:
            await self.validate_leader(run, plan, archive, rewrite.region_text())

    def candidate(self, key: str) -> Candidate:
        """A rewrite as a candidate."""
        return Candidate(self.start.edit(key), (self.start.id,), self.operator)

    def note_rewards(self, rewrites: Sequence[Prompt | None], rewards: Sequence[float]) -> None:
        """Add what rewrites earned in a step to the notes, for `best_rewarded`. None stands for a text that cannot be used."""
        earned: dict[str, list[float]] = self.notes.setdefault("earned", {})

        def add(text: str, total: float, times: float) -> None:
            known = earned.get(text, (0.0, 0))
            earned[text] = [known[0] + total, known[1] + times]

        for rewrite, reward in zip(rewrites, rewards, strict=True):
            add(_OTHERS if rewrite is None else rewrite.region_text(), reward, 1)
        for text in self._by_earnings()[MOST_NOTED:]:
            add(_OTHERS, *earned.pop(text))

    def best_rewarded(self, most: int) -> list[Prompt]:
        """The `most` rewrites that earned most in the steps so far, the best first.

            score(t) = (sum of the rewards of t + m) / (times of t + 1),   m the mean of all rewards

        So of two texts that always earned the same above m, the one that was drawn more often is the better: a reward on few
        examples is uncertain.
        """
        return [self.start.edit(text) for text in self._by_earnings()[:most]]

    def _by_earnings(self) -> list[str]:
        """The noted texts by their score, the best first."""
        earned: dict[str, list[float]] = self.notes.get("earned", {})
        mean = sum(total for total, _ in earned.values()) / max(1, sum(times for _, times in earned.values()))
        scores = {
            text: (total + mean) / (times + 1) for text, (total, times) in earned.items() if text != _OTHERS
        }
        return sorted(scores, key=lambda text: preference(scores[text], text), reverse=True)

    async def best_of(
        self,
        run: Run,
        env: Environment,
        plan: SearchPlan,
        archive: Archive,
        rewrites: Sequence[Prompt | None],
        first: Prompt | None = None,
    ) -> Candidate:
        """The incumbent after `first` and the best of `rewrites` are validated, as many as the plan pays for.

        Where it does not pay for all of these, the best are those that score best on `plan.examples` training examples.
        """
        distinct = {rewrite.id: rewrite for rewrite in rewrites if rewrite is not None and rewrite != first}
        ranked = list(distinct.values())
        if len(ranked) > plan.finalists:
            scores = await env.score(run, ranked, minibatch(run.rng, env.train, plan.examples))
            pairs = zip(scores, ranked, strict=True)
            best = sorted(pairs, key=lambda pair: preference(pair[0].mean, pair[1].text), reverse=True)
            ranked = [rewrite for _, rewrite in best]
        texts = [rewrite.region_text() for rewrite in [first, *ranked] if rewrite is not None]
        return await validate_finalists(run, plan, archive, [self.candidate(text) for text in texts])
