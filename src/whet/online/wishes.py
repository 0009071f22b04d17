"""What people mean by a complaint, said as an instruction, where their words leave no doubt.

Programs complain in rules, people in idioms: `way too long`, `you forgot to mention the price`, `could you
just use metres?`. Each turn below is one idiom. A text that fits none is left as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from whet.search.lexicon import imperative, normative

_OPENER = re.compile(
    r"^(?:(?:great|good|nice|fine|thanks|thank you|perfect|correct|love it"
    r"|helpful)\b[^.!?]{0,40}?[\s,.!;-]+(?:but|however|except)\b[\s,]*"
    r"|(?:hi|hello|hey|hm+|well|so|also|and|but|ok(?:ay)?|sorry|honestly|actually|again|still|fyi|note|nb|p\.?s\.?|next time"
    r"|in (?:the )?future|from now on|going forward|as i said|like i said|i think|i feel|imo|imho)\b[\s,:;.!-]*)+",
    re.IGNORECASE,
)  # fmt: skip
_POLITE = re.compile(r"^(?:(?:please|kindly|just|simply|maybe|perhaps|only)\b[\s,]*)+", re.IGNORECASE)
_ENDING = re.compile(
    r"[\s,]*(?:,?\s*(?:please|pls|plz|thanks|thank you|thx|next time|from now on))?[\s.!?]*$", re.IGNORECASE
)
_WISH = re.compile(r"\b(?:please|pls|plz)\b", re.IGNORECASE)

_THING = r"(?:answer|output|response|reply|text|result)"
_ANSWER = rf"(?:it|this|that|(?:the |your )?{_THING})"
_VERY = r"(?:(?:way|far|much|a bit|a little|a lot|really|still|again|just|rather|somewhat|quite) )*"

_TOO = {
    "Keep the answer short and to the point.": "long wordy verbose lengthy chatty talkative rambling longwinded long-winded much",
    "Give a longer, more detailed answer.": "short terse brief curt",
    "Use a less formal tone.": "formal stiff bureaucratic robotic cold",
    "Use a more formal tone.": "informal casual familiar colloquial",
    "Use simple words and explain technical terms.": "technical complicated complex difficult academic",
    "Be polite.": "rude harsh unfriendly impolite blunt",
    "Be specific.": "vague generic general unspecific abstract",
    "Give less detail.": "detailed",
    "Give more detail.": "superficial shallow simple",
}
_MEANT = {adjective: text for text, adjectives in _TOO.items() for adjective in adjectives.split()}
CANONICAL = frozenset(_TOO)
"""Instructions that are ours word for word: a recognized idiom becomes one of them, with nothing of what was said."""
_NEGATIVE = "wordy|verbose|lengthy|chatty|rambling|robotic|rude|harsh|unfriendly|impolite|vague|unspecific|superficial"
_MUCH = {"more": "Give more", "less": "Use less", "fewer": "Use fewer"}
_PAST = {
    "added": "add", "answered": "answer", "asked": "ask", "begun": "begin", "cited": "cite", "explained": "explain",
    "formatted": "format", "given": "give", "included": "include", "kept": "keep", "left": "leave", "linked": "link",
    "listed": "list", "mentioned": "mention", "named": "name", "offered": "offer", "provided": "provide", "put": "put",
    "rounded": "round", "said": "say", "shown": "show", "started": "start", "stated": "state", "stopped": "stop",
    "told": "tell", "translated": "translate", "used": "use", "written": "write", "checked": "check", "converted": "convert",
}  # fmt: skip


def wish(text: str) -> str | None:
    """The instruction that a complaint means, or None when that is not certain.

    >>> wish("Way too chatty."), wish("You forgot to mention the receipt!!")
    ('Keep the answer short and to the point.', 'Mention the receipt.')
    >>> wish("could you just use metres instead of feet?")
    'Use metres instead of feet.'
    """
    bare = _ENDING.sub("", _OPENER.sub("", text.strip()))
    polite = bool(_WISH.search(text))
    bare = _POLITE.sub("", bare).strip()
    for pattern, turn in _TURNS:
        match = pattern.fullmatch(bare)
        if match:
            return _sentence(turn(match))
    if imperative(bare):
        return _sentence(bare)
    if polite and not normative(bare) and 1 < len(bare.split()) < 12:
        return _sentence(f"Take care of this wish: {bare}")
    return None


def plainly(text: str, critiques: Sequence[str]) -> str:
    """A distilled instruction in the words that one of its complaints means for certain, the first that does.

    A complaint that is only reported (`Avoid this fault: ...`) is quoted instead: nobody can tell by rule
    whether its words say what was wrong or what is wanted.
    """
    meant = next((found for critique in critiques if (found := wish(critique)) is not None), None)
    if meant is not None:
        return meant
    report = text.removeprefix(REPORTED)
    return (
        text
        if report == text
        else f'Give no cause for this complaint: "{report.strip().rstrip(".").replace(chr(34), chr(39))}".'
    )


def _sentence(text: str) -> str | None:
    """One line with a capital and a full stop; None for a text that says nothing."""
    text = _POLITE.sub("", " ".join(text.split())).strip(" ,;:")
    if not any(c.isalnum() for c in text):
        return None
    text = text if re.match(r"\w+[A-Z_.]", text) else text[0].upper() + text[1:]
    return text if text[-1] in ".!?\"'”’" else f"{text}."


def _too(match: re.Match[str]) -> str:
    word = match["what"].casefold()
    return _MEANT.get(word, f"Do not be too {word}.")


def _much(match: re.Match[str]) -> str:
    return f"{_MUCH[match['how'].casefold()]} {match['what']}."


def _past(match: re.Match[str]) -> str:
    verb = _PAST.get(match["verb"].casefold())
    no = "Do not " if match["no"] else ""
    return f"{no}{verb} {match['rest']}" if verb else match.group()


def _as(template: str) -> Callable[[re.Match[str]], str]:
    """A turn that puts the group `what` in the place of `*`."""
    return lambda match: template.replace("*", match["what"])


REPORTED = "Avoid this fault:"
"""How the distiller begins an instruction when it only knows what was complained about."""
_PAST_VERBS = "|".join(_PAST)
_TURNS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), turn)
    for pattern, turn in (
        (rf"(?:{_ANSWER} ?(?:is|was|'s|’s|feels|sounds|seems) |(?:you )?(?:are"
         rf"|were) )?{_VERY}too (?P<what>[\w-]+)(?: for .+)?", _too),
        (rf"(?:{_ANSWER} ?(?:is|was|'s|’s|feels|sounds|seems) |(?:you )?(?:are|were) )?{_VERY}(?P<what>{_NEGATIVE})", _too),
        (
            r"you (?:always|constantly|often|keep) (?P<what>(?:say|use|write|add|begin|start|end|repeat"
            r"|mention|apologi[sz]e|give|put"
            r"|call|ask|tell|list)\b.*?)(?:\s*[-–—,;.]\s*(?:please )?(?:stop (?:that|it|doing (?:that|it))|don't))?",
            _as("Do not *"),
        ),
        (r"(?:you|it|the answer|the model) (?:hallucinated|invented|fabricated"
         r"|made up) (?P<what>.+)", _as("Do not invent *.")),
        (
            rf"(?:you|{_ANSWER}) (?:says?|said|uses?|used|wrote|writes?|gave|gives?) (?P<was>.+?)"
            r" instead of (?P<what>.+)",
            lambda m: f"Write {m['what']} instead of {m['was']}",
        ),
        (rf"(?:{_ANSWER} ?(?:is|was|'s|’s) )?(?:not|isn't|wasn't) (?P<what>[\w-]+) enough", _as("Be more *.")),
        (rf"{_VERY}too many (?P<what>[\w -]{{2,60}})", _as("Use fewer *.")),
        (rf"{_VERY}too much (?P<what>[\w -]{{2,60}})", _as("Use less *.")),
        (r"(?P<how>more|less|fewer) (?P<what>[\w -]{2,60})", _much),
        (rf"(?:make {_ANSWER} |keep {_ANSWER} )?(?:{_VERY})(?:short|shorter|brief|concise"
         rf"|more concise)", lambda m: _MEANT["long"]),
        (r"no (?P<what>(?!one\b|idea\b|longer\b|need\b)[\w -]{2,60})", _as("Do not use *.")),
        (r"enough with the (?P<what>.+)", _as("Do not use *.")),
        (r"(?:can|could|would|will) (?:you|it) (?:(?:please|just|maybe|perhaps|also|at least) )*(?P<what>.+)", _as("*")),
        (r"(?:i(?:'d| would)? (?:like|prefer|love|want|need)|i want(?:ed)?) (?:you|it) to (?P<what>.+)", _as("*")),
        (r"(?:it )?(?:would|might) be (?:nice|better|great|good|helpful|useful"
         r"|best)(?: for you)? to (?P<what>.+)", _as("*")),
        (r"you (?:really )?(?:should|need to|must|have to|ought to|could)(?: also)? (?!not\b|n't"
         r"|have\b)(?P<what>.+)", _as("*")),
        (r"you (?:should(?:n't| not)|must(?:n't| not)|can(?:'t|not)|may not) (?!have\b)(?P<what>.+)", _as("Do not *")),
        (
            rf"(?:you|it) (?:should|could|ought to)(?P<no>n't| not)? have (?P<verb>{_PAST_VERBS})\b(?P<rest>.*)",
            _past,
        ),
        (r"(?:you|it) (?:forgot|failed|neglected|omitted|refused) to (?P<what>.+)", _as("*")),
        (r"(?:do not|don't|never) forget to (?P<what>.+)", _as("*")),
        (r"(?:you |it )?forgot (?:about )?(?P<what>(?:the|a|an|my|our|any) .+)", _as("Do not forget *")),
        (r"you (?:didn't|did not|don't|do not|never) (?P<what>(?!like\b|know\b|understand\b|get\b)[a-z]+ .+)", _as("*")),
        (
            rf"{_ANSWER} (?:didn't|did not|doesn't|does not) (?P<what>(?:mention|say|tell|explain|include"
            rf"|give|use|show|list|state|name"
            r"|answer|follow|provide|cite|link|contain|have)\b.*)",
            _as("*"),
        ),
        (r"(?:where|what) (?:is|are|was|were|about|happened to) (?P<what>(?:the|our|all) .+)", _as("Include *.")),
        (rf"(?:{_ANSWER} (?:is|was) )?(?:missing|lacks|lacking):? (?P<what>.+)", _as("Include *.")),
        (r"why (?:did|do) you (?P<what>(?!not\b).+)", _as("Do not *")),
        (r"why (?:didn't|don't|did you not|not) (?:you )?(?P<what>.+)", _as("*")),
        (r"(?:i (?:hate|dislike|don't (?:like|want|need)|do not (?:like|want|need))"
         r"|i'm tired of) (?P<what>.+)", _as("Do not give *.")),
        (r"(?:the )?wrong (?P<what>[\w ]{2,40})", _as("Use the right *.")),
    )
)  # fmt: skip
