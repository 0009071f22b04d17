"""Wrong task files, prompts, data, rewards and feedback."""

from __future__ import annotations

import json
from collections.abc import Mapping

from tests.wrong_inputs.case import EXACT, PLAIN, TASK, Case, data, feedback, prompt, reward, row, rows, task

LABELS = TASK + EXACT + "labels: [yes, no]\n"


def labelled(lines: str, *says: str, labels: str = "[yes, no]") -> Case:
    """Rows whose targets are no labels."""
    yaml = f"{TASK}{EXACT}labels: {labels}\n"
    return Case(says, files={"task/task.yaml": yaml, "task/data.jsonl": lines})


TASKS: Mapping[str, Case] = {
    "a tab": task("\tmethod: opro\n", "task.yaml:5", "tabs"),
    "unknown key": task("modells: {}\n", "task.yaml:5", '"models"'),
    "key twice": task("name: u\n", "task.yaml:5", "twice"),
    "unclosed": task("models: {task: openai/x\n", "task.yaml", "not valid YAML"),
    "method a list": task("method: [opro]\n", "task.yaml:5", "text"),
    "settings a text": task("settings: n=3\n", "task.yaml:5", "mapping"),
    "settings out of range": task(
        "method: random_search\nsettings: {n: -3}\n", "n must be 1 or more", command=PLAIN
    ),
    "settings unknown": task("method: random_search\nsettings: {m: 3}\n", 'no setting "m"'),
    "budget below 0": task("budget: {max_calls: -5}\n", "task.yaml:5", "-5"),
    "budget of no calls": task("budget: {max_calls: 0}\n", "task.yaml:5", "max_calls", "0"),
    "budget key": task("budget: {calls: 5}\n", "task.yaml:5", '"max_calls"'),
    "role unknown": task("models: {optimiser: openai/x}\n", "task.yaml:5", '"optimizer"'),
    "address": task("models: {task: gpt-4}\n", "task.yaml:5", "openai/gpt-4o-mini"),
    "provider": task("models: {judge: watsonx/llama3}\n", "task.yaml:5", "openai/llama3", "base_url"),
    "key in the file": task("models: {task: {api_key: s}}\n", "task.yaml:5", "OPENAI_API_KEY"),
    "temperature": task("models: {task: {temperature: hot}}\n", "task.yaml:5", "temperature"),
    "max tokens": task("models: {task: {max_tokens: 0}}\n", "task.yaml:5", "max_tokens"),
    "price": task("models: {task: {price: 3}}\n", "task.yaml:5", "price"),
    "splits": task("splits: {train: 0.9, validation: 0.9, test: 0.9}\n", "task.yaml:5", "split"),
    "splits a list": task("splits: [0.4, 0.3, 0.3]\n", "task.yaml:5", "mapping"),
    "alpha": task("alpha: 5\n", "task.yaml:5", "alpha"),
    "minimum effect": task("minimum_effect: -1\n", "task.yaml:5", "minimum_effect"),
    "group of nothing": task("group: user\n", "data.jsonl:1", '"user"'),
    "label alone": task("labels: [a]\n", "task.yaml:5", "two labels"),
    "labels a text": task("labels: a, b\n", "task.yaml:5", "list"),
    "verbalizer alone": task("verbalizer: {a: b}\n", "task.yaml:5", "labels"),
    "environment unknown": task("environment: {gym: x}\n", "task.yaml:5", "environment"),
    "second opinion": task("second_opinion: exact_mach\n", "task.yaml:5", '"exact_match"'),
    "no name": Case(("task.yaml:1", "`name`"), files={"task/task.yaml": "data: d\n"}),
    "name a path": Case(("'/'",), files={"task/task.yaml": f"name: a/b\n{TASK[8:]}{EXACT}"}),
    "prompt nowhere": Case(
        ("task.yaml:2", "no file", '"prompt.md"'),
        files={"task/task.yaml": f"name: t\nprompt: promt.md\ndata: data.jsonl\n{EXACT}"},
    ),
    "data nowhere": Case(
        ("task.yaml:3", "no file", '"data.jsonl"'),
        files={"task/task.yaml": f"name: t\nprompt: prompt.md\ndata: dta.jsonl\n{EXACT}"},
    ),
    "data a folder": Case(
        ("task.yaml:3",), files={"task/task.yaml": f"name: t\nprompt: prompt.md\ndata: ..\n{EXACT}"}
    ),
    "data a list": Case(
        ("task.yaml:3", "text"), files={"task/task.yaml": f"name: t\nprompt: prompt.md\ndata: [a]\n{EXACT}"}
    ),
    "split unknown": Case(
        ("task.yaml:3", '"validation"'),
        files={
            "task/task.yaml": f"name: t\nprompt: prompt.md\ndata: {{train: data.jsonl, valdation: d, test: e}}\n{EXACT}"
        },
    ),
    "no test": Case(
        ("task.yaml:3", "test"),
        files={"task/task.yaml": f"name: t\nprompt: prompt.md\ndata: {{train: data.jsonl}}\n{EXACT}"},
    ),
    "one file for two splits": Case(
        ("data.jsonl:1", "already"),
        files={
            "task/task.yaml": f"name: t\nprompt: prompt.md\ndata: {{train: data.jsonl, test: data.jsonl}}\n{EXACT}"
        },
    ),
}
PROMPTS: Mapping[str, Case] = {
    "empty": prompt("", "prompt.md:1", "empty"),
    "blank": prompt(" \n\n", "prompt.md:1", "empty"),
    "latin-1": prompt("R\u00e9ponds.".encode("latin-1"), "prompt.md:1", "UTF-8"),
    "UTF-16 that is cut": prompt("Answer.".encode("utf-16")[:-1], "prompt.md:1", "UTF-16"),
    "a NUL": prompt("Answer.\n\x00", "prompt.md:2", "NUL"),
    "slot unknown": prompt("Answer.\n{{qestion}}\n", "prompt.md:2", "{{qestion}}"),
    "mask without labels": prompt("It is {{mask}}.\n", "prompt.md:1", "labels"),
    "fence open": prompt("<!-- whet:begin -->\nx\n", "prompt.md:1", "whet:end"),
    "fence closed twice": prompt("x\n<!-- whet:end -->\n", "prompt.md:2"),
    "fence misspelled": prompt("<!-- whet:start -->\nx\n<!-- whet:end -->\n", "prompt.md:3"),
    "fence in a fence": prompt(
        "<!-- whet:begin -->\n<!-- whet:begin -->\nx\n<!-- whet:end -->\n<!-- whet:end -->\n", "prompt.md:2"
    ),
    "fence twice": prompt(
        "<!-- whet:begin a -->\nx\n<!-- whet:end -->\n<!-- whet:begin a -->\ny\n<!-- whet:end -->\n", '"a"'
    ),
    "one brace": prompt("Answer.\n\n{input}\n", "prompt.md:3", "{input}", "{{input}}", code=0),
    "a dollar": prompt("Answer.\n\n${input}\n", "prompt.md:3", "${input}", "{{input}}", code=0),
    "a usual name in one brace": prompt("Answer {question}.\n", "prompt.md:1", "{question}", code=0),
    "a Jinja block": prompt(
        "{{input}}\n{% if x %}\nShort.\n{% endif %}\n", "prompt.md:2", "{% if x %}", "as it stands", code=0
    ),
    "a Jinja comment": prompt("{{input}}\n{# later #}\n", "prompt.md:2", "{# later #}", code=0),
    "a Jinja filter": prompt("Q: {{input|trim}}\n", "prompt.md:1", "{{input|trim}}", "{{input}}", code=0),
    "a Jinja attribute": prompt(
        "Q: {{ row.input }}\n", "prompt.md:1", "{{row.input}}", 'Did you mean "input"'
    ),
    "an ERB slot": prompt("Q: <%= input %>\n", "prompt.md:1", "<%= input %>", code=0),
    "three braces": prompt("Q: {{{input}}}\n", "prompt.md:1", "{{{input}}}", code=0),
    "messages of no role": Case(
        ("prompt.yaml:1", '"user"'),
        files={
            "task/task.yaml": TASK.replace(".md", ".yaml") + EXACT,
            "task/prompt.yaml": "- {role: usr, content: x}\n",
        },
    ),
    "messages without content": Case(
        ("prompt.yaml:1", "content"),
        files={
            "task/task.yaml": TASK.replace(".md", ".yaml") + EXACT,
            "task/prompt.yaml": "- {role: user}\n",
        },
    ),
    "no messages": Case(
        ("prompt.yaml:1", "no message"),
        files={"task/task.yaml": TASK.replace(".md", ".yaml") + EXACT, "task/prompt.yaml": "[]\n"},
    ),
    "messages with one brace": Case(
        ("prompt.yaml", "{input}", "{{input}}"),
        files={
            "task/task.yaml": TASK.replace(".md", ".yaml") + EXACT,
            "task/prompt.yaml": "- role: user\n  content: 'Q {input}'\n",
        },
        code=0,
    ),
}
DATA: Mapping[str, Case] = {
    "no rows": data("", "data.jsonl:1", "no rows"),
    "no rows but lines": data("\n\n", "data.jsonl:1", "no rows"),
    "one row": data(rows(count=1), "empty", "there is 1 row"),
    "two rows": data(rows(count=2), "empty", "2 rows"),
    "not JSON": row("{'input': 'a'}", "data.jsonl:13", "double quotes"),
    "half a row": row('{"input": "a"', "data.jsonl:13"),
    "two objects a line": row('{"input": "a"} {"input": "b"}', "data.jsonl:13"),
    "a list a line": row('["a", "b"]', "data.jsonl:13"),
    "a text a line": row('"a"', "data.jsonl:13", "object"),
    "NaN": row('{"input": "a", "target": NaN}', "data.jsonl:13", "NaN"),
    "a number too large": row('{"input": "a", "target": 1e999}', "data.jsonl:13", "1e999", "as a text"),
    "key twice": row('{"input": "a", "input": "b", "target": "4"}', "data.jsonl:13", "twice"),
    "latin-1": data(rows({"input": "x"}).encode() + b"\xe9", "data.jsonl:14", "UTF-8"),
    "id twice": row({"id": "r1", "input": "new", "target": "4"}, "data.jsonl:13", '"r1"', "data.jsonl:2"),
    "id a list": row({"id": [1], "input": "new", "target": "4"}, "data.jsonl:13", "id"),
    "no input": row({"question": "x", "target": "4"}, "data.jsonl:13", '"question"'),
    "input null": row({"input": None, "target": "4"}, "data.jsonl:13", "input"),
    "input a number": row({"input": 5, "target": "4"}, "data.jsonl:13", "input"),
    "input a list": row({"input": ["a"], "target": "4"}, "data.jsonl:13", "input"),
    "input an empty object": row({"input": {}, "target": "4"}, "data.jsonl:13", "empty object"),
    "input without the slot": row({"input": {"a": "b"}, "target": "4"}, "data.jsonl:13", '"input"'),
    "no target": row({"input": "x"}, "data.jsonl:13", "target"),
    "target null": row({"input": "x", "target": None}, "data.jsonl:13", "null"),
    "target called answer": row({"input": "x", "answer": "4"}, "data.jsonl:13", '"answer"'),
    "slots beside the input": Case(
        ("data.jsonl:1", '"input": {"city"'),
        files={
            "task/prompt.md": "{{city}}",
            "task/data.jsonl": json.dumps({"city": "Bonn", "target": "4"}) + "\n",
        },
    ),
    "kind of file": data("x", "data.txt", ".jsonl", name="data.txt"),
    "parquet": data(b"PAR1", "data.parquet", "pip install pandas pyarrow && python -c", name="data.parquet"),
    "xlsx": data(b"PK", "data.xlsx", "pip install pandas openpyxl && python -c", name="data.xlsx"),
    "JSON no list": data('{"input": "a"}', "data.json:1", ".jsonl", name="data.json"),
    "JSON with a comma": data('[{"input": "a", "target": "1"},]', "data.json:1", "comma", name="data.json"),
    "JSON open": data('[{"input": "a", "target": "1"}', "data.json", name="data.json"),
    "JSON empty list": data("[]", "data.json:1", "no rows", name="data.json"),
    "CSV empty": data("", "data.csv:1", "empty", name="data.csv"),
    "CSV of a header": data("input,target\n", "data.csv:1", "no rows", name="data.csv"),
    "CSV semicolons": data("input;target\na;4\nb;5;6\n", "data.csv:3", "semicolons", name="data.csv"),
    "CSV tabs": data("input\ttarget\na\t4\nb\n", "data.csv:3", "tabs", name="data.csv"),
    "CSV bars": data("input|target\na|4\nb\n", "data.csv:3", "vertical bars", name="data.csv"),
    "CSV semicolons in Excel": data(
        "sep=;\ninput;target\na;4\nb\n", "data.csv:4", "semicolons", name="data.csv"
    ),
    "CSV semicolons, commas in cells": data(
        "input;target;id\na, b;4;1\nc, d;4\n", "data.csv:3", '";"', name="data.csv"
    ),
    "CSV cells": data("input,target\na,4\na,b,4\n", "data.csv:3", "3 cells", name="data.csv"),
    "CSV quote": data('input,target\n"a,4\n', "data.csv:2", "quote", name="data.csv"),
    "CSV no target": data("input,answer\na,4\nb,5\nc,6\n", "data.csv:2", '"answer"', name="data.csv"),
    "CSV column twice": data("input,input\na,4\n", "data.csv:1", "twice", name="data.csv"),
    "CSV no input": data("id,target\na,4\n", "data.csv:1", '"input"', name="data.csv"),
    "CSV without header": data("what is it,4\nand that,5\nor so,6\n", "data.csv", "target", name="data.csv"),
    "CSV UTF-16": data("input,target\na\n".encode("utf-16"), "data.csv:2", "1 cell", name="data.csv"),
    "program without rows": data("def row(): ...\n", "data.py:1", "rows()", name="data.py"),
    "program broken": data("def rows(:\n", "data.py:1", "SyntaxError", name="data.py"),
    "program fails": data("\ndef rows():\n    1 / 0\n", "data.py:3", "ZeroDivisionError", name="data.py"),
    "program exits": data("import sys\nsys.exit(0)\n", "data.py:2", "SystemExit", name="data.py"),
    "program without import": data("import no_such\n", "data.py:1", "no_such", name="data.py"),
    "program returns None": data("def rows():\n    pass\n", "data.py", "rows()", name="data.py"),
    "program returns texts": data("def rows():\n    return ['a']\n", "data.py:1: row 1", name="data.py"),
    "program of a set": data(
        "def rows():\n    yield {'input': 'a', 'target': {1}}\n", "data.py:1: row 1", "JSON", name="data.py"
    ),
    "program with parameters": data("def rows(n): ...\n", "data.py", "TypeError", name="data.py"),
    "random rows": data(
        "import random\ndef rows():\n    for n in range(12):\n        yield {'input': f'q{random.random()}', 'target': '4'}\n",
        "data.py:2",
        "row 1",
        "Seed",
        name="data.py",
    ),
    "a random file": data(
        "import random\nROWS = [{'input': f'q{random.random()}', 'target': '4'} for n in range(12)]\n"
        "def rows():\n    return ROWS\n",
        "data.py:3",
        "row 1",
        "Seed",
        name="data.py",
    ),
    "a random number of rows": data(
        "import random\ndef rows():\n    for n in range(12 + int(1e3 * random.random())):\n"
        "        yield {'input': f'q{n}', 'target': '4'}\n",
        "data.py:2",
        "rows",
        "Seed",
        name="data.py",
    ),
    "rows by the clock": data(
        "import time\ndef rows():\n    return [{'input': f'q{n} {time.time_ns()}', 'target': '4'} for n in range(12)]\n",
        "data.py:2",
        "row 1",
        name="data.py",
    ),
    "two targets": row(
        {"input": "q1", "target": "7"}, "data.jsonl:13", "data.jsonl:2", "another target", code=0
    ),
    "repeated rows": data(
        rows() + '{"input": "z", "target": "4"}\n' * 2, "data.jsonl:14", "repetition", code=0
    ),
    "an empty input": row({"input": " ", "target": "4"}, "data.jsonl:13", "empty input", code=0),
    "a key without slot": Case(
        ("color", "does not see"),
        files={
            "task/prompt.md": "{{size}}",
            "task/data.jsonl": "".join(
                json.dumps({"input": {"size": str(n), "color": "red"}, "target": "4"}) + "\n"
                for n in range(12)
            ),
        },
        code=0,
    ),
    "true for yes": labelled(
        "".join(json.dumps({"input": f"q{n}", "target": n % 2 == 0}) + "\n" for n in range(12)),
        "data.jsonl:1",
        "true",
        "yes",
        "quotes",
    ),
    "false for no": labelled(
        "".join(json.dumps({"input": f"q{n}", "target": False}) + "\n" for n in range(12)),
        "data.jsonl:1",
        "false",
        "no",
        "quotes",
    ),
    "yes for true": labelled(
        rows({"input": "x", "target": "yes"}, count=0),
        "data.jsonl:1",
        "'yes'",
        "true",
        labels="[true, false]",
    ),
    "on and off": labelled(
        rows({"input": "x", "target": True}, count=0), "data.jsonl:1", "true", "on", labels="[on, off]"
    ),
    "label in other letters": labelled(
        rows({"input": "x", "target": "Yes"}, count=0), "data.jsonl:1", '"yes"'
    ),
    "label with a space": labelled(rows({"input": "x", "target": "yes "}, count=0), "data.jsonl:1", '"yes"'),
    "label a list": labelled(rows({"input": "x", "target": ["yes"]}, count=0), "data.jsonl:1", "labels"),
}
REWARDS: Mapping[str, Case] = {
    "unknown": reward("", '"exact_match"', yaml="reward: exact_mach\n"),
    "option unknown": reward("", "exact_match", yaml="reward: {exact_match: {case: false}}\n"),
    "judge without items": reward("", "judge", yaml="reward: judge\n"),
    "weights": reward("", "reward", yaml="reward: [{exact_match: 0.5}, {f1: x}]\n"),
    "nowhere": reward("", "task.yaml:4", "no such file", yaml="reward: rewards.py\n"),
    "no function": reward("def score(example, output): ...\n", "reward.py:1", "reward(example, output)"),
    "broken": reward("\n\ndef reward(:\n", "reward.py:3", "SyntaxError"),
    "import": reward("import no_such\n", "reward.py:1", "no_such"),
    "one parameter": reward("\ndef reward(output): ...\n", "reward.py:2", "two parameters"),
    "three parameters": reward("def reward(example, output, x): ...\n", "reward.py:1", "two parameters"),
    "a generator": reward("def reward(example, output):\n    yield 1\n", "reward.py:1", "is a generator"),
    "an async generator": reward(
        "async def reward(example, output):\n    yield 1\n", "reward.py:1", "is a generator"
    ),
    "a range of its own": reward(
        "def reward(example, output):\n    return 0 if output == example['target'] else -1\n",
        "reward.py:1",
        "returned -1.0, outside [0, 1]",
        "reward: {reward.py: {low: -1, high: 0}}",
    ),
    "a target that is no JSON": reward("", "is no JSON", yaml="reward: json\n"),
    "exits": reward("exit(1)\n", "reward.py:1", "SystemExit"),
    "swapped": reward(
        "\ndef reward(output, example):\n    return 1.0\n",
        "reward.py:2",
        "reward(example, output)",
        "swapped",
    ),
    "swapped, one by name": reward("def reward(output, row):\n    return 1.0\n", "reward.py:1", "swapped"),
    "constant": reward(
        "def reward(example, output):\n    return 1.0\n", "reward.py:1", "1.0", "target", "nonsense", code=0
    ),
    "constant 0": reward(
        "def reward(example, output):\n    return float(output == example.get('answer'))\n",
        "reward.py:1",
        "0.0",
        code=0,
    ),
    "a dict that is constant": reward(
        "def reward(example, output):\n    return {'reward': 0.5, 'critique': output}\n", "0.5", code=0
    ),
    "compares a text with an object": reward(
        "def reward(example, output):\n    return float(output == example)\n", "reward.py:1", "0.0", code=0
    ),
    "fails": reward(
        "\ndef reward(example, output):\n    return example['answr'] == output\n",
        "reward.py:3",
        "answr",
        warned=True,
    ),
    "fails as swapped ones do": reward(
        "def reward(answer, row):\n    return float(answer.strip() == row['target'])\n",
        "reward.py:2",
        "strip",
        warned=True,
    ),
    "returns None": reward("def reward(example, output):\n    pass\n", "reward.py", "None"),
    "returns a text": reward("def reward(example, output):\n    return 'good'\n", "reward.py", "'good'"),
    "returns percent": reward("def reward(example, output):\n    return 100\n", "reward.py", "100", "low"),
}
FEEDBACK: Mapping[str, Case] = {
    "empty": feedback("", "feedback.jsonl:1", '"comment"'),
    "only lines": feedback("\n\n", "feedback.jsonl:1", '"comment"'),
    "empty list": feedback("[]", "f.json:1", '"comment"', name="f.json"),
    "CSV empty": feedback("", "f.csv:1", "comment", name="f.csv"),
    "CSV of a header": feedback("input,comment\n", "f.csv:1", "row", name="f.csv"),
    "CSV semicolons": feedback("input;comment\na;b;c\n", "f.csv:2", "3 cells", "semicolons", name="f.csv"),
    "CSV cells": feedback("input,comment\na,b,c\n", "f.csv:2", "3 cells", name="f.csv"),
    "nowhere": Case(("nowhere.jsonl",), "learn task/prompt.md nowhere.jsonl --yes"),
    "kind of file": feedback("x", "f.txt", ".jsonl", name="f.txt"),
    "a folder": Case(("task",), "learn task/prompt.md task --yes"),
    "not JSON": feedback("comment: short\n", "feedback.jsonl:1", "JSON"),
    "a list": feedback("[1]\n", "feedback.jsonl:1"),
    "a text": feedback('"short"\n', "feedback.jsonl:1", "object"),
    "says nothing": feedback('{"input": "a", "output": "b"}\n', "feedback.jsonl:1"),
    "rating a list": feedback('{"rating": [1]}\n', "feedback.jsonl:1", "rating"),
    "comment a number": feedback('{"comment": {"a": 1}}\n', "feedback.jsonl:1", "comment"),
    "latin-1": feedback(b'{"comment": "\xe9"}\n', "feedback.jsonl:1", "UTF-8"),
}
