"""The check of live prompts in `whet check`: whether their quality meets a threshold, for a build server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import click

from whet.cli.check import PromptCheck, make_room, report_checks, threshold_options
from whet.errors import UsageError
from whet.reporting import ThresholdCheck
from whet_live.cli.common import open_here


class QualityCheck(PromptCheck):
    """The check of live prompts by their quality over the last days."""

    def find_unknown(self, names: Sequence[str]) -> dict[str, str]:
        """Those of the names that neither have a version nor traffic."""
        unknown = {}
        with open_here() as live:
            for name in names:
                try:
                    live.quality.check_prompt(name)
                except UsageError as error:
                    unknown[name] = str(error)
        return unknown

    def measure(
        self, names: Sequence[str], threshold: float, *, sure: bool, **options: Any
    ) -> list[ThresholdCheck]:
        """The check of each prompt; `measure` is the name of a measure, the other options are those of a report of quality."""
        from whet_live.quality import check_quality

        measure = options.pop("measure")
        with open_here() as live:
            reports = [live.quality.measure(name, **options) for name in names]
        return [check_quality(report, threshold, measure, sure=sure) for report in reports]


@click.command("check", cls=QualityCheck, hidden=True)
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@threshold_options
@click.option(
    "--measure",
    default="",
    metavar="M",
    help="Measure of a prompt's quality: thumb, rating, correction, error, latency, score:NAME, ... "
    "(default: what people said, else a score).",
)
@click.option(
    "--days",
    type=click.IntRange(1, 1098),
    default=7,
    show_default=True,
    metavar="N",
    help="Days of a prompt's answers.",
)
@click.option(
    "--version", type=click.IntRange(min=0), metavar="N", help="Only answers of this version of a prompt."
)
@click.option("--label", metavar="LABEL", help="Only answers of the version of a prompt that had this label.")
@click.option("--model", metavar="MODEL", help="Only answers of this model to a prompt.")
def check(
    names: tuple[str, ...],
    threshold: float,
    sure: bool,
    junit_file: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """The same as `whet check` for names of prompts only."""
    file = make_room(junit_file)
    live = click.get_current_context().command
    assert isinstance(live, QualityCheck)
    checks = live.measure(names, threshold, sure=sure, **options)
    jobs: list[tuple[str, Callable[[], ThresholdCheck]]] = [(one.task, partial(_same, one)) for one in checks]
    report_checks(jobs, {"threshold": threshold}, file, as_json)


def _same(check: ThresholdCheck) -> ThresholdCheck:
    return check
