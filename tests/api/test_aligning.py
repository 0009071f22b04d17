"""The rubric of a judge as the prompt of a task: what is written, what the reward is worth, and the way back."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import whet
from tests.command_line import whet_here
from tests.rewards.judging import FakeJudge, built
from whet import api
from whet.errors import UsageError
from whet.rewards import JUDGE, Judge
from whet.run import MemoryRun
from whet.task import load_task
from whet.types import Completion, Example

RUBRIC = "Long answers are good."


def write(folder: Path, n: int = 60, **judge: Any) -> Path:
    """A task whose judge likes long answers; the people who scored them like short ones."""
    rows = [
        {"input": f"question {i % (n // 2)}", "output": "word " * (1 + i % 9), "quality": 5 - (i % 9) // 2}
        for i in range(n)
    ]
    folder.mkdir()
    (folder / "prompt.md").write_text("Answer.\n\n{{input}}")
    (folder / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = {"rubric": RUBRIC, "human": "quality", **judge}
    task = {"name": "t", "prompt": "prompt.md", "data": "data.jsonl", "reward": {"judge": options}}
    (folder / "task.yaml").write_text(json.dumps(task))
    return folder


def judge_model(messages: Sequence[Any]) -> str:
    """Scores by length: the longer the better, or the shorter the better where the rubric says short."""
    rules, shown = (str(message.content) for message in messages)
    answer = re.findall(r"\[\[\w+\]\]\n(.*?)\n\[\[/", shown, re.S)[-1]
    long = min(5, 1 + (answer.count("word") - 1) // 2)
    score = 6 - long if "short" in rules.lower() else long
    return json.dumps({"explanation": "So.", "score": score})


def optimizer_model(messages: Sequence[Any]) -> str:
    return "<instruction>\nShort answers are good.\n</instruction>"


async def test_the_new_prompt_asks_what_the_judge_asks(tmp_path: Path) -> None:
    """Word by word: what is found for the rubric holds for the judge."""
    made = whet.judge_task(write(tmp_path / "t"), tmp_path / "judge")
    task = load_task(tmp_path / "judge")
    assert sum(made["rows"].values()) <= 60 and made["questions"] <= 30
    asked = FakeJudge(['{"explanation": "x", "score": 3}'])
    reward = built({"judge": {"rubric": RUBRIC, "reference": "ignore"}})
    example = Example("e", {"input": "question 3"}, None, {}, "question 3")
    await reward.grade(MemoryRun({JUDGE: asked}), example, Completion("word word "))
    shown = Judge.shows(example, "word word ")
    rules = task.prompt.messages[0].content
    assert rules.replace("<!-- whet:begin -->\n", "").replace("\n<!-- whet:end -->", "") == (
        asked.asked[0].messages[0].content
    )
    assert (task.prompt.messages[1].content, shown) == ("{{shown}}", asked.asked[0].messages[1].content)
    by_group: dict[object, set[str]] = {}
    for split in ("train", "validation", "test"):
        for one in getattr(task, split):
            by_group.setdefault(one.row["question"], set()).add(split)
    assert all(len(splits) == 1 for splits in by_group.values()), "answers to one input stay in one split"


@pytest.mark.long
def test_a_rubric_that_agrees_with_people_is_accepted_by_agreement(tmp_path: Path) -> None:
    whet.judge_task(write(tmp_path / "t", 120), tmp_path / "judge")
    result = whet.optimize(
        tmp_path / "judge", method="opro", lm=judge_model, optimizer_lm=optimizer_model, progress=False,
        settings={"steps": 1, "samples": 1}, run=tmp_path / "run",
    )  # fmt: skip
    assert result["improvement"]["promoted"], result["improvement"]["reason"]
    assert result["best"]["test"]["mean"] > 0.9 > 0.6 > result["baseline"]["test"]["mean"]
    assert not result.json.get("labels"), "the scores are no labels"
    assert result["plan"]["output_limit"] is None, "an answer is an explanation and a score"
    assert whet.aligned_rubric(tmp_path / "run") == "Short answers are good."
    done = whet_here(tmp_path, "align", "--take", "run")
    assert (done.returncode, done.stdout) == (0, "Short answers are good.\n")


def test_the_command_writes_the_folder_and_says_what_is_next(tmp_path: Path) -> None:
    write(tmp_path / "t")
    done = whet_here(tmp_path, "align", "t", "--out", "judge")
    assert done.returncode == 0, done.stderr
    assert "next: whet optimize judge" in done.stdout
    assert {path.name for path in (tmp_path / "judge").iterdir()} == {
        "task.yaml",
        "prompt.json",
        "data.jsonl",
    }


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "Name the task with the judge"),
        (("t",), "whet align TASK --out DIR"),
        (("t", "--out", "t"), "t"),
        (("few", "--out", "new"), "to align a judge takes 10 or more"),
        (("plain", "--out", "new"), "human: COLUMN"),
        (("t", "--out", "new", "--part", "nobody"), "judges with people's scores: judge"),
        (("t", "--take", "run"), "takes no other argument"),
        (("--take", "nowhere"), "nowhere"),
        (("slots", "--out", "new"), "Remove it"),
    ],
)
def test_what_cannot_be_used_is_refused(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    write(tmp_path / "t")
    write(tmp_path / "few", 10)
    write(tmp_path / "plain", human="nothing")
    write(tmp_path / "slots", rubric="Good is {{input}}.")
    if "plain" in arguments:
        task = json.loads((tmp_path / "plain" / "task.yaml").read_text())
        del task["reward"]["judge"]["human"]
        (tmp_path / "plain" / "task.yaml").write_text(json.dumps(task))
    done = whet_here(tmp_path, "align", *arguments)
    assert done.returncode == 2 and words in done.stderr, done.stderr
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("reply", "value"),
    [
        ('{"explanation": "x", "score": 4}', 1.0),
        ('{"score": 2}', 0.5),
        ("Score: 1", 0.25),
        ("Good!", 0.0),
        ('{"score": 9}', 0.0),
    ],
)
async def test_the_reward_is_how_near_both_scores_are(reply: str, value: float) -> None:
    reward = built({"human_score": {"scale": [1, 5]}})
    example = Example("e", {"shown": "x"}, "4", {}, "x")
    got = await reward.grade(MemoryRun(), example, Completion(reply))
    assert got.value == value
    assert (got.critique is None) == (value == 1.0)
    if 0 < value < 1:
        assert "The score must be 4" in str(got.critique)
    with pytest.raises(UsageError, match="needs a person's score from 1 to 5"):
        reward.check(Example("e", {"shown": "x"}, "many", {}, "x"))  # type: ignore[attr-defined]
    assert api.judge_task is whet.judge_task


def two_raters(folder: Path) -> Path:
    """Ann likes short answers and Bob long ones; both scored all of them and said why."""
    rows = [
        {
            "input": f"question {i}",
            "output": "word " * (1 + i % 9),
            "quality": 5 - (i % 9) // 2 if name == "Ann" else 1 + (i % 9) // 2,
            "who": name,
            "why": "Too much." if name == "Ann" else "",
        }
        for i in range(40)
        for name in ("Ann", "Bob")
    ]
    write(folder)
    (folder / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_raters_of_opposite_tastes_are_named_and_one_of_them_can_be_taken(tmp_path: Path) -> None:
    two_raters(tmp_path / "t")
    done = whet_here(tmp_path, "align", "t", "--out", "both", "--rater", "who", "--reason", "why")
    assert done.returncode == 0, done.stderr
    assert "The raters Ann and Bob put" in done.stdout and "--only Ann" in done.stdout
    made = whet.judge_task(tmp_path / "t", tmp_path / "ann", rater="who", reason="why", only="Ann")
    assert made["raters"] == [] and not any("opposite" in warning for warning in made["warnings"])
    rows = [json.loads(line) for line in (tmp_path / "ann" / "data.jsonl").read_text().splitlines()]
    assert {row["reason"] for row in rows} == {"Too much."} and len(rows) < 40
    done = whet_here(tmp_path, "align", "t", "--out", "one", "--only", "Ann")
    assert done.returncode == 2 and "--rater COLUMN" in done.stderr


def remembering_judge(messages: Sequence[Any]) -> str:
    """Scores in the middle, or as people scored an answer of the same length in its rubric."""
    rules, shown = (str(message.content) for message in messages)
    answer = re.findall(r"\[\[\w+\]\]\n(.*?)\n\[\[/", shown, re.S)[-1]
    seen = re.findall(r"\n((?:word ?)+)\n\[\[/\w+\]\]\nA person's judgement: (\d)", rules)
    like = [int(score) for text, score in seen if text.split() == answer.split()]
    return json.dumps({"explanation": "So.", "score": like[0] if like else 3})


def test_a_memory_goes_from_a_run_to_the_judge_and_judgements_can_be_taken_back(tmp_path: Path) -> None:
    whet.judge_task(write(tmp_path / "t", 120), tmp_path / "judge")
    result = whet.optimize(
        tmp_path / "judge", method="memalign", lm=remembering_judge, optimizer_lm=lambda messages: "No.",
        progress=False, run=tmp_path / "run",
    )  # fmt: skip
    assert result["improvement"]["promoted"], result["improvement"]["reason"]
    with pytest.raises(UsageError, match="found a memory beside the rubric"):
        whet.aligned_rubric(tmp_path / "run")
    done = whet_here(tmp_path, "align", "--take", "run", "--memory", "t/memory.json")
    assert (done.returncode, done.stdout) == (0, f"{RUBRIC}\n"), done.stderr
    memory = json.loads((tmp_path / "t" / "memory.json").read_text())
    key = memory["judgements"][0]["key"]
    done = whet_here(tmp_path, "align", "--forget", key, "--memory", "t/memory.json")
    assert done.returncode == 0 and "forgotten: 1 judgements, 0 guidelines" in done.stdout
    left = json.loads((tmp_path / "t" / "memory.json").read_text())
    assert len(left["judgements"]) == len(memory["judgements"]) - 1
    done = whet_here(tmp_path, "align", "--forget", key, "--memory", "t/memory.json")
    assert done.returncode == 2 and "holds no judgement" in done.stderr
    task = json.loads((tmp_path / "t" / "task.yaml").read_text())
    task["reward"]["judge"]["memory"] = "memory.json"
    (tmp_path / "t" / "task.yaml").write_text(json.dumps(task))
    assert load_task(tmp_path / "t").reward.memory.judgements  # type: ignore[attr-defined]
    (tmp_path / "t" / "memory.json").write_text("[]")
    with pytest.raises(UsageError, match=r"memory: the file .*memory.json cannot be read"):
        load_task(tmp_path / "t")
