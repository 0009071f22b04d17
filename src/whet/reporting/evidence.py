"""The changes of a run: the prompts, the parts of the reward, failures, the control run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import whet.reporting.number_format as number_format
from whet.engine.usage_sums import usage_of_run
from whet.reporting.examples import collapse_text, sealed_rows
from whet.reporting.layout import Section, details, note, region, table
from whet.reporting.markup import Child, Html, clip, el, join, prompt_text
from whet.reporting.programs import diff_of_each
from whet.reporting.record import Record, finite_number, in_groups, side, usage_in
from whet.stats.intervals import show_p

MOST_FAILURES = 100


def diff_section(record: Record) -> Section | None:
    """The diff from baseline to best."""
    before, after = record.baseline_text, record.best_text
    if before is None or after is None:
        return None
    title = "What changed" if record.finished else "Changes so far"
    if before == after:
        return Section("change", title, note("There is no change: the best prompt is the baseline."))
    return Section("change", title, diff_of_each(before, after))


def prompts(record: Record) -> Section | None:
    """Baseline and best side by side."""
    if record.baseline_text is None or record.best_text is None:
        return None
    best = "Best" if record.finished else "Best so far"
    sides = (
        _prompt(record, "baseline", "Baseline", record.baseline_text),
        _prompt(record, "best", best, record.best_text),
    )
    return Section("prompts", "Both prompts", el("div", sides, class_="pair"))


def _prompt(record: Record, name: str, title: str, text: str) -> Html:
    scores = side(record.result, name)
    seen = record.start if name == "baseline" else record.candidates.get(record.best_id or "")
    means = {
        split: side(scores, split).get("mean") for split in ("validation", "test") if side(scores, split)
    }
    if not means and seen is not None and seen.validation is not None:
        means = {"validation": seen.validation}
    known = [f"{split} {number_format.reward_text(mean, record.digits)}" for split, mean in means.items()]
    identity = scores.get("id") or (seen and seen.id)
    known += [f"id {identity}"] if identity else []
    body = region("pre", prompt_text(text), label=f"{title} prompt")
    return el("article", el("h3", title), note(" · ".join(known)), body, class_=name)


def parts_section(record: Record) -> Section | None:
    """Mean of every part of the reward on the sealed test, baseline against best."""
    before, after = sealed_rows(record, "baseline"), sealed_rows(record, "best")
    names = list(dict.fromkeys(name for row in (*before, *after) for name in side(row, "parts")))
    if not names:
        return None
    rows: list[list[str]] = []
    for name in names:
        old, new = _mean_part(before, name), _mean_part(after, name)
        gap = None if old is None or new is None else new - old
        rows.append(
            [name, *(number_format.reward_text(v, 3) for v in (old, new)), number_format.difference(gap, 3)]
        )
    head = ["Part", "Baseline", "Best", "Difference"]
    return Section(
        "parts", "Parts of the reward", table("Mean over the test examples that have the part", head, rows)
    )


def _mean_part(rows: Sequence[Mapping[str, object]], name: str) -> float | None:
    values = [v for row in rows if (v := finite_number(side(row, "parts").get(name))) is not None]
    return sum(values) / len(values) if values else None


def cases_section(record: Record) -> Section | None:
    """The sealed test of each case of a task made of several."""
    cases = side(record.result, "cases")
    if not cases:
        return None
    rows = [
        [
            join(name, " ", el("small", str(one.get("model")))) if one.get("model") != name else name,
            *(number_format.reward_text(finite_number(one.get(key)), 3) for key in ("baseline", "best")),
            join(
                number_format.difference(finite_number(one.get("difference")), 3),
                " ",
                el("small", " to ".join(_end(one.get(key)) for key in ("low", "high"))),
            ),
            str(one.get("n")),
            str(one.get("verdict")),
        ]
        for name, one in cases.items()
    ]
    aim = "the worst case" if record.result.get("aggregate") == "worst" else "the mean over cases"
    caption = (
        f"Results on the sealed test. The value of a prompt is {aim}. Each interval covers only its own case."
    )
    head = ["Case", "Baseline", "Best", "Difference", "Rows", "Verdict"]
    return Section("cases", "Cases", table(caption, head, rows, text=(5,)))


def _end(value: object) -> str:
    known = finite_number(value)
    return "–" if known is None else number_format.difference(known, 3)


def failures(record: Record) -> Section | None:
    """Test rollouts that failed, with what failed."""
    if not record.final:
        return None
    failed = [
        (name, row) for name in ("baseline", "best") for row in sealed_rows(record, name) if row.get("error")
    ]
    if not failed:
        text = "No rollout of the sealed test failed: every answer arrived, was readable and was graded."
        return Section("failures", "Failures", note(text))
    rows = [
        [
            clip(str(row.get("id")), 200),
            name,
            clip(str(row["error"]), 1000),
            collapse_text(str(row.get("output") or "")),
        ]
        for name, row in failed[:MOST_FAILURES]
    ]
    left = len(failed) - len(rows)
    caption = note(
        f"{number_format.plural(len(failed), 'rollout')} of the sealed test failed and got the lowest "
        "reward. The word before the colon names the place of the failure: provider, parse, program "
        "or reward."
    )
    shown = table("Failed rollouts", ["Example", "Prompt", "Error", "Output"], rows, text=(1, 2, 3))
    rest = left > 0 and note(f"{left:,} more are not shown.")
    return Section("failures", "Failures", join(caption, shown, rest))


def control(record: Record) -> Section | None:
    """The method beside a control run, each with the calls that it made itself."""
    other = side(record.result, "control")
    if not other:
        return None
    rows: list[list[Child]] = [
        [
            str(result.get("method")),
            *(
                _interval(side(side(result, "best"), split), record.digits)
                for split in ("validation", "test")
            ),
            number_format.count(side(usage_of_run(usage_in(result)), "calls").get("task")),
            "yes" if side(result, "improvement").get("promoted") else "no",
        ]
        for result in (record.result, other)
    ]
    head = ["Method", "Best on validation", "Best on the sealed test", "Task calls", "Promoted"]
    caption = note(
        "The limits hold for both runs together, and half of each limit is reserved for the control. "
        "The table shows the use of each run. The gain of the method over its control is the value "
        "of its learning on this task."
    )
    text = prompt_text(str(side(other, "best").get("prompt", "")))
    best = details("The best prompt of the control", el("pre", text, dir="auto"))
    both = table("This run and its control", head, rows, text=(4,))
    return Section("control", "Control", join(caption, both, _control_pair(record), best))


def _control_pair(record: Record) -> Html | None:
    """The method against its control on the same rows."""
    pairs = record.result.get("pairs") or []
    if not pairs:
        return None
    rows: list[list[Child]] = [
        [
            f"{pair.get('a')} minus {pair.get('b')}",
            _interval({**pair, "mean": pair.get("difference")}, record.digits, number_format.difference),
            *(show_p(pair.get(key, 1.0)) for key in ("p", "p_adjusted")),
        ]
        for pair in pairs
    ]
    return table("In pairs, on the same rows", ["Pair", "Difference", "p", "p adjusted"], rows)


def _interval(
    score: Mapping[str, Any], digits: int, say: Callable[[object, int], str] = number_format.reward_text
) -> Html:
    """A mean, the ends of its interval, and over how many rows and how that was made."""
    ends = f"{number_format.reward_text(score.get('low'), digits)} to {number_format.reward_text(score.get('high'), digits)}"
    rows = f"n = {number_format.count(score.get('n'))}{in_groups(score)}"
    made = ", ".join([rows, *filter(None, [score.get("method")])])
    return join(say(score.get("mean"), digits), el("small", ends), el("small", made))
