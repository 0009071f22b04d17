"""Prompt learning in a small world of its own: letters that must follow house rules which only complaints tell."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import pytest

from whet.env import Environment
from whet.methods.prompt_learning import Config, prompt_learning
from whet.policies import LanguagePolicy
from whet.prompt import Prompt
from whet.prompt.events import Event, Rewrite, from_json
from whet.prompt.instructions import fold
from whet.prompt.ledger import render
from whet.run import Limits, MemoryRun, Run
from whet.testing.methods import MethodConformance
from whet.types import Completion, Example, Request, Reward

START = Prompt.parse("You write letters.\n<!-- whet:begin -->\nBe {brief}.\n<!-- whet:end -->\nSign them.")
UNITS = ("words", "commas", "verbs")
PARTS = (
    "greeting",
    "closing",
    "date line",
    "address block",
    "subject",
    "postscript",
    "reference",
    "enclosure note",
)


@dataclass(frozen=True)
class HouseRule:
    """Something that a letter must have: `needs` are the words that any clear wording of it contains."""

    key: str
    needs: tuple[str, ...]
    clear: tuple[str, ...]
    complaints: tuple[str, ...]
    luck: float


def house_rules(n: int) -> tuple[HouseRule, ...]:
    """`n` rules about eight parts of a letter."""
    found = []
    for k in range(n):
        part, number, unit = PARTS[k % len(PARTS)], 11 + k, UNITS[k // len(PARTS) // 2]
        if k // len(PARTS) % 2 == 0:
            found.append(
                HouseRule(
                    f"r{k}",
                    (part, str(number), unit),
                    (
                        f"Write the {part} in at most {number} {unit}.",
                        f"At most {number} {unit} go into the {part}.",
                    ),
                    (
                        f"The {part} takes {{seen}} {unit} where {number} {unit} would be the limit.",
                        f"A {part} with more than {number} {unit} tires the reader.",
                        f"The {part} has {{seen}} {unit}; it should have no more than {number}.",
                    ),
                    0.2 + 0.1 * (k % 6),
                )
            )
        else:
            found.append(
                HouseRule(
                    f"r{k}",
                    (part, f"mark-{number}"),
                    (f'Put "mark-{number}" into the {part}.', f'The {part} must carry "mark-{number}".'),
                    (f'The {part} lacks "mark-{number}".', f'I miss "mark-{number}" in the {part}.',
                     f'"mark-{number}" should be in the {part}.'),
                    0.3,
                )
            )  # fmt: skip
    return tuple(found)


def chance(*parts: object) -> float:
    return random.Random("|".join(map(str, parts))).random()


@dataclass
class Writer:
    """Writes letters: a stated rule is obeyed nearly always, another one by luck."""

    rules: tuple[HouseRule, ...]
    address: str = "test/writer"
    simulated: bool = True
    local: bool = True
    calls: int = 0
    prompts: list[str] = field(default_factory=list)

    async def generate(self, request: Request) -> list[Completion]:
        self.calls += 1
        prompt, asked = request.messages[0].content, request.messages[-1].content
        self.prompts.append(prompt)
        lines = [
            line for line in prompt.lower().splitlines() if not re.search("tires|lacks|i miss|takes", line)
        ]
        kept = [
            r.key for r in self.rules
            if chance(asked, r.key, prompt) < (0.997 if any(all(w in x for w in r.needs) for x in lines) else r.luck)
        ]  # fmt: skip
        return [Completion(json.dumps(kept))]


@dataclass
class Grader:
    """The share of rules that a letter follows, with a complaint about each of the others."""

    rules: tuple[HouseRule, ...]
    name: str = "house"
    low: float = 0.0
    high: float = 1.0
    needs: frozenset[str] = frozenset()

    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        kept = json.loads(completion.text)
        broken = [r for r in self.rules if r.key not in kept]
        luck = random.Random(example.id + completion.text)
        said = [luck.choice(r.complaints).replace("{seen}", str(luck.randint(100, 999))) for r in broken]
        return Reward(1 - len(broken) / len(self.rules), {}, "\n".join(f"- {s}" for s in said) or None)


@dataclass
class Editor:
    """Turns complaints into instructions; covers ten a call, drops one in six and garbles one in eight."""

    rules: tuple[HouseRule, ...]
    calls: int = 0

    async def generate(self, request: Request) -> list[Completion]:
        self.calls += 1
        operations = []
        for number, text in re.findall(r"^(\d+)\. (.*)$", request.messages[0].content, re.MULTILINE):
            rule = next((r for r in self.rules if all(w in text.lower() for w in r.needs[:2])), None)
            luck = chance(text, self.calls)
            if rule is not None and luck > 1 / 6:
                clear = rule.clear[int(luck * 100) % 2]
                if luck > 7 / 8:
                    clear = re.sub(r"\d+", lambda found: str(int(found.group()) + 3), clear)
                operations.append({"point": int(number), "op": "add", "text": clear})
        return [Completion(json.dumps({"operations": operations[:10]}))]


def world(n: int) -> Environment:
    rules = house_rules(n)
    examples = tuple(Example(f"e{i}", {"input": f"Letter {i}"}, text=f"Letter {i}") for i in range(90))
    return Environment(Writer(rules), Grader(rules), examples[:60], examples[60:])


async def learn(env: Environment, limits: Limits, seed: int = 0, **settings: Any) -> tuple[Prompt, MemoryRun]:
    run = MemoryRun({"task": env.model, "optimizer": Editor(env.model.rules)}, seed)  # type: ignore[attr-defined]
    run.limits = limits
    policy = LanguagePolicy() if settings.pop("policy", True) else None
    found = await prompt_learning(run, env, policy, START, Config(**settings))
    return found.prompt, run


async def share(env: Environment, prompt: Prompt) -> float:
    run = MemoryRun({"task": env.model})
    fresh = [Example(f"t{i}", {"input": f"Test {i}"}, text=f"Test {i}") for i in range(40)]
    rollouts = await env.evaluate(run, prompt, fresh)
    return sum(r.reward for r in rollouts) / len(rollouts)


@pytest.mark.parametrize(("rules", "reached"), [(8, 0.97), (40, 0.95)])
async def test_learns_the_hidden_rules_within_its_limits(rules: int, reached: float) -> None:
    env = world(rules)
    prompt, run = await learn(env, Limits(task_calls=100, optimizer_calls=12))
    assert env.model.calls <= 100 and run.models["optimizer"].calls <= 12  # type: ignore[attr-defined]
    before, after = await share(env, START), await share(env, prompt)
    assert before < 0.6
    assert after >= reached


async def test_the_distiller_alone_learns_them_too() -> None:
    env = world(16)
    for settings in ({"policy": False}, {"optimizer": False}):
        prompt, run = await learn(env, Limits(task_calls=100), **settings)
        assert run.models["optimizer"].calls == 0
        assert await share(env, prompt) >= 0.95


@pytest.mark.parametrize("search", ["loop", "mcts", "pareto"])
async def test_every_search_spends_no_more_and_learns(search: str) -> None:
    env = world(8)
    prompt, run = await learn(env, Limits(task_calls=120, optimizer_calls=8), search=search, rollouts=16)
    assert env.model.calls <= 120 and run.models["optimizer"].calls <= 8  # type: ignore[attr-defined]
    assert await share(env, prompt) >= 0.9


async def test_only_the_fence_changes_and_the_ledger_tells_why() -> None:
    prompt, run = await learn(world(8), Limits(task_calls=100, optimizer_calls=12))
    assert prompt.source.startswith("You write letters.\n<!-- whet:begin -->\nBe {brief}.\n- ")
    assert prompt.source.endswith("\n<!-- whet:end -->\nSign them.")
    stored: Any = dict(run.logged)["ledger"]
    events: list[Event] = [from_json(value) for value in stored]
    ledger = fold(events)
    assert render(ledger) == prompt.text()
    learned = [i for i in ledger.active if i.author in ("optimizer", "distiller")]
    assert len(learned) >= 8
    for instruction in learned:
        assert (
            instruction.critiques
            and instruction.evidence
            and instruction.sources > 0
            and instruction.tokens > 0
        )
    measured = [i.effect for i in learned if i.effect is not None]
    assert len(measured) >= 6
    assert all(e.low <= e.difference <= e.high and e.difference > 0 for e in measured)


async def test_what_is_still_violated_is_said_differently() -> None:
    """An optimizer whose texts never help: the demand is asked for again, and then distilled."""
    env = world(1)

    class Vague(Editor):
        async def generate(self, request: Request) -> list[Completion]:
            self.calls += 1
            text = f"Mind the greeting: at most 11 letters, draft {'abcdefgh'[self.calls]}."
            return [Completion(json.dumps({"operations": [{"point": 1, "op": "add", "text": text}]}))]

    optimizer = Vague(env.model.rules)  # type: ignore[attr-defined]
    run = MemoryRun({"task": env.model, "optimizer": optimizer})
    best = await prompt_learning(run, env, LanguagePolicy(), START, Config(rollouts=20))
    events = [from_json(value) for value in dict(run.logged)["ledger"]]  # type: ignore[union-attr, arg-type]
    rewrites = [e for e in events if isinstance(e, Rewrite) and e.reason == "still violated"]
    assert rewrites and len({e.text for e in rewrites}) == len(rewrites)
    assert await share(env, best.prompt) >= 0.98


async def test_the_budget_of_tokens_keeps_what_earns_most() -> None:
    env = world(16)
    prompt, run = await learn(env, Limits(task_calls=100, optimizer_calls=12), tokens=100)
    ledger = fold([from_json(value) for value in dict(run.logged)["ledger"]])  # type: ignore[union-attr, arg-type]
    assert ledger.tokens <= 100
    assert any(name == "over_budget" for name, _ in run.logged)
    assert await share(env, START) + 0.1 < await share(env, prompt) < 1


async def test_complaints_of_people_in_the_data_count() -> None:
    env = world(1)
    row = {"input": "x", "output": "Dear", "comment": "Please write the closing in green ink."}
    env = replace(env, train=(replace(env.train[0], row=row), *env.train[1:]))
    prompt, _ = await learn(env, Limits(task_calls=60, optimizer_calls=5))
    assert "green ink" in prompt.text()


async def test_a_reward_without_critiques_is_explained_by_the_optimizer() -> None:
    env = world(4)

    class Silent(Grader):
        async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
            return replace(await super().grade(run, example, completion), critique=None)

    class Explains(Editor):
        async def generate(self, request: Request) -> list[Completion]:
            if "wrong answers" not in request.messages[0].content:
                return await super().generate(request)
            self.calls += 1
            said = [r.complaints[-1].replace("{seen}", "400") for r in self.rules]
            return [Completion("\n".join(f"{n}. {text}" for n, text in enumerate(said, 1)))]

    env = replace(env, reward=Silent(house_rules(4)))
    run = MemoryRun({"task": env.model, "optimizer": Explains(house_rules(4))})
    run.limits = Limits(task_calls=100, optimizer_calls=12)
    best = await prompt_learning(run, env, LanguagePolicy(), START, Config())
    assert await share(env, best.prompt) >= 0.95


async def test_a_search_with_nothing_to_learn_ends_early() -> None:
    env = world(1)
    perfect = START.edit("Write the greeting in at most 11 words.")
    run = MemoryRun({"task": env.model, "optimizer": Editor(house_rules(1))})
    best = await prompt_learning(run, env, LanguagePolicy(), perfect, Config(rollouts=10, loops=9))
    assert best.prompt.text().startswith("Write the greeting in at most 11 words.")
    assert run.models["optimizer"].calls <= 2
    assert env.model.calls < 9 * 10 + 3 * 30  # type: ignore[attr-defined]


class TestLoop(MethodConformance):
    method = "prompt_learning"
    settings: Mapping[str, Any] = MappingProxyType({"loops": 3, "rollouts": 12})


class TestTree(MethodConformance):
    method = "prompt_learning"
    settings: Mapping[str, Any] = MappingProxyType({"loops": 3, "rollouts": 12, "search": "mcts"})


class TestFront(MethodConformance):
    method = "prompt_learning"
    settings: Mapping[str, Any] = MappingProxyType({"loops": 3, "rollouts": 12, "search": "pareto"})
