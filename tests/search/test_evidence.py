"""Which of several prompts that follow one another is best on all evidence."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from whet.prompt import Prompt
from whet.search.archive import Archive, Candidate
from whet.search.evidence import Evidence
from whet.types import Rollout


def evidence(*rounds: Sequence[float], trials: Sequence[int] = ()) -> Evidence:
    """Prompts p0, p1, ... with such rewards."""
    pooled = Evidence()
    for n, rewards in enumerate(rounds):
        prompt = Prompt.parse(f"p{n}")
        rollouts = [Rollout(prompt.id, str(k), "", reward) for k, reward in enumerate(rewards)]
        pooled.add(Candidate(prompt), rollouts, trial=n in trials)
    return pooled


def best(pooled: Evidence) -> str:
    return pooled.best(Archive(), 0).prompt.source


HIGH, MIDDLE, LOW = [0.8, 1.0] * 10, [0.75, 0.95] * 10, [0.7, 0.9] * 10


def test_the_newest_stands_where_nothing_speaks_against_it() -> None:
    assert best(evidence(LOW, MIDDLE, HIGH)) == "p2"
    assert best(evidence(HIGH, HIGH, HIGH, [])) == "p3"


def test_a_slow_fall_goes_back_to_the_last_prompt_before_it() -> None:
    """No prompt is clearly worse than the one before it, and the last ones have few rewards of their own."""
    assert best(evidence([0.1] * 20, HIGH, HIGH, MIDDLE, LOW, [0.7, 0.9], [])) == "p2"


@pytest.mark.parametrize(("trials", "expected"), [((2,), "p3"), ((), "p1")])
def test_a_trial_without_some_instructions_is_no_fall(trials: Sequence[int], expected: str) -> None:
    assert best(evidence(HIGH, HIGH, [0.2, 0.4] * 10, HIGH[:4], trials=trials)) == expected


@pytest.mark.parametrize(
    ("brief", "wordy", "chosen"), [(1.0, 1.0, "brief"), (0.5, 0.5, "brief"), (0.5, 0.75, "long and wordy")]
)
def test_of_validated_prompts_that_earn_the_same_the_shorter_is_best(
    brief: float, wordy: float, chosen: str
) -> None:
    pooled, archive = Evidence(), Archive()
    for text, mean in (("brief", brief), ("long and wordy", wordy)):
        prompt = Prompt.parse(text)
        pooled.add(Candidate(prompt))
        archive.validated[prompt.id] = mean
    assert pooled.best(archive, 10, validated=True).prompt.source == chosen


def test_of_wordings_the_one_that_earned_most_is_best_and_not_the_newest() -> None:
    """Before the best one came one that spoilt everything, after it some that few rows tried, and one that none tried."""
    few, good, fair = [1.0, 0.0, 0.0] * 2, [1.0] * 24 + [0.0] * 16, [1.0] * 21 + [0.0] * 19
    tried = evidence([0.0] * 40, fair, [0.0] * 40, good, few, [])
    tried.wordings = True
    assert best(tried) == "p3"


def test_a_wording_that_few_rows_praise_is_not_better_than_one_that_many_do() -> None:
    tried = evidence([0.0] * 20, [1.0] * 35 + [0.0] * 5, [1.0] * 2)
    tried.wordings = True
    assert best(tried) == "p1"
