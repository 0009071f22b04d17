"""Every setting of training with every method that trains a language model: two real steps on the tiny model."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest

pytest.importorskip("torch", reason="writers need torch: pip install 'whet[train]'")
pytest.importorskip("transformers", reason="writers need transformers: pip install 'whet[train]'")
pytest.importorskip("peft", reason="writers need peft: pip install 'whet[train]'")

import torch
from benchmarks.simulated.clause_tasks import write_task

from whet.environments.environment import Environment
from whet.errors import UsageError
from whet.methods import get_method
from whet.methods.method import configure
from whet.models.addresses import resolve
from whet.prompt import Prompt
from whet.rewards.text import ExactMatch
from whet.rl.policy_model import PolicyModel
from whet.rl.training import Trainer
from whet.task import load_task
from whet.testing.runs import MeteredRun
from whet.types import Message

TINY = {"steps": 2, "group": 2, "lr": 0.001, "kl": 0.01, "max_tokens": 16, "checks": 1}
METHODS: dict[str, dict[str, Any]] = {
    "prewrite": {"examples": 2, "rewrites": 2},
    "prl": {"examples": 2, "prompts": 1},
    "dsp": {"questions": 2},
    "espl": {"problems": 2, "programs": 2, "explain": False},
    "prompt_r1": {"questions": 2, "turns": 2},
    "retroformer": {},
    "multiprompter": {"examples": 2, "rewrites": 1},
    "align_pro": {"requests": 2},
    "p2o": {"problems": 2, "every": 1, "hard": 2, "new": 1},
}
OPTIONS: list[dict[str, Any]] = [
    *({"advantage": name} for name in ("rloo", "reinforce++", "reinforce++-baseline", "remax", "gae")),
    *({"loss": name} for name in ("importance", "cispo", "reinforce", "gspo", "rebel", "dro")),
    {"kl_in": "reward", "kl_power": 5.0, "truncated": "mask"},
    {"kl_estimator": "k2", "kl_power": 5.0, "aggregation": "sequence"},
    {"advantage": "dr_grpo", "aggregation": "constant"},
    {"advantage": "reinforce++", "rto": 0.1},
    {"epochs": 2, "minibatch": 1, "clip_high": 0.3},
    {"nlpo": 0.9, "mask_steps": 1},
]
CHOICES = [
    ("dsp", {"rows": "pcl"}),
    ("prewrite", {"rows": "dynamic"}),
    ("prompt_r1", {"rows": "mopps", "zero_variance": "erpo"}),
    ("espl", {"rows": "erpo", "zero_variance": "zvp"}),
]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> tuple[Environment, Prompt, Any]:
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("clauses") / "task"
    write_task(folder, 0, clauses=2, rows=12)
    task, model = load_task(folder), resolve("embedded/tiny")
    env = Environment(model, task.reward, task.train[:4], task.validation[:2], description=task.description)
    return env, task.prompt, model


def trained(name: str, world: tuple[Environment, Prompt, Any], options: dict[str, Any]) -> list[Any]:
    """What two steps of a method log."""
    env, start, model = world
    method = get_method(name)
    known = method.config.__dataclass_fields__
    settings = {key: value for key, value in {**TINY, **METHODS[name]}.items() if key in known}
    config = configure(method, {**settings, **options})
    run = MeteredRun({"task": model, "optimizer": model})
    asyncio.run(method.coroutine(run, env, PolicyModel.open("embedded/tiny", config.lora, 0), start, config))
    return [value for what, value in run.logged if what == "step"]


OTHERS = ["prl", "dsp", "retroformer", "espl", "prompt_r1"]
PAIRS = [
    (name, options)
    for i, options in enumerate(OPTIONS)
    for name in ("prewrite", OTHERS[i % 3 if options == {"advantage": "remax"} else i % len(OTHERS)])
]


@pytest.mark.long
@pytest.mark.parametrize(("name", "options"), PAIRS, ids=str)
def test_every_option_trains_a_rewriter_and_one_method_more(
    name: str, options: dict[str, Any], world: tuple[Environment, Prompt, Any]
) -> None:
    steps = trained(name, world, options)
    assert [step["step"] for step in steps] == [0, 1]
    assert all(step["reward"] == step["reward"] for step in steps)


@pytest.mark.long
@pytest.mark.parametrize(("name", "options"), CHOICES, ids=str)
def test_rows_are_chosen_and_equal_groups_filled_on_a_network(
    name: str, options: dict[str, Any], world: tuple[Environment, Prompt, Any]
) -> None:
    assert [step["step"] for step in trained(name, world, options)] == [0, 1]


@pytest.mark.long
def test_problems_that_no_answer_solves_are_asked_again_with_their_hints(
    world: tuple[Environment, Prompt, Any],
) -> None:
    env, start, model = world
    rows = [
        dataclasses.replace(row, target="nobody says this", row={**row.row, "hint": "1"}) for row in env.train
    ]
    env = dataclasses.replace(env, train=tuple(rows), reward=ExactMatch())
    steps = trained("espl", (env, start, model), {"hint": "hint", "mode": "rl"})
    assert [step["rows"] for step in steps] == [4, 8], "two problems a step, each of them twice"
    assert [step["guided"] for step in steps] == [0, 0], "hinted answers that are all wrong are left out"


UNUSABLE: list[tuple[str, dict[str, Any]]] = [
    *(("prewrite", {name: value}) for name, value in (
        ("epochs", 0), ("minibatch", -1), ("group", 0), ("lr", -1), ("lr", "nan"), ("lr", "inf"), ("steps", -1), ("examples", 0),
        ("top_p", 0), ("top_p", 1.5), ("max_tokens", 0), ("temperature", -0.1), ("kl", -0.1), ("rank", -1),
        ("clip_low", 2), ("rewrites", 0), ("checks", -1), ("trace", 1.5), ("critic_lr", -1),
    )),
    ("prl", {"prompts": 0}),
    *(("dsp", {name: 0}) for name in ("questions", "target_kl")),
    *(("espl", {name: value}) for name, value in (("problems", 0), ("programs", 0), ("crossover", 1.5))),
    *(("prompt_r1", {name: 0}) for name in ("questions", "turns")),
    *(("retroformer", {name: 0}) for name in ("finalists", "tasks", "examples")),
]  # fmt: skip


@pytest.mark.parametrize(("name", "options"), UNUSABLE, ids=str)
def test_unusable_settings_are_refused_before_anything_is_paid(name: str, options: dict[str, Any]) -> None:
    ((setting, value),) = options.items()
    with pytest.raises(UsageError, match=f"{setting} must be .* this is {value}"):
        configure(get_method(name), options)


@pytest.mark.parametrize("name", ["prompting_policies", "multiprompter", "align_pro", "p2o", "fst"])
def test_a_choice_of_rows_is_refused_by_methods_that_do_not_heed_it(
    name: str, world: tuple[Environment, Prompt, Any]
) -> None:
    method = get_method(name)
    assert method.check is not None
    with pytest.raises(UsageError, match="rows=mopps does nothing here"):
        method.check(world[0], configure(method, {"rows": "mopps"}))


async def test_no_texts_are_sampled_where_none_are_asked_for(world: tuple[Environment, Prompt, Any]) -> None:
    config = configure(get_method("prewrite"), TINY | {"checks": 1})
    trainer = Trainer(PolicyModel.open("embedded/tiny", config.lora, 0), config)
    asked = [[Message("user", "say it")]]
    assert await trainer.sample(MeteredRun({}), asked, n=0) == [[]]
