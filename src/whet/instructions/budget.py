"""The budget of prompt learning: its rounds of roll-outs, and the questions about each."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from whet.environments.environment import Environment
from whet.instructions.critiques import CritiqueBatch
from whet.run import Run
from whet.search.plan import payable_rollouts, recorded_rows, validation_rows

LEAST = 8
"""Answers of a round at least, where they can be paid."""
PACK = 24
_FIRST = 0.4
_VALIDATION_SHARE = 0.05
_VALIDATED = 2
"""Prompts that are validated: the start, and the result."""
_AMPLE = 200
_PER_REQUIREMENT = 4
_CLOSING, _JOINED = 2, 1.5
_TRIAL, _TRIAL_CALLS = 32, 2
_DRAFT = 20
"""Answers that tell one text of a whole instruction from another."""
_ENDING, _ENDING_SHARE, _CROWDED = 3, 4, 4
"""Calls kept for the end, where what came last is read again and compared; one in so many at most, and half of
that where a roll-out brings four times the critiques that its calls can read closely."""


@dataclass
class LearningBudget:
    """The remaining limits of a run for learning instructions. A resumed run finds the same values."""

    env: Environment
    """The environment, with as many validation rows as can be paid."""
    rollouts: int | None
    """None: no limit."""
    asks: int | None
    """Calls of the optimizer model; None: no limit."""
    batch: int
    rounds: int
    round: int = 0
    per_answer: float = 0.0
    new: int = 0
    silent: int = 0
    affords: bool = True
    trial: bool = False
    """Whether the next round omits some instructions."""
    whole: bool = False
    """Whether the optimizer model writes a whole instruction, one wording a call."""

    @property
    def validates(self) -> bool:
        """Whether this round validates its prompt: the start."""
        return self.round == 1

    def next_round(self, spent: int, most: int | None = None) -> int:
        """Answers of the next round, `most` at most, 0 at the end. `spent` are the optimizer calls so far.

        As many as show each requirement that is left about four times, judged by how many the last round brought; the rest is
        shared so that every round can still be read. Once nothing new comes, a rest of less than one and a
        half rounds joins the last one.
        """
        asks = self.asks_left(spent)
        if asks == 0 or self.last:
            return 0
        most = max(self.batch, self.rollouts or 0) if most is None else most
        size = self.batch
        if self.rollouts is not None:
            size = min(self.rollouts, max(self._batch_size(self.rollouts, asks), LEAST))
            settled = self.affords and not (self.new or self.trial)
            if self.rollouts - size < (_JOINED * self.batch if settled else LEAST):
                size = self.rollouts
            self.rollouts -= min(size, most)
        size = min(size, most)
        self.round += 1
        return size

    def give_back(self, rollouts: int) -> None:
        """Take back roll-outs of a round that nobody had to pay for, because their answers were known."""
        if self.rollouts is not None:
            self.rollouts += rollouts

    @property
    def last(self) -> bool:
        """Whether no round can follow this one."""
        return self.rollouts == 0 if self.rollouts is not None else self.round == self.rounds

    @property
    def tries(self) -> bool:
        """Whether a round that does without instructions can still be paid, and another one to see what follows."""
        return self.rollouts is None or self.rollouts >= 2 * _TRIAL

    def asks_left(self, spent: int) -> int | None:
        """Optimizer calls that are left."""
        return None if self.asks is None else max(0, self.asks - spent)

    def _batch_size(self, rollouts: int, asks: int | None) -> int:
        if self.round == 0:
            return min(self.batch, math.ceil(_FIRST * rollouts))
        if self.whole:
            return max(_DRAFT, math.ceil(rollouts / max(1, asks or 1)))
        if self.silent or self.trial:
            return _TRIAL
        least = PACK if self.affords else PACK // 2
        needed = min(self.batch, max(least, _PER_REQUIREMENT * self.new) / max(self.per_answer, 0.5))
        closing = _CLOSING if asks is None else min(asks, _CLOSING)
        return math.ceil(min(needed, rollouts / 2) if self.new else max(needed, rollouts / closing))

    def calls(self, spent: int, repairs: int = 0, packs: int = 0) -> int | None:
        """Optimizer calls that may be spent on a round; some are kept for rounds that can still be paid, if any, and for the end.
        `repairs` are needed beside reading, whatever rounds can follow, but for the last call. `packs` are what close
        reading would take."""
        left = self.asks_left(spent)
        if not left:
            return left
        kept = (self.asks or 0) // _ENDING_SHARE
        usual = self._share(left, min(_ENDING, kept))
        usual = usual if packs <= _CROWDED * usual else self._share(left, min(_ENDING, kept // 2))
        return max(1, min(left - 1, 1 + repairs), usual)

    def _share(self, left: int, kept: int) -> int:
        """A round's share of the calls that are left, of which some are `kept` for the end."""
        left = max(1, left - kept)
        if self.last:
            return left
        later = math.ceil((self.rollouts or 0) / (_DRAFT if self.whole else self.batch))
        share = math.ceil(left * (0.7 if self.round == 1 else 0.5))
        return max(1, min(share, left - later, _TRIAL_CALLS if self.trial else share))

    def note_round(self, judged: CritiqueBatch, new: int) -> None:
        """Note the result of a round."""
        self.per_answer = len(judged.critiques) / max(1, len(judged.rewards))
        self.new = new
        self.silent = 0 if judged.critiques else self.silent + (not self.trial)

    def pay(self, rollouts: int, *, again: bool) -> None:
        """Take roll-outs that were made to find another start, and the validation of that (`again`)."""
        if self.rollouts is not None:
            self.rollouts = max(1, self.rollouts - rollouts - again * len(self.env.validation))

    def may_stop(self, quiet: bool) -> bool:
        """Whether to end: nobody criticises anything any more, or, without limits, nothing new is learned."""
        return self.silent >= 2 or (self.rollouts is None and quiet)


def budget_of(run: Run, env: Environment, batch: int, rounds: int) -> LearningBudget:
    """The budget of a run, beside what the validations of the start and of the result take. From 200 roll-outs on these have the
    rows of the plan; below, 5% of the roll-outs, and the result is validated on the other rows of the plan at the end."""
    total = payable_rollouts(run, env, writes=True)
    limits = [run.limits.optimizer_calls, None if run.limits.calls is None else run.limits.calls // 5]
    asks = min((limit for limit in limits if limit is not None), default=None)
    if total is None:
        return LearningBudget(env, None, asks, batch, rounds)
    affords = total >= _AMPLE
    few = min(len(env.validation), max(1, int(total * _VALIDATION_SHARE)))
    rows = validation_rows(total, env) if affords else few
    later, env = len(env.validation) - rows, replace(env, validation=env.validation[:rows])
    left = max(1, total - _VALIDATED * rows + recorded_rows(env) - later * (env.start_answers > 0))
    return LearningBudget(env, left, asks, batch, rounds, affords=affords)
