"""prompting_policies: it learns, what it is shown, distillation, contexts that it has never seen, and its controls."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

pytest.importorskip("torch", reason="writers need torch: pip install 'whet[train]'")
pytest.importorskip("transformers", reason="writers need transformers: pip install 'whet[train]'")
pytest.importorskip("peft", reason="writers need peft: pip install 'whet[train]'")

from benchmarks.prompting_contexts import arm
from benchmarks.simulated.rule_prompter import START as DO_IT
from benchmarks.simulated.rule_prompter import RulePrompter, RuleWorld
from tests.environments.worlds import Scripted, small
from tests.rl.scribe import Scribe

from whet.environments.environment import Environment
from whet.errors import UsageError
from whet.methods.method import configure
from whet.methods.prompting_policies import (
    CONTEXT,
    TRIED,
    Config,
    Prompter,
    deploy,
    distil,
    prompting_policies,
)
from whet.prompt import Prompt
from whet.rl.experience import ExperienceBuffer
from whet.rl.training import Trainer
from whet.run import MemoryRun
from whet.search.archive import Candidate
from whet.testing.methods import MethodConformance
from whet.testing.paired_benchmark import paired_difference
from whet.testing.runs import MeteredRun

START = Prompt.parse("<!-- whet:begin -->so<!-- whet:end --> {{input}}")
MENU = ["a", "b", "c", "good", "d", "e", "f", "g"]
SMALL = Config(steps=30, group=8, examples=2, lr=2.0, rewrites=4, checks=2)


def scribe(menu: Sequence[str] = MENU) -> Any:
    return Scribe(lambda conversation: menu, gain=4.0)


async def search(config: Config, policy: Any, word: str = "good") -> tuple[Candidate, MeteredRun]:
    made = small(lambda request: "yes" if word in request.messages[-1].content.lower() else "no", 12)
    run = MeteredRun({"task": made.model, "optimizer": Scripted(lambda r: "<REMARK>No good.</REMARK>")})
    return await prompting_policies(run, made.env, policy, START, config), run


def asked(policy: Any) -> list[str]:
    return [conversation[-1].content for conversation in policy.asked]


async def test_it_learns_and_returns_what_it_learned() -> None:
    policy = scribe()
    found, run = await search(dataclasses.replace(SMALL, distil=0), policy)
    rewards = [value["reward"] for name, value in run.logged if name == "step"]
    assert sum(rewards[:3]) / 3 < 0.5 and sum(rewards[-5:]) / 5 > 0.8, rewards
    assert policy.probabilities(MENU).argmax() == 3
    assert found.prompt.region_text() == "good" and found.operator == "prompter" and found.system is None


async def test_experience_is_shown_with_rewards_and_the_worst_row_from_the_second_step_on() -> None:
    policy = scribe(["a", "good"])
    await search(dataclasses.replace(SMALL, steps=3, checks=0), policy)
    first, second, third, *last = asked(policy)
    assert TRIED not in first
    for question in (second, third):
        tried = question.partition(TRIED)[2]
        assert tried.index("Reward: 1.0\ngood") < tried.index("Reward: 0.0\na\nInput: question")
        assert "Answered: no" in tried and "Wanted: yes" in tried
    assert not any(TRIED in question for question in last), "in use there is no experience"


async def test_the_optimizer_may_write_the_remark() -> None:
    policy = scribe(["a", "good"])
    _, run = await search(dataclasses.replace(SMALL, steps=2, remarks="optimizer", checks=0), policy)
    assert "Reward: 0.0\na\nNo good." in asked(policy)[1] and run.spent["optimizer"] == 2, (
        "one for the wrong text of each step"
    )


@pytest.mark.parametrize("forget", [False, True])
async def test_distillation_imitates_the_best_without_experience(forget: bool) -> None:
    imitated: list[Any] = []

    class Imitating(Scribe):
        def imitate(self, pairs: Any, settings: Any) -> dict[str, float]:
            imitated.extend(pairs)
            return super().imitate(pairs, settings)

    policy = Imitating(lambda conversation: ["a", "good"])
    await search(dataclasses.replace(SMALL, steps=3, distil=2, lr=0.0, checks=0, forget=forget), policy)
    ((conversation, text),) = imitated
    assert text == "good" and TRIED not in conversation[-1].content
    assert [TRIED in question for question in asked(policy)][:3] == [False, True, not forget]


async def test_equal_rewards_teach_nothing_whatever_their_mean_is_rounded_to() -> None:
    """The mean of three times 0.35 is a little less than 0.35 as a float."""
    policy = scribe(["a", "b", "c"])
    buffer = ExperienceBuffer(policy)
    for text in ("a", "b", "c"):
        buffer.add("", text, 0.35)
    writer = Prompter(Trainer(policy, SMALL), "", "")
    assert distil(policy, writer, START, SMALL, buffer, [""]) == 0.0
    buffer.add("", "d", 0.36)
    assert distil(policy, writer, START, SMALL, buffer, [""]) == 1.0


async def test_the_greedy_text_is_validated_as_often_as_asked() -> None:
    for steps, checks in ((7, 4), (5, 0)):
        policy = scribe()
        await search(dataclasses.replace(SMALL, steps=steps, checks=checks), policy)
        assert len(asked(policy)) == steps + checks + 2, "and in the end the greedy text and the samples"


async def test_without_steps_it_is_best_of_n_of_the_untrained_prompter() -> None:
    policy = scribe()
    found, _ = await search(dataclasses.replace(SMALL, steps=0, rewrites=24), policy)
    assert not policy.seen and found.prompt.region_text() == "good"


async def test_texts_that_cannot_be_used_cost_nothing_and_are_not_remembered() -> None:
    policy = scribe(["", " "])
    found, run = await search(dataclasses.replace(SMALL, steps=3), policy)
    assert found.prompt == START and run.spent["task"] == 6
    assert not any(TRIED in question for question in asked(policy))


# several contexts


def world_of(rows: int = 2) -> tuple[RuleWorld, Environment]:
    world = RuleWorld(0, topics=4, each=2)
    contexts = world.contexts(4)
    return world, world.environment(world.rows(contexts[:3], rows), world.rows(contexts[3:], 8))


RULES = Config(steps=30, group=8, examples=4, lr=4.0, kl=0.0, column="context", contexts=2, checks=3)


async def test_it_serves_a_context_that_it_has_never_seen_as_it_was_validated() -> None:
    world, env = world_of()
    run, policy = MeteredRun({"task": env.model}), RulePrompter(world.topics)
    found = await prompting_policies(run, env, policy, DO_IT, RULES)  # type: ignore[arg-type]
    assert found.system is not None and found.prompt == DO_IT
    validated = {v["id"]: v["validation"] for name, v in run.logged if name == "validated"}
    fresh: Any = RulePrompter(world.topics)
    system = deploy(env, fresh, run.kept[found.system], RULES)
    (score,) = await system.score(MemoryRun({"task": env.model}), [DO_IT], env.validation)
    assert score.mean == validated[found.id] > 0.6 > validated[DO_IT.id]


async def test_the_context_is_named_in_the_question() -> None:
    _, env = world_of()
    policy = scribe(["Rule 1."])
    await prompting_policies(MeteredRun({"task": env.model}), env, policy, DO_IT, RULES)
    names = {question.partition(f"{CONTEXT}\n")[2].partition("\n")[0] for question in asked(policy)}
    assert names == {str(e.row["context"]) for e in (*env.train, *env.validation)}


async def test_a_column_that_rows_lack_is_refused() -> None:
    made = small(lambda request: "yes", 6)
    with pytest.raises(UsageError, match="column=kind names the context of a row, and 6 rows have none"):
        await prompting_policies(
            MeteredRun({"task": made.model}),
            made.env,
            scribe(),
            START,
            dataclasses.replace(SMALL, column="kind"),
        )


@pytest.mark.long
def test_in_unseen_contexts_a_trained_prompter_beats_those_that_lack_a_part() -> None:
    """Simulated contexts of hidden rules; docs/figures.md has all arms and more seeds."""
    lacking = ("untrained", "no distillation")
    figures = {name: [arm(name, seed) for seed in range(200, 206)] for name in ("full", *lacking)}
    for name in lacking:
        assert paired_difference(figures["full"], figures[name]).low > 0.0, name


class TestConformance(MethodConformance):
    method = "prompting_policies"
    settings = {"steps": 4, "group": 4, "examples": 4, "lr": 1.0, "rewrites": 3, "distil": 2}  # noqa: RUF012

    def run(
        self, run: MeteredRun, env: Environment | None = None, settings: Mapping[str, Any] | None = None
    ) -> Candidate:
        menu = ["Think carefully.", "Look at the tone.", "Be quick.", "", "Name it {{input}}", "Guess."]
        config = configure(self.load(), self.settings if settings is None else settings)
        coroutine = prompting_policies(run, env or self.environment(), scribe(menu), self.start(), config)
        return asyncio.run(coroutine)
