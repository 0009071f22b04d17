"""The Python of an answer that is tested, if the answer has several blocks: a solution and its use, or parts."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from textwrap import dedent

from whet.replies import without_thought
from whet.replies.blocks import stretches_of
from whet.rewards.verifiers.reading import PYTHON, code_blocks, code_in

_LONGEST = 100_000
"""Characters of an answer with several blocks that are looked through at most."""
_LONGEST_BARE, _MOST_READS, _MOST_CUTS = 20_000, 60, 6
"""Characters of an answer without a fence, the lines from which it is read, and how often each of these reads is cut before what
is no Python."""
UNREADABLE = "unreadable"
"""The part of a rollout that is 1 where its answer has no fenced block, and what stands there is no code."""

NO_CODE = (
    "The answer has no code that can be read: no fenced block stands in it, and its text is no Python. Write the code in a \
fenced block, or nothing but code."
)
"""The critique of an answer that is unreadable."""


@dataclass(frozen=True)
class _Block:
    """A block of Python with the names that it makes at its top level and those that it takes from elsewhere."""

    text: str
    made: frozenset[str]
    taken: frozenset[str]


def python_in(answer: str, tests: str, entry: str = "") -> str:
    """The code of an answer that the tests need: of several blocks the last that makes a name which the tests call, behind the
    earlier ones that make names which it takes. Where no block makes one, there is a single block, or
    the answer is long, what `code_in` says. Of an answer without a fence that is no Python as a whole, the statements between its
    prose are the code. Code that is indented as a whole, as in a list, is not.

    >>> text = "```python\\ndef f(): return 1\\n```\\nUsage:\\n```python\\nprint(f())\\n```"
    >>> python_in(text, "assert f() == 1")
    'def f(): return 1\\n'
    >>> python_in("Here it is:\\ndef f(): return 1\\n\\nIt returns one.", "assert f() == 1")
    'def f(): return 1\\n'
    """
    code = _find_code(answer, tests, entry)
    return dedent(code) if code.strip() and code.lstrip("\r\n")[0].isspace() else code


def _find_code(answer: str, tests: str, entry: str) -> str:
    text = without_thought(answer)
    texts = code_blocks(text, PYTHON)
    if not texts and len(text) <= _LONGEST_BARE and is_unreadable(text):
        return _statements_among_prose(text) or text
    wanted = _block(tests) if len(texts) > 1 and len(answer) <= _LONGEST else None
    if wanted is None:
        return code_in(answer, PYTHON)
    called = (wanted.taken | {entry}) - wanted.made
    blocks = [block for text in texts if (block := _block(text)) is not None]
    last = next((at for at in reversed(range(len(blocks))) if blocks[at].made & called), None)
    if last is None:
        return code_in(answer, PYTHON)
    parts, needed = [blocks[last]], blocks[last].taken
    for block in reversed(blocks[:last]):
        if block.made & needed:
            parts.insert(0, block)
            needed = (needed - block.made) | block.taken
    return "\n".join(part.text for part in parts)


def is_unreadable(answer: str, code: str | None = None) -> bool:
    """Whether an answer has no fence and the code in it (default: all of it) is no Python."""
    text = without_thought(answer)
    return len(stretches_of(text)) < 2 and _block(text if code is None else code) is None


def _statements_among_prose(text: str) -> str:
    """The statements of a text without fences that make names, in order: a piece is Python from a line on up to the next that is
    none. A word alone is an expression, and so is a call that shows how the code is used."""
    lines = text.splitlines(keepends=True)
    tops = [at for at, line in enumerate(lines) if line.strip() and not line[0].isspace()]
    pieces, at = list[str](), 0
    for top in tops[:_MOST_READS]:
        if top >= at and (end := _end_of_python(lines, top, tops)) > top:
            at = end
            pieces.append(_without_expressions(lines[top:end]))
    return "".join(pieces)


def _end_of_python(lines: list[str], begin: int, tops: list[int]) -> int:
    """Behind the last line up to which the lines from `begin` on are Python; `begin` where they are none."""
    end = len(lines)
    for _ in range(_MOST_CUTS):
        try:
            ast.parse("".join(lines[begin:end]))
        except SyntaxError as error:
            wrong = begin + (error.lineno or 1) - 1
            end = max((top for top in tops if top < end and top <= wrong), default=begin)
        except (ValueError, MemoryError, RecursionError):
            return begin
        else:
            return end
        if end <= begin:
            return begin
    return begin


def _without_expressions(lines: list[str]) -> str:
    """The definitions, imports and other statements of a piece of Python."""
    kept = list[str]()
    for node in ast.parse("".join(lines)).body:
        if not isinstance(node, ast.Expr):
            first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", ()))])
            kept += [line.rstrip("\r\n") + "\n" for line in lines[first - 1 : node.end_lineno]]
    return "".join(kept)


def _block(text: str) -> _Block | None:
    """The names of a block; None for one that is no Python."""
    with suppress(SyntaxError, ValueError, MemoryError, RecursionError):
        tree = ast.parse(text)
        read, bound = set[str](), set[str]()
        for node in ast.walk(tree):
            if isinstance(node, ast.Name):
                (read if isinstance(node.ctx, ast.Load) else bound).add(node.id)
            elif isinstance(node, ast.arg):
                bound.add(node.arg)
            else:
                bound.update(_names_made(node))
        made = {name for node in _top_level(tree.body) for name in _names_made(node)}
        return _Block(text, frozenset(made), frozenset(read - bound - {*dir(builtins)}))
    return None


def _top_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module, also those below its conditions."""
    for node in body:
        yield node
        if isinstance(node, ast.If | ast.Try | ast.With):
            yield from _top_level(node.body)


def _names_made(node: ast.AST) -> Iterator[str]:
    """The names that a statement makes."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Import | ast.ImportFrom):
        for one in node.names:
            yield (one.asname or one.name).partition(".")[0]
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            yield from (one.id for one in ast.walk(target) if isinstance(one, ast.Name))
