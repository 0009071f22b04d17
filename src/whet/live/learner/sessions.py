"""Runs for the paid steps of a learner. Their journals hold people's words, so each lasts only until its result is stored."""

from __future__ import annotations

import glob
import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from whet.feedback.model_session import NONE, ModelSession, learning_run
from whet.live.learner.context import LearnerConfig
from whet.types import content_hash


@asynccontextmanager
async def model_session(
    config: LearnerConfig, name: str, step: str, identity: Mapping[str, Any], most: int | None = None
) -> AsyncIterator[ModelSession]:
    """A run of at most `most` calls (None: as many as an update may take) for a step of a prompt, the same one for the same
    identity. Nothing of it is cached. The caller discards its folder when the result is stored; what an earlier step of that kind
    left behind is discarded here."""
    task = f"{name.replace('/', '-').replace(' ', '_')}-{content_hash(name)[:8]}-{step}"
    calls = config.calls if most is None else most
    address = config.reader or NONE
    whole = {**identity, "task": task}
    async with learning_run(address, config.base_url, config.root, whole, calls, cached=False) as session:
        for folder in config.root.glob(f"learn-{glob.escape(task)}-*"):
            if str(folder) != session.folder:
                discard(str(folder))
        yield session


def discard(folder: str) -> None:
    """Delete the journal of a step; nothing where it had none."""
    if folder:
        shutil.rmtree(folder, ignore_errors=True)
