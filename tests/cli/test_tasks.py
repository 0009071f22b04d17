"""`whet tasks from-traffic`: what people corrected, rated and did as rows, the future sealed, and nothing of somebody erased."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import whet
from whet.errors import UsageError
from whet.prompt import Prompt
from whet_client.records import Feedback, Inference
from whet_live import forget_user, open_live
from whet_live.cli.tasks import tasks

HOUR = 3_600_000_000
START = 490_000 * HOUR

TEXT = "Answer {{q}}.\n<!-- whet:begin -->\n- Be polite.\n<!-- whet:end -->\n"
USERS = 6


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A prompt with 24 corrected answers to six users, one that was only commented on, one that failed, one in silence."""
    monkeypatch.chdir(tmp_path)
    address = f"sqlite:///{tmp_path / 'whet.db'}"
    monkeypatch.setenv("WHET_DATABASE_URL", address)
    answers = [
        Inference(
            "shop", 1, {"q": f"question {i}", "more": "x"}, f"bad {i}", f"i{i}", user=f"user-{i % USERS}"
        )
        for i in range(24)
    ]
    answers += [
        Inference("shop", 1, {"q": "only a comment"}, "hm", "c1", user="user-1"),
        Inference("shop", 1, {"q": "failed"}, "", "f1", error="timeout"),
        Inference("shop", 1, {"q": "silence"}, "fine", "s1"),
        Inference("shop", 1, {"other": "slot"}, "fine", "o1"),
        Inference("else", 1, {"q": "another prompt"}, "fine", "e1"),
    ]
    said = [Feedback("correction", f"i{i}", text=f"the right answer {i} has some words") for i in range(24)]
    said += [
        Feedback("correction", "i3", text="the newest answer to question three"),
        Feedback("correction", "i3", text="an older one, which arrives late", time=START),
        Feedback("comment", "i3", text="It is rude."),
        Feedback("rating", "i3", value=1.0),
        Feedback("follow_up", "i3", value=1.0, text="and what about that?"),
        Feedback("comment", "i4", text="A model wrote this.", source="model"),
        Feedback("correction", "f1", text="nothing"),
        Feedback("correction", "o1", text="nothing"),
        Feedback("comment", "c1", text="Too short."),
        Feedback("correction", "e1", text="nothing"),
    ]
    with open_live(address) as live:
        live.registry.create("shop", Prompt.parse(TEXT), author="ann", message="first", label="production")
        live.traffic.add(answers, said)
    return address


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(tasks, ["from-traffic", *arguments])


def made(*arguments: str) -> dict[str, Any]:
    done = invoke(*arguments, "--json")
    assert done.exit_code == 0, (done.output, done.exception)
    values: dict[str, Any] = json.loads(done.stdout)
    return values


def rows(folder: str) -> dict[str, dict[str, Any]]:
    files = sorted(Path(folder).glob("*.jsonl"))
    values = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    return {value["id"]: value for value in values}


def test_corrections_become_targets_and_comments_critiques(url: str) -> None:
    values = made("shop", "--out", "made", "--split", "users")
    assert sum(values["rows"].values()) == 24
    assert "left out: 1 failed" in values["chosen"]
    assert "left out: 1 commented on or rated, and without a target" in values["chosen"]
    written = rows("made")
    assert written["i3"]["target"] == "the newest answer to question three"
    assert written["i3"]["critiques"] == ["It is rude."] and written["i3"]["answer"] == "bad 3"
    assert written["i3"]["input"] == {"q": "question 3"} and written["i4"]["critiques"] == []
    task = whet.Task.load("made")
    assert task.prompt.source == TEXT and task.group == "who" and task.reward.name == "f1"
    assert len({row["who"] for row in written.values()}) == USERS
    assert "user-" not in Path("made", "data.jsonl").read_text(), "who a group is, is not written"
    splits = [{e.group for e in getattr(task, split)} for split in ("train", "validation", "test")]
    assert sum(map(len, splits)) == USERS


def test_a_liked_answer_without_a_text_is_left_out_and_counted(url: str) -> None:
    """It stood in the rows as an empty target, and the task was refused."""
    with open_live(url) as live:
        live.traffic.add(
            [Inference("shop", 1, {"q": "empty"}, "", "e9", user="user-9")],
            [Feedback("thumb", "e9", value=1.0)],
        )
    values = made("shop", "--out", "made", "--from", "corrections,ratings")
    assert "left out: 1 with an empty answer" in values["chosen"] and "e9" not in rows("made")


def test_nothing_of_an_erased_user_is_written(url: str) -> None:
    with open_live(url) as live:
        forget_user(live.database, "user-2", actor="ann")
    made("shop", "--out", "made")
    assert rows("made").keys() == {f"i{i}" for i in range(24) if i % USERS != 2}


def test_with_a_reward_that_needs_no_target_comments_are_rows_too(url: str) -> None:
    Path("own.py").write_text("def reward(example, output):\n    return float(not example['critiques'])\n")
    values = made("shop", "--out", "made", "--reward", "own.py", "--limit", "30")
    assert sum(values["rows"].values()) == 25 and rows("made")["c1"]["critiques"] == ["Too short."]
    assert "target" not in rows("made")["c1"]


def test_the_newest_rows_are_taken(url: str) -> None:
    assert sum(made("shop", "--out", "made", "--limit", "10")["rows"].values()) == 10
    with pytest.raises(UsageError, match="No answer of shop has a target"):
        raise invoke("shop", "--out", "later", "--since", "2090-01-01").exception or AssertionError()


def test_what_cannot_be_made_is_refused_and_nothing_written(url: str) -> None:
    with open_live(url) as live:
        live.registry.create(
            "quiet", Prompt.parse("Say {{q}}."), author="ann", message="first", label="production"
        )
        live.traffic.add(
            [Inference("quiet", 1, {"q": "a"}, "b", "q1")], [Feedback("comment", "q1", text="no")]
        )
    for arguments, said in (
        (("quiet",), "1 commented on or rated, and without a target"),
        (("nothing",), "nothing"),
        (("shop@staging",), "staging"),
    ):
        error = invoke(*arguments, "--out", "made").exception
        assert isinstance(error, UsageError) and said in str(error)
    assert not Path("made").exists()
    Path("full").mkdir()
    Path("full", "x").touch()
    assert "not empty" in str(invoke("shop", "--out", "full").exception)


@pytest.fixture
def rated(url: str) -> str:
    """Another prompt, "mail", with SIMULATED traffic of an hour for each answer: copied answers please, others do not, and every
    second answer is rated. The last answers repeat an input, hold a mail address, or were corrected."""
    answers, rows = [], []
    for n in range(200):
        user = f"user-{n % 50}"
        answers.append(
            Inference(
                "mail", 1, {"q": f"question {n}"}, f"answer {n}", f"m{n}", user=user, time=START + n * HOUR
            )
        )
        rows.append(Feedback("copy", f"m{n}", float(n % 4 < 2)))
        if n % 2 == 0:
            rows.append(Feedback("thumb", f"m{n}", float(n % 4 < 2 or n % 40 == 2)))
    more = [
        ("question 0", "again 0"),
        ("write to eva@example.org", "Eva has eva@example.org."),
        ("how long", "long"),
    ]
    for n, (question, output) in enumerate(more, 200):
        answers.append(
            Inference("mail", 1, {"q": question}, output, f"m{n}", user="user-0", time=START + n * HOUR)
        )
        rows.append(Feedback("thumb", f"m{n}", 1.0))
    rows.append(Feedback("correction", "m202", text="short"))
    with open_live(url) as live:
        live.registry.create("mail", Prompt.parse(TEXT), author="ann", message="first", label="production")
        live.traffic.add(answers, rows)
    return url


def test_the_sealed_split_is_the_future_and_no_input_stands_twice(rated: str) -> None:
    values = made("mail", "--out", "made")
    written = rows("made")
    number = {split: [int(json.loads(line)["id"][1:]) for line in Path("made", f"{split}.jsonl").read_text().splitlines()]
              for split in ("train", "validation", "test")}  # fmt: skip
    assert max(number["train"]) < min(number["validation"]) and max(number["validation"]) < min(
        number["test"]
    )
    assert "split: by time, the newest rows are the sealed test" in values["chosen"]
    inputs = [json.dumps(row["input"]) for row in written.values()]
    assert len(inputs) == len(set(inputs)) and "m200" in written and "m0" not in written, (
        "the newest one stands"
    )
    assert any(line.endswith("of an input that another row has") for line in values["chosen"])
    assert whet.Task.load("made").group == "who"


def test_what_people_say_rules_and_signals_fill_in(rated: str) -> None:
    made("mail", "--out", "made")
    written = rows("made")
    by_origin = {
        origin: [row for row in written.values() if row["from"] == origin]
        for origin in ("corrections", "ratings", "signals")
    }
    assert [row["target"] for row in by_origin["corrections"]] == ["short"]
    assert by_origin["ratings"] and all(
        row["target"] == row["answer"] and row["worth"] == 1 for row in by_origin["ratings"]
    )
    assert {int(row["id"][1:]) % 4 for row in by_origin["signals"]} == {1}, "copied and not rated"
    assert all(0.75 <= row["worth"] < 1 for row in by_origin["signals"])
    assert "m2" in written and "m6" not in written, "m2 was not copied and pleased; m6 was rated badly"


def test_personal_data_is_masked_unless_its_owner_keeps_it(rated: str) -> None:
    values = made("mail", "--out", "made")
    assert rows("made")["m201"]["input"] == {"q": "write to [a mail address]"}
    assert "eva@" not in json.dumps(rows("made")) and any(
        line.startswith("masked: ") for line in values["chosen"]
    )
    made("mail", "--out", "whole", "--unmasked", "--from", "ratings")
    assert rows("whole")["m201"]["target"] == "Eva has eva@example.org."
    assert {row["from"] for row in rows("whole").values()} == {"ratings"}


def test_inputs_that_are_one_without_personal_data_make_one_row(url: str) -> None:
    """With the newest target: two rows of one input would contradict each other, or stand in two splits."""
    answers, said = [], []
    for n in range(30):
        asked = {"q": f"My mail is user{n}@example.org, where is parcel {n % 15}?", "more": "x"}
        answers.append(Inference("shop", 1, asked, "hm", f"p{n}", user=f"u{n}", time=START + n))
        said.append(Feedback("correction", f"p{n}", text=f"target {n}", time=START + n))
    with open_live(url) as live:
        live.traffic.add(answers, said)
    made("shop", "--out", "made")
    written = {row["input"]["q"]: row for row in rows("made").values() if "parcel" in row["input"]["q"]}
    parcels = [row for row in rows("made").values() if "parcel" in row["input"]["q"]]
    assert len(parcels) == len(written) == 15
    assert {row["target"] for row in parcels} == {f"target {n}" for n in range(15, 30)}


def test_keys_and_numbers_are_masked_too(url: str) -> None:
    inputs = {"q": {"ann@example.org": 4111111111111111, "bob@example.org": 1.5, "on": True, "count": 12}}
    with open_live(url) as live:
        live.traffic.add(
            [Inference("shop", 1, inputs, "hm", "k1")],
            [Feedback("correction", "k1", text="2026-11-30 18:00")],
        )
    made("shop", "--out", "made")
    row = rows("made")["k1"]
    assert row["input"]["q"] == {
        "[a mail address]": "[a card number]",
        "[a mail address] 2": 1.5,
        "on": True,
        "count": 12,
    }
    assert row["target"] == "2026-11-30 18:00"


def test_too_few_ratings_make_no_rows_of_signals(url: str) -> None:
    assert any(line.startswith("signals: not calibrated") for line in made("shop", "--out", "made")["chosen"])
    with pytest.raises(UsageError, match='no rows from "rating"'):
        raise invoke("shop", "--out", "x", "--from", "rating").exception or AssertionError()


@pytest.mark.parametrize("name", ["input", "q"])
def test_the_one_input_of_an_import_fills_the_one_slot(tmp_path: Path, name: str) -> None:
    url = f"sqlite:///{tmp_path}/w.db"
    with open_live(url) as live:
        live.registry.create("shop", Prompt.parse(TEXT), author="eva", label="production")
        answers = [
            Inference("shop", 1, {name: f"question {i}"}, "x", id=f"a{i}", time=START + i) for i in range(9)
        ]
        corrections = [Feedback("correction", f"a{i}", text=f"answer {i}") for i in range(9)]
        live.traffic.add(answers, corrections)
    made("shop", "--database", url, "--out", str(tmp_path / "made"))
    assert rows(str(tmp_path / "made"))["a3"]["input"] == {"q": "question 3"}


def test_inputs_that_fill_no_slots_are_named_with_them(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/w.db"
    with open_live(url) as live:
        live.registry.create("shop", Prompt.parse(TEXT), author="eva", label="production")
        two = {"a": "1", "b": "2"}
        live.traffic.add([Inference("shop", 1, two, "x", id="a")], [Feedback("correction", "a", text="y")])
    done = invoke("shop", "--database", url, "--out", str(tmp_path / "made"))
    assert "1 whose inputs (a, b) do not fill the slots of the prompt (q)" in str(
        done.exception or done.output
    )
