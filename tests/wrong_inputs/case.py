"""What a wrong input is: files, a command, and what the message must say."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

PLAIN = "optimize task --lm openai/counting --max-calls 60"
RUN = f"{PLAIN} --method random_search --set n=2"
LEARN = "learn task/prompt.md feedback.jsonl --yes"
TASK = "name: t\nprompt: prompt.md\ndata: data.jsonl\n"
EXACT = "reward: exact_match\n"


@dataclass(frozen=True)
class Case:
    """`says` must stand in the message. `files` are beside or instead of those of a task that works, None removes one;
    `yaml` is appended to its task.yaml. `code` 0 means: warned of before the first call, which then comes;
    so does `warned` with another code."""

    says: tuple[str, ...]
    command: str = RUN
    yaml: str = ""
    files: Mapping[str, str | bytes | None] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    code: int = 2
    warned: bool = False


def rows(*changed: Any, count: int = 12) -> str:
    """The lines of a data file: `count` good rows, then others."""
    good = [{"id": f"r{n}", "input": f"q{n}", "target": "4" if n % 2 else "5"} for n in range(count)]
    return "".join(f"{one if isinstance(one, str) else json.dumps(one)}\n" for one in (*good, *changed))


def option(text: str, *says: str, **more: Any) -> Case:
    """A command that works, with an option that does not."""
    return Case(says, f"{PLAIN if '--method' in text else RUN} {text}", **more)


def task(yaml: str, *says: str, **more: Any) -> Case:
    """Lines of task.yaml that cannot be used."""
    return Case(says, yaml=yaml, **more)


def data(text: str | bytes, *says: str, name: str = "data.jsonl", **more: Any) -> Case:
    """A data file that cannot be used."""
    yaml = f"name: t\nprompt: prompt.md\ndata: {name}\n{EXACT}"
    return Case(says, files={"task/data.jsonl": None, "task/task.yaml": yaml, f"task/{name}": text}, **more)


def row(value: Any, *says: str, **more: Any) -> Case:
    """One row, the thirteenth, that cannot be used."""
    return data(rows(value), *says, **more)


def prompt(text: str | bytes, *says: str, **more: Any) -> Case:
    """A prompt file that cannot be used."""
    return Case(says, files={"task/prompt.md": text}, **more)


def reward(source: str, *says: str, yaml: str = "reward: reward.py\n", **more: Any) -> Case:
    """A reward.py that cannot be used."""
    return Case(says, files={"task/reward.py": source, "task/task.yaml": TASK + yaml}, **more)


def feedback(text: str | bytes, *says: str, name: str = "feedback.jsonl") -> Case:
    """A file of feedback that cannot be used."""
    return Case(says, f"learn task/prompt.md {name} --yes", files={name: text})


FILES: Mapping[str, str] = {
    "task/task.yaml": TASK + EXACT,
    "task/prompt.md": "Answer.\n\n{{input}}\n",
    "task/data.jsonl": rows(),
    "feedback.jsonl": json.dumps({"id": "f1", "input": "q", "output": "a", "comment": "Be short."}) + "\n",
}
