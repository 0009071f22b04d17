"""Duels: pairs that teach most, strengths with intervals, and a queue that may be closed and opened again."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest

from whet.client.records import Feedback, Inference
from whet.errors import UsageError
from whet.live.choices import MANY, apart, choices_of, next_of
from whet.live.database import Database
from whet.live.duels import (
    Apohf,
    Duels,
    Pdo,
    Selector,
    Uniform,
    _backward,
    _gradients,
    _initial,
    _layers,
    bradley_terry,
    copeland,
)
from whet.live.traffic.traffic_store import Traffic

FEATURES = np.random.default_rng(0).normal(size=(6, 4))
SELECTORS = [Uniform(), Pdo(), Apohf(FEATURES, steps=20)]


def pool(n: int, seed: int, dimensions: int = 6) -> tuple[np.ndarray, np.ndarray]:
    """Simulated prompts: embeddings, and strengths (standard deviation 2) that are linear in them."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, dimensions))
    s = x @ rng.normal(size=dimensions)
    return x, 2 * (s - s.mean()) / s.std()


def asked(selector: Selector, strengths: np.ndarray, rounds: int, seed: int) -> Duels:
    """Choices of simulated people who prefer the first with the probability sigmoid(s1 - s2)."""
    rng, duels = np.random.default_rng(seed), Duels(len(strengths))
    for _ in range(rounds):
        first, second = selector.next_pair(duels, rng)
        chance = 1 / (1 + math.exp(strengths[second] - strengths[first]))
        duels.observe(first, second, float(rng.random() < chance))
    return duels


def regret(selector: Selector, strengths: np.ndarray, rounds: int, seed: int) -> float:
    return float(strengths.max() - strengths[selector.best(asked(selector, strengths, rounds, seed))])


@pytest.mark.parametrize("selector", SELECTORS, ids=lambda s: type(s).__name__)
def test_a_pair_is_two_different_prompts_and_depends_on_nothing_but_the_choices(selector: Selector) -> None:
    strengths = np.linspace(-1, 1, 6)
    duels = asked(selector, strengths, 25, seed=1)
    assert all(first != second for first, second, _ in duels.rows)
    opened_again = Duels(6, list(duels.rows))
    pairs = [selector.next_pair(one, np.random.default_rng(2)) for one in (duels, opened_again)]
    assert pairs[0] == pairs[1]
    assert selector.best(duels) == selector.best(opened_again)


def test_pdo_finds_the_best_of_a_pool_sooner_than_uniform_pairs() -> None:
    """Simulated: 40 pools of 10 prompts, 80 choices each."""
    found = {}
    for selector in (Uniform(), Pdo()):
        name = type(selector).__name__
        found[name] = np.mean([regret(selector, pool(10, k)[1], 80, 100 + k) for k in range(40)])
    assert found["Pdo"] < 0.7 * found["Uniform"]


def test_apohf_learns_about_prompts_from_choices_between_similar_ones() -> None:
    """Simulated: 8 pools of 40 prompts, 24 choices each: fewer choices than prompts."""
    found: dict[str, list[float]] = {"Uniform": [], "Apohf": []}
    for k in range(8):
        x, strengths = pool(40, k)
        for selector in (Uniform(), Apohf(x, steps=50, rate=0.02)):
            found[type(selector).__name__].append(regret(selector, strengths, 24, 200 + k))
    assert np.mean(found["Apohf"]) < 0.6 * np.mean(found["Uniform"])


def test_pdo_stops_asking_about_prompts_that_lose() -> None:
    duels = asked(Pdo(), np.array([3.0, 2.5, -3.0, -3.0, -3.0]), 120, seed=3)
    counts = (duels.wins + duels.wins.T).sum(axis=1)
    assert counts[:2].min() > 2 * counts[2:].max()


def test_the_gradients_of_the_network_are_those_of_finite_differences() -> None:
    rng = np.random.default_rng(4)
    x, output, weights = rng.normal(size=(5, 3)), rng.normal(size=5), _initial(3, 4, 0)
    found = _backward(x, weights, _layers(x, weights), output)
    for k, gradient in enumerate(found):
        for place in np.ndindex(gradient.shape):
            moved = [w.copy() for w in weights]
            sums = []
            for step in (1e-6, -1e-6):
                moved[k][place] = weights[k][place] + step
                sums.append(float(output @ _layers(x, moved)[-1][:, 0]))
            assert (sums[0] - sums[1]) / 2e-6 == pytest.approx(gradient[place], abs=1e-6)


def test_embeddings_in_many_dimensions_are_as_good_as_in_the_space_that_they_span() -> None:
    x, strengths = pool(8, 1, dimensions=4)
    turned = x @ np.linalg.qr(np.random.default_rng(5).normal(size=(300, 4)))[0].T
    duels = asked(Uniform(), strengths, 30, seed=6)
    inner = [Apohf(features)._inputs(duels) for features in (x, turned)]
    assert inner[1].shape == (8, 4)
    distances = [np.linalg.norm(one[:, None] - one[None], axis=2) for one in (*inner, x)]
    assert distances[0] == pytest.approx(distances[2])
    assert distances[1] == pytest.approx(distances[2])


def test_what_was_seen_between_two_prompts_counts_once_for_each_choice() -> None:
    """The uncertainty that is left, as the paper writes it: a sum over the choices."""
    x, strengths = pool(5, 2)
    selector = Apohf(x, steps=20, nu=3.0)
    duels = asked(Uniform(), strengths, 30, seed=7)
    inner = selector._inputs(duels)
    weights = selector._fitted(inner, duels)
    scores, gradients = _layers(inner, weights)[-1][:, 0], _gradients(inner, weights)
    seen = np.array([(a, b) for a, b, _ in duels.rows])
    spread = ((gradients[seen[:, 0]] - gradients[seen[:, 1]]) ** 2).sum(axis=0) + selector.ridge
    first = int(scores.argmax())
    wanted = scores + np.sqrt(3.0 * ((gradients - gradients[first]) ** 2 / spread).sum(axis=1))
    wanted[first] = -math.inf
    assert selector.next_pair(duels, np.random.default_rng(0)) == (first, int(wanted.argmax()))


@pytest.mark.parametrize("features", [np.zeros((4, 3)), np.zeros((4, 0)), np.full((4, 2), 1e9)])
def test_embeddings_that_tell_nothing_are_no_crash(features: np.ndarray) -> None:
    duels = Duels(4, [(0, 1, 1.0), (2, 3, 0.5)] * 5)
    first, second = Apohf(features, steps=20).next_pair(duels, np.random.default_rng(0))
    assert first != second
    with pytest.raises(UsageError, match="not finite"):
        Apohf(np.full((4, 2), math.nan)).best(duels)


def test_copeland_then_borda() -> None:
    duels = Duels(3, [(0, 1, 1), (1, 2, 1), (2, 0, 1), (0, 1, 1), (0, 1, 1)])
    assert copeland(duels) == 0
    assert copeland(Duels(3)) == 0


def test_strengths_are_those_of_bradley_and_terry() -> None:
    """Two prompts, 30 of 40: the difference is the log-odds, a little drawn to zero by the prior."""
    duels = Duels(2, [(0, 1, 1.0)] * 30 + [(0, 1, 0.0)] * 10)
    first, second = bradley_terry(duels, spread=100.0)
    assert first.strength - second.strength == pytest.approx(math.log(3), abs=1e-3)
    error = math.sqrt(1 / (40 * 0.75 * 0.25)) / 2
    assert first.high - first.strength == pytest.approx(1.96 * error, rel=1e-3)
    assert (first.n, second.n) == (40, 40)
    assert 0.5 < first.against_average < 0.75
    assert bradley_terry(Duels(2, [(0, 1, 0.5)] * 9))[0].strength == pytest.approx(0)


def test_a_prompt_that_always_won_has_a_finite_strength_and_one_without_choices_a_wide_interval() -> None:
    found = bradley_terry(Duels(3, [(0, 1, 1.0)] * 20))
    assert math.isfinite(found[0].strength)
    assert found[0].strength > 1 > -1 > found[1].strength
    assert found[2].high - found[2].low > 3
    assert found[2].n == 0


def test_intervals_of_strengths_cover_the_truth() -> None:
    """300 simulated pools of 4, 120 choices each: 95 % promised, four standard errors are 2.6 points of 1,200."""
    covered = 0
    for k in range(300):
        _, strengths = pool(4, k)
        strengths = strengths / 2
        found = bradley_terry(asked(Uniform(), strengths, 120, k))
        covered += sum(s.low <= truth <= s.high for s, truth in zip(found, strengths, strict=True))
    assert covered / 1200 > 0.924


@pytest.mark.parametrize(
    ("row", "said"),
    [((0, 0, 1.0), "0 and 0"), ((0, 3, 1.0), "0 and 3"), ((0, 1, 0.7), "0.7"), ((-1, 1, 1.0), "-1")],
)
def test_what_is_no_choice_is_refused(row: tuple[int, int, float], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Duels(3, [row])


def test_settings_that_do_not_fit_are_refused() -> None:
    with pytest.raises(UsageError, match="needs two"):
        Duels(1)
    with pytest.raises(UsageError, match="6 embeddings do not fit 7"):
        Apohf(FEATURES).best(Duels(7, [(0, 1, 1.0)]))
    with pytest.raises(UsageError, match="confidence"):
        bradley_terry(Duels(2), confidence=1.0)


def test_choices_come_from_traffic_and_lead_to_the_next_pair(database: Database) -> None:
    traffic = Traffic(database)
    answers = [
        Inference("p", version, inputs={"q": str(k)}, id=f"{k}-{version}")
        for k in range(9)
        for version in (1, 2, 3)
    ]
    elsewhere = Inference("other", 1, id="x")
    said = [Feedback("choice", f"{k}-1", 1.0, label=f"{k}-2") for k in range(9)]
    said += [Feedback("choice", "0-3", 0.5, label="0-2"), Feedback("choice", "1-2", 0.0, label="1-3")]
    said += [Feedback("choice", "0-1", 1.0, label="1-1"), Feedback("choice", "0-1", 1.0, label="x")]
    said += [Feedback("choice", "0-1", 1.0, label="unknown"), Feedback("thumb", "0-1", 1.0)]
    traffic.add([*answers, elsewhere], said)
    found = choices_of(database, "p")
    assert found == [(1, 2, 1.0)] * 9 + [(3, 2, 0.5), (2, 3, 0.0)]
    assert Duels.of((1, 2), found).wins.tolist() == [[0, 9], [0, 0]]
    duels = Duels.of((1, 2, 3), found)
    pairs = [Pdo().next_pair(duels, np.random.default_rng(k)) for k in range(30)]
    assert sum(set(pair) == {0, 2} for pair in pairs) > 15, "1 and 3 have not met"
    assert next_of(choices_of(database, "p"), [(1, 3)], {}) == (1, 3)


@pytest.mark.parametrize("texts", [{}, dict.fromkeys(range(1, MANY + 1), "Be kind.")], ids=["none", "same"])
def test_versions_that_no_word_tells_apart_all_come_to_be_compared(
    database: Database, texts: dict[int, str]
) -> None:
    """As many versions as `Apohf` is asked for, but their words say nothing: the choices alone decide."""
    versions = range(1, MANY + 1)
    traffic, pairs = Traffic(database), list(combinations(versions, 2))
    asked: set[int] = set()
    for k in range(60):
        first, second = next_of(choices_of(database, "p"), pairs, texts)
        asked |= {first, second}
        answers = [Inference("p", version, id=f"{k}-{version}") for version in (first, second)]
        traffic.add(answers, [Feedback("choice", f"{k}-{first}", 0.5, label=f"{k}-{second}")])
    assert asked == set(versions)


def test_a_pair_that_cannot_be_shown_is_asked_for_once(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`Apohf` wants the same pair however often it is asked, and every time trains its network for it."""
    versions = range(1, MANY + 1)
    answers = [Inference("p", version, id=f"{k}-{version}") for k in range(6) for version in versions]
    said = [Feedback("choice", f"{k}-1", 1.0, label=f"{k}-{k + 2}", user=f"u{k}") for k in range(6)]
    Traffic(database).add(answers, said)
    calls: list[Apohf] = []

    def wanted(self: Apohf, duels: Duels, rng: np.random.Generator) -> tuple[int, int]:
        calls.append(self)
        return 0, 1

    monkeypatch.setattr(Apohf, "next_pair", wanted)
    texts = {version: f"Say word{version}." for version in versions}
    shown = [(a, b) for a, b in combinations(versions, 2) if (a, b) != (1, 2)]
    assert next_of(choices_of(database, "p"), shown, texts) == (1, 8), "the first of those that have not met"
    assert len(calls) == 1


def test_one_person_counts_for_a_few_choices_only(database: Database) -> None:
    traffic = Traffic(database)
    traffic.add([Inference("p", version, id=f"{k}-{version}") for k in range(9) for version in (1, 2, 3)])

    def say(user: str | None, k: int, value: float, versions: str = "12", source: str = "user") -> None:
        first, second = versions
        said = Feedback("choice", f"{k}-{first}", value, label=f"{k}-{second}", user=user, source=source)
        traffic.add((), [said])

    for k in range(9):
        say("eve", k, 0.0)
    say("ann", 0, 0.0)
    say("ann", 0, 1.0)  # she changed her mind about these two
    say("eve", 0, 1.0, "13")
    say(None, 3, 0.5)
    say(None, 4, 0.5)
    say("judge", 5, 1.0, source="model")
    assert choices_of(database, "p", most=1) == [
        (1, 2, 0.0), (1, 2, 1.0), (1, 3, 1.0), (1, 2, 0.5), (1, 2, 1.0),
    ]  # fmt: skip
    assert len(choices_of(database, "p", most=3)) == 3 + 1 + 1 + 2 + 1
    assert len(choices_of(database, "p")) == 9 + 1 + 1 + 2 + 1
    assert choices_of(database, "p", sources=("model",)) == [(1, 2, 1.0)]
    assert choices_of(database, "p", sources=()) == []


def test_versions_that_nobody_compared_stand_apart() -> None:
    assert apart([]) == []
    assert apart([(3, 1, 1.0), (4, 2, 0.0), (1, 3, 0.5)]) == [[1, 3], [2, 4]]
    assert apart([(3, 1, 1.0), (4, 2, 0.0), (5, 4, 0.0), (2, 3, 1.0)]) == [[1, 2, 3, 4, 5]]
