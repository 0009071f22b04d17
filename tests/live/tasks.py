"""Small task folders whose models are simulated: sorting reviews, with instructions that are known to help."""

from __future__ import annotations

import json
from pathlib import Path

from whet.testing.simulated_task import SOURCE, reviews

LM = "scripted/labels?words=carefully,evidence,tone,single&harmful=guess,quick&harm=0.1"
PROMPT = "Sort reviews.\n<!-- whet:begin -->\n- Say what the review is like.\n<!-- whet:end -->\nReview: {{input}}\nAnswer:"
GOOD = (
    "Read the review carefully.",
    "Weigh the evidence in it.",
    "Mind its tone.",
    "Answer with a single word.",
)
"""Four instructions, each of which makes the simulated model better."""
BAD = "Be quick, and guess."
"""An instruction that makes the simulated model worse."""


def write_reviews(folder: Path, rows: int = 400, prompt: str = SOURCE) -> Path:
    """A task folder named `reviews` in `folder`; returns its path."""
    task = folder / "reviews"
    task.mkdir(parents=True)
    examples = [json.dumps({"id": e.id, "input": e.text, "target": e.target}) for e in reviews(rows)]
    (task / "data.jsonl").write_text("\n".join(examples) + "\n")
    (task / "prompt.md").write_text(prompt)
    (task / "task.yaml").write_text(
        "name: reviews\nprompt: prompt.md\ndata: data.jsonl\nreward: exact_match\nlabels: [positive, negative]\n"
    )
    return task
