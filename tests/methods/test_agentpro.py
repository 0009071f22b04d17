"""Agent-Pro: lost games are reflected on, a child must win on fresh and on old games; and that reading games matters."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.methods.figures import won_over
from tests.methods.rooms import DOORS, START, rooms

import whet
from whet.environments.multiturn import trajectories
from whet.methods.agentpro import BELIEFS, Config, agentpro
from whet.models.scripted import chance
from whet.rl import LanguagePolicy
from whet.run import Budget
from whet.search.archive import Candidate
from whet.testing.paired_benchmark import play_world
from whet.testing.runs import MeteredRun

CONFORMANCE = {"depth": 2, "width": 2, "games": 12, "replay": 6}
"""Settings of a run in the conformance suite."""
SWEEP = {"depth": 1, "width": 2, "games": 2, "replay": 1, "finalists": 1}
"""Settings of a run that is killed at every boundary."""


async def search(**settings: Any) -> tuple[Candidate, list[str], MeteredRun]:
    known = rooms(0)
    model: Any = known.optimizer
    run = MeteredRun({"task": known.env.model, "optimizer": model}, 1)
    best = await agentpro(run, known.env, LanguagePolicy(), START, Config(**settings))
    return best, model.questions, run


async def test_the_player_is_asked_for_beliefs_unless_it_is_switched_off() -> None:
    _, questions, _ = await search(depth=1)
    assert all(BELIEFS in question for question in questions)
    _, questions, _ = await search(depth=1, beliefs=False)
    assert questions and not any(BELIEFS in question for question in questions)


async def test_a_lost_game_is_checked_before_the_policy_is_written_anew() -> None:
    _, questions, _ = await search(depth=1, width=1)
    check, rewrite = questions
    assert "<AUDIT>" in check and check.count("Done: ") > 2 and "Reward: " in check
    assert "stayed shut" in rewrite and "stayed shut" not in check


async def test_the_search_goes_down_with_the_first_child_that_is_better() -> None:
    _, _, run = await search(depth=6, width=4)
    policies = [value for name, value in run.logged if name == "candidate"]
    means: list[Any] = [value["train"] for value in policies]  # type: ignore[index, call-overload]
    parents: list[Any] = [value["parents"][0] for value in policies[1:]]  # type: ignore[index, call-overload]
    assert len(policies) > 2 and means[-1] > means[0]
    assert parents == [value["id"] for value in policies[:-1]]  # type: ignore[index, call-overload]


async def test_a_policy_and_its_child_play_the_same_games_and_the_child_old_ones_too() -> None:
    known = rooms(0)
    run = MeteredRun({"task": known.env.model, "optimizer": known.optimizer}, 1)
    rows: list[list[str]] = []

    async def counted(run: Any, env: Any, pairs: Any) -> Any:
        rows.append([row.id for _, row in pairs])
        return await trajectories(run, env, pairs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("whet.methods.agentpro.trajectories", counted)
        await agentpro(run, known.env, LanguagePolicy(), START, Config(depth=1, width=1, games=8, replay=5))
    first, fresh, both = rows
    assert len(first) == len(fresh) == 8 and both[:8] == fresh
    assert 1 <= len(both[8:]) <= 5 and {*both[8:]} <= {*first} and not {*both[8:]} & {*fresh}


def test_it_plays_a_game_of_gymnasium(tmp_path: Path) -> None:
    """Through the public face: the policy that says when to stick is found by reading lost games."""
    pytest.importorskip("gymnasium")
    (tmp_path / "task").mkdir()
    files = {
        "task.yaml": "name: cards\nprompt: prompt.md\nenvironment: {gymnasium: Blackjack-v1, turns: 6, episodes: 120}\n",
        "prompt.md": "<!-- whet:begin -->\nPlay.\n<!-- whet:end -->\n{{input}}",
    }
    for name, text in files.items():
        (tmp_path / "task" / name).write_text(text)

    def player(messages: Any) -> str:
        text = "\n".join(message["content"] for message in messages)
        total = int(re.findall(r"sum to (\d+)", text)[-1])
        return "stick" if "Stick at 17" in text and total >= 17 else "hit"

    def writer(messages: Any) -> str:
        text = messages[-1]["content"]
        if "<AUDIT>" in text:
            return "<AUDIT>The player took a card too many.</AUDIT>"
        return "<INSTRUCTION>Play. Stick at 17 or more.</INSTRUCTION>"

    result = whet.optimize(
        tmp_path / "task",
        lm=player,
        optimizer_lm=writer,
        method=Config(depth=2, width=1),
        run=tmp_path / "run",
    )
    assert "Stick at 17" in result.best.prompt.text


# The contests: lost games of other doors than its own, and no old games.

SEEDS, LIMITS = range(100, 120), Budget(task_calls=60_000)


def elsewhere(question: str) -> str:
    """A question whose games came to a halt before other doors."""
    return re.sub(
        r"(?m)^(Seen: .*door )\d\.$", lambda m: f"{m[1]}{int(chance(question, 'door') * DOORS)}.", question
    )


@cache
def reached(change: Callable[[str], str] = str, **settings: Any) -> list[float]:
    """What the method finds in the world of each seed."""
    return [
        play_world("agentpro", rooms(s, 0.9, change), s, LIMITS, {"width": 8, "depth": 12, **settings})
        for s in SEEDS
    ]


@pytest.mark.long
def test_what_it_reads_of_lost_games_is_what_it_wins_by() -> None:
    assert won_over("with games lost before other doors", reached(), reached(elsewhere)).low > 0


@pytest.mark.long
def test_of_old_games_no_benefit_is_shown() -> None:
    assert won_over("without old games", reached(), reached(replay=0)).low < 0


@pytest.mark.long
def test_it_beats_random_search_over_the_same_phrases() -> None:
    other = [play_world("random_search", rooms(s, 0.9), s, LIMITS) for s in SEEDS]
    assert won_over("random search", reached(), other).low > 0
