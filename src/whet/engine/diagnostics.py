"""Diagnostics of a finished search, as warnings for whoever reads its result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from whet.engine.durable import STOPPED, RunState
from whet.engine.journal import read_events
from whet.engine.perfect_start import EVENT, sentence
from whet.errors import quantity, show_reward
from whet.prompt import Prompt
from whet.prompt.additions import has_open_fence, new_addresses
from whet.replies import split_thought
from whet.replies.texts import CUT, EMPTY, NO_TEXT, SEVERAL
from whet.rewards.text import targets_of
from whet.rewards.verifiers.python_code import UNREADABLE
from whet.rewards.verifiers.python_tests import BEYOND_TESTS, TIMED_OUT
from whet.rewards.verifiers.sql import EMPTY_RESULT
from whet.rl.language import COPIED_FORM, COPIED_QUESTION, COPIES, MOST_REPEATS, NOT_COME, REPEATED
from whet.search.archive import BEYOND
from whet.search.copies import longest_copy, normalize_wording
from whet.search.from_zero import DEMONSTRATED, JOINED, LISTED
from whet.search.from_zero import EVENT as FROM_ZERO
from whet.search.over_optimisation import Figure, over_optimisation, trained_reward
from whet.task import Task
from whet.task.prompts import foreign_slots
from whet.task.rows import INPUT_NAMES
from whet.types import Rollout

_QUOTED, _NAMED = 120, 5
_NOWHERE = Path()
_UNREADABLE = "its form could not be read."
_LOST_ON_IT = "The optimizer model did not understand what it was asked for, or refused."
_MORE_TOKENS = (
    "A larger limit on tokens leaves room for a whole reply: `max_tokens` of models.optimizer in task.yaml, or "
    "`--optimizer-option max_tokens=8192`."
)
_FAULTS = {
    _UNREADABLE: "had a form that could not be read",
    SEVERAL: "held several texts instead of one",
    EMPTY: "held no text",
    CUT: "ended before the text was complete",
    COPIED_FORM: "copied the form of a reply and held no text",
    COPIED_QUESTION: "repeated the request instead of the text",
}


def search_warnings(core: RunState, low: float, high: float) -> list[str]:
    """A warning when the reward of the training steps rose while what was validated on the way fell, and one where the reward
    does not hold for the start prompt already.

    Of what was validated between two steps, the best counts.
    """
    rewards: list[Figure] = []
    metrics: list[Figure] = []
    stepped, n = True, 0
    for event in read_events(core.journal.path, ["step", "validated"]):
        if event.name == "step":
            reward, stepped = trained_reward(event.value), True
            rewards += [] if reward is None else [Figure(event.calls, reward)]
        else:
            before = [] if stepped else [metrics.pop().value]
            metrics.append(Figure(event.calls, max([event.value["validation"], *before])))
            stepped, n = False, min(n or event.value["n"], event.value["n"])
    divergence = over_optimisation(rewards, metrics, n, low, high)
    beyond = [
        (
            "The start prompt already lies outside the answers on which the reward model was tested: "
            f"{event.value['why']}. The alarm therefore uses a wider limit."
        )
        for event in read_events(core.journal.path, [BEYOND])
    ]
    return [*beyond[:1], *([] if divergence is None else [divergence.warning])]


MORE = "a larger limit allows more"
"""The words of `ended_by` for a search that did all that its limits pay for."""
RIGHT_ALREADY = "the start prompt is right on every row"
"""The words of `ended_by` where no search was made."""
NOTHING_WRONG = "no answer to a validation row fell short of the full reward"
"""The words of `ended_by` for a search that had nothing to ask its optimizer model."""


def end_of_method(
    core: RunState, start: str, config: object = None, needed: bool = True, fell_short: bool = False
) -> str:
    """The reason why a search ended that no limit ended, and its findings, as the text of `ended_by`. `start`: the id of the
    start prompt; `config`: the settings of the method; `needed`: whether it cannot do without an optimizer model; `fell_short`:
    whether the start prompt earned less than the full reward on a validation row."""
    events = read_events(core.journal.path, [EVENT, STOPPED, "replies", "candidate", "step"])
    requested = sum(int(e.value["asked"]) for e in events if e.name == "replies")
    kept = sum(int(e.value["kept"]) for e in events if e.name == "replies")
    steps = len({e.value["step"] for e in events if e.name == "step"})
    tried = len({e.value["id"] for e in events if e.name == "candidate"} - {start})
    stopped = next((str(e.value) for e in events if e.name == STOPPED), "")
    if stopped:
        why = f"training was stopped after {quantity(steps, 'step')}. {stopped.rstrip('.')}"
    elif any(e.name == EVENT for e in events):
        why = f"{RIGHT_ALREADY}, and there is nothing to learn from"
    elif steps:
        paid = _paying_limit(core) if 0 < core.steps < getattr(config, "steps", 0) else ""
        why = (
            f"finished the {quantity(steps, 'step')} of training that {paid}"
            if paid
            else f"{quantity(steps, 'step')}{' of training' if core.steps else ''} are done"
        )
    elif requested and not kept:
        why = f"the optimizer model wrote nothing usable ({quantity(requested, 'text')} asked for)"
    elif needed and _asked_nothing(core) and (reason := _why_asked_nothing(core, fell_short)):
        why = reason
    elif tried:
        rounds, wanted = core.rounds
        paid = _paying_limit(core) if rounds < wanted else ""
        why = f"after {quantity(tried, 'prompt')} "
        why += (
            f"in the {quantity(rounds, 'round')} that {paid}"
            if paid
            else "nothing more was left to try within its settings and limits"
        )
    else:
        why = "it found nothing to try"
    return f"the method itself: {why}"


def _paying_limit(core: RunState) -> str:
    """The limit on calls, tokens or dollars that pays for no more; empty if there is none."""
    limits = {
        name: n for name, n in asdict(core.budget.limits).items() if n is not None and name != "seconds"
    }
    if not limits:
        return ""
    names = [
        f"--max-{name.replace('_', '-')} {f'{n:g}' if isinstance(n, float) else n}"
        for name, n in limits.items()
    ]
    return f"{' and '.join(names)} {'pays' if len(names) == 1 else 'pay'} for ({MORE})"


def _asked_nothing(core: RunState) -> bool:
    """Whether there is an optimizer model elsewhere, and it was asked nothing."""
    client = core.caller.clients.get("optimizer")
    return client is not None and not client.model.local and not core.budget.spent.calls["optimizer"]


def _why_asked_nothing(core: RunState, fell_short: bool) -> str:
    """Why a search that no limit ended asked its optimizer model nothing, as far as that is known; empty where it is not."""
    paid, wanted = core.rounds
    if wanted and not paid and (limits := _paying_limit(core)):
        return f"no call of the optimizer model is among what {limits}"
    if withheld := _withheld(core):
        return withheld
    contrasts = [event.value for event in read_events(core.journal.path, ["contrasts"])]
    rows = sum(int(value["rows"]) for value in contrasts)
    if rows and not any(value["differing"] for value in contrasts):
        return (
            "the several answers to a training row never had different rewards "
            f"({quantity(rows, 'draw')} of a row), and the method learns only from such rows"
        )
    return "" if fell_short else NOTHING_WRONG


def _withheld(core: RunState) -> str:
    """Say how many critiques were withheld from the optimizer model, and why; empty if none was."""
    reasons = Counter[str]()
    events = [event.value for event in read_events(core.journal.path, ["withheld"])]
    for value in events:
        reasons.update({str(why): int(times) for why, times in value.get("reasons", {}).items()})
    if not events:
        return ""
    number = sum(int(value["critiques"]) for value in events)
    named = ", ".join(f"{why} ({times:,})" for why, times in reasons.most_common(_NAMED))
    was = "was" if number == 1 else "were"
    return f"{quantity(number, 'critique')} {was} withheld from the optimizer model{f': {named}' if named else ''}"


def optimizer_warnings(
    core: RunState, best: Prompt, ended: str = "", needed: bool = True, fell_short: bool = False
) -> list[str]:
    """Notes on the optimizer model's replies, and on the decisions that prompt learning leaves to a person. `ended`: the limit
    that ended the search; `needed` and `fell_short` as for `end_of_method`."""
    withheld = _withheld(core)
    return [
        *_reply_warnings(core, ended, needed, fell_short),
        *_bare_warnings(core),
        *_repeat_warnings(core),
        *(
            [
                f"{withheld}. A critique that looks like an attack is not shown. A text that several answers "
                "of a round got counts once. If your reward writes these critiques, let it write them in other words."
            ]
            if withheld
            else []
        ),
        *_instruction_warnings(core, best.source),
    ]


def zero_warnings(core: RunState) -> list[str]:
    """The prompts that a search tried first, without the optimizer model, because its start prompt had a reward of zero, and
    their rewards."""
    warnings = []
    for value in (event.value for event in read_events(core.journal.path, [FROM_ZERO])):
        earned = ", ".join(f"{operator} {show_reward(mean)}" for operator, mean in value["tried"])
        helped = any(mean > value["low"] for _, mean in value["tried"])
        end = "the search went on from there" if helped else "the search went on from the start prompt"
        warnings.append(
            "The start prompt earned nothing, so these prompts were tried first, without the "
            f"optimizer model: {earned} (mean reward on {quantity(value['rows'], 'training row')}); "
            f"{end}."
        )
    return warnings


def _reply_warnings(core: RunState, ended: str, needed: bool, fell_short: bool) -> list[str]:
    """A warning when more than half of what the optimizer model was asked for came to nothing, or when it was asked nothing."""
    perfect = read_events(core.journal.path, [EVENT])
    if perfect:
        return [sentence(perfect[0].value)]
    if needed and _asked_nothing(core):
        if ended:
            return [
                f"The optimizer model was never called, because {ended} ended the search first. "
                "Before the first calls are answered, the limit must leave room for the longest "
                "possible reply beside the sealed test. Raise the limit, or shorten the replies "
                "(`max_tokens` of models.optimizer in task.yaml)."
            ]
        why = _why_asked_nothing(core, fell_short) or "the method ended before it needed a call"
        return [f"The optimizer model was never called: {why}."]
    counts = [e.value for e in read_events(core.journal.path, ["replies"])]
    requested, kept = (sum(int(c[name]) for c in counts) for name in ("asked", "kept"))
    reasons = _reasons(counts)
    unchanged = sum(int(c.get("unchanged", 0)) for c in counts)
    if requested and kept <= unchanged and {*reasons} <= {*COPIES, EMPTY}:
        return [
            "The optimizer model did not understand the request. It returned only copies of the "
            f"request, copies of its instructions and empty replies ({requested} texts requested). "
            "Name a stronger optimizer model (`optimizer_lm`)."
        ]
    few = (
        f"{f'Only {kept}' if kept else 'None'} of the {requested} texts that were requested from "
        "the optimizer model could be used."
    )
    if not reasons:
        return [few] if 2 * kept < requested else []
    total, lost = sum(times for times, _ in reasons.values()), requested - kept
    again = "it was asked for again" if total == 1 else "each was asked for again"
    later = "the next reply" if total == 1 else "a later reply"
    came = (
        f"{again}, and {lost} of {requested} texts are lost"
        if lost
        else f"{again}, and {later} could be used"
    )
    replies = ("1 reply" if total == 1 else f"{total} replies") + " of the optimizer model"
    if len(reasons) == 1:
        (why, (_, example)), *_ = reasons.items()
        shown = f' Example: "{example}".' if example else ""
        unusable = f"{replies} {_fault_of(why)}; {came}.{shown}"
    else:
        each = [
            f"{times} {_fault_of(why)}" + (f' (example: "{example}")' if example else "")
            for why, (times, example) in reasons.items()
        ]
        if len(each) > _NAMED:
            each[_NAMED:] = [f"{len(each) - _NAMED} more reasons are in the journal (events replies)"]
        unusable = f"{replies} could not be used; {came}: {'; '.join(each)}."
    if CUT in reasons:
        unusable = f"{unusable} {_MORE_TOKENS}"
    failed = any(why.startswith(NOT_COME) for why in reasons)
    if requested > 1 and not kept and CUT not in reasons and not failed:
        return [f"{_LOST_ON_IT} {few} {unusable} Name a stronger optimizer model (`optimizer_lm`)."]
    return [f"{few} {unusable}" if 2 * kept < requested else unusable]


def _bare_warnings(core: RunState) -> list[str]:
    """A warning when whole replies that enclosed no text were used as texts, after the model was asked for tags twice."""
    counts = [
        event.value["bare"] for event in read_events(core.journal.path, ["replies"]) if "bare" in event.value
    ]
    if not counts:
        return []
    total = sum(int(times) for times, _ in counts)
    used, was = ("1 whole reply", "it was") if total == 1 else (f"{total} whole replies", "each was")
    return [
        f"The search used {used} of the optimizer model as text, because no tags enclosed a text after it was asked "
        f'again; {was} a single paragraph. Example: "{counts[0][1]}". Check in the report that the best prompt is no '
        "comment of the optimizer model, or name a stronger optimizer model (`optimizer_lm`)."
    ]


def _repeat_warnings(core: RunState) -> list[str]:
    """A warning when the optimizer model wrote the same text many times in a row."""
    counts = [
        event.value[REPEATED]
        for event in read_events(core.journal.path, ["replies"])
        if REPEATED in event.value
    ]
    if not counts:
        return []
    number, text = max(counts, key=lambda one: int(one[0]))
    most = int(number) >= MOST_REPEATS
    ended = f" After {MOST_REPEATS} of them, the search asked it no more." if most else ""
    return [
        f'The optimizer model wrote the same text {number} times in a row ("{text}"), each of them paid.{ended} Raise its '
        "temperature (`models: {optimizer: {temperature: 1}}` in task.yaml; a server may ignore it), or name another one "
        "(`optimizer_lm`)."
    ]


def _fault_of(why: str) -> str:
    """The fault of an unusable reply, as the rest of a sentence; `why` is the reason that its model got."""
    if why.startswith(NO_TEXT):
        return f"had no text {why.removeprefix(NO_TEXT).rstrip('.')}"
    if why.startswith(NOT_COME):
        return f'did not come ("{why.removeprefix(NOT_COME).rstrip(".")}")'
    return _FAULTS.get(why, f'could not be used ("{why}")')


def _reasons(counts: Sequence[Any]) -> dict[str, tuple[int, str]]:
    """Count the unusable replies by reason, the most frequent first, with the beginning of one of them."""
    times_by_reason: dict[str, tuple[int, str]] = {}
    for count in counts:
        entries = [*count.get("why", ())]
        if count.get("example"):
            entries.append([_UNREADABLE, int(count["asked"]) - int(count["kept"]), count["example"]])
        for reason, times, example in entries:
            known, first = times_by_reason.get(reason, (0, example))
            times_by_reason[reason] = (known + int(times), first)
    return dict(sorted(times_by_reason.items(), key=lambda item: -item[1][0]))


def added_warnings(task: Task, best: Prompt) -> list[str]:
    """New parts of the best prompt that a person should see before it is used: addresses, an open code fence, text that looks
    like a slot and is none."""
    start, text = task.prompt.source, best.source
    warnings = []
    if new := new_addresses(text, start):
        more = f" and {len(new) - _NAMED} more" if len(new) > _NAMED else ""
        warnings.append(
            "The best prompt contains addresses that the start prompt did not contain: "
            f"{', '.join(new[:_NAMED])}{more}. Check these addresses first, because the prompt sends "
            "models, and perhaps users, there."
        )
    if has_open_fence(text) and not has_open_fence(start):
        warnings.append(
            "The best prompt contains a code fence that is never closed, so all text after the fence "
            "reads as code."
        )
    rows = [*task.train, *task.validation]
    fields = {name for row in rows[:1] for name in row.values}
    ours, theirs = (foreign_slots(p, _NOWHERE, fields, (*INPUT_NAMES, "input")) for p in (best, task.prompt))
    return [*warnings, *(f"The best {warning}" for warning in ours if warning not in theirs)]


def barren_warnings(core: RunState, start: str, best: str) -> list[str]:
    """A warning when a search whose optimizer model wrote texts ended with the start prompt, and none of these earned more.

    `start` and `best` are the ids of the prompts.
    """
    if best != start or not core.budget.spent.calls["optimizer"]:
        return []
    tried: dict[str, float] = {}
    for event in read_events(core.journal.path, ["candidate", "validated"]):
        known = [event.value[key] for key in ("train", "validation") if event.value.get(key) is not None]
        if known and event.value["operator"] not in (DEMONSTRATED, LISTED, JOINED):
            tried[event.value["id"]] = max(known)
    own = tried.pop(start, None)
    if len(tried) < 2 or own is None or max(tried.values()) > own:
        return []
    return [
        f"None of the {len(tried)} texts that the optimizer model proposed earned more than the start "
        "prompt: it may not have understood the task. Try a stronger optimizer model "
        "(`optimizer_lm`), say in `description` the task and which answers are right, or let the "
        "reward say what is wrong (a critique)."
    ]


def _instruction_warnings(core: RunState, best: str) -> list[str]:
    """Demands that contradict each other and were not settled, and those that could not be tried."""
    events = read_events(core.journal.path, ["conflict", "untested"])
    settled = {frozenset((e.value["first"], e.value["second"])) for e in events if e.value.get("settled")}
    warnings = dict[str, None]()
    for value in (event.value for event in events):
        if "reason" in value:
            warnings[f'Left out until a person decides: "{_short(value["text"])}" ({value["reason"]}).'] = (
                None
            )
        elif frozenset((value["first"], value["second"])) not in settled:
            stands, other = sorted((value["first"], value["second"]), key=lambda text: text not in best)
            if other in best:
                both = f'"{_short(stands)}" and "{_short(other)}"'
                warnings[f"Two instructions contradict each other, and a person has to decide: {both}."] = (
                    None
                )
            elif stands in best:
                warnings[f'Some critiques demand the opposite of "{_short(stands)}": "{_short(other)}".'] = (
                    None
                )
            else:
                warnings[
                    f'Left out, because it contradicts an instruction of the prompt: "{_short(value["first"])}".'
                ] = None
    rest = len(warnings) - _NAMED
    more = [f"{rest} more demands are left to a person (events conflict and untested of the journal)."]
    return [*list(warnings)[:_NAMED], *more[: max(0, rest)]]


def _short(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= _QUOTED else f"{words[:_QUOTED]} ..."


def thought_warnings(answers: Sequence[Rollout]) -> list[str]:
    """A warning when texts of the task model began with a thought: whet leaves it out, an application may not."""
    thinking = [r for r in answers if split_thought(r.thought).thought]
    if not thinking:
        return []
    first = " ".join(thinking[0].thought.split())[:60]
    return [
        f'{len(thinking)} of {len(answers)} texts of the sealed test began with a thought ("{first} '
        '..."). The thought is not part of the answer here, so no reward read it. Let your '
        "application remove thoughts too, or let the server separate them (vLLM: --reasoning-parser; "
        "llama.cpp: --reasoning-format). To grade thoughts: models: {task: {thoughts: true}}."
    ]


def cut_warnings(answers: Sequence[Rollout], limit: int | None) -> list[str]:
    """A warning when answers ended at the token limit, `limit` where the task or whet set one: their rewards are those of what
    stands there, and may say more about the limit than about the prompt."""
    cut = [r for r in answers if r.cut]
    if not cut:
        return []
    what = "that the model or its server sets" if limit is None else f"of max_tokens: {limit}"
    blank = sum(not r.output.strip() for r in cut)
    before = f" ({blank} of them before any text)" if blank else ""
    more = "N" if limit is None else 4 * limit
    return [
        f"{len(cut)} of {len(answers)} answers were cut at the token limit {what}{before}. A cut "
        "answer is graded without its missing part, so the limit may have lowered the reward. Allow "
        f"longer answers (models: {{task: {{max_tokens: {more}}}}}, or --lm-option max_tokens={more}), or "
        "let the prompt ask for shorter ones."
    ]


def timeout_warnings(name: str, rollouts: Sequence[Rollout]) -> list[str]:
    """A warning when most answers whose tests failed ran out of time, and a tenth of all did: the limit may be too low."""
    failed = [r for r in rollouts if TIMED_OUT in r.parts and r.parts["passed"] < max(1.0, r.parts["tests"])]
    late = [r for r in failed if r.parts[TIMED_OUT]]
    if not late or 2 * len(late) < len(failed) or 10 * len(late) < len(rollouts):
        return []
    return [
        f"{len(late)} of {len(failed)} rollouts of the {name} prompt whose tests failed ran out of "
        "time, and some of their code may be right. If the tests need longer, allow more time: "
        "reward: {python_tests: {timeout: SECONDS}}."
    ]


def unreadable_warnings(name: str, rollouts: Sequence[Rollout]) -> list[str]:
    """A warning when answers to a task whose reward reads code had no fenced block and were no code."""
    unreadable = [r for r in rollouts if r.parts.get(UNREADABLE)]
    if not unreadable:
        return []
    return [
        f'{len(unreadable)} of {len(rollouts)} rollouts of the {name} prompt, such as "{_short(unreadable[0].output)}", '
        "contained no readable code: there is no fenced block, and the text is not entirely code. "
        "They count as wrong. Let the prompt ask for one fenced block."
    ]


def empty_result_warnings(name: str, rollouts: Sequence[Rollout]) -> list[str]:
    """A warning when queries count as right because they return nothing, as their targets do."""
    empty = [r for r in rollouts if r.parts.get(EMPTY_RESULT)]
    if not empty:
        return []
    return [
        f"{len(empty)} of {len(rollouts)} rollouts of the {name} prompt count as right because query and target both return no "
        f"rows (first: row {empty[0].example_id}): any query without rows does. Give targets that return rows on this database."
    ]


def beyond_tests_warnings(name: str, rollouts: Sequence[Rollout]) -> list[str]:
    """A warning when answers failed tests that want what cannot be done with objects of the answer: the code may be right."""
    beyond = [r for r in rollouts if r.parts.get(BEYOND_TESTS)]
    if not beyond:
        return []
    return [
        f"{len(beyond)} of {len(rollouts)} rollouts of the {name} prompt failed a test that python_tests cannot run, since it "
        "computes or compares with an object of the answer and a plain value, or passes one that is no plain value; the code may "
        f"be right (first: row {beyond[0].example_id}). Let the tests read attributes and call methods that return plain values."
    ]


def label_warnings(answers: Mapping[str, Sequence[Rollout]], low: float) -> list[str]:
    """A warning when answers name their label inside a sentence: the sentence may mean it, or the contrary. `answers`: those of
    each prompt by its name ("baseline", "best"), `low` is the reward of an answer that names no label; the warning says what the
    means are if none of these answers counts."""
    every = [r for group in answers.values() for r in group]
    inside = [r for r in every if r.sentence is not None]
    if not inside:
        return []
    text = " ".join((inside[0].sentence or "").split())
    shown = text if len(text) <= _QUOTED else f"{text[:_QUOTED]} ..."
    means = [
        f"{f'{name} ' if len(answers) > 1 else ''}{show_reward(_mean(group, low))} in place of {show_reward(_mean(group))}"
        for name, group in answers.items()
    ]
    return [
        f'{len(inside)} of {len(every)} answers name their label inside a sentence, such as "{shown}", '
        f"which counts as {inside[0].output}; whet does not know whether the sentence means it. If "
        f"none of them counted, the mean would be: {', '.join(means)}. Let the prompt ask only for "
        "the label, or accept no other answer: reward: {exact_match: {strict: true}}."
    ]


def _mean(rollouts: Sequence[Rollout], sentence: float | None = None) -> float:
    """The mean reward of the rollouts that were answered; `sentence` in the place of the reward of a label in a sentence."""
    rewards = [
        sentence if sentence is not None and r.sentence is not None else r.reward
        for r in rollouts
        if r.answered
    ]
    return sum(rewards) / len(rewards) if rewards else 0.0


def copy_warnings(task: Task, best: Prompt) -> list[str]:
    """A warning when the best prompt repeats what a row of the task says and the start prompt does not."""
    for rows in (
        (*task.validation, *task.test),
        task.train,
    ):  # what is measured on comes before what is learned from
        texts = {example.place: [*example.values.values(), *targets_of(example)] for example in rows}
        piece = longest_copy(
            best.source, (text for values in texts.values() for text in values), task.prompt.source
        )
        if piece:
            break
    else:
        return []
    whose = [
        name for name, values in texts.items() if any(piece in normalize_wording(text) for text in values)
    ]
    also = f" and {len(whose) - 1} more" if len(whose) > 1 else ""
    return [
        (
            f'The best prompt copies "{piece.strip()[:80]}" from {whose[0]}{also}. Whoever sees the '
            "prompt sees this text."
        )
    ]
