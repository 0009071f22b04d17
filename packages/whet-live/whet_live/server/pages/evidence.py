"""The evidence for a version or a proposal: its instructions, the gate's verdict, measured numbers, the run, answers before and
after."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from whet.errors import show_share
from whet.prompt import Effect, Instruction
from whet.reporting import (
    Child,
    Html,
    IntervalRow,
    clip,
    details,
    el,
    facts,
    finite_number,
    interval_plot,
    note,
    number_format,
    prompt_text,
    prose,
    svg,
)
from whet_live.registry import GIVEN, PROBES, Proposal
from whet_live.server.pages import ui
from whet_live.server.pages.feedback import inputs_of, text_box
from whet_live.server.request_context import RequestContext

LONGEST = 2_000
MOST_DEEP = 4
MOST_PARTS = 60
MOST_PROBES = 20
LONG_ID = 36
WIDTH, HEIGHT = 144, 24
MOST_QUOTES = 50
LONGEST_QUOTE = 2_000


def evidence_section(evidence: Mapping[str, object] | None, run: Mapping[str, Any] | None) -> Html | None:
    """The section of evidence; None where nothing is recorded."""
    if not evidence and not run:
        return None
    fields = dict(evidence or {})
    sent, gate = fields.pop(GIVEN, None), fields.pop("gate", None)
    fields.pop(PROBES, None)
    requirements = _requirements_in(fields.get("requirements"))
    if requirements:
        del fields["requirements"]
    if not fields.get("left_out"):
        fields.pop("left_out", None)
    if _is_experiment(fields.get("experiment")):  # its page shows the verdict with its pictures
        fields.pop("verdict", None)
    return ui.section(
        "Evidence",
        isinstance(gate, Mapping) and gate_card(gate),
        requirements
        and el("ol", [_requirement(one) for one in requirements[:MOST_PARTS]], class_="instructions"),
        fields and tree(fields),
        isinstance(sent, Mapping) and _show_sent_evidence(sent),
        run and _run(run),
        id="evidence",
    )


def _show_sent_evidence(sent: Mapping[str, object]) -> Html:
    """Evidence that somebody sent: no part of it can be mistaken for a measurement of this server."""
    evidence, by = sent.get("evidence"), clip(str(sent.get("by", "nobody named")), 200)
    shown = isinstance(evidence, Mapping) and tree(evidence)
    return el(
        "div", el("h3", "As given by ", by), note("Nothing of this was measured here."), shown, class_="card"
    )


def _is_experiment(value: Any) -> bool:
    """Whether this is the id of an experiment."""
    return isinstance(value, str) and len(value) == LONG_ID


def _requirements_in(value: Any) -> list[Mapping[str, object]]:
    """The requirements, if this is what the learner writes about them: evidence may be anything."""
    rows = value if isinstance(value, list) else []
    keys = {"text", "sources", "needed", "against"}
    good = [row for row in rows if isinstance(row, Mapping) and keys <= row.keys()]
    return good if len(good) == len(rows) and all(isinstance(r["against"], Mapping) for r in good) else []


def _requirement(one: Mapping[str, Any]) -> Html:
    """The number of people who wanted it, and of those who wanted the contrary."""
    needed = (
        f"{_sources(one.get('confirmed') or one['sources'])}, {finite_number(one['needed']) or 0:g} needed"
    )
    return el(
        "li",
        prose(clip(str(one["text"]), LONGEST), class_="text"),
        el("div", el("span", needed), class_="facts-line"),
        [against(str(text), _sources(n)) for text, n in one["against"].items()],
        class_="instruction",
    )


def against(text: str, sources: str) -> Html:
    """Demands of others that contradict a demand, and their number."""
    return prose(el("b", "Against it: "), clip(text, LONGEST), f" ({sources})")


def _sources(count: object) -> str:
    """Say the number of independent sources; a reviewer's weight may be a fraction of one source."""
    sources = finite_number(count) or 0.0
    return f"{sources:g} independent source{'' if sources == 1 else 's'}"


def gate_card(gate: Mapping[str, Any]) -> Html:
    """The gate's verdict: the sentence, and the measured difference with its interval."""
    passed = gate.get("promoted", gate.get("passed"))
    word = {True: "The gate lets it pass", False: "The gate does not let it pass"}.get(passed, "The gate")
    kind, reason = {True: " good", False: " bad"}.get(passed, ""), gate.get("reason")
    shown = {"promoted", "passed", "reason", "difference", "low", "high", "method"}
    rest = {key: value for key, value in gate.items() if key not in shown}
    sentence = reason and el("p", clip(str(reason), LONGEST))
    return el("div", el("h3", word), sentence, _difference(gate), rest and tree(rest), class_=f"card{kind}")


def _difference(estimate: Mapping[str, Any]) -> Html | None:
    """A difference with the ends of its interval beside zero."""
    mean, low, high = (finite_number(estimate.get(key)) for key in ("difference", "low", "high"))
    if mean is None or low is None or high is None:
        return None
    method = f" ({clip(estimate['method'], 60)})" if isinstance(estimate.get("method"), str) else ""
    shown, *ends = (number_format.difference(value, 3) for value in (mean, low, high))
    text = f"{shown}, 95% interval{method} {' to '.join(ends)}"
    row = IntervalRow("New minus old", mean, low, high, text)
    return interval_plot("Difference on the held-out examples", [row], "gate", 0.0)


def _run(run: Mapping[str, object]) -> Html:
    name = run.get("name", run.get("run"))
    where = isinstance(name, str) and note("Run ", ui.link(name, ui.path_to("runs", name)))
    shown = {key: value for key, value in run.items() if (key, value) != ("simulated", False)}
    return el("div", el("h3", "Where it comes from"), where, tree(shown))


def tree(value: Mapping[str, Any], deep: int = 0) -> Html:
    """JSON values as names with their values."""
    pairs: list[tuple[str, Child]] = []
    for key, one in list(value.items())[:MOST_PARTS]:
        known = key == "experiment" and _is_experiment(one)
        shown = ui.link(one, ui.path_to("experiments", one)) if known else _leaf(one, deep)
        pairs.append((str(key).replace("_", " "), shown))
    return facts(pairs)


def _leaf(value: Any, deep: int) -> Child:
    if isinstance(value, Mapping | list | tuple) and deep >= MOST_DEEP:
        return "…"
    if isinstance(value, Mapping):
        return tree(value, deep + 1)
    if isinstance(value, list | tuple):
        return el("ul", [el("li", _leaf(one, deep + 1)) for one in value[:MOST_PARTS]])
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "–"}[value]
    return f"{value:.6g}" if isinstance(value, float) else clip(str(value), LONGEST)


def probes_section(call: RequestContext, proposal: Proposal) -> Html:
    """Answers to a few fixed questions under the version that stands and under the proposed one, side by side; where a
    proposal has none, that and why.

    Questions out of traffic are read where they lie: when their user's data was deleted, the answers are not shown either.
    """
    title, probes = "Answers before and after", (proposal.evidence or {}).get(PROBES)
    rows = [shown for row in _probe_rows(probes) if (shown := _probe(call, row, proposal)) is not None]
    if not rows or not isinstance(probes, Mapping):
        return ui.section(title, note(_why_no_probes(proposal, probes)), id="probes")
    summary = el(
        "p",
        f"{number_format.plural(len(rows), 'fixed question')} from {probes.get('of', 'the traffic')}, answered by ",
        clip(str(probes.get("model") or "an unnamed model"), 200),
        ". ",
        probes.get("simulated")
        and [ui.tag("simulated", "bad"), " The model is a simulator: these are no answers of a real one."],
    )
    return ui.section(title, summary, el("ol", rows, class_="probes"), id="probes")


def _probe_rows(probes: object) -> list[Mapping[str, object]]:
    rows = probes.get("rows") if isinstance(probes, Mapping) else None
    return [row for row in rows if isinstance(row, Mapping)][:MOST_PROBES] if isinstance(rows, list) else []


def _why_no_probes(proposal: Proposal, probes: object) -> str:
    reason = probes.get("reason") if isinstance(probes, Mapping) else None
    if reason is not None:
        return f"There are none. {reason}"
    if _probe_rows(probes):
        return (
            "There are none any more: the questions were deleted with the data of the users who asked them."
        )
    if proposal.target is not None:
        return "There are none: a request to move a label brings no answers. Look at the version's traffic."
    return "There are none: only the learner brings answers, when it has a task (--gate) or a model (--lm)."


def _probe(call: RequestContext, row: Mapping[str, object], proposal: Proposal) -> Html | None:
    """One question with both answers; None when the question is gone."""
    about, inputs = row.get("about"), row.get("inputs")
    if isinstance(about, str):
        stored = call.state.live.traffic.inference(about)
        inputs = None if stored is None else stored.inference.inputs
    if not isinstance(inputs, Mapping):
        return None
    before, after = (str(row.get(key, "")) for key in ("before", "after"))
    answers = [text_box(f"Version {proposal.base}", before, level=3), text_box("As proposed", after, level=3)]
    if before == after:
        answers = [text_box(f"Version {proposal.base} and as proposed: the same answer", before, level=3)]
    shown = el("div", answers, class_="duel" if len(answers) > 1 else None)
    return el("li", inputs_of(inputs, level=3), shown)


def instruction(item: Instruction, name: str, *more: Child, trial: Mapping[str, Any] | None = None) -> Html:
    """One instruction as a list item. `name` makes its pictures' ids unique on the page; `trial` is the gate's verdict on the
    prompt without it."""
    text = prose(prompt_text(item.text), class_="text")
    return el("li", text, facts_line(item, name, trial), support(item), *more, class_="instruction")


def facts_line(item: Instruction, name: str, trial: Mapping[str, Any] | None = None) -> Html:
    """Id, sources, cost and effect in one line."""
    evidence = (
        number_format.plural(len(item.evidence), "row") + " of evidence"
        if item.evidence
        else "no evidence recorded"
    )
    return el(
        "div",
        el("span", el("b", item.id), f" · by {item.author or 'nobody named'}"),
        item.sources > 0 and el("span", number_format.plural(item.sources, "independent source")),
        el("span", evidence),
        item.tokens > 0 and el("span", number_format.plural(item.tokens, "token") + " in every call"),
        (item.effect is not None or trial is None) and effect(item.effect, name),
        trial is not None and _trial(trial),
        class_="facts-line",
    )


def _trial(gate: Mapping[str, Any]) -> Html:
    """The gate's measurement without an instruction."""
    difference, low, high = (
        number_format.difference(finite_number(gate.get(key)) or 0.0, 3)
        for key in ("difference", "low", "high")
    )
    text = (
        f"without it: {gate.get('losses')} worse, {gate.get('wins')} better of {gate.get('n')} examples, "
        f"{difference} [{low} to {high}]"
    )
    return el("span", text, " ", ui.tag("measured", "good"))


def effect(estimate: Effect | None, name: str) -> Html:
    """By how much the instruction made violations rarer, with its interval, in words and as a picture."""
    if estimate is None:
        return el("span", "effect not measured")
    before, after = (_share(*rate) for rate in (estimate.before, estimate.after))
    difference, low, high = (
        number_format.difference(v, 2) for v in (estimate.difference, estimate.low, estimate.high)
    )
    text = f"violations {before} → {after}; rarer by {difference} [{low} to {high}]"
    x = svg.Scale(*svg.pad_range([estimate.low, estimate.high, 0.0], 0.12), 4, WIDTH - 4)
    middle = HEIGHT / 2
    picture = svg.svg(
        WIDTH,
        HEIGHT,
        "Measured effect",
        f"{text}; 95% interval (Newcombe)",
        svg.straight_line((x(0), 2), (x(0), HEIGHT - 2), "effect-zero"),
        svg.straight_line((x(estimate.low), middle), (x(estimate.high), middle), "effect-line"),
        svg.marker("circle", x(estimate.difference), middle, "effect-mark", 4.5),
        name=name,
    )
    sure = ui.tag("measured", "good") if estimate.low > 0 else ui.tag("not sure")
    if estimate.high < 0:
        sure = ui.tag("harmful", "bad")
    return el("span", picture, text, sure, class_="effect")


def _share(count: int, of: int) -> str:
    return f"{count}/{of}" if not of else f"{count}/{of} ({show_share(count / of)})"


def support(item: Instruction) -> Html | None:
    """The critiques behind an instruction, quoted, with their sources."""
    if not item.critiques and not item.evidence:
        return None
    counts = (len(item.critiques), "complaint"), (len(item.evidence), "row")
    quotes = ui.quotes(clip(text, LONGEST_QUOTE) for text in item.critiques[:MOST_QUOTES])
    return details(
        "Rests on " + " from ".join(number_format.plural(n, word) for n, word in counts if n),
        bool(item.critiques) and quotes,
        bool(item.evidence) and rows_line(item.evidence),
    )


def rows_line(keys: Iterable[str], most: int = MOST_QUOTES) -> Html:
    """Links to rows of feedback."""
    keys = list(keys)
    left = len(keys) - most
    links = [[", " if i else "", ui.link(key, ui.path_to("about", key))] for i, key in enumerate(keys[:most])]
    return el("p", "Rows: ", links, left > 0 and f" and {left} more", class_="quiet")
