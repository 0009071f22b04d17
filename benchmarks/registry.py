"""How fast the registry answers when it is full: 10,000 prompts, pages, addresses, moves, the audit log.

    python benchmarks/registry.py [--prompts 10000] [--database sqlite:///FILE | postgresql://...]

Prints the median and the 99th percentile of each question beside what it has to stay below. Without --database it fills a
new SQLite file in a temporary folder.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from whet.prompt import Prompt
from whet.prompt.events import Add
from whet_live import Live, open_live
from whet_live.registry import PromptEdit

TEXT = "Answer {{question}} for team NUMBER.\n<!-- whet:begin -->\n- Be polite.\n- Be brief.\n<!-- whet:end -->\n"
PAGE_MS = 200.0


def fill(live: Live, count: int) -> float:
    """Prompts with two versions and a label each, one in a hundred with a proposal; versions per second."""
    began = time.perf_counter()
    for number in range(count):
        name = f"team{number % 50:02d}/prompt{number:06d}"
        prompt = Prompt.parse(TEXT.replace("NUMBER", str(number)))
        live.registry.create(name, prompt, author="ann", message="first")
        live.registry.create(
            name, prompt.edit("- Be polite.\n- Use SI units.\n"), author="bob", label="production"
        )
        if number % 100 == 0:
            rule = Add(
                id="i4", text="Cite a source.", author="learner", evidence=("f1", "f2", "f3"), sources=3
            )
            live.registry.propose(name, PromptEdit((rule,)), author="learner", label="production")
    return 2 * count / (time.perf_counter() - began)


def measure_latency(ask: Callable[[int], object], times: int) -> tuple[float, float]:
    """Median and 99th percentile of the milliseconds that a question takes."""
    taken = []
    for number in range(times):
        began = time.perf_counter()
        ask(number)
        taken.append(1000 * (time.perf_counter() - began))
    return statistics.median(taken), statistics.quantiles(taken, n=100)[98]


def main() -> None:
    """Fill, ask, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--prompts", type=int, default=10_000)
    parser.add_argument("--database")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        url = options.database or f"sqlite:///{Path(folder) / 'whet.db'}"
        with open_live(url) as live:
            rate = fill(live, options.prompts)
            print(
                f"{live.database.dialect}: {options.prompts:,} prompts, {rate:,.0f} versions written per second"
            )
            registry = live.registry
            name = f"team07/prompt{options.prompts // 2 // 50 * 50 + 7:06d}"
            questions: dict[str, tuple[Callable[[int], object], int]] = {
                "first page of prompts": (lambda n: registry.prompts(limit=50), 100),
                "a page in the middle": (lambda n: registry.prompts(after="team25", limit=50), 100),
                "search by name": (lambda n: registry.prompts(f"prompt{n:06d}"), 100),
                "page of a label": (lambda n: registry.prompts(label="production", limit=50), 100),
                "a prompt by its label": (lambda n: registry.get(f"{name}@production"), 300),
                "versions of a prompt": (lambda n: registry.versions(name), 100),
                "open proposals": (lambda n: registry.proposals(state="open", limit=50), 50),
                "page of the audit log": (lambda n: registry.audit(limit=50), 100),
                "move of a label": (
                    lambda n: registry.move_label(name, "production", 1 + n % 2, actor="ann"),
                    200,
                ),
            }
            for question, (ask, times) in questions.items():
                median, tail = measure_latency(ask, times)
                verdict = "ok" if tail < PAGE_MS else "TOO SLOW"
                print(
                    f"{question:26} median {median:7.2f} ms   p99 {tail:7.2f} ms   below {PAGE_MS:g} ms: {verdict}"
                )
            began = time.perf_counter()
            found = registry.verify_audit()
            seconds = time.perf_counter() - began
            print(f"audit log: {found.rows:,} rows, whole: {found.whole}, verified in {seconds:.2f} s")


if __name__ == "__main__":
    main()
