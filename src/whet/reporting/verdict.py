"""The top of the page: what was run, how it ended, the key figures, the warnings."""

from __future__ import annotations

from collections.abc import Mapping

import whet.reporting.number_format as number_format
from whet.engine.sealed_power import describe_power
from whet.engine.usage_sums import PARTS, parts_of
from whet.reporting.curves import intervals
from whet.reporting.layout import facts, note
from whet.reporting.markup import Child, Html, clip, el, join
from whet.reporting.record import Record, finite_number, rows_of, side, usage_in

LONGEST_TITLE = 160
_TICK = "M5 12.5l4.5 4.5L19 7.5"
_BAR = "M6 12h12"
_PAUSE = "M9 6v12M15 6v12"
_DOTS = "M6 12h.01M12 12h.01M18 12h.01"


def header(record: Record) -> Html:
    """Name of the task, method and seed."""
    task = str(record.result.get("task") or record.header.get("task") or record.name)
    method, seed = (record.result.get(k, record.header.get(k)) for k in ("method", "seed"))
    words = [f"{method}, seed {seed}" if method is not None else "no header in the journal"]
    if record.finished:
        words.append(f"ended by {record.result.get('ended_by')}")
    line = clip(" · ".join(words), LONGEST_TITLE)
    return el(
        "header",
        el("p", "whet report", class_="brand"),
        el("h1", clip(task, LONGEST_TITLE)),
        el("p", line, class_="run-line"),
    )


def simulation_banner(record: Record) -> Html | None:
    """The banner of a run that no language model answered."""
    return simulated_banner() if record.simulated else None


def simulated_banner() -> Html:
    """A note that no language model answered."""
    text = (
        "A scripted model answered in this run. The figures show that whet works, but nothing "
        "about real models."
    )
    return el("aside", el("strong", "SIMULATED"), " ", text, class_="banner", role="note")


def verdict_section(record: Record) -> Html:
    """The outcome in one sentence, the intervals behind it, the key figures and the warnings."""
    kind, title, icon = _outcome(record)
    badge = el("svg", el("path", d=icon), viewBox="0 0 24 24", aria_hidden="true")
    return el(
        "section",
        el("h2", badge, title, id="verdict-title"),
        el("p", _sentence(record), class_="reason"),
        intervals(record),
        facts(key_figures(record), "figures"),
        _warnings(record),
        id="verdict",
        class_=kind,
        aria_labelledby="verdict-title",
    )


def _outcome(record: Record) -> tuple[str, str, str]:
    """The class of the verdict, its title and its icon."""
    if record.finished and side(record.result, "improvement").get("promoted"):
        return "promoted", "Promoted, with a doubt" if record.rows_seen else "Promoted", _TICK
    if record.finished:
        return "kept", "Not promoted", _BAR
    if not record.result:
        return "paused", "Not finished", _DOTS
    if record.result.get("status") == "stopped":
        return "paused", "Stopped before the sealed test", _PAUSE
    return "paused", "Not tested", _PAUSE


def _sentence(record: Record) -> str:
    reason = str(side(record.result, "improvement").get("reason", ""))
    if record.finished:
        _, _, rest = reason.partition("romoted: ")
        return (rest[:1].upper() + rest[1:]) or reason
    if record.result.get("status") == "stopped":
        return f"{record.result.get('ended_by', '')} To continue, run the same command again.".strip()
    if record.result:
        _, _, rest = reason.partition("romoted: ")
        return (rest[:1].upper() + rest[1:]) or reason
    return (
        "This report was written before the run ended. The search is still running or was "
        "interrupted. The sealed test has not been made, so no prompt is promoted. The same command "
        "continues from here."
    )


def key_figures(record: Record) -> list[tuple[str, Child]]:
    """Validation, calls, cost and time, by name."""
    digits, result = record.digits, record.result
    baseline, best = side(result, "baseline"), side(result, "best")
    pairs: list[tuple[str, Child]] = []
    before, after = side(baseline, "validation"), side(best, "validation")
    if record.finished and before and after:
        pairs.append(("Validation", _validation(record, before, after)))
    for name, one in (("Sealed test, baseline", baseline), ("Sealed test, best", best)):
        if (test := side(one, "test")) and test.get("mean") is None:
            pairs.append((name, f"no answer to any of {number_format.plural(round(test['of']), 'row')}"))
    if added := side(result, "more"):
        old, new = (side(added, name).get("mean") for name in ("baseline", "best"))
        pairs.append(("Added rows", _from_to(old, new, digits, added.get("rows"))))
    if opinion := side(result, "second_opinion"):
        old, new = (side(opinion, name).get("mean") for name in ("baseline", "best"))
        pairs.append(("Second opinion", _from_to(old, new, max(digits, 2), opinion.get("n"))))
    if not record.finished and record.start is not None and record.incumbent is not None:
        now = record.incumbent
        pairs.append(
            ("Validation so far", _from_to(record.start.validation, now.validation, digits, now.validation_n))
        )
    usage = usage_in(result)
    calls = sum(side(usage, "calls").values()) if usage else sum(row.calls for row in record.spending)
    cost = usage.get("cost_usd") if usage else sum(row.cost for row in record.spending)
    cached = sum(row.cached for row in record.spending)
    beside = {PARTS[name]: part for name, part in parts_of(usage).items() if name in PARTS}
    parts = [_small(f"{sum(side(part, 'calls').values()):,} of them {name}") for name, part in beside.items()]
    more = _small(f"{cached:,} more from the cache") if cached else None
    pairs.append(("Model calls", join(f"{calls:,}", parts, more)))
    remedy = _small("set prices in task.yaml") if record.unpriced else None
    remedy = _small("estimated") if usage.get("estimated") and not record.unpriced else remedy
    if cost and usage.get("provider_tools"):
        remedy = join(remedy, _small("without the provider's own tools"))
    pairs.append(
        ("Cost", join(number_format.price(cost, bool(record.unpriced), bool(record.priceless)), remedy))
    )
    with_them = _small(f"with {' and '.join(beside)}") if beside else None
    pairs.append(("Time", join(number_format.duration(usage.get("seconds", record.seconds)), with_them)))
    if (trained := finite_number(usage.get("training_seconds"))) is not None:
        pairs.append(("Training", number_format.duration(trained)))
    if record.candidates:
        pairs.append(("Candidates", f"{len(record.candidates):,}"))
    return pairs


def _validation(record: Record, before: Mapping[str, object], after: Mapping[str, object]) -> Html:
    """Both means on validation, over how many of the task's rows, and why not over all."""
    rows = side(side(record.result, "plan"), "validation")
    used, of = rows.get("rows"), rows.get("of")
    shown = _from_to(before.get("mean"), after.get("mean"), record.digits, None)
    if isinstance(used, int) and isinstance(of, int) and used < of and after.get("n") == used:
        return join(shown, _small(f"{used:,} of {of:,} validation rows: the limits pay for no more"))
    return join(shown, _small(rows_of(after)))


def _from_to(before: object, after: object, digits: int, n: object) -> Html:
    arrow, best = el("span", "→", class_="arrow"), el("b", number_format.reward_text(after, digits))
    shown = el("span", number_format.reward_text(before, digits), " ", arrow, " ", best)
    return join(
        shown, None if n is None else _small("1 example" if n == 1 else f"{number_format.count(n)} examples")
    )


def _small(text: str) -> Html:
    """The text below a figure, or beside it if there is no style sheet."""
    return join(" ", el("small", text))


def _warnings(record: Record) -> Html | None:
    warnings = record.result.get("warnings") or ()
    if not warnings:
        return None
    items = [el("li", str(text)) for text in warnings]
    title = "Warning" if len(items) == 1 else f"{len(items)} warnings"
    return el("aside", el("h3", title), el("ul", items), class_="warnings", aria_label="Warnings")


def _control_opening(record: Record, times: int) -> str:
    """Say which opening the run's control was, if it came later."""
    later = side(side(record.result, "control"), "improvement").get("opening")
    return f", and its control opening {later:,}" if isinstance(later, int) and later > times else ""


def _power(promotion: Mapping[str, object]) -> str:
    """The power of this opening, as the plan gave it; empty for the plan of an older run."""
    known = {name: finite_number(promotion.get(name)) for name in ("gain", "gain_some_worse", "scale")}
    numbers = all(isinstance(promotion.get(name), int) for name in ("opening", "rows"))
    if not numbers or finite_number(promotion.get("alpha")) is None or known["scale"] is None:
        return ""
    return describe_power({**promotion, **known})


def openings(record: Record) -> Html | None:
    """Say the number of openings of the sealed test split."""
    times = record.result.get("test_openings")
    if not isinstance(times, int):
        return None
    power = _power(side(side(record.result, "plan"), "promotion"))
    return note(
        f"{'This run was the first opening' if times == 1 else f'This was opening {times:,}'} of "
        f"these test rows{_control_opening(record, times)}. Each further opening makes a lucky result "
        "more likely, so the test uses a smaller alpha."
        + (f" {power[0].upper()}{power[1:]}." if power else "")
    )
