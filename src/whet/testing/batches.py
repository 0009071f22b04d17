"""Batches of the local server: `/files` and `/batches` as OpenAI has them, and as Mistral and Together do.

A batch goes on with each look at it, so that tests need no clock: after `looks` looks it has ended. Each of its requests is
answered then, and is a line of the server's ledger, which names the batch.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson
from aiohttp import web

from whet.errors import named_fields

_ENDED = ("completed", "failed", "expired", "cancelled")


@named_fields
@dataclass(frozen=True)
class BatchBehaviour:
    """The behaviour of the local server's batches."""

    looks: int = 2
    """The number of looks at a batch until it has ended."""
    unanswered: float = 0.0
    """The share (0 to 1) of a batch's requests that it does not reach before it expires."""
    refused: float = 0.0
    """The share (0 to 1) of a batch's requests that end with the status 500."""
    ends: str = "completed"
    """completed, expired, failed or cancelled."""
    reason: str = ""
    """Why a batch has failed."""
    words: str = "openai"
    """The provider whose names and forms are used: openai, mistral or together."""
    listed: bool = True
    """Whether batches are listed."""
    lost: int = 0
    """The number of first batches that begin although their creator gets no answer."""
    seed: int = 0
    """With the id of a request, decides which requests are unanswered or refused."""


@dataclass
class LocalBatch:
    """One batch with what came of its requests."""

    id: str
    file: str
    role: str = ""
    looks: int = 0
    status: str = "validating"
    answered: int = 0
    total: int = 0
    files: dict[str, str] = field(default_factory=dict)


Answering = Callable[[dict[str, Any], LocalBatch], Awaitable[tuple[int, Mapping[str, object]]]]
"""From the body of a request and its batch to a status and the body of an answer."""


@dataclass
class LocalBatches:
    """The files and batches of a server; `answer` answers one request."""

    answer: Answering
    behaviour: BatchBehaviour = field(default_factory=BatchBehaviour)
    files: dict[str, bytes] = field(default_factory=dict)
    batches: dict[str, LocalBatch] = field(default_factory=dict)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    def add_routes(self, router: web.UrlDispatcher) -> None:
        """Serve below `/v1`, and below `/ROLE/v1`."""
        files = "files/upload" if self.behaviour.words == "together" else "files"
        jobs = "batch/jobs" if self.behaviour.words == "mistral" else "batches"
        for base in ("/v1/", "/{role}/v1/"):
            router.add_post(base + files, self.upload)
            router.add_get(base + "files/{file}/content", self.content)
            router.add_post(base + jobs, self.create)
            router.add_get(base + jobs, self.list)
            router.add_get(base + jobs + "/{batch}", self.look)
            router.add_post(base + jobs + "/{batch}/cancel", self.cancel)

    async def upload(self, http: web.Request) -> web.Response:
        """Take a file of a form."""
        form = await http.post()
        content = form.get("file")
        wanted = "batch-api" if self.behaviour.words == "together" else "batch"
        if not isinstance(content, web.FileField) or form.get("purpose") != wanted:
            return _refuse(400, "A form with a file and its purpose is expected.")
        name = f"file-{len(self.files) + 1}"
        self.files[name] = content.file.read()
        return web.json_response({"id": name, "object": "file", "purpose": wanted})

    async def content(self, http: web.Request) -> web.Response:
        """The contents of a file."""
        raw = self.files.get(http.match_info["file"])
        return _refuse(404, "No such file.") if raw is None else web.Response(body=raw)

    async def create(self, http: web.Request) -> web.StreamResponse:
        """Begin a batch."""
        body = await http.json()
        file = body["input_files"][0] if self.behaviour.words == "mistral" else body.get("input_file_id")
        if file not in self.files or body.get("endpoint") != "/v1/chat/completions":
            return _refuse(400, "Unknown file or endpoint.")
        batch = LocalBatch(f"batch_{len(self.batches) + 1}", file, http.match_info.get("role", ""))
        batch.total = len(self.files[file].splitlines())
        self.batches[batch.id] = batch
        if len(self.batches) <= self.behaviour.lost and http.transport is not None:
            http.transport.abort()
            return web.Response()
        shown = self._show(batch)
        return web.json_response({"job": shown} if self.behaviour.words == "together" else shown)

    async def list(self, http: web.Request) -> web.Response:
        """All batches, the newest first."""
        if not self.behaviour.listed:
            return _refuse(405, "Method not allowed.")
        rows = [self._show(batch) for batch in reversed(self.batches.values())]
        bare = self.behaviour.words == "together"
        return web.json_response(rows if bare else {"object": "list", "data": rows, "has_more": False})

    async def look(self, http: web.Request) -> web.Response:
        """Answer with the state of a batch; each look advances the batch."""
        batch = self.batches.get(http.match_info["batch"])
        if batch is None:
            return _refuse(404, "No such batch.")
        async with self._turn:
            if batch.status not in _ENDED:
                batch.looks += 1
                batch.status = "in_progress"
                if batch.looks >= self.behaviour.looks:
                    await self._end(batch)
        return web.json_response(self._show(batch))

    async def cancel(self, http: web.Request) -> web.Response:
        """End a batch as it is."""
        batch = self.batches.get(http.match_info["batch"])
        if batch is None:
            return _refuse(404, "No such batch.")
        batch.status = batch.status if batch.status in _ENDED else "cancelled"
        return web.json_response(self._show(batch))

    async def _end(self, batch: LocalBatch) -> None:
        """Answer what the behaviour lets be answered, and write the files."""
        b = self.behaviour
        answers: list[bytes] = []
        errors: list[bytes] = []
        for line in self.files[batch.file].splitlines() if b.ends not in ("failed", "cancelled") else ():
            row = orjson.loads(line)
            name = row["custom_id"]
            chance = random.Random(hashlib.sha256(f"{b.seed}|{batch.id}|{name}".encode()).digest()).random()
            if chance < b.unanswered:
                error = {"code": "batch_expired", "message": "This request could not be executed in time."}
                errors.append(orjson.dumps({"custom_id": name, "response": None, "error": error}))
                continue
            if chance < b.unanswered + b.refused:
                status, body = 500, dict[str, object]({"error": {"message": "The server had an error."}})
            else:
                status, reply = await self.answer(row["body"], batch)
                body = dict(reply)
            response = {"status_code": status, "request_id": "", "body": body}
            place = answers if status == 200 else errors
            place.append(orjson.dumps({"custom_id": name, "response": response, "error": None}))
        batch.status, batch.answered = b.ends, len(answers)
        for kind, lines in (("output", answers), ("error", errors)):
            if lines:
                name = f"{kind}-{batch.id}"
                self.files[name] = b"\n".join(lines)
                batch.files[kind] = name

    def _show(self, batch: LocalBatch) -> dict[str, object]:
        """A batch as the provider in question describes it."""
        words = self.behaviour.words
        failed = batch.total - batch.answered if batch.status in _ENDED else 0
        output, error = batch.files.get("output"), batch.files.get("error")
        if words == "mistral":
            status = {"completed": "SUCCESS", "expired": "TIMEOUT_EXCEEDED", "validating": "QUEUED"}
            return {
                "id": batch.id,
                "object": "batch",
                "input_files": [batch.file],
                "status": status.get(batch.status, batch.status.upper()),
                "output_file": output,
                "error_file": error,
                "total_requests": batch.total,
                "completed_requests": batch.answered,
                "errors": [{"message": self.behaviour.reason}] if batch.status == "failed" else [],
            }
        return {
            "id": batch.id,
            "object": "batch",
            "input_file_id": batch.file,
            "status": batch.status.upper() if words == "together" else batch.status,
            "output_file_id": output,
            "error_file_id": error,
            "request_counts": {"total": batch.total, "completed": batch.answered, "failed": failed},
            "errors": {"data": [{"message": self.behaviour.reason}]} if batch.status == "failed" else None,
        }


def _refuse(status: int, message: str) -> web.Response:
    return web.json_response({"error": {"message": message, "type": "invalid_request_error"}}, status=status)
