"""The memory of a learner: the fold of traffic, kept up to date and saved now and then."""

from __future__ import annotations

import threading
from collections.abc import Container

from whet.live.database import Database
from whet.live.learner import learner_store
from whet.live.learner.feedback_state import ERASED, FeedbackState, fold
from whet.live.traffic import Traffic
from whet.live.traffic.erase import erased_after

BATCH = 1000
FEW = 200
"""Events that somebody who looks can wait for."""
KEEP_EVERY = FEW
"""A snapshot is kept after so many events, for those who look from other processes, and at once after one that says to forget
somebody."""


class FeedbackSnapshot:
    """The feedback state in this process; any number of processes fold the same events to the same state."""

    def __init__(self, database: Database, traffic: Traffic) -> None:
        self.database = database
        self.traffic = traffic
        self._turn = threading.Lock()
        self._state: FeedbackState | None = None
        self._changed: set[str] | None = None
        self._kept = 0

    def advance(self) -> FeedbackState:
        """Take in what arrived since; the state after it. The first time, that may be all traffic there is."""
        with self._turn:
            return self._advance()

    def glance(self, name: str) -> tuple[FeedbackState, int]:
        """What is known already, of one prompt at least, and how many events are not part of it, without a long wait.

        It is what this process knows or, where that is less, the newest snapshot; a few events are read at once, more are
        left to whoever learns. What was erased meanwhile is not shown in any case.
        """
        with self.database.read() as connection:
            known = self._state
            if known is None or learner_store.kept_until(connection) > known.seq:
                known = learner_store.read_state(connection, name)
            gone = erased_after(connection, known.seq)
        seen, unread = self._few(known)
        return seen.without(gone), unread

    def glance_names(self) -> tuple[Container[str], bool, int]:
        """Prompts about which something is known already, whether those of the newest snapshot belong to them, and the same
        number as above."""
        with self.database.read() as connection:
            known, kept = self._state, learner_store.kept_until(connection)
        stored = known is None or kept > known.seq
        seen, unread = self._few(FeedbackState(kept) if known is None or stored else known)
        return seen.prompts, stored and kept > 0, unread

    def _few(self, state: FeedbackState) -> tuple[FeedbackState, int]:
        """The state after what came since, if that is little, and how many events are left."""
        left = max(0, self.traffic.head() - state.seq)
        if left > FEW:
            return state, left
        while events := self.traffic.events(state.seq, BATCH):
            state = fold(state, events)
        return state, 0

    def _advance(self) -> FeedbackState:
        state, forgot = self._opened() if self._state is None else self._state, False
        while events := self.traffic.events(state.seq, BATCH):
            forgot |= any(event.kind == ERASED for event in events)
            after = fold(state, events)
            if self._changed is not None:
                self._changed |= _differing(state, after)
            self._state = state = after
        self._state = state
        if forgot or state.seq >= self._kept + KEEP_EVERY:
            self._keep(state)
        return state

    def keep(self) -> None:
        """Save a snapshot now, unless a newer one is there."""
        with self._turn:
            if self._state is not None and self._state.seq > self._kept:
                self._keep(self._state)

    def _opened(self) -> FeedbackState:
        state = learner_store.snapshot(self.database)
        self._kept = state.seq
        self._changed = set() if state.seq else None
        return state

    def _keep(self, state: FeedbackState) -> None:
        with self.database.begin() as connection:
            if learner_store.write_state(connection, state, self._changed):
                self._changed = set()
        self._kept = state.seq


def _differing(before: FeedbackState, after: FeedbackState) -> set[str]:
    """Prompts about which something else is known."""
    names = {*before.prompts, *after.prompts}
    return {name for name in names if before.prompts.get(name) is not after.prompts.get(name)}
