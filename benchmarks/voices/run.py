"""Prompt learning where guests complain in many voices and never state the rule. SIMULATED models, counted by the server.

    python benchmarks/voices/run.py --rules 40 --task-calls 500 --optimizer-calls 30 --seeds 3
    python benchmarks/voices/run.py --rules 10 --arms prompt_learning,naive --vague 0.1 --contradict 0.1 --numbers off

Arms: `start` (the prompt as written), `all` (every rule stated), `naive` (naive.py), `gepa` (its package, when installed), and
any method of `whet optimize`. Every arm searches with the same calls. Its last prompt is measured on letters that no arm
has seen: share of rules kept, accuracy (all kept) beside its ceiling, and what the prompt really holds (truth.py).
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import importlib.util
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import aiohttp

HERE = Path(__file__).resolve().parent
if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parent.parent))

from benchmarks.gepa_arm import gepa_prompt  # noqa: E402
from benchmarks.voices.naive import naive  # noqa: E402
from benchmarks.voices.server import Endpoint, add_habits, habits_of, load, serving  # noqa: E402
from benchmarks.voices.truth import Truth, truth  # noqa: E402
from benchmarks.voices.world import KEPT, OUTSIDE, START, Setting, World  # noqa: E402

TEST_ROWS = 40
FRESH = range(900_000, 900_300)
FENCE = re.compile(r"<!-- whet:begin -->\n(.*?)\n?<!-- whet:end -->", re.DOTALL)


@dataclass(frozen=True)
class Trial:
    """One arm under one seed."""

    arm: str
    share: float
    accuracy: float
    calls: Counter[str]
    seconds: float
    truth: Truth
    note: str = ""


@dataclass(frozen=True)
class Setup:
    """What an arm needs: the world with its comments, the endpoint, the limits."""

    world: World
    endpoint: Endpoint
    url: str
    seed: int
    task_calls: int
    optimizer_calls: int
    folder: Path

    @property
    def size(self) -> int:
        """The number of rules, which names the models."""
        return self.world.setting.rules

    def rows(self, split: str) -> list[dict[str, Any]]:
        """The letters of a split."""
        first, count = {"train": (0, 800), "validation": (10_000, 60), "test": (20_000, TEST_ROWS)}[split]
        return [self.world.letter(number) for number in range(first, first + count)]


def build(setup: Setup, reward: str = "share") -> Path:
    """Write the task folder: `reward.py` is world.py with the texts, so that it needs the standard library only."""
    folder = setup.folder / "task"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "prompt.md").write_text(
        f"{OUTSIDE}\n<!-- whet:begin -->\n{START}\n<!-- whet:end -->\n", encoding="utf-8"
    )
    (folder / "task.yaml").write_text(
        f"name: voices-{setup.size}\n"
        f"description: SIMULATED. Letters to a mountain hut, {setup.size} rules that nobody states.\n"
        "prompt: prompt.md\ndata: {train: train.jsonl, validation: validation.jsonl, test: test.jsonl}\n"
        "reward: reward.py\n",
        encoding="utf-8",
    )
    for split in ("train", "validation", "test"):
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in setup.rows(split))
        (folder / f"{split}.jsonl").write_text(lines, encoding="utf-8")
    source = (HERE / "world.py").read_text(encoding="utf-8")
    texts = (HERE / "texts.txt").read_text(encoding="utf-8")
    tail = f"""

WORLD = World(read_book({texts!r}), Setting(**{setup.world.setting._asdict()!r}))


def reward(example: dict[str, Any], output: str) -> dict[str, Any]:
    result = WORLD.judge(example, output)
    return {{**result, "reward": result[{"reward" if reward == "share" else "accuracy"!r}]}}
"""
    (folder / "reward.py").write_text(source + tail, encoding="utf-8")
    return folder


def complete(setup: Setup, key: str) -> Callable[[str, Sequence[Sequence[str]]], Any]:
    """A coroutine function: role and message lists to replies, all at once."""

    async def one(session: aiohttp.ClientSession, role: str, messages: Sequence[str]) -> str:
        roles = ["system"] * (len(messages) - 1) + ["user"]
        body = {
            "model": f"guest-{role}-{setup.size}",
            "messages": [{"role": r, "content": c} for r, c in zip(roles, messages, strict=True)],
        }
        url, headers = f"{setup.url}/chat/completions", {"Authorization": f"Bearer {key}"}
        async with session.post(url, json=body, headers=headers) as response:
            response.raise_for_status()
            return str((await response.json())["choices"][0]["message"]["content"])

    async def many(role: str, requests: Sequence[Sequence[str]]) -> list[str]:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=32)) as session:
            return await asyncio.gather(*(one(session, role, request) for request in requests))

    return many


# The arms: each returns the text inside the fence, and a note.


def by_naive(setup: Setup, key: str) -> tuple[str, str]:
    """naive.py with the same calls."""
    models = complete(setup, key)
    text = asyncio.run(
        naive(
            itertools.cycle(setup.rows("train")),
            setup.world.judge,
            lambda pairs: models("task", pairs),
            lambda requests: models("optimizer", [[request] for request in requests]),
            setup.task_calls,
            setup.optimizer_calls,
        )
    )
    return text, ""


def by_gepa(setup: Setup, key: str) -> tuple[str, str]:
    """The gepa package: its own reflection, a validation set of 20 letters."""
    models = complete(setup, key)

    def answer(prompt: str, rows: Sequence[dict[str, Any]]) -> list[str]:
        answers: list[str] = asyncio.run(
            models("task", [(f"{OUTSIDE}\n{prompt}", row["input"]) for row in rows])
        )
        return answers

    def judge(row: dict[str, Any], output: str) -> tuple[float, str]:
        verdict = setup.world.judge(row, output)
        return verdict["reward"], verdict.get("critique", "Nothing to add.")

    text = gepa_prompt(
        START,
        {"train": setup.rows("train"), "validation": setup.rows("validation")[:20]},
        answer,
        judge,
        lambda request: str(asyncio.run(models("optimizer", [[request]]))[0]),
        task_calls=setup.task_calls,
        optimizer_calls=setup.optimizer_calls,
        seed=setup.seed,
        reflection_minibatch_size=10,
    )
    return text, ""


def by_whet(method: str) -> Callable[[Setup, str], tuple[str, str]]:
    """An arm that runs `whet optimize --method METHOD` on the task folder."""

    def arm(setup: Setup, key: str) -> tuple[str, str]:
        out = setup.folder / method
        command = [sys.executable, "-m", "whet", "optimize", str(setup.folder / "task"), "--method", method]
        command += ["--lm", f"openai/guest-task-{setup.size}", "--base-url", setup.url]
        command += ["--optimizer-lm", f"openai/guest-optimizer-{setup.size}", "--seed", str(setup.seed)]
        command += ["--max-task-calls", str(setup.task_calls + 2 * TEST_ROWS)]
        command += ["--max-optimizer-calls", str(setup.optimizer_calls), "--out", str(out), "--json"]
        environment = {**os.environ, "OPENAI_API_KEY": key}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            reason = (done.stderr.strip() or done.stdout).splitlines()[-1:]
            return START, f"exit code {done.returncode}: {' '.join(reason)}"
        result = json.loads(done.stdout)
        fence = FENCE.search((out / "best.md").read_text(encoding="utf-8"))
        return fence[1] if fence else "", "promoted" if result["improvement"]["promoted"] else "not promoted"

    return arm


ARMS: dict[str, Callable[[Setup, str], tuple[str, str]]] = {
    "start": lambda setup, key: (START, ""),
    "all": lambda setup, key: ("\n".join([START, *(f"- {r.wordings[0]}" for r in setup.world.rules)]), ""),
    "naive": by_naive,
    "gepa": by_gepa,
}


def trial(arm: str, setup: Setup) -> Trial:
    """Run one arm and measure its last prompt on letters that nobody has seen."""
    key, begun = f"{arm}-{setup.seed}", time.perf_counter()
    text, note = ARMS.get(arm, by_whet(arm))(setup, key)
    seconds = time.perf_counter() - begun
    world, prompt = setup.world, f"{OUTSIDE}\n{text}"
    kept = [
        1 - len(world.broken_rules(world.answer(prompt, world.letter(number)["input"]))) / setup.size
        for number in FRESH
    ]
    optimizer = setup.endpoint.models(setup.size)[1]
    calls = setup.endpoint.ledger.get(key, Counter())
    (setup.folder / f"{arm}.txt").write_text(text, encoding="utf-8")
    return Trial(arm, fmean(kept), fmean(k == 1 for k in kept), calls, seconds, truth(text, optimizer), note)


def table(trials: Sequence[Trial], rules: int) -> str:
    """The mean of every figure over the seeds, one row an arm, as Markdown."""
    counted = [field.name for field in dataclasses.fields(Truth)]
    head = [
        "arm (SIMULATED)",
        "share",
        f"accuracy (ceiling {KEPT**rules:.2f})",
        "task calls",
        "optimizer calls",
        "s",
    ]
    lines = [" | ".join([*head, *counted, "note"]), " | ".join(["---"] * (len(head) + len(counted) + 1))]
    for arm in dict.fromkeys(t.arm for t in trials):
        mine = [t for t in trials if t.arm == arm]
        figures = [f"{fmean(t.share for t in mine):.3f}", f"{fmean(t.accuracy for t in mine):.3f}"]
        figures += [f"{fmean(t.calls[role] for t in mine):.0f}" for role in ("task", "optimizer")]
        figures.append(f"{fmean(t.seconds for t in mine):.1f}")
        figures += [f"{fmean(getattr(t.truth, name) for t in mine):.1f}" for name in counted]
        lines.append(" | ".join([arm, *figures, "; ".join(sorted({t.note for t in mine}))]))
    return "\n".join(f"| {line} |" for line in lines)


def main(arguments: Sequence[str] | None = None) -> list[Trial]:
    """Run the arms over the seeds and print the table."""
    parser = argparse.ArgumentParser(description="Prompt learning in a simulated world of many voices.")
    parser.add_argument("--rules", type=int, default=40)
    parser.add_argument("--task-calls", type=int, default=500)
    parser.add_argument("--optimizer-calls", type=int, default=30)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--arms", default="start,all,prompt_learning,meta_prompt,naive,gepa")
    parser.add_argument("--reward", choices=("share", "all"), default="share")
    parser.add_argument("--one", type=int, default=1, help="comments an answer")
    parser.add_argument("--noise", type=float, default=0.1, help="share of comments that are no demand")
    parser.add_argument("--vague", type=float, default=0.0, help="share of comments that name no fault")
    parser.add_argument(
        "--contradict", type=float, default=0.0, help="share of guests who want the opposite of a rule"
    )
    parser.add_argument(
        "--out", type=Path, default=None, help="folder for the runs (default: a temporary one)"
    )
    add_habits(parser)
    options = parser.parse_args(arguments)
    root = options.out or Path(tempfile.mkdtemp(prefix="voices-"))
    trials: list[Trial] = []
    for seed in range(options.seeds):
        setting = Setting(options.rules, seed, options.one, options.noise, options.vague, options.contradict)
        endpoint = Endpoint(seed, habits_of(options), options.latency_ms / 1000, options.schema)
        with serving(endpoint) as url:
            world = World(load(), setting)
            setup = Setup(
                world, endpoint, url, seed, options.task_calls, options.optimizer_calls, root / str(seed)
            )
            build(setup, options.reward)
            for arm in options.arms.split(","):
                if arm == "gepa" and not importlib.util.find_spec("gepa"):
                    print("gepa is not installed: its arm is left out", file=sys.stderr)
                    continue
                trials.append(trial(arm, setup))
                print(f"seed {seed}: {arm} {trials[-1].share:.3f} {trials[-1].truth}", file=sys.stderr)
    print(table(trials, options.rules))
    return trials


if __name__ == "__main__":
    main()
