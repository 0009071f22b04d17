"""`whet init`: a task folder from rows in the forms in which people have them."""

from __future__ import annotations

import csv
import datetime
import decimal
import gzip
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

import whet
from whet.cli import start
from whet.cli.main import cli
from whet.errors import UsageError
from whet.task import promptfoo_reward, read_material

TICKETS = [(f"Ticket {i}", f"body, {i}", ["billing", "login"][i % 2]) for i in range(30)]
QUESTIONS = [{"question": f"What is {i} and {i}?", "answer": str(2 * i)} for i in range(12)]


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def init(*arguments: str, typed: str | None = None, folder: str = "mytask") -> dict[str, Any]:
    done = CliRunner().invoke(cli, ["init", folder, *arguments, "--json"], typed, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    values: dict[str, Any] = json.loads(done.stdout)
    assert whet.Task.load(folder).name == folder, "it loads at once"
    return values


def table(name: str, delimiter: str) -> str:
    quoted = [f'"{a}"{delimiter}"{b}"{delimiter}{c}' for a, b, c in TICKETS]
    Path(name).write_text("\n".join([delimiter.join(("Subject", "Body", "team")), *quoted]) + "\n")
    return name


def answers(task: whet.Task, lm: Any) -> float:
    return whet.evaluate(task, lm=lm, split="train").score.mean


@pytest.mark.parametrize(
    ("name", "delimiter", "word"),
    [("a.csv", ";", "semicolons"), ("a.csv", ",", "commas"), ("a.tsv", "\t", "tabs")],
)
def test_a_table_with_any_delimiter(name: str, delimiter: str, word: str) -> None:
    values = init("--from", table(name, delimiter), "--input", "Subject,Body", "--target", "team")
    assert f"columns divided by {word}" in values["chosen"]
    task = whet.Task.load("mytask")
    assert set(task.labels) == {"billing", "login"} and task.prompt.slots == {"Subject", "Body"}
    assert any("the 30 rows have 2 different targets" in line for line in values["chosen"])
    assert any(line.startswith("reward: exact_match") for line in values["chosen"])
    assert task.train[0].values["Body"].startswith("body, ")
    right = {e.values["Subject"]: str(e.target) for e in task.train}
    score = answers(
        task, lambda messages: next(t for s, t in right.items() if f"{s}\n" in messages[-1].content)
    )
    assert score == 1.0


def test_the_only_column_with_few_values_is_the_target() -> None:
    values = init("--from", table("a.csv", ","))
    assert "input: Subject, Body" in values["chosen"] and "target: team" in values["chosen"]


def test_columns_are_guessed_from_their_names_and_said() -> None:
    Path("rows.jsonl").write_text("".join(json.dumps({**q, "source": "x"}) + "\n" for q in QUESTIONS))
    values = init("--from", "rows.jsonl", "--lm", "openai/some")
    assert "input: question (other columns, which the model does not see: source)" in values["chosen"]
    assert "target: answer" in values["chosen"]
    assert "reward: the last number of the answer, because every target is a number" in values["chosen"]
    assert values["next"][-1] == "whet optimize mytask"
    task = whet.Task.load("mytask")
    assert task.models["task"].address == "openai/some" and task.train[0].row["source"] == "x"
    assert answers(task, lambda messages: "It is 1, or 4.") == sum(e.target == "4" for e in task.train) / len(
        task.train
    )


@pytest.mark.parametrize(
    ("targets", "reward"),
    [
        (["Paris", "New York"], {"exact_match": {"normalise": True}}),
        (["a long answer with many words in it", "another long answer with many words"], "f1"),
        ([["Paris", "Paname"], "Rome"], {"exact_match": {"normalise": True}}),
        (["x^2+1", r"\frac{3}{4}"], "math_equal"),
    ],
)
def test_the_reward_fits_the_targets(targets: list[Any], reward: Any) -> None:
    rows = [{"input": f"q{i}", "target": targets[i % 2]} for i in range(12)]
    Path("rows.json").write_text(json.dumps(rows))
    init("--from", "rows.json", "--labels", "none")
    assert whet.Task.load("mytask").document["reward"] == reward


def test_targets_that_are_lists_of_objects_are_what_an_answer_lists() -> None:
    people = [
        [{"name": f"P{i}", "type": "PER"}, {"name": f"Q{i}", "type": "ORG"}][: 1 + i % 2] for i in range(12)
    ]
    rows = [{"text": f"sentence {i}", "entities": found} for i, found in enumerate(people)]
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    values = init("--from", "rows.jsonl", "--target", "entities")
    assert "reward: list (F1 of the items), because every target is a list of objects" in values["chosen"]
    task = whet.Task.load("mytask")
    right = {e.user_text: json.dumps(e.target[::-1]) for e in task.train}

    def answer(messages: Any) -> str:
        return next(t for s, t in right.items() if f"{s}\n" in messages[-1].content + "\n")

    assert answers(task, answer) == 1.0
    assert answers(task, lambda messages: '[{"name": "P0", "type": "ORG"}]') == 0.0


def test_questions_come_with_their_context_and_spans_are_accepted_answers() -> None:
    spans = [{"text": [f"w{i}", f"At w{i}"], "answer_start": [3, 0]} for i in range(12)]
    rows = [{"context": f"At w{i}.", "question": f"Where is {i}?", "answers": a} for i, a in enumerate(spans)]
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    values = init("--from", "rows.jsonl")
    assert "input: question, context" in values["chosen"]
    task = whet.Task.load("mytask")
    assert (
        task.prompt.slots == {"question", "context"}
        and task.train[0].target[1] == f"At {task.train[0].target[0]}"
    )
    right = {e.values["question"]: e.target[1] for e in task.train}
    assert (
        answers(task, lambda messages: next(t for q, t in right.items() if q in messages[-1].content)) == 1.0
    )


def test_lists_beside_each_other_stay_an_object() -> None:
    rows = [{"text": f"Ann{i} is 3", "answer": {"names": [f"Ann{i}"], "ages": [3]}} for i in range(12)]
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    init("--from", "rows.jsonl")
    assert whet.Task.load("mytask").document["reward"] == "json"


def test_lists_that_count_as_accepted_answers_are_said() -> None:
    rows = [{"input": f"q{i}", "target": [f"first {i}", f"other {i}"]} for i in range(12)]
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    values = init("--from", "rows.jsonl")
    assert any("a list holds accepted answers, of which one is enough" in line for line in values["chosen"])


def test_a_model_that_scores_labels_gets_a_prompt_with_a_place_for_them() -> None:
    init(
        "--from",
        table("a.csv", ","),
        "--input",
        "Subject,Body",
        "--target",
        "team",
        "--lm",
        "embedded/encoder",
    )
    task = whet.Task.load("mytask")
    assert task.prompt.slots == {"Subject", "Body", "mask"} and "Answer with" not in task.prompt.text


def test_a_slot_of_the_prompt_names_its_column() -> None:
    Path("rows.jsonl").write_text("".join(json.dumps({"text": "no", **q}) + "\n" for q in QUESTIONS))
    Path("own.md").write_text("Solve: {{question}}\n")
    init("--from", "rows.jsonl", "--prompt", "own.md")
    task = whet.Task.load("mytask")
    assert task.prompt.text == "Solve: {{question}}\n" and task.train[0].values.keys() == {"question"}


def test_conversations_for_fine_tuning() -> None:
    def said(n: int, system: str) -> str:
        roles = {"system": system, "user": f"ticket {n}", "assistant": "ab"[n % 2]}
        return json.dumps({"messages": [{"role": k, "content": v} for k, v in roles.items()], "n": n}) + "\n"

    Path("tuning.jsonl").write_text("".join(said(n, "Name the team.") for n in range(12)))
    assert "prompt: the system message" in init("--from", "tuning.jsonl")["chosen"]
    task = whet.Task.load("mytask")
    assert task.labels.keys() == {"a", "b"} and [
        (m.role, m.content[:6]) for m in task.prompt.render(task.train[0])
    ] == [("system", "Name t"), ("user", "ticket")]
    Path("tuning.jsonl").write_text("".join(said(n, f"Be {n}.") for n in range(12)))
    init("--from", "tuning.jsonl", folder="other")
    assert whet.Task.load("other").train[0].values["system"].startswith("Be ")


@pytest.mark.parametrize(
    "form",
    [
        lambda text, team: {
            "conversations": [{"from": "human", "value": text}, {"from": "gpt", "value": team}]
        },
        lambda text, team: {"input": [{"role": "user", "content": text}], "ideal": team},
        lambda text, team: {
            "messages": [
                {"role": "User", "content": [{"type": "text", "text": text}]},
                {"role": "Assistant", "content": [{"type": "text", "text": team}]},
            ]
        },
    ],
    ids=["ShareGPT", "OpenAI evals", "parts"],
)
def test_conversations_in_the_forms_of_others(form: Any) -> None:
    rows = [form(f"ticket {n}", "ab"[n % 2]) for n in range(12)]
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    init("--from", "rows.jsonl")
    task = whet.Task.load("mytask")
    assert task.labels.keys() == {"a", "b"} and task.train[0].values["input"].startswith("ticket ")
    assert (
        answers(task, lambda messages: "ab"[int(messages[-1].content.split("ticket ")[1].split()[0]) % 2])
        == 1.0
    )


def test_an_answer_of_the_weight_0_is_no_right_answer() -> None:
    def said(n: int, weights: tuple[int, int]) -> str:
        said = [
            {"role": "user", "content": f"ticket {n}"},
            {"role": "assistant", "content": "draft", "weight": weights[0]},
        ]
        said += [
            {"role": "user", "content": "Sure?"},
            {"role": "assistant", "content": "ab"[n % 2], "weight": weights[1]},
        ]
        return json.dumps({"messages": said}) + "\n"

    Path("tuning.jsonl").write_text("".join(said(n, (0, 1) if n % 4 else (1, 0)) for n in range(16)))
    chosen = init("--from", "tuning.jsonl")["chosen"]
    assert "left out: 4 conversations whose answer has the weight 0, which makes it no right answer" in chosen
    task = whet.Task.load("mytask")
    rows = [*task.train, *task.validation, *task.test]
    assert len(rows) == 12 and not [
        row for row in rows if row.messages[0].content in ("ticket 0", "ticket 4")
    ]
    Path("tuning.jsonl").write_text("".join(said(n, (1, 0)) for n in range(16)))
    with pytest.raises(
        UsageError, match=r"tuning.jsonl:1: the answer of every conversation has the weight 0"
    ):
        read_material("tuning.jsonl")


def test_lists_of_ideal_answers_are_accepted_answers() -> None:
    rows = [
        {"input": [{"role": "user", "content": f"ticket {n}"}], "ideal": [["Yes", "Y"], ["No", "N"]][n % 2]}
        for n in range(12)
    ]
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    init("--from", "rows.jsonl")
    assert (
        answers(
            whet.Task.load("mytask"), lambda messages: "YN"[int(messages[-1].content.split("ticket ")[1]) % 2]
        )
        == 1.0
    )


@pytest.mark.parametrize("name", ["rows.jsonl.gz", "rows.csv.gz", "rows.jsonl", "rows.csv"])
def test_packed_files_and_utf_16_without_a_mark(name: str) -> None:
    rows = [{"input": f"ticket {n}", "target": "ab"[n % 2]} for n in range(12)]
    lines = [json.dumps(row) for row in rows]
    if ".csv" in name:
        lines = ["input,target", *(f"{row['input']},{row['target']}" for row in rows)]
    text = "\n".join(lines) + "\n"
    data = gzip.compress(text.encode()) if name.endswith(".gz") else text.encode("utf-16-le")
    Path(name).write_bytes(data)
    init("--from", name)
    assert len(whet.Task.load("mytask").train) and set(whet.Task.load("mytask").labels) == {"a", "b"}
    Path("broken.jsonl.gz").write_bytes(gzip.compress(b"{}")[:-5])
    done = CliRunner().invoke(cli, ["init", "other", "--from", "broken.jsonl.gz"])
    assert isinstance(done.exception, UsageError) and "cannot be unpacked" in str(done.exception)


def test_rows_that_list_no_answer_are_left_out_and_counted() -> None:
    rows = [
        {
            "context": f"At w{i}.",
            "question": f"Where is {i}?",
            "answers": {"text": [f"w{i}"], "answer_start": [3]}
            if i % 3
            else {"text": [], "answer_start": []},
        }
        for i in range(18)
    ]
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert any("6 rows of 18 have no answer" in line for line in init("--from", "rows.jsonl")["chosen"])
    task = whet.Task.load("mytask")
    every = [*task.train, *task.validation, *task.test]
    assert len(every) == 12 and all(
        example.target == [f"w{example.values['question'][9:-1]}"] for example in every
    )


def test_many_different_numbers_are_no_labels() -> None:
    Path("sums.csv").write_text("input,target\n" + "".join(f"{n} + 0?,{n % 8}\n" for n in range(40)))
    init("--from", "sums.csv")
    assert not whet.Task.load("mytask").labels


def test_langfuse_rows() -> None:
    rows = [{"input": {"q": f"a{i}"}, "expectedOutput": f"b {i}", "metadata": {}} for i in range(12)]
    Path("dataset.json").write_text(json.dumps(rows))
    init("--from", "dataset.json")
    task = whet.Task.load("mytask")
    assert task.prompt.slots == {"q"} and str(task.train[0].target).startswith("b ")


def started(rows: list[dict[str, Any]], *options: str) -> tuple[whet.Task, list[str]]:
    Path("rows.json").write_text(json.dumps(rows))
    chosen = init("--from", "rows.json", *options)["chosen"]
    return whet.Task.load("mytask"), chosen


ORDERS: list[dict[str, Any]] = [{"name": f"Zoë {i}", "age": i} for i in range(24)]


@pytest.mark.parametrize(
    ("form", "column", "said"),
    [
        (
            "jsonl",
            "question",
            "; to fill a slot by each field, give a prompt with slots such as {{name}}: --prompt FILE",
        ),
        ("mixed", "question", ""),
        ("uneven", "question", ""),
        ("uneven", "input", ""),
        ("csv", "question", None),
        ("csv", "input", None),
    ],
)
def test_a_column_with_objects_is_one_text(form: str, column: str, said: str | None) -> None:
    objects: list[Any] = list(ORDERS)
    if form == "mixed":
        objects[3] = "Zoë is 3"
    if form == "uneven":
        objects[3] = {"name": "Zoë 3", "town": "Rome"}
    texts = [one if isinstance(one, str) else json.dumps(one, ensure_ascii=False) for one in objects]
    if form == "csv":
        with Path("rows.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([[column, "answer"], *([text, i % 2] for i, text in enumerate(texts))])
        chosen = init("--from", "rows.csv")["chosen"]
        task = whet.Task.load("mytask")
    else:
        task, chosen = started([{column: one, "answer": i % 2} for i, one in enumerate(objects)])
    assert task.prompt.slots == {"input"}
    assert sorted(e.text or "" for e in (*task.train, *task.validation, *task.test)) == sorted(texts)
    line = f"{column}: each object is one text, as JSON"
    assert [one for one in chosen if one.startswith(line)] == ([] if said is None else [line + said])


@pytest.mark.parametrize(
    ("column", "prompt", "slots"),
    [
        ("input", None, {"name", "age"}),
        ("question", "Is {{name}} right?", {"name"}),
        ("question", "Is this right? {{question}}", {"question"}),
        ("input", "Is this right? {{input}}", {"input"}),
    ],
)
def test_fields_of_objects_fill_slots_where_somebody_asks(
    column: str, prompt: str | None, slots: set[str]
) -> None:
    options = [] if prompt is None else ["--prompt", prompt]
    task, chosen = started([{column: one, "answer": i % 2} for i, one in enumerate(ORDERS)], *options)
    assert task.prompt.slots == slots
    fields = f"{column}: each field of its objects fills the slot of its name: name, age"
    assert (fields in chosen) == ("name" in slots)
    seen: list[str] = []

    def model(messages: list[Any]) -> str:
        seen.append(messages[-1].content)
        return "0"

    answers(task, model)
    assert all("Zoë" in text and ('"name"' in text) == ("name" not in slots) for text in seen)


@pytest.mark.parametrize("turns", [1, 3])
@pytest.mark.parametrize("beside", [False, True])
def test_different_system_messages_are_a_slot_and_reach_the_model(turns: int, beside: bool) -> None:
    rows: list[dict[str, Any]] = []
    for i in range(12):
        said = [{"from": "human" if n % 2 == 0 else "gpt", "value": f"t{i}.{n}"} for n in range(turns)]
        told = {"from": "system", "value": f"You are bot {i}."}
        talk = [*([] if beside else [told]), *said, {"from": "gpt", "value": f"a{i}"}]
        rows.append({"conversations": talk, **({"system": told["value"]} if beside else {})})
    task, chosen = started(rows)
    assert "prompt: a first draft with the slot {{system}}, because there are 12 system messages" in chosen

    def model(messages: list[Any]) -> str:
        system, *talk = [(message.role, message.content) for message in messages]
        number = talk[0][1].removeprefix("t").split(".")[0]
        assert (system[0], system[1].strip()) == (
            "system",
            f"Give the right answer.\n\nYou are bot {number}.",
        )
        assert talk == [("user" if n % 2 == 0 else "assistant", f"t{number}.{n}") for n in range(turns)]
        return f"a{number}"

    assert answers(task, model) == 1.0


def test_what_is_archived_in_langfuse_makes_no_rows() -> None:
    states = ["ACTIVE", "ARCHIVED", "ACTIVE"]
    items = [
        {"input": {"q": f"a{i}"}, "expectedOutput": f"b {i}", "status": states[i % 3]} for i in range(12)
    ]
    task, chosen = started(items)
    assert "4 rows with the status ARCHIVED left out, as Langfuse leaves them out of its runs" in chosen
    assert len([*task.train, *task.validation, *task.test]) == 8


@pytest.mark.parametrize(
    ("outputs", "target", "reward"),
    [
        (lambda i: {"answer": f"A {i}", "sources": [i]}, lambda i: f"A {i}", "exact_match"),
        (lambda i: {"n": f"A {i}"}, lambda i: f"A {i}", "exact_match"),
        (lambda i: {"refund" if i % 2 else "cancel": True}, lambda i: {"refund" if i % 2 else "cancel": True}, "json"),
        (lambda i: {"answer": "A", "n": i} if i % 2 else {"n": i}, lambda i: {"answer": "A", "n": i} if i % 2 else {"n": i},
         "json"),
        (lambda i: {"town": f"A {i}", "n": i}, lambda i: {"town": f"A {i}", "n": i}, "json"),
    ],
)  # fmt: skip
def test_objects_are_targets_as_a_whole_or_by_one_key_of_all(
    outputs: Callable[[int], object], target: Callable[[int], object], reward: str
) -> None:
    task, chosen = started([{"inputs": {"q": f"q{i}"}, "outputs": outputs(i)} for i in range(12)])
    rows = {int(str(e.values["q"])[1:]): e.target for e in (*task.train, *task.validation, *task.test)}
    assert rows == {i: target(i) for i in range(12)} and reward in str(task.document["reward"])
    assert any("sources is left out" in line for line in chosen) == ("sources" in str(outputs(0)))


def test_objects_stay_whole_for_a_reward_that_compares_json() -> None:
    rows = [{"inputs": {"q": f"q{i}"}, "outputs": {"answer": f"A {i}", "n": i}} for i in range(12)]
    task, _ = started(rows, "--reward", "json")
    assert all(set(dict(e.target)) == {"answer", "n"} for e in task.test)


def test_an_object_that_lists_spellings_holds_accepted_answers() -> None:
    rows = [
        {
            "question": f"Who is {i}?",
            "answer": {
                "aliases": [f"O {i}", f"Ann {i}"],
                "type": "Entity",
                "value": f"Ann {i}",
                "normalized_aliases": [f"ann {i}"],
            },
        }
        for i in range(12)
    ]
    task, _ = started(rows)
    assert task.document["reward"] == {"exact_match": {"normalise": True}}
    found = {e.values["input"]: e.target for e in (*task.train, *task.validation, *task.test)}
    assert found["Who is 1?"] == ["Ann 1", "O 1"]
    assert answers(task, lambda messages: "O " + messages[-1].content.split("is ")[-1].strip("?\n ")) == 1.0


@pytest.mark.parametrize(
    ("row", "inputs"),
    [
        ({"instruction": "Do {}", "input": "with {}", "output": "done {} and five more words here"}, {"instruction", "input"}),
        ({"sentence": "The _ {}", "option1": "cat", "option2": "dog {}", "answer": "cat {}"}, {"sentence", "option1", "option2"}),
        ({"question": "why {}", "choice1": "a {}", "choice2": "b {}", "premise": "p {}", "target": "a {}"},
         {"question", "choice1", "choice2", "premise"}),
    ],
)  # fmt: skip
def test_what_a_question_cannot_be_answered_without_is_input(row: dict[str, str], inputs: set[str]) -> None:
    task, _ = started([{key: text.format(i) for key, text in row.items()} for i in range(12)])
    assert task.prompt.slots == inputs


def test_an_input_that_does_not_tell_the_rows_apart_is_not_the_only_one() -> None:
    rows = [
        {
            "text": ["cause", "effect"][i % 2],
            "event": f"It rained {i} days",
            "label": "wet" if i % 3 else "dry",
        }
        for i in range(30)
    ]
    task, _ = started(rows)
    assert task.prompt.slots == {"text", "event"}


def test_rows_in_the_only_list_of_an_object() -> None:
    rows = [{"input": f"q{i}", "target": f"t{i}"} for i in range(6)]
    Path("rows.json").write_text(
        json.dumps({"canary": "x", "tags": ["a"], "none": [], "examples": rows, "n": 6}, indent=1)
    )
    init("--from", "rows.json")
    task = whet.Task.load("mytask")
    assert {e.target for e in (*task.train, *task.validation, *task.test)} == {f"t{i}" for i in range(6)}
    Path("rows.json").write_text(json.dumps({"examples": [*rows, 5], "n": 6}))
    with pytest.raises(UsageError, match="an object with one such list"):
        CliRunner().invoke(cli, ["init", "other", "--from", "rows.json"], catch_exceptions=False)
    Path("rows.json").write_text(
        '{"examples": [\n{"input": "a", "target": "b"},\n{"input": 7, "target": "c"}]}'
    )
    Path("task.yaml").write_text("name: t\nprompt: p.md\ndata: rows.json\nreward: exact_match\n")
    Path("p.md").write_text("{{input}}")
    with pytest.raises(UsageError, match=r"rows.json:3: .*must be a text or an object"):
        whet.Task.load(".")


def test_of_two_columns_of_which_one_numbers_the_rows_none_is_guessed() -> None:
    Path("rows.csv").write_text("col1, col2\n" + "".join(f"a{'b' * i}, {i}\n" for i in range(1, 13)))
    with pytest.raises(UsageError, match="Two columns could be the target: col1, col2"):
        CliRunner().invoke(cli, ["init", "mytask", "--from", "rows.csv"], catch_exceptions=False)
    init("--from", "rows.csv", "--target", "col2")
    assert whet.Task.load("mytask").train[0].values["input"].startswith("ab")


@pytest.mark.parametrize("cell", ["", "    ", "\u00a0", '" \n "'])
def test_a_target_of_blanks_is_none(cell: str) -> None:
    Path("rows.csv").write_text(
        "q,answer\n" + "".join(f"q{i},{cell if i == 3 else f'a{i}'}\n" for i in range(12))
    )
    with pytest.raises(UsageError, match=r"rows.csv:5: the target is empty \(1 of 12 rows"):
        CliRunner().invoke(cli, ["init", "mytask", "--from", "rows.csv"], catch_exceptions=False)


def test_errors_of_a_spreadsheet_are_named() -> None:
    Path("rows.csv").write_text(
        "q,answer\n" + "".join(f"q{i},{'#VALUE!' if i == 4 else i * 7}\n" for i in range(12))
    )
    assert any("is the text #VALUE! here, in 1 row" in line for line in init("--from", "rows.csv")["chosen"])


def test_a_table_of_markdown() -> None:
    lines = ["| text | label |", "|:---|---:|", *(f"| t{i} | {'ab'[i % 2]} |" for i in range(12))]
    Path("rows.csv").write_text("\n".join(lines))
    init("--from", "rows.csv")
    task = whet.Task.load("mytask")
    rows = [*task.train, *task.validation, *task.test]
    assert set(task.labels) == {"a", "b"} and {row.values["input"] for row in rows} == {
        f"t{i}" for i in range(12)
    }


PROMPTFOO = {
    "prompts": ["file://prompt.txt", "Another {{text}}"],
    "providers": ["openai:gpt-4o-mini"],
    "tests": [
        {"vars": {"text": f"t{i}"}, "assert": [{"type": "equals", "value": f"v{i}"}]} for i in range(6)
    ],
}


def promptfoo(**changes: Any) -> list[str]:
    Path("prompt.txt").write_text("Say it: {{text}}")
    Path("promptfooconfig.yaml").write_text(json.dumps({**PROMPTFOO, **changes}))
    return ["--from", "promptfooconfig.yaml"]


def test_promptfoo_with_one_kind_of_assertion() -> None:
    assert "the first of 2 prompts" in init(*promptfoo())["chosen"]
    task = whet.Task.load("mytask")
    assert task.prompt.text == "Say it: {{text}}" and task.document["reward"] == {
        "exact_match": {"strict": True}
    }
    assert answers(task, lambda messages: messages[-1].content.replace("Say it: t", "v")) == 1.0
    assert answers(task, lambda messages: messages[-1].content.replace("Say it: t", "V")) == 0.0


def test_of_a_text_file_with_several_promptfoo_prompts_the_first_one_is_taken_and_it_is_said() -> None:
    command = promptfoo(prompts=["file://prompt.txt"])
    Path("prompt.txt").write_text("Say it: {{text}}\n---\nSing it: {{text}}\n")
    assert "the first of 2 prompts in prompt.txt" in init(*command)["chosen"]
    assert whet.Task.load("mytask").prompt.text.strip() == "Say it: {{text}}"


CHECKS = [
    {"type": "icontains", "value": "HELLO {{text}}"},
    {"type": "not-regex", "value": "[0-9]{3}", "weight": 2},
    {"type": "javascript", "value": "output.length > 3"},
]


def test_promptfoo_with_mixed_assertions_gets_a_reward_that_checks_them() -> None:
    values = init(*promptfoo(defaultTest={"assert": CHECKS}))
    assert any("6 javascript" in line for line in values["chosen"])
    task = whet.Task.load("mytask")
    result = answers(task, lambda messages: "hello " + messages[-1].content.removeprefix("Say it: "))
    assert result == 0.75, "equals fails (weight 1), icontains holds (1), not-regex holds (2)"


def test_promptfoo_values_that_compute_something_are_counted_not_compared_as_they_stand() -> None:
    checks = [
        {"type": "contains", "value": "{{ text }}"},
        {"type": "equals", "value": "{{ text | upper }}"},
        {"type": "contains-any", "value": ["a", "{% if x %}b{% endif %}"]},
        {"type": "icontains", "value": "{{unknown}}"},
    ]
    tests = [{"vars": {"text": f"t{i}"}, "assert": checks} for i in range(6)]
    left = next(line for line in init(*promptfoo(tests=tests))["chosen"] if line.startswith("left out"))
    assert all(f"6 {kind} whose value computes" in left for kind in ("equals", "contains-any", "icontains"))
    assert answers(whet.Task.load("mytask"), lambda messages: messages[-1].content) == 1.0


def test_promptfoo_variables_name_variables_and_what_computes_leaves_its_test_out() -> None:
    equals = [{"type": "equals", "value": "Say it: {{text}}"}]
    plain = [
        {"vars": {"text": f"{{{{ a }}}} {i}", "a": "{{b}}", "b": "deep"}, "assert": equals} for i in range(6)
    ]
    computing = (
        "{% raw %}{{b}}{% endraw %}",
        "{{ b | upper }}",
        '{{ "{{b}}" }}',
        "{# a comment #}x",
        "{{ env.HOME }}",
        "{{unknown}}",
        "{{ text }}",
    )
    others = [{"vars": {"text": text, "b": "deep"}, "assert": equals} for text in computing]
    literal = {"vars": {"text": r"\\textbf{#1} {x} {{x}^2}"}, "assert": equals}
    chosen = init(*promptfoo(tests=[*plain, *others, literal]))["chosen"]
    assert any(line.startswith("7 tests are left out: a variable computes something") for line in chosen)
    task = whet.Task.load("mytask")
    texts = sorted(
        example.values["text"] for rows in (task.train, task.validation, task.test) for example in rows
    )
    assert texts == [r"\\textbf{#1} {x} {{x}^2}", *(f"deep {i}" for i in range(6))]
    assert answers(task, lambda messages: messages[-1].content) == 1.0


def test_promptfoo_variables_that_are_null_are_filled_in_as_nothing() -> None:
    equals = [{"type": "equals", "value": "{{text}}"}]
    values = ["a", None, ["b", None], [], "c", "d"]
    tests = [{"vars": {"text": value, "n": str(i)}, "assert": equals} for i, value in enumerate(values)]
    chosen = init(*promptfoo(prompts=["{{text}} {{n}}"], tests=tests))["chosen"]
    assert "1 test is left out: a variable is an empty list, the first `text`" in chosen
    task = whet.Task.load("mytask")
    rows = [(row.values["n"], row.values["text"]) for row in (*task.train, *task.validation, *task.test)]
    assert sorted(rows) == [("0", "a"), ("1", ""), ("2", ""), ("2", "b"), ("4", "c"), ("5", "d")]


def test_promptfoo_patterns_have_braces_that_are_no_repetition() -> None:
    checks = [{"type": "regex", "value": r"^\\frac{d}[a-z]{2,3}$"}, {"type": "icontains", "value": "frac"}]
    init(*promptfoo(tests=[{"vars": {"text": f"t{i}"}, "assert": checks} for i in range(6)]))
    task = whet.Task.load("mytask")
    assert answers(task, lambda messages: r"\frac{d}xy") == 1.0
    assert answers(task, lambda messages: r"\fracxy") == 0.5


def test_promptfoo_assertions_of_weight_zero_count_in_their_metric_alone() -> None:
    rows = [{"type": "equals", "value": "a"}]
    for name, value in (("Found", "a"), ("Long", "b"), ("Long", "a")):
        rows.append({"type": "contains", "value": value, "weight": 0.0, "metric": name})  # type: ignore[dict-item]
    assert promptfoo_reward.reward({"assert": rows}, "a") == {
        "reward": 1.0,
        "Found": 1.0,
        "Long": 0.5,
        "critique": "",
    }
    assert promptfoo_reward.reward({"assert": []}, "a")["reward"] == 1.0, "nothing that could fail"


def test_promptfoo_assertions_of_weight_zero_without_a_metric_are_left_out() -> None:
    nothing = [
        {"type": "equals", "value": "x", "weight": 0},
        {"type": "llm-rubric", "value": "is kind", "weight": 0},
    ]
    named = [{"type": "contains", "value": "{{text}}", "weight": 0, "metric": "Echo"}]
    equals = [{"type": "equals", "value": "{{text}}"}]
    tests = [{"vars": {"text": f"t{i}"}, "assert": equals} for i in range(6)]
    chosen = init(*promptfoo(tests=[*tests, {"vars": {"text": "u"}}, {"vars": {"text": "v"}, "assert": named}],
                             defaultTest={"assert": nothing}))["chosen"]  # fmt: skip
    assert "not taken: 8 equals of weight 0, 8 llm-rubric of weight 0" in chosen
    assert "2 tests without such an assertion are left out" in chosen
    assert whet.Task.load("mytask").document["reward"] == {"exact_match": {"strict": True}}


def test_promptfoo_tests_whose_assertions_all_weigh_nothing_are_refused() -> None:
    rubric = {"type": "llm-rubric", "value": "is polite", "weight": 0}
    tests = [{"vars": {"text": f"t{i}"}} for i in range(6)]
    done = CliRunner().invoke(
        cli, ["init", "other", *promptfoo(tests=tests, defaultTest={"assert": [rubric]})]
    )
    assert "no test has an assertion that whet can check" in str(done.exception)
    assert "not taken: 6 llm-rubric of weight 0" in str(done.exception)


def test_promptfoo_metrics_are_parts_of_the_reward() -> None:
    checks = [
        {**CHECKS[0], "metric": "Greets"},
        {**CHECKS[1], "metric": "Short"},
        {"type": "contains", "value": "!", "metric": "Short"},
    ]
    init(*promptfoo(defaultTest={"assert": checks}))
    task = whet.Task.load("mytask")
    result = whet.evaluate(
        task, lm=lambda messages: "hello " + messages[-1].content.removeprefix("Say it: "), split="train"
    )
    assert result.parts == {
        "Greets": 1.0,
        "Short": pytest.approx(2 / 3),
    } and result.score.mean == pytest.approx(3 / 5)
    taken = [{"type": "contains", "value": "!", "metric": "score"}]
    done = CliRunner().invoke(cli, ["init", "other", *promptfoo(defaultTest={"assert": taken})])
    assert "is the name of something else that a reward returns" in str(done.exception)


def test_a_rubric_that_every_promptfoo_test_has_is_a_part_of_the_reward_that_the_judge_grades() -> None:
    rubric = {"type": "llm-rubric", "value": "is polite"}
    single = {"type": "llm-rubric", "value": "names {{text}}"}
    chosen = init(*promptfoo(defaultTest={"assert": [{**rubric, "weight": 3}, single]}))["chosen"]
    assert any("6 llm-rubric of a single test" in line for line in chosen)
    task = whet.Task.load("mytask")
    judge = {"judge": {"rubric": "is polite", "reference": "ignore", "weight": 0.75}}
    assert task.document["reward"] == [judge, {"exact_match": {"strict": True, "weight": 0.25}}]

    def grades(messages: Any) -> str:
        return '{"explanation": "curt", "score": 3}'

    made = whet.evaluate(task, lm=lambda messages: "v0", judge_lm=grades, split="train")
    assert 0.375 <= made.score.mean <= 0.625


def test_promptfoo_tests_with_nothing_but_a_rubric() -> None:
    rubric = {"assert": [{"type": "llm-rubric", "value": "is polite"}]}
    init(*promptfoo(tests=[{"vars": {"text": f"t{i}"}} for i in range(6)], defaultTest=rubric))
    task = whet.Task.load("mytask")
    assert task.document["reward"] == {"judge": {"rubric": "is polite", "reference": "ignore"}}
    assert not any("assert" in example.row for example in task.train)


def test_promptfoo_assertions_that_cannot_be_checked_are_counted_not_taken_for_others() -> None:
    schema = {"type": "is-json", "value": {"type": "object"}}
    Path("tests.csv").write_text("text,__expected\na,icontains: x\nb,javascript: output.length > 3\nc,d\n")
    chosen = init(*promptfoo(tests="file://tests.csv", defaultTest={"assert": [schema, CHECKS[0]]}))["chosen"]
    (line,) = (line for line in chosen if line.startswith("left out"))
    assert "3 is-json with a schema" in line and "1 javascript" in line


CELLS = {
    "is-json": ("is-json", None),
    "not-is-json": ("not-is-json", None),
    "contains-json": ("contains-json", None),
    "contains-any:x, y": ("contains-any", "x, y"),
    "not-icontains: x": ("not-icontains", "x"),
    "equals:is-json": ("equals", "is-json"),
    "starts-with(0.5): x:y": ("starts-with", "x:y"),
    "plain": ("equals", "plain"),
    "is-json-like": ("equals", "is-json-like"),
    "see: this": ("equals", "see: this"),
}
LEFT = {
    "latency(500)": "latency",
    "is-sql": "is-sql",
    "not-perplexity": "not-perplexity",
    "word-count: 5": "word-count",
    "similar(0.8):x": "similar",
    "not-similar:cosine(0.8):x": "not-similar",
    'is-json: {"type": "object"}': "is-json with a schema",
    "grade: is polite": "llm-rubric of a single test",
    "file://check.py": "python",
    "fn:output.length": "javascript",
}


def test_a_table_with_promptfoo_assertions_is_read_as_promptfoo_reads_it() -> None:
    Path("tests.csv").write_text(
        "text,__expected,__description\n" + "".join(f"t{i},icontains: v{i},d\n" for i in range(6))
    )
    chosen = init("--from", "tests.csv")["chosen"]
    assert "__expected: assertions as promptfoo reads them" in chosen
    task = whet.Task.load("mytask")
    assert task.document["reward"] == "contains" and task.prompt.slots == {"text"}
    assert {e.target for e in (*task.train, *task.validation, *task.test)} == {f"v{i}" for i in range(6)}


def test_what_promptfoo_asserts_makes_no_labels() -> None:
    tests = [
        {"vars": {"text": f"t{i}"}, "assert": [{"type": "icontains", "value": ["yes", "no"][i % 2]}]}
        for i in range(12)
    ]
    init(*promptfoo(tests=tests))
    task = whet.Task.load("mytask")
    assert not task.labels and answers(task, lambda messages: "Yes or no") == 1.0


@pytest.mark.parametrize(
    ("answer", "held"),
    [
        ('{"b": [1, 2], "a": "t0"}', True),
        ('{"a": "t0", "b": [1, 2.0]}', True),
        ('{"a": "t0", "b": [1, true]}', False),
        ('{"a": "t0", "b": [2, 1]}', False),
        ('{"a": "t0", "b": [1, 2], "c": null}', False),
        ("no JSON", False),
    ],
)
def test_promptfoo_compares_objects_as_json(answer: str, held: bool) -> None:
    check = {"type": "equals", "value": {"a": "{{word}}", "b": [1, 2]}}
    tests = [{"vars": {"text": f"t{i}", "word": "t0"}, "assert": [check]} for i in range(6)]
    init(*promptfoo(tests=tests, prompts=["{{text}} {{word}}"]))
    assert answers(whet.Task.load("mytask"), lambda messages: answer) == float(held)


@pytest.mark.parametrize(
    ("kind", "answer", "held"),
    [
        ("contains-json", 'Fill {name}: {"a": {"b": 1}}, {done}', True),
        ("contains-json", "Fill {name} and {other}", False),
        ("contains-json", "{" * 5000, False),
        ("is-json", "[" * 100_000, False),
        ("is-json", "NaN", False),
        ("is-json", "[1]", True),
    ],
)
def test_promptfoo_finds_json(kind: str, answer: str, held: bool) -> None:
    assert promptfoo_reward.assertion_holds(kind, None, answer) == held


def test_digits_that_promptfoo_looks_for_are_any_piece_of_the_answer() -> None:
    checks = [{"type": "icontains", "value": "5"}]
    init(*promptfoo(tests=[{"vars": {"text": f"t{i}"}, "assert": checks} for i in range(6)]))
    assert answers(whet.Task.load("mytask"), lambda messages: "25") == 1.0


def test_promptfoo_tests_in_lines_of_json_and_in_the_files_of_a_pattern() -> None:
    tests = [{"vars": {"text": f"t{i}"}, "assert": [{"type": "equals", "value": f"v{i}"}]} for i in range(6)]
    Path("some").mkdir()
    Path("some/a.jsonl").write_text("".join(json.dumps(test) + "\n" for test in tests[:3]))
    Path("some/b.json").write_text(json.dumps(tests[3:]))
    init(*promptfoo(tests="file://some/*"))
    task = whet.Task.load("mytask")
    assert {e.target for e in (*task.train, *task.validation, *task.test)} == {f"v{i}" for i in range(6)}


def test_cells_of_a_promptfoo_table_are_read_as_promptfoo_reads_them() -> None:
    with Path("tests.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "__expected", "__threshold", "__description", "__prefix", "__metadata:a"])
        for i, cell in enumerate((*CELLS, *LEFT)):
            writer.writerow([f"t{i}", cell, "0.5" if i < 3 else "", "d", "p" if i < 2 else "", "m"])
    chosen = init(*promptfoo(tests="file://tests.csv"))["chosen"]
    (left,) = (line for line in chosen if line.startswith("left out"))
    assert all(f"1 {kind}" in left for kind in LEFT.values()), left
    (keys,) = (line for line in chosen if line.startswith("not taken"))
    assert "3 `__threshold` of a test" in keys and "2 `__prefix` of a test" in keys
    assert "description" not in keys and "metadata" not in keys
    assert f"{len(LEFT)} tests without such an assertion are left out" in chosen
    task = whet.Task.load("mytask")
    rows = [*task.train, *task.validation, *task.test]
    found = {row.values["text"]: row.row["assert"] for row in rows}
    wanted = {
        f"t{i}": [{"type": kind} if value is None else {"type": kind, "value": value}]
        for i, (kind, value) in enumerate(CELLS.values())
    }
    assert found == wanted


@pytest.mark.parametrize(
    ("value", "answer", "held"),
    [
        ('"1,000",in stock', "1,000", True),
        ('"1,000", in stock', "in stock", True),
        ('"1,000",in stock', "1", False),
        ("refund,", "anything else", False),
        ("refund,", "a refund", True),
        ('say ""hi"", there', "there", True),
    ],
)
@pytest.mark.parametrize("table", [False, True])
def test_promptfoo_values_are_divided_at_commas_outside_of_quotes(
    value: str, answer: str, held: bool, table: bool
) -> None:
    with Path("tests.csv").open("w", newline="") as file:
        csv.writer(file).writerows(
            [["text", "__expected"], *([f"t{i}", f"contains-any: {value}"] for i in range(6))]
        )
    check = {"type": "contains-any", "value": value}
    tests: Any = [{"vars": {"text": f"t{i}"}, "assert": [check]} for i in range(6)]
    init(*promptfoo(tests="file://tests.csv" if table else tests))
    assert answers(whet.Task.load("mytask"), lambda messages: answer) == float(held)


PRINTED = {
    **{"true": "true", "False": "false", "5.0": "5", "1e3": "1000", "007": "7", "0x1F": "31", "0o17": "15"},
    **{
        "-0": "0",
        "-0.0": "0",
        "0.1": "0.1",
        "1e21": "1e+21",
        "1e20": "100000000000000000000",
        "1e-7": "1e-7",
    },
    **{"123456789012345678901": "123456789012345680000", "0.000001": "0.000001", "-1.5": "-1.5"},
    **{"'5.0'": "5.0", '"true"': "true", "yes": "yes", ".inf": "Infinity", ".nan": "NaN"},
}


def test_promptfoo_scalars_are_the_texts_that_javascript_prints() -> None:
    lines = ["prompts: ['Say {{text}} {{n}}']", "tests:"]
    for i, raw in enumerate(PRINTED):
        check = f"[{{type: equals, value: {raw}}}]"
        lines.append(f"  - {{vars: {{text: t{i}, n: {raw}}}, assert: {check}}}")
    Path("promptfooconfig.yaml").write_text("\n".join(lines))
    init("--from", "promptfooconfig.yaml")
    task = whet.Task.load("mytask")
    found = {e.values["text"]: (e.values["n"], e.target) for e in (*task.train, *task.validation, *task.test)}
    assert found == {f"t{i}": (text, text) for i, text in enumerate(PRINTED.values())}


def test_promptfoo_tests_in_a_table_and_lists_of_values() -> None:
    Path("tests.csv").write_text("text,__expected\na,icontains: x\nb,icontains: y\nc,icontains: z\n")
    more = {"vars": {"text": ["d", "e"]}, "assert": [{"type": "icontains", "value": "{{text}}"}]}
    init(*promptfoo(tests=["file://tests.csv", more]))
    task = whet.Task.load("mytask")
    rows = [*task.train, *task.validation, *task.test]
    assert {e.values["text"]: e.target for e in rows} == {"a": "x", "b": "y", "c": "z", "d": "d", "e": "e"}
    assert task.document["reward"] == "contains"


def test_promptfoo_lists_that_promptfoo_does_not_expand_stay_one_value() -> None:
    whole, checks = {"disableVarExpansion": True}, [{"type": "equals", "value": "v"}]
    tests = [
        {"vars": {"text": ["a", "b"]}, "options": whole, "assert": checks},
        {"vars": {"text": [{"n": 1}, {"n": 2}]}, "assert": checks},
        {"vars": {"text": [[], "c"]}, "assert": checks},
        {"vars": {"text": ["d", 5]}, "assert": checks},
        {"vars": {"text": ["e", "f"]}, "options": {**whole, "prefix": "x"}, "assert": checks},
    ]
    chosen = init(*promptfoo(tests=tests))["chosen"]
    task = whet.Task.load("mytask")
    assert {e.values["text"] for e in (*task.train, *task.validation, *task.test)} == {
        *('["a", "b"]', '[{"n": 1}, {"n": 2}]', '[[], "c"]', "d", "5", '["e", "f"]'),
    }
    assert "4 lists under `vars` stay one value, as in promptfoo, in JSON" in chosen
    assert "not taken: 1 `options` of a test" in chosen, "those of the last one say more"


def test_promptfoo_lists_stay_whole_for_every_test_but_those_that_say_otherwise() -> None:
    own = [
        {"vars": {"text": ["a", "b"]}, "options": {"disableVarExpansion": n > 0}}
        if n < 2
        else {"vars": {"text": f"{n}"}}
        for n in range(5)
    ]
    options = {"disableVarExpansion": True}
    init(
        *promptfoo(tests=own, defaultTest={"options": options, "assert": [{"type": "equals", "value": "v"}]})
    )
    task = whet.Task.load("mytask")
    assert {e.values["text"] for e in (*task.train, *task.validation, *task.test)} == {
        *("a", "b", '["a", "b"]', "2", "3", "4"),
    }


def test_promptfoo_keys_that_change_a_result_are_named_when_they_are_not_taken() -> None:
    tests = [
        {
            "vars": {"text": f"t{i} {{{{lang}}}}", "lang": "de"},
            "description": "neutral",
            "threshold": 0.5,
            "assert": [{"type": "equals", "value": f"v{i}", "transform": "output.trim()"}],
        }
        for i in range(6)
    ]
    providers = ["openai:chat:gpt-4o-mini", {"id": "anthropic:messages:claude", "config": {}}]
    chosen = init(*promptfoo(tests=tests, providers=providers, scenarios=[]))["chosen"]
    (line,) = (line for line in chosen if line.startswith("not taken"))
    for what in ("1 `scenarios` of the file", "6 `threshold` of a test", "6 `transform` of an assertion"):
        assert what in line
    assert "description" not in line
    task = whet.Task.load("mytask")
    assert task.models["task"].address == "openai/gpt-4o-mini" and any("anthropic" in one for one in chosen)
    assert task.train[0].values["text"].endswith(" de"), "a variable may name another one"


def test_promptfoo_providers_that_whet_has_no_address_of_are_named() -> None:
    chosen = init(*promptfoo(providers=["ollama:chat:qwen3"]))["chosen"]
    assert any("ollama:chat:qwen3" in line and "--lm" in line for line in chosen)
    assert whet.Task.load("mytask").models["task"].address is None


def test_empty_columns_are_no_input_and_need_no_name() -> None:
    rows = "".join(f"{i};ticket {i};;;{'ab'[i % 2]}\n" for i in range(12))
    Path("excel.csv").write_bytes(b"\xef\xbb\xbf" + f"No;Text;;Empty;Team\n{rows}".encode())
    chosen = init("--from", "excel.csv", "--target", "Team")["chosen"]
    assert "input: Text (other columns, which the model does not see: No, Empty)" in chosen


DSPY = """
class Example:
    def __init__(self, **fields): self.fields = fields
    def toDict(self): return self.fields
    def inputs(self): return {"question": self.fields["question"]}

trainset = [Example(question=f"q{i}", gold=f"long answer {i}") for i in range(6)]
devset = [Example(question=f"d{i}", gold=f"long answer {i}") for i in range(4)]
testset = [Example(question=f"t{i}", gold=f"long answer {i}") for i in range(5)]
"""


def test_examples_of_dspy_with_their_splits_and_inputs() -> None:
    Path("examples.py").write_text(DSPY)
    assert init("--from", "examples.py")["rows"] == {"train": 6, "validation": 4, "test": 5}
    assert whet.Task.load("mytask").train[0].row.keys() >= {"input", "target"}


def test_a_data_set_of_hugging_face(monkeypatch: pytest.MonkeyPatch) -> None:
    class Rows(list[Mapping[str, Any]]):
        features = {"text": SimpleNamespace(), "label": SimpleNamespace(names=["neg", "pos"])}  # noqa: RUF012
        column_names = ("text", "label")

    rows = Rows({"text": f"film {i}", "label": i % 2} for i in range(20))
    loaded = {"train": rows, "test": rows}
    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=lambda name: loaded))
    assert "the split train of some/reviews" in init("--from", "datasets:some/reviews")["chosen"]
    assert set(whet.Task.load("mytask").labels) == {"neg", "pos"}


def parquet(**columns: Any) -> None:
    """A data set of 20 rows in a file of Parquet, with a value in each of the columns."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pytest.importorskip("datasets")
    rows = {"text": [f"film {i}" for i in range(20)], "label": ["ab"[i % 2] for i in range(20)]}
    Path("frame").mkdir()
    made = {name: value if isinstance(value, pa.Array) else [value] * 20 for name, value in columns.items()}
    pq.write_table(pa.table({**rows, **made}), "frame/train.parquet")


DAY = datetime.datetime(2024, 3, 1)
TIMES: list[tuple[Any, Any]] = [
    (DAY.date(), "2024-03-01"),
    (DAY, "2024-03-01"),
    (DAY.replace(hour=12), "2024-03-01T12:00:00"),
    (datetime.time(1, 2), "01:02:00"),
    (datetime.timedelta(hours=1), "1:00:00"),
    (decimal.Decimal("1.10"), 1.1),
    ({"at": DAY.date(), "sums": [decimal.Decimal("2.00")]}, {"at": "2024-03-01", "sums": [2]}),
]


def test_columns_of_a_data_set_are_written_as_a_task_reads_them() -> None:
    parquet(**{f"c{n}": value for n, (value, _) in enumerate(TIMES)})
    init("--from", "datasets:frame")
    wanted = {f"c{n}": written for n, (_, written) in enumerate(TIMES)}
    assert json.loads(Path("mytask/data.jsonl").read_text().splitlines()[0]).items() >= wanted.items()
    data = "data: {datasets: ../frame, columns: {input: text, target: label, %s}}\n"
    names = ", ".join(f"{name}: {name}" for name in wanted)
    Path("mytask/task.yaml").write_text("name: t\nprompt: prompt.md\nreward: exact_match\n" + data % names)
    assert whet.Task.load("mytask").train[0].row.items() >= wanted.items()


def test_numbers_of_32_bits_are_written_as_people_wrote_them() -> None:
    pa = pytest.importorskip("pyarrow")
    parquet(y=pa.array([n / 10 for n in range(20)], pa.float32()))
    init("--from", "datasets:frame", "--target", "y")
    targets = [json.loads(line)["target"] for line in Path("mytask/data.jsonl").read_text().splitlines()]
    assert targets == [n / 10 for n in range(20)]


def test_bytes_of_a_data_set_are_refused_with_row_and_column() -> None:
    parquet(raw=b"x")
    done = CliRunner().invoke(cli, ["init", "mytask", "--from", "datasets:frame", "--yes"])
    assert not Path("mytask").exists() and isinstance(done.exception, UsageError)
    assert 'datasets:frame: train[0] cannot be stored as JSON: "raw" holds bytes.' in str(done.exception)


def test_examples_in_python_are_written_as_a_task_reads_them() -> None:
    lines = ["import datetime, numpy", "day, x = datetime.date(2024, 3, 1), numpy.float32(0.1)"]
    row = "{'input': f'q{n}', 'target': 'ab'[n % 2], 'day': day, 'x': x}"
    Path("examples.py").write_text("\n".join([*lines, f"rows_of_mine = [{row} for n in range(20)]", ""]))
    init("--from", "examples.py")
    assert whet.Task.load("mytask").train[0].row.items() >= {"day": "2024-03-01", "x": 0.1}.items()


@pytest.mark.parametrize("from_file", [False, True])
def test_a_rubric_makes_a_judge_the_reward_of_rows_without_a_right_answer(from_file: bool) -> None:
    """No column is a target unless it is named, and none that looks like one is shown to the model."""
    Path("r.md").write_text("The answer is polite.\nIt names the next step.\n")
    rows = [{"letter": f"Where is order {i}?", "answer": f"On its way, {i}."} for i in range(30)]
    Path("rows.json").write_text(json.dumps(rows))
    values = init("--from", "rows.json", "--rubric", "r.md" if from_file else "The answer is polite.")
    assert "reward: judge, a model that grades each answer by the rubric in rubric.md" in values["chosen"]
    task = whet.Task.load("mytask")
    assert task.document["reward"] == {"judge": {"rubric": "rubric.md"}} and not task.labels
    assert Path("mytask/rubric.md").read_text().startswith("The answer is polite.\n")
    assert {example.target for example in task.train} == {None}
    assert all("On its way" not in example.user_text for example in task.train)

    def judge(messages: Any) -> str:
        assert "The answer is polite." in messages[0]["content"]
        return json.dumps({"explanation": "so", "score": 5 if "Please" in messages[-1]["content"] else 1})

    result = whet.evaluate(
        task, lm=lambda messages: "Please wait.", judge_lm=judge, split="train", progress=False
    )
    assert result.score.mean == 1.0


def test_a_rubric_beside_a_named_target_shows_it_to_the_judge() -> None:
    Path("rows.json").write_text(json.dumps(QUESTIONS))
    init("--from", "rows.json", "--target", "answer", "--rubric", "The answer shows the way.")
    task = whet.Task.load("mytask")
    assert {example.target for example in task.train} > {"2"} or task.train[0].target is not None
    assert task.document["reward"] == {"judge": {"rubric": "rubric.md"}}


def test_a_rubric_is_asked_for_where_no_column_is_the_target(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "_on_terminal", lambda: True)
    Path("rows.json").write_text(json.dumps([{"letter": f"Where is order {i}?"} for i in range(30)]))
    init("--from", "rows.json", typed="\nIt is polite.\n\n\n\n")
    assert Path("mytask/rubric.md").read_text() == "It is polite.\n"


def test_a_reward_of_ones_own_needs_no_target() -> None:
    Path("my.py").write_text("def reward(example, output):\n    return 1.0\n")
    Path("rows.csv").write_text("text\n" + "".join(f"line {i}\n" for i in range(9)))
    init("--from", "rows.csv", "--reward", "my.py")
    assert whet.Task.load("mytask").reward.name == "program"


def test_the_example_runs_as_it_stands() -> None:
    assert init("--from", "example")["next"][1] == "whet evaluate mytask"
    assert whet.evaluate(Path("mytask")).score.n == 60


def test_a_terminal_is_asked_for_what_no_option_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "_on_terminal", lambda: True)
    typed = f"{table('a.csv', ';')}\nteam\nBody\nWhich team? {{{{input}}}}\nopenai/m\n"
    init(typed=typed)
    task = whet.Task.load("mytask")
    assert task.prompt.text == "Which team? {{input}}" and task.models["task"].address == "openai/m"
    assert task.train[0].text is not None and task.train[0].text.startswith("body, ")


BAD = {
    "no source": ([], "--from"),
    "unknown kind": (["--from", "prompt.docx"], "Convert"),
    "no such file": (["--from", "absent.csv"], "absent.csv"),
    "no such column": (["--from", "a.csv", "--target", "teams"], 'Did you mean "team"'),
    "no target": (["--from", "a.csv", "--input", "Subject,Body,team"], "--target"),
    "a target among the inputs": (
        ["--from", "a.csv", "--input", "Subject,team", "--target", "team"],
        "named as an input and as the target",
    ),
    "one column": (["--from", "one.csv"], "--target"),
    "a rubric and a reward": (
        ["--from", "a.csv", "--rubric", "It is polite.", "--reward", "contains"],
        "--rubric makes a judge the reward, and --reward names another one. Give only one of them.",
    ),
    "a rubric that is not there": (["--from", "a.csv", "--rubric", "none.md"], "none.md"),
    "unknown reward": (
        ["--from", "a.csv", "--target", "team", "--reward", "exakt_match"],
        'Did you mean "exact_match"',
    ),
    "uneven": (
        ["--from", "uneven.csv"],
        "uneven.csv:3: 1 cell, but the header has 2 columns (divided by semicolons)",
    ),
    "a template": (["--from", "blocks.yaml"], "{% if text %}"),
    "only programs": (["--from", "programs.yaml"], "no test has an assertion"),
    "no config": (["--from", "other.yaml"], "prompts and tests"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_used_is_refused_and_nothing_is_written(case: str) -> None:
    table("a.csv", ";")
    Path("prompt.docx").write_bytes(b"PK")
    Path("one.csv").write_text("text\na\nb\n")
    Path("uneven.csv").write_text("a;b\n1;2\n3\n")
    Path("blocks.yaml").write_text(json.dumps({**PROMPTFOO, "prompts": ["{% if text %}x{% endif %}"]}))
    program = [{"vars": {"text": "a"}, "assert": [{"type": "javascript", "value": "true"}]}]
    Path("programs.yaml").write_text(json.dumps({**PROMPTFOO, "prompts": ["{{text}}"], "tests": program}))
    Path("other.yaml").write_text("a: 1\n")
    arguments, message = BAD[case]
    before = sorted(Path().iterdir())
    done = CliRunner().invoke(cli, ["init", "mytask", *arguments])
    assert isinstance(done.exception, whet.UsageError) and message in str(done.exception)
    assert sorted(Path().iterdir()) == before


def test_a_folder_that_is_not_empty_is_refused() -> None:
    Path("mytask").mkdir()
    Path("mytask/notes.txt").write_text("mine")
    done = CliRunner().invoke(cli, ["init", "mytask", "--from", table("a.csv", ",")])
    assert "not empty" in str(done.exception) and [p.name for p in Path("mytask").iterdir()] == ["notes.txt"]


def write_csv(name: str, *columns: tuple[str, Any], rows: int = 30) -> str:
    lines = [",".join(f'"{column}"' for column, _ in columns)]
    lines += [",".join(f'"{make(n)}"' for _, make in columns) for n in range(rows)]
    Path(name).write_text("\n".join(lines) + "\n", "utf-8")
    return name


def body(n: int) -> str:
    return f"words about case {n}"


def team(n: int) -> str:
    return ("billing", "login")[n % 2]


def sent(folder: str = "mytask") -> str:
    """What a model gets for a training row."""
    task = whet.Task.load(folder)
    return "\n".join(message.content for message in task.prompt.render(task.train[0]))


def test_the_only_column_with_few_words_is_the_target_beside_numbers_and_dates() -> None:
    day, level = (lambda n: f"2024-01-0{n % 9 + 1}"), (lambda n: str(n % 5))
    name = write_csv("t.csv", ("body", body), ("Opened", day), ("Level", level), ("Squad", team))
    said = init("--from", name)["chosen"]
    reason = "because it is the only column with few values (2); the values of Opened, Level have digits"
    assert f"Squad is the target {reason}; to name another column: --target COLUMN" in said, said
    assert {row.target for row in whet.Task.load("mytask").train} == {"billing", "login"}


def test_a_column_that_there_is_not_is_asked_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "_on_terminal", lambda: True)
    name = write_csv("t.csv", ("body", body), ("team", team))
    init(typed=f"{name}\nDept\nteam\nbodi\nbody\n\nopenai/m\n")
    assert {row.target for row in whet.Task.load("mytask").train} == {"billing", "login"}


def test_without_a_target_a_rubric_is_asked_for_until_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "_on_terminal", lambda: True)
    name = write_csv("t.csv", ("left", body), ("right", lambda n: f"{n} words of an answer"))
    init(typed=f"{name}\n\n\nIt is short.\nleft\n\nopenai/m\n")
    assert whet.Task.load("mytask").train[0].target is None
    assert Path("mytask/rubric.md").read_text() == "It is short.\n"


def test_a_terminal_is_asked_for_the_target_first_and_proposes_inputs_without_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(start, "_on_terminal", lambda: True)
    name = write_csv(
        "t.csv", ("body", body), ("priority", lambda n: ("high", "low")[n % 3 == 0]), ("team", team)
    )
    init(typed=f"{name}\nteam\n\n\nopenai/m\n")
    task = whet.Task.load("mytask")
    assert task.prompt.slots == {"body", "priority"} and {e.target for e in task.train} == {
        "billing",
        "login",
    }
    assert "team" not in task.train[0].values and "billing" not in sent().split("Answer with one of")[0]


def test_without_a_terminal_the_columns_are_listed_with_the_rule() -> None:
    values = init(
        "--from", write_csv("t.csv", ("ticket_id", lambda n: f"T-{n}"), ("body", body), ("team", team))
    )
    said = "\n".join(values["chosen"])
    assert (
        "columns: ticket_id (30 different), body (30 different), team (2 different: billing, login)" in said
    )
    assert "team is the target because it is the only column with few values (2)" in said
    assert "input: body (other columns, which the model does not see: ticket_id)" in said


def test_a_copy_of_the_target_is_no_input_and_is_warned_of_where_it_is_named() -> None:
    name = write_csv(
        "t.csv",
        ("body", body),
        ("team_code", lambda n: str(n % 2)),
        ("Team", lambda n: f" {team(n).upper()}"),
        ("team", team),
    )
    quiet = init("--from", name, "--target", "team", folder="quiet")
    assert "input: body (other" in "\n".join(quiet["chosen"]) and not quiet["warnings"]
    named = init("--from", name, "--target", "team", "--input", "body,Team,team_code", folder="named")
    leaks = [warning for warning in named["warnings"] if "gives the target team away" in warning]
    assert len(leaks) == 2 and "equal to the target in 30 of 30 rows" in leaks[0]


COLUMNS = [
    "Customer text",
    "ticket.body",
    "質問",
    "Größe",
    "first-name",
    "a b.c",
    "Price ($)",
    "2024",
    "Gro\u0308ße",
    "what?",
]


@pytest.mark.parametrize("column", COLUMNS)
def test_every_column_reaches_the_model_whatever_it_is_called(column: str) -> None:
    name = write_csv("t.csv", (column, body), ("Zweite", lambda n: f"more of {n}"), ("label", team))
    values = init("--from", name, "--target", "label", "--input", f"{column},Zweite")
    assert "words about case" in sent() and "more of" in sent() and "{{" not in sent()
    changed = [line for line in values["chosen"] if "as slots are" in line]
    assert bool(changed) == (column in ("Price ($)", "2024", "what?"))


@pytest.mark.parametrize(
    ("spellings", "kept"),
    [
        (("refund", "refund", "Refund ", "other"), "refund"),
        (("café", "café", "cafe\u0301", "other"), "café"),
        (("refund", "refund", "re\u200bfund", "other"), "refund"),
    ],
)
def test_labels_that_are_compared_as_equal_become_one_and_are_said(
    spellings: tuple[str, ...], kept: str
) -> None:
    name = write_csv("t.csv", ("body", body), ("label", lambda n: spellings[n % 4]), rows=40)
    values = init("--from", name)
    assert set(whet.Task.load("mytask").labels) == {kept, "other"}
    both = ", ".join(sorted({spellings[0], spellings[2]}))
    assert any(f"equal where answers are compared: {both} are {kept}" in line for line in values["chosen"])


CHATS = {
    "prompt.json": json.dumps(
        {"messages": [{"role": "system", "content": "Sort it."}, {"role": "user", "content": "{{body}}"}]}
    ),
    "prompt.yaml": "- role: system\n  content: Sort it.\n- role: user\n  content: '{{body}}'\n",
    "prompt.md": "[system]\nSort it.\n\n[user]\n{{body}}",
}


@pytest.mark.parametrize("name", CHATS)
def test_a_chat_prompt_stays_one(name: str) -> None:
    Path(name).write_text(CHATS[name])
    init("--from", write_csv("t.csv", ("body", body), ("label", team)), "--prompt", name)
    task = whet.Task.load("mytask")
    assert [message.role for message in task.prompt.messages] == ["system", "user"]
    assert task.prompt.render(task.train[0])[1].content == task.train[0].values["body"]


def test_the_chat_of_a_promptfoo_configuration_stays_one() -> None:
    Path("chat.yaml").write_text(CHATS["prompt.yaml"])
    tests = "".join(
        f"- vars: {{body: b{n}}}\n  assert: [{{type: equals, value: v{n % 2}}}]\n" for n in range(9)
    )
    Path("promptfooconfig.yaml").write_text(f"prompts: [file://chat.yaml]\ntests:\n{tests}")
    init("--from", "promptfooconfig.yaml")
    assert [message.role for message in whet.Task.load("mytask").prompt.messages] == ["system", "user"]


def test_a_row_that_is_refused_is_named_by_its_place_in_the_source() -> None:
    Path("d.csv").write_text('id,input,target\n1,"a\nb",x\n2,c,y\n3,d,x\n2,e,y\n5,f,x\n6,g,y\n')
    Path("d.jsonl").write_text(
        "\n" + "".join(json.dumps({"id": i % 4, "input": f"q{i}", "target": "x"}) + "\n" for i in range(6))
    )
    for source, second, first in (("d.csv", 6, 4), ("d.jsonl", 6, 2)):
        arguments = ["init", "mytask", "--from", source, "--input", "input", "--target", "target", "--yes"]
        said = str(CliRunner().invoke(cli, arguments).exception)
        assert f"{source}:{second}: the id" in said and f"stands already at {source}:{first}." in said
        assert "data.jsonl" not in said
        assert not Path("mytask").exists()


def test_too_few_rows_are_refused_without_a_place_in_a_file_that_is_not_written() -> None:
    Path("one.csv").write_text("input,target\na,b\n")
    arguments = ["init", "mytask", "--from", "one.csv", "--yes"]
    assert str(CliRunner().invoke(cli, arguments).exception) == (
        "Nothing is written, because it would not load: the splits validation and test would be empty: there is 1 row for train, "
        "validation, test. Give rows with at least 3 different inputs."
    )
    assert not Path("mytask").exists()


def test_what_a_request_loses_on_its_way_into_a_prompt_is_said(caplog: pytest.LogCaptureFixture) -> None:
    request = {"model": "m", "messages": [{"role": "developer", "content": "Sort {{body}}"}]}
    Path("request.json").write_text(json.dumps(request))
    init("--from", write_csv("t.csv", ("body", body), ("label", team)), "--prompt", "request.json")
    assert whet.Task.load("mytask").prompt.messages[0].role == "system"
    lost, role = caplog.messages
    assert "request.json" in lost and "model -> address" in lost and "read as system" in role


def test_few_rows_are_said_with_what_a_promotion_needs() -> None:
    Path("few.csv").write_text("input,target\n" + "".join(f"word {n},answer {n}\n" for n in range(7)))
    (warning,) = (line for line in init("--from", "few.csv")["warnings"] if "sealed test" in line)
    assert warning.startswith("2 rows in the sealed test: a promotion needs at least 6 there")


def test_a_file_that_is_not_there_is_said_before_its_kind() -> None:
    Path("complaints.csv").write_text("input,target\na,b\n")
    done = CliRunner().invoke(cli, ["init", "mytask", "--from", "complaints.cvs"])
    assert 'there is no file complaints.cvs. Did you mean "complaints.csv"?' in str(done.exception)


def test_the_folder_of_a_task_is_named_with_a_dot_from_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    init("--from", "example")
    monkeypatch.chdir("mytask")
    done = CliRunner().invoke(cli, ["evaluate", "mytask"])
    assert "there is no such task folder. It is the folder you are in: name it with a dot (.)" in str(
        done.exception
    )


MARKED = [
    (f"Ticket {i}", ["billing", "login"][i % 3 == 0], ["train", "val", "test"][i % 3]) for i in range(36)
]


def marked(
    name: str = "marked.csv", header: str = "text,team,split", marks: Mapping[str, str] | None = None
) -> str:
    lines = [f"{text},{team},{(marks or {}).get(mark, mark)}" for text, team, mark in MARKED]
    Path(name).write_text("\n".join([header, *lines]) + "\n")
    return name


def ids(rows: Any) -> set[str]:
    return {example.text for example in rows}


@pytest.mark.parametrize(
    ("header", "marks", "options"),
    [
        ("text,team,split", {}, ()),
        ("text,team,Split", {"train": "Train", "val": "validation", "test": " TEST"}, ()),
        ("text,team,split", {"val": "dev"}, ()),
        ("text,team,part", {"val": "valid"}, ("--split", "part")),
    ],
)
def test_a_column_that_marks_the_splits_is_the_split(
    header: str, marks: dict[str, str], options: tuple[str, ...]
) -> None:
    """Rows marked train became sealed test rows."""
    values = init("--from", marked(header=header, marks=marks), "--target", "team", *options)
    task = whet.Task.load("mytask")
    for split, mark in (("train", "train"), ("validation", "val"), ("test", "test")):
        assert ids(getattr(task, split)) == {text for text, _, own in MARKED if own == mark}
    assert {"train.jsonl", "validation.jsonl", "test.jsonl"} <= set(values["files"])
    assert not {"split", "Split", "part"} & set(task.train[0].row), "the files say it"
    assert task.prompt.slots == {"input"}
    line = next(line for line in values["chosen"] if line.startswith("splits: "))
    assert "(12 train, 12 validation, 12 test)" in line and "--split none" in line


def test_the_split_of_a_table_can_be_declined_or_be_a_column_like_any_other() -> None:
    values = init("--from", marked(), "--target", "team", "--split", "none", folder="declined")
    assert "data.jsonl" in values["files"] and not any("splits:" in line for line in values["chosen"])
    named = init("--from", marked(), "--target", "split", "--input", "text", folder="target")
    assert set(whet.Task.load("target").labels) == {"train", "val", "test"} and "data.jsonl" in named["files"]
    Path("other.csv").write_text(
        "text,team,split\n" + "".join(f"t {i},{'ab'[i % 2]},{i}\n" for i in range(9))
    )
    assert "data.jsonl" in init("--from", "other.csv", "--target", "team", folder="numbers")["files"]


def test_a_table_without_validation_rows_has_them_cut_from_train() -> None:
    values = init("--from", marked(marks={"val": "train"}), "--target", "team")
    assert any("validation is cut from train" in line for line in values["chosen"])
    assert values["rows"]["test"] == 12 and values["rows"]["validation"] > 3


def test_a_terminal_is_asked_for_the_split(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "_on_terminal", lambda: True)
    source = marked()
    init("--from", source, typed="\nteam\ntext\n\n\n", folder="taken")
    assert len(whet.Task.load("taken").test) == 12
    values = init("--from", source, typed="none\nteam\ntext\n\n\n", folder="anew")
    assert "data.jsonl" in values["files"]


@pytest.mark.parametrize(
    ("marks", "options", "said"),
    [
        ({"val": "holdout"}, (), "marked.csv:3: the column \"split\" has 'holdout', which is no split."),
        ({"val": ""}, (), "--split none"),
        ({"test": "train"}, (), 'The column "split" marks no row as test.'),
        ({"train": "test"}, (), 'The column "split" marks no row as train.'),
        ({}, ("--split", "splits"), 'There is no column "splits". Did you mean "split"?'),
    ],
)
def test_marks_that_are_no_splits_are_refused_and_nothing_is_written(
    marks: dict[str, str], options: tuple[str, ...], said: str
) -> None:
    with pytest.raises(UsageError) as error:
        init("--from", marked(marks=marks), "--target", "team", *options)
    assert said in str(error.value) and not Path("mytask").exists()


def test_several_columns_that_can_be_the_target_are_named_with_the_command_that_says_which() -> None:
    lines = [
        f"{('Hello', 'Help', 'Urgent')[i % 3]},{body},{team}" for i, (_, body, team) in enumerate(QUOTED)
    ]
    Path("t.csv").write_text("\n".join(["subject,body,team", *lines]) + "\n")
    done = CliRunner().invoke(cli, ["init", "np", "--from", "t.csv", "--yes"])
    assert done.exit_code != 0 and isinstance(done.exception, UsageError)
    assert str(done.exception) == (
        "Two columns could be the target: subject (3 values), team (2 values). "
        "Say which: whet init np --from t.csv --target team. Where no column holds the right answer, give a judge's rubric "
        "(--rubric TEXT), or a reward of your own: --reward reward.py with def reward(example, output)"
    )
    assert "target: team" in init("--from", "t.csv", "--input", "subject,body")["chosen"]


QUOTED = [(subject, f'"{body}"', team) for subject, body, team in TICKETS]


TESTED = {"input": "Write double.", "tests": ["assert double(2) == 4"]}
CALLED = {"input": "The weather in Rome?", "calls": [{"name": "weather", "arguments": {"town": "Rome"}}]}


@pytest.mark.parametrize(
    ("reward", "row", "column"), [("python_tests", TESTED, "tests"), ("tool_calls", CALLED, "calls")]
)
@pytest.mark.parametrize("beside", [{}, {"note": "n"}, {"answer": "a"}])
def test_a_column_that_the_reward_reads_stays_as_it_is(
    reward: str, row: dict[str, Any], column: str, beside: dict[str, str]
) -> None:
    """It is no target and no input, and without a target's name no other column becomes one."""
    rows = [{**row, **beside, "input": f"{row['input']} {i}"} for i in range(12)]
    Path("rows.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    values = init("--from", "rows.jsonl", "--reward", reward, "--yes")
    assert f"the reward {reward} reads the column {column}" in values["chosen"]
    written = [json.loads(line) for line in Path("mytask/data.jsonl").read_text().splitlines()]
    target = {"target": "a"} if "answer" in beside else {}
    kept = {k: v for k, v in beside.items() if k != "answer"}
    assert written == [{"input": one["input"], **target, column: row[column], **kept} for one in rows]


HIDDEN = "def check(candidate):\n    assert candidate(2) == 4\n"


@pytest.mark.parametrize(
    ("beside", "column", "reward"),
    [
        ({"tests": ["assert double(2) == 4"]}, "tests", "python_tests"),
        (
            {"test_list": ["assert double(2) == 4"], "code": "def double(n): return 2 * n"},
            "test_list",
            "python_tests",
        ),
        ({"test": HIDDEN, "entry_point": "double"}, "test", "python_tests"),
        ({"tests": "2 gives 4"}, "tests", "exact_match"),
    ],
)
def test_unit_tests_in_the_rows_become_the_reward(
    beside: dict[str, Any], column: str, reward: object
) -> None:
    """They were taken for the target, to which the answer had to be equal."""
    rows = [{"input": f"Write double, please ({i}).", **beside} for i in range(12)]
    Path("rows.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    init("--from", "rows.jsonl", *(("--labels", "none") if reward != "python_tests" else ()), "--yes")
    loaded = whet.Task.load("mytask")
    assert loaded.reward.name == reward
    if reward == "python_tests":
        first = json.loads(Path("mytask/data.jsonl").read_text().splitlines()[0])
        assert first["tests"] == beside[column] and first.get("target") != beside[column]


def test_unit_tests_that_are_named_as_the_input_stay_the_input() -> None:
    rows = [{"tests": f"assert f({i}) == 1", "code": f"def f(n): return n - {i} + 1"} for i in range(12)]
    Path("rows.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    chosen = init("--from", "rows.jsonl", "--input", "tests", "--target", "code", "--yes")["chosen"]
    assert "input: tests" in chosen and not any("python_tests" in line for line in chosen)


@pytest.mark.parametrize(("reward", "labels"), [("math_equal", 0), ("number", 0), ("exact_match", 4)])
def test_labels_are_made_for_a_reward_that_compares_words_only(reward: str, labels: int) -> None:
    if reward == "math_equal":
        pytest.importorskip("sympy")
    rows = [{"question": f"{i}?", "answer": ["1/2", "2/3", "3/4", "4/5"][i % 4]} for i in range(24)]
    Path("rows.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    values = init("--from", "rows.jsonl", "--reward", reward, "--yes")
    assert len(whet.Task.load("mytask").labels) == labels
    assert any(line.startswith("labels: none, because the reward") for line in values["chosen"]) == (
        not labels
    )


@pytest.mark.parametrize(("first", "doubted"), [("text 0,yes", True), ("text,verdict", False)])
def test_a_first_line_that_looks_like_a_row_is_doubted(first: str, doubted: bool) -> None:
    rows = [f"text {n},{'yes' if n % 2 else 'no'}" for n in range(1, 31)]
    Path("rows.csv").write_text("\n".join([first, *rows]) + "\n")
    warnings = [w for w in init("--from", "rows.csv")["warnings"] if "header" in w]
    assert len(warnings) == doubted
    if doubted:
        assert "rows.csv:1:" in warnings[0] and "'yes' also stands in 15 rows" in warnings[0]
