"""Code of a user that is edited between two processes is seen, and code that is not keeps its record."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import whet
from whet.errors import ReplayDiverged
from whet.task import load_task

USED = """
import collections, dataclasses, datetime, decimal, enum, functools, json, pathlib, re, threading, types
import numpy
import metrics, pack.deep
from metrics import score
from whet._util.sources import source_hash

PATTERN = re.compile("OLD")
DECIMAL = decimal.Decimal(len("OLD"))
PATH = pathlib.Path("OLD")
ARRAY = numpy.array([len("OLD")])
QUEUE = collections.deque(["OLD"])
SPACE = types.SimpleNamespace(a="OLD")
MAPPING = collections.defaultdict(list, {"k": ["OLD"]})
SPAN = datetime.timedelta(seconds=len("OLD"))
WORDS = {"OLD", "a", "b", "c", "d", ("x", frozenset({"e", "f", "g"}))}
NESTED = {"k": [{"OLD", "a", "b", "c"}]}
LOCK = threading.Lock()

class Grader:
    def __init__(self, text): self.text = text
    def score(self): return self.text

class Own:
    def score(self): return "OLD"
class Child(Own): pass
class Slots:
    __slots__ = ("a",)
    def __init__(self, a): self.a = a
class Static:
    @staticmethod
    def score(): return "OLD"
class Property:
    @property
    def score(self): return "OLD"
class Colour(enum.Enum):
    RED = "OLD"
@dataclasses.dataclass
class Data:
    a: str = "OLD"

GRADER, OWN, CHILD, SLOTS, PROPERTY, MEMBER, DATA = (
    Grader("OLD"), Own(), Child(), Slots("OLD"), Property(), Colour.RED, Data())

@functools.lru_cache
def cached(): return "OLD"
def factory(a):
    def inner(e, o, a=a): return a
    return inner
def closing(a):
    def inner(e, o): return a
    return inner
def lazily(e, o):
    from lazy import score
    return score()
def locked(e, o):
    with LOCK: return "OLD"
def bound(e, o, k): return k
async def program(lm, prompts, example): return PATTERN.pattern
def untouched(e, o): return json.dumps(sorted(WORDS_OF(o)))
def WORDS_OF(o): return {w for w in o.split() if w in {"p", "q", "r"}}

FUNCTIONS = {
    "pattern": lambda e, o: PATTERN.match(o), "decimal": lambda e, o: DECIMAL, "path": lambda e, o: PATH,
    "array": lambda e, o: ARRAY, "queue": lambda e, o: QUEUE, "space": lambda e, o: SPACE,
    "mapping": lambda e, o: MAPPING, "span": lambda e, o: SPAN, "words": lambda e, o: o in WORDS,
    "nested": lambda e, o: NESTED, "grader": lambda e, o: GRADER.score(), "own": lambda e, o: OWN.score(),
    "child": lambda e, o: CHILD.score(), "slots": lambda e, o: SLOTS.a, "static": lambda e, o: Static.score(),
    "property": lambda e, o: PROPERTY.score, "member": lambda e, o: MEMBER.value, "data": lambda e, o: DATA.a,
    "class": lambda e, o: Colour.RED, "cached": lambda e, o: cached(), "factory": factory("OLD"),
    "closing": closing("OLD"), "lazily": lazily, "locked": locked, "partial": functools.partial(bound, k="OLD"),
    "module": lambda e, o: metrics.score(), "package": lambda e, o: pack.deep.score(), "direct": score,
    "method": GRADER.score, "program": program, "untouched": untouched,
}
print(json.dumps({name: source_hash(function) for name, function in FUNCTIONS.items()}))
"""
FILES = {
    "used.py": USED,
    "metrics.py": "from constants import VALUE\n\n\ndef score():\n    return VALUE\n",
    "constants.py": "VALUE = 'OLD'\n",
    "lazy.py": "def score():\n    return 'OLD'\n",
    "pack/__init__.py": "",
    "pack/deep.py": "from . import deeper\n\n\ndef score():\n    return deeper.VALUE\n",
    "pack/deeper.py": "VALUE = 'OLD'\n",
}


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def edit(folder: Path, old: str, new: str) -> None:
    for path in folder.rglob("*.py"):
        path.write_text(path.read_text().replace(old, new))


def python(folder: Path, *arguments: str, seed: int) -> tuple[Any, str]:
    """The last line that a script prints, from JSON, and its standard error."""
    known = {**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=known, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


def test_what_a_function_uses_is_part_of_its_identity_in_every_process(tmp_path: Path) -> None:
    write(tmp_path, FILES)
    first, _ = python(tmp_path, "used.py", seed=1)
    second, said = python(tmp_path, "used.py", seed=2)
    assert first == second and said == ""
    edit(tmp_path, "OLD", "EDITED")
    edited, _ = python(tmp_path, "used.py", seed=3)
    assert [name for name in first if first[name] == edited[name]] == ["untouched"]


OPAQUE = """
import json, sqlite3
from whet._util.sources import source_hash

DB = sqlite3.connect(":memory:")
OTHER = "OLD"

def reading(e, o): return DB.total_changes
def plain(e, o): return 1.0

print(json.dumps([source_hash(reading), source_hash(reading), source_hash(plain)]))
"""


def test_a_value_without_content_is_known_by_the_source_file(tmp_path: Path) -> None:
    write(tmp_path, {"script.py": OPAQUE})
    first, said = python(tmp_path, "script.py", seed=1)
    assert python(tmp_path, "script.py", seed=2)[0] == first and said == "" and first[0] == first[1]
    edit(tmp_path, "OLD", "EDITED")
    edited, _ = python(tmp_path, "script.py", seed=1)
    assert edited[0] != first[0] and edited[2] == first[2]


def test_without_a_file_such_a_function_is_new_in_every_process_and_that_is_said(tmp_path: Path) -> None:
    first, said = python(tmp_path, "-c", OPAQUE, seed=1)
    second, _ = python(tmp_path, "-c", OPAQUE, seed=1)
    assert first[0] != second[0] and first[0] == first[1] and first[2] == second[2]
    assert said.count("counts as a new function in every process") == 1 and "sqlite3.Connection" in said


SCRIPT = """
import json, re, sys
import whet, helper

YES = re.compile("yes")
ANSWER = re.compile("yes")

class Client:
    def chat(self, messages): return ANSWER.pattern

CLIENT = Client()

def model(messages): return CLIENT.chat(messages)
def reward(example, output): return helper.worth() if YES.match(output) else 0.0
async def program(lm, prompts, example): return (await lm("a", text="x")).lower()

rows = [{"input": f"row {i}", "target": "yes"} for i in range(12)]
one = whet.evaluate("Say. {{input}}", data=rows, reward=reward, lm=model, split="train", progress=False)
two = whet.evaluate({"a": "Say. {{text}}"}, data=rows, reward=reward, lm=model, program=program, split="train", progress=False)
print(json.dumps([[r.score.mean, bool(r.to_dict().get("recorded"))] for r in (one, two)]))
"""


EDITS = [
    ("return 0.25", "return 0.75", [0.75, 0.75]),
    ('ANSWER = re.compile("yes")', 'ANSWER = re.compile("nope")', [0.0, 0.0]),
    ('text="x")).lower()', 'text="x")).upper()', [0.25, 0.0]),
]
"""A change of the reward, of the model and of the program, with the scores of both evaluations after it."""


def test_an_edited_script_is_evaluated_anew_and_the_same_one_is_not(tmp_path: Path) -> None:
    write(tmp_path, {"script.py": SCRIPT, "helper.py": "def worth():\n    return 0.25\n"})
    assert python(tmp_path, "script.py", seed=1)[0] == [[0.25, False], [0.25, False]]
    assert python(tmp_path, "script.py", seed=2)[0] == [[0.25, True], [0.25, True]]
    for old, new, scores in EDITS:
        edit(tmp_path, old, new)
        again, _ = python(tmp_path, "script.py", seed=3)
        assert [score for score, _ in again] == scores, new
        assert [recorded for _, recorded in again] == [score == 0.25 for score in scores], new
        edit(tmp_path, new, old)


FOLDER = {
    "task.yaml": "name: t\nprompt: prompt.md\ndata: data.jsonl\nreward: reward.py\n",
    "prompt.md": "Say.\n{{input}}\n",
    "data.jsonl": "".join(json.dumps({"input": f"row {i}", "target": "x"}) + "\n" for i in range(30)),
    "reward.py": "import helper\n\n\ndef reward(example, output):\n    return helper.worth()\n",
    "helper.py": "from inner.values import WORTH\n\n\ndef worth():\n    return WORTH\n",
    "inner/__init__.py": "",
    "inner/values.py": "WORTH = 0.2\n",
}
DYNAMIC = 'import importlib\n\nhelper = importlib.import_module("hel" + "per")\n'


def answer(messages: list[Any]) -> str:
    return "x"


@pytest.mark.parametrize("imported", ["import helper\n", DYNAMIC], ids=["import", "dynamic"])
def test_what_the_reward_of_a_folder_imports_belongs_to_it(tmp_path: Path, imported: str) -> None:
    task, words = tmp_path / "task", {"lm": answer, "split": "train", "root": tmp_path / "runs"}
    reward = FOLDER["reward.py"].replace("import helper\n", imported)
    write(task, {**FOLDER, "reward.py": reward, "unused.py": "VALUE = 1\n"})
    assert whet.evaluate(task, **words).score.mean == pytest.approx(0.2)
    (task / "unused.py").write_text("VALUE = 2\n")
    assert whet.evaluate(task, **words)["recorded"]
    edit(task, "WORTH = 0.2", "WORTH = 0.7")
    assert whet.evaluate(task, **words).score.mean == pytest.approx(0.7)


def test_a_run_does_not_go_on_with_another_helper(tmp_path: Path) -> None:
    task, words = tmp_path / "task", {"lm": answer, "method": "random_search", "run": tmp_path / "run"}
    write(task, FOLDER)
    whet.optimize(task, optimizer_lm=answer, budget=whet.Budget(calls=100), **words)
    edit(task, "WORTH = 0.2", "WORTH = 0.7")
    with pytest.raises(ReplayDiverged, match=r"which was edited: reward, labels or program"):
        whet.optimize(task, optimizer_lm=answer, budget=whet.Budget(calls=100), **words)


@pytest.mark.parametrize(
    "files",
    [
        {
            "task.yaml": FOLDER["task.yaml"].replace(
                "prompt: prompt.md", "prompts: {a: prompt.md}\nprogram: program.py"
            ),
            "reward.py": "def reward(example, output):\n    return 1.0\n",
            "program.py": "import helper\n\n\nasync def program(lm, prompts, example):\n    return str(helper.worth())\n",
        },
        {
            "task.yaml": FOLDER["task.yaml"] + "environment: {tools: tools.py, turns: 2}\n",
            "reward.py": "def reward(example, output):\n    return 1.0\n",
            "tools.py": 'import helper\n\n\ndef look(at: str) -> str:\n    """Look."""\n    return str(helper.worth())\n',
        },
        {
            "task.yaml": FOLDER["task.yaml"].replace("data.jsonl", "data.py"),
            "reward.py": "def reward(example, output):\n    return 1.0\n",
            "data.py": "import helper\n\n\ndef rows():\n    w = helper.worth()\n"
            "    return [{'input': f'{i} {w}', 'target': 'x'} for i in range(30)]\n",
        },
    ],
    ids=["program", "tools", "data"],
)
def test_what_the_other_programs_of_a_folder_import_belongs_to_the_task(
    tmp_path: Path, files: dict[str, str]
) -> None:
    write(tmp_path, {**FOLDER, **files})
    first = load_task(tmp_path).fingerprint
    assert load_task(tmp_path).fingerprint == first
    edit(tmp_path, "WORTH = 0.2", "WORTH = 0.7")
    assert load_task(tmp_path).fingerprint != first
