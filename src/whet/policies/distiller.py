"""From complaints to an instruction without a model: the clearest demand among them, or a report turned into a demand by rule."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from whet.prompt.instructions import refusal
from whet.search.lexicon import NUMBER, Token, content, imperative, leans, mentions, normative, tokens

_LONGEST = 300


@dataclass(frozen=True, slots=True)
class Draft:
    """A text for an instruction. `clear` says that a complaint itself demanded it; else a rule turned it around."""

    text: str
    score: float
    clear: bool


def distil(
    texts: Sequence[tuple[str, int]], constants: Sequence[Token] = (), avoid: Sequence[str] = ()
) -> Draft | None:
    """The best instruction that the complaints of one demand give, or None when they give none.

    `texts` are verbatim complaints with their counts, `constants` the values that an instruction has to
    state, `avoid` texts that were tried already.
    """
    drafts = ranked(texts, constants)
    tried = {_key(text) for text in avoid}
    fresh = [d for d in drafts if _key(d.text) not in tried]
    return fresh[0] if fresh else None


def ranked(texts: Sequence[tuple[str, int]], constants: Sequence[Token] = ()) -> list[Draft]:
    """All drafts, the best first; equal ones in the order of the complaints."""
    topic = _topic(texts)
    found: dict[str, Draft] = {}
    for text, _ in texts:
        for piece in _pieces(text):
            for draft, clear in _drafts(piece, alone=text.startswith(piece)):
                score = _score(draft, clear, topic, constants)
                if refusal(draft) is None and (_key(draft) not in found or found[_key(draft)].score < score):
                    found[_key(draft)] = Draft(draft, score, clear)
    return sorted(found.values(), key=lambda d: -d.score)


def _key(text: str) -> str:
    return " ".join(t.value for t in tokens(text))


def _topic(texts: Sequence[tuple[str, int]]) -> dict[str, float]:
    """How large a share of the complaints speaks of each stem."""
    total = sum(count for _, count in texts) or 1
    shares: Counter[str] = Counter()
    for text, count in texts:
        for word in content(text):
            shares[word] += count
    return {word: count / total for word, count in shares.items()}


def _score(text: str, clear: bool, topic: dict[str, float], constants: Sequence[Token]) -> float:
    stated = sum(mentions(text, value) for value in constants) / len(constants) if constants else 1.0
    about = sum(topic.get(word, 0.0) for word in content(text))
    best = sum(sorted(topic.values(), reverse=True)[:4]) or 1.0
    reports = any(t.kind == NUMBER and t.seen for t in tokens(text))
    return (
        2.0 * stated
        + 1.2 * min(1.0, about / best)
        + (0.5 if clear else 0.0)
        + (0.1 if imperative(text) else 0.0)
        - (0.6 if leans(text) or _HANGS.match(text) else 0.0)
        - (0.3 if reports else 0.0)
        - (1.5 if text.startswith(_LAST_RESORT) else 0.0)
        - len(text) / 200
    )


_BREAK = re.compile(
    r",\s+(?=(?:[iI]|[wW]e) (?:want|need|prefer|would))|(?<=[.!?])\s+|;\s+|\s+[–—-]\s+|,\s+(?:so|but|which)\s+(?=\w+ \w+ \w+)"
)


def _pieces(text: str) -> list[str]:
    """The complaint itself and its sentences and clauses."""
    parts = [p.strip() for p in _BREAK.split(text) if len(p.split()) > 1]
    tails = [
        tail
        for p in parts
        for head, _, tail in [p.partition(": ")]
        if len(tail.split()) > 3 and not normative(head)
    ]
    return list(dict.fromkeys([text, *parts, *tails]))


def _drafts(piece: str, alone: bool) -> list[tuple[str, bool]]:
    """Demands that one piece gives, each with whether it is the complaint's own.

    `alone`: nothing stands before the piece, so that its "it" is the answer.
    """
    bare = _LABEL.sub("", _REPORT.sub("", piece)).lstrip(" .;,:—–").rstrip(" .;,—–")
    if not bare or len(bare) > _LONGEST:
        return []
    found: list[tuple[str, bool]] = []
    resolved = _resolved(bare)
    if resolved:
        found.append((_finish(resolved), True))
    elif normative(bare) and not _NEGATED_REPORT.search(bare):
        found.append((_finish(_expected(bare, alone)), True))
    for pattern, turn in _TURNS:
        match = pattern.match(bare)
        if match:
            found.append((_finish(_general(match.expand(turn))), False))
            break
    return [*found, (_finish(f"{_LAST_RESORT} {bare}"), False)]


def _expected(text: str, alone: bool) -> str:
    """A demand that speaks of what was expected, or of "it", as one that stands alone."""
    match = re.match(r"^expected (.+?) to (?=\w)(.+)$", text, re.IGNORECASE)
    if match:
        return f"{match.group(1)} must {match.group(2)}"
    if alone:
        text = re.sub(
            r"^(?:it|this|that|you) (?=(?:should|must|needs? to|has to|have to|ought to)\b)",
            "The answer ",
            text,
            flags=re.I,
        )
    return re.sub(r"^expected:? ", "Use ", text, flags=re.IGNORECASE)


def _resolved(text: str) -> str:
    """`The title has 73 letters; it should have at most 60.` says: The title should have at most 60 letters. Else ''."""
    match = _IT_SHOULD.match(text)
    if not match:
        return ""
    unit = re.search(r"\d[\d.,]*\s+([^\W\d_]+)", match["report"])
    ends_bare = re.search(r"\d$", match["demand"])
    return f"{match['subject']} {match['demand']}" + (f" {unit[1]}" if unit and ends_bare else "")


def _general(text: str) -> str:
    """`A link must ...` speaks of every link."""
    text = re.sub(r"^(?:one|some) of (?=the|my|our|its)", "each of ", text, flags=re.IGNORECASE)
    if re.search(r"\bmust (?!not\b)", text):
        text = re.sub(r"^(?:an?|one|some)\s+(?=\w+ )", "every ", text, flags=re.IGNORECASE)
    inner = r"(?<=\b(?:not|use|put|for) )(?:A|An|The|One|In)\b|(?<=^include )(?:A|An|The|One)\b|(?<=^avoid )(?:A|An|The|One)\b"
    return re.sub(inner, lambda m: m.group().lower(), text)


def _finish(text: str) -> str:
    text = " ".join(text.split())
    first = text.split(" ", 1)[0]
    if first.isalpha() and first.islower():
        text = text[0].upper() + text[1:]
    return text if text[-1] in ".!?" else text + "."


_HANGS = re.compile(
    r"^(?:each|all|every|both|none|one|any|there)\s+(?:must|should|shall|may|has|have|needs?)\b",
    re.IGNORECASE,
)
_LAST_RESORT = "Avoid this fault:"
_LABEL = re.compile(
    r"^(?:(?:still|again|once more|no,)\s+|[A-Z]{1,4}-?\d+\b\W*|(?:rule|issue|error|violation|problem"
    r"|warning|fail(?:ed|ure)?|critique|comment|note|fix|todo)\b(?: (?:violated|broken"
    r"|#?\d+))?\s*[:.)-]\s*)+",
    re.IGNORECASE,
)
_REPORT = re.compile(
    r"[\s,;(–—-]+(?:but |and |yet )?(?:i |we |it |you )?(?:got|found|saw|counted|received|was given)"
    r"\s+(?:only\s+)?[\d\"'`“][^.;]*\.?$"
    r"|[\s,;(–—-]+but (?:it |there )?(?:has|have|had|is|are|was|were)\s+(?:only\s+)?[\d\"'`“][^.;]*\.?$"
    r"|\s*\((?:found|got|was|is|saw|now|currently)\b[^)]*\)",
    re.IGNORECASE,
)
_NEGATED_REPORT = re.compile(
    r"\b(?:(?:must|should) (?:not )?have been|(?:was|were|is|are) not exactly|not at least|not at most"
    r"|is longer than|not required|does not (?:need|require))\b",
    re.IGNORECASE,
)
_IT_SHOULD = re.compile(
    r"^(?P<subject>[^;.]+?)(?P<report> (?:is|was|are|were|has|have|had|does|did|goes|runs|reads|looks"
    r"|counts|contains|holds|ends|starts"
    r"|begins|breaks|takes|came|comes|went)\b[^;.]*)[;.,] (?:it|they) "
    r"(?P<demand>(?:should|must|may|shall|ought to|(?:has|have|needs?) to)\b[^;]+)$",
    re.IGNORECASE,
)
_IS, _DO = r"(?:is|are|was|were)", r"(?:does|do|did)"
_TURNS = tuple(
    (re.compile(pattern, re.IGNORECASE), turn)
    for pattern, turn in (
        (r"^(?:you|it|the (?:answer|model|assistant|bot|reply|response)) (?:forgot|failed|neglected|omitted"
            r"|refused) to (.+)$", r"\1"),
        (r"^(?:you|it) (?:did not|didn't|do not|don't|does not|doesn't|never) (.+)$", r"\1"),
        (r"^(?:.*\b)?(?:i|we) (?:want|wanted|need|prefer|expected|would like|would prefer|asked for)(?:ed)? (.+)$", r"give \1"),
        (r"^(?:.*\b)?(?:i'd|we'd) (?:like|prefer|rather have) (.+)$", r"give \1"),
        (rf"^(?:it|this|that|the (?:answer|reply|response|text)) {_IS} (?:much |far |way )?too (\w+)$", r"be less \1"),
        (r"^(?:much |far |way )?too (\w+)$", r"be less \1"),
        (rf"^(.+?) {_IS} (?:much |far |way )?too (\w+)$", r"make this less \2: \1"),
        (r"^(?:it|you) (?:used|uses|had|has|contained|contains|included"
            r"|includes|added|adds|wrote|writes) (.+)$", r"do not use \1"),
        (rf"^there {_IS} no (.+)$", r"there must be \1"),
        (rf"^(.+?) {_IS}(?:n't| not)(?: \w+ly)? (?:there|present|given|included|provided|found)(?: (anywhere"
            rf"|at all))?$", r"\1 must be there"),
        (rf"^(.+?),? {_IS} (?:missing|absent|omitted|left out) (?:from|in|on|at) (.+)$", r"put \1 into \2"),
        (rf"^(.+?),? {_IS} (?:missing|absent|omitted|left out)$", r"include \1"),
        (r"^(.+?) (?:misses|lacks|lacked|omits|omitted|has no|have no|had no|came without|goes without"
            r"|is without|comes without) (.+)$", r"\1 must have \2"),
        (rf"^(.+?) (?:{_DO} not|{_DO}n't|doesn't|don't|didn't|fails? to|failed to) (.+)$", r"\1 must \2"),
        (rf"^(.+?) {_IS}(?: still)?(?: not|n't) (.+)$", r"\1 must be \2"),
        (rf"^(?:for|in|behind|on|at) (.+?),? ((?:an?|the|another|other)\b.+?) {_IS} (?:used|given|written|put"
            rf"|set|found) instead of ([^;]+).*$", r"for \1 use \3, not \2"),
        (rf"^(.+?) {_IS} (?:used|given|written|put|set|found) (?:for|in"
            rf"|as|on) (.+?) instead of ([^;]+).*$", r"for \2 use \3, not \1"),
        (r"^(?:i |we )?(?:found|saw|got|see|read) (.+?) instead of (.+)$", r"use \2, not \1"),
        (r"^(.+?) (?:has|have|had|holds?|shows?|contains?) \d+ (.+?) instead of (.+)$", r"\1 must have \3 \2"),
        (rf"^(.+?) (?:has|have|had|{_IS}|came|comes) (.+?) instead of ([^;]+).*$", r"\1 must be \3, not \2"),
        (r"^(.+?),? (?:instead of|rather than) (.+)$", r"use \2, not this: \1"),
        (rf"^not every (.+?) (begins|ends|starts|has|contains|uses|{_IS}) (.+)$", r"every \1 must have this: it \2 \3"),
        (rf"^there {_IS} (.+)$", r"there must not be \1"),
        (r"^(an? .+? (?:with|of) (?:more|fewer|less) than [\w.]+ \w+)\b.*$", r"avoid \1"),
        (r"^(.+?) exceeds? (.+)$", r"\1 must not exceed \2"),
        (r"^(.+?) (?:runs?|goes|went|ran) (?:over|past|beyond) (.+)$", r"\1 must not exceed \2"),
        (rf"^(.+?) {_IS} ((?:longer|shorter|more|fewer|less|larger|smaller|deeper|higher|lower|greater|older"
            rf"|newer|wider) than .+)$", r"\1 must not be \2"),
        (r"^(.+?) has ((?:more|fewer|less) than .+)$", r"\1 must not have \2"),
        (r"^(.+?) (contain|use|include|repeat|mention|start|begin|end)s (.+?)(?:,? (?:which"
            r"|and that) \w+ .+)?$", r"\1 must not \2 \3"),
        (rf"^(.+?) {_IS} (?:used|written|found|set|put|placed) (.+)$", r"\1 must not be used \2"),
        (r"^(?:i |we )?(?:found|saw|read|see) (.+)$", r"avoid \1"),
    )
)  # fmt: skip
