"""What a task is made of beside one question and one answer: `environment:`, `program:`, `prompts:` and `region:`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whet._util import plugins
from whet.environments import Return, RewardingWorld, World
from whet.environments.games import game_world
from whet.environments.plugin import load_world
from whet.environments.program import CALLS, Program, load_user_program, program_of
from whet.environments.program import SECONDS as PROGRAM_SECONDS
from whet.environments.tools import SECONDS, ToolWorld, load_tools
from whet.errors import UsageError, did_you_mean, near_word
from whet.prompt import Prompt
from whet.rewards import RewardFunction
from whet.rewards.program import program_digest
from whet.task.decode import decode, decode_field, field_names, set_fields
from whet.task.prompts import load_prompt
from whet.task.rows import SourceRow
from whet.task.spec import REGION_POLICIES, ROUND_ROBIN, read_labels
from whet.task.task_file import GameEntry, ProgramEntry, ToolsEntry
from whet.task.tree import Node
from whet.types import Example

NAMES = (*field_names(GameEntry), *field_names(ToolsEntry))
EXAMPLE = "environment: {gymnasium: FrozenLake-v1, turns: 20} or environment: {tools: tools.py, turns: 5}"
RETURN = "return"
PROGRAM_EXAMPLE = "program: program.py with prompts: {plan: plan.md, answer: answer.md}"


@dataclass(frozen=True)
class TaskEnvironment:
    """The world of a task as task.yaml describes it. `episodes` rows with seeds from `seed` on can be generated."""

    world: World
    node: Node
    episodes: int | None = None
    seed: int = 0

    def brings(self, key: str) -> bool:
        """Whether the task may do without this key: for the reward of a game, and for rows made with `episodes`."""
        return (key == "reward" and not self.world.graded) or (key == "data" and bool(self.episodes))

    def rows(self) -> list[SourceRow]:
        """One row for each seed."""
        seeds = range(self.seed, self.seed + (self.episodes or 0))
        return [
            SourceRow({"id": f"episode-{seed}", "input": f"episode {seed}", "seed": seed}, self.node.where)
            for seed in seeds
        ]

    def reward(self, node: Node | None) -> RewardFunction | None:
        """The world's own reward where task.yaml asks for it or names none; None when it names another one."""
        if self.world.graded or not isinstance(self.world, RewardingWorld):
            return None
        low, high = self.world.range
        if node is None or node.value == RETURN:
            return Return(low, high)
        if not isinstance(node.value, dict) or RETURN not in node.value:
            return None
        bounds = node.mapping("`reward`", (RETURN,))[RETURN].mapping("the reward return", ("low", "high"))
        low = bounds["low"].number("return: low") if "low" in bounds else low
        high = bounds["high"].number("return: high") if "high" in bounds else high
        if not low < high:
            node.refuse(f"the range of the return needs low < high; this is low={low:g}, high={high:g}.")
        return Return(low, high)

    def check(self, examples: Sequence[Example]) -> None:
        """Refuse rows that the world cannot begin an episode with."""
        for example in examples:
            try:
                self.world.check(example)
            except UsageError as error:
                self.node.refuse(str(error))

    def content(self) -> Any:
        """What a result depends on, as JSON: the description, and the hash of the file that the world comes from."""
        own = (self.world.path,) if isinstance(self.world, ToolWorld) else ()
        paths = [path for path in (*own, *plugins.source_files(self.world)) if path is not None]
        digest = program_digest(paths[0]) if paths else None
        return [self.node.plain(), self.world.name, digest]


def read_environment(keys: Mapping[str, Node], folder: Path) -> TaskEnvironment | None:
    """The world that the keys of task.yaml describe; None without `environment`.

    Loads the file of tools. Raises UsageError (file:line) for anything that cannot be used, a missing package
    included.
    """
    node, labels = keys.get("environment"), read_labels(keys.get("labels"), keys.get("verbalizer"))
    if node is None:
        return None
    if not isinstance(node.value, dict):
        node.refuse(f"`environment` is a mapping; this is {node.kind()}. Write {EXAMPLE}.")
    kinds = [kind for kind in ("gymnasium", "tools") if kind in node.value]
    brought = (
        plugins.find_plugin(plugins.ENVIRONMENTS, key, NAMES) for key in node.value if key not in NAMES
    )
    plugin = None if kinds else next((plugin for plugin in brought if plugin is not None), None)
    if plugin is not None:
        return _of_plugin(plugin, node, labels)
    if len(kinds) != 1:
        named = "both gymnasium and tools" if kinds else _unknown_kind(node)
        node.refuse(f"`environment` names {named}. Write {EXAMPLE}.")
    if kinds == ["tools"]:
        _turns(node, field_names(ToolsEntry))
        entry = decode(node, ToolsEntry, "`environment`")
        path = folder / entry.tools
        tools = load_tools(path, node.value["tools"].where)
        seconds = set_fields(entry).get("seconds", SECONDS)
        return TaskEnvironment(ToolWorld(tools, entry.turns, path, seconds), node)
    if labels:
        node.refuse("a game is played by actions, and `labels` are answers. Remove `labels`.")
    return _game(node)


def _turns(node: Node, known: Sequence[str]) -> int:
    """The most turns of an episode of an environment with the `known` keys."""
    keys = node.mapping("`environment`", known)
    if "turns" not in keys:
        node.refuse("`environment` has no `turns`, the most turns of an episode. Add turns: 20.")
    turns: int = decode_field(keys["turns"], ToolsEntry, "turns", "environment: turns")
    return turns


def _of_plugin(plugin: plugins.Plugin, node: Node, labels: Mapping[str, str]) -> TaskEnvironment:
    """`environment: {NAME: {options}, turns: N}` with the name of a plugin."""
    name = plugin.name
    turns, own = _turns(node, (name, "turns")), node.value[name]
    options = {} if own.value is None else own.mapping(f"environment: {name}")
    try:
        world = load_world(plugin, turns, {key: value.plain() for key, value in options.items()})
    except UsageError as error:
        own.refuse(str(error))
    if labels and not world.graded:
        node.refuse(f"{name} is played by actions, and `labels` are answers. Remove `labels`.")
    return TaskEnvironment(world, node)


def _unknown_kind(node: Node) -> str:
    """What to say of an environment that names no kind: its keys, and the nearest known word."""
    words = ", ".join(node.value) or "nothing"
    known = plugins.plugin_names(plugins.ENVIRONMENTS, NAMES)
    near = [hint for key in node.value if (hint := near_word(key, known))]
    return f"neither gymnasium nor tools, but {words}." + (near[0] if near else "")


def _game(node: Node) -> TaskEnvironment:
    _turns(node, field_names(GameEntry))
    entry = decode(node, GameEntry, "`environment`")
    own = set_fields(entry)
    how = (own.get("options", {}), own.get("penalty", 0.0), own.get("strict", False))
    try:
        world = game_world(entry.gymnasium, entry.turns, *how)
    except UsageError as error:
        node.value["gymnasium"].refuse(str(error))
    return TaskEnvironment(world, node, own.get("episodes"), own.get("seed", 0))


def load_prompts(keys: Mapping[str, Node], folder: Path) -> Prompt:
    """The files under `prompts` as one prompt. Raises UsageError with file and line."""
    node = keys["prompts"]
    if "prompt" in keys:
        node.refuse("the task has `prompt` and `prompts`. Keep one.")
    names = node.mapping("`prompts`")
    if not names:
        node.refuse(f"`prompts` is empty. Write {PROGRAM_EXAMPLE}.")
    files = {name: folder / item.text(f"prompts: {name}", f"{name}.md") for name, item in names.items()}
    return Prompt.of_parts({name: load_prompt(path, names[name].where) for name, path in files.items()})


def read_program(keys: Mapping[str, Node], folder: Path, prompt: Prompt) -> Program | None:
    """The program of a task; None without one. Raises UsageError for prompts without a program, or the other way round."""
    node = keys.get("program")
    if node is None:
        if prompt.parts:
            next(iter(keys.values())).refuse(
                f"several prompts ({', '.join(prompt.parts)}) need a program that uses them. Write {PROGRAM_EXAMPLE}."
            )
        return None
    if not prompt.parts:
        node.refuse(
            f"a program asks with named prompts, and there is one without a name. Write {PROGRAM_EXAMPLE}."
        )

    if "environment" in keys:
        keys["environment"].refuse("a task with a `program` has no `environment`. Remove one of the two.")
    calls, seconds, named = CALLS, PROGRAM_SECONDS, node
    if isinstance(node.value, dict):
        own = set_fields(decode(node, ProgramEntry, "`program`"))
        calls, seconds = own.get("calls", calls), own.get("seconds", seconds)
        if not own.keys() & {"file", "function"}:
            node.refuse("`program` names no file. Write program: {file: program.py}.")
        named = node.value["file" if "file" in own else "function"]
    if callable(named.value):
        return program_of(named.value, named.where, calls, seconds)
    file = named.text("`program`", "program: program.py")
    return load_user_program(folder / file, named.where, calls, seconds, file)


def read_region(node: Node | None, prompt: Prompt) -> str:
    """Which region is edited: a policy, or the name of a region."""
    if node is None:
        return ROUND_ROBIN
    region = node.text("`region`", "region: round_robin").strip()
    names = (*REGION_POLICIES, *(r.name for r in prompt.regions))
    if region not in names:
        node.refuse(f'the prompt has no region "{region}".{did_you_mean(region, names)}')
    return region
