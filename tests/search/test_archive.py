"""Which of two candidates is kept: the better one, of equals the shorter, and the start where nothing beats it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from whet.environments.environment import Environment
from whet.prompt import Prompt
from whet.run import MemoryRun
from whet.search.archive import Archive, Candidate
from whet.search.evidence import Evidence
from whet.testing.simulated_task import Answers, ConstantReward
from whet.types import Example, Rollout


async def test_of_equals_the_shorter_wins_and_the_start_stays() -> None:
    model = Answers(lambda question, sample: "yes")
    env = Environment(model, ConstantReward(0.5), (), (Example("1", {}, text="a"),))
    run, archive = MemoryRun({"task": model}), Archive()
    start = Candidate(Prompt.parse("Sort the mail of a shop by its team."))
    long, short, longer = (
        Candidate(Prompt.parse(text), (start.id,), "edit")
        for text in ("Sort the mail.", "Sort.", "Sort mail.")
    )
    assert await archive.validate(run, env, [start, long, short]) == start
    better = replace(env, reward=ConstantReward(0.6))
    other = Archive()
    await other.validate(run, env, [start])
    assert await other.validate(run, better, [long]) == long
    assert await other.validate(run, better, [short]) == short
    assert await other.validate(run, better, [longer]) == short
    restored = Archive()
    for candidate, mean in ((start, 0.5), (long, 0.6), (short, 0.6), (longer, 0.6)):
        restored.restore(candidate, mean)
    assert restored.incumbent == short


def rollouts(candidate: Candidate, rewards: Sequence[float | None]) -> list[Rollout]:
    """A candidate's rollouts on rows 0, 1, ...; None where the provider failed."""
    return [
        Rollout(candidate.id, str(i), "", reward or 0.0, error="provider: 429" if reward is None else None)
        for i, reward in enumerate(rewards)
    ]


def test_a_candidate_with_few_answers_does_not_become_the_incumbent_by_them() -> None:
    model = Answers(lambda question, sample: "yes")
    env = Environment(model, ConstantReward(0.5), (), ())
    run, archive = MemoryRun({"task": model}), Archive()
    start = Candidate(Prompt.parse("Sort the mail of a shop by its team."))
    throttled, gap, better = (
        Candidate(Prompt.parse(text), (start.id,), "edit") for text in ("Sort.", "Sort it.", "Sort mail.")
    )
    archive.add_rollouts(run, env, start, rollouts(start, [1.0, 0.0, 1.0, 0.0, 1.0, 0.0, None, None]))
    archive.add_rollouts(run, env, throttled, rollouts(throttled, [1.0, 1.0, *[None] * 6]))
    assert archive.validated[throttled.id] == 1.0 and archive.incumbent == start
    archive.add_rollouts(run, env, gap, rollouts(gap, [0.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 1.0]))
    assert archive.validated[gap.id] == 0.5 and archive.incumbent == start  # 2 of the 6 rows that both have
    archive.add_rollouts(run, env, better, rollouts(better, [1.0, 1.0, 1.0, 1.0, None, None, 0.0, 0.0]))
    assert archive.incumbent == better  # 4 of 6 at its worst, against 3


def test_a_candidate_that_the_provider_refuses_does_not_stay_before_one_that_answers_all() -> None:
    """Of 8 rows, 1.0 on 6 and none on 2 is 0.75 at its worst; 0.875 on all is better, in either order."""
    env = Environment(Answers(lambda question, sample: "yes"), ConstantReward(0.5), (), ())
    start = Candidate(Prompt.parse("Sort the mail of a shop by its team."))
    refused, whole = (Candidate(Prompt.parse(text), (start.id,), "edit") for text in ("Sort.", "Sort mail."))
    rewards: dict[str, list[float | None]] = {
        start.id: [0.0] * 7 + [1.0],
        refused.id: [*[1.0] * 6, None, None],
        whole.id: [1.0] * 7 + [0.0],
    }
    for order in ((refused, whole), (whole, refused)):
        run, archive = MemoryRun({}), Archive()
        for candidate in (start, *order):
            archive.add_rollouts(run, env, candidate, rollouts(candidate, rewards[candidate.id]))
        assert archive.incumbent == whole


def test_evidence_counts_the_rows_that_were_answered() -> None:
    model = Answers(lambda question, sample: "yes")
    env = Environment(model, ConstantReward(0.5), (), ())
    run, archive, evidence = MemoryRun({"task": model}), Archive(), Evidence()
    start = Candidate(Prompt.parse("Sort the mail."))
    archive.add_rollouts(run, env, start, rollouts(start, [1.0, *[None] * 9]))
    evidence.add(start, rollouts(start, [0.0, 0.0, 1.0]))
    assert evidence.pool_rewards(start.prompt, archive, 10)[0] == 0.5
