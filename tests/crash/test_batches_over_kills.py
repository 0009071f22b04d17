"""Kill -9 at every boundary of a batch: the next session finds it again, and nothing is begun or paid twice."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.serving import server_thread

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("every", [11, pytest.param(1, marks=pytest.mark.long)])
def test_a_kill_at_any_boundary_of_a_batch_pays_nothing_twice(tmp_path: Path, every: int) -> None:
    task = tmp_path / "task"
    task.mkdir()
    (task / "prompt.md").write_text("Answer.\n{{input}}\n")
    rows = [json.dumps({"input": f"question {n}", "target": "ok"}) for n in range(60)]
    (task / "data.jsonl").write_text("\n".join(rows))
    (task / "task.yaml").write_text("name: t\nprompt: prompt.md\ndata: data.jsonl\nreward: exact_match\n")
    ledger = tmp_path / "ledger.jsonl"
    with server_thread("--text", "ok", "--ledger", str(ledger)) as base_url:
        command = [sys.executable, "-m", "tests.crash.batch_driver", base_url, str(tmp_path), str(every)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    reports = json.loads(done.stdout)
    paid: dict[str, Counter[str]] = {}
    batched: dict[str, Counter[str]] = {}
    batches: dict[str, set[str]] = {}
    for line in ledger.read_text().splitlines():
        row = json.loads(line)
        paid.setdefault(row["role"], Counter())[row["digest"]] += 1
        if "batch" in row:
            batched.setdefault(row["role"], Counter())[row["digest"]] += 1
            batches.setdefault(row["role"], set()).add(row["batch"])
    reference = reports[0]["result"]
    # How many boundaries a session has depends on how often it looks for the batch, and on what a transaction holds.
    assert sum(report["killed"] for report in reports) * every >= 22
    for report in reports:
        place = f"{report['name']} {report['place']}"
        assert "error" not in report, report
        assert report["result"]["score"] == reference["score"], place
        assert len(batches[report["name"]]) == 1, place
        counts = paid[report["name"]]
        assert len(counts) == 18, place
        assert max(batched[report["name"]].values()) == 1, place
        assert counts.total() <= 18 + 1, (
            place
        )  # the first call of a session is made by itself, and may be in flight at a kill
