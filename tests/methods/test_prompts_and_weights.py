"""p2o and fst: prompts that evolve beside the weights, what is learned on which context, and rows that are never solved."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

pytest.importorskip("torch", reason="writers need torch: pip install 'whet[train]'")
pytest.importorskip("transformers", reason="writers need transformers: pip install 'whet[train]'")
pytest.importorskip("peft", reason="writers need peft: pip install 'whet[train]'")

from benchmarks.hard_rows import FIRST, arm
from benchmarks.simulated.answer_policy import NEVER, START, AnswerPolicy, environment
from tests.environments.worlds import Scripted
from tests.rl.scribe import Scribe

from whet.environments.environment import Environment
from whet.methods.fst import Config as FstConfig
from whet.methods.fst import deploy, fst, split
from whet.methods.method import configure
from whet.methods.p2o import Config, cost_of_step, p2o
from whet.prompt import Prompt
from whet.rl.policy_model import Sample
from whet.rl.prompt_front import ONLY, PromptFront
from whet.run import MemoryRun
from whet.search.archive import Candidate
from whet.testing.methods import MethodConformance
from whet.testing.runs import MeteredRun

SMALL: dict[str, Any] = {"steps": 6, "problems": 4, "group": 6, "lr": 15.0, "checks": 1}


class Logged(Scribe):
    """A Scribe that knows the log-probabilities of samples, on the context that they stand in."""

    def logprobs(self, samples: Sequence[Sample]) -> list[list[float]]:
        return [[-1.0] * len(sample.tokens) for sample in samples]


class Keeper:
    """Keeps notes."""

    def __init__(self) -> None:
        self.notes: dict[str, object] = {}


def test_a_prompt_stays_that_is_best_on_some_row_and_the_start_always() -> None:
    front = PromptFront(Keeper(), Prompt.parse("so"), most=2)
    front.settle({"so": [0.0, 0.0, 0.0], "a": [1.0, 0.0, 0.0], "b": [0.0, 1.0, 1.0], "c": [0.0, 1.0, 0.0]})
    assert front.texts == ["so", "b", "a"] and front.best == "b"
    drawn = front.draw(random.Random(0), 300)
    assert "so" not in drawn and 150 < drawn.count("b") < 250, "two rows of three"


def test_before_a_round_the_start_is_drawn() -> None:
    assert PromptFront(Keeper(), Prompt.parse("so"), 2).draw(random.Random(0), 2) == ["so", "so"]


async def run_p2o(**settings: Any) -> tuple[AnswerPolicy, MeteredRun]:
    env, policy = environment([NEVER, 1.4], rows=6), AnswerPolicy([NEVER, 1.4])
    run = MeteredRun(
        {"task": env.model, "optimizer": Scripted(lambda r: "<INSTRUCTION>Answer. Hint 0.</INSTRUCTION>")}
    )
    config = Config(**{**SMALL, "every": 2, "hard": 4, **settings})
    await p2o(run, env, policy, START, config)  # type: ignore[arg-type]
    return policy, run


async def test_rollouts_under_a_prompt_are_learned_from_without_it() -> None:
    policy, run = await run_p2o()
    assert policy.b[0] > NEVER + 1 and policy.v[0] == pytest.approx(0.4), (
        "the bare context learns, the other does not"
    )
    steps = [value for name, value in run.logged if name == "step"]
    assert sum(step["helped"] for step in steps) > 0 and steps[0]["hard"] > 0


async def test_without_distillation_the_bare_context_learns_nothing() -> None:
    policy, _ = await run_p2o(distil=False)
    assert policy.b[0] == pytest.approx(NEVER, abs=0.01) and policy.v[0] > 0.5


async def test_a_shaped_ratio_learns_nothing_from_what_the_policy_never_writes() -> None:
    policy, _ = await run_p2o(ratio="shaped")
    assert policy.b[0] == pytest.approx(NEVER, abs=0.01)


async def test_without_rounds_it_is_plain_grpo() -> None:
    policy, run = await run_p2o(every=0)
    assert policy.b[0] == pytest.approx(NEVER, abs=0.01) and list(policy.notes["front"]) == ["Answer."]
    assert {value["helped"] for name, value in run.logged if name == "step"} == {0}


async def test_the_optimizer_may_write_the_prompts() -> None:
    policy, run = await run_p2o(writer="optimizer", steps=2)
    assert run.spent["optimizer"] > 0 and "Answer. Hint 0." in policy.notes["front"]


async def test_the_cost_of_a_step_is_not_exceeded() -> None:
    _, run = await run_p2o(steps=4, checks=0)
    each = cost_of_step(Config(**{**SMALL, "every": 2, "hard": 4}), 4)
    assert run.spent["task"] <= 8 + 4 * each + 4 * 4 * (1 + 4 + 3)


async def test_fst_returns_a_prompt_with_weights_that_serve_as_they_were_validated() -> None:
    first = [NEVER, 0.4]
    env, policy = environment(first, rows=6), AnswerPolicy(first)
    run = MeteredRun({"task": env.model})
    config = FstConfig(**{**SMALL, "every": 3, "measured": 6})
    found = await fst(run, env, policy, START, config)  # type: ignore[arg-type]
    assert found.system is not None and "Hint 0." in found.prompt.text and found.operator == "fst"
    validated = {v["id"]: v["validation"] for name, v in run.logged if name == "validated"}
    assert len(validated) == 3, (
        "the task model, the best prompt with weights, and the prompt as written with them"
    )
    system = deploy(env, AnswerPolicy(first), run.kept[found.system], config)  # type: ignore[arg-type]
    (score,) = await system.score(MemoryRun({"task": env.model}), [found.prompt], env.validation)
    assert score.mean == validated[found.id]


def test_answers_are_compared_over_all_prompts_or_under_the_same_one() -> None:
    sample: Any = None
    group = [(sample, 1.0, 1.0), (sample, 0.0, 0.0), (sample, 0.5, 0.5)]
    assert split(["a", "b", "a"], group, "problem") == [group]
    assert split(["a", "b", "a"], group, "prompt") == [[group[0], group[2]], [group[1]]]


@pytest.mark.long
def test_prompts_open_rows_that_weights_alone_never_solve() -> None:
    """Simulated rows; docs/figures.md has all arms and more seeds."""
    for seed in (0, 1):
        assert arm("p2o", seed)[1] > 0.9 and arm("fst", seed)[2] > 0.9
        for control in ("GRPO", "GRPO, twice the group", "p2o, gradient on the context with the prompt"):
            assert arm(control, seed)[1] < 0.01, control
        assert arm("fst, weights alone", seed)[2] < 0.6 and len(FIRST) == 6


def words(conversation: Any) -> list[str]:
    """What a Scribe answers to a row, or writes as a prompt."""
    if conversation[-1].content.endswith(ONLY):
        return ["Think carefully.", "", "Name it {{input}}", "Guess."]
    return ["positive", "negative", "neither"]


class TestP2o(MethodConformance):
    method = "p2o"
    settings = {"steps": 3, "group": 2, "problems": 2, "every": 1, "hard": 2, "new": 1, "lr": 1.0}  # noqa: RUF012

    def run(
        self, run: MeteredRun, env: Environment | None = None, settings: Mapping[str, Any] | None = None
    ) -> Candidate:
        config = configure(self.load(), self.settings if settings is None else settings)
        policy: Any = Logged(words)
        return asyncio.run(p2o(run, env or self.environment(), policy, self.start(), config))


class TestFst(MethodConformance):
    method = "fst"
    settings = {"steps": 3, "group": 2, "problems": 2, "every": 1, "measured": 2, "new": 1, "lr": 1.0}  # noqa: RUF012

    def run(
        self, run: MeteredRun, env: Environment | None = None, settings: Mapping[str, Any] | None = None
    ) -> Candidate:
        config = configure(self.load(), self.settings if settings is None else settings)
        policy: Any = Logged(words)
        return asyncio.run(fst(run, env or self.environment(), policy, self.start(), config))
