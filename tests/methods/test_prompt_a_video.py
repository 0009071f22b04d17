"""prompt_a_video: which pairs are built, DPO's gradient, stage 1, and what the choice of pairs is worth under noise."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch", reason="writers need torch: pip install 'whet[train]'")
pytest.importorskip("transformers", reason="writers need transformers: pip install 'whet[train]'")
pytest.importorskip("peft", reason="writers need peft: pip install 'whet[train]'")

import torch
from tests.rl.stylist import START, Stylist, clear, painting

from whet.environments.environment import Environment
from whet.errors import UsageError
from whet.methods.method import configure
from whet.methods.prompt_a_video import Config, deploy, prompt_a_video
from whet.models.scripted import chance
from whet.rewards.verifiers.svg_scene import SvgScene
from whet.rl import losses
from whet.rl.policy_model import Sample
from whet.rl.preference_pairs import choose_pairs, pair_weight, prefer
from whet.run import MemoryRun, Run
from whet.search.archive import Candidate
from whet.testing.methods import MethodConformance
from whet.testing.paired_benchmark import paired_difference
from whet.testing.runs import MeteredRun
from whet.testing.simulated_task import Answers
from whet.types import Completion, Example, Reward

STYLES: Mapping[str, Any] = {
    "plain": lambda r: f"{r}.",
    "polite": lambda r: f"Please paint {r}.",
    "grand": lambda r: f"A beautiful picture of {r}.",
    "own": lambda r: f"{r}, each in its own colour",
    "clear": clear,
}


@dataclasses.dataclass
class Anchored(Stylist):
    """A stylist that knows its log-probabilities, those of its reference too."""

    base: dict[str, list[float]] = dataclasses.field(default_factory=dict)

    def set_reference_policy(self) -> None:
        super().set_reference_policy()
        self.base = {key: list(row) for key, row in self.logits.items()}

    def _rows(self, samples: Sequence[Sample], logits: Mapping[str, list[float]]) -> list[list[float]]:
        keys = list(self.logits)
        rows = [np.array(logits.get(keys[s.prompt[0]], [0.0] * len(self.styles))) for s in samples]
        pairs = zip(samples, rows, strict=True)
        return [[float(row[s.tokens[0]] - np.log(np.exp(row).sum()))] for s, row in pairs]

    def logprobs(self, samples: Sequence[Sample]) -> list[list[float]]:
        return self._rows(samples, self.logits)

    def reference_logprobs(self, samples: Sequence[Sample]) -> list[list[float]]:
        return self._rows(samples, self.base)


def stylist(styles: Mapping[str, Any] = STYLES, gain: float = 20.0) -> Any:
    return Anchored(lambda conversation: list(styles), gain=gain, styles=styles)


async def search(
    policy: Any, env: Environment | None = None, seed: int = 0, optimizer: Any = None, **settings: Any
) -> tuple[Candidate, MeteredRun]:
    env = env or painting()
    run = MeteredRun({"task": env.model, **({"optimizer": optimizer} if optimizer else {})}, seed)
    config = Config(**{"steps": 12, "requests": 6, "lr": 1.0, "checks": 2, **settings})
    return await prompt_a_video(run, env, policy, START, config), run


scores = st.lists(st.one_of(st.none(), st.floats(0, 1)), max_size=7)


@given(scores=scores, top=st.integers(1, 3), least=st.floats(0, 1), margin=st.floats(0, 1))
def test_pairs_keep_thresholds_and_margin(scores: list[Any], top: int, least: float, margin: float) -> None:
    fit = [i % 3 != 2 for i in range(len(scores))]
    pairs = choose_pairs(scores, fit, top=top, least=least, margin=margin)
    known = sorted((s for s in scores if s is not None), reverse=True)
    for i, j in pairs:
        assert fit[i] and scores[i] >= max(least, *known[:top][-1:]) and scores[i] - scores[j] > margin
    assert len({i for i, _ in pairs}) <= top
    if not any(s is None for s in scores) and scores and all(fit) and top == 1:
        best = max(scores)
        assert len(pairs) == (sum(best - s > margin for s in scores) if best >= least else 0)


@given(st.lists(st.floats(-30, 0), min_size=4, max_size=4), st.sampled_from([0.05, 0.1, 1.0]))
def test_the_weight_of_a_pair_is_the_derivative_of_the_loss(logprobs: list[float], beta: float) -> None:
    values = [torch.tensor([v], dtype=torch.float64, requires_grad=True) for v in logprobs]
    losses.dpo(*values, beta).sum().backward()
    weight = pair_weight(*logprobs, beta)  # type: ignore[call-arg]
    assert values[0].grad.item() == pytest.approx(-weight, abs=1e-9)
    assert values[1].grad.item() == pytest.approx(weight, abs=1e-9)


def test_steps_raise_the_preferred_text_and_slow_down_as_the_margin_grows() -> None:
    policy = stylist()
    policy.set_reference_policy()
    ((one, *_),) = policy.sample([[_Message("x")]], 1)
    other = dataclasses.replace(one, tokens=((one.tokens[0] + 1) % 5,))
    first = prefer(policy, [(one, other)], beta=0.1, lr=1.0, epochs=5, length=10)
    ((now,), (low,)) = policy.logprobs([one, other])
    assert now > np.log(0.2) > low and first["preferred"] == 1.0
    weights = [advantages[0] for _, advantages, _ in policy.seen]
    assert weights == sorted(weights, reverse=True) and weights[0] == pytest.approx(0.05)
    assert prefer(policy, [], beta=0.1, lr=1.0, epochs=5, length=10) == {}


@dataclasses.dataclass
class _Message:
    content: str


async def test_it_learns_and_is_deployed_as_it_was_validated() -> None:
    policy = stylist()
    found, run = await search(policy, steps=20)
    assert policy.share("clear") > 0.7 and policy.anchors == 1
    env, fresh = painting(), stylist()
    validated = {v["id"]: v["validation"] for name, v in run.logged if name == "validated"}  # type: ignore[index, call-overload]
    assert found.system is not None
    system = deploy(env, fresh, run.kept[found.system], Config())
    (score,) = await system.score(MemoryRun({"task": env.model}), [START], env.validation)
    assert score.mean == validated[found.id] > validated[START.id]


@pytest.mark.parametrize(
    "settings", [{"longest": 5}, {"floors": "met:0.9, shapes:99"}, {"least": 1.0, "margin": 1.0}]
)
async def test_what_is_too_long_or_below_a_floor_is_not_chosen(settings: Any) -> None:
    policy = stylist({"plain": STYLES["plain"], "clear": clear})
    _, run = await search(policy, steps=3, checks=0, **settings)
    assert [v["pairs"] for n, v in run.logged if n == "step"] == [0, 0, 0] and not policy.seen  # type: ignore[index, call-overload]


async def test_the_reference_is_renewed_as_often_as_wanted() -> None:
    for renewals in (0, 1, 3):
        policy = stylist()
        await search(policy, steps=4, requests=2, checks=0, renewals=renewals)
        assert policy.anchors == renewals


async def test_stage_1_imitates_the_best_text_of_each_request_and_keeps_three() -> None:
    taught: list[Any] = []

    class Taught(Anchored):
        def imitate(self, pairs: Any, settings: Any) -> dict[str, float]:
            taught.append(list(pairs))
            return {}

    def write(question: str, sample: int) -> str:
        request = question.split("<REQUEST>\n")[1].split("\n</REQUEST>")[0]
        return (
            f"<REQUEST>{clear(request)} {sample % 3}</REQUEST>"
            if sample > 3
            else f"<REQUEST>{request} {sample}</REQUEST>"
        )

    optimizer = Answers(write)
    policy: Any = Taught(lambda c: list(STYLES), styles=STYLES)
    how = {"steps": 0, "evolutions": 3, "imitations": 2, "requests": 4}
    await search(policy, None, 0, optimizer, **how)
    assert len(taught) == 2 and policy.anchors == 1
    assert all(text.startswith(clear(c[-1].content.rpartition("\n\n")[2])) for c, text in taught[0])
    assert max(q.count("</REQUEST>\nScore:") for q in optimizer.questions) == 4, (
        "the request and the best three"
    )
    assert len({(r.messages, r.sample) for r in optimizer.requests}) == len(optimizer.requests)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"group": 1}, "a pair needs two"),
        ({"floors": "met"}, "not of the form"),
        ({"floors": "met:x"}, "not of the form"),
    ],
)
async def test_settings_that_cannot_work_are_refused(settings: Any, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        await search(stylist(), **settings)


# The contest: a judge with noise; pairs of clear differences against all pairs.


@dataclasses.dataclass(frozen=True)
class Noisy(SvgScene):
    """The share of met demands, mixed with luck."""

    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        reward = await super().grade(run, example, completion)
        luck = chance("noise", example.id, completion.text)
        return Reward(0.4 * reward.value + 0.6 * luck)


GAIN = 3.0
ALL_PAIRS = (("margin", 0.0), ("least", 0.0), ("top", 5))


@cache
def clear_share(settings: tuple[tuple[str, Any], ...] = (), seeds: int = 10, steps: int = 6) -> list[float]:
    """How often the trained rewriter writes clearly, by seed."""
    shares = []
    for seed in range(seeds):
        policy = stylist(gain=GAIN)
        how = {"steps": steps, "checks": 0, "requests": 8, **dict(settings)}
        asyncio.run(search(policy, painting(reward=Noisy()), seed, **how))
        shares.append(policy.share("clear"))
    return shares


@pytest.mark.long
def test_clear_pairs_teach_more_than_all_pairs() -> None:
    won = paired_difference(clear_share(), clear_share(ALL_PAIRS))
    assert won.low > 0.02, (won, clear_share(), clear_share(ALL_PAIRS))


class TestConformance(MethodConformance):
    method = "prompt_a_video"
    settings = {"steps": 4, "group": 4, "requests": 4, "lr": 1.0, "checks": 2}  # noqa: RUF012

    def run(
        self, run: MeteredRun, env: Environment | None = None, settings: Mapping[str, Any] | None = None
    ) -> Candidate:
        texts = ("Great plot.", "Awful.", "", "A film {{input}}", "Fine.")
        config = configure(self.load(), self.settings if settings is None else settings)
        policy = stylist({text: (lambda r, text=text: text) for text in texts}, 1.0)
        return asyncio.run(prompt_a_video(run, env or self.environment(), policy, self.start(), config))
