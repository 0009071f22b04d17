"""Bookkeeping of what was scored: ties go to the older text, before a resume and after it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="writers need torch: pip install 'whet[train]'")
pytest.importorskip("peft", reason="writers need peft: pip install 'whet[train]'")

from tests.rl.tiny import words_world
from tests.rl.tiny_llama import save
from tests.rl.tinylm import open_model, start, word_task

from whet.rl.policy_model import LoraSettings, PolicyModel
from whet.rl.prompt_editor import EditorSettings, PromptEditor
from whet.rl.score_book import MOST_NOTED, Leaders, ScoreBook
from whet.rl.soft_prompt import SoftPrompt, SoftPromptConfig
from whet.run import MemoryRun, Run
from whet.search.archive import Archive
from whet.search.plan import SearchPlan
from whet_client.prompt.length import LengthLimit


@dataclass
class NoteBook:
    """A learner that learns nothing."""

    notes: dict[str, object] = field(default_factory=dict)


OLDER, NEWER, WORSE = "sort what is good", "a review of shops", "night"
MAKERS = ("writer", "soft prompt", "editor")


def learner(kind: str, folder: Path, seed: int) -> Any:
    """Whatever trains weights and keeps notes with them."""
    if kind == "writer":
        return PolicyModel.open(f"hf/{folder / 'writer'}", LoraSettings(rank=2), seed=seed)
    if kind == "soft prompt":
        config = SoftPromptConfig(tokens=2, hidden=0, lr=0.01)
        return SoftPrompt(open_model("llama", folder / "llama"), "prefix", config, seed)
    return PromptEditor(6, EditorSettings(edits=2, lr=0.01), seed)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("bases")
    save(made / "writer")
    return made


@pytest.mark.parametrize("kind", MAKERS)
def test_a_resume_breaks_ties_as_the_uninterrupted_run(folder: Path, kind: str) -> None:
    """Of two equal texts of one length the older one leads, although its name comes later in the alphabet."""
    env = word_task(open_model("llama", folder / "llama"))
    straight, resumed = (learner(kind, folder, seed) for seed in (1, 2))
    books = [ScoreBook(one, start(), (), env.train) for one in (straight, resumed)]
    straight.notes["scores"] = {WORSE: [0.1, {}], OLDER: [0.5, {}], NEWER: [0.5, {}]}
    straight.notes["validated"] = {OLDER: 0.5, NEWER: 0.5}
    resumed.load(straight.save())
    assert [book.best(2) for book in books] == [[OLDER, NEWER]] * 2
    assert list(resumed.notes["validated"]) == [OLDER, NEWER]
    assert resumed.save() == straight.save()


def test_a_refused_text_earns_no_more_than_the_worst_where_parts_of_a_score_are_summed() -> None:
    """Accuracy plus log-likelihood is below 0 for a bad prompt: the lowest reward of the task, 0, would be the best of all."""
    world = words_world()
    prompt = replace(world.start, limit=LengthLimit(1, lambda text: len(text.split())))
    short, long = "waaa", "waaa waab waac waad"
    book = ScoreBook(NoteBook(), prompt, ("accuracy", "likelihood"), world.env.train)
    run = MemoryRun({"task": world.model})
    rewards = asyncio.run(book.grade(run, world.env, [short, long]))
    assert rewards[0] == rewards[1] == book.notes["best"] < 0
    plain = ScoreBook(NoteBook(), prompt, (), world.env.train)
    assert asyncio.run(plain.grade(run, world.env, [long])) == [0.0]


class CountingBook(ScoreBook):
    """Counts how often the leader would be validated."""

    times = 0

    async def validate_leader(self, run: Run, plan: SearchPlan, archive: Archive, key: str) -> None:
        self.times += 1


@pytest.mark.parametrize(("rounds", "times"), [(15, 8), (300, 8), (5, 5)])
async def test_the_leader_is_validated_eight_times_whatever_the_number_of_rounds(
    rounds: int, times: int
) -> None:
    world = words_world()
    book = CountingBook(NoteBook(), world.start, (), world.env.train)
    book.notes["scores"] = {"waaa": [0.5, {}]}
    plan = SearchPlan(world.env, None, None, 9, 1, rounds=rounds)
    for step in range(rounds):
        await book.check(MemoryRun(), plan, Archive(), step)
    assert book.times == times


def test_the_best_rewarded_are_those_that_earned_much_more_than_once() -> None:
    """Six rewards with the mean 0.5: twice 0.9 counts (1.8 + 0.5) / 3 = 0.767, once 1 counts (1 + 0.5) / 2 = 0.75."""
    book = Leaders(NoteBook(), start(), "rewrite")
    often, once, bad = (start().edit(text) for text in ("often", "once", "bad"))
    book.note_rewards([often, once, None], [0.9, 1.0, 0.0])
    book.note_rewards([often, bad, None], [0.9, 0.2, 0.0])
    assert book.best_rewarded(2) == [often, once]
    assert book.best_rewarded(9) == [often, once, bad], "what cannot be used is not among them"


def test_rewrites_that_are_no_longer_noted_count_in_the_mean() -> None:
    book = Leaders(NoteBook(), start(), "rewrite")
    worse = [start().edit(f"worse {n}") for n in range(MOST_NOTED)]
    book.note_rewards([start().edit("good"), *worse], [1.0] + [0.5] * MOST_NOTED)
    notes: Any = book.notes["earned"]
    assert len(notes) == MOST_NOTED + 1 and notes[""] == [0.5, 1], "one of the worse is among the others"
    assert [one.region_text() for one in book.best_rewarded(1)] == ["good"]
