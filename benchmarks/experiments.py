"""What live experiments promise, measured on simulated truths: prints tables of docs/figures.md.

    python benchmarks/experiments.py [--scale 1.0] [--seed 0] [--only looks]

Takes some minutes on one core. Every unit is simulated: its outcome is 0 or 1, drawn with the chance that its arm has in
truth. "Looks" are decisions that could have been taken: after every unit, unless said otherwise. Intervals are Wilson's at
95%, those of medians come from the order statistics. `--only looks` fills a database with an experiment of 100,000 units,
three arms and two guard-rails, and tells how long its page waits for the figures.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.simulated_experiments import (
    NEVER,
    Decisions,
    SimulatedExperiment,
    chunks,
    draw,
    first_look,
    join_decisions,
    published_winners,
    simulate,
    winners,
)

from whet.prompt import Prompt
from whet.stats.rates import wilson
from whet_client.assignment import version_for
from whet_client.ids import now
from whet_client.records import Feedback, Inference
from whet_live import Live, open_live
from whet_live.experiments import Experiments
from whet_live.experiments.definition import AllocationPolicy
from whet_live.experiments.effects import MetricSample, build_arm_scores, log_capital

FIXED = AllocationPolicy()
NAME = "shop/help"
SOON = 10**12
"""A time at which every window has closed, in microseconds from now."""


def rate(hits: int, n: int) -> str:
    """A share in percent with its interval."""
    low, high = wilson(hits, n, 0.95)
    return f"{100 * hits / n:5.2f}% ({100 * max(low, 0):.2f} to {100 * high:.2f}; {hits}/{n})"


def median(units: np.ndarray, per: float = 1.0) -> str:
    """The median number of units with its interval; `never` where half did not decide."""
    ordered = np.sort(units)
    n = len(ordered)
    half = 1.96 * math.sqrt(n) / 2
    ranks = (n / 2 - half, (n - 1) / 2, n / 2 + half)
    low, middle, high = (ordered[min(n - 1, max(0, math.floor(rank)))] for rank in ranks)
    if middle >= NEVER:
        return "more than simulated"
    top = "?" if high >= NEVER else f"{high / per:,.0f}"
    return f"{middle / per:,.0f} ({low / per:,.0f} to {top})"


def false_alarms(n: int, seed: int) -> None:
    """Winners although all arms are equal, with a look after every unit."""
    print("\nNo difference in truth: a winner is declared at any of 3,000 looks (promised: at most 5%)")
    cases = [
        ("2 arms, 0.50", SimulatedExperiment((0.5, 0.5)), FIXED),
        ("2 arms, 0.95", SimulatedExperiment((0.95, 0.95)), FIXED),
        ("2 arms, 0.03", SimulatedExperiment((0.03, 0.03)), FIXED),
        ("4 arms, 0.50", SimulatedExperiment((0.5,) * 4), FIXED),
        ("2 arms, 0.50, Thompson", SimulatedExperiment((0.5, 0.5)), AllocationPolicy("thompson")),
        ("2 arms, 0.50, track and stop", SimulatedExperiment((0.5, 0.5)), AllocationPolicy("track_and_stop")),
        (
            "2 arms, all drift 0.2 to 0.8, Thompson",
            SimulatedExperiment((0.5, 0.5), 0.3),
            AllocationPolicy("thompson"),
        ),
    ]
    for name, world, policy in cases:
        found = simulate(world, policy, n, 3000, seed)
        print(f"  {name:40} {rate(found.decided, n)}")


def decisions(n: int, seed: int) -> None:
    """Wrong winners, and units to a decision beside a published rule on the same simulated units."""
    print("\nA difference in truth: units per arm to a decision, and wrong winners (promised: at most 5%)")
    cases = [
        ((0.90, 0.95), n, 4000, "560"),
        ((0.50, 0.60), n, 4000, "460"),
        ((0.02, 0.03), n // 10, 16_000, "3,610"),
    ]
    for means, repetitions, units, printed in cases:
        world = SimulatedExperiment(means)
        rng = np.random.default_rng(seed)
        parts: dict[str, list[Decisions]] = {}
        for size in chunks(repetitions):
            sample = draw(rng, world, FIXED, size, units)
            for every in (1, 100):
                parts.setdefault(f"ours, a look every {every}", []).append(winners(sample, every=every))
                parts.setdefault(f"published rule, a look every {every}", []).append(
                    published_winners(sample, every=every)
                )
        print(f"  {means[1]} against {means[0]} (the rule's published median: {printed})")
        for name, some in sorted(parts.items()):
            found = join_decisions(some)
            wrong = rate(found.wrong(world), repetitions)
            print(
                f"    {name:32} {median(found.units, 2):24} decided {found.decided}/{repetitions}, wrong {wrong}"
            )


def bandits(n: int, seed: int) -> None:
    """Shares that adapt: units in all to a decision, wrong winners, and how many units the best arm had."""
    print(
        "\nShares that adapt (0.60 against three arms of 0.50): units of all arms, wrong winners, share of the best"
    )
    world = SimulatedExperiment((0.5, 0.5, 0.5, 0.6))
    for kind in ("fixed", "thompson", "top_two", "track_and_stop"):
        found = simulate(world, AllocationPolicy(kind), n, 6000, seed)  # type: ignore[arg-type]
        print(
            f"  {kind:16} {median(found.units):24} decided {found.decided}/{n}, "
            f"wrong {rate(found.wrong(world), n)}, best arm {found.best_share.mean():.0%}"
        )


def guard_rails(n: int, seed: int) -> None:
    """A guard-rail on a rate of failures: limit 2 points over the control, alpha 5%."""
    print("\nA guard-rail (failures: the control fails 2%, limit 2 points more), half of the units each")
    for failures, units in ((0.02, 3000), (0.04, 3000), (0.07, 3000), (0.12, 3000), (0.30, 1000)):
        world = SimulatedExperiment((0.98, 1 - failures))
        rng = np.random.default_rng(seed)
        breaks = []
        for size in chunks(n):
            sample = draw(rng, world, FIXED, size, units)
            breaks.append(first_look(log_capital(build_arm_scores(sample, 0, 1), 0.02) >= math.log(1 / 0.05)))
        at = np.concatenate(breaks)
        broken = int(np.count_nonzero(at < NEVER))
        what = "false alarms" if failures <= 0.04 else "caught"
        print(
            f"  fails {failures:4.0%}: {what} within {units:,} units {rate(broken, n)}, units until then {median(at)}"
        )


def watches(n: int, seed: int) -> None:
    """The same guard-rail after the winner's move, when most units get the winner and a few the control."""
    print(
        "\nA watch (failures: the control fails 2%, limit 2 points more): the winner fails 4% or 12%, 5,000 units"
    )
    for share in (0.02, 0.05, 0.1, 0.2, 0.5):
        rng = np.random.default_rng(seed)
        found: dict[float, list[np.ndarray]] = {0.04: [], 0.12: []}
        for failures, breaks in found.items():
            world = SimulatedExperiment((0.98, 1 - failures))
            for size in chunks(n):
                arms = (rng.random((size, 5000)) >= share).astype(np.int64)
                chances = np.broadcast_to(np.array([share, 1 - share]), (size, 5000, 2))
                sample = MetricSample(arms, world.outcomes(rng, arms, 0, 5000), chances)
                breaks.append(
                    first_look(log_capital(build_arm_scores(sample, 0, 1), 0.02) >= math.log(1 / 0.05))
                )
        false, true = (np.concatenate(breaks) for breaks in found.values())
        caught = rate(int(np.count_nonzero(true < NEVER)), n)
        print(
            f"  {share:4.0%} held out: false alarms {rate(int(np.count_nonzero(false < NEVER)), n)}, caught {caught}, "
            f"units until then {median(true)}"
        )


def late_answers(n: int, seed: int) -> None:
    """Equal arms, but complaints about one of them come sooner: counting answers as they arrive goes wrong."""
    print(
        "\nEqual arms (0.50); praise for arm 1 takes 300 units to arrive, everything else 10: false winners in 2,000"
    )
    rng = np.random.default_rng(seed)
    arrived, settled = 0, 0
    for size in chunks(n):
        sample = draw(rng, SimulatedExperiment((0.5, 0.5)), FIXED, size, 2000)
        settled += winners(sample).decided
        delay = np.where((sample.arms == 1) & (sample.values == 1), 300, 10)
        order = np.argsort(np.arange(2000) + delay, axis=1, kind="stable")
        arms, values = (np.take_along_axis(x, order, axis=1) for x in (sample.arms, sample.values))
        arrived += winners(MetricSample(arms, values, sample.chances)).decided
    print(f"  counted as they arrive                   {rate(arrived, n)}")
    print(f"  counted when the unit's window closes    {rate(settled, n)}")


def missing_answers(n: int, seed: int) -> None:
    """The warning that one version provokes more answers than the other."""
    print("\nThe warning about different rates of answers, over 2,000 units (promised: at most 5% false)")
    for rates in ((0.3, 0.3), (0.3, 0.35), (0.3, 0.4), (0.3, 0.5)):
        found = simulate(SimulatedExperiment(rates), FIXED, n, 2000, seed, lead=False)
        print(f"  {rates[0]:.0%} and {rates[1]:.0%} answer: warned {rate(found.decided, n)}")


def stuffed_votes(n: int, seed: int) -> None:
    """Hostile users who praise one version and damn the other, whatever they see: what no statistics can undo."""
    print("\nHostile users praise the worse version (honest: 0.50 against 0.60), 4,000 units: who wins")
    for share in (0.0, 0.02, 0.05, 0.09, 0.12, 0.20):
        found = simulate(
            SimulatedExperiment((0.5 * (1 - share) + share, 0.6 * (1 - share))), FIXED, n, 4000, seed
        )
        wrong, right = (int(np.count_nonzero(found.winner == arm)) for arm in (0, 1))
        print(f"  {share:4.0%} hostile: the better one {rate(right, n)}, the worse one {rate(wrong, n)}")


def assignment(calls: int) -> None:
    """Time of one assignment in the process that serves."""
    definition = {"salt": "0" * 32, "arms": [{"version": v, "weight": 1.0} for v in (1, 2, 3, 4)]}
    times = np.empty(calls)
    for n in range(calls):
        unit = f"session-{n}"
        start = time.perf_counter_ns()
        version_for(definition, unit)
        times[n] = time.perf_counter_ns() - start
    p50, p99 = np.percentile(times / 1000, [50, 99])
    print(
        f"\nAssignment to one of 4 arms: p50 {p50:.1f} us, p99 {p99:.1f} us over {calls:,} calls (target: p99 < 50 us)"
    )


def looks(units: int, seed: int) -> None:
    """How long a page waits for the figures of a large experiment, in SQLite."""
    rng = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as folder, open_live(f"sqlite:///{Path(folder) / 'whet.db'}") as live:
        for text in ("One.", "Two.", "Three."):
            live.registry.create(NAME, Prompt.parse(text), author="benchmark")
        live.registry.move_label(NAME, "production", 1, actor="benchmark")
        guards = [{"metric": "error", "limit": 0.05}, {"metric": "latency", "high": 20, "limit": 1.0}]
        arms = [{"version": version} for version in (1, 2, 3)]
        asked = {"prompt": NAME, "label": "production", "arms": arms, "goal": "thumb", "guards": guards}
        found = live.experiments.create(asked, author="benchmark")
        for first in range(0, units, 2000):
            serve(live, range(first, min(first + 2000, units)), rng)
        print(
            f"\nThe figures of an experiment with {units:,} units, 3 arms and 2 guard-rails (target: 200 ms)"
        )
        again = Experiments(live.database, live.registry)

        def seconds() -> float:
            start = time.perf_counter()
            again.status(found.id, now=now() + SOON)
            return time.perf_counter() - start

        print(f"  after a restart, all units read and judged {seconds():8.3f} s")
        times, quiet = [], []
        for step in range(7):
            serve(live, range(units + step * 500, units + step * 500 + 500), rng)
            times.append(seconds())
            quiet.append(seconds())
        print(
            f"  500 new units read, and judged anew        {np.median(times):8.3f} s, slowest {max(times):.3f} s"
        )
        print(
            f"  nothing new                                 {np.median(quiet):8.3f} s, slowest {max(quiet):.3f} s"
        )


def serve(live: Live, sessions: range, rng: np.random.Generator) -> None:
    """One answer and one thumb for each session, all versions alike."""
    (definition,) = live.experiments.assignments(NAME)
    shown, said = [], []
    for n in sessions:
        one = Inference(
            NAME, version_for(definition, f"s{n}"), session=f"s{n}", experiment=definition["id"], variant="1",
            latency=float(rng.gamma(4, 0.5)), error="failed" if rng.random() < 0.02 else None,
        )  # fmt: skip
        shown.append(one)
        said.append(Feedback("thumb", one.id, float(rng.random() < 0.5)))
    live.traffic.add(shown, said)


def main() -> None:
    """Print every table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scale", type=float, default=1.0, help="share of the repetitions, for a quick look")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=["looks"], help="this part alone")
    given = parser.parse_args()
    n, seed = max(20, int(1000 * given.scale)), given.seed
    if given.only == "looks":
        looks(int(100_000 * given.scale), seed)
        return
    print("All units are simulated; their truth is known.")
    false_alarms(n, seed)
    decisions(n, seed)
    bandits(max(20, n // 4), seed)
    guard_rails(n, seed)
    watches(n, seed)
    late_answers(n, seed)
    missing_answers(n, seed)
    stuffed_votes(max(20, n // 4), seed)
    assignment(100_000)
    looks(int(100_000 * given.scale), seed)


if __name__ == "__main__":
    main()
