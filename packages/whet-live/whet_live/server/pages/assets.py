"""Style sheets, scripts and the icon: files of the package, served under their content's hash."""

from __future__ import annotations

import hashlib
from importlib.resources import files

from starlette.responses import Response

from whet_live.server.endpoint import EndpointRouter
from whet_live.server.request_context import RequestContext
from whet_live.server.responses import not_found
from whet_live.server.roles import PUBLIC

router = EndpointRouter()
KINDS = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}
_SOURCES = {
    "report.css": ("whet.reporting", "style.css"),
    "page.css": ("whet_live.server", "static/page.css"),
    "page.js": ("whet_live.server", "static/page.js"),
    "icon.svg": ("whet_live.server", "static/icon.svg"),
}
_BYTES = {name: files(package).joinpath(path).read_bytes() for name, (package, path) in _SOURCES.items()}
_HASHED = {name: f"{hashlib.sha256(data).hexdigest()[:16]}-{name}" for name, data in _BYTES.items()}
ASSETS = {_HASHED[name]: data for name, data in _BYTES.items()}


def address(name: str) -> str:
    """The address of an asset; it changes when the content does."""
    return f"/static/{_HASHED[name]}"


@router("GET", "/static/{name}", PUBLIC)
async def asset(call: RequestContext) -> Response:
    """One asset, found in the table of assets."""
    name = call.path("name")
    if name not in ASSETS:
        raise not_found("such file")
    kept = {"Cache-Control": "public, max-age=31536000, immutable"}
    return Response(ASSETS[name], headers=kept, media_type=KINDS[name.rpartition(".")[2]])
