"""The possible content of task.yaml as types, from which its readers, its JSON schema for editors and the lists of known keys
are derived."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, Union

import msgspec
from msgspec import UNSET, Meta, UnsetType

from whet._util.fields import (
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    PositiveProbability,
)

T = TypeVar("T")
IfSet: TypeAlias = Union[T, UnsetType]  # noqa: UP007 (a generic alias)
"""A key that a file may omit."""


def _schema(**schema: Any) -> Meta:
    """The JSON schema of a value that whet reads with a separate function."""
    return Meta(extra_json_schema=schema)


def _like(example: str) -> Meta:
    """The example that a message proposes if the value cannot be used."""
    return Meta(extra={"example": example})


Texts: TypeAlias = Annotated[
    Any, _schema(anyOf=[{"type": "string"}, {"type": "array", "items": {"type": "string"}}])
]
Names: TypeAlias = Annotated[Any, _schema(type="array", items={"type": ["string", "number", "boolean"]})]
RewardValue: TypeAlias = Annotated[Any, _schema(type=["string", "object", "array"])]


class Entry(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A mapping of task.yaml. A key that the file leaves out is UNSET."""


class PriceEntry(Entry):
    """US dollars per million tokens, and for a picture."""

    input: Annotated[NonNegativeFloat, Meta(extra={"meaning": "US dollars per million input tokens"})]
    output: Annotated[NonNegativeFloat, Meta(extra={"meaning": "US dollars per million output tokens"})]
    cached_input: IfSet[NonNegativeFloat] = UNSET
    """The price of input tokens that the provider read from its cache; by default that of the others."""
    cache_write: IfSet[NonNegativeFloat] = UNSET
    """The price of input tokens that the provider wrote into its cache; by default that of the others."""
    cache_write_1h: IfSet[NonNegativeFloat] = UNSET
    """The price of input tokens that the provider wrote into its cache for an hour; by default that of `cache_write`."""
    picture: IfSet[NonNegativeFloat] = UNSET
    """US dollars for a picture of a model that paints; by default 0."""
    batch: IfSet[PositiveProbability] = UNSET
    """The share of these prices that a call in a batch costs, above 0 and at most 1; by default 0.5."""


class ModelEntry(Entry):
    """The address and the call options of the model of a role."""

    address: IfSet[Annotated[str, _like("provider/name, for example openai/gpt-4o-mini")]] = UNSET
    """provider/name, for example openai/gpt-4o-mini."""
    base_url: IfSet[Texts] = UNSET
    """Any OpenAI-compatible endpoint; a list names several servers of the same model."""
    temperature: IfSet[NonNegativeFloat] = UNSET
    """0 or more."""
    max_tokens: IfSet[PositiveInt] = UNSET
    """Bound on the output of a call."""
    stop: IfSet[Texts] = UNSET
    """A text or a list of texts at which the model stops."""
    thoughts: IfSet[bool] = UNSET
    """Whether rewards also read the model's thoughts."""
    concurrency: IfSet[PositiveInt] = UNSET
    """The largest number of calls in flight."""
    requests_per_minute: IfSet[PositiveFloat] = UNSET
    """Requests a minute at most."""
    timeout: IfSet[PositiveFloat] = UNSET
    """The time limit of a call in seconds."""
    price: IfSet[PriceEntry] = UNSET
    """US dollars per million tokens."""
    key_variable: IfSet[
        Annotated[str, _like("the name of an environment variable, such as TEAM_API_KEY")]
    ] = UNSET
    """The environment variable with the key, if it is not the provider's usual variable."""
    headers: IfSet[dict[str, Any]] = UNSET
    """HTTP headers; a value is {variable: NAME}, or a text in which $NAME stands for an environment variable."""
    extra_body: IfSet[dict[str, Any]] = UNSET
    """Merged into the body of every request."""
    top_p: IfSet[PositiveProbability] = UNSET
    """Above 0, at most 1."""
    reasoning_effort: IfSet[Annotated[str, _like("low, medium, high, or what the provider calls it")]] = UNSET
    """low, medium, high, or another value of the provider."""
    seed: IfSet[NonNegativeInt] = UNSET
    """Seed of the first sample of a request; the next samples count on."""
    stream: IfSet[bool] = UNSET
    """Whether to ask for a stream of events; by default, whet finds out whether the endpoint requires one."""
    device: IfSet[Annotated[str, _like("cpu, cuda, cuda:1 or mps")]] = UNSET
    """The device of a model at hf/PATH: cpu, cuda, cuda:1 or mps."""
    batch_size: IfSet[PositiveInt] = UNSET
    """The largest number of texts that a model at hf/PATH generates together."""


class PolicyEntry(Entry):
    """The model whose weights a method trains."""

    address: IfSet[Annotated[str, _like("hf/PATH, embedded/tiny or the folder of a checkpoint")]] = UNSET
    """hf/PATH, embedded/tiny or the folder of a checkpoint."""
    price_per_hour: IfSet[NonNegativeFloat] = UNSET
    """The cost of an hour of training in US dollars."""
    sampler: IfSet[Annotated[str, _like("vllm or http://localhost:8000")]] = UNSET
    """The sampler of the training's texts: transformers, vllm, or the address of a vLLM server."""


class ModelsEntry(Entry):
    """Roles, each with an address or a mapping."""

    task: IfSet[str | ModelEntry] = UNSET
    """The model that answers; its prompt is improved."""
    optimizer: IfSet[str | ModelEntry] = UNSET
    """The model that writes rewrites and critiques."""
    judge: IfSet[str | ModelEntry] = UNSET
    """The model that grades."""
    policy: IfSet[str | PolicyEntry] = UNSET
    """The model whose weights are trained."""
    transfer: IfSet[str | ModelEntry] = UNSET
    """Another model with which a comparison tries the found prompts."""
    second: IfSet[str | ModelEntry] = UNSET
    """The model that grades for the second opinion."""
    embedding: IfSet[str | ModelEntry] = UNSET
    """The model that compares texts by meaning."""


class BudgetEntry(Entry):
    """Upper limits on the whole run, retries and the sealed test included."""

    max_calls: IfSet[PositiveInt] = UNSET
    """Calls of all roles."""
    max_task_calls: IfSet[NonNegativeInt] = UNSET
    """Calls of the task model."""
    max_optimizer_calls: IfSet[NonNegativeInt] = UNSET
    """Calls of the optimizer model."""
    max_judge_calls: IfSet[NonNegativeInt] = UNSET
    """Calls of the judge."""
    max_tokens: IfSet[NonNegativeInt] = UNSET
    """Input and output tokens of all roles."""
    max_cost_usd: IfSet[NonNegativeFloat] = UNSET
    """US dollars, for models with a price."""
    max_cost: IfSet[NonNegativeFloat] = UNSET
    """Another name of max_cost_usd."""
    max_seconds: IfSet[NonNegativeFloat] = UNSET
    """Seconds of wall time over all sessions of the run."""


class SplitsEntry(Entry):
    """Shares of the rows, which sum to 1, and the seed of the split; or the column that names the split of each row."""

    train: IfSet[PositiveFloat] = UNSET
    validation: IfSet[PositiveFloat] = UNSET
    dev: IfSet[PositiveFloat] = UNSET
    """Another name of validation, as are valid and val."""
    valid: IfSet[PositiveFloat] = UNSET
    val: IfSet[PositiveFloat] = UNSET
    test: IfSet[PositiveFloat] = UNSET
    seed: IfSet[NonNegativeInt] = UNSET
    column: IfSet[Annotated[str, _like("the name of a column, or none")]] = UNSET
    """The column that marks rows as train, validation or test, by default the column called split; none: no such column."""


class ObjectiveEntry(Entry):
    """One of several objectives: a reward or a metric, with its direction, margin and bounds."""

    reward: IfSet[RewardValue] = UNSET
    metric: IfSet[Literal["input_tokens", "output_tokens", "cost_usd", "latency_ms", "prompt_tokens"]] = UNSET
    goal: IfSet[Literal["max", "min"]] = UNSET
    margin: IfSet[NonNegativeFloat] = UNSET
    """The largest loss in the mean that a promotion may bring."""
    at_most: IfSet[Annotated[Any, _schema(type=["number", "string"])]] = UNSET
    """A number, or a multiple of the baseline's mean such as 1.1x."""
    at_least: IfSet[Annotated[Any, _schema(type=["number", "string"])]] = UNSET
    """A number, or a multiple of the baseline's mean such as 0.9x."""
    weight: IfSet[PositiveFloat] = UNSET
    """Its weight in the single number that a search maximises."""


_DATASET = "data: {datasets: NAME, columns: {input: text, target: label}}"


class DatasetEntry(Entry):
    """A Hugging Face data set."""

    datasets: Annotated[str, _like(_DATASET)]
    """Its name, or a folder."""
    config: IfSet[Annotated[str, _like(_DATASET)]] = UNSET
    revision: IfSet[Annotated[str, _like(_DATASET)]] = UNSET
    split: IfSet[Annotated[str, _like(_DATASET)]] = UNSET
    columns: IfSet[dict[str, Annotated[str, _like(_DATASET)]]] = UNSET
    """The columns that fill the keys of a row: {input: text, target: label}."""
    rows: IfSet[PositiveInt] = UNSET
    """The number of rows to take."""
    seed: IfSet[NonNegativeInt] = UNSET
    """The seed of the choice of rows, if `rows` is given."""
    train: IfSet[str] = UNSET
    validation: IfSet[str] = UNSET
    test: IfSet[str] = UNSET


class SplitFilesEntry(Entry):
    """A file, a data set or a table for each split."""

    train: IfSet[Any] = UNSET
    validation: IfSet[Any] = UNSET
    dev: IfSet[Any] = UNSET
    """Another name of validation, as are valid and val."""
    valid: IfSet[Any] = UNSET
    val: IfSet[Any] = UNSET
    test: IfSet[Any] = UNSET


class FileEntry(Entry):
    """A table whose delimiter is named."""

    file: Annotated[str, _like("file: rows.csv")]
    """Its path."""
    delimiter: IfSet[Annotated[Any, _schema(type="string")]] = UNSET
    """One character, or tab."""


class ShapingEntry(Entry):
    """Bonuses for turns, which only a search on training rows sees; they come from one source."""

    potential: IfSet[Annotated[str, _like("potential: potential.py")]] = UNSET
    """A Python file with `potential(seen, row)`, a number from 0 to 1: a turn earns the increase of the potential."""
    questions: IfSet[Annotated[str, _like("questions: goal")]] = UNSET
    """The column with a goal: a turn earns the confidence of a model that can guess a further word of the goal (EAGER)."""
    human: IfSet[Annotated[str, _like("human: feedback.jsonl")]] = UNSET
    """A file to which another program appends a person's ratings of the turns during the run (GUIDE)."""
    watch: IfSet[Annotated[str, _like("watch: watch.jsonl")]] = UNSET
    """With `human`: the file to which the turns are appended for the person to see."""
    delay: IfSet[NonNegativeInt] = UNSET
    """With `human`: the number of turns after which a person reacts."""
    imitate: IfSet[bool] = UNSET
    """With `human`: whether a model of the person continues when the person stops."""
    weight: IfSet[PositiveFloat] = UNSET
    """The factor of the bonuses."""
    repay: IfSet[bool] = UNSET
    """Whether the last turn of the episode subtracts all bonuses, so that the best agent stays the best."""


class GameEntry(Entry):
    """A Gymnasium game."""

    gymnasium: Annotated[str, _like("gymnasium: FrozenLake-v1")]
    turns: PositiveInt
    """The largest number of turns in an episode."""
    options: IfSet[dict[str, Any]] = UNSET
    """The options of the game."""
    penalty: IfSet[NonNegativeFloat] = UNSET
    """The penalty for an answer that names no action."""
    strict: IfSet[bool] = UNSET
    """Whether an answer must consist only of an action."""
    episodes: IfSet[Annotated[int, Meta(ge=3)]] = UNSET
    """The number of rows to generate, instead of data."""
    seed: IfSet[NonNegativeInt] = UNSET
    """The seed of the first row."""
    shaping: IfSet[ShapingEntry] = UNSET
    """Bonuses for turns."""


class TextGameEntry(Entry):
    """A game whose observations and actions are texts, made by a Python file."""

    game: Annotated[str, _like("game: game.py")]
    """The Python file, with `make(row)`."""
    turns: PositiveInt
    """The most turns of an episode."""
    low: IfSet[float] = UNSET
    """The lowest sum of an episode's rewards that counts."""
    high: IfSet[float] = UNSET
    """The highest sum of an episode's rewards that counts."""
    scores: IfSet[Literal["turn", "total"]] = UNSET
    """Whether a step of the game brings the reward of the turn, or the total so far."""
    episodes: IfSet[Annotated[int, Meta(ge=3)]] = UNSET
    """Rows to make, in the place of data."""
    seed: IfSet[NonNegativeInt] = UNSET
    """Seed of the first of them."""
    shaping: IfSet[ShapingEntry] = UNSET
    """Bonuses for turns."""


class ToolsEntry(Entry):
    """Tools that the model may call: functions of a Python file, or those of an MCP server."""

    turns: PositiveInt
    """The largest number of turns in an episode."""
    seconds: IfSet[PositiveFloat] = UNSET
    """The time limit of a tool in seconds."""
    tools: IfSet[Annotated[str, _like("tools: tools.py")]] = UNSET
    """A Python file."""
    mcp: IfSet[Annotated[str | list[str], _like("mcp: [python, server.py]")]] = UNSET
    """The command or the address of an MCP server."""
    descriptions: IfSet[Literal["fixed", "editable"]] = UNSET
    """Whether a search may edit the descriptions of the tools."""
    shaping: IfSet[ShapingEntry] = UNSET
    """Bonuses for turns."""


class DialogueEntry(Entry):
    """A conversation with a simulated or scripted user."""

    turns: PositiveInt
    """The largest number of the model's answers in a conversation."""
    user: IfSet[Annotated[str, _like("user: user.md")]] = UNSET
    """A text file that describes the simulated user; the judge's model plays it."""
    script: IfSet[Annotated[str, _like("script: replies")]] = UNSET
    """A column with the user's messages, instead of a simulated user."""
    answer: IfSet[Literal["conversation", "last"]] = UNSET
    """The text that the reward grades."""
    shaping: IfSet[ShapingEntry] = UNSET
    """Bonuses for turns."""


class ProgramEntry(Entry):
    """A program that asks with several named prompts."""

    file: IfSet[str] = UNSET
    """The Python file of the program."""
    function: IfSet[Any] = UNSET
    """The function, in Python."""
    calls: IfSet[PositiveInt] = UNSET
    """Calls that one row may make at most."""
    seconds: IfSet[PositiveFloat] = UNSET
    """The longest time of one row, in seconds."""
    command: IfSet[Annotated[str | list[str], _like("command: [python, agent.py]")]] = UNSET
    """In the place of a file: the command of an agent, which reads its prompts from files."""
    workspace: IfSet[str] = UNSET
    """With `command`: a folder that is copied for every row."""
    documents: IfSet[dict[str, str]] = UNSET
    """With `command`: where each prompt is written, below the workspace; by default, as the files under `prompts` are called."""
    answer: IfSet[str] = UNSET
    """With `command`: the file with its answer; by default, what it prints."""
    check: IfSet[Annotated[str | list[str], _like("check: [python, -m, pytest, -q]")]] = UNSET
    """With `command`: what runs after it, such as tests; the reward command_check reads its exit code."""
    protect: IfSet[list[str]] = UNSET
    """With `check`: files and folders of the workspace that are restored before it runs, such as the tests."""


class TaskFile(Entry):
    """A task: what is asked, with which rows, and how answers are graded. Paths are relative to the folder of task.yaml."""

    name: Annotated[str, _like("name: my-task")]
    """Also names the run's folder: no /, \\ or control characters, no dot in front, at most 100 characters and 180 bytes."""
    prompt: IfSet[Annotated[str, _like("prompt: prompt.md")]] = UNSET
    """The prompt file."""
    data: IfSet[Annotated[Any, _schema(type="string")]] = UNSET
    """A data file, a file for each split, a data set, or a table with its delimiter."""
    reward: IfSet[RewardValue] = UNSET
    """A name, a name with options, reward.py, or a weighted list."""
    description: IfSet[Annotated[str, _like("a sentence")]] = UNSET
    """A sentence for the models that write rewrites."""
    labels: IfSet[Names] = UNSET
    """At least two different labels: makes it a classification task."""
    verbalizer: IfSet[dict[str, str]] = UNSET
    """The word that stands for a label."""
    environment: IfSet[Annotated[Any, _schema(type="object")]] = UNSET
    """A game, tools, or an environment of another package: rollouts of several turns."""
    models: IfSet[ModelsEntry] = UNSET
    """Roles, each with an address or a mapping."""
    splits: IfSet[SplitsEntry] = UNSET
    """Shares of train, validation and test, which sum to 1."""
    budget: IfSet[BudgetEntry] = UNSET
    """Upper limits on calls, tokens, dollars and seconds."""
    method: IfSet[Annotated[str, _like("a name from `whet methods`")]] = UNSET
    """A name from `whet methods`."""
    settings: IfSet[dict[str, Any]] = UNSET
    """Settings of that method."""
    second_opinion: IfSet[RewardValue] = UNSET
    """Another reward, which must agree before anything is promoted."""
    alpha: IfSet[float] = UNSET
    """Chance of a false promotion over all openings of the test rows; above 0, below 0.5."""
    alpha_policy: IfSet[Literal["strict", "fdr"]] = UNSET
    """strict: alpha bounds the chance of any false promotion; fdr: the share of false ones among the promotions."""
    minimum_effect: IfSet[float] = UNSET
    """The difference of mean rewards that a promotion must exceed."""
    group: IfSet[Annotated[str, _like("a key such as group: user")]] = UNSET
    """A key of the rows: rows with the same value stay in one split and count as one cluster."""
    env: IfSet[Names] = UNSET
    """Environment variables that the folder's code sees."""
    reward_timeout: IfSet[PositiveFloat] = UNSET
    """Seconds that a reward program may take for one answer."""
    program: IfSet[Annotated[Any, _schema(type=["string", "object"])]] = UNSET
    """A Python file that asks with several named prompts."""
    prompts: IfSet[dict[str, str]] = UNSET
    """With `program`: the files of its prompts by name."""
    region: IfSet[Annotated[str, _like("region: round_robin")]] = UNSET
    """The editable region that a search edits: round_robin, blame, all, a name, headings, or a heading."""
    objectives: IfSet[dict[str, ObjectiveEntry]] = UNSET
    """Several objectives with directions and bounds."""
    longest: IfSet[PositiveInt] = UNSET
    """Tokens that the prompt may have at most."""
    tasks: IfSet[Names] = UNSET
    """Task folders that share the prompt: each brings its rows and its reward."""
    aggregate: IfSet[Literal["mean", "worst"]] = UNSET
    """With several tasks or task models: what a prompt is worth, the mean over cases or the worst of them."""


COMPONENTS: Mapping[str, tuple[type[Entry], ...]] = {
    "data": (DatasetEntry, FileEntry, SplitFilesEntry),
    "environment": (GameEntry, TextGameEntry, ToolsEntry, DialogueEntry),
    "program": (ProgramEntry,),
}
"""The mappings that a key takes beside other values."""
