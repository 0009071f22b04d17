"""The `gepa` package as an arm of a benchmark: its own reflection, on the rows, answers and critiques of that benchmark."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

Row = dict[str, Any]


def gepa_prompt(
    start: str,
    rows: Mapping[str, Sequence[Row]],
    answer: Callable[[str, Sequence[Row]], Sequence[str]],
    judge: Callable[[Row, str], tuple[float, str]],
    write: Callable[[str], str],
    *,
    task_calls: int,
    optimizer_calls: int,
    seed: int,
    **more: Any,
) -> str:
    """The prompt that gepa makes of `start` with the rows of `train` and `validation`.

    `answer` gives the outputs of the task model under a prompt, `judge` the reward and the critique of an output, `write` the
    optimizer model's reply. `more` are further keywords of `gepa.optimize`.
    """
    import gepa
    from gepa.core.adapter import EvaluationBatch

    written: list[str] = []

    class Adapter:
        propose_new_texts = None

        def evaluate(self, batch: list[Row], candidate: dict[str, str], capture_traces: bool = False) -> Any:
            outputs = answer(candidate["prompt"], batch)
            verdicts = [judge(row, output) for row, output in zip(batch, outputs, strict=True)]
            traces = [
                {"Inputs": row["input"], "Generated Outputs": output, "Feedback": critique}
                for row, output, (_, critique) in zip(batch, outputs, verdicts, strict=True)
            ]
            scores = [reward for reward, _ in verdicts]
            return EvaluationBatch(
                outputs=list(outputs), scores=scores, trajectories=traces if capture_traces else None
            )

        def make_reflective_dataset(
            self, candidate: dict[str, str], evaluated: Any, components: list[str]
        ) -> Any:
            return {name: evaluated.trajectories for name in components}

    class Quiet:
        def log(self, message: str) -> None:
            """Nothing."""

    def reflect(prompt: Any) -> str:
        text = prompt if isinstance(prompt, str) else "\n".join(str(m["content"]) for m in prompt)
        written.append(text)
        return write(text)

    result = gepa.optimize(
        seed_candidate={"prompt": start},
        trainset=list(rows["train"]),
        valset=list(rows["validation"]),
        adapter=Adapter(),
        reflection_lm=reflect,
        max_metric_calls=task_calls,
        stop_callbacks=lambda state: len(written) >= optimizer_calls,
        logger=Quiet(),
        seed=seed,
        **more,
    )
    return str(result.best_candidate["prompt"])
