"""Prompt learning and gepa beside the package gepa, meta_prompt and a naive loop on a world of others. SIMULATED models.

    python benchmarks/rulesworld.py --rules 10,50,100 --budgets 500+30,100+12 --seeds 5
    python benchmarks/rulesworld.py --rules 50 --arms prompt_learning --points zero --drop 0.2 --garble 0.1
    python benchmarks/rulesworld.py --rules 50,100 --budgets 300+30 --arms gepa,whet_gepa --latency 50

The endpoint is read in place, from ../shared/worlds or the folder WHET_SHARED_WORLDS names; without it there is nothing to
measure, and this says so. Every arm gets the same calls for its search; the test of `whet optimize` comes on top. Each last
prompt is measured on 600 pages that no arm has seen: share of rules kept, accuracy (all kept) beside its ceiling, rules
stated, doubled lines, lines that state nothing, tokens. Pairs of seeds are compared with `prompt_learning`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib
import importlib.util
import json
import os
import re
import resource
import runpy
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import aiohttp

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from benchmarks.gepa_arm import gepa_prompt  # noqa: E402

WORLDS = Path(os.environ.get("WHET_SHARED_WORLDS", ROOT.parent / "shared" / "worlds"))
START, TEST, FRESH = "Create the JSON webpage.", 30, range(5000, 5600)
OWN_TEST, LEVEL = 100, 0.005
"""Pages on which naive_loop.py tests itself at the end; a difference in share that counts as none."""
MARKERS = re.compile(r"<!-- whet:\w+.*?-->\n?")
REWARD = """
import sys
sys.path.insert(0, {worlds!r})
from rulesworld import world

def reward(example, output):
    share, whole, critiques = world.critiques(output, {rules}, {seed})
    return {{"reward": share, "critique": "\\n".join(critiques), "whole": float(whole)}}
"""


@dataclass(frozen=True)
class Setup:
    """What an arm needs: the world's module, the endpoint, the sizes, the limits."""

    world: Any
    server: Any
    url: str
    rules: int
    seed: int
    task_calls: int
    optimizer_calls: int
    folder: Path

    def rows(self, split: str) -> list[dict[str, Any]]:
        """The requests of a split."""
        first, count = {"train": (0, 100), "validation": (100, 20), "test": (120, TEST)}[split]
        return [
            {"id": f"r{n}", "input": text} for n, text in enumerate(self.world.requests(count, first), first)
        ]

    def judge(self, output: str) -> tuple[float, bool, list[str]]:
        """Share of the rules kept, whether all are, and the critiques."""
        share, whole, critiques = self.world.critiques(output, self.rules, self.seed)
        return share, whole, critiques


@contextlib.contextmanager
def serving(seed: int, habits: Sequence[str]) -> Iterator[str]:
    """The endpoint in a process of its own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "rulesworld", "--port", str(port), "--rules-seed", str(seed), *habits]
    server = subprocess.Popen(command, cwd=WORLDS, stdout=subprocess.DEVNULL)
    url, deadline = f"http://127.0.0.1:{port}", time.monotonic() + 60
    try:
        while True:
            try:
                urllib.request.urlopen(f"{url}/health", timeout=1).close()
                break
            except (urllib.error.URLError, OSError):
                if time.monotonic() > deadline or server.poll() is not None:
                    raise SystemExit("the endpoint does not start") from None
                time.sleep(0.05)
        yield url
    finally:
        server.terminate()
        server.wait()


def slow_down(url: str, latency: float) -> None:
    """Let a task call take `latency` ms, and a call of the optimizer ten times as long."""
    body = json.dumps({"role_latency": {"task": latency, "optimizer": 10 * latency}}).encode()
    request = urllib.request.Request(f"{url}/config", body, {"Content-Type": "application/json"})
    urllib.request.urlopen(request, timeout=10).close()


def calls_of(url: str, key: str) -> Mapping[str, Mapping[str, int]]:
    """The server's own ledger of one key: role to calls and tokens."""
    with urllib.request.urlopen(f"{url}/stats?key={key}", timeout=10) as response:
        ledger: dict[str, dict[str, int]] = json.load(response)
    return ledger


# The arms: each returns the text that stands in the editable region at the end.


def by_naive(setup: Setup, key: str) -> str:
    """naive_loop.py of the world's folder with the same calls: no memory, no test, no upkeep."""
    limits = {"task-calls": setup.task_calls, "optimizer-calls": setup.optimizer_calls}
    values = {
        "port": setup.url.rsplit(":", 1)[1],
        "n": setup.rules,
        "rules-seed": setup.seed,
        "seed": setup.seed,
        **limits,
    }
    if setup.task_calls < 120:
        values |= {"round": 15}
    command = [
        str(WORLDS / "naive_loop.py"),
        *(text for k, v in values.items() for text in (f"--{k}", str(v))),
    ]
    old, sys.argv = sys.argv, command
    try:
        with contextlib.redirect_stdout(None):
            return "\n".join(f"- {text}" for text in runpy.run_path(command[0])["instructions"])
    finally:
        sys.argv = old


def by_gepa(setup: Setup, key: str) -> str:
    """The gepa package: its own reflection, ten answers a reflection, a validation set of 20 requests."""

    async def complete(role: str, requests: Sequence[Sequence[dict[str, str]]]) -> list[str]:
        headers = {"Authorization": f"Bearer {key}"}
        async with aiohttp.ClientSession(headers=headers) as session:

            async def one(messages: Sequence[dict[str, str]]) -> str:
                body = {"model": f"mock-{role}-{setup.rules}", "messages": list(messages)}
                async with session.post(f"{setup.url}/v1/chat/completions", json=body) as response:
                    response.raise_for_status()
                    return str((await response.json())["choices"][0]["message"]["content"])

            return await asyncio.gather(*(one(request) for request in requests))

    def answer(prompt: str, rows: Sequence[dict[str, Any]]) -> list[str]:
        system = {"role": "system", "content": f"{START}\n{prompt}"}
        requests = [[system, {"role": "user", "content": row["input"]}] for row in rows]
        return asyncio.run(complete("task", requests))

    def judge(row: dict[str, Any], output: str) -> tuple[float, str]:
        share, _, critiques = setup.judge(output)
        return share, "\n".join(critiques) or "All is well."

    return gepa_prompt(
        "Follow the rules.",
        {split: setup.rows(split) for split in ("train", "validation")},
        answer,
        judge,
        lambda text: asyncio.run(complete("optimizer", [[{"role": "user", "content": text}]]))[0],
        task_calls=setup.task_calls,
        optimizer_calls=setup.optimizer_calls,
        seed=setup.seed,
        reflection_minibatch_size=10,
    )


def by_whet(method: str) -> Callable[[Setup, str], str]:
    """`whet optimize --method METHOD` on a task folder; the test of start and best comes on top of the search."""

    def arm(setup: Setup, key: str) -> str:
        task, out = setup.folder / "task", setup.folder / method
        task.mkdir(parents=True, exist_ok=True)
        (task / "prompt.md").write_text(
            f"{START}\n<!-- whet:begin -->\n<!-- whet:end -->\n", encoding="utf-8"
        )
        splits = ("train", "validation", "test")
        for split in splits:
            lines = "".join(json.dumps(row) + "\n" for row in setup.rows(split))
            (task / f"{split}.jsonl").write_text(lines, encoding="utf-8")
        data = ", ".join(f"{split}: {split}.jsonl" for split in splits)
        (task / "task.yaml").write_text(
            f"name: pages\nprompt: prompt.md\ndata: {{{data}}}\nreward: reward.py\n", encoding="utf-8"
        )
        reward = REWARD.format(worlds=str(WORLDS), rules=setup.rules, seed=setup.seed)
        (task / "reward.py").write_text(reward, encoding="utf-8")
        command = [
            sys.executable,
            "-m",
            "whet",
            "optimize",
            str(task),
            "--method",
            method,
            "--out",
            str(out),
            "--json",
        ]
        command += [
            "--lm",
            f"openai/mock-task-{setup.rules}",
            "--base-url",
            f"{setup.url}/v1",
            "--seed",
            str(setup.seed),
        ]
        command += ["--optimizer-lm", f"openai/mock-optimizer-{setup.rules}"]
        command += [
            "--max-task-calls",
            str(setup.task_calls + 2 * TEST + 8),
            "--max-optimizer-calls",
            str(setup.optimizer_calls),
        ]
        done = subprocess.run(
            command, env={**os.environ, "OPENAI_API_KEY": key}, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(done.stderr or done.stdout)
        return MARKERS.sub("", json.loads(done.stdout)["best"]["prompt"]).removeprefix(START).strip()

    return arm


ARMS = {"naive": by_naive, "gepa": by_gepa, "whet_gepa": by_whet("gepa")}


# What a prompt is worth.


def measure_prompt(setup: Setup, text: str) -> dict[str, float]:
    """Share, accuracy and ceiling on fresh pages, and what the lines of the prompt hold."""
    world, answer = setup.world, setup.server.answer_task

    def score(prompt: str) -> tuple[float, float]:
        system = {"role": "system", "content": prompt}
        pages = world.requests(len(FRESH), FRESH.start)
        outputs = [
            answer([system, {"role": "user", "content": q}], {}, setup.rules, ("fresh", 0)) for q in pages
        ]
        scores = [world.score(output, setup.rules, setup.seed) for output in outputs]
        return fmean(s for s, _ in scores), fmean(k for _, k in scores)

    every = "\n".join(f"- {rule.need}." for rule in world.ruleset(setup.rules, setup.seed))
    share, accuracy = score(f"{START}\n{text}")
    lines = [line.removeprefix("- ") for line in text.splitlines() if line.strip()]
    states = [
        {
            n
            for s in world.sentences(line)
            for n, how in world.match_sentence(s, setup.rules, setup.seed)
            if how == "full"
        }
        for line in lines
    ]
    full, opposite, _, tokens = world.read_instructions(f"{START}\n{text}", setup.rules, setup.seed)
    return {
        "share": share,
        "accuracy": accuracy,
        "ceiling": score(f"{START}\n{every}")[1],
        "rules": len(full),
        "opposite": len(opposite),
        "lines": len(lines),
        "doubled": sum(map(bool, states)) - len(set().union(*states)),
        "empty": sum(not one for one in states),
        "tokens": tokens,
    }


def trial(arm: str, setup: Setup) -> dict[str, float]:
    """Run one arm and measure its last prompt."""
    key, begun = f"naive-{setup.seed}" if arm == "naive" else f"{arm}-{setup.seed}", time.perf_counter()
    spent_before = processor_seconds()
    text = ARMS.get(arm, by_whet(arm))(setup, key)
    seconds, processor = time.perf_counter() - begun, processor_seconds() - spent_before
    ledger = calls_of(setup.url, key)
    roles = {f"{role} calls": ledger.get(role, {}).get("calls", 0) for role in ("task", "optimizer")}
    roles["task calls"] -= OWN_TEST if arm == "naive" else 0
    spent = sum(v for k, v in ledger.get("optimizer", {}).items() if k.endswith("_tokens"))
    return {
        **measure_prompt(setup, text),
        **roles,
        "optimizer tokens": spent,
        "seconds": seconds,
        "cpu seconds": processor,
    }


def processor_seconds() -> float:
    """Processor time of this process and of all that it started and waited for."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def table(size: int, budget: str, trials: Mapping[str, Sequence[Mapping[str, float]]]) -> str:
    """The mean of every figure over the seeds, one row an arm, with the mean difference of pairs in share."""
    names = list(next(iter(trials.values()))[0])
    first = trials.get("prompt_learning")
    rows = [["arm (SIMULATED)", *names, "share beside prompt_learning"], ["---"] * (len(names) + 2)]
    for arm, results in trials.items():
        means = [f"{fmean(r[n] for r in results):.3f}".rstrip("0").rstrip(".") for n in names]
        pairs = [r["share"] - f["share"] for r, f in zip(results, first or (), strict=False)]
        above, below = sum(p > LEVEL for p in pairs), sum(p < -LEVEL for p in pairs)
        beside = (
            f"{fmean(pairs):+.3f}, {above} above, {below} below" if pairs and arm != "prompt_learning" else ""
        )
        rows.append([arm, *means, beside])
    return f"{size} rules, {budget} calls\n\n" + "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the arms over sizes, budgets and seeds and print one table each."""
    parser = argparse.ArgumentParser(
        description="Prompt learning on an endpoint of other authors (simulated)."
    )
    parser.add_argument("--rules", default="10,50,100")
    parser.add_argument("--budgets", default="500+30,100+12", help="task calls + optimizer calls")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--arms", default="prompt_learning,meta_prompt,naive,gepa")
    parser.add_argument(
        "--latency", type=float, default=0, help="ms of a task call; ten times that of the optimizer's"
    )
    options, habits = parser.parse_known_args(arguments)
    if not (WORLDS / "rulesworld").is_dir():
        raise SystemExit(f"There is no rulesworld in {WORLDS}; name its folder in WHET_SHARED_WORLDS.")
    sys.path.insert(0, str(WORLDS))
    world, server = (importlib.import_module(f"rulesworld.{name}") for name in ("world", "server"))
    arms = [arm for arm in options.arms.split(",") if arm != "gepa" or importlib.util.find_spec("gepa")]
    root = Path(tempfile.mkdtemp(prefix="rulesworld-"))
    for size in map(int, options.rules.split(",")):
        for budget in options.budgets.split(","):
            task_calls, optimizer_calls = map(int, budget.split("+"))
            trials: dict[str, list[dict[str, float]]] = {arm: [] for arm in arms}
            for seed in range(options.seeds):
                server.CFG.update(rules_seed=seed)
                with serving(seed, habits) as url:
                    slow_down(url, options.latency)
                    folder = root / f"{size}-{budget}-{seed}"
                    setup = Setup(world, server, url, size, seed, task_calls, optimizer_calls, folder)
                    for arm in arms:
                        trials[arm].append(trial(arm, setup))
                        print(
                            f"{size} rules, {budget}, seed {seed}: {arm} {trials[arm][-1]}", file=sys.stderr
                        )
            print(table(size, budget, trials), flush=True)


if __name__ == "__main__":
    main()
