"""Addresses: spellings, providers, options."""

from __future__ import annotations

from pathlib import Path

import pytest

from whet.errors import UsageError
from whet.models.addresses import resolve, split_address


@pytest.mark.parametrize("mark", ["/", ":", "::", ":/"])
def test_every_spelling_means_the_same(mark: str) -> None:
    assert split_address(f"openai{mark}meta/llama-3:free") == ("openai", "meta/llama-3:free")


def test_absolute_paths(tmp_path: Path) -> None:
    assert split_address(f"hf/{tmp_path}") == ("hf", str(tmp_path))
    assert split_address(f"hf:{tmp_path}") == ("hf", str(tmp_path))
    assert split_address("hf:/org/model") == ("hf", "org/model")


@pytest.mark.parametrize("address", ["", "gpt-4o", "openai/", "/x", "openai"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(UsageError, match="is not the address of a model"):
        resolve(address)


def test_unknown_providers_and_options_are_named() -> None:
    with pytest.raises(UsageError, match=r'unknown provider "opnai"\. Did you mean "openai"'):
        resolve("opnai/x")
    with pytest.raises(UsageError, match=r'unknown option "timout"\. Did you mean "timeout"'):
        resolve("openai/x", base_url="http://h/v1", options={"timout": 3})
    with pytest.raises(UsageError, match="timeout must be int or float, found '3'"):
        resolve("openai/x", base_url="http://h/v1", options={"timeout": "3"})
    with pytest.raises(UsageError, match="twice"):
        resolve("scripted/echo?seed=1", options={"seed": 2})
    with pytest.raises(UsageError, match="not of the form key=value"):
        resolve("scripted/echo?seed")


def test_models_come_with_their_address() -> None:
    model = resolve("openai::x", base_url="http://h/v1", options={"timeout": 3})
    assert model.address == "openai/x"
    assert resolve("scripted/echo?seed=3").simulated


def test_another_provider_is_reached_by_the_protocol_of_openai() -> None:
    with pytest.raises(UsageError) as refused:
        resolve("somebody/else")
    assert "lm=openai/else and base_url=URL." in str(refused.value)
