"""The display of a run in progress: a moving line on a terminal or in a notebook, plain lines now and then elsewhere."""

from __future__ import annotations

import html
import importlib
import itertools
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from typing import Any

from whet._util.terminal import announce
from whet._util.user_code import under_way
from whet.engine.plan_json import PlanJSON
from whet.engine.plan_text import plan_lines
from whet.engine.progress import STALLED, Progress, Speed, waits
from whet.errors import quantity, show_duration, show_reward
from whet.instructions import visible

PLAIN_SECONDS = (3.0, 10.0, 20.0, 30.0)
"""The times at which plain lines are written, in seconds; then every 30 s."""
LIVE_SECONDS, TICK_SECONDS = 0.25, 1.0
COMPUTING = 3.0
"""Seconds from which on code of the user that is under way is named."""
MOST_LINES = 9
BLOCKS, CURVE, NARROW, BAR = "▁▂▃▄▅▆▇█", 16, 8, 16
_STYLE = "white-space: pre-wrap; color: inherit; background: transparent"


@contextmanager
def display_progress(
    progress: Progress | bool | None, subject: str = "", *, warn: Callable[[str], None] | None = None
) -> Iterator[Progress]:
    """Show on stderr, or in the notebook, how what happens meanwhile goes on; yields what the engine writes into.

    progress: False shows nothing, and what a person should know before anything is paid becomes Python warnings; a Progress is
    the caller's own to show; anything else is shown. subject: what is read before a plan is there. warn: prints a warning.
    """
    if isinstance(progress, Progress):
        yield progress
    elif progress is False or sys.stderr is None:
        yield Progress(warn=lambda text: warnings.warn(visible(text), stacklevel=2))
    else:
        with Display(subject, warn).show() as own:
            yield own


class Display:
    """One piece of work on the screen."""

    def __init__(self, subject: str = "", warn: Callable[[str], None] | None = None) -> None:
        """`subject`: what is read at first. `warn`: how a warning is printed."""
        self.subject, self.pace, self._started = subject, Speed(), time.monotonic()
        self._print, self._printed = warn or self._say_warning, set[str]()
        self.progress = Progress(warn=self._warn, say=_SCREEN.say, planned=self._plan)

    @contextmanager
    def show(self) -> Iterator[Progress]:
        """Meanwhile it is on the screen."""
        _SCREEN.add(self)
        try:
            yield self.progress
        finally:
            _SCREEN.remove(self)

    def line(self) -> str:
        """The state of the run, in one line."""
        progress = self.progress
        self.sample()
        reading = self.subject and progress.core is None
        return progress_line(
            progress,
            time.monotonic() - self._started,
            self.pace,
            f"reading {self.subject}" if reading else _phase(progress),
        )

    def lines(self) -> list[str]:
        """The state of the run, and below it the state of each part that works at the same time."""
        return [self.line(), *(f"  {name}: {text}" for name, text in list(self.progress.parts.items()))]

    def sample(self) -> None:
        """Note what is spent by now, for the pace."""
        if (core := self.progress.core) is not None:
            self.pace.sample(core)

    def share(self) -> float | None:
        """The share of the calls that are made, in [0, 1]; None where nobody knows how many there will be."""
        made, most = _calls(self.progress)
        return None if not most else min(1.0, made / most)

    def _plan(self, plan: PlanJSON) -> None:
        self.subject = ""
        for text in plan_lines(plan):
            if self._is_new(text):
                _SCREEN.say(text)

    def _warn(self, text: str) -> None:
        """Print a warning, which a control run may have too, once."""
        if self._is_new(text):
            self._print(text)

    def _say_warning(self, text: str) -> None:
        _SCREEN.say(f"warning: {text}")

    def _is_new(self, text: str) -> bool:
        """Whether a text was not printed before; from now on it was."""
        new = text not in self._printed
        self._printed.add(text)
        return new


class ProgressScreen:
    """All that goes on in this process, in one place: a process has one terminal."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shown: list[Display] = []
        self._said: list[str] = []
        self._stop, self._due = threading.Event(), 0.0
        self._live: Any = None
        self._cell: Any = None
        announce(self)

    def pause(self) -> None:
        """Leave the terminal to a question."""
        with self._lock:
            if self._live is not None:
                self._live.stop()

    def resume(self) -> None:
        """Draw again what goes on."""
        with self._lock:
            if self._live is not None:
                self._live.start()

    def add(self, display: Display) -> None:
        """Show a piece of work; the first one opens the screen."""
        with self._lock:
            self._shown.append(display)
            if len(self._shown) == 1:
                self._open()

    def remove(self, display: Display) -> None:
        """Show it no more; the last one closes the screen."""
        with self._lock:
            if self._cell is not None:
                self._said.append(display.line())
            self._shown.remove(display)
            if not self._shown:
                self._close()

    def say(self, text: str) -> None:
        """A line that stays."""
        if self._cell is not None:
            self._said.append(text)
            self._cell.update(self._html())
        else:
            _write(text)

    def lines(self) -> list[str]:
        """One line for each piece of work and each of its parts, a few at most."""
        return [text for _, text in self._rows()]

    def _rows(self) -> list[tuple[float | None, str]]:
        """These lines, each with the share of the calls that are made where the line is that of a piece of work."""
        rows: list[tuple[float | None, str]] = []
        for one in list(self._shown):
            first, *parts = one.lines()
            rows += [(one.share(), first), *((None, text) for text in parts)]
        more = [(None, f"and {len(rows) - MOST_LINES} more")] if len(rows) > MOST_LINES else []
        return [*rows[:MOST_LINES], *more]

    def _open(self) -> None:
        self._stop, self._said, self._due = threading.Event(), [], PLAIN_SECONDS[0]
        if (cell := _notebook_cell()) is not None:
            self._cell = cell
            self._tick(lambda seconds: self._cell.update(self._html()))
        elif sys.stderr.isatty():
            self._live = _live(self)
            self._live.start()
        else:
            self._tick(self._write_when_due)

    def _close(self) -> None:
        self._stop.set()
        if self._live is not None:
            self._live.stop()
        if self._cell is not None:
            self._cell.update(self._html())
        self._live = self._cell = None

    def _tick(self, show: Callable[[float], None]) -> None:
        """Call `show` every second with the seconds since the screen was opened."""
        stop, opened = self._stop, time.monotonic()

        def work() -> None:
            while not stop.wait(TICK_SECONDS):
                show(time.monotonic() - opened)

        threading.Thread(target=work, name="whet-progress", daemon=True).start()

    def _write_when_due(self, seconds: float) -> None:
        for display in list(self._shown):
            display.sample()
        if seconds >= self._due:
            later = [at for at in PLAIN_SECONDS if at > seconds]
            self._due = later[0] if later else seconds + PLAIN_SECONDS[-1]
            _write(*self.lines())

    def _html(self) -> Any:
        text = html.escape("\n".join([*self._said, *self.lines()]))
        return _ipython().HTML(f'<pre style="{_STYLE}">{text}</pre>')

    def render(self) -> Any:
        """The parts that rich draws: a bar if the amount of work is known, and the line."""
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        grid = Table.grid(padding=(0, 1))
        for share, text in self._rows():
            bar = "" if share is None else ProgressBar(total=1.0, completed=share, width=BAR)
            grid.add_row(bar, Text(visible(text)))
        return grid


_SCREEN = ProgressScreen()


def _live(screen: ProgressScreen) -> object:
    """rich's live display on stderr. What is printed meanwhile stands above it, on stdout only where that is the terminal too."""
    from rich.console import Console
    from rich.live import Live

    return Live(
        get_renderable=screen.render,
        console=Console(stderr=True),
        transient=True,
        refresh_per_second=1 / LIVE_SECONDS,
        redirect_stdout=sys.stdout is not None and sys.stdout.isatty(),
    )


def _notebook_cell() -> object:
    """A place in the output of a notebook's cell that can be written anew; None outside of a notebook."""
    shell = sys.modules.get("IPython")
    running = None if shell is None else shell.get_ipython()
    if running is None or not hasattr(running, "kernel"):
        return None
    return _ipython().display(_ipython().HTML(""), display_id=True)


def _ipython() -> Any:
    return importlib.import_module("IPython.display")


def _write(*lines: str) -> None:
    """Lines on stderr, where there is one."""
    if sys.stderr is not None:
        sys.stderr.write("".join(f"{visible(text)}\n" for text in lines))
        sys.stderr.flush()


def progress_line(
    progress: Progress, seconds: float, pace: Speed | None = None, phase: str | None = None
) -> str:
    """One line: the phase, best against baseline, the newest rollouts, how training goes, calls, pace, cost, waits, time."""
    parts = [progress.title, _phase(progress) if phase is None else phase, _best(progress)]
    core = progress.core
    if progress.phase == "search":
        if progress.figures or progress.training:
            parts += training(progress, 0 if core is None else core.steps)
        else:
            parts.append(progress.newest())
    if core is not None:
        parts += _spending(progress, pace or Speed())
    elif progress.parts:
        parts += _spending_of_parts(progress)
    parts += [f"{show_duration(seconds)}", progress.note]
    return " · ".join(part for part in parts if part)


def _phase(progress: Progress) -> str:
    if progress.due is None:
        return progress.phase
    return f"{progress.phase} {min(progress.done, progress.due):,} of {progress.due:,}"


def _best(progress: Progress) -> str:
    """The best prompt beside the baseline on the same rows, and which these are where they are not all."""
    if progress.best is None:
        return ""
    base = "" if progress.baseline is None else f" (baseline {show_reward(progress.baseline)})"
    rows = ""
    if progress.rows is not None and progress.whole is not None and progress.rows < progress.whole:
        rows = f" on {progress.rows:,} of {progress.whole:,} validation rows"
    if progress.best_is_start:
        return f"baseline {show_reward(progress.best)}{rows}, no better prompt validated yet"
    return f"best {show_reward(progress.best)}{base}{rows}"


def _calls(progress: Progress) -> tuple[int, int | None]:
    """Calls of all parts so far, and how many there may be."""
    if progress.core is None:
        return progress.earlier, progress.planned_calls
    budget = progress.core.budget
    return progress.earlier + budget.spent.total_calls, progress.planned_calls or budget.limits.calls


def _spending_of_parts(progress: Progress) -> list[str]:
    """Calls and dollars of runs that go on in processes of their own."""
    made, most = _calls(progress)
    cost = progress.earlier_cost
    return [quantity(made, "call") + (f" of {most:,}" if most else ""), f"${cost:.4f}" if cost else ""]


def _spending(progress: Progress, pace: Speed) -> list[str]:
    """Calls, pace, dollars, waits, and the time that is left where that can be said."""
    core = progress.core
    assert core is not None
    made, most = _calls(progress)
    parts = [quantity(made, "call") + (f" of {most:,}" if most else "")]
    if refused := sum(core.budget.spent.refused.values()):
        parts.append(f"{refused:,} refused")
    if rate := pace.calls:
        parts.append(_rate(rate))
    if cost := progress.earlier_cost + core.budget.spent.cost:
        parts.append(f"${cost:.4f}")
    resting = waits(core)
    in_flight = sum(client.limiter.in_flight for client in core.caller.clients.values())
    if resting:
        long = [(address, seconds) for address, seconds in resting if seconds >= 1]
        parts += [f"{address} asked whet to wait {show_duration(seconds)} more" for address, seconds in long]
    elif (computing := under_way())[1] > COMPUTING:
        parts.append(f"{computing[0]} has been computing for {show_duration(computing[1])}")
    elif in_flight and pace.still > STALLED:
        parts.append(f"no answer for {show_duration(pace.still)}, {quantity(in_flight, 'call')} in flight")
    elif (
        progress.training is None
        and progress.planned_calls is None
        and (left := pace.seconds_left(core)) is not None
    ):
        parts.append(f"at most about {show_duration(left)} left")
    return parts


def _rate(calls: float) -> str:
    if calls >= 0.95:
        return f"{calls:.0f} calls/s" if calls >= 9.5 else f"{calls:.1f} calls/s"
    return f"a call every {1 / calls:.0f} s"


def training(progress: Progress, steps: int) -> list[str]:
    """The step of training under way, or the newest of `steps` steps (0: unknown); the newest reward, divergence, entropy and
    length with the curves so far, the share that was clipped, pace, time left and memory."""
    figures, rewards = progress.figures, progress.rewards
    parts = []
    if (step := progress.training) is not None:
        parts.append(f"training step {step.number + 1:,} of {step.steps:,}")
    elif "step" in figures:
        parts.append(f"step {figures['step'] + 1:.0f}" + (f" of {steps}" if steps else ""))
    if rewards:
        name = f"training reward ({progress.signal})" if progress.signal else "training reward"
        parts.append(f"{name} {show_reward(rewards[-1], 2)} {curve(rewards)}".rstrip())
    courses = progress.courses
    for name, form in (("kl", ".2g"), ("entropy", ".2g"), ("length", ".0f")):
        if name in figures:
            parts.append(f"{name} {figures[name]:{form}} {curve(courses.get(name, ()), NARROW)}".rstrip())
    if figures.get("clip_fraction"):
        parts.append(f"{figures['clip_fraction']:.0%} clipped")
    parts += _pace_of_training(progress, steps)
    if "memory" in figures:
        parts.append(f"{figures['memory']:.1f} GiB")
    return parts


def _pace_of_training(progress: Progress, steps: int) -> list[str]:
    """Seconds a step, and the time left; where that cannot be said honestly, how long the step under way has taken."""
    if progress.training is not None:
        parts = [f"{fmean(progress.durations):.2g} s a step"] if progress.durations else []
        lasted, left = progress.training_left()
        if left is not None:
            return [*parts, f"about {show_duration(left)} of training left"]
        return [*parts, f"this step has taken {show_duration(lasted)}"] if lasted > COMPUTING else parts
    figures, times = progress.figures, progress.times
    if len(times) < 2:
        return []
    each = (times[-1] - times[0]) / (len(times) - 1)
    pace = f"{each:.2g} s a step"
    if steps and "step" in figures and (ahead := steps - figures["step"] - 1) > 0:
        return [pace, f"about {show_duration(ahead * each)} of training left"]
    return [pace]


def curve(values: Sequence[float], width: int = CURVE) -> str:
    """The course of a series in at most `width` blocks, each the mean of as many neighbours; nothing for one value.

    The lowest block is the lowest mean, the highest the highest; a level series is drawn low.
    """
    if len(values) < 2:
        return ""
    count = min(width, len(values))
    edges = [i * len(values) // count for i in range(count + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in itertools.pairwise(edges)]
    low, span = min(means), (max(means) - min(means)) or 1.0
    return "".join(BLOCKS[int((mean - low) / span * (len(BLOCKS) - 1) + 0.5)] for mean in means)


def place_of(task: object) -> str:
    """The folder or file of a task, to be named while it is read; nothing for one in memory."""
    return str(task) if isinstance(task, Path) else ""
