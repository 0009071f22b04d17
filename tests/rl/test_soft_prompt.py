"""Soft prompts: what is trained, what is saved, and that a resume goes on bit for bit."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

from tests.rl.tinylm import open_model, start, word_task  # noqa: E402

from whet.environments.environment import Environment  # noqa: E402
from whet.errors import UsageError  # noqa: E402
from whet.models.huggingface import HuggingFaceModel  # noqa: E402
from whet.models.scripted import load as simulator  # noqa: E402
from whet.rl.soft_prompt import (  # noqa: E402
    Deployed,
    SoftPrompt,
    SoftPromptConfig,
    deploy_soft_prompt,
    environment_with,
    target_text,
)
from whet.run import MemoryRun  # noqa: E402
from whet.types import Example  # noqa: E402

Open = Callable[[str], HuggingFaceModel]
KINDS: list[tuple[Any, SoftPromptConfig]] = [
    ("prefix", SoftPromptConfig(tokens=4, hidden=16, lr=0.01)),
    ("prefix", SoftPromptConfig(tokens=4, hidden=0, lr=0.05)),
    ("ptuning", SoftPromptConfig(tokens=4, hidden=16, lr=0.01)),
]


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Open:
    folder = tmp_path_factory.mktemp("models")
    return lambda family: open_model(family, folder / family)


@pytest.mark.parametrize("settings", KINDS, ids=["mlp", "free", "ptuning"])
@pytest.mark.parametrize("family", ["llama", pytest.param("t5", marks=pytest.mark.long)])
def test_training_lowers_the_loss_and_leaves_the_model_as_it_is(
    opened: Open, family: str, settings: tuple[Any, SoftPromptConfig]
) -> None:
    model = opened(family)
    before = {name: weight.clone() for name, weight in model.weights.model.named_parameters()}
    env = word_task(model)
    soft = SoftPrompt(model, *settings, 1)
    losses = [soft.update(env, start(), env.train[:8]) for _ in range(25)]
    assert losses[-1] < losses[0] - 0.5
    assert soft.seconds["update"] > 0
    for name, weight in model.weights.model.named_parameters():
        assert torch.equal(weight, before[name]), name


def test_the_seed_decides_the_first_weights_and_nothing_else_is_drawn(opened: Open) -> None:
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    first, same, other = (SoftPrompt(opened("llama"), *KINDS[0], seed).save() for seed in (1, 1, 2))
    assert torch.equal(torch.rand(1), expected)
    assert first == same != other


@pytest.mark.parametrize("settings", KINDS, ids=["mlp", "free", "ptuning"])
def test_a_resume_goes_on_bit_for_bit(opened: Open, settings: tuple[Any, SoftPromptConfig]) -> None:
    env = word_task(opened("llama"))
    batches = [env.train[i : i + 4] for i in range(0, 32, 4)]

    def trained(soft: SoftPrompt, rows: list[Any]) -> SoftPrompt:
        for batch in rows:
            soft.update(env, start(), batch)
        return soft

    whole = trained(SoftPrompt(env.model, *settings, 1), batches)
    half = trained(SoftPrompt(env.model, *settings, 1), batches[:4])
    half.notes["kept"] = [1, "two"]
    resumed = SoftPrompt(env.model, *settings, 99)
    resumed.load(half.save())
    assert resumed.notes == {"kept": [1, "two"]}
    resumed.notes = {}
    assert trained(resumed, batches[4:]).save() == whole.save()


async def test_what_is_deployed_is_what_was_trained(opened: Open) -> None:
    env = word_task(opened("llama"))
    soft = SoftPrompt(env.model, *KINDS[0], 1)
    for _ in range(10):
        soft.update(env, start(), env.train[:8])
    here = environment_with(env, soft.system(), "digest")
    kind, config = KINDS[0]
    there = deploy_soft_prompt(env, kind, soft.save(), config)
    run = MemoryRun()
    rows = [await e.score(run, [start()], env.validation) for e in (env, here, there)]
    assert rows[1] == rows[2] != rows[0]
    assert isinstance(there, Deployed) and len(there.system) == 64


async def test_a_deployed_system_writes_through_the_run(opened: Open) -> None:
    """Answers are effects that are charged to the task model, and come from the system, not from the run's model."""
    charged: list[tuple[str, str | None, int]] = []

    class Charging(MemoryRun):
        async def effect(self, name: str, fn: Any, args: Any = None, **more: Any) -> Any:
            charged.append((name, more.get("role"), more.get("calls", 0)))
            return await super().effect(name, fn, args, **more)

    model = opened("llama")
    env = word_task(model, scores=False)
    env = dataclasses.replace(env, generation=dataclasses.replace(env.generation, max_tokens=3))
    soft = SoftPrompt(model, *KINDS[2], 1)
    for _ in range(15):
        soft.update(env, start(), env.train[:8])
    system = environment_with(env, soft.system(), "digest")
    rollouts = await system.evaluate(Charging({}), start(), env.validation[:4])
    assert charged == [("answers", "task", 4)]
    assert await system.rollout(Charging({}), start(), env.validation[1]) == rollouts[1]
    assert charged[1:] == [("system", "task", 1)]
    plain = await env.evaluate(MemoryRun({"task": model}), start(), env.validation[:4])
    assert [r.output for r in rollouts] != [r.output for r in plain]
    assert all(r.usage.input_tokens > 0 for r in rollouts)


def test_a_resume_on_another_model_or_of_another_shape_is_refused(opened: Open) -> None:
    blob = SoftPrompt(opened("llama"), *KINDS[0], 1).save()
    with pytest.raises(UsageError, match="does not fit this soft prompt"):
        SoftPrompt(opened("llama"), "prefix", dataclasses.replace(KINDS[0][1], tokens=5), 1).load(blob)
    with pytest.raises(UsageError, match="not a checkpoint"):
        SoftPrompt(opened("llama"), *KINDS[0], 1).load(blob[:40])


def test_models_that_cannot_carry_one_are_refused(opened: Open) -> None:
    for model in (opened("bert"), simulator("labels", {"words": "one"})):
        with pytest.raises(UsageError, match="cannot carry a soft prompt"):
            SoftPrompt(model, *KINDS[0], 1)


def test_a_row_without_a_target_is_refused(opened: Open) -> None:
    env = word_task(opened("llama"))
    with pytest.raises(UsageError, match="row-x has no target"):
        target_text(env, Example("row-x", {"input": "sun"}))


def test_a_task_of_several_turns_is_refused(opened: Open) -> None:
    @dataclasses.dataclass(frozen=True)
    class Turns(Environment):
        pass

    env = word_task(opened("llama"))
    kept = {f.name: getattr(env, f.name) for f in dataclasses.fields(Environment)}
    with pytest.raises(UsageError, match="several turns"):
        environment_with(Turns(**kept), env.model, "digest")


@pytest.mark.parametrize("wrong", [{"tokens": 0}, {"hidden": 0}, {"lr": 0.0}])
def test_settings_that_train_nothing_are_refused(opened: Open, wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="ptuning: tokens must be 1 or more, hidden 1 or more"):
        SoftPrompt(opened("llama"), "ptuning", dataclasses.replace(KINDS[2][1], **wrong), 1)
