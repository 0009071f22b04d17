"""Tool calls: how they are read, made, recorded and counted, and what goes wrong with them."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Optional

import pytest
from tests.engine.world import Model, close, open_core, run_of
from tests.environments.worlds import Lines, examples

from whet.environments import Conversation, Trajectory, play
from whet.environments.tools import LONGEST, Tool, ToolWorld, final, find_calls, load_tools
from whet.errors import UsageError
from whet.run import MemoryRun
from whet.types import Message

if TYPE_CHECKING:
    from tests.environments.worlds import Lines as Unknown

FILE = '''
import math

_SECRET = {"moon": 384400}


def add(a: float, b: float) -> float:
    """The sum of two numbers."""
    print("adding")
    return a + b


def distance(place: str) -> str:
    """Kilometres from the earth to a place."""
    return f"{_SECRET[place]} km"


def roots(x: float) -> list:
    """Both square roots."""
    return [math.sqrt(x), -math.sqrt(x)]


def _private(x):
    return x
'''


@pytest.fixture
def world(tmp_path: Path) -> ToolWorld:
    (tmp_path / "tools.py").write_text(FILE)
    return ToolWorld(load_tools(tmp_path / "tools.py", "task.yaml:4"), 4, tmp_path / "tools.py")


def call(name: str, **arguments: Any) -> str:
    return f"<tool>{json.dumps({'name': name, 'arguments': arguments})}</tool>"


async def ask(world: ToolWorld, *texts: str) -> Trajectory:
    """Play one question; the actor says the texts, one a turn."""
    actor = Lines(lambda c: texts[sum(m.role == "assistant" for m in c)])
    episode = world.reset(examples(1)[0], (Message("system", "Be exact."), Message("user", "How far?")))
    (played,) = await play(MemoryRun(), actor, [episode])
    return played


def test_the_public_functions_of_a_file_are_tools(world: ToolWorld) -> None:
    assert [tool.name for tool in world.tools] == ["add", "distance", "roots"]
    assert world.tools[0].description == "add(a: float, b: float) -> float: The sum of two numbers."


def test_the_manual_stands_in_the_system_message(world: ToolWorld) -> None:
    question = Message("user", "How far?")
    with_system = world.reset(examples(1)[0], (Message("system", "Be exact."), question)).opening
    without = world.reset(examples(1)[0], (question,)).opening
    assert with_system == (Message("system", f"Be exact.\n\n{world.manual}"), question)
    assert without == (Message("system", world.manual), question)
    assert "- distance(place: str) -> str: Kilometres from the earth to a place." in world.manual


async def test_a_call_brings_an_observation_and_a_text_without_one_ends(
    world: ToolWorld, capsys: pytest.CaptureFixture[str]
) -> None:
    played = await ask(
        world, "I look it up. " + call("distance", place="moon"), call("add", a=1, b=2.5), " 384400 km "
    )
    assert [t.observation for t in played.turns] == ["How far?", "384400 km", "3.5"]
    assert (played.answer, played.end) == ("384400 km", "done")
    assert played.notes == {"tool_calls": 2.0, "tool_errors": 0.0}
    assert capsys.readouterr().out == "", "what a tool prints does not reach stdout"


async def test_the_answer_may_be_marked(world: ToolWorld) -> None:
    assert (await ask(world, "It must be <answer> 7 </answer>.")).answer == "7"
    assert final("<answer>1</answer> no, <answer>2</answer>") == "2" and final(" plain ") == "plain"


async def test_a_call_that_stands_alone_on_a_line_counts(world: ToolWorld) -> None:
    played = await ask(world, 'Let me add.\n{"name": "add", "arguments": {"a": 1, "b": 1}}', "2")
    assert (played.turns[1].observation, played.answer) == ("2", "2")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (call("distanse", place="moon"), 'Error: there is no tool "distanse". Did you mean "distance"?'),
        (call("distance", place="mars"), "Error: KeyError: 'mars'"),
        (call("add", a=1), "Error: TypeError: missing a required argument: 'b'"),
        (call("add", a=1, b=2, c=3), "Error: TypeError: got an unexpected keyword argument 'c'"),
        (call("roots", x=-1), "Error: ValueError"),
        ("<tool>{add 1 2}</tool>", "Error: the call is not valid JSON"),
        ("<tool>[1, 2]</tool>", 'Error: a call is an object with "name" and "arguments".'),
        (
            '<tool>{"name": "add", "arguments": [1, 2]}</tool>',
            "Error: the arguments of add must be an object",
        ),
    ],
)
async def test_an_error_is_an_observation(world: ToolWorld, text: str, said: str) -> None:
    played = await ask(world, text, "I do not know.")
    assert played.turns[1].observation.startswith(said)
    assert (played.end, played.notes["tool_errors"]) == ("done", 1.0)


@dataclass
class Item:
    """What somebody orders."""

    name: str
    count: int


def typed(  # type: ignore[no-untyped-def]
    number: int = 0,
    part: float = 0.0,
    text: str = "",
    word: Literal["m", "k"] = "m",
    perhaps: Optional[int] = 1,  # noqa: UP045
    none: str = None,  # type: ignore[assignment]  # noqa: RUF013
    numbers: list[int] = [],  # noqa: B006
    item: Item | None = None,
    path: Path = Path(),
    later: Unknown = 0,  # type: ignore[assignment]
    free=0,
    **more: int,
) -> str:
    """What came."""
    given = [number, part, text, word, perhaps, none, numbers, item, path, later, free, more]
    defaults = [0, 0.0, "", "m", 1, None, [], None, Path(), 0, 0, {}]
    return repr([one for one, default in zip(given, defaults, strict=True) if one != default])


@pytest.mark.parametrize(
    ("name", "value", "came"),
    [
        ("number", 2, "[2]"),
        ("number", "2", "[2]"),
        ("number", "-3", "[-3]"),
        ("part", 2, "[2]"),
        ("part", "2", "[2]"),
        ("part", "2.5", "[2.5]"),
        ("text", "2", "['2']"),
        ("word", "k", "['k']"),
        ("perhaps", None, "[None]"),
        ("perhaps", "7", "[7]"),
        ("none", None, "[]"),
        ("numbers", [1, 2], "[[1, 2]]"),
        ("item", {"name": "tea", "count": 2}, "[Item(name='tea', count=2)]"),
        ("path", "a.txt", "['a.txt']"),
        ("later", "x", "['x']"),
        ("free", "2", "['2']"),
        ("free", None, "[None]"),
        ("other", "2", "[{'other': 2}]"),
    ],
)
def test_a_tool_gets_what_its_annotations_say(name: str, value: Any, came: str) -> None:
    assert Tool.of(typed).call({name: value}) == came


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("number", "two", 'number must be int; this is "two"'),
        ("number", 2.5, "number must be int; this is 2.5"),
        ("number", "2.5", 'number must be int; this is "2.5"'),
        ("number", True, "number must be int; this is true"),
        ("number", None, "number must be int; this is null"),
        ("number", "½" * 100, f'number must be int; this is "{"½" * 79}…'),
        ("part", "nan", 'part must be float; this is "nan"'),
        ("text", 2, "text must be str; this is 2"),
        ("word", "z", "word must be Literal['m', 'k']; this is \"z\""),
        (
            "numbers",
            [1, "x"],
            'numbers must be list[int]; this is [1, "x"] (Expected `int`, got `str` - at `$[1]`)',
        ),
        (
            "item",
            {"name": "tea"},
            'item must be Item | None; this is {"name": "tea"} (Object missing required field',
        ),
        ("other", "x", 'other must be int; this is "x"'),
    ],
)
async def test_an_argument_that_does_not_fit_its_annotation_is_an_error(
    name: str, value: Any, said: str
) -> None:
    played = await ask(ToolWorld((Tool.of(typed),), 4), call("typed", **{name: value}), "I do not know.")
    assert played.turns[1].observation.startswith(f"Error: TypeError: the argument {said}")
    assert (played.end, played.notes["tool_errors"]) == ("done", 1.0)


@pytest.mark.parametrize("rest", ["", "\nObservation: 99", "</tool"])
async def test_a_call_that_is_not_closed_counts(world: ToolWorld, rest: str) -> None:
    """A stop text, or the limit on an answer, may take the end of the tag."""
    played = await ask(world, call("add", a=1, b=1).removesuffix("</tool>") + rest, "2")
    assert (played.turns[1].observation, played.answer) == ("2", "2")


async def test_half_a_call_is_an_error_and_no_answer(world: ToolWorld) -> None:
    played = await ask(world, '<tool>{"name": "add", "argum', "I do not know.")
    assert played.turns[1].observation.startswith("Error: the call is not valid JSON")
    assert played.answer == "I do not know."


@pytest.mark.parametrize(
    "text",
    [
        "It is 5.",
        "The <tool> tag was of no use: 5.",
        '{"answer": 5}',
        '{"name": "add"}',
        "name: add",
        "",
        "{}",
        '["name", "arguments"]',
    ],
)
def test_what_is_no_call(text: str) -> None:
    assert find_calls(text) == []


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name": "add", "arguments": {"a": 1, "b": 2}}</tool_call>',
        '<tool>{"name": "add", "parameters": {"a": 1, "b": 2}}</tool>',
        'I add. <tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}',
    ],
)
async def test_calls_as_other_models_write_them_are_made(world: ToolWorld, text: str) -> None:
    played = await ask(world, text, "3")
    assert (played.turns[1].observation, played.answer) == ("3", "3")


async def test_a_reply_makes_one_call_and_says_so(world: ToolWorld) -> None:
    played = await ask(world, call("add", a=1, b=2) + call("add", a=2, b=2), call("add", a=2, b=2), "3 and 4")
    first, second = [turn.observation for turn in played.turns[1:]]
    assert first.startswith("3\n(This is the result of the first call. The reply had 2;") and second == "4"


async def test_in_the_last_turn_no_call_is_made(world: ToolWorld) -> None:
    played = await ask(world, *[call("add", a=i, b=i) for i in range(9)])
    assert (len(played.turns), played.end, played.answer) == (4, "turns", None)
    assert [t.observation for t in played.turns[1:]] == ["0", "2", "4"]


async def test_a_long_result_is_cut(tmp_path: Path) -> None:
    def flood(n: int) -> str:
        """Many letters."""
        return "x" * n

    world = ToolWorld((Tool.of(flood),), 3)
    played = await ask(world, call("flood", n=LONGEST + 1), "done")
    assert played.turns[1].observation == "x" * LONGEST + f" ... ({LONGEST + 1} characters)"
    assert (await ask(world, call("flood", n=LONGEST), "done")).turns[1].observation == "x" * LONGEST


async def test_what_is_no_text_becomes_one(tmp_path: Path) -> None:
    def odd(kind: str) -> Any:
        """Something odd."""
        return {"none": None, "set": {1}, "half": "\ud800", "number": 0.5}[kind]

    world = ToolWorld((Tool.of(odd),), 6)
    played = await ask(world, *[call("odd", kind=k) for k in ("none", "set", "half", "number")], "done")
    assert [t.observation for t in played.turns[1:]] == ["null", '"{1}"', "?", "0.5"]


def undocumented(x: int) -> int:
    return x


async def coroutine(x: int) -> int:
    """Not an ordinary function."""
    return x


@pytest.mark.parametrize(
    ("function", "said"), [(undocumented, "no docstring"), (coroutine, "ordinary function"), (print, None)]
)
def test_what_can_be_no_tool_is_refused(function: Callable[..., Any], said: str | None) -> None:
    if said is None:
        assert Tool.of(function).name == "print"
        return
    with pytest.raises(UsageError, match=said):
        Tool.of(function)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", r"tools.py:1: there is no function"),
        ("from math import sqrt\n", r"tools.py:1: there is no function"),
        ("\ndef f(x):\n    return x\n", r"tools.py:2: the tool f has no docstring"),
        ("def f(:\n", r"tools.py:1: the file does not load"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "tools.py").write_text(text)
    with pytest.raises(UsageError, match=said):
        load_tools(tmp_path / "tools.py", "task.yaml:4")


async def test_a_recorded_call_is_not_made_again(tmp_path: Path) -> None:
    made: list[int] = []

    def count(x: int) -> int:
        """Count."""
        made.append(x)
        return len(made)

    world = ToolWorld((Tool.of(count),), 4)

    def says(conversation: Conversation) -> str:
        turn = sum(m.role == "assistant" for m in conversation)
        return call("count", x=turn) if turn < 2 else conversation[-1].content

    async def attempt() -> Trajectory:
        core = open_core(tmp_path / "run", Model())
        try:
            (played,) = await play(
                run_of(core), Lines(says), [world.reset(examples(1)[0], (Message("user", "?"),))]
            )
            return played
        finally:
            await close(core)

    first = await attempt()
    assert made == [0, 1] and first.answer == "2"
    assert await attempt() == first and made == [0, 1]


async def test_a_call_that_takes_too_long_is_an_error_for_the_model() -> None:
    free = threading.Event()

    def wait() -> str:
        """Comes back when it is let."""
        free.wait()
        return "late"

    world = ToolWorld((Tool.of(wait),), 4, seconds=0.05)
    try:
        found = await ask(world, call("wait"), "I cannot tell.")
    finally:
        free.set()
    assert found.turns[1].observation == "Error: wait took longer than 0.05 seconds."
    assert found.end == "done" and found.notes["tool_errors"] == 1.0


async def test_what_a_tool_prints_is_no_result(capsys: pytest.CaptureFixture[str]) -> None:
    def noisy() -> str:
        """Prints, and returns."""
        print("working on it")
        return "done"

    found = await ask(ToolWorld((Tool.of(noisy),), 4), call("noisy"), "Good.")
    assert found.turns[1].observation == "done"
    said = capsys.readouterr()
    assert said.out == "" and said.err == "working on it\n"
