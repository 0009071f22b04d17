"""A worker of data-parallel training: ``python -m whet.rl.policy_model.distributed_worker SOCKET``, started by `Fleet`.

It answers what the first process asks, one request after the other, and ends when the first process is gone, also
in the middle of a computation.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import queue
import socket
import sys
import threading

import torch

import whet.rl.policy_model.checkpoint as checkpoint
import whet.rl.policy_model.distributed_wire as distributed_wire
from whet.errors import WhetError
from whet.rl.policy_model.backbone import Tensors, open_body
from whet.rl.policy_model.distributed import Answer, learning, state
from whet.rl.policy_model.learning import UpdateBatch
from whet.rl.policy_model.optimizer import Optimizer
from whet.rl.policy_model.passes import PolicyPasses
from whet.rl.policy_model.sample import Sample
from whet.rl.policy_model.sampling import Sampling, SamplingRow
from whet.rl.policy_model.settings import LoraSettings, Update


def main(fd: int) -> None:
    """Serve requests from the socket `fd` until it is closed."""
    connection = socket.socket(fileno=fd)
    requests: queue.SimpleQueue[Answer] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(connection, requests), daemon=True).start()
    with contextlib.suppress(OSError):  # of a first process that is gone
        try:
            _serve(connection, requests)
        except WhetError as error:
            distributed_wire.send(connection, {"usage": str(error)}, {})
        except Exception as error:
            distributed_wire.send(connection, {"failed": f"{type(error).__name__}: {error}"}, {})


def _serve(connection: socket.socket, requests: queue.SimpleQueue[Answer]) -> None:
    replica = opened(requests.get()[0])
    distributed_wire.send(connection, {"memory": replica.memory()}, {})
    while True:
        facts, tensors = requests.get()
        if facts["job"] == "load":
            load(replica, tensors, anchored=facts["anchored"])
            continue
        result, gradients = answered(replica, facts, tensors)
        distributed_wire.send(connection, {**result, "memory": replica.memory()}, gradients)


def _listen(connection: socket.socket, requests: queue.SimpleQueue[Answer]) -> None:
    """Queue what arrives; end the process when nothing can arrive any more."""
    while (frame := distributed_wire.receive(connection)) is not None:
        requests.put(frame)
    os._exit(0)


def opened(facts: distributed_wire.Facts) -> PolicyPasses:
    """The replica that a first request describes. Raises UsageError when the model is not the first process's."""
    torch.set_num_threads(facts["threads"])
    body = open_body(facts["address"], LoraSettings(**facts["lora"]), 0, facts["device"])
    checkpoint.check_base("the policy of the first process", facts, body.address, body.fingerprint)
    return PolicyPasses(body, Optimizer(body, 0).critic, facts["batch_tokens"])


def load(replica: PolicyPasses, tensors: Tensors, *, anchored: bool) -> None:
    """Take over weights, critic and reference of the first process, as far as they changed."""
    body = replica.body
    if not anchored:
        body.anchor = None
    elif body.anchor is None:
        body.fix()
    mine = state(body, replica.critic)
    for name, tensor in tensors.items():
        mine[name].data.copy_(tensor)


def answered(replica: PolicyPasses, facts: distributed_wire.Facts, tensors: Tensors) -> Answer:
    """Do what a request asks: facts and, where weights are to learn, gradients."""
    job = facts["job"]
    if job == "write":
        draws = tensors["draws"]
        rows = [SamplingRow(tuple(prompt), heat, draws[i]) for i, (prompt, heat) in enumerate(facts["rows"])]
        how = Sampling(**{**facts["how"], "stop": tuple(facts["how"]["stop"])})
        return {"samples": [sample.to_json() for sample in replica.write(rows, how)]}, {}
    if job == "preferences":
        pairs = [(Sample.from_json(a), Sample.from_json(b)) for a, b in facts["pairs"]]
        return {"sums": replica.preferences(pairs, facts["beta"], facts["whole"])}, _taken(replica)
    if job == "gradients":
        figures = replica.gradients(UpdateBatch.from_json(facts["batch"]), Update(**facts["settings"]))
        return {"figures": dataclasses.asdict(figures)}, _taken(replica)
    samples = [Sample.from_json(value) for value in facts["samples"]]
    if job == "values":
        return {"rows": replica.values(samples)}, {}
    return {"rows": replica.measured(samples, facts["temperature"], reference=facts["reference"])}, {}


def _taken(replica: PolicyPasses) -> Tensors:
    """The gradients that were added up, which are then forgotten."""
    gradients = {}
    for name, weight in learning(replica.body, replica.critic).items():
        if weight.grad is not None:
            gradients[name], weight.grad = weight.grad, None
    return gradients


if __name__ == "__main__":
    main(int(sys.argv[1]))
