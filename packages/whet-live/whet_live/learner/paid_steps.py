"""The paid steps: a model reads rows of feedback, and the votes that decide are confirmed one by one.

Journals of paid steps hold people's words, so each lasts only until its result is stored.
"""

from __future__ import annotations

import glob
import shutil
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace

from whet.engine.model_client import MAX_ATTEMPTS
from whet.feedback.model_session import NONE, ModelSession, learning_run
from whet.prompt.ledger import surroundings
from whet.types import content_hash
from whet_live.learner import learner_store
from whet_live.learner.answer_context import contexts_of
from whet_live.learner.context import LearnerConfig, LearnerContext, region_of
from whet_live.learner.feedback_state import PromptFeedback
from whet_live.learner.learner_store import LearnerSettings
from whet_live.learner.leases import Lease
from whet_live.learner.reading import (
    MOST_READ,
    Readings,
    RowReading,
    apply_confirmations,
    confirm_votes,
    known_by,
    read_comments,
    taken_in,
)
from whet_live.learner.requirements import RequirementEvidence, ledger_of, open_votes, unread
from whet_live.registry.ledgers import manageable
from whet_live.traffic.erase import erased_after

MOST_CONFIRMED = 60
"""Votes that are confirmed in one step."""


async def read_unread_feedback(
    context: LearnerContext, name: str, settings: LearnerSettings, lease: Lease
) -> bool:
    """Let a model read some unread rows, and confirm the votes that decide which requirements are ready. Returns whether more is
    left to read or to confirm.

    Does nothing without a model. Raises ProviderError or UsageError when the model call fails, and RunLocked when another
    learner took over.
    """
    base = context.base(name, settings)
    state = context.snapshot.advance()
    if base is None or name not in state.prompts or not context.config.reader:
        return False
    region = region_of(base, settings)
    feedback, ledger = settings.select_rows(state.prompts[name]), ledger_of(base, region)
    facts = context.facts(name, base, settings)
    waiting = unread(feedback, base, region, facts)
    rows, rest = waiting[:MOST_READ], waiting[MOST_READ:]
    if rows:
        context.snapshot.keep()  # whose words were read is known, also when the feedback itself has expired
        known = [[one.id, one.text] for one in known_by(facts.readings, ledger)]
        tries = [facts.readings.rows.get(row.id, RowReading()).tries for row in rows]
        contexts = contexts_of(context.traffic, rows, settings.reads)
        shown = content_hash([known, [[row.id, row.text, contexts.get(row.id)] for row in rows], tries])
        identity = {"prompt": base.prompt.id, "shown": shown}
        async with model_session(context.config, name, "reading", identity) as session:
            outcome = await read_comments(
                session.run, rows, facts.readings, ledger, surroundings(manageable(base.prompt), region), contexts=contexts,
                most=context.config.calls, embed=context.config.embed,
            )  # fmt: skip
        facts = _store(
            context,
            feedback,
            (name, state.seq),
            lease,
            facts,
            lambda before, gone: taken_in(before, outcome, ledger, gone),
        )
        discard(session.folder)
    votes = open_votes(feedback, state.clock, base, region, facts)
    votes, left = votes[:MOST_CONFIRMED], votes[MOST_CONFIRMED:]
    if votes:
        tries = [facts.readings.rows.get(row, RowReading()).tries for row, _ in votes]
        voters = [feedback.rows[row] for row in dict.fromkeys(row for row, _ in votes)]
        contexts = contexts_of(context.traffic, voters, settings.reads)
        identity = {"prompt": base.prompt.id, "shown": content_hash([votes, tries, contexts])}
        async with model_session(
            context.config, name, "votes", identity, MAX_ATTEMPTS * len(votes)
        ) as session:
            answers = await confirm_votes(session.run, votes, feedback, contexts)
        facts = _store(
            context,
            feedback,
            (name, state.seq),
            lease,
            facts,
            lambda before, gone: apply_confirmations(before, answers),
        )
        discard(session.folder)
        left = open_votes(feedback, state.clock, base, region, facts)
    return bool(rest or left or (rows and unread(feedback, base, region, facts)))


def _store(
    context: LearnerContext,
    feedback: PromptFeedback,
    where: tuple[str, int],
    lease: Lease,
    facts: RequirementEvidence,
    change: Callable[[Readings, Collection[str]], Readings],
) -> RequirementEvidence:
    """Apply `change` to the readings of a prompt as they are stored now, and store them without the rows that were erased since
    the feedback was read. `where`: the prompt, and the last row of traffic that was read."""
    name, seq = where
    with context.registry.change() as connection:
        lease.check(connection)
        before = learner_store.read_readings(connection, name)
        left = feedback.without(erased_after(connection, seq))
        after = change(before, feedback.rows.keys() - left.rows.keys()).prune(left.rows.keys())
        learner_store.write_readings(connection, name, before, after)
    return replace(facts, readings=after)


@asynccontextmanager
async def model_session(
    config: LearnerConfig, name: str, step: str, identity: Mapping[str, object], most: int | None = None
) -> AsyncIterator[ModelSession]:
    """A run of at most `most` calls (None: as many as an update may take) for a step of a prompt; the same identity resumes the
    same run. None of its answers are cached. The caller discards the folder of the run once the result is stored. Folders of
    earlier steps of this kind are discarded here."""
    task = f"{name.replace('/', '-').replace(' ', '_')}-{content_hash(name)[:8]}-{step}"
    calls = config.calls if most is None else most
    lm = config.optimizer_lm if config.reader and config.optimizer_lm is not None else NONE
    whole = {**identity, "task": task}
    async with learning_run(lm, config.reader_url, config.root, whole, calls, cached=False) as session:
        for folder in config.root.glob(f"learn-{glob.escape(task)}-*"):
            if str(folder) != session.folder:
                discard(str(folder))
        yield session


def discard(folder: str) -> None:
    """Delete the journal of a step; nothing where it had none."""
    if folder:
        shutil.rmtree(folder, ignore_errors=True)
