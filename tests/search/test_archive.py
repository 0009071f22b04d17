"""Which of two candidates is kept: the better one, of equals the shorter, and the start where nothing beats it."""

from __future__ import annotations

from dataclasses import replace

from whet.environments.environment import Environment
from whet.prompt import Prompt
from whet.run import MemoryRun
from whet.search.archive import Archive, Candidate
from whet.testing.simulated_task import Answers, ConstantReward
from whet.types import Example


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
