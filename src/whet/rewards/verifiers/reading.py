"""The parts that the verifiers share: options, and the code in an answer."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from whet._util.storable import is_number
from whet.replies import without_thought
from whet.replies.blocks import stretches_of
from whet.rewards.asking import RewardOptions

LONGEST = 200
"""Characters that a critique quotes at most."""
PYTHON, SQL = frozenset(["python", "python3", "py", "py3"]), frozenset(["sql", "sqlite", "sqlite3"])
"""The names of the languages of code blocks."""
LONGEST_ANSWER = 1_000_000
"""Characters of an answer that a verifier reads at most."""


def code_in(answer: str, languages: Collection[str] = ()) -> str:
    """The last closed fenced block of an answer, else the whole answer; without what the model thought.

    Where blocks are named one of `languages`, only these count. Of a single fence, what stands before it where it closes what the
    prompt opened, and what follows it where it opens a block that never ends; of a block in a block the inner one.

    >>> code_in("Here it is:\\n```python\\nx = 1\\n```\\nDone.")
    'x = 1\\n'
    >>> code_in("x = 1\\n```\\nDone."), code_in("Here it is:\\n```python\\nx = 1")
    ('x = 1\\n', 'x = 1')
    """
    text = without_thought(answer)
    blocks = code_blocks(text, languages)
    if blocks:
        inner = blocks[-1].lstrip().startswith(("```", "~~~"))
        return code_in(blocks[-1], languages) if inner else blocks[-1]
    open_block = next((stretch for stretch in stretches_of(text) if stretch.fenced), None)
    if open_block is None:
        return _without_name(text, languages)
    *before, fence = text[: open_block.begin].splitlines(keepends=True)
    closes = "".join(before).strip() and not fence.strip(" \t\r\n`~")
    return _without_name("".join(before), languages) if closes else open_block.text_in(text)


def _without_name(text: str, languages: Collection[str]) -> str:
    """Code without a first line that is nothing but the name of its language: the prompt has opened the fence before it."""
    first, _, rest = text.lstrip().partition("\n")
    return rest if rest.strip() and first.strip().casefold() in languages else text


def code_blocks(answer: str, languages: Collection[str]) -> list[str]:
    """The closed blocks of an answer in order; only those that are named one of `languages` where some are."""
    blocks = [stretch for stretch in stretches_of(answer) if stretch.closed]
    named = [block for block in blocks if block.name in languages]
    return [block.text_in(answer) for block in named or blocks]


def cut(text: str) -> str:
    """A text on one line without a full stop, its middle cut out where it is longer than LONGEST characters."""
    half = LONGEST // 2
    line = " ".join(
        (text if len(text) <= 4 * LONGEST else f"{text[:LONGEST]} {text[-LONGEST:]}").split()
    ).rstrip(".: ")
    return line if len(line) <= LONGEST else f"{line[:half]} … {line[-half:]}"


def path_option(options: RewardOptions, key: str) -> Path:
    """The file that an option names. Raises UsageError where there is none."""
    path = options.folder / options.text(key)
    if not path.is_file():
        options.refuse(f"{key}: there is no file {path}.")
    return path.resolve()


def number_option(options: RewardOptions, key: str, default: float, high: float) -> float:
    """A number above 0 and up to `high`."""
    value = options.values.get(key, default)
    if not is_number(value) or not 0 < value <= high:  # type: ignore[operator]
        options.refuse(f"the option {key} must be a number above 0, at most {high:g}; this is {value!r}.")
    return float(value)  # type: ignore[arg-type]


def flag_option(options: RewardOptions, key: str, default: bool) -> bool:
    """True or false."""
    value = options.values.get(key, default)
    if not isinstance(value, bool):
        options.refuse(f"the option {key} must be true or false; this is {value!r}.")
    return value
