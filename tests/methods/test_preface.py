"""PREFACE: how a repair goes on and ends, what is kept of it, and what the verifier's counterexamples are worth.

The verifier is the reward `python_tests`: it runs the code of every answer, once for each code and row.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any, ClassVar

import pytest
from tests.methods.figures import won_over

from whet._util.confined import is_enforced
from whet.environments.environment import Environment
from whet.methods.preface import Config, preface, within
from whet.models.scripted import Scripted, chance, choose_by_luck, luck, request_text, shuffle
from whet.prompt import Prompt
from whet.rewards import build_reward
from whet.rewards.verifiers.python_tests import PythonTests
from whet.rl import LanguagePolicy
from whet.rl.prompt_repair import EARNED, REJECTED
from whet.run import Budget
from whet.search.archive import Candidate
from whet.search.plan import SearchPlan
from whet.testing.paired_benchmark import KnownWorld, play_world
from whet.testing.runs import MeteredRun
from whet.testing.simulated_task import Answers
from whet.types import Example, Request, Reward

CONFORMANCE = {"rounds": 4, "attempts": 2, "examples": 40}
"""Settings of a run in the conformance suite."""
SWEEP = {"rounds": 2, "attempts": 2, "examples": 4}
"""Settings of a run that is killed at every boundary."""

KINDS = {f"k{n}": ("zero", "none")[n % 2] for n in range(9)}
"""What a function must return for an input of each kind: nobody can guess it, and the tests say it."""
RULE = re.compile(r"For (k\d) return (\w+)\.")
FAILED = re.compile(r"assert f\('(k\d)'\) == '(\w+)'")
FORGETS = 0.1
GRADED: dict[tuple[str, str], Reward] = {}


class Verified(PythonTests):
    """The verifier, asked once for all codes and rows that differ in the names of their kinds only: runs share what it said."""

    async def grade(self, run: Any, example: Any, completion: Any) -> Reward:
        names = {
            kind: f"q{n}" for n, kind in enumerate(sorted(set(re.findall(r"k\d", str(example.row["tests"])))))
        }

        def renamed(text: str) -> str:
            return re.sub(r"k\d", lambda match: names.get(match[0], match[0]), text)

        tests, text = [renamed(test) for test in example.row["tests"]], renamed(completion.text)
        key = str(tests), text
        if key not in GRADED:
            row = replace(example, row={**example.row, "tests": tests})
            GRADED[key] = await super().grade(run, row, replace(completion, text=text))
        said = GRADED[key].critique
        for kind, name in names.items():
            said = said and said.replace(name, kind)
        return replace(GRADED[key], critique=said)


def code(question: str, sample: int) -> str:
    """A program as a model writes it that knows the rules of its prompt and nothing else."""
    rules = dict(RULE.findall(question))
    kinds = re.findall(r"k\d", question.splitlines()[-1])
    cases = "".join(
        f"    if x == '{kind}':\n        return '{rules[kind]}'\n" for kind in kinds if kind in rules
    )
    return f"```python\ndef f(x):\n{cases}    return 'unknown'\n```"


class Repairer(Scripted):
    """Takes one rule out of a counterexample; without one it guesses what an input of the row must return. It forgets a rule now
    and then."""

    OPTIONS: ClassVar[dict[str, str]] = {}

    def answer(self, request: Request, sample: int) -> str:
        question, draw = request_text(request), luck(request, sample)
        text, _, shown = question.partition(REJECTED)
        rules = dict(RULE.findall(text))
        for kind in [*rules]:
            if chance(self.seed, draw, kind) < FORGETS:
                del rules[kind]
        found = FAILED.findall(shown.partition("Critique")[2] or shown.partition("Reward:")[2])
        kinds = sorted(set(re.findall(r"k\d", shown.partition("Answered")[0])))
        kind, value = (
            found[0]
            if found
            else (
                choose_by_luck(kinds, self.seed, draw),
                choose_by_luck(("zero", "none"), self.seed, draw, 1),
            )
        )
        lines = [f"For {one} return {what}." for one, what in {**rules, kind: value}.items()]
        return f"<INSTRUCTION>Write f in Python.\n{chr(10).join(lines)}</INSTRUCTION>"


def world(seed: int) -> KnownWorld:
    """Functions of two kinds of inputs each, whose tests know what must be returned."""
    rows = []
    for pair in combinations(KINDS, 2):
        tests = [f"assert f('{kind}') == '{KINDS[kind]}'" for kind in pair]
        text = f"Write f for {' and '.join(pair)}."
        name = "".join(pair)
        rows.append(Example(name, {"input": text}, None, {"input": text, "tests": tests}, text))
    rows = shuffle(rows, seed, "rows")
    verifier = Verified(confined=is_enforced())
    env = Environment(Answers(code), verifier, tuple(rows[:26]), tuple(rows[26:]))
    start = Prompt.parse("<!-- whet:begin -->\nWrite f in Python.\n<!-- whet:end -->\n{{input}}")

    def worth(prompt: Prompt) -> float:
        rules = dict(RULE.findall(prompt.source))
        return sum(rules.get(kind) == value for kind, value in KINDS.items()) / len(KINDS)

    return KnownWorld(env, start, worth, Repairer("repairer", {"seed": str(seed)}))


async def search(known: KnownWorld, **settings: Any) -> tuple[Candidate, MeteredRun, list[str]]:
    """What is found, the run, and the questions to the model."""
    questions = list[str]()

    class Watched(Repairer):
        def answer(self, request: Request, sample: int) -> str:
            questions.append(request_text(request))
            return super().answer(request, sample)

    run = MeteredRun({"task": known.env.model, "optimizer": Watched("w", {"seed": "1"})}, 1)
    return await preface(run, known.env, LanguagePolicy(), known.start, Config(**settings)), run, questions


async def test_what_the_verifier_said_is_read_until_it_accepts() -> None:
    best, run, questions = await search(world(0), rounds=1)
    (repaired,) = [value for name, value in run.logged if name == "repaired"]
    assert repaired["reward"] == 1.0 and len(questions) == repaired["attempts"] <= 7
    pair = re.findall(r"k\d", repaired["row"])
    assert f"assert f('{pair[0]}') == '{KINDS[pair[0]]}'" in questions[0] and EARNED not in questions[0]
    assert f"{EARNED} 0.50" in questions[1], "half of the tests pass after the first repair"
    assert RULE.findall(questions[1].partition(REJECTED)[0]), "the repair goes on from what came farthest"
    assert set(pair) <= {kind for kind, _ in RULE.findall(best.prompt.source)}


async def test_a_repair_must_earn_more_on_other_rows() -> None:
    """A prompt that answers the row alone is not kept."""
    known = world(0)

    def answer(question: str, sample: int) -> str:
        if "only" not in question:
            return code(question, sample)
        pair = re.findall(r"k\d", question.splitlines()[-1])
        wanted = "".join(
            f"    if x == '{k}':\n        return '{KINDS[k]}'\n"
            for k in pair
            if f"only {''.join(pair)}" in question
        )
        return f"```python\ndef f(x):\n{wanted}    return 'unknown'\n```"

    def repair(question: str, sample: int) -> str:
        pair = re.findall(r"k\d", question.partition("Input: ")[2].splitlines()[0])
        return f"<INSTRUCTION>only {''.join(pair)}</INSTRUCTION>"

    start = known.start.edit("For k0 return zero. For k1 return none. For k2 return zero.")
    run = MeteredRun({"task": Answers(answer), "optimizer": Answers(repair)}, 1)
    env = replace(known.env, model=Answers(answer))
    best = await preface(run, env, LanguagePolicy(), start, Config(rounds=3, attempts=1))
    tried = [value for name, value in run.logged if name == "repaired"]
    assert len({one["row"] for one in tried}) == 3 and all(one["reward"] == 1.0 for one in tried)
    assert best.prompt == start


async def test_where_the_verifier_accepts_everything_nothing_is_asked() -> None:
    known = world(0)
    rules = " ".join(f"For {kind} return {value}." for kind, value in KINDS.items())
    best, _, questions = await search(replace(known, start=known.start.edit(rules)))
    assert not questions and known.worth(best.prompt) == 1.0


async def test_the_controls_hide_what_the_verifier_said_of_the_row() -> None:
    for shown in ("verdict", "other"):
        _, _, questions = await search(world(0), rounds=2, shown=shown)
        for question in questions:
            input, _, said = question.partition(REJECTED)[2].partition("Answered")
            pair = set(re.findall(r"k\d", input))
            named = {kind for kind, _ in FAILED.findall(said)}
            assert not named if shown == "verdict" else named != pair


GATES = {0: "and", 1: "or", 2: "xor"}
"""What a circuit must compute for each code of an operation."""
CASES = {"and": "&", "or": "|", "xor": "^"}
GATE = re.compile(r"For code (\d) use (\w+)\.")


def circuit(question: str, sample: int) -> str:
    """A circuit as a model writes it that knows the rules of its prompt and nothing else."""
    cases = "".join(f"{code}: y = a {CASES[gate]} b; " for code, gate in dict(GATE.findall(question)).items())
    body = f"always @* case (op) {cases}default: y = 1'bx; endcase"
    return f"```verilog\nmodule alu(input [1:0] op, input a, b, output reg y); {body} endmodule\n```"


def bench(codes: tuple[int, ...]) -> str:
    """A test bench that says of each code and each pair of bits what it wants."""
    cases = "".join(
        f"op = {code}; for (i = 0; i < 4; i = i + 1) begin {{a, b}} = i[1:0]; #1; "
        f'if (y === (a {CASES[GATES[code]]} b)) $display("ok"); '
        f'else $display("not ok: code {code}, %b and %b must give %b", a, b, a {CASES[GATES[code]]} b); end '
        for code in codes
    )
    return (
        "module tb; reg [1:0] op; reg a, b; wire y; integer i; alu u(op, a, b, y); "
        f'initial begin $display("1..{4 * len(codes)}"); {cases} end endmodule'
    )


@pytest.mark.skipif(
    not (is_enforced() and shutil.which("iverilog") and shutil.which("vvp")), reason="needs Icarus Verilog"
)
async def test_a_prompt_for_circuits_is_repaired_from_what_a_simulation_said() -> None:
    """The model takes a rule out of the cases of one code that did not hold: it needs three of them to know the gate."""
    rows = []
    for codes in combinations(GATES, 2):
        text = f"Write alu for the codes {codes[0]} and {codes[1]}."
        rows.append(Example(str(codes), {"input": text}, None, {"input": text, "bench": bench(codes)}, text))

    def repair(question: str, sample: int) -> str:
        text, _, shown = question.partition(REJECTED)
        rules = dict(GATE.findall(text))
        wanted = re.findall(r"not ok: code (\d), (\d) and (\d) must give (\d)", shown)
        (code, *_), *_ = wanted
        known = {(int(a), int(b)): int(y) for one, a, b, y in wanted if one == code}
        table = {"and": int.__and__, "or": int.__or__, "xor": int.__xor__}
        fitting = [g for g, f in table.items() if all(f(a, b) == y for (a, b), y in known.items())]
        rules[code] = next(gate for gate in fitting if rules.get(code) != gate)
        lines = " ".join(f"For code {one} use {gate}." for one, gate in rules.items())
        return f"<INSTRUCTION>{lines}</INSTRUCTION>"

    verifier = build_reward("verilog", Path(), "task.yaml:1")
    env = Environment(Answers(circuit), verifier, tuple(rows), tuple(rows))
    start = Prompt.parse("<!-- whet:begin -->\nWrite Verilog.\n<!-- whet:end -->\n{{input}}")
    run = MeteredRun({"task": env.model, "optimizer": Answers(repair)}, 1)
    best = await preface(run, env, LanguagePolicy(), start, Config(rounds=3))
    assert {int(code): gate for code, gate in GATE.findall(best.prompt.source)} == GATES


@pytest.mark.parametrize(
    ("rollouts", "asks", "sizes"),
    [
        (None, None, (20, 7, 30)),
        (330, None, (20, 7, 9)),
        (100, None, (6, 7, 8)),
        (30, None, (2, 3, 8)),
        (7, None, (0, 1, 8)),
        (None, 21, (3, 7, 30)),
        (None, 3, (2, 1, 30)),
        (None, 0, (0, 1, 30)),
    ],
)
def test_sizes_within_limits(rollouts: int | None, asks: int | None, sizes: tuple[int, int, int]) -> None:
    found = within(Config(), SearchPlan(world(0).env, rollouts, asks, 2, 1), 40)
    rounds, attempts, examples = found
    assert rollouts is None or not rounds or examples + rounds * (attempts + examples) <= rollouts
    assert asks is None or rounds * attempts <= asks
    assert found == sizes


# The contest: with counterexamples, with the reward alone, with counterexamples of other rows; at equal calls.

LIMITS = Budget(task_calls=240)


@cache
def reached(seeds: int = 6, **settings: Any) -> list[float]:
    """The share of the rules that the prompt states at the end, in the world of each seed."""
    method = settings.pop("method", "preface")
    return [play_world(method, world(seed), seed, LIMITS, settings) for seed in range(seeds)]


def test_without_the_counterexample_it_loses() -> None:
    won = won_over("shown=verdict", reached(), reached(shown="verdict"))
    assert won.low > 0, won


@pytest.mark.long
def test_against_its_controls() -> None:
    own = reached(20)
    print(f"rules stated: {sum(own) / 20:.3f} of {len(KINDS)}; start: 0")
    for name, settings in {
        "shown=verdict": {"shown": "verdict"},
        "shown=other": {"shown": "other"},
        "attempts=1": {"attempts": 1},
        "attempts=2": {"attempts": 2},
    }.items():
        won = won_over(name, own, reached(20, **settings))
        assert won.low > 0 or name.startswith("attempts"), won
