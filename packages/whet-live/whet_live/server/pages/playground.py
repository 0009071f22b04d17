"""The playground of a prompt: an input, one version or two, a model, what it costs, and the answers side by side. The input may
be that of an answer that was given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import orjson
from starlette.responses import Response

from whet.errors import show_size
from whet.reporting import Html, el, note, number_format, prompt_text, region
from whet_live.database import new_id
from whet_live.playground import Playground, PlaygroundAnswer
from whet_live.registry import Version
from whet_live.server.endpoint import EndpointRouter
from whet_live.server.pages import ui
from whet_live.server.request_context import RequestContext
from whet_live.server.responses import Refused, not_found, or_404, or_409
from whet_live.server.roles import Role

router = EndpointRouter()
ESTIMATE, RUN = "estimate", "run"
MASK = "mask"
SLOT = "slot-"
"""The prefix of the inputs' fields."""


@router("GET", "/playground/{name:path}", Role.EDITOR)
def show(call: RequestContext) -> Response:
    """The form for a version (`version`; the newest) and another one beside it (`other`), with the input of an `answer`."""
    fields = dict(call.query_params)
    inputs = _inputs_of(call, fields["answer"]) if fields.get("answer") else {}
    filled = {f"{SLOT}{name}": _as_text(value) for name, value in inputs.items()}
    above = _describe_input(call, fields, inputs) if inputs else None
    return _page(call, {**filled, **fields}, above=above)


def _inputs_of(call: RequestContext, key: str) -> Mapping[str, object]:
    """The inputs of an answer of this prompt. Raises Refused where there is none."""
    stored = call.state.live.traffic.inference(key)
    if stored is None or stored.inference.prompt != call.path("name"):
        raise not_found("such answer of this prompt, or it was deleted")
    return stored.inference.inputs


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _describe_input(call: RequestContext, fields: Mapping[str, str], inputs: Mapping[str, object]) -> Html:
    """Whose input it is, and what of it does not fit the versions that are chosen."""
    slots = _slots(_versions(call, fields))
    link = ui.link("an answer", ui.path_to("feedback", fields["answer"]))
    words = ["The input is that of ", link, "."]
    if empty := [f"{{{{{slot}}}}}" for slot in slots if slot not in inputs]:
        words.append(f" It has no value for {', '.join(empty)}.")
    if unused := [str(name) for name in inputs if name not in slots]:
        words.append(f" No slot takes its {', '.join(unused)}.")
    return note(*words)


def _show_again(call: RequestContext) -> Response:
    return _page(call, call.form)


@router("POST", "/playground/{name:path}", Role.EDITOR, form=_show_again)
def run(call: RequestContext) -> Response:
    """Say what a run costs at most, or run it; the page shows what was sent, and the answers."""
    playground, fields = _playground(call), call.form
    versions = _versions(call, fields)
    values = {slot: fields.get(f"{SLOT}{slot}", "") for slot in _slots(versions)}
    do, _, key = fields.get("do", "").partition(" ")
    plan = playground.plan(key[:36] or new_id(), versions, values, fields.get("model", ""))
    if do != RUN:
        many = number_format.plural(len(versions), "answer")
        text = f"At most {_dollars(plan.most)} for {many}. Nothing was asked yet."
        return _page(call, fields, ui.card("What it costs", el("p", text), status=True))
    answers = or_409(playground.run, plan, call.name)
    return _page(call, fields, _answers(answers))


def _playground(call: RequestContext) -> Playground:
    if call.state.playground is None:
        raise Refused(
            404,
            "This server has no playground. Its owner names models for one: whet serve --playground FILE.",
        )
    return call.state.playground


def _versions(call: RequestContext, fields: Mapping[str, str]) -> list[Version]:
    """The version, and the other one where one is named. Raises Refused for one that is not there."""
    registry, name = call.state.live.registry, call.path("name")
    labels = or_404(registry.labels, name)
    number = ui.whole_number(fields["version"], "A version") if fields.get("version") else labels["latest"]
    numbers = [number]
    if fields.get("other"):
        other = ui.whole_number(fields["other"], "The other version")
        numbers += [other] if other != number else []
    return [or_404(registry.get, f"{name}/{one}") for one in numbers]


def _slots(versions: Sequence[Version]) -> list[str]:
    """The fields to fill in: the slots of the versions, or the one input of versions without slots."""
    slots = {slot for one in versions for slot in (one.prompt.slots - {MASK}) or {"input"}}
    return sorted(slots)


def _page(
    call: RequestContext, fields: Mapping[str, str], below: Html | None = None, *, above: Html | None = None
) -> Response:
    playground, name = _playground(call), call.path("name")
    versions = _versions(call, fields)
    chosen = versions[0].version
    other = str(versions[1].version) if len(versions) > 1 else ""
    which = ui.search_form(
        ui.path_to("playground", name),
        ui.text_input("version", "Version", str(chosen), inputmode="numeric"),
        ui.text_input("other", "Beside it", other, inputmode="numeric", placeholder="none"),
        ui.hidden_fields(answer=fields["answer"]) if fields.get("answer") else None,
        label="Versions",
        word="Choose",
    )
    boxes = [
        ui.text_area(f"{SLOT}{slot}", f"{{{{{slot}}}}}", fields.get(f"{SLOT}{slot}", ""), rows=4)
        for slot in _slots(versions)
    ]
    models = [(address, _describe_model(playground, address)) for address in playground.config.models]
    entry = ui.form(
        call,
        ui.path_to("playground", name),
        ui.hidden_fields(version=chosen, other=other),
        boxes,
        ui.select(
            "model", "Model (dollars for a million tokens read, written)", models, fields.get("model", "")
        ),
        ui.buttons(
            ui.button("Run", "main", name="do", value=f"{RUN} {new_id()}"),
            ui.button("What does it cost?", name="do", value=ESTIMATE),
        ),
    )
    spent, daily = playground.spent(), playground.config.usd_per_day
    hint = (
        f"Spent today (UTC): {_dollars(spent)} of {_dollars(daily)}. Who ran what is in the audit log; inputs and answers "
        "are stored nowhere."
    )
    title = f"Version {chosen}" + (f" and version {other}" if other else "")
    places = [("Prompts", "/prompts"), (name, ui.path_to("prompts", name))]
    return ui.page(
        call,
        f"Playground of {name}",
        "prompts",
        note(hint),
        which,
        above,
        ui.section(title, entry),
        below,
        above=places,
    )


def _describe_model(playground: Playground, address: str) -> str:
    price = playground.config.models[address].price
    if price is None or not (price.input or price.output):
        return f"{address} (free)"
    return f"{address} (${price.input:g}, ${price.output:g})"


def _answers(answers: Sequence[PlaygroundAnswer]) -> Html:
    total = [one.cost for one in answers if one.cost is not None]
    unknown = len(answers) - len(total)
    cost = f"It cost {_dollars(sum(total))}."
    if unknown:
        cost += (
            f" What {unknown} of {len(answers)} answers cost is not known: the most that it may be counts."
        )
    body = el("div", [_answer(one) for one in answers], class_="duel" if len(answers) > 1 else None)
    return ui.section("Answers", el("p", cost, role="status"), body, id="answers")


def _answer(one: PlaygroundAnswer) -> Html:
    facts = f"{one.input_tokens:,} tokens read, {one.output_tokens:,} written, {show_size(one.seconds, 2)} s"
    facts += f", {_dollars(one.cost)}" if one.cost is not None else ""
    title = f"Version {one.version}"
    shown = [
        one.error and el("p", el("b", "No answer: "), one.error, class_="reason", dir="auto"),
        one.text and region("pre", prompt_text(one.text), label=f"Answer of version {one.version}"),
    ]
    return el("div", el("h3", title), shown, el("p", facts, class_="quiet"))


def _dollars(value: float) -> str:
    """A sum as people read it, which is never rounded to nothing."""
    if 0 < value < 1e-6:
        return "less than $0.000001"
    text = f"{value:.2f}" if value >= 1 or value == 0 else f"{value:.6f}".rstrip("0")
    return f"${text}"
