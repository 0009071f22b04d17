"""Tool calls beside the expected ones: in texts, in OpenAI's form, and in the steps of an episode."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rewards.verifiers.grading import grade

from whet.errors import UsageError
from whet.rewards import build_reward
from whet.rewards.verifiers.tool_calls import Matched, ToolCall, calls_in, read_calls
from whet.run import MemoryRun
from whet.types import Completion, Example

WEATHER = {"name": "weather", "arguments": {"town": "Ulm", "days": 2}}
MAIL = {"name": "mail", "arguments": {"to": "ann"}}
ROW: dict[str, Any] = {"calls": [WEATHER, MAIL]}


def tagged(*calls: object) -> str:
    """An answer with calls as small models write them."""
    return "".join(f"<tool_call>\n{json.dumps(call)}\n</tool_call>" for call in calls)


OPENAI = {
    "role": "assistant",
    "tool_calls": [
        {
            "id": "1",
            "type": "function",
            "function": {"name": c["name"], "arguments": json.dumps(c["arguments"])},
        }
        for c in (WEATHER, MAIL)
    ],
}


def in_python(call: dict[str, Any]) -> str:
    """As Llama writes a call, and BFCL reads it."""
    return f"{call['name']}({', '.join(f'{key}={value!r}' for key, value in call['arguments'].items())})"


def in_function_tags(call: dict[str, Any]) -> str:
    """As Llama writes a call where the prompt asks for it so."""
    return f"<function={call['name']}>{json.dumps(call['arguments'])}</function>"


def in_parameter_tags(call: dict[str, Any]) -> str:
    """As Qwen3-Coder writes a call."""
    written = [
        f"<parameter={key}>\n{value if isinstance(value, str) else json.dumps(value)}\n</parameter>"
        for key, value in call["arguments"].items()
    ]
    return "\n".join([f"<function={call['name']}>", *written, "</function>"])


@pytest.mark.parametrize(
    "answer",
    [
        tagged(WEATHER, MAIL),
        tagged(MAIL, WEATHER),
        f"<tool_call>\n{json.dumps(WEATHER)}\n{json.dumps(MAIL)}\n</tool_call>",
        f"<tool>{json.dumps([WEATHER, MAIL])}</tool>",
        f"I call:\n```json\n{json.dumps([WEATHER, MAIL])}\n```",
        json.dumps(OPENAI),
        f"<think>mail first?</think>{tagged(WEATHER, MAIL)}",
        f"[{in_python(WEATHER)}, {in_python(MAIL)}]",
        f"I call:\n```python\n[{in_python(WEATHER)},\n {in_python(MAIL)}]\n```",
        f"Now.\n{in_function_tags(WEATHER)}\n{in_function_tags(MAIL)}",
        f"{in_parameter_tags(WEATHER)}{in_parameter_tags(MAIL)}",
        f"<tool_call>\n{in_parameter_tags(WEATHER)}\n</tool_call><tool_call>{in_parameter_tags(MAIL)}</tool_call>",
    ],
)
async def test_every_form_of_the_right_calls_is_right(answer: str) -> None:
    for measure in ("parts", "complete", "all"):
        assert (await grade({"tool_calls": {"measure": measure}}, answer, ROW)).value == 1.0


@pytest.mark.parametrize("arguments", [{}, None, "", " ", "{}", "null"])
def test_a_call_without_arguments_is_the_same_call_however_that_is_written(arguments: object) -> None:
    assert read_calls({"name": "now", "arguments": arguments}) == [ToolCall("now", {})]
    assert read_calls({"name": "now", "arguments": arguments, "input": {"zone": 1}}) == [
        ToolCall("now", {"zone": 1} if arguments is None else {})
    ]


async def test_the_parts_are_those_of_toolrl_by_hand() -> None:
    """One of two calls, with one of two values wrong and a parameter too many."""
    made = {"name": "weather", "arguments": {"town": "Ulm", "days": "2", "unit": "C"}}
    graded = await grade("tool_calls", tagged(made), ROW)
    # names 1/2, parameters 2/3, values 1; the most: 1 + (1 + 2) + (1 + 1)
    assert graded.value == pytest.approx((1 / 2 + 2 / 3 + 1) / 6)
    assert graded.parts == pytest.approx(
        {"format": 1, "name": 1 / 2, "parameter": 1 / 3, "value": 1 / 3, "order": 1 / 2, "complete": 0}
    )
    assert "mail(to=" in str(graded.critique) and 'days="2"' in str(graded.critique)


async def test_half_right_is_worth_something_by_parts_and_nothing_by_all() -> None:
    half = tagged(WEATHER)
    assert 0.5 < (await grade("tool_calls", half, ROW)).value < 1
    assert (await grade({"tool_calls": {"measure": "complete"}}, half, ROW)).value == 0.5
    assert (await grade({"tool_calls": {"measure": "all"}}, half, ROW)).value == 0.0


async def test_names_without_values_and_superfluous_calls_do_not_beat_one_right_call() -> None:
    """Every parameter name and no value; each call ten times."""
    empty = [{"name": c["name"], "arguments": dict.fromkeys(c["arguments"])} for c in (WEATHER, MAIL)]
    right = (await grade("tool_calls", tagged(WEATHER), ROW)).value
    assert (await grade("tool_calls", tagged(*empty), ROW)).value < right
    many = (await grade("tool_calls", tagged(*[WEATHER, MAIL] * 10), ROW)).value
    assert many < right and "not needed" in str(
        (await grade("tool_calls", tagged(WEATHER, MAIL, MAIL), ROW)).critique
    )


async def test_order_counts_where_it_is_asked_for() -> None:
    ordered = {"tool_calls": {"ordered": True}}
    assert (await grade(ordered, tagged(WEATHER, MAIL), ROW)).value == 1.0
    graded = await grade(ordered, tagged(MAIL, WEATHER), ROW)
    assert graded.value == pytest.approx(6.5 / 7) and "The order should be weather, mail" in str(
        graded.critique
    )


async def test_the_steps_of_an_episode_count_with_their_results_and_without_failed_calls() -> None:
    row = {"calls": [{**WEATHER, "output": {"sun": 1}}]}
    reward = build_reward("tool_calls", __import__("pathlib").Path(), "task.yaml:1")

    async def value(output: str, *more: dict[str, Any]) -> float:
        steps = [
            {"role": "task", "output": "x"},
            *more,
            {"role": "tool", **WEATHER, "output": output, "error": False},
        ]
        completion = Completion("Sunny.", steps=tuple(steps))
        return (await reward.grade(MemoryRun(), Example("row7", {"input": "q"}, None, row), completion)).value

    assert await value('{"sun": 1}') == 1.0
    assert await value('{"sun": 0}') == pytest.approx(4 / 5)
    failed = {
        "role": "tool",
        "name": "weather",
        "arguments": {"town": "Ulmm"},
        "output": "Error: no",
        "error": True,
    }
    assert await value('{"sun": 1}', failed) == 1.0
    text_only = Completion(tagged(WEATHER), steps=({"role": "task", "output": tagged(WEATHER)},))
    graded = await reward.grade(MemoryRun(), Example("row7", {"input": "q"}, None, row), text_only)
    assert graded.value == 0.0  # the episode made no call


async def test_no_call_is_right_where_none_is_expected() -> None:
    assert (await grade("tool_calls", "It is 5.", {"calls": []})).value == 1.0
    assert (await grade("tool_calls", tagged(MAIL), {"calls": []})).value == 0.0


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ("<tool_call>mail(ann)</tool_call>", "no JSON"),
        ("<tool_call>{}</tool_call>", "no name"),
        ('<tool_call>{"name": "mail", "arguments": "{"}</tool_call>', "no JSON"),
        ('<tool_call>{"name": "mail", "arguments": [1]}</tool_call>', "no object"),
        ('<tool_call>{"name": "mail"', "no JSON"),
        ('<tool_call>{"name": "mail"}<tool_call>{"name": "mail"}', "not closed"),
        (tagged(*[MAIL] * 101), "mail(to="),
        (f"<tool>{json.dumps([MAIL] * 101)}</tool>", "at most"),
        ("<tool_call>" + "[" * 100_000 + "</tool_call>", "no JSON"),
        ('<function=mail>{"to": "ann"}', "is not closed"),
        ("<function=mail>to ann</function>", "are no JSON"),
        ("<function=mail><parameter=to>ann</function>", "is not closed"),
        ("<function=mail><parameter=to>a</parameter><parameter=to>b</parameter></function>", "twice"),
        ("<function=mail>x<parameter=to>a</parameter></function>", "text between"),
        ('[mail("ann")]', "without names"),
        ("[mail(**a)]", "unpacks"),
        ("[mail(to=open('a'))]", "no literal"),
        ("[mail(to=1e999)]", "no literal"),
        ("[" + "mail(to=" * 100_000 + "]", "mail(to="),
        ("[" + "a." * 5_000 + "mail(to=1)]", "mail(to="),
    ],
)
async def test_what_cannot_be_read_earns_nothing_more_than_it_holds(answer: str, says: str) -> None:
    graded = await grade("tool_calls", answer, ROW)
    assert graded.value < 0.1 and says in str(graded.critique)


async def test_expected_calls_that_are_none_are_refused() -> None:
    for calls in (None, "no calls", [{"arguments": {}}], 5):
        with pytest.raises(UsageError, match="row7 holds no tool calls"):
            await grade("tool_calls", "x", {"calls": calls})
    with pytest.raises(
        UsageError, match=r'its text "weather\(Paris\)" is no JSON. Write a list such as \[\{"name"'
    ):
        await grade("tool_calls", "x", {"calls": "weather(Paris)"})
    with pytest.raises(UsageError, match="parts, complete or all"):
        await grade({"tool_calls": {"measure": "some"}}, "x", ROW)
    assert (await grade("tool_calls", tagged(MAIL), {"calls": json.dumps(MAIL)})).value == 1.0


@pytest.mark.parametrize(
    ("expected", "written", "right"),
    [
        (5, "5", True), ("5", "5", True), ("5", "6", False), (True, "true", True), (True, "1", False),
        (None, "null", True), ([1, "a"], '[1, "a"]', True), ([1, "a"], "[1, 'a']", True), ({"a": 1}, "a: 1", False),
        (" a\n", " a\n", True), (1.5, "one and a half", False),
    ],
)  # fmt: skip
async def test_the_text_of_a_parameter_in_tags_is_read_as_the_kind_that_is_expected(
    expected: object, written: str, right: bool
) -> None:
    row = {"calls": [{"name": "f", "arguments": {"x": expected}}]}
    answer = f"<function=f><parameter=x>\n{written}\n</parameter></function>"
    assert (await grade({"tool_calls": {"measure": "all"}}, answer, row)).value == float(right)


async def test_a_list_that_only_mentions_calls_is_none() -> None:
    nothing: dict[str, Any] = {"calls": []}
    for answer in ("[1, f(x=1)]", "[f(x=1) for x in y]", "See [f(x=1)].", "[a](b) or [c(d=1)]"):
        assert (await grade("tool_calls", answer, nothing)).value == 1.0


CALLS = st.lists(
    st.builds(
        ToolCall,
        st.sampled_from("abc"),
        st.dictionaries(st.sampled_from("xyz"), st.integers(0, 2) | st.booleans() | st.text("u", max_size=2)),
    ),
    max_size=5,
)


@given(CALLS, CALLS)
def test_the_share_is_1_for_the_same_calls_only(expected: list[ToolCall], made: list[ToolCall]) -> None:
    written = json.dumps([{"name": call.name, "arguments": call.arguments} for call in made])
    assert read_calls(json.loads(written)) == made
    assert not made or calls_in(written) == made
    share = Matched.of(expected, made).share(False)
    assert 0 <= share <= 1
    key = lambda call: json.dumps([call.name, call.arguments], sort_keys=True)  # noqa: E731
    assert (share == 1) == (sorted(map(key, expected)) == sorted(map(key, made)))
    assert Matched.of(expected, expected[::-1]).share(False) == 1
