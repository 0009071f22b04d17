"""The replies of the server, and the error if it cannot be reached. `connections` makes the requests."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from whet_client.errors import WhetError


class Unavailable(WhetError):
    """The server cannot be reached, or cannot serve now; the same request may succeed later.

    `status` is the HTTP status of its answer, if there was an answer (429 or 5xx); `retry_after` is the requested delay in
    seconds.
    """

    exit_code = 3

    def __init__(self, message: str, status: int | None = None, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class HttpReply:
    """Status, headers with names in lower case, and body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


Send = Callable[[str, str, Mapping[str, str], bytes | None], HttpReply]
"""The function that sends a request: (method, path, headers, body) -> Answer; raises Unavailable."""


def reason_of(answer: HttpReply) -> str:
    """The reason that the server gives for its answer, in one line."""
    try:
        error = json.loads(answer.body)["error"]
        message = error["message"] if isinstance(error, Mapping) else error
    except (ValueError, KeyError, TypeError):
        message = f"status {answer.status}: {answer.body[:600].decode('utf-8', 'replace')}"
    return " ".join(str(message).split())[:300].rstrip(".")


def raise_if_unavailable(answer: HttpReply, url: str) -> HttpReply:
    """The answer, unless the server is overloaded or broken. Raises Unavailable for 408, 425, 429 and 5xx."""
    if answer.status in (408, 425, 429) or answer.status >= 500:
        try:
            delay = max(float(answer.headers.get("retry-after", "")), 0.0)
        except ValueError:
            delay = None
        raise Unavailable(
            f"The server {url} cannot serve now (status {answer.status}).", answer.status, delay
        )
    return answer
