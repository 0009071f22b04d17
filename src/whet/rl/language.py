"""A frozen language model as a policy: it is shown a question and writes texts or rewrites of a prompt.

Its replies come through one road. A reply that cannot be read, that repeats the question, or whose text the prompt refuses
(its slots, its fence, its length), is asked for once more with the reason; after that it is skipped. One that copies the form
of a reply or the question is asked for in another way: in plain text, without a form. A model that never writes a text of
use, or always the same, or whose calls all fail, is asked no more after a while. Lines of the prompt around the text that a
reply repeats, and lines that hold nothing but a slot from there, are left out. So a caller may get fewer results than it asked
for, but never an empty text, a changed fence or an exception. What was of no use is logged by reason. Text from a model is never
a template.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from whet.errors import EditRejected
from whet.prompt import Prompt
from whet.replies import TextReading, between, read_tagged_text, texts_in, unwrap, without_thought
from whet.replies.texts import CUT, NO_TEXT
from whet.run import Run
from whet.search.copies import Copies
from whet.search.versions import VERSION_TAG
from whet.types import JSON, Completion, Message, Request, lacks_answer
from whet_client.prompt.fence import MARKER, without_markers
from whet_client.prompt.slots import SLOT, slots

T = TypeVar("T")

ROLE = "optimizer"
RETRY = 1_000_000
TAG = "INSTRUCTION"
"""Editable texts stand between these tags, those that a question shows and the one that is wanted."""
_BYTES = 2
"""A rewrite may have a token for every so many bytes of the text: about two for each of its own."""
_TELLING = 20
_EXAMPLE = 120
NOT_COME = "it did not come: "
"""Begins the reason of a reply that is none, because its call failed; the error follows."""
_MARKUP = re.compile(r"</?[A-Za-z][\w-]*>")
_TASK_TAG = "TASK"


COPIED_FORM = "it copies the form of a reply and holds no text."
COPIED_QUESTION = "It repeats this message instead of the text that is wanted."
COPIES = COPIED_FORM, COPIED_QUESTION
"""Why a reply is of no use that copies what it was shown."""


class CopiedQuestion(EditRejected):
    """A text that repeats the question."""


REPEATED, MANY_REPEATS, MOST_REPEATS = "repeated", 12, 40
"""The number of equal texts in a row that causes a warning: the optimizer model varies nothing. After the most, a search asks
for none."""
MOST_ABSENT = 20
"""The number of texts in a row without a reply, because each call failed, after which a search asks for no more."""
IN_VAIN = 10
"""Texts that were asked for by different questions, none of them of any use, after which a search asks for no more."""


@dataclass
class FormUse:
    """The quality of replies to questions with a form. First ones: `copied` from the form or the question, or `filled` in
    somehow. By tag: `useful` texts, and for each question how many texts it gave up (`vain`). How often the `last` rewritten
    text came in a row (`repeats`), and how many texts in a row were lost because no reply came (`absent`)."""

    copied: int = 0
    filled: int = 0
    useful: Counter[str] = field(default_factory=Counter)
    vain: dict[str, list[int]] = field(default_factory=dict)
    last: str = ""
    repeats: int = 0
    absent: int = 0

    def count_repeats(self, texts: Sequence[str]) -> int:
        """Take in the texts of a question's replies; how many texts in a row were the same, the last one included."""
        for text in texts:
            self.repeats = self.repeats + 1 if text == self.last else 1
            self.last = text
        return self.repeats

    def count_absent(self, losses: Sequence[bool]) -> None:
        """Take in, for each text of a question, whether it was lost because none of its replies came."""
        for lost in losses:
            self.absent = self.absent + 1 if lost else 0

    @property
    def hopeless(self) -> bool:
        """Whether texts of some kind were asked for by several questions, and none of many replies was of use, or very many
        rewrites in a row were the same text, or no reply came for many texts in a row."""
        return (
            self.repeats >= MOST_REPEATS
            or self.absent >= MOST_ABSENT
            or any(
                len(lost) > 1 and sum(lost) >= IN_VAIN
                for tag, lost in self.vain.items()
                if not self.useful[tag]
            )
        )


@dataclass(frozen=True)
class LanguagePolicy:
    """The optimizer model of a run."""

    temperature: float = 1.0
    """Of its samples."""
    max_tokens: int = 1024
    """The bound on one reply; a rewrite of a long text gets more."""
    attempts: int = 2
    """The largest number of requests for one text."""
    charge: Callable[[int], None] = lambda calls: None
    """Called with the number of calls that each question took."""
    plain: bool = False
    """Whether texts are asked for without a form of the reply from the first time on, for a model that copies the form."""
    silent: bool = False
    """Whether nothing is asked and no text comes back, for a model that never wrote a useful one, or always the same, or
    whose calls fail."""
    forms: FormUse = field(default_factory=FormUse, compare=False, repr=False)

    def adapt(self) -> LanguagePolicy:
        """The policy for the next round: without a form where most first replies copied it, and one that asks nothing where it
        was asked in vain too often. A search calls this between rounds, never while branches of `run.map` are under way, so
        that a resumed run asks the same."""
        return replace(self, plain=self.forms.copied > self.forms.filled, silent=self.forms.hopeless)

    async def write(
        self, run: Run, question: str, tag: str, n: int = 1, *, sample: int = 0, many: bool = False
    ) -> list[str]:
        """Texts of `n` independent replies to a question, at most one each unless `many`, in order.

        The reply form (`<TAG>...</TAG>`) is appended to the question. `sample` numbers the first reply:
        ask the same question again with numbers not used before, or the cache returns the same texts.
        """
        request = question.rpartition("\n\n")[2]

        def accept(texts: list[str]) -> list[str]:
            if any(len(text) >= _TELLING and text in request for text in texts):
                raise CopiedQuestion(COPIED_QUESTION)
            return texts

        replies = await self._replies(run, f"{question}\n\n", tag, accept, n, sample, many)
        return [text for reply in replies for text in reply]

    async def rewrite(
        self,
        run: Run,
        start: Prompt,
        question: str,
        n: int = 1,
        *,
        sample: int = 0,
        text: str | None = None,
        region: str | None = None,
    ) -> list[Prompt]:
        """Prompts that `n` replies make of `start`: the text of a region (by default the first) replaced, all else as it was.

        `text` is the editable text that the question shows (by default that of `start`); its slots are
        named with the request to keep them. A text that the prompt refuses (EditRejected), that repeats the question or
        has slots from around the editable text is asked for once more with the reason. At most `n` prompts; some may be equal.
        A reply may be about twice as long as the text, however long that is.
        """
        focused = start if region is None else start.with_focus(region)
        shown = start.region_text(region) if text is None else text
        now = start.text.replace(start.region_text(region).strip(), shown.strip(), 1)
        limit = "" if start.limit is None else f"{start.limit.describe(now)}\n"
        notes = f"{_slot_note(shown)}\n{limit}{_ONLY} "
        body = f"{question}\n\n{notes}"
        whole = body + _form(TAG, False)
        copies = Copies([notes], f"{shown}\n{start.text}")
        room = max(self.max_tokens, len(shown.encode()) // _BYTES)
        old = {shown.strip(), *between(question, f"<{TAG}>", f"</{TAG}>")}
        return await replace(self, max_tokens=room)._replies(
            run,
            body,
            TAG,
            lambda texts: start.edit(_without_notes(_own(focused, shown, texts[0], whole), copies), region),
            n,
            sample,
            False,
            lambda prompt: prompt.region_text(region).strip() in old,
            lambda prompt: prompt.region_text(region).strip(),
        )

    async def rephrase(self, run: Run, text: str, part: str, *, sample: int = 0) -> list[str]:
        """Wordings that could stand in the place of a part of a text; none when the reply was of no use."""
        question = f"{INSTRUCTION}\n\n{in_tags(text)}\n\n{WHICH}\n{part}"
        return await self.write(run, question, "WORDING", sample=sample, many=True)

    async def _replies(
        self,
        run: Run,
        question: str,
        tag: str,
        accept: Callable[[list[str]], T],
        n: int,
        sample: int,
        many: bool,
        is_old: Callable[[T], bool] = lambda result: False,
        written: Callable[[T], str] | None = None,
    ) -> list[T]:
        """The value of `accept` for each readable reply to a question and a form. Counts are logged as `replies`, replies
        without a new text (`is_old`) as `unchanged`, and equal texts in a row (`written`) from `REPEATED` on as `repeated`."""

        bare = list[str]()

        async def one(branch: Run, number: int) -> tuple[list[T], list[_Unusable]]:
            plain, note, unusable = self.plain, "", list[_Unusable]()
            for attempt in range(self.attempts):
                form = _plain_form(many) if plain else _form(tag, many)
                request = Request(
                    (Message("user", f"{question}{form}{note}"),),
                    self.temperature,
                    self.max_tokens,
                    sample=number + attempt * RETRY,
                )
                completion = (await branch.generate(ROLE, request))[0]
                reading = _read(completion, tag, many, attempt > 0, plain)
                if not reading.texts:
                    unusable.append(_Unusable("off_format", _fault(completion, reading), completion.text))
                    note = f"\n\n{_UNREAD} {reading.problem} {_AGAIN}"
                else:
                    try:
                        results = [accept(reading.texts)]
                        bare.extend(reading.texts if reading.bare and tag == TAG and not plain else ())
                        return results, unusable
                    except EditRejected as error:
                        unusable.append(_Unusable("rejected", str(error), completion.text))
                        note = f"\n\n{_REFUSED} {error}"
                if unusable[-1].reason in COPIES:
                    plain, note = not plain, ""
            return [], unusable

        if self.silent:
            return []
        outcomes = await run.map(one, range(sample, sample + n))
        kept = [result for results, _ in outcomes for result in results]
        if not self.plain:
            copied = sum(bool(unusable) and unusable[0].reason in COPIES for _, unusable in outcomes)
            self.forms.copied, self.forms.filled = (
                self.forms.copied + copied,
                self.forms.filled + n - copied,
            )
        self.forms.useful[tag] += len(kept)
        lost = sum(not results and any(u.reply.strip() for u in why) for results, why in outcomes)
        self.forms.vain.setdefault(tag, []).extend([lost] if lost else [])
        self.forms.count_absent(
            [not results and all(u.reason.startswith(NOT_COME) for u in why) for results, why in outcomes]
        )
        unchanged = sum(map(is_old, kept))
        self.charge(len(kept) + sum(len(unusable) for _, unusable in outcomes))
        counts = _counts([one for _, unusable in outcomes for one in unusable])
        counts |= {"unchanged": unchanged} if unchanged else {}
        counts |= {"bare": [len(bare), _begin(min(bare))]} if bare else {}
        repeats = 0 if written is None or not kept else self.forms.count_repeats([*map(written, kept)])
        counts |= {REPEATED: [repeats, _begin(self.forms.last)]} if repeats >= MANY_REPEATS else {}
        run.log("replies", {"asked": n, "kept": len(kept), **counts})
        return kept


@dataclass(frozen=True)
class _Unusable:
    """A reply that could not be used: whether its form or its text was at fault, why, and what it said."""

    kind: str
    reason: str
    reply: str


def _counts(unusable: Iterable[_Unusable]) -> dict[str, JSON]:
    """Count the unusable replies by kind; and by reason, with the beginning of the first reply of each."""
    counts: dict[str, int] = {"off_format": 0, "rejected": 0}
    reasons: dict[str, list[JSON]] = {}
    for one in unusable:
        counts[one.kind] += 1
        entry = reasons.setdefault(one.reason, [0, _begin(one.reply)])
        reasons[one.reason] = [int(str(entry[0])) + 1, entry[1]]
    why: list[JSON] = [[reason, *entry] for reason, entry in reasons.items()]
    return {**counts, **({"why": why} if why else {})}


def _begin(reply: str) -> str:
    """The beginning of a reply on a single line."""
    return " ".join(reply.split())[:_EXAMPLE]


def _read(completion: Completion, tag: str, many: bool, lenient: bool, plain: bool) -> TextReading:
    """The texts of a reply, or why there is none. A prompt with the markers of its fence gives what stands between them. `plain`:
    no form was asked for, and the whole reply may be the text."""
    if _copies_form(completion.text, tag):
        return TextReading([], COPIED_FORM)
    if many:
        enclosed = texts_in(completion, tag, many=True)
        texts = enclosed or texts_in(completion, tag, many=True, bare=lenient or plain)
        missing = "" if texts else f"{NO_TEXT}between the tags <{tag}> and </{tag}>."
        return TextReading(texts, missing, bare=texts != enclosed)
    if not completion.text.strip() and lacks_answer(completion.error):
        return TextReading([], f"{NOT_COME}{completion.error}")
    reading = read_tagged_text(completion, tag, lenient=lenient or plain)
    if plain and not reading.texts and completion.finish != "length":
        text = unwrap(without_thought(completion.text), tag)
        reading = TextReading([text] if text else [], reading.problem)
    whole = completion.text.strip() if not reading.texts else reading.texts[0]
    return (
        TextReading([whole])
        if tag == TAG and completion.finish != "length" and _text_in_markers(whole)
        else reading
    )


def _fault(completion: Completion, reading: TextReading) -> str:
    """Why a reply without a text is of no use: one that its limit on tokens ended was cut, whatever form it began."""
    return CUT if completion.finish == "length" and reading.problem.startswith(NO_TEXT) else reading.problem


def _copies_form(reply: str, tag: str) -> bool:
    """Whether a reply is a form that nobody filled in: its tags around dots, or nothing but tags and marks."""
    plain = _MARKUP.sub("", reply)
    blank = bool(reply.strip()) and not any(c.isalnum() for c in plain)
    return blank or reply.count(f"<{tag}>") == reply.count(_blank_form(tag)) > 0


def _text_in_markers(text: str) -> str | None:
    """The text between the markers of a prompt with one fence; None unless the first marker begins its line and the other ends
    its line."""
    marks = list(MARKER.finditer(text))
    if [mark[1] for mark in marks] != ["begin", "end"]:
        return None
    begin, end = marks
    before = text[text.rfind("\n", 0, begin.start()) + 1 : begin.start()]
    after = text[end.end() :].partition("\n")[0]
    return None if before.strip() or after.strip() else text[begin.end() : end.start()].strip()


def setting(description: str, start: Prompt, name: str | None = None) -> str:
    """The context for an improver of `start`: the task, and the text around the region (by default the first). May be ''.

    The prompt is shown without its fence markers, a mark in the place of the editable text. Of a program's prompts the one in
    which the region lies is shown, and the others are named.
    """
    if start.parts:
        own, inner = start.part_of(name)
        others = ", ".join(part for part in start.parts if part != own)
        part = f'It belongs to the prompt "{own}" of a program.' + (
            f" Its other prompts: {others}." if others else ""
        )
        return f"{setting(description, start.parts[own], inner)}{part}\n\n"
    region = start.region(name)
    contents = [m.content for m in start.messages]
    old = contents[region.message]
    contents[region.message] = old[: region.start] + EDITABLE + old[region.stop :]
    shown = "\n\n".join(without_markers(content) for content in contents)
    parts = [f"{TASK}\n<{_TASK_TAG}>\n{description.strip()}\n</{_TASK_TAG}>"] if description.strip() else []
    if shown.strip() != EDITABLE:
        parts.append(f"{SURROUNDINGS}\n{shown}")
    return "".join(f"{part}\n\n" for part in parts)


def show_instruction(description: str, start: Prompt, text: str, heading: str | None = None) -> str:
    """The context for an improver of `start` (`setting`), and under a heading its present text."""
    return f"{setting(description, start)}{heading or INSTRUCTION}\n\n{in_tags(text)}"


def in_tags(text: str) -> str:
    """A text as a question shows it: between the tags of an instruction."""
    return f"<{TAG}>\n{text}\n</{TAG}>"


def _own(start: Prompt, shown: str, text: str, question: str) -> str:
    """A written text without what stands around the editable region already: the rest of the prompt around the markers of its
    fence, lines that carry its slots, lines at either end that hold nothing but such a slot. Raises EditRejected for a slot of
    another region elsewhere, and for a text that repeats two lines of the question which stand in no instruction, no version and
    no task."""
    text = _text_in_markers(text) or text
    if start.fenced:
        surroundings = [line.strip() for line in setting("", start).splitlines()]
        around = {line for line in surroundings if slots(line)}
        around -= {line.strip() for line in shown.splitlines()}
        text = "\n".join(line for line in text.splitlines() if line.strip() not in around).strip()
        if extra := (slots(text) - slots(shown)) & start.slots:
            text = _without_slot_lines(text, extra)
        if extra := (slots(text) - slots(shown)) & start.slots:
            raise EditRejected(
                f"It has {_list_names(extra)}, which stands outside of it already. Leave it out."
            )
    quoted = [
        text for tag in (TAG, _TASK_TAG, VERSION_TAG) for text in between(question, f"<{tag}>", f"</{tag}>")
    ] + [shown]
    own = {line.strip() for line in question.splitlines()} - {
        line.strip() for q in quoted for line in q.splitlines()
    }
    repeated = {line.strip() for line in text.splitlines()} & {line for line in own if len(line) >= _TELLING}
    if len(repeated) > 1 or _AGAIN in text:
        raise CopiedQuestion(COPIED_QUESTION)
    return text


def _without_notes(text: str, copies: Copies) -> str:
    """A written text. Raises EditRejected for one that copies a piece of the notes about its slots, its length and its form: they
    are meant for the optimizer model, and mean nothing to the model of the task."""
    if piece := copies.piece(text):
        raise EditRejected(
            f'It repeats words of this message that are meant for you ("{piece}"). Leave them out.'
        )
    return text


def _without_slot_lines(text: str, extra: Collection[str]) -> str:
    """A text without the lines at either end that hold one of these slots and otherwise a label or a tag at most."""
    lines = text.split("\n")

    def spare(line: str) -> bool:
        held, rest = slots(line), SLOT.sub("", line).strip()
        label = not any(c.isalnum() for c in _MARKUP.sub("", rest)) or rest.endswith((":", "："))
        return bool(held) and held <= set(extra) and label

    while lines and (not lines[-1].strip() or spare(lines[-1])):
        lines.pop()
    while lines and (not lines[0].strip() or spare(lines[0])):
        lines.pop(0)
    return "\n".join(lines)


def _list_names(names: Iterable[str]) -> str:
    return ", ".join("{{" + name + "}}" for name in sorted(names))


def _blank_form(tag: str) -> str:
    return f"<{tag}>...</{tag}>"


def _form(tag: str, many: bool) -> str:
    if many:
        return f"Put each one between its own pair of tags, like this: {_blank_form(tag)}"
    return f"Put it between tags, like this: {_blank_form(tag)}"


def _plain_form(many: bool) -> str:
    if many:
        return "Write each one on a line of its own, with a dash in front, and nothing else."
    return "Write it in plain text, with nothing before or after it."


def _slot_note(text: str) -> str:
    names = slots(text)
    if not names:
        return "Do not write placeholders in double braces."
    return (
        f"The text contains placeholders ({_list_names(names)}) that are replaced by data later. "
        "Copy each of them exactly as it stands, braces included, and add no others."
    )


TASK = "What the model is used for:"
EDITABLE = "[INSTRUCTION]"
SURROUNDINGS = f"The instruction is a part of this prompt, in the place of {EDITABLE}. The rest of the prompt stays as it is:"
INSTRUCTION = "The instruction of a language model:"
WHICH = "Write five other wordings of this part of it. Each must fit in its place:"
_ONLY = "Write only the new instruction."
_UNREAD = "Your last reply could not be read:"
_AGAIN = "Write nothing but the text, between the tags."
_REFUSED = "Your last text could not be used:"
