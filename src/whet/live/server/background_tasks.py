"""What a server does by itself: decide experiments, learn, and delete what is too old."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import asdict

from whet.errors import WhetError
from whet.live import Live, retain

LOOK_SECONDS = 5.0
PATIENCE_SECONDS = 10.0
RETAIN_SECONDS = 3600.0
"""How often old traffic is looked for."""
ACTOR = "whet serve"
"""Who does it, in the audit log; no user can have a name with a blank."""

log = logging.getLogger("whet.live.server")


class BackgroundTasks:
    """Threads beside the requests. Any number of servers may do this on one database: each step is done once."""

    def __init__(
        self, live: Live, *, learn: bool, seconds: float = LOOK_SECONDS, retention: int | None = None
    ) -> None:
        self._live = live
        self._seconds = seconds
        self._retention = retention
        self._stop = threading.Event()
        jobs: list[tuple[str, Callable[[], None]]] = [("whet-experiments", self._decide)]
        if learn:
            jobs.append(("whet-learner", self._learn))
        if retention is not None:
            jobs.append(("whet-retention", self._retain))
        self._threads = [threading.Thread(target=job, name=name, daemon=True) for name, job in jobs]

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End after the step that is under way; what takes too long is left where it stands, and gone on with later."""
        self._stop.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(PATIENCE_SECONDS)

    def _decide(self) -> None:
        """Look at the experiments, at once and every few seconds, so that pages find them counted."""
        while not self._stop.is_set():
            try:
                self._live.experiments.refresh()
            except WhetError as error:
                log.warning("experiments", extra={"facts": {"error": str(error)}})
            except Exception as error:
                log.error("experiments", extra={"facts": {"error": type(error).__name__}})
            self._stop.wait(self._seconds)

    def _learn(self) -> None:
        while not self._stop.is_set():
            try:
                self._live.learner.watch(self._stop, self._seconds)
            except Exception as error:
                log.error("learner", extra={"facts": {"error": type(error).__name__}})
                self._stop.wait(self._seconds)

    def _retain(self) -> None:
        """Delete what is older than the days of the retention, now and once an hour."""
        assert self._retention is not None
        while not self._stop.is_set():
            try:
                gone = retain(self._live.database, self._retention, actor=ACTOR)
                if gone.inferences or gone.feedback:
                    log.info("retention", extra={"facts": asdict(gone)})
            except WhetError as error:
                log.warning("retention", extra={"facts": {"error": str(error)}})
            except Exception as error:
                log.error("retention", extra={"facts": {"error": type(error).__name__}})
            self._stop.wait(RETAIN_SECONDS)
