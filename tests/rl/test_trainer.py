"""The helper that applies the mechanics: every setting does what its paper says, and learning follows rewards."""

from __future__ import annotations

import dataclasses
import json
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="writers need torch: pip install 'whet[train]'")
pytest.importorskip("transformers", reason="writers need transformers: pip install 'whet[train]'")
pytest.importorskip("peft", reason="writers need peft: pip install 'whet[train]'")

from tests.rl.tiny_llama import save  # noqa: E402 - after the checks for extras

from whet.errors import UsageError  # noqa: E402
from whet.methods import Method, MethodEntry, configure  # noqa: E402
from whet.rl import advantages  # noqa: E402
from whet.rl.policy_model import LoraSettings, PolicyModel, Sample  # noqa: E402
from whet.rl.training import (  # noqa: E402
    Advantage,
    Trainer,
    Training,
    batch_token_advantages,
    group_advantages,
    token_advantages,
)
from whet.run import MemoryRun  # noqa: E402
from whet.types import Message  # noqa: E402

ASK = [Message("user", "write in capitals the words a b c")]
SAY = [Message("user", "say it twice")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("base"), sharpness=1.0)


@pytest.fixture(scope="module")
def writer(folder: Path) -> PolicyModel:
    """A writer for tests that do not train it."""
    return PolicyModel.open(f"hf/{folder}", LoraSettings(rank=2), seed=1)


@pytest.fixture(scope="module")
def groups(writer: PolicyModel) -> list[list[Sample]]:
    return writer.sample([ASK, SAY], 3, max_tokens=5, seed=2)


def spread(groups: list[list[Sample]], rewards: list[list[float]]) -> list[list[float]]:
    """One number for each token of each sample."""
    pairs = zip([s for g in groups for s in g], [r for g in rewards for r in g], strict=True)
    return [[reward] * len(sample.tokens) for sample, reward in pairs]


REWARDS = [[1.0, 0.0, 0.5], [0.2, 0.2, 0.8]]


@pytest.mark.parametrize("kind", ["grpo", "dr_grpo", "rloo"])
def test_group_advantages_stand_at_every_token(writer: PolicyModel, groups: Any, kind: Any) -> None:
    estimate = getattr(advantages, kind)
    found = group_advantages(Training(advantage=kind), groups, REWARDS)
    assert found == spread(groups, [estimate(rewards) for rewards in REWARDS])


def test_tokens_of_others_get_no_advantage(writer: PolicyModel, groups: Any) -> None:
    mixed = writer.sample_turn(groups[0], [[Message("user", "again")]] * 3, max_tokens=3, seed=4)
    learner = PolicyModel(writer.body, 0)
    for kind in typing.get_args(Advantage):
        config = Training(advantage=kind)
        if kind == "gae":
            found, _ = token_advantages(config, learner, mixed, [1.0, 0.0, 0.4])
        else:
            found, _ = batch_token_advantages(config, learner, [mixed], [[1.0, 0.0, 0.4]], [0.2])
        for row, sample in zip(found, mixed, strict=True):
            assert len(row) == len(sample.tokens)
            assert not any(a for a, own in zip(row, sample.own, strict=True) if not own)
        assert any(a for row in found for a in row)


@pytest.mark.long
@pytest.mark.parametrize("kind", typing.get_args(Advantage))
def test_every_advantage_learns_which_texts_are_rewarded(folder: Path, kind: Any) -> None:
    learner = PolicyModel.open(f"hf/{folder}", LoraSettings(rank=0), seed=1)
    config = Training(
        advantage=kind,
        lr=1e-2,
        group=16,
        max_tokens=3,
        kl=0.01,
        epochs=2,
        minibatch=16,
    )
    trainer = Trainer(learner, config)
    means = []
    for number in range(20):
        group = learner.sample([ASK], config.group, max_tokens=3, seed=number)
        rewards = [[float("good" in s.text.split()) for s in group[0]]]
        means.append(trainer.learn(group, rewards)["reward"])
    assert sum(means[-4:]) / 4 > sum(means[:4]) / 4 + 0.4


async def test_samples_are_effects(writer: PolicyModel) -> None:
    trainer = Trainer(writer, Training(group=2, max_tokens=4))
    run = MemoryRun(seed=3)
    recorded: list[Any] = []

    async def effect(name: str, fn: Any, args: Any = None, **_: Any) -> Any:
        value = json.loads(json.dumps(await fn()))
        recorded.append((name, value))
        return value

    run.effect = effect  # type: ignore[method-assign]
    groups = await trainer.sample(run, [ASK, SAY])
    assert [len(group) for group in groups] == [2, 2]
    assert groups == await Trainer(writer, trainer.config).sample(MemoryRun(seed=3), [ASK, SAY])
    ((name, value),) = recorded
    assert name == "sample" and [[Sample.from_json(v) for v in group] for group in value] == groups


@dataclasses.dataclass(frozen=True)
class Config(Training):
    """Settings of a method for the test below."""

    steps: int = 7
    extra: str = "x"


def test_every_mechanic_is_a_flat_setting_of_a_method() -> None:
    async def coroutine() -> None: ...

    method = Method(MethodEntry("m", "M", "-", "-"), coroutine, Config)
    config = configure(method, {"advantage": "rloo", "kl": "0.02", "extra": "y"})
    assert (config.advantage, config.kl, config.extra, config.steps) == (
        "rloo",
        0.02,
        "y",
        7,
    )
    with pytest.raises(UsageError, match="advantage is one of"):
        configure(method, {"advantage": "magic"})
    assert config.lora == LoraSettings(8, 16.0)
    assert config.update().kl == 0.02


def test_figures_of_remax_are_those_of_the_texts_that_were_drawn(writer: PolicyModel) -> None:
    """The greedy text, the last of each group, is the baseline and no sample of the policy."""
    drawn = writer.sample([ASK], 2, max_tokens=5, seed=2)[0]
    greedy = writer.sample([ASK], 1, temperature=0.0, max_tokens=5)[0]
    asked: list[list[Sample]] = []

    class Watching(Trainer):
        def watch_divergence(self, samples: Sequence[Sample]) -> dict[str, float]:
            asked.append(list(samples))
            return {}

    learner = PolicyModel(writer.body, 0)
    learner.update = lambda *rest: {}  # type: ignore[method-assign, assignment]
    figures = Watching(learner, Training(advantage="remax")).learn([[*drawn, *greedy]], [[0.0, 0.5, 1.0]])
    assert figures["reward"] == 0.25 and asked == [drawn]
