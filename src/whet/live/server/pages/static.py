"""Delivery of the assets, and the entry address."""

from __future__ import annotations

from starlette.responses import Response

from whet.live.server.endpoint import EndpointRouter
from whet.live.server.pages.assets import ASSETS, KINDS
from whet.live.server.request_context import RequestContext
from whet.live.server.responses import not_found, see_other
from whet.live.server.roles import PUBLIC, Role

book = EndpointRouter()


@book("GET", "/static/{name}", PUBLIC)
async def asset(call: RequestContext) -> Response:
    """One asset, found in the table of assets."""
    name = call.path("name")
    if name not in ASSETS:
        raise not_found("such file")
    kept = {"Cache-Control": "public, max-age=31536000, immutable"}
    return Response(ASSETS[name], headers=kept, media_type=KINDS[name.rpartition(".")[2]])


@book("GET", "/", Role.VIEWER)
async def home(call: RequestContext) -> Response:
    """The first page is the list of prompts."""
    return see_other("/prompts")
