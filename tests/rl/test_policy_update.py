"""Updates: what they move, in which direction, against gradients worked out by autograd and by hand."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="writers need torch: pip install 'whet[train]'")
pytest.importorskip("transformers", reason="writers need transformers: pip install 'whet[train]'")
pytest.importorskip("peft", reason="writers need peft: pip install 'whet[train]'")

from tests.rl.reading import token_scores  # noqa: E402 - after the checks for extras
from tests.rl.tiny_llama import save  # noqa: E402 - after the checks for extras

from whet.errors import UsageError  # noqa: E402
from whet.rl.policy_model import LoraSettings, PolicyModel, Sample, Update  # noqa: E402
from whet.types import Message  # noqa: E402

ASK = [Message("user", "write in capitals the words a b c")]
SAY = [Message("user", "say it twice")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("base"))


def fresh(folder: Path, rank: int = 4, seed: int = 1) -> PolicyModel:
    return PolicyModel.open(f"hf/{folder}", LoraSettings(rank=rank), seed=seed)


def drawn(writer: PolicyModel, n: int = 4, seed: int = 3) -> list[Sample]:
    return [s for group in writer.sample([ASK, SAY], n, max_tokens=8, seed=seed) for s in group]


def total(writer: PolicyModel, samples: list[Sample]) -> list[float]:
    logprobs, own, _ = token_scores(writer, samples)
    return [float(value) for value in (logprobs * own).sum(1).detach()]


@pytest.mark.parametrize("loss", ["ppo", "importance", "cispo", "reinforce", "gspo"])
@pytest.mark.parametrize("rank", [0, 4])
def test_good_samples_become_likelier_and_bad_ones_less_likely(folder: Path, loss: Any, rank: int) -> None:
    writer = fresh(folder, rank)
    samples = drawn(writer, 1)
    before = total(writer, samples)
    for _ in range(3):
        writer.update(samples, [1.0, -1.0], Update(lr=3e-3, loss=loss, clip_low=0.9, clip_high=9.0))
    after = total(writer, samples)
    assert after[0] > before[0] and after[1] < before[1]


@pytest.mark.parametrize("heat", [0.5, 1.0, 2.0])
def test_samples_of_the_present_weights_have_the_ratio_one_at_the_temperature_they_were_drawn_at(
    folder: Path, heat: float
) -> None:
    writer = fresh(folder)
    samples = [s for g in writer.sample([ASK, SAY], 2, temperature=heat, max_tokens=8, seed=5) for s in g]
    figures = writer.update(samples, [1.0] * 4, Update(lr=0.0, loss="importance"))
    assert figures["loss"] == pytest.approx(-1.0, abs=1e-5)


def test_only_trainable_weights_carry_gradients_and_change(folder: Path) -> None:
    writer = fresh(folder)
    frozen = {n: p.detach().clone() for n, p in writer.body.model.named_parameters() if not p.requires_grad}
    assert frozen and not frozen.keys() & writer.body.trainable.keys()
    learnt = {n: p.detach().clone() for n, p in writer.body.trainable.items()}
    for _ in range(2):
        writer.update(drawn(writer), [1.0, -1.0] * 4, Update(lr=1e-2))
    now = dict(writer.body.model.named_parameters())
    assert all(torch.equal(now[name], weight) for name, weight in frozen.items())
    assert all(now[name].grad is None for name in frozen)
    assert all(not torch.equal(now[name], weight) for name, weight in learnt.items())


def test_the_gradient_is_that_of_the_published_loss(folder: Path) -> None:
    """GRPO's loss written out once more, sample by sample, without padding, against one step of plain descent."""
    writer = fresh(folder)
    writer.update(drawn(writer), [0.5, -0.5] * 4, Update(lr=1e-2))
    samples = drawn(writer, seed=8)
    old = [[p + 0.1 * (-1) ** (i + j) for j, p in enumerate(s.logprobs)] for i, s in enumerate(samples)]
    samples = [dataclasses.replace(s, logprobs=tuple(row)) for s, row in zip(samples, old, strict=True)]
    advantages = [0.3 * i - 1 for i in range(len(samples))]
    loss = torch.zeros(())
    for sample, advantage in zip(samples, advantages, strict=True):
        now, ref = token_scores(writer, [sample])[0][0], token_scores(writer, [sample], reference=True)[0][0]
        ratio = (now - torch.tensor(sample.logprobs)).exp()
        surrogate = torch.minimum(ratio * advantage, ratio.clamp(0.9, 1.05) * advantage)
        divergence = (ref - now).exp() - (ref - now) - 1
        loss = loss + (-surrogate + 0.04 * divergence).sum()
    loss = loss / sum(len(s.tokens) for s in samples)
    weights = list(writer.body.trainable.values())
    expected = torch.autograd.grad(loss, weights)
    norm = torch.stack([g.norm() for g in expected]).norm()
    figures = writer.update(samples, advantages, Update(lr=0.0, clip_low=0.1, clip_high=0.05, kl=0.04))
    assert figures["loss"] == pytest.approx(float(loss.detach()), abs=1e-6)
    assert figures["grad_norm"] == pytest.approx(float(norm), rel=1e-4)
    assert 0 < figures["clip_fraction"] < 1


def test_parts_and_the_whole_have_the_same_gradient(folder: Path) -> None:
    found = []
    for batch_tokens in (10**6, 50):
        writer = PolicyModel(fresh(folder).body, 1, batch_tokens)
        samples = drawn(PolicyModel(writer.body, 0))
        advantages = [float(i) - 3 for i in range(8)]
        settings = Update(lr=1e-2, kl=0.1)
        figures = [writer.update(samples, advantages, settings) for _ in range(2)]
        found.append((figures[-1]["loss"], figures[-1]["grad_norm"], figures[-1]["kl"]))
    assert found[0] == pytest.approx(found[1], rel=1e-3)


def test_an_advantage_may_differ_from_token_to_token(folder: Path) -> None:
    samples = drawn(fresh(folder), 1)
    rows = [[1.0] * len(s.tokens) for s in samples]
    figures = [fresh(folder).update(samples, given, Update()) for given in ([1.0, 1.0], rows)]
    assert figures[0]["grad_norm"] == figures[1]["grad_norm"]
    with pytest.raises(UsageError, match="advantages for a sample of"):
        fresh(folder).update(samples, [[1.0], [1.0]], Update())
    with pytest.raises(UsageError, match="2 samples but 1 advantages"):
        fresh(folder).update(samples, [1.0], Update())


def test_nothing_to_learn_from_changes_nothing(folder: Path) -> None:
    writer = fresh(folder)
    blob = writer.save()
    assert writer.update([], [], Update()) == {}
    assert writer.save() == blob
    figures = writer.update(drawn(writer), [0.0] * 8, Update(lr=1.0))
    assert figures["grad_norm"] == 0.0 and figures["loss"] == 0.0


def test_tokens_of_others_are_masked_from_the_loss(folder: Path) -> None:
    writer = fresh(folder)
    sample = drawn(writer, 1)[0]
    n = len(sample.tokens)
    own = tuple(j < 2 for j in range(n))
    logprobs = (*sample.logprobs[:2], *[0.0] * (n - 2))
    masked = dataclasses.replace(sample, own=own, logprobs=logprobs)
    cut = dataclasses.replace(sample, tokens=sample.tokens[:2], own=own[:2], logprobs=sample.logprobs[:2])
    found = [fresh(folder).update([one], [1.0], Update(kl=0.1)) for one in (masked, cut)]
    assert found[0]["grad_norm"] == pytest.approx(found[1]["grad_norm"], rel=1e-4)
    assert found[0]["tokens"] == found[1]["tokens"] == 2


def test_the_divergence_pulls_back_to_the_reference(folder: Path) -> None:
    writer = fresh(folder)
    samples = drawn(writer)
    for _ in range(5):
        writer.update(samples, [1.0, -1.0] * 4, Update(lr=1e-2, clip_low=9, clip_high=9))
    far = writer.update(samples, [0.0] * 8, Update(lr=1e-2, kl=1.0))["kl"]
    for _ in range(20):
        near = writer.update(samples, [0.0] * 8, Update(lr=1e-2, kl=1.0))["kl"]
    assert 0 <= near < far / 2


def test_an_anchor_is_the_reference_from_then_on(folder: Path) -> None:
    for rank in (0, 4):
        writer = fresh(folder, rank)
        samples = drawn(writer)
        first = token_scores(writer, samples, reference=True)[0]
        writer.imitate([(ASK, "a b c")] * 2, Update(lr=1e-2))
        assert torch.equal(token_scores(writer, samples, reference=True)[0], first)
        writer.set_reference_policy()
        now = token_scores(writer, samples)[0].detach()
        writer.imitate([(ASK, "a b c")] * 2, Update(lr=1e-2))
        assert torch.allclose(token_scores(writer, samples, reference=True)[0], now, atol=1e-5)
        assert not torch.allclose(token_scores(writer, samples)[0], now, atol=1e-3)


def test_imitation_teaches_a_text_with_its_end(folder: Path) -> None:
    writer = fresh(folder, rank=0)
    losses = [
        writer.imitate([(ASK, "a b c"), (SAY, "good good")], Update(lr=1e-2))["loss"] for _ in range(40)
    ]
    assert losses[-1] < 0.1 < losses[0]
    said = writer.sample([ASK, SAY], temperature=0, max_tokens=8)
    assert [group[0].text for group in said] == ["a b c", "good good"]
    assert all(group[0].ended for group in said)


def test_epochs_and_minibatches_take_that_many_steps_over_every_sample(folder: Path) -> None:
    writer = fresh(folder)
    figures = writer.update(drawn(writer), [1.0, -1.0] * 4, Update(lr=1e-3, epochs=2, minibatch=3))
    assert writer.updates == 6  # 3 + 3 + 2 samples, twice
    assert figures["tokens"] == 2 * sum(len(s.tokens) for s in drawn(fresh(folder)))


def test_figures_tell_time_and_memory(folder: Path) -> None:
    writer = fresh(folder)
    samples = drawn(writer)
    figures = writer.update(samples, [1.0, -1.0] * 4, Update())
    assert 0 < figures["seconds"] == pytest.approx(writer.seconds["update"])
    assert figures["memory"] > 0 and writer.seconds["sampling"] > 0
    assert "kl" not in figures  # it was not computed


def test_training_that_diverges_says_so(folder: Path) -> None:
    """A gradient that is no number changes nothing; weights that are none write nothing."""
    writer = fresh(folder, 0)
    samples, before = drawn(writer), writer.save()
    with pytest.raises(
        UsageError, match=r"diverged: the gradient is not finite\. Begin again with a smaller lr"
    ):
        writer.update(samples, [float("nan")] + [1.0] * (len(samples) - 1), Update(lr=1e-3))
    assert writer.save() == before
    with torch.no_grad():
        next(iter(writer.body.trainable.values())).fill_(float("nan"))
    with pytest.raises(UsageError, match="diverged: the probability of a token"):
        drawn(writer)
