"""MetaSPO: what both loops do, and that scoring under several user prompts finds what holds for others too."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import cache
from statistics import fmean
from typing import Any

import pytest
from tests.methods.test_opro import PLAIN, climb

import whet
from whet.environments.environment import Environment
from whet.environments.several import EnvironmentCase, SeveralEnvironment
from whet.methods.metaspo import Config, metaspo, own_prompts
from whet.prompt import Prompt
from whet.rewards import ExactMatch
from whet.rewards.cases import CaseRewards
from whet.rl import LanguagePolicy
from whet.run import Budget
from whet.search.archive import Candidate
from whet.search.edits import PHRASES
from whet.testing.paired_benchmark import Advantage, paired_difference, play_world
from whet.testing.runs import MeteredRun
from whet.testing.simulated_task import SOURCE, Answers, ConstantReward, review_world
from whet.types import Completion, Example, Request, Usage, content_hash

CONFORMANCE = {"iterations": 2, "proposals": 3, "examples": 10}
"""Settings of a run in the conformance suite."""
SWEEP = {"iterations": 1, "proposals": 2, "finalists": 1}
"""Settings of a run that is killed at every boundary."""

SYSTEM = Prompt.parse("Help.")
GENERAL, SPECIAL = ("alpha", "beta", "gamma", "delta"), ("kappa", "lambda", "sigma", "omega")
TASKS = ("sort", "count", "name")
TEMPLATE = "Task"
POLITE = ("please", "kindly", "now", "next", "here", "today")


def is_drawn(share: float, *key: str) -> bool:
    """True for `share` of all keys."""
    return int(content_hash(list(key))[:8], 16) / 16**8 < share


class TaskModel:
    """Answers a row rightly with a probability that rises by .1 for each general word of the system prompt, and by .2 for each
    special word that goes with the first word of the user prompt: it does with one word in three. `template`: special words all
    go with the first word that the tasks' own user prompts have in common."""

    address, local, simulated, can_score, can_generate = "scripted/frames", False, True, False, True

    def __init__(self, seed: int, template: bool = False) -> None:
        self.seed, self.template = str(seed), template

    def accuracy(self, system: str, frame: str) -> float:
        general = sum(word in system for word in GENERAL)
        first = frame.split()[0]
        fits = self.template and first == TEMPLATE
        special = sum(
            word in system and (fits or is_drawn(1 / 3, self.seed, word, first)) for word in SPECIAL
        )
        return min(0.95, 0.1 + 0.1 * general + 0.2 * special)

    async def generate(self, request: Request) -> list[Completion]:
        system, (frame, _, row) = request.messages[0].content, request.messages[-1].content.partition(" # ")
        right = is_drawn(self.accuracy(system, frame), self.seed, "row", row, frame)
        return [Completion("yes" if right else "no", usage=Usage(8, 1))]

    def count_tokens(self, text: str) -> int:
        return max(1, len(text) // 4)

    async def score(self, *_: Any) -> Any:
        raise NotImplementedError

    async def close(self) -> None:
        return None


def rewrites(seed: int) -> Any:
    """An optimizer that adds a word of either kind to a system prompt (at most four stay), and another word to a user prompt."""

    def write(question: str, sample: int) -> str:
        text = question.rsplit("<INSTRUCTION>\n", 1)[1].split("\n</INSTRUCTION>")[0]
        if "one task" in question:
            word = POLITE[int(content_hash([question, sample, seed])[:6], 16) % len(POLITE)]
            return f"<INSTRUCTION>{word} {text}</INSTRUCTION>"
        stock = [word for word in (*GENERAL, *SPECIAL) if word not in text]
        word = stock[int(content_hash([text, sample, seed])[:6], 16) % len(stock)]
        words = [*[w for w in text.split() if w in (*GENERAL, *SPECIAL)][-3:], word]
        return f"<INSTRUCTION>Help. {' '.join(words)}</INSTRUCTION>"

    return write


def own_wording(name: str, template: bool) -> str:
    """The user prompt of a task, without its slot."""
    return f"{TEMPLATE} {name}" if template else name


def several(seed: int, n: int = 60, template: bool = False) -> tuple[SeveralEnvironment, TaskModel]:
    """Three tasks, whose user prompts begin alike where there is a template."""
    model = TaskModel(seed, template)
    rows = [
        tuple(
            Example(f"{split}/{t}/{i}", {"input": f"{split}{i}"}, "yes", case=t)
            for i in range(n)
            for t in TASKS
        )
        for split in ("train", "validation")
    ]
    cases = {
        name: EnvironmentCase(
            Environment(model, ExactMatch(), *rows),
            "task",
            Prompt.parse(f"{own_wording(name, template)} # {{{{input}}}}"),
        )
        for name in TASKS
    }
    reward = CaseRewards({name: ExactMatch() for name in TASKS})
    return SeveralEnvironment(model, reward, *rows, cases=cases), model


async def search(
    env: Any = None, answer: Any = None, limits: Budget | None = None, start: Prompt = SYSTEM, **settings: Any
) -> tuple[Candidate, Answers, MeteredRun]:
    env, model = env or several(0)[0], Answers(answer or rewrites(0))
    run = MeteredRun({"task": env.model, "optimizer": model}, limits=limits)
    small = {"iterations": 2, "proposals": 4, "examples": 30}
    return await metaspo(run, env, LanguagePolicy(), start, Config(**(small | settings))), model, run


async def test_user_prompts_adapt_task_by_task_and_the_system_prompt_to_all() -> None:
    best, model, _ = await search()
    inner = [q for q in model.questions if "one task" in q]
    outer = [q for q in model.questions if "several different tasks" in q]
    assert len(inner) == 2 * 3 * 3 and len(outer) == 2 * 4
    assert all(any(f"{task} # " in q for task in TASKS) for q in inner)
    assert all(q.count("<ANSWER>") <= 2 * 3 for q in outer)
    assert best.prompt != SYSTEM and best.prompt.source.startswith("Help.")


async def test_every_system_prompt_is_scored_under_all_kept_user_prompts() -> None:
    env, _ = several(0)
    seen: set[str] = set()

    class Watching(TaskModel):
        async def generate(self, request: Request) -> list[Completion]:
            seen.add(request.messages[-1].content.partition(" # ")[0])
            return await super().generate(request)

    watching = Watching(0)
    cases = {n: replace(c, env=replace(c.env, model=watching)) for n, c in env.cases.items()}
    other = replace(env, model=watching, cases=cases)
    await search(other)
    assert len(seen) > len(TASKS), "user prompts beside those of the tasks"
    seen.clear()
    await search(other, adapt=False)
    assert seen == set(TASKS)


async def test_a_task_that_is_one_gets_the_outer_loop_alone() -> None:
    start, env = Prompt.parse(SOURCE), review_world()
    assert own_prompts(env) == {}
    answer = lambda q, s: f"<INSTRUCTION>{' '.join(PHRASES[: 2 + s % 4])}</INSTRUCTION>"  # noqa: E731
    best, model, _ = await search(env, answer, start=start)
    assert not any("one task" in q for q in model.questions) and best.prompt != start


async def test_flat_scores_leave_the_start() -> None:
    env = replace(review_world(), reward=ConstantReward(0.5), labels={})
    best, _, _ = await search(env, lambda q, s: f"<INSTRUCTION>Text {s}.</INSTRUCTION>", start=PLAIN)
    assert best.prompt == PLAIN


async def test_a_reply_of_no_use_proposes_nothing() -> None:
    best, _, run = await search(answer=lambda q, s: "")
    assert best.prompt == SYSTEM and sum(name == "validated" for name, _ in run.logged) == 1


@pytest.mark.parametrize("most", [400, 1500])
async def test_small_budgets_are_kept_and_used(most: int) -> None:
    limits = Budget(task_calls=most, optimizer_calls=60)
    _, _, run = await search(several(0, 20)[0], limits=limits, **vars(Config()))
    assert 0.3 * most < run.spent["task"] <= most and run.spent["optimizer"] <= 60


def test_through_the_public_face(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHET_STATE", str(tmp_path))
    rows = [{"input": f"x{i}", "target": ["yes", "no"][i % 2]} for i in range(60)]
    tasks = [
        whet.Task.of(f"{name} # {{{{input}}}}", data=rows, reward="exact_match", name=name)
        for name in TASKS[:2]
    ]
    result = whet.optimize(
        "Help.",
        tasks=tasks,
        name="both",
        lm=TaskModel(0),
        optimizer_lm=Answers(rewrites(0)),
        method=whet.methods.metaspo.Config(iterations=1, proposals=4),
        budget=whet.Budget(calls=3000),
        root=tmp_path,
        progress=False,
    ).to_dict()
    assert set(result["cases"]) == set(TASKS[:2])
    assert result["best"]["validation"]["mean"] >= result["baseline"]["validation"]["mean"]


# The contest: words that help whatever the user prompt is, and words that help with some user prompts only.

SEEDS, LIMITS = range(12), Budget(task_calls=6000, optimizer_calls=120)
UNSEEN = tuple(
    f"{word} {name}" for name in TASKS for word in ("could you", "let us", "go and", "try to", "do")
)


@cache
def search_at_length(seed: int, template: bool, adapt: bool) -> tuple[float, float]:
    """What the found system prompt is really worth under the tasks' own user prompts, and under ones that the search never
    saw."""
    env, model = several(seed, template=template)
    run = MeteredRun({"task": model, "optimizer": Answers(rewrites(seed))}, seed, limits=LIMITS)
    best = asyncio.run(metaspo(run, env, LanguagePolicy(), SYSTEM, Config(adapt=adapt)))
    assert run.spent["task"] <= 6000
    own = tuple(own_wording(name, template) for name in TASKS)
    first, second = (
        fmean(model.accuracy(best.prompt.source, frame) for frame in frames) for frames in (own, UNSEEN)
    )
    return first, second


def earns(template: bool) -> tuple[Advantage, Advantage]:
    """What adapting user prompts earns under the tasks' own ones, and under unseen ones."""
    on, off = ([search_at_length(seed, template, adapt) for seed in SEEDS] for adapt in (True, False))
    own, unseen = (paired_difference([a[i] for a in on], [b[i] for b in off]) for i in (0, 1))
    print(f"template={template}: under the tasks' own user prompts {own}, under unseen ones {unseen}")
    return own, unseen


@pytest.mark.long
@pytest.mark.parametrize("template", [True, False])
def test_no_benefit_of_adapting_user_prompts_is_shown(template: bool) -> None:
    own, unseen = earns(template)
    assert own.low < 0 and unseen.low < 0, (own, unseen)


def toggles(question: str, sample: int) -> str:
    """An optimizer that adds one of the stock phrases to the text, or takes it out."""
    text = question.rsplit("<INSTRUCTION>\n", 1)[1].split("\n</INSTRUCTION>")[0]
    phrase = PHRASES[int(content_hash([question, sample])[:8], 16) % len(PHRASES)]
    new = text.replace(f" {phrase}", "") if phrase in text else f"{text} {phrase}"
    return f"<INSTRUCTION>{new}</INSTRUCTION>"


@pytest.mark.long
def test_it_beats_random_search() -> None:
    worlds = [replace(climb(seed), optimizer=Answers(toggles)) for seed in range(12)]
    limits = Budget(task_calls=3000, optimizer_calls=200)
    settings = {"iterations": 6, "examples": 40}
    mine = [play_world("metaspo", world, seed, limits, settings) for seed, world in enumerate(worlds)]
    other = [
        play_world("random_search", world, seed, limits, {"edits": 16}) for seed, world in enumerate(worlds)
    ]
    won = paired_difference(mine, other)
    print(f"over random search, the outer loop alone: {won}")
    assert won.low > 0, won
