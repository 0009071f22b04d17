"""Training by several processes: the same texts, numbers and gradients as by one, and nothing that stays behind."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="writers need torch: pip install 'whet[train]'")
pytest.importorskip("transformers", reason="writers need transformers: pip install 'whet[train]'")
pytest.importorskip("peft", reason="writers need peft: pip install 'whet[train]'")

from benchmarks.simulated.clause_tasks import write_task  # noqa: E402
from tests.rl.tiny_llama import save  # noqa: E402 - after the checks for extras

from whet import api  # noqa: E402
from whet.errors import ProviderError, UsageError  # noqa: E402
from whet.rl.policy_model import LoraSettings, PolicyModel, Sample, Update  # noqa: E402
from whet.rl.policy_model.distributed import WorkerGroup, check_processes  # noqa: E402
from whet.rl.policy_model.distributed_worker import open_replica as opened_by_a_worker  # noqa: E402
from whet.rl.policy_model.learning import PolicyPasses, UpdateBatch  # noqa: E402
from whet.rl.policy_model.sampling import Sampling, rows_for  # noqa: E402
from whet.types import Message  # noqa: E402

ASK = [Message("user", "write in capitals the words a b c")]
SAY = [Message("user", "say it twice")]
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="module")
def writer(folder: Path) -> PolicyModel:
    """Adapters that are not at their neutral start, and a reference that is not either."""
    writer = PolicyModel.open(f"hf/{folder}", LoraSettings(rank=4), seed=1)
    writer.imitate([(ASK, "a b c d")], Update(lr=0.02))
    writer.set_reference_policy()
    samples = [s for group in writer.sample([ASK, SAY], 3, max_tokens=8) for s in group]
    writer.update(samples, [1.0, -1.0] * 3, Update(lr=0.02))
    return writer


@pytest.fixture(scope="module")
def here(writer: PolicyModel) -> PolicyPasses:
    return PolicyPasses(writer.body, 10_000)


@pytest.fixture(scope="module", params=[2, pytest.param(3, marks=pytest.mark.long)])
def fleet(here: PolicyPasses, request: pytest.FixtureRequest) -> Iterator[WorkerGroup]:
    """At the end the first process is gone for one of them, which then ends by itself, and the others are told to."""
    fleet = WorkerGroup(here, request.param)
    yield fleet
    orphan = fleet.workers[0]
    orphan._open_link().close()
    assert orphan.process.wait(600) == 0
    fleet.close()
    assert all(worker.process.returncode is not None for worker in fleet.workers)


@pytest.fixture(scope="module")
def samples(writer: PolicyModel) -> list[Sample]:
    """Ten texts of different lengths, half of them with tokens of others, away from the weights they were drawn by."""
    first = [s for group in writer.sample([ASK, SAY], 5, max_tokens=8, seed=3) for s in group]
    longer = writer.sample_turn(first[::2], [[Message("user", "b c")]] * 5, max_tokens=5, seed=4)
    mixed = [one for pair in zip(longer, first[1::2], strict=True) for one in pair]
    return [
        dataclasses.replace(s, logprobs=tuple(p + 0.1 * (-1) ** (i + j) for j, p in enumerate(s.logprobs)))
        for i, s in enumerate(mixed)
    ]


def gradients(replica: PolicyPasses) -> dict[str, Any]:
    """Those that were added up, which are then forgotten."""
    found = {}
    for name, weight in replica.body.trainable.items():
        found[name], weight.grad = weight.grad, None
    return found


def check_gradients(alone: dict[str, Any], together: dict[str, Any]) -> None:
    assert alone.keys() == together.keys()
    assert any(g is not None and g.abs().max() > 1e-4 for g in alone.values())
    for name, gradient in alone.items():
        if gradient is None:
            assert together[name] is None
        else:
            torch.testing.assert_close(together[name], gradient, atol=1e-5, rtol=1e-5)


def test_texts_do_not_depend_on_the_number_of_processes(
    writer: PolicyModel, here: PolicyPasses, fleet: WorkerGroup
) -> None:
    """Also where a conversation comes several times and its copies are written by different processes."""
    prompts = [writer.read(one) for one in (ASK, SAY, ASK)]
    for n, temperature in ((1, 1.0), (4, 0.7), (2, 0.0)):
        how = Sampling(10, temperature, 5, ("mark",))
        rows = [rows_for(prompts, n, how) for _ in range(2)]
        alone, together = here.write(rows[0], how), fleet.write(rows[1], how)
        assert [(s.text, s.tokens, s.ended) for s in together] == [(s.text, s.tokens, s.ended) for s in alone]
        assert [s.temperature for s in together] == [s.temperature for s in alone]
        for one, other in zip(alone, together, strict=True):
            assert other.logprobs == pytest.approx(one.logprobs, abs=1e-5)
    assert fleet.write([], how) == []


@pytest.mark.parametrize("reference", [False, True])
def test_what_is_read_does_not_depend_on_it(
    here: PolicyPasses, fleet: WorkerGroup, samples: list[Sample], reference: bool
) -> None:
    alone = here.logprobs(samples, reference=reference)
    together = fleet.logprobs(samples, reference=reference)
    assert [len(row) for row in together] == [len(s.tokens) for s in samples]
    assert together == [pytest.approx(row, abs=1e-5) for row in alone]


@pytest.mark.parametrize(
    "settings",
    [
        Update(clip_low=0.1, clip_high=0.05),
        Update(loss="importance", kl=0.1),
        Update(loss="reinforce"),
        Update(kl=0.1),
    ],
    ids=lambda s: f"{s.loss}-{s.kl:g}",
)
def test_the_gradient_is_that_of_one_process(
    here: PolicyPasses, fleet: WorkerGroup, samples: list[Sample], settings: Update
) -> None:
    advantages = [[0.3 * i - 1] * len(s.tokens) for i, s in enumerate(samples)]
    ref = here.logprobs(samples, reference=True) if settings.kl else None
    batch = UpdateBatch(samples, advantages, ref)
    alone = here.gradients(batch, settings), gradients(here)
    together = fleet.gradients(batch, settings), gradients(here)
    check_gradients(alone[1], together[1])
    assert dataclasses.asdict(together[0]) == pytest.approx(dataclasses.asdict(alone[0]), rel=1e-4, abs=1e-6)
    few = batch.take(range(len(fleet.workers)))  # fewer samples than processes
    here.gradients(few, settings)
    expected = gradients(here)
    fleet.gradients(few, settings)
    check_gradients(expected, gradients(here))


def test_the_workers_follow_every_change_of_the_weights(
    writer: PolicyModel, here: PolicyPasses, fleet: WorkerGroup, samples: list[Sample]
) -> None:
    before = writer.save()

    def check() -> Any:
        for reference in (False, True):
            alone = here.logprobs(samples, reference=reference)
            assert fleet.logprobs(samples, reference=reference) == [pytest.approx(r, abs=1e-5) for r in alone]
        return here.logprobs(samples), here.logprobs(samples, reference=True)

    first = check()
    writer.update(samples, [1.0, -1.0] * 5, Update(lr=0.02))
    moved = check()
    assert first[0] != moved[0] and first[1] == moved[1]
    writer.set_reference_policy()
    assert check()[1] != first[1]
    fresh = PolicyModel.open(writer.address, writer.settings, seed=1).save()
    writer.load(fresh)  # without an anchor: the reference is the base
    assert here.body.anchor is None and check()[1] != first[1]
    writer.load(before)
    assert check() == first


def step(writer: PolicyModel, number: int) -> dict[str, float]:
    samples = [s for group in writer.sample([ASK, SAY], 3, max_tokens=6, seed=number) for s in group]
    settings = Update(lr=1e-2, kl=0.05, epochs=2, minibatch=4)
    return writer.update(samples, [1.0, -1.0, 0.5] * 2, settings)


@pytest.mark.long
def test_a_resumed_training_is_the_uninterrupted_one_bit_for_bit(folder: Path) -> None:
    straight, resumed = (
        PolicyModel.open(f"hf/{folder}", LoraSettings(rank=4), seed=seed, processes=2) for seed in (1, 77)
    )
    try:
        step(straight, 0)
        blob = straight.save()
        figures = [step(straight, number) for number in (1, 2)]
        step(resumed, 5)  # what a process did before it loads is forgotten
        resumed.load(blob)
        again = [step(resumed, number) for number in (1, 2)]
        assert resumed.save() == straight.save()
        plain = {"seconds", "memory"}
        assert [{k: v for k, v in f.items() if k not in plain} for f in again] == [
            {k: v for k, v in f.items() if k not in plain} for f in figures
        ]
    finally:
        straight.close()
        resumed.close()
    alone = step(straight, 3)
    assert straight.save() != resumed.save(), "a closed writer goes on by itself"
    assert figures[-1]["memory"] > 1.5 * alone["memory"], "the memory of all processes"


def test_seconds_count_once_for_each_process(
    here: PolicyPasses, fleet: WorkerGroup, samples: list[Sample]
) -> None:
    writer = PolicyModel(here.body, 0)
    writer._all = fleet
    found = writer.update(samples, [0.0] * 10, Update(lr=0.0))
    assert writer.seconds["update"] == pytest.approx((1 + len(fleet.workers)) * found["seconds"])


@pytest.mark.long
def test_a_worker_that_fails_ends_the_training_with_one_error(here: PolicyPasses) -> None:
    failing = WorkerGroup(here, 2)
    (worker,) = failing.workers
    worker.answer()  # that it is ready
    worker.ask({"job": "logprobs"})
    with pytest.raises(ProviderError, match=r"process 1 of the training failed: KeyError: 'samples'"):
        worker.answer()
    failing.close()


@pytest.mark.parametrize("at_work", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_worker_that_dies_ends_the_training_with_one_error(
    here: PolicyPasses, samples: list[Sample], at_work: bool
) -> None:
    """Whether it has answered before or has yet to open the model."""
    dying = WorkerGroup(here, 2)
    (worker,) = dying.workers
    if at_work:
        assert len(dying.logprobs(samples)) == 10
    os.kill(worker.process.pid, signal.SIGKILL)
    for _ in range(2):
        with pytest.raises(
            ProviderError, match=rf"process 1 .*\(pid {worker.process.pid}\) was ended by SIGKILL"
        ):
            dying.logprobs(samples)
    assert worker.process.returncode == -signal.SIGKILL


FOREVER = """
import signal
import sys
from whet.rl.policy_model import LoraSettings, PolicyModel, Update
from whet.types import Message

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs are started with it ignored
writer = PolicyModel.open(sys.argv[1], LoraSettings(rank=4), processes=2)
ask = [Message("user", "write in capitals the words a b c")]
while True:
    (group,) = writer.sample([ask], 4, max_tokens=8)
    writer.update(group, [1.0, -1.0] * 2, Update(lr=1e-3))
    print("step", flush=True)
"""


@pytest.mark.long
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_no_worker_outlives_the_first_process(folder: Path, how: signal.Signals) -> None:
    """After SIGKILL, and after Ctrl-C, which every process of a terminal gets.

    The workers hold the standard error of the first process: it ends when the last of them has ended.
    """
    main = subprocess.Popen(
        [sys.executable, "-c", FOREVER, f"hf/{folder}"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    with main:
        try:
            assert main.stdout is not None and main.stdout.readline() == "step\n"
            os.killpg(main.pid, how)
            _, said = main.communicate(timeout=600)
            assert main.returncode == -how and ("KeyboardInterrupt" in said) == (how == signal.SIGINT)
            assert said.count("Traceback") <= 1, "nothing of the workers"
        finally:
            main.kill()


def workers() -> set[str]:
    """Process ids of the workers of this process, where the system tells them."""
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    pids = children.read_text().split() if children.exists() else []
    found = set()
    for pid in pids:
        with suppress(OSError):  # it ended meanwhile
            found |= {pid} if b"distributed_worker" in Path(f"/proc/{pid}/cmdline").read_bytes() else set()
    return found


@pytest.mark.long
def test_a_run_of_two_processes_finds_what_one_finds_and_leaves_none_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_task(tmp_path / "task", 1, clauses=2, rows=18)
    before = workers()
    settings = {
        "steps": 2,
        "group": 3,
        "examples": 2,
        "max_tokens": 12,
        "rewrites": 2,
        "checks": 1,
        "lr": 3e-3,
    }
    found = []
    for n in (1, 2):
        monkeypatch.setenv(
            "WHET_STATE", str(tmp_path / f"{n}/state")
        )  # each opens the test for the first time
        more: dict[str, Any] = {"method": "prewrite", "settings": settings, "processes": n}
        found.append(api.optimize(tmp_path / "task", run=tmp_path / f"{n}/run", **more))
    same = [{k: v for k, v in one.items() if k not in ("usage", "run")} for one in found]
    assert same[0] == same[1] and found[0]["usage"]["calls"] == found[1]["usage"]["calls"]
    trained = [
        PolicyModel.open(str(tmp_path / f"{n}/run/checkpoint"), None, 0).body.trainable for n in (1, 2)
    ]
    # Adam divides by the size of a gradient, so rounding may turn a single weight whose gradient is nearly 0 by a whole
    # step; a gradient that was lost or counted twice turns all of them.
    for name, weight in trained[0].items():
        assert torch.linalg.norm(trained[1][name] - weight) <= 0.01 * torch.linalg.norm(weight)
    assert workers() == before


@pytest.mark.long
def test_processes_of_torchrun_train_one_run(tmp_path: Path) -> None:
    """The second process helps the first, which has the run, and ends with it; one process finds the same."""
    write_task(tmp_path / "task", 1, clauses=2, rows=18)
    settings = {
        "steps": 2,
        "group": 3,
        "examples": 2,
        "max_tokens": 12,
        "rewrites": 2,
        "checks": 1,
        "lr": 3e-3,
    }
    more = [option for key, value in settings.items() for option in ("--set", f"{key}={value}")]
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m"]
    found = []
    for n, start in enumerate((["-m"], launch)):
        command = [
            sys.executable,
            *start,
            "whet",
            "optimize",
            str(tmp_path / "task"),
            "--method",
            "prewrite",
            *more,
        ]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "WHET_STATE": str(tmp_path / f"{n}/state")}
        options = ["--out", str(tmp_path / f"{n}/run"), "--json"]
        done = subprocess.run(
            [*command, *options], capture_output=True, text=True, env=environment, check=True
        )
        found.append(json.loads(done.stdout))
        assert ("in each of 2 processes" in done.stderr) == bool(n)
    same = [{k: v for k, v in one.items() if k not in ("usage", "run")} for one in found]
    assert same[0] == same[1] and found[0]["usage"]["calls"] == found[1]["usage"]["calls"]


def test_another_number_of_processes_than_torchrun_started_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in (("TORCHELASTIC_RUN_ID", "x"), ("RANK", "0"), ("WORLD_SIZE", "3")):
        monkeypatch.setenv(name, value)
    check_processes(3)
    with pytest.raises(UsageError, match="torchrun started 3 processes"):
        check_processes(2)


def test_a_worker_refuses_another_model(here: PolicyPasses) -> None:
    body = here.body
    facts = {
        "address": body.address, "base": "0" * 64, "lora": dataclasses.asdict(body.settings), "device": "cpu",
        "threads": torch.get_num_threads(), "batch_tokens": 100,
    }  # fmt: skip
    with pytest.raises(UsageError, match=f"{'0' * 64}.*{body.fingerprint}"):
        opened_by_a_worker(facts)
    assert opened_by_a_worker({**facts, "base": body.fingerprint}).batch_tokens == 100


def test_numbers_of_processes_that_cannot_be_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = tmp_path / "task"
    write_task(task, 1, clauses=2, rows=18)
    for method, processes, said in (
        ("random_search", 2, "trains no policy"),
        ("prewrite", 0, "must be 1 or more"),
    ):
        with pytest.raises(UsageError, match=said):
            api.optimize(task, method=method, processes=processes, run=tmp_path / "run")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(UsageError, match=r"processes=3 needs as many GPUs.*there are 2"):
        api.optimize(task, method="prewrite", policy="embedded/tiny", processes=3, run=tmp_path / "run")
    assert not (tmp_path / "run").exists(), "nothing is written"
    check_processes(2)
    check_processes(9, "cpu")
    with pytest.raises(UsageError, match="there are 2"):
        check_processes(2, "cuda:1")
