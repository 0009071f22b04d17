"""The interface of a method: one coroutine, one frozen config, and their helpers."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import types
import typing
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, get_args

from whet._util.fields import Kind, check_bounds
from whet._util.plugins import Plugin
from whet.errors import UsageError, did_you_mean, named_fields
from whet_client.storable import show_value

OPTIMIZER: Final = "optimizer"
OPTIMIZER_OPTIONAL: Final = "optimizer_optional"
LABEL_SCORES: Final = "label_scores"
POLICY: Final = "policy"
LOCAL: Final = "local"
OBJECTIVES: Final = "objectives"
REGIONS: Final = "regions"
Need: TypeAlias = Literal[
    "optimizer", "optimizer_optional", "label_scores", "policy", "local", "objectives", "regions"
]
NEEDS = get_args(Need)
NEEDS_IN_WORDS: Mapping[Need, str] = {
    "optimizer": "an optimizer model",
    "optimizer_optional": "an optimizer model, if there is one",
    "label_scores": "label scores",
    "policy": "a policy (default: embedded/tiny)",
    "local": "the task model in this process",
    "objectives": "several objectives (default: the reward alone)",
    "regions": "several prompts or regions",
}
BLOCKS: Mapping[str, int] = {"instructions": 8, "rl": 3, "search": 8}
"""Versions of the packages that methods are built from: raised with every change of a block that can change what a run does."""


@named_fields
@dataclass(frozen=True)
class MethodEntry:
    """One row of the table of methods."""

    name: str
    title: str
    paper: str = "-"
    arxiv: str = "-"
    version: int | None = None
    """Raised with every change that can change what a run of the method does. A run goes on only under the version that began
    it. None pins a run to the bytes of the method's source."""
    rank: int = 1000
    """The position of the method in tables and in advice, the lowest first."""
    when: str = ""
    """The situation in which to choose the method."""
    needs: tuple[Need, ...] = ()
    """`optimizer` (a model that writes), `optimizer_optional` (used if there is one), `label_scores` (a task model that can
    score labels), `policy` (a model whose weights are trained), `local` (a task model in this process), `objectives` (a task
    with several of them), `regions` (a prompt with several regions that may be edited, or a program)."""
    trains: str = "nothing: search"
    """The learning part, in words."""
    extra: str = ""
    """The extra of the package that the method needs."""
    bound: str = ""
    """Why what the method trains cannot be used with another task model; empty where it can."""
    space: str = ""
    """The space of `random_search` that its prompts come from, if random search would choose another one."""
    edits_all: bool = False
    """Whether one call of the method edits every region of a prompt. (A property of that name in its config says so for some
    settings.) Another method is called once for each region, with this region in focus."""
    combines: bool = False
    """Whether it runs other methods. Methods do not import each other, so the registry passes `methods`, a function from a name
    to the Method, to its coroutine and its `check`."""
    programs: bool = False
    """Whether its trained weights also answer the calls of a program."""


@named_fields
@dataclass(frozen=True)
class Method:
    """A method: its row, its coroutine `(run, env, policy, start, config) -> Candidate`, its config class.

    `deploy(env, policy, blob, config) -> Environment` is the environment in which a candidate with a `system` is
    used: the trained weights of the blob act together with the frozen model. A method whose candidates are texts has None. If
    candidates are texts under some settings only, a property `deploys` of the config says so.
    `check(env, config)` raises UsageError for a task or settings that the method cannot work with. whet calls `check` before
    anything is paid or written.
    """

    entry: MethodEntry
    coroutine: Callable[..., Awaitable[Any]]
    config: type[Any]
    deploy: Callable[..., Any] | None = None
    check: Callable[..., Any] | None = None

    def deploys(self, config: Any = None) -> bool:
        """Whether a candidate may need more than its text. A property `deploys` of the config says so for some settings only."""
        return self.deploy is not None and bool(
            getattr(config, "deploys", not hasattr(self.config, "deploys"))
        )


def read_entries(folder: Path) -> dict[str, MethodEntry]:
    """Read `ENTRY = MethodEntry(...)` of every method in a folder from the source, because some methods import torch.

    The values are literals, and an empty line follows. Returns the entries by name, in the order of their rank.
    """
    entries = []
    for path in folder.glob("*.py"):
        _, declared, rest = path.read_text(encoding="utf-8").partition("\nENTRY = MethodEntry")
        if declared and path.name != Path(__file__).name:
            call = ast.parse(f"MethodEntry{rest.partition(chr(10) * 2)[0]}", mode="eval").body
            assert isinstance(call, ast.Call)
            named = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
            entries.append(MethodEntry(*map(ast.literal_eval, call.args), **named))
    return {entry.name: entry for entry in sorted(entries, key=lambda entry: entry.rank)}


def load(entry: MethodEntry) -> Method:
    """Import a method's module: the coroutine has the method's name, the config class is named `Config`."""
    try:
        module = importlib.import_module(f"whet.methods.{entry.name}")
    except ModuleNotFoundError as error:
        if entry.extra and not (error.name or "").startswith("whet"):
            raise UsageError(
                f"The method {entry.name} needs {error.name}. Install it with: pip install 'whet[{entry.extra}]'"
            ) from error
        raise
    deploy, check = (getattr(module, name, None) for name in ("deploy", "check"))
    return Method(entry, getattr(module, entry.name), module.Config, deploy, check)


def load_plugin(plugin: Plugin) -> Method:
    """The method that another package brings. Raises UsageError, naming the package, for one that cannot be run."""

    def wrong(value: Any) -> str | None:
        if not isinstance(value, Method):
            return f"is of the type {type(value).__name__}, not a whet.Method"
        if value.entry.name != plugin.name:
            return f"calls itself {value.entry.name}"
        unknown = set(value.entry.needs) - set(NEEDS)
        if unknown:
            return f"needs {', '.join(sorted(unknown))}, and a method needs {', '.join(NEEDS)} or nothing"
        if not inspect.iscoroutinefunction(value.coroutine):
            return "has no coroutine: write `async def`"
        if not dataclasses.is_dataclass(value.config):
            return "has a config that is no dataclass"
        typing.get_type_hints(value.config)
        value.config()
        inspect.getsource(inspect.getmodule(value.coroutine) or value.coroutine)
        return None

    method: Method = plugin.load(wrong)
    return method


def configure(
    method: Method, settings: Mapping[str, str | Any], places: Mapping[str, str] = types.MappingProxyType({})
) -> Any:
    """A config with `settings` applied; text is converted to the field's type. `places`: file:line of settings that stand in a
    file.

    Raises UsageError for an unknown key (with the nearest known one) or a value of the wrong type, with its place.
    """
    for key, place in places.items():
        if key not in settings:
            continue
        try:
            configure(method, {key: settings[key]})
        except UsageError as error:
            raise UsageError(f"{place}: {error.args[0]}") from None
    hints = typing.get_type_hints(method.config)
    fields = {f.name: f for f in dataclasses.fields(method.config)}
    values: dict[str, object] = {}
    for key, value in settings.items():
        if key not in fields:
            raise UsageError(f'{method.entry.name} has no setting "{key}".{did_you_mean(key, fields)}')
        values[key] = _convert(f"{method.entry.name}: {key}", value, hints[key])
    config = method.config(**values)
    check_bounds(config, f"{method.entry.name}: ")
    return config


def _convert(what: str, value: Any, hint: Any) -> object:
    options = [a for a in typing.get_args(hint) if a is not type(None)] or [hint]
    if callable(value) and any(typing.get_origin(option) is Callable for option in options):
        return value
    optional = type(None) in typing.get_args(hint)
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        hint = options[0]
    if optional and str(value).lower() in ("none", "null", ""):
        return None
    if typing.get_origin(hint) is typing.Literal:
        known = [str(a) for a in typing.get_args(hint)]
        if str(value) not in known:
            raise UsageError(
                f"{what} is one of {', '.join(known)}; this is {value!r}.{did_you_mean(str(value), known)}"
            )
        return str(value)
    try:
        if hint is bool:
            return {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}[
                str(value).lower()
            ]
        if hint is int and (isinstance(value, bool) or (isinstance(value, float) and not value.is_integer())):
            raise ValueError(value)
        return hint(value)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise UsageError(f"{what} must be {Kind(hint, True).words}; this is {show_value(value)}.") from error
