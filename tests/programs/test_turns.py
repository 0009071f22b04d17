"""Every region has its turn: with any method that writes texts, within its share, and across resumes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.engine.world import Model, close, open_core
from tests.programs.test_optimize import optimize
from tests.programs.world import PROMPTS
from whet.engine.journal import read_events
from whet.engine.turns import search_in_turns
from whet.prompt import Prompt
from whet.run import Budget
from whet.search.archive import Candidate
from whet.search.regions import turns

METHODS: dict[str, dict[str, Any]] = {
    "random_search": {"n": 4, "finalists": 1},
    "grips": {"iterations": 2, "candidates": 2, "finalists": 1},
    "meta_prompt": {"loops": 2, "rollouts": 4, "finalists": 1},
    "protegi": {"rounds": 1, "beam": 1, "gradients": 1, "paraphrases": 1, "minibatch": 6, "budget": 12},
}
PROGRAM = Prompt.of_parts(PROMPTS)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    "method",
    [
        one if one in ("meta_prompt", "grips") else pytest.param(one, marks=pytest.mark.long)
        for one in METHODS
    ],
)
def test_a_method_edits_each_region_in_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    monkeypatch.setenv("WHET_STATE", str(tmp_path / "state"))
    optimize(tmp_path / "run", method=method, settings=METHODS[method], budget=Budget(calls=1500))
    edited = {"plan": 0, "answer": 0}
    for event in read_events(tmp_path / "run" / "journal.sqlite", ["candidate"]):
        prompt = Prompt.parse(event.value["messages"][0][1])
        for name in edited:
            edited[name] += prompt.region_text(name) != PROGRAM.region_text(name)
            rest = {n: prompt.parts[n].messages[0].content for n in prompt.parts}
            region = prompt.region_text(name)
            assert rest[name].replace(region, "") == PROMPTS[name].replace(PROGRAM.region_text(name), "")
    assert all(edited.values())


class Weights:
    """A policy that remembers what it was trained on."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def save(self) -> bytes:
        return ",".join(self.seen).encode()

    def load(self, blob: bytes) -> None:
        self.seen = blob.decode().split(",")


async def test_a_resume_goes_on_in_the_turn_that_was_cut_off(tmp_path: Path) -> None:
    task = SimpleNamespace(prompt=PROGRAM, region="round_robin")
    plan: Any = SimpleNamespace(task=task, policy=object())
    order = turns(PROGRAM, "round_robin")
    limits: list[tuple[str, int | None]] = []

    async def search(weights: Weights, dies_at: str) -> Any:
        core = open_core(tmp_path, Model(), Budget(calls=100), held=Budget(calls=20))

        async def run_method(path: str, own: Budget, start: Prompt) -> tuple[str, Candidate]:
            region = start.region().name
            limits.append((region, own.calls))
            assert core.budget.held.calls == 100 - (own.calls or 0)
            if region == dies_at:
                raise KeyboardInterrupt
            weights.seen.append(region)
            return "", Candidate(start.edit(f"Better {region}."))

        try:
            return (await search_in_turns(plan, core, order, run_method, weights, []))[1]
        finally:
            await core.journal.commit()
            await close(core)

    with pytest.raises(KeyboardInterrupt):
        await search(Weights(), "answer")
    fresh = Weights()
    best = await search(fresh, "")
    assert fresh.seen == ["plan", "answer"]
    assert limits == [("plan", 40), ("answer", 80), ("answer", 80)]
    assert best.prompt == PROGRAM.edit("Better plan.", "plan").edit("Better answer.", "answer")
