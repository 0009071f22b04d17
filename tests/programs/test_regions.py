"""Critiques with an address reach that prompt only; those without one are assigned; the budget is shared out."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import whet
from tests.environments.test_program import EXAMPLE, env_of, shout, two_steps
from tests.programs.world import PROMPTS, ROWS, model, program, reward
from whet.engine.journal import read_events
from whet.environments.program import ProgramEnvironment
from whet.prompt import Prompt
from whet.rewards.composite import Weighted
from whet.rewards.program import program_of_function
from whet.run import Budget, MemoryRun
from whet.search.regions import blamed_regions, changed_regions, share_of, turns
from whet.types import Message, Rollout, TraceStep

PROGRAM = Prompt.of_parts(PROMPTS)
WORDS = {"digits": "Always look for the digits.", "number": "Write only the number."}


def reader(messages: tuple[Message, ...]) -> str:
    """A reader of critiques: an instruction for each of the two faults, and which prompt is to blame."""
    text = messages[0].content
    if '"assigned"' in text:
        lines = [(int(m[1]), m[2]) for m in re.finditer(r"(?m)^(\d+)\. (.*)$", text)]
        return json.dumps(
            {"assigned": [{"critique": n, "prompt": "plan" if "digits" in t else "answer"} for n, t in lines]}
        )
    if '"requirements"' not in text:
        return json.dumps({"duplicates": [], "contradictions": [], "unclear": []})
    faults = [fault for fault in WORDS if f"the {fault} missed" in text]
    return json.dumps(
        {
            "requirements": [
                {"critiques": [1], "violates": None, "instruction": WORDS[fault]} for fault in faults
            ]
        }
    )


def unaddressed(example: dict[str, Any], output: str) -> dict[str, Any]:
    graded = reward(example, output)
    if "critique" in graded:
        graded["critique"] = f"the {'number' if 'answer' in graded['critique'] else 'digits'} missed"
    return graded


def addressed(example: dict[str, Any], output: str) -> dict[str, Any]:
    graded = unaddressed(example, output)
    if "critique" in graded:
        part = "answer" if "number" in graded["critique"] else "plan"
        graded["critique"] = {part: graded["critique"]}
    return graded


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("metric", [pytest.param(addressed, marks=pytest.mark.long), unaddressed])
def test_prompt_learning_teaches_each_prompt_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, metric: Any
) -> None:
    monkeypatch.setenv("WHET_STATE", str(tmp_path / "state"))
    result = whet.optimize(
        PROMPTS,
        program={"function": program, "calls": 2},
        data=ROWS,
        reward=metric,
        lm=model,
        optimizer_lm=reader,
        method="prompt_learning",
        settings={"rounds": 4, "rollouts": 8},
        budget=Budget(calls=1500),
        run=tmp_path / "run",
    )
    best = result.best.prompt
    assert WORDS["digits"] in best.region_text("plan") and WORDS["digits"] not in best.region_text("answer")
    assert WORDS["number"] in best.region_text("answer") and WORDS["number"] not in best.region_text("plan")
    stages = [event.value["stage"] for event in read_events(tmp_path / "run" / "journal.sqlite", ["stage"])]
    assert ("assign" in stages) == (metric is unaddressed)
    assert len(read_events(tmp_path / "run" / "journal.sqlite", ["ledger"])) == 2


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_prompt_learning_adds_to_prompts_without_a_fence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An instruction below a line with a slot is a block without one, which must not be taken for the whole region."""

    def obedient(messages: tuple[Message, ...]) -> str:
        text = messages[-1].content
        number = re.search(r"number (\d+)|the digits (\d+)", text)
        if text.startswith("Say what"):
            return f"the digits {number[1]}" if number and "digits" in text else "something"
        return str(number[2]) if number else "I do not know."

    monkeypatch.setenv("WHET_STATE", str(tmp_path / "state"))
    result = whet.optimize(
        {"plan": "Say what to look for in {{input}}", "answer": "{{plan}}\n\nAnswer: {{input}}"},
        program={"function": program, "calls": 2},
        data=ROWS,
        reward=addressed,
        lm=obedient,
        optimizer_lm=reader,
        method="prompt_learning",
        settings={"rounds": 3, "rollouts": 8},
        budget=Budget(calls=1500),
        run=tmp_path / "run",
    )
    texts = {name: part.messages[0].content for name, part in result.best.prompt.parts.items()}
    assert texts == {
        "plan": f"Say what to look for in {{{{input}}}}\n- {WORDS['digits']}",
        "answer": "{{plan}}\n\nAnswer: {{input}}",
    }


def graded_by(*rewards: Any) -> ProgramEnvironment:
    parts = tuple((1.0 / len(rewards), program_of_function(one, "reward", 0, 1)) for one in rewards)
    env = env_of(two_steps, shout)
    return ProgramEnvironment(**{**vars(env), "reward": Weighted(parts) if len(parts) > 1 else parts[0][1]})


async def rolled(env: ProgramEnvironment, prompt: Prompt) -> Rollout:
    return (await env.evaluate(MemoryRun({"task": env.model}), prompt, [EXAMPLE]))[0]


TWO = Prompt.of_parts({"plan": "Plan for {{question}}", "answer": "Answer with it."})


async def test_who_edits_one_prompt_sees_no_critique_of_another() -> None:
    def both(example: dict[str, Any], output: str) -> dict[str, Any]:
        return {"reward": 0.0, "critique": {"plan": "too short", "answer": ["too long", "too late"]}}

    env = graded_by(both)
    assert (await rolled(env, TWO)).addressed == {"plan": "too short", "answer": "too long\ntoo late"}
    assert (await rolled(env, TWO)).critique == "too short\ntoo long\ntoo late"
    assert (await rolled(env, TWO.with_focus("plan"))).critique == "too short"


@pytest.mark.parametrize("method", ["gepa", "simba"])
def test_a_method_that_edits_every_region_shows_each_its_own_critiques(tmp_path: Path, method: str) -> None:
    questions: list[str] = []

    def both(example: dict[str, Any], output: str) -> dict[str, Any]:
        return {"reward": float(int(output) % 2), "critique": {"plan": "too short", "answer": "too long"}}

    def writer(messages: tuple[Message, ...]) -> str:
        questions.append(messages[0].content)
        return f"<PROMPT>Try {len(questions)}.</PROMPT><RULE>Try {len(questions)}.</RULE>"

    whet.optimize(
        PROMPTS,
        program={"function": program, "calls": 2},
        data=ROWS,
        reward=both,
        lm=lambda messages, request: f"{request.sample}",
        optimizer_lm=writer,
        method=method,
        budget=Budget(calls=600),
        run=tmp_path / "run",
    )
    plan = ['the prompt "plan"' in q for q in questions]
    assert {*plan} == {True, False}
    assert [("too short" in q, "too long" in q) for q in questions] == [(p, not p) for p in plan]


async def test_critiques_of_several_rewards_keep_their_addresses() -> None:
    def plain(example: dict[str, Any], output: str) -> dict[str, Any]:
        return {"reward": 0.0, "critique": "rude"}

    def to_plan(example: dict[str, Any], output: str) -> dict[str, Any]:
        return {"reward": 0.0, "critique": {"plan": "short"}}

    rollout = await rolled(graded_by(plain, to_plan), TWO)
    assert rollout.addressed == {"": "rude", "plan": "short"}
    assert (await rolled(graded_by(plain, plain), TWO)).addressed == {}


async def test_an_unknown_address_is_an_error_of_the_reward() -> None:
    def wrong(example: dict[str, Any], output: str) -> dict[str, Any]:
        return {"reward": 1.0, "critique": {"plna": "short"}}

    rollout = await rolled(graded_by(wrong), TWO)
    assert rollout.reward == 0.0
    assert rollout.error is not None and 'Did you mean "plan"' in rollout.error


def test_the_budget_is_shared_out() -> None:
    blamed = [Rollout("p", "e", "", 0.0, addressed={"answer": "x"}, steps=(TraceStep("plan", {}, ""),))] * 3
    assert [(t.region, t.share) for t in turns(PROGRAM, "round_robin")] == [("plan", 0.5), ("answer", 1.0)]
    assert [(t.region, t.share) for t in turns(PROGRAM, "blame", blamed)] == [("answer", 0.8), ("plan", 1.0)]
    assert [(t.region, t.share) for t in turns(PROGRAM, "answer")] == [("answer", 1.0)]
    assert share_of(Budget(calls=101, cost_usd=1.0), 0.5) == Budget(calls=50, cost_usd=0.5)


def test_the_region_in_turn_gives_way_to_those_that_are_blamed() -> None:
    def critiques(*names: str) -> list[Rollout]:
        return [Rollout("p", "e", "", 0.0, addressed={name: "Wrong."}) for name in names]

    regions = ["plan", "answer"]
    assert blamed_regions(PROGRAM, regions, "plan", critiques("answer", "answer")) == ["answer"]
    assert blamed_regions(PROGRAM, regions, "plan", critiques("answer", "plan")) == regions
    assert blamed_regions(PROGRAM, regions, "plan", critiques("answer", "")) == ["plan"]
    assert blamed_regions(PROGRAM, regions, "answer", critiques()) == ["answer"]
    assert blamed_regions(PROGRAM, ["plan"], "plan", critiques("answer")) == ["plan"]


def test_a_region_is_put_back_alone() -> None:
    edited = PROGRAM.edit("Other.", "plan").edit("Better.", "answer")
    assert changed_regions(PROGRAM, edited) == ["plan", "answer"]
    assert edited.restore("plan", PROGRAM) == PROGRAM.edit("Better.", "answer")
    plain = Prompt.parse("Answer.\n{{input}}")
    assert plain.edit("Be brief.").restore("instructions", plain) == plain
