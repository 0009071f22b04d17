"""BetterTogether: stages in their order, what is returned, and that no stage is trusted unseen; and what the order is worth."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="writers need torch: pip install 'whet[train]'")
pytest.importorskip("transformers", reason="writers need transformers: pip install 'whet[train]'")
pytest.importorskip("peft", reason="writers need peft: pip install 'whet[train]'")

import torch
from benchmarks.simulated.answer_policy import NEVER, START, AnswerPolicy, environment
from benchmarks.simulated.clause_tasks import write_task
from benchmarks.stage_orders import arm
from tests.methods.call_world import START as CALLS
from tests.methods.call_world import call_world, worth
from tests.methods.call_world import policy as call_policy
from tests.methods.figures import won_over
from tests.rl.scribe import Scribe

import whet
from whet import api
from whet.environments.environment import Environment
from whet.errors import ProviderError, UsageError
from whet.methods import Method, MethodEntry, configure, get_method
from whet.methods.better_together import Config, better_together, check, deploy, stages_of
from whet.prompt import Prompt
from whet.run import Budget, MemoryRun, Run
from whet.search.archive import Archive, Candidate
from whet.testing.methods import MethodConformance
from whet.testing.runs import MeteredRun

FIRST = (NEVER, 0.4)
SMALL = Config(prompts="adding", steps=20, problems=4, group=6, lr=40.0)


@dataclass(frozen=True)
class Plain:
    """No settings."""


@dataclass
class Adding:
    """A method that returns its start with words added, or other words instead, stage by stage; it notes what it was given."""

    words: Sequence[str] = ("Hint 0.",)
    whole: bool = False
    starts: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    fails: bool = False

    def method(self, name: str) -> Method:
        async def adding(run: Any, env: Any, policy: Any, start: Prompt, config: Any) -> Candidate:
            if self.fails:
                raise ProviderError("out of order")
            text = start.region_text().strip()
            words = self.words[len(self.starts) % len(self.words)]
            self.starts, self.rows = (*self.starts, text), (*self.rows, tuple(row.id for row in env.train))
            await Archive().validate(run, env, [Candidate(start)])
            return Candidate(start.edit(words if self.whole else f"{text} {words}"))

        return Method(MethodEntry(name, name, version=1), adding, Plain)


async def search(
    strategy: str, adding: Adding | None = None, limits: Budget | None = None, **settings: Any
) -> tuple[Candidate, MeteredRun, AnswerPolicy]:
    env, policy = environment(FIRST, rows=6), AnswerPolicy(FIRST, with_hint=-0.5, spread=2.0)
    run = MeteredRun({"task": env.model}, limits=limits)
    config, made = replace(SMALL, strategy=strategy, **settings), adding or Adding()
    trained: Any = policy
    return await better_together(run, env, trained, START, config, made.method), run, policy


def validated(run: MeteredRun) -> list[Any]:
    return [value for name, value in run.logged if name == "validated"]


def stages(run: MeteredRun) -> list[Any]:
    return [value for value in validated(run) if value["operator"].startswith("stage")]


async def test_each_stage_goes_on_from_the_last_one_and_is_validated() -> None:
    adding = Adding(["Hint 0.", "Please."])
    found, run, policy = await search("p -> w -> p", adding)
    assert [value["operator"] for value in stages(run)] == ["stage 1: p", "stage 2: w", "stage 3: p"]
    assert adding.starts == ("Answer.", "Answer. Hint 0.")
    assert policy.v[0] > 1.0 and policy.b[0] == pytest.approx(NEVER), "it learned under the prompt of stage 1"
    assert found.operator == "stage 2: w"


async def test_the_best_pair_serves_as_it_was_validated() -> None:
    found, run, _ = await search("p -> w")
    env = environment(FIRST, rows=6)
    fresh: Any = AnswerPolicy(FIRST, with_hint=-0.5, spread=2.0)
    assert found.system is not None
    system = deploy(env, fresh, run.kept[found.system], SMALL)
    (score,) = await system.score(MemoryRun({"task": env.model}), [found.prompt], env.validation)
    assert score.mean == max(value["validation"] for value in validated(run)) == 1.0


@pytest.mark.parametrize("learn", ["imitate", "grpo"])
async def test_weights_learn_from_right_answers_by_either_rule(learn: Any) -> None:
    _, _, policy = await search("w", learn=learn)
    assert policy.b[1] > 1.5 and policy.b[0] == pytest.approx(NEVER)


# What DSPy's goes wrong with.


async def test_the_best_stage_is_returned_and_not_the_last() -> None:
    adding = Adding(["Answer. Hint 0.", "Answer worse."], whole=True)
    found, run, _ = await search("p -> w -> p", adding)
    assert stages(run)[2]["validation"] < stages(run)[1]["validation"]
    assert found.operator == "stage 2: w"


async def test_of_equals_the_earliest_is_returned_also_where_a_later_prompt_is_shorter() -> None:
    adding = Adding(["Answer this question please. Hint 0.", "Hint 0."], whole=True)
    found, run, _ = await search("p -> p", adding)
    first, second = stages(run)
    assert first["validation"] == second["validation"] > 0
    assert found.operator == "stage 1: p"


async def test_a_handful_of_rows_is_validated_like_any_other() -> None:
    """A tenth of fewer than ten rows is none."""
    task = whet.Task.of(
        "<!-- whet:begin -->\nAnswer.\n<!-- whet:end -->\n{{input}}",
        data=[{"input": f"kind{i % 2} row {i}", "target": "yes"} for i in range(9)],
        reward="exact_match",
    )
    assert task.validation
    env = replace(environment(FIRST, 1), train=task.train, validation=task.validation)
    run, policy = MeteredRun({"task": env.model}), AnswerPolicy(FIRST)
    trained: Any = policy
    await better_together(run, env, trained, START, replace(SMALL, strategy="p -> w"), Adding().method)
    assert [value["n"] for value in stages(run)] == [len(task.validation)] * 2


def test_validation_rows_of_a_sorted_file_are_of_all_kinds() -> None:
    task = whet.Task.of(
        "Name it: {{input}}",
        data=[{"input": f"row {i}", "target": "low" if i < 30 else "high"} for i in range(60)],
        reward="exact_match",
    )
    assert {row.target for row in task.validation} == {"low", "high"}


async def test_a_stage_that_fails_ends_the_run() -> None:
    with pytest.raises(ProviderError, match="out of order"):
        await search("w -> p", Adding(fails=True))


async def test_training_rows_are_shuffled_between_stages() -> None:
    adding = Adding()
    await search("p -> p", adding)
    first, second = adding.rows
    assert sorted(first) == sorted(second) and first != second


@pytest.mark.long
def test_a_run_that_fails_in_a_later_stage_goes_on_as_if_it_had_not(tmp_path: Path) -> None:
    """A network: what the stage `w` has learned is there again when the stage after it is repeated."""
    torch.set_num_threads(1)
    write_task(tmp_path / "task", 0, clauses=2, rows=20)
    failures = [True]

    async def wordy(run: Run, env: Environment, policy: Any, start: Prompt, config: Plain) -> Candidate:
        await Archive().validate(run, env, [Candidate(start)])
        if "Again." in start.text and failures:
            failures.clear()
            raise ProviderError("out of order")
        return Candidate(start.edit(f"{start.region_text().strip()} Again."))

    whet.methods.register(name="wordy")(wordy)
    settings = {
        "prompts": "wordy",
        "steps": 2,
        "group": 2,
        "problems": 2,
        "max_tokens": 12,
        "lr": 0.01,
        "temperature": 1.5,
    }

    def run(folder: str) -> Any:
        return api.optimize(
            tmp_path / "task", method="better_together", lm="embedded/tiny", policy="embedded/tiny", seed=2,
            settings={**settings, "learn": "grpo"}, run=tmp_path / folder,
        )  # fmt: skip

    with pytest.raises(ProviderError, match="out of order"):
        run("failed")
    resumed, whole = run("failed"), run("whole")
    for part in ("baseline", "best", "history"):
        assert resumed[part] == whole[part], part


async def test_the_calls_of_a_program_are_answered_and_learned_from() -> None:
    env, trained = call_world(), call_policy()
    run = MeteredRun({"task": env.model})
    config = replace(SMALL, strategy="p -> w", prompts="bootstrap", steps=12, lr=2.0)
    await better_together(run, env, trained, CALLS, config, get_method)
    assert worth(trained) > 0.6 > 0.5 > worth(call_policy())


# Budgets and refusals.


async def test_stages_share_the_limit_and_keep_their_validations() -> None:
    _, run, _ = await search("p -> w -> p", limits=Budget(task_calls=300))
    assert len(stages(run)) == 3 and run.spent["task"] <= 300
    _, run, _ = await search("w", limits=Budget(task_calls=300))
    steps = [value for name, value in run.logged if name == "step"]
    assert len(steps) == 11, "(300 - 2 x 8) / (4 x 6)"


def test_a_strategy_is_read_or_refused() -> None:
    assert stages_of("w") == ["w"] and stages_of(" p->w -> w") == ["p", "w", "w"]
    for wrong in ("", "p -> x", "p, w"):
        with pytest.raises(UsageError, match="a stage is p"):
            stages_of(wrong)


@pytest.mark.parametrize("name", ["omni", "fst", "bdpl", "better_together"])
def test_methods_that_cannot_be_a_stage_are_refused(name: str) -> None:
    env = environment(FIRST)
    with pytest.raises(UsageError, match=f"{name} is no method for a stage"):
        check(env, Config(prompts=name), get_method)
    check(env, Config(prompts=name, strategy="w"), get_method)


class TestConformance(MethodConformance):
    method = "better_together"
    settings = {"steps": 2, "group": 2, "problems": 2, "lr": 1.0}  # noqa: RUF012

    def run(
        self, run: MeteredRun, env: Environment | None = None, settings: Mapping[str, Any] | None = None
    ) -> Candidate:
        config = configure(self.load(), self.settings if settings is None else settings)
        policy: Any = Scribe(lambda conversation: ["positive", "negative", "neither"])
        world = env or self.environment()
        return asyncio.run(better_together(run, world, policy, self.start(), config, get_method))


# The contest: docs/figures.md has all orders and more seeds.


@cache
def right(order: str, world: str) -> list[float]:
    """The share of rows that are answered rightly, by seed."""
    return [arm(order, seed, world) for seed in range(5)]


@pytest.mark.long
def test_a_prompt_first_makes_weights_learn_what_they_cannot_learn_alone() -> None:
    for world in ("some", "never"):
        for order in ("w", "p"):
            assert won_over(order, right("p -> w", world), right(order, world)).low > 0, (world, order)


@pytest.mark.long
def test_where_nothing_is_ever_right_weights_first_are_worth_nothing() -> None:
    assert right("w", "never") == [0.0] * 5
    assert won_over("p", right("w -> p", "never"), right("p", "never")).low <= 0
    assert won_over("w -> p", right("p -> w", "never"), right("w -> p", "never")).low > 0
