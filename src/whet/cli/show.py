"""The output of the command line: a live line while a run goes on, and results for people or programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from click.formatting import wrap_text

from whet import api
from whet.api import (
    MethodComparison,
    Progress,
    RunResult,
    answered_rows,
    describe_agreement,
    sample_size,
    show_gaps,
)
from whet.cli.common import say, show_diff, show_table, warn
from whet.cli.interrupt import run_coroutine
from whet.cli.use import use_lines
from whet.engine import (
    ComparisonJSON,
    EvaluationJSON,
    LabelFiguresJSON,
    MeanJSON,
    MethodSummaryJSON,
    PairJSON,
    PlanJSON,
    ReasonsJSON,
    RunJSON,
    RunRowJSON,
    TeamRunJSON,
    TransferSummaryJSON,
    UsageJSON,
)
from whet.errors import quantity, show_reward, show_share, show_size
from whet.methods import NEEDS_IN_WORDS
from whet.reporting import (
    FAMILIES,
    all_pairs,
    best_first,
    display_progress,
    dollars_missing,
    parts_beside,
    start_sentences,
    warnings_of,
)
from whet.stats import show_p

CONFUSIONS = 5
_RUN_COLUMNS = ["run", "status", "mean", "n", "promoted", "calls", "USD"]
NEEDS = {"optimizer_optional": "optimizer (optional)", "label_scores": "labels, a model that scores them"}


def with_progress(task: str, options: Mapping[str, Any]) -> RunResult:
    """Run `optimize` while its state is shown on stderr."""
    with show_progress_of(task) as progress:
        return run_coroutine(api.aoptimize(Path(task), progress=progress, **options))


def compare_with_progress(
    task: str, names: Sequence[str], seeds: int, options: Mapping[str, Any]
) -> MethodComparison:
    """Run `compare` while its state is shown on stderr."""
    with show_progress_of(task) as progress:
        return run_coroutine(api.acompare(Path(task), names, seeds=seeds, progress=progress, **options))


def show_progress_of(task: str) -> AbstractContextManager[Progress]:
    """The progress that a command on a task folder shows on stderr."""
    return display_progress(None, task, warn=partial(warn, err=True))


def show_interval(score: MeanJSON | None) -> str:
    """A score with its 95% interval and the number of examples, or how many of them were answered."""
    if score is None:
        return "not tested"
    count = sample_size(score["n"], score.get("groups"))
    if gaps := answered_rows(score.get("answered"), score.get("of"), score.get("compared")):
        count = gaps + count.removeprefix(f"n={score['n']}").removeprefix(" rows")
    mean, low, high = score["mean"], score["low"], score["high"]
    if mean is None:
        return f"no answer  {count}"
    ends = "" if low is None or high is None else f"[{show_reward(low)}, {show_reward(high)}]  "
    return f"{show_reward(mean)}  {ends}{count}"


def show_dollars(usage: UsageJSON) -> str:
    """The text after the number of calls: the price, or that there is none, and whether the tokens are estimates."""
    if not usage.get("price_unknown") and (missing := dollars_missing(usage)):
        return f", {missing}{', tokens estimated' if usage.get('estimated') else ''}"
    if not usage["cost_usd"]:
        return ", tokens estimated" if usage.get("estimated") else ""
    notes = ["estimated"] if usage.get("estimated") else []
    notes += ["without the provider's own tools"] if usage.get("provider_tools") else []
    return f", ${usage['cost_usd']:.4f}" + (f" ({', '.join(notes)})" if notes else "")


def result(values: RunJSON) -> None:
    """The result of a run: baseline against best, the gate's verdict, the diff, the report."""
    from whet.prompt import text_diff

    if values["status"] == "planned":
        return
    simulated = "  (SIMULATED: a scripted model answered)" if values.get("simulated") else ""
    say(f"{values['task']} · {values['method']} · seed {values['seed']}{simulated}")
    _print_recorded(values)
    say("")
    say(f"{'':22}{'sealed test, 95% interval'}")
    say(f"{'baseline':<22}{show_interval(values['baseline']['test'])}")
    say(f"{'best':<22}{show_interval(values['best']['test'])}")
    if "control" in values:
        control = values["control"]
        say(f"{'control ' + control['method']:<22}{show_interval(control['best']['test'])}")
    if more := values.get("more"):
        say(f"{'baseline, added rows':<22}{show_interval(more['baseline'])}")
        say(f"{'best, added rows':<22}{show_interval(more['best'])}")
    improvement = values["improvement"]
    color = "green" if improvement["promoted"] else None
    say("")
    say(improvement["reason"], fg=color, bold=True)
    _show_cases(values.get("cases", {}))
    _pairs(values.get("pairs"))
    if diff := text_diff(values["baseline"]["prompt"], values["best"]["prompt"]):
        say("")
        show_diff(diff)
    usage = values["usage"]
    calls = ", ".join(f"{count:,} {role}" for role, count in usage["calls"].items() if count) or "none"
    if refused := sum(usage.get("refused", {}).values()):
        calls += f" ({refused:,} more were refused by the endpoint and do not count)"
    if cached := sum(usage.get("cached", {}).values()):
        calls += f", {cached:,} from the cache{_age(usage)}"
    cost = show_dollars(usage)
    cost += ", price unknown: set prices in task.yaml" if usage.get("price_unknown") else ""
    if parts := parts_beside(usage):
        cost += f" (of these {'; '.join(parts)})"
    say(
        f"\ncalls: {calls}{cost}; {usage['seconds']:.0f} s; ended by {values['ended_by']}{_describe_unneeded(values)}"
    )
    _show_cached_input(usage)
    for warning in values["warnings"]:
        warn(warning)
    say(f"prompt: {values['run']}/best.md\nreport: {values['run']}/report.html")
    for use in use_lines(values):
        say(use)


def _show_cases(cases: Mapping[str, Any]) -> None:
    """The result of the sealed test for each case of a task made of several tasks."""
    if not cases:
        return
    say("")
    rows = [
        [
            name,
            show_reward(one["baseline"]),
            show_reward(one["best"]),
            f"{one['difference']:+.3f} [{one['low']:+.3f}, {one['high']:+.3f}]",
            str(one["n"]),
            one["verdict"],
        ]
        for name, one in cases.items()
    ]
    show_table(["case", "baseline", "best", "difference, alone", "rows", "verdict"], rows)


def _describe_unneeded(values: RunJSON) -> str:
    """The calls of a limit that were kept for the test of another prompt, where the search found none."""
    plan, test = values.get("plan", PlanJSON()), values["baseline"]["test"]
    most = plan.get("limits", {}).get("calls")
    if most is None or test is None or values["status"] != "budget_exhausted":
        return ""
    left = int(most) - sum(values["usage"]["calls"].values())
    kept = test["n"] + plan["validation"]["rows"]
    if values["best"]["id"] != values["baseline"]["id"] or not 0 < left <= kept:
        return ""
    return f"; {left:,} calls that were reserved for the sealed test were not needed"


def _print_recorded(values: RunJSON | EvaluationJSON) -> None:
    """Print that a result was recorded before, and when."""
    if values.get("recorded"):
        say(
            f"finished on {values['ended']}; this is the recorded result, and no model was called "
            "(--fresh calls the models again)"
        )


def _show_cached_input(usage: UsageJSON) -> None:
    """The share of the input that servers had in their prefix caches, where they report any."""
    if cached := usage.get("cached_input_tokens", 0):
        share = show_share(min(1.0, cached / max(1, usage["input_tokens"])))
        say(f"input: {usage['input_tokens']:,} tokens, {share} of them from the caches of the servers")


def _age(usage: UsageJSON) -> str:
    """Say the age of the oldest answer from the cache, where it is known, and the option that calls the models again."""
    if "cached_oldest" not in usage:
        return " (--fresh calls the models again)"
    since = (datetime.now(UTC) - datetime.fromisoformat(usage["cached_oldest"])).total_seconds()
    days = max(0.0, since) / 86400  # the clock of the machine that shared it may be ahead
    age = (
        f"{days:.0f} days"
        if days >= 2
        else f"{days * 24:.0f} h"
        if days * 24 >= 2
        else f"{days * 1440:.0f} min"
    )
    return f" (the oldest is {age} old; --fresh calls the models again)"


def show_evaluation(values: EvaluationJSON) -> None:
    """The result of an evaluation."""
    if values["status"] == "planned":
        return
    simulated = "  (SIMULATED)" if values["simulated"] else ""
    say(f"{values['task']} · {values['split']} · {show_interval(values['score'])}{simulated}")
    for name, mean in values["parts"].items():
        say(f"  {name}: {show_reward(mean, 4)}")
    for one in values.get("agreement", ()):
        say(f"  {describe_agreement(one)}")
    _print_recorded(values)
    if not values.get("recorded") and (cached := sum(values["usage"].get("cached", {}).values())):
        say(f"{quantity(cached, 'answer')} from the cache{_age(values['usage'])}")
    _show_cached_input(values["usage"])
    _labels(values.get("labels"))
    if "rows" in values:
        say(f"rows with answer and reward, the worst first: {values['rows']}")
    for warning in values["warnings"]:
        warn(warning)


def _labels(figures: LabelFiguresJSON | None) -> None:
    """Accuracy by label, and what was answered instead most often."""
    if figures is None:
        return
    say("")
    rows = [
        [name, str(one["n"]), _share(one["accuracy"]), str(one["answers"]), _share(one["precision"])]
        for name, one in figures["each"].items()
    ]
    show_table(["label", "rows", "accuracy", "answered", "precision"], rows)
    errors = [
        f"{figure['target']} -> {figure['answer']} {figure['n']}"
        for figure in figures["confusions"][:CONFUSIONS]
    ]
    if errors:
        say(f"most frequent errors (wanted -> answered): {', '.join(errors)}")


def _share(value: float | None) -> str:
    return "-" if value is None else show_reward(value)


def comparison(values: ComparisonJSON) -> None:
    """Methods, best test mean first: results and costs, then readability of the prompts and transfer to other models.

    Lines below the tables give the reasons for missing figures.
    """
    if values.get("status") == "planned":
        return
    rows = best_first(values["methods"])
    head = [
        "method",
        "runs",
        "test mean",
        "95% interval",
        "min",
        "max",
        "baseline",
        "promoted",
        "calls a run",
    ]
    show_table([*head, "USD a run"], [_rows_of_reached(r) for r in rows])
    if names := list(dict.fromkeys(name for r in rows for name in r.get("objectives", ()))):
        say("")
        show_table(
            ["method", *names], [[r["method"], *(_objective(r, name) for name in names)] for r in rows]
        )
    _pairs(all_pairs(values))
    if values.get("beside_start") and values.get("pairs"):
        say(FAMILIES)
    if kept := start_sentences(values):
        say("")
        for text in kept:
            say(text)
    other = values.get("transfer")
    head = ["method", "perplexity"]
    if other is not None:
        head += ["transfer", "gain there", "95% interval", "calls there", "USD there"]
    if other is not None or any(r["readability"]["perplexity"] is not None for r in rows):
        say("")
        show_table(head, [_beside(r) for r in rows])
    if other is not None:
        written = "not measured" if other["test"] is None else show_interval(other["test"])
        say(f"\ntransfer: {other['model']}; the start prompt there: {written}")
    _print_reasons("readability", [(row["method"], row["readability"]) for row in rows])
    moved = [(row["method"], row["transfer"]) for row in rows if "transfer" in row]
    _print_reasons("transfer", moved)
    for warning in warnings_of(values["runs"]):
        warn(warning)
    if (part := values.get("shard")) is not None:
        say(
            f"\nshard {part['number']} of {part['of']}: {values['folder']}/comparison-{part['number']}-of-{part['of']}.json; "
            f"`whet merge {values['folder']}` joins all shards into one table"
        )
    elif "folder" in values:
        say(f"\nreport: {values['folder']}/comparison.html (also .csv, .md, .tex)")


def _print_reasons(name: str, figures: Sequence[tuple[str, ReasonsJSON]]) -> None:
    """Why figures of methods are missing, each reason once."""
    reasons: dict[str, list[str]] = {}
    for method, one in figures:
        for reason in one.get("reasons", ()):
            reasons.setdefault(reason, []).append(method)
    for reason, methods in reasons.items():
        say(f"{', '.join(methods)}: {name}: {reason}")


def _pairs(pairs: Sequence[PairJSON] | None) -> None:
    """Methods in pairs, on the same rows."""
    if pairs:
        say("")
        head = ["pair", "difference", "simultaneous interval", "p", "p adjusted"]
        show_table(head, [_pair(pair) for pair in pairs])


def _objective(r: MethodSummaryJSON, name: str) -> str:
    """The baseline's mean of an objective, that of the best prompts, and what the gate said of them."""
    if name not in r.get("objectives", ()):
        return "-"
    one = r["objectives"][name]
    verdicts = ", ".join(f"{n} {verdict}" for verdict, n in one["verdicts"].items())
    return f"{show_size(one['baseline'])} -> {show_size(one['best'])} ({verdicts})"


def _pair(pair: PairJSON) -> list[str]:
    if not pair["n"] or pair["difference"] is None:
        return [f"{pair['a']} - {pair['b']}", "no answer", "-", "-", "-"]
    figures = (pair["difference"], pair["low"], pair["high"])
    difference, low, high = (show_reward(value, sign=True) for value in figures)
    ps = [show_p(value) for value in (pair["p"], pair["p_adjusted"])]
    return [f"{pair['a']} - {pair['b']}", difference, f"[{low}, {high}]", *ps]


def _rows_of_reached(r: MethodSummaryJSON) -> list[str]:
    figures = (
        r["test_mean"],
        r["test_low"],
        r["test_high"],
        r["test_min"],
        r["test_max"],
        r["baseline_test"],
    )
    mean, low, high, worst, best, before = map(_share, figures)
    ends, promoted = f"[{low}, {high}]", f"{r['promoted']}/{r['runs']}"
    mean = f"{mean}{show_gaps(r)}" if r["tested"] else "no answer" if r.get("unanswered") else "not tested"
    reached = [r["method"], str(r["runs"]), mean, ends, worst, best, before]
    return [*reached, promoted, f"{r['calls']:.0f}", _dollars(r)]


def _dollars(r: MethodSummaryJSON | TransferSummaryJSON | RunRowJSON) -> str:
    """The cost as a text: unknown where a price is unknown, and not priced where no model has a price."""
    if missing := dollars_missing(r):
        return missing
    return "-" if r["cost_usd"] is None else f"{r['cost_usd']:.4f}"


def _beside(r: MethodSummaryJSON) -> list[str]:
    perplexity, moved = r["readability"]["perplexity"], r.get("transfer")
    cells = [r["method"], "-" if perplexity is None else f"{perplexity:,.0f}"]
    if moved is None:
        return cells
    if moved["test_mean"] is None:
        return [*cells, "no answer" if moved.get("unanswered") else "-", *["-"] * 4]
    figures = (moved["gain_difference"], moved["gain_low"], moved["gain_high"])
    gain, low, high = (show_reward(value, sign=True) for value in figures)
    return [
        *cells,
        f"{show_reward(moved['test_mean'])}{show_gaps(moved)}",
        gain,
        f"[{low}, {high}]",
        f"{moved['calls']:.0f}",
        _dollars(moved),
    ]


def show_methods(values: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """The table of methods, with the package of those that are not whet's own; on stderr what cannot be used."""
    show_table(
        ["method", "what", "paper", "needs", "trains"],
        [
            [
                r["name"],
                r["title"] if r["package"] == "whet" else f"{r['title']} (package {r['package']})",
                r["paper"] if r["arxiv"] == "-" else f"{r['paper']} ({r['arxiv']})",
                ", ".join(NEEDS.get(need, need) for need in r["needs"]) or "-",
                r["trains"],
            ]
            for r in values["methods"]
        ],
    )
    names = ", ".join(map(str, values["mechanisms"]))
    say(
        f"\n{wrap_text(f'Settings, rewards and environments by the names of papers (whet methods NAME): {names}', width=100)}"
    )
    for row in values["unusable"]:
        say(f"whet: {row['error']}", err=True)


def mechanism(values: Mapping[str, Any]) -> None:
    """Print the meaning of a name from a paper, with its equation and its use."""
    name, *others = values["names"]
    say(name + (f" (also {', '.join(others)})" if others else ""))
    say("\n".join(f"  {line}".rstrip() for line in values["summary"].splitlines()))
    say(f"  use it: {values['use']}")
    say(f"  code: {values['code'].rstrip(':')}")
    say(f"  page: {values['page']}")


def method(values: Mapping[str, Any]) -> None:
    """One method, and below it each setting with its default, its values and its effect."""
    needs = [NEEDS_IN_WORDS[need] for need in values["needs"]]
    needs += [f"the extra {values['extra']}: pip install 'whet[{values['extra']}]'"] * bool(values["extra"])
    url = "" if values["arxiv"] == "-" else f" (https://arxiv.org/abs/{values['arxiv']})"
    lines = {
        "paper": "" if values["paper"] == "-" else values["paper"] + url,
        "choose it when": values["when"],
        "needs": ", ".join(needs) or "nothing",
        "trains": values["trains"],
        "page": values.get("page"),
    }
    say(f"{values['name']}: {values['title']}")
    for name, text in lines.items():
        if text:
            say(f"  {name}: {text}")
    if "missing" in values:
        say(f"settings: not shown. {values['missing']}")
        return
    say(
        f"settings (--set KEY=VALUE, `settings:` in task.yaml, {values['config']}(KEY=VALUE) in Python):"
        if values["settings"]
        else "settings: none"
    )
    for setting in values["settings"]:
        takes = [setting["kind"] or ", ".join(setting["choices"]), setting["bounds"]]
        say(f"  {setting['name']} = {setting['default'] or chr(39) * 2}    {', '.join(filter(None, takes))}")
        if setting["meaning"]:
            say(wrap_text(setting["meaning"], width=100, initial_indent="      ", subsequent_indent="      "))


def show_runs(rows: Sequence[RunRowJSON], root: str) -> None:
    """The table of the runs below a folder."""
    if not rows:
        say(
            f"There are no runs in {Path(root).absolute()}. Start a run with: whet optimize TASK. "
            "List the runs of another folder with: whet runs --root DIR"
        )
        return
    show_table(_RUN_COLUMNS, [_run_cells(r) for r in rows])


def show_team(rows: Sequence[TeamRunJSON]) -> None:
    """The table of the runs of a team."""
    if not rows:
        say("Nobody has started a run with this $WHET_STATE.")
        return
    began = [datetime.fromtimestamp(r["began"], UTC).strftime("%Y-%m-%d %H:%M") for r in rows]
    cells = [[when, r["machine"], *_run_cells(r)] for when, r in zip(began, rows, strict=True)]
    show_table(["began (UTC)", "machine", *_RUN_COLUMNS], cells)


def _rows_in_mean(r: RunRowJSON | TeamRunJSON) -> str:
    """Over how many rows a mean is, and of how many where some have no answer."""
    return str(r["n"]) if r.get("of") in (None, r["n"]) else f"{r['n']} of {r.get('of')}"


def _run_cells(r: RunRowJSON | TeamRunJSON) -> list[str]:
    """A run as a row of a table; where rows have no answer, their number stands beside the mean."""
    trials = {"evaluate": f"evaluated on {r['split']}", "transfer": "tried with another model"}
    status = trials.get(r["method"] or "", "completed") if r["status"] == "completed" else r["status"]
    mean, n = ("-", "-") if r["mean"] is None else (show_reward(r["mean"]), _rows_in_mean(r))
    promoted = "-" if r["promoted"] is None else "yes" if r["promoted"] else "no"
    return [r["run"], status, mean, n, promoted, str(r["calls"]), _dollars(r)]
