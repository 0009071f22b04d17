"""Prompts as files that people can read, compare and keep under version control, and back; and prompts that come from a
finished run, or from a prompt file with the ledger of what it learned.

The folder NAME of a prompt holds, for each version N, its text as `@N.md` (for several messages `@N.1-system.md`,
`@N.2-user.md`, ...) and everything else as `@N.json`; `@labels.json` says where its labels stood.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
from sqlalchemy import Connection

import whet_live.registry.audit as audit
import whet_live.registry.registry_store as registry_store
from whet.engine.journal import read_events
from whet.engine.run_folder import read_header
from whet.errors import StorageError, UsageError
from whet.feedback.prompt_file import events_of, ledger_path, read_steps, replace_file, standing
from whet.prompt import Prompt
from whet.prompt.events import Event, from_json
from whet.prompt.instructions import fold_events
from whet.prompt.ledger import render_instructions
from whet.task import load_prompt
from whet.types import Message, content_hash
from whet_client.prompt.chat import options_kept
from whet_client.prompt.document import AUTO
from whet_live.database import iso, microseconds
from whet_live.registry.audit import import_hash
from whet_live.registry.ledgers import check_ledgers
from whet_live.registry.names import (
    NEWEST,
    ROLE,
    Address,
    check_actor,
    check_label,
    check_name,
    check_role,
    check_text,
)
from whet_live.registry.provenance import AUTHOR, IMPORTER, merge_names, read_provenance
from whet_live.registry.values import Ledgers, Version, ledgers_json
from whet_live.registry.versions import check_json, check_prompt

LABELS = "@labels.json"
PROTECTED = "@protected.json"
"""The labels of one prompt that move by approval only, or in the folder itself those of every prompt."""
_SIDE = re.compile(r"@([1-9][0-9]{0,8})\.json")
_KEPT = ("task", "method", "seed", "status", "models", "simulated")


@dataclass(frozen=True, slots=True)
class FileImport:
    """The result of an import for one prompt: versions that were added, those that were there already, labels that were set,
    what the newest text changes for applications (`slot_warnings`), and the labels that are protected as in the files. The
    name `*` stands for every prompt."""

    name: str
    added: int
    known: int
    labels: Mapping[str, int]
    warnings: tuple[str, ...] = ()
    protected: tuple[str, ...] = ()

    def as_json(self) -> dict[str, object]:
        """The row as JSON values."""
        return asdict(self)


def write_prompt(
    folder: Path, versions: Sequence[Version], labels: Mapping[str, int], protected: Sequence[str] = ()
) -> None:
    """Write all versions of one prompt below `folder`, its labels and those that are protected; files of the same names are
    replaced.

    Raises StorageError, and UsageError for a role that cannot be part of a file's name.
    """
    home = folder / versions[0].name
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"{home}: the folder cannot be made: {error}.") from error
    for version in versions:
        for name, message in zip(_names(version), version.prompt.portable.messages, strict=True):
            replace_file(home / name, message.content.encode("utf-8"))
        replace_file(home / f"@{version.version}.json", _json(_side(version)))
    standing = {label: number for label, number in sorted(labels.items()) if label != NEWEST}
    replace_file(home / LABELS, _json(standing))
    write_protected(home, protected)


def write_protected(home: Path, labels: Sequence[str]) -> None:
    """Write the protected labels of a prompt's folder, or of the folder of all prompts; without any, no file is there."""
    write_beside(home / PROTECTED, {"labels": sorted(labels)} if labels else None)


def write_beside(path: Path, value: Mapping[str, object] | None) -> None:
    """Write a JSON file of an export, or take away the one of an earlier export where there is nothing to say. Raises
    StorageError."""
    if value is not None:
        replace_file(path, _json(value))
        return
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise StorageError(f"{path}: the file of an earlier export cannot be removed: {error}.") from error


def _names(version: Version) -> list[str]:
    messages = version.prompt.messages
    if len(messages) == 1 and messages[0].role == AUTO:
        return [f"@{version.version}.md"]
    roles = [check_role(message.role, alone=False) for message in messages]
    return [f"@{version.version}.{n}-{role}.md" for n, role in enumerate(roles, 1)]


def _side(version: Version) -> dict[str, object]:
    files = [
        {"role": message.role, "file": name, **({} if message.name is None else {"name": message.name})}
        for name, message in zip(_names(version), version.prompt.messages, strict=True)
    ]
    return {
        "name": version.name,
        "version": version.version,
        "prompt_id": version.prompt.id,
        "messages": files,
        "author": version.author,
        "created": iso(version.created),
        "message": version.message,
        "parent": version.parent,
        "config": dict(version.config),
        "run": version.run,
        "evidence": version.evidence,
        "proposal": version.proposal,
        "provenance": version.provenance,
        "ledger": ledgers_json(version.ledgers),
    }


def _json(value: object) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_INDENT_2) + b"\n"


@dataclass(frozen=True)
class PromptFiles:
    """A prompt as the files in `home` say it is: versions by number, labels, and those that are protected."""

    name: str
    versions: Sequence[tuple[Prompt, Ledgers, Mapping[str, Any]]]
    labels: Mapping[str, int]
    protected: Sequence[str]
    home: Path


def read_prompt_files(folder: Path) -> list[PromptFiles]:
    """Every prompt below a folder, checked as a whole. Raises UsageError with the file for what cannot be used."""
    homes = sorted({path.parent for path in folder.rglob("@*.json") if _SIDE.fullmatch(path.name)})
    if not homes:
        raise UsageError(f"{folder}: there is no exported prompt in it (a folder with @1.md and @1.json).")
    return [_read_prompt(folder, home) for home in homes]


def _read_prompt(folder: Path, home: Path) -> PromptFiles:
    name = check_name(home.relative_to(folder).as_posix())
    numbers = sorted(int(m.group(1)) for p in home.iterdir() if (m := _SIDE.fullmatch(p.name)))
    if numbers != list(range(1, len(numbers) + 1)):
        missing = next(n for n in range(1, len(numbers) + 1) if n not in numbers)
        raise UsageError(
            f"{home}: version {missing} is missing. Export the prompt again, or give all its files."
        )
    versions = [_read_version(home, name, number) for number in numbers]
    path = home / LABELS
    labels = load_beside(path)
    for label, number in labels.items():
        if check_label(label) and number not in numbers:
            raise UsageError(f"{path}: {label} stands on version {number}, which is not there.")
    return PromptFiles(name, versions, labels, read_protected(home), home)


def read_protected(home: Path) -> list[str]:
    """The labels that `write_protected` wrote. Raises UsageError."""
    path = home / PROTECTED
    labels = load_beside(path).get("labels", [])
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise UsageError(f'{path}: "labels" must be a list of labels. Export it again.')
    return [check_label(label) for label in labels]


def load_beside(path: Path) -> dict[str, Any]:
    """A JSON object of an export, empty where the file is not there. Raises UsageError."""
    return _load(path) if path.is_file() else {}


def _load(path: Path) -> dict[str, Any]:
    try:
        value = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError) as error:
        raise UsageError(f"{path}: this is no JSON file: {error}.") from error
    if not isinstance(value, dict):
        raise UsageError(f"{path}: this must be a JSON object.")
    return value


def _read_version(home: Path, name: str, number: int) -> tuple[Prompt, Ledgers, Mapping[str, Any]]:
    path = home / f"@{number}.json"
    side = _load(path)
    try:
        messages = tuple(_read_message(home, number, n, m) for n, m in enumerate(side["messages"], 1))
        prompt = Prompt.from_messages(messages, str(path))
        ledgers = {r: tuple(from_json(event) for event in events) for r, events in side["ledger"].items()}
        columns = {
            "config": check_json(side["config"], "config"),
            "parent": side["parent"],
            "author": check_actor(side["author"]),
            "message": check_text(side["message"], "message"),
            "created": microseconds(side["created"]),
            "run": check_json(side["run"], "run"),
            "evidence": check_json(side["evidence"], "evidence"),
            "proposal": side["proposal"],
            "provenance": merge_names({AUTHOR: [side["author"]]}, read_provenance(side.get("provenance"))),
        }
        _check_side(name, number, prompt, side)
        check_prompt(prompt)
        check_ledgers(prompt, ledgers)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise UsageError(f"{path}: this does not describe a version ({error!r}). Export it again.") from error
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error
    return prompt, ledgers, columns


def _check_side(name: str, number: int, prompt: Prompt, side: Mapping[str, object]) -> None:
    if (side.get("name"), side.get("version")) != (name, number):
        raise UsageError(
            f"it says it is {side.get('name')} version {side.get('version')}; the file was moved."
        )
    if side.get("prompt_id") != prompt.id:
        raise UsageError("the text is not the one that was exported. Add an edited text as a new version.")
    if side["parent"] is not None and not (isinstance(side["parent"], int) and 1 <= side["parent"] < number):
        raise UsageError(f"the parent of version {number} cannot be {side['parent']}.")


def _read_message(home: Path, number: int, place: int, entry: Mapping[str, object]) -> Message:
    role = str(entry["role"])
    expected = f"@{number}.md" if role == AUTO else f"@{number}.{place}-{role}.md"
    if not ROLE.fullmatch(role) or entry["file"] != expected:
        raise UsageError(f"message {place} has the role and file {role[:40]!r}, {str(entry['file'])[:80]!r}.")
    try:
        name = None if entry.get("name") is None else str(entry["name"])
        return Message(role, (home / expected).read_bytes().decode("utf-8"), name)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{expected} cannot be read: {error}.") from error


def add_prompt(connection: Connection, prompt_files: PromptFiles, actor: str) -> FileImport:
    """Add the versions that are missing, with their own authors and dates. Labels of a new prompt are not set here.

    Raises UsageError when a version that is there has another text or config.
    """
    last = registry_store.newest(connection, prompt_files.name) or 0
    for number, (prompt, _, columns) in enumerate(prompt_files.versions[:last], 1):
        known = registry_store.read_version(connection, Address(prompt_files.name, version=number))
        if (known.prompt, known.config) != (prompt, columns["config"]):
            raise UsageError(
                f"{prompt_files.name} has another version {number} here. Import it under another name, or add the texts as new "
                "versions."
            )
    for prompt, ledgers, columns in prompt_files.versions[last:]:
        shaped = merge_names(columns["provenance"], {IMPORTER: [actor]})
        columns = {**columns, "provenance": shaped}
        registry_store.write_version(connection, prompt_files.name, prompt, ledgers, columns)
    added = max(0, len(prompt_files.versions) - last)
    if added:
        new = prompt_files.versions[last:]
        digest = content_hash([[prompt.id, dict(columns)] for prompt, _, columns in new])
        texts = import_hash([(prompt, columns["config"]) for prompt, _, columns in new])
        details = {"added": added, "first": last + 1, "digest": digest, "texts": texts}
        audit.append_entry(
            connection, actor=actor, action="prompt.import", subject=prompt_files.name, details=details
        )
    return FileImport(prompt_files.name, added, min(last, len(prompt_files.versions)), {})


# From runs and prompt files


@dataclass(frozen=True)
class LineageSource:
    """A prompt that was made elsewhere. `run` says where, `evidence` what was measured, `based_on` the id of the prompt it
    was made from (or empty), `refused` why the gate did not promote it (or empty), `config` what stood beside its messages."""

    prompt: Prompt
    run: Mapping[str, Any]
    ledgers: Ledgers = field(default_factory=dict)
    evidence: Mapping[str, object] | None = None
    based_on: str = ""
    refused: str = ""
    config: Mapping[str, object] | None = None


def from_run(folder: Path) -> LineageSource:
    """The best prompt of a finished run with its evidence. Raises UsageError for a folder without one."""
    path = folder / "result.json"
    try:
        result: dict[str, Any] = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}. Give the folder of a finished run.") from error
    best, improvement = result.get("best") or {}, result.get("improvement") or {}
    if result.get("status") not in ("completed", "budget_exhausted") or "test" not in best:
        raise UsageError(
            f"{folder}: the run has no proven prompt (status: {result.get('status', 'evaluation')}). "
            "Run it to its end first."
        )
    finished = datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat(timespec="seconds")
    prompt = _best_prompt(folder, best)
    header = read_header(folder) or {}
    run = {
        "kind": "run",
        "folder": str(folder),
        "journal": content_hash(header)[:16],
        "fingerprint": header.get("fingerprint"),
        "finished": finished,
        **{key: result.get(key) for key in _KEPT},
        **({"system": best["system"]} if "system" in best else {}),
    }
    evidence = {
        "baseline": _scores(result.get("baseline") or {}),
        "best": _scores(best),
        "improvement": improvement,
        "test_openings": result.get("test_openings"),
        "warnings": result.get("warnings", []),
    }
    refused = "" if improvement.get("promoted") else str(improvement.get("reason", "the gate did not decide"))
    baseline = str((result.get("baseline") or {}).get("id", ""))
    return LineageSource(prompt, run, _run_ledgers(folder, prompt, finished), evidence, baseline, refused)


def _scores(part: Mapping[str, object]) -> dict[str, object]:
    return {key: part.get(key) for key in ("id", "validation", "test")}


def _best_prompt(folder: Path, best: Mapping[str, object]) -> Prompt:
    """The messages of the best prompt, from the journal; the text of the result where there is only one message."""
    for event in reversed(read_events(folder / "journal.sqlite", ["validated"])):
        if event.value.get("id") == best["id"]:
            return Prompt(tuple(Message(*values) for values in event.value["messages"]))
    prompt = Prompt.parse(str(best.get("prompt", "")), str(folder))
    if prompt.id != best["id"]:
        raise UsageError(
            f"{folder}: the journal does not hold the best prompt {best['id']}. Restore the folder."
        )
    return prompt


def _run_ledgers(folder: Path, prompt: Prompt, finished: str) -> dict[str, tuple[Event, ...]]:
    """The events of instructions that the run logged, dated by its end, for the regions whose texts they lead to."""
    ledgers: dict[str, tuple[Event, ...]] = {}
    logged = read_events(folder / "journal.sqlite", ["ledger"])
    for one in logged if prompt.fenced else ():
        events = [from_json(event) for event in one.value]
        text = render_instructions(fold_events(events))
        dated = tuple(event if _is_date(event.at) else replace(event, at=finished) for event in events)
        ledgers |= {r.name: dated for r in prompt.regions if prompt.region_text(r.name) == text}
    return ledgers


def _is_date(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def from_file(path: Path) -> LineageSource:
    """The prompt of a file with the instructions' history beside it, if it learned any. Raises UsageError."""
    with options_kept() as config:
        prompt = load_prompt(path)
    steps = read_steps(ledger_path(path))
    if not steps:
        return LineageSource(prompt, {"kind": "file", "file": path.name}, config=config or None)
    run = {
        "kind": "ledger",
        "file": path.name,
        "steps": len(steps),
        "standing": len(standing(steps)),
        "feedback": len({key for n in standing(steps) for key in steps[n - 1].feedback}),
        "first": steps[0].at,
        "last": steps[-1].at,
        "runs": [step.run for step in steps if step.run],
    }
    ledgers: dict[str, tuple[Event, ...]] = {}
    for region in dict.fromkeys(step.region for step in steps):
        events = tuple(events_of(steps, region))
        known = prompt.fenced and region in [r.name for r in prompt.regions]
        if known and render_instructions(fold_events(events)) == prompt.region_text(
            region
        ):  # nobody edited it by hand since
            ledgers[region] = events
    return LineageSource(prompt, run, ledgers, config=config or None)
