"""Every kind of bad input is refused with file, line and remedy, and nothing is written."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from whet.errors import UsageError
from whet.task import load_prompt, load_task

MINIMAL = "name: t\nprompt: prompt.md\ndata: data.jsonl\n"


@dataclass
class Case:
    """`at`: file:line of the message; `says`: pieces of it, in order, the last one from the remedy."""

    at: str
    says: tuple[str, ...]
    yaml: str = ""
    files: dict[str, str | bytes] = field(default_factory=dict)
    rows: Any = None


def rows(*changed: Any) -> list[Any]:
    return [{"id": f"r{i}", "input": f"q{i}", "target": "a"} for i in range(5)] + list(changed)


def data(value: str, **files: str | bytes) -> dict[str, str | bytes]:
    return {
        "task.yaml": f"name: t\nprompt: prompt.md\ndata: {value}\nreward: exact_match\n",
        **{name.replace("_", ".", 1): text for name, text in files.items()},
    }


def reward(value: str, **files: str) -> dict[str, str | bytes]:
    return {"task.yaml": MINIMAL + f"reward: {value}\n", **{n.replace("_", "."): t for n, t in files.items()}}


THREE = '{"input": "a", "target": "1"}\n{"input": "b", "target": "2"}\n{"input": "c", "target": "3"}\n'
SPLIT_FILES = {"tr.jsonl": THREE, "te.jsonl": '{"input": "z", "target": "9"}\n'}
LABELS = "labels: [yes, no]\n"

TASK_FILE = {
    "tab": Case("task.yaml:5", ("not valid YAML", "spaces, not tabs"), "\tdescription: x\n"),
    "indent": Case("task.yaml:6", ("not valid YAML", "indentation"), "models: {}\n  x: 1\n"),
    "empty": Case("task.yaml:1", ("empty", "name, prompt, data, reward"), files={"task.yaml": ""}),
    "control character": Case("task.yaml:2", ("\\x01", "Remove"), files={"task.yaml": "name: t\nx: \x01"}),
    "two documents": Case("task.yaml:5", ("second document", "---"), "---\na: 1\n"),
    "a list": Case("task.yaml:1", ("mapping", "list", "name, prompt"), files={"task.yaml": "- a\n"}),
    "unknown key": Case("task.yaml:5", ('no key "modells"', '"models"'), "modells: {}\n"),
    "key twice": Case("task.yaml:5", ('"name" appears twice', "line 1", "Keep one"), "name: u\n"),
    "key no word": Case("task.yaml:5", ("a key must be a word", "quotes"), "description: {{x}}\n"),
    "unknown tag": Case(
        "task.yaml:5", ("python", "not supported", "Remove"), "method: !!python/name:os.x y\n"
    ),
    "wrong tag": Case("task.yaml:5", ("'abc'", "int", "Remove the tag"), "method: !!int abc\n"),
    "anchors without end": Case("task.yaml:5", ("without end", "Write"), "settings: &a {b: *a}\n"),
    "anchors that explode": Case(
        "task.yaml:6",
        ("more than 20,000 values", "Shorten"),
        "settings:\n  a0: &a0 [x, x]\n"
        + "".join(f"  a{i}: &a{i} [*a{i - 1}, *a{i - 1}]\n" for i in range(1, 40)),
    ),
    "not UTF-8": Case("task.yaml:2", ("0xff at offset 8", "UTF-8"), files={"task.yaml": b"name: t\n\xff"}),
    "no name": Case("task.yaml:1", ("`name` is missing", "name: my-task"), files={"task.yaml": "data: d\n"}),
    "no reward": Case("task.yaml:1", ("`reward` is missing", "exact_match"), files={"task.yaml": MINIMAL}),
    "name is a list": Case(
        "task.yaml:1",
        ("text", "a list of 1", "name: my-task"),
        files={"task.yaml": "name: [a]\n" + MINIMAL[8:] + "reward: f1"},
    ),
    "name is a path": Case(
        "task.yaml:1",
        ("'/'", "Use letters"),
        files={"task.yaml": "name: ../x/y\n" + MINIMAL[8:] + "reward: f1"},
    ),
    "name of too many bytes": Case(
        "task.yaml:1",
        ("180 bytes",),
        files={"task.yaml": "name: " + "情" * 61 + "\n" + MINIMAL[8:] + "reward: f1"},
    ),
    "name empty": Case(
        "task.yaml:1",
        ("`name` is empty", "name: my-task"),
        files={"task.yaml": "name: ' '\n" + MINIMAL[8:] + "reward: f1"},
    ),
    "too deep": Case("task.yaml:1", ("too deeply", "fewer"), "settings: " + "[" * 1000),
    "empty description": Case("task.yaml:5", ("`description`", "nothing", "a sentence"), "description:\n"),
}
SETTINGS = {
    "negative budget": Case("task.yaml:6", ("max_calls", "1 or more", "-5"), "budget:\n  max_calls: -5\n"),
    "budget text": Case(
        "task.yaml:5", ("whole number", "'1,000'", "quotes"), 'budget: {max_tokens: "1,000"}\n'
    ),
    "budget fraction": Case("task.yaml:5", ("whole number", "2.5"), "budget: {max_calls: 2.5}\n"),
    "budget infinite": Case("task.yaml:5", ("max_cost", "number", "inf"), "budget: {max_cost: .inf}\n"),
    "budget key": Case("task.yaml:5", ('no key "calls"', '"max_calls"'), "budget: {calls: 5}\n"),
    "models text": Case("task.yaml:5", ("roles", "{task: openai/x}"), "models: openai/x\n"),
    "unknown role": Case("task.yaml:6", ('"optimiser"', '"optimizer"'), "models:\n  optimiser: openai/x\n"),
    "address": Case("task.yaml:5", ('"gpt-4"', "openai/gpt-4o-mini"), "models: {task: gpt-4}\n"),
    "model key": Case(
        "task.yaml:7",
        ('no key "temprature"', '"temperature"'),
        "models:\n  task:\n    temprature: 1\n",
    ),
    "api key": Case(
        "task.yaml:5", ("does not belong", "OPENAI_API_KEY"), "models: {task: {api_key: s3cret}}\n"
    ),
    "temperature": Case(
        "task.yaml:5", ("temperature", "0 or more", "-1"), "models: {task: {temperature: -1}}\n"
    ),
    "concurrency": Case(
        "task.yaml:5", ("concurrency", "1 or more", "0"), "models: {judge: {concurrency: 0}}\n"
    ),
    "timeout": Case("task.yaml:5", ("timeout", "above 0", "0"), "models: {task: {timeout: 0}}\n"),
    "base_url": Case("task.yaml:5", ("localhost:1", "http://"), "models: {task: {base_url: localhost:1}}\n"),
    "stop": Case("task.yaml:5", ("stop", "5", "stop: ["), "models: {task: {stop: [5]}}\n"),
    "price": Case(
        "task.yaml:5", ("price has no `output`", "million output"), "models: {task: {price: {input: 1}}}\n"
    ),
    "price key": Case("task.yaml:5", ('"outputs"', '"output"'), "models: {task: {price: {outputs: 1}}}\n"),
    "splits sum": Case("task.yaml:5", ("sum to 0.9", "sum to 1"), "splits: {train: .5, dev: .2, test: .2}\n"),
    "splits missing": Case(
        "task.yaml:5", ("no share for test", "test: 0.3"), "splits: {train: .5, val: .5}\n"
    ),
    "splits zero": Case("task.yaml:5", ("test", "above 0"), "splits: {train: .5, val: .5, test: 0}\n"),
    "splits twice": Case("task.yaml:5", ("validation twice", "Keep one"), "splits: {dev: .5, val: .5}\n"),
    "one label": Case("task.yaml:5", ("at least two", "1", "labels: [positive"), "labels: [a]\n"),
    "labels text": Case("task.yaml:5", ("list", "'a, b'", "labels: ["), "labels: a, b\n"),
    "label twice": Case("task.yaml:7", ('"A" appears twice', "Keep one"), "labels:\n- a\n- A\n"),
    "label in another form": Case(
        "task.yaml:7", ('appears twice, because "é" is equal', "Keep one"), 'labels:\n- é\n- "e\\u0301"\n'
    ),
    "label with an invisible character": Case(
        "task.yaml:7", ('appears twice, because "a" is equal', "Keep one"), 'labels:\n- a\n- "a\\u200b"\n'
    ),
    "verbalizer alone": Case("task.yaml:5", ("needs `labels`", "Add labels"), "verbalizer: {a: b}\n"),
    "verbalizer key": Case(
        "task.yaml:6", ('"yess"', 'Did you mean "yes"'), LABELS + "verbalizer: {yess: a}\n"
    ),
    "word twice": Case(
        "task.yaml:6", ('"ok"', "yes and for no", "own"), LABELS + "verbalizer: {yes: ok, no: OK}\n"
    ),
    "word in another form": Case(
        "task.yaml:6", ("yes and for no", "own"), LABELS + 'verbalizer: {yes: é, no: "e\\u0301"}\n'
    ),
    "word is a label": Case(
        "task.yaml:6", ('"no"', "Give each"), LABELS + "verbalizer: {yes: no, no: never}\n"
    ),
}
PROMPT = {
    "no prompt file": Case(
        "task.yaml:2",
        ("no file", "promt.md", '"prompt.md"'),
        files={"task.yaml": "name: t\nprompt: promt.md\ndata: data.jsonl\nreward: f1\n"},
    ),
    "prompt empty": Case("prompt.md:1", ("empty", "Write"), files={"prompt.md": "\n \n"}),
    "prompt not UTF-8": Case(
        "prompt.md:2", ("0xe9 at offset 5", "UTF-8"), files={"prompt.md": b"abc\nf\xe9"}
    ),
    "prompt NUL": Case("prompt.md:2", ("NUL", "Remove"), files={"prompt.md": "a\n\x00"}),
    "fence open": Case(
        "prompt.md:2", ("never closed", "whet:end"), files={"prompt.md": "a\n<!-- whet:begin -->"}
    ),
    "slot misspelled": Case(
        "prompt.md:2", ("{{imput}}", 'Did you mean "input"'), files={"prompt.md": "a\n{{imput}}"}
    ),
    "slot of an object": Case("prompt.md:1", ("{{q}}", '"input": {"q"'), files={"prompt.md": "{{q}}"}),
    "mask without labels": Case(
        "prompt.md:1", ("{{mask}}", "labels:"), files={"prompt.md": "{{input}} {{mask}}"}
    ),
    "row lacks a slot": Case(
        "data.jsonl:2",
        ('no "context"', "prompt.md:3", 'Did you mean "contxt"'),
        files={"prompt.md": "x\n\n{{context}}"},
        rows=[{"input": {"context": "a"}, "target": "b"}, {"input": {"contxt": "a"}, "target": "b"}],
    ),
    "row lacks a slot, nothing near": Case(
        "data.jsonl:1",
        ('no "b"', "prompt.md:1", 'Add "b"'),
        files={"prompt.md": "{{b}}"},
        rows=[{"input": {"zzz": "a"}, "target": "b"}, {"input": {"b": "a"}, "target": "b"}],
    ),
    "chat role": Case(
        "prompt.yaml:3",
        ('"users"', '"user"'),
        files=data(
            "data.jsonl", **{"prompt_yaml": "- role: system\n  content: a\n- role: users\n  content: b\n"}
        )
        | {"task.yaml": "name: t\nprompt: prompt.yaml\ndata: data.jsonl\nreward: f1\n"},
    ),
    "chat slot unquoted": Case(
        "prompt.yaml:1",
        ("a key must be a word", "quotes"),
        files={
            "task.yaml": "name: t\nprompt: prompt.yaml\ndata: data.jsonl\nreward: f1\n",
            "prompt.yaml": "- {role: user, content: {{input}}}\n",
        },
    ),
    "chat fence": Case(
        "prompt.yaml:5",
        ("without a", "whet:begin"),
        files={
            "task.yaml": "name: t\nprompt: prompt.yaml\ndata: data.jsonl\nreward: f1\n",
            "prompt.yaml": "- role: user\n  content: |\n    {{input}}\n    b\n    <!-- whet:end -->\n",
        },
    ),
    "chat content missing": Case(
        "prompt.yaml:1",
        ("no `content`", "a list of messages"),
        files={
            "task.yaml": "name: t\nprompt: prompt.yaml\ndata: data.jsonl\nreward: f1\n",
            "prompt.yaml": "- role: user\n",
        },
    ),
}
ROWS = {
    "no data file": Case("task.yaml:3", ("no file", '"data.jsonl"'), files=data("dat.jsonl")),
    "data kind": Case("task.yaml:3", (".jsonl", ".csv", "x.xls", "Convert"), files=data("x.xls", x_xls="")),
    "data empty": Case("data.jsonl:1", ("no rows", "target"), files={"data.jsonl": "\n\n"}),
    "broken JSON": Case(
        "data.jsonl:2",
        ("column 11", "double quotes"),
        files={"data.jsonl": '{"input":"a","target":"b"}\n{"input": "a\n'},
    ),
    "single quotes": Case(
        "data.jsonl:1", ("column 2", "double quotes"), files={"data.jsonl": "{'input': 'a'}\n"}
    ),
    "no object": Case("data.jsonl:6", ("must be an object", "5", "Write {"), rows=rows(5)),
    "list line": Case("data.jsonl:1", ("this is a list", ".json"), files={"data.jsonl": '[{"input": "a"}]'}),
    "pretty": Case("data.jsonl:1", ("one line", "Join"), files={"data.jsonl": '{\n"input": "a"}'}),
    "two on a line": Case(
        "data.jsonl:1",
        ("column 16", "one object on each"),
        files={"data.jsonl": '{"input":"a"}  {"input":"b"}'},
    ),
    "number too long": Case(
        "data.jsonl:1",
        ("too long", "as a text"),
        files={"data.jsonl": '{"input": "a", "target": ' + "9" * 5000 + "}"},
    ),
    "json empty": Case("data.json:1", ("no rows", "Write"), files=data("data.json", data_json=" \n")),
    "missing cell's place": Case(
        "data.csv:5",
        ("1 cell", "2 columns", "Quote"),
        files=data("data.csv", data_csv="input,target\n\na,b\n\nc\n"),
    ),
    "NaN": Case("data.jsonl:1", ("NaN", "null"), files={"data.jsonl": '{"input": "a", "target": NaN}'}),
    "JSON key twice": Case(
        "data.jsonl:1", ('"input" appears twice', "Keep"), files={"data.jsonl": '{"input":"a","input":"b"}'}
    ),
    "surrogate": Case(
        "data.jsonl:1", ("surrogate", "Remove"), files={"data.jsonl": '{"input": "\\ud83d", "target": ""}'}
    ),
    "deep": Case("data.jsonl:1", ("too deeply", "fewer"), files={"data.jsonl": '{"input":' + "[" * 100_000}),
    "data not UTF-8": Case("data.jsonl:2", ("0xfc at offset 3", "UTF-8"), files={"data.jsonl": b"{}\n\xfc"}),
    "no input": Case(
        "data.jsonl:6",
        ('no "input"', 'mean "question"', 'to "input"'),
        rows=rows({"question": "a", "target": "b"}),
    ),
    "inputs": Case(
        "data.jsonl:6", ('no "input"', 'mean "inputs"'), rows=rows({"inputs": "a", "target": "b"})
    ),
    "no input, unknown": Case(
        "data.jsonl:6", ('no "input"', "zz, target", "Add"), rows=rows({"zz": "a", "target": "b"})
    ),
    "slots beside input": Case(
        "data.jsonl:1",
        ('"input": {"q": ...}', "inside"),
        files={"prompt.md": "{{q}}"},
        rows=[{"q": "a", "target": "b"}],
    ),
    "input a list": Case(
        "data.jsonl:6", ("text or an object", "['a']", "quotes"), rows=rows({"input": ["a"], "target": "b"})
    ),
    "input empty object": Case(
        "data.jsonl:6", ("empty object", "slot"), rows=rows({"input": {}, "target": "b"})
    ),
    "no target": Case(
        "data.jsonl:6",
        ('no "target"', "exact_match", 'mean "answer"'),
        rows=rows({"input": "a", "answer": "b"}),
    ),
    "null target": Case("data.jsonl:6", ("null", "exact_match"), rows=rows({"input": "a", "target": None})),
    "id twice": Case(
        "data.jsonl:6",
        ('"r0"', "data.jsonl:1", "leave ids out"),
        rows=rows({"id": "r0", "input": "x", "target": "y"}),
    ),
    "id a list": Case(
        "data.jsonl:6",
        ("id must be a text", "[1]", "leave ids"),
        rows=rows({"id": [1], "input": "x", "target": "y"}),
    ),
    "target no label": Case(
        "data.jsonl:2",
        ("'yess'", 'mean "yes"'),
        LABELS,
        rows=[{"input": "a", "target": "no"}, {"input": "b", "target": "yess"}],
    ),
    "target a word": Case(
        "data.jsonl:1",
        ("'great'", '"yes"', "write that"),
        LABELS + "verbalizer: {yes: great}\n",
        rows=[{"input": "a", "target": "great"}],
    ),
    "mask in input": Case(
        "data.jsonl:1",
        ('"mask"', "Rename"),
        LABELS,
        {"prompt.md": "{{q}} {{mask}}"},
        [{"input": {"q": "a", "mask": "b"}, "target": "yes"}],
    ),
    "json object": Case(
        "data.json:1", ("a list of rows", ".jsonl"), files=data("data.json", data_json='{"rows": []}')
    ),
    "json comma": Case(
        "data.json:3",
        ("comma", "Add"),
        files=data("data.json", data_json='[{"input": "a", "target": "b"}\n\n{}]'),
    ),
    "json last comma": Case(
        "data.json:2",
        ("comma", "Remove"),
        files=data("data.json", data_json='[{"input": "a", "target": "b"},\n]'),
    ),
    "json broken": Case(
        "data.json:4",
        ("column 6", "double"),
        files=data("data.json", data_json='[{"input": "a", "target": "b"},\n{\n "c": 1,\n "d" 5}]'),
    ),
    "json tail": Case(
        "data.json:1",
        ("follows", "Remove"),
        files=data("data.json", data_json='[{"input": "a", "target": "b"}] x'),
    ),
    "json bad row": Case(
        "data.json:3",
        ('no "input"', "Add"),
        files=data("data.json", data_json='[{"input": "a", "target": "b"},\n\n{"zz": 5}]'),
    ),
    "csv empty": Case("data.csv:1", ("empty", "input,target"), files=data("data.csv", data_csv="")),
    "csv no rows": Case(
        "data.csv:1", ("no rows", "Write"), files=data("data.csv", data_csv="input,target\n")
    ),
    "csv cells": Case(
        "data.csv:4",
        ("3 cells", "2 columns", "Quote"),
        files=data("data.csv", data_csv='input,target\n"a\nb",c\nd,e,f\n'),
    ),
    "csv quote": Case(
        "data.csv:2", ("not valid CSV", "close"), files=data("data.csv", data_csv='input,target\n"abc,d\n')
    ),
    "csv column twice": Case(
        "data.csv:1",
        ('"input" appears twice', "Rename"),
        files=data("data.csv", data_csv="input,input\na,b\n"),
    ),
    "csv no column name": Case(
        "data.csv:2", ("no name", "Name it"), files=data("data.csv", data_csv="input,\na,b\n")
    ),
    "csv target": Case(
        "data.csv:1", ('mean "answer"', "target"), files=data("data.csv", data_csv="question,answer\na,b\n")
    ),
    "csv no input": Case(
        "data.csv:1", ('no column "input"', "slots"), files=data("data.csv", data_csv="id,target\na,b\n")
    ),
    "csv cell empty": Case(
        "data.csv:3", ('no "target"', "Add"), files=data("data.csv", data_csv="input,target\na,b\nc,\n")
    ),
    "program syntax": Case(
        "data.py:2", ("SyntaxError", "Correct"), files=data("data.py", data_py="x = 1\ny = (\n")
    ),
    "program fails": Case(
        "data.py:3",
        ("KeyError", "Correct"),
        files=data("data.py", data_py="def rows():\n    yield {}\n    {}['a']\n"),
    ),
    "program without rows": Case(
        "data.py:1", ("no function", "def rows()"), files=data("data.py", data_py="row = 1\n")
    ),
    "program exits": Case(
        "data.py:1", ("SystemExit", "Correct"), files=data("data.py", data_py="raise SystemExit(0)\n")
    ),
    "program row": Case(
        "data.py:2", ("row 1", "5", "Yield"), files=data("data.py", data_py="\ndef rows():\n    return [5]\n")
    ),
    "program id twice": Case(
        "data.py:1",
        ("row 2", '"k"', "row 1", "leave ids out"),
        files=data(
            "data.py",
            data_py="def rows():\n    return [{'id': 'k', 'input': i, 'target': i} for i in 'ab']\n",
        ),
    ),
    "program value": Case(
        "data.py:1",
        ("row 1", "set", "Rows hold texts"),
        files=data("data.py", data_py="def rows():\n    return [{'input': {1}}]\n"),
    ),
}
SPLITS = {
    "too few": Case("task.yaml:3", ("test would be empty", "2 rows", "at least 3"), rows=rows()[:2]),
    "same input only": Case(
        "task.yaml:3",
        ("3 rows with 1 different", "at least 3"),
        rows=[{"input": "a", "target": str(i)} for i in range(3)],
    ),
    "no test": Case(
        "task.yaml:3", ("no test file", "test: test.jsonl"), files=data("{train: tr.jsonl}") | SPLIT_FILES
    ),
    "no train": Case(
        "task.yaml:3", ("no train", "train: train.jsonl"), files=data("{test: te.jsonl}") | SPLIT_FILES
    ),
    "split key": Case(
        "task.yaml:3", ('"tests"', '"test"'), files=data("{train: tr.jsonl, tests: te.jsonl}") | SPLIT_FILES
    ),
    "split file": Case(
        "task.yaml:3",
        ("no file", '"te.jsonl"'),
        files=data("{train: tr.jsonl, test: tes.jsonl}") | SPLIT_FILES,
    ),
    "leak": Case(
        "te.jsonl:1",
        ("also in train", "tr.jsonl:2", "Remove"),
        files=data("{train: tr.jsonl, test: te.jsonl}")
        | SPLIT_FILES
        | {"te.jsonl": '{"id": "k", "input": "b", "target": "2"}\n'},
    ),
    "exact leak": Case(
        "te.jsonl:1",
        ("also in train", "tr.jsonl:2", "Remove"),
        files=data("{train: tr.jsonl, test: te.jsonl}")
        | SPLIT_FILES
        | {"te.jsonl": '{"input": "b", "target": "2"}\n'},
    ),
    "id in two files": Case(
        "te.jsonl:1",
        ('"k"', "tr.jsonl:1", "leave ids out"),
        files=data("{train: tr.jsonl, test: te.jsonl}")
        | {
            "tr.jsonl": '{"id": "k", "input": "a", "target": "2"}\n',
            "te.jsonl": '{"id": "k", "input": "b", "target": "2"}\n',
        },
    ),
    "same file": Case(
        "tr.jsonl:1",
        ("also in train", "tr.jsonl:1", "Remove"),
        files=data("{train: tr.jsonl, test: tr.jsonl}") | SPLIT_FILES,
    ),
    "splits with files": Case(
        "task.yaml:3",
        ("all three", "Remove `splits`"),
        files=data("{train: tr.jsonl, dev: de.jsonl, test: te.jsonl}\nsplits: {seed: 1}")
        | SPLIT_FILES
        | {"de.jsonl": '{"input": "y", "target": "9"}\n'},
    ),
    "one row to cut": Case(
        "task.yaml:3",
        ("validation would be empty", "at least 2"),
        files=data("{train: te.jsonl, test: tr.jsonl}") | SPLIT_FILES,
    ),
    "data a list": Case(
        "task.yaml:3", ("`data` must be text", "list", "data: data.jsonl"), files=data("[data.jsonl]")
    ),
}
REWARD = {
    "unknown": Case("task.yaml:4", ('"exact_mach"', '"exact_match"'), files=reward("exact_mach")),
    "option": Case("task.yaml:4", ('"patern"', '"pattern"'), files=reward("{regex: {patern: a}}")),
    "option needed": Case(
        "task.yaml:4", ("needs the option `pattern`", "{regex: {pattern"), files=reward("regex")
    ),
    "option type": Case("task.yaml:4", ("text", "42"), files=reward("{contains: {text: 42}}")),
    "pattern": Case(
        "task.yaml:4", ("regular expression", "Correct"), files=reward("{regex: {pattern: '('}}")
    ),
    "no options": Case("task.yaml:4", ('"x"', "takes none"), files=reward("{f1: {x: 1}}")),
    "weight": Case(
        "task.yaml:4", ("weight of f1", "finite", "0"), files=reward("[{f1: 0}, {exact_match: 1}]")
    ),
    "empty list": Case("task.yaml:4", ("list of rewards is empty", "Name"), files=reward("[]")),
    "twice": Case("task.yaml:4", ("twice", "Keep"), files=reward("[f1, f1]")),
    "number": Case("task.yaml:4", ("exact_match", "this is 5"), files=reward("5")),
    "labels": Case("task.yaml:4", ("gap", "Add labels"), files=reward("gap")),
    "no file": Case(
        "task.yaml:4", ("no such file", "def reward(example, output)"), files=reward("reward.py")
    ),
    "broken": Case(
        "reward.py:2", ("SyntaxError", "Correct"), files=reward("reward.py", reward_py="\ndef (:\n")
    ),
    "import": Case(
        "reward.py:1",
        ("no_such_module", "Correct"),
        files=reward("reward.py", reward_py="import no_such_module\n"),
    ),
    "function": Case(
        "reward.py:1",
        ("no function", "reward(example, output)"),
        files=reward("reward.py", reward_py="def score(): ...\n"),
    ),
    "signature": Case(
        "reward.py:2", ("two parameters",), files=reward("reward.py", reward_py="\ndef reward(output): ...\n")
    ),
    "range": Case(
        "task.yaml:4",
        ("low < high",),
        files=reward("{program: {low: 1, high: 0}}", reward_py="def reward(a, b): ...\n"),
    ),
    "second opinion unknown": Case(
        "task.yaml:5", ('"exact_mach"', '"exact_match"'), files=reward("f1\nsecond_opinion: exact_mach")
    ),
    "second opinion by probabilities": Case(
        "task.yaml:5",
        ("perplexity", "probabilities", "reads answers"),
        files=reward("f1\nsecond_opinion: perplexity"),
    ),
    "second opinion of a game": Case(
        "task.yaml:5",
        ("single answers", "Remove one"),
        files=reward("return\nsecond_opinion: f1\nenvironment: {gymnasium: FrozenLake-v1, turns: 20}"),
    ),
    "second opinion without targets": Case(
        "data.jsonl:1",
        ("target", "exact_match"),
        files=reward("{checklist: {items: [a]}}\nsecond_opinion: exact_match"),
        rows=[{"input": f"q{n}"} for n in range(9)],
    ),
}
ALL = {
    f"{group}: {name}": case
    for group, table in {
        "task": TASK_FILE,
        "settings": SETTINGS,
        "prompt": PROMPT,
        "rows": ROWS,
        "splits": SPLITS,
        "reward": REWARD,
    }.items()
    for name, case in table.items()
}


@pytest.mark.parametrize("name", ALL)
def test_bad_input_is_refused_with_place_and_remedy(name: str, make: Callable[..., Path]) -> None:
    case = ALL[name]
    folder = make(case.files, case.yaml, case.rows)
    before = sorted(folder.rglob("*"))
    with pytest.raises(UsageError) as caught:
        load_task(folder)
    message = str(caught.value)
    assert message.startswith(f"{folder}/{case.at}: "), message
    at = 0
    for piece in case.says:
        found = message.find(piece, at)
        assert found >= 0, f"{piece!r} not in {message[at:]!r}"
        at = found + len(piece)
    assert re.search(r'[.?"]$', message), message
    assert len(message) < 500 + 3 * len(str(folder))
    assert sorted(folder.rglob("*")) == before
    assert "s3cret" not in message


def test_a_missing_folder_is_refused_with_the_nearest_name(make: Callable[..., Path]) -> None:
    folder = make()
    near = re.escape(f'Did you mean "{folder.parent / "mytask"}"?')
    with pytest.raises(UsageError, match=rf"mytaks: there is no such task folder\. {near}"):
        load_task(folder.parent / "mytaks")


@pytest.mark.parametrize(
    ("name", "remedy"), [("task.yml", "Rename task.yml"), ("x.txt", "Write one with the keys name")]
)
def test_a_folder_without_a_task_file_is_refused(name: str, remedy: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("name: t\n")
    with pytest.raises(UsageError, match=rf"no task\.yaml in this folder\. {remedy}"):
        load_task(tmp_path)


def test_another_file_is_no_task(make: Callable[..., Path]) -> None:
    with pytest.raises(UsageError, match=r"prompt\.md: a task is a folder or its task\.yaml"):
        load_task(make() / "prompt.md")


def test_a_prompt_that_is_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: it is a folder"):
        load_prompt(tmp_path)


def test_a_prompt_in_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no file .*b\.md\. The folder .*a does not exist either\."):
        load_prompt(tmp_path / "a" / "b.md")


def test_long_values_are_cut_in_messages(make: Callable[..., Path]) -> None:
    folder = make(rows=rows(["x" * 10_000]))
    (folder / "data.jsonl").write_text(json.dumps({"input": ["x" * 10_000], "target": "a"}) + "\n")
    with pytest.raises(UsageError) as caught:
        load_task(folder)
    assert len(str(caught.value)) < 400 + len(str(folder))
