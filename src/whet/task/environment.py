"""The parts of a task beyond one question and one answer: `environment:`, `program:`, `prompts:` and `region:`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from whet._util import plugins
from whet.environments import Return, RewardingWorld, World
from whet.environments.dialogue import DialogueWorld, load_dialogue
from whet.environments.games import game_world
from whet.environments.harness import Harness, check_documents
from whet.environments.mcp_tools import load_mcp_tools
from whet.environments.plugin import load_world
from whet.environments.program import CALLS, Program, load_user_program, program_of
from whet.environments.program import SECONDS as PROGRAM_SECONDS
from whet.environments.shaping import Potential, Shaping, TurnBonus, check_shaping
from whet.environments.text_games import FUNCTION, TextGame
from whet.environments.tools import SECONDS, ToolWorld, describe_tools, load_tools
from whet.environments.turn_bonuses import FeedbackFile, GoalQuestions, HumanSignal
from whet.errors import UsageError, did_you_mean, near_word
from whet.prompt import Prompt
from whet.rewards import RewardFunction
from whet.rewards.functions import function_of_setting
from whet.rewards.program import program_digest
from whet.task.decode import decode, decode_field, field_names, set_fields
from whet.task.prompts import fence_headings, load_prompt
from whet.task.rows import SourceRow
from whet.task.spec import HEADINGS, REGION_POLICIES, ROUND_ROBIN, read_label_words
from whet.task.task_file import (
    DialogueEntry,
    GameEntry,
    ProgramEntry,
    ShapingEntry,
    TextGameEntry,
    ToolsEntry,
)
from whet.task.tree import Node
from whet.types import Example
from whet_client.prompt.slots import canonical_name

_ENTRIES = (GameEntry, TextGameEntry, ToolsEntry, DialogueEntry)
NAMES = tuple(dict.fromkeys(name for entry in _ENTRIES for name in field_names(entry)))
KINDS = ("gymnasium", "game", "tools", "mcp", "user", "script")
EXAMPLE = "environment: {gymnasium: FrozenLake-v1, turns: 20}, {tools: tools.py, turns: 5} or {user: user.md, turns: 6}"
RETURN = "return"
BONUSES = ("potential", "questions", "human")
PROGRAM_EXAMPLE = "program: program.py with prompts: {plan: plan.md, answer: answer.md}"


@dataclass(frozen=True)
class TaskEnvironment:
    """The world of a task as task.yaml describes it. `episodes` rows with seeds from `seed` on can be generated."""

    world: World
    node: Node
    episodes: int | None = None
    seed: int = 0
    shaping: Shaping | None = None

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
                if self.shaping is not None:
                    self.shaping.bonus.check(example)
            except UsageError as error:
                self.node.refuse(str(error))

    def content(self) -> Any:
        """The facts that a result depends on, as JSON: the description, and the hash of the world's file."""
        own = (self.world.path,) if isinstance(self.world, ToolWorld | DialogueWorld) else ()
        own = (self.world.file,) if isinstance(self.world, TextGame) else own
        paths = [path for path in (*own, *plugins.source_files(self.world)) if path is not None]
        digest = program_digest(paths[0]) if paths else None
        shaped = None if self.shaping is None else self.shaping.path
        return [self.node.plain(), self.world.name, digest, *([program_digest(shaped)] if shaped else [])]


def read_environment(keys: Mapping[str, Node], folder: Path) -> TaskEnvironment | None:
    """The world that the keys of task.yaml describe, with its bonuses; None without `environment`.

    Loads the files that they name. Raises UsageError (file:line) for anything that cannot be used, a missing package
    included.
    """
    environment = _read_world(keys, folder)
    node = None if environment is None else environment.node.value.get("shaping")
    return environment if environment is None or node is None else _shape(environment, node, folder)


def _shape(environment: TaskEnvironment, node: Node, folder: Path) -> TaskEnvironment:
    """`shaping: {potential: FILE}`, `{questions: COLUMN}` or `{human: FILE}`, with `weight` and `repay`."""
    own = set_fields(decode(node, ShapingEntry, "`shaping`"))
    sources = [name for name in BONUSES if name in own]
    if len(sources) != 1:
        node.refuse(
            f"`shaping` names {' and '.join(sources) or 'no source of bonuses'}. Write one of potential: potential.py, "
            "questions: COLUMN or human: feedback.jsonl."
        )
    if sources != ["human"] and (alone := [key for key in ("watch", "delay", "imitate") if key in own]):
        node.refuse(f"`{alone[0]}` belongs to `human`. Remove it.")
    path: Path | None = None
    bonus: TurnBonus
    if sources == ["potential"]:
        path = folder / own["potential"]
        bonus = Potential(function_of_setting(str(path), "potential", ("seen", "row")))
    elif sources == ["questions"]:
        bonus = GoalQuestions(own["questions"])
    else:
        watch = folder / own["watch"] if "watch" in own else None
        file = FeedbackFile(folder / own["human"], watch)
        bonus = HumanSignal(file, own.get("delay", 0), own.get("imitate", True))
    shaping = Shaping(
        bonus,
        own.get("weight", 1.0),
        own.get("repay", sources != ["human"] or environment.world.graded),
        path,
    )
    try:
        check_shaping(shaping, environment.world, ())
    except UsageError as error:
        node.refuse(str(error.args[0]))
    return replace(environment, shaping=shaping)


def _read_world(keys: Mapping[str, Node], folder: Path) -> TaskEnvironment | None:
    """The world without its bonuses."""
    node, labels = keys.get("environment"), read_label_words(keys.get("labels"), keys.get("verbalizer"))
    if node is None:
        return None
    if not isinstance(node.value, dict):
        node.refuse(f"`environment` is a mapping; this is {node.kind()}. Write {EXAMPLE}.")
    kinds = [kind for kind in KINDS if kind in node.value]
    brought = (
        plugins.find_plugin(plugins.ENVIRONMENTS, key, NAMES) for key in node.value if key not in NAMES
    )
    plugin = None if kinds else next((plugin for plugin in brought if plugin is not None), None)
    if plugin is not None:
        return _of_plugin(plugin, node, labels)
    if len(kinds) != 1:
        named = " and ".join(kinds) if kinds else _unknown_kind(node)
        node.refuse(f"`environment` names {named}. Write {EXAMPLE}.")
    if kinds[0] in ("tools", "mcp"):
        return _tools(node, folder)
    if kinds[0] in ("user", "script"):
        return _dialogue(node, folder)
    if labels:
        node.refuse("a game is played by actions, and `labels` are answers. Remove `labels`.")
    return _text_game(node, folder) if kinds[0] == "game" else _game(node)


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
    turns, own = _turns(node, (name, "turns", "shaping")), node.value[name]
    options = {} if own.value is None else own.mapping(f"environment: {name}")
    try:
        world = load_world(plugin, turns, {key: value.plain() for key, value in options.items()})
    except UsageError as error:
        own.refuse(str(error))
    if labels and not world.graded:
        node.refuse(f"{name} is played by actions, and `labels` are answers. Remove `labels`.")
    return TaskEnvironment(world, node)


def _unknown_kind(node: Node) -> str:
    """The message about an environment that names no kind: its keys, and the nearest known word."""
    words = ", ".join(node.value) or "nothing"
    known = plugins.plugin_names(plugins.ENVIRONMENTS, NAMES)
    near = [hint for key in node.value if (hint := near_word(key, known))]
    return f"none of {', '.join(KINDS)}, but {words}." + (near[0] if near else "")


def _tools(node: Node, folder: Path) -> TaskEnvironment:
    """`environment: {tools: tools.py, turns: N}` or `{mcp: COMMAND, turns: N}`."""
    _turns(node, field_names(ToolsEntry))
    entry = decode(node, ToolsEntry, "`environment`")
    own = set_fields(entry)
    seconds, editable = own.get("seconds", SECONDS), own.get("descriptions") == "editable"
    if "tools" in own:
        path: Path | None = folder / own["tools"]
        tools = load_tools(folder / own["tools"], node.value["tools"].where)
    else:
        path, words = None, _words_of(node.value["mcp"], own["mcp"])
        words = (sys.executable, *words[1:]) if words[0] in ("python", "python3") else words
        try:
            tools = load_mcp_tools(words, folder.absolute(), seconds)
        except UsageError as error:
            node.value["mcp"].refuse(str(error.args[0]))
    return TaskEnvironment(ToolWorld(tools, entry.turns, path, seconds, in_prompt=editable), node)


def prompt_with_tools(prompt: Prompt, environment: TaskEnvironment | None) -> Prompt:
    """The prompt as a search may edit it: with what tools are said to do, where this is editable. Raises UsageError."""
    world = None if environment is None else environment.world
    if environment is None or not isinstance(world, ToolWorld) or not world.in_prompt:
        return prompt
    try:
        return describe_tools(prompt, world.tools)
    except UsageError as error:
        environment.node.refuse(str(error.args[0]))


def _dialogue(node: Node, folder: Path) -> TaskEnvironment:
    """`environment: {user: user.md, turns: N}` or `{script: COLUMN, turns: N}`."""
    _turns(node, field_names(DialogueEntry))
    entry = decode(node, DialogueEntry, "`environment`")
    try:
        return TaskEnvironment(load_dialogue(folder, set_fields(entry), entry.turns), node)
    except UsageError as error:
        node.refuse(str(error.args[0]))


def _text_game(node: Node, folder: Path) -> TaskEnvironment:
    """`environment: {game: game.py, turns: N, episodes: N}`."""
    _turns(node, field_names(TextGameEntry))
    entry = decode(node, TextGameEntry, "`environment`")
    own = set_fields(entry)
    options = {name: own[name] for name in ("low", "high", "scores") if name in own}
    path = folder / entry.game
    try:
        function_of_setting(str(path), FUNCTION, ("row",))
        world = TextGame(path, entry.turns, **options)
    except UsageError as error:
        node.value["game"].refuse(str(error))
    return TaskEnvironment(world, node, own.get("episodes"), own.get("seed", 0))


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
        if "command" in own:
            return _harness(node, own, keys, folder, prompt)
        if brought := [key for key in ("workspace", "documents", "answer", "check", "protect") if key in own]:
            node.value[brought[0]].refuse(
                f"`{brought[0]}` belongs to a `command`. Write program: {{command: [python, agent.py]}}."
            )
        calls, seconds = own.get("calls", calls), own.get("seconds", seconds)
        if not own.keys() & {"file", "function"}:
            node.refuse("`program` names no file. Write program: {file: program.py}.")
        named = node.value["file" if "file" in own else "function"]
    if callable(named.value):
        return program_of(named.value, named.where, calls, seconds)
    file = named.text("`program`", "program: program.py")
    return load_user_program(folder / file, named.where, calls, seconds, file)


def _harness(
    node: Node, own: Mapping[str, Any], keys: Mapping[str, Node], folder: Path, prompt: Prompt
) -> Program:
    """A command that is a program."""
    for key in ("file", "function"):
        if key in own:
            node.value[key].refuse(f"`program` has a `command` and a `{key}`. Keep one.")
    places = (
        {} if "prompts" not in keys else {n: str(item.value) for n, item in keys["prompts"].value.items()}
    )
    words = {key: _words_of(node.value[key], own[key]) for key in ("command", "check") if key in own}
    rest = {key: own[key] for key in ("workspace", "answer", "calls", "seconds") if key in own}
    if "protect" in own:
        rest["protect"] = tuple(own["protect"])
    documents = own.get("documents", places)
    try:
        check_documents(prompt, documents)
        return Harness(
            words["command"], documents, folder.absolute(), check=words.get("check"), **rest
        ).program()
    except UsageError as error:
        node.refuse(str(error.args[0]))


def check_command_slots(node: Node, program: Program, examples: Sequence[Example]) -> None:
    """Refuse a row that does not fill a slot of the command."""
    for example in examples if program.slots else ():
        columns = {canonical_name(name) for name in (*example.row.keys() - {"target"}, *example.values)}
        for name in sorted(program.slots - columns):
            node.refuse(
                f"nothing fills the slot {{{{{name}}}}} of the command for {example.place}.{did_you_mean(name, columns)}"
            )


def _words_of(node: Node, command: str | Sequence[str]) -> tuple[str, ...]:
    """The words of a command that is a text, as a shell would read it, or a list."""
    try:
        words = tuple(shlex.split(command) if isinstance(command, str) else command)
    except ValueError as error:
        node.refuse(f"the command cannot be read: {error}. Write a list of its words.")
    if not words:
        node.refuse("the command is empty. Write a list of its words, such as [python, agent.py].")
    return words


def read_region(node: Node | None, prompt: Prompt) -> tuple[Prompt, str]:
    """The prompt, and which of its regions is edited: a policy, or the name of a region. Where headings are named, the prompt has
    a fence around the text below them."""
    if node is None:
        return prompt, ROUND_ROBIN
    region = node.text("`region`", "region: round_robin").strip()
    if region == HEADINGS or region.startswith("#"):
        try:
            return fence_headings(prompt, None if region == HEADINGS else region)
        except UsageError as error:
            node.refuse(str(error.args[0]))
    names = (*REGION_POLICIES, *(r.name for r in prompt.regions))
    if region not in names:
        node.refuse(f'the prompt has no region "{region}".{did_you_mean(region, names)}')
    return prompt, region
