"""YAML as a tree whose every value knows its file and line, with readers that refuse the wrong type.

Plain words are read as in YAML 1.2's core schema: `yes`, `no`, `on` and dates are text, `1e-3` is a number.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import yaml

from whet._util.storable import LARGEST, is_number
from whet.errors import UsageError, did_you_mean
from whet.task.files import read_text
from whet_client.storable import repair_surrogates, show_value

MOST_NODES = 20_000
_TAG = "tag:yaml.org,2002:"


class _Loader(yaml.SafeLoader):
    """PyYAML's parser with the plain words of YAML 1.2."""

    yaml_implicit_resolvers: dict[str, object] = {}  # noqa: RUF012


for _kind, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?(?:0|[1-9][0-9_]{0,30})|0x[0-9a-fA-F]{1,30}|0o[0-7]{1,30}", list("-+0123456789")),
    (
        "float",
        r"[-+]?(?:\.[0-9]+|[0-9][0-9_]*(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        list("-+.0123456789"),
    ),
):
    _Loader.add_implicit_resolver(_TAG + _kind, re.compile(rf"^(?:{_pattern})$"), _first)


@dataclass(frozen=True)
class Node:
    """One YAML value. `value` is a scalar, a list of nodes, or a dict of nodes.

    `line` is where the value's key stands, `first` where its text begins (both from 1); `raw` is a scalar as
    it was written. `place` is where a value came from that stands in no file.
    """

    path: Path
    line: int
    first: int
    value: Any
    raw: str = ""
    place: str = ""

    @classmethod
    def of(cls, value: object, place: str) -> Node:
        """A Python value as a tree; `place` is how messages call it."""
        inner: object = value
        if isinstance(value, Mapping):
            inner = {str(key): cls.of(item, f"{place}: {key}") for key, item in value.items()}
        elif isinstance(value, list | tuple):
            inner = [cls.of(item, place) for item in value]
        elif isinstance(value, str | Path):
            inner = str(value)
            if repair_surrogates(inner) != inner:
                raise UsageError(
                    f"{place}: half of a surrogate pair stands alone in {show_value(inner)}; it is no character. Remove it."
                )
        raw = "" if isinstance(inner, dict | list) or inner is None else str(inner)
        return cls(Path(), 1, 1, inner, raw, place)

    @property
    def where(self) -> str:
        """file:line, or the place of a value that stands in no file."""
        return self.place or f"{self.path}:{self.line}"

    def refuse(self, message: str) -> NoReturn:
        """Raise UsageError at this place, which is named once where the message begins with it."""
        raise UsageError(
            message if self.place and message.startswith(self.place) else f"{self.where}: {message}"
        )

    def plain(self) -> Any:
        """The value as ordinary Python lists, dicts and scalars."""
        if isinstance(self.value, list):
            return [item.plain() for item in self.value]
        if isinstance(self.value, dict):
            return {key: item.plain() for key, item in self.value.items()}
        return self.value

    def mapping(self, what: str, known: Iterable[str] | None = None) -> dict[str, Node]:
        """Keys and values; with `known`, any other key is refused with the nearest known one."""
        if not isinstance(self.value, dict):
            write = "Its keys" if self.place else "Write `key: value` lines under it; keys"
            example = f" {write}: {', '.join(known)}." if known else ""
            self.refuse(f"{what} must be a mapping of keys to values; this is {self.kind()}.{example}")
        names = None if known is None else list(known)
        for key, node in self.value.items():
            if names is not None and key not in names:
                node.refuse(f'{what} has no key "{key}".{did_you_mean(key, names)}')
        nodes: dict[str, Node] = self.value
        return nodes

    def sequence(self, what: str, example: str) -> list[Node]:
        """The items of a list."""
        if not isinstance(self.value, list):
            self.refuse(f"{what} must be a list; this is {self.kind()}. Write {example}.")
        nodes: list[Node] = self.value
        return nodes

    def text(self, what: str, example: str) -> str:
        """A scalar as it was written: `yes`, `2024` and `true` are texts here; nothing and empty are
        refused.
        """
        if isinstance(self.value, list | dict) or self.value is None:
            self.refuse(f"{what} must be text; this is {self.kind()}. Write {example}.")
        if not self.raw.strip():
            self.refuse(f"{what} is empty. Write {example}.")
        return self.raw

    def number(self, what: str, low: float = -math.inf, *, above: bool = False) -> float:
        """A finite number of at least `low` (greater than `low` with `above`)."""
        value = self.value
        if not is_number(value) or value < low or (above and value == low):
            bound = "" if low == -math.inf else f" above {low:g}" if above else f" of {low:g} or more"
            self.refuse(f"{what} must be a number{bound}; this is {self.kind()}.{self._unquote()}")
        return float(value)

    def integer(self, what: str, low: int, high: int = LARGEST) -> int:
        """A whole number from `low` to `high`; `1e6` counts as one."""
        value = self.value
        whole = isinstance(value, float) and value.is_integer()
        if not is_number(value) or not (isinstance(value, int) or whole) or not low <= value <= high:
            above = isinstance(value, int | float) and value > high
            most = f" and {'below 2^63' if high == LARGEST else f'at most {high:,}'}" if above else ""
            self.refuse(
                f"{what} must be a whole number of {low} or more{most}; this is {self.kind()}.{self._unquote()}"
            )
        return int(value)

    def kind(self) -> str:
        """The value as a message names it."""
        if isinstance(self.value, list):
            return f"a list of {len(self.value)}"
        if isinstance(self.value, dict):
            return (
                f"a mapping with the keys {show_value(', '.join(self.value))}"
                if self.value
                else "an empty mapping"
            )
        return "nothing" if self.value is None else show_value(self.value)

    def _unquote(self) -> str:
        if isinstance(self.value, str) and re.fullmatch(r"\s*-?[0-9][0-9_,.]*\s*", self.value):
            return " Remove the quotes and commas."
        return ""


def parse_yaml(
    path: Path, named_by: str = "", empty: str = "Write its keys.", most: int = MOST_NODES
) -> Node:
    """The tree of a YAML file.

    Raises UsageError with file and line for a missing, empty or broken file, a repeated key, a key that is
    no word, an unknown tag, or anchors that expand without end. `empty` is the remedy for an empty file, `most` how many values
    it may have.
    """
    text = read_text(path, named_by).removeprefix("\ufeff")
    try:
        root = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        raise _syntax_error(path, error) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise UsageError(
            f"{path}:{line}: the character {chr(error.character)!r} is not allowed in YAML. Remove it."
        ) from None
    except RecursionError:
        raise UsageError(f"{path}:1: the YAML is nested too deeply. Write it with fewer levels.") from None
    if root is None:
        raise UsageError(f"{path}:1: the file is empty. {empty}")
    return _Builder(path, most).build(root, None, ())


def _syntax_error(path: Path, error: yaml.MarkedYAMLError) -> UsageError:
    mark = error.problem_mark or error.context_mark
    at = f"{path}:{mark.line + 1 if mark else 1}"
    column = f" (column {mark.column + 1})" if mark else ""
    problem = error.problem or error.context
    remedy = (
        "Check the indentation; quote a text that contains `: `, ` #`, or begins with a brace, star or quote."
    )
    if "\\t" in str(problem):
        remedy = "Indent with spaces, not tabs."
    if "single document" in str(error.context):
        problem, remedy = "a second document begins here", "Remove the line `---` and what follows."
    return UsageError(f"{at}: not valid YAML: {problem}{column}. {remedy}")


class _Builder:
    """Turns PyYAML's nodes into `Node`s and counts them, so that anchors cannot expand without end."""

    def __init__(self, path: Path, most: int) -> None:
        self.path, self.most, self.count = path, most, 0

    def build(self, node: yaml.Node, line: int | None, above: tuple[int, ...]) -> Node:
        first = node.start_mark.line + 1
        here = Node(self.path, line or first, first, None)
        self.count += 1
        if id(node) in above:
            here.refuse("anchors repeat this value without end. Write the value out.")
        if self.count > self.most:
            here.refuse(
                f"the file has more than {self.most:,} values, anchors counted as often as they are used. Shorten it."
            )
        above = (*above, id(node))
        if isinstance(node, yaml.ScalarNode):
            block = node.style in ("|", ">")
            return replace(here, first=first + block, value=_scalar(here, node), raw=node.value)
        if node.tag not in (f"{_TAG}seq", f"{_TAG}map"):
            here.refuse(f"the tag {json.dumps(node.tag)} is not supported. Remove it.")
        if isinstance(node, yaml.SequenceNode):
            return replace(here, value=[self.build(item, None, above) for item in node.value])
        return replace(here, value=self._mapping(node, above))

    def _mapping(self, node: yaml.Node, above: tuple[int, ...]) -> dict[str, Node]:
        nodes: dict[str, Node] = {}
        for key, item in node.value:
            at = key.start_mark.line + 1
            place = Node(self.path, at, at, None)
            if not isinstance(key, yaml.ScalarNode):
                place.refuse(
                    "a key must be a word. Put a text that begins with a brace or a bracket in quotes."
                )
            if key.value in nodes:
                place.refuse(
                    f'the key "{key.value}" appears twice (first on line {nodes[key.value].line}). Keep one.'
                )
            nodes[key.value] = self.build(item, at, above)
        return nodes


def _scalar(here: Node, node: yaml.ScalarNode) -> bool | int | float | str | None:
    kind, raw = node.tag.removeprefix(_TAG), node.value
    try:
        if kind == "null":
            return None
        if kind == "bool":
            return {"true": True, "false": False}[raw.lower()]
        if kind == "int":
            return int(raw.replace("_", ""), 0)
        if kind == "float":
            return float(re.sub(r"\.(inf|nan)$", r"\1", raw.replace("_", "").lower()))
        if kind == "str":
            if repair_surrogates(raw) != raw:
                here.refuse(
                    f"half of a surrogate pair stands alone in {show_value(raw)}; it is no character. Remove it."
                )
            return str(raw)
    except (KeyError, ValueError):
        here.refuse(f"{show_value(raw)} is not of the type {node.tag}. Remove the tag.")
    here.refuse(f"the tag {json.dumps(node.tag)} is not supported. Remove it.")


class _Dumper(yaml.SafeDumper):
    """PyYAML's writer with the plain words of YAML 1.2."""

    yaml_implicit_resolvers = _Loader.yaml_implicit_resolvers


class _BlockDumper(_Dumper):
    """The same, with texts of several lines as blocks where every character survives that."""

    def represent_text(self, text: str) -> yaml.ScalarNode:
        """A text as a block, in quotes, or plain."""
        odd = any(c != "\n" and (not c.isprintable() or c in "\x85\u2028\u2029\ufeff") for c in text)
        return self.represent_scalar(f"{_TAG}str", text, style='"' if odd else "|" if "\n" in text else None)


_BlockDumper.add_representer(str, _BlockDumper.represent_text)


def write_yaml(value: Mapping[str, object] | Sequence[Any], *, blocks: bool = False) -> str:
    """YAML that `parse_yaml` reads as the same value; with `blocks`, texts of several lines stand on lines of their own."""
    dumper = _BlockDumper if blocks else _Dumper
    text: str = yaml.dump(value, Dumper=dumper, sort_keys=False, allow_unicode=True, width=100)
    return text
