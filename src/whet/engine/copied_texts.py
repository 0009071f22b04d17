"""What the optimizer model copied: sentences of a method's own requests in the best prompt, and inputs of rows.

A request is made of the words of the method, which stand in its code, and of the task's own texts. So a sentence of the code that
is in a reply of the optimizer model and in the best prompt, and that the start prompt and the description lack, is a copy. Texts
that a method itself puts into prompts are in its code too: the optimizer model may repeat what stands in such a prompt.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from types import CodeType, FunctionType

from whet._util.words import sentence_ends
from whet.engine.cache import decode_completions
from whet.engine.durable import RunState
from whet.engine.journal import read_events, read_journal_rows
from whet.prompt import Prompt
from whet.search.archive import candidate_of
from whet.search.copies import SHARED, copied_input, normalize_wording
from whet.search.from_zero import DEMONSTRATED, JOINED, LISTED
from whet.task import Task

_BESIDE = ("whet.methods.", "whet.search.", "whet.rl.", "whet.instructions.")
"""Where the code that writes requests stands, beside the module of the method."""
_REPLIES = (
    "SELECT COALESCE(e.value, r.value) FROM effects e LEFT JOIN results r ON r.digest = e.digest "
    "WHERE e.name = 'optimizer'"
)
_NAMED = 2
_SHOWN = 120


def own_word_warnings(core: RunState, method: Callable[..., object], task: Task, best: Prompt) -> list[str]:
    """A warning when the best prompt holds sentences of the requests that `method` makes of the optimizer model."""
    if best.id == task.prompt.id or not core.budget.spent.calls["optimizer"]:
        return []
    text = normalize_wording(best.source)
    known = normalize_wording(f"{task.prompt.source}\n{task.description}")
    suspected = [one for one in _sentences(_texts_of_code(method)) if one in text and one not in known]
    if not suspected:
        return []
    replies = normalize_wording("\n".join(_replies(core)))
    own = _texts_of_the_method(core, replies)
    copied = [one for one in suspected if one in replies and one not in own]
    if not copied:
        return []
    more = f" and {len(copied) - _NAMED} more" if len(copied) > _NAMED else ""
    named = ", ".join(f'"{one[:_SHOWN]}"' for one in copied[:_NAMED])
    return [
        f"The best prompt repeats words that the method meant for the optimizer model: {named}{more}. Check whether the prompt "
        "should say this to the task model."
    ]


def copied_row_warnings(core: RunState, task: Task, best: Prompt) -> list[str]:
    """A warning when a search tried no text of the optimizer model, most of whose replies copy the input of a row."""
    start = task.prompt
    tried = {event.value["id"] for event in read_events(core.journal.path, ["candidate"])} - {start.id}
    if best.id != start.id or tried or not core.budget.spent.calls["optimizer"]:
        return []
    replies = [reply for reply in _replies(core) if reply.strip()]
    pieces = [piece for reply in replies if (piece := copied_input(reply, task.train, start.source))]
    if not pieces or 2 * len(pieces) < len(replies):
        return []
    return [
        f"The search tried no text of the optimizer model. {len(pieces)} of {len(replies)} replies copy {SHARED} characters or "
        f'more of a row\'s input, such as "{pieces[0].strip()[:_SHOWN]}", and texts with the data of a row are left out. Name '
        "another optimizer model (`optimizer_lm`). Write words that every prompt may hold into the start prompt."
    ]


def _texts_of_code(method: Callable[..., object]) -> set[str]:
    """The texts in the module of a method and in the modules that it uses to write requests."""
    first = method.__module__
    texts, seen, waiting = set[str](), {first}, [first]

    def take(value: object) -> None:
        if isinstance(value, str):
            texts.add(value)
        elif isinstance(value, tuple | list | set | frozenset):
            for item in value:
                take(item)
        elif isinstance(value, dict):
            take(list(value.values()))
        elif isinstance(value, CodeType):
            take(value.co_consts)
        elif isinstance(value, FunctionType | type):
            module = value.__module__ or ""
            if module not in seen and module.startswith(_BESIDE):
                seen.add(module)
                waiting.append(module)
            if module in seen:
                take(value.__code__ if isinstance(value, FunctionType) else _members(value))

    while waiting:
        module = sys.modules.get(waiting.pop())
        take([value for name, value in vars(module).items() if not name.startswith("__")] if module else [])
    return texts


def _members(kind: type) -> list[object]:
    """The functions and values of a class, without the classes in it."""
    members: list[object] = []
    for name, value in vars(kind).items():
        inner = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
        if not name.startswith("__") and not isinstance(inner, type):
            members.append(inner)
    return members


def _sentences(texts: Iterable[str]) -> list[str]:
    """The sentences of texts, each once and without its stop, if they are long enough to be no coincidence."""
    sentences = set[str]()
    for text in texts:
        ends = sentence_ends(text)
        sentences |= {
            normalize_wording(text[start:end]).rstrip(".!?:")
            for start, end in zip([0, *ends], ends, strict=False)
        }
    return sorted(sentence for sentence in sentences if len(sentence) >= SHARED)


def _texts_of_the_method(core: RunState, replies: str) -> str:
    """The texts of the prompts that the method itself put together: no reply holds one as a whole."""
    texts = list[str]()
    for event in read_events(core.journal.path, ["candidate", "validated"]):
        prompt = candidate_of(event.value).prompt
        for region in prompt.regions:
            text = normalize_wording(prompt.region_text(region.name))
            if event.value["operator"] in (DEMONSTRATED, LISTED, JOINED) or text not in replies:
                texts.append(text)
    return "\n".join(texts)


def _replies(core: RunState) -> list[str]:
    """What the optimizer model has replied in the run."""
    values = [value for (value,) in read_journal_rows(core.journal.path, _REPLIES) if value is not None]
    return [completion.text for value in values for completion in decode_completions(value)]
