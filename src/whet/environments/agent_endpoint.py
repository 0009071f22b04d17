"""The endpoint of one rollout of a command, on the loopback interface: Chat Completions, Responses and Messages.

A command's requests there go through the run, so that its calls are counted, limited, recorded and replayed like those of any
program.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from whet.environments.agent_anthropic import MessagesForm
from whet.environments.agent_chat import ChatForm
from whet.environments.agent_forms import MODEL, AgentForm, AgentRequest
from whet.environments.agent_responses import ResponsesForm
from whet.environments.program import ProgramModelHere
from whet.environments.program_model import ProgramFailed
from whet.errors import UsageError

if TYPE_CHECKING:
    from aiohttp import web

HIDDEN = (
    *("OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_ADMIN_KEY", "OPENAI_CUSTOM_HEADERS"),
    *("ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_CUSTOM_HEADERS", "ANTHROPIC_API_BASE", "ANTHROPIC_PROFILE"),
)
"""Variables of the user that a command does not get, because they would go to the endpoint or lead elsewhere."""
_THOUGHTS = "thoughts of earlier answers"
_NAMES = "names of speakers"
_MOST_BODY = 64 * 2**20
_SERVED = "/v1/chat/completions, /v1/responses, /v1/messages, /v1/messages/count_tokens and /v1/models"
_log = logging.getLogger("whet.program")
R = TypeVar("R")


@contextlib.asynccontextmanager
async def serve_agent(lm: ProgramModelHere, warnings: set[str]) -> AsyncIterator[dict[str, str]]:
    """An endpoint for one rollout, as the variables that name it. `warnings`: what was logged already."""
    from aiohttp import web

    endpoint = _Endpoint(lm, warnings)
    app = web.Application(client_max_size=_MOST_BODY)
    messages, responses, chat = MessagesForm(), ResponsesForm(), ChatForm()
    forms: dict[str, AgentForm] = {"chat/completions": chat, "responses": responses, "messages": messages}
    for start in ("/v1/", "/"):  # some clients take the address to end in /v1, and others not
        for path, form in forms.items():
            app.router.add_post(start + path, endpoint.answer_in(form))
        app.router.add_post(f"{start}messages/count_tokens", endpoint.count_in(messages))
        app.router.add_get(f"{start}models", _list_models)
    app.router.add_route("*", "/{path:.*}", _refuse_path)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        root = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield {
            "OPENAI_BASE_URL": f"{root}/v1", "OPENAI_API_BASE": f"{root}/v1", "OPENAI_API_KEY": endpoint.token,
            "OPENAI_MODEL": MODEL,
            "ANTHROPIC_BASE_URL": root, "ANTHROPIC_API_KEY": endpoint.token, "ANTHROPIC_MODEL": MODEL,
        }  # fmt: skip
    finally:
        await runner.cleanup()


class _Endpoint:
    """The object that answers those requests of a rollout that carry its key."""

    def __init__(self, lm: ProgramModelHere, warnings: set[str]) -> None:
        self._lm, self._warnings, self.token = lm, warnings, secrets.token_urlsafe(24)

    def answer_in(self, form: AgentForm) -> Any:
        """The handler of one interface's requests."""

        async def answer(request: web.Request) -> web.StreamResponse:
            call = await self._read(request, form, form.read)
            if not isinstance(call, AgentRequest):
                return call
            self._say_what_the_task_decides(call.sampling)
            self._say_that_thoughts_stay_here(call.thoughts)
            self._say_that_names_stay_here(call.body)
            try:
                written = form.write(call, await self._lm.ask_as_agent(call))
            except ProgramFailed as error:
                return write_failure(form, 502, str(error))
            except (Exception, asyncio.CancelledError):  # the run itself has ended, and says why
                return write_failure(form, 503, "The run has ended.")
            return await send_answer(request, form, call, written)

        return answer

    def count_in(self, form: MessagesForm) -> Any:
        """The handler that counts a request's tokens."""

        async def count(request: web.Request) -> web.Response:
            counted = await self._read(request, form, form.count)
            return counted if not isinstance(counted, dict) else _as_json(counted)

        return count

    async def _read(
        self, request: web.Request, form: AgentForm, read: Callable[[Any], R]
    ) -> R | web.Response:
        """The value of `read` for the body of a request, or the refusal of the request."""
        keys = request.headers.get("x-api-key"), request.headers.get("Authorization")
        if keys[0] != self.token and keys[1] != f"Bearer {self.token}":
            return write_failure(
                form, 401,
                "This endpoint belongs to another rollout. Use OPENAI_BASE_URL and OPENAI_API_KEY, or ANTHROPIC_BASE_URL and "
                "ANTHROPIC_API_KEY.",
            )  # fmt: skip
        try:
            return read(await request.json())
        except (UsageError, ValueError, RecursionError) as error:
            return write_failure(form, 400, str(error))

    def _say_what_the_task_decides(self, options: tuple[str, ...]) -> None:
        new = [name for name in options if name not in self._warnings]
        self._warnings.update(new)
        if new:
            _log.warning(
                "The command asks models with %s; the task decides these, and the requests go out as it says (`models: task: "
                "...` in task.yaml).",
                ", ".join(new),
            )

    def _say_that_names_stay_here(self, body: Mapping[str, Any]) -> None:
        messages = body.get("messages")
        if (
            _NAMES not in self._warnings
            and isinstance(messages, list)
            and any(map(_says_who_speaks, messages))
        ):
            self._warnings.add(_NAMES)
            _log.warning(
                "The command sends messages with a `name`. It is left out, and the model does not get it. If it matters who "
                "speaks, let the command write it into the content."
            )

    def _say_that_thoughts_stay_here(self, thoughts: bool) -> None:
        if thoughts and _THOUGHTS not in self._warnings:
            self._warnings.add(_THOUGHTS)
            _log.warning(
                "The command sends thoughts of earlier answers with its messages. They are left out: whet shows a model what was "
                "answered, and its own answers hold no thoughts."
            )


def _says_who_speaks(message: object) -> bool:
    """Whether a message has the name of who speaks; that of a tool says something else."""
    if not isinstance(message, Mapping) or message.get("role") in ("tool", "function"):
        return False
    return bool(message.get("name"))


async def send_answer(
    request: web.Request, form: AgentForm, call: AgentRequest, written: dict[str, Any]
) -> web.StreamResponse:
    """An answer at once, or as a stream of events."""
    from aiohttp import web

    if not call.stream:
        return _as_json(written)
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for name, data in form.stream(written):
        text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
        await response.write(f"{f'event: {name}' + chr(10) if name else ''}data: {text}\n\n".encode())
    return response


async def _list_models(request: web.Request) -> web.Response:
    """The one model, as the lists of both providers name it."""
    one = {
        "id": MODEL,
        "object": "model",
        "type": "model",
        "display_name": MODEL,
        "created": 0,
        "owned_by": MODEL,
    }
    one["created_at"] = "1970-01-01T00:00:00Z"
    return _as_json({"object": "list", "data": [one], "has_more": False, "first_id": MODEL, "last_id": MODEL})


async def _refuse_path(request: web.Request) -> web.Response:
    return write_failure(
        ChatForm(), 404, f"{request.method} {request.path} is not served here. whet serves {_SERVED}."
    )


def _as_json(value: object) -> web.Response:
    from aiohttp import web

    return web.json_response(value)


def write_failure(form: AgentForm, status: int, message: str) -> web.Response:
    """A failure that a client does not send again: whet itself has asked again where that helps."""
    from aiohttp import web

    return web.json_response(form.fail(status, message), status=status, headers={"x-should-retry": "false"})
