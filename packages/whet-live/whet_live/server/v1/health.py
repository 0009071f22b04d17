"""Health and figures of the server itself."""

from __future__ import annotations

from typing import Literal

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from whet_live.server.endpoint import EndpointRouter
from whet_live.server.request_context import RequestContext
from whet_live.server.responses import Refused, json_answer
from whet_live.server.roles import PUBLIC, Role

router = EndpointRouter()


class Health(msgspec.Struct):
    """The state of the server."""

    status: Literal["ok"]


@router("GET", "/healthz", PUBLIC, answer=Health)
async def alive(call: RequestContext) -> Response:
    """The process answers."""
    return json_answer({"status": "ok"})


@router("GET", "/readyz", PUBLIC, answer=Health, refusals=(503,))
async def ready(call: RequestContext) -> Response:
    """The database takes a row, and the server is not about to stop."""
    if call.state.stopping.is_set():
        raise Refused(503, "The server is stopping.")
    await run_in_threadpool(call.state.check_storage)
    return json_answer({"status": "ok"})


@router("GET", "/metrics", Role.VIEWER, kind="text/plain")
async def metrics(call: RequestContext) -> Response:
    """Figures in Prometheus' text format: of the server, and of the quality of each prompt over the last day."""
    await run_in_threadpool(call.state.refresh_quality)
    return Response(call.state.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")
