"""Answers of the server: JSON, pages, redirections, refusals."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import ParamSpec, TypeVar
from urllib.parse import quote

import orjson
from starlette.requests import Request
from starlette.responses import Response

from whet.errors import UsageError

P = ParamSpec("P")
R = TypeVar("R")

HTML = "text/html; charset=utf-8"
JSON = "application/json"
_ASCII = "".join(map(chr, range(33, 127)))


class Refused(Exception):
    """A request that gets no answer. `message` is for the caller: it names the remedy and never holds a secret."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = dict(headers or {})


class Unconfirmed(Refused):
    """A form whose sender must say first that something is meant. `label` stands beside the box that says so, `value` is what
    the box sends: it names what is confirmed, so that another change is asked about again."""

    def __init__(self, message: str, label: str, value: str) -> None:
        super().__init__(409, message)
        self.label = label
        self.value = value


class SignInRefused(Refused):
    """A sign-in at the identity provider that is refused. `word` names the reason in the log, where no text of the provider or of
    people stands."""

    def __init__(self, word: str, message: str, status: int = 403) -> None:
        super().__init__(status, message)
        self.word = word


def not_found(what: str) -> Refused:
    """The refusal for something that does not exist."""
    return Refused(404, f"There is no {what}.")


def or_404(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """The return value of a registry function. Its error about an unknown name is a 404 with the message."""
    try:
        return function(*args, **kwargs)
    except UsageError as error:
        raise Refused(404, str(error)) from None


def or_409(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """The return value of a change of the registry. A conflict with stored data is a 409 with the message. Input that is never
    valid is checked before, and is 400."""
    try:
        return function(*args, **kwargs)
    except UsageError as error:
        raise Refused(409, str(error)) from None


def json_answer(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A value as JSON. No cache keeps it."""
    return Response(orjson.dumps(value), status, {**(headers or {}), "Cache-Control": "no-store"}, JSON)


def page_answer(page: str, status: int = 200) -> Response:
    """A whole HTML page. Pages show private data of one reader: no cache keeps them."""
    return Response(page, status, {"Cache-Control": "no-store"}, HTML)


def see_other(path: str) -> Response:
    """Go on at another address: after a form at a path of this server, to sign in at the provider. Characters beyond ASCII,
    as in names of prompts, are quoted."""
    return Response(
        status_code=303, headers={"Location": quote(path, safe=_ASCII), "Cache-Control": "no-store"}
    )


def link_with(address: str, token: str) -> str:
    """The link that signs somebody in: what stands behind # is sent to no server by a browser."""
    return f"{address}/login#token={token}"


def refusal(error: Refused) -> Response:
    """The refusal as JSON: `{"error": {"status", "message"}}`."""
    return json_answer(
        {"error": {"status": error.status, "message": error.message}}, error.status, error.headers
    )


def respond_with_etag(request: Request, body: bytes) -> Response:
    """JSON with an ETag; 304 where the caller has it already."""
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    kept = {"ETag": tag, "Cache-Control": "private, no-cache"}
    known = [one.strip().removeprefix("W/") for one in request.headers.get("if-none-match", "").split(",")]
    if tag in known or "*" in known:
        return Response(status_code=304, headers=kept)
    return Response(body, headers=kept, media_type=JSON)
