"""Answers to a few fixed questions under the version that stands and under the one that is proposed, for whoever decides.

With a task folder they are rows of its validation split, those marked as guards first, whose answers the gate has paid for.
Without one a model is asked about inputs of recent traffic, one of each user, drawn by the id of the update so that nobody
who sends traffic chooses them. Which rows they are never depends on the answers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from whet.errors import WhetError
from whet.feedback.model_session import learning_run
from whet.live.learner.learner_store import PromptUpdate
from whet.live.traffic import Filter, StoredInference
from whet.prompt import Prompt
from whet.run import Run
from whet.types import Example, Request, Rollout, content_hash

if TYPE_CHECKING:
    from whet.live.learner.context import LearnerContext

MOST = 4
LONGEST = 4_000
"""Characters that are kept of an input and of an answer."""
_SOUGHT = 200


def of_task(
    prompts: Sequence[Prompt],
    examples: Sequence[Example],
    answered: Sequence[Sequence[Rollout]],
    first: Collection[int],
) -> list[dict[str, Any]]:
    """What two prompts answered to the first `MOST` examples, those at the places `first` before the others: for each its
    inputs, and the answers or errors `before` and `after`."""
    order = sorted(range(len(examples)), key=lambda place: (place not in first, place))[:MOST]
    slots = frozenset[str]().union(*(prompt.slots for prompt in prompts))
    return [
        {
            "inputs": _inputs(examples[place].values, slots),
            "before": _answer(answered[0][place].output, answered[0][place].error),
            "after": _answer(answered[1][place].output, answered[1][place].error),
        }
        for place in order
    ]


async def of_traffic(
    context: LearnerContext, update: PromptUpdate, before: Prompt, after: Prompt
) -> dict[str, Any]:
    """What the model of the learner answers to recent inputs, at most 2 `MOST` calls: `model`, `simulated`, `rows` (each
    `about` an answer, whose inputs stay where they are), and the `reason` why there are none."""
    address = context.config.lm
    if address is None:
        return _none("The learner has neither a task (--gate) nor a model (--lm) to answer with.")
    chosen = _recent(context, update, before.slots | after.slots)
    if not chosen:
        return _none(f"No recent input of {update.name} fills both texts.")
    identity = {
        "task": update.name.replace("/", "-").replace(" ", "_") + "-probes",
        "prompts": [before.id, after.id],
        "inputs": content_hash([row.inference.id for row in chosen]),
    }
    requests = [_request(prompt, row) for row in chosen for prompt in (before, after)]
    config = context.config
    try:
        async with learning_run(
            address, config.base_url, config.root, identity, 2 * len(requests)
        ) as session:
            answers = await session.run.map(_ask, requests)
            model = {"model": session.address, "simulated": session.simulated}
    except WhetError as error:
        return _none(f"The model did not answer: {error}")
    pairs = zip(chosen, answers[::2], answers[1::2], strict=True)
    rows = [{"about": row.inference.id, "before": old, "after": new} for row, old, new in pairs]
    return {**model, "of": "recent traffic", "rows": rows}


def _recent(context: LearnerContext, update: PromptUpdate, slots: frozenset[str]) -> list[StoredInference]:
    by_user: dict[str, StoredInference] = {}
    seen: set[str] = set()
    rows = context.traffic.inferences(Filter(prompt=update.name), _SOUGHT).rows
    for row in sorted(rows, key=lambda row: content_hash([update.id, row.inference.id])):
        one = row.inference
        texts = {name: value for name, value in one.inputs.items() if isinstance(value, str)}
        key = content_hash(texts)
        if slots <= texts.keys() and key not in seen and all(len(text) <= LONGEST for text in texts.values()):
            seen.add(key)
            by_user.setdefault(one.user or one.session or "", row)
    return list(by_user.values())[:MOST]


def _request(prompt: Prompt, row: StoredInference) -> Request:
    values = {name: value for name, value in row.inference.inputs.items() if isinstance(value, str)}
    return Request(prompt.render(Example(row.inference.id, values)))


async def _ask(run: Run, request: Request) -> str:
    (answer,) = await run.generate("optimizer", request)
    return _answer(answer.text, answer.error)


def _inputs(values: Mapping[str, str], slots: frozenset[str]) -> dict[str, str]:
    return {
        name: text[:LONGEST] for name, text in values.items() if not slots & values.keys() or name in slots
    }


def _answer(text: str, error: str | None) -> str:
    return text[:LONGEST] if error is None else f"[{error}]"[:LONGEST]


def _none(reason: str) -> dict[str, Any]:
    return {"rows": [], "reason": reason}
