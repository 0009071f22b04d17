"""A command as a program: any agent that reads its prompts from files, such as a SKILL.md, an AGENTS.md or a system prompt.

Each rollout gets a fresh copy of the workspace with the prompts written into it. The command is started there, and what it asks
the endpoint that whet serves for the rollout (`agent_endpoint.py`) goes through the run. An optional check, such as a test suite,
runs afterwards.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any

from whet._util.descendants import Descendants
from whet.environments.agent_endpoint import HIDDEN, serve_agent
from whet.environments.program import Program, ProgramModelHere
from whet.environments.program_model import ProgramFailed
from whet.errors import UsageError, did_you_mean
from whet.prompt import Prompt, write_prompt_as
from whet.types import content_hash
from whet_client.prompt.slots import SLOT, canonical_name, slot_names

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


@dataclass(frozen=True)
class Harness:
    """The command that runs for a row, as task.yaml describes it."""

    command: tuple[str, ...]
    documents: Mapping[str, str]
    """The file of each prompt, by the prompt's name, below the workspace."""
    folder: Path
    workspace: str | None = None
    """A folder that is copied for every rollout; None: an empty one."""
    answer: str | None = None
    """The file with the answer; None: the answer is what the command prints."""
    check: tuple[str, ...] | None = None
    """The command whose exit code says whether the row was solved."""
    protect: tuple[str, ...] = ()
    """Files and folders of the workspace that are restored before the check runs."""
    calls: int = 8
    seconds: float = 60.0
    """The longest time of the command, and of the check, without waiting for models."""
    _warnings: set[str] = field(default_factory=set, init=False, compare=False, repr=False)
    """Options of requests that the task decides, of which a warning was logged."""

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
        values = {key: value for key, value in asdict(self).items() if key not in ("folder", "_warnings")}
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
            async with serve_agent(lm, self._warnings) as variables:
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
    start, takes more than `seconds` beside its calls of models, prints too much, or is not waited for any more."""
    kept = {key: value for key, value in os.environ.items() if not variables or key not in HIDDEN}
    descendants = Descendants()
    starting = asyncio.ensure_future(asyncio.create_subprocess_exec(
        *command, cwd=place, env={**kept, **variables, **descendants.variables}, start_new_session=True,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    ))  # fmt: skip
    try:
        process = await asyncio.shield(starting)
    except asyncio.CancelledError:  # nobody waits for it any more: it ends as soon as it is there
        starting.add_done_callback(lambda _: _abandon(starting, descendants))
        raise
    except (OSError, ValueError) as error:  # a value with a zero byte cannot be a word of a command
        descendants.end()
        reason = getattr(error, "strerror", None) or error
        raise ProgramFailed(f"program: {command[0]} did not start: {reason}") from None
    descendants.join(process.pid)
    loop = asyncio.get_running_loop()
    began = loop.time() if lm is None else lm.own_seconds()
    printed, errors = bytearray(), bytearray()
    row_text = json.dumps(dict(row), ensure_ascii=False).encode()
    work = asyncio.ensure_future(_communicate(process, row_text, printed, errors))
    try:
        while not work.done() and process.returncode is None:
            if lm is not None and lm.is_over():
                raise ProgramFailed("program: the run was interrupted")
            left = seconds + began - (loop.time() if lm is None else lm.own_seconds())
            if left <= 0:
                raise ProgramFailed(
                    f"program: {command[0]} took more than {seconds:g} s (program: {{seconds: N}} allows more)"
                )
            await asyncio.wait({work}, timeout=min(left, _LOOKS))
        if not work.done():  # what the command has started, and left behind, may hold its pipes
            descendants.end()
            await asyncio.wait({work}, timeout=_LEAVING)
        if work.done():
            await work
        code = process.returncode
        assert code is not None
        return code, printed.decode("utf-8", "replace"), errors.decode("utf-8", "replace")
    finally:
        work.cancel()
        descendants.end()
        try:
            await asyncio.gather(work, return_exceptions=True)
            if process.returncode is None:
                # a process that left the group may hold a pipe open
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(_drain(process), _LEAVING)
        finally:
            _let_go(process)


def _abandon(started: asyncio.Future[asyncio.subprocess.Process], descendants: Descendants) -> None:
    descendants.end()
    if not started.cancelled() and started.exception() is None:
        _let_go(started.result())


def _let_go(process: asyncio.subprocess.Process) -> None:
    """Close the pipes of a process that is over or killed, also where the loop ends before it notices that: an open pipe would
    outlive the loop, and a process without an exit code is taken for one that runs on. asyncio has no public name for it."""
    transport = process._transport  # type: ignore[attr-defined]
    transport.close()
    killed = transport.get_extra_info("subprocess")
    if killed.returncode is None:
        killed.returncode = -9


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


def check_documents(prompt: Prompt, documents: Mapping[str, str]) -> None:
    """Raise UsageError unless every prompt has a place in the workspace, and every place a prompt."""
    for name in sorted(prompt.parts.keys() - documents.keys()):
        raise UsageError(
            f"the prompt {name} has no place in the workspace. Write documents: {{{name}: PATH}}."
        )
    for name in sorted(documents.keys() - prompt.parts.keys()):
        raise UsageError(f'documents: there is no prompt "{name}".{did_you_mean(name, prompt.parts)}')
