"""Prompt learning in a small world of its own: letters that must follow house rules which only complaints tell."""

from __future__ import annotations

import itertools
import json
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import pytest

from whet.environments.environment import Environment
from whet.errors import UsageError
from whet.methods.prompt_learning import Config, check, prompt_learning
from whet.prompt import Prompt
from whet.prompt.events import Rewrite, from_json
from whet.prompt.instructions import Ledger, fold_events
from whet.prompt.ledger import render_instructions
from whet.rl import LanguagePolicy
from whet.run import Budget, MemoryRun, Run
from whet.testing.methods import MethodConformance
from whet.types import Completion, Example, Request, Reward

SWEEP = {"rounds": 2, "rollouts": 3}
"""Settings of a run that is killed at every boundary."""

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
    """Reads complaints; covers ten requirements a call, drops one in ten and garbles one in twelve. `numbers` false: it cannot
    number its critiques. `shuffled`: it reads the complaints as if they stood in another order."""

    rules: tuple[HouseRule, ...]
    numbers: bool = True
    shuffled: bool = False
    calls: int = 0

    def meant(self, text: str) -> HouseRule | None:
        """The rule that a text is about."""
        return next((r for r in self.rules if all(w in text.lower() for w in r.needs[:2])), None)

    async def generate(self, request: Request) -> list[Completion]:
        self.calls += 1
        text = request.messages[0].content
        known = {key: line for key, line in re.findall(r"(?m)^\[([a-z]\d+)\] (.*)$", text)}
        if '{"duplicates"' in text:
            groups: dict[str, list[str]] = {}
            for key, line in known.items():
                if (rule := self.meant(line)) is not None:
                    groups.setdefault(rule.key, []).append(key)
            doubled = [{"ids": ids, "best": ids[0]} for ids in groups.values() if len(ids) > 1]
            return [Completion(json.dumps({"duplicates": doubled, "contradictions": []}))]
        if '{"rewrites"' in text:
            texts = {key: rule.clear[1] for key, line in known.items() if (rule := self.meant(line))}
            return [
                Completion(
                    json.dumps({"rewrites": [{"instruction_id": k, "text": t} for k, t in texts.items()]})
                )
            ]
        lines = re.findall(r"(?m)^(\d+)\. (.*)$", text)
        if self.shuffled:
            places = [number for number, _ in lines]
            random.Random(self.calls).shuffle(places)
            lines = [(place, line) for place, (_, line) in zip(places, lines, strict=True)]
        demands: dict[str, list[int]] = {}
        for number, line in lines:
            if (rule := self.meant(line)) is not None:
                demands.setdefault(rule.key, []).append(int(number))
        entries = []
        for rule in self.rules:
            luck = chance(rule.key, self.calls)
            if rule.key not in demands or luck < 0.1 or len(entries) == 10:
                continue
            old = next((key for key, line in known.items() if self.meant(line) is rule), None)
            clear = rule.clear[int(luck * 100) % 2]
            if luck > 11 / 12:
                clear = f"Mind the {rule.needs[0]} a little more."
            entries.append(
                {
                    "critiques": demands[rule.key] if self.numbers else [],
                    "violates": old,
                    "instruction": None if old else clear,
                    "contradicts": None,
                }
            )
        return [
            Completion(
                json.dumps({"requirements": entries, "no_demand": [], "vague": [], "to_the_reader": []})
            )
        ]


def world(n: int) -> Environment:
    rules = house_rules(n)
    examples = tuple(Example(f"e{i}", {"input": f"Letter {i}"}, text=f"Letter {i}") for i in range(90))
    return Environment(Writer(rules), Grader(rules), examples[:60], examples[60:])


async def learn(
    env: Environment, limits: Budget, seed: int = 0, editor: Editor | None = None, **settings: Any
) -> tuple[Prompt, MemoryRun]:
    optimizer = editor or Editor(env.model.rules)  # type: ignore[attr-defined]
    run = MemoryRun({"task": env.model, "optimizer": optimizer}, seed)
    run.limits = limits
    found = await prompt_learning(run, env, LanguagePolicy(), START, Config(**settings))
    return found.prompt, run


def ledger_of(run: MemoryRun) -> Ledger:
    stored: Any = dict(run.logged)["ledger"]
    return fold_events([from_json(value) for value in stored])


async def share(env: Environment, prompt: Prompt) -> float:
    run = MemoryRun({"task": env.model})
    fresh = [Example(f"t{i}", {"input": f"Test {i}"}, text=f"Test {i}") for i in range(40)]
    rollouts = await env.evaluate(run, prompt, fresh)
    return sum(r.reward for r in rollouts) / len(rollouts)


@pytest.mark.parametrize(("rules", "reached"), [(8, 0.97), (40, 0.91)])
async def test_learns_the_hidden_rules_within_its_limits(rules: int, reached: float) -> None:
    after = []
    for seed in range(3):
        env = world(rules)
        prompt, run = await learn(env, Budget(task_calls=100, optimizer_calls=12), seed)
        assert env.model.calls <= 100 and run.models["optimizer"].calls <= 12  # type: ignore[attr-defined]
        assert await share(env, START) < 0.6
        after.append(await share(env, prompt))
    assert sum(after) / len(after) >= reached


async def test_a_model_that_cannot_number_learns_them_too() -> None:
    env = world(16)
    prompt, run = await learn(
        env, Budget(task_calls=150, optimizer_calls=15), editor=Editor(env.model.rules, numbers=False)
    )  # type: ignore[attr-defined]
    assert await share(env, prompt) >= 0.95
    assert all(not i.critiques for i in ledger_of(run).active if i.author == "optimizer")


async def test_numbers_that_belong_to_other_critiques_cost_evidence() -> None:
    """The ablation: with its numbers shuffled the reader's word on who violates what is worth nothing."""
    env = world(16)
    limits = Budget(task_calls=200, optimizer_calls=20)
    honest, right = await learn(env, limits)
    _, wrong = await learn(world(16), limits, editor=Editor(env.model.rules, shuffled=True))  # type: ignore[attr-defined]

    def quoted(run: MemoryRun) -> float:
        own = [i for i in ledger_of(run).active if i.author == "optimizer" and i.critiques]
        editor: Editor = run.models["optimizer"]
        rules = [(editor.meant(i.text), editor.meant(i.critiques[0])) for i in own]
        fitting = [stated is quoted for stated, quoted in rules if stated is not None]
        return sum(fitting) / len(fitting)

    assert quoted(right) > 0.95 > 0.6 > quoted(wrong)
    assert await share(env, honest) >= 0.95


async def test_critiques_of_other_answers_teach_less() -> None:
    """The ablation: critiques shuffled between rows still name rules, but rules that the answers did not break."""
    env = world(16)
    limits = Budget(task_calls=60, optimizer_calls=6)

    class Foreign(Grader):
        async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
            reward = await super().grade(run, example, completion)
            return replace(reward, critique=f"- The weather was fine on day {len(example.id)}.")

    prompt, _ = await learn(env, limits)
    blind, _ = await learn(replace(env, reward=Foreign(house_rules(16))), limits)
    assert await share(env, prompt) > await share(env, blind) + 0.2


async def test_with_consolidation_no_rule_stands_twice_and_none_is_lost() -> None:
    """What two critiques were read as becomes one instruction, also where these critiques are read again meanwhile."""
    for seed in range(5):
        _, run = await learn(world(24), Budget(task_calls=160, optimizer_calls=24), seed)
        editor: Editor = run.models["optimizer"]
        rules = [rule.key for i in ledger_of(run).active if (rule := editor.meant(i.text)) is not None]
        assert len(rules) == len(set(rules)) == 24, seed


@pytest.mark.parametrize("consolidate", [True, False])
async def test_only_with_consolidation_a_call_compares_instructions(consolidate: bool) -> None:
    _, run = await learn(world(24), Budget(task_calls=160, optimizer_calls=24), consolidate=consolidate)
    stages = {value["stage"] for name, value in run.logged if name == "stage"}
    assert ("consolidate" in stages) == consolidate


async def test_a_run_does_not_end_while_critiques_come_and_half_of_the_calls_are_left() -> None:
    for calls in (100, 300):
        env = world(40)
        await learn(env, Budget(task_calls=calls, optimizer_calls=calls // 10))
        assert calls / 2 < env.model.calls <= calls  # type: ignore[attr-defined]


async def test_no_calls_for_another_validation_are_left_while_critiques_come() -> None:
    """One of the two limits is spent: with 500 + 30 calls the reader has no call left."""
    for calls, asks in ((300, 20), (500, 30)):
        env = world(40)
        _, run = await learn(env, Budget(task_calls=calls, optimizer_calls=asks))
        read = sum(sum(value["calls"].values()) for name, value in run.logged if name == "learned")  # type: ignore[attr-defined]
        assert calls - len(env.validation) / 2 < env.model.calls or read == asks  # type: ignore[attr-defined]
        assert env.model.calls <= calls and read <= asks  # type: ignore[attr-defined]


async def test_only_the_fence_changes_and_the_ledger_tells_why() -> None:
    prompt, run = await learn(world(8), Budget(task_calls=100, optimizer_calls=12))
    assert prompt.source.startswith("You write letters.\n<!-- whet:begin -->\nBe {brief}.\n- ")
    assert prompt.source.endswith("\n<!-- whet:end -->\nSign them.")
    ledger = ledger_of(run)
    assert render_instructions(ledger) == prompt.region_text()
    learned = [i for i in ledger.active if i.author == "optimizer"]
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
    """A reader whose first texts never help, and who knows better when it is told so."""
    env = world(1)

    class Vague(Editor):
        async def generate(self, request: Request) -> list[Completion]:
            (answer,) = await super().generate(request)
            return (
                [replace(answer, text=answer.text.replace("11 words", "11 of them, as greeting words go"))]
                if ('"requirements"' in answer.text)
                else [answer]
            )

    class Deaf(Writer):
        async def generate(self, request: Request) -> list[Completion]:
            deaf = [replace(m, content=m.content.replace("of them", "")) for m in request.messages]
            text = re.sub(r".*as greeting words go.*", "", deaf[0].content)
            return await super().generate(
                replace(request, messages=(replace(deaf[0], content=text), *deaf[1:]))
            )

    env = replace(env, model=Deaf(house_rules(1)))
    _, run = await learn(env, Budget(task_calls=200, optimizer_calls=20), editor=Vague(house_rules(1)))
    stored: Any = dict(run.logged)["ledger"]
    rewrites = [e for e in map(from_json, stored) if isinstance(e, Rewrite) and e.reason == "still violated"]
    assert rewrites and "as greeting words go" not in rewrites[-1].text


async def test_the_budget_of_tokens_keeps_what_earns_most() -> None:
    env = world(16)
    prompt, run = await learn(env, Budget(task_calls=100, optimizer_calls=12), tokens=100)
    assert ledger_of(run).tokens <= 100
    assert any(name == "over_budget" for name, _ in run.logged)
    assert await share(env, START) + 0.1 < await share(env, prompt) < 1


async def test_complaints_of_people_in_the_data_count() -> None:
    env = world(1)
    row = {"input": "x", "output": "Dear", "comment": "grüne Tinte beim Schluss, bitte!"}
    env = replace(env, train=(replace(env.train[0], row=row), *env.train[1:]))

    class Knows(Editor):
        async def generate(self, request: Request) -> list[Completion]:
            if match := re.search(r"(?m)^(\d+)\. grüne Tinte", request.messages[0].content):
                entry = {
                    "critiques": [int(match[1])],
                    "violates": None,
                    "instruction": "Write the closing in green ink.",
                }
                return [Completion(json.dumps({"requirements": [entry]}))]
            return await super().generate(request)

    prompt, run = await learn(env, Budget(task_calls=60, optimizer_calls=5), editor=Knows(house_rules(1)))
    assert "green ink" in prompt.region_text()
    assert "row e0" in next(i.evidence for i in ledger_of(run).active if "green ink" in i.text)


async def test_where_no_critique_says_why_the_reader_sees_the_answers() -> None:
    env = world(4)

    class Silent(Grader):
        async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
            return replace(await super().grade(run, example, completion), critique=None)

    class Sees(Editor):
        async def generate(self, request: Request) -> list[Completion]:
            text = request.messages[0].content
            kept = re.findall(r"(?m)^\d+\. Input: Letter \d+\n   Answered: (\[.*?\])", text)
            missing = [r for r in self.rules if any(r.key not in json.loads(one) for one in kept)]
            self.calls += 1
            entries = [{"critiques": [1], "violates": None, "instruction": r.clear[0]} for r in missing]
            return [Completion(json.dumps({"requirements": entries}))]

    env = replace(env, reward=Silent(house_rules(4)))
    prompt, _ = await learn(env, Budget(task_calls=100, optimizer_calls=12), editor=Sees(house_rules(4)))
    assert await share(env, prompt) >= 0.95


async def test_rows_are_read_in_rounds_to_the_end_though_all_that_is_learned_are_new_wordings() -> None:
    class Silent(Grader):
        async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
            return Reward(0.0)

    class Rewords(Editor):
        async def generate(self, request: Request) -> list[Completion]:
            self.calls += 1
            stands = re.search(r"(?m)^\[i1\] (.*)", request.messages[0].content)
            seen.add(stands[1] if stands else "")
            known = "i1" if stands else None
            text = f"Letters need {number_words[self.calls]} thoughts."
            entry = {"critiques": [1, 2, 3], "existing": known, "instruction": text}
            return [Completion(json.dumps({"requirements": [entry]}))]

    seen = set[str]()
    number_words = [
        "no",
        "two",
        "three",
        "four",
        "five",
        "six",
        "seven",
        "eight",
        "nine",
        "ten",
        "eleven",
        "twelve",
        "many",
    ]
    env = replace(world(4), reward=Silent(house_rules(4)))
    editor = Rewords(house_rules(4))
    await learn(env, Budget(task_calls=200, optimizer_calls=12), editor=editor)
    assert editor.calls >= 6
    assert len(seen - {""}) > 3, "a wording of its own in each round"


async def test_a_wording_of_all_rows_gets_twenty_answers_or_eight_that_are_bad_and_then_the_reader_is_asked_at_once() -> (
    None
):
    events, asked, names = list[str](), list[str](), ["one", "two", "bad", "worse", "five", "six"]

    class Obeys(Writer):
        async def generate(self, request: Request) -> list[Completion]:
            text = "\n".join(message.content for message in request.messages)
            wording, letter = re.search(r"mark (\w+)", text), re.search(r"Letter (\d+)", text)
            events.append(wording[1] if wording else "none")
            right = (
                wording is not None
                and wording[1] not in ("bad", "worse")
                and letter is not None
                and int(letter[1]) % 2
            )
            return [Completion("yes" if right else "no")]

    class Says(Grader):
        async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
            return Reward(float(completion.text == "yes"))

    class Rewords(Editor):
        async def generate(self, request: Request) -> list[Completion]:
            text = request.messages[0].content
            events.append("ask")
            asked.append(text)
            rows = [int(number) for number in re.findall(r"(?m)^(\d+)\. Input", text)]
            new = f"Put the mark {names[min(len(asked), len(names)) - 1]} below."
            entry = {"critiques": rows, "existing": "i1" if "[i1]" in text else None, "instruction": new}
            return [Completion(json.dumps({"requirements": [entry]}))]

    rules = house_rules(4)
    env = replace(world(4), model=Obeys(rules), reward=Says(rules))
    await learn(env, Budget(task_calls=200, optimizer_calls=12), editor=Rewords(rules))
    runs = [(name, len(list(same))) for name, same in itertools.groupby(events)]
    at = runs.index(("bad", 8))
    assert runs[at - 4 : at] == [("one", 20), ("ask", 1), ("two", 20), ("ask", 1)]
    assert runs[at + 1 : at + 2] == [("ask", 1)], (
        "its eight answers end it, and those to the one before are known"
    )
    assert runs[at + 2 : at + 5] == [("worse", 8), ("one", 20), ("ask", 1)], (
        "what was read again gets fresh rows"
    )
    after_fall = asked[3]
    assert "[i1] Put the mark one" in after_fall, "the first of equals"
    assert re.search(
        r'Wording \d+ \(.*0 of \d+ right, .*; wrong answers: "no" \(8 times\)\): Put the mark bad',
        after_fall,
    )
    assert "Of 20 answers, " in after_fall, "those to the wording that stands again"


async def test_a_search_with_nothing_to_learn_ends_early() -> None:
    env = world(1)
    perfect = START.edit("Write the greeting in at most 11 words.")
    run = MemoryRun({"task": env.model, "optimizer": Editor(house_rules(1))})
    best = await prompt_learning(run, env, LanguagePolicy(), perfect, Config(rollouts=10, rounds=9))
    assert best.prompt.region_text().startswith("Write the greeting in at most 11 words.")
    assert run.models["optimizer"].calls <= 6
    assert env.model.calls < 7 * 10 + 3 * 30  # type: ignore[attr-defined]


def test_an_embedding_that_there_is_not_is_refused_before_anything_is_paid() -> None:
    with pytest.raises(UsageError, match="nope"):
        check(world(1), Config(embedding="nope"))
    check(world(1), Config())


class TestConformance(MethodConformance):
    method = "prompt_learning"
    settings: Mapping[str, Any] = MappingProxyType({"rounds": 3, "rollouts": 12})
