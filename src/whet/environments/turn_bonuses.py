"""Two sources of bonuses for turns: questions about the goal that a model can answer by then, and a person who watches.

Carta, Oudeyer, Sigaud, Lamprier: EAGER: Asking and Answering Questions for Automatic Reward Shaping in Language-guided RL.
NeurIPS 2022. arXiv:2206.09674. Zhang, Ji, Waytowich, Chen: GUIDE: Real-Time Human-Shaped Agents. NeurIPS 2024.
arXiv:2410.15181.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from whet.environments.shaping import EpisodeBonus, TurnTaken
from whet.errors import UsageError
from whet.replies import json_values
from whet.run import Run, convert_record
from whet.types import JSON, Example, Message, Request, content_hash

MOST_QUESTIONS = 8
LONGEST = 4000
"""Characters of what happened so far that the judge reads: the last ones."""
GAP = "____"


@dataclass(frozen=True)
class GoalQuestions:
    """EAGER: each word of a goal in turn is hidden; a turn after which a model fills the gap earns the model's confidence, once.

    `column` holds the goal. A word that the model guesses before anything has happened tells nothing and is not asked for. Of a
    long goal the first 8 other words are. The judge's model answers: one call for each open question and turn.
    """

    column: str
    confident: bool = True
    """Whether the bonus is the confidence, from 0 to 1; else 1."""
    name: str = "questions about the goal"

    def goal(self, example: Example) -> str:
        """The goal of a row."""
        value = example.row.get(self.column, example.values.get(self.column))
        return value if isinstance(value, str) else ""

    def check(self, example: Example) -> None:
        """Raise UsageError for a row without a goal."""
        if not self.goal(example).split():
            raise UsageError(
                f"{example.place} has no text in the column {self.column!r}, the goal that `questions` names."
            )

    def most(self, turns: int) -> float:
        """Each question pays once."""
        return float(MOST_QUESTIONS)

    def calls(self, turns: int) -> int:
        """One for each question before the first turn and after each one but the last."""
        return MOST_QUESTIONS * (1 + turns)

    def begin(self, example: Example) -> EpisodeBonus:
        """The open questions of an episode."""
        words = self.goal(example).split()
        return _OpenQuestions(self, words, list(range(len(words)))[:MOST_QUESTIONS])


@dataclass
class _OpenQuestions:
    kind: GoalQuestions
    words: list[str]
    open: list[int]
    happened: str = ""

    async def of(self, run: Run, turn: TurnTaken) -> float:
        """The confidence of the answers that are right now and were not before."""
        if turn.number == 1:
            guessed = await self._right(run)
            self.open = [place for place in self.open if place not in guessed]
            self.happened = f"Seen: {turn.before}\n"
        self.happened += f"Done: {turn.text}\nSeen: {turn.after}\n"
        right = await self._right(run)
        self.open = [place for place in self.open if place not in right]
        return sum(right.values()) if self.kind.confident else float(len(right))

    async def _right(self, run: Run) -> dict[int, float]:
        """The open questions that the judge answers rightly, with its confidence."""

        async def one(branch: Run, place: int) -> float:
            gapped = " ".join(GAP if i == place else word for i, word in enumerate(self.words))
            shown = self.happened[-LONGEST:] or "Nothing yet."
            question = f"{ASK}\n\nThe goal: {gapped}\n\nWhat happened so far:\n{shown}\n\n{FORM}"
            reply = (await branch.generate("judge", Request((Message("user", question),))))[0]
            return read_confidence(reply.text, self.words[place]) if reply.error is None else 0.0

        sure = await run.map(one, self.open)
        return {place: value for place, value in zip(self.open, sure, strict=True) if value > 0}


def read_confidence(reply: str, word: str) -> float:
    """The confidence (0 to 1) of a reply whose answer is the word, letter case and marks around it aside; 0 of another answer."""
    for value in json_values(reply):
        if isinstance(value, dict) and "answer" in value:
            sure: Any = value.get("confidence", 0.0)
            right = _plain(str(value["answer"])) == _plain(word) != ""
            known = isinstance(sure, int | float) and not isinstance(sure, bool)
            return min(1.0, max(0.0, float(sure))) if right and known else 0.0
    return 0.0


def _plain(word: str) -> str:
    return "".join(c for c in word.casefold() if c.isalnum())


ASK = f"Which word stands in the gap ({GAP}) of this goal? Answer by what happened, not by what is usual."
FORM = 'Write JSON: {"answer": "the word, or nothing if it cannot be known yet", "confidence": a number from 0 to 1}'

Watcher: TypeAlias = Callable[[str, TurnTaken], float | None]
"""A person's present rating of an episode (by the id of its row) after a turn, from -1 to 1; None where the person says
nothing."""
LEAST_PAIRS = 5


@dataclass(frozen=True)
class HumanSignal:
    """GUIDE: a person watches and says all the time how it goes, from -1 to 1; a model of the person goes on when they stop.

    A rating that arrives after a turn is about the turn `delay` turns before, because a person takes time to react. The model
    learns it so. It predicts what was stated of the same turn, or of turns whose texts are like it (the trigrams they share).
    `imitate` False: nothing is paid while the person says nothing.
    """

    watcher: Watcher
    delay: int = 0
    imitate: bool = True
    name: str = "a person who watches"
    pairs: list[tuple[str, float]] = field(default_factory=list, compare=False, repr=False)

    def check(self, example: Example) -> None:
        """Every row will do."""

    def most(self, turns: int) -> float:
        """1 in each turn."""
        return float(turns)

    def calls(self, turns: int) -> int:
        """None."""
        return 0

    def begin(self, example: Example) -> EpisodeBonus:
        """A person's rating of an episode."""
        return _WatchedEpisode(self, example.id)

    def predict(self, text: str) -> float:
        """The predicted rating of a turn; 0 while too little is known."""
        if len(self.pairs) < LEAST_PAIRS:
            return 0.0
        same = [value for known, value in self.pairs if known == text]
        if same:
            return sum(same) / len(same)
        own = _trigrams(text)
        likeness = [
            (len(own & other) / max(1, len(own | other))) ** 4
            for other in (_trigrams(t) for t, _ in self.pairs)
        ]
        total = sum(likeness)
        return sum(w * v for w, (_, v) in zip(likeness, self.pairs, strict=True)) / total if total else 0.0


@dataclass
class _WatchedEpisode:
    signal: HumanSignal
    row: str
    turns: list[str] = field(default_factory=list)

    async def of(self, run: Run, turn: TurnTaken) -> float:
        """The person's rating, else the predicted rating. Both are recorded."""
        text, signal = f"{turn.before}\n{turn.text}", self.signal
        self.turns.append(text)

        async def compute() -> object:
            now = signal.watcher(self.row, turn)
            return [now, signal.predict(text) if now is None and signal.imitate else 0.0]

        args: JSON = [turn.number, content_hash(text)]
        stated, predicted = convert_record(
            await run.effect("human", compute, args), tuple[float | None, float]
        )
        if stated is None:
            return predicted
        value = min(1.0, max(-1.0, stated))
        if len(self.turns) > signal.delay:
            signal.pairs.append((self.turns[-1 - signal.delay], value))
        return value


def _trigrams(text: str) -> set[str]:
    return {text[i : i + 3] for i in range(max(1, len(text) - 2))}


@dataclass
class FeedbackFile:
    """A person's signal in a file to which another program appends lines such as {"value": 0.5}, while the run goes on.

    After a turn the mean of the lines that came since the last look counts. A line with `example`, the id of a row, is about that
    episode alone. What happens is appended to `watch` for the person to see: example, turn, seen, done, then. Lines that were
    there before the run are left out.
    """

    path: Path
    watch: Path | None = None
    read: dict[str, int] = field(default_factory=dict)
    """The number of lines that have been read, by episode."""

    def __post_init__(self) -> None:
        self.first = len(self._lines())

    def __call__(self, row: str, turn: TurnTaken) -> float | None:
        """The mean of the new lines, and None where there are none. Lines that cannot be read do not count."""
        if self.watch is not None:
            shown = {
                "example": row,
                "turn": turn.number,
                "seen": turn.before,
                "done": turn.text,
                "then": turn.after,
            }
            with self.watch.open("a", encoding="utf-8") as file:
                file.write(json.dumps(shown, ensure_ascii=False) + "\n")
        lines = self._lines()
        new = lines[self.read.get(row, self.first) :]
        self.read[row] = len(lines)
        values = [value for line in new if (value := _value_of(line, row)) is not None]
        return sum(values) / len(values) if values else None

    def _lines(self) -> list[str]:
        if not self.path.exists():
            return []
        return [
            line
            for line in self.path.read_text("utf-8", errors="replace").splitlines(True)
            if line.endswith("\n")
        ]


def _value_of(line: str, row: str) -> float | None:
    for value in json_values(line)[:1]:
        if isinstance(value, dict) and str(value.get("example", row)) == row:
            number: Any = value.get("value")
            if isinstance(number, int | float) and not isinstance(number, bool):
                return float(number)
    return None
