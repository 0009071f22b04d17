"""The feedback explorer: all feedback, searchable, and one answer with its feedback; inferences and feedback as pages show
them."""

from __future__ import annotations

from collections.abc import Mapping

import orjson
from starlette.responses import Response

from whet.errors import show_share
from whet.reporting import Child, Html, clip, details, el, facts, join, region
from whet_client import KINDS, SOURCES, Feedback, Inference
from whet_live import forget_user
from whet_live.database import microseconds
from whet_live.server.endpoint import EndpointRouter
from whet_live.server.pages import ui
from whet_live.server.request_context import RequestContext
from whet_live.server.responses import Refused, not_found, see_other
from whet_live.server.roles import Role
from whet_live.traffic import Filter, StoredFeedback

router = EndpointRouter()
LISTED = 50
FILTERS = ("prompt", "version", "kind", "source", "user", "text", "since")
KIND_CHOICES = [("", "any kind"), *((name, name.replace("_", " ")) for name in KINDS)]
SOURCE_CHOICES = [("", "anybody"), *((name, name) for name in SOURCES)]
LONGEST_TEXT = 20_000
PARTS = ("copy", "edit_distance", "external_check")


@router("GET", "/feedback", Role.VIEWER)
def explore(call: RequestContext) -> Response:
    """Feedback that fits, the newest first."""
    filters = {name: call.query_params.get(name, "").strip() for name in FILTERS}
    matches = call.state.live.traffic.find(_filter(filters), LISTED, call.query_params.get("after") or None)
    hint = {"data_key": "/", "data_hint": "Search for words"}
    search = ui.search_form(
        "/feedback",
        ui.text_input("text", "Words", filters["text"], type="search", **hint),
        ui.text_input("prompt", "Prompt", filters["prompt"]),
        ui.text_input("version", "Version", filters["version"], inputmode="numeric"),
        ui.select("kind", "Kind", KIND_CHOICES, filters["kind"]),
        ui.select("source", "Said by", SOURCE_CHOICES, filters["source"]),
        ui.text_input("user", "User", filters["user"]),
        ui.text_input("since", "Since", filters["since"], placeholder="2026-01-31"),
        label="Feedback",
    )
    how = "Programs send it to ", el("code", "POST /v1/feedback"), ", people give it under Annotate."
    empty = ui.nothing("No feedback fits.")
    if not any(filters.values()):
        empty = ui.nothing("There is no feedback yet.", *how)
    rows = ui.stack_rows((feedback_line(row, with_target=True) for row in matches.rows), empty)
    older = ui.pager(ui.path_to("feedback", **filters, after=matches.next), matches.next)
    return ui.page(call, "Feedback", "feedback", search, rows, older, wide=True)


def _filter(filters: dict[str, str]) -> Filter:
    version, kind, source = filters["version"], filters["kind"], filters["source"]
    return Filter(
        prompt=filters["prompt"] or None,
        version=ui.whole_number(version, "The version", 0) if version else None,
        user=filters["user"] or None,
        since=microseconds(filters["since"]) if filters["since"] else None,
        kind=kind if kind in KINDS else None,
        source=source if source in SOURCES else None,
        text=filters["text"] or None,
    )


@router("GET", "/feedback/{id:path}", Role.VIEWER)
def show(call: RequestContext) -> Response:
    """One answer: inputs, output, and its feedback."""
    traffic = call.state.live.traffic
    stored = traffic.inference(call.path("id"))
    if stored is None:
        raise not_found("such answer; its feedback waits for it, or it was deleted")
    one = stored.inference
    rows = (feedback_line(row, with_target=False) for row in traffic.about(stored.seq))
    rate = ui.button_link("Rate this answer", ui.path_to("annotate", one.id), key="a")
    return ui.page(
        call,
        "One answer",
        "feedback",
        el("div", inputs_of(one.inputs), text_box("Answer", one.output, big=True)),
        ui.buttons(call.may(Role.ANNOTATOR) and rate, _link_to_try(call, one)),
        ui.section("Feedback", ui.stack_rows(rows, ui.nothing("Nobody said anything about it yet."))),
        ui.section("About it", about_inference(one)),
        one.user and call.may(Role.ADMIN) and _forget(call, one.user),
        above=[("Feedback", "/feedback")],
    )


def _link_to_try(call: RequestContext, answer: Inference) -> Html | None:
    """The way into the playground with the input of an answer, for whoever may run one."""
    registry = call.state.live.registry
    if call.state.playground is None or not call.may(Role.EDITOR) or not registry.exists(answer.prompt):
        return None
    newest = registry.labels(answer.prompt)["latest"]
    version = answer.version if 1 <= answer.version <= newest else None
    place = ui.path_to("playground", answer.prompt, version=version, answer=answer.id)
    return ui.button_link("Try this input", place, key="t")


def _forget(call: RequestContext, user: str) -> Html:
    hint = (
        f"Deletes every answer and all feedback of the user {user}, for ever, and what the learner quotes of them. The ids stay, "
        "so that nothing comes back. Backups, exported files and the run folders of the learner are left to you."
    )
    entry = ui.form(
        call,
        "/forget",
        ui.hidden_fields(user=user),
        ui.text_input("again", "Write the user's name to confirm", required=True, hint=hint),
        ui.button("Delete this user's data", "danger"),
    )
    return el("section", details("Delete this user's data", entry))


def _forget_again(call: RequestContext) -> Response:
    return ui.page(call, "Delete a user's data", "feedback", _forget(call, call.form.get("user", "")))


@router("POST", "/forget", Role.ADMIN, form=_forget_again)
def forget(call: RequestContext) -> Response:
    """Delete the data of one user of the applications."""
    user = call.form.get("user", "")
    if not user or call.form.get("again", "") != user:
        raise Refused(400, "The names differ; nothing was deleted.")
    forget_user(call.state.live.database, user, actor=call.name)
    return see_other("/feedback")


@router("GET", "/about/{id}", Role.VIEWER)
def about(call: RequestContext) -> Response:
    """The place of a piece of evidence: an answer here, or a row of a run or a file."""
    key, traffic = call.path("id"), call.state.live.traffic
    feedback_row = traffic.feedback(key)
    inference_row = traffic.inference(key if feedback_row is None else feedback_row.feedback.target)
    if inference_row is not None:
        return see_other(ui.path_to("feedback", inference_row.inference.id))
    reason = "it is a row of a run or of a file that was learned from, or it was deleted"
    raise Refused(404, f'"{key[:200]}" is no answer in this database: {reason}.')


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
    return ui.tag(f"{name} {show_share(value)}" if kind in PARTS else f"{name} {value:g}")


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
    text = feedback.text and clip(feedback.text, 2_000)
    return join(
        el("span", value_of(feedback), class_="kind"),
        el("span", text, class_="what", dir="auto"),
        with_target and ui.aside(version, " ", about),
        ui.aside(*who, " · ", ui.moment(feedback.time)),
    )


def inputs_of(inputs: Mapping[str, object], level: int = 2) -> list[Html]:
    """The values of the slots, each in a box under a heading of that level."""
    return [text_box(str(key), _text(value), level=level) for key, value in inputs.items()]


def _text(value: object) -> str:
    return value if isinstance(value, str) else orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()


def text_box(title: str, text: str, *, big: bool = False, level: int = 2) -> Html:
    """A text of somebody under its title."""
    shown: Child = clip(text, LONGEST_TEXT) if text else el("i", "empty")
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
