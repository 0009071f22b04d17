"""One run of the benchmark: a task folder, an arm and a budget; what the sealed test says about the result."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from benchmarks.latent_rules.arms import CEILING, method_of
from benchmarks.latent_rules.build import SPLITS, build

from whet.api import Options, Progress
from whet.engine.assemble import assemble
from whet.engine.budget import RETRY_SLACK, plan_budget
from whet.engine.execute import execute
from whet.engine.journal import read_events
from whet.engine.openings import SealedTestLedger
from whet.engine.run_folder import RunPlan, open_run
from whet.run import Budget as RunBudget
from whet.task import load_task

CONCURRENCY = 32
_ALL_CRITIQUES, _COMPLAINTS = "choose_by_luck(rule.critiques,", "choose_by_luck(rule.critiques[:2],"


@dataclass(frozen=True)
class Budget:
    """Task and optimizer calls for learning; the sealed test comes on top."""

    task_calls: int
    optimizer_calls: int

    def limit(self, simulated: bool) -> int:
        """The value of `--max-task-calls`: with both sealed tests, and for an endpoint their room for retries."""
        test = 2 * SPLITS["test"]
        return self.task_calls + (test if simulated else math.ceil(test * RETRY_SLACK) + 2)


@dataclass(frozen=True)
class Endpoint:
    """Models instead of the simulators; None: the simulators."""

    task_lm: str | None = None
    optimizer_lm: str | None = None
    base_url: str | None = None

    @property
    def simulated(self) -> bool:
        """Whether pages come from a simulator of this package."""
        return self.task_lm is None or self.task_lm.startswith(("scripted/", "simulated/"))


@dataclass(frozen=True)
class Job:
    """What one run needs. `task` and `optimizer` are options of the simulators; `world` is their seed (none: `seed`,
    which draws the requests and seeds the run); `critiques` bounds the complaints about a page (0: all); without
    `demands` a critique only says what is wrong, never what should be done. With `loops`
    so many rounds bound the search, and nothing else does."""

    rules: int
    seed: int
    arm: str
    budget: Budget
    variant: str = ""
    task: Mapping[str, Any] = field(default_factory=dict)
    optimizer: Mapping[str, Any] = field(default_factory=dict)
    world: int | None = None
    critiques: int = 0
    demands: bool = True
    endpoint: Endpoint = Endpoint()
    loops: int = 0

    @property
    def name(self) -> str:
        """Name of the run's folder, one for each job of a benchmark."""
        variant = "".join(c if c.isalnum() else "-" for c in self.variant)
        return (
            f"{self.rules}-{self.seed}-{self.arm}-{self.budget.task_calls}{'-' if variant else ''}{variant}"
            f"{f'-loops-{self.loops}' if self.loops else ''}"
        )

    def addresses(self) -> tuple[str, str]:
        """Addresses of the task and the optimizer model."""
        world = self.seed if self.world is None else self.world
        task = {"rules": self.rules, "seed": world, **self.task}
        optimizer = {"seed": world, **self.optimizer}
        return (
            self.endpoint.task_lm or _address("rules-generator", task),
            self.endpoint.optimizer_lm or self.endpoint.task_lm or _address("rules-optimizer", optimizer),
        )


@dataclass(frozen=True)
class Trial:
    """One prompt on the sealed test: the share of rules that each page follows, and what the whole run used."""

    rules: int
    seed: int
    arm: str
    budget: int
    variant: str
    simulated: bool
    shares: tuple[float, ...]
    calls: Mapping[str, int]
    tokens: int
    seconds: float
    prompt: str

    @property
    def share(self) -> float:
        """Mean share of rules followed."""
        return sum(self.shares) / len(self.shares)

    @property
    def accuracy(self) -> float:
        """Share of pages that follow every rule."""
        return sum(s == 1.0 for s in self.shares) / len(self.shares)


def _address(name: str, options: Mapping[str, Any]) -> str:
    return f"simulated/{name}?{urlencode(options)}"


def play(job: Job, root: Path) -> list[Trial]:
    """Run a job below `root` (again: replay it) and return its trial; for the ceiling that of the start as well."""
    return asyncio.run(_play(job, root))


async def _play(job: Job, root: Path) -> list[Trial]:
    method, config = method_of(job.arm, job.rules, job.seed, job.loops)
    writes = job.arm != CEILING
    task = load_task(_build_task(job, root / "tasks" / job.name))
    task_lm, optimizer_lm = job.addresses()
    options = Options(
        method=job.arm if writes else "random_search",
        lm=task_lm,
        optimizer_lm=optimizer_lm if writes else "none",
        base_url=job.endpoint.base_url,
        budget=RunBudget()
        if job.loops
        else RunBudget(
            task_calls=job.budget.limit(job.endpoint.simulated), optimizer_calls=job.budget.optimizer_calls
        ),
        concurrency=CONCURRENCY,
        seed=job.seed,
        root=root,
    )
    limits = options.limits(task)
    assembly = assemble(task, options, limits)
    folder = root / "runs" / job.name
    try:
        plan = RunPlan(task, method, config, limits, job.seed, assembly.addresses, assembly.generation)
        sizes = plan_budget(task, limits, assembly.env, plan.config, assembly.clients)
        opened = open_run(folder, plan, assembly.clients, assembly.cache(folder, options), lambda *_: None)
        try:
            result = await execute(plan, assembly.env, opened, sizes, SealedTestLedger(), Progress())
        finally:
            opened.core.caller.cache.close()
            opened.core.journal.close()
    finally:
        await assembly.close()
    final = read_events(folder / "journal.sqlite", ["final"])[-1].value
    trial = _trial(job, job.arm, result["best"]["prompt"], final["best"], result)
    if writes:
        return [trial]
    return [_trial(job, "start", result["baseline"]["prompt"], final["baseline"], result), trial]


def _build_task(job: Job, folder: Path) -> Path:
    """The task folder; real models are told the keys of a page, which they cannot guess."""
    build(folder, job.rules, job.seed, job.critiques, with_keys=not job.endpoint.simulated)
    if not job.demands:
        program = folder / "reward.py"
        before, found, after = program.read_text(encoding="utf-8").partition(_ALL_CRITIQUES)
        assert found
        program.write_text(f"{before}{_COMPLAINTS}{after}", encoding="utf-8")
    return folder


def _trial(job: Job, arm: str, prompt: str, rows: list[dict[str, Any]], result: dict[str, Any]) -> Trial:
    usage = result["usage"]
    return Trial(
        job.rules,
        job.seed,
        arm,
        job.loops or job.budget.task_calls,
        job.variant,
        result["simulated"],
        tuple(round(row["reward"], 4) for row in rows),
        {role: usage["calls"][role] + usage["cached"][role] for role in ("task", "optimizer")},
        usage["input_tokens"] + usage["output_tokens"],
        usage["seconds"],
        prompt,
    )
