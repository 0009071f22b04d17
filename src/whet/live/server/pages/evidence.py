"""What a version or a proposal rests on: the gate's verdict, measured numbers, the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from whet.live.registry.proposals import GIVEN, PROBES
from whet.live.server.pages.parts import link, path_to
from whet.reporting.layout import facts, note
from whet.reporting.markup import Child, Html, clipped, el
from whet.reporting.record import number
from whet.reporting.svg import Scale, line, marker, padded, svg

WIDTH = 400
LONGEST = 2_000
MOST_DEEP = 4
MOST_PARTS = 60
LONG_ID = 36


def evidence_section(evidence: Mapping[str, Any] | None, run: Mapping[str, Any] | None) -> Html | None:
    """The section of evidence; None where nothing is recorded."""
    if not evidence and not run:
        return None
    fields = dict(evidence or {})
    sent = fields.pop(GIVEN, None)
    fields.pop(PROBES, None)
    gate = fields.pop("gate", None)
    demands = _demands_in(fields.get("requirements"))
    if demands:
        del fields["requirements"]
    if not fields.get("left_out"):
        fields.pop("left_out", None)
    if _is_experiment(fields.get("experiment")):  # its page shows the verdict with its pictures
        fields.pop("verdict", None)
    return el(
        "section",
        el("h2", "Evidence"),
        gate_card(gate) if isinstance(gate, Mapping) else None,
        _demands(demands) if demands else None,
        tree(fields) if fields else None,
        _sent(sent) if isinstance(sent, Mapping) else None,
        _run(run) if run else None,
        id="evidence",
    )


def _sent(sent: Mapping[str, Any]) -> Html:
    """What somebody sent as evidence: no part of it can pass for what was measured here."""
    evidence = sent.get("evidence")
    return el(
        "div",
        el("h3", "As given by ", clipped(str(sent.get("by", "nobody named")), 200)),
        note("Nothing of this was measured here."),
        tree(evidence) if isinstance(evidence, Mapping) else None,
        class_="card",
    )


def _is_experiment(value: Any) -> bool:
    """Whether this is the id of an experiment."""
    return isinstance(value, str) and len(value) == LONG_ID


def _demands_in(value: Any) -> list[Mapping[str, Any]]:
    """The demands, if this is what the learner writes about them: evidence may be anything."""
    rows = value if isinstance(value, list) else []
    keys = {"text", "sources", "needed", "against"}
    good = [row for row in rows if isinstance(row, Mapping) and keys <= row.keys()]
    good = [row for row in good if isinstance(row["against"], Mapping)]
    return good if len(good) == len(rows) else []


def _demands(demands: Sequence[Mapping[str, Any]]) -> Html:
    """What people wanted: how many of them, and how many wanted the contrary."""
    items = []
    for one in demands[:MOST_PARTS]:
        against = [
            el("p", el("b", "Against it: "), clipped(str(text), LONGEST), f" ({_sources(n)})", dir="auto")
            for text, n in one["against"].items()
        ]
        quote = el("p", clipped(str(one["text"]), LONGEST), class_="text", dir="auto")
        count = el(
            "span",
            f"{_sources(one.get('confirmed') or one['sources'])}, {number(one['needed']) or 0:g} needed",
        )
        items.append(el("li", quote, el("div", count, class_="facts-line"), against, class_="instruction"))
    return el("ol", items, class_="instructions")


def _sources(count: Any) -> str:
    """How many independent sources; a reviewer's weight may be a fraction of one."""
    sources = number(count) or 0.0
    return f"{sources:g} independent source{'' if sources == 1 else 's'}"


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


def difference(estimate: Mapping[str, Any]) -> Html | None:
    """A difference with the ends of its interval beside zero."""
    mean, low, high = (number(estimate.get(key)) for key in ("difference", "low", "high"))
    if mean is None or low is None or high is None:
        return None
    left, right = padded([low, high, 0.0], 0.08)
    x = Scale(left, right, 10, WIDTH - 10)
    text = f"{mean:+.3f}, 95 % interval {low:+.3f} to {high:+.3f}"
    picture = svg(
        WIDTH,
        40,
        "Difference on the held-out examples",
        text,
        line((x(0), 4), (x(0), 36), "zero"),
        line((x(low), 20), (x(high), 20), "whisker best"),
        line((x(low), 14), (x(low), 26), "whisker best"),
        line((x(high), 14), (x(high), 26), "whisker best"),
        marker("circle", x(mean), 20, "mark best", 6),
        name="gate",
    )
    return el("figure", el("figcaption", f"New minus old: {text}"), picture)


def _run(run: Mapping[str, Any]) -> Html:
    name = run.get("name", run.get("run"))
    where = note("Run ", link(str(name), path_to("runs", str(name)))) if isinstance(name, str) else None
    shown = {key: value for key, value in run.items() if (key, value) != ("simulated", False)}
    return el("div", el("h3", "Where it comes from"), where, tree(shown))


def tree(value: Mapping[str, Any], deep: int = 0) -> Html:
    """JSON values as names with their values."""
    pairs: list[tuple[str, Child]] = []
    for key, one in list(value.items())[:MOST_PARTS]:
        known = key == "experiment" and _is_experiment(one)
        shown = link(one, path_to("experiments", one)) if known else _leaf(one, deep)
        pairs.append((str(key).replace("_", " "), shown))
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
