"""Delivery of the assets, and the entry address."""

from __future__ import annotations

from starlette.responses import Response

from whet.server.answers import not_found, see_other
from whet.server.call import Call
from whet.server.endpoint import Book
from whet.server.pages.assets import ASSETS, KINDS
from whet.server.roles import PUBLIC, Role

book = Book()


@book("GET", "/static/{name}", PUBLIC)
async def asset(call: Call) -> Response:
    """One asset, found in the table of assets."""
    name = call.path("name")
    if name not in ASSETS:
        raise not_found("such file")
    kept = {"Cache-Control": "public, max-age=31536000, immutable"}
    return Response(ASSETS[name], headers=kept, media_type=KINDS[name.rpartition(".")[2]])


@book("GET", "/", Role.VIEWER)
async def home(call: Call) -> Response:
    """The first page is the list of prompts."""
    return see_other("/prompts")
