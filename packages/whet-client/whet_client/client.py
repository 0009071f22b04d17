"""The client: prompts from the cache, rows to the sender."""

from __future__ import annotations

import atexit
import os
import sys
import weakref
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from whet_client.cache import Prompts
from whet_client.errors import UsageError, did_you_mean
from whet_client.http import Send
from whet_client.ids import new_id
from whet_client.json_values import cut_texts, is_json, json_value
from whet_client.live_prompts import Bundled, LivePrompt
from whet_client.records import (
    KINDS,
    LONGEST_ID,
    LONGEST_INPUTS,
    LONGEST_LABEL,
    LONGEST_METADATA,
    LONGEST_OUTPUT,
    LONGEST_TEXT,
    Feedback,
    Inference,
    checked_feedback,
    checked_inference,
    checked_name,
    is_blank,
    thumb_value,
)
from whet_client.sender import DeliveryTally, Sender
from whet_client.spool import Spool, default_folder
from whet_client.storable import plain_number, repair_surrogates

URL_VARIABLE, TOKEN_VARIABLE = "WHET_URL", "WHET_TOKEN"
DEFAULT_URL = "http://127.0.0.1:8321"
_MEMORY, _SPOOL = 16 * 1024 * 1024, 64 * 1024 * 1024
_clients: weakref.WeakSet[Client] = weakref.WeakSet()
_open: set[Client] = set()
"""Those that may have rows to send: also one that the app has dropped."""
_AT_EXIT = 100
_hooks: list[str] = []
_BESIDE = ("comment", "explanation", "name", "over", "source", "metadata", "id", "time")
_CUT = {"output": LONGEST_OUTPUT, "error": LONGEST_TEXT, "text": LONGEST_TEXT, "label": LONGEST_LABEL}

_MARKS = 200
"""Characters that the names of what was cut and cleaned may need in the metadata."""
_CUT_OBJECTS = {"inputs": LONGEST_INPUTS, "metadata": LONGEST_METADATA - _MARKS}


class Client:
    """The client of one whet server. Make one client and share it between threads; a forked process may use it too.

    `url` and `token` default to WHET_URL (else http://127.0.0.1:8321) and WHET_TOKEN. `fallbacks` are prompts bundled with the
    app: a mapping from names to texts or messages, or a folder (NAME.md, or the files of `whet prompts export`). With
    fallbacks, every prompt works from the first call on, even without the server. `fresh` is the age in seconds at which a
    prompt is fetched again in the background. `timeout` bounds each wait for the network.

    The client sends logged rows in batches. `spool` is the folder for rows that could not be sent when the process ends or
    memory is full (16 MiB): True means ~/.local/state/whet/spool, and None stores nothing on disk. It holds at most 64 MiB.
    `send` replaces the network, for tests and for apps in the server's own process. Raises UsageError for an invalid address.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        fallbacks: Mapping[str, Bundled] | str | Path | None = None,
        fresh: float = 60.0,
        timeout: float = 2.0,
        spool: str | Path | bool | None = True,
        send: Send | None = None,
    ) -> None:
        from whet_client.connections import Http  # an app that imports the client does not wait for TLS

        self.url = url or os.environ.get(URL_VARIABLE) or DEFAULT_URL
        self._http = Http(self.url, token or os.environ.get(TOKEN_VARIABLE), timeout)
        transport = send or self._http.send
        bundled = Path(fallbacks) if isinstance(fallbacks, str | Path) else dict(fallbacks or {})
        if isinstance(bundled, Path) and not bundled.is_dir():
            raise UsageError(f"{bundled}: there is no folder of bundled prompts.")
        self._prompts = Prompts(transport, self.url, bundled, fresh)
        folder = default_folder() if spool is True else Path(spool) if spool else None
        kept = None if folder is None else Spool(folder, self.url, _SPOOL)
        self._sender = Sender(transport, self.url, kept, _MEMORY, 0.2)
        _clients.add(self)
        _open.add(self)
        _close_in_children()

    def prompt(
        self,
        name: str,
        label: str = "production",
        *,
        fallback: Bundled | None = None,
        user: str | None = None,
        session: str | None = None,
        episode: str | None = None,
    ) -> LivePrompt:
        """The prompt at a label, in the version that is assigned to this user, session or episode.

        Only the first call for a label may wait for the server. `fallback` is a bundled copy for this prompt. Raises
        UsageError when the server does not know the prompt and Unavailable when it cannot be reached, both only when
        no copy is bundled; and UsageError for a user, session or episode that `log` could not take. A blank one is none.
        """
        units = {"user": user, "session": session, "episode": episode}
        for what, unit in units.items():
            checked_name(unit, what, "prompt")
        units = {what: None if is_blank(unit) else unit for what, unit in units.items()}
        return self._prompts.get(name, label, fallback).for_units(units)

    def log(self, prompt: LivePrompt | str, output: str = "", **more: object) -> str:
        """Report an answer, without waiting; the id to give feedback about.

        `more` are the other fields of `Inference`: inputs, model, cost (dollars), latency (seconds), input_tokens,
        output_tokens, session, user, episode, response, error, metadata, id. Version, experiment and units come from
        the prompt. Texts that are too long are cut, and `metadata.cut` names them; a NUL is left out and half a surrogate
        pair replaced, and `metadata.cleaned` names those. Raises UsageError for a field that is none or cannot be.
        """
        record_fields: dict[str, object] = {"output": output}
        if isinstance(prompt, LivePrompt):
            record_fields |= {"prompt": prompt.name, "version": prompt.version, **prompt.units}
            record_fields |= {"experiment": prompt.experiment, "variant": prompt.variant}
        else:
            record_fields["prompt"] = prompt
        record = inference_of(record_fields, more)
        self._sender.put("inferences", record.as_json())
        return record.id

    def feedback(
        self,
        inference: str | None = None,
        *,
        episode: str | None = None,
        session: str | None = None,
        **values: Any,
    ) -> list[str]:
        """Report feedback about an inference, or about a whole episode or session; the ids of the rows.

        Each kind of the vocabulary is a keyword: `rating=4`, `thumb="down"`, `score=0.7` (with `name=`),
        `correction=...`, `label=...`, `copy=1.0`, `edit_distance=0.2`, `regenerate=1`, `follow_up=1`, `abandon=1`,
        `dwell=12.5`, `share=1`, `external_check=1`, `choice=1` (with `over=` the other inference). `comment` goes
        with the rating, thumb, score or label, or stands alone. `user`, `source` and `metadata` hold for all. It
        does not matter whether the inference has been sent. Raises UsageError for a word that is none, and for a
        value that cannot be.
        """
        targets = {"inference": inference, "episode": episode, "session": session}
        named = [(kind, target) for kind, target in targets.items() if target]
        if len(named) != 1:
            raise UsageError("Feedback is about one inference, one episode or one session. Name exactly one.")
        records = feedback_of(values, *named[0])
        for record in records:
            self._sender.put("feedback", record.as_json())
        return [record.id for record in records]

    @property
    def tally(self) -> DeliveryTally:
        """The numbers of rows that were sent, spooled, refused and lost."""
        return self._sender.tally

    def flush(self, timeout: float = 5.0) -> bool:
        """Wait until every row is sent, also those of earlier processes; False when that takes longer than `timeout` seconds."""
        return self._sender.flush(timeout)

    def close(self, timeout: float = 5.0) -> None:
        """Send every row, for at most `timeout` seconds, and keep the rest in the spool. It happens by itself when the
        process ends normally; calling it twice is harmless."""
        _open.discard(self)
        self._sender.close(timeout)
        self._prompts.close()
        self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _restart_after_fork(self) -> None:
        self._http.restart_after_fork()
        self._prompts.restart_after_fork()
        self._sender.restart_after_fork()
        _open.add(self)


def inference_of(values: Mapping[str, Any], more: Mapping[str, object]) -> Inference:
    """An inference from fields; those of `more` go first. Texts that are too long are cut, and those with what no
    database keeps are cleaned; `metadata.cut` and `metadata.cleaned` name them.

    Raises UsageError for a field that is none or cannot be.
    """
    numbers = {name: plain_number(value) for name, value in _refuse_unknown_keys(more, Inference).items()}
    return checked_inference(Inference(**_fit_texts({**values, **numbers})))


def feedback_of(values: Mapping[str, Any], target_kind: str, target: str) -> list[Feedback]:
    """Make feedback from keywords, one record for each kind. A comment belongs to the rating, thumb, score or label, or is a
    separate record. Texts that are too long are cut. Raises UsageError for an unknown keyword and for an impossible value."""
    left = dict(values)
    user = left.pop("user", None)
    beside = {name: left.pop(name) for name in _BESIDE if name in left}
    for name in left:
        if name not in KINDS:
            raise UsageError(
                f'"{name}" is no kind of feedback.{did_you_mean(name, [*KINDS, *_BESIDE, "user"])}'
            )
    by_kind = {name: value for name, value in left.items() if value is not None}
    reason = beside.pop("comment", None) or beside.pop("explanation", None)
    own, metric, other = (beside.pop(name, None) for name in ("id", "name", "over"))
    if (by_kind.get("choice") is None) != (other is None):
        raise UsageError("feedback: choice and over go together: choice=1, over=ID_OF_THE_OTHER_ANSWER.")
    base = {"target": target, "target_kind": target_kind, "user": user, **beside}
    rows: list[dict[str, Any]] = []
    for kind, value in by_kind.items():
        needs = KINDS[kind].needs
        row = {**base, "kind": kind, needs: _value(kind, value)}
        if kind in ("score", "label"):
            row["name"] = metric
        if kind == "choice":
            row["label"] = other
        if reason and kind in ("rating", "thumb", "score", "label"):
            row["text"], reason = reason, None
        rows.append(row)
    if reason:
        rows.append({**base, "kind": "comment", "text": reason})
    if not rows:
        raise UsageError(f"The feedback says nothing. Give one of {', '.join(KINDS)}.")
    ids = [
        own if own and not n else f"{own[: LONGEST_ID - 9]}#{n}" if own else new_id()
        for n in range(len(rows))
    ]
    return [checked_feedback(Feedback(**_fit_texts(row), id=id)) for row, id in zip(rows, ids, strict=True)]


def _refuse_unknown_keys(more: Mapping[str, object], kind: type[Inference]) -> dict[str, object]:
    names = [field.name for field in fields(kind)]
    for name in more:
        if name not in names:
            raise UsageError(f'There is no field "{name}".{did_you_mean(name, names)}')
    return {name: value for name, value in more.items() if value is not None}


def _fit_texts(values: dict[str, object]) -> dict[str, Any]:
    """Texts cut to what is kept, and without what no database keeps; the metadata name those that were cut or cleaned."""
    changed: dict[str, list[str]] = {"cut": [], "cleaned": []}
    for name, most in _CUT.items():
        text = values.get(name)
        if isinstance(text, str):
            clean = repair_surrogates(text.replace("\x00", ""))
            values[name] = clean[:most]
            changed["cut"] += [name] if len(clean) > most else []
            changed["cleaned"] += [name] if clean != text else []
    for name, most in _CUT_OBJECTS.items():
        as_logged = values.get(name)
        if isinstance(as_logged, Mapping) and as_logged:
            written = json_value(as_logged)
            changed["cleaned"] += [] if is_json(as_logged, written) else [name]
            values[name] = cut_texts(written, most)
            changed["cut"] += [name] if values[name] != written else []
    marks = {mark: names for mark, names in changed.items() if names}
    metadata = values.get("metadata", {})
    if marks and isinstance(metadata, Mapping):
        values["metadata"] = {**metadata, **marks}
    return values


def _value(kind: str, value: Any) -> object:
    """Words, truth values and numbers of other libraries as plain numbers where a number is wanted."""
    if KINDS[kind].needs != "value":
        return value
    value = plain_number(value)
    if kind == "thumb":
        return thumb_value(value, "feedback: thumb")
    if isinstance(value, bool) and kind == "rating":
        return value  # refused: it would be the worst of five stars
    whole = isinstance(value, int) and abs(value) < 2**53
    return float(value) if whole else value


def _close_all() -> None:
    for client in list(_open):
        client.close()


def _fork_all() -> None:
    for client in list(_clients):
        client._restart_after_fork()
    _close_in_children()


def _close_in_children() -> None:
    """Close clients at the end of a child of `multiprocessing`, which runs its own finalizers and no `atexit`.

    It drops those that a fork brought along, and then calls what was registered for that moment; a client that is
    made later finds no such moment any more.
    """
    util, process = sys.modules.get("multiprocessing.util"), sys.modules.get("multiprocessing.process")
    if util is None or process is None:
        return
    if not _hooks:
        _hooks.append("after fork")
        util.register_after_fork(_clients, _finalize)
    if process.parent_process() is not None:
        _finalize()


def _finalize(*_: object) -> None:
    sys.modules["multiprocessing.util"].Finalize(None, _close_all, exitpriority=_AT_EXIT)


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_fork_all)
