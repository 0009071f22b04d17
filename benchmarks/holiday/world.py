"""The simulated desk: its handbook, the models behind it, and visitors of a page that has the snippet.

Each topic of the handbook says what an answer about it must be. The answering model follows the instructions that it finds.
Without one, the first system behind the model's name knows a topic by itself; the second one does not. The reader of
comments is that of `benchmarks.lifecycle`: one in four times it does not see that an instruction says already what a comment
wants, and some of its wordings are long.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.lifecycle import COMPLAINTS, TOPICS, UNKNOWN, VALUES, follow, read_feedback

from whet.types import Request

__all__ = ["read_feedback"]

NAME = "desk/answers"
PROMPT = "You are a desk.\n<!-- whet:begin -->\n- Be polite.\n<!-- whet:end -->\n{{question}}\n"
MODEL, SYSTEMS = "desk-model", ("fp_first", "fp_second")
"""The name of the model, which stays, and the fingerprints of the systems behind it."""
VARIABLE = "WHET_HOLIDAY_SYSTEM"
"""The environment variable that names the file with the number of the system that answers now."""
TOPICS_USED, KNOWN, CHANGES = 5, 1, 2
THUMBS, TRUTHFUL, COMPLAIN, COPIES = 0.8, 0.95, 0.5, 0.4
"""How many visitors press a thumb, how often it says the truth, how many of those with a wrong answer write a comment, and how
many copy a right one."""
ROWS = {"train": 16, "validation": 100, "test": 16}


def system_now() -> int:
    """The number of the system that answers now."""
    return int(Path(os.environ[VARIABLE]).read_text("utf-8"))


def answer_with(prompt: str, question: str, system: int, known: Mapping[str, str]) -> str:
    """What the simulated model says under a prompt: what an instruction says, else what the system knows by itself."""
    found = follow(prompt, question)
    topic = next((topic for topic in TOPICS if topic in question), "")
    return known.get(topic, UNKNOWN) if found == UNKNOWN and system == 0 else found


def answer_request(request: Request) -> str:
    """The model as a server, for the gate; what it knows by itself stands beside the number of its system."""
    known = json.loads(Path(os.environ[VARIABLE]).with_suffix(".known").read_text("utf-8"))
    text = request.messages[-1].content
    return answer_with(text, text.strip().splitlines()[-1], system_now(), known)


@dataclass(frozen=True, slots=True)
class Visit:
    """What one visitor did with the answer that the page showed: rows as the snippet sends them, and what is true of it."""

    topic: str
    right: bool
    rows: tuple[Mapping[str, object], ...]


@dataclass
class DeskWorld:
    """The handbook, and who visits."""

    seed: int = 0
    handbook: dict[str, str] = field(default_factory=dict)
    visitors: int = 0

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.handbook = {topic: self.rng.choice(VALUES) for topic in self.rng.sample(TOPICS, TOPICS_USED)}
        self.known = {topic: self.handbook[topic] for topic in self.rng.sample(sorted(self.handbook), KNOWN)}

    def change_policies(self) -> list[str]:
        """Two policies that no model knew by itself become others; their topics."""
        changed = self.rng.sample(sorted(set(self.handbook) - set(self.known)), CHANGES)
        for topic in changed:
            self.handbook[topic] = self.rng.choice([v for v in VALUES if v != self.handbook[topic]])
        return changed

    def ask(self) -> tuple[str, str, str]:
        """A new visitor, a question, and its topic."""
        self.visitors += 1
        topic = self.rng.choice(sorted(self.handbook))
        return f"visitor-{self.visitors}", f"question {self.visitors} about the {topic}", topic

    def visit(self, key: str, topic: str, answer: str) -> Visit:
        """What the visitor does with the answer `key`."""
        rng, right = self.rng, answer == self.handbook[topic]
        rows: list[tuple[str, float | None, str | None]] = [("dwell", round(rng.uniform(2, 40), 1), None)]
        if rng.random() < THUMBS:
            rows.append(("thumb", float(right == (rng.random() < TRUTHFUL)), None))
        if right and rng.random() < COPIES:
            rows.append(("copy", round(rng.uniform(0.3, 1), 2), None))
        if not right and rng.random() < COMPLAIN:
            text = rng.choice(COMPLAINTS).format(topic=topic, value=self.handbook[topic])
            rows.append(("comment", None, text))
        sent = tuple(
            {"id": f"{rng.getrandbits(128):032x}", "target": key, "kind": kind, "value": value, "text": text}
            for kind, value, text in rows
        )
        return Visit(topic, right, sent)

    def write_task(self, folder: Path) -> None:
        """The task of the gate, as the people of the handbook keep it: each topic by turns."""
        folder.mkdir(exist_ok=True)
        topics = sorted(self.handbook)
        rows = [
            {"input": {"question": f"{split} {n} about the {topic}"}, "target": self.handbook[topic], "split": split}
            for split, count in ROWS.items()
            for n in range(count)
            for topic in [topics[n % len(topics)]]
        ]  # fmt: skip
        (folder / "data.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
        (folder / "prompt.md").write_text(PROMPT, "utf-8")
        text = "name: desk\nprompt: prompt.md\ndata: data.jsonl\nreward: exact_match\n"
        (folder / "task.yaml").write_text(text, "utf-8")
