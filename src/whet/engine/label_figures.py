"""Accuracy by label and the confusion matrix of a prompt, where a task has labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from whet.engine.result_json import LabelFiguresJSON, LabelJSON
from whet.environments.labels import find_label
from whet.rewards.choose import find_labels
from whet.rewards.human_score import HumanScore
from whet.rewards.text import targets_of
from whet.task import Task
from whet.types import Example, Rollout

NO_LABEL = "no label"
MOST_CONFUSIONS = 20
LARGEST_MATRIX = 60


def label_figures(
    task: Task, examples: Sequence[Example], rollouts: Sequence[Rollout]
) -> LabelFiguresJSON | None:
    """Count, for each label, the rows whose right answer it is and the answers that they got; None for a task without labels.

    The labels are those of the task, or its targets where these are few, short and frequent. In the second case a reward that
    says only right or wrong may compare otherwise than by label: an answer that it calls wrong is none of the row's labels, and
    an answer without a label that it calls right is one of them. A reward between its bounds on any row decides nothing here.
    Rows without an answer are left out.

    `each`: rows of a label (`n`), how many were answered with it (`right`), their share (`accuracy`), how often it was answered
    at all (`answers`) and the share of these that were right (`precision`). `matrix[i][j]`: rows of label i that were answered
    with label j, the last column without one; None with more than 60 labels. `confusions`: the most frequent errors.
    """
    labels = _labels(task)
    if len(labels) < 2:
        return None
    counts: Counter[tuple[str, str]] = Counter()
    decides = not task.labels and _is_verdict(task, rollouts)
    for example, rollout in zip(examples, rollouts, strict=True):
        targets = [target for target in targets_of(example) if target in labels]
        if rollout.answered and targets:
            answer = find_label(rollout.output, labels) or NO_LABEL
            if decides and answer == NO_LABEL and rollout.reward >= task.reward.high:
                answer = targets[0]
            elif decides and answer in targets and rollout.reward < task.reward.high:
                answer = NO_LABEL
            counts[answer if answer in targets else targets[0], answer] += 1
    names, total = list(labels), sum(counts.values())
    if not total:
        return None
    wrong = Counter({pair: n for pair, n in counts.items() if pair[0] != pair[1]})
    return {
        "n": total,
        "accuracy": sum(counts[name, name] for name in names) / total,
        "each": {name: _each(name, names, counts) for name in names},
        "columns": [*names, NO_LABEL],
        "matrix": None
        if len(names) > LARGEST_MATRIX
        else [[counts[target, answer] for answer in (*names, NO_LABEL)] for target in names],
        "confusions": [
            {"target": target, "answer": answer, "n": n}
            for (target, answer), n in wrong.most_common(MOST_CONFUSIONS)
        ],
    }


def _is_verdict(task: Task, rollouts: Sequence[Rollout]) -> bool:
    """Whether the reward says right or wrong, and nothing between, of each answer."""
    low, high = task.reward.low, task.reward.high
    return all(rollout.reward <= low or rollout.reward >= high for rollout in rollouts if rollout.answered)


def _labels(task: Task) -> Mapping[str, str]:
    if task.labels:
        return task.labels
    if task.world is not None or task.program is not None or isinstance(task.reward, HumanScore):
        return {}  # targets of the last are scores, and answers texts with a score
    targets = [example.target for example in (*task.train, *task.validation, *task.test)]
    names = find_labels(targets) if all(isinstance(target, str) for target in targets) else []
    return {label: label for label in names}


def _each(name: str, names: Sequence[str], counts: Mapping[tuple[str, str], int]) -> LabelJSON:
    right = counts.get((name, name), 0)
    n = sum(counts.get((name, answer), 0) for answer in (*names, NO_LABEL))
    times = sum(counts.get((target, name), 0) for target in names)
    return {
        "n": n,
        "right": right,
        "accuracy": right / n if n else None,
        "answers": times,
        "precision": right / times if times else None,
    }
