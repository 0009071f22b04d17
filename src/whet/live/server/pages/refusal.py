"""The page of a refusal."""

from __future__ import annotations

from http import HTTPStatus

from starlette.responses import Response

from whet.live.server.pages.layout import bare
from whet.live.server.pages.parts import link
from whet.live.server.responses import Refused
from whet.reporting.markup import el


def refused_page(error: Refused) -> Response:
    """What happened and where to go on. It shows nothing of the server: the reader may be a stranger."""
    title = HTTPStatus(error.status).phrase
    reason = el("p", error.message, class_="reason")
    answer = bare(title, reason, el("p", link("To the first page", "/")), status=error.status)
    for name, value in error.headers.items():
        answer.headers[name] = value
    return answer
