"""Text in every script: one form for equal texts, words where a script has no blanks, and where a text mentions a name.

Everything rests on the properties of characters in the Unicode standard; no language is known here.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import regex

_OPEN = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Bopomofo}\p{Yi}\p{LB=SA}\p{LB=AK}\p{LB=AP}\p{LB=AS}ー々〆]"
"""Characters of scripts that do not put blanks between words: Chinese, Japanese, Thai, Lao, Khmer, Burmese, and others."""
_OPEN_CHARACTER = regex.compile(_OPEN)
_SEPARATOR = r"(?=\p{P})(?!\p{Pd})\p{LB=BA}"
"""Punctuation that stands between words or syllables in place of a blank, as in Tibetan and Ethiopic: Unicode breaks lines behind
it."""
_BETWEEN_WORDS = regex.compile(rf"(?<=\S)(?:{_SEPARATOR})+(?=[^\s\p{{P}}])")
_UNITS = regex.compile(
    rf"(?s){_OPEN}[\p{{M}}]*|(?:(?!{_OPEN}|{_SEPARATOR}).)+(?:{_SEPARATOR})*|(?:{_SEPARATOR})+"
)
_MARKS = regex.compile(r"(\p{M}{30})\p{M}+")
_INVISIBLE = regex.compile(r"\p{Default_Ignorable_Code_Point}+")
_DIGIT = regex.compile(r"(?![0-9])\p{Nd}")
_PLAIN = str.maketrans(
    {
        **dict.fromkeys("\u2018\u2019\u201a\u201b\u02bc", "'"),
        **dict.fromkeys("\u201c\u201d\u201e\u201f", '"'),
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2212", "-"),
    }
)
"""Quotes, apostrophes, hyphens and the minus sign of typesetting, as a keyboard has them."""
_DOTTED_I = "i\u0307"
"""The result of Unicode's case folding for the Turkish capital I with a dot, whose small letter is a plain i."""
_DOTLESS_I = "\u0131"
"""The small letter that Turkish has for the capital I. Folding leaves it alone, and takes the I to a plain i."""
_GREEK = regex.compile(r"\p{Greek}[\p{Greek}\p{M}]*")
_CAPITAL_LACKS = regex.compile(r"[\u0300\u0301\u0313\u0314\u0342]")
"""The accents and breathings of Greek, which a word in capitals does not have."""
_KEPT = regex.compile(r"[\p{DT=Super}\p{DT=Sub}\p{DT=Fraction}]+")
_INNER = r"[^\p{P}\p{S}\p{Z}\p{C}]"
_FIRST, _LAST = regex.compile(_INNER), regex.compile(rf"(?r){_INNER}")
_PUNCTUATION = regex.compile(r"[\p{P}`]")
_WORD = r"[\p{L}\p{M}\p{N}_]"
_WORD_CHARACTER = regex.compile(_WORD)
_BREAK = r"(?:\r\n|[\p{SB=Sep}\p{SB=CR}\p{SB=LF}])"
_NO_BORDER = r"[^\p{SB=OLetter}\p{SB=Upper}\p{SB=Lower}\p{SB=Sep}\p{SB=CR}\p{SB=LF}\p{SB=STerm}\p{SB=ATerm}]"
_IN_SENTENCE = rf"{_NO_BORDER}*+\p{{SB=Lower}}"
_AFTER_STOP = r"\p{SB=Close}*+\p{SB=Sp}*+"
_STOP = (
    r"(?!(?<=[\p{SB=Upper}\p{SB=Lower}])\p{SB=ATerm}\p{SB=Upper})\p{SB=ATerm}(?!\p{SB=Numeric})"
    rf"(?!{_AFTER_STOP}{_IN_SENTENCE})|\p{{SB=STerm}}"
)
_SENTENCE_END = regex.compile(
    rf"(?s){_BREAK}|(?:{_STOP}){_AFTER_STOP}(?![\p{{SB=SContinue}}\p{{SB=STerm}}\p{{SB=ATerm}}])(?:{_BREAK})?"
)
_WORD_BORDER = regex.compile(r"(?w)\b")
_HYPHENS = r"[-\u2010\u2011]"
_HANGUL = regex.compile(r"\p{Hangul}")


def fold(text: str) -> str:
    """The form in which texts are compared: Unicode NFKC, case folded, without invisible characters (zero width, direction,
    variation selectors), digits of every script as 0 to 9, typographic quotes, hyphens and minus signs as those of a keyboard.

    Letters whose capitals are written alike are one: Turkish ı, i, I and İ, and Greek letters with and without an accent.

    Superscripts, subscripts and fractions stay as they are: 10² is not 102. Of more than 30 marks on one letter the rest
    goes, because putting marks in order takes time that is quadratic in their number.

    >>> fold("Ｃａｆé １８") == fold("cafe\\u0301 18"), fold("10²")
    (True, '10²')
    """
    if text.isascii():
        return text.lower()
    text = _INVISIBLE.sub("", _MARKS.sub(r"\1", text))
    text = (
        _compose(_compose(text).casefold()).replace(_DOTTED_I, "i").replace(_DOTLESS_I, "i").translate(_PLAIN)
    )
    text = str(_GREEK.sub(lambda match: _drop_accents(match.group()), text))
    return str(_DIGIT.sub(lambda match: str(unicodedata.decimal(match.group())), text))


def unify(text: str) -> str:
    """The form of `fold`, upper and lower case kept.

    >>> unify("I\u2019m Ａ")
    "I'm A"
    """
    if text.isascii():
        return text
    text = _compose(_INVISIBLE.sub("", _MARKS.sub(r"\1", text))).translate(_PLAIN)
    return str(_DIGIT.sub(lambda match: str(unicodedata.decimal(match.group())), text))


def compose(text: str) -> str:
    """A text in Unicode's form NFC, in which an accented letter is one character wherever there is one, and nothing else changes.
    Of more than 30 marks on one letter the rest goes, as in `fold`.

    >>> compose("cafe\u0301") == "caf\u00e9", compose("10\u00b2")
    (True, '10\u00b2')
    """
    return text if text.isascii() else unicodedata.normalize("NFC", _MARKS.sub(r"\1", text))


def _drop_accents(greek: str) -> str:
    return unicodedata.normalize("NFC", _CAPITAL_LACKS.sub("", unicodedata.normalize("NFD", greek)))


def _compose(text: str) -> str:
    pieces, last = [], 0
    for kept in _KEPT.finditer(text):
        pieces += [unicodedata.normalize("NFKC", text[last : kept.start()]), kept.group()]
        last = kept.end()
    return "".join([*pieces, unicodedata.normalize("NFKC", text[last:])])


def without_punctuation(text: str) -> str:
    """A text without the punctuation of every script, and without backticks.

    >>> without_punctuation("«Oui», it’s 「今日」。")
    'Oui its 今日'
    """
    return str(_PUNCTUATION.sub("", _BETWEEN_WORDS.sub(" ", text)))


def split_words(text: str) -> list[str]:
    """The words of a text: what stands between blanks or the marks that a script has in their place, and each character of a
    script without blanks.

    >>> split_words("see 今天 ok"), split_words("ሰላም፡ዓለም")
    (['see', '今', '天', 'ok'], ['ሰላም፡', 'ዓለም'])
    """
    return [unit for part in text.split() for unit in _UNITS.findall(part)]


def sentence_ends(text: str) -> list[int]:
    """The ends of the sentences of a text, each with the text that follows its stop: the default boundaries of Unicode (UAX
    #29, rules SB3 to SB998). A line is never part of two sentences.

    >>> text = "It costs 3.50. Why? 今日は。元気？"
    >>> [text[a:b] for a, b in zip([0, *sentence_ends(text)], sentence_ends(text))]
    ['It costs 3.50. ', 'Why? ', '今日は。', '元気？']
    """
    ends = [match.end() for match in _SENTENCE_END.finditer(text)]
    return ends if not text or ends[-1:] == [len(text)] else [*ends, len(text)]


def word_ends(text: str) -> list[int]:
    """The ends of the words of a text and of the text between them: the default boundaries of Unicode (UAX #29).

    >>> text = "Don't stop, 3.5!"
    >>> [text[a:b] for a, b in zip([0, *word_ends(text)], word_ends(text))]
    ["Don't", ' ', 'stop', ',', ' ', '3.5', '!']
    """
    ends = [match.start() for match in _WORD_BORDER.finditer(text) if match.start()]
    return ends if not text or ends[-1:] == [len(text)] else [*ends, len(text)]


def writes_without_blanks(text: str) -> bool:
    """Whether a text holds a character of a script that puts no blanks between words."""
    return _OPEN_CHARACTER.search(text) is not None


def count_words(text: str) -> float:
    """About how many words a text has. Of a script without blanks, two characters count as one word: words of Chinese,
    Japanese and Thai texts have one to four.

    >>> count_words("one two"), count_words("答案是退款")
    (2.0, 2.5)
    """
    return sum(0.5 if _OPEN_CHARACTER.match(unit) else 1.0 for unit in split_words(text))


def bare(text: str) -> str:
    """A text without punctuation, signs and blanks at its ends.

    >>> bare(" **「退款」**。 ")
    '退款'
    """
    first, last = _FIRST.search(text), _LAST.search(text)
    return text[first.start() : last.end()] if first is not None and last is not None else ""


_BEFORE_NUMBER = r"[-+<>\u2264\u2265~\u2248\u00b1](?!\s?[\p{Sc}0-9.])"
_TRIMMED = regex.compile(
    r"(?V1)\A(?:[[\s\p{P}\p{S}]--[\-+<>\u2264\u2265~\u2248\u00b1\u00ac.]]"
    rf"|{_BEFORE_NUMBER}|(?<=\.)\.|\.(?!\w))++"
    r"|(?<![[\s\p{P}\p{S}]--[%\u00b0+\-#]])(?<!(?<!\w)[-#])(?<!(?<![\w+])\+)"
    r"(?:[[\s\p{P}\p{S}]--[%\u00b0+\-#]]|(?<!\w)[-#]|(?<![\w+])\+)++\Z"
)
"""The characters without meaning at either end. The run at the end is searched only where it begins, so a long run takes
linear time."""


def trim(text: str) -> str:
    """A text without the punctuation and signs around it that say nothing: the sign of a number, the point of .NET, and the end
    of C#, A+, B- and 5% stay.

    >>> trim("**C++**."), trim("\u2192 -1)"), trim("(<5)"), trim("- refund")
    ('C++', '-1', '<5', 'refund')
    """
    return str(_TRIMMED.sub("", text))


_WRAPPED = regex.compile(
    r"(?s)(\*{1,3}|_{1,3}|`{1,3}|\${1,2}|[\"'])(?P<inner>.*)\1|\\\((?P<inner>.*)\\\)|\\\[(?P<inner>.*)\\\]"
    r"|[\p{Ps}\p{Pi}\p{Pf}](?P<inner>.*)[\p{Pe}\p{Pf}\p{Pi}]"
)
_STOPS = regex.compile(r"[\s\p{STerm}.,:;\u2026\u3001\uff0c\uff1a\uff1b]*\Z")
_MOST_WRAPS = 20
_RUN = 3


def strip_wrapping(text: str) -> str:
    """A text without what stands around it as a whole: stops at its end, and in pairs Markdown's marks, quotes, brackets and
    LaTeX's signs of a formula. A sign before it stays, and so does what stands on one side only.

    >>> [strip_wrapping(text) for text in ("**42**。", "「-42」", "\\\\(42\\\\)!", "$42$.", "-(42)", "(1) or (2)")]
    ['42', '-42', '42', '42', '-(42)', '1) or (2']
    """
    for _ in range(_MOST_WRAPS):
        inner = str(_STOPS.sub("", text)).lstrip()
        match = _WRAPPED.fullmatch(inner)
        if match is not None:
            inner = match["inner"]
        if inner == text:
            break
        text = inner
    return text


def character_trigrams(text: str) -> frozenset[str]:
    """The runs of three characters of a text, case folded, with a blank at each end and one between words."""
    plain = f" {' '.join(text.casefold().split())} "
    return frozenset(plain[at : at + _RUN] for at in range(len(plain) - _RUN + 1))


def share_in_common(first: frozenset[str], second: frozenset[str]) -> float:
    """The share of the members of two sets that both have (Jaccard); 0 where both are empty.

    >>> share_in_common(frozenset("abc"), frozenset("bcd"))
    0.5
    """
    return len(first & second) / len(first | second) if first or second else 0.0


@dataclass(frozen=True, slots=True)
class Mention:
    """A name in a text, from `start` to `end`."""

    name: str
    start: int
    end: int


def mentions(text: str, names: Iterable[str], joined: Collection[str] = ()) -> list[Mention]:
    """Find the places where a folded text mentions folded names, as words of their own; of names that begin at one place the
    longest.

    Parts of the names in `joined` may be joined in another way: by blanks, hyphens, underscores or marks of Markdown.

    In a script without blanks there is no border between words, so that a name is found anywhere. A Korean name may have an
    ending. A number is no part of a longer one, and what a hyphen joins is one word.

    >>> [m.name for m in mentions("answer: 退款, not a debug", ["退款", "bug"])]
    ['退款']
    """
    ordered = tuple(sorted({name for name in names if name}, key=lambda n: (-len(n), n)))
    pattern = _pattern(ordered, frozenset(joined))
    if pattern is None:
        return []
    return [
        Mention(ordered[match.lastindex - 1], match.start(), match.end()) for match in pattern.finditer(text)
    ]


@lru_cache(maxsize=256)
def _pattern(names: Sequence[str], joined: Collection[str]) -> regex.Pattern[str] | None:
    if not names:
        return None
    return regex.compile(
        "|".join(
            f"{_before(n)}({_flexible(n) if n in joined else regex.escape(n)}){_after(n)}" for n in names
        )
    )


JOINT = regex.compile(r"(?<=[^\W_])[\s_*`-]++(?=[^\W_])")
"""The characters that join the parts of a name."""
_SLASH = regex.compile(r"\s*/\s*")


def _flexible(name: str) -> str:
    """A pattern for a name whose parts may be joined in another way."""
    slashed = (r"[\s_*`-]{1,4}".join(map(regex.escape, JOINT.split(part))) for part in _SLASH.split(name))
    return r"\s?/\s?".join(slashed)


def _before(name: str) -> str:
    first = name[0]
    if not _WORD_CHARACTER.match(first) or _OPEN_CHARACTER.match(first):
        return ""
    number = r"(?<![0-9],)(?<![-.\u2212])" if first.isdecimal() else ""
    return rf"(?<!(?!{_OPEN}){_WORD})(?<!{_WORD}{_HYPHENS})(?<!\S\+){number}"


def _after(name: str) -> str:
    last = name[-1]
    if not _WORD_CHARACTER.match(last):
        return ""
    if _OPEN_CHARACTER.match(last):
        return r"(?!\p{M})"
    if _HANGUL.match(last):
        return r"(?![\p{M}0-9])"
    number = r"(?![.,]?[0-9])" if last.isdecimal() else ""
    return rf"(?!(?!{_OPEN}){_WORD})(?!{_HYPHENS}{_WORD})(?![+#]){number}"
