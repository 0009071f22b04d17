"""What the reader is shown of a roll-out: the critiques, or the answer itself where no critique says why it is wrong."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from whet.instructions.questions import LONGEST_SHOWN, Critique
from whet.rewards.text import targets_of
from whet.search.minibatch import answered, show_rollout
from whet.types import Example, Rollout, TraceStep

COMMENTS = ("critique", "comment", "feedback", "explanation", "annotation")
"""Keys of a row under which people say what they think of its `output`."""
_MARK = re.compile(r"^[ \t]*(?:[-*•–]|\(?\d{1,3}[.):]|\[\d{1,3}\])[ \t]+")
_LINES = 40
_OTHERS, _LONG = 8, 4
"""Different inputs that tell what one row alone says, and characters of a word that tells anything."""
_LABELS, _LABEL, _REPEATED, _ROWS = 20, 100, 3, 1000
"""Labels at most, characters of one, how often each is wanted on average, and the rows that are looked at."""


@dataclass(frozen=True)
class Judged:
    """A judged roll-out: each different critique once, the answers (by number) that got it, the rewards of all answers, and
    the rows' data, which no instruction may copy. `inputs`: what was asked of each answer. `traces`: the steps of the programs
    that gave the answers."""

    critiques: tuple[Critique, ...]
    answers: tuple[tuple[int, ...], ...]
    rewards: tuple[float, ...]
    private: tuple[str, ...] = ()
    read: int | None = None
    traces: tuple[tuple[TraceStep, ...], ...] = ()
    inputs: tuple[str, ...] = ()

    @property
    def counted(self) -> int:
        """How many answers the critiques are about; those of the others are left out."""
        return len(self.rewards) if self.read is None else self.read

    def answers_of(self, places: Iterable[int]) -> set[int]:
        """The answers that got one of these critiques."""
        return {answer for place in places for answer in self.answers[place]}

    def within(self, characters: int) -> Judged:
        """The same with the critiques of as many answers, in their order, as these characters hold; of one at least."""
        length: dict[int, int] = {}
        for critique, own in zip(self.critiques, self.answers, strict=True):
            for answer in own[:1]:
                length[answer] = length.get(answer, 0) + min(len(critique.text), LONGEST_SHOWN)
        total, most = 0, len(self.rewards)
        for answer in range(len(self.rewards)):
            total += length.get(answer, 0)
            if total > characters and answer:
                most = answer
                break
        if most == len(self.rewards):
            return self
        kept = [n for n, own in enumerate(self.answers) if not own or own[0] < most]
        answers = tuple(tuple(a for a in self.answers[n] if a < most) for n in kept)
        return replace(self.only(kept), answers=answers, read=most)

    def names_a_row(self, text: str, places: Sequence[int]) -> bool:
        """Whether a text holds a word with digits, or two words in a row, that only one of the inputs behind these critiques has.
        Where there are several inputs, two such pieces are needed, for one may be chance, or words that no other input has."""
        own = {self.inputs[answer] for answer in self.answers_of(places)} if self.inputs else set()
        for one in own if len(set(self.inputs)) >= _OTHERS else ():
            others = "\n".join(set(self.inputs) - {one})
            rare = _pieces(text) & _pieces(one) - _pieces(others)
            words = set(_words(others))
            if len(rare) > 1 or (rare and (len(own) == 1 or any(map(words.isdisjoint, rare)))):
                return True
        return False

    def only(self, places: Sequence[int]) -> Judged:
        """The same with some of the critiques."""
        kept = (tuple(self.critiques[n] for n in places), tuple(self.answers[n] for n in places))
        return replace(self, critiques=kept[0], answers=kept[1])

    def but(self, without: Collection[str], more: Sequence[Critique] = ()) -> Judged:
        """The same without critiques of these texts, and with more critiques, of no answer of this roll-out."""
        kept = [n for n, critique in enumerate(self.critiques) if critique.text not in without]
        texts = {self.critiques[n].text for n in kept}
        new = [critique for critique in more if critique.text not in texts]
        critiques = (*(self.critiques[n] for n in kept), *new)
        answers = (*(self.answers[n] for n in kept), *(() for _ in new))
        return replace(self, critiques=critiques, answers=answers)


def judged(
    rollouts: Sequence[Rollout], examples: Sequence[Example], high: float, people: Sequence[Critique] = ()
) -> Judged:
    """The critiques of answers below the full reward `high`, each different one once, with the answers that got it.

    A critique of several lines is several critiques. One that names the right answer of its own row says nothing about other
    rows, so the whole row is shown instead, as it is where there is no critique. A call that failed at the provider is no answer.
    """
    rows = {example.id: example for example in examples}
    valid = answered(rollouts)
    answers: dict[tuple[str, str], list[int]] = {(c.text, c.prompt): [] for c in people}
    critiques, labels = {(c.text, c.prompt): c for c in people}, labels_of(examples)
    for number, rollout in enumerate(valid):
        if rollout.reward < high:
            for text, prompt in _texts(rollout, rows[rollout.example_id]):
                answers.setdefault((text, prompt), []).append(number)
                source = f"{rollout.example_id} ({rollout.sample}.{number + 1})"
                row = "\n" in text
                new = Critique(text, source, prompt, row, labels if row else (), rollout.example_id)
                critiques.setdefault((text, prompt), new)
    private = tuple(t for r in valid for t in (r.output, *rows[r.example_id].values.values()))
    traces = tuple(r.steps for r in valid) if any(r.steps for r in valid) else ()
    by_critique = tuple(map(tuple, answers.values()))
    rewards = tuple(r.reward for r in valid)
    shown = tuple(critiques.values())
    inputs = tuple("\n".join(rows[r.example_id].values.values()) for r in valid)
    return Judged(shown, by_critique, rewards, private, traces=traces, inputs=inputs)


def _texts(rollout: Rollout, example: Example) -> list[tuple[str, str]]:
    """The lines of a critique, each with the prompt that it is addressed to."""
    if not rollout.critique or not rollout.critique.strip() or _names_target(rollout.critique, example):
        return [(show_rollout(example, rollout), "")]
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


def labels_of(examples: Sequence[Example]) -> tuple[str, ...]:
    """The right answers of the first thousand rows, the most frequent first, where they are few and each is wanted again and
    again."""
    rows = [example for example in examples[:_ROWS] if example.target is not None]
    counts = Counter(targets_of(row)[0].strip() for row in rows)
    few = len(counts) <= _LABELS and counts.total() >= _REPEATED * len(counts)
    return tuple(text for text, _ in counts.most_common() if 0 < len(text) <= _LABEL) if few else ()


def _names_target(critique: str, example: Example) -> bool:
    targets = [] if example.target is None else [t.strip() for t in targets_of(example) if t.strip()]
    return any(re.search(rf"(?<!\w){re.escape(target)}(?!\w)", critique) for target in targets)


def of_people(examples: Sequence[Example]) -> list[Critique]:
    """Critiques that stand in the data already: rows with an `output` and a comment on it."""
    return [
        Critique(example.row[key], f"row {example.id}")
        for example in examples
        if isinstance(example.row.get("output"), str)
        for key in COMMENTS
        if isinstance(example.row.get(key), str) and example.row[key].strip()
    ]
