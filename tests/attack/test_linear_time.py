"""Nothing that somebody sends costs more than linear time: every regular expression and every parser of outside text, fed
hostile texts of growing length, in seconds of this thread's processor time."""

from __future__ import annotations

import ast
import contextlib
import importlib
import itertools
import pkgutil
import re
import time
import unicodedata
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from re import _parser as sre  # type: ignore[attr-defined]
from typing import Any

import pytest
from tests.distributions import PACKAGES, ROOT, SOURCES, tree_of

from whet.errors import WhetError

SHORT, LONG = (22, 175, 700), 2_000
"""Characters. What grows like 2**n takes long at the first already, like n**3 at the third, on a fast machine too: no test
takes for ever."""
DEAR, FAR_TOO_LONG = 0.1, 1.0
"""Seconds that a short text, and one of LONG characters, may take."""
CHEAP = 0.001
"""Seconds below which growth is not looked at: a quadratic pattern is far above it at the longest text."""
MOST = 7.0
"""How much longer four times the text may take: 4 where time is linear, 16 where it is quadratic."""
METHODS = ("search", "match", "fullmatch", "findall", "finditer", "split", "sub", "subn")


def seconds(call: Callable[[str], object], text: str, times: int = 1) -> float:
    """The least time that a call takes."""
    least = float("inf")
    for _ in range(times):
        start = time.thread_time()
        with contextlib.suppress(ValueError, WhetError):  # refused is an answer
            call(text)
        least = min(least, time.thread_time() - start)
    return least


def growth(call: Callable[[str], object], shape: Callable[[int], str]) -> float:
    """How many times longer a text of four times the length takes; 0 where it costs nothing. The least of some looks counts,
    so that a busy machine is not taken for growth. What seems to grow is looked at again at four times that, since a step,
    such as where a stack ends, is no growth."""
    for n in SHORT:
        took = seconds(call, shape(n))
        if took > DEAR and (ratio := seconds(call, shape(n), 3) / DEAR) > 1:
            return MOST * ratio
        if n > SHORT[0] and took < CHEAP:
            break
    if (took := seconds(call, shape(LONG))) > FAR_TOO_LONG:
        return MOST * took
    ratio = float("inf")
    for times in (1, 2, 3):
        for n in (LONG, 4 * LONG):
            if n > LONG or times > 1:
                took = seconds(call, shape(n), times)
            if took < CHEAP:
                return 0.0
            ratio = min(ratio, took / max(seconds(call, shape(n // 4), 2 * times), CHEAP / 100))
            if ratio < MOST:
                return 0.0
    return ratio


@pytest.mark.parametrize(
    ("call", "shape"),
    [
        (re.compile(r"[\n;]\s*system").search, lambda n: "a" + "\n" * n + "b"),
        (re.compile(r"<answer>(.*?)</answer>").findall, lambda n: "<answer>" * (n // 8)),
        (re.compile(r"(a+)+b").search, lambda n: "a" * n),
        (re.compile(r"\s*\w*\s*\w*\s*;").fullmatch, lambda n: " " * n),
        (lambda text: unicodedata.normalize("NFKC", text), lambda n: "a" + "\u0315" * (n // 2) + "\u0316" * (n // 2)),
    ],
)  # fmt: skip
def test_positive_control_what_grows_faster_is_noticed(
    call: Callable[[str], object], shape: Callable[[int], str]
) -> None:
    assert growth(call, shape) >= MOST


# The regular expressions.


class Pattern:
    """One pattern of the source: where it stands, and the methods it is used with."""

    def __init__(self, where: str, pattern: re.Pattern[Any], methods: set[str]) -> None:
        self.where, self.pattern = where, pattern
        self.methods = {name if "match" in name else "findall" for name in methods}


@cache
def modules() -> dict[str, Any]:
    """Every module of the three packages that can be imported here."""
    loaded = {}
    for info in (
        info for top, folder in PACKAGES.items() for info in pkgutil.walk_packages([str(folder)], f"{top}.")
    ):
        if info.name.endswith("__main__"):
            continue
        try:
            loaded[info.name] = importlib.import_module(info.name)
        except (ImportError, WhetError):
            warnings.warn(f"{info.name} cannot be imported here", stacklevel=1)
    return loaded


Node = ast.Attribute | ast.Call | ast.FunctionDef | ast.AsyncFunctionDef


@cache
def nodes() -> dict[Path, list[Node]]:
    """What is read of the source, by file: attributes, calls and functions."""
    return {
        file: [node for node in ast.walk(tree_of(file)) if isinstance(node, Node)]
        for file in SOURCES.values()
    }


@cache
def used_with() -> dict[tuple[str, str], set[str]]:
    """The methods that are called on each name of a pattern: in its module, of a public name also elsewhere."""
    used: dict[tuple[str, str], set[str]] = {}
    for file, read in nodes().items():
        for node in read:
            if isinstance(node, ast.Attribute) and node.attr in METHODS and isinstance(node.value, ast.Name):
                name = node.value.id
                home = str(file) if name.startswith("_") else ""
                used.setdefault((home, name), set()).add(node.attr)
    return used


def inline() -> Iterator[tuple[Path, ast.Call, str]]:
    """Each call re.METHOD(pattern, ...)."""
    for file, read in nodes().items():
        for node in read:
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and isinstance(node.func.value, ast.Name)
                and node.func.value.id == "re"
                and node.func.attr in (*METHODS, "compile")
            ):
                yield file, node, node.func.attr


@cache
def patterns() -> tuple[Pattern, ...]:
    """Every pattern of the source: values of modules (also within tuples and dicts), and constants in calls."""
    collected: dict[tuple[str, int], Pattern] = {}

    def add(where: str, value: object, methods: set[str]) -> None:
        if isinstance(value, re.Pattern):
            key = str(value.pattern), value.flags
            collected.setdefault(key, Pattern(where, value, set())).methods.update(
                Pattern(where, value, methods or {"findall", "fullmatch"}).methods
            )
        elif isinstance(value, tuple | list | frozenset | set):
            for one in value:
                add(where, one, methods)
        elif isinstance(value, dict):
            for one in value.values():
                add(where, one, methods)

    for module, loaded in modules().items():
        for name, value in vars(loaded).items():
            home = str(getattr(loaded, "__file__", "")) if name.startswith("_") else ""
            add(f"{module}.{name}", value, used_with().get((home, name), set()))
    for file, call, method in inline():
        place = {"sub": 4, "subn": 4, "split": 3, "compile": 1}.get(method, 2)
        flags = [k.value for k in call.keywords if k.arg == "flags"] + call.args[place:]
        if method != "compile" and isinstance(call.args[0], ast.Constant):
            value = call.args[0].value
            source = value.decode("latin-1") if isinstance(value, bytes) else str(value)
            names = {n.attr for flag in flags for n in ast.walk(flag) if isinstance(n, ast.Attribute)}
            bits = sum(getattr(re, name) for name in names)
            add(f"{file.relative_to(ROOT)}:{call.lineno}", re.compile(source, bits), {method})
    return tuple(collected.values())


CLASSES = {
    "CATEGORY_DIGIT": "0", "CATEGORY_SPACE": " \n\t", "CATEGORY_WORD": "a0_", "CATEGORY_NOT_DIGIT": "a ",
    "CATEGORY_NOT_SPACE": "a-", "CATEGORY_NOT_WORD": " -\n",
}  # fmt: skip


def members(items: Any) -> str:
    """A few characters of a class."""
    if items and str(items[0][0]) == "NEGATE":
        out = set(members(items[1:]))
        return "".join(c for c in 'a0 \n-<(".' if c not in out)[:4] or "é"
    chars = ""
    for op, value in items:
        if str(op) == "LITERAL":
            chars += chr(value)
        elif str(op) == "RANGE":
            chars += chr(value[0]) + chr(value[1])
        elif str(op) == "CATEGORY":
            chars += CLASSES[str(value)]
    return chars[:8]


def example(parsed: Any, letters: set[str], parts: set[str]) -> str:
    """A short text that a parsed pattern matches; its characters go into `letters`, prefixes and pieces into `parts`."""
    text = ""
    for op, value in parsed:
        piece, kind = "", str(op)
        if kind == "LITERAL":
            piece = chr(value)
            letters.add(piece)
        elif kind == "NOT_LITERAL":
            piece = "a" if value != ord("a") else "b"
            letters |= {piece, " ", "\n"} - {chr(value)}
        elif kind == "ANY":
            piece = "a"
            letters |= {"a", " "}
        elif kind == "IN":
            chars = members(value)
            letters |= set(chars)
            piece = chars[:1]
        elif kind == "BRANCH":
            pieces = [example(branch, letters, parts) for branch in value[1]]
            parts |= set(pieces)
            piece = pieces[0]
        elif kind == "SUBPATTERN":
            piece = example(value[-1], letters, parts)
        elif kind == "ATOMIC_GROUP":
            piece = example(value, letters, parts)
        elif kind in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            inner = example(value[2], letters, parts)
            parts |= {text + inner, inner}
            piece = inner * max(1, min(int(value[0]), 40))
        elif kind in ("ASSERT", "ASSERT_NOT"):
            example(value[1], letters, parts)
        text += piece
        parts.add(text)
    return text


def shapes(pattern: re.Pattern[Any]) -> Iterator[tuple[str, Callable[[int], str]]]:
    """Hostile texts for a pattern: repeats of its characters and pieces, alone, in pairs, after what it begins with and
    before what it does not end with."""
    letters, parts = {"a", " ", "\n"}, set[str]()
    flags = pattern.flags & ~re.UNICODE if isinstance(pattern.pattern, bytes) else pattern.flags
    whole = example(sre.parse(pattern.pattern, flags), letters, parts)
    pieces = sorted({part for part in parts if part} | letters, key=lambda part: (len(part), part))
    few = pieces[:8] + pieces[8 :: max(1, len(pieces) // 6)]
    for piece, end in itertools.product(few, ("", "!", "\n", "\x00")):
        yield f"{piece!r} * n + {end!r}", lambda n, p=piece, e=end: (p * (n // len(p) + 1))[:n] + e
    for one, other in itertools.permutations(few, 2):
        yield f"{one!r} + {other!r} * n", lambda n, a=one, b=other: a + (b * (n // len(b) + 1))[:n] + "\x00"
        yield f"({one!r} + {other!r}) * n", lambda n, a=one, b=other: ((a + b) * (n // len(a + b) + 1))[:n]
    for letter in sorted(letters):
        for start, end in ((whole, ""), (whole[:-1], whole), ("", whole[:-1]), ("a", "b")):
            yield (
                f"{start!r} + {letter!r} * n + {end!r}",
                lambda n, s=start, c=letter, e=end: s + c * n + e,
            )


def test_every_pattern_takes_linear_time() -> None:
    """One test for all of them: to name them, every collection would import and parse the whole package."""
    assert patterns()
    slow = [
        f"{entry.where}: {entry.pattern.pattern!r}.{method}({name}) grows {ratio:.1f} times"
        for entry in patterns()
        for method in sorted(entry.methods)
        for name, ratio in ratios(entry.pattern, method)
        if ratio >= MOST
    ]
    assert slow == []


def ratios(pattern: re.Pattern[Any], method: str) -> Iterator[tuple[str, float]]:
    """How much longer each hostile text of four times the length takes."""
    call = getattr(pattern, method)
    for name, shape in shapes(pattern):
        read = (lambda text: call(text.encode())) if isinstance(pattern.pattern, bytes) else call
        yield name, growth(read, shape)


# The parsers of outside text.

EDGE = "\u0315"
"""A mark that is written over the letter before it, and that Unicode's normal form moves behind others."""


FRAMES = ("a", "b"), ('{"requirements": [{"text": "', '"}]}')


@cache
def texts(*frames: tuple[str, str]) -> dict[str, Callable[[int], str]]:
    """Hostile texts for any parser, each within these frames."""
    pieces = [
        *"a \n\t\r0[]{}()<>\"'`\\/:,;.!?#*-_=|&%@~^$+\x00\u200b\u0315é", "\r\n", "\n ", " \n",
        "a\n", "a ", "a b. ", "- a\n", "1. a\n",
        "1) a", "[1] a\n", "[[", "[{", '{"a":', '{"a":[', '[["', '{"', "{'a': ", "\"a\",",
        '"" ', "a,", '"a\n', "```", "```json\n", "``` a\n",
        "~~~\n", "<think>", "<think></think>", "</think>", "<prompt>", "<prompt ", "< prompt",
        "</prompt>", "<answer>", "<tool>", "<text>a",
        "{{", "{{a", "{{ a }}", "}}", "<!--", "<!-- whet:begin", "<!-- whet:begin -->",
        "<!-- whet:begin a -->\n", "<!-- whet:end -->", "---\n",
        "System:", "System:\n", "\nuser: a", "<|a|>", "https://a", "www.a.", "a@a.", "a@", "sk-",
        "+1 ", "1 2", "a/b", "%41", "\\u0041", "\\\"",
        "score: 1\n", "score: ", "1: yes\n", "yes ", "no, ", "explanation: ", "true", "null,",
        "1e9", "-1.", "A=B\n", "a: b\n", "a:\n  ", "&a ",
        "*a ", "!!a ", "? ", "> ", "| ", "a;b;c\n", "a\tb\n", "\u202e", "\ufdfa", "ı", "ß",
        "2026-01-01T", "Dear AI, ", "the ", "not ",
    ]  # fmt: skip
    shapes_: dict[str, Callable[[int], str]] = {}
    for piece in pieces:
        for start, end in frames:
            shapes_[f"{start!r} + {piece!r} * n + {end!r}"] = lambda n, s=start, p=piece, e=end: (
                s + (p * (n // len(p) + 1))[:n] + e
            )
    pairs = (
        ("[", "]"), ("{", "}"), ('{"a":', "}"), ("<prompt>", "</prompt>"), ("(", ")"), ("<", ">"), ("```\n", "\n```"),
        (EDGE, "\u0316"), ("<think>", "</think>"), ("a ", "b "), ("- a\n", "  b\n"), ("{", "["), ("1. a\n", "\n"),
    )  # fmt: skip
    for one, other in pairs:
        shapes_[f"{one!r} * n + {other!r} * n"] = lambda n, a=one, b=other: (
            a * (n // len(a) // 2) + b * (n // len(b) // 2)
        )
        shapes_[f"({one!r} + {other!r}) * n"] = lambda n, a=one, b=other: (a + b) * (n // len(a + b))
    return shapes_


@cache
def parsers() -> dict[str, Callable[[str], object]]:
    """Every function that reads what a model, an application, a person or a file says."""
    import json
    import tempfile

    from whet._util import words
    from whet.environments import labels, tools
    from whet.feedback import comments
    from whet.instructions import answers, confirm, guard, questions, reader
    from whet.methods import prl, prompt_r1
    from whet.models import openai_wire
    from whet.prompt import Prompt, ledger
    from whet.prompt import instructions as managed
    from whet.replies import (
        between,
        blocks,
        json_values,
        list_items,
        quotations,
        texts_in,
        without_thought,
    )
    from whet.reporting import diff as shown_diff
    from whet.rewards import (
        asking,
        checklist,
        checks,
        dates,
        fields_of_json,
        item_list,
        judge,
        listwise,
        score_reading,
        text,
        yes_no,
    )  # fmt: skip
    from whet.rewards.numbers import numbers_in
    from whet.rewards.preference import features
    from whet.rewards.verifiers import linear_model
    from whet.rewards.verifiers.math_places import read_answer
    from whet.rewards.verifiers.tool_calls import calls_in
    from whet.search import copies, edits
    from whet.task import rows as task_rows
    from whet.task import save
    from whet.types import Completion
    from whet_client.prompt import document, fence
    from whet_live.traffic import adapters, otlp, schema

    one = judge.Judge("Be brief.", (1.0, 5.0), 1, judge.IGNORE)
    known = [answers.Known("i1", "Be polite."), answers.Known("i2", "Name the source.")]
    folder = Path(tempfile.mkdtemp())

    def file(name: str, read: Callable[[Path], object]) -> Callable[[str], object]:
        def parse(content: str) -> object:
            (folder / name).write_text(content, "utf-8", errors="replace")
            return read(folder / name)

        return parse

    def feedback(content: str) -> object:
        row = {"kind": "comment", "target": "a", "text": content[:8000], "id": content[:200]}
        return schema.parse_feedback({"feedback": [row]})

    return {
        "guard.suspicions": guard.suspicions,
        "guard.secrets": lambda t: guard.secrets(t, ["canary"]),
        "guard.strange_addresses": lambda t: (
            guard.strange_addresses(t, "a"),
            guard.strange_addresses("a", t),
        ),
        "guard.visible": guard.visible,
        "copies": lambda t: copies.longest_copy("a a a. - 1" * 8, [t], t),
        "replies.texts_in": lambda t: [
            texts_in(Completion(t), tag, many=m, bare=m) for tag in ("prompt", "text") for m in (True, False)
        ],
        "replies.json_values": lambda t: (json_values(t), json_values(t, whole=False)),
        "replies.between": lambda t: between(t, "<answer>", "</answer>"),
        "replies.list_items": list_items,
        "replies.blocks": blocks.blocks_in,
        "replies.without_thought": without_thought,
        "answers.understood": lambda t: answers.understood(Completion(t), known, 4),
        "answers.listed": lambda t: answers.read_listed(Completion(t), known),
        "answers.restated": lambda t: answers.restated_texts(Completion(t), 4),
        "answers.clean": answers.clean_instruction,
        "answers.resolved": lambda t: answers.resolve_id(t, known),
        "confirm.verdict": lambda t: confirm.read_confirmation(Completion(t)),
        "reader.is_copy": lambda t: (reader.is_copy(t, ["a b c"]), reader.is_copy("a b c", [t])),
        "questions.one_line": questions.one_line,
        "instructions.refusal": managed.reason_to_refuse,
        "comments.correction": lambda t: (comments.correction(t, t[::-1]), comments.correction(t, t + "a")),
        "judge.read": lambda t: (one.read(t), one.read(t, place=1)),
        "judge.quotations": lambda t: quotations.hide_pieces(t, quotations.quotations_in(t)),
        "judge.number": lambda t: score_reading.score_number(t, (1.0, 5.0)),
        "judge.yes_or_no": lambda t: (asking.yes_or_no(t), asking.without_verdict(t)),
        "yes_no": yes_no._vote,
        "listwise": lambda t: listwise.read_placement(t, [0, 1, 2]),
        "checklist.findings": lambda t: checklist.read_findings(t, 4),
        "checklist.items": checklist.read_items,
        "checks": lambda t: [
            checks.Check("json").fault(t),
            checks.Check("max_lines", 2).fault(t),
            checks.Check("max_words", 2).fault(t),
        ],
        "rewards.f1": lambda t: text.f1_score(t, "a b"),
        "rewards.contains": lambda t: text.Contains()._find(t, "12"),
        "rewards.numbers": lambda t: list(numbers_in(t)),
        "rewards.math_equal": lambda t: read_answer(t, "cm"),
        "rewards.tool_calls": calls_in,
        "rewards.solver": lambda t: linear_model.read_model("max " + t),
        "rewards.dates": lambda t: [dates._last(t, "", names) for names in ("", "de")],
        "rewards.json": fields_of_json.json_in,
        "rewards.list": lambda t: item_list.ItemList()._items(t),
        "words": lambda t: (
            words.split_words(words.fold(t)),
            words.bare(t),
            words.mentions(words.fold(t), ["a", "b c"]),
        ),
        "labels": lambda t: labels.find_label(t, {"yes": "good", "no": "bad"}),
        "tools.find_calls": lambda t: (tools.find_calls(t), tools.final(t)),
        "prl": lambda t: (prl.answer_in(t), prl.format_reward("<think>" + t + "</think><answer></answer>")),
        "prompt_r1": lambda t: prompt_r1.format_reward([t, "<think>" + t + "</think><answer></answer>"]),
        "openai_wire": lambda t: openai_wire._message(t.encode("utf-8", "replace")),
        "prompt.parse": lambda t: Prompt.parse(t).region_text(),
        "prompt.free_block": document._free_block,
        "prompt.without_markers": fence.without_markers,
        "prompt.ledger": ledger.read_ledger,
        "edits.spans": lambda t: [edits.spans(t, level) for level in ("word", "phrase", "sentence")],
        "reporting.diff": lambda t: (shown_diff.diff_lines(t, t[::-1]), shown_diff.diff_lines(t, "a" + t)),
        "traffic.feedback": feedback,
        "traffic.foreign": lambda t: schema.parse_feedback(
            {"feedback": [{"trace_id": "a", "name": t[:200], "comment": t, "score": t}]}
        ),
        "traffic.names": adapters.snake_case,
        "traffic.moment": adapters.microseconds_of,
        "traffic.number": adapters.as_number,
        "traffic.otlp": lambda t: otlp.parse_otlp(t.encode("utf-8", "replace"), "application/json", "traces"),
        "traffic.otlp protobuf": lambda t: otlp.parse_otlp(
            t.encode("utf-8", "replace"), "application/x-protobuf", "traces"
        ),
        "traffic.otlp attributes": lambda t: otlp.parse_otlp(
            json.dumps(span(t)).encode(), "application/json", "traces"
        ),
        "task.save": lambda t: save._named_by(t, "a", ["b"]),
        "task csv": file("d.csv", lambda path: task_rows.read_rows(path, "task.yaml")),
        "task json": file("d.json", lambda path: task_rows.read_rows(path, "task.yaml")),
        "task jsonl": file("d.jsonl", lambda path: task_rows.read_rows(path, "task.yaml")),
        "features": lambda t: features._WORD.findall(t),
    }


def span(content: str) -> dict[str, Any]:
    """A trace whose attributes hold a text wherever one may stand."""
    names = (
        "gen_ai.input.messages",
        "gen_ai.output.messages",
        "input.value",
        "output.value",
        "llm.prompts",
        "session.id",
    )
    attributes = [{"key": name, "value": {"stringValue": content}} for name in names]
    attributes += [
        {"key": content[:500], "value": {"stringValue": "a"}},
        {"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}},
    ]
    spans = [{"traceId": "0" * 31 + "1", "spanId": "0" * 15 + "1", "name": "a", "attributes": attributes}]
    return {"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}


def test_a_call_with_a_pattern_made_at_run_time_is_in_a_parser_above() -> None:
    """These cannot be read from the source; each stands for a parser that is fed above, or for a pattern of the user's own."""
    fed = {
        "environments/environment.py", "methods/prl.py", "methods/prompt_r1.py",
        "replies/texts.py", "replies/values.py", "rewards/judge.py", "rewards/text.py", "whet_live/traffic/otlp/decode.py",
    }  # fmt: skip
    own = {
        "instructions/critiques.py",
        "rewards/patterns.py",
        "search/corrections.py",
        "environments/games.py",
        "task/promptfoo.py",
        "task/promptfoo_reward.py",
        "task/prompts.py",
        "task/tree.py",
    }
    names = {path: name for name, path in SOURCES.items()}
    dynamic = {
        names[file]
        for file, call, method in inline()
        if not isinstance(call.args[0], ast.Constant) and not _at_import(file, call)
    }
    assert dynamic <= fed | own, f"feed what reads outside text in {dynamic - fed - own} to a test above"


def _at_import(file: Path, call: ast.Call) -> bool:
    """Whether a call stands outside every function: its value was collected."""
    functions = [node for node in nodes()[file] if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return not any(one.lineno <= call.lineno <= (one.end_lineno or 0) for one in functions)


@pytest.mark.parametrize("name", parsers())
def test_a_parser_takes_linear_time(name: str) -> None:
    parse = parsers()[name]
    reads_json = name.startswith(("replies.texts", "replies.json", "answers", "traffic.otlp"))
    for shape, text in texts(*FRAMES[: 1 + reads_json]).items():
        ratio = growth(parse, text)
        assert ratio < MOST, f"{name} of {shape} grows {ratio:.1f} times for four times the text"
