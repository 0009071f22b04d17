"""`whet prompts check`: whether the live quality of prompts meets a threshold, for a build server."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click

from whet.cli.common import emit, examples, json_option, say
from whet.errors import ProviderError, UsageError
from whet_live.cli.common import open_here

_COLORS = {"passed": "green", "failed": "red", "undecided": "yellow"}


@click.command(
    "check",
    epilog=examples(
        "whet prompts check shop/greeting --threshold 0.8",
        "whet prompts check shop/greeting shop/help --measure correction --threshold 0.05 --days 7 --sure",
        "whet prompts check shop/greeting --measure latency --threshold 2 --junit whet.xml",
    ),
)
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option(
    "--threshold",
    type=float,
    required=True,
    metavar="R",
    help="Lowest mean that passes or, where less is better, the highest.",
)
@click.option(
    "--measure",
    default="",
    metavar="M",
    help="Measure of quality: thumb, rating, correction, error, latency, score:NAME, ... "
    "(default: what people said, else a score).",
)
@click.option(
    "--sure", is_flag=True, help="Apply the threshold to the worse end of the 95% interval, not to the mean."
)
@click.option("--days", type=click.IntRange(1, 1098), default=7, show_default=True, metavar="N")
@click.option("--version", type=click.IntRange(min=0), metavar="N", help="Only answers of this version.")
@click.option("--label", metavar="LABEL", help="Only answers of the version that had this label.")
@click.option("--model", metavar="MODEL", help="Only answers of this model.")
@click.option(
    "--junit", "junit_file", metavar="FILE", help="Also write the outcome as JUnit XML to this file."
)
@json_option
def check(
    names: tuple[str, ...],
    threshold: float,
    measure: str,
    sure: bool,
    days: int,
    version: int | None,
    label: str | None,
    model: str | None,
    junit_file: str | None,
    as_json: bool,
) -> None:
    """Fail if the quality of live prompts is on the wrong side of a threshold.

    Exit code 0: every prompt passed. 1: a prompt failed. 3: no prompt failed, but a prompt is undecided, because no answer of the
    period has the measure.
    """
    from whet.reporting import write_junit
    from whet_live.quality import check_quality

    file = None if junit_file is None else Path(junit_file)
    if file is not None:
        if not file.absolute().parent.is_dir():
            raise UsageError(f"--junit: there is no folder {file.parent} for {file.name}. Make it.")
        file.unlink(missing_ok=True)
    with open_here() as live:
        reports = [
            live.quality.measure(name, days=days, version=version, label=label, model=model) for name in names
        ]
    checks = [check_quality(report, threshold, measure, sure=sure) for report in reports]
    if as_json:
        emit({"threshold": threshold, "checks": [dataclasses.asdict(one) for one in checks]})
    else:
        for one in checks:
            say(f"{one.outcome}  {one.task}: {one.sentence}", fg=_COLORS[one.outcome])
    if file is not None:
        write_junit(file, checks)
    outcomes = {one.outcome for one in checks}
    if "failed" in outcomes:
        raise SystemExit(1)
    if "undecided" in outcomes:
        raise SystemExit(ProviderError.exit_code)
