"""hf/...: one model as a GGUF file, as a folder and under a hub name, with the faces that methods need."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import whet
from whet.models.huggingface import HuggingFaceModel, load
from whet.prompt import Prompt
from whet.types import Message, Request

pytestmark = pytest.mark.models

CAPITAL = Request((Message("user", "What is the capital of France?"),), 0.0, 12)
ROWS = [
    {"input": text, "target": target}
    for text, target in [
        ("The film was wonderful.", "good"),
        ("A dull and empty story.", "bad"),
        ("I loved every minute.", "good"),
        ("A waste of an evening.", "bad"),
    ]
    * 3
]
DATA = {
    name: [
        {**row, "id": f"{name}{i}", "input": f"{row['input']} {name} {i}"} for i, row in enumerate(ROWS[:n])
    ]
    for name, n in (("train", 4), ("validation", 4), ("test", 8))
}


@pytest.fixture(scope="module")
def small(folder: Path) -> Iterator[HuggingFaceModel]:
    model = load(str(folder), device="cpu")
    yield model
    asyncio.run(model.close())


async def test_a_gguf_file_is_the_same_model_as_its_folder(gguf: Path, small: HuggingFaceModel) -> None:
    packed = load(str(gguf), device="cpu")
    (wanted,), (answer,) = await small.generate(CAPITAL), await packed.generate(CAPITAL)
    assert answer.text == wanted.text and "Paris" in answer.text
    prompt, inputs = Prompt.parse("Is this good or bad? {{input}}"), [{"input": ROWS[0]["input"]}]
    first, second = [(await m.score([prompt], inputs, [["good", "bad"]])).logprobs for m in (small, packed)]
    assert first == pytest.approx(second, abs=1e-3)
    packed.weights.model.float()
    await packed.close()


def test_a_hub_name_leads_to_the_downloaded_model(folder: Path, tmp_path: Path) -> None:
    """A cache as the hub's client leaves it, and no network."""
    place = tmp_path / "hub" / "models--someone--smol"
    (place / "refs").mkdir(parents=True)
    (place / "refs" / "main").write_text("0" * 40)
    (place / "snapshots").mkdir()
    (place / "snapshots" / ("0" * 40)).symlink_to(folder)
    code = (
        "from whet.models.huggingface import load; m = load('someone/smol', device='cpu'); "
        "print(m.weights.kind, m.count_tokens('What is the capital of France?'))"
    )
    environment = os.environ | {
        "HF_HOME": str(tmp_path),
        "HF_HUB_OFFLINE": "1",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["causal", "7"]


def sharpened(folder: Path, out: Path, method: str, **options: Any) -> whet.RunResult:
    return whet.optimize(
        "Is the review good or bad?\n\n{{input}}",
        data=DATA,
        reward="exact_match",
        labels=["good", "bad"],
        lm=f"hf/{folder}",
        method=method,
        settings=options,
        run=out,
    )


def test_rlprompt_writes_with_it(folder: Path, tmp_path: Path) -> None:
    result = sharpened(
        folder, tmp_path / "run", "rlprompt", k=2, length=2, steps=2, vocabulary=50, finalists=1
    )
    assert result.status == "completed"
    assert result.baseline.test.n == 8


def test_ptuning_learns_on_it(folder: Path, tmp_path: Path) -> None:
    result = sharpened(folder, tmp_path / "run", "ptuning", steps=2, tokens=2)
    assert result.status == "completed"


def test_a_policy_with_adapters_learns_on_the_gguf_file(gguf: Path, tmp_path: Path) -> None:
    from whet.rl.policy_model import LoraSettings, PolicyModel, Update

    policy = PolicyModel.open(f"hf/{gguf}", LoraSettings(rank=4), seed=0, device="cpu")
    (group,) = policy.sample([[Message("user", "Name a colour.")]], 2, max_tokens=6, seed=1)
    figures = policy.update(group, [1.0, -1.0], Update(lr=1e-3))
    assert figures["grad_norm"] > 0
    policy.export(tmp_path / "checkpoint")
    again = PolicyModel.open(str(tmp_path / "checkpoint"), device="cpu")
    texts = [
        p.sample([[Message("user", "Name a colour.")]], 1, max_tokens=6, temperature=0.0)[0][0].text
        for p in (policy, again)
    ]
    assert texts[0] == texts[1]
