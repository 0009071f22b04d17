"""Inferences and feedback as the page shows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from whet.client import Feedback, Inference
from whet.live.server.pages import ui
from whet.live.traffic import StoredFeedback
from whet.reporting import Child, Html, clipped, el, facts, join, region

LONGEST = 20_000
PARTS = ("copy", "edit_distance", "external_check")


def value_of(feedback: Feedback) -> Html:
    """The value of the feedback, in a word: stars, a thumb, a share, a number, a label."""
    value, kind = feedback.value, feedback.kind
    if kind == "rating" and value is not None:
        stars = round(value)
        drawn, words = "★" * stars + "☆" * (5 - stars), f"{value:g} of 5 stars"
        return el("span", drawn, role="img", aria_label=words, class_="stars")
    if kind == "thumb":
        return ui.tag("thumb up", "good") if value else ui.tag("thumb down", "bad")
    if kind == "choice":
        word = {1.0: "preferred", 0.0: "not preferred"}.get(value or 0.0, "equal")
        return ui.tag(word, "good" if value == 1 else "")
    name = feedback.name or kind.replace("_", " ")
    if kind == "label":
        return ui.tag(f"{name}: {feedback.label}")
    if value is None or kind in ("comment", "correction"):
        return ui.tag(kind)
    return ui.tag(f"{name} {value:.0%}" if kind in PARTS else f"{name} {value:g}")


def feedback_line(row: StoredFeedback, *, with_target: bool) -> Html:
    """One row of feedback in a list."""
    feedback = row.feedback
    about = el("span", f"waits for {feedback.target_kind} {feedback.target}", class_="quiet")
    if row.about is not None:
        words = f"The answer that this is about, {feedback.target}"
        about = ui.link("answer", ui.path_to("feedback", feedback.target), aria_label=words, data_row=True)
    version = row.prompt and ui.link(
        f"{row.prompt} v{row.version}", ui.path_to("prompts", row.prompt, version=row.version or None)
    )
    who = feedback.source, feedback.user and [" ", el("bdi", feedback.user)]
    text = feedback.text and clipped(feedback.text, 2_000)
    return join(
        el("span", value_of(feedback), class_="kind"),
        el("span", text, class_="what", dir="auto"),
        with_target and ui.aside(version, " ", about),
        ui.aside(*who, " · ", ui.moment(feedback.time)),
    )


def inputs_of(inputs: Mapping[str, Any], level: int = 2) -> list[Html]:
    """The values of the slots, each in a box under a heading of that level."""
    return [text_box(str(key), _text(value), level=level) for key, value in inputs.items()]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()


def text_box(title: str, text: str, *, big: bool = False, level: int = 2) -> Html:
    """A text of somebody under its title."""
    shown: Child = clipped(text, LONGEST) if text else el("i", "empty")
    body = region("pre", shown, label=title, class_="big" if big else None)
    return el("div", el(f"h{level}", title), body, class_="text-box")


def about_inference(inference: Inference) -> Html:
    """Version, model, cost, time and the rest in pairs."""
    there = ui.path_to("prompts", inference.prompt, version=inference.version or None)
    read, written = inference.input_tokens, inference.output_tokens
    named: Mapping[str, Child] = {
        "Prompt": ui.link(f"{inference.prompt} version {inference.version}", there),
        "Time": ui.moment(inference.time),
        "Model": inference.model,
        "Cost": inference.cost is not None and f"${inference.cost:.6g}",
        "Latency": inference.latency is not None and f"{inference.latency:.3g} s",
        "Tokens": (read, written) != (None, None) and f"{read or 0:,} in, {written or 0:,} out",
        "User": inference.user,
        "Session": inference.session,
        "Episode": inference.episode,
        "Experiment": inference.experiment,
        "Error": inference.error,
    }
    return facts([(name, value) for name, value in named.items() if value])
