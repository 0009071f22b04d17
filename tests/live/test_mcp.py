"""`whet mcp` before a client of the protocol's own SDK: what an agent reads, proposes, and cannot do."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from tests.live.tasks import LM, write_reviews

import whet
from whet.prompt import Prompt
from whet_client import Feedback, Inference
from whet_live import open_live
from whet_live.registry import Decision

PROMPT = "Answer {{question}}.\n<!-- whet:begin -->\n- Be polite.\n<!-- whet:end -->\n"
READING = {
    "list_prompts", "show_prompt", "diff_prompts", "list_proposals", "show_proposal", "list_feedback", "list_answers",
    "learning_status", "list_runs", "show_run",
}  # fmt: skip


@pytest.fixture
def database(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path / 'whet.db'}"
    with open_live(url) as live:
        start = Prompt.parse(PROMPT)
        live.registry.create("shop/help", start, author="ann", message="first", label="production")
        answer = Inference("shop/help", 1, {"question": "When?"}, "At 6.", user="u1")
        comment = Feedback("comment", answer.id, text="6 in the morning?", user="u1")
        live.traffic.add([answer], [comment])
    return url


@asynccontextmanager
async def agent(database: str, folder: Path) -> AsyncIterator[ClientSession]:
    arguments = ["-m", "whet", "mcp", "--database", database, "--runs", str(folder / "runs")]
    server = StdioServerParameters(command=sys.executable, args=arguments, cwd=str(folder))
    async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        yield session


async def call(session: ClientSession, tool: str, **arguments: Any) -> Any:
    """What a tool returns, as JSON values; the text of its error as an AssertionError."""
    result = await session.call_tool(tool, arguments)
    assert not result.is_error, result.content[0].text
    return result.structured_content


async def refusal(session: ClientSession, tool: str, **arguments: Any) -> str:
    result = await session.call_tool(tool, arguments)
    assert result.is_error, result.content
    return str(result.content[0].text)


async def test_an_agent_reads_and_proposes_and_a_person_decides(database: str, tmp_path: Path) -> None:
    changed = PROMPT.replace("- Be polite.", "- Be polite.\n- Give times as 18:00.")
    async with agent(database, tmp_path) as session:
        tools = {tool.name: tool.annotations for tool in (await session.list_tools()).tools}
        assert {name for name, note in tools.items() if note and note.read_only_hint} == READING
        assert set(tools) == READING | {"propose_change"}
        listed = await call(session, "list_prompts")
        assert [row["name"] for row in listed["prompts"]] == ["shop/help"]
        assert (await call(session, "show_prompt", address="shop/help"))["source"] == PROMPT
        comments = (await call(session, "list_feedback", prompt="shop/help", text="morning"))["feedback"]
        assert [(row["text"], row["version"]) for row in comments] == [("6 in the morning?", 1)]
        answers = (await call(session, "list_answers", prompt="shop/help"))["answers"]
        assert [row["output"] for row in answers] == ["At 6."]
        filed = await call(session, "propose_change", base="shop/help", text=changed, why="times are unclear")
        assert (filed["state"], filed["author"], filed["label"]) == ("open", "agent", "production")
        assert filed["warnings"] == []
        assert (await call(session, "show_prompt", address="shop/help"))["version"] == 1
        [waiting] = (await call(session, "list_proposals", prompt="shop/help"))["proposals"]
        assert waiting["id"] == filed["id"]
    with open_live(database) as live:
        live.registry.protect("shop/help", "production", actor="ann")
        with pytest.raises(whet.UsageError, match="agent"):
            live.registry.decide(filed["id"], Decision("approve"), actor="agent")
        live.registry.decide(filed["id"], Decision("approve"), actor="ann")
        assert live.registry.get("shop/help").prompt.source == changed


async def test_what_cannot_be_done_is_said(database: str, tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text('{"secret": 1}')
    async with agent(database, tmp_path) as session:
        assert "shop/help" in await refusal(session, "show_prompt", address="shop/hlp")
        assert "no prompt" in await refusal(session, "list_feedback", prompt="nothing/here")
        assert "200" in await refusal(session, "list_feedback", prompt="shop/help", limit=900)
        assert "list_runs" in await refusal(session, "show_run", run="..")
        assert "list_runs" in await refusal(session, "show_run", run="missing")
        same = await refusal(session, "propose_change", base="shop/help", text=PROMPT, why="none")
        assert "changes nothing" in same
        assert "why" in await refusal(
            session, "propose_change", base="shop/help", text="Hi {{question}}", why=" "
        )
        assert (await call(session, "list_proposals"))["proposals"] == []
        lost = await call(session, "propose_change", base="shop/help", text="Hi {{name}}", why="greet")
        assert all(slot in text for slot, text in zip(("question", "name"), lost["warnings"], strict=True))


async def test_an_agent_reads_runs(database: str, tmp_path: Path) -> None:
    whet.evaluate(write_reviews(tmp_path), lm=LM, split="validation", run=tmp_path / "runs" / "one")
    async with agent(database, tmp_path) as session:
        [row] = (await call(session, "list_runs"))["runs"]
        shown = await call(session, "show_run", run="one")
        assert (row["split"], shown["split"]) == ("validation", "validation")
