"""Feedback from pages of the app: the script that they load, and where it sends what people say and do.

Whoever opens such a page can read its key. So a key may only add feedback of a few kinds, of users, about answers whose ids the
page knows, and the answer to it tells nothing of what is stored.
"""

from __future__ import annotations

import gzip
import hashlib
from importlib.resources import files
from typing import Annotated, Literal

from msgspec import DecodeError, Meta, json
from msgspec.structs import asdict
from starlette.responses import Response

from whet_live.server.endpoint import EndpointRouter
from whet_live.server.request_context import RequestContext
from whet_live.server.responses import Refused
from whet_live.server.roles import PAGES, PUBLIC
from whet_live.server.v1.ingest import count_stored, read_submission, refused_rows
from whet_live.server.v1.shapes import Key, RequestSchema
from whet_live.traffic import IdConflict, RowsRefused, parse_feedback

router = EndpointRouter()
MOST_ROWS = 50
"""Rows of one request of a page."""


def strip_script(source: str) -> str:
    """A script without lines of comment, empty lines and indentation. Its lines must be whole by themselves."""
    lines = (line.strip() for line in source.splitlines())
    return "".join(f"{line}\n" for line in lines if line and not line.startswith("//"))


SCRIPT = strip_script(files("whet_live.server").joinpath("static/snippet.js").read_text("utf-8")).encode()
"""The script as it is served."""
_PACKED = gzip.compress(SCRIPT, mtime=0)
_TAG = f'"{hashlib.sha256(SCRIPT).hexdigest()[:32]}"'
_HEADERS = {
    "ETag": _TAG,
    "Cache-Control": "public, max-age=3600",
    "Vary": "Accept-Encoding",
    "Cross-Origin-Resource-Policy": "cross-origin",
}


class PageRow(RequestSchema):
    """Feedback that somebody gave in a page about an answer that it shows."""

    id: Key
    kind: Literal["thumb", "comment", "copy", "dwell"]
    target: Key
    value: float | None = None
    text: str | None = None


class PageFeedback(RequestSchema):
    """The body of a page's request: its public key, and rows."""

    key: str
    feedback: Annotated[list[PageRow], Meta(max_length=MOST_ROWS)]


@router("GET", "/snippet.js", PUBLIC)
async def script(call: RequestContext) -> Response:
    """The script, the same for every site. Caches ask again after an hour."""
    known = call.headers.get(b"if-none-match", b"").decode("latin-1")
    if _TAG in known:
        return Response(status_code=304, headers=_HEADERS)
    if b"gzip" in call.headers.get(b"accept-encoding", b""):
        packed = {**_HEADERS, "Content-Encoding": "gzip"}
        return Response(_PACKED, headers=packed, media_type="text/javascript")
    return Response(SCRIPT, headers=_HEADERS, media_type="text/javascript")


@router("POST", "/snippet", PAGES, ingest=True)
async def add_page_feedback(call: RequestContext) -> Response:
    """Store feedback of a page. The body is read whatever its media type is: a browser sends only `text/plain` to another
    origin without asking first. The answer has no content."""
    try:
        rows = json.decode(call.body, type=PageFeedback).feedback
        feedback = parse_feedback({"feedback": [asdict(row) for row in rows]})
    except DecodeError as error:
        raise Refused(400, f"The body does not fit: {error}.") from None
    except RowsRefused as error:
        return refused_rows(error)
    try:
        count_stored(call, "feedback", await read_submission(call, (), feedback))
    except IdConflict:
        raise Refused(409, "The id of a row is taken. Make a random id for every row.") from None
    return Response(status_code=204, headers={"Cache-Control": "no-store"})
