"""A matrix of transfers as files: matrix.html, which loads nothing, and matrix.json."""

from __future__ import annotations

from pathlib import Path

import orjson

import whet.reporting.number_format as number_format
from whet._util.storable import write_whole
from whet.engine.comparison_json import EffectJSON, MatrixCellJSON, MatrixJSON
from whet.engine.result_json import show_gaps
from whet.errors import StorageError
from whet.reporting.cost import describe_price
from whet.reporting.layout import Section, facts, note, table
from whet.reporting.markup import Html, clip, el, join
from whet.reporting.page import document
from whet.reporting.svg import IntervalRow, interval_plot
from whet.reporting.verdict import simulated_banner
from whet.stats.intervals import show_p

NAME = "matrix"
KINDS = {
    "models": "Model",
    "origins": "Origin of the prompt",
    "own": "At home, beyond the effects of row and column",
}


def write_matrix(folder: Path, result: MatrixJSON) -> None:
    """Write page and JSON of a matrix, as `whet.transfer_matrix` returns it, into its folder. Raises StorageError where the disk
    refuses a file."""
    texts = {
        "html": render_matrix(result),
        "json": orjson.dumps(dict(result), option=orjson.OPT_INDENT_2).decode(),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for kind, text in texts.items():
        file = folder / f"{NAME}.{kind}"
        try:
            write_whole(file, text.encode())
        except OSError as error:
            raise StorageError(f"{file}: the matrix could not be written: {error}.") from error


def render_matrix(result: MatrixJSON) -> str:
    """The page as text."""
    sections = [
        _cells_section(result),
        _effects_section(result),
        _variance_section(result),
        _runs_section(result),
    ]
    rows = number_format.plural(result["rows"], f"{result['split']} row")
    what = f"{number_format.plural(len(result['runs']), 'model')}, {rows}"
    head = el(
        "header",
        el("p", "whet transfer", class_="brand"),
        el("h1", clip(str(result["task"]), 160)),
        el("p", what, class_="run-line"),
    )
    body = (
        head,
        simulated_banner() if result["simulated"] else None,
        el("main", _verdict(result), [section.html() for section in sections]),
        el("footer", el("p", "whet wrote this page. The page loads and sends nothing.")),
    )
    return document(f"{result['task']}: whet transfer", *body)


def _verdict(result: MatrixJSON) -> Html:
    usage = result["usage"]
    rows = [
        row
        for name, one in (("Home advantage", result["home"]), *result["effects"]["own"].items())
        if (row := _interval_row(name, one)) is not None
    ]
    caption = "Home advantage: all models (95% interval), then each at home (together 95%)"
    return el(
        "section",
        el("h2", "Are prompts locked in to their model?", id="verdict-title"),
        el("p", result["verdict"], class_="reason"),
        interval_plot(caption, rows, "interval-home", 0.0)
        if rows
        else note("No row was answered in all cells."),
        facts(
            [
                ("Model calls", number_format.count(sum(usage["calls"].values()))),
                ("Cost", describe_price(usage)),
            ],
            "figures",
        ),
        [note(warning) for warning in result["warnings"]],
        id="verdict",
        class_="kept",
        aria_labelledby="verdict-title",
    )


def _interval_row(name: str, effect: EffectJSON) -> IntervalRow | None:
    difference = effect["difference"]
    if difference is None:
        return None
    return IntervalRow(name, difference, effect["low"], effect["high"], show_effect(effect))


def show_effect(effect: EffectJSON) -> str:
    """A difference with the ends of its interval."""
    low, high = (number_format.reward_text(effect[end], 3) for end in ("low", "high"))
    return f"{number_format.difference(effect['difference'], 3)}  [{low} to {high}]"


def _cells_section(result: MatrixJSON) -> Section:
    names = list(result["runs"])
    at = {(cell["origin"], cell["model"]): cell for cell in result["cells"]}
    means = [[f"found for {origin}", *(_cell(at[origin, model]) for model in names)] for origin in names]
    gains = [[f"found for {origin}", *(_gain(at[origin, model]) for model in names)] for origin in names]
    head = ["Prompt", *(f"on {name}" for name in names)]
    text = note(
        "Each row is the prompt that a run found, each column the model that answered. Gains are "
        "paired, and each gain has its own interval."
    )
    body = join(
        table("Mean rewards", head, means, wide=True),
        table("Gain over the start prompt, with its 95% interval", head, gains, wide=True),
        text,
    )
    return Section("cells", "Each prompt on each model", body)


def _cell(cell: MatrixCellJSON) -> str:
    score = cell["score"]
    return f"{number_format.reward_text(score['mean'], 3)}{show_gaps(score)}"


def _gain(cell: MatrixCellJSON) -> str:
    gain = cell["gain"]
    if not gain.get("n", 1):
        return "no answer"
    low, high = (number_format.reward_text(gain[end], 3) for end in ("low", "high"))
    return f"{number_format.difference(gain['difference'], 3)}  [{low} to {high}]"


def _effects_section(result: MatrixJSON) -> Section:
    rows = [
        [KINDS[kind], name, show_effect(effect), show_p(effect["p_adjusted"])]
        for kind, effects in result["effects"].items()
        for name, effect in effects.items()
    ]
    text = note(
        "Differences from the mean of all cells. The intervals are simultaneous at 95%; p is "
        "adjusted by Holm."
    )
    body = join(table("Effects", ["Effect", "Of", "Difference", "p adjusted"], rows, text=(1,)), text)
    return Section("effects", "Model, origin and home", body)


def _variance_section(result: MatrixJSON) -> Section:
    parts = result["variance"]
    if parts is None:
        return Section("variance", "Variance", note("No row was answered in all cells."))
    whole = parts["model"] + parts["origin"] + parts["home"] + parts["rest"]
    named = (
        ("Model", parts["model"]),
        ("Origin of the prompt", parts["origin"]),
        ("Lock-in (home advantage)", parts["home"]),
        ("Rest", parts["rest"]),
    )
    rows = [[name, f"{value:.3g}", "–" if not whole else f"{value / whole:.0%}"] for name, value in named]
    text = note(
        f"The 95% interval of what lock-in adds is {parts['home_low']:.3g} to {parts['home_high']:.3g}. "
        "The variation that chance causes between equal cells is subtracted."
    )
    return Section(
        "variance",
        "Variance",
        join(table("Variance of the cells", ["Part", "Variance", "Share"], rows), text),
    )


def _runs_section(result: MatrixJSON) -> Section:
    rows = [[name, el("code", run)] for name, run in result["runs"].items()]
    return Section("runs", "Runs", table("Runs", ["Model", "Run"], rows, text=(1,)))
