"""Local models as actors of a Ray cluster: the numbers of one process, whatever dies, and files that a node lacks."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import whet
from tests.models.test_model_workers import LABELS, effects, no_weights_read, one_thread, write_prompts
from tests.ray_cluster.conftest import Nodes
from tests.ray_cluster.test_ray import lasting_actors, processes_of_actors
from tests.rl import tiny_llama
from whet._util.workers.sent_files import describe_files
from whet.errors import UsageError
from whet.models import model_workers

pytest.importorskip("torch", reason="local models need torch: pip install 'whet[hf]'")
pytest.importorskip("transformers", reason="local models need transformers: pip install 'whet[hf]'")
pytestmark = [
    pytest.mark.ray,
    pytest.mark.filterwarnings("ignore"),  # Ray's own
]
__all__ = ["one_thread"]

ROWS = [{"input": f"write {'a ' * (i % 5)}{i}", "target": "a"} for i in range(120)]
"""Of which more are for training than a batch holds."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama.save(tmp_path_factory.mktemp("llama"))


def evaluate(run: Path, folder: Path, **options: Any) -> list[Any]:
    whet.evaluate(
        "Repeat {{input}} now", data=ROWS, reward="exact_match", split="train", lm=f"hf/{folder}", run=run,
        **{"progress": False, **options},
    )  # fmt: skip
    return effects(run)


def optimize(run: Path, **options: Any) -> list[Any]:
    whet.optimize(
        "Say {{input}} {{mask}}", data=LABELS, labels=["good", "bad"], reward="gap", lm="embedded/mlm",
        optimizer_lm=write_prompts, method="random_search", budget=whet.Budget(task_calls=300), run=run,
        progress=False, **options,
    )  # fmt: skip
    return effects(run)


@contextlib.contextmanager
def after_calls(count: int, do: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Once so many calls were sent to the copies of a model, `do` happens in a thread, while they compute."""
    sent, share = list[int](), model_workers.ModelWorkers._share
    threads = list[threading.Thread]()

    async def counting(self: Any, call: str, batches: int, arguments: Any) -> Any:
        sent.append(batches)
        if len(sent) == count:
            threads.append(threading.Thread(target=do))
            threads[0].start()
        return await share(self, call, batches, arguments)

    with monkeypatch.context() as patch:
        patch.setattr(model_workers.ModelWorkers, "_share", counting)
        yield sent
    for thread in threads:
        thread.join()


def end_one_actor() -> None:
    """As a machine does that has no memory left for it."""
    next(process for process in processes_of_actors() if "RayActor" in process.name()).kill()


def end_one_child() -> None:
    """The process with the weights, and not the actor that started it."""
    next(process for process in processes_of_actors() if "RayActor" not in process.name()).kill()


@pytest.mark.parametrize("end", [end_one_child, end_one_actor])
def test_answers_are_those_of_one_process_whatever_dies_and_another_engine_goes_on(
    nodes: Nodes, tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, end: Callable[[], None]
) -> None:
    here = evaluate(tmp_path / "here", folder, engine="local")
    assert here
    with after_calls(1, end, monkeypatch) as sent, no_weights_read():
        assert evaluate(tmp_path / "there", folder, engine="ray", workers=2) == here
    assert sent and max(sent) > 1, "a call has batches for both copies"
    assert not lasting_actors()
    (tmp_path / "there" / "result.json").unlink()
    assert evaluate(tmp_path / "there", folder, engine="local") == here


def test_the_masked_model_that_ships_scores_labels_in_actors(nodes: Nodes, tmp_path: Path) -> None:
    assert optimize(tmp_path / "there", engine="ray", workers=2) == optimize(
        tmp_path / "here", engine="local"
    )
    assert not lasting_actors()


def test_a_node_that_dies_costs_the_batches_that_it_had_in_hand(
    nodes: Nodes, tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = evaluate(tmp_path / "here", folder, engine="local")
    node = nodes.add()
    with after_calls(1, lambda: nodes.kill(node), monkeypatch) as sent:
        assert evaluate(tmp_path / "there", folder, engine="ray", workers=2) == here
    assert sent


def test_a_node_that_lacks_the_folder_gets_the_weights_once_and_computes_the_same(
    nodes: Nodes, tmp_path: Path, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The second node has other mounts, in which the folder is empty, and a cache of its own."""
    here, cache, files = (
        evaluate(tmp_path / "here", folder, engine="local"),
        tmp_path / "cache",
        describe_files(str(folder)),
    )
    with nodes.joined_without(folder, tmp_path, {"XDG_CACHE_HOME": str(cache)}):
        for number in (1, 2):
            capfd.readouterr()
            run = tmp_path / str(number)
            assert evaluate(run, folder, engine="ray", workers=4, progress=True) == here
            said = capfd.readouterr().err
            assert f"plan: hf/{folder}: each node of the Ray cluster that lacks its files gets" in said
            assert said.count("from this machine\n") == (number == 1), said
            (copy,) = [path for path in (cache / "whet" / "models").iterdir() if path.is_dir()]
            assert describe_files(str(copy)) == files
    assert not lasting_actors()


def test_a_node_without_the_packages_is_named_before_anything_is_asked(
    nodes: Nodes, tmp_path: Path, folder: Path
) -> None:
    hiding = tmp_path / "hiding"
    hiding.mkdir()
    (hiding / "sitecustomize.py").write_text(OTHER_VERSION)
    nodes.add(env_vars={"PYTHONPATH": os.pathsep.join([str(hiding), os.environ.get("PYTHONPATH", "")])})
    # Of two actors, Ray may place both on the head; four are on both nodes.
    with pytest.raises(UsageError, match=r"safetensors is 0\.0\.1, and the run has safetensors"):
        evaluate(tmp_path / "run", folder, engine="ray", workers=4)
    assert not (tmp_path / "run" / "journal.sqlite").exists() or not effects(tmp_path / "run")


OTHER_VERSION = """
import importlib.metadata as metadata

version = metadata.version
metadata.version = lambda name: "0.0.1" if name == "safetensors" else version(name)
"""
