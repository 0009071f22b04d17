"""Facts about English statements, found without a model: values, stems, kinds of demand, reports and demands."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

WORD, NUMBER, QUOTED, NAME = "word", "number", "quoted", "name"


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of a text: its kind, its value in lower case, and whether a number only reports what was seen."""

    kind: str
    value: str
    seen: bool = False


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


_NUMBER_WORDS = {
    "zero": "0", "two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "seven": "7", "eight": "8", "nine": "9",
    "ten": "10", "eleven": "11", "twelve": "12", "thirteen": "13", "fourteen": "14", "fifteen": "15", "sixteen": "16",
    "eighteen": "18", "twenty": "20", "thirty": "30", "forty": "40", "fifty": "50", "sixty": "60", "seventy": "70",
    "eighty": "80", "ninety": "90", "hundred": "100", "dozen": "12",
}  # fmt: skip

_TOKEN = re.compile(
    r"""(?P<quoted>"[^"\n]{1,120}"|“[^”\n]{1,120}”|`[^`\n]{1,120}`|«[^»\n]{1,120}»|‘[^’\n]{1,80}’(?!\w)"""
    r"""|(?<![\w'])'[^'\n]{1,80}'(?![\w']))"""
    r"""|(?P<name>[#@$][A-Za-z][\w-]*|https?://\S+|(?!(?:e\.g|i\.e)\b)[A-Za-z_]\w*(?:[._/]\w+)+|\w*_\w+|[a-z]+(?:[A-Z][a-z0-9]*)+"""
    r"""|[A-Za-z]+-?\d[\w-]*|\#[0-9A-Fa-f]{3,8}\b)"""
    r"""|(?P<number>\d+(?:[.,:]\d+)*%?)|(?P<word>[^\W\d_]+(?:['’-][^\W\d_]+)*)"""
)
_BOUND = re.compile(
    r"(?:at (?:least|most)|(?:more|fewer|less|longer|shorter|greater|larger|smaller) than|exactly|max\w*|min\w*|limit\w*"
    r"|up to|under|over|below|above|exceed\w*|within|between|must (?:be|have)|should (?:be|have)|(?:to|not) be|needs?"
    r"|requir\w+|expect\w*|allow\w*|instead of|rather than|want\w*|ought to \w+)\W+(?:\w+\W+){0,2}$"
)
_SEEN = re.compile(
    r"(?:found|got|gets?|has|have|had|was|were|is|are|only|there(?:'s| are| is| were| was)|count\w*|contains?|contained"
    r"|runs? to|return\w*|gave|gives|saw|sees|actual\w*|current\w*|measured|shows?|used|uses|wrote|came to|comes to|lists?)"
    r"\W+(?:\w+\W+)?$"
)


@lru_cache(maxsize=65536)
def tokens(text: str) -> tuple[Token, ...]:
    """The words, numbers, quoted values and names (identifiers) of a text, in order."""
    found = []
    for match in _TOKEN.finditer(text):
        kind, raw = str(match.lastgroup), match.group()
        if kind == QUOTED:
            found.append(Token(QUOTED, " ".join(raw[1:-1].casefold().split())))
        elif kind == WORD and raw.casefold() in _NUMBER_WORDS:
            found.append(Token(NUMBER, _NUMBER_WORDS[raw.casefold()], _is_seen(text, match.start())))
        elif kind == NUMBER:
            found.append(Token(NUMBER, raw.replace(",", ""), _is_seen(text, match.start())))
        else:
            found.append(Token(kind, raw.casefold()))
    return tuple(found)


def _is_seen(text: str, at: int) -> bool:
    before = text[max(0, at - 48) : at].casefold()
    return bool(_SEEN.search(before)) and not _BOUND.search(before)


_STOP = _set("""
    a an the this that these those it its they them their there here of in on at to for from by with as and or nor
    but so if then than when while which who whom whose what is are was were be been being am do does did done has
    have had having will would can could may might shall should must ought not no n't isn't aren't wasn't weren't
    doesn't don't didn't hasn't haven't won't cannot can't need needs needed require requires required expect
    expects expected please always never every each all any some also too very just only instead rather because
    since however still yet again your you i we our us he she his her into onto out off up down over under about
    per via such same other found got one both either neither make sure ensure rule violated violation problem
    issue error wrong invalid incorrect bad allowed permitted actually currently given want wants wanted should've
    least most more fewer less than too only many much exactly
""")


@lru_cache(maxsize=65536)
def stem(word: str) -> str:
    """A word without its common English endings.

    >>> [stem(w) for w in ("sorted", "sorting", "sorts", "entries", "begins", "beginning")]
    ['sort', 'sort', 'sort', 'entry', 'begin', 'begin']
    """
    word = word.removesuffix("'s").removesuffix("’s")
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    for ending in ("ingly", "edly", "ing", "ed", "ly", "es", "s"):
        if (
            word.endswith(ending)
            and len(word) - len(ending) >= 3
            and not (ending == "s" and word.endswith("ss"))
        ):
            word = word[: -len(ending)]
            break
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "sl":
        word = word[:-1]
    return word.removesuffix("e") if len(word) > 3 else word


@lru_cache(maxsize=65536)
def content(text: str) -> frozenset[str]:
    """Stems of the words that say what a text is about; words inside quoted values and names are among them."""
    found: set[str] = set()
    for token in tokens(text):
        if token.kind == WORD and token.value not in _STOP:
            found.add(stem(token.value))
        elif token.kind in (QUOTED, NAME):
            found |= {stem(w) for w in re.findall(r"[^\W_]+", token.value)}
    return frozenset(found)


@lru_cache(maxsize=65536)
def said(text: str) -> frozenset[str]:
    """All words and numbers of a text in lower case, plain: what a value is looked up in."""
    pieces = {t.value for t in tokens(text) if t.kind == NUMBER}
    return frozenset(pieces | {stem(w) for w in re.findall(r"[^\W_]+", text.casefold())})


def mentions(text: str, token: Token) -> bool:
    """Whether a text states a value: a number as a number, a quoted value or name by all its words."""
    if token.kind == NUMBER:
        return token.value in said(text) or token.value in {t.value for t in tokens(text)}
    words = [stem(w) for w in re.findall(r"[^\W_]+", token.value)]
    if not words:
        return token.value in text.casefold()
    return all(w in said(text) for w in words)


_CONCEPTS = (
    ("@most", r"at most|no more than|not more than|\bmax|up to|exceed|too (?:long|many|much|large|big|high|wordy)"
              r"|longer than|over the limit|limit|or (?:fewer|less)|\bcap\b"),
    ("@least", r"at least|no (?:fewer|less) than|\bmin(?:imum)?\b|too (?:short|few|little|small)|or more|not enough"),
    ("@need", r"missing|lack|absent|omit|not (?:appear|contain|includ|hav|mention|present|there|found|given)|has no\b"
              r"|\b(?:must|should|to|has to|needs? to) (?:contain|include|have|mention|carry|show)|^\W*(?:add"
              r"|include)\b|\bneeds? (?:a|an|the)\b"),
    ("@forbid", r"(?:must|should|may|do|does|can) ?not (?:contain|use|includ|hav|appear|be used|occur|mention|write"
        r"|say|start|begin|end)"
                r"|don't|never|avoid|forbidden|banned|not (?:allowed|permitted|wanted)|prohibited|remove|disallow|without"),
    ("@start", r"\bbegin|\bstart|\bopens? with|\bfirst\b"),
    ("@end", r"\bends? (?:with|in)|\bending\b|finish|\bcloses? with|\blast\b"),
    ("@order", r"\bsort|\border|sequence|ascending|descending|alphabetical"),
    ("@exact", r"exactly|instead of|equal"),
    ("@among", r"one of|\bfrom\b.*,|allowed(?: values)?:|choose|pick"),
)  # fmt: skip
_CONCEPT_PATTERNS = tuple((name, re.compile(pattern, re.IGNORECASE)) for name, pattern in _CONCEPTS)


@lru_cache(maxsize=65536)
def concepts(text: str) -> frozenset[str]:
    """Kinds of demand that a text hints at, such as `@most`, `@need` or `@forbid`."""
    return frozenset(name for name, pattern in _CONCEPT_PATTERNS if pattern.search(text))


_NORMATIVE = re.compile(
    r"\b(?:must|should|shall|ought to|(?:has|have|needs?) to|needs?|requires?|required|never|always|only use"
    r"|(?<=[,;:.] )(?:do not|don't|pick|use|choose|keep|sort|write|put|make|add|include|remove|avoid)"
    r"|at (?:least|most)|no more than|no (?:fewer|less) than|exactly|(?:is|are|not) (?:allowed|permitted)"
    r"|forbidden|expected|may not|please)\b",
    re.IGNORECASE,
)
_IMPERATIVE = re.compile(
    r"^\W*(?:please |always |never |do not |don't )?(?:add|allow|answer|append|apply|ask|avoid|begin"
    r"|break|call|capitali[sz]e|check|"
    r"choose|cite|close|combine|compute|convert|copy|count|cut|declare|define|describe|do|drop|emit|end|ensure|enter|exclude|"
    r"explain|express|fill|finish|follow|format|give|group|have|highlight|include|indent|insert|introduce|keep|label|leave|"
    r"limit|link|list|make|mark|mention|move|name|number|offer|omit|open|order|pick|place|prefer|prefix"
    r"|present|provide|put|quote|"
    r"remove|rename|repeat|replace|report|respect|restrict|return|round|say|separate|set|shorten|show|sort|specify|spell|"
    r"split|start|state|stay|stick|stop|summari[sz]e|supply|tell|treat|trim|use|verify|wrap|write)\b",
    re.IGNORECASE,
)
_VERBS = frozenset(
    stem(word)
    for word in _set("""
    appear apply begin call carry choose cite come contain copy define describe display employ end exceed explain
    feature finish follow give hold include insert introduce keep list mention name offer open order place present
    provide put reach read refer say set show sort specify spell start state stay supply tell use write missing
    lacking absent
""")
)
_LEANS = re.compile(
    r"^\W*(?:it|its|this|that|these|those|they|them|he|she|instead|otherwise|so|but|and|or|because|since|therefore|thus|hence|"
    r"also|e\.?g\.?|for (?:example|instance)|rather|(?:keep|make|shorten|rewrite|fix|change|move|use|put"
    r"|set|cut|sort|remove) (?:it|this|that|them)"
    r"|at (?:least|most)|(?:only|found|got|expected|exactly|allowed|maximum|minimum|max|min|limit)\b|no more than|which)\b",
    re.IGNORECASE,
)


def normative(text: str) -> bool:
    """Whether a text says what has to be, and does not only report what was."""
    return bool(_NORMATIVE.search(text) or _IMPERATIVE.search(text))


def is_topic(word: str) -> bool:
    """Whether a word can name what a demand is about: no function word and no verb of demanding."""
    return word not in _STOP and word[0].isalpha() and stem(word) not in _VERBS and not concepts(word)


def imperative(text: str) -> bool:
    """Whether a text begins with a command."""
    return bool(_IMPERATIVE.search(text))


def leans(text: str) -> bool:
    """Whether a sentence cannot stand without the one before it."""
    return bool(_LEANS.search(text))
