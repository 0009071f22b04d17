"""Two answers of different versions to the same inputs, side by side: which one is better?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import orjson
from starlette.responses import Response

from whet.live import Choice, apart, choices_of, next_of, standings
from whet.live.database import new_id
from whet.live.server.endpoint import EndpointRouter
from whet.live.server.pages import ui
from whet.live.server.pages.annotate import (
    AHEAD,
    comment_box,
    feedback_by,
    inference_of,
    save_and_next,
    turn,
)
from whet.live.server.pages.traffic_views import inputs_of, text_box
from whet.live.server.request_context import RequestContext
from whet.live.server.responses import Refused, see_other
from whet.live.server.roles import Role
from whet.live.server.v1.ingest import store_now
from whet.live.traffic import Filter, StoredInference
from whet.reporting import Child, Html, details, el, note, table

router = EndpointRouter()
SOUGHT = 400

Pair: TypeAlias = tuple[StoredInference, StoredInference]
Pairs: TypeAlias = dict[tuple[int, int], list[Pair]]
"""Pairs of answers by the two versions that gave them."""


@router("GET", "/pairs", Role.ANNOTATOR)
def pairs(call: RequestContext) -> Response:
    """Two answers of different versions to the same inputs."""
    prompt = call.query_params.get("prompt", "").strip()
    wanted = Filter(prompt=prompt or None, unreviewed=True)
    by_prompt = pairs_in(call.state.live.traffic.inferences(wanted, SOUGHT).rows)
    field = ui.text_input("prompt", "Prompt (all, when empty)", prompt)
    search = ui.search_form("/pairs", field, label="Pairs", word="Show")
    single = ui.link("Rate single answers instead", ui.path_to("annotate", prompt=prompt), data_key="p")
    shown = _duel(call, prompt, *next(iter(by_prompt.items()))) if by_prompt else [_no_pair()]
    wide = bool(by_prompt)
    return ui.page(call, "Compare two answers", "annotate", search, el("p", single), shown, wide=wide)


def _no_pair() -> Html:
    hint = "A pair needs the same inputs answered by two versions, as an experiment or a replay brings them."
    return ui.nothing("There is no pair.", hint)


def _duel(call: RequestContext, prompt: str, name: str, answers: Pairs) -> list[Child]:
    choices = choices_of(call.state.live.database, name)
    left, right = _next(call, answers, choices)
    sides = [
        el("div", text_box(f"Answer {word}", one.inference.output, big=True))
        for word, one in (("A", left), ("B", right))
    ]
    entry = ui.form(
        call,
        "/pairs",
        ui.hidden(left=left.inference.id, right=right.inference.id, key=new_id(), prompt=prompt),
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


def _next(call: RequestContext, pairs: Pairs, choices: Sequence[Choice]) -> Pair:
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
    head = [
        "Version",
        "Beats an average one",
        "Strength",
        f"95 % interval ({next(iter(ranking.values())).method})",
        "Choices",
    ]
    shown = table("Strength in log-odds, after Bradley and Terry", head, rows)
    unmet = " · ".join(", ".join(map(str, group)) for group in groups)
    warning = f"Nobody compared versions of these groups with each other: {unmet}. Their order says nothing."
    return details("What the choices say so far", shown, len(groups) > 1 and note(warning))


@router("POST", "/pairs", Role.ANNOTATOR)
def choose(call: RequestContext) -> Response:
    """Store the choice for one side, and the comment for the side that lost."""
    fields = call.form
    left, right, chosen = fields.get("left", ""), fields.get("right", ""), fields.get("choice", "")
    for key in (left, right):
        inference_of(call, key)
    values = {"left": 1.0, "equal": 0.5, "right": 0.0}
    if chosen not in values:
        raise Refused(400, "Choose A, B or equal.")
    feedback = [feedback_by(call, "choice", left, value=values[chosen], label=right)]
    comment = fields.get("comment", "").strip()
    if comment:
        feedback.append(feedback_by(call, "comment", right if chosen == "left" else left, text=comment))
    store_now(call, feedback)
    return see_other(ui.path_to("pairs", prompt=fields.get("prompt", "")))
