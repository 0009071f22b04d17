"""Task folders with a hidden combination of clauses: what they hold, and that the right prompt is worth more."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.simulated.clause_tasks import (
    combination,
    instruction_for,
    lines,
    write_hint_task,
    write_task,
)
from tools.embedded.clauses import BY_NAME, KINDS, transform

from whet.environments.environment import Environment, Generation
from whet.errors import UsageError
from whet.run import MemoryRun
from whet.task import load_task
from whet.types import Completion, Example


def test_a_combination_has_one_clause_an_attribute_and_follows_the_seed() -> None:
    for seed in range(20):
        names = combination(seed, 5)
        assert len({BY_NAME[name].attribute for name in names}) == 5
        assert names == combination(seed, 5)
    assert len({combination(seed, 4) for seed in range(20)}) > 15
    assert set(combination(3, 2, ("capitals", "titled", "hyphens"))) <= {"capitals", "titled", "hyphens"}
    with pytest.raises(UsageError, match="there are 1 attributes"):
        combination(0, 2, ("capitals", "titled"))


def test_lines_are_different_and_follow_the_seed() -> None:
    found = lines(1, 50)
    assert len(set(found)) == 50
    assert all(len(line.split()) == 3 for line in found)
    assert found == lines(1, 50) != lines(2, 50)


def test_the_task_hides_its_form_and_gives_partial_credit(tmp_path: Path) -> None:
    names = write_task(tmp_path / "task", 5, rows=40)
    task = load_task(tmp_path / "task")
    rows = (*task.train, *task.validation, *task.test)
    assert (len(rows), len(task.train), task.models["task"].address) == (40, 16, "embedded/tiny")
    assert all(row.target == transform(row.values["input"], names) for row in rows)
    assert not any(wording in task.prompt.source for name in names for wording in BY_NAME[name].wordings)
    assert task.prompt.fenced


async def test_the_reward_counts_characters_in_common(tmp_path: Path) -> None:
    write_task(tmp_path / "task", 5, rows=20)
    task, run = load_task(tmp_path / "task"), MemoryRun({})
    row = Example("x", {"input": "dog"}, "abcd", {"input": "dog", "target": "abcd"})
    right, near, wrong = [
        (await task.reward.grade(run, row, Completion(text))).value for text in ("abcd ", "abxx", "zz")
    ]
    assert (right, near, wrong) == (1.0, 0.25, 0.0)


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    with pytest.raises(UsageError, match="not empty"):
        write_task(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_the_form_of_a_hint_task_depends_on_the_first_word(tmp_path: Path) -> None:
    forms = write_hint_task(tmp_path / "task", 2, rows=60)
    assert len(set(forms.values())) == len(forms) == 3
    task = load_task(tmp_path / "task")
    seen = set()
    for row in (*task.train, *task.validation, *task.test):
        line = row.values["input"]
        kind = next(kind for kind, words in KINDS.items() if line.split()[0] in words.split())
        assert row.target == transform(line, forms[kind])
        seen.add(kind)
    assert seen == set(KINDS)


@pytest.mark.long
async def test_the_right_instruction_is_worth_more_than_the_vague_one(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="embedded/tiny needs transformers: pip install 'whet[hf]'")
    from whet.models.addresses import resolve

    model = resolve("embedded/tiny")
    for seed in range(3):
        names = write_task(tmp_path / str(seed), seed, rows=30)
        task = load_task(tmp_path / str(seed))
        env = Environment(model, task.reward, task.train, (), generation=Generation(0.0, 64))
        half, right = instruction_for(names[:2]), instruction_for(names)
        prompts = [task.prompt, task.prompt.edit(half), task.prompt.edit(right)]
        scores = await env.score(MemoryRun({"task": model}), prompts, task.train)
        assert scores[2].mean > scores[0].mean + 0.2
        assert scores[2].mean > scores[1].mean
        assert scores[2].parts["similar"] > scores[0].parts["similar"]
