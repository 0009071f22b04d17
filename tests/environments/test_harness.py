"""A command as a program: an agent that reads its skill from a file and asks models through the run."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

import whet
from whet.errors import UsageError
from whet.types import Request

AGENT = Path(__file__).resolve().parents[2] / "examples" / "repo-agent"
BODIES = {
    "double": "return a * 2", "half": "return a / 2", "square": "return a * a", "negate": "return -a",
    "shout": "return a.upper()", "whisper": "return a.lower()", "first": "return a[0]", "last": "return a[-1]",
    "total": "return sum(a)", "largest": "return max(a)", "smallest": "return min(a)", "count": "return len(a)",
    "reverse": "return a[::-1]", "words": "return a.split()", "join": "return ' '.join(a)",
    "is_even": "return a % 2 == 0", "is_empty": "return not a", "increment": "return a + 1",
    "decrement": "return a - 1", "absolute": "return abs(a)", "strip": "return a.strip()",
    "title": "return a.title()", "unique": "return sorted(set(a))", "ordered": "return sorted(a)",
}  # fmt: skip


def coder(messages: Any) -> str:
    """A model (simulated) that follows what the skill says about docstrings and types, and forgets them otherwise."""
    skill, request = messages[0]["content"], messages[1]["content"]
    name = request.split(".py:")[0].removeprefix("Write ")
    note = '    """What it returns."""\n' if "docstring" in skill else ""
    kind = "a: object" if "type" in skill else "a"
    return f"```python\ndef {name}({kind}):\n{note}    {BODIES[name]}\n```"


def reflect(messages: Any) -> str:
    """An optimizer model (simulated) that names what the tests complain of, and then writes a rule for each."""
    shown = messages[-1]["content"]
    rules = {"no docstring": "Write a docstring.", "no type": "Give each parameter a type."}
    if "<REASON>...</REASON>" in shown:
        return f"<REASON>Functions have {' and '.join(word for word in rules if word in shown)}.</REASON>"
    lines = [f"- {rule}" for word, rule in rules.items() if word in shown or rule in shown]
    return "<INSTRUCTION>\n" + "\n".join(lines or ["- Be careful."]) + "\n</INSTRUCTION>"


def task(folder: Path, agent: str, **program: Any) -> Path:
    """A task folder whose command is a Python script."""
    (folder / "agent.py").write_text(agent)
    (folder / "p.md").write_text("---\nname: p\n---\nAnswer shortly.\n")
    rows = [{"input": f"q{n}", "target": "yes" if n % 2 else "no"} for n in range(12)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    own = {"command": ["python", "agent.py"], "seconds": 20, **program}
    values = {"name": "t", "prompts": {"p": "p.md"}, "program": own, "data": "rows.jsonl"}
    (folder / "task.yaml").write_text(json.dumps({**values, "reward": "exact_match"}))
    return folder


ASKS = """\
import json, os, sys, urllib.request
row = json.load(sys.stdin)
def ask(**more):
    body = {"messages": [{"role": "user", "content": row["input"]}], **more}
    head = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), head)) as reply:
        return reply.read().decode()
"""
STREAMS = """\
lines = [line[6:] for line in ask(stream=True).splitlines() if line.startswith("data: ")]
assert lines.pop() == "[DONE]"
pieces = [json.loads(line)["choices"][0] for line in lines]
assert pieces[-1]["finish_reason"] == "stop"
models = json.load(urllib.request.urlopen(os.environ["OPENAI_BASE_URL"] + "/models"))["data"]
assert models[0]["id"] == os.environ["OPENAI_MODEL"]
open("out.txt", "w").write("".join(piece["delta"].get("content", "") for piece in pieces))
"""


def answers(messages: Any) -> str:
    return "yes" if int(messages[-1]["content"][1:]) % 2 else "no"


@pytest.mark.long
def test_the_skill_of_the_example_is_learned_from_what_its_tests_say(tmp_path: Path) -> None:
    folder = shutil.copytree(AGENT, tmp_path / "agent")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    loaded = whet.Task.load(folder)
    result = whet.optimize(
        loaded, lm=coder, optimizer_lm=reflect, method="protegi", run=tmp_path / "r", budget=whet.Budget(calls=120),
        settings={"rounds": "2"}, progress=False,
    )  # fmt: skip
    skill = result.best.prompt.parts["skill"].text
    assert "docstring" in skill and "type" in skill
    assert result.baseline.test is not None and result.baseline.test.mean == 0.0
    assert result.best.test is not None and result.best.test.mean == 1.0
    assert before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_calls_of_a_command_are_counted(tmp_path: Path) -> None:
    folder = task(tmp_path, ASKS + 'ask(); print(json.loads(ask())["choices"][0]["message"]["content"])')
    result = whet.evaluate(folder, lm=answers, split="train", run=tmp_path / "r", progress=False)
    assert result.score.mean == 1.0 and result.usage.calls["task"] == 2 * result.score.n


def test_front_matter_is_in_the_file_and_markers_are_not(tmp_path: Path) -> None:
    agent = "import sys; text = open('skills/p.md').read(); sys.exit(text if text != open('wanted.md').read() else 0)"
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "wanted.md").write_text("---\nname: p\n---\nAnswer shortly.\n")
    folder = task(tmp_path, agent, documents={"p": "skills/p.md"}, workspace="files")
    fenced = "---\nname: p\n---\n<!-- whet:begin -->\nAnswer shortly.\n<!-- whet:end -->\n"
    (folder / "p.md").write_text(fenced)
    result = whet.evaluate(folder, lm=answers, split="train", run=tmp_path / "r", progress=False)
    assert result.json["failed"] == 0


def test_streams_and_the_list_of_models(tmp_path: Path) -> None:
    folder = task(tmp_path, ASKS + STREAMS, answer="out.txt")
    assert (
        whet.evaluate(folder, lm=answers, split="train", run=tmp_path / "r", progress=False).score.mean == 1.0
    )


@pytest.mark.parametrize(
    ("agent", "expected"),
    [
        ("import sys; sys.exit('no such tool')", "exit code 1: no such tool"),
        ("import time; time.sleep(60)", "took more than 0.5 s"),
        ("print('x' * 2_000_000)", "more than 1,000,000 bytes"),
        (ASKS + "ask(tools=[{'type': 'web_search'}])", "400"),
        (ASKS + "ask(response_format={'type': 'xml'})", "400"),
        (ASKS + "os.environ['OPENAI_API_KEY'] = 'other'; ask()", "401"),
        (ASKS + "[ask() for _ in range(9)]", "502"),
    ],
)
def test_a_command_that_fails_is_a_failed_rollout_with_its_reason(
    agent: str, expected: str, tmp_path: Path
) -> None:
    most = 0.5 if "sleep" in agent else 20
    folder = task(tmp_path, agent, seconds=most)
    with pytest.raises(UsageError, match="The program failed on every row") as caught:
        whet.evaluate(folder, lm=answers, split="train", run=tmp_path / "r", progress=False)
    assert expected in str(caught.value)


def test_json_that_a_command_wants_is_asked_for_by_its_schema(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"answer": {"type": "string"}}}
    form = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
    agent = ASKS + f"text = json.loads(ask(response_format={form}))['choices'][0]['message']['content']\n"
    folder = task(tmp_path, agent + "print(json.loads(text)['answer'])")

    def model(messages: Any, request: Request) -> str:
        """A model (simulated) that answers in the form of the request."""
        assert request.schema == schema
        assert request.schema_options == {"name": "a", "strict": False}
        return json.dumps({"answer": answers(messages)})

    result = whet.evaluate(folder, lm=model, split="train", run=tmp_path / "r", progress=False)
    assert result.score.mean == 1.0


def test_an_answer_in_a_file_that_is_not_there(tmp_path: Path) -> None:
    folder = task(tmp_path, "print('hello')", answer="report.md")
    with pytest.raises(UsageError, match=r"wrote no report\.md"):
        whet.evaluate(folder, lm=answers, split="train", run=tmp_path / "r", progress=False)


def test_a_check_is_the_reward_and_its_output_the_critique(tmp_path: Path) -> None:
    folder = task(tmp_path, "print('a')", check="python check.py {{input}}")
    (folder / "check.py").write_text("import sys; sys.exit('odd' if int(sys.argv[1][1:]) % 2 else 0)")
    values = json.loads((folder / "task.yaml").read_text())
    (folder / "task.yaml").write_text(json.dumps({**values, "reward": "command_check"}))
    result = whet.evaluate(folder, lm=answers, split="train", run=tmp_path / "r", progress=False)
    assert 0 < result.score.mean < 1


CHEATS = """\
import os, pathlib, shutil, sys
shutil.rmtree("tests")
os.symlink(sys.argv[1], "tests")
pathlib.Path("check.py").write_text("")
pathlib.Path("extra.py").write_text("")
"""


@pytest.mark.parametrize(("protect", "mean"), [(["check.py", "tests", "extra.py"], 0.0), ([], 1.0)])
def test_a_command_cannot_change_the_tests_that_are_protected(
    protect: list[str], mean: float, tmp_path: Path
) -> None:
    (tmp_path / "outside").mkdir()
    folder = tmp_path / "task"
    (folder / "repo" / "tests").mkdir(parents=True)
    (folder / "repo" / "tests" / "expected").write_text("1")
    (folder / "repo" / "check.py").write_text(
        "import os, pathlib; assert not os.path.exists('extra.py'); assert pathlib.Path('tests/expected').read_text() == '2'"
    )
    own = {"workspace": "repo", "check": "python check.py", **({"protect": protect} if protect else {})}
    task(folder, CHEATS, command=["python", "agent.py", str(tmp_path / "outside")], **own)
    values = json.loads((folder / "task.yaml").read_text())
    (folder / "task.yaml").write_text(json.dumps({**values, "reward": "command_check"}))
    result = whet.evaluate(folder, lm=answers, split="train", run=tmp_path / "r", progress=False)
    assert result.score.mean == mean and result.json["failed"] == 0
    assert not list((tmp_path / "outside").iterdir())


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ({"documents": {"p": "../x.md"}}, "must be a path below the workspace"),
        ({"documents": {"p": "/x.md"}}, "must be a path below the workspace"),
        ({"documents": {"q": "x.md"}}, "the prompt p has no place"),
        ({"documents": {"p": "x.md", "pp": "y.md"}}, 'there is no prompt "pp"'),
        ({"workspace": "nowhere"}, "there is no folder"),
        ({"workspace": ".", "documents": {"p": "folder"}}, "'folder' is a folder of the workspace"),
        ({"command": []}, "the command is empty"),
        ({"command": "python 'agent"}, "cannot be read"),
        ({"file": "agent.py"}, "Keep one"),
        ({"command": None, "check": "x"}, "belongs to a `command`"),
        ({"protect": ["tests"]}, "takes a `workspace` and a `check`"),
        ({"protect": ["../x"], "workspace": "folder", "check": "true"}, "must be a path below the workspace"),
        (
            {"protect": ["a"], "documents": {"p": "a/p.md"}, "workspace": "folder", "check": "true"},
            "holds 'a/p.md'",
        ),
    ],
)
def test_a_command_that_cannot_be_run_is_refused(
    program: dict[str, Any], expected: str, tmp_path: Path
) -> None:
    (tmp_path / "folder").mkdir()
    folder = task(tmp_path, "print(1)", **program)
    if program.get("command", "") is None:
        values = json.loads((folder / "task.yaml").read_text())
        del values["program"]["command"]
        (folder / "task.yaml").write_text(json.dumps(values))
    with pytest.raises(UsageError, match=r"task\.yaml:1") as caught:
        whet.Task.load(folder)
    assert expected in str(caught.value)


def test_a_changed_workspace_is_another_task(tmp_path: Path) -> None:
    folder = shutil.copytree(AGENT, tmp_path / "agent")
    before = whet.Task.load(folder).fingerprint
    (folder / "agent.py").write_text((folder / "agent.py").read_text() + "\n")
    other = whet.Task.load(folder).fingerprint
    (folder / "repo" / "tests" / "double.json").write_text("[]")
    assert len({before, other, whet.Task.load(folder).fingerprint}) == 3


@pytest.mark.parametrize("folder", ["", "deep/"])
def test_a_link_of_the_workspace_never_leads_a_prompt_into_a_file_of_the_user(
    folder: str, tmp_path: Path
) -> None:
    own = tmp_path / "home" / "AGENTS.md"
    own.parent.mkdir()
    own.write_text("of the user")
    (tmp_path / "files").mkdir()
    link = tmp_path / "files" / (folder.strip("/") or "AGENTS.md")
    link.symlink_to(own.parent if folder else own)
    agent = f"print('yes' if 'shortly' in open('{folder}AGENTS.md').read() else 'no')"
    task(tmp_path, agent, documents={"p": f"{folder}AGENTS.md"}, workspace="files")
    result = whet.evaluate(tmp_path, lm=answers, split="train", run=tmp_path / "r", progress=False)
    assert result.json["failed"] == 0 and result.score.mean > 0
    assert own.read_text() == "of the user"


def test_a_link_inside_of_the_workspace_is_followed(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "CLAUDE.md").write_text("old")
    (tmp_path / "files" / "AGENTS.md").symlink_to("CLAUDE.md")
    agent = "print('yes' if 'shortly' in open('CLAUDE.md').read() else 'old')"
    task(tmp_path, agent, documents={"p": "AGENTS.md"}, workspace="files")
    result = whet.evaluate(tmp_path, lm=answers, split="train", run=tmp_path / "r", progress=False)
    assert result.score.mean > 0


@pytest.mark.parametrize("word", ["p.md", "x" * 5_000, "/", "質問 {{input}}"])
def test_what_a_row_fills_in_is_never_read_as_a_path(word: str, tmp_path: Path) -> None:
    folder = task(tmp_path, "import sys; print(sys.argv[1])", command=["python", "agent.py", "{{text}}"])
    rows = [{"input": f"q{n}", "text": word, "target": word} for n in range(9)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert (
        whet.evaluate(folder, lm=answers, split="train", run=tmp_path / "r", progress=False).score.mean == 1.0
    )


def test_a_command_may_be_an_absolute_path_or_a_long_word(tmp_path: Path) -> None:
    long = "print('yes')" + " " * 5_000
    folder = task(tmp_path, "", command=f"{sys.executable} -c {shlex.quote(long)}")
    result = whet.evaluate(folder, lm=answers, split="train", run=tmp_path / "r", progress=False)
    assert result.score.mean > 0


@pytest.mark.parametrize("where", ["command", "check"])
def test_a_slot_that_no_row_fills_is_refused_with_its_place(where: str, tmp_path: Path) -> None:
    folder = task(tmp_path, "print(1)", **{where: ["python", "agent.py", "{{imput}}"]})
    with pytest.raises(UsageError, match=r'slot \{\{imput\}\}.*rows.jsonl:.*Did you mean "input"'):
        whet.Task.load(folder)


def test_a_process_that_a_command_leaves_behind_does_not_hold_its_rollout(tmp_path: Path) -> None:
    agent = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']); print('yes')"
    folder = task(tmp_path, agent, seconds=100)
    result = whet.evaluate(folder, lm=answers, split="train", run=tmp_path / "r", progress=False)
    assert result.json["failed"] == 0 and result.score.mean > 0


def test_a_command_may_print_before_it_reads_a_long_row(tmp_path: Path) -> None:
    agent = "import sys; print('x' * 300_000, flush=True); n = len(sys.stdin.read()); open('out', 'w').write(str(n > 300_000))"
    folder = task(tmp_path, agent, answer="out", seconds=100)
    rows = [{"input": str(n) * 300_000, "target": "True"} for n in range(3)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert (
        whet.evaluate(folder, lm=answers, split="train", run=tmp_path / "r", progress=False).score.mean == 1.0
    )


def test_a_row_with_a_zero_byte_fails_with_its_reason(tmp_path: Path) -> None:
    folder = task(tmp_path, "print(1)", command=["python", "agent.py", "{{text}}"])
    rows = [{"input": f"q{n}", "text": "a\0b", "target": "yes"} for n in range(9)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(UsageError, match="did not start: embedded null byte"):
        whet.evaluate(folder, lm=answers, split="train", run=tmp_path / "r", progress=False)
