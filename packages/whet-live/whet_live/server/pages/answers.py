"""The answers of every prompt: filtered, and searched for words in any script."""

from __future__ import annotations

from starlette.responses import Response

from whet.reporting import Child, Html, clip, el, note, number_format
from whet_live.database import microseconds
from whet_live.server.endpoint import EndpointRouter
from whet_live.server.pages import ui
from whet_live.server.request_context import RequestContext
from whet_live.server.roles import Role
from whet_live.traffic import AnswerMatches, Filter, StoredInference

router = EndpointRouter()
LISTED = 40
FIELDS = ("text", "prompt", "version", "model", "user", "session", "episode", "since", "until", "failed")
OUTCOMES = [("", "any"), ("no", "answered"), ("yes", "with an error")]
LONGEST = 110


@router("GET", "/answers", Role.VIEWER)
def explore(call: RequestContext) -> Response:
    """Answers that fit, the newest first. Of a session or an episode these are the steps of one trace."""
    fields = {name: call.query_params.get(name, "").strip() for name in FIELDS}
    after = call.query_params.get("after") or None
    matches = call.state.live.traffic.search_answers(_filter(fields), fields["text"], LISTED, after)
    return ui.page(
        call,
        "Answers",
        "answers",
        _form(fields),
        ui.stack_rows(map(_row, matches.rows), _empty(fields, matches)),
        _onward(fields, matches),
        wide=True,
    )


def _filter(fields: dict[str, str]) -> Filter:
    return Filter(
        prompt=fields["prompt"] or None,
        version=ui.whole_number(fields["version"], "The version", 0) if fields["version"] else None,
        model=fields["model"] or None,
        user=fields["user"] or None,
        session=fields["session"] or None,
        episode=fields["episode"] or None,
        since=microseconds(fields["since"]) if fields["since"] else None,
        until=microseconds(fields["until"]) if fields["until"] else None,
        failed={"yes": True, "no": False}.get(fields["failed"]),
    )


def _form(fields: dict[str, str]) -> Html:
    return ui.search_form(
        "/answers",
        ui.text_input(
            "text", "Words", fields["text"], type="search", data_key="/", data_hint="Search for words"
        ),
        ui.text_input("prompt", "Prompt", fields["prompt"]),
        ui.text_input("version", "Version", fields["version"], inputmode="numeric"),
        ui.text_input("model", "Model", fields["model"]),
        ui.text_input("user", "User", fields["user"]),
        ui.text_input("session", "Session", fields["session"]),
        ui.text_input("episode", "Episode or trace", fields["episode"]),
        ui.select("failed", "Outcome", OUTCOMES, fields["failed"]),
        ui.text_input("since", "Since", fields["since"], placeholder="2026-01-31"),
        ui.text_input("until", "Until", fields["until"], placeholder="2026-02-28"),
        label="Answers",
    )


def _row(stored: StoredInference) -> Html:
    one = stored.inference
    output = one.output or one.error or "empty"
    inputs = " · ".join(str(value) for value in one.inputs.values())
    trace: Child = None
    if one.session is not None:
        trace = ui.link("session", ui.path_to("answers", session=one.session))
    elif one.episode is not None:
        trace = ui.link("trace", ui.path_to("answers", episode=one.episode))
    return ui.row(
        ui.name_link(clip(output, LONGEST), ui.path_to("feedback", one.id)),
        one.error is not None and ui.tag("error", "bad"),
        ui.aside(
            ui.link(
                f"{one.prompt} v{one.version}", ui.path_to("prompts", one.prompt, version=one.version or None)
            )
        ),
        ui.aside(one.model, trace and [" ", trace]),
        ui.aside(ui.moment(one.time)),
        sub=inputs and clip(inputs, LONGEST),
    )


def _empty(fields: dict[str, str], matches: AnswerMatches) -> Html:
    if any(fields.values()):
        return ui.nothing("No answer fits." if matches.next is None else "No answer fits so far.")
    return ui.nothing(
        "There is no answer yet.", "Programs send them to ", el("code", "POST /v1/inferences"), "."
    )


def _onward(fields: dict[str, str], matches: AnswerMatches) -> list[Html | None]:
    """The way to the next page; of a search it says how far this one looked."""
    older = ui.pager(ui.path_to("answers", **fields, after=matches.next), matches.next)
    looked = fields["text"] and matches.next is not None
    return [
        note(f"{number_format.plural(matches.looked, 'answer')} searched for the words; older ones wait.")
        if looked
        else None,
        older,
    ]
