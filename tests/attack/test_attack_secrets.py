"""A key is nowhere but in the header: not in a run's folder, its report, the logs or an error, whatever goes wrong on the way."""

from __future__ import annotations

import base64
import json
import logging
import traceback
from pathlib import Path
from urllib.parse import quote

import pytest

from whet.api import aoptimize
from whet.errors import ProviderError
from whet.run import Budget
from whet.testing.faults import Faults, ServerBehaviour
from whet.testing.server import serving
from whet.types import Request

KEY = "sk-canary+4711/Zebra=quagga_0815"


def forms(key: str) -> list[bytes]:
    """The key as it stands, as a URL and as base64 hold it, the latter at every offset that a text before it can give."""
    shifted = [base64.b64encode(b" " * offset + key.encode())[4:-4] for offset in range(3)]
    return [key.encode(), quote(key, safe="").encode(), json.dumps(key)[1:-1].encode(), *shifted]


def found_in(texts: dict[str, bytes]) -> list[str]:
    """Where any form of the key stands."""
    return [name for name, text in texts.items() if any(form in text for form in forms(KEY))]


def files(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def task_in(folder: Path) -> Path:
    """A task whose answers and marks come from the same endpoint."""
    task = folder / "task"
    task.mkdir()
    (task / "prompt.md").write_text("<!-- whet:begin -->\nAnswer.\n<!-- whet:end -->\n{{input}}\n")
    (task / "data.jsonl").write_text("\n".join(json.dumps({"input": f"question {n}"}) for n in range(20)))
    (task / "task.yaml").write_text(
        "name: t\nprompt: prompt.md\ndata: data.jsonl\nmodels: {task: openai/m}\nreward: {judge: {rubric: Be kind.}}\n"
    )
    return task


def answer(request: Request) -> str:
    asked = "You judge answers" in request.messages[0].content
    return '{"explanation": "It must be kinder.", "score": 3}' if asked else "An answer."


def test_positive_control_every_form_is_found() -> None:
    held = {
        "plain": f"Authorization: Bearer {KEY}".encode(),
        "url": f"?key={quote(KEY, safe='')}&x=1".encode(),
        "basic": base64.b64encode(f"user:{KEY}\n".encode()),
        "nothing": b"sk-canary",
    }
    assert found_in(held) == ["plain", "url", "basic"]


@pytest.mark.parametrize(
    ("faults", "settings", "ends"),
    [
        (
            Faults(0.02, 0.05, malformed=0.02, truncated=0.02, drop=0.02),
            ServerBehaviour(retry_after=0.0),
            True,
        ),
        (Faults(empty=0.2, refusal=0.2), ServerBehaviour(), True),
        (Faults(), ServerBehaviour(api_key="another"), False),
    ],
    ids=["a bad line", "a bad model", "a wrong key, repeated in the answer"],
)
@pytest.mark.usefixtures("quick_retries")
async def test_no_artefact_holds_the_key(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    faults: Faults,
    settings: ServerBehaviour,
    ends: bool,
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    texts: dict[str, bytes] = {}
    async with serving(answer, faults=faults, settings=settings) as server:
        options = {
            "method": "random_search",
            "base_url": server.base_url,
            "budget": Budget(calls=220),
            "run": tmp_path / "run",
        }
        try:
            texts["result"] = json.dumps(dict(await aoptimize(task_in(tmp_path), **options))).encode()
        except ProviderError as error:
            texts["error"] = "".join(traceback.format_exception(error)).encode()
        assert len(server.ledger.entries) > 0
    assert ("result" in texts) is ends
    said = capfd.readouterr()
    texts |= {"stdout": said.out.encode(), "stderr": said.err.encode(), "logs": caplog.text.encode()}
    texts |= files(tmp_path)
    assert any("journal" in name for name in texts) and "run/result.json" in texts
    assert found_in(texts) == []
