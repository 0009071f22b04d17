"""The report of a run: one self-contained HTML file."""

from whet.reporting.page import write_report

__all__ = ["write_report"]
