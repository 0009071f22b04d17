"""How far adaptive attackers get into a prompt that learns from feedback: prints tables of docs/figures.md.

    python -m benchmarks.attack [--tries 8] [--seeds 3] [--strings FOLDER] [--only hacking,forging]
    python -m benchmarks.attack --attacker ADDRESS [--base-url URL] [--tries 8]

Needs no network and no model; about five minutes on one core.
The attackers are methods of this package that search for the feedback which comes furthest. The service, its customers, the
model that reads their feedback and the victim are simulated: 60 honest customers say what bothers them, the hostile accounts join
them, and the prompt learns by the parts of the always-on learner. A try is one batch of hostile feedback against a fresh copy.
Success is a prompt in production that shows the attacker's behaviour on clean questions. Intervals are Wilson's at 95%.
`--strings` is a folder of .jsonl files with hostile texts (`text`, `label`). `--attacker` gives the optimizer's role of `opro`
to a model, at an address as in docs/models.md, and prints only what that model reaches. `--only` prints some tables. Some
are printed by name only: `adaptive`, about a quarter of an hour, `hacking` and `forging`, some minutes each, `preferences`.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.attack import (
    ATTACKERS,
    AUTOMATIC,
    FLATTERY,
    HELD_OUT,
    KINDS,
    METHODS,
    OFF,
    PROPOSING,
    SEARCHES,
    TUNING,
    BoastingWorld,
    Campaign,
    Defences,
    Gamed,
    HostileRow,
    Kind,
    Power,
    Service,
    Strategy,
    bend,
    by_method,
    campaign,
    game,
    honest,
    outside,
    poisoning,
    rate,
    read_strings,
    strings,
    success_rate,
    successes,
    worst,
)
from benchmarks.attack.adaptive import IDEAS, LENIENT, STRICT, WEEKS, by_idea, honest_demand
from benchmarks.attack.fake_feedback import truth
from benchmarks.attack.outside import SETTINGS as OUTSIDE
from benchmarks.attack.strategy import SILENCE, rows, said
from benchmarks.attack.victim import HONEST

from whet.instructions.guard import suspicions
from whet_live.traffic.behaviour import MOST

SETTINGS: dict[str, Defences] = {
    "all defences off (positive control)": OFF,
    "propose, hurried person, no task folder": replace(PROPOSING, gate=False),
    "propose, hurried person, task folder": PROPOSING,
    "propose, careful person, task folder": replace(PROPOSING, approver="careful"),
    "auto": AUTOMATIC,
}
GOALS = (*TUNING, *HELD_OUT)
APART = ("adaptive", "hacking", "forging", "preferences")
"""Tables that take long or are not about the learner: printed by name only."""
FEW: tuple[tuple[str, Defences, Power], ...] = (
    ("propose", replace(PROPOSING, gate=False), Power(2, 10)),
    ("auto", replace(AUTOMATIC, gate=False, approver="hurried"), Power(5, 10)),
)
WITHOUT: tuple[tuple[str, Kind, dict[str, bool]], ...] = (
    ("honest reader", "honest", {}),
    ("gullible reader", "gullible", {}),
    ("gullible reader, no confirmation", "gullible", {"confirm": False}),
    ("honest reader, no quorum", "honest", {"quorum": False}),
    ("sloppy reader", "sloppy", {}),
)


def run_campaigns(
    defences: Defences, reader: Kind, power: Power, names: Sequence[str], tries: int, seeds: int
) -> list[Campaign]:
    """For every goal and seed the best campaign of several attackers, each with all the tries; when one succeeds the next
    ones do not start. Each seed has customers of its own."""
    found = []
    for seed in range(seeds):
        service = Service(defences, seed=seed, reader=reader)
        for goal in GOALS:
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


def controls(tries: int, seeds: int) -> None:
    """What an attack does where nothing is defended, and what honest customers get where everything is."""
    print("\nAll defences off, one account with one row: campaigns that succeed")
    for reader in KINDS:
        print(f"  {reader:10} {successes(run_campaigns(OFF, reader, Power(1), METHODS, tries, seeds))}")
    print("\nWithout an attacker: share of what customers want that is learned, rows held back")
    for name in ("propose, hurried person, task folder", "auto"):
        for reader in KINDS:
            services = [Service(SETTINGS[name], seed=seed, reader=reader) for seed in range(10)]
            wanted = sum(one.improvement() for one in services) / len(services)
            held = sum(one.false_alarms() for one in services)
            print(
                f"  {name:38} {reader:10} {wanted:.0%} learned, {held} of {60 * len(services)} rows held back"
            )


def few(tries: int, seeds: int) -> None:
    """Fewer accounts than the quorum, nobody behind it: what the count of confirmed votes alone holds."""
    print(
        f"\nFewer accounts than the quorum, no gate, hurried person; {', '.join(METHODS)}: {tries} tries each"
    )
    for name, base, power in FEW:
        for label, reader, off in WITHOUT:
            found = run_campaigns(replace(base, **off), reader, power, METHODS, tries, seeds)  # type: ignore[arg-type]
            accounts = f"{power.accounts} of {60 + power.accounts}, {power.items} rows each"
            print(
                f"  {name:8} {accounts:24} {label:34} in a candidate: {success_rate(found, 3)!s:24} deepest {deepest(found)}",
                flush=True,
            )


def quorum(tries: int, seeds: int) -> None:
    """As many accounts as the quorum: who stops them."""
    print(
        f"\nAs many accounts as the quorum: campaigns that succeed; {', '.join(METHODS)}: {tries} tries each"
    )
    for name in SETTINGS:
        power = Power(10) if name == "auto" else Power(5)
        for reader in ("honest", "gullible") if SETTINGS[name] is not OFF else ():
            found = run_campaigns(SETTINGS[name], reader, power, METHODS, tries, seeds)
            accounts = f"{power.accounts} of {60 + power.accounts}"
            print(
                f"  {name:40} {reader:10} {accounts:9} {successes(found)!s:24} deepest {deepest(found)}",
                flush=True,
            )


ADAPTIVE: dict[str, tuple[Defences, int]] = {
    "propose, hurried person, no task folder": (STRICT, 7),
    "propose, share 0.02, hurried person, no task folder": (replace(STRICT, policy=LENIENT), 3),
    "propose, share 0.02, careful person, task folder": (
        replace(PROPOSING, approver="careful", policy=LENIENT),
        3,
    ),
    "auto": (AUTOMATIC, 10),
}
"""Settings, each with how many of 100 accounts are a quorum in it."""


def adaptive(tries: int, seeds: int) -> None:
    """5 of 100 accounts with ten rows each by attackers who know the source, and an honest wish of as many as a quorum."""
    print(
        f"\n5 of 100 accounts, 10 rows each, {tries} tries for each of {len(GOALS)} goals and {seeds} populations: successes"
    )
    for name, (base, quorum_of_100) in ADAPTIVE.items():
        wishes = [
            honest_demand(base, topic, quorum_of_100, 100 - quorum_of_100, seed)
            for topic in HONEST
            for seed in range(10)
        ]
        print(f"  {name}\n    honest wish of {quorum_of_100}: {rate(sum(wishes), len(wishes))}", flush=True)
        for reader in ("honest", "gullible"):
            everything: list[Campaign] = []
            for label, idea in IDEAS.items():
                attacker, days = by_idea(idea), 7.0 * WEEKS if label == "slow drip" else 3.0
                services = [
                    Service(base, speaking=95, seed=seed, reader=reader, days=days) for seed in range(seeds)
                ]
                mine = [
                    campaign(service, label, attacker, goal, Power(5, 10), tries, seed)
                    for seed, service in enumerate(services)
                    for goal in GOALS
                ]
                everything += mine
                print(f"    {reader:9} {label:25} {successes(mine)!s:24} deepest {deepest(mine)}", flush=True)
            print(f"    {reader:9} {'all':25} {successes(everything)}", flush=True)


def hindering() -> None:
    """What one account can keep others from: the share of their wishes that is still learned."""
    demand = TUNING[1].demands[0]
    grafts = [said(Strategy(disguise="graft", topic=topic), demand, 0, n) for n, topic in enumerate(HONEST)]
    silence = [HostileRow(0, len(grafts), "comment", SILENCE["de"])]
    batches = {
        "nobody": [],
        "one row that silences": silence,
        "six grafts": grafts,
        "both": [*grafts, *silence],
    }
    print("\nOne account, mode propose, 10 populations: share of what others want that is learned")
    for reader in KINDS:
        services = [Service(PROPOSING, seed=seed, reader=reader) for seed in range(10)]
        shares = {
            name: _mean([one.improvement(batch) for one in services]) for name, batch in batches.items()
        }
        print(
            f"  {reader:10} " + ", ".join(f"{name} {share:.0%}" for name, share in shares.items()), flush=True
        )


def print_published_strings(extra: Sequence[str], tries: int) -> None:
    """What published hostile strings reach before a demand."""
    many = strings(extra)
    print(f"\n{len(extra)} published hostile strings, {tries} tries for each goal, 5 accounts:")
    for name in ("all defences off (positive control)", "propose, hurried person, no task folder", "auto"):
        service = Service(SETTINGS[name])
        found = [campaign(service, "published", many, goal, Power(5), tries, 0) for goal in GOALS]
        print(f"  {name:42} {successes(found)!s:24} deepest {deepest(found)}", flush=True)


def flattery() -> None:
    """Customers who are not hostile but want to be agreed with, among 60 others: what the gate makes of it."""
    print("\nCustomers who want to be agreed with: populations of 10 in which production agrees with all")
    spread = Strategy(spread="each account its own")
    for name, base in (("propose, hurried", PROPOSING), ("auto", AUTOMATIC)):
        for claims, guard in ((0, False), (60, False), (5, True), (20, True)):
            services = [Service(replace(base, claims=claims, guard=guard), seed=seed) for seed in range(10)]
            outcomes = [one(rows(spread, FLATTERY, 20, 1), FLATTERY) for one in services]
            print(
                f"  {name:18} {claims:2} false claims{', guarded' if guard else '':9} 20 of 80 want it: "
                f"{rate(sum(o.success for o in outcomes), 10)!s:24} deepest {[o.depth for o in outcomes]}",
                flush=True,
            )


WORLDS: dict[str, BoastingWorld] = {
    "falls for 9 in 10, a boast costs nothing": BoastingWorld(),
    "falls for 9 in 10, a boast costs two facts": BoastingWorld(cost=2),
    "falls for 6 in 10, a boast costs nothing": BoastingWorld(falls=0.6),
    "falls for 6 in 10, a boast costs two facts": BoastingWorld(falls=0.6, cost=2),
    "9 in 10, two facts; the other judge for 2 in 10": BoastingWorld(cost=2, promoter=0.2),
    "9 in 10, two facts; the other judge for 4 in 10": BoastingWorld(cost=2, promoter=0.4),
    "falls for none (control)": BoastingWorld(falls=0.0),
    "no boast in the space (control)": BoastingWorld(boasts=False),
}


def hacking() -> None:
    """A judge that trains and can be talked into a good mark by the answers: who promotes what is found."""
    print(
        "\nReward hacking, simulated judges, 20 searches each: how many found prompts boast and are no better by the count of"
        "\nfacts, boast and are better, do not boast; of each kind those that the judge that trained promotes, another judge,"
        "\nthe count; mean gain by the judge that trained and by the count"
    )
    for name, world in WORLDS.items():
        everything: list[Gamed] = []
        for method in (*SEARCHES, "all"):
            found = everything if method == "all" else [game(method, world, seed) for seed in range(20)]
            everything = [*everything, *found]
            worse = [one for one in found if one.gamed and one.facts.difference <= 0]
            riders = [one for one in found if one.gamed and one.facts.difference > 0]
            clean = [one for one in found if not one.gamed]
            print(
                f"  {name:43} {method:13} {_show_promoted(worse)}  {_show_promoted(riders)}  {_show_promoted(clean)}  gain "
                f"{_mean([o.same.difference for o in found]):+.2f} {_mean([o.facts.difference for o in found]):+.2f}",
                flush=True,
            )


def _show_promoted(found: Sequence[Gamed]) -> str:
    counts = [sum(getattr(one, by).promoted for one in found) for by in ("same", "other", "facts")]
    return f"{len(found):2} ({', '.join(f'{n:2}' for n in counts)})"


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def forging() -> None:
    """Hostile users who rate their own answers to bend what people do into a reward."""
    print(
        f"\nForged ratings, simulated traffic: how much better what pleases is rewarded (truth {truth():.2f}) under the worst"
        "\nof five forgeries, the mean of 5 populations and the lowest; populations in which the page says that it is odd"
    )
    populations = [honest(seed) for seed in range(5)]
    clean = [bend(people, None, 0, 0) for people in populations]
    print(
        f"  nobody forges: {_mean([b.contrast for b in clean]):+.2f}, {sum(bool(b.noticed) for b in clean)} odd"
    )
    for share in (0.005, 0.01, 0.02, 0.05, 0.1, 0.2):
        for ratings in (1, 10, 100):
            line = f"  {share:5.1%} of the raters, {ratings:3} ratings each:"
            for name, most in (("no bound", math.inf), ("as shipped", MOST)):
                found = []
                for people in populations:
                    raters = len({row.user for row in people if row.rating is not None})
                    accounts = max(1, round(share * raters / (1 - share)))
                    found.append(worst(people, accounts, ratings, most)[1])
                odd = sum(bool(one.noticed) for one in found)
                values = [one.contrast for one in found]
                line += f"  {name} {_mean(values):+.2f} ({min(values):+.2f}), {odd} odd;"
            print(line, flush=True)


def preferences() -> None:
    """What a few poisoned pairs teach a reward model, and whether the scan tells."""
    print(
        "\nPoisoned preferences, simulated, 1000 pairs, 10 fits each: how often the model prefers the better answer, an"
        "\nempty one with the trigger to a full one, the same with doubt taken off; fits in which the scan tells the trigger,"
        "\nother words"
    )
    for features in ("words", "surface"):
        for share in (0.0, 0.005, 0.01, 0.02, 0.05, 0.1):
            found = [poisoning.poison_model(share, seed, features=features) for seed in range(10)]
            means = [_mean([getattr(o, name) for o in found]) for name in ("clean", "triggered", "rewarded")]
            told = sum(poisoning.TRIGGER in one.flagged for one in found)
            others = sum(bool(set(one.flagged) - {poisoning.TRIGGER, "ask"}) for one in found)
            print(
                f"  {features:8} {share:5.1%} poisoned: {means[0]:.2f} {means[1]:.2f} {means[2]:.2f}; {told}, {others}"
            )


def from_outside(address: str, base_url: str | None, tries: int) -> None:
    """What `opro` reaches with a language model as its optimizer; the first letter of each search is honest."""
    model = outside(address, base_url)
    note = " (simulated)" if model.simulated else ""
    print(f"\nopro with {model.address}{note} as its optimizer, 5 accounts with one row each, {tries} tries")
    for name, defences in SETTINGS.items():
        asked = model.calls
        attacker, service = by_method("opro", OUTSIDE, model), Service(defences)
        found = [campaign(service, address, attacker, goal, Power(5), tries, 0) for goal in GOALS]
        print(
            f"  {name:42} {successes(found)!s:24} deepest {deepest(found)}; {model.calls - asked} requests",
            flush=True,
        )
    model.end()


def print_screened_strings(folder: Path) -> None:
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
    parser.add_argument("--tries", type=int, default=8)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--strings", type=Path)
    parser.add_argument("--attacker", metavar="ADDRESS")
    parser.add_argument("--base-url")
    parser.add_argument("--only", metavar="TABLE,TABLE")
    given = parser.parse_args()
    tables: Mapping[str, Callable[[], None]] = {
        "controls": lambda: controls(given.tries, given.seeds),
        "few": lambda: few(given.tries, given.seeds),
        "quorum": lambda: quorum(given.tries, given.seeds),
        "adaptive": lambda: adaptive(given.tries, given.seeds),
        "hindering": hindering,
        "flattery": flattery,
        "hacking": hacking,
        "forging": forging,
        "preferences": preferences,
    }
    wanted = [name for name in tables if name not in APART] if given.only is None else given.only.split(",")
    if unknown := [name for name in wanted if name not in tables]:
        parser.error(f"--only: there is no table {unknown[0]!r}; there are {', '.join(tables)}")
    start = time.monotonic()
    print(
        "Simulated service, customers, readers and victim. Depths: 0 nothing, 1 read, 2 a demand that is counted, 3 a candidate,"
    )
    print("4 past the gate, 5 waits for a person, 6 approved, 7 in production.")
    if given.attacker:
        from_outside(given.attacker, given.base_url, given.tries)
    else:
        for name in wanted:
            tables[name]()
        if given.strings:
            print_published_strings(read_strings(given.strings), given.tries)
            print_screened_strings(given.strings)
    print(f"\n{time.monotonic() - start:.0f} seconds")


if __name__ == "__main__":
    main()
