"""Does training help? Each method with trained weights against its own untrained policy and random search.

    python benchmarks/learning.py                       # everything; an interrupted benchmark goes on where it stopped
    python benchmarks/learning.py --rows "prewrite;best-of-n;random" --seeds 5

The world is that of `embedded/tiny` (`benchmarks.simulated.clause_tasks`): a task hides four clauses (for `dsp` one,
which depends on the input), and its reward is the share of them that an answer keeps. A trained run may make
`--calls` task calls, the sealed test included. Searches without training use a part of what they may spend twice on
equal texts, which cost nothing the second time; they may make so many more that they make at least as many
(`Row.share`). Seed i has task i.
Prints a table with differences paired by seed and their 95% intervals (Student), and writes it with all figures as
JSON below `--root`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.simulated.clause_tasks import write_hint_task, write_task
from scipy import stats
from tools.embedded.clauses import KINDS

from whet import api
from whet.run import Budget

CHECKED = (
    "capitals", "titled", "commas", "hyphens", "slashes", "brackets", "quotes", "stars",
    "exclamation", "question", "period", "arrow", "hash", "note",
)  # fmt: skip
REWARD = '''\
"""The share of the demanded clauses that an answer keeps; half of it when letters were lost or added."""

import re

AROUND = {"brackets": ("(", ")"), "quotes": ('"', '"'), "stars": ("*", "*")}
FRONT = {"arrow": "> ", "hash": "# ", "note": "note: "}
END = {"exclamation": "!", "question": "?", "period": "."}
JOINT = {"commas": ", ", "hyphens": "-", "slashes": "/"}


def letters(text):
    return re.sub("[^a-z]", "", text.lower())


def kept(name, line, core):
    if name in FRONT:
        return line.startswith(FRONT[name])
    if name in END:
        return line.endswith(END[name])
    if name in AROUND:
        return core[:1] == AROUND[name][0] and core[-1:] == AROUND[name][1] and len(core) > 2
    if name in JOINT:
        return core.count(JOINT[name]) > 0
    words = re.findall("[A-Za-z]+", core)
    return bool(words) and all(w.isupper() if name == "capitals" else w == w.title() for w in words)


def reward(example, output):
    line = output.strip()
    front = next((f for f in FRONT.values() if line.startswith(f)), "")
    core = line.removeprefix(front).rstrip("!?.").strip()
    names = example["clauses"]
    wanted = letters(example["input"])
    whole = 1.0 if letters(core) == wanted else 0.5
    share = sum(kept(name, line, core) for name in names) / len(names)
    return {"reward": whole * share, "exact": float(line == example["target"])}
'''


@dataclass(frozen=True)
class Row:
    """A line of the table: a method with settings, in a world, and the rows that it is compared with.

    `share`: task calls that it may make, as a multiple of `--calls`.
    """

    method: str
    settings: Mapping[str, Any]
    world: str = "form"
    against: tuple[str, ...] = ()
    share: float = 1.0


LEARN = {"lr": 0.003, "kl": 0.05, "max_tokens": 40}
PREWRITE = {**LEARN, "steps": 400, "group": 8, "examples": 1, "rewrites": 6, "checks": 2}
PRL = {**LEARN, "steps": 400, "group": 8, "examples": 1, "max_tokens": 72, "checks": 2, "prompts": 3}
DSP = {"lr": 0.005, "kl": 0.1, "target_kl": 0.1, "steps": 400, "group": 8, "questions": 3, "max_tokens": 16,
       "checks": 3, "keyword": 0.0, "top_p": 1.0}  # fmt: skip
ESPL = {"steps": 400, "recent": 20, "principles": 4, "max_tokens": 40, "checks": 4, "explain": False}
EVOLUTION = {**ESPL, "mode": "evolution", "group": 1, "problems": 3, "programs": 4, "temperature": 1.0}
WEIGHTS = {**ESPL, "mode": "rl", "group": 8, "problems": 3, "temperature": 1.5, "lr": 0.01, "kl": 0.01}
BOTH = {**ESPL, "group": 3, "problems": 2, "programs": 4, "temperature": 1.2, "lr": 0.005, "kl": 0.05}
RETRO = {**LEARN, "steps": 400, "group": 8, "tasks": 1, "finalists": 6}
TALK = {"steps": 400, "group": 16, "questions": 1, "turns": 2, "max_tokens": 56, "checks": 3, "rank": 0,
        "lr": 0.0005, "kl": 0.02}  # fmt: skip
EXPERT = {
    "rounds": 5,
    "samples": 150,
    "examples": 1,
    "imitations": 20,
    "rewrites": 6,
    "lr": 0.003,
    "max_tokens": 40,
}
RANDOM = {"space": "phrases", "n": 3000, "examples": 1}
ROWS = {
    "random": Row("random_search", RANDOM, share=1.15),
    "best-of-n": Row("prewrite", {**PREWRITE, "steps": 0, "rewrites": 3000}, share=1.1),
    "prewrite": Row("prewrite", PREWRITE, against=("best-of-n", "random")),
    "prewrite, advantage=gae": Row("prewrite", {**PREWRITE, "advantage": "gae"}, against=("prewrite",)),
    "expert_iteration": Row("expert_iteration", EXPERT, against=("best-of-n", "prewrite", "random")),
    "prl, best-of-n": Row("prl", {**PRL, "steps": 0, "prompts": 3000}, share=1.1),
    "prl": Row("prl", PRL, against=("prl, best-of-n", "random")),
    "random, hints": Row("random_search", RANDOM, "hints", share=1.1),
    "dsp, lr=0": Row("dsp", {**DSP, "lr": 0.0}, "hints"),
    "dsp": Row("dsp", DSP, "hints", ("dsp, lr=0", "random, hints")),
    "espl, mode=evolution": Row("espl", EVOLUTION),
    "espl, mode=rl": Row("espl", WEIGHTS, against=("espl, mode=evolution", "random")),
    "espl": Row("espl", BOTH, against=("espl, mode=evolution", "random")),
    "retroformer, lr=0": Row("retroformer", {**RETRO, "lr": 0.0}),
    "retroformer": Row("retroformer", RETRO, against=("retroformer, lr=0", "random")),
    "prompt_r1, lr=0": Row("prompt_r1", {**TALK, "steps": 1, "lr": 0.0}),
    "prompt_r1": Row("prompt_r1", TALK, against=("prompt_r1, lr=0", "random")),
    "dsp, advantage=rloo": Row("dsp", {**DSP, "advantage": "rloo"}, "hints", ("dsp",)),
    "dsp, nlpo=0.9": Row("dsp", {**DSP, "nlpo": 0.9}, "hints", ("dsp",)),
    "dsp, top_p=0.9": Row("dsp", {**DSP, "top_p": 0.9}, "hints", ("dsp", "dsp, nlpo=0.9")),
}


def task_of(root: Path, world: str, seed: int) -> Path:
    """The task folder of a world for a seed, written when it is not there."""
    folder = root / "tasks" / f"{world}-{seed}"
    if (folder / "task.yaml").is_file():
        return folder
    if world == "hints":
        forms = write_hint_task(folder, seed, clauses=1, rows=50, among=CHECKED)
        by_word = {word: forms[kind] for kind, words in KINDS.items() for word in words.split()}
    else:
        by_word, every = {}, write_task(folder, seed, clauses=4, rows=50, among=CHECKED)
    data = folder / "data.jsonl"
    rows = [json.loads(line) for line in data.read_text().splitlines()]
    rows = [{**row, "clauses": by_word[row["input"].split()[0]] if by_word else every} for row in rows]
    data.write_text("\n".join(json.dumps(row) for row in rows) + "\n")
    (folder / "reward.py").write_text(REWARD)
    return folder


def run_row(root: Path, name: str, seed: int, calls: int) -> dict[str, Any]:
    """Test reward of one run, or of the finished run that lies there."""
    row = ROWS[name]
    out = root / "runs" / f"{name.replace(', ', '-').replace('=', '-')}-{seed}-{calls}"
    began = time.process_time()
    found = api.optimize(
        task_of(root, row.world, seed), method=row.method, lm="embedded/tiny", settings=dict(row.settings),
        seed=seed, run=out, budget=Budget(task_calls=round(calls * row.share)),
        policy=None if row.method == "random_search" else "embedded/tiny",
    )  # fmt: skip
    figures = {
        "test": found["best"]["test"]["mean"],
        "start": found["baseline"]["test"]["mean"],
        "calls": sum(found["usage"]["calls"].values()),
    }
    timed = out / "cpu.json"
    if not timed.is_file():
        timed.write_text(json.dumps(time.process_time() - began))
    return {**figures, "cpu_seconds": json.loads(timed.read_text())}


def interval(mine: Mapping[int, Any], other: Mapping[int, Any]) -> dict[str, float]:
    """Mean difference in test reward over the seeds of both, with its 95% interval (Student)."""
    seeds = sorted(mine.keys() & other.keys())
    gaps = np.array([mine[s]["test"] - other[s]["test"] for s in seeds])
    spread = stats.sem(gaps) if len(gaps) > 1 else float("nan")
    half = float(stats.t.ppf(0.975, max(1, len(gaps) - 1)) * spread)
    return {
        "n": len(seeds),
        "mean": float(gaps.mean()),
        "low": gaps.mean() - half,
        "high": gaps.mean() + half,
    }


def table(found: Mapping[str, Mapping[int, Any]]) -> tuple[str, dict[str, Any]]:
    """The table as markdown, and all its figures."""
    lines = [
        "| | test reward | task calls | CPU s | against | difference (95%) |",
        "|---|---|---|---|---|---|",
    ]
    figures: dict[str, Any] = {}
    for name, runs in found.items():
        means = {
            key: float(np.mean([r[key] for r in runs.values()]))
            for key in ("test", "start", "calls", "cpu_seconds")
        }
        gaps = {other: interval(runs, found[other]) for other in ROWS[name].against if other in found}
        figures[name] = {"settings": dict(ROWS[name].settings), "runs": runs, "means": means, "against": gaps}
        first = [
            f"{name} (n = {len(runs)})",
            f"{means['test']:.3f}",
            f"{means['calls']:.0f}",
            f"{means['cpu_seconds']:.0f}",
        ]
        shown = [(o, f"{g['mean']:+.3f} [{g['low']:+.3f}, {g['high']:+.3f}]") for o, g in gaps.items()] or [
            ("", "")
        ]
        for i, (other, gap) in enumerate(shown):
            lines.append("| " + " | ".join([*(first if i == 0 else [""] * 4), other, gap]) + " |")
    return "\n".join(lines), figures


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", default=";".join(ROWS), help="names of rows, separated by semicolons")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=1200, help="task calls of each run")
    parser.add_argument("--root", type=Path, default=Path("runs/learning"))
    given = parser.parse_args()
    names = [name.strip() for name in given.rows.split(";")]
    found: dict[str, dict[int, Any]] = {}
    for seed in range(given.seeds):
        for name in names:
            figures = run_row(given.root, name, seed, given.calls)
            found.setdefault(name, {})[seed] = figures
            print(f"{name} seed {seed}: {figures}", flush=True)
        text, all_figures = table(found)
        (given.root / "learning.json").write_text(json.dumps(all_figures, indent=1) + "\n")
        (given.root / "learning.md").write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
