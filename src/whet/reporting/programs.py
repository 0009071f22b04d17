"""The parts of a report about several regions: the diff of each prompt, the trace of an example, and what each region
earned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import whet.reporting.number_format as number_format
from whet.errors import UsageError
from whet.prompt import Prompt
from whet.reporting.diff import diff_html
from whet.reporting.layout import Section, details, note, table
from whet.reporting.markup import Html, clip, el, join
from whet.reporting.record import Record, finite_number, side

LONGEST_STEP = 2_000


def diff_of_each(before: str, after: str) -> Html:
    """The diff of two prompts; of a program one for each prompt that changed."""
    old, new = _parts(before), _parts(after)
    if not old or old.keys() != new.keys():
        return diff_html(before, after)
    changed = [name for name in old if old[name] != new[name]]
    same = [name for name in old if name not in changed]
    diffs = [
        join(el("h3", f"Prompt {name}"), diff_html(old[name].source, new[name].source, f"Changes of {name}"))
        for name in changed
    ]
    return join(*diffs, note(f"Unchanged: {', '.join(same)}.") if same else None)


def _parts(text: str) -> Mapping[str, Prompt]:
    try:
        return Prompt.parse(text).parts
    except UsageError:
        return {}


def ablation(record: Record) -> Section | None:
    """The loss on validation if a single changed region is put back."""
    measured = side(record.result, "ablation")
    without = side(measured, "without")
    if not without:
        return None
    rows = [
        [
            name,
            number_format.reward_text(finite_number(side(without, name).get("validation")), record.digits),
            number_format.difference(finite_number(side(without, name).get("gain")), record.digits),
        ]
        for name in without
    ]
    whole = number_format.reward_text(finite_number(measured.get("whole")), record.digits)
    caption = note(
        "Each changed region was restored to its start text while the others kept their changes, on "
        f"{measured.get('n')} validation rows. With all changes, the mean reward is {whole}. The "
        "search has seen these rows, so treat the gains as hints."
    )
    shown = table("Gain of each region", ["Put back", "Mean reward without", "Gain"], rows)
    return Section("ablation", "Gain of each prompt", join(caption, shown))


def trace(row: Mapping[str, Any], when: str) -> Html | None:
    """The steps of a program on one example, folded."""
    steps = [step for step in row.get("steps") or () if isinstance(step, Mapping)]
    if not steps:
        return None
    return details(f"Trace {when}: {number_format.plural(len(steps), 'step')}", el("ol", map(_step, steps)))


def _step(step: Mapping[str, Any]) -> Html:
    role, name = str(step.get("role")), str(step.get("prompt") or "no prompt")
    inputs = [
        el("p", el("small", f"{key}: "), clip(str(value), LONGEST_STEP), dir="auto")
        for key, value in side(step, "inputs").items()
    ]
    output = el("p", clip(str(step.get("output")), LONGEST_STEP), dir="auto")
    tokens = step.get("tokens") or [0, 0]
    spent = (
        "" if role == "tool" else f" · {number_format.plural(tokens[0], 'token')} read, {tokens[1]:,} written"
    )
    return el("li", el("b", name), el("small", f" ({role}{spent})"), inputs, output)
