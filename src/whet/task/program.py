"""What `program:`, `prompts:` and `region:` in task.yaml say."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from whet.environments.program import CALLS, SECONDS, Program, load_user_program, program_of
from whet.errors import did_you_mean
from whet.prompt import Prompt
from whet.task.prompts import load_prompt
from whet.task.spec import REGION_POLICIES, ROUND_ROBIN
from whet.task.tree import Node

EXAMPLE = "program: program.py with prompts: {plan: plan.md, answer: answer.md}"


def load_prompts(keys: Mapping[str, Node], folder: Path) -> Prompt:
    """The files under `prompts` as one prompt. Raises UsageError with file and line."""
    node = keys["prompts"]
    if "prompt" in keys:
        node.refuse("the task has `prompt` and `prompts`. Keep one.")
    names = node.mapping("`prompts`")
    if not names:
        node.refuse(f"`prompts` is empty. Write {EXAMPLE}.")
    files = {name: folder / item.text(f"prompts: {name}", f"{name}.md") for name, item in names.items()}
    return Prompt.of_parts({name: load_prompt(path, names[name].where) for name, path in files.items()})


def read_program(keys: Mapping[str, Node], folder: Path, prompt: Prompt) -> Program | None:
    """The program of a task; None without one. Raises UsageError for prompts without a program, or the other way round."""
    node = keys.get("program")
    if node is None:
        if prompt.parts:
            next(iter(keys.values())).refuse(
                f"several prompts ({', '.join(prompt.parts)}) need a program that uses them. Write {EXAMPLE}."
            )
        return None
    if not prompt.parts:
        node.refuse(f"a program asks with named prompts, and there is one without a name. Write {EXAMPLE}.")
    if "environment" in keys:
        keys["environment"].refuse("a task with a `program` has no `environment`. Remove one of the two.")
    calls, seconds, named = CALLS, SECONDS, node
    if isinstance(node.value, dict):
        own = node.mapping("`program`", ("file", "function", "calls", "seconds"))
        calls = own["calls"].integer("program: calls", 1) if "calls" in own else calls
        seconds = own["seconds"].number("program: seconds", 0, above=True) if "seconds" in own else seconds
        if not own.keys() & {"file", "function"}:
            node.refuse("`program` names no file. Write program: {file: program.py}.")
        named = own.get("file") or own["function"]
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
