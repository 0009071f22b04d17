"""The page of a study, `report.html` in its folder: it loads nothing and sends nothing, and is made of result.json alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from whet.api.study.sentences import (
    FAMILIES,
    components_sentences,
    effect_cells,
    is_shown,
    sensitivity_sentences,
    unit_rows,
    unit_value,
)
from whet.reporting import (
    REPORT,
    Child,
    Html,
    IntervalRow,
    Section,
    clip,
    describe_price,
    document,
    el,
    facts,
    interval_plot,
    join,
    note,
    number_format,
    prose,
    side,
    simulated_banner,
    table,
    write_page,
)

MOST_PLOTTED = 16
"""Effects in a picture at most; the table has all."""
PAIRS_PLOTTED = 8
ON, OFF = "●", "·"


def write_study(folder: Path, result: Mapping[str, Any]) -> Path:
    """Write the page of a finished study and return its path. Raises StorageError when the disk refuses it."""
    return write_page(folder / REPORT, render_study(result))


def render_study(result: Mapping[str, Any]) -> str:
    """The page as text."""
    title, front, sections = (_sensitivity if "units" in result else _components)(result)
    simulated = simulated_banner() if result["simulated"] else None
    links = [el("li", el("a", section.title, href=f"#{section.anchor}")) for section in sections]
    rows = number_format.plural(result["rows"], f"{result['split']} row")
    head = el(
        "header",
        el("p", "whet study", class_="brand"),
        el("h1", clip(str(result["task"]), 160)),
        el("p", f"{title}, on {rows}", class_="run-line"),
    )
    end = "whet wrote this page from the journal of the study. The page loads and sends nothing."
    body = el("main", front, el("nav", el("ul", links), aria_label="Contents"), [s.html() for s in sections])
    skip = el("a", "Skip to the result", href="#verdict", class_="skip")
    return document(f"{result['task']}: whet study", skip, head, simulated, body, el("footer", el("p", end)))


def _components(result: Mapping[str, Any]) -> tuple[str, Html, list[Section]]:
    design = result["design"]
    plots = [effects_plot("Main effects: with a part against without", result["effects"], "interval-parts")]
    if pairs := result["interactions"]:
        plots.append(
            effects_plot("Interactions of two parts, the largest", pairs[:PAIRS_PLOTTED], "interval-pairs")
        )
    front = front_section("Parts that matter", components_sentences(result), plots, result)
    sections = [
        _effects_section(result),
        _parts_section(result),
        _prompts_section(result),
        study_reproduction(result),
    ]
    return (
        f"Parts of a prompt: {design['name']}, {number_format.plural(design['prompts'], 'prompt')}",
        front,
        sections,
    )


def _sensitivity(result: Mapping[str, Any]) -> tuple[str, Html, list[Section]]:
    kind, rows = result["unit"], unit_rows(result)
    front = front_section(
        f"Contribution of each {kind}", sensitivity_sentences(result), [_heat(result)], result
    )
    sections = [_units_section(result, rows), _forms_section(result), study_reproduction(result)]
    return (
        f"Sensitivity of a prompt: {number_format.plural(len(rows), kind)}",
        front,
        [s for s in sections if s],
    )


def _heat(result: Mapping[str, Any]) -> Html:
    """The text with each unit on a ground whose strength says what it carries, and below it what the grounds mean."""
    most = max((abs(unit_value(row) or 0.0) for row in unit_rows(result)), default=0.0)
    pieces: list[Child] = []
    for row in result["units"]:
        value = unit_value(row)
        if value is None or not most:
            pieces.append(row["text"])
            continue
        kind = "carries" if value > 0 else "costs"
        shown = " shown" if is_shown(row.get("shapley", row)) else ""
        title = f"{number_format.difference(value, 3)}"
        style = f"--share: {abs(value) / most:.2f}"
        pieces.append(el("span", row["text"], class_=f"heat {kind}{shown}", style=style, title=title))
    scale = [
        el("span", class_=f"heat {kind}", style=f"--share: {share}")
        for kind, shares in (("costs", (1, 0.6, 0.2)), ("carries", (0.2, 0.6, 1)))
        for share in shares
    ]
    ends = number_format.reward_text(-most, 3), number_format.difference(most, 3)
    legend = el(
        "p",
        ends[0],
        " ",
        scale,
        " ",
        ends[1],
        el("small", " underlined: the interval excludes 0"),
        class_="heat-scale",
    )
    text = el(
        "pre",
        pieces,
        class_="heated",
        dir="auto",
        tabindex=0,
        role="region",
        aria_label="The prompt with contributions marked",
    )
    return el("figure", el("figcaption", "Contribution of each piece"), text, legend, class_="wide")


def _units_section(result: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> Section:
    shares = any("shapley" in row for row in rows)
    head = [result["unit"].capitalize(), "Carries", "Simultaneous interval", "p, corrected"]
    head += ["Shapley value", "Standard error of orders"] if shares else []
    body: list[list[Child]] = []
    for row in rows:
        cells: list[Child] = [cell.replace("-", number_format.MINUS) for cell in effect_cells(row)[:2]]
        own: list[Child] = [" ".join(row["text"].split()), *cells, effect_cells(row)[2]]
        if shares:
            own += [
                number_format.difference(row["shapley"]["difference"], 3),
                number_format.reward_text(row["shapley"]["error"], 3),
            ]
        body.append(own)
    words = (
        f"The contribution of a {result['unit']} is the mean reward of the whole prompt minus the "
        "mean reward without it, on the same rows. If two pieces say the same, neither contributes "
        "by this measure."
    )
    if shares:
        words += (
            f" The Shapley value is the average gain from adding a {result['unit']} when all are "
            f"added one by one, in {number_format.plural(result['shapley'], 'random order')}; its "
            "standard error covers the random orders, not the rows."
        )
    return Section(
        "units",
        f"Each {result['unit']}",
        join(table("Pieces by contribution, the largest first", head, body), note(words)),
    )


def _forms_section(result: Mapping[str, Any]) -> Section | None:
    if not result["forms"]:
        return None
    plot = effects_plot(
        "The same text in other forms, against the prompt as it is", result["forms"], "interval-forms"
    )
    words = (
        "Separators, letter case of headings and the order of instructions do not change what "
        "the prompt asks for."
    )
    return Section(
        "forms",
        "Other forms",
        join(el("div", plot, class_="pair"), effects_table("Forms", "Form", result["forms"]), note(words)),
    )


def front_section(
    title: str, sentences: Sequence[str], pictures: Sequence[Html], result: Mapping[str, Any]
) -> Html:
    """The findings: sentences, charts, and the cost of the study."""
    usage = side(result, "usage")
    figures: list[tuple[str, Child]] = [
        ("Prompts", number_format.count(side(side(result, "plan"), "study").get("prompts"))),
        ("Rows", number_format.count(result["rows"])),
        ("Model calls", number_format.count(sum(side(usage, "calls").values()))),
        ("Cost", describe_price(usage)),
        ("Time", number_format.duration(usage.get("seconds"))),
    ]
    warnings = [el("li", text) for text in result["warnings"]]
    return el(
        "section",
        el("h2", title, id="verdict-title"),
        [el("p", sentence, class_="reason") for sentence in sentences],
        el("div", pictures, class_="pair"),
        facts(figures, "figures"),
        el("aside", el("h3", "Warnings"), el("ul", warnings), class_="warnings") if warnings else None,
        id="verdict",
        class_="kept",
        aria_labelledby="verdict-title",
    )


def effects_plot(caption: str, effects: Sequence[Mapping[str, Any]], name: str) -> Html:
    """Differences with their intervals, and a line at 0; those that exclude it are filled in another colour."""
    rows = [
        IntervalRow(
            effect["name"],
            effect["difference"],
            effect["low"],
            effect["high"],
            f"{number_format.difference(effect['difference'], 3)}  [{number_format.reward_text(effect['low'], 3)} to "
            f"{number_format.reward_text(effect['high'], 3)}]",
            "circle" if is_shown(effect) else "square",
            "best" if is_shown(effect) else "series-7",
        )
        for effect in effects[:MOST_PLOTTED]
        if effect["difference"] is not None
    ]
    return interval_plot(caption, rows, name, 0.0) if rows else note("No row was answered by all prompts.")


def effects_table(caption: str, first: str, effects: Sequence[Mapping[str, Any]]) -> Html:
    """All effects of a family with interval, p-value and rows; and where they have some, their aliases."""
    last = "Estimated together with" if any(effect.get("aliases") for effect in effects) else ""
    head = [first, "Difference", "Simultaneous interval", "p, corrected", "Rows", *([last] if last else [])]
    rows: list[list[Child]] = [
        [
            effect["name"],
            *(cell.replace("-", number_format.MINUS) for cell in effect_cells(effect)[:2]),
            effect_cells(effect)[2],
            number_format.count(effect["n"]),
            *([", ".join(effect["aliases"]) or "–"] if last else []),
        ]
        for effect in effects
    ]
    return table(caption, head, rows, text=(5,) if last else ())


def _effects_section(result: Mapping[str, Any]) -> Section:
    parts: list[Child] = [effects_table("Main effects", "Part", result["effects"])]
    if pairs := result["interactions"]:
        parts.append(effects_table("Interactions of two parts", "Parts", pairs))
    design = result["design"]
    how = "A main effect is the mean reward of the prompts with a part minus that of the prompts without it, on the same rows. "
    how += "An interaction is half of the change in the effect of one part that the other part causes. "
    if design["generators"]:
        how += f"The design is a fraction with the generators {', '.join(design['generators'])}. "
    return Section("effects", "Effects", join(parts, note(how + FAMILIES)))


def _parts_section(result: Mapping[str, Any]) -> Section:
    rows: list[list[Child]] = [
        [
            f"{part['letter']} {part['name']}",
            part["kind"].replace("_", " "),
            prose(clip(part["text"], 1000)),
            prose(clip(part["instead"], 1000)) if part["instead"] else "–",
        ]
        for part in result["parts"]
    ]
    body = table("Text of each part", ["Part", "Kind", "With", "Without"], rows, text=(1, 2, 3))
    layouts = result["layouts"]
    laid = (
        f"Layout: {layouts[0]}."
        if len(layouts) == 1
        else f"Layouts: {layouts[1]} (with) against {layouts[0]} (without)."
    )
    return Section("parts", "Parts", join(body, note(laid)))


def _prompts_section(result: Mapping[str, Any]) -> Section:
    factors = result["factors"]
    ranked = sorted(
        result["prompts"], key=lambda one: -(one["mean"] if one["mean"] is not None else float("-inf"))
    )
    rows: list[list[Child]] = [
        [
            str(rank),
            *(ON if name in one["parts"] else OFF for name in factors.values()),
            number_format.reward_text(one["mean"], 3),
            f"{number_format.reward_text(one['low'], 3)} to {number_format.reward_text(one['high'], 3)}",
        ]
        for rank, one in enumerate(ranked, 1)
    ]
    caption = "Every prompt that was tried, the best mean first"
    body = table(caption, ["Rank", *factors, "Mean reward", "95% interval"], rows, wide=True)
    warning = (
        "The best of many prompts looks better than it is, because it was chosen on these "
        "rows. The effects above use all prompts."
    )
    return Section("prompts", "Prompts", join(body, note(f"{ON} with the part, {OFF} without. {warning}")))


def study_reproduction(result: Mapping[str, Any]) -> Section:
    """The description of the study."""
    pairs: list[tuple[str, Child]] = [
        ("Task", str(result["task"])),
        ("Split", str(result["split"])),
        ("Seed", str(result["seed"])),
        *((f"Model: {role}", str(address)) for role, address in result["models"].items()),
    ]
    return Section("reproduction", "Reproduction", facts(pairs))
