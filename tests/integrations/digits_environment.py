"""An environment of verifiers: say the number. Its harness asks in this process, with as many turns as the task wants."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import verifiers.v1 as vf

__all__ = ["ChatHarness", "DigitsTaskset"]


class DigitsData(vf.TaskData):
    answer: str = ""


class DigitsTask(vf.Task[DigitsData]):
    @vf.reward(weight=0.8)
    async def exact(self, trace: vf.Trace) -> float:
        return float(trace.last_reply == self.data.answer)

    @vf.reward(weight=0.2)
    async def contained(self, trace: vf.Trace) -> float:
        return float(self.data.answer in trace.last_reply)


class DigitsConfig(vf.TasksetConfig):
    first: int = 100
    number: int = 60
    prompted: bool = True


class DigitsTaskset(vf.Taskset[DigitsTask, DigitsConfig]):
    def load(self) -> Iterator[DigitsTask]:
        for i in range(self.config.first, self.config.first + self.config.number):
            text = "Answer in words." if self.config.prompted else None
            data = DigitsData(prompt=f"Which is number {i}?", system_prompt=text, answer=str(i))
            yield DigitsTask(data, self.config.task)


class ChatConfig(vf.HarnessConfig):
    turns: int = 1
    tools: bool = False
    stream: bool = False


class ChatHarness(vf.Harness[ChatConfig]):
    APPENDS_SYSTEM_PROMPT = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self, ctx: Any, trace: Any, runtime: Any, endpoint: str, secret: str, mcp_urls: Any, data: Any
    ) -> vf.ProgramResult:
        system, prompt = self.resolve_prompt(data)
        messages = [{"role": "system", "content": system}, {"role": "user", "content": prompt}]
        tools = [
            {
                "type": "function",
                "function": {"name": "look", "parameters": {"type": "object", "properties": {}}},
            }
        ]
        async with httpx.AsyncClient(headers={"Authorization": f"Bearer {secret}"}, timeout=60) as client:
            for _ in range(self.config.turns):
                body = {
                    "model": ctx.model,
                    "messages": messages,
                    **({"tools": tools} if self.config.tools else {}),
                }
                response = await client.post(f"{endpoint}/chat/completions", json=body)
                if response.status_code != 200:
                    return vf.ProgramResult(exit_code=1, stdout="", stderr=response.text)
                text = response.json()["choices"][0]["message"]["content"]
                messages += [
                    {"role": "assistant", "content": text},
                    {"role": "user", "content": "Are you sure?"},
                ]
        return vf.ProgramResult(exit_code=0, stdout="", stderr="")
