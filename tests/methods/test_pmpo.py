"""PMPO: what a part is worth, whose rows reasons come from, and that loss and hints each earn something where rows are few."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from tests.methods.readers import Blinded, gauss

from whet.errors import UsageError
from whet.methods.pmpo import Config, pmpo
from whet.models.scripted import LabelSimulator, Scripted, luck, request_text, shuffle, split_input
from whet.prompt import Prompt
from whet.rl import LanguagePolicy
from whet.run import Budget
from whet.search.archive import Candidate
from whet.testing.paired_benchmark import KnownWorld, paired_difference, play_world
from whet.testing.runs import MeteredRun
from whet.testing.simulated_task import Answers, review_world
from whet.types import Example, Message, Request, Scores

CONFORMANCE = {"rounds": 3, "hard": 2, "variants": 2, "units": 2, "examples": 12}
"""Settings of a run in the conformance suite."""
SWEEP = {"rounds": 1, "hard": 1, "variants": 2, "units": 2, "finalists": 1}
"""Settings of a run that is killed at every boundary."""

PHRASES = tuple(f"Mind matter {number:02}." for number in range(40))
HINT = re.compile(r"^([+-]\d+\.\d+): (.*)$", re.MULTILINE)
SHOWN = re.compile(r"<INSTRUCTION>\n(.*?)\n</INSTRUCTION>", re.DOTALL)


class SoftLabels(LabelSimulator):
    """Eight of forty phrases make right labels likelier, eight less likely; rows differ in how hard they are."""

    def __init__(self, seed: int) -> None:
        super().__init__("labels", {"seed": str(seed)})
        order = shuffle(PHRASES, seed, "effects")
        self.effects = dict.fromkeys(order[:8], 0.5) | dict.fromkeys(order[8:16], -0.5)

    def margin(self, text: str) -> float:
        """How far the right label is ahead of the other on a row of middle difficulty, in nats."""
        return -0.5 + sum(effect for phrase, effect in self.effects.items() if phrase in text)

    def accuracy(self, prompt: str) -> float:
        """The share of all rows that are right."""
        return 0.5 * (1 + math.erf(self.margin(prompt) / 2 / math.sqrt(2)))

    async def score(
        self,
        prompts: Sequence[Prompt],
        inputs: Sequence[Mapping[str, str]],
        continuations: Sequence[Sequence[str]],
    ) -> Scores:
        logprobs = np.zeros((len(prompts), len(inputs), 2))
        for p, prompt in enumerate(prompts):
            for e, values in enumerate(inputs):
                text = "\n".join(m.content for m in prompt.render(Example("", values)))
                line, _, truth = split_input(text, self.cues)
                ahead = self.margin(text) + 2 * gauss(self.seed, "row", line.strip())
                for c, label in enumerate(continuations[e]):
                    sign = 1 if label.strip().lower() == truth.lower() else -1
                    logprobs[p, e, c] = -math.log1p(math.exp(-sign * ahead))
        return Scores(logprobs, np.ones((len(inputs), 2), dtype=np.int64))


class HintReader(Scripted):
    """Marks phrases of the instruction; rewrites it without those that the hints speak against, and with two new ones."""

    def answer(self, request: Request, sample: int) -> str:
        text, draw = request_text(request), luck(request, sample)
        shown = SHOWN.findall(text)[0]
        held = [phrase for phrase in shuffle(PHRASES, self.seed, draw) if phrase in shown]
        if "Mark at most" in text:
            return "\n".join(f"<PART>{phrase}</PART>" for phrase in held[:5])
        harmful = {part for worth, part in HINT.findall(text) if float(worth) < 0}
        kept = [p for p in PHRASES if p in shown and p not in harmful]
        if not harmful and len(kept) > 1:
            kept.remove(held[0])
        fresh = [p for p in shuffle(PHRASES, self.seed, draw, "new") if p not in shown][:2]
        return f"<INSTRUCTION>{' '.join([*kept, *fresh])}</INSTRUCTION>"


def world(seed: int, change: Callable[[str], str] = str) -> KnownWorld:
    model = SoftLabels(seed)
    held = shuffle(PHRASES, seed, "start")[:12]
    start = Prompt.parse(f"<!-- whet:begin -->\n{' '.join(held)}\n<!-- whet:end -->\n\n{{{{input}}}}")
    env = review_world(model, train=16, validation=16, scores=True)
    reader: Any = Blinded(HintReader("hints", {"seed": str(seed)}), change)
    return KnownWorld(env, start, lambda p: model.accuracy(p.text), reader)


async def search(
    answer: Callable[[str, int], str], limits: Budget | None = None, **settings: Any
) -> tuple[Candidate, Answers, MeteredRun]:
    one, model = world(0), Answers(answer)
    run = MeteredRun({"task": one.env.model, "optimizer": model}, limits=limits)
    return await pmpo(run, one.env, LanguagePolicy(), one.start, Config(**settings)), model, run


def by_hints(question: str, sample: int) -> str:
    request = Request((Message("user", question),), 1.0, sample=sample)
    return HintReader("hints", {"seed": "0"}).answer(request, sample)


async def test_each_part_is_shown_with_the_loss_that_leaving_it_out_costs() -> None:
    _, model, _ = await search(by_hints, rounds=1)
    hints = HINT.findall(model.questions[1])
    assert len(hints) == 5 and all(phrase in world(0).start.text for _, phrase in hints)
    effects = SoftLabels(0).effects
    for worth, phrase in hints:
        assert np.sign(round(float(worth), 3)) == np.sign(effects.get(phrase, 0.0)), (worth, phrase)


async def test_reasons_come_from_the_rows_on_which_the_right_answer_is_least_likely() -> None:
    one = world(0)
    _, model, _ = await search(by_hints, rounds=1, hard=3, variants=4)
    asked = [question for question in model.questions if "least likely" in question]
    assert len(asked) == 12 and len(set(asked)) == 3
    run = MeteredRun({"task": one.env.model})
    each = [(await one.env.score(run, [one.start], [row]))[0] for row in one.env.train]
    scores = [score.parts["likelihood"] for score in each]
    hard = {
        row.user_text for row, score in zip(one.env.train, scores, strict=True) if score <= sorted(scores)[2]
    }
    assert {text for text in hard if any(f"Input: {text}" in question for question in asked)} == hard


async def test_a_part_that_is_not_in_the_text_is_not_measured_and_the_whole_text_is_never_left_out() -> None:
    def answer(question: str, sample: int) -> str:
        if "Mark at most" in question:
            whole = SHOWN.findall(question)[0]
            return f"<PART>No such words.</PART><PART>{whole}</PART>"
        return "<INSTRUCTION>Look.</INSTRUCTION>"

    _, model, _ = await search(answer, rounds=1)
    assert not any("gets without each of these parts" in question for question in model.questions)


async def test_the_same_parts_have_their_figures_in_a_later_round_too() -> None:
    _, model, run = await search(lambda q, s: by_hints(q, 0) if "Mark" in q else "no", rounds=2)
    later = [q for q in model.questions if "gets without each of these parts" in q]
    assert len(later) > 12 and run.spent["task"] < 16 * (1 + 5 + 5 + 2 + 6)


@pytest.mark.parametrize("calls", [150, 600])
async def test_a_limit_is_kept_and_used(calls: int) -> None:
    _, _, run = await search(by_hints, Budget(task_calls=calls))
    assert 0.5 * calls < run.spent["task"] <= calls


async def test_a_figure_that_the_task_lacks_is_refused() -> None:
    env = review_world(train=8)
    with pytest.raises(UsageError, match="reward=gap needs a task that scores labels"):
        await pmpo(
            MeteredRun({"task": env.model}), env, LanguagePolicy(), world(0).start, Config(reward="gap")
        )


# The contest: 16 rows, on which many prompts get equally many right.

SEEDS = range(20)


def with_hints_dealt(question: str) -> str:
    """Each part has the figure of another one."""
    dealt = iter(shuffle([worth for worth, _ in HINT.findall(question)], question))
    return HINT.sub(lambda match: f"{next(dealt)}: {match[2]}", question)


@cache
def reached(calls: int, change: Callable[[str], str] = str, **settings: Any) -> list[float]:
    return [
        play_world("pmpo", world(seed, change), seed, Budget(task_calls=calls), settings) for seed in SEEDS
    ]


@pytest.mark.long
def test_the_loss_finds_what_the_share_of_right_answers_does_not_tell() -> None:
    won = paired_difference(reached(3000), reached(3000, reward="reward"))
    print(f"over accuracy: {won}")
    assert won.low > 0, won


@pytest.mark.long
def test_hints_of_other_parts_lose() -> None:
    won = paired_difference(reached(800), reached(800, with_hints_dealt))
    for calls in (800, 1500, 3000):
        print(
            f"with the mask over without, {calls} calls: {paired_difference(reached(calls), reached(calls, units=0))}"
        )
    print(f"over shuffled hints: {won}")
    assert won.low > 0, won


@pytest.mark.long
def test_it_beats_a_plain_rewriter_with_the_same_optimizer() -> None:
    limits = Budget(task_calls=1500)
    for method, settings in (("meta_prompt", {}), ("random_search", {"space": "phrases"})):
        found = [play_world(method, world(seed), seed, limits, settings) for seed in SEEDS]
        won = paired_difference(reached(1500), found)
        print(f"over {method}: {won}")
        assert won.low > 0, won
