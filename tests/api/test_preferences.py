"""From what people preferred to a proposed prompt: the whole way, through the command and through Python. People, task model and
optimizer model are the simulated ones of benchmarks/preferences.py."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from benchmarks.preferences import (
    PROMPT,
    simulated_optimizer,
    task_model,
    taste,
    thumbs,
    win_rate,
    words_and_marks,
)

import whet
from tests.command_line import whet_here
from whet import api
from whet.engine.run_folder import read_header
from whet.errors import SearchStopped, UsageError
from whet.rewards import build_reward
from whet.rewards.preference import Seen

pytest.importorskip("safetensors")


def search(**words: Any) -> dict[str, Any]:
    """The keywords of a small search with simulated models, which writes the same each time."""
    return {
        "lm": task_model, "optimizer_lm": simulated_optimizer(0), "progress": False,
        "settings": {"steps": 6, "samples": 3, "examples": 8}, **words,
    }  # fmt: skip


def declined(proposal: dict[str, Any]) -> bool:
    return False


def write_rows(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a prompt and 200 thumbs, in which the process works."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prompt.md").write_text(PROMPT)
    write_rows(tmp_path / "thumbs.jsonl", thumbs(0))
    return tmp_path


def coin(n: int = 200) -> list[dict[str, Any]]:
    rng = random.Random(0)
    return [row | {"thumb": rng.random() < 0.5} for row in thumbs(0, n)]


def learn(place: Path, *arguments: str) -> CompletedProcess[str]:
    return whet_here(place, "learn", "preferences", *arguments)


def test_two_hundred_thumbs_become_a_prompt_that_people_prefer(place: Path) -> None:
    shown = []

    def confirm(proposal: dict[str, Any]) -> bool:
        assert (place / "prompt.md").read_text() == PROMPT, "nothing is written before it is agreed to"
        shown.append(proposal["status"])
        return True

    result = whet.learn_preferences("prompt.md", "thumbs.jsonl", **search(confirm=confirm))
    assert (result.status, shown) == ("written", ["proposed"])
    assert result.accuracy.low is not None and result.accuracy.low > 0.5
    assert result["brier"] < result["base_brier"]
    assert result["run"]["improvement"]["promoted"]
    text = (place / "prompt.md").read_text()
    assert text == result["text"] == (place / result["folder"] / "proposal.md").read_text()
    assert win_rate(text, 0) > 0.7
    words, marks = words_and_marks(text)
    assert words >= 20 and marks <= 5, "where people never judged, it did not go"
    assert result["run"]["ended_by"].startswith("the alarm of the reward: a prompt would be the best one")
    (rang,) = [one for one in result.warnings if "--no-alarm (alarm=False)" in one]
    assert result["run"]["ended_by"] in rang and "Let people judge answers of this kind" in rang
    assert json.loads((place / result["folder"] / "preferences.json").read_text())["status"] == "written"


def counting(file: Path) -> Any:
    """The task model, which writes a line for each call into a file; where a .stop file lies beside it, the 120th call
    cancels the run."""

    async def model(messages: Sequence[Any]) -> str:
        with open(file, "a") as out:
            out.write(json.dumps(messages, default=str) + "\n")
        if file.with_suffix(".stop").exists() and len(file.read_text().splitlines()) == 120:
            file.with_suffix(".stop").unlink()
            (main,) = (task for task in asyncio.all_tasks() if task.get_name() == "whole run")
            main.cancel()
            await asyncio.sleep(0)
        return task_model(messages)

    return model


@pytest.mark.long
def test_a_call_that_was_stopped_goes_on_and_pays_nothing_twice(place: Path) -> None:
    asked = place.parent / "asked.jsonl"
    asked.with_suffix(".stop").touch()

    async def stopped() -> None:
        words = search(lm=counting(asked), concurrency=1, confirm=declined)
        run = asyncio.create_task(
            whet.alearn_preferences("prompt.md", "thumbs.jsonl", **words), name="whole run"
        )
        with pytest.raises(asyncio.CancelledError):
            await run

    asyncio.run(stopped())
    before = len(asked.read_text().splitlines())
    words = search(lm=counting(asked), concurrency=1, confirm=declined)
    first = whet.learn_preferences("prompt.md", "thumbs.jsonl", **words)
    lines = asked.read_text().splitlines()
    assert before < len(lines) and len(lines) - len({*lines}) <= 1, "only the call in flight was made again"
    words = search(lm=counting(asked), concurrency=1, confirm=declined)
    again = whet.learn_preferences("prompt.md", "thumbs.jsonl", **words)
    assert asked.read_text().splitlines() == lines, "what is finished is not paid again"
    assert first.status == again.status == "proposed" and first["text"] == again["text"]
    assert (place / "prompt.md").read_text() == PROMPT


def test_a_model_that_cannot_be_told_from_chance_stops_before_anything_is_paid(place: Path) -> None:
    write_rows(place / "coin.jsonl", coin())
    with pytest.raises(api.UnclearPreferences, match="includes chance") as error:
        whet.learn_preferences("prompt.md", "coin.jsonl", **search())
    assert error.value.result["beats_chance"] is False
    assert not (place / "runs").exists()
    done = learn(place, "prompt.md", "--from", "coin.jsonl", "--lm", "scripted/echo", "--json")
    assert (done.returncode, json.loads(done.stdout)["status"]) == (2, "refused")
    assert "Nothing was paid" in done.stderr and "continue with --anyway." in done.stderr
    assert not (place / "runs").exists()


@pytest.mark.long
def test_who_goes_on_anyway_is_warned(place: Path) -> None:
    result = whet.learn_preferences("prompt.md", coin(), **search(anyway=True, confirm=declined))
    assert any("was no better than chance" in warning for warning in result.warnings)


@pytest.mark.long
def test_the_alarm_stops_a_search_where_people_never_judged(place: Path) -> None:
    """Without it the search goes to answers that people dislike; the last prompt before it is kept."""
    rang, ran = (
        whet.learn_preferences("prompt.md", "thumbs.jsonl", **search(alarm=on, confirm=declined))
        for on in (True, False)
    )
    assert rang["run"]["ended_by"].startswith("the alarm of the reward: a prompt would be the best one")
    assert not ran["run"]["ended_by"].startswith("the alarm")
    assert not any("--no-alarm" in one for one in ran.warnings)
    assert ran["run"]["best"]["test"]["mean"] > rang["run"]["best"]["test"]["mean"]
    with_alarm, without = (win_rate(one["run"]["best"]["prompt"], 0) for one in (rang, ran))
    assert with_alarm > 0.7 > 0.3 > without


def test_the_command_says_what_the_reward_model_is_worth(place: Path) -> None:
    done = learn(place, "prompt.md", "--from", "thumbs.jsonl", "--lm", "scripted/echo", "--dry-run", "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["status"] == "planned" and said["beats_chance"] and said["accuracy"]["low"] > 0.5
    assert "agrees with" in done.stderr and "Brier" in done.stderr and "chance: 50%" in done.stderr
    assert not (place / "runs").exists()


@pytest.mark.long
@pytest.mark.parametrize("loss", ["ppo", "rebel"])
def test_a_policy_is_trained_with_the_reward_model(place: Path, loss: str) -> None:
    for package in ("torch", "transformers", "peft"):
        pytest.importorskip(package)
    done = learn(
        place, "prompt.md", "--from", "thumbs.jsonl", "--lm", "scripted/echo", "--policy", "embedded/tiny",
        "--method", "prl", "--set", f"loss={loss}", "--set", "steps=1", "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    run = json.loads(done.stdout)["run"]
    assert (run["method"], run["models"]["policy"]) == ("prl", "embedded/tiny")


@pytest.mark.long
@pytest.mark.parametrize("loss", ["dpo", "kto"])
def test_the_judgements_themselves_reach_the_method(place: Path, loss: str) -> None:
    """Rows of the search hold the judgements, sealed ones do not; the limit of the divergence is what agreement supports."""
    for package in ("torch", "transformers", "peft"):
        pytest.importorskip(package)
    rows = thumbs(0)
    pairs = [{"input": a["input"], "chosen": a["output"], "rejected": b["output"]} for a, b in pairs_of(rows)]
    source = write_rows(place / "judged.jsonl", pairs if loss == "dpo" else rows)
    done = learn(
        place, "prompt.md", "--from", source.name, "--lm", "scripted/echo", "--policy", "embedded/tiny", "--anyway",
        "--method", "dpo", "--set", f"loss={loss}", "--set", "steps=0", "--set", "checks=0", "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    run = result["run"]
    assert (run["method"], run["models"]["policy"]) == ("dpo", "embedded/tiny")
    settings = (read_header(place / run["run"]) or {})["config"]
    assert settings["kl_limit"] == pytest.approx(result["supported_kl"], abs=1e-3)
    task = place / result["folder"] / "judged-task"
    train, sealed = (
        [json.loads(line) for line in (task / f"{name}.jsonl").read_text().splitlines()]
        for name in ("train", "test")
    )
    assert any(row["pairs" if loss == "dpo" else "thumbs"] for row in train), "equal thumbs form no pair"
    assert not any({"pairs", "thumbs"} & row.keys() for row in sealed)


@pytest.mark.long
def test_a_result_of_trained_weights_leaves_the_prompt_and_names_their_folder(place: Path) -> None:
    """People prefer short answers, the task model writes long ones, and the trained model, a random one, short ones."""
    for package in ("torch", "transformers", "peft"):
        pytest.importorskip(package)
    from tests.rl.tiny_llama import save

    (place / "prompt.md").write_text("write {{input}}\n")
    rows = [
        {"input": f"a {i}", "chosen": "b c", "rejected": " ".join(["word"] * (20 + i % 7))} for i in range(60)
    ]
    result = whet.learn_preferences(
        "prompt.md", write_rows(place / "pairs.jsonl", rows), lm=lambda messages: " ".join(["word"] * 22), progress=False,
        policy=f"hf/{save(place / 'base')}", method="dpo", anyway=True, alarm=False,
        settings={"steps": 2, "checks": 1, "max_tokens": 3},
    )  # fmt: skip
    assert (result.status, (place / "prompt.md").read_text()) == ("trained", "write {{input}}\n"), result.get(
        "reason"
    )
    assert (place / result["weights"] / "adapter.safetensors").is_file()
    assert any("whet policy export" in warning for warning in result.warnings)


def pairs_of(rows: Sequence[dict[str, Any]]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Of two answers to one input the better one by the simulated taste first."""
    both = zip(rows[::2], rows[1::2], strict=True)
    return [(a, b) if taste(a["output"]) > taste(b["output"]) else (b, a) for a, b in both]


def test_without_a_model_a_dry_run_measures_the_reward_model_of_one_person(place: Path) -> None:
    write_rows(place / "one.jsonl", [row | {"user": "ann"} for row in thumbs(0)])
    done = learn(place, "prompt.md", "--from", "one.jsonl", "--person", "ann", "--dry-run", "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["status"], said["people"], "run" in said) == ("planned", 1, False)
    assert [one["person"] for one in said["by_person"]] == ["ann"] and not said["opposed"]


def test_the_command_ends_without_a_proposal_where_nothing_is_better(place: Path) -> None:
    done = learn(
        place, "prompt.md", "--from", "thumbs.jsonl", "--lm", "scripted/echo", "--optimizer-lm", "none",
        "--method", "grips", "--set", "iterations=1", "--set", "candidates=2",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Verdict of the reward model, which stands in for people" in done.stdout
    assert (
        "The start prompt already lies outside the answers on which the reward model was tested"
        in done.stdout
    )
    assert (place / "prompt.md").read_text() == PROMPT


def test_warnings_are_shown_before_the_diff(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = api.alearn_preferences

    async def with_simulated_models(prompt: str, feedback: Any, **words: Any) -> Any:
        return await whole(prompt, feedback, **search(confirm=words["confirm"]))

    monkeypatch.setattr(api, "alearn_preferences", with_simulated_models)
    done = learn(place, "prompt.md", "--from", "thumbs.jsonl", "--lm", "scripted/echo")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("warning: The search was stopped by the alarm") == 1
    assert done.stdout.index("warning: The search was stopped by") < done.stdout.index("--- prompt.md")
    assert "Nothing is written. The proposal is" in done.stdout


def test_the_text_of_a_prompt_is_refused_as_no_path(place: Path) -> None:
    for text in (PROMPT, "Answer in one word.", "{{input}}"):
        with pytest.raises(
            UsageError,
            match=r"prompt must be the path of the file.*this is a text.*Write the prompt to a file",
        ):
            whet.learn_preferences(text, "thumbs.jsonl", **search())


def test_how_ratings_were_read_is_said(place: Path) -> None:
    rows = [
        {"input": f"{n} {row['input']}", "output": row["output"], "rating": 6 if row["thumb"] else 2}
        for n, row in enumerate(thumbs(0))
    ]
    write_rows(place / "rated.jsonl", [*rows, {"input": "new", "output": "a", "rating": 4}])
    done = learn(place, "prompt.md", "--from", "rated.jsonl", "--scale", "1,7", "--dry-run", "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["up"] + said["down"] == 200 and (said["middle"], said["scales"]) == (1, [[1, 7]])
    up, down = said["up"], said["down"]
    assert f"Thumbs: {up} up, {down} down, 1 dropped in the middle; scale 1 to 7." in done.stderr
    with pytest.raises(UsageError, match="0 up, 30 down, 0 dropped in the middle; scale 1 to 7, and no two"):
        whet.learn_preferences("prompt.md", [row | {"rating": 2} for row in rows[:30]], scale=(1, 7))
    with pytest.raises(UsageError, match="lowest and the highest rating, such as 1 and 7"):
        whet.learn_preferences("prompt.md", rows, scale=(7, 1))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("prompt.md",), "Name the source of the judgements"),
        (("nowhere.md", "--from", "thumbs.jsonl"), "nowhere.md"),
        (("prompt.md", "--from", "nowhere.jsonl"), "nowhere.jsonl"),
        (("prompt.md", "--from", "thumbs.jsonl", "--features", "smell"), "unknown features 'smell'"),
        (("prompt.md", "--from", "thumbs.jsonl", "--person", "persom 1"), "Did you mean"),
        (("prompt.md", "--from", "thumbs.jsonl", "--answers", "thumbs.jsonl"), "--ask"),
        (("prompt.md", "--from", "thumbs.jsonl", "--ask", "3"), "--answers"),
        (("prompt.md", "--from", "sqlite:///w.db"), "--live-prompt"),
        (("prompt.md", "--from", "thumbs.jsonl", "--live-prompt", "a"), "live database"),
        (("prompt.md", "--from", "thumbs.jsonl", "--out", "thumbs.jsonl"), "exists already"),
        (("two.md", "--from", "thumbs.jsonl"), "has the slots a, b"),
        (("prompt.yaml", "--from", "thumbs.jsonl"), "does not change a prompt in YAML in place"),
        (("prompt.md", "--from", "comments.jsonl"), "There is no preference"),
        (("prompt.md", "--from", "ties.jsonl"), "12 ties"),
        (("prompt.md", "--from", "up.jsonl"), "All 30 thumbs are up"),
        (("prompt.md", "--from", "few.jsonl"), "too few"),
    ],
)
def test_what_cannot_be_used_is_refused_before_anything_is_written(
    place: Path, arguments: tuple[str, ...], words: str
) -> None:
    (place / "two.md").write_text("{{a}} {{b}}")
    (place / "prompt.yaml").write_text("- role: user\n  content: '{{input}}'\n")
    write_rows(place / "comments.jsonl", [{"input": "q", "output": "a", "comment": "Too long."}] * 3)
    tie = {"output_1": "a", "output_2": "b", "preferred": "tie"}
    write_rows(place / "ties.jsonl", [{"input": f"q{i}", **tie} for i in range(12)])
    write_rows(place / "up.jsonl", [{"input": f"q{i}", "output": "a", "thumb": "up"} for i in range(30)])
    write_rows(place / "few.jsonl", thumbs(0, 8))
    before = sorted(path.name for path in place.iterdir())
    done = learn(place, *arguments, "--lm", "scripted/echo")
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert sorted(path.name for path in place.iterdir()) == before


def test_questions_come_back_as_judgements(place: Path) -> None:
    """The rows that `--ask` writes are feedback once they are answered; the most informative stand first."""
    answers = [{"input": f"n{i}", "output": row["output"]} for i in range(30) for row in thumbs(i, 3)]
    write_rows(place / "answers.jsonl", answers)
    done = learn(
        place,
        "prompt.md",
        "--from",
        "thumbs.jsonl",
        "--ask",
        "12",
        "--answers",
        "answers.jsonl",
        "--out",
        "q.jsonl",
    )
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (place / "q.jsonl").read_text().splitlines()]
    assert len(rows) == 12 == len({row["input"] for row in rows}), (
        "an input is asked about twice only after all others"
    )
    bits = [row["information_bits"] for row in rows]
    assert bits == sorted(bits, reverse=True) and bits[0] > 0
    write_rows(
        place / "q.jsonl", [row | {"preferred": i % 2 + 1, "user": "ann"} for i, row in enumerate(rows)]
    )
    done = learn(
        place,
        "prompt.md",
        "--from",
        "thumbs.jsonl",
        "--from",
        "q.jsonl",
        "--lm",
        "scripted/echo",
        "--dry-run",
        "--json",
    )
    with_them = json.loads(done.stdout)
    assert with_them["rows"] == 212 and with_them["people"] == 10
    drawn = whet.preference_questions(answers, 3)
    assert [row["information_bits"] for row in drawn] == [None] * 3


def test_the_alarm_of_a_reward_by_hand(tmp_path: Path) -> None:
    from tests.rewards.test_preference import polite_pairs
    from whet.rewards.preference import fit_preferences

    (tmp_path / "m.safetensors").write_bytes(fit_preferences(polite_pairs(), "surface")[0].save())
    bounds = {"doubt": 0.5, "shortest": 10, "longest": 100}
    reward: Any = build_reward(
        {"preference": {"model": "m.safetensors", "alarm": bounds, "spread": 2}}, tmp_path, "task.yaml:1"
    )
    start = {"doubt": 0.2, "length": 50.0}
    assert reward.seen == Seen(0.5, 10, 100)
    assert reward.alarm({"doubt": 0.4, "length": 20.0}, start) == ""
    assert "disagree by 0.6 nats" in reward.alarm({"doubt": 0.6, "length": 20.0}, start)
    assert "101 characters" in reward.alarm({"doubt": 0.4, "length": 101.0}, start)
    assert reward.alarm({"doubt": 0.4, "length": 50.0}, {}) == ""
    assert "disagree" in reward.alarm({"doubt": 0.6, "length": 50.0}, {})
    assert "9 characters" in reward.alarm({"doubt": 0.4, "length": 9.0}, start)
    far = {"doubt": 3.0, "length": 500.0}
    assert reward.alarm({"doubt": 2.9, "length": 400.0}, far) == "", "no farther out than the start prompt"
    for wrong in ({"doubt": 1}, {**bounds, "doubt": -1}, {**bounds, "doubt": True}, 3):
        with pytest.raises(UsageError, match=r"task.yaml:1.*the option alarm has the numbers"):
            build_reward({"preference": {"model": "m.safetensors", "alarm": wrong}}, tmp_path, "task.yaml:1")
    with pytest.raises(UsageError, match="the option spread"):
        build_reward({"preference": {"model": "m.safetensors", "spread": 0}}, tmp_path, "task.yaml:1")
    assert str(SearchStopped("why")) == "why"
