"""Local models in worker processes: the numbers of one process, whatever dies, and what is found before anything is asked."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.engine.world import child_processes
from tests.rl import tiny_llama

import whet
from whet.errors import UsageError

pytest.importorskip("torch", reason="local models need torch: pip install 'whet[hf]'")
pytest.importorskip("transformers", reason="local models need transformers: pip install 'whet[hf]'")
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

LETTERS = "abcdefghijkl"
ROWS = [
    {"input": f"write {' '.join(LETTERS[(i + k) % 12] for k in range(1 + i % 5))}", "target": LETTERS[i % 12]}
    for i in range(90)
]
LABELS = [
    {"input": f"say {LETTERS[i % 12]} {LETTERS[i // 12]} {'. ' * (i % 7)}", "target": ("good", "bad")[i % 2]}
    for i in range(60)
]


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As in `make test`, here and in the workers: the last digit of a sum depends on how many threads add it up."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"hf/{tiny_llama.save(tmp_path_factory.mktemp('llama'))}"


def effects(run: Path) -> list[Any]:
    """All that the model of a run has computed, with every digit."""
    with sqlite3.connect(run / "journal.sqlite") as journal:
        return journal.execute(
            "SELECT key, name, digest, value FROM effects WHERE calls > 0 ORDER BY key"
        ).fetchall()


def evaluate(run: Path, model: str, **options: Any) -> list[Any]:
    options = {"data": ROWS, "reward": "exact_match", "split": "train", **options}
    whet.evaluate("Repeat {{input}} now", lm=model, run=run, progress=False, **options)
    assert not child_processes()
    return effects(run)


def optimize(run: Path, model: str, prompt: str = "Say {{input}} {{mask}}", **options: Any) -> list[Any]:
    options = {
        "data": LABELS,
        "labels": ["good", "bad"],
        "reward": "gap",
        "method": "random_search",
        **options,
    }
    whet.optimize(prompt, lm=model, optimizer_lm=write_prompts, run=run, progress=False, **options)
    assert not child_processes()
    return effects(run)


def write_prompts(messages: Any) -> str:
    """Another prompt each time."""
    return f"say it {len(messages[-1].content) % 7} {{{{input}}}} twice"


@pytest.mark.parametrize(("seed", "workers"), [(1, 1), pytest.param(0, 2, marks=pytest.mark.long)])
def test_scores_of_labels_are_those_of_one_process(
    tmp_path: Path, model: str, seed: int, workers: int
) -> None:
    runs = [
        optimize(
            tmp_path / str(n),
            model,
            "say {{input}} :",
            seed=seed,
            workers=n,
            budget=whet.Budget(task_calls=600),
        )
        for n in (0, workers)
    ]
    assert runs[0] == runs[1] and len(runs[0]) > 1


def test_the_masked_model_that_ships_answers_in_workers_too(tmp_path: Path) -> None:
    limit = whet.Budget(task_calls=300)
    assert optimize(tmp_path / "one", "embedded/mlm", workers=1, budget=limit) == optimize(
        tmp_path / "here", "embedded/mlm", workers=0, budget=limit
    )


@contextmanager
def no_weights_read() -> Iterator[None]:
    """This process reads the tokenizer of a model at most."""
    from whet.models import huggingface

    load = huggingface.load_weights

    def load_reader(name: str, device: str | None, *, reader: bool = False) -> Any:
        assert reader, "the run reads weights"
        return load(name, device, reader=reader)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(huggingface, "load_weights", load_reader)
        yield


def kill_one(seen: list[int], done: threading.Event) -> None:
    """Kill the first worker that has read the weights."""
    while not done.is_set():
        for child in psutil.Process().children():
            try:
                if any("safetensors" in file.path or "torch" in file.path for file in child.memory_maps()):
                    time.sleep(0.2)
                    child.kill()
                    seen.append(child.pid)
                    return
            except psutil.Error:
                continue
        time.sleep(0.1)


def test_answers_are_those_of_one_process_whatever_dies_and_another_number_goes_on(
    tmp_path: Path, model: str
) -> None:
    here = evaluate(tmp_path / "here", model, workers=0)
    assert here
    killed, done = list[int](), threading.Event()
    thread = threading.Thread(target=kill_one, args=(killed, done))
    thread.start()
    try:
        with no_weights_read():
            assert evaluate(tmp_path / "there", model, workers=2) == here
    finally:
        done.set()
        thread.join()
    assert killed and killed[0] != os.getpid()
    (tmp_path / "there" / "result.json").unlink()
    assert evaluate(tmp_path / "there", model, workers=0) == here


def count_calls(calls: list[object]) -> Callable[[Any], str]:
    def write(messages: Any) -> str:
        calls.append(messages)
        return write_prompts(messages)

    return write


def test_weights_that_cannot_be_read_are_found_before_anything_is_asked(tmp_path: Path) -> None:
    folder, calls = tiny_llama.save(tmp_path / "broken"), list[object]()
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(UsageError, match=rf"hf/{folder} cannot be loaded on cpu"):
        whet.optimize(
            "say {{input}} :",
            lm=f"hf/{folder}",
            optimizer_lm=count_calls(calls),
            data=LABELS,
            labels=["good", "bad"],
            reward="gap",
            method="random_search",
            workers=1,
            run=tmp_path / "run",
            progress=False,
        )
    assert not calls and not child_processes()


def test_workers_must_have_the_packages_of_the_run() -> None:
    from whet._util.workers.surroundings import find_version
    from whet.models.model_calls import load_check

    load_check("hf/m", {"torch": str(find_version("torch"))})()
    with pytest.raises(UsageError, match=r"hf/m: torch is .*, and the run has torch 1\.0\. Install the same"):
        load_check("hf/m", {"torch": "1.0"})
    with pytest.raises(UsageError, match="there is no package nonesuch, and the run has nonesuch 2"):
        load_check("hf/m", {"nonesuch": "2"})


async def test_workers_share_the_batches_of_concurrent_branches_and_of_a_call(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from whet.models.addresses import resolve
    from whet.models.model_workers import WorkerChoice, models_in_workers

    here: Any = resolve(model)
    with models_in_workers(WorkerChoice("processes", 2, None)):
        there: Any = resolve(model)
    await there.workers.prepare()
    try:
        await check_concurrent_branches(here, there, monkeypatch)
        await check_batches_of_a_call(here, there)
    finally:
        await there.close()
        await here.close()


async def check_concurrent_branches(here: Any, there: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty requests at once are two batches of ten for two workers, and the seven that come meanwhile are a third."""
    from whet.models.model_workers import ModelWorkers
    from whet.types import Message, Request

    sizes, began, generate = list[int](), asyncio.Event(), ModelWorkers.generate

    async def counting(self: ModelWorkers, requests: Any, size: int) -> Any:
        sizes.append(len(requests))
        if len(sizes) == 2:
            began.set()
        return await generate(self, requests, size)

    asks = [Request((Message("user", row["input"]),), 0.5, 8, seed=i) for i, row in enumerate(ROWS[:27])]
    with monkeypatch.context() as patch:
        patch.setattr(ModelWorkers, "generate", counting)
        first = asyncio.gather(*[there.generate(request) for request in asks[:20]])
        await began.wait()
        second = asyncio.gather(*[there.generate(request) for request in asks[20:]])
        answers = [*await first, *await second]
    assert sizes == [10, 10, 7]
    assert [[a.text for a in group] for group in answers] == [
        [a.text for a in await here.generate(request)] for request in asks
    ]


async def check_batches_of_a_call(here: Any, there: Any) -> None:
    """300 sequences are ten batches of 32, and the texts to score are long enough for two workers."""
    from whet.prompt import Prompt
    from whet.types import Message, Request

    asks = [
        Request(
            (Message("user", f"write {LETTERS[i % 12]} {'say ' * (i % 9)}"),),
            0.7 * (i % 2),
            8,
            n=1 + i % 3,
            seed=i,
        )
        for i in range(150)
    ]
    prompts = [Prompt.parse(f"say {'it ' * k}{{{{input}}}} :") for k in range(4)]
    inputs = [{"input": f"{LETTERS[i % 12]} {LETTERS[i // 12]} {'. ' * (i % 40)}"} for i in range(140)]
    labels = [["good", "bad twice"]] * len(inputs)
    assert await there.generate_batch(asks) == await here.generate_batch(asks)
    ours, theirs = [await one.score(prompts, inputs, labels) for one in (here, there)]
    assert theirs.logprobs.tolist() == ours.logprobs.tolist()
    assert theirs.tokens.tolist() == ours.tokens.tolist()


@pytest.mark.parametrize(
    ("gpus", "visible", "wanted"),
    [
        (None, "", ["0", "1"]),
        (0.5, "", ["0", "1", "0", "1"]),
        (1, "4,6", ["4", "6"]),
        (0.4, "4,6", ["4", "6", "4", "6"]),
        (0, "", []),
    ],
)
def test_copies_are_spread_over_gpus(
    monkeypatch: pytest.MonkeyPatch, gpus: float | None, visible: str, wanted: list[str]
) -> None:
    """Simulated: two GPUs, as torch would count them."""
    import torch

    from whet.models.model_workers import list_gpu_places

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert [place["CUDA_VISIBLE_DEVICES"] for place in list_gpu_places(gpus)] == wanted


def test_gpus_that_are_not_there_are_refused(tmp_path: Path, model: str) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(UsageError, match=r"worker_gpus=0\.5: torch finds no GPU"):
        evaluate(tmp_path / "run", model, workers=2, worker_gpus=0.5)
    with pytest.raises(UsageError, match="worker_gpus must be a number between 0 and 1; this is 2"):
        evaluate(tmp_path / "run", model, workers=2, worker_gpus=2)
