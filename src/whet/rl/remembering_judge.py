"""A prompt with the memory of a judge: each input is judged beside guidelines and the judgements of people most like it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from whet.errors import UsageError
from whet.prompt import Prompt
from whet.replies import json_values
from whet.rewards.judge_memory import JudgeMemory, read_memory
from whet.run import Run
from whet.search.edits import replace_region, text_in
from whet.types import Example, Message


@dataclass
class RememberingJudge:
    """The state that is kept: the prompt and the memory that is shown in it."""

    start: Prompt
    memory: JudgeMemory

    async def route(self, run: Run, examples: Sequence[Example]) -> list[Prompt]:
        """The prompt for each row, with what is remembered for it."""
        text = text_in(self.start, self.start)
        prompts = [replace_region(self.start, self.memory.extend(text, e.user_text)) for e in examples]
        return [prompt or self.start for prompt in prompts]

    def save(self) -> bytes:
        """The prompt and the memory as JSON."""
        messages = [m.as_list() for m in self.start.messages]
        return json.dumps({"start": messages, "memory": self.memory.to_json()}).encode()

    def load(self, blob: bytes) -> None:
        """Restore what `save` returned. Raises UsageError for anything else."""
        stored = read_judge(blob)
        self.start, self.memory = stored.start, stored.memory


def read_judge(blob: bytes) -> RememberingJudge:
    """The judge in a blob. Raises UsageError for anything else."""
    facts: Any = next(iter(json_values(blob.decode(errors="replace"))), None)
    if not isinstance(facts, dict) or facts.keys() != {"start", "memory"}:
        raise UsageError("this is not a checkpoint of memalign: it holds no memory.")
    start = Prompt(tuple(Message(*message) for message in facts["start"]))
    return RememberingJudge(start, read_memory(facts["memory"]))
