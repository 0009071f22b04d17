"""Transfer: the prompt that a run found, unchanged, on the rows of the same task with another model.

A trial is a run of its own with a folder and a journal, so that no call is paid twice. The rest of a run's limits bounds the
trial of its prompt, and `plan_budget` keeps enough for it from the beginning.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson

from whet.engine.accounting import elapsed_row, usage
from whet.engine.assemble import TransferModel
from whet.engine.durable import DurableRun
from whet.engine.evaluation_folder import ASKED, clear_evaluation, holds_evaluation, put_in_place
from whet.engine.journal import connect
from whet.engine.model_client import ModelClient
from whet.engine.pairs import evaluate_within, summary
from whet.engine.progress import Progress
from whet.engine.result_json import GainJSON, TrialAnswersJSON, TrialJSON, UsageJSON
from whet.engine.run_folder import (
    RESULT,
    OpenRun,
    RunPlan,
    asks_again,
    differing_entries,
    note_fresh,
    note_in,
    open_run,
    places_of,
    read_header,
    write_result,
)
from whet.engine.shared_cache import open_cache
from whet.environments.environment import Environment, watching_rollouts
from whet.errors import BudgetExceeded, parameter
from whet.run import Budget
from whet.search.archive import Candidate
from whet.stats import Improvement, decide, decide_answered
from whet.types import Rollout, content_hash
from whet_client.version import __version__

TRANSFER = "transfer"
_SEALED = "test"


@dataclass(frozen=True)
class Trial:
    """Identity of a trial: which prompt, with which weights beside it, is answered by which models on which rows."""

    plan: RunPlan
    candidate: Candidate
    limits: Budget
    addresses: Mapping[str, str]
    generation: Mapping[str, object]
    split: str = _SEALED

    @property
    def seed(self) -> int:
        """The seed of the run that found the prompt."""
        return self.plan.seed

    def header(self) -> dict[str, Any]:
        """The identity as JSON; limits are not part of it."""
        known, system = self.plan.header(), self.candidate.system
        return {
            "whet": __version__,
            "task": self.plan.task.name,
            "fingerprint": self.plan.task.fingerprint,
            "method": TRANSFER,
            "prompt": self.candidate.id,
            **({} if system is None else {"of": {k: known[k] for k in ("method", "version", "config")}}),
            "seed": self.seed,
            "models": dict(self.addresses),
            "generation": dict(self.generation),
            **({} if self.split == _SEALED else {"split": self.split}),
        }


@dataclass(frozen=True)
class TransferTest:
    """The model that a prompt is tried with, the judge where the reward needs one, and the folder of the runs. `apart`: what
    other endpoints answered is another trial. `fresh`: what an earlier trial recorded is asked again."""

    other: TransferModel
    judge: ModelClient | None
    root: Path
    apart: bool = False
    fresh: bool = False

    async def transfer(
        self,
        plan: RunPlan,
        env: Environment,
        candidate: Candidate,
        name: str,
        limits: Budget,
        split: str = _SEALED,
        progress: Progress | None = None,
    ) -> TrialJSON:
        """Answers to the rows of a split by the other model: its score, its rewards by row, what it took.

        `env` is the environment in which the candidate is used at home, `name` the folder of its run. Raises BudgetExceeded
        when `limits` do not suffice, ProviderError when the endpoint is dead (what was paid is kept).
        """
        clients = {"task": self.other.client} | ({} if self.judge is None else {"judge": self.judge})
        g = self.other.generation
        how = {
            "temperature": g.temperature,
            "max_tokens": g.max_tokens,
            "stop": list(g.stop),
            **({"thoughts": True} if g.thoughts else {}),
        }
        addresses = {role: client.model.address for role, client in clients.items()}
        trial = Trial(plan, candidate, replace(limits, seconds=None), addresses, how, split)
        question = content_hash([trial.header(), places_of(clients) if self.apart else {}])
        place = self._locate(name, trial, question)
        done = _read_finished(place, trial)
        if done is not None and not done.get("unanswered") and not self.fresh:
            return done
        folder = place.with_name(f"{place.name}.fresh") if self.fresh and done is not None else place
        if self.fresh and not asks_again(folder):
            clear_evaluation(folder)
        local = all(client.model.local for client in clients.values())
        cache = open_cache(place, self.fresh, local=local)
        opened = open_run(folder, trial, clients, cache, lambda name, value: None, open_db=connect)
        note_in(opened.core.journal, ASKED, question)
        note_fresh(opened.core.journal, self.fresh)
        with opened.closing():
            result = await self._answer_rows(trial, self.other.answers(env), opened, progress or Progress())
        write_result(folder, result)
        if folder != place:
            put_in_place(place, folder)
        return result

    def _locate(self, name: str, trial: Trial, question: str) -> Path:
        """The folder of a trial: the one of its model, or one of its own where another trial of that model is there."""
        folder = self.root / f"{name}-{TRANSFER}-{_slug(self.other.address)}"
        if read_header(folder) is None or holds_evaluation(folder, trial, question):
            return folder
        return folder.with_name(f"{folder.name}-{question[:8]}")

    async def _answer_rows(
        self, trial: Trial, env: Environment, opened: OpenRun, progress: Progress
    ) -> TrialJSON:
        core, task = opened.core, trial.plan.task
        rows = getattr(task, trial.split)
        progress.core = core
        progress.begin(f"{trial.split} rows", len(rows))
        try:
            run = DurableRun(core, "/transfer", Budget())
            with watching_rollouts(progress.on_rollout):
                rollouts = await evaluate_within(
                    env, run, trial.candidate.prompt, rows, core.incomplete_sessions
                )
            core.note_unanswered(rollouts)
        finally:
            await core.caller.drain()
            core.journal.append([elapsed_row(core)])
        low, high = env.reward.low, env.reward.high
        result: TrialJSON = {
            "task": task.name,
            "method": TRANSFER,
            "status": "completed",
            "prompt": trial.candidate.prompt.source,
            "id": trial.candidate.id,
            "split": trial.split,
            "models": dict(trial.addresses),
            "simulated": core.caller.simulated,
            "score": summary(rollouts, low, high, rows),
            "rewards": [r.reward for r in rollouts],
            "failed": sum(r.error is not None for r in rollouts),
            "unanswered": [i for i, rollout in enumerate(rollouts) if not rollout.answered],
            "usage": usage(core),
        }
        if (error := first_error(rollouts)) is not None:
            result["error"] = error
        return result


def first_error(rollouts: Sequence[Rollout]) -> str | None:
    """The error of the first answer that failed; None where none did."""
    return next((r.error for r in rollouts if r.answered and r.error is not None), None)


def compare_sides(
    sides: tuple[TrialAnswersJSON, TrialAnswersJSON],
    ends: tuple[float, float],
    clusters: Sequence[int],
    same: bool = False,
) -> GainJSON:
    """The gain of the second of two trials on the same rows over the first, with the 95% interval of the paired difference.

    `ends` are those of the reward, `clusters` numbers the cluster of each row; rows that one of the two has no answer to enter
    the interval at their worst and at their best; `n` rows have both. `same`: both are one trial.
    """

    def test(before: Sequence[float], after: Sequence[float], own: Sequence[int]) -> Improvement:
        return decide(before, after, *ends, same=same, clusters=own)

    before, after = (
        [None if i in side.get("unanswered", ()) else value for i, value in enumerate(side["rewards"])]
        for side in sides
    )
    gain = decide_answered(test, before, after, *ends, list(clusters))
    return {"difference": gain.difference, "low": gain.low, "high": gain.high, "n": gain.n}


def limits_left(limits: Budget, spent: UsageJSON) -> Budget:
    """The rest of the limits after so much was `spent`; time does not count."""
    calls = {role: n + spent["cached"].get(role, 0) for role, n in spent["calls"].items()}
    used = {
        "calls": sum(calls.values()),
        **{f"{role}_calls": n for role, n in calls.items()},
        "tokens": spent["input_tokens"] + spent["output_tokens"],
        "cost_usd": spent["cost_usd"] or 0.0,
    }
    rest = {
        name: None if (limit := getattr(limits, name)) is None else max(0, limit - n)
        for name, n in used.items()
    }
    return Budget(**rest)


def check_enough(limits: Budget, need: Budget) -> None:
    """Raise BudgetExceeded where less is left than a trial may take."""
    for field in ("calls", "task_calls", "judge_calls", "tokens", "cost_usd"):
        there, needed, name = getattr(limits, field), getattr(need, field), field.removesuffix("_usd")
        if there is not None and needed is not None and there < needed - 1e-12:
            raise BudgetExceeded(
                name,
                f"the run left {there:g} of its {name.replace('_', ' ')}, but the trial may take "
                f"{needed:g}: give a larger {parameter(f'budget.{field}')} and another "
                f"{parameter('run')}, or {parameter('transfer')} from the beginning",
            )


def _slug(address: str) -> str:
    """A folder's name for an address: readable, and different for different addresses."""
    readable = re.sub(r"[^A-Za-z0-9]+", "-", address).strip("-")[-40:]
    return f"{readable}-{content_hash(address)[:6]}"


def _read_finished(folder: Path, trial: Trial) -> TrialJSON | None:
    path = folder / RESULT
    header = read_header(folder)
    if not path.is_file() or header is None or differing_entries(header, trial.header()):
        return None
    result: TrialJSON = orjson.loads(path.read_bytes())
    return result
