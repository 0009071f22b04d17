"""A model's folder may bring code of its own; nobody is asked whether to run it, and it is not run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from whet.errors import UsageError
from whet.models.huggingface_load import load_weights

CODE = """
from pathlib import Path
Path("MARKER").touch()
from transformers import PretrainedConfig
class Own(PretrainedConfig):
    model_type = "own"
"""


def test_code_in_a_folder_is_not_run_also_where_somebody_would_say_yes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers")
    marker = tmp_path / "ran"
    folder = tmp_path / "model"
    folder.mkdir()
    config = {"model_type": "own", "auto_map": {"AutoConfig": "own.Own", "AutoModelForCausalLM": "own.Own"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "own.py").write_text(CODE.replace("MARKER", str(marker)))
    asked: list[str] = []

    def yes(question: str = "") -> str:
        asked.append(question)
        return "y"

    monkeypatch.setattr("builtins.input", yes)
    with pytest.raises(UsageError, match="cannot be loaded"):
        load_weights(str(folder), "cpu")
    assert asked == []
    assert not marker.exists()
