"""A judge whose rubric is aligned with people: the rubric becomes the prompt of a task, people's scores its targets.

Any method then searches for a rubric (MPO lets the rubric of a judge evolve, arXiv:2504.20157; MLflow aligns judges by SIMBA and
GEPA), and the sealed test accepts it only where its scores are nearer to people's on rows that the search has not seen.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from whet._util.arguments import check_arguments
from whet.api.running import find_run
from whet.engine.run_folder import read_result
from whet.errors import UsageError, parameter, quantity
from whet.prompt import Prompt
from whet.rewards import Judge
from whet.rewards.agreement import parts_with_humans, select_labelled
from whet.task import Task, TaskKeywords, check_folder, load_task, task_of
from whet.types import Example, Message
from whet_client.prompt.chat import write_messages
from whet_client.storable import show_value

LEAST = 10
SHOWN, GROUP = "shown", "question"


@check_arguments
def judge_task(task: str | Path | Task, out: str | Path, *, part: str | None = None) -> dict[str, Any]:
    """Write a task folder `out` in which the rubric of a task's judge is the prompt, and say what is in it.

    Its rows are the answers of the training and validation rows that people scored (the judge's `human` column), each as the
    judge sees it, with the person's score as target; answers to one input stay in one split. The reward is `human_score`. `part`
    names the judge where there are several. `whet.optimize(out, lm=JUDGE)` then searches.

    Raises UsageError for a folder that is not empty, a task without such a judge, and fewer than 10 scored answers.
    """
    folder, loaded = check_folder(out), task_of(task, TaskKeywords())
    judge = _judge_of(loaded, part)
    labelled = select_labelled(judge, (*loaded.train, *loaded.validation))
    if len(labelled.rows) < LEAST:
        raise UsageError(
            f"{quantity(len(labelled.rows), 'answer')} of the training and validation rows have a person's score in the column "
            f"{show_value(judge.human)}; to align a judge takes {LEAST} or more."
        )
    if "{{" in judge.rubric or "<!-- whet:" in judge.rubric:
        raise UsageError(
            "The rubric contains {{ or a fence marker, which would act as a slot or a region of the "
            "prompt. Remove it."
        )
    questions: dict[str, int] = {}
    rows = [_row_of(judge, example, answer, score, questions) for example, answer, score in labelled.rows]
    messages = judge.as_messages(_put_in_fence, "{{" + SHOWN + "}}")
    document = {
        "name": "judge",
        "prompt": "prompt.json",
        "data": "data.jsonl",
        "group": GROUP,
        "reward": {"human_score": {"scale": list(judge.scale)}},
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "prompt.json").write_text(write_messages(messages), "utf-8")
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (folder / "data.jsonl").write_bytes(lines.encode("utf-8", "surrogatepass"))
    (folder / "task.yaml").write_text(json.dumps(document, indent=1) + "\n", "utf-8")
    made = load_task(folder)
    sizes = {"train": len(made.train), "validation": len(made.validation), "test": len(made.test)}
    warning = labelled.warning(judge)
    return {
        "folder": str(out),
        "judge": judge.name,
        "rows": sizes,
        "questions": len(questions),
        "warnings": [*([warning] if warning else []), *made.warnings],
    }


def _judge_of(task: Task, part: str | None) -> Judge:
    """The judge with a `human` column. Raises UsageError where there is none, or another one than `part`, or several."""
    judges = [one for one in parts_with_humans(task.reward) if isinstance(one, Judge)]
    chosen = [one for one in judges if part in (None, one.name)]
    if len(chosen) == 1:
        return chosen[0]
    names = ", ".join(one.name for one in judges) or "none"
    raise UsageError(
        f"{task.name} has the judges with people's scores: {names}. "
        + (
            f"Choose one with {parameter('part', 'NAME')}."
            if len(judges) > 1
            else "Name the column with the scores: reward: {judge: {rubric: ..., human: COLUMN}}."
        )
    )


def _put_in_fence(rubric: str) -> str:
    return f"<!-- whet:begin -->\n{rubric}\n<!-- whet:end -->"


def _row_of(
    judge: Judge, example: Example, answer: str, score: float, questions: dict[str, int]
) -> Mapping[str, Any]:
    return {
        "input": {SHOWN: judge.shows(example, answer)},
        "target": f"{score:g}",
        GROUP: questions.setdefault(example.user_text, len(questions) + 1),
    }


@check_arguments
def aligned_rubric(run: str | Path, root: str | Path = "runs") -> str:
    """The rubric that a finished run of `judge_task` found, or that it began with where nothing was promoted.

    Raises UsageError for a run without a result, and one of another kind of task.
    """
    folder = find_run(run, root)
    result = read_result(folder)
    promoted = bool(result.get("improvement", {}).get("promoted"))
    side = result.get("best" if promoted else "baseline", {})
    messages = tuple(Message(role, content) for role, content in side.get("messages", ()))
    prompt = Prompt(messages) if messages else None
    if prompt is None or not prompt.fenced:
        raise UsageError(f"{folder} has no rubric. Name a finished run of a task that `whet align` wrote.")
    return prompt.region_text().strip()
