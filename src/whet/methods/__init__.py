"""The table of methods. One published algorithm is one file of this folder, which declares its `ENTRY`.

The table is read from the sources: no method is imported before it is used. `whet.methods.NAME.Config(...)` is a method with
its settings, for `whet.optimize(method=...)`. A method of your own is a coroutine under `register`.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import typing
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from whet._util import plugins
from whet._util.fields import check_bounds, describe_settings
from whet.errors import UsageError, did_you_mean
from whet.methods.method import (
    BLOCKS,
    LABEL_SCORES,
    LOCAL,
    NEEDS_IN_WORDS,
    OBJECTIVES,
    OPTIMIZER,
    OPTIMIZER_OPTIONAL,
    POLICY,
    REGIONS,
    Method,
    MethodEntry,
    Need,
    configure,
    load,
    load_plugin,
    read_entries,
)
from whet.models.language_model import LanguageModel
from whet.rl.mechanisms import find_mechanism, mechanism_names, name_key

__all__ = [
    "BLOCKS",
    "LABEL_SCORES",
    "LOCAL",
    "METHODS",
    "NEEDS_IN_WORDS",
    "OBJECTIVES",
    "OPTIMIZER",
    "OPTIMIZER_OPTIONAL",
    "POLICY",
    "REGIONS",
    "Method",
    "MethodChoice",
    "MethodEntry",
    "carries_policy",
    "choose_method",
    "configure",
    "default_method",
    "describe_mechanism",
    "describe_method",
    "get_method",
    "mechanism_names",
    "register",
    "table",
]

MethodChoice: TypeAlias = str | Method | Any
"""A method by name, a Method, or a config object, which is a method with its settings."""
C = TypeVar("C", bound=Callable[..., Awaitable[Any]])
_REGISTERED: dict[str, Method] = {}

METHODS: dict[str, MethodEntry] = read_entries(Path(__file__).parent)
"""The methods of whet by name, in the order of their rank."""


def get_method(name: str) -> Method:
    """The method of that name, loaded: built in, registered in this process, or of an installed package.

    Raises UsageError with the setting of a method that the name stands for, or the nearest known name, or naming the package
    whose method cannot be used.
    """
    if name in _REGISTERED:
        return _REGISTERED[name]
    if name in METHODS:
        return _with_methods(name) if METHODS[name].combines else load(METHODS[name])
    plugin = plugins.find_plugin(plugins.METHODS, name, METHODS)
    if plugin is None:
        known = plugins.plugin_names(plugins.METHODS, [*METHODS, *_REGISTERED])
        mechanism = find_mechanism(name)
        if mechanism is not None:
            raise UsageError(f'"{name}" is no method of its own. This is it: {mechanism.use}')
        raise UsageError(f'There is no method "{name}".{did_you_mean(name, known)}')
    return load_plugin(plugin)


@functools.cache
def _with_methods(name: str) -> Method:
    """A method that runs others, with the table of methods handed to its coroutine and its check."""
    method = load(METHODS[name])

    @functools.wraps(method.coroutine)
    async def coroutine(*args: object) -> Any:
        return await method.coroutine(*args, get_method)

    check = None if method.check is None else functools.partial(method.check, methods=get_method)
    return dataclasses.replace(method, coroutine=coroutine, check=check)


def table() -> tuple[list[dict[str, object]], list[dict[str, str]]]:
    """Every method with the package that brings it, whet's own first, then those registered in this process; and the plugins
    that cannot be used: name, package, error."""
    entries = [(entry, plugins.OWN) for entry in METHODS.values()]
    entries += [(method.entry, method.coroutine.__module__) for method in _REGISTERED.values()]
    unusable = []
    for plugin in plugins.plugins(plugins.METHODS, METHODS):
        try:
            entries.append((load_plugin(plugin).entry, plugin.package))
        except UsageError as error:
            unusable.append({"name": plugin.name, "package": plugin.package, "error": str(error)})
    return [{**dataclasses.asdict(entry), "package": package} for entry, package in entries], unusable


def describe_mechanism(name: str) -> dict[str, object] | None:
    """A mechanism: its names, its meaning with its equation, its use, the places of its code and its page; None for an unknown
    name, and for that of a method."""
    of_method = name in plugins.plugin_names(plugins.METHODS, [*METHODS, *_REGISTERED])
    mechanism = None if of_method else find_mechanism(name)
    return None if mechanism is None else {**dataclasses.asdict(mechanism), "summary": mechanism.summary()}


def describe_method(name: str) -> dict[str, object]:
    """One method: its row of the table, its page where whet brings it, its config and settings; `missing` instead of these where
    its packages are not installed. A name may be spelled as its paper does. Raises UsageError for an unknown name."""
    name = next((own for own in METHODS if name_key(own) == name_key(name)), name)
    try:
        method = get_method(name)
    except UsageError as error:
        if name not in METHODS:
            raise
        return {**dataclasses.asdict(METHODS[name]), **_page(name), "missing": str(error)}
    entry, config = method.entry, method.config
    settings = [dataclasses.asdict(setting) for setting in describe_settings(config)]
    return {
        **dataclasses.asdict(entry),
        **_page(name),
        "config": f"{config.__module__}.{config.__qualname__}",
        "settings": settings,
    }


def _page(name: str) -> dict[str, str]:
    page = f"docs/methods/{name}.md"
    return {"page": page} if name in METHODS and is_page_here(page) else {}


def is_page_here(page: str) -> bool:
    """Whether a page of the documentation lies beside the package: in a checkout it does, in an installation not."""
    return (Path(__file__).resolve().parents[3] / page).is_file()


def register(
    config: type[Any] | None = None,
    *,
    name: str | None = None,
    title: str = "",
    needs: Sequence[Need] = (),
    check: Callable[..., object] | None = None,
) -> Callable[[C], C]:
    """Make a coroutine `(run, env, policy, start, config) -> Candidate` a method, by its name and by its config.

    `config` is a frozen dataclass, every field with a default; by default the annotation of the coroutine's last parameter.
    `needs` are those of the table (`optimizer`, ...). `check(env, config)` may raise UsageError before anything is paid. The
    same name again replaces the method (a cell of a notebook that is run again). Raises UsageError for the name of a method
    of whet and for a config that is no frozen dataclass.
    """

    def decorate(coroutine: C) -> C:
        own: str = name or coroutine.__name__
        if own in METHODS:
            raise UsageError(f'There is a method "{own}" in whet already. Give yours another name=.')
        settings = config or _config_of(coroutine)
        if not dataclasses.is_dataclass(settings) or not settings.__dataclass_params__.frozen:  # type: ignore[attr-defined]
            raise UsageError(f"The config of {own} must be a frozen dataclass; this is {settings!r}.")
        line = title or str(inspect.getdoc(coroutine) or own).splitlines()[0]
        entry = MethodEntry(own, line, needs=tuple(needs))
        _REGISTERED[own] = Method(entry, coroutine, settings, None, check)
        return coroutine

    return decorate


def _config_of(coroutine: Callable[..., object]) -> type[Any]:
    """The annotation of the last parameter."""
    last = list(inspect.signature(coroutine).parameters)[-1]
    try:
        annotation = typing.get_type_hints(coroutine).get(last)
    except NameError:
        annotation = None
    if not isinstance(annotation, type):
        raise UsageError(
            f"The last parameter of {coroutine.__qualname__} has no class as its annotation. Give register(config=...)."
        )
    return annotation


POLICY_ROWS, POLICY_CALLS = 64, 1_000
"""Training rows, and calls where they are limited, from which on weights are trained without being asked for: 60 steps of 16
rollouts."""


def carries_policy(rows: int, *limits: int | None) -> bool:
    """Whether so many training rows, under these limits on calls, carry the training of weights."""
    return rows >= POLICY_ROWS and all(limit is None or limit >= POLICY_CALLS for limit in limits)


def default_method(model: LanguageModel | None, scores: bool, carried: bool) -> str:
    """The method of a task that names none: `whet optimize` takes it, and `whet advise` puts it first.

    `model` is the task model (None: not known yet), `scores` says that it is asked for the labels' probabilities, `carried`
    what `carries_policy` says of the task.
    """
    if scores and model is not None and not model.can_generate and hasattr(model, "policy_body"):
        return "bdpl" if carried else "random_search"
    return "prompt_learning" if "prompt_learning" in METHODS else "protegi"


def choose_method(choice: MethodChoice) -> tuple[Method, object]:
    """The method that a caller names, and its config; None where the settings are still to be chosen.

    A config object belongs to the method that is registered with its class, or to the method of its module. Raises
    UsageError for anything else.
    """
    if isinstance(choice, str):
        return get_method(choice), None
    if isinstance(choice, Method):
        own = choice.entry.name
        if own not in METHODS:
            _REGISTERED[own] = choice
        elif get_method(own).coroutine is not choice.coroutine:
            raise UsageError(f'There is a method "{own}" in whet already. Give yours another name.')
        return choice, None
    kind = type(choice)
    for method in _REGISTERED.values():
        if method.config is kind:
            return method, choice
    package, _, module = kind.__module__.rpartition(".")
    if package == __name__ and module in METHODS and get_method(module).config is kind:
        check_bounds(choice, f"{module}: ")
        return get_method(module), choice
    raise UsageError(
        f"{choice!r} is no method: no method is registered with the config {kind.__qualname__}. Give a name from `whet methods`, "
        'such as "opro", or put @whet.methods.register() above the coroutine.'
    )


def __getattr__(name: str) -> Any:
    """The module of a method, imported on first use."""
    if name in METHODS:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """All public names, the methods included."""
    return sorted([*__all__, *METHODS])
