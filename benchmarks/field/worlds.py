"""The tasks of the whole field: what `whet.optimize` is told of each, by seed."""

from __future__ import annotations

import contextlib
import json
import os
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from benchmarks.field.tasks import TASKS as REAL
from benchmarks.field.tasks import grade, rows_of
from benchmarks.latent_rules.build import START, build, page_requests, prompt_text
from benchmarks.simulated import clause_tasks
from benchmarks.simulated.lessons import world_of
from benchmarks.simulated.rules import first
from tools.embedded.clauses import CLAUSES

from whet.task import load_task

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "python-docs"
SENTENCES = (
    "This text is about|It is about|Topic:|A function for|Documentation about|The Python module for|Python documentation about|"
    "This Python documentation is about|In short:|The subject is|Keyword:|A note on"
)
PARTS = "frame", "body"
RULES, PAGE_RULES = 25, 20
DOCS = {"train": 80, "validation": 40, "test": 120}
Keywords = dict[str, Any]


@dataclass(frozen=True)
class FieldTask:
    """A task. `built(seed, folder)` gives within `with` what `whet.optimize` is told of it; `kind` says what answers:
    `simulated`, `embedded` or `real`; a rollout makes `calls` task calls, and the sealed test has `test` rows, where they are
    not those of a Task. `trains` says whether the methods that train a policy are tried on it."""

    name: str
    what: str
    kind: str
    built: Callable[[int, Path], contextlib.AbstractContextManager[Keywords]]
    test: int = 60
    calls: int = 1
    trains: bool = False


def in_fence(text: str) -> str:
    """A prompt that is one editable region."""
    return f"<!-- whet:begin -->\n{text}\n<!-- whet:end -->"


def lessons(
    name: str, test: int, **more: Any
) -> Callable[[int, Path], contextlib.AbstractContextManager[Keywords]]:
    """A world of lessons (`benchmarks.simulated.lessons`)."""

    def built(seed: int, folder: Path) -> contextlib.AbstractContextManager[Keywords]:
        world = world_of(name, seed)
        model = {"address": f"simulated/lesson-task?world={name}&seed={seed}", "temperature": 0.0}
        keywords = {
            "task": in_fence(world.start),
            "data": {
                "train": world.rows(0, 80),
                "validation": world.rows(1000, 30),
                "test": world.rows(2000, test),
            },
            "reward": "exact_match",
            "lm": model,
            "optimizer_lm": f"simulated/lesson-writer?world={name}&seed={seed}",
            **more,
        }
        return contextlib.nullcontext(keywords)

    return built


def page_rows(seed: int, test: int) -> dict[str, list[dict[str, str]]]:
    """Requests for pages by split."""
    asked = iter(page_requests(seed))
    sizes = {"train": 80, "validation": 24, "test": test}
    return {
        split: [{"id": f"{split}-{n}", "input": next(asked)} for n in range(size)]
        for split, size in sizes.items()
    }


def hidden_rules(seed: int, folder: Path) -> contextlib.AbstractContextManager[Keywords]:
    """Pages that must follow rules which only the critiques reveal."""
    rewards = build(folder / "task", RULES, seed) / "reward.py"
    return contextlib.nullcontext(
        {
            "task": prompt_text(START),
            "data": page_rows(seed, 50),
            "reward": str(rewards),
            "lm": {"address": f"simulated/rules-generator?rules={RULES}&seed={seed}", "max_tokens": 2048},
            "optimizer_lm": f"simulated/rules-optimizer?seed={seed}",
        }
    )


def two_prompts(seed: int, folder: Path) -> contextlib.AbstractContextManager[Keywords]:
    """A program of two prompts, each of which has its own share of hidden rules to learn."""
    read_page = import_module("benchmarks.latent_rules.reward").read_page
    rules = {part: first(PAGE_RULES)[place :: len(PARTS)] for place, part in enumerate(PARTS)}

    async def program(lm: Any, prompts: Any, example: Any) -> str:
        return json.dumps({name: await lm(name) for name in PARTS})

    def reward(example: Mapping[str, Any], output: str) -> dict[str, Any]:
        pages = {name: read_page(text) for name, text in json.loads(output).items()}
        broken = {name: [rule for rule in own if not rule.holds(pages[name])] for name, own in rules.items()}
        critiques = {
            name: " ".join(rule.critiques[-1] for rule in own) for name, own in broken.items() if own
        }
        total = sum(map(len, rules.values()))
        return {"reward": 1 - sum(map(len, broken.values())) / total, "critique": critiques or None}

    return contextlib.nullcontext(
        {
            "task": {name: prompt_text(START) for name in PARTS},
            "program": {"function": program, "calls": 2},
            "data": page_rows(seed, 40),
            "reward": reward,
            "lm": {
                "address": f"simulated/rules-generator?rules={PAGE_RULES}&seed={seed}",
                "max_tokens": 2048,
            },
            "optimizer_lm": f"simulated/rules-optimizer?seed={seed}",
        }
    )


def phrases(seed: int, said: str, tried: float = 0.15) -> str:
    """An optimizer that puts prompts together of given phrases, and reads only which of them a request holds already."""
    return f"scripted/phrases?{urlencode({'seed': seed, 'phrases': said, 'try': tried})}"


def docstrings(model: str) -> Callable[[int, Path], contextlib.AbstractContextManager[Keywords]]:
    """`examples/python-docs`: seven labels, read off a model of this process."""

    def built(seed: int, folder: Path) -> contextlib.AbstractContextManager[Keywords]:
        whole, rng = load_task(EXAMPLE), random.Random(seed)
        task = replace(
            whole,
            train=tuple(rng.sample(whole.train, DOCS["train"])),
            validation=tuple(rng.sample(whole.validation, DOCS["validation"])),
            test=tuple(rng.sample(whole.test, DOCS["test"])),
        )
        return contextlib.nullcontext({"task": task, "lm": model, "optimizer_lm": phrases(seed, SENTENCES)})

    return built


def hidden_form(seed: int, folder: Path) -> contextlib.AbstractContextManager[Keywords]:
    """Lines that must be written in a form of one clause, by a small real model."""
    if not (folder / "task").is_dir():
        clause_tasks.write_task(folder / "task", seed, clauses=1, rows=100)
    said = "|".join(clause_tasks.instruction_for([clause.name]) for clause in CLAUSES)
    return contextlib.nullcontext({"task": folder / "task", "optimizer_lm": phrases(seed, said)})


@contextlib.contextmanager
def other_authors(seed: int, folder: Path) -> Iterator[Keywords]:
    """Hidden rules of an endpoint of other authors, served from the folder that WHET_SHARED_WORLDS names."""
    rulesworld = import_module("benchmarks.rulesworld")
    sys.path.insert(0, str(rulesworld.WORLDS))
    folder.mkdir(parents=True, exist_ok=True)
    reward = folder / "reward.py"
    reward.write_text(
        rulesworld.REWARD.format(worlds=str(rulesworld.WORLDS), rules=RULES, seed=seed), encoding="utf-8"
    )
    world = import_module("rulesworld.world")
    sizes = {"train": (0, 80), "validation": (100, 24), "test": (200, 50)}
    rows = {
        split: [{"id": f"r{n}", "input": text} for n, text in enumerate(world.requests(count, start), start)]
        for split, (start, count) in sizes.items()
    }
    os.environ.setdefault("OPENAI_API_KEY", "field")
    with rulesworld.serving(seed, ()) as url:
        models = {
            role: {"address": f"openai/mock-{role}-{RULES}", "base_url": f"{url}/v1"}
            for role in ("task", "optimizer")
        }
        yield {
            "task": f"{rulesworld.START}\n{in_fence('')}\n",
            "data": rows,
            "reward": str(reward),
            "lm": models["task"],
            "optimizer_lm": models["optimizer"],
        }


def real_rows(name: str, lm: str, base_url: str | None, data: Path, test: int) -> FieldTask:
    """Rows of a published task, with a model at an endpoint that is its own optimizer."""
    task = REAL[name]

    def built(seed: int, folder: Path) -> contextlib.AbstractContextManager[Keywords]:
        model = {"address": lm} | ({"base_url": base_url} if base_url else {})
        return contextlib.nullcontext(
            {
                "task": f"{in_fence('Answer.')}\n{task.frame}: {{{{input}}}}",
                "data": rows_of(data, name, seed, 24, test),
                "reward": grade,
                "lm": model | {"max_tokens": task.tokens},
                "optimizer_lm": model,
            }
        )

    return FieldTask(name, f"real rows: {name}", "real", built, test)


GAME = {
    "environment": {"gymnasium": "Blackjack-v1", "turns": 5},
    "reward": {"return": {"low": -1, "high": 1}},
}
TASKS = {
    task.name: task
    for task in (
        FieldTask("rules", f"{RULES} hidden rules that critiques reveal", "simulated", hidden_rules, 50),
        FieldTask(
            "types", "six labels that the start does not name, by topic", "simulated", lessons("types", 60)
        ),
        FieldTask(
            "formats",
            "amounts, dates and times in a hidden form, exactly right",
            "simulated",
            lessons("formats", 60),
        ),
        FieldTask(
            "trap", "a defective start: a fault that no wrong answer shows", "simulated", lessons("trap", 60)
        ),
        FieldTask(
            "cards", "a game: Blackjack of Gymnasium", "simulated", lessons("cards", 120, **GAME), 120, 5
        ),
        FieldTask("program", f"two prompts, {PAGE_RULES} hidden rules", "simulated", two_prompts, 40, 2),
        FieldTask(
            "labels",
            "seven labels of docstrings, compared by meaning",
            "embedded",
            docstrings("embedded/encoder"),
        ),
        FieldTask("masked", "the same, filled in word by word", "embedded", docstrings("embedded/mlm")),
        FieldTask("form", "lines in a hidden form of one clause", "embedded", hidden_form, 30, trains=True),
        FieldTask("others", f"{RULES} hidden rules of other authors", "simulated", other_authors, 50),
    )
}
