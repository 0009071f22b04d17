"""Health and figures of the server itself."""

from __future__ import annotations

from typing import Literal

import msgspec
from sqlalchemy import select
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from whet.server.answers import Refused, json_answer
from whet.server.call import Call
from whet.server.endpoint import Book, Spec
from whet.server.roles import PUBLIC, Role

book = Book()


class Health(msgspec.Struct):
    """The state of the server."""

    status: Literal["ok"]


@book("GET", "/healthz", PUBLIC, spec=Spec(answer=Health))
async def alive(call: Call) -> Response:
    """The process answers."""
    return json_answer({"status": "ok"})


@book("GET", "/readyz", PUBLIC, spec=Spec(answer=Health, refusals=(503,)))
async def ready(call: Call) -> Response:
    """The database answers, and the server is not about to stop."""
    if call.house.stopping.is_set():
        raise Refused(503, "The server is stopping.")
    await run_in_threadpool(_ask, call)
    return json_answer({"status": "ok"})


def _ask(call: Call) -> None:
    with call.house.live.database.read() as connection:
        connection.execute(select(1))


@book("GET", "/metrics", Role.VIEWER, spec=Spec(kind="text/plain"))
async def metrics(call: Call) -> Response:
    """Figures in Prometheus' text format."""
    return Response(call.house.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")
