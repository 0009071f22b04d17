"""The curator: proposals from single complaints, conflicts, budgets, and instructions that nobody misses."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from whet.policies.curator import Curator
from whet.policies.proposals import Proposal, propose
from whet.policies.upkeep import doubtful, judge_trial, measure, tidy
from whet.prompt import Prompt
from whet.prompt.events import Add, Event, Expire, Resolve, Rollback
from whet.prompt.ledger import describe
from whet.run import MemoryRun
from whet.search.critiques import Complaint, split
from whet.types import Rollout

PROMPT = Prompt.parse(
    "Sum up {{text}}.\n<!-- whet:begin -->\n- Write three sentences.\n<!-- whet:end -->\nUse at most 90 plain words."
)


async def ask(prompt: Prompt, comment: str, events: Sequence[Event] = ()) -> Proposal:
    complaints = [Complaint(text, "row 1") for text in split(comment)]
    return await propose(MemoryRun(), prompt, complaints, events, writer=False, at="2026-11-21")


async def test_one_complaint_becomes_one_instruction_with_its_history() -> None:
    found = await ask(PROMPT, "You forgot to mention the price.")
    assert describe(found.changes) == "+ i2 Mention the price."
    added = found.new[-1]
    assert isinstance(added, Add)
    assert (added.critiques, added.evidence, added.at) == (
        ("You forgot to mention the price.",),
        ("row 1",),
        "2026-11-21",
    )
    back = Curator(found.prompt, False, events=list(found.events))
    back.record(Rollback(to=len(found.events) - 1, reason="not wanted"))
    assert back.prompt == PROMPT


async def test_the_same_complaint_again_says_it_differently_and_does_not_repeat_it() -> None:
    first = await ask(PROMPT, "It used bullet points, I want plain prose.")
    second = await ask(first.prompt, "It used bullet points again, I want plain prose!", first.events)
    assert [change.id for change in second.changes] == ["i2"]
    assert second.changes[0].before != second.changes[0].after
    assert second.prompt.text().count("\n") == 1


async def test_a_complaint_with_a_slot_is_left_to_a_person() -> None:
    found = await ask(PROMPT, "Repeat {{text}} at the end.")
    assert found.prompt == PROMPT and not found.changes
    assert found.unanswered == ("Repeat {{text}} at the end.",)


async def test_hand_edits_are_read_back_before_anything_is_proposed() -> None:
    first = await ask(PROMPT, "You forgot to mention the price.")
    edited = first.prompt.edit(first.prompt.text() + "\n- Name the seller.")
    second = await ask(edited, "Every answer must name the date.", first.events)
    assert "- Name the seller.\n- Every answer must name the date." in second.prompt.source


def rollouts(critiques: Sequence[str | None]) -> list[Rollout]:
    return [Rollout("p", f"e{n}", "", 0.0 if c else 1.0, critique=c) for n, c in enumerate(critiques)]


async def learned(run: MemoryRun, *rounds: Sequence[str | None]) -> Curator:
    curator = Curator(PROMPT, writer=False)
    for critiques in rounds:
        curator.observe(rollouts(critiques), 1.0)
        await curator.learn(run, 0)
        tidy(curator, run)
    return curator


async def test_the_effect_of_an_instruction_is_measured_with_an_interval() -> None:
    curator = await learned(MemoryRun(), ["Always name the seller."] * 8 + [None] * 2, [None] * 20)
    measure(curator)
    effect = curator.ledger["i2"].effect
    assert effect is not None
    assert (effect.before, effect.after, effect.difference) == ((8, 10), (0, 20), 0.8)
    assert 0.4 < effect.low < 0.8 < effect.high <= 1


async def test_two_demands_in_one_group_are_taken_apart_when_one_of_them_goes_on() -> None:
    both = ["The order of the list must be by region.", "The list must have 7 entries."]
    curator = Curator(PROMPT, writer=False)
    curator.observe(rollouts([both[n % 2] for n in range(12)]), 1.0)
    first, second = (g for g in curator.board.groups)
    curator.board.join(first, second)
    await curator.learn(MemoryRun(), 0)
    texts = set(curator.in_effect().values())
    assert len(texts) == 1
    left = next(text for text in both if text not in texts)
    curator.observe(rollouts([left] * 6 + [None] * 6), 1.0)
    await curator.learn(MemoryRun(), 0)
    assert {i.text for i in curator.ledger.active} >= set(both)


async def test_contradictions_are_reported_and_settled_only_on_evidence() -> None:
    run = MemoryRun()
    few, many = "The title must have at most 50 letters.", "The title must have at most 60 letters."
    curator = Curator(PROMPT, writer=False)
    curator.observe(rollouts([many] * 9 + [few] * 3), 1.0)
    await curator.learn(run, 0)
    tidy(curator, run)
    assert not any(isinstance(e, Resolve) for e in curator.events)
    assert [v["settled"] for n, v in run.logged if n == "conflict"] == [False]  # type: ignore[index, call-overload]
    curator.observe(rollouts([few] * 6 + [None] * 6), 1.0)
    tidy(curator, run)
    assert [i.text for i in curator.ledger.active][1:] == [many]


async def test_a_contradiction_with_the_text_around_the_fence_is_put_before_a_person() -> None:
    run = MemoryRun()
    curator = await learned(run, ["Use at most 70 plain words."] * 4)
    conflicts = [value for name, value in run.logged if name == "conflict"]
    assert conflicts == [
        {
            "first": "Use at most 90 plain words.",
            "second": "Use at most 70 plain words.",
            "why": "90 against 70",
            "settled": False,
        }
    ]
    assert "Use at most 90 plain words." in curator.prompt.source


async def test_what_nobody_misses_expires_and_what_is_missed_stays() -> None:
    run = MemoryRun()
    titles = [
        "The title must be in neat title case, with capitals and initials.",
        "Initials and capitals in the title: title case must be due.",
    ]
    curator = Curator(PROMPT, writer=False)
    curator.observe(rollouts([*titles] * 6), 1.0)
    for group in list(curator.board.groups):
        if len(group.wordings) > 1:
            curator.board.split(group, group.wordings[1:])
    curator.hear([])
    await curator.learn(run, 0)
    assert len(curator.ledger.active) == 3
    curator.observe(rollouts([None] * 12), 1.0)
    curator.held_out = doubtful(curator)
    assert len(curator.held_out) == 1
    (tried,) = curator.held_out
    assert curator.ledger[tried].text not in curator.prompt.text()
    assert [e.kind for e in curator.history()][-1] == "expire"
    curator.observe(rollouts([None] * 12), 1.0)
    assert judge_trial(curator) == [tried]
    assert isinstance(curator.events[-1], Expire) and "without it" in curator.events[-1].reason
    await curator.learn(run, 0)
    assert len(curator.ledger.active) == 2
    missed = titles[0] if titles[0] != curator.ledger[tried].text else titles[1]
    curator.held_out = frozenset({next(i.id for i in curator.ledger.active if i.id not in ("i1", tried))})
    curator.observe(rollouts([missed] * 9 + [None] * 3), 1.0)
    assert judge_trial(curator) == []
    assert len(curator.ledger.active) == 2


@pytest.mark.parametrize(("budget", "left"), [(1000, 3), (14, 2), (0, 1)])
async def test_the_budget_leaves_out_what_earns_least_and_nothing_written_by_hand(
    budget: int, left: int
) -> None:
    run = MemoryRun()
    curator = Curator(PROMPT, writer=False, budget=budget)
    curator.observe(rollouts(["Name the seller."] * 9 + ["Always greet the reader."]), 1.0)
    await curator.learn(run, 0)
    tidy(curator, run)
    texts = [i.text for i in curator.ledger.active]
    assert len(texts) == left and texts[0] == "Write three sentences."
    assert left == 1 or texts[1] == "Name the seller."
