"""An installation with something of everything, written through the same parts that programs and people use.

`text` turns every free text on its way in, so that the same world can be filled with hostile ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from whet.prompt import Prompt
from whet.prompt.events import Add, Effect, Expire, Measure, Rewrite
from whet_client.assignment import version_for
from whet_client.records import Feedback, Inference
from whet_live import Live
from whet_live.database import iso, time_of
from whet_live.learner.pattern_reading import PatternName
from whet_live.learner.pattern_store import PatternDay, WaitingCritique, write_day, write_pattern, write_rows
from whet_live.registry import Decision, PromptEdit

NAME = "shop/support"
SOURCE = (
    "You answer questions of customers of a shop for bicycle parts.\n\n"
    "<!-- whet:begin -->\n- Answer in the language of the question.\n<!-- whet:end -->\n\nQuestion: {{question}}\n"
)
HOUR = 3_600_000_000
START = 1_790_000_000_000_000
QUESTIONS = (
    "Does the chain fit a ten speed cassette?",
    "How do I send the pedals back?",
    "Which tyre is best in rain?",
    "Is the torque wrench in stock?",
    "Can I pay by invoice?",
)
Turn = Callable[[str], str]


@dataclass(frozen=True)
class World:
    """Where things are."""

    name: str
    proposal: str
    move: str
    own: str
    experiment: str
    answer: str


def plain(said: str) -> str:
    """A text as it is."""
    return said


def fill(
    live: Live, text: Turn = plain, short: Turn = plain, authors: tuple[str, str] = ("learner", "editor")
) -> World:
    """Fill an installation; `short` turns names and labels that strangers choose, `authors` are who learns and who
    edits."""
    learner, editor = authors
    _versions(live, text, learner, editor)
    waiting = live.registry.propose(
        f"{NAME}/2",
        PromptEdit(_second_lesson(text, learner), "instructions"),
        author=learner,
        message=text("Three complaints about prices, one about tone."),
        label="production",
        evidence={
            "complaints": 4,
            "window": text("the last seven days"),
            "probes": {
                "model": text("scripted/shop"),
                "simulated": True,
                "of": "recent traffic",
                "rows": _probes(text),
            },
        },
        gate={
            "promoted": True,
            "reason": text("Better by 0.078 on average over 120 examples."),
            "difference": 0.078,
            "low": 0.024,
            "high": 0.14,
            "examples": 120,
        },
    )
    own = live.registry.propose(
        f"{NAME}/2",
        PromptEdit(prompt=Prompt.parse(SOURCE.replace("a shop", "our shop"))),
        author=editor,
        message=text("We say our shop."),
        label="staging",
    )
    live.registry.protect(NAME, "production", actor="admin")
    move = live.registry.request_move(
        NAME, "production", 1, actor=editor, reason=text("Back to the first version.")
    )
    answer = _traffic(live, text)
    _odd_traffic(live, text, short)
    experiment = _experiment(live, text, "admin")
    return World(NAME, waiting.id, move.id, own.id, experiment, answer)


def _versions(live: Live, text: Turn, learner: str, editor: str) -> None:
    registry, start = live.registry, Prompt.parse(SOURCE)
    registry.create(
        NAME,
        start,
        author=editor,
        message=text("The first version."),
        label="production",
        config={"model": text("small"), "temperature": 0.2},
    )
    registry.create(
        "shop/greeting", Prompt.parse("Greet {{name}} kindly.\n"), author=editor, message=text("A greeting.")
    )
    events = (
        Add(
            id="i2",
            text=text("Give the price in euros, with tax."),
            critiques=(text("It told me a price without tax."), text("Is that with tax or not?")),
            evidence=("answer-1", "answer-2"),
            sources=2,
            author=learner,
            at="2026-11-20T10:00:00Z",
            tokens=9,
        ),
        Measure(id="i2", effect=Effect((31, 80), (8, 80), 0.2875, 0.151, 0.407)),
        Add(id="i3", text=text("Name the delivery time when a part is not in stock."), critiques=(text("When will it come?"),),
            evidence=("answer-3",), sources=1, author=learner, at="2026-11-20T10:00:00Z", tokens=12),
    )  # fmt: skip
    first = registry.propose(
        f"{NAME}/1",
        PromptEdit(events, "instructions"),
        author=learner,
        message=text("Prices with tax."),
        label="production",
    )
    registry.decide(first.id, Decision("approve", text("Good.")), actor=editor)


def _second_lesson(text: Turn, learner: str) -> tuple[Any, ...]:
    at = "2026-11-21T08:00:00Z"
    return (
        Rewrite(
            id="i2",
            text=text("Give every price in euros, with tax and shipping."),
            critiques=(text("Shipping came on top, nobody said so."),),
            evidence=("answer-4",),
            sources=3,
            author=learner,
            at=at,
            tokens=13,
            reason=text("Also about shipping."),
        ),
        Add(
            id="i4",
            text=text("Stay friendly when somebody complains; say what you can do."),
            critiques=(text("It was rude to me."), text("Cold answer.")),
            evidence=("answer-5", "rollout-17"),
            sources=2,
            author=learner,
            at=at,
            tokens=15,
        ),
        Measure(id="i4", effect=Effect((12, 60), (9, 60), 0.05, -0.07, 0.17)),
        Expire(id="i3", reason=text("It never made a difference."), author=learner, at=at),
    )


def _probes(text: Turn) -> list[dict[str, Any]]:
    """Two questions out of traffic, and one of a task that is answered the same."""
    return [
        {
            "about": "answer-2",
            "before": text("That costs 24 euros."),
            "after": text("That costs 24 euros, with tax and shipping."),
        },
        {
            "about": "answer-5",
            "before": text("We have none."),
            "after": text("We have none. I am sorry; it comes on Friday."),
        },
        {"inputs": {"question": text("Can I pay by card?")}, "before": text("Yes."), "after": text("Yes.")},
    ]


def _traffic(live: Live, text: Turn) -> str:
    asked, said = [], []
    for n in range(24):
        version = 1 + n % 2
        key = f"answer-{n}"
        question = QUESTIONS[(n // 2) % len(QUESTIONS)]
        asked.append(
            Inference(
                NAME,
                version,
                {"question": text(question)},
                text(f"Version {version} says: that costs {20 + n} euros."),
                id=key,
                model="small",
                cost=0.0004 + n * 1e-5,
                latency=0.4 + n / 50,
                input_tokens=180,
                output_tokens=40,
                session=f"session-{n // 3}",
                user=f"user-{n % 7}",
                time=START + n * HOUR,
            )
        )
        said.append(
            Feedback(
                "rating",
                key,
                float(1 + (n * 7 + 2 * version) % 5),
                user=f"user-{n % 7}",
                id=f"said-{n}",
                time=START + n * HOUR + 60,
            )
        )
        if n % 3 == 0:
            said.append(
                Feedback(
                    "comment",
                    key,
                    text=text("It told me a price without tax."),
                    user=f"user-{n % 7}",
                    id=f"comment-{n}",
                    time=START + n * HOUR + 90,
                )
            )
        if n % 4 == 0:
            said.append(
                Feedback("regenerate", key, 1.0, source="code", id=f"again-{n}", time=START + n * HOUR + 30)
            )
    said.append(Feedback("thumb", "not-here-yet", 0.0, text=text("Late news."), id="late", time=START))
    live.traffic.add(asked, said)
    return "answer-23"


def _odd_traffic(live: Live, text: Turn, short: Turn) -> None:
    """One answer with everything that a stranger may name, and feedback of every kind about it."""
    named: dict[str, Any] = {
        name: short(name)
        for name in ("model", "session", "user", "episode", "experiment", "variant", "response")
    }
    asked = Inference(
        NAME, 2, {short("slot"): text("Why?"), "more": {"deep": [text("deeper")]}}, text("Because."), id="odd",
        error=text("It took long."), metadata={"note": text("odd")}, time=START - HOUR, **named,
    )  # fmt: skip
    said = [
        Feedback("label", "odd", label=short("tone"), name=short("judge"), text=text("Too cold."), source="model",
                 user=short("judge"), id="odd-label", time=START, metadata={"x": text("y")}),
        Feedback("score", "odd", 0.25, name=short("accuracy"), text=text("Half."), source="code", id="odd-score",
                 time=START),
        Feedback("correction", "odd", text=text("Because it is so."), id="odd-correction", time=START),
        Feedback("comment", short("unknown"), text=text("About what?"), user=short("nobody"), id="odd-late", time=START),
        *(Feedback(kind, "odd", 1.0, id=f"odd-{kind}", time=START) for kind in
          ("copy", "edit_distance", "follow_up", "abandon", "dwell", "share", "external_check", "thumb")),
        Feedback("choice", "odd", 0.5, label=short("other"), id="odd-choice", time=START),
    ]  # fmt: skip
    live.traffic.add([asked], said)


def _experiment(live: Live, text: Turn, author: str) -> str:
    definition = {
        "prompt": NAME,
        "label": "production",
        "arms": [{"version": 1}, {"version": 2}],
        "control": 1,
        "unit": "session",
        "goal": {"name": "rating", "low": 1, "high": 5, "window": 60.0},
        "guards": [
            {"metric": {"name": "latency", "direction": "min", "low": 0, "high": 10, "window": 60.0}, "limit": 1.0},
            {
                "metric": {"name": "cost", "direction": "min", "low": 0, "high": 0.01, "window": 60.0},
                "limit": 0.002,
                "against": "value",
            },
        ],
        "policy": {"kind": "thompson"},
    }  # fmt: skip
    found = live.experiments.create(definition, author=author, message=text("Does naming the tax help?"))
    told = found.assignment()
    asked, said = [], []
    for n in range(60):
        session = f"trial-{n}"
        version = version_for(told, session)
        moment = found.created + n * 1000
        asked.append(
            Inference(
                NAME,
                version,
                {"question": text(QUESTIONS[n % 5])},
                text("It costs 30 euros, with tax."),
                id=f"trial-{n}",
                session=session,
                cost=0.0005,
                latency=0.5,
                experiment=found.id,
                variant=str(told["revision"]),
                time=moment,
            )
        )
        stars = float(3 + (n % 3 if version == 2 else -(n % 3)))
        said.append(Feedback("rating", f"trial-{n}", stars, id=f"trial-said-{n}", time=moment + 500))
    live.traffic.add(asked, said)
    return found.id


def name_failures(live: Live, text: Turn = plain, short: Turn = plain) -> None:
    """Six users of the experiment miss the tax, which the reader named as one pattern."""
    said = [
        Feedback("comment", f"trial-{n}", text=text("Is that with tax?"), user=f"buyer-{n}", id=f"tax-{n}")
        for n in range(6)
    ]
    live.traffic.add([], said)
    with live.registry.change() as connection:
        at = time_of(connection)
        one = PatternName(1, short("Prices without tax"), text("Answers about a price leave out the tax."))
        write_pattern(connection, NAME, one, ["tax-0"], "openai/reader", at)
        rows = [(WaitingCritique(row.id, row.target, at, 0), 1, "", 0) for row in said]
        write_rows(connection, NAME, rows, at)
        write_day(connection, PatternDay(NAME, iso(at)[:10], 1, 1, at))


def rate_often(live: Live) -> None:
    """Twelve people rate two answers of each version today, so that there is a joined reward."""
    asked = [
        Inference(
            NAME, version, {"question": "Why?"}, "So.", id=f"rated-{version}-{n}", user=f"rater-{n % 12}"
        )
        for version in (1, 2)
        for n in range(24)
    ]
    said = [
        Feedback("rating", one.id, float(2 + one.version + n % 2), user=one.user)
        for n, one in enumerate(asked)
    ]
    live.traffic.add(asked, said)
