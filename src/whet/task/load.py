"""From a task folder to a Task. Everything wrong is refused here, before anything is paid or written."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whet.errors import UsageError, did_you_mean
from whet.plugins import source_files
from whet.prompt import Prompt
from whet.rewards import LABELS, TARGET, TARGET_SCORE, RewardFunction, Weighted, build_reward
from whet.task.environment import Surroundings, read_environment
from whet.task.examples import Placed, Rules, check_slots, make_examples
from whet.task.files import shown
from whet.task.prompts import load_prompt, slot_line
from whet.task.rows import read_rows
from whet.task.spec import (
    SPLITS,
    Fractions,
    Task,
    by_split,
    read_budget,
    read_labels,
    read_models,
    read_splits,
)
from whet.task.splits import input_hash, partition, ranked
from whet.task.tree import Node, parse_yaml
from whet.types import Example, content_hash

REQUIRED = {
    "name": "name: my-task",
    "prompt": "prompt: prompt.md",
    "data": "data: data.jsonl",
    "reward": "reward: exact_match",
}
KEYS = (
    *(*REQUIRED, "description", "labels", "verbalizer", "environment", "models", "splits", "budget"),
    *("method", "settings", "second_opinion"),
)


def load_task(folder: str | Path) -> Task:
    """The task in a folder (or in the folder of a given task.yaml).

    Reads and checks every file and runs `reward.py` and `data.py` if the task names them. Raises UsageError
    (`file:line: what is wrong. What to do.`) for the first thing that cannot be used.
    """
    root, path = _open(Path(folder))
    keys = root.mapping("the task file", KEYS)
    get = keys.get
    labels = read_labels(get("labels"), get("verbalizer"))
    around = read_environment(get("environment"), path.parent, labels)
    for name, example in REQUIRED.items():
        if name not in keys and not (around is not None and around.brings(name)):
            root.refuse(f"the key `{name}` is missing. Add a line such as {example}.")
    models, budget = read_models(get("models")), read_budget(get("budget"))
    fractions = read_splits(get("splits"))
    name = _name(keys["name"])
    method = keys["method"].text("`method`", "a name from `whet methods`") if "method" in keys else None
    settings = keys["settings"].mapping("`settings`") if "settings" in keys else {}
    prompt_path = path.parent / keys["prompt"].text("`prompt`", REQUIRED["prompt"])
    prompt = load_prompt(prompt_path, keys["prompt"].where)
    reward = _reward(get("reward"), path.parent, labels, around)
    slots = {slot: f"{prompt_path}:{slot_line(prompt_path, slot)}" for slot in prompt.slots}
    second = _second(get("second_opinion"), path.parent, around)
    needy = [r.name for r in (reward, second) if r is not None and TARGET in r.needs]
    rules = Rules(slots, labels, bool(needy), (*needy, reward.name)[0])
    splits, warnings = _splits(_Data(path.parent, rules, fractions, "splits" in keys), get("data"), around)
    warnings += [
        f'No training row has the label "{label}".'
        for label in labels
        if not any(e.target == label for e in splits["train"])
    ]
    return Task(
        name=name,
        description=_description(get("description")),
        folder=path.parent,
        prompt=prompt,
        **splits,
        labels=labels,
        reward=reward,
        models=models,
        budget=budget,
        method=method,
        settings={key: node.plain() for key, node in settings.items()},
        warnings=tuple(warnings),
        fingerprint=_fingerprint(prompt, splits, labels, (reward, second), _content(keys, around)),
        world=None if around is None else around.world,
        second_opinion=second,
    )


def _open(given: Path) -> tuple[Node, Path]:
    """The tree of the task file and its path."""
    path = given / "task.yaml" if given.is_dir() else given
    if not given.exists():
        siblings = sorted(p.name for p in given.parent.iterdir()) if given.parent.is_dir() else []
        near = did_you_mean(given.name, siblings)
        said = near if "Did you mean" in near else " Give the folder that holds task.yaml."
        raise UsageError(f"{given}: there is no such task folder.{said}")
    if not path.exists():
        other = next((n for n in ("task.yml", "Task.yaml", "task.json") if (given / n).exists()), None)
        said = f"Rename {other} to task.yaml." if other else f"Write one with the keys {', '.join(REQUIRED)}."
        raise UsageError(f"{given}: there is no task.yaml in this folder. {said}")
    if path.suffix not in (".yaml", ".yml"):
        raise UsageError(
            f"{given}: a task is a folder or its task.yaml. Give the folder that holds task.yaml."
        )
    return parse_yaml(path, empty=f"Write at least the keys {', '.join(REQUIRED)}."), path


def _name(node: Node) -> str:
    """The task's name: it also names the run's folder."""
    name = node.text("`name`", REQUIRED["name"]).strip()
    bad = re.search(r"[/\\\x00-\x1f\x7f]", name)
    if bad or name.startswith(".") or len(name) > 100:
        why = (
            f"it contains {shown(bad.group())}"
            if bad
            else "it begins with a dot or is longer than 100 characters"
        )
        node.refuse(f"`name` also names the run folder, and {why}. Use letters, digits, spaces, '-' and '_'.")
    return name


def _description(node: Node | None) -> str:
    return "" if node is None else node.text("`description`", "a sentence").strip()


def _splits(
    data: _Data, node: Node | None, around: Surroundings | None
) -> tuple[dict[str, tuple[Example, ...]], list[str]]:
    """Examples by split, and warnings; a game without `data` makes its own rows."""
    if node is not None:
        splits, warnings = data.load(node)
    else:
        assert around is not None, "a task without `data` is a game"
        splits, warnings = data.deal(make_examples(around.rows(), data.rules, {}), around.node)
    if around is not None:
        around.check([example for examples in splits.values() for example in examples])
    return splits, warnings


def _content(keys: Mapping[str, Node], around: Surroundings | None) -> dict[str, Any]:
    """What task.yaml says of rewards and environment, for the fingerprint."""
    spec: dict[str, Any] = {"reward": None}
    spec |= {key: keys[key].plain() for key in ("reward", "second_opinion") if key in keys}
    return spec if around is None else {**spec, "environment": around.content()}


def _reward(
    node: Node | None, folder: Path, labels: Mapping[str, str], around: Surroundings | None
) -> RewardFunction:
    own = None if around is None else around.reward(node)
    if own is not None or node is None:
        assert own is not None, "a task without `reward` is a game"
        return own
    reward = build_reward(node.plain(), folder, node.where)
    if LABELS in reward.needs and not labels:
        node.refuse(
            f"the reward {reward.name} works on labels. Add labels: [a, b, ...], or use another reward."
        )
    return reward


def _second(node: Node | None, folder: Path, around: Surroundings | None) -> RewardFunction | None:
    """The reward that grades the answers to the sealed test again."""
    if node is None:
        return None
    if around is not None:
        node.refuse(
            "a second opinion grades single answers, and this task has an `environment`. Remove one of the two."
        )
    reward = build_reward(node.plain(), folder, node.where)
    if reward.needs & {LABELS, TARGET_SCORE}:
        node.refuse(
            f"the reward {reward.name} works on the task model's probabilities. Give a second opinion that reads answers, "
            "such as exact_match, judge or reward.py."
        )
    return reward


@dataclass(frozen=True)
class _Data:
    """Reads the data of a task and deals it into splits."""

    folder: Path
    rules: Rules
    fractions: Fractions
    fractions_given: bool

    def load(self, node: Node) -> tuple[dict[str, tuple[Example, ...]], list[str]]:
        """Examples by split, and warnings."""
        if isinstance(node.value, dict):
            return self._given(node)
        return self.deal(self._read(node, {}), node)

    def deal(
        self, made: tuple[list[Placed], list[str]], node: Node
    ) -> tuple[dict[str, tuple[Example, ...]], list[str]]:
        """Examples of one file, with their warnings, dealt into splits by their shares."""
        placed, warnings = made
        warnings += check_slots(placed, self.rules)
        f = self.fractions
        shares = (f.train, f.validation, f.test)
        parts = partition([p.example for p in placed], shares, f.seed)
        _refuse_empty(node, parts, SPLITS)
        return dict(zip(SPLITS, parts, strict=True)), warnings

    def _read(self, node: Node, ids: dict[str, tuple[str, bool]]) -> tuple[list[Placed], list[str]]:
        path = self.folder / node.text("`data`", "data: data.jsonl, or a file for each split")
        return make_examples(read_rows(path, node.where, frozenset(self.rules.slots)), self.rules, ids)

    def _given(self, node: Node) -> tuple[dict[str, tuple[Example, ...]], list[str]]:
        files = by_split(node, "`data`")
        if "train" not in files:
            node.refuse("`data` names no train file. Add train: train.jsonl.")
        if "test" not in files:
            node.refuse(
                "`data` names no test file, and without one nothing can be proved. Add test: test.jsonl, "
                "or give one file (data: data.jsonl) that whet splits."
            )
        if len(files) == len(SPLITS) and self.fractions_given:
            node.refuse("`data` gives all three splits, so `splits` has no use. Remove `splits`.")
        placed: dict[str, list[Placed]] = {}
        warnings, ids = [], dict[str, tuple[str, bool]]()
        for split in (s for s in SPLITS if s in files):
            placed[split], more = self._read(files[split], ids)
            warnings += more
        warnings += check_slots([p for rows in placed.values() for p in rows], self.rules)
        warnings += _refuse_leaks(placed)
        seed = self.fractions.seed
        found = {split: [p.example for p in rows] for split, rows in placed.items()}
        ordered = {split: tuple(e for g in ranked(rows, seed) for e in g) for split, rows in found.items()}
        if "validation" not in ordered:
            shares = (self.fractions.train, self.fractions.validation)
            parts = partition(found["train"], shares, seed)
            _refuse_empty(files["train"], parts, SPLITS[:2])
            ordered |= {"train": parts[0], "validation": parts[1]}
        return {split: ordered[split] for split in SPLITS}, warnings


def _refuse_empty(node: Node, parts: Sequence[Sequence[Example]], names: Sequence[str]) -> None:
    empty = [name for name, part in zip(names, parts, strict=True) if not part]
    if not empty:
        return
    rows = [e for part in parts for e in part]
    distinct = len({input_hash(e) for e in rows})
    node.refuse(
        f"the split {' and '.join(empty)} would be empty: there are {len(rows)} rows with {distinct} "
        "different "
        f"inputs for {', '.join(names)}. Give rows with at least {len(names)} different inputs."
    )


def _refuse_leaks(placed: Mapping[str, Sequence[Placed]]) -> list[str]:
    """Refuse a row (input and target) that two splits share; warn about inputs they share."""
    rows: dict[str, tuple[str, str]] = {}
    inputs: dict[str, str] = {}
    shared: list[str] = []
    for split, group in placed.items():
        for p in group:
            key = input_hash(p.example)
            both = content_hash([key, p.example.target])
            if both in rows and rows[both][0] != split:
                raise UsageError(
                    f"{p.where}: this {split} row stands also in {rows[both][0]} ({rows[both][1]}): what "
                    "a method has seen proves nothing. Remove it from one of them."
                )
            rows.setdefault(both, (split, p.where))
            if inputs.setdefault(key, split) != split:
                shared.append(p.where)
    if not shared:
        return []
    return [f"{len(shared)} inputs of one split stand in another with another target (first: {shared[0]})."]


def _fingerprint(
    prompt: Prompt,
    splits: Mapping[str, Sequence[Example]],
    labels: Mapping[str, str],
    rewards: Sequence[RewardFunction | None],
    spec: Mapping[str, Any],
) -> str:
    """Content hash (64 hex digits) of all that a result depends on in the folder."""
    return content_hash(
        {
            "prompt": [[m.role, m.content] for m in prompt.messages],
            "rows": [
                [split, e.id, content_hash(dict(e.row))] for split, rows in splits.items() for e in rows
            ],
            "labels": [[label, word] for label, word in labels.items()],
            **spec,
            "files": [
                hashlib.sha256(path.read_bytes()).hexdigest() for reward in rewards for path in _files(reward)
            ],
        }
    )


def _files(reward: RewardFunction | None) -> list[Path]:
    """Files that the reward depends on, in order; for one of another package its module."""
    if isinstance(reward, Weighted):
        return [path for _, part in reward.parts for path in _files(part)]
    return [*getattr(reward, "files", ()), *source_files(reward)]
