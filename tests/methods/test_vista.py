"""VISTA: labelled hypotheses on the same rows, a trace of what was tried, restarts; and faults that no wrong answer shows."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import pytest
from tests.methods.figures import won_over
from tests.methods.readers import Blinded, letters
from tests.methods.rule_worlds import LAST_WORD, optimized

from whet.environments.environment import Environment
from whet.methods import vista as module
from whet.methods.vista import BLANK, CAUSE, CLASSES, FREE, RESTART, Config, TraceTree, vista
from whet.models.scripted import Scripted, chance, choose_by_luck, luck, request_text
from whet.prompt import Prompt
from whet.rewards.text import ExactMatch
from whet.rl import LanguagePolicy
from whet.run import Budget
from whet.search.archive import Candidate
from whet.search.edits import PHRASES
from whet.search.plan import fit
from whet.testing.paired_benchmark import KnownWorld, play_world
from whet.testing.runs import MeteredRun
from whet.testing.simulated_task import SOURCE, Answers, review_world
from whet.types import Request, Rollout

CONFORMANCE = {"rounds": 4, "hypotheses": 2}
"""Settings of a run in the conformance suite."""
SWEEP = {"rounds": 3, "hypotheses": 2, "minibatch": 2, "restart": 0.4, "finalists": 1}
"""Settings of a run that is killed at every boundary."""

START = Prompt.parse(SOURCE)


def writer(text: str = "Weigh the evidence") -> Callable[[str, int], str]:
    def write(question: str, sample: int) -> str:
        if "<HYPOTHESIS>" in question:
            return "".join(f"<HYPOTHESIS>Cause {i} of {sample}.</HYPOTHESIS>\n" for i in range(9))
        return f"<PROMPT>{text}, as cause {sample} asks.</PROMPT>"

    return write


async def search(
    write: Callable[[str, int], Any] | None = None,
    env: Any = None,
    limits: Budget | None = None,
    seed: int = 0,
    **settings: Any,
) -> tuple[Candidate, Answers, MeteredRun]:
    env, model = env or review_world(), Answers(write or writer())
    run = MeteredRun({"task": env.model, "optimizer": model}, seed, limits=limits)
    config = Config(**{"rounds": 4, "restart": 0.0, "free": 0.0, "minibatch": 20, **settings})
    return await vista(run, env, LanguagePolicy(), START, config), model, run


async def test_each_hypothesis_has_a_class_of_its_own_and_a_rewrite_sees_one() -> None:
    _, model, _ = await search(rounds=1, hypotheses=3)
    asked, *rewrites = model.questions
    classes = [line[3:] for line in asked.splitlines() if re.match(r"\d\. ", line)]
    assert len(set(classes)) == 3 and set(classes) <= set(CLASSES)
    assert [next(label for label in CLASSES if label in q) for q in rewrites] == classes
    assert all(
        f"Cause {i} of 0." in q and f"Cause {1 - i} of 0." not in q for i, q in enumerate(rewrites[:2])
    )


async def test_the_children_of_a_round_answer_the_rows_of_their_parent() -> None:
    _, _, run = await search(rounds=1, hypotheses=3, minibatch=8, finalists=1)
    assert run.spent["task"] == 8 * 4 + 20 * sum(name == "validated" for name, _ in run.logged)
    labels = [v["operator"] for name, v in run.logged if name == "candidate"]  # type: ignore[index, call-overload]
    assert set(labels) - {"start"} <= set(CLASSES)


async def test_the_trace_tells_labels_and_gains_of_what_was_tried() -> None:
    _, model, _ = await search(rounds=3, hypotheses=2)
    hypotheses = [q for q in model.questions if "<HYPOTHESIS>" in q]
    assert "+0" not in hypotheses[0]
    assert re.search(rf"- ({'|'.join(map(re.escape, CLASSES))}): [+-]0\.\d\d", hypotheses[-1])


def test_classes_that_were_tried_from_a_parent_come_last() -> None:
    run, env = MeteredRun({}), review_world()
    tree = TraceTree(fit(run, env, 1, 1, 8), START, CLASSES)
    parent = Candidate(START)
    first = tree.labels(run, parent, 4, 0.0)
    for label in first:
        tree.record(run, parent, label, START.edit(label), 0.0, [Rollout("p", "r", "", 0.0)])
    second = tree.labels(run, parent, len(CLASSES) - 4, 0.0)
    assert set(first) | set(second) == set(CLASSES)
    assert tree.labels(run, parent, 3, 1.0) == [FREE] * 3


async def test_a_restart_does_not_see_the_instruction() -> None:
    _, model, run = await search(restart=1.0, rounds=2)
    assert all(BLANK in q and "Be quick, and guess freely." not in q for q in model.questions)
    assert RESTART in {v["operator"] for name, v in run.logged if name == "candidate"}  # type: ignore[index, call-overload]


async def test_restarts_happen_as_often_as_is_said() -> None:
    restarts = 0
    for seed in range(12):
        _, model, _ = await search(restart=0.25, rounds=8, hypotheses=1, minibatch=4, seed=seed)
        restarts += sum(BLANK in q for q in model.questions)
    assert 12 <= restarts <= 36


@pytest.mark.parametrize("most", [150, 300])
async def test_small_budgets_buy_two_rounds(most: int) -> None:
    env, limits = review_world(train=40, validation=20), Budget(task_calls=most, optimizer_calls=15)
    _, model, run = await search(writer(), env, limits, **vars(Config()))
    assert len({request.sample // 100 for request in model.requests}) >= 2
    assert 0.3 * most < run.spent["task"] <= most and run.spent["optimizer"] <= 15


def test_through_the_public_face(tmp_path: Path) -> None:
    def write(question: str) -> str:
        named = "".join(f"<HYPOTHESIS>It lacks {i}.</HYPOTHESIS>\n" for i in range(3))
        return named if "<HYPOTHESIS>" in question else f"<PROMPT>{LAST_WORD}</PROMPT>"

    assert optimized(tmp_path, "vista", write).strip() == LAST_WORD


# The contest: a fault of the start that no wrong answer shows. The list names it first, last, or not at all.

FAULT = "Give the answer field, then the work field."
TRAP = Prompt.parse(
    f"You sort letters.\n<!-- whet:begin -->\nSay yes or no. {FAULT}\n<!-- whet:end -->\n{{{{input}}}}"
)
NAMED = {"first": CLASSES[0], "late": CLASSES[5], "unnamed": ""}


class TrapModel(Scripted):
    """Right on 15 % of the inputs while the fault stands, else on 80 %. Stock phrases do nothing."""

    OPTIONS: ClassVar[Mapping[str, str]] = {}

    def accuracy(self, prompt: str) -> float:
        return 0.15 if FAULT in prompt else 0.8

    def answer(self, request: Request, sample: int) -> str:
        text = request_text(request)
        number, label = re.findall(r"Letter (\d+) about topic-\d+: (\w+)", text)[-1]
        return label if chance(self.seed, "trap", number) < self.accuracy(text) else "unsure"


class TrapWriter(Scripted):
    """Repairs the fault in four of five rewrites that name its class, in one of thirty free ones; else it adds a phrase. What it
    writes from nothing has the fault half of the time."""

    OPTIONS: ClassVar[Mapping[str, str]] = {"class": ""}

    def answer(self, request: Request, sample: int) -> str:
        question, draw = request_text(request), luck(request, sample)
        if "<HYPOTHESIS>" in question:
            return "".join(f"<HYPOTHESIS>Letters are hard, {i}.</HYPOTHESIS>\n" for i in range(5))
        lucky = chance(self.seed, draw)
        if BLANK in question:
            return f"<INSTRUCTION>Answer yes or no. {FAULT if lucky < 0.5 else ''}</INSTRUCTION>"
        text = question.split("<INSTRUCTION>\n")[1].split("\n</INSTRUCTION>")[0]
        named = self.options["class"] and self.options["class"] in question.partition(CAUSE)[2]
        if lucky < (0.8 if named else 0.03 if FREE in question else 0.0):
            return f"<INSTRUCTION>{text.replace(FAULT, '')} Work first.</INSTRUCTION>"
        return f"<INSTRUCTION>{text} {choose_by_luck(PHRASES, self.seed, draw)}</INSTRUCTION>"


def with_other_labels(question: str) -> str:
    """A question to rewrite in which the hypothesis bears the label of another class."""
    head, cause, rest = question.partition(CAUSE)
    other = choose_by_luck(CLASSES[1:5], question)
    return f"{head}{cause}{re.sub('|'.join(map(re.escape, CLASSES)), other, rest)}" if cause else question


def trap(seed: int, fault: str, change: Callable[[str], str]) -> KnownWorld:
    model = TrapModel("trap", {"seed": str(seed)})
    reader: Any = Blinded(TrapWriter("writer", {"seed": str(seed), "class": NAMED[fault]}), change)
    env = Environment(model, ExactMatch(), letters(96), letters(48, 960))
    return KnownWorld(env, TRAP, lambda p: model.accuracy(p.source), reader)


@cache
def reached(fault: str, change: Callable[[str], str] = str, seeds: int = 20, **settings: Any) -> list[float]:
    """What it finds in the world of each seed."""
    limits = Budget(task_calls=300)
    return [play_world("vista", trap(seed, fault, change), seed, limits, settings) for seed in range(seeds)]


@pytest.mark.parametrize(
    ("fault", "seeds"),
    [("first", 8), *(pytest.param(f, 20, marks=pytest.mark.long) for f in ("first", "late"))],
)
def test_of_a_fault_that_the_list_names_it_wins_by_the_label(
    fault: str, seeds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = reached(fault, seeds=seeds, restart=0.0)
    others = reached(fault, with_other_labels, seeds, restart=0.0)
    free = reached(fault, seeds=seeds, restart=0.0, free=1.0)
    assert won_over(f"labels of other classes ({fault})", whole, others).low > 0.1
    assert won_over(f"hypotheses of no class ({fault})", whole, free).low > 0.1
    monkeypatch.setattr(module, "CLASSES", tuple(label for label in CLASSES if label != NAMED[fault]))
    without = [
        play_world("vista", trap(s, fault, str), s, Budget(task_calls=300), {"restart": 0.0})
        for s in range(seeds)
    ]
    assert won_over(f"a list without the class ({fault})", whole, without).low > 0.1


@pytest.mark.long
def test_of_a_fault_that_it_does_not_name_it_wins_by_restarts() -> None:
    assert won_over("without restarts", reached("unnamed"), reached("unnamed", restart=0.0)).low > 0


@pytest.mark.long
@pytest.mark.parametrize("fault", ["first", "late", "unnamed"])
def test_over_one_hypothesis_a_round_no_benefit_is_shown(fault: str) -> None:
    assert won_over(f"one hypothesis ({fault})", reached(fault), reached(fault, hypotheses=1)).low < 0
