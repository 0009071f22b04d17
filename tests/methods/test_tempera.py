"""TEMPERA where no single prompt is best: it learns which input needs which edits."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tests.engine.world import close, open_core, run_of  # noqa: E402
from tests.rl.editable import START, WORDS, TwoKinds, rows, two_kinds  # noqa: E402

from whet.environments.environment import Environment  # noqa: E402
from whet.errors import UsageError  # noqa: E402
from whet.methods.tempera import Config, deploy, tempera  # noqa: E402
from whet.models.scripted import load as simulator  # noqa: E402
from whet.prompt import Prompt  # noqa: E402
from whet.run import Budget, MemoryRun  # noqa: E402
from whet.search.archive import Candidate  # noqa: E402
from whet.testing.methods import MethodConformance  # noqa: E402
from whet.testing.runs import MeteredRun  # noqa: E402
from whet.testing.simulated_task import review_world  # noqa: E402

SMALL = Config(steps=4, n=8, edits=2, shots=1, pool=4, words=WORDS)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class WithEmbeddings:
    """The model of the conformance suite's world, with embeddings of its own."""

    def __init__(self) -> None:
        self.inner = simulator(
            "labels", {"words": "carefully,evidence", "harmful": "guess,quick", "harm": "0.1"}
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def embed(self, texts: Any) -> Any:
        return TwoKinds().embed(texts)


class TestConformance(MethodConformance):
    method = "tempera"
    settings = MappingProxyType({"steps": 2, "n": 3, "edits": 2, "shots": 1, "pool": 4})
    seeds = (0,)
    limits = (60, 300)

    def environment(self) -> Environment:
        return review_world(WithEmbeddings(), scores=True)  # type: ignore[arg-type]


async def learn(config: Config, seed: int = 0) -> tuple[Candidate, MeteredRun, Environment]:
    env = two_kinds()
    run = MeteredRun({"task": env.model}, seed)
    return await tempera(run, env, None, Prompt.parse(START), config), run, env


@pytest.mark.long
async def test_learns_edits_that_no_single_prompt_can_replace() -> None:
    """By words or demonstrations a single prompt gets half of the inputs right; the editor sees which is which."""
    config = Config(steps=24, n=24, edits=2, shots=1, pool=4, words=WORDS, lr=4e-3)
    best, run, env = await learn(config)
    assert best.system is not None and best.prompt == Prompt.parse(START)
    system = deploy(env, None, run.kept[best.system], config)
    test = rows(60, 5000)
    found = await system.evaluate(MeteredRun({"task": env.model}), best.prompt, test)
    single = [
        (await dataclasses.replace(env, labels=labels).score(MemoryRun(), [Prompt.parse(START)], test))[0]
        for labels in ({"yes": "yes", "no": "no"}, {"yes": "true", "no": "false"})
    ]
    assert [score.mean for score in single] == [0.5, 0.5]
    assert np.mean([r.reward for r in found]) > 0.8
    assert len({r.prompt_id for r in found}) > 1, "inputs have prompts of their own"


async def test_every_scored_state_is_charged_and_a_deployed_input_costs_one_call() -> None:
    best, run, env = await learn(SMALL)
    validations = [value for name, value in run.logged if name == "validated"]
    scored: Any = env.model
    assert run.spent["task"] == scored.asked
    assert run.spent["task"] <= 4 * 8 * (1 + 2) + len(validations) * len(env.validation)
    assert len(validations) == 2 + 4, "the start, the start with a demonstration, a check after each step"
    steps: list[Any] = [value for name, value in run.logged if name == "step"]
    assert len(steps) == 4 and all(0.01 < step["memory"] < 64 for step in steps), "GiB of this process"
    metered = MeteredRun({"task": env.model})
    kept = list(run.kept)[-1]
    system = deploy(env, None, run.kept[kept], SMALL)
    before = scored.asked
    await system.evaluate(metered, best.prompt, rows(10, 5000))
    assert metered.spent["task"] == 10 == scored.asked - before


async def test_the_pool_and_the_inputs_are_apart() -> None:
    """A demonstration with the input's own answer would give it away."""
    seen: set[str] = set()

    class Watching(TwoKinds):
        def _logprobs(self, text: str, shown: str, words: Any) -> Any:  # type: ignore[override]
            seen.update(line for line in text.splitlines() if line.startswith(shown))
            return TwoKinds._logprobs(text, shown, words)

    env = two_kinds(Watching())
    await tempera(MeteredRun({"task": env.model}), env, None, Prompt.parse(START), SMALL)
    assert not seen


async def test_a_budget_that_pays_no_update_returns_a_text() -> None:
    env = two_kinds()
    run = MeteredRun({"task": env.model}, limits=Budget(task_calls=40))
    best = await tempera(run, env, None, Prompt.parse(START), SMALL)
    assert best.system is None


async def test_words_that_do_not_fit_the_labels_are_refused_before_anything_is_paid() -> None:
    for words in ("true", "true,false;a,b,c", "true,"):
        run = MeteredRun()
        with pytest.raises(UsageError, match="one for each of the 2 labels: yes, no"):
            await tempera(
                run, two_kinds(), None, Prompt.parse(START), dataclasses.replace(SMALL, words=words)
            )
        assert not run.spent


async def test_a_blob_whose_demonstrations_are_gone_is_refused() -> None:
    _, run, env = await learn(SMALL)
    blob = next(iter(run.kept.values()))
    with pytest.raises(UsageError, match="not among the task's training rows"):
        deploy(dataclasses.replace(env, train=env.train[:1]), None, blob, SMALL)
    with pytest.raises(UsageError, match="not a checkpoint of an editor"):
        deploy(env, None, blob[:30], SMALL)


class Killed(Exception):
    """Stands for the death of the process."""


class Mortal(TwoKinds):
    """Dies at the scoring call that would come after `last` inputs."""

    def __init__(self, last: float = float("inf")) -> None:
        super().__init__()
        self.last = last

    async def score(self, prompts: Any, inputs: Any, continuations: Any) -> Any:
        if self.asked >= self.last:
            raise Killed
        return await super().score(prompts, inputs, continuations)


@pytest.mark.parametrize("segment", [0.0, pytest.param(1e9, marks=pytest.mark.long)])
async def test_a_run_that_is_killed_anywhere_ends_with_the_same_weights(
    tmp_path: Path, segment: float
) -> None:
    async def attempt(folder: Path, model: Mortal) -> Candidate:
        core = open_core(folder, model)  # type: ignore[arg-type]
        core.segment_seconds = segment
        try:
            return await tempera(run_of(core), two_kinds(model), None, Prompt.parse(START), SMALL)
        finally:
            await close(core)

    whole = Mortal()
    expected = await attempt(tmp_path / "whole", whole)
    for last in (0, 50, 40, 90):
        with pytest.raises(Killed):
            await attempt(tmp_path / "killed", Mortal(last))
    assert await attempt(tmp_path / "killed", Mortal()) == expected
