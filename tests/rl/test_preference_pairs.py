"""DPO of a writer with weights: the loss of the pairs falls, the reference stays, and a saved policy keeps both."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="writers need torch: pip install 'whet[train]'")
pytest.importorskip("transformers", reason="writers need transformers: pip install 'whet[train]'")
pytest.importorskip("peft", reason="writers need peft: pip install 'whet[train]'")

from tests.rl.tiny_llama import save  # noqa: E402 - after the checks for extras

from whet.rl import losses  # noqa: E402
from whet.rl.policy_model import LoraSettings, PolicyModel  # noqa: E402
from whet.rl.preference_pairs import Pair, prefer  # noqa: E402
from whet.types import Message  # noqa: E402

ASK = [Message("user", "write in capitals the words a b c")]


def loss_of(policy: PolicyModel, pairs: list[Pair]) -> float:
    """The mean DPO loss of pairs, beta 0.1."""
    rows = [
        [torch.tensor([sum(row)]) for row in (*logprobs([*pair]),)]
        for pair in pairs
        for logprobs in (policy.logprobs, policy.reference_logprobs)
    ]
    values = [losses.dpo(*rows[i], *rows[i + 1], 0.1) for i in range(0, len(rows), 2)]
    return float(torch.stack(values).mean())


def test_the_loss_of_pairs_falls_and_the_reference_stays(tmp_path: Path) -> None:
    base = save(tmp_path, sharpness=1.0)
    policy = PolicyModel.open(f"hf/{base}", LoraSettings(rank=2), seed=1)
    (group,) = policy.sample([ASK], 4, max_tokens=6, seed=3)
    pairs = [(group[0], group[1]), (group[0], group[2])]
    before, reference = loss_of(policy, pairs), policy.reference_logprobs(group)
    assert before == pytest.approx(0.6931, abs=1e-3)
    prefer(policy, pairs, beta=0.1, lr=0.02, epochs=6, length=6)
    after = loss_of(policy, pairs)
    assert after < before - 0.05 and policy.reference_logprobs(group) == reference
    policy.set_reference_policy()
    assert loss_of(policy, pairs) == pytest.approx(before, abs=1e-3), (
        "the gain is that over the new reference"
    )
    again = PolicyModel.open(f"hf/{base}", LoraSettings(rank=2), seed=1)
    again.load(policy.save())
    assert loss_of(again, pairs) == pytest.approx(before, abs=1e-3)
