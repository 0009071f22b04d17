"""The clauses that `embedded/tiny` follows: small independent demands on a line of words.

A clause belongs to one of eight attributes, and an instruction holds at most one demand per attribute: the
last one said wins. The attributes act in a fixed order, whatever the order in which they are said: selection,
order, repetition, case, separator, wrap, ending, prefix.

>>> transform("dog house red", ["capitals", "reversed", "hyphens", "exclamation", "arrow"])
'> RED-HOUSE-DOG!'

Every clause has a short name, wordings that the model was trained on and two `held` ones that it never read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

ATTRIBUTES = ("selection", "order", "repetition", "case", "separator", "wrap", "ending", "prefix")

Words = list[str]


@dataclass(frozen=True, slots=True)
class Clause:
    """One demand: on the words (`words`), on what joins them (`joint`) or on what stands around the line."""

    name: str
    attribute: str
    wordings: tuple[str, ...]
    held: tuple[str, str]
    words: Callable[[Words], Words] | None = None
    joint: str | None = None
    around: tuple[str, str] | None = None


def _each(change: Callable[[str], str]) -> Callable[[Words], Words]:
    return lambda words: [change(word) for word in words]


def _clause(name: str, attribute: str, wordings: str, held: str, **change: Any) -> Clause:
    """`wordings` and `held` are separated by semicolons."""
    first, second = held.split("; ")
    return Clause(name, attribute, tuple(wordings.split("; ")), (first, second), **change)


CLAUSES: tuple[Clause, ...] = (
    _clause(
        "without first",
        "selection",
        "leave out the first word; drop the first word; remove the first word; skip the first word; "
        "do not write the first word; without the first word",
        "omit the first word; take the first word away",
        words=lambda words: words[1:],
    ),
    _clause(
        "without last",
        "selection",
        "leave out the last word; drop the last word; remove the last word; skip the last word; do "
        "not write the last word; without the last word",
        "omit the last word; take the last word away",
        words=lambda words: words[:-1],
    ),
    _clause(
        "shortened",
        "selection",
        "shorten each word to two letters; keep only two letters of each word; use just the first two "
        "letters of every word; cut every word after two letters; write only the beginning of each "
        "word; shorten the words",
        "cut the words to two letters; keep just the beginning of every word",
        words=_each(lambda word: word[:2]),
    ),
    _clause(
        "reversed",
        "order",
        "reverse the words; write the words in reverse order; put the words in the opposite order; "
        "reverse the order of the words; begin with the last word and go back to the first; turn the "
        "order around",
        "put the words in reverse order; write the words in the opposite order",
        words=lambda words: words[::-1],
    ),
    _clause(
        "backwards",
        "order",
        "spell each word backwards; write the letters of each word backwards; mirror every word; "
        "reverse the letters of every word; flip the letters in each word; spell the words from right "
        "to left",
        "flip the spelling of each word; mirror the letters of every word",
        words=_each(lambda word: word[::-1]),
    ),
    _clause(
        "rotated",
        "order",
        "move the first word to the back; rotate the words; put the first word at the end of the "
        "line; let the first word come last; rotate the order by one; shift the words by one place",
        "move the words by one place; rotate the line by one word",
        words=lambda words: words[1:] + words[:1],
    ),
    _clause(
        "twice",
        "repetition",
        "write each word twice; repeat every word; say every word two times; double each word; each "
        "word comes twice in a row; duplicate the words",
        "repeat each word two times; say each word twice",
        words=lambda words: [word for word in words for _ in range(2)],
    ),
    _clause(
        "echo",
        "repetition",
        "repeat the whole line; write the whole line twice; say everything two times; echo the line; "
        "give the complete line again after itself; repeat everything once more",
        "echo everything; say the whole line two times",
        words=lambda words: words * 2,
    ),
    _clause(
        "doubled letters",
        "repetition",
        "double every letter; write each letter twice; repeat each letter; duplicate all letters; "
        "stretch the words by doubling the letters; say each letter two times",
        "duplicate each letter; double the letters",
        words=_each(lambda word: "".join(letter * 2 for letter in word)),
    ),
    _clause(
        "capitals",
        "case",
        "write it in capital letters; use capital letters; use only capitals; put everything in "
        "uppercase; make all letters upper case; convert it to uppercase; write in all caps",
        "make all letters capitals; put it in upper case",
        words=_each(str.upper),
    ),
    _clause(
        "titled",
        "case",
        "start each word with a capital letter; capitalize each word; write it like a title; use "
        "title case; make the initial letter of every word a capital; give every word a capital "
        "initial",
        "capitalize the initial of every word; put it in title case",
        words=_each(lambda word: word[:1].upper() + word[1:]),
    ),
    _clause(
        "capital ends",
        "case",
        "end each word with a capital letter; capitalize the final letter of each word; make the "
        "final letter of every word a capital; put a capital at the end of each word; use a capital "
        "as the final letter of every word; give every word a capital ending",
        "capitalize the end of every word; write the final letter of each word as a capital",
        words=_each(lambda word: word[:-1] + word[-1:].upper()),
    ),
    _clause(
        "commas",
        "separator",
        "separate the words with commas; put commas between the words; write the words as a comma "
        "list; use commas between words; set a comma after each word but the last; join with commas",
        "join the words with commas; set commas between the words",
        joint=", ",
    ),
    _clause(
        "hyphens",
        "separator",
        "join the words with hyphens; put hyphens between the words; connect the words with a hyphen; "
        "use hyphens instead of spaces; write hyphens for the spaces; hyphenate the words",
        "connect with hyphens; separate the words with hyphens",
        joint="-",
    ),
    _clause(
        "slashes",
        "separator",
        "separate the words with slashes; put a slash between the words; join the words with a slash; "
        "use slashes instead of spaces; write slashes for the spaces; divide the words by slashes",
        "connect the words with slashes; set slashes between the words",
        joint="/",
    ),
    _clause(
        "brackets",
        "wrap",
        "put it in brackets; write it in round brackets; wrap the line in parentheses; enclose it in "
        "parentheses; surround everything with brackets; use brackets around the line",
        "put parentheses around it; enclose the line in brackets",
        around=("(", ")"),
    ),
    _clause(
        "quotes",
        "wrap",
        "put it in quotes; write it in quotation marks; wrap the line in double quotes; enclose it in "
        "quotation marks; surround everything with quotes; quote the line",
        "put quotation marks around it; enclose the line in quotes",
        around=('"', '"'),
    ),
    _clause(
        "stars",
        "wrap",
        "put it between stars; write it between asterisks; wrap the line in stars; enclose it in "
        "asterisks; surround everything with stars; set a star before and behind the line",
        "put asterisks around it; enclose the line in stars",
        around=("*", "*"),
    ),
    _clause(
        "exclamation",
        "ending",
        "end with an exclamation mark; finish with an exclamation mark; add an exclamation point; put "
        "an exclamation mark at the end; close with an exclamation mark; exclaim it",
        "add an exclamation mark; finish with an exclamation point",
        around=("", "!"),
    ),
    _clause(
        "question",
        "ending",
        "end with a question mark; finish with a question mark; add a question mark; put a question "
        "mark at the end; close with a question mark; make it a question",
        "add a mark of question; write it as a question",
        around=("", "?"),
    ),
    _clause(
        "period",
        "ending",
        "end with a period; finish with a full stop; add a period; put a full stop at the end; close "
        "with a period; make it a sentence with a full stop",
        "add a full stop; put a period at the end",
        around=("", "."),
    ),
    _clause(
        "arrow",
        "prefix",
        "begin with an arrow; put an arrow in front; start the line with an arrow; add an arrow at "
        "the start; place an arrow before it; point at it with an arrow",
        "start with an arrow; place an arrow in front",
        around=("> ", ""),
    ),
    _clause(
        "hash",
        "prefix",
        "begin with a hash sign; put a hash in front; start the line with a hash; add a hash sign at "
        "the start; place a hash before it; mark it with a hash",
        "start with a hash sign; place a hash in front",
        around=("# ", ""),
    ),
    _clause(
        "note",
        "prefix",
        "begin with the word note; put the word note in front; start the line with note; add the "
        "label note at the start; place the word note before it; label it as a note",
        "start with the word note; place note in front",
        around=("note: ", ""),
    ),
)

BY_NAME = {clause.name: clause for clause in CLAUSES}


def transform(text: str, names: Sequence[str]) -> str:
    """The line of words `text` as the clauses named demand it; of two in one attribute the later one counts.

    Raises KeyError for an unknown clause.
    """
    chosen = {BY_NAME[name].attribute: BY_NAME[name] for name in names}
    words, joint = text.split(), " "
    for attribute in ATTRIBUTES[:4]:
        if attribute in chosen and (change := chosen[attribute].words) is not None:
            words = change(words)
    if "separator" in chosen:
        joint = chosen["separator"].joint or joint
    line = joint.join(words)
    for attribute in ATTRIBUTES[5:]:
        if attribute in chosen:
            before, behind = chosen[attribute].around or ("", "")
            line = before + line + behind
    return line


KINDS = {
    "animal": "badger dolphin hornet lizard otter panther robin walrus",
    "food": "butter cherry lettuce mustard olive plum radish waffle",
    "tool": "bucket dagger fiddle kettle paddle shovel thimble trumpet",
}
"""Words that name an animal, a food or a tool; the only words of meaning that the model learns."""
