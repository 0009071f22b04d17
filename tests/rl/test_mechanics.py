"""The helper that applies the mechanics: every setting does what its paper says, and learning follows rewards."""

from __future__ import annotations

import dataclasses
import json
import typing
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="writers need torch: pip install 'whet[train]'")
pytest.importorskip("transformers", reason="writers need transformers: pip install 'whet[train]'")
pytest.importorskip("peft", reason="writers need peft: pip install 'whet[train]'")

from tests.rl.tiny_llama import save  # noqa: E402 - after the checks for extras

from whet.errors import UsageError  # noqa: E402
from whet.methods import Method, MethodEntry, configure  # noqa: E402
from whet.rl import advantages, curricula, guided_rollouts  # noqa: E402
from whet.rl.policy_model import LoraSettings, PolicyModel, Sample  # noqa: E402
from whet.rl.trainer import Trainer, Training, token_advantages  # noqa: E402
from whet.rl.training_settings import Advantage  # noqa: E402
from whet.run import MemoryRun  # noqa: E402
from whet.testing.simulated_task import review_world  # noqa: E402
from whet.types import Example, Message  # noqa: E402

ASK = [Message("user", "write in capitals the words a b c")]
SAY = [Message("user", "say it twice")]
EXAMPLES = [Example(f"e{i}", {"input": f"words {i}"}, text=f"words {i}") for i in range(12)]


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
    found, returns = token_advantages(Training(advantage=kind), writer, groups, REWARDS)
    assert returns is None
    assert found == spread(groups, [estimate(rewards) for rewards in REWARDS])


def test_equal_rewards_teach_only_by_entropy(writer: PolicyModel, groups: Any) -> None:
    equal = [[0.0] * 3, [1.0] * 3]
    found, _ = token_advantages(Training(advantage="grpo"), writer, groups, equal)
    assert not any(a for row in found for a in row)
    found, _ = token_advantages(Training(advantage="rl_zvp", zvp=0.1), writer, groups, equal)
    entropies = writer.measured([s for g in groups for s in g])[1]
    for row, h in zip(found[:3], entropies[:3], strict=True):
        assert row == pytest.approx([-0.1 * (max(h) - one) for one in h])
    for row, h in zip(found[3:], entropies[3:], strict=True):
        assert row == pytest.approx([0.1 * one for one in h])


def test_reinforce_pp_and_its_baseline_whiten_the_batch(writer: PolicyModel, groups: Any) -> None:
    for kind in ("reinforce++", "reinforce++-baseline"):
        found, _ = token_advantages(Training(advantage=kind), writer, groups, REWARDS)
        flat = [a for row in found for a in row]
        assert sum(flat) == pytest.approx(0, abs=1e-9)
        assert sum(a * a for a in flat) / (len(flat) - 1) == pytest.approx(1)


def test_gae_gives_the_critic_its_returns(writer: PolicyModel, groups: Any) -> None:
    found, returns = token_advantages(Training(advantage="gae", gamma=0.5, lam=1.0), writer, groups, REWARDS)
    assert returns is not None
    for row, sample, reward in zip(
        returns, [s for g in groups for s in g], [r for g in REWARDS for r in g], strict=True
    ):
        n = len(sample.tokens)
        assert row == pytest.approx([reward * 0.5 ** (n - 1 - t) for t in range(n)])
    assert sum(a for row in found for a in row) == pytest.approx(0, abs=1e-9)


def test_remax_needs_the_greedy_rewards(writer: PolicyModel, groups: Any) -> None:
    config = Training(advantage="remax")
    found, _ = token_advantages(config, writer, groups, REWARDS, greedy=[0.5, 0.2])
    assert [row[0] for row in found] == pytest.approx([0.5, -0.5, 0.0, 0.0, 0.0, 0.6])
    with pytest.raises(UsageError, match="greedy"):
        token_advantages(config, writer, groups, REWARDS)


def test_the_divergence_can_be_taken_off_the_reward(folder: Path) -> None:
    writer = PolicyModel.open(f"hf/{folder}", LoraSettings(rank=2), seed=1)
    writer.imitate([(ASK, "a b")] * 2, Training(lr=0.05).update())
    sample = writer.sample([ASK], max_tokens=4, seed=1)[0][0]
    config = Training(advantage="remax", kl=0.5, kl_in="reward")
    found, _ = token_advantages(config, writer, [[sample]], [[1.0]], greedy=[0.0])
    ref = writer.measured([sample], reference=True)[0][0]
    costs = [0.5 * (old - r) for old, r in zip(sample.logprobs, ref, strict=True)]
    expected = [1.0 - sum(costs[t:]) for t in range(len(costs))]
    assert found[0] == pytest.approx(expected, abs=1e-4)
    assert config.update().kl == 0.0 and Training(kl=0.5).update().kl == 0.5


def test_rewards_may_stand_at_tokens(writer: PolicyModel, groups: Any) -> None:
    sample = groups[0][0]
    n = len(sample.tokens)
    rewards = [[[1.0, 2.0] + [0.0] * (n - 2)]]
    config = Training(advantage="remax")
    found, _ = token_advantages(config, writer, [[sample]], rewards, greedy=[0.0])
    assert found[0][:2] == [3.0, 2.0] and not any(found[0][2:])


def test_tokens_of_others_get_no_advantage(writer: PolicyModel, groups: Any) -> None:
    mixed = writer.converse(groups[0], [[Message("user", "again")]] * 3, max_tokens=3, seed=4)
    for kind in typing.get_args(Advantage):
        config = Training(advantage=kind)
        found, _ = token_advantages(config, writer, [mixed], [[1.0, 0.0, 0.4]], greedy=[0.1])
        for row, sample in zip(found, mixed, strict=True):
            assert len(row) == len(sample.tokens)
            assert not any(a for a, own in zip(row, sample.own, strict=True) if not own)
        assert any(a for row in found for a in row)


def test_dro_takes_its_value_from_the_group_or_from_the_critic(writer: PolicyModel, groups: Any) -> None:
    config = Training(loss="dro", kl=0.1)
    found, returns = token_advantages(config, writer, groups, REWARDS)
    assert returns is None  # no log-ratio yet: r - mean
    assert [row[0] for row in found] == pytest.approx([0.5, -0.5, 0.0, -0.2, -0.2, 0.4], abs=1e-5)
    single = [[groups[0][0]], [groups[1][0]]]
    found, returns = token_advantages(config, writer, single, [[1.0], [0.2]])
    assert [row[0] for row in found] == [1.0, 0.2]  # the critic knows nothing yet
    assert returns is not None and [row[0] for row in returns] == pytest.approx([1.0, 0.2], abs=1e-5)
    with pytest.raises(UsageError, match="tau"):
        Trainer(writer, Training(loss="dro"))


@pytest.mark.long
@pytest.mark.parametrize("kind", typing.get_args(Advantage))
def test_every_advantage_learns_which_texts_are_rewarded(folder: Path, kind: Any) -> None:
    learner = PolicyModel.open(f"hf/{folder}", LoraSettings(rank=0), seed=1)
    config = Training(
        advantage=kind,
        lr=1e-2,
        group=16,
        max_tokens=3,
        zvp=0.01,
        kl=0.01,
        kl_in="loss",
        epochs=2,
        minibatch=16,
    )
    mechanics = Trainer(learner, config)
    means = []
    for number in range(20):
        group = learner.sample([ASK], config.group, max_tokens=3, seed=number)
        rewards = [[float("good" in s.text.split()) for s in group[0]]]
        means.append(mechanics.learn(group, rewards, greedy=[0.2])["reward"])
    assert sum(means[-4:]) / 4 > sum(means[:4]) / 4 + 0.4


async def test_samples_are_effects(writer: PolicyModel) -> None:
    mechanics = Trainer(writer, Training(group=2, max_tokens=4))
    run = MemoryRun(seed=3)
    recorded: list[Any] = []

    async def effect(name: str, fn: Any, args: Any = None, **_: Any) -> Any:
        value = json.loads(json.dumps(await fn()))
        recorded.append((name, value))
        return value

    run.effect = effect  # type: ignore[method-assign]
    groups = await mechanics.sample(run, [ASK, SAY])
    assert [len(group) for group in groups] == [2, 2]
    assert groups == await Trainer(writer, mechanics.config).sample(MemoryRun(seed=3), [ASK, SAY])
    turns = await mechanics.converse(run, groups[0], [[Message("user", "again")]] * 2, max_tokens=2)
    assert all(turn.tokens[: len(s.tokens)] == s.tokens for turn, s in zip(turns, groups[0], strict=True))
    assert [name for name, _ in recorded] == ["sample", "converse"]
    assert [Sample.from_json(v) for v in recorded[1][1]] == turns


async def test_erpo_heats_questions_that_are_always_right(folder: Path) -> None:
    learner = PolicyModel.open(f"hf/{folder}", LoraSettings(rank=2), seed=1)
    mechanics = Trainer(learner, Training(group=2, max_tokens=3, residual="erpo", advantage="dr_grpo"))
    for _ in range(2):
        groups = await mechanics.sample(MemoryRun(seed=1), [ASK, SAY], keys=["ask", "say"])
        figures = mechanics.learn(groups, [[1.0, 1.0], [0.0, 0.0]], keys=["ask", "say"])
        assert figures["grad_norm"] > 0 and figures["equal_groups"] == 1.0
    assert mechanics.temperature("ask") == pytest.approx(1.2) and mechanics.temperature("say") == 1.0
    groups = await mechanics.sample(MemoryRun(seed=1), [ASK, SAY], keys=["ask", "say"])
    assert [group[0].temperature for group in groups] == pytest.approx([1.2, 1.0])
    mechanics.learn(groups, [[1.0, 0.0], [1.0, 1.0]], keys=["ask", "say"])
    assert mechanics.temperature("ask") == 1.0 and mechanics.temperature("say") == pytest.approx(1.1)


def test_guide_puts_hinted_texts_in_the_place_of_hopeless_ones(folder: Path) -> None:
    learner = PolicyModel.open(f"hf/{folder}", LoraSettings(rank=2), seed=1)
    mechanics = Trainer(learner, Training(group=2, hints="guide"))
    groups = learner.sample([ASK, SAY, ASK], 2, max_tokens=4, seed=1)
    rewards = [[0.0, 0.1], [1.0, 0.0], [0.0, 0.0]]
    again = mechanics.hopeless(rewards)
    assert again == [0, 2]
    hinted = learner.sample([SAY, SAY], 2, max_tokens=4, seed=2)
    kept, paid, marks = mechanics.guided(
        groups, rewards, [ASK, SAY, ASK], again, (hinted, [[1.0, 0.0], [1.0, 1.0]])
    )
    assert marks == [True, False, False]  # the second try of the last one succeeded throughout
    assert [s.tokens for s in kept[0]] == [s.tokens for s in hinted[0]]
    assert kept[0][0].prompt == learner.read(ASK) and kept[1:] == groups[1:]
    assert paid == [[1.0, 0.0], [1.0, 0.0], [0.0, 0.0]]
    figures = mechanics.learn(kept, paid, hinted=marks)
    assert figures["grad_norm"] > 0
    assert Trainer(learner, Training()).hopeless(rewards) == []
    assert guided_rollouts.needs_hint([0.0]) == [0]


def test_mopps_learns_difficulties_that_survive_a_resume(folder: Path) -> None:
    learner = PolicyModel.open(f"hf/{folder}", LoraSettings(rank=2), seed=1)
    config = Training(curriculum="mopps")
    mechanics = Trainer(learner, config, EXAMPLES)
    easy, middling = EXAMPLES[:8], EXAMPLES[8:]
    for _ in range(30):
        mechanics.observe(easy, [1.0] * 8, 16)
        mechanics.observe(middling, [0.5] * 4, 16)
    blob = learner.save()
    learner.notes.clear()
    learner.load(blob)
    run = MemoryRun(seed=5)
    assert {e.id for e in mechanics.choose(run.rng, 4)} == {e.id for e in middling}
    assert learner.notes["mechanics"]["counts"]["e0"] == [1.0 + 480, 1.0]


def test_pcl_learns_difficulties_from_words(writer: PolicyModel) -> None:
    mechanics = Trainer(writer, Training(curriculum="pcl"), EXAMPLES)
    for _ in range(300):
        mechanics.observe(EXAMPLES[:8], [1.0] * 8, 4)
        mechanics.observe(EXAMPLES[8:], [0.5] * 4, 4)
    chosen = mechanics.choose(MemoryRun(seed=1).rng, 4)
    assert len({e.id for e in chosen} & {e.id for e in EXAMPLES[8:]}) >= 3


def test_the_uniform_curriculum_takes_all_alike(writer: PolicyModel) -> None:
    mechanics = Trainer(writer, Training(), EXAMPLES)
    assert len({e.id for e in mechanics.choose(MemoryRun(seed=1).rng, 5)}) == 5
    assert len(mechanics.choose(MemoryRun(seed=1).rng, 50)) == 12
    before = json.dumps(writer.notes)
    mechanics.observe(EXAMPLES, [1.0] * 12, 3)
    assert json.dumps(writer.notes) == before


@pytest.mark.parametrize("curriculum", ["uniform", "mopps", "pcl"])
async def test_grading_pays_equal_prompts_once_and_tells_the_curriculum(
    writer: PolicyModel, curriculum: Any
) -> None:
    env = review_world()
    mechanics = Trainer(writer, Training(curriculum=curriculum), env.train)
    run = MemoryRun({"task": env.model}, seed=1)
    from whet.prompt import Prompt
    from whet.testing.simulated_task import SOURCE

    start = Prompt.parse(SOURCE)
    prompts = [start, start.edit("Say positive."), start]
    examples = mechanics.choose(run.rng, 4)
    means = await mechanics.grade(run, env, prompts, examples)
    assert means[0] == means[2]
    expected = [score.mean for score in await env.score(run, prompts, examples)]
    assert means == pytest.approx(expected)
    notes = writer.notes["mechanics"]
    if curriculum == "mopps":
        attempted = {id_: sum(counts) for id_, counts in notes["counts"].items()}
        assert attempted == pytest.approx({e.id: 2 + 2 for e in examples})
    assert any(notes["values"]) == (curriculum == "pcl")


@dataclasses.dataclass(frozen=True)
class Config(Training):
    """Settings of a method for the test below."""

    steps: int = 7
    extra: str = "x"


def test_every_mechanic_is_a_flat_setting_of_a_method() -> None:
    async def coroutine() -> None: ...

    method = Method(MethodEntry("m", "M", "-", "-"), coroutine, Config)
    config = configure(method, {"advantage": "rloo", "curriculum": "mopps", "kl": "0.02", "extra": "y"})
    assert (config.advantage, config.curriculum, config.kl, config.extra, config.steps) == (
        "rloo",
        "mopps",
        0.02,
        "y",
        7,
    )
    with pytest.raises(UsageError, match="advantage is one of"):
        configure(method, {"advantage": "magic"})
    assert config.lora == LoraSettings(8, 16.0)
    assert config.update().length == config.max_tokens and config.update().kl == 0.02
    assert curricula.PRIOR == (1.0, 1.0)
