"""A worker of data-parallel training: ``python -m whet.rl.policy_model.distributed_worker FD``, started by `WorkerGroup`.

It answers what the first process asks, one request after the other, and ends when the first process is gone, also
in the middle of a computation.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import queue
import sys
import threading
from multiprocessing.connection import Connection

import torch

import whet.rl.policy_model.checkpoint as checkpoint
from whet.errors import WhetError
from whet.rl import blob
from whet.rl.policy_model.backbone import LoraSettings, open_body
from whet.rl.policy_model.distributed import Answer, Facts, receive, state
from whet.rl.policy_model.learning import PolicyPasses, UpdateBatch
from whet.rl.policy_model.optimizer import Update
from whet.rl.policy_model.sampling import Sample, Sampling, SamplingRow


def main(fd: int) -> None:
    """Serve requests from the pipe `fd` until it is closed."""
    connection = Connection(fd)
    requests: queue.SimpleQueue[Answer] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(connection, requests), daemon=True).start()
    with contextlib.suppress(OSError):  # of a first process that is gone
        try:
            _serve(connection, requests)
        except WhetError as error:
            connection.send_bytes(blob.pack({}, {"usage": str(error)}))
        except Exception as error:
            connection.send_bytes(blob.pack({}, {"failed": f"{type(error).__name__}: {error}"}))


def _serve(connection: Connection, requests: queue.SimpleQueue[Answer]) -> None:
    replica = open_replica(requests.get()[0])
    connection.send_bytes(blob.pack({}, {"memory": replica.memory()}))
    while True:
        facts, tensors = requests.get()
        if facts["job"] == "load":
            load_replica(replica, tensors, anchored=facts["anchored"])
            continue
        result, gradients = answer_request(replica, facts)
        connection.send_bytes(blob.pack(gradients, {**result, "memory": replica.memory()}))


def _listen(connection: Connection, requests: queue.SimpleQueue[Answer]) -> None:
    """Queue what arrives; end the process when nothing can arrive any more."""
    while (message := receive(connection)) is not None:
        requests.put(message)
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
    main(int(sys.argv[1]))
