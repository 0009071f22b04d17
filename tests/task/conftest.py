"""A maker of small task folders."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

YAML = "name: t\nprompt: prompt.md\ndata: data.jsonl\nreward: exact_match\n"
ROWS = [{"input": f"question {i}", "target": str(i)} for i in range(10)]


def jsonl(rows: list[Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Path]:
    """`make({file: text or bytes}, yaml=..., rows=...)` writes a valid task folder with the given changes."""

    def write(files: Mapping[str, str | bytes] | None = None, yaml: str = "", rows: Any = None) -> Path:
        folder = tmp_path / "mytask"
        folder.mkdir(exist_ok=True)
        content: dict[str, str | bytes] = {
            "task.yaml": YAML + yaml,
            "prompt.md": "Answer: {{input}}\n",
            "data.jsonl": jsonl(ROWS if rows is None else rows),
            **(files or {}),
        }
        for name, text in content.items():
            data = text if isinstance(text, bytes) else text.encode()
            (folder / name).write_bytes(data)
        return folder

    return write
