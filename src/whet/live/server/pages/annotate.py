"""The annotation queue: one answer after another, rated by keyboard, commented, corrected; and two answers compared."""

from __future__ import annotations

from dataclasses import dataclass, replace

from starlette.responses import Response

from whet.client.records import Feedback
from whet.errors import UsageError
from whet.live.database import new_id
from whet.live.server.endpoint import EndpointRouter
from whet.live.server.pages.layout import page
from whet.live.server.pages.parts import (
    asking,
    button,
    form,
    hidden,
    key_cap,
    link,
    nothing,
    path_to,
    text_area,
    text_input,
)
from whet.live.server.pages.traffic_views import about_inference, inputs_of, text_box
from whet.live.server.request_context import RequestContext
from whet.live.server.responses import not_found, see_other
from whet.live.server.roles import Role
from whet.live.server.v1.ingest import ANNOTATOR, store_now
from whet.live.traffic import Filter, StoredInference
from whet.reporting.markup import Html, el
from whet.types import content_hash

book = EndpointRouter()
AHEAD = 16
"""How many of the newest answers are handed out in everybody's own order."""
STARS = {1: "useless", 2: "poor", 3: "mixed", 4: "good", 5: "perfect"}


@dataclass(frozen=True, slots=True)
class QueuePosition:
    """Where somebody stands in the queue: the prompt asked for (all, when empty), the cursor after which the answers
    lie, and the turn of the last one that was skipped there."""

    prompt: str = ""
    after: str = ""
    passed: str = ""

    @property
    def fields(self) -> dict[str, str]:
        """What a form or an address carries of it."""
        return {"prompt": self.prompt, "after": self.after, "passed": self.passed}


@book("GET", "/annotate", Role.ANNOTATOR)
def queue(call: RequestContext) -> Response:
    """The next answer that no annotator has seen."""
    params = call.query_params
    place = QueuePosition(params.get("prompt", "").strip(), params.get("after", ""), params.get("passed", ""))
    row, place = _next(call, place)
    if row is None:
        empty = nothing("Nothing waits.", "Every answer here has been seen by an annotator.")
        if place.after or place.passed:
            again = link("Start again", path_to("annotate", prompt=place.prompt))
            empty = nothing("Nothing waits behind what you skipped.", again)
        return page(call, "Annotate", "annotate", _head(place.prompt), empty)
    return _work(call, row, place, replace(place, passed=turn(call.name, row.inference.id)))


def _next(call: RequestContext, place: QueuePosition) -> tuple[StoredInference | None, QueuePosition]:
    """The answer whose turn is next for this annotator among the newest that wait, and where that is."""
    wanted = Filter(prompt=place.prompt or None, unreviewed=True)
    while True:
        batch = call.house.live.traffic.inferences(wanted, AHEAD, place.after or None)
        turns = {turn(call.name, row.inference.id): row for row in batch.rows}
        left = [key for key in turns if key > place.passed]
        if left:
            return turns[min(left)], place
        if batch.next is None:
            return None, place
        place = QueuePosition(place.prompt, batch.next)


def turn(who: str, what: str) -> str:
    """When somebody's turn for something comes: everybody has an order of their own, so that two people who work at the
    same time seldom do the same."""
    return content_hash([who, what])[:16]


@book("GET", "/annotate/{id:path}", Role.ANNOTATOR)
def one(call: RequestContext) -> Response:
    """One answer, also one that was rated before."""
    row = call.house.live.traffic.inference(call.path("id"))
    if row is None:
        raise not_found("such answer")
    return _work(call, row, QueuePosition(), None)


def _head(prompt: str) -> Html:
    search = asking(
        "/annotate", text_input("prompt", "Prompt (all, when empty)", prompt), button("Show"), label="Queue"
    )
    pairs = link("Compare two answers instead", path_to("pairs", prompt=prompt), data_key="p")
    return el("div", search, el("p", pairs))


def _work(
    call: RequestContext, row: StoredInference, place: QueuePosition, beyond: QueuePosition | None
) -> Response:
    answer = row.inference
    skip = path_to("annotate", **beyond.fields) if beyond else None
    entry = form(
        call,
        "/annotate",
        hidden(target=answer.id, key=new_id(), **place.fields),
        el(
            "fieldset",
            el("legend", "How good is the answer?"),
            el("div", [_star(n, word) for n, word in STARS.items()], class_="tiles scale"),
        ),
        text_area("comment", "Why?", rows=3, maxlength=32_000, data_key="c", data_hint="Write a comment",
                  hint="In plain words: this is what the prompt learns from."),
        el(
            "details",
            el("summary", "Write the answer as it should have been", data_key="w"),
            text_area("correction", "Corrected answer", answer.output, rows=8, maxlength=32_000),
        ),
        el(
            "div",
            button(["Save and next", key_cap("Ctrl ⏎")], "main"),
            link(["Skip", key_cap("s")], skip, class_="button", data_key="s", data_hint="Skip this answer") if skip else None,
            class_="buttons",
        ),
        class_="side-form",
        label="Rating",
        main=True,
    )  # fmt: skip
    seen = el(
        "div",
        inputs_of(answer.inputs),
        text_box("Answer", answer.output, big=True),
        el("details", el("summary", "About this answer"), about_inference(answer)),
    )
    return page(
        call,
        "Annotate",
        "annotate",
        _head(place.prompt),
        el("div", seen, entry, class_="work"),
        el("p", "Keys: 1 to 5 rate, c comments, s skips, ? lists all keys.", class_="note keys-note"),
        wide=True,
    )


def _star(number: int, word: str) -> Html:
    """A tile of the scale; the number on it is the key that chooses it."""
    box = el(
        "input",
        type="radio",
        name="rating",
        value=number,
        data_key=str(number),
        data_hint=f"{number}: {word}",
    )
    return el("label", box, el("span", el("b", str(number)), el("small", word)), class_="tile")


@book("POST", "/annotate", Role.ANNOTATOR)
def rate(call: RequestContext) -> Response:
    """Store the annotator's feedback. The form carries its own id, so that sending it twice stores it once."""
    fields, target = call.form, call.form.get("target", "")
    row = call.house.live.traffic.inference(target)
    if row is None:
        raise not_found("such answer")
    feedback: list[Feedback] = []
    rating, comment = fields.get("rating", ""), fields.get("comment", "").strip()
    correction = fields.get("correction", "")
    if rating:
        if rating not in map(str, STARS):
            raise UsageError("A rating is a number from 1 to 5.")
        feedback.append(feedback_by(call, "rating", target, value=float(rating)))
    if comment:
        feedback.append(feedback_by(call, "comment", target, text=comment))
    if correction.strip() and correction != row.inference.output.replace("\r\n", "\n"):
        feedback.append(feedback_by(call, "correction", target, text=correction))
    if not feedback:
        raise UsageError("Nothing was said: rate the answer, comment on it, or correct it.")
    store_now(call, feedback)
    place = QueuePosition(fields.get("prompt", ""), fields.get("after", ""), fields.get("passed", ""))
    return see_other(path_to("annotate", **place.fields))


def feedback_by(
    call: RequestContext,
    kind: str,
    target: str,
    *,
    value: float | None = None,
    text: str | None = None,
    label: str | None = None,
) -> Feedback:
    """Feedback of the calling annotator about an answer; its id is that of the form, so that it is stored once."""
    key = call.form.get("key", "")
    if len(key) != 36:
        raise UsageError("The form is not complete. Load the page again.")
    return Feedback(kind, target, value, text, label, source=ANNOTATOR, user=call.name, id=f"{key}-{kind}")
