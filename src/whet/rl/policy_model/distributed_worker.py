"""A worker of data-parallel training: ``python -m whet.rl.policy_model.distributed_worker FOLDER``, started by `WorkerGroup`.

It answers what the first process asks, one request after the other, and ends when the first process is gone, also
in the middle of a computation.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
import queue
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch

import whet.rl.policy_model.checkpoint as checkpoint
from whet.errors import WhetError
from whet.rl import blob
from whet.rl.launcher import place_among_processes
from whet.rl.policy_model.backbone import LoraSettings, open_body
from whet.rl.policy_model.distributed import OPENING, READY, Answer, Facts, key_of, link_store, receive, state
from whet.rl.policy_model.gloo_link import GlooLink, store_in, store_of_launcher
from whet.rl.policy_model.learning import PolicyPasses, UpdateBatch
from whet.rl.policy_model.optimizer import Update
from whet.rl.policy_model.sampling import Sample, Sampling, SamplingRow

LOOK = 1.0
"""Seconds between two looks whether the first process is there."""


def main(folder: Path) -> None:
    """Serve requests of the process that shares `folder` until it is gone."""
    opening = json.loads((folder / OPENING).read_text(encoding="utf-8"))
    threading.Thread(target=_end_with_parent, args=(opening["parent"],), daemon=True).start()
    replica = _open(opening)
    (folder / READY).touch()
    _serve(replica, GlooLink(store_in(folder), 1, here=True), lambda: os._exit(0))
    threading.Event().wait()  # the first process reads why, and then ends this one: a link that closes at once would lose it


def serve_launched() -> None:
    """In a process that torchrun started behind the first one: open a replica for each group of workers, and serve requests until
    there is nothing more to do."""
    rank, store = place_among_processes()[0], store_of_launcher()
    for group in itertools.count():
        key = key_of(rank, group)
        facts = store.get(key).decode()
        if not facts:
            return
        opening = json.loads(facts)
        if opening["device"].startswith("cuda"):
            opening["device"] = f"cuda:{os.environ['LOCAL_RANK']}"
        replica = _open(opening)
        _serve(replica, GlooLink(link_store(store, key), 1, here=False), lambda: None)


def _open(opening: Facts) -> PolicyPasses | WhetError:
    """The replica, or why it cannot be opened."""
    try:
        return open_replica(opening)
    except WhetError as error:
        return error


def _serve(replica: PolicyPasses | WhetError, link: GlooLink, gone: Callable[[], object]) -> None:
    """Answer requests until the first process is gone, which `gone` is told at once, also in the middle of a computation."""
    requests: queue.SimpleQueue[Answer | None] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(link, requests, gone), daemon=True).start()
    with contextlib.suppress(OSError):  # of a first process that is gone
        try:
            if isinstance(replica, WhetError):
                raise replica
            _answer_all(replica, link, requests)
        except WhetError as error:
            link.send_bytes(blob.pack({}, {"usage": str(error)}))
        except Exception as error:
            link.send_bytes(blob.pack({}, {"failed": f"{type(error).__name__}: {error}"}))


def _answer_all(replica: PolicyPasses, link: GlooLink, requests: queue.SimpleQueue[Answer | None]) -> None:
    link.send_bytes(blob.pack({}, {"memory": replica.memory()}))
    while (request := requests.get()) is not None:
        facts, tensors = request
        if facts["job"] == "load":
            load_replica(replica, tensors, anchored=facts["anchored"])
            continue
        result, gradients = answer_request(replica, facts)
        link.send_bytes(blob.pack(gradients, {**result, "memory": replica.memory()}))


def _listen(link: GlooLink, requests: queue.SimpleQueue[Answer | None], gone: Callable[[], object]) -> None:
    """Queue what arrives, and None when nothing can arrive any more."""
    while (message := receive(link)) is not None:
        requests.put(message)
    gone()
    requests.put(None)


def _end_with_parent(parent: int) -> None:
    """End the process when the one that started it is gone, also before there is a link."""
    while os.getppid() == parent:
        time.sleep(LOOK)
    os._exit(0)


def open_replica(facts: Facts) -> PolicyPasses:
    """The replica that a first request describes. Raises UsageError when the model is not the first process's."""
    torch.set_num_threads(facts["threads"])
    body = open_body(facts["address"], LoraSettings(**facts["lora"]), 0, facts["device"])
    checkpoint.check_base("the policy of the first process", facts, body.address, body.fingerprint)
    return PolicyPasses(body, facts["batch_tokens"])


def load_replica(replica: PolicyPasses, tensors: blob.Parts, *, anchored: bool) -> None:
    """Take over weights and reference policy of the first process, as far as they changed."""
    body = replica.body
    if not anchored:
        body.anchor = None
    elif body.anchor is None:
        body.fix()
    mine = state(replica)
    for part, weights in tensors.items():
        for name, weight in weights.items():
            mine[part][name].data.copy_(weight)


def answer_request(replica: PolicyPasses, facts: Facts) -> Answer:
    """Do what a request asks: facts and, where weights are to learn, gradients."""
    job = facts["job"]
    if job == "write":
        how = Sampling(**{**facts["how"], "stop": tuple(facts["how"]["stop"])})
        rows = [
            SamplingRow(tuple(prompt), how.max_tokens, how.stop, draws=draws)
            for prompt, draws in facts["rows"]
        ]
        return {"samples": [sample.to_json() for sample in replica.write(rows, how)]}, {}
    if job == "gradients":
        figures = replica.gradients(UpdateBatch.from_json(facts["batch"]), Update(**facts["settings"]))
        return {"figures": dataclasses.asdict(figures)}, _take_gradients(replica)
    samples = [Sample.from_json(value) for value in facts["samples"]]
    return {"rows": replica.logprobs(samples, reference=facts["reference"])}, {}


def _take_gradients(replica: PolicyPasses) -> blob.Parts:
    """The gradients that were added up, which are then forgotten."""
    gradients: blob.Parts = {"weights": {}}
    for name, weight in replica.body.trainable.items():
        if weight.grad is not None:
            gradients["weights"][name], weight.grad = weight.grad, None
    return gradients


if __name__ == "__main__":
    main(Path(sys.argv[1]))
