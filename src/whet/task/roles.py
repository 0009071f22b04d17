"""The model of a role: what the task says, what the person who starts a run changes, and the model that comes of it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import orjson

from whet.errors import UsageError
from whet.models.addresses import at_endpoint, check_base_url, split_address
from whet.models.callable import ModelChoice, as_model, is_function, takes_request
from whet.models.endpoint import join_urls
from whet.models.language_model import LanguageModel
from whet.task.spec import ModelSpec, read_changes

Choice: TypeAlias = ModelChoice | Mapping[str, Any] | None
"""A model by its address, as an object, as a function, or a mapping as under `models` in task.yaml."""

TASK_LIKE = ("task", "transfer")
_WRITERS, _OF_WRITERS = ("optimizer", "judge", "second"), ("temperature", "stop")
"""Roles whose requests whet writes, and options that reach only those of these models that are at an endpoint."""
_log = logging.getLogger("whet.models")
_OF_LOCAL_MODELS = ("device", "batch_size")
"""Fields of models at hf/PATH."""
_REACHED = (
    *("base_url", "key_variable", "headers", "extra_body", "reasoning_effort", "stream"),
    *_OF_LOCAL_MODELS,
)
"""Fields that belong to a provider, and mean nothing at another one."""
_UNKNOWN_TO_FUNCTIONS = (*_REACHED, "top_p")
"""Fields that no function and no object can know."""
_OPTIONS = (
    *("timeout", "key_variable", "headers", "extra_body", "top_p", "reasoning_effort", "seed", "stream"),
    *_OF_LOCAL_MODELS,
)


def changed_spec(spec: ModelSpec, choice: Choice, role: str) -> ModelSpec:
    """The spec with what a person chose: another model, or a mapping whose values take the place of the task's.

    Another provider's model does not inherit how the task's was reached. Raises UsageError for a mapping that cannot be used.
    """
    if choice is None:
        return spec
    if isinstance(choice, Mapping):
        values = read_changes(choice, role)
        _check_reach(values, role)
    else:
        values = {"address": choice} if isinstance(choice, str) else {"model": choice}
    if "address" in values or "model" in values:
        spec = _for_another(spec, values.get("address"))
        values = {"address": None, "model": None, **values}
    return replace(spec, **values, overrides=spec.overrides | values.keys())


def _check_reach(values: Mapping[str, Any], role: str) -> None:
    """Raise UsageError for options beside a function or an object as a model that it cannot know; those that a function with
    another parameter would know are logged."""
    model = values.get("model")
    if model is None:
        return
    of_requests = () if is_function(model) or role in TASK_LIKE else ("temperature", "stop")
    names = [
        name for name in (*_UNKNOWN_TO_FUNCTIONS, *of_requests) if values.get(name) not in (None, (), {})
    ]
    if names:
        what = "a function" if is_function(model) else "an object"
        raise UsageError(
            f"the {role} model is {what}, and the option {names[0]} does not reach it. Set it where the "
            f"{what.split()[1]} calls its model, and leave it out here."
        )
    unheard = [name for name in ("temperature", "seed") if values.get(name) is not None]
    if unheard and is_function(model) and not takes_request(model):
        _log.warning(
            "The function that is the %s model does not learn of the option %s. Give it a parameter `request`, which has it.",
            role,
            unheard[0],
        )


def _for_another(spec: ModelSpec, address: str | None) -> ModelSpec:
    """The spec without what belongs to its own model, where the model is another one."""
    if spec.address is None or address == spec.address:
        return spec
    if address is None or split_address(address)[0] != split_address(spec.address)[0]:
        empty = {name: getattr(ModelSpec(), name) for name in _REACHED}
        spec = replace(spec, **empty)
    return spec if spec.price is None else replace(spec, priced_as=spec.address)


def with_base_url(spec: ModelSpec, base_url: str | Sequence[str] | None, task: ModelSpec | None) -> ModelSpec:
    """The spec of a role with the base URL, or the list of them, that a person gave for the run; `task` is that of the task
    model, None for itself.

    It moves the task model, and each other role of the same provider, unless that role has a base URL of its own. Where the
    task model is at no endpoint, it moves the others.
    """
    text = join_urls(base_url)
    if text is None or "base_url" in spec.overrides:
        return spec
    if task is not None and spec.address is not None and _is_elsewhere(spec, task):
        return spec
    return replace(spec, base_url=text, overrides=spec.overrides | {"base_url"})


def _is_elsewhere(spec: ModelSpec, task: ModelSpec) -> bool:
    if task.address is None or not at_endpoint(task.address):
        return False
    if spec.base_url is not None and spec.base_url != task.base_url:
        return True
    return split_address(str(spec.address))[0] != split_address(task.address)[0]


def taken_by_task_model(spec: ModelSpec, task: ModelSpec) -> ModelSpec:
    """The spec of a role without a model of its own: the task model, reached as that is unless the role says otherwise."""
    values = {name: getattr(spec, name) or getattr(task, name) for name in (*_REACHED, "timeout", "price")}
    values["stream"] = task.stream if spec.stream is None else spec.stream
    overrides = spec.overrides | {name for name in task.overrides if not getattr(spec, name, None)}
    return replace(spec, **values, address=task.address, model=task.model, overrides=overrides)


def endpoint_options(spec: ModelSpec, role: str) -> dict[str, Any]:
    """The options of a function or of a model at an endpoint; temperature and stop texts of the task model go with its requests
    instead."""
    values: dict[str, object] = {name: getattr(spec, name) for name in _OPTIONS}
    takes_options = is_function(spec.model) if spec.address is None else at_endpoint(spec.address)
    if role not in TASK_LIKE and takes_options:
        values |= {"temperature": spec.temperature, "stop": spec.stop}
    return {name: value for name, value in values.items() if value not in (None, (), {})}


def model_key(spec: ModelSpec, role: str) -> tuple[object, ...]:
    """The key that two roles have in common when they share a model object."""
    if spec.model is not None:
        return (id(spec.model),)
    return (
        spec.address,
        spec.base_url,
        orjson.dumps(endpoint_options(spec, role), default=list, option=orjson.OPT_SORT_KEYS),
    )


def model_of(spec: ModelSpec, role: str) -> LanguageModel:
    """The model of a spec that names one. A host that only the task's file names gets no secret of the environment, unless it
    is trusted with it. A price that is another model's is logged.

    Raises UsageError for what cannot be used.
    """
    if spec.priced_as is not None and "price" not in spec.overrides:
        _log.warning(
            "The price in the task is that of %s; costs of %s are counted with it.",
            spec.priced_as,
            spec.address or "the function",
        )
    if spec.model is not None:
        return as_model(spec.model, options=endpoint_options(spec, role))
    if role in _WRITERS and not at_endpoint(str(spec.address)):
        for name in _OF_WRITERS:
            if getattr(spec, name) not in (None, ()):
                _log.warning(
                    "%s, the %s model, runs in this process and ignores the option %s.",
                    spec.address,
                    role,
                    name,
                )
    check_consent(spec)
    return as_model(str(spec.address), base_url=spec.base_url, options=endpoint_options(spec, role))


def check_consent(spec: ModelSpec) -> None:
    """Raise UsageError where a secret would go to a host that only the task's file names, and nobody trusts."""
    if spec.address is not None and spec.base_url is not None and "base_url" not in spec.overrides:
        check_base_url(spec.address, spec.base_url, spec.key_variable, spec.headers)


def identity_of(model: LanguageModel) -> dict[str, object]:
    """The facts besides the address that change a model's answers, as JSON; empty for most models."""
    return dict(getattr(model, "identity", {}))
