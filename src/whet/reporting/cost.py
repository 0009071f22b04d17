"""The cost of a run, and the command that repeats it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import orjson

import whet.reporting.number_format as number_format
from whet.engine.result_json import UsageJSON
from whet.engine.usage_sums import PARTS, has_no_price, parts_of, usage_of_run
from whet.reporting.layout import Section, facts, note, region, table
from whet.reporting.markup import Child, el, join
from whet.reporting.record import Record, Spending, finite_number, side, usage_in
from whet.reporting.verdict import openings

_MODEL_OPTIONS = {"task": "--lm", "optimizer": "--optimizer-lm", "judge": "--judge-lm", "policy": "--policy"}
_DIGEST = re.compile(r" \([0-9a-f]{16}\)$")  # of the checkpoint that a policy was read from


def cost_section(record: Record) -> Section:
    """Calls, tokens and dollars by role."""
    rows = [_row(row, row.role in record.unpriced, row.role in record.priceless) for row in record.spending]
    sums = {f.name: sum(getattr(row, f.name) for row in record.spending) for f in fields(Spending)[1:]}
    beside = " and ".join(name for name, used in _beside(record).items() if used)
    title = f"Model calls by role, without {beside}" if beside else "Model calls by role"
    total = Spending("Total", **sums)
    head = [
        "Role",
        "Calls",
        "Failed",
        "Lost",
        "Turned away",
        "From cache",
        "Input tokens",
        "Output tokens",
        "USD",
    ]
    seconds = usage_of_run(usage_in(record.result)).get("seconds", record.seconds)
    caption = note(
        "Calls are attempts, including retries, failed calls and lost calls. A lost call was in "
        "flight when an earlier session was killed, and counts with its highest price. Calls that an "
        "endpoint refused (429, for example) do not count. Answers from the cache cost nothing. "
        f"{_others(record)}The run itself took {number_format.duration(seconds)}."
    )
    roles = table(title, head, rows, foot=_row(total, bool(record.unpriced), bool(record.priceless)))
    return Section("cost", "Cost", join(roles, caption, *_stages(record), *_plan_and_use(record)))


def _plan_and_use(record: Record) -> list[Child]:
    """The plan beside the usage of the run; empty for a run without a plan."""
    plan = side(record.result, "plan")
    if not (planned := side(plan, "calls")):
        return []
    tokens = sum(row.input_tokens + row.output_tokens for row in record.spending)
    calls = {row.role: row.calls for row in record.spending}
    rows = [
        _plan_row(f"Calls: {role}", side(planned, role), calls.get(role, 0), number_format.count)
        for role in dict.fromkeys([*planned, *calls])
    ]
    rows.append(_plan_row("Tokens", side(plan, "tokens"), tokens, number_format.count))
    if not (side(plan, "price_unknown") or record.unpriced or record.priceless):
        dollars = sum(row.cost for row in record.spending)
        rows.append(_plan_row("USD", side(plan, "cost_usd"), dollars, number_format.dollars))
    head = ["", "Expected", "At most", "Used", "Used, of the expected"]
    about = (
        "The plan was made before anything was paid, and expects that a search uses all its calls. A dash stands for what it "
        "did not say, such as how often the search asks the optimizer model. "
    )
    if not plan.get("tokens_measured", True):
        about += "No earlier run had measured tokens, so every byte of the expected texts counted as one."
    return [table("The plan and what was used", head, rows), note(about)]


def _plan_row(name: str, ends: Mapping[str, Any], used: float, show: Callable[[object], str]) -> list[Child]:
    """A row of what was expected, at most and used, and the share of the last in the first."""
    expected = finite_number(ends.get("expected"))
    share = f"{used / expected:.0%}" if expected else "–"
    return [name, show(expected), show(ends.get("most")), show(used), share]


def _others(record: Record) -> str:
    """A sentence that the calls of the control and of added rows are not included, with their number."""
    sentences = []
    for name, usage in _beside(record).items():
        if usage:
            calls = sum(n for n in side(usage, "calls").values() if isinstance(n, int))
            price = describe_price(usage)
            time = number_format.duration(usage.get("seconds"))
            sentences.append(
                f"{name[0].upper()}{name[1:]} took {number_format.plural(calls, 'call')} more ({price}, {time}), which are not "
                "in this table; the figures at the top of the page include them. "
            )
    return "".join(sentences)


def _beside(record: Record) -> dict[str, Mapping[str, Any]]:
    """The usage of the control and of added rows, by what they are called; empty where there are none."""
    return {PARTS[name]: side(side(record.result, name), "usage") for name in PARTS}


def dollars_missing(usage: Mapping[str, Any]) -> str:
    """The text in a table that replaces dollars if nobody has given a price or no model has one; otherwise empty."""
    if usage.get("price_unknown"):
        return "unknown"
    return number_format.NOT_PRICED if has_no_price(usage) else ""


def describe_price(usage: Mapping[str, Any]) -> str:
    """The dollars of a usage, or why there is no number."""
    cost = float(usage.get("cost_usd") or 0.0)
    return number_format.price(cost, bool(usage.get("price_unknown")), has_no_price(usage))


def parts_beside(usage: UsageJSON) -> list[str]:
    """The cost of the parts beside a run, such as `the control: 152 calls, $0.0101`."""
    named = ((PARTS[name], part) for name, part in parts_of(usage).items() if name in PARTS)
    return [
        f"{name}: {number_format.plural(sum(side(part, 'calls').values()), 'call')}"
        + (f", ${part['cost_usd']:.4f}" if part.get("cost_usd") else "")
        for name, part in named
    ]


def _stages(record: Record) -> list[Child]:
    """Calls and tokens of the optimizer model by what it was asked for, where the method says so."""
    stages: dict[str, list[int]] = {}
    for value in record.others.get("stage", ()):
        if isinstance(value, Mapping):
            sums = stages.setdefault(str(value.get("stage", "")), [0, 0, 0])
            for n, amount in enumerate((1, value.get("input"), value.get("output"))):
                sums[n] += amount if isinstance(amount, int) else 0
    rows: list[list[Child]] = [[name, *(f"{n:,}" for n in sums)] for name, sums in stages.items()]
    head = ["Stage", "Calls", "Input tokens", "Output tokens"]
    return [table("Calls of the optimizer model by stage", head, rows)] if rows else []


def _row(row: Spending, unpriced: bool, priceless: bool) -> list[Child]:
    numbers = (row.calls, row.failed, row.lost, row.refused, row.cached, row.input_tokens, row.output_tokens)
    return [row.role, *(f"{n:,}" for n in numbers), number_format.price(row.cost, unpriced, priceless)]


def reproduction(record: Record) -> Section:
    """The command, and everything that the run pinned."""
    header = record.header
    limits = {key: value for key, value in side(header, "limits").items() if value is not None}
    pairs: list[tuple[str, Child]] = [
        ("Run", record.name),
        ("whet", str(header.get("whet", "–"))),
        ("Task", f"{header.get('task', '–')} (fingerprint {header.get('fingerprint', '–')})"),
        ("Method", f"{header.get('method', '–')} (version {header.get('version', '–')})"),
        ("Seed", str(header.get("seed", "–"))),
        *((f"Model: {role}", str(address)) for role, address in side(header, "models").items()),
        *((f"Limit: {k.replace('_', ' ')}", _plain(v)) for k, v in limits.items()),
        *((f"Setting: {key}", _plain(value)) for key, value in side(header, "config").items()),
        *((f"Generation: {key}", _plain(value)) for key, value in side(header, "generation").items()),
    ]
    caption = note(
        "TASK stands for the task folder. Keys and endpoint URLs are not recorded. With the same "
        "seed and models, the search repeats every choice; a remote model may still answer "
        "differently."
    )
    code = region(
        "pre",
        el("code", command(header, side(record.result, "control").get("method"))),
        label="Command line",
        class_="command",
    )
    return Section("reproduction", "Reproduction", join(code, caption, facts(pairs), openings(record)))


def command(header: Mapping[str, object], control: object = None) -> str:
    """The command line that starts a run with this header, and its control, one option a line."""
    words = ["whet optimize TASK"]
    if header.get("method") is not None:
        words.append(f"--method {shlex.quote(str(header['method']))}")
    for role, address in side(header, "models").items():
        if role in _MODEL_OPTIONS:
            words.append(f"{_MODEL_OPTIONS[role]} {shlex.quote(_DIGEST.sub('', str(address)))}")
    for name, value in side(header, "limits").items():
        if value is not None:
            words.append(f"--max-{name.replace('_', '-')} {shlex.quote(str(value))}")
    for name, value in side(header, "config").items():
        words.append(f"--set {shlex.quote(f'{name}={_setting(value)}')}")
    if control is not None:
        words.append(f"--control {shlex.quote(str(control))}")
    words.append(f"--seed {shlex.quote(str(header.get('seed', 0)))}")
    return " \\\n  ".join(words)


def _setting(value: object) -> str:
    """A value as `--set` takes it."""
    if isinstance(value, str):
        return value
    return "none" if value is None else orjson.dumps(value).decode()


def _plain(value: object) -> str:
    """A value for people: separators in whole numbers, `key value` pairs for a mapping."""
    if isinstance(value, Mapping):
        return ", ".join(f"{str(key).replace('_', ' ')} {_plain(v)}" for key, v in value.items())
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else _setting(value)
