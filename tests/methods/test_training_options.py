"""Every mechanic of training with every method that trains a language model: two real steps on the tiny model."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("torch", reason="writers need torch: pip install 'whet[train]'")
pytest.importorskip("transformers", reason="writers need transformers: pip install 'whet[train]'")
pytest.importorskip("peft", reason="writers need peft: pip install 'whet[train]'")

import torch
from tests.environments.worlds import Scripted, examples

from whet.environments.environment import Environment
from whet.errors import UsageError
from whet.methods import get_method
from whet.methods.method import configure
from whet.models.addresses import resolve
from whet.prompt import Prompt
from whet.rewards.text import ExactMatch
from whet.rl.guided_rollouts import of_examples, with_hint
from whet.rl.policy_model import PolicyModel
from whet.rl.trainer import Trainer, token_advantages
from whet.rl.training_settings import BOUNDS
from whet.task import load_task
from whet.testing.clauses import write_task
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
}
OPTIONS: list[dict[str, Any]] = [
    *({"advantage": name} for name in ("dr_grpo", "rloo", "reinforce++", "gae", "rl_zvp")),
    *({"curriculum": name} for name in ("mopps", "pcl")),
    *({"loss": name} for name in ("dro", "dpo")),
    {"residual": "erpo"},
    {"kl_in": "reward", "kl_kind": "k2"},
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


@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: "-".join(f"{k}={v}" for k, v in o.items()))
@pytest.mark.parametrize("name", METHODS)
def test_every_option_trains_every_method(
    name: str, options: dict[str, Any], world: tuple[Environment, Prompt, Any]
) -> None:
    steps = trained(name, world, options)
    assert [step["step"] for step in steps] == [0, 1]
    assert all(step["reward"] == step["reward"] for step in steps)
    if options.get("loss") == "dpo":
        assert all(step["pairs"] >= 0 for step in steps)


@pytest.mark.parametrize("name", ["prewrite", "prl", "dsp"])
def test_hopeless_questions_are_asked_again_with_a_hint(
    name: str, world: tuple[Environment, Prompt, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[str] = []
    sample = PolicyModel.sample

    def listening(self: PolicyModel, conversations: Any, *args: Any, **how: Any) -> Any:
        heard.extend(conversation[-1].content for conversation in conversations)
        return sample(self, conversations, *args, **how)

    monkeypatch.setattr(PolicyModel, "sample", listening)
    trained(name, world, {"hints": "guide", "right": 100.0})
    hinted = [text for text in heard if "\n\nHint: " in text]
    assert len(hinted) >= 2 and len(hinted) < len(heard)
    heard.clear()
    trained(name, world, {"hints": "guide", "right": -100.0})
    assert heard and not [text for text in heard if "\n\nHint: " in text], "what succeeds needs no hint"


@pytest.mark.parametrize("name", ["prewrite", "prl", "dsp"])
def test_remax_takes_the_reward_of_the_greedy_text_off(
    name: str, world: tuple[Environment, Prompt, Any]
) -> None:
    assert len(trained(name, world, {"advantage": "remax"})) == 2


@pytest.mark.parametrize("name", ["espl", "prompt_r1", "retroformer"])
def test_methods_without_hints_say_so(name: str, world: tuple[Environment, Prompt, Any]) -> None:
    with pytest.raises(UsageError, match="no hints"):
        trained(name, world, {"hints": "guide"})


def test_preferences_need_a_weight_of_the_reference(world: tuple[Environment, Prompt, Any]) -> None:
    with pytest.raises(UsageError, match="loss=dpo needs kl above 0: it is beta"):
        trained("prewrite", world, {"loss": "dpo", "kl": 0.0})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"loss": "dro", "kl_in": "reward"}, "loss=dro takes the divergence in the loss"),
        ({"hints": "guide", "kl_in": "reward"}, "hints=guide .* kl_in=loss"),
        ({"hints": "guide", "loss": "dro"}, "hints=guide .* another loss"),
        *(
            (
                {"loss": loss, "kl": 0.1, "advantage": "rloo"},
                f"loss={loss} learns from rewards without advantages",
            )
            for loss in ("dro", "dpo")
        ),
        *(
            ({"residual": "erpo", **other}, "residual=erpo .*=dr_grpo, grpo, rloo")
            for other in (
                *(
                    {"advantage": kind}
                    for kind in ("gae", "reinforce++", "reinforce++-baseline", "remax", "rl_zvp")
                ),
                {"loss": "dro"},
                {"loss": "dpo"},
            )
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    options: dict[str, Any], said: str, world: tuple[Environment, Prompt, Any]
) -> None:
    with pytest.raises(UsageError, match=said):
        trained("prewrite", world, options)


UNUSABLE: list[tuple[str, dict[str, Any]]] = [
    *(("prewrite", {name: value}) for name, value in (
        ("epochs", 0), ("minibatch", -1), ("group", 0), ("lr", -1), ("lr", "nan"), ("lr", "inf"), ("steps", -1), ("examples", 0),
        ("top_p", 0), ("top_p", 1.5), ("max_tokens", 0), ("temperature", -0.1), ("kl", -0.1), ("rank", -1),
        ("gamma", 2), ("rewrites", 0), ("checks", -1),
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


@pytest.mark.parametrize("name", METHODS)
def test_every_number_among_the_settings_has_bounds(name: str) -> None:
    method = get_method(name)
    numbers = {
        key
        for key, value in vars(method.config()).items()
        if value is None or (isinstance(value, int | float) and not isinstance(value, bool))
    }
    assert numbers <= {*BOUNDS, "right", "entropy"}
    configure(
        method, {key: BOUNDS[key][0] or 0.5 for key in numbers & {*BOUNDS} if key in ("lr", "kl", "gamma")}
    )


@pytest.mark.parametrize("name", METHODS)
def test_a_gain_or_a_good_reward_counts_as_right_by_default(name: str) -> None:
    assert 0 < get_method(name).config().right < 1, "a share of the range of rewards"


async def test_any_gain_of_a_reflection_is_right() -> None:
    """Equal gains of a tenth: RL-ZVP pulls towards them."""
    method = get_method("retroformer")
    config = configure(method, {"advantage": "rl_zvp"})
    writer = PolicyModel.open("embedded/tiny", config.lora, 0)
    mechanics = Trainer(writer, config, (), (0.0, 1.0))
    groups = writer.sample([[Message("user", "say it")]], 2, max_tokens=4, seed=1)
    rows, _ = token_advantages(mechanics.config, writer, groups, [[0.1, 0.1]])
    assert all(a >= 0 for row in rows for a in row) and any(a > 0 for row in rows for a in row)


async def test_what_is_right_is_a_share_of_the_range_of_rewards(
    world: tuple[Environment, Prompt, Any],
) -> None:
    config = configure(get_method("prewrite"), {"hints": "guide"})
    writer = PolicyModel.open("embedded/tiny", config.lora, 0)
    mechanics = Trainer(writer, config, (), (0.0, 10.0))
    assert mechanics.hopeless([[4.9, 4.9], [0.0, 5.0]]) == [0]


async def test_no_texts_are_sampled_where_none_are_asked_for(world: tuple[Environment, Prompt, Any]) -> None:
    config = configure(get_method("prewrite"), TINY | {"checks": 1})
    mechanics = Trainer(PolicyModel.open("embedded/tiny", config.lora, 0), config)
    asked = [[Message("user", "say it")]]
    assert await mechanics.sample(MeteredRun({}), asked, n=0) == [[]]


def test_a_hint_stands_at_the_end_of_the_last_message() -> None:
    asked = (Message("system", "s"), Message("user", "Rewrite."))
    assert [m.content for m in with_hint(asked, "x -> y")] == ["s", "Rewrite.\n\nHint: x -> y"]
    assert of_examples(examples(2, "yes")).count(" -> yes") == 2


async def test_preferences_make_the_better_text_likelier() -> None:
    """Among prompts for a model that says yes to "capital", those with the word become likelier under loss=dpo."""
    torch.set_num_threads(1)
    model: Any = Scripted(lambda r: "yes" if "capital" in r.messages[-1].content.lower() else "no")
    rows = examples(6, "yes")
    env = Environment(model, ExactMatch(), rows[:3], rows[3:])
    method = get_method("prewrite")
    settings = {"steps": 8, "group": 16, "examples": 1, "lr": 0.01, "kl": 0.5, "loss": "dpo", "epochs": 2}
    config = configure(method, {**settings, "max_tokens": 16, "rewrites": 1, "checks": 0})
    run = MeteredRun({"task": model})
    start = Prompt.parse("<!-- whet:begin -->so<!-- whet:end --> {{input}}")
    await method.coroutine(run, env, PolicyModel.open("embedded/tiny", config.lora, 0), start, config)
    rewards = [value["reward"] for what, value in run.logged if what == "step"]
    assert sum(rewards[-2:]) / 2 > sum(rewards[:2]) / 2 + 0.4, rewards
