"""A task folder out of live traffic: answers that people corrected, rated, or used are its rows.

A row is an answer with its inputs. Its target is what people corrected it to; where nobody did, the answer itself if people
rated it well, or if the signals of what they did say that they would have (`traffic.behaviour`, where enough ratings teach
that). The sealed split is the future: rows are ordered by time, the newest are the test. One input stands in one row. Personal
data is masked by its form, as for the reader of the learner. Of somebody who is being forgotten there is nothing; a folder that
was written before is a copy, which nobody but its owner can delete.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from whet.errors import UsageError, did_you_mean, quantity
from whet.instructions.personal_data import mask_personal
from whet.prompt import Prompt
from whet.task import ImportedData, NewTaskChoices, StartedTask, check_folder, start_task
from whet.types import content_hash
from whet_client.prompt.document import AUTO
from whet_client.records import KINDS, Feedback, Inference
from whet_live.registry import Registry
from whet_live.traffic import BehaviourModel, Filter, StoredInference, Traffic
from whet_live.traffic.behaviour import RatedAnswer, fit_behaviour
from whet_live.traffic.dataset import PEOPLE, answers_with_feedback, rating, signals, slot_values
from whet_live.traffic.derived_signals import KEPT, SignalDeriver

MOST = 1000
MOST_READ = 20_000
"""Answers that are read, the newest."""
GROUP, CRITIQUES, ANSWER, WORTH, ORIGIN = "who", "critiques", "answer", "worth", "from"
GOOD = 0.75
"""From this worth on, on a scale from 0 to 1, an answer is a target: four stars, or a thumb up."""
CORRECTIONS, RATINGS, SIGNALS = SOURCES = ("corrections", "ratings", "signals")
COMMENTS = "comments"
"""The origin of a row that has no target."""
SHARES = {"train": 0.4, "validation": 0.2, "test": 0.4}
"""The parts of the rows in the order of time."""
_PAGE = 200


@dataclass(frozen=True)
class RowChoices:
    """The choice of rows: at most `most`, the newest, of answers since a time (microseconds), with targets from `sources`.
    `split`: by `time`, or by `users`, whose rows then stay in one split. `masked`: without personal data."""

    since: int | None = None
    most: int = MOST
    split: Literal["time", "users"] = "time"
    sources: tuple[str, ...] = SOURCES
    masked: bool = True

    def __post_init__(self) -> None:
        for source in self.sources:
            if source not in SOURCES:
                raise UsageError(f'There are no rows from "{source[:40]}".{did_you_mean(source, SOURCES)}')


@dataclass(frozen=True)
class _Candidate:
    """An answer that may become a row. `rank` orders where a target may come from, the best first."""

    inference: Inference
    values: Mapping[str, Any]
    target: str | None
    critiques: Sequence[str]
    worth: float | None
    origin: str
    rank: int
    masked: bool = False
    """Whether personal data was replaced in it."""


def task_from_traffic(
    registry: Registry,
    traffic: Traffic,
    address: str,
    folder: str | Path,
    choices: RowChoices | None = None,
    *,
    reward: str | None = None,
    lm: str | None = None,
) -> StartedTask:
    """Write a task folder of the prompt at an address from its traffic.

    With a `reward` that needs no target (a name or a Python file), answers that were only commented on or rated badly are rows
    too. Raises UsageError for a folder that is not empty, a prompt that is not there, too few rows.
    """
    target, wanted = check_folder(folder), choices or RowChoices()
    version = registry.get(address)
    prompt, left = version.prompt, Counter[str]()
    if prompt.parts:
        raise UsageError(
            f"{address} holds the prompts of a program, and its traffic does not say what each of them read."
        )
    read, notes = _read_answers(traffic, version.name, wanted)
    model = _model_of_signals(read, wanted, notes)
    candidates: dict[str, _Candidate] = {}
    for inference, rows, values in read:
        one = _candidate(inference, rows, values, prompt.slots, model, wanted.sources)
        if isinstance(one, str):
            left[one] += 1
        elif one.target is None and reward is None:
            left["commented on or rated, and without a target"] += 1
        else:
            one = (
                _without_personal_data(one) if wanted.masked else one
            )  # before inputs are compared: it may make two equal
            key = content_hash(dict(one.values))
            left["of an input that another row has"] += key in candidates
            if key not in candidates or one.rank < candidates[key].rank:
                candidates[key] = one
    kept = sorted(candidates.values(), key=lambda one: one.inference.time, reverse=True)[: wanted.most]
    found_from = Counter(one.origin for one in kept)
    notes.insert(0, f"rows: {quantity(len(kept), 'answer')} of {version.name}, by version {version.version}'s prompt ("
                 f"{', '.join(f'{number} from {origin}' for origin, number in found_from.items())})")  # fmt: skip
    notes += [f"left out: {number} {reason}" for reason, number in left.items() if number]
    if not kept:
        raise UsageError(
            f"No answer of {version.name} has a target{_describe_left_out(left)}. Corrections come with "
            "`whet feedback add ID --correction TEXT`; comments alone make rows for a reward that needs no target: "
            "--reward reward.py."
        )
    rows_by_split = _split(kept[::-1], wanted, notes)
    settings = {"group": GROUP}
    material = ImportedData(rows_by_split, _source(prompt), None, {}, notes, columns=False, settings=settings)
    return start_task(target, material, NewTaskChoices(reward=reward, lm=lm))


def _describe_left_out(left: Counter[str]) -> str:
    counts = [f"{number} {reason}" for reason, number in left.items() if number]
    return f" ({', '.join(counts)})" if counts else ""


def inferences_of(traffic: Traffic, wanted: Filter) -> Iterator[StoredInference]:
    """Newest first."""
    cursor = None
    while True:
        page = traffic.inferences(wanted, _PAGE, cursor)
        yield from page.rows
        cursor = page.next
        if cursor is None:
            return


# Reading

_Read = tuple[Inference, list[Feedback], Mapping[str, float]]
"""An answer, the feedback about it, and its signals."""


def _read_answers(traffic: Traffic, name: str, wanted: RowChoices) -> tuple[list[_Read], list[str]]:
    """The newest answers, newest first, and a note where there are more."""
    deriver, read = SignalDeriver(), list[_Read]()
    chosen = Filter(prompt=name, since=wanted.since)
    for stored, rows in answers_with_feedback(traffic.database, chosen, MOST_READ):
        texts = [row.text for row in rows if row.kind in KEPT and row.source in PEOPLE and row.text]
        read.append((stored.inference, rows, deriver.derive(stored.inference, texts, signals(rows))))
    more = len(read) == MOST_READ
    return read, [f"read: the newest {MOST_READ:,} answers"] if more else []


def _model_of_signals(read: Sequence[_Read], wanted: RowChoices, notes: list[str]) -> BehaviourModel | None:
    """The weights of the signals, by the ratings of the same answers; None, with a note, if too few answers are rated."""
    if SIGNALS not in wanted.sources:
        return None
    rated = [RatedAnswer(one.id, values, rating(rows, one.user), one.user) for one, rows, values in read]
    try:
        return fit_behaviour(rated)
    except UsageError as error:
        notes.append(f"signals: not calibrated, so that they make no rows: {error}")
        return None


def _candidate(
    inference: Inference,
    rows: Sequence[Feedback],
    values: Mapping[str, float],
    slots: frozenset[str] | set[str],
    model: BehaviourModel | None,
    sources: Sequence[str],
) -> _Candidate | str:
    """The row that an answer may become, or the reason why it becomes none. People's judgements take precedence, and signals
    count without any."""
    if inference.error is not None:
        return "failed"
    texts = [
        row for row in rows if row.source in PEOPLE and (KINDS[row.kind].explicit or row.kind in KEPT)
        and (row.text or "").strip()
    ]  # fmt: skip
    kept = [str(row.text) for row in texts if row.kind in KEPT]
    critiques = [str(row.text) for row in texts if row.kind not in KEPT]
    rated = rating(rows, inference.user)
    implied = (
        model.reward(values) if model is not None and values and rated is None and not critiques else None
    )
    worth = rated if rated is not None else implied
    target, origin, rank = None, COMMENTS, 3
    if kept and CORRECTIONS in sources:
        target, origin, rank = kept[-1], CORRECTIONS, 0
    elif kept:
        return "corrected, and corrections are not asked for"
    elif rated is not None and rated >= GOOD and not critiques and RATINGS in sources:
        target, origin, rank = inference.output, RATINGS, 1
    elif implied is not None and implied >= GOOD and SIGNALS in sources:
        target, origin, rank = inference.output, SIGNALS, 2
    elif not critiques and (rated is None or rated >= GOOD):
        return "without a word of people"
    if isinstance(target, str) and not target.strip():
        return "with an empty answer"
    inputs = slot_values(slots, inference.inputs)
    if inputs is None:
        names = ", ".join(sorted(inference.inputs)) or "none"
        return f"whose inputs ({names}) do not fill the slots of the prompt ({', '.join(sorted(slots))})"
    if not inputs:
        return "without inputs"
    return _Candidate(inference, inputs, target, critiques, worth, origin, rank)


# Writing


def _split(
    kept: Sequence[_Candidate], wanted: RowChoices, notes: list[str]
) -> dict[str, list[dict[str, Any]]]:
    """The rows, which come oldest first, by split. A user is one group of each split."""
    people: dict[str, int] = {}

    def write_row(one: _Candidate, split: str) -> dict[str, Any]:
        who = one.inference.user or one.inference.session or one.inference.id
        return _row(one) | {
            "id": one.inference.id,
            GROUP: people.setdefault(f"{split} {who}", len(people) + 1),
        }

    if wanted.split == "users":
        made = {"": [write_row(one, "") for one in reversed(kept)]}
    else:
        ends, total = [], 0.0
        for share in SHARES.values():
            total += share
            ends.append(round(total * len(kept)))
        starts = [0, *ends[:-1]]
        made = {
            split: [write_row(one, split) for one in kept[start:end]]
            for split, start, end in zip(SHARES, starts, ends, strict=True)
        }
        notes.append("split: by time, the newest rows are the sealed test")
    if masked := sum(one.masked for one in kept):
        notes.append(f"masked: personal data in {quantity(masked, 'row')}; names are not recognised")
    return made


def _row(one: _Candidate) -> dict[str, Any]:
    values = dict(one.values)
    return {
        "input": values["input"] if values.keys() == {"input"} else values,
        **({} if one.target is None else {"target": one.target}),
        ANSWER: one.inference.output,
        CRITIQUES: list(one.critiques),
        **({} if one.worth is None else {WORTH: round(one.worth, 3)}),
        ORIGIN: one.origin,
    }


def _without_personal_data(one: _Candidate) -> _Candidate:
    """A row with what looks like personal data replaced in all its texts."""
    masked = replace(
        one,
        inference=replace(one.inference, output=mask_personal(one.inference.output)),
        values=_mask(one.values),
        target=None if one.target is None else mask_personal(one.target),
        critiques=[mask_personal(critique) for critique in one.critiques],
    )
    return masked if masked == one else replace(masked, masked=True)


def _mask(value: Any) -> Any:
    """A JSON value with what looks like personal data replaced: in its texts, its keys and its whole numbers. Of keys that become
    equal, the later ones get a number."""
    if isinstance(value, str):
        return mask_personal(value)
    if isinstance(value, int) and (shown := mask_personal(str(value))) != str(value):
        return shown
    if isinstance(value, Mapping):
        masked: dict[str, Any] = {}
        for key, inner in value.items():
            name = written = mask_personal(str(key))
            while written in masked:
                written = f"{name} {len(masked) + 1}"
            masked[written] = _mask(inner)
        return masked
    if isinstance(value, list | tuple):
        return [_mask(inner) for inner in value]
    return value


def _source(prompt: Prompt) -> str:
    """The prompt as a file of a task holds it."""
    if [message.role for message in prompt.messages] == [AUTO]:
        return prompt.source
    return json.dumps([m.as_object() for m in prompt.messages], ensure_ascii=False, indent=1)
