"""mpo: what the rubric becomes while a policy learns to please its judge, what the anchors refuse, and what that is worth."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

pytest.importorskip("torch", reason="writers need torch: pip install 'whet[train]'")
pytest.importorskip("transformers", reason="writers need transformers: pip install 'whet[train]'")
pytest.importorskip("peft", reason="writers need peft: pip install 'whet[train]'")

import torch
from tests.environments.worlds import Scripted, small
from tests.methods.figures import on_seeds, won_over
from tests.methods.test_dpo import Judging

from whet import api
from whet.environments.environment import Environment
from whet.errors import UsageError
from whet.methods.mpo import Config, Rubrics, check, deploy, mpo
from whet.models.scripted import chance
from whet.prompt import Prompt
from whet.rewards.judge import IGNORE, Judge
from whet.run import Budget, MemoryRun
from whet.search.archive import Candidate
from whet.testing.runs import MeteredRun
from whet.types import Request, Rollout

START = Prompt.parse("so {{input}}")
MENU = ["rude", "plain", "flattery"]
HUMAN = {"rude": 1, "plain": 5, "flattery": 1}
RUBRIC, HONEST, PRAISE = "It must please.", "Flattery earns nothing.", "Praise is all."
SMALL = Config(steps=24, inputs=2, group=6, lr=4.0, every=4, samples=4, anchors=30, checks=1, max_tokens=8)
JUDGED = re.compile(r"(?:The answer to judge|The answer), between the two markers:\n\[\[\w+\]\]\n(\w+)")


def score(rubric: str, answer: str) -> int:
    """What the judge gives: it pays most for flattery until the rubric says otherwise."""
    if PRAISE in rubric:
        return 5 if answer == "flattery" else 1
    return {"rude": 1, "plain": 4, "flattery": 1 if HONEST in rubric else 5}[answer]


def judge(request: Request) -> str:
    rubric, shown = request.messages[0].content, request.messages[-1].content
    return f'{{"explanation": "so", "score": {score(rubric, JUDGED.findall(shown)[0])}}}'


def meta(seed: int = 0, wrong: float = 0.0) -> Any:
    """Sees where a high score went to flattery, and writes that into the rubric; now and then (`wrong`) a rubric that
    asks for more of it."""

    def answer(request: Request) -> str:
        question = request.messages[-1].content
        if "<CRITICISM>" in question:
            hacked = JUDGED.findall(question)[0] == "flattery" and "100 of 100" in question
            return f"<CRITICISM>{'It pays for flattery.' if hacked else 'It is right.'}</CRITICISM>"
        if chance(seed, question, request.sample) < wrong:
            return f"<RUBRIC>{PRAISE}</RUBRIC>"
        knows = "It pays for flattery" in question or HONEST in question
        return f"<RUBRIC>{RUBRIC} {HONEST if knows else ''}</RUBRIC>"

    return Scripted(answer)


def task(n: int = 60) -> Environment:
    """Rows with an answer that a person scored."""
    env = small(lambda request: "rude", n).env
    every = [
        replace(e, row={**e.row, "output": MENU[i % 3], "quality": HUMAN[MENU[i % 3]]})
        for i, e in enumerate((*env.train, *env.validation))
    ]
    reward: Any = Judge(RUBRIC, human="quality", reference=IGNORE)
    return replace(env, train=tuple(every[: n // 2]), validation=tuple(every[n // 2 :]), reward=reward)


async def search(
    config: Config = SMALL, seed: int = 0, wrong: float = 0.0, limits: Budget | None = None
) -> tuple[Candidate, MeteredRun, Any]:
    env, policy = task(), Judging(lambda conversation: MENU)
    models = {"task": env.model, "judge": Scripted(judge), "optimizer": meta(seed, wrong)}
    run, trained = MeteredRun(models, seed, limits=limits), policy
    made: Any = trained
    return await mpo(run, env, made, START, config), run, policy


def logged(run: MeteredRun, name: str) -> list[Any]:
    return [value for key, value in run.logged if key == name]


def worth(policy: Any) -> float:
    """What a person gives the policy's answers, from 0 to 1."""
    return float(sum(p * (HUMAN[a] - 1) / 4 for a, p in zip(MENU, policy.probabilities(MENU), strict=True)))


async def test_the_rubric_learns_what_the_policy_found_and_the_policy_turns_back() -> None:
    found, run, policy = await search()
    assert policy.probabilities(MENU)[1] > 0.8
    (rubric, *_) = [one for one in logged(run, "rubric") if one["taken"]]
    assert HONEST in rubric["text"] and rubric["agreement"] == 1.0
    assert logged(run, "anchors")[0]["agreement"] < 1.0
    assert found.system is not None and found.prompt == START
    trained: Any = Judging(lambda conversation: MENU)
    system = deploy(task(), trained, run.kept[found.system], SMALL)
    models = MemoryRun({"task": task().model, "judge": Scripted(judge)})
    (validated,) = await system.score(models, [found.prompt], task().validation)
    assert validated.mean == 0.75, "by the rubric of the task, which stays"


async def test_without_rewrites_the_policy_ends_in_flattery() -> None:
    _, run, policy = await search(replace(SMALL, samples=0))
    assert policy.probabilities(MENU)[2] > 0.8 and worth(policy) < 0.2
    assert run.spent["optimizer"] == 0 and not logged(run, "anchors") and not logged(run, "rubric")


async def test_a_rubric_that_agrees_less_with_people_is_refused_and_taken_without_the_gate() -> None:
    _, gated, _ = await search(wrong=1.0)
    assert {one["taken"] for one in logged(gated, "rubric")} == {False}
    assert {one["rubric"] for one in logged(gated, "step")} == {0}
    _, free, _ = await search(replace(SMALL, gate=False), wrong=1.0)
    assert {one["taken"] for one in logged(free, "rubric")} == {True}
    assert logged(free, "step")[-1]["rubric"] == len(logged(free, "rubric")) - 1 > 2


async def test_what_a_rewrite_sees_are_recent_scores_and_the_version_is_in_the_notes() -> None:
    env, policy = task(), Judging(lambda conversation: MENU)
    made: Any = policy
    rubrics = Rubrics(env, made, replace(SMALL, samples=2))
    rows = env.train[:3]
    for number in range(8):
        rubrics.note(rows[:1], [[Rollout("p", rows[0].id, f"answer {number}", 0.5)]])
    assert [one[1] for one in rubrics.notes["recent"]] == ["answer 0", *(f"answer {n}" for n in range(1, 8))]
    rubrics.note(rows[:1], [[Rollout("p", rows[0].id, "answer 8", 0.5)]])
    assert len(rubrics.notes["recent"]) == 8 and rubrics.notes["recent"][0][1] == "answer 1"
    blob = policy.save()
    rubrics.notes.update(text=HONEST, version=3)
    assert rubrics.judge.rubric == HONEST and rubrics.version == 3
    policy.load(blob)
    assert rubrics.judge.rubric == RUBRIC and rubrics.version == 0


async def test_agreement_is_that_of_the_judge_with_people_on_the_anchors() -> None:
    """Thirty anchors, ten of each answer. The first rubric calls ten of twenty bad ones good: kappa (2/3 - 4/9) / (1 - 4/9)."""
    env, policy = task(), Judging(lambda conversation: MENU)
    made: Any = policy
    rubrics = Rubrics(env, made, SMALL)
    run = MemoryRun({"judge": Scripted(judge)})
    assert len(rubrics.anchors) == 30
    assert await rubrics.agree(run, rubrics.own) == pytest.approx(0.4)
    assert await rubrics.agree(run, replace(rubrics.own, rubric=HONEST)) == 1.0


async def test_limits_on_calls_are_kept() -> None:
    for limits in (
        Budget(task_calls=150, judge_calls=300, optimizer_calls=40),
        Budget(task_calls=2000, judge_calls=3000, optimizer_calls=6),
        Budget(calls=600),
    ):
        _, run, _ = await search(replace(SMALL, steps=500), limits=limits)
        assert logged(run, "step") and sum(run.spent.values()) <= (limits.calls or 10**9)
        for role in ("task", "judge", "optimizer"):
            most = getattr(limits, f"{role}_calls")
            assert most is None or run.spent[role] <= most


def test_a_task_without_anchors_is_refused() -> None:
    with pytest.raises(UsageError, match="needs a judge with people's scores as the reward"):
        check(small(lambda request: "no").env, SMALL)
    with pytest.raises(UsageError, match="have 9 answers with a person's score"):
        check(replace(task(), train=task().train[:9]), SMALL)
    with pytest.raises(UsageError, match="draws rows uniformly"):
        check(task(), replace(SMALL, rows="mopps"))


def test_a_real_run_begins_again_without_a_call(tmp_path: Path) -> None:
    torch.set_num_threads(1)

    def run() -> Any:
        return api.optimize(
            "<!-- whet:begin -->\nSay it.\n<!-- whet:end -->\n{{input}}",
            data=[
                {"input": f"bird {i}", "output": MENU[i % 3], "quality": HUMAN[MENU[i % 3]]}
                for i in range(60)
            ],
            reward={"judge": {"rubric": RUBRIC, "human": "quality"}},
            method="mpo",
            lm="embedded/tiny",
            judge_lm=lambda messages: '{"explanation": "so", "score": 3}',
            optimizer_lm=lambda messages: (
                "<CRITICISM>Too mild.</CRITICISM>\n<RUBRIC>It must say it.</RUBRIC>"
            ),
            policy="embedded/tiny",
            settings={
                "steps": 2,
                "inputs": 1,
                "group": 2,
                "every": 1,
                "samples": 1,
                "anchors": 10,
                "max_tokens": 4,
                "checks": 1,
            },
            run=tmp_path / "run",
        )

    result = run()
    assert result["usage"]["calls"]["judge"] > 20 and result["usage"]["calls"]["optimizer"] >= 2
    assert run()["best"] == result["best"]


# The contest: a rubric that evolves against one that stays, and the anchors against none, where the writer is often wrong.

SEEDS = 10


@cache
def worths(wrong: float, seeds: int = SEEDS, **settings: Any) -> list[float]:
    """What people give the answers after training, by seed; the share `wrong` of rewrites asks for what people dislike."""
    config = replace(SMALL, **{"steps": 80, "lr": 1.0, **settings})
    return [worth(asyncio.run(search(config, seed, wrong))[2]) for seed in range(seeds)]


@on_seeds(4, SEEDS)
def test_a_rubric_that_stays_loses(seeds: int) -> None:
    assert won_over("samples=0", worths(0.3, seeds), worths(0.3, seeds, samples=0)).low > 0


@pytest.mark.long
@pytest.mark.parametrize("wrong", [0.0, 0.3, 0.5])
def test_the_anchors_against_rubrics_that_nobody_compares(wrong: float) -> None:
    own, free = worths(wrong), worths(wrong, gate=False)
    print(
        f"\nwrong {wrong}: with the gate {fmean(own):.3f}, without {fmean(free):.3f}, fixed {fmean(worths(wrong, samples=0)):.3f}"
    )
    won = won_over("gate=false", own, free)
    assert won.low > 0 or wrong < 0.5
