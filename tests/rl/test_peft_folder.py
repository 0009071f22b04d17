"""Adapters of a run for other programs: PEFT itself loads the folder, and the model says what the policy said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="writers need torch: pip install 'whet[train]'")
transformers = pytest.importorskip(
    "transformers", reason="writers need transformers: pip install 'whet[train]'"
)
peft = pytest.importorskip("peft", reason="writers need peft: pip install 'whet[train]'")

from tests.rl.reading import token_scores  # noqa: E402 - after the checks for extras
from tests.rl.tiny_llama import save  # noqa: E402 - after the checks for extras

from whet.api import export_policy  # noqa: E402
from whet.errors import UsageError  # noqa: E402
from whet.rl.policy_model import LoraSettings, PolicyModel, Update  # noqa: E402
from whet.types import Message  # noqa: E402

ASK = [Message("user", "write in capitals the words a b c")]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("base"))


def train(base: Path, checkpoint: Path, rank: int) -> PolicyModel:
    """A policy after an update, exported as whet does."""
    policy = PolicyModel.open(f"hf/{base}", LoraSettings(rank=rank), seed=1)
    samples = policy.sample([ASK], 4, max_tokens=6, seed=3)[0]
    policy.update(samples, [1.0, -1.0, 0.5, -0.5], Update(lr=0.05))
    policy.export(checkpoint, method="prewrite")
    return policy


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing.:FutureWarning")
def test_peft_loads_the_folder_and_the_model_is_the_policy(base: Path, tmp_path: Path) -> None:
    policy = train(base, tmp_path / "run" / "checkpoint", 4)
    written = export_policy(tmp_path / "run" / "checkpoint", tmp_path / "adapter")
    assert written["base"] == str(base) and "q_proj" in written["layers"]  # type: ignore[operator]
    config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert (config["peft_type"], config["r"], config["lora_alpha"]) == ("LORA", 4, 16.0)
    body = transformers.AutoModelForCausalLM.from_pretrained(base)
    model = peft.PeftModel.from_pretrained(body, str(tmp_path / "adapter")).eval()
    (sample,) = policy.sample([ASK], 1, max_tokens=6, seed=5)[0]
    ids = torch.tensor([[*sample.prompt, *sample.tokens]])
    with torch.no_grad():
        scores = torch.log_softmax(model(input_ids=ids).logits[0, :-1].float(), -1)
    read = scores[range(len(ids[0]) - 1), ids[0, 1:]][-len(sample.tokens) :]
    assert torch.allclose(read, token_scores(policy, [sample])[0], atol=1e-4)
    with torch.no_grad(), model.disable_adapter():
        plain = torch.log_softmax(model(input_ids=ids).logits[0, :-1].float(), -1)
    assert not torch.allclose(plain, scores, atol=1e-3), "the adapters do something"


def test_what_is_no_adapter_is_refused(base: Path, tmp_path: Path) -> None:
    train(base, tmp_path / "all", 0)
    with pytest.raises(UsageError, match="rank=0"):
        export_policy(tmp_path / "all", tmp_path / "adapter")
    with pytest.raises(UsageError, match="There is no run"):
        export_policy(tmp_path / "nowhere", tmp_path / "adapter")
    with pytest.raises(UsageError, match="not an empty folder"):
        export_policy(tmp_path / "all", tmp_path / "all")
