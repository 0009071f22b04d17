"""Saving, resuming and exporting a writer: bit for bit, refused where it does not fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="writers need torch: pip install 'whet[train]'")
pytest.importorskip("transformers", reason="writers need transformers: pip install 'whet[train]'")
pytest.importorskip("peft", reason="writers need peft: pip install 'whet[train]'")

from tests.rl.reading import token_scores  # noqa: E402 - after the checks for extras
from tests.rl.tiny_llama import save  # noqa: E402 - after the checks for extras

from whet.errors import UsageError  # noqa: E402
from whet.rl.blob import pack  # noqa: E402
from whet.rl.policy_model import LoraSettings, PolicyModel, Update  # noqa: E402
from whet.run import MemoryRun, Run  # noqa: E402
from whet.types import Message  # noqa: E402

ASK = [Message("user", "write in capitals the words a b c")]
SETTINGS = Update(lr=1e-2, kl=0.05, epochs=2, minibatch=3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("base"))


def fresh(folder: Path, rank: int = 4, seed: int = 1) -> PolicyModel:
    return PolicyModel.open(f"hf/{folder}", LoraSettings(rank=rank), seed=seed)


def step(writer: PolicyModel, number: int) -> None:
    samples = writer.sample([ASK], 4, max_tokens=6, seed=number)[0]
    writer.update(samples, [1.0, -1.0, 0.5, -0.5], SETTINGS)
    writer.notes["seen"] = [*writer.notes.get("seen", []), samples[0].text]


@pytest.mark.parametrize(
    ("rank", "anchored"),
    [(4, True), *(pytest.param(*one, marks=pytest.mark.long) for one in ((0, True), (0, False), (4, False)))],
)
def test_a_resumed_training_is_the_uninterrupted_one_bit_for_bit(
    folder: Path, rank: int, anchored: bool
) -> None:
    straight = fresh(folder, rank)
    stopped = fresh(folder, rank)
    for writer in (straight, stopped):
        step(writer, 100)
        if anchored:
            writer.set_reference_policy()
        for number in range(3):
            step(writer, number)
    resumed = fresh(folder, rank, seed=77)
    step(resumed, 5)  # what a process did before it loads is forgotten
    resumed.load(stopped.save())
    for writer in (straight, resumed):
        for number in range(3, 6):
            step(writer, number)
    assert resumed.save() == straight.save()
    assert resumed.updates == straight.updates == 7 * 4


def test_saving_changes_nothing_and_equal_writers_save_equal_bytes(folder: Path) -> None:
    one, other = fresh(folder), fresh(folder)
    for writer in (one, other):
        step(writer, 0)
    assert one.save() == one.save() == other.save()


async def test_a_writer_is_trainable_by_a_run(folder: Path) -> None:
    writer = fresh(folder)

    async def body(run: Run, number: int) -> None:
        step(writer, number)

    run = MemoryRun()
    await run.train(2, body, writer)
    writer.notes["scores"] = {"b": 1.0, "a": 1.0}
    blob = run.kept[await run.keep(writer)]
    other = fresh(folder)
    other.load(blob)
    assert other.notes == writer.notes and len(other.notes["seen"]) == 2
    assert [*other.notes["scores"]] == ["b", "a"], (
        "in the order in which they were remembered: it breaks ties"
    )


def test_a_blob_of_another_base_is_refused_by_both_hashes_and_changes_nothing(
    folder: Path, tmp_path: Path
) -> None:
    other = PolicyModel.open(f"hf/{save(tmp_path, seed=8)}", LoraSettings(rank=4))
    writer = fresh(folder)
    before = writer.save()
    with pytest.raises(UsageError) as refused:
        writer.load(other.save())
    assert other.body.fingerprint in str(refused.value) and writer.body.fingerprint in str(refused.value)
    assert writer.save() == before


def test_a_blob_of_another_rank_or_of_something_else_is_refused(folder: Path) -> None:
    writer = fresh(folder)
    before = writer.save()
    with pytest.raises(UsageError, match="does not fit this policy"):
        writer.load(fresh(folder, rank=2).save())
    with pytest.raises(UsageError, match="does not fit this policy"):
        writer.load(fresh(folder, rank=0).save())
    for wrong in (b"", b"no tensors", pack({"x": {"y": torch.zeros(1)}}, {})[:40]):
        with pytest.raises(UsageError, match="not a checkpoint of a policy"):
            writer.load(wrong)
    assert writer.save() == before


@pytest.mark.parametrize("rank", [0, 4])
def test_an_exported_folder_opens_as_the_same_policy(folder: Path, tmp_path: Path, rank: int) -> None:
    writer = fresh(folder, rank)
    step(writer, 0)
    digest = writer.export(tmp_path / "out", method="prewrite")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "adapter.safetensors",
        "policy.json",
    ]
    card = json.loads((tmp_path / "out" / "policy.json").read_text())
    assert card["sha256"] == digest and card["method"] == "prewrite"
    assert (card["address"], card["base"]) == (f"hf/{folder}", writer.body.fingerprint)
    opened = PolicyModel.open(str(tmp_path / "out"))
    assert opened.settings == writer.settings and opened.address == writer.address
    samples = writer.sample([ASK], 3, max_tokens=6, seed=2)
    assert opened.sample([ASK], 3, max_tokens=6, seed=2) == samples
    now = token_scores(opened, samples[0])[0].detach()
    assert torch.allclose(token_scores(opened, samples[0], reference=True)[0], now, atol=1e-5), (
        "its own reference"
    )
    step(opened, 1)
    assert not torch.equal(token_scores(opened, samples[0])[0].detach(), now)
    assert torch.allclose(token_scores(opened, samples[0], reference=True)[0], now, atol=1e-5), "which stays"
    again = PolicyModel.open(str(tmp_path / "out"))
    again.load(opened.save())
    assert torch.allclose(token_scores(again, samples[0], reference=True)[0], now, atol=1e-5), (
        "after a resume too"
    )
    assert again.export(tmp_path / "again") == opened.export(tmp_path / "other") != digest


def test_a_folder_is_refused_by_another_base_other_settings_and_when_damaged(
    folder: Path, tmp_path: Path
) -> None:
    base = save(tmp_path / "base")
    writer = PolicyModel.open(f"hf/{base}", LoraSettings(rank=4))
    out = tmp_path / "out"
    writer.export(out)
    with pytest.raises(UsageError, match="rank=2"):
        PolicyModel.open(str(out), LoraSettings(rank=2))
    assert PolicyModel.open(str(out), writer.settings).settings == writer.settings
    save(base, seed=9)
    with pytest.raises(UsageError) as refused:
        PolicyModel.open(str(out))
    assert writer.body.fingerprint in str(refused.value)
    assert PolicyModel.open(f"hf/{base}").body.fingerprint in str(refused.value)
    weights = out / "adapter.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x07")
    with pytest.raises(UsageError, match="not the one that was exported"):
        PolicyModel.open(str(out))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"format": "whet-policy/99"}, "not of the format"),
        ({"lora": {"rank": 4}}, "does not say which weights"),
    ],
)
def test_a_card_that_says_something_else_is_refused(
    folder: Path, tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    fresh(folder).export(tmp_path)
    card = tmp_path / "policy.json"
    card.write_text(json.dumps(json.loads(card.read_text()) | change))
    with pytest.raises(UsageError, match=said):
        PolicyModel.open(str(tmp_path))


def test_a_folder_without_weights_is_refused(folder: Path, tmp_path: Path) -> None:
    fresh(folder).export(tmp_path)
    (tmp_path / "adapter.safetensors").unlink()
    with pytest.raises(UsageError, match="not the checkpoint of a policy"):
        PolicyModel.open(str(tmp_path))
