"""Minstrel: modules switched on and written one by one, critics whose notes lead to a verdict, and named modules written anew."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import pytest
from tests.methods.figures import on_seeds, won_over
from tests.methods.readers import TOPICS, TopicModel, letters
from tests.methods.rule_worlds import HARMFUL, LAST_WORD, SORT, failed_topics, optimized

from whet.environments.environment import Environment
from whet.methods.minstrel import (
    CRITICS,
    DEFAULT,
    FAULT,
    MODULES,
    NOTES,
    WRITE,
    Config,
    minstrel,
    named_faults,
    selected_modules,
)
from whet.models.scripted import Scripted, choose_by_luck, request_text
from whet.prompt import Prompt
from whet.rewards.text import ExactMatch
from whet.rl import LanguagePolicy
from whet.run import Budget
from whet.search.archive import Candidate
from whet.search.edits import PHRASES
from whet.testing.paired_benchmark import KnownWorld, play_world
from whet.testing.runs import MeteredRun
from whet.testing.simulated_task import SOURCE, Answers, review_world
from whet.types import Request

CONFORMANCE = {"rounds": 2, "examples": 12}
"""Settings of a run in the conformance suite."""
SWEEP = {"rounds": 1, "examples": 2, "finalists": 1}
"""Settings of a run that is killed at every boundary."""

START = Prompt.parse(SOURCE)


def studio(
    modules: str = '["goal", "style"]', faults: str = '{"style": "too dry"}', text: str = "Weigh the evidence"
) -> Callable[[str, int], str]:
    def write(question: str, sample: int) -> str:
        if "<MODULES>" in question:
            return f"<MODULES>{modules}</MODULES>"
        if "<FAULTS>" in question:
            return f"<FAULTS>{faults}</FAULTS>"
        if "<NOTE>" in question:
            return f"<NOTE>Critic {next(i for i, view in enumerate(CRITICS) if view in question)} says so.</NOTE>"
        name = question.partition(WRITE)[2].partition(":")[0].strip()
        return f"<MODULE>{text} of {name} {sample}.</MODULE>"

    return write


async def search(
    write: Callable[[str, int], Any], env: Any = None, limits: Budget | None = None, **settings: Any
) -> tuple[Candidate, Answers, MeteredRun]:
    env, model = env or review_world(), Answers(write)
    run = MeteredRun({"task": env.model, "optimizer": model}, limits=limits)
    config = Config(**{"rounds": 1, "examples": 30, **settings})
    return await minstrel(run, env, LanguagePolicy(), START, config), model, run


def texts(run: MeteredRun) -> list[str]:
    """The texts that were scored, in order."""
    return [v["messages"][0][1] for name, v in run.logged if name == "candidate" and v["operator"] != "start"]  # type: ignore[index, call-overload]


async def test_modules_stand_in_the_order_of_the_list_under_their_headings() -> None:
    _, _, run = await search(studio('["style", "goal"]'), rounds=0)
    modules = "## Goal\nWeigh the evidence of goal 0.\n\n## Style\nWeigh the evidence of style 0."
    assert f"guess freely.\n\n{modules}\n" in texts(run)[0]


async def test_a_selection_that_cannot_be_read_falls_back_on_six_modules() -> None:
    _, _, run = await search(studio("I would take most of them"), rounds=0)
    assert re.findall(r"(?m)^## (.*)$", texts(run)[0]) == [
        name.capitalize() for name in MODULES if name in DEFAULT
    ]


async def test_only_the_modules_that_the_verdict_names_are_written_anew() -> None:
    _, model, run = await search(studio())
    before, after = texts(run)
    assert after == before.replace("style 0.", "style 1.") != before
    written = [q for q in model.questions if FAULT in q]
    assert len(written) == 1 and "too dry" in written[0] and f"{WRITE} style:" in written[0]
    _, model, _ = await search(
        studio(faults='{"nonsense": "a", "workflow": "b", "goal": "c", "style": "d"}'), named=2
    )
    assert len([q for q in model.questions if FAULT in q]) == 2


async def test_each_critic_writes_from_its_own_point_of_view_and_the_verdict_reads_all() -> None:
    _, model, _ = await search(studio(), critics=3)
    (verdict,) = [q for q in model.questions if "<FAULTS>" in q]
    notes = verdict.partition(NOTES)[2]
    assert all(f"Critic {i} says so." in notes for i in range(3))
    _, model, _ = await search(studio(), critics=1)
    assert sum("<NOTE>" in q for q in model.questions) == 1


async def test_modules_with_which_the_score_falls_are_not_kept() -> None:
    best, model, _ = await search(studio(text="Guess, be quick, guess"), rounds=2)
    assert best.prompt == START and model.questions


async def test_a_module_that_the_prompt_refuses_is_left_out() -> None:
    def write(question: str, sample: int) -> str:
        refused = f"{WRITE} goal:" in question
        return "<MODULE>Use {{other}}.</MODULE>" if refused else studio()(question, sample)

    _, _, run = await search(write, rounds=0)
    assert re.findall(r"(?m)^## (.*)$", texts(run)[0]) == ["Style"]


@pytest.mark.parametrize(
    ("reply", "names"),
    [
        ('["Goal", "style", "nonsense"]', ["goal", "style"]),
        ('{"goal": true, "style": false, "workflow": true}', ["goal", "workflow"]),
        ('{"modules": ["goal"]}', []),
        ("none", []),
        ("[1, 2]", []),
    ],
)
def test_selections_are_read(reply: str, names: list[str]) -> None:
    assert selected_modules(reply) == names


def test_faults_are_read() -> None:
    assert named_faults('So: {"Goal": "vague"}') == {"goal": "vague"}
    assert named_faults("nothing") == {}


@pytest.mark.parametrize("most", [150, 300])
async def test_small_budgets_buy_two_versions(most: int) -> None:
    env, limits = review_world(train=40, validation=20), Budget(task_calls=most, optimizer_calls=15)
    _, _, run = await search(studio(json.dumps(DEFAULT)), env, limits, **vars(Config()))
    assert len(texts(run)) >= 2
    assert 0.3 * most < run.spent["task"] <= most and run.spent["optimizer"] <= 15


def test_through_the_public_face(tmp_path: Path) -> None:
    assert f"## Goal\n{LAST_WORD}" in optimized(tmp_path, "minstrel", lambda q: studio(text=LAST_WORD)(q, 0))


# The contest: each topic is the business of one module; a module that is told of another one's topic takes in harm.


class ModuleModel(TopicModel):
    """A TopicModel in which half of the topics fail at first, and harmful phrases cost 5 % on all inputs."""

    FAILING = 6

    def right(self, topic: int, prompt: str) -> float:
        return max(0.0, super().right(topic, prompt) - 0.05 * sum(phrase in prompt for phrase in HARMFUL))


NAMES = ("goal", "constraints", "workflow")


class Author(Scripted):
    """Critics name the topics that fail, the verdict the module whose business the first of them is."""

    OPTIONS: ClassVar[Mapping[str, str]] = {}

    def answer(self, request: Request, sample: int) -> str:
        question = request_text(request)
        if "<MODULES>" in question:
            return f"<MODULES>{json.dumps(NAMES)}</MODULES>"
        topics = [t for t in failed_topics(question) if PHRASES[t] not in question]
        if "<NOTE>" in question:
            return f"<NOTE>Nothing is said about topic-{topics[0] if topics else 0}.</NOTE>"
        if "<FAULTS>" in question:
            named = [int(t) for t in re.findall(r"topic-(\d+)\.", question.partition(NOTES)[2])] or [0]
            return f"<FAULTS>{json.dumps({NAMES[named[0] % 3]: f'add topic-{named[0]}'})}</FAULTS>"
        name = question.partition(WRITE)[2].partition(":")[0].strip()
        old = re.findall(rf"## {name}\n(.*)", question)
        told = re.findall(r"add topic-(\d+)", question)
        if not told:
            return f"<MODULE>This is the {name}.</MODULE>"
        fits = NAMES[int(told[0]) % 3] == name
        phrase = PHRASES[int(told[0])] if fits else choose_by_luck(HARMFUL, self.seed, question)
        return f"<MODULE>{' '.join([*old, phrase])}</MODULE>"


@cache
def reached(seeds: int, method: str = "minstrel", **settings: Any) -> list[float]:
    """What a method finds in the world of each seed."""
    worlds = []
    for seed in range(seeds):
        model = ModuleModel("modules", {"seed": str(seed)})
        env = Environment(model, ExactMatch(), letters(96), letters(48, 960))
        accuracy: Callable[[Prompt], float] = lambda p, model=model: model.accuracy(p.source)  # type: ignore[misc]  # noqa: E731
        worlds.append(KnownWorld(env, SORT, accuracy, Author("author", {"seed": str(seed)})))
    limits = Budget(task_calls=1000)
    return [play_world(method, world, seed, limits, settings) for seed, world in enumerate(worlds)]


@on_seeds(4, 8)
def test_modules_that_critics_name_win_over_any_modules(seeds: int) -> None:
    assert TOPICS % 3 == 0
    many = {"rounds": 12}
    own = reached(seeds, **many)
    assert won_over("any modules written anew", own, reached(seeds, targets="random", **many)).low > 0
    assert won_over("random_search", own, reached(seeds, "random_search", edits=16)).low > 0
