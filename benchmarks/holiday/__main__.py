"""Weeks in which nobody looks after a live prompt. Everything but whet is simulated: visitors, models, and the hours.

    python -m benchmarks.holiday              # sixteen days: four minutes of processor time
    python -m benchmarks.holiday --days 10

The owner of a desk makes a prompt, puts the snippet into a page, sets the mode auto with a gate and an experiment, names a
webhook, and goes on holiday. A real `whet serve` with its learner runs on SQLite; the app logs its answers through `whet_client`,
and the requests of the snippet come over HTTP. The handbook of the desk changes once, and on one day another system answers under
the name of the model. The people of the handbook keep the task of the gate; nobody decides about a proposal.

Printed is what the owner finds: right answers by week beside those that the first prompt would have given to the same questions,
each change of production with its reason and its measured effect, the tokens of the instructions, and what the webhook got. The
exit code is 1 where one of these is missing: answers that are better by an interval, a prompt that is shorter than what was
written for it, a reason and a measured effect of each change, exactly one alert about the model, on its day.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.holiday.story import DayCount, Holiday, HolidayPlan, HolidayResult

from whet.stats.rates import wilson

WEEK = 7


def weeks_of(days: Sequence[DayCount]) -> list[DayCount]:
    """The days by week; instructions and tokens are those of its last day."""
    weeks = []
    for start in range(0, len(days), WEEK):
        part = days[start : start + WEEK]
        sums = {
            name: sum(getattr(day, name) for day in part)
            for name in ("visits", "right", "before", "up", "thumbs")
        }
        weeks.append(DayCount(**sums, instructions=part[-1].instructions, tokens=part[-1].tokens))
    return weeks


def effect_of(change: Mapping[str, Any]) -> str:
    """What was measured of a change of production, in words; empty where nothing was."""
    found, trial = [], change["experiment"]
    if trial is not None:
        name = trial["definition"]["goal"]["name"]
        effects = [one for one in trial["now"]["verdict"]["effects"] if one["version"] == trial["winner"]]
        found += [
            f"{one['estimate']:+.2f} ({one['low']:+.2f} to {one['high']:+.2f}) {name} a visitor in the experiment"
            for one in effects[:1]
        ]
    if gate := (change["version"].get("evidence") or {}).get("gate"):
        pairs = f"{gate['wins']} better, {gate['losses']} worse of {gate['n']}"
        found.append(f"{gate['before']:.0%} to {gate['after']:.0%} right at the gate ({pairs})")
    return "; ".join(found)


def reason_of(change: Mapping[str, Any]) -> str:
    """Why the version was made, and what for."""
    version = change["version"]
    return str(version.get("message") or change["move"]["reason"])


def learned_changes(result: HolidayResult) -> list[Mapping[str, Any]]:
    """The changes of production after the owner's own."""
    return [one for one in result.changes if one["move"]["actor"] != "owner"]


def written_tokens(result: HolidayResult) -> int:
    """The tokens of the instructions if each had stayed as it was written: nothing joined, shortened, replaced or left out."""
    first: dict[str, int] = {}
    for change in result.changes:
        for one in change["version"]["instructions"]:
            first.setdefault(one["id"], one["tokens"])
    return sum(first.values())


def judge(result: HolidayResult, plan: HolidayPlan) -> list[str]:
    """What the weeks did not show that they should."""
    wrong, last = [], weeks_of(result.days)[-1]
    if wilson(last.right, last.visits)[0] <= wilson(last.before, last.visits)[1]:
        wrong.append("answers of the last week are not better than without learning")
    if not result.days[-1].tokens < written_tokens(result):
        wrong.append("the prompt is as long as what was written for it")
    if not learned_changes(result):
        wrong.append("production never changed")
    for one in learned_changes(result):
        if not reason_of(one) or not effect_of(one):
            wrong.append(f"version {one['move']['new']} has no reason or no measured effect")
    models = [(day, body) for day, body in result.alerts if body["kind"] == "model"]
    if plan.system_day < plan.days and [day for day, _ in models] != [plan.system_day + 1]:
        wrong.append(f"alerts about the model came on the days {[day for day, _ in models]}")
    if result.stored != result.rows:
        wrong.append(f"{result.rows} rows were sent and {result.stored} are stored")
    if not result.audit_whole:
        wrong.append("the chain of the audit log is broken")
    return wrong


def show(result: HolidayResult, plan: HolidayPlan) -> None:
    """What the owner finds."""
    names = (
        "week (simulated)",
        "right answers",
        "the first prompt, same questions",
        "thumbs up",
        "instructions",
        "tokens",
    )
    print(f"\n| {' | '.join(names)} |\n{'|---' * len(names)}|")
    for n, one in enumerate(weeks_of(result.days), 1):
        parts = (one.right, one.visits), (one.before, one.visits), (one.up, one.thumbs)
        shares = " | ".join(f"{part / max(1, whole):.0%}" for part, whole in parts)
        print(f"| {n} | {shares} | {one.instructions} | {one.tokens} |")
    print("\n| day | version | why | measured effect |\n|---|---|---|---|")
    for change in learned_changes(result):
        version, effect = change["move"]["new"], effect_of(change) or "none"
        print(f"| {change['day']} | {version} | {reason_of(change)} | {effect} |")
    print("\n| day | what the webhook got |\n|---|---|")
    for day, body in result.alerts:
        print(f"| {day} | {body['text']} |")
    policies = ", ".join(str(day + 1) for day in plan.policies)
    print(f"\nThe handbook changed on day {policies}, the system of the model on day {plan.system_day + 1}.")
    tokens, written = result.days[-1].tokens, written_tokens(result)
    print(f"Tokens of the instructions: {tokens}; of all of them as they were written: {written}.")
    print(f"Rows sent and stored: {result.rows:,}, {result.stored:,}. Proposals that wait: {result.waiting}.")
    print(f"Minutes: {result.seconds / 60:.0f}.")


def main() -> int:
    """Run, print, judge."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--days", type=int, default=HolidayPlan.days)
    options.add_argument("--seed", type=int, default=0)
    chosen = options.parse_args()
    plan = HolidayPlan(days=chosen.days, seed=chosen.seed)
    if chosen.days != HolidayPlan.days:
        plan = replace(plan, policies=(chosen.days // 3,), system_day=chosen.days * 4 // 7)
    with tempfile.TemporaryDirectory(prefix="whet-holiday-") as folder:
        result = Holiday(Path(folder), plan, lambda line: print(line, file=sys.stderr, flush=True)).run()
    show(result, plan)
    wrong = judge(result, plan)
    for line in wrong:
        print(f"\nNot shown: {line}.")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
