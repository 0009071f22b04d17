"""A reward that reads the steps of a rollout: calls of tools with their arguments, prompts of a program."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import whet

TOOLS = '''
def add(a: float, b: float) -> float:
    """The sum of two numbers."""
    return a + b
'''
REWARD = """
async def reward(example, output, trace):
    calls = [step for step in trace if step["role"] == "tool"]
    right = [c for c in calls if c["name"] == "add" and c["arguments"] == {"a": 2, "b": 3} and not c["error"]]
    wrong = "" if right else "add must be called with 2 and 3"
    return {"reward": float(bool(right)), "critique": wrong, "calls": len(calls), "result": float(calls[0]["output"])}
"""


async def test_the_reward_of_a_tools_task_sees_calls_and_arguments(tmp_path: Path) -> None:
    folder = tmp_path / "task"
    folder.mkdir()
    (folder / "tools.py").write_text(TOOLS)
    (folder / "reward.py").write_text(REWARD)
    (folder / "prompt.md").write_text("{{input}}")
    (folder / "data.jsonl").write_text(
        "".join(json.dumps({"input": f"{n}: 2 + 3?"}) + "\n" for n in range(9))
    )
    (folder / "task.yaml").write_text(
        "name: t\nprompt: prompt.md\ndata: data.jsonl\nreward: reward.py\nenvironment: {tools: tools.py, turns: 3}\n"
    )

    def model(arguments: dict[str, Any]) -> Any:
        call = f"<tool>{json.dumps({'name': 'add', 'arguments': arguments})}</tool>"
        return lambda messages: call if messages[-1].content.endswith("?") else "5"

    for arguments, mean in (({"a": 2, "b": 3}, 1.0), ({"a": 1, "b": 4}, 0.0)):
        root = tmp_path / f"runs{mean:g}"
        result = await whet.aevaluate(folder, lm=model(arguments), split="test", root=root)
        assert (result.score.mean, result.failed) == (mean, 0)
        assert result.parts["calls"] == 1.0 and result.parts["result"] == 5.0


async def test_the_reward_of_a_program_sees_its_prompts(tmp_path: Path) -> None:
    async def program(lm: Any, prompts: Any, example: Any) -> str:
        plan = await lm("plan", question=example["question"])
        return str(await lm("answer", plan=plan))

    def reward(example: Any, output: str, *, trace: Any) -> float:
        names = [(step["role"], step["name"]) for step in trace]
        assert trace[1]["arguments"] == {"plan": trace[0]["output"]}
        return float(names == [("task", "plan"), ("task", "answer")] and trace[-1]["output"] == output)

    task = whet.Task.of(
        {"plan": "Plan: {{question}}", "answer": "Follow {{plan}}"},
        program=program,
        data=[{"input": {"question": f"q{n}"}} for n in range(9)],
        reward=reward,
    )
    result = await whet.aevaluate(task, lm=lambda messages: "some text", split="test", root=tmp_path)
    assert result.score.mean == 1.0 and result.failed == 0


async def test_tool_calls_of_an_episode_are_not_called_noise(tmp_path: Path) -> None:
    """An answer that is graded twice is graded without its steps, so a reward that reads them is left out."""
    folder = tmp_path / "task"
    folder.mkdir()
    (folder / "tools.py").write_text(TOOLS)
    (folder / "prompt.md").write_text("{{input}}")
    call = {"name": "add", "arguments": {"a": 2, "b": 3}}
    rows = [{"input": f"{n}: 2 + 3?", "calls": [call]} for n in range(12)]
    (folder / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for reward in ("tool_calls", "[{weight: 0.5, tool_calls: {}}, {weight: 0.5, regex: {pattern: '5'}}]"):
        (folder / "task.yaml").write_text(
            f"name: t\nprompt: prompt.md\ndata: data.jsonl\nreward: {reward}\nenvironment: {{tools: tools.py, turns: 3}}\n"
        )
        result = await whet.aevaluate(
            folder,
            lm=lambda messages: (
                f"<tool>{json.dumps(call)}</tool>" if messages[-1].content.endswith("?") else "5"
            ),
            root=tmp_path / "runs",
        )
        assert (result.score.mean, result.failed) == (1.0, 0)
        assert not [warning for warning in result.warnings if "the second time" in warning]
