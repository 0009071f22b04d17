"""Runs of methods: the list, and what a run logs as a stream of server-sent events."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import orjson
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse

from whet import api
from whet.engine import RunRowJSON
from whet_live.server.endpoint import EndpointRouter
from whet_live.server.request_context import RequestContext
from whet_live.server.responses import Refused, json_answer, not_found
from whet_live.server.roles import Role

router = EndpointRouter()
POLL_SECONDS = 0.5
QUIET_SECONDS = 15.0
LONGEST_SECONDS = 300.0
CHECK_SECONDS = 5.0
"""The time between two checks that the reader of an open stream may still read."""
LARGEST_EVENT = 65_536
UNFINISHED = "unfinished"
_NAME = re.compile(r"[a-z_]{1,40}")


class RunSchema(msgspec.Struct):
    """One run. `id` is its folder below the root of runs; `mean` that of its best prompt on `n` rows of `split`."""

    id: str
    task: str | None
    method: str | None
    seed: int | None
    status: str
    test: float | None
    promoted: bool | None
    calls: int
    split: str
    mean: float | None
    n: int | None


class Runs(msgspec.Struct):
    """All runs below the root."""

    runs: list[RunSchema]


def all_runs(call: RequestContext) -> dict[str, RunRowJSON]:
    """Every run by its id. A request never names a folder: what is not in here does not exist."""
    root = Path(call.state.settings.runs)
    rows = api.runs(root)
    return {Path(row["run"]).relative_to(root).as_posix(): row for row in rows}


def run_of_path(call: RequestContext) -> tuple[str, RunRowJSON]:
    """The run that the path names. Raises Refused (404)."""
    name = call.path("id")
    row = all_runs(call).get(name)
    if row is None:
        raise not_found("such run")
    return name, row


@router("GET", "/v1/runs", Role.VIEWER, answer=Runs)
def list_runs(call: RequestContext) -> Response:
    """Every run: its kind, its state, its result."""
    rows = [{**row, "id": name} for name, row in all_runs(call).items()]
    return json_answer({"runs": [{k: v for k, v in row.items() if k != "run"} for row in rows]})


@router("GET", "/v1/runs/{id:path}/events", Role.VIEWER, kind="text/event-stream", refusals=(404,))
async def stream_run(call: RequestContext) -> Response:
    """The log of a run, as it is written. After a break a reader continues with the header Last-Event-ID."""
    _, row = await run_in_threadpool(run_of_path, call)
    last_id = call.request.headers.get("last-event-id", "0")
    if not (last_id.isascii() and last_id.isdecimal() and len(last_id) < 16):
        raise Refused(400, "Last-Event-ID is no number.")
    who, state = call.name, call.state
    if state.streams[who] >= state.limits.streams or state.streams.total() >= state.limits.all_streams:
        raise Refused(429, "Too many event streams are open. Close one.", {"Retry-After": "5"})
    kept = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(
        _stream_events(call, Path(row["run"]), int(last_id)), headers=kept, media_type="text/event-stream"
    )


async def _stream_events(call: RequestContext, folder: Path, after: int) -> AsyncIterator[bytes]:
    state, who = call.state, call.name
    state.streams[who] += 1
    state.metrics.streams.inc()
    try:
        async for piece in _events(call, folder, after):
            yield piece
    finally:
        state.streams[who] -= 1
        state.metrics.streams.dec()


async def _events(call: RequestContext, folder: Path, after: int) -> AsyncIterator[bytes]:
    """Events as they come, a sign of life in between, until the end of the run or of the reader's access."""
    yield b"retry: 1000\n\n"
    started = last_sent = checked = time.monotonic()
    while not call.state.stopping.is_set() and time.monotonic() - started < LONGEST_SECONDS:
        if time.monotonic() - checked >= CHECK_SECONDS:
            checked = time.monotonic()
            if not await _may_still(call):
                return
        finished = (folder / api.RESULT).exists()
        rows = await run_in_threadpool(api.run_events, folder, after)
        for row in rows:
            after = row["seq"]
            yield _event(row)
        if not rows and finished:
            yield b"event: end\ndata: {}\n\n"
            return
        if rows:
            last_sent = time.monotonic()
        elif time.monotonic() - last_sent > QUIET_SECONDS:
            last_sent = time.monotonic()
            yield b": still here\n\n"
        try:
            await asyncio.wait_for(call.state.stopping.wait(), POLL_SECONDS)
        except TimeoutError:
            continue


async def _may_still(call: RequestContext) -> bool:
    """Whether the token or session that opened a stream still counts."""
    try:
        who = await call.state.who(call.request.scope, call.headers)
    except Refused:
        return False
    return who is not None and who.may(Role.VIEWER, False)


def _event(row: dict[str, Any]) -> bytes:
    """One event; the value of a very large one stays in the journal. JSON has no line end in it, so nothing breaks out."""
    name = row["name"] if _NAME.fullmatch(row["name"]) else "message"
    data = orjson.dumps({"calls": row["calls"], "value": row["value"]})
    if len(data) > LARGEST_EVENT:
        data = orjson.dumps({"calls": row["calls"], "value": None})
    return f"id: {row['seq']}\nevent: {name}\ndata: ".encode() + data + b"\n\n"
