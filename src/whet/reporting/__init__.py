"""The report of a run, one self-contained HTML file, and the markup, charts and number formats that it is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whet_client.lazy import lazy

if TYPE_CHECKING:
    from whet.reporting import number_format, svg
    from whet.reporting.comparison_page import best_first, write_comparison
    from whet.reporting.comparison_sentences import FAMILIES, all_pairs, start_sentences, warnings_of
    from whet.reporting.cost import describe_price, dollars_missing, parts_beside
    from whet.reporting.diff import diff_html
    from whet.reporting.layout import Section, details, facts, note, prose, region, table
    from whet.reporting.markup import Child, Html, clip, el, join, prompt_text
    from whet.reporting.matrix_page import write_matrix
    from whet.reporting.next_steps import is_limited, is_right_already, leaves_nothing
    from whet.reporting.notebook import comparison_html, evaluation_html, result_html
    from whet.reporting.page import REPORT, document, sections, write_page, write_report
    from whet.reporting.progress_display import Display, display_progress, place_of
    from whet.reporting.record import Record, finite_number, read_run, side
    from whet.reporting.svg import IntervalRow, interval_plot
    from whet.reporting.thresholds import ThresholdCheck, check_score, reaches, write_junit
    from whet.reporting.verdict import simulated_banner

_HOMES = {
    "whet.reporting.cost": "describe_price dollars_missing parts_beside",
    "whet.reporting.diff": "diff_html",
    "whet.reporting.layout": "Section details facts note prose region table",
    "whet.reporting.markup": "Child Html clip el join prompt_text",
    "whet.reporting.matrix_page": "write_matrix",
    "whet.reporting.next_steps": "is_limited is_right_already leaves_nothing",
    "whet.reporting.notebook": "comparison_html evaluation_html result_html",
    "whet.reporting.thresholds": "ThresholdCheck check_score reaches write_junit",
    "whet.reporting.comparison_page": "best_first write_comparison",
    "whet.reporting.comparison_sentences": "FAMILIES all_pairs start_sentences warnings_of",
    "whet.reporting.page": "REPORT document sections write_page write_report",
    "whet.reporting.progress_display": "Display display_progress place_of",
    "whet.reporting.record": "Record finite_number read_run side",
    "whet.reporting.svg": "IntervalRow interval_plot",
    "whet.reporting.verdict": "simulated_banner",
}

__all__ = [
    "FAMILIES",
    "REPORT",
    "Child",
    "Display",
    "Html",
    "IntervalRow",
    "Record",
    "Section",
    "ThresholdCheck",
    "all_pairs",
    "best_first",
    "check_score",
    "clip",
    "comparison_html",
    "describe_price",
    "details",
    "diff_html",
    "display_progress",
    "document",
    "dollars_missing",
    "el",
    "evaluation_html",
    "facts",
    "finite_number",
    "interval_plot",
    "is_limited",
    "is_right_already",
    "join",
    "leaves_nothing",
    "note",
    "number_format",
    "parts_beside",
    "place_of",
    "prompt_text",
    "prose",
    "reaches",
    "read_run",
    "region",
    "result_html",
    "sections",
    "side",
    "simulated_banner",
    "start_sentences",
    "svg",
    "table",
    "warnings_of",
    "write_comparison",
    "write_junit",
    "write_matrix",
    "write_page",
    "write_report",
]

__getattr__ = lazy(__name__, _HOMES)
