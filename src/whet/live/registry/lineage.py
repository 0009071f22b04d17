"""Where a version comes from: a finished run, or a prompt file with the ledger of what it learned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from whet.engine.journal import read_events
from whet.engine.run_folder import read_header
from whet.errors import UsageError
from whet.feedback.history import ledger_path, read_steps, standing
from whet.live.registry.values import Ledgers
from whet.prompt import Prompt
from whet.prompt.events import Event, from_json
from whet.prompt.instructions import fold
from whet.prompt.ledger import render
from whet.task import load_prompt
from whet.types import Message, content_hash

_KEPT = ("task", "method", "seed", "status", "models", "simulated")


@dataclass(frozen=True)
class LineageSource:
    """A prompt that was made elsewhere. `run` says where, `evidence` what was measured, `based_on` the id of the prompt it
    was made from (or empty), `refused` why the gate did not promote it (or empty)."""

    prompt: Prompt
    run: Mapping[str, Any]
    ledgers: Ledgers = field(default_factory=dict)
    evidence: Mapping[str, Any] | None = None
    based_on: str = ""
    refused: str = ""


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


def _scores(part: Mapping[str, Any]) -> dict[str, Any]:
    return {key: part.get(key) for key in ("id", "validation", "test")}


def _best_prompt(folder: Path, best: Mapping[str, Any]) -> Prompt:
    """The messages of the best prompt, from the journal; the text of the result where there is only one message."""
    for event in reversed(read_events(folder / "journal.sqlite", ["validated"])):
        if event.value.get("id") == best["id"]:
            return Prompt(tuple(Message(role, content) for role, content in event.value["messages"]))
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
        text = render(fold(events))
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
    prompt = load_prompt(path)
    steps = read_steps(ledger_path(path))
    if not steps:
        return LineageSource(prompt, {"kind": "file", "file": path.name})
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
        events = tuple(event for step in steps if step.region == region for event in step.events)
        if prompt.fenced and _leads_to(events, prompt, region):
            ledgers[region] = events
    return LineageSource(prompt, run, ledgers)


def _leads_to(events: Sequence[Event], prompt: Prompt, region: str) -> bool:
    """Whether the fence still holds what was learned: nobody edited it by hand since."""
    return region in [r.name for r in prompt.regions] and render(fold(events)) == prompt.region_text(region)
