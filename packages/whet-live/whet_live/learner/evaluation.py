"""Evaluators on live answers: the reward of a task folder grades a sample of the traffic, a bounded number a day.

Grades become feedback of the kind `score` under the name of the task, so that charts, alerts and experiments see them. A low
grade keeps the critique of the reward as its text, and the learner reads it like a comment. The learner counts what an evaluator
says about the answers to one user as one source: a way to fail that several users meet becomes a requirement, one that a single
user provokes does not.

The sample is spread over the day: by hour h (UTC) at most (h + 1) / 24 of the day's number are graded, chosen by a hash among
all that arrived since the last time. It is graded in parts: each counts before it is paid for, so that no kill makes it more,
and its grades are stored before the next part begins.
"""

from __future__ import annotations

import asyncio
import math
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from sqlalchemy import Connection, select

from whet.engine.assemble import assemble
from whet.engine.durable import DurableRun
from whet.engine.run_folder import RunPlan, open_run
from whet.errors import ProviderError, UsageError
from whet.feedback.sources import EVALUATOR
from whet.instructions.personal_data import mask_personal
from whet.methods import get_method
from whet.rewards import JUDGE, LABELS, TARGET, TARGET_SCORE, RewardFailed
from whet.run import Budget, Run
from whet.search.minibatch import shorten
from whet.task import Task, load_task
from whet.types import Completion, Example, Reward, content_hash
from whet_client.prompt.slots import text_of_value
from whet_client.records import Feedback, Inference
from whet_live.database import iso, put
from whet_live.learner.context import LearnerContext
from whet_live.learner.evaluator_config import EvaluatorConfig, check_one_prompt
from whet_live.learner.gate_config import METHOD
from whet_live.learner.learner_tables import evaluators
from whet_live.learner.leases import Lease, hold
from whet_live.traffic.traffic_tables import inferences

MOST_LOOKED_AT = 20_000
"""The newest answers among which the sample is drawn."""
PART = 20
"""Answers that are graded between two writes: so many grades a kill or a judge that does not answer may cost."""
LONGEST_CRITIQUE = 2000
_DAY, _HOUR = 86_400_000_000, 3_600_000_000
_ABSENT = {TARGET: "a target", LABELS: "labels", TARGET_SCORE: "the score of a target"}


@dataclass(frozen=True, slots=True)
class EvaluatorState:
    """The work of an evaluator of a prompt."""

    prompt: str
    evaluator: str
    seq: int = 0
    """The row of traffic up to which it has chosen its answers."""
    day: str = ""
    """The day of the following counts."""
    answers: int = 0
    """Answers that it chose on `day`."""
    low: int = 0
    """Those of `answers` that got a low grade."""
    failed: int = 0
    """Those of `answers` that could not be graded."""
    at: int = 0
    """The time of the evaluator's last action (microseconds)."""

    def as_json(self) -> dict[str, Any]:
        """The state as JSON values."""
        return {**asdict(self), "at": iso(self.at)}


def load_evaluator(config: EvaluatorConfig) -> Task:
    """The task of an evaluator. Raises UsageError for one whose reward cannot grade an answer by itself: it needs a target or
    labels, or an episode of several steps."""
    task = load_task(config.task)
    absent = [_ABSENT[need] for need in sorted(task.reward.needs & _ABSENT.keys())]
    if absent:
        raise UsageError(
            f"The reward of {config.task} needs {' and '.join(absent)}, which live answers do not have. Give a judge, a "
            "checklist, a rule or a program that reads input and answer only."
        )
    if task.world is not None or task.program is not None or task.cases:
        raise UsageError(
            f"{config.task} rewards whole episodes or programs; an evaluator grades single answers."
        )
    config.options(task)
    return task


def read_evaluators(connection: Connection, prompt: str) -> list[EvaluatorState]:
    """The evaluators that have looked at a prompt, by name."""
    query = select(evaluators).where(evaluators.c.prompt == prompt).order_by(evaluators.c.evaluator)
    return [EvaluatorState(**row._mapping) for row in connection.execute(query)]


def allowance(config: EvaluatorConfig, state: EvaluatorState, moment: int) -> int:
    """The number of answers that may be graded at a time (microseconds). None where the state is of the next day: the clock of
    another server runs ahead, and has the budget of that day."""
    today = iso(moment)[:10]
    if today < state.day <= iso(moment + _DAY)[:10]:
        return 0
    spent = state.answers if state.day == today else 0
    share = (moment % _DAY // _HOUR + 1) / 24
    return max(0, math.ceil(config.daily * share) - spent)


async def evaluate_answers(
    context: LearnerContext, config: EvaluatorConfig, moment: int | None = None
) -> EvaluatorState | None:
    """Grade a sample of the answers that arrived since the last time; what the evaluator did so far.

    None where it may grade none now, there are none, or another process is at it. An answer that the judge refuses cannot be
    graded, and the others are. Raises UsageError for a task that cannot be used, ProviderError where the judge does not
    answer at all, and RunLocked where another process took over: what was chosen by then is not chosen again.
    """
    at = context.database.read_time() if moment is None else moment
    task = load_evaluator(config)
    with hold(context.database, f"evaluate {config.prompt}") as lease:
        if lease is None:
            return None
        with context.database.read() as connection:
            before = _state_of(connection, config.prompt, task.name)
            chosen, newest = _choose(connection, config, before, task.name, at)
        if not chosen:
            return None
        day = iso(at)[:10]
        known = before if before.day == day else EvaluatorState(config.prompt, task.name)
        state = replace(known, seq=newest, day=day, at=at)
        for part in (chosen[n : n + PART] for n in range(0, len(chosen), PART)):
            state = replace(state, answers=state.answers + len(part))
            _write(context, lease, state)
            try:
                state = await _grade_part(context, config, task, part, state)
            except ProviderError:
                _write(context, lease, replace(state, failed=state.failed + len(part)))
                raise
            _write(context, lease, state)
        return state


async def _grade_part(
    context: LearnerContext, config: EvaluatorConfig, task: Task, part: Sequence[str], state: EvaluatorState
) -> EvaluatorState:
    """Grade some answers and store the grades; the state with them."""
    stored = [row for key in part if (row := context.traffic.inference(key)) is not None]
    answers = [row.inference for row in stored]
    rewards = await _grade(config, task, answers) if answers else {}
    rows = [
        _as_feedback(config, task, answer, rewards[answer.id]) for answer in answers if answer.id in rewards
    ]
    context.traffic.add((), rows)
    low = sum(_is_low(config, task, row.value) for row in rows)
    return replace(state, low=state.low + low, failed=state.failed + len(part) - len(rows))


def _state_of(connection: Connection, prompt: str, evaluator: str) -> EvaluatorState:
    known = [one for one in read_evaluators(connection, prompt) if one.evaluator == evaluator]
    return known[0] if known else EvaluatorState(prompt, evaluator)


def _write(context: LearnerContext, lease: Lease, state: EvaluatorState) -> None:
    with context.database.begin() as connection:
        lease.check(connection)
        put(connection, evaluators, asdict(state))


def _choose(
    connection: Connection, config: EvaluatorConfig, state: EvaluatorState, name: str, at: int
) -> tuple[list[str], int]:
    """The ids of the answers to be graded, and the number of the newest among which they were chosen."""
    most = allowance(config, state, at)
    if not most:
        return [], state.seq
    i = inferences.c
    query = (
        select(i.id, i.seq)
        .where(i.prompt == config.prompt, i.seq > state.seq, i.error.is_(None))
        .order_by(i.time.desc(), i.seq.desc())
        .limit(MOST_LOOKED_AT)
    )
    rows = connection.execute(query).all()
    drawn = sorted(rows, key=lambda row: content_hash([name, row.id]))[:most]
    return [row.id for row in drawn], max((row.seq for row in rows), default=state.seq)


async def _grade(config: EvaluatorConfig, task: Task, answers: Sequence[Inference]) -> dict[str, Reward]:
    """The reward of each answer, by its id; without those that could not be graded. Raises ProviderError where the judge
    does not answer at all."""
    limits = Budget()
    options = config.options(task)
    assembly = assemble(task, options, limits)
    method = get_method(METHOD)
    how = {"evaluate": [answer.id for answer in answers], **assembly.generation}
    plan = RunPlan(task, method, method.config(), limits, 0, assembly.addresses, how)
    folder = config.root / f"evaluate-{task.name}-{content_hash(how)[:12]}"
    try:
        cache = assembly.cache(folder, options)
        opened = open_run(folder, plan, assembly.clients, cache, lambda name, value: None)
        try:
            run = DurableRun(opened.core, "/evaluate", limits)

            async def one(branch: Run, answer: Inference) -> Reward | None:
                try:
                    return await assembly.env.reward.grade(
                        branch, _as_example(answer), Completion(answer.output)
                    )
                except RewardFailed:
                    return None

            rewards = await run.map(one, list(answers))
        finally:
            await opened.core.caller.drain()
            opened.core.caller.cache.close()
            opened.core.journal.close()
    finally:
        await assembly.close()
        await asyncio.to_thread(
            shutil.rmtree, folder, ignore_errors=True
        )  # it holds inputs and answers of people
    graded = zip(answers, rewards, strict=True)
    return {answer.id: reward for answer, reward in graded if reward is not None}


def _as_example(answer: Inference) -> Example:
    values = {name: text_of_value(value) for name, value in answer.inputs.items()}
    return Example(answer.id, values, None, {"id": answer.id, **values})


def _is_low(config: EvaluatorConfig, task: Task, value: float | None) -> bool:
    reward = task.reward
    return value is not None and (value - reward.low) / (reward.high - reward.low) < config.low


def _as_feedback(config: EvaluatorConfig, task: Task, answer: Inference, reward: Reward) -> Feedback:
    """The grade as a row of feedback. Personal data that a critique quotes is masked."""
    critique = (reward.critique or "").strip() if _is_low(config, task, reward.value) else ""
    return Feedback(
        "score",
        answer.id,
        reward.value,
        shorten(mask_personal(critique), LONGEST_CRITIQUE) or None,
        name=task.name,
        source="model" if JUDGE in task.reward.needs else "code",
        user=f"{EVALUATOR}{task.name}",
    )


def describe_evaluators(configs: Sequence[EvaluatorConfig]) -> list[str]:
    """A description of the evaluators for the person who starts them. Raises UsageError for one that cannot be used."""
    lines, known = [], dict[tuple[str, str], EvaluatorConfig]()
    for config in configs:
        check_one_prompt(config.prompt, "an evaluator grades the answers")
        task = load_evaluator(config)
        other = known.setdefault((config.prompt, task.name), config)
        if other is not config:
            raise UsageError(
                f"Two evaluators of {config.prompt} are called {task.name}: {other.task} and {config.task}. Grades are stored "
                "under this name; change `name` in one task.yaml."
            )
        calls = int(getattr(task.reward, "judge_calls", 0))
        paid = f", at most {calls * config.daily} calls of a judge" if calls else ""
        lines.append(f"{task.name} grades up to {config.daily} answers of {config.prompt} a day{paid}")
    return lines
