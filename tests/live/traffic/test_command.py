"""`whet feedback`: what it prints, stores and refuses."""

from __future__ import annotations

import getpass
import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from whet.errors import UsageError, WhetError
from whet.prompt import Prompt
from whet.types import content_hash
from whet_client.records import Feedback, Inference
from whet_live.choices import load_pairwise_votes
from whet_live.cli.feedback import feedback
from whet_live.database import open_database
from whet_live.experiments import Experiments
from whet_live.registry import Registry
from whet_live.traffic import Traffic
from whet_live.traffic.behaviour import BehaviourModel
from whet_live.traffic.dataset import behaviour_of


@pytest.fixture
def traffic(sqlite_url: str) -> Traffic:
    """A store with one answer."""
    found = Traffic(open_database(sqlite_url))
    found.add([Inference("support", 2, id="i", output="Wait.", user="u")])
    return found


@pytest.fixture
def run(sqlite_url: str, traffic: Traffic) -> Any:
    """Run a command on that store: its standard output."""

    def command(*arguments: str, answer: str = "") -> str:
        done = CliRunner().invoke(feedback, ["--database", sqlite_url, *arguments], input=answer)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        assert done.exit_code == 0, done.output
        return done.stdout

    return command


def test_add_and_list(run: Any, traffic: Traffic) -> None:
    run(
        "add", "i", "--rating", "2", "--comment", "The total\x1b is wrong.", "--as", "ann", "--signal", "copy"
    )
    run("add", "late", "--thumb", "down", "--id", "key", "--source", "user", "--as", "bob")
    told = json.loads(
        run("add", "late", "--thumb", "down", "--id", "key", "--source", "user", "--as", "bob", "--json")
    )
    assert told == {"ids": ["key"], "accepted": 0, "duplicates": 1, "waiting": ["key"]}
    listed = run("list").splitlines()
    assert len(listed) == 3 and all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ  ", row) for row in listed)
    assert any("rating  2  support 2  ann" in row and "⟨U+001B⟩" in row for row in listed)
    assert any("thumb  0  waits for inference late  bob" in row for row in listed)
    found = json.loads(run("list", "--prompt", "support", "--kind", "rating", "--text", "TOTAL", "--json"))
    assert [row["value"] for row in found["feedback"]] == [2.0] and found["after"] is None
    page = json.loads(run("list", "--limit", "2", "--json"))
    rest = json.loads(run("list", "--limit", "2", "--after", page["after"], "--json"))
    assert len(page["feedback"]) + len(rest["feedback"]) == 3
    assert run("list", "--since", "2099-01-01") == ""


def test_a_choice_names_the_other_answer(run: Any, traffic: Traffic) -> None:
    traffic.add([Inference("support", 3, id="j", output="Wait a day.", user="u")])
    run("add", "i", "--choice", "1", "--over", "j", "--as", "ann")
    assert load_pairwise_votes(traffic.database, "support") == [(2, 3, 1.0)]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["add", "i"], "says nothing"),
        (["add", "i", "--choice", "1"], "choice and over go together"),
        (["add", "i", "--rating", "9"], "from 1 to 5"),
        (["add", "i", "--signal", "copied"], 'Did you mean "copy"'),
        (["add", "i", "--signal", "dwell"], "needs a value"),
        (["add", "i", "--signal", "copy=much"], "is not a number"),
        (["add", "i", "--thumb", "up", "--target-kind", "run"], "target_kind"),
        (["list", "--since", "yesterday"], "is no date"),
        (["list", "--after", "x"], "is no cursor"),
        (["list", "--prompt", "suport"], 'no prompt "suport". Did you mean "support"'),
        (["weights", "support"], "0 of 1 answers are rated"),
        (["weights", "nope"], 'No answers of "nope" are stored'),
        (["import", "nothing.jsonl"], "nothing.jsonl"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_with_the_reason(run: Any, arguments: list[str], reason: str) -> None:
    with pytest.raises(WhetError, match=reason):
        run(*arguments)


def test_import_reads_stores_and_tells(run: Any, traffic: Traffic, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    rows = [
        {"question": "q", "answer": "a", "rating": 4},
        {"model": "m"},
        {"inference_id": "i", "comment": "Odd."},
    ]
    path.write_text("\n".join(json.dumps(row) for row in rows))
    assert "Dry run" in run("import", str(path), "--prompt", "other", "--dry-run")
    assert traffic.find().rows == []
    assert "3 are new, 0 were stored before" in run(
        "import", str(path), "--prompt", "other", "--version", "3"
    )
    told = json.loads(run("import", str(path), "--prompt", "other", "--version", "3", "--json"))
    assert (told["accepted"], told["duplicates"], len(told["skipped"])) == (0, 3, 1)
    assert {(count.prompt, count.version) for count in traffic.counts()} == {("support", 2), ("other", 3)}


@pytest.mark.parametrize("is_newest_first", [False, True])
def test_import_joins_scores_of_a_session_with_the_last_answer_before_them(
    run: Any, traffic: Traffic, tmp_path: Path, is_newest_first: bool
) -> None:
    answers = [
        {"id": f"g{version}", "traceId": f"t{version}", "type": "GENERATION", "promptName": "s/h", "promptVersion": version,
         "input": "q", "output": "a", "startTime": f"2026-01-02T10:{minute}:00Z", "sessionId": "S"}
        for version, minute in ((1, "00"), (2, "05"), (3, "10"))
    ]  # fmt: skip
    scores = [
        {"id": f"at {minute}", "sessionId": "S", "traceId": None, "name": "user_feedback", "value": 1, "dataType": "NUMERIC",
         "source": "API", "timestamp": f"2026-01-02T10:{minute}:00Z"}
        for minute in ("06", "12")
    ]  # fmt: skip
    file = tmp_path / "langfuse.jsonl"
    rows = [*(reversed(answers) if is_newest_first else answers), *scores]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    run("import", str(file))
    assert {row.feedback.id: row.version for row in traffic.find().rows} == {"at 06": 2, "at 12": 3}


def test_import_takes_words_as_thumbs_once_they_are_ordered(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("question,answer,rating\nq,a,top\nr,b,flop\n")
    command = ["import", str(path), "--prompt", "words"]
    with pytest.raises(WhetError, match="'top' and 'flop', and nothing says which one is good"):
        run(*command)
    assert "4 are new" in run(*command, "--good", "top")
    listed = json.loads(run("list", "--prompt", "words", "--json"))
    assert sorted(row["value"] for row in listed["feedback"]) == [0, 1]


def test_import_says_the_scale_of_ratings_before_it_stores_any(
    run: Any, traffic: Traffic, tmp_path: Path
) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("question,answer,rating\nq,a,1\nr,b,8\n")
    tried = json.loads(run("import", str(path), "--prompt", "other", "--dry-run", "--json"))
    assert tried["notes"] == [
        "rating: a scale from 1 (worst) to 10 (best), kept as stars from 1 to 5, in 2 rows. "
        "If that is wrong, import with --scale rating=WORST..BEST."
    ]
    assert traffic.find().rows == []
    told = json.loads(run("import", str(path), "--prompt", "other", "--scale", "rating=0..8", "--json"))
    assert told["notes"] == [
        "rating: a scale from 0 (worst) to 8 (best), kept as stars from 1 to 5, in 2 rows."
    ]
    assert sorted(one.feedback.value or 0 for one in traffic.find().rows) == [1.5, 5.0]
    with pytest.raises(
        UsageError, match=r'--scale: "rating" is not NAME=SCALE\. Write for example --scale rating=1\.\.10'
    ):
        run("import", str(path), "--prompt", "other", "--scale", "rating")


def test_import_of_a_table_that_pandas_wrote(run: Any, traffic: Traffic, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("question,answer,score,comment\nq,a,1e-05,NaN\nr,b,NaN,Odd.\ns,c,1e+10,\n")
    told = json.loads(run("import", str(path), "--prompt", "other", "--json"))
    assert told["feedback"] == 3 and [note.partition(": ")[2][:40] for note in told["notes"]] == [
        "'score' is the text NaN here, in 1 row. ",
        "'comment' is the text NaN here, in 1 row",
    ]
    found = {(one.feedback.kind, one.feedback.value, one.feedback.text) for one in traffic.find().rows}
    assert found == {("score", 1e-05, None), ("comment", None, "Odd."), ("score", 1e10, None)}


def test_forget_and_expire_ask_first(run: Any, traffic: Traffic, sqlite_url: str) -> None:
    refused = CliRunner().invoke(feedback, ["--database", sqlite_url, "forget", "u"], input="n\n")
    assert refused.exit_code == 1 and traffic.inference("i") is not None
    assert "Nothing was deleted." in refused.stderr
    told = run("forget", "u", answer="y\n")
    assert told.startswith("Deleted: 1 answer, 0 rows of feedback.\n") and "runs/learn-" in told
    traffic.add([Inference("support", 2, id="j", time=1_750_000_000_000_000)])
    assert json.loads(run("expire", "2099-01-01", "--yes", "--json", "--as", "ann")) == {
        "inferences": 1,
        "feedback": 0,
        "spared": 0,
    }
    expired, forgotten = Registry(traffic.database).audit(limit=2).items
    assert (expired.action, expired.actor) == ("traffic.expire", "ann")
    assert expired.details == {"before": "2099-01-01T00:00:00.000000Z", "inferences": 1, "feedback": 0}
    assert (forgotten.action, forgotten.actor) == ("traffic.forget", getpass.getuser())
    assert forgotten.details == {"inferences": 1, "feedback": 0}
    assert run("forget", "U", "--yes").startswith('Nothing of "U" is stored.')
    assert CliRunner().invoke(feedback, ["--database", sqlite_url, "forget", "", "--yes"]).exit_code != 0


def test_expire_says_what_a_running_experiment_keeps(run: Any, traffic: Traffic) -> None:
    registry = Registry(traffic.database)
    for text in ("Answer {{q}}.", "Reply to {{q}}."):
        registry.create("support", Prompt.parse(text), author="ann", label="production")
    asked = {
        "prompt": "support",
        "label": "production",
        "arms": [{"version": 1}, {"version": 2}],
        "control": 1,
    }
    key = Experiments(traffic.database, registry).create({**asked, "goal": "thumb"}, author="ann").id
    traffic.add([Inference("support", 2, time=1_750_000_000_000_000, experiment=key)])
    told = run("expire", "2099-01-01", "--yes")
    assert told == (
        "Deleted: 1 answer, 0 rows of feedback.\nNot deleted until a running experiment ends: 1 older answer.\n"
    )
    assert json.loads(run("expire", "2099-01-01", "--yes", "--json"))["spared"] == 1


def test_weights_of_signals(run: Any, traffic: Traffic) -> None:
    asked = [Inference("p", 1, id=f"a{n}") for n in range(120)]
    said = [Feedback(kind="copy", target=f"a{n}", value=1.0) for n in range(0, 120, 2)]
    said += [
        Feedback(kind="thumb", target=f"a{n}", value=float(n % 2 == 0 or n % 5 == 0)) for n in range(100)
    ]
    traffic.add(asked, said)
    shown = run("weights", "p")
    assert "100 of 120 answers are rated, by 100 sources." in shown and "copy" in shown
    model = json.loads(run("weights", "p", "--json"))
    assert model["rated"] == 100 and model["weights"][0]["feature"] == "copy"
    assert model["weights"][0]["weight"]["low"] > 0
    frozen = behaviour_of(traffic.database, "p")
    assert BehaviourModel.from_json(model) == frozen
    traffic.add((), [Feedback(kind="thumb", target=f"a{n}", value=0.0, user="eva") for n in range(120)])
    copied = BehaviourModel.from_json(model).reward({"copy": 1.0})
    assert copied == frozen.reward({"copy": 1.0}) > behaviour_of(traffic.database, "p").reward({"copy": 1.0})


def test_rewards_of_versions(run: Any, traffic: Traffic) -> None:
    answers = [
        Inference("p", 1 + n % 2, id=f"a{n}", metadata={"plan": "pro" if n % 3 else "free"})
        for n in range(120)
    ]
    rows = [Feedback("copy", f"a{n}", 1.0) for n in range(0, 120, 2)]
    rows += [Feedback("thumb", f"a{n}", float(n % 4 > 0)) for n in range(100)]
    traffic.add(answers, rows)
    shown = run("rewards", "p", "--by", "metadata.plan")
    assert "(all)" in shown and "not calibrated" in shown and "free" in shown and "copy" in shown
    found = json.loads(run("rewards", "p", "--json"))
    assert [(one["version"], one["state"], one["rated"]) for one in found["rewards"]] == [
        (1, "calibrated", 50),
        (2, "calibrated", 50),
    ]
    assert found["rewards"][0]["naive"]["value"] == 0.5
    with pytest.raises(UsageError, match="makes no segments"):
        run("rewards", "p", "--by", "plan")


def test_patterns_of_failures(
    run: Any, traffic: Traffic, reader_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    traffic.add([], [Feedback("comment", "i", text="Too long.", user="\u202eann")])
    assert "1 wait for the reader" in run("patterns", "support")
    with pytest.raises(UsageError, match="--read needs a model"):
        run("patterns", "support", "--read")
    with pytest.raises(UsageError, match="Add --read"):
        run("patterns", "support", "--optimizer-lm", "openai/reader")
    with pytest.raises(UsageError, match="no prompt"):
        run("patterns", "suport")
    model = ("--optimizer-lm", "openai/reader", "--base-url", reader_url)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    shown = run("patterns", "support", "--read", *model)
    assert "k1  short" in shown and "1 critique, about answers to 1 user" in shown and "answers: i" in shown
    found = json.loads(run("patterns", "support", "--json", "--weeks", "2"))
    assert [(one["name"], one["critiques"], len(one["weeks"])) for one in found["patterns"]] == [
        ("short", 1, 2)
    ]
    assert found["calls"] == 1 and found["waiting"] == 0
    by = ("--as", "bob", "--reason", "clear")
    shown = run("patterns", "support", "--rename", "k1", "Too long", "--description", "All of them.", *by)
    assert "k1  Too long" in shown and "All of them." in shown and "named by bob" in shown
    with pytest.raises(UsageError, match='no pattern "k2"'):
        run("patterns", "support", "--merge", "k2", "k1", *by)
    for options, message in (
        (("--description", "Words."), "belongs to --rename"),
        (by, "belong to a change"),
    ):
        with pytest.raises(UsageError, match=message):
            run("patterns", "support", *options)


def test_a_kind_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UsageError, match=r'there is no kind "ratng" of feedback\. Did you mean "rating"\?'):
        feedback.main(["list", "--kind", "ratng"], standalone_mode=False)
    with pytest.raises(UsageError, match='--source: "usr" is none of user, annotator, model, code'):
        feedback.main(["list", "--source", "usr"], standalone_mode=False)


def test_an_answer_that_was_imported_under_an_earlier_id_is_no_second_answer(
    run: Any, traffic: Traffic, tmp_path: Path
) -> None:
    id = "import-" + content_hash(["q", "a", None, None])[:32]
    traffic.add([Inference("support", 2, id=id, inputs={"input": "q"}, output="a")])
    table = tmp_path / "table.csv"
    table.write_text("question,answer,rating\nq,a,5\n", "utf-8")
    assert "1 are new, 1 were stored before" in run(
        "import", str(table), "--prompt", "support", "--version", "2"
    )
    assert "2 are new, 0 were stored before" in run(
        "import", str(table), "--prompt", "support", "--version", "3"
    )
