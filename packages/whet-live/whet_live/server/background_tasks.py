"""The server's own work: decide experiments, learn, watch the quality, send alerts, and delete data that is too old.

The learner runs in a process of its own, so that nothing it reads or computes holds up a request. The server holds one end of
a pipe. The child stops when that end is closed, and the system closes it also where the server was killed: the child never
outlives the server for long. A child that ends by itself is started again, each time later. What it was at stays in the
journal of its update and in the feedback state, and the next one goes on there; leases keep it apart from the learners of
other servers.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import TYPE_CHECKING, NoReturn

from whet.errors import WhetError
from whet_live import Live, erased_completely, everything_is_older, open_live, retain
from whet_live.quality import AlertChannel, deliver_due
from whet_live.server.metrics import log_to_stderr

if TYPE_CHECKING:
    from whet_live.learner import LearnerConfig

LOOK_SECONDS = 5.0
PATIENCE_SECONDS = 10.0
QUALITY_SECONDS = 60.0
"""The time between two looks at the traffic of past hours, after each of which alerts are sent."""
RETAIN_SECONDS = 3600.0
"""The time between two searches for old traffic."""
ACTOR = "whet serve"
"""The actor in the audit log; no user can have a name with a blank."""
STEP_SECONDS = 4.0
"""The time that a stopping child has for the end of its present step."""
CUT_SECONDS = 2.0
"""The time that it then has to give its lease back."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 300.0
DAY_SECONDS = 86_400
STEADY_SECONDS = 60.0
"""A child that ran so long begins with the first pause again."""

log = logging.getLogger("whet.live.server")


@dataclass(frozen=True, slots=True)
class _Child:
    process: SpawnProcess
    alive: Connection


class LearnerProcess:
    """Keeps a learner running on the database at `url`, in a child process, until it is stopped."""

    def __init__(self, url: str | None, config: LearnerConfig, seconds: float) -> None:
        self._arguments = url, config, seconds
        self._turn = threading.Lock()
        self._stop = threading.Event()
        self._child: _Child | None = None

    @property
    def pid(self) -> int | None:
        """The process that learns now."""
        return None if self._child is None else self._child.process.pid

    def run(self) -> None:
        """Start a child, and another one whenever it ended; returns once it is stopped."""
        pause = FIRST_PAUSE
        while (child := self._begin()) is not None:
            began = time.monotonic()
            child.process.join()
            child.alive.close()
            if self._stop.is_set():
                return
            pause = FIRST_PAUSE if time.monotonic() - began > STEADY_SECONDS else pause
            log.error("learner", extra={"facts": {"exit": child.process.exitcode, "again_in": pause}})
            self._stop.wait(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def stop(self) -> None:
        """End the child after the step that it is at, or without it where that takes longer than some seconds."""
        with self._turn:
            self._stop.set()
            child = self._child
        if child is None:
            return
        child.alive.close()
        if not wait([child.process.sentinel], STEP_SECONDS + CUT_SECONDS + 1):
            child.process.kill()

    def _begin(self) -> _Child | None:
        with self._turn:
            if self._stop.is_set():
                return None
            theirs, ours = Pipe(duplex=False)
            process = get_context("spawn").Process(
                target=_learn, args=(theirs, *self._arguments), name="whet-learner"
            )
            process.start()
            theirs.close()
            self._child = _Child(process, ours)
            return self._child


def learn_with(live: Live, config: LearnerConfig, *, learns: bool) -> None:
    """Make the learner of an installation one with this configuration, which learns or leaves that to another process."""
    from whet_live.learner import Learner

    parts = live.database, live.registry, live.traffic
    live.learner = Learner(*parts, lambda: live.experiments, config, learns=learns)


def _learn(alive: Connection, url: str | None, config: LearnerConfig, seconds: float) -> None:
    """The work of the child process: learn until the other end of the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _raise_cancelled)
    log_to_stderr(logging.INFO)
    stop = threading.Event()
    threading.Thread(target=_watch, args=(alive, stop), daemon=True).start()
    try:
        with open_live(url) as live:
            learn_with(live, config, learns=True)
            if fault := live.learner.check_reader():
                log.error("learner", extra={"facts": {"reader": config.reader, "error": fault}})
            live.learner.watch(stop, seconds)
    except Exception as error:
        reason = str(error) if isinstance(error, WhetError) else type(error).__name__
        log.error("learner", extra={"facts": {"error": reason}})
        raise SystemExit(1) from None


def _raise_cancelled(number: int, frame: object) -> NoReturn:
    raise SystemExit(128 + number)


def _watch(alive: Connection, stop: threading.Event) -> None:
    """Stop when the server is gone: after the step, else in the middle of it, else at once."""
    with contextlib.suppress(EOFError, OSError):
        alive.recv_bytes()
    stop.set()
    threading.main_thread().join(STEP_SECONDS)
    if threading.main_thread().is_alive():
        os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(CUT_SECONDS)
    os._exit(1)


class BackgroundTasks:
    """Threads beside the requests, and the process that learns. Any number of servers may do this on one database: each
    step is done once."""

    def __init__(
        self,
        live: Live,
        *,
        learner: LearnerProcess | None = None,
        seconds: float = LOOK_SECONDS,
        retention: int | None = None,
        channels: Sequence[AlertChannel] = (),
        address: str = "",
    ) -> None:
        self._live = live
        self._learner = learner
        self._stop = threading.Event()
        self._started = time.monotonic()
        jobs: dict[str, tuple[Callable[[], object], float]] = {
            "experiments": (lambda: live.experiments.refresh(), seconds),
            "erasure": (lambda: erased_completely(live.database), seconds),
            "quality": (lambda: live.quality.watch(), QUALITY_SECONDS),
        }
        if channels:
            jobs["alerts"] = (lambda: deliver_due(live.database, channels, address), QUALITY_SECONDS)
        if learner is not None:
            jobs["learner"] = (learner.run, seconds)
        if retention is not None:
            jobs["retention"] = (lambda: self._retain(retention), RETAIN_SECONDS)
        self._threads = [
            threading.Thread(target=self._repeat, args=(name, *job), name=f"whet-{name}", daemon=True)
            for name, job in jobs.items()
        ]

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End after the step that is under way; what takes too long is left where it stands, and gone on with later."""
        self._stop.set()
        if self._learner is not None:
            self._learner.stop()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(PATIENCE_SECONDS)

    def _repeat(self, name: str, step: Callable[[], object], seconds: float) -> None:
        """Make a step at once and then every few seconds, whatever becomes of it."""
        while not self._stop.is_set():
            try:
                step()
            except WhetError as error:
                log.warning(name, extra={"facts": {"error": str(error)}})
            except Exception as error:
                log.error(name, extra={"facts": {"error": type(error).__name__}})
            self._stop.wait(seconds)

    def _retain(self, days: int) -> None:
        """Delete what is older than the days of the retention.

        Where that would be everything, a clock that is wrong is likelier than a pause of so many days: the server then deletes
        only after it has run for a day, in which somebody can set the clock.
        """
        starting = time.monotonic() - self._started < DAY_SECONDS
        if starting and everything_is_older(self._live.database, days):
            log.warning(
                "retention",
                extra={
                    "facts": {"waits": "everything stored is older than the retention; is the clock right?"}
                },
            )
            return
        gone = retain(self._live.database, days, actor=ACTOR)
        if gone.inferences or gone.feedback:
            log.info("retention", extra={"facts": asdict(gone)})
