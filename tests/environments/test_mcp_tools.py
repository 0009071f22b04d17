"""Tools of a real MCP server, and descriptions of tools that a search may edit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import whet
from whet.errors import UsageError
from whet.prompt import Prompt

SERVER = '''
import os
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("prices", log_level="CRITICAL")

@server.tool()
def price(item: str, count: int = 1) -> str:
    """What some of an item cost."""
    if item == "boat":
        raise ToolError("boats are not sold")
    return f"{3 * count} euros"

@server.tool()
def folder() -> str:
    """Where the server runs."""
    return os.getcwd()

server.run()
'''
TOOLS = '''
def price(item: str, count: int = 1) -> str:
    """Something about money."""
    return f"{3 * count} euros"


def weather(town: str) -> str:
    """The weather of a town."""
    return "rain"
'''


def task(folder: Path, environment: dict[str, Any], prompt: str = "Help.", n: int = 12) -> Path:
    (folder / "server.py").write_text(SERVER)
    (folder / "tools.py").write_text(TOOLS)
    (folder / "prompt.md").write_text(prompt)
    rows = [{"input": f"What do {k} apples cost?", "target": f"{3 * k} euros"} for k in range(n)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    values = {"name": "t", "prompt": "prompt.md", "data": "rows.jsonl", "reward": "exact_match"}
    (folder / "task.yaml").write_text(json.dumps({**values, "environment": {"turns": 3, **environment}}))
    return folder


class Shopper:
    """A model that calls the price tool if a tool is said to cost something, and then repeats what it got."""

    def __init__(self, word: str = "cost", item: str = "apple") -> None:
        self.word, self.item, self.systems = word, item, list[str]()

    def __call__(self, messages: Any) -> str:
        self.systems.append(messages[0]["content"])
        question, last = messages[1]["content"], messages[-1]["content"]
        if last != question:
            return str(last)
        if self.word not in messages[0]["content"]:
            return "I do not know."
        call = {"name": "price", "arguments": {"item": self.item, "count": int(question.split()[2])}}
        return f"<tool>{json.dumps(call)}</tool>"


@pytest.mark.parametrize("command", ["python server.py", ["python", "server.py"]])
def test_tools_of_an_mcp_server(command: Any, tmp_path: Path) -> None:
    folder, model = task(tmp_path, {"mcp": command}), Shopper()
    result = whet.evaluate(folder, lm=model, split="train", run=tmp_path / "r", progress=False)
    assert result.score.mean == 1.0
    count = '{"default": 1, "type": "integer"} = ...'
    assert f'- price(item: "string", count: {count}): What some of an item cost.' in model.systems[0]
    assert whet.Task.load(folder).world.answer({"name": "folder"}) == str(tmp_path)  # type: ignore[union-attr]


def test_an_error_of_the_server_is_an_observation(tmp_path: Path) -> None:
    model = Shopper(item="boat")
    result = whet.evaluate(
        task(tmp_path, {"mcp": "python server.py"}),
        lm=model,
        split="train",
        run=tmp_path / "r",
        progress=False,
    )
    assert result.score.mean == 0.0
    world: Any = whet.Task.load(tmp_path).world
    answer = world.answer({"name": "price", "arguments": {"item": "boat"}})
    assert answer.startswith("Error: ") and "boats are not sold" in answer


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("python missing.py", "missing.py"),
        ("no-such-command", "no-such-command"),
        ("python -c pass", "named no tools"),
        ([], "empty"),
    ],
)
def test_a_server_that_does_not_start_is_refused(command: Any, expected: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"task\.yaml:1") as caught:
        whet.Task.load(task(tmp_path, {"mcp": command}))
    assert expected in str(caught.value)


def test_another_description_of_the_server_is_another_task(tmp_path: Path) -> None:
    before = whet.Task.load(task(tmp_path, {"mcp": "python server.py"})).fingerprint
    (tmp_path / "server.py").write_text(SERVER.replace("What some", "What many"))
    assert whet.Task.load(tmp_path).fingerprint != before


def test_descriptions_are_regions_and_a_search_mends_the_one_that_misleads(tmp_path: Path) -> None:
    folder, model = task(tmp_path, {"tools": "tools.py", "descriptions": "editable"}, n=60), Shopper()
    loaded = whet.Task.load(folder)
    assert [r.name for r in loaded.prompt.regions] == ["instructions", "tool-price", "tool-weather"]
    assert loaded.prompt.region_text("tool-price") == "Something about money."

    def writer(messages: Any) -> str:
        return "<INSTRUCTION>What things cost.</INSTRUCTION>"

    result = whet.optimize(
        loaded, lm=model, optimizer_lm=writer, method="opro", settings={"steps": "1"}, budget=whet.Budget(calls=3000),
        run=tmp_path / "r", progress=False,
    )  # fmt: skip
    assert result.promoted and "cost" in result.best.prompt.text
    assert "price(item: str, count: int = 1) -> str: " in result.best.prompt.text
    assert model.systems[0].count("Something about money.") == 1  # not in the manual too
    (folder / "prompt.md").write_text((tmp_path / "r" / "best.md").read_text())
    again = whet.Task.load(folder).prompt
    assert again == result.best.prompt


DESCRIBED = """
from typing import Annotated

def price(item: str, count: Annotated[int, "A number."] = 1) -> str:
    \"\"\"What things cost.\"\"\"
    return f"{3 * count} euros"
"""
DESCRIBED_SERVER = SERVER.replace(
    "count: int = 1", 'count: Annotated[int, Field(description="A number.")] = 1'
).replace("import os", "import os\nfrom typing import Annotated\nfrom pydantic import Field")


@pytest.mark.parametrize("kind", ["tools", "mcp"])
def test_the_description_of_a_parameter_is_a_region_and_a_search_mends_it(kind: str, tmp_path: Path) -> None:
    """The model calls the tool only if its parameter is said to be how many."""
    world = {"tools": "tools.py"} if kind == "tools" else {"mcp": "python server.py"}
    folder, model = task(tmp_path, {**world, "descriptions": "editable"}, n=60), Shopper("how many")
    (folder / "tools.py").write_text(DESCRIBED)
    (folder / "server.py").write_text(DESCRIBED_SERVER)
    values = json.loads((folder / "task.yaml").read_text())
    (folder / "task.yaml").write_text(json.dumps({**values, "region": "tool-price.count"}))
    loaded = whet.Task.load(folder)
    names = [region.name for region in loaded.prompt.regions]
    assert names == [
        "instructions",
        "tool-price",
        "tool-price.count",
        *(["tool-folder"] if kind == "mcp" else []),
    ]
    assert loaded.prompt.text.count("A number.") == 1 and "\n  - count: A number." in loaded.prompt.text
    calls: Any = loaded.world
    assert calls.answer({"name": "price", "arguments": {"item": "apple", "count": 2}}) == "6 euros"

    def writer(messages: Any) -> str:
        return "<INSTRUCTION>how many of them</INSTRUCTION>"

    result = whet.optimize(
        loaded, lm=model, optimizer_lm=writer, method="opro", settings={"steps": "1"}, budget=whet.Budget(calls=3000),
        run=tmp_path / "r", progress=False,
    )  # fmt: skip
    assert result.promoted and result.best.prompt.region_text("tool-price.count") == "how many of them"
    (folder / "prompt.md").write_text((tmp_path / "r" / "best.md").read_text())
    assert whet.Task.load(folder).prompt == result.best.prompt


def test_one_description_alone_and_what_was_fenced(tmp_path: Path) -> None:
    fenced = "---\nname: x\n---\nHelp.\n<!-- whet:begin style -->\nShort.\n<!-- whet:end -->\n"
    folder = task(tmp_path, {"tools": "tools.py", "descriptions": "editable"}, fenced)
    values = json.loads((folder / "task.yaml").read_text())
    (folder / "task.yaml").write_text(json.dumps({**values, "region": "tool-weather"}))
    loaded = whet.Task.load(folder)
    assert [r.name for r in loaded.prompt.regions] == ["style", "tool-price", "tool-weather"]
    assert loaded.region == "tool-weather" and loaded.prompt.text.startswith("Help.\nShort.")


def test_a_description_with_a_slot_is_refused_where_it_is_editable(tmp_path: Path) -> None:
    folder = task(tmp_path, {"tools": "tools.py", "descriptions": "editable"})
    (folder / "tools.py").write_text(TOOLS.replace("Something", "{{something}}"))
    with pytest.raises(UsageError, match="holds a slot"):
        whet.Task.load(folder)
    assert Prompt.parse("Help.").text == "Help."
