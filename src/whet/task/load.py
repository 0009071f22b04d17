"""From a task folder to a Task. Everything wrong is refused here, before anything is paid or written."""

from __future__ import annotations

import difflib
import hashlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from whet._util.arguments import check_path
from whet._util.plugins import source_files
from whet._util.user_modules import digest_of_file
from whet._util.variables import restrict
from whet.environments.dialogue import DialogueWorld
from whet.environments.environment import is_strict
from whet.environments.labels import count_everyday_labels
from whet.environments.program import Program
from whet.errors import UsageError, quantity
from whet.prompt import Prompt
from whet.rewards import (
    LABELS,
    TARGET,
    TARGET_SCORE,
    ProgramReward,
    RewardFunction,
    Weighted,
    build_reward,
    check_targets,
    plain_reward,
    with_timeout,
)
from whet.rewards.program import REWARD_TIMEOUT
from whet.task.dataset import DataReader
from whet.task.decode import decode_field, field_names
from whet.task.environment import (
    TaskEnvironment,
    check_command_slots,
    load_prompts,
    prompt_with_tools,
    read_environment,
    read_program,
    read_region,
)
from whet.task.examples import Rules, make_examples, repeated_inputs, shown_values
from whet.task.objectives import read_objectives
from whet.task.prompts import check_braced_names, foreign_slots, front_matter_note, load_prompt, slot_line
from whet.task.reward_warnings import reward_warnings
from whet.task.rows import INPUT_NAMES
from whet.task.several import combine, share_prompt
from whet.task.sources import split_nodes
from whet.task.spec import (
    ALPHA,
    MEAN,
    SPLITS,
    WORST,
    TaskContent,
    check_gate,
    read_budget,
    read_label_words,
    read_models,
    read_splits,
)
from whet.task.task_file import TaskFile
from whet.task.tree import Node, parse_yaml
from whet.types import Example, content_hash
from whet_client.storable import show_value

KEYS = field_names(TaskFile)
_EVERYDAY_ROWS, _EVERYDAY_SHARE, _MOST_LOOKED_AT = 5, 0.2, 2000
"""From how many rows on, and which share of them, a label in inputs of other labels is an everyday word; rows looked at."""
T = TypeVar("T", bound=TaskContent)
REQUIRED = {
    "name": "name: my-task",
    "prompt": "prompt: prompt.md",
    "data": "data: data.jsonl",
    "reward": "reward: exact_match",
}
LONGEST_NAME = 180
"""Bytes of a task's name: the names of its folders, which are longer, have at most 255 on most file systems."""
TASKS = "tasks: [billing, shipping]"
SHARED = (
    *(
        "name",
        "prompt",
        "tasks",
        "aggregate",
        "description",
        "models",
        "budget",
        "method",
        "settings",
        "alpha",
        "alpha_policy",
    ),
    *("minimum_effect", "region", "longest", "env"),
)
"""The keys that a task made of several may have; the others stand in the folders of its tasks."""
NAMES_FILES = (
    *("prompt", "prompts", "program", "data", "reward", "objectives", "second_opinion", "environment"),
    "settings",
)


def read_folder(kind: type[T], folder: str | Path, needs: Sequence[str] = SPLITS) -> T:
    """The task in a folder (or in the folder of a given task.yaml), of the class `kind`; `needs` are the splits needed.

    Reads and checks every file and runs `reward.py` and `data.py` if the task names them. Raises UsageError
    (`file:line: what is wrong. What to do.`) for the first thing that cannot be used.
    """
    check_path("the task folder", folder)
    root, path = _open(Path(folder))
    keys = root.mapping("the task file", KEYS)
    _refuse_outside(keys, path.parent)
    if "env" in keys:
        restrict(_variables(keys["env"]))
    if "tasks" in keys:
        return _read_several(kind, root, keys, path.parent, needs)
    if "aggregate" in keys:
        keys["aggregate"].refuse(
            "`aggregate` says what several `tasks` are worth together, and there are none."
        )
    environment = read_environment(keys, path.parent)
    for name, example in REQUIRED.items():
        brought = (environment is not None and environment.brings(name)) or (
            {"prompt": "prompts", "reward": "objectives"}.get(name) in keys
        )
        if name not in keys and not brought:
            root.refuse(f"the key `{name}` is missing. Add a line such as {example}.")
    if "prompts" in keys:
        return make_task(kind, keys, path.parent, load_prompts(keys, path.parent), {}, environment, needs)
    prompt_path = path.parent / read_key(keys, "prompt")
    prompt = load_prompt(prompt_path, keys["prompt"].where)
    slots = {slot: f"{prompt_path}:{slot_line(prompt_path, slot)}" for slot in prompt.slots}
    return make_task(kind, keys, path.parent, prompt, slots, environment, needs)


def _read_several(
    kind: type[T], root: Node, keys: Mapping[str, Node], folder: Path, needs: Sequence[str]
) -> T:
    """A task made of several folders. Raises UsageError for a key that belongs into these."""
    for name in ("name", "prompt"):
        if name not in keys:
            root.refuse(f"the key `{name}` is missing. Add a line such as {REQUIRED[name]}.")
    prompt = load_prompt(folder / read_key(keys, "prompt"), keys["prompt"].where)
    named = [node.text("a folder in `tasks`", TASKS) for node in keys["tasks"].sequence("`tasks`", TASKS)]
    return make_several(
        kind, keys, folder, prompt, [read_folder(kind, folder / name, needs) for name in named]
    )


def make_several(
    kind: type[T], keys: Mapping[str, Node], folder: Path, prompt: Prompt, members: Sequence[T]
) -> T:
    """A task made of several `members`, which share `prompt`. Raises UsageError for what cannot be shared."""
    brought = next((keys[name] for name in keys if name not in SHARED), None)
    if brought is not None:
        name = next(name for name in keys if keys[name] is brought)
        brought.refuse(
            f"`{name}` belongs to one task, and there are several `tasks`. Move it into their folders."
        )
    aggregate = read_key(keys, "aggregate", MEAN)
    try:
        cases = share_prompt(prompt, members)
    except UsageError as error:
        keys["tasks"].refuse(str(error.args[0]))
    content = combine(cases, aggregate == WORST)
    gate = _gate(keys, content["reward"])
    pinned = {"tasks": [[case.name, case.task.fingerprint] for case in cases], "aggregate": aggregate}
    pinned |= {key: _plain(key, keys[key]) for key in ("region",) if key in keys}
    shared = {"prompt": [m.as_list() for m in prompt.messages]}
    words = _words(keys)
    prompt, region = read_region(keys.get("region"), prompt)
    return kind(
        folder=folder,
        prompt=prompt,
        models=read_models(keys.get("models")),
        budget=read_budget(keys.get("budget")),
        fingerprint=content_hash({**shared, **pinned}),
        parts={name: content_hash(value)[:16] for name, value in {**shared, **pinned}.items()},
        document={key: _plain(key, node) for key, node in keys.items() if key not in ("prompt", "tasks")},
        region=region,
        longest=read_key(keys, "longest"),
        cases=cases,
        aggregate=aggregate,
        **words | {"description": words["description"] or content.pop("description")},
        **{key: value for key, value in content.items() if key != "description"},
        **gate,
    )


def make_task(
    kind: type[T],
    keys: Mapping[str, Node],
    folder: Path,
    prompt: Prompt,
    slots: Mapping[str, str],
    environment: TaskEnvironment | None,
    needs: Sequence[str] = SPLITS,
) -> T:
    """A task from what task.yaml says, or from the same in Python. `slots`: those that rows fill, with their places; `needs`: the
    splits that must be there. Raises UsageError for the first thing that cannot be used."""
    get = keys.get
    labels = read_label_words(get("labels"), get("verbalizer"))
    prompt, region = read_region(get("region"), prompt_with_tools(prompt, environment))
    words, models, budget = _words(keys), read_models(get("models")), read_budget(get("budget"))
    reward = _with_limit(_rewards(keys, folder, labels, environment), get("reward_timeout"))
    second = _second(get("second_opinion"), folder, environment, get("reward_timeout"))
    needy = tuple(r for r in (reward, second) if r is not None and TARGET in r.needs)
    program = read_program(keys, folder, prompt)
    group = read_key(keys, "group")
    shown = shown_values(slots, labels) if program is None and environment is None else None
    rules = Rules(slots, labels, bool(needy), (*needy, reward)[0].name, group, needy, folder, shown)
    data = DataReader(folder, rules, read_splits(get("splits")), needs)
    splits, warnings = _splits(data, get("data"), environment)
    if program is not None:
        check_command_slots(
            keys["program"], program, [example for rows in splits.values() for example in rows]
        )
    for one in (reward, second) if environment is None or environment.world.graded else ():
        if one is not None:
            check_targets(one, [example for part in splits.values() for example in part])
            warnings += reward_warnings(one, [example for part in splits.values() for example in part])
    if environment is not None and isinstance(environment.world, DialogueWorld):
        warnings += environment.world.unsaid_lines([one for part in splits.values() for one in part])
    warnings += [*_rows_outside(get("data"), folder), *_without_rows(labels, splits["train"])]
    if labels and not is_strict(reward):
        warnings += _everyday_labels(labels, [*splits["train"], *splits["validation"]][:_MOST_LOOKED_AT])
    place = folder / (keys["prompt"].raw if "prompt" in keys else "")
    fields = frozenset[str]().union(*(e.values.keys() for e in splits["train"]))
    check_braced_names(prompt, fields, str(place) if place.is_file() else "prompt")
    warnings += front_matter_note(prompt, str(place) if place.is_file() else "prompt")
    warnings += foreign_slots(prompt, place, splits["train"][0].values, (*INPUT_NAMES, "input"))
    if program is None and environment is None:
        warnings += [*_without_slots(prompt, splits["train"][0]), *repeated_inputs(splits.values())]
    content = _fingerprint_content(
        prompt, splits, labels, (reward, second), _content(keys, environment, program)
    )
    return kind(
        folder=folder,
        prompt=prompt,
        train=splits["train"],
        validation=splits["validation"],
        test=splits["test"],
        labels=labels,
        reward=reward,
        models=models,
        budget=budget,
        warnings=tuple(warnings),
        fingerprint=content_hash(content),
        parts=_parts(content),
        world=None if environment is None else environment.world,
        shaping=None if environment is None else environment.shaping,
        second_opinion=second,
        document={key: _plain(key, node) for key, node in keys.items() if key not in ("prompt", "prompts")},
        group=group,
        program=program,
        region=region,
        longest=read_key(keys, "longest"),
        **words,
        **_gate(keys, reward),
    )


def _without_slots(prompt: Prompt, row: Example) -> list[str]:
    """A warning where the prompt names no key of rows that have several: it may have been meant to."""
    if prompt.slots or len(row.values) < 2:
        return []
    return [
        f"The prompt uses no slot, and the inputs have several keys ({', '.join(row.values)}): all of them go to the model, as "
        f"`key: value` lines below the prompt. Where one key is meant, write its slot, such as {{{{{next(iter(row.values))}}}}}."
    ]


def read_key(keys: Mapping[str, Node], name: str, default: object = None) -> Any:
    """The value of a key of the task file, as its type; `default` if the key is missing. Raises UsageError."""
    return decode_field(keys[name], TaskFile, name) if name in keys else default


def _words(keys: Mapping[str, Node]) -> dict[str, Any]:
    """Name, description, method and its settings."""
    return {
        "name": _name(keys["name"]),
        "description": read_key(keys, "description", "").strip(),
        "method": read_key(keys, "method"),
        "settings": read_key(keys, "settings", {}),
        "setting_places": _places(keys.get("settings")),
    }


def _places(node: Node | None) -> dict[str, str]:
    """file:line of each key of a mapping in task.yaml."""
    inner = {} if node is None or not isinstance(node.value, dict) else node.value
    return {key: item.where for key, item in inner.items()}


def _with_limit(reward: RewardFunction, node: Node | None) -> RewardFunction:
    limit = REWARD_TIMEOUT if node is None else decode_field(node, TaskFile, "reward_timeout")
    return with_timeout(reward, limit)


def _without_rows(labels: Mapping[str, str], train: Sequence[Example]) -> list[str]:
    missing = [label for label in labels if not any(e.target == label for e in train)]
    more = f", nor {quantity(len(missing) - 5, 'other')}" if len(missing) > 5 else ""
    named = " or ".join(f'"{label}"' for label in missing[:5])
    return [f"No training row has the label {named}{more}."] if missing else []


def _everyday_labels(labels: Mapping[str, str], rows: Sequence[Example]) -> list[str]:
    """A warning about labels that inputs of other labels say in passing: an answer may do so too."""
    pairs = [("\n".join(map(str, e.values.values())), str(e.target)) for e in rows]
    others = {label: sum(target != label for _, target in pairs) for label in labels}
    counts = {
        label: n
        for label, n in count_everyday_labels(labels, pairs).items()
        if n >= _EVERYDAY_ROWS and n >= _EVERYDAY_SHARE * others[label]
    }
    return [
        f'The label "{label}" is a word that {n} of {others[label]} inputs of other labels contain, so an answer that mentions '
        "it in a sentence may not mean it. Ask for the label alone, and let nothing else count: reward: "
        "{exact_match: {strict: true}}."
        for label, n in [*counts.items()][:3]
    ]


def _gate(keys: Mapping[str, Node], reward: RewardFunction) -> dict[str, Any]:
    """`alpha`, `alpha_policy` and `minimum_effect`, as far as they are named. Raises UsageError at the one that cannot be
    used."""
    gate: dict[str, float | str] = {}
    if "alpha_policy" in keys:
        gate["alpha_policy"] = read_key(keys, "alpha_policy")
    for name in ("alpha", "minimum_effect"):
        if name in keys:
            value = gate[name] = read_key(keys, name)
            try:
                check_gate(**{"alpha": ALPHA, "minimum_effect": 0.0, name: value}, reward=reward)
            except UsageError as error:
                keys[name].refuse(str(error))
    return gate


def _plain(key: str, node: Node) -> Any:
    """The value of a key of task.yaml, as values that YAML can hold; of data, the names of the splits."""
    if key == "data":
        return sorted(split_nodes(node) or ())
    return plain_reward(node.plain()) if key in _PINNED[:3] else node.plain()


def _open(place: Path) -> tuple[Node, Path]:
    """The tree of the task file and its path."""
    path = place / "task.yaml" if place.is_dir() else place
    if not place.exists():
        siblings = sorted(p.name for p in place.parent.iterdir()) if place.parent.is_dir() else []
        near = difflib.get_close_matches(place.name, siblings, n=1)
        here = Path("task.yaml").is_file() and place.name == Path.cwd().name
        remedy = (
            " It is the folder you are in: name it with a dot (.)."
            if here
            else f' Did you mean "{place.parent / near[0]}"?'
            if near
            else " Give the folder that holds task.yaml."
        )
        raise UsageError(f"{place}: there is no such task folder.{remedy}")
    if not path.exists():
        other = next((n for n in ("task.yml", "Task.yaml", "task.json") if (place / n).exists()), None)
        remedy = (
            f"Rename {other} to task.yaml." if other else f"Write one with the keys {', '.join(REQUIRED)}."
        )
        raise UsageError(f"{place}: there is no task.yaml in this folder. {remedy}")
    if path.suffix not in (".yaml", ".yml"):
        raise UsageError(
            f"{place}: a task is a folder or its task.yaml. Give the folder that holds task.yaml."
        )
    return parse_yaml(path, empty=f"Write at least the keys {', '.join(REQUIRED)}."), path


def _variables(node: Node) -> list[str]:
    """The environment variables that the folder's code sees."""
    names = [
        item.text("a name in `env`", "env: [API_TOKEN]")
        for item in node.sequence("`env`", "env: [API_TOKEN]")
    ]
    wrong = next((name for name in names if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name)), None)
    if wrong is not None:
        node.refuse(
            f"`env` lists names of environment variables, and {show_value(wrong)} is none. Write the name only."
        )
    return names


def _refuse_outside(keys: Mapping[str, Node], folder: Path) -> None:
    """Refuse a file that task.yaml names and that lies outside of the folder, by `..`, as an absolute path, or behind a link.

    Every text is tried that may name a file, so that it holds for the options of any reward, world or method. Files of rows
    may lie anywhere, programs that make rows may not.
    """
    for key in NAMES_FILES:
        for node, text, path in _outside(keys[key], folder) if key in keys else ():
            if key != "data" or ".py" in (path.suffix, Path(text).suffix):
                node.refuse(
                    f"{show_value(text)} is {path}, outside of the task's folder, where a task has nothing but rows. Copy it "
                    "into the folder; in Python, `whet.Task.of` takes files from anywhere."
                )


def _outside(node: Node, folder: Path) -> Iterator[tuple[Node, str, Path]]:
    """The texts in a value that name a file outside of the folder, and the file."""
    inner = node.value if isinstance(node.value, dict | list) else ()
    for text in inner if isinstance(inner, dict) else dict.fromkeys((node.raw, node.raw.strip())):
        path = folder / text
        if os.path.exists(path) and not path.is_dir() and not path.resolve().is_relative_to(folder.resolve()):
            yield node, text, path.resolve()
    for item in inner.values() if isinstance(inner, dict) else inner:
        yield from _outside(item, folder)


def _rows_outside(data: Node | None, folder: Path) -> list[str]:
    """A warning for each file of rows that lies outside of the folder: its rows go to the models."""
    outside = _outside(data, folder) if data is not None else ()
    return [
        f"{node.where}: the rows of {path} lie outside of the task's folder." for node, _, path in outside
    ]


def _name(node: Node) -> str:
    """The task's name: it also names the run's folder."""
    name: str = decode_field(node, TaskFile, "name").strip()
    bad = re.search(r"[/\\\x00-\x1f\x7f]", name)
    if bad or name.startswith(".") or len(name) > 100 or len(name.encode()) > LONGEST_NAME:
        why = (
            f"it contains {show_value(bad.group())}"
            if bad
            else f"it begins with a dot or is longer than 100 characters or {LONGEST_NAME} bytes of UTF-8"
        )
        node.refuse(f"`name` also names the run folder, and {why}. Use letters, digits, spaces, '-' and '_'.")
    return name


def _splits(
    data: DataReader, node: Node | None, environment: TaskEnvironment | None
) -> tuple[dict[str, tuple[Example, ...]], list[str]]:
    """Examples by split, and warnings; a game without `data` makes its own rows."""
    if node is not None:
        splits, warnings = data.load(node)
    else:
        assert environment is not None, "a task without `data` is a game"
        splits, warnings = data.deal(make_examples(environment.rows(), data.rules, {}), environment.node)
    if environment is not None:
        environment.check([example for examples in splits.values() for example in examples])
    return splits, warnings


_PINNED = ("reward", "objectives", "second_opinion", "group", "region")


def _content(
    keys: Mapping[str, Node], environment: TaskEnvironment | None, program: Program | None
) -> dict[str, object]:
    """The rewards, environment, program and region of task.yaml, for the fingerprint."""
    spec: dict[str, object] = {"reward": None}
    spec |= {key: _plain(key, keys[key]) for key in _PINNED if key in keys}
    if program is not None:
        spec["program"] = [program.digest, program.calls]
    return spec if environment is None else {**spec, "environment": environment.content()}


def _rewards(
    keys: Mapping[str, Node], folder: Path, labels: Mapping[str, str], environment: TaskEnvironment | None
) -> RewardFunction:
    """The task's reward, with its objectives where it has some."""
    node = keys.get("objectives")
    if node is None:
        return _reward(keys.get("reward"), folder, labels, environment)
    if environment is not None and not environment.world.graded:
        node.refuse("a game brings its own return, and `objectives` grade answers. Remove one of the two.")
    own = _reward(keys["reward"], folder, labels, environment) if "reward" in keys else None
    return read_objectives(node, own, folder, labels)


def _reward(
    node: Node | None, folder: Path, labels: Mapping[str, str], environment: TaskEnvironment | None
) -> RewardFunction:
    own = None if environment is None else environment.reward(node)
    if own is not None or node is None:
        assert own is not None, "a task without `reward` is a game"
        return own
    reward = build_reward(node.plain(), folder, node.where)
    if LABELS in reward.needs and not labels:
        node.refuse(
            f"the reward {reward.name} works on labels. "
            f"{'Give labels=[...]' if node.place else 'Add labels: [a, b, ...]'}, or use another reward."
        )
    return reward


def _second(
    node: Node | None, folder: Path, environment: TaskEnvironment | None, limit: Node | None
) -> RewardFunction | None:
    """The reward that grades the answers to the sealed test again."""
    if node is None:
        return None
    if environment is not None:
        node.refuse(
            "a second opinion grades single answers, and this task has an `environment`. Remove one of the two."
        )
    reward = build_reward(node.plain(), folder, node.where)
    if reward.needs & {LABELS, TARGET_SCORE}:
        node.refuse(
            f"the reward {reward.name} works on the task model's probabilities. Give a second opinion that reads answers, "
            "such as exact_match, judge or reward.py."
        )
    return _with_limit(reward, limit)


def _parts(content: Mapping[str, object]) -> dict[str, str]:
    """Hashes (16 hex digits) of what people edit, so that a difference can be named."""
    rest = {key: value for key, value in content.items() if key not in ("prompt", "rows")}
    known = {"prompt": content["prompt"], "rows": content["rows"], "reward, labels or program": rest}
    return {name: content_hash(value)[:16] for name, value in known.items()}


def _fingerprint_content(
    prompt: Prompt,
    splits: Mapping[str, Sequence[Example]],
    labels: Mapping[str, str],
    rewards: Sequence[RewardFunction | None],
    spec: Mapping[str, object],
) -> dict[str, object]:
    """All that a result depends on in the folder."""
    return {
        "prompt": [m.as_list() for m in prompt.messages],
        "rows": [[split, e.id, content_hash(dict(e.row))] for split, rows in splits.items() for e in rows],
        "labels": [[label, word] for label, word in labels.items()],
        **spec,
        "files": [digest for reward in rewards for digest in _digests(reward)],
    }


def _digests(reward: RewardFunction | None) -> list[str]:
    """Hashes of the programs and files that the reward depends on, in order; for one of another package of its module."""
    if isinstance(reward, Weighted):
        return [digest for _, part in reward.parts for digest in _digests(part)]
    if isinstance(reward, ProgramReward):
        return [reward.digest]
    data = [hashlib.sha256(path.read_bytes()).hexdigest() for path in getattr(reward, "files", ())]
    return [*data, *map(digest_of_file, source_files(reward))]
