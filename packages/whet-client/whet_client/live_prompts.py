"""Prompts as the server, or a bundled copy, gives them, and as an app uses them.

The modules that parse and render prompts are imported with the first prompt, so that importing the client stays fast.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whet_client.assignment import UNITS, assign
from whet_client.errors import UsageError

if TYPE_CHECKING:
    from whet_client.prompt.document import Prompt

Bundled = str | Sequence[Mapping[str, str]]
"""A prompt that comes with the app: one text, or messages as {"role", "content"}."""


@dataclass(frozen=True, slots=True)
class Content:
    """One version. `version` is 0 for a text that was bundled without a number."""

    name: str
    version: int
    prompt: Prompt
    config: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AssignableExperiment:
    """An experiment as an app needs it to assign units by itself. `contents` are the versions of the arms."""

    id: str
    salt: str
    unit: str
    variant: str
    arms: tuple[tuple[int, float], ...]
    contents: Mapping[int, Content]


@dataclass(frozen=True, slots=True)
class ServedPrompt:
    """One label of a prompt: its version, and the experiment that runs on it."""

    content: Content
    label: str
    source: str
    experiment: AssignableExperiment | None = None

    def for_units(self, units: Mapping[str, str | None]) -> LivePrompt:
        """The prompt for somebody. Who has no unit of the experiment, or one of a version that is not here, is not in
        the experiment."""
        content, experiment = self.content, self.experiment
        if experiment is not None:
            unit = units.get(experiment.unit)
            if unit:
                assigned = experiment.contents.get(assign(experiment.salt, unit, experiment.arms))
                if assigned is not None:
                    return LivePrompt(
                        assigned, self.label, self.source, experiment.id, experiment.variant, units
                    )
        return LivePrompt(content, self.label, self.source, None, None, units)


@dataclass(frozen=True, slots=True)
class LivePrompt:
    """One version of a prompt for one request.

    `source` is `server` or `fallback`. `experiment` and `variant` are those of the assignment (None outside experiments).
    `units` are the user, session and episode of the call; `Client.log` logs them with the prompt.
    """

    content: Content = field(repr=False)
    label: str
    source: str
    experiment: str | None = None
    variant: str | None = None
    units: Mapping[str, str | None] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        """The prompt's name."""
        return self.content.name

    @property
    def version(self) -> int:
        """The version's number; 0 for a bundled text."""
        return self.content.version

    @property
    def config(self) -> Mapping[str, Any]:
        """The model, the temperature and other values that were stored with the version."""
        return self.content.config

    @property
    def slots(self) -> frozenset[str]:
        """Names of the prompt's slots."""
        return self.content.prompt.slots

    def format(self, **values: object) -> list[dict[str, Any]]:
        """The messages for a model, every slot `{{name}}` filled by the value of that name. A content with images, sounds or
        files is a list of parts in OpenAI's form.

        Values are put in literally, in one pass: braces in a value stay braces. A prompt of one text that has none of
        the slots is the system message, and the values follow as the user message. A value that is no text stands there
        as JSON, None as nothing, as rows of tasks fill slots. Raises UsageError for a slot without a value, and for a value
        that JSON cannot hold.
        """
        from whet_client.media import content_of
        from whet_client.prompt.document import AUTO
        from whet_client.prompt.fence import without_markers
        from whet_client.prompt.slots import checked_text
        from whet_client.types import Example, Message

        texts = {name: checked_text(name, value) for name, value in values.items()}
        missing = sorted(self.slots - texts.keys())
        if missing:
            passed = ", ".join(sorted(texts)) or "nothing"
            raise UsageError(
                f"{self.name} version {self.version} needs values for {', '.join(missing)}; given: {passed}."
            )
        prompt = self.content.prompt
        if texts:
            rendered = prompt.render(Example("", texts))
        else:
            rendered = tuple(
                Message("system" if m.role == AUTO else m.role, without_markers(m.content))
                for m in prompt.messages
            )
        return [message.as_object(content_of(message.content)) for message in rendered]


def read_content(value: Mapping[str, Any]) -> Content:
    """A version from the server's JSON. Raises UsageError for JSON that describes no version."""
    try:
        rows = [[str(m[key]) for key in ("role", "content", "name") if key in m] for m in value["messages"]]
        prompt = _from_rows(rows, str(value["name"]))
        return Content(str(value["name"]), int(value["version"]), prompt, dict(value.get("config") or {}))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"The server's answer is no version of a prompt ({type(error).__name__}).") from None


def read_experiment(value: Mapping[str, Any], contents: Mapping[int, Content]) -> AssignableExperiment:
    """An experiment from the server's JSON. Raises UsageError for JSON that describes no experiment."""
    try:
        arms = tuple((int(arm["version"]), float(arm["weight"])) for arm in value["arms"])
        unit, variant = str(value["unit"]), str(value.get("revision", ""))
        experiment = AssignableExperiment(str(value["id"]), str(value["salt"]), unit, variant, arms, contents)
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(
            f"The definition of the experiment cannot be read ({type(error).__name__})."
        ) from None
    if unit not in UNITS:
        raise UsageError(f'The experiment assigns by "{unit[:40]}"; this client knows {", ".join(UNITS)}.')
    assign(experiment.salt, "any", arms)
    return experiment


def load_bundled(name: str, fallback: Bundled) -> Content:
    """A prompt that comes with the app. Raises UsageError for a broken fence or no text."""
    where = f"fallback of {name}"
    if isinstance(fallback, str):
        from whet_client.prompt.document import Prompt

        return Content(name, 0, Prompt.parse(fallback, where), {})
    return Content(name, 0, _from_rows([(m["role"], m["content"]) for m in fallback], where), {})


def from_folder(folder: Path, name: str, label: str) -> Content | None:
    """A prompt below a folder: NAME.md, or what `whet prompts export` wrote, by its label; None when it is not there.

    Raises UsageError for a file that cannot be used.
    """
    home = folder / name
    if ".." in Path(name).parts or not home.resolve().is_relative_to(folder.resolve()):
        raise UsageError(f'"{name}" is no name of a prompt.')
    plain = folder / f"{name}.md"
    try:
        if plain.is_file():
            return load_bundled(name, plain.read_text("utf-8"))
        labels = home / "@labels.json"
        number = json.loads(labels.read_text("utf-8")).get(label) if labels.is_file() else None
        if not isinstance(number, int):
            return None
        side = json.loads((home / f"@{number}.json").read_text("utf-8"))
        rows = [
            (str(row["role"]), (home / Path(str(row["file"])).name).read_text("utf-8"), row.get("name"))
            for row in side["messages"]
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{home}: the bundled prompt cannot be read: {error}.") from None
    return Content(name, number, _from_rows(rows, str(home)), dict(side.get("config") or {}))


def _from_rows(rows: Iterable[Sequence[Any]], where: str) -> Prompt:
    """The prompt of messages that are given as (role, content) or (role, content, name). `where` is its place in errors."""
    from whet_client.prompt.document import Prompt
    from whet_client.types import Message

    return Prompt.from_messages(tuple(Message(*row) for row in rows), where)
