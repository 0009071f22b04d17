"""CAPO of promptolution, as benchmarks/field/peers.py starts it: `capo_worker.py JOB REPLY`.

CAPO crosses prompts, so it needs some to begin with: the start and three variations of it by promptolution's own question. The
scores are exact, and the prompt is put before an input as whet's is. Two steps, blocks of eight rows and at most three blocks fit
300 task and 20 optimizer calls; else its defaults hold.
"""

from __future__ import annotations

import json
import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any


def main(told: str, reply: str) -> None:
    """Search, and write the best prompt."""
    import pandas as pd
    from openai import OpenAI
    from promptolution.llms.base_llm import BaseLLM
    from promptolution.optimizers.capo import CAPO
    from promptolution.predictors.base_predictor import BasePredictor
    from promptolution.tasks.classification_tasks import ClassificationTask
    from promptolution.utils.prompt_creation import create_prompt_variation

    job: dict[str, Any] = json.loads(Path(told).read_text(encoding="utf-8"))
    begun = time.perf_counter()
    random.seed(job["seed"])

    class Endpoint(BaseLLM):  # type: ignore[misc]
        def __init__(self, role: str, temperature: float, tokens: int) -> None:
            super().__init__()
            self.client = OpenAI(base_url=job["urls"][role], api_key="metered", timeout=job["timeout"])
            self.about = {"model": role, "temperature": temperature, "max_tokens": tokens}

        def _get_response(self, prompts: list[str], system_prompts: list[str]) -> list[str]:
            def one(text: str) -> str:
                said: Any = [{"role": "user", "content": text}]
                answer = self.client.chat.completions.create(messages=said, **self.about)
                return answer.choices[0].message.content or ""

            with ThreadPoolExecutor(job["concurrency"]) as pool:
                return list(pool.map(one, prompts))

    class Stripped(BasePredictor):  # type: ignore[misc]
        def _extract_preds(self, preds: list[str]) -> list[str]:
            return [text.strip() for text in preds]

    rows = job["rows"]["train"] + job["rows"]["validation"]
    targets = {f"{job['frame']}: {row['input']}": row["targets"] for row in rows}
    frame = pd.DataFrame({"x": list(targets), "y": [wanted[0] for wanted in targets.values()]})
    task = ClassificationTask(frame, "", n_subsamples=8, eval_strategy="sequential_block", seed=job["seed"])
    task.ys = [wanted[0] for wanted in targets.values()]
    task._evaluate = lambda xs, ys, preds: pd.Series(
        [float(said in targets[x]) for x, said in zip(xs, preds, strict=True)]
    ).to_numpy()
    author = Endpoint("optimizer", 1.0, 1024)
    start = job["start"]
    search = CAPO(
        Stripped(Endpoint("task", 0.0, job["tokens"])), task, author,
        initial_prompts=[start, *create_prompt_variation([start] * 3, author)], max_n_blocks_eval=3,
    )  # fmt: skip
    best = search.optimize(n_steps=2)[0].construct_prompt()
    figures = {"prompt": best, "seconds": time.perf_counter() - begun}
    Path(reply).write_text(json.dumps(figures), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
