"""The annotation queue: one answer after another, rated by keyboard, commented, corrected; and two answers compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import orjson
from starlette.responses import Response

from whet.errors import show_share
from whet.reporting import Child, Html, details, el, note, table
from whet.types import content_hash
from whet_client import Feedback
from whet_live import Choice, bradley_terry_strengths, disconnected_groups, load_pairwise_votes, next_pair
from whet_live.database import new_id
from whet_live.server.endpoint import EndpointRouter
from whet_live.server.pages import ui
from whet_live.server.pages.feedback import about_inference, inputs_of, text_box
from whet_live.server.request_context import RequestContext
from whet_live.server.responses import Refused, not_found, see_other
from whet_live.server.roles import Role
from whet_live.server.v1.ingest import ANNOTATOR, store_now
from whet_live.traffic import Filter, StoredInference

router = EndpointRouter()
AHEAD = 16
"""The number of newest answers that each reviewer sees in an order of their own."""
STARS = {1: "useless", 2: "poor", 3: "mixed", 4: "good", 5: "perfect"}
SOUGHT = 400


@dataclass(frozen=True, slots=True)
class QueuePosition:
    """A reviewer's place in the queue: the prompt asked for (all, when empty), the cursor after which the answers lie, and the
    turn of the last one that was skipped there."""

    prompt: str = ""
    after: str = ""
    passed: str = ""

    @property
    def fields(self) -> dict[str, str]:
        """The fields of a form or an address that carry it."""
        return {"prompt": self.prompt, "after": self.after, "passed": self.passed}

    @classmethod
    def read(cls, fields: dict[str, str]) -> QueuePosition:
        """The place that a form or an address carries."""
        return cls(fields.get("prompt", "").strip(), fields.get("after", ""), fields.get("passed", ""))


@router("GET", "/annotate", Role.ANNOTATOR)
def queue(call: RequestContext) -> Response:
    """The next answer that no annotator has seen."""
    row, place = _next(call, QueuePosition.read(call.query_params))
    if row is not None:
        return _work(call, row, place, replace(place, passed=turn(call.name, row.inference.id)))
    empty = ui.nothing("Nothing waits.", "Every answer here has been seen by an annotator.")
    if place.after or place.passed:
        again = ui.link("Start again", ui.path_to("annotate", prompt=place.prompt))
        empty = ui.nothing("Nothing waits behind what you skipped.", again)
    return ui.page(call, "Annotate", "annotate", _head(place.prompt), empty)


def _next(call: RequestContext, place: QueuePosition) -> tuple[StoredInference | None, QueuePosition]:
    """The answer whose turn is next for this annotator among the newest that wait, and where that is."""
    wanted = Filter(prompt=place.prompt or None, unreviewed=True)
    while True:
        batch = call.state.live.traffic.inferences(wanted, AHEAD, place.after or None)
        turns = {turn(call.name, row.inference.id): row for row in batch.rows}
        left = [key for key in turns if key > place.passed]
        if left:
            return turns[min(left)], place
        if batch.next is None:
            return None, place
        place = QueuePosition(place.prompt, batch.next)


def turn(who: str, what: str) -> str:
    """The turn of a reviewer for an answer: everybody has an order of their own, so that two people who work at the same time
    seldom do the same."""
    return content_hash([who, what])[:16]


@router("GET", "/annotate/{id:path}", Role.ANNOTATOR)
def one(call: RequestContext) -> Response:
    """One answer, also one that was rated before."""
    return _work(call, find_inference(call, call.path("id")), QueuePosition(), None)


def find_inference(call: RequestContext, key: str) -> StoredInference:
    """The answer of that id. Raises Refused (404)."""
    row = call.state.live.traffic.inference(key)
    if row is None:
        raise not_found("such answer")
    return row


def _head(prompt: str) -> Html:
    field = ui.text_input("prompt", "Prompt (all, when empty)", prompt)
    pairs = ui.link("Compare two answers instead", ui.path_to("pairs", prompt=prompt), data_key="p")
    return el("div", ui.search_form("/annotate", field, label="Queue", word="Show"), el("p", pairs))


def _work(
    call: RequestContext,
    row: StoredInference,
    place: QueuePosition,
    beyond: QueuePosition | None,
    key: str = "",
) -> Response:
    """The form for one answer; `key` is the id of what was sent before, empty for a new one."""
    answer = row.inference
    skip = None
    if beyond is not None:
        path = ui.path_to("annotate", **beyond.fields)
        text = ["Skip", ui.key_cap("s")]
        skip = ui.link(text, path, class_="button", data_key="s", data_hint="Skip this answer")
    scale = [
        ui.tile("rating", n, [el("b", str(n)), el("small", word)], key=str(n), data_hint=f"{n}: {word}")
        for n, word in STARS.items()
    ]
    hint = "In plain words: this is what the prompt learns from."
    corrected = ui.text_area("correction", "Corrected answer", answer.output, rows=8, maxlength=32_000)
    entry = ui.form(
        call,
        "/annotate",
        ui.hidden_fields(target=answer.id, key=key or new_id(), **place.fields),
        ui.tiles("How good is the answer?", scale, class_="tiles scale"),
        comment_box(3, hint),
        el("details", el("summary", "Write the answer as it should have been", data_key="w"), corrected),
        ui.buttons(save_and_next(), skip),
        class_="side-form",
        label="Rating",
        main=True,
    )
    about = details("About this answer", about_inference(answer))
    seen = el("div", inputs_of(answer.inputs), text_box("Answer", answer.output, big=True), about)
    keys = el("p", "Keys: 1 to 5 rate, c comments, s skips, ? lists all keys.", class_="note keys-note")
    work = el("div", seen, entry, class_="work")
    return ui.page(call, "Annotate", "annotate", _head(place.prompt), work, keys, wide=True)


def comment_box(rows: int, hint: str = "") -> Html:
    """The field for an annotator's reason."""
    return ui.text_area("comment", "Why?", rows=rows, maxlength=32_000, hint=hint, data_key="c",
                        data_hint="Write a comment")  # fmt: skip


def save_and_next() -> Html:
    """The button that sends what an annotator did."""
    return ui.button(["Save and next", ui.key_cap("Ctrl ⏎")], "main")


def _rate_again(call: RequestContext) -> Response:
    fields = call.form
    row = find_inference(call, fields.get("target", ""))
    place = QueuePosition.read(fields)
    return _work(
        call, row, place, replace(place, passed=turn(call.name, row.inference.id)), fields.get("key", "")
    )


@router("POST", "/annotate", Role.ANNOTATOR, form=_rate_again)
def rate(call: RequestContext) -> Response:
    """Store the annotator's feedback. The form carries its own id, so that sending it twice stores it once."""
    fields, target = call.form, call.form.get("target", "")
    row = find_inference(call, target)
    feedback: list[Feedback] = []
    rating, comment = fields.get("rating", ""), fields.get("comment", "").strip()
    correction = fields.get("correction", "")
    if rating:
        if rating not in map(str, STARS):
            raise Refused(400, "A rating is a number from 1 to 5.")
        feedback.append(feedback_by(call, "rating", target, value=float(rating)))
    if comment:
        feedback.append(feedback_by(call, "comment", target, text=comment))
    if correction.strip() and correction != row.inference.output.replace("\r\n", "\n"):
        feedback.append(feedback_by(call, "correction", target, text=correction))
    if not feedback:
        raise Refused(400, "Nothing was said: rate the answer, comment on it, or correct it.")
    store_now(call, feedback)
    return see_other(ui.path_to("annotate", **QueuePosition.read(fields).fields))


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
        raise Refused(400, "The form is not complete. Load the page again.")
    return Feedback(kind, target, value, text, label, source=ANNOTATOR, user=call.name, id=f"{key}-{kind}")


Pair: TypeAlias = tuple[StoredInference, StoredInference]
Pairs: TypeAlias = dict[tuple[int, int], list[Pair]]
"""Pairs of answers by the two versions that gave them."""


@router("GET", "/pairs", Role.ANNOTATOR)
def pairs(call: RequestContext) -> Response:
    """Two answers of different versions to the same inputs."""
    prompt = call.query_params.get("prompt", "").strip()
    wanted = Filter(prompt=prompt or None, unreviewed=True)
    by_prompt = pairs_in(call.state.live.traffic.inferences(wanted, SOUGHT).rows)
    shown = _duel(call, prompt, *next(iter(by_prompt.items()))) if by_prompt else None
    return _pairs_page(call, prompt, shown)


def _pairs_page(call: RequestContext, prompt: str, duel: Child) -> Response:
    field = ui.text_input("prompt", "Prompt (all, when empty)", prompt)
    search = ui.search_form("/pairs", field, label="Pairs", word="Show")
    single = ui.link("Rate single answers instead", ui.path_to("annotate", prompt=prompt), data_key="p")
    hint = "A pair needs the same inputs answered by two versions, as an experiment or a replay brings them."
    shown = ui.nothing("There is no pair.", hint) if duel is None else duel
    wide = duel is not None
    return ui.page(call, "Compare two answers", "annotate", search, el("p", single), shown, wide=wide)


def _duel(call: RequestContext, prompt: str, name: str, answers: Pairs) -> list[Child]:
    choices = load_pairwise_votes(call.state.live.database, name)
    pairs = answers[next_pair(choices, answers)]  # of the two versions whose comparison teaches most by now
    pair = min(pairs, key=lambda pair: turn(call.name, "".join(one.inference.id for one in pair)))
    return _choice(call, prompt, choices, pair, new_id())


def _choice(
    call: RequestContext, prompt: str, choices: Sequence[Choice], pair: Pair, key: str
) -> list[Child]:
    left, right = pair
    sides = [
        el("div", text_box(f"Answer {word}", one.inference.output, big=True))
        for word, one in (("A", left), ("B", right))
    ]
    entry = ui.form(
        call,
        "/pairs",
        ui.hidden_fields(left=left.inference.id, right=right.inference.id, key=key, prompt=prompt),
        ui.tiles(
            "Which one is better?",
            ui.tile("choice", "left", ["A is better", ui.key_cap("a")], key="a"),
            ui.tile("choice", "equal", ["Equal", ui.key_cap("e")], key="e"),
            ui.tile("choice", "right", ["B is better", ui.key_cap("b")], key="b"),
        ),
        comment_box(2),
        ui.buttons(save_and_next()),
        label="Choice",
        main=True,
    )
    hint = note("Which version wrote which answer is not shown, so that it does not sway you.")
    return [
        hint,
        inputs_of(left.inference.inputs),
        el("div", sides, class_="duel"),
        entry,
        _standings(choices),
    ]


def pairs_in(rows: Sequence[StoredInference]) -> dict[str, Pairs]:
    """For each prompt and each two versions of it, the answers that differ to the same inputs, two at a time, at most
    `AHEAD`. Which answer comes first depends on the ids only, so that the newer version has no place of its own."""
    seen: dict[bytes, list[StoredInference]] = {}
    by_prompt: dict[str, Pairs] = {}
    for row in rows:
        one = row.inference
        key = orjson.dumps([one.prompt, one.inputs], option=orjson.OPT_SORT_KEYS)
        for other in seen.setdefault(key, []):
            before = other.inference
            if before.version != one.version and before.output != one.output:
                low, high = sorted((before.version, one.version))
                first, second = sorted((other, row), key=lambda answer: answer.inference.id[::-1])
                pairs = by_prompt.setdefault(one.prompt, {}).setdefault((low, high), [])
                if len(pairs) < AHEAD:
                    pairs.append((first, second))
        seen[key].append(row)
    return by_prompt


def _standings(choices: Sequence[Choice]) -> Html | None:
    """The result of the choices so far. It is closed, so that it does not influence the annotator."""
    ranking, groups = bradley_terry_strengths(choices), disconnected_groups(choices)
    if not ranking:
        return None
    rows: list[list[Child]] = [
        [f"version {version}", show_share(one.against_average), f"{one.strength:+.2f}",
         f"{one.low:+.2f} to {one.high:+.2f}", str(one.n)]
        for version, one in ranking.items()
    ]  # fmt: skip
    head = [
        "Version",
        "Beats an average one",
        "Strength",
        f"95% interval ({next(iter(ranking.values())).method})",
        "Choices",
    ]
    shown = table("Strength in log-odds, after Bradley and Terry", head, rows)
    unmet = " · ".join(", ".join(map(str, group)) for group in groups)
    warning = f"Nobody compared versions of these groups with each other: {unmet}. Their order says nothing."
    return details("What the choices say so far", shown, len(groups) > 1 and note(warning))


def _choose_again(call: RequestContext) -> Response:
    fields = call.form
    left, right = (find_inference(call, fields.get(side, "")) for side in ("left", "right"))
    choices = load_pairwise_votes(call.state.live.database, left.inference.prompt)
    shown = _choice(call, fields.get("prompt", ""), choices, (left, right), fields.get("key", ""))
    return _pairs_page(call, fields.get("prompt", ""), shown)


@router("POST", "/pairs", Role.ANNOTATOR, form=_choose_again)
def choose(call: RequestContext) -> Response:
    """Store the choice for one side, and the comment for the side that lost."""
    fields = call.form
    left, right, chosen = fields.get("left", ""), fields.get("right", ""), fields.get("choice", "")
    for key in (left, right):
        find_inference(call, key)
    values = {"left": 1.0, "equal": 0.5, "right": 0.0}
    if chosen not in values:
        raise Refused(400, "Choose A, B or equal.")
    feedback = [feedback_by(call, "choice", left, value=values[chosen], label=right)]
    comment = fields.get("comment", "").strip()
    if comment:
        feedback.append(feedback_by(call, "comment", right if chosen == "left" else left, text=comment))
    store_now(call, feedback)
    return see_other(ui.path_to("pairs", prompt=fields.get("prompt", "")))
