"""`whet transfer`: start and best prompt of a finished run with other models, paid once, the sealed test only where asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import whet
from tests.cli.test_compare import Whet, asked, paid, url, write_long_test
from tests.cli.test_compare import ledger as ledger
from tests.cli.test_compare import server as server
from tests.cli.test_compare import whet as command
from tests.crash.world import write_task
from whet.errors import UsageError

command = command
OPRO = ("--method", "opro", "--set", "steps=2", "--set", "samples=2", "--max-calls", "60")
RUN = "runs/crash-opro-0"


def openings(folder: Path) -> int:
    rows = list(folder.rglob("openings.sqlite"))
    if not rows:
        return 0
    from whet.engine.journal import read_journal_rows

    return int(read_journal_rows(rows[0], "SELECT COUNT(*) FROM openings")[0][0])


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WHET_STATE", str(tmp_path / "state"))
    return tmp_path / "state"


def test_both_prompts_are_tried_with_every_model_and_paid_once(
    tmp_path: Path, command: Whet, server: str, ledger: Path, state: Path
) -> None:
    write_task(tmp_path / "task")
    base = ("--base-url", url(server, "several"))
    assert command("optimize", "task", *OPRO, *base)[0] == 0
    before = openings(state)
    words = ("transfer", RUN, "--lm", "openai/other", "--lm", "openai/third", *base)
    code, out, err = command(*words, "--json")
    assert code == 0, err
    found = json.loads(out)
    assert [row["model"] for row in found["models"]] == ["openai/other", "openai/third"]
    for row in found["models"]:
        assert (row["baseline"]["mean"], row["best"]["mean"], row["gain"]["difference"]) == (0.0, 1.0, 1.0)
        assert row["baseline"]["n"] == row["best"]["n"] == 2
        assert row["gain"]["low"] <= 0.0 < row["gain"]["high"], "two rows are no evidence"
        assert paid(row) == 4
    assert found["split"] == "validation" and openings(state) == before
    assert asked(ledger, "several")["other"] == asked(ledger, "several")["third"] == 4
    assert json.loads(command(*words, "--json")[1])["models"] == found["models"]
    assert asked(ledger, "several")["other"] == 4
    table = command(*words)[1]
    assert "openai/third" in table and "openai/test (the run's)" in table and "+1.000" in table


def test_the_sealed_test_is_opened_where_the_user_asks_and_counted_once_a_model(
    tmp_path: Path, command: Whet, server: str, state: Path
) -> None:
    write_task(tmp_path / "task")
    base = ("--base-url", url(server, "sealed"))
    assert command("optimize", "task", *OPRO, *base)[0] == 0
    before = openings(state)
    words = ("transfer", RUN, "--lm", "openai/other", *base, "--split", "test", "--json")
    found = json.loads(command(*words)[1])
    assert openings(state) == before + 1 and "opening 2 of these test rows" in found["warnings"][0]
    command(*words)
    assert openings(state) == before + 1


def test_the_price_of_the_task_is_that_of_its_own_model_only(
    tmp_path: Path, command: Whet, server: str, caplog: pytest.LogCaptureFixture
) -> None:
    write_task(tmp_path / "task")
    file = tmp_path / "task" / "task.yaml"
    priced = "models: {task: {address: openai/test, price: {input: 1000000, output: 1000000}}}"
    file.write_text(file.read_text().replace("models: {task: openai/test}", priced))
    assert priced in file.read_text()
    base = ("--base-url", url(server, "priced"))
    assert command("optimize", "task", *OPRO, *base)[0] == 0
    words = ("transfer", RUN, *base, "--fresh", "--json")
    own = json.loads(command(*words, "--lm", "openai/test")[1])["usage"]
    assert own["cost_usd"] == own["input_tokens"] + own["output_tokens"] > 0 and "price_unknown" not in own
    other = json.loads(command(*words, "--lm", "openai/other")[1])["usage"]
    assert other["cost_usd"] is None and other["price_unknown"] == ["task"]
    assert "costs of openai/other" not in caplog.text


PRICED = ("--lm-option", "price.input=1000000", "--lm-option", "price.output=1000000")


def test_limits_hold_for_all_models_together_and_over_sessions(
    tmp_path: Path, command: Whet, server: str, ledger: Path
) -> None:
    write_task(tmp_path / "task")
    base = ("--base-url", url(server, "limited"))
    assert command("optimize", "task", *OPRO, *base)[0] == 0
    words = ("transfer", RUN, "--lm", "openai/other", "--lm", "openai/third", *base)
    for limit in ("--max-calls", "--max-task-calls"):
        code, _, err = command(*words, limit, "8")
        assert code == 2 and f"{limit} 8 does not pay for 4 answers of 2 models: they may take 20" in err
    code, _, err = command(*words, "--max-cost", "5")
    assert code == 2 and "needs the price of openai/other" in err
    assert asked(ledger, "limited").keys() <= {"test"}, "nothing was paid"
    whole = json.loads(command(*words, *PRICED, "--max-calls", "20", "--json")[1])
    tokens = whole["usage"]["input_tokens"] + whole["usage"]["output_tokens"]
    assert whole["usage"]["cost_usd"] == tokens and paid(whole) == 8
    shown = command(*words, *PRICED)[1]
    assert f"calls: 8, ${tokens:.4f}" in shown


@pytest.mark.parametrize("limit", ["--max-tokens", "--max-cost-usd"])
def test_tokens_and_dollars_hold_to_the_last_call_of_a_transfer(
    tmp_path: Path, command: Whet, server: str, ledger: Path, limit: str
) -> None:
    write_long_test(tmp_path / "task")
    role = f"held{limit}"
    base = ("--base-url", url(server, role))
    assert command("optimize", "task", *OPRO[:-1], "200", *base)[0] == 0
    bound = ("--lm-option", "max_tokens=20")
    words = ("transfer", RUN, "--lm", "openai/other", *base, *PRICED, *bound, "--split", "test")
    code, _, err = command(*words, limit, "600")
    assert code == 2 and f"{limit} 600" in err and "the same command with a larger limit continues" in err, (
        err
    )
    rows = [json.loads(line) for line in ledger.read_text().splitlines()]
    billed = [row for row in rows if row["role"] == role and row["model"] == "other"]
    assert 0 < sum(row["input_tokens"] + row["output_tokens"] for row in billed) <= 600
    code, out, err = command(*words, limit, "100000", "--json")
    assert code == 0, err
    found = json.loads(out)
    assert paid(found) == asked(ledger, role)["other"] == 60, "what was answered was not asked again"


def test_a_dry_run_plans_the_calls_of_each_model(
    tmp_path: Path, command: Whet, server: str, ledger: Path
) -> None:
    write_task(tmp_path / "task")
    base = ("--base-url", url(server, "planned"))
    assert command("optimize", "task", *OPRO, *base)[0] == 0
    code, out, err = command("transfer", RUN, "--lm", "openai/other", *base, "--dry-run", "--json")
    assert code == 0 and "plan: openai/other: 4 task calls" in err
    assert json.loads(out)["plans"][0]["calls"]["task"] == {"expected": 4, "most": 4}
    assert asked(ledger, "planned")["other"] == 0 and not (tmp_path / RUN / "transfer").exists()


def test_what_cannot_be_tried_is_refused_with_what_to_do(tmp_path: Path, command: Whet, server: str) -> None:
    write_task(tmp_path / "task")
    base = ("--base-url", url(server, "refused"))
    assert command("optimize", "task", *OPRO, *base)[0] == 0
    other = ("--lm", "openai/other", *base)
    assert "named twice" in command("transfer", RUN, *other, "--lm", "openai/other")[2]
    assert 'no split "tset"' in command("transfer", RUN, *other, "--split", "tset")[2]
    assert "no finished run" in _evaluated(command, base, other)
    rows = (tmp_path / "task" / "train.jsonl").read_text()
    (tmp_path / "task" / "train.jsonl").write_text(rows.replace("number 1", "number 11"))
    code, _, err = command("transfer", RUN, *other)
    assert code == 2 and "is not the task that" in err and "edited later" in err
    (tmp_path / "task" / "train.jsonl").write_text(rows)
    (tmp_path / "task").rename(tmp_path / "moved")
    code, _, err = command("transfer", RUN, *other)
    assert code == 2 and "Name it with --task FOLDER if it has moved" in err
    assert command("transfer", RUN, *other, "--task", "moved")[0] == 0


def _evaluated(command: Whet, base: tuple[str, ...], other: tuple[str, ...]) -> str:
    command("evaluate", "task", "--out", "alone", *base)
    return command("transfer", "alone", *other)[2]


def test_the_function_takes_models_that_are_functions_and_a_task_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def obeys(messages: Any) -> str:
        return "yes" if "better" in messages[0].content else "no"

    def never(messages: Any) -> str:
        return "no"

    rows = [{"input": f"row {i}", "target": "yes"} for i in range(30)]
    task = whet.Task.of("Answer.", data=rows, reward="exact_match")
    result = whet.optimize(
        task,
        lm=obeys,
        optimizer_lm=lambda messages: "<PROMPT>Answer better.</PROMPT>",
        method=whet.methods.opro.Config(steps=1, samples=1),
    )
    assert result.best.prompt.text == "Answer better.", "a test of this needs a run that found something"
    with pytest.raises(UsageError, match="does not record the folder of its task"):
        whet.transfer(result.run, [never])
    found = whet.transfer(result.run, [{"address": obeys}, never], task=task)
    first, second = found.models.values()
    assert first.difference == 1.0 and first.low > 0.0
    assert (second.baseline.mean, second.best.mean, second.difference) == (0.0, 0.0, 0.0)
    assert found.split == "validation" and found.usage.calls["task"] == 4 * first.best.n
    failing = max(row.user_text for row in task.validation)

    class Odd:
        """Fails for one row until it is mended."""

        name, version, asked, broken = "odd", 1, 0, True

        def __call__(self, messages: Any) -> str:
            self.asked += 1
            if self.broken and messages[-1].content == failing:
                raise ValueError("no capacity")
            return obeys(messages)

    odd, counts = Odd(), []
    for odd.broken in (True, False, False):
        (moved,) = whet.transfer(result.run, [odd], task=task, progress=False).models.values()
        counts.append((moved.best.n, odd.asked))
    (few, calls), (all_rows, more), last = counts
    assert few == all_rows - 1 and more == calls + 2 and last == (all_rows, more), (
        "what is missing is asked again"
    )
