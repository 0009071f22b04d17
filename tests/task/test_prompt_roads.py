"""A prompt means the same on every road: files, Python values, runs and the registry; a path is never taken for a prompt."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

import whet
from whet.cli.main import cli
from whet.errors import UsageError
from whet.task import load_prompt, prompt_of
from whet.task.prompts import prompt_file

ROWS = [{"input": {"Customer text": f"t{n}"}, "target": "a"} for n in range(20)]
FENCED = "Be kind.\n<!-- whet:begin -->\nRoute it.\n<!-- whet:end -->"
CHAT = [{"role": "system", "content": FENCED}, {"role": "user", "content": "Q: {{Customer text}}"}]


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def roles(messages: Sequence[Any]) -> str:
    """A model that answers with the roles that it was sent."""
    return " ".join(message.role for message in messages)


def run() -> Any:
    return whet.optimize(
        CHAT,
        data=ROWS,
        reward=lambda example, output: float(output == "system user"),
        lm=roles,
        method="random_search",
        optimizer_lm="none",
        budget=whet.Budget(calls=80),
        run="run",
    )


def test_a_chat_prompt_comes_out_of_a_run_as_chat_on_every_road() -> None:
    result = run()
    assert result.baseline.test is not None and result.baseline.test.mean == 1.0
    best = result.best.prompt
    assert [m.role for m in best.messages] == ["system", "user"]
    assert load_prompt(Path("run/best.md")) == best == prompt_of(result["best"]["prompt"])
    shown = CliRunner().invoke(cli, ["show", "run", "--plain"], catch_exceptions=False).stdout
    Path("p.json").write_text(shown)
    assert load_prompt(Path("p.json")).messages == best.clean
    for prompt in (
        Path("run/best.md"),
        "p.json",
        json.loads(shown),
        [("system", "Hi."), ("human", "{Customer text}")],
    ):
        score = whet.evaluate(
            "{{Customer text}}",
            prompt=prompt,
            data=ROWS,
            reward=lambda example, output: float(output == "system user"),
            lm=roles,
            run=f"run-{id(prompt)}",
        ).score
        assert score.mean == 1.0, prompt


def test_the_registry_takes_every_form_as_chat(monkeypatch: pytest.MonkeyPatch) -> None:
    run()
    monkeypatch.setenv("WHET_DATABASE_URL", "sqlite:///live.db")
    Path("langfuse.json").write_text(json.dumps({"type": "chat", "prompt": CHAT}))
    for name, path in (("a", "run"), ("b", "run/best.md"), ("c", "langfuse.json")):
        made = CliRunner().invoke(
            cli, ["prompts", "import", path, "--name", name, "--as", "anna", "--json"], catch_exceptions=False
        )
        assert made.exit_code == 0, made.output
        text = (
            CliRunner()
            .invoke(cli, ["prompts", "show", f"{name}@latest", "--text"], catch_exceptions=False)
            .stdout
        )
        assert [m.role for m in whet.Prompt.parse(text).messages] == ["system", "user"]
        assert whet.Prompt.parse(text).fenced


def test_a_chat_prompt_learns_in_the_form_in_which_it_was_given() -> None:
    prompt = whet.Prompt.of_chat(CHAT)
    row = {"id": "1", "comment": "Be short.", "instruction": "Be short.", "user": "u"}
    learned = whet.learn(prompt, [row]).prompt
    assert [m.role for m in learned.messages] == ["system", "user"] and "Be short." in learned.region_text()
    Path("chat.md").write_text(prompt.source)
    whet.learn("chat.md", [row])
    assert load_prompt(Path("chat.md")) == learned
    Path("other.json").write_text(json.dumps({"messages": CHAT}))
    with pytest.raises(UsageError, match=r"other\.json: what is learned cannot be written into this form"):
        whet.learn("other.json", [row])


def test_a_chat_prompt_in_a_task_folder_is_written_in_blocks_and_read_back() -> None:
    prompt = whet.Prompt.of_chat([*CHAT, {"role": "assistant", "content": "a\r\nb\u2028c: 'x'"}])
    name, content = prompt_file(prompt)
    Path(name).write_bytes(content)
    assert load_prompt(Path(name)) == prompt and b"content: |" in content


@pytest.mark.parametrize("call", ["evaluate", "optimize", "compare", "session", "task"])
@pytest.mark.parametrize("text", ["prompt.md", "tasks/router", "mytsk", "./x", "mytsk/", "nowhere.json"])
def test_what_looks_like_a_path_is_no_prompt(call: str, text: str) -> None:
    Path("mytask").mkdir()
    Path("mytask/task.yaml").write_text("name: t\n")
    calls: dict[str, Any] = {
        "evaluate": lambda: whet.evaluate(text, data=ROWS, reward="exact_match", lm=roles),
        "optimize": lambda: whet.optimize(text, data=ROWS, reward="exact_match", lm=roles),
        "compare": lambda: whet.compare(text, ["opro"], data=ROWS, reward="exact_match", lm=roles),
        "session": lambda: whet.Session(text, data=ROWS, reward="exact_match", method="random_search"),
        "task": lambda: whet.Task.of(text, data=ROWS, reward="exact_match"),
    }
    with pytest.raises(UsageError, match=r"there is no file|no file and no task folder"):
        calls[call]()


def test_a_prompt_file_is_read_where_a_text_may_stand() -> None:
    Path("prompt.md").write_text("\ufeffSay {{Customer text}}")
    task = whet.Task.of("prompt.md", data=ROWS, reward="exact_match")
    assert task.prompt.text == "Say {{Customer text}}"
    evaluated = whet.evaluate("prompt.md", data=ROWS, reward="exact_match", lm=lambda m: "a", split="train")
    assert evaluated.score.mean == 1.0


@pytest.mark.parametrize(
    "text", ["Answer.", "Answer briefly, e.g. in a word.", "Classify", "True or false?", "v1.2"]
)
def test_short_texts_are_prompts(text: str) -> None:
    assert whet.Task.of(text, data=ROWS, reward="exact_match").prompt.text == text


class ClassLabel:
    """As that of `datasets`."""

    def __init__(self, *names: str) -> None:
        self.names = list(names)


class Dataset(list[Any]):
    """As that of `datasets`: rows with the features of their columns."""

    column_names = ("text", "target", "tags", "deep")
    features = {  # noqa: RUF012
        "text": SimpleNamespace(dtype="string"),
        "target": ClassLabel("refund", "other"),
        "tags": SimpleNamespace(feature=ClassLabel("x", "y")),
        "deep": {"kind": ClassLabel("m", "n"), "many": [ClassLabel("p", "q")]},
    }


def test_classes_of_a_data_set_become_their_names() -> None:
    row = {"tags": [1, 0], "deep": {"kind": 1, "many": [0]}}
    data = Dataset({"text": f"t{n}", "target": n % 2, **row} for n in range(12))
    task = whet.Task.of("Sort: {{text}}", data=data, reward="exact_match")
    assert {e.target for e in (*task.train, *task.validation, *task.test)} == {"refund", "other"}
    assert task.train[0].row["tags"] == ["y", "x"] and task.train[0].row["deep"] == {
        "kind": "n",
        "many": ["p"],
    }


class Frame:
    """As a data frame: columns, and rows as dicts."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows, self.columns = rows, list(rows[0])

    def to_dict(self, orient: str) -> list[dict[str, Any]]:
        return self.rows


def test_whole_numbers_that_a_frame_holds_as_fractions_are_whole_again() -> None:
    rows = [
        {"input": f"q{n}", "target": float(n), "age": 18.0 if n else float("nan"), "price": 2.0}
        for n in range(9)
    ]
    task = whet.Task.of("Say {{input}}", data=Frame(rows), reward=lambda example, output: 1.0)
    examples = [*task.train, *task.validation, *task.test]
    assert {repr(e.target) for e in examples} == {str(n) for n in range(9)}
    assert {repr(e.row.get("age")) for e in examples} == {"18", "None"} and {
        repr(e.row["price"]) for e in examples
    } == {"2.0"}


def test_a_slot_that_is_nearly_an_input_gets_its_name() -> None:
    init = CliRunner().invoke(cli, ["init", "demo", "--from", "example"])
    assert init.exit_code == 0
    Path("mine.md").write_text("Judge {{inputt}}.")
    with pytest.raises(
        UsageError, match=r'no input of demo fills the slot \{\{inputt\}\}\.\s*Did you mean "input"\?'
    ):
        whet.evaluate("demo", prompt=Path("mine.md"))


def test_utf_16_with_a_mark_is_a_prompt(tmp_path: Path) -> None:
    for number, encoding in enumerate(("utf-16", "utf-16-le", "utf-16-be", "utf-32")):
        path = tmp_path / f"{number}.md"
        mark = "" if encoding in ("utf-16", "utf-32") else "\ufeff"
        path.write_bytes(f"{mark}Grüße {{{{body}}}}\r\n".encode(encoding))
        assert load_prompt(path).source == "Grüße {{body}}\r\n"
    (tmp_path / "broken.md").write_bytes("\ufeffab".encode("utf-16-le")[:-1])
    with pytest.raises(UsageError, match=r"broken\.md:1: not UTF-16: .*Save the file as UTF-8"):
        load_prompt(tmp_path / "broken.md")
