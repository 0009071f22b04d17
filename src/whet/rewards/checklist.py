"""A checklist as the reward: the weighted share of items that an answer meets, each with a reason when it
does not.

Checklists instead of a reward model follow RLCF (Viswanathan et al. 2025, arXiv 2507.18624): sum(w * s) /
sum(w), items that a program can check are checked by it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from whet.errors import did_you_mean
from whet.replies import array, closed_object, list_items, without_thought
from whet.replies.blocks import stretches_of
from whet.rewards.asking import (
    OF_EVERY_JUDGE,
    REASONS,
    RULES,
    JudgeQuestion,
    RewardOptions,
    ask,
    enclose_in_markers,
    first_of,
    without_verdict,
    yes_or_no,
)
from whet.rewards.checks import CHECKS, Check
from whet.rewards.judge_reply import JudgeReply, agree_on, lower_keys, parse_place, read_reply
from whet.rewards.patterns import REWARD_TIMEOUT, match_within
from whet.rewards.reward import JUDGE
from whet.rewards.score_reading import score_number
from whet.run import Run
from whet.types import JSON, Completion, Example, Reward
from whet_client.storable import show_value

MOST_ITEMS = 40
_LONGEST_ITEM = 400
_LONGEST_NAME = 48
_KEYS = ("item", "weight", "check", "name")
_LEAST, _MOST = 1e-9, 1e9
"""The least and the largest weight of an item: sums of others lose items, or are no number."""


@dataclass(frozen=True, slots=True)
class ChecklistItem:
    """One thing that an answer has to do. A program decides it where there is a `check`, else the judge."""

    text: str
    weight: float = 1.0
    name: str = ""
    check: Check | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """Whether an item is met, and why."""

    met: bool
    reason: str = ""


@dataclass(frozen=True)
class Checklist:
    """Sum of weight * met over the sum of weights, in [0, 1]. Every item is a named part.

    Without `items` the judge extracts them from `rubric`; that question is the same for every rollout, so
    that it is paid once per run. With `per_row` the judge writes items for each row from its input (and the `rubric`, where
    there is one), beside those of `items`; that question is the same for every rollout of the row. Written items are no
    parts, because every row has its own. All items that need the judge go into one call; `samples` of it are averaged. The
    critique has one line for each item that is not met.
    """

    items: tuple[ChecklistItem, ...] = ()
    rubric: str = ""
    samples: int = 1
    human: str | None = None
    human_output: str = "output"
    human_good: str | None = None
    files: tuple[Path, ...] = ()
    name: str = "checklist"
    low: float = 0.0
    high: float = 1.0
    per_row: bool = False
    timeout: float = field(default=REWARD_TIMEOUT, init=False, compare=False)

    @property
    def needs(self) -> frozenset[str]:
        """The judge, unless a program checks every item."""
        return frozenset({JUDGE}) if self.judge_calls else frozenset()

    @property
    def judge_calls(self) -> int:
        """Calls of the judge for one rollout at most. The one that extracts the items of a task is not counted: it is paid
        once. That for a row's own items is.
        """
        if self.per_row:
            return self.samples + 1
        return self.samples if not self.items or any(i.check is None for i in self.items) else 0

    async def grade(self, run: Run, example: Example, completion: Completion) -> Reward:
        if self.per_row:
            items = name_items([*self.items, *await self._write(run, example)])
        else:
            items = self.items or await self._extract(run)
        open_items = [i for i in items if i.check is None]
        answers = await self._ask(run, open_items, example, completion.text) if open_items else []
        shares: dict[str, float] = {}
        lines: list[str] = []
        for item in items:
            if item.check is not None:
                fault = await self._fault(item.check, example, completion.text)
                findings = [Finding(not fault, fault)]
            else:
                place = open_items.index(item)
                findings = [sample[place] for sample in answers]
            shares[item.name] = fmean(f.met for f in findings)
            lines += [_line(item, f) for f in findings if not f.met][:1]
        total = math.fsum(i.weight for i in items)
        value = math.fsum(i.weight * shares[i.name] for i in items) / total
        own = {i.name for i in (self.items if self.per_row else items)}
        parts = {name: share for name, share in shares.items() if name in own}
        return Reward(min(1.0, value), parts, "\n".join(lines) or None)

    async def _fault(self, check: Check, example: Example, answer: str) -> str:
        if not check.is_pattern:
            return check.fault(answer)
        return await match_within(
            lambda most: check.fault(answer, most), self.timeout, check.argument, example
        )

    async def _extract(self, run: Run) -> tuple[ChecklistItem, ...]:
        rules = f"{_EXTRACT}\n\n{RULES.replace('judge', 'read')}\n\n{_EXTRACT_FORM}"
        question = JudgeQuestion(
            rules, enclose_in_markers("The instruction", self.rubric.strip()), _EXTRACTED
        )
        return await ask(run, question, read_items)

    async def _write(self, run: Run, example: Example) -> tuple[ChecklistItem, ...]:
        """Items for one row, from what it asks for."""
        shown = [enclose_in_markers("The instruction", self.rubric.strip())] if self.rubric else []
        shown.append(enclose_in_markers("The request", example.user_text))
        rules = f"{_WRITE}\n\n{RULES.replace('judge', 'read')}\n\n{_EXTRACT_FORM}"
        return await ask(run, JudgeQuestion(rules, "\n\n".join(shown), _EXTRACTED), read_items)

    async def _ask(
        self, run: Run, items: Sequence[ChecklistItem], example: Example, answer: str
    ) -> list[list[Finding]]:
        listed = "\n".join(f"{n}. {item.text}" for n, item in enumerate(items, 1))
        shown = [
            enclose_in_markers("The task's input", example.user_text),
            enclose_in_markers("The answer to judge", answer),
        ]
        if example.target is not None:
            shown.insert(1, enclose_in_markers("The expected answer", str(example.target)))
        rules = "\n\n".join((_TASK, f"The items:\n{listed}", RULES, _FORM))
        question = JudgeQuestion(rules, "\n\n".join(shown), _JUDGED, 256 + 96 * len(items))

        def read(reply: str, whole: bool) -> list[Finding] | None:
            return read_findings(reply, len(items), whole)

        async def one(branch: Run, sample: int) -> list[Finding]:
            return await ask(branch, question, read, sample=sample, of=self.samples)

        return await run.map(one, range(self.samples))


def _line(item: ChecklistItem, finding: Finding) -> str:
    """An item that is not met as one line of a critique: what is demanded, then what was found."""
    stop = "" if item.text[-1] in ".!?" else "."
    return f"{item.text}{stop} {finding.reason}".strip() if finding.reason else f"{item.text}{stop}"


def read_findings(reply: str, count: int, whole: bool = True) -> list[Finding] | None:
    """One finding for each of `count` items, in order; None when one of them is missing, or has two verdicts that differ.

    Read from JSON (a list, or an object by number), else from lines such as `2. no: the price is missing`. Where the reply
    holds several lists of verdicts, such as a draft and the final one, each item has the same verdict in all of them.
    """
    answer = read_reply(reply, whole)
    lists = [
        _by_number(first_of(value, "items", "results", "checklist", "answers") or value, count)
        for value in answer.objects
    ]
    lists.append(_by_line(answer))
    complete = next((one for one in lists if all(one.get(n) for n in range(1, count + 1))), None)
    if complete is None:
        return None
    findings = [
        agree_on([complete[n][0], *(finding for one in lists for finding in one.get(n, ()))], lambda f: f.met)
        for n in range(1, count + 1)
    ]
    return None if None in findings else [finding for finding in findings if finding is not None]


_BY_DIGIT = {"1": True, "0": False}


def _by_line(answer: JudgeReply) -> dict[int, list[Finding]]:
    """The findings of numbered lines. A line without a verdict is none."""
    findings: dict[int, list[Finding]] = {}
    for match in _LINE.finditer(answer.own.text):
        text = answer.own.unwrap(match[2])
        met = yes_or_no(text)
        if met is not None:
            reason = without_verdict(answer.own.restore(text))
            findings.setdefault(int(match[1]), []).append(Finding(met, reason))
    return findings


def _by_number(value: object, count: int) -> dict[int, list[Finding]]:
    """The findings of a list, or of an object by number. The place in a list counts where an entry has no number and the list has
    `count` entries: of more of them nobody can say which item each one is about."""
    if isinstance(value, list):
        rows = dict(
            enumerate(value, 1)
            if len(value) == count
            else ((f"entry {n}", row) for n, row in enumerate(value))
        )
    else:
        rows = value if isinstance(value, dict) else {}
    findings: dict[int, list[Finding]] = {}
    for key, row in rows.items():
        keys = lower_keys(row) if isinstance(row, dict) else {"met": row}
        place = parse_place(first_of(keys, "number", "item", "id", "n", "index"))
        place = parse_place(key) if place is None else place
        verdict = first_of(keys, "met", "answer", "verdict", "result", "passed", "pass", "satisfied")
        met = _BY_DIGIT.get(str(verdict).strip(), yes_or_no(verdict))
        reason = first_of(keys, *REASONS)
        if place is not None and met is not None:
            finding = Finding(met, " ".join(reason.split()) if isinstance(reason, str) else "")
            findings.setdefault(place, []).append(finding)
    return findings


def read_items(reply: str, whole: bool = True) -> tuple[ChecklistItem, ...] | None:
    """The items of a reply to the extraction, at most 40; None when there are none, or not all of them.

    Of several lists in JSON the last complete one counts, in a fenced block or not: those before it are drafts. Without JSON, the
    lines of a list count; where the reply has fenced blocks, those of the block or the text between blocks that has most of them,
    the last one of equals.
    """
    if not whole:
        return None
    lists = [
        first_of(value, "items", "checklist", "requirements") for value in read_reply(reply).latest_first
    ]
    rows: list[Any] = next((one for one in lists if isinstance(one, list) and one), [])
    if not rows:
        own = without_thought(reply)
        parts = [list_items(own[part.begin : part.stop]) for part in stretches_of(own)]
        rows = [*max(reversed(parts), key=len)]
    items: list[ChecklistItem] = []
    for row in rows[:MOST_ITEMS]:
        keys = lower_keys(row) if isinstance(row, dict) else {"item": row}
        text = first_of(keys, "item", "text", "requirement", "question")
        weight = score_number(keys.get("weight")) or 0.0
        if isinstance(text, str) and any(c.isalnum() for c in text):
            usable = weight if _LEAST <= weight <= _MOST else 1.0
            items.append(ChecklistItem(" ".join(text.split())[:_LONGEST_ITEM], usable))
    return name_items(items) or None


def name_items(items: Sequence[ChecklistItem]) -> tuple[ChecklistItem, ...]:
    """Items with a name each: their own, or their text cut at a word; a number tells equal names apart."""
    taken: dict[str, int] = {}
    unique_items = []
    for item in items:
        name = item.name or _short(item.text)
        taken[name] = taken.get(name, 0) + 1
        unique = name if taken[name] == 1 else f"{name} ({taken[name]})"
        unique_items.append(ChecklistItem(item.text, item.weight, unique, item.check))
    return tuple(unique_items)


def _short(text: str) -> str:
    text = text.rstrip(".!?")
    return text if len(text) <= _LONGEST_NAME else text[:_LONGEST_NAME].rsplit(" ", 1)[0] + "…"


def build_checklist(options: RewardOptions) -> Checklist:
    """A checklist from its options in a task file. Raises UsageError with file and line."""
    options.only("items", "rubric", "samples", "per_row", *OF_EVERY_JUDGE)
    entries, per_row = options.values.get("items"), options.values.get("per_row", False)
    if not isinstance(per_row, bool):
        options.refuse(f"the option per_row must be true or false; this is {per_row!r}.")
    if entries is None and "rubric" not in options.values and not per_row:
        options.refuse(
            "write `items: [...]`, a `rubric` from which the judge extracts them, or `per_row: true` for a checklist of each "
            "row's own."
        )
    if entries is not None and "rubric" in options.values and not per_row:
        options.refuse("`items` and `rubric` exclude each other. Keep one.")
    rubric, files = options.file_or_text("rubric") if "rubric" in options.values else ("", ())
    items = () if entries is None else _items(options, entries)
    return Checklist(
        items,
        rubric,
        options.whole("samples", 1),
        files=files,
        per_row=per_row,
        **options.of_every_judge(),
    )


def _items(options: RewardOptions, rows: object) -> tuple[ChecklistItem, ...]:
    if not isinstance(rows, list) or not rows:
        options.refuse(f"`items` is a list of texts or of {{item, weight, check, name}}; this is {rows!r}.")
    if len(rows) > MOST_ITEMS:
        options.refuse(f"there are {len(rows)} items; at most {MOST_ITEMS} fit. Use several checklists.")
    items = name_items([_item(options, row, n) for n, row in enumerate(rows, 1)])
    names = [item.name for item in items]
    if len(set(names)) < len(names):
        options.refuse("two items have the same name. Give each its own.")
    return items


def _item(options: RewardOptions, row: object, place: int) -> ChecklistItem:
    row = {"item": row} if isinstance(row, str) else row
    if not isinstance(row, dict):
        options.refuse(f"item {place} must be a text or an object with `item`; this is {row!r}.")
    for key in row:
        if key not in _KEYS:
            options.refuse(f'item {place} has no key "{key}".{did_you_mean(str(key), _KEYS)}')
    check = _check(options, row["check"], place) if "check" in row else None
    text = row.get("item", "")
    if not isinstance(text, str) or (not text.strip() and check is None):
        options.refuse(f"item {place} needs a text under `item`, or a `check`.")
    weight = row.get("weight", 1.0)
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not _LEAST <= weight <= _MOST:
        options.refuse(
            f"item {place}: the weight must be a number above 0, from {_LEAST:g} to {_MOST:g}; this is {show_value(weight)}."
        )
    name = row.get("name", "")
    if not isinstance(name, str):
        options.refuse(f"item {place}: the name must be a text; this is {name!r}.")
    described = text.strip() or f"{check.kind} {check.argument}" if check is not None else text.strip()
    return ChecklistItem(described[:_LONGEST_ITEM], float(weight), name.strip(), check)


def _check(options: RewardOptions, option: object, place: int) -> Check:
    option = {option: True} if isinstance(option, str) else option
    if not isinstance(option, dict) or len(option) != 1:
        options.refuse(
            f"item {place}: a check is one of {', '.join(CHECKS)}, such as {{max_words: 50}}; "
            f"this is {option!r}."
        )
    kind, argument = next(iter(option.items()))
    if kind not in CHECKS:
        options.refuse(f'item {place}: there is no check "{kind}".{did_you_mean(str(kind), CHECKS)}')
    try:
        return Check(str(kind), argument)
    except ValueError as error:
        options.refuse(f"item {place}: {error}.")


def _rows(properties: dict[str, JSON]) -> dict[str, JSON]:
    return closed_object(items=array(closed_object(**properties)))


_JUDGED = _rows({"number": {"type": "integer"}, "reason": {"type": "string"}, "met": {"type": "boolean"}})
_EXTRACTED = _rows({"item": {"type": "string"}, "weight": {"type": "number"}})
_LINE = re.compile(r"^[^\w\n]*+(\d{1,3})\s*[.):\]]+\s*(\S.*)$", re.MULTILINE)

_TASK = "You check an answer of another system against a list of items. Decide each item by itself."
_FORM = """\
For each item write one sentence that says what in the answer meets it or fails it, then whether it is met. \
Answer with JSON only: {"items": [{"number": 1, "reason": "...", "met": true}, ...]}"""
_EXTRACT = """\
Turn an instruction into a checklist for answers that have to follow it. Every item is one demand that can \
be decided by reading the answer, in one short sentence with "must" or "must not"; nothing is left out, \
nothing is said twice. The weight, from 1 to 100, says how much the item matters."""
_WRITE = """\
Write a checklist for answers to one request. Every item is one demand that a good answer to this request has to meet \
and that can be decided by reading the answer, in one short sentence with "must" or "must not". Name what this request \
asks for, what must be right in the answer, and what must not be in it; nothing is said twice, and nothing is demanded \
that the request does not call for. Where an instruction is given, it says what answers are for. The weight, from 1 to \
100, says how much the item matters."""
_EXTRACT_FORM = 'Answer with JSON only: {"items": [{"item": "...", "weight": 100}, ...]}'
