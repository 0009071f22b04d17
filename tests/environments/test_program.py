"""Programs: traces, prompts by name, recorded calls and tools, limits and failures."""

from __future__ import annotations

import asyncio
import dataclasses
import pickle
import sys
import threading
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.engine.world import Model, close, open_core, run_of
from tests.environments.worlds import Scripted

from whet.environments.environment import Environment
from whet.environments.program import Program, ProgramEnvironment, as_program, load_user_program, program_of
from whet.environments.program_model import ProgramFailed
from whet.errors import BudgetExceeded, ReplayDiverged, UsageError
from whet.prompt import Prompt
from whet.rewards.text import ExactMatch
from whet.run import Budget, MemoryRun
from whet.search.minibatch import show_rollout
from whet.types import Example, Message, Request, Rollout

PROMPT = Prompt.of_parts(
    {"plan": "Plan for {{question}}", "answer": "Answer with it.", "check": "Check {{x}}"}
)
ROW = {"id": "1", "input": {"question": "why"}, "target": "because"}
EXAMPLE = Example("1", {"question": "why"}, "because", ROW)


async def two_steps(lm: Any, prompts: Any, example: Any) -> str:
    plan = await lm("plan")
    return str(await lm("answer", question=example["question"], plan=plan))


def env_of(program: Any, answer: Callable[[Request], str], **limits: Any) -> ProgramEnvironment:
    made = program if isinstance(program, Program) else program_of(program, "program", **limits)
    model = Scripted(answer)
    return as_program(Environment(model, ExactMatch(), (EXAMPLE,), (EXAMPLE,)), made)


async def rolled(env: ProgramEnvironment, prompt: Prompt = PROMPT) -> Rollout:
    return (await env.evaluate(MemoryRun({"task": env.model, "judge": env.model}), prompt, [EXAMPLE]))[0]


def shout(request: Request) -> str:
    return "because" if request.messages[0].role == "system" else request.messages[0].content.upper()


async def test_each_call_is_a_step_of_the_trace() -> None:
    rollout = await rolled(env_of(two_steps, shout))
    assert (rollout.output, rollout.reward, rollout.error) == ("because", 1.0, None)
    assert [(step.prompt, step.output) for step in rollout.steps] == [
        ("plan", "PLAN FOR WHY"),
        ("answer", "because"),
    ]
    assert rollout.steps[1].inputs == {"question": "why", "plan": "PLAN FOR WHY"}
    assert rollout.usage.input_tokens == 6
    assert "Prompt plan" in show_rollout(EXAMPLE, rollout)


async def test_a_prompt_without_slots_is_the_system_message() -> None:
    seen: list[tuple[Message, ...]] = []
    env = env_of(two_steps, lambda request: seen.append(request.messages) or "p")
    await rolled(env)
    assert seen[0] == (Message("user", "Plan for why"),)
    assert seen[1] == (Message("system", "Answer with it."), Message("user", "question: why\nplan: p"))


async def test_the_target_stays_out_of_sight() -> None:
    async def program(lm: Any, prompts: Any, example: Any) -> str:
        return f"{sorted(example)} {prompts['plan']}"

    assert (
        await rolled(env_of(program, shout))
    ).output == "['id', 'input', 'question'] Plan for {{question}}"


async def test_free_calls_other_roles_and_objects_with_an_output() -> None:
    class Result:
        output = "because"

    async def program(lm: Any, prompts: Any, example: Any) -> Result:
        await lm.role("judge").ask([{"role": "user", "content": "hi"}])
        await lm.ask("again")
        return Result()

    rollout = await rolled(env_of(program, shout))
    assert [(step.role, step.prompt) for step in rollout.steps] == [("judge", ""), ("task", "")]
    assert rollout.reward == 1.0


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("lm('check')", "Nothing fills the slot {{x}} of the prompt check"),
        (
            "lm('plan', qestion='how')",
            'no slot {{qestion}}, so that lm("plan", qestion=...) would be lost. Did you mean "question"?',
        ),
        ("lm('chek', x=1)", 'no prompt "chek". Did you mean "check"?'),
        ("lm.role('tsk').ask('x')", 'no role "tsk". Did you mean "task"?'),
        ("asyncio.sleep(0)", "expected a text"),
    ],
)
async def test_a_mistake_is_a_failed_rollout_with_its_line(tmp_path: Path, call: str, error: str) -> None:
    file = tmp_path / "program.py"
    file.write_text(f"import asyncio\nasync def program(lm, prompts, example):\n    return await {call}\n")
    rollout = await rolled(env_of(load_user_program(file, "task.yaml:3"), shout))
    assert rollout.reward == 0.0
    assert rollout.error is not None
    assert rollout.error.startswith("program: program.py:") and error in rollout.error


async def test_too_many_calls_fail_the_rollout() -> None:
    async def program(lm: Any, prompts: Any, example: Any) -> str:
        while True:
            await lm("plan")

    rollout = await rolled(env_of(program, shout, calls=3))
    assert rollout.error is not None and "more than 3 calls" in rollout.error
    assert len(rollout.steps) == 3


async def test_equal_requests_are_samples_of_their_own() -> None:
    samples: list[int] = []

    async def program(lm: Any, prompts: Any, example: Any) -> str:
        await asyncio.gather(lm("plan"), lm("plan"))
        return "x"

    await rolled(env_of(program, lambda request: samples.append(request.sample) or "p"))
    assert len(set(samples)) == 2


@pytest.mark.parametrize("blocking", [True, False])
async def test_a_program_that_hangs_ends_the_run(blocking: bool) -> None:
    late = threading.Event()

    async def program(lm: Any, prompts: Any, example: Any) -> str:
        await lm("plan")
        if blocking:
            late.wait()
        await asyncio.Event().wait()
        return "x"

    with pytest.raises(UsageError, match=r"taken 0\.2 s beside its calls for row 1\."):
        await rolled(env_of(program, shout, seconds=0.2))
    late.set()


async def test_waiting_for_models_is_not_the_programs_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock goes on only while a model is asked, for longer than the program has; its limit is looked at meanwhile."""
    now = [0.0]

    class Slow(Scripted):
        async def generate(self, request: Request) -> list[Any]:
            now[0] += 1.0
            await asyncio.sleep(0.2)
            return await super().generate(request)

    clock = SimpleNamespace(monotonic=lambda: now[0], thread_time=time.thread_time)
    monkeypatch.setattr("whet.environments.program.time", clock)
    env = env_of(two_steps, shout, seconds=0.05)
    slow = as_program(Environment(Slow(shout), ExactMatch(), (EXAMPLE,), (EXAMPLE,)), env.program)  # type: ignore[arg-type]
    assert (await rolled(slow)).reward == 1.0


async def test_a_resume_asks_for_nothing_that_is_recorded(tmp_path: Path) -> None:
    used: list[str] = []

    async def program(lm: Any, prompts: Any, example: Any) -> str:
        plan = await lm("plan")
        pages = await lm.tool(lambda query: used.append(query) or {"pages": [query]}, plan)
        return str(await lm("check", x=pages["pages"]))

    env = env_of(program, shout)
    for _ in range(2):
        model = Model()
        core = open_core(tmp_path, model)
        rollout = (await env.evaluate(run_of(core), PROMPT, [EXAMPLE]))[0]
        await close(core)
        assert rollout.output == 'echo: Check ["echo: Plan for why"]'
        assert [step.role for step in rollout.steps] == ["task", "tool", "task"]
    assert model.calls == 0
    assert len(used) == 1


@dataclasses.dataclass
class Page:
    title: str
    score: float


@pytest.mark.parametrize(
    ("returned", "seen"),
    [
        ({"b", "a"}, ["a", "b"]),
        ((1, (2.5,)), [1, [2.5]]),
        (np.array([[1.5], [2.0]]), [[1.5], [2.0]]),
        (np.float32(1.5), 1.5),
        ([Page("x", 0.5)], [{"title": "x", "score": 0.5}]),
        (date(2026, 1, 31), "2026-01-31"),
        (float("nan"), None),
        (b"ab", None),
        (object(), None),
        (iter([1]), None),
        (10**30, None),
        ({1: 2}, None),
    ],
)
async def test_a_program_works_on_what_a_tool_returned_and_on_no_words_about_it(
    returned: Any, seen: Any, tmp_path: Path
) -> None:
    results: list[Any] = []

    def look() -> Any:
        return returned

    async def program(lm: Any, prompts: Any, example: Any) -> str:
        results.append(await lm.tool(look))
        return "x"

    core = open_core(tmp_path, Model())
    rollout = (await env_of(program, shout).evaluate(run_of(core), PROMPT, [EXAMPLE]))[0]
    await close(core)
    assert results == ([] if seen is None else [seen])
    refused = "it returned " in str(rollout.error) and "Return " in str(rollout.error)
    assert refused == (seen is None)


async def test_the_failure_of_a_tool_is_recorded_too(tmp_path: Path) -> None:
    used: list[int] = []

    def broken() -> str:
        used.append(1)
        raise OSError("no network")

    async def program(lm: Any, prompts: Any, example: Any) -> str:
        await lm.tool(broken)
        return "x"

    for _ in range(2):
        core = open_core(tmp_path, Model())
        rollout = (await env_of(program, shout).evaluate(run_of(core), PROMPT, [EXAMPLE]))[0]
        await close(core)
        assert rollout.error == "program: tool broken: OSError: no network"
    assert len(used) == 1


async def test_the_failure_of_a_tool_names_its_exception_and_keeps_it_as_the_cause() -> None:
    class Missing(KeyError):
        pass

    def look(key: str) -> str:
        raise Missing(key)

    caught: list[ProgramFailed] = []

    async def program(lm: Any, prompts: Any, example: Any) -> str:
        try:
            return str(await lm.tool(look, "a"))
        except ProgramFailed as error:
            caught.append(error)
            return f"because of {error.type}"

    assert (await rolled(env_of(program, shout))).output == "because of Missing"
    assert isinstance(caught[0].__cause__, Missing) and "Missing: 'a'" in str(caught[0])
    assert (copied := pickle.loads(pickle.dumps(caught[0]))).type == "Missing" and str(copied) == str(
        caught[0]
    )


async def test_calls_that_begin_in_another_order_at_the_resume_get_their_recorded_answers(
    tmp_path: Path,
) -> None:
    """Calls were recorded by when they came: a program that asks several things at once could not go on after a kill."""
    order = ["a", "b", "c"]

    async def program(lm: Any, prompts: Any, example: Any) -> str:
        return " ".join(await asyncio.gather(*[lm("check", x=word) for word in order]))

    env, asked, steps = env_of(program, shout), [], []
    for change in (list, reversed):
        order[:] = change(order)
        core = open_core(tmp_path, model := Model())
        (rollout,) = await env.evaluate(run_of(core), PROMPT, [EXAMPLE])
        await close(core)
        asked.append(model.calls)
        steps.append([step.inputs["x"] for step in rollout.steps])
    assert asked == [3, 0] and steps == [["a", "b", "c"]] * 2


async def test_a_program_that_asks_otherwise_at_the_resume_is_refused(tmp_path: Path) -> None:
    words = iter("ab")

    async def program(lm: Any, prompts: Any, example: Any) -> str:
        try:
            return str(await lm("check", x=next(words)))
        except Exception:
            return "swallowed"

    env = env_of(program, shout)
    core = open_core(tmp_path, Model())
    await env.evaluate(run_of(core), PROMPT, [EXAMPLE])
    await close(core)
    core = open_core(tmp_path, Model())
    with pytest.raises(ReplayDiverged):
        await env.evaluate(run_of(core), PROMPT, [EXAMPLE])
    await close(core)


async def test_a_program_cannot_swallow_the_end_of_the_budget(tmp_path: Path) -> None:
    async def program(lm: Any, prompts: Any, example: Any) -> str:
        for _ in range(3):
            try:
                await lm("plan")
            except Exception:
                continue
        return "x"

    core = open_core(tmp_path, Model(), Budget(calls=1))
    with pytest.raises(BudgetExceeded):
        await env_of(program, shout).evaluate(run_of(core), PROMPT, [EXAMPLE])
    await close(core)


async def test_printing_goes_to_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    async def program(lm: Any, prompts: Any, example: Any) -> str:
        print("hello")
        return "x"

    await rolled(env_of(program, shout))
    sys.stderr.flush()
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize(
    "text", ["x = 1", "def program(lm, prompts, example): pass", "async def program(lm): pass"]
)
def test_what_is_no_program_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "program.py").write_text(text)
    with pytest.raises(UsageError, match=r"program\(lm, prompts, example\)"):
        load_user_program(tmp_path / "program.py", "task.yaml:3")
