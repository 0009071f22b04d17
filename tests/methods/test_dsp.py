"""dsp: rewards by hand, the weight of the divergence, warm-up and anchor, and that what is deployed was validated."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

pytest.importorskip("torch", reason="writers need torch: pip install 'whet[train]'")
pytest.importorskip("transformers", reason="writers need transformers: pip install 'whet[train]'")
pytest.importorskip("peft", reason="writers need peft: pip install 'whet[train]'")

import torch
from tests.environments.worlds import small
from tests.rl.scribe import Scribe

from whet.environments.environment import Environment
from whet.errors import UsageError
from whet.methods.dsp import (
    KEYWORD,
    Config,
    adapt_weight,
    deploy,
    dsp,
    keyword_reward,
    supervised_keywords,
    unit,
)
from whet.methods.method import configure
from whet.prompt import Prompt
from whet.rl.policy_model import PolicyModel
from whet.run import MemoryRun
from whet.search.archive import Candidate
from whet.testing.methods import MethodConformance
from whet.testing.runs import MeteredRun
from whet.types import Example, Request

START = Prompt.parse("so")
MENU = ["a", "b", "good", "c", "d", "e"]
SMALL = Config(steps=25, group=6, questions=3, lr=1.0, checks=2, keyword=0.0)


def scribe(menu: Sequence[str] = MENU) -> Any:
    return Scribe(lambda conversation: menu, gain=4.0)


def answers(request: Request) -> str:
    return "yes" if "Hint: good" in request.messages[-1].content else "no"


async def search(
    config: Config, policy: Any, answer: Any = answers
) -> tuple[Candidate, MeteredRun, Environment]:
    made = small(answer, 12)
    run = MeteredRun({"task": made.model})
    return await dsp(run, made.env, policy, START, config), run, made.env


def logged(run: MeteredRun, name: str) -> list[Any]:
    return [value for what, value in run.logged if what == name]


# the parts


@pytest.mark.parametrize(
    ("divergence", "weight"),
    [(0.5, 1.0), (0.55, 1.01), (5.0, 1.02), (0.0, 0.98), (0.45, 0.99)],
)
def test_the_weight_follows_the_divergence_by_at_most_two_percent(divergence: float, weight: float) -> None:
    assert adapt_weight(1.0, divergence, 0.5) == pytest.approx(weight)


def test_keywords_of_the_row_or_of_the_target() -> None:
    one = Example("e", {"input": "x"}, "red boat", {"keywords": ["a", 2], "other": "b; c"}, "x")
    assert supervised_keywords(one, "keywords") == ["a", "2"]
    assert supervised_keywords(one, "other") == ["b; c"]
    assert supervised_keywords(one, "missing") == ["red", "boat"]


def test_rewards_are_brought_to_one_scale() -> None:
    env = small(answers).env

    class Wide:
        low, high = -2.0, 2.0

    wide = dataclasses.replace(env, reward=Wide())  # type: ignore[arg-type]
    assert [unit(wide, r) for r in (-2.0, 0.0, 2.0)] == [0.0, 0.5, 1.0]


# the method


async def test_it_learns_and_is_deployed_as_it_was_validated() -> None:
    policy = scribe()
    found, run, env = await search(SMALL, policy)
    assert logged(run, "step")[-1]["answer"] > 0.8 > 0.4 > logged(run, "step")[0]["answer"]
    assert found.system is not None and found.prompt == START and found.operator == "dsp"
    validated = {v["id"]: v["validation"] for v in logged(run, "validated")}
    system = deploy(env, scribe(), run.kept[found.system], SMALL)
    (score,) = await system.score(MemoryRun({"task": env.model}), [START], env.validation)
    assert score.mean == validated[found.id] == 1.0
    assert validated[START.id] == 0.0


async def test_rewards_of_a_step_by_hand() -> None:
    """The target is "yes": a keyword it holds earns 1 x 0.5, another -0.2 x 0.5; the answer is right for `yes`."""
    policy = scribe(["yes", "no", "yes; no"])
    config = dataclasses.replace(SMALL, steps=1, questions=1, group=24, keyword=0.5, advantage="dr_grpo")
    await search(config, policy, lambda r: "yes" if "Hint: yes" in r.messages[-1].content else "no")
    ((texts, advantages, _),) = policy.seen
    worth = {"yes": 1 + 0.5, "no": -0.1, "yes; no": 1 + 0.4}
    mean = sum(worth[t] for t in texts) / 24
    assert len(set(texts)) == 3 and advantages == pytest.approx([worth[t] - mean for t in texts])


@pytest.mark.parametrize(
    ("hint", "target", "expected"),
    [
        ("red; boat", "a red boat", 2.0),
        ("re; oat", "a red boat", -0.4),
        (";".join("abcdefghijklmno"), "a backhand compliment of folk gloom", 1.0 - 14 * 0.2),
        ("one; two; three; four; five; six; seven", "one two three four five six seven", 5.0),
        ("rot; Boot", "ein rotes BOOT", 1.0 - 0.2),
        ("返金", "本日返金いたしました。", 1.0),
    ],
)
def test_keywords_are_words_of_the_target_and_five_at_most_are_rewarded(
    hint: str, target: str, expected: float
) -> None:
    assert keyword_reward(hint, target) == pytest.approx(expected)


def test_letters_never_earn_more_than_a_right_answer() -> None:
    """With the default weight, whatever the hint: a right answer with no keyword earns 1."""
    target = " ".join(f"{letter} word{letter}" for letter in "abcdefghijklmnopqrstuvwxyz")
    soup = ";".join("abcdefghijklmnopqrstuvwxyz")
    assert KEYWORD * keyword_reward(soup, target) <= 0.5


async def test_the_reward_can_be_the_difference_to_no_hint() -> None:
    """A hint that changes nothing earns nothing, though the answer is right; it costs one more call for each input."""
    policy = scribe(["a"])
    config = dataclasses.replace(SMALL, steps=2, relative=True, checks=0)
    _, run, _ = await search(config, policy, lambda request: "yes")
    assert [step["reward"] for step in logged(run, "step")] == [0.0, 0.0]
    assert [step["answer"] for step in logged(run, "step")] == [1.0, 1.0]
    assert run.spent["task"] == 6 + 2 * 3 * (6 + 1)


async def test_the_warm_up_comes_before_the_reference_is_anchored() -> None:
    policy = scribe(["yes", "a"])
    order: list[str] = []

    def told(name: str, inner: Any) -> Any:
        def call(*given: Any, **more: Any) -> Any:
            order.append(name)
            return inner(*given, **more)

        return call

    for name in ("imitate", "set_reference_policy", "update"):
        setattr(policy, name, told(name, getattr(policy, name)))
    _, run, _ = await search(dataclasses.replace(SMALL, steps=2, warmup=3), policy)
    assert order == ["imitate"] * 3 + ["set_reference_policy"] + ["update"] * 2
    assert [v["step"] for v in logged(run, "warmup")] == [0, 1, 2]
    assert logged(run, "step")[0]["answer"] == 0.0, "it hints at `yes`, which this model does not heed"


async def test_without_a_warm_up_nothing_is_anchored() -> None:
    policy = scribe()
    await search(dataclasses.replace(SMALL, steps=1), policy)
    assert policy.anchors == 0


async def test_the_weight_of_the_divergence_is_used_and_survives_a_resume() -> None:
    policy = scribe()
    policy.divergence = 9.0
    _, run, _ = await search(dataclasses.replace(SMALL, steps=4, kl=0.1, target_kl=0.5), policy)
    assert [settings.kl for _, _, settings in policy.seen] == pytest.approx([0.1 * 1.02**i for i in range(4)])
    assert policy.notes["kl"] == pytest.approx(0.1 * 1.02**4)
    assert [s["weight"] for s in logged(run, "step")] == pytest.approx([0.1 * 1.02**i for i in (1, 2, 3, 4)])


@pytest.mark.parametrize("settings", [{"warmup": 1}, {"keyword": 0.1}])
async def test_keywords_need_targets(settings: dict[str, Any]) -> None:
    made = small(answers, 12, target=None)  # type: ignore[arg-type]
    run = MeteredRun({"task": made.model})
    with pytest.raises(UsageError, match=f"{next(iter(settings))}=.* needs"):
        await dsp(run, made.env, scribe(), START, dataclasses.replace(SMALL, **settings))


async def test_without_targets_the_default_rewards_no_keywords() -> None:
    """`null` is not a keyword: the hints null and a are worth the same."""
    made = small(answers, 12, target=None)  # type: ignore[arg-type]
    policy = scribe(["null", "a"])
    run = MeteredRun({"task": made.model})
    config = dataclasses.replace(SMALL, steps=1, group=16, keyword=None)
    await dsp(run, made.env, policy, START, config)
    ((_, advantages, _),) = policy.seen
    assert set(advantages) == {0.0}


async def test_rows_may_bring_the_keywords_of_the_warm_up_without_targets() -> None:
    made = small(answers, 12, target=None)  # type: ignore[arg-type]
    rows = tuple(dataclasses.replace(e, row={"keywords": ["good"]}) for e in made.env.train)
    policy = scribe(["a", "good"])
    run = MeteredRun({"task": made.model})
    env = dataclasses.replace(made.env, train=rows)
    await dsp(run, env, policy, START, dataclasses.replace(SMALL, steps=0, warmup=2, checks=0))
    assert policy.probabilities(["a", "good"])[1] > 0.9


async def test_a_frozen_model_alone_that_is_better_stays() -> None:
    found, _, _ = await search(SMALL, scribe(), lambda r: "no" if "Hint" in r.messages[-1].content else "yes")
    assert found.system is None and found.prompt == START


async def test_a_network_hints_and_learns() -> None:
    torch.set_num_threads(1)
    config = dataclasses.replace(SMALL, steps=8, group=8, questions=1, lr=1e-2, max_tokens=8, checks=1)
    writer = PolicyModel.open("embedded/tiny", config.lora, 0)

    def briefly(request: Request) -> str:
        return "yes" if ";" not in request.messages[-1].content.split("Hint:")[-1] else "no"

    _, run, _ = await search(config, writer, briefly)
    rewards = [step["answer"] for step in logged(run, "step")]
    assert writer.updates == 8 and sum(rewards[-3:]) > sum(rewards[:3]), "it learns to give one keyword"


class TestConformance(MethodConformance):
    method = "dsp"
    settings = {"steps": 4, "group": 3, "questions": 2, "lr": 1.0, "checks": 2}  # noqa: RUF012

    def run(
        self, run: MeteredRun, env: Environment | None = None, settings: Mapping[str, Any] | None = None
    ) -> Candidate:
        config = configure(self.load(), self.settings if settings is None else settings)
        menu = ["carefully; tone", "guess", "", "evidence; single"]
        return asyncio.run(dsp(run, env or self.environment(), scribe(menu), self.start(), config))
