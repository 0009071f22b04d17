"""AutoPrompt on small models: the contract of a method, what it never proposes, and that gradients help."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from scipy import stats  # noqa: E402
from tests.engine.world import close, open_core, run_of  # noqa: E402
from tests.rl.tiny import TinyBody, WordsModel, words_world  # noqa: E402
from tests.rl.tinylm import MASKED, START, open_model, word_task  # noqa: E402

from whet.environments.environment import Environment  # noqa: E402
from whet.errors import EditRejected, UsageError  # noqa: E402
from whet.methods.autoprompt import Config, autoprompt, check, deploy, sizes  # noqa: E402
from whet.methods.random_search import Config as RandomConfig  # noqa: E402
from whet.methods.random_search import random_search  # noqa: E402
from whet.models.gradients import Gradient, MarkedPrompt, Wanted, word_gradients  # noqa: E402
from whet.prompt import Prompt  # noqa: E402
from whet.run import MemoryRun  # noqa: E402
from whet.search.archive import Candidate, candidate_of  # noqa: E402
from whet.testing.methods import MethodConformance  # noqa: E402
from whet.testing.runs import MeteredRun  # noqa: E402
from whet.testing.simulated_task import ConstantReward, review_world  # noqa: E402

SMALL = Config(iterations=6, length=3, k=4, batch=16, finalists=3)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return open_model("llama", tmp_path_factory.mktemp("llama"))


class TestConformance(MethodConformance):
    method = "autoprompt"
    settings = MappingProxyType({"iterations": 3, "length": 2, "k": 3, "batch": 8, "finalists": 2})

    @pytest.fixture(autouse=True)
    def _model(self, llama: Any) -> None:
        self.model = llama

    def environment(self) -> Environment:
        return review_world(self.model, scores=True)


class Watching:
    """The model, with the words of all prompts that it was asked to score; dies at scoring call `last`."""

    def __init__(self, inner: Any, last: int = -1) -> None:
        self.inner, self.last, self.asked = inner, last, 0
        self.words: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def score(self, prompts: Any, inputs: Any, continuations: Any) -> Any:
        if self.asked == self.last:
            raise Killed
        self.asked += 1
        self.words |= {word for prompt in prompts for word in prompt.region_text().split()}
        return await self.inner.score(prompts, inputs, continuations)


class Killed(Exception):
    """Stands for the death of the process."""


@pytest.mark.parametrize("labels", [{"good": "good", "poor": "poor"}, {"good": "sun", "poor": "moon"}])
async def test_answers_special_tokens_and_capitals_are_never_tried(
    llama: Any, labels: dict[str, str]
) -> None:
    """Hundreds of draws from a few dozen words; the labels' names and what stands for them are answers."""
    model = Watching(llama)
    env = dataclasses.replace(word_task(model), labels=labels)
    config = Config(iterations=25, length=3, k=12, batch=8)
    await autoprompt(MemoryRun(), env, None, Prompt.parse(START), config)
    words = model.words - {"please", "sort"}
    assert len(words) > 15
    assert not words & {*labels, *labels.values(), "Sort", "Please", "[MASK]", "[CLS]"}


async def test_places_are_drawn_and_flips_are_judged_on_another_batch(llama: Any) -> None:
    """A flip that is judged on the rows of its own gradient is judged too well."""
    learned: list[list[str]] = []
    judged: list[list[str]] = []

    class Slopes:
        def __init__(self) -> None:
            self.inner = word_gradients(llama)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inner, name)

        def gradient(self, placed: MarkedPrompt, rows: Sequence[Wanted]) -> Gradient:
            learned.append([row.values["input"] for row in rows])
            return self.inner.gradient(placed, rows)

    class Noting(Watching):
        def word_gradients(self) -> Any:
            return Slopes()

        async def score(self, prompts: Any, inputs: Any, continuations: Any) -> Any:
            if len(prompts) > 1:
                judged.append([values["input"] for values in inputs])
            return await super().score(prompts, inputs, continuations)

    env = word_task(Noting(llama))
    run = MeteredRun({"task": llama})
    config = Config(iterations=20, length=3, k=4, batch=8, finalists=1)
    await autoprompt(run, env, None, Prompt.parse(START), config)
    assert len(learned) == len(judged) == 20
    assert all(sorted(a) != sorted(b) for a, b in zip(learned, judged, strict=True))
    places = [value["place"] for name, value in run.logged if name == "step"]  # type: ignore[index, call-overload]
    assert all(places.count(place) >= 3 for place in range(3))


async def test_if_nothing_is_better_on_validation_the_start_stays(llama: Any) -> None:
    env = dataclasses.replace(word_task(llama), reward=ConstantReward(0.5))
    found = await autoprompt(MemoryRun({"task": llama}), env, None, Prompt.parse(START), SMALL)
    assert found == Candidate(Prompt.parse(START))


async def test_a_masked_model_and_a_target_without_labels_work_too(tmp_path: Path) -> None:
    bert = open_model("bert", tmp_path)
    found = await autoprompt(MemoryRun(), word_task(bert), None, Prompt.parse(MASKED), SMALL)
    assert found.prompt.slots == {"input", "mask"}
    gpt2 = open_model("gpt2", tmp_path / "gpt2")
    env = word_task(gpt2, scores=False)
    env = dataclasses.replace(env, generation=dataclasses.replace(env.generation, max_tokens=2))
    run = MeteredRun({"task": gpt2})
    await autoprompt(run, env, None, Prompt.parse(START), dataclasses.replace(SMALL, iterations=2, k=2))
    assert run.spent["task"] == 2 * (1 + 3) * 16 + 16 * len(
        [1 for name, _ in run.logged if name == "validated"]
    )


async def test_words_for_labels_are_found_where_the_states_show_them(tmp_path: Path) -> None:
    """A masked model and a task of two labels: the words are no words of the prompt, the result says which they are, they are
    charged a call a row, and the deployed environment answers with them as the search did."""
    bert = Watching(open_model("bert", tmp_path))
    env = word_task(bert)
    run = MeteredRun({"task": bert})
    config = dataclasses.replace(SMALL, label_words=3)
    await autoprompt(run, env, None, Prompt.parse(MASKED), config)
    (words,) = [value for name, value in run.logged if name == "label_words"]
    assert sorted(words) == ["good", "poor"] and all(len(set(own)) == 3 for own in words.values())  # type: ignore[arg-type, attr-defined]
    assert not {word for own in words.values() for word in own} & (bert.words - {"please", "sort"})  # type: ignore[union-attr]
    validated: list[Any] = [value for name, value in run.logged if name == "validated"]
    assert run.spent["task"] == len(env.train) + 6 * (1 + 1 + 4) * 16 + len(validated) * 16
    assert [one.get("system") is None for one in validated] == [True, *[False] * (len(validated) - 1)]
    for one in validated[1:]:
        candidate = candidate_of(one)
        assert candidate.system is not None
        there = deploy(env, None, run.kept[candidate.system], config)
        (score,) = await there.score(MemoryRun(), [candidate.prompt], env.validation)
        assert score.mean == pytest.approx(one["validation"])


@pytest.mark.parametrize(
    ("family", "words"), [("llama", "needs a masked model"), ("bert", "needs a task with labels")]
)
async def test_words_for_labels_that_cannot_be_found_are_refused(
    tmp_path: Path, family: str, words: str
) -> None:
    model = open_model(family, tmp_path)
    env, config = word_task(model), dataclasses.replace(SMALL, label_words=1)
    with pytest.raises(UsageError, match=words):
        if family == "bert":
            check(dataclasses.replace(env, labels={}, scores=False), config)
        check(env, config)
        await autoprompt(MemoryRun(), env, None, Prompt.parse(START), config)


async def test_rows_of_a_gradient_are_charged(llama: Any) -> None:
    run = MeteredRun({"task": llama})
    await autoprompt(run, word_task(llama), None, Prompt.parse(START), SMALL)
    validated = sum(name == "validated" for name, _ in run.logged)
    assert run.spent["task"] == 6 * (1 + 1 + 4) * 16 + validated * 16


class Known(WordsModel):
    """A model whose answers follow a known law, with the exact gradient of its loss by each word's embedding."""

    def __init__(self, body: TinyBody, length: int = 3) -> None:
        super().__init__(body, length)
        self.words = body.all
        self.embeddings = body.embeddings.numpy()
        self.slopes = np.linalg.lstsq(self.embeddings, self.worth.T, rcond=None)[0].T / length

    def word_gradients(self) -> Known:
        return self

    def gradient(self, placed: MarkedPrompt, rows: Sequence[Wanted]) -> Gradient:
        strength = self.strength(" ".join(placed.words))
        sure = np.tanh(strength - np.array([float(row.values["input"].split()[1]) for row in rows]))
        loss = np.log1p(np.exp(-2 * sure))
        by_strength = float((-2 / (1 + np.exp(2 * sure)) * (1 - sure**2)).mean())
        return Gradient(float(loss.mean()), (by_strength * self.slopes).astype(np.float32))


async def test_gradients_find_better_prompts_than_chance_with_as_many_calls() -> None:
    """Strength of the result on eight seeds, paired by seed: the 95% interval of the difference lies above zero."""
    differences, shares = [], []
    for seed in range(8):
        model = Known(TinyBody())
        env = dataclasses.replace(words_world().env, model=model)
        start = words_world().start
        run = MeteredRun({"task": model}, seed)
        found = await autoprompt(run, env, None, start, Config(12, length=3, k=8, batch=30, finalists=4))
        control = MeteredRun({"task": model}, seed)
        settings = RandomConfig(
            n=run.spent["task"] // len(env.train), space="tokens", length=3, vocabulary=200
        )
        drawn = await random_search(control, env, None, start, settings)
        assert control.spent["task"] >= run.spent["task"]
        strength = model.strength(found.prompt.region_text())
        differences.append(strength - model.strength(drawn.prompt.region_text()))
        shares.append(strength / model.optimum)
    interval = stats.t.interval(0.95, len(differences) - 1, np.mean(differences), stats.sem(differences))
    assert interval[0] > 0, f"differences {np.round(differences, 3)}"
    assert np.mean(shares) > 0.7, f"shares of the optimum {np.round(shares, 3)}"


async def test_the_best_trigger_really_improves_from_round_to_round_and_is_the_one_returned() -> None:
    """In the published code the best trigger may stay the mask tokens that it began with. Batches of all rows: no luck."""

    class Noting(Known):
        async def score(self, prompts: Any, inputs: Any, continuations: Any) -> Any:
            if len(prompts) > 1:
                presents.append(self.strength(prompts[0].region_text()))
            return await super().score(prompts, inputs, continuations)

    for seed in range(3):
        presents: list[float] = []
        model, small = Noting(TinyBody()), words_world()
        run = MeteredRun({"task": model}, seed)
        config = Config(12, length=3, k=8, batch=len(small.env.train), finalists=1)
        found = await autoprompt(run, dataclasses.replace(small.env, model=model), None, small.start, config)
        assert len(presents) == 12 and presents == sorted(presents), "no round goes back"
        assert len(set(presents)) > 2, "it moved more than once"
        best = model.strength(found.prompt.region_text())
        assert best >= presents[-1] > presents[0], "the last trigger is the best, and it is returned"
        validated: list[Any] = [value for name, value in run.logged if name == "validated"]
        means = {value["id"]: value["validation"] for value in validated}
        assert means[found.id] > means[Candidate(small.start).id]


async def test_a_prompt_that_refuses_words_is_named(llama: Any) -> None:
    class Refusing(Prompt):
        def edit(self, text: str, name: str | None = None) -> Prompt:
            raise EditRejected("no")

    begin = Refusing(Prompt.parse(START).messages)
    with pytest.raises(UsageError, match="refuses the words"):
        await autoprompt(MemoryRun(), word_task(llama), None, begin, SMALL)


async def test_a_run_that_is_killed_ends_the_same_and_pays_nothing_twice(llama: Any, tmp_path: Path) -> None:
    async def attempt(folder: Path, model: Watching) -> Candidate:
        core = open_core(folder, model)  # type: ignore[arg-type]
        try:
            return await autoprompt(run_of(core), word_task(model), None, Prompt.parse(START), SMALL)
        finally:
            await close(core)

    whole = Watching(llama)
    expected = await attempt(tmp_path / "whole", whole)
    asked = 0
    for last in (0, 1, 3, 2):
        mortal = Watching(llama, last)
        with pytest.raises(Killed):
            await attempt(tmp_path / "killed", mortal)
        asked += mortal.asked
    final = Watching(llama)
    assert await attempt(tmp_path / "killed", final) == expected
    assert asked + final.asked == whole.asked


def test_sizes_by_hand() -> None:
    config = Config(iterations=60, k=20, batch=128)
    assert sizes(config, 500, None) == (60, 20, 128)
    assert sizes(config, 40, None) == (60, 20, 40)
    assert sizes(config, 500, 60 * 22 * 128) == (60, 20, 128)
    assert sizes(config, 500, 60 * 22 * 50) == (60, 20, 50), "batches first"
    assert sizes(config, 500, 60 * 12 * 16) == (60, 10, 16), "then candidates"
    assert sizes(config, 500, 30 * 10 * 16) == (30, 8, 16), "then iterations"
    assert sizes(config, 500, 6 * 16) == (1, 4, 16)
    assert sizes(config, 500, 16) == (0, 1, 16), "not even one"
    assert sizes(config, 5, 15) == (1, 1, 5)
    for rollouts in range(1, 4000, 37):
        iterations, k, size = sizes(config, 500, rollouts)
        assert iterations * (k + 2) * size <= rollouts


@pytest.mark.parametrize("wrong", [{"length": 0}, {"length": 10**6}, {"k": 0}])
async def test_settings_that_search_nothing_are_refused_before_anything_is_paid(
    llama: Any, wrong: dict[str, int]
) -> None:
    run = MeteredRun()
    with pytest.raises(UsageError, match="length must be 1 to"):
        await autoprompt(
            run, word_task(llama), None, Prompt.parse(START), dataclasses.replace(SMALL, **wrong)
        )
    assert not run.spent
