"""The methods that need no training, on a model that others trained: real tasks, a bad start, beside the tools of others.

    python benchmarks/real_field.py --lm openai/NAME --base-url http://127.0.0.1:8000/v1   # goes on where it was stopped
    python benchmarks/real_field.py --lm openai/NAME --tasks sst-2 --arms protegi,gepa --seeds 2
    python benchmarks/real_field.py --lm openai/NAME --arms capo --peer capo=/other/venv/bin/python
    python benchmarks/real_field.py --table                                                # what there is so far

The rows are read in place, from the folder that --data or WHET_DATA names: the few-shot data of RLPrompt in
`few_shot_classification`, `instruction_induction/antonyms.jsonl` and two tasks of BIG-Bench Hard in `bbh`. Every run starts from
"Answer.", and an answer counts when it is exactly the target. A search may make --task-calls and --optimizer-calls; the test
comes on top: the same rows under the start and under every last prompt. The model is its own optimizer unless --optimizer-lm,
at --optimizer-base-url, names another.

By default every search of whet runs that asks models in words. Beside them: `hand`, the best of three hand-written prompts by the
validation rows; `gepa`, the package, if it is there;
and `capo` (promptolution) and `miprov2` (DSPy), each run by the interpreter that --peer names, where its package is installed,
on an address that counts its calls. Each run leaves one JSON row in --results; differences to the start, and to the arm that
--against names, are paired by test row, and each seed has rows of its own. A run of whet that was stopped goes on, one of another
arm begins anew.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import whet
from whet.errors import ProviderError
from whet.models.addresses import resolve
from whet.reporting.record import read_run
from whet.stats.paired import paired_test
from whet.types import Message, Request

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.field.peers import PEERS, peer_run
from benchmarks.field.tasks import TASKS, RealTask, Rows, grade, rows_of
from benchmarks.gepa_arm import gepa_prompt

START, ATTEMPTS = "Answer.", 3
OWN_TEST = 6
"""The test rows that a run of whet opens itself; all of them are answered afterwards."""
METHODS = tuple(
    name
    for name, entry in whet.methods.METHODS.items()
    if set(entry.needs) <= {"optimizer", "optimizer_optional"}
)
"""Every search of whet that asks models in words."""
OTHERS = ("gepa", *PEERS)
"""Packages of others. A method of whet that has the name of one of them is the arm `whet_NAME`."""
ARMS = (*(f"whet_{name}" if name in OTHERS else name for name in METHODS), *OTHERS, "hand")


@dataclass
class Field:
    """One run: the endpoint, the limits, the rows, and what is spent outside of whet's own runs.

    `calls` counts by role (task, optimizer, test) the calls, and as `ROLE read` and `ROLE written` their tokens.
    """

    options: argparse.Namespace
    name: str
    seed: int
    rows: Rows
    calls: Counter[str] = field(default_factory=Counter)

    @property
    def task(self) -> RealTask:
        return TASKS[self.name]

    def address(self, role: str) -> str:
        """The model of a role."""
        own = self.options.optimizer_lm or self.options.lm
        return str(own if role == "optimizer" else self.options.lm)

    def base_url(self, role: str) -> str | None:
        """The endpoint of a role."""
        own = self.options.optimizer_base_url if role == "optimizer" else None
        return own or self.options.base_url

    def lm(self, role: str) -> dict[str, Any]:
        """The model of a role as whet takes it."""
        model = {"address": self.address(role), "concurrency": self.options.concurrency}
        if self.address(role).startswith("openai/"):
            model |= {"timeout": self.options.timeout}
            model |= {"base_url": self.base_url(role)} if self.base_url(role) else {}
        return model if role == "optimizer" else model | {"max_tokens": self.task.tokens}

    async def ask(self, role: str, texts: Sequence[str], temperature: float, tokens: int) -> list[str]:
        """Answers to texts in their order, outside of a run of whet; a call that fails is made up to three times."""
        known = self.lm(role)
        options = {key: known[key] for key in ("timeout",) if key in known}
        model = resolve(known["address"], base_url=self.base_url(role), options=options)
        gate = asyncio.Semaphore(self.options.concurrency)

        async def one(text: str) -> str:
            request = Request((Message("user", text),), temperature, tokens, sample=self.calls[role])
            async with gate:
                for attempt in range(ATTEMPTS):
                    try:
                        completion = (await model.generate(request))[0]
                        break
                    except ProviderError:
                        if attempt == ATTEMPTS - 1:
                            raise
            self.calls[role] += 1
            self.calls[f"{role} read"] += completion.usage.input_tokens
            self.calls[f"{role} written"] += completion.usage.output_tokens
            return completion.text

        try:
            return await asyncio.gather(*map(one, texts))
        finally:
            await model.close()

    def answers(self, instruction: str, rows: Sequence[Mapping[str, Any]], role: str = "task") -> list[str]:
        """What the task model answers under an instruction, with the text around it that whet's prompts have."""
        texts = [f"{instruction}\n{self.task.frame}: {row['input']}" for row in rows]
        return asyncio.run(self.ask(role, texts, 0.0, self.task.tokens))

    def rewards(self, instruction: str, rows: Sequence[Mapping[str, Any]], role: str = "task") -> list[float]:
        """Rewards of an instruction on rows."""
        return grade_answers(rows, self.answers(instruction, rows, role))


def grade_answers(rows: Sequence[Mapping[str, Any]], outputs: Sequence[str]) -> list[float]:
    """Rewards of outputs for rows."""
    return [grade(row, output)["reward"] for row, output in zip(rows, outputs, strict=True)]


# The arms: each returns a row's own figures.


def by_whet(method: str) -> Callable[[Field], dict[str, Any]]:
    """`whet.optimize` with a method."""

    def arm(run: Field) -> dict[str, Any]:
        limits = run.options
        result = whet.optimize(
            f"<!-- whet:begin -->\n{START}\n<!-- whet:end -->\n{run.task.frame}: {{{{input}}}}",
            data={**run.rows, "test": run.rows["test"][:OWN_TEST]}, reward=grade, name=run.name, method=method, seed=run.seed,
            lm=run.lm("task"), optimizer_lm=run.lm("optimizer"),
            budget=whet.Budget(task_calls=limits.task_calls + 2 * OWN_TEST, optimizer_calls=limits.optimizer_calls),
            run=run.options.results / "runs" / f"{run.name}-{run.seed}-{method}",
        )  # fmt: skip
        if result.best.test is None:
            raise SystemExit(f"{run.name}, {method}: {result['ended_by']}")
        usage, prompt = result.usage, result.best.prompt.region_text()
        tested = OWN_TEST if prompt == START else 2 * OWN_TEST
        spent = {row.role: row for row in read_run(Path(result["run"])).spending}
        return {
            "calls": {"task": usage.calls["task"] - tested, "optimizer": usage.calls["optimizer"]},
            "asked": spent["optimizer"].input_tokens if "optimizer" in spent else 0,
            "tokens": usage.input_tokens + usage.output_tokens,
            "seconds": usage.seconds,
            "prompt": prompt,
        }

    return arm


def outside(run: Field, instruction: str, begun: float) -> dict[str, Any]:
    """The figures of a search that was no run of whet; `asked` are the tokens that the optimizer model read."""
    roles = ("task", "optimizer")
    return {
        "calls": {role: run.calls[role] for role in roles},
        "asked": run.calls["optimizer read"],
        "tokens": sum(run.calls[f"{role} {way}"] for role in roles for way in ("read", "written")),
        "seconds": time.perf_counter() - begun,
        "prompt": instruction,
    }


def test_prompt(run: Field, figures: Mapping[str, Any]) -> dict[str, Any]:
    """What a prompt is worth on the test rows beside the start, whose answers are kept for the other arms.

    A tool that gives more to the model than a text has answered the test rows itself (`outputs`). `prompt_tokens` is what a test
    call reads above one of the start.
    """
    rows, file = run.rows["test"], run.options.results / "starts" / f"{run.name}-{run.seed}.json"
    if not file.is_file():
        file.parent.mkdir(exist_ok=True)
        rewards = run.rewards(START, rows, "start")
        read = run.calls["start read"] / len(rows)
        draft = file.with_suffix(f".{os.getpid()}")
        draft.write_text(json.dumps({"rewards": rewards, "read": read}), encoding="utf-8")
        draft.replace(file)
    start = json.loads(file.read_text(encoding="utf-8"))
    before, after, read = start["rewards"], start["rewards"], start["read"]
    if "outputs" in figures:
        after = grade_answers(rows, figures["outputs"])
    elif figures["prompt"] != START:
        after = run.rewards(figures["prompt"], rows, "test")
    if run.calls["test"]:
        read = run.calls["test read"] / run.calls["test"]
    return {
        "start": sum(before) / len(before),
        "test": sum(after) / len(after),
        **pairs(before, after),
        "rewards": after,
        "prompt_tokens": read - start["read"],
    }


def pairs(before: Sequence[float], after: Sequence[float]) -> dict[str, int]:
    """How many rows were won, lost and neither."""
    gaps = Counter(b - a for a, b in zip(before, after, strict=True))
    return {"wins": gaps[1.0], "losses": gaps[-1.0], "ties": gaps[0.0]}


def by_hand(run: Field) -> dict[str, Any]:
    """The best of the hand-written prompts on the validation rows."""
    begun, rows = time.perf_counter(), run.rows["validation"]
    return outside(run, max(run.task.hand, key=lambda text: sum(run.rewards(text, rows))), begun)


def by_gepa(run: Field) -> dict[str, Any]:
    """The gepa package with its own reflection and its defaults, on the same rows with the same critiques."""
    begun = time.perf_counter()

    def judge(row: dict[str, Any], output: str) -> tuple[float, str]:
        verdict = grade(row, output)
        return verdict["reward"], verdict["critique"] or "The answer is right."

    text = gepa_prompt(
        START,
        {split: [dict(row) for row in run.rows[split]] for split in ("train", "validation")},
        run.answers,
        judge,
        lambda request: asyncio.run(run.ask("optimizer", [request], 1.0, 1024))[0],
        task_calls=run.options.task_calls,
        optimizer_calls=run.options.optimizer_calls,
        seed=run.seed,
    )
    return outside(run, text, begun)


def by_peer(name: str) -> Callable[[Field], dict[str, Any]]:
    """A tool of others in an interpreter of its own."""

    def arm(run: Field) -> dict[str, Any]:
        begun, options = time.perf_counter(), run.options
        job = {
            "start": START, "frame": run.task.frame, "tokens": run.task.tokens, "rows": run.rows, "seed": run.seed,
            "task_calls": options.task_calls, "optimizer_calls": options.optimizer_calls, "timeout": options.timeout,
            "folder": str((options.results / "runs" / f"{run.name}-{run.seed}-{name}").resolve()),
            "concurrency": options.concurrency,
        }  # fmt: skip
        roles = {role: (run.address(role), run.base_url(role)) for role in ("task", "optimizer")}
        reply, calls = peer_run(name, options.peer[name], job, roles)
        run.calls.update(calls)
        more = {key: reply[key] for key in ("outputs", "error") if key in reply}
        return outside(run, reply["prompt"], begun) | {"seconds": reply["seconds"]} | more

    return arm


def arm_of(name: str) -> Callable[[Field], dict[str, Any]]:
    """What runs an arm."""
    if name in PEERS:
        return by_peer(name)
    return {"gepa": by_gepa, "hand": by_hand}.get(name) or by_whet(name.removeprefix("whet_"))


# The table


def difference(rows: Sequence[Mapping[str, Any]]) -> str:
    """What wins, losses and ties of rows make, with the paired 95% interval over the test rows of all seeds."""
    gaps = [
        gap
        for row in rows
        for gap, key in ((1, "wins"), (-1, "losses"), (0, "ties"))
        for _ in range(row[key])
    ]
    test = paired_test(gaps)
    return f"{test.difference:+.3f} [{test.low:+.3f}, {test.high:+.3f}]"


def beside(runs: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]]) -> str:
    """Runs paired with those of another arm that have the same seed: the difference, and rows won and lost."""
    by_seed = {row["seed"]: row["rewards"] for row in others}
    both = [pairs(by_seed[row["seed"]], row["rewards"]) for row in runs if row["seed"] in by_seed]
    if not both or runs is others:
        return "-"
    won, lost = (sum(row[key] for row in both) for key in ("wins", "losses"))
    return f"{difference(both)}, {won} to {lost}"


def table(results: Path, against: str) -> str:
    """All rows that there are, as markdown: one table a task and model, the best mean first."""
    rows = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(results.glob("*.json"))]
    if not rows:
        return f"There is no row in {results} yet."
    keys = ("task", "lm", "optimizer_lm", "limits")
    parts = []
    for group in sorted({json.dumps([row[key] for key in keys]) for row in rows}):
        own = [row for row in rows if json.dumps([row[key] for key in keys]) == group]
        name, lm, optimizer, limits = json.loads(group)
        parts.append(
            f"{name}, {lm}, optimizer {optimizer}, at most {limits['task_calls']} task and {limits['optimizer_calls']} optimizer "
            f"calls, {limits['validation']} validation rows, {limits['test']} test rows a seed, "
            f"{min(r['date'] for r in own)} to {max(r['date'] for r in own)}\n\n"
            f"| arm | seeds | start | test reward | difference | to {against} | task calls | optimizer calls | tokens | "
            "prompt tokens | meta-prompt tokens | seconds |\n|---|---|---|---|---|---|---|---|---|---|---|---|"
        )
        by_arm = {arm: [row for row in own if row["arm"] == arm] for arm in {row["arm"] for row in own}}
        for arm, runs in sorted(by_arm.items(), key=lambda item: -mean(item[1], "test")):
            calls = [row["calls"] for row in runs]
            asked = sum(row["asked"] for row in runs) / max(1, sum(row["optimizer"] for row in calls))
            cells = [
                arm,
                str(len(runs)),
                *(f"{mean(runs, key):.3f}" for key in ("start", "test")),
                difference(runs),
                beside(runs, by_arm.get(against, [])),
                *(f"{mean(calls, role):.0f}" for role in ("task", "optimizer")),
                *(f"{mean(runs, key):,.0f}" for key in ("tokens", "prompt_tokens")),
                f"{asked:,.0f}",
                f"{mean(runs, 'seconds'):,.0f}",
            ]
            parts.append(f"| {' | '.join(cells)} |")
        parts.append("")
        for row in own:
            ended = f" (ended with {row['error']})" if row.get("error") else ""
            parts.append(f"{row['arm']}, seed {row['seed']}{ended}: {row['prompt']!r}")
        parts.append("")
    return "\n".join(parts)


def mean(rows: Sequence[Mapping[str, Any]], key: str) -> float:
    """The mean of a figure."""
    return sum(float(row[key]) for row in rows) / len(rows)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what has no row yet, then print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lm", help="address of the task model, openai/NAME")
    parser.add_argument("--optimizer-lm", help="address of the optimizer model; default: the task model")
    parser.add_argument("--base-url", help="the endpoint of both")
    parser.add_argument("--optimizer-base-url", help="the endpoint of the optimizer model; default: the same")
    parser.add_argument(
        "--peer",
        action="append",
        default=[],
        metavar="ARM=PYTHON",
        help=f"the interpreter that has the package of an arm of others: {', '.join(PEERS)}",
    )
    parser.add_argument("--against", default="gepa", help="the arm that the table pairs every other one with")
    parser.add_argument(
        "--data",
        type=Path,
        default=os.environ.get("WHET_DATA"),
        help="folder of the data; default: WHET_DATA",
    )
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--arms", default=",".join(ARMS))
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds; default: 1")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--task-calls", type=int, default=300)
    parser.add_argument("--optimizer-calls", type=int, default=20)
    parser.add_argument("--validation", type=int, default=24, help="validation rows")
    parser.add_argument("--test", type=int, default=80, help="test rows a seed")
    parser.add_argument("--concurrency", type=int, default=4)
    parser.add_argument(
        "--timeout",
        type=float,
        default=600.0,
        help="seconds a call may take, the queue of the server included",
    )
    parser.add_argument("--results", type=Path, default=Path("runs/real-field"))
    parser.add_argument("--table", action="store_true", help="print the table and do nothing else")
    options = parser.parse_args(arguments)
    options.peer = dict(text.partition("=")[::2] for text in options.peer)
    if not options.table:
        run_missing(parser, options)
    print(table(options.results, options.against))


def run_missing(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Run every arm, task and seed that has no row, seeds outermost, and write its row."""
    if not options.lm:
        parser.error("Name the task model: --lm openai/NAME (and --base-url URL for a server of your own).")
    tasks, arms = options.tasks.split(","), options.arms.split(",")
    kinds = (("task", tasks, TASKS), ("arm", arms, ARMS), ("arm of others", options.peer, PEERS))
    for kind, names, known in kinds:
        if unknown := set(names) - set(known):
            parser.error(f"There is no {kind} {', '.join(sorted(unknown))}. There are: {', '.join(known)}.")
    missing = [
        TASKS[name].file
        for name in tasks
        if options.data is None or not (options.data / TASKS[name].file).is_file()
    ]
    if missing:
        parser.error(
            f"{options.data or 'No folder'} has no {', '.join(missing)}. Name the folder of the data: --data or WHET_DATA."
        )
    if "gepa" in arms and not importlib.util.find_spec("gepa"):
        print("gepa is not installed, so its arm is left out.", flush=True)
        arms.remove("gepa")
    for arm in [arm for arm in arms if arm in PEERS and arm not in options.peer]:
        print(
            f"{arm} is left out: --peer {arm}=PYTHON names no interpreter that has {PEERS[arm]}.", flush=True
        )
        arms.remove(arm)
    options.results.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("WHET_STATE", str(options.results / "state"))
    limits = {
        "task_calls": options.task_calls,
        "optimizer_calls": options.optimizer_calls,
        "validation": options.validation,
        "test": options.test,
    }
    models = {"lm": options.lm, "optimizer_lm": options.optimizer_lm or options.lm}
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        for name in tasks:
            rows = rows_of(options.data, name, seed, options.validation, options.test)
            for arm in arms:
                file = options.results / f"{name}-{seed}-{arm}.json"
                if file.is_file():
                    continue
                about = {"task": name, "seed": seed, "arm": arm, **models, "limits": limits}
                run = Field(options, name, seed, rows)
                figures = arm_of(arm)(run)
                row = {**about, "date": date.today().isoformat(), **test_prompt(run, figures), **figures}
                file.write_text(json.dumps(row, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
                print(f"{name}, seed {seed}, {arm}: {row['test']:.3f} from {row['start']:.3f}", flush=True)


if __name__ == "__main__":
    main()
