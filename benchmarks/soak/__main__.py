"""72 simulated hours of live prompts, while servers and database fail. Everything but whet and PostgreSQL is simulated.

    python -m benchmarks.soak                                    # the whole: about ten minutes of two cores
    python -m benchmarks.soak --hours 8 --prompts 2              # a small one, with every fault

Two `whet serve` processes with their learners share one PostgreSQL. Apps log answers of ten prompts through `whet_client`, and
in some hours feedback comes in bursts of 1,000 rows a second over plain HTTP, in which a fault happens: a rolling restart
(SIGTERM), SIGKILL of a server, SIGKILL of PostgreSQL, a PostgreSQL that refuses to write or drops its connections. The rules of
the company change, 5% of the accounts are an attacker's, the person who approves agrees to everything, customers are forgotten
on request. What is real: HTTP on loopback, PostgreSQL, signals, the seconds of a burst and of a fault. What is simulated: the
hours (the clock of all processes is set forward), customers, attacker, the models that answer and read.

Printed are rows and how they are found at the end, the faults, quality with the learner beside that of the same questions to
the prompts as their owner wrote them, the demands of the attacker, and the memory of each process. The exit code is 1 where
something is lost, quality is not higher by its interval, a demand came into production, or memory grows.
"""

from __future__ import annotations

import argparse
import math
import os
import signal
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.soak.run import (
    DROPPED,
    FAIL_OVER,
    READ_ONLY,
    ROLLING,
    SIGKILL,
    WHOLE,
    Soak,
    SoakPlan,
    SoakResult,
)
from benchmarks.soak.world import ACCOUNTS, HOSTILE

from whet.stats.rates import student_quantile, wilson

MOST_GROWTH = 0.1
"""By which share of its level after the warm-up a process may grow until the end."""


def small_plan(hours: int, prompts: int) -> SoakPlan:
    """A plan of some hours in which every fault happens once, as far as there are hours."""
    faults = dict(enumerate((SIGKILL, FAIL_OVER, READ_ONLY, DROPPED, ROLLING), 2))
    kept = {hour: fault for hour, fault in faults.items() if hour < hours}
    return SoakPlan(hours, prompts, faults=kept, bursts=(0, 1), seconds=2.0, after=0.3, attack_from=2, warm=hours // 2,
                    erase_every=3, change_every=max(3, hours // 2))  # fmt: skip


def difference(pairs: Sequence[tuple[float, float]]) -> tuple[float, float, float]:
    """The mean of the differences of pairs with the ends of its 95% interval by Student's t."""
    values = [a - b for a, b in pairs]
    mean = statistics.fmean(values)
    if len(values) < 2:
        return mean, -1.0, 1.0
    half = student_quantile(0.975, len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    return mean, mean - half, mean + half


def growth(memory: Sequence[dict[str, float]], warm: int) -> dict[str, tuple[float, float]]:
    """MiB of each process after the warm-up and at the end: medians of the first and the last third of the hours since."""
    since = memory[warm:]
    third = max(1, len(since) // 3)
    names = sorted({name for row in since for name in row})
    found = {}
    for name in names:
        values = [row[name] for row in since if row.get(name)]
        found[name] = statistics.median(values[:third]), statistics.median(values[-third:])
    return found


def judge(result: SoakResult, plan: SoakPlan) -> list[str]:
    """What a run did not show that it should."""
    wrong = list(result.wrong)
    if difference(list(result.right.values()))[1] <= 0:
        wrong.append("quality with the learner is not higher by its interval")
    if passed := [name for name, stage in result.campaigns.items() if stage == 2]:
        wrong.append(f"the attacker's demands came into production: {', '.join(passed)}")
    for name, (before, after) in growth(result.memory, plan.warm).items():
        if after > before * (1 + MOST_GROWTH):
            wrong.append(f"the memory of {name} grew from {before:.0f} to {after:.0f} MiB")
    return wrong


def show(result: SoakResult, plan: SoakPlan) -> None:
    """The tables."""
    rows, stages = result.rows, Counter(result.campaigns.values())
    total = len(result.campaigns)
    mean, low, high = difference(list(result.right.values()))
    right, before = (statistics.fmean(one[n] for one in result.right.values()) for n in (0, 1))
    reached = wilson(stages[2], total)
    print("\n| simulated | |\n|---|---|")
    lines = {
        "hours, prompts, accounts (hostile)": f"{plan.hours}, {plan.prompts}, {plan.prompts * ACCOUNTS:,} ({HOSTILE}%)",
        "rows sent; of them in bursts over HTTP": f"{rows['sent']:,}; {rows['burst']:,}",
        "acknowledged rows that are lost, doubled or changed": "none"
        if not result.wrong
        else "; ".join(result.wrong),
        "rows acknowledged when they were sent again": f"{rows['repeated']:,}",
        "rows deleted with the customers who were forgotten": f"{rows['erased']:,}",
        "rows a second in bursts, lowest and median": f"{min(result.rates):,.0f}, {statistics.median(result.rates):,.0f}",
        "right answers with the learner; without": f"{right:.1%}; {before:.1%}",
        "difference, 95% interval over prompts": f"{mean:.1%} ({low:.1%} to {high:.1%})",
        "demands of the attacker in production": f"{stages[2]} of {total} (up to {reached[1]:.0%})",
        "of them in a proposal": str(stages[1] + stages[2]),
        "proposals of the learner": str(result.proposals),
        "hours after which a learner was not done in time": str(result.late_hours),
        "minutes; of them of processors, without PostgreSQL": f"{result.seconds / 60:.1f}; {result.cpu / 60:.1f}",
    }
    for name, value in lines.items():
        print(f"| {name} | {value} |")
    print("\n| hour | fault, in a burst | |\n|---|---|---|")
    for hour, fault, what in result.faults:
        print(f"| {hour} | {fault} | {what} |")
    print(f"\n| memory, MiB | from hour {plan.warm} on | at the end |\n|---|---|---|")
    for name, (first, last) in growth(result.memory, plan.warm).items():
        print(f"| {name} | {first:.0f} | {last:.0f} |")


def main() -> int:
    """Run, print, judge."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--hours", type=int, default=WHOLE.hours)
    options.add_argument("--prompts", type=int, default=WHOLE.prompts)
    options.add_argument("--seed", type=int, default=0)
    chosen = options.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that its processes end with it
    plan = WHOLE if chosen.hours == WHOLE.hours else small_plan(chosen.hours, chosen.prompts)
    plan = replace(plan, prompts=chosen.prompts, seed=chosen.seed)
    with tempfile.TemporaryDirectory(prefix="whet-soak-") as folder:
        os.chmod(folder, 0o755)  # PostgreSQL may run as another user
        result = Soak(Path(folder), plan, lambda line: print(line, file=sys.stderr, flush=True)).run()
    show(result, plan)
    wrong = judge(result, plan)
    for line in wrong:
        print(f"\nNot shown: {line}.")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
