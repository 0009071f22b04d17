"""What a server does by itself: decide experiments, learn, and delete what is too old."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import asdict

from whet.errors import WhetError
from whet.live import Live, retain
from whet.live.server.learner_process import LearnerProcess

LOOK_SECONDS = 5.0
PATIENCE_SECONDS = 10.0
RETAIN_SECONDS = 3600.0
"""How often old traffic is looked for."""
ACTOR = "whet serve"
"""Who does it, in the audit log; no user can have a name with a blank."""

log = logging.getLogger("whet.live.server")


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
    ) -> None:
        self._live = live
        self._learner = learner
        self._stop = threading.Event()
        jobs: dict[str, tuple[Callable[[], object], float]] = {
            "experiments": (lambda: live.experiments.refresh(), seconds)
        }
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
        """Delete what is older than the days of the retention."""
        gone = retain(self._live.database, days, actor=ACTOR)
        if gone.inferences or gone.feedback:
            log.info("retention", extra={"facts": asdict(gone)})
