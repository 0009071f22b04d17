"""A task with two prompts, answered by plain functions: `plan` must ask for digits, `answer` must say `only`."""

from __future__ import annotations

import re
import zlib
from typing import Any

from whet.types import Message

PROMPTS = {
    "plan": "Say what to look for.\n<!-- whet:begin -->\nLook for it, and say it.\n<!-- whet:end -->\n{{input}}",
    "answer": "<!-- whet:begin -->\nAnswer the question, in words.\n<!-- whet:end -->\n{{plan}}",
}
ROWS = [{"id": f"n{n}", "input": f"number {n}", "target": str(n)} for n in range(60)]


async def program(lm: Any, prompts: Any, example: Any) -> str:
    plan = await lm("plan")
    return str(await lm("answer", plan=plan))


def model(messages: tuple[Message, ...]) -> str:
    text = "\n".join(m.content for m in messages)
    number = re.search(r"number (\d+)|the digits (\d+)", text)
    digits = next((g for g in number.groups() if g), "") if number else ""
    if text.startswith("Say what"):
        return f"the digits {digits}" if "digits" in text.partition("number")[0] else "something"
    if not digits:
        return "I do not know."
    return digits if "only" in text else f"It is {digits}."


def optimizer(messages: tuple[Message, ...]) -> str:
    """Writes whichever wording fits the prompt that it is shown, and now and then one that does not."""
    text = messages[0].content
    plan = 'the prompt "plan"' in text
    better, worse = ("Look for the digits.", "Think.") if plan else ("Give only the number.", "Be polite.")
    return (
        f"<PROMPT>{better if zlib.crc32(text.encode()) % 3 else worse}</PROMPT><REASON>It is vague.</REASON>"
    )


def reward(example: dict[str, Any], output: str) -> dict[str, Any]:
    """Half for the number, all for the number alone; says which prompt is to blame."""
    if output == example["target"]:
        return {"reward": 1.0}
    if example["target"] in output:
        return {"reward": 0.5, "critique": {"answer": "Give only the number."}}
    return {"reward": 0.0, "critique": {"plan": "Look for the digits."}}
