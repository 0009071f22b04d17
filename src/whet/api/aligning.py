"""A judge whose rubric is aligned with people: the rubric becomes the prompt of a task, and people's scores become its targets.
Any method then searches for a rubric (MPO lets the rubric of a judge evolve, arXiv:2504.20157; MLflow aligns judges by SIMBA
and GEPA; `memalign` gives the judge a memory). The sealed test accepts the rubric only if its scores are nearer to people's
scores on rows that the search has not seen."""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from whet._util.arguments import check_arguments
from whet.api.running import find_run
from whet.engine.blobs import Blobs
from whet.engine.run_folder import read_result
from whet.errors import UsageError, parameter, quantity
from whet.prompt import Prompt
from whet.rewards import Judge
from whet.rewards.agreement import (
    Agreement,
    RaterPair,
    compare_raters,
    parts_with_humans,
    select_labelled,
)
from whet.rewards.judge_memory import read_memory
from whet.rl.remembering_judge import read_judge
from whet.task import Task, TaskKeywords, check_folder, load_task, task_of
from whet.types import Example, Message
from whet_client.prompt.chat import write_messages
from whet_client.storable import show_value

LEAST = 10
SHOWN, GROUP = "shown", "question"


@check_arguments
def judge_task(
    task: str | Path | Task,
    out: str | Path,
    *,
    part: str | None = None,
    reason: str | None = None,
    rater: str | None = None,
    only: str | None = None,
) -> dict[str, Any]:
    """Write a task folder `out` in which the rubric of a task's judge is the prompt, and return its facts.

    Its rows are the scored answers of the training and validation rows (the judge's `human` column). Each row has the answer as
    the judge sees it, with the person's score as target; answers to the same input stay in one split. The reward is
    `human_score`. `part` names the judge if there are several. `reason` is the column with the person's reason, and `rater` the
    column with the rater. The warnings name raters who put the same answers in opposite orders; `only` takes the rows of one
    rater. Then search with `whet.optimize(out, lm=JUDGE)`.

    Raises UsageError for a folder that is not empty, a task without such a judge, and fewer than 10 scored answers.
    """
    folder, loaded = check_folder(out), task_of(task, TaskKeywords())
    judge = _judge_of(loaded, part)
    if only is not None and rater is None:
        raise UsageError(
            f"{parameter('only', only)} needs the column with the raters: {parameter('rater', 'COLUMN')}."
        )
    examples = [
        e for e in (*loaded.train, *loaded.validation) if only is None or str(e.row.get(str(rater))) == only
    ]
    labelled = select_labelled(judge, examples)
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
    rows = [_row_of(judge, *row, questions, reason) for row in labelled.rows]
    pairs = _raters(labelled.rows, rater)
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
        "raters": [
            {"first": p.first, "second": p.second, "opposed": p.opposed, **_figures(p.agreement)}
            for p in pairs
        ],
        "warnings": [
            *([warning] if warning else []),
            *map(_say_opposed, _find_opposed(pairs)),
            *made.warnings,
        ],
    }


def _raters(rows: Sequence[tuple[Example, str, float]], rater: str | None) -> list[RaterPair]:
    if rater is None:
        return []
    named = [(e, answer, score) for e, answer, score in rows if e.row.get(rater) not in (None, "")]
    return compare_raters([(str(e.row[rater]), f"{e.user_text}\n{a}", score) for e, a, score in named])


def _figures(one: Agreement) -> dict[str, Any]:
    return {"kind": one.kind, "agreement": one.value, "low": one.low, "high": one.high, "n": one.n}


def _find_opposed(pairs: Sequence[RaterPair]) -> list[RaterPair]:
    return [pair for pair in pairs if pair.opposed]


def _say_opposed(pair: RaterPair) -> str:
    one = pair.agreement
    return (
        f"The raters {pair.first} and {pair.second} put {one.n} answers that both scored in opposite orders ({one.kind} "
        f"{one.value:.2f}, 95% interval {one.low:.2f} to {one.high:.2f}). A judge cannot agree with both. Align it with one: "
        f"whet align TASK --out DIR --rater COLUMN --only {shlex.quote(pair.first)}."
    )


def _judge_of(task: Task, part: str | None) -> Judge:
    """The judge with a `human` column. Raises UsageError where there is none, or another one than `part`, or several."""
    judges = [one for one in parts_with_humans(task.reward) if isinstance(one, Judge)]
    chosen = [judge for judge in judges if part in (None, judge.name)]
    if len(chosen) == 1:
        return chosen[0]
    names = ", ".join(judge.name for judge in judges) or "none"
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
    judge: Judge,
    example: Example,
    answer: str,
    score: float,
    questions: dict[str, int],
    reason: str | None,
) -> Mapping[str, Any]:
    why = example.row.get(reason) if reason else None
    return {
        **({"reason": why} if isinstance(why, str) and why else {}),
        "input": {SHOWN: judge.shows(example, answer)},
        "target": f"{score:g}",
        GROUP: questions.setdefault(example.user_text, len(questions) + 1),
    }


@check_arguments
def aligned_rubric(run: str | Path, root: str | Path = "runs", *, memory: str | Path | None = None) -> str:
    """Return the rubric that a finished run of `judge_task` found, or its start rubric if nothing was promoted.

    `memory`: the file for the memory that belongs to the rubric; the judge's option `memory` names this file. Raises UsageError
    for a run without a result, for a run of another kind of task, for a run with a memory if no file is named, and for a file
    if the run has no memory.
    """
    folder = find_run(run, root)
    result = read_result(folder)
    promoted = bool(result.get("improvement", {}).get("promoted"))
    side = result.get("best" if promoted else "baseline", {})
    messages = tuple(Message(*values) for values in side.get("messages", ()))
    prompt = Prompt(messages) if messages else None
    if prompt is None or not prompt.fenced:
        raise UsageError(f"{folder} has no rubric. Name a finished run of a task that `whet align` wrote.")
    if (memory is None) == ("system" in side):
        raise UsageError(
            f"{folder} found a memory beside the rubric. Name a file for it: {parameter('memory', 'memory.json')}."
            if memory is None
            else f"{folder} found no memory that was accepted. Omit {parameter('memory', str(memory))}."
        )
    if memory is not None:
        stored = read_judge(Blobs(folder / "blobs").read(side["system"]))
        Path(memory).write_bytes(stored.memory.to_json().encode("utf-8", "surrogatepass"))
    return prompt.region_text().strip()


@check_arguments
def forget_judgements(memory: str | Path, keys: Collection[str]) -> dict[str, int]:
    """Remove judgements from the file of a judge's memory, and every guideline that comes only from them.

    `keys` are keys of the file. Returns the numbers of removed judgements and guidelines. Raises UsageError for a file that is
    not a memory, and for a key that is not in the file.
    """
    path = Path(memory)
    try:
        before = read_memory(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}.") from error
    known = {judgement.key for judgement in before.judgements} | {
        key for guideline in before.guidelines for key in guideline.sources
    }
    if unknown := [key for key in keys if key not in known]:
        raise UsageError(
            f"{path} holds no judgement {show_value(unknown[0])}. Its keys are those of its `judgements`."
        )
    left = before.without(set(keys))
    path.write_bytes(left.to_json().encode("utf-8", "surrogatepass"))
    return {
        "judgements": len(before.judgements) - len(left.judgements),
        "guidelines": len(before.guidelines) - len(left.guidelines),
    }
