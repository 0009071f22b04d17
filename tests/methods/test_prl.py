"""prl: rewards by hand, the trap of labels, and that it learns form and content."""

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
from tests.environments.worlds import Scripted, small
from tests.rl.scribe import Scribe

from whet.environments.environment import Environment
from whet.methods.method import configure
from whet.methods.prl import Config, answer_in, answer_reward, conversation, format_reward, prl
from whet.prompt import Prompt
from whet.rewards.text import ExactMatch
from whet.rl.policy_model import PolicyModel
from whet.run import MemoryRun
from whet.search.archive import Candidate
from whet.testing.methods import MethodConformance
from whet.testing.runs import MeteredRun
from whet.types import Example

START = Prompt.parse("<!-- whet:begin -->so<!-- whet:end --> {{input}}")


@pytest.mark.parametrize(
    ("text", "thought", "plain"),
    [
        ("<think>a</think><answer>b</answer>", 1.5, 0.75),
        (" <think>\na</think>\n<answer>b\nc</answer> ", 1.5, 0.75),
        ("<answer>b</answer>", 0.375, 1.5),
        ("<answer>b", 0.1875, 0.375),
        ("so <think>a</think><answer>b</answer>", 0.75, 0.75),
        ("<think>a</think><answer>b</answer> so", 0.75, 0.75),
        ("<answer>b</answer><think>a</think>", 0.75, 0.75),
        ("<think>a</think><answer>b</answer><answer>c</answer>", 0.375, 0.0),
        ("<think>a<think></think><answer>b</answer>", 0.5625, 0.75),
        ("", 0.0, 0.0),
    ],
)
def test_the_form_by_hand(text: str, thought: float, plain: float) -> None:
    assert format_reward(text) == pytest.approx(thought)
    assert format_reward(text, think=False) == pytest.approx(plain)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<think>a</think><answer> b </answer>", "b"),
        ("<answer>a</answer> or <answer>b</answer>", "b"),
        ("<answer>b", None),
        ("", None),
        ("<answer></answer>", ""),
    ],
)
def test_the_prompt_in_a_completion(text: str, answer: str | None) -> None:
    assert answer_in(text) == answer


# the answer's part

LABELS = {"sports": "sport", "world": "World news"}  # what is asked for differs from what the rows hold


def labelled(said: str, target: str) -> Environment:
    """One example with a label, and a model that says `said`."""
    rows = (Example("e", {"input": "x"}, target, {}, "x"),)
    model: Any = Scripted(lambda request: said)
    return Environment(model, ExactMatch(), rows, rows, LABELS)


@pytest.mark.parametrize(
    ("said", "target", "reward"),
    [
        ("sport", "sports", 2.0),  # a label, and the right one
        (" Sport.", "sports", 2.0),
        ("world news", "world", 2.0),
        ("World news", "sports", 1.0),  # a label, but the wrong one
        ("weather", "sports", 0.0),  # no label
        ("", "sports", 0.0),
    ],
)
async def test_labels_are_compared_as_the_model_was_asked_for_them(
    said: str, target: str, reward: float
) -> None:
    env = labelled(said, target)
    (rollout,) = await env.evaluate(MemoryRun({"task": env.model}), START, env.train)
    assert answer_reward(env, rollout) == reward


async def test_without_labels_the_answer_counts_twice_its_reward() -> None:
    made = small(lambda request: "yes", 2)
    (rollout,) = await made.env.evaluate(MemoryRun({"task": made.model}), START, made.env.train)
    assert answer_reward(made.env, rollout) == 2.0
    assert answer_reward(made.env, dataclasses.replace(rollout, reward=0.25)) == 0.5


# the method


def form(answer: str) -> str:
    return f"<think>so</think><answer>{answer}</answer>"


MENU = [form("a"), form("good"), "good", form(""), form("b"), "<answer>good</answer>"]
SMALL = Config(steps=30, group=8, examples=2, lr=1.0, checks=2, prompts=3)


async def search(config: Config, policy: Any, word: str = "good") -> tuple[Candidate, MeteredRun]:
    made = small(lambda request: "yes" if word in request.messages[-1].content.lower() else "no", 12)
    run = MeteredRun({"task": made.model})
    return await prl(run, made.env, policy, START, config), run


def steps(run: MeteredRun) -> list[Any]:
    return [value for name, value in run.logged if name == "step"]


def scribe(menu: Sequence[str] = MENU) -> Any:
    return Scribe(lambda conversation: menu, gain=2.0)


async def test_it_learns_form_and_content() -> None:
    policy = scribe()
    found, run = await search(SMALL, policy)
    assert policy.probabilities(MENU).argmax() == 1, "well-formed and good"
    assert found.prompt.region_text() == "good" and found.operator == "prl"
    last = steps(run)[-1]
    assert last["answer"] > 1.5 and last["format"] > 1.2


async def test_rewards_of_a_step_by_hand() -> None:
    """Four completions: advantages in the order of answer + format: 2 + 1.5, 0 + 1.5, 0 + 0, 2 + 0.375."""
    policy = scribe(MENU)
    await search(dataclasses.replace(SMALL, steps=1, group=32, advantage="dr_grpo"), policy)
    ((texts, advantages, _),) = policy.seen
    worth = {MENU[0]: 1.5, MENU[1]: 3.5, MENU[2]: 0.0, MENU[3]: 1.5, MENU[4]: 1.5, MENU[5]: 2.375}
    mean = sum(worth[t] for t in texts) / 32
    assert advantages == pytest.approx([worth[t] - mean for t in texts])


async def test_the_format_has_a_weight() -> None:
    policy = scribe([form("a"), "a"])
    await search(dataclasses.replace(SMALL, steps=1, format=0.0), policy)
    assert set(policy.seen[0][1]) == {0.0}


async def test_prompts_are_chosen_at_every_evaluation() -> None:
    """The policy is good at first and then unlearns it; what was validated on the way is not forgotten."""
    policy = scribe([form("good"), form("a")])
    policy.gain = -1.0
    found, _ = await search(dataclasses.replace(SMALL, checks=30, steps=30), policy)
    assert policy.probabilities([form("good"), form("a")])[0] < 0.1
    assert found.prompt.region_text() == "good"


async def test_without_steps_it_is_the_best_of_the_untrained_writers_prompts() -> None:
    policy = scribe([form("a"), form("b"), form("good"), "good"])
    found, run = await search(dataclasses.replace(SMALL, steps=0, prompts=24), policy)
    assert not policy.seen and not steps(run)
    assert found.prompt.region_text() == "good" and run.spent["task"] == 6 * 4, (
        "the start and three texts, each once"
    )


async def test_completions_without_a_prompt_cost_no_call() -> None:
    _, run = await search(dataclasses.replace(SMALL, steps=3), scribe(["good", form("")]))
    assert run.spent["task"] == 6, "the start on the validation examples"


def test_what_the_writer_reads() -> None:
    with_thought, without = conversation("Sort.", "so", True), conversation("  ", "so", False)
    assert with_thought[0].role == "system" and "<think>" in with_thought[0].content
    assert (
        with_thought[1].content == "Refine a base prompt for another model.\n\nTask: Sort.\n\nBase prompt: so"
    )
    assert "<think>" not in without[0].content and "see the base prompt" in without[1].content


async def test_a_network_writes_in_the_form_and_is_updated() -> None:
    torch.set_num_threads(1)
    config = Config(steps=2, group=6, examples=1, lr=5e-3, max_tokens=56, checks=1, prompts=1)
    writer = PolicyModel.open("embedded/tiny", config.lora, 0)
    before = {name: weight.clone() for name, weight in writer.body.trainable.items()}
    _, run = await search(config, writer, "capital")
    assert min(step["format"] for step in steps(run)) > 0.75, "most completions are well-formed"
    assert any(not torch.equal(before[name], weight) for name, weight in writer.body.trainable.items())


class TestConformance(MethodConformance):
    method = "prl"
    settings = {"steps": 4, "group": 4, "examples": 4, "lr": 1.0, "prompts": 2, "checks": 2}  # noqa: RUF012

    def run(
        self, run: MeteredRun, env: Environment | None = None, settings: Mapping[str, Any] | None = None
    ) -> Candidate:
        menu = [
            form("Think carefully."),
            form("Look at the tone."),
            form(""),
            "Be quick.",
            form("Guess {{input}}"),
        ]
        config = configure(self.load(), self.settings if settings is None else settings)
        return asyncio.run(prl(run, env or self.environment(), scribe(menu), self.start(), config))
