"""The content of a task, and the readers of its models, budget and splits."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from whet._util.storable import is_number
from whet._util.words import fold
from whet.environments import World
from whet.environments.program import Program
from whet.environments.shaping import Shaping
from whet.errors import UsageError, did_you_mean, named_fields, parameter
from whet.models.addresses import split_address
from whet.models.endpoint import check_headers, holds_secret, join_urls, variables_in
from whet.models.prices import Price
from whet.models.request_options import RequestOptions, output_bound
from whet.prompt import Prompt
from whet.rewards import Objectives, RewardFunction
from whet.run import Budget
from whet.stats import POLICIES, STRICT
from whet.task.decode import decode, field_names, set_fields
from whet.task.task_file import BudgetEntry, ModelEntry, ModelsEntry, PolicyEntry, SplitsEntry
from whet.task.tree import Node
from whet.types import ROLES, Example
from whet_client.storable import show_value

SPLITS = ("train", "validation", "test")
ALPHA, MOST_ALPHA = 0.05, 0.5
MEAN, WORST = AGGREGATES = ("mean", "worst")
"""The value of a prompt of which a task made of several tasks has a mean for each case."""
ALIASES = {"dev": "validation", "valid": "validation", "val": "validation"}
POLICY = "policy"
"""The model whose weights a method trains: named among the models, but it is not called and has no budget role."""
TRANSFER = "transfer"
"""Another model that `whet compare --transfer` tries the found prompts with; it counts as the task model of that trial."""
SECOND = "second"
"""The judge of the second opinion: another model than the one that trains. Its calls count as those of the judge."""
ROUND_ROBIN, BLAME, ALL = "round_robin", "blame", "all"
REGION_POLICIES = (ROUND_ROBIN, BLAME, ALL)
"""The regions that a search edits, if no region is named."""
HEADINGS = "headings"
"""Every section below a heading is a region; they have their turns as ROUND_ROBIN says."""


@named_fields
@dataclass(frozen=True)
class ModelSpec:
    """The address and the call options of the model of one role. None: the command line or a default decides."""

    address: str | None = None
    base_url: str | None = None
    """Any OpenAI-compatible endpoint; commas separate several servers of the model."""
    temperature: float | None = None
    max_tokens: int | None = None
    """Bound on the output of a call."""
    stop: tuple[str, ...] = ()
    concurrency: int | None = None
    """The largest number of calls in flight."""
    requests_per_minute: float | None = None
    timeout: float | None = None
    """The time limit of a call in seconds."""
    price: Price | None = None
    price_per_hour: float = 0.0
    """The cost of an hour of training in US dollars; only for the policy model."""
    sampler: str = "transformers"
    """The sampler of texts in a training; only for the policy model."""
    model: Any = None
    """A model or a function instead of an address, in Python."""
    thoughts: bool = False
    """Whether the thoughts of the task model are part of its answers."""
    key_variable: str | None = None
    """The environment variable with the key."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """HTTP headers; `$NAME` in a value stands for an environment variable."""
    extra_body: Mapping[str, object] = field(default_factory=dict)
    top_p: float | None = None
    reasoning_effort: str | None = None
    seed: int | None = None
    stream: bool | None = None
    device: str | None = None
    """The device of a model at hf/PATH."""
    batch_size: int | None = None
    """The largest number of texts that a model at hf/PATH generates together."""
    overrides: frozenset[str] = field(default=frozenset(), compare=False, repr=False)
    """The fields that the person who starts the run has set, instead of the task."""
    priced_as: str | None = field(default=None, compare=False, repr=False)
    """The address whose price `price` is, if the model is another one."""

    @property
    def named(self) -> bool:
        """Whether the spec names a model."""
        return self.address is not None or self.model is not None

    @property
    def output_bound(self) -> int | None:
        """The largest number of tokens of an answer, wherever the user set it; None if the user did not."""
        return output_bound(self.extra_body, self.max_tokens)


@dataclass(frozen=True)
class Fractions:
    """Shares of the three splits (above 0, summing to 1) and the seed of the split; whether any of these was chosen; and the
    column that marks the split of each row (None: the one called `split`, if there is one; "none": no column)."""

    train: float = 0.4
    validation: float = 0.3
    test: float = 0.3
    seed: int = 0
    chosen: bool = False
    column: str | None = None


@dataclass(frozen=True)
class TaskContent:
    """The content of a task, read and checked. No example is in two splits. Examples are in the order of their seeded content
    hash, whatever the order of the files."""

    name: str
    description: str
    folder: Path
    prompt: Prompt
    train: tuple[Example, ...]
    validation: tuple[Example, ...]
    test: tuple[Example, ...]
    labels: Mapping[str, str]
    """The word that represents each label; empty for free text."""
    reward: RewardFunction
    models: Mapping[str, ModelSpec]
    """One entry for each role."""
    budget: Budget
    method: str | None
    settings: Mapping[str, Any] = field(default_factory=dict)
    setting_places: Mapping[str, str] = field(default_factory=dict)
    """The place where each of the `settings` is written, for messages."""
    warnings: tuple[str, ...] = ()
    fingerprint: str = ""
    """Content hash (64 hex digits) of prompt, rows with their splits, labels and reward, the source of reward programs
    included."""
    parts: Mapping[str, str] = field(default_factory=dict)
    """The hashes of the single parts that people edit."""
    world: World | None = None
    """The game or tools of an episode; None for one question and one answer."""
    shaping: Shaping | None = None
    second_opinion: RewardFunction | None = None
    """A reward that grades the answers to the sealed test again before anything is promoted."""
    document: Mapping[str, Any] = field(default_factory=dict)
    """The existing or equivalent content of task.yaml; of `data`, only the names of the splits."""
    alpha: float = ALPHA
    """The chance of a false promotion over all openings of the test rows together; with the `alpha_policy` fdr, the share of
    false promotions among all promotions."""
    alpha_policy: str = STRICT
    minimum_effect: float = 0.0
    """The difference in mean reward that a promotion must exceed."""
    group: str | None = None
    """The key of a row's data; rows with the same value under it are not independent."""
    program: Program | None = None
    """A program that answers with several prompts."""
    region: str = ROUND_ROBIN
    """The region that a search edits (`whet.search.regions`)."""
    longest: int | None = None
    """The largest number of tokens of the prompt; None: three times those of the start prompt, and at least 2,000."""
    cases: tuple[TaskCase, ...] = ()
    """The cases of a task made of several, each with one model."""
    aggregate: str = MEAN
    """The score of a prompt with several cases: the `mean` over them, or the `worst` of them."""

    @property
    def has_targets(self) -> bool:
        """Whether any of its rows has a target."""
        return any(
            row.target is not None for rows in (self.train, self.validation, self.test) for row in rows
        )

    def locate(self, replaced: Collection[str]) -> dict[str, str]:
        """The place of each setting that a caller has not `replaced`."""
        return {key: place for key, place in self.setting_places.items() if key not in replaced}


@dataclass(frozen=True)
class TaskCase:
    """One case of a task made of several. `frame`: the prompt of its own that follows the shared one (None: there is none);
    `model`: the place of its model among the task models, 0 for the first."""

    name: str
    task: TaskContent
    frame: Prompt | None = None
    model: int = 0

    @property
    def role(self) -> str:
        """The role of its model: `task`, `task2`, ..."""
        return role_of_model(self.model)


def role_of_model(place: int) -> str:
    """The role of a task model by its place, from 0 on."""
    return "task" if place == 0 else f"task{place + 1}"


T = TypeVar("T", bound=TaskContent)


def with_gate(
    task: T, alpha: float | None, minimum_effect: float | None, alpha_policy: str | None = None
) -> T:
    """The task with these settings of the gate in the place of its own; None keeps its own. Raises UsageError."""
    alpha = task.alpha if alpha is None else alpha
    effect = task.minimum_effect if minimum_effect is None else minimum_effect
    check_gate(alpha, effect, task.reward)
    policy = task.alpha_policy if alpha_policy is None else alpha_policy
    check_alpha_policy(policy)
    named = {"alpha": alpha, "minimum_effect": effect, "alpha_policy": policy}
    gate: dict[str, Any] = {k: v for k, v in named.items() if v != getattr(task, k)}
    return replace(task, **gate, document={**task.document, **gate}) if gate else task


def with_longest(task: T, longest: int | None) -> T:
    """The task with another bound on the tokens of its prompt; None keeps its own. Raises UsageError."""
    if longest is None or longest == task.longest:
        return task
    check_longest(longest)
    return replace(task, longest=longest, document={**task.document, "longest": longest})


def check_longest(longest: object) -> None:
    """Raise UsageError for a value that is no number of tokens."""
    if not isinstance(longest, int) or isinstance(longest, bool) or longest < 1:
        raise UsageError(
            f"longest is the number of tokens that the prompt may have at most, a whole number from 1 on; this is {longest!r}."
        )


def check_alpha_policy(policy: object) -> None:
    """Raise UsageError for a value that is no policy."""
    if policy not in POLICIES:
        raise UsageError(
            f"{parameter('alpha_policy')} is one of {', '.join(POLICIES)} (docs/openings.md); this is {show_value(policy)}."
        )


def check_gate(alpha: float, minimum_effect: float, reward: RewardFunction) -> None:
    """Raise UsageError for settings with which the gate could not decide, or would not be one."""
    if not is_number(alpha) or not 0 < alpha < MOST_ALPHA:
        raise UsageError(
            f"alpha is the chance of a false promotion, above 0 and below {MOST_ALPHA}; this is {alpha}. "
            f"Write {ALPHA}, or leave it out."
        )
    if isinstance(reward, Objectives) and minimum_effect:
        raise UsageError(
            f"minimum_effect is {minimum_effect}, and the task has objectives, each with a margin or bounds of its own. "
            "Leave minimum_effect out."
        )
    width = reward.high - reward.low
    if not is_number(minimum_effect) or not 0 <= minimum_effect < width:
        raise UsageError(
            f"minimum_effect is a difference of rewards, at least 0 and below {width:g}, the width of the range of "
            f"{reward.name}; this is {minimum_effect}. Write a smaller one, or leave it out."
        )


def read_models(node: Node | None) -> dict[str, ModelSpec]:
    """One ModelSpec for each role; what the file does not name gets the default, `transfer`, `second` and `embedding` none."""
    models = {role: ModelSpec() for role in (*ROLES, POLICY)}
    if node is None:
        return models
    if isinstance(node.value, str):
        node.refuse(
            f"`models` maps roles to addresses; this is {node.kind()}. Write models: {{task: {node.raw}}}."
        )
    for role, entry in node.mapping("`models`", field_names(ModelsEntry)).items():
        models[role] = ModelSpec(**_read_fields(entry, role))
    return models


def read_changes(choice: Mapping[str, object], role: str) -> dict[str, Any]:
    """The fields of a ModelSpec that a mapping as under `models` in task.yaml sets, its address a model or a function too.
    Raises UsageError."""
    return _read_fields(Node.of(choice, role), role)


def _read_fields(node: Node, role: str) -> dict[str, Any]:
    """The fields that an address alone, or a mapping with any of the keys of a role, sets."""
    what, entry, readers = (
        ("the policy", PolicyEntry, {"address": _policy_address})
        if role == POLICY
        else (f"the {role} model", ModelEntry, _READERS)
    )
    if not isinstance(node.value, dict):
        return {"address": readers["address"](node, what)}
    keys = dict(node.mapping(what))
    for key, item in keys.items():
        if key not in field_names(entry) and re.search(r"key|token$|secret|password", key):
            item.refuse(
                f'"{key}" does not belong in a file. Put the key into a variable of the environment, OPENAI_API_KEY or another '
                "one that `key_variable: NAME` names, and remove this line."
            )
    objects = {}
    if "address" in keys and not isinstance(keys["address"].value, str | int | float | dict | list | None):
        objects["model"] = keys.pop("address").value
    values = set_fields(decode(replace(node, value=keys), entry, what))
    for key in readers.keys() & values.keys():
        values[key] = readers[key](keys[key], f"{what}: {key}")
    if "price" in values:
        values["price"] = Price(**set_fields(values["price"]))
    return {**values, **objects}


def _policy_address(node: Node, what: str) -> str:
    return node.text(what, "hf/PATH, embedded/tiny or the folder of a checkpoint").strip()


def _address(node: Node, what: str) -> str:
    example = "provider/name, for example openai/gpt-4o-mini"
    text = node.text(what, example).strip()
    if not re.match(r"[A-Za-z][\w-]*[:/]+\S", text):
        node.refuse(f'{what}: "{text}" is not the address of a model. Write {example}.')
    try:
        split_address(text)
    except UsageError as error:
        node.refuse(str(error))
    return text


def _url(node: Node, what: str) -> str:
    """The URL, or several with commas between them."""
    items = node.value if isinstance(node.value, list) else [node]
    if not items:
        node.refuse(
            f"{what} is an empty list. Write a URL such as http://localhost:8000/v1, or leave it out."
        )
    for item in items:
        text = item.raw.strip() if isinstance(item.value, str) else ""
        if not re.match(r"https?://[^\s/]", text):
            item.refuse(
                f'{what}: "{text or item.kind()}" is not a URL. Write a URL such as http://localhost:8000/v1, or a list of them.'
            )
    return join_urls([item.raw.strip() for item in items]) or ""


def _stop(node: Node, what: str) -> tuple[str, ...]:
    items = node.value if isinstance(node.value, list) else [node]
    for item in items:
        if not isinstance(item.value, str) or not item.value:
            item.refuse(
                f'{what} must be one text or a list of texts; this is {item.kind()}. Write stop: ["\\n"].'
            )
    return tuple(str(item.value) for item in items)


def _variable(node: Node, what: str) -> str:
    text = node.text(what, "the name of an environment variable, such as TEAM_API_KEY").strip()
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", text):
        node.refuse(
            f"{what} is the name of an environment variable, such as TEAM_API_KEY, and what stands here is none. Write the name, "
            "and put the key into the variable."
        )
    return text


def _headers(node: Node, what: str) -> dict[str, str]:
    """Headers by name; a value is a text in which `$NAME` stands for a variable, or `{variable: NAME}`."""
    headers = {}
    for name, item in node.mapping(what).items():
        if isinstance(item.value, dict):
            keys = item.mapping(f"{what}: {name}", ("variable",))
            if "variable" not in keys:
                item.refuse(f"{what}: {name} is empty. Write {name}: {{variable: NAME}}.")
            headers[name] = f"${{{_variable(keys['variable'], f'{what}: {name}: variable')}}}"
            continue
        headers[name] = item.text(f"{what}: {name}", "a text, or {variable: NAME}")
        if holds_secret(name) and not variables_in(headers[name]) and not item.place:
            item.refuse(
                f"{what}: {name} usually holds a secret, which does not belong in a file. Put it into a variable and write "
                f"{name}: {{variable: NAME}}, or $NAME inside a text."
            )
    try:
        check_headers(headers)
    except UsageError as error:
        node.refuse(str(error))
    return headers


def _body(node: Node, what: str) -> dict[str, object]:
    values: dict[str, Any] = node.plain()
    try:
        RequestOptions(extra_body=values)
    except UsageError as error:
        node.refuse(str(error))
    return values


def _device(node: Node, what: str) -> str:
    text = node.text(what, "cpu, cuda, cuda:1 or mps").strip()
    if not re.fullmatch(r"[a-z]+(:[0-9]+)?", text):
        node.refuse(f'{what}: "{text}" is not a device. Write cpu, cuda, cuda:1 or mps.')
    return text


_READERS: Mapping[str, Callable[[Node, str], object]] = {
    "address": _address,
    "base_url": _url,
    "stop": _stop,
    "key_variable": _variable,
    "headers": _headers,
    "extra_body": _body,
    "reasoning_effort": lambda node, what: node.raw.strip(),
    "device": _device,
}
"""The description of a field beyond its type."""
MODEL_KEYS = field_names(ModelEntry)


def read_budget(node: Node | None) -> Budget:
    """The budget of the task file; a key `max_x` bounds `x`."""
    if node is None:
        return Budget()
    limits = set_fields(decode(node, BudgetEntry, "`budget`"))
    if {"max_cost", "max_cost_usd"} <= limits.keys():
        node.refuse("`budget` names max_cost_usd and max_cost, which are one limit. Keep one.")
    return Budget.from_json(
        {key.removeprefix("max_").removesuffix("_usd"): limit for key, limit in limits.items()}
    )


def by_split(node: Node, what: str, extra: tuple[str, ...] = ()) -> dict[str, Node]:
    """Entries of a mapping by split; dev, valid and val mean validation."""
    nodes: dict[str, Node] = {}
    for key, item in node.mapping(what, (*SPLITS, *ALIASES, *extra)).items():
        name = ALIASES.get(key, key)
        if name in nodes:
            item.refuse(f'{what} names the split {name} twice ("{key}" means {name}). Keep one.')
        nodes[name] = item
    return nodes


def read_splits(node: Node | None) -> Fractions:
    """Shares of the splits. Raises UsageError when one is missing or they do not sum to 1."""
    if node is None:
        return Fractions()
    entry = set_fields(decode(node, SplitsEntry, "`splits`"))
    column = entry.pop("column", None)
    chosen, seed = bool(entry), entry.pop("seed", 0)
    by_split(node, "`splits`", ("seed", "column"))
    shares = {ALIASES.get(key, key): share for key, share in entry.items()}
    if not shares:
        return Fractions(seed=seed, chosen=chosen, column=column)
    missing = [name for name in SPLITS if name not in shares]
    if missing:
        node.refuse(
            f"`splits` has no share for {' and '.join(missing)}. Give all three: "
            "splits: {train: 0.4, validation: 0.3, test: 0.3}."
        )
    total = math.fsum(shares.values())
    if abs(total - 1) > 1e-6:
        node.refuse(f"the shares in `splits` sum to {total:g}, not to 1. Change them so that they sum to 1.")
    return Fractions(**shares, seed=seed, chosen=True, column=column)


def read_label_words(labels: Node | None, verbalizer: Node | None) -> dict[str, str]:
    """Label to word, in the order of the file; empty without labels.

    Raises UsageError for fewer than two labels, labels or words that are equal where answers are compared, a word for no
    label, or a word that is another label.
    """
    if labels is None:
        if verbalizer is not None:
            verbalizer.refuse("`verbalizer` needs `labels`. Add labels: [a, b, ...].")
        return {}
    example = "labels: [positive, negative] (words that stand for them go under `verbalizer`)"
    items = labels.sequence("`labels`", example)
    words = {item.text("a label", "a word, in quotes if YAML reads it as nothing"): item for item in items}
    if len(items) < 2:
        labels.refuse(f"`labels` needs at least two labels; there are {len(items)}. Write {example}.")
    seen: dict[str, str] = {}
    for item in items:
        form = fold(item.raw).strip()
        if form in seen:
            same = (
                ""
                if item.raw == seen[form]
                else f', because "{seen[form]}" is equal where answers are compared'
            )
            item.refuse(f'the label "{item.raw}" appears twice{same}. Keep one.')
        seen[form] = item.raw
    result = {label: label for label in words}
    owner = verbalizer or labels
    for label, node in (verbalizer.mapping("`verbalizer`") if verbalizer else {}).items():
        if label not in result:
            node.refuse(
                f'`verbalizer` has a word for "{label}", which is no label.{did_you_mean(label, result)}'
            )
        result[label] = node.text(f"the word for {label}", "one word")
    for label, word in result.items():
        rival = seen.get(fold(word).strip(), label)
        others = [k for k, w in result.items() if k != label and fold(w).strip() == fold(word).strip()]
        if rival != label or others:
            owner.refuse(
                f'the word "{word}" stands for {label} and for {others[0] if others else rival}. '
                "Give each label a word of its own."
            )
    return result
