"""The answers to the rows of an evaluation, as a file for people: `rows.jsonl` beside its result.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from whet._util.storable import to_json
from whet.engine.result_json import EvaluationJSON
from whet.engine.run_folder import write_derived
from whet.types import Example, Rollout

ROWS = "rows.jsonl"


def write_evaluated_rows(folder: Path, examples: Sequence[Example], rollouts: Sequence[Rollout]) -> None:
    """Write the rows of an evaluation with answer and reward: first those without an answer, then the worst. Raises
    StorageError."""
    rows = {e.id: e for e in examples}
    worst = sorted(rollouts, key=lambda r: (r.answered, r.reward))
    lines = [to_json(_row(rows[r.example_id], r)) for r in worst]
    write_derived(folder / ROWS, b"".join(line + b"\n" for line in lines))


def _row(example: Example, rollout: Rollout) -> Mapping[str, object]:
    """A row: its fields, the target, the answer, and the reward of the answer; null where nobody answered."""
    row: dict[str, object] = {"id": example.id, "fields": example.values, "target": example.target}
    answer = (rollout.output, rollout.reward) if rollout.answered else (None, None)
    row |= {"answer": answer[0], "reward": answer[1], "parts": rollout.parts}
    if rollout.case:
        row["case"] = rollout.case
    if rollout.critique:
        row["critique"] = rollout.critique
    return row | {"error": rollout.error}


def name_rows(result: EvaluationJSON, folder: Path, shown: Path) -> EvaluationJSON:
    """The result of an evaluation with the place of its rows, which are in `folder`, as the user writes it: `shown`."""
    named = result.copy()
    named.pop("run", None)
    if (folder / ROWS).is_file():
        named["rows"] = str(shown / ROWS)
    return named
