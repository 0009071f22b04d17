"""reprompt: the form of a reply, its three rewards, pictures that nobody could judge, and what unit variance is worth."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Mapping
from functools import cache
from statistics import pstdev
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch", reason="writers need torch: pip install 'whet[train]'")
pytest.importorskip("transformers", reason="writers need transformers: pip install 'whet[train]'")
pytest.importorskip("peft", reason="writers need peft: pip install 'whet[train]'")

from tests.rl.scribe import Scribe
from tests.rl.stylist import START, clear, painting, stylist

from whet.environments.environment import Environment
from whet.errors import UsageError
from whet.methods.method import configure
from whet.methods.reprompt import Config, add_components, answer_in, deploy, reprompt
from whet.models.scripted import chance
from whet.rewards import RewardFailed
from whet.rewards.verifiers.svg_scene import SvgScene
from whet.rl.policy_model import Sample
from whet.run import MemoryRun, Run
from whet.search.archive import Candidate
from whet.testing.methods import MethodConformance
from whet.testing.paired_benchmark import paired_difference
from whet.testing.runs import MeteredRun
from whet.types import Completion, Example, Reward

CALM = "Paint it with a steady hand, on plain paper, in daylight, and sign it at the end."


def in_form(text: str) -> str:
    return f"<think>What must it hold?</think><answer>{text}</answer>"


STYLES: Mapping[str, Callable[[str], str]] = {
    "bare": lambda r: r,
    "formed": in_form,
    "formed long": lambda r: in_form(f"{r}. {CALM}"),
    "clear": lambda r: in_form(clear(r)),
    "clear long": lambda r: in_form(f"{clear(r)} {CALM}"),
    "no thought": lambda r: f"<answer>{clear(r)}</answer>",
}


async def search(
    policy: Any, env: Environment | None = None, seed: int = 0, **settings: Any
) -> tuple[Candidate, MeteredRun]:
    env = env or painting()
    run = MeteredRun({"task": env.model}, seed)
    config = Config(**{"steps": 20, "group": 6, "requests": 4, "lr": 1.0, "checks": 2, **settings})
    return await reprompt(run, env, policy, START, config), run


def sample(text: str, ended: bool = True) -> Sample:
    return Sample(text, (0,), (0,), (0.0,), (True,), ended)


@pytest.mark.parametrize(
    ("text", "reason", "answer"),
    [
        ("<think>a</think>\n<answer> red boat </answer>", True, "red boat"),
        ("<answer>red boat</answer>", False, "red boat"),
        ("<answer>red boat</answer>", True, None),
        ("<think> </think><answer>red boat</answer>", True, None),
        ("<think>a</think>red boat", True, None),
        ("<think>a</think><answer>red</answer><answer>boat</answer>", True, None),
        ("<think>a</think>Here: <answer>red boat</answer>", True, None),
        ("<think>a</think><answer></answer>", True, None),
        ("<think>a <answer>b</answer>", True, None),
    ],
)
def test_a_reply_has_the_form_or_no_answer(text: str, reason: bool, answer: str | None) -> None:
    assert answer_in(Config(reason=reason), sample(text)) == answer
    assert answer_in(Config(reason=reason), sample(text, ended=False)) is None


triples = st.tuples(*[st.floats(0, 1).map(lambda x: round(x, 2)) for _ in range(3)])


@given(parts=st.lists(triples, min_size=2, max_size=6))
def test_each_reward_has_unit_variance_in_its_group_or_says_nothing(
    parts: list[tuple[float, float, float]],
) -> None:
    pictures = add_components(parts, Config(form=0, length=0))
    same = len({part[0] for part in parts}) == 1
    assert pstdev(pictures) == pytest.approx(0.0 if same else 1.0, abs=1e-6)
    assert add_components(parts, Config(normalise=False)) == pytest.approx([sum(part) for part in parts])


async def test_it_learns_to_write_clearly_in_the_form_and_is_deployed_as_validated() -> None:
    policy = stylist(STYLES)
    found, run = await search(policy, steps=40)
    assert policy.share("clear long") > 0.7
    logged = [value for name, value in run.logged if name == "step"]
    assert logged[-1]["formed"] > logged[0]["formed"]  # type: ignore[index, call-overload]
    env = painting()
    validated = {v["id"]: v["validation"] for name, v in run.logged if name == "validated"}  # type: ignore[index, call-overload]
    fresh = stylist(STYLES)
    assert found.system is not None
    system = deploy(env, fresh, run.kept[found.system], Config())
    (score,) = await system.score(MemoryRun({"task": env.model}), [START], env.validation)
    assert score.mean == validated[found.id] > validated[START.id] + 0.3


async def test_replies_without_an_answer_are_not_painted() -> None:
    found, run = await search(stylist({"bare": STYLES["bare"], "no thought": STYLES["no thought"]}), steps=3)
    assert found.prompt == START
    assert run.spent["task"] == 12 * 3, "the start, and two checks of a system that changes nothing"


class Blind(SvgScene):
    """A judge that fails on what is long."""

    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        if completion.text.count("<circle") > 1:
            raise RewardFailed("the judge has seen nothing")
        return await super().grade(run, example, completion)


async def test_a_picture_that_could_not_be_judged_is_no_middling_one_but_left_out() -> None:
    styles = {"one": lambda r: in_form("1 red circle"), "many": lambda r: in_form("9 red circles")}
    policy = stylist({**styles, "none": lambda r: "nothing"})
    await search(policy, painting(reward=Blind()), steps=5, checks=0)
    learned = {text.partition("answer>")[2] for texts, _, _ in policy.seen for text in texts}
    assert any("1 red" in text for text in learned) and not any("9 red" in text for text in learned)


async def test_supervised_steps_imitate_the_column() -> None:
    pairs: list[Any] = []

    class Taught(Scribe):
        def imitate(self, given: Any, settings: Any) -> dict[str, float]:
            pairs.extend(given)
            return {}

    env = painting()
    rows = [
        dataclasses.replace(e, row={**e.row, "rewriting": in_form(clear(e.user_text))}) for e in env.train
    ]
    policy: Any = Taught(lambda c: ["x"])
    await search(policy, dataclasses.replace(env, train=tuple(rows)), steps=0, warmup=3)
    assert len(pairs) == 12 and policy.anchors == 1
    assert pairs[0][1].startswith("<think>") and "<think>your thoughts" in pairs[0][0][-1].content


@pytest.mark.parametrize(
    ("settings", "why"),
    [({"warmup": 2}, "no training row has the column"), ({"shortest": 20, "longest": 21}, "no request fits")],
)
async def test_settings_that_cannot_work_are_refused(settings: Any, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        await search(stylist(STYLES), **settings)


# The contest: a reward of the picture with a small spread, beside two that are 0 or 1 and that no style decides.


def careless(style: str, write: Callable[[str], str]) -> Callable[[str], str]:
    """A style whose replies miss the form for a quarter of the requests, and have a fitting length for half of them."""

    def reply(request: str) -> str:
        text = write(request) + (f" {CALM}" if chance(style, request, "length") < 0.5 else "")
        return text if chance(style, request, "form") < 0.25 else in_form(text)

    return reply


WAYS: Mapping[str, Callable[[str], str]] = {
    "plain": lambda r: f"{r}.",
    "polite": lambda r: f"Please paint {r}.",
    "grand": lambda r: f"A beautiful picture of {r}.",
    "clear": clear,
}
CARELESS = {style: careless(style, write) for style, write in WAYS.items()}


@dataclasses.dataclass(frozen=True)
class Timid(SvgScene):
    """A judge that never leaves the middle of its scale."""

    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        reward = await super().grade(run, example, completion)
        return Reward(0.45 + 0.1 * reward.value)


@cache
def clear_share(normalise: bool, seeds: int = 10) -> list[float]:
    """How often the trained rewriter writes clearly, by seed."""
    shares = []
    for seed in range(seeds):
        policy = stylist(CARELESS, gain=1.0)
        how: dict[str, Any] = {"steps": 20, "group": 6, "checks": 0, "normalise": normalise}
        asyncio.run(search(policy, painting(reward=Timid()), seed, **how))
        shares.append(policy.share("clear"))
    return shares


@pytest.mark.long
def test_unit_variance_lets_a_timid_judge_be_heard() -> None:
    won = paired_difference(clear_share(True), clear_share(False))
    assert won.low > 0.02, (won, clear_share(True), clear_share(False))


class TestConformance(MethodConformance):
    method = "reprompt"
    settings = {"steps": 4, "group": 4, "requests": 4, "lr": 1.0, "checks": 2}  # noqa: RUF012

    def run(
        self, run: MeteredRun, env: Environment | None = None, settings: Mapping[str, Any] | None = None
    ) -> Candidate:
        menu = [in_form("Great plot."), in_form("Awful."), "", in_form("A film {{input}}"), "Fine."]
        config = configure(self.load(), self.settings if settings is None else settings)
        policy: Any = Scribe(lambda c: menu)
        return asyncio.run(reprompt(run, env or self.environment(), policy, self.start(), config))
