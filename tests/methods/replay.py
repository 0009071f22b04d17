"""A small task of our own whose optimizer model was a reader, and its requests with the answers of that reader.

    python -m tests.methods.replay METHOD FOLDER

runs METHOD with the answers in FOLDER (1.answer.txt, 2.answer.txt, ...). A request without an answer is laid down there as
N.request.md, and the run stops. Write what you would answer, knowing nothing but the request, and run it again. Once every
request has an answer, the transcript is written for `test_replays.py`; answers that stand in it are used again.
That is due whenever a method asks otherwise than before: its version rises then.
"""

from __future__ import annotations

import json
import random
import re
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import whet
from whet.engine.run_folder import version_of
from whet.methods import get_method
from whet.models.chat_values import ChatMessage

FOLDER = Path(__file__).parent / "transcripts"
START = (
    "Sort the note of a bicycle workshop.\n<!-- whet:begin -->\nAnswer.\n<!-- whet:end -->\nNote: {{note}}"
)
LIMITS = whet.Budget(task_calls=260, optimizer_calls=8)
TRAYS = "amber", "fern", "slate"
"""Nobody can guess what a tray is for: it must be learned. Amber: not safe to ride; slate: money; fern: all else."""
NOTES = {
    "amber": {
        "brake": ("The front brake squeals and hardly grips.", "My brake lever touches the bar.", "One brake pad fell out."),
        "fork": ("There is a crack in the fork.", "The fork knocks when I stop.", "A bolt of the fork is missing."),
        "tyre": ("The tyre shows its threads.", "A nail went through the tyre.", "The tyre rubs on the frame."),
    },
    "slate": {
        "invoice": ("The invoice has the wrong name.", "Please send the invoice again.", "I paid this invoice in May."),
        "deposit": ("When do I get the deposit back?", "The deposit was not booked.", "Is a deposit needed for the loan bike?"),
        "voucher": ("My voucher is not accepted.", "Can two people share a voucher?", "The voucher ends on Friday."),
    },
    "fern": {
        "saddle": ("The saddle is too hard for me.", "Can the saddle go lower?", "I would like a brown saddle."),
        "basket": ("Please fit a basket in front.", "The basket rattles a little.", "Is there a basket with a lid?"),
        "bell": ("I want a louder bell.", "The bell does not match the paint.", "Move the bell to the left, please."),
        "battery lamp": (
            "The battery lamp should blink slower.",
            "Which battery lamp is the brightest?",
            "The strap of my battery lamp is ugly.",
        ),
    },
}  # fmt: skip
"""Notes by tray and by what they are about."""


def rows() -> dict[str, list[dict[str, str]]]:
    """The notes by split, each with its tray."""
    every = [
        {"note": f"{note} {closing}", "target": tray}
        for tray, topics in NOTES.items()
        for notes in topics.values()
        for note in notes
        for closing in ("Thanks!", "I come by at noon.")
    ]
    random.Random(1).shuffle(every)
    return {"train": every[:32], "validation": every[32:46], "test": every[46:]}


def about(note: str) -> str:
    """What a note is about."""
    return next(topic for topics in NOTES.values() for topic in topics if topic in note.lower())


def answer_task(messages: list[ChatMessage]) -> str:
    """A simulated model: it knows what a note is about, puts it where a sentence of the prompt puts that, and else guesses.

    A sentence that lists the trays makes it answer with a tray. It understands words of its own, no language.
    """
    prompt, _, note = messages[-1]["content"].rpartition("Note: ")
    luck = random.Random(note)
    sentences = [s.lower() for s in re.split(r"(?<=[.;:!?])\s+|\n", prompt) if "note: " not in s.lower()]
    kinds = WIDER[about(note)]
    for wording in (about(note), *kinds):
        named = {tray for s in sentences for tray in TRAYS if wording in s and tray in s}
        if len(named) == 1:
            return named.pop()
    listed = all(tray in prompt.lower() for tray in TRAYS)
    return luck.choice(TRAYS) if listed else f"A note about a {about(note)}."


answer_task.simulated = True  # type: ignore[attr-defined]

_UNSAFE, _MONEY, _WISH = (
    ("unsafe", "safe to ride", "danger", "damage"),
    ("money", "payment"),
    ("accessor", "wish"),
)
WIDER = {
    "brake": _UNSAFE[:3], "fork": _UNSAFE, "tyre": _UNSAFE, "invoice": _MONEY, "deposit": _MONEY, "voucher": _MONEY,
    "saddle": ("comfort", "wish"), "basket": _WISH, "bell": _WISH, "battery lamp": _WISH,
}  # fmt: skip
"""Words for several topics at once that the simulated model understands."""


@dataclass
class Reader:
    """An optimizer model that answers from a transcript, and remembers what it was asked beyond that."""

    answers: Mapping[str, str]
    asked: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    simulated = True

    def __call__(self, messages: list[ChatMessage]) -> str:
        text = "\n\n".join(message["content"] for message in messages)
        self.asked.append(text)
        if text not in self.answers:
            self.unknown.append(text)
        return self.answers.get(text, "-")


def learn(method: str, reader: Callable[[list[ChatMessage]], str], folder: Path) -> Any:
    """A run of a method on the task, with a reader as the optimizer model."""
    return whet.optimize(
        START, data=rows(), reward="exact_match", lm=answer_task, optimizer_lm=reader, method=method, budget=LIMITS,
        seed=1, run=folder / "run", name="notes",
    )  # fmt: skip


def read_transcript(method: str) -> dict[str, Any]:
    """The transcript of a method: its version, the exchanges, and the prompt at the end."""
    value: dict[str, Any] = json.loads((FOLDER / f"{method}.json").read_text("utf-8"))
    return value


def main(method: str, folder: Path) -> None:
    """Run the method with the answers that there are; see the module."""
    folder.mkdir(parents=True, exist_ok=True)
    exchanges = {
        path.read_text("utf-8"): path.with_name(path.name.replace("request.md", "answer.txt"))
        for path in sorted(folder.glob("*.request.md"))
    }
    answers = {text: path.read_text("utf-8") for text, path in exchanges.items() if path.is_file()}
    if (FOLDER / f"{method}.json").is_file():
        answers = {one["request"]: one["answer"] for one in read_transcript(method)["exchanges"]} | answers
    reader = Reader(answers)
    with tempfile.TemporaryDirectory() as place:
        result = learn(method, reader, Path(place))
    for text in [text for text in reader.unknown[:1] if text not in exchanges]:
        (folder / f"{len(exchanges) + 1}.request.md").write_text(text, encoding="utf-8")
    if reader.unknown:
        print(f"{len(reader.unknown)} requests have no answer; the first one stands in {folder}.")
        return
    transcript = {
        "version": version_of(get_method(method)),
        "exchanges": [{"request": text, "answer": answers[text]} for text in dict.fromkeys(reader.asked)],
        "prompt": result.best.prompt.source,
    }
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{method}.json").write_text(json.dumps(transcript, indent=1, ensure_ascii=False) + "\n")
    print(result["ended_by"], result.usage.calls, result.best.test, sep="\n")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
