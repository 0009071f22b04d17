"""What a version or a proposal rests on: the gate's verdict, measured numbers, the run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from whet.report.layout import facts, note
from whet.report.markup import Child, Html, clipped, el
from whet.report.record import number
from whet.report.svg import Scale, line, marker, padded, svg
from whet.server.pages.parts import link, path_to

WIDTH = 400
LONGEST = 2_000
MOST_DEEP = 4
MOST_PARTS = 60


def evidence_section(evidence: Mapping[str, Any] | None, run: Mapping[str, Any] | None) -> Html | None:
    """The section of evidence; None where nothing is recorded."""
    if not evidence and not run:
        return None
    gate = evidence.get("gate") if evidence else None
    rest = {k: v for k, v in (evidence or {}).items() if k != "gate"}
    return el(
        "section",
        el("h2", "Evidence"),
        gate_card(gate) if isinstance(gate, Mapping) else None,
        tree(rest) if rest else None,
        _run(run) if run else None,
        id="evidence",
    )


def gate_card(gate: Mapping[str, Any]) -> Html:
    """The gate's verdict: the sentence, and the measured difference with its interval."""
    passed = gate.get("promoted", gate.get("passed"))
    word = {True: "The gate lets it pass", False: "The gate does not let it pass"}.get(passed, "The gate")
    kind = {True: " good", False: " bad"}.get(passed, "")
    reason = gate.get("reason")
    shown = {"promoted", "passed", "reason", "difference", "low", "high"}
    rest = {key: value for key, value in gate.items() if key not in shown}
    return el(
        "div",
        el("h3", word),
        el("p", clipped(str(reason), LONGEST)) if reason else None,
        difference(gate),
        tree(rest) if rest else None,
        class_=f"card{kind}",
    )


def difference(found: Mapping[str, Any]) -> Html | None:
    """A difference with the ends of its interval beside zero."""
    mean, low, high = (number(found.get(key)) for key in ("difference", "low", "high"))
    if mean is None or low is None or high is None:
        return None
    left, right = padded([low, high, 0.0], 0.08)
    x = Scale(left, right, 10, WIDTH - 10)
    told = f"{mean:+.3f}, 95 % interval {low:+.3f} to {high:+.3f}"
    picture = svg(
        WIDTH,
        40,
        "Difference on the held-out examples",
        told,
        line((x(0), 4), (x(0), 36), "zero"),
        line((x(low), 20), (x(high), 20), "whisker best"),
        line((x(low), 14), (x(low), 26), "whisker best"),
        line((x(high), 14), (x(high), 26), "whisker best"),
        marker("circle", x(mean), 20, "mark best", 6),
        name="gate",
    )
    return el("figure", el("figcaption", f"New minus old: {told}"), picture)


def _run(run: Mapping[str, Any]) -> Html:
    name = run.get("name", run.get("run"))
    where = note("Run ", link(str(name), path_to("runs", str(name)))) if isinstance(name, str) else None
    return el("div", el("h3", "Where it comes from"), where, tree(run))


def tree(value: Mapping[str, Any], deep: int = 0) -> Html:
    """JSON values as names with their values."""
    pairs: list[tuple[str, Child]] = []
    for key, one in list(value.items())[:MOST_PARTS]:
        pairs.append((str(key).replace("_", " "), _leaf(one, deep)))
    return facts(pairs)


def _leaf(value: Any, deep: int) -> Child:
    if isinstance(value, Mapping):
        return tree(value, deep + 1) if deep < MOST_DEEP else "…"
    if isinstance(value, list | tuple):
        return (
            el("ul", [el("li", _leaf(one, deep + 1)) for one in value[:MOST_PARTS]])
            if deep < MOST_DEEP
            else "…"
        )
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "–"}[value]
    return f"{value:.6g}" if isinstance(value, float) else clipped(str(value), LONGEST)
