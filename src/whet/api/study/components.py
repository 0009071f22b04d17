"""A prompt as named parts: what a part says, the layouts that give parts their places, and the files that list parts."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, get_args

from msgspec import UNSET, Meta, Struct

from whet.environments.environment import Environment
from whet.errors import EditRejected, UsageError, did_you_mean, parameter
from whet.prompt import Prompt
from whet.search.demonstrations import HEAD, label_rows
from whet.stats import MOST_FACTORS
from whet.task.decode import decode
from whet.task.task_file import IfSet
from whet.task.tree import Node, parse_yaml
from whet.types import Example

Kind: TypeAlias = Literal[
    "role", "line", "steps", "chain_of_thought", "constraints", "output_format", "examples"
]
KINDS: tuple[Kind, ...] = get_args(Kind)
TASK = "task"
"""The text of the prompt itself, which every layout holds too."""
LAYOUT = "layout"
"""The name of the factor where two layouts are compared."""
READY = ("folklore", "parts")
"""The component files that are shipped."""

LAYOUTS: Mapping[str, Sequence[tuple[str, Sequence[str]]]] = {
    "plain": (
        ("", ("role", TASK, "line", "steps", "chain_of_thought", "constraints", "output_format", "examples")),
    ),
    "langgpt": (
        ("Role", ("role",)),
        ("Background", ("line",)),
        ("Goals", (TASK,)),
        ("Constraints", ("constraints",)),
        ("Workflow", ("steps", "chain_of_thought")),
        ("Output format", ("output_format",)),
        ("Examples", ("examples",)),
    ),
    "risen": (
        ("Role", ("role",)),
        ("Instructions", (TASK, "line")),
        ("Steps", ("steps", "chain_of_thought")),
        ("End goal", ("output_format", "examples")),
        ("Narrowing", ("constraints",)),
    ),
    "wiser": (
        ("Who", ("role",)),
        ("Instructions", (TASK, "line", "constraints", "output_format")),
        ("Subtasks", ("steps",)),
        ("Examples", ("examples",)),
        ("Review", ("chain_of_thought",)),
    ),
}
"""Sections in order, each with its heading and the kinds of parts in it: the modules of LangGPT (Wang et al. 2024,
arXiv:2402.16929), and the two schemes of practitioners RISEN (role, instructions, steps, end goal, narrowing) and WISER (who,
instructions, subtasks, examples, review). A section without parts is left out."""


@dataclass(frozen=True, slots=True)
class Part:
    """A named part of a prompt, with (`text`) and without (`instead`, usually nothing).

    `kind` decides where a layout puts it. `examples`: the text is so many demonstrations, drawn from the training rows.
    """

    name: str
    text: str = ""
    kind: Kind = "line"
    instead: str = ""
    examples: int = 0


class PartEntry(Struct, forbid_unknown_fields=True, kw_only=True):
    """A part in a component file."""

    name: Annotated[str, Meta(extra={"meaning": "a short name, such as role"})]
    """The name of the part in tables."""
    text: IfSet[str] = UNSET
    """The text of the part."""
    kind: IfSet[Kind] = UNSET
    """The kind of place in a layout: by default the name, where the name is a kind, else `line`."""
    instead: IfSet[str] = UNSET
    """The text that replaces the part when it is left out."""
    examples: IfSet[Annotated[int, Meta(ge=1)]] = UNSET
    """Instead of a text: demonstrations drawn from the training rows."""


class ComponentsFile(Struct, forbid_unknown_fields=True, kw_only=True):
    """A component file: the parts of a study, and the layout or two layouts to compare."""

    parts: list[PartEntry]
    layout: IfSet[str | list[str]] = UNSET


@dataclass(frozen=True, slots=True)
class Components:
    """The parts of a study and its layout; with two layouts, which of them is used is a factor too."""

    parts: tuple[Part, ...]
    layouts: tuple[str, ...] = ("plain",)

    @property
    def factors(self) -> tuple[str, ...]:
        """The names of what is varied."""
        return (*(part.name for part in self.parts), *((LAYOUT,) if len(self.layouts) > 1 else ()))

    def assemble(self, base: str, levels: Sequence[bool]) -> str:
        """The text of a prompt: `base` and the parts, each with or without, in the layout that the levels mean."""
        layout = self.layouts[-1 if len(levels) > len(self.parts) and levels[-1] else 0]
        core = base.strip()
        before, after = (base[: base.find(core)], base[base.find(core) + len(core) :]) if core else ("", base)
        texts: dict[str, list[str]] = {TASK: [core]}
        for part, on in zip(self.parts, levels, strict=False):
            texts.setdefault(part.kind, []).append((part.text if on else part.instead).strip())
        sections = []
        for heading, kinds in LAYOUTS[layout]:
            inside = "\n\n".join(text for kind in kinds for text in texts.get(kind, ()) if text)
            if inside:
                sections.append(f"## {heading}\n{inside}" if heading else inside)
        return before + "\n\n".join(sections) + after


def read_components(source: str | Path | Sequence[Part | Mapping[str, Any]]) -> Components:
    """The components that a name of `READY`, a file, or a sequence of parts means.

    Raises UsageError, with file and line, for a file that cannot be read, an unknown key, kind or layout, a name twice, a part
    without a text, and for no part or more than a design takes.
    """
    if isinstance(source, str) and source in READY:
        root = parse_yaml(Path(str(files("whet.api.study").joinpath(f"{source}.yaml"))))
    elif isinstance(source, str | Path):
        if isinstance(source, str) and not Path(source).exists():
            raise UsageError(
                f"{parameter('components', source)}: there is no such file. The component files of "
                f"whet are {' and '.join(READY)}.{did_you_mean(source, READY)}"
            )
        root = parse_yaml(Path(source))
    else:
        parts = [_as_mapping(part) for part in source]
        root = Node.of({"parts": parts}, "components")
    read = decode(root, ComponentsFile, "the component file")
    parts_node = root.mapping("the component file")["parts"]
    nodes = parts_node.sequence("`parts`", "a list of parts")
    layouts = (read.layout,) if isinstance(read.layout, str) else tuple(read.layout or ("plain",))
    for layout in layouts:
        if layout not in LAYOUTS:
            root.refuse(
                f'There is no layout "{layout}". Layouts are {", ".join(LAYOUTS)}.{did_you_mean(layout, LAYOUTS)}'
            )
    if len(layouts) > 2 or len(set(layouts)) < len(layouts):
        root.refuse(
            f"`layout` is one layout, or two different ones to compare; these are {', '.join(layouts)}."
        )
    made: list[Part] = []
    for entry, node in zip(read.parts, nodes, strict=True):
        made.append(_part(entry, node, {LAYOUT, *(part.name for part in made)}))
    components = Components(tuple(made), layouts)
    if not 1 <= len(components.factors) <= MOST_FACTORS or not made:
        root.refuse(f"A study takes 1 to {MOST_FACTORS} parts, but {len(components.factors)} are given.")
    return components


def _as_mapping(part: Part | Mapping[str, Any]) -> Mapping[str, Any]:
    if not isinstance(part, Part):
        return part
    fields = {"text": part.text, "instead": part.instead, "examples": part.examples}
    return {"name": part.name, "kind": part.kind, **{key: value for key, value in fields.items() if value}}


def _part(entry: PartEntry, node: Node, taken: set[str]) -> Part:
    name = " ".join(entry.name.split())
    if not name or name in taken:
        node.refuse(f'The name "{name}" of a part is empty or already used. Give each part a different name.')
    usual: Kind = "examples" if entry.examples else next((kind for kind in KINDS if kind == name), "line")
    kind = usual if entry.kind is UNSET else entry.kind
    text, instead = (getattr(entry, key) or "" for key in ("text", "instead"))
    if (entry.examples is UNSET) == (not text.strip()):
        node.refuse(
            f'The part "{name}" needs either `text` or `examples`, a number of training rows to show.'
        )
    if text.strip() == instead.strip() and text.strip():
        node.refuse(f'The part "{name}" has no effect, because `text` and `instead` are equal.')
    return Part(name, text, kind, instead, entry.examples or 0)


def fill_examples(
    components: Components, env: Environment, prompt: Prompt, seed: int
) -> tuple[Components, set[str]]:
    """The components with demonstrations in the place of their numbers, and the ids of the training rows that are shown.

    Raises UsageError where the training rows have too few targets that are texts and may be shown.
    """
    rng, shown, parts = random.Random(seed), set[str](), []
    pool = label_rows(env, prompt, env.train) if any(part.examples for part in components.parts) else []
    rng.shuffle(pool)
    for part in components.parts:
        if not part.examples:
            parts.append(part)
            continue
        if len(pool) < part.examples:
            raise UsageError(
                f'The part "{part.name}" shows {part.examples} training rows, but only {len(pool)} '
                "may be shown. These rows have a text as target and reveal nothing about a "
                "validation row. Set a smaller number, or write the examples as `text`."
            )
        chosen, pool = pool[: part.examples], pool[part.examples :]
        shown |= {one.row for one in chosen}
        text = "\n\n".join([HEAD, *(one.text for one in chosen)])
        parts.append(Part(part.name, text, part.kind, part.instead))
    return Components(tuple(parts), components.layouts), shown


def assemble_prompts(
    components: Components, prompt: Prompt, region: str | None, levels: Sequence[Sequence[bool]]
) -> list[Prompt]:
    """The prompt with each combination of parts in its region (None: the first one).

    Raises UsageError for a region that there is not, and for parts that the prompt refuses: a slot, a marker, or too long.
    """
    base, made = prompt.region_text(region), []
    for combination in levels:
        text = components.assemble(base, combination)
        try:
            made.append(prompt.edit(text, region))
        except EditRejected as error:
            parts = [name for name, on in zip(components.factors, combination, strict=True) if on]
            raise UsageError(f"The prompt refuses the parts {', '.join(parts)}: {error}") from None
    return made


def without_rows(rows: Sequence[Example], shown: set[str]) -> list[Example]:
    """The rows that no part shows."""
    return [row for row in rows if row.id not in shown]
