"""The place where the thought of a reply ends and its answer begins.

Models that think hand their thoughts over in many forms; none of them is a part of the answer. Position decides, never words:

1. A thought stands before the answer. A reply that begins with an opening mark (`<think>`, `<thinking>`, `<thought>`,
   `<reasoning>`, `<seed:think>`, `<mm:think>`, `<think_fast>`, `[THINK]`, `<|START_THINKING|>`, `<|begin_of_thought|>`,
   `<|channel>thought`, `<unused94>thought`, a harmony channel other than `final`, and their relatives) holds a thought up to the
   mark that closes it, marks inside counted; several in a row are all thoughts. A mark of another name (`<think>` ...
   `</thinking>`) closes it where none of its own does. Not closed: the reply was cut, and there is no answer.
2. Some servers eat the opening mark. A closing mark with no opening one before it ends a thought that began with the reply:
   anywhere where the mark is a model's own (`</think>`, `[/THINK]`, ...), at either end of a line where it could be XML as
   well (`</thought>`, `</thinking>`, `</reasoning>`). Further such marks at the ends of the answer behind a thought go with it.
3. Marks in fenced blocks, in inline code, in quotation marks and in a reply that is JSON are text of the answer, and so is a pair
   of marks with text before it.

Marks of chat templates for the end of a turn (`<|im_end|>`, `</s>`, ...) at the very end are no part of the answer either.
An answer that is to begin with such a tag is read as a thought by rule 1: the task model's option `thoughts: true` keeps it.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from whet.replies.blocks import stretches_of
from whet.types import Completion

EMPTY = "model: empty answer"
CUT = "model: empty answer (token limit reached before any text)"
"""The error of a completion that is a thought without an end and says that it was cut."""
UNENDED = "model: empty answer (a thought without an end: a limit on tokens, or a `stop` text within the thought, ended it)"
"""The error of another completion that is a thought without an end."""

_MAKER = r"(?:[a-z][\w-]*:)?"
"""The maker of a model before the name of its mark: `seed:`, `mm:`."""
_THINK = r"think(?:_fast(?:er)?)?"
_XML = rf"{_MAKER}(?:{_THINK}|thinking|thoughts?|reasoning)"
_WORD = r"(?:think(?:ing)?|thought|reasoning)"
_OPEN = (
    rf"<\s*(?P<xml>{_XML})(?:\s[^<>]*?)?(?P<empty>/?)>"
    rf"|\[(?P<square>{_WORD})\]"
    rf"|<\|(?P<special>(?:start_|begin_of_|begin_)?{_WORD}(?:_start|_begin)?|inner_prefix)\|>"
    r"|◁(?P<kimi>think)▷"
    r"|(?P<channel><\|channel>|<unused\d+>)\s*(?:thought|analysis)\b"
)
_OPENING = re.compile(_OPEN, re.IGNORECASE)
_MARK = re.compile(
    rf"{_OPEN}|</\s*(?P<end_xml>{_XML})\s*>|\[/(?P<end_square>{_WORD})\]"
    rf"|<\|(?P<end_special>(?:/|end_|end_of_|/end_){_WORD}|{_WORD}(?:_end|_stop)|inner_suffix)\|>"
    r"|(?P<end_kimi>◁/think▷)|(?P<end_channel><channel\|>|<unused\d+>)",
    re.IGNORECASE,
)
_MOST_THOUGHTS = 8
_NAMED = ("xml", "square")
_EATEN = re.compile(
    rf"</{_MAKER}{_THINK}>|\[/THINK\]|<\|(?:/|end_|end_of_)(?:think(?:ing)?|thought)\|>|<\|END_THINKING\|>|◁/think▷|<channel\|>"
    rf"|</{_XML}>(?=[ \t]*(?:\n|\Z))|(?<=\n)</{_XML}>",
    re.IGNORECASE,
)
_FINAL = re.compile(r"<\|channel\|>\s*final\b[^<]*(?:<\|constrain\|>[^<]*)?<\|message\|>")
_HARMONY = re.compile(r"\s*(?:<\|start\|>\s*assistant\s*)?<\|channel\|>")
_BARE_HARMONY = re.compile(r"\s*analysis(?=\S)(?:.*?)assistantfinal", re.DOTALL)
_WRAPPED = re.compile(r"\s*<\|(?:START_RESPONSE|begin_of_solution)\|>")
_ENDS = ("<|END_RESPONSE|>", "<|end_of_solution|>", "<|call|>")
_TURN_ENDS = (
    *("<|im_end|>", "</s>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|endoftext|>", "<end_of_turn>"),
    *("<|return|>", "<|end|>", "<|END_OF_TURN_TOKEN|>", "<｜end▁of▁sentence｜>"),
)
"""Marks of chat templates for the end of a turn, which a server should take off."""
_TICKS = re.compile(r"`+|\n")
_QUOTES = "\"'“”‘’„«»`"


@dataclass(frozen=True, slots=True)
class Split:
    """A reply in two: its thought with its marks, as it stands there, and the answer after it. `cut`: the thought has no end."""

    thought: str
    answer: str
    cut: bool = False


def split_thought(text: str) -> Split:
    """The thought of a reply (empty for none) and its answer, without marks for the end of a turn; where there is a thought, the
    answer is without outer space.

    >>> split_thought("<think>Is 3 right? Yes.</think> 3")
    Split(thought='<think>Is 3 right? Yes.</think>', answer='3', cut=False)
    >>> split_thought("Write <think>a</think> first.").thought
    ''
    """
    if not _may_hold_marks(text):
        return Split("", text)
    at = _end_of_channels(text)
    if at is None:
        at = _end_of_opened(text)
    if at is None:
        at = _end_of_eaten(text)
    if at is None:
        return Split("", without_marks(text))
    if at < 0:
        return Split(text, "", cut=True)
    answer = _without_orphans(text[at:].strip())
    wrapped = _WRAPPED.match(answer)
    answer = answer[wrapped.end() :] if wrapped else answer
    answer = without_marks(answer, (*_ENDS, *_TURN_ENDS))
    return Split(text[:at].rstrip(), answer.strip())


def _without_orphans(answer: str) -> str:
    """An answer without further closing marks at its ends, which some servers write once more."""
    marks = [match.span() for match in _EATEN.finditer(answer)]
    start, stop = 0, len(answer)
    for begin, end in marks:
        if answer[start:begin].strip():
            break
        start = end
    for begin, end in reversed(marks):
        if begin < start or answer[end:stop].strip():
            break
        stop = begin
    return answer[start:stop].strip()


def without_marks(text: str, marks: Sequence[str] = _TURN_ENDS) -> str:
    """A text without the marks for the end of a turn at its very end; one that has none stays as it is, and so does a `</s>` that
    closes an `<s>` of the text.

    >>> without_marks("yes<|im_end|>\\n"), without_marks("<s>old</s>")
    ('yes', '<s>old</s>')
    """
    rest = text.rstrip()
    if not rest.endswith(">"):
        return text
    while end := next((mark for mark in marks if rest.endswith(mark)), ""):
        if end == "</s>" and rest.count("<s>") >= rest.count(end):
            break
        text = rest = rest.removesuffix(end).rstrip()
    return text


def without_thought(text: str) -> str:
    """The answer in a reply, without outer space.

    >>> without_thought("The user wants a number.</think>\\n3")
    '3'
    """
    return split_thought(text).answer.strip()


def separate_thought(completion: Completion) -> Completion:
    """A completion whose text is the answer alone, its thought kept beside it. A thought without an end is no answer: the
    completion has an empty text, finish `length` and an error. A thought that is already separated is unchanged, except for
    end-of-turn marks."""
    if not _may_hold_marks(completion.text):
        return completion
    split = (
        Split("", without_marks(completion.text)) if completion.thought else split_thought(completion.text)
    )
    if not split.thought:
        if split.answer == completion.text:
            return completion
        blank = None if split.answer.strip() else EMPTY
        return replace(completion, text=split.answer, error=completion.error or blank)
    parted = replace(completion, text=split.answer, thought=split.thought, first_token=None)
    if split.cut:
        own = CUT if completion.finish == "length" else UNENDED
        return replace(parted, finish="length", error=completion.error or own)
    return (
        parted
        if split.answer or completion.error
        else replace(parted, error="model: empty answer (only a thought)")
    )


def join_thought(completion: Completion) -> Completion:
    """A completion whose text holds the thought again, before the answer; one that came beside the text stands in `<think>`."""
    if not completion.thought:
        return completion
    inline = split_thought(completion.thought).thought
    thought = completion.thought if inline else f"<think>\n{completion.thought}\n</think>"
    error = None if completion.error in (CUT, UNENDED) else completion.error
    return replace(completion, text=f"{thought}\n{completion.text}".strip(), thought="", error=error)


def opening_at_end(text: str) -> str:
    """The opening mark with which a text ends, such as a chat template writes it for the model; empty for none.

    >>> opening_at_end("<|im_start|>assistant\\n<think>\\n")
    '<think>'
    """
    at = max(text.rfind("<"), text.rfind("["))
    mark = _OPENING.fullmatch(text[at:].strip()) if at >= 0 else None
    return mark.group() if mark and not mark["empty"] else ""


def _may_hold_marks(text: str) -> bool:
    """Whether any mark of a thought or of the end of a turn may be there: most replies hold none, and cost no more than this."""
    return "<" in text or "[" in text or "◁" in text or "assistantfinal" in text


def _end_of_channels(text: str) -> int | None:
    """The start of the final channel of a harmony reply; -1 for a reply without one; None for a reply of another form."""
    if _HARMONY.match(text):
        final = _FINAL.search(text)
        return -1 if final is None else final.end()
    if bare := _BARE_HARMONY.match(text):
        return bare.end()
    if "<|channel|>" in text:
        hidden = _text_spans(text)
        ends = [m.end() for m in _FINAL.finditer(text) if not _is_text(text, m, hidden)]
        return ends[-1] if ends else None
    return None


def _end_of_opened(text: str) -> int | None:
    """The end of the thoughts at the beginning of a reply; -1 where a thought has no end; None for a reply that begins
    otherwise."""
    at = None
    for _ in range(_MOST_THOUGHTS):
        opening = _OPENING.match(text, len(text) - len(text[at or 0 :].lstrip()))
        if opening is None:
            break
        at = opening.end() if opening["empty"] else _find_thought_end(text, opening)
        if at < 0:
            break
    return at


def _find_thought_end(text: str, opening: re.Match[str]) -> int:
    """The end of the thought after an opening mark, with nested marks counted; -1 where it has no end. Where opening and
    closing marks do not match, the first closing mark counts; where none of this name closes, the first of another name that
    closes nothing else does.

    >>> text = "<think>Is it 3? Yes.</thinking>3"
    >>> text[_find_thought_end(text, _OPENING.match(text)) :]
    '3'
    """
    kind = next(name for name, value in opening.groupdict().items() if value)
    depth, first, quoted = 1, -1, -1
    other, others = -1, 0
    for mark in _MARK.finditer(text, opening.end()):
        closes = mark[f"end_{kind}"]
        if not (mark[kind] or closes) or (
            kind in _NAMED and (closes or mark[kind]).casefold() != opening[kind].casefold()
        ):
            if not (mark["empty"] or _is_quoted(text, mark)):
                others += -1 if _closes(mark) else 1
                other = mark.end() if others < 0 and other < 0 else other
            continue
        if _is_quoted(text, mark):
            quoted = mark.end() if closes and quoted < 0 else quoted
            continue
        if closes:
            depth, first = depth - 1, mark.end() if first < 0 else first
        elif not mark["empty"]:
            depth += 1
        if depth == 0:
            return mark.end()
    return next((end for end in (first, other, quoted) if end >= 0), -1)


def _closes(mark: re.Match[str]) -> bool:
    """Whether a mark is a closing one."""
    return any(value and name.startswith("end_") for name, value in mark.groupdict().items())


def _end_of_eaten(text: str) -> int | None:
    """The end of a thought whose opening mark is missing; None where no mark ends it."""
    closing = next(iter(_EATEN.finditer(text)), None)
    if closing is None or _is_json(text):
        return None
    hidden = _text_spans(text)
    opened = next((m.start() for m in _OPENING.finditer(text) if not _is_text(text, m, hidden)), len(text))
    for mark in _EATEN.finditer(text):
        if mark.start() > opened:
            return None
        if not _is_text(text, mark, hidden):
            return mark.end()
    return None


def _text_spans(text: str) -> list[tuple[int, int]]:
    """The positions of fenced blocks and inline code, in order and without overlap."""
    fenced = [(s.begin, s.stop) for s in stretches_of(text) if s.closed]
    spans = list[tuple[int, int]]()
    for start, stop in sorted([*fenced, *_inline_code(text)]):
        if not spans or start >= spans[-1][1]:
            spans.append((start, stop))
    return spans


def _inline_code(text: str) -> Iterator[tuple[int, int]]:
    """The positions of inline code: between two equal runs of backticks on a line."""
    opened: re.Match[str] | None = None
    for run in _TICKS.finditer(text):
        if run.group() == "\n":
            opened = None
        elif opened is None:
            opened = run
        elif opened.group() == run.group():
            yield opened.start(), run.end()
            opened = None


def _is_text(text: str, mark: re.Match[str], hidden: list[tuple[int, int]]) -> bool:
    at = bisect_right(hidden, (mark.start(), len(text))) - 1
    return (at >= 0 and mark.end() <= hidden[at][1]) or _is_quoted(text, mark)


def _is_quoted(text: str, mark: re.Match[str]) -> bool:
    """Whether a mark stands alone between quotation marks."""
    before, after = text[max(0, mark.start() - 1) : mark.start()], text[mark.end() : mark.end() + 1]
    return bool(before and after) and before in _QUOTES and after in _QUOTES


def _is_json(text: str) -> bool:
    if text.lstrip()[:1] not in ("{", "[", '"'):
        return False
    try:
        json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return False
    return True
