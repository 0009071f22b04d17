"""What a training takes, by a formula worked by hand on a Llama of two layers of width 32."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="writers need torch: pip install 'whet[train]'")
transformers = pytest.importorskip(
    "transformers", reason="writers need transformers: pip install 'whet[train]'"
)
pytest.importorskip("peft", reason="writers need peft: pip install 'whet[train]'")

from tests.rl.tiny_llama import save  # noqa: E402 - after the checks for extras

from whet.engine.progress import memory_forecast  # noqa: E402
from whet.errors import UsageError  # noqa: E402
from whet.rl.policy_model import LoraSettings, PolicyModel  # noqa: E402
from whet.rl.policy_model.backbone import foresee_memory  # noqa: E402


@pytest.mark.parametrize("rank", [4, 0])
def test_memory_is_that_of_weights_learning_and_the_largest_pass(tmp_path: Path, rank: int) -> None:
    body = transformers.AutoModelForCausalLM.from_pretrained(save(tmp_path / "base"))
    whole = sum(weight.numel() for weight in body.parameters())
    linear = [m for n, m in body.named_modules() if hasattr(m, "in_features") and n != "lm_head"]
    adapters = sum(rank * (layer.in_features + layer.out_features) for layer in linear)
    policy = PolicyModel.open(f"hf/{tmp_path / 'base'}", LoraSettings(rank=rank))
    memory = policy.memory
    assert memory.weights == 4 * (whole + adapters)
    assert memory.learning == (12 * adapters if rank else 16 * whole), "with rank 0 a copy is the reference"
    tokens, rest = divmod(memory.passes, 17 * 2 * 32 * 4 + 4 * body.config.vocab_size)
    assert (tokens, rest) == (32768, 0), "as many tokens as fit, at most 32,768"
    assert memory.total == memory.weights + memory.learning + memory.passes
    said = memory_forecast(memory, 2)
    assert f"at most {memory.total / 2**30:.2g} GiB in each of 2 processes" in said


@pytest.mark.parametrize("rank", [4, 0])
def test_memory_is_foreseen_without_the_weights(tmp_path: Path, rank: int) -> None:
    """The folder without its weights gives the forecast of the policy that was opened with them."""
    base, settings = save(tmp_path / "base"), LoraSettings(rank=rank)
    opened = [PolicyModel.open(address, settings).memory for address in (f"hf/{base}", "embedded/tiny")]
    (base / "model.safetensors").unlink()
    assert [foresee_memory(address, settings) for address in (f"hf/{base}", "embedded/tiny")] == opened
    checkpoint = foresee_memory(f"hf/{base}", settings, anchored=True)
    assert checkpoint.learning * (3 if rank else 4) == opened[0].learning * 4
    with pytest.raises(UsageError, match="cannot be read on this machine"):
        foresee_memory(f"hf/{tmp_path / 'nothing'}", settings)


def test_the_memory_of_vllm_counts_where_it_writes_the_texts_on_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """0.3 of a GPU of 80 GiB; nothing of it on a CPU, where vLLM reserves none of a GPU."""
    import torch

    base, settings = save(tmp_path / "base"), LoraSettings(rank=4)
    assert foresee_memory(f"hf/{base}", settings, sampler="vllm").sampler == 0
    card = type("Card", (), {"total_memory": 80 * 2**30})()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: card)
    with_vllm, without = (foresee_memory(f"hf/{base}", settings, sampler=s) for s in ("vllm", "transformers"))
    assert with_vllm.sampler == 24 * 2**30 and with_vllm.total == without.total + with_vllm.sampler
    assert "24 for vLLM" in memory_forecast(with_vllm, 1) and "vLLM" not in memory_forecast(without, 1)


def test_a_device_of_apple_is_foreseen_with_the_precision_of_its_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `device_for` chooses: float32 there, like on a CPU."""
    import torch

    base = save(tmp_path / "base")
    here = foresee_memory(f"hf/{base}", LoraSettings(rank=4))
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert foresee_memory(f"hf/{base}", LoraSettings(rank=4)) == here
