"""Embeddings of an endpoint: order, batches, refusals over real HTTP; and in a run, where their calls are like all others."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio
from tests.command_line import whet_here
from tests.serving import server_thread

import whet
from whet.errors import ProviderError, UsageError
from whet.models.addresses import resolve
from whet.models.embeddings import NONE, EmbeddingModel, embedder
from whet.run import MemoryRun
from whet.testing.faults import ServerBehaviour
from whet.testing.server import LocalServer, serving
from whet.types import EMBEDDING

KEY = "canary-embedding"


@pytest_asyncio.fixture
async def server() -> AsyncIterator[LocalServer]:
    async with serving("unused".format, settings=ServerBehaviour(api_key=KEY)) as started:
        yield started


def model_at(server: LocalServer, monkeypatch: pytest.MonkeyPatch, **options: Any) -> EmbeddingModel:
    monkeypatch.setenv("OLLAMA_API_KEY", KEY)
    return EmbeddingModel(resolve("ollama/small", base_url=server.base_url, options=options))


async def test_vectors_come_in_the_order_of_the_texts_in_batches_with_the_key_and_headers(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"headers": {"X-Team": "blue"}, "extra_body": {"dimensions": 32}}
    model, embed = model_at(server, monkeypatch, **options), embedder("ollama/small")
    assert embed is not None
    vectors = await embed(MemoryRun({EMBEDDING: model}), ["a" * n for n in range(200)])
    await model.close()
    assert [len(request.body["input"]) for request in server.received] == [128, 72]
    assert all(request.body["dimensions"] == 32 for request in server.received)
    assert {request.headers["x-team"] for request in server.received} == {"blue"}
    assert {request.path for request in server.received} == {"/v1/embeddings"}
    np.testing.assert_array_equal(vectors[:, ord("a") % 32], np.arange(200))
    assert embedder("ollama/small") is not None and (await embed(MemoryRun({}), [])).size == 0


async def test_a_refusal_is_an_error_with_its_status(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving("unused".format, settings=ServerBehaviour(api_key="another")) as server:
        model, embed = model_at(server, monkeypatch), embedder("ollama/small")
        assert embed is not None
        with pytest.raises(ProviderError, match="401"):
            await embed(MemoryRun({EMBEDDING: model}), ["aa"])
        await model.close()


@pytest.mark.parametrize("address", ["openai/", "nope", "hf/somewhere", "embedded/mlm", "litellm/x"])
def test_an_unknown_embedding_is_refused(address: str) -> None:
    assert embedder(NONE) is None
    with pytest.raises(UsageError, match=f'no embedding "{address}".*ollama/NAME'):
        embedder(address)


TASK = """name: greetings
prompt: prompt.md
data: data.jsonl
reward: reward.py
models:
  embedding: {price: {input: 1000000, output: 0}}
"""
REWARD = """
def reward(example, output):
    return {"reward": 0.0, "critique": f"The answer to {example['input']} is not polite."}
"""


def write_task(folder: Path) -> None:
    folder.mkdir()
    (folder / "task.yaml").write_text(TASK)
    (folder / "prompt.md").write_text(
        "Answer.\n<!-- whet:begin -->\n- Be brief.\n<!-- whet:end -->\n{{input}}\n"
    )
    (folder / "reward.py").write_text(REWARD)
    rows = [json.dumps({"input": f"letter {n}", "target": "x"}) for n in range(40)]
    (folder / "data.jsonl").write_text("\n".join(rows))


def test_the_calls_of_an_embedding_are_retried_journalled_counted_and_priced_as_any(tmp_path: Path) -> None:
    write_task(tmp_path / "task")
    ledger = tmp_path / "ledger.jsonl"
    faults = ("--rate-429", "0.03", "--retry-after", "0.01", "--api-key", KEY)
    with server_thread("--text", "ok", "--ledger", str(ledger), *faults) as url:
        words = (
            "optimize", "task", "--method", "prompt_learning", "--set", "embedding=openai/small", "--set", "rollouts=8",
            "--set", "rounds=2", "--lm", "openai/m", "--base-url", url, "--lm-option", "key_variable=OPENAI_OTHER",
            "--lm-option", "price.input=0", "--lm-option", "price.output=0", "--lm-option", "headers.X-Team=blue",
            "--max-cost", "1000", "--max-calls", "150", "--out", "run", "--json",
        )  # fmt: skip
        done = whet_here(tmp_path, *words, OPENAI_OTHER=KEY)
        assert done.returncode == 0, done.stderr
        rows = [json.loads(line) for line in ledger.read_text().splitlines()]
        billed = [row for row in rows if row["status"] == 200]
        refused = sum(row["status"] == 429 for row in rows)
        again = whet_here(tmp_path, *words, OPENAI_OTHER=KEY)
        assert len(ledger.read_text().splitlines()) == len(rows) and json.loads(again.stdout)["recorded"]
    found = json.loads(done.stdout)
    embedded = [row for row in billed if row["model"] == "small"]
    assert embedded and found["models"]["embedding"] == "openai/small"
    assert found["usage"]["calls"]["optimizer"] + found["usage"]["calls"]["task"] == len(billed)
    assert found["usage"]["cost_usd"] == pytest.approx(sum(row["input_tokens"] for row in embedded))
    assert found["usage"]["refused"]["optimizer"] + found["usage"]["refused"]["task"] == refused > 0


def test_a_limit_on_dollars_needs_the_price_of_the_embedding(tmp_path: Path) -> None:
    write_task(tmp_path / "task")
    (tmp_path / "task" / "task.yaml").write_text(TASK.partition("models:")[0])
    price = {"input": 1, "output": 1}
    with pytest.raises(UsageError, match=r"needs the price of openai/small \(role embedding\)"):
        whet.optimize(
            tmp_path / "task",
            method="prompt_learning",
            settings={"embedding": "openai/small"},
            lm={"address": "openai/m", "price": price, "base_url": "http://127.0.0.1:1/v1"},
            budget=whet.Budget(cost_usd=5),
        )
