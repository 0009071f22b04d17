"""The gain that a task's sealed rows can show at the next opening, and whether a promotion is possible at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from whet.engine.openings import SealedTestAccess, first_level
from whet.engine.plan_json import PromotionJSON
from whet.errors import quantity, show_reward, show_size
from whet.rewards import Objectives
from whet.stats import (
    clusters_of,
    fewest_clusters,
    rows_for_gain,
    smallest_gain,
)
from whet.stats.joint import rows_for_margin
from whet.task import Task
from whet.task.examples import input_hash
from whet.task.spec import WORST
from whet.types import Example

_HARDLY = 0.5  # a share of the range of the reward
WORSE = 0.05
"""The share of rows that get worse in the second figure of a power."""


def promotion_of(task: Task, opening: SealedTestAccess | None) -> PromotionJSON:
    """Whether the sealed rows could promote anything, by the fewest independent ones that the test can decide on; and which
    gains, in units of the reward, the `opening` that a run would be shows with a power of 80%: where no row gets worse, and
    where one of twenty does (`gain_some_worse`). `scale` is the largest gain that the reward allows, `rows_for_scale` the rows
    that would show it with that power where these do not."""
    rows = _independent(task.test)
    worst = bool(task.cases) and task.aggregate == WORST
    if worst:
        rows = min(_independent([row for row in task.test if row.case == case.name]) for case in task.cases)
    alpha = first_level(task) if opening is None else opening.alpha
    needed = fewest_clusters(alpha)
    narrow = _narrow_margins(task, rows)
    promotion: PromotionJSON = {"possible": rows >= needed, "rows": rows, "needed": needed}
    if opening is not None:
        promotion |= {"opening": opening.number, "alpha": alpha}
        if not isinstance(task.reward, Objectives) and not worst:
            _add_gains(promotion, task, rows, alpha)
    if narrow:
        promotion["margins"] = narrow
    return promotion


def _independent(rows: Sequence[Example]) -> int:
    """Count the rows that are independent of each other."""
    return len(set(clusters_of([input_hash(e) for e in rows], [e.group for e in rows])))


def _add_gains(promotion: PromotionJSON, task: Task, rows: int, alpha: float) -> None:
    width, minimum = task.reward.high - task.reward.low, task.minimum_effect
    shares = [smallest_gain(rows, alpha, worse) for worse in (0.0, WORSE)]
    gain, some = (None if share is None else share * width + minimum for share in shares)
    reached = gain is not None and gain <= width
    largest = (width - minimum) / width
    enough = rows_for_gain(largest, alpha) if largest > 0 and not reached else None
    promotion |= {
        "gain": gain,
        "gain_some_worse": some,
        "hardly": shares[0] is None or shares[0] > _HARDLY,
        "scale": width,
    }
    if not reached:
        promotion["rows_for_scale"] = enough


def _narrow_margins(task: Task, rows: int) -> dict[str, int]:
    """Rewards among the objectives whose margins these rows cannot show even where nothing changes, with the rows that would."""
    items = task.reward.items if isinstance(task.reward, Objectives) else ()
    goals = [item.goal for item in items if item.goal.width and item.goal.allowed]
    alpha = first_level(task)
    needed = {g.name: rows_for_margin(float(g.allowed or 0), float(g.width or 1), alpha) for g in goals}
    return {name: n for name, n in needed.items() if n > rows}


def describe_power(promotion: Mapping[str, Any], runs: int = 1) -> str:
    """Say in one sentence the number of the opening, the number of rows, and the gain that such a test shows, the same in plan,
    advice and report; empty if the opening is not known."""
    if "opening" not in promotion:
        return ""
    each = f" in each of {runs:,} runs" if runs > 1 else ""
    what = f"opening {promotion['opening']:,} of {quantity(promotion['rows'], 'independent test row')}"
    gain, some = promotion.get("gain"), promotion.get("gain_some_worse")
    shows = ""
    if gain is not None and gain <= promotion["scale"]:
        shows = f": shows a gain of {show_size(gain, 2)} or more in 4 of 5 cases if no row gets worse"
        if some is not None and some <= promotion["scale"]:
            shows += f", {show_size(some, 2)} if one row in twenty gets worse"
    return f"{what}, tested at alpha {promotion['alpha']:.2g}{each}{shows}"


def power_lines(promotion: Mapping[str, Any], runs: int = 1) -> list[str]:
    """The power of the test, and what to do where that is hardly anything."""
    sentence = describe_power(promotion, runs)
    if not sentence or not promotion["possible"]:
        return [sentence] if sentence else []
    fresh = promotion["opening"] > 1
    if (short := _out_of_reach(promotion)) is not None:
        return [sentence, f"warning: {short}"]
    if promotion.get("hardly"):
        remedy = "fresh ones, which begin at opening 1 again" if fresh else "more of them"
        return [
            sentence,
            f"warning: these rows can show only a very large gain in this opening. Give {remedy}.",
        ]
    return [sentence]


def _out_of_reach(promotion: Mapping[str, Any]) -> str | None:
    """The warning that the rows show no gain that the scale of the reward allows, with the number of rows that would; None
    where they show one."""
    if "rows_for_scale" not in promotion:
        return None
    enough, most = promotion["rows_for_scale"], show_reward(promotion["scale"], 2)
    if enough is None:
        return (
            f"the reward allows a gain of at most {most}, but `minimum_effect` is as large as that "
            "gain. Lower `minimum_effect`."
        )
    return (
        f"no gain that the reward allows ({most} at most) shows in 4 of 5 cases: with "
        f"`minimum_effect` that takes about {quantity(enough, 'independent test row')}, and there are "
        f"{promotion['rows']:,}. Give more rows, or lower `minimum_effect`."
    )


def promotion_warning(plan: Mapping[str, Any]) -> str | None:
    """A warning if the sealed rows are too few to promote anything."""
    rows = plan.get("promotion", {"possible": True})
    if rows["possible"]:
        return None
    looks = rows.get("opening", 1)
    here = "" if looks == 1 else f" at opening {looks:,} of them"
    remedy = "" if looks == 1 else "Give fresh rows, which begin at opening 1 again. "
    return (
        f"Nothing can be promoted: the sealed test has {quantity(rows['rows'], 'independent row')}, "
        f"and a promotion is impossible with n < {rows['needed']:,}{here}. "
        f"{remedy or 'Give more rows, or a larger share for the test (`splits`).'}"
    ).rstrip()
