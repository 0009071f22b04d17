"""The methods that need no training, on a model that others trained: real tasks, a bad start, the model as its own optimizer.

    python benchmarks/real_field.py --lm openai/NAME --base-url http://127.0.0.1:8000/v1   # goes on where it was stopped
    python benchmarks/real_field.py --lm openai/NAME --tasks sst-2 --arms protegi,gepa --seeds 2
    python benchmarks/real_field.py --table                                                # what there is so far

The rows are read in place, from the folder that --data or WHET_DATA names: `few_shot_classification/sst-2.jsonl` and
`agnews.jsonl` (the few-shot data of RLPrompt) and `instruction_induction/antonyms.jsonl`. Every run starts from "Answer.", and
an answer counts when it is exactly the target. A search may make --task-calls and --optimizer-calls; the test comes on top: the
same rows under the start and under every last prompt. Beside whet's methods: `hand`, the best of three hand-written prompts by
the validation rows, and `gepa`, the package, if it is there. Each run leaves one JSON row in --results; differences to the start
are paired by test row, and each seed has rows of its own. A run of whet that was stopped goes on, one of `gepa` or `hand` begins
anew.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import os
import random
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
from whet.stats.paired import paired_test
from whet.types import Message, Request

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.gepa_arm import gepa_prompt

START, TOKENS, ATTEMPTS = "Answer.", 8, 3
TRAIN, OWN_TEST = 80, 6
"""Rows for the search, and the test rows that a run of whet opens itself; all of them are answered afterwards."""
METHODS = ("prompt_learning", "meta_prompt", "opro", "protegi", "simba", "grips", "random_search")
ARMS = (*METHODS, "whet_gepa", "gepa", "hand")


@dataclass(frozen=True)
class RealTask:
    """Where the rows of a task are, which of its splits are for the search and for the test, how an input is introduced, the
    words for its labels, and prompts that a person would write."""

    file: str
    search: tuple[str, ...]
    test: str
    frame: str
    labels: Mapping[int, str]
    hand: tuple[str, ...]


TASKS = {
    "sst-2": RealTask(
        "few_shot_classification/sst-2.jsonl", ("train", "dev"), "test", "Review", {0: "negative", 1: "positive"},
        (
            "Is the sentiment of this film review positive or negative? Answer with one word, positive or negative, in lower "
            "case.",
            "Classify the review. positive: the writer likes the film. negative: the writer does not like it. Answer with "
            "the label only.",
            "Say whether the review is positive or negative. Write one word in lower case.\nReview: a joy to watch .\npositive\n"
            "Review: dull and far too long .\nnegative",
        ),
    ),
    "agnews": RealTask(
        "few_shot_classification/agnews.jsonl", ("train", "dev"), "test", "News",
        {0: "World", 1: "Sports", 2: "Business", 3: "Tech"},
        (
            "What is this news item about? Answer with one word: World, Sports, Business or Tech.",
            "Classify the news. World: politics, wars, disasters. Sports: matches, athletes. Business: companies, markets. "
            "Tech: science, computers, the internet. Answer with the label only.",
            "Name the section of a newspaper, one word: World, Sports, Business or Tech.\nNews: Oil prices rose again.\n"
            "Business\nNews: The striker scored twice in the final.\nSports",
        ),
    ),
    "antonyms": RealTask(
        "instruction_induction/antonyms.jsonl", ("induce",), "execute", "Word", {},
        (
            "Write a word that means the opposite of the input. Answer with that one word, in lower case.",
            "Write the antonym of the word, nothing else. Prefer the same word with or without a prefix such as un- or in-.",
            "Give the opposite of the word, one word in lower case.\nWord: hot\ncold\nWord: possible\nimpossible",
        ),
    ),
}  # fmt: skip


@dataclass
class Field:
    """One run: the endpoint, the limits, the rows, and what is spent outside of whet's own runs."""

    options: argparse.Namespace
    name: str
    seed: int
    rows: Mapping[str, Sequence[Mapping[str, Any]]]
    calls: Counter[str] = field(default_factory=Counter)

    @property
    def task(self) -> RealTask:
        return TASKS[self.name]

    def lm(self, role: str) -> dict[str, Any]:
        """The model of a role as whet takes it."""
        own = self.options.optimizer_lm or self.options.lm
        address = self.options.lm if role == "task" else own
        model = {"address": address, "concurrency": self.options.concurrency}
        if address.startswith("openai/"):
            model |= {"timeout": self.options.timeout}
        return model | {"max_tokens": TOKENS} if role == "task" else model

    async def ask(self, role: str, texts: Sequence[str], temperature: float, tokens: int) -> list[str]:
        """Answers to texts in their order, outside of a run of whet; a call that fails is made up to three times."""
        known = self.lm(role)
        options = {key: known[key] for key in ("timeout",) if key in known}
        model = resolve(known["address"], base_url=self.options.base_url, options=options)
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
            self.calls[f"{role} tokens"] += completion.usage.input_tokens + completion.usage.output_tokens
            return completion.text

        try:
            return await asyncio.gather(*map(one, texts))
        finally:
            await model.close()

    def answers(self, instruction: str, rows: Sequence[Mapping[str, Any]]) -> list[str]:
        """What the task model answers under an instruction, with the text around it that whet's prompts have."""
        texts = [f"{instruction}\n{self.task.frame}: {row['input']}" for row in rows]
        return asyncio.run(self.ask("task", texts, 0.0, TOKENS))

    def rewards(self, instruction: str, rows: Sequence[Mapping[str, Any]]) -> list[float]:
        """Rewards of an instruction on rows."""
        return [
            graded(row, output)["reward"]
            for row, output in zip(rows, self.answers(instruction, rows), strict=True)
        ]


def graded(example: Mapping[str, Any], output: str) -> dict[str, Any]:
    """1 for exactly a target, else 0 with what would have been right."""
    wanted = example["targets"]
    right = output.strip() in wanted
    return {
        "reward": float(right),
        "critique": None if right else f'The answer must be exactly "{wanted[0]}" and nothing else.',
    }


def rows_of(data: Path, name: str, seed: int, validation: int, test: int) -> dict[str, list[dict[str, Any]]]:
    """Rows of a task by split for a seed, no input twice; test rows of other seeds are others as far as they last."""
    task = TASKS[name]
    with (data / task.file).open(encoding="utf-8") as lines:
        read = {row["input"]: row for row in map(json.loads, lines)}
    rows = []
    for row in read.values():
        targets = [task.labels[row["label"]]] if task.labels else row["targets"]
        whole = {"id": row["id"], "input": row["input"], "target": targets[0], "targets": targets}
        rows.append((row["split"], whole))
    pool = [row for split, row in rows if split in task.search]
    sealed = [row for split, row in rows if split == task.test]
    random.Random(seed).shuffle(pool)
    random.Random(0).shuffle(sealed)
    turn = seed * test % len(sealed)
    sealed = (sealed[turn:] + sealed[:turn])[:test]
    return {
        "train": pool[:TRAIN],
        "validation": pool[TRAIN : TRAIN + validation],
        "test": sealed,
    }


# The arms: each returns a row's own figures.


def by_whet(method: str) -> Callable[[Field], dict[str, Any]]:
    """`whet.optimize` with a method."""

    def arm(run: Field) -> dict[str, Any]:
        limits = run.options
        result = whet.optimize(
            f"<!-- whet:begin -->\n{START}\n<!-- whet:end -->\n{run.task.frame}: {{{{input}}}}",
            data={**run.rows, "test": run.rows["test"][:OWN_TEST]}, reward=graded, name=run.name, method=method, seed=run.seed,
            lm=run.lm("task"), optimizer_lm=run.lm("optimizer"), base_url=run.options.base_url,
            budget=whet.Budget(task_calls=limits.task_calls + 2 * OWN_TEST, optimizer_calls=limits.optimizer_calls),
            run=run.options.results / "runs" / f"{run.name}-{run.seed}-{method}",
        )  # fmt: skip
        if result.best.test is None:
            raise SystemExit(f"{run.name}, {method}: {result['ended_by']}")
        usage, prompt = result.usage, result.best.prompt.region_text()
        tested = OWN_TEST if prompt == START else 2 * OWN_TEST
        return {
            "calls": {"task": usage.calls["task"] - tested, "optimizer": usage.calls["optimizer"]},
            "tokens": usage.input_tokens + usage.output_tokens,
            "seconds": usage.seconds,
            "prompt": prompt,
        }

    return arm


def outside(run: Field, instruction: str, begun: float) -> dict[str, Any]:
    """The figures of a search that was no run of whet."""
    return {
        "calls": {role: run.calls[role] for role in ("task", "optimizer")},
        "tokens": run.calls["task tokens"] + run.calls["optimizer tokens"],
        "seconds": time.perf_counter() - begun,
        "prompt": instruction,
    }


def tested(run: Field, instruction: str) -> dict[str, Any]:
    """What an instruction is worth on the test rows beside the start, whose answers are kept for the other arms."""
    file = run.options.results / "starts" / f"{run.name}-{run.seed}.json"
    if not file.is_file():
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(run.rewards(START, run.rows["test"])), encoding="utf-8")
    before = json.loads(file.read_text(encoding="utf-8"))
    after = before if instruction == START else run.rewards(instruction, run.rows["test"])
    gaps = Counter(b - a for a, b in zip(before, after, strict=True))
    pairs = {"wins": gaps[1.0], "losses": gaps[-1.0], "ties": gaps[0.0]}
    return {"start": sum(before) / len(before), "test": sum(after) / len(after), **pairs}


def by_hand(run: Field) -> dict[str, Any]:
    """The best of the hand-written prompts on the validation rows."""
    begun, rows = time.perf_counter(), run.rows["validation"]
    return outside(run, max(run.task.hand, key=lambda text: sum(run.rewards(text, rows))), begun)


def by_gepa(run: Field) -> dict[str, Any]:
    """The gepa package with its own reflection and its defaults, on the same rows with the same critiques."""
    begun = time.perf_counter()

    def judge(row: dict[str, Any], output: str) -> tuple[float, str]:
        verdict = graded(row, output)
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


def arm_of(name: str) -> Callable[[Field], dict[str, Any]]:
    """What runs an arm."""
    return {"gepa": by_gepa, "hand": by_hand}.get(name) or by_whet(name.removeprefix("whet_"))


# The table


def difference(rows: Sequence[Mapping[str, Any]]) -> str:
    """What the last prompts are worth above the start, with the paired 95 % interval over the rows of all seeds."""
    gaps = [
        gap
        for row in rows
        for gap, key in ((1, "wins"), (-1, "losses"), (0, "ties"))
        for _ in range(row[key])
    ]
    test = paired_test(gaps)
    return f"{test.difference:+.3f} [{test.low:+.3f}, {test.high:+.3f}]"


def table(results: Path) -> str:
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
            f"calls, {limits['test']} test rows a seed, {min(r['date'] for r in own)} to {max(r['date'] for r in own)}\n\n"
            "| arm | seeds | start | test reward | difference | task calls | optimizer calls | tokens | seconds |\n"
            "|---|---|---|---|---|---|---|---|---|"
        )
        by_arm = {arm: [row for row in own if row["arm"] == arm] for arm in {row["arm"] for row in own}}
        for arm, runs in sorted(by_arm.items(), key=lambda item: -mean(item[1], "test")):
            cells = [
                arm,
                str(len(runs)),
                *(f"{mean(runs, key):.3f}" for key in ("start", "test")),
                difference(runs),
                *(f"{mean([row['calls'] for row in runs], role):.0f}" for role in ("task", "optimizer")),
                *(f"{mean(runs, key):,.0f}" for key in ("tokens", "seconds")),
            ]
            parts.append(f"| {' | '.join(cells)} |")
        parts.append("")
        parts += [f"{row['arm']}, seed {row['seed']}: {row['prompt']!r}" for row in own]
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
    parser.add_argument(
        "--data",
        type=Path,
        default=os.environ.get("WHET_DATA"),
        help="folder of the data; default: WHET_DATA",
    )
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--arms", default=",".join(ARMS))
    parser.add_argument("--seeds", type=int, default=1)
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
    if not options.table:
        run_missing(parser, options)
    print(table(options.results))


def run_missing(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Run every arm, task and seed that has no row, seeds outermost, and write its row."""
    if not options.lm:
        parser.error("Name the task model: --lm openai/NAME (and --base-url URL for a server of your own).")
    tasks, arms = options.tasks.split(","), options.arms.split(",")
    for kind, names, known in (("task", tasks, TASKS), ("arm", arms, ARMS)):
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
    options.results.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("WHET_STATE", str(options.results / "state"))
    limits = {
        "task_calls": options.task_calls,
        "optimizer_calls": options.optimizer_calls,
        "test": options.test,
    }
    models = {"lm": options.lm, "optimizer_lm": options.optimizer_lm or options.lm}
    for seed in range(options.seeds):
        for name in tasks:
            rows = rows_of(options.data, name, seed, options.validation, options.test)
            for arm in arms:
                file = options.results / f"{name}-{seed}-{arm}.json"
                if file.is_file():
                    continue
                about = {"task": name, "seed": seed, "arm": arm, **models, "limits": limits}
                run = Field(options, name, seed, rows)
                figures = arm_of(arm)(run)
                row = {**about, "date": date.today().isoformat(), **tested(run, figures["prompt"]), **figures}
                file.write_text(json.dumps(row, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
                print(f"{name}, seed {seed}, {arm}: {row['test']:.3f} from {row['start']:.3f}", flush=True)


if __name__ == "__main__":
    main()
