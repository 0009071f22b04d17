"""How long do the pages of the feedback explorer take on a large store? Milliseconds beside the target of 200.

    python benchmarks/feedback_search.py
    python benchmarks/feedback_search.py --rows 5000000 --prompts 10000 --database sqlite:////tmp/big.db --keep
    python benchmarks/feedback_search.py --database postgresql://... --rows 1000000

The store is filled through `Traffic.add`, the way of every request: one inference for each five rows of feedback,
prompts with a Zipf distribution, 4 versions each, 2,000 users, a year of traffic, a tenth of the rows with a comment of
ten words of a vocabulary of 5,000 (also Zipf). With `--keep` a database that holds the rows already is measured as it
is. Every page is asked for `--repeat` times, first pages and pages from the middle; the slowest is what counts.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from whet_client.ids import now
from whet_client.records import Feedback, Inference
from whet_live.database import Database, open_database
from whet_live.traffic import EVERYTHING, Filter, RowPage, Traffic

TARGET_MS = 200
YEAR = 365 * 86_400_000_000
KINDS = ("rating", "thumb", "copy", "dwell", "edit_distance", "regenerate", "follow_up", "external_check")
VALUES = {"rating": 4.0, "dwell": 12.5}
_AT_ONCE = 5000


def traffic_of(rows: int, prompts: int, seed: int) -> Iterator[tuple[list[Inference], list[Feedback]]]:
    """Batches of inferences and feedback, `rows` of feedback in all."""
    rng = random.Random(seed)
    start = now() - YEAR
    names = rng.choices([f"team{n % 40}/prompt{n}" for n in range(prompts)], _zipf(prompts), k=rows // 5 + 1)
    words = [f"word{n}" for n in range(5000)]
    weights = _zipf(len(words))
    done = 0
    while done < rows:
        asked: list[Inference] = []
        said: list[Feedback] = []
        for _ in range(min(_AT_ONCE, rows - done)):
            if done % 5 == 0:
                moment = start + int(YEAR * done / rows)
                asked.append(
                    Inference(
                        prompt=names[done // 5], version=1 + rng.randrange(4), output="An answer of some length. " * 4,
                        user=f"user{rng.randrange(2000)}", session=f"s{done // 50}", cost=0.001, latency=0.8, time=moment,
                    )
                )  # fmt: skip
            comment = rng.random() < 0.1
            kind = "comment" if comment else "share" if rng.random() < 0.0005 else rng.choice(KINDS)
            said.append(
                Feedback(
                    kind=kind,
                    target=asked[-1].id,
                    value=None if comment else VALUES.get(kind, 1.0),
                    text=" ".join(rng.choices(words, weights, k=10)) if comment else None,
                    user=asked[-1].user,
                    time=asked[-1].time + rng.randrange(10_000_000),
                )
            )
            done += 1
        yield asked, said


def _zipf(count: int) -> list[float]:
    return [1 / (rank + 10) for rank in range(count)]


def fill(traffic: Traffic, rows: int, prompts: int) -> float:
    """Fill the store; rows of feedback a second."""
    started, done = time.perf_counter(), 0
    for asked, said in traffic_of(rows, prompts, 1):
        traffic.add(asked, said)
        done += len(said)
        if done % 100_000 == 0:
            print(f"\r{done:,} rows, {done / (time.perf_counter() - started):,.0f}/s ", end="", flush=True)
    print()
    return rows / (time.perf_counter() - started)


def pages(traffic: Traffic, prompts: int) -> dict[str, Callable[[str | None], RowPage[object]]]:
    """What a person looks at, by name: a function from a cursor to a page."""
    half = now() - YEAR // 2
    largest, middle, smallest = (
        "team0/prompt0",
        f"team{prompts // 2 % 40}/prompt{prompts // 2}",
        f"team{(prompts - 1) % 40}/prompt{prompts - 1}",
    )
    filters = {
        "everything": EVERYTHING,
        "everything, half a year ago": Filter(until=half),
        "kind comment": Filter(kind="comment"),
        "kind share (1 in 2,000)": Filter(kind="share"),
        "kind that never came": Filter(kind="abandon"),
        "largest prompt": Filter(prompt=largest),
        "largest prompt, version 3": Filter(prompt=largest, version=3),
        "largest prompt, version that is none": Filter(prompt=largest, version=99),
        "largest prompt, comments": Filter(prompt=largest, kind="comment"),
        "largest prompt, shares, version 2": Filter(prompt=largest, kind="share", version=2),
        "largest prompt, half a year ago": Filter(prompt=largest, until=half),
        "middle prompt, comments": Filter(prompt=middle, kind="comment"),
        "smallest prompt": Filter(prompt=smallest),
        "one user": Filter(user="user7"),
        "one user, largest prompt, comments": Filter(user="user7", prompt=largest, kind="comment"),
        "text, most common word": Filter(text="word0"),
        "text, rarest word": Filter(text="word4999"),
        "text, two common words": Filter(text="word0 word1"),
        "text, common word, largest prompt": Filter(text="word0", prompt=largest),
        "text, common word, smallest prompt": Filter(text="word0", prompt=smallest),
        "text, common word, half a year ago": Filter(text="word0", until=half),
        "text, word that never came": Filter(text="nothing"),
    }  # fmt: skip
    found: dict[str, Callable[[str | None], RowPage[object]]] = {
        name: lambda cursor, wanted=wanted: traffic.find(wanted, 50, cursor)  # type: ignore[misc, assignment]
        for name, wanted in filters.items()
    }
    plain = replace(EVERYTHING, prompt=largest)
    for name, wanted in {"inferences": EVERYTHING, "inferences, largest prompt": plain,
                         "inferences, unreviewed": replace(plain, unreviewed=True)}.items():  # fmt: skip
        found[name] = lambda cursor, wanted=wanted: traffic.inferences(wanted, 50, cursor)  # type: ignore[misc, assignment]
    names = [f"team{n % 40}/prompt{n}" for n in range(50)]
    found["counts of 50 prompts"] = lambda cursor: RowPage(list(traffic.counts(names)), None)
    found["counts of one prompt"] = lambda cursor: RowPage(list(traffic.counts([largest])), None)
    found["1,000 events"] = lambda cursor: RowPage(list(traffic.events(traffic.head() // 2, 1000)), None)
    return found


def measure(ask: Callable[[str | None], RowPage[object]], repeat: int) -> list[float]:
    """Milliseconds of `repeat` pages, each one after the one before."""
    times, cursor = [], None
    for _ in range(repeat):
        started = time.perf_counter()
        page = ask(cursor)
        times.append(1000 * (time.perf_counter() - started))
        cursor = page.next
    return times


def report(database: Database, rows: int, prompts: int, repeat: int, keep: bool) -> None:
    """Fill, measure, print."""
    traffic = Traffic(database)
    if not keep or traffic.head() == 0:
        print(
            f"filled at {fill(traffic, rows, prompts):,.0f} rows of feedback a second (with an inference for each five)"
        )
    print(f"{database.dialect}, {traffic.head():,} rows, {prompts:,} prompts; target {TARGET_MS} ms")
    print(f"{'page of 50 rows':<42}{'median ms':>10}{'slowest':>9}")
    worst = 0.0
    for name, ask in pages(traffic, prompts).items():
        times = measure(ask, repeat)
        worst = max(worst, *times)
        print(f"{name:<42}{statistics.median(times):>10.1f}{max(times):>9.1f}")
    print(
        f"slowest of all: {worst:.1f} ms, {'within' if worst < TARGET_MS else 'ABOVE'} the target of {TARGET_MS} ms"
    )


def main() -> None:
    """Measure one database; a temporary SQLite file unless another is named."""
    parser = argparse.ArgumentParser(description="Pages of a large store of feedback")
    parser.add_argument("--rows", type=int, default=200_000, help="rows of feedback")
    parser.add_argument("--prompts", type=int, default=1_000)
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--database", metavar="URL")
    parser.add_argument(
        "--keep", action="store_true", help="measure the rows that are there, if there are any"
    )
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        database = open_database(given.database or f"sqlite:///{folder}/whet.db")
        try:
            report(database, given.rows, given.prompts, given.repeat, given.keep)
        finally:
            database.close()


if __name__ == "__main__":
    main()
