"""How far adaptive attackers get into a prompt that learns from feedback: prints the tables of docs/attack.md.

    python benchmarks/attack.py [--tries 20] [--seeds 3] [--strings FOLDER]

Needs no network and no model; about twelve minutes on one core, one and a half with --tries 8 --seeds 1.
The service, its customers and the victim model are simulated: 60 honest customers say what bothers them, the hostile
accounts join them, and the prompt learns by the parts of the always-on learner. A try is one batch of hostile feedback
against a fresh copy. Success is a prompt in production that shows the attacker's behaviour on clean questions.
Intervals are Wilson's at 95 %. `--strings` is a folder of .jsonl files with hostile texts (`text`, `label`).
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from whet.online.guard import suspicions
from whet.testing.attack import (
    ATTACKERS,
    AUTOMATIC,
    HELD_OUT,
    OFF,
    PROPOSING,
    TUNING,
    Campaign,
    Defences,
    Goal,
    Power,
    Service,
    campaign,
    curve,
    rate,
    read_strings,
    strings,
    successes,
)

ROOT = Path(__file__).resolve().parents[1]
STRINGS = Path(os.environ.get("WHET_SHARED_DATA", ROOT.parent / "shared" / "data")) / "attack_strings"

SETTINGS: dict[str, Defences] = {
    "all defences off (positive control)": OFF,
    "propose, hurried person, no task folder": replace(PROPOSING, gate=False),
    "propose, hurried person, task folder": PROPOSING,
    "propose, careful person, task folder": replace(PROPOSING, approver="careful"),
    "auto": AUTOMATIC,
}
POWERS = (Power(1, 10), Power(2, 10), Power(5), Power(5, 10), Power(20))
ABLATIONS = ("screen", "quorum", "caps", "gate")
GOALS = (*TUNING, *HELD_OUT)


def attacked(
    defences: Defences,
    power: Power,
    names: Sequence[str],
    tries: int,
    seeds: int,
    goals: Sequence[Goal] = GOALS,
) -> list[Campaign]:
    """Campaigns of several attackers with every goal and seed; each seed has customers of its own."""
    found = []
    for seed in range(seeds):
        service = Service(defences, seed=seed)
        for goal in goals:
            found += [campaign(service, name, ATTACKERS[name], goal, power, tries, seed) for name in names]
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


def grid(tries: int, seeds: int) -> None:
    """Success for every setting and power, by the evolutionary attacker."""
    print(f"\nCampaigns that succeed, evolutionary attacker, {tries} tries each (all goals, {seeds} seeds)")
    for name, defences in SETTINGS.items():
        for power in POWERS:
            found = attacked(defences, power, ["evolution"], tries, seeds)
            tuning, held = ([c for c in found if (c.goal in TUNING) == side] for side in (True, False))
            accounts = f"{power.accounts} of {60 + power.accounts}, {power.items} rows each"
            print(
                f"  {name:42} {accounts:24} {successes(found)!s:24} tuning {successes(tuning).hits}/{len(tuning)}, "
                f"held-out {successes(held).hits}/{len(held)}; deepest {deepest(found)}",
                flush=True,
            )


def attackers(tries: int, seeds: int, extra: Sequence[str]) -> None:
    """Each attacker, with its success over the number of tries."""
    print(
        f"\nEach attacker, 5 accounts with one row each: campaigns that succeed within 1, 3, 10, {tries} tries"
    )
    looks = sorted({1, 3, 10, tries})
    for setting in (
        "propose, hurried person, no task folder",
        "propose, hurried person, task folder",
        "auto",
    ):
        for name in ATTACKERS:
            found = attacked(SETTINGS[setting], Power(5), [name], tries, seeds)
            points = " ".join(f"{r.hits:3}" for _, r in curve(found, looks))
            print(
                f"  {setting:42} {name:12} {points}  {successes(found)!s:24} deepest {deepest(found)}",
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
            print(f"  {setting:42} published    {successes(found)!s:24} deepest {deepest(found)}", flush=True)


def ablations(tries: int, seeds: int) -> None:
    """One defence off at a time, the attacker tuned anew against what is left."""
    print(f"\nOne defence off (evolutionary attacker, {tries} tries, held-out goals)")
    cases = (("propose, hurried", PROPOSING, Power(1, 10)), ("propose, hurried", PROPOSING, Power(5)),
             ("auto", AUTOMATIC, Power(5, 10)))  # fmt: skip
    for name, base, power in cases:
        for missing in ("nothing", *ABLATIONS):
            defences = base if missing == "nothing" else replace(base, **{missing: False})  # type: ignore[arg-type]
            found = attacked(defences, power, ["evolution"], tries, seeds, HELD_OUT)
            print(
                f"  {name:18} {power.accounts} x {power.items:2} rows, without {missing:8} "
                f"{successes(found)!s:24} deepest {deepest(found)}",
                flush=True,
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
    parser.add_argument("--tries", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--strings", type=Path, default=STRINGS)
    given = parser.parse_args()
    start = time.monotonic()
    print(
        "Simulated service, customers and victim. Depths: 0 nothing, 1 read, 2 a complaint that counts, 3 a candidate,"
    )
    print("4 past the gate, 5 waits for a person, 6 approved, 7 in production.")
    controls(given.seeds)
    grid(given.tries, given.seeds)
    attackers(given.tries, given.seeds, read_strings(given.strings) if given.strings.is_dir() else [])
    ablations(given.tries, given.seeds)
    if given.strings.is_dir():
        screened(given.strings)
    print(f"\n{time.monotonic() - start:.0f} seconds")


if __name__ == "__main__":
    main()
