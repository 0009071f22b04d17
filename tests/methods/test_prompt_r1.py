"""prompt_r1: its reward by hand, that it learns to ask the right thing, and that a killed run ends the same."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("peft")

import torch
from tests.engine.world import close, open_core, run_of
from tests.environments import talker
from tests.environments.worlds import Scripted, small

from whet.environments import ActorAction, Turn
from whet.environments.environment import Environment
from whet.environments.multiturn import multiturn
from whet.errors import UsageError
from whet.methods.method import configure
from whet.methods.prompt_r1 import (
    Config,
    consulting,
    deploy,
    dual_reward,
    format_reward,
    prompt_r1,
    turn_rewards,
    well_formed,
)
from whet.prompt import Prompt
from whet.rl.policy_model import PolicyModel
from whet.run import Budget, MemoryRun, Run
from whet.search.archive import Candidate
from whet.testing.methods import MethodConformance
from whet.testing.runs import MeteredRun
from whet.types import Completion, Request

START = Prompt.parse("so")
SMALL = Config(steps=3, group=4, questions=2, max_tokens=16, turns=3, rank=0, lr=2e-3, checks=1)
GOOD = "c"


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return talker.made(tmp_path_factory.getbasetemp())


@pytest.fixture
def writer(folder: Path) -> Callable[[], PolicyModel]:
    torch.set_num_threads(1)
    return lambda: PolicyModel.open(f"hf/{folder}", SMALL.lora, 0)


def oracle(request: Request) -> str:
    """The frozen model, a plain function: it tells the truth only when it is asked about the good letter."""
    return "yes" if request.messages[-1].content == GOOD else "no"


def world(n: int = 12) -> tuple[Scripted, Environment]:
    made = small(oracle, n)
    return made.model, made.env


# the reward

ASK, END = talker.ask("a"), talker.finish("yes")


@pytest.mark.parametrize(
    ("turns", "form"),
    [
        ([ASK, END], 1.0),  # 0.4 + 0.25 + 0.25 + 0.1
        ([END], 0.6),
        ([ASK, ASK, ASK, END], 1.0),  # 1.8, capped
        ([ASK], 0.0),
        (["<answer></answer>"], 0.25),
        (["<answer>yes</answer>"], 0.5),
        ([ASK, "<think>so</think><answer> </answer>"], 0.75),
        ([ASK, f"{END} and so on"], 0.9),
        ([f"{ASK} please", END], 0.6),
        (["", END], 0.6),
        (["<answer>yes"], 0.0),
    ],
)
def test_the_form_by_hand(turns: list[str], form: float) -> None:
    assert format_reward(turns) == pytest.approx(form)


@pytest.mark.parametrize(
    ("text", "well"),
    [
        ("<think>a</think><answer>b</answer>", True),
        (" <think>\n</think>\n<answer>b\nc</answer> ", True),
        ("<think>a</think><think>a</think><answer>b</answer>", False),
        ("<answer>b</answer><think>a</think>", False),
        ("<think>a<answer>b</answer></think>", False),
        ("<think>a</think><interaction_prompt>b</interaction_prompt>", False),
        ("<think>a</think>x<answer>b</answer>", False),
        ("", False),
    ],
)
def test_which_turns_are_well_formed(text: str, well: bool) -> None:
    assert well_formed(text, "answer") is well


def test_the_answer_counts_only_when_the_form_is_complete() -> None:
    assert dual_reward(0.7, format_reward([ASK, END])) == 0.7
    assert dual_reward(1.0, format_reward([END])) == pytest.approx(-0.4)
    assert dual_reward(0.0, 1.0) == 0.0 and dual_reward(1.0, 0.0) == -1.0


def test_a_sum_that_is_not_quite_one_counts_as_complete() -> None:
    assert dual_reward(0.5, 1.0 - 1e-9) == 0.5 and dual_reward(0.5, 1.0 - 1e-3) < 0


def said(*texts: str) -> list[Turn]:
    return [Turn("", ActorAction(text)) for text in texts]


@pytest.mark.parametrize(
    ("turns", "reward", "divided"),
    [
        ([END], -0.4, [-0.4]),
        ([ASK, END], 0.7, [0.4, 0.3]),
        (["so", ASK, END], 1.0, [0.0, 0.4, 0.6]),
        ([ASK, ASK, ASK, END], 0.5, [0.4, 0.4, 0.2, -0.5]),  # F is 1 at most
        ([ASK, "<answer></answer>"], -0.35, [0.4, -0.75]),
    ],
)
def test_the_reward_of_each_turn_by_hand(turns: list[str], reward: float, divided: list[float]) -> None:
    found = turn_rewards(said(*turns), reward)
    assert found == pytest.approx(divided) and sum(found) == pytest.approx(reward)


# the method


def watched(policy: PolicyModel) -> list[tuple[Any, Any]]:
    """(sample, advantages) of every update of a writer from now on."""
    seen: list[tuple[Any, Any]] = []
    update = policy.update

    def spy(samples: Any, advantages: Any, *rest: Any, **more: Any) -> Any:
        seen.extend(zip(samples, advantages, strict=True))
        return update(samples, advantages, *rest, **more)

    policy.update = spy  # type: ignore[method-assign]
    return seen


async def train(
    writer: PolicyModel, config: Config = SMALL, seed: int = 0, env: Environment | None = None
) -> tuple[Candidate, MemoryRun]:
    model, plain = world()
    run = MemoryRun({"task": model}, seed)
    return await prompt_r1(run, env or plain, writer, START, config), run


def steps(run: MemoryRun) -> list[Any]:
    return [value for name, value in run.logged if name == "step"]


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, 1])
async def test_it_learns_and_is_deployed_with_what_it_learned(
    writer: Callable[[], PolicyModel], seed: int
) -> None:
    """Eight letters, one good: from about an eighth of right answers to nearly all, and the system keeps it."""
    config = dataclasses.replace(SMALL, steps=36, group=8, questions=4)
    found, run = await train(writer(), config, seed)
    answers = [step["answer"] for step in steps(run)]
    assert sum(answers[:3]) / 3 < 0.3 and sum(answers[-3:]) / 3 > 0.85, answers
    assert found.system is not None and found.operator == "prompt_r1" and found.prompt == START
    model, env = world()
    fresh = MemoryRun({"task": model})
    untrained = await consulting(env, writer(), config).score(fresh, [START], env.validation)
    system = deploy(env, writer(), run.kept[found.system], config)
    trained = await system.score(fresh, [START], env.validation)
    logged: list[Any] = [value for name, value in run.logged if name == "validated"]
    assert [v["validation"] for v in logged if v.get("system") == found.system] == [trained[0].mean]
    assert trained[0].mean > untrained[0].mean


async def test_tokens_of_the_large_model_are_masked_from_the_loss(writer: Callable[[], PolicyModel]) -> None:
    policy = writer()
    seen = watched(policy)
    await train(policy, dataclasses.replace(SMALL, steps=1))
    read = policy.body.weights.tokenizer.decode
    several = [(s, a) for s, a in seen if not all(s.own)]
    assert len(seen) == 8 and len(several) > 4
    for sample, advantages in several:
        others = read([t for t, own in zip(sample.tokens, sample.own, strict=True) if not own])
        assert "<interaction_response> no" in others or "<interaction_response> yes" in others
        assert "<interaction_prompt>" not in others and "<answer>" not in others
        assert {a for a, own in zip(advantages, sample.own, strict=True) if not own} == {0.0}


async def test_with_credit_by_turn_the_turns_of_a_conversation_differ(
    writer: Callable[[], PolicyModel],
) -> None:
    for credit, several in (("turn", True), ("episode", False)):
        policy = writer()
        seen = watched(policy)
        config = dataclasses.replace(SMALL, steps=2, temperature=1.5, credit=credit)  # type: ignore[arg-type]
        await train(policy, config)
        levels = [{round(a, 9) for a, own in zip(row, s.own, strict=True) if own} for s, row in seen]
        assert any(len(one) > 1 for one in levels) == several, credit


async def test_a_large_model_that_cannot_be_reached_is_not_the_small_ones_fault(
    writer: Callable[[], PolicyModel],
) -> None:
    """Every third answer fails at the provider: groups in which one failed are left out, the others are learned from."""

    class Failing(Scripted):
        async def generate(self, request: Request) -> list[Completion]:
            found = await super().generate(request)
            failed = self.failing and self.asked % 3 == 0
            return [Completion("", error="provider: out of order")] if failed else found

        failing = True

    for failing in (True, False):
        model, (_, env) = Failing(oracle), world()
        model.failing = failing
        policy, run = writer(), MemoryRun({"task": model})
        seen = watched(policy)
        config = dataclasses.replace(SMALL, steps=2, questions=4, group=2, checks=0)
        await prompt_r1(run, dataclasses.replace(env, model=model), policy, START, config)  # type: ignore[arg-type]
        assert len(steps(run)) == 2
        assert (0 < len(seen) < 16) if failing else len(seen) == 16
        asked = [s for s, _ in seen if not all(s.own)]
        read = policy.body.weights.tokenizer.decode
        assert asked and all("interaction_response" in read(list(s.tokens)) for s in asked)


async def test_nothing_is_learned_from_groups_of_equal_rewards(writer: Callable[[], PolicyModel]) -> None:
    policy = writer()
    before = {name: weight.clone() for name, weight in policy.body.trainable.items()}
    made = small(lambda request: "no", 8, target="maybe")
    await train(policy, dataclasses.replace(SMALL, steps=2, kl=0.0, temperature=0.0), env=made.env)
    assert all(torch.equal(before[name], weight) for name, weight in policy.body.trainable.items())


async def test_a_budget_that_pays_for_no_group_trains_nothing(writer: Callable[[], PolicyModel]) -> None:
    """10 calls: two validations of two questions of three turns eat them, which leaves no conversation."""
    made, policy = small(oracle, 8), writer()
    run = MeteredRun({"task": made.model}, limits=Budget(task_calls=10))
    found = await prompt_r1(run, made.env, policy, START, SMALL)
    assert policy.updates == 0 and found.prompt == START and not steps(run)
    assert run.spent["task"] <= 10


async def test_a_large_model_alone_that_is_better_stays(writer: Callable[[], PolicyModel]) -> None:
    made = small(lambda request: "yes" if "question" in request.messages[-1].content else "no", 8)
    run = MemoryRun({"task": made.model})
    found = await prompt_r1(run, made.env, writer(), START, SMALL)
    assert found.system is None and found.prompt == START


async def test_f1_rewards_part_of_an_answer(writer: Callable[[], PolicyModel]) -> None:
    made = small(oracle, 8, target="yes so")
    _, run = await train(writer(), dataclasses.replace(SMALL, steps=4, reward="f1"), env=made.env)
    values = {round(step["answer"] * 8, 3) for step in steps(run)}
    assert max(values) > 0 and all(v % 0.667 < 0.01 or v % 0.667 > 0.65 for v in values), (
        "2 / 3 for each `yes`"
    )


@pytest.mark.parametrize(
    "settings",
    [
        {"advantage": "rloo"},
        {"loss": "importance", "kl": 0.1},
        {"credit": "turn"},
    ],
)
async def test_the_algorithm_is_a_setting(
    writer: Callable[[], PolicyModel], settings: Mapping[str, Any]
) -> None:
    policy = writer()
    _, run = await train(policy, dataclasses.replace(SMALL, steps=2, **settings))
    assert len(steps(run)) == 2 and policy.updates == 2


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"reward": "f1"}, "target"),
    ],
)
async def test_what_it_cannot_do_is_refused(
    writer: Callable[[], PolicyModel], config: Mapping[str, Any], said: str
) -> None:
    made = small(oracle, 6, target=None)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=said):
        await train(writer(), dataclasses.replace(SMALL, **config), env=made.env)


async def test_a_task_with_a_world_of_its_own_is_refused(writer: Callable[[], PolicyModel]) -> None:
    from whet.environments.tools import Tool, ToolWorld

    def nothing() -> str:
        """Nothing."""
        return ""

    _, env = world()
    with pytest.raises(UsageError, match="environment"):
        await train(writer(), env=multiturn(env, ToolWorld((Tool.of(nothing),), 2)))


class TestConformance(MethodConformance):
    """The suite of all methods, with a small talking model as the policy."""

    method = "prompt_r1"
    settings = {"steps": 2}  # noqa: RUF012
    seeds = (0,)
    limits = (60, 300)

    @pytest.fixture(autouse=True)
    def policy(self, writer: Callable[[], PolicyModel]) -> None:
        self.writer = writer

    def run(
        self, run: MeteredRun, env: Environment | None = None, settings: Mapping[str, Any] | None = None
    ) -> Candidate:
        import asyncio

        method = self.load()
        fixed = {"group": 3, "questions": 2, "max_tokens": 16, "turns": 3, "checks": 2, "steps": 5}
        config = configure(method, {**fixed, **(self.settings if settings is None else settings)})
        found: Candidate = asyncio.run(
            method.coroutine(run, env or self.environment(), self.writer(), self.start(), config)  # type: ignore[arg-type]
        )
        return found


class Killed(Exception):
    """Stands for the death of the process."""


class Mortal(Scripted):
    """Dies at the call with the number `last`."""

    def __init__(self, last: int) -> None:
        super().__init__(oracle)
        self.last, self.texts = last, list[str]()

    async def generate(self, request: Request) -> Any:
        if self.asked == self.last:
            raise Killed
        self.texts.append(request.messages[-1].content)
        return await super().generate(request)


@pytest.mark.parametrize("segment", [0.0, pytest.param(1e9, marks=pytest.mark.long)])
async def test_a_run_that_is_killed_anywhere_ends_the_same_and_pays_nothing_twice(
    writer: Callable[[], PolicyModel], tmp_path: Path, segment: float
) -> None:
    config = dataclasses.replace(SMALL, steps=3, checks=2)

    async def attempt(folder: Path, model: Mortal) -> tuple[Candidate, bytes]:
        _, env = world(8)
        core = open_core(folder, model)  # type: ignore[arg-type]
        core.segment_seconds = segment
        run: Run = run_of(core)
        policy = writer()
        try:
            return await prompt_r1(run, env, policy, START, config), policy.save()
        finally:
            await close(core)

    whole = Mortal(-1)
    expected = await attempt(tmp_path / "whole", whole)
    paid: list[str] = []
    for last in (0, 2, 4, 3, 1):
        mortal = Mortal(last)
        with pytest.raises(Killed):
            await attempt(tmp_path / "killed", mortal)
        paid += mortal.texts
    survivor = Mortal(-1)
    assert await attempt(tmp_path / "killed", survivor) == expected, "weights and all"
    assert sorted(paid + survivor.texts) == sorted(whole.texts)
