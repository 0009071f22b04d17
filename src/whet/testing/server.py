"""A real OpenAI-compatible HTTP server around any language model, with a ledger of its own and seeded faults.

    python -m whet.testing.server --lm scripted/echo --ledger ledger.jsonl --error-500 0.02 --rate-429 0.02

The first line on stdout is the base URL, for example http://127.0.0.1:40123/v1. Every request that arrives is
one line of the ledger, written and flushed before the answer leaves: what a client was billed can be compared
with what it recorded, also when it was killed in between. A base URL with a word before /v1, such as
http://127.0.0.1:40123/judge/v1, notes that word as the role.

Which fault a request meets depends on the seed, on its content and on how often that content has arrived, not
on the order of arrival: a retry has a fresh chance, and the same run meets the same faults.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import importlib
import inspect
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeAlias

import orjson
from aiohttp import web

from whet.errors import ProviderError, UsageError
from whet.models.addresses import resolve
from whet.models.language_model import LanguageModel
from whet.testing.batches import BatchBehaviour, LocalBatch, LocalBatches
from whet.testing.faults import (
    HABITS,
    Faults,
    ReceivedRequest,
    RequestLedger,
    ServerBehaviour,
    apply_habits,
    habitual,
)
from whet.types import Completion, Message, Request, content_hash

Answerer: TypeAlias = LanguageModel | Callable[[Request], str | Awaitable[str]]

_MAX_BODY = 64 * 2**20
_STARTUP_SECONDS = 30.0
_FAULTS = {
    "error_500": "an HTTP 500",
    "rate_429": "an HTTP 429 with Retry-After",
    "malformed": "an HTTP 200 whose body is not JSON",
    "truncated": "an HTTP 200 whose body ends too early",
    "empty": "an answer without text",
    "refusal": "a refusal instead of an answer",
    "drop": "a connection that ends without an answer (status 0 in the ledger)",
}
_BATCHES = {
    "looks": "looks until one has ended (2)",
    "unanswered": "share of the requests that it does not get to",
    "refused": "share of the requests that end in a 500",
    "ends": "completed, expired, failed or cancelled",
    "reason": "why it failed",
    "words": "openai, mistral or together",
    "lost": "how many of the first ones begin without an answer",
}
_BATCH_OPTIONS = {field.name: field for field in fields(BatchBehaviour) if field.name in _BATCHES}
_FEATURES = ("response_format", "seed", "n", "logprobs", "temperature", "stop", "max_tokens")


class LocalServer:
    """The handlers. `base_url` is known once `serving` has started it; `received` are the requests so far."""

    def __init__(
        self,
        answerer: Answerer,
        ledger: RequestLedger,
        faults: Faults,
        settings: ServerBehaviour,
        batches: BatchBehaviour | None = None,
    ) -> None:
        self.base_url = ""
        self.ledger = ledger
        self.received: list[ReceivedRequest] = []
        self._answerer = answerer
        self._faults = faults
        self._settings = settings
        self._seen: Counter[str] = Counter()
        self._in_flight = 0
        self._turn = asyncio.Lock()
        self._streaming: asyncio.Transport | None = None
        self._spoiled: set[object] = set()
        self._beginnings: set[int] = set()
        self.batches = LocalBatches(self._answer_batched, batches or BatchBehaviour())

    def app(self) -> web.Application:
        """The application, for aiohttp's own runner."""
        app = web.Application(client_max_size=_MAX_BODY)
        app.router.add_post("/v1/chat/completions", self.chat)
        self.batches.add_routes(app.router)
        app.router.add_post("/{role}/v1/chat/completions", self.chat)
        app.router.add_post("/v1/embeddings", self.chat)
        app.router.add_post("/{role}/v1/embeddings", self.chat)
        app.router.add_post("/openai/deployments/{deployment}/chat/completions", self.chat)
        return app

    async def _answer_batched(self, body: dict[str, Any], batch: LocalBatch) -> tuple[int, dict[str, object]]:
        """One request of a batch: refused or answered as by itself, and a line of the ledger."""
        request = _request(apply_habits(body, self._settings.habits))
        refused = next((feature for feature in self._settings.reject if feature in body), None)
        if refused is None:
            status, answer = (
                200,
                _answer(str(body.get("model", "")), request, await self._complete(request), None),
            )
        else:
            status, answer = _refusal(400, f"Unsupported parameter: '{refused}'.", "unsupported_parameter")
        usage = answer.get("usage", {})
        assert isinstance(usage, dict)
        self.ledger.add(
            {
                "number": len(self.ledger.entries) + 1,
                "role": batch.role,
                "batch": batch.id,
                "model": body.get("model", ""),
                "digest": hashlib.sha256(orjson.dumps(body)).hexdigest()[:16],
                "status": status,
                "fault": "",
                "input_tokens": usage.get("prompt_tokens", 0),
                "output_tokens": usage.get("completion_tokens", 0),
                "time": time.time(),
            }
        )
        return status, answer

    async def chat(self, http: web.Request) -> web.StreamResponse:
        """One request: decide, note in the ledger, wait, answer."""
        self._in_flight += 1
        try:
            async with self._turn if "serial" in self._settings.habits else nullcontext():
                return await self._chat(http)
        finally:
            self._in_flight -= 1

    async def _chat(self, http: web.Request) -> web.StreamResponse:
        raw = await http.read()
        digest = hashlib.sha256(raw).hexdigest()[:16]
        self._seen[digest] += 1
        fault = self._faults.draw(random.Random(f"{self._settings.seed}|{digest}|{self._seen[digest]}"))
        body: dict[str, Any] = {}
        try:
            body = orjson.loads(raw)
            headers = {name.lower(): value for name, value in http.headers.items()}
            self.received.append(ReceivedRequest(http.path_qs, headers, body))
            request = _request(apply_habits(body, self._settings.habits))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            status, answer = _refusal(400, f"The body cannot be read: {error!r}", "bad_body")
        else:
            status, answer = await self._decide(http, body, request, fault)
        if "all_500" in self._settings.habits and status in (400, 422):
            status = 500
        if self._connection(http) in self._spoiled:
            status = 0
        usage = answer.get("usage", {})
        self.ledger.add(
            {
                "number": len(self.ledger.entries) + 1,
                "role": http.match_info.get("role", ""),
                "model": body.get("model", "") if isinstance(body, dict) else "",
                "digest": digest,
                "status": status,
                "fault": fault or "",
                "input_tokens": usage.get("prompt_tokens", 0),
                "output_tokens": usage.get("completion_tokens", 0),
                "time": time.time(),
            }
        )
        if self._settings.latency > 0:
            await asyncio.sleep(self._settings.latency)
        if status == 200 and not fault and (body.get("stream") or "stream_always" in self._settings.habits):
            return await self._send_events(http, _events_of(answer, body))
        return await self._send(http, status, orjson.dumps(answer), fault)

    @staticmethod
    async def _send_events(http: web.Request, events: Sequence[bytes]) -> web.StreamResponse:
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await stream.prepare(http)
        for event in events:
            await stream.write(event)
        await stream.write_eof()
        return stream

    async def _decide(
        self, http: web.Request, body: dict[str, Any], request: Request, fault: str | None
    ) -> tuple[int, dict[str, object]]:
        """Status (0: the connection is dropped) and body of the answer."""
        s = self._settings
        if "interrupt" in s.habits:
            if self._streaming is not None:
                self._streaming.abort()
            self._streaming = http.transport if body.get("stream") else None
        place = "api-key" if "azure_key" in s.habits else "Authorization"
        key = http.headers.get(place, "").removeprefix("Bearer ")
        if s.api_key and key != s.api_key:
            return _refusal(401, f"Incorrect API key provided: {key}", "invalid_api_key")
        for feature in s.reject:
            if feature in body:
                return _refusal(400, f"Unsupported parameter: '{feature}'.", "unsupported_parameter")
        if "no_system" in s.habits and any(m.role in ("system", "developer") for m in request.messages):
            model = f"models/{body.get('model', '')}"
            return _refusal(400, f"Developer instruction is not enabled for {model}", "invalid_argument")
        if (unserved := _refused_stream(body, s.habits) or _refused_bound(body, request, s)) is not None:
            return unserved
        form = body.get("response_format") or {}
        if "schema_500" in s.habits and form.get("type") == "json_schema":
            return _refusal(500, "list index out of range", "server_error")
        if 0 < s.context < sum(len(m.content.split()) for m in request.messages):
            return _refusal(400, f"This model holds {s.context} tokens.", "context_length_exceeded")
        if fault == "rate_429" or 0 < s.most_in_flight < self._in_flight:
            return _refusal(429, "Too many requests.", "rate_limit_exceeded")
        if fault == "error_500":
            return _refusal(500, "The server had an error.", "server_error")
        if fault == "drop":
            return 0, {}
        if "input" in body:
            return 200, _embed_reply(body)
        try:
            completions = await self._complete(request)
        except UsageError as error:
            return _refusal(400, str(error), "unsupported")
        except ProviderError as error:
            return _refusal(error.status or 500, str(error), "provider")
        except Exception as error:  # a function under test that fails is a server that fails
            return _refusal(500, repr(error), "server_error")
        if fault == "empty":
            completions = [Completion("") for _ in completions]
        refusal = "I cannot help with that." if fault == "refusal" else None
        answer = _answer(str(body.get("model", "")), request, completions, refusal)
        if "prefix_cache" in s.habits:
            answer = self._with_cached_words(answer, request)
        return 200, habitual(answer, request.stop, s.habits) if s.habits else answer

    def _with_cached_words(self, answer: dict[str, Any], request: Request) -> dict[str, object]:
        """The answer, its usage with the number of words that an earlier request began with, all forgetting aside."""
        cached, mark = 0, 0
        for n, word in enumerate((w for m in request.messages for w in m.content.split()), 1):
            mark = hash((mark, word))
            if mark in self._beginnings:
                cached = n
            self._beginnings.add(mark)
        details = {"prompt_tokens_details": {"cached_tokens": cached}}
        return {**answer, "usage": {**answer["usage"], **details}}

    @staticmethod
    def _connection(http: web.Request) -> Any:
        return None if http.transport is None else http.transport.get_extra_info("peername")

    async def _complete(self, request: Request) -> list[Completion]:
        if isinstance(self._answerer, LanguageModel):
            return await self._answerer.generate(request)
        answers = [self._answerer(request) for _ in range(request.n)]
        return [Completion(await answer if inspect.isawaitable(answer) else answer) for answer in answers]

    async def _send(
        self, http: web.Request, status: int, raw: bytes, fault: str | None
    ) -> web.StreamResponse:
        if status == 0:
            if http.transport is not None:
                http.transport.abort()
            return web.Response()
        if status >= 400 and "plain_errors" in self._settings.habits:
            self._spoiled.add(self._connection(http))
            return web.Response(status=status, text="Internal Server Error")
        headers = {"Retry-After": f"{self._settings.retry_after:g}"} if status == 429 else {}
        if status == 200 and fault == "malformed":
            raw = raw[: len(raw) // 2] + b"<html>"
        if status == 200 and fault == "truncated":
            cut = web.StreamResponse(
                headers={"Content-Type": "application/json", "Content-Length": str(len(raw))}
            )
            await cut.prepare(http)
            await cut.write(raw[: len(raw) // 2])
            if http.transport is not None:
                http.transport.close()
            return cut
        return web.Response(status=status, body=raw, content_type="application/json", headers=headers)


def _refusal(status: int, message: str, code: str) -> tuple[int, dict[str, Any]]:
    return status, {"error": {"message": message, "type": "invalid_request_error", "code": code}}


def _refused_stream(body: dict[str, Any], habits: Sequence[str]) -> tuple[int, dict[str, object]] | None:
    """The refusal of a request that asks for a stream or for none, by a server that does not serve it so."""
    if "stream_only" in habits and not body.get("stream"):
        words = "This model only support stream mode, please enable the stream parameter to access the model."
        return _refusal(400, words, "invalid_parameter_error")
    if "no_stream" in habits and body.get("stream"):
        return _refusal(400, "Streaming is not supported by this deployment.", "unsupported")
    if "no_stream_options" in habits and "stream_options" in body:
        return _refusal(422, "stream_options: Extra inputs are not permitted", "extra_forbidden")
    return None


def _refused_bound(
    body: dict[str, Any], request: Request, settings: ServerBehaviour
) -> tuple[int, dict[str, object]] | None:
    """The refusal of a request that asks for more tokens than there are: OpenAI's words for the model's most, vLLM's for its
    context."""
    bound = body.get("max_tokens") or body.get("max_completion_tokens")
    if bound and 0 < settings.most_output < bound:
        words = f"max_tokens is too large: {bound}. This model supports at most {settings.most_output} completion tokens"
        return _refusal(400, f"{words}, whereas you provided {bound}.", "invalid_value")
    if "strict_context" not in settings.habits or not settings.context:
        return None
    size, spent = settings.context, sum(len(m.content.split()) for m in request.messages)
    holds = f"his model's maximum context length is {size} tokens"
    if spent >= size:
        words = f"T{holds}. However, your request has {spent} input tokens. Please reduce the length of the input messages."
        return _refusal(400, words, "BadRequestError")
    if bound and spent + bound > size:
        words = f"'max_tokens' or 'max_completion_tokens' is too large: {bound}. T{holds} and your request has {spent}"
        return _refusal(400, f"{words} input tokens ({bound} > {size} - {spent}).", "BadRequestError")
    return None


def _events_of(answer: dict[str, Any], body: dict[str, Any]) -> list[bytes]:
    """The events of a stream that add up to an answer; the usage stands in the last one, where it is asked for."""
    chunks: list[dict[str, object]] = []
    for choice in answer["choices"]:
        text = choice["message"]["content"] or ""
        pieces = [{"content": text[:3]}, {"content": text[3:]}, {"refusal": choice["message"].get("refusal")}]
        places = {"index": choice["index"], "finish_reason": None}
        chunks += [{"choices": [{**places, "delta": piece, "logprobs": None}]} for piece in pieces]
        last = {**places, "finish_reason": choice["finish_reason"], "logprobs": choice.get("logprobs")}
        chunks.append({"choices": [{**last, "delta": {}}]})
    if (body.get("stream_options") or {}).get("include_usage") and "usage" in answer:
        chunks.append({"choices": [], "usage": answer["usage"]})
    common = {"id": answer["id"], "object": "chat.completion.chunk", "model": answer["model"]}
    lines = [b"data: " + orjson.dumps(common | chunk) + b"\n\n" for chunk in chunks]
    return [b": connected\n\n", *lines, b"data: [DONE]\n\n"]


def _embed_reply(body: dict[str, Any]) -> dict[str, object]:
    """Vectors of the texts: how often each byte occurs, by its lower five bits."""
    texts = [text.encode() for text in body["input"]]
    rows = [
        {"index": n, "embedding": [float(sum(byte % 32 == place for byte in text)) for place in range(32)]}
        for n, text in enumerate(texts)
    ]
    tokens = sum(len(text.split()) for text in texts)
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "model": body.get("model", ""), "data": rows, "usage": usage}


def _request(body: dict[str, Any]) -> Request:
    if "input" in body:
        return Request(tuple(Message("user", text) for text in body["input"]))
    stop = body.get("stop") or ()
    schema = body.get("response_format", {}).get("json_schema", {}).get("schema")
    bound = body.get("max_tokens") or body.get("max_completion_tokens")
    return Request(
        tuple(Message(m["role"], m["content"]) for m in body["messages"]),
        temperature=float(body.get("temperature", 1.0)),
        max_tokens=None if bound is None else int(bound),
        n=int(body.get("n", 1)),
        seed=body.get("seed"),
        stop=(stop,) if isinstance(stop, str) else tuple(stop),
        schema=schema,
        top_logprobs=int(body.get("top_logprobs", 0)),
    )


def _answer(
    model: str, request: Request, completions: Sequence[Completion], refusal: str | None
) -> dict[str, object]:
    """The wire form of completions. Tokens are counted as words."""
    spent = sum(len(m.content.split()) for m in request.messages)
    written = sum(len(c.text.split()) for c in completions)
    choices = [
        {
            "index": i,
            "message": {"role": "assistant", "content": None if refusal else c.text, "refusal": refusal},
            "finish_reason": c.finish,
            "logprobs": _logprobs(c),
        }
        for i, c in enumerate(completions)
    ]
    messages: list[object] = [m.as_list() for m in request.messages]
    return {
        "id": f"chatcmpl-{content_hash(messages)[:12]}",
        "object": "chat.completion",
        "model": model,
        "choices": choices,
        "usage": {"prompt_tokens": spent, "completion_tokens": written, "total_tokens": spent + written},
    }


def _logprobs(completion: Completion) -> dict[str, Any] | None:
    if not completion.first_token:
        return None
    top = [{"token": token, "logprob": value} for token, value in completion.first_token.items()]
    return {"content": [{**max(top, key=lambda entry: entry["logprob"]), "top_logprobs": top}]}


@asynccontextmanager
async def serving(
    answerer: Answerer,
    *,
    ledger: Path | None = None,
    faults: Faults | None = None,
    settings: ServerBehaviour | None = None,
    batches: BatchBehaviour | None = None,
    port: int = 0,
) -> AsyncIterator[LocalServer]:
    """A running server in this process, on 127.0.0.1 and a free port; `ledger` names its file, `batches` says how batches go."""
    server = LocalServer(
        answerer, RequestLedger(ledger), faults or Faults(), settings or ServerBehaviour(), batches
    )
    runner = web.AppRunner(server.app(), access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", port, backlog=4096)
        await site.start()
        server.base_url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        yield server
    finally:
        await runner.cleanup()
        server.ledger.close()


@contextmanager
def server_process(*arguments: str) -> Iterator[str]:
    """Base URL of a server in a process of its own, started with command-line arguments; killed at the end.

    Raises UsageError with what the process said when it does not come up.
    """
    command = [sys.executable, "-m", "whet.testing.server", *arguments]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline().strip()
            if not line.startswith("http"):
                raise UsageError(f"The server did not start: {line or f'exit code {process.wait()}'}")
            yield line
        finally:
            process.kill()


def load_answerer(lm: str | None, function: str | None, text: str | None) -> Answerer:
    """The source of the answers: the model at an address, a function `module:name` (Request to text), or one fixed text."""
    if lm is not None:
        return resolve(lm)
    if function is not None:
        module, _, name = function.partition(":")
        answerer: Callable[[Request], str] = getattr(importlib.import_module(module), name)
        return answerer
    return lambda request: text or "ok"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m whet.testing.server",
        description="Serve a model over an OpenAI-compatible endpoint, with a ledger and seeded faults.",
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--lm", metavar="ADDRESS", help="a model, for example scripted/echo or embedded/mlm")
    what.add_argument(
        "--function", metavar="MODULE:NAME", help="a Python function from whet.types.Request to text"
    )
    what.add_argument("--text", help="answer every request with this text")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one (default)")
    parser.add_argument("--ledger", type=Path, metavar="FILE", help="append one JSON line per request")
    parser.add_argument("--latency", type=float, default=0.0, metavar="S", help="seconds before each answer")
    parser.add_argument(
        "--retry-after", type=float, default=0.1, metavar="S", help="seconds that a 429 asks for"
    )
    parser.add_argument("--most-in-flight", type=int, default=0, metavar="N", help="429 above these; 0: none")
    parser.add_argument(
        "--api-key", default="", metavar="KEY", help="answer 401 to requests without this key"
    )
    parser.add_argument(
        "--reject", default="", metavar="A,B", help=f"refuse features: {', '.join(_FEATURES)}"
    )
    parser.add_argument(
        "--context", type=int, default=0, metavar="N", help="400 above so many words; 0: none"
    )
    parser.add_argument(
        "--most-output", type=int, default=0, metavar="N", help="400 above so many max_tokens; 0: no bound"
    )
    parser.add_argument(
        "--habits", default="", metavar="A,B", help=f"what other servers do: {', '.join(HABITS)}"
    )
    parser.add_argument("--seed", type=int, default=0, help="which requests meet which fault")
    for field in fields(Faults):
        option = field.name.replace("_", "-")
        parser.add_argument(
            f"--{option}", type=float, default=0.0, metavar="P", help=f"probability of {_FAULTS[field.name]}"
        )
    for name, field in _BATCH_OPTIONS.items():
        kind, usual = type(field.default), field.default
        help_text = f"batches: {_BATCHES[name]}"
        parser.add_argument(f"--batch-{name}", type=kind, default=usual, metavar="X", help=help_text)
    return parser


@asynccontextmanager
async def _serving(arguments: argparse.Namespace) -> AsyncIterator[LocalServer]:
    """A server as command-line arguments describe it."""
    faults = Faults(**{field.name: getattr(arguments, field.name) for field in fields(Faults)})
    values = {f.name: getattr(arguments, f.name) for f in fields(ServerBehaviour)}
    lists = {key: tuple(name for name in values[key].split(",") if name) for key in ("reject", "habits")}
    settings = ServerBehaviour(**values | lists)
    batches = BatchBehaviour(**{name: getattr(arguments, f"batch_{name}") for name in _BATCH_OPTIONS})
    answerer = load_answerer(arguments.lm, arguments.function, arguments.text)
    async with serving(
        answerer,
        ledger=arguments.ledger,
        faults=faults,
        settings=settings,
        batches=batches,
        port=arguments.port,
    ) as server:
        yield server


async def _serve_for_good(arguments: argparse.Namespace) -> None:
    async with _serving(arguments) as server:
        sys.stdout.write(f"{server.base_url}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until interrupted. Exit code 2 for arguments that cannot be used."""
    try:
        asyncio.run(_serve_for_good(_parser().parse_args(argv)))
    except KeyboardInterrupt:
        return 130
    except UsageError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    except OSError as error:  # a port that is taken, or one that only the administrator may use
        sys.stderr.write(
            f"The server could not start: {error.strerror or error}. Name another --port; 0 takes a free one.\n"
        )
        return UsageError.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
