"""A task folder out of live traffic: what people corrected are its rows.

A row is an inference that a person corrected: its inputs, the newest correction as the target, the answer that was given, and the
comments and reasons of people as `critiques`. Rows of one user, or else of one session, are one group, which has a number and no
name. Of somebody who is being
forgotten there is nothing; a folder that was written before is a copy, which nobody but its owner can delete.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from whet.errors import UsageError, quantity
from whet.prompt import Prompt
from whet.task import ImportedData, NewTaskChoices, StartedTask, check_folder, start_task
from whet_client.prompt.document import AUTO
from whet_client.records import KINDS
from whet_live.registry import Registry
from whet_live.traffic import Filter, StoredFeedback, StoredInference, Traffic

MOST = 1000
GROUP, CRITIQUES, ANSWER = "who", "critiques", "answer"
PEOPLE = ("user", "annotator")
_PAGE = 200


def task_from_traffic(
    registry: Registry,
    traffic: Traffic,
    address: str,
    folder: str | Path,
    *,
    since: int | None = None,
    most: int = MOST,
    reward: str | None = None,
    lm: str | None = None,
) -> StartedTask:
    """Write a task folder of the prompt at an address from the newest `most` corrected inferences since a time (microseconds).

    With a `reward` that needs no target (a name or a Python file), what was only commented on is a row too. Raises UsageError
    for a folder that is not empty, a prompt that is not there, too few rows.
    """
    target = check_folder(folder)
    version = registry.get(address)
    prompt, left = version.prompt, Counter[str]()
    if prompt.parts:
        raise UsageError(
            f"{address} holds the prompts of a program, and its traffic does not say what each of them read."
        )
    rows: list[dict[str, object]] = []
    people: dict[str, int] = {}
    for stored in inferences_of(traffic, Filter(prompt=version.name, since=since)):
        row = _row(stored, traffic.about(stored.seq), prompt.slots)
        if isinstance(row, str):
            left[row] += 1
        elif "target" not in row and reward is None:
            left["commented on and not corrected"] += 1
        else:
            rows.append(row | {GROUP: people.setdefault(row[GROUP], len(people) + 1)})
        if len(rows) == most:
            break
    notes = [
        f"rows: {quantity(len(rows), 'answer')} of {version.name}, by version {version.version}'s prompt"
    ]
    notes += [f"left out: {number} {reason}" for reason, number in left.items()]
    if not rows:
        raise UsageError(
            f"No answer of {version.name} was corrected by people{_describe_left_out(left)}. Corrections come with "
            "`whet feedback add ID --correction TEXT`; comments alone make rows for a reward that needs no target: "
            "--reward reward.py."
        )
    material = ImportedData(
        {"": rows}, _source(prompt), None, {}, notes, columns=False, settings={"group": GROUP}
    )
    return start_task(target, material, NewTaskChoices(reward=reward, lm=lm))


def _describe_left_out(left: Counter[str]) -> str:
    return f" ({', '.join(f'{number} {reason}' for reason, number in left.items())})" if left else ""


def inferences_of(traffic: Traffic, wanted: Filter) -> Iterator[StoredInference]:
    """Newest first."""
    cursor = None
    while True:
        page = traffic.inferences(wanted, _PAGE, cursor)
        yield from page.rows
        cursor = page.next
        if cursor is None:
            return


def _row(
    stored: StoredInference, rows: Sequence[StoredFeedback], slots: frozenset[str] | set[str]
) -> dict[str, Any] | str:
    """The row of an inference, or why there is none."""
    inference = stored.inference
    texts = [
        one.feedback
        for one in rows
        if one.feedback.source in PEOPLE
        and KINDS[one.feedback.kind].explicit
        and (one.feedback.text or "").strip()
    ]
    corrections = [one.text for one in texts if one.kind == "correction"]
    critiques = [one.text for one in texts if one.kind != "correction"]
    if inference.error is not None:
        return "failed"
    if not corrections and not critiques:
        return "without a word of people"
    if not slots <= inference.inputs.keys():
        return "with inputs that do not fill the slots of the prompt"
    values = {name: inference.inputs[name] for name in sorted(slots)} if slots else dict(inference.inputs)
    if not values:
        return "without inputs"
    who = inference.user or inference.session or inference.id
    return {
        "id": inference.id,
        "input": values["input"] if values.keys() == {"input"} else values,
        **({"target": corrections[-1]} if corrections else {}),
        ANSWER: inference.output,
        CRITIQUES: critiques,
        GROUP: who,
    }


def _source(prompt: Prompt) -> str:
    """The prompt as a file of a task holds it."""
    if [message.role for message in prompt.messages] == [AUTO]:
        return prompt.source
    return json.dumps(
        [{"role": m.role, "content": m.content} for m in prompt.messages], ensure_ascii=False, indent=1
    )
