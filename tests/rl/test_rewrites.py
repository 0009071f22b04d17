"""Rewrites: what the prompt refuses costs nothing, equal ones are asked once, and leaders survive a resume."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("torch", reason="policy need torch: pip install 'whet[train]'")

from tests.environments.worlds import small
from tests.rl.scribe import Scribe

from whet.prompt import Prompt
from whet.rl.score_book import Leaders, rewrite_of, score_rewrites
from whet.search.archive import Archive, Candidate
from whet.search.plan import share_out
from whet.testing.runs import MeteredRun

SLOTTED = Prompt.parse("Say {{input}} well.")
FENCED = Prompt.parse("Keep.\n<!-- whet:begin -->\nold\n<!-- whet:end -->\n{{input}}")


@pytest.mark.parametrize(
    ("start", "text", "usable"),
    [
        (SLOTTED, "Shout {{input}}!", True),
        (SLOTTED, "Shout!", False),
        (FENCED, "  new\n", True),
        (FENCED, "", False),
        (FENCED, " \n ", False),
        (FENCED, None, False),
    ],
)
def test_what_a_prompt_takes(start: Prompt, text: str | None, usable: bool) -> None:
    found = rewrite_of(start, text)
    assert (found is not None) == usable
    if found is not None:
        assert text is not None and found.region_text().strip() == text.strip()


def good(request: Any) -> str:
    return "yes" if any("good" in m.content for m in request.messages) else "no"


def made() -> tuple[Any, MeteredRun, Any]:
    world = small(good, 8)
    return world, MeteredRun({"task": world.model}), Scribe(lambda conversation: ["good", "bad"])


async def test_refused_rewrites_get_the_lowest_reward_and_cost_nothing() -> None:
    world, run, _ = made()
    start = Prompt.parse("so")
    rewrites = [rewrite_of(start, t) for t in ("good", None, "bad", "good", " ")]
    found = await score_rewrites(run, world.env, rewrites, world.env.train[:3])
    assert found == [1.0, 0.0, 0.0, 1.0, 0.0]
    assert run.spent["task"] == 6, "two distinct prompts on three examples"
    run.spent.clear()
    assert await score_rewrites(run, world.env, [None, None], world.env.train[:3]) == [0.0, 0.0]
    assert run.spent["task"] == 0


async def test_leaders_are_found_again_after_a_resume() -> None:
    world, run, policy = made()
    start = Prompt.parse("so")
    leaders, archive, share = Leaders(policy, start, "rewrite"), Archive(), share_out(run, world.env, 4, 1)
    await archive.validate(run, share.env, [Candidate(start)])
    await leaders.check(run, share, archive, rewrite_of(start, "good"))
    await leaders.check(run, share, archive, None)
    assert archive.incumbent is not None and archive.incumbent.prompt.region_text() == "good"
    spent = run.spent["task"]
    await leaders.check(run, share, archive, rewrite_of(start, "good"))
    assert run.spent["task"] == spent, "a rewrite is validated once"
    policy.notes = json.loads(json.dumps(policy.notes))  # as a checkpoint brings them back
    again = Archive()
    again.validated, again.incumbent = {start.id: 0.0}, Candidate(start)
    leaders.recall(again)
    assert again.incumbent == archive.incumbent and again.validated == archive.validated


async def test_leaders_end_with_the_plan() -> None:
    world, run, policy = made()
    start = Prompt.parse("so")
    share = share_out(run, world.env, 1, 0)  # the start and one leader
    leaders, archive = Leaders(policy, start, "rewrite"), Archive()
    await archive.validate(run, share.env, [Candidate(start)])
    for text in ("bad", "good"):
        await leaders.check(run, share, archive, rewrite_of(start, text))
    assert len(archive.validated) == 2 and list(policy.notes["validated"]) == ["bad"]
