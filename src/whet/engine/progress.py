"""The display of a run in progress: its phase, the best prompt beside the baseline on the same rows, calls, pace, waits.

The engine writes, and a terminal, a notebook or a log reads from another thread at any time.
"""

from __future__ import annotations

import time
import warnings
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, Protocol

from whet.engine.budget import BudgetAccount
from whet.engine.durable import FORECAST, STOPPED, TRAINING, RunState
from whet.engine.plan_json import PlanJSON
from whet.engine.sealed_power import promotion_warning
from whet.errors import quantity, show_duration, show_reward
from whet.rl.language import MOST_REPEATS, REPEATED
from whet.types import Rollout, mean_score

STEPS_TIMED = 10
COURSES = ("kl", "entropy", "length")
"""Figures of training whose course is drawn."""
LATEST = 50
"""Rollouts whose mean reward is shown as that of the latest."""
PROMPTS_KEPT = 2_000
WINDOW = 30.0
"""Seconds over which the pace is measured."""
FIRST_ESTIMATE = 15.0
"""Seconds of a session before any time left is said."""
AGREEMENT = 1.5
"""Factor within which the pace of the last seconds and that of the whole session must lie for a time left to be said."""
STALLED = 10.0
"""Seconds without an answer from which on the wait is said."""


def warn_of_plan(plan: PlanJSON) -> None:
    """Give a Python warning if nothing can be promoted with the rows of the plan."""
    if (warning := promotion_warning(plan)) is not None:
        warnings.warn(warning, stacklevel=2)


def describe_repeats(number: int, text: str) -> str:
    """The warning about an optimizer model that wrote the same text this many times in a row."""
    return (
        f'The optimizer model wrote the same text {number} times in a row ("{text}"), so that the search has nothing new to try '
        f"with it, and each reply is paid. After {MOST_REPEATS} of them, the search asks it no more. Raise its temperature "
        "(`models: {optimizer: {temperature: 1}}` in task.yaml; a server may ignore it), or name another model (`optimizer_lm`). "
        "The run may be ended now (Ctrl-C), and keeps its best prompt."
    )


@dataclass(frozen=True)
class TrainingStep:
    """The step of a training that is under way: its number from 0, of how many, when it began (seconds of the monotonic clock),
    and whether its answers are recorded."""

    number: int
    steps: int
    began: float
    recorded: bool = False


@dataclass
class Progress:
    """The progress of a run, to be displayed while the run continues."""

    phase: str = "starting"
    core: RunState | None = None
    baseline: float | None = None
    """Mean reward of the start prompt on the validation rows of `best`; None: it was not measured on them."""
    best: float | None = None
    """Mean reward of the best prompt on its validation rows."""
    rows: int | None = None
    """The number of validation rows on which `best` was measured."""
    whole: int | None = None
    """The number of validation rows of the task."""
    done: int = 0
    """The number of graded rollouts of the phase."""
    due: int | None = None
    """The number of all rollouts of the phase; None if unknown."""
    note: str = ""
    title: str = ""
    """The current part of a larger job, such as a comparison."""
    earlier: int = 0
    """Calls of the earlier parts of that job."""
    earlier_cost: float = 0.0
    """US dollars of the earlier parts."""
    planned_calls: int | None = None
    """The most calls that all parts may take."""
    parts: dict[str, str] = field(default_factory=dict)
    """A line about each run that has its own process, by its name."""
    latest: deque[float] = field(default_factory=lambda: deque(maxlen=LATEST))
    """Rewards of the newest rollouts."""
    figures: Mapping[str, float] = field(default_factory=dict)
    """The figures of the newest step."""
    rewards: list[float] = field(default_factory=list)
    """The reward of each step."""
    courses: dict[str, list[float]] = field(default_factory=dict)
    """Other figures of each step that are drawn, by name."""
    signal: str = ""
    """The training reward of a step, if it differs from the task's reward."""
    times: deque[float] = field(default_factory=lambda: deque(maxlen=STEPS_TIMED))
    """The ends of the last few steps, in seconds of the monotonic clock."""
    trains: str = ""
    """The weights that the method trains."""
    training: TrainingStep | None = None
    """The training step that is under way."""
    durations: deque[float] = field(default_factory=lambda: deque(maxlen=STEPS_TIMED))
    """Seconds that the last few steps took, without steps whose answers were recorded."""
    warn: Callable[[str], None] = lambda warning: None
    """Called with a warning for a person before anything is paid."""
    say: Callable[[str], None] = lambda line: None
    planned: Callable[[PlanJSON], None] = warn_of_plan
    """Called with the plan."""
    best_is_start: bool = False
    """Whether no other prompt was validated and better yet."""
    repeats_told: bool = False
    """Whether a message has said that the optimizer model writes the same text again and again."""
    index_failed: bool = False
    """Whether a message has said that the index of runs cannot be written."""
    latest_prompts: deque[str] = field(default_factory=lambda: deque(maxlen=LATEST))
    """The ids of the prompts of `latest`."""
    _start: dict[str, float] = field(default_factory=dict)
    _start_id: str = ""
    _seen: OrderedDict[str, dict[str, float]] = field(default_factory=OrderedDict)

    def begin(self, phase: str, due: int | None = None) -> None:
        """Enter a phase in which `due` rollouts are graded."""
        self.phase, self.done, self.due = phase, 0, due
        self.latest.clear()
        self.latest_prompts.clear()

    def begin_part(self, title: str) -> None:
        """Enter another run of a larger job; the usage of the previous run is kept in `earlier`."""
        if self.core is not None:
            self.earlier += self.core.budget.spent.total_calls
            self.earlier_cost += self.core.budget.spent.cost
        self.begin("starting")
        self.title, self.core, self.baseline, self.best, self.rows = title, None, None, None, None
        self.figures, self.rewards, self.courses, self.signal = {}, [], {}, ""
        self.times.clear()
        self.durations.clear()
        self.trains, self.training = "", None
        self._start, self._start_id, self.best_is_start = {}, "", False
        self._seen.clear()

    def on_rollout(self, rollout: Rollout) -> None:
        """Take in a graded rollout."""
        self.done += 1
        if rollout.answered:
            self.latest.append(rollout.reward)
            self.latest_prompts.append(rollout.prompt_id)
        if rollout.example_id in self._start:
            rewards = self._seen.setdefault(rollout.prompt_id, {})
            rewards[rollout.example_id] = rollout.reward
            self._seen.move_to_end(rollout.prompt_id)
            if len(self._seen) > PROMPTS_KEPT:
                self._seen.popitem(last=False)

    def on_baseline(self, rollouts: Sequence[Rollout], whole: int) -> None:
        """Take in the start prompt's rollouts on the validation rows of the run, out of `whole` rows of the task."""
        self._start = {r.example_id: r.reward for r in rollouts}
        self._start_id = rollouts[0].prompt_id if rollouts else ""
        self.baseline = self.best = mean_score(rollouts).mean
        self.best_is_start = True
        self.rows, self.whole = len(rollouts), whole

    def on_event(self, name: str, value: Any) -> None:
        """Follow the validated incumbent and the method's own figures."""
        if name == "validated" and value.get("incumbent"):
            self.best, self.rows = value["validation"], value.get("n")
            prompt = str(value.get("id", "")).partition("+")[0]
            self.baseline, self.best_is_start = self._baseline_beside(prompt), prompt == self._start_id
        elif name == "step" and isinstance(value, Mapping):
            self.figures = {k: float(v) for k, v in value.items() if isinstance(v, int | float)}
            self.signal = str(value.get("signal", ""))
            self.times.append(time.monotonic())
            reward = self.figures.get("reward", self.figures.get("answer"))
            self.rewards += [] if reward is None else [reward]
            for figure in COURSES:
                if figure in self.figures:
                    self.courses.setdefault(figure, []).append(self.figures[figure])
        elif name == TRAINING:
            self._on_training(value)
        elif name == FORECAST:
            self.say(training_forecast(value, self.figures.get("memory")))
        elif name == STOPPED:
            self.say(f"training: stopped. {value}")
        elif name == "replies" and REPEATED in value and not self.repeats_told:
            self.repeats_told = True
            self.say(f"warning: {describe_repeats(*value[REPEATED])}")

    def _on_training(self, value: Mapping[str, Any] | None) -> None:
        """Take in a step of training that begins, or the end of the training."""
        before, now = self.training, time.monotonic()
        step = None if value is None else TrainingStep(value["step"], value["steps"], now, value["recorded"])
        self.training = step
        if before is not None and not before.recorded:
            self.durations.append(now - before.began)
        if before is None and step is not None:
            first, steps = step.number + 1, step.steps
            span = quantity(steps, "step") if first == 1 else f"from step {first:,} of {steps:,} on"
            self.durations.clear()
            self.say(f"training: {self.trains or 'weights'}, {span}")

    def training_left(self) -> tuple[float, float | None]:
        """The seconds of the current step so far, and the seconds until the training ends. The second value is None if there is
        no reliable estimate: before the first step has ended, and while the current or the previous step takes much longer or
        shorter than the last few."""
        if self.training is None:
            return 0.0, None
        lasted = time.monotonic() - self.training.began
        if not self.durations or self.training.recorded:
            return lasted, None
        each = fmean(self.durations)
        if not each / AGREEMENT <= self.durations[-1] <= AGREEMENT * each or lasted > AGREEMENT * max(
            self.durations
        ):
            return lasted, None
        left = each * (self.training.steps - self.training.number) - lasted
        return lasted, max(left, 0.0)

    def newest(self) -> str:
        """The mean reward of the newest rollouts, of the current prompt or of several prompts that are tried together."""
        if not self.latest_prompts:
            return ""
        pairs = list(zip(self.latest_prompts, self.latest, strict=False))
        own = [reward for prompt, reward in pairs if prompt == pairs[-1][0]]
        if pairs[-len(own) :] != [pair for pair in pairs if pair[0] == pairs[-1][0]]:
            return f"latest rollouts {show_reward(fmean(self.latest), 2)} (n={len(pairs)}, several prompts)"
        return f"prompt tried now {show_reward(fmean(own), 2)} (n={len(own)})"

    def _baseline_beside(self, prompt: str) -> float | None:
        """The start prompt's mean on the rows on which `best` was measured; None where it is not known."""
        if prompt == self._start_id:
            return self.best
        if self.rows == len(self._start):
            return fmean(self._start.values())
        rewards = self._seen.get(prompt, {})
        return fmean(self._start[row] for row in rewards) if len(rewards) == self.rows else None


class _Memory(Protocol):
    """Bytes: `whet.rl.policy_model.backbone.MemoryForecast`."""

    @property
    def weights(self) -> int: ...
    @property
    def learning(self) -> int: ...
    @property
    def passes(self) -> int: ...
    @property
    def sampler(self) -> int: ...
    @property
    def total(self) -> int: ...


def memory_forecast(memory: _Memory, processes: int) -> str:
    """The forecast of the memory that a training takes at most, in GiB."""
    weights, learning, passes, total = (
        f"{part / 2**30:.2g}" for part in (memory.weights, memory.learning, memory.passes, memory.total)
    )
    each = f" in each of {processes} processes" if processes > 1 else ""
    vllm = f", {memory.sampler / 2**30:.2g} for vLLM" if memory.sampler else ""
    return (
        f"training: by a formula it takes at most {total} GiB{each}: {weights} for weights, {learning} for gradients and Adam, "
        f"{passes} for the largest pass{vllm}"
    )


def first_forecast(steps: int, seconds: float, processes: int, price: float, tokens: int) -> str:
    """The cost of a whole training before its first step: the seconds of a step, as a trial of the policy forecasts them,
    and US dollars for an hour of the policy's work in one process."""
    text = (
        f"training: by a trial of a few tokens, {quantity(steps, 'step')} take about {show_duration(steps * seconds)}"
        f" of the policy's work if every text has {tokens} tokens, and the limits allow them all"
    )
    if price:
        text += f"; ${steps * seconds * processes / 3600 * price:.2g} for the policy (${price:g} an hour)"
    return f"{text}. The calls of the task model come on top"


def training_forecast(forecast: Mapping[str, float], memory: float | None) -> str:
    """The resources of a whole training, by its first step: time, dollars where the policy has a price, memory in GiB where
    known.

    `forecast`: `step` and `trained` are the seconds of the first step and those of them in which the policy worked, `steps` how
    many there are in all, `left` after it, `price` US dollars for an hour of the policy's work.
    """
    left, each = forecast["left"], forecast["step"]
    whole = f"{quantity(int(forecast['steps']), 'step')} of training"
    text = f"training: by the first step, which took {show_duration(each)}, {whole} take about {show_duration(each * (left + 1))}"
    if forecast["price"]:
        dollars = forecast["trained"] * (left + 1) / 3600 * forecast["price"]
        text += f" and ${dollars:.2g} for the policy (${forecast['price']:g} an hour)"
    return text + (f"; {memory:.1f} GiB so far" if memory is not None else "")


@dataclass
class Speed:
    """The rate at which a run spends, from samples that a reader takes now and then.

    `clock` counts seconds. `sample` is called before anything is read."""

    clock: Callable[[], float] = time.monotonic
    _samples: deque[tuple[float, Mapping[str, float]]] = field(default_factory=deque)
    _first: tuple[float, Mapping[str, float]] | None = None
    _core: RunState | None = None
    _moved: float = 0.0

    def sample(self, core: RunState) -> None:
        """Note what is spent by now."""
        now, spent = self.clock(), _spent_by_limit(core.budget)
        if core is not self._core:
            self._samples.clear()
            self._core, self._first, self._moved = core, (now, spent), now
        elif self._samples and self._samples[-1][1] != spent:
            self._moved = now
        self._samples.append((now, spent))
        while len(self._samples) > 2 and self._samples[1][0] <= now - WINDOW:
            self._samples.popleft()

    @property
    def calls(self) -> float | None:
        """Calls a second over the last seconds, answers from the cache apart; None before there are any."""
        rate = self._rate(self._samples[0] if self._samples else None, "paid")
        return rate if rate is not None and rate > 0 else None  # refused calls are given back

    @property
    def still(self) -> float:
        """Seconds since anything was spent last."""
        return self.clock() - self._moved if self._core is not None else 0.0

    def seconds_left(self, core: RunState) -> float | None:
        """Seconds until the limit that is reached first, at most; None where that cannot be said honestly.

        Nothing is said in the first seconds, while nothing moves, and where the last seconds were much faster or slower than the
        session as a whole.
        """
        if self._first is None or not self._samples or self.still > STALLED:
            return None
        lasted = self._samples[-1][0] - self._first[0]
        if lasted < FIRST_ESTIMATE:
            return None
        limits, used, ends = core.budget.limits, self._samples[-1][1], []
        for name in ("calls", "task_calls", "optimizer_calls", "judge_calls", "tokens", "cost_usd"):
            if (limit := getattr(limits, name)) is None:
                continue
            recent, all_along = self._rate(self._samples[0], name), self._rate(self._first, name)
            if recent is None or all_along is None or recent <= 0 or all_along <= 0:
                continue
            if not 1 / AGREEMENT <= recent / all_along <= AGREEMENT:
                return None
            ends.append(max(0.0, limit - used[name]) / min(recent, all_along))
        if limits.seconds is not None:
            ends.append(max(0.0, limits.seconds - core.budget.seconds))
        return min(ends, default=None)

    def _rate(self, since: tuple[float, Mapping[str, float]] | None, name: str) -> float | None:
        if since is None or not self._samples or self._samples[-1][0] - since[0] < 1.0:
            return None
        now, spent = self._samples[-1]
        return (spent[name] - since[1][name]) / (now - since[0])


def _spent_by_limit(budget: BudgetAccount) -> dict[str, float]:
    """The amounts that the run has spent so far, by the name of the limit. `paid`: calls that no cache answered."""
    spent = budget.spent
    return {
        **{f"{role}_calls": float(n) for role, n in spent.calls.items()},
        "calls": float(spent.total_calls),
        "paid": float(spent.total_calls - sum(spent.cached.values())),
        "tokens": float(spent.input_tokens + spent.output_tokens),
        "cost_usd": spent.cost,
    }


def waits(core: RunState) -> list[tuple[str, float]]:
    """The models that rest because their servers asked for it, with the seconds that are left."""
    resting = ((client.model.address, client.limiter.rests) for client in core.caller.clients.values())
    return [(address, seconds) for address, seconds in resting if seconds > 0]
