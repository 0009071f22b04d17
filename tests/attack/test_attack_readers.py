"""Nothing that is read runs: a pickle under another name is refused by every reader, and whole runs unpickle nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="weights need torch: pip install 'whet[train]'")
pytest.importorskip("transformers", reason="weights need transformers: pip install 'whet[train]'")
pytest.importorskip("peft", reason="writers need peft: pip install 'whet[train]'")

import torch
from benchmarks.simulated.clause_tasks import write_task

from whet import api
from whet.errors import UsageError
from whet.models.embedded import TINY
from whet.models.huggingface_load import load_weights
from whet.rewards.preference.model import PreferenceModel
from whet.rl.blob import read_blob

SETTINGS = {"steps": 1, "group": 2, "examples": 2, "max_tokens": 8, "rewrites": 1, "checks": 1, "lr": 3e-3}


class _Listener:
    """Notes what is looked up by an unpickler, while it listens. An audit hook cannot be taken out again."""

    def __init__(self) -> None:
        self.listening = False
        self.heard: list[str] = []

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.listening and event == "pickle.find_class":
            self.heard.append(".".join(map(str, arguments)))


_LISTENER = _Listener()
sys.addaudithook(_LISTENER)


@pytest.fixture
def unpickled() -> Iterator[list[str]]:
    """What an unpickler looked up so far in this test."""
    _LISTENER.heard, _LISTENER.listening = [], True
    yield _LISTENER.heard
    _LISTENER.listening = False


class Payload:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return os.mkdir, (str(self.folder),)


def pickled(folder: Path) -> bytes:
    """A pickle that makes a folder."""
    return b"cos\nmkdir\n(V" + str(folder).encode() + b"\ntR."


HEARD = """
import runpy, sys
sys.addaudithook(lambda event, arguments: event == "pickle.find_class" and print(*arguments))
runpy.run_module("pickle", run_name="__main__")
"""


def test_positive_control_an_unpickler_is_heard_and_the_payload_works(tmp_path: Path) -> None:
    (tmp_path / "payload").write_bytes(pickled(tmp_path / "hacked"))
    command = [sys.executable, "-c", HEARD, str(tmp_path / "payload")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (tmp_path / "hacked").is_dir() and "os mkdir" in done.stdout


def readers(folder: Path) -> dict[str, Callable[[bytes], object]]:
    """Whatever takes weights, each as a function of their bytes."""

    def model(blob: bytes) -> object:
        shutil.copytree(TINY, folder / "model", dirs_exist_ok=True)
        (folder / "model" / "model.safetensors").write_bytes(blob)
        return load_weights(str(folder / "model"), "cpu")

    return {
        "a model's folder": model,
        "a checkpoint": lambda blob: read_blob(blob, "weights"),
        "a policy": lambda blob: read_blob(blob, "a policy"),
        "a preference model": lambda blob: PreferenceModel.load(blob, "here"),
    }


@pytest.mark.parametrize("reader", readers(Path()))
def test_a_pickle_under_another_name_is_refused_and_not_run(
    tmp_path: Path, unpickled: list[str], reader: str
) -> None:
    for blob in (pickled(tmp_path / "hacked"), _saved_by_torch(tmp_path)):
        with pytest.raises(UsageError):
            readers(tmp_path)[reader](blob)
    assert not (tmp_path / "hacked").exists() and unpickled == []


def _saved_by_torch(folder: Path) -> bytes:
    """What `torch.save` writes: an archive with a pickle in it."""
    torch.save({"weight": torch.zeros(2), "payload": Payload(folder / "hacked")}, folder / "weights.bin")
    return (folder / "weights.bin").read_bytes()


def test_a_folder_with_a_pickle_only_is_no_model(tmp_path: Path, unpickled: list[str]) -> None:
    folder = tmp_path / "model"
    shutil.copytree(TINY, folder)
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(_saved_by_torch(tmp_path))
    with pytest.raises(UsageError, match="cannot be loaded"):
        load_weights(str(folder), "cpu")
    assert not (tmp_path / "hacked").exists() and unpickled == []


def test_a_run_that_trains_weights_and_one_that_goes_on_from_them_unpickle_nothing(
    tmp_path: Path, unpickled: list[str]
) -> None:
    torch.set_num_threads(1)
    (tmp_path / "task").mkdir()
    write_task(tmp_path / "task", 1, clauses=2, rows=9)
    for number, policy in enumerate(("embedded/tiny", str(tmp_path / "run-0" / "checkpoint"))):
        out = tmp_path / f"run-{number}"
        found = api.optimize(tmp_path / "task", method="prewrite", settings=SETTINGS, policy=policy, run=out)
        assert found["status"] == "completed"
    assert list((tmp_path / "run-1" / "checkpoint").glob("*.safetensors"))
    assert unpickled == []
