"""Tasks of several turns from the command line: every call is counted, the test is paid for in advance."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.test_contract import whet
from tests.serving import server_thread
from whet.types import Request

TOOLS = '''\
def weight(parcel: str) -> float:
    """Weight of a parcel in kilograms."""
    return {"A": 1.5, "B": 4.0, "C": 9.25}[parcel]
'''
TURNS = 3


def clerk(request: Request) -> str:
    """Guesses, unless the prompt says "look"; then it asks the tool and repeats what it heard."""
    parcel = re.findall(r"parcel ([ABC])", request.messages[1].content)[-1]
    if "look" not in request.messages[0].content:
        return "1.5"
    if len(request.messages) == 2:
        return f'<tool>{{"name": "weight", "arguments": {{"parcel": "{parcel}"}}}}</tool>'
    return f"<answer>{request.messages[-1].content}</answer>"


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("worlds") / "ledger.jsonl"


@pytest.fixture(scope="module")
def server(ledger: Path) -> Iterator[str]:
    with server_thread("--function", "tests.cli.test_worlds:clerk", "--ledger", str(ledger)) as base_url:
        yield base_url


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    task = tmp_path / "parcels"
    task.mkdir()
    (task / "tools.py").write_text(TOOLS)
    (task / "prompt.md").write_text("You weigh parcels.\n")
    (task / "task.yaml").write_text(
        "name: parcels\nprompt: prompt.md\ndata: data.jsonl\nreward: exact_match\n"
        f"environment: {{tools: tools.py, turns: {TURNS}}}\nmodels: {{task: openai/clerk}}\n"
    )
    weights = {"A": "1.5", "B": "4.0", "C": "9.25"}
    rows = [
        {"input": f"What weighs parcel {p} of load {i}?", "target": w}
        for i in range(8)
        for p, w in weights.items()
    ]
    (task / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def test_a_prompt_that_makes_the_model_use_its_tool_earns_more(folder: Path, server: str) -> None:
    found = {}
    for name, text in {"guess": "You weigh parcels.", "look": "Always look a parcel up."}.items():
        (folder / f"{name}.md").write_text(text + "\n")
        said = whet(folder, "evaluate", "parcels", "--prompt", f"{name}.md", "--base-url", server, "--json")
        assert said.returncode == 0, said.stderr
        found[name] = json.loads(said.stdout)["score"]["mean"]
    assert found["look"] == 1.0 and found["guess"] < 0.7


def test_a_run_counts_every_turn_and_stays_within_its_limit(folder: Path, server: str, ledger: Path) -> None:
    (folder / "parcels" / "prompt.md").write_text("Always look a parcel up.\n")
    before = len(ledger.read_text().splitlines()) if ledger.exists() else 0
    command = (
        "optimize",
        "parcels",
        "--method",
        "random_search",
        "--set",
        "n=3",
        "--base-url",
        server,
        "--json",
    )
    said = whet(folder, *command, "--max-calls", "200")
    assert said.returncode == 0, said.stderr
    result = json.loads(said.stdout)
    answered = Counter(json.loads(line)["status"] for line in ledger.read_text().splitlines()[before:])
    assert result["usage"]["calls"]["task"] == sum(answered.values()) <= 200
    assert result["best"]["test"]["mean"] == 1.0
    assert result["baseline"]["test"]["n"] * 2 <= result["usage"]["calls"]["task"]


def test_a_limit_that_cannot_pay_for_the_turns_of_the_test_is_refused(folder: Path, server: str) -> None:
    command = ("optimize", "parcels", "--method", "random_search", "--base-url", server)
    said = whet(folder, *command, "--max-calls", "40")
    assert said.returncode == 2 and not (folder / "runs").exists()
    needed = re.search(r"need (\d+)", said.stderr)
    assert needed is not None and int(needed[1]) > TURNS * 2 * 7
