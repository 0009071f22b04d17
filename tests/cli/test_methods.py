"""`whet methods NAME`: one method with all that its settings take, without reading a page."""

from __future__ import annotations

import dataclasses
import json
import sys

import pytest
from click.testing import CliRunner

from whet.cli.main import cli
from whet.methods import METHODS, get_method

SHOWN = {
    "opro": (
        "OPRO: a model reads the score history",
        "paper: Yang et al., ICLR 2024 (https://arxiv.org/abs/2309.03409)",
        "choose it when: the reward is only a number",
        "needs: an optimizer model",
        "page: docs/methods/opro.md",
        "whet.methods.opro.Config(KEY=VALUE) in Python",
        "steps = 200    whole number, 0 or more",
        "Rounds of writing and scoring.",
    ),
    "prewrite": (
        "needs: a policy (default: embedded/tiny), the extra train: pip install 'whet[train]'",
        "loss = ppo    ppo, cispo, importance",
        "top_p = 1.0    number, above 0, at most 1",
        "examples = 16    whole number or none, 1 or more",
        "Updates of the rewriter.",
    ),
}


@pytest.mark.parametrize("name", SHOWN)
def test_a_method_is_shown_with_its_settings(name: str) -> None:
    shown = CliRunner().invoke(cli, ["methods", name])
    assert shown.exit_code == 0 and not [text for text in SHOWN[name] if text not in shown.output], (
        shown.output
    )


@pytest.mark.parametrize("name", METHODS)
def test_every_setting_of_every_method_is_described(name: str) -> None:
    said = json.loads(CliRunner().invoke(cli, ["methods", name, "--json"]).stdout)
    fields = dataclasses.fields(get_method(name).config)
    assert [setting["name"] for setting in said["settings"]] == [field.name for field in fields]
    assert all(setting["meaning"] for setting in said["settings"])


def test_a_method_whose_extra_is_missing_is_shown_without_its_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    for module in [name for name in sys.modules if name.startswith(("whet.methods.prewrite", "whet.rl"))]:
        monkeypatch.delitem(sys.modules, module)
    shown = CliRunner().invoke(cli, ["methods", "prewrite"])
    assert shown.exit_code == 0, shown.output
    assert (
        "needs: a policy (default: embedded/tiny), the extra train: pip install 'whet[train]'" in shown.output
    )
    assert "settings: not shown. The method prewrite needs torch." in shown.output
    said = json.loads(CliRunner().invoke(cli, ["methods", "prewrite", "--json"]).stdout)
    assert "settings" not in said and "whet[train]" in said["missing"]


def test_an_unknown_method_gets_the_nearest_name() -> None:
    refused = CliRunner().invoke(cli, ["methods", "oprro"])
    assert 'There is no method "oprro". Did you mean "opro"?' in str(refused.exception)


def test_an_installation_without_the_docs_names_no_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whet.methods.is_page_here", lambda page: False)
    shown = CliRunner().invoke(cli, ["methods", "opro"])
    assert shown.exit_code == 0 and "page:" not in shown.output and "docs/" not in shown.output
