"""The score in a judge's reply, in the forms that judges use in every language: numbers and their places, no words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import regex

from whet._util.words import fold
from whet.replies.marked import last_box
from whet.replies.quotations import HiddenPieces
from whet.rewards import numbers

Scale = tuple[float, float]

_LONGEST, _LONGEST_LABEL, _LONGEST_LINE, _MOST_LINES = 200, 40, 300, 2000
_EDGE = " \t\r\n\u00a0*_`~#>\"'\u00ab\u00bb()[]{}|,\u3010\u3011\u300c\u300d"
_ENDS = ".!;\u3002"
_N = r"[-+]?(?:[0-9]+(?:[.,'][0-9]+)*|[.][0-9]+)(?:e[-+]?[0-9]{1,2}(?![0-9]))?"
_GAP = r"[\s*_`()\[\]]{0,8}"
_WORD = r"\p{L}[\p{L}\p{M}]{0,20}"
_UNIT = rf"\s{{0,3}}(?:{_WORD}|[\u2605\u2b50]\ufe0f?)?"
_STAR = regex.compile(r"[\u2605\u2b50\U0001f31f]")
_STARS = regex.compile(
    r"(?P<full>(?:[\u2605\u2b50\U0001f31f]\ufe0f?\s?)*)(?P<half>[\u00bd\u2bea\u2bec\u2bed\u2beb]?)\s?(?P<empty>\u2606*)"
)
_SHARE = regex.compile(rf"({_N}){_GAP}/{_GAP}({_N}){_UNIT}")
_PAIR = regex.compile(rf"({_N})\s{{0,3}}\(?{_WORD}(?:\s{{1,3}}{_WORD}){{0,2}}\s{{0,3}}({_N}){_UNIT}")
_REMARK = regex.compile(r"(?<=[\p{Nd}%][*_`]{0,3})\s{0,3}\(([^()\n\p{N}]{1,80})\)?(?=[\s.;*_]{0,9}\Z)")
"""A remark without a number in brackets after a score, such as `4 (clear and short)`."""
_ALONE = regex.compile(rf"({_N})(?:\s{{0,3}}(%)|{_UNIT})")
_BRACKETED = regex.compile(r"\[\[([^\[\]\n]{1,40})\]\]")
_TAGGED = regex.compile(r"<(\w{1,40})>([^<>]{1,60})</\1>")
_LABELLED = regex.compile(r"([^:=|]*\p{L}[^:=|]*)\s*[:=|]+(.+)")
_TRUTH = {"true": 1.0, "false": 0.0}
"""The words that a judge writes for the two ends of a scale from 0 to 1 where its rubric asks whether something is true."""
_NAMES = ("score", "rating", "grade")
_NAMED = regex.compile(
    rf"\W{{0,20}}(?:final |overall )?(?:{'|'.join(_NAMES)})\W{{0,20}}(?:\([^()]{{0,20}}\))?\W{{0,20}}"
)
_OF_A_SCORE = "(?:score|rating|grade|value|scale|points?|total)*"
_ENDS_OF_SCALE = regex.compile(
    rf"{_OF_A_SCORE}(?:(?P<highest>max(?:imum)?|outof|possible)|(?P<lowest>min(?:imum)?)|(?P<both>(?:score|rating|grade)range|scale))"
    rf"(?:possible)?{_OF_A_SCORE}"
)
"""Names under which a reply states the scale of its score, without blanks and marks."""
_LIST_ITEM = regex.compile(r"\A\W*\p{Nd}{1,3}[.)]")
_IN_BRACKETS = regex.compile(r"\(([^()]*)\)")
_SENTENCE = regex.compile(
    r"(?:(?<=[\p{Nd}%][*_`]{0,3})(?:[.;,]\s|\s{1,3}[-\u2013\u2014]\s)|(?<=\p{Nd})\u3002)([^\p{N}\n]*)\Z"
)
"""A sentence without a number behind a score on its line, as in `Score: 4. The source is missing.`"""
_SLASHED = regex.compile(rf"(?<![\w.,/-]){_N}{_GAP}/{_GAP}{_N}(?![\w/]|[.,][0-9])")


class ScoreInReply(NamedTuple):
    """A score and what else the reply says."""

    value: float
    rest: str


def score_number(value: object, scale: Scale | None = None) -> float | None:
    """A finite number of a JSON value or a text; None for anything else.

    In a text it may be bold or in brackets, have digits of any script, a decimal comma and one word behind it. `4/5` and two
    numbers with up to three words between them (`4 out of 5`, `4 von 5`, `5 üzerinden 4`) are a score out of the best one of the
    `scale`; out of another number they are None. A percentage is a share of the best score where the scale begins at 0; true and
    false are the ends of a scale from 0 to 1.

    >>> [score_number(t, (1, 5)) for t in ("4/5", "5/10", "**4,5**", "4 out of 5", "3 von 10", "80%")]
    [4.0, None, 4.5, 4.0, None, None]
    >>> score_number("80 %", (0, 10)), score_number("\u22121"), score_number("4 points."), score_number("[[\u0663]]")
    (8.0, -1.0, 4.0, 3.0)
    >>> [score_number(t, (-1, 1)) for t in ("+1", "[[+0.5]]", "-1", "1+1")]
    [1.0, 0.5, -1.0, None]
    """
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if isinstance(value, bool):
        return float(value) if scale == (0, 1) else None
    if not isinstance(value, str | int | float):
        return None
    if not isinstance(value, str):
        try:
            return float(value) if math.isfinite(value) else None
        except OverflowError:
            return None
    if len(value) > _LONGEST:
        return None
    text = _without_edges(value)
    if scale == (0, 1) and text in _TRUTH:
        return _TRUTH[text]
    if share := _SHARE.fullmatch(text):
        return _out_of(share[1], share[2], scale)
    if scale is not None and (pair := _PAIR.fullmatch(text)):
        return _of_pair(pair[1], pair[2], scale)
    alone = _ALONE.fullmatch(text)
    if alone is None:
        return None
    number = _value(alone[1], scale)
    if alone[2] is None or number is None:
        return number
    return number / 100 * scale[1] if scale is not None and not scale[0] else None


def _without_edges(text: str) -> str:
    """A folded score without marks and stops around it, and without a remark in brackets that has no number."""
    folded = fold(text)
    return str(_REMARK.sub("", folded)).strip(_EDGE).rstrip(_ENDS).strip(_EDGE)


def split_score(text: str) -> tuple[float | None, float | None]:
    """A person's score and the best one that it names (None: it names none); the score is None where there is none. Of two
    numbers with words between them the larger one is the best score. 80% is 80 out of 100, and stars are counted.

    >>> split_score("8,5"), split_score("4 / 5"), split_score("5点中4点"), split_score("good")
    ((8.5, None), (4.0, 5.0), (4.0, 5.0), (None, None))
    >>> split_score("80 %"), split_score("★★★"), split_score("★★½☆☆")
    ((80.0, 100.0), (3.0, None), (2.5, 5.0))
    """
    if (stars := _STARS.fullmatch(text[:_LONGEST].strip())) and (stars["full"] or stars["empty"]):
        full, half, empty = len(_STAR.findall(stars["full"])), 0.5 * bool(stars["half"]), len(stars["empty"])
        return full + half, float(math.ceil(full + half) + empty) if empty else None
    plain = _without_edges(text[:_LONGEST])
    if share := _SHARE.fullmatch(plain):
        return _value(share[1], None), _value(share[2], None)
    if pair := _PAIR.fullmatch(plain):
        numbers_of_pair = [number for digits in pair.groups() if (number := _value(digits, None)) is not None]
        return (min(numbers_of_pair), max(numbers_of_pair)) if len(numbers_of_pair) == 2 else (None, None)
    alone = _ALONE.fullmatch(plain)
    if alone is None:
        return None, None
    return _value(alone[1], None), 100.0 if alone[2] else None


def _out_of(score: str, best: str, scale: Scale | None) -> float | None:
    return _value(score, scale) if scale is None or _value(best, None) == scale[1] else None


def _of_pair(one: str, other: str, scale: Scale) -> float | None:
    """The score of two numbers of which one is the best score; some languages say that one first."""
    if _value(other, None) == scale[1]:
        return _value(one, scale)
    return _value(other, scale) if _value(one, None) == scale[1] else None


def _value(digits: str, scale: Scale | None) -> float | None:
    """A number, read with a decimal comma where only so it lies on the scale: 4,125 from 1 to 5."""
    for decimal in ("", ","):
        number = numbers.parse_number(digits, decimal)
        value = None if number is None else float(number)
        if value is not None and (scale is None or scale[0] <= value <= scale[1]):
            return value
    number = numbers.parse_number(digits)
    return float(number) if number is not None and math.isfinite(float(number)) else None


def fits_stated_scale(stated: Iterable[tuple[str, object]], scale: Scale) -> bool:
    """Whether what a reply says beside its score is of no other scale than `scale`: names that state one, such as `max_score`,
    `out_of` and `scale`, with other ends than its own.

    >>> [fits_stated_scale([pair], (1, 5)) for pair in (("max_score", 10), ("Out of", "5"), ("scale", "1-10"), ("pages", 10))]
    [False, True, False, True]
    """
    for name, value in stated:
        match = _ENDS_OF_SCALE.fullmatch(regex.sub(r"[\W_\d]+", "", fold(name[:_LONGEST_LABEL])))
        if match is None:
            continue
        if isinstance(value, Mapping):
            if not fits_stated_scale([(str(key), one) for key, one in value.items()], scale):
                return False
        elif ends := sorted(_numbers_of(value)):
            fits_low = match["highest"] or ends[0] == scale[0] or (match["both"] and len(ends) == 1)
            if not fits_low or not (match["lowest"] or ends[-1] == scale[1]):
                return False
    return True


def _numbers_of(value: object) -> list[float]:
    """The numbers of a JSON value that states a scale."""
    if isinstance(value, str):
        return [float(number) for number in numbers.numbers_in(value[:_LONGEST])]
    if isinstance(value, list):
        return [
            number for one in value[:_MOST_LINES] if not isinstance(one, list) for number in _numbers_of(one)
        ]
    number = None if isinstance(value, bool) else score_number(value)
    return [] if number is None else [number]


def names_scale(label: str, scale: Scale) -> bool:
    """Whether the numbers in the name of a score are ends of the scale, as in `Score (1-5)`; true where there are none. In a name
    of other words than `score` only brackets count, and the mark of a list is none of them.

    >>> [names_scale(label, (1, 5)) for label in ("Score (1-10)", "score_out_of_5", "2. Score", "Question 7", "Note (von 6)")]
    [False, True, True, True, False]
    """
    plain = _LIST_ITEM.sub("", fold(label[:_LONGEST_LINE]))
    named = any(name in plain for name in _NAMES)
    parts = [plain.replace("_", " ")] if named else _IN_BRACKETS.findall(plain)
    return all(float(number) in scale for part in parts for number in numbers.numbers_in(part))


def labelled_lines(reply: HiddenPieces) -> list[tuple[str, str]]:
    """The labels of a reply's lines, and what stands behind each."""
    lines = reply.text.split("\n")[-_MOST_LINES:]
    return [(label, value) for label, value in map(_split_label, lines) if label]


def find_marked_scores(reply: HiddenPieces, scale: Scale) -> list[ScoreInReply]:
    """The scores that a reply marks as such: `[[4]]`, `<score>4</score>` and lines `Score: 4`, with a sentence without a number
    behind it on the line too; where there is none of these, the box of LaTeX."""
    text = reply.text
    tags = [m for m in _TAGGED.finditer(text) if m[1].casefold() in _NAMES]
    scores: list[ScoreInReply] = []
    for marks, group in (([*_BRACKETED.finditer(text)], 1), (tags, 2)):
        for mark in reversed(marks):
            if (score := score_number(mark[group], scale)) is not None:
                scores.append(
                    ScoreInReply(score, reply.restore(_without_mark(text, mark.start(), mark.end())))
                )
    lines = text.split("\n")
    for at in reversed(range(max(0, len(lines) - _MOST_LINES), len(lines))):
        label, value = _split_label(lines[at])
        if label and _NAMED.fullmatch(reply.restore(label)):
            score = score_number(_SENTENCE.sub("", reply.unwrap(value)), scale)
            if score is not None:
                score = score if names_scale(reply.restore(label), scale) else math.nan
                scores.append(ScoreInReply(score, reply.restore(_without_line(lines, at))))
    boxed = score_number(last_box(text), scale) if "boxed" in text and not scores else None
    return scores if boxed is None else [ScoreInReply(boxed, reply.restore(text))]


def find_lone_score(reply: HiddenPieces, scale: Scale) -> ScoreInReply | None:
    """The score of a reply that marks none: the one number in tags of any name, else what its first or its last line is,
    behind a label of any words or alone, else the only `4/5` of these lines out of the best score. None where two differ.
    """
    text = reply.text
    tagged = [score for m in _TAGGED.finditer(text) if (score := score_number(m[2], scale)) is not None]
    if tagged:
        rest = reply.restore(_TAGGED.sub(" ", text))
        return ScoreInReply(tagged[0], rest) if len(set(tagged)) == 1 else None
    lines = text.split("\n")
    filled = [at for at, line in enumerate(lines) if line.strip()]
    ends = dict.fromkeys([*filled[:1], *filled[-1:]])
    for read in (_score_of_line, _share_in_line):
        scores = [(at, score) for at in ends for score in read(lines[at], scale)]
        if scores:
            at, score = scores[-1]
            if len({score for _, score in scores}) > 1:
                return None
            rest = _without_line(lines, at) if read is _score_of_line else text
            return ScoreInReply(score, reply.restore(rest))
    return None


def marked_texts(reply: str) -> list[str]:
    """The texts that a reply sets apart, as `find_marked_score` and `find_lone_score` do with scores: those in double brackets,
    in tags and in LaTeX's box, else its first and its last line in lower case, without a label before it.

    >>> marked_texts("It is rude.\\n**Answer:** No"), marked_texts("So <answer>yes</answer> it is.")
    (['it is rude.', 'no'], ['yes'])
    """
    marks = [m[1] for m in _BRACKETED.finditer(reply)] + [m[2] for m in _TAGGED.finditer(reply)]
    boxed = last_box(reply) if "boxed" in reply else None
    if boxed is not None:
        marks.append(boxed)
    lines = [line for line in reply.split("\n") if line.strip()]
    return marks or [_split_label(line)[1].strip(_EDGE) for line in dict.fromkeys([*lines[:1], *lines[-1:]])]


def _score_of_line(line: str, scale: Scale) -> Iterator[float]:
    label, value = _split_label(line)
    score = score_number(value, scale)
    if score is not None and names_scale(label, scale):
        yield score


def _share_in_line(line: str, scale: Scale) -> Iterator[float]:
    shares = _SLASHED.findall(fold(line[:_LONGEST_LINE]))
    score = score_number(shares[0], scale) if len(shares) == 1 else None
    if score is not None:
        yield score


def _split_label(line: str) -> tuple[str, str]:
    """The text before and after the sign that follows a label; for a line without a label, '' and the line."""
    if len(line) > _LONGEST_LINE:
        return "", ""
    plain = fold(line).strip(_EDGE)
    if len(plain) > _LONGEST_LINE:  # one character may stand for many
        return "", ""
    match = _LABELLED.fullmatch(plain)
    return (match[1], match[2]) if match else ("", plain)


def _without_mark(reply: str, begin: int, end: int) -> str:
    """A reply without a mark, and without the label before it on its line."""
    head, line = reply[:begin].rpartition("\n")[::2]
    kept = "" if line.rstrip(_EDGE).endswith((":", "\uff1a")) and len(line) <= _LONGEST_LABEL else line
    return f"{head}\n{kept}{reply[end:]}"


def _without_line(lines: list[str], at: int) -> str:
    """The lines without the one with the score, but for the remark behind it."""
    remarks = [match[1] for form in (_REMARK, _SENTENCE) for match in form.finditer(lines[at])]
    return "\n".join([*lines[:at], *remarks, *lines[at + 1 :]])
