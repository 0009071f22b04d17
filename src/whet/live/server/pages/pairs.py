"""Two answers of different versions to the same inputs, side by side: which one is better?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import orjson
from starlette.responses import Response

from whet.errors import UsageError
from whet.live.choices import Choice, apart, choices_of, next_of, standings
from whet.live.database import new_id
from whet.live.server.endpoint import EndpointRouter
from whet.live.server.pages.annotate import AHEAD, feedback_by, turn
from whet.live.server.pages.layout import page
from whet.live.server.pages.parts import (
    asking,
    button,
    choice,
    form,
    hidden,
    key_cap,
    link,
    nothing,
    path_to,
    text_area,
    text_input,
)
from whet.live.server.pages.traffic_views import inputs_of, text_box
from whet.live.server.request_context import RequestContext
from whet.live.server.responses import not_found, see_other
from whet.live.server.roles import Role
from whet.live.server.v1.ingest import store_now
from whet.live.traffic import Filter, StoredInference
from whet.reporting.layout import note, table
from whet.reporting.markup import Child, Html, el

book = EndpointRouter()
SOUGHT = 400

Pair: TypeAlias = tuple[StoredInference, StoredInference]


@book("GET", "/pairs", Role.ANNOTATOR)
def pairs(call: RequestContext) -> Response:
    """Two answers of different versions to the same inputs."""
    prompt = call.query_params.get("prompt", "").strip()
    wanted = Filter(prompt=prompt or None, unreviewed=True)
    by_prompt = pairs_in(call.house.live.traffic.inferences(wanted, SOUGHT).rows)
    search = asking(
        "/pairs", text_input("prompt", "Prompt (all, when empty)", prompt), button("Show"), label="Pairs"
    )
    back = el("p", link("Rate single answers instead", path_to("annotate", prompt=prompt), data_key="p"))
    if not by_prompt:
        hint = (
            "A pair needs the same inputs answered by two versions, as an experiment or a replay brings them."
        )
        return page(call, "Compare two answers", "annotate", search, back, nothing("There is no pair.", hint))
    name, answers = next(iter(by_prompt.items()))
    choices = choices_of(call.house.live.database, name)
    left, right = _next(call, answers, choices)
    sides = [
        el("div", text_box(f"Answer {word}", one.inference.output, big=True))
        for word, one in (("A", left), ("B", right))
    ]
    entry = form(
        call,
        "/pairs",
        hidden(left=left.inference.id, right=right.inference.id, key=new_id(), prompt=prompt),
        el(
            "fieldset",
            el("legend", "Which one is better?"),
            el(
                "div",
                choice("choice", "left", "A is better", key="a"),
                choice("choice", "equal", "Equal", key="e"),
                choice("choice", "right", "B is better", key="b"),
                class_="tiles",
            ),
        ),
        text_area("comment", "Why?", rows=2, maxlength=32_000, data_key="c", data_hint="Write a comment"),
        el("div", button(["Save and next", key_cap("Ctrl ⏎")], "main"), class_="buttons"),
        label="Choice",
        main=True,
    )
    hint = note("Which version wrote which answer is not shown, so that it does not sway you.")
    standing = _standings(choices)
    shown: list[Child] = [inputs_of(left.inference.inputs), el("div", sides, class_="duel"), entry, standing]
    return page(call, "Compare two answers", "annotate", search, back, hint, *shown, wide=True)


def pairs_in(rows: Sequence[StoredInference]) -> dict[str, dict[tuple[int, int], list[Pair]]]:
    """For each prompt and each two versions of it, the answers that differ to the same inputs, two at a time, at most
    `AHEAD`. Which answer comes first depends on the ids only, so that the newer version has no place of its own."""
    seen: dict[bytes, list[StoredInference]] = {}
    by_prompt: dict[str, dict[tuple[int, int], list[Pair]]] = {}
    for row in rows:
        one = row.inference
        key = orjson.dumps([one.prompt, one.inputs], option=orjson.OPT_SORT_KEYS)
        for other in seen.setdefault(key, []):
            before = other.inference
            if before.version != one.version and before.output != one.output:
                low, high = sorted((before.version, one.version))
                first, second = sorted((other, row), key=lambda by_prompt: by_prompt.inference.id[::-1])
                pairs = by_prompt.setdefault(one.prompt, {}).setdefault((low, high), [])
                if len(pairs) < AHEAD:
                    pairs.append((first, second))
        seen[key].append(row)
    return by_prompt


def _next(call: RequestContext, pairs: dict[tuple[int, int], list[Pair]], choices: Sequence[Choice]) -> Pair:
    """The pair to show next: of the versions whose comparison teaches most, by the choices so far, the answers whose turn
    is next for this annotator."""
    shown = pairs[next_of(choices, pairs)]
    return min(shown, key=lambda pair: turn(call.name, pair[0].inference.id + pair[1].inference.id))


def _standings(choices: Sequence[Choice]) -> Html | None:
    """What the choices say so far about the versions; closed, so that it does not sway who chooses."""
    ranking, groups = standings(choices), apart(choices)
    if not ranking:
        return None
    rows: list[list[Child]] = [
        [f"version {version}", f"{one.against_average:.0%}", f"{one.strength:+.2f}",
         f"{one.low:+.2f} to {one.high:+.2f}", str(one.n)]
        for version, one in ranking.items()
    ]  # fmt: skip
    head = ["Version", "Beats an average one", "Strength", "95 % interval", "Choices"]
    shown = table("Strength in log-odds, after Bradley and Terry", head, rows)
    unmet = " · ".join(", ".join(map(str, group)) for group in groups)
    warning = f"Nobody compared versions of these groups with each other: {unmet}. Their order says nothing."
    warned = note(warning) if len(groups) > 1 else None
    return el("details", el("summary", "What the choices say so far"), shown, warned)


@book("POST", "/pairs", Role.ANNOTATOR)
def choose(call: RequestContext) -> Response:
    """Store the choice for one side, and the comment for the side that lost."""
    fields, traffic = call.form, call.house.live.traffic
    left, right, chosen = fields.get("left", ""), fields.get("right", ""), fields.get("choice", "")
    if any(traffic.inference(key) is None for key in (left, right)):
        raise not_found("such pair")
    values = {"left": 1.0, "equal": 0.5, "right": 0.0}
    if chosen not in values:
        raise UsageError("Choose A, B or equal.")
    feedback = [feedback_by(call, "choice", left, value=values[chosen], label=right)]
    comment = fields.get("comment", "").strip()
    if comment:
        feedback.append(feedback_by(call, "comment", right if chosen == "left" else left, text=comment))
    store_now(call, feedback)
    return see_other(path_to("pairs", prompt=fields.get("prompt", "")))
