"""Data-parallel training: the work on a policy's weights shared among processes, one for each GPU.

The first process is the ordinary one, with the run, the optimiser and the samples. Each of the others is a worker
(`whet.rl.policy_model.distributed_worker`) with a replica of the model. Before every piece of work the workers get the weights
that changed; then each process takes a slice of the texts to write, the samples to read or the minibatch to learn
from. A minibatch's loss is a sum over tokens with a weight known beforehand, so the gradients that come back are added
up, in the order of the workers, and the first process takes the step. Only samples, adapters and their gradients
travel, as safetensors bytes, by torch.distributed's gloo between the first process and each worker: a worker whose first process
is gone ends, and a worker that is gone is an error here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import torch

from whet.errors import ProviderError, UsageError, parameter
from whet.rl import blob
from whet.rl.advantages import Rows
from whet.rl.launcher import place_among_processes
from whet.rl.policy_model.gloo_link import GlooLink, dist, store_in, store_of_launcher
from whet.rl.policy_model.learning import Figures, PolicyPasses, UpdateBatch
from whet.rl.policy_model.optimizer import Update
from whet.rl.policy_model.sampling import Sample, Sampling, SamplingRow

WORKER = "whet.rl.policy_model.distributed_worker"
OPENING, READY = "opening.json", "ready"
"""Files in a folder that a worker shares with the first process: what it opens, and that it has."""
PATIENCE = 10.0
"""Seconds after which a worker that no longer answers is killed."""
LOOK = 0.02
"""Seconds between two looks whether a worker that was just started is there."""

T = TypeVar("T")
S = TypeVar("S")
Facts = dict[str, Any]
Answer = tuple[Facts, blob.Parts]


def check_processes(processes: int, device: str | None = None) -> None:
    """Raise UsageError for fewer than one process, or for more of them than there are GPUs to put them on.

    `device`: that of the first process; None takes CUDA where there is one. On a CPU any number will do.
    """
    if processes < 1:
        raise UsageError(f"{parameter('processes')} must be 1 or more; this is {processes}.")
    started = place_among_processes()[1]
    if started > 1 and processes != started:
        raise UsageError(
            f"torchrun started {started} processes: leave {parameter('processes', processes)} out, or start so many."
        )
    if started > 1:
        return
    first = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    available = torch.cuda.device_count()
    if first.type == "cuda" and (first.index or 0) + processes > available:
        raise UsageError(
            f"{parameter('processes', processes)} needs as many GPUs, one for each process; there are {available}."
        )


class Worker:
    """Another process with a replica of the model, on the GPU that is `rank` places behind the first one's. It is started here.

    `memory`: the largest use that it has reported so far, in GiB.
    """

    def __init__(self, rank: int, here: PolicyPasses, threads: int) -> None:
        self.rank, self.memory = rank, 0.0
        self._link: GlooLink | None = None
        device = torch.device(here.body.device)
        opening: Facts = {
            "parent": os.getpid(),
            "address": here.body.address,
            "base": here.body.fingerprint,
            "lora": dataclasses.asdict(here.body.settings),
            "device": f"cuda:{(device.index or 0) + rank}" if device.type == "cuda" else str(device),
            "threads": threads,
            "batch_tokens": here.batch_tokens,
        }
        self._start(json.dumps(opening))

    def _start(self, opening: str) -> None:
        """Let it open its replica."""
        self._place = Path(tempfile.mkdtemp(prefix="whet-worker-"))
        (self._place / OPENING).write_text(opening, encoding="utf-8")
        command = [sys.executable, "-P", "-m", WORKER, str(self._place)]
        quiet = subprocess.DEVNULL
        self.process = subprocess.Popen(command, stdin=quiet, stdout=quiet, start_new_session=True)

    def ask(self, facts: Facts, tensors: blob.Parts | None = None) -> None:
        """Give it something to do. Raises ProviderError when it is gone."""
        try:
            self._open_link().send_bytes(blob.pack(tensors or {}, facts))
        except OSError:
            self._raise_end()

    def answer(self) -> Answer:
        """Its answer. Raises ProviderError when it is gone, UsageError or ProviderError as it failed."""
        answer = receive(self._open_link())
        if answer is None:
            self._raise_end()
        self._check(answer[0])
        self.memory = answer[0]["memory"]
        return answer

    def close(self) -> None:
        """End it at once, whatever it does: it holds nothing of its own."""
        if self._link is not None:
            self._link.close()
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self._place, ignore_errors=True)

    def _open_link(self) -> GlooLink:
        """The link to it, which is made when it is needed first; until then it opens its replica."""
        if self._link is None:
            while not (self._place / READY).exists():
                if self.process.poll() is not None:
                    self._raise_end()
                time.sleep(LOOK)
            self._link = GlooLink(store_in(self._place), 0, here=True)
        return self._link

    def _check(self, facts: Facts) -> None:
        if "usage" in facts:
            raise UsageError(facts["usage"])
        if "failed" in facts:
            raise ProviderError(f"process {self.rank} of the training failed: {facts['failed']}", fatal=True)

    def _raise_end(self) -> NoReturn:
        while self._link is not None and (last := receive(self._link)) is not None:  # its last message
            self._check(last[0])
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(PATIENCE)
        self.close()
        code = self.process.returncode
        how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
        raise ProviderError(
            f"process {self.rank} of the training (pid {self.process.pid}) was ended {how}. Everything recorded is "
            f"kept: run the same command again, with fewer {parameter('processes')} if the memory was too small.",
            fatal=True,
        )


class LaunchedWorker(Worker):
    """A worker that torchrun started, on this machine or another one. torchrun ends all processes when one of them fails."""

    groups = 0
    """Groups of workers that this process has made: each worker opens a replica for each of them."""

    def _start(self, opening: str) -> None:
        self._store = store_of_launcher()
        self._key = key_of(self.rank, self.groups)
        self._store.set(self._key, opening)

    def close(self) -> None:
        """Let it go: it waits for the next replica to open."""
        if self._link is not None:
            self._link.close()

    def _open_link(self) -> GlooLink:
        if self._link is None:
            self._link = GlooLink(link_store(self._store, self._key), 0, here=False)
        return self._link

    def _raise_end(self) -> NoReturn:
        raise ProviderError(
            f"process {self.rank} of the training, which torchrun started, has ended. Everything recorded is kept: run the same "
            "command again.",
            fatal=True,
        )


def key_of(rank: int, group: int) -> str:
    """The key in torchrun's store of what a worker opens for a group; an empty value: there is nothing more to do."""
    return f"whet/{rank}/{group}"


def link_store(store: Any, key: str) -> Any:
    """The part of torchrun's store by which the two ends of a link find each other."""
    return dist.PrefixStore(f"{key}/link", store)


def dismiss_launched() -> None:
    """In the first of the processes that torchrun started: tell the others that there is nothing more to do."""
    store = store_of_launcher()
    for rank in range(1, place_among_processes()[1]):
        store.set(key_of(rank, LaunchedWorker.groups), "")


def receive(link: GlooLink) -> Answer | None:
    """The next message: facts and tensors; None when the other side is gone."""
    try:
        return blob.read_blob(link.recv_bytes(), "a message")
    except (EOFError, OSError):
        return None


class WorkerGroup:
    """The passes over a policy's weights, shared among `processes` processes, this one included. The interface is that of
    `PolicyPasses`.

    `workers` are the others, in order. On a CPU all share the threads that this process would use alone. Results
    depend on the number of processes by rounding only, and not at all on when a worker answers. Raises UsageError as
    `check_processes`.
    """

    def __init__(self, here: PolicyPasses, processes: int) -> None:
        check_processes(processes, here.body.device)
        self.processes, self._here = processes, here
        cpu = not here.body.device.startswith("cuda")
        self._threads = max(1, torch.get_num_threads() // processes) if cpu else torch.get_num_threads()
        self._sent: dict[tuple[str, str], torch.Tensor] = {}
        self.workers: list[Worker] = []
        with self._or_close():
            kind = Worker if place_among_processes()[1] == 1 else LaunchedWorker
            for rank in range(1, processes):
                self.workers.append(kind(rank, here, self._threads))
            LaunchedWorker.groups += kind is LaunchedWorker
        self._opening = list(self.workers)

    def write(self, rows: Sequence[SamplingRow], how: Sampling) -> list[Sample]:
        """See `PolicyPasses.write`."""
        own, answers = self._share(
            _split_evenly(rows, self.processes),
            lambda share: {
                "job": "write",
                "rows": [[row.ids, row.draws] for row in share],
                "how": dataclasses.asdict(how),
            },
            lambda share: self._here.write(share, how),
        )
        return own + [Sample.from_json(value) for facts, _ in answers for value in facts["samples"]]

    def logprobs(self, samples: Sequence[Sample], *, reference: bool = False) -> Rows:
        """See `PolicyPasses.logprobs`."""
        own, answers = self._share(
            _split_evenly(samples, self.processes),
            lambda share: {
                "job": "logprobs",
                "reference": reference,
                "samples": [s.to_json() for s in share],
            },
            lambda share: self._here.logprobs(share, reference=reference),
        )
        return own + [row for facts, _ in answers for row in facts["rows"]]

    def gradients(self, batch: UpdateBatch, settings: Update) -> Figures:
        """See `PolicyPasses.gradients`."""
        places = _split_evenly(range(len(batch.samples)), self.processes)
        figures, answers = self._share(
            [batch.take(some, batch.tokens) for some in places],
            lambda share: {
                "job": "gradients",
                "settings": dataclasses.asdict(settings),
                "batch": share.to_json(),
            },
            lambda share: self._here.gradients(share, settings),
        )
        for facts, gradients in answers:
            for name, gradient in gradients.get("weights", {}).items():
                mine = self._here.body.trainable[name]
                gradient = gradient.to(mine.device)
                mine.grad = gradient if mine.grad is None else mine.grad.add_(gradient)
            figures.add(Figures(**facts["figures"]))
        return figures

    def memory(self) -> float:
        """Most memory so far of all processes together, in GiB."""
        return self._here.memory() + sum(worker.memory for worker in self.workers)

    def close(self) -> None:
        """End the workers."""
        for worker in self.workers:
            worker.close()

    def _share(
        self, shares: Sequence[S], ask: Callable[[S], Facts], own: Callable[[S], T]
    ) -> tuple[T, list[Answer]]:
        """The first share's result, computed here, and the workers' answers on the others, in order."""
        with self._or_close(), self._fewer_threads():
            self._update()
            busy = list(zip(self.workers, shares[1:], strict=False))
            for worker, share in busy:
                worker.ask(ask(share))
            result = own(shares[0])
            return result, [worker.answer() for worker, _ in busy]

    def _update(self) -> None:
        """Give the workers the weights that differ from those that they have."""
        for worker in self._opening:
            worker.answer()
        self._opening = []
        now = {(part, name): weight for part, of in state(self._here).items() for name, weight in of.items()}
        new = {
            key: t for key, t in now.items() if key not in self._sent or not torch.equal(t, self._sent[key])
        }
        gone = self._sent.keys() - now.keys()
        if not new and not gone:
            return
        parts: blob.Parts = {}
        for (part, name), weight in new.items():
            parts.setdefault(part, {})[name] = weight
        for worker in self.workers:
            worker.ask({"job": "load", "anchored": self._here.body.anchor is not None}, parts)
        kept = {key: self._sent[key] for key in now.keys() - new.keys()}
        self._sent = kept | {key: weight.detach().clone() for key, weight in new.items()}

    @contextlib.contextmanager
    def _fewer_threads(self) -> Iterator[None]:
        threads = torch.get_num_threads()
        torch.set_num_threads(self._threads)
        try:
            yield
        finally:
            torch.set_num_threads(threads)

    @contextlib.contextmanager
    def _or_close(self) -> Iterator[None]:
        """End the workers when something fails: they may be in the middle of something else."""
        try:
            yield
        except BaseException:
            self.close()
            raise


def state(passes: PolicyPasses) -> blob.Parts:
    """Everything by which a replica differs from the model at its address."""
    return {"weights": passes.body.trainable, "anchor": passes.body.anchor or {}}


def _split_evenly(items: Sequence[T], n: int) -> list[Sequence[T]]:
    """At most `n` slices in order, as equal as they can be and none of them empty but the first."""
    each, more = divmod(len(items), n)
    ends = [each * i + min(i, more) for i in range(n + 1)]
    cuts = [items[a:b] for a, b in itertools.pairwise(ends)]
    return [share for i, share in enumerate(cuts) if len(share) or i == 0]
