"""From a run folder to a running core and back: header, replayed state, spent budget."""

from __future__ import annotations

import hashlib
import inspect
import secrets
import sqlite3
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import orjson

from whet._util.arguments import write_fault
from whet._util.sources import name_of, source_hash
from whet._util.storable import to_json, write_whole
from whet.engine.batched_calls import BatchedCalls
from whet.engine.blobs import Blobs
from whet.engine.budget import BudgetAccount, Spent
from whet.engine.cache import AnswerCache
from whet.engine.calls import (
    CACHED_OLDEST,
    ESTIMATED,
    GATEWAY,
    GIVEN_UP,
    OPEN,
    PROVIDER_TOOLS,
    REFUSED,
    SILENT,
    SUSPECTS,
    CallExecutor,
)
from whet.engine.durable import TRAINED_SECONDS, Recorded, RunState
from whet.engine.held_answers import HeldAnswers
from whet.engine.journal import (
    Connect,
    Journal,
    check_calls,
    check_details,
    check_row,
    checksum,
    connect,
    damaged_journal,
    meta_row,
    read_meta,
    state_values,
)
from whet.engine.model_client import ModelClient
from whet.engine.plan_json import PlanJSON
from whet.engine.recorded_answers import read_recorded_answers
from whet.engine.served_models import read_served
from whet.engine.trained_policy import PolicyChoice
from whet.errors import ReplayDiverged, StorageError, UsageError, WhetError, parameter
from whet.methods import BLOCKS, Method
from whet.run import Budget
from whet.search.archive import INCUMBENTS
from whet.stats import STRICT
from whet.task import Task
from whet.task.spec import ALPHA
from whet_client.media import look_for_images_in
from whet_client.storable import show_value
from whet_client.version import __version__

LOST = "lost"
PARTS = "parts"
RESULT = "result.json"
IMAGES = "images"
"""The folder of a run that holds the images, sounds and files of its prompt, by hash."""
ENDED, PLACES = "ended", "places"
"""Keys under which a journal says when its run ended, and where its models were asked last."""
FRESH, _GOES_ON, _FAILED = "fresh", "goes on", "failed"
"""The key under which a journal says whether its run asks the models again and goes on, or has failed for good."""
_RUNS_READ = 20
"""Newest runs that are looked at for what was measured."""
WRITTEN = ("best.md", "report.html", RESULT)
"""Files of a run that are written anew whenever it ends."""


class Identity(Protocol):
    """The identity of a run: limits, seed, and everything that is pinned in its journal."""

    @property
    def limits(self) -> Budget: ...
    @property
    def seed(self) -> int: ...

    def header(self) -> dict[str, Any]:
        """The identity as JSON."""
        ...


@dataclass(frozen=True)
class RunPlan:
    """Everything that decides what a run does; its header is pinned in the journal."""

    task: Task
    method: Method
    config: Any
    limits: Budget
    seed: int
    addresses: Mapping[str, str]
    generation: Mapping[str, Any] = field(default_factory=dict)
    policy: PolicyChoice | None = None

    def subject(self) -> PlanJSON:
        """The run in its plan: method, models, and whether nobody named the policy."""
        subject: PlanJSON = {"methods": [self.method.entry.name], "models": dict(self.addresses)}
        if self.policy and self.policy.default:
            subject["default_policy"] = True
        return subject

    def header(self) -> dict[str, Any]:
        """The identity of the run as JSON. Endpoint URLs, concurrency and prices are not part of it."""
        return {
            "whet": __version__,
            "task": self.task.name,
            "fingerprint": self.task.fingerprint,
            "method": self.method.entry.name,
            "version": version_of(self.method),
            "config": {k: name_of(v) if callable(v) else v for k, v in asdict(self.config).items()},
            "limits": self.limits.as_json(),
            "seed": self.seed,
            "models": dict(self.addresses),
            "generation": dict(self.generation),
            **self._gate(),
            **({PARTS: dict(self.task.parts)} if self.task.parts else {}),
        }

    def _gate(self) -> dict[str, object]:
        """The settings of the gate and the search that differ from the usual."""
        usual = {"alpha": ALPHA, "alpha_policy": STRICT, "minimum_effect": 0.0, "longest": None}
        return {k: v for k, value in usual.items() if (v := getattr(self.task, k)) != value}


def version_of(method: Method) -> str:
    """The versions that pin the behaviour of a method: its `VERSION` and those of the blocks that it uses, such as `2, search
    1, rl 1`.

    A method without a version has the hash of its source instead, 16 hex digits: that of its file, or of its coroutine where
    that stands in a script or a notebook.
    """
    module = sys.modules.get(method.coroutine.__module__)
    if method.entry.version is not None:
        names = {getattr(value, "__module__", None) or "" for value in vars(module).values()}
        used = [block for block in BLOCKS if any(name.startswith(f"whet.{block}") for name in names)]
        return ", ".join([f"{method.entry.version}", *(f"{block} {BLOCKS[block]}" for block in used)])
    if module is None or module.__name__ == "__main__" or not getattr(module, "__file__", None):
        return source_hash(method.coroutine)
    return hashlib.sha256(inspect.getsource(module).encode()).hexdigest()[:16]


@dataclass
class OpenRun:
    """An open run: its core, what the kills of all sessions may have lost, and the last incumbent that was logged. `made` are
    the files and folders that it made."""

    core: RunState
    lost_calls: int
    lost_cost: float
    incumbent: dict[str, object] | None
    made: Sequence[Path] = ()

    @contextmanager
    def closing(self) -> Iterator[None]:
        """Release cache and journal at the end. A run that is refused before a model was asked leaves no trace."""
        refused = False
        try:
            yield
        except UsageError:
            note_in(self.core.journal, FRESH, _FAILED)
            refused = self.core.caller.next_call == 1 and not self.core.budget.spent.total_calls
            raise
        finally:
            self.core.caller.cache.close()
            self.core.journal.close(self.made if refused else ())


def write_result(folder: Path, result: Mapping[str, object]) -> None:
    """Write result.json; whoever reads the file meanwhile sees the whole of it or none. Raises StorageError."""
    write_derived(folder / RESULT, to_json(result, orjson.OPT_INDENT_2))


def write_derived(path: Path, data: bytes) -> None:
    """Write a file that is made of the journal. Raises StorageError where the disk refuses it."""
    try:
        write_whole(path, data)
    except OSError as error:
        raise StorageError(
            f"{path}: the file could not be written: {error.strerror}. The journal has all data. Free "
            "some space or choose another disk, and run the same command again; no call is repeated."
        ) from error


def read_header(folder: Path) -> dict[str, Any] | None:
    """The pinned header of a run folder without taking its lease, or None when there is none."""
    look_for_images_in(folder / IMAGES)
    try:
        header = orjson.loads(read_meta(folder / "journal.sqlite", "header") or "null")
    except (UsageError, StorageError, ValueError):  # damaged; who opens the journal is told so
        return None
    return header if isinstance(header, dict) else None


def newest_journals(root: Path, fingerprint: str) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Journals of the newest runs of a task below a folder, with their headers."""
    for path in sorted(root.glob("*/journal.sqlite"), key=lambda path: -path.stat().st_mtime)[:_RUNS_READ]:
        try:
            header = read_header(path.parent) or {}
        except (UsageError, StorageError, OSError):
            continue
        if header.get("fingerprint") == fingerprint:
            yield path, header


def remember_task(journal: Journal, folder: Path) -> None:
    """Write down where the run's task lies now. It is no part of the identity of the run."""
    if (folder / "task.yaml").is_file():
        journal.append([meta_row("task", str(folder.absolute()))])


def task_folder(run: Path) -> Path | None:
    """The folder of a run's task when it ran last; None where the task was in memory, or the run is older than this entry."""
    folder = read_meta(run / "journal.sqlite", "task")
    return None if folder is None else Path(folder)


def note_in(journal: Journal, key: str, value: str) -> None:
    """Write down something of a run that is no part of its identity."""
    journal.append([meta_row(key, value)])


def noted_in(run: Path, key: str) -> str | None:
    """The stored value of a run under a key; None if there is none."""
    return read_meta(run / "journal.sqlite", key)


def note_fresh(journal: Journal, fresh: bool) -> None:
    """Write down that a run asks the models again, so that the same command goes on with it after an interruption."""
    if fresh:
        note_in(journal, FRESH, _GOES_ON)


def asks_again(run: Path) -> bool:
    """Whether a folder holds what began by asking the models again, and has not failed: the same command goes on with it."""
    return (run / "journal.sqlite").exists() and noted_in(run, FRESH) == _GOES_ON


def has_failed(run: Path) -> bool:
    """Whether what a folder holds ended with an error that its recorded answers bring again."""
    return (run / "journal.sqlite").exists() and noted_in(run, FRESH) == _FAILED


def places_of(clients: Mapping[str, ModelClient]) -> dict[str, str]:
    """The base URLs of the roles' models, for those at an endpoint."""
    places = {role: getattr(client.model, "base_url", None) for role, client in clients.items()}
    return {role: str(place) for role, place in places.items() if place is not None}


def describe_moved_models(run: Path, clients: Mapping[str, ModelClient]) -> str:
    """Say which models are asked elsewhere than when the run was last worked on; empty if none is, or if nobody knows."""
    before: Mapping[str, str] = orjson.loads(noted_in(run, PLACES) or "{}")
    there = {role: place for role, place in places_of(clients).items() if before.get(role, place) != place}
    return "; ".join(f"{role} at {before[role]}, which is now {place}" for role, place in there.items())


def ended_at(run: Path) -> str:
    """The time at which a finished run ended, to the minute, in UTC."""
    noted = noted_in(run, ENDED)
    when = (
        datetime.fromisoformat(noted)
        if noted
        else datetime.fromtimestamp((run / RESULT).stat().st_mtime, UTC)
    )
    return f"{when:%Y-%m-%d %H:%M} UTC"


def evaluated_split(header: Mapping[str, Any]) -> str | None:
    """The split that an evaluation measured; None for the header of a run."""
    split = (header.get("generation") or {}).get("split")
    return None if split is None else str(split)


def check_run_folder(folder: Path) -> None:
    """Raise UsageError for a run folder that is none: a file, a task's own folder, one that cannot be written, one with files
    of the caller that a run would write."""
    choose = f"Choose another folder with {parameter('run', 'DIR')}."
    if (folder / "task.yaml").exists():
        raise UsageError(
            f"The run cannot be written to {folder}: that is a task folder. Write it below: {parameter('run', folder / 'run')}."
        )
    if (reason := write_fault(folder)) is not None:
        raise UsageError(f"The run cannot be written to {folder}: {reason}. {choose}")
    own = next((name for name in WRITTEN if (folder / name).exists()), None)
    if own is not None and not (folder / "journal.sqlite").exists():
        raise UsageError(
            f"The run cannot be written to {folder}: {folder / own} belongs to no run with a journal "
            f"and would be overwritten. {choose}"
        )


def differing_entries(old: Mapping[str, Any], new: Mapping[str, object]) -> list[str]:
    """Header entries in which two runs differ, as `name: old -> new`; of a mapping its entries, of the task what was edited."""
    plain = orjson.loads(to_json(new))
    names = [k for k in {**old, **plain} if k != PARTS and old.get(k) != plain.get(k)]
    return [
        _describe_edits(old.get(PARTS, {}), plain.get(PARTS, {}))
        if k == "fingerprint"
        else _describe_change(k, old.get(k), plain.get(k))
        for k in names
    ]


def describe_replaced(run: Path, plan: RunPlan) -> str:
    """In what an evaluation differs from the one whose place it takes in `run`; empty where there is none there."""
    header = read_header(run)
    if header is None or evaluated_split(header) is None:
        return ""
    differences = "; ".join(differing_entries(header, plan.header())) or "its models are asked elsewhere"
    return f"{run}: the evaluation begins again, because it differs from the one there ({differences})"


def _describe_change(name: str, old: object, new: object) -> str:
    """An entry of a header before and after; of two mappings what differs in them."""
    if not (isinstance(old, Mapping) and isinstance(new, Mapping)):
        before, after = ("none" if value is None else show_value(value, 200) for value in (old, new))
        return f"{name}: {before} -> {after}"
    keys = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    return ", ".join(_describe_change(f"{name}.{key}", old.get(key), new.get(key)) for key in keys)


def _describe_edits(old: Mapping[str, str], new: Mapping[str, str]) -> str:
    """The parts of a task that were edited since, as far as the parts of its fingerprint are known."""
    edited = [name for name in new if name in old and old[name] != new[name]]
    return f"the task, which was edited: {', '.join(edited) or 'its prompt, its rows or its reward'}"


def goes_on(folder: Path, old: Mapping[str, Any], new: Mapping[str, object]) -> bool:
    """Whether a run whose limits did not pay for its sealed test may go on under larger ones: nothing else differs."""
    before, after = old.get("limits") or {}, orjson.loads(to_json(new)).get("limits") or {}
    if differing_entries({**old, "limits": None}, {**new, "limits": None}) or before == after:
        return False
    larger = all(after.get(k) is None or (v is not None and after[k] >= v) for k, v in before.items())
    return larger and read_result(folder).get("tested") is False


UNREADABLE = "unreadable"
"""The status of a run whose result.json is damaged; the command that began it makes the file anew from the journal."""


def read_result(folder: Path) -> dict[str, Any]:
    """The result of a run or an evaluation, as far as it is written; a file that cannot be read has the status `unreadable`."""
    look_for_images_in(folder / IMAGES)
    path = folder / RESULT
    try:
        result = orjson.loads(path.read_bytes()) if path.is_file() else {}
    except (OSError, orjson.JSONDecodeError):
        result = None
    return result if isinstance(result, dict) else {"status": UNREADABLE}


def open_run(
    folder: Path,
    plan: Identity,
    clients: Mapping[str, ModelClient],
    cache: AnswerCache,
    on_event: Callable[[str, Any], None],
    fork: Path | None = None,
    open_db: Connect = connect,
) -> OpenRun:
    """Take the run's lease, check or pin its header, and load what is recorded.

    Raises RunLocked, ReplayDiverged (naming what differs), UsageError or StorageError.
    """
    file = folder / "journal.sqlite"
    made = [] if file.exists() else [file.with_name(file.name + end) for end in ("", "-wal", "-shm", ".lock")]
    made += [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    journal = Journal(file, open_db)
    try:
        header = plan.header()
        pinned = journal.meta("header")
        if pinned is None:
            if journal.rows("SELECT 1 FROM calls UNION ALL SELECT 1 FROM effects LIMIT 1"):
                raise damaged_journal(file, "its header is missing")
            journal.pin(
                [
                    meta_row("header", to_json(header).decode()),
                    meta_row("run", secrets.token_hex(8)),
                ]
            )
        elif goes_on(folder, orjson.loads(pinned), header):
            journal.append([meta_row("header", to_json(header).decode())])
        elif changed := differing_entries(orjson.loads(pinned), header):
            raise ReplayDiverged(
                f"{folder}: this folder holds a run that differs in {'; '.join(changed)}. "
                f"Choose another {parameter('run')}; a run of optimize may reuse its paid answers with {parameter('fork')}."
            )
        return replace(_load(journal, folder, plan, clients, cache, on_event, fork), made=made)
    except (sqlite3.DatabaseError, ValueError, TypeError, LookupError, AttributeError) as error:
        journal.close()
        if isinstance(error, WhetError):
            raise
        raise damaged_journal(file, f"{type(error).__name__}: {error}") from error
    except BaseException:
        journal.close()
        raise


def _load(
    journal: Journal,
    folder: Path,
    plan: Identity,
    clients: Mapping[str, ModelClient],
    cache: AnswerCache,
    on_event: Callable[[str, Any], None],
    fork: Path | None,
) -> OpenRun:
    effects, results = {}, HeldAnswers()
    for key, name, digest, value, row_sum in journal.rows(
        "SELECT key, name, digest, value, sum FROM effects"
    ):
        check_row(journal.path, "effects", row_sum, key, name, digest, value)
        effects[key] = Recorded(name, digest, value)
    for digest, value, row_sum in journal.rows("SELECT digest, value, sum FROM results"):
        check_row(journal.path, "results", row_sum, digest, value)
        results[digest] = bytes(value)
    check_calls(journal.path, journal.rows("SELECT * FROM calls"))
    check_details(journal.path, journal.rows("SELECT * FROM details"))
    spent = _read_spent(journal)
    open_calls = journal.rows(
        "SELECT COUNT(*), COALESCE(SUM(cost), 0) FROM calls WHERE state IN ('open', 'lost')"
    )[0]
    lose = "UPDATE calls SET state = ?, sum = (sum & ~65535) | ? WHERE state = 'open'"
    journal.append([(lose, state_values(LOST))])
    if fork is not None and not effects:
        results.update(_answers_of(fork, journal))
    budget = BudgetAccount(plan.limits, spent, Budget())
    next_call = int(journal.rows("SELECT COALESCE(MAX(id), 0) + 1 FROM calls")[0][0])
    caller = CallExecutor(journal, cache, budget, clients, plan.seed, results, next_call)
    batches = BatchedCalls(caller)
    batches.load()
    caller.batches = batches
    known = set()
    for key, name, value, calls, row_sum in journal.rows("SELECT key, name, value, calls, sum FROM events"):
        check_row(journal.path, "events", row_sum, key, name, value, str(calls))
        known.add(key)
    core = RunState(
        journal, caller, budget, Blobs(folder / "blobs"), plan.seed, effects, on_event, known_events=known
    )
    incumbents = [
        value
        for name, raw in journal.rows("SELECT name, value FROM events ORDER BY seq")
        if name in INCUMBENTS and (value := orjson.loads(raw)).get("incumbent")
    ]
    suspects = frozenset(orjson.loads(journal.meta(SUSPECTS) or "[]"))
    for role, client in clients.items():
        client.health.suspects = suspects
        client.health.known = _count_answers_of(journal, client.counts_as or role)
        client.health.proven = frozenset(core.budget.spent.given_up[client.counts_as or role])
        client.health.unanswered = _unanswered_of(journal, client.counts_as or role)
    core.training_seconds = float(journal.meta(TRAINED_SECONDS) or 0.0)
    core.steps = orjson.loads(journal.meta("steps") or "0")
    paid, wanted = orjson.loads(journal.meta("rounds") or "[0, 0]")
    core.rounds = paid, wanted
    core.incumbent_system = incumbents[-1].get("system") if incumbents else None
    return OpenRun(core, int(open_calls[0]), float(open_calls[1]), incumbents[-1] if incumbents else None)


def _read_spent(journal: Journal) -> Spent:
    spent = Spent(seconds=float(journal.meta("elapsed") or 0.0))
    spent.estimated = orjson.loads(journal.meta(ESTIMATED) or "{}")
    spent.provider_tools = orjson.loads(journal.meta(PROVIDER_TOOLS) or "{}")
    spent.gateway_cached, spent.gateway_drawn = orjson.loads(journal.meta(GATEWAY) or "[{}, {}]")
    spent.served = read_served(journal)
    spent.cached_oldest = float(oldest) if (oldest := journal.meta(CACHED_OLDEST)) else None
    for role, state, calls, tokens_in, tokens_out, cost in journal.rows(
        "SELECT role, state, COUNT(*), SUM(input_tokens), SUM(output_tokens), SUM(cost) FROM calls"
        " WHERE state NOT IN ('unsent', 'batched', 'given up') GROUP BY role, state"
    ):
        if state == REFUSED:
            spent.refused[role] += calls
            continue
        spent.calls[role] += calls
        spent.input_tokens += tokens_in
        spent.output_tokens += tokens_out
        spent.cost += cost
        if state == "cached":
            spent.cached[role] += calls
        if state in (OPEN, LOST):
            taken = {
                "calls": calls,
                f"{role}_calls": calls,
                "tokens": tokens_in + tokens_out,
                "cost_usd": cost,
            }
            spent.lost |= {name: spent.lost.get(name, 0) + amount for name, amount in taken.items()}
        if state == SILENT:
            spent.excused[role] += calls
    for role, given_up in spent.given_up.items():
        given_up |= _without_result(journal, role, GIVEN_UP)
    for role, cached, thought, named in journal.rows(
        "SELECT role, SUM(cached_input_tokens), SUM(reasoning_tokens), SUM(named) FROM details JOIN calls USING (id)"
        " GROUP BY role"
    ):
        spent.cached_input_tokens += cached
        spent.reasoning_tokens += thought
        spent.named[role] += named
    for role, calls in journal.rows(
        "SELECT role, SUM(calls) FROM effects WHERE role IS NOT NULL GROUP BY role"
    ):
        spent.calls[role] += calls
    return spent


def _count_answers_of(journal: Journal, role: str) -> int:
    """Count the answers that a role got in earlier sessions."""
    sql = "SELECT COUNT(*) FROM calls WHERE role = ? AND state IN ('answered', 'cached')"
    return int(journal.rows(sql, (role,))[0][0])


def _unanswered_of(journal: Journal, role: str) -> frozenset[str]:
    """The requests of a role that failed in earlier sessions and were never answered, by digest."""
    return _without_result(journal, role, "failed") | _without_result(journal, role, GIVEN_UP)


def _without_result(journal: Journal, role: str, state: str) -> frozenset[str]:
    """The requests of a role with a call in a state that were never answered, by digest."""
    sql = "SELECT DISTINCT digest FROM calls WHERE role = ? AND state = ? AND digest NOT IN (SELECT digest FROM results)"
    return frozenset(str(digest) for (digest,) in journal.rows(sql, (role, state)))


def _answers_of(fork: Path, journal: Journal) -> dict[str, bytes]:
    """The answers of another run, which become those of this one. Raises StorageError for one that has changed."""
    answers = read_recorded_answers(fork)
    row = "INSERT OR IGNORE INTO results VALUES (?,?,?)"
    journal.append([(row, (digest, value, checksum(digest, value))) for digest, value in answers.items()])
    return answers
