"""A command as a program: any agent that reads its prompts from files, such as a SKILL.md, an AGENTS.md or a system prompt.

Each rollout gets a fresh copy of the workspace with the prompts written into it. The command is started there, and what it asks
an OpenAI-compatible endpoint goes through the run: whet serves one on the loopback interface for each rollout, so that calls are
counted, limited, recorded and replayed as those of any program. An optional check, such as a test suite, runs afterwards.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from whet.environments.function_calls import OfferedTools, message_of, write_messages_as_text
from whet.environments.program import Program, ProgramModelHere
from whet.environments.program_model import ProgramFailed
from whet.errors import UsageError, did_you_mean
from whet.prompt import Prompt, write_prompt_as
from whet.types import JSON, Message, content_hash
from whet_client.prompt.chat import read_messages
from whet_client.prompt.slots import SLOT, canonical_name, slot_names

if TYPE_CHECKING:
    from aiohttp import web

MOST_OUTPUT = 1_000_000
"""Bytes that a command may print, or a file with its answer may hold."""
_LEAVING = 5.0
"""Seconds that a command that has ended or was killed, and what it started, have to leave its pipes."""
_LOOKS = 0.25
"""Seconds after which whet looks whether a command has ended although its pipes are open."""
SHOWN = 2_000
"""Characters of a failed command's output that an error or a check reports: the end of it."""
CHECK = "check"
"""The name of the step in which the check of a harness is recorded."""
_HIDDEN = ("OPENAI_ORG_ID", "OPENAI_PROJECT_ID")


@dataclass(frozen=True)
class Harness:
    """What is run for a row, as task.yaml describes it.

    `documents`: where each prompt is written, by name, below the workspace. `workspace`: a folder that is copied for every
    rollout; None: an empty one. `answer`: the file with the answer; None: what the command prints. `check`: the command that
    says by its exit code whether the row was solved. `protect`: files and folders of the workspace that are as they were when the
    check runs, whatever the command has made of them. `seconds` bounds the command, and the check, without waiting for models.
    """

    command: tuple[str, ...]
    documents: Mapping[str, str]
    folder: Path
    workspace: str | None = None
    answer: str | None = None
    check: tuple[str, ...] | None = None
    protect: tuple[str, ...] = ()
    calls: int = 8
    seconds: float = 60.0

    def program(self) -> Program:
        """The harness as a program. Raises UsageError for what cannot be run."""
        for name, place in {**self.documents, **({"answer": self.answer} if self.answer else {})}.items():
            path = PurePosixPath(place)
            if path.is_absolute() or ".." in path.parts or not path.parts:
                raise UsageError(f"{name}: {place!r} must be a path below the workspace.")
            if self.workspace is not None and (self.folder / self.workspace / place).is_dir():
                raise UsageError(f"{name}: {place!r} is a folder of the workspace. Name a file.")
        if len(self.documents) > len({PurePosixPath(place) for place in self.documents.values()}):
            raise UsageError("documents: two prompts have the same place. Give each a file of its own.")
        if self.workspace is not None and not (self.folder / self.workspace).is_dir():
            raise UsageError(
                f"there is no folder {self.folder / self.workspace}. Name the workspace that is copied."
            )
        self._refuse_unprotectable()
        values = {key: value for key, value in asdict(self).items() if key != "folder"}
        if not self.protect:
            del values["protect"]
        digest = content_hash([values, self._files()])
        # The time of the command is watched here, where it ends the rollout and not the run.
        file, slots = self.folder / "task.yaml", frozenset(slot_names(" ".join(self._words())))
        return Program(self.run, file, digest, None, self.calls, 2 * self.seconds + 60, slots)

    def _refuse_unprotectable(self) -> None:
        """Raise UsageError for what `protect` cannot hold: paths elsewhere, and what the command or whet writes."""
        for name in self.protect:
            path = PurePosixPath(name)
            if self.check is None or self.workspace is None:
                raise UsageError(
                    "protect: it takes a `workspace` and a `check`, before which its files are restored."
                )
            if path.is_absolute() or ".." in path.parts or not path.parts:
                raise UsageError(f"protect: {name!r} must be a path below the workspace.")
            for place in (*self.documents.values(), *([self.answer] if self.answer else [])):
                if PurePosixPath(place).is_relative_to(path):
                    raise UsageError(f"protect: {name!r} holds {place!r}, which is written for each row.")

    def _restore(self, place: Path) -> None:
        """Make the protected files of a copy what they are in the workspace. Raises ProgramFailed."""
        for name in self.protect:
            own = self.folder / (self.workspace or ".") / name
            try:
                target = _keep_inside(place, name)
                if target.is_dir() and not target.is_symlink():
                    shutil.rmtree(target)
                else:
                    target.unlink(missing_ok=True)
                if own.is_dir():
                    shutil.copytree(own, target, symlinks=True)
                elif own.exists():
                    shutil.copy2(own, target, follow_symlinks=False)
            except OSError as error:
                raise ProgramFailed(f"program: {name} could not be restored for the check: {error}") from None

    def _words(self) -> tuple[str, ...]:
        return (*self.command, *(self.check or ()))

    def _files(self) -> list[list[str]]:
        """The files of the workspace and those of the task folder that the command names, with their hashes."""
        root = None if self.workspace is None else self.folder / self.workspace
        files = [] if root is None else sorted(path for path in root.rglob("*") if path.is_file())
        named = [Path(path) for word in self._words() if (path := self._place_of(word)) is not None]
        return [
            [str(path.relative_to(self.folder)), sha256(path.read_bytes()).hexdigest()]
            for path in dict.fromkeys([*files, *named])
        ]

    async def run(self, lm: ProgramModelHere, prompts: Mapping[str, str], example: Mapping[str, Any]) -> str:
        """One row: a copy of the workspace, the command in it, its check. Raises ProgramFailed."""
        with tempfile.TemporaryDirectory(prefix="whet-harness-", ignore_cleanup_errors=True) as temporary:
            place = Path(temporary) / "workspace"
            if self.workspace is None:
                place.mkdir()
            else:
                shutil.copytree(self.folder / self.workspace, place, symlinks=True)
            for name, path in self.documents.items():
                target = _keep_inside(place, path)
                target.write_text(write_prompt_as(lm.document(name), "document"), "utf-8", newline="")
            async with _endpoint(lm) as variables:
                printed = await self._start(lm, place, example, variables)
            answer = printed if self.answer is None else _read_answer(place / self.answer, self.answer)
            if self.check is not None:
                self._restore(place)
                await self._check(lm, place, example)
            return answer

    async def _start(
        self, lm: ProgramModelHere, place: Path, example: Mapping[str, Any], variables: Mapping[str, str]
    ) -> str:
        code, printed, errors = await _run(
            self._fill(self.command, example), place, example, variables, self.seconds, lm
        )
        if code != 0:
            output = (errors or printed).replace(str(place), ".").strip()[-SHOWN:]
            raise ProgramFailed(
                f"program: {self.command[0]} ended with exit code {code}: {output or 'no output'}"
            )
        return printed.strip()

    async def _check(self, lm: ProgramModelHere, place: Path, example: Mapping[str, Any]) -> None:
        command = self._fill(self.check or (), example)

        async def check() -> dict[str, object]:
            code, printed, errors = await _run(command, place, example, {}, self.seconds, None)
            output = (printed + errors).replace(str(place), ".").strip()
            return {"exit_code": code, "output": output[-SHOWN:]}

        await lm.tool(check)

    def _fill(self, command: Sequence[str], example: Mapping[str, Any]) -> list[str]:
        """The words of a command with their slots filled by the row; a word that is a file of the task folder is its path.

        A word that is only a slot is never read as a path, whatever the row fills in.
        """
        row = {canonical_name(name): value for name, value in example.items()}

        def value(name: str) -> str:
            own = row[name]
            if own is None:
                return ""
            return own if isinstance(own, str) else json.dumps(own, ensure_ascii=False)

        words = list[str]()
        for word in command:
            filled = SLOT.sub(lambda match: value(canonical_name(match[1])), word)
            alone = SLOT.fullmatch(word) is not None
            words.append(filled if alone else self._place_of(filled) or filled)
        if words[0] in ("python", "python3"):
            words[0] = sys.executable
        return words

    def _place_of(self, word: str) -> str | None:
        """The path of the file of the task folder that a word names; None where it names none, however long it is."""
        path = os.path.join(self.folder, word)
        return path if os.path.isfile(path) and not os.path.isabs(word) else None


def _keep_inside(place: Path, name: str) -> Path:
    """The path of a document in the copy of a workspace, with its folder made. Links out of the copy, which would lead to files
    of the user, are removed from the copy."""
    root = place.resolve()
    for path in (*reversed((place / name).parents), place / name):
        if path.is_symlink() and path.is_relative_to(place) and not path.resolve().is_relative_to(root):
            path.unlink()
    (place / name).parent.mkdir(parents=True, exist_ok=True)
    return place / name


async def _run(
    command: Sequence[str], place: Path, row: Mapping[str, Any], variables: Mapping[str, str], seconds: float,
    lm: ProgramModelHere | None,
) -> tuple[int, str, str]:  # fmt: skip
    """Exit code, output and errors of a command that reads the row as JSON from stdin. Raises ProgramFailed when it does not
    start, takes more than `seconds` beside its calls of models, or prints too much."""
    kept = {key: value for key, value in os.environ.items() if not variables or key not in _HIDDEN}
    try:
        process = await asyncio.create_subprocess_exec(
            *command, cwd=place, env={**kept, **variables}, start_new_session=True,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
    except (OSError, ValueError) as error:  # a value with a zero byte cannot be a word of a command
        reason = getattr(error, "strerror", None) or error
        raise ProgramFailed(f"program: {command[0]} did not start: {reason}") from None
    loop = asyncio.get_running_loop()
    began = loop.time() if lm is None else lm.own_seconds()
    printed, errors = bytearray(), bytearray()
    row_text = json.dumps(dict(row), ensure_ascii=False).encode()
    work = asyncio.ensure_future(_communicate(process, row_text, printed, errors))
    try:
        while not work.done() and process.returncode is None:
            left = seconds + began - (loop.time() if lm is None else lm.own_seconds())
            if left <= 0:
                raise ProgramFailed(
                    f"program: {command[0]} took more than {seconds:g} s (program: {{seconds: N}} allows more)"
                )
            await asyncio.wait({work}, timeout=min(left, _LOOKS))
        if not work.done():  # what the command has started, and left behind, may hold its pipes
            _kill(process)
            await asyncio.wait({work}, timeout=_LEAVING)
        if work.done():
            await work
        code = process.returncode
        assert code is not None
        return code, printed.decode("utf-8", "replace"), errors.decode("utf-8", "replace")
    finally:
        work.cancel()
        _kill(process)
        await asyncio.gather(work, return_exceptions=True)
        if process.returncode is None:
            with contextlib.suppress(
                asyncio.TimeoutError
            ):  # a process that left the group may hold a pipe open
                await asyncio.wait_for(_drain(process), _LEAVING)
        # A pipe that is still open would outlive the loop. asyncio has no public name for closing it.
        process._transport.close()  # type: ignore[attr-defined]


def _kill(process: asyncio.subprocess.Process) -> None:
    """Kill a command and what it has started, as far as it stayed in its group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


async def _drain(process: asyncio.subprocess.Process) -> None:
    """Read what a killed process printed, without which its end is never noticed."""
    for stream in (process.stdout, process.stderr):
        while stream is not None and await stream.read(65536):
            pass
    await process.wait()


async def _communicate(
    process: asyncio.subprocess.Process, row: bytes, printed: bytearray, errors: bytearray
) -> None:
    """Write the row and read what the process prints, at the same time, until it ends."""
    assert process.stdin and process.stdout and process.stderr
    await asyncio.gather(
        _write(process.stdin, row), _read(process.stdout, printed), _read(process.stderr, errors)
    )
    await process.wait()


async def _write(stream: asyncio.StreamWriter, row: bytes) -> None:
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        stream.write(row)
        await stream.drain()
    stream.close()


async def _read(stream: asyncio.StreamReader, read: bytearray) -> None:
    while piece := await stream.read(65536):
        read += piece
        if len(read) > MOST_OUTPUT:
            raise ProgramFailed(f"program: the command printed more than {MOST_OUTPUT:,} bytes")


def _read_answer(path: Path, name: str) -> str:
    if not path.is_file():
        raise ProgramFailed(f"program: the command wrote no {name}")
    if path.stat().st_size > MOST_OUTPUT:
        raise ProgramFailed(f"program: {name} has more than {MOST_OUTPUT:,} bytes")
    return path.read_text("utf-8", errors="replace").strip()


@contextlib.asynccontextmanager
async def _endpoint(lm: ProgramModelHere) -> AsyncIterator[dict[str, str]]:
    """An OpenAI-compatible endpoint for one rollout on the loopback interface, as the variables that name it."""
    from aiohttp import web

    token = secrets.token_urlsafe(24)

    async def chat(request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization") != f"Bearer {token}":
            return _failure(
                401, "This endpoint belongs to another rollout. Use OPENAI_BASE_URL and OPENAI_API_KEY."
            )
        try:
            call = AgentRequest.of(await request.json())
        except (UsageError, ValueError) as error:
            return _failure(400, str(error))
        try:
            text = await lm.ask_in_form(call.messages, call.schema)
        except ProgramFailed as error:
            return _failure(502, str(error))
        except (Exception, asyncio.CancelledError):  # the run itself has ended, and says why
            return _failure(503, "The run has ended.")
        return await _answer(request, call, text, lm.tokens())

    async def models(request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "whet", "object": "model"}]})

    app = web.Application(client_max_size=64 * 2**20)
    app.router.add_post("/v1/chat/completions", chat)
    app.router.add_get("/v1/models", models)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        url = f"http://127.0.0.1:{port}/v1"
        yield {
            "OPENAI_BASE_URL": url,
            "OPENAI_API_BASE": url,
            "OPENAI_API_KEY": token,
            "OPENAI_MODEL": "whet",
        }
    finally:
        await runner.cleanup()


@dataclass(frozen=True)
class AgentRequest:
    """What a command asks a model: messages of texts, whether it wants a stream, and the tools that it offers. `legacy`: it calls
    them `functions`. `schema`: that of the JSON which it wants; None: it wants text."""

    messages: tuple[Message, ...]
    stream: bool
    tools: OfferedTools
    legacy: bool = False
    schema: Mapping[str, JSON] | None = None

    @classmethod
    def of(cls, body: Any) -> AgentRequest:
        """The request of a body. Raises UsageError for what whet cannot pass on."""
        if not isinstance(body, dict):
            raise UsageError("The body must be a JSON object.")
        if body.get("audio"):
            raise UsageError("`audio` cannot be passed on: whet records texts.")
        if body.get("n", 1) not in (1, None):
            raise UsageError("`n` must be 1. Ask once for each answer.")
        tools = OfferedTools.of(body)
        messages = read_messages(write_messages_as_text(body.get("messages"), tools))
        schema = _schema_of(body.get("response_format"))
        return cls(tuple(messages), bool(body.get("stream")), tools, bool(body.get("functions")), schema)


def _schema_of(form: Any) -> Mapping[str, JSON] | None:
    """The schema of the JSON that a request wants. Raises UsageError for a form that nobody knows."""
    kind = form.get("type") if isinstance(form, dict) else form
    if kind in (None, "text"):
        return None
    if kind == "json_object":
        return {"type": "object"}
    inner = form.get("json_schema") if kind == "json_schema" else None
    if not isinstance(inner, dict) or not isinstance(inner.get("schema"), dict):
        raise UsageError("`response_format` must be text, json_object, or json_schema with a schema.")
    schema: Mapping[str, JSON] = inner["schema"]
    return schema


async def _answer(
    request: web.Request, call: AgentRequest, text: str, tokens: tuple[int, int]
) -> web.StreamResponse:
    from aiohttp import web

    usage = {"prompt_tokens": tokens[0], "completion_tokens": tokens[1], "total_tokens": sum(tokens)}
    base = {"id": "whet", "created": 0, "model": "whet"}
    message, finish = message_of(text, call.tools, call.legacy)
    if not call.stream:
        choice = {"index": 0, "message": message, "finish_reason": finish}
        return web.json_response({**base, "object": "chat.completion", "choices": [choice], "usage": usage})
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    if "tool_calls" in message:
        message["tool_calls"] = [{"index": n, **one} for n, one in enumerate(message["tool_calls"])]
    for delta, end in ((message, None), ({}, finish)):
        choice = {"index": 0, "delta": delta, "finish_reason": end}
        chunk = {
            **base,
            "object": "chat.completion.chunk",
            "choices": [choice],
            "usage": usage if end else None,
        }
        await response.write(f"data: {json.dumps(chunk, ensure_ascii=False)}\n\n".encode())
    await response.write(b"data: [DONE]\n\n")
    return response


def _failure(status: int, message: str) -> web.Response:
    from aiohttp import web

    return web.json_response({"error": {"message": message, "type": "whet"}}, status=status)


def check_documents(prompt: Prompt, documents: Mapping[str, str]) -> None:
    """Raise UsageError unless every prompt has a place in the workspace, and every place a prompt."""
    for name in sorted(prompt.parts.keys() - documents.keys()):
        raise UsageError(
            f"the prompt {name} has no place in the workspace. Write documents: {{{name}: PATH}}."
        )
    for name in sorted(documents.keys() - prompt.parts.keys()):
        raise UsageError(f'documents: there is no prompt "{name}".{did_you_mean(name, prompt.parts)}')
