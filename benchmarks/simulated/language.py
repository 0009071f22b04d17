"""How the simulators read English: sentences, their mood, and whether a sentence states a rule.

A rule is recognised by what a clear wording cannot do without: its topic words, its values, and whether
it commands or forbids. Order, filler and style do not matter. A sentence that names the topic with
another value, or with the opposite sign, contradicts the rule; one that names the topic without the
value, or only complains, hints at it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

_WORDS = re.findall(
    r"[a-z]+",
    "two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen",
)
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_NUMBER_WORDS = {word: str(number) for number, word in enumerate(_WORDS, 2)}
_NUMBER_WORDS |= {word: str(10 * number) for number, word in enumerate(_TENS, 2)}
_NUMBER_WORD = re.compile(rf"\b({'|'.join(_NUMBER_WORDS)})\b")

# Two negatives that cancel: "must not exceed", "never forget to", "no fewer than".
_CANCELLED = re.compile(
    r"\b(?:not|never|no|nor|nothing|none|avoid)\b(?P<between>[^.,;:]{0,45}?)\b(?:"
    r"(?P<most>exceed\w*|(?:be |is |are |run |go )?(?:over|above|beyond|"
    r"past)\b|(?:be |is |are )?\w+er than|more than)|"
    r"(?P<always>forget\w*|omit\w*|skip(?!.?link)\w*|neglect\w*|leav\w+ "
    r"out|without|lack\w*|missing|absent|optional)\b)"
)
_FEWER = re.compile(r"(?:fewer|less|shorter|smaller|lower) than")
# A contrast names what is not wanted: "as text, not as a number", "instead of JPEG", "rather than later".
_CONTRAST = re.compile(
    r"(?:,\s*(?:and )?(?:not|never)\b|\s*\b(?:rather than|instead of|as opposed to)\b)[^,.;]*"
)
_NEGATION = re.compile(
    r"\b(?:not|never|no|none|nothing|nowhere|neither|nor|avoid\w*|without|"
    r"forbid\w*|forbidden|bann?(?:ed)?|prohibit\w*|"
    r"omit\w*|drop\w*|remove\w*|refrain\w*|free (?:of|from)|exclude\w*|stay "
    r"away|keep out|leave out|disallow\w*|strip\w*)\b"
)
_BANNED_AFTER = re.compile(
    r"\W*(?:\w+ )?(?:(?:must|should|shall|may|need) not|never|(?:is|are) "
    r"(?:not (?:allowed|permitted|needed|wanted)|"
    r"forbidden|banned|prohibited))\b"
)
_INSTRUCTS = re.compile(
    r"\b(?:must|should|shall|may|always|never|needs?|ought|has to|have to|"
    r"required?|ensure|make sure|allowed|permitted|"
    r"forbidden|at most|at least|remember|please|no place|not belong|unwelcome)\b"
)
_IMPERATIVES = frozenset(
    re.findall(
        r"[a-z]+",
        "use write keep add give set put include start end begin avoid do provide make list sort order mark "
        "name limit spell let state place show leave format quote choose offer label mention finish close "
        "open count number wrap tag omit skip remove refrain express store return no none nothing nowhere "
        "every each all hold present supply say represent attach record describe restrict flag cap phrase "
        "specify declare pick exactly capitalise capitalize round arrange assign repeat stick fix point "
        "prefix lay stop print drop strip promise follow precede conclude lead call serve encode select "
        "vary highlight nest load answer",
    )
)
_COMPLAINT = re.compile(
    r"\b(?:not|no|missing|lack\w*|without|absent|wrong|instead|too|\w+er "
    r"than|more than|rather than|came|had|was|were|"
    r"nowhere|nothing|none|neither|forg[eo]t\w*|fail\w*|breaks|still|stops|runs|found|saw|missed|cut)\b"
)
_SENTENCE_END = re.compile(r"(?<=[.!?])(?<!e\.g\.)(?<!i\.e\.)\s+(?=[A-Z`\"'(\[\d])")
_BULLET = re.compile(r"^\s*(?:[-*•–]|\(?\d{1,3}[.):]|\[[^\]]{1,16}\]|#+)\s+")


class Stance(Enum):
    """What a sentence does to a rule."""

    NONE = 0
    HINT = 1
    CONTRARY = 2
    STATED = 3


def _restore_limit(match: re.Match[str]) -> str:
    limit = "at least" if _FEWER.search(match["most"] or "") else "at most"
    word = "always" if match["always"] else limit
    return f"{match['between'].strip()} {word}".strip()


def plain(sentence: str) -> str:
    """A sentence in lower case without quotes, number words as digits, double negatives resolved.

    >>> plain("Titles must never run past `sixty` characters.")
    'titles must at most 60 characters.'
    """
    text = sentence.lower().replace("’", "'")
    text = re.sub(r"n't\b", " not", text).replace("cannot", "can not")
    text = re.sub(r"[`\"“”*]|(?<!\w)'|'(?!\w)", "", text)
    text = re.sub(r",? (?:and )?no[t]? more (?:and|or) (?:no|not)? ?(?:fewer|less)\b", "", text)
    text = _NUMBER_WORD.sub(lambda m: _NUMBER_WORDS[m.group(1)], text)
    return re.sub(r"\s+", " ", _CANCELLED.sub(_restore_limit, text)).strip()


@dataclass(frozen=True, slots=True)
class ReadSentence:
    """A sentence as it is understood: its plain text and its mood.

    `instructs`: it says what to do. `complains`: it only says what was wrong. A sentence may do neither
    ("Prices show two decimals."); it is then taken as a rule.
    """

    text: str
    instructs: bool
    complains: bool


@lru_cache(maxsize=50_000)
def understand(sentence: str) -> ReadSentence:
    """Plain text and mood of a sentence; what it contrasts with is left out unless it is a complaint."""
    text = plain(sentence)
    first = re.match(r"[\W_]*([a-z]+)", text)
    instructs = bool(_INSTRUCTS.search(text)) or (first is not None and first.group(1) in _IMPERATIVES)
    complains = not instructs and bool(_COMPLAINT.search(text))
    return ReadSentence(text if complains else _CONTRAST.sub("", text), instructs, complains)


def paragraphs(text: str) -> list[list[str]]:
    """Sentences of a text by paragraph: bullets stand alone and lose their mark, wrapped lines are joined."""
    blocks: list[str] = []
    joins = False
    for line in text.splitlines():
        if not line.strip():
            joins = False
            continue
        bare = _BULLET.sub("", line).strip()
        if joins and bare == line.strip():
            blocks[-1] += " " + bare
        else:
            blocks.append(bare)
        joins = not bare.endswith((".", "!", "?", ":", ";", ">"))
    return [[part.strip() for part in _SENTENCE_END.split(block) if part.strip()] for block in blocks]


def sentences(text: str) -> list[str]:
    """Sentences of a text.

    >>> sentences("Use `lang`. Never shout!\\n- End with a\\n  full stop")
    ['Use `lang`.', 'Never shout!', 'End with a full stop']
    """
    return [sentence for paragraph in paragraphs(text) for sentence in paragraph]


@dataclass(frozen=True, slots=True)
class Form:
    """One way in which a rule can be said.

    `topic`: all must occur. `value`: all must occur too, otherwise the sentence is only about the topic,
    which is a hint when the topic is `specific`. `rival`: what contradicts when a value is absent.
    `forbids`: the rule is a ban, so an instruction without any negation contradicts it.
    """

    topic: tuple[re.Pattern[str], ...]
    value: tuple[re.Pattern[str], ...]
    rival: re.Pattern[str] | None
    forbids: bool
    specific: bool

    def stance(self, sentence: ReadSentence) -> Stance:
        """What a sentence does to the rule; a complaint is at most a hint."""
        if not all(pattern.search(sentence.text) for pattern in self.topic):
            return Stance.NONE
        stance = self._claim(sentence)
        return Stance.HINT if sentence.complains and stance is not Stance.NONE else stance

    def _claim(self, sentence: ReadSentence) -> Stance:
        if not all(pattern.search(sentence.text) for pattern in self.value):
            if self.rival and self.rival.search(sentence.text):
                return Stance.CONTRARY
            return Stance.HINT if self.specific else Stance.NONE
        if self.forbids:
            if _NEGATION.search(sentence.text):
                return Stance.STATED
            return Stance.CONTRARY if sentence.instructs else Stance.HINT
        negated = all(_is_negated(sentence.text, anchor) for anchor in self.topic[0].finditer(sentence.text))
        return Stance.CONTRARY if negated else Stance.STATED


def _is_negated(text: str, anchor: re.Match[str]) -> bool:
    """Whether a negation rules over a place of the text: a few words before it, or right after it."""
    before = re.split(r"[,;:]", text[: anchor.start()])[-1]
    near = " ".join(before.split()[-4:])
    return bool(_NEGATION.search(near) or _BANNED_AFTER.match(text[anchor.end() :]))


def form(spec: str) -> Form:
    """A form from its short notation.

    Parts are joined by ` & `; `=` marks a value, `~` a rival; before all parts, `!` marks a ban and `*` a
    specific topic. A part is a regular expression that begins at the beginning of a word; a number also
    ends there. A form with a number among its values has every other number as its rival.

    >>> value_form = form("title & character|letter & =60")
    >>> value_form.stance(understand("Keep titles within 60 characters.")).name
    'STATED'
    >>> value_form.stance(understand("Titles have at most 90 characters.")).name
    'CONTRARY'
    """
    topic: list[re.Pattern[str]] = []
    value: list[re.Pattern[str]] = []
    rival: re.Pattern[str] | None = None
    for part in spec.lstrip("!* ").split(" & "):
        mark, body = (part[0], part[1:]) if part[0] in "=~" else ("", part)
        closing = r"(?![0-9])" if body[-1].isdigit() else ""
        opening = "a-z0-9_." if body[0].isdigit() else "a-z0-9_-"
        pattern = re.compile(rf"(?<![{opening}])(?:{body}){closing}")
        if mark == "~":
            rival = pattern
        elif mark == "=":
            value.append(pattern)
            if rival is None and re.fullmatch(r"[\d.]+", body):
                rival = re.compile(r"(?<![a-z0-9_.-])\d+")
        else:
            topic.append(pattern)
    return Form(tuple(topic), tuple(value), rival, spec.startswith("!"), spec.startswith("*"))
