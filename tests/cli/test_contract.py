"""The command line as its users and scripts see it: exit codes, JSON, resume, limits, refusals."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.command_line import whet_here
from tests.crash.world import write_task
from tests.serving import server_thread
from whet.cli.main import cli, main
from whet.engine.journal import Journal

PATIENCE = 600
METHOD = ("--method", "opro", "--set", "steps=2", "--set", "samples=2")


KEY = "sk-canary-4711"


def whet(cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return whet_here(cwd, *arguments, OPENAI_API_KEY=KEY)


def in_a_process(cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """As `whet`, in a process of its own: a lock of this one is no lock to itself."""
    env = {**os.environ, "OPENAI_API_KEY": KEY}
    return subprocess.run(
        [sys.executable, "-m", "whet", *arguments], cwd=cwd, capture_output=True, text=True, env=env
    )


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("server") / "ledger.jsonl"


@pytest.fixture(scope="module")
def server(ledger: Path) -> Iterator[str]:
    with server_thread(
        "--function", "tests.crash.answers:answer", "--ledger", str(ledger), "--latency", "0.01",
        "--error-500", "0.02", "--rate-429", "0.02", "--retry-after", "0.05", "--malformed", "0.01",
    ) as base_url:  # fmt: skip
        yield base_url


@pytest.fixture
def task(tmp_path: Path) -> Path:
    write_task(tmp_path / "task")
    return tmp_path


InProcess = Callable[..., tuple[int, str, str]]


@pytest.fixture
def in_process(task: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> InProcess:
    """The command line without a process of its own: exit code, standard output and standard error."""
    monkeypatch.chdir(task)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary-4711")

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["whet", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        output = capsys.readouterr()
        return int(end.value.code or 0), output.out, output.err

    return run


def hear_interrupts() -> None:
    """A shell that runs the tests in the background makes their children deaf to Ctrl-C."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def requests(ledger: Path, role: str) -> int:
    rows = [json.loads(line) for line in ledger.read_text().rpartition("\n")[0].splitlines()]
    return Counter(row["role"] for row in rows)[role]


def counted(result: dict[str, Any]) -> int:
    """Requests that a run says it made: calls, and what the server turned away."""
    usage = result["usage"]
    return sum(usage["calls"].values()) + sum(usage["refused"].values())


def url(server: str, role: str) -> str:
    return server.replace("/v1", f"/{role}/v1")


def test_optimize_writes_what_the_contract_names_and_returns_it_again_at_once(
    task: Path, server: str, ledger: Path
) -> None:
    command = ("optimize", "task", *METHOD, "--base-url", url(server, "first"), "--json")
    done = in_a_process(task, *command)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    folder = task / "runs" / "crash-opro-0"
    assert {p.name for p in folder.iterdir()} >= {"journal.sqlite", "result.json", "report.html", "best.md"}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    others = {
        path.name: oct(path.stat().st_mode)
        for path in folder.rglob("*")
        if path.is_file() and path.stat().st_mode & 0o077
    }
    assert not others
    stored = json.loads((folder / "result.json").read_text())
    for key in (
        "method",
        "seed",
        "status",
        "baseline",
        "best",
        "improvement",
        "usage",
        "history",
        "warnings",
    ):
        assert key in stored and stored[key] == result[key]
    assert result["status"] == "completed"
    for side in ("baseline", "best"):
        for split in ("validation", "test"):
            assert result[side][split].keys() >= {"mean", "low", "high", "n"}
    assert set(result["usage"]["calls"]) == {"task", "optimizer", "judge"}
    assert result["history"] and result["history"][0].keys() >= {"calls", "validation"}
    assert (folder / "best.md").read_text() == result["best"]["prompt"]
    assert "only" in result["best"]["prompt"]
    paid = requests(ledger, "first")
    assert paid == counted(result)
    again = whet(task, *command)
    printed = json.loads(again.stdout)
    assert printed.pop("recorded") and printed.pop("ended") and printed == result
    assert requests(ledger, "first") == paid


def test_kill_then_the_same_command_continues(task: Path, server: str, ledger: Path) -> None:
    command = (
        "optimize",
        "task",
        *METHOD,
        "--base-url",
        url(server, "killed"),
        "--json",
        "--concurrency",
        "2",
    )
    env = {**os.environ, "OPENAI_API_KEY": "sk-canary-4711"}
    process = subprocess.Popen(
        [sys.executable, "-m", "whet", *command], cwd=task, env=env, stdout=subprocess.DEVNULL
    )
    while requests(ledger, "killed") < 8 and process.poll() is None:
        time.sleep(0.01)
    process.kill()
    process.wait()
    before = requests(ledger, "killed")
    done = whet(task, *command)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    said, paid = counted(result), requests(ledger, "killed")
    assert before <= paid <= said <= paid + 3, "an intent that was written ahead counts, sent or not"


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_is_clean_and_resumable(task: Path, server: str, ledger: Path, how: signal.Signals) -> None:
    """The first process works against a slow endpoint, so that the signal meets it at work."""
    slow_ledger = task / "slow.jsonl"
    slow = ("--function", "tests.crash.answers:answer", "--ledger", str(slow_ledger), "--latency", "0.4")
    command = ("optimize", "task", *METHOD, "--json")
    env = {**os.environ, "OPENAI_API_KEY": "sk-canary-4711"}
    with server_thread(*slow) as base_url:
        process = subprocess.Popen(
            [sys.executable, "-m", "whet", *command, "--concurrency", "1", "--base-url", base_url],
            cwd=task, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            preexec_fn=hear_interrupts,
        )  # fmt: skip
        while slow_ledger.read_text().count("\n") < 2 and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(how)
        _, said = process.communicate(timeout=PATIENCE)
        paid = slow_ledger.read_text().count("\n")
    assert process.returncode == 128 + how
    assert "resumes" in said and "Traceback" not in said
    result = json.loads(whet(task, *command, "--base-url", url(server, how.name)).stdout)
    assert not [w for w in result["warnings"] if "in flight" in w]
    assert requests(ledger, how.name) + paid == counted(result)


@pytest.mark.parametrize("limit", [40, 30])
def test_the_budget_holds_and_the_best_so_far_is_returned(
    task: Path, server: str, ledger: Path, limit: int
) -> None:
    role = f"limit{limit}"
    done = whet(
        task, "optimize", "task", "--method", "protegi", "--base-url", url(server, role), "--json",
        "--max-calls", str(limit),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert requests(ledger, role) - sum(result["usage"]["refused"].values()) <= limit
    assert result["status"] in ("budget_exhausted", "completed")
    assert result["best"]["test"]["n"] == 2


def test_a_budget_too_small_is_refused_with_the_smallest_that_works(
    task: Path, server: str, ledger: Path
) -> None:
    command = ("optimize", "task", *METHOD, "--base-url", url(server, "small"), "--json")
    done = whet(task, *command, "--max-calls", "3")
    assert done.returncode == 2
    assert requests(ledger, "small") == 0
    assert not (task / "runs").exists()
    smallest = int(done.stderr.split("Give at least ")[1].split(".")[0])
    assert whet(task, *command, "--max-calls", str(smallest)).returncode == 0
    assert requests(ledger, "small") <= smallest


@pytest.mark.usefixtures("quick_retries")
def test_a_dead_endpoint_is_exit_code_3_and_resumable(task: Path, server: str) -> None:
    command = ("optimize", "task", *METHOD, "--json")
    done = whet(task, *command, "--base-url", "http://127.0.0.1:9/v1")
    assert done.returncode == 3
    assert "Run the same command again" in done.stderr and "Traceback" not in done.stderr
    stored = json.loads((task / "runs" / "crash-opro-0" / "result.json").read_text())
    assert stored["status"] == "stopped" and json.loads(done.stdout) == stored
    assert whet(task, *command, "--base-url", url(server, "revived")).returncode == 0


def test_two_processes_on_one_run_one_wins(task: Path, server: str) -> None:
    command = [
        sys.executable,
        "-m",
        "whet",
        "optimize",
        "task",
        *METHOD,
        "--base-url",
        url(server, "two"),
        "--json",
    ]
    env = {**os.environ, "OPENAI_API_KEY": "sk-canary-4711"}
    first = subprocess.Popen(
        command, cwd=task, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    while not (task / "runs" / "crash-opro-0" / "journal.sqlite-wal").exists() and first.poll() is None:
        time.sleep(0.005)
    second = subprocess.run(command, cwd=task, env=env, capture_output=True, text=True)
    first.communicate(timeout=PATIENCE)
    codes = {first.returncode, second.returncode}
    assert 0 in codes
    if second.returncode:
        assert second.returncode == 2 and "another process" in second.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["optimize", "nowhere"], "nowhere"),
        (["optimize", "task", "--method", "oprot"], 'Did you mean "opro"?'),
        (["optimize", "task", "--method", "opro", "--set", "step=2"], 'Did you mean "steps"?'),
        (["optimize", "task", "--method", "opro", "--set", "steps=many"], "steps must be a whole number"),
        (["optimize", "task", "--lm", "opanai/x"], 'Did you mean "openai"?'),
        (["optimize", "task", "--max-cost", "1"], "needs the price"),
        (["optimize", "task", "--max-calls", "-4"], "above 0"),
        (["optimize", "task", "--method", "tempera"], "needs `labels:`"),
        (["evaluate", "task", "--split", "tset"], 'Did you mean "test"?'),
        (["compare", "task", "--methods", "opro,nope"], "nope"),
        (["report", "nothing"], "There is no run"),
        (["optimise", "task"], "No such command"),
    ],
)
def test_bad_input_is_exit_code_2_with_a_remedy_and_writes_nothing(
    task: Path, in_process: InProcess, arguments: list[str], said: str
) -> None:
    code, _, errors = in_process(*arguments)
    assert code == 2, errors
    assert said in errors and "Traceback" not in errors
    assert not (task / "runs").exists()


def test_no_key_reaches_a_file_or_a_screen(task: Path, server: str) -> None:
    done = in_a_process(task, "optimize", "task", *METHOD, "--base-url", url(server, "key"))
    texts = [done.stdout, done.stderr]
    texts += [p.read_bytes().decode("latin1") for p in (task / "runs").rglob("*") if p.is_file()]
    assert len(texts) > 5
    assert not any("canary-4711" in text for text in texts)


def test_evaluate_compare_runs_report_and_methods(task: Path, server: str, in_process: InProcess) -> None:
    base = ("--base-url", url(server, "rest"))

    def answer(*arguments: str) -> Any:
        return json.loads(in_process(*arguments, "--json")[1])

    score = answer("evaluate", "task", *base)["score"]
    assert (
        score.items() >= {"mean": 0.0, "low": 0.0, "n": 2, "method": "Wilson", "answered": 2, "of": 2}.items()
    )
    limits = ("--max-calls", "60", "--seeds", "2")
    found = answer("compare", "task", "--methods", "opro,random_search", *limits, *base)
    assert [m["method"] for m in found["methods"]] == ["opro", "random_search"]
    assert len(found["runs"]) == 4
    assert all(sum(run["usage"]["calls"].values()) <= 60 for run in found["runs"])
    listed = answer("runs")["runs"]
    assert {row["status"] for row in listed} <= {"completed", "budget_exhausted", "unfinished"}
    assert len(listed) == 5
    report = answer("report", found["runs"][0]["run"])["report"]
    assert (task / report).read_text().startswith("<!doctype html>")
    names = {m["name"] for m in answer("methods")["methods"]}
    assert names >= {"rlprompt", "opro", "protegi", "grips", "random_search"}


def test_evaluate_warns_before_it_pays(task: Path, server: str, in_process: InProcess) -> None:
    """On stderr, where somebody may still stop it: a slot in a single brace goes to the model as it stands."""
    folder = task / "task"
    (folder / "prompt.md").write_text("Answer {tone}. {input}\n")
    code, _, errors = in_process("evaluate", "task", "--base-url", url(server, "warn"))
    assert code == 0 and "warning: task/prompt.md:1: {input} goes to the model" in errors


def test_another_limit_is_another_run_and_fork_reuses_answers(task: Path, server: str, ledger: Path) -> None:
    base = ("--base-url", url(server, "fork"))
    first = json.loads(whet(task, "optimize", "task", *METHOD, *base, "--json", "--out", "a").stdout)
    refused = whet(task, "optimize", "task", *METHOD, *base, "--out", "a", "--seed", "3")
    assert refused.returncode == 2
    assert "seed: 0 -> 3" in refused.stderr and "--fork" in refused.stderr
    paid = requests(ledger, "fork")
    forked = whet(
        task, "optimize", "task", *METHOD, *base, "--json", "--out", "b", "--fork", "a", "--max-calls", "500"
    )
    assert forked.returncode == 0, forked.stderr
    assert json.loads(forked.stdout)["best"]["test"] == first["best"]["test"]
    assert requests(ledger, "fork") - paid < paid


def test_help_has_examples_and_starts_quickly() -> None:
    for command in ("optimize", "evaluate", "compare", "methods", "report", "runs"):
        done = CliRunner().invoke(cli, [command, "--help"])
        assert done.exit_code == 0
        assert f"whet {command}" in done.output
    loaded = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", "import whet.cli.main"], capture_output=True, text=True
    ).stderr
    for heavy in ("torch", "numpy", "aiohttp", "httptools", "rich", "transformers"):
        assert f"| {heavy}\n" not in loaded


def test_an_evaluation_of_something_else_leaves_one_that_is_at_work_alone(task: Path, server: str) -> None:
    command = ("evaluate", "task", "--base-url", url(server, "evaluated"), "--json", "--out", "run")
    assert whet(task, *command).returncode == 0
    path = task / "run" / "journal.sqlite"
    journal = Journal(path)
    refused = in_a_process(task, *command, "--lm", "openai/other")
    journal.close()
    assert refused.returncode == 2 and "another process" in refused.stderr
    assert path.exists() and path.with_name("result.json").exists()
    assert whet(task, *command, "--lm", "openai/other").returncode == 0
