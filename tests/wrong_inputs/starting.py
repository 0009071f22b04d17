"""Wrong inputs of `whet init`: tables, JSON, programs, configurations of promptfoo; and of the commands that look at runs."""

from __future__ import annotations

import json
from collections.abc import Mapping

from tests.wrong_inputs.case import EXACT, PLAIN, TASK, Case, data, prompt, reward, row, rows, task

TABLE = "input,target\n" + "".join(f"q{n},{n % 2}\n" for n in range(12))
PROMPTFOO = "promptfooconfig.yaml"
TESTS = "".join(f"- {{vars: {{x: a{n}}}, assert: [{{type: equals, value: b}}]}}\n" for n in range(12))


def init(options: str, *says: str, **files: str | bytes) -> Case:
    """`whet init new` from rows.csv, with options that cannot be used; `files` lie there with `__` for the dot."""
    named = {name.replace("__", "."): content for name, content in files.items()}
    source = "" if "--from" in options else "--from rows.csv "
    return Case(says, f"init new {source}{options}", files={"rows.csv": TABLE, **named})


def table(text: str | bytes, *says: str, options: str = "") -> Case:
    """A table that cannot be used."""
    return init(f"--from e.csv {options}", *says, e__csv=text)


def objects(text: str, *says: str, name: str = "e.jsonl") -> Case:
    """Rows in JSON that cannot be used."""
    return init(f"--from {name}", *says, **{name.replace(".", "__"): text})


def program(text: str, *says: str) -> Case:
    """A Python file of rows that cannot be used."""
    return init("--from e.py", *says, e__py=text)


def promptfoo(text: str, *says: str, **files: str) -> Case:
    """A configuration of promptfoo that cannot be used."""
    return init(f"--from {PROMPTFOO}", *says, promptfooconfig__yaml=text, **files)


def checked(assertion: str, *says: str) -> Case:
    """A configuration of promptfoo whose first test, on line 3, has this assertion."""
    return promptfoo(
        f"prompts: ['a {{{{x}}}}']\ntests:\n- {{vars: {{x: a}}, assert: [{assertion}]}}\n{TESTS}", *says
    )


INIT: Mapping[str, Case] = {
    "no source": Case(("--from SOURCE", ".csv"), "init new"),
    "source nowhere": init("--from row.csv", 'Did you mean "rows.csv"'),
    "source a folder": init("--from task", "task is a folder", "Name the file"),
    "source of Excel": init("--from x.xlsx", "pandas.read_excel", '"x.xlsx" "x.jsonl"', x__xlsx=b"PK"),
    "source of no kind": init("--from rows.txt", "rows come from .csv", "Convert", rows__txt=b"a"),
    "source nowhere, of no kind": init("--from rows.cvs", 'no file rows.cvs. Did you mean "rows.csv"?'),
    "source beside the folder": Case(
        ("takes one folder, but got also rows.csv", "whet init new --from rows.csv"),
        "init new rows.csv --target target",
        files={"rows.csv": TABLE},
    ),
    "source for the folder": Case(
        ("rows.csv is a file", "whet init FOLDER --from rows.csv"), "init rows.csv", files={"rows.csv": TABLE}
    ),
    "labels without commas": init(
        "--labels 0;1", "--labels names only one label, '0;1'", "commas: --labels A,B"
    ),
    "source in a network": init("--from https://example.com/x.csv", "Download the file"),
    "source empty": init("--from ''", "--from is empty"),
    "data set without a name": init("--from datasets:", "datasets:NAME"),
    "data set of four parts": init("--from datasets:a:b:c:d", "datasets:NAME:CONFIG:SPLIT"),
    "folder with files": Case(("not empty", "new folder"), "init task --from feedback.jsonl"),
    "folder a file": Case(
        ("feedback.jsonl is a file", "new folder"), "init feedback.jsonl --from feedback.jsonl"
    ),
    "folder below a file": Case(("is a file", "elsewhere"), "init feedback.jsonl/x --from feedback.jsonl"),
    "folder of the system": Case(("/proc", "elsewhere"), "init /proc/x --from feedback.jsonl"),
    "folder without a name": Case(("it is empty",), "init '' --from feedback.jsonl"),
    "folders above are not left": Case(
        ("Nothing is written", 'no reward "f2"'),
        "init a/b/c --from rows.csv --reward f2",
        files={"rows.csv": TABLE},
    ),
    "input unknown": init("--input inptu", 'Did you mean "input"'),
    "target unknown": init("--target traget", 'Did you mean "target"'),
    "input empty": init("--input ,", "--input is empty"),
    "target empty": init("--target ''", "--target is empty"),
    "labels empty": init("--labels ''", "--labels is empty"),
    "labels without commas between": init("--labels , ", "--labels is empty"),
    "label that no row has": init("--labels a,b", "rows.csv:2", "'0'", "Known: a, b"),
    "label alone": init("--labels 0", "--labels names only one label", "at least two"),
    "label twice": init("--labels 0,0,1", '"0" appears twice'),
    "reward unknown": init("--reward exact_mach", 'Did you mean "exact_match"'),
    "reward nowhere": init("--reward rew.py", "no file rew.py"),
    "reward of one parameter": init(
        "--reward r.py", "reward.py:1", "two parameters", r__py="def reward(x): ...\n"
    ),
    "reward broken": init("--reward r.py", "reward.py:1", "SyntaxError", r__py="def reward(:\n"),
    "prompt nowhere": init("--prompt nowhere.md", "no file nowhere.md"),
    "prompt a folder": init("--prompt task", "it is a folder"),
    "prompt empty": init("--prompt ''", "the prompt is empty"),
    "prompt with another slot": init("--prompt 'Q {{qestion}}'", "{{qestion}}"),
    "model without provider": init("--lm gpt-4o", "openai/gpt-4o-mini"),
    "model of another provider": init("--lm watsonx/llama3", "openai/llama3"),
    "columns for rows that have none": init("--from example --input text", "Leave --input and --target out"),
    "table empty": table("", "e.csv:1", "the file is empty"),
    "table of a header": table("input,target\n", "e.csv:1", "no rows"),
    "table of targets": table("target\n" + "a\nb\n" * 6, "--input"),
    "table of one column": table("text\n" + "a\nb\n" * 6, "No row has a target", "--target"),
    "table of two rows": table("input,target\na,1\nb,2\n", "at least 3"),
    "table of one row many times": table("input,target\n" + "a,1\n" * 12, "at least 3"),
    "table without inputs": table("input,target\n" + ",1\n" * 12, "No column can be the input"),
    "table with a target less": table(
        "input,target\n" + "a,1\n" * 6 + "b,\n", "1 of 7 rows", "e.csv:8", "Fill it in"
    ),
    "column twice": table("a,a,b\n1,2,3\n", "e.csv:1", '"a" appears twice'),
    "cells too many": table("input,target\na,1\nb,2,3\n", "e.csv:3", "3 cells"),
    "a cell without a column name": table("input,,target\na,,1\nb,c,2\n", "e.csv:3", "column 2", "no name"),
    "table in UTF-16": table((TABLE + "a\n").encode("utf-16"), "e.csv:14", "1 cell"),
    "table in UTF-16 that is cut": table(TABLE.encode("utf-16")[:-1], "e.csv:1", "UTF-16"),
    "table of no character set": table("input,target\nä\x81,1\n".encode("latin-1"), "e.csv:2", "UTF-8"),
    "table packed": table(b"\x1f\x8b\x08\0\0\0\0\0", "e.csv:1", "UTF-8"),
    "quote not closed": table('input,target\n"a,1\nb,2\n', "e.csv:2", "close the cell"),
    "half a line": objects('{"input": "a", "target": "b"}\n{"input": \n', "e.jsonl:2", "JSON"),
    "lists on lines": objects("[1, 2]\n", "e.jsonl:1", "object"),
    "an object of rows": objects('{"data": []}', "e.json:1", "list of rows", name="e.json"),
    "null": objects("null", "e.json:1", "list of rows", name="e.json"),
    "a conversation of several turns": objects(
        '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user"}]}\n'
        * 9,
        "e.jsonl:1",
        "Write input and target",
    ),
    "a conversation of parts": objects(
        '{"messages": [{"role": "user", "content": [{}]}, {"role": "assistant", "content": "b"}]}\n' * 9,
        "e.jsonl:1",
        "must be text; one of these is [{}]",
    ),
    "a conversation of texts": objects('{"messages": ["a", "b"]}\n' * 9, "No row has a target", "--target"),
    "program without rows": program("x = 1\n", "e.py:1", "rows()"),
    "program broken": program("x = (\n", "e.py:1", "SyntaxError"),
    "program that exits": program("raise SystemExit(3)\n", "e.py:1", "SystemExit"),
    "program that asks": program("\nx = input('?')\n", "e.py:2", "rror"),
    "program without end": program("def rows():\n    return rows()\n", "e.py", "RecursionError"),
    "program of letters": program("def rows():\n    return 'abc'\n", "e.py:1: row 1", "'a'"),
    "program without a package": program("import no_such_package\n", "e.py:1", "no_such_package"),
    "promptfoo empty": promptfoo("", f"{PROMPTFOO}:1", "empty"),
    "promptfoo broken": promptfoo("prompts: [\n", f"{PROMPTFOO}:2", "not valid YAML"),
    "promptfoo a list": promptfoo("- a\n", f"{PROMPTFOO}:1", "mapping"),
    "promptfoo without tests": promptfoo("prompts: [a]\n", f"{PROMPTFOO}:1", "tests are missing"),
    "promptfoo without prompts": promptfoo("tests: []\n", f"{PROMPTFOO}:1", "prompts are missing"),
    "promptfoo of no prompts": promptfoo("prompts: []\ntests: []\n", f"{PROMPTFOO}:1", "at least one"),
    "promptfoo of no tests": promptfoo("prompts: [a]\ntests:\n", f"{PROMPTFOO}:2", "no test"),
    "promptfoo with a number of tests": promptfoo(
        "prompts: [a]\ntests: 5\n", f"{PROMPTFOO}:2", "a mapping or a file"
    ),
    "promptfoo key twice": promptfoo("prompts: [a]\nprompts: [b]\n", f"{PROMPTFOO}:2", "twice"),
    "promptfoo tag": promptfoo("prompts: [a]\ntests: !!python/object:x []\n", f"{PROMPTFOO}:2", "tag"),
    "promptfoo variables a list": promptfoo(
        "prompts: ['a {{x}}']\ntests:\n- vars: [a]\n", f"{PROMPTFOO}:3", "`vars` must be a mapping"
    ),
    "promptfoo defaults a list": promptfoo(
        "prompts: ['a {{x}}']\ntests: []\ndefaultTest: [a]\n",
        f"{PROMPTFOO}:3",
        "`defaultTest` must be a mapping",
    ),
    "promptfoo prompt a number": promptfoo(
        "prompts: [[a]]\n" + f"tests:\n{TESTS}", f"{PROMPTFOO}:1", "a prompt"
    ),
    "promptfoo prompt nowhere": promptfoo(
        f"prompts: ['file://nowhere.txt']\ntests:\n{TESTS}", f"{PROMPTFOO}:1", "no file nowhere.txt"
    ),
    "promptfoo prompt a program": promptfoo(
        f"prompts: ['file://p.py']\ntests:\n{TESTS}", f"{PROMPTFOO}:1", "program", p__py=""
    ),
    "promptfoo prompt that computes": promptfoo(
        f"prompts: ['{{{{x | upper}}}}']\ntests:\n{TESTS}", f"{PROMPTFOO}:1", "{{x | upper}}"
    ),
    "promptfoo prompt with a comment": promptfoo(
        f"prompts: ['{{{{x}}}} {{# old #}}']\ntests:\n{TESTS}", f"{PROMPTFOO}:1", "{# old"
    ),
    "promptfoo variables that compute": promptfoo(
        "prompts: ['{{x}}']\ntests:\n- {vars: {x: '{{x | upper}}'}, assert: [{type: equals, value: b}]}\n",
        f"{PROMPTFOO}:2",
        "every test has a variable",
    ),
    "promptfoo variables that grow": promptfoo(
        "prompts: ['{{a}}']\ntests:\n- vars: {a: '"
        + "{{b}}" * 1001
        + "', b: '"
        + "c" * 1000
        + "'}\n  assert: [{type: equals, value: b}]\n",
        f"{PROMPTFOO}:3",
        "grow beyond",
    ),
    "promptfoo prompt file that computes": promptfoo(
        f"prompts: ['file://p.txt']\ntests:\n{TESTS}",
        "p.txt:2",
        "{% if x %}",
        p__txt="Say\n{% if x %}a{% endif %}\n",
    ),
    "promptfoo slot of no variable": promptfoo(
        f"prompts: ['a {{{{y}}}}']\ntests:\n{TESTS}", "{{y}}", "Nothing is written"
    ),
    "promptfoo variable nowhere": promptfoo(
        "prompts: ['a {{x}}']\ntests:\n- {vars: {x: file://no.txt}, assert: [{type: equals, value: b}]}\n",
        f"{PROMPTFOO}:3",
        "no file no.txt",
    ),
    "promptfoo tests in a program": promptfoo(
        "prompts: [a]\ntests: file://t.js\n", f"{PROMPTFOO}:2", "t.js", t__js=""
    ),
    "promptfoo tests that name themselves": promptfoo(
        "prompts: [a]\ntests: file://t.yaml\n", "t.yaml:1", "each other", t__yaml="- file://t.yaml\n"
    ),
    "promptfoo variables without end": promptfoo(
        "prompts: ['a {{x}}']\ntests:\n- vars: {"
        + "".join(f"v{n}: [a, b, c, d, e, f, g, h, i, j], " for n in range(9))
        + "x: a}\n",
        f"{PROMPTFOO}:3",
        "1,000,000,000 rows",
    ),
    "promptfoo assertion a text": checked("equals", f"{PROMPTFOO}:3", "an assertion must be a mapping"),
    "promptfoo assertion without a value": checked("{type: equals}", f"{PROMPTFOO}:3", "no value"),
    "promptfoo weight a text": checked("{type: equals, value: b, weight: big}", f"{PROMPTFOO}:3", "'big'"),
    "promptfoo weight below 0": checked("{type: equals, value: b, weight: -1}", f"{PROMPTFOO}:3", "-1"),
    "promptfoo weight without end": checked(
        "{type: equals, value: b, weight: .nan}", f"{PROMPTFOO}:3", "nan"
    ),
    "promptfoo expression broken": checked(
        "{type: regex, value: '('}", f"{PROMPTFOO}:3", "regular expression"
    ),
    "promptfoo type a list": checked("{type: [equals], value: b}", f"{PROMPTFOO}:3", "type of an assertion"),
    "promptfoo of programs only": promptfoo(
        "prompts: ['a {{x}}']\ntests:\n- {vars: {x: a}, assert: [{type: javascript, value: x}]}\n",
        f"{PROMPTFOO}:2",
        "no test has an assertion",
    ),
    "another YAML file": init("--from x.yaml", "x.yaml:1", "prompts and tests are missing", x__yaml="a: 1\n"),
}
LOOKS: Mapping[str, Case] = {
    "runs nowhere": Case(("--root", "no folder nowhere"), "runs --root nowhere"),
    "runs a file": Case(("--root", "no folder feedback.jsonl"), "runs --root feedback.jsonl"),
    "runs with an argument": Case(("unexpected extra argument",), "runs task"),
    "report of a journal that is a folder": Case(
        ('no run "a" in',), "report a", files={"runs/a/journal.sqlite/x": ""}
    ),
    "show nothing": Case(("Missing argument 'RUN'",), "show"),
    "show a task": Case(('no run "task"',), "show task"),
    "show a run elsewhere": Case(
        (
            'no run "task-opro-0" in /',
            "/runs (0 runs there)",
            "Give the path of a run",
            "whet runs --root FOLDER",
        ),
        "show task-opro-0",
    ),
    "show a comparison elsewhere": Case(
        ("both is a comparison of 2 runs: both/grips-1, both/opro-1. Its page is both/comparison.html",),
        "show both",
        files={
            "both/comparison.html": "",
            **{f"both/{name}-1/journal.sqlite": "" for name in ("opro", "grips")},
        },
    ),
    "show a file": Case(('no run "feedback.jsonl"',), "show feedback.jsonl"),
    "show an unfinished run": Case(
        ("holds no result", "To continue the run"), "show a", files={"runs/a/journal.sqlite": ""}
    ),
    "doctor nowhere": Case(("taks", 'Did you mean "task"'), "doctor taks"),
    "doctor of no model": Case(("not the address",), "doctor --lm gpt"),
    "doctor of a URL alone": Case(
        ("--base-url", "no model is named", "--lm"), "doctor --base-url http://x/v1"
    ),
    "doctor of a broken task": Case(
        ("task.yaml:4", 'Did you mean "exact_match"'),
        "doctor task",
        files={"task/task.yaml": f"{TASK}reward: exact\n"},
    ),
    "methods of an unknown one": Case(('There is no method "oppro"', 'Did you mean "opro"'), "methods oppro"),
    "serve on no port": Case(("--port", "99999999"), "serve --port 99999999"),
    "serve on a word": Case(("--port", "http"), "serve --port http"),
}
MORE: Mapping[str, Case] = {
    "method of task.yaml unknown": task("method: oppro\n", "task.yaml", 'Did you mean "opro"', command=PLAIN),
    "a tag on a list": Case(
        ("task.yaml:4", "tag"),
        files={"task/task.yaml": f"{TASK}reward: !!python/object/apply:os.system [id]\n"},
    ),
    "models empty": task("models:\n", "task.yaml:5", "nothing", "task, optimizer"),
    "model key": task("models: {task: {adress: openai/x}}\n", "task.yaml:5", 'Did you mean "address"'),
    "stop a number": task("models: {task: {stop: 5}}\n", "task.yaml:5", "stop must be"),
    "price below 0": task(
        "models: {task: {price: {input: -1, output: 1}}}\n", "task.yaml:5", "0 or more", "-1"
    ),
    "price of one side": task("models: {task: {price: {input: 1}}}\n", "task.yaml:5", "no `output`"),
    "timeout below 0": task("models: {task: {timeout: -1}}\n", "task.yaml:5", "timeout"),
    "budget a number": task("budget: 100\n", "task.yaml:5", "max_calls"),
    "budget with a comma": task("budget: {max_calls: 1,000}\n", "task.yaml:5", '"000"'),
    "a second document": task("---\nname: u\n", "task.yaml:5", "second document"),
    "description a list": task("description: [a]\n", "task.yaml:5", "description"),
    "program without prompts": task("program: program.py\n", "task.yaml:5", "prompts"),
    "objectives a text": task("objectives: x\n", "task.yaml:5", "mapping"),
    "objective of no metric": task("objectives: {b: {metric: output_token, goal: min}}\n", "output_tokens"),
    "bound of an objective": task(
        "objectives: {b: {metric: output_tokens, goal: min, at_most: 1.1y}}\n", "1.1y", "1.1x"
    ),
    "rewards none": Case(("task.yaml:4", "at least one"), files={"task/task.yaml": f"{TASK}reward: []\n"}),
    "reward nothing": Case(
        ("task.yaml:4", "a reward is a name"), files={"task/task.yaml": f"{TASK}reward:\n"}
    ),
    "reward twice": Case(("task.yaml:4", "twice"), files={"task/task.yaml": f"{TASK}reward: [f1, f1]\n"}),
    "reward weighs 0": Case(
        ("task.yaml:4", "weight"), files={"task/task.yaml": f"{TASK}reward: [{{f1: 0}}]\n"}
    ),
    "reward of a notebook": Case(
        ("task.yaml:4", "score.ipynb"), files={"task/task.yaml": f"{TASK}reward: score.ipynb\n"}
    ),
    "reward of a variable": Case(
        ("task.yaml:4", "${R}"), files={"task/task.yaml": f"{TASK}reward: ${{R}}\n"}
    ),
    "reward with a broken expression": Case(
        ("task.yaml:4", "regular expression"),
        files={"task/task.yaml": f"{TASK}reward: {{regex: {{pattern: '('}}}}\n"},
    ),
    "reward contains nothing": Case(
        ("task.yaml:4", "every answer"),
        files={"task/task.yaml": f"{TASK}reward: {{contains: {{text: ''}}}}\n"},
    ),
    "rubric nowhere": Case(
        ("task.yaml:4", "rubric.md"),
        files={"task/task.yaml": f"{TASK}reward: {{judge: {{rubric: rubric.md}}}}\n"},
    ),
    "reward that needs probabilities": Case(
        ("perplexity", "only answers", "hf/"), files={"task/task.yaml": f"{TASK}reward: perplexity\n"}
    ),
    "reward a value": reward("reward = 1.0\n", "reward.py:1", "no function"),
    "reward of keywords": reward("def reward(*, example, output): ...\n", "reward.py:1", "two parameters"),
    "reward of Python 2": reward("print 'x'\n", "reward.py:1", "SyntaxError"),
    "reward with tabs": reward("def reward(e, o):\n\tx = 1\n        return 2.0\n", "reward.py:3", "TabError"),
    "returns nan": reward(
        "def reward(example, output):\n    return float('nan')\n", "reward.py:1", "nan", "row"
    ),
    "returns a list": reward("def reward(example, output):\n    return [1.0]\n", "reward.py:1", "[1.0]"),
    "returns two numbers": reward(
        "def reward(example, output):\n    return 1.0, 2.0\n", "reward.py:1", "(1.0, 2.0)"
    ),
    "returns points": reward(
        "def reward(example, output):\n    return {'points': 1.0}\n", "reward.py:1", "`reward`"
    ),
    "returns a complex number": reward("def reward(example, output):\n    return 1j\n", "reward.py:1", "1j"),
    "returns below 0": reward("def reward(example, output):\n    return -1\n", "reward.py:1", "low"),
    "exits in the function": reward(
        "def reward(example, output):\n    raise SystemExit(0)\n", "reward.py:1", "SystemExit", warned=True
    ),
    "calls itself without end": reward(
        "def reward(example, output):\n    return reward(example, output)\n",
        "reward.py:1",
        "RecursionError",
        warned=True,
    ),
    "asks in the terminal": reward(
        "def reward(example, output):\n    return float(input())\n", "reward.py:1", "rror", warned=True
    ),
    "a fence of another comment": prompt(
        "# whet:begin\nx\n# whet:end\n{{input}}\n", "prompt.md:1", "<!-- whet:begin -->", code=0
    ),
    "a fence in capitals": prompt("<!-- WHET:BEGIN -->\nx\n<!-- WHET:END -->\n", "prompt.md:1", "whet:begin"),
    "a fence of two names": prompt("<!-- whet:begin a b -->\nx\n<!-- whet:end -->\n", "prompt.md:3"),
    "a fence closed by another name": prompt(
        "<!-- whet:begin a -->\nx\n<!-- whet:end b -->\n", "prompt.md:3", '"a"'
    ),
    "the target in the prompt": prompt("Say {{target}}.\n{{input}}\n", "prompt.md:1", "{{target}}"),
    "target of nothing": row({"input": "x", "target": ""}, "data.jsonl:13", "no answer equals", code=0),
    "target of an empty list": row({"input": "x", "target": []}, "data.jsonl:13", "no answer equals", code=0),
    "target an object": row({"input": "x", "target": {"a": 1}}, "data.jsonl:13", "no answer equals", code=0),
    "one target for all": data(
        "".join(json.dumps({"input": f"q{n}", "target": "4"}) + "\n" for n in range(12)),
        "data.jsonl:1",
        "all 12 rows",
        code=0,
    ),
    "infinity beside the target": row(
        '{"input": "x", "target": "4", "m": Infinity}', "data.jsonl:13", "Infinity"
    ),
    "nested without end": row(
        '{"input": "x", "target": "4", "m": ' + "[" * 100_000 + "]" * 100_000 + "}", "data.jsonl:13", "deep"
    ),
    "id without a name": row({"id": "", "input": "x", "target": "4"}, "data.jsonl:13", "id"),
    "data of an address": Case(
        ("task.yaml:3", "no file"),
        files={"task/task.yaml": f"name: t\nprompt: prompt.md\ndata: https://x.example/d.jsonl\n{EXACT}"},
    ),
    "data in the file": Case(
        ("task.yaml:3", "data.jsonl"),
        files={"task/task.yaml": f"name: t\nprompt: prompt.md\ndata: [{{input: a}}]\n{EXACT}"},
    ),
    "prompt in the file": Case(
        ("task.yaml:2", "no file"),
        files={"task/task.yaml": f"name: t\nprompt: 'Say {{{{input}}}}'\ndata: data.jsonl\n{EXACT}"},
    ),
    "prompt a folder": Case(
        ("task.yaml:2", "it is a folder"),
        files={"task/task.yaml": f"name: t\nprompt: .\ndata: data.jsonl\n{EXACT}"},
    ),
    "one file for three splits": Case(
        ("data.jsonl:1", "already"),
        files={
            "task/task.yaml": "name: t\nprompt: prompt.md\n"
            f"data: {{train: data.jsonl, validation: data.jsonl, test: data.jsonl}}\n{EXACT}"
        },
    ),
    "rows with two ends": data(rows().replace("\n", "\x00\n", 1), "data.jsonl:1", "text follows the object"),
}
