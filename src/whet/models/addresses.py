"""Addresses of models: `provider/name`, and from an address to a model. Providers are imported when named."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

from whet import plugins
from whet.errors import UsageError, did_you_mean, parameter
from whet.models.language_model import LanguageModel

_ADDRESS = re.compile(r"(?P<provider>[A-Za-z][A-Za-z0-9_-]*)(?P<mark>::|:/|:|/)(?P<name>.+)", re.DOTALL)
_EXAMPLE = "Write provider/name, for example openai/gpt-4o-mini, hf/PATH or embedded/mlm."
ENDPOINTS: Mapping[str, str] = {
    "anthropic": "https://api.anthropic.com/v1",
    "deepseek": "https://api.deepseek.com/v1",
    "gemini": "https://generativelanguage.googleapis.com/v1beta/openai",
    "groq": "https://api.groq.com/openai/v1",
    "llamacpp": "http://localhost:8080/v1",
    "lmstudio": "http://localhost:1234/v1",
    "mistral": "https://api.mistral.ai/v1",
    "ollama": "http://localhost:11434/v1",
    "openrouter": "https://openrouter.ai/api/v1",
    "together": "https://api.together.xyz/v1",
    "vllm": "http://localhost:8000/v1",
}
"""Where others serve models by the protocol of OpenAI; local servers at their usual ports."""


def split_address(address: str) -> tuple[str, str]:
    """Provider and name of an address. Also takes `provider:name`, `provider::name` and `provider:/name`.

    >>> split_address("openai/gpt-4o-mini"), split_address("openai:/gpt-4o-mini")
    (('openai', 'gpt-4o-mini'), ('openai', 'gpt-4o-mini'))
    >>> split_address("hf//srv/models/small")
    ('hf', '/srv/models/small')

    Raises UsageError for another shape or an unknown provider.
    """
    match = _ADDRESS.fullmatch(address.strip())
    if match is None:
        raise UsageError(f'"{address}" is not the address of a model. {_EXAMPLE}')
    provider, name = match["provider"].lower(), match["name"]
    if provider not in _PROVIDERS and plugins.find(plugins.MODELS, provider, _PROVIDERS) is None:
        known = plugins.names(plugins.MODELS, _PROVIDERS)
        raise UsageError(
            f'"{address}": unknown provider "{match["provider"]}".{_compatible(provider, name, known)}'
        )
    if provider == "hf" and match["mark"] == ":/" and os.path.isdir("/" + name):
        name = "/" + name
    return provider, name


def _compatible(provider: str, name: str, known: Sequence[str]) -> str:
    """The known provider that was meant, or how to reach one that speaks the protocol of OpenAI."""
    near = did_you_mean(provider, known)
    if "Did you mean" in near and provider not in ENDPOINTS:
        return near
    url = ENDPOINTS.get(provider, "URL")
    return (
        f" If it speaks the protocol of OpenAI, write {parameter('lm', f'openai/{name}')} and "
        f"{parameter('base_url', url)}.{near}"
    )


def resolve(
    address: str, *, base_url: str | None = None, options: Mapping[str, Any] | None = None
) -> LanguageModel:
    """The model at an address.

    `base_url` serves openai/... and providers of other packages. `options` belong to the provider:

    - openai: `timeout` (seconds a call may take, above 0), `key_variable` (environment variable with the key)
    - hf: `device`, `batch_size` (1 or more)
    - scripted: whatever the simulator takes; `scripted/NAME?key=value` says the same in the address

    Raises UsageError for an address, an option or an environment that cannot be used. Nothing is paid.
    """
    provider, name = split_address(address)
    if provider in _PROVIDERS:
        return _PROVIDERS[provider](name, base_url, options or {})
    plugin = plugins.find(plugins.MODELS, provider, _PROVIDERS)
    assert plugin is not None, "split_address refuses an unknown provider"
    make = plugin.load(lambda value: None if callable(value) else "cannot be called")
    model = plugin.call(make, name, base_url, options or {})
    if not isinstance(model, LanguageModel):
        plugin.refuse(f"for {address} it returns {type(model).__name__}, which is no LanguageModel")
    return model


def check_base_url(address: str, base_url: str) -> None:
    """Refuse to send a key to an endpoint that only a task file names, not the person who starts the run.

    Raises UsageError for an address of openai/... whose host is not trusted, and for every provider of another package.
    """
    provider, _ = split_address(address)
    if provider == "openai":
        from whet.models.openai import check_entrusted

        check_entrusted(base_url)
    elif provider not in _PROVIDERS:
        raise UsageError(
            f"The task file sends the requests of {address} to {base_url}, and a key may go with them. "
            f"If that is meant, say so with {parameter('base_url')}; if not, remove `base_url`."
        )


def _openai(name: str, base_url: str | None, options: Mapping[str, Any]) -> LanguageModel:
    from whet.models.openai import DEFAULT_TIMEOUT, KEY_VARIABLE, OpenAIModel

    _check_options("openai", options, {"timeout": (int, float), "key_variable": (str,)})
    return OpenAIModel(
        name,
        base_url=base_url,
        key_variable=options.get("key_variable", KEY_VARIABLE),
        timeout=options.get("timeout", DEFAULT_TIMEOUT),
    )


def _hf(name: str, base_url: str | None, options: Mapping[str, Any]) -> LanguageModel:
    from whet.models.huggingface import load

    _check_options("hf", options, {"device": (str,), "batch_size": (int,)})
    return load(name, **options)


def _embedded(name: str, base_url: str | None, options: Mapping[str, Any]) -> LanguageModel:
    from whet.models.embedded import load

    _check_options("embedded", options, {})
    return load(name)


def _scripted(name: str, base_url: str | None, options: Mapping[str, Any]) -> LanguageModel:
    """Simulators are test helpers, in a layer above: imported by name, like the models of another package."""
    model: LanguageModel = import_module("whet.testing.simulators").provide(name, base_url, options)
    return model


def _check_options(provider: str, options: Mapping[str, Any], known: Mapping[str, tuple[type, ...]]) -> None:
    for key, value in options.items():
        if key not in known:
            raise UsageError(f'{provider}/...: unknown option "{key}".{did_you_mean(key, known)}')
        if isinstance(value, bool) or not isinstance(value, known[key]):
            wanted = " or ".join(kind.__name__ for kind in known[key])
            raise UsageError(f"{provider}/...: the option {key} must be {wanted}, found {value!r}.")


_PROVIDERS: Mapping[str, Callable[[str, str | None, Mapping[str, Any]], LanguageModel]] = {
    "openai": _openai,
    "hf": _hf,
    "embedded": _embedded,
    "scripted": _scripted,
}
