"""SkillOpt of Microsoft, as benchmarks/field/peers.py starts it: `skillopt_worker.py JOB REPLY`.

Its own trainer runs, with the settings of its configs/_base_/default.yaml (minibatches of 8, four edits falling to two by a
cosine, slow update, meta skill, gate), on an adapter that asks and scores as whet's prompts are. Of the package 0.2.0 neither the
wheel nor the source archive has the prompts, skillopt/prompts/*.md of the repository at v0.2.0: SKILLOPT_PROMPTS names a folder
that has them, unless they lie in the package.

Chosen so that 300 task and 20 optimizer calls fit, with 24 validation rows: two epochs (the first has no slow update) of three
steps of eight rows, each gated on all of validation: 24 + 6 x (8 + 24) + 2 x 8 + 24 task calls, the last 24 for the last text,
which the package validates at the end. Under other limits the steps change. A step asks one to four times, three times by plan,
and the second epoch's end twice, of which one call is kept for the slow update. Past the limit a call fails, and the trainer goes
on as it does after failed calls (edits joined and cut without a model, or no step). A slow update compares 8 rows, not 20, and an
optimizer's answer has 1,024 tokens, not 16,384, because the model may have a context of 4,096. No reasoning effort is named (the
configuration has medium, for models that have one), and no temperature, as in the package.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

EPOCHS, BATCH, COMPARED = 2, 8, 8
ASKED = 3
"""The optimizer calls of a step by plan."""
TOKENS = 1024
WRONG = 'The answer must be exactly "{}" and nothing else.'


class Spent(BaseException):
    """The task calls are used up; no handler of the package takes it for an error of a row."""


class Endpoint:
    """The models of a job, and the calls by role."""

    def __init__(self, job: dict[str, Any]) -> None:
        from openai import OpenAI

        self.job, self.calls, self.lock = job, Counter[str](), threading.Lock()
        self.clients = {
            role: OpenAI(base_url=job["urls"][role], api_key="metered", timeout=job["timeout"])
            for role in ("task", "optimizer")
        }

    def take_calls(self, role: str, count: int, kept: int = 0) -> bool:
        """Whether so many more calls are allowed, beside those kept for later; then they are counted."""
        with self.lock:
            if self.calls[role] + count + kept > self.job[f"{role}_calls"]:
                return False
            self.calls[role] += count
            return True

    def answer(self, text: str) -> str:
        """What the task model says to a text."""
        said: Any = [{"role": "user", "content": text}]
        about = {"model": "task", "temperature": 0.0, "max_tokens": self.job["tokens"]}
        answer = self.clients["task"].chat.completions.create(messages=said, **about)
        return answer.choices[0].message.content or ""

    def chat_optimizer(
        self, system: str, user: str, max_completion_tokens: int = TOKENS, **more: Any
    ) -> tuple[str, dict[str, int]]:
        """In the place of the package's function of that name: no call beyond the limit, and no attempts but the client's."""
        kept = 0 if more.get("stage") in ("slow_update", "meta_skill") else EPOCHS - 1
        if not self.take_calls("optimizer", 1, kept):
            raise RuntimeError("The optimizer calls are used up.")
        said: Any = [{"role": "system", "content": system}, {"role": "user", "content": user}]
        answer = self.clients["optimizer"].chat.completions.create(
            messages=said, model="optimizer", max_tokens=min(max_completion_tokens, TOKENS)
        )
        print(f"    [optimizer] {self.calls['optimizer']}: {more.get('stage')}", flush=True)
        read, written = (
            (answer.usage.prompt_tokens, answer.usage.completion_tokens) if answer.usage else (0, 0)
        )
        usage = {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
        return answer.choices[0].message.content or "", usage


def settings(job: dict[str, Any], out: Path, start: Path) -> dict[str, Any]:
    """The trainer's: its defaults, and what is chosen here."""
    return {
        "optimizer_model": "optimizer", "target_model": "task", "out_root": str(out), "skill_init": str(start),
        "env": "whet", "seed": job["seed"], "num_epochs": EPOCHS, "batch_size": BATCH, "accumulation": 1,
        "merge_batch_size": 8, "analyst_workers": job["concurrency"], "edit_budget": 4, "min_edit_budget": 2,
        "lr_scheduler": "cosine", "lr_control_mode": "fixed", "skill_update_mode": "patch", "max_analyst_rounds": 3,
        "use_slow_update": True, "slow_update_samples": COMPARED, "slow_update_gate_with_selection": False,
        "longitudinal_pair_policy": "mixed", "use_meta_skill": True, "use_skill_aware_reflection": False,
        "use_gate": True, "sel_env_num": 0, "test_env_num": 0, "eval_test": True,
    }  # fmt: skip


def steps_of(job: dict[str, Any]) -> int:
    """The steps of an epoch that fit both limits."""
    gate = len(job["rows"]["validation"])
    task = (job["task_calls"] - 2 * gate - 2 * COMPARED * (EPOCHS - 1)) // (EPOCHS * (BATCH + gate))
    optimizer = (job["optimizer_calls"] - 2 * (EPOCHS - 1)) // (EPOCHS * ASKED)
    return max(1, min(task, optimizer))


def main(told: str, reply: str) -> None:
    """Search, and write the best prompt."""
    import skillopt.prompts
    from skillopt.datasets.base import SplitDataLoader
    from skillopt.engine.trainer import ReflACTTrainer
    from skillopt.envs.base import EnvAdapter
    from skillopt.model import azure_openai

    skillopt.prompts._PROMPTS_DIR = os.environ.get("SKILLOPT_PROMPTS", skillopt.prompts._PROMPTS_DIR)
    skillopt.prompts.load_prompt("analyst_error")
    job: dict[str, Any] = json.loads(Path(told).read_text(encoding="utf-8"))
    begun = time.perf_counter()
    models = Endpoint(job)
    azure_openai.chat_optimizer = models.chat_optimizer

    class Loader(SplitDataLoader):  # type: ignore[misc]
        def setup(self, cfg: dict[str, Any]) -> None:
            for split, rows in (("train", "train"), ("val", "validation")):
                self._splits[split] = [
                    {**row, "id": f"{split}-{at}", "question": row["input"]}
                    for at, row in enumerate(job["rows"][rows])
                ]
            self._splits["test"] = []

        def get_train_size(self) -> int:
            return BATCH * steps_of(job)

    class Adapter(EnvAdapter):  # type: ignore[misc]
        analyst_workers, failure_only, minibatch_size, edit_budget = job["concurrency"], False, 8, 4
        loader = Loader(seed=job["seed"])

        def setup(self, cfg: dict[str, Any]) -> None:
            super().setup(cfg)
            self.loader.setup(cfg)

        def get_dataloader(self) -> Any:
            return self.loader

        def build_env_from_batch(self, batch: Any, **more: Any) -> list[Any]:
            return list(batch.payload or [])

        def build_train_env(self, batch_size: int, seed: int, **more: Any) -> list[Any]:
            return list(self.loader.build_train_batch(batch_size, seed).payload)

        def build_eval_env(self, env_num: int, split: str, seed: int, **more: Any) -> list[Any]:
            return list(self.loader.build_eval_batch(env_num, split, seed).payload)

        def get_task_types(self) -> list[str]:
            return ["task"]

        def rollout(
            self, env_manager: Any, skill_content: str, out_dir: str, **more: Any
        ) -> list[dict[str, Any]]:
            if not models.take_calls("task", len(env_manager)):
                raise Spent
            texts = [f"{job['frame']}: {row['input']}" for row in env_manager]
            with ThreadPoolExecutor(job["concurrency"]) as pool:
                answers = list(pool.map(lambda text: models.answer(f"{skill_content}\n{text}"), texts))
            results = []
            for row, text, said in zip(env_manager, texts, answers, strict=True):
                right = float(said.strip() in row["targets"])
                folder = Path(out_dir) / "predictions" / row["id"]
                folder.mkdir(parents=True, exist_ok=True)
                spoken = [{"role": "assistant", "content": said}]
                (folder / "conversation.json").write_text(json.dumps(spoken), encoding="utf-8")
                results.append({
                    "id": row["id"], "hard": right, "soft": right, "task_description": text, "task_type": "task",
                    "fail_reason": "" if right else WRONG.format(row["targets"][0]), "n_turns": 1,
                    "predicted_answer": said,
                })  # fmt: skip
            return results

    out = Path(job["folder"]) / "skillopt"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    start, best = out / "start.md", out / "best_skill.md"
    start.write_text(job["start"], encoding="utf-8")
    try:
        ReflACTTrainer(settings(job, out, start), Adapter()).train()
    except Spent:
        print("The task calls are used up.")
    print(f"calls: {dict(models.calls)}")
    prompt = (best if best.exists() else start).read_text(encoding="utf-8")
    figures = {"prompt": prompt, "seconds": time.perf_counter() - begun}
    Path(reply).write_text(json.dumps(figures), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
