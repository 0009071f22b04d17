"""Inferences and feedback as the page shows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from whet.client.records import KINDS, Feedback, Inference
from whet.live.server.pages.parts import link, moment, path_to, tag
from whet.live.traffic import StoredFeedback
from whet.reporting.layout import facts
from whet.reporting.markup import Child, Html, clipped, el, join

LONGEST = 20_000
SHORT = 280
PARTS = ("copy", "edit_distance", "external_check")


def value_of(feedback: Feedback) -> Html:
    """The value of the feedback, in a word: stars, a thumb, a share, a number, a label."""
    value, kind = feedback.value, feedback.kind
    if kind == "rating" and value is not None:
        stars = round(value)
        return el(
            "span",
            "★" * stars + "☆" * (5 - stars),
            role="img",
            aria_label=f"{value:g} of 5 stars",
            class_="stars",
        )
    if kind == "thumb":
        return tag("thumb up" if value else "thumb down", "good" if value else "bad")
    if kind == "choice":
        return tag(
            {1.0: "preferred", 0.0: "not preferred"}.get(value or 0.0, "equal"), "good" if value == 1 else ""
        )
    named = f"{feedback.name or kind.replace('_', ' ')}"
    if kind == "label":
        return tag(f"{named}: {feedback.label}")
    if value is None or kind in ("comment", "correction"):
        return tag(kind)
    return tag(f"{named} {value:.0%}" if kind in PARTS else f"{named} {value:g}")


def feedback_line(row: StoredFeedback, *, with_target: bool) -> Html:
    """One row of feedback in a list."""
    feedback = row.feedback
    where = path_to("feedback", feedback.target)
    about = (
        link("answer", where, aria_label=f"The answer that this is about, {feedback.target}", data_row=True)
        if row.about is not None
        else el("span", f"waits for {feedback.target_kind} {feedback.target}", class_="quiet")
    )
    version = (
        link(f"{row.prompt} v{row.version}", path_to("prompts", row.prompt, version=row.version or None))
        if row.prompt
        else None
    )
    who = join(feedback.source, None if feedback.user is None else join(" ", el("bdi", feedback.user)))
    return join(
        el("span", value_of(feedback), class_="kind"),
        el("span", clipped(feedback.text, 2_000) if feedback.text else None, class_="what", dir="auto"),
        el("span", version, " ", about, class_="side") if with_target else None,
        el("span", who, " · ", moment(feedback.time), class_="side"),
    )


def inputs_of(inputs: Mapping[str, Any], level: int = 2) -> list[Html]:
    """The values of the slots, each in a box under a heading of that level."""
    return [text_box(str(key), _text(value), level=level) for key, value in inputs.items()]


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    import orjson

    return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()


def text_box(title: str, text: str, *, big: bool = False, level: int = 2) -> Html:
    """A text of somebody under its title."""
    shown: Child = clipped(text, LONGEST) if text else el("i", "empty")
    body = el(
        "pre", shown, tabindex=0, role="region", aria_label=title, dir="auto", class_="big" if big else None
    )
    return el("div", el(f"h{level}", title), body, class_="said")


def about_inference(inference: Inference) -> Html:
    """Version, model, cost, time and the rest in pairs."""
    at = link(
        f"{inference.prompt} version {inference.version}",
        path_to("prompts", inference.prompt, version=inference.version or None),
    )
    pairs: list[tuple[str, Child]] = [("Prompt", at), ("Time", moment(inference.time))]
    named: Mapping[str, str | None] = {
        "Model": inference.model,
        "Cost": None if inference.cost is None else f"${inference.cost:.6g}",
        "Latency": None if inference.latency is None else f"{inference.latency:.3g} s",
        "Tokens": _tokens(inference),
        "User": inference.user,
        "Session": inference.session,
        "Episode": inference.episode,
        "Experiment": inference.experiment,
        "Error": inference.error,
    }
    return facts([*pairs, *((name, value) for name, value in named.items() if value)])


def _tokens(inference: Inference) -> str | None:
    if inference.input_tokens is None and inference.output_tokens is None:
        return None
    return f"{inference.input_tokens or 0:,} in, {inference.output_tokens or 0:,} out"


KIND_CHOICES = [("", "any kind"), *((name, name.replace("_", " ")) for name in KINDS)]
