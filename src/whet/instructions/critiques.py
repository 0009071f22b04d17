"""The critiques of a rollout that the reader sees, or the answer itself if no critique says why it is wrong."""

from __future__ import annotations

import itertools
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from whet.instructions.guard import find_reasons_to_withhold
from whet.instructions.neighbours import comparable
from whet.instructions.questions import LONGEST_SHOWN, Critique, confusions, one_line, quote
from whet.rewards.targets import state_correction, targets_of
from whet.run import Run
from whet.search.corrections import holds_words, say_the_same
from whet.search.labels import find_answers, say_one_sided
from whet.search.minibatch import answered_rollouts, say_cut, shorten, show_example, show_rollout
from whet.types import Example, Rollout, TraceStep

COMMENTS = ("critique", "comment", "feedback", "explanation", "annotation")
"""Keys of a row under which people say what they think of its `output`."""
_MARK = re.compile(r"^[ \t]*(?:[-*•–]|\(?\d{1,3}[.):]|\[\d{1,3}\])[ \t]+")
_LINES = 40
_OTHERS, _LONG = 8, 4
"""Different inputs that tell what one row alone says, and characters of a word that tells anything."""
_SHOWN, _LABELLED_SHOWN = 1500, 600
"""Characters that are shown of an input or an answer; fewer where there are labels: a request needs room for rows of each."""
_RIGHT, _RIGHT_SHOWN, _RIGHT_LONGEST = "Some that were right, and must stay so:", 6, 200
"""The heading of rows that were answered right, how many are shown, and characters of an input or an answer."""
_REMARK = "The critique of each wrong answer says the same, for example:"
_FAILURES = "Of the wrong answers,"
_ECHOED = "those that only repeat the input"
_AGAIN, _AGAIN_SHOWN = "Wrong answers that came more than once:", 4
_NOTHING = "no text at all"
_BEGINNING = 60
"""Characters of an answer that is none of the labels, where such answers are counted."""


@dataclass(frozen=True)
class CritiqueBatch:
    """A graded roll-out: each different critique once, and what the answers have in common."""

    critiques: tuple[Critique, ...]
    answers: tuple[tuple[int, ...], ...]
    """For each critique, the numbers of the answers that got it."""
    rewards: tuple[float, ...]
    """The rewards of all answers."""
    private: tuple[str, ...] = ()
    """Texts of the rows' data, which no instruction may copy."""
    read: int | None = None
    """The number of answers that the critiques are about; None: all."""
    traces: tuple[tuple[TraceStep, ...], ...] = ()
    """For each answer, the steps of the program that gave it."""
    inputs: tuple[str, ...] = ()
    """For each answer, its input."""
    right: tuple[str, ...] = ()
    """Some rows that were answered rightly."""
    by_label: tuple[tuple[str, int, int], ...] = ()
    """For each label, how many of its rows were answered rightly, and how many it has."""
    rows: tuple[str, ...] = ()
    """For each answer, the id of its example."""
    full: tuple[bool, ...] = ()
    """For each answer, whether it earned the full reward."""
    mistakes: tuple[Critique, ...] = ()
    """The wrong answers to rows whose right answers are labels."""
    remark: str = ""
    """The words that the critiques of all wrong answers share, if any."""
    outputs: tuple[str, ...] = ()
    """For each answer, how it begins."""
    cut: str = ""
    """A sentence with the longest length of an answer and the number of answers that were cut off; empty if none was."""
    echoes: int = 0
    """The number of answers that repeat their input."""
    again: bool = False
    """Whether these answers were read before; then they count no second time."""

    @property
    def counted(self) -> int:
        """The number of answers that the critiques are about; answers without a critique are left out."""
        return len(self.rewards) if self.read is None else self.read

    @property
    def tally(self) -> str:
        """A sentence with the number of right answers, overall and for each label, examples of them, and the labels that were
        confused; empty without answers."""
        if not self.full:
            return ""
        by_label = ", ".join(f"{quote([label])} {right} of {rows}" for label, right, rows in self.by_label)
        right = sum(self.full)
        counted = f"Of {len(self.full)} answers, {right} {'was' if right == 1 else 'were'} right"
        counted += f" (wanted {by_label})." if by_label else "."
        counted += f"\n{self._one_sided}" if self._one_sided else ""
        counted += f"\n{_FAILURES} {_ECHOED}: {self.echoes}." if self.echoes else ""
        counted += f"\n{self.cut}" if self.cut else ""
        counted += f"\n{_REMARK} {self.remark}" if self.remark else ""
        again = () if self.mistakes else frequent_answers(self._wrong_outputs, most=_AGAIN_SHOWN, least=2)
        counted += f"\n{_AGAIN} {', '.join(again)}." if again else ""
        shown = "\n".join([_RIGHT, *(f"- {text}" for text in self.right)]) if self.right else ""
        parts = "\n".join(part for part in (counted, shown) if part)
        return "\n\n".join(part for part in (parts, confusions(self.mistakes)) if part)

    @property
    def _one_sided(self) -> str:
        """A sentence about the label that most answers are, if it is wanted much less often."""
        outputs = Counter({label: right for label, right, _ in self.by_label})
        outputs.update(one.answer for one in self.mistakes if one.answer)
        return say_one_sided(outputs, {label: rows for label, _, rows in self.by_label}, len(self.full))

    @property
    def _wrong_outputs(self) -> list[str]:
        return [text for text, full in zip(self.outputs, self.full, strict=False) if not full]

    def answer_indices(self, places: Iterable[int]) -> set[int]:
        """The answers that got one of these critiques."""
        return {answer for place in places for answer in self.answers[place]}

    def within(self, characters: int) -> CritiqueBatch:
        """The same with the critiques of as many answers, in their order, as these characters hold; of one at least."""
        length = [0] * len(self.rewards)
        for critique, own in zip(self.critiques, self.answers, strict=True):
            for answer in own[:1]:
                length[answer] += min(len(critique.text), LONGEST_SHOWN)
        most = max(1, bisect_right(list(itertools.accumulate(length)), characters))
        if most >= len(self.rewards):
            return self
        kept = self.only([n for n, own in enumerate(self.answers) if not own or own[0] < most])
        answers = tuple(tuple(answer for answer in own if answer < most) for own in kept.answers)
        return replace(kept, answers=answers, read=most)

    def only(self, places: Sequence[int]) -> CritiqueBatch:
        """The same with some of the critiques."""
        critiques = tuple(self.critiques[n] for n in places)
        return replace(self, critiques=critiques, answers=tuple(self.answers[n] for n in places))

    def but(self, without: Collection[str], more: Sequence[Critique] = ()) -> CritiqueBatch:
        """The same without critiques of these texts, and with more critiques, of no answer of this roll-out."""
        kept = self.only([n for n, critique in enumerate(self.critiques) if critique.text not in without])
        texts = {critique.text for critique in kept.critiques}
        new = [critique for critique in more if critique.text not in texts]
        return replace(kept, critiques=(*kept.critiques, *new), answers=(*kept.answers, *[()] * len(new)))

    @cached_property
    def _said_by(self) -> tuple[dict[str, set[tuple[str, ...]]], Counter[tuple[str, ...]], Counter[str]]:
        """The pieces of each different input, and how many inputs hold a piece and a word."""
        pieces = {text: _pieces(text) for text in set(self.inputs)}
        words = Counter(word for text in pieces for word in set(_words(text)))
        return pieces, Counter(piece for own in pieces.values() for piece in own), words

    def quotes_single_input(self, text: str, places: Sequence[int]) -> bool:
        """Whether a text holds a word with digits, or two words in a row, that only one of the inputs behind these critiques has.
        Where there are several inputs, two such pieces are needed, for one may be chance, or words that no other input has."""
        if len(set(self.inputs)) < _OTHERS:
            return False
        own = {self.inputs[answer] for answer in self.answer_indices(places)}
        pieces, holders, words = self._said_by
        for one in own:
            rare = {piece for piece in _pieces(text) & pieces[one] if holders[piece] == 1}
            nowhere_else = any(all(words[word] == 1 for word in piece) for piece in rare)
            if len(rare) > 1 or (rare and len(own) == 1) or nowhere_else:
                return True
        return False


def _repeats_input(example: Example, rollout: Rollout) -> bool:
    """Whether an answer is one of the texts of its input, whole."""
    return comparable(rollout.output) in {comparable(str(value)) for value in example.values.values()} - {""}


def frequent_answers(outputs: Iterable[str], *, most: int, least: int = 1) -> list[str]:
    """The most frequent answers in quotation marks, each with how often it came, if that is `least` times or more.

    >>> frequent_answers(["no", "yes", "no", ""], most=2)
    ['"no" (2 times)', '"yes"']
    """
    counted = Counter(outputs).most_common(most)
    return [
        (quote([text]) if text else _NOTHING) + (f" ({times} times)" if times > 1 else "")
        for text, times in counted
        if times >= least
    ]


def withhold_attacks(run: Run, batch: CritiqueBatch, at: str) -> CritiqueBatch:
    """The batch without the critiques that hold a known attack, which no model is shown; how many and why is logged."""
    hostile = {c.text: why for c in batch.critiques if (why := find_reasons_to_withhold(c.text))}
    if not hostile:
        return batch
    reasons = Counter(itertools.chain.from_iterable(hostile.values()))
    run.log("withheld", {"at": at, "critiques": len(hostile), "reasons": {**reasons}})
    return batch.but(hostile.keys())


def collect_critiques(
    rollouts: Sequence[Rollout],
    examples: Sequence[Example],
    high: float,
    people: Sequence[Critique] = (),
    low: float | None = None,
    *,
    again: bool = False,
) -> CritiqueBatch:
    """The critiques of answers below the full reward `high`, each different one once, with the answers that got it.

    `low` is the lowest reward, which a row with its target is shown without. `again`: the answers were read before.

    A critique of several lines is several critiques. One that names the right answer of its own row says nothing about other
    rows, so the whole row is shown instead, as it is where there is no critique. Where the critiques of all wrong answers say the
    same but for the two answers, the rows are shown without. A call that failed at the provider is no answer.
    """
    rows = {example.id: example for example in examples}
    targets = [targets_of(example)[0].strip() for example in examples if example.target is not None]
    valid, known = answered_rollouts(rollouts), find_answers(targets)
    labels = tuple(known.complete)
    by_text = {(c.text, c.prompt): (c, list[int]()) for c in people}
    wrong = [(rows[rollout.example_id], rollout) for rollout in valid if rollout.reward < high]
    alike, mistakes = say_the_same(wrong), list[Critique]()
    for number, rollout in enumerate(valid):
        example = rows[rollout.example_id]
        rollout = replace(rollout, critique=None, addressed={}) if alike else rollout
        for text, prompt in _texts(rollout, example, bool(labels), low) if rollout.reward < high else ():
            source = f"{rollout.example_id} ({rollout.sample}.{number + 1})"
            new = Critique(text, source, prompt, example=example.id)
            if "\n" in text:
                wanted = targets_of(example)[0].strip() if labels and example.target is not None else ""
                answer, beginning = (
                    _label_of(rollout.output, labels),
                    shorten(one_line(rollout.output), _BEGINNING),
                )
                new = replace(new, row=True, labels=labels, wanted=wanted, answer=answer, beginning=beginning)
                new = new if labels else replace(new, some_answers=known.values)
                mistakes += [new] if wanted else []
            by_text.setdefault((text, prompt), (new, []))[1].append(number)
    inputs = [tuple(rows[rollout.example_id].values.values()) for rollout in valid]
    right, by_label = _answered_rightly([(rows[r.example_id], r) for r in valid], labels, high)
    return CritiqueBatch(
        critiques=tuple(replace(c, times=max(1, len(answers))) for c, answers in by_text.values()),
        answers=tuple(tuple(answers) for _, answers in by_text.values()),
        rewards=tuple(rollout.reward for rollout in valid),
        private=tuple(text for r, own in zip(valid, inputs, strict=True) for text in (r.output, *own)),
        traces=tuple(rollout.steps for rollout in valid),
        inputs=tuple(map("\n".join, inputs)),
        right=right,
        by_label=by_label,
        rows=tuple(rollout.example_id for rollout in valid),
        full=tuple(rollout.reward >= high for rollout in valid),
        mistakes=tuple(mistakes),
        remark=_remark(wrong) if alike else "",
        outputs=tuple(shorten(one_line(rollout.output), _BEGINNING) for rollout in valid),
        cut=say_cut(valid),
        again=again,
        echoes=sum(_repeats_input(row, rollout) for row, rollout in wrong),
    )


def _remark(wrong: Sequence[tuple[Example, Rollout]]) -> str:
    """The first of critiques that say the same; empty where it says no more than which answer was wanted."""
    example, rollout = next((row, r) for row, r in wrong if r.critique)
    correction = state_correction(rollout.output, targets_of(example)[0])
    return "" if rollout.critique == correction else shorten(one_line(rollout.critique or ""), _RIGHT_LONGEST)


def _answered_rightly(
    answered: Sequence[tuple[Example, Rollout]], labels: Sequence[str], high: float
) -> tuple[tuple[str, ...], tuple[tuple[str, int, int], ...]]:
    """Some rows with targets that earned the full reward, those of different labels by turns, and of each label how many did."""
    known = [(targets_of(row)[0].strip(), row, r) for row, r in answered if row.target is not None]
    full = [(wanted if labels else "", row, r) for wanted, row, r in known if r.reward >= high]
    turns, ordered = Counter[str](), list[tuple[int, str]]()
    for wanted, row, rollout in full:
        text = f"{show_example(row, _RIGHT_LONGEST)} Answered: {shorten(rollout.output, _RIGHT_LONGEST)}"
        ordered.append((turns[wanted], one_line(text)))
        turns[wanted] += 1
    texts = [text for _, text in sorted(ordered, key=lambda item: item[0])][:_RIGHT_SHOWN]
    rows = Counter(wanted for wanted, _, _ in known)
    return tuple(texts), tuple((label, turns[label], rows[label]) for label in labels if rows[label])


def _texts(rollout: Rollout, example: Example, labelled: bool, low: float | None) -> list[tuple[str, str]]:
    """The lines of a critique, each with the prompt that it is addressed to."""
    if not rollout.critique or not rollout.critique.strip() or _names_target(rollout.critique, example):
        return [(show_rollout(example, rollout, _LABELLED_SHOWN if labelled else _SHOWN, low=low), "")]
    addressed = rollout.addressed or {"": rollout.critique}
    lines = [
        (_MARK.sub("", line).strip(), name) for name, text in addressed.items() for line in text.splitlines()
    ]
    return list(dict.fromkeys(line for line in lines if any(c.isalnum() for c in line[0])))[:_LINES]


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.casefold())


def _pieces(text: str) -> set[tuple[str, ...]]:
    """Pairs of words in a row, and single words with digits; short words do not count."""
    words = _words(text)
    pairs = {pair for pair in itertools.pairwise(words) if min(map(len, pair)) >= _LONG}
    return pairs | {(w,) for w in words if len(w) >= _LONG and any(c.isdigit() for c in w)}


def _label_of(output: str, labels: Sequence[str]) -> str:
    """The label that an answer is, or the only one that it mentions; empty where there is none."""
    plain = comparable(output)
    same = [label for label in labels if comparable(label) == plain]
    named = same or [label for label in labels if holds_words(output.casefold(), label.casefold())]
    return named[0] if len(named) == 1 else ""


def _names_target(critique: str, example: Example) -> bool:
    targets = [] if example.target is None else [t.strip() for t in targets_of(example) if t.strip()]
    return any(holds_words(critique, target) for target in targets)


def of_people(examples: Sequence[Example]) -> list[Critique]:
    """Critiques that stand in the data already: rows with an `output` and a comment on it."""
    return [
        Critique(example.row[key], f"row {example.id}")
        for example in examples
        if isinstance(example.row.get("output"), str)
        for key in COMMENTS
        if isinstance(example.row.get(key), str) and example.row[key].strip()
    ]
