"""The next steps, by rules over the result and the rows of the sealed test; and the prompt to copy."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping

import whet.reporting.number_format as number_format
from whet.engine.diagnostics import MORE, NOTHING_WRONG, RIGHT_ALREADY
from whet.engine.usage_sums import usage_of_run
from whet.prompt import Prompt
from whet.reporting.examples import sealed_rows
from whet.reporting.layout import Section, details, note, region
from whet.reporting.markup import Child, Html, el, join, prompt_text
from whet.reporting.record import Record, finite_number, side, usage_in
from whet.types import Message
from whet_client.prompt.document import AUTO

MANY_FAILED = 0.05
_LIMITS = {
    "calls": "--max-calls",
    "task calls": "--max-task-calls",
    "optimizer calls": "--max-optimizer-calls",
    "judge calls": "--max-judge-calls",
    "tokens": "--max-tokens",
    "cost": "--max-cost-usd",
    "seconds": "--max-seconds",
}
"""The option that raises the limit that ended a search."""


def next_steps(record: Record) -> Section | None:
    """The suggestions after a finished run, and its best prompt without markers."""
    if not record.finished:
        return None
    promoted = bool(side(record.result, "improvement").get("promoted"))
    steps = [*_doubts(record), *(_of_promoted(record) if promoted else _of_kept(record))]
    shown = el("ul", [el("li", step) for step in steps], class_="steps")
    return Section("next", "What to do next", join(shown, _use(record, promoted)))


def _use(record: Record, promoted: bool) -> Html | None:
    """The prompt to copy: marked by one click where the gate promoted it, behind a warning where not."""
    best = side(record.result, "best")
    if best.get("prompt") is None:
        return None
    messages = best.get("messages") or [(AUTO, str(best["prompt"]))]
    prompt = Prompt(tuple(Message(*values) for values in messages))
    box = region(
        "pre",
        prompt_text(prompt.text if prompt.marks else prompt.plain),
        label="The prompt to copy",
        class_="copy",
    )
    if not promoted:
        return details("The best prompt of the search without markers (not promoted)", box)
    run = shlex.quote(record.place)
    commands = (
        f"whet show {run} --plain > prompt.{'json' if prompt.chat else 'txt'}",
        f"whet prompts import {run} --name NAME",
        "whet prompts promote NAME VERSION --request",
    )
    caption = note(
        "The prompt without markers. A click selects the whole prompt. The commands write it to a "
        "file or into whet's registry."
    )
    lines = region(
        "pre", el("code", "\n".join(commands)), label="Commands that use the prompt", class_="command"
    )
    return el("div", el("h3", "Use it"), caption, box, lines, class_="use")


def _doubts(record: Record) -> Iterator[Child]:
    """The caveats of the figures, whatever the verdict is."""
    if record.simulated:
        yield (
            "Name a real model (",
            el("code", "--lm openai/NAME"),
            "), because a scripted model answered here.",
        )
    if seen := record.rows_seen:
        rest = "this row" if seen == 1 else "these rows"
        yield (
            f"Check the origin of the start prompt: an earlier run{_in_run(record)} learned from "
            f"{number_format.plural(seen, 'test row')}. If the prompt came from that run, test it "
            f"without {rest}."
        )
    failed = sum(bool(row.get("error")) for name in ("baseline", "best") for row in sealed_rows(record, name))
    rollouts = sum(len(sealed_rows(record, name)) for name in ("baseline", "best"))
    if failed > MANY_FAILED * rollouts:
        yield (
            f"First repair the cause of failures: {failed:,} of {rollouts:,} rollouts of the test failed, ",
            _link("failures"),
            ".",
        )
    if (constant := _constant(record)) is not None:
        yield constant
    pair: Mapping[str, object] = next(iter(record.result.get("pairs") or ()), {})
    low, difference = finite_number(pair.get("low")), finite_number(pair.get("difference"))
    if low is not None and difference is not None and low <= 0:
        yield (
            f"The control did as well, as far as these rows show ({number_format.difference(difference, record.digits)} "
            "for this run). The improvement may come from the search alone, ",
            _link("control"),
            ".",
        )


def _in_run(record: Record) -> str:
    """The folder of the run that learned from test rows, in brackets, where it is known."""
    folder = record.result.get("test_rows_seen_by")
    return f" ({folder})" if folder else ""


def _constant(record: Record) -> Child:
    """The meaning of a reward that is the same for every answer."""
    rewards = {
        finite_number(row.get("reward")) for name in ("baseline", "best") for row in sealed_rows(record, name)
    }
    if len(rewards) != 1:
        return None
    value = rewards.pop()
    shown = f"Every answer to the test has the reward {number_format.reward_text(value, record.digits)}. "
    if value == finite_number(record.final.get("high")):
        return shown, "These rows leave no room for a gain. Add harder rows."
    return shown, "If that is wrong, ", el("code", "whet doctor TASK"), " tries the reward on three rows."


def _of_promoted(record: Record) -> Iterator[Child]:
    gain = side(record.result, "improvement")
    yield (
        "Use the prompt below instead of the baseline, unless the start prompt came from that earlier run."
        if record.rows_seen
        else "Use the prompt below instead of the baseline."
    )
    if side(record.result, "best").get("system") is not None:
        yield (
            "Use the prompt with the weights that were trained with it. Without them it is a "
            "different system, which was not tested."
        )
    if losses := gain.get("losses"):
        yield (
            f"{number_format.plural(losses, 'test row')} got worse. Look at these rows before you use "
            "the prompt (",
            _link("examples"),
            "), but do not edit the prompt because of them: rows that you have read cannot test the "
            "next prompt. To change the prompt, run again with fresh test rows.",
        )
    if "control" not in record.result and record.header.get("method") != "random_search":
        yield (
            "To measure the value of the learning against plain trying, add ",
            el("code", "--control random_search"),
            ".",
        )


def _of_kept(record: Record) -> Iterator[Child]:
    result, gain = record.result, side(record.result, "improvement")
    yield "Keep the baseline in use."
    opinion = side(result, "second_opinion")
    if opinion and not opinion.get("promoted"):
        judge = opinion.get("judge") or opinion.get("reward")
        yield (
            f"The second opinion ({judge}) does not confirm the gain. Read rows that were fixed (",
            _link("examples"),
            "), and improve the rubric of the judge that is wrong.",
        )
    yield from _more_rows(record)
    for name, one in side(result, "objectives").items():
        if one.get("verdict") in ("not shown", "worse"):
            shown = "show that it is not" if one["verdict"] == "worse" else "do not show it"
            yield (
                f"The mean of {name} must be {one.get('bound')}, but the test rows {shown}: ",
                _link("objectives"),
                ". More test rows, or a wider margin, decide more.",
            )
    if side(result, "best").get("id") == side(result, "baseline").get("id"):
        yield from _more_search(record)
    gained = finite_number(gain.get("difference"))
    before, after = (
        finite_number(side(side(result, name), "validation").get("mean")) for name in ("baseline", "best")
    )
    if gained is not None and gained < 0 and before is not None and after is not None and after > before:
        rows = number_format.count(side(side(result, "best"), "validation").get("n"))
        yield (
            f"The prompt gained {number_format.difference(after - before, record.digits)} on the "
            f"{rows} validation rows and lost {number_format.reward_text(-gained, record.digits)} on the "
            "test: the search overfitted those rows. Give more validation rows (",
            el("code", "splits"),
            " in task.yaml).",
        )
    if not any(row.get("critique") for name in ("baseline", "best") for row in sealed_rows(record, name)):
        yield (
            "The reward gave only numbers. If it also explains what is wrong (",
            el("code", 'dict(reward=..., critique="...")'),
            "), methods that read critiques can learn more.",
        )


def _more_rows(record: Record) -> Iterator[Child]:
    """Say the number of rows that the test lacks."""
    gain = side(record.result, "improvement")
    promotion = side(side(record.result, "plan"), "promotion")
    if promotion.get("possible") is False:
        yield (
            f"Add rows: the test split has {promotion.get('rows')} independent rows, and no prompt "
            f"can be promoted with fewer than {promotion.get('needed')}. About a third of the rows of "
            "a task become test rows."
        )
    elif isinstance(more := gain.get("more_examples"), int):
        yield (
            f"Add rows: about {more:,} more test rows would show a gain like this one. Put fresh rows into a file and run the "
            "same command with ",
            el("code", "--more FILE"),
            ". This command tests the same two prompts on the new rows, without a new search. Add a "
            "few more rows than that, because the test then looks twice.",
        )
    openings = record.result.get("test_openings")
    if isinstance(openings, int) and openings > 1:
        yield (
            f"These test rows were opened {openings:,} times, and each opening leaves less alpha "
            "for the next test. Fresh rows begin again with the full alpha."
        )


def is_limited(result: Mapping[str, object]) -> bool:
    """Whether a limit ended the search of a run, or paid for fewer rounds than its settings want."""
    return result.get("status") == "budget_exhausted" or MORE in str(result.get("ended_by", ""))


def is_right_already(result: Mapping[str, object]) -> bool:
    """Whether a run made no search, because its start prompt earned the full reward on every row."""
    return RIGHT_ALREADY in str(result.get("ended_by", ""))


def leaves_nothing(result: Mapping[str, object]) -> bool:
    """Whether the start prompt of a run earned the full reward on every validation row, so that its search asked for no text."""
    return NOTHING_WRONG in str(result.get("ended_by", ""))


def _more_search(record: Record) -> Iterator[Child]:
    """Suggestions after a search that found no better prompt."""
    if is_right_already(record.result):
        yield "No search was made: the start prompt earns the full reward. Give harder rows, or a more detailed reward."
        return
    if leaves_nothing(record.result):
        yield (
            "The start prompt earns the full reward on every validation row. Give harder rows, or a more detailed reward."
        )
        return
    other = ("try another method (", el("code", "whet methods"), ").")
    if is_limited(record.result):
        limit = str(record.result.get("ended_by", "")).removeprefix("the limit of ")
        yield (
            "The search found no better prompt before its limit ended it. Raise ",
            el("code", _LIMITS.get(limit, "--max-calls")),
            " with another ",
            el("code", "--out"),
            " and ",
            el("code", f"--fork {shlex.quote(record.place)}"),
            ", which pays for no answer of this run again, or ",
            other,
        )
    else:
        made = sum(side(usage_of_run(usage_in(record.result)), "calls").values())
        most = side(side(record.result, "plan"), "limits").get("calls")
        unspent = ""
        if isinstance(most, int) and most > made:
            unspent = f", with {most - made:,} of {most:,} calls unspent"
        yield (
            f"The search ended by itself{unspent}, and found no better prompt than the baseline. A "
            "larger limit alone does not help. ",
            *_stronger_writer(record),
            " in ",
            el("code", "description"),
            " the task and which answers are right, or ",
            other,
        )
    counts = [value for value in record.others.get("replies", ()) if isinstance(value, dict)]
    requested, kept = (
        sum(int(finite_number(count.get(name)) or 0) for count in counts) for name in ("asked", "kept")
    )
    if 2 * kept < requested:
        yield (
            f"Of {requested:,} texts that the optimizer model wrote {kept:,} could be used. Name a "
            "stronger model with ",
            el("code", "--optimizer-lm"),
            ".",
        )


def _stronger_writer(record: Record) -> Iterator[Child]:
    """The option that names the model which wrote the prompts, where one did; the beginning of a sentence that goes on."""
    models = side(record.header, "models")
    for role, what, option in (
        ("policy", "policy to train", "--policy"),
        ("optimizer", "optimizer model", "--optimizer-lm"),
    ):
        if role in models:
            yield from (f"Name a stronger {what} (", el("code", option), "), say")
            return
    yield "Say"


def _link(anchor: str) -> Html:
    return el("a", "see there", href=f"#{anchor}")
