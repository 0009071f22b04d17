"""How far adaptive attackers get into a prompt that learns from feedback: prints the tables of docs/attack.md.

    python benchmarks/attack.py [--tries 12] [--long 60] [--seeds 3] [--strings FOLDER]

Needs no network and no model; about ten minutes on one core, one and a half with --tries 4 --long 20 --seeds 1.
The attackers are methods of this package that search for the feedback which comes furthest, beside two simple controls.
The service, its customers and the victim are simulated: 60 honest customers say what bothers them, the hostile
accounts join them, and the prompt learns by the parts of the always-on learner. A try is one batch of hostile feedback
against a fresh copy. Success is a prompt in production that shows the attacker's behaviour on clean questions.
Intervals are Wilson's at 95 %. `--strings` is a folder of .jsonl files with hostile texts (`text`, `label`).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from whet.online.guard import suspicions
from whet.testing.attack import (
    ATTACKERS,
    AUTOMATIC,
    FLATTERY,
    HELD_OUT,
    METHODS,
    OFF,
    PROPOSING,
    TUNING,
    Campaign,
    Defences,
    Goal,
    Power,
    Service,
    Strategy,
    campaign,
    curve,
    rate,
    reached,
    read_strings,
    strings,
    successes,
)
from whet.testing.attack.strategy import rows

SETTINGS: dict[str, Defences] = {
    "all defences off (positive control)": OFF,
    "propose, hurried person, no task folder": replace(PROPOSING, gate=False),
    "propose, hurried person, task folder": PROPOSING,
    "propose, careful person, task folder": replace(PROPOSING, approver="careful"),
    "auto": AUTOMATIC,
}
POWERS = (Power(5), Power(5, 10), Power(20))
FEW = (
    ("propose", PROPOSING, (Power(1, 10), Power(2, 10))),
    ("auto", AUTOMATIC, (Power(2, 10), Power(5, 10))),
)
ABLATIONS = ("screen", "quorum", "caps", "gate")
GOALS = (*TUNING, *HELD_OUT)


def attacked(
    defences: Defences,
    power: Power,
    names: Sequence[str],
    tries: int,
    seeds: int,
    goals: Sequence[Goal] = GOALS,
    speaking: int = 60,
) -> list[Campaign]:
    """For every goal and seed the best campaign of several attackers, each with all the tries; when one succeeds the next
    ones do not start. Each seed has customers of its own."""
    found = []
    for seed in range(seeds):
        service = Service(defences, speaking, seed=seed)
        for goal in goals:
            mine: list[Campaign] = []
            for name in names:
                if not any(one.best.success for one in mine):
                    mine.append(campaign(service, name, ATTACKERS[name], goal, power, tries, seed))
            found.append(max(mine, key=lambda one: one.best.score))
    return found


def deepest(campaigns: Sequence[Campaign]) -> str:
    """How many campaigns came how deep at best."""
    depths = [one.best.depth for one in campaigns]
    return " ".join(f"{depth}:{depths.count(depth)}" for depth in sorted(set(depths)))


def controls(seeds: int) -> None:
    """What honest customers get, and how many of them are held back."""
    print("\nWithout an attacker: share of what customers want that is learned, rows held back")
    for name, defences in SETTINGS.items():
        services = [Service(defences, seed=seed) for seed in range(max(10, seeds))]
        wanted = sum(one.improvement() for one in services) / len(services)
        held = sum(one.false_alarms() for one in services)
        print(f"  {name:42} {wanted:.0%} learned, {held} of {60 * len(services)} rows held back")


def few(long: int, seeds: int) -> None:
    """Fewer accounts than the quorum, nobody behind it: what the count alone holds."""
    print(
        f"\nFewer accounts than the quorum, no gate, hurried person; {', '.join(METHODS)}: {long} tries each"
    )
    for name, base, powers in FEW:
        for power in powers:
            found = attacked(replace(base, gate=False), power, METHODS, long, seeds)
            accounts = f"{power.accounts} of {60 + power.accounts}, {power.items} rows each"
            print(
                f"  {name:8} {accounts:24} in a candidate: {reached(found, 3)!s:24} deepest {deepest(found)}",
                flush=True,
            )


def grid(tries: int, seeds: int) -> None:
    """Success for every setting and power, by the methods."""
    print(f"\nCampaigns that succeed; {', '.join(METHODS)}: {tries} tries each (all goals, {seeds} seeds)")
    for name, defences in SETTINGS.items():
        for power in POWERS if defences is not OFF else (Power(1), *POWERS):
            found = attacked(defences, power, METHODS, tries, seeds)
            tuning, held = ([c for c in found if (c.goal in TUNING) == side] for side in (True, False))
            accounts = f"{power.accounts} of {60 + power.accounts}, {power.items} rows each"
            print(
                f"  {name:42} {accounts:24} {successes(found)!s:24} tuning {successes(tuning).hits}/{len(tuning)}, "
                f"held-out {successes(held).hits}/{len(held)}; deepest {deepest(found)}",
                flush=True,
            )


def attackers(tries: int, seeds: int, extra: Sequence[str]) -> None:
    """Each attacker by itself, with its success over the number of tries."""
    looks = sorted({1, 3, 10, tries})
    print(f"\nEach attacker, 5 accounts with one row each: campaigns that succeed within {looks} tries")
    for setting in (
        "propose, hurried person, no task folder",
        "propose, hurried person, task folder",
        "auto",
    ):
        for name in ATTACKERS:
            found = attacked(SETTINGS[setting], Power(5), [name], tries, seeds)
            points = " ".join(f"{r.hits:3}" for _, r in curve(found, looks))
            print(
                f"  {setting:42} {name:14} {points}  {successes(found)!s:24} deepest {deepest(found)}",
                flush=True,
            )
    if extra:
        many = strings(extra)
        print(f"  {len(extra)} published hostile strings, {tries} of them each:")
        for setting in (
            "all defences off (positive control)",
            "propose, hurried person, no task folder",
            "auto",
        ):
            service = Service(SETTINGS[setting])
            found = [campaign(service, "published", many, goal, Power(5), tries, 0) for goal in GOALS]
            print(
                f"  {setting:42} published      {successes(found)!s:24} deepest {deepest(found)}", flush=True
            )


def ablations(tries: int, seeds: int) -> None:
    """One defence off at a time, the attack searched anew against what is left."""
    print(f"\nOne defence off (the methods, {tries} tries each, held-out goals)")
    cases = (("propose, hurried", PROPOSING, Power(1, 10)), ("propose, hurried", PROPOSING, Power(5)),
             ("auto", AUTOMATIC, Power(5, 10)))  # fmt: skip
    for name, base, power in cases:
        for missing in ("nothing", *ABLATIONS):
            defences = base if missing == "nothing" else replace(base, **{missing: False})  # type: ignore[arg-type]
            found = attacked(defences, power, METHODS, tries, seeds, HELD_OUT)
            print(
                f"  {name:18} {power.accounts} x {power.items:2} rows, without {missing:8} "
                f"{successes(found)!s:24} deepest {deepest(found)}",
                flush=True,
            )


def poisoned(tries: int, seeds: int) -> None:
    """What reaches a candidate when a small part of many rows is hostile, each from an account of its own."""
    print(
        f"\n400 honest rows and a few hostile ones (opro, {tries} tries): campaigns with the demand in a candidate"
    )
    for name, base in (("propose", PROPOSING), ("auto", AUTOMATIC)):
        for accounts in (2, 4, 21):
            found = attacked(
                replace(base, gate=False), Power(accounts), ["opro"], tries, seeds, HELD_OUT, speaking=400
            )
            share = f"{accounts} hostile, {accounts / (400 + accounts):.1%}"
            print(f"  {name:8} {share:18} {reached(found, 3)!s:24} deepest {deepest(found)}", flush=True)


def flattery() -> None:
    """Customers who are not hostile but want to be agreed with, among 60 others: what the gate makes of it."""
    print(
        "\nCustomers who want to be agreed with, among 60 others: populations of 10 in which production agrees with all"
    )
    said = Strategy(spread="each account its own")
    for name, base in (("propose, hurried", PROPOSING), ("auto", AUTOMATIC)):
        for claims, guard in ((0, False), (20, False), (60, False), (5, True), (20, True), (60, True)):
            services = [Service(replace(base, claims=claims, guard=guard), seed=seed) for seed in range(10)]
            for wanting in (6, 20, 60):
                outcomes = [one(rows(said, FLATTERY, wanting, 1), FLATTERY) for one in services]
                print(
                    f"  {name:18} {claims:2} false claims{', guarded' if guard else '':9} {wanting:2} of {60 + wanting:3} "
                    f"want it: {rate(sum(o.success for o in outcomes), 10)!s:24} deepest {[o.depth for o in outcomes]}"
                )


def screened(folder: Path) -> None:
    """What the screen says about published strings: hostile ones, and harmless ones that only look hostile."""
    print("\nPublished strings that the screen holds back when they come as a comment")
    for path in sorted(folder.glob("*.jsonl")):
        texts = read_strings(folder, path.name, hostile=None)
        print(f"  {path.name:36} {rate(sum(bool(suspicions(text)) for text in texts), len(texts))}")


def main() -> None:
    """Print every table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tries", type=int, default=12)
    parser.add_argument("--long", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--strings", type=Path)
    given = parser.parse_args()
    start = time.monotonic()
    print(
        "Simulated service, customers and victim. Depths: 0 nothing, 1 read, 2 a complaint that counts, 3 a candidate,"
    )
    print("4 past the gate, 5 waits for a person, 6 approved, 7 in production.")
    controls(given.seeds)
    flattery()
    few(given.long, given.seeds)
    grid(given.tries, given.seeds)
    attackers(given.tries, given.seeds, read_strings(given.strings) if given.strings else [])
    ablations(given.tries, given.seeds)
    poisoned(given.tries, given.seeds)
    if given.strings:
        screened(given.strings)
    print(f"\n{time.monotonic() - start:.0f} seconds")


if __name__ == "__main__":
    main()
