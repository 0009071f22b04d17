"""Batches of an OpenAI-compatible endpoint: a file of requests goes in, hours later one of answers comes out, at a lower price.

The protocol is that of `/files` and `/batches`. Providers differ in names and not in steps: Mistral has `/batch/jobs`, a list of
input files and `SUCCESS`; Together uploads elsewhere, wraps what it creates in `job` and writes statuses in capital letters. Each
function makes one request; the engine decides what is repeated.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import orjson

from whet.errors import ProviderError, UsageError, parameter
from whet.models.endpoint import ModelEndpoint
from whet.models.http import Answer, HttpClient, NoAnswer
from whet.models.language_model import LanguageModel
from whet.models.openai_wire import Failure, encode_body, http_error, loads
from whet.types import Completion, Request

WAITING, DONE, EXPIRED, FAILED, CANCELLED = "waiting", "done", "expired", "failed", "cancelled"
ENDPOINT = "/v1/chat/completions"
MOST_LINES = 50_000
"""Requests of a batch at most (OpenAI, Groq, Together)."""
MOST_INPUT_BYTES = 90 * 2**20
"""Bytes of a file at most: less than the 100 MB of Groq and Together."""
_MOST_OUTPUT_BYTES = 2**30
_SECONDS = 300.0
_WINDOW_HOURS = 24
_STATUSES = {
    "completed": DONE,
    "success": DONE,
    "succeeded": DONE,
    "expired": EXPIRED,
    "timeout_exceeded": EXPIRED,
    "failed": FAILED,
    "cancelled": CANCELLED,
    "canceled": CANCELLED,
}
_NO_BATCHES = (404, 405, 501)
_LISTED = 100


@dataclass(frozen=True)
class BatchJob:
    """One batch as the provider describes it."""

    id: str
    state: str
    """waiting, done, expired, failed or cancelled."""
    status: str
    """The provider's word for the state."""
    input_file: str = ""
    done: int = 0
    """Answered requests, failed ones included; 0 if the provider does not say."""
    total: int = 0
    """All requests; 0 if the provider does not say."""
    files: tuple[str, ...] = ()
    """The files with its answers and errors."""
    reason: str = ""
    """Why it failed; empty without a reason."""


@dataclass(frozen=True)
class BatchLine:
    """The outcome of one request: an HTTP status with a body; status 0 if the provider has not worked on it."""

    status: int
    body: bytes


@dataclass
class BatchJobs:
    """The batches of the model at `address`. Raises ProviderError for what fails: fatal where every request would fail alike,
    with the status 404, 405 or 501 where there are no batches."""

    address: str
    endpoint: ModelEndpoint
    _boundary: str = field(default_factory=lambda: secrets.token_hex(16))
    _clients: dict[tuple[asyncio.AbstractEventLoop, str], HttpClient] = field(default_factory=dict)

    @property
    def _provider(self) -> str:
        return self.address.partition("/")[0]

    @property
    def _jobs(self) -> tuple[str, ...]:
        return ("batch", "jobs") if self._provider == "mistral" else ("batches",)

    async def upload(self, lines: bytes) -> str:
        """Upload a file of requests; its name at the provider. It costs nothing."""
        together = self._provider == "together"
        path = ("files", "upload") if together else ("files",)
        name = f"whet-{secrets.token_hex(6)}.jsonl"
        fields = {"purpose": "batch-api" if together else "batch"}
        fields |= {"file_name": name, "file_type": "jsonl"} if together else {}
        body = _multipart(self._boundary, fields, name, lines)
        answer = await self._post(path, body, f"multipart/form-data; boundary={self._boundary}")
        if not isinstance(file := answer.get("id"), str):
            raise self._unreadable("/files")
        return file

    async def create(self, file: str) -> BatchJob:
        """Begin a batch with an uploaded file."""
        body: dict[str, object] = {
            "input_file_id": file,
            "endpoint": ENDPOINT,
            "completion_window": f"{_WINDOW_HOURS}h",
        }
        if self._provider == "mistral":
            model = self.address.partition("/")[2]
            body = {"input_files": [file], "endpoint": ENDPOINT, "model": model}
            body["timeout_hours"] = _WINDOW_HOURS
        return self._job(await self._post(self._jobs, orjson.dumps(body), "application/json"))

    async def find(self, file: str) -> BatchJob | None:
        """The batch that was begun with an uploaded file, among the newest hundred; None where there is none."""
        url = str(self.endpoint.url(*self._jobs).update_query(limit=str(_LISTED)))
        answer = self._read(await self._client("application/json").get(url, _SECONDS), self._jobs)
        rows = answer.get("data", answer.get("jobs", answer)) if isinstance(answer, dict) else answer
        if not isinstance(rows, list):
            raise self._unreadable("/" + "/".join(self._jobs))
        jobs = (self._job(row) for row in rows if isinstance(row, dict))
        return next((job for job in jobs if job.input_file == file), None)

    async def look(self, job: str) -> BatchJob:
        """The state of a batch."""
        url = str(self.endpoint.url(*self._jobs, job))
        answer = self._read(await self._client("application/json").get(url, _SECONDS), self._jobs)
        return self._job(answer if isinstance(answer, dict) else {})

    async def lines(self, job: BatchJob) -> dict[str, BatchLine]:
        """The outcomes of the requests of a batch that has ended, by their ids; a missing request was not worked on."""
        lines: dict[str, BatchLine] = {}
        for file in job.files:
            url = str(self.endpoint.url("files", file, "content"))
            reply = await self._client("application/json").get(url, _SECONDS)
            self._check(reply, ("files",))
            assert isinstance(reply, Answer)
            lines |= read_lines(reply.body)
        return lines

    async def close(self) -> None:
        """Close the connections of the running event loop."""
        loop = asyncio.get_running_loop()
        for key in [key for key in self._clients if key[0] is loop]:
            await self._clients.pop(key).close()

    def _client(self, content_type: str) -> HttpClient:
        key = asyncio.get_running_loop(), content_type
        if key not in self._clients:
            headers = self.endpoint.with_headers(
                {"Content-Type": content_type, "Accept": "*/*", "User-Agent": "whet"}
            )
            self._clients[key] = HttpClient(self.endpoint.url(), headers, most_bytes=_MOST_OUTPUT_BYTES)
        return self._clients[key]

    async def _post(self, path: tuple[str, ...], body: bytes, content_type: str) -> dict[str, Any]:
        url = str(self.endpoint.url(*path))
        answer = self._read(await self._client(content_type).post(url, body, _SECONDS), path)
        return answer if isinstance(answer, dict) else {}

    def _read(self, reply: Answer | NoAnswer, path: Sequence[str]) -> Any:
        self._check(reply, path)
        assert isinstance(reply, Answer)
        try:
            return loads(reply.body)
        except ValueError:
            raise self._unreadable("/" + "/".join(path)) from None

    def _check(self, reply: Answer | NoAnswer, path: Sequence[str]) -> None:
        """Raise ProviderError for all but an answer."""
        who = f"{self.address} at {self.endpoint.url().origin()}"
        place = "/".join(path)
        if isinstance(reply, NoAnswer):
            raise ProviderError(
                f"{who}: /{place}: {reply.reason}",
                retryable=not reply.final,
                fatal=reply.final,
                refused=reply.unreached,
            )
        if reply.status < 300:
            return
        error = http_error(
            Failure(reply.status, reply.body, reply.headers), f"{who}: /{place}", self.endpoint.scrub
        )
        if reply.status in _NO_BATCHES:
            raise ProviderError(
                f"{str(error).rstrip('.')}. Without {parameter('batch', True)}, the calls are made one by one.",
                fatal=True,
                status=reply.status,
            )
        raise error

    def _unreadable(self, place: str) -> ProviderError:
        return ProviderError(
            f"{self.address}: {place}: the answer cannot be read", retryable=True, status=502
        )

    def _job(self, data: Mapping[str, Any]) -> BatchJob:
        """A batch in the words of any provider."""
        data = inner if isinstance(inner := data.get("job"), Mapping) else data
        if not isinstance(name := data.get("id"), str):
            raise self._unreadable("/" + "/".join(self._jobs))
        status = str(data.get("status", "")).lower()
        counts = data.get("request_counts")
        counts = counts if isinstance(counts, Mapping) else {}
        done = _count(counts, "completed") + _count(counts, "failed") or _count(data, "completed_requests")
        inputs = data.get("input_file_id") or next(iter(data.get("input_files") or ()), "")
        keys = ("output_file_id", "output_file", "error_file_id", "error_file")
        return BatchJob(
            name,
            _STATUSES.get(status, WAITING),
            status,
            str(inputs),
            done,
            _count(counts, "total") or _count(data, "total_requests"),
            tuple(str(data[key]) for key in keys if data.get(key)),
            self.endpoint.scrub(_reasons(data)),
        )


def write_line(name: str, body: Mapping[str, object]) -> bytes:
    """A line of a file of requests: a body under its id."""
    return encode_body({"custom_id": name, "method": "POST", "url": ENDPOINT, "body": body}) + b"\n"


def read_lines(raw: bytes) -> dict[str, BatchLine]:
    """The lines of a file of answers or of errors, by their ids. A line that cannot be read is left out.

    >>> read_lines(b'{"custom_id": "a", "response": {"status_code": 200, "body": {"choices": []}}}')["a"].status
    200
    >>> read_lines(b'{"custom_id": "a", "response": null, "error": {"code": "batch_expired", "message": ""}}')["a"].status
    0
    """
    lines: dict[str, BatchLine] = {}
    for line in raw.splitlines():
        try:
            row = loads(line) if line.strip() else None
        except ValueError:
            continue
        if not isinstance(row, dict) or not isinstance(row.get("custom_id"), str):
            continue
        lines[row["custom_id"]] = _line_of(row)
    return lines


def _line_of(row: Mapping[str, Any]) -> BatchLine:
    """The content of one line. With vLLM and others, the response may be the body itself."""
    response, error = row.get("response"), row.get("error")
    if isinstance(response, Mapping):
        whole = "body" not in response and "choices" in response
        body = response if whole else response.get("body")
        status = 200 if whole else response.get("status_code", 200)
        if isinstance(body, Mapping) and isinstance(status, int) and (status != 200 or not error):
            return BatchLine(status, orjson.dumps(body))
        if isinstance(status, int) and status >= 400:
            return BatchLine(status, orjson.dumps({"error": error or body}))
    code = error.get("code") if isinstance(error, Mapping) else None
    status = int(code) if isinstance(code, int | str) and str(code).isdecimal() else 0
    return BatchLine(status, orjson.dumps({"error": error}))


def _multipart(boundary: str, fields: Mapping[str, str], name: str, content: bytes) -> bytes:
    """A form with one file, as RFC 7578 has it."""
    parts = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n'.encode()
        for key, value in fields.items()
    ]
    head = f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n'
    parts += [f"{head}Content-Type: application/jsonl\r\n\r\n".encode(), content]
    return b"".join([*parts, f"\r\n--{boundary}--\r\n".encode()])


def _count(data: Mapping[str, Any], key: str) -> int:
    value = data.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _reasons(data: Mapping[str, Any]) -> str:
    """Why a batch failed, in the provider's words."""
    errors = data.get("errors") or data.get("error") or ""
    errors = errors.get("data", errors) if isinstance(errors, Mapping) else errors
    rows = errors if isinstance(errors, list) else [errors]
    words = [str(row.get("message") or row) if isinstance(row, Mapping) else str(row) for row in rows if row]
    return "; ".join(dict.fromkeys(words))[:1000]


class BatchingModel(LanguageModel, Protocol):
    """A model whose provider answers batches."""

    @property
    def batch_jobs(self) -> BatchJobs:
        """The batches of its endpoint. Raises UsageError where there cannot be any."""
        ...

    def batch_body(self, request: Request) -> dict[str, object]:
        """The body of a request as a line of a batch has it."""
        ...

    def read_batched(self, request: Request, status: int, body: bytes) -> list[Completion]:
        """The completions of a request that was answered in a batch. Raises ProviderError, as `generate` does."""
        ...


def offers_batches(model: object) -> bool:
    """Whether a model's calls may be made in batches."""
    return hasattr(model, "batch_body")


def check_single(address: str, endpoints: Sequence[object]) -> None:
    """Raise UsageError where a model has several base URLs: a batch goes to one provider."""
    if len(endpoints) > 1:
        raise UsageError(
            f"{address} has {len(endpoints)} base URLs, and a batch goes to one provider. Name one base URL, or leave out "
            f"{parameter('batch', True)}."
        )
