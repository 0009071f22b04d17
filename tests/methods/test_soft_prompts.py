"""Prefix tuning and p-tuning on small models: the contract of a method, resumes, and that they learn."""

from __future__ import annotations

import dataclasses
import difflib
import random
from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

from tests.engine.world import close, open_core, run_of  # noqa: E402
from tests.rl.tinylm import open_model, start, word_task  # noqa: E402
from tools.embedded.clauses import transform  # noqa: E402

from whet.environments.environment import Environment, Generation  # noqa: E402
from whet.methods import configure, get_method  # noqa: E402
from whet.models.addresses import resolve  # noqa: E402
from whet.prompt import Prompt  # noqa: E402
from whet.run import Budget, Run  # noqa: E402
from whet.search.archive import Candidate  # noqa: E402
from whet.testing.methods import MethodConformance  # noqa: E402
from whet.testing.runs import MeteredRun  # noqa: E402
from whet.testing.simulated_task import review_world  # noqa: E402
from whet.types import Completion, Example, Reward  # noqa: E402

METHODS = ("prefix", "ptuning")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return open_model("llama", tmp_path_factory.mktemp("llama"))


class OnALlama(MethodConformance):
    settings = MappingProxyType({"steps": 4, "tokens": 2, "batch": 4, "hidden": 8})
    limits = (60, 150)
    __test__ = False

    @pytest.fixture(autouse=True)
    def _model(self, llama: Any) -> None:
        self.model = llama

    def environment(self) -> Environment:
        return review_world(self.model, scores=True)


class TestPrefix(OnALlama):
    method = "prefix"
    __test__ = True


class TestPTuning(OnALlama):
    method = "ptuning"
    __test__ = True


@pytest.mark.parametrize("method", METHODS)
async def test_examples_that_are_learned_from_are_charged(llama: Any, method: str) -> None:
    found = get_method(method)
    env = word_task(llama)
    run = MeteredRun({"task": llama})
    config = configure(found, {"steps": 6, "batch": 5, "tokens": 2, "hidden": 8})
    await found.coroutine(run, env, None, start(), config)
    validated = [value for name, value in run.logged if name == "validated"]
    assert len(validated) == 1 + 6, "the start, and eight checks are cut to one for each step"
    assert run.spent["task"] == 6 * 5 + len(validated) * len(env.validation)
    steps: list[Any] = [value for name, value in run.logged if name == "step"]
    assert len(steps) == 6 and all(0.01 < step["memory"] < 64 for step in steps), "GiB of this process"
    seconds = [step["update_seconds"] for step in steps]
    assert seconds == sorted(seconds) and seconds[0] > 0


@pytest.mark.parametrize("method", METHODS)
async def test_a_budget_that_pays_no_step_returns_the_start(llama: Any, method: str) -> None:
    found = get_method(method)
    run = MeteredRun({"task": llama}, limits=Budget(task_calls=12))
    best = await found.coroutine(run, word_task(llama), None, start(), configure(found, {}))
    assert best == Candidate(start())


class Killed(Exception):
    """Stands for the death of the process."""


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("segment", [0.0, pytest.param(1e9, marks=pytest.mark.long)])
async def test_a_run_that_is_killed_anywhere_ends_with_the_same_weights(
    llama: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, segment: float, method: str
) -> None:
    """Bit for bit: the digest of the best weights is part of the result."""
    found = get_method(method)
    config = configure(found, {"steps": 8, "batch": 4, "tokens": 2, "hidden": 8})
    env = word_task(llama, train=12, validation=8)
    module = __import__("whet.rl.soft_prompt", fromlist=["charge"])
    real = module.charge

    async def attempt(folder: Path, last: int | None) -> Candidate:
        made = 0

        async def charge(run: Run, name: str, examples: Any) -> None:
            nonlocal made
            if made == last:
                raise Killed
            made += 1
            await real(run, name, examples)

        monkeypatch.setattr(module, "charge", charge)
        core = open_core(folder, llama)
        core.segment_seconds = segment
        try:
            return await found.coroutine(run_of(core), env, None, start(), config)  # type: ignore[no-any-return]
        finally:
            await close(core)

    expected = await attempt(tmp_path / "whole", None)
    for last in (1, 3, 2):
        with pytest.raises(Killed):
            await attempt(tmp_path / "killed", last)
    assert await attempt(tmp_path / "killed", None) == expected
    blobs = list((tmp_path / "killed" / "blobs").glob("*"))
    assert len(blobs) <= 3, "the newest checkpoint, what was kept last, and the incumbent's"


@dataclasses.dataclass(frozen=True)
class Likeness:
    """Share of characters in common with the target."""

    name: str = "likeness"
    low: float = 0.0
    high: float = 1.0
    needs: frozenset[str] = frozenset()

    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        return Reward(difflib.SequenceMatcher(None, completion.text, str(example.target)).ratio())


@pytest.mark.long
@pytest.mark.parametrize("method", METHODS)
async def test_learns_what_no_prompt_of_the_start_says(method: str) -> None:
    """On embedded/tiny, that four demands are wanted; the deployed system answers unseen inputs."""
    rng = random.Random(5)
    words = ["dog", "house", "red", "cat", "tree", "sun", "moon", "water", "stone", "bird", "fish", "book"]

    def rows(n: int, name: str) -> tuple[Example, ...]:
        texts = [" ".join(rng.sample(words, 3)) for _ in range(n)]
        wanted = [transform(text, ["capitals", "reversed", "hyphens", "exclamation"]) for text in texts]
        return tuple(
            Example(f"{name}-{i}", {"input": t}, w, text=t)
            for i, (t, w) in enumerate(zip(texts, wanted, strict=True))
        )

    model = resolve("embedded/tiny")
    env = Environment(
        model, Likeness(), rows(48, "train"), rows(4, "validation"), generation=Generation(0.0, 32)
    )
    begin = Prompt.parse("Write the words.")
    found = get_method(method)
    config = configure(found, {"steps": 30, "batch": 12})
    run = MeteredRun({"task": model}, 1)
    best = await found.coroutine(run, env, None, begin, config)
    assert best.system is not None and best.prompt == begin
    system = found.deploy(env, None, run.kept[best.system], config)  # type: ignore[misc]
    test = rows(8, "test")
    means = [(await e.score(MeteredRun({"task": model}), [begin], test))[0].mean for e in (env, system)]
    assert means[1] > means[0] + 0.3, means
    assert means[1] > 0.6, means
