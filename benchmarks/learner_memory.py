"""What the learner's state of feedback takes, which each process of a server holds: it grows up to its bounds, and no further.

    python benchmarks/learner_memory.py          # some seconds

Folds comments of a line, each by one of a thousand users, into the state of one prompt, and prints what Python has allocated for
it.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator

from whet_client.records import Feedback, Inference
from whet_live.learner.feedback_state import FeedbackState, fold_feedback
from whet_live.traffic import TrafficEvent

USERS, PART, PARTS = 1000, 500, 12


def comments(first: int) -> Iterator[TrafficEvent]:
    """The next comments, each about an answer of its own."""
    for number in range(first, first + PART):
        user = f"customer-{number % USERS}"
        answer = Inference(
            "desk", 1, {"question": "Which?"}, "Red.", id=f"01a22aed-72b5-7f24-8321-{number:012d}", user=user
        )
        words = f"The colour should be number {number}, please!"
        row = Feedback(
            "comment", answer.id, text=words, user=user, id=f"01a22aed-72b5-7f24-9321-{number:012d}"
        )
        yield TrafficEvent(number + 1, "feedback", row.id, row, answer, number)


def main() -> None:
    """Print the table."""
    tracemalloc.start(1)
    state, before = FeedbackState(), tracemalloc.get_traced_memory()[0]
    print(f"{'comments':>9}{'kept':>7}{'MiB':>7}")
    for part in range(PARTS):
        state = fold_feedback(state, list(comments(part * PART)))
        gc.collect()
        taken = (tracemalloc.get_traced_memory()[0] - before) / 2**20
        print(f"{(part + 1) * PART:>9,}{len(state.prompts['desk'].rows):>7,}{taken:>7.2f}")


if __name__ == "__main__":
    main()
