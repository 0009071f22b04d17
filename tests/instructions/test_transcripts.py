"""What capable readers really answered, replayed: nothing of it is lost, nothing is read into it.

`transcripts/` holds requests of whole runs on simulated worlds with the answers of a capable model that knew nothing of this
project. The questions of later versions are worded differently; the answers keep their form.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from whet.instructions.answers import Known, understood
from whet.instructions.reader import is_copy
from whet.types import Completion

FOLDER = Path(__file__).parent / "transcripts"
EXCHANGES = [
    (path.stem, number, json.loads(line))
    for path in sorted(FOLDER.glob("*.jsonl"))
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
]
READINGS = [one for one in EXCHANGES if '"requirements"' in one[2]["request"]]


def test_there_are_whole_runs() -> None:
    assert len(READINGS) > 20 and len({name for name, _, _ in EXCHANGES}) > 1


@pytest.mark.parametrize(
    ("name", "number", "exchange"), READINGS, ids=lambda v: v if isinstance(v, str | int) else ""
)
def test_every_requirement_of_an_answer_is_understood(
    name: str, number: int, exchange: dict[str, str]
) -> None:
    request, answer = exchange["request"], exchange["answer"]
    known = [Known(key, text) for key, text in re.findall(r"(?m)^\[(i\d+)\] (.*)$", request)]
    critiques = re.findall(r"(?m)^\d+\. (.*)$", request)
    requirements, dismissed = understood(Completion(answer), known, len(critiques))
    stated = json.loads(answer[answer.index("{") : answer.rindex("}") + 1])["requirements"]
    assert {n for r in requirements for n in r.critiques} == {n - 1 for r in stated for n in r["critiques"]}
    assert len([r for r in requirements if r.violates]) == len(
        {r["violates"] for r in stated if r["violates"]}
    )
    assert len([r for r in requirements if not r.violates]) == len([r for r in stated if not r["violates"]])
    assert not any(is_copy(r.text, critiques) for r in requirements if r.text)
    assert dismissed.keys() <= set(range(len(critiques)))
