"""A comparison of methods as files for people and programs: comparison.html, .csv, .md, .tex and .json in its folder."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

import orjson

import whet.reporting.number_format as number_format
from whet._util.storable import write_whole
from whet.engine.comparison_json import ComparisonJSON, MethodSummaryJSON
from whet.engine.result_json import PairJSON, RunJSON, show_gaps
from whet.engine.usage_sums import has_no_price
from whet.errors import StorageError, UsageError
from whet.reporting.comparison_sentences import FAMILIES, Methods, all_pairs, sentences, warnings_of
from whet.reporting.cost import describe_price, dollars_missing
from whet.reporting.layout import Section, details, facts, note, table
from whet.reporting.markup import Child, Html, clip, el, join
from whet.reporting.page import document
from whet.reporting.record import Record, finite_number, read_run, side
from whet.reporting.svg import (
    XY,
    Frame,
    IntervalRow,
    Scale,
    interval_plot,
    label,
    legend,
    marker,
    pad_range,
    path,
    stairs,
    straight_line,
    svg,
)
from whet.reporting.verdict import simulated_banner
from whet.stats.intervals import show_p

NAME = "comparison"
SIZES = (("wide", 880, 380), ("narrow", 360, 300))
SERIES = 8
"""Colours of the curves; with more methods they begin anew, with another mark."""
NO_ANSWER = "no answer"
"""The text for the mean of a test of which no row was answered."""
MARKS = ("circle", "square", "diamond")
OVERLAP = ("", " over-1", " over-2", " over-3")
"""Classes of curves that end at the height of an earlier one: dashes let the ones below show."""


def write_comparison(folder: Path, result: ComparisonJSON) -> None:
    """Write the comparison of `result`, as `whet.compare` returns it, into its folder.

    The page loads nothing. Raises StorageError where the disk refuses a file; an older one then stays as it was.
    """
    methods = best_first(result["methods"])
    texts = {
        "html": render_comparison(result, methods, folder),
        "csv": _csv(result),
        "md": _markdown(result, methods),
        "tex": _latex(result, methods),
        "json": orjson.dumps(dict(result), option=orjson.OPT_INDENT_2).decode(),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for kind, text in texts.items():
        file = folder / f"{NAME}.{kind}"
        try:
            write_whole(file, text.encode())
        except OSError as error:
            raise StorageError(f"{file}: the comparison could not be written: {error}.") from error


def best_first(methods: Methods) -> list[MethodSummaryJSON]:
    """The methods by their mean on the sealed test; those that were not tested come last."""
    return sorted(methods, key=lambda row: (row["test_mean"] is None, -(row["test_mean"] or 0.0)))


def render_comparison(result: ComparisonJSON, methods: Methods, folder: Path) -> str:
    """The page as text."""
    runs = result["runs"]
    shown = [
        section
        for section in (
            _methods_section(result, methods),
            _pairs_section(result),
            _curves_section(runs, methods),
            _transfer_section(result, methods),
            _runs_section(runs, folder),
            _plan_section(runs, methods),
            _reproduction_section(result),
        )
        if section is not None
    ]
    seeds = max((row["runs"] for row in methods), default=0)
    what = (
        f"{number_format.plural(len(methods), 'method')}, {number_format.plural(seeds, 'seed')} each, on "
        f"{number_format.plural(_rows(runs), 'sealed test row')}"
    )
    head = el(
        "header",
        el("p", "whet comparison", class_="brand"),
        el("h1", clip(str(result["task"]), 160)),
        el("p", what, class_="run-line"),
    )
    links = [el("li", el("a", section.title, href=f"#{section.anchor}")) for section in shown]
    contents = el("nav", el("ul", links), aria_label="Contents")
    body = (
        head,
        simulated_banner() if any(run.get("simulated") for run in runs) else None,
        el("main", _verdict(result, methods), contents, [section.html() for section in shown]),
        el(
            "footer",
            el(
                "p",
                "whet wrote this page from the runs of the comparison. The page loads and sends nothing.",
            ),
        ),
    )
    return document(f"{result['task']}: whet comparison", *body)


def _rows(runs: Sequence[RunJSON]) -> int:
    return max((int(side(side(run, "best"), "test").get("n") or 0) for run in runs), default=0)


def _verdict(result: ComparisonJSON, methods: Methods) -> Html:
    """The sentences about the pairs, the means with their intervals, and the usage of all runs."""
    tested = filter(None, (_mean_row(row, i) for i, row in enumerate(methods)))
    rows = [*_baseline_rows(result["runs"]), *tested]
    usage = [side(run, "usage") for run in result["runs"]]
    trials = [side(run, "transfer") for run in (*result["runs"], result)]
    moved = [used for trial in trials if (used := side(trial, "usage"))]
    beside = sum(sum(side(one, "calls").values()) for one in moved)
    usage += moved
    calls = sum(sum(side(one, "calls").values()) for one in usage)
    unpriced = any(row["price_unknown"] for row in methods) or any(one.get("price_unknown") for one in moved)
    spent = sum(finite_number(one.get("cost_usd")) or 0.0 for one in usage)
    seconds = sum(finite_number(one.get("seconds")) or 0.0 for one in usage)
    figures: list[tuple[str, Child]] = [
        ("Runs", f"{len(result['runs']):,}"),
        ("Promoted", f"{sum(row['promoted'] for row in methods):,}"),
        (
            "Model calls",
            join(f"{calls:,}", el("small", f" {beside:,} of them to the other model") if moved else None),
        ),
        (
            "Cost",
            number_format.NOT_PRICED
            if all(map(has_no_price, usage))
            else number_format.price(spent, unpriced),
        ),
        ("Time", number_format.duration(seconds)),
    ]
    caption = "Mean reward on the sealed test, 95% interval"
    pictures = [interval_plot(caption, rows, "interval-methods")] if rows else [note("No run was tested.")]
    if gaps := _gap_rows(result):
        pictures.append(interval_plot("Differences on the same rows", gaps, "interval-pairs", 0.0))
    return el(
        "section",
        el("h2", "Which method is better here", id="verdict-title"),
        [el("p", sentence, class_="reason") for sentence in sentences(result)],
        el("div", pictures, class_="pair"),
        facts(figures, "figures"),
        _warnings(result["runs"]),
        id="verdict",
        class_="kept",
        aria_labelledby="verdict-title",
    )


def _mean_row(row: MethodSummaryJSON, index: int) -> IntervalRow | None:
    """The mean of a method on the sealed test; None where nothing was tested."""
    mean, low, high = row["test_mean"], row["test_low"], row["test_high"]
    if mean is None or low is None or high is None:
        return None
    return IntervalRow(
        row["method"], mean, low, high, _interval(mean, low, high), MARKS[0], f"series-{index % SERIES}"
    )


def _baseline_rows(runs: Sequence[RunJSON]) -> list[IntervalRow]:
    """The start prompt, which all runs have in common, as the first run measured it that did."""
    tests = [side(side(run, "baseline"), "test") for run in runs]
    for test in tests:
        mean, low, high = (finite_number(test.get(end)) for end in ("mean", "low", "high"))
        if mean is not None and low is not None and high is not None:
            return [
                IntervalRow("Start prompt", mean, low, high, _interval(mean, low, high), "square", "baseline")
            ]
    return []


def _gap_rows(result: ComparisonJSON) -> list[IntervalRow]:
    return [
        IntervalRow(
            f"{pair['a']} − {pair['b']}",
            difference,
            pair["low"],
            pair["high"],
            f"{number_format.difference(pair['difference'], 3)}  [{number_format.reward_text(pair['low'], 3)} to "
            f"{number_format.reward_text(pair['high'], 3)}]",
        )
        for pair in all_pairs(result)
        if pair["n"] and (difference := pair["difference"]) is not None
    ]


def _interval(mean: float, low: float, high: float) -> str:
    ends = f"{number_format.reward_text(low, 3)} to {number_format.reward_text(high, 3)}"
    return f"{number_format.reward_text(mean, 3)}  [{ends}]"


def _warnings(runs: Sequence[RunJSON]) -> Html | None:
    """The warnings of all runs, each once, with the runs that have it."""
    if not (texts := warnings_of(runs)):
        return None
    items = [el("li", text) for text in texts]
    title = "Warning" if len(items) == 1 else f"{len(items)} warnings"
    return el("aside", el("h3", title), el("ul", items), class_="warnings", aria_label="Warnings")


HEAD = (
    "Method", "Runs", "Test mean", "95% interval", "Min", "Max", "Start prompt", "Promoted", "Calls a run",
    "USD a run", "Perplexity",
)  # fmt: skip


def _mean_or_reason(row: MethodSummaryJSON) -> str:
    """The mean on the sealed test of a method, or why there is none."""
    if row["test_mean"] is not None:
        return f"{number_format.reward_text(row['test_mean'], 3)}{show_gaps(row)}"
    return NO_ANSWER if row.get("unanswered") else "not tested"


def method_cells(row: MethodSummaryJSON) -> list[str]:
    """A method in the columns of `HEAD`."""
    low, high = (number_format.reward_text(end, 3) for end in (row["test_low"], row["test_high"]))
    perplexity = side(row, "readability").get("perplexity")
    return [
        str(row["method"]),
        str(row["runs"]),
        _mean_or_reason(row),
        f"{low} to {high}",
        number_format.reward_text(row["test_min"], 3),
        number_format.reward_text(row["test_max"], 3),
        number_format.reward_text(row["baseline_test"], 3),
        f"{row['promoted']} of {row['runs']}",
        number_format.count(row["calls"]),
        _cost_cell(row),
        number_format.count(perplexity),
    ]


def _cost_cell(row: MethodSummaryJSON) -> str:
    """The dollars of a run of a method on average, or why there is no number."""
    if missing := dollars_missing(row):
        return missing
    return "–" if row["cost_usd"] is None else f"{row['cost_usd']:.4f}"


def _methods_section(result: ComparisonJSON, methods: Methods) -> Section:
    caption = note(
        "Means over the runs of a method. The interval covers the variation between test rows; min "
        "and max cover the variation between seeds. Perplexity measures how naturally the found text "
        "reads: it is low for sentences and high for single words that a search chose."
    )
    rows = [method_cells(row) for row in methods]
    reasons = {reason for row in methods for reason in side(row, "readability").get("reasons", ())}
    why = [note(f"Some perplexities could not be measured: {reason}") for reason in sorted(reasons)]
    return Section(
        "methods",
        "Methods",
        join(table("Methods, best test mean first", HEAD, rows, wide=True), caption, why),
    )


def _pairs_section(result: ComparisonJSON) -> Section | None:
    pairs = all_pairs(result)
    if not pairs:
        return None
    head = ["Pair", "Difference", "Low", "High", "p", "p adjusted", "Rows"]
    rows = [_pair_cells(pair) for pair in pairs]
    caption = note(
        f"Each pair on the same test rows, the rewards of a row averaged over the runs of a method. {FAMILIES}"
    )
    return Section(
        "pairs", "Methods in pairs", join(table("Differences between methods", head, rows), caption)
    )


def _pair_cells(pair: PairJSON) -> list[str]:
    if not pair["n"]:
        return [f"{pair['a']} − {pair['b']}", NO_ANSWER, *["–"] * 4, "0"]
    return [
        f"{pair['a']} − {pair['b']}",
        number_format.difference(pair["difference"], 3),
        *(number_format.reward_text(pair[end], 3) for end in ("low", "high")),
        *(show_p(pair[key]) for key in ("p", "p_adjusted")),
        number_format.count(pair["n"]),
    ]


def _records(runs: Sequence[RunJSON]) -> list[tuple[RunJSON, Record]]:
    """The runs whose journals are there, with what these say."""
    read = []
    for run in runs:
        try:
            read.append((run, read_run(Path(run["run"]))))
        except UsageError:
            continue
    return read


def _curves_section(runs: Sequence[RunJSON], methods: Methods) -> Section | None:
    """The best validation mean of each run against model calls, one colour a method."""
    records = [(run, record) for run, record in _records(runs) if record.validated]
    if not records:
        return None
    order = [row["method"] for row in methods]
    pictures = [
        svg(
            width,
            height,
            "Learning curves: best validation mean against model calls",
            f"One line for each of {len(records)} runs, coloured by method.",
            _curves(records, order, width, height),
            name=f"curves-{name}",
            class_=name,
        )
        for name, width, height in SIZES
    ]
    caption = el("figcaption", legend([_key(name, i, records) for i, name in enumerate(order)]))
    head = ["Run", "Model calls", "Best validation mean", "Rows"]
    rows = [
        [f"{run['method']}, seed {run['seed']}", *cells]
        for run, record in records
        for cells in _points(record)
    ]
    numbers = details("The numbers of this picture", table("Best so far on validation", head, rows))
    text = note(
        "Methods may validate on different numbers of rows, which the legend shows. The sealed test "
        "above uses the same rows for all methods."
    )
    return Section("curves", "Learning curves", join(el("figure", caption, pictures, numbers), text))


def _points(record: Record) -> list[list[str]]:
    return [
        [f"{point.calls:,}", number_format.reward_text(point.value, 3), number_format.count(point.n)]
        for point in record.validated
        if point.incumbent
    ]


def _curves(records: Sequence[tuple[RunJSON, Record]], order: Sequence[str], width: int, height: int) -> Html:
    values = [point.value for _, record in records for point in record.validated if point.incumbent]
    right = max(1, *(record.calls for _, record in records))
    frame = Frame(width, height, Scale(0, right, 52, width - 16), Scale(*pad_range(values), height - 52, 28))
    parts = [
        frame.axes("model calls", width // 110, 6),
        label(0, 12, "best validation mean so far", "start", "axis-label"),
    ]
    seen: dict[float, int] = {}
    for run, record in records:
        index = order.index(run["method"])
        places: list[XY] = [(frame.x(p.calls), frame.y(p.value)) for p in record.validated if p.incumbent]
        if not places:
            continue
        level = round(places[-1][1])
        dashes = OVERLAP[min(seen.get(level, 0), len(OVERLAP) - 1)]
        seen[level] = seen.get(level, 0) + 1
        parts.append(path(stairs(places, frame.x(record.calls)), f"curve series-{index % SERIES}{dashes}"))
        parts += [marker(_mark(index), x, y, f"mark series-{index % SERIES}", 4) for x, y in places]
    return join(parts)


def _mark(index: int) -> str:
    return MARKS[index // SERIES % len(MARKS)]


def _key(name: str, index: int, records: Sequence[tuple[RunJSON, Record]]) -> tuple[Html, str]:
    """The entry of a method in the legend, with the rows that it validated on."""
    class_ = f"series-{index % SERIES}"
    icon = join(
        straight_line((0, 8), (28, 8), f"curve {class_}"), marker(_mark(index), 14, 8, f"mark {class_}")
    )
    sizes = sorted({p.n for run, r in records if run["method"] == name for p in r.validated if p.n})
    rows = "" if not sizes else f" ({' and '.join(f'{n:,}' for n in sizes)} validation rows)"
    return icon, f"{name}{rows}"


def _transfer_section(result: ComparisonJSON, methods: Methods) -> Section | None:
    other = result.get("transfer")
    if other is None:
        return None
    head = ["Method", "Test mean with this model", "Gain there", "95% interval", "Calls there"]
    rows = []
    for row in methods:
        moved = row["transfer"]
        if moved["test_mean"] is None:
            rows.append([row["method"], NO_ANSWER if moved.get("unanswered") else "–", *["–"] * 3])
            continue
        ends = (number_format.reward_text(end, 3) for end in (moved["gain_low"], moved["gain_high"]))
        rows.append(
            [
                row["method"],
                f"{number_format.reward_text(moved['test_mean'], 3)}{show_gaps(moved)}",
                number_format.difference(moved["gain_difference"], 3),
                " to ".join(ends),
                number_format.count(moved["calls"]),
            ]
        )
    reasons = sorted({reason for row in methods for reason in row["transfer"].get("reasons", ())})
    body = join(
        table(f"The found prompts with {other['model']}", head, rows), [note(text) for text in reasons]
    )
    return Section("transfer", "With another model", body)


def _test_cell(run: RunJSON, name: str) -> str:
    """The mean of a side of a run on the sealed test."""
    test = side(side(run, name), "test")
    if test and test.get("mean") is None:
        return NO_ANSWER
    return f"{number_format.reward_text(test.get('mean'), 3)}{show_gaps(test)}"


def _runs_section(runs: Sequence[RunJSON], folder: Path) -> Section:
    head = [
        "Run",
        "Start prompt",
        "Best prompt",
        "Gain",
        "95% interval",
        "Promoted",
        "Calls",
        "USD",
        "Time",
        "Ended by",
    ]
    rows: list[list[Child]] = []
    for run in runs:
        gain, usage = side(run, "improvement"), side(run, "usage")
        tests = [_test_cell(run, name) for name in ("baseline", "best")]
        ends = [number_format.reward_text(gain.get(end), 3) for end in ("low", "high")]
        known = NO_ANSWER not in tests
        rows.append(
            [
                _link(run, folder),
                *tests,
                number_format.difference(gain.get("difference") if known else None, 3),
                " to ".join(ends) if known else "–",
                "yes" if gain.get("promoted") else "no",
                number_format.count(sum(side(usage, "calls").values())),
                describe_price(usage),
                number_format.duration(usage.get("seconds")),
                clip(str(run.get("ended_by", "–")), 200),
            ]
        )
    caption = note(
        "The interval of a gain comes from the verdict of the run. Its confidence is 1 minus the "
        "alpha that this opening of the test rows had left; the report of the run shows this alpha."
    )
    every = table("Every run, in the order in which they took place", head, rows, text=(9,))
    return Section("runs", "Runs", join(every, caption))


def _plan_section(runs: Sequence[RunJSON], methods: Methods) -> Section | None:
    """The forecast of the plans of a method's runs beside the actual use, on average; None for runs without their plans."""
    rows: list[list[Child]] = []
    for name in (row["method"] for row in methods):
        own = [run for run in runs if run["method"] == name and side(side(run, "plan"), "calls")]
        if not own:
            continue
        plans, usages = [side(run, "plan") for run in own], [side(run, "usage") for run in own]
        calls = [side(plan, "limits").get("calls") for plan in plans]
        used = [sum(side(usage, "calls").values()) for usage in usages]
        tokens = [side(plan, "tokens").get("expected") for plan in plans]
        read = [usage.get("input_tokens", 0) + usage.get("output_tokens", 0) for usage in usages]
        dollars = [side(plan, "cost_usd").get("expected") for plan in plans]
        if any(usage.get("price_unknown") or has_no_price(usage) for usage in usages):
            dollars = []
        spent = _mean([usage.get("cost_usd") for usage in usages]) if dollars else None
        counts = (number_format.count(_mean(each)) for each in (calls, used, tokens, read))
        rows.append([name, *counts, *map(number_format.dollars, (_mean(dollars), spent))])
    if not rows:
        return None
    head = ["Method", "Calls at most", "used", "Tokens expected", "used", "USD expected", "used"]
    about = (
        "Means over the runs of a method. The plans were made before anything was paid, and expect that a search uses all its "
        "calls. Answers from the cache, which later runs share with earlier ones, are not used."
    )
    return Section(
        "plan", "Plan and use", join(table("A run, as planned and as made", head, rows), note(about))
    )


def _mean(values: Sequence[object]) -> float | None:
    """The mean; None where one of them is not known, or there is none."""
    known = [number for value in values if (number := finite_number(value)) is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def _link(run: RunJSON, folder: Path) -> Html:
    """The name of a run, with a link to its report where that lies below the comparison."""
    name, place = f"{run['method']}, seed {run['seed']}", Path(run["run"])
    if place.absolute().parent != folder.absolute():
        return join(name)
    return el("a", name, href=f"{place.name}/report.html")


def _reproduction_section(result: ComparisonJSON) -> Section:
    run = result["runs"][0]
    limits = side(side(run, "plan"), "limits")
    pairs: list[tuple[str, Child]] = [
        ("Task", str(result["task"])),
        ("Methods", ", ".join(dict.fromkeys(str(run["method"]) for run in result["runs"]))),
        ("Seeds", ", ".join(dict.fromkeys(str(run["seed"]) for run in result["runs"]))),
        *((f"Model: {role}", str(address)) for role, address in side(run, "models").items()),
        *((f"Limit of each run: {name.replace('_', ' ')}", f"{value:,}") for name, value in limits.items()),
    ]
    return Section("reproduction", "Reproduction", facts(pairs))


def _csv(result: ComparisonJSON) -> str:
    """One row a run."""
    columns = (
        "method", "seed", "status", "baseline_test", "best_test", "best_test_low", "best_test_high", "n", "difference",
        "difference_low", "difference_high", "promoted", "task_calls", "optimizer_calls", "judge_calls", "input_tokens",
        "output_tokens", "cost_usd", "price_known", "seconds", "perplexity", "run", "of",
    )  # fmt: skip
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    for run in result["runs"]:
        test, gain, usage = side(side(run, "best"), "test"), side(run, "improvement"), side(run, "usage")
        calls, before = side(usage, "calls"), side(side(run, "baseline"), "test")
        means = [NO_ANSWER if one and one.get("mean") is None else one.get("mean") for one in (before, test)]
        known = ("difference", "low", "high") if NO_ANSWER not in means else ()
        writer.writerow(
            [
                run["method"], run["seed"], run["status"], *means, *(test.get(key) for key in ("low", "high", "n")),
                *(gain.get(key) if key in known else None for key in ("difference", "low", "high")), gain.get("promoted"),
                *(calls.get(role, 0) for role in ("task", "optimizer", "judge")),
                *(usage.get(key) for key in ("input_tokens", "output_tokens")),
                None if has_no_price(usage) else usage.get("cost_usd"),
                not usage.get("price_unknown") and not has_no_price(usage), usage.get("seconds"),
                side(run, "readability").get("perplexity"), run["run"], test.get("of", test.get("n")),
            ]
        )  # fmt: skip
    return out.getvalue()


def _markdown(result: ComparisonJSON, methods: Methods) -> str:
    parts = [f"# {_one_line(str(result['task']))}: methods compared", *sentences(result)]
    parts.append(_markdown_table(HEAD, [method_cells(row) for row in methods]))
    if pairs := all_pairs(result):
        head = ("Pair", "Difference", "Low", "High", "p", "p adjusted", "Rows")
        parts += [_markdown_table(head, [_pair_cells(pair) for pair in pairs]), FAMILIES]
    return "\n\n".join(parts) + "\n"


def _markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(
        "| " + " | ".join(_one_line(cell).replace("|", "\\|") for cell in one) + " |" for one in lines
    )


def _one_line(text: str) -> str:
    return " ".join(text.split())


_TEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "−": "$-$", "±": r"$\pm$", "–": "--",
}  # fmt: skip


def _latex(result: ComparisonJSON, methods: Methods) -> str:
    """The table of methods, and that of the pairs, for a paper that loads booktabs."""
    parts = [_latex_table(f"Methods on {result['task']}", HEAD, [method_cells(row) for row in methods])]
    if pairs := all_pairs(result):
        head = ("Pair", "Difference", "Low", "High", "p", "p adjusted", "Rows")
        parts.append(_latex_table("Methods in pairs", head, [_pair_cells(pair) for pair in pairs]))
    return "% needs \\usepackage{booktabs}\n" + "\n".join(parts)


def _latex_table(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [" & ".join(map(_tex, one)) + r" \\" for one in (head, *rows)]
    columns = "l" + "r" * (len(head) - 1)
    return "\n".join(
        [
            r"\begin{table}", rf"\caption{{{_tex(caption)}}}", rf"\begin{{tabular}}{{{columns}}}", r"\toprule", lines[0],
            r"\midrule", *lines[1:], r"\bottomrule", r"\end{tabular}", r"\end{table}", "",
        ]
    )  # fmt: skip


def _tex(text: str) -> str:
    return "".join(_TEX.get(char, char) for char in _one_line(text))
