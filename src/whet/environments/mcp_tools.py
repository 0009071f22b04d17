"""Tools of a server of the Model Context Protocol, which the task's folder or an address names.

One connection serves a whole process: it lives in a thread with an event loop of its own, and ends with the process.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import json
import os
import re
import tempfile
import threading
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from whet.environments.tools import Tool
from whet.errors import UsageError

STARTING = 60.0
"""Seconds that a server may take until it has named its tools."""
SHOWN = 500
"""Characters of what a server wrote to stderr that an error shows: the end of it."""
INSTALL = "pip install 'whet[mcp]'"
_REGION = re.compile(r"[\w.-]+")
"""The pattern of a region's name."""
_connections: dict[tuple[str, ...], McpConnection] = {}
_lock = threading.Lock()


def load_mcp_tools(words: tuple[str, ...], folder: Path, seconds: float) -> tuple[Tool, ...]:
    """The tools of the server that these words start (a command in `folder`), or that answers at the address which is the only
    word. `seconds` bounds a call.

    Raises UsageError where the package is missing, or the server does not answer or has no tools.
    """
    try:
        import mcp.client.stdio  # noqa: F401 (only whether it is there)
    except ImportError:
        raise UsageError(
            f"tools of an MCP server need the package mcp. Install it with: {INSTALL}."
        ) from None
    files = [folder / word for word in words if (folder / word).is_file()]
    key = (*words, str(folder), *(str(path.stat().st_mtime_ns) for path in files))
    with _lock:
        connection = _connections.get(key)
        if connection is None or connection.ended:
            connection = _connections[key] = McpConnection(words, folder)
    try:
        listed = connection.run(lambda session: session.list_tools(), STARTING).tools
    except Exception as error:
        reason = connection.reason(error)
        connection.close()
        raise UsageError(f"the MCP server {words[0]} named no tools: {reason}") from None
    if not listed:
        raise UsageError(f"the MCP server {words[0]} has no tools.")
    return tuple(_tool(connection, tool, seconds) for tool in listed)


def _tool(connection: McpConnection, tool: Any, seconds: float) -> Tool:
    schema = tool.input_schema or {}
    properties: Mapping[str, Any] = schema.get("properties", {})
    described = {
        name: " ".join(text.split())
        for name, value in properties.items()
        if isinstance(value, Mapping) and isinstance(text := value.get("description"), str) and text.strip()
        if _REGION.fullmatch(name)
    }
    bare = {
        name: {k: v for k, v in value.items() if k != "description"} if name in described else value
        for name, value in properties.items()
    }

    def call(**arguments: Any) -> str:
        result = connection.run(lambda session: session.call_tool(tool.name, arguments), seconds)
        texts = [part.text if part.type == "text" else f"[{part.type}]" for part in result.content]
        if result.is_error:
            raise RuntimeError("\n".join(texts) or "the tool failed")
        return "\n".join(texts)

    about = " ".join((tool.description or tool.title or tool.name).split())
    heads = [_head(tool.name, each, schema.get("required", ())) for each in (properties, bare)]
    return Tool(tool.name, heads[0], about, call, heads[1], described)


def _head(name: str, properties: Mapping[str, Any], required: Collection[str]) -> str:
    """A tool with its parameters, each with its schema."""
    parameters = [
        f"{key}: {json.dumps(_short(value), ensure_ascii=False)}{'' if key in required else ' = ...'}"
        for key, value in properties.items()
    ]
    return f"{name}({', '.join(parameters)})"


def _short(schema: Any) -> Any:
    """The schema of a parameter without titles; its type alone where it says no more."""
    if not isinstance(schema, Mapping):
        return schema
    kept = {key: value for key, value in schema.items() if key != "title"}
    return kept["type"] if kept.keys() == {"type"} else kept


class McpConnection:
    """A session with a server, in a thread of its own."""

    def __init__(self, words: tuple[str, ...], folder: Path) -> None:
        self.ended = False
        self._words, self._folder = words, folder
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115 (it lives as long)
        self._loop = asyncio.new_event_loop()
        self._over = asyncio.Event()
        self._session: concurrent.futures.Future[Any] = concurrent.futures.Future()
        self._thread = threading.Thread(target=self._serve, name="whet-mcp", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def run(self, work: Callable[[Any], Any], seconds: float) -> Any:
        """The return value of a coroutine of the session. Raises the coroutine's exceptions, and TimeoutError."""
        session = self._session.result(STARTING)
        return asyncio.run_coroutine_threadsafe(work(session), self._loop).result(seconds)

    def reason(self, error: BaseException) -> str:
        """The failure, with the end of the server's stderr."""
        self._errors.seek(0)
        written = self._errors.read().strip()[-SHOWN:]
        text = str(error) or type(error).__name__
        return f"{text}. It wrote: {written}" if written else f"{text}."

    def close(self) -> None:
        """End the session and its server."""
        if not self.ended:
            self._loop.call_soon_threadsafe(self._over.set)
            self._thread.join(5)
        self._errors.close()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._hold())
        except BaseException as error:  # its thread ends with it, and whoever waits is told
            if not self._session.done():
                self._session.set_exception(_first(error))
        finally:
            self.ended = True

    async def _hold(self) -> None:
        from mcp import ClientSession, StdioServerParameters
        from mcp.client.stdio import stdio_client
        from mcp.client.streamable_http import streamable_http_client

        if self._words[0].startswith(("http://", "https://")):
            opened: Any = streamable_http_client(self._words[0])
        else:
            server = StdioServerParameters(
                command=self._words[0],
                args=list(self._words[1:]),
                cwd=str(self._folder),
                env=dict(os.environ),
            )
            opened = stdio_client(server, errlog=self._errors)
        async with opened as streams, ClientSession(streams[0], streams[1]) as session:
            await session.initialize()
            self._session.set_result(session)
            await self._over.wait()


def _first(error: BaseException) -> BaseException:
    """The first plain exception inside of groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
