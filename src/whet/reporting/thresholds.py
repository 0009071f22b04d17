"""Whether a prompt meets a threshold, in a sentence and as a JUnit file that build servers read."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree

from whet._util.storable import write_whole
from whet.engine.result_json import MeanJSON
from whet.errors import StorageError, quantity, show_reward

Outcome = Literal["passed", "failed", "undecided"]
_NOT_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class ThresholdCheck:
    """The check of one task: its outcome, the sentence that says why, and what the evaluation warned of."""

    task: str
    outcome: Outcome
    sentence: str
    warnings: tuple[str, ...] = ()


def check_score(
    task: str, score: MeanJSON, threshold: float, *, sure: bool = False, failed: int = 0
) -> ThresholdCheck:
    """Whether a mean reward is `threshold` or more; with `sure`, whether the lower end of its 95% interval is.

    Where rows have no answer of the provider, the check passes if that holds with the lowest reward for each of them, fails if it
    does not hold with the highest, and else it is undecided.
    `failed` rollouts count as the lowest reward, and the sentence says how many they are.
    """
    mean, low, high = score["mean"], score["low"], score["high"]
    if mean is None or low is None or high is None or score.get("answered", 0) != score.get("of", 0):
        return _check_partly_answered(task, score, threshold, sure)
    ends = f"[{_show_beside(low, threshold)}, {show_reward(high)}], n={score['n']}"
    measured = low if sure else mean
    outcome: Outcome = "passed" if reaches(measured, threshold) else "failed"
    shown = _show_beside(mean, threshold)
    what = f"the lower end of {shown} {ends}" if sure else f"the mean {shown} {ends}"
    within = not sure and not reaches(low, threshold) and reaches(high, threshold)
    doubt = "; with other rows, the result might differ" if within else ""
    broken = f"; {quantity(failed, 'rollout')} failed, which counts as the lowest reward" if failed else ""
    return ThresholdCheck(
        task, outcome, f"{what} is {_side(outcome)} {show_reward(threshold)}{doubt}{broken}"
    )


def reaches(value: float, threshold: float) -> bool:
    """Whether a value is the threshold or more. The sum of eight times 0.1 reaches 0.8, although it is less as a float.

    >>> reaches(sum([0.1] * 8), 0.8), reaches(0.0, 1e-9)
    (True, False)
    """
    return value >= threshold or math.isclose(value, threshold, rel_tol=1e-9)


def _check_partly_answered(task: str, score: MeanJSON, threshold: float, sure: bool) -> ThresholdCheck:
    low, high = score.get("mean_at_worst"), score.get("mean_at_best")
    if sure:
        low, high = score.get("low_at_worst"), score.get("low_at_best")
    count = f"{score.get('answered', 0)} of {score.get('of', score['n'])} rows were answered"
    what = "the lower end of the 95% interval" if sure else "the mean"
    if low is None or high is None:
        return ThresholdCheck(task, "undecided", count)
    outcome: Outcome = "undecided" if reaches(high, threshold) else "failed"
    if reaches(low, threshold):
        outcome = "passed"
    ends = f"[{show_reward(low)}, {show_reward(high)}]"
    if outcome == "undecided":
        return ThresholdCheck(
            task,
            outcome,
            f"{count}; the other rows decide, because {what} lies in {ends} around {show_reward(threshold)}",
        )
    return ThresholdCheck(
        task,
        outcome,
        f"{count}; with the others {what} lies in {ends}, {_side(outcome)} {show_reward(threshold)}",
    )


def _show_beside(value: float, threshold: float) -> str:
    """A value, with as many digits as tell it from the threshold."""
    shown = show_reward(value)
    return f"{value:.6f}" if value != threshold and shown == show_reward(threshold) else shown


def _side(outcome: Outcome) -> str:
    return "not below" if outcome == "passed" else "below"


def junit(checks: Sequence[ThresholdCheck]) -> bytes:
    """The checks as JUnit XML: one test case a task, a failure where it is below the threshold, an error where undecided."""
    count = {kind: str(sum(check.outcome == kind for check in checks)) for kind in ("failed", "undecided")}
    facts = {
        "name": "whet check",
        "tests": str(len(checks)),
        "failures": count["failed"],
        "errors": count["undecided"],
    }
    suite = ElementTree.Element("testsuite", facts)
    for one in checks:
        case = ElementTree.SubElement(suite, "testcase", {"classname": "whet.check", "name": _xml(one.task)})
        lines = [one.sentence] if one.outcome == "passed" else []
        if one.outcome != "passed":
            kind = "failure" if one.outcome == "failed" else "error"
            ElementTree.SubElement(case, kind, {"message": _xml(one.sentence)})
        lines += [f"warning: {warning}" for warning in one.warnings]
        if lines:
            ElementTree.SubElement(case, "system-out").text = _xml("\n".join(lines))
    return bytes(ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True))


def write_junit(path: Path, checks: Sequence[ThresholdCheck]) -> None:
    """Write `junit` into a file. Raises StorageError where the disk refuses it."""
    try:
        write_whole(path, junit(checks))
    except OSError as error:
        raise StorageError(f"{path}: the outcome could not be written: {error.strerror}.") from error


def _xml(text: str) -> str:
    """The text without characters that XML 1.0 does not allow."""
    return _NOT_XML.sub("\ufffd", text)
