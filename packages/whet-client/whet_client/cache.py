"""The cache of prompts: what was fetched is served at once, and fetched again behind the app's back when it is old.

Only the first call for a label may wait for the network, and no longer than the timeout. After that the app never waits:
a stale prompt is served while the new one is on its way (stale-while-revalidate), and a server that is down changes
nothing.
"""

from __future__ import annotations

import json
import logging
import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, urlencode

from whet_client.errors import UsageError, WhetError
from whet_client.http import Send, Unavailable, raise_if_unavailable, reason_of
from whet_client.live_prompts import (
    AssignableExperiment,
    Bundled,
    Content,
    ServedPrompt,
    from_folder,
    load_bundled,
    read_content,
    read_experiment,
)

log = logging.getLogger("whet.client")
Key = tuple[str, str]
Clock = Callable[[], float]

_MOST_VERSIONS = 1000
_NOT_READ = "not read yet"
"""The text of a new entry, which the first answer of the server replaces."""
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0


@dataclass(slots=True)
class _Entry:
    """The state of one label. `due` is the time (of the clock) at which it is worth asking again, `tags` are those of the
    version and of the experiment that the server sent last."""

    value: ServedPrompt
    due: float
    tags: dict[str, str] = field(default_factory=dict)
    failures: int = 0
    asking: bool = False


class NotFound(UsageError):
    """The server answers that it has no such thing."""


class Prompts:
    """Prompts by name and label. Threads may share it.

    `fallbacks` are bundled prompts: a mapping from names, or a folder (NAME.md, or what `whet prompts export` wrote).
    `fresh` is the age in seconds at which a prompt is fetched again; `clock` is for tests.
    """

    def __init__(
        self,
        send: Send,
        url: str,
        fallbacks: Mapping[str, Bundled] | Path,
        fresh: float,
        clock: Clock = time.monotonic,
    ) -> None:
        self._send, self._url = send, url
        self._fallbacks = fallbacks
        self._fresh, self._clock = fresh, clock
        self._entries: dict[Key, _Entry] = {}
        self._versions: OrderedDict[tuple[str, int], Content] = OrderedDict()
        self._down_until = 0.0
        self.restart_after_fork()

    def restart_after_fork(self) -> None:
        """Start anew in a child process: what was fetched is kept, the thread is the parent's."""
        self._lock = threading.Lock()
        self._first: dict[Key, threading.Lock] = {}
        self._old: queue.SimpleQueue[Key | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        for entry in self._entries.values():
            entry.asking = False

    def get(self, name: str, label: str, fallback: Bundled | None) -> ServedPrompt:
        """The version of a label, from memory after the first call.

        Raises UsageError when the server does not know the prompt, and Unavailable when it cannot be reached and no
        copy is bundled.
        """
        entry = self._entries.get((name, label))
        if entry is None:
            entry = self._get_first((name, label), fallback)
        elif not entry.asking and self._clock() >= entry.due:
            self._ask_again((name, label), entry)
        return entry.value

    def close(self) -> None:
        """Stop fetching; what is known is still served."""
        if self._thread is not None:
            self._old.put(None)
            self._thread.join(1.0)

    def _get_first(self, key: Key, fallback: Bundled | None) -> _Entry:
        """Fetch a label for the first time: one thread asks, the others wait for it."""
        with self._lock:
            mine = self._first.setdefault(key, threading.Lock())
        with mine:
            entry = self._entries.get(key)
            if entry is not None:
                return entry
            try:
                if self._clock() < self._down_until:
                    raise Unavailable(f"The server {self._url} could not be reached a moment ago.")
                entry = _Entry(ServedPrompt(load_bundled(key[0], _NOT_READ), key[1], "server"), 0.0)
                self._fetch(key, entry)
            except WhetError as error:
                entry = self._use_bundled(key, fallback, error)
            self._entries[key] = entry
            return entry

    def _use_bundled(self, key: Key, fallback: Bundled | None, error: WhetError) -> _Entry:
        """The bundled copy in place of what could not be fetched."""
        name, label = key
        if isinstance(error, Unavailable):
            self._down_until = self._clock() + _FIRST_PAUSE
        if fallback is not None:
            content: Content | None = load_bundled(name, fallback)
        elif isinstance(self._fallbacks, Path):
            content = from_folder(self._fallbacks, name, label)
        else:
            packaged = self._fallbacks.get(name)
            content = None if packaged is None else load_bundled(name, packaged)
        if content is None:
            raise type(error)(f"{error} No copy of {name} is bundled with the app to use instead.") from error
        log.warning("%s Using the bundled copy of %s.", error, name)
        entry = _Entry(ServedPrompt(content, label, "fallback"), 0.0)
        self._wait(entry, error)
        return entry

    def _wait(self, entry: _Entry, error: Exception) -> None:
        """Set the time to ask again: after `fresh` seconds where the server knows no such label, else later each time."""
        if isinstance(error, NotFound):
            entry.failures, pause = 0, self._fresh
        else:
            pause = min(_FIRST_PAUSE * 2.0 ** min(entry.failures, 10), _LONGEST_PAUSE)
            entry.failures += 1
        entry.due = self._clock() + pause

    def _ask_again(self, key: Key, entry: _Entry) -> None:
        entry.asking = True
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="whet-prompts", daemon=True)
                self._thread.start()
        self._old.put(key)

    def _run(self) -> None:
        while (key := self._old.get()) is not None:
            entry = self._entries[key]
            try:
                self._fetch(key, entry)
            except Exception as error:  # whatever it was, the app goes on with what it has
                self._wait(entry, error)
                log.warning("%s is not refreshed: %s The copy from before stays in use.", key[0], error)
            entry.asking = False

    def _fetch(self, key: Key, entry: _Entry) -> None:
        """Bring an entry up to date. Raises UsageError or Unavailable and leaves it as it was."""
        name, label = key
        content, experiment = entry.value.content, entry.value.experiment
        answer = self._get(_address(name, {"label": label}), entry.tags.get("version"))
        if answer is not None:
            content = self._keep(read_content(answer[0]))
            entry.tags["version"] = answer[1]
        try:
            answer = self._get(f"/v1/assignments?{urlencode({'prompt': name})}", entry.tags.get("experiment"))
            if answer is not None:
                experiment = self._experiment(answer[0], content, label)
                entry.tags["experiment"] = answer[1]
        except WhetError as error:
            log.warning("The experiments on %s are as they were: %s", name, error)
        entry.value = ServedPrompt(content, label, "server", experiment)
        entry.failures = 0
        entry.due = self._clock() + self._fresh

    def _experiment(
        self, answer: Mapping[str, object], content: Content, label: str
    ) -> AssignableExperiment | None:
        """The experiment on a label with the versions of all its arms. Raises UsageError or Unavailable."""
        rows = answer.get("experiments")
        mine = [row for row in rows if row.get("label") == label] if isinstance(rows, list) else []
        if not mine:
            return None
        contents = {content.version: content}
        experiment = read_experiment(mine[0], contents)
        for version, weight in experiment.arms:
            if weight > 0 and version not in contents:
                contents[version] = self._version(content.name, version)
        return experiment

    def _version(self, name: str, version: int) -> Content:
        known = self._versions.get((name, version))
        if known is not None:
            return known
        answer = self._get(_address(name, {"version": str(version)}), None)
        if answer is None:
            raise Unavailable(f"The server {self._url} did not send version {version} of {name}.")
        return self._keep(read_content(answer[0]))

    def _keep(self, content: Content) -> Content:
        """Remember a version, which never changes."""
        self._versions[content.name, content.version] = content
        if len(self._versions) > _MOST_VERSIONS:
            self._versions.popitem(last=False)
        return content

    def _get(self, path: str, tag: str | None) -> tuple[Mapping[str, object], str] | None:
        """A JSON object with its tag; None when it is the one that is known. Raises UsageError or Unavailable."""
        headers = {"If-None-Match": tag} if tag else {}
        answer = raise_if_unavailable(self._send("GET", path, headers, None), self._url)
        if answer.status == 304 and headers:
            return None
        if answer.status != 200:
            kind = NotFound if answer.status == 404 else UsageError
            raise kind(f"The server {self._url} does not give {path}: {reason_of(answer)}.")
        try:
            value = json.loads(answer.body)
        except ValueError:
            value = None
        if not isinstance(value, Mapping):
            raise UsageError(
                f"The server {self._url} answered {path} with something else than was asked for."
            )
        return value, answer.headers.get("etag", "")


def _address(name: str, query: Mapping[str, str]) -> str:
    return f"/v1/prompts/{quote(name, safe='/')}?{urlencode(query)}"
