"""retroformer: differences of returns, what it learns on one turn and on several, and that a killed run ends the same."""

from __future__ import annotations

import asyncio
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
from tests.environments.worlds import Scripted, seeded, small

from whet.environments import Return
from whet.environments.environment import Environment, as_environment_type
from whet.environments.episodes import ActorAction
from whet.environments.multiturn import attempts, multiturn
from whet.environments.tools import Tool, ToolWorld
from whet.errors import UsageError
from whet.methods.method import configure
from whet.methods.retroformer import (
    REQUEST,
    Attempt,
    Config,
    Retrying,
    check,
    deploy,
    question,
    retroformer,
    retrying,
    sizes,
    with_reflections,
)
from whet.prompt import Prompt
from whet.rl.gain_model import GainModel
from whet.rl.policy_model import PolicyModel, Sample
from whet.run import MemoryRun, Run
from whet.search.archive import Candidate
from whet.testing.methods import MethodConformance
from whet.testing.runs import MeteredRun
from whet.types import Message, Request, Rollout

START = Prompt.parse("so")
SMALL = Config(steps=3, group=4, tasks=2, max_tokens=8, rank=0, lr=2e-3, finalists=2)
GOOD = "c"


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return talker.made(tmp_path_factory.getbasetemp())


@pytest.fixture
def writer(folder: Path) -> Callable[[], PolicyModel]:
    torch.set_num_threads(1)
    return lambda: PolicyModel.open(f"hf/{folder}", SMALL.lora, 0)


def advised(request: Request) -> bool:
    """Whether the good letter stands in the prompt."""
    return GOOD in request.messages[0].content.split()


def obeys(request: Request) -> str:
    """The frozen actor, a plain function: right when it was advised the good letter."""
    return "yes" if advised(request) else "no"


def walks(request: Request) -> str:
    """A frozen actor on the lake: it goes into the first hole unless it was advised the good letter."""
    turn = sum(m.role == "assistant" for m in request.messages)
    path = ("down", "down", "right", "right", "down", "right") if advised(request) else ("down", "right")
    return path[turn]


def lake() -> tuple[Scripted, Environment]:
    """Six lakes, which a walk of six turns crosses."""
    pytest.importorskip("gymnasium")
    from whet.environments.games import game_world

    made = small(walks)
    rows = tuple(seeded(seed) for seed in range(6))
    env = dataclasses.replace(made.env, reward=Return(0.0, 1.0), train=rows[:3], validation=rows[3:])
    return made.model, multiturn(env, game_world("FrozenLake-v1", 8, {"is_slippery": False}))


async def train(
    writer: PolicyModel,
    config: Config = SMALL,
    seed: int = 0,
    env: Environment | None = None,
    model: Any = None,
) -> tuple[Candidate, MemoryRun]:
    made = small(obeys, 12)
    run = MemoryRun({"task": model or made.model}, seed)
    return await retroformer(run, env or made.env, writer, START, config), run


def steps(run: MemoryRun) -> list[Any]:
    return [value for name, value in run.logged if name == "step"]


def rollout(reward: float) -> Rollout:
    return Rollout("p", "e0", "no", reward)


def test_the_question_by_hand() -> None:
    example = small(obeys).env.train[0]
    once = Attempt(example, "no", rollout(0.126))
    assert question(START, once) == [
        Message("user", f"so\nquestion 0\n\nAttempt:\nno\n\nReward: 0.13\n\n{REQUEST}")
    ]
    twice = Attempt(example, "no", rollout(0.0), ("be brief", "shout"))
    assert (
        "Advised before: be brief\n\nAdvised before: shout\n\n" + REQUEST in question(START, twice)[0].content
    )


def test_reflections_are_appended_inside_the_fence() -> None:
    fenced = Prompt.parse("Do it.\n<!-- whet:begin -->\nWell.\n<!-- whet:end -->\n{{input}}")
    assert (
        with_reflections(fenced, ["Shout.", "", "Run."]).region_text()
        == f"{fenced.region_text()}\nShout.\nRun."
    )
    assert with_reflections(fenced, ["break {{it}}"]) == fenced, (
        "a reflection that the prompt refuses changes nothing"
    )
    assert with_reflections(START, []) == START


def test_sizes_by_hand() -> None:
    config = Config(steps=60, group=8, tasks=4, retries=1, finalists=3)
    assert sizes(None, 40, config) == (60, 4, 40)
    # 1200: 40 examples for 6 reflections and 3 attempts leave 957; a step is 4 x 9
    assert sizes(1200, 40, config) == (26, 4, 40)
    # 100: 100 // 24 = 4 examples for 6 reflections and 3 attempts leave 73
    assert sizes(100, 40, config) == (2, 4, 4)
    assert sizes(8, 40, config) == (0, 1, 0) and sizes(0, 40, config) == (0, 1, 0)
    for rollouts in range(0, 2000, 37):
        n, tasks, scored = sizes(rollouts, 40, config)
        assert n * tasks * 9 + (2 * scored + (scored > 0)) * 3 <= rollouts


async def test_an_attempt_shows_what_was_said() -> None:
    def add(a: int, b: int) -> int:
        """The sum."""
        return a + b

    call = '<tool>{"name": "add", "arguments": {"a": 1, "b": 1}}</tool>'
    made = small(lambda r: call if len(r.messages) < 4 else "yes")
    run = MemoryRun({"task": made.model})
    ((shown, found),) = await attempts(run, made.env, [(START, made.env.train[0])])
    assert (shown, found.reward) == (call, 0.0)
    env = multiturn(made.env, ToolWorld((Tool.of(add),), 3))
    ((shown, found),) = await attempts(run, env, [(START, made.env.train[0])])
    assert shown == f"question 0\n> {call}\n2\n> yes" and found.reward == 1.0


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, 1])
async def test_it_learns_which_reflection_helps(writer: Callable[[], PolicyModel], seed: int) -> None:
    """Eight reflections, one good: its share rises from about an eighth to most, and the prompt gets it."""
    found, run = await train(writer(), dataclasses.replace(SMALL, steps=30, group=8, tasks=4), seed)
    gains = [step["gain"] for step in steps(run)]
    assert sum(gains[:3]) / 3 < 0.35 and sum(gains[-3:]) / 3 > 0.7, gains
    assert found.system is None and found.prompt.region_text() == f"so\n{GOOD}"
    assert found.prompt.edit("so") == START


@pytest.mark.parametrize("believed", [False, True])
async def test_untried_reflections_cost_no_call_and_count_while_the_model_of_gains_is_believed(
    writer: Callable[[], PolicyModel], monkeypatch: pytest.MonkeyPatch, believed: bool
) -> None:
    monkeypatch.setattr(GainModel, "is_believed", believed)
    made = small(obeys, 12)
    run = MeteredRun({"task": made.model})
    policy, sizes_seen = writer(), list[int]()
    update = policy.update
    monkeypatch.setattr(policy, "update", lambda s, a, c: (sizes_seen.append(len(s)), update(s, a, c))[1])
    await retroformer(run, made.env, policy, START, dataclasses.replace(SMALL, steps=2, untried=3))
    failed = [size // (4 + 3 * believed) for size in sizes_seen]
    assert sizes_seen == [n * (4 + 3 * believed) for n in failed] and 0 < max(failed) <= 2
    assert [step["untried"] for step in steps(run)] == [3.0 * n * believed for n in failed]
    assert all(0 <= step["model"] <= 1 for step in steps(run))


@pytest.mark.long
async def test_untried_reflections_are_no_gain_in_this_world(writer: Callable[[], PolicyModel]) -> None:
    """The table of docs/figures.md, which says that the reward model makes learning slower here."""
    ends: dict[int, list[float]] = {}
    for untried in (0, 12):
        config = dataclasses.replace(SMALL, steps=20, group=4, tasks=2, untried=untried)
        for seed in range(5):
            _, run = await train(writer(), config, seed)
            ends.setdefault(untried, []).append(sum(step["gain"] for step in steps(run)[-5:]) / 5)
            print(untried, seed, ends[untried][-1], steps(run)[-1].get("model"))
    assert sum(ends[12]) < sum(ends[0]), "it helps now: measure it anew and say so"


@pytest.mark.long
async def test_it_learns_from_episodes_of_several_turns(writer: Callable[[], PolicyModel]) -> None:
    model, env = lake()
    found, run = await train(
        writer(), dataclasses.replace(SMALL, steps=24, group=8, tasks=3), env=env, model=model
    )
    gains = [step["gain"] for step in steps(run)]
    assert sum(gains[:3]) / 3 < 0.35 and sum(gains[-3:]) / 3 > 0.6, gains
    assert found.prompt.region_text() == f"so\n{GOOD}"


async def test_the_reward_is_the_difference_of_returns(writer: Callable[[], PolicyModel]) -> None:
    seen: list[Any] = []
    policy = writer()
    update = policy.update

    def spy(samples: Any, advantages: Any, *rest: Any, **more: Any) -> Any:
        seen.extend(zip(samples, advantages, strict=True))
        return update(samples, advantages, *rest, **more)

    policy.update = spy  # type: ignore[method-assign]
    await train(policy, dataclasses.replace(SMALL, steps=4, group=8, advantage="dr_grpo"))
    groups = [seen[i : i + 8] for i in range(0, len(seen), 8)]
    assert len(groups) == 8
    for group in groups:
        gains = [float(sample.text.strip() == GOOD) for sample, _ in group]
        expected = [gain - sum(gains) / 8 for gain in gains]
        assert [advantages[0] for _, advantages in group] == pytest.approx(expected)
    assert any(len({s.text.strip() == GOOD for s, _ in group}) == 2 for group in groups)


@pytest.mark.long
async def test_retries_in_use_are_worth_what_the_model_has_learned(
    writer: Callable[[], PolicyModel],
) -> None:
    """The contest on the lake: the same retries with the untrained model's reflections lose, and so does a single attempt."""
    model, env = lake()
    config = dataclasses.replace(SMALL, steps=24, group=8, tasks=3, in_use=True)
    found, run = await train(writer(), config, env=env, model=model)
    assert found.system is not None and found.prompt == START
    fresh = MemoryRun({"task": model})
    untrained = await retrying(env, writer(), config).evaluate(fresh, START, env.validation)
    system = deploy(env, writer(), run.kept[found.system], config)
    trained = await system.evaluate(fresh, START, env.validation)
    assert [rollout.reward for rollout in trained] == [1.0] * 3
    assert [rollout.reward for rollout in untrained] == [0.0] * 3
    assert {(r.parts["first"], r.parts["retries"], r.prompt_id) for r in trained} == {(0.0, 1.0, START.id)}
    logged: list[Any] = [value for name, value in run.logged if name == "validated"]
    assert [(v.get("system"), v["validation"]) for v in logged] == [(None, 0.0), (found.system, 1.0)]


class Advises:
    """Writes the next of some texts about each failed episode; notes what it read."""

    calls = 0

    def __init__(self, *texts: str) -> None:
        self.texts, self.read = list(texts), list[str]()

    async def act(self, run: Run, observations: Any, sample: int = 0) -> list[ActorAction]:
        self.read += [one.messages[0].content for one in observations]
        text = self.texts.pop(0)
        record = Sample(text, (), (), (), (), True).to_json()
        return [ActorAction(text, record=record) for _ in observations]


async def test_a_failed_episode_is_tried_again_with_all_reflections_and_a_solved_one_is_not() -> None:
    model, env = lake()
    advises = Advises("a", GOOD, "never")
    system = as_environment_type(env, Retrying, reflector=advises, retries=3)
    alone = await env.evaluate(MemoryRun({"task": model}), START, env.train)
    rollouts = await system.evaluate(MemoryRun({"task": model}), START, env.train)
    assert [r.reward for r in alone] == [0.0] * 3 and [r.reward for r in rollouts] == [1.0] * 3
    assert {(r.parts["first"], r.parts["retries"]) for r in rollouts} == {(0.0, 2.0)}
    assert len(advises.read) == 6 and advises.texts == ["never"], "two rounds, and none for what is solved"
    assert all("Advised before: a" in text for text in advises.read[3:])
    assert system.calls == 4 * env.calls  # type: ignore[attr-defined]


def test_retries_in_use_need_a_world_that_tells_the_return() -> None:
    _, env = lake()
    check(env, dataclasses.replace(SMALL, in_use=True))
    with pytest.raises(UsageError, match="in_use=true needs a world"):
        check(small(obeys).env, dataclasses.replace(SMALL, in_use=True))
    check(small(obeys).env, SMALL)


async def test_what_is_solved_is_not_reflected_on(writer: Callable[[], PolicyModel]) -> None:
    made = small(lambda request: "yes", 8)
    policy = writer()
    found, run = await train(policy, env=made.env, model=made.model)
    assert {(step["first"], step["gain"]) for step in steps(run)} == {(1.0, 0.0)}
    assert policy.updates == 0 and found.prompt == START


async def test_a_second_retry_goes_on_from_the_first(writer: Callable[[], PolicyModel]) -> None:
    asked: list[str] = []

    def grows(request: Request) -> str:
        asked.append(request.messages[0].content)
        return "no"

    made = small(grows, 8)
    config = dataclasses.replace(SMALL, steps=1, retries=2, group=2, tasks=1)
    await train(writer(), config, env=made.env, model=made.model)
    lines = [len(text.split("\n")) for text in asked[4:9]]
    assert lines == [1, 2, 2, 3, 3], "the start, then one reflection, then two"


async def test_the_warm_up_imitates_what_helped(writer: Callable[[], PolicyModel]) -> None:
    plain = writer()
    imitated: list[Any] = []
    imitate = plain.imitate

    def spy(pairs: Any, settings: Any) -> Any:
        imitated.append(list(pairs))
        return imitate(pairs, settings)

    plain.imitate = spy  # type: ignore[method-assign]
    config = dataclasses.replace(SMALL, steps=8, group=16, tasks=4, warmup=8)
    _, run = await train(plain, config)
    texts = [text for pairs in imitated for _, text in pairs]
    assert len(imitated) == 8 and texts and all(GOOD in text.split() for text in texts)
    gains = [step["gain"] for step in steps(run)]
    assert gains[-1] > gains[0] + 0.2, gains


@pytest.mark.parametrize("settings", [{"advantage": "dr_grpo"}, {"advantage": "rloo"}])
async def test_the_algorithm_is_a_setting(
    writer: Callable[[], PolicyModel], settings: Mapping[str, Any]
) -> None:
    policy = writer()
    await train(policy, dataclasses.replace(SMALL, steps=2, **settings))
    assert policy.updates == 2


class TestConformance(MethodConformance):
    """The suite of all methods, with a small talking model as the policy."""

    method = "retroformer"
    settings = {"steps": 2}  # noqa: RUF012
    seeds = (0,)
    limits = (60, 300)

    @pytest.fixture(autouse=True)
    def policy(self, writer: Callable[[], PolicyModel]) -> None:
        self.writer = writer

    def run(
        self, run: MeteredRun, env: Environment | None = None, settings: Mapping[str, Any] | None = None
    ) -> Candidate:
        method = self.load()
        fixed = {"group": 3, "tasks": 2, "max_tokens": 8, "finalists": 2, "steps": 5}
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
        super().__init__(obeys)
        self.last, self.texts = last, list[str]()

    async def generate(self, request: Request) -> Any:
        if self.asked == self.last:
            raise Killed
        self.texts.append(" | ".join(m.content for m in request.messages))
        return await super().generate(request)


@pytest.mark.parametrize("segment", [0.0, pytest.param(1e9, marks=pytest.mark.long)])
async def test_a_run_that_is_killed_anywhere_ends_the_same_and_pays_nothing_twice(
    writer: Callable[[], PolicyModel], tmp_path: Path, segment: float
) -> None:
    config = dataclasses.replace(SMALL, steps=4, group=6, warmup=1)

    async def attempt_run(folder: Path, model: Mortal) -> tuple[Candidate, bytes]:
        env = small(obeys, 8).env
        core = open_core(folder, model)  # type: ignore[arg-type]
        core.segment_seconds = segment
        run: Run = run_of(core)
        policy = writer()
        try:
            return await retroformer(run, env, policy, START, config), policy.save()
        finally:
            await close(core)

    whole = Mortal(-1)
    expected = await attempt_run(tmp_path / "whole", whole)
    paid: list[str] = []
    for last in (0, 3, 7, 2, 5):
        mortal = Mortal(last)
        with pytest.raises(Killed):
            await attempt_run(tmp_path / "killed", mortal)
        paid += mortal.texts
    survivor = Mortal(-1)
    assert await attempt_run(tmp_path / "killed", survivor) == expected, "weights and all"
    assert sorted(paid + survivor.texts) == sorted(whole.texts)
