"""A program of two prompts: whet beside the package gepa, dspy.GEPA and dspy.MIPROv2, on a world of others. SIMULATED models.

    python benchmarks/programs.py --rules 50 --rollouts 300 --asks 30 --seeds 3
    python benchmarks/programs.py --rules 50 --rollouts 300 --asks 30 --seeds 1 --kill

One prompt writes the frame of a page, the other its body; each has to learn its own share of the hidden rules. Every arm is a
process of its own on the same endpoint, with the same rows, start prompts, critiques by prompt and rollouts for its search (the
test of `whet optimize` comes on top), and else with its own defaults. A rollout is two task calls. The last program answers
pages that no arm has seen, under another key. With `--kill` each arm gets kill -9 in the middle and runs again:
paid again are the task calls above those of a run that nobody stopped.

The endpoint is read in place, from ../shared/worlds or the folder WHET_SHARED_WORLDS names; without it there is nothing to
measure, and this says so. An arm whose package is not installed is left out.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import aiohttp

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.rulesworld import WORLDS, calls_of, serving, slow_down

import whet

START = {"frame": "Create the frame of the JSON webpage.", "body": "Create the body of the JSON webpage."}
FRAME = ("meta", "nav", "footer")
SPLITS = {"train": (0, 60), "validation": (100, 20), "test": (120, 30)}
FRESH = range(5000, 5200)
AT_ONCE = 16


@dataclass(frozen=True)
class Trial:
    """What the process of an arm is told: where the endpoint is, what it may spend, and where it keeps its files."""

    arm: str
    url: str
    key: str
    rules: int
    seed: int
    rollouts: int
    asks: int
    folder: str
    begun: float

    @property
    def world(self) -> Any:
        """The world's module."""
        if str(WORLDS) not in sys.path:
            sys.path.insert(0, str(WORLDS))
        return importlib.import_module("rulesworld.world")

    def rows(self, split: str) -> list[str]:
        """The requests of a split."""
        first, count = SPLITS[split]
        return list(self.world.requests(count, first))

    def judge(self, request: str, texts: Mapping[str, str]) -> tuple[float, bool, dict[str, str]]:
        """Share of the rules that the page of both parts keeps, whether all are, and the critiques of each part."""
        world = self.world
        best = world.make_page(world.find_request(request), [1.0] * self.rules, self.rules, self.seed, "best")
        parts = {name: world.extract_json(text) or {} for name, text in texts.items()}
        pages = {n: p["page"] if isinstance(p.get("page"), dict) else {} for n, p in parts.items()}

        def page(frame: Mapping[str, Any], body: Mapping[str, Any]) -> str:
            inner = {k for k, v in best["page"].items() if isinstance(v, dict | list) and of_body(k, v)}
            own = {k: v for k, v in frame.items() if k not in inner}
            return json.dumps({"page": own | {k: v for k, v in body.items() if k in inner}})

        share, whole, _ = world.critiques(page(pages["frame"], pages["body"]), self.rules, self.seed)
        alone = {
            "frame": page(pages["frame"], best["page"]),
            "body": page(best["page"], pages["body"]),
        }
        critiques = {n: world.critiques(text, self.rules, self.seed)[2] for n, text in alone.items()}
        return share, whole, {n: "\n".join(texts) for n, texts in critiques.items() if texts}


def of_body(name: str, value: Any) -> bool:
    """Whether a part of the page is a component, and none of the frame's."""
    first = value[0] if isinstance(value, list) and value else value
    return isinstance(first, dict) and "kind" in first and first["kind"] not in FRAME


Answerer = Callable[[str, str], Awaitable[str]]


@contextlib.asynccontextmanager
async def asking(trial: Trial, role: str, key: str) -> Any:
    """A function of instructions and an input that asks a model of the endpoint."""
    headers, places = {"Authorization": f"Bearer {key}"}, asyncio.Semaphore(AT_ONCE)
    async with aiohttp.ClientSession(headers=headers) as session:

        async def ask(instructions: str, text: str) -> str:
            system = [{"role": "system", "content": instructions}] if instructions else []
            body = {
                "model": f"mock-{role}-{trial.rules}",
                "messages": [*system, {"role": "user", "content": text}],
            }
            async with places, session.post(f"{trial.url}/v1/chat/completions", json=body) as response:
                response.raise_for_status()
                return str((await response.json())["choices"][0]["message"]["content"])

        yield ask


async def answers(
    trial: Trial, prompts: Mapping[str, str], requests: Sequence[str], key: str
) -> list[dict[str, str]]:
    """What the program answers to requests."""
    async with asking(trial, "task", key) as ask:

        async def one(request: str) -> dict[str, str]:
            return {name: await ask(text, request) for name, text in prompts.items()}

        return await asyncio.gather(*(one(request) for request in requests))


# The arms: each returns a function from requests to what its last program answers, and the task calls of its sealed test.

LastProgram = tuple[Callable[[list[str]], list[dict[str, str]]], int]


def with_prompts(trial: Trial, prompts: Mapping[str, str], test: int = 0) -> LastProgram:
    """The program with these prompts."""
    return lambda requests: asyncio.run(answers(trial, prompts, requests, f"fresh-{trial.key}")), test


def by_whet(method: str) -> Callable[[Trial], LastProgram]:
    """`whet.optimize` with the program."""

    def arm(trial: Trial) -> LastProgram:
        async def program(lm: Any, prompts: Any, example: Any) -> str:
            return json.dumps({name: await lm(name) for name in START})

        def reward(example: Mapping[str, Any], output: str) -> dict[str, Any]:
            share, _, critiques = trial.judge(str(example["input"]), json.loads(output))
            return {"reward": share, "critique": critiques or None}

        os.environ["OPENAI_API_KEY"] = trial.key
        rows = {s: [{"id": f"{s}{n}", "input": r} for n, r in enumerate(trial.rows(s))] for s in SPLITS}
        test = 2 * 2 * SPLITS["test"][1]
        result = whet.optimize(
            START,
            program={"function": program, "calls": 2},
            data=rows,
            reward=reward,
            method=method,
            lm=f"openai/mock-task-{trial.rules}",
            optimizer_lm=f"openai/mock-optimizer-{trial.rules}",
            base_url=f"{trial.url}/v1",
            budget=whet.Budget(task_calls=2 * trial.rollouts + test, optimizer_calls=trial.asks),
            seed=trial.seed,
            run=Path(trial.folder) / "run",
        )
        opened = 1 if result.best.id == result.baseline.prompt.id else 2
        texts = {name: part.text for name, part in result.best.prompt.parts.items()}
        return with_prompts(trial, texts, opened * test // 2)

    return arm


def by_gepa(trial: Trial) -> LastProgram:
    """`gepa.optimize` with an adapter of its own; the calls of a batch are in flight together."""
    import gepa
    from gepa.core.adapter import EvaluationBatch

    used = [0]

    class Adapter:
        propose_new_texts = None

        def evaluate(self, batch: list[str], candidate: dict[str, str], capture_traces: bool = False) -> Any:
            outputs = asyncio.run(answers(trial, candidate, batch, trial.key))
            verdicts = [trial.judge(r, output) for r, output in zip(batch, outputs, strict=True)]
            traces = list(zip(batch, outputs, verdicts, strict=True))
            return EvaluationBatch(
                outputs=outputs,
                scores=[v[0] for v in verdicts],
                trajectories=traces if capture_traces else None,
            )

        def make_reflective_dataset(self, candidate: Any, evaluated: Any, components: list[str]) -> Any:
            def record(
                request: str, output: Mapping[str, str], critiques: Mapping[str, str], name: str
            ) -> Any:
                feedback = critiques.get(name, "All is well.")
                return {"Inputs": request, "Generated Outputs": output[name], "Feedback": feedback}

            seen = evaluated.trajectories
            return {name: [record(r, o, v[2], name) for r, o, v in seen] for name in components}

    async def reflected(text: str) -> str:
        async with asking(trial, "optimizer", trial.key) as ask:
            return str(await ask("", text))

    def reflect(prompt: Any) -> str:
        used[0] += 1
        text = prompt if isinstance(prompt, str) else "\n".join(str(m["content"]) for m in prompt)
        return asyncio.run(reflected(text))

    result = gepa.optimize(
        seed_candidate=dict(START),
        trainset=trial.rows("train"),
        valset=trial.rows("validation"),
        adapter=Adapter(),
        reflection_lm=reflect,
        max_metric_calls=trial.rollouts,
        stop_callbacks=lambda state: used[0] >= trial.asks,
        run_dir=trial.folder,
        seed=trial.seed,
    )
    return with_prompts(trial, result.best_candidate)


def by_dspy(optimizer: str) -> Callable[[Trial], LastProgram]:
    """`dspy.GEPA` or `dspy.MIPROv2` on a module of two predictors, with DSPy's cache on disk as by default."""

    def arm(trial: Trial) -> LastProgram:
        os.environ["DSPY_CACHEDIR"] = f"{trial.folder}/cache"
        import dspy

        where = {"api_base": f"{trial.url}/v1", "api_key": trial.key}
        task = dspy.LM(f"openai/mock-task-{trial.rules}", **where)
        author = dspy.LM(f"openai/mock-optimizer-{trial.rules}", **where)

        class Page(dspy.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                for name, text in START.items():
                    setattr(self, name, dspy.Predict(dspy.Signature("request -> page", text)))

            def forward(self, request: str) -> Any:
                pages = {name: getattr(self, name)(request=request).page for name in START}
                return dspy.Prediction(**pages)

        def metric(gold: Any, pred: Any, trace: Any = None, name: Any = None, steps: Any = None) -> Any:
            share, _, critiques = trial.judge(gold.request, {part: pred[part] for part in START})
            feedback = critiques.get(name, "All is well.") if name else "\n".join(critiques.values())
            return dspy.Prediction(score=share, feedback=feedback) if optimizer == "GEPA" else share

        rows = {s: [dspy.Example(request=r).with_inputs("request") for r in trial.rows(s)] for s in SPLITS}
        dspy.configure(lm=task)
        own: dict[str, Any] = {"trainset": rows["train"], "valset": rows["validation"]}
        if optimizer == "GEPA":
            limits = {"max_metric_calls": trial.rollouts, "seed": trial.seed, "log_dir": trial.folder}
            better = dspy.GEPA(metric, reflection_lm=author, **limits).compile(Page(), **own)
        else:
            trials = max(1, (trial.rollouts - 90) // 20)
            own |= {"num_trials": trials, "minibatch_size": 15, "minibatch_full_eval_steps": 5}
            search = dspy.MIPROv2(metric, prompt_model=author, auto=None, num_candidates=5)
            better = search.compile(Page(), seed=trial.seed + 1, **own)
        run = dspy.Parallel(num_threads=AT_ONCE)
        fresh = task.copy(api_key=f"fresh-{trial.key}", cache=False)

        def last(requests: list[str]) -> list[dict[str, str]]:
            with dspy.context(lm=fresh):
                pages = run([(better, dspy.Example(request=r).with_inputs("request")) for r in requests])
            return [{name: page[name] for name in START} for page in pages]

        return last, 0

    return arm


ARMS: dict[str, tuple[str, Callable[[Trial], LastProgram]]] = {
    "whet gepa": ("whet", by_whet("gepa")),
    "gepa 0.1.4": ("gepa", by_gepa),
    "dspy.GEPA": ("dspy", by_dspy("GEPA")),
    "whet prompt_learning": ("whet", by_whet("prompt_learning")),
    "whet mipro": ("optuna", by_whet("mipro")),
    "dspy.MIPROv2": ("dspy", by_dspy("MIPROv2")),
}


def play(trial: Trial) -> dict[str, float]:
    """In the process of an arm: search, then answer fresh pages."""
    with contextlib.redirect_stdout(sys.stderr):
        program, test = ARMS[trial.arm][1](trial)
        seconds = time.time() - trial.begun
        slow_down(trial.url, 0)
        requests = trial.world.requests(len(FRESH), FRESH.start)
        verdicts = [trial.judge(r, out) for r, out in zip(requests, program(requests), strict=True)]
    return {
        "share": fmean(v[0] for v in verdicts),
        "accuracy": fmean(v[1] for v in verdicts),
        "seconds": seconds,
        "test": test,
    }


# The process that starts the arms.


def process(trial: Trial) -> subprocess.Popen[str]:
    """The process of an arm."""
    folder = Path(trial.folder)
    folder.mkdir(parents=True, exist_ok=True)
    env = {**os.environ, "WHET_STATE": str(folder / "state")}
    command = [sys.executable, __file__, "--trial", json.dumps(asdict(trial))]
    with (folder / "log").open("a") as log:
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=env, text=True)


def finish_trial(trial: Trial) -> dict[str, float]:
    """Run an arm to its end: what it reached, and what the endpoint counted."""
    output, _ = (child := process(trial)).communicate()
    if child.returncode:
        raise SystemExit(f"{trial.arm} failed:\n{(Path(trial.folder) / 'log').read_text()[-3000:]}")
    ledger = calls_of(trial.url, trial.key)
    roles = {role: ledger.get(role, {}) for role in ("task", "optimizer")}
    tokens = sum(v.get(k, 0) for v in roles.values() for k in ("prompt_tokens", "completion_tokens"))
    result: dict[str, float] = json.loads(output.splitlines()[-1])
    calls = {f"{role} calls": ledger.get("calls", 0) for role, ledger in roles.items()}
    calls["task calls"] -= int(result.pop("test"))
    return {**result, **calls, "tokens": tokens}


def kill_trial(trial: Trial, after: float) -> None:
    """Start an arm and send kill -9 when the endpoint has had that many task calls."""
    child = process(trial)
    while calls_of(trial.url, trial.key).get("task", {}).get("calls", 0) < after:
        if child.poll() is not None:
            raise SystemExit(f"{trial.arm} ended before it was killed")
        time.sleep(0.02)
    os.kill(child.pid, signal.SIGKILL)
    child.communicate()


def table(results: Mapping[str, Sequence[Mapping[str, float]]]) -> str:
    """The mean of every figure over the seeds, one row an arm."""
    names = list(next(iter(results.values()))[0])
    rows = [["arm (SIMULATED)", *names], ["---"] * (len(names) + 1)]
    for arm, trials in results.items():
        means = [f"{fmean(t[n] for t in trials):,.3f}".rstrip("0").rstrip(".") for n in names]
        rows.append([arm, *means])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the arms over the seeds and print a table."""
    parser = argparse.ArgumentParser(description="Programs beside other optimizers (simulated).")
    parser.add_argument("--rules", type=int, default=50)
    parser.add_argument("--rollouts", type=int, default=300)
    parser.add_argument("--asks", type=int, default=30, help="calls of the optimizer at most")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--arms", default=",".join(ARMS))
    parser.add_argument(
        "--latency", type=float, default=50, help="ms of a task call; ten times that of the optimizer's"
    )
    parser.add_argument(
        "--kill", action="store_true", help="kill -9 each arm in the middle, and run it again"
    )
    parser.add_argument("--trial", help=argparse.SUPPRESS)
    options, habits = parser.parse_known_args(arguments)
    if options.trial:
        print(json.dumps(play(Trial(**json.loads(options.trial)))))
        return
    if not (WORLDS / "rulesworld").is_dir():
        print(f"There is no rulesworld in {WORLDS}; name its folder in WHET_SHARED_WORLDS.", file=sys.stderr)
        return
    root = Path(tempfile.mkdtemp(prefix="programs-"))
    results: dict[str, list[dict[str, float]]] = {}
    for seed in range(options.seeds):
        with serving(seed, habits) as url:
            for number, arm in enumerate(options.arms.split(",")):
                if not importlib.util.find_spec(ARMS[arm][0]):
                    print(f"{arm}: {ARMS[arm][0]} is not installed", file=sys.stderr)
                    continue

                def trial(
                    what: str, arm: str = arm, number: int = number, seed: int = seed, url: str = url
                ) -> Trial:
                    slow_down(url, options.latency)
                    own = {"key": f"{what}-{number}-{seed}", "folder": str(root / f"{what}-{number}-{seed}")}
                    limits = {"rules": options.rules, "rollouts": options.rollouts, "asks": options.asks}
                    return Trial(arm, url, seed=seed, begun=time.time(), **own, **limits)

                result = finish_trial(trial("whole"))
                if options.kill:
                    kill_trial(again := trial("killed"), result["task calls"] / 2)
                    result["paid again"] = finish_trial(again)["task calls"] - result["task calls"]
                results.setdefault(arm, []).append(result)
                print(f"seed {seed}: {arm} {result}", file=sys.stderr)
    print(
        f"{options.rules} rules, {options.rollouts} rollouts, {options.asks} optimizer calls\n\n{table(results)}"
    )


if __name__ == "__main__":
    main()
