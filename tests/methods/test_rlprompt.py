"""RLPrompt on a small simulated task whose best prompt is known."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from scipy import stats  # noqa: E402
from tests.engine.world import close, open_core, run_of  # noqa: E402
from tests.rl.tiny import START, TinyBody, WordsModel, World, words_world  # noqa: E402
from tests.rl.tinylm import START as WRITES  # noqa: E402
from tests.rl.tinylm import WORDS, open_model, word_task  # noqa: E402

import whet  # noqa: E402
from whet.environments.environment import Environment  # noqa: E402
from whet.errors import UsageError  # noqa: E402
from whet.methods.random_search import Config as RandomConfig  # noqa: E402
from whet.methods.random_search import random_search  # noqa: E402
from whet.methods.rlprompt import Config, check, entropy_goal, rlprompt, warmer, z_scores  # noqa: E402
from whet.models.language_model import LanguageModel  # noqa: E402
from whet.models.scripted import load as simulator  # noqa: E402
from whet.prompt import Prompt  # noqa: E402
from whet.run import MemoryRun, Run  # noqa: E402
from whet.search.archive import Candidate  # noqa: E402
from whet.testing.methods import MethodConformance  # noqa: E402
from whet.testing.runs import MeteredRun  # noqa: E402
from whet.testing.simulated_task import review_world  # noqa: E402
from whet.types import Completion, Request, Reward, Scores, Usage  # noqa: E402

SMALL = Config(k=8, length=3, steps=10, vocabulary=60, lr=0.01, finalists=4)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny networks gain nothing from threads and lose much when the machine is busy."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class WithBody:
    """The model of the conformance suite's world, with a body to lend."""

    def __init__(self) -> None:
        self.inner = simulator(
            "labels", {"words": "waab,waac,waad,waae", "harmful": "waba,wabb", "harm": "0.1"}
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def policy_body(self) -> TinyBody:
        return TinyBody(2000)


class TestConformance(MethodConformance):
    method = "rlprompt"
    settings = MappingProxyType({"k": 4, "length": 3, "steps": 4, "vocabulary": 60, "finalists": 2})

    def environment(self) -> Environment:
        return review_world(WithBody(), scores=True)  # type: ignore[arg-type]


def steps(run: MemoryRun) -> list[Any]:
    return [value for name, value in run.logged if name == "step"]


async def learn(world: World, config: Config = SMALL, seed: int = 0) -> tuple[Candidate, MemoryRun]:
    run = MemoryRun({"task": world.model}, seed)
    return await rlprompt(run, world.env, None, world.start, config), run


def scored_prompts(world: World) -> int:
    """How many prompts were scored on the training examples."""
    return sum(prompts for prompts, inputs in world.model.asked if inputs == len(world.env.train))


def test_z_scores_by_hand() -> None:
    # mean 2, population std 1
    assert z_scores([1.0, 3.0]) == pytest.approx([-1 / 1.0001, 1 / 1.0001])


def test_equal_rewards_give_no_advantage() -> None:
    assert z_scores([0.3, 0.3, 0.3]) == [0.0, 0.0, 0.0]


def test_entropy_goal_falls_in_a_line_and_stays() -> None:
    assert entropy_goal(0.0, 0.5, 100) == math.log(100)
    assert entropy_goal(0.45, 0.5, 100) == pytest.approx(0.75 * math.log(100))
    assert entropy_goal(0.9, 0.5, 100) == entropy_goal(1.0, 0.5, 100) == pytest.approx(0.5 * math.log(100))


def test_temperature_follows_the_goal_and_is_damped() -> None:
    assert warmer(1.0, entropy=2.0, before=2.0, goal=3.0, words=100) > 1.0
    assert warmer(1.0, entropy=3.0, before=3.0, goal=2.0, words=100) < 1.0
    assert warmer(1.0, entropy=2.0, before=1.0, goal=3.0, words=100) < warmer(1.0, 2.0, 2.0, 3.0, 100)
    assert warmer(10.0, 0.0, 0.0, 1e3, 100) == 10.0 and warmer(0.1, 1e3, 1e3, 0.0, 100) == 0.1


async def test_a_prompt_is_scored_once() -> None:
    world = words_world()
    _, run = await learn(world, dataclasses.replace(SMALL, length=1, vocabulary=12, steps=20))
    assert len(steps(run)) == 20
    assert scored_prompts(world) <= 12
    assert sum(step["distinct"] for step in steps(run)) > 12, "prompts came back and were not scored again"


async def test_uniform_label_probabilities_earn_no_gap() -> None:
    class Undecided(WordsModel):
        async def score(
            self,
            prompts: Sequence[Prompt],
            inputs: Sequence[Mapping[str, str]],
            continuations: Sequence[Sequence[str]],
        ) -> Scores:
            found = await super().score(prompts, inputs, continuations)
            return Scores(np.zeros_like(found.logprobs), found.tokens)

    world = words_world()
    env = dataclasses.replace(world.env, model=Undecided(world.model.body))
    run = MemoryRun({"task": env.model})
    found = await rlprompt(run, env, None, world.start, dataclasses.replace(SMALL, reward="gap"))
    assert {step["best"] for step in steps(run)} == {0.0}
    assert found.prompt == world.start, "nothing is better, so the start stays"


@pytest.mark.parametrize("reward", ["gap", "likelihood", "accuracy+likelihood", "reward"])
async def test_trains_for_the_signal_that_is_asked_for(reward: Any) -> None:
    world = words_world()
    _, run = await learn(world, dataclasses.replace(SMALL, reward=reward))
    signals: list[float] = []
    logged: list[Any] = [value for name, value in run.logged if name == "validated"]
    for value in logged[1:]:
        parts = {"reward": value["train"], **value["parts"]}
        signals.append(sum(parts[name] for name in reward.split("+")))
    assert max(signals) >= steps(run)[-1]["best"] > min(signals), "the best of training are the finalists"


@pytest.mark.long
async def test_entropy_is_steered_and_the_policy_does_not_collapse() -> None:
    world = words_world()
    config = Config(k=16, length=3, steps=120, vocabulary=200, top_k=200, lr=0.01, entropy=0.5, finalists=4)
    for seed in range(2):
        _, run = await learn(world, config, seed)
        entropy = np.array([step["entropy"] for step in steps(run)]) / math.log(200)
        assert entropy[0] == pytest.approx(1.0, abs=1e-3)
        assert np.abs(entropy[-20:].mean() - 0.5) < 0.15
        assert entropy.min() > 0.3, "does not collapse"
        assert np.diff(entropy).max() < 0.15, "does not jump back"
        assert min(step["distinct"] for step in steps(run)) > 8


@pytest.mark.long
async def test_finds_better_prompts_than_random_search_with_as_many() -> None:
    """Strength of the result on eight seeds, paired by seed: the 95% interval of the difference lies above zero."""
    differences, shares = [], []
    for seed in range(8):
        world = words_world()
        config = Config(k=8, length=3, steps=100, vocabulary=200, top_k=200, lr=0.02, finalists=8)
        learned, _ = await learn(world, config, seed)
        n = scored_prompts(world)
        control = words_world()
        settings = RandomConfig(n=n, space="tokens", length=3, vocabulary=200, finalists=8)
        run = MemoryRun({"task": control.model}, seed)
        drawn = await random_search(run, control.env, None, control.start, settings)
        assert scored_prompts(control) >= n
        strength = world.model.strength(learned.prompt.region_text())
        differences.append(strength - control.model.strength(drawn.prompt.region_text()))
        shares.append(strength / world.model.optimum)
    interval = stats.t.interval(0.95, len(differences) - 1, np.mean(differences), stats.sem(differences))
    assert interval[0] > 0, f"differences {np.round(differences, 3)}"
    assert np.mean(shares) > 0.7, f"shares of the optimum {np.round(shares, 3)}"


@pytest.mark.parametrize(
    "settings", [{"update": "sql"}, {"update": "sql", "replay": 8}, {"replay": 8}], ids=str
)
async def test_every_update_learns_to_write_better_prompts(settings: dict[str, Any]) -> None:
    """Mean strength of what is sampled, first and last tenth of the steps."""
    world = words_world()
    config = dataclasses.replace(SMALL, steps=80, vocabulary=200, lr=0.02, **settings)
    _, run = await learn(world, config)
    rewards = [step["reward"] for step in steps(run)]
    assert np.mean(rewards[-8:]) > np.mean(rewards[:8]) + 0.3, (rewards[:8], rewards[-8:])


class FewWords(TinyBody):
    """A body that gives all its words where more are asked for, as those of hf/ models do."""

    def vocabulary(self, n: int) -> list[str]:
        return self.all[:n]


async def test_a_vocabulary_that_is_smaller_than_asked_for_is_cut_and_told() -> None:
    world = words_world(size=40)
    world.model.body = FewWords(40)
    _, run = await learn(world, dataclasses.replace(SMALL, vocabulary=60))
    assert ("vocabulary", {"words": 40, "asked": 60}) in run.logged
    _, run = await learn(world, dataclasses.replace(SMALL, vocabulary=40))
    assert "vocabulary" not in dict(run.logged)


@dataclasses.dataclass(frozen=True)
class Says:
    """The share of the answer's words that are among some; what is asked for is told by no label and no target."""

    words: frozenset[str]
    name: str = "says"
    low: float = 0.0
    high: float = 1.0
    needs: frozenset[str] = frozenset()

    async def grade(self, run: Run, example: Any, completion: Completion) -> Reward:
        """Share of the words."""
        said = completion.text.split()
        return Reward(sum(word in self.words for word in said) / max(1, len(said)))


async def test_a_task_without_labels_is_trained_for_its_own_reward(tmp_path: Path) -> None:
    """A small random model that writes four words: prompts come to make it write the words that are wanted, more than random
    words do, with as many prompts scored."""
    model = open_model("llama", tmp_path)
    env = word_task(model, scores=False, train=8, validation=8)
    env = dataclasses.replace(
        env,
        reward=Says(frozenset(WORDS[::2])),
        generation=dataclasses.replace(env.generation, max_tokens=4),
    )
    begin = Prompt.parse(WRITES)
    run = MeteredRun({"task": model})
    config = Config(k=8, length=3, steps=40, vocabulary=60, lr=0.02, finalists=4)
    check(env, config)
    best = await rlprompt(run, env, None, begin, config)
    rewards = [value["reward"] for name, value in run.logged if name == "step"]  # type: ignore[index, call-overload]
    assert np.mean(rewards[-4:]) > np.mean(rewards[:4]) + 0.1, (rewards[:4], rewards[-4:])
    start, found = await env.score(MemoryRun({"task": model}), [begin, best.prompt], env.validation)
    assert found.mean > start.mean
    with pytest.raises(UsageError, match="reward=gap needs"):
        check(env, dataclasses.replace(config, reward="gap"))


async def test_text_style_transfer_compares_the_best_samples_input_by_input(tmp_path: Path) -> None:
    """A small random model, the settings of the paper's style transfer in small; what they are worth is not tested."""
    model = open_model("llama", tmp_path)
    env = word_task(model, scores=False, train=4, validation=4)
    warm = dataclasses.replace(env.generation, max_tokens=3, temperature=1.0)
    env = dataclasses.replace(env, reward=Says(frozenset(WORDS[::2])), generation=warm)
    config = Config(
        k=4, length=2, steps=3, vocabulary=40, finalists=2, samples=4, parts=2, compare="inputs", replay=2
    )
    check(env, config)
    run = MeteredRun({"task": model})
    best = await rlprompt(run, env, None, Prompt.parse(WRITES), config)
    steps = [value for name, value in run.logged if name == "step"]
    assert len(steps) == 3 and best.prompt.slots == Prompt.parse(WRITES).slots
    assert run.spent["task"] <= 4 * (1 + 4) + 4 * 4 * (3 * 4 + 1), (
        "validations of one answer, texts of four samples an input"
    )
    with pytest.raises(UsageError, match="compare=inputs is for a model that writes"):
        check(words_world().env, dataclasses.replace(SMALL, compare="inputs"))


async def test_a_model_without_a_body_is_refused() -> None:
    env = review_world(scores=True)
    with pytest.raises(UsageError, match="embedded/encoder"):
        await rlprompt(MemoryRun(), env, None, Prompt.parse(START), SMALL)
    with pytest.raises(UsageError, match="embedded/encoder"):
        check(env, SMALL)


async def test_a_signal_that_the_task_does_not_have_is_refused() -> None:
    world = words_world()
    env = dataclasses.replace(world.env, scores=False)
    with pytest.raises(UsageError, match="reward=gap needs"):
        await rlprompt(MemoryRun(), env, None, world.start, dataclasses.replace(SMALL, reward="gap"))


class Killed(Exception):
    """Stands for the death of the process."""


class Mortal(WordsModel):
    """Dies at the call with the number `last`."""

    def __init__(self, body: TinyBody, last: int) -> None:
        super().__init__(body)
        self.last = last

    async def score(
        self,
        prompts: Sequence[Prompt],
        inputs: Sequence[Mapping[str, str]],
        continuations: Sequence[Sequence[str]],
    ) -> Scores:
        if len(self.asked) == self.last:
            raise Killed
        return await super().score(prompts, inputs, continuations)


@pytest.mark.parametrize("segment", [0.0, pytest.param(1e9, marks=pytest.mark.long)])
async def test_a_run_that_is_killed_anywhere_ends_the_same_and_pays_nothing_twice(
    tmp_path: Path, segment: float
) -> None:
    config = dataclasses.replace(SMALL, steps=16, vocabulary=200)

    async def attempt(folder: Path, model: LanguageModel) -> Candidate:
        world = words_world()
        core = open_core(folder, model)  # type: ignore[arg-type]
        core.segment_seconds = segment
        run: Run = run_of(core)
        try:
            return await rlprompt(run, dataclasses.replace(world.env, model=model), None, world.start, config)
        finally:
            await close(core)

    whole = WordsModel(TinyBody())
    expected = await attempt(tmp_path / "whole", whole)
    paid: list[tuple[int, int]] = []
    for last in (0, 1, 3, 1, 6, 2):
        mortal = Mortal(TinyBody(), last)
        with pytest.raises(Killed):
            await attempt(tmp_path / "killed", mortal)
        paid += mortal.asked
    last_model = WordsModel(TinyBody())
    assert await attempt(tmp_path / "killed", last_model) == expected
    assert paid + last_model.asked == whole.asked


class TwoTastes:
    """A model whose answer is the share of the prompt's words that its input likes: made-up words of the first or of the
    second half of the vocabulary. No prompt serves both kinds of inputs."""

    address, simulated, local, can_generate, can_score = "test/tastes", True, True, True, False

    def __init__(self, size: int = 40) -> None:
        self.body = TinyBody(size)
        self.liked = {"alpha": set(self.body.all[: size // 2]), "beta": set(self.body.all[size // 2 :])}

    def policy_body(self) -> TinyBody:
        return self.body

    def vocabulary(self, n: int) -> list[str]:
        return self.body.all[:n]

    async def generate(self, request: Request) -> list[Completion]:
        words = request.messages[-1].content.split()
        liked = self.liked[words[-1].rstrip("0123456789")]
        known = [word for word in words if word in self.body.all]
        share = sum(word in liked for word in known) / max(1, len(known))
        return [Completion(f"{share:.3f}", usage=Usage(1, 1))]

    def count_tokens(self, text: str) -> int:
        return len(text.split())

    async def close(self) -> None:
        return None


def number_in(row: Any, said: str) -> float:
    return float(said) if said.replace(".", "").isdigit() else 0.0


def tastes() -> whet.Task:
    rows = [{"input": f"{kind}{i}"} for i in range(16) for kind in ("alpha", "beta")]
    return whet.Task.of(
        "<!-- whet:begin -->\nPlease.\n<!-- whet:end -->\n{{input}}", data=rows, reward=number_in
    )


def sharpened(folder: Path, **settings: Any) -> Any:
    model: Any = TwoTastes()
    shape = {"k": 16, "length": 3, "steps": 40, "vocabulary": 40, "lr": 0.01, "finalists": 4, **settings}
    return whet.optimize(tastes(), lm=model, method="rlprompt", settings=shape, run=folder, progress=False)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_policy_that_reads_the_input_writes_a_prompt_for_it(tmp_path: Path) -> None:
    """No prompt serves all inputs, so that one prompt earns half. The same command again finds the system that was deployed."""
    each = sharpened(tmp_path / "each", condition="input", inputs=4)
    assert each.best.test.mean > 0.8, "a prompt for each kind of input"
    assert each.best.prompt.text == each.baseline.prompt.text, "the result is the policy, not a text"
    assert sharpened(tmp_path / "each", condition="input", inputs=4).best.test.mean == each.best.test.mean
    assert sharpened(tmp_path / "one", examples=8).best.test.mean == pytest.approx(0.5, abs=0.15)


def test_settings_for_one_prompt_are_refused_where_each_input_has_its_own(tmp_path: Path) -> None:
    for wrong in ({"compare": "inputs"}, {"replay": 2}, {"reward": "gap"}):
        with pytest.raises(UsageError, match="condition=input"):
            sharpened(tmp_path / "run", condition="input", **wrong)
