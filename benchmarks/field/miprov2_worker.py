"""MIPROv2 of DSPy, as benchmarks/field/peers.py starts it: `miprov2_worker.py JOB REPLY`.

A program of DSPy asks in DSPy's own format (fields, demonstrations) and not in a text before an input, so it answers the test
rows itself; the `prompt` of the reply is what it sends for the first of them. The trials are as many as fit the task calls beside
90 for demonstrations: each asks 15 rows, one of five and the first all of validation. A search that ends with an error leaves the
program as it was.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any


def main(told: str, reply: str) -> None:
    """Search, then answer the test rows."""
    job: dict[str, Any] = json.loads(Path(told).read_text(encoding="utf-8"))
    os.environ["DSPY_CACHEDIR"] = cache = f"{job['folder']}/cache"
    shutil.rmtree(cache, ignore_errors=True)
    import dspy

    begun = time.perf_counter()

    def model(role: str, temperature: float, tokens: int) -> Any:
        where = {"api_base": job["urls"][role], "api_key": "metered", "cache": role != "test"}
        return dspy.LM(
            f"openai/{role}", temperature=temperature, max_tokens=tokens, timeout=job["timeout"], **where
        )

    def exact(gold: Any, said: Any, trace: Any = None) -> float:
        return float(str(said.answer).strip() in gold.targets)

    tokens = job["tokens"] + 32
    dspy.configure(lm=model("task", 0.0, tokens))
    question = job["frame"].lower()
    examples = {
        split: [
            dspy.Example({question: row["input"], "answer": row["target"], "targets": row["targets"]})
            .with_inputs(question)
            for row in job["rows"][split]
        ]
        for split in ("train", "validation")
    }  # fmt: skip
    program = dspy.Predict(dspy.Signature(f"{question} -> answer", job["start"]))
    size = len(examples["validation"])
    trials = max(1, (job["task_calls"] - 90 - 2 * size) // (15 + size // 5))
    search = dspy.MIPROv2(
        exact, prompt_model=model("optimizer", 1.0, 1024), auto=None, num_candidates=4, seed=job["seed"],
        num_threads=job["concurrency"], max_errors=1000,
    )  # fmt: skip
    ended = ""
    try:
        best = search.compile(
            program, trainset=examples["train"], valset=examples["validation"], num_trials=trials,
            minibatch_size=min(15, size), minibatch_full_eval_steps=5,
        )  # fmt: skip
    except Exception as error:
        best, ended = program, repr(error)
    seconds = time.perf_counter() - begun
    fresh, outputs = model("test", 0.0, tokens), []
    with dspy.context(lm=fresh):
        for text in job["rows"]["test"]:
            try:
                outputs.append(str(best(**{question: text}).answer))
            except Exception as error:
                print(f"no answer: {error!r}")
                outputs.append("")
    sent = "\n\n".join(str(message["content"]) for message in fresh.history[0]["messages"])
    figures = {"prompt": sent, "outputs": outputs, "seconds": seconds, "error": ended}
    Path(reply).write_text(json.dumps(figures), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
