"""NLPO's mask: what may be written, the probability of what was written, when the mask is renewed, and what cannot have one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="writers need torch: pip install 'whet[train]'")
pytest.importorskip("transformers", reason="writers need transformers: pip install 'whet[train]'")
pytest.importorskip("peft", reason="writers need peft: pip install 'whet[train]'")

from tests.rl.tiny_llama import save  # noqa: E402 - after the checks for extras

from whet.errors import UsageError  # noqa: E402
from whet.rl.policy_model import LoraSettings, PolicyModel, Sample, Update  # noqa: E402
from whet.rl.policy_model.learning import score_tokens  # noqa: E402
from whet.rl.training import MultiTurnTraining, Trainer, Training  # noqa: E402
from whet.run import MemoryRun  # noqa: E402
from whet.types import Message  # noqa: E402

ASK = [Message("user", "write in capitals the words a b c")]
SHARE = 0.5


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("base"), sharpness=1.0)


def open_policy(folder: Path) -> PolicyModel:
    """A policy that has moved since its mask was made."""
    policy = PolicyModel.open(f"hf/{folder}", LoraSettings(rank=2), seed=1)
    policy.renew_mask()
    policy.imitate([(ASK, "a b c d")], Update(lr=0.05, epochs=3))
    return policy


def whole_rows(policy: PolicyModel, sample: Sample, weights: Mapping[str, Any]) -> Any:
    """Log-probabilities (T, V) before each token of a sample, under these trainable weights, by a plain forward pass."""
    ids = torch.tensor([[*sample.prompt, *sample.tokens]])
    kept = {name: weight.detach().clone() for name, weight in policy.body.trainable.items()}
    with torch.no_grad():
        for name, weight in policy.body.trainable.items():
            weight.copy_(weights[name])
        logits = policy.body.model(input_ids=ids).logits[0, len(sample.prompt) - 1 : -1]
        for name, weight in policy.body.trainable.items():
            weight.copy_(kept[name])
    return logits.float().log_softmax(-1)


def nucleus_of(row: Any, share: float) -> set[int]:
    """The fewest tokens that make up a share of a row of log-probabilities."""
    chosen, total = set[int](), 0.0
    for token in row.argsort(descending=True).tolist():
        if total >= share:
            break
        chosen.add(token)
        total += math.exp(float(row[token]))
    return chosen


def test_only_tokens_of_the_mask_are_written_and_their_probabilities_are_those_among_them(
    folder: Path,
) -> None:
    policy = open_policy(folder)
    assert policy.body.mask is not None
    (group,) = policy.sample([ASK], 6, max_tokens=5, seed=3, mask=SHARE)
    outside_once = False
    for sample in group:
        now = whole_rows(policy, sample, policy.body.trainable)
        masking = whole_rows(policy, sample, policy.body.mask)
        for place, token in enumerate(sample.tokens):
            allowed = nucleus_of(masking[place], SHARE)
            assert token in allowed
            outside_once |= len(allowed) < policy.body.vocabulary
            among = math.log(sum(math.exp(float(now[place][other])) for other in allowed))
            assert sample.logprobs[place] == pytest.approx(float(now[place][token]) - among, abs=1e-4)
    assert outside_once
    with torch.no_grad():
        scored = score_tokens(policy.body, group, mask=SHARE)
    for i, sample in enumerate(group):
        assert scored.logprobs[i, : len(sample.tokens)].tolist() == pytest.approx(sample.logprobs, abs=1e-4)
        assert torch.isfinite(scored.entropy).all()


def test_an_update_on_samples_of_the_mask_has_the_ratio_one_before_its_first_step(folder: Path) -> None:
    policy = open_policy(folder)
    (group,) = policy.sample([ASK], 4, max_tokens=5, seed=3, mask=SHARE)
    settings = Update(lr=0.0, loss="importance", mask=SHARE)
    figures = policy.update(group, [1.0] * 4, settings)
    assert figures["loss"] == pytest.approx(-1.0, abs=1e-4)
    plain = policy.update(group, [1.0] * 4, Update(lr=0.0, loss="importance"))
    assert plain["loss"] > -1.0, "without the mask the ratio is that of another policy"


def test_the_first_mask_is_the_policy_and_it_is_renewed_after_so_many_steps(folder: Path) -> None:
    policy = PolicyModel.open(f"hf/{folder}", LoraSettings(rank=2), seed=1)
    trainer = Trainer(policy, Training(nlpo=SHARE, mask_steps=2, lr=0.05, max_tokens=4, group=3))

    def is_present() -> bool:
        assert policy.body.mask is not None
        return all(torch.equal(policy.body.mask[n], w) for n, w in policy.body.trainable.items())

    assert is_present()
    (group,) = policy.sample([ASK], 3, max_tokens=4, seed=5, mask=SHARE)
    seen = []
    for _ in range(4):
        trainer.learn([group], [[1.0, 0.0, 0.5]])
        seen.append(is_present())
    assert seen == [False, True, False, True]


def test_a_resumed_training_has_the_mask_that_it_had(folder: Path) -> None:
    policy = open_policy(folder)
    (first,) = policy.sample([ASK], 4, max_tokens=5, seed=9, mask=SHARE)
    other = PolicyModel.open(f"hf/{folder}", LoraSettings(rank=2), seed=1)
    other.load(policy.save())
    (again,) = other.sample([ASK], 4, max_tokens=5, seed=9, mask=SHARE)
    assert [s.tokens for s in again] == [s.tokens for s in first]
    fresh = PolicyModel.open(f"hf/{folder}", LoraSettings(rank=2), seed=1)
    policy.load(fresh.save())
    assert policy.body.mask is None


async def test_a_trainer_samples_with_the_mask_and_greedy_texts_without_it(folder: Path) -> None:
    policy = PolicyModel.open(f"hf/{folder}", LoraSettings(rank=2), seed=1)
    trainer = Trainer(policy, Training(nlpo=1e-9, max_tokens=4, group=3))
    run = MemoryRun()
    (group,) = await trainer.draw_groups(run, [ASK])
    ((greedy,),) = await trainer.sample(run, [ASK], n=1, greedy=True)
    assert {s.tokens for s in group} == {greedy.tokens}, "one token is left at each place: the likeliest"
    assert all(logprob == pytest.approx(0.0, abs=1e-6) for s in group for logprob in s.logprobs)
    assert min(greedy.logprobs) < -0.01


def test_what_cannot_mask_is_refused(folder: Path) -> None:
    with pytest.raises(UsageError, match=r"nlpo=0\.9 masks tokens"):
        MultiTurnTraining(nlpo=0.9)
    with pytest.raises(UsageError, match="loss=rebel"):
        Training(nlpo=0.9, loss="rebel")
    policy = PolicyModel.open(f"hf/{folder}", LoraSettings(rank=2), seed=1)
    policy._vllm = object()  # type: ignore[assignment]
    with pytest.raises(UsageError, match="in this process alone"):
        policy.renew_mask()
