"""What the gate is told, groups, openings, fresh rows and pairs, through the public functions and the command line."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import sys
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

import whet
from tests.api.world import PROMPT, Counted, right, rows, writer
from whet.cli import show
from whet.cli.main import main
from whet.engine.run_folder import read_header
from whet.methods import opro
from whet.stats import opening_alpha, smallest_gain
from whet.testing.server import serving

LABELS = ["positive", "negative"]
OPRO = opro.Config(steps=2, samples=2, examples=10, finalists=1)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def words(**more: Any) -> dict[str, Any]:
    known = {"data": rows(), "reward": right, "lm": Counted(), "optimizer_lm": writer, "method": OPRO}
    return {**known, "budget": whet.Budget(calls=1000), **more}


def grouped(n: int = 30) -> list[dict[str, Any]]:
    return [{**row, "user": f"u{i % n}"} for i, row in enumerate(rows(30))]


def test_rows_of_one_group_stay_in_one_split_and_are_clusters_of_the_gate() -> None:
    task = whet.Task.of(PROMPT, data=grouped(), reward="exact_match", group="user")
    homes = [{e.group for e in split} for split in (task.train, task.validation, task.test)]
    assert not (homes[0] & homes[1] or homes[0] & homes[2] or homes[1] & homes[2])
    assert len(set.union(*homes)) == 30 and len(task.train) > len(task.test) > 20
    result = whet.optimize(PROMPT, **words(data=grouped(), group="user"))
    assert result["improvement"]["clusters"] == len(homes[2]) < result["improvement"]["n"]
    for side in (result.baseline, result.best):
        assert side.test and side.validation
        assert (side.test.groups, side.validation.groups) == (len(homes[2]), len(homes[1]))


def test_the_interval_of_a_mean_is_over_groups(folder: Path) -> None:
    """Rows of a user are all right or all wrong: 90 rows of 9 users tell as much as 9 rows."""
    data = [
        {"input": f"row {user} {i}", "target": "ab"[user % 2], "user": str(user)}
        for user in range(30)
        for i in range(10)
    ]
    words: dict[str, Any] = {"data": data, "reward": "exact_match", "lm": lambda m: "a"}
    alone = whet.evaluate("Say {{input}}", **words).score
    score = whet.evaluate("Say {{input}}", group="user", **words).score
    assert alone.groups is None and score.groups == score.n // 10
    assert score.low is not None and score.high is not None and score.high - score.low > 0.4
    assert show.show_interval(asdict(score)).endswith(f"n={score.n} rows in {score.groups} groups")
    lost = {**asdict(score), "n": score.n - 3, "answered": score.n - 3}
    assert show.show_interval(lost).endswith(f"{score.n - 3} of {score.n} answered in {score.groups} groups")


def test_the_interval_of_a_mean_is_over_requests(folder: Path) -> None:
    """Copies of a row under other ids are one paid call: they are no evidence of their own."""
    data = [
        {"id": f"{n}-{k}", "input": f"row {n}", "target": "ab"[n % 2]} for n in range(10) for k in range(20)
    ]
    calls = []

    def model(messages: Any) -> str:
        calls.append(messages)
        return "a"

    words: dict[str, Any] = {"data": {"test": data}, "split": "test", "reward": "exact_match", "lm": model}
    score = whet.evaluate("Say {{input}}", **words).score
    assert (len(calls), score.n, score.groups, score.mean) == (10, 200, 10, 0.5)
    assert score.low is not None and score.high is not None and score.high - score.low > 0.4


@pytest.mark.parametrize(
    ("reward", "answers", "right"),
    [
        ("date", {"2024-05-03": "3 May 2024", "2024-05-04": "4 May 2024"}, 1.0),
        ("number", {"11.0": "11", "1234.0": "1,234.0"}, 1.0),
        ("exact_match", {"cat": "the cat", "dog": "dog house"}, 0.0),
    ],
)
def test_the_table_of_labels_says_what_the_reward_says(
    folder: Path, reward: str, answers: dict[str, str], right: float
) -> None:
    """Targets that are few and frequent are shown as labels, although the reward compares otherwise."""
    data = [{"input": f"{target} {n}", "target": target} for target in answers for n in range(12)]
    words: dict[str, Any] = {"data": {"test": data}, "split": "test", "reward": reward}
    found = whet.evaluate("Say {{input}}", lm=lambda m: answers[m[-1]["content"].split()[1]], **words)
    assert found.score.mean == right
    assert found.labels and found.labels["accuracy"] == right


def test_a_folder_that_holds_the_evaluation_of_another_prompt_is_no_answer(folder: Path) -> None:
    """`--out` names the folder: another prompt begins there anew, and the same one is the recorded result."""
    task = whet.Task.of(
        "Name it. {{input}}",
        data=[{"input": f"thing {n}", "target": "good"} for n in range(20)],
        reward="exact_match",
    )

    def model(messages: Any) -> str:
        return "good" if "GOOD" in messages[-1]["content"] else "bad"

    def score_of(prompt: str | None) -> float:
        return whet.evaluate(task=task, prompt=prompt, lm=model, run="place").score.mean

    assert [score_of(prompt) for prompt in ("GOOD {{input}}", "Nope {{input}}", "GOOD {{input}}", None)] == [
        1,
        0,
        1,
        0,
    ]


def test_bad_groups_are_refused_with_their_place(folder: Path) -> None:
    data = [*grouped(), {"input": "x", "target": "y", "User": 1}]
    with pytest.raises(whet.UsageError, match=r'data\[120\]: the row has no "user".*Did you mean "User"'):
        whet.Task.of(PROMPT, data=data, reward="exact_match", group="user")
    splits = {"train": grouped()[:60], "test": [{**r, "input": f"new {r['input']}"} for r in grouped()[:3]]}
    with pytest.raises(
        whet.UsageError, match=r'data\["test"\]\[0\]: the group "u0" .* stands also in train \(data'
    ):
        whet.Task.of(PROMPT, data=splits, reward="exact_match", group="user")
    with pytest.raises(whet.UsageError, match="groups for train, validation, test"):
        whet.Task.of(PROMPT, data=grouped(2), reward="exact_match", group="user")


@pytest.mark.parametrize(("one", "other"), [("caf\u00e9", "cafe\u0301"), ("one\ntwo", "one\r\ntwo")])
def test_a_row_in_another_form_of_the_same_text_is_the_same_row(one: str, other: str) -> None:
    """Only their bytes were compared, so that such a row stood in training and in the sealed test."""
    data = {
        "train": [{"input": f"{one} {n}", "target": "x"} for n in range(8)],
        "test": [{"input": f"{other} {n}", "target": "x"} for n in range(8)],
    }
    with pytest.raises(whet.UsageError, match="what a method has seen proves nothing"):
        whet.Task.of("Say it: {{input}}", data=data, reward="exact_match")


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("alpha: 0", "alpha is the chance"),
        ("alpha: 0.5", "below 0.5"),
        ("alpha: high", "must be a number"),
        ("minimum_effect: -0.1", "minimum_effect is a difference"),
        ("minimum_effect: 1", "below 1, the width"),
        ("group: who", 'the row has no "who"'),
    ],
)
def test_settings_of_the_gate_are_checked_with_file_and_line(folder: Path, line: str, fault: str) -> None:
    whet.Task.of(PROMPT, data=rows(), reward="exact_match").save(folder / "task")
    file = folder / "task" / "task.yaml"
    file.write_text(f"{file.read_text()}{line}\n")
    with pytest.raises(whet.UsageError, match=fault) as error:
        whet.Task.load(folder / "task")
    place = "data.jsonl:1" if "group" in line else f"task.yaml:{len(file.read_text().splitlines())}"
    assert place in str(error.value)


def test_settings_of_the_gate_reach_it_and_are_saved(folder: Path) -> None:
    task = whet.Task.of(
        PROMPT, data=grouped(), reward="exact_match", group="user", alpha=0.01, minimum_effect=0.2
    )
    task.save(folder / "saved")
    saved = whet.Task.load(folder / "saved")
    assert (saved.alpha, saved.minimum_effect, saved.group) == (0.01, 0.2, "user")
    assert saved.fingerprint == task.fingerprint and saved.test == task.test
    first = whet.optimize(PROMPT, **words(alpha=0.01))
    assert first["improvement"]["alpha"] == opening_alpha(0.01, 1) and first.promoted
    assert first["improvement"]["opening"] == 1 == first["test_openings"]
    second = whet.optimize(PROMPT, **words(minimum_effect=0.9))
    assert not second.promoted and "0.9" in second.improvement.reason
    for bad in ({"alpha": 0.7}, {"minimum_effect": 1.0}, {"alpha": float("nan")}):
        with pytest.raises(whet.UsageError):
            whet.optimize(PROMPT, **words(**bad))


def test_further_openings_spend_less_and_say_so(folder: Path) -> None:
    first = whet.optimize(PROMPT, **words())
    again = whet.optimize(PROMPT, **words())
    other = whet.optimize(PROMPT, **words(seed=1, run=folder / "elsewhere" / "run"))
    assert first.to_dict() == again.to_dict() and "opening 1 of these rows" in first.improvement.reason
    assert other["improvement"]["opening"] == 2
    assert other["improvement"]["alpha"] == opening_alpha(0.05, 2)
    assert (
        "opening 2 of these test rows" in other.improvement.reason and "new rows" in other.improvement.reason
    )
    test = dict(data=rows(), reward=right, lm=Counted(), split="test")
    assert not whet.evaluate(PROMPT, **test).warnings, (
        "a run has compared this prompt, so that its mean is no news"
    )
    for _ in range(2):
        assert "opening 3 of them" in whet.evaluate(f"By hand. {PROMPT}", **test).warnings[-1]
    more_rows = whet.optimize(
        PROMPT, **words(seed=2, data=[*rows(), {"input": "Dish 99 was good.", "target": "positive"}])
    )
    assert more_rows["improvement"]["opening"] == 4


def test_the_plan_of_an_evaluation_says_which_opening_another_prompt_is(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def planned(prompt: str) -> tuple[dict[str, Any] | None, str]:
        capsys.readouterr()
        test: dict[str, Any] = {"data": rows(), "reward": right, "lm": Counted(), "split": "test"}
        look = whet.evaluate(prompt, **test, dry_run=True)["plan"].get("look")
        said = capsys.readouterr().err
        whet.evaluate(prompt, **test)
        return look, said

    assert planned(PROMPT)[0] is None, "the first prompt compares nothing"
    for number in (1, 2):
        look, said = planned(f"Prompt {number}. {PROMPT}")
        without, after = (opening_alpha(0.05, n) for n in (number, number + 1))
        assert look == {"opening": number, "alpha_without": without, "alpha_after": after}
        assert f"this measurement is opening {number} of them" in said
        assert f"a later run tests at alpha {after:.2g} instead of {without:.2g}" in said
    assert planned(f"Prompt 2. {PROMPT}")[0] is None, "the same look again is no other"


def test_the_plan_says_which_opening_it_is_and_what_that_can_show(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def planned(**more: Any) -> tuple[dict[str, Any], str]:
        capsys.readouterr()
        plan = whet.optimize(PROMPT, **words(**more), dry_run=True)["plan"]["promotion"]
        return plan, capsys.readouterr().err

    first, said = planned()
    assert (first["opening"], first["alpha"]) == (1, opening_alpha(0.05, 1)) and not first["hardly"]
    gain = smallest_gain(first["rows"], opening_alpha(0.05, 1))
    assert first["gain"] == gain and f": shows a gain of {gain:.2g} or more in 4 of 5 cases" in said
    assert said.count("4 of 5 cases") == 1 and "opening 1 of " in said and "warning" not in said
    done = whet.optimize(PROMPT, **words())
    assert (done["plan"]["promotion"]["opening"], done["improvement"]["opening"]) == (1, 1)
    second, said = planned(seed=1)
    assert second["opening"] == 2 and second["gain"] > first["gain"] and "opening 2 of " in said
    assert whet.optimize(PROMPT, **words(seed=1))["improvement"]["alpha"] == second["alpha"]
    few = [*rows()[:12], *rows()[60:72]]
    for seed in range(8):
        whet.evaluate(
            f"{seed} {PROMPT}",
            data={"train": few[:9], "test": few[9:]},
            reward=right,
            lm=Counted(),
            split="test",
        )
    hardly, said = planned(data={"train": few[:9], "test": few[9:]})
    assert hardly["opening"] > 2 and (hardly["hardly"] or not hardly["possible"])
    assert "warning: " in said and "fresh" in said
    advice = whet.advise(whet.Task.of(PROMPT, data=rows(), reward=right), lm=Counted())
    assert advice["test"]["power"] in planned(seed=3)[1]
    assert advice["test"]["opening"] > 2 and any("fresh test rows" in step for step in advice["first"])


def test_a_new_split_that_unseals_rows_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    begun = whet.optimize(PROMPT, **words())
    moved = whet.optimize(PROMPT, **words(splits={"seed": 1}))
    first, second = [w for w in moved.warnings if "earlier run" in w]
    assert "rows to learn from were sealed test rows" in first and "splits" in first
    assert "sealed test rows were learned from in an earlier run (" in second and str(begun.run) in second
    assert moved["test_rows_seen"] == int(second.split()[0]) and moved["test_rows_seen_by"] == str(begun.run)
    assert first in (moved.run / "report.html").read_text()


def test_compared_methods_open_the_test_once_and_stand_in_pairs() -> None:
    compared = whet.compare(
        PROMPT,
        [OPRO, "random_search"],
        seeds=2,
        reader="none",
        **{k: v for k, v in words().items() if k != "method"},
    )
    tested = [run["improvement"] for run in compared.runs if run["best"]["id"] != run["baseline"]["id"]]
    assert {one["opening"] for one in tested} == {1} and 0 < len(tested) < 4
    assert {one["alpha"] for one in tested} == {opening_alpha(0.05, 1) / 4}
    assert {run["improvement"]["opening"] for run in compared.runs} == {0, 1}, (
        "one that found nothing opens nothing"
    )
    (pair,) = compared["pairs"]
    means = {name: row["test_mean"] for name, row in compared.methods.items()}
    assert (pair["a"], pair["b"]) == ("opro", "random_search")
    assert pair["difference"] == pytest.approx(means["opro"] - means["random_search"])
    assert pair["low"] <= pair["difference"] <= pair["high"] and pair["p"] == pair["p_adjusted"]
    assert whet.optimize(PROMPT, **words(seed=7))["improvement"]["opening"] == 2


def test_a_compared_run_that_is_made_anew_is_a_further_opening(folder: Path) -> None:
    """Whoever deletes the run that was not promoted and compares again does not test it once more for nothing."""
    call = {k: v for k, v in words(budget=whet.Budget(calls=300)).items() if k != "method"}

    def openings() -> list[tuple[str, int]]:
        runs = whet.compare(PROMPT, [OPRO, "random_search"], reader="none", **call).runs
        return [(run["method"], run["improvement"]["opening"]) for run in runs]

    assert openings() == openings() == [("opro", 1), ("random_search", 1)]
    for number in (2, 2, 3):
        shutil.rmtree(next(folder.glob("runs/*/random_search-0")))
        assert openings() == [("opro", 1), ("random_search", number)]


def test_best_stands_against_its_control_on_the_same_rows() -> None:
    result = whet.optimize(PROMPT, **words(control="random_search"))
    (pair,) = result["pairs"]
    assert (pair["a"], pair["b"]) == ("opro", "control random_search")
    gap = result["best"]["test"]["mean"] - result["control"]["best"]["test"]["mean"]
    assert pair["difference"] == pytest.approx(gap)
    assert "In pairs, on the same rows" in (result.run / "report.html").read_text()


@pytest.mark.parametrize(("tries", "prompts"), [(1, 3), (2, 5)])
def test_the_control_draws_as_many_prompts_as_the_search_could_score(tries: int, prompts: int) -> None:
    """By hand: the search scores the start and two new prompts a step on 10 rows each. The validations of the start and of the
    best, 12 rows each, were paid once: one before the search, and one within it."""
    texts = itertools.count()

    def write(messages: list[whet.Message]) -> str:
        return f"<PROMPT>Be careful, as in version {next(texts)}.</PROMPT>"

    every = rows(20)
    data = {"train": every[:20], "validation": every[20:32], "test": every[32:60]}
    method = opro.Config(steps=tries, samples=2, examples=10, finalists=1)
    model = Counted()
    call = words(data=data, optimizer_lm=write, method=method, lm=model, control="random_search")
    result = whet.optimize(PROMPT, **call)
    assert result["usage"]["parts"]["run"]["calls"]["task"] == 12 + 10 * prompts + 12 + 2 * 28
    header = read_header(Path(result["control"]["run"]))
    assert header is not None and header["config"]["n"] == prompts


def test_every_place_says_what_run_and_control_took_each(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = Counted()
    call = words(lm=model, control="random_search", minimum_effect=0.9)
    result = whet.optimize(PROMPT, **call)
    parts = result["usage"]["parts"]
    own, other = (parts[name]["calls"]["task"] for name in ("run", "control"))
    assert own != other and own + other == result.usage.calls["task"] == model.calls
    page = text_of(result.run / "report.html")
    both = page.partition("This run and its control")[2].partition("In pairs")[0]
    assert f" {own} no" in both and f" {other} no" in both and f" {own + other} " not in both
    assert f"{other:,} of them the control" in page and "--control random_search" in page
    rows = {Path(row["run"]).name: row["calls"] for row in whet.runs()}
    optimizer = result.usage.calls["optimizer"]
    assert sorted(rows.values()) == sorted([own + optimizer, other]), "no call stands in two rows"
    show.result(result)
    assert (
        f"{own + other} task" in (said := capsys.readouterr().out) and f"the control: {other} calls" in said
    )


def test_added_rows_have_a_plan_and_their_calls_are_in_every_sum(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = Counted()
    call = words(lm=model, minimum_effect=0.9)
    before = whet.optimize(PROMPT, **call)
    capsys.readouterr()
    planned = whet.optimize(PROMPT, **call, more=fresh(50, 30), dry_run=True)
    assert planned.status == "planned" and model.calls == before.usage.calls["task"]
    assert "120 added rows, answered by both prompts: 240 task calls" in capsys.readouterr().err
    after = whet.optimize(PROMPT, **call, more=fresh(50, 30))
    assert "120 added rows, answered by both prompts: 240 task calls" in capsys.readouterr().err
    assert after.usage.calls["task"] == before.usage.calls["task"] + 240 == model.calls
    assert whet.runs()[0]["calls"] == sum(after.usage.calls.values())
    assert "240 of them the added rows" in text_of(after.run / "report.html")
    show.result(after)
    assert "the added rows: 240 calls" in capsys.readouterr().out
    again = whet.optimize(PROMPT, **call, more=[*fresh(50, 30), *fresh(150, 5)])
    assert again.usage.calls["task"] == after.usage.calls["task"] + 40 == model.calls, "no batch counts twice"


def text_of(page: Path) -> str:
    """What a page says, without its markup."""
    return " ".join(re.sub(r"<[^>]+>", " ", page.read_text()).split())


@pytest.mark.parametrize("control", ["opro", "bootstrap"])
def test_a_method_with_another_default_is_a_control_of_random_search(control: str) -> None:
    settings = {"n": 3, "finalists": 1}
    result = whet.optimize(PROMPT, **words(method="random_search", settings=settings, control=control))
    header = read_header(Path(result["control"]["run"]))
    assert result["control"]["method"] == control and header is not None
    assert header["config"]["examples"] == 50 and header["config"]["finalists"] == 1


@pytest.mark.parametrize(
    ("control", "more", "match"),
    [
        ("opro", {"lm": "embedded/encoder", "optimizer_lm": None, "labels": LABELS}, "role optimizer"),
        ("autoprompt", {}, "weights or gradients"),
    ],
)
def test_a_control_that_cannot_run_is_refused_before_its_run_is_paid(
    folder: Path, control: str, more: dict[str, Any], match: str
) -> None:
    model = Counted()
    settings = {"n": 3, "finalists": 1}
    call = words(lm=model, method="random_search", settings=settings, control=control)
    with pytest.raises(whet.UsageError, match=rf"^control={control}: .*{match}"):
        whet.optimize(PROMPT, **{**call, **more})
    assert model.calls == 0 and not list(folder.glob("runs/*"))


async def test_a_finished_run_says_that_it_is_recorded_and_that_its_endpoint_is_another_now(
    capsys: pytest.CaptureFixture[str],
) -> None:
    call = words(lm="openai/m", settings={"n": 2, "finalists": 1}, method="random_search", optimizer_lm=None)
    async with serving(lambda request: "positive") as one, serving(lambda request: "negative") as other:
        first = await whet.aoptimize(PROMPT, **call, base_url=one.base_url)
        assert "recorded" not in first and "no model was called" not in capsys.readouterr().err
        same = await whet.aoptimize(PROMPT, **call, base_url=one.base_url)
        said = f"finished on {same['ended']}; this is the recorded result, and no model was called"
        assert same["recorded"] and same["warnings"] == first["warnings"]
        assert said in capsys.readouterr().err and "base_url" not in said
        moved = await whet.aoptimize(PROMPT, **call, base_url=other.base_url)
        place = f"task at {one.base_url}, which is now {other.base_url}"
        assert place in moved["warnings"][-1] and place in capsys.readouterr().err
        assert not other.ledger.entries and moved["best"] == first["best"]
        again = await whet.aoptimize(PROMPT, **call, base_url=other.base_url, fresh=True)
        assert other.ledger.entries and again.run != first.run
    stored = json.loads((first.run / "result.json").read_text())
    assert "recorded" not in stored and "ended" not in stored


def fresh(first: int, n: int) -> list[dict[str, Any]]:
    return [{**row, "input": row["input"].replace("Dish ", f"Dish {first}")} for row in rows(n)]


def test_more_rows_are_tested_by_the_anytime_valid_test_and_paid_once(folder: Path) -> None:
    model = Counted()
    call = words(lm=model, minimum_effect=0.3, data=rows(6))
    sealed = whet.optimize(PROMPT, **call)
    assert not sealed.promoted
    paid = model.calls
    more = whet.optimize(PROMPT, **call, more=fresh(50, 1))
    assert more["improvement"]["test"] == "anytime" and more["improvement"]["rows"] == 4
    assert more["improvement"]["sealed"] == sealed["improvement"] and model.calls == paid + 8
    assert more["improvement"]["alpha"] == opening_alpha(0.05, 1), "fresh rows, one opening"
    (folder / "more.json").write_text(json.dumps([*fresh(50, 1), *fresh(60, 60)]))
    both = whet.optimize(PROMPT, **call, more=folder / "more.json")
    assert both["improvement"]["rows"] == 244 and both.promoted, both.improvement.reason
    assert both["improvement"]["alpha"] == more["improvement"]["alpha"], "all batches are one opening"
    assert model.calls == paid + 2 * 244
    assert whet.optimize(PROMPT, **call, more=folder / "more.json") == both and model.calls == paid + 2 * 244
    assert (
        whet.optimize(PROMPT, **call).to_dict()
        == both.to_dict()
        == json.loads((both.run / "result.json").read_text())
    )
    assert "Added rows" in (both.run / "report.html").read_text()
    with pytest.raises(whet.UsageError, match="already promoted"):
        whet.optimize(PROMPT, **call, more=fresh(80, 1))
    assert len(whet.runs()) == 1


def test_an_interrupted_batch_of_more_rows_pays_nothing_twice(folder: Path) -> None:
    class Dying(Counted):
        dies_at = 10**9

        def __call__(self, messages: list[whet.Message]) -> str:
            if self.calls >= self.dies_at:
                raise whet.ProviderError("gone", fatal=True)
            return super().__call__(messages)

    model = Dying()
    call = words(lm=model, minimum_effect=0.9, concurrency=1)
    sealed = whet.optimize(PROMPT, **call)
    paid, Dying.dies_at = model.calls, model.calls + 30
    with pytest.raises(whet.ProviderError):
        whet.optimize(PROMPT, **call, more=fresh(50, 10))
    assert json.loads((sealed.run / "result.json").read_text()) == sealed.to_dict()
    Dying.dies_at = 10**9
    more = whet.optimize(PROMPT, **call, more=fresh(50, 10))
    assert more["improvement"]["rows"] == 40 and model.calls == paid + 80
    assert more["more"]["usage"]["calls"]["task"] <= 82, "what was in flight when it ended, again"
    other = whet.optimize(PROMPT, **words(seed=5))
    assert other["improvement"]["opening"] == 2, "added rows are no opening of the test rows"


def test_missing_answers_to_added_rows_are_asked_for_again_within_the_limits(folder: Path) -> None:
    class Throttled(Counted):
        lost: tuple[str, ...] = ()

        def __call__(self, messages: list[whet.Message]) -> str:
            if any(text in messages[-1].content for text in self.lost):
                self.calls += 1
                raise whet.ProviderError("HTTP 503", status=503)
            return super().__call__(messages)

    model = Throttled()
    call = words(lm=model, minimum_effect=0.9, budget=whet.Budget(calls=1000, task_calls=285))
    whet.optimize(PROMPT, **call)
    added = fresh(50, 30)
    model.lost = tuple(row["input"] for row in added[:20])
    first = whet.optimize(PROMPT, **call, more=added)
    assert first["improvement"]["missing"] == 20
    said = [w for w in first["warnings"] if "20 of 120 rollouts" in w and "on added rows have no answer" in w]
    assert len(said) == 2 and all("HTTP 503" in w for w in said), "why, of both prompts"
    model.lost = ()
    again = whet.optimize(PROMPT, **call, more=added)
    assert again["improvement"]["missing"] == 0 and not any("added rows" in w for w in again["warnings"])
    assert again["usage"]["calls"]["task"] == first["usage"]["calls"]["task"] + 40, "each by both prompts"


def test_more_rows_that_are_not_fresh_are_refused_with_their_line(folder: Path) -> None:
    model = Counted()
    call = words(lm=model, minimum_effect=0.9)
    whet.optimize(PROMPT, **call)
    paid = model.calls
    (folder / "more.jsonl").write_text("".join(json.dumps(r) + "\n" for r in [*fresh(50, 1), rows()[0]]))
    with pytest.raises(whet.UsageError, match=r"more\.jsonl:5: this input is already in the \w+ split"):
        whet.optimize(PROMPT, **call, more=folder / "more.jsonl")
    whet.evaluate(
        PROMPT, data={"train": rows(), "test": fresh(70, 2)}, reward=right, lm=Counted(), split="test"
    )
    with pytest.raises(
        whet.UsageError, match=r"more\[4\]: an earlier run has tested or learned from this row"
    ):
        whet.optimize(PROMPT, **call, more=[*fresh(50, 1), *fresh(70, 1)])
    with pytest.raises(whet.UsageError, match=r"may take \d+ calls"):
        whet.optimize(PROMPT, **call, more=fresh(80, 500))
    assert model.calls == paid


def test_the_command_line_takes_them_all(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whet.Task.of(PROMPT, data=rows(), reward="exact_match").save(folder / "task")
    (folder / "more.jsonl").write_text(json.dumps(fresh(50, 1)[0]) + "\n")
    monkeypatch.setattr(
        sys, "argv", ["whet", "optimize", "task", "--alpha", "2", "--minimum-effect", "0.1", "--more", "more.jsonl",
                      "--lm", "scripted/x", "--json"]
    )  # fmt: skip
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2 and "alpha is the chance" in capsys.readouterr().err


@pytest.mark.parametrize("limit", [134, 200, 420])
def test_a_limit_bounds_run_and_control_together_and_their_sum_is_in_the_result(limit: int) -> None:
    model, optimizer = Counted(), Counted()

    def write(messages: list[whet.Message], request: Any = None) -> str:
        optimizer.calls += 1
        return writer(messages, request)

    more = {
        "lm": model,
        "optimizer_lm": write,
        "budget": whet.Budget(calls=limit),
        "control": "random_search",
    }
    result = whet.optimize(PROMPT, **words(**more))
    assert model.calls + optimizer.calls <= limit
    whole = result.usage.calls
    assert (whole["task"], whole["optimizer"]) == (model.calls, optimizer.calls)
    parts = result["usage"]["parts"]
    assert (
        parts["control"]["calls"] == result["control"]["usage"]["calls"]
        and parts["control"]["calls"]["task"] > 0
    )
    assert parts["run"]["calls"]["task"] + parts["control"]["calls"]["task"] == model.calls
    assert result["plan"]["control"]["kept"]["calls"] == (limit + 1) // 2


def test_a_limit_without_room_for_the_control_is_refused_before_anything_is_paid() -> None:
    model = Counted()
    with pytest.raises(
        whet.UsageError, match=r"budget\.calls=133 is too small.*the control run as much.*at least 134"
    ):
        whet.optimize(PROMPT, **words(lm=model, budget=whet.Budget(calls=133), control="random_search"))
    assert model.calls == 0


def test_a_control_that_comes_later_is_refused_where_nothing_is_left_for_it() -> None:
    call = words(budget=whet.Budget(calls=110))
    whet.optimize(PROMPT, **call)
    with pytest.raises(whet.UsageError, match="calls"):
        whet.optimize(PROMPT, **call, control="random_search")


SPLIT = {"train": rows()[:32], "validation": rows()[32:56], "test": rows()[56:]}


class Failing(Counted):
    """Fails on every other row of the sealed test for the candidate, until it is mended."""

    broken = True

    def __call__(self, messages: list[whet.Message]) -> str:
        text = " ".join(m.content for m in messages)
        if self.broken and "careful" in text and any(row["input"] in text for row in SPLIT["test"][::2]):
            self.calls += 1
            raise whet.ProviderError("HTTP 503", status=503)
        return super().__call__(messages)


def test_a_verdict_that_is_withheld_is_had_by_running_again_and_spends_nothing(folder: Path) -> None:
    model = Failing()
    first = whet.optimize(PROMPT, **words(lm=model, data=SPLIT))
    improvement = first["improvement"]
    assert improvement["withheld"] and not first.promoted and improvement["missing"] > 5
    assert (
        "no verdict" in first.improvement.reason and "Run the same command again" in first.improvement.reason
    )
    assert first.best.test is not None and first.best.test.answered == first.best.test.n < first.best.test.of
    assert f"({first.best.test.n} of {first.best.test.of} answered)" in str(first.best.test)
    model.broken, model.calls = False, 0
    again = whet.optimize(PROMPT, **words(lm=model, data=SPLIT))
    assert again.promoted and again.run == first.run and again["improvement"]["opening"] == 1
    assert model.calls == improvement["missing"], "only what was missing is asked for"
    other = whet.optimize(PROMPT, **words(seed=5, lm=model, data=SPLIT))
    assert other["improvement"]["opening"] == 2
    assert whet.optimize(PROMPT, **words(lm=model, data=SPLIT)).to_dict() == again.to_dict()


def test_without_a_ledger_the_result_is_kept_and_the_verdict_waits(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "file").write_text("no folder")
    good = os.environ["WHET_STATE"]
    monkeypatch.setenv("WHET_STATE", str(folder / "file"))
    model = Counted()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        first = whet.optimize(PROMPT, **words(lm=model))
    assert any("WHET_STATE" in str(one.message) for one in said) or first.status == "stopped"
    assert first.status == "stopped" and not first.promoted and "careful" in first.best.prompt.text
    assert "careful" in (first.run / "best.md").read_text() and first.best.test is None
    assert (
        "ledger of openings" in first["ended_by"] and "run the same command again" in first.improvement.reason
    )
    monkeypatch.setenv("WHET_STATE", good)
    paid = model.calls
    second = whet.optimize(PROMPT, **words(lm=model))
    assert second.promoted and second["improvement"]["opening"] == 1
    assert model.calls == paid + 48, "the search is not paid again"


def test_a_run_that_found_nothing_opens_nothing() -> None:
    def same(messages: list[whet.Message], request: Any = None) -> str:
        return "<PROMPT>Sort the review.</PROMPT>"

    barren = whet.optimize(PROMPT, **words(optimizer_lm=same))
    assert barren["improvement"]["opening"] == 0 and barren.best.id == barren.baseline.id
    assert barren.baseline.test is not None, "the mean of the start prompt alone is looked at"
    assert whet.optimize(PROMPT, **words(seed=1))["improvement"]["opening"] == 1


class FailingLater(Counted):
    """Fails on every third of the added rows for the candidate, until it is mended."""

    broken = True

    def __call__(self, messages: list[whet.Message]) -> str:
        text = " ".join(m.content for m in messages)
        if self.broken and "careful" in text and any(f"Dish 50{i} " in text for i in range(0, 60, 3)):
            self.calls += 1
            raise whet.ProviderError("HTTP 503", status=503)
        return super().__call__(messages)


def test_added_rows_that_nobody_answered_are_asked_for_again_and_open_nothing_more(folder: Path) -> None:
    model = FailingLater()
    call = words(lm=model, minimum_effect=0.3, data=rows(6), budget=whet.Budget())
    assert not whet.optimize(PROMPT, **call).promoted
    rows_to_add = fresh(50, 60)
    first = whet.optimize(PROMPT, **call, more=rows_to_add)
    held = first["improvement"]
    assert held["withheld"] and held["missing"] == 80 and held["rows"] == 240 and not first.promoted
    assert (first["more"]["best"]["answered"], first["more"]["best"]["of"]) == (160, 240)
    assert "no verdict" in held["reason"] and "give the same rows again" in held["reason"]
    model.broken, model.calls = False, 0
    again = whet.optimize(PROMPT, **call, more=rows_to_add)
    assert model.calls == 80, "only what was missing is asked for"
    assert again.promoted and again["improvement"]["missing"] == 0, again.improvement.reason
    assert again["improvement"]["alpha"] == opening_alpha(0.05, 1), (
        "the verdict that was withheld spent nothing"
    )
    assert again["more"]["best"]["answered"] == again["more"]["best"]["of"] == 240
    assert whet.optimize(PROMPT, **call, more=rows_to_add) == again and model.calls == 80


def test_the_copy_of_a_prompt_without_markers_is_the_prompt_that_the_run_compared(folder: Path) -> None:
    result = whet.optimize(PROMPT, **words(data=SPLIT))
    assert result.promoted
    (folder / "prompt.txt").write_text(result.best.prompt.plain + "\n")
    call = {"data": SPLIT, "reward": right, "lm": Counted(), "split": "test"}
    copied = whet.evaluate(PROMPT, prompt=folder / "prompt.txt", **call)
    assert not [text for text in copied.warnings if "opening" in text]
    other = whet.evaluate(PROMPT, prompt="Another one, careful.\nReview: {{input}}", **call)
    assert any("opening 2 of them" in text for text in other.warnings)


@pytest.mark.parametrize(
    ("models", "said"),
    [
        ({"lm": "embedded/encoder", "method": "bootstrap"}, r"cannot generate text.*Give labels="),
        (
            {"optimizer_lm": "embedded/encoder"},
            r"has the role optimizer and cannot generate text.*optimizer_lm=",
        ),
    ],
)
def test_a_model_that_writes_nothing_is_refused_before_there_is_a_run(
    folder: Path, models: dict[str, Any], said: str
) -> None:
    pytest.importorskip("torch")
    with pytest.raises(whet.UsageError, match=said):
        whet.optimize(PROMPT, **words(**models))
    with pytest.raises(whet.UsageError, match="cannot generate text"):
        whet.evaluate(PROMPT, data=rows(), reward=right, lm="embedded/encoder")
    assert not list(folder.glob("**/journal.sqlite")) and whet.runs() == []


@pytest.mark.parametrize(
    ("minimum", "said"), [(0.5, None), (0.9, "about [0-9]+ independent test rows, and there are 24")]
)
def test_a_gain_beyond_the_scale_of_the_reward_is_out_of_reach_and_the_rows_are_counted(
    folder: Path, capsys: pytest.CaptureFixture[str], minimum: float, said: str | None
) -> None:
    plan = whet.optimize(PROMPT, **words(minimum_effect=minimum), dry_run=True)["plan"]["promotion"]
    shown = capsys.readouterr().err
    assert ("rows_for_scale" in plan) == (said is not None) == ("no gain that the reward allows" in shown)
    if said is not None:
        assert re.search(said, shown) and plan["rows_for_scale"] > plan["rows"]
        assert (
            smallest_gain(plan["rows_for_scale"], plan["alpha"])
            <= 1 - minimum
            < smallest_gain(24, plan["alpha"])
        )
