"""The reward that compares answers as mathematics."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path

from whet._util.confined import Limits, OutOfBounds, run_confined
from whet._util.words import fold
from whet.errors import UsageError
from whet.rewards.asking import RewardOptions
from whet.rewards.reward import TARGET
from whet.rewards.targets import quote_target, targets_of
from whet.rewards.verifiers.math_money import is_currency
from whet.rewards.verifiers.math_places import (
    formula_in,
    is_marked,
    read_answer,
    with_plain_unit,
    without_emphasis,
)
from whet.rewards.verifiers.math_reading import (
    Formula,
    MathNode,
    Unread,
    add,
    are_words,
    multiply,
    number,
    read_formula,
)
from whet.rewards.verifiers.measured import Measured
from whet.rewards.verifiers.reading import LONGEST_ANSWER, cut, number_option
from whet.run import Run
from whet.types import JSON, Completion, Example, Reward

_PROCESS = Path(__file__).with_name("math_process.py")
_MOST_PAIRS = 200


@dataclass(frozen=True)
class MathEqual(Measured):
    """1 when the answer equals the target as mathematics, else 0: numbers exactly, expressions as SymPy proves it.

    The formula is the last `\\boxed{}`, else what stands in the only pair of tags, else the last one between dollar signs, else
    the whole text, else the end of its last line behind the words. Numbers whose difference is at most `relative` times the
    target are equal too. The formula is read by a bounded parser of plain text and LaTeX, and SymPy gets its tree in a confined
    process, `timeout` seconds and `memory` MiB.
    """

    relative: float = 0.0
    timeout: float = 10.0
    memory: int = 1024
    name: str = "math_equal"
    low: float = 0.0
    high: float = 1.0
    needs: frozenset[str] = frozenset({TARGET})

    packages = ("sympy",)

    def check(self, example: Example) -> None:
        """Raise UsageError for a target that is no formula, or that is a word whose letters would be multiplied."""
        for target in targets_of(example):
            try:
                read_formula(formula_in(target))
            except Unread as error:
                raise UsageError(
                    f"the target {quote_target(target)} of {example.place} is no formula: {error}. Correct the row, or compare "
                    "texts with reward: exact_match."
                ) from None
            if are_words(target) and not is_marked(target):
                raise UsageError(
                    f"the target {quote_target(target)} of {example.place} is a word, whose letters would be multiplied. "
                    "Write \\text{...} around a word, or $...$ around a product; or compare texts with reward: exact_match."
                )

    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        answer = completion.text[-LONGEST_ANSWER:]
        targets = targets_of(example)
        values: list[JSON] = [answer, list(targets)]
        critique = await self.compute(run, "find_fault", values, example.place, [example.id, completion.text])
        return Reward(0.0, critique=critique) if critique else Reward(1.0)

    def find_fault(self, answer: str, targets: Sequence[str]) -> str:
        """The fault of an answer, or ''."""
        wanted, text = [read_formula(formula_in(target)) for target in targets], formula_in(answer)
        words = _fold_words(without_emphasis(text))
        if any(target.node.kind == "text" and _fold_words(target.node.text) == words for target in wanted):
            return ""
        try:
            forms = {(target.unit, target.node.kind == "relation") for target in wanted}
            read = {form: read_answer(answer, *form) for form in forms}
        except Unread as error:
            return f"The answer {quote_target(text)} was refused: {cut(str(error))}. It should be {quote_target(targets[0])}."
        answers = [read[target.unit, target.node.kind == "relation"] for target in wanted]
        faults = [
            self._difference(formula, with_plain_unit(formula_in(one), target, formula.unit))
            for one, target, (_, formula) in zip(targets, wanted, answers, strict=True)
        ]
        if None in faults:
            return ""
        return f"The answer {quote_target(answers[0][0])} should be {quote_target(targets[0])}{faults[0]}."

    def _difference(self, answer: Formula, target: Formula) -> str | None:
        """None where both are equal, else how they differ, as the end of a sentence."""
        if answer.unit and answer.unit != target.unit and not (is_currency(answer.unit) and not target.unit):
            wanted = f"that of the target is {target.unit!r}" if target.unit else "the target has none"
            return f": its unit is {answer.unit!r}, and {wanted}"
        decisions = _Decisions(self.relative)
        if decisions.are_same(answer.node, target.node):
            return None
        if not decisions.open:
            return ""
        if len(decisions.open) > _MOST_PAIRS:
            return f": it was refused, since more than {_MOST_PAIRS} pairs of expressions must be compared"
        question = {"pairs": [pair.to_json() for pair in decisions.open], "relative": str(self.relative)}
        try:
            same: list[bool | None] = run_confined(_PROCESS, question, Limits(self.timeout, self.memory))[
                "same"
            ]
        except OutOfBounds as error:
            return f": it was refused: {error}"
        decided = replace(decisions, known=dict(zip(decisions.open, same, strict=True)), open={})
        if decided.are_same(answer.node, target.node):
            return None
        return ": it was refused, since SymPy cannot decide whether both are equal" if None in same else ""


@dataclass(frozen=True)
class _Pair:
    """Two expressions that must be equal, or of which one must be `any` number or a `positive` one times the other."""

    one: MathNode
    other: MathNode
    ratio: str = ""

    def to_json(self) -> dict[str, object]:
        return {"trees": [self.one.to_json(), self.other.to_json()], "ratio": self.ratio}


@dataclass(frozen=True)
class _Decisions:
    """The expressions that are equal, as far as it is known; `open` collects the pairs that SymPy has to decide."""

    relative: float
    known: dict[_Pair, bool | None] = field(default_factory=dict)
    open: dict[_Pair, None] = field(default_factory=dict)

    def are_same(self, one: MathNode, other: MathNode) -> bool:
        """Whether two whole answers are equal; an open pair counts as unequal."""
        one, other = _join_sets(one), _join_sets(other)
        one, other = _as_solutions(one, other), _as_solutions(other, one)
        one, other = _without_name(one, other), _without_name(other, one)
        if one == other:
            return True
        kinds = (one.kind, other.kind)
        if kinds == ("relation", "relation"):
            return self._are_same_relations(one, other)
        if "set" in kinds:
            return self._are_matched(*(n.parts if n.kind == "set" else (n,) for n in (one, other)))
        if kinds == ("union", "union"):
            return self._are_matched(one.parts, other.parts)
        if one.kind == other.kind and one.kind in ("sequence", "matrix", "row"):
            return one.text == other.text and self._are_same_in_order(one.parts, other.parts)
        if {"text"} <= {one.kind, other.kind} <= {"text", "symbol"}:
            return _fold_words(one.text) == _fold_words(other.text)  # \text{B} is the choice B
        if _is_whole(one) or _is_whole(other):
            return False
        return self._decide(_Pair(one, other))

    def _are_same_in_order(self, some: Sequence[MathNode], others: Sequence[MathNode]) -> bool:
        if len(some) != len(others):
            return False
        return all([self.are_same(one, other) for one, other in zip(some, others, strict=True)])

    def _are_matched(self, some: Sequence[MathNode], others: Sequence[MathNode]) -> bool:
        """Whether each of one set is in the other one."""
        same = [[self.are_same(one, other) for other in others] for one in some]
        return all(any(row) for row in same) and all(any(column) for column in zip(*same, strict=True))

    def _are_same_relations(self, one: MathNode, other: MathNode) -> bool:
        if "in" in (one.text, other.text):
            return one.text == other.text and self._are_same_in_order(one.parts, other.parts)
        (signs, sides), (others, other_sides) = _upwards(one), _upwards(other)
        if signs != others or any(_is_whole(side) for side in (*sides, *other_sides)):
            return False
        if len(sides) > 2:
            return self._are_same_in_order(sides, other_sides)
        gaps = [add([left, multiply([number(-1), right])]) for left, right in (sides, other_sides)]
        return self._decide(_Pair(gaps[0], gaps[1], "any" if signs[0] in ("=", "!=") else "positive"))

    def _decide(self, pair: _Pair) -> bool:
        if pair.one == pair.other:
            return True
        if not pair.ratio and pair.one.kind == pair.other.kind == "number":
            return abs(pair.one.value - pair.other.value) <= Fraction(str(self.relative)) * abs(
                pair.other.value
            )
        if pair not in self.known:
            self.open[pair] = None
        return bool(self.known.get(pair))


def _fold_words(text: str) -> str:
    """Words as they are compared: in any case, with brackets around all of them or without, as the choice (B)."""
    inner = text[1:-1] if text[:1] == "(" and text[-1:] == ")" else text
    return fold(" ".join(inner.split()))


def _is_whole(node: MathNode) -> bool:
    return node.kind in ("sequence", "set", "union", "relation", "matrix", "row", "text")


def _without_name(node: MathNode, other: MathNode) -> MathNode:
    """The right side of `x = 5`, `3 + 4 = 7` or `x \\in [0, 5]`, and the end of `x = 6/2 = 3`, beside what is no relation."""
    if node.kind != "relation" or other.kind == "relation":
        return node
    first, *_, last = node.parts
    if node.text == "in":
        return last if first.kind == "symbol" else node
    computed = len(node.parts) > 2 or first.kind == "symbol" or not _has_symbol(first)
    return last if computed and set(node.text.split()) == {"="} else node


def _has_symbol(node: MathNode) -> bool:
    return node.kind == "symbol" or any(map(_has_symbol, node.parts))


def _join_sets(node: MathNode) -> MathNode:
    """The set that a union of sets is."""
    if node.kind != "union" or any(part.kind != "set" for part in node.parts):
        return node
    return MathNode("set", tuple(item for part in node.parts for item in part.parts))


def _as_solutions(node: MathNode, other: MathNode) -> MathNode:
    """An inequality of one variable and constants, `x <= 5`, as the interval of its solutions, where the other side is one."""
    interval = other.parts[1] if other.kind == "relation" and other.text == "in" else other
    if node.kind != "relation" or (interval.kind, interval.text) not in _INTERVALS:
        return node
    signs, sides = _upwards(node)
    if len(sides) == 2 and _is_symbol(sides[0]):
        signs, sides = ["<", *signs], [_LEAST, *sides]
    elif len(sides) == 2:
        signs, sides = [*signs, "<"], [*sides, _GREATEST]
    if len(sides) != 3 or not set(signs) <= {"<", "<="} or not _is_symbol(sides[1]):
        return node
    low, _, high = sides
    if _is_whole(low) or _is_whole(high) or _holds(low, sides[1]) or _holds(high, sides[1]):
        return node
    brackets = ("(" if signs[0] == "<" else "[") + (")" if signs[1] == "<" else "]")
    solutions = MathNode("sequence", (low, high), brackets)
    return solutions if interval is other else replace(other, parts=(sides[1], solutions))


_INTERVALS = {("sequence", brackets) for brackets in ("()", "[)", "(]", "[]")}
_GREATEST = MathNode("constant", text="oo")
_LEAST = multiply([number(-1), _GREATEST])


def _is_symbol(node: MathNode) -> bool:
    return node.kind == "symbol"


def _holds(node: MathNode, symbol: MathNode) -> bool:
    return node == symbol or any(_holds(part, symbol) for part in node.parts)


def _upwards(relation: MathNode) -> tuple[list[str], list[MathNode]]:
    """Signs and sides of a relation, so written that none of its signs is > or >= if that is possible."""
    signs, sides = relation.text.split(), list(relation.parts)
    if set(signs) <= {">", ">=", "="} and set(signs) != {"="}:
        return [sign.replace(">", "<") for sign in reversed(signs)], sides[::-1]
    return signs, sides


def build_math_equal(options: RewardOptions) -> MathEqual:
    """`reward: math_equal`, or `reward: {math_equal: {relative: 0, timeout: 10, memory: 1024}}`.

    Raises UsageError with the place, and where SymPy is not installed.
    """
    options.only("relative", "timeout", "memory")
    if importlib.util.find_spec("sympy") is None:
        options.refuse("it needs SymPy. Install it with: pip install 'whet[verifiers]'")
    relative = options.values.get("relative", 0.0)
    return MathEqual(
        number_option(options, "relative", 0.0, 1.0) if relative else 0.0,
        number_option(options, "timeout", 10.0, 600),
        int(number_option(options, "memory", 1024, 1 << 20)),
    )
