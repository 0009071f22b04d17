"""Addresses of models: `provider/name`, and from an address to a model. Providers are imported when named."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from whet._util import plugins
from whet.errors import UsageError, did_you_mean, near_word, parameter
from whet.models.language_model import LanguageModel, missing_members
from whet.models.providers import PROVIDERS
from whet.models.request_options import RequestOptions

if TYPE_CHECKING:
    from whet.models.openai import OpenAIModel

_ADDRESS = re.compile(r"(?P<provider>[A-Za-z][A-Za-z0-9_-]*)(?P<mark>::|:/|:|/)(?P<name>.+)", re.DOTALL)
_EXAMPLE = "Write provider/name, for example openai/gpt-4o-mini, hf/PATH or embedded/mlm."


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
    if provider not in _BUILT_IN and plugins.find_plugin(plugins.MODELS, provider, _BUILT_IN) is None:
        known = plugins.plugin_names(plugins.MODELS, _BUILT_IN)
        raise UsageError(
            f'"{address}": unknown provider "{match["provider"]}".{_compatible(provider, name, known)}'
        )
    if provider == "hf" and match["mark"] == ":/" and os.path.isdir("/" + name):
        name = "/" + name
    return provider, name


def _compatible(provider: str, name: str, known: Sequence[str]) -> str:
    """The known provider that was meant, or how to reach one that speaks the protocol of OpenAI."""
    if near := near_word(provider, known):
        return near
    return (
        f" If it speaks the protocol of OpenAI, write {parameter('lm', f'openai/{name}')} and "
        f"{parameter('base_url', 'URL')}. Known: {', '.join(sorted(known))}."
    )


def resolve(
    address: str,
    *,
    base_url: str | Sequence[str] | None = None,
    options: Mapping[str, object] | None = None,
) -> LanguageModel:
    """The model at an address.

    `base_url` serves every address at an endpoint, and providers of other packages; several (a list, or a text with commas
    between them) are servers of one model at an endpoint. `options` belong to the provider:

    - an endpoint (openai/..., anthropic/..., ollama/..., ...): `timeout` (seconds a call may take, above 0), `key_variable`
      (environment variable with the key), `headers` (in a value `$NAME` stands for a variable), and what goes into every
      request: `temperature`, `stop`, `top_p`, `reasoning_effort`, `seed`, `stream`, `extra_body`
    - images/PROVIDER/NAME: those of the endpoint; images/hf/PATH: `device`, `batch_size`, `extra_body`
    - litellm: the same but for `headers`
    - hf: `device`, `batch_size` (1 or more)
    - scripted: whatever the simulator takes; `scripted/NAME?key=value` says the same in the address

    Raises UsageError for an address, an option or an environment that cannot be used. Nothing is paid.
    """
    provider, name = split_address(address)
    if provider in PROVIDERS:
        return _endpoint(provider, name, base_url, options or {})
    base_url = _only_url(address, base_url)
    if provider in _PROVIDERS:
        return _PROVIDERS[provider](name, base_url, options or {})
    plugin = plugins.find_plugin(plugins.MODELS, provider, _BUILT_IN)
    assert plugin is not None, "split_address refuses an unknown provider"
    make = plugin.load(lambda value: None if callable(value) else "cannot be called")
    model = plugin.call(make, name, base_url, options or {})
    if not isinstance(model, LanguageModel):
        missing = " and ".join(f"`{name}`" for name in missing_members(model))
        plugin.refuse(
            f"for {address} it returns a {type(model).__name__}, which is not a whet.LanguageModel: it has no {missing}"
        )
    return model


def _only_url(address: str, base_url: str | Sequence[str] | None) -> str | None:
    """The base URL. Raises UsageError for several."""
    from whet.models.endpoint import split_urls

    urls = split_urls(base_url)
    if len(urls) > 1:
        raise UsageError(
            f"{parameter('base_url')} names {len(urls)} servers, and whet spreads calls only over endpoints that it asks itself. "
            f"Give {address} one base URL, or name the model as openai/NAME."
        )
    return base_url if isinstance(base_url, str) else next(iter(urls), None)


def _images(name: str, base_url: str | None, options: Mapping[str, Any]) -> LanguageModel:
    provider, inner = split_address(_painter(name))
    if provider == "hf":
        from whet.models.diffusion import load

        _check_options("images/hf", options, {**_HF_OPTIONS, "extra_body": (Mapping,)})
        return load(inner, **options)
    from whet.models.images import ImageModel

    return ImageModel(_endpoint(provider, inner, base_url, options))


def _painter(name: str) -> str:
    """The address behind `images/`. Raises UsageError unless it is one at an OpenAI-compatible endpoint, or of hf."""
    if name.partition("/")[0].lower() not in (*PROVIDERS, "hf"):
        raise UsageError(
            f'"images/{name}" names no model that paints. Write images/PROVIDER/NAME, for example '
            "images/openai/gpt-image-1, or images/hf/PATH."
        )
    return name


def at_endpoint(address: str) -> bool:
    """Whether the model of an address is behind an endpoint whose base URL can be named."""
    provider, name = split_address(address)
    if provider == "images":
        provider = split_address(_painter(name))[0]
    return provider in PROVIDERS or provider not in _HERE


def check_base_url(
    address: str,
    base_url: str | Sequence[str],
    key_variable: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> None:
    """Refuse to send a key to an endpoint that only a task file names, not the person who starts the run.

    Raises UsageError where the host is not trusted with what would be sent (`whet.models.endpoint.check_entrusted`), and
    for litellm and every provider of another package at a host that is not named as trusted.
    """
    from whet.models.endpoint import check_entrusted, checked_url, split_urls, trusted_hosts

    provider, name = split_address(address)
    if provider == "images":
        provider = split_address(_painter(name))[0]
    for url in split_urls(base_url):
        if provider in PROVIDERS:
            check_entrusted(url, provider, key_variable, headers)
        elif provider not in _HERE and (checked_url(url).host or "") not in trusted_hosts():
            raise UsageError(
                f"The task file sends the requests of {address} to {url}, and a key may go with them. "
                f"If that is meant, say so with {parameter('base_url')}; if not, remove `base_url`."
            )


def _endpoint(
    provider: str, name: str, base_url: str | Sequence[str] | None, options: Mapping[str, Any]
) -> OpenAIModel:
    from whet.models.openai import DEFAULT_TIMEOUT, OpenAIModel

    _check_options(provider, options, {**_REQUEST_OPTIONS, "headers": (Mapping,)})
    return OpenAIModel(
        name,
        provider=provider,
        base_url=base_url,
        key_variable=options.get("key_variable"),
        headers=options.get("headers"),
        options=_request_options(options),
        timeout=options.get("timeout", DEFAULT_TIMEOUT),
    )


def _litellm(name: str, base_url: str | None, options: Mapping[str, Any]) -> LanguageModel:
    from whet.models.through_litellm import DEFAULT_TIMEOUT, load

    _check_options("litellm", options, _REQUEST_OPTIONS)
    return load(
        name,
        base_url=base_url,
        key_variable=options.get("key_variable"),
        options=_request_options(options),
        timeout=options.get("timeout", DEFAULT_TIMEOUT),
    )


def _request_options(options: Mapping[str, Any]) -> RequestOptions:
    names = {field.name for field in dataclasses.fields(RequestOptions)}
    values = {name: value for name, value in options.items() if name in names}
    return RequestOptions(**values | ({"stop": tuple(values["stop"])} if "stop" in values else {}))


def _hf(name: str, base_url: str | None, options: Mapping[str, Any]) -> LanguageModel:
    from whet.models.huggingface import load

    _check_options("hf", options, _HF_OPTIONS)
    return load(name, **options)


def _open_embedded(name: str, base_url: str | None, options: Mapping[str, object]) -> LanguageModel:
    from whet.models.embedded import load

    _check_options("embedded", options, {})
    return load(name)


def _open_simulated(name: str, base_url: str | None, options: Mapping[str, Any]) -> LanguageModel:
    from whet.models.scripted import provide

    return provide(name, base_url, options)


def _check_options(
    provider: str, options: Mapping[str, object], known: Mapping[str, tuple[type, ...]]
) -> None:
    for key, value in options.items():
        if key not in known:
            raise UsageError(f'{provider}/...: unknown option "{key}".{did_you_mean(key, known)}')
        if not isinstance(value, known[key]) or (isinstance(value, bool) and bool not in known[key]):
            wanted = " or ".join(kind.__name__ for kind in known[key])
            raise UsageError(f"{provider}/...: the option {key} must be {wanted}, found {value!r}.")


_REQUEST_OPTIONS: Mapping[str, tuple[type, ...]] = {
    "timeout": (int, float),
    "key_variable": (str,),
    "temperature": (int, float),
    "stop": (list, tuple),
    "top_p": (int, float),
    "reasoning_effort": (str,),
    "seed": (int,),
    "extra_body": (Mapping,),
    "stream": (bool,),
}
_HF_OPTIONS: Mapping[str, tuple[type, ...]] = {"device": (str,), "batch_size": (int,)}
_PROVIDERS: Mapping[str, Callable[[str, str | None, Mapping[str, object]], LanguageModel]] = {
    "hf": _hf,
    "litellm": _litellm,
    "images": _images,
    "embedded": _open_embedded,
    "scripted": _open_simulated,
}
_BUILT_IN = (*PROVIDERS, *_PROVIDERS)
_HERE = ("hf", "embedded", "scripted")
"""Providers whose models run in this process."""
