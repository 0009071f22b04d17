"""A method searches for a better prompt, once a day within a budget, and what it proves becomes a proposal with its report.

The rows are those of a task folder or are made of the traffic (`whet_live.tasks`): then the sealed test is the newest part of
it. The search is an ordinary run: it is journalled, a kill costs nothing that was paid, and its sealed test decides. Only a
prompt that the test promotes is proposed, and a person decides about it in every mode. Where neither the version, the rows, the
method nor the budget have changed since the last search, there is none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from sqlalchemy import Connection, select

from whet.api import aoptimize
from whet.errors import RunLocked, UsageError
from whet.feedback.sources import principal
from whet.task import Task, load_task
from whet.types import content_hash
from whet_live.database import iso, put, time_of
from whet_live.learner.context import AUTHOR, LearnerContext
from whet_live.learner.learner_store import MODE_OFF
from whet_live.learner.learner_tables import searches
from whet_live.learner.leases import Lease, hold
from whet_live.learner.search_config import (
    FAILED,
    OPEN,
    PROPOSED,
    REFUSED,
    SEARCH,
    STALE,
    UNCHANGED,
    SearchConfig,
)
from whet_live.registry import PromptEdit, Version
from whet_live.registry.files import from_run
from whet_live.registry.proposals import close, file_proposal, open_one
from whet_live.registry.provenance import SOURCE
from whet_live.registry.registry_store import read_labels
from whet_live.registry.values import OPEN as OPEN_PROPOSAL
from whet_live.registry.values import WITHDRAWN
from whet_live.tasks import task_from_traffic
from whet_live.traffic.derived_signals import KEPT
from whet_live.traffic.erase import any_erased

DELETED_BEHIND = "data behind it was deleted"
_LISTED = 10


@dataclass(frozen=True, slots=True)
class PromptSearch:
    """The search of one day for a better version of a prompt."""

    prompt: str
    day: str
    """UTC."""
    state: str
    """`open`, `proposed`, `refused` by the sealed test, `failed`, `stale` if another version stands by then, or `unchanged` if
    there is nothing new to search."""
    method: str
    base: int
    """The version that it began with."""
    key: str
    """The hash of everything that it rests on."""
    run: str
    """Its folder below the root of runs."""
    reason: str = ""
    """The reason of the state, in words."""
    proposal: str | None = None
    at: int = 0
    """The time at which the state was reached (microseconds)."""
    rests_on: Sequence[str] | None = None
    """Ids of the answers and the feedback that the task was made of."""

    def as_json(self) -> dict[str, Any]:
        """The search as JSON values."""
        shown = {**asdict(self), "at": iso(self.at)}
        del shown["key"], shown["rests_on"]
        return shown


def read_searches(connection: Connection, prompt: str, limit: int = _LISTED) -> list[PromptSearch]:
    """The searches of a prompt, the newest first."""
    query = select(searches).where(searches.c.prompt == prompt).order_by(searches.c.day.desc()).limit(limit)
    return [PromptSearch(**row._mapping) for row in connection.execute(query)]


async def search_prompt(
    context: LearnerContext, config: SearchConfig, moment: int | None = None
) -> PromptSearch | None:
    """Go on with the search that was begun, or begin today's; what became of it, None where there is nothing to search.

    Raises ProviderError where a model does not answer, and RunLocked where another process works on the run: the search stays
    open, and the next call goes on with it.
    """
    at = context.database.read_time() if moment is None else moment
    settings = context.settings(config.prompt)
    base = None if settings.mode == MODE_OFF else context.base(config.prompt, settings)
    if base is None:
        return None
    with hold(context.database, f"search {config.prompt}") as lease:
        if lease is None:
            return None
        with context.database.read() as connection:
            known = read_searches(connection, config.prompt, 1)
        last = known[0] if known else None
        if last is not None and last.state == OPEN:
            if last.base != base.version:
                return _end(context, lease, last, STALE, f"version {base.version} stands by now")
            begun = last
        elif (last is not None and last.day >= iso(at)[:10]) or _waits(context, base):
            return None
        else:
            begun = _new_search(config, base, iso(at)[:10], at)
        try:
            task = await asyncio.to_thread(_task_of, context, config, begun, base)
        except UsageError as error:
            return _end(context, lease, begun, FAILED, str(error))
        if begun.key == "":
            key = content_hash([base.prompt.id, config.method, asdict(config.budget), _rows_of(task)])
            rows = await asyncio.to_thread(_rows_behind, context, task) if config.task is None else None
            begun = replace(begun, key=key, rests_on=rows)
            if last is not None and last.key == key:
                return _end(context, lease, begun, UNCHANGED, f"nothing has changed since {last.day}")
            with context.registry.change() as connection:
                lease.check(connection)
                if rows is not None and any_erased(connection, rows):
                    return _close(connection, begun, STALE, DELETED_BEHIND)
                put(connection, searches, asdict(begun))
        return await _run(context, config, lease, begun, base, task)


def _new_search(config: SearchConfig, base: Version, day: str, at: int) -> PromptSearch:
    name = config.prompt.replace("/", "-").replace(" ", "_")
    run = f"search-{name}-{content_hash(config.prompt)[:8]}-{day}"
    return PromptSearch(config.prompt, day, OPEN, config.method or "", base.version, "", run, at=at)


def _waits(context: LearnerContext, base: Version) -> bool:
    """Whether what an earlier search has proposed for this version waits for a decision. A proposal for another version is taken
    back first."""
    open_ones = context.registry.proposals(state=OPEN_PROPOSAL, name=base.name, limit=500).items
    own = [one for one in open_ones if one.author == AUTHOR and SEARCH in (one.evidence or {})]
    for old in own:
        if old.base != base.version:
            reason = f"version {base.version} stands by now"
            with context.registry.change() as connection:
                close(connection, open_one(connection, old.id), WITHDRAWN, AUTHOR, {"reason": reason})
    return any(one.base == base.version for one in own)


def _task_of(context: LearnerContext, config: SearchConfig, begun: PromptSearch, base: Version) -> Task:
    """The task of a search, with the version's prompt. Raises UsageError for too few rows and for a task that does not fit."""
    folder = config.task
    if folder is None:
        folder = config.root / f"{begun.run}-task"
        if not (folder / "task.yaml").exists():
            task_from_traffic(context.registry, context.traffic, base.address, folder)
    task = load_task(folder)
    unknown = base.prompt.slots - task.prompt.slots - task.train[0].values.keys() - {"mask"}
    if unknown:
        raise UsageError(
            f"The task {task.name} fills no slot {{{{{min(unknown)}}}}} of the prompt. Give another task."
        )
    return replace(task, prompt=base.prompt)


def _rows_of(task: Task) -> str:
    rows = [*task.train, *task.validation, *task.test]
    return content_hash([[row.id, dict(row.values), str(row.target)] for row in rows])


async def _run(
    context: LearnerContext,
    config: SearchConfig,
    lease: Lease,
    begun: PromptSearch,
    base: Version,
    task: Task,
) -> PromptSearch:
    named = {
        "lm": config.lm,
        "optimizer_lm": config.optimizer_lm,
        "judge_lm": config.judge_lm,
        "method": config.method,
    }
    models: Any = {key: value for key, value in named.items() if value is not None}
    folder = config.root / begun.run
    try:
        result = await aoptimize(
            task,
            **models,
            base_url=config.base_url,
            budget=config.budget,
            root=config.root,
            run=folder,
            progress=False,
        )
        source = from_run(folder)
    except RunLocked:
        raise
    except UsageError as error:
        return _end(context, lease, begun, FAILED, str(error))
    begun = replace(begun, method=result.method)
    if source.refused or source.prompt == base.prompt:
        return _end(
            context, lease, begun, REFUSED, source.refused or "The search has found no better prompt."
        )
    senders = await asyncio.to_thread(_correctors, context, task) if config.task is None else []
    report = {
        "day": begun.day,
        "method": begun.method,
        "calls": config.calls,
        "report": f"{begun.run}/report.html",
    }
    with context.registry.change() as connection:
        lease.check(connection)
        (current,) = read_searches(connection, config.prompt, 1)
        if current.state != OPEN:  # the data of a user was deleted meanwhile
            return current
        settings = context.settings(config.prompt)
        if read_labels(connection, config.prompt).get(settings.label) != base.version:
            return _close(
                connection,
                begun,
                STALE,
                f"{settings.label} does not stand on version {base.version} any more",
            )
        proposal = file_proposal(
            connection, base.address, PromptEdit(prompt=source.prompt), author=AUTHOR,
            message=f"{begun.method} on {task.name}: {result.improvement.difference:+.3f} on the sealed test",
            label=settings.label, evidence={**(source.evidence or {}), SEARCH: report},
            gate=dict(result["improvement"]), run={**(source.run or {}), "run": begun.run},
            provenance={SOURCE: senders},
        )  # fmt: skip
        return _close(connection, begun, PROPOSED, result.improvement.reason, proposal.id)


def _rows_behind(context: LearnerContext, task: Task) -> list[str]:
    """The ids of the answers that the rows of a task were made of, and of the feedback about them."""
    ids = set[str]()
    for example in (*task.train, *task.validation, *task.test):
        ids.add(example.id)
        stored = context.traffic.inference(example.id)
        ids.update(row.feedback.id for row in (() if stored is None else context.traffic.about(stored.seq)))
    return sorted(ids)


def _correctors(context: LearnerContext, task: Task) -> list[str]:
    """The people, by name, who corrected the answers that the rows of a task were made of: they shaped what is proposed."""
    names = set[str]()
    for example in (*task.train, *task.validation, *task.test):
        stored = context.traffic.inference(example.id)
        for row in () if stored is None else context.traffic.about(stored.seq):
            if row.feedback.kind in KEPT and stored is not None:
                names.add(
                    principal(row.feedback.source, row.feedback.user, stored.inference.user).partition(":")[2]
                )
    return sorted(names - {""})


def _end(context: LearnerContext, lease: Lease, begun: PromptSearch, state: str, reason: str) -> PromptSearch:
    with context.registry.change() as connection:
        lease.check(connection)
        return _close(connection, begun, state, reason)


def _close(
    connection: Connection, begun: PromptSearch, state: str, reason: str, proposal: str | None = None
) -> PromptSearch:
    done = replace(begun, state=state, reason=reason, proposal=proposal, at=time_of(connection))
    put(connection, searches, asdict(done))
    return done
