"""The reward that compares the tool calls of an answer or an episode with those that were expected.

Qian et al. 2025, "ToolRL: Reward is All Tool Learning Needs" (arXiv:2504.13958), section 3.3: names, parameter names and values.
Li et al. 2025, "Encouraging Good Processes Without the Need for Good Answers" (RLTR, arXiv:2508.19598): completeness of a plan.
Differences: (1) the reward lies in [0, 1], not in [-3, 4], and whether the calls can be read is a part, not a term; (2) a
superfluous call also counts in the denominator; (3) order may count; (4) completeness is counted from the expected calls, where
the paper asks a model.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from whet.errors import UsageError, quantity
from whet.replies import read_json_float, without_thought
from whet.replies.texts import between
from whet.rewards.asking import RewardOptions
from whet.rewards.fields_of_json import holds_object, json_in
from whet.rewards.targets import quote_target
from whet.rewards.verifiers.call_forms import (
    FUNCTION,
    Unreadable,
    UntypedText,
    read_functions,
    read_python_calls,
)
from whet.rewards.verifiers.pairing import best_pairs
from whet.rewards.verifiers.reading import LONGEST_ANSWER, cut, flag_option
from whet.run import Run
from whet.types import Completion, Example, Reward

Measure = Literal["parts", "complete", "all"]
_MEASURES: tuple[Measure, ...] = ("parts", "complete", "all")
_MOST_CALLS, _MOST_NAMED = 100, 3
_TAGS = (("<tool_call>", "</tool_call>"), ("<tool>", "</tool>"))
_ARGUMENTS = ("arguments", "parameters", "input", "args")
_OUTPUT = "output"


@dataclass(frozen=True)
class ToolCall:
    """A call: the name of the tool, its arguments, and what it returned (None: not said)."""

    name: str
    arguments: Mapping[str, object]
    output: object = None

    @property
    def size(self) -> int:
        """The call's points in the denominator: 1 for its parameter names together, and 1 for each value."""
        return 1 + len(self.arguments) + (self.output is not None)

    def __str__(self) -> str:
        shown = ", ".join(
            f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in self.arguments.items()
        )
        return f"{self.name}({cut(shown)})"


def read_calls(value: object) -> list[ToolCall]:
    """Tool calls as JSON: one or a list, `{"name", "arguments"}` (also `parameters`, `input`, `args`), OpenAI's
    `{"type": "function", "function": {"name", "arguments"}}` or a message with `tool_calls`. Arguments may be JSON in a text.

    Raises Unreadable with what is wrong.

    >>> [str(call) for call in read_calls({"tool_calls": [{"function": {"name": "add", "arguments": '{"a": 1}'}}]})]
    ['add(a=1)']
    """
    if isinstance(value, Mapping) and isinstance(value.get("tool_calls"), list):
        value = value["tool_calls"]
    values = value if isinstance(value, list) else [value]
    if len(values) > _MOST_CALLS:
        raise Unreadable(f"there are {len(values):,} calls; {_MOST_CALLS} are read at most")
    return [_read_call(one) for one in values]


def _parse_column(text: str) -> Any:
    """The JSON in a text. Raises Unreadable."""
    try:
        return json.loads(text, parse_float=read_json_float)
    except (ValueError, RecursionError):
        raise Unreadable(f"its text {quote_target(text)} is no JSON") from None


def _read_call(value: object) -> ToolCall:
    inner = value.get("function") if isinstance(value, Mapping) else None
    call: object = inner if isinstance(inner, Mapping) else value
    if not isinstance(call, Mapping) or not isinstance(call.get("name"), str):
        raise Unreadable(f"{cut(json.dumps(value))} is no call: it has no name")
    name: str = call["name"]
    arguments: Any = next((call[key] for key in _ARGUMENTS if call.get(key) is not None), None)
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments, parse_float=read_json_float) if arguments.strip() else None
        except (ValueError, RecursionError):
            raise Unreadable(f"the arguments of {cut(name)} are no JSON: {cut(arguments)}") from None
    arguments = {} if arguments is None else arguments
    if not isinstance(arguments, Mapping):
        raise Unreadable(f"the arguments of {cut(name)} are no object: {cut(json.dumps(arguments))}")
    return ToolCall(name, arguments, call.get(_OUTPUT))


def calls_in(text: str, *, cut_off: bool = False) -> list[ToolCall]:
    """The calls in an answer: those in `<tool_call>` or `<tool>`, else in `<function=NAME>`, else a list of calls in Python,
    else its JSON (a list, or all objects that are calls), else none. Results of tools in the text are left out. The last tag
    may stand open, unless the text was `cut_off`.

    Raises Unreadable where tags hold no calls.
    """
    return [replace(call, output=None) for call in _calls_of_text(text, cut_off)]


def _calls_of_text(text: str, cut_off: bool) -> list[ToolCall]:
    answer = without_thought(text)
    for opening, closing in _TAGS:
        if opening in answer:
            is_open = closing not in answer.rpartition(opening)[2]
            pieces = between(f"{answer}{closing}" if is_open and not cut_off else answer, opening, closing)
            if len(pieces) != answer.count(opening):
                raise Unreadable(f"{opening} is not closed")
            return [call for piece in pieces for call in _read_piece(piece)]
    if FUNCTION in answer:
        return read_calls(read_functions(answer))
    if (written := read_python_calls(answer)) is not None:
        return read_calls(written)
    values = json_in(answer, holds_object)
    if values and isinstance(values[0], list):
        return read_calls(values[0]) if _may_be_calls(values[0]) else []
    calls = [value for value in values[::-1] if isinstance(value, Mapping) and _may_be_calls(value)]
    return [call for value in calls for call in read_calls(value)]


def _may_be_calls(value: object) -> bool:
    first = value[0] if isinstance(value, list) and value else value
    return isinstance(first, Mapping) and bool(first.keys() & {"name", "function", "tool_calls"})


def _read_piece(piece: str) -> list[ToolCall]:
    """The calls between two tags: one JSON value, or one on each line, or a function in tags of its own."""
    if piece.strip().startswith(FUNCTION):
        return read_calls(read_functions(piece))
    try:
        return read_calls(json.loads(piece, parse_float=read_json_float))
    except (ValueError, RecursionError) as error:
        if isinstance(error, Unreadable):
            raise
    try:
        values = [
            json.loads(line, parse_float=read_json_float) for line in piece.splitlines() if line.strip()
        ]
    except (ValueError, RecursionError):
        raise Unreadable(f"{quote_target(piece)} is no JSON") from None
    return read_calls(values)


def same_value(one: object, other: object) -> bool:
    """Whether a value of JSON equals another one: 1 and 1.0 do, 1 and "1" or true do not. The other one may be text of no kind.

    >>> same_value({"a": [1]}, {"a": [1.0]}), same_value(1, True)
    (True, False)
    """
    if isinstance(other, UntypedText):
        return same_value(one, other.means(one))
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same_value(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same_value, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and one == other


@dataclass(frozen=True)
class Matched:
    """Expected calls beside those that were made. Terms are in ToolRL's units: names 0 to 1, parameter names 0 to the number of
    expected calls, values 0 to the number of expected values."""

    expected: Sequence[ToolCall]
    made: Sequence[ToolCall]
    pairs: Mapping[int, int]
    """The place of the made call beside that of the expected one."""

    @classmethod
    def of(cls, expected: Sequence[ToolCall], made: Sequence[ToolCall]) -> Matched:
        """Calls of the same name are paired, so that they agree as much as can be in all."""

        def worth(i: int, j: int) -> float | None:
            one, other = expected[i], made[j]
            return (
                _parameter_overlap(one, other) + _equal_values(one, other) if one.name == other.name else None
            )

        return cls(expected, made, best_pairs(len(expected), len(made), worth))

    @property
    def names(self) -> float:
        """|N_G and N_P| / |N_G or N_P| of the names as multisets."""
        wanted, called = (Counter(call.name for call in calls) for calls in (self.expected, self.made))
        return (wanted & called).total() / max(1, (wanted | called).total())

    @property
    def parameters(self) -> float:
        """The sum over pairs of |keys and keys| / |keys or keys|."""
        return sum(_parameter_overlap(self.expected[i], self.made[j]) for i, j in self.pairs.items())

    @property
    def values(self) -> int:
        """Equal values of all pairs, with the outputs that were expected."""
        return sum(_equal_values(self.expected[i], self.made[j]) for i, j in self.pairs.items())

    @property
    def complete(self) -> float:
        """The share of expected calls that were made with all their values."""
        right = [
            _equal_values(self.expected[i], self.made[j]) == self.expected[i].size - 1
            and self.made[j].arguments.keys() == self.expected[i].arguments.keys()
            for i, j in self.pairs.items()
        ]
        return sum(right) / len(self.expected) if self.expected else 1.0

    @property
    def order(self) -> float:
        """The share of expected calls in the longest run of pairs that came in the expected order."""
        ends: list[int] = []
        for _, j in sorted(self.pairs.items()):
            at = bisect_left(ends, j)
            ends[at : at + 1] = [j]
        return len(ends) / len(self.expected) if self.expected else 1.0

    @property
    def superfluous(self) -> list[ToolCall]:
        """The calls that nobody expected."""
        paired = set(self.pairs.values())
        return [call for j, call in enumerate(self.made) if j not in paired]

    def share(self, ordered: bool) -> float:
        """(names + parameters + values + order) / the most that the expected and the superfluous calls could earn, in [0, 1]."""
        if not self.expected:
            return float(not self.made)
        most = 1 + sum(call.size for call in (*self.expected, *self.superfluous)) + ordered
        return (self.names + self.parameters + self.values + (self.order if ordered else 0.0)) / most


def _parameter_overlap(one: ToolCall, other: ToolCall) -> float:
    union = one.arguments.keys() | other.arguments.keys()
    return len(one.arguments.keys() & other.arguments.keys()) / len(union) if union else 1.0


def _equal_values(expected: ToolCall, made: ToolCall) -> int:
    right = sum(
        key in made.arguments and same_value(value, made.arguments[key])
        for key, value in expected.arguments.items()
    )
    return right + (expected.output is not None and same_value(_plain(expected.output), _plain(made.output)))


def _plain(output: object) -> object:
    """The return value of a tool; JSON in a text is read as its value."""
    if not isinstance(output, str):
        return output
    try:
        return json.loads(output, parse_float=read_json_float)
    except (ValueError, RecursionError):
        return output.strip()


@dataclass(frozen=True)
class ToolCalls:
    """The agreement of the tool calls of an episode, or of a single answer, with those of the row's column `calls`, 0 to 1.

    `measure=parts`: names, parameter names and values (ToolRL); `complete`: the share of expected calls that were made with all
    their values, whatever else was called; `all`: 1 when the calls are exactly the expected ones. With `ordered` their order
    counts. Calls that failed count for nothing. Parts: `format`, `name`, `parameter`, `value`, `order`, `complete`, each 0 to 1.
    """

    calls: str = "calls"
    measure: Measure = "parts"
    ordered: bool = False
    name: str = "tool_calls"
    low: float = 0.0
    high: float = 1.0
    needs: frozenset[str] = frozenset()
    reads_steps: ClassVar[bool] = True

    def check(self, example: Example) -> None:
        """Raise UsageError for a row whose expected calls cannot be read."""
        self._read_expected(example)

    def _read_expected(self, example: Example) -> list[ToolCall]:
        value: Any = example.row.get(self.calls)
        try:
            if isinstance(value, str):
                value = _parse_column(value)
            if not isinstance(value, list | dict):
                raise Unreadable("it holds no list of calls")
            return read_calls(value)
        except Unreadable as error:
            raise UsageError(
                f"the column {self.calls!r} of {example.place} holds no tool calls: {error}. Write a list such as "
                '[{"name": "NAME", "arguments": {"KEY": VALUE}}], or name the column: reward: {tool_calls: {calls: COLUMN}}.'
            ) from None

    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        expected = self._read_expected(example)
        try:
            made = self._read_made(completion)
        except Unreadable as error:
            parts = dict.fromkeys(("format", "name", "parameter", "value", "order", "complete"), 0.0)
            return Reward(0.0, parts, f"The tool calls cannot be read: {error}.")
        matched = Matched.of(expected, made)
        share = matched.share(self.ordered)
        value = share if self.measure == "parts" else float(share == 1.0)
        if self.measure == "complete":
            value = matched.complete if not self.ordered else min(matched.complete, matched.order)
        most = sum(call.size - 1 for call in expected)
        parts = {
            "format": 1.0,
            "name": matched.names if expected or made else 1.0,
            "parameter": matched.parameters / len(expected) if expected else 1.0,
            "value": matched.values / most if most else 1.0,
            "order": matched.order,
            "complete": matched.complete,
        }
        return Reward(value, parts, None if value == 1.0 else self._critique(matched))

    @staticmethod
    def _read_made(completion: Completion) -> list[ToolCall]:
        if len(completion.text) > LONGEST_ANSWER:
            raise Unreadable(f"the answer has more than {LONGEST_ANSWER:,} characters")
        steps = [step for step in completion.steps if step.get("role") == "tool"]
        if not completion.steps:
            return calls_in(completion.text, cut_off=completion.finish == "length")
        return read_calls([step for step in steps if not step.get("error")])

    def _critique(self, matched: Matched) -> str:
        paired = [(matched.expected[i], matched.made[j]) for i, j in sorted(matched.pairs.items())]
        sentences = [
            f"{one} was expected, and {other} was called{_describe_output(one, other)}."
            for one, other in paired
            if _equal_values(one, other) < one.size - 1 or one.arguments.keys() != other.arguments.keys()
        ]
        missing = [call for i, call in enumerate(matched.expected) if i not in matched.pairs]
        sentences += [f"{call} was not called." for call in missing]
        if self.measure != "complete":
            sentences += [f"{call} was not needed." for call in matched.superfluous]
        if self.ordered and matched.order < 1 and not missing:
            sentences.append("The order should be " + ", ".join(call.name for call in matched.expected) + ".")
        more = len(sentences) - _MOST_NAMED
        return "\n".join(
            [*sentences[:_MOST_NAMED], *([f"{quantity(more, 'more fault')}."] if more > 0 else [])]
        )


def _describe_output(expected: ToolCall, made: ToolCall) -> str:
    if expected.output is None or same_value(_plain(expected.output), _plain(made.output)):
        return ""
    return f" and returned {quote_target(str(made.output))} instead of {quote_target(str(expected.output))}"


def build_tool_calls(options: RewardOptions) -> ToolCalls:
    """`reward: {tool_calls: {calls: COLUMN, measure: parts, ordered: false}}`. Raises UsageError with the place."""
    options.only("calls", "measure", "ordered")
    named = options.text("measure", "parts")
    measure = next((one for one in _MEASURES if one == named), None)
    if measure is None:
        options.refuse(f"the option measure is parts, complete or all; this is {named!r}.")
    return ToolCalls(options.text("calls", "calls"), measure, flag_option(options, "ordered", False))
