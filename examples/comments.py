"""Comments become instructions of a prompt, and are taken back: no model, no key, no network.

Without a model nothing is invented: a person writes the instruction of each group of comments (here a function, at the
terminal of `whet learn` the person). With one, optimizer_lm="openai/NAME" reads and writes.
"""

import tempfile
from pathlib import Path
from typing import Any

import whet

PROMPT = "Answer customers.\n<!-- whet:begin -->\n- Be polite.\n<!-- whet:end -->\nQuestion: {{question}}\n"
COMMENTS = [
    {"id": "r1", "user": "ann", "comment": "Was it paid by the word?"},
    {"id": "r2", "user": "bob", "comment": "was it paid by the word"},
    {"id": "r3", "user": "eva", "comment": "6 in the morning?", "instruction": "Give times as 18:00."},
]


def write(group: dict[str, Any]) -> str:
    """The instruction for a group of comments; an empty text for none."""
    print("a person reads", group["feedback"], group["texts"])
    return "Answer in at most three sentences."


with tempfile.TemporaryDirectory() as folder:
    prompt = Path(folder) / "prompt.md"
    prompt.write_text(PROMPT)
    learned = whet.learn(prompt, COMMENTS, write=write)
    for change in learned.changes:
        print(f"+ {change['after']}  (rests on {', '.join(change['feedback'])})")
    print(learned.prompt.text)
    undone = whet.learn(prompt, undo=True)
    print(undone.status, prompt.read_text() == PROMPT)
