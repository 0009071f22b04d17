"""Valid task folders: every value arrives where it belongs, exactly as it was written."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whet.models.prices import Price
from whet.run import Budget
from whet.task import ModelSpec, Task, load_task
from whet.types import Example

FULL = """\
name: Support tickets
description: Sorts tickets.
prompt: prompt.md
data: data.jsonl
labels: [yes, no, "null", 3]
verbalizer:
  yes: " great"
reward:
  - exact_match: 0.7
  - name: likelihood
    weight: 0.3
models:
  task:
    address: openai/small
    base_url: http://localhost:1/v1
    temperature: 0.5
    max_tokens: 1e2
    stop: ["\\n", END]
    concurrency: 8
    requests_per_minute: 90.5
    timeout: 30
    price: {input: 0.1, output: 2}
  judge: hf//srv/model
splits: {train: 0.5, dev: 0.25, test: 0.25, seed: 7}
budget:
  max_calls: 1_000
  max_task_calls: 900
  max_optimizer_calls: 0
  max_judge_calls: 10
  max_tokens: 1e6
  max_cost: 1.5
  max_seconds: 60
method: opro
settings: {lr: 1e-3, on: yes, deep: [1, a]}
"""


def examples(task: Task) -> list[Example]:
    return [*task.train, *task.validation, *task.test]


def by_id(task: Task) -> dict[str, Example]:
    return {e.id: e for e in examples(task)}


def test_every_key_arrives(make: Callable[..., Path]) -> None:
    targets: list[Any] = ["yes", "no", "null", 3] * 2
    rows = [{"id": i, "input": f"t{i}", "target": t} for i, t in enumerate(targets)]
    task = load_task(make({"task.yaml": FULL}, rows=rows))
    assert (task.name, task.description, task.method) == ("Support tickets", "Sorts tickets.", "opro")
    assert task.labels == {"yes": " great", "no": "no", "null": "null", "3": "3"}
    assert [(w, r.name) for w, r in task.reward.parts] == [(0.7, "exact_match"), (0.3, "likelihood")]  # type: ignore[attr-defined]
    assert task.models == {
        "task": ModelSpec(
            "openai/small",
            "http://localhost:1/v1",
            0.5,
            100,
            ("\n", "END"),
            8,
            90.5,
            30.0,
            Price(0.1, 2.0),
        ),
        "optimizer": ModelSpec(),
        "judge": ModelSpec("hf//srv/model"),
        "policy": ModelSpec(),
    }
    assert task.budget == Budget(1000, 900, 0, 10, 1_000_000, 1.5, 60.0)
    assert task.settings == {"lr": 0.001, "on": "yes", "deep": [1, "a"]}
    assert (len(task.train), len(task.validation), len(task.test)) == (4, 2, 2)
    assert {e.target for e in examples(task)} == {"yes", "no", "null", "3"}


def test_the_least_task_has_defaults(make: Callable[..., Path]) -> None:
    folder = make()
    task = load_task(folder)
    assert (task.description, task.method, dict(task.settings), dict(task.labels)) == ("", None, {}, {})
    assert task.budget == Budget() and task.warnings == () and task.folder == folder
    assert (len(task.train), len(task.validation), len(task.test)) == (4, 3, 3)
    assert task.train[0].row == {
        "id": task.train[0].id,
        "input": task.train[0].text,
        "target": task.train[0].target,
    }
    assert load_task(folder / "task.yaml") == task == load_task(str(folder))


def test_nothing_is_written(make: Callable[..., Path]) -> None:
    folder = make(
        {
            "task.yaml": "name: t\nprompt: prompt.md\ndata: data.py\nreward: reward.py\n",
            "data.py": "def rows():\n    return [{'input': str(i)} for i in range(9)]\n",
            "reward.py": "def reward(example, output):\n    return 1.0\n",
        }
    )
    before = sorted(folder.rglob("*"))
    load_task(folder)
    assert sorted(folder.rglob("*")) == before


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-10, 10) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
ODD = st.text(st.characters(exclude_categories=["Cs"]), max_size=30) | st.sampled_from(
    [
        "{{input}}",
        "{x} {{7*7}} {0}",
        "a\r\nb",
        "\u2028\x85\x0b",
        "<!-- whet:begin -->",
        "% $name \\",
        '"',
        "\ufeff",
    ]
)


@settings(max_examples=25)
@given(st.lists(st.tuples(ODD, ODD, JSON_VALUES), min_size=8, max_size=12, unique_by=lambda t: t[0]))
def test_rows_roundtrip_exactly_from_every_kind_of_file(
    make: Callable[..., Path], triples: list[tuple[str, str, Any]]
) -> None:
    rows = [{"id": f"r{i}", "input": a, "target": b, "note": c} for i, (a, b, c) in enumerate(triples)]
    plain = [{k: r[k] for k in ("id", "input", "target")} for r in rows if r["target"]]
    table = io.StringIO(newline="")
    writer = csv.DictWriter(table, ["id", "input", "target"])
    writer.writeheader()
    writer.writerows(plain)
    files = {
        "data.jsonl": "\r\n".join(json.dumps(r, ensure_ascii=False) for r in rows),
        "data.json": json.dumps(rows, indent=1),
        "data.py": f"import json\ndef rows():\n    yield from json.loads({json.dumps(rows)!r})\n",
    }
    if len(plain) == len(rows) and not any("\0" in r["input"] + r["target"] for r in plain):
        files["data.csv"] = table.getvalue()
    seen = set()
    for name, text in files.items():
        task = load_task(
            make({"task.yaml": f"name: t\nprompt: prompt.md\ndata: {name}\nreward: f1\n", name: text})
        )
        expected = {r["id"]: r for r in (plain if name == "data.csv" else rows)}
        assert {i: dict(e.row) for i, e in by_id(task).items()} == expected
        for e in examples(task):
            assert (e.text, e.values) == (expected[e.id]["input"], {"input": expected[e.id]["input"]})
            assert e.target == expected[e.id]["target"]
        seen.add(tuple(e.id for e in examples(task)))
    assert len(seen) == 1


def test_an_object_fills_slots_and_other_values_are_json_text(make: Callable[..., Path]) -> None:
    rows = [{"input": {"q": f"é{i}", "n": [i, None], "z": True}, "target": "a"} for i in range(5)]
    task = load_task(make({"prompt.md": "{{q}} {{ n }}"}, rows=rows))
    example = min(examples(task), key=lambda e: e.values["q"])
    assert example.values == {"q": "é0", "n": "[0, null]", "z": "true"} and example.text is None
    assert example.row["input"] == {"q": "é0", "n": [0, None], "z": True}
    assert task.prompt.render(example)[0].content == "é0 [0, null]"
    assert task.warnings == ("No slot of the prompt uses the input's z: the model does not see it.",)


def test_null_fills_a_slot_with_nothing_and_is_said(make: Callable[..., Path]) -> None:
    rows = [{"input": {"q": f"q{i}", "note": None if i == 3 else "n"}, "target": "a"} for i in range(5)]
    task = load_task(make({"prompt.md": "{{q}} ({{note}})"}, rows=rows))
    shown = {task.prompt.render(e)[0].content for e in examples(task)}
    assert shown == {"q0 (n)", "q1 (n)", "q2 (n)", "q3 ()", "q4 (n)"}
    (said,) = task.warnings
    assert said.startswith("1 row has null for a slot, which is filled with nothing (first: ")
    assert "data.jsonl:4" in said


def test_csv_columns_fill_slots(make: Callable[..., Path]) -> None:
    text = "q,answer,target,id\n" + "".join(f'"a\nb{i}",{i},t,k{i}\n' for i in range(4))
    yaml = "name: t\nprompt: prompt.md\ndata: data.csv\nreward: exact_match\n"
    task = load_task(make({"task.yaml": yaml, "data.csv": text, "prompt.md": "{{q}} {{answer}}"}))
    assert by_id(task)["k2"].values == {"q": "a\nb2", "answer": "2"}
    assert by_id(task)["k2"].row == {"id": "k2", "target": "t", "input": {"q": "a\nb2", "answer": "2"}}


def test_a_slot_may_be_named_answer_in_csv(make: Callable[..., Path]) -> None:
    yaml = "name: t\nprompt: prompt.md\ndata: data.csv\nreward: reward.py\n"
    files = {
        "task.yaml": yaml,
        "data.csv": "answer\n" + "a\nb\nc\n",
        "prompt.md": "{{answer}}",
        "reward.py": "def reward(example, output): return 1",
    }
    assert {e.values["answer"] for e in examples(load_task(make(files)))} == {"a", "b", "c"}


def test_csv_input_column_leaves_the_others_as_metadata(make: Callable[..., Path]) -> None:
    yaml = "name: t\nprompt: prompt.md\ndata: data.csv\nreward: exact_match\n"
    text = "\ufeffinput,hard,target\r\n" + "".join(f"q{i},yes,t\r\n" for i in range(4))
    example = load_task(make({"task.yaml": yaml, "data.csv": text})).train[0]
    assert example.row["hard"] == "yes" and example.values == {"input": example.text}


def test_a_huge_line_is_fine(make: Callable[..., Path]) -> None:
    big = "x" * 3_000_000
    rows = [{"input": big + str(i), "target": "a"} for i in range(3)]
    assert len(load_task(make(rows=rows)).train[0].values["input"]) == 3_000_001
    before = csv.field_size_limit()
    yaml = "name: t\nprompt: prompt.md\ndata: data.csv\nreward: f1\n"
    task = load_task(
        make({"task.yaml": yaml, "data.csv": "input,target\n" + "".join(f"{big}{i},a\n" for i in range(3))})
    )
    assert len(task.test[0].values["input"]) == 3_000_001 and csv.field_size_limit() == before


def test_repeated_rows_are_dropped_with_a_warning(make: Callable[..., Path]) -> None:
    rows = [{"input": f"q{i % 5}", "target": "a"} for i in range(7)]
    folder = make(rows=rows)
    task = load_task(folder)
    assert len(examples(task)) == 5
    assert task.warnings == (
        "2 rows were dropped as an exact repetition "
        f"(first: {folder}/data.jsonl:6 repeats {folder}/data.jsonl:1).",
    )
    assert all(len(e.id) == 12 and e.row["id"] == e.id for e in examples(task))


def test_rows_with_the_same_input_stay_in_one_split(make: Callable[..., Path]) -> None:
    rows = [{"id": i, "input": f"q{i % 6}", "target": str(i)} for i in range(60)]
    task = load_task(make(rows=rows))
    homes = [{e.text for e in split} for split in (task.train, task.validation, task.test)]
    assert sum(map(len, homes)) == len(set.union(*homes)) == 6


def test_numbers_and_truth_values_name_labels(make: Callable[..., Path]) -> None:
    rows = [{"input": f"q{i}", "target": t} for i, t in enumerate([True, False, "true", "false"] * 2)]
    task = load_task(make(yaml="labels: [true, false]\n", rows=rows))
    assert {e.target for e in examples(task)} == {"true", "false"}
    assert {type(e.row["target"]) for e in examples(task)} == {bool, str}


def test_warnings_name_what_may_be_wrong(make: Callable[..., Path]) -> None:
    rows = [{"input": f"q{i}" if i else " ", "target": "a"} for i in range(9)]
    folder = make(yaml="labels: [a, b]\n", rows=rows)
    assert load_task(folder).warnings == (
        f"1 row has an empty input (first: {folder}/data.jsonl:1).",
        'No training row has the label "b".',
    )


@pytest.mark.parametrize(
    ("reward", "target", "warned"),
    [
        ("exact_match", {"n": 1}, True),
        ("f1", {"n": 1}, True),
        ("contains", [], True),
        ("exact_match", "", True),
        ("[{exact_match: 0.5}, {json: 0.5}]", {"n": 1}, True),
        ("json", {"n": 1}, False),
        ("json", [], False),
        ("list", [], False),
        ("list", "", False),
        ("contains", "", True),
        ('{judge: {rubric: "Is it right?"}}', {"n": 1}, False),
    ],
)
def test_targets_that_no_answer_equals_are_said_where_texts_are_compared(
    reward: str, target: Any, warned: bool, make: Callable[..., Path]
) -> None:
    rows = [{"input": f"q{i}", "target": target} for i in range(9)]
    yaml = f"name: t\nprompt: prompt.md\ndata: data.jsonl\nreward: {reward}\n"
    warnings = load_task(make({"task.yaml": yaml}, rows=rows)).warnings
    assert any("9 rows have a target that no answer equals" in warning for warning in warnings) == warned


GIVEN = {
    "task.yaml": "name: t\nprompt: prompt.md\ndata: {train: a.jsonl, test: b.jsonl}\nreward: exact_match\n",
    "a.jsonl": "".join(json.dumps({"input": f"a{i}", "target": "x"}) + "\n" for i in range(14)),
    "b.jsonl": "".join(json.dumps({"input": f"b{i}", "target": "x"}) + "\n" for i in range(5)),
}


def test_validation_is_cut_from_train_when_it_is_not_given(make: Callable[..., Path]) -> None:
    task = load_task(make(GIVEN))
    assert (len(task.train), len(task.validation), len(task.test)) == (8, 6, 5)
    assert {e.values["input"][0] for e in task.test} == {"b"}
    assert {e.values["input"][0] for e in (*task.train, *task.validation)} == {"a"}


@pytest.mark.parametrize("name", ["validation", "dev", "valid", "val"])
def test_given_splits_keep_their_rows(name: str, make: Callable[..., Path]) -> None:
    yaml = GIVEN["task.yaml"].replace("test:", f"{name}: c.json, test:")
    task = load_task(make({**GIVEN, "task.yaml": yaml, "c.json": '[{"input": "c", "target": "x"}]'}))
    assert (len(task.train), [e.text for e in task.validation], len(task.test)) == (14, ["c"], 5)


def test_an_input_shared_by_given_splits_with_another_target_is_a_warning(make: Callable[..., Path]) -> None:
    folder = make({**GIVEN, "b.jsonl": GIVEN["b.jsonl"] + '{"input": "a3", "target": "y"}\n'})
    shared = f"1 inputs of one split stand in another with another target (first: {folder}/b.jsonl:6)."
    assert shared in load_task(folder).warnings


def test_the_fingerprint_depends_on_content_only(make: Callable[..., Path], tmp_path: Path) -> None:
    rows = [{"input": f"q{i}", "target": "a"} for i in range(12)]
    yaml = "name: t\nprompt: prompt.md\ndata: data.jsonl\nreward: {}\nlabels: [a, b]\n"
    base: dict[str, str | bytes] = {
        "task.yaml": yaml.format("reward.py"),
        "reward.py": "def reward(example, output):\n    return 1.0\n",
    }
    first = load_task(make(base, rows=rows)).fingerprint
    assert len(first) == 64
    same = [
        load_task(make(base, rows=rows[::-1])),
        load_task(
            make({**base, "task.yaml": "# note\n" + yaml.format("reward.py") + "method: opro\n"}, rows=rows)
        ),
    ]
    other = [
        load_task(make({**base, "prompt.md": "Answer: {{input}}"}, rows=rows)),
        load_task(make(base, rows=[*rows[:-1], {"input": "q11", "target": "b"}])),
        load_task(make(base, rows=[*rows[:-1], {"input": "q11", "target": "a", "note": 1}])),
        load_task(make({**base, "reward.py": "def reward(example, output):\n    return 0.0\n"}, rows=rows)),
        load_task(make({**base, "task.yaml": yaml.format("{reward.py: {low: -1}}")}, rows=rows)),
        load_task(make({**base, "task.yaml": yaml.format("exact_match")}, rows=rows)),
        load_task(make({**base, "task.yaml": yaml.format("reward.py") + "verbalizer: {a: x}\n"}, rows=rows)),
        load_task(make({**base, "task.yaml": yaml.format("reward.py") + "splits: {seed: 1}\n"}, rows=rows)),
    ]
    assert {t.fingerprint for t in same} == {first}
    assert len({first, *(t.fingerprint for t in other)}) == 1 + len(other)


def test_programs_print_to_stderr(make: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    files = {
        "task.yaml": "name: t\nprompt: prompt.md\ndata: data.py\nreward: reward.py\n",
        "data.py": "print('one')\ndef rows():\n    print('two')\n    return [{'input': i} for i in 'abcd']\n",
        "reward.py": "print('three')\ndef reward(example, output): return 1\n",
    }
    load_task(make(files))
    out, err = capsys.readouterr()
    assert out == "" and err.split() == ["three", "one", "two"]


def test_a_program_may_define_dataclasses(make: Callable[..., Path]) -> None:
    program = (
        "from __future__ import annotations\nfrom dataclasses import asdict, dataclass\n"
        "@dataclass\nclass R:\n    input: str\n    target: str\n"
        "def rows():\n    for i in range(6):\n        yield asdict(R(f'q{i}', 'a'))\n"
    )
    yaml = "name: t\nprompt: prompt.md\ndata: data.py\nreward: f1\n"
    assert len(examples(load_task(make({"task.yaml": yaml, "data.py": program})))) == 6


def test_anchors_and_block_text_are_plain_yaml(make: Callable[..., Path]) -> None:
    yaml = (
        "description: >\n  two\n  lines\nmodels:\n  task: &m {address: openai/a, timeout: 5}\n  judge: *m\n"
    )
    task = load_task(make(yaml=yaml))
    assert task.description == "two lines"
    assert task.models["task"] == task.models["judge"] == ModelSpec("openai/a", timeout=5.0)


def test_rows_with_the_input_of_another_row_are_no_further_samples(make: Callable[..., Path]) -> None:
    """Each with an id of its own: a prompt answers the input once, and the answer counts for all of them."""
    rows = [
        {"id": str(n), "input": "Roll a die." if n < 40 else f"Roll {n} dice.", "target": "6"}
        for n in range(60)
    ]
    (warning,) = [
        text for text in load_task(make(rows=rows)).warnings if "the same input as an earlier row" in text
    ]
    assert warning.startswith("39 rows have the same input as an earlier row (first: ")
    assert "this answer counts for all rows with the input" in warning
